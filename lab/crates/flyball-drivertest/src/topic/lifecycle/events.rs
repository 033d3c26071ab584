//! The events of `lifecycle`: sleep, hotplug, changes of the driver's mode, modules, and firmware
//! actions.

use crate::{
    mode::{Kind, Mode},
    record::Observation,
    step::Step,
};

/// The exit code of a command if the kernel or machine lacks what it needs.
pub(super) const LACKS: i32 = 77;

/// An event in a machine's life.
#[derive(Debug, Clone)]
pub(super) struct Event {
    /// Stable identifier `subject.event`.
    pub name: &'static str,
    /// What must hold, and the kernel documentation that requires it.
    pub about: &'static str,
    /// What is missing if a command exits with [`LACKS`].
    pub needs: &'static str,
    /// Made before the event, from the base state.
    pub settings: Vec<Step>,
    pub steps: Vec<Step>,
    /// The steps of a machine without the event.
    pub instead: Vec<Step>,
    /// True if settings survive it. If not, they are made again after it, from the base state.
    pub keeps: bool,
    /// A step of `steps`, and what must hold after it.
    pub check: Option<(usize, Check)>,
}

/// Returns one line for each violation.
pub(super) type Check = fn(&Mode, &Observation) -> Vec<String>;

const KEEPS: &str = "admin-guide/pm/sleep-states.rst, power/basic-pm-debugging.rst: after a test of suspend the system is as before";
const POLICY: &str = "admin-guide/pm/cpufreq.rst, CPU Initialization: a policy that was in use before is restored with its governor and limits";
const STATUS: &str = "admin-guide/pm/amd-pstate.rst and intel_pstate.rst, status: the same settings in the same mode give the same state";
const NOTIFIED: &str = "ACPI 8.4.5.3 and 8.4.6: a notification makes the kernel read the limits again; where they have not changed, nothing does";
const THERMAL: &str =
    "driver-api/thermal/cpu-cooling-api.rst: a cooling state limits the frequency, and 0 ends the limit";
const MODULE: &str = "admin-guide/pm/cpufreq.rst: a driver that is registered again makes its policies again";

/// The events of a mode.
pub(super) fn all(mode: &Mode) -> Vec<Event> {
    let settings = settings(mode);
    let event = |name, about, needs, steps: Vec<Step>| Event {
        name,
        about,
        needs,
        settings: settings.clone(),
        steps,
        instead: Vec::new(),
        keeps: true,
        check: None,
    };
    let again = |event: Event| Event { keeps: false, ..event };
    // The first event shows that the comparison holds without any event.
    let mut all =
        vec![event("nothing", "the same settings give the same state twice", "", vec![Step::Wait(50)])];
    for (name, state, level) in SLEEP {
        let needs = "the kernel has no pm_test, or the machine does not have this sleep state";
        all.push(event(name, KEEPS, needs, vec![sleep(state, level)]));
    }
    let last = mode.cpu_count().saturating_sub(1).max(1);
    let online = |cpu: u32, value: &str| Step::write(format!("cpu{cpu}/online"), value);
    let off = "the kernel has no CPU hotplug";
    all.push(event("hotplug.one", POLICY, off, vec![online(1, "0"), online(1, "1")]));
    let down = (1..=last).map(|cpu| online(cpu, "0"));
    let up = (1..=last).map(|cpu| online(cpu, "1"));
    all.push(event("hotplug.all-but-one", POLICY, off, down.chain(up).collect()));
    all.push(event("hotplug.storm", POLICY, off, vec![storm(last)]));
    let during = changed_during(mode, last);
    let steps = [vec![online(1, "0")], during.clone(), vec![online(1, "1")]].concat();
    all.push(Event { instead: during, ..event("hotplug.changed-during", POLICY, off, steps) });

    if let Some((path, own)) = mode.status() {
        let words: &[&str] = if mode.is_amd_pstate() {
            &["active", "passive", "guided", "disable"]
        } else {
            &["active", "passive", "off"]
        };
        let words: Vec<&str> = words.iter().copied().filter(|word| *word != own).collect();
        let each = words.iter().map(|word| format!("echo {word} > {path}; echo {own} > {path};"));
        let turns = each.collect::<Vec<_>>().join(" ");
        let needs = "the kernel does not change the driver's mode";
        let change = format!("[ -e {path} ] || exit {LACKS}; {turns} [ \"$(cat {path})\" = {own} ]");
        all.push(again(event("mode.loop", STATUS, needs, vec![command(&change)])));
        let change = format!(
            "[ -e {path} ] || exit {LACKS}; {} {turns} {turns} {END_LOAD} [ \"$(cat {path})\" = {own} ]",
            load(last)
        );
        all.push(again(event("mode.loop-under-load", STATUS, needs, vec![command(&change)])));
        let change = format!(
            "[ -e {path} ] || exit {LACKS}; echo 0 > cpu1/online; echo {} > {path}; echo 1 > cpu1/online; echo {own} > {path}",
            words[0]
        );
        all.push(again(event("mode.changed-while-offline", STATUS, needs, vec![command(&change)])));
    }
    let needs = "the driver is not a module of this kernel";
    let change = format!("{} {}", load(last), reload(&["acpi_cpufreq"]));
    if mode.kind == Kind::AcpiCpufreq {
        all.push(again(event("module.driver", MODULE, needs, vec![command(&change)])));
    }
    if mode.spec.sst.is_some() {
        let needs = "the Speed Select drivers are not modules of this kernel";
        // In the order in which they can be removed.
        let change = reload(&[
            "isst_if_mbox_pci",
            "isst_if_mmio",
            "isst_if_mbox_msr",
            "isst_tpmi",
            "isst_tpmi_core",
            "intel_vsec_tpmi",
        ]);
        all.push(again(event("module.speed-select", MODULE, needs, vec![command(&change)])));
    }
    all.extend(firmware(mode, &event));
    all
}

/// Events that leave every setting unchanged, each as one step.
pub fn harmless(mode: &Mode) -> Vec<Step> {
    let is_harmless = |event: &Event| event.name.starts_with("sleep.") || event.name == "firmware.notifies";
    all(mode).into_iter().filter(is_harmless).flat_map(|event| event.steps).collect()
}

/// Events of the firmware, and their effects in the kernel.
fn firmware(
    mode: &Mode,
    event: &dyn Fn(&'static str, &'static str, &'static str, Vec<Step>) -> Event,
) -> Vec<Event> {
    let needs = "the firmware of this guest does not act";
    let mut all = Vec::new();
    let notify = ["0080", "0083", "0085", "0082", "0081", "0080"].map(act).join(" ");
    all.push(event("firmware.notifies", NOTIFIED, needs, vec![command(&notify)]));
    let states = mode.spec.firmware.pstates_mhz.len();
    if mode.kind == Kind::AcpiCpufreq && states > 1 {
        let to = |state: usize| command(&act(&format!("01{state:02X}")));
        let mut limit = event("firmware.limit-moves", NOTIFIED, needs, vec![to(states - 1), to(1), to(0)]);
        limit.check = Some((0, |mode, seen| {
            let lowest = mode.spec.firmware.pstates_mhz.last().map_or(0, |mhz| i64::from(*mhz) * 1000);
            below(seen, |_| Some(lowest), "the firmware's limit")
        }));
        all.push(limit);
    }
    let needs = "the kernel has no cooling device for processors";
    let cool = |state: u32| {
        let each = format!(
            "n=0; for d in /sys/class/thermal/cooling_device*; do read -r t < $d/type; [ \"$t\" = Processor ] || continue; \
             echo {state} > $d/cur_state && n=$((n + 1)); done; [ $n != 0 ] || exit {LACKS}"
        );
        command(&each)
    };
    let mut heat = event("thermal.pressure", THERMAL, needs, vec![cool(2), cool(0)]);
    // A step is 20 % of the highest frequency (drivers/acpi/processor_thermal.c,
    // cpufreq_set_cur_state).
    heat.check = Some((0, |_, seen| {
        below(
            seen,
            |policy| Some(seen.policy_number(policy, "cpuinfo_max_freq")? * 61 / 100),
            "60 % of the highest frequency",
        )
    }));
    all.push(heat);
    all
}

/// Reports policies whose scaling_max_freq exceeds a limit.
fn below(seen: &Observation, limit: impl Fn(u32) -> Option<i64>, name: &str) -> Vec<String> {
    let line = |policy: u32| {
        let (max, limit) = (seen.policy_number(policy, "scaling_max_freq")?, limit(policy)?);
        (max > limit)
            .then(|| format!("policy{policy}: scaling_max_freq reads {max} during it, and {name} is {limit}"))
    };
    seen.policies().into_iter().filter_map(line).collect()
}

/// Sleep states, and the levels of /sys/power/pm_test that return by themselves
/// (power/basic-pm-debugging.rst). Suspend to idle has no level below the platform's: it would
/// really sleep, and nothing wakes the guest.
const SLEEP: &[(&str, &str, &str)] = &[
    ("sleep.idle-freezer", "freeze", "freezer"),
    ("sleep.idle-devices", "freeze", "devices"),
    ("sleep.idle-platform", "freeze", "platform"),
    ("sleep.memory-devices", "mem", "devices"),
    ("sleep.memory-platform", "mem", "platform"),
    ("sleep.memory-processors", "mem", "processors"),
    ("sleep.memory-core", "mem", "core"),
];

fn sleep(state: &str, level: &str) -> Step {
    // With mem_sleep s2idle, "mem" is suspend to idle.
    let deep = if state == "mem" {
        format!("echo deep > /sys/power/mem_sleep || exit {LACKS};")
    } else {
        String::new()
    };
    command(&format!(
        "grep -q {level} /sys/power/pm_test || exit {LACKS}; grep -q {state} /sys/power/state || exit {LACKS}; {deep} \
         echo 0 > /sys/module/suspend/parameters/pm_test_delay; echo {level} > /sys/power/pm_test || exit {LACKS}; \
         echo {state} > /sys/power/state; r=$?; echo none > /sys/power/pm_test; exit $r"
    ))
}

/// A shell command without output, which would be parsed as the agent's.
fn command(text: &str) -> Step {
    Step::Run(format!("exec >/dev/null 2>&1; {text}"))
}

/// Combines settings into one step, because only the state after all of them counts. Files that a
/// kernel lacks are skipped.
pub(super) fn at_once(settings: &[Step]) -> Option<Step> {
    let write = |step: &Step| match step {
        Step::Write { path, value } => Some(format!("echo {value} > {path};")),
        _ => None,
    };
    let all: Vec<String> = settings.iter().filter_map(write).collect();
    (!all.is_empty()).then(|| command(&format!("{} true", all.join(" "))))
}

/// Triggers a firmware device (`events` in flyball-guest's acpi.rs).
fn act(device: &str) -> String {
    format!("cat /sys/bus/acpi/devices/FLYB{device}:00/status || exit {LACKS};")
}

/// Keeps all CPUs busy until [`END_LOAD`] or [`reload`].
fn load(last: u32) -> String {
    format!("p=; for n in $(seq 0 {last}); do while :; do :; done & p=\"$p $!\"; done;")
}

const END_LOAD: &str = "kill $p;";

fn storm(last: u32) -> Step {
    let load = load(last);
    let round = format!(
        "for c in $(seq 1 {last}); do echo 0 > cpu$c/online; done; for c in $(seq {last} -1 1); do echo 1 > cpu$c/online; done; \
         for c in $(seq 1 {last}); do echo 0 > cpu$c/online; echo 1 > cpu$c/online; done;"
    );
    command(&format!(
        "[ -e cpu1/online ] || exit {LACKS}; {load} for r in 1 2 3; do {round} done; {END_LOAD} ! grep -q 0 cpu[1-9]*/online"
    ))
}

/// Removes the loaded ones among the modules and loads them again, twice; ends a load of [`load`].
fn reload(modules: &[&str]) -> String {
    let all = modules.join(" ");
    format!(
        "l=; for m in {all}; do grep -q \"^$m \" /proc/modules && l=\"$m $l\"; done; \
         [ -n \"$l\" ] || {{ kill $p; exit {LACKS}; }}; e=0; for r in 1 2; do \
         for m in {all}; do case \" $l \" in *\" $m \"*) rmmod $m || e=1 ;; esac; done; for m in $l; do modprobe $m || e=2; done; done; kill $p; exit $e"
    )
}

/// Settings that differ from the base state in everything that a driver keeps: turbo, limits,
/// governor, preference.
fn settings(mode: &Mode) -> Vec<Step> {
    let core = &mode.spec.core[0];
    let mut steps = Vec::new();
    let mut write = |path: String, value: String| steps.push(Step::Write { path, value });
    let p = |policy: u32, name: &str| format!("cpufreq/policy{policy}/{name}");
    if mode.has_boost() {
        write("cpufreq/boost".into(), "0".into());
    }
    if mode.is_intel_pstate() {
        write("intel_pstate/no_turbo".into(), "1".into());
        write("intel_pstate/max_perf_pct".into(), "90".into());
    }
    write(p(1, "scaling_max_freq"), (core.base_mhz / 100 * 90_000).to_string());
    write(
        p(1, "scaling_min_freq"),
        (u32::midpoint(core.efficient_mhz, core.base_mhz) / 100 * 100_000).to_string(),
    );
    if mode.has_preference() {
        write(p(1, "energy_performance_preference"), "power".into());
    }
    let other = if mode.is_setpolicy() { "performance" } else { "powersave" };
    write(p(2, "scaling_governor"), other.into());
    steps
}

/// Changes that are made while CPU 1 is offline, and apply to it when it comes back.
fn changed_during(mode: &Mode, last: u32) -> Vec<Step> {
    let mut steps = Vec::new();
    if mode.has_boost() {
        steps.push(Step::write("cpufreq/boost", "1"));
    }
    if mode.is_intel_pstate() {
        steps.push(Step::write("intel_pstate/no_turbo", "0"));
        steps.push(Step::write("intel_pstate/max_perf_pct", "80"));
    }
    steps.push(Step::write(format!("cpufreq/policy{last}/scaling_governor"), "performance"));
    steps
}
