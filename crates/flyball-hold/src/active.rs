//! Holds that survive reboots: `flyball hold add --at-boot` writes them to /var/lib/flyball/active.
//!
//! ```text
//! # NAME PRIORITY PROFILE
//! steady 100 latency
//! ```

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{Hold, HoldName, Owner};

/// The position of an error in the file, and its reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {what}")]
pub struct ConfigError {
    pub file: String,
    pub line: usize,
    pub column: usize,
    pub what: String,
}

/// A hold of a profile that is added at each boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Active {
    pub name: HoldName,
    pub priority: u32,
    /// The profile's name. Its content is read at boot.
    pub profile: String,
}

/// Limit on lines: the maximum number of holds.
const MAX_LINES: usize = 64;

/// Limit on the bytes of the file: many times the size of the maximum number of lines.
const MAX_BYTES: u64 = 1 << 16;

/// The path of the file, below the machine's root.
pub const ACTIVE: &str = "var/lib/flyball/active";

impl Active {
    /// Reads the file's text; `file` is its name in messages.
    ///
    /// # Errors
    /// The first invalid line. If a line is invalid, none is used.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Vec<Active>, ConfigError> {
        // Bytes that are not UTF-8 become U+FFFD, which is invalid in names, so the line is refused
        // with its number.
        let text = String::from_utf8_lossy(bytes);
        let mut found: Vec<Active> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let wrong = |what: &str| ConfigError {
                file: file.to_owned(),
                line: number + 1,
                column: 1,
                what: what.to_owned(),
            };
            let mut words = line.split_whitespace();
            let Some(name) = words.next().filter(|word| !word.starts_with('#')) else { continue };
            let name: HoldName = name.parse().map_err(|error| wrong(&format!("{error}")))?;
            let priority = words.next().and_then(|word| word.parse().ok());
            let priority = priority.filter(|priority| *priority <= Hold::HIGHEST).ok_or_else(|| {
                wrong(&format!("the priority of {name} is not a number up to {}", Hold::HIGHEST))
            })?;
            let (Some(profile), None) = (words.next(), words.next()) else {
                return Err(wrong("a line is NAME PRIORITY PROFILE"));
            };
            // When the service starts, a file's directory may not be mounted, or may belong to
            // another user.
            if profile.contains('/') || profile.chars().any(char::is_control) {
                return Err(wrong("a profile is a name here, not a file"));
            }
            if found.iter().any(|known| known.name == name) {
                return Err(wrong(&format!("there is a second hold {name}")));
            }
            if found.len() >= MAX_LINES {
                return Err(wrong(&format!("there are more than {MAX_LINES} holds")));
            }
            found.push(Active { name, priority, profile: profile.to_owned() });
        }
        Ok(found)
    }

    /// Reads the file below a machine's root; empty if there is none.
    ///
    /// # Errors
    /// The file cannot be read, or a line is invalid.
    pub fn load(root: &Path) -> Result<Vec<Active>, ConfigError> {
        let path = root.join(ACTIVE);
        let file = path.display().to_string();
        let bytes = match flyball_files::open_regular(std::fs::File::options().read(true), &path)
            .and_then(|open| flyball_files::read_bounded(open, MAX_BYTES))
        {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(ConfigError { file, line: 1, column: 1, what: error.to_string() }),
        };
        Active::parse(&bytes, &file)
    }

    /// Replaces the file below a machine's root, and creates its directory.
    ///
    /// # Errors
    /// The file system refuses. The old file is unchanged then.
    pub fn save(root: &Path, all: &[Active]) -> io::Result<()> {
        let path: PathBuf = root.join(ACTIVE);
        if let Some(folder) = path.parent() {
            flyball_files::make_dirs(folder)?;
        }
        // Write the whole file at once: a line torn by a crash would make the next boot refuse all
        // lines.
        let lines: String =
            all.iter().map(|one| format!("{} {} {}\n", one.name, one.priority, one.profile)).collect();
        flyball_files::replace(&path, format!("# NAME PRIORITY PROFILE\n{lines}").as_bytes())
    }

    /// Creates the hold, without its settings.
    pub fn hold(&self, since: u64) -> Hold {
        Hold {
            priority: self.priority,
            profile: Some(self.profile.clone()),
            ..Hold::new(self.name.clone(), Owner::Boot, Vec::new(), since)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_holds_and_a_wrong_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Active::load(folder.path()).unwrap(), []);
        let one = Active { name: "steady".parse().unwrap(), priority: 100, profile: "latency".to_owned() };
        Active::save(folder.path(), std::slice::from_ref(&one)).unwrap();
        assert_eq!(Active::load(folder.path()).unwrap(), [one]);
        for (text, line) in [
            ("a 100 latency\nb latency\n", 2),
            ("a 1001 latency\n", 1),
            ("a 1 x y\n", 1),
            ("a 1 ./x.toml\n", 1),
            ("\n# comment\na/b 1 x\n", 3),
            ("a 1 x\na 2 y\n", 2),
        ] {
            assert_eq!(Active::parse(text.as_bytes(), "active").unwrap_err().line, line, "{text}");
        }
        assert!(Active::parse(b"\xff\xfe 1 x", "active").is_err());
    }
}
