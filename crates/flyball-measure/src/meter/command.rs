//! Power of the whole machine from the user's command: `ipmitool`, a Redfish query, a metering
//! power strip.
//!
//! A thread runs the command once a second, from before the first round to after the last, and
//! keeps the readings with their times. A round takes the readings that fall into it. A round has a
//! power only if it was covered: at least two readings in it, and no gap longer than
//! [`LONGEST_GAP`].

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use flyball_host::CpuList;

use super::{Domain, EnergySource, Series, energy::POWER_COMMAND};
use crate::workload::{Command, Outcome, Stop, Workload, WorkloadError, preset::Reader};

/// From the start of one run of the command to the next. Management controllers measure about once
/// a second.
const EVERY: Duration = Duration::from_secs(1);

/// The longest time between two readings, and between the last reading and a round's end: over a
/// longer gap, the trapezoid is a guess. A Redfish query takes up to some seconds.
const LONGEST_GAP: Duration = Duration::from_secs(10);

/// Maximum number of readings kept: more than a day's.
const MAX: usize = 100_000;

#[derive(Default)]
struct PowerReadings {
    /// The time and the microwatts of each reading.
    readings: VecDeque<(Instant, u64)>,
    runs: u64,
    failed: u64,
    /// The last failure.
    failure: Option<PowerFault>,
}

/// A command that prints watts, run in the background.
pub struct PowerCommand {
    program: String,
    seen: Arc<Mutex<PowerReadings>>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Rounds that it did not cover.
    uncovered: AtomicUsize,
}

/// Data that a panicking thread left behind is complete: readings are added whole.
fn lock(seen: &Mutex<PowerReadings>) -> MutexGuard<'_, PowerReadings> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a run of a power command yields no watts.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PowerFault {
    #[error("ended with {failure} and printed: {output}")]
    Failed { failure: String, output: String },
    #[error("took more than {} s", LONGEST_GAP.as_secs())]
    TooSlow,
    #[error("{0}")]
    NotStarted(Arc<WorkloadError>),
    #[error("printed no number")]
    NoNumber,
    #[error("printed several numbers, none of them followed by W or Watts")]
    Numbers,
    #[error("printed {0} W")]
    Watts(f64),
}

/// A power command whose first run failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the power command {0}")]
pub struct PowerCommandError(pub PowerFault);

impl PowerCommand {
    /// Runs `line` in a shell, once now and then every second, on `cpus` if there are any.
    ///
    /// # Errors
    /// The first run failed, or did not print watts.
    pub fn start(line: &str, cpus: Option<CpuList>) -> Result<PowerCommand, PowerCommandError> {
        let mut command = Command::new(["/bin/sh", "-c", line].map(str::to_owned).to_vec());
        // Any reader except wall time keeps the output.
        command.reader = Reader::UserTime;
        command.cpus = cpus;
        let end = Arc::new(AtomicBool::new(false));
        let first = watts_of(&mut command, &end).map_err(PowerCommandError)?;
        let seen = Arc::new(Mutex::new(PowerReadings {
            readings: [(Instant::now(), first)].into(),
            ..PowerReadings::default()
        }));
        let thread = {
            let (seen, end) = (seen.clone(), end.clone());
            std::thread::spawn(move || {
                let mut next = Instant::now() + EVERY;
                while !end.load(Ordering::SeqCst) {
                    // Parked, so that the end does not wait for it.
                    std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
                    if end.load(Ordering::SeqCst) || Instant::now() < next {
                        continue;
                    }
                    next = Instant::now() + EVERY;
                    let read = watts_of(&mut command, &end);
                    lock(&seen).take(read);
                }
            })
        };
        // Only the program: the other words of the line may be a password.
        let program = line.split_whitespace().next().unwrap_or_default().to_owned();
        Ok(PowerCommand { program, seen, end, thread: Some(thread), uncovered: AtomicUsize::new(0) })
    }

    /// Its entry in the list of meters.
    pub(super) fn source(&self) -> EnergySource {
        EnergySource {
            domain: Domain::Platform,
            name: POWER_COMMAND.to_owned(),
            place: self.program.clone(),
            unit: 1e-6,
            wraps_after: None,
            is_power: true,
        }
    }

    /// The readings of a round; none if it was not covered.
    pub(super) fn series(&self, began: Instant, ended: Instant) -> Series {
        let mut seen = lock(&self.seen);
        let series = covered(&seen.readings, began, ended);
        // The last reading before this round's end is also the first one of the next round.
        let old = seen.readings.iter().take_while(|(at, _)| *at < ended).count();
        seen.readings.drain(..old.saturating_sub(1));
        if series.is_empty() {
            self.uncovered.fetch_add(1, Ordering::Relaxed);
        }
        series
    }

    /// Tells the user what went wrong, if anything.
    pub fn complaint(&self) -> Option<String> {
        let seen = lock(&self.seen);
        let mut words = Vec::new();
        if seen.failed > 0 {
            let last =
                seen.failure.as_ref().map(|fault| format!(" (the last one {fault})")).unwrap_or_default();
            words.push(format!("{} of {} runs failed{last}", seen.failed, seen.runs));
        }
        match self.uncovered.load(Ordering::Relaxed) {
            0 => {}
            rounds => words.push(format!(
                "{rounds} rounds have no power: fewer than two readings in them, or a gap of more than {} s",
                LONGEST_GAP.as_secs()
            )),
        }
        (!words.is_empty()).then(|| format!("power command: {}", words.join("; ")))
    }
}

impl Drop for PowerCommand {
    fn drop(&mut self) {
        self.end.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It can only have panicked, and then it printed a message.
            let _ = thread.join();
        }
    }
}

impl PowerReadings {
    fn take(&mut self, read: Result<u64, PowerFault>) {
        self.runs += 1;
        match read {
            Ok(microwatts) => {
                self.readings.push_back((Instant::now(), microwatts));
                if self.readings.len() > MAX {
                    self.readings.pop_front();
                }
            }
            Err(why) => {
                self.failed += 1;
                self.failure = Some(why);
            }
        }
    }
}

/// The readings between `began` and `ended`, in seconds since `began`, and those that hold at both
/// ends.
fn covered(readings: &VecDeque<(Instant, u64)>, began: Instant, ended: Instant) -> Series {
    let inside: Vec<(Instant, u64)> =
        readings.iter().copied().filter(|(at, _)| (began..=ended).contains(at)).collect();
    let before = readings.iter().rev().find(|(at, _)| *at < began).or(inside.first());
    let (Some(before), Some(last), true) = (before, inside.last(), inside.len() >= 2) else {
        return Series::new();
    };
    let times = [before.0].into_iter().chain(inside.iter().map(|(at, _)| *at)).chain([ended]);
    let times: Vec<Instant> = times.collect();
    if times.windows(2).any(|pair| pair[1].saturating_duration_since(pair[0]) > LONGEST_GAP)
        || inside.first().is_some_and(|first| first.0.duration_since(began) > LONGEST_GAP)
    {
        return Series::new();
    }
    let seconds = |at: Instant| at.duration_since(began).as_secs_f64();
    let mut series = vec![(0.0, before.1)];
    series.extend(inside.iter().map(|(at, microwatts)| (seconds(*at), *microwatts)));
    series.push((seconds(ended), last.1));
    series
}

/// Runs the command. Returns the microwatts that it printed, or why it printed none.
fn watts_of(command: &mut Command, end: &AtomicBool) -> Result<u64, PowerFault> {
    let began = Instant::now();
    let stop = Stop::default();
    let mut tick = || {
        if end.load(Ordering::SeqCst) || began.elapsed() > LONGEST_GAP {
            stop.ask();
        }
    };
    let outcome = command.run(&flyball_host::Live::new(), Duration::from_millis(50), &mut tick, &stop);
    match outcome {
        Ok(Outcome { failure: Some(failure), output, .. }) => {
            let said = output.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
            Err(PowerFault::Failed { failure, output: said.to_owned() })
        }
        Ok(outcome) => watts(&outcome.output),
        Err(WorkloadError::Stopped) => Err(PowerFault::TooSlow),
        Err(error) => Err(PowerFault::NotStarted(Arc::new(error))),
    }
}

/// The first number before `W`, `watt` or `watts`, as `ipmitool dcmi power reading` and `ipmitool
/// sdr` print it; if there is none, the only number. In microwatts.
fn watts(text: &str) -> Result<u64, PowerFault> {
    let words: Vec<&str> =
        text.split([' ', '\t', '\n', '\r', '|', ':', ',']).filter(|word| !word.is_empty()).collect();
    let number = |word: &str| word.parse::<f64>().ok().filter(|number| number.is_finite());
    let is_unit = |word: &str| ["w", "watt", "watts"].contains(&word.to_ascii_lowercase().as_str());
    let with_unit = words.iter().enumerate().find_map(|(at, word)| {
        let follows = words.get(at + 1).is_some_and(|next| is_unit(next));
        let end = word.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(word.len());
        (follows || is_unit(&word[end..])).then(|| number(&word[..end])).flatten()
    });
    let numbers: Vec<f64> = words.iter().filter_map(|word| number(word)).collect();
    let watts = match (with_unit, numbers.as_slice()) {
        (Some(watts), _) => watts,
        (None, [only]) => *only,
        (None, []) => return Err(PowerFault::NoNumber),
        (None, _) => return Err(PowerFault::Numbers),
    };
    // A controller that cannot measure answers 0, and no machine takes a megawatt.
    if watts > 0.0 && watts < 1e6 { Ok((watts * 1e6) as u64) } else { Err(PowerFault::Watts(watts)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watts_are_read_as_tools_print_them() {
        let dcmi = "\n    Instantaneous power reading:                   214 Watts\n    Minimum during sampling period:  \
                    74 Watts\n    IPMI timestamp:                           Thu Jan  1 00:01:02 1970\n";
        for (text, expected) in [
            (dcmi, 214.0),
            ("PS1 Input Power  | 88 Watts          | ok\nPS2 Input Power  | 92 Watts  | ok\n", 88.0),
            ("Pwr Consumption  | 154\n", 154.0),
            ("151.5\n", 151.5),
            ("98.5W\n", 98.5),
            ("power: 120 W, 3 A", 120.0),
        ] {
            assert_eq!(watts(text).ok(), Some((expected * 1e6) as u64), "{text}");
        }
        for text in ["", "no reading", "3 4", "0", "-5", "nan", "1e9", "inf W"] {
            assert!(watts(text).is_err(), "{text}: {:?}", watts(text));
        }
    }

    #[test]
    fn a_round_needs_readings_without_gaps() {
        let zero = Instant::now() + Duration::from_secs(100);
        let at = |seconds: f64| zero + Duration::from_secs_f64(seconds);
        let series = |times: &[f64], to: f64| {
            // 10 W more with each reading.
            let readings = times.iter().enumerate().map(|(n, time)| {
                let time = if *time < 0.0 { zero - Duration::from_secs_f64(-time) } else { at(*time) };
                (time, 10_000_000 * (n as u64 + 1))
            });
            covered(&readings.collect(), zero, at(to))
        };
        // An earlier reading holds at the start, and the last one at the end.
        let whole = series(&[-0.5, 0.5, 1.5], 2.0);
        let micro: Vec<u64> = whole.iter().map(|(_, value)| value / 1_000_000).collect();
        assert_eq!(micro, [10, 20, 30, 30]);
        assert_eq!((whole[0].0, whole[3].0), (0.0, 2.0));
        // One reading is not enough; nor are two with a long gap, at either end or between.
        assert!(series(&[-0.5, 0.5], 1.0).is_empty());
        assert!(series(&[-0.5], 1.0).is_empty());
        assert!(series(&[1.0, 2.0, 13.0], 14.0).is_empty());
        assert!(series(&[1.0, 2.0], 14.0).is_empty());
        assert!(series(&[11.0, 12.0], 13.0).is_empty());
        assert!(series(&[-11.0, 1.0, 2.0], 3.0).is_empty());
        assert!(!series(&[1.0, 2.0], 3.0).is_empty());
    }

    #[test]
    fn a_command_that_fails_at_once_is_an_error() {
        for (line, words) in
            [("exit 3", "exit 3"), ("echo none", "no number"), ("echo oops >&2; false", "oops")]
        {
            let error =
                PowerCommand::start(line, None).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(words), "{line}: {error}");
        }
    }

    #[test]
    fn failures_are_counted() {
        let mut seen = PowerReadings::default();
        seen.take(Ok(1));
        seen.take(Err(PowerFault::Failed { failure: "exit 1".to_owned(), output: "no".to_owned() }));
        let command = PowerCommand {
            program: "x".to_owned(),
            seen: Arc::new(Mutex::new(seen)),
            end: Arc::default(),
            thread: None,
            uncovered: AtomicUsize::new(0),
        };
        assert!(command.series(Instant::now(), Instant::now()).is_empty());
        let words = command.complaint().unwrap_or_default();
        assert!(words.contains("1 of 2 runs failed") && words.contains("1 rounds have no power"), "{words}");
    }
}
