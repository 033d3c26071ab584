//! Tests of the physical laws, on whole machines.

use proptest::prelude::*;

use crate::spec::Vendor;
use crate::{Activity, License, MachineSpec, Silicon, msr};

const MS: u64 = 1_000_000;

fn chip(name: &str) -> Silicon {
    Silicon::new(MachineSpec::builtin(name).unwrap(), 0).unwrap()
}

fn run(s: &mut Silicon, ms: u64, load: &[Activity]) {
    for _ in 0..ms {
        s.advance(MS, load);
    }
}

#[test]
fn every_machine_loads_and_runs() {
    for name in MachineSpec::names() {
        let mut s = chip(name);
        let load = vec![Activity::busy(); s.cpus()];
        run(&mut s, 50, &load);
        assert!(s.power(0).0 > 1.0, "{name}: {}", s.power(0));
    }
}

#[test]
fn a_machine_comes_back_from_its_file() {
    for name in MachineSpec::names() {
        let spec = MachineSpec::builtin(name).unwrap();
        assert_eq!(MachineSpec::from_toml(&spec.to_toml().unwrap()).unwrap(), spec, "{name}");
    }
}

#[test]
fn cores_that_are_fused_off_leave_gaps_in_the_power_units_numbers() {
    let mut spec = MachineSpec::builtin("tpmi-small").unwrap();
    let cores = spec.cores_per_package() as u32;
    // Keep every second core of each of two dies.
    spec.topology.unit_cores = (0..cores / 2).chain(0..cores / 2).map(|core| 2 * core).collect();
    let mut s = Silicon::new(spec.clone(), 0).unwrap();
    let number = |s: &Silicon, core: usize| s.read_msr(s.topology().core(core).cpus[0], 0x54).unwrap();
    assert_eq!((number(&s, 1) >> 3 & 0xff, number(&s, 1) >> 11), (2, 0));
    assert_eq!((number(&s, 9) >> 3 & 0xff, number(&s, 9) >> 11), (2, 1));
    // The class of the core with that number is in bits 11:8 of the second die's first register.
    assert!(s.tpmi_write(0, 1, 0x40, 3 << 8));
    assert_eq!(s.sst_domains().nth(1).unwrap().1.class_of[2], 3);
    spec.topology.unit_cores[0] = 64;
    assert!(spec.check().unwrap_err().to_string().contains("unit_cores"));
}

#[test]
fn energy_is_the_integral_of_power() {
    let mut s = chip("sst-guide");
    let load = vec![Activity::partly(600_000, 3, 1); s.cpus()];
    let (mut sum, before) = (0.0, s.energy_joules(0));
    for _ in 0..2000 {
        s.advance(MS, &load);
        sum += s.power(0).0 * 0.001;
    }
    let counted = s.energy_joules(0) - before;
    assert!((counted - sum).abs() < sum * 1e-9, "{counted} {sum}");
}

#[test]
fn counters_count_what_was_done() {
    let mut s = chip("sst-guide");
    let mut load = vec![Activity::idle(2); s.cpus()];
    load[0] = Activity::busy();
    load[1] = Activity::partly(250_000, 0, 0);
    run(&mut s, 50, &load);
    let at = |s: &Silicon, cpu, r| s.read_msr(cpu, r).unwrap();
    let read = |s: &Silicon| [0, 1, 2].map(|c| [msr::TSC, msr::MPERF, msr::APERF].map(|r| at(s, c, r)));
    let a = read(&s);
    run(&mut s, 100, &load);
    let b = read(&s);
    let d = |c: usize, r: usize| b[c][r] - a[c][r];
    assert_eq!(d(0, 0), 260_000_000, "TSC runs at 2600 MHz");
    assert_eq!(d(0, 1), 260_000_000, "busy all the time");
    assert!(d(0, 2).abs_diff(320_000_000) < 200_000, "one busy core runs at 3200 MHz: {}", d(0, 2));
    assert_eq!(d(1, 1), 65_000_000, "busy for a quarter");
    assert_eq!((d(2, 1), d(2, 2)), (0, 0), "asleep");
}

#[test]
fn turbo_follows_the_number_of_active_cores() {
    let mut s = chip("sst-guide");
    for (busy, mhz) in [(1, 3200), (2, 3200), (3, 3100)] {
        let mut load = vec![Activity::idle(2); s.cpus()];
        load[..busy].fill(Activity { intensity: 100, ..Activity::busy() });
        run(&mut s, 100, &load);
        assert_eq!(s.frequency(0).mhz(), mhz, "{busy} busy");
    }
}

#[test]
fn every_number_of_a_machine_has_its_source() {
    for name in MachineSpec::names() {
        let text = MachineSpec::builtin_text(name).unwrap();
        let mut prose = false;
        for (i, line) in text.lines().enumerate() {
            let quotes = line.matches("\"\"\"").count();
            let was = prose;
            prose ^= quotes == 1;
            let bare = line.trim_start();
            if was || prose || quotes > 0 || bare.starts_with('#') {
                continue;
            }
            let value = bare.split_once('=').map_or(bare, |v| v.1);
            let code = value.split('#').next().unwrap_or("");
            let number = code.chars().any(|c| c.is_ascii_digit())
                && !bare.starts_with("name")
                && !bare.starts_with("title");
            // Level numbers need no source.
            if number && !bare.starts_with("number =") && !bare.starts_with("idle = [") {
                assert!(line.contains(" # "), "{name}:{}: no source: {line}", i + 1);
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_numbers() {
    let one = |seed| {
        let mut s = Silicon::new(MachineSpec::builtin("hybrid-laptop").unwrap(), seed).unwrap();
        let load: Vec<Activity> =
            (0..s.cpus() as u32).map(|c| Activity::partly(61_803 * (c + 1), c as u16, 1)).collect();
        let mut sum = 0u64;
        for i in 0..500 {
            s.advance(700_001 + i * 1009, &load);
            for cpu in 0..s.cpus() {
                sum =
                    sum.rotate_left(7) ^ s.read_msr(cpu, msr::APERF).unwrap() ^ u64::from(s.frequency(cpu).0);
            }
        }
        (sum, s.energy_femtojoules(0), s.temperature(0).0.to_bits())
    };
    assert_eq!(one(7), one(7));
    assert_ne!(one(7).0, one(8).0, "the seed moves the firmware's phase");
}

#[test]
fn what_is_kept_from_step_to_step_changes_no_number() {
    for name in MachineSpec::names() {
        // With a seed the firmware's periods cut each step in two.
        let machine = || Silicon::new(MachineSpec::builtin(name).unwrap(), 7).unwrap();
        let (mut kept, mut fresh) = (machine(), machine());
        for ms in 0..400 {
            let load: Vec<Activity> = (0..kept.cpus())
                .map(|cpu| match (cpu + ms / 90) % 4 {
                    0 => Activity::busy(),
                    1 => Activity::partly(300_000, 20, 1),
                    2 => Activity::partly(ms as u32 * 2_000, 3, 0),
                    _ => Activity::idle(2),
                })
                .collect();
            if ms == 200 {
                kept.set_online(1, false);
                fresh.set_online(1, false);
            }
            kept.advance(MS, &load);
            // Decide and compute everything again.
            fresh.touch();
            fresh.advance(MS, &load);
        }
        for cpu in 0..kept.cpus() {
            assert_eq!(kept.cycles(cpu), fresh.cycles(cpu), "{name} {cpu}");
            assert_eq!(kept.frequency(cpu), fresh.frequency(cpu), "{name} {cpu}");
        }
        for package in 0..kept.topology().packages() {
            assert_eq!(kept.energy_femtojoules(package), fresh.energy_femtojoules(package), "{name}");
            assert_eq!(kept.temperature(package).0, fresh.temperature(package).0, "{name}");
        }
    }
}

#[test]
fn a_long_step_equals_its_parts() {
    let (mut a, mut b) = (chip("i7-2600"), chip("i7-2600"));
    let load = vec![Activity::busy(); 8];
    a.advance(250 * MS, &load);
    run(&mut b, 250, &load);
    assert_eq!(a.read_msr(3, msr::APERF), b.read_msr(3, msr::APERF));
    assert_eq!(a.energy_femtojoules(0), b.energy_femtojoules(0));
}

#[test]
fn the_long_term_limit_holds_over_its_window_and_lends_before() {
    let mut s = chip("hybrid-laptop");
    let load = vec![Activity::busy(); s.cpus()];
    run(&mut s, 1000, &load);
    assert!(s.power(0).0 > 35.0, "in its first second it may take more than 28 W: {}", s.power(0));
    run(&mut s, 90_000, &load);
    let before = s.energy_joules(0);
    run(&mut s, 28_000, &load);
    let average = (s.energy_joules(0) - before) / 28.0;
    assert!((average - 28.0).abs() < 0.8, "{average} W");
    assert!(s.read_msr(0, msr::CORE_PERF_LIMIT_REASONS).unwrap() & 1 << 10 != 0);
}

#[test]
fn a_power_limit_written_to_its_register_acts() {
    let mut s = chip("gold-6138");
    let load = vec![Activity::busy(); s.cpus()];
    // 100 W over 0.25 s, 110 W over 2.44 ms, all on.
    let half = |w: u64, t: u64| (w * 8) | 1 << 15 | 1 << 16 | t << 17;
    s.write_msr(0, msr::PKG_POWER_LIMIT, half(100, 8) | half(110, 0x21) << 32).unwrap();
    run(&mut s, 3000, &load);
    let before = s.energy_joules(0);
    run(&mut s, 2000, &load);
    let average = (s.energy_joules(0) - before) / 2.0;
    assert!((average - 100.0).abs() < 2.0, "{average} W");
}

#[test]
fn heat_throttles_at_the_limit_and_counts() {
    let mut s = chip("i7-2600");
    let load = vec![Activity::busy(); 8];
    s.set_obstruction(0, 6.0);
    run(&mut s, 240_000, &load);
    let status = s.read_msr(0, msr::PACKAGE_THERM_STATUS).unwrap();
    assert!((s.temperature(0).0 - 98.0).abs() < 1.5, "{}", s.temperature(0));
    assert_eq!(status & 3, 3, "PROCHOT and its log");
    assert!(s.throttle_events(0) >= 1);
    assert!(s.frequency(0).mhz() < 2500, "{}", s.frequency(0));
    s.set_obstruction(0, 1.0);
    run(&mut s, 120_000, &load);
    assert!(s.frequency(0).mhz() >= 3400, "{}", s.frequency(0));
    s.write_msr(0, msr::PACKAGE_THERM_STATUS, 0).unwrap();
    assert_eq!(s.read_msr(0, msr::PACKAGE_THERM_STATUS).unwrap() & 3, 0, "the log is cleared by writing 0");
}

#[test]
fn the_energy_register_wraps_where_the_total_does_not() {
    let mut s = chip("gold-6138");
    let load = vec![Activity::busy(); s.cpus()];
    let (mut last, mut wraps) = (0, 0u64);
    // At 125 W and 61 uJ it wraps after 35 minutes; long steps are cut into periods.
    while s.energy_joules(0) < 300_000.0 {
        s.advance(10_000 * MS, &load);
        let now = s.read_msr(0, msr::PKG_ENERGY_STATUS).unwrap();
        wraps += u64::from(now < last);
        last = now;
    }
    assert_eq!(wraps, 1);
    let counted = (wraps << 32 | last) as f64 / 16384.0;
    assert!((counted - s.energy_joules(0)).abs() < 0.001, "{counted} {}", s.energy_joules(0));
}

#[test]
fn no_turbo_and_boost_bits_hold_the_base_frequency() {
    let mut s = chip("i7-2600");
    let mut load = vec![Activity::idle(3); 8];
    load[0] = Activity::busy();
    s.write_msr(0, msr::PERF_CTL, 38 << 8).unwrap();
    run(&mut s, 20, &load);
    assert_eq!(s.frequency(0).mhz(), 3800);
    let misc = s.read_msr(0, msr::MISC_ENABLE).unwrap();
    s.write_msr(2, msr::MISC_ENABLE, misc | 1 << 38).unwrap();
    run(&mut s, 20, &load);
    assert_eq!(s.frequency(0).mhz(), 3400);
    s.write_msr(2, msr::MISC_ENABLE, misc).unwrap();
    s.write_msr(0, msr::PERF_CTL, 38 << 8 | 1 << 32).unwrap();
    run(&mut s, 20, &load);
    assert_eq!(s.frequency(0).mhz(), 3400);

    let mut s = chip("ryzen-5750g");
    let mut load = vec![Activity::idle(2); 16];
    load[0] = Activity::busy();
    run(&mut s, 50, &load);
    assert!(s.frequency(0).mhz() > 4500, "P-state 0 boosts: {}", s.frequency(0));
    let hwcr = s.read_msr(0, msr::AMD_HWCR).unwrap();
    s.write_msr(0, msr::AMD_HWCR, hwcr | 1 << 25).unwrap();
    s.settle();
    assert_eq!(s.frequency(0).mhz(), 3300);
    for thread in [0, 8] {
        s.write_msr(thread, msr::AMD_PERF_CTL, 2).unwrap();
    }
    s.settle();
    assert_eq!(s.frequency(0).mhz(), 1400);
}

#[test]
fn cppc_is_obeyed_in_its_three_uses() {
    let mut s = chip("ryzen-5750g");
    let load = vec![Activity::busy(); 16];
    assert_eq!(s.read_msr(0, msr::AMD_CPPC_CAP1), Ok(0xa675_270f), "166, 117, 39, 15");
    for cpu in 0..16 {
        s.write_msr(cpu, msr::AMD_CPPC_ENABLE, 1).unwrap();
        // Passive: desired 60 between 39 and 166.
        s.write_msr(cpu, msr::AMD_CPPC_REQ, 166 | 39 << 8 | 60 << 16).unwrap();
    }
    run(&mut s, 20, &load);
    assert_eq!(s.frequency(0).mhz(), 1675, "60 x 3300 / 117 in steps of 25");
    for cpu in 0..16 {
        // Autonomous at EPP 255: less than the maximum. At EPP 0: as much as power allows.
        s.write_msr(cpu, msr::AMD_CPPC_REQ, 166 | 15 << 8 | 255 << 24).unwrap();
    }
    run(&mut s, 200, &load);
    let saving = s.frequency(0).mhz();
    for cpu in 0..16 {
        s.write_msr(cpu, msr::AMD_CPPC_REQ, 166 | 15 << 8).unwrap();
    }
    run(&mut s, 200, &load);
    assert!(saving + 300 < s.frequency(0).mhz(), "{saving} {}", s.frequency(0));
    // Guided: the minimum raised to 150 leaves the choice above it.
    let idle = vec![Activity::partly(10_000, 1, 1); 16];
    s.write_msr(3, msr::AMD_CPPC_REQ, 166 | 100 << 8 | 255 << 24).unwrap();
    s.write_msr(11, msr::AMD_CPPC_REQ, 166 | 15 << 8 | 255 << 24).unwrap();
    run(&mut s, 200, &idle);
    assert!(s.frequency(3).mhz() >= 2800, "{}", s.frequency(3));
}

#[test]
fn base_freq_turbo_freq_and_levels_change_frequencies_as_in_the_guide() {
    let mut s = chip("sst-guide");
    let load = vec![Activity { intensity: 200, ..Activity::busy() }; s.cpus()];
    let base = |s: &mut Silicon| {
        // As no_turbo does under HWP: set each CPU's maximum to its guaranteed level.
        for cpu in 0..s.cpus() {
            let caps = s.read_msr(cpu, msr::HWP_CAPABILITIES).unwrap();
            s.write_msr(cpu, msr::HWP_REQUEST, 8 | (caps & 0xff00)).unwrap();
        }
    };
    base(&mut s);
    run(&mut s, 100, &load);
    assert_eq!((s.frequency(0).mhz(), s.frequency(20).mhz()), (2600, 2600));
    // Base-freq on in package 0: 3000 for cores 5, 6, 8 and 13, 2400 for the others; package 1 does
    // not change.
    s.mailbox(0, 0x7f, 0x02, 0, 1 << 17).unwrap();
    base(&mut s);
    run(&mut s, 100, &load);
    let mhz: Vec<u32> = (0..14).map(|c| s.frequency(c).mhz()).collect();
    assert_eq!(mhz, [2400, 2400, 2400, 2400, 2400, 3000, 3000, 2400, 3000, 2400, 2400, 2400, 2400, 3000]);
    assert_eq!(s.frequency(20).mhz(), 2600);
    // Level 4: base-freq turns off and is unavailable; 2800 is guaranteed.
    s.mailbox(0, 0x7f, 0x08, 0, 4).unwrap();
    assert_eq!(s.mailbox(0, 0x7f, 0x00, 0, 0).unwrap() >> 16 & 0xff, 4);
    assert!(s.mailbox(0, 0x7f, 0x02, 0, 1 << 17).is_err());
    assert_eq!(s.guaranteed(0).mhz(), 2800);
    // Turbo-freq with cores 12 and 13 as high-priority cores.
    let mut s = chip("sst-guide");
    s.mailbox(0, 0xd0, 0x02, 0x100, 2 | 4).unwrap();
    for core in 0..14 {
        s.mailbox(0, 0xd0, 0x00, 0x100 | core, if core < 12 { 3 << 16 } else { 0 }).unwrap();
    }
    s.mailbox(0, 0x7f, 0x02, 0, 1 << 16).unwrap();
    for cpu in 0..s.cpus() {
        s.write_msr(cpu, msr::HWP_REQUEST, 8 | 32 << 8).unwrap();
    }
    run(&mut s, 100, &load);
    assert_eq!((s.frequency(0).mhz(), s.frequency(12).mhz(), s.frequency(13).mhz()), (2600, 3200, 3200));
}

#[test]
fn idle_cores_sleep_and_the_package_with_them() {
    let mut s = chip("sst-guide");
    let asleep = vec![Activity::idle(2); s.cpus()];
    run(&mut s, 100, &asleep);
    assert!((s.power(0).0 - 25.0).abs() < 3.0, "{}", s.power(0));
    let tsc = s.read_msr(0, msr::TSC).unwrap();
    assert!(s.read_msr(0, msr::CORE_C6_RESIDENCY).unwrap() * 100 > tsc * 99);
    let shallow = vec![Activity::idle(0); s.cpus()];
    run(&mut s, 100, &shallow);
    assert!(s.power(0).0 > 50.0, "{}", s.power(0));
}

#[test]
fn registers_that_are_not_there_fault() {
    let mut s = chip("ryzen-5750g");
    assert!(s.read_msr(0, msr::HWP_REQUEST).is_err() && s.write_msr(0, msr::HWP_REQUEST, 0).is_err());
    assert!(s.read_msr(99, msr::TSC).is_err());
    assert!(s.write_msr(0, msr::AMD_CPPC_CAP1, 0).is_err(), "read-only");
    let s = chip("i7-2600");
    assert!(s.read_msr(0, msr::PM_ENABLE).is_err() && s.read_msr(0, msr::AMD_CPPC_REQ).is_err());
}

/// Existing registers with an effect, and some that do not exist.
fn registers() -> impl Strategy<Value = u32> {
    let known = [
        msr::PERF_CTL,
        msr::MISC_ENABLE,
        msr::PM_ENABLE,
        msr::HWP_REQUEST,
        msr::HWP_REQUEST_PKG,
        msr::ENERGY_PERF_BIAS,
        msr::TURBO_RATIO_LIMIT,
        msr::TURBO_RATIO_LIMIT1,
        msr::PKG_POWER_LIMIT,
        msr::UNCORE_RATIO_LIMIT,
        msr::APERF,
        msr::MPERF,
        msr::TSC,
        msr::OS_MAILBOX_DATA,
        msr::OS_MAILBOX_INTERFACE,
        msr::CONFIG_TDP_CONTROL,
        msr::PACKAGE_THERM_STATUS,
        msr::AMD_HWCR,
        msr::AMD_PERF_CTL,
        msr::AMD_CPPC_ENABLE,
        msr::AMD_CPPC_REQ,
    ];
    prop_oneof![4 => proptest::sample::select(known.to_vec()), 1 => any::<u32>()]
}

#[derive(Clone, Debug)]
enum Poke {
    Msr(usize, u32, u64),
    Mailbox(u8, u8, u32, u32),
    Tpmi(usize, u32, u64),
    Online(usize, bool),
    Run(u64, u32, u8),
}

fn pokes() -> impl Strategy<Value = Vec<Poke>> {
    let bits = prop_oneof![any::<u64>(), (0u64..=0xffff_ffff), Just(0), Just(u64::MAX)];
    let one = prop_oneof![
        6 => (0usize..600, registers(), bits.clone()).prop_map(|(c, r, v)| Poke::Msr(c, r, v)),
        2 => (prop_oneof![Just(0x7fu8), Just(0xd0), Just(0x95), any::<u8>()], 0u8..0x30, any::<u32>(), any::<u32>())
            .prop_map(|(c, s, p, d)| Poke::Mailbox(c, s, p & 0x1ff, d & 0x3_03ff)),
        2 => (0usize..4, 0u32..1200, bits).prop_map(|(d, o, v)| Poke::Tpmi(d, o & !7, v)),
        1 => (0usize..600, any::<bool>()).prop_map(|(c, o)| Poke::Online(c, o)),
        3 => (1u64..30_000_000, any::<u32>(), any::<u8>()).prop_map(|(t, b, i)| Poke::Run(t, b, i)),
    ];
    proptest::collection::vec(one, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever is written, the machine stays within its limits.
    #[test]
    fn any_writes_leave_a_machine_within_its_limits(
        name in proptest::sample::select(MachineSpec::names().filter(|n| !n.contains("512") && !n.contains("large")).collect::<Vec<_>>()),
        pokes in pokes(),
    ) {
        let mut s = chip(name);
        let cpus = s.cpus();
        let mut load = vec![Activity::busy(); cpus];
        let mut energy = 0;
        let top: u32 = s.spec().core.iter().map(|c| c.max_mhz).max().unwrap() * 1000;
        let tj = f64::from(s.spec().thermal.tjmax_c);
        for poke in pokes {
            match poke {
                Poke::Msr(c, r, v) => {
                    let known = s.read_msr(c, r).is_ok();
                    let done = s.write_msr(c, r, v).is_ok();
                    prop_assert!(!done || known, "a write-only register {r:#x}");
                }
                Poke::Mailbox(c, u, p, d) => { let _ = s.mailbox(0, c, u, p, d); }
                Poke::Tpmi(d, o, v) => { s.tpmi_write(0, d, o, v); }
                Poke::Online(c, o) => if c != 0 { s.set_online(c, o) },
                Poke::Run(dt, busy, idle) => {
                    let license = [License::Sse, License::Avx2, License::Avx512][usize::from(idle % 3)];
                    load.fill(Activity { busy_ns: busy, wakes: busy as u16, intensity: (busy >> 7) as u16 & 0x1ff, memory: idle, idle, license });
                    s.advance(dt, &load);
                    prop_assert!(s.energy_femtojoules(0) > energy);
                    energy = s.energy_femtojoules(0);
                }
            }
            s.settle();
            for cpu in 0..cpus {
                let f = s.frequency(cpu).0;
                prop_assert!(f > 0 && f <= top, "CPU {cpu} at {f} kHz");
                let aperf = s.read_msr(cpu, msr::APERF);
                prop_assert!(aperf.is_ok());
            }
            for p in 0..s.topology().packages() {
                let (w, t) = (s.power(p).0, s.temperature(p).0);
                prop_assert!(w.is_finite() && w > 0.0 && w < 2000.0, "{w} W");
                prop_assert!(t.is_finite() && t > 0.0 && t < tj + 15.0, "{t} C");
            }
        }
        if s.spec().identity.vendor == Vendor::Intel {
            prop_assert!(s.read_msr(0, msr::PACKAGE_THERM_STATUS).unwrap() >> 31 & 1 == 1);
        }
    }
}

/// The text with a line that has another number, is removed, or is duplicated.
fn damage(text: &str, line: usize, number: Option<&str>, twice: bool) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let line = line % lines.len();
    let mut out = String::new();
    for (n, text) in lines.iter().enumerate() {
        match number {
            _ if n != line => out += text,
            Some(number) => {
                let digits = |c: char| c.is_ascii_digit() || c == '_' || c == '.';
                let start = text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len());
                let end = text[start..].find(|c| !digits(c)).map_or(text.len(), |end| start + end);
                out += &format!("{}{number}{}", &text[..start], &text[end..]);
            }
            None if twice => out += &format!("{text}\n{text}"),
            None => {}
        }
        out.push('\n');
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A damaged machine file is rejected, or it gives a machine that runs.
    #[test]
    fn a_damaged_machine_file_is_refused_or_runs(
        machine in 0..10usize,
        damages in prop::collection::vec((any::<usize>(), 0..16usize, any::<bool>()), 1..4),
    ) {
        const NUMBERS: [&str; 14] = ["0", "1", "-1", "3", "15", "64", "255", "256", "4096", "65536", "99999999",
            "4294967295", "9223372036854775807", "1e308"];
        let name = MachineSpec::names().nth(machine).unwrap();
        let mut text = MachineSpec::builtin_text(name).unwrap().to_owned();
        for (line, number, twice) in damages {
            text = damage(&text, line, NUMBERS.get(number).copied(), twice);
        }
        if let Ok(spec) = MachineSpec::from_toml(&text) {
            // Larger machines are too slow for the number of cases.
            if spec.cpus() <= 1024 {
                let mut s = Silicon::new(spec, 1).unwrap();
                let load = vec![Activity::partly(500_000, 2, 1); s.cpus()];
                run(&mut s, 3, &load);
                prop_assert!(s.power(0).0.is_finite() && s.temperature(0).0.is_finite());
                for register in [msr::PLATFORM_INFO, msr::HWP_CAPABILITIES, msr::PKG_POWER_INFO, msr::AMD_CPPC_CAP1] {
                    let _ = s.read_msr(0, register);
                }
                let _ = s.tpmi_read(0, 0, 0x60);
            }
        }
    }
}

#[test]
fn absurd_counts_are_refused_with_their_key() {
    let text = |machine: &str, from: &str, to: &str| {
        let text = MachineSpec::builtin_text(machine).unwrap();
        assert!(text.contains(from), "{from}");
        MachineSpec::from_toml(&text.replacen(from, to, 1)).unwrap_err().to_string()
    };
    for (machine, from, to, key) in [
        ("tpmi-small", "io_domains = 2", "io_domains = 99999999", "sst.io_domains"),
        ("tpmi-small", "count = 8", "count = 4294967295", "core[0].count"),
        ("tpmi-small", "packages = 1", "packages = 4294967295", "packages"),
        ("ryzen-5750g", "tsc_khz = ", "tsc_khz = 9", "clock.tsc_khz"),
    ] {
        let error = text(machine, from, to);
        assert!(error.contains(key), "{error}");
    }
}
