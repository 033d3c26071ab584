//! A record of a trace, whether from ring-buffer bytes or from text.

use crate::{comm::Comm, events::Event};

/// Higher CPU numbers are damage: no x86 kernel is built for more (`NR_CPUS` in arch/x86/Kconfig).
pub const MAX_CPUS: u32 = 8192;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds, or the clock's own units if
    /// [`Clock::nanoseconds`](crate::Clock::nanoseconds) is false.
    pub time: u64,
    /// The CPU whose buffer had the record: the one on which the code ran.
    pub cpu: u32,
    /// The task that ran.
    pub pid: i32,
    /// The task's name; empty in a ring-buffer record (see [`Tasks`](crate::Tasks)).
    pub comm: Comm,
    /// `common_flags` of a ring-buffer record, or the meaning of the letters in text.
    pub flags: u8,
    /// `common_preempt_count` of a ring-buffer record, or the meaning of the digits in text.
    pub preempt: u8,
    pub event: Event,
}

impl Record {
    /// The CPU that the event describes: the one in its fields, otherwise the one on which the code
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
        // A batch of records must fit into a core's second-level cache together with its text.
        assert!(std::mem::size_of::<Record>() <= 112, "{}", std::mem::size_of::<Record>());
    }
}
