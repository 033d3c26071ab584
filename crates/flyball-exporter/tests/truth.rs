//! Compares metrics with the silicon of simulated machines, and with files that change between
//! scrapes.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use flyball_exporter::{Collector, Format, Options, catalogue};
use flyball_host::{Host, Launch, Plain};
use flyball_simhost::{SimHost, SimSetup};
use flyball_testing::Tree;

fn open(name: &str) -> SimHost {
    SimHost::open(&SimSetup::parse(name).expect("a machine")).expect("it boots")
}

fn launch(words: &[&str]) -> Launch {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    Launch::new(&words[0], &words[1..])
}

/// Each CPU counts once per knob, even if a switch has a global and a per-policy file.
#[test]
fn no_cpu_is_counted_twice() {
    for (name, cpus) in [("ryzen-5750g", 16), ("sst-guide", 56), ("hybrid-laptop", 16)] {
        let host = open(name);
        let mut collector = Collector::open(&host, EACH, None).unwrap();
        let text = collector.scrape("a", Format::Text);
        let mut counted: BTreeMap<&str, f64> = BTreeMap::new();
        for line in text.lines().filter_map(|line| line.strip_prefix("flyball_cpus{knob=\"")) {
            let (knob, number) = (line.split('"').next().unwrap(), line.rsplit(' ').next().unwrap());
            *counted.entry(knob).or_default() += number.parse::<f64>().unwrap();
        }
        assert!(counted.contains_key("governor"), "{text}");
        for (knob, count) in counted {
            assert!(count <= f64::from(cpus), "{name} {knob}: {count}");
        }
    }
}

/// Returns the value of a series. The labels are given as printed.
fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

fn names(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(['{', ' ']).next().unwrap().to_owned()).collect()
}

const EACH: Options =
    Options { per_cpu: true, node: true, process: true, why: true, wakes: true, most_values: 16 };

/// The frequency of a busy CPU matches the silicon, whatever the time between scrapes, and also
/// after the CPU was offline.
#[test]
fn effective_frequency_is_that_of_the_silicon() {
    for name in ["sst-guide", "ryzen-5750g"] {
        let host = open(name);
        // On all CPUs: a task pinned to one CPU does not return when that comes back.
        let _load = host.spawn(launch(&["spin", "--endless"])).unwrap();
        host.sleep(Duration::from_secs(2));
        let mut collector = Collector::open(&host, EACH, None).unwrap();
        collector.scrape("a", Format::Text);
        let cycles = |host: &SimHost| host.with(|machine| machine.silicon().cycles(2));
        for seconds in [1, 15, 60] {
            let (before, began) = (cycles(&host), host.now());
            host.sleep(Duration::from_secs(seconds));
            let truth = (cycles(&host) - before) as f64 / (host.now() - began).as_secs_f64();
            let text = collector.scrape("a", Format::Text);
            let hertz = value(&text, "flyball_cpu_thread_effective_hertz{cpu=\"2\"}").unwrap();
            assert!((hertz / truth - 1.0).abs() < 0.01, "{name}, {seconds} s: {hertz} against {truth}");
        }
        let online = "/sys/devices/system/cpu/cpu2/online";
        host.write(online, b"0").unwrap();
        host.sleep(Duration::from_secs(2));
        let text = collector.scrape("a", Format::Text);
        assert_eq!(value(&text, "flyball_cpu_thread_effective_hertz{cpu=\"2\"}"), None, "{name}");
        assert_eq!(value(&text, "node_cpu_online{cpu=\"2\"}"), Some(0.0));
        // The other CPUs are there, so the scrape is complete.
        assert!(value(&text, "flyball_cpu_thread_effective_hertz{cpu=\"3\"}").is_some(), "{name}");
        host.write(online, b"1").unwrap();
        host.sleep(Duration::from_secs(5));
        collector.scrape("a", Format::Text);
        let (before, began) = (cycles(&host), host.now());
        host.sleep(Duration::from_secs(15));
        let truth = (cycles(&host) - before) as f64 / (host.now() - began).as_secs_f64();
        let text = collector.scrape("a", Format::Text);
        let hertz = value(&text, "flyball_cpu_thread_effective_hertz{cpu=\"2\"}").unwrap();
        assert!((hertz / truth - 1.0).abs() < 0.01, "{name}, after hotplug: {hertz} against {truth}");
    }
}

/// Each client has its own interval, and a client that asks again at once gets the same numbers.
#[test]
fn clients_do_not_halve_each_others_intervals() {
    let host = open("sst-guide");
    let load = host.spawn(launch(&["spin", "--endless", "--pin", "2"])).unwrap();
    let mut collector = Collector::open(&host, Options::default(), None).unwrap();
    let busy = |text: &str| value(text, "flyball_cpu_busy_ratio{package=\"0\",type=\"\",stat=\"max\"}");
    host.sleep(Duration::from_secs(10));
    for client in ["a", "b"] {
        assert!(busy(&collector.scrape(client, Format::Text)).unwrap() > 0.99);
    }
    drop(load);
    host.sleep(Duration::from_secs(10));
    assert!(busy(&collector.scrape("a", Format::Text)).unwrap() < 0.1);
    host.sleep(Duration::from_secs(10));
    let of_b = busy(&collector.scrape("b", Format::Text)).unwrap();
    assert!(of_b < 0.1, "{of_b}");
    host.sleep(Duration::from_millis(100));
    let series =
        |text: &str| text.lines().find(|line| line.starts_with("flyball_cpu_busy_ratio")).map(str::to_owned);
    let (first, second) = (collector.scrape("b", Format::Text), collector.scrape("b", Format::Text));
    assert_eq!(series(&first), series(&second));
    for client in 0..100 {
        collector.scrape(&client.to_string(), Format::Text);
    }
}

/// The largest machine has at most 400 series and 40 kB. `Exposition` asserts that every name is in
/// the catalogue and in one piece.
#[test]
fn the_largest_machine_has_few_series() {
    let host = open("epyc-512");
    let mut collector = Collector::open(&host, Options::default(), None).unwrap();
    host.sleep(Duration::from_secs(2));
    let text = collector.scrape("a", Format::Text);
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    assert!(series <= 400 && text.len() <= 40_000, "{series} series, {} bytes\n{text}", text.len());
    let known: BTreeSet<String> = catalogue::ALL.iter().map(|family| family.name.to_owned()).collect();
    assert_eq!(names(&text).difference(&known).collect::<Vec<_>>(), Vec::<&String>::new());
}

/// Creates the smallest tree with an energy meter that a sampler accepts as a machine.
fn metered(tree: &Tree, energy: u64) {
    let cpu = "sys/devices/system/cpu";
    for (file, text) in [("present", "0"), ("possible", "0"), ("online", "0")] {
        tree.put(format!("{cpu}/{file}"), format!("{text}\n"));
    }
    for (file, text) in [("physical_package_id", "0"), ("core_id", "0"), ("die_id", "0")] {
        tree.put(format!("{cpu}/cpu0/topology/{file}"), format!("{text}\n"));
    }
    tree.put("proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nphysical id\t: 0\ncore id\t\t: 0\n\n");
    tree.put("proc/stat", "cpu  1 0 0 1 0 0 0 0 0 0\ncpu0 1 0 0 1 0 0 0 0 0 0\nintr 0\n");
    let zone = "sys/class/powercap/intel-rapl:0";
    tree.put(format!("{zone}/name"), "package-0\n");
    tree.put(format!("{zone}/max_energy_range_uj"), format!("{RANGE}\n"));
    tree.put(format!("{zone}/energy_uj"), format!("{energy}\n"));
}

const RANGE: u64 = 65_532_610_987;

/// Readings in between follow a meter that wraps three times between two scrapes.
#[test]
fn a_meter_that_wraps_goes_on() {
    let tree = Tree::new();
    metered(&tree, 60_000_000_000);
    let host = Plain::open(tree.path()).unwrap();
    let mut collector = Collector::open(&host, EACH, None).unwrap();
    let within = collector.meters_within().expect("a meter");
    // 65.5 kJ at 500 W is 131 s.
    assert!((100.0..131.0).contains(&within.as_secs_f64()), "{within:?}");
    let (mut counter, mut joules) = (60_000_000_000u64, 0.0);
    // 480 W, 100 s per step. The meter wraps three times.
    for _ in 0..5 {
        counter = (counter + 48_000_000_000) % (RANGE + 1);
        joules += 48_000.0;
        tree.put("sys/class/powercap/intel-rapl:0/energy_uj", format!("{counter}\n"));
        collector.follow_meters();
    }
    std::thread::sleep(Duration::from_millis(1100));
    let text = collector.scrape("a", Format::Text);
    let found = value(&text, "flyball_energy_joules_total{zone=\"package\",package=\"0\"}").unwrap();
    assert!((found / joules - 1.0).abs() < 0.001, "{found} against {joules}");
}

/// What cannot be read is absent, never 0. Everything else is served.
#[test]
fn what_goes_away_is_left_out() {
    let tree = Tree::new();
    metered(&tree, 5);
    let host = Plain::open(tree.path()).unwrap();
    let mut collector = Collector::open(&host, EACH, None).unwrap();
    let governor = "sys/devices/system/cpu/cpufreq/policy0/scaling_governor";
    assert!(!collector.scrape("a", Format::Text).contains("governor"));
    std::fs::remove_dir_all(tree.path().join("sys/class/powercap")).unwrap();
    tree.put(governor, "performance\n");
    std::thread::sleep(Duration::from_millis(1100));
    let text = collector.scrape("a", Format::OpenMetrics);
    assert!(text.ends_with("# EOF\n") && text.contains("flyball_build_info"), "{text}");
    std::fs::remove_dir_all(tree.path().join("sys")).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    assert!(collector.scrape("a", Format::Text).contains("flyball_build_info"));
}

/// Exits since the exporter's start match the kernel's counters. Reading takes simulated time, in
/// which CPUs wake.
#[test]
fn wakes_are_those_of_the_kernel() {
    let host = open("tpmi-small");
    let states = host.list("/sys/devices/system/cpu/cpu0/cpuidle").unwrap();
    let exits = || {
        let of = |state: &String| {
            let name = host.read(&format!("/sys/devices/system/cpu/cpu0/cpuidle/{state}/name")).unwrap();
            let usage = |cpu: usize| format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle/{state}/usage");
            let usage = (0..).map_while(|cpu| host.read(&usage(cpu)).ok()?.parse::<f64>().ok());
            (name, usage.sum::<f64>())
        };
        states.iter().map(of).collect::<BTreeMap<String, f64>>()
    };
    let _load = host.spawn(launch(&["rpc", "--endless"])).unwrap();
    let earliest = exits();
    let mut collector = Collector::open(&host, EACH, None).unwrap();
    let (opened, ()) = (exits(), host.sleep(Duration::from_secs(2)));
    let scraped = exits();
    let text = collector.scrape("a", Format::Text);
    let latest = exits();
    let mut all = 0.0;
    for (state, count) in latest {
        let counted = value(&text, &format!("flyball_cpu_wakes_total{{state=\"{state}\"}}")).unwrap();
        let (least, most) = (scraped[&state] - opened[&state], count - earliest[&state]);
        assert!((least..=most).contains(&counted), "{state}: {counted} in {least} to {most}");
        all += counted;
    }
    assert!(all > 1000.0, "{text}");
}

/// docs/metrics.md has the catalogue. `FLYBALL_BLESS=1` rewrites it.
#[test]
fn the_page_has_the_metrics() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once("<!-- metrics -->\n").unwrap();
    let (_, after) = rest.split_once("<!-- end -->").unwrap();
    let mut table = String::new();
    for (title, sets) in [
        ("By default", &[catalogue::Set::Default][..]),
        ("With `--why`", &[catalogue::Set::Why]),
        ("With `--wakes`", &[catalogue::Set::Wakes]),
        ("With `--per-cpu`", &[catalogue::Set::PerCpu]),
        ("With `--node`", &[catalogue::Set::Node]),
        ("With `--node --per-cpu`", &[catalogue::Set::NodePerCpu]),
    ] {
        table += &format!("{title}:\n\n| metric | labels | series | |\n|---|---|---|---|\n");
        for family in catalogue::ALL.iter().filter(|family| sets.contains(&family.set)) {
            let labels: Vec<String> = family
                .labels
                .split(',')
                .filter(|label| !label.is_empty())
                .map(|label| format!("`{label}`"))
                .collect();
            let labels = labels.join(", ");
            table += &format!("| `{}` | {labels} | {} | {} |\n", family.name, family.most, family.help);
        }
        table += "\n";
    }
    let right = format!("{before}<!-- metrics -->\n{table}<!-- end -->{after}");
    if std::env::var_os("FLYBALL_BLESS").is_some() {
        std::fs::write(path, &right).unwrap();
    }
    assert_eq!(page, right, "run FLYBALL_BLESS=1 cargo test -p flyball-exporter --test truth page");
}

/// The labels of each series are those in the catalogue.
#[test]
fn labels_are_those_of_the_table() {
    for name in ["sst-guide", "hybrid-laptop"] {
        let host = open(name);
        let _load = host.spawn(launch(&["spin", "--endless"])).unwrap();
        let mut collector = Collector::open(&host, EACH, None).unwrap();
        host.sleep(Duration::from_secs(3));
        let text = collector.scrape("a", Format::Text);
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, _) = line.rsplit_once(' ').unwrap();
            let (family, labels) = series.split_once('{').unwrap_or((series, "}"));
            let family = catalogue::ALL.iter().find(|known| known.name == family).expect(line);
            let labels = labels.trim_end_matches('}').split("\",").filter(|label| !label.is_empty());
            let labels: Vec<&str> = labels.map(|label| label.split('=').next().unwrap()).collect();
            assert_eq!(labels.join(","), family.labels, "{line}");
        }
    }
}

/// Every metric in the dashboard and the rules is in the catalogue, and some machine exports it.
/// Metrics of holds and the doctor, which need more than a machine, are tested with the command.
#[test]
fn dashboard_and_rules_name_what_there_is() {
    let read = |path: &str| {
        std::fs::read_to_string(format!("{}/../../dist/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    };
    let texts = [
        read("grafana/flyball.json"),
        read("grafana/flyball-fleet.json"),
        read("prometheus/flyball.rules.yml"),
    ]
    .concat();
    let words = texts.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let named: BTreeSet<&str> =
        words.filter(|word| word.starts_with("flyball_") || word.starts_with("process_")).collect();
    assert!(named.len() > 20, "{named:?}");
    let mut exported = BTreeSet::new();
    for name in ["sst-guide", "ryzen-5750g", "hybrid-laptop", "gold-6138"] {
        let host = open(name);
        let _load = host.spawn(launch(&["spin", "--endless"])).unwrap();
        let mut collector = Collector::open(&host, EACH, None).unwrap();
        host.sleep(Duration::from_secs(3));
        exported.extend(names(&collector.scrape("a", Format::Text)));
    }
    let of_others = |name: &str| {
        ["flyball_drift", "flyball_hold", "flyball_reapplied", "flyball_doctor", "flyball_unreadable"]
            .iter()
            .any(|start| name.starts_with(start))
    };
    for name in named {
        assert!(catalogue::ALL.iter().any(|family| family.name == name), "{name} is not a metric");
        assert!(exported.contains(name) || of_others(name), "{name} is exported by no simulated machine");
    }
}
