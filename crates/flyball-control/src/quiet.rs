//! Decides which settings make this machine steady for benchmarks, and what prevents that.
//!
//! [`decide`] only decides. Its settings are made, journaled and undone like any others. There are
//! three levels, each of which includes the one before: `light` loses no speed, `steady` gives up
//! turbo, `fixed` holds one frequency.

mod plan;

use std::str::FromStr;

use derive_more::Display;
use flyball_host::{CpuList, Host};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    Id, Intent, IntentError, Location, ReadError, Setting, Snapshot, Value, owners::irqbalance, partition,
};

pub use self::plan::{QuietError, QuietOptions, QuietPlan, QuietResult};

/// How much speed to give up for steadiness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize, Display)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// No loss of speed: governor, preference, wake-up latency, interrupts elsewhere.
    #[display("light")]
    Light,
    /// Turbo off as well.
    #[display("steady")]
    Steady,
    /// One frequency as well (the base frequency by default), and SMT siblings offline.
    #[display("fixed")]
    Fixed,
}

impl Level {
    /// All levels, the least strict first.
    pub const ALL: [Level; 3] = [Level::Light, Level::Steady, Level::Fixed];
}

/// A word that is not a [`Level`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{word}' is not a level; give light, steady or fixed")]
pub struct UnknownLevel {
    pub word: String,
}

impl FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(text: &str) -> Result<Level, UnknownLevel> {
        let level = Level::ALL.into_iter().find(|level| level.to_string() == text);
        level.ok_or_else(|| UnknownLevel { word: text.to_owned() })
    }
}

/// A setting that makes the machine quieter.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Display)]
#[serde(into = "QuietSettingRecord")]
#[display("{}={}", knob, value)]
pub struct QuietSetting {
    pub knob: Id,
    /// The value, in the words of the command line.
    pub value: String,
    /// The CPUs; `None` for all.
    pub cpus: Option<CpuList>,
    /// The reason why it helps.
    pub because: &'static str,
}

/// A setting in its JSON form.
#[derive(JsonSchema, Serialize)]
struct QuietSettingRecord {
    setting: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpus: Option<CpuList>,
    because: &'static str,
}

impl From<QuietSetting> for QuietSettingRecord {
    fn from(setting: QuietSetting) -> QuietSettingRecord {
        QuietSettingRecord { setting: setting.to_string(), cpus: setting.cpus, because: setting.because }
    }
}

/// A kernel parameter that would make the machine quieter after a reboot.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(into = "String")]
pub struct BootParameter {
    /// The parameter, as it stands on the kernel's command line.
    pub parameter: String,
    /// The reason why it helps.
    pub because: &'static str,
}

impl From<BootParameter> for String {
    fn from(boot: BootParameter) -> String {
        format!("{}: {}", boot.parameter, boot.because)
    }
}

/// The settings that make this machine quiet.
#[derive(Debug, Clone, PartialEq, Eq, Default, JsonSchema, Serialize)]
pub struct QuietSettings {
    /// The CPUs on which the benchmark is to run.
    pub cpus: CpuList,
    /// The settings, in no particular order: the plan orders them.
    pub settings: Vec<QuietSetting>,
    /// Settings that this machine cannot have, each with the reason.
    pub unavailable: Vec<String>,
    /// Parameters that would help but need a reboot.
    pub boot: Vec<BootParameter>,
    /// The control group that keeps other tasks off the benchmark's CPUs, if there can be one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<Partition>,
}

impl QuietSettings {
    /// Returns the settings as an intent.
    pub fn intent(&self) -> Result<Intent, IntentError> {
        let setting = |quiet: &QuietSetting| {
            let on = quiet.cpus.as_ref().map(CpuList::to_string);
            let from = format!("quiet: {}", quiet.because);
            Setting::new(quiet.knob.knob().name, &quiet.value, on.as_deref(), from)
        };
        Ok(Intent { settings: self.settings.iter().map(setting).collect::<Result<_, _>>()? })
    }
}

/// A control group that has CPUs to itself (cgroup v2, cpuset).
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Partition {
    /// Directory of the group.
    pub path: String,
    /// Intended content: CPUs and kind.
    pub content: String,
    /// True if the root group must pass the controller on first.
    pub hand_down: bool,
}

impl Partition {
    /// Returns the writes that create it, in order.
    pub fn writes(&self) -> Vec<(Location, String)> {
        let root = Location::file(format!("{}/cgroup.subtree_control", partition::ROOT));
        let hand_down = self.hand_down.then(|| (root, "+cpuset".to_owned()));
        hand_down.into_iter().chain([(self.location(), self.content.clone())]).collect()
    }

    /// Returns whether `text`, as read back, is the intended content. The kernel formats lists in
    /// its own way (`2-3` for `2,3`).
    pub fn holds(&self, text: &str) -> bool {
        let parts = |text: &str| {
            let (cpus, kind) = text.trim().split_once(' ')?;
            Some((cpus.parse::<CpuList>().ok()?, kind.to_owned()))
        };
        parts(text).is_some_and(|found| parts(&self.content) == Some(found))
    }

    /// Returns the location of the group.
    pub fn location(&self) -> Location {
        Location::Partition(self.path.clone())
    }
}

/// The exit latency above which idle states are forbidden on the benchmark's CPUs: C1 and C1E are
/// faster on all processors, C6 is slower on all.
const LATENCY: &str = "20us";

/// The knobs that [`decide`] reads.
pub const KNOBS: &[Id] = &[
    Id::Online,
    Id::Turbo,
    Id::Governor,
    Id::Epp,
    Id::Epb,
    Id::MaxFreq,
    Id::IdleState,
    Id::LatencyLimit,
    Id::AvailableGovernors,
    Id::BaseFreq,
    Id::NominalFreq,
];

/// Decides what makes a machine steady for a benchmark on `cpus`. `snapshot` holds [`KNOBS`].
/// Control groups and kernel parameters are not knobs, so they are read from `host`.
///
/// # Errors
/// The snapshot was taken without one of the knobs.
pub fn decide(
    host: &dyn Host,
    snapshot: &Snapshot,
    level: Level,
    cpus: &CpuList,
    frequency: Option<&str>,
) -> Result<QuietSettings, ReadError> {
    let mut quiet = QuietSettings { cpus: cpus.clone(), ..QuietSettings::default() };
    governor(snapshot, &mut quiet)?;
    latency(snapshot, cpus, &mut quiet)?;
    if level >= Level::Steady {
        turbo(snapshot, &mut quiet)?;
    }
    if level >= Level::Fixed {
        fixed(snapshot, frequency, &mut quiet)?;
        siblings(snapshot, cpus, &mut quiet)?;
    }
    let online = &snapshot.topology().online;
    match keep_others_off(host, online, cpus) {
        Ok(partition) => quiet.partition = Some(partition),
        Err(why) => quiet.unavailable.push(format!("keep other tasks off CPUs {cpus}: {why}")),
    }
    boot(host, online, cpus, &mut quiet);
    Ok(quiet)
}

/// Returns the control group that gives the benchmark its own CPUs, or why that is impossible.
fn keep_others_off(host: &dyn Host, online: &CpuList, cpus: &CpuList) -> Result<Partition, String> {
    let root = partition::ROOT;
    // The parent must keep a CPU for its own tasks (tasks_nocpu_error in kernel/cgroup/cpuset.c).
    if online.difference(cpus).is_empty() {
        return Err("these are all CPUs (choose some)".to_owned());
    }
    let Ok(controllers) = host.read(&format!("{root}/cgroup.controllers")) else {
        return Err(if host.exists(&format!("{root}/cpuset")) {
            format!("{root} is cgroup v1, whose cpusets cannot have exclusive CPUs")
        } else {
            format!("no cgroup v2 is mounted at {root}")
        });
    };
    let names = |list: &str| list.split_whitespace().any(|name| name == "cpuset");
    if !names(&controllers) {
        return Err(format!(
            "the cgroup v2 at {root} has no cpuset controller (it may be bound to cgroup v1)"
        ));
    }
    let path = format!("{root}/flyball-quiet");
    // The group is another program's, or a killed flyball left it, which `restore` removes.
    if host.exists(&path) {
        return Err(format!("{path} already exists"));
    }
    // An isolated partition has no load balancing: several threads would all stay on the CPU on
    // which they start.
    let kind = if cpus.len() == 1 { "isolated" } else { "root" };
    let handed_down = host.read(&format!("{root}/cgroup.subtree_control")).unwrap_or_default();
    Ok(Partition { path, content: format!("{cpus} {kind}"), hand_down: !names(&handed_down) })
}

/// Returns whether the machine has the knob anywhere, with a value.
fn has(snapshot: &Snapshot, knob: Id) -> Result<bool, ReadError> {
    for place in snapshot.places(knob)? {
        if snapshot.value_if_readable(knob, place)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn add(
    quiet: &mut QuietSettings,
    knob: Id,
    value: impl Into<String>,
    cpus: Option<CpuList>,
    because: &'static str,
) {
    quiet.settings.push(QuietSetting { knob, value: value.into(), cpus, because });
}

fn governor(snapshot: &Snapshot, quiet: &mut QuietSettings) -> Result<(), ReadError> {
    let mut offers_performance = false;
    for place in snapshot.places(Id::AvailableGovernors)? {
        let offered = snapshot.value_if_readable(Id::AvailableGovernors, place)?;
        let words = offered.as_ref().and_then(Value::words).unwrap_or_default();
        offers_performance |= words.iter().any(|word| word == "performance");
    }
    if !has(snapshot, Id::Governor)? {
        quiet.unavailable.push(format!("hold the frequency: {}", snapshot.why_nowhere(Id::Governor)));
        return Ok(());
    }
    if offers_performance {
        add(
            quiet,
            Id::Governor,
            "performance",
            None,
            "the governor's reaction to load is not part of the result",
        );
    } else {
        quiet.unavailable.push("use the performance governor: the kernel does not offer it".to_owned());
        if has(snapshot, Id::Epp)? {
            add(quiet, Id::Epp, "performance", None, "the processor does not trade speed for power");
        }
    }
    if has(snapshot, Id::Epb)? {
        add(quiet, Id::Epb, "performance", None, "firmware policies do not trade speed for power");
    }
    Ok(())
}

fn latency(snapshot: &Snapshot, cpus: &CpuList, quiet: &mut QuietSettings) -> Result<(), ReadError> {
    // The file for the limit exists on every CPU; without idle states it limits nothing.
    if has(snapshot, Id::LatencyLimit)? && has(snapshot, Id::IdleState)? {
        let because = "wake-ups from deep idle states are not part of the result";
        add(quiet, Id::LatencyLimit, LATENCY, Some(cpus.clone()), because);
    } else if !has(snapshot, Id::IdleState)? {
        quiet.unavailable.push(format!("avoid deep idle states: {}", snapshot.why_nowhere(Id::IdleState)));
    }
    Ok(())
}

fn turbo(snapshot: &Snapshot, quiet: &mut QuietSettings) -> Result<(), ReadError> {
    if has(snapshot, Id::Turbo)? {
        add(quiet, Id::Turbo, "off", None, "turbo depends on temperature, power and the load of other CPUs");
    } else {
        quiet.unavailable.push("switch turbo off: this machine has no switch for it".to_owned());
    }
    Ok(())
}

fn fixed(snapshot: &Snapshot, frequency: Option<&str>, quiet: &mut QuietSettings) -> Result<(), ReadError> {
    if !has(snapshot, Id::MaxFreq)? {
        return Ok(());
    }
    let value = match frequency {
        Some(frequency) => frequency.to_owned(),
        // Not the highest frequency: above the base one, heat and the number of busy cores decide.
        None if has(snapshot, Id::BaseFreq)? => "base".to_owned(),
        None if has(snapshot, Id::NominalFreq)? => "nominal".to_owned(),
        // With turbo off, the highest remaining frequency is the base frequency.
        None => "max".to_owned(),
    };
    // The order does not matter: the plan writes a rising maximum before the minimum.
    for knob in [Id::MaxFreq, Id::MinFreq] {
        add(quiet, knob, value.clone(), None, "one frequency, whatever the load");
    }
    Ok(())
}

fn siblings(snapshot: &Snapshot, cpus: &CpuList, quiet: &mut QuietSettings) -> Result<(), ReadError> {
    let topology = snapshot.topology();
    let cores = topology.cores();
    let others: CpuList = cores
        .values()
        .filter(|core| core.intersects(cpus))
        .flat_map(CpuList::iter)
        // If the benchmark uses a sibling too, the user chose that.
        .filter(|sibling| !cpus.contains(*sibling) && topology.online.contains(*sibling))
        .collect();
    if others.is_empty() {
        return Ok(());
    }
    let mut switchable = CpuList::new();
    for place in snapshot.places_on(Id::Online, &others)? {
        // CPU 0 has no such file: since 6.5 x86 cannot take it offline.
        if snapshot.value_if_readable(Id::Online, &place)?.is_some() {
            switchable.add(&place.cpus);
        }
    }
    let stuck = others.difference(&switchable);
    if !switchable.is_empty() {
        add(quiet, Id::Online, "off", Some(switchable), "a busy SMT sibling takes half of the core");
    }
    if !stuck.is_empty() {
        quiet
            .unavailable
            .push(format!("take SMT siblings {stuck} offline: the kernel has no switch for them"));
    }
    Ok(())
}

fn boot(host: &dyn Host, online: &CpuList, cpus: &CpuList, quiet: &mut QuietSettings) {
    // Without the command line it is unknown which parameters are set, so there is no advice.
    let Ok(cmdline) = host.read("/proc/cmdline") else { return };
    let has = |name: &str| cmdline.split_whitespace().any(|word| word.split('=').next() == Some(name));
    if cpus.len() < online.len() {
        for (name, because) in [
            ("isolcpus", "keeps other tasks off the benchmark's CPUs"),
            ("rcu_nocbs", "moves the kernel's deferred work elsewhere"),
            ("irqaffinity", "keeps interrupts that cannot be moved later on other CPUs"),
        ] {
            if !has(name) {
                // The other parameters list the benchmark's CPUs, this one the CPUs for interrupts.
                let list = if name == "irqaffinity" {
                    online.difference(cpus).to_string()
                } else {
                    cpus.to_string()
                };
                quiet.boot.push(BootParameter { parameter: format!("{name}={list}"), because });
            }
        }
    }
}

/// Returns changes to files that are not knobs: interrupts move away from the benchmark's CPUs, and
/// the kernel's profiling interrupt becomes as rare as possible. Some interrupts cannot be moved,
/// so a refusal is not an error.
pub fn extras(host: &dyn Host, online: &CpuList, cpus: &CpuList) -> Vec<(Location, String)> {
    let mut extras = Vec::new();
    let others = online.difference(cpus);
    if !others.is_empty() {
        for irq in host.list("/proc/irq").unwrap_or_default() {
            let path = format!("/proc/irq/{irq}/smp_affinity_list");
            // An interrupt that avoids the benchmark's CPUs stays as it is.
            let allowed = host.read(&path).ok().and_then(|text| text.parse::<CpuList>().ok());
            if let Some(allowed) = allowed
                // Read-only if user space may not move the interrupt (register_irq_proc in
                // kernel/irq/proc.c).
                && host.writable(&path)
                && !allowed.intersection(cpus).is_empty()
            {
                extras.push((Location::file(path), others.to_string()));
            }
        }
    }
    let rate = "/proc/sys/kernel/perf_event_max_sample_rate";
    // 1 is the smallest value that the kernel accepts (extra1 in kernel/sysctl.c).
    if host.read(rate).is_ok_and(|text| text != "1") {
        extras.push((Location::file(rate), "1".to_owned()));
    }
    extras
}

/// Returns conditions that matter but cannot be changed for one command.
pub fn remarks(host: &dyn Host) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Ok(text) = host.read("/proc/sys/kernel/sched_rt_runtime_us")
        && text != "-1"
        && let Ok(micros) = text.parse::<u64>()
    {
        remarks.push(format!(
            "real-time tasks may use {} ms of every second; a benchmark that runs as one is stopped for the rest \
             (sched_rt_runtime_us)",
            micros / 1000
        ));
    }
    if let Some(pid) = irqbalance(host) {
        remarks.push(format!(
            "irqbalance (pid {pid}) moves interrupts back to the benchmark's CPUs every 10 s; to end it: \
             systemctl disable --now irqbalance.service"
        ));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_holds_in_the_kernels_spelling() {
        let partition = Partition {
            path: "/sys/fs/cgroup/x".to_owned(),
            content: "2,3 root".to_owned(),
            hand_down: false,
        };
        assert!(partition.holds("2-3 root\n") && partition.holds("2,3 root"));
        for other in
            ["2-3 root invalid (Cpu list in cpuset.cpus not exclusive)", "2 root", "absent", "", "2-3 member"]
        {
            assert!(!partition.holds(other), "{other}");
        }
    }

    #[test]
    fn levels_have_names() {
        for level in [Level::Light, Level::Steady, Level::Fixed] {
            assert_eq!(level.to_string().parse(), Ok(level));
        }
        assert_eq!("loud".parse::<Level>(), Err(UnknownLevel { word: "loud".to_owned() }));
    }
}
