use crate::{Activity, MachineSpec, Silicon, msr};

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
