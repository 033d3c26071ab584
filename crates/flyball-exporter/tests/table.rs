//! Compares metrics and samples with the knob table, on every simulated and every recorded machine:
//! the exporter counts and `top` shows the values that `flyball get` prints.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::collections::BTreeMap;

use flyball_control::{Id, Location, Place, Reading, Request, Scope, Snapshot, Value, kernel_release};
use flyball_exporter::{Collector, Format, Options, covered};
use flyball_host::{Archive, CpuList, Host};
use flyball_monitor::{Interval, Sampler};
use flyball_silicon::MachineSpec;
use flyball_simhost::{SimHost, SimSetup};

/// Kernels whose cpufreq files differ: boost of each policy came with 6.11.
const KERNELS: [&str; 3] = ["6.1", "6.12", "7.2"];

fn machines() -> Vec<Box<dyn Host>> {
    let mut machines: Vec<Box<dyn Host>> = Vec::new();
    for name in MachineSpec::names() {
        for kernel in KERNELS {
            let setup = SimSetup::parse(&format!("{name},kernel={kernel}")).unwrap();
            // Some kernels are older than the processor.
            machines.extend(SimHost::open(&setup).ok().map(|host| Box::new(host) as Box<dyn Host>));
        }
    }
    for path in flyball_testing::machines() {
        machines.push(Box::new(Archive::open(path.to_str().unwrap()).unwrap()));
    }
    machines
}

/// Returns the series of a family by their labels, as printed.
fn series(text: &str, family: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(family)?.strip_prefix('{'));
    lines
        .filter_map(|line| line.rsplit_once("} "))
        .map(|(labels, value)| (labels.to_owned(), value.parse().unwrap()))
        .collect()
}

/// Returns a value as in the metrics.
fn spelled(value: &Value) -> Option<String> {
    Some(match value {
        Value::Switch(on) => if *on { "on" } else { "off" }.to_owned(),
        Value::Word(word) => word.clone(),
        Value::Epb(epb) => epb.0.to_string(),
        Value::Epp(epp) => epp.0.to_string(),
        _ => return None,
    })
}

/// The values in the table, as in the metrics: CPUs by value, and ranges of numbers.
#[derive(Debug, Default, PartialEq)]
struct Expected {
    cpus: BTreeMap<String, f64>,
    hertz: BTreeMap<String, f64>,
    ratio: BTreeMap<String, f64>,
}

impl Expected {
    fn of(snapshot: &Snapshot) -> Expected {
        let mut expected = Expected::default();
        for knob in covered() {
            for (place, entry) in snapshot.entries(knob).unwrap() {
                let Some(Ok(Reading::Value { value, source })) = entry.map(|entry| &entry.reading) else {
                    continue;
                };
                // A register that replaces a file is not exported.
                if matches!(source, Location::Msr { .. }) {
                    continue;
                }
                expected.add(snapshot, knob, place, value);
            }
        }
        expected
    }

    fn add(&mut self, snapshot: &Snapshot, knob: Id, place: &Place, value: &Value) {
        let topology = snapshot.topology();
        let row = knob.knob();
        let name = match row.scope {
            Scope::IdleState => format!("{}:{}", row.name, place.name),
            _ => row.name.to_owned(),
        };
        let of_package: Vec<(u32, CpuList)> = topology
            .packages()
            .into_iter()
            .map(|(package, cpus)| (package, cpus.iter().filter(|cpu| place.cpus.contains(*cpu)).collect()))
            .filter(|(_, cpus): &(u32, CpuList)| !cpus.is_empty())
            .collect();
        let package = match row.scope {
            Scope::Machine => String::new(),
            _ => of_package.first().map(|(package, _)| package.to_string()).unwrap_or_default(),
        };
        let mut widen = |family: fn(&mut Expected) -> &mut BTreeMap<String, f64>, number: f64| {
            for (stat, pick) in [("min", f64::min as fn(f64, f64) -> f64), ("max", f64::max)] {
                let labels = format!("knob=\"{name}\",package=\"{package}\",stat=\"{stat}\"");
                let range = family(self).entry(labels).or_insert(number);
                *range = pick(*range, number);
            }
        };
        match value {
            Value::Frequency(frequency) => widen(|all| &mut all.hertz, frequency.0 as f64 * 1e3),
            Value::Percent(percent) => widen(|all| &mut all.ratio, f64::from(percent.0) / 100.0),
            value => {
                let Some(value) = spelled(value) else { return };
                for (package, cpus) in of_package {
                    let labels = format!("knob=\"{name}\",value=\"{value}\",package=\"{package}\"");
                    *self.cpus.entry(labels).or_default() += cpus.len() as f64;
                }
            }
        }
    }
}

#[test]
fn metrics_have_what_get_prints() {
    let mut values = 0;
    for host in machines() {
        let host = &*host;
        let name = format!("{} {:?}", host.name(), kernel_release(host));
        let mut collector =
            Collector::open(host, Options { most_values: 300, ..Options::default() }, None).unwrap();
        // Preferences are only read on CPUs that have run.
        host.sleep(std::time::Duration::from_secs(2));
        let text = collector.scrape("test", Format::Text);
        let knobs: Vec<Id> = covered().collect();
        let mut snapshot = Snapshot::begin(host).unwrap();
        snapshot.take(host, &Request { knobs: &knobs, online_by_list: true, ..Request::default() });
        let expected = Expected::of(&snapshot);
        let found = Expected {
            cpus: series(&text, "flyball_cpus"),
            hertz: series(&text, "flyball_setting_hertz"),
            ratio: series(&text, "flyball_setting_ratio"),
        };
        assert_eq!(found, expected, "{name}");
        values += expected.cpus.len() + expected.hertz.len() + expected.ratio.len();
        let release = kernel_release(host).unwrap_or_default();
        assert!(text.contains(&format!("kernel=\"{release}\"")) && !release.is_empty(), "{name}");
    }
    println!("{values} values of metrics are those of the table");
}

#[test]
fn samples_have_what_get_prints() {
    let mut values = 0;
    for host in machines() {
        let host = &*host;
        let mut sampler = Sampler::open(
            host,
            flyball_monitor::Options {
                slow: std::time::Duration::ZERO,
                touch: flyball_monitor::Touch::All,
                ..Default::default()
            },
        )
        .unwrap();
        let sample = sampler.sample();
        let layout = sampler.layout();
        let interval = Interval::between(layout, &sample, &sample);
        let knobs = [Id::MinFreq, Id::MaxFreq, Id::Governor];
        let snapshot = Snapshot::take_knobs(host, &knobs).unwrap();
        let value = |knob: Id, cpu: u32| {
            let places = snapshot.places_on(knob, &CpuList::from_iter([cpu])).unwrap();
            places.iter().find_map(|place| snapshot.value_if_readable(knob, place).unwrap())
        };
        for (cpu, found) in layout.cpus.iter().zip(&interval.cpus) {
            let name = format!("{} CPU {}", host.name(), cpu.number);
            let mhz =
                |knob| value(knob, cpu.number).and_then(|value| Some(value.frequency()?.0 as f64 / 1e3));
            assert_eq!(found.min, mhz(Id::MinFreq), "{name}");
            // With acpi-cpufreq, the highest request includes boost.
            if layout.machine.driver.as_deref() != Some("acpi-cpufreq") {
                assert_eq!(found.max, mhz(Id::MaxFreq), "{name}");
            }
            let governor = found.governor.map(|number| Value::Word(layout.machine.governors[number].clone()));
            assert_eq!(governor, value(Id::Governor, cpu.number), "{name}");
            values += 3;
        }
    }
    println!("{values} values of samples are those of the table");
}
