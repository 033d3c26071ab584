//! Unpacks recorded machines into plain trees, once, below the build folder.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// Returns the plain tree of a packed machine. Unpacks it elsewhere and renames it, so that
/// parallel tests never see an incomplete tree.
pub(super) fn tree(packed: &Path, name: &str) -> io::Result<PathBuf> {
    let machines = Path::new(env!("CARGO_TARGET_TMPDIR")).join("machines");
    let stamp = fs::metadata(packed.join("sys/inlinefiles.txt"))?.len();
    let tree = machines.join(format!("{name}-{stamp}"));
    if tree.is_dir() {
        return Ok(tree);
    }
    let _one_at_a_time = LOCK.lock();
    if tree.is_dir() {
        return Ok(tree);
    }
    let beside = machines.join(format!(".{name}-{}", std::process::id()));
    unpack(packed, &beside)?;
    match fs::rename(&beside, &tree) {
        Ok(()) => Ok(tree),
        // Another test binary has unpacked it in the meantime.
        Err(_) if tree.is_dir() => fs::remove_dir_all(&beside).map(|()| tree),
        Err(error) => Err(error),
    }
}

static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Lines are `ro|/path|line` or `rw|/path|line`. Several lines with the same path are the lines of
/// that file. Other files are copied.
fn unpack(packed: &Path, into: &Path) -> io::Result<()> {
    let text = fs::read_to_string(packed.join("sys/inlinefiles.txt"))?;
    let mut files: BTreeMap<&str, (bool, String)> = BTreeMap::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, '|');
        let (Some(access), Some(path), Some(content)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if matches!(access, "ro" | "rw") && path.starts_with('/') {
            let (writable, text) = files.entry(path).or_default();
            *writable = access == "rw";
            text.push_str(content);
            text.push('\n');
        }
    }
    for (path, (writable, text)) in &files {
        let path = into.join(&path[1..]);
        fs::create_dir_all(path.parent().unwrap_or(into))?;
        fs::write(&path, text)?;
        let mut rights = fs::metadata(&path)?.permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut rights, if *writable { 0o644 } else { 0o444 });
        fs::set_permissions(&path, rights)?;
    }
    // The recordings do not have the modes of these files.
    for (part, mode) in [("sys", 0o644), ("proc", 0o444)] {
        copy(&packed.join(part), &into.join(part), mode)?;
    }
    if packed.join("msr/msr.txt").is_file() {
        fs::copy(packed.join("msr/msr.txt"), into.join("msr.txt"))?;
    }
    link_policies(into)
}

fn copy(from: &Path, into: &Path, mode: u32) -> io::Result<()> {
    let Ok(entries) = fs::read_dir(from) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        let target = into.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target, mode)?;
        } else if entry.file_name() != "inlinefiles.txt" {
            fs::create_dir_all(into)?;
            fs::write(&target, fs::read(entry.path())?)?;
            fs::set_permissions(target, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
        }
    }
    Ok(())
}

/// cpuN/cpufreq leads to its policy, as in the kernel.
fn link_policies(into: &Path) -> io::Result<()> {
    let cpus = into.join("sys/devices/system/cpu");
    for policy in fs::read_dir(cpus.join("cpufreq")).into_iter().flatten() {
        let policy = policy?.file_name();
        let path = cpus.join("cpufreq").join(&policy);
        for list in ["affected_cpus", "related_cpus"] {
            for cpu in fs::read_to_string(path.join(list)).unwrap_or_default().split_whitespace() {
                let folder = cpus.join(format!("cpu{cpu}"));
                let link = folder.join("cpufreq");
                if folder.is_dir() && fs::symlink_metadata(&link).is_err() {
                    std::os::unix::fs::symlink(Path::new("../cpufreq").join(&policy), link)?;
                }
            }
        }
    }
    Ok(())
}
