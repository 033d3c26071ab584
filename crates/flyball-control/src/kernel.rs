//! The version of the machine's kernel.

use flyball_host::Host;

/// Returns the kernel's release, from the file of a running kernel or from that of a recording.
pub fn kernel_release(host: &dyn Host) -> Option<String> {
    if let Ok(release) = host.read("/proc/sys/kernel/osrelease") {
        return Some(release);
    }
    // `Linux version 6.12.0 (...)`: the third word.
    host.read("/proc/version").ok()?.split_whitespace().nth(2).map(str::to_owned)
}

/// Returns major and minor version of a release.
pub(crate) fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(['.', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}
