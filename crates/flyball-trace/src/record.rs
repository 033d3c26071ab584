//! One record of a trace, in the same form whether it came out of ring-buffer bytes or out of text.

use crate::{comm::Comm, events::Event};

/// CPU numbers from here on are taken for damage: no x86 kernel is built for more (`NR_CPUS` of
/// arch/x86/Kconfig).
pub const MAX_CPUS: u32 = 8192;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds, or the clock's own units if
    /// [`Clock::nanoseconds`](crate::Clock::nanoseconds) is false.
    pub time: u64,
    /// The CPU whose buffer held the record: where the code ran.
    pub cpu: u32,
    /// The task that ran.
    pub pid: i32,
    /// The task's name; empty in a ring-buffer record (see [`Tasks`](crate::Tasks)).
    pub comm: Comm,
    /// `common_flags` of a ring-buffer record; from text what its letters say.
    pub flags: u8,
    /// `common_preempt_count` of a ring-buffer record; from text what its digits say.
    pub preempt: u8,
    pub event: Event,
}

impl Record {
    /// The CPU that the event is about: the one in its fields, otherwise the one where the code
    /// ran.
    #[inline]
    pub fn subject(&self) -> u32 {
        self.event.about().unwrap_or(self.cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_stay_small() {
        // A batch of them must stay in a core's second-level cache together with the text that it
        // was read from.
        assert!(std::mem::size_of::<Record>() <= 112, "{}", std::mem::size_of::<Record>());
    }
}
