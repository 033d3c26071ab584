//! cppc_cpufreq on Arm servers: the values that its files take and refuse, and reports of limits.
//! What is here of 6.12, 7.2 and 7.3, real kernels answered on an emulated machine
//! (lab/docs/guest.md); 6.18 is read from its source.

use std::time::Duration;

use flyball_sim::{Boot, Errno, Kernel, SimMachine, Steady, silicon::MachineSpec};

const CPU: &str = "/sys/devices/system/cpu";
const POLICY: &str = "cpufreq/policy1";

struct Server(SimMachine);

impl Server {
    fn boot(name: &str, kernel: Kernel) -> Server {
        let spec = MachineSpec::builtin(name).unwrap();
        Server(SimMachine::boot(spec, kernel, Boot::default(), 0).unwrap())
    }

    fn read(&mut self, path: &str) -> String {
        String::from_utf8(self.0.read(&format!("{CPU}/{path}")).unwrap()).unwrap().trim().to_owned()
    }

    fn write(&mut self, path: &str, text: &str) -> Result<(), Errno> {
        let wrote = self.0.write(&format!("{CPU}/{path}"), text.as_bytes());
        self.0.advance(Duration::from_millis(5));
        wrote
    }

    fn policy<const N: usize>(&mut self, names: [&str; N]) -> [String; N] {
        names.map(|name| self.read(&format!("{POLICY}/{name}")))
    }
}

#[test]
fn registers_take_and_refuse_what_the_driver_does() {
    let mut grace = Server::boot("grace", Kernel::V7_3);
    for (name, text, wrote, read) in [
        ("auto_select", "1", Ok(()), "1"),
        ("auto_select", "on", Ok(()), "1"),
        ("auto_select", "junk", Err(Errno::INVAL), "1"),
        ("auto_select", "0", Ok(()), "0"),
        ("auto_act_window", "127", Ok(()), "127"),
        ("auto_act_window", "128", Ok(()), "127"),
        ("auto_act_window", "1299", Ok(()), "1270"),
        ("auto_act_window", "1270000000", Ok(()), "1270000000"),
        ("auto_act_window", "1270000001", Err(Errno::INVAL), "1270000000"),
        ("energy_performance_preference_val", "0xff", Ok(()), "255"),
        ("energy_performance_preference_val", "256", Err(Errno::INVAL), "255"),
        ("energy_performance_preference_val", "18446744073709551615", Err(Errno::INVAL), "255"),
        ("energy_performance_preference_val", "power", Err(Errno::INVAL), "255"),
        ("perf_limited", "0", Ok(()), "0"),
        ("perf_limited", "4", Err(Errno::INVAL), "0"),
        // The nominal level is the highest, so there is no boost.
        ("boost", "1", Err(Errno::INVAL), "0"),
    ] {
        assert_eq!(grace.write(&format!("{POLICY}/{name}"), text), wrote, "{name}={text}");
        assert_eq!(grace.policy([name]), [read], "{name}={text}");
    }
    // The switch of the machine, which has nothing to switch, refuses both words, and then shows
    // the other one.
    for (text, read) in [("1", "0"), ("0", "1"), ("0", "1"), ("1", "0")] {
        assert_eq!(grace.write("cpufreq/boost", text), Err(Errno::INVAL));
        assert_eq!(grace.read("cpufreq/boost"), read);
    }
    // A CPU that was offline has forgotten.
    assert_eq!(grace.write(&format!("{POLICY}/auto_select"), "1"), Ok(()));
    for online in ["0", "1"] {
        assert_eq!(grace.write("cpu1/online", online), Ok(()));
    }
    assert_eq!(grace.policy(["auto_select", "energy_performance_preference_val"]), ["0", "128"]);
    assert_eq!(grace.write("cpu0/online", "0"), Ok(()), "no CPU is special");

    let mut altra = Server::boot("altra", Kernel::V7_3);
    for name in ["auto_select", "auto_act_window", "energy_performance_preference_val"] {
        assert_eq!(altra.policy([name]), ["<unsupported>"]);
        assert_eq!(altra.write(&format!("{POLICY}/{name}"), "1"), Err(Errno::OPNOTSUPP), "{name}");
    }
}

#[test]
fn levels_limits_and_boost() {
    let limits = ["cpuinfo_min_freq", "cpuinfo_max_freq", "scaling_min_freq", "scaling_max_freq"];
    let mut altra = Server::boot("altra", Kernel::V7_3);
    assert_eq!(altra.policy(limits), ["1000000", "2800000", "2000000", "2800000"]);
    assert_eq!(altra.write("cpufreq/boost", "1"), Ok(()));
    assert_eq!(altra.policy(limits), ["1000000", "3000000", "2000000", "3000000"]);
    assert_eq!(altra.policy(["boost", "freqdomain_cpus", "scaling_driver"]), ["1", "1", "cppc_cpufreq"]);
    let levels = ["highest", "nominal", "lowest_nonlinear", "lowest", "reference"];
    let shown = levels.map(|level| altra.read(&format!("cpu1/acpi_cppc/{level}_perf")));
    assert_eq!(shown, ["300", "280", "200", "100", "100"]);
    // What was off while a CPU was offline is off when it comes back.
    for (path, text) in [("cpu1/online", "0"), ("cpufreq/boost", "0"), ("cpu1/online", "1")] {
        assert_eq!(altra.write(path, text), Ok(()));
    }
    assert_eq!(altra.policy(["boost", "cpuinfo_max_freq"]), ["0", "2800000"]);
    assert_eq!(altra.read("cpu1/cpu_capacity"), "1024");
    assert_eq!(Server::boot("altra", Kernel::V7_2).policy(limits)[2], "2000000");
    // The first minimum is no request before 7.2, and the files of registers came with 6.16.
    let mut old = Server::boot("altra", Kernel::V6_12);
    assert_eq!(old.policy(limits), ["1000000", "2800000", "1000000", "2800000"]);
    assert!(!old.0.exists(&format!("{CPU}/{POLICY}/auto_select")));
    assert_eq!(old.read("smt/control"), "notimplemented");
    assert_eq!(old.write("smt/control", "junk"), Err(Errno::NODEV));
    // Boost writes over the maximum that was asked for, and is lost where a CPU comes back.
    for (path, text) in [("cpufreq/policy1/scaling_max_freq", "1500000"), ("cpufreq/boost", "1")] {
        assert_eq!(old.write(path, text), Ok(()));
    }
    assert_eq!(old.policy(limits), ["1000000", "3000000", "1000000", "3000000"]);
    for online in ["0", "1"] {
        assert_eq!(old.write("cpu1/online", online), Ok(()));
    }
    assert_eq!(old.policy(["boost", "cpuinfo_max_freq"]), ["1", "2800000"]);
    assert!(!Server::boot("altra", Kernel::V6_18).0.exists(&format!("{CPU}/{POLICY}/perf_limited")));
    let mut grace = Server::boot("grace", Kernel::V7_3);
    assert_eq!(grace.policy(limits), ["81000", "3510000", "81000", "3510000"]);
}

/// Performance is reference performance times delivered counts divided by reference counts.
#[test]
fn counters_tell_the_speed_and_a_report_stays() {
    for (name, mhz) in [("altra", 2800.0), ("grace", 3510.0)] {
        let mut server = Server::boot(name, Kernel::V7_2);
        server.write(&format!("{POLICY}/scaling_governor"), "performance").unwrap();
        server.write(&format!("{POLICY}/scaling_min_freq"), "1000000").unwrap();
        server.0.run(Some(Box::new(Steady { cpus: vec![(1, 1.0)] })));
        let mut sample = |server: &mut Server| -> (f64, f64) {
            let text = server.read("cpu1/acpi_cppc/feedback_ctrs");
            let (reference, delivered) = text.split_once(' ').unwrap();
            let number = |text: &str| text[4..].parse().unwrap();
            (number(reference), number(delivered))
        };
        let speed = |server: &mut Server, sample: &mut dyn FnMut(&mut Server) -> (f64, f64)| {
            let before = sample(server);
            server.0.advance(Duration::from_millis(200));
            let after = sample(server);
            1000.0 * (after.1 - before.1) / (after.0 - before.0)
        };
        server.0.advance(Duration::from_millis(50));
        assert!((speed(&mut server, &mut sample) - mhz).abs() < 30.0, "{name}");
        assert_eq!(server.policy(["perf_limited"]), ["0"]);
        server.0.inject("glitch 1 1500".parse().unwrap());
        assert!((speed(&mut server, &mut sample) - 1500.0).abs() < 30.0, "{name}");
        // Below desired, but not below the minimum.
        assert_eq!(server.policy(["perf_limited"]), ["1"]);
        assert_eq!(server.write(&format!("{POLICY}/perf_limited"), "3"), Ok(()));
        assert_eq!(server.policy(["perf_limited"]), ["1"], "the limit still acts");
        server.write(&format!("{POLICY}/scaling_min_freq"), "2000000").unwrap();
        assert_eq!(server.policy(["perf_limited"]), ["3"]);
        server.0.run(None);
        assert_eq!(server.write(&format!("{POLICY}/perf_limited"), "1"), Ok(()));
        assert_eq!(server.policy(["perf_limited"]), ["2"], "an idle CPU is asked for nothing");
        if name == "grace" {
            server.0.run(Some(Box::new(Steady { cpus: vec![(1, 1.0)] })));
            server.0.advance(Duration::from_millis(50));
            assert_eq!(server.policy(["perf_limited"]), ["3"]);
            assert_eq!(server.write(&format!("{POLICY}/auto_select"), "1"), Ok(()));
            assert_eq!(server.policy(["perf_limited"]), ["2"], "the firmware's choice has no desired level");
        }
    }
}

#[test]
fn nothing_of_x86_is_there() {
    for name in ["altra", "grace"] {
        let mut server = Server::boot(name, Kernel::V7_3);
        for path in ["/dev/cpu", "/sys/class/powercap/intel-rapl:0", "/sys/class/hwmon/hwmon0"] {
            assert!(!server.0.exists(path), "{name}: {path}");
        }
        let info = String::from_utf8(server.0.read("/proc/cpuinfo").unwrap()).unwrap();
        assert!(info.contains("CPU implementer\t: 0x41\n") && !info.contains("vendor_id"), "{info}");
        assert_eq!(server.read("smt/control"), "notsupported");
        assert_eq!(server.read("cpu0/cpuidle/state0/desc"), "WFI");
    }
}
