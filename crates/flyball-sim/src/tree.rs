//! The files of a simulated machine: its directories, their contents, and path lookup.
//!
//! As in the kernel, an attribute has a name, a mode, a show and a store function. The kernel
//! version, the driver in use and the hardware decide which attributes a directory has. Nothing is
//! built in advance: paths are resolved when they are used, so that a machine of 512 CPUs starts at
//! once.

mod cpu;
mod cpufreq;
pub(crate) mod hwmon;
mod platform;
mod powercap;
mod procfs;
mod system;
pub(crate) mod tracefs;

use crate::{
    errno::{Answer, Errno},
    world::World,
};
use tracefs::{Folder, TraceFile};

/// A directory, with the indexes of its instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Dir {
    /// A directory that only holds others, by its path.
    Plain(&'static str),
    Cpus,
    Cpu(u32),
    Topology(u32),
    Cppc(u32),
    Throttle(u32),
    CpuPower(u32),
    Caches(u32),
    Cache(u32, u8),
    Idle(u32),
    IdleState(u32, u8),
    IdleGlobal,
    Cpufreq,
    Policy(u32),
    Stats(u32),
    Tunables(u8),
    IntelPstate,
    AmdPstate,
    Smt,
    Uncore,
    UncoreDie(u32),
    UncoreCluster(u32),
    Node(u32),
    Nodes,
    Powercap,
    Rapl,
    Zone(u32),
    Subzone(u32, u8),
    Hwmons,
    Hwmon(u32),
    Proc,
    ProcKernel,
    DevCpus,
    DevCpu(u32),
    DmiId,
    /// /sys/firmware/acpi.
    Acpi,
    ProfileDevices,
    ProfileDevice(u32),
    X3d,
    /// A socket's management port (HSMP).
    Port(u32),
    /// A directory of tracefs, by instance.
    Trace(u8, Folder),
}

impl Dir {
    /// The CPU or policy number, or another first index.
    pub(crate) fn index(self) -> u32 {
        match self {
            Dir::Cpu(n)
            | Dir::Topology(n)
            | Dir::Cppc(n)
            | Dir::Throttle(n)
            | Dir::CpuPower(n)
            | Dir::Caches(n)
            | Dir::Cache(n, _)
            | Dir::Idle(n)
            | Dir::IdleState(n, _)
            | Dir::Policy(n)
            | Dir::Stats(n)
            | Dir::UncoreDie(n)
            | Dir::UncoreCluster(n)
            | Dir::Node(n)
            | Dir::Zone(n)
            | Dir::Subzone(n, _)
            | Dir::Hwmon(n)
            | Dir::ProfileDevice(n)
            | Dir::Port(n)
            | Dir::DevCpu(n) => n,
            _ => 0,
        }
    }

    /// The second index.
    pub(crate) fn minor(self) -> u8 {
        match self {
            Dir::Cache(_, n) | Dir::IdleState(_, n) | Dir::Subzone(_, n) | Dir::Tunables(n) => n,
            _ => 0,
        }
    }
}

/// A show function: appends the attribute's text.
pub(crate) type Show = fn(&World, Dir, &mut Vec<u8>) -> Answer;
/// A store function.
pub(crate) type Store = fn(&mut World, Dir, &[u8]) -> Answer;
/// A function that returns whether an attribute exists.
pub(crate) type Present = fn(&World, Dir) -> bool;

#[derive(Clone, Copy)]
pub(crate) struct Attribute {
    pub(crate) name: &'static str,
    pub(crate) mode: u16,
    pub(crate) show: Option<Show>,
    pub(crate) store: Option<Store>,
    present: Present,
    /// True if the value depends on the processors, which must be simulated up to now before it is
    /// shown.
    pub(crate) live: bool,
}

impl std::fmt::Debug for Attribute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:o}", self.name, self.mode)
    }
}

/// A read-only attribute (0444).
pub(crate) const fn ro(name: &'static str, show: Show) -> Attribute {
    Attribute { name, mode: 0o444, show: Some(show), store: None, present: |_, _| true, live: false }
}

/// An attribute that can be read and written (0644).
pub(crate) const fn rw(name: &'static str, show: Show, store: Store) -> Attribute {
    Attribute { name, mode: 0o644, show: Some(show), store: Some(store), present: |_, _| true, live: false }
}

/// A write-only attribute (0200).
pub(crate) const fn wo(name: &'static str, store: Store) -> Attribute {
    Attribute { name, mode: 0o200, show: None, store: Some(store), present: |_, _| true, live: false }
}

impl Attribute {
    /// Makes the attribute exist only if `present` returns true.
    pub(crate) const fn when(mut self, present: Present) -> Attribute {
        self.present = present;
        self
    }

    pub(crate) const fn mode(mut self, mode: u16) -> Attribute {
        self.mode = mode;
        self
    }

    /// Marks the value as dependent on the processors.
    pub(crate) const fn live(mut self) -> Attribute {
        self.live = true;
        self
    }
}

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Dir(Dir),
    File(Dir, &'static str),
    /// A temperature sensor's file.
    Sensor(hwmon::Sensor),
    /// A symbolic link with its target text.
    Link(String),
    /// `/dev/cpu/N/msr`.
    Msr(u32),
    /// `/dev/cpu_dma_latency`.
    DmaLatency,
    /// `/dev/isst_interface`.
    Isst,
    /// A file of tracefs.
    Trace(TraceFile),
}

/// Directories by path, in order. Directories above them only hold others.
const PLACES: &[(&str, Dir)] = &[
    ("/dev/cpu", Dir::DevCpus),
    ("/proc", Dir::Proc),
    ("/proc/sys/kernel", Dir::ProcKernel),
    ("/sys/bus/cpu/devices", Dir::Plain("/sys/bus/cpu/devices")),
    ("/sys/class/dmi", Dir::Plain("/sys/class/dmi")),
    ("/sys/class/hwmon", Dir::Plain("/sys/class/hwmon")),
    ("/sys/class/platform-profile", Dir::Plain("/sys/class/platform-profile")),
    ("/sys/class/powercap", Dir::Plain("/sys/class/powercap")),
    ("/sys/devices/cpu_atom", Dir::Plain("/sys/devices/cpu_atom")),
    ("/sys/devices/cpu_core", Dir::Plain("/sys/devices/cpu_core")),
    ("/sys/devices/platform/AMDI0101:00", Dir::X3d),
    ("/sys/devices/platform/hwmon", Dir::Hwmons),
    ("/sys/devices/system/cpu", Dir::Cpus),
    ("/sys/devices/system/node", Dir::Nodes),
    ("/sys/devices/virtual/dmi/id", Dir::DmiId),
    ("/sys/devices/virtual/platform-profile", Dir::ProfileDevices),
    ("/sys/devices/virtual/powercap", Dir::Powercap),
    ("/sys/firmware/acpi", Dir::Acpi),
    ("/sys/kernel/tracing", Dir::Trace(0, Folder::Root)),
    ("/sys/module/intel_idle/parameters", Dir::Plain("/sys/module/intel_idle/parameters")),
];

/// Names and directories of [`PLACES`] directly below one; a name may occur several times.
fn below(dir: Dir) -> impl Iterator<Item = (&'static str, Dir)> {
    let above = match dir {
        Dir::Plain(path) => Some(path),
        Dir::Proc => Some("/proc"),
        _ => None,
    };
    PLACES.iter().filter_map(move |(path, dir)| {
        let above = above?;
        let rest = path.strip_prefix(above)?.strip_prefix('/')?;
        Some(match rest.split_once('/') {
            None => (rest, *dir),
            Some((name, _)) => (name, Dir::Plain(&path[..above.len() + 1 + name.len()])),
        })
    })
}

/// Returns N of `prefixN`, without leading zeros.
pub(crate) fn numbered(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    // The kernel has no leading zeros: `cpu01` does not exist.
    if digits.is_empty()
        || digits.len() > 1 && digits.starts_with('0')
        || !digits.bytes().all(|b| b.is_ascii_digit())
    {
        return None;
    }
    digits.parse().ok()
}

/// All attributes that a directory can have.
pub(crate) fn attributes(dir: Dir) -> &'static [Attribute] {
    match dir {
        Dir::Cpus => cpu::CPUS,
        Dir::Cpu(_) => cpu::CPU,
        Dir::Topology(_) => cpu::TOPOLOGY,
        Dir::Cppc(_) => cpu::CPPC,
        Dir::Throttle(_) => cpu::THROTTLE,
        Dir::CpuPower(_) => cpu::POWER,
        Dir::Cache(..) => cpu::CACHE,
        Dir::IdleState(..) => cpu::IDLE_STATE,
        Dir::IdleGlobal => cpu::IDLE_GLOBAL,
        Dir::Smt => cpu::SMT,
        Dir::Node(_) => cpu::NODE,
        Dir::Nodes => cpu::NODES,
        Dir::Cpufreq => cpufreq::GLOBAL,
        Dir::Policy(_) => cpufreq::POLICY,
        Dir::Stats(_) => cpufreq::STATS,
        Dir::Tunables(0) => cpufreq::SCHEDUTIL,
        Dir::Tunables(1) => cpufreq::ONDEMAND,
        Dir::Tunables(_) => cpufreq::CONSERVATIVE,
        Dir::IntelPstate => cpufreq::INTEL_PSTATE,
        Dir::AmdPstate => cpufreq::AMD_PSTATE,
        Dir::UncoreDie(_) => system::UNCORE,
        Dir::UncoreCluster(_) => system::CLUSTER,
        Dir::Rapl => powercap::CONTROL,
        Dir::Zone(_) => powercap::ZONE,
        Dir::Subzone(..) => powercap::SUBZONE,
        Dir::Hwmon(_) => hwmon::COMMON,
        Dir::Proc => procfs::PROC,
        Dir::ProcKernel => procfs::KERNEL,
        Dir::DmiId => system::DMI,
        Dir::Acpi => platform::ACPI,
        Dir::ProfileDevice(_) => platform::DEVICE,
        Dir::X3d => platform::X3D,
        Dir::Port(_) => hwmon::PORT,
        Dir::Plain("/sys/module/intel_idle/parameters") => system::INTEL_IDLE,
        Dir::Plain("/sys/devices/cpu_core") => system::CPU_CORE,
        Dir::Plain("/sys/devices/cpu_atom") => system::CPU_ATOM,
        _ => &[],
    }
}

/// A directory's attribute by name, if it currently exists.
pub(crate) fn attribute(world: &World, dir: Dir, name: &str) -> Option<&'static Attribute> {
    attributes(dir).iter().find(|attribute| attribute.name == name && (attribute.present)(world, dir))
}

fn child(world: &World, dir: Dir, name: &str) -> Option<Node> {
    if let Some(attribute) = attribute(world, dir, name) {
        return Some(Node::File(dir, attribute.name));
    }
    if let Some((_, inner)) = below(dir).find(|(child, _)| *child == name) {
        return exists(world, inner).then_some(Node::Dir(inner));
    }
    match dir {
        Dir::Plain("/sys/class/powercap") => powercap::class_link(world, name).map(Node::Link),
        Dir::Plain("/sys/class/hwmon") => numbered(name, "hwmon")
            .filter(|&n| n < hwmon::count(world))
            .map(|n| Node::Link(format!("../../devices/platform/hwmon/hwmon{n}"))),
        Dir::Plain("/sys/class/platform-profile") => profile_device(world, name)
            .map(|_| Node::Link(format!("../../devices/virtual/platform-profile/{name}"))),
        Dir::Plain("/sys/devices/platform") => {
            ports(world).find(|(port, _)| port == name).map(|(_, dir)| Node::Dir(dir))
        }
        Dir::Plain("/sys/bus/cpu/devices") => numbered(name, "cpu")
            .filter(|&n| n < world.platform.board.cpus())
            .map(|n| Node::Link(format!("../../../devices/system/cpu/cpu{n}"))),
        Dir::Plain("/sys/class/dmi") if name == "id" => {
            Some(Node::Link("../../devices/virtual/dmi/id".to_owned()))
        }
        Dir::Plain("/dev") if name == "cpu_dma_latency" => Some(Node::DmaLatency),
        Dir::Plain("/dev") if name == "isst_interface" => world.isst.backend.map(|_| Node::Isst),
        Dir::Cpus
        | Dir::Cpu(_)
        | Dir::Caches(_)
        | Dir::Idle(_)
        | Dir::Node(_)
        | Dir::Nodes
        | Dir::CpuPower(_) => cpu::child(world, dir, name),
        Dir::Cpufreq | Dir::Policy(_) => cpufreq::child(world, dir, name),
        Dir::Uncore => system::uncore_child(world, name),
        Dir::Powercap | Dir::Rapl | Dir::Zone(_) => powercap::child(world, dir, name),
        Dir::Hwmons => {
            numbered(name, "hwmon").filter(|&n| n < hwmon::count(world)).map(|n| Node::Dir(Dir::Hwmon(n)))
        }
        Dir::Hwmon(n) => hwmon::sensor(world, n, name).map(Node::Sensor),
        Dir::ProfileDevices => profile_device(world, name).map(|n| Node::Dir(Dir::ProfileDevice(n))),
        // Hotplug callbacks (msr_device_create() and msr_device_destroy()) remove the node of an
        // offline CPU.
        Dir::DevCpus => numbered(name, "").filter(|&n| world.is_online(n)).map(|n| Node::Dir(Dir::DevCpu(n))),
        Dir::DevCpu(n) => (name == "msr").then_some(Node::Msr(n)),
        Dir::Trace(instance, folder) => tracefs::child(world, instance, folder, name),
        _ => None,
    }
}

/// Returns N of `platform-profile-N`, if that device exists.
fn profile_device(world: &World, name: &str) -> Option<u32> {
    numbered(name, "platform-profile-").filter(|n| platform::numbers(world).contains(n))
}

fn profile_devices(world: &World) -> impl Iterator<Item = String> + use<> {
    platform::numbers(world).into_iter().map(|n| format!("platform-profile-{n}"))
}

/// The management ports, by the names of their ACPI devices.
fn ports(world: &World) -> impl Iterator<Item = (String, Dir)> + use<> {
    let count = if hwmon::has_ports(world) { world.platform.board.packages() } else { 0 };
    (0..count).map(|socket| (format!("AMDI0097:{socket:02X}"), Dir::Port(socket)))
}

/// Returns whether this machine has a plain directory.
fn exists(world: &World, dir: Dir) -> bool {
    match dir {
        Dir::Powercap => powercap::packages(world) > 0,
        // /sys/module/intel_idle exists if its driver binds.
        Dir::Plain("/sys/module/intel_idle") => world.platform.board.idle_driver == "intel_idle",
        Dir::Plain("/sys/devices/cpu_core" | "/sys/devices/cpu_atom") => system::is_hybrid(world),
        Dir::Acpi => attributes(dir).iter().any(|attribute| (attribute.present)(world, dir)),
        Dir::ProfileDevices | Dir::Plain("/sys/class/platform-profile") => {
            !platform::numbers(world).is_empty()
        }
        Dir::X3d => platform::has_x3d(world),
        // The msr driver is x86's.
        Dir::DevCpus => world.platform.board.vendor != crate::board::Vendor::Arm,
        _ => true,
    }
}

/// The names in a directory, in no particular order.
pub(crate) fn list(world: &World, dir: Dir) -> Vec<String> {
    let mut names: Vec<String> = attributes(dir)
        .iter()
        .filter(|attribute| (attribute.present)(world, dir))
        .map(|attribute| attribute.name.to_owned())
        .collect();
    names.extend(below(dir).filter(|(_, dir)| exists(world, *dir)).map(|(name, _)| name.to_owned()));
    names.dedup();
    match dir {
        Dir::Plain("/sys/class/powercap") => names.extend(powercap::class_names(world)),
        Dir::Plain("/sys/class/hwmon") => names.extend((0..hwmon::count(world)).map(|n| format!("hwmon{n}"))),
        Dir::Plain("/sys/class/platform-profile") => names.extend(profile_devices(world)),
        Dir::Plain("/sys/devices/platform") => names.extend(ports(world).map(|(name, _)| name)),
        Dir::Plain("/sys/bus/cpu/devices") => {
            names.extend((0..world.platform.board.cpus()).map(|n| format!("cpu{n}")));
        }
        Dir::Plain("/sys/class/dmi") => names.push("id".to_owned()),
        Dir::Plain("/dev") => {
            names.push("cpu_dma_latency".to_owned());
            names.extend(world.isst.backend.map(|_| "isst_interface".to_owned()));
        }
        Dir::Cpus
        | Dir::Cpu(_)
        | Dir::Caches(_)
        | Dir::Idle(_)
        | Dir::Node(_)
        | Dir::Nodes
        | Dir::CpuPower(_) => cpu::names(world, dir, &mut names),
        Dir::Cpufreq | Dir::Policy(_) => cpufreq::names(world, dir, &mut names),
        Dir::Uncore => system::uncore_names(world, &mut names),
        Dir::Powercap | Dir::Rapl | Dir::Zone(_) => powercap::names(world, dir, &mut names),
        Dir::Hwmons => names.extend((0..hwmon::count(world)).map(|n| format!("hwmon{n}"))),
        Dir::Hwmon(n) => names.extend(hwmon::sensors(world, n)),
        Dir::ProfileDevices => names.extend(profile_devices(world)),
        Dir::DevCpus => names.extend(world.online().map(|n| n.to_string())),
        Dir::DevCpu(_) => names.push("msr".to_owned()),
        Dir::Trace(instance, folder) => names.extend(tracefs::names(world, instance, folder)),
        _ => {}
    }
    names
}

/// The node at an absolute path. With `follow`, a link at the end is also followed.
pub(crate) fn resolve(world: &World, path: &str, follow: bool) -> Answer<Node> {
    resolve_at(world, path, follow, 0)
}

fn resolve_at(world: &World, path: &str, follow: bool, depth: u32) -> Answer<Node> {
    // The kernel follows 40 links (MAXSYMLINKS); no path here needs more than a few.
    if depth > 16 {
        return Err(Errno::LOOP);
    }
    if path.len() > 4096 {
        return Err(Errno::NAMETOOLONG);
    }
    let rest = path.strip_prefix('/').ok_or(Errno::NOENT)?;
    let mut dir = Dir::Plain("");
    let mut parts = rest.split('/').filter(|part| !part.is_empty() && *part != ".").peekable();
    let mut walked = 0;
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        // Paths without `..` come from programs inside the process or from FUSE, which resolves
        // `..` itself; links are joined below.
        if part == ".." {
            return Err(Errno::INVAL);
        }
        walked = part.as_ptr() as usize - path.as_ptr() as usize + part.len();
        let node = child(world, dir, part).ok_or(Errno::NOENT)?;
        match node {
            Node::Dir(inner) => dir = inner,
            // Continue from the link's target.
            Node::Link(target) if !last || follow => {
                let here = &path[..walked - part.len()];
                let mut joined = join(here, &target);
                joined.push_str(&path[walked..]);
                return resolve_at(world, &joined, follow, depth + 1);
            }
            node if last => return Ok(node),
            _ => return Err(Errno::NOTDIR),
        }
    }
    let _ = walked;
    Ok(Node::Dir(dir))
}

/// Resolves a link's target relative to the link's directory.
fn join(directory: &str, target: &str) -> String {
    if target.starts_with('/') {
        // An absolute target does not depend on the link's location.
        return target.to_owned();
    }
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let mut path = String::with_capacity(directory.len() + target.len());
    for part in parts {
        path.push('/');
        path.push_str(part);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_in_order_so_that_equal_names_are_neighbours() {
        assert!(PLACES.is_sorted_by_key(|(path, _)| *path));
    }

    #[test]
    fn numbers_have_no_leading_zeros() {
        assert_eq!(numbered("cpu10", "cpu"), Some(10));
        assert_eq!(numbered("cpu010", "cpu"), None);
        assert_eq!(numbered("cpufreq", "cpu"), None);
        assert_eq!(numbered("cpu", "cpu"), None);
        assert_eq!(numbered("cpu99999999999", "cpu"), None);
    }

    #[test]
    fn links_join() {
        assert_eq!(
            join("/sys/devices/system/cpu/cpu3/", "../cpufreq/policy3"),
            "/sys/devices/system/cpu/cpufreq/policy3"
        );
        assert_eq!(join("/sys/", "/proc"), "/proc");
    }
}
