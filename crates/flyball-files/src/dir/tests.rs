use std::{fs, os::unix::fs::symlink, time::Instant};

use proptest::prelude::*;

use super::*;
use crate::{MAX_NAME, MAX_PARTS};

/// A tree with a secret outside it.
struct Tree {
    root: tempfile::TempDir,
    dir: Dir,
}

impl Tree {
    fn new() -> Tree {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("in/a/b")).unwrap();
        fs::write(root.path().join("secret"), "secret").unwrap();
        fs::write(root.path().join("in/a/file"), "inside").unwrap();
        let dir = Dir::open(root.path().join("in")).unwrap();
        Tree { root, dir }
    }

    fn link(&self, name: &str, target: &str) {
        symlink(target, self.root.path().join("in").join(name)).unwrap();
    }

    /// Returns the errno of reading a file, which must be the same from the kernel and from
    /// [`beneath::walk`].
    fn refused(&self, path: &str) -> Errno {
        let error = self.dir.read(path, 1000).unwrap_err();
        let errno = Errno::from_io_error(&error).unwrap();
        if plain(Path::new(path)).is_ok() {
            let walked = beneath::walk(self.dir.as_fd(), path.as_bytes(), OFlags::PATH, Mode::empty());
            match walked {
                Ok(fd) => assert_eq!(regular(&fd).unwrap_err().kind(), error.kind(), "{path}"),
                Err(walked) => assert_eq!(walked, errno, "{path}"),
            }
        }
        errno
    }
}

#[test]
fn links_that_stay_inside_are_followed() {
    let tree = Tree::new();
    tree.link("near", "a/file");
    tree.link("a/b/up", "../../near");
    tree.link("folder", "a/b/");
    assert_eq!(tree.dir.read("a/b/up", 100).unwrap(), b"inside");
    assert_eq!(tree.dir.read("folder/up", 100).unwrap(), b"inside");
    assert_eq!(tree.dir.link("near").unwrap(), "a/file");
    assert_eq!(tree.dir.link("a/file").unwrap_err().raw_os_error(), Some(Errno::INVAL.raw_os_error()));
    assert_eq!(tree.dir.status("near").unwrap().kind, Type::File);
    assert_eq!(tree.dir.status_of_link("near").unwrap().kind, Type::Link);
    let mut names = tree.dir.list("folder").unwrap();
    names.sort();
    assert_eq!(names, ["up"]);
}

#[test]
fn nothing_leads_out() {
    let tree = Tree::new();
    tree.link("absolute", "/etc/passwd");
    tree.link("climbs", "../secret");
    tree.link("far", "a/b/../../../secret");
    tree.link("root", "/");
    tree.link("above", "..");
    tree.link("proc", "/proc/self/root/etc/passwd");
    for path in ["absolute", "climbs", "far", "root/etc/passwd", "above/secret", "proc"] {
        assert_eq!(tree.refused(path), Errno::XDEV, "{path}");
    }
    assert_eq!(tree.refused("../secret"), Errno::INVAL);
    assert_eq!(tree.refused("a/../../secret"), Errno::INVAL);
    assert_eq!(tree.refused("/etc/passwd"), Errno::INVAL);
    for path in ["above", "above/new", "root/tmp/flyball-new", "climbs"] {
        assert!(tree.dir.create(path, 0o644).is_err(), "{path}");
        assert!(tree.dir.make_dirs(format!("{path}/x"), 0o755).is_err(), "{path}");
    }
    assert!(tree.dir.remove("above/secret").is_err() && tree.dir.rename("a/file", "above/x").is_err());
    assert!(tree.dir.list("above").is_err() && tree.dir.dir("root").is_err());
    assert_eq!(fs::read(tree.root.path().join("secret")).unwrap(), b"secret");
}

#[test]
fn circles_and_chains_end() {
    let tree = Tree::new();
    tree.link("x", "y");
    tree.link("y", "x");
    assert_eq!(tree.refused("x"), Errno::LOOP);
    for n in 0..60 {
        tree.link(&format!("chain{n}"), &if n == 0 { "a/file".into() } else { format!("chain{}", n - 1) });
    }
    assert_eq!(tree.dir.read("chain30", 100).unwrap(), b"inside");
    assert_eq!(tree.refused("chain59"), Errno::LOOP);
}

#[test]
fn only_regular_files_are_read_and_nothing_waits() {
    let tree = Tree::new();
    let fifo = tree.root.path().join("in/fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    tree.link("zero", "/dev/zero");
    let start = Instant::now();
    assert_eq!(tree.refused("fifo"), Errno::OPNOTSUPP);
    assert_eq!(tree.refused("zero"), Errno::XDEV);
    assert_eq!(tree.refused("a"), Errno::ISDIR);
    let socket = std::os::unix::net::UnixListener::bind(tree.root.path().join("in/socket")).unwrap();
    assert_eq!(tree.refused("socket"), Errno::OPNOTSUPP);
    drop(socket);
    assert!(start.elapsed().as_secs() < 5);
    // A directory that contains devices.
    let dev = Dir::open("/dev").unwrap();
    assert!(dev.read("zero", 1000).is_err() && dev.read("null", 1000).is_err());
}

#[test]
fn what_is_read_is_bounded() {
    let tree = Tree::new();
    assert_eq!(tree.dir.read("a/file", 6).unwrap(), b"inside");
    assert_eq!(tree.dir.read("a/file", 5).unwrap_err().raw_os_error(), Some(Errno::FBIG.raw_os_error()));
    let sparse = fs::File::create(tree.root.path().join("in/sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    let error = tree.dir.read("sparse", 1000).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::FBIG.raw_os_error()));
}

#[test]
fn paths_and_names_are_bounded() {
    let tree = Tree::new();
    assert_eq!(tree.refused(&"x/".repeat(60_000)), Errno::NAMETOOLONG);
    assert_eq!(tree.refused(&"x/".repeat(MAX_PARTS + 1)), Errno::NAMETOOLONG);
    assert_eq!(tree.refused(&"x".repeat(MAX_NAME + 1)), Errno::NAMETOOLONG);
}

#[test]
fn files_are_made_new_or_in_place_of_links() {
    let tree = Tree::new();
    tree.link("dangling", "../made");
    tree.link("out", "../secret");
    for name in ["dangling", "out", "a/file", "a"] {
        let error = tree.dir.create(name, 0o644).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{name}");
    }
    io::Write::write_all(&mut tree.dir.replace("out", 0o4755).unwrap(), b"new").unwrap();
    assert_eq!(fs::read(tree.root.path().join("secret")).unwrap(), b"secret");
    assert_eq!(tree.dir.read("out", 10).unwrap(), b"new");
    assert_eq!(tree.dir.status("out").unwrap().mode & 0o7000, 0);
    assert!(tree.dir.replace("a", 0o644).is_err());
    assert!(tree.dir.create("dangling/x", 0o644).is_err());
    tree.dir.make_dirs("a/b/c/d", 0o755).unwrap().create("e", 0o600).unwrap();
    tree.dir.rename("a/b/c/d/e", "a/f").unwrap();
    assert_eq!(tree.dir.status("a/f").unwrap().mode, 0o600);
}

#[test]
fn links_are_made_only_where_they_stay_inside() {
    let tree = Tree::new();
    tree.link("to-root", "a/..");
    let make = |path: &str, target: &str| tree.dir.make_link(path, Path::new(target)).unwrap();
    assert!(make("a/one", "file") && make("a/b/two", "../../a/file"));
    assert!(!make("three", "../secret") && !make("a/four", "../../secret") && !make("a/five", "/etc/passwd"));
    // By its path it is two levels deep, in fact none.
    tree.link("a/b/flat", "../..");
    assert!(!make("a/b/flat/six", "../x"));
}

/// One step of building a tree.
#[derive(Debug, Clone)]
enum TreeStep {
    Folder(String),
    File(String),
    Link(String, String),
}

fn name() -> impl Strategy<Value = String> {
    "[abc]"
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(name(), 1..4).prop_map(|parts| parts.join("/"))
}

fn target() -> impl Strategy<Value = String> {
    let part = prop_oneof![4 => name(), 3 => Just("..".to_owned()), 1 => Just(".".to_owned()), 1 => Just(String::new())];
    prop::collection::vec(part, 1..6).prop_map(|parts| parts.join("/"))
}

fn made() -> impl Strategy<Value = TreeStep> {
    prop_oneof![
        path().prop_map(TreeStep::Folder),
        path().prop_map(TreeStep::File),
        (path(), target()).prop_map(|(path, target)| TreeStep::Link(path, target)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Whatever a tree contains, opened files are inside, and the kernel and the walk without
    /// openat2 agree.
    #[test]
    fn any_tree_is_left_by_no_path(steps in prop::collection::vec(made(), 1..14), paths in prop::collection::vec(path(), 1..8)) {
        let root = tempfile::tempdir().unwrap();
        // Deeper than any target climbs, so that a link which leads outside finds something there.
        let top = root.path().join("a/b/c/a/b/c/in");
        fs::create_dir_all(&top).unwrap();
        for step in steps {
            // The ordinary calls follow links, but stay below `root`, which is deep enough.
            match step {
                TreeStep::Folder(path) => drop(fs::create_dir_all(top.join(path))),
                TreeStep::File(path) => drop(fs::write(top.join(path), "x")),
                TreeStep::Link(path, target) => drop(symlink(target, top.join(path))),
            }
        }
        let dir = Dir::open(&top).unwrap();
        let top = fs::canonicalize(&top).unwrap();
        for path in paths {
            for flags in [OFlags::PATH, OFlags::PATH | OFlags::NOFOLLOW, OFlags::PATH | OFlags::DIRECTORY, OFlags::RDONLY] {
                let kernel = beneath::open(dir.as_fd(), path.as_bytes(), flags, Mode::empty());
                let walked = beneath::walk(dir.as_fd(), path.as_bytes(), flags, Mode::empty());
                prop_assert_eq!(kernel.as_ref().err(), walked.as_ref().err(), "{} {:?}", path, flags);
                let Ok((kernel, walked)) = kernel.and_then(|kernel| Ok((kernel, walked?))) else { continue };
                let (one, two) = (rustix::fs::fstat(&kernel).unwrap(), rustix::fs::fstat(&walked).unwrap());
                prop_assert_eq!((one.st_dev, one.st_ino), (two.st_dev, two.st_ino));
                if !flags.contains(OFlags::NOFOLLOW) {
                    let real = fs::canonicalize(top.join(&path)).unwrap();
                    prop_assert!(real.starts_with(&top), "{} leads to {}", path, real.display());
                }
            }
        }
    }
}
