//! Tests `flyball wake` on simulated machines with known counters, on this machine with known
//! threads, and with wrong arguments.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use flyball_testing::{Ran, Tree, archive, flyball, skip};
use serde_json::Value;

#[track_caller]
fn wake(code: i32, words: &[&str]) -> Ran {
    let mut command = flyball!();
    command.arg("wake").args(words).env("NO_COLOR", "1");
    // Each test names its machine.
    command.env_remove("FLYBALL_MACHINE");
    let ran = Ran::of(&mut command);
    assert_eq!(ran.code, code, "{words:?}: {}", ran.text());
    ran
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap()
}

#[test]
fn the_states_of_a_simulated_machine_add_up() {
    let words =
        ["-M", "sim:tpmi-small", "-c", "0-3", "-t", "2s", "--json", "--", "sched-pipe", "--pin", "0-1"];
    let report = wake(0, &words).json();
    let states = list(&report["states"]);
    let names: Vec<&str> = states.iter().map(|state| state["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["POLL", "C1", "C1E", "C6", "C6P"]);
    let sum = |key: &str| states.iter().map(|state| number(&state[key])).sum::<f64>();
    let wakes = number(&report["wakes"]);
    assert!((sum("wakes") - wakes).abs() < 1e-6 && (sum("share") - 1.0).abs() < 1e-9, "{report}");
    // CPUs 0 and 1 take turns about 180,000 times a second, with C1 in between.
    let c1 = &states[1];
    assert!(number(&c1["wakes"]) > 100_000.0 && number(&c1["share"]) > 0.99, "{report}");
    let cost: f64 =
        states.iter().map(|state| number(&state["wakes"]) * number(&state["exit_latency_us"]) * 1e-3).sum();
    assert!((number(&report["lost_ms_at_most"]) - cost).abs() < 1e-6, "{report}");
    let by_cpu = list(&report["by_cpu"]);
    assert_eq!(by_cpu.len(), 4);
    assert!((by_cpu.iter().map(|cpu| number(&cpu["wakes"])).sum::<f64>() - wakes).abs() < 1e-6);
    // Its only interrupts are ticks, so missing interrupts mean nothing.
    assert!(report["wakes_without_interrupt"].is_null() && report["simulated"] == true);
    let text = wake(0, &["-M", "sim:tpmi-small", "-c", "5", "-t", "1s", "--", "idle"]).out;
    assert!(
        text.starts_with("CPU 5 wakes 10 times a second, 100 % of them out of C6P (advertised exit latency"),
        "{text}"
    );
    // 210 us ten times a second.
    assert!(text.contains("no latency limit could save 1 % of the time"), "{text}");
    assert!(text.contains("not seen: ") && text.contains("interrupted no CPU"), "{text}");
}

#[test]
fn a_command_is_counted_by_the_kernels_account() {
    // Each `sleep` sleeps once and the shell waits for it, so there are at least two waits per
    // turn.
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.05; done; echo said; exit 7";
    let ran = wake(7, &["--json", "--", "sh", "-c", script]);
    // stdout has only the report.
    let report = ran.json();
    assert!(ran.err.contains("said"), "{}", ran.text());
    let (workload, seconds) = (&report["workload"], number(&report["seconds"]));
    let wakes = number(&workload["wakes"]) * seconds;
    assert!((20.0..200.0).contains(&wakes), "{report}");
    assert!(report["sentence"].as_str().unwrap().starts_with("this workload wakes "), "{report}");
    assert!(number(&workload["run_delay_ms"]) >= 0.0);
    assert_eq!(wake(128 + 15, &["--", "sh", "-c", "kill $$"]).code, 143);
    // The time limit ends before the command.
    let started = Instant::now();
    wake(0, &["-t", "300ms", "--", "sleep", "60"]);
    assert!(started.elapsed() < Duration::from_secs(30));
    assert!(wake(127, &["--", "/nonexistent/program"]).err.contains("cannot run /nonexistent/program"));
}

#[test]
fn a_process_that_forks_and_ends() {
    let script = "for i in 1 2 3 4 5 6 7 8; do sleep 0.1 & sleep 0.1; done";
    let mut process = Command::new("sh").args(["-c", script]).stdin(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    let pid = process.id().to_string();
    // It does not wait for the rest of the time.
    let report = wake(0, &["-p", &pid, "-t", "50s", "--json"]).json();
    process.wait().unwrap();
    assert!(started.elapsed() < Duration::from_secs(40));
    let workload = &report["workload"];
    assert_eq!(workload["ended"], workload["threads"], "{report}");
    assert!(number(&workload["threads"]) > 1.0, "its children are watched: {report}");
    assert!(number(&workload["wakes"]) > 0.0, "{report}");
}

#[test]
fn a_machine_without_cpuidle_says_so() {
    let tree = Tree::new();
    tree.put("sys/devices/system/cpu/possible", "0-1\n");
    tree.put("sys/devices/system/cpu/present", "0-1\n");
    tree.put("sys/devices/system/cpu/online", "0-1\n");
    tree.put(
        "proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: GenuineIntel\n\nprocessor\t: 1\nvendor_id\t: GenuineIntel\n",
    );
    let machine = format!("tree:{}", tree.path().display());
    let words = ["-M", &machine, "-t", "100ms", "--json"];
    let report = wake(0, &words).json();
    assert!(report["sentence"].as_str().unwrap().starts_with("this machine has no cpuidle"), "{report}");
    assert!(report["wakes"].is_null() && report["lost_ms_at_most"].is_null() && report["driver"].is_null());
    assert_eq!(report["left_out"], "", "{report}");
    // One state: idle=halt, or a guest.
    let state = |name: &str, value: &str| {
        for cpu in 0..2 {
            tree.put(format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state0/{name}"), value);
        }
    };
    for (name, value) in [("name", "C1"), ("latency", "2"), ("usage", "7"), ("time", "100")] {
        state(name, value);
    }
    let report = wake(0, &words).json();
    assert!(report["sentence"].as_str().unwrap().starts_with("no CPU woke up in 0."), "{report}");
    assert_eq!(list(&report["states"]).len(), 1);
    assert!(report["states"][0]["above"].is_null(), "a kernel before 5.1 has no such counter: {report}");
}

#[test]
fn offline_and_isolated_cpus() {
    let folder = Tree::new();
    let state = folder.path().join("state");
    let machine = format!("sim:ryzen-5750g,boot=isolcpus=2-3,state={}", state.display());
    let ran = Ran::of(flyball!().args(["-M", &machine, "set", "online=off", "-c", "15"]));
    assert_eq!(ran.code, 0, "{}", ran.text());
    assert!(wake(2, &["-M", &machine, "-c", "15"]).err.contains("none of CPUs 15 is online"));
    let report = wake(0, &["-M", &machine, "-c", "2-3,15", "-t", "1s", "--json", "--", "idle"]).json();
    assert_eq!((&report["cpus"], &report["left_out"]), (&"2,3".into(), &"15".into()), "{report}");
    // Ten times a second, as without a watch: reading counters of an isolated CPU is free.
    assert!((number(&report["wakes"]) - 20.0).abs() < 3.0, "{report}");
}

/// gVisor's slow start on Granite Rapids (PR 14526), from the diagnosis to a held limit.
#[test]
fn a_limit_is_compared_written_and_held() {
    let folder = Tree::new();
    let in_folder = |words: &[&str]| {
        let ran = Ran::of(flyball!().args(words).current_dir(folder.path()).env_remove("FLYBALL_MACHINE"));
        assert_eq!(ran.code, 0, "{words:?}: {}", ran.text());
        ran
    };
    in_folder(&["wake", "-M", "sim:tpmi-small", "--probe", "-o", "exits.json"]);
    let words = |machine: &'static str| {
        let base =
            ["wake", "-M", machine, "-c", "0-3", "--measured", "exits.json", "--check", "--rounds", "10"];
        let model = ["-o", "limit.toml", "--", "short-sleeps", "--amount", "5000", "--pin", "0-1"];
        [&base[..], &model].concat()
    };
    let json = in_folder(&[&["--json"], &words("sim:tpmi-small")[..]].concat());
    let report = json.json();
    let deep = &list(&report["states"])[4];
    assert!((number(&deep["measured_exit_us"]) - 210.0).abs() < 5.0, "{report}");
    let said = report["sentence"].as_str().unwrap();
    assert!(said.contains("100 % of them out of C6P (measured exit 2"), "{said}");
    assert_eq!(report["advice"]["setting"], "latency-limit@0-3=C1E");
    let check_found = &report["check"];
    assert_eq!(check_found["verdict"], "pays", "{report}");
    // 206 us of about 1,230 us for the exit, the sleep and the work.
    let change = number(&check_found["change"]);
    assert!((-0.19..-0.14).contains(&change), "{report}");
    // The price comes from the rounds, which are kept.
    let rounds = in_folder(&["report", check_found["directory"].as_str().unwrap(), "--json"]).json();
    let watts = |arm: usize| {
        let summaries = list(&rounds["arms"][arm]["summaries"]);
        number(&summaries.iter().find(|one| one["quantity"] == "power").unwrap()["median"])
    };
    let (price, range) = (number(&check_found["watts"]), &check_found["watts_interval"]);
    assert!((price - (watts(1) - watts(0))).abs() < 0.2 * price, "{price} {range}");
    assert!(number(&range[0]) > 0.0 && number(&range[0]) <= price && price <= number(&range[1]));
    let said = check_found["sentence"].as_str().unwrap();
    assert!(said.starts_with("latency-limit@0-3=C1E pays: limited is faster than now: between "), "{said}");
    let hold = ["-M", "sim:tpmi-small,state=state", "hold", "add", "db", "limit.toml", "-n"];
    let held = in_folder(&hold).out;
    assert!(
        held.contains("latency") && json.err.contains("flyball hold add NAME limit.toml --when program=")
    );
    let when = [&hold[..6], &["--when", "program=/x"]].concat();
    let would = in_folder(&[&when[..], &["-n"]].concat());
    assert!(would.out.contains("latency"), "{}", would.text());
    assert!(
        would.err.contains("not active now: /x does not run; when active, it writes:"),
        "{}",
        would.text()
    );
    in_folder(&when);
    // A processor whose exits cost nothing: the driver's table is wrong, and nothing is to be had.
    let machine = in_folder(&["sim", "show", "tpmi-small", "--toml"]).out;
    let machine = machine.replace("wake_us = 190, wake_spread_us = 40", "wake_us = 1");
    folder.put("quick.toml", machine.replace("wake_us = 210, wake_spread_us = 40", "wake_us = 1"));
    std::fs::remove_file(folder.path().join("limit.toml")).unwrap();
    let ran = in_folder(&words("sim:./quick.toml"));
    assert!(ran.err.contains("limit.toml is not written, because no gain is shown"), "{}", ran.text());
    assert!(ran.out.contains("pay: limited"), "{}", ran.text());
    // If no limit could pay off, nothing is compared.
    let idle = ["wake", "-M", "sim:tpmi-small", "-t", "1s", "--check", "-o", "limit.toml", "--", "idle"];
    let ran = in_folder(&idle);
    for why in ["not checked: no latency limit", "not written, because no latency limit"] {
        assert!(ran.err.contains(why), "{}", ran.text());
    }
    assert!(!folder.path().join("limit.toml").exists());
}

#[test]
fn the_probe_of_a_simulated_machine_has_the_models_values() {
    // C6 is advertised with 170 us, but takes 40 us on this machine.
    let report = wake(0, &["-M", "sim:sst-guide", "--probe", "--json"]).json();
    let c6 = list(&report["rows"]).iter().find(|row| row["state"] == "C6").unwrap();
    assert_eq!((&c6["p50_us"], &c6["exit_latency_us"]), (&40.0.into(), &170.into()));
    let said = report["sentence"].as_str().unwrap();
    assert!(said.contains("40.0 us out of C6 (advertised 170 us)"), "{said}");
    // Both kinds of cores.
    let report = wake(0, &["-M", "sim:hybrid-laptop", "--probe", "--json"]).json();
    let kinds: Vec<&str> = list(&report["rows"]).iter().filter_map(|row| row["core_type"].as_str()).collect();
    assert!(kinds.contains(&"P") && kinds.contains(&"E"), "{report}");
}

#[test]
fn the_probe_measures_this_machine() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        assert!(wake(4, &["--probe", "-t", "1s"]).err.contains("one CPU has to wake another one"));
        return;
    }
    let started = Instant::now();
    let ran = Ran::of(flyball!().args(["wake", "--probe", "-t", "2s", "--json"]));
    let report = ran.json();
    // Other tests may keep the CPUs busy.
    assert_eq!(ran.code, i32::from(list(&report["rows"]).is_empty()), "{}", ran.text());
    assert!(started.elapsed() < Duration::from_secs(60));
    let rows = list(&report["rows"]);
    for row in rows {
        let (p50, worst) = (number(&row["p50_us"]), number(&row["worst_us"]));
        assert!(0.0 <= p50 && p50 <= worst && number(&row["samples"]) > 0.0, "{row}");
        assert!(row["p99_us"].as_f64().is_none_or(|p99| p50 <= p99 && p99 <= worst), "{row}");
    }
    let in_rows: f64 = rows.iter().map(|row| number(&row["samples"])).sum();
    if report["driver"].is_string() {
        assert_eq!(in_rows, number(&report["attributed"]), "{report}");
    }
    assert!(in_rows + number(&report["ambiguous"]) + number(&report["awake"]) > 10.0, "{report}");
    // For each state, the report has a measurement or what prevented it.
    for state in std::fs::read_dir("/sys/devices/system/cpu/cpu0/cpuidle").into_iter().flatten() {
        let name = std::fs::read_to_string(state.unwrap().path().join("name")).unwrap();
        let is_in = |key: &str| list(&report[key]).iter().any(|row| row["state"] == name.trim());
        assert!(is_in("rows") || is_in("not_reached"), "{name}: {report}");
    }
}

/// Returns the number of tracing instances that a process has left.
fn instances(pid: u32) -> usize {
    let own = format!("flyball-{pid}-");
    let names = std::fs::read_dir("/sys/kernel/tracing/instances").into_iter().flatten().flatten();
    names.filter(|entry| entry.file_name().to_string_lossy().starts_with(&own)).count()
}

#[test]
fn what_wakes_this_machine_is_traced() {
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.02; done";
    let mut command = flyball!();
    let ran = Ran::of(command.args(["wake", "--sources", "--json", "--", "sh", "-c", script]));
    if ran.code != 0 {
        assert!(ran.err.contains("tracing needs root") || ran.err.contains("trac"), "{}", ran.text());
        return skip(1, "tracing", &ran.err);
    }
    let report = ran.json();
    let sources = &report["sources"];
    let causes = list(&sources["causes"]);
    let count = |cause: &Value| number(&cause["wakes"]) * number(&report["seconds"]);
    assert!(number(&sources["records"]) > 10.0 && number(&sources["lost"]) == 0.0, "{report}");
    assert!((causes.iter().map(count).sum::<f64>() - number(&sources["exits"])).abs() < 1e-3, "{report}");
    let exits = number(&sources["exits"]);
    assert!(exits < 100.0 || number(&sources["attributed"]) > exits * 0.9, "{report}");
    for cause in causes {
        let states: f64 = list(&cause["by_state"]).iter().map(number).sum();
        assert!((states - number(&cause["wakes"])).abs() < 1e-6, "{cause}");
        // Only a thread has a number, and the idle task is never woken.
        assert_eq!(cause["kind"] == "thread", cause["tid"].is_number(), "{cause}");
        assert_eq!(cause["woken"].is_string(), number_or_zero(&cause["woken_tid"]) > 0.0, "{cause}");
    }
    // Ctrl-C ends the watch, not the process, which would leave its instance behind.
    let mut command = flyball!();
    command.args(["wake", "--sources", "-t", "60s"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = command.spawn().unwrap();
    let pid = running.id();
    let started = Instant::now();
    while instances(pid) == 0 && started.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(Command::new("kill").args(["-INT", &pid.to_string()]).status().unwrap().success());
    let ended = running.wait_with_output().unwrap();
    assert!(ended.status.success() && started.elapsed() < Duration::from_secs(50), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stdout).contains(" that the kernel counted"), "{ended:?}");
    assert_eq!(instances(pid), 0);
}

fn number_or_zero(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

#[test]
fn wrong_words_and_machines() {
    let recording = archive("gnr0").display().to_string();
    for (code, words, says) in [
        (2, &["-t", "1ms"][..], "give a time from 100ms to 1h"),
        (2, &["-t", "2h"], "give a time from 100ms to 1h"),
        (2, &["-c", "9999"], "no CPU 9999 here"),
        (2, &["-p", "4194305"], "no process 4194305 on live"),
        (2, &["-p", "x"], "invalid value 'x'"),
        (2, &["-p", "1", "--cgroup", "x"], "cannot be used with"),
        (2, &["--measured", "/nonexistent"], "/nonexistent: No such file"),
        (2, &["--measured", "/dev/null"], "no report of 'flyball wake --probe -o FILE'"),
        (2, &["--check"], "--check compares rounds of a command: give one that uses the workload"),
        (2, &["--probe", "--check"], "cannot be used with"),
        (2, &["--rounds", "5"], "--check"),
        (2, &["--cgroup", "no/such/group"], "no control group no/such/group"),
        (2, &["--cgroup", "../../proc"], "no control group ../../proc"),
        (2, &["-M", &recording], "is a recording: it holds one moment"),
        (2, &["-M", &recording, "--probe"], "is a recording: it holds one moment"),
        (2, &["--probe", "-p", "1"], "cannot be used with"),
        (4, &["--probe", "-c", "0"], "one CPU has to wake another one"),
        (2, &["--sources", "--probe"], "cannot be used with"),
        (4, &["-M", "sim:i7-2600", "--sources"], "sim:i7-2600 has no event sched/sched_waking"),
        (4, &["-M", &recording, "--sources"], "has no tracefs"),
        (2, &["-M", "sim:i7-2600", "-p", "1"], "no process 1 on sim:i7-2600"),
        (2, &["-M", "sim:i7-2600", "--", "no-such-model"], "cannot run no-such-model"),
    ] {
        let ran = wake(code, words);
        assert!(ran.err.contains(says) && ran.out.is_empty(), "{words:?}: {}", ran.text());
    }
    // Any user may watch any process that /proc shows.
    match std::fs::read_to_string("/proc/1/status") {
        Ok(_) => _ = wake(0, &["-p", "1", "-t", "100ms"]),
        Err(error) => skip(1, "a process of another user", &error.to_string()),
    }
}
