//! Fetches packages from the mirror that this machine's apt already uses, without root and without
//! touching its state.
//!
//! It runs apt with its own state directory, source list and status file. The mirror's address
//! comes from apt; only the suites are ours, because kernels of several releases are needed. This
//! works on Debian, whose archive has all its releases at one address.
//!
//! apt verifies the signature of the mirror's lists, which contain the SHA-256 of every package.
//! flyball itself compares that hash with the bytes that it then unpacks. So neither the mirror,
//! nor anyone between, nor a failed apt can choose what runs here.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use crate::{
    cache::{Cache, compare_versions, starts_with_version},
    deb::Package,
    error::GuestError,
    kernel,
};

/// Suites with kernels.
const KERNEL_SUITES: &[&str] = &[
    "bookworm",
    "bookworm-updates",
    "bookworm-backports",
    "trixie",
    "trixie-updates",
    "trixie-backports",
    "sid",
];

/// Suites of the emulator and busybox: the first release whose backports have QEMU 11 with all its
/// libraries.
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
            // Write only changed files, because apt rebuilds its cache if the source list is newer.
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
            // With an empty status file nothing counts as installed, so the emulator's libraries
            // are all fetched too.
            format!("Dir::State::status={dir}/status"),
            format!("Dir::State::lists={dir}/lists"),
            format!("Dir::Cache={dir}"),
            format!("Dir::Log={dir}"),
            // The machine's own configuration may allow unsigned mirrors and missing signatures,
            // which we reject.
            "Acquire::AllowInsecureRepositories=false".into(),
            "Acquire::AllowWeakRepositories=false".into(),
            "Acquire::AllowDowngradeToInsecureRepositories=false".into(),
            "APT::Get::AllowUnauthenticated=false".into(),
            // Failing to fetch lists is an error, not a warning about older lists.
            "APT::Update::Error-Mode=any".into(),
            "APT::Architecture=amd64".into(),
            "APT::Architectures=amd64".into(),
            // Translations and metadata for software centres would double what is downloaded.
            "Acquire::Languages=none".into(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".into(),
        ] {
            command.arg("-o").arg(option);
        }
        // apt's output is parsed, so it must not be in the user's language.
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
        // Its warnings may fill a screen; the errors tell what failed.
        let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("E:")).take(3).collect();
        Err(GuestError::Fetch(format!("{tool} {} failed: {}", args.join(" "), lines.join("; "))))
    }

    /// Fetches the mirror's lists, unless that was done within a day.
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

    /// The downloads for `packages` (`NAME` or `NAME=VERSION`), with hashes from the signed lists.
    fn listed(&self, packages: &[String]) -> Result<Vec<Listed>, GuestError> {
        let mut words = vec!["download", "--print-uris"];
        words.extend(packages.iter().map(String::as_str));
        let text = self.run("apt-get", &words)?;
        let listed: Option<Vec<Listed>> = text.lines().map(Listed::parse).collect();
        // A package without a hash would not be checked.
        let listed = listed.filter(|listed| listed.len() == packages.len());
        listed.ok_or_else(|| {
            let first = text.lines().next().unwrap_or("no output");
            GuestError::Fetch(format!("apt-get does not state a SHA-256 for each package: {first}"))
        })
    }

    /// Downloads packages. A package is returned only if its bytes match the hash in the signed
    /// lists.
    fn download(&self, packages: &[String]) -> Result<Vec<Verified>, GuestError> {
        let listed = self.listed(packages)?;
        let dir = self.dir.join("download");
        // A new directory, because apt does not download files that exist.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).map_err(|e| GuestError::file("make", &dir, e))?;
        let out = self.command("apt-get").current_dir(&dir).arg("download").args(packages).output();
        // Not through `run`, because apt leaves the files in its working directory.
        let out = out.map_err(|e| GuestError::Fetch(format!("cannot run apt-get: {e}")))?;
        if !out.status.success() {
            // With a wrong hash apt leaves NAME.FAILED in the directory.
            let said = String::from_utf8_lossy(&out.stderr);
            return Err(GuestError::Fetch(format!("apt-get download failed: {}", said.trim())));
        }
        Ok(listed.into_iter().map(|listed| Verified { path: dir.join(&listed.file), listed }).collect())
    }
}

/// A package in the signed lists.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Listed {
    /// Name of apt's file.
    file: String,
    /// In hexadecimal.
    sha256: String,
}

impl Listed {
    /// Parses a line of `apt-get download --print-uris`: `'ADDRESS' FILE SIZE SHA256:HASH`.
    fn parse(line: &str) -> Option<Listed> {
        // Blanks in an address are encoded.
        let [_, file, _, hash] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let sha256 = hash.strip_prefix("SHA256:")?;
        let is_hash = sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
        // The name becomes part of a path.
        let is_name = file.ends_with(".deb") && !file.starts_with('.') && !file.contains('/');
        (is_hash && is_name).then(|| Listed { file: file.to_owned(), sha256: sha256.to_ascii_lowercase() })
    }
}

/// A downloaded package, checked when it is opened.
#[derive(Debug)]
struct Verified {
    path: PathBuf,
    listed: Listed,
}

impl Verified {
    fn open(&self) -> Result<Package, GuestError> {
        let package = Package::read(&self.path)?;
        let found = package.sha256();
        if found != self.listed.sha256 {
            return Err(GuestError::Fetch(format!(
                "{} is not what the mirror's signed lists name: its SHA-256 is {found}, and should be {}; nothing of it \
                 was unpacked",
                self.listed.file, self.listed.sha256
            )));
        }
        Ok(package)
    }

    /// Unpacks the wanted files, and removes the package.
    fn unpack(&self, into: &Path, want: impl Fn(&Path) -> bool) -> Result<(), GuestError> {
        self.open()?.unpack(into, want)?;
        // This only saves space: the next download uses a new directory.
        let _ = fs::remove_file(&self.path);
        Ok(())
    }
}

/// The mirror of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mirror {
    address: String,
    signed_by: Option<String>,
}

impl Mirror {
    /// Asks apt for the address of this release's `main` component.
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
            // sources.list may name a suite by its code name or by its role.
            let known = Some(release) == codename || KERNEL_SUITES.contains(&release) || release == "stable";
            let signed_by = fields.next().filter(|key| key.starts_with('/')).map(str::to_owned);
            // The archive of security updates has another address, and none of the wanted suites.
            (known && component == "main" && !address.contains("security"))
                .then(|| Mirror { address: address.trim_end_matches('/').to_owned(), signed_by })
        })
    }

    fn line(&self, suite: &str) -> String {
        // Debian's own keys, if the user's line names none: apt's general key ring may contain
        // other vendors' keys.
        const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
        let keys = self.signed_by.clone().or_else(|| Path::new(KEYS).is_file().then(|| KEYS.to_owned()));
        let options = keys.map_or("[arch=amd64] ".into(), |keys| format!("[arch=amd64 signed-by={keys}] "));
        format!("deb {options}{} {suite} main\n", self.address)
    }
}

/// Fetches kernels, the emulator and busybox if they are not in the cache; calls `say` for every
/// step.
pub fn fetch(cache: &Cache, kernels: &[String], say: &mut dyn FnMut(&str)) -> Result<(), GuestError> {
    let mirror = Mirror::of_this_machine()?;
    cache.make()?;
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
        // Renamed once it is complete, so that an interrupted fetch leaves nothing under the
        // version's name.
        let part = cache.kernels().join(format!("{version}.part"));
        let _ = fs::remove_dir_all(&part);
        // Each package once; newer releases split the image, its binary and its modules.
        let pieces = ["image", "binary", "modules"].map(|piece| format!("linux-{piece}-{version}-amd64"));
        let pieces: Vec<String> =
            pieces.into_iter().filter(|piece| names.lines().any(|name| name == piece)).collect();
        let mut origin = String::new();
        for package in apt.download(&pieces)? {
            package.unpack(&part, kernel::is_kernel_file)?;
            origin.push_str(&format!("{}  {}\n", package.listed.sha256, package.listed.file));
        }
        // The packages from which the kernel was made, in the format of sha256sum(1).
        let path = part.join("packages");
        fs::write(&path, origin).map_err(|e| GuestError::file("write", &path, e))?;
        fs::rename(&part, &tree).map_err(|e| GuestError::file("rename", &part, e))?;
    }
    Ok(())
}

fn fetch_emulator(cache: &Cache, mirror: &Mirror, say: &mut dyn FnMut(&str)) -> Result<(), GuestError> {
    // Only the emulator and its firmware come from backports; their dependencies come from the
    // release if it is new enough.
    const PINS: &str =
        "Package: qemu-system-* seabios ipxe-qemu\nPin: release n=trixie-backports\nPin-Priority: 990\n";
    let apt = Apt::new(cache.apt().join("emulator"), mirror, EMULATOR_SUITES, PINS)?;
    say("reading the mirror's list of emulators");
    apt.update()?;
    if !cache.busybox().is_file() {
        say("busybox: fetching");
        let dir = apt.dir.join("busybox");
        let _ = fs::remove_dir_all(&dir);
        for package in apt.download(&["busybox-static".to_owned()])? {
            package.unpack(&dir, |path| path.ends_with("busybox"))?;
        }
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
    // `install` knows QEMU's dependencies, and `download` has the hashes from the lists, so use the
    // first to list and the second to fetch.
    let text =
        apt.run("apt-get", &["install", "--print-uris", "--no-install-recommends", "-y", "qemu-system-x86"])?;
    let packages: Option<Vec<String>> = text.lines().map(name_and_version).collect();
    let packages = packages.filter(|packages| !packages.is_empty()).ok_or_else(|| {
        GuestError::Fetch("apt-get install --print-uris does not name packages and versions".into())
    })?;
    let part = cache.root().join("qemu.part");
    let _ = fs::remove_dir_all(&part);
    for package in apt.download(&packages)? {
        package.unpack(&part.join("root"), |path| {
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
    let _ = fs::remove_dir_all(apt.dir.join("download"));
    Ok(())
}

/// `NAME=VERSION` of a line of `apt-get install --print-uris`, whose second word is
/// `NAME_VERSION_ARCHITECTURE.deb` with the version's colon encoded.
fn name_and_version(line: &str) -> Option<String> {
    let mut parts = line.split(' ').nth(1)?.split('_');
    let (name, version) = (parts.next()?, parts.next()?.replace("%3a", ":"));
    (!name.is_empty() && !name.starts_with('-')).then(|| format!("{name}={version}"))
}

/// The newest ordinary amd64 kernel in `names` (apt's package names) whose version begins with
/// `wanted`.
fn newest_kernel(names: &str, wanted: &str) -> Option<String> {
    names
        .lines()
        .filter_map(|name| name.strip_prefix("linux-image-")?.strip_suffix("-amd64"))
        .filter(|version| version.starts_with(|c: char| c.is_ascii_digit()))
        .filter(|version| !["cloud", "rt", "unsigned"].iter().any(|flavour| version.ends_with(flavour)))
        // Names with only a series (`linux-image-6.1-amd64`) are metapackages.
        .filter(|version| version.split('.').count() >= 3 && starts_with_version(version, wanted))
        .max_by(|a, b| compare_versions(a, b))
        .map(str::to_owned)
}

/// Parses text as each kind of apt's output. Returns the number of lines with a package and its
/// hash. For `crate::untrusted`.
pub(crate) fn try_lists(text: &str) -> usize {
    let mirror = Mirror::choose(text, "VERSION_CODENAME=trixie");
    let _ = mirror.map(|mirror| mirror.line("trixie"));
    let _ = newest_kernel(text, "6");
    let named = text.lines().filter(|line| name_and_version(line).is_some()).count();
    text.lines().filter(|line| Listed::parse(line).is_some()).count().min(named)
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

    #[test]
    fn only_lines_with_a_hash_and_a_plain_name_count() {
        let hash = "3d3fdbe91d4660c873e14b092c213fe81c1da6362daa236eb25d0171eb108744";
        let line =
            |file: &str, hash: &str| Listed::parse(&format!("'http://m/pool/x.deb' {file} 928188 {hash}"));
        let good = format!("SHA256:{hash}");
        let found = line("busybox-static_1%3a1.35.0-4_amd64.deb", &good).unwrap();
        assert_eq!(found.sha256, hash);
        for file in ["x.deb.FAILED", "../x.deb", ".deb", "a/x.deb"] {
            assert_eq!(line(file, &good), None, "{file}");
        }
        for hash in ["MD5Sum:d04c2e9639dee67aa836d8232b1ca658", "SHA256:", "SHA256:xyz", hash] {
            assert_eq!(line("x.deb", hash), None, "{hash}");
        }
        let line = "'http://m/b.deb' busybox-static_1%3a1.35.0-4+deb12u1+b1_amd64.deb 928188 MD5Sum:d04c";
        assert_eq!(name_and_version(line).as_deref(), Some("busybox-static=1:1.35.0-4+deb12u1+b1"));
        assert_eq!(name_and_version("'http://m/b.deb' -o_1_amd64.deb 1 x"), None);
    }

    /// A mirror below `root` with one package, whose lists count as signed.
    fn mirror(root: &Path) -> Option<Apt> {
        let pool = root.join("mirror");
        fs::create_dir_all(&pool).unwrap();
        let deb = crate::deb::tests::package();
        fs::write(pool.join("vm_1_amd64.deb"), &deb).unwrap();
        let (size, hash) = (deb.len(), crate::cache::sha256(&deb));
        let packages = format!(
            "Package: vm\nVersion: 1\nArchitecture: amd64\nMaintainer: nobody <n@example.org>\nDescription: a test\n\
             Filename: ./vm_1_amd64.deb\nSize: {size}\nSHA256: {hash}\n\n"
        );
        fs::write(pool.join("Packages"), packages).unwrap();
        let nowhere = Mirror { address: String::new(), signed_by: None };
        let apt = Apt::new(root.join("apt"), &nowhere, &[], "").unwrap();
        let line = format!("deb [trusted=yes arch=amd64] file:{} ./\n", pool.display());
        fs::write(root.join("apt/sources.list"), line).unwrap();
        match apt.run("apt-get", &["update"]) {
            Ok(_) => Some(apt),
            Err(error) => {
                eprintln!("skipped 1 test: {error}");
                None
            }
        }
    }

    #[test]
    fn a_package_is_taken_by_its_hash() {
        let root = tempfile::tempdir().unwrap();
        let Some(apt) = mirror(root.path()) else { return };
        let packages = apt.download(&["vm".to_owned()]).unwrap();
        packages[0].unpack(&root.path().join("out"), |_| true).unwrap();
        assert_eq!(fs::read_to_string(root.path().join("out/boot/vmlinuz-1")).unwrap(), "kernel");
        assert!(apt.download(&["other".to_owned()]).is_err());
    }

    /// Another package of equal length in the mirror's pool, as an attacker on the network would
    /// send it.
    #[test]
    fn a_package_that_was_replaced_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let Some(apt) = mirror(root.path()) else { return };
        let deb = root.path().join("mirror/vm_1_amd64.deb");
        let mut bytes = fs::read(&deb).unwrap();
        // In the header of the first member, not its content: the package can still be unpacked.
        bytes[8 + 20] ^= 1;
        fs::write(&deb, &bytes).unwrap();
        let result = apt.download(&["vm".to_owned()]).and_then(|packages| packages[0].open().map(drop));
        assert!(matches!(result, Err(GuestError::Fetch(_))), "{result:?}");
        // Even if apt accepted it, flyball would not.
        let listed = apt.listed(&["vm".to_owned()]).unwrap().remove(0);
        let error = Verified { path: deb, listed }.open().unwrap_err().to_string();
        assert!(error.contains("SHA-256"), "{error}");
    }
}
