//! Common parts of the tests with guests: a turn at the emulator, a run, and the values that a
//! guest's command printed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use flyball_guest::{
    cache::Cache,
    guest::{self, Request},
    qemu::Qemu,
    run::{End, OutputSinks, SharedBuffer},
};
use flyball_testing::skip;

/// One emulator at a time.
static EMULATOR: Mutex<()> = Mutex::new(());

/// A turn at the emulator.
pub(crate) struct Guest {
    /// Location of kernels and the emulator.
    pub cache: Cache,
    _turn: MutexGuard<'static, ()>,
}

/// A completed run.
pub(crate) struct Ended {
    pub out: String,
    pub err: String,
    /// How it ended.
    pub end: End,
}

impl Ended {
    /// Fails with the end of the console if the guest's exit code is not `code`.
    pub(crate) fn must_exit(&self, code: u8, what: &str) {
        let words = self.end.last_words(20);
        assert_eq!(self.end.exit_code(), code, "{what}\n{}{}\n{words}", self.out, self.err);
    }
}

impl Guest {
    /// Waits for a turn at the emulator, if everything that a guest needs exists.
    pub(crate) fn new(test: &str) -> Option<(Guest, Vec<String>)> {
        let cache = Cache::of_user().expect("the cache is this user's own");
        let why = match (Qemu::find(&cache), guest::find_plugin()) {
            (Err(e), _) | (_, Err(e)) => Some(e.to_string()),
            _ if cache.kernel_versions().is_empty() => Some("no kernels in the cache".to_owned()),
            _ => None,
        };
        if let Some(why) = why {
            skip(1, test, &why);
            return None;
        }
        let mut kernels = cache.kernel_versions();
        if std::env::var_os("FLYBALL_GUEST_TESTS").is_none_or(|value| value != "all") && kernels.len() > 1 {
            skip(kernels.len() - 1, &format!("kernels of {test}"), "FLYBALL_GUEST_TESTS is not all");
            kernels = vec![kernels.pop().unwrap_or_default()];
        }
        let turn = EMULATOR.lock().unwrap_or_else(PoisonError::into_inner);
        Some((Guest { cache, _turn: turn }, kernels))
    }

    /// Boots a guest and waits for its end. Boots again if the kernel was killed by one of its own
    /// breakpoints. A likely cause, inferred from consoles: with a host thread for each CPU, QEMU
    /// 11.1 drops the translations of an instruction before it writes the new one. A CPU that
    /// translates in between keeps the breakpoint that the kernel uses to change its own code.
    pub(crate) fn run(&self, request: &Request) -> Ended {
        let run = || {
            let (out, err) = (SharedBuffer::default(), SharedBuffer::default());
            let sinks = OutputSinks { out: Box::new(out.clone()), err: Box::new(err.clone()), console: None };
            let end = guest::run(&self.cache, request, sinks).expect("the guest starts");
            Ended { out: out.text(), err: err.text(), end }
        };
        let first = run();
        if !first.end.last_words(200).contains("Oops: int3") {
            return first;
        }
        println!("booted again: QEMU kept a breakpoint of the kernel's");
        run()
    }
}

/// The value that a guest's command printed as `name=value`.
pub(crate) fn value(ended: &Ended, name: &str) -> String {
    let found = ended.out.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    found
        .unwrap_or_else(|| panic!("no {name} in {}\n{}\n{}", ended.out, ended.err, ended.end.last_words(20)))
        .to_owned()
}

/// Such a value as a number.
pub(crate) fn number(ended: &Ended, name: &str) -> f64 {
    value(ended, name).parse().unwrap_or_else(|_| panic!("{name} is not a number: {}", ended.out))
}
