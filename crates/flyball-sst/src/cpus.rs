//! Maps CPUs to power domains, and to cores by the power unit's numbers.

use std::collections::BTreeMap;

use flyball_host::{
    CpuList, CpuTopology, Errno, Host, HostError,
    isst::{self, legacy::PunitCpu},
    msr::MSR_PM_LOGICAL_ID,
    topology::{CPUS, TopologyFile},
};

/// A present CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Cpu {
    pub number: u32,
    /// physical_package_id.
    pub package: u32,
    /// die_id; 0 if the kernel has none.
    pub die: u32,
    pub core_id: u32,
    /// Power domain within the package.
    pub domain: u8,
    /// The power unit's number of the core in the domain.
    pub core: u16,
}

/// The CPUs of a machine.
#[derive(Debug, Clone, Default)]
pub struct CpuMap {
    /// Size of the kernel's CPU masks: a multiple of 32.
    pub room: u32,
    /// Present CPUs whose package is known.
    cpus: BTreeMap<u32, Cpu>,
    present: CpuList,
    /// CPUs without a number in the driver.
    pub unmapped: Vec<u32>,
    /// Why the driver gave no numbers at all. Cores then cannot be distinguished, and no core may
    /// be set.
    pub failure: Option<HostError>,
    /// True if the power domains of the CPUs are unknown (TPMI), so that no CPU belongs to one.
    pub unplaced: bool,
}

/// Size of this kernel's CPU masks, from the width of the first CPU's siblings mask.
pub fn room(host: &dyn Host) -> Option<u32> {
    // CPU 0 may be offline, and an offline CPU has no topology directory.
    (0..256).find_map(|cpu| room_by(host, cpu))
}

/// Size of this kernel's CPU masks, from the siblings mask of `cpu`.
fn room_by(host: &dyn Host, cpu: u32) -> Option<u32> {
    let text = host.read(&format!("{CPUS}/cpu{cpu}/topology/thread_siblings")).ok()?;
    // Groups of eight hexadecimal digits, 32 CPUs each (cpumap_print_to_pagebuf).
    let groups = text.trim().split(',').take_while(|group| u32::from_str_radix(group, 16).is_ok()).count();
    Some(groups as u32 * 32)
}

/// Size for all present CPUs, if there is no mask.
fn room_for(present: &CpuList) -> u32 {
    present.iter().next_back().map_or(0, |last| (last + 1).next_multiple_of(32))
}

impl CpuMap {
    /// Maps the CPUs of `topology`. With `tpmi`, power domains and cores are encoded as on TPMI
    /// parts. Without a driver every CPU is in domain 0 and core 0.
    pub fn read(host: &dyn Host, topology: CpuTopology, tpmi: bool) -> CpuMap {
        // sysfs has no topology of offline CPUs; the file stored while they were online has their
        // package.
        let stored = TopologyFile::for_host(host).map_or(Vec::new(), |file| file.read());
        let known: Vec<Cpu> = topology
            .positions
            .iter()
            .filter_map(|(&number, position)| {
                let stored = stored.get(number as usize).copied().unwrap_or_default();
                let package = position.package.or(stored.package)?;
                let core_id = position.core.or(stored.core)?;
                let die = position.die.or(stored.die).unwrap_or(0);
                Some(Cpu { number, package, die, core_id, domain: 0, core: 0 })
            })
            .collect();
        // If any CPU has a mask, a CPU whose core the kernel knows has one. Only recordings may
        // lack masks.
        let seen = topology.positions.iter().find(|(_, position)| position.core.is_some());
        let room = seen.and_then(|(&cpu, _)| room_by(host, cpu));
        let mut map = CpuMap {
            room: room.unwrap_or_else(|| room_for(&topology.present)),
            present: topology.present,
            ..CpuMap::default()
        };
        let numbers: Vec<u32> = known.iter().map(|cpu| cpu.number).collect();
        map.place(known, punit_numbers(host, &numbers, tpmi), tpmi);
        map
    }

    /// Sets the power domains and cores of CPUs.
    fn place(&mut self, known: Vec<Cpu>, raw: Result<Vec<Option<PunitCpu>>, HostError>, tpmi: bool) {
        self.unplaced = tpmi && raw.is_err();
        for (index, mut cpu) in known.into_iter().enumerate() {
            if self.unplaced {
                // No domain has this number. With a wrong number, registers of other CPUs would be
                // set.
                cpu.domain = u8::MAX;
            }
            match raw.as_ref().ok().and_then(|raw| raw.get(index).copied().flatten()) {
                Some(raw) => {
                    (cpu.domain, cpu.core) = raw.split(tpmi);
                    // Mailbox parts have a single domain; firmware uses these bits for other
                    // things.
                    if !tpmi && (cpu.domain >= 8 || raw == PunitCpu::UNKNOWN) {
                        cpu.domain = 0;
                    }
                }
                // The driver reads a CPU's number when it comes online (isst_if_common.c,
                // isst_if_cpu_online), so a CPU that has never been online has none.
                None if raw.is_ok() => self.unmapped.push(cpu.number),
                None => {}
            }
            self.cpus.insert(cpu.number, cpu);
        }
        self.failure = raw.err();
    }

    /// A CPU by number, if its package is known.
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
}

/// The power unit's numbers of CPUs from the driver or, on TPMI parts without a driver, from the
/// register that it would read.
fn punit_numbers(host: &dyn Host, cpus: &[u32], tpmi: bool) -> Result<Vec<Option<PunitCpu>>, HostError> {
    let error = match isst::legacy::punit_cpus(host, cpus) {
        // Only on TPMI parts: on mailbox parts the driver numbers cores by MSR 0x53
        // (isst_if_common.c).
        Err(error) if tpmi => error,
        other => return other,
    };
    let mut raw = Vec::with_capacity(cpus.len());
    for &cpu in cpus {
        match host.msr(cpu, MSR_PM_LOGICAL_ID) {
            // An online CPU lacks the device, so the msr driver is not loaded.
            Err(missing) if missing.errno == Errno::NOENT && is_online(host, cpu) => return Err(error),
            read => raw.push(read.ok().map(|raw| PunitCpu(raw as u32))),
        }
    }
    // If no register can be read, the driver's own error is more helpful.
    if raw.iter().any(Option::is_some) { Ok(raw) } else { Err(error) }
}

/// Returns whether a CPU is online. A CPU without the attribute (usually CPU 0) always is.
pub fn is_online(host: &dyn Host, cpu: u32) -> bool {
    host.read(&format!("{CPUS}/cpu{cpu}/online")).map_or(true, |text| text != "0")
}
