//! Task switches (include/trace/events/sched.h).
//!
//! Written by hand instead of declared with `event!`: names of tasks contain blanks, and trace-cmd
//! prints the event in its own format.

use std::fmt;

use super::{
    declare::KernelEvent,
    field::{Kind, Layout, Name, Signed, Slot, after},
};
use crate::{comm::Comm, format::Field, scan::signed};

/// `sched:sched_switch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Switch {
    /// Name of the task that stops running.
    pub prev_comm: Comm,
    /// Number of the task that stops running.
    pub prev_pid: i32,
    /// Priority of the task that stops running.
    pub prev_prio: i32,
    /// Name of the task that starts running.
    pub next_comm: Comm,
    /// Number of the task that starts running.
    pub next_pid: i32,
    /// Priority of the task that starts running.
    pub next_prio: i32,
}

/// Locations of the fields of [`Switch`].
#[derive(Debug, Clone)]
pub(crate) struct Places {
    prev_comm: Field,
    prev_pid: Slot,
    prev_prio: Slot,
    next_comm: Field,
    next_pid: Slot,
    next_prio: Slot,
}

impl KernelEvent for Switch {
    const SYSTEM: &'static str = "sched";
    const NAME: &'static str = "sched_switch";
    const FIELDS: &'static [&'static [&'static str]] =
        &[&["prev_comm"], &["prev_pid"], &["prev_prio"], &["next_comm"], &["next_pid"], &["next_prio"]];
    const EXAMPLE: &'static str =
        "prev_comm=a b prev_pid=7 prev_prio=120 ==> next_comm=swapper/0 next_pid=0 next_prio=120";
    type Places = Places;

    fn places(layout: Layout<'_>) -> Option<Places> {
        Some(Places {
            prev_comm: Name::place(layout, &["prev_comm"])?,
            prev_pid: Signed::place(layout, &["prev_pid"])?,
            prev_prio: Signed::place(layout, &["prev_prio"])?,
            next_comm: Name::place(layout, &["next_comm"])?,
            next_pid: Signed::place(layout, &["next_pid"])?,
            next_prio: Signed::place(layout, &["next_prio"])?,
        })
    }

    fn decode(places: &Places, record: &[u8]) -> Switch {
        Switch {
            prev_comm: Name::decode(&places.prev_comm, record),
            prev_pid: Signed::decode(&places.prev_pid, record),
            prev_prio: Signed::decode(&places.prev_prio, record),
            next_comm: Name::decode(&places.next_comm, record),
            next_pid: Signed::decode(&places.next_pid, record),
            next_prio: Signed::decode(&places.next_prio, record),
        }
    }

    fn parse(text: &[u8]) -> Option<Switch> {
        // Try the kernel's format first: a name in it may look like the other format.
        parse_kernel(text).or_else(|| parse_trace_cmd(text))
    }

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Switch { prev_comm, prev_pid, prev_prio, next_comm, next_pid, next_prio } = self;
        write!(
            f,
            "prev_comm={prev_comm} prev_pid={prev_pid} prev_prio={prev_prio} ==> \
             next_comm={next_comm} next_pid={next_pid} next_prio={next_prio}"
        )
    }
}

/// `prev_comm=a b prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=c next_pid=2 next_prio=120`
fn parse_kernel(text: &[u8]) -> Option<Switch> {
    let at = after(text, 0, b"prev_comm=")?;
    let arrow = memchr::memmem::find(text, b" ==> next_comm=")?;
    let previous = text.get(at..arrow)?;
    // A name may contain ` prev_pid=`, so the last one is the field.
    let pid = memchr::memmem::rfind(previous, b" prev_pid=")?;
    let next = &text[arrow + 15..];
    let next_pid = memchr::memmem::rfind(next, b" next_pid=")?;
    Some(Switch {
        prev_comm: Comm::new(&previous[..pid]),
        prev_pid: signed(previous, pid + 10)?.0 as i32,
        prev_prio: Signed::find(&previous[pid..], "prev_prio=")?,
        next_comm: Comm::new(&next[..next_pid]),
        next_pid: signed(next, next_pid + 10)?.0 as i32,
        next_prio: Signed::find(&next[next_pid..], "next_prio=")?,
    })
}

/// `a b:1 [120] S ==> c:2 [120]`
fn parse_trace_cmd(text: &[u8]) -> Option<Switch> {
    let arrow = memchr::memmem::find(text, b" ==> ")?;
    let task = |part: &[u8]| {
        // Search from the end: a name may contain colons and brackets, but none follow it.
        let bracket = memchr::memrchr(b'[', part)?;
        let colon = memchr::memrchr(b':', &part[..bracket])?;
        let pid = signed(part, colon + 1)?.0 as i32;
        let prio = signed(part, bracket + 1)?.0 as i32;
        Some((Comm::new(&part[..colon]), pid, prio))
    };
    let (prev_comm, prev_pid, prev_prio) = task(&text[..arrow])?;
    let (next_comm, next_pid, next_prio) = task(&text[arrow + 5..])?;
    Some(Switch { prev_comm, prev_pid, prev_prio, next_comm, next_pid, next_prio })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_with_odd_names_are_read() {
        let text = b"prev_comm=a prev_pid=9 prev_pid=7 prev_prio=120 prev_state=R+ ==> next_comm=next_pid=3 x next_pid=8 next_prio=-1";
        let event = Switch::parse(text).unwrap();
        assert_eq!(event.prev_comm.to_string(), "a prev_pid=9");
        assert_eq!((event.prev_pid, event.next_pid, event.next_prio), (7, 8, -1));
        let event = Switch::parse(b"kworker/1:1:41 [120] D ==> swapper/1:0 [120]").unwrap();
        assert_eq!(
            (event.prev_comm.to_string().as_str(), event.prev_pid, event.next_pid),
            ("kworker/1:1", 41, 0)
        );
    }
}
