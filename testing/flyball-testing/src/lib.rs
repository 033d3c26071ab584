//! Test helpers for all crates: starting flyball, trees of files, material that not every checkout
//! has, and counting skipped checks.

mod dat7;

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

pub use dat7::dat_7;
pub use flyball_host::{Archive, Host};

/// Returns a command that runs the flyball of this build. Only integration tests of the crate
/// `flyball` have it.
#[macro_export]
macro_rules! flyball {
    () => {
        $crate::command(env!("CARGO_BIN_EXE_flyball"))
    };
}

/// Returns a command without the environment variables that the tester set for flyball. See
/// [`flyball!`].
pub fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_remove("FLYBALL_STATE");
    command
}

/// Exit code and output of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// The command's exit code.
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// Runs a command to its end.
    ///
    /// # Panics
    /// If it cannot be started, is killed by a signal, or panics, which exits with 101. No command
    /// documents that code.
    #[track_caller]
    pub fn of(command: &mut Command) -> Ran {
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        let code = output.status.code().unwrap_or_else(|| panic!("{command:?}: {}: {err}", output.status));
        assert_ne!(code, 101, "{command:?} panicked: {err}");
        Ran { code, out, err }
    }

    pub fn text(&self) -> String {
        format!("{}{}", self.out, self.err)
    }

    /// Parses standard output as JSON.
    ///
    /// # Panics
    /// The output is not JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

/// A folder of files that is removed when dropped.
#[derive(Debug)]
pub struct Tree {
    folder: tempfile::TempDir,
}

impl Tree {
    /// Creates an empty tree.
    ///
    /// # Panics
    /// The folder cannot be created.
    pub fn new() -> Tree {
        Tree { folder: tempfile::tempdir().expect("a folder can be made") }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file into the tree. Creates missing folders.
    ///
    /// # Panics
    /// The file cannot be written.
    #[track_caller]
    pub fn put(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().expect("it is below the folder")).expect("folders can be made");
        std::fs::write(&path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

impl Default for Tree {
    fn default() -> Tree {
        Tree::new()
    }
}

/// Returns material outside the repository: `$FLYBALL_SHARED/PATH`, or `shared/PATH` next to the
/// workspace. `None` if it does not exist.
pub fn shared(path: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let found = std::env::var_os("FLYBALL_SHARED").map_or_else(beside, PathBuf::from).join(path);
    found.exists().then_some(found)
}

/// Returns the repository's recorded machines as archive paths, sorted.
///
/// # Panics
/// The folder cannot be read.
pub fn machines() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let entries =
        std::fs::read_dir(folder).expect("the folder of machines").map(|entry| entry.expect("a name").path());
    let mut found: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "zst")).collect();
    found.sort();
    found
}

/// Returns the archive path of a recorded machine.
pub fn archive(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../machines/{name}.tar.zst"))
}

/// Opens a recorded machine of this repository.
///
/// # Panics
/// There is no such machine.
pub fn machine(name: &str) -> Archive {
    Archive::open(&archive(name).display().to_string()).unwrap_or_else(|error| panic!("{error}"))
}

/// Prints that `count` checks are skipped, and why. The line reaches the terminal even if the test
/// passes, and `scripts/test` counts such lines.
pub fn skip(count: usize, what: &str, why: &str) {
    // Not eprintln, which the test harness captures.
    let _ = writeln!(std::io::stderr(), "skipped: {count} {what}: {why}");
}

/// Packs `entries`, paths with their content, into a tar archive. Content of the form `-> TARGET`
/// makes a symbolic link. Files have `mode`.
///
/// # Panics
/// A path does not fit into tar.
pub fn tar(entries: &[(&str, &str)], mode: u32) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_mode(mode);
        let added = if let Some(target) = content.strip_prefix("-> ") {
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            tar.append_link(&mut header, path, target)
        } else {
            header.set_size(content.len() as u64);
            tar.append_data(&mut header, path, content.as_bytes())
        };
        added.unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    tar.into_inner().unwrap_or_else(|error| panic!("{error}"))
}
