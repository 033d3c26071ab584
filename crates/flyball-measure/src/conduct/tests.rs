//! Scheduling without time passing: a fake machine with its own clock, a fake workload, and
//! settings that remember.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

use flyball_host::{Errno, HostError, Kind, Op};

use super::*;
use crate::{
    analyse::{Quantity, Verdict, analyse},
    arm::ArmSetting,
    metric::Metric,
    run_directory::tests::manifest,
    schedule::Length,
};

/// A machine that has nothing but a clock and a CPU that is idle or stolen.
#[derive(Default)]
struct Clockwork {
    nanoseconds: AtomicU64,
    /// In hundredths of a second.
    stolen: AtomicU64,
    boot: Mutex<String>,
}

impl Host for Clockwork {
    fn kind(&self) -> Kind {
        Kind::Live
    }
    fn name(&self) -> String {
        "clockwork".to_owned()
    }
    fn read_into(&self, path: &str, buffer: &mut Vec<u8>) -> Result<(), HostError> {
        if path.ends_with("boot_id") {
            buffer.clear();
            buffer.extend_from_slice(self.boot.lock().expect("one thread").as_bytes());
            return Ok(());
        }
        if path == "/proc/stat" {
            let stolen = self.stolen.load(Ordering::SeqCst);
            let idle = self.now().as_millis() as u64 / 10 - stolen;
            *buffer = format!("cpu0 0 0 0 {idle} 0 0 0 {stolen}\n").into_bytes();
            return Ok(());
        }
        Err(HostError::new(Op::Read, path, Errno::NOENT))
    }
    fn write(&self, path: &str, _: &[u8]) -> Result<(), HostError> {
        if path == "/steal a second" {
            self.stolen.fetch_add(100, Ordering::SeqCst);
        }
        Err(HostError::new(Op::Write, path, Errno::NOENT))
    }
    fn list(&self, path: &str) -> Result<Vec<String>, HostError> {
        Err(HostError::new(Op::List, path, Errno::NOENT))
    }
    fn exists(&self, _: &str) -> bool {
        false
    }
    fn writable(&self, _: &str) -> bool {
        false
    }
    fn link(&self, path: &str) -> Result<String, HostError> {
        Err(HostError::new(Op::Link, path, Errno::NOENT))
    }
    fn msr(&self, _: u32, _: u32) -> Result<u64, HostError> {
        Err(HostError::new(Op::ReadMsr, "msr", Errno::NOENT))
    }
    fn write_msr(&self, _: u32, _: u32, _: u64) -> Result<(), HostError> {
        Err(HostError::new(Op::WriteMsr, "msr", Errno::NOENT))
    }
    fn isst(&self, _: u32, _: &mut [u8]) -> Result<i32, HostError> {
        Err(HostError::new(Op::Isst, "isst", Errno::NOENT))
    }
    fn now(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::SeqCst))
    }
    fn sleep(&self, time: Duration) {
        self.nanoseconds.fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
    }
}

/// Records its calls.
#[derive(Default)]
struct RecordedSettings {
    log: Mutex<Vec<String>>,
    /// Arms with this setting need another boot until it is cleared.
    needs_boot: Option<&'static str>,
    refuses: Option<&'static str>,
}

impl Settings for &RecordedSettings {
    fn apply(&mut self, arm: &Arm) -> Result<Vec<String>, SettingsError> {
        self.log.lock().expect("one thread").push(arm.name.clone());
        if self.refuses == Some(arm.name.as_str()) {
            return Err(SettingsError::NotHeld);
        }
        Ok(Vec::new())
    }
    fn restore(&mut self) -> Result<(), SettingsError> {
        self.log.lock().expect("one thread").push("restore".to_owned());
        Ok(())
    }
    fn boot_needed(&self, arm: &Arm) -> Result<Option<String>, SettingsError> {
        let needs =
            self.needs_boot.is_some_and(|knob| arm.settings.iter().any(|setting| setting.knob() == knob));
        Ok(needs.then(|| "amd_pstate=disable".to_owned()))
    }
}

/// Takes two seconds, and stops or fails on request.
struct Fake {
    runs: usize,
    fails_at: Option<usize>,
    stops_at: Option<usize>,
    /// Runs in which another guest has the CPU for half of the time.
    stolen_at: Vec<usize>,
}

impl Workload for Fake {
    fn name(&self) -> String {
        "fake".to_owned()
    }
    fn metric(&self) -> Metric {
        Metric::wall_time()
    }
    fn run(
        &mut self,
        host: &dyn Host,
        interval: Duration,
        tick: &mut dyn FnMut(),
        stop: &Stop,
    ) -> Result<Outcome, WorkloadError> {
        self.runs += 1;
        let start = host.now();
        while host.now().saturating_sub(start) < Duration::from_secs(2) {
            host.sleep(interval);
            tick();
        }
        if self.stolen_at.contains(&self.runs) {
            let _ = host.write("/steal a second", b"");
        }
        if self.stops_at == Some(self.runs) {
            stop.ask();
            return Err(WorkloadError::Stopped);
        }
        // Ratios of pairs differ from block to block, as real ones do.
        let seconds =
            host.now().saturating_sub(start).as_secs_f64() + (self.runs * self.runs % 7) as f64 * 0.001;
        let failure = (self.fails_at == Some(self.runs)).then(|| "exit 1".to_owned());
        Ok(Outcome {
            value: Some(seconds),
            seconds,
            failure,
            output: "first\nlast words\n".to_owned(),
            ..Outcome::default()
        })
    }
}

struct Session {
    host: Clockwork,
    settings: RecordedSettings,
    workload: Fake,
    stop: Stop,
    _place: tempfile::TempDir,
    directory: RunDirectory,
}

fn session(arms: &[&str], change: impl FnOnce(&mut crate::run_directory::Manifest)) -> Session {
    let place = tempfile::tempdir().expect("a directory");
    let mut manifest = manifest(arms);
    change(&mut manifest);
    let directory = RunDirectory::create(&place.path().join("run"), manifest, None).expect("it can be made");
    let host = Clockwork::default();
    *host.boot.lock().expect("one thread") = "first".to_owned();
    Session {
        host,
        settings: RecordedSettings::default(),
        workload: Fake { runs: 0, fails_at: None, stops_at: None, stolen_at: Vec::new() },
        stop: Stop::default(),
        _place: place,
        directory,
    }
}

impl Session {
    fn conduct(&mut self, progress: &mut dyn FnMut(&Event<'_>)) -> Result<End, MeasureError> {
        let meters = Meters::find(&self.host, None);
        let mut settings = &self.settings;
        Conductor {
            blocks: None,
            background: &[],
            host: &self.host,
            settings: &mut settings,
            workload: &mut self.workload,
            meters: &meters,
            stop: &self.stop,
            ignore_failure: false,
            hooks: None,
            tracer: None,
            speed: None,
            began_at: 0,
        }
        .conduct(&mut self.directory, progress)
    }

    fn log(&self) -> Vec<String> {
        self.settings.log.lock().expect("one thread").clone()
    }
}

#[test]
fn every_block_has_every_arm_and_all_is_restored() {
    let mut session = session(&["a", "b", "c"], |manifest| manifest.schedule.cool_down = 5.0);
    let mut blocks = 0;
    let end = session
        .conduct(&mut |event| blocks += usize::from(matches!(event, Event::Over { ends_block: true, .. })));
    assert_eq!(end.expect("it works"), End::Complete);
    let rounds = &session.directory.rounds;
    assert_eq!(rounds.len(), 33);
    assert_eq!(rounds.iter().filter(|round| round.warm_up).count(), 3);
    for block in 0..10 {
        let mut arms: Vec<usize> = rounds
            .iter()
            .filter(|round| !round.warm_up && round.block == block)
            .map(|round| round.arm)
            .collect();
        arms.sort_unstable();
        assert_eq!(arms, [0, 1, 2]);
    }
    assert_eq!(blocks, 11);
    // Two blocks take turns, so that an arm can follow itself.
    let counted: Vec<usize> = rounds.iter().filter(|round| !round.warm_up).map(|round| round.block).collect();
    assert_eq!(counted[..12], [0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3]);
    // Rounds of two seconds after five of pause.
    assert_eq!(session.host.now(), Duration::from_secs(33 * 7));
    let log = session.log();
    assert_eq!(log.len(), 34);
    assert_eq!(log.last().map(String::as_str), Some("restore"));
}

/// Rounds take 7 s and blocks 14 s: the warm-up ends after 14 s, the first two blocks after 42 s.
#[test]
fn the_time_is_kept_or_its_excess_is_told() {
    let run = |most: f64, stops_at: Option<usize>| {
        let mut session = session(&["a", "b"], |manifest| {
            manifest.schedule.cool_down = 5.0;
            manifest.schedule.most_seconds = Some(most);
        });
        session.workload.stops_at = stops_at;
        let mut told = Vec::new();
        let mut note = |event: &Event<'_>| {
            if let Event::TimeUp { blocks, beyond } = event {
                told.push((*blocks, beyond.round()));
            }
        };
        let end = session.conduct(&mut note).expect("it works");
        let first = session.host.now();
        if end == End::Stopped {
            session.stop = Stop::default();
            session.conduct(&mut note).expect("it goes on");
        }
        let seconds = (session.host.now() - first).as_secs_f64();
        (told, seconds, session.directory.manifest.schedule.ended_by_time)
    };
    assert_eq!(run(75.0, None), (vec![(4, 0.0)], 0.0, true));
    assert_eq!(run(69.0, None), (vec![(3, 0.0)], 0.0, true));
    assert_eq!(run(55.0, None), (vec![(2, 0.0)], 0.0, true));
    assert_eq!(run(30.0, None), (vec![(2, 12.0)], 0.0, true));
    // The first blocks lack three rounds: with the warm-up 35 s, and one more block is 14 s.
    assert_eq!(run(60.0, Some(4)), (vec![(3, 0.0)], 49.0, true));
}

#[test]
fn a_failure_ends_it_with_everything_restored_and_kept() {
    let mut session = session(&["a", "b"], |_| ());
    session.workload.fails_at = Some(6);
    let error = session.conduct(&mut |_| ()).expect_err("round six fails");
    assert!(error.to_string().contains("last words"), "it quotes what the workload printed: {error}");
    assert_eq!(session.log().last().map(String::as_str), Some("restore"));
    assert_eq!(RunDirectory::open(session.directory.path()).expect("it can be read").rounds.len(), 5);
}

#[test]
fn an_arm_that_is_refused_is_named() {
    let mut session = session(&["a", "b"], |_| ());
    session.settings.refuses = Some("b");
    let error = session.conduct(&mut |_| ()).expect_err("b is refused");
    assert!(error.to_string().starts_with("arm 'b'"), "{error}");
    assert_eq!(session.log().last().map(String::as_str), Some("restore"));
}

#[test]
fn a_stopped_comparison_can_be_continued() {
    let mut session = session(&["a", "b"], |_| ());
    session.workload.stops_at = Some(8);
    assert_eq!(session.conduct(&mut |_| ()).expect("it stops"), End::Stopped);
    assert_eq!(session.log().last().map(String::as_str), Some("restore"));
    assert_eq!(session.directory.rounds.len(), 7);
    session.workload.stops_at = None;
    session.stop = Stop::default();
    session.directory = RunDirectory::open(session.directory.path()).expect("it can be read");
    assert_eq!(session.conduct(&mut |_| ()).expect("it goes on"), End::Complete);
    let counted: Vec<(usize, usize)> = session
        .directory
        .rounds
        .iter()
        .filter(|round| !round.warm_up)
        .map(|round| (round.block, round.arm))
        .collect();
    let mut once = counted.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), 20);
    assert_eq!(counted.len(), 20);
    assert_eq!(session.directory.manifest.boots.len(), 1);
}

#[test]
fn arms_of_another_boot_wait_for_it() {
    let mut session = session(&["here", "there"], |manifest| {
        manifest.arms[1].settings.push(ArmSetting::new("driver", "acpi-cpufreq"));
    });
    session.settings.needs_boot = Some("driver");
    assert_eq!(session.conduct(&mut |_| ()).expect("it works"), End::Complete);
    let report = analyse(&session.directory.manifest, &session.directory.rounds);
    assert_eq!(report.arms[1].waits_for.as_deref(), Some("amd_pstate=disable"));
    assert_eq!(report.comparisons, []);

    // The other boot.
    *session.host.boot.lock().expect("one thread") = "second".to_owned();
    session.settings.needs_boot = None;
    session.directory = RunDirectory::open(session.directory.path()).expect("it can be read");
    assert_eq!(session.conduct(&mut |_| ()).expect("it works"), End::Complete);
    assert_eq!(session.directory.manifest.boots.len(), 2);
    assert_eq!(session.directory.manifest.boots[1].arms, [1]);
    let report = analyse(&session.directory.manifest, &session.directory.rounds);
    assert_eq!(report.arms[1].waits_for, None);
    let comparison = &report.comparisons[0];
    assert!(!comparison.paired);
    assert_eq!(comparison.quantity, Quantity::Performance);
    assert_eq!(comparison.verdict, Verdict::Equivalent);
    assert_eq!((&report.arms[0].boots[..], &report.arms[1].boots[..]), (&[0][..], &[1][..]));
}

#[test]
fn until_stops_when_precise() {
    // Equal arms need more blocks than a narrow interval does: 15, and blocks run in twos.
    for (half_width, decided, blocks) in [(0.01, false, 8), (0.005, true, 16)] {
        let mut session = session(&["a", "b"], |manifest| {
            manifest.schedule.length = Length::Until { half_width, decided, least: 8, most: 50 };
        });
        assert_eq!(session.conduct(&mut |_| ()).expect("it works"), End::Complete);
        assert_eq!(session.directory.rounds.iter().filter(|round| !round.warm_up).count(), 2 * blocks);
    }
}

#[test]
fn blocks_that_others_disturb_are_run_again() {
    let run = |stolen_at: Vec<usize>| {
        let mut session = session(&["a", "b"], |manifest| manifest.schedule.length = Length::Rounds(6));
        session.workload.stolen_at = stolen_at;
        assert_eq!(session.conduct(&mut |_| ()).expect("it runs"), End::Complete);
        analyse(&session.directory.manifest, &session.directory.rounds)
    };
    let counts = |report: &crate::Report| {
        let of = |arm: &crate::ArmReport| (arm.rounds, arm.left_out.len());
        report.arms.iter().map(of).collect::<Vec<_>>()
    };
    // Two rounds warm up. The fifth belongs to the second block, the fifteenth to its replacement.
    let report = run(vec![5, 15]);
    let left_out: usize = counts(&report).iter().map(|one| one.1).sum();
    assert_eq!((left_out, report.comparisons[0].pairs), (2, 6), "{:?}", counts(&report));
    assert!(
        report.notes.iter().any(|note| note.starts_with("2 blocks were run in place")),
        "{:?}",
        report.notes
    );
    // If most rounds are disturbed, that is the machine's normal state, and nothing is repeated.
    assert_eq!(counts(&run((1..100).collect())), [(6, 0), (6, 0)]);
    assert_eq!(counts(&run(Vec::new())), [(6, 0), (6, 0)]);
}
