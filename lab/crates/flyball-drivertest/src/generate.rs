//! Generates sequences from a seed: sweeps over every attribute's accepted, clamped and rejected
//! values, scenarios in which drivers have failed before, and random walks.
//!
//! Sequences depend on the machine, the mode and the seed, never on the kernel, so that old and new
//! kernels run the same ones. A missing attribute gives the answer `absent`. The calls of Speed
//! Select's device are in generate/speed_select.rs.

mod speed_select;

use rand::{Rng as _, SeedableRng as _, seq::IndexedRandom as _};
use rand_pcg::Pcg64Mcg;

use crate::{
    mode::Mode,
    step::{Sequence, Step},
};

/// Random walks of a default suite, and the steps of each.
const WALKS: usize = 14;
const WALK: usize = 10;

/// Duration of the load on all CPUs, ms.
const LOAD: u32 = 20;

/// The sequences of a mode. Equal seeds give equal sequences.
pub fn sequences(mode: &Mode, seed: u64) -> Vec<Sequence> {
    let mut source = Source::new(mode, seed);
    let mut all = source.sweeps();
    all.extend(source.scenarios());
    all.extend((0..WALKS).map(|number| source.walk(number, WALK)));
    all
}

/// Makes steps for a mode.
pub struct Source<'a> {
    mode: &'a Mode,
    random: Pcg64Mcg,
}

fn p(policy: u32, name: &str) -> String {
    format!("cpufreq/policy{policy}/{name}")
}

const REFUSED_NUMBERS: &[&str] = &["junk", "-1", "", "12 34"];
const REFUSED_WORDS: &[&str] = &["junk", "", "performancex"];
const REFUSED_SWITCH: &[&str] = &["2", "junk", ""];

impl<'a> Source<'a> {
    pub fn new(mode: &'a Mode, seed: u64) -> Source<'a> {
        Source { mode, random: Pcg64Mcg::seed_from_u64(seed) }
    }

    /// A policy with its own CPU that can go offline.
    fn policy(&mut self) -> u32 {
        self.random.random_range(1..self.mode.cpu_count().max(2))
    }

    /// A frequency between the lowest and the highest, kHz, or one of the machine's levels.
    fn frequency(&mut self) -> String {
        let core = &self.mode.spec.core[0];
        let (low, high) = (core.min_mhz, core.max_mhz);
        match self.random.random_range(0..10) {
            0 => (core.base_mhz * 1000).to_string(),
            1 => (core.efficient_mhz * 1000).to_string(),
            2 => "@cpuinfo_max_freq".to_owned(),
            3 => "@cpuinfo_min_freq".to_owned(),
            4 => self
                .mode
                .spec
                .firmware
                .pstates_mhz
                .last()
                .map_or_else(|| "@cpuinfo_min_freq".into(), |mhz| (mhz * 1000).to_string()),
            // Not a multiple of anything.
            5 => self.random.random_range(low * 1000..=high * 1000).to_string(),
            _ => (self.random.random_range(low / 100..=high / 100) * 100_000).to_string(),
        }
    }

    /// Both limits between two states in the firmware's table. A driver that has only those states
    /// rounds the maximum down, and the minimum must not stay above it.
    fn equal_limits(&mut self) -> Vec<Step> {
        let policy = self.policy();
        let core = &self.mode.spec.core[0];
        let (first, second) = match self.mode.spec.firmware.pstates_mhz[..] {
            [first, second, ..] => (first, second),
            _ => (core.max_mhz, core.base_mhz),
        };
        let between = (u32::midpoint(first, second) * 1000 + 1000).to_string();
        vec![
            Step::write(p(policy, "scaling_max_freq"), &between),
            Step::write(p(policy, "scaling_min_freq"), &between),
            Step::write(p(policy, "scaling_min_freq"), "@cpuinfo_min_freq"),
        ]
    }

    fn governors(&self) -> &'static [&'static str] {
        if self.mode.is_setpolicy() {
            &["performance", "powersave"]
        } else {
            &["performance", "powersave", "userspace", "ondemand", "conservative", "schedutil"]
        }
    }

    fn statuses(&self) -> &'static [&'static str] {
        if self.mode.is_amd_pstate() { &["active", "passive", "guided"] } else { &["active", "passive"] }
    }

    fn preferences(&self) -> &'static [&'static str] {
        &["performance", "balance_performance", "balance_power", "power", "default"]
    }

    /// Sweeps over every attribute with accepted, clamped and rejected values.
    fn sweeps(&mut self) -> Vec<Sequence> {
        if let Some(shape) = &self.mode.shape {
            return speed_select::sweeps(shape);
        }
        let mut all = Vec::new();
        let mut add = |name: &str, steps: Vec<Step>| all.push(Sequence { name: name.to_owned(), steps });
        add("sweep.max", self.limit_sweep("scaling_max_freq"));
        add("sweep.min", self.limit_sweep("scaling_min_freq"));
        add("sweep.equal-limits", self.equal_limits());
        add("sweep.governor", self.governor_sweep());
        if self.mode.has_preference() {
            let policy = self.policy();
            add("sweep.preference", self.preference_sweep(policy));
        }
        if self.mode.has_boost() {
            add("sweep.boost", self.boost_sweep());
        }
        if let Some((path, own)) = self.mode.status() {
            let mut steps: Vec<Step> = REFUSED_WORDS.iter().map(|word| Step::write(path, *word)).collect();
            steps.extend(self.statuses().iter().map(|word| Step::write(path, *word)));
            let off = if self.mode.is_amd_pstate() { "disable" } else { "off" };
            steps.extend([Step::write(path, off), Step::write(path, own)]);
            add("sweep.status", steps);
        }
        if self.mode.is_intel_pstate() {
            add("sweep.turbo", self.turbo_sweep());
            add("sweep.percent", self.percent_sweep());
        }
        if !self.mode.is_setpolicy() {
            add("sweep.setspeed", self.setspeed_sweep());
        }
        add("sweep.online", self.online_sweep());
        all
    }

    fn limit_sweep(&mut self, file: &str) -> Vec<Step> {
        let policy = self.policy();
        let path = p(policy, file);
        let core = &self.mode.spec.core[0];
        let (low, efficient, base, high) =
            (core.min_mhz * 1000, core.efficient_mhz * 1000, core.base_mhz * 1000, core.max_mhz * 1000);
        let mut values: Vec<String> = [
            base,
            efficient,
            low,
            u32::midpoint(low, high),
            u32::midpoint(base, high) / 100_000 * 100_000,
            // No multiple of any step.
            u32::midpoint(efficient, base) + 12_345,
            high,
        ]
        .map(|khz| khz.to_string())
        .into();
        values.extend(
            ["@cpuinfo_min_freq", "@cpuinfo_max_freq", "@cpuinfo_max_freq-1", "@cpuinfo_min_freq+1"]
                .map(str::to_owned),
        );
        // Clamped.
        values.extend(["1", "0", "@cpuinfo_max_freq+1000"].map(str::to_owned));
        let mut steps: Vec<Step> = values.into_iter().map(|value| Step::write(&path, value)).collect();
        steps.push(Step::Load(LOAD));
        steps.extend(REFUSED_NUMBERS.iter().map(|value| Step::write(&path, *value)));
        // With the other limit on the wrong side.
        let other =
            p(policy, if file == "scaling_max_freq" { "scaling_min_freq" } else { "scaling_max_freq" });
        steps.extend([
            Step::write(&other, base.to_string()),
            Step::write(&path, efficient.to_string()),
            Step::write(&path, base.to_string()),
            Step::write(&path, "@cpuinfo_max_freq"),
            Step::write(&other, efficient.to_string()),
        ]);
        steps
    }

    fn governor_sweep(&mut self) -> Vec<Step> {
        let policy = self.policy();
        let path = p(policy, "scaling_governor");
        let base = self.mode.spec.core[0].base_mhz * 1000;
        let mut steps: Vec<Step> =
            self.governors().iter().map(|governor| Step::write(&path, *governor)).collect();
        steps.extend(["junk", "", "POWERSAVE"].map(|word| Step::write(&path, word)));
        // Within limits, in both orders.
        steps.push(Step::write(p(policy, "scaling_max_freq"), base.to_string()));
        steps.push(Step::write(p(policy, "scaling_min_freq"), (base / 2).to_string()));
        for governor in self.governors() {
            steps.push(Step::write(&path, *governor));
            steps.push(Step::Load(LOAD));
        }
        steps
    }

    fn preference_sweep(&mut self, policy: u32) -> Vec<Step> {
        let path = p(policy, "energy_performance_preference");
        let governor = p(policy, "scaling_governor");
        let mut steps = Vec::new();
        let numbers = ["0", "1", "64", "128", "192", "254", "255", "256", "-1"];
        for value in self.preferences().iter().chain(&numbers).chain(REFUSED_WORDS) {
            steps.push(Step::write(&path, *value));
        }
        steps.push(Step::write(&path, "power"));
        steps.push(Step::write(&governor, "performance"));
        for value in ["power", "balance_performance", "0", "performance", "junk", "255"] {
            steps.push(Step::write(&path, value));
        }
        steps.push(Step::write(&governor, "powersave"));
        steps.push(Step::write(&path, "balance_power"));
        steps
    }

    fn boost_sweep(&mut self) -> Vec<Step> {
        let policy = self.policy();
        let (own, all) = (p(policy, "boost"), "cpufreq/boost".to_owned());
        let core = &self.mode.spec.core[0];
        let above = (u32::midpoint(core.base_mhz, core.max_mhz) * 1000).to_string();
        let mut steps = Vec::new();
        for path in [&all, &own] {
            steps.extend(["0", "1"].map(|value| Step::write(path, value)));
            steps.extend(REFUSED_SWITCH.iter().map(|value| Step::write(path, *value)));
            steps.extend(["0", "0"].map(|value| Step::write(path, value)));
            steps.push(Step::write(p(policy, "scaling_max_freq"), &above));
            steps.push(Step::Load(LOAD));
            steps.push(Step::write(path, "1"));
            steps.push(Step::write(p(policy, "scaling_max_freq"), &above));
            steps.push(Step::write(p(policy, "scaling_max_freq"), "@cpuinfo_max_freq"));
            steps.push(Step::Load(LOAD));
        }
        // Nested changes.
        steps.extend([
            Step::write(&own, "0"),
            Step::write(&all, "0"),
            Step::write(&own, "1"),
            Step::write(&all, "1"),
        ]);
        steps
    }

    fn turbo_sweep(&mut self) -> Vec<Step> {
        let path = "intel_pstate/no_turbo";
        let policy = self.policy();
        let mut steps: Vec<Step> =
            ["1", "0", "junk", "", "2", "1"].iter().map(|value| Step::write(path, *value)).collect();
        steps.extend([
            Step::write(p(policy, "scaling_max_freq"), "@cpuinfo_max_freq"),
            Step::write(p(policy, "scaling_governor"), "performance"),
            Step::Load(LOAD),
            Step::write(path, "0"),
            Step::Load(LOAD),
            Step::write("intel_pstate/hwp_dynamic_boost", "1"),
            Step::write("intel_pstate/hwp_dynamic_boost", "0"),
            Step::write("intel_pstate/hwp_dynamic_boost", "junk"),
        ]);
        steps
    }

    fn percent_sweep(&mut self) -> Vec<Step> {
        let (max, min) = ("intel_pstate/max_perf_pct", "intel_pstate/min_perf_pct");
        let policy = self.policy();
        let mut steps = Vec::new();
        for value in ["100", "83", "50", "1", "0", "101", "junk", "-1", "100"] {
            steps.push(Step::write(max, value));
        }
        for value in ["0", "47", "70", "100", "101", "junk", "30"] {
            steps.push(Step::write(min, value));
        }
        let base = self.mode.spec.core[0].base_mhz * 1000;
        steps.extend([
            // The global percentages and a policy's limits bound each other.
            Step::write(max, "60"),
            Step::write(min, "80"),
            Step::write(p(policy, "scaling_max_freq"), base.to_string()),
            Step::write(p(policy, "scaling_min_freq"), base.to_string()),
            Step::write(p(policy, "scaling_governor"), "performance"),
            Step::Load(LOAD),
            Step::write(max, "100"),
            Step::write(min, "0"),
        ]);
        steps
    }

    fn setspeed_sweep(&mut self) -> Vec<Step> {
        let policy = self.policy();
        let path = p(policy, "scaling_setspeed");
        let core = &self.mode.spec.core[0];
        let (low, efficient, base, high) =
            (core.min_mhz * 1000, core.efficient_mhz * 1000, core.base_mhz * 1000, core.max_mhz * 1000);
        let mut steps = vec![
            Step::write(&path, base.to_string()),
            Step::write(p(policy, "scaling_governor"), "userspace"),
        ];
        for khz in [
            base,
            efficient,
            low,
            high,
            u32::midpoint(low, base) + 4_321,
            u32::midpoint(base, high),
            high + 500_000,
            1,
        ] {
            steps.push(Step::write(&path, khz.to_string()));
        }
        steps.push(Step::write(&path, "junk"));
        steps.push(Step::write(&path, base.to_string()));
        steps.push(Step::Load(LOAD));
        // Limits clamp a speed and release it again.
        steps.push(Step::write(p(policy, "scaling_max_freq"), (base / 2).to_string()));
        steps.push(Step::write(p(policy, "scaling_max_freq"), "@cpuinfo_max_freq"));
        steps.push(Step::write(p(policy, "scaling_min_freq"), u32::midpoint(base, high).to_string()));
        steps.push(Step::write(p(policy, "scaling_min_freq"), "@cpuinfo_min_freq"));
        steps
    }

    fn online_sweep(&mut self) -> Vec<Step> {
        let policy = self.policy();
        let online = format!("cpu{policy}/online");
        let mut steps =
            vec![Step::write(&online, "junk"), Step::write(&online, "0"), Step::write(&online, "1")];
        steps.extend(self.odd_settings(policy));
        steps.extend([Step::write(&online, "0"), Step::write(&online, "1"), Step::Load(LOAD)]);
        // A governor other than the base state's.
        let away = if self.mode.is_setpolicy() { "performance" } else { "powersave" };
        steps.push(Step::write(p(policy, "scaling_governor"), away));
        steps.extend([Step::write(&online, "0"), Step::write(&online, "1")]);
        steps
    }

    /// Settings of a policy that differ from the base state.
    fn odd_settings(&mut self, policy: u32) -> Vec<Step> {
        let core = &self.mode.spec.core[0];
        let mut steps = vec![
            Step::write(p(policy, "scaling_max_freq"), (core.base_mhz * 1000).to_string()),
            Step::write(
                p(policy, "scaling_min_freq"),
                (u32::midpoint(core.efficient_mhz, core.base_mhz) / 100 * 100_000).to_string(),
            ),
        ];
        if self.mode.has_preference() {
            steps.push(Step::write(p(policy, "energy_performance_preference"), "power"));
        }
        steps
    }

    /// Actions of users with which drivers have failed.
    fn scenarios(&mut self) -> Vec<Sequence> {
        if let Some(shape) = &self.mode.shape {
            return speed_select::scenarios(shape);
        }
        let mut all = Vec::new();
        let mut add =
            |name: &str, steps: Vec<Step>| all.push(Sequence { name: format!("scenario.{name}"), steps });
        let policy = self.policy();
        let other = if policy == 1 { 2 } else { 1 };
        let core = &self.mode.spec.core[0];
        let above = (u32::midpoint(core.base_mhz, core.max_mhz) * 1000).to_string();
        let governor = |policy: u32, word: &str| Step::write(p(policy, "scaling_governor"), word);
        let online = |cpu: u32, value: &str| Step::write(format!("cpu{cpu}/online"), value);
        let back = self.mode.governor();

        // Limits of one policy while another policy changes.
        let mut steps = self.odd_settings(policy);
        steps.extend([
            governor(other, "performance"),
            Step::write(p(other, "scaling_max_freq"), &above),
            online(other, "0"),
            online(other, "1"),
            Step::Load(LOAD),
        ]);
        add("neighbour", steps);

        // Limits and preference before and after a change of governor.
        let mut steps = self.odd_settings(policy);
        let away = if self.mode.is_setpolicy() { "performance" } else { "powersave" };
        steps.extend([governor(policy, away), governor(policy, back), governor(policy, away)]);
        steps.push(Step::write(p(policy, "scaling_max_freq"), "@cpuinfo_max_freq"));
        steps.extend([governor(policy, back), Step::Load(LOAD)]);
        add("governor-and-back", steps);

        // A change while the CPU is offline.
        let mut steps = vec![online(policy, "0")];
        steps.extend(self.odd_settings(policy));
        steps.push(Step::write("cpufreq/boost", "0"));
        steps.push(Step::write("intel_pstate/no_turbo", "1"));
        steps.push(Step::write("intel_pstate/max_perf_pct", "70"));
        steps.push(online(policy, "1"));
        steps.push(Step::write("intel_pstate/no_turbo", "0"));
        steps.push(Step::write("intel_pstate/max_perf_pct", "100"));
        steps.push(Step::write("cpufreq/boost", "1"));
        steps.push(Step::Load(LOAD));
        add("changed-while-offline", steps);

        all.extend(self.mode_scenarios(policy));
        all
    }

    /// Scenarios of switches: the driver's mode, boost, turbo.
    fn mode_scenarios(&mut self, policy: u32) -> Vec<Sequence> {
        let mut all = Vec::new();
        let mut add =
            |name: &str, steps: Vec<Step>| all.push(Sequence { name: format!("scenario.{name}"), steps });
        let core = &self.mode.spec.core[0];
        let base = (core.base_mhz * 1000).to_string();
        let above = (u32::midpoint(core.base_mhz, core.max_mhz) * 1000).to_string();
        let governor = |policy: u32, word: &str| Step::write(p(policy, "scaling_governor"), word);
        let online = |cpu: u32, value: &str| Step::write(format!("cpu{cpu}/online"), value);
        let back = self.mode.governor();
        if let Some((path, own)) = self.mode.status() {
            let words: Vec<&str> = self.statuses().iter().copied().filter(|word| *word != own).collect();
            for word in words {
                let mut steps = self.odd_settings(policy);
                steps.push(Step::write(path, word));
                steps.push(Step::write(p(policy, "scaling_max_freq"), &base));
                steps.push(governor(policy, "performance"));
                steps.push(Step::Load(LOAD));
                steps.push(online(policy, "0"));
                steps.push(online(policy, "1"));
                steps.push(Step::write(path, own));
                steps.push(Step::Load(LOAD));
                steps.push(Step::write(p(policy, "scaling_max_freq"), &above));
                add(&format!("mode-{word}-and-back"), steps);
            }
        }
        if self.mode.has_boost() {
            let mut steps =
                vec![Step::write(p(policy, "scaling_max_freq"), &above), Step::write("cpufreq/boost", "0")];
            steps.extend([
                governor(policy, "performance"),
                Step::Load(LOAD),
                online(policy, "0"),
                online(policy, "1"),
            ]);
            steps.extend([Step::write("cpufreq/boost", "1"), Step::Load(LOAD)]);
            steps.push(Step::write(p(policy, "scaling_max_freq"), "@cpuinfo_max_freq"));
            steps.extend([governor(policy, back), Step::Load(LOAD)]);
            add("boost-off-and-on", steps);
        }
        if self.mode.is_intel_pstate() {
            let mut steps = vec![governor(policy, "performance"), Step::write("intel_pstate/no_turbo", "1")];
            steps.extend([Step::Load(LOAD), online(policy, "0"), online(policy, "1")]);
            steps.extend([
                governor(policy, back),
                Step::write("intel_pstate/no_turbo", "0"),
                Step::Load(LOAD),
            ]);
            steps.push(Step::write("intel_pstate/max_perf_pct", "75"));
            steps.push(Step::write(p(policy, "scaling_max_freq"), &base));
            steps.push(Step::write("intel_pstate/max_perf_pct", "100"));
            add("turbo-off-and-on", steps);
        }
        all
    }

    /// A random walk.
    pub fn walk(&mut self, number: usize, length: usize) -> Sequence {
        let mut steps = Vec::new();
        while steps.len() < length {
            let step = self.random_step();
            steps.push(step);
        }
        Sequence { name: format!("walk.{number}"), steps }
    }

    /// One random step.
    pub fn random_step(&mut self) -> Step {
        if let Some(shape) = &self.mode.shape {
            return self.random_call(shape);
        }
        let policy = self.policy();
        loop {
            let step = match self.random.random_range(0..100) {
                0..=15 => Some(Step::write(p(policy, "scaling_max_freq"), self.frequency())),
                16..=29 => Some(Step::write(p(policy, "scaling_min_freq"), self.frequency())),
                30..=32 => Some(Step::write("cpufreq/policy*/scaling_max_freq", self.frequency())),
                33..=34 => Some(Step::write(
                    p(policy, if self.random.random() { "scaling_max_freq" } else { "scaling_min_freq" }),
                    self.choose(REFUSED_NUMBERS),
                )),
                35..=47 => Some(Step::write(p(policy, "scaling_governor"), self.choose(self.governors()))),
                48..=60 => self
                    .mode
                    .has_preference()
                    .then(|| Step::write(p(policy, "energy_performance_preference"), self.preference())),
                61..=67 => self.mode.has_boost().then(|| {
                    let path =
                        if self.random.random() { p(policy, "boost") } else { "cpufreq/boost".to_owned() };
                    Step::write(path, self.choose(&["0", "1"]))
                }),
                68..=74 => self.mode.is_intel_pstate().then(|| match self.random.random_range(0..4) {
                    0 => Step::write("intel_pstate/no_turbo", self.choose(&["0", "1"])),
                    1 => Step::write(
                        "intel_pstate/min_perf_pct",
                        self.random.random_range(0..=100).to_string(),
                    ),
                    2 => Step::write("intel_pstate/hwp_dynamic_boost", self.choose(&["0", "1"])),
                    _ => Step::write(
                        "intel_pstate/max_perf_pct",
                        self.random.random_range(20..=100).to_string(),
                    ),
                }),
                75..=79 => {
                    self.mode.status().map(|(path, _)| Step::write(path, self.choose(self.statuses())))
                }
                80..=87 => Some(Step::write(format!("cpu{policy}/online"), self.choose(&["0", "1", "1"]))),
                88..=93 => (!self.mode.is_setpolicy())
                    .then(|| Step::write(p(policy, "scaling_setspeed"), self.frequency())),
                _ => Some(Step::Load(LOAD)),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    fn choose(&mut self, from: &[&'static str]) -> &'static str {
        from.choose(&mut self.random).copied().unwrap_or_default()
    }

    fn preference(&mut self) -> String {
        if self.random.random_range(0..3) == 0 {
            return self.random.random_range(0..=255).to_string();
        }
        self.choose(self.preferences()).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_sequences() {
        for mode in Mode::all("ryzen-5750g").unwrap().iter().chain(&Mode::all("sst-guide").unwrap()) {
            let all = sequences(mode, 7);
            assert_eq!(all, sequences(mode, 7));
            assert_ne!(all, sequences(mode, 8));
            let steps: usize = all.iter().map(|sequence| sequence.steps.len()).sum();
            assert!((200..700).contains(&steps), "{}: {steps}", mode.name);
            assert!(all.iter().all(|sequence| !sequence.name.contains(' ')));
        }
    }
}
