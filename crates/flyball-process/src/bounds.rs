//! Limits on the memory and processor time of this process. If it exceeds them, it ends with a
//! message and an exit code, not by SIGABRT or SIGXCPU.

#![allow(unsafe_code, reason = "GlobalAlloc, sigaction(2), write(2) and _exit(2) in a signal's handler")]

use std::{
    alloc::{GlobalAlloc, Layout},
    io,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Returns the limit on the stack of this process (`ulimit -s`), in bytes; `None` if there is none.
pub fn stack() -> Option<u64> {
    getrlimit(Resource::Stack).current
}

/// The limits, and the messages on stderr if one is exceeded.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Bytes of private and writable memory.
    pub memory: u64,
    /// Seconds of processor time.
    pub seconds: u64,
    /// The message when memory runs out, with its line end.
    pub out_of_memory: &'static str,
    /// The message when time runs out, with its line end.
    pub out_of_time: &'static str,
    /// The exit code.
    pub code: u8,
}

/// How the process ends. Set once, before the limits.
static BOUNDS: OnceLock<Bounds> = OnceLock::new();
/// True once the allocator got no memory, which causes the abort that follows.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// An allocator that records when it gets no memory. std then aborts, as it does for other reasons
/// too.
#[derive(Debug, Clone, Copy)]
pub struct NotingAllocator<A>(pub A);

fn noted(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        // Relaxed is enough: the abort that reads it follows in the same thread.
        REFUSED.store(true, Ordering::Relaxed);
    }
    memory
}

// SAFETY: each call is the inner allocator's own, with the same arguments and result.
unsafe impl<A: GlobalAlloc> GlobalAlloc for NotingAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        noted(unsafe { self.0.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc_zeroed`.
        noted(unsafe { self.0.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`.
        noted(unsafe { self.0.realloc(memory, layout, size) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`.
        unsafe { self.0.dealloc(memory, layout) }
    }
}

/// The limits before [`bound`].
#[derive(Debug)]
pub struct Before([(Resource, Rlimit); 2]);

impl Before {
    /// Restores these limits.
    pub fn set_again(self) {
        for (resource, old) in self.0 {
            // Everybody may raise a soft limit up to the hard limit.
            let _ = setrlimit(resource, old);
        }
    }
}

/// Limits this process from now on. Needs [`NotingAllocator`] as the program's allocator.
///
/// # Errors
/// Returns the error of setrlimit(2).
pub fn bound(bounds: Bounds) -> io::Result<Before> {
    let bounds = BOUNDS.get_or_init(|| bounds);
    for signal in [libc::SIGABRT, libc::SIGXCPU] {
        // SAFETY: all zeros is a value of sigaction, a structure of integers and an optional
        // function.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = end as *const () as usize;
        // SAFETY: the structure is whole, and the handler only makes calls that signal-safety(7)
        // lists.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
    let wanted = [(Resource::Data, bounds.memory), (Resource::Cpu, bounds.seconds)];
    let before = Before(wanted.map(|(resource, _)| (resource, getrlimit(resource))));
    for ((resource, most), (_, old)) in wanted.into_iter().zip(&before.0) {
        // Never exceed a limit that the user has set.
        let current = Some(old.current.map_or(most, |old| old.min(most)));
        setrlimit(resource, Rlimit { current, maximum: old.maximum })?;
    }
    Ok(before)
}

/// Reports which limit was exceeded and ends the process. An abort for another reason continues to
/// its default action, the end by the signal.
extern "C" fn end(signal: libc::c_int) {
    let Some(bounds) = BOUNDS.get() else { return };
    let line = match signal {
        libc::SIGXCPU => bounds.out_of_time,
        _ if REFUSED.load(Ordering::Relaxed) => bounds.out_of_memory,
        // After the handler returns, abort(3) raises the signal again with its default action.
        _ => return,
    };
    // SAFETY: write(2) reads as many bytes as the text has; both calls are on the list of
    // signal-safety(7).
    unsafe {
        libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len());
        libc::_exit(bounds.code.into());
    }
}
