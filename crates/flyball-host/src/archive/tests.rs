use std::io::{self, Write as _};

use flyball_files::PathError;

use super::*;

fn packed(build: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    build(&mut tar);
    zstd::encode_all(tar.into_inner().unwrap().as_slice(), 3).unwrap()
}

fn add(tar: &mut tar::Builder<Vec<u8>>, path: &str, bytes: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    // Written by hand: the library refuses to create the paths under test.
    header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
    header.set_cksum();
    tar.append(&header, bytes).unwrap();
}

fn read(bytes: &[u8]) -> Result<Archive, ArchiveError> {
    Archive::read("x.tar.zst", bytes)
}

/// Returns the error in an archive's tar.
fn tar_error(bytes: &[u8]) -> TarError {
    match read(bytes) {
        Err(ArchiveError::Tar(_, error)) => error,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("accepted"),
    }
}

/// Returns the error in an archive's content.
fn content_error(bytes: &[u8]) -> String {
    match read(bytes) {
        Err(ArchiveError::Content(_, why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("accepted"),
    }
}

const HEAD: &[u8] = b"{\"format\": 1}";

#[test]
fn what_is_written_is_read_back() {
    let mut writer = Writer::new(Vec::new(), "6.12.0").unwrap();
    writer.file("sys/devices/system/cpu/online", b"0-1\n", false).unwrap();
    writer.file("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", b"powersave\n", true).unwrap();
    writer.folder("sys/devices/system/cpu/cpu0").unwrap();
    writer.link("sys/devices/system/cpu/cpu0/cpufreq", "../cpufreq/policy0").unwrap();
    writer.file("msr.txt", b"1b0:0|6\n", false).unwrap();
    writer
        .file("errors.txt", b"16|/sys/devices/system/cpu/cpufreq/policy1/scaling_governor\n", false)
        .unwrap();
    let machine = read(&writer.finish().unwrap()).unwrap();
    let cpu = "/sys/devices/system/cpu";
    assert_eq!(machine.read(&format!("{cpu}/online")).unwrap(), "0-1");
    let governor = format!("{cpu}/cpu0/cpufreq/scaling_governor");
    assert_eq!(machine.read(&governor).unwrap(), "powersave");
    assert!(machine.writable(&governor) && !machine.writable(&format!("{cpu}/online")));
    assert_eq!(machine.link(&format!("{cpu}/cpu0/cpufreq")).unwrap(), "../cpufreq/policy0");
    assert_eq!(machine.list(cpu).unwrap(), ["cpu0", "cpufreq", "online"]);
    let busy = machine.read(&format!("{cpu}/cpufreq/policy1/scaling_governor")).unwrap_err();
    assert_eq!(busy.errno, Errno::BUSY);
    assert_eq!(machine.write(&governor, b"x").unwrap_err().errno, Errno::ROFS);
    assert_eq!(machine.msr(0, 0x1b0).unwrap(), 6);
    assert_eq!(machine.read("/etc/passwd").unwrap_err().errno, Errno::NOENT);
    assert_eq!(machine.read(&format!("{cpu}/../../x")).unwrap_err().errno, Errno::INVAL);
    assert_eq!(machine.list(&format!("{cpu}/online")).unwrap_err().errno, Errno::NOTDIR);
    let text = machine.to_text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "/sys/devices/system/cpu/cpu0/cpufreq -> ../cpufreq/policy0",
            "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor = powersave",
            "/sys/devices/system/cpu/cpufreq/policy1/scaling_governor ! EBUSY",
            "/sys/devices/system/cpu/online = 0-1",
            "MSR 0x1b0 of CPU 0 = 0x6",
        ]
    );
}

#[test]
fn hostile_archives_are_refused() {
    let climbing = packed(|tar| {
        add(tar, "flyball.json", HEAD);
        add(tar, "sys/../../etc/passwd", b"x");
    });
    assert!(matches!(tar_error(&climbing), TarError::Path { why: PathError::Outside, .. }));
    let absolute = packed(|tar| add(tar, "/etc/passwd", b"x"));
    assert!(matches!(tar_error(&absolute), TarError::Path { why: PathError::Outside, .. }));
    let later = packed(|tar| add(tar, "flyball.json", b"{\"format\": 2}"));
    assert!(content_error(&later).contains("later flyball"));
    let empty = packed(|tar| add(tar, "flyball.json", HEAD));
    assert!(content_error(&empty).contains("no sys/"));
    let other = packed(|tar| add(tar, "sys/devices/system/cpu/online", b"0\n"));
    assert!(content_error(&other).contains("no flyball.json"));
    let device = packed(|tar| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Char);
        header.set_size(0);
        header.set_cksum();
        tar.append_data(&mut header, "sys/null", io::empty()).unwrap();
    });
    assert!(content_error(&device).contains("neither file"));
    assert!(matches!(tar_error(b"not zstd at all"), TarError::Damaged(_)));
    let whole = packed(|tar| {
        add(tar, "flyball.json", HEAD);
        add(tar, "sys/devices/system/cpu/online", b"0\n");
    });
    assert!(read(&whole).is_ok());
    for cut in [1, whole.len() / 2, whole.len() - 1] {
        assert!(read(&whole[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn a_bomb_does_not_fill_the_memory() {
    // A header that promises a gigabyte, and zeros that pack a thousandfold.
    let mut header = tar::Header::new_gnu();
    header.set_size(1 << 30);
    header.set_mode(0o444);
    header.set_path("sys/big").unwrap();
    header.set_cksum();
    let mut plain = header.as_bytes().to_vec();
    plain.resize(8 << 20, 0);
    let bomb = zstd::encode_all(plain.as_slice(), 3).unwrap();
    assert!(matches!(tar_error(&bomb), TarError::Large(_)));
    // A long name of 600 MB must be refused at the limit, whatever reads the name.
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::GNULongName);
    header.set_size(600 << 20);
    header.set_path("././@LongLink").unwrap();
    header.set_cksum();
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.write_all(header.as_bytes()).unwrap();
    let zeros = vec![b'a'; 1 << 20];
    for _ in 0..16 {
        encoder.write_all(&zeros).unwrap();
    }
    assert!(read(&encoder.finish().unwrap()).is_err());
}

#[test]
fn links_in_a_circle_end() {
    let mut writer = Writer::new(Vec::new(), "").unwrap();
    writer.file("sys/x", b"1", false).unwrap();
    writer.link("sys/a", "b").unwrap();
    writer.link("sys/b", "a").unwrap();
    writer.link("sys/out", "../../../../../../sys/x").unwrap();
    let machine = read(&writer.finish().unwrap()).unwrap();
    assert_eq!(machine.read("/sys/a").unwrap_err().errno, Errno::LOOP);
    assert_eq!(machine.read("/sys/out").unwrap(), "1");
}

/// Bombs found in a review: a few hundred bytes that took all memory, or seconds for each read.
#[test]
fn small_archives_do_not_grow() {
    let long = |path: &str, target: &str| {
        let mut writer = Writer::new(Vec::new(), "").unwrap();
        writer.file("sys/x", b"1", false).unwrap();
        if !target.is_empty() {
            writer.link("sys/link", target).unwrap();
        }
        if !path.is_empty() {
            writer.file("errors.txt", format!("5|/{path}\n").as_bytes(), false).unwrap();
        }
        writer.finish().unwrap()
    };
    let deep = "x/".repeat(60_000);
    assert!(content_error(&long(&format!("sys/{deep}y"), "")).contains("errors.txt, line 1"));
    let link = long("", &"y/".repeat(40_000));
    assert!(matches!(tar_error(&link), TarError::Path { why: PathError::Long, .. }));
    let mut writer = Writer::new(Vec::new(), "").unwrap();
    writer.file(&format!("sys/{deep}y"), b"1", false).unwrap();
    assert!(matches!(tar_error(&writer.finish().unwrap()), TarError::Path { why: PathError::Long, .. }));
    // As many long paths as fit into the limit: each adds all folders above it.
    let mut lines = String::new();
    for n in 0..60_000 {
        lines.push_str(&format!("5|/sys/{n}/{}x\n", "abcdefghijklmno/".repeat(50)));
    }
    let mut writer = Writer::new(Vec::new(), "").unwrap();
    writer.file("errors.txt", &lines.as_bytes()[..MAX_TEST], false).unwrap();
    let error = content_error(&writer.finish().unwrap());
    assert!(error.contains("larger than any machine"), "{error}");
}

/// Limit on one file.
const MAX_TEST: usize = 16 << 20;

#[test]
fn long_ways_through_links_end() {
    let mut writer = Writer::new(Vec::new(), "").unwrap();
    let climbs = format!("{}x", "a/../".repeat(30));
    writer.folder("sys/a").unwrap();
    for n in 0..39 {
        writer.link(&format!("sys/{n}"), &climbs.replace('x', &(n + 1).to_string())).unwrap();
    }
    writer.file("sys/39", b"1", false).unwrap();
    let machine = read(&writer.finish().unwrap()).unwrap();
    assert_eq!(machine.read("/sys/38").unwrap(), "1");
    assert_eq!(machine.read("/sys/0").unwrap_err().errno, Errno::LOOP);
    assert_eq!(machine.read(&format!("/sys/{}", "x".repeat(2000))).unwrap_err().errno, Errno::NAMETOOLONG);
}
