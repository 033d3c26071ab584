//! Served machines: programs see what flyball sees. Skipped where there is no FUSE, or a tool is not installed.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::{
    path::Path,
    process::{Command, Output},
};

const FLYBALL: &str = env!("CARGO_BIN_EXE_flyball");

fn has_fuse() -> bool {
    let there = std::fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !there {
        eprintln!("skipped: /dev/fuse cannot be opened");
    }
    there
}

fn run(machine: &str, program: &[&str]) -> Output {
    let output = Command::new(FLYBALL).args(["sim", "run", machine, "--"]).args(program).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("is simulated"), "it must say so: {words}");
    output
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn tool(name: &str) -> bool {
    let there = ["/usr/bin", "/usr/sbin"].iter().any(|folder| Path::new(folder).join(name).exists());
    if !there {
        eprintln!("skipped: {name} is not installed");
    }
    there
}

#[test]
fn a_shell_reads_writes_and_is_refused_as_on_the_machine() {
    if !has_fuse() {
        return;
    }
    let script = r"
        cd /sys/devices/system/cpu
        cat online cpu3/cpufreq/scaling_driver cpufreq/policy3/scaling_governor
        echo performance > cpu3/cpufreq/scaling_governor; cat cpu3/cpufreq/scaling_governor
        (echo ondemand | tee cpu3/cpufreq/scaling_governor) 2>&1 | grep -o 'Invalid argument'
        (echo 1 > cpu3/cpufreq/cpuinfo_max_freq) 2>&1 | grep -o 'Permission denied'
        echo 0 > cpu5/online; cat online
        (cat cpufreq/policy5/scaling_governor) 2>&1 | grep -o 'Device or resource busy'
        cat /sys/class/powercap/intel-rapl:0/name
        grep -c ^processor /proc/cpuinfo
        test -e /sys/class/net && echo net
        exit 7
    ";
    let output = run("gold-6138", &["sh", "-c", script]);
    assert_eq!(output.status.code(), Some(7), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "0-39\nintel_pstate\npowersave\nperformance\nInvalid argument\nPermission denied\n0-4,6-39\n\
         Device or resource busy\npackage-0\n39\nnet\n"
    );
    // Nothing is left of it outside.
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    assert_ne!(online.trim(), "0-4,6-39");
}

#[test]
fn registers_are_read_by_offset() {
    if !has_fuse() {
        return;
    }
    let script = "dd if=/dev/cpu/2/msr bs=8 count=1 iflag=skip_bytes skip=1905 2>/dev/null | od -An -tx1";
    let capabilities = text(&run("gold-6138", &["sh", "-c", script]));
    // 0x771: lowest 10, efficient 10, guaranteed 20, highest 37.
    assert_eq!(capabilities.split_whitespace().take(4).collect::<Vec<_>>(), ["25", "14", "0a", "0a"]);
}

#[test]
fn cpupower_says_what_flyball_says() {
    if !has_fuse() || !tool("cpupower") {
        return;
    }
    for machine in ["ryzen-5750g", "gold-6138", "epyc-512"] {
        let theirs = text(&run(machine, &["cpupower", "frequency-info"]));
        let ours = Command::new(FLYBALL)
            .args([
                "-M",
                &format!("sim:{machine}"),
                "get",
                "--json",
                "driver",
                "governor",
                "hw-max-freq",
                "hw-min-freq",
            ])
            .output()
            .unwrap();
        let ours = text(&ours);
        let word = |key: &str| {
            let line = theirs.lines().find_map(|line| line.trim().strip_prefix(key)).unwrap_or_default();
            line.trim().to_owned()
        };
        assert!(ours.contains(&format!("\"{}\"", word("driver:"))), "{machine}: {theirs}\n{ours}");
        let governor =
            theirs.split("The governor \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        assert!(ours.contains(&format!("\"{governor}\"")), "{machine}: {governor}\n{ours}");
    }
}

#[test]
fn the_energy_policy_tool_reads_registers_of_a_processor_that_is_not_there() {
    if !has_fuse() || !tool("x86_energy_perf_policy") {
        return;
    }
    let said = text(&run("gold-6138", &["x86_energy_perf_policy"]));
    assert!(said.contains("cpu39: HWP_REQ: min 10 max 37 des 0 epp 128"), "{said}");
    assert!(said.contains("cpu0: HWP_CAP: low 10 eff 10 guar 20 high 37"), "{said}");
}

#[test]
fn turbostat_counts_on_a_simulated_machine() {
    if !has_fuse() || !tool("turbostat") {
        return;
    }
    for machine in ["gold-6138", "ryzen-5750g"] {
        let output = run(
            machine,
            &["turbostat", "-q", "-n", "1", "-i", "0.5", "--show", "CPU,Avg_MHz,TSC_MHz,PkgWatt"],
        );
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        // Each CPU's counters are read a little later on a busy machine, so that single rows scatter: the middle one.
        let tsc = if machine == "gold-6138" { 2000.0 } else { 3294.3 };
        let rows = said.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
        let mut measured: Vec<f64> =
            rows.filter_map(|line| line.split('\t').nth(2)?.trim().parse().ok()).collect();
        measured.sort_by(f64::total_cmp);
        let cpus = if machine == "gold-6138" { 40 } else { 16 };
        assert_eq!(measured.len(), cpus, "{machine}: {said}");
        let middle = measured[cpus / 2];
        assert!((middle / tsc - 1.0).abs() < 0.1, "{machine}: {middle} MHz, {said}");
    }
}

#[test]
fn a_workload_runs_on_the_served_machine() {
    if !has_fuse() {
        return;
    }
    let script = format!(
        "cat /sys/class/powercap/intel-rapl:0/energy_uj; {FLYBALL} sim work sched-pipe --amount 100000; \
         cat /sys/class/powercap/intel-rapl:0/energy_uj"
    );
    let said = text(&run("ryzen-5750g", &["sh", "-c", &script]));
    let lines: Vec<&str> = said.lines().collect();
    let (before, after): (u64, u64) = (lines[0].parse().unwrap(), lines[lines.len() - 1].parse().unwrap());
    assert!(said.contains("Executed 100000 pipe operations"), "{said}");
    let seconds: f64 = said.split("Total time: ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let watts = (after - before) as f64 * 1e-6 / seconds;
    assert!((0.05..5.0).contains(&seconds) && (1.0..100.0).contains(&watts), "{watts} W: {said}");
}
