//! Programs as arms: what an arm runs if arms do not share one workload.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// A program that one arm runs. The metric, the CPUs and the user are those of the comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Program {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Where it runs, if not in the current directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// The file that `argv` runs, if nothing builds it during the comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<ProgramFile>,
    /// The values that `--parameter` put into the command line and the hooks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Shell commands around its rounds; if it has none, those of the comparison.
    #[serde(default, skip_serializing_if = "Hooks::is_empty")]
    pub hooks: Hooks,
    /// A server that runs while the program puts load on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,
}

/// A program's file as it was when the comparison began.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct ProgramFile {
    /// Its path.
    pub path: PathBuf,
    /// Its inode number.
    pub inode: u64,
    /// Its size in bytes.
    pub size: u64,
    /// When it was written, in seconds and nanoseconds since 1970.
    pub modified: (i64, i64),
}

impl ProgramFile {
    /// Returns the file at `path`; `None` if there is none.
    pub fn find(path: &Path) -> Option<ProgramFile> {
        let data = std::fs::metadata(path).ok()?;
        Some(ProgramFile {
            path: path.to_owned(),
            inode: data.ino(),
            size: data.size(),
            modified: (data.mtime(), data.mtime_nsec()),
        })
    }

    /// Returns whether another file is there now.
    pub(crate) fn is_replaced(&self) -> bool {
        ProgramFile::find(&self.path).is_some_and(|now| now != *self)
    }
}

/// A server that runs during each round of an arm.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Server {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// When it is ready: `PORT` or `HOST:PORT` that accepts connections, `line:TEXT` in its output,
    /// or a shell command that succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
}

/// Shell commands that run around rounds and are not measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Hooks {
    /// Before the first round of an arm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    /// Before each block, once for each arm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuild: Option<String>,
    /// Before each round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare: Option<String>,
    /// After each round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conclude: Option<String>,
    /// After the last round of an arm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleanup: Option<String>,
}

/// When a shell command of [`Hooks`] runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    Setup,
    Rebuild,
    Prepare,
    Conclude,
    Cleanup,
}

impl Hook {
    pub const ALL: [Hook; 5] = [Hook::Setup, Hook::Rebuild, Hook::Prepare, Hook::Conclude, Hook::Cleanup];

    /// The option of `compare` that sets it.
    pub fn option(self) -> &'static str {
        match self {
            Hook::Setup => "--setup",
            Hook::Rebuild => "--rebuild",
            Hook::Prepare => "--prepare",
            Hook::Conclude => "--conclude",
            Hook::Cleanup => "--cleanup",
        }
    }
}

impl Hooks {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Hooks::default()
    }

    pub fn get(&self, hook: Hook) -> Option<&str> {
        let script = match hook {
            Hook::Setup => &self.setup,
            Hook::Rebuild => &self.rebuild,
            Hook::Prepare => &self.prepare,
            Hook::Conclude => &self.conclude,
            Hook::Cleanup => &self.cleanup,
        };
        script.as_deref()
    }

    /// Applies `change` to each command.
    #[must_use]
    pub fn map(&self, change: impl Fn(&str) -> String) -> Hooks {
        let [setup, rebuild, prepare, conclude, cleanup] = Hook::ALL.map(|hook| self.get(hook).map(&change));
        Hooks { setup, rebuild, prepare, conclude, cleanup }
    }
}
