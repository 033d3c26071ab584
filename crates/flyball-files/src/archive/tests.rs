use std::{fs, io::Write as _};

use proptest::prelude::*;

use super::*;
use crate::{Dir, MAX_NAME, unpack};

const LIMITS: Limits = Limits { entries: 1000, file: 1 << 20, total: 8 << 20, time: Duration::from_secs(20) };

/// Makes an entry with any name and any target, which the tar crate would refuse.
fn entry(kind: EntryType, path: &[u8], target: &[u8], content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut name = |kind: EntryType, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(bytes.len() as u64 + 1);
        header.set_cksum();
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(bytes);
        out.push(0);
        out.resize(out.len().next_multiple_of(512), 0);
    };
    if path.len() > 100 {
        name(EntryType::GNULongName, path);
    }
    if target.len() > 100 {
        name(EntryType::GNULongLink, target);
    }
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(content.len() as u64);
    header.set_mode(0o6755);
    let old = header.as_old_mut();
    let (count, linked) = (path.len().min(100), target.len().min(100));
    old.name[..count].copy_from_slice(&path[..count]);
    old.linkname[..linked].copy_from_slice(&target[..linked]);
    header.set_cksum();
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(content);
    out.resize(out.len().next_multiple_of(512), 0);
    out
}

fn file(path: &str, content: &[u8]) -> Vec<u8> {
    entry(EntryType::Regular, path.as_bytes(), b"", content)
}

fn link(path: &str, target: &str) -> Vec<u8> {
    entry(EntryType::Symlink, path.as_bytes(), target.as_bytes(), b"")
}

fn names(tar: &[u8], limits: Limits) -> Result<Vec<String>, TarError> {
    let mut found = Vec::new();
    read(tar, limits, &mut |item: Item, _: &mut dyn Read| {
        found.push(item.path.display().to_string());
        Ok::<(), TarError>(())
    })?;
    Ok(found)
}

#[test]
fn ordinary_archives_are_read() {
    let long = format!("{}/file", "d".repeat(150));
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(4);
    header.set_mode(0o755);
    builder.append_data(&mut header.clone(), &long, &b"text"[..]).unwrap();
    builder.append_data(&mut header, "./b", &b"text"[..]).unwrap();
    assert_eq!(names(&builder.into_inner().unwrap(), LIMITS).unwrap(), [long, "b".to_owned()]);
    // Other tools write long names like this.
    let record = |key: &str, value: &str| {
        let length = key.len() + value.len() + 3;
        let length = length + (length + 3).to_string().len();
        format!("{length} {key}={value}\n")
    };
    let long = "x".repeat(130);
    let pax = entry(EntryType::XHeader, b"PaxHeaders/x", b"", record("path", &long).as_bytes());
    assert_eq!(names(&[pax, file("x", b"1")].concat(), LIMITS).unwrap(), [long]);
    let sparse = entry(EntryType::XHeader, b"p", b"", record("GNU.sparse.major", "1").as_bytes());
    assert!(matches!(names(&[sparse, file("x", b"1")].concat(), LIMITS), Err(TarError::Header(_))));
}

#[test]
fn hostile_names_are_refused() {
    let deep = "x/".repeat(60_000);
    let wide = "y".repeat(MAX_NAME + 1);
    for (path, why) in [
        ("../../etc/passwd", PathError::Outside),
        ("/etc/passwd", PathError::Outside),
        ("a/../../b", PathError::Outside),
        (deep.as_str(), PathError::Long),
        (&"x/".repeat(400), PathError::Deep),
        (&wide, PathError::Name),
    ] {
        match names(&file(path, b""), LIMITS) {
            Err(TarError::Path { why: found, path }) => {
                assert_eq!(found, why);
                assert!(path.len() < 200, "{path}");
            }
            other => panic!("{other:?}"),
        }
    }
    let odd = names(&file("\u{1b}[2J/../x", b""), LIMITS).unwrap_err().to_string();
    assert!(!odd.contains('\u{1b}'), "{odd}");
}

#[test]
fn every_limit_holds() {
    let many: Vec<u8> = (0..20).flat_map(|n| file(&n.to_string(), b"")).collect();
    assert!(matches!(names(&many, Limits { entries: 19, ..LIMITS }), Err(TarError::Many(19))));
    assert!(names(&many, Limits { entries: 20, ..LIMITS }).is_ok());
    let large = file("a", &[0; 2000]);
    assert!(matches!(names(&large, Limits { file: 1999, ..LIMITS }), Err(TarError::Large(_))));
    assert!(matches!(names(&large, Limits { total: 2000, ..LIMITS }), Err(TarError::Total(_))));
    assert!(names(&large, Limits { total: large.len() as u64, ..LIMITS }).is_ok());
    assert!(matches!(names(&large, Limits { time: Duration::ZERO, ..LIMITS }), Err(TarError::Slow(_))));
    for kind in [EntryType::Char, EntryType::Block, EntryType::Fifo] {
        let mut found = Vec::new();
        let tar = entry(kind, b"x", b"", b"");
        read(&tar[..], LIMITS, &mut |item: Item, _: &mut dyn Read| {
            found.push(item.kind);
            Ok::<(), TarError>(())
        })
        .unwrap();
        assert_eq!(found, [Kind::Other], "{kind:?}");
    }
    assert!(matches!(names(&entry(EntryType::GNUSparse, b"x", b"", b""), LIMITS), Err(TarError::Header(_))));
    // If a header says that a name is 600 MB long, the name is not read.
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(EntryType::GNULongName);
    header.set_size(600 << 20);
    header.set_cksum();
    let endless = header.as_bytes().chain(io::repeat(b'a'));
    let error = read(endless, LIMITS, &mut |_, _: &mut dyn Read| Ok::<(), TarError>(())).unwrap_err();
    assert!(matches!(error, TarError::Path { why: PathError::Long, .. }), "{error}");
}

/// A package contains a link that leads outside and then a file behind it, as a real attack did.
#[test]
fn nothing_is_unpacked_outside() {
    let root = tempfile::tempdir().unwrap();
    let (victim, target) = (root.path().join("victim"), root.path().join("target"));
    fs::create_dir(&victim).unwrap();
    fs::create_dir(&target).unwrap();
    fs::write(victim.join("old"), "old").unwrap();
    let victim_path = victim.display().to_string();
    let tar = [
        link("boot/x", &victim_path),
        file("boot/x/passwd", b"root"),
        link("boot/y", "../../victim"),
        file("boot/y/passwd", b"root"),
        link("flat", "."),
        link("flat/z", "../victim"),
        link("boot/old", "../../victim/old"),
        file("boot/old", b"new"),
        entry(EntryType::Link, b"boot/hard", format!("{victim_path}/old").as_bytes(), b""),
        entry(EntryType::Link, b"boot/hard2", b"../victim/old", b""),
    ]
    .concat();
    let done = unpack(&tar[..], &Dir::open(&target).unwrap(), LIMITS, &|_| true).unwrap();
    assert_eq!(done.links_left_out, 6);
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 1);
    assert_eq!(fs::read(victim.join("old")).unwrap(), b"old");
    assert_eq!(fs::read(target.join("boot/old")).unwrap(), b"new");
    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::metadata(target.join("boot/x/passwd")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755 & !umask(), "no set-user-ID");
}

fn umask() -> u32 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Umask:")).unwrap();
    u32::from_str_radix(line.trim(), 8).unwrap()
}

#[test]
fn packages_keep_the_links_that_they_need() {
    let root = tempfile::tempdir().unwrap();
    let tar = [
        link("lib64", "usr/lib64"),
        file("usr/lib/x86/libx.so.1.2", b"library"),
        link("usr/lib/x86/libx.so.1", "libx.so.1.2"),
        entry(EntryType::Directory, b"usr/lib64", b"", b""),
        link("usr/lib64/ld.so", "../lib/x86/libx.so.1"),
        file("lib64/other", b"through the link"),
        entry(EntryType::Link, b"usr/copy", b"usr/lib/x86/libx.so.1.2", b""),
        link("usr/lib/x86/libx.so.1", "libx.so.1.2"),
    ]
    .concat();
    let done = unpack(&tar[..], &Dir::open(root.path()).unwrap(), LIMITS, &|_| true).unwrap();
    assert_eq!((done.files, done.links_left_out), (3, 0));
    assert_eq!(fs::read(root.path().join("lib64/ld.so")).unwrap(), b"library");
    assert_eq!(fs::read(root.path().join("usr/lib64/other")).unwrap(), b"through the link");
    assert_eq!(fs::read(root.path().join("usr/copy")).unwrap(), b"library");
    // Unpack only the requested file.
    let root = tempfile::tempdir().unwrap();
    unpack(&tar[..], &Dir::open(root.path()).unwrap(), LIMITS, &|path| path.starts_with("usr/copy")).unwrap();
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0, "a copy of what was not taken");
}

fn any_path() -> impl Strategy<Value = String> {
    let part = prop_oneof![5 => "[abc]", 2 => Just("..".to_owned()), 1 => Just(".".to_owned()), 1 => Just(String::new())];
    prop::collection::vec(part, 1..5).prop_map(|parts| parts.join("/"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Whatever an archive contains, no file outside the target appears or changes, and no link in
    /// the target leads outside.
    #[test]
    fn any_archive_stays_below_the_target(
        entries in prop::collection::vec((0..5u8, any_path(), any_path()), 1..16),
    ) {
        let root = tempfile::tempdir().unwrap();
        let target = root.path().join("a/b/c/target");
        fs::create_dir_all(&target).unwrap();
        fs::write(root.path().join("a/b/c/a"), "outside").unwrap();
        let before = listing(root.path(), &target);
        let dir = Dir::open(&target).unwrap();
        // One archive for each entry, so that a refusal does not prevent the others.
        for (kind, path, link_target) in &entries {
            let kind = [EntryType::Regular, EntryType::Directory, EntryType::Symlink, EntryType::Symlink, EntryType::Link]
                [usize::from(*kind)];
            let content: &[u8] = if kind == EntryType::Regular { b"new" } else { b"" };
            let _ = unpack(&entry(kind, path.as_bytes(), link_target.as_bytes(), content)[..], &dir, LIMITS, &|_| true);
        }
        prop_assert_eq!(before, listing(root.path(), &target));
        let mut open = vec![target.clone()];
        while let Some(folder) = open.pop() {
            for found in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
                if found.file_type().unwrap().is_dir() {
                    open.push(found.path());
                } else if let Ok(real) = fs::canonicalize(found.path()) {
                    prop_assert!(real.starts_with(fs::canonicalize(&target).unwrap()), "{}", real.display());
                }
            }
        }
    }

    /// Damaged bytes are errors or fewer entries, never a panic.
    #[test]
    fn damaged_archives_are_read_without_a_panic(at in 0..4096usize, byte: u8, cut in 0..4096usize) {
        let mut tar = [link("a/b", "c"), file("a/c", &[7; 700]), file(&"n".repeat(120), b"x")].concat();
        let at = at % tar.len();
        tar[at] = byte;
        let cut = tar.len() - cut % tar.len();
        let _ = names(&tar[..cut], LIMITS);
        let root = tempfile::tempdir().unwrap();
        let _ = unpack(&tar[..cut], &Dir::open(root.path()).unwrap(), LIMITS, &|_| true);
    }
}

/// Lists everything below `root` except what is below `without`, with contents.
fn listing(root: &Path, without: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
            let path = entry.path();
            if path == without {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                open.push(path.clone());
                found.push((path, Vec::new()));
            } else {
                let bytes = fs::read(&path).unwrap_or_default();
                found.push((path, bytes));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_bomb_costs_its_limit() {
    // Endless zeros behind a header that promises a file of 900 KB, repeated.
    let mut one = tar::Header::new_gnu();
    one.set_size(900 << 10);
    one.set_path("z").unwrap();
    one.set_cksum();
    let mut block = one.as_bytes().to_vec();
    block.write_all(&vec![0; 900 << 10]).unwrap();
    let block = std::rc::Rc::new(block);
    struct Endless(std::rc::Rc<Vec<u8>>, usize);
    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let from = &self.0[self.1..];
            let count = from.len().min(buffer.len());
            buffer[..count].copy_from_slice(&from[..count]);
            self.1 = (self.1 + count) % self.0.len();
            Ok(count)
        }
    }
    let error = read(Endless(block, 0), LIMITS, &mut |_, content: &mut dyn Read| {
        io::copy(content, &mut io::sink()).map(drop).map_err(TarError::Damaged)
    })
    .unwrap_err();
    assert!(matches!(error, TarError::Total(_) | TarError::Damaged(_)), "{error}");
}

#[test]
fn copies_of_hard_links_are_bounded() {
    let mut tar = file("a", &vec![7; 900 << 10]);
    for number in 0..10 {
        tar.extend(entry(EntryType::Link, format!("link{number}").as_bytes(), b"a", b""));
    }
    let root = tempfile::tempdir().unwrap();
    let error = unpack(&tar[..], &Dir::open(root.path()).unwrap(), LIMITS, &|_| true).unwrap_err();
    assert!(error.to_string().contains("link9"), "{error}");
}
