//! What a machine is, in a few lines.

use std::collections::BTreeMap;

use flyball_control::{CoreType, Snapshot, Vendor};
use flyball_host::{CpuList, Host, Kind};
use serde::Serialize;

/// The head of the screen.
#[derive(Debug, Serialize)]
pub struct Facts {
    /// How the machine was named.
    pub name: String,
    /// What stands behind it.
    pub kind: Kind,
    /// What it says it is, if its processors are emulated: a guest of flyball's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
    /// Who made the processor.
    pub vendor: Vendor,
    /// The processor's name.
    pub model_name: Option<String>,
    /// Family, model and stepping.
    pub signature: Option<(u32, u32, u32)>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// Whether it runs under a hypervisor that says so.
    pub virtual_machine: bool,
    /// The driver of a kernel before 4.3, whose policies are not where flyball looks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_before_policies: Option<String>,
    /// CPUs that are there.
    pub present: CpuList,
    /// CPUs that run.
    pub online: CpuList,
    /// CPUs that do not.
    pub offline: CpuList,
    /// CPUs by package.
    pub packages: BTreeMap<u32, CpuList>,
    /// How many dies.
    pub dies: usize,
    /// How many cores.
    pub cores: usize,
    /// CPUs by core type; empty where all are alike.
    pub core_types: BTreeMap<CoreType, CpuList>,
    /// CPUs by NUMA node.
    pub nodes: BTreeMap<u32, CpuList>,
    /// How many cpufreq policies.
    pub policies: usize,
    /// The largest number of CPUs in a policy.
    pub policy_size: usize,
}

impl Facts {
    /// Collects them.
    pub fn of(host: &dyn Host, snapshot: &Snapshot) -> Facts {
        let topology = snapshot.topology();
        let version = host.read("/proc/version").unwrap_or_default();
        let mut words = version.split_whitespace();
        let kernel = (words.next() == Some("Linux")).then(|| words.nth(1)).flatten().map(str::to_owned);
        let number = |number: Option<u32>| number.unwrap_or(0);
        Facts {
            name: snapshot.name().to_owned(),
            kind: snapshot.kind(),
            emulated: flyball_host::emulated(host),
            vendor: topology.vendor,
            model_name: topology.model_name.clone(),
            signature: topology
                .family
                .map(|family| (family, number(topology.model), number(topology.stepping))),
            kernel,
            driver_before_policies: if topology.policies.is_empty() {
                flyball_control::driver_before_policies(host)
            } else {
                None
            },
            virtual_machine: topology.flags.contains("hypervisor"),
            present: topology.present.clone(),
            online: topology.online.clone(),
            offline: topology.offline.clone(),
            packages: topology.packages(),
            dies: topology.dies().len(),
            cores: topology.cores().len(),
            core_types: topology.core_kinds(),
            nodes: topology.nodes.clone(),
            policies: topology.policies.len(),
            policy_size: topology.policies.iter().map(|policy| policy.cpus.len()).max().unwrap_or(0),
        }
    }

    /// What it means that there is no cpufreq driver, and what to do.
    pub fn no_cpufreq(&self) -> String {
        if let Some(driver) = &self.driver_before_policies {
            return format!(
                "flyball: the driver is {driver}, but this kernel is older than 4.3 and keeps its policies below each \
                 CPU, where flyball does not look: frequency, governor and preference are not shown and cannot be set here."
            );
        }
        let cause = if self.virtual_machine {
            "This is a virtual machine, and its hypervisor keeps frequency control to itself. Run flyball on the host; \
             or look at a recorded machine with -M DIR or -M ARCHIVE, or try things on a simulated one, as with -M sim:ryzen-5750g (flyball sim list names them)."
        } else {
            "The kernel found no driver for this processor: look for a firmware setting that gives P-state control to \
             the operating system (CPPC, `OS DBPM`), and for intel_pstate=disable or amd_pstate=disable in /proc/cmdline."
        };
        format!(
            "flyball: no cpufreq driver, so frequency, governor and preference cannot be set here. {cause}"
        )
    }
}
