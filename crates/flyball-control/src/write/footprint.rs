//! What else changes when a location is written.
//!
//! The kernel does more than it is told: a governor change resets the energy preference and throws the old governor's
//! tunables away, a driver switch makes every policy anew, a CPU that goes offline takes its policy along. To put back
//! *exactly*, everything that a write may disturb is remembered before the write, not only what is written.
//! The rules here are about files, not about knobs: they must hold for whatever is there, so they list directories
//! and take what they find.

use std::collections::{BTreeMap, BTreeSet};

use flyball_host::{CpuList, Host};
use flyball_sst::setting::{Field, Setting};

use super::order::GOVERNORS;
use crate::Location;

const CPUS: &str = "/sys/devices/system/cpu";
const POLICIES: &str = "/sys/devices/system/cpu/cpufreq";
const UNCORE: &str = "/sys/devices/system/cpu/intel_uncore_frequency";
const POWERCAP: &str = "/sys/class/powercap";

/// Attributes of a policy that hold settings.
const OF_POLICY: [&str; 7] = [
    "scaling_governor",
    "energy_performance_preference",
    "scaling_min_freq",
    "scaling_max_freq",
    "scaling_setspeed",
    "boost",
    "amd_pstate_floor_freq",
];

/// Attributes that hold settings of a whole driver.
const OF_DRIVER: [&str; 9] = [
    "amd_pstate/status",
    "amd_pstate/dynamic_epp",
    "intel_pstate/status",
    "intel_pstate/no_turbo",
    "intel_pstate/min_perf_pct",
    "intel_pstate/max_perf_pct",
    "intel_pstate/hwp_dynamic_boost",
    "intel_pstate/energy_efficiency",
    "cpufreq/boost",
];

/// Finds what a write disturbs, remembering the directories that it has listed.
pub struct Footprints<'h> {
    host: &'h dyn Host,
    listed: BTreeMap<String, Vec<String>>,
    policies_of: Option<BTreeMap<u32, String>>,
    pinned: Option<Vec<(String, CpuList)>>,
}

impl<'h> Footprints<'h> {
    /// For the machine behind `host`, as it is now.
    pub fn new(host: &'h dyn Host) -> Footprints<'h> {
        Footprints { host, listed: BTreeMap::new(), policies_of: None, pinned: None }
    }

    /// The locations that may change when `location` is written, itself included. Only locations that exist.
    pub fn of(&mut self, location: &Location) -> BTreeSet<Location> {
        let mut found = BTreeSet::from([location.clone()]);
        if let Location::SpeedSelect(setting) = location {
            self.speed_select(*setting, &mut found);
            return found;
        }
        let Some(path) = location.path().map(str::to_owned) else {
            return found;
        };
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
        match name {
            "status" | "dynamic_epp" => self.everything(&mut found),
            // Writing "on" brings back CPUs that someone had taken offline one by one.
            "control" if folder.ends_with("/smt") => {
                self.everything(&mut found);
                self.interrupts(None, &mut found);
            }
            "online" => {
                self.one_cpu(folder, &mut found);
                if self.host.read(&path).is_ok_and(|text| text == "1") {
                    self.interrupts(number_of(folder), &mut found);
                }
            }
            "scaling_governor" => {
                self.policy(folder, &mut found);
                self.tunables(&format!("{POLICIES}/"), &mut found);
                self.biases(folder, &mut found);
            }
            "boost" | "cpb" if folder.contains("/policy") => self.policy(folder, &mut found),
            "no_turbo" | "boost" | "cpb" => self.turbo(&mut found),
            "min_perf_pct" | "max_perf_pct" => {
                self.take(format!("{folder}/min_perf_pct"), &mut found);
                self.take(format!("{folder}/max_perf_pct"), &mut found);
                // In passive mode they are requests on every policy's limits (update_qos_requests in intel_pstate.c).
                self.limits(&mut found);
            }
            "scaling_min_freq" | "scaling_max_freq" => {
                self.take(format!("{folder}/scaling_min_freq"), &mut found);
                self.take(format!("{folder}/scaling_max_freq"), &mut found);
            }
            // Without EPP in hardware the two are one setting under two names.
            "energy_performance_preference" => self.biases(folder, &mut found),
            "energy_perf_bias" => {
                let cpu = number_of(folder.trim_end_matches("/power"));
                if let Some(policy) = cpu.and_then(|cpu| self.policy_of(cpu)) {
                    self.take(format!("{policy}/energy_performance_preference"), &mut found);
                }
            }
            "min_freq_khz" | "max_freq_khz" => self.uncore(folder, &mut found),
            _ => {}
        }
        found
    }

    /// A level change switches features off and moves every limit there is: of frequency, of the uncore, of turbo, of
    /// power. Features move the frequency limits; a class word and the switch of core-power each hold several settings.
    fn speed_select(&mut self, setting: Setting, found: &mut BTreeSet<Location>) {
        let fields: &[Field] = match setting.field {
            Field::Level => {
                self.everything(found);
                self.uncore(UNCORE, found);
                self.power_limits(found);
                // Firmware puts the level's own turbo ratio limits into the register, over what somebody has set.
                match setting.place.cpu {
                    Some(_) => &[Field::BaseFreq, Field::TurboFreq, Field::TurboLimits],
                    None => &[Field::BaseFreq, Field::TurboFreq],
                }
            }
            Field::BaseFreq | Field::TurboFreq => {
                self.turbo(found);
                &[Field::BaseFreq, Field::TurboFreq]
            }
            Field::CorePower | Field::Priority => &[Field::CorePower, Field::Priority],
            _ => &[],
        };
        found.extend(fields.iter().map(|&field| Location::SpeedSelect(Setting { field, ..setting })));
    }

    fn list(&mut self, folder: &str) -> Vec<String> {
        if let Some(names) = self.listed.get(folder) {
            return names.clone();
        }
        let names = self.host.list(folder).unwrap_or_default();
        self.listed.insert(folder.to_owned(), names.clone());
        names
    }

    fn take(&self, path: String, found: &mut BTreeSet<Location>) {
        if self.host.writable(&path) {
            found.insert(Location::File(path));
        }
    }

    /// A policy's own settings, with the tunables of a governor that is kept per policy.
    fn policy(&mut self, folder: &str, found: &mut BTreeSet<Location>) {
        for name in OF_POLICY {
            self.take(format!("{folder}/{name}"), found);
        }
        self.tunables(&format!("{folder}/"), found);
    }

    /// Writable files in the directories of governors below `prefix`.
    fn tunables(&mut self, prefix: &str, found: &mut BTreeSet<Location>) {
        let names = self.list(prefix.trim_end_matches('/'));
        for governor in GOVERNORS.iter().filter(|governor| names.iter().any(|name| name == *governor)) {
            for name in self.list(&format!("{prefix}{governor}")) {
                self.take(format!("{prefix}{governor}/{name}"), found);
            }
        }
    }

    /// The energy bias files of a policy's CPUs.
    fn biases(&mut self, folder: &str, found: &mut BTreeSet<Location>) {
        let cpus = self.host.read(&format!("{folder}/related_cpus")).unwrap_or_default();
        for cpu in CpuList::from_words(&cpus).unwrap_or_default().iter() {
            self.take(format!("{CPUS}/cpu{cpu}/power/energy_perf_bias"), found);
        }
    }

    fn policies(&mut self) -> Vec<String> {
        let names = self.list(POLICIES);
        names
            .iter()
            .filter(|name| numbered(name, "policy"))
            .map(|name| format!("{POLICIES}/{name}"))
            .collect()
    }

    /// The frequency limits of every policy.
    fn limits(&mut self, found: &mut BTreeSet<Location>) {
        for folder in self.policies() {
            for name in ["scaling_min_freq", "scaling_max_freq"] {
                self.take(format!("{folder}/{name}"), found);
            }
        }
    }

    /// The power limits of every zone, with their windows.
    fn power_limits(&mut self, found: &mut BTreeSet<Location>) {
        for zone in self.list(POWERCAP) {
            for name in self.list(&format!("{POWERCAP}/{zone}")) {
                if name.ends_with("_power_limit_uw") || name.ends_with("_time_window_us") {
                    self.take(format!("{POWERCAP}/{zone}/{name}"), found);
                }
            }
        }
    }

    fn turbo(&mut self, found: &mut BTreeSet<Location>) {
        for name in OF_DRIVER {
            if name.ends_with("boost") || name.ends_with("turbo") || name.ends_with("pct") {
                self.take(format!("{CPUS}/{name}"), found);
            }
        }
        self.limits(found);
        for folder in self.policies() {
            for name in ["boost", "cpb", "amd_pstate_floor_freq"] {
                self.take(format!("{folder}/{name}"), found);
            }
        }
    }

    /// What belongs to one CPU: its policy, its preference, its idle states.
    fn one_cpu(&mut self, folder: &str, found: &mut BTreeSet<Location>) {
        self.take(format!("{folder}/power/energy_perf_bias"), found);
        self.take(format!("{folder}/power/pm_qos_resume_latency_us"), found);
        for state in self.list(&format!("{folder}/cpuidle")) {
            if numbered(&state, "state") {
                self.take(format!("{folder}/cpuidle/{state}/disable"), found);
            }
        }
        // By the policy's own name, not through cpuN/cpufreq: one file must have one location.
        if let Some(policy) = number_of(folder).and_then(|cpu| self.policy_of(cpu)) {
            self.policy(&policy, found);
        }
    }

    /// Interrupts that may not be anywhere, on one CPU or on any: when the last CPU that one may be on goes offline, the
    /// kernel lets it be anywhere, and forgets (`migrate_one_irq` in kernel/irq/cpuhotplug.c).
    fn interrupts(&mut self, cpu: Option<u32>, found: &mut BTreeSet<Location>) {
        if self.pinned.is_none() {
            let online = self.host.read(&format!("{CPUS}/online")).unwrap_or_default();
            let online: CpuList = online.parse().unwrap_or_default();
            let mut pinned = Vec::new();
            for irq in self.host.list("/proc/irq").unwrap_or_default() {
                let path = format!("/proc/irq/{irq}/smp_affinity_list");
                let allowed = self.host.read(&path).ok().and_then(|text| text.parse::<CpuList>().ok());
                if let Some(allowed) = allowed.filter(|allowed| !online.is_subset(allowed)) {
                    pinned.push((path, allowed));
                }
            }
            self.pinned = Some(pinned);
        }
        for (path, allowed) in self.pinned.iter().flatten() {
            if cpu.is_none_or(|cpu| allowed.contains(cpu)) {
                self.take(path.clone(), found);
            }
        }
    }

    /// The folder of a CPU's policy. All of them are read at the first question: there may be hundreds of both.
    fn policy_of(&mut self, cpu: u32) -> Option<String> {
        if self.policies_of.is_none() {
            let mut found = BTreeMap::new();
            for folder in self.policies() {
                let cpus = self.host.read(&format!("{folder}/related_cpus")).unwrap_or_default();
                found.extend(
                    CpuList::from_words(&cpus).unwrap_or_default().iter().map(|cpu| (cpu, folder.clone())),
                );
                // The kernel refuses to read an offline policy's files; its number is that of one of its CPUs.
                if let Some(number) = folder.rsplit("/policy").next().and_then(|digits| digits.parse().ok()) {
                    found.entry(number).or_insert(folder);
                }
            }
            self.policies_of = Some(found);
        }
        self.policies_of.as_ref().and_then(|policies| policies.get(&cpu).cloned())
    }

    /// Every setting that a driver switch or SMT can touch.
    fn everything(&mut self, found: &mut BTreeSet<Location>) {
        for name in OF_DRIVER {
            self.take(format!("{CPUS}/{name}"), found);
        }
        self.take(format!("{CPUS}/smt/control"), found);
        self.tunables(&format!("{POLICIES}/"), found);
        for folder in self.policies() {
            self.policy(&folder, found);
        }
        for cpu in self.list(CPUS) {
            if numbered(&cpu, "cpu") {
                self.take(format!("{CPUS}/{cpu}/online"), found);
                self.take(format!("{CPUS}/{cpu}/power/energy_perf_bias"), found);
            }
        }
    }

    /// The uncore limits of a package: the root entry of a TPMI package writes to all its clusters.
    fn uncore(&mut self, folder: &str, found: &mut BTreeSet<Location>) {
        self.take(format!("{folder}/min_freq_khz"), found);
        self.take(format!("{folder}/max_freq_khz"), found);
        for name in self.list(UNCORE) {
            if numbered(&name, "uncore") || name.starts_with("package_") {
                self.take(format!("{UNCORE}/{name}/min_freq_khz"), found);
                self.take(format!("{UNCORE}/{name}/max_freq_khz"), found);
            }
        }
    }
}

/// The number of a CPU's folder.
fn number_of(folder: &str) -> Option<u32> {
    folder.rsplit("/cpu").next()?.parse().ok()
}

/// Whether `name` is `stem` and a number.
fn numbered(name: &str, stem: &str) -> bool {
    name.strip_prefix(stem)
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}
