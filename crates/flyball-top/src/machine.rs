//! A machine as a source of moments: sampled, kept for ten minutes, and recorded.

use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use flyball_host::Host;
use flyball_monitor::{
    Facts, Layout, Sampler,
    file::{RecordError, Recorder, Retention},
    history::{History, Timeline},
};
use flyball_text::date::Utc;

use crate::{Recording, Source, SourceError, Status};

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
    /// Whether a sample was taken.
    has_begun: bool,
    /// What the settings allow; without it the reasons are fewer.
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
    pub fn new(host: &'h dyn Host, sampler: Sampler<'h>, interval: Duration, speed: f64) -> Machine<'h> {
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
            has_begun: false,
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
        // The time of a machine in software passes only here.
        if self.has_begun && self.host.software().is_some() {
            self.host.sleep(self.interval);
        }
        let sample = self.sampler.sample();
        if let Some(recorder) = &mut self.recorder {
            recorder.add(sample.clone())?;
        }
        self.history.add(sample);
        if self.has_begun {
            self.learn();
        }
        self.has_begun = true;
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
            notices: &[],
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
