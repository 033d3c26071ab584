//! Tests what documents print: the commands of docs/dev/documents.md, and AMD's two texts of a
//! trace.

use std::io::Write as _;
use std::process::{Command, Stdio};

use flyball_testing::{Ran, flyball};

/// Documentation/admin-guide/pm/amd-pstate.rst. The slides of 2022 have one blank less.
const DOCUMENT: &str = "\
# tracer: nop
#
# entries-in-buffer/entries-written: 47827/42233061   #P:2
#
#                                _-----=> irqs-off
#                               / _----=> need-resched
#                              | / _---=> hardirq/softirq
#                              || / _--=> preempt-depth
#                              ||| /     delay
#           TASK-PID     CPU#  ||||   TIMESTAMP  FUNCTION
#              | |         |   ||||      |         |
         <idle>-0       [015] dN...  4995.979886: amd_pstate_perf: amd_min_perf=85 amd_des_perf=85 amd_max_perf=166 cpu_id=15 changed=false fast_switch=true
         <idle>-0       [007] d.h..  4995.979893: amd_pstate_perf: amd_min_perf=85 amd_des_perf=85 amd_max_perf=166 cpu_id=7 changed=false fast_switch=true
            cat-2161    [000] d....  4995.980841: amd_pstate_perf: amd_min_perf=85 amd_des_perf=85 amd_max_perf=166 cpu_id=0 changed=false fast_switch=true
           sshd-2125    [004] d.s..  4995.980968: amd_pstate_perf: amd_min_perf=85 amd_des_perf=85 amd_max_perf=166 cpu_id=4 changed=false fast_switch=true
         <idle>-0       [007] d.s..  4995.980968: amd_pstate_perf: amd_min_perf=85 amd_des_perf=85 amd_max_perf=166 cpu_id=7 changed=false fast_switch=true
         <idle>-0       [003] d.s..  4995.980971: amd_pstate_perf: amd_min_perf=85 amd_des_perf=85 amd_max_perf=166 cpu_id=3 changed=false fast_switch=true
         <idle>-0       [011] d.s..  4995.980996: amd_pstate_perf: amd_min_perf=85 amd_des_perf=85 amd_max_perf=166 cpu_id=11 changed=false fast_switch=true
";

fn trace(words: &[&str], text: &str) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.txt");
    std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
    let mut command: Command = flyball!();
    Ran::of(command.arg("trace").args(words).arg(&path).env("NO_COLOR", "1").stdin(Stdio::null()))
}

#[test]
fn traces_as_the_documents_print_them_are_read() {
    let slides = DOCUMENT
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(_) => format!("{line}\n"),
            // The slides have the task on the left, and one blank before the time.
            None => format!("{}\n", line.trim_start().replace("  4995", " 4995")),
        })
        .collect::<String>();
    // Kernels before 5.17 have four flag characters.
    let four =
        DOCUMENT.replace("...  4995", "..  4995").replace(".h..  ", ".h.  ").replace(".s..  ", ".s.  ");
    for text in [DOCUMENT, &slides, &four] {
        let ran = trace(&["report", "--json"], text);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let report = &ran.json()["report"];
        assert_eq!(report["driver"], "amd-pstate", "{}", ran.out);
        assert_eq!(report["events"][0]["count"], 7, "{}", ran.out);
        assert_eq!(report["unread"].as_array().map_or(0, Vec::len), 0, "{}", ran.out);
        let cpus = report["cpus"].as_array().unwrap();
        let seven = cpus.iter().find(|cpu| cpu["cpu"] == 7).unwrap();
        assert_eq!((&seven["samples"], &seven["des_perf"]["mean"]), (&2.into(), &85.0.into()), "{seven}");
        assert_eq!(seven["max_perf"]["max"], 166.0, "{seven}");
        // The output has no values that these records lack.
        assert!(seven.get("ghz").is_none() && seven.get("load").is_none(), "{seven}");

        let ran = trace(&["diagnose"], text);
        assert!(ran.out.contains("nothing was judged: the 7 requests"), "{}", ran.out);
    }
    // The records are printed unchanged, with their flags.
    let printed = trace(&["report", "--print"], DOCUMENT);
    // The document has removed a leading blank of each line, which the kernel prints.
    let words = |text: &str| -> Vec<Vec<String>> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    };
    assert_eq!(words(&printed.out), words(DOCUMENT));
    let of_four = trace(&["report", "--print"], &four);
    assert!(of_four.out.contains("dN...") && of_four.out.contains("d.h.."), "{}", of_four.out);
}

#[test]
fn what_cannot_be_read_is_never_called_correct() {
    let damaged = DOCUMENT.replace("amd_des_perf=85", "amd_des_perf=x");
    for words in [&["diagnose"][..], &["report"]] {
        let ran = trace(words, &damaged);
        assert_eq!(ran.code, 1, "{words:?}: {}{}", ran.out, ran.err);
        assert!(!ran.out.contains("no problems found"), "{}", ran.out);
    }
    // Half of the records are unreadable. Only the others are judged.
    let half = DOCUMENT.replacen("amd_des_perf=85", "amd_des_perf=x", 3);
    let ran = trace(&["diagnose"], &half);
    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.err.contains("3 records"), "{}", ran.err);
}

#[test]
fn one_command_records_reports_and_diagnoses() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.dat");
    let run = |json: bool| {
        let mut command: Command = flyball!();
        command.args(["-M", "sim:ryzen-5750g,boot=amd_pstate=passive"]).args(json.then_some("--json"));
        command.args(["trace", "run", "-o"]).arg(&file).args(["--", "gitsource", "--amount", "200"]);
        Ran::of(command.env("NO_COLOR", "1"))
    };
    let ran = run(false);
    assert!([0, 8, 9].contains(&ran.code), "{}{}", ran.out, ran.err);
    assert!(
        ran.out.contains("amd-pstate events") && ran.err.contains("records received"),
        "{}{}",
        ran.out,
        ran.err
    );
    let json = run(true).json();
    let found = json.pointer("/data/report/driver").or(json.pointer("/report/driver"));
    assert_eq!(found.and_then(|driver| driver.as_str()), Some("amd-pstate"), "{json}");
    assert!(file.exists());
}

/// The words of a command line, with quotes as in a shell.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for character in line.chars() {
        match character {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            other => words.last_mut().unwrap().push(other),
        }
    }
    words
}

#[test]
fn every_command_of_the_documents_table_runs() {
    let table = include_str!("../../../../docs/dev/documents.md");
    let (mut ran, mut values) = (0, 0);
    for line in table.lines().filter(|line| line.starts_with("| ")) {
        let Some(command) = line.split('`').find(|part| part.starts_with("flyball ")) else { continue };
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let words: Vec<String> = words(command)
            .into_iter()
            .map(|word| if word == "OUT" { out.display().to_string() } else { word })
            .collect();
        let mut program: Command = flyball!();
        program
            .args(&words[1..])
            .env("FLYBALL_STATE", folder.path())
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        let done = Ran::of(&mut program);
        // 8, 9: a check of the doctor, or of a trace, has a warning or a fault.
        assert!([0, 8, 9].contains(&done.code), "{command}: {} {}{}", done.code, done.out, done.err);
        // The last cell has the expected output. The drop-in prints it on stderr, like the
        // original.
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        assert_eq!(cells.len(), 5, "{line}");
        let output = format!("{}{}", done.out, done.err);
        for here in cells[4].split('`').skip(1).step_by(2) {
            assert!(output.contains(here), "{command}: no '{here}' in\n{output}");
            values += 1;
        }
        assert!(!done.out.is_empty(), "{command}");
        ran += 1;
    }
    assert!(ran >= 36 && values >= 40, "{ran} commands, {values} values");
}

/// Runs the kernel's selftest. Its CSV has all columns and the four comparisons, and all cells are
/// consistent.
#[test]
fn the_selftest_is_one_command() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let mut command: Command = flyball!();
    command
        .args(["compare", "-M", "sim:ryzen-5750g", "--selftest", "tbench", "--amount", "2", "-o"])
        .arg(&out);
    let ran = Ran::of(command.env("FLYBALL_STATE", folder.path()));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let sheet = std::fs::read_to_string(out.join("report.csv")).unwrap();
    for line in
        ["Unit, , , GHz, %, MB/s, J, MB/J", "amd-pstate-ondemand VS amd-pstate-schedutil, Comprison(%), "]
    {
        assert!(sheet.contains(line), "{sheet}");
    }
    assert_eq!(sheet.matches(" VS ").count(), 4, "{sheet}");
    let row = sheet.lines().find(|line| line.starts_with("amd-pstate-schedutil, 1, ")).unwrap();
    assert!(row.split(", ").all(|cell| !cell.is_empty()), "{row}");
    let checked = Ran::of(flyball!().arg("report").arg(out.join("report.csv")));
    assert!(checked.out.contains("55 of 55 cells follow"), "{}", checked.out);
}

/// Runs the replacements of the kernel's tracers, by command name and by link.
#[test]
fn the_tracers_are_drop_ins() {
    let folder = tempfile::tempdir().unwrap();
    let with_counters: String = (0..6)
        .map(|number| {
            format!(
                "<idle>-0 [00{}] d.h.. 10.{:06}: amd_pstate_perf: amd_min_perf=39 amd_des_perf=85 amd_max_perf=166 freq=1200000 \
                 mperf=1000 aperf=900 tsc=9000 cpu_id={} changed=false fast_switch=true\n",
                number % 2,
                number * 1000,
                number % 2
            )
        })
        .collect();
    std::fs::write(folder.path().join("trace.txt"), with_counters).unwrap();
    let program = flyball!().get_program().to_owned();
    let link = folder.path().join("amd_pstate_trace.py");
    std::os::unix::fs::symlink(&program, &link).unwrap();
    let run = |program: &std::ffi::OsStr, words: &[&str]| {
        Ran::of(Command::new(program).args(words).current_dir(folder.path()).stdin(Stdio::null()))
    };
    let ran = run(&program, &["amd_pstate_trace.py", "-t", "trace.txt", "-n", "one", "-c", "1"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let made = folder.path().join("results/one");
    let all = std::fs::read_to_string(made.join("cpu.csv")).unwrap();
    assert!(all.starts_with("common_cpu, common_secs, ") && all.lines().count() == 3, "{all}");
    assert!(made.join("cpu001.csv").exists() && !made.join("cpu000.csv").exists());
    let ran = run(link.as_os_str(), &["--trace_file", "trace.txt", "--name", "two"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(folder.path().join("results/two/cpu000.csv").exists());
    // It does not write into an existing directory, and needs a source.
    assert_eq!(run(link.as_os_str(), &["-t", "trace.txt", "-n", "two"]).code, 2);
    assert_eq!(run(link.as_os_str(), &["-n", "three"]).code, 2);
    let ran = run(
        &program,
        &["-M", "sim:ryzen-5750g,boot=amd_pstate=passive", "intel_pstate_tracer.py", "-i", "1", "-n", "four"],
    );
    assert!(folder.path().join("results/four/trace.dat").exists(), "{}", ran.err);
}

#[test]
fn workloads_run_on_the_best_cores_and_next_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let compare = |machine: &str, words: &[&str]| {
        let out = folder.path().join("run");
        let _ = std::fs::remove_dir_all(&out);
        let mut command: Command = flyball!();
        command.args([
            "compare",
            "-M",
            machine,
            "--arm",
            "a:",
            "--arm",
            "b:",
            "--rounds",
            "1",
            "--warm-up",
            "0",
            "-o",
        ]);
        command.arg(&out).args(words).env("FLYBALL_STATE", folder.path());
        let ran = Ran::of(&mut command);
        let manifest = std::fs::read_to_string(out.join("manifest.json")).unwrap_or_default();
        (ran, serde_json::from_str::<serde_json::Value>(&manifest).unwrap_or_default())
    };
    let spin = ["--workload", "spin", "--amount", "8000"];
    let (ran, manifest) = compare("sim:ryzen-preferred", &[&spin[..], &["--pin", "best:2"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(manifest["workload"]["cpus"], "1,4");
    let (ran, _) = compare("sim:ryzen-5750g", &[&spin[..], &["--pin", "best:2"]].concat());
    assert_eq!(ran.code, 4, "{}", ran.err);
    // Nothing is read during a round, and the background load has its own CPUs.
    let words = [&spin[..], &["--pin", "0", "--beside", "bursts", "--beside-pin", "2", "--observer", "none"]]
        .concat();
    let (ran, manifest) = compare("sim:i7-2600", &words);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("meanwhile bursts on CPUs 2"), "{}", ran.out);
    assert_eq!(manifest["schedule"]["unobserved"], true);
    let rounds = std::fs::read_to_string(folder.path().join("run/rounds.jsonl")).unwrap();
    let round: serde_json::Value = serde_json::from_str(rounds.lines().next().unwrap()).unwrap();
    assert_eq!(round["readings"]["energy"][0].as_array().map(Vec::len), Some(2), "{round}");
    let taken = compare(
        "sim:i7-2600",
        &[&spin[..], &["--pin", "0", "--beside", "spin", "--beside-pin", "0-3"]].concat(),
    );
    assert_ne!(taken.0.code, 0, "two models cannot share a CPU");
    assert_eq!(compare("sim:i7-2600", &[&spin[..], &["--beside-pin", "1"]].concat()).0.code, 2);
}

/// On a simulated machine, the kernel's files list tickless CPUs, and the doctor finds the fault.
#[test]
fn tickless_cpus_are_seen_on_simulated_machines() {
    let machine = "sim:i7-2600,boot=intel_pstate=active nohz_full=3,7 isolcpus=3,7";
    let ran = Ran::of(flyball!().args(["-M", machine, "doctor"]).env("NO_COLOR", "1"));
    for part in ["CPUs 3,7 are isolated and tickless, and intel_pstate", "--observer none"] {
        assert!(ran.out.contains(part), "{}", ran.out);
    }
}
