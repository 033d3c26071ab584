//! Tests commands on simulated machines.

use flyball_testing::{Ran, flyball, skip};
use std::process::{Command, Stdio};

fn flyball(arguments: &[&str]) -> Ran {
    let state = tempfile::tempdir().unwrap();
    Ran::of(flyball!().arg("--state-dir").arg(state.path()).args(arguments))
}

#[test]
fn faults_by_rule() {
    let machine = ["-M", "sim:ryzen-5750g", "--sim-fault"];
    let with = |rule: &str, rest: &[&str]| flyball(&[&machine[..], &[rule], rest].concat());
    // The third write fails: earlier writes are undone, and the error names the file.
    let failed = with("write cpufreq/policy*/scaling_max_freq fails EIO nth 3", &["set", "max-freq=2GHz"]);
    assert_eq!(failed.code, 1);
    assert!(failed.err.contains("policy2/scaling_max_freq"), "{}", failed.err);
    // The comma of a CPU list does not split the rule.
    let values = with("offline 3,5 after 0s", &["get", "online", "--json"]).json();
    let off: Vec<&str> = values
        .as_array()
        .unwrap()
        .iter()
        .filter(|value| value["value"] == false)
        .filter_map(|value| value["cpus"].as_str())
        .collect();
    assert_eq!(off, ["3", "5"], "{values}");
    // A write that is lost is noticed.
    let lost =
        with("write cpufreq/policy0/scaling_governor is lost", &["set", "-c", "0", "governor=performance"]);
    assert_ne!(lost.code, 0, "{}", lost.err);
    // An invalid rule causes an error that lists the forms.
    let wrong = with("fan broken", &["show"]);
    assert_eq!(wrong.code, 2, "{}", wrong.err);
    assert!(wrong.err.contains(flyball_sim::FAULT_FORMS.lines().next().unwrap()), "{}", wrong.err);
    // A rule for a file that the machine lacks is reported and has no effect.
    let nowhere = with("write cpufreq/policy*/scaling_speed fails EIO", &["get", "governor"]);
    assert!(nowhere.code == 0 && nowhere.err.contains("scaling_speed"), "{}", nowhere.err);
    assert_eq!(flyball(&["--sim-fault", "offline 3", "show"]).code, 2, "this machine takes no faults");
    // Help lists every form.
    let help = flyball(&["sim", "--help"]).out;
    for form in flyball_sim::FAULT_FORMS.lines() {
        assert!(help.contains(form), "{form}");
    }
}

/// Reads the records of a machine's trace from its text and from its pages.
fn both_ways(choice: (&str, flyball_sim::Kernel, &str), work: &str) -> [Vec<flyball_trace::Record>; 2] {
    use flyball_sim::{Boot, SimMachine, silicon::MachineSpec, workload};
    let (name, kernel, option) = choice;
    let spec = MachineSpec::builtin(name).unwrap();
    let boot = Boot { options: vec![option.to_owned()], ..Boot::default() };
    let mut machine = SimMachine::boot(spec, kernel, boot, 0).unwrap();
    let root = "/sys/kernel/tracing";
    machine.make_directory(&format!("{root}/instances"), "other").unwrap();
    let other = format!("{root}/instances/other");
    for instance in [root, &other] {
        machine.write(&format!("{instance}/buffer_size_kb"), b"20000").unwrap();
        machine.write(&format!("{instance}/events/enable"), b"1").unwrap();
    }
    let model = workload::Workload::builtin(work).unwrap();
    machine.run(Some(Box::new(workload::Engine::new(model, vec![0, 1], 7))));
    machine.advance(std::time::Duration::from_millis(700));
    let limit = "/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq";
    let max = machine.read(&limit.replace("scaling_max", "cpuinfo_min")).unwrap();
    machine.write(limit, &max).unwrap();
    machine.advance(std::time::Duration::from_millis(20));
    machine.write(&format!("{root}/trace_marker"), b"the end").unwrap();

    let text = machine.read(&format!("{root}/trace")).unwrap();
    let names = std::sync::Arc::new(flyball_trace::Names::default());
    let mut lines = Vec::new();
    let summary = flyball_trace::read_text(
        &text[..],
        std::path::Path::new("trace"),
        &names,
        &flyball_trace::TextOptions::default(),
        &mut |batch| {
            lines.extend(batch.records.iter().copied());
            Ok(())
        },
    );
    assert!(summary.is_ok());

    let mut formats = Vec::new();
    for group in ["amd_cpu", "ftrace", "power"] {
        for event in machine.list(&format!("{other}/events/{group}")).unwrap() {
            if let Ok(text) = machine.read(&format!("{other}/events/{group}/{event}/format")) {
                formats.push(flyball_trace::EventFormat::parse(group, &text).unwrap());
            }
        }
    }
    let decoder = flyball_trace::Decoder::new(&formats, &names);
    let header = machine.read(&format!("{other}/events/header_page")).unwrap();
    let header = flyball_trace::PageHeader::parse(&header).unwrap();
    let mut records = Vec::new();
    for cpu in 0..machine.silicon().cpus() as u32 {
        let path = format!("{other}/per_cpu/cpu{cpu}/trace_pipe_raw");
        while let Ok(page) = machine.take(&path, 4096) {
            let page = flyball_trace::Page::parse(&page, header).unwrap();
            for entry in page.entries() {
                let entry = entry.unwrap();
                records.push(decoder.decode(entry.time, cpu, entry.payload).unwrap());
            }
        }
        let stats =
            String::from_utf8(machine.read(&format!("{other}/per_cpu/cpu{cpu}/stats")).unwrap()).unwrap();
        let stats = flyball_trace::CpuStats::parse(cpu, &stats);
        assert_eq!((stats.entries, stats.lost()), (0, 0));
    }
    records.sort_by_key(|record| (record.time, record.cpu));
    // Text truncates times to microseconds, and the raw record has no task name.
    for record in &mut records {
        record.time = record.time / 1000 * 1000;
    }
    for record in &mut lines {
        record.comm = flyball_trace::Comm::default();
    }
    [lines, records]
}

#[test]
fn a_trace_says_the_same_as_text_and_as_pages() {
    use flyball_sim::Kernel;
    use flyball_trace::Event;
    type IsOfKind = fn(&Event) -> bool;
    let kinds: [(&str, IsOfKind); 6] = [
        ("amd_pstate_perf", |event| matches!(event, Event::AmdPerf(_))),
        ("amd_pstate_epp_perf", |event| matches!(event, Event::AmdEpp(_))),
        ("pstate_sample", |event| matches!(event, Event::Intel(_))),
        ("cpu_frequency", |event| matches!(event, Event::Frequency { .. })),
        ("cpu_frequency_limits", |event| matches!(event, Event::Limits { .. })),
        ("cpu_idle", |event| matches!(event, Event::Idle { .. })),
    ];
    for (choice, work, told) in [
        (
            ("ryzen-5750g", Kernel::V6_1, "amd_pstate=passive"),
            "speedometer",
            "amd_pstate_perf cpu_frequency_limits cpu_idle",
        ),
        (
            ("ryzen-5750g", Kernel::V6_12, "amd_pstate=passive"),
            "gitsource",
            "amd_pstate_perf cpu_frequency_limits cpu_idle",
        ),
        (
            ("ryzen-5750g", Kernel::V7_2, "amd_pstate=guided"),
            "speedometer",
            "amd_pstate_perf amd_pstate_epp_perf cpu_frequency_limits cpu_idle",
        ),
        (
            ("ryzen-5750g", Kernel::V7_2, "amd_pstate=active"),
            "spin",
            "amd_pstate_epp_perf cpu_frequency_limits cpu_idle",
        ),
        (
            ("ryzen-5750g", Kernel::V6_12, "amd_pstate=disable"),
            "speedometer",
            "cpu_frequency cpu_frequency_limits cpu_idle",
        ),
        (
            ("i7-2600", Kernel::V6_12, "intel_pstate=active"),
            "speedometer",
            "pstate_sample cpu_frequency cpu_frequency_limits cpu_idle",
        ),
        (
            ("i7-2600", Kernel::V6_12, "intel_pstate=passive"),
            "speedometer",
            "pstate_sample cpu_frequency cpu_frequency_limits cpu_idle",
        ),
        (
            ("gold-6138", Kernel::V6_12, "intel_pstate=passive"),
            "spin",
            "pstate_sample cpu_frequency_limits cpu_idle",
        ),
        (("gold-6138", Kernel::V6_12, "intel_pstate=active"), "spin", "cpu_frequency_limits cpu_idle"),
    ] {
        let [text, pages] = both_ways(choice, work);
        for kind in kinds {
            let seen = pages.iter().filter(|record| kind.1(&record.event)).count();
            assert_eq!(seen > 0, told.split(' ').any(|name| name == kind.0), "{choice:?} {}: {seen}", kind.0);
        }
        assert_eq!(text.len(), pages.len(), "{choice:?}");
        let mut sorted = text.clone();
        sorted.sort_by_key(|record| (record.time, record.cpu));
        for (line, record) in text.iter().zip(&pages) {
            if !matches!(line.event, Event::Other(_)) {
                assert_eq!(line, record, "{choice:?}");
            }
        }
    }
}

#[test]
fn a_recording_of_a_simulated_machine_is_a_trace_like_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.dat");
    let again = folder.path().join("b.dat");
    let machine = ["-M", "sim:ryzen-5750g,boot=amd_pstate=passive"];
    for path in [&file, &again] {
        let path = path.to_str().unwrap();
        let words = [
            "--json", "trace", "record", "--idle", "-o", path, "--", "spin", "--amount", "8000", "--pin",
            "0,3",
        ];
        let ran = flyball(&[&machine[..], &words].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        let summary = ran.json();
        assert_eq!(summary["simulated"], true);
        assert_eq!(summary["received"], summary["written"]);
    }
    let name = file.to_str().unwrap();
    assert_eq!(
        std::fs::read(&file).unwrap(),
        std::fs::read(&again).unwrap(),
        "the same machine, other bytes"
    );
    let records = flyball(&["--json", "trace", "report", name]).json()["report"]["records"].as_u64().unwrap();
    assert!(records > 0);
    // trace-cmd reads the same number of records.
    if let Ok(output) = Command::new("trace-cmd").args(["report", "-q", name]).output() {
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text.lines().filter(|line| line.contains("] ")).count() as u64, records);
    } else {
        skip(1, "comparison with trace-cmd", "it is not installed");
    }
    for (wrong, named) in [
        (vec!["--", "make", "-j8"], "'-j8'"),
        (vec!["--", "nonesuch"], "nonesuch"),
        (vec!["--sched", "--", "spin"], "sched/sched_switch"),
        (vec!["--clock", "sundial", "--", "spin"], "sundial"),
        (vec!["--", "spin", "--amount", "much"], "'much'"),
    ] {
        let ran = flyball(&[&machine[..], &["trace", "record", "-o", name], &wrong].concat());
        assert!(ran.code != 0 && ran.err.contains(named), "{wrong:?}: {}", ran.err);
    }
}

/// Returns the samples of a comparison of `arms` with a seed, and whether any verdict finds a
/// difference.
fn compared(seed: &str, arms: [&str; 2], rounds: &str) -> (Vec<u8>, bool) {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let run = run.to_str().unwrap();
    let ran = flyball(&[
        "--json",
        "-M",
        "sim:ryzen-5750g",
        "compare",
        "--arm",
        arms[0],
        "--arm",
        arms[1],
        "--workload",
        "spin",
        "--amount",
        "4000",
        "--pin",
        "0",
        "--rounds",
        rounds,
        "--seed",
        seed,
        "-o",
        run,
    ]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let report = ran.json();
    let comparisons = report["comparisons"].as_array().unwrap();
    let called = comparisons.iter().any(|one| one["verdict"] == "better" || one["verdict"] == "worse");
    let mut samples = Vec::new();
    let mut names: Vec<_> = std::fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    for path in names.iter().filter(|path| path.to_string_lossy().contains("rounds")) {
        samples.extend(std::fs::read(path).unwrap());
    }
    assert!(!samples.is_empty(), "{names:?}");
    (samples, called)
}

#[test]
fn rounds_differ_as_rounds_do_and_a_seed_makes_them_again() {
    let same = ["a: governor=powersave", "b: governor=powersave"];
    let (first, called) = compared("1", same, "10");
    assert!(!called, "two names of one setting were called different");
    assert_eq!(first, compared("1", same, "10").0, "the same seed, other samples");
    assert_ne!(first, compared("2", same, "10").0, "another seed, the same samples");
    // Real differences are still found.
    let (_, called) = compared("3", ["a: turbo=on", "b: turbo=off"], "10");
    assert!(called, "turbo makes a difference to a busy loop");
}

/// Every command on a simulated machine says so, in text and in data.
#[test]
fn every_output_says_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (run, dat, archive) = (path("run"), path("t.dat"), path("a.tar.zst"));
    let (profile, saved) = (path("p.toml"), path("saved.toml"));
    std::fs::write(&profile, "governor = \"performance\"\n").unwrap();
    let cases: Vec<Vec<&str>> = vec![
        vec!["show"],
        vec!["get", "governor"],
        vec!["set", "governor=performance"],
        vec!["plan", "governor=performance"],
        vec!["apply", &profile],
        vec!["verify", &profile],
        vec!["save", &saved],
        vec!["restore"],
        vec!["doctor"],
        vec!["record", &archive],
        vec!["trace", "record", "-o", &dat, "--", "spin", "--amount", "30000"],
        vec![
            "compare",
            "--arm",
            "a:",
            "--arm",
            "b:turbo=off",
            "--workload",
            "spin",
            "--amount",
            "30000",
            "--rounds",
            "2",
            "-o",
            &run,
        ],
    ];
    let mut silent = Vec::new();
    for words in &cases {
        for json in [false, true] {
            // Remove old outputs, since existing files are not overwritten.
            let _ = std::fs::remove_dir_all(&run);
            let _ = std::fs::remove_file(&archive);
            let _ = std::fs::remove_file(&saved);
            let mut line = vec!["-M", "sim:ryzen-5750g"];
            line.extend(json.then_some("--json"));
            line.extend(words);
            let ran = flyball(&line);
            assert_ne!(ran.code, 2, "{line:?}: {}", ran.err);
            if !ran.err.contains("simulated: sim:") {
                silent.push(format!("{line:?} on stderr"));
            }
            // The data itself must say it, since stderr may be discarded: in the object, or in each
            // object of a list.
            if json && !ran.out.trim().is_empty() {
                let data = ran.json();
                let first = data.get(0).unwrap_or(&data);
                if first["simulated"] != true {
                    silent.push(format!("{line:?}: {}", ran.out.chars().take(200).collect::<String>()));
                }
            }
        }
    }
    for name in ["report.html", "report.csv", "report.json", "manifest.json"] {
        let file = std::path::Path::new(&run).join(name);
        if let Ok(text) = std::fs::read_to_string(&file)
            && !text.contains("simulated")
        {
            silent.push(name.to_owned());
        }
    }
    assert!(silent.is_empty(), "these do not say simulated: {silent:#?}");
}

/// A policy that is created with its CPU starts with the limit left by turbo=off. The original
/// value must still be restored.
#[test]
fn a_cpu_that_was_offline_goes_back_with_its_settings() {
    for machine in
        ["sim:ryzen-5750g", "sim:gold-6138", "sim:i7-2600", "sim:ryzen-5750g,boot=amd_pstate=passive"]
    {
        let folder = tempfile::tempdir().unwrap();
        // With two state directories, each sees the other's changes as those of another program.
        let run = |state: &str, words: &[&str]| {
            let mut command = flyball!();
            command.current_dir(folder.path()).args([
                "-M",
                machine,
                "--sim-state",
                "box",
                "--state-dir",
                state,
            ]);
            let ran = Ran::of(command.args(words));
            assert_eq!(ran.code, 0, "{machine}: {words:?}: {}", ran.text());
            ran.out
        };
        let all = ["get", "--json", "governor", "min-freq", "max-freq", "epp", "turbo", "online"];
        let online = run("other", &all);
        run("other", &["set", "online=off", "-c", "1"]);
        let first = run("other", &all);
        run("own", &["set", "turbo=off"]);
        run("own", &["set", "online=on", "-c", "1"]);
        run("own", &["restore"]);
        assert_eq!(run("other", &all), first, "{machine}");
        run("other", &["restore"]);
        assert_eq!(run("other", &all), online, "{machine}");
    }
}

#[test]
fn one_command_at_a_time_has_a_kept_machine() {
    use std::io::BufRead as _;

    let folder = tempfile::tempdir().unwrap();
    let (kept, state) = (folder.path().join("box"), folder.path().join("state"));
    let command = |words: &[&str]| {
        let mut command = flyball!();
        command
            .arg("--state-dir")
            .arg(&state)
            .args(["-M", "sim:i7-2600", "--sim-state"])
            .arg(&kept)
            .args(words);
        command
    };
    assert!(command(&["set", "governor=performance"]).output().unwrap().status.success());
    // If the state file is locked, the command names the holder, and continues when it is free.
    let file = std::fs::File::options().append(true).open(&kept).unwrap();
    assert!(flyball_process::try_lock(&file).unwrap());
    let mut waits =
        command(&["get", "governor"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut stderr = std::io::BufReader::new(waits.stderr.take().unwrap());
    while !said.contains("waiting for process") {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "{said}");
    }
    assert!(said.contains(&format!("process {},", std::process::id())), "{said}");
    drop(file);
    let output = waits.wait_with_output().unwrap();
    assert!(output.status.success() && !output.stdout.is_empty());
    // Parallel commands all keep their changes.
    let settings = ["epb=0", "turbo=off", "max-freq=2GHz"];
    let mut children: Vec<_> =
        settings.iter().map(|setting| command(&["set", setting]).spawn().unwrap()).collect();
    for child in &mut children {
        assert!(
            matches!(child.wait().unwrap().code(), Some(0 | 6)),
            "done, or another flyball had the machine"
        );
    }
    let text = std::fs::read_to_string(&kept).unwrap();
    let times: Vec<u64> =
        text.lines().skip(1).filter_map(|line| line.split(' ').nth(1)?.parse().ok()).collect();
    assert!(times.len() > 4 && times.is_sorted(), "one history, in order: {text}");
}

/// `off` is rejected while hardware P-states are on, which the processor's flags do not show.
#[test]
fn the_driver_can_be_switched_off_without_hardware_p_states() {
    let plan = |machine: &str| flyball(&["-M", machine, "set", "driver-mode=off"]);
    let refused = plan("sim:gold-6138");
    assert!(refused.code == 2 && refused.err.contains("EBUSY"), "{}: {}", refused.code, refused.err);
    let off = plan("sim:gold-6138,boot=intel_pstate=no_hwp");
    assert!(off.code == 0 && off.out.contains("driver-mode: off"), "{}", off.err);
}

/// Runs commands one after the other on the same simulated machine.
struct Commands(tempfile::TempDir, &'static str);

impl Commands {
    fn new(machine: &'static str) -> Commands {
        Commands(tempfile::tempdir().unwrap(), machine)
    }

    fn run(&self, words: &str) -> Ran {
        let sim = ["-M", self.1, "--sim-state", "box", "--state-dir", "state"];
        Ran::of(flyball!().current_dir(self.0.path()).args(sim).args(words.split(' ')))
    }

    fn says(&self, words: &str, part: &str) {
        let ran = self.run(words);
        assert!(ran.text().contains(part), "{words}: {}", ran.text());
    }
}

#[test]
fn messages_name_what_was_set_and_read() {
    let tune = "tune --over epp=all --maximize performance -n --workload spin";
    Commands::new("sim:i7-2600").says(tune, "this machine lists no values of it");
    Commands::new("sim:gold-6138").says("verify max-freq=2GHz", "the machine's processes cannot be seen");
    let fault = ["--sim-fault", "write intel_pstate/no_turbo fails EPERM", "set", "turbo=off"];
    let ran = Ran::of(flyball!().args(["-M", "sim:gold-6138"]).args(fault));
    assert!(ran.text().contains("turbo=off on machine"), "{}", ran.text());
}

/// A core runs at the highest request of its threads.
#[test]
fn a_sibling_that_asks_for_more_is_named() {
    let machine = Commands::new("sim:gold-6138");
    machine.says("plan max-freq=2GHz -c 4", "CPUs 24 share cores with these CPUs and may ask for more");
    let plan = machine.run("plan max-freq=2GHz -c 4,24");
    assert!(!plan.text().contains("share cores"), "{}", plan.text());
    machine.run("set max-freq=2GHz -c 4");
    let sibling = "(scaling_max_freq of CPU 24, its SMT sibling: 3700 MHz)";
    machine.says("why 4 --pin 4,24 --workload spin -t 2s", sibling);
}

/// With turbo off, the base frequency is shown, whatever was requested.
#[test]
fn a_maximum_outlasts_turbo_or_is_said_to_be_cut() {
    for machine in ["sim:gold-6138", "sim:ryzen-5750g", "sim:gold-6138,kernel=6.1"] {
        let machine = Commands::new(machine);
        machine.says("plan turbo=off max-freq=3.5GHz", "the limit is not kept");
        machine.run("apply benchmark");
        let base = machine.run("get max-freq").out;
        machine.run("set turbo=on");
        assert_eq!(machine.run("get max-freq").out, base, "{}", machine.1);
        machine.run("restore");
        assert_ne!(machine.run("get max-freq").out, base, "{}", machine.1);
    }
}

/// The kernel removes files of an offline CPU. A single note per knob names all of them.
#[test]
fn offline_cpus_are_noted_once_per_knob() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| {
        let sim = ["-M", "sim:hybrid-laptop", "--sim-state", "box", "--state-dir", "state"];
        Ran::of(flyball!().current_dir(folder.path()).args(sim).args(words))
    };
    run(&["set", "smt=off"]);
    let plan = run(&["plan", "epb=power", "epp=power"]);
    assert!(plan.out.contains("cpu{0,2,4,6,8-15}/power/energy_perf_bias"), "{}", plan.text());
    for knob in ["epb", "epp"] {
        let note = format!("note: {knob}: CPUs 1-7:2 are offline and are not changed [");
        assert_eq!(plan.err.matches(&note).count(), 1, "{}", plan.text());
    }
}

/// x86 terms that do not apply to an Arm server, and their replacements.
#[test]
fn arm_servers_are_described_in_their_own_words() {
    let on = |machine: &str, rest: &[&str]| flyball(&[&["-M", machine][..], rest].concat());
    let (altra, grace) = ("sim:altra,kernel=7.3", "sim:grace,kernel=7.3");
    assert!(on(altra, &["show"]).out.starts_with("Arm Neoverse N1, 1 package, 32 cores"));
    // The highest level equals the nominal one, so there is no turbo to recommend or to switch on.
    let doctor = on(grace, &["doctor"]).out;
    assert!(!doctor.contains("conflict.turbo-off") && !doctor.contains("coretemp"), "{doctor}");
    let refused = on(grace, &["plan", "turbo=on"]);
    assert!(refused.err.contains("no frequency above its nominal one"), "{}", refused.err);
    assert_eq!(on(grace, &["apply", "throughput"]).code, 0);
    assert_eq!(on(altra, &["run", "turbo=on", "--", "true"]).code, 0);
    // The driver's own minimum is not a raised one, and has a name.
    assert!(!on(altra, &["doctor"]).out.contains("conflict.raised-minimum"));
    let efficient = on(altra, &["plan", "min-freq=min", "max-freq=efficient"]).out;
    assert!(efficient.contains("2800000 -> 2000000"), "{efficient}");
    // The platform's report takes the place of x86's throttle counts.
    let report = |machine: &str| on(machine, &["doctor", "-v"]).out;
    assert!(report(altra).contains("platform has reported no limit"), "{}", report(altra));
    assert!(report("sim:altra,kernel=6.12").contains("older than 7.2"));
}
