//! Faults by rule: what goes wrong on a machine, injected on purpose.
//!
//! ```
//! use flyball_sim::{Errno, Fault, Op};
//! // The third write to any scaling_max_freq fails with EIO.
//! let fault = Fault::errno("/sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq", Op::Write, Errno::IO).at(3);
//! # let _ = fault;
//! ```

use crate::errno::Errno;

/// What a rule watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Calls of ioctl(2).
    Ioctl,
}

/// What happens when a rule fires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The access fails.
    Fail(Errno),
    /// The write succeeds and is lost.
    Ignore,
    /// Before the access, somebody else writes this text to this path.
    Meddle(String, Vec<u8>),
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pattern: String,
    op: Op,
    effect: Effect,
    /// Fires at this matching access (1 is the first), and only there; 0 fires at each.
    nth: u32,
    seen: u32,
}

impl Fault {
    /// Accesses to paths that match `pattern` (where `*` stands for any text without a slash) fail with `errno`.
    pub fn errno(pattern: impl Into<String>, op: Op, errno: Errno) -> Fault {
        Fault { pattern: pattern.into(), op, effect: Effect::Fail(errno), nth: 0, seen: 0 }
    }

    /// Writes to paths that match `pattern` succeed and change nothing, as firmware sometimes does.
    pub fn ignored(pattern: impl Into<String>) -> Fault {
        Fault { pattern: pattern.into(), op: Op::Write, effect: Effect::Ignore, nth: 0, seen: 0 }
    }

    /// Just before a matching access, another program writes `text` to `path`: a daemon that owns the knob, or a CPU
    /// that goes offline (`0` to its `online`).
    pub fn meddler(
        pattern: impl Into<String>,
        op: Op,
        path: impl Into<String>,
        text: impl Into<Vec<u8>>,
    ) -> Fault {
        Fault {
            pattern: pattern.into(),
            op,
            effect: Effect::Meddle(path.into(), text.into()),
            nth: 0,
            seen: 0,
        }
    }

    /// Fires at the `nth` matching access only; the first is 1.
    #[must_use]
    pub fn at(mut self, nth: u32) -> Fault {
        self.nth = nth;
        self
    }

    /// Counts an access; the effect if the rule fires.
    pub(crate) fn fires(&mut self, path: &str, op: Op) -> Option<Effect> {
        if self.op != op || !matches(self.pattern.as_bytes(), path.as_bytes()) {
            return None;
        }
        self.seen += 1;
        (self.nth == 0 || self.nth == self.seen).then(|| self.effect.clone())
    }
}

/// Glob matching with `*` for any text without a slash.
fn matches(pattern: &[u8], path: &[u8]) -> bool {
    match pattern.split_first() {
        None => path.is_empty(),
        Some((b'*', rest)) => {
            let reach = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
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
}
