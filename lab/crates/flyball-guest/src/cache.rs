//! Where kernels, the emulator and what is made from them are kept between runs.
//!
//! ```text
//! ~/.cache/flyball/guest/
//!   apt/                  the private package state of `guest fetch`
//!   kernels/VERSION/      an unpacked kernel package
//!   qemu/                 the emulator with the libraries it was built for
//!   busybox               the guest's userland
//!   made/                 uncompressed kernels and initramfs images; safe to delete
//! ```

use std::{
    cmp::Ordering,
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::error::GuestError;

/// The cache directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The user's cache: `$FLYBALL_CACHE`, else `$XDG_CACHE_HOME/flyball`, else `~/.cache/flyball`.
    ///
    /// Programs in the cache are executed, so only this user and root may be able to write to it.
    ///
    /// # Errors
    /// [`GuestError::NoHome`] if there is no such directory, [`GuestError::Cache`] if others can
    /// write to it.
    pub fn of_user() -> Result<Cache, GuestError> {
        let base = location(&|name| env::var_os(name), env::home_dir())?;
        let root = std::path::absolute(base.join("guest")).map_err(|e| GuestError::file("find", base, e))?;
        flyball_files::check_private(&root)?;
        Ok(Cache { root })
    }

    pub fn at(root: impl Into<PathBuf>) -> Cache {
        Cache { root: root.into() }
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Creates the directory, inaccessible to other users.
    pub fn make(&self) -> Result<(), GuestError> {
        Ok(flyball_files::private(&self.root)?)
    }

    /// The private package state.
    pub fn apt(&self) -> PathBuf {
        self.root.join("apt")
    }

    /// The directory of unpacked kernel packages.
    pub fn kernels(&self) -> PathBuf {
        self.root.join("kernels")
    }

    /// The directory of the emulator.
    pub fn qemu(&self) -> PathBuf {
        self.root.join("qemu")
    }

    /// The static busybox of the guests.
    pub fn busybox(&self) -> PathBuf {
        self.root.join("busybox")
    }

    /// Path of `name`, a file made from others in the cache. Creates the directory.
    pub fn made(&self, name: &str) -> Result<PathBuf, GuestError> {
        let dir = self.root.join("made");
        flyball_files::private(&dir)?;
        Ok(dir.join(name))
    }

    /// The versions of the kernels in the cache, oldest first.
    pub fn kernel_versions(&self) -> Vec<String> {
        let mut found: Vec<String> = fs::read_dir(self.kernels())
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.path().is_dir())
            .filter_map(|entry| entry.file_name().into_string().ok())
            // Remains of an interrupted fetch.
            .filter(|name| !name.ends_with(".part"))
            .collect();
        found.sort_by(|a, b| compare_versions(a, b));
        found
    }

    /// The newest cached kernel whose version starts with `prefix` (`6.12`, not `6.1`, for `6.12`).
    pub fn kernel_version(&self, prefix: &str) -> Option<String> {
        self.kernel_versions().into_iter().rfind(|version| starts_with_version(version, prefix))
    }
}

/// Location of the cache, from the environment or in the home directory. If `$HOME` is not set (a
/// system service, cron), the password database has the home directory. A directory that all users
/// share, such as /tmp, is never used.
fn location(
    variable: &dyn Fn(&str) -> Option<OsString>,
    home: Option<PathBuf>,
) -> Result<PathBuf, GuestError> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(named) = set("FLYBALL_CACHE") {
        return Ok(named);
    }
    // "All paths set in these environment variables must be absolute. If an implementation
    // encounters a relative path in any of these variables it should consider the path invalid and
    // ignore it." (XDG Base Directory Specification)
    let xdg = set("XDG_CACHE_HOME").filter(|dir| dir.is_absolute()).map(|dir| dir.join("flyball"));
    let home = home.filter(|dir| dir.is_absolute()).map(|dir| dir.join(".cache/flyball"));
    xdg.or(home).ok_or(GuestError::NoHome)
}

/// The SHA-256 of `bytes`, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes `bytes` to `path` atomically.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), GuestError> {
    let error = |e| GuestError::file("write", path, e);
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(dir).map_err(error)?;
    std::io::Write::write_all(&mut file, bytes).map_err(error)?;
    // Renamed over an existing file: two guests that write the file at once each leave a complete
    // one.
    file.persist(path).map_err(|e| error(e.error))?;
    Ok(())
}

/// Returns whether `version` is `prefix` or continues it with a new part.
pub fn starts_with_version(version: &str, prefix: &str) -> bool {
    version
        .strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

/// Compares versions as people do: numbers by value.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let (number_a, rest_a) = leading_number(a);
        let (number_b, rest_b) = leading_number(b);
        // A text without a number at this position is smaller, because None sorts before Some.
        match number_a.cmp(&number_b) {
            Ordering::Equal => {}
            other => return other,
        }
        let (text_a, next_a) = leading_text(rest_a);
        let (text_b, next_b) = leading_text(rest_b);
        match text_a.cmp(text_b) {
            Ordering::Equal if next_a.is_empty() && next_b.is_empty() => return Ordering::Equal,
            Ordering::Equal => (a, b) = (next_a, next_b),
            other => return other,
        }
    }
}

fn leading_number(text: &str) -> (Option<u128>, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    // A number wider than 128 bits counts as none.
    (text[..end].parse().ok(), &text[end..])
}

fn leading_text(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_order_as_numbers() {
        let mut versions = ["7.2.13+deb14", "6.12.107+deb13", "6.1.0-50", "6.12.9+deb13", "6.18.15+deb13"];
        versions.sort_by(|a, b| compare_versions(a, b));
        assert_eq!(versions, ["6.1.0-50", "6.12.9+deb13", "6.12.107+deb13", "6.18.15+deb13", "7.2.13+deb14"]);
    }

    #[test]
    fn the_cache_is_the_users_own() {
        let at = |variables: &[(&str, &str)], home: Option<&str>| {
            let find =
                |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
            location(&find, home.map(PathBuf::from)).ok()
        };
        let all = [("FLYBALL_CACHE", "/a"), ("XDG_CACHE_HOME", "/b")];
        assert_eq!(at(&all, Some("/h")), Some("/a".into()));
        assert_eq!(at(&all[1..], Some("/h")), Some("/b/flyball".into()));
        assert_eq!(at(&[("XDG_CACHE_HOME", "b")], Some("/h")), Some("/h/.cache/flyball".into()));
        assert_eq!(at(&[("FLYBALL_CACHE", "")], Some("/h")), Some("/h/.cache/flyball".into()));
        // Only locations that all users share are left.
        assert_eq!(at(&[], None), None);
        assert_eq!(at(&[], Some("")), None);
    }

    #[test]
    fn a_prefix_ends_at_a_part() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        for name in ["6.1.0-50", "6.12.107+deb13", "6.12.9+deb13", "6.12.200.part"] {
            fs::create_dir_all(cache.kernels().join(name)).unwrap();
        }
        assert_eq!(cache.kernel_version("6.1").as_deref(), Some("6.1.0-50"));
        assert_eq!(cache.kernel_version("6.12").as_deref(), Some("6.12.107+deb13"));
        assert_eq!(cache.kernel_version("6.12.9").as_deref(), Some("6.12.9+deb13"));
        assert_eq!(cache.kernel_version("6"), Some("6.12.107+deb13".into()));
        assert_eq!(cache.kernel_version("5.10"), None);
    }
}
