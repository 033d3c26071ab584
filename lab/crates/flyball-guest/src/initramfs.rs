//! The guest's initramfs: busybox, the kernel's modules, our init, and the job.
//!
//! It consists of two archives, which the kernel allows: the base, which depends only on the kernel
//! and is cached, and the job, with the command and its files. Nothing is mounted from the host
//! unless a root is requested, so that a guest's run depends only on these bytes.

use std::{
    collections::hash_map::DefaultHasher,
    fs,
    hash::{Hash, Hasher},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::{
    cache::{self, Cache},
    cpio::Cpio,
    dynamic::Search,
    elf::Elf,
    error::GuestError,
    kernel::Kernel,
    modules,
};

/// PID 1 of every guest.
const INIT: &str = include_str!("init.sh");

/// The guest's only network is loopback.
const HOSTS: &str = "127.0.0.1 localhost\n";

/// A file or directory that goes into the guest's job directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFile {
    /// Path on the host.
    pub source: PathBuf,
    /// Name in the job directory, or an absolute path.
    pub name: String,
}

impl JobFile {
    /// Parses `SOURCE[:NAME]`.
    pub fn parse(text: &str) -> JobFile {
        // If a file with a colon in its name exists, the text is its name.
        if let Some((source, name)) = text.rsplit_once(':')
            && !Path::new(text).exists()
            && !name.is_empty()
        {
            return JobFile { source: source.into(), name: name.trim_matches('/').to_owned() };
        }
        let source = PathBuf::from(text);
        let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
        JobFile { source, name }
    }
}

/// The libraries and the loaders of programs among `files`, each under its own path, so that a
/// guest without a root file system of the host can run them.
pub fn libraries(files: &[JobFile]) -> Vec<JobFile> {
    let search = Search::of_this_machine();
    let mut found: Vec<JobFile> = Vec::new();
    let mut open: Vec<PathBuf> = files.iter().map(|file| file.source.clone()).collect();
    // Do not follow links to directories: the guest gets them as links, and they may form a cycle.
    while let Some(path) = open.pop() {
        if path.is_dir() && !path.is_symlink() {
            open.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
            continue;
        }
        for library in search.needed(&path) {
            if found.iter().all(|file| file.name != library) {
                found.push(JobFile { source: PathBuf::from(&library), name: library });
            }
        }
    }
    // Sorted, because directories list files in any order, and the image must be reproducible.
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// The base archive for this kernel, made once and then cached.
pub fn base(cache: &Cache, kernel: &Kernel, more_modules: &[String]) -> Result<PathBuf, GuestError> {
    let busybox = busybox(cache)?;
    let mut key = DefaultHasher::new();
    // The hash may change with the compiler; then the archive is only made again.
    (INIT, HOSTS, modules::WANTED, more_modules, &kernel.modules, env!("CARGO_PKG_VERSION")).hash(&mut key);
    stamp(&busybox).hash(&mut key);
    kernel.modules.as_deref().map(stamp).hash(&mut key);
    let path =
        cache.made(&format!("initramfs-{}-{:016x}", kernel.release.replace('/', "_"), key.finish()))?;
    // Written atomically, so an existing file is complete.
    if path.is_file() {
        return Ok(path);
    }
    let bytes = fs::read(&busybox).map_err(|e| GuestError::file("read", &busybox, e))?;
    let mut archive = Cpio::new();
    for dir in ["proc", "sys", "dev", "run", "tmp", "root", "etc", "job", "usr/bin", "usr/sbin", "var"] {
        archive.dir(dir);
    }
    // The kernel opens it as init's input and output before init can mount anything
    // (console_on_rootfs(), init/main.c).
    archive.device("dev/console", 5, 1);
    archive.device("dev/null", 1, 3);
    archive.file("init", 0o755, INIT.as_bytes());
    archive.file("bin/busybox", 0o755, &bytes);
    archive.link("var/run", "/run");
    archive.link("etc/mtab", "/proc/mounts");
    archive.file("etc/passwd", 0o644, b"root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n");
    archive.file("etc/hosts", 0o644, HOSTS.as_bytes());
    archive.file("etc/group", 0o644, b"root:x:0:\nnogroup:x:65534:\n");
    if let Some(dir) = &kernel.modules {
        add_modules(&mut archive, dir, more_modules)?;
    }
    cache::write_whole(&path, &archive.finish())?;
    Ok(path)
}

fn add_modules(archive: &mut Cpio, dir: &Path, more: &[String]) -> Result<(), GuestError> {
    let release = dir.file_name().unwrap_or_default().to_string_lossy();
    let home = format!("lib/modules/{release}");
    let wanted = modules::WANTED.iter().copied().chain(more.iter().map(String::as_str));
    let modules = modules::collect(dir, wanted)?;
    archive.dir(&home);
    archive.file(&format!("{home}/modules.dep"), 0o644, modules::dependency_list(&modules).as_bytes());
    let mut aliases = String::new();
    for module in &modules {
        let name = modules::name_of(Path::new(&module.path)).unwrap_or_default();
        if let Some(elf) = Elf::new(&module.content) {
            for alias in elf.modinfo("alias") {
                aliases.push_str(&format!("alias {alias} {name}\n"));
            }
        }
        archive.file(&format!("{home}/{}", module.path), 0o644, &module.content);
    }
    // The output of depmod, which packages leave to the installation.
    archive.file(&format!("{home}/modules.alias"), 0o644, aliases.as_bytes());
    archive.file(&format!("{home}/modules.symbols"), 0o644, b"");
    for name in ["modules.builtin", "modules.order", "modules.builtin.modinfo"] {
        if let Ok(bytes) = fs::read(dir.join(name)) {
            archive.file(&format!("{home}/{name}"), 0o644, &bytes);
        }
    }
    Ok(())
}

/// The job archive: the guest's shell command, and its files.
pub fn job(command: &[String], files: &[JobFile]) -> Result<Vec<u8>, GuestError> {
    let mut archive = Cpio::new();
    archive.dir("job/out");
    archive.file("job/.command", 0o755, shell_line(command).as_bytes());
    for file in files {
        let name = match file.name.strip_prefix('/') {
            Some(path) => path.to_owned(),
            None => format!("job/{}", file.name),
        };
        add_file(&mut archive, &file.source, &name)?;
    }
    Ok(archive.finish())
}

fn add_file(archive: &mut Cpio, source: &Path, name: &str) -> Result<(), GuestError> {
    let error = |e| GuestError::file("read", source, e);
    let meta = fs::metadata(source).map_err(error)?;
    if meta.is_dir() {
        archive.dir(name);
        let mut inside: Vec<_> = fs::read_dir(source).map_err(error)?.flatten().map(|e| e.path()).collect();
        // Sorted like in `libraries`, so that equal jobs give equal bytes.
        inside.sort();
        for path in inside {
            let part = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // Keep links: the guest follows them in its own tree, not in the host's.
            if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_symlink()) {
                let target = fs::read_link(&path).map_err(|e| GuestError::file("read", &path, e))?;
                archive.link(&format!("{name}/{part}"), &target.to_string_lossy());
            } else {
                add_file(archive, &path, &format!("{name}/{part}"))?;
            }
        }
    } else if meta.is_file() {
        // The format has eight hexadecimal digits for a size.
        if meta.len() >= u64::from(u32::MAX) {
            return Err(GuestError::format(source, "too large for an initramfs (4 GiB)"));
        }
        let bytes = fs::read(source).map_err(error)?;
        archive.file(name, meta.permissions().mode(), &bytes);
    } else {
        return Err(GuestError::format(source, "neither a file nor a directory"));
    }
    Ok(())
}

/// A single word is a shell command line; several words are a command and its arguments, passed
/// unchanged.
pub fn command_line(command: &[String]) -> String {
    match command {
        [line] => line.clone(),
        words => {
            let words = words.iter().map(|word| quoted(word));
            words.collect::<Vec<_>>().join(" ")
        }
    }
}

/// Quotes a word for the shell.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn shell_line(command: &[String]) -> String {
    let line = command_line(command);
    // The job's own directory is last in the path: `-- probe.sh` finds a file given by --file.
    format!("cd /job; PATH=$PATH:/job\n{line}\n")
}

fn busybox(cache: &Cache) -> Result<PathBuf, GuestError> {
    let fetched = cache.busybox();
    if fetched.is_file() {
        return Ok(fetched);
    }
    // A static busybox of this machine also works.
    for path in ["/bin/busybox", "/usr/bin/busybox"] {
        // A dynamic busybox would need libraries that the initramfs lacks.
        if let Ok(bytes) = fs::read(path)
            && Elf::new(&bytes).is_some_and(|elf| !elf.is_dynamic())
        {
            return Ok(path.into());
        }
    }
    Err(GuestError::NotFetched {
        what: "busybox (a static one)".into(),
        cache: cache.root().to_owned(),
        remedy: "flyball guest fetch".into(),
    })
}

/// A value that changes when the file changes.
fn stamp(path: &Path) -> (u64, Option<std::time::SystemTime>) {
    fs::metadata(path).map_or((0, None), |meta| (meta.len(), meta.modified().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_guest_as_they_are() {
        let words = ["echo", "it's", "$HOME *"].map(str::to_owned);
        assert!(shell_line(&words).ends_with("'echo' 'it'\\''s' '$HOME *'\n"));
        assert!(shell_line(&["echo $HOME; false".to_owned()]).ends_with("\necho $HOME; false\n"));
    }

    #[test]
    fn files_have_names() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("a:b");
        fs::write(&odd, "x").unwrap();
        assert_eq!(JobFile::parse(odd.to_str().unwrap()).name, "a:b");
        let named = JobFile::parse("some/path/tool:t26");
        assert_eq!((named.source, named.name.as_str()), (PathBuf::from("some/path/tool"), "t26"));
        assert_eq!(JobFile::parse("some/path/tool/").name, "tool");
    }

    #[test]
    fn programs_come_with_what_they_need() {
        // This test is a program too: the libraries that it has mapped must be found.
        let program = JobFile { source: std::env::current_exe().unwrap(), name: "test".into() };
        let bytes = fs::read(&program.source).unwrap();
        let found = libraries(&[program]);
        match Elf::new(&bytes).and_then(|elf| elf.interpreter()) {
            Some(loader) => {
                assert!(found.iter().any(|file| file.name == loader), "{found:?}");
                let maps = fs::read_to_string("/proc/self/maps").unwrap();
                let libc = |text: &str| text.contains("/libc.so") || text.contains("/libc-");
                assert!(!libc(&maps) || found.iter().any(|file| libc(&file.name)), "{found:?}");
            }
            None => assert_eq!(found, []),
        }
        assert_eq!(libraries(&[JobFile { source: "/nonexistent".into(), name: "x".into() }]), []);
    }

    #[test]
    fn the_same_job_is_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b", "a", "c/d"] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        let make = || job(&["true".into()], &[JobFile::parse(dir.path().to_str().unwrap())]).unwrap();
        assert_eq!(make(), make());
    }
}
