//! Copies a guest's results to the host.
//!
//! The guest's kernel, its programs and the archive that they send are not trusted. Only regular
//! files and directories are copied, below the directory that the user named, never through a link,
//! and never over a file that the user has not offered.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

use flyball_files::{Dir, Item, Kind, Limits, TarError, archive};

use crate::error::GuestError;

/// Limits of a guest's results. The archive is already in memory, bounded by `run::MAX_OUTPUTS`.
const LIMITS: Limits =
    Limits { entries: 100_000, file: 1 << 30, total: 1 << 30, time: Duration::from_secs(300) };
/// Maximum number of notes about skipped files.
const MAX_NOTES: usize = 20;

/// What may be copied into a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A directory for results: everything in it may be replaced except for `reserved`, flyball's
    /// own files. Nothing goes into a `.git`, whose hooks the user's git would run.
    Results { reserved: &'static [&'static str] },
    /// The user's working directory. Hidden files stay as they are, because programs read many of
    /// them automatically. Other files may be replaced if they are below these paths; otherwise
    /// they are kept, and the guest's file becomes `NAME.guest`.
    Work { replaced: Vec<PathBuf> },
}

impl Rule {
    /// Why an entry is not copied, if so.
    fn refuses(&self, path: &Path) -> Option<&'static str> {
        let hidden = |name: &[u8]| name.first() == Some(&b'.');
        let git = |name: &[u8]| name.eq_ignore_ascii_case(b".git");
        let any = |wrong: &dyn Fn(&[u8]) -> bool| path.iter().any(|name| wrong(name.as_bytes()));
        match self {
            Rule::Results { reserved } if reserved.iter().any(|name| path == Path::new(name)) => {
                Some("its name is that of one of flyball's own files")
            }
            // In any case: on a file system that ignores case, such a directory would be git's too.
            Rule::Results { .. } => any(&git).then_some("it is in .git"),
            Rule::Work { .. } => any(&hidden).then_some("it is hidden"),
        }
    }

    fn replaces(&self, path: &Path) -> bool {
        match self {
            Rule::Results { .. } => true,
            Rule::Work { replaced } => replaced.iter().any(|named| path.starts_with(named)),
        }
    }
}

/// Descriptions of skipped and renamed files, and the number of further ones.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub texts: Vec<String>,
    more: usize,
}

impl Notes {
    fn add(&mut self, path: &Path, why: &str) {
        if self.texts.len() < MAX_NOTES {
            self.texts.push(format!("{}: {why}", path.to_string_lossy().escape_debug()));
        } else {
            self.more += 1;
        }
    }

    /// All descriptions.
    pub(crate) fn into_texts(mut self) -> Vec<String> {
        if self.more > 0 {
            self.texts.push(format!("{} more files were left out or renamed", self.more));
        }
        self.texts
    }
}

/// Copies the files in the guest's archive to `into`, if the rule allows it.
pub(crate) fn copy(tar: &[u8], into: &Path, rule: &Rule) -> Result<Notes, GuestError> {
    let dir = Dir::open(into).map_err(|e| GuestError::file("open", into, e))?;
    let mut notes = Notes::default();
    let read = archive::read(tar, LIMITS, &mut |item: Item, content: &mut dyn Read| {
        // tar lists the directory itself too; it already exists.
        if item.path.as_os_str().is_empty() {
            return Ok(());
        }
        if let Some(why) = rule.refuses(&item.path) {
            notes.add(&item.path, &format!("left out: {why}"));
            return Ok(());
        }
        // If one file cannot be created, copy the others.
        if let Err(error) = copy_one(&dir, &item, content, rule, &mut notes) {
            notes.add(&item.path, &format!("left out: {error}"));
        }
        Ok::<(), TarError>(())
    });
    read.map_err(|why| GuestError::Emulator(format!("the guest's files cannot be copied: {why}")))?;
    Ok(notes)
}

fn copy_one(
    dir: &Dir,
    item: &Item,
    content: &mut dyn Read,
    rule: &Rule,
    notes: &mut Notes,
) -> io::Result<()> {
    let path = &item.path;
    match item.kind {
        Kind::Directory => dir.make_dirs(path, 0o755).map(drop),
        Kind::Link(_) | Kind::HardLink(_) | Kind::Other => {
            notes.add(path, "left out: only regular files and directories come back from a guest");
            Ok(())
        }
        Kind::File { mode, .. } => {
            dir.make_dirs(path.parent().unwrap_or(Path::new("")), 0o755)?;
            // Of the guest's permissions only "executable" is kept: no set-user-ID bit, and no
            // write access for others.
            let mode = if mode & 0o111 == 0 { 0o644 } else { 0o755 };
            // Not std's file, because it must be a new file, and no link to another.
            let mut file: File = match dir.create(path, mode) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && rule.replaces(path) => {
                    dir.replace(path, mode)?
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let mut name = path.clone().into_os_string();
                    name.push(".guest");
                    let renamed = PathBuf::from(name);
                    let file = dir.create(&renamed, mode).map_err(|_| {
                        io::Error::other("it is here already, and so is one with the ending .guest")
                    })?;
                    notes.add(
                        path,
                        "here already and not named on the command line: the guest's is PATH.guest",
                    );
                    file
                }
                other => other?,
            };
            io::copy(content, &mut file).map(drop)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn tar(entries: &[(&str, &str)]) -> Vec<u8> {
        flyball_testing::tar(entries, 0o4755)
    }

    fn read(path: impl AsRef<Path>) -> String {
        fs::read_to_string(path).unwrap_or_default()
    }

    /// A directory for results that an earlier guest has filled with links.
    #[test]
    fn links_of_an_earlier_guest_redirect_nothing() {
        let root = tempfile::tempdir().unwrap();
        let (out, victim) = (root.path().join("out"), root.path().join("victim"));
        fs::create_dir(&out).unwrap();
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, out.join("result")).unwrap();
        symlink(root.path(), out.join("folder")).unwrap();
        let rule = Rule::Results { reserved: &["console.log"] };
        let entries = [
            ("./", ""),
            ("./result", "new"),
            ("./folder/victim", "new"),
            ("./link", "-> ../victim"),
            ("./console.log", "forged"),
            ("./a/.git/hooks/pre-commit", "evil"),
            ("./a/kept", "kept"),
        ];
        let notes = copy(&tar(&entries[1..]), &out, &rule).unwrap().into_texts();
        assert_eq!(read(&victim), "precious");
        assert_eq!(read(out.join("result")), "new");
        assert!(!fs::symlink_metadata(out.join("result")).unwrap().is_symlink());
        assert_eq!(read(out.join("a/kept")), "kept");
        for absent in ["link", "console.log", "a/.git"] {
            assert!(fs::symlink_metadata(out.join(absent)).is_err(), "{absent}");
        }
        assert_eq!(notes.len(), 4, "{notes:?}");
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(fs::metadata(out.join("result")).unwrap().permissions().mode() & 0o7000, 0);
    }

    #[test]
    fn a_working_directory_keeps_what_was_not_offered() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join(".git/hooks")).unwrap();
        for name in ["Makefile", "report.json", "run/rounds"] {
            fs::create_dir_all(root.path().join("run")).unwrap();
            fs::write(root.path().join(name), "old").unwrap();
        }
        let rule = Rule::Work { replaced: vec!["report.json".into(), "run".into()] };
        let entries = [
            ("Makefile", "evil"),
            ("report.json", "new"),
            ("run/rounds", "new"),
            ("run/manifest", "new"),
            (".git/hooks/pre-commit", "evil"),
            (".bashrc", "evil"),
            ("dir/.envrc", "evil"),
            ("link", "-> /etc/passwd"),
        ];
        let notes = copy(&tar(&entries), root.path(), &rule).unwrap().into_texts();
        for (name, content) in [
            ("Makefile", "old"),
            ("Makefile.guest", "evil"),
            ("report.json", "new"),
            ("run/rounds", "new"),
            ("run/manifest", "new"),
            (".git/hooks/pre-commit", ""),
            (".bashrc", ""),
            ("dir/.envrc", ""),
            ("link", ""),
        ] {
            assert_eq!(read(root.path().join(name)), content, "{name}");
        }
        assert_eq!(notes.len(), 5, "{notes:?}");
        // A second time there is no free name.
        let notes = copy(&tar(&entries[..1]), root.path(), &rule).unwrap().into_texts();
        assert_eq!(read(root.path().join("Makefile.guest")), "evil");
        assert!(notes[0].contains("left out"), "{notes:?}");
    }

    #[test]
    fn notes_are_bounded_and_damage_is_an_error() {
        let names: Vec<String> = (0..100).map(|n| format!(".{n}")).collect();
        let entries: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
        let root = tempfile::tempdir().unwrap();
        let rule = Rule::Work { replaced: Vec::new() };
        let notes = copy(&tar(&entries), root.path(), &rule).unwrap().into_texts();
        assert_eq!(notes.len(), MAX_NOTES + 1);
        assert!(copy(&[7; 1000], root.path(), &rule).is_err());
    }
}
