//! Numbers of version 7's sections and of both versions' options (libtracecmd's
//! trace-cmd-private.h).

/// The first ten bytes of every trace.dat file.
pub const MAGIC: &[u8; 10] = b"\x17\x08Dtracing";

pub(crate) const DONE: u16 = 0;
pub(crate) const CPUSTAT: u16 = 2;
pub(crate) const BUFFER: u16 = 3;
pub(crate) const TRACECLOCK: u16 = 4;
pub(crate) const UNAME: u16 = 5;
pub(crate) const CPUCOUNT: u16 = 8;
pub(crate) const VERSION: u16 = 9;
pub(crate) const TRACEID: u16 = 11;
pub(crate) const HEADER_INFO: u16 = 16;
pub(crate) const FTRACE_EVENTS: u16 = 17;
pub(crate) const EVENT_FORMATS: u16 = 18;
pub(crate) const KALLSYMS: u16 = 19;
pub(crate) const PRINTK: u16 = 20;
pub(crate) const CMDLINES: u16 = 21;
/// flyball's own option with facts about the machine, far from libtracecmd's numbers.
pub(crate) const MACHINE: u16 = 0xf1b0;
