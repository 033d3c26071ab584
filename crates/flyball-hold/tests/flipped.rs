//! Another program flips one policy's governor between any two calls of the service. All other held
//! settings must stay, no hold may go out of force, and the value that the other program leaves
//! must be corrected.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[allow(dead_code, reason = "shared with the tests of flyball-control, which use more of it")]
#[path = "../../flyball-control/tests/control/fake.rs"]
mod fake;

use std::time::Duration;

use fake::{CPU, Driver, Event as Fault, Faults, Kernel};
use flyball_control::{Intent, Setting, write::state::StateDir};
use flyball_hold::{Config, Facts, LeftBecause, Moment, Notice, Service, Status, status};
use flyball_host::{
    Host,
    watch::{Event, LocalTime, Writer},
};
use proptest::{prelude::*, test_runner::TestCaseError};

const GOVERNOR: &str = "cpufreq/policy0/scaling_governor";

/// The weaker hold sets governor and preference, the stronger hold a limit.
const CONFIG: &[u8] = b"[[when]]\nprofile = \"weak\"\n[[when]]\nprofile = \"strong\"\n";

fn profiles(name: &str) -> Result<Vec<Setting>, String> {
    let settings: &[&str] = match name {
        "weak" => &["governor=powersave", "epp=balance_power", "latency-limit=20us"],
        _ => &["max-freq=2GHz"],
    };
    Intent::from_arguments(settings, None).map(|intent| intent.settings).map_err(|error| error.to_string())
}

fn moment(millis: u64) -> Moment {
    let local = LocalTime { minutes: 0, seconds: 0 };
    Moment { now: Duration::from_millis(millis), unix: millis / 1000, local }
}

struct Machine<'k> {
    kernel: &'k Kernel,
    state: StateDir,
    service: Service<'k>,
    millis: u64,
}

impl Machine<'_> {
    /// Passes events to the service, and checks its reports about its holds.
    fn handle(&mut self, events: Vec<Event>) -> Result<(), TestCaseError> {
        self.service.handle(events, moment(self.millis));
        for notice in self.service.notices() {
            if let Notice::InForce(holds) = &notice {
                prop_assert_eq!(holds.len(), 2, "{}", notice);
            }
            prop_assert!(!matches!(notice, Notice::Failed(_)), "{}", notice);
        }
        Ok(())
    }

    /// Lets time pass. The service does everything that becomes due.
    fn pass(&mut self, millis: u64) -> Result<(), TestCaseError> {
        let end = self.millis + millis;
        while self.millis < end {
            let sleep = self.service.sleep_for(moment(self.millis).now).as_millis() as u64;
            self.millis = (self.millis + sleep.max(1)).min(end);
            self.handle(Vec::new())?;
        }
        Ok(())
    }

    fn status(&self) -> Status {
        let now = moment(self.millis).now;
        self.kernel.pause(|kernel| status(kernel, self.service.store(), &Facts::default(), now))
    }
}

/// One burst: the calls before which the governor is flipped, and the quiet time afterwards.
type Burst = (Vec<usize>, u64);

fn run(
    driver: Driver,
    lag: u32,
    bursts: &[Burst],
    corrected: &mut (usize, usize),
) -> Result<(), TestCaseError> {
    let kernel = Kernel::new(driver, 4, 1, lag);
    let folder = tempfile::tempdir().unwrap();
    let state = StateDir::new(folder.path().join("state"));
    let lock = state.lock("hold run").unwrap();
    let config = Config::parse(CONFIG, "hold.toml");
    let service =
        Service::start(&kernel, state.clone(), lock, Vec::new(), config, &profiles, moment(0)).unwrap();
    let mut machine = Machine { kernel: &kernel, state, service, millis: 0 };
    machine.handle(Vec::new())?;
    prop_assert!(machine.status().is_held());
    let by = || Writer { pid: 4711, name: Some("other".to_owned()), unit: None };
    let written = || vec![Event::Written { path: format!("{CPU}/{GOVERNOR}"), by: by() }];
    for (calls, quiet) in bursts {
        let flip = |(index, call): (usize, &usize)| {
            let governor = if index % 2 == 0 { "performance" } else { "powersave" };
            (*call, Fault::Poke(GOVERNOR, governor))
        };
        let events = calls.iter().enumerate().map(flip).collect();
        let _ = kernel.poke(GOVERNOR, "performance");
        kernel.arm(Faults { events, ..Faults::default() }, machine.state.journal());
        machine.handle(written())?;
        // Nothing has changed on the other CPUs, whatever happened to this one.
        for knob in machine.status().knobs.iter().filter(|knob| !knob.holds) {
            prop_assert_eq!(knob.cpus.to_string(), "0", "{:?}", knob);
        }
        kernel.arm(Faults::default(), machine.state.journal());
        // The kernel reports every write of the other program.
        machine.handle(written())?;
        let is_contended = |left: &flyball_hold::Exemption| left.because == LeftBecause::Contended;
        corrected.1 += usize::from(machine.service.store().left.iter().any(is_contended));
        machine.pass(*quiet)?;
    }
    // The other program has ended. After the longest pause all holds are in effect.
    machine.pass(20 * 60 * 1000)?;
    let status = machine.status();
    prop_assert!(status.is_held(), "{:?} {:?}", status.knobs, machine.service.store().left);
    corrected.0 += machine.service.store().drifts.len();
    Ok(())
}

#[test]
fn a_writer_of_one_governor_drops_no_hold() {
    let burst = (proptest::collection::vec(0usize..400, 0..6), 0u64..20_000);
    let bursts = proptest::collection::vec(
        burst.prop_map(|(mut calls, quiet): (Vec<usize>, u64)| {
            calls.sort_unstable();
            (calls, quiet)
        }),
        1..10,
    );
    let driver = prop_oneof![Just(Driver::AmdPstate), Just(Driver::IntelPstate)];
    let count = std::env::var("FLYBALL_MODEL_SCHEDULES").ok().and_then(|text| text.parse().ok());
    let config =
        ProptestConfig { cases: count.unwrap_or(30), failure_persistence: None, ..ProptestConfig::default() };
    let corrected = std::cell::Cell::new((0, 0));
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let result = runner.run(&(driver, 0u32..3, bursts), |(driver, lag, bursts)| {
        let mut count = corrected.get();
        let done = run(driver, lag, &bursts, &mut count);
        corrected.set(count);
        done
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let (corrected, contended) = corrected.get();
    assert!(corrected > 0 && contended > 0, "{corrected} {contended}: nothing was proven");
}

/// If the kernel keeps refusing a write, that setting is left, with the reason.
#[test]
fn a_refused_setting_is_left_and_the_others_of_its_hold_stay() {
    struct Refusing {
        kernel: Kernel,
    }
    impl Host for Refusing {
        flyball_host::forward!(
            kernel: kind, name, read_into, list, exists, writable, link, msr, write_msr, isst, now, sleep
        );
        fn write(&self, path: &str, bytes: &[u8]) -> Result<(), flyball_host::HostError> {
            if path.ends_with("policy2/energy_performance_preference") {
                return Err(flyball_host::HostError::new(
                    flyball_host::Op::Write,
                    path,
                    flyball_host::Errno::BUSY,
                ));
            }
            self.kernel.write(path, bytes)
        }
    }
    let host = Refusing { kernel: Kernel::new(Driver::IntelPstate, 4, 1, 0) };
    let folder = tempfile::tempdir().unwrap();
    let state = StateDir::new(folder.path().join("state"));
    let lock = state.lock("hold run").unwrap();
    let config = Config::parse(CONFIG, "hold.toml");
    let mut service = Service::start(&host, state, lock, Vec::new(), config, &profiles, moment(0)).unwrap();
    let mut millis = 0;
    while millis < 10_000 {
        millis += service.sleep_for(moment(millis).now).as_millis().max(1) as u64;
        service.handle(Vec::new(), moment(millis));
    }
    assert_eq!(service.in_force().len(), 2);
    let status = status(&host, service.store(), &Facts::default(), moment(millis).now);
    assert_eq!(status.failure, None);
    let refused: Vec<_> = status.knobs.iter().filter(|knob| !knob.holds).collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!((refused[0].knob.to_string().as_str(), refused[0].cpus.to_string().as_str()), ("epp", "2"));
    let Some(LeftBecause::Refused(why)) = &refused[0].left else { panic!("{refused:?}") };
    assert!(why.contains("(EBUSY)") && !why.contains("as well"), "{why}");
    let told = service.notices().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(told.contains("epp"), "{told}");
}
