//! What the guest's launcher is given: packages, what apt prints, kernel images, and what a guest
//! leaves behind.

use flyball_guest::untrusted;

use crate::outcome;

/// A Debian package.
pub fn package(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().expect("a directory for temporary files");
    outcome(untrusted::package(bytes, folder.path()), |()| "unpacked".to_owned())
}

/// What apt prints of a mirror's lists.
pub fn lists(bytes: &[u8]) -> String {
    untrusted::lists(&String::from_utf8_lossy(bytes)).min(9).to_string()
}

/// A kernel image, or a module.
pub fn image(bytes: &[u8]) -> String {
    untrusted::image(bytes)
}

/// The archive that a guest sends at its end.
pub fn results(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().expect("a directory for temporary files");
    outcome(untrusted::results(bytes, folder.path()), |notes| notes.len().min(9).to_string())
}

/// What a guest under test prints, its console, and a file of recorded behaviour.
pub fn test_record(bytes: &[u8]) -> String {
    use flyball_drivertest::{messages, record, saved::Saved};
    let text = String::from_utf8_lossy(bytes);
    // The output and the two logs, each up to a byte that none of them has.
    let mut parts = text.split('\u{1}');
    let mut part = || parts.next().unwrap_or_default();
    let boot = record::read(part(), part(), part());
    let steps: usize = boot.runs.iter().map(|run| run.observations.len()).sum();
    format!("{} {steps} {} {}", boot.runs.len(), messages::read(&text).len(), Saved::read(bytes).is_ok())
}
