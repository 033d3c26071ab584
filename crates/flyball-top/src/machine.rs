//! A live or simulated machine as a source: takes samples, keeps them for ten minutes, records
//! them, and checks alerts.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use flyball_host::Host;
use flyball_monitor::{
    Facts, Interval, Layout, Sample, Sampler,
    alert::{Event, Reading, Subject, Watch},
    file::{RecordError, Recorder, Retention},
    history::{History, Timeline},
};
use flyball_text::date::Utc;

use crate::{Moment, Recording, Source, SourceError, Status};

/// How long samples are kept in memory.
const KEPT: Duration = Duration::from_secs(600);

/// Formats date and time for a file name.
fn stamp() -> String {
    Utc::from_seconds(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())).stamp()
}

/// A machine that is sampled.
pub struct Machine<'h> {
    host: &'h dyn Host,
    sampler: Sampler<'h>,
    history: History,
    pub recorder: Option<Recorder>,
    recording: Option<String>,
    /// Time between samples, on the machine's clock.
    interval: Duration,
    /// How much faster than real time the machine's clock runs.
    speed: f64,
    pub alerts: Alerts,
    last: Option<Sample>,
    /// Limits by settings. Without them, fewer reasons are known.
    facts: Option<Facts>,
    has_learnt: bool,
    missing: Vec<String>,
    /// CPU time of this process, and when it was read.
    used: (Duration, Instant),
    own: Option<f64>,
    /// Why the recording failed.
    pub failed: Option<RecordError>,
}

impl<'h> Machine<'h> {
    pub fn new(
        host: &'h dyn Host,
        sampler: Sampler<'h>,
        interval: Duration,
        speed: f64,
        alerts: Alerts,
    ) -> Machine<'h> {
        let layout = sampler.layout().clone();
        Machine {
            host,
            facts: None,
            has_learnt: false,
            missing: layout.missing.iter().map(ToString::to_string).collect(),
            history: History::new(layout, KEPT),
            sampler,
            recorder: None,
            recording: None,
            interval,
            speed,
            alerts,
            last: None,
            used: (flyball_process::usage(false).time, Instant::now()),
            own: None,
            failed: None,
        }
    }

    pub fn record_to(&mut self, recorder: Recorder, name: String) {
        self.recorder = Some(recorder);
        self.recording = Some(name);
    }

    pub fn facts(&self) -> Option<&Facts> {
        self.facts.as_ref()
    }

    /// Reads the limits by settings once. The first screen does not wait for them and shows no
    /// reasons.
    pub fn learn(&mut self) {
        if !self.has_learnt {
            self.has_learnt = true;
            // Finding out who set a limit takes long. Only `why` does it.
            self.facts = Facts::take(self.host, self.history.layout(), |_| None).ok();
        }
    }

    pub fn layout(&self) -> &Layout {
        self.history.layout()
    }

    /// Returns how long to wait between two samples, in real time.
    pub fn pause(&self) -> Duration {
        let factor = if self.host.software().is_some() { self.speed } else { 1.0 };
        self.interval.div_f64(factor)
    }

    /// Takes a sample.
    pub fn take(&mut self) -> Result<(), RecordError> {
        // The clock of a simulated machine only advances here.
        if self.last.is_some() && self.host.software().is_some() {
            self.host.sleep(self.interval);
        }
        let sample = self.sampler.sample();
        if let Some(recorder) = &mut self.recorder {
            recorder.add(sample.clone())?;
        }
        self.history.add(sample.clone());
        if let Some(before) = self.last.replace(sample.clone()) {
            self.learn();
            let number = self.history.end() - 1;
            self.alerts.look(self.history.layout(), self.facts.as_ref(), &before, &sample, number);
        }
        let now = (flyball_process::usage(false).time, Instant::now());
        let wall = now.1.duration_since(self.used.1).as_secs_f64();
        self.own = (wall > 0.0).then(|| now.0.saturating_sub(self.used.0).as_secs_f64() / wall);
        self.used = now;
        Ok(())
    }
}

impl Source for Machine<'_> {
    fn timeline(&mut self) -> &mut dyn Timeline {
        &mut self.history
    }

    fn advance(&mut self) -> io::Result<bool> {
        self.take().map_err(|error| {
            let text = error.to_string();
            self.failed = Some(error);
            io::Error::other(text)
        })?;
        Ok(true)
    }

    fn count_wakes(&mut self, all: bool) {
        self.sampler.count_wakes(all || self.recorder.is_some());
    }

    fn status(&self) -> Status<'_> {
        Status {
            interval: self.pause(),
            is_replay: false,
            alerts: &self.alerts.begun,
            notices: &self.alerts.on,
            missing: &self.missing,
            recording: self.recording.as_deref(),
            own: self.own,
        }
    }

    fn known(&self, _number: u64) -> (&Layout, Option<&Facts>) {
        (self.history.layout(), self.facts.as_ref())
    }

    fn record(&mut self) -> Result<Recording, SourceError> {
        if let Some(recorder) = self.recorder.take() {
            let name = self.recording.take().unwrap_or_default();
            return recorder.finish().map(|()| Recording::Finished(name)).map_err(SourceError::Record);
        }
        let name = format!("flyball-top-{}.fbt", stamp());
        self.learn();
        let kept = Retention::default();
        let recorder = Recorder::open(Path::new(&name), self.layout(), self.facts.as_ref(), kept);
        self.record_to(recorder.map_err(SourceError::Record)?, name.clone());
        Ok(Recording::Started(name))
    }

    fn export(&mut self, text: &str) -> Result<PathBuf, SourceError> {
        let path = PathBuf::from(format!("flyball-top-{}.txt", stamp()));
        match flyball_files::replace(&path, text.as_bytes()) {
            Ok(()) => Ok(path),
            Err(error) => Err(SourceError::Write(path, error)),
        }
    }
}

/// The alerts of a run, and the command that is called for them.
pub struct Alerts {
    watches: Vec<Watch>,
    /// Sample numbers at which alerts began, at most the last thousand.
    begun: Vec<u64>,
    /// Active alerts, and messages about the command.
    on: Vec<String>,
    /// Events that are not printed yet.
    pub events: Vec<Event>,
    command: Option<String>,
    running: Option<Child>,
    has_failed: bool,
}

/// Maximum number of alerts that `[` and `]` can jump to.
const MAX_STARTED: usize = 1000;

impl Alerts {
    pub fn new(alerts: &[flyball_monitor::alert::Alert], command: Option<String>) -> Alerts {
        Alerts {
            watches: alerts.iter().cloned().map(Watch::new).collect(),
            begun: Vec::new(),
            on: Vec::new(),
            events: Vec::new(),
            command,
            running: None,
            has_failed: false,
        }
    }

    /// Updates the alerts with a new moment.
    fn look(
        &mut self,
        layout: &Layout,
        facts: Option<&Facts>,
        before: &Sample,
        sample: &Sample,
        number: u64,
    ) {
        if self.watches.is_empty() {
            return;
        }
        let moment = Moment::between(layout, facts, number, before, sample);
        // After a jump of the clock there are no valid rates.
        if moment.interval.is_broken {
            return;
        }
        let mut events = Vec::new();
        for watch in &mut self.watches {
            let reading = reading(layout, &moment, watch.alert.subject, watch.alert.above);
            events.extend(watch.look(sample.at, sample.wall, reading.as_ref()));
        }
        for event in &events {
            if event.begins {
                self.begun.push(number);
                if self.begun.len() > MAX_STARTED {
                    self.begun.remove(0);
                }
            }
            self.on.retain(|line| !line.starts_with(&format!("{}:", event.alert)));
            if event.begins {
                let text = event.to_string();
                self.on.push(text.trim_start_matches("alert begins: ").to_owned());
            }
            self.pass_on(event);
        }
        self.events.extend(events);
    }

    /// Starts the command for an event, unless the command of an earlier event is still running.
    fn pass_on(&mut self, event: &Event) {
        let Some(command) = self.command.clone() else { return };
        match self.running.as_mut().map(Child::try_wait) {
            Some(Ok(None)) => {
                self.failed("the command of --on-alert still runs: an event was not passed on");
                return;
            }
            Some(Ok(Some(status))) if !status.success() => {
                self.failed(&format!("the command of --on-alert failed: {status}"));
            }
            _ => {}
        }
        match start(&command, event) {
            Ok(child) => self.running = Some(child),
            Err(error) => self.failed(&format!("cannot run the command of --on-alert: {error}")),
        }
    }

    /// Reports a problem with the command, once.
    fn failed(&mut self, text: &str) {
        if !self.has_failed {
            self.has_failed = true;
            self.on.push(text.to_owned());
        }
    }
}

/// Starts a shell command with an event as JSON on its stdin.
fn start(command: &str, event: &Event) -> io::Result<Child> {
    let (reader, mut writer) = io::pipe()?;
    // Write before the command starts: if it ended without reading, SIGPIPE would kill this
    // process. An event fits into the pipe, so this does not block.
    writeln!(writer, "{}", serde_json::to_string(event).unwrap_or_default())?;
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).stdin(reader).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

/// Returns the most alarming value of a subject.
fn reading(layout: &Layout, moment: &Moment, subject: Subject, above: bool) -> Option<Reading> {
    let Interval { cpus, packages, .. } = &moment.interval;
    let furthest = |values: Vec<(f64, String)>| {
        let most =
            values.into_iter().reduce(|one, other| if (other.0 > one.0) == above { other } else { one });
        most.map(|(value, place)| Reading { value, place })
    };
    let of_cpus = |value: &dyn Fn(&flyball_monitor::CpuInterval) -> Option<f64>| {
        let named = layout.cpus.iter().zip(cpus);
        furthest(
            named.filter_map(|(place, cpu)| Some((value(cpu)?, format!("CPU {}", place.number)))).collect(),
        )
    };
    let of_packages = |value: &dyn Fn(&flyball_monitor::PackageInterval) -> Option<f64>| {
        let named = layout.packages.iter().zip(packages);
        furthest(
            named
                .filter_map(|(place, one)| Some((value(one)?, format!("package {}", place.number))))
                .collect(),
        )
    };
    match subject {
        Subject::Throttled => {
            let held: Vec<u32> = layout
                .cpus
                .iter()
                .zip(&moment.reasons)
                .filter(|(_, reason)| reason.as_ref().is_some_and(|reason| reason.is_throttle))
                .map(|(place, _)| place.number)
                .collect();
            let list: flyball_host::CpuList = held.iter().copied().collect();
            let place = if held.is_empty() { String::new() } else { format!("CPUs {list}") };
            Some(Reading { value: held.len() as f64, place })
        }
        Subject::Package => of_packages(&|package| package.watts),
        Subject::Temperature => of_packages(&|package| package.celsius),
        Subject::Busy => {
            let busy = crate::moment::mean(cpus.iter().filter_map(|cpu| cpu.busy))?;
            Some(Reading { value: busy * 100.0, place: String::new() })
        }
        Subject::Speed => of_cpus(&|cpu| cpu.mhz),
        Subject::Got => of_cpus(&|cpu| Some(cpu.got()? * 100.0)),
    }
}
