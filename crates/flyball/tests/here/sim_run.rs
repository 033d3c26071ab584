//! Tests served machines: programs see what flyball sees. Skipped without FUSE or if a tool is not
//! installed.

use crate::has_fuse;
use flyball_testing::{flyball, skip};
use std::{
    path::Path,
    process::{Command, Output},
};

fn run(machine: &str, program: &[&str]) -> Output {
    let output = flyball!().args(["sim", "run", machine, "--"]).args(program).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("simulated: sim:"), "it must say so: {words}");
    output
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn tool(name: &str) -> bool {
    let there = ["/usr/bin", "/usr/sbin"].iter().any(|folder| Path::new(folder).join(name).exists());
    if !there {
        skip(1, "comparison with another tool", &format!("{name} is not installed"));
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
    // Outside, nothing of it is visible.
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

/// Returns what flyball prints about a machine: value by knob and CPU.
fn said_by_flyball(machine: &str, knobs: &[&str]) -> std::collections::HashMap<(String, u32), String> {
    let name = format!("sim:{machine}");
    let output = flyball!().args(["-M", &name, "--json", "get"]).args(knobs).output().unwrap();
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let mut values = std::collections::HashMap::new();
    for row in rows {
        let value = match &row["value"] {
            serde_json::Value::Null => continue,
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let cpus: flyball_host::CpuList = row["cpus"].as_str().unwrap().parse().unwrap();
        for cpu in cpus.iter() {
            values.insert((row["knob"].as_str().unwrap().to_owned(), cpu), value.clone());
        }
    }
    values
}

/// Formats a frequency like cpupower (tools/power/cpupower/utils/cpufreq-info.c, print_speed).
fn as_cpupower_prints(khz: &str) -> String {
    let khz: u64 = khz.parse().unwrap();
    if khz > 1_000_000 {
        let khz = if khz % 10_000 >= 5_000 { khz + 10_000 } else { khz };
        format!("{}.{:02} GHz", khz / 1_000_000, khz % 1_000_000 / 10_000)
    } else if khz <= 100_000 {
        let tenths = (khz + 50) / 100;
        format!("{}.{} MHz", tenths / 10, tenths % 10)
    } else {
        format!("{} MHz", (khz + if khz % 1_000 >= 500 { 1_000 } else { 0 }) / 1_000)
    }
}

/// For every machine, Debian's tools print the same numbers of its settings as flyball.
#[test]
#[expect(clippy::too_many_lines, reason = "one session per machine answers all tools")]
fn tools_say_what_flyball_says_of_every_machine() {
    if !has_fuse() {
        return;
    }
    let tools = ["cpupower", "x86_energy_perf_policy", "turbostat"].map(tool);
    let script = "
        echo @@limits; cpupower -c all frequency-info -l
        echo @@policy; cpupower -c all frequency-info -p
        echo @@driver; cpupower -c 0 frequency-info -d
        echo @@energy; x86_energy_perf_policy 2>/dev/null
        echo @@turbostat; turbostat -q -n 1 -i 0.05 --show CPU,TSC_MHz 2>&1
        echo @@registers; turbostat -n 1 -i 0.05 2>&1
        true";
    let mut compared = 0;
    for machine in flyball_silicon::MachineSpec::names() {
        let said = text(&run(machine, &["sh", "-c", script]));
        let part = |name: &str| {
            let rest = said.split(&format!("@@{name}\n")).nth(1).unwrap_or_default();
            rest.split("@@").next().unwrap_or_default().to_owned()
        };
        let ours = said_by_flyball(
            machine,
            &["hw-min-freq", "hw-max-freq", "min-freq", "max-freq", "governor", "driver", "epb", "online"],
        );
        let ours = |knob: &str, cpu: u32| ours.get(&(knob.to_owned(), cpu)).cloned();
        let cpus = flyball_silicon::MachineSpec::builtin(machine).unwrap().cpus() as u32;
        let mut agree = |what: &str, cpu: u32, theirs: &str, own: Option<String>| {
            assert_eq!(Some(theirs), own.as_deref(), "{machine}: {what} of CPU {cpu}");
            compared += 1;
        };
        if tools[0] {
            let (mut cpu, mut seen) = (0, 0);
            for line in part("limits").lines() {
                if let Some(number) = line.strip_prefix("analyzing CPU ") {
                    cpu = number.trim_end_matches(':').parse().unwrap();
                } else if let Some((low, high)) = line.split_once(' ') {
                    agree("lowest frequency", cpu, low, ours("hw-min-freq", cpu));
                    agree("highest frequency", cpu, high, ours("hw-max-freq", cpu));
                    seen += 1;
                }
            }
            assert_eq!(seen, cpus, "{machine}: {said}");
            for line in part("policy").lines() {
                if let Some(number) = line.strip_prefix("analyzing CPU ") {
                    cpu = number.trim_end_matches(':').parse().unwrap();
                } else if let Some(range) =
                    line.trim().strip_prefix("current policy: frequency should be within ")
                {
                    let (low, high) = range.trim_end_matches('.').split_once(" and ").unwrap();
                    let own = |knob| ours(knob, cpu).map(|khz| as_cpupower_prints(&khz));
                    agree("minimum", cpu, low, own("min-freq"));
                    agree("maximum", cpu, high, own("max-freq"));
                } else if let Some(rest) = line.trim().strip_prefix("The governor \"") {
                    agree("governor", cpu, rest.split('"').next().unwrap(), ours("governor", cpu));
                }
            }
            let driver = part("driver");
            let driver = driver.split("driver: ").nth(1).unwrap_or_default().trim().to_owned();
            agree("driver", 0, &driver, ours("driver", 0));
        }
        let spec = flyball_silicon::MachineSpec::builtin(machine).unwrap();
        let intel = spec.identity.vendor == flyball_silicon::spec::Vendor::Intel;
        if tools[1] && intel {
            let energy = part("energy");
            let mut seen = 0;
            for line in energy.lines() {
                let Some((cpu, rest)) = line.strip_prefix("cpu").and_then(|line| line.split_once(": "))
                else {
                    continue;
                };
                let Ok(cpu) = cpu.parse::<u32>() else { continue };
                if let Some(epb) = rest.strip_prefix("EPB ") {
                    agree("energy bias", cpu, epb.trim(), ours("epb", cpu));
                    seen += 1;
                } else if let Some(rest) = rest.strip_prefix("HWP_REQ: min ")
                    && spec.core.len() == 1
                {
                    // Levels of 100 MHz. On hybrid processors, levels are no ratios.
                    let words: Vec<&str> = rest.split(' ').collect();
                    let khz = |level: &str| format!("{level}00000");
                    agree("HWP minimum", cpu, &khz(words[0]), ours("min-freq", cpu));
                    agree("HWP maximum", cpu, &khz(words[2]), ours("max-freq", cpu));
                }
            }
            assert_eq!(seen, cpus, "{machine}: {energy}");
        }
        // turbostat reads x86 registers.
        if tools[2] && spec.identity.vendor != flyball_silicon::spec::Vendor::Arm {
            let shown = part("turbostat");
            let rows = shown.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
            let mut listed: Vec<u32> =
                rows.filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
            listed.sort_unstable();
            assert_eq!(listed.len() as u32, cpus, "{machine}: {shown}");
            for (cpu, row) in listed.into_iter().enumerate() {
                agree("turbostat's CPUs", cpu as u32, &row.to_string(), Some(cpu.to_string()));
            }
            for line in part("registers").lines() {
                let Some((cpu, rest)) = line.strip_prefix("cpu").and_then(|line| line.split_once(": "))
                else {
                    continue;
                };
                let Ok(cpu) = cpu.parse::<u32>() else { continue };
                if let Some(epb) = rest.strip_prefix("EPB: ") {
                    agree("turbostat's energy bias", cpu, epb.split(' ').next().unwrap(), ours("epb", cpu));
                }
            }
        }
    }
    eprintln!("{compared} values of the tools equal flyball's");
    assert!(compared > 0 || tools == [false; 3]);
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
fn the_kernel_and_its_log_are_the_machines() {
    if !has_fuse() || !tool("dmesg") {
        return;
    }
    let script =
        "uname -r; sysctl -n kernel.osrelease; dmesg | grep -o 'intel_pstate: .*'; test -e /dev/kmsg";
    let output = run("gold-6138,kernel=7.2", &["sh", "-c", script]);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "7.2.0-flyball-sim\n7.2.0-flyball-sim\nintel_pstate: Intel P-state driver initializing\n\
         intel_pstate: HWP enabled\n"
    );
    assert_eq!(output.status.code(), Some(1), "/dev/kmsg would be the real kernel's");
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
        // On a busy machine, each CPU's counters are read at slightly different times, so single
        // rows scatter. Use the median.
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
        "cat /sys/class/powercap/intel-rapl:0/energy_uj; {} sim work sched-pipe --amount 100000; \
         cat /sys/class/powercap/intel-rapl:0/energy_uj",
        env!("CARGO_BIN_EXE_flyball")
    );
    let said = text(&run("ryzen-5750g", &["sh", "-c", &script]));
    let lines: Vec<&str> = said.lines().collect();
    let (before, after): (u64, u64) = (lines[0].parse().unwrap(), lines[lines.len() - 1].parse().unwrap());
    assert!(said.contains("Executed 100000 pipe operations"), "{said}");
    let seconds: f64 = said.split("Total time: ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let watts = (after - before) as f64 * 1e-6 / seconds;
    assert!((0.05..5.0).contains(&seconds) && (1.0..100.0).contains(&watts), "{watts} W: {said}");
}

/// The setup of the Speed Select guide's turbo-freq experiment: twelve CPUs are busy while a pipe
/// runs on two others.
#[test]
fn two_workloads_run_on_the_served_machine_at_once() {
    if !has_fuse() {
        return;
    }
    let flyball = env!("CARGO_BIN_EXE_flyball");
    let script = format!(
        "{flyball} sim work spin --amount 60000 --pin 0-11 & sleep 0.3; \
         {flyball} sim work sched-pipe --amount 50000 --pin 12,13; \
         {flyball} sim work sched-pipe --amount 50000 --pin 11,12 || echo refused $?; wait"
    );
    let output = run("sst-guide", &["sh", "-c", &script]);
    let said = text(&output);
    let pipe: f64 =
        said.split(" usecs/op").next().unwrap().split_whitespace().last().unwrap().parse().unwrap();
    // With turbo: 5.7 us in the guide while others are busy, and 5.6 us in this model.
    assert!((5.3..5.9).contains(&pipe), "{pipe} us: {said}");
    let spin = said.lines().find(|line| line.starts_with("spin: ")).unwrap_or_else(|| panic!("{said}"));
    assert!(spin.contains(" in 1.6"), "its own end, not that of the pipe: {said}");
    assert!(said.contains("refused 2"), "{said} {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn trace_cmd_records_on_a_served_machine() {
    if !has_fuse() || !tool("trace-cmd") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.dat");
    let file = file.to_str().unwrap();
    let words = ["trace-cmd", "record", "-q", "-e", "amd_cpu", "-e", "power:cpu_idle", "-o", file];
    let work = [env!("CARGO_BIN_EXE_flyball"), "sim", "work", "spin", "--amount", "6000", "--pin", "0,3"];
    let output = run("ryzen-5750g,boot=amd_pstate=passive", &[&words[..], &work].concat());
    if !output.status.success() {
        // Without root, tracefs cannot be mounted, which trace-cmd requires.
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!is_root(), "{said}");
        skip(1, "recording by trace-cmd", "it needs root");
        return;
    }
    let theirs = Command::new("trace-cmd").args(["report", "-q", file]).output().unwrap();
    let lines = String::from_utf8_lossy(&theirs.stdout).into_owned();
    let requests = lines.lines().filter(|line| line.contains("amd_pstate_perf:")).count() as u64;
    let ours = flyball!().args(["--json", "trace", "report", file]).output().unwrap();
    let ours: serde_json::Value = serde_json::from_slice(&ours.stdout).unwrap();
    let events = ours["report"]["events"].as_array().unwrap();
    let counted = events.iter().find(|event| event["name"] == "amd_pstate_perf").unwrap();
    assert_eq!(counted["count"].as_u64(), Some(requests), "{lines}");
    assert!(requests > 10, "{lines}");
    assert!(lines.contains("cpu_idle:"), "{lines}");
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n")
}

#[test]
fn a_reader_of_trace_pipe_waits_and_can_be_killed() {
    if !has_fuse() {
        return;
    }
    let script = r"
        cd /sys/kernel/tracing
        echo 1 > events/power/cpu_frequency_limits/enable
        cat trace_pipe > /dev/shm/flyball-pipe.$$ & reader=$!
        sleep 0.3
        echo 2000000 > /sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq
        sleep 0.3
        kill $reader; wait $reader 2>/dev/null
        cat /dev/shm/flyball-pipe.$$; rm -f /dev/shm/flyball-pipe.$$
        mkdir instances/mine && ls instances && rmdir instances/mine
        echo > trace; grep -c cpu_frequency_limits trace
        true";
    let said = text(&run("i7-2600", &["sh", "-c", script]));
    assert!(said.contains("cpu_frequency_limits: min=1600000 max=2000000 cpu_id=0"), "{said}");
    assert!(said.contains("mine") && said.trim_end().ends_with('0'), "{said}");
}

#[test]
fn whatever_is_written_to_served_files_leaves_a_machine_that_answers() {
    if !has_fuse() {
        return;
    }
    // Writes texts that an ordinary program may write to every writable file, one after the other.
    let script = r"
        for text in 0 1 -1 99999999999999999999 junk performance '' 50 off; do
            find /sys/devices/system/cpu /sys/devices/virtual/powercap /sys/kernel/tracing -type f -perm -u+w |
            while read -r file; do printf '%s' $text > $file; done
        done 2>/dev/null
        echo @@; cat /sys/devices/system/cpu/online; head -1 /proc/stat
        cat /sys/devices/virtual/powercap/*/*/energy_uj | head -1; ls /sys/kernel/tracing/events | wc -l";
    for machine in ["i7-3520m", "ryzen-5750g,kernel=7.2"] {
        let said = text(&run(machine, &["sh", "-c", script]));
        let answers: Vec<&str> = said.split("@@\n").nth(1).unwrap().lines().collect();
        assert!(answers[0].starts_with('0') && answers[1].starts_with("cpu "), "{machine}: {said}");
        assert!(answers[2].parse::<u64>().is_ok() && answers[3] == "6", "{machine}: {said}");
    }
}

/// Runs a script in a new mount namespace in which `/run`, `/proc/irq` and a sample rate are
/// replaced: `$DIR` has the latter two. `None` if that is not permitted here.
fn in_namespace(script: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "set -e
        mount --make-rprivate /
        mount -t tmpfs none /run
        mkdir -p $DIR/irq/24; echo 0 > $DIR/irq/24/smp_affinity_list; echo 1 > $DIR/irq/default_smp_affinity
        echo 100000 > $DIR/rate
        mount --bind $DIR/irq /proc/irq
        mount --bind $DIR/rate /proc/sys/kernel/perf_event_max_sample_rate
        echo ready
        {script}"
    );
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .env("DIR", folder.path())
        .env("FLYBALL", env!("CARGO_BIN_EXE_flyball"))
        .env_remove("FLYBALL_STATE")
        .output();
    let said = output.map(|output| {
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    });
    let Some((_, said)) = said.as_deref().ok().and_then(|said| said.split_once("ready\n")) else {
        skip(1, "test of a served machine's isolation", "mount namespaces are not allowed here");
        return None;
    };
    Some(said.to_owned())
}

/// From a served machine, the real machine's journal, interrupts and kernel settings cannot be
/// reached.
#[test]
fn a_served_machine_does_not_reach_the_real_ones_settings() {
    if !has_fuse() {
        return;
    }
    let Some(said) = in_namespace(
        r#"mkdir -m 700 /run/flyball; echo 'of the real machine' > /run/flyball/journal
        boot=$(cat /proc/sys/kernel/random/boot_id)
        $FLYBALL sim run ryzen-5750g -- $FLYBALL restore
        $FLYBALL sim run ryzen-5750g -- sh -c "
            ls -A /run/flyball | wc -l
            $FLYBALL set governor=powersave max-freq=2GHz && ls /run/flyball
            $FLYBALL quiet --cpus 1 -- cat /proc/sys/kernel/perf_event_max_sample_rate
            cat /proc/sys/kernel/perf_event_max_sample_rate
            $FLYBALL restore
            test $boot != \$(cat /proc/sys/kernel/random/boot_id) && echo another boot
            (cat /proc/irq/24/smp_affinity_list) 2>&1 | grep -o 'No such file'"
        echo outside; ls /run/flyball; cat /run/flyball/journal $DIR/irq/24/smp_affinity_list $DIR/rate"#,
    ) else {
        return;
    };
    let (inside, outside) = said.split_once("outside\n").unwrap_or_else(|| panic!("{said}"));
    assert!(said.contains("nothing to restore"), "{said}");
    assert!(inside.starts_with("0\n") && inside.contains("\n1\n100000\n"), "{said}");
    assert!(inside.contains("journal\njournal.length\nlock\n") && inside.contains("another boot"), "{said}");
    assert!(inside.contains("No such file"), "{said}");
    assert!(outside.starts_with("journal\nof the real machine\n0\n100000\n"), "{said}");
}

/// If two environments share a state directory, neither touches the other's journal.
#[test]
fn a_journal_of_another_environment_is_refused() {
    if !has_fuse() {
        return;
    }
    // Only one flyball at a time can lock this machine, whatever its state directory.
    let _turn = crate::alone();
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let served = |command: &str| {
        let script = format!("{} --state-dir {} {command}", env!("CARGO_BIN_EXE_flyball"), state.display());
        run("ryzen-5750g", &["sh", "-c", &script])
    };
    text(&served("set governor=powersave max-freq=2GHz"));
    let journal = std::fs::read(state.join("journal")).unwrap();
    assert!(String::from_utf8_lossy(&journal).contains("sim:ryzen-5750g (served)"));
    for restore in [&["restore"][..], &["restore", "--dry-run"]] {
        let output = flyball!().arg("--state-dir").arg(&state).args(restore).output().unwrap();
        assert!(!output.status.success());
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(words.contains("belongs to the machine 'sim:ryzen-5750g (served)'"), "{words}");
    }
    assert_eq!(std::fs::read(state.join("journal")).unwrap(), journal);
}

/// The next start removes the directory of a killed server.
#[test]
fn what_a_killed_run_leaves_is_removed() {
    if !has_fuse() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let left = || -> Vec<_> {
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    let start = |program: &[&str]| {
        let mut command = flyball!();
        command.args(["sim", "run", "i7-2600", "--"]).args(program).env("TMPDIR", folder.path());
        command
    };
    let mark = folder.path().join("runs");
    let script = format!("echo > {}; exec sleep 60", mark.display());
    let mut child = start(&["sh", "-c", &script]).stderr(std::process::Stdio::null()).spawn().unwrap();
    while !mark.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::fs::remove_file(&mark).unwrap();
    // Another start does not touch the directory of a running server.
    assert!(start(&["true"]).output().unwrap().status.success());
    assert_eq!(left().len(), 1);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(left().len(), 1, "a killed run cannot clean up");
    assert!(start(&["true"]).output().unwrap().status.success());
    assert!(left().is_empty(), "{:?}", left());
}
