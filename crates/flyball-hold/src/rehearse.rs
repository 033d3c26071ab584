//! Rehearsals: events from a file are played to the service on a simulated machine.
//!
//! ```text
//! # TIME EVENT, in the order of time
//! 10s   power battery
//! 1min  starts /usr/bin/gamescope
//! 2min  writes /sys/devices/system/cpu/cpufreq/policy0/scaling_governor powersave as tuned
//! 3min  offline 3
//! 1h    resume 8h
//! ```

use std::{path::PathBuf, time::Duration};

use flyball_control::write::state::StateDir;
use flyball_host::{
    Host, HostError,
    watch::{DeviceAction, Event, LocalTime, Writer},
};
use flyball_text::span;

use crate::{
    Condition, Config, ConfigError, Facts, Limit, Moment, Notice, Power, Profiles, Service, StoreError,
};

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Act {
    Power(Power),
    Program {
        path: PathBuf,
        starts: bool,
    },
    /// A unit, a control group or a user, in the spelling of conditions.
    Group {
        called: String,
        starts: bool,
    },
    Pressure(String),
    /// Temperature in degrees Celsius.
    Temperature(i32),
    Limit(Limit),
    Cpu {
        number: u32,
        online: bool,
    },
    /// A write by another program, or by firmware or the kernel, which report nothing.
    Write {
        path: String,
        value: String,
        by: Option<String>,
    },
    Resume(Duration),
    Clock(u32),
}

/// An event and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimedEvent {
    /// Time since the rehearsal began.
    pub at: Duration,
    /// The event as it was written.
    pub text: String,
    line: usize,
    act: Act,
}

/// Limit on the events in a file. Each may make the service plan everything again.
const MAX_EVENTS: usize = 100_000;

/// The events that a message lists.
const KNOWN: &str = "power ac|battery, starts|ends PATH|unit NAME|cgroup PATH|user NAME, pressure TEXT, temperature 90C, \
                     limit thermal|power, online|offline CPU, writes PATH VALUE [as NAME], changes PATH VALUE, resume TIME, clock HH:MM";

/// Reads a file of events; `file` is its name in messages.
///
/// # Errors
/// The first invalid line.
pub fn events(bytes: &[u8], file: &str) -> Result<Vec<TimedEvent>, ConfigError> {
    let text = String::from_utf8_lossy(bytes);
    let mut found: Vec<TimedEvent> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line_text = line.trim();
        if line_text.is_empty() || line_text.starts_with('#') {
            continue;
        }
        let wrong = |what: String| ConfigError { file: file.to_owned(), line: number + 1, column: 1, what };
        // A line with only a time is an unknown event, so the error lists the events.
        let (time, event) = line_text.split_once(char::is_whitespace).unwrap_or((line_text, ""));
        let at =
            offset(time).ok_or_else(|| wrong(format!("'{time}' is not a time; write 30s, 5min or 2h")))?;
        if found.last().is_some_and(|last| last.at > at) {
            return Err(wrong("the time is before that of the line above".to_owned()));
        }
        if found.len() >= MAX_EVENTS {
            return Err(wrong(format!("there are more than {MAX_EVENTS} events")));
        }
        let text = event.trim().to_owned();
        let act = act(&text).ok_or_else(|| wrong(format!("'{text}' is not an event; there are {KNOWN}")))?;
        found.push(TimedEvent { at, text, line: number + 1, act });
    }
    Ok(found)
}

/// Parses a time since the start, at most a day.
fn offset(text: &str) -> Option<Duration> {
    span::parse(text).ok().filter(|time| *time <= Duration::from_secs(86_400))
}

fn act(text: &str) -> Option<Act> {
    let words: Vec<&str> = text.split_whitespace().collect();
    // Check the parts that conditions share as a condition does.
    let part = |key: &str, value: &str| {
        let mut condition = Condition::default();
        condition.add(key, value).ok().map(|()| condition)
    };
    Some(match words[..] {
        ["power", power] => Act::Power(power.parse().ok()?),
        [verb @ ("starts" | "ends"), path] => {
            Act::Program { path: part("program", path)?.program?, starts: verb == "starts" }
        }
        [verb @ ("starts" | "ends"), kind @ ("unit" | "cgroup" | "user"), name] => {
            let called = part(kind, name)?.to_string();
            Act::Group { called, starts: verb == "starts" }
        }
        ["pressure", ..] => {
            Act::Pressure(part("pressure", text.strip_prefix("pressure")?.trim())?.pressure?.to_string())
        }
        ["temperature", degrees] => Act::Temperature(part("temperature", degrees)?.temperature?.0),
        ["limit", limit] => Act::Limit(limit.parse().ok()?),
        [verb @ ("online" | "offline"), cpu] => {
            Act::Cpu { number: cpu.parse().ok()?, online: verb == "online" }
        }
        [verb @ ("writes" | "changes"), path, value] if path.starts_with("/sys/") => {
            let by = (verb == "writes").then(|| "another-program".to_owned());
            Act::Write { path: path.to_owned(), value: value.to_owned(), by }
        }
        ["writes", path, value, "as", name] if path.starts_with("/sys/") => {
            Act::Write { path: path.to_owned(), value: value.to_owned(), by: Some(name.to_owned()) }
        }
        ["resume", time] => Act::Resume(offset(time)?),
        ["clock", time] => {
            let (hours, minutes) = time.split_once(':')?;
            let number = |text: &str, below: u32| text.parse::<u32>().ok().filter(|number| *number < below);
            Act::Clock(number(hours, 24)? * 60 + number(minutes, 60)?)
        }
        _ => return None,
    })
}

/// A notice of the service, and its time.
#[derive(Debug, Clone, PartialEq)]
pub struct TimedNotice {
    /// Time since the rehearsal began.
    pub at: Duration,
    pub notice: Notice,
}

/// A service on a simulated machine, whose clock the caller controls.
pub struct Rehearsal<'h> {
    host: &'h dyn Host,
    service: Service<'h>,
    facts: Facts,
    since: Duration,
    now: Duration,
    /// Minutes of the day at which the rehearsal began.
    began: u32,
    /// How often a real service would have woken up.
    pub wake_ups: u64,
}

/// Noon, when no window of the night is open.
const BEGINS: u32 = 12 * 60;

impl<'h> Rehearsal<'h> {
    /// Starts the service with this configuration at noon, on a machine without a power supply,
    /// heat or users.
    ///
    /// # Errors
    /// As [`Service::start`]; also if the lock is taken.
    pub fn start(
        host: &'h dyn Host,
        state: StateDir,
        config: Result<Config, ConfigError>,
        profiles: Profiles<'_>,
    ) -> Result<Rehearsal<'h>, crate::ChangeError> {
        let since = host.now();
        let moment = Moment { now: since, unix: 0, local: LocalTime { minutes: BEGINS, seconds: 0 } };
        let lock = state.lock("flyball hold rehearse")?;
        let mut service = Service::start(host, state, lock, Vec::new(), config, profiles, moment)
            .map_err(|error: StoreError| crate::ChangeError::Store(error))?;
        service.rehearse(Facts::default());
        let (facts, now, began) = (Facts::default(), Duration::ZERO, BEGINS);
        Ok(Rehearsal { host, service, facts, since, now, began, wake_ups: 0 })
    }

    fn moment(&self) -> Moment {
        let seconds = self.now.as_secs();
        let minutes = (u64::from(self.began) + seconds / 60) % (24 * 60);
        let local = LocalTime { minutes: minutes as u32, seconds: (seconds % 60) as u32 };
        Moment { now: self.since + self.now, unix: seconds, local }
    }

    fn handle(&mut self, events: Vec<Event>) -> Vec<TimedNotice> {
        self.wake_ups += 1;
        let moment = self.moment();
        self.service.handle(events, moment);
        self.done()
    }

    /// Returns what the service did since the last call.
    pub fn done(&mut self) -> Vec<TimedNotice> {
        let at = self.now;
        self.service.notices().into_iter().map(|notice| TimedNotice { at, notice }).collect()
    }

    /// Lets time pass. The service compares, and conditions on time begin and end.
    pub fn until(&mut self, at: Duration) -> Vec<TimedNotice> {
        let mut done = Vec::new();
        loop {
            // If a deadline is due now, a wait of 0 would not get past it.
            let pause = self.service.sleep_for(self.moment().now).max(Duration::from_millis(1));
            if self.now + pause > at {
                break;
            }
            self.now += pause;
            done.extend(self.handle(Vec::new()));
        }
        self.now = self.now.max(at);
        done
    }

    /// Plays an event at its time.
    ///
    /// # Errors
    /// The machine refuses the event's change. The error has the line and the errno.
    pub fn play(&mut self, event: &TimedEvent) -> Result<Vec<TimedNotice>, String> {
        let mut done = self.until(event.at);
        let fail = |error: HostError| format!("line {}: {error}", event.line);
        let report = match &event.act {
            Act::Power(power) => {
                self.facts.power = Some(*power);
                // Only the path decides what the report is about. No file is read.
                let path = "/sys/devices/platform/rehearsed/power_supply/AC".to_owned();
                Some(Event::Device { action: DeviceAction::Changed, path })
            }
            Act::Program { path, starts } => {
                // Any number will do: it only matters whether the program has processes.
                let pid = 1;
                let program = path.clone();
                if *starts {
                    self.facts.running.insert(program.clone(), [pid].into());
                    Some(Event::Started { program, pid })
                } else {
                    self.facts.running.remove(path);
                    Some(Event::Ended { pid })
                }
            }
            Act::Group { called, starts } => {
                if *starts {
                    self.facts.populated.insert(called.clone());
                } else {
                    self.facts.populated.remove(called);
                }
                Some(Event::Group)
            }
            Act::Pressure(name) => Some(Event::Pressure { name: name.clone() }),
            // The kernel reports neither, so the service reads them when they are due.
            Act::Temperature(degrees) => {
                self.facts.temperature = Some(degrees.saturating_mul(1000));
                None
            }
            Act::Limit(limit) => {
                *self.facts.limits.entry(*limit).or_insert(0) += 1;
                None
            }
            Act::Cpu { number, online } => {
                let path = format!("/sys/devices/system/cpu/cpu{number}");
                let value: &[u8] = if *online { b"1" } else { b"0" };
                self.host.write(&format!("{path}/online"), value).map_err(fail)?;
                let action = if *online { DeviceAction::Online } else { DeviceAction::Offline };
                Some(Event::Device { action, path })
            }
            Act::Write { path, value, by } => {
                self.host.write(path, value.as_bytes()).map_err(fail)?;
                let by = by.clone().map(|name| Writer { pid: 0, name: Some(name), unit: None });
                by.map(|by| Event::Written { path: flyball_host::watch::real_path(self.host, path), by })
            }
            Act::Resume(asleep) => {
                // Boot time continues in sleep (CLOCK_BOOTTIME), so holds may have ended.
                self.now += *asleep;
                Some(Event::Resumed { asleep: *asleep })
            }
            Act::Clock(minutes) => {
                // Only the wall clock is set, and the time since boot continues. So the rehearsal's
                // day must have begun that long before the new time.
                let passed = (self.now.as_secs() / 60 % (24 * 60)) as u32;
                self.began = (minutes + 24 * 60 - passed) % (24 * 60);
                Some(Event::ClockSet)
            }
        };
        // Before the report, because the service reads the facts when it arrives.
        self.service.rehearse(self.facts.clone());
        done.extend(report.map(|report| self.handle(vec![report])).unwrap_or_default());
        Ok(done)
    }

    /// Returns the service, for checks at the end.
    pub fn service(&self) -> &Service<'h> {
        &self.service
    }

    /// Returns the present facts for conditions, and the time since boot.
    pub fn facts(&self) -> (Facts, Duration) {
        (self.service.facts().clone(), self.moment().now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_lines_and_a_wrong_one_is_named() {
        let text = "# a day\n0s power ac\n10s starts unit db.service\n10s writes /sys/a b as tuned\n1min changes /sys/a c\n\
                    2min pressure cpu some 15% over 10s\n1h resume 8h\n1h clock 22:30\n2h offline 3\n";
        let events = events(text.as_bytes(), "day").unwrap();
        assert_eq!((events.len(), events[2].line, events[1].text.as_str()), (8, 4, "starts unit db.service"));
        for bad in [
            "power ac",
            "1s",
            "1s power wind",
            "1s starts gamescope",
            "1s writes /etc/passwd x",
            "2s power ac\n1s power ac",
            "1s offline x",
            "1s clock 25:00",
        ] {
            assert!(super::events(bad.as_bytes(), "bad").is_err(), "{bad}");
        }
    }
}
