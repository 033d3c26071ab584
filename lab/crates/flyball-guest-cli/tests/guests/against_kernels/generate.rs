//! Generates scripts from a fixed seed on a simulated machine. The writes depend only on the seed
//! and on the machine's state. The script records every answer and every visible change.

use flyball_sim::{Kind, SimMachine};

use super::script::{self, ANY, CPU, Look, Machine, Step, VOLATILE, Watch};

/// splitmix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len() as u64) as usize]
    }
}

/// A simulated machine, with the interface that scripts need.
pub(super) struct Simulated(pub SimMachine);

impl Machine for Simulated {
    fn list(&mut self, dir: &str) -> Vec<(String, u32)> {
        let names = self.0.list(dir).unwrap_or_default();
        let mode = |name: String| match self.0.kind(&format!("{dir}/{name}")) {
            Ok(Kind::File(mode)) => Some((name, u32::from(mode))),
            _ => None,
        };
        names.into_iter().filter_map(mode).collect()
    }

    fn mode(&mut self, path: &str) -> Option<u32> {
        match self.0.kind(path) {
            Ok(Kind::File(mode)) => Some(u32::from(mode)),
            _ => None,
        }
    }

    fn read(&mut self, path: &str) -> Result<Vec<u8>, i32> {
        self.0.read(path).map_err(|errno| errno.0)
    }

    fn write(&mut self, path: &str, text: &[u8]) -> Result<(), i32> {
        match self.0.kind(path) {
            // open(2) for writing fails if the file's mode does not allow it.
            Ok(Kind::File(mode)) if mode & 0o200 == 0 => Err(13),
            _ => self.0.write(path, text).map_err(|errno| errno.0),
        }
    }

    fn register(&mut self, cpu: u32, register: u32) -> Result<u64, i32> {
        self.0.read_msr(cpu, register).map_err(|errno| errno.0)
    }
}

const GOVERNORS: &[&str] =
    &["performance", "powersave", "userspace", "ondemand", "conservative", "schedutil"];
const PREFERENCES: &[&str] = &[
    "dynamic",
    "default",
    "performance",
    "balance_performance",
    "balance_power",
    "power",
    "0",
    "128",
    "255",
    "77",
    "1",
];
const SWITCH: &[&str] = &["0", "1"];
/// Values that no file accepts, or that only some files and some kernels accept.
const ODD: &[&str] = &[
    "",
    "-1",
    "2",
    "junk",
    "y",
    "n",
    "on",
    "off",
    "Y",
    "true",
    " 1",
    "1 junk",
    "+1",
    "0x1",
    "0x80",
    "256",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "99999999999999999999",
    "custom",
    "n/a",
    "\n",
    "1e6",
    "007",
    "performanc",
    "performances",
    "PERFORMANCE",
    "schedutill",
    "pass",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "1\0",
];

/// A file to write to, the values that it usually accepts, and how often it is chosen.
struct Target {
    path: String,
    values: Vec<String>,
    weight: u64,
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|&word| word.to_owned()).collect()
}

fn targets(machine: &mut dyn Machine, cpus: u32, amd: bool) -> Vec<Target> {
    let mut khz = |name: &str| {
        let bytes = machine.read(&format!("{CPU}/cpufreq/policy0/{name}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim().parse::<u64>().unwrap_or(2_000_000)
    };
    let (low, high) = (khz("cpuinfo_min_freq"), khz("cpuinfo_max_freq"));
    let mut frequencies =
        vec![0, 1, low, low + 1, low - 1, high, high - 1, high + 1, 2 * high, u64::midpoint(low, high)];
    frequencies.extend((1..16).map(|n| low + (high - low) * n / 16 / 1000 * 1000 + n % 3 * 333));
    let frequencies: Vec<String> = frequencies.iter().map(u64::to_string).collect();
    let numbers = |list: &[u64]| list.iter().map(u64::to_string).collect::<Vec<_>>();
    let mut list = Vec::new();
    let mut add = |weight: u64, path: String, values: Vec<String>| list.push(Target { path, values, weight });
    for cpu in 0..cpus {
        let policy = format!("cpufreq/policy{cpu}");
        // CPU 0's policy gets most writes, so that writes affect each other.
        let often = if cpu == 0 { 6 } else { 1 };
        add(3 * often, format!("{policy}/scaling_governor"), words(GOVERNORS));
        add(3 * often, format!("{policy}/scaling_min_freq"), frequencies.clone());
        add(3 * often, format!("{policy}/scaling_max_freq"), frequencies.clone());
        add(3 * often, format!("{policy}/energy_performance_preference"), words(PREFERENCES));
        add(2 * often, format!("{policy}/scaling_setspeed"), frequencies.clone());
        add(often, format!("{policy}/boost"), words(SWITCH));
        for read_only in ["cpuinfo_max_freq", "scaling_driver", "energy_performance_available_preferences"] {
            add(u64::from(cpu == 0), format!("{policy}/{read_only}"), frequencies.clone());
        }
        add(often.min(2), format!("cpu{cpu}/online"), words(SWITCH));
        add(1, format!("cpu{cpu}/power/pm_qos_resume_latency_us"), words(&["0", "n/a", "10", "2147483647"]));
        if !amd {
            let bias =
                ["0", "4", "6", "8", "15", "16", "performance", "normal", "balance-power", "balance_power"];
            add(1, format!("cpu{cpu}/power/energy_perf_bias"), words(&bias));
        }
    }
    if amd {
        add(12, "cpufreq/boost".into(), words(SWITCH));
        add(2, "cpufreq/policy0/cpb".into(), words(SWITCH));
        let modes = ["active", "passive", "guided", "disable", "undefined", "off"];
        add(5, "amd_pstate/status".into(), words(&modes));
        add(1, "amd_pstate/prefcore".into(), words(&["enabled", "disabled"]));
        add(2, "amd_pstate/dynamic_epp".into(), words(&["enabled", "disabled", "0", "1"]));
    } else {
        add(5, "intel_pstate/status".into(), words(&["active", "passive", "off", "guided"]));
        add(8, "intel_pstate/no_turbo".into(), words(SWITCH));
        add(8, "intel_pstate/min_perf_pct".into(), numbers(&[0, 1, 10, 33, 50, 75, 99, 100, 101]));
        add(8, "intel_pstate/max_perf_pct".into(), numbers(&[0, 1, 20, 40, 66, 90, 99, 100, 101]));
        add(3, "intel_pstate/hwp_dynamic_boost".into(), words(SWITCH));
        add(1, "intel_pstate/num_pstates".into(), words(SWITCH));
    }
    add(3, "cpufreq/schedutil/rate_limit_us".into(), numbers(&[0, 1, 1000, 10_000, 4_000_000]));
    let shared = [
        ("sampling_rate", numbers(&[1, 1000, 7999, 8000, 10_000, 400_000])),
        ("up_threshold", numbers(&[0, 1, 11, 20, 50, 80, 95, 100, 101])),
        ("sampling_down_factor", numbers(&[0, 1, 2, 10, 11, 100_000, 100_001])),
        ("ignore_nice_load", words(SWITCH)),
    ];
    for (name, values) in shared {
        add(2, format!("cpufreq/ondemand/{name}"), values.clone());
        add(2, format!("cpufreq/conservative/{name}"), values);
    }
    add(2, "cpufreq/ondemand/powersave_bias".into(), numbers(&[0, 1, 100, 999, 1000, 1001]));
    add(2, "cpufreq/ondemand/io_is_busy".into(), words(SWITCH));
    add(2, "cpufreq/conservative/freq_step".into(), numbers(&[0, 1, 5, 50, 100, 101]));
    add(2, "cpufreq/conservative/down_threshold".into(), numbers(&[0, 1, 10, 20, 50, 79, 80, 94, 101]));
    add(1, "smt/control".into(), words(&["on", "off", "forceoff", "notsupported"]));
    add(1, "smt/active".into(), words(SWITCH));
    list
}

/// What to compare on a machine with this many CPUs.
pub(super) fn watch(cpus: u32, amd: bool, registers: bool) -> Watch {
    let mut dirs =
        words(&["cpufreq", "cpufreq/schedutil", "cpufreq/ondemand", "cpufreq/conservative", "smt"]);
    dirs.extend(words(if amd { &["amd_pstate"] } else { &["intel_pstate"] }));
    dirs.extend((0..cpus).map(|cpu| format!("cpufreq/policy{cpu}")));
    let mut files = words(&["online", "offline"]);
    for cpu in 0..cpus {
        files.push(format!("cpu{cpu}/online"));
        files.push(format!("cpu{cpu}/power/pm_qos_resume_latency_us"));
        if !amd {
            files.push(format!("cpu{cpu}/power/energy_perf_bias"));
        }
    }
    let fields: &[(u32, &str, u32, u32)] = match (registers, amd) {
        (false, _) => &[],
        (true, true) => &[
            (0xc001_02b3, "max", 0, 8),
            (0xc001_02b3, "min", 8, 8),
            (0xc001_02b3, "desired", 16, 8),
            (0xc001_02b3, "epp", 24, 8),
            (0xc001_0015, "boost-off", 25, 1),
        ],
        (true, false) => &[
            (0x774, "min", 0, 8),
            (0x774, "max", 8, 8),
            (0x774, "desired", 16, 8),
            (0x774, "epp", 24, 8),
            (0x1b0, "bias", 0, 4),
        ],
    };
    Watch { dirs, files, registers: fields.to_vec(), cpus }
}

/// Accepts any value where load decides: a frequency left by a governor of another kind, and the
/// requests of a governor that follows load.
fn loosen(look: &mut Look, known_speed: &[bool], dynamic_boost: bool) {
    for (cpu, &known) in known_speed.iter().enumerate() {
        let governor =
            look.get(&format!("cpufreq/policy{cpu}/scaling_governor")).cloned().unwrap_or_default();
        let driver = look.get(&format!("cpufreq/policy{cpu}/scaling_driver")).cloned().unwrap_or_default();
        let setpolicy = driver.ends_with("intel_pstate") || driver.ends_with("amd-pstate-epp");
        let fixed = setpolicy && !(dynamic_boost && driver.ends_with("intel_pstate"))
            || governor.ends_with(" performance")
            || governor.ends_with(" powersave")
            || governor.ends_with(" userspace") && known;
        let mut any = |path: String| {
            if let Some(text) = look.get_mut(&path)
                && !text.contains('<')
            {
                ANY.clone_into(text);
            }
        };
        if !known {
            any(format!("cpufreq/policy{cpu}/scaling_setspeed"));
        }
        if !fixed {
            any(format!("register:{cpu}:desired"));
            any(format!("register:{cpu}:min"));
            // New limits reach the register with the scheduler's next update, and an idle CPU has
            // none.
            any(format!("register:{cpu}:max"));
        }
    }
}

/// Generates a script of `length` writes on a machine, which is changed by them.
pub(super) fn script(machine: SimMachine, watch: &Watch, amd: bool, seed: u64, length: usize) -> Vec<Step> {
    let mut machine = Simulated(machine);
    let mut dice = Dice(seed);
    let targets = targets(&mut machine, watch.cpus, amd);
    let all: u64 = targets.iter().map(|target| target.weight).sum();
    let mut known_speed = vec![false; watch.cpus as usize];
    let mut seen = Look::new();
    let mut steps = Vec::new();
    for number in 0..=length {
        let mut step = Step { path: ".".to_owned(), answer: "ok".to_owned(), ..Step::default() };
        if number > 0 {
            let mut at = dice.below(all);
            let target = targets.iter().find(|target| {
                let here = at < target.weight;
                at = at.saturating_sub(target.weight);
                here
            });
            let target = target.unwrap_or(&targets[0]);
            let mut text =
                if dice.below(8) == 0 { (*dice.of(ODD)).to_owned() } else { dice.of(&target.values).clone() };
            if dice.below(3) > 0 {
                text.push('\n');
            }
            step.path.clone_from(&target.path);
            step.text = text.into_bytes();
            step.answer = match machine.write(&format!("{CPU}/{}", step.path), &step.text) {
                Ok(()) => "ok".to_owned(),
                Err(errno) => errno.to_string(),
            };
            if step.answer == "ok" {
                know(&step.path, &mut known_speed);
            }
        }
        machine.0.advance(std::time::Duration::from_millis(5));
        let mut now = script::look(&mut machine, watch);
        let boost = now.get("intel_pstate/hwp_dynamic_boost").is_some_and(|value| value.ends_with('1'));
        loosen(&mut now, &known_speed, boost);
        for (path, value) in &now {
            let name = path.rsplit('/').next().unwrap_or_default();
            if seen.get(path) != Some(value)
                && !(VOLATILE.contains(&name) && seen.contains_key(path) && !value.contains('<'))
            {
                step.changed.push((path.clone(), Some(value.clone())));
            }
        }
        step.changed
            .extend(seen.keys().filter(|path| !now.contains_key(*path)).map(|path| (path.clone(), None)));
        seen = now;
        steps.push(step);
    }
    steps
}

/// Updates for which CPUs the frequency is known after a write.
fn know(path: &str, known_speed: &mut [bool]) {
    let policy = |path: &str| path.strip_prefix("cpufreq/policy")?.split('/').next()?.parse::<usize>().ok();
    if path.ends_with("/online") || path.ends_with("/status") || path.starts_with("smt/") {
        known_speed.fill(false);
    } else if let Some(known) = policy(path).and_then(|cpu| known_speed.get_mut(cpu)) {
        if path.ends_with("/scaling_setspeed") {
            *known = true;
        } else if path.ends_with("/scaling_governor") {
            *known = false;
        }
    }
}
