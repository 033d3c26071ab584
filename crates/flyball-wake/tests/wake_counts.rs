//! A watch against the counters of simulated machines, whose every wake-up is known.

use std::{collections::BTreeMap, time::Duration};

use flyball_control::Topology;
use flyball_host::{Host, Launch};
use flyball_simhost::{SimHost, SimSetup};
use flyball_wake::{Target, Watch};

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
        // Each reading takes some of the machine's time, so that a watch lies between these.
        let outer = counters(&host, &topology);
        let watch = Watch::start(&host, &topology, &topology.online, Target::Cpus).unwrap();
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

/// The machine wakes a CPU whose register is read, as the kernel does (rdmsr_on_cpu()). Reading the
/// counters must not.
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
        Watch::start(host, topology, &topology.online, Target::Cpus).unwrap().finish(None);
    });
    assert_eq!(watched, alone);
    let interrupted = count(&|host, topology| {
        for cpu in topology.online.iter() {
            host.msr(cpu, 0xe8).unwrap();
        }
    });
    assert!(interrupted >= alone + 50 * 32, "{interrupted} and {alone}");
}
