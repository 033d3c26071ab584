//! Compares a watch with the counters of simulated machines, which know every wake-up.

use std::{collections::BTreeMap, time::Duration};

use flyball_control::Topology;
use flyball_host::{Host, Launch};
use flyball_simhost::{SimHost, SimSetup};
use flyball_testing::Tree;
use flyball_wake::{Measured, ProbeReport, Target, WakeReport, Watch, probe};

fn machine(name: &str) -> SimHost {
    SimHost::open(&SimSetup::parse(name).expect("a machine")).expect("it boots")
}

/// Every counter of cpuidle, by its path.
fn counters(host: &dyn Host, topology: &Topology) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for cpu in topology.online.iter() {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle");
        for state in host.list(&folder).expect("states") {
            for name in ["usage", "time"] {
                let path = format!("{folder}/{state}/{name}");
                found.insert(path.clone(), host.read(&path).expect("a counter").parse().expect("a number"));
            }
        }
    }
    found
}

#[test]
fn counts_are_the_kernels_own() {
    for name in ["tpmi-small", "ryzen-5750g", "sst-guide"] {
        let host = machine(name);
        let topology = Topology::inspect(&host).unwrap();
        let words = ["sched-pipe", "--endless", "--pin", "0-1"].map(str::to_owned);
        let load = host.spawn(Launch::new(&words[0], &words[1..])).unwrap();
        // Each reading takes some of the machine's time, so the watch's reading lies between these
        // two.
        let outer = counters(&host, &topology);
        let watch = Watch::start(&host, &topology, &topology.online, Target::Cpus, None, None).unwrap();
        let inner = counters(&host, &topology);
        host.sleep(Duration::from_secs(2));
        let inner = (inner, counters(&host, &topology));
        let report = watch.finish(None);
        let outer = (outer, counters(&host, &topology));
        drop(load);
        for (index, state) in report.states.iter().enumerate() {
            let sum = |(then, now): &(BTreeMap<String, u64>, BTreeMap<String, u64>), name: &str| -> u64 {
                let file = format!("/state{index}/{name}");
                now.iter().filter(|(path, _)| path.ends_with(&file)).map(|(path, now)| now - then[path]).sum()
            };
            let between = |value: u64, name: &str| {
                let range = sum(&inner, name)..=sum(&outer, name);
                assert!(range.contains(&value), "{name} of {}: {value} in {range:?}", state.name);
            };
            between(state.exits, "usage");
            if let Some(mean) = state.mean_residency_us {
                between((mean * state.exits as f64).round() as u64, "time");
            }
            let rate = state.exits as f64 / report.seconds;
            assert!(
                (state.wakes - rate).abs() <= rate * 0.01,
                "{name} {}: {} and {rate}",
                state.name,
                state.wakes
            );
        }
        assert!(report.wakes.unwrap() > 10_000.0, "{name}: {report:?}");
    }
}

/// The simulated machine wakes a CPU when its register is read, like the kernel (rdmsr_on_cpu()).
/// Reading the counters must not.
#[test]
fn reading_counters_wakes_no_cpu() {
    let count = |read: &dyn Fn(&SimHost, &Topology)| -> u64 {
        let host = machine("tpmi-small");
        let topology = Topology::inspect(&host).unwrap();
        for _ in 0..50 {
            read(&host, &topology);
            host.sleep(Duration::from_millis(20));
        }
        counters(&host, &topology)
            .iter()
            .filter(|(path, _)| path.ends_with("usage"))
            .map(|(_, count)| count)
            .sum()
    };
    let alone = count(&|_, _| {});
    let watched = count(&|host, topology| {
        Watch::start(host, topology, &topology.online, Target::Cpus, None, None).unwrap().finish(None);
    });
    assert_eq!(watched, alone);
    let interrupted = count(&|host, topology| {
        for cpu in topology.online.iter() {
            host.msr(cpu, 0xe8).unwrap();
        }
    });
    assert!(interrupted >= alone + 50 * 32, "{interrupted} and {alone}");
}

/// Checks the probe's latencies on simulated machines against the model.
#[test]
fn a_probe_finds_the_models_latencies() {
    for (name, deep, p50, p99) in [
        ("tpmi-small", "C6", 190.0, 229.2),
        ("tpmi-small", "C6P", 210.0, 249.2),
        ("epyc-512", "C2", 10.0, 14.9),
        ("hybrid-laptop", "C10", 70.0, 86.7),
        // No spread.
        ("sst-guide", "C6", 40.0, 40.0),
    ] {
        let report = probed(&machine(name));
        let row = report.rows.iter().find(|row| row.state == deep).expect("a row");
        assert!((row.p50_us / p50 - 1.0).abs() < 0.05, "{name}: {row:?}");
        assert!((row.p99_us.unwrap() / p99 - 1.0).abs() < 0.15, "{name}: {row:?}");
        assert!(row.worst_us <= p99 * 1.02, "{name}: {row:?}");
    }
    // A state that a latency limit forbids is not reached.
    let host = machine("tpmi-small");
    for cpu in 0..32 {
        limit(&host, cpu, 4);
    }
    let report = probed(&host);
    assert!(report.rows.iter().all(|row| !row.state.starts_with("C6")), "{report:?}");
    let why = &report.not_reached[0].why;
    assert!(why.contains("is 4 us (latency-limit)"), "{why}");
}

fn probed(host: &SimHost) -> ProbeReport {
    let topology = Topology::inspect(host).expect("it works");
    probe(host, &topology, &topology.online, Duration::from_secs(1)).expect("it works")
}

fn limit(host: &SimHost, cpu: u32, us: u64) {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us");
    host.write(&file, us.to_string().as_bytes()).expect("it works");
}

/// Runs a model on CPUs 0 to 3, with a latency limit in us if given. Returns the watch's report,
/// and the seconds that the model takes.
fn run(name: &str, model: &str, limited: Option<u64>, measured: Option<&Measured>) -> (WakeReport, f64) {
    let host = machine(name);
    if let Some(us) = limited {
        (0..4).for_each(|cpu| limit(&host, cpu, us));
    }
    run_on(&host, model, measured)
}

/// Runs a model to its end on CPUs 0 to 3.
fn run_on(host: &SimHost, model: &str, measured: Option<&Measured>) -> (WakeReport, f64) {
    let topology = Topology::inspect(host).expect("it works");
    let cpus = "0-3".parse().expect("it works");
    let watch = Watch::start(host, &topology, &cpus, Target::Cpus, measured, None).expect("it works");
    let words = ["--pin", "0-3"].map(str::to_owned);
    let mut process = host.spawn(Launch::new(model, &words).silent()).expect("it works");
    let ended = process.wait(Duration::from_secs(3600)).expect("a wait").expect("it ends");
    (watch.finish(None), ended.wall.as_secs_f64())
}

/// A machine whose exits take no time, in a file.
fn without_exits(tree: &Tree, name: &str) -> String {
    let file = format!("{}/../flyball-silicon/machines/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(file).expect("a machine");
    let line = |line: &str| match line.split_once(" latency_us = ") {
        Some((before, after)) => {
            let rest =
                after.split(", ").filter(|word| !word.starts_with("wake_")).collect::<Vec<_>>().join(", ");
            format!("{before} wake_us = 0.001, latency_us = {rest}\n")
        }
        None => format!("{line}\n"),
    };
    let copy = tree.path().join(format!("{name}.toml"));
    std::fs::write(&copy, text.lines().map(line).collect::<String>()).expect("a file");
    copy.display().to_string()
}

/// Sleeps of 20 us to 20 ms at a constant frequency: what a watch says is lost is what a machine
/// whose exits are free gains.
#[test]
fn time_lost_is_that_of_a_machine_whose_exits_are_free() {
    let tree = Tree::new();
    let mut worst: f64 = 0.0;
    let mut compared = 0;
    for name in ["tpmi-small", "ryzen-5750g", "hybrid-laptop", "sst-guide", "gold-6138"] {
        let probe = serde_json::to_value(probed(&machine(name))).unwrap();
        let measured: Measured = serde_json::from_value(probe).unwrap();
        let free = without_exits(&tree, name);
        for number in 0..10 {
            let gap = 20_000.0 * 10_f64.powf(f64::from(number) * 0.3);
            let turns = (2e9 / (gap + 40_000.0)) as u64;
            let model = tree.path().join("planted.toml");
            let text = format!(
                "name = 'planted'\ntitle = ''\nabout = ''\n[[task]]\nplace = 'fixed'\ncount = 2\n\
                 cycles = 100000\ngap_ns = {gap}\nturns = {turns}\n"
            );
            std::fs::write(&model, text).unwrap();
            let [(report, seconds), (_, without)] = [name, &free].map(|machine_name| {
                let host = machine(machine_name);
                let set = |file: &str, value: &str| {
                    host.write(&format!("/sys/devices/system/cpu/{file}"), value.as_bytes())
                };
                assert!(set("intel_pstate/no_turbo", "1").or_else(|_| set("cpufreq/boost", "0")).is_ok());
                for cpu in 0..4 {
                    set(&format!("cpu{cpu}/cpufreq/scaling_governor"), "performance").expect("it works");
                }
                run_on(&host, &model.display().to_string(), Some(&measured))
            });
            let lost = report.by_cpu.iter().map(|cpu| cpu.lost_ms_at_most).fold(0.0, f64::max) * 1e-3;
            let truth = 1.0 - without / seconds;
            // CPUs also wake ten times a second for the kernel, which delays nobody.
            if truth >= 0.025 {
                compared += 1;
                worst = worst.max((lost / truth - 1.0).abs());
                assert!((lost / truth - 1.0).abs() <= 0.1, "{name} {gap:.0} ns: {lost:.4} {truth:.4}");
            }
        }
    }
    eprintln!("{compared} compared, at most {:.1} % off", worst * 100.0);
    assert!(compared >= 20, "{compared}");
}

/// Workloads whose exits cost between nothing and most of their time: a limit is advised if the
/// lightest one saves 1 % of the time.
#[test]
fn advice_is_right_for_planted_workloads() {
    const EACH: u64 = 40;
    let tree = Tree::new();
    let mut random = 1_u64;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as f64 / (1_u64 << 31) as f64
    };
    let (mut right, mut pays, mut wrong) = (0, 0, Vec::new());
    for name in ["tpmi-small", "ryzen-5750g", "hybrid-laptop", "sst-guide", "gold-6138"] {
        let probe = serde_json::to_value(probed(&machine(name))).unwrap();
        let measured: Measured = serde_json::from_value(probe).unwrap();
        for number in 0..EACH {
            // Sleeps of 2 us to 20 ms, and work of 2,000 to 20,000,000 cycles.
            let gap = 2_000.0 * 10_f64.powf(4.0 * next());
            let cycles = 2_000.0 * 10_f64.powf(4.0 * next());
            let tasks = 1 + number % 3;
            let turns = (tasks as f64 * 1e9 / (gap + cycles / 3.0)).max(8.0) as u64;
            let file = tree.path().join("planted.toml");
            let text = format!(
                "name = 'planted'\ntitle = ''\nabout = ''\n[[task]]\nplace = 'fixed'\ncount = {tasks}\n\
                 cycles = {cycles}\ngap_ns = {gap}\nturns = {turns}\n"
            );
            std::fs::write(&file, text).unwrap();
            let model = file.display().to_string();
            let (report, free) = run(name, &model, None, Some(&measured));
            let lightest =
                report.states.iter().map(|state| state.exit_latency_us).find(|us| *us > 0).unwrap();
            let (_, limited) = run(name, &model, Some(lightest), None);
            let gain = 1.0 - limited / free;
            pays += u32::from(gain >= 0.01);
            if report.advice.is_some() == (gain >= 0.01) {
                right += 1;
            } else {
                wrong.push(format!(
                    "{name}: {tasks} x {cycles:.0} cycles, {gap:.0} ns: {gain:.4} {:?} {:?}",
                    report.advice, report.sentence
                ));
            }
        }
    }
    let all = 5 * EACH as u32;
    eprintln!("{right} of {all} right, {pays} pay; wrong:\n{}", wrong.join("\n"));
    assert!(pays > all / 5 && pays < all * 4 / 5, "{pays} of {all} pay");
    assert!(right * 100 >= all * 95, "{right} of {all}:\n{}", wrong.join("\n"));
}
