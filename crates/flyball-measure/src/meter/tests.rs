//! Meters on small made-up trees of files.

use std::{fs, path::Path};

use flyball_host::Recorded;

use super::*;

struct Tree(tempfile::TempDir);

impl Tree {
    fn new(files: &[(&str, &str)]) -> Tree {
        let tree = Tree(tempfile::tempdir().expect("a directory"));
        tree.put("sys/devices/system/cpu/online", "0-1\n");
        tree.put("proc/stat", "cpu 1 2 3\nctxt 100\n");
        for (path, text) in files {
            tree.put(path, text);
        }
        tree
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().expect("it has one")).expect("it can be made");
        fs::write(path, text).expect("it can be written");
    }

    fn host(&self) -> Recorded {
        Recorded::open(Path::new(self.0.path())).expect("it is a machine")
    }
}

const ZONES: &[(&str, &str)] = &[
    ("sys/class/powercap/intel-rapl/enabled", "1\n"),
    ("sys/class/powercap/intel-rapl:0/name", "package-0\n"),
    ("sys/class/powercap/intel-rapl:0/energy_uj", "262143000000\n"),
    ("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "262143328850\n"),
    ("sys/class/powercap/intel-rapl:0:0/name", "core\n"),
    ("sys/class/powercap/intel-rapl:0:0/energy_uj", "100\n"),
    ("sys/class/powercap/intel-rapl:0:1/name", "dram\n"),
    ("sys/class/powercap/intel-rapl:0:1/energy_uj", "1000000\n"),
    ("sys/class/powercap/intel-rapl:1/name", "package-1\n"),
    ("sys/class/powercap/intel-rapl:1/energy_uj", "5000000\n"),
    ("sys/class/powercap/intel-rapl:2/name", "psys\n"),
    ("sys/class/powercap/intel-rapl:2/energy_uj", "7000000\n"),
    // The same package again, by another interface.
    ("sys/class/powercap/intel-rapl-mmio:0/name", "package-0\n"),
    ("sys/class/powercap/intel-rapl-mmio:0/energy_uj", "1\n"),
];

#[test]
fn powercap_zones_are_summed_by_domain() {
    let tree = Tree::new(ZONES);
    let host = tree.host();
    let meters = Meters::find(&host, None);
    let mut recording = meters.start(&host);
    // The counter of package 0 wraps, that of package 1 does not.
    tree.put("sys/class/powercap/intel-rapl:0/energy_uj", "671150\n");
    tree.put("sys/class/powercap/intel-rapl:1/energy_uj", "9000000\n");
    recording.tick();
    tree.put("sys/class/powercap/intel-rapl:0/energy_uj", "1671150\n");
    tree.put("sys/class/powercap/intel-rapl:0:1/energy_uj", "1500000\n");
    tree.put("sys/class/powercap/intel-rapl:2/energy_uj", "17000000\n");
    tree.put("proc/stat", "cpu 1 2 3\nctxt 350\n");
    let readings = recording.finish();
    let sources = &meters.list().energy;
    let joules = |domain| readings.joules(sources, domain).expect("it is metered");
    assert!((joules(Domain::Package) - 6.0).abs() < 1e-9, "{}", joules(Domain::Package));
    assert!((joules(Domain::Dram) - 0.5).abs() < 1e-9);
    assert!((joules(Domain::Platform) - 10.0).abs() < 1e-9);
    assert_eq!(readings.switches, Some(250));
    assert_eq!(meters.list().no_energy, None);
    assert!(meters.list().no_frequency.is_some());
}

#[test]
fn the_platform_is_counted_once() {
    let tree = Tree::new(ZONES);
    // A platform counter for package 1, which counts the same platform.
    tree.put("sys/class/powercap/intel-rapl:3/name", "psys-1\n");
    tree.put("sys/class/powercap/intel-rapl:3/energy_uj", "7000000\n");
    let named = |tree: &Tree| -> Vec<String> {
        let meters = Meters::find(&tree.host(), None);
        let platforms = meters.list().energy.iter().filter(|source| source.domain == Domain::Platform);
        platforms.map(|source| source.name.clone()).collect()
    };
    assert_eq!(named(&tree), ["psys"]);
    // If package 1 alone has one, it is used.
    tree.put("sys/class/powercap/intel-rapl:2/name", "package-7\n");
    assert_eq!(named(&tree), ["psys-1"]);
}

#[test]
fn the_whole_machine_is_metered_in_addition() {
    let tree = Tree::new(&[
        ("sys/class/powercap/intel-rapl:0/name", "package-0\n"),
        ("sys/class/powercap/intel-rapl:0/energy_uj", "7000000\n"),
        ("sys/class/hwmon/hwmon0/name", "power_meter\n"),
        ("sys/class/hwmon/hwmon0/power1_average", "150000000\n"),
    ]);
    let meters = Meters::find(&tree.host(), None);
    let domains: Vec<Domain> = meters.list().energy.iter().map(|source| source.domain).collect();
    assert_eq!(domains, [Domain::Package, Domain::Platform]);
}

#[test]
fn a_zone_that_goes_away_makes_no_number() {
    let tree = Tree::new(ZONES);
    let host = tree.host();
    let meters = Meters::find(&host, None);
    let recording = meters.start(&host);
    tree.put("sys/class/powercap/intel-rapl:1/energy_uj", "");
    tree.put("sys/class/powercap/intel-rapl:2/energy_uj", "8000000\n");
    let readings = recording.finish();
    assert_eq!(readings.joules(&meters.list().energy, Domain::Package), None);
    assert_eq!(readings.joules(&meters.list().energy, Domain::Platform), Some(1.0));
}

#[test]
fn half_a_round_is_no_energy() {
    let tree = Tree::new(ZONES);
    let host = tree.host();
    let meters = Meters::find(&host, None);
    let mut recording = meters.start(&host);
    tree.put("sys/class/powercap/intel-rapl:1/energy_uj", "6000000\n");
    recording.tick();
    tree.put("sys/class/powercap/intel-rapl:1/energy_uj", "");
    assert_eq!(recording.finish().joules(&meters.list().energy, Domain::Package), None);
}

#[test]
fn one_package_of_two_is_no_sum() {
    let tree = Tree::new(ZONES);
    // One zone's counter cannot be read, as for an unprivileged user who may read only one file of
    // two.
    fs::remove_file(tree.0.path().join("sys/class/powercap/intel-rapl:1/energy_uj")).expect("it is there");
    let meters = Meters::find(&tree.host(), None);
    let has = |domain| meters.list().energy.iter().any(|source| source.domain == domain);
    assert!(!has(Domain::Package) && has(Domain::Platform) && has(Domain::Dram));
}

#[test]
fn meters_of_a_later_look_keep_the_records_order() {
    let source = |name: &str| EnergySource {
        domain: Domain::Package,
        name: name.to_owned(),
        place: name.to_owned(),
        unit: 1.0,
        wraps_after: None,
        is_power: false,
    };
    let (a, b, c) = (source("a"), source("b"), source("c"));
    let found = Readings { energy: vec![vec![(0.0, 1)], vec![(0.0, 2)]], ..Readings::default() };
    let ordered = found.in_order_of(&[b.clone(), c], &[a, b]);
    assert_eq!(ordered.energy, [vec![(0.0, 2)], vec![]]);
}

#[test]
fn the_temperature_is_the_dies() {
    let tree = Tree::new(&[
        ("sys/class/hwmon/hwmon0/name", "k10temp\n"),
        ("sys/class/hwmon/hwmon0/temp1_label", "Tctl\n"),
        ("sys/class/hwmon/hwmon0/temp1_input", "87000\n"),
        ("sys/class/hwmon/hwmon0/temp2_label", "Tdie\n"),
        ("sys/class/hwmon/hwmon0/temp2_input", "60000\n"),
    ]);
    let host = tree.host();
    let meters = Meters::find(&host, None);
    assert_eq!(meters.start(&host).finish().peak_celsius(), Some(60.0));
}

#[test]
fn one_supply_is_counted_once() {
    let tree = Tree::new(&[
        ("sys/class/hwmon/hwmon0/name", "fam15h_power\n"),
        ("sys/class/hwmon/hwmon0/power1_input", "30000000\n"),
        ("sys/class/hwmon/hwmon0/power1_average", "20000000\n"),
    ]);
    let places: Vec<String> =
        Meters::find(&tree.host(), None).list().energy.iter().map(|source| source.place.clone()).collect();
    assert_eq!(places, ["/sys/class/hwmon/hwmon0/power1_average"]);
}

#[test]
fn without_meters_every_way_is_named() {
    let host = Tree::new(&[]);
    let host = host.host();
    let meters = Meters::find(&host, None);
    let why = meters.list().no_energy.clone().expect("there is none");
    for part in ["powercap", "perf PMU", "hwmon"] {
        assert!(why.contains(part), "{why}");
    }
    let readings = meters.start(&host).finish();
    assert_eq!(readings.joules(&meters.list().energy, Domain::Package), None);
    assert_eq!(readings.mean_khz(), None);
    assert_eq!(readings.throttled, None);
}

#[test]
fn hwmon_counts_sockets_not_cores() {
    let tree = Tree::new(&[
        ("sys/class/hwmon/hwmon3/name", "amd_energy\n"),
        ("sys/class/hwmon/hwmon3/energy1_label", "Ecore000\n"),
        ("sys/class/hwmon/hwmon3/energy1_input", "1000000\n"),
        ("sys/class/hwmon/hwmon3/energy9_label", "Esocket0\n"),
        ("sys/class/hwmon/hwmon3/energy9_input", "5000000\n"),
    ]);
    let host = tree.host();
    let meters = Meters::find(&host, None);
    let recording = meters.start(&host);
    tree.put("sys/class/hwmon/hwmon3/energy1_input", "2000000\n");
    tree.put("sys/class/hwmon/hwmon3/energy9_input", "9000000\n");
    let readings = recording.finish();
    assert_eq!(readings.joules(&meters.list().energy, Domain::Package), Some(4.0));
}

#[test]
fn frequency_heat_and_throttling_are_followed() {
    let tree = Tree::new(&[
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "2000000\n"),
        ("sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_avg_freq", "4000000\n"),
        ("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "1\n"),
        ("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "3\n"),
        ("sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", "7\n"),
        ("sys/devices/system/cpu/cpu0/topology/core_id", "0\n"),
        ("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n"),
        // The other thread of the same core counts the same events.
        ("sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "3\n"),
        ("sys/devices/system/cpu/cpu1/thermal_throttle/package_throttle_count", "7\n"),
        ("sys/devices/system/cpu/cpu1/topology/core_id", "0\n"),
        ("sys/devices/system/cpu/cpu1/topology/physical_package_id", "0\n"),
        ("sys/class/hwmon/hwmon0/name", "coretemp\n"),
        ("sys/class/hwmon/hwmon0/temp1_label", "Package id 0\n"),
        ("sys/class/hwmon/hwmon0/temp1_input", "55000\n"),
        ("sys/class/hwmon/hwmon0/temp2_label", "Core 0\n"),
        ("sys/class/hwmon/hwmon0/temp2_input", "99000\n"),
    ]);
    let host = tree.host();
    let meters = Meters::find(&host, None);
    let mut recording = meters.start(&host);
    tree.put("sys/class/hwmon/hwmon0/temp1_input", "61500\n");
    tree.put("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "5\n");
    tree.put("sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", "8\n");
    recording.tick();
    let readings = recording.finish();
    assert_eq!(readings.mean_khz(), Some(3_000_000.0));
    assert_eq!(readings.peak_celsius(), Some(61.5));
    assert_eq!(readings.throttled, Some(3));
    let only = "1".parse().expect("a list");
    assert_eq!(Meters::find(&host, Some(&only)).list().frequency.len(), 1);
}
