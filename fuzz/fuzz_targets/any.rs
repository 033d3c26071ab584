//! One target of the list under libfuzzer, which learns from coverage:
//! `FLYBALL_FUZZ=dat cargo +nightly fuzz run any --features libfuzzer fuzz/corpus/dat`. Without the
//! variable, a copy of the program runs the target whose name it has (oss-fuzz/build.sh).
#![no_main]

use std::sync::LazyLock;

static TARGET: LazyLock<&flyball_fuzz::Target> = LazyLock::new(|| {
    let own = || std::env::current_exe().ok()?.file_name()?.to_str().map(str::to_owned);
    let name = std::env::var("FLYBALL_FUZZ").ok().or_else(own).unwrap_or_default();
    let names: Vec<&str> = flyball_fuzz::TARGETS.iter().map(|target| target.name).collect();
    flyball_fuzz::TARGETS
        .iter()
        .find(|target| target.name == name)
        .unwrap_or_else(|| panic!("set FLYBALL_FUZZ to one of {}", names.join(", ")))
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (TARGET.run)(bytes);
});
