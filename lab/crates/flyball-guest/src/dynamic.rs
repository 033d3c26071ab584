//! Finds the libraries of a program without running any part of it.
//!
//! ldd(1) and the loader's `--list` run the loader that the program's header names, which its
//! author chose. This module instead reads the headers (System V ABI, "Program Loading and Dynamic
//! Linking"), and searches libraries like ld.so(8), in the order of its manual. Libraries for
//! particular processors (glibc-hwcaps) are skipped, because the guest's processor is different.

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

use flyball_files::Dir;

/// Maximum number of program headers. Linkers make a dozen.
const MAX_HEADERS: u64 = 64;
/// Maximum number of entries in the dynamic section. Linkers make some forty.
const MAX_ENTRIES: u64 = 4096;
/// Maximum length of a name or a list of directories in a program.
const MAX_TEXT: usize = 4096;
/// Maximum number of libraries of a request. QEMU has the most seen so far, 150.
const MAX_LIBRARIES: usize = 1000;
/// Maximum size of the loader's cache. A cache of 2,000 libraries has 130 kB.
const MAX_CACHE: u64 = 16 << 20;

/// The loader's default directories: Debian's, then those of other distributions.
const DEFAULT_DIRECTORIES: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// The requirements of a dynamically linked program or library.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needs {
    interpreter: Option<String>,
    libraries: Vec<String>,
    /// Directories for the object's own libraries and, if it has no runpath, for those of its
    /// libraries.
    rpath: Vec<String>,
    /// Directories for the object's own libraries.
    runpath: Vec<String>,
}

fn bytes<const N: usize>(file: &File, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The text at `at`, up to a zero byte.
fn text(file: &File, at: u64) -> Option<String> {
    let mut buffer = vec![0; MAX_TEXT];
    let count = file.read_at(&mut buffer, at).ok()?;
    let end = buffer[..count].iter().position(|byte| *byte == 0)?;
    buffer.truncate(end);
    String::from_utf8(buffer).ok()
}

impl Needs {
    /// Parses a 64-bit file for this architecture. `None` for other or damaged files.
    fn read(file: &File) -> Option<Needs> {
        const PT_LOAD: u32 = 1;
        const PT_DYNAMIC: u32 = 2;
        const PT_INTERP: u32 = 3;
        let head: [u8; 64] = bytes(file, 0)?;
        // ELFCLASS64, ELFDATA2LSB, EM_X86_64.
        if !head.starts_with(b"\x7fELF\x02\x01") || head[18..20] != [62, 0] {
            return None;
        }
        let table = word(&head, 0x20)?;
        let size = u64::from(u16::from_le_bytes([head[0x36], head[0x37]]));
        // e_phoff, e_phentsize, e_phnum (elf(5)).
        let count = u64::from(u16::from_le_bytes([head[0x38], head[0x39]])).min(MAX_HEADERS);
        let mut needs = Needs::default();
        let mut dynamic = None;
        // Segments by memory address, with their offset in the file, because the dynamic section
        // contains addresses.
        let mut segments = Vec::new();
        for index in 0..count {
            let header: [u8; 56] = bytes(file, table.checked_add(index * size)?)?;
            let (offset, address, length) = (word(&header, 8)?, word(&header, 16)?, word(&header, 32)?);
            match u32::from_le_bytes([header[0], header[1], header[2], header[3]]) {
                PT_LOAD => segments.push((address, offset, length)),
                PT_DYNAMIC => dynamic = Some((offset, length)),
                PT_INTERP => needs.interpreter = text(file, offset),
                _ => {}
            }
        }
        if let Some((offset, length)) = dynamic {
            needs.dynamic(file, offset, length, &segments)?;
        }
        Some(needs)
    }

    fn dynamic(&mut self, file: &File, offset: u64, length: u64, segments: &[(u64, u64, u64)]) -> Option<()> {
        const DT_NULL: u64 = 0;
        const DT_NEEDED: u64 = 1;
        const DT_STRTAB: u64 = 5;
        const DT_RPATH: u64 = 15;
        const DT_RUNPATH: u64 = 29;
        let mut entries = Vec::new();
        for index in 0..(length / 16).min(MAX_ENTRIES) {
            let entry: [u8; 16] = bytes(file, offset.checked_add(index * 16)?)?;
            let (tag, value) = (word(&entry, 0)?, word(&entry, 8)?);
            if tag == DT_NULL {
                break;
            }
            entries.push((tag, value));
        }
        // First, because names are offsets into this table, whose entry may come after theirs.
        let strings = entries.iter().find(|(tag, _)| *tag == DT_STRTAB).map(|(_, address)| *address)?;
        let (address, place, _) = segments.iter().find(|(address, _, length)| {
            strings.checked_sub(*address).is_some_and(|inside| inside < *length)
        })?;
        let strings = place.checked_add(strings - address)?;
        let directories =
            |list: String| list.split(':').filter(|dir| !dir.is_empty()).map(str::to_owned).collect();
        for (tag, value) in entries {
            let text = || text(file, strings.checked_add(value)?);
            match tag {
                DT_NEEDED => self.libraries.extend(text()),
                DT_RPATH => self.rpath = text().map(directories).unwrap_or_default(),
                DT_RUNPATH => self.runpath = text().map(directories).unwrap_or_default(),
                _ => {}
            }
        }
        Some(())
    }
}

/// The loader's cache: libraries of this architecture by name (glibc, sysdeps/generic/dl-cache.h,
/// `struct cache_file_new`).
fn loader_cache(bytes: &[u8]) -> BTreeMap<String, PathBuf> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEAD: usize = 48;
    const ENTRY: usize = 24;
    /// `FLAG_ELF_LIBC6 | FLAG_X8664_LIB64`.
    const FLAGS: u32 = 0x0303;
    let mut found = BTreeMap::new();
    // Older caches begin with another table, which is followed by this one.
    let Some(start) = bytes.windows(MAGIC.len()).take(1 << 20).position(|part| part == MAGIC) else {
        return found;
    };
    let bytes = &bytes[start..];
    let long = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let string = |at: u32| {
        let rest = bytes.get(at as usize..)?;
        std::str::from_utf8(&rest[..rest.iter().take(MAX_TEXT).position(|byte| *byte == 0)?]).ok()
    };
    for index in 0..long(20).unwrap_or(0) as usize {
        let at = HEAD + index * ENTRY;
        let (Some(flags), Some(key), Some(value)) = (long(at), long(at + 4), long(at + 8)) else { break };
        // A non-zero last word marks libraries for particular processors.
        let plain = word(bytes, at + 16) == Some(0);
        if let (FLAGS, true, Some(name), Some(path)) = (flags, plain, string(key), string(value)) {
            // Keep the first of several: the loader goes back to a name's first entry (glibc,
            // elf/dl-cache.c, search_cache).
            found.entry(name.to_owned()).or_insert_with(|| path.into());
        }
    }
    found
}

/// Opens a regular file that the user or a program named. FIFOs and devices are rejected without
/// waiting for them.
fn open(path: &Path) -> Option<File> {
    // Libraries are usually links to their versions. `Dir` does not follow links, but the last
    // component of the real path is none.
    let real = fs::canonicalize(path).ok()?;
    Dir::open(real.parent()?).ok()?.file(real.file_name()?).ok()
}

/// Returns whether a program's loader belongs to the system: its owner is the owner of `/`, and
/// others cannot write it.
fn is_of_the_system(loader: &Path) -> bool {
    let owner = fs::metadata("/").map(|root| root.uid()).ok();
    loader.is_absolute()
        && fs::metadata(loader)
            .is_ok_and(|meta| meta.is_file() && Some(meta.uid()) == owner && meta.mode() & 0o022 == 0)
        && open(loader).is_some_and(|file| Needs::read(&file).is_some())
}

/// Where to search for libraries.
#[derive(Debug)]
pub(crate) struct Search {
    cache: BTreeMap<String, PathBuf>,
    /// `LD_LIBRARY_PATH`.
    first: Vec<PathBuf>,
}

impl Search {
    /// Searches like this machine's loader for this user.
    pub(crate) fn of_this_machine() -> Search {
        let cache = Dir::open("/etc").and_then(|etc| etc.read("ld.so.cache", MAX_CACHE)).unwrap_or_default();
        let first = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        // For ld.so an empty entry is the current directory, which the guest does not have.
        let first = env::split_paths(&first).filter(|dir| dir.is_absolute()).collect();
        Search { cache: loader_cache(&cache), first }
    }

    /// Absolute paths of the loader and the libraries of the program at `path`; empty if it is not
    /// a dynamically linked program. Missing libraries are skipped: the guest's loader will report
    /// them.
    pub(crate) fn needed(&self, path: &Path) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        // A program, and the directories that it inherits.
        let mut queue = vec![(path.to_owned(), Vec::new())];
        let mut loader = None;
        while let Some((object, inherited)) = queue.pop() {
            let Some(needs) = open(&object).and_then(|file| Needs::read(&file)) else { continue };
            // Only the program's own: libraries may name a loader too, but the kernel uses only the
            // program's.
            loader = loader.or_else(|| {
                needs.interpreter.clone().filter(|interpreter| is_of_the_system(Path::new(interpreter)))
            });
            // `$ORIGIN` is the object's real directory (ld.so(8)).
            let real = fs::canonicalize(&object).unwrap_or(object);
            let origin = real.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
            let expand = |dir: &String| dir.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin);
            let mut passed_on: Vec<String> = inherited;
            if needs.runpath.is_empty() {
                passed_on.splice(0..0, needs.rpath.iter().map(expand));
            }
            let own: Vec<String> = needs.runpath.iter().map(expand).collect();
            for name in needs.libraries {
                if let Some(library) = self.find(&name, &passed_on, &own)
                    && !found.contains(&library)
                    && found.len() < MAX_LIBRARIES
                {
                    queue.push((library.clone().into(), passed_on.clone()));
                    found.push(library);
                }
            }
        }
        found.extend(loader);
        found
    }

    fn find(&self, name: &str, rpath: &[String], runpath: &[String]) -> Option<String> {
        let is_library = |path: &Path| open(path).is_some_and(|file| Needs::read(&file).is_some());
        let text = |path: PathBuf| path.into_os_string().into_string().ok();
        // A name with a slash is a path and is not searched (ld.so(8)).
        if name.contains('/') {
            return Some(PathBuf::from(name))
                .filter(|path| path.is_absolute() && is_library(path))
                .and_then(text);
        }
        // An object's runpath replaces the rpaths of those that loaded it (ld.so(8)).
        let rpath = if runpath.is_empty() { rpath } else { &[] };
        let before = rpath.iter().map(PathBuf::from).chain(self.first.iter().cloned());
        let before = before.chain(runpath.iter().map(PathBuf::from)).map(|dir| dir.join(name));
        let after = DEFAULT_DIRECTORIES.iter().map(|dir| Path::new(dir).join(name));
        // Relative directories depend on where the program is started, which is unknown here.
        let mut all =
            before.filter(|path| path.is_absolute()).chain(self.cache.get(name).cloned()).chain(after);
        all.find(|path| is_library(path)).and_then(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A minimal program with this loader and this library.
    fn program(loader: &str, library: &str) -> Vec<u8> {
        let mut file = vec![0u8; 64 + 3 * 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[18] = 62;
        file[0x20] = 64;
        file[0x36] = 56;
        file[0x38] = 3;
        let at_loader = file.len();
        file.extend_from_slice(loader.as_bytes());
        file.push(0);
        let at_strings = file.len();
        file.push(0);
        file.extend_from_slice(library.as_bytes());
        file.push(0);
        let at_dynamic = file.len();
        for (tag, value) in [(1u64, 1u64), (5, 0x1000 + at_strings as u64), (0, 0)] {
            file.extend_from_slice(&tag.to_le_bytes());
            file.extend_from_slice(&value.to_le_bytes());
        }
        let all = file.len() as u64;
        let segments = [
            (1u32, 0u64, 0x1000u64, all),
            (2, at_dynamic as u64, 0x1000 + at_dynamic as u64, 48),
            (3, at_loader as u64, 0, loader.len() as u64 + 1),
        ];
        for (index, (kind, offset, address, length)) in segments.into_iter().enumerate() {
            let at = 64 + index * 56;
            file[at..at + 4].copy_from_slice(&kind.to_le_bytes());
            file[at + 8..at + 16].copy_from_slice(&offset.to_le_bytes());
            file[at + 16..at + 24].copy_from_slice(&address.to_le_bytes());
            file[at + 32..at + 40].copy_from_slice(&length.to_le_bytes());
        }
        file
    }

    #[test]
    fn reads_what_a_program_needs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        fs::write(&path, program("/lib64/ld.so", "libx.so.1")).unwrap();
        let needs = Needs::read(&File::open(&path).unwrap()).unwrap();
        assert_eq!(needs.interpreter.as_deref(), Some("/lib64/ld.so"));
        assert_eq!(needs.libraries, ["libx.so.1"]);
        let whole = fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let _ = Needs::read(&File::open(&path).unwrap());
        }
        for at in 0..whole.len() {
            let mut broken = whole.clone();
            broken[at] = 0xff;
            fs::write(&path, broken).unwrap();
            let _ = Needs::read(&File::open(&path).unwrap());
        }
    }

    /// A program whose header names its author's loader, which is neither run nor copied.
    #[test]
    fn a_programs_own_loader_does_not_run() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let (ran, loader, path) =
            (dir.path().join("ran"), dir.path().join("ldx"), dir.path().join("program"));
        fs::write(&loader, format!("#!/bin/sh\necho ran > {}\n", ran.display())).unwrap();
        fs::set_permissions(&loader, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(&path, program(loader.to_str().unwrap(), "/etc/passwd")).unwrap();
        assert!(
            Search::of_this_machine().needed(&path).is_empty(),
            "neither its loader nor a file that is not a library"
        );
        assert!(!ran.exists());
        let fifo = dir.path().join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(Search::of_this_machine().needed(&fifo).is_empty());
    }

    #[test]
    fn a_runpath_replaces_inherited_rpaths() {
        let dir = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let folder = dir.path().join(name);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("libx.so"), program("/lib64/ld.so", "liby.so")).unwrap();
            vec![folder.to_str().unwrap().to_owned()]
        };
        let (inherited, own) = (folder("inherited"), folder("own"));
        let search = Search { cache: BTreeMap::new(), first: Vec::new() };
        let found = |rpath: &[String], runpath: &[String]| search.find("libx.so", rpath, runpath).unwrap();
        assert_eq!(found(&inherited, &own), format!("{}/libx.so", own[0]));
        assert_eq!(found(&inherited, &[]), format!("{}/libx.so", inherited[0]));
    }

    #[test]
    fn finds_what_ldd_finds() {
        let program = env::current_exe().unwrap();
        let found = Search::of_this_machine().needed(&program);
        let Some(listed) = std::process::Command::new("ldd").arg(&program).output().ok() else { return };
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        let real = |path: &str| fs::canonicalize(path).ok();
        for line in text.lines().filter(|line| line.contains("=> /") && !line.contains("hwcaps")) {
            let path = line.split_once("=> ").unwrap().1.split(" (").next().unwrap();
            assert!(found.iter().any(|found| real(found) == real(path)), "{path} is not among {found:?}");
        }
    }

    #[test]
    fn a_damaged_cache_is_an_empty_one() {
        let cache = fs::read("/etc/ld.so.cache").unwrap_or_default();
        let known = loader_cache(&cache);
        assert!(cache.is_empty() || known.keys().any(|name| name.starts_with("libc.")), "{known:?}");
        for cut in (0..cache.len()).step_by(997) {
            let _ = loader_cache(&cache[..cut]);
        }
        assert!(loader_cache(b"glibc-ld.so.cache1.1\xff\xff\xff\xff").is_empty());
    }
}
