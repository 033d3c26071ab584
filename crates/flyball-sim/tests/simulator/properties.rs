//! Whatever is written to a simulated machine, it keeps answering within its physical limits, and
//! equal calls give equal bytes.

use std::time::Duration;

use flyball_sim::{
    Boot, Errno, Fault, Kernel, Kind, Op, SimMachine, Steady, silicon::MachineSpec, try_machine_file,
};
use proptest::prelude::*;

fn machine(name: &str, kernel: Kernel) -> SimMachine {
    SimMachine::boot(MachineSpec::builtin(name).unwrap(), kernel, Boot::default(), 0).unwrap()
}

/// Collects every file below a directory without following links.
fn files(machine: &mut SimMachine, path: &str, found: &mut Vec<(String, u16)>) {
    for name in machine.list(path).unwrap_or_default() {
        let child = if path == "/" { format!("/{name}") } else { format!("{path}/{name}") };
        match machine.kind(&child) {
            Ok(Kind::Directory) => files(machine, &child, found),
            Ok(Kind::File(mode)) => found.push((child, mode)),
            Ok(Kind::Link(_)) => {
                // A link must not dangle, or tools that follow it fail.
                assert!(machine.exists(&child), "{child} leads nowhere");
            }
            Ok(Kind::Msr(_) | Kind::Stream(_)) => {}
            Err(errno) => panic!("{child} is listed and answers {errno:?}"),
        }
    }
}

#[test]
fn every_listed_file_answers_on_every_machine_and_kernel() {
    for name in MachineSpec::names() {
        for &kernel in Kernel::ALL {
            // The large machine once is enough.
            if name == "epyc-512" && kernel != Kernel::V7_2 {
                continue;
            }
            let mut machine = machine(name, kernel);
            machine.advance(Duration::from_millis(20));
            let mut found = Vec::new();
            files(&mut machine, "/", &mut found);
            assert!(found.len() > 500, "{name}: only {} files", found.len());
            for (path, mode) in found {
                match machine.read(&path) {
                    Ok(_) => assert!(mode & 0o444 != 0, "{path}"),
                    Err(Errno::ACCES) => assert!(mode & 0o444 == 0, "{path}"),
                    // A device that only answers ioctl(2).
                    Err(Errno::INVAL) => assert_eq!(path, "/dev/isst_interface"),
                    Err(Errno::IO) => {
                        assert!(path.ends_with("autosuspend_delay_ms"), "{name} {kernel}: {path}");
                    }
                    Err(errno) => panic!("{name} {kernel}: {path}: {errno:?}"),
                }
            }
        }
    }
}

const TEXTS: &[&str] = &[
    "0",
    "1",
    "2",
    "-1",
    "50",
    "100",
    "255",
    "1000000",
    "2400000",
    "4294967295",
    "4294967296",
    "99999999999999999999",
    "",
    "\n",
    " ",
    "junk",
    "performance",
    "powersave",
    "ondemand",
    "conservative",
    "userspace",
    "schedutil",
    "active",
    "passive",
    "guided",
    "disable",
    "off",
    "on",
    "forceoff",
    "power",
    "balance_power",
    "default",
    "n/a",
    "0x10",
    "y",
];

fn check(machine: &mut SimMachine) {
    let silicon = machine.silicon();
    let spec = silicon.spec();
    let highest = spec.core.iter().map(|core| core.max_mhz).max().unwrap();
    for cpu in 0..silicon.cpus() {
        let mhz = silicon.frequency(cpu).mhz();
        assert!(mhz <= highest, "CPU {cpu} at {mhz} MHz");
    }
    for package in 0..silicon.topology().packages() {
        let celsius = silicon.temperature(package).0;
        assert!((-40.0..130.0).contains(&celsius), "{celsius}");
        assert!(silicon.power(package).0 < spec.power.tdp_w * 4.0 + 50.0, "{}", silicon.power(package));
    }
    let online = machine.read("/sys/devices/system/cpu/online").unwrap();
    assert!(!online.is_empty());
    let mut found = Vec::new();
    files(machine, "/sys/devices/system/cpu", &mut found);
    for (path, _) in found {
        let _ = machine.read(&path);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_writes_leave_a_machine_that_answers(
        which in 0usize..4,
        kernel in 0usize..3,
        writes in prop::collection::vec((any::<prop::sample::Index>(), 0..TEXTS.len() + 1, any::<Vec<u8>>(), 0u32..20), 1..120),
    ) {
        let name = ["ryzen-5750g", "gold-6138", "hybrid-laptop", "i7-3520m"][which];
        let mut machine = machine(name, Kernel::ALL[kernel]);
        machine.run(Some(Box::new(Steady { cpus: vec![(0, 1.0), (1, 0.3)] })));
        let mut found = Vec::new();
        files(&mut machine, "/sys", &mut found);
        found.retain(|(_, mode)| mode & 0o222 != 0);
        // Few files matter compared to those of every CPU, so half of the writes go to them.
        let first: Vec<(String, u16)> =
            found.iter().filter(|(path, _)| !path.contains("/cpuidle/state") && !path.contains("cpu1")).cloned().collect();
        for (number, (index, text, bytes, gap)) in writes.iter().enumerate() {
            let pool = if number % 2 == 0 { &found } else { &first };
            let (path, _) = index.get(pool);
            let text = TEXTS.get(*text).map_or(bytes.as_slice(), |text| text.as_bytes());
            let _ = machine.write(path, text);
            machine.advance(Duration::from_millis(u64::from(*gap)));
        }
        check(&mut machine);
    }

    #[test]
    fn any_register_can_be_touched(
        touches in prop::collection::vec((0u32..20, prop::sample::select(vec![
            0x10u32, 0xe7, 0xe8, 0xce, 0x198, 0x199, 0x1a0, 0x1ad, 0x1b0, 0x606, 0x610, 0x611, 0x620, 0x770, 0x771, 0x774,
            0xc001_0015, 0xc001_0062, 0xc001_02b1, 0xc001_02b3, 0x1234_5678,
        ]), any::<u64>()), 1..60),
    ) {
        let mut machine = machine("gold-6138", Kernel::V6_12);
        for (cpu, register, value) in touches {
            let _ = machine.write_msr(cpu, register, value);
            let _ = machine.read_msr(cpu, register);
            machine.advance(Duration::from_millis(2));
        }
        check(&mut machine);
    }
}

/// Everything that a machine shows after a sequence of writes from `seed`.
fn life(seed: u64) -> Vec<u8> {
    let spec = MachineSpec::builtin("ryzen-5750g").unwrap();
    let boot = Boot { options: vec!["amd_pstate=passive".to_owned()], ..Boot::default() };
    let mut machine = SimMachine::boot(spec, Kernel::V6_12, boot, seed).unwrap();
    machine.run(Some(Box::new(Steady { cpus: vec![(0, 0.7), (3, 1.0), (9, 0.2)] })));
    machine.advance(Duration::from_millis(300));
    machine.write("/sys/devices/system/cpu/cpufreq/policy3/scaling_governor", b"ondemand").unwrap();
    machine.write("/sys/devices/system/cpu/cpu5/online", b"0").unwrap();
    machine.advance(Duration::from_millis(500));
    let mut found = Vec::new();
    files(&mut machine, "/", &mut found);
    let mut all = Vec::new();
    for (path, _) in found {
        all.extend_from_slice(path.as_bytes());
        all.extend(machine.read(&path).unwrap_or_default());
    }
    all
}

#[test]
fn the_same_life_gives_the_same_bytes() {
    let first = life(7);
    assert!(first.len() > 10_000);
    assert!(first == life(7), "two machines of one seed differ");
}

#[test]
fn load_raises_frequency_power_and_heat() {
    let mut machine = machine("ryzen-5750g", Kernel::V6_12);
    let read = |machine: &mut SimMachine, path: &str| -> u64 {
        String::from_utf8(machine.read(path).unwrap()).unwrap().trim().parse().unwrap()
    };
    let (speed, heat) =
        ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "/sys/class/hwmon/hwmon0/temp1_input");
    let energy = "/sys/class/powercap/intel-rapl:0/energy_uj";
    machine.advance(Duration::from_secs(2));
    let idle = (read(&mut machine, speed), read(&mut machine, heat), read(&mut machine, energy));
    machine.advance(Duration::from_secs(2));
    let rested = read(&mut machine, energy) - idle.2;
    machine.run(Some(Box::new(Steady { cpus: (0..16).map(|cpu| (cpu, 1.0)).collect() })));
    let before = read(&mut machine, energy);
    machine.advance(Duration::from_secs(2));
    let worked = read(&mut machine, energy) - before;
    assert!(read(&mut machine, speed) > 2 * idle.0);
    assert!(read(&mut machine, heat) > idle.1 + 5_000);
    assert!(worked > 3 * rested, "{rested} uJ idle, {worked} uJ busy");
}

#[test]
fn faults_come_when_they_were_ordered() {
    let mut machine = machine("gold-6138", Kernel::V6_12);
    let limit = |cpu: u32| format!("/sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_max_freq");
    machine.inject(
        Fault::errno("/sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq", Op::Write, Errno::IO).at(3),
    );
    let results: Vec<_> = (0..4).map(|cpu| machine.write(&limit(cpu), b"2000000")).collect();
    assert_eq!(results, [Ok(()), Ok(()), Err(Errno::IO), Ok(())]);

    // Another daemon resets the governor just before it is read.
    let governor = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor";
    machine.write(governor, b"performance").unwrap();
    machine.inject(Fault::foreign_write(governor, Op::Read, governor, "powersave"));
    assert_eq!(machine.read(governor).unwrap(), b"powersave\n");

    // A CPU goes offline in the middle.
    machine.inject(Fault::foreign_write(limit(7), Op::Write, "/sys/devices/system/cpu/cpu7/online", "0"));
    assert_eq!(machine.write(&limit(7), b"1500000"), Err(Errno::BUSY));
}

#[test]
fn a_limit_settles_later() {
    let mut machine = machine("gold-6138", Kernel::V6_12);
    let path = "/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq";
    let before = machine.read(path).unwrap();
    machine.write(path, b"2000000\n").unwrap();
    assert_eq!(machine.read(path).unwrap(), before);
    machine.advance(Duration::from_millis(1));
    assert_eq!(machine.read(path).unwrap(), b"2000000\n");
}

/// A register disables turbo after the driver has registered.
#[test]
fn turbo_that_firmware_switches_off_stays_off() {
    const MISC_ENABLE: u32 = 0x1a0;
    let path = "/sys/devices/system/cpu/intel_pstate/no_turbo";
    let mut machine = machine("i7-2600", Kernel::V6_12);
    let value = machine.read_msr(0, MISC_ENABLE).unwrap();
    machine.write_msr(0, MISC_ENABLE, value | 1 << 38).unwrap();
    assert_eq!(machine.read(path).unwrap(), b"0\n", "the driver has not looked yet");
    assert_eq!(machine.write(path, b"0"), Err(Errno::PERM));
    assert_eq!(machine.read(path).unwrap(), b"1\n");
}

/// Minimum and maximum of HWP's request, as the kernel wrote them on the recorded machine (adl0).
#[test]
fn levels_of_hybrid_processors_are_the_recorded_ones() {
    let mut machine = machine("hybrid-laptop", Kernel::V6_12);
    for (cpu, request) in [(0, 0x3c06), (8, 0x2204)] {
        assert_eq!(machine.read_msr(cpu, 0x774).unwrap() & 0xffff, request, "CPU {cpu}");
    }
    let max = "/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq";
    machine.write(max, b"2050000").unwrap();
    machine.advance(Duration::from_millis(1));
    // 2.0 GHz in steps of 78,741 kHz, rounded up.
    assert_eq!(machine.read_msr(0, 0x774).unwrap() >> 8 & 0xff, 26);
}

#[test]
fn firmware_says_what_balance_performance_means() {
    let mut machine = machine("tpmi-small", Kernel::V6_12);
    let epp = "/sys/devices/system/cpu/cpufreq/policy0/energy_performance_preference";
    assert_eq!(machine.read(epp).unwrap(), b"balance_performance\n", "32, as recorded on gnr0");
    assert_eq!(machine.write(epp, b"64 x"), Err(Errno::INVAL));
}

#[test]
fn tunables_go_with_the_last_cpu_of_their_governor() {
    const BASE: &str = "/sys/devices/system/cpu/cpufreq";
    let boot = Boot { options: vec!["amd_pstate=passive".into()], modular_governors: false };
    let mut machine =
        SimMachine::boot(MachineSpec::builtin("ryzen-5750g").unwrap(), Kernel::V6_12, boot, 0).unwrap();
    for cpu in 0..15 {
        machine.write(&format!("{BASE}/policy{cpu}/scaling_governor"), b"performance").unwrap();
    }
    let tunable = format!("{BASE}/schedutil/rate_limit_us");
    machine.write(&tunable, b"777").unwrap();
    machine.write("/sys/devices/system/cpu/cpu15/online", b"0").unwrap();
    assert!(!machine.exists(&tunable), "nobody is left that uses it");
    machine.write("/sys/devices/system/cpu/cpu15/online", b"1").unwrap();
    // As 6.12 and 7.2 answer in a guest.
    assert_eq!(machine.read(&tunable).unwrap(), b"1000\n", "its user came back, and all is new");
}

/// `text` with its number at index `place` replaced.
fn with_number(text: &str, place: usize, number: &str) -> String {
    let starts: Vec<usize> = text
        .char_indices()
        .zip(std::iter::once(' ').chain(text.chars()))
        .filter(|((_, c), before)| c.is_ascii_digit() && !before.is_ascii_alphanumeric())
        .map(|((at, _), _)| at)
        .collect();
    let start = starts[place % starts.len()];
    let rest = text[start..].find(|c: char| !c.is_ascii_alphanumeric() && !"_.".contains(c));
    let end = rest.map_or(text.len(), |rest| start + rest);
    format!("{}{number}{}", &text[..start], &text[end..])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A machine file with absurd numbers is rejected, or gives a machine whose files answer.
    #[test]
    fn no_machine_file_makes_the_simulator_panic(
        machine in 0..10usize,
        kernel in 0..4usize,
        numbers in prop::collection::vec((any::<usize>(), 0..12usize), 1..4),
    ) {
        const NUMBERS: [&str; 12] =
            ["0", "1", "2", "7", "64", "100", "255", "1000", "65535", "25500", "4294967295", "1e300"];
        let name = MachineSpec::names().nth(machine).unwrap();
        let mut text = MachineSpec::builtin_text(name).unwrap().to_owned();
        for (place, number) in numbers {
            text = with_number(&text, place, NUMBERS[number]);
        }
        let _ = try_machine_file(&text, Kernel::ALL[kernel], 64);
    }
}
