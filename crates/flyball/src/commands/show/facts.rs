//! The facts about a machine at the top of the screen.

use std::collections::BTreeMap;

use flyball_control::{CoreType, KindEvidence, LastCache, Snapshot, Vendor};
use flyball_host::{CpuInfo, CpuList, Host, Kind};
use serde::Serialize;

#[derive(Debug, schemars::JsonSchema, Serialize)]
pub(super) struct Facts {
    /// The host's name for the machine.
    pub name: String,
    pub kind: Kind,
    /// What the machine calls itself if its processors are emulated: a guest of flyball.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
    /// Whether it is simulated, or a recording of a simulated machine.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
    pub vendor: Vendor,
    pub model_name: Option<String>,
    /// Family, model and stepping.
    pub signature: Option<(u32, u32, u32)>,
    /// The microcode's revision, in hexadecimal as the kernel prints it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub microcode: Option<String>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// Whether the machine reports that it runs under a hypervisor.
    pub virtual_machine: bool,
    pub present: CpuList,
    pub online: CpuList,
    pub offline: CpuList,
    /// CPUs by package.
    pub packages: BTreeMap<u32, CpuList>,
    pub dies: usize,
    pub cores: usize,
    /// CPUs by core type; empty if there is only one type.
    pub core_types: BTreeMap<CoreType, CpuList>,
    /// How the core types were determined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core_type_evidence: Option<KindEvidence>,
    /// Level-3 caches, if the firmware can prefer the cores of one of them (3D V-Cache).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<Cache>,
    /// CPUs by NUMA node.
    pub nodes: BTreeMap<u32, CpuList>,
    /// NUMA nodes of each package, if there are several (Intel: SNC; AMD: NPS, or L3 as NUMA).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes_per_package: Option<usize>,
    /// Number of cpufreq policies.
    pub policies: usize,
    /// CPUs in the largest policy.
    pub policy_size: usize,
}

/// A level-3 cache. Its index in the list is the number for `ccd:N`.
#[derive(Debug, schemars::JsonSchema, Serialize)]
pub(super) struct Cache {
    /// The CPUs that share it.
    pub cpus: CpuList,
    /// Its size in KiB.
    pub kib: Option<u32>,
}

impl Cache {
    fn new(cache: &LastCache) -> Cache {
        Cache { cpus: cache.cpus.clone(), kib: cache.kib }
    }
}

impl Facts {
    pub(super) fn collect(host: &dyn Host, snapshot: &Snapshot) -> Facts {
        let topology = snapshot.topology();
        let number = |number: Option<u32>| number.unwrap_or(0);
        Facts {
            name: snapshot.name().to_owned(),
            kind: snapshot.kind(),
            emulated: flyball_host::emulated(host),
            simulated: flyball_host::simulated(host),
            vendor: topology.vendor,
            model_name: topology.model_name.clone(),
            signature: topology
                .family
                .map(|family| (family, number(topology.model), number(topology.stepping))),
            microcode: topology.microcode.map(|revision| format!("{revision:#x}")),
            kernel: flyball_control::kernel_release(host),
            // CPUID leaf 1, ECX bit 31, which hypervisors set for their guests.
            virtual_machine: topology.flags.contains("hypervisor"),
            present: topology.present.clone(),
            online: topology.online.clone(),
            offline: topology.offline.clone(),
            packages: topology.packages(),
            dies: topology.dies().len(),
            cores: topology.cores().len(),
            core_types: topology.core_kinds(),
            core_type_evidence: topology.kind_evidence,
            caches: topology.caches.iter().flatten().map(Cache::new).collect(),
            nodes: topology.nodes.clone(),
            nodes_per_package: topology.nodes_per_package(),
            policies: topology.policies.len(),
            policy_size: topology.policies.iter().map(|policy| policy.cpus.len()).max().unwrap_or(0),
        }
    }

    /// Explains why there is no cpufreq driver, and what to do.
    pub(super) fn no_cpufreq(&self, host: &dyn Host) -> String {
        let cause = if self.virtual_machine {
            "This is a virtual machine without frequency control. Run flyball on the host, look at a recorded machine (-M ARCHIVE), \
             or use a simulated one, such as -M sim:ryzen-5750g ('flyball sim list' lists them)."
        } else if !CpuInfo::read(host).unwrap_or_default().can_have_acpi_pstates() {
            "The kernel has no driver for this processor, or has not loaded it. On s390 and in partitions of \
             POWER there is none: the firmware decides the frequency."
        } else {
            "The kernel found no driver for this processor: look for a firmware setting that gives P-state control to \
             the operating system (CPPC, `OS DBPM`), and for intel_pstate=disable or amd_pstate=disable in /proc/cmdline."
        };
        format!(
            "flyball: no cpufreq driver, so frequency, governor and preference cannot be set here. {cause}"
        )
    }
}
