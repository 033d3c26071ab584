//! Compares recorded traces of real kernels with the simulator: the formats of events, which events
//! fire under each governor of each driver, and what is traced when limits are written.
//!
//! The recordings are text files that a probe wrote in a guest: format files, `== GOVERNOR: N
//! cpu_frequency, ...` with the counts of a second of load on one CPU, and `== writes` with the
//! first lines after three writes. They are in `$FLYBALL_SHARED/lab/results` (else `../shared` next
//! to the workspace); without them the test skips and says so.

use std::{collections::BTreeMap, time::Duration};

use flyball_sim::{Boot, Kernel, SimMachine, Steady, silicon::MachineSpec};
use flyball_testing::{shared, skip};

const TRACING: &str = "/sys/kernel/tracing";
const CPUFREQ: &str = "/sys/devices/system/cpu/cpufreq";
const EVENTS: [(&str, &str); 3] =
    [("power", "cpu_frequency"), ("amd_cpu", "amd_pstate_perf"), ("amd_cpu", "amd_pstate_epp_perf")];

/// One boot of a recording.
#[derive(Debug, Default)]
struct Recorded {
    kernel: String,
    driver: String,
    /// Format files by event name.
    formats: BTreeMap<String, String>,
    /// Governor, and counts of the [`EVENTS`].
    counts: Vec<(String, [u64; 3])>,
    /// Traced limits of CPU 0 during the writes: minimum and maximum.
    limits: Vec<(u32, u32)>,
}

fn parse(text: &str) -> Vec<Recorded> {
    let mut all: Vec<Recorded> = Vec::new();
    let mut format: Option<String> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ")
            && let Some((release, driver)) = rest.split_once(' ')
        {
            let kernel = release.split('.').take(2).collect::<Vec<_>>().join(".");
            all.push(Recorded { kernel, driver: driver.to_owned(), ..Recorded::default() });
        }
        let Some(last) = all.last_mut() else { continue };
        if let Some(name) = line.strip_prefix("name: ") {
            format = Some(name.to_owned());
        }
        if let Some(name) = &format {
            let text = last.formats.entry(name.clone()).or_default();
            text.push_str(line);
            text.push('\n');
        }
        if line.starts_with("print fmt") {
            format = None;
        }
        if let Some((governor, counts)) = line.strip_prefix("== ").and_then(|rest| rest.split_once(": ")) {
            let numbers: Vec<u64> =
                counts.split(", ").filter_map(|part| part.split(' ').next()?.parse().ok()).collect();
            if let [frequency, _, perf, epp] = numbers[..] {
                last.counts.push((governor.to_owned(), [frequency, perf, epp]));
            }
        }
        if let Some((_, values)) = line.split_once("cpu_frequency_limits: ") {
            let value = |key: &str| {
                values.split(' ').find_map(|word| word.strip_prefix(key)?.parse::<u32>().ok()).unwrap_or(0)
            };
            if value("cpu_id=") == 0 {
                last.limits.push((value("min="), value("max=")));
            }
        }
    }
    all
}

fn machine(file: &str, recorded: &Recorded) -> Option<SimMachine> {
    let kernel = Kernel::ALL.iter().copied().find(|kernel| kernel.to_string() == recorded.kernel)?;
    let amd = |interface: &str, option: &'static str| {
        // Up to 6.12 the emulator's processors lacked the boost flag if the mailbox was used.
        let turbo = interface == "cppc-msr" || kernel != Kernel::V6_12;
        let text = include_str!("../machines/amd.toml")
            .replace("INTERFACE", interface)
            .replace("TURBO", if turbo { "true" } else { "false" })
            .replace("RANKING", "[]");
        (MachineSpec::from_toml(&text).unwrap(), option)
    };
    let interface = if file.contains("cppc") { "cppc-msr" } else { "cppc-shared" };
    let (spec, option) = match recorded.driver.as_str() {
        "amd-pstate" => amd(interface, "amd_pstate=passive"),
        "amd-pstate-epp" => amd(interface, "amd_pstate=active"),
        "acpi-cpufreq" => amd(interface, "amd_pstate=disable"),
        "intel_pstate" => {
            (MachineSpec::from_toml(include_str!("../machines/intel.toml")).unwrap(), "intel_pstate=active")
        }
        "intel_cpufreq" => {
            (MachineSpec::from_toml(include_str!("../machines/intel.toml")).unwrap(), "intel_pstate=passive")
        }
        _ => return None,
    };
    // The emulator's processor had no HWP. On AMD the option has no effect.
    let options = vec!["intel_pstate=no_hwp".to_owned(), option.to_owned()];
    let boot = Boot { options, ..Boot::default() };
    let machine = SimMachine::boot(spec, kernel, boot, 0).unwrap();
    Some(machine)
}

fn write(machine: &mut SimMachine, path: &str, text: &str) {
    assert_eq!(machine.write(path, text.as_bytes()), Ok(()), "{path} <- {text}");
}

fn text(machine: &mut SimMachine, path: &str) -> String {
    String::from_utf8(machine.read(path).unwrap_or_default()).unwrap()
}

/// Counts the [`EVENTS`] while CPU 0 is busy for a second and then idle.
fn load(machine: &mut SimMachine) -> [u64; 3] {
    machine.truncate(&format!("{TRACING}/trace")).unwrap();
    machine.run(Some(Box::new(Steady { cpus: vec![(0, 1.0), (1, 0.03)] })));
    machine.advance(Duration::from_secs(1));
    machine.run(None);
    machine.advance(Duration::from_millis(300));
    let trace = text(machine, &format!("{TRACING}/trace"));
    EVENTS.map(|(_, name)| {
        let mark = format!(" {name}: ");
        trace.lines().filter(|line| line.contains(&mark)).count() as u64
    })
}

fn compare(file: &str, recorded: &Recorded, wrong: &mut Vec<String>) -> usize {
    let name = format!("{file} {} {}", recorded.kernel, recorded.driver);
    let Some(mut machine) = machine(file, recorded) else {
        wrong.push(format!("{name}: no such machine"));
        return 0;
    };
    let mut compared = 0;
    let driver = text(&mut machine, &format!("{CPUFREQ}/policy0/scaling_driver"));
    if driver.trim() != recorded.driver {
        wrong.push(format!("{name}: the driver is {driver}"));
    }
    for (event, format) in &recorded.formats {
        let group = EVENTS.iter().find(|(_, name)| name == event).map_or("power", |(group, _)| group);
        let simulated = text(&mut machine, &format!("{TRACING}/events/{group}/{event}/format"));
        compared += 1;
        if simulated.trim_end() != format.trim_end() {
            wrong.push(format!("{name}: format of {event}:\n{format}\nsimulated:\n{simulated}"));
        }
    }
    write(&mut machine, &format!("{TRACING}/events/power/cpu_frequency/enable"), "1");
    write(&mut machine, &format!("{TRACING}/events/power/cpu_frequency_limits/enable"), "1");
    let _ = machine.write(&format!("{TRACING}/events/amd_cpu/enable"), b"1");
    let policies: Vec<String> =
        machine.list(CPUFREQ).unwrap().into_iter().filter(|name| name.starts_with("policy")).collect();
    let recorded_driver = recorded.driver.as_str();
    for (governor, counts) in &recorded.counts {
        for policy in &policies {
            write(&mut machine, &format!("{CPUFREQ}/{policy}/scaling_governor"), governor);
        }
        machine.advance(Duration::from_millis(50));
        let simulated = load(&mut machine);
        for ((_, event), (recorded, simulated)) in EVENTS.iter().zip(counts.iter().zip(simulated)) {
            // The emulator's processors had neither APERF nor MPERF there, and without a sample
            // there is no event.
            if (*event, file) == ("amd_pstate_perf", "trace-amd-pstate.txt")
                || recorded_driver == "intel_pstate"
            {
                continue;
            }
            compared += 1;
            if (*recorded > 0) != (simulated > 0) {
                wrong.push(format!(
                    "{name}, {governor}: {event} recorded {recorded} times, simulated {simulated}"
                ));
            }
        }
    }
    // The probe's writes: half the maximum, then the maximum.
    machine.truncate(&format!("{TRACING}/trace")).unwrap();
    let highest: u32 =
        text(&mut machine, &format!("{CPUFREQ}/policy0/cpuinfo_max_freq")).trim().parse().unwrap();
    for max in [highest / 2, highest] {
        write(&mut machine, &format!("{CPUFREQ}/policy0/scaling_max_freq"), &max.to_string());
        machine.advance(Duration::from_millis(100));
    }
    let trace = text(&mut machine, &format!("{TRACING}/trace"));
    for (min, max) in &recorded.limits {
        compared += 1;
        if !trace.contains(&format!("cpu_frequency_limits: min={min} max={max} cpu_id=0")) {
            wrong.push(format!("{name}: limits {min} to {max} of CPU 0 were not traced:\n{trace}"));
        }
    }
    compared
}

#[test]
fn recorded_traces_and_the_simulators_agree() {
    let Some(folder) = shared("lab/results") else {
        skip(4, "recordings of traces", "no lab/results");
        return;
    };
    let (mut compared, mut wrong, mut boots) = (0, Vec::new(), 0);
    for file in ["trace-acpi-cpufreq.txt", "trace-amd-cppc.txt", "trace-amd-pstate.txt", "trace-intel.txt"] {
        let recorded = parse(&std::fs::read_to_string(folder.join(file)).unwrap());
        assert!(!recorded.is_empty(), "{file}: nothing in it");
        for recorded in recorded {
            assert!(recorded.counts.len() >= 2, "{file}: {recorded:?}");
            compared += compare(file, &recorded, &mut wrong);
            boots += 1;
        }
    }
    eprintln!("{compared} facts of {boots} boots compared, {} differ", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
