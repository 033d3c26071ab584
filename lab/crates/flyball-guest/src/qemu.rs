//! The emulator: finds it, checks its version, and builds its command line for a machine.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use flyball_guest_plugin::punit::Place;

use crate::{cache::Cache, error::GuestError};

/// QEMU's system emulator and how to start it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qemu {
    /// The program, or the dynamic loader that starts it with its own libraries.
    program: PathBuf,
    /// Arguments before ours.
    first: Vec<OsString>,
    /// `QEMU_MODULE_DIR`, for a QEMU outside its installation path.
    modules: Option<PathBuf>,
    /// Major and minor version.
    pub version: (u32, u32),
}

/// The first version whose plug-ins may move the program counter (plug-in interface 5).
pub const LEAST: (u32, u32) = (11, 0);

impl Qemu {
    /// `$FLYBALL_QEMU`, else the one in the cache, else this machine's, if it is new enough.
    pub fn find(cache: &Cache) -> Result<Qemu, GuestError> {
        if let Some(named) = env::var_os("FLYBALL_QEMU").filter(|name| !name.is_empty()) {
            return Qemu::at(&PathBuf::from(named));
        }
        if let Some(found) = Qemu::unpacked(&cache.qemu()) {
            return found;
        }
        // Ignore an error here: most machines have no QEMU, and the message below tells what to do.
        if let Ok(found) = Qemu::at(Path::new("qemu-system-x86_64"))
            && found.version >= LEAST
        {
            return Ok(found);
        }
        Err(GuestError::NotFetched {
            what: format!("QEMU {} or newer", LEAST.0),
            cache: cache.qemu(),
            remedy: "flyball guest fetch (or set FLYBALL_QEMU to a qemu-system-x86_64)".into(),
        })
    }

    fn at(program: &Path) -> Result<Qemu, GuestError> {
        let mut qemu =
            Qemu { program: program.to_owned(), first: Vec::new(), modules: None, version: (0, 0) };
        qemu.version = qemu.ask_version()?;
        if qemu.version < LEAST {
            return Err(GuestError::Emulator(format!(
                "{} is QEMU {}.{}, and {} or newer is needed: flyball guest fetch",
                program.display(),
                qemu.version.0,
                qemu.version.1,
                LEAST.0
            )));
        }
        Ok(qemu)
    }

    /// The emulator that `guest fetch` unpacked in `dir`, started by its own loader with its own
    /// libraries.
    fn unpacked(dir: &Path) -> Option<Result<Qemu, GuestError>> {
        let root = dir.join("root");
        let program = root.join("usr/bin/qemu-system-x86_64");
        if !program.is_file() {
            return None;
        }
        let libraries = root.join("usr/lib/x86_64-linux-gnu");
        let modules = libraries.join("qemu");
        // The machine's libraries may be older than this emulator needs.
        let mut path = libraries.clone().into_os_string();
        path.push(":");
        path.push(&modules);
        let mut first: Vec<OsString> = vec!["--library-path".into(), path, program.into()];
        // QEMU searches its firmware at the installation path, where this package is not installed.
        for data in ["usr/share/seabios", "usr/share/qemu", "usr/lib/ipxe/qemu"] {
            first.extend(["-L".into(), root.join(data).into_os_string()]);
        }
        let mut qemu = Qemu {
            program: libraries.join("ld-linux-x86-64.so.2"),
            first,
            modules: Some(modules),
            version: (0, 0),
        };
        Some(qemu.ask_version().map(|version| {
            qemu.version = version;
            qemu
        }))
    }

    fn ask_version(&self) -> Result<(u32, u32), GuestError> {
        let out = self.command().arg("--version").output();
        let out = out.map_err(|e| GuestError::file("start", &self.program, e))?;
        let text = String::from_utf8_lossy(&out.stdout);
        let number = text.split_whitespace().skip_while(|word| *word != "version").nth(1).unwrap_or_default();
        let mut parts = number.split('.').map(|part| part.parse().ok());
        match (parts.next().flatten(), parts.next().flatten()) {
            (Some(major), Some(minor)) => Ok((major, minor)),
            _ => Err(GuestError::Emulator(format!(
                "{} does not say its version: {}",
                self.program.display(),
                String::from_utf8_lossy(&out.stderr).lines().next().unwrap_or("no output")
            ))),
        }
    }

    /// The program with the arguments before ours.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.first);
        if let Some(dir) = &self.modules {
            command.env("QEMU_MODULE_DIR", dir);
        }
        command
    }
}

/// Layout of the CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    pub sockets: u32,
    /// Cores per package.
    pub cores: u32,
    /// Threads per core.
    pub threads: u32,
}

impl Layout {
    /// Number of CPUs.
    pub fn cpus(self) -> u32 {
        self.sockets * self.cores * self.threads
    }
}

/// The machine as QEMU sees it.
#[derive(Debug, Clone)]
pub struct Board<'a> {
    /// `-cpu`.
    pub cpu: &'a str,
    /// `-smp`.
    pub layout: Layout,
    /// Megabytes of memory.
    pub memory_mb: u32,
    /// A file for the guest's memory, shared.
    pub memory: &'a Path,
    /// True for one translator thread for all CPUs (the closed loop), false for one each.
    pub one_thread: bool,
}

impl Board<'_> {
    /// The board's arguments.
    pub fn arguments(&self) -> Vec<OsString> {
        let Layout { sockets, cores, threads } = self.layout;
        let text = [
            // Ignore the user's and the distribution's configuration, so that guests are equal on
            // all hosts.
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-monitor",
            "none",
            // The kernel's command line has panic=-1, reboot at once; this ends the emulator
            // instead.
            "-no-reboot",
            "-machine",
            "q35,memory-backend=ram",
            "-cpu",
            self.cpu,
            "-smp",
            &format!("{},sockets={sockets},cores={cores},threads={threads}", self.layout.cpus()),
            "-m",
            &self.memory_mb.to_string(),
            "-object",
            &format!(
                "memory-backend-file,id=ram,size={}M,mem-path={},share=on",
                self.memory_mb,
                escape(&self.memory.to_string_lossy())
            ),
            "-accel",
            if self.one_thread { "tcg,thread=single" } else { "tcg,thread=multi" },
        ];
        text.into_iter().map(OsString::from).collect()
    }
}

/// Escapes text in an option of QEMU, where a comma separates.
pub fn escape(text: &str) -> String {
    text.replace(',', ",,")
}

/// The machine's identity in firmware: a guest of flyball, so that a flyball inside reports that
/// everything is emulated.
pub fn identity(machine: &str, closed: bool) -> [OsString; 4] {
    let version = if closed { "closed loop" } else { "open loop" };
    let machine = escape(machine);
    [
        "-smbios".into(),
        "type=0,vendor=flyball".into(),
        "-smbios".into(),
        format!("type=1,manufacturer=flyball,product=guest of {machine},version={version}").into(),
    ]
}

/// A 9p share of `dir`.
pub fn share(dir: &Path, tag: &str) -> [OsString; 2] {
    let path = escape(&dir.to_string_lossy());
    [
        "-virtfs".into(),
        // `none`: files have the owners that they have on the host. `remap`: directories on several
        // file systems may have equal inode numbers.
        format!("local,path={path},mount_tag={tag},security_model=none,readonly=on,multidevs=remap").into(),
    ]
}

/// A read-only disk with the content of `file`.
pub fn disk(file: &Path) -> [OsString; 4] {
    let path = escape(&file.to_string_lossy());
    [
        "-drive".into(),
        format!("if=none,id=root,format=raw,readonly=on,file={path}").into(),
        "-device".into(),
        "virtio-blk-pci,drive=root".into(),
    ]
}

/// A machine's PCI functions as QEMU devices, each served on its socket in `sockets`, with their
/// bridges and the function 0 that PCI requires.
pub fn functions(places: &[Place], sockets: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut device = |text: String| words.extend(["-device".into(), text.into()]);
    let mut seen: Vec<(String, u32)> = Vec::new();
    for place in places {
        let package = place.package;
        let bridge = format!("punit{package}");
        if place.bridged && seen.iter().all(|(bus, _)| *bus != bridge) {
            // From slot 1Ch down, below 1Fh with q35's own devices (the LPC bridge, SATA and
            // SMBus); eight bridges per slot.
            let (slot, function) = (0x1c - package / 8, package % 8);
            device(format!(
                "pci-bridge,id={bridge},chassis_nr={},shpc=off,bus=pcie.0,addr={slot:x}.{function}{}",
                package + 1,
                if function == 0 { ",multifunction=on" } else { "" }
            ));
        }
        let bus = if place.bridged { bridge } else { "pcie.0".to_owned() };
        let (slot, function) = place.slot;
        if seen.iter().all(|known| *known != (bus.clone(), slot)) {
            // The kernel ignores a device without a function 0.
            device(format!("pci-testdev,bus={bus},addr={slot:x}.0,multifunction=on"));
        }
        let function = serde_json::json!({
            "driver": "vfio-user-pci",
            "socket": { "type": "unix", "path": sockets.join(place.socket()).to_string_lossy() },
            "bus": bus,
            "addr": format!("{slot:x}.{function}"),
            // A CPU of the guest waits for the answer while it holds QEMU's big lock. On a busy
            // host that may take seconds.
            "x-msg-timeout": 60_000,
        });
        device(function.to_string());
        seen.push((bus, slot));
    }
    words
}

/// Checks whether a guest can use `dir` as its root and, if `boots`, boot its own init.
pub fn check_root(dir: &Path, boots: bool) -> Result<(), GuestError> {
    fs::read_dir(dir).map_err(|e| GuestError::file("list", dir, e))?;
    // Do not follow links: an absolute link refers to a path below the directory once that is the
    // root.
    let has = |paths: [&str; 2]| paths.iter().any(|path| fs::symlink_metadata(dir.join(path)).is_ok());
    if !has(["bin/sh", "usr/bin/sh"]) {
        return Err(GuestError::format(dir, "no root file system: there is no bin/sh in it"));
    }
    let has_systemd =
        has(["sbin/init", "usr/sbin/init"]) && has(["lib/systemd/systemd", "usr/lib/systemd/systemd"]);
    if boots && !has_systemd {
        return Err(GuestError::format(
            dir,
            "it does not boot: it needs systemd, and /sbin/init as its name",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_are_doubled() {
        let board = Board {
            cpu: "EPYC-Rome,model=49",
            layout: Layout { sockets: 2, cores: 3, threads: 2 },
            memory_mb: 512,
            memory: Path::new("/a,b"),
            one_thread: true,
        };
        let words = board.arguments();
        assert!(words.iter().any(|w| w.to_string_lossy().contains("mem-path=/a,,b,share=on")));
        assert!(words.iter().any(|w| w == "12,sockets=2,cores=3,threads=2"));
    }

    #[test]
    fn functions_have_a_slot_with_a_first_function() {
        use flyball_guest_plugin::punit;
        let words = |name: &str| {
            let spec = flyball_silicon::MachineSpec::builtin(name).unwrap();
            functions(&punit::places(&spec), Path::new("/s"))
        };
        let guide = words("sst-guide");
        let text: Vec<_> = guide.iter().map(|word| word.to_string_lossy()).collect();
        assert_eq!(text.iter().filter(|word| word.starts_with("pci-bridge")).count(), 2, "{text:?}");
        assert_eq!(text.iter().filter(|word| word.starts_with("pci-testdev")).count(), 4, "{text:?}");
        assert!(text.iter().any(|word| word.contains(r#""addr":"1e.1","bus":"punit1""#)), "{text:?}");
        let large = words("tpmi-large");
        assert_eq!(large.len(), 6, "{large:?}");
        assert!(words("ryzen-5750g").is_empty());
    }

    #[test]
    fn a_root_needs_a_shell() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check_root(dir.path(), false).is_err());
        for path in ["bin/sh", "usr/sbin/init", "lib/systemd/systemd"] {
            assert!(check_root(dir.path(), true).is_err());
            fs::create_dir_all(dir.path().join(path).parent().unwrap()).unwrap();
            fs::write(dir.path().join(path), "").unwrap();
            check_root(dir.path(), false).unwrap();
        }
        check_root(dir.path(), true).unwrap();
    }
}
