//! The sampler on simulated machines, compared with their silicon.

use std::time::Duration;

use flyball_host::{Host, Launch};
use flyball_monitor::{
    Certainty, Facts, IdleReads, Interval, Limiter, Options, Quantity, Reads, Sample, Sampler, State, Touch,
    explain,
};
use flyball_simhost::{SimHost, SimSetup};

fn open(name: &str) -> SimHost {
    SimHost::open(&SimSetup::parse(name).expect("a machine")).expect("it boots")
}

fn launch(words: &[&str]) -> Launch {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    Launch::new(&words[0], &words[1..])
}

/// Busy CPUs show the silicon's frequency. All others are asleep and were not interrupted.
#[test]
fn speed_of_what_runs_and_nothing_of_what_sleeps() {
    for name in ["sst-guide", "ryzen-5750g", "epyc-512", "hybrid-laptop", "gold-6138"] {
        let host = open(name);
        let _load = host.spawn(launch(&["spin", "--endless", "--pin", "2-3"])).unwrap();
        host.sleep(Duration::from_secs(1));
        let mut sampler = Sampler::open(&host, Options::default()).unwrap();
        let first = sampler.sample();
        let cycles = |host: &SimHost| host.with(|machine| machine.silicon().cycles(2));
        let (before, began) = (cycles(&host), host.now());
        host.sleep(Duration::from_secs(1));
        let second = sampler.sample();
        let truth = (cycles(&host) - before) as f64 / (host.now() - began).as_secs_f64() / 1e6;
        let interval = Interval::between(sampler.layout(), &first, &second);
        let cpu = &interval.cpus[2];
        assert_eq!(cpu.state, State::Running, "{name}");
        let mhz = cpu.mhz.unwrap();
        assert!((mhz / truth - 1.0).abs() < 0.005, "{name}: {mhz} against {truth}");
        assert!(cpu.busy.unwrap() > 0.99, "{name}: {cpu:?}");
        // Some CPUs run housekeeping ten times a second.
        let asleep =
            interval.cpus.iter().filter(|cpu| cpu.state == State::Asleep || cpu.busy < Some(0.02)).count();
        assert!(asleep >= interval.cpus.len() - 3, "{name}: {asleep}");
        assert!(interval.packages[0].watts.is_some_and(|watts| watts > 1.0), "{name}");
    }
}

/// Core energy is counted per core: it is that of the busy cores, and less than the package's.
#[test]
fn a_core_of_amd_has_its_own_power() {
    let reads = Reads { core_energy: true, ..Reads::default() };
    for name in ["ryzen-5750g", "zen6-client", "epyc-512", "gold-6138"] {
        let host = open(name);
        let _load = host.spawn(launch(&["spin", "--endless", "--pin", "2,5"])).unwrap();
        host.sleep(Duration::from_secs(1));
        let mut sampler =
            Sampler::open(&host, Options { touch: Touch::All, reads, ..Options::default() }).unwrap();
        let first = sampler.sample();
        host.sleep(Duration::from_secs(1));
        let second = sampler.sample();
        let interval = Interval::between(sampler.layout(), &first, &second);
        let watts = |cpu: usize| interval.cpus[cpu].core_watts;
        if name == "gold-6138" {
            assert_eq!(watts(2), None);
            continue;
        }
        let busy = watts(2).unwrap() + watts(5).unwrap();
        assert!(busy > 4.0 * watts(7).unwrap(), "{name}: {busy} {:?}", watts(7));
        let package = interval.packages[0].watts.unwrap();
        assert!(busy < package && busy > package * 0.02, "{name}: {busy} of {package}");
    }
}

#[test]
fn nothing_is_touched_without_leave() {
    let host = open("sst-guide,boot=nohz_full=2");
    let _load = host.spawn(launch(&["spin", "--endless", "--pin", "2-3"])).unwrap();
    for (touch, most) in [(Touch::Nothing, 0), (Touch::All, 56)] {
        let mut sampler = Sampler::open(&host, Options { touch, ..Options::default() }).unwrap();
        sampler.sample();
        host.sleep(Duration::from_secs(1));
        assert_eq!(sampler.sample().cost.touched, most);
    }
    let mut sampler = Sampler::open(&host, Options::default()).unwrap();
    let first = sampler.sample();
    host.sleep(Duration::from_secs(1));
    let second = sampler.sample();
    let interval = Interval::between(sampler.layout(), &first, &second);
    assert!(interval.cpus[3].mhz.is_some());
    // A tickless CPU: it ran, but its speed is not read.
    assert_eq!((interval.cpus[2].state, interval.cpus[2].mhz), (State::Running, None));
}

#[test]
fn a_cpu_goes_offline_and_comes_back() {
    let host = open("sst-guide");
    let _load = host.spawn(launch(&["spin", "--endless"])).unwrap();
    let mut sampler = Sampler::open(&host, Options::default()).unwrap();
    let mut last = sampler.sample();
    let mut states = Vec::new();
    for online in ["1", "0", "0", "1", "1"] {
        host.write("/sys/devices/system/cpu/cpu3/online", online.as_bytes()).unwrap();
        host.sleep(Duration::from_millis(500));
        let sample = sampler.sample();
        let cpu = Interval::between(sampler.layout(), &last, &sample).cpus.swap_remove(3);
        assert!(cpu.mhz.is_none_or(|mhz| (400.0..4000.0).contains(&mhz)), "{cpu:?}");
        states.push(cpu.state);
        last = sample;
    }
    assert_eq!(states[1..3], [State::Offline; 2]);
    assert_eq!((states[0], states[4]), (State::Running, State::Running));
}

/// The real machine, whatever it shows to its user: times at least, and a reason for the rest.
#[test]
fn the_running_machine() {
    let host = flyball_host::Live::new();
    let mut sampler = Sampler::open(&host, Options::default()).unwrap();
    let first = sampler.sample();
    host.sleep(Duration::from_millis(300));
    let second = sampler.sample();
    let layout = sampler.layout();
    let interval = Interval::between(layout, &first, &second);
    assert!(interval.cpus.iter().any(|cpu| cpu.busy.is_some()), "{interval:?}");
    let has_speed = interval.cpus.iter().any(|cpu| cpu.mhz.is_some());
    let says_why = layout.missing.iter().any(|missing| missing.what == flyball_monitor::missing::What::Speed);
    assert!(has_speed || says_why, "{:?}", layout.missing);
}

/// During a suspend the kernel's monotonic clock stands still and the wall clock does not.
#[test]
fn a_suspend_between_samples_makes_no_rates() {
    let host = open("sst-guide");
    let _load = host.spawn(launch(&["spin", "--endless", "--pin", "2"])).unwrap();
    let mut sampler = Sampler::open(&host, Options::default()).unwrap();
    let mut samples = Vec::new();
    for _ in 0..4 {
        host.sleep(Duration::from_secs(1));
        samples.push(sampler.sample());
    }
    for sample in &mut samples[2..] {
        sample.wall += 60_000_000_000;
    }
    let layout = sampler.layout();
    let between = |from: usize| Interval::between(layout, &samples[from], &samples[from + 1]);
    for (from, is_broken) in [(0, false), (1, true), (2, false)] {
        let interval = between(from);
        let cpu = &interval.cpus[2];
        assert_eq!(
            (interval.is_broken, cpu.mhz.is_none(), cpu.busy.is_none()),
            (is_broken, is_broken, is_broken)
        );
        assert_eq!(interval.packages[0].watts.is_none(), is_broken);
        // Limits are not rates.
        assert!(cpu.max.is_some());
    }
}

/// The driver's files are replaced by others with the same names.
#[test]
fn the_driver_changes_its_mode_between_samples() {
    for (name, status) in [
        ("sst-guide", "/sys/devices/system/cpu/intel_pstate/status"),
        ("ryzen-5750g", "/sys/devices/system/cpu/amd_pstate/status"),
    ] {
        let host = open(name);
        let _load = host.spawn(launch(&["spin", "--endless", "--pin", "2-3"])).unwrap();
        let mut sampler = Sampler::open(&host, Options::default()).unwrap();
        let mut last = sampler.sample();
        for mode in ["active", "passive", "active"] {
            host.write(status, mode.as_bytes()).unwrap();
            // Long enough for a pass over all policies, which reads the limits again.
            for _ in 0..6 {
                host.sleep(Duration::from_secs(1));
                let sample = sampler.sample();
                let interval = Interval::between(sampler.layout(), &last, &sample);
                let cpu = &interval.cpus[2];
                assert_eq!(cpu.state, State::Running, "{name} {mode}");
                assert!(cpu.mhz.is_some_and(|mhz| (400.0..6000.0).contains(&mhz)), "{name} {mode}: {cpu:?}");
                last = sample;
            }
            let interval = Interval::between(sampler.layout(), &last, &last);
            let policy = "/sys/devices/system/cpu/cpufreq/policy2";
            let max: f64 = host.read(&format!("{policy}/scaling_max_freq")).unwrap().parse().unwrap();
            let governor = host.read(&format!("{policy}/scaling_governor")).unwrap();
            let cpu = &interval.cpus[2];
            assert_eq!(cpu.max, Some(max / 1000.0), "{name} {mode}");
            let known = cpu.governor.map(|number| sampler.layout().machine.governors[number].clone());
            assert_eq!(known, Some(governor), "{name} {mode}");
        }
    }
}

/// Wakeup counts equal the kernel's counters, and decide whether wakeups are the reason. Unless all
/// CPUs are counted, suspects are counted as soon as their speed is known.
#[test]
fn wake_ups_are_counted_where_they_may_be_the_reason() {
    let file = |name: &str| format!("/sys/devices/system/cpu/cpu0/cpuidle/{name}");
    let sum = |host: &SimHost, names: &[&str]| -> u64 {
        names.iter().map(|name| host.read(&file(name)).unwrap().parse::<u64>().unwrap()).sum()
    };
    // A limit of 20 us allows C2 for sleeps that are long enough for C3.
    for (idle, limit, used) in [
        (IdleReads::All, "0", 3),
        (IdleReads::Times, "0", 3),
        (IdleReads::Suspects, "0", 3),
        (IdleReads::Times, "20", 2),
    ] {
        let host = open("ryzen-5750g");
        host.write("/sys/devices/system/cpu/cpu0/power/pm_qos_resume_latency_us", limit.as_bytes()).unwrap();
        host.write("/sys/devices/system/cpu/cpufreq/policy0/scaling_governor", b"performance").unwrap();
        let _load = host.spawn(launch(&["rpc", "--endless", "--pin", "0"])).unwrap();
        let reads = Reads { idle, ..Reads::default() };
        let mut sampler = Sampler::open(&host, Options { reads, ..Options::default() }).unwrap();
        let (mut samples, mut counts) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            samples.push(sampler.sample());
            let below = ["state0/below", "state1/below", "state2/below"];
            counts.push(
                [&[&format!("state{used}/usage")[..]][..], &["state2/above", "state3/above"], &below]
                    .map(|names| sum(&host, names)),
            );
            host.sleep(Duration::from_secs(1));
        }
        let layout = sampler.layout();
        let of = |from: usize| Interval::between(layout, &samples[from], &samples[from + 1]);
        let first = if idle == IdleReads::All { 0 } else { 3 };
        assert!((0..first).all(|from| of(from).cpus[0].wakes.is_empty()), "{idle:?}");
        for from in first..4 {
            let interval = of(from);
            let counted = |which: usize| (counts[from + 1][which] - counts[from][which]) as f64;
            let cpu = &interval.cpus[0];
            // Only the speed tells whether wakeups may be the reason.
            assert!(limit == "0" || counted(2) > 1000.0 * interval.seconds, "{counts:?}");
            let wrong = if from < 3 { (None, None) } else { (Some(counted(1)), Some(counted(2))) };
            let near = |rate: f64, count: f64| (rate * interval.seconds - count).abs() <= 0.02 * count + 1.0;
            assert!(near(cpu.wakes[used], counted(0)), "{idle:?}: {cpu:?}, {}", counted(0));
            for (rate, count) in [(cpu.above, wrong.0), (cpu.below, wrong.1)] {
                assert!(rate.is_some() == count.is_some(), "{idle:?} {from}: {cpu:?}");
                assert!(rate.zip(count).is_none_or(|(rate, count)| near(rate, count)), "{cpu:?}, {wrong:?}");
            }
        }
        assert_eq!(of(3).cpus[5].wakes.is_empty(), idle != IdleReads::All, "{idle:?}");

        let facts = Facts::take(&host, layout, |_| None).unwrap();
        let only = [0].into_iter().collect();
        let reason = |layout: &flyball_monitor::Layout, samples: &[Sample]| {
            let found = explain(layout, &facts, samples, Some(&only)).remove(0);
            let step = found.first().unwrap();
            (step.limiter, step.evidence.first().to_string())
        };
        let (limiter, evidence) = reason(layout, &samples[3..]);
        assert_eq!(limiter, Limiter::WakeUp);
        let stay = if idle == IdleReads::Suspects { ", " } else { " after " };
        let words = format!(" wake-ups a second out of C{used}{stay}");
        for words in [&words[..], " a second too deep, ", " a second too light"] {
            assert!(evidence.contains(words), "{evidence}");
        }
        let mut virtual_machine = layout.clone();
        virtual_machine.machine.idle_exits_us.clear();
        let (limiter, evidence) = reason(&virtual_machine, &samples[3..]);
        assert!(limiter == Limiter::WakeUp && evidence.ends_with("whose cost is not known"), "{evidence}");
        let mut free = layout.clone();
        free.machine.idle_exits_us.fill(0);
        assert_ne!(reason(&free, &samples[3..]).0, Limiter::WakeUp);
        let mut uncounted = layout.clone();
        uncounted.fields.iter_mut().for_each(|field| {
            if matches!(field.quantity, Quantity::IdleUsage(_)) {
                field.quantity = Quantity::IdleUsage(99);
            }
        });
        assert_eq!(
            reason(&uncounted, &samples[3..]),
            (Limiter::WakeUp, "cpuidle usage, time, above, below: not known".to_owned())
        );
    }
}

/// Wakeups are a measured reason if a busy neighbour reaches its full speed. Without such a
/// neighbour, the firmware remains possible on a processor without a register of limits, and is
/// ruled out on one with it.
#[test]
fn waking_up_is_measured_where_nothing_else_is_left() {
    for (machine, spin, is_measured) in [
        ("ryzen-5750g", None, false),
        ("ryzen-5750g", Some("4"), true),
        ("epyc-512", Some("8"), true),
        ("gold-6138", None, true),
    ] {
        let host = open(machine);
        let topology = flyball_control::Topology::inspect(&host).unwrap();
        for policy in topology.policies.iter().map(|policy| policy.number) {
            let folder = format!("/sys/devices/system/cpu/cpufreq/policy{policy}");
            host.write(&format!("{folder}/scaling_governor"), b"performance").unwrap();
        }
        let _load = host.spawn(launch(&["rpc", "--endless", "--pin", "0"])).unwrap();
        let _neighbour = spin.map(|cpu| host.spawn(launch(&["spin", "--endless", "--pin", cpu])).unwrap());
        let mut sampler = Sampler::open(&host, Options::default()).unwrap();
        let mut samples = Vec::new();
        for _ in 0..6 {
            samples.push(sampler.sample());
            host.sleep(Duration::from_secs(1));
        }
        let layout = sampler.layout();
        let facts = Facts::take(&host, layout, |_| None).unwrap();
        let found = explain(layout, &facts, &samples[3..], Some(&[0].into_iter().collect())).remove(0);
        let step = found.steps.iter().find(|step| step.limiter == Limiter::WakeUp);
        let step = step.unwrap_or_else(|| panic!("{machine}: {found}"));
        println!("{machine} {spin:?}: {found}");
        assert_eq!(step.certainty == Certainty::Measured, is_measured, "{machine}: {found}");
        let said = step.evidence.pieces();
        assert!(said.iter().any(|piece| piece.value.ends_with("by the advertised latencies")), "{said:?}");
    }
}
