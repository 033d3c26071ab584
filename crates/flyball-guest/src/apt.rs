//! Packages from the mirror that this machine's apt already uses, without root and without touching its state.
//!
//! apt is run with a state directory, a source list and a status file of our own. The mirror's address is asked of
//! apt; only the suites are ours, because the kernels of several releases are wanted. It works on Debian, whose
//! archive holds all its releases at one address.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use crate::{
    archive, cache::Cache, cache::compare_versions, cache::starts_with_version, error::GuestError, kernel,
};

/// Suites that kernels are looked for in.
const KERNEL_SUITES: &[&str] = &[
    "bookworm",
    "bookworm-updates",
    "bookworm-backports",
    "trixie",
    "trixie-updates",
    "trixie-backports",
    "sid",
];

/// Suites of the emulator and of busybox: the first release whose backports have QEMU 11, with all its libraries.
const EMULATOR_SUITES: &[&str] = &["trixie", "trixie-backports"];

/// A private package state in `dir` that knows `suites`.
#[derive(Debug)]
struct Apt {
    dir: PathBuf,
}

impl Apt {
    fn new(dir: PathBuf, mirror: &Mirror, suites: &[&str], pins: &str) -> Result<Apt, GuestError> {
        for sub in ["lists/partial", "archives/partial", "parts"] {
            let path = dir.join(sub);
            fs::create_dir_all(&path).map_err(|e| GuestError::file("make", &path, e))?;
        }
        let lines: String = suites.iter().map(|suite| mirror.line(suite)).collect();
        for (name, text) in [("status", ""), ("sources.list", lines.as_str()), ("preferences", pins)] {
            let path = dir.join(name);
            if fs::read_to_string(&path).ok().as_deref() != Some(text) {
                fs::write(&path, text).map_err(|e| GuestError::file("write", &path, e))?;
            }
        }
        Ok(Apt { dir })
    }

    fn command(&self, tool: &str) -> Command {
        let mut command = Command::new(tool);
        let dir = self.dir.display();
        for option in [
            format!("Dir::Etc::SourceList={dir}/sources.list"),
            format!("Dir::Etc::SourceParts={dir}/parts"),
            format!("Dir::Etc::Preferences={dir}/preferences"),
            format!("Dir::Etc::PreferencesParts={dir}/parts"),
            format!("Dir::State={dir}"),
            format!("Dir::State::status={dir}/status"),
            format!("Dir::State::lists={dir}/lists"),
            format!("Dir::Cache={dir}"),
            format!("Dir::Log={dir}"),
            "APT::Sandbox::User=root".into(),
            "APT::Architecture=amd64".into(),
            "APT::Architectures=amd64".into(),
            "Acquire::Languages=none".into(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".into(),
        ] {
            command.arg("-o").arg(option);
        }
        command.arg("-qq").current_dir(&self.dir).env("LC_ALL", "C");
        command
    }

    fn run(&self, tool: &str, args: &[&str]) -> Result<String, GuestError> {
        let out = self.command(tool).args(args).output();
        let out =
            out.map_err(|e| GuestError::Fetch(format!("cannot run {tool}: {e}; it needs Debian's apt")))?;
        if out.status.success() {
            return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&out.stderr);
        let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("E:")).take(3).collect();
        Err(GuestError::Fetch(format!("{tool} {} failed: {}", args.join(" "), lines.join("; "))))
    }

    /// Reads the mirror's lists, unless that was done within a day.
    fn update(&self) -> Result<(), GuestError> {
        let fresh = fs::read_dir(self.dir.join("lists")).into_iter().flatten().flatten().any(|entry| {
            let day = Duration::from_secs(24 * 3600);
            entry.file_name().to_string_lossy().contains("Packages")
                && entry
                    .metadata()
                    .and_then(|m| m.modified())
                    .is_ok_and(|time| SystemTime::now().duration_since(time).is_ok_and(|age| age < day))
        });
        if !fresh {
            self.run("apt-get", &["update"])?;
        }
        Ok(())
    }

    /// Downloads one package and gives its file.
    fn download(&self, package: &str) -> Result<PathBuf, GuestError> {
        let dir = self.dir.join("download");
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).map_err(|e| GuestError::file("make", &dir, e))?;
        let status = self.command("apt-get").current_dir(&dir).args(["download", package]).output();
        let out = status.map_err(|e| GuestError::Fetch(format!("cannot run apt-get: {e}")))?;
        let file = fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.path()).next();
        file.ok_or_else(|| {
            let said = String::from_utf8_lossy(&out.stderr);
            GuestError::Fetch(format!("{package} could not be downloaded: {}", said.trim()))
        })
    }
}

/// The mirror of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mirror {
    address: String,
    signed_by: Option<String>,
}

impl Mirror {
    /// Asks apt for the address from which it gets the `main` of this release.
    fn of_this_machine() -> Result<Mirror, GuestError> {
        const FORMAT: &str = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(SIGNED_BY)";
        let out = Command::new("apt-get")
            .args(["indextargets", "--format", FORMAT, "Created-By: Packages"])
            .output();
        let out = out.map_err(|e| {
            GuestError::Fetch(format!(
                "cannot run apt-get: {e}; without Debian's apt, give --kernel a bzImage and set FLYBALL_QEMU"
            ))
        })?;
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        Mirror::choose(&String::from_utf8_lossy(&out.stdout), &release).ok_or_else(|| {
            GuestError::Fetch(
                "apt has no Debian mirror; give --kernel a bzImage or Debian package, and set FLYBALL_QEMU"
                    .into(),
            )
        })
    }

    fn choose(targets: &str, os_release: &str) -> Option<Mirror> {
        let codename = os_release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
        let codename = codename.map(|name| name.trim_matches('"'));
        targets.lines().find_map(|line| {
            let mut fields = line.split('|');
            let (address, release, component) = (fields.next()?, fields.next()?, fields.next()?);
            let known = Some(release) == codename || KERNEL_SUITES.contains(&release) || release == "stable";
            let signed_by = fields.next().filter(|key| key.starts_with('/')).map(str::to_owned);
            (known && component == "main" && !address.contains("security"))
                .then(|| Mirror { address: address.trim_end_matches('/').to_owned(), signed_by })
        })
    }

    fn line(&self, suite: &str) -> String {
        const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
        let keys = self.signed_by.clone().or_else(|| Path::new(KEYS).is_file().then(|| KEYS.to_owned()));
        let options = keys.map_or("[arch=amd64] ".into(), |keys| format!("[arch=amd64 signed-by={keys}] "));
        format!("deb {options}{} {suite} main\n", self.address)
    }
}

/// Fetches kernels, the emulator and busybox, as far as they are not in the cache; `say` is told of every step.
pub fn fetch(cache: &Cache, kernels: &[String], say: &mut dyn FnMut(&str)) -> Result<(), GuestError> {
    let mirror = Mirror::of_this_machine()?;
    fs::create_dir_all(cache.root()).map_err(|e| GuestError::file("make", cache.root(), e))?;
    if !cache.qemu().join("root/usr/bin/qemu-system-x86_64").is_file() || !cache.busybox().is_file() {
        fetch_emulator(cache, &mirror, say)?;
    }
    if kernels.is_empty() {
        return Ok(());
    }
    let apt = Apt::new(cache.apt().join("kernels"), &mirror, KERNEL_SUITES, "")?;
    say("reading the mirror's lists of kernels");
    apt.update()?;
    let names = apt.run("apt-cache", &["pkgnames", "linux-"])?;
    for wanted in kernels {
        let version = newest_kernel(&names, wanted)
            .ok_or_else(|| GuestError::Fetch(format!("the mirror has no kernel {wanted}")))?;
        let tree = cache.kernels().join(&version);
        if tree.is_dir() {
            say(&format!("kernel {version}: in the cache"));
            continue;
        }
        say(&format!("kernel {version}: fetching"));
        let part = cache.kernels().join(format!("{version}.part"));
        let _ = fs::remove_dir_all(&part);
        // One package once; the image, its binary and its modules apart in newer releases.
        for piece in ["image", "binary", "modules"] {
            let package = format!("linux-{piece}-{version}-amd64");
            if names.lines().any(|name| name == package) {
                let deb = apt.download(&package)?;
                archive::unpack_deb(&deb, &part, kernel::is_kernel_file)?;
                let _ = fs::remove_file(deb);
            }
        }
        fs::rename(&part, &tree).map_err(|e| GuestError::file("rename", &part, e))?;
    }
    Ok(())
}

fn fetch_emulator(cache: &Cache, mirror: &Mirror, say: &mut dyn FnMut(&str)) -> Result<(), GuestError> {
    const PINS: &str =
        "Package: qemu-system-* seabios ipxe-qemu\nPin: release n=trixie-backports\nPin-Priority: 990\n";
    let apt = Apt::new(cache.apt().join("emulator"), mirror, EMULATOR_SUITES, PINS)?;
    say("reading the mirror's list of emulators");
    apt.update()?;
    if !cache.busybox().is_file() {
        say("busybox: fetching");
        let deb = apt.download("busybox-static")?;
        let dir = apt.dir.join("busybox");
        archive::unpack_deb(&deb, &dir, |path| path.ends_with("busybox"))?;
        let found = ["bin/busybox", "usr/bin/busybox"].iter().map(|p| dir.join(p)).find(|p| p.is_file());
        let found = found.ok_or_else(|| GuestError::Fetch("busybox-static holds no busybox".into()))?;
        let bytes = fs::read(&found).map_err(|e| GuestError::file("read", &found, e))?;
        crate::cache::write_whole(&cache.busybox(), &bytes)?;
    }
    let done = cache.qemu();
    if done.join("root/usr/bin/qemu-system-x86_64").is_file() {
        return Ok(());
    }
    say("QEMU and its libraries: fetching");
    apt.run("apt-get", &["install", "--no-install-recommends", "-y", "--download-only", "qemu-system-x86"])?;
    let part = cache.root().join("qemu.part");
    let _ = fs::remove_dir_all(&part);
    let archives = apt.dir.join("archives");
    let mut debs: Vec<PathBuf> = fs::read_dir(&archives)
        .map_err(|e| GuestError::file("list", &archives, e))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "deb"))
        .collect();
    debs.sort();
    for deb in &debs {
        archive::unpack_deb(deb, &part.join("root"), |path| {
            [
                "usr/bin/qemu-system-x86_64",
                "usr/lib",
                "usr/lib64",
                "lib",
                "lib64",
                "usr/share/seabios",
                "usr/share/qemu",
            ]
            .iter()
            .any(|want| path.starts_with(want))
        })?;
    }
    let _ = fs::remove_dir_all(&done);
    fs::rename(&part, &done).map_err(|e| GuestError::file("rename", &part, e))?;
    let _ = fs::remove_dir_all(&archives);
    Ok(())
}

/// The newest version in `names` (apt's package names) of an ordinary amd64 kernel that begins with `wanted`.
fn newest_kernel(names: &str, wanted: &str) -> Option<String> {
    names
        .lines()
        .filter_map(|name| name.strip_prefix("linux-image-")?.strip_suffix("-amd64"))
        .filter(|version| version.starts_with(|c: char| c.is_ascii_digit()))
        .filter(|version| !["cloud", "rt", "unsigned"].iter().any(|flavour| version.ends_with(flavour)))
        .filter(|version| version.split('.').count() >= 3 && starts_with_version(version, wanted))
        .max_by(|a, b| compare_versions(a, b))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_ordinary_kernel_is_taken() {
        let names = "linux-image-6.1.0-9-amd64\nlinux-image-6.1.0-50-amd64\nlinux-image-6.1.0-51-cloud-amd64\n\
                     linux-image-6.1.0-52-rt-amd64\nlinux-image-6.12.107+deb13-amd64\nlinux-image-amd64\n\
                     linux-image-6.1-amd64\nlinux-modules-6.1.0-99-amd64\nlinux-image-6.1.0-60-amd64-unsigned\n";
        assert_eq!(newest_kernel(names, "6.1").as_deref(), Some("6.1.0-50"));
        assert_eq!(newest_kernel(names, "6.12").as_deref(), Some("6.12.107+deb13"));
        assert_eq!(newest_kernel(names, "6.13"), None);
    }

    #[test]
    fn the_mirror_is_the_machines() {
        let targets = "https://example.org/other/|nodistro|main|/k.gpg\n\
                       https://example.org/security/|bookworm-security|main|\n\
                       http://mirror.example.org/debian/|bookworm|main|$(SIGNED_BY)\n";
        let mirror = Mirror::choose(targets, "ID=debian\nVERSION_CODENAME=bookworm\n").unwrap();
        assert_eq!(mirror.address, "http://mirror.example.org/debian");
        assert!(mirror.line("sid").ends_with("] http://mirror.example.org/debian sid main\n"));
        assert_eq!(Mirror::choose("https://example.org/x/|stream9|BaseOS|\n", ""), None);
    }
}
