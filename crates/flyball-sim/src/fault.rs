//! Faults that are injected into a machine by rule.
//!
//! A rule watches accesses to files ([`Op`]), or the clock. It is written in one line
//! (`fault/rule.rs`):
//!
//! ```
//! use flyball_sim::Fault;
//! // The third write to any scaling_max_freq fails with EIO.
//! let fault: Fault = "write cpufreq/policy*/scaling_max_freq fails EIO nth 3".parse().unwrap();
//! // The fan is blocked after a minute, for two minutes.
//! let fault: Fault = "fan blocked after 1min for 2min".parse().unwrap();
//! # let _ = fault;
//! ```

mod rule;

use crate::errno::Errno;

pub use rule::{FORMS, RuleError, RuleFlaw};

/// The kind of access that a rule watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Read,
    Write,
    /// Calls of ioctl(2).
    Ioctl,
}

/// Factor by which a sheet of paper in front of a desktop's fan multiplies the resistance to air;
/// set from the lowest frequency of the blocked-fan experiment, 1533 MHz.
pub(crate) const BLOCKED: f64 = 7.7;

/// The effect of a rule when it fires.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    /// The access fails.
    Fail(Errno),
    /// The write succeeds but changes nothing.
    Ignore,
    /// Another program writes this text to this path. If an access fires it, the write comes just
    /// before the access.
    ForeignWrite(String, Vec<u8>),
    /// CPUs go offline, or come back.
    Online(Vec<u32>, bool),
    /// Multiplies the cooler's resistance to air by this factor.
    Fan(f64),
    /// Sets the air's temperature, Celsius; `None` restores the machine's own.
    Air(Option<f64>),
    /// Firmware caps CPUs at this frequency, kHz, regardless of requests; `None` ends it.
    Hold(Vec<u32>, Option<u32>),
}

impl Effect {
    /// The effect that ends this one, if it can last.
    fn undo(&self) -> Option<Effect> {
        Some(match self {
            Effect::Online(cpus, online) => Effect::Online(cpus.clone(), !online),
            Effect::Fan(_) => Effect::Fan(1.0),
            Effect::Air(_) => Effect::Air(None),
            Effect::Hold(cpus, _) => Effect::Hold(cpus.clone(), None),
            Effect::Fail(_) | Effect::Ignore | Effect::ForeignWrite(..) => return None,
        })
    }
}

/// The condition under which a rule fires.
#[derive(Debug, Clone, PartialEq)]
enum When {
    /// On accesses to paths that match: only the `nth` (1 is the first), or each (0).
    Access { pattern: String, op: Op, nth: u32, seen: u32 },
    /// At a time since boot, in nanoseconds; then again every `every`, or undone after `lasts`.
    Clock { due: u64, every: u64, lasts: u64 },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    when: When,
    effect: Effect,
}

impl Fault {
    /// Number of accesses that the rule has watched; 0 for a rule that follows the clock.
    pub fn seen(&self) -> u32 {
        match self.when {
            When::Access { seen, .. } => seen,
            When::Clock { .. } => 0,
        }
    }

    fn access(pattern: String, op: Op, effect: Effect) -> Fault {
        Fault { when: When::Access { pattern, op, nth: 0, seen: 0 }, effect }
    }

    /// Accesses to paths that match `pattern` (where `*` stands for any text without a slash) fail
    /// with `errno`.
    pub fn errno(pattern: impl Into<String>, op: Op, errno: Errno) -> Fault {
        Fault::access(pattern.into(), op, Effect::Fail(errno))
    }

    /// Writes to paths that match `pattern` succeed and change nothing, as firmware sometimes does.
    pub fn ignored(pattern: impl Into<String>) -> Fault {
        Fault::access(pattern.into(), Op::Write, Effect::Ignore)
    }

    /// Just before a matching access, another program writes `text` to `path`: a daemon that owns
    /// the knob, or a CPU that goes offline (`0` to its `online`).
    pub fn foreign_write(
        pattern: impl Into<String>,
        op: Op,
        path: impl Into<String>,
        text: impl Into<Vec<u8>>,
    ) -> Fault {
        Fault::access(pattern.into(), op, Effect::ForeignWrite(path.into(), text.into()))
    }

    /// Fires at the `nth` matching access only; the first is 1.
    #[must_use]
    pub fn at(mut self, number: u32) -> Fault {
        if let When::Access { nth, .. } = &mut self.when {
            *nth = number;
        }
        self
    }

    /// Counts an access. Returns the effect if the rule fires.
    pub(crate) fn fires(&mut self, path: &str, op: Op) -> Option<Effect> {
        let When::Access { pattern, op: watched, nth, seen } = &mut self.when else { return None };
        if *watched != op || !matches(pattern.as_bytes(), path.as_bytes()) {
            return None;
        }
        // Count every access: `nth` is the number of the access, not of the fault.
        *seen = seen.saturating_add(1);
        (*nth == 0 || nth == seen).then(|| self.effect.clone())
    }

    /// Time when the clock next fires the rule, in nanoseconds since boot.
    pub(crate) fn due(&self) -> Option<u64> {
        match self.when {
            When::Clock { due, .. } if due != u64::MAX => Some(due),
            _ => None,
        }
    }

    /// Returns the effect of a due rule. The rule then waits for its next time, or for the end of
    /// its effect.
    pub(crate) fn fire_due(&mut self) -> Effect {
        let effect = self.effect.clone();
        if let When::Clock { due, every, lasts } = &mut self.when {
            match (self.effect.undo(), *lasts, *every) {
                (Some(undo), 1.., _) => {
                    self.effect = undo;
                    // The rule now undoes its effect; with `lasts` at 0 it will not fire again.
                    *due = due.saturating_add(std::mem::take(lasts));
                }
                (_, _, 1..) => *due = due.saturating_add(*every),
                _ => *due = u64::MAX,
            }
        }
        effect
    }

    /// The paths and CPUs in the rule.
    pub(crate) fn names(&self) -> (Vec<&str>, &[u32]) {
        let mut paths = Vec::new();
        if let When::Access { pattern, .. } = &self.when {
            paths.push(pattern.as_str());
        }
        match &self.effect {
            Effect::ForeignWrite(path, _) => {
                paths.push(path);
                (paths, &[])
            }
            Effect::Online(cpus, _) | Effect::Hold(cpus, _) => (paths, cpus),
            _ => (paths, &[]),
        }
    }

    /// Returns whether the rule counts reads. If so, replaying writes alone would not reproduce the
    /// machine.
    pub fn watches_reads(&self) -> bool {
        matches!(self.when, When::Access { op: Op::Read, .. })
    }
}

/// Glob matching with `*` for any text without a slash.
pub(crate) fn matches(pattern: &[u8], path: &[u8]) -> bool {
    match pattern.split_first() {
        None => path.is_empty(),
        Some((b'*', rest)) => {
            let reach = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
            // Patterns come from the user's own command line and have few stars, so backtracking is
            // cheap.
            (0..=reach).any(|taken| matches(rest, &path[taken..]))
        }
        Some((first, rest)) => {
            path.split_first().is_some_and(|(byte, path)| byte == first && matches(rest, path))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        assert!(matches(b"/a/policy*/x", b"/a/policy12/x"));
        assert!(!matches(b"/a/policy*/x", b"/a/policy1/b/x"));
        assert!(matches(b"*", b"abc"));
        assert!(!matches(b"/a", b"/ab"));
    }

    #[test]
    fn the_nth_only() {
        let mut fault = Fault::errno("/x", Op::Write, Errno::IO).at(2);
        let fired: Vec<bool> = (0..3).map(|_| fault.fires("/x", Op::Write).is_some()).collect();
        assert_eq!(fired, [false, true, false]);
        assert!(fault.fires("/x", Op::Read).is_none());
    }

    #[test]
    fn what_lasts_is_undone_and_what_repeats_comes_again() {
        let mut fan: Fault = "fan blocked after 2s for 3s".parse().unwrap();
        assert_eq!(fan.due(), Some(2_000_000_000));
        assert_eq!(fan.fire_due(), Effect::Fan(BLOCKED));
        assert_eq!(fan.due(), Some(5_000_000_000));
        assert_eq!(fan.fire_due(), Effect::Fan(1.0));
        assert_eq!(fan.due(), None);
        let mut daemon: Fault = "/sys/x=1 every 10s".parse().unwrap();
        assert_eq!(daemon.due(), Some(10_000_000_000));
        daemon.fire_due();
        assert_eq!(daemon.due(), Some(20_000_000_000));
    }
}
