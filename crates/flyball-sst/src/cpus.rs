//! Which CPUs there are, and where: package, die, power domain, core as the power unit numbers it.
//!
//! sysfs forgets the topology of a CPU that is offline. intel-speed-select keeps it in a file of its own
//! ([`TopologyCache`]), which is read and written here too, so that both programs know CPUs that either took offline.

use std::{collections::BTreeMap, path::PathBuf};

use flyball_host::{
    CpuInfo, CpuList, Host, HostError,
    isst::{self, legacy::PunitCpu},
};

/// A present CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Cpu {
    /// Its number.
    pub number: u32,
    /// physical_package_id.
    pub package: u32,
    /// die_id; 0 where the kernel gives none.
    pub die: u32,
    /// core_id.
    pub core_id: u32,
    /// Power domain within the package.
    pub domain: u8,
    /// Core within the domain, as the power unit numbers it.
    pub core: u16,
}

/// The CPUs of a machine.
#[derive(Debug, Clone, Default)]
pub struct CpuMap {
    /// How many CPUs the kernel's masks have room for: a multiple of 32.
    pub room: u32,
    /// Present CPUs whose package is known.
    cpus: BTreeMap<u32, Cpu>,
    /// Every present CPU.
    present: CpuList,
    /// CPUs that the driver knows no number for.
    pub unmapped: Vec<u32>,
    /// Why the driver told no numbers at all: cores are then not told apart, and no core may be set.
    pub failure: Option<HostError>,
    /// TPMI: nothing tells which CPU is in which power domain, so that all are in none.
    pub unplaced: bool,
}

/// The file in which intel-speed-select keeps the topology of CPUs that may go offline: by CPU four signed 16-bit
/// numbers (CPU, core, package, die; -1 for unknown).
#[derive(Debug, Clone, Default)]
pub struct TopologyCache(pub Option<PathBuf>);

/// Where the file is on a running machine.
pub const TOPOLOGY_CACHE: &str = "/var/run/isst_cpu_topology.dat";

impl TopologyCache {
    fn read(&self) -> Vec<u8> {
        self.0.as_ref().and_then(|path| std::fs::read(path).ok()).unwrap_or_default()
    }

    /// Whether the file is there.
    pub fn exists(&self) -> bool {
        self.0.as_ref().is_some_and(|path| path.exists())
    }

    /// Writes the topology of all CPUs, where there is no file yet.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn store(&self, host: &dyn Host, room: u32) -> std::io::Result<()> {
        let Some(path) = &self.0 else { return Ok(()) };
        let mut bytes = Vec::new();
        for cpu in 0..room {
            let id =
                |name: &str| topology(host, cpu, name).and_then(|id| i16::try_from(id).ok()).unwrap_or(-1);
            for value in [cpu as i16, id("core_id"), id("physical_package_id"), id("die_id")] {
                bytes.extend(value.to_le_bytes());
            }
        }
        std::fs::write(path, bytes)
    }

    /// Removes the file.
    pub fn remove(&self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// One number of the kernel's `topology` folder of a CPU; `None` where there is none, or a negative one.
fn topology(host: &dyn Host, cpu: u32, name: &str) -> Option<u32> {
    host.read(&format!("/sys/devices/system/cpu/cpu{cpu}/topology/{name}")).ok()?.trim().parse().ok()
}

/// How many CPUs the masks of this kernel have room for, from the width of the first CPU's siblings mask.
pub fn room(host: &dyn Host) -> Option<u32> {
    let text = (0..256).find_map(|cpu| {
        host.read(&format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings")).ok()
    })?;
    let groups = text.trim().split(',').take_while(|group| u32::from_str_radix(group, 16).is_ok()).count();
    Some(groups as u32 * 32)
}

/// The room for all CPUs that are there, where no mask tells.
fn listed(host: &dyn Host) -> Option<u32> {
    let names = host.list("/sys/devices/system/cpu").ok()?;
    let last = names.iter().filter_map(|name| name.strip_prefix("cpu")?.parse::<u32>().ok()).max()?;
    (last < 65_536).then(|| (last + 1).next_multiple_of(32))
}

/// /proc/cpuinfo, read when first asked for: recordings may lack the topology of sysfs.
#[derive(Default)]
struct LazyCpuInfo(std::cell::OnceCell<CpuInfo>);

impl LazyCpuInfo {
    /// Package and core of a CPU.
    fn ids(&self, host: &dyn Host, cpu: u32) -> Option<(u32, u32)> {
        let info = self.0.get_or_init(|| CpuInfo::read(host).unwrap_or_default());
        info.cpus.get(&cpu).and_then(|ids| ids.package.zip(ids.core))
    }
}

impl CpuMap {
    /// Reads the CPUs. `tpmi`: power domains and cores are coded as on TPMI parts. Without a driver every CPU is in
    /// domain 0 and core 0.
    pub fn read(host: &dyn Host, tpmi: bool, cache: &TopologyCache) -> CpuMap {
        let room = room(host).or_else(|| listed(host)).unwrap_or(0);
        let cpuinfo = LazyCpuInfo::default();
        let stored = cache.read();
        let kept = |cpu: u32, field: usize| {
            let at = 8 * cpu as usize + 2 * field;
            let bytes = stored.get(at..at + 2)?;
            u32::try_from(i16::from_le_bytes([bytes[0], bytes[1]])).ok()
        };
        let mut map = CpuMap { room, ..CpuMap::default() };
        map.present =
            (0..room).filter(|cpu| host.exists(&format!("/sys/devices/system/cpu/cpu{cpu}"))).collect();
        let mut known = Vec::new();
        for cpu in map.present.iter() {
            let package = topology(host, cpu, "physical_package_id")
                .or_else(|| kept(cpu, 2))
                .or_else(|| cpuinfo.ids(host, cpu).map(|ids| ids.0));
            let core_id = topology(host, cpu, "core_id")
                .or_else(|| kept(cpu, 1))
                .or_else(|| cpuinfo.ids(host, cpu).map(|ids| ids.1));
            let die = topology(host, cpu, "die_id").or_else(|| kept(cpu, 3)).unwrap_or(0);
            if let (Some(package), Some(core_id)) = (package, core_id) {
                known.push(Cpu { number: cpu, package, die, core_id, domain: 0, core: 0 });
            }
        }
        let numbers: Vec<u32> = known.iter().map(|cpu| cpu.number).collect();
        let raw = isst::legacy::punit_cpus(host, &numbers).or_else(|error| {
            // Without the driver: the register that it would read.
            let read = |cpu: &u32| {
                host.msr(*cpu, flyball_host::msr::MSR_PM_LOGICAL_ID).ok().map(|raw| PunitCpu(raw as u32))
            };
            let raw: Vec<Option<PunitCpu>> = numbers.iter().map(read).collect();
            if tpmi && raw.iter().any(Option::is_some) { Ok(raw) } else { Err(error) }
        });
        map.unplaced = tpmi && raw.is_err();
        for (index, mut cpu) in known.into_iter().enumerate() {
            if map.unplaced {
                cpu.domain = u8::MAX;
            }
            match raw.as_ref().ok().and_then(|raw| raw.get(index).copied().flatten()) {
                Some(raw) => {
                    (cpu.domain, cpu.core) = raw.split(tpmi);
                    // Mailbox parts have one domain; firmware leaves other things in these bits.
                    if !tpmi && (cpu.domain >= 8 || raw == PunitCpu::UNKNOWN) {
                        cpu.domain = 0;
                    }
                }
                None if raw.is_ok() => map.unmapped.push(cpu.number),
                None => {}
            }
            map.cpus.insert(cpu.number, cpu);
        }
        map.failure = raw.err();
        map
    }

    /// A CPU by number, where its package is known.
    pub fn get(&self, cpu: u32) -> Option<&Cpu> {
        self.cpus.get(&cpu)
    }

    /// All CPUs whose package is known, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Cpu> {
        self.cpus.values()
    }

    /// Every present CPU.
    pub fn present(&self) -> &CpuList {
        &self.present
    }

    /// CPUs of a core mask of a power domain.
    pub fn of_cores(&self, package: u32, die: u32, domain: u8, cores: u64) -> CpuList {
        self.iter()
            .filter(|cpu| (cpu.package, cpu.die, cpu.domain) == (package, die, domain))
            .filter(|cpu| cpu.core < 64 && cores >> cpu.core & 1 != 0)
            .map(|cpu| cpu.number)
            .collect()
    }
}

/// Whether a CPU is online. A CPU without the attribute (CPU 0, as a rule) always is.
pub fn is_online(host: &dyn Host, cpu: u32) -> bool {
    host.read(&format!("/sys/devices/system/cpu/cpu{cpu}/online")).map_or(true, |text| text != "0")
}
