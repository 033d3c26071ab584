use super::*;
use crate::record::Answer;

/// amd-pstate in active mode on two of the machine's CPUs, in the base state.
fn good() -> Observation {
    let mut seen = Observation::default();
    for cpu in 0..4 {
        let mut put = |name: &str, value: &str| {
            seen.attributes.insert(format!("cpufreq/policy{cpu}/{name}"), value.to_owned());
        };
        put("affected_cpus", &cpu.to_string());
        put("amd_pstate_highest_perf", "166");
        put("amd_pstate_max_freq", "4680000");
        put("amd_pstate_lowest_nonlinear_freq", "1099000");
        put("boost", "1");
        put("cpuinfo_max_freq", "4680000");
        put("cpuinfo_min_freq", "400000");
        put("energy_performance_preference", "balance_performance");
        put("scaling_available_governors", "performance powersave");
        put("scaling_driver", "amd-pstate-epp");
        put("scaling_governor", "powersave");
        put("scaling_max_freq", "4680000");
        put("scaling_min_freq", "400000");
        seen.registers.insert((cpu, "0xc00102b3".into()), 0x8000_0fa6);
        if cpu > 0 {
            seen.attributes.insert(format!("cpu{cpu}/online"), "1".into());
        }
    }
    seen.registers.insert((0, "0xc00102b1".into()), 1);
    seen.attributes.insert("amd_pstate/status".into(), "active".into());
    seen.attributes.insert("cpufreq/boost".into(), "1".into());
    seen
}

/// The rules that are violated after `step` if `change` is what happened.
fn broken(step: Step, change: impl Fn(&mut Observation)) -> Vec<String> {
    let mode = &Mode::all("ryzen-5750g").unwrap()[0];
    let mut after = good();
    change(&mut after);
    let sequence = Sequence { name: "a".into(), steps: vec![step] };
    let runs = [Run { name: "a".into(), observations: vec![good(), after] }];
    let mut ids: Vec<String> =
        check(mode, &[sequence], &runs).into_iter().map(|violation| violation.rule).collect();
    ids.dedup();
    ids
}

fn set(seen: &mut Observation, path: &str, value: &str) {
    seen.attributes.insert(path.into(), value.into());
}

fn answered(seen: &mut Observation, path: &str, value: &str, answer: &str) {
    seen.answers.push(Answer { path: path.into(), answer: answer.into(), value: value.into(), returned: 0 });
}

#[test]
fn every_rule_has_a_name_and_a_source() {
    let mut ids: Vec<&str> = rules().map(|rule| rule.id).collect();
    assert!(rules().all(|rule| rule.id.contains('.') && rule.about.len() > 20 && rule.source.len() > 15));
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
}

#[test]
fn a_good_driver_breaks_no_rule() {
    assert!(broken(Step::Load(5), |_| ()).is_empty());
    let max = "cpufreq/policy1/scaling_max_freq";
    let good = broken(Step::write(max, "3300000"), |seen| {
        answered(seen, max, "3300000", "ok");
        set(seen, max, "3300000");
        seen.registers.insert((1, "0xc00102b3".into()), 0x8000_0f75);
    });
    assert!(good.is_empty(), "{good:?}");
}

#[test]
fn bugs_of_the_past_break_rules() {
    let max = "cpufreq/policy1/scaling_max_freq";
    let preference = "cpufreq/policy1/energy_performance_preference";
    let request = |seen: &mut Observation, cpu: u32, value: u64| {
        seen.registers.insert((cpu, "0xc00102b3".into()), value);
    };
    // The limit did not arrive.
    let found = broken(Step::write(max, "3300000"), |seen| {
        answered(seen, max, "3300000", "ok");
        set(seen, max, "3300000");
    });
    assert_eq!(found, ["amd.maximum"]);
    // It arrived at another CPU.
    let found = broken(Step::write(max, "3300000"), |seen| {
        answered(seen, max, "3300000", "ok");
        set(seen, max, "3300000");
        request(seen, 2, 0x8000_0f75);
    });
    assert_eq!(found, ["policy.own-cpus-only", "amd.maximum"]);
    // It was not kept.
    let found = broken(Step::write(max, "3300000"), |seen| answered(seen, max, "3300000", "ok"));
    assert_eq!(found, ["policy.limits-as-asked"]);
    // An invalid value was accepted.
    let found = broken(Step::write(preference, "junk"), |seen| {
        answered(seen, preference, "junk", "EINVAL");
        request(seen, 1, 0xff00_0fa6);
    });
    assert_eq!(found, ["policy.refused-changes-nothing", "amd.preference"]);
    // Desired performance was left from passive mode.
    let found = broken(Step::Load(5), |seen| request(seen, 3, 0x8042_0fa6));
    assert_eq!(found, ["amd.autonomous"]);
    // Minimum and maximum were swapped.
    let found = broken(Step::Load(5), |seen| request(seen, 3, 0x8000_a60f));
    assert_eq!(found, ["amd.fields-ordered", "amd.maximum", "amd.minimum"]);
    // Boost remained on.
    let found = broken(Step::write("cpufreq/boost", "0"), |seen| {
        answered(seen, "cpufreq/boost", "0", "ok");
        set(seen, "cpufreq/boost", "0");
        for cpu in 0..4 {
            set(seen, &format!("cpufreq/policy{cpu}/boost"), "0");
        }
    });
    assert_eq!(found, ["amd.boost"]);
    // A CPU came online without a policy.
    let found = broken(Step::write("cpu1/online", "1"), |seen| {
        answered(seen, "cpu1/online", "1", "ok");
        seen.attributes.retain(|path, _| !path.starts_with("cpufreq/policy1/"));
    });
    assert_eq!(found, ["policy.has-governor"]);
    // The silicon runs above the limit.
    let found = broken(Step::Load(5), |seen| {
        set(seen, max, "2000000");
        request(seen, 1, 0x8000_0f47);
        seen.load.insert(1, crate::record::Busy { lowest: 2_000_000, highest: 4_400_000 });
    });
    assert!(found.contains(&"policy.limits-as-asked".to_owned()), "{found:?}");
}

/// Returns whether policy.limits-as-asked fails if scaling_max_freq of sst-guide's policy1 reads
/// `now` after `asked` was written. `mode` is NAME, or NAME:STATUS if a sequence has changed the
/// driver's status.
fn maximum_fails(mode: &str, asked: &str, now: &str, percent: &str) -> bool {
    let modes = Mode::all("sst-guide").unwrap();
    let own = if mode.contains("passive") { "passive" } else { "active" };
    let (name, status) = mode.split_once(':').unwrap_or((mode, own));
    let mode = modes.iter().find(|found| found.name == name).unwrap();
    let max = "cpufreq/policy1/scaling_max_freq";
    let seen = |now: &str| {
        let mut seen = Observation::default();
        for (name, value) in [
            ("affected_cpus", "1"),
            ("cpuinfo_max_freq", "3200000"),
            ("cpuinfo_min_freq", "800000"),
            ("scaling_governor", mode.governor()),
            ("scaling_max_freq", now),
            ("scaling_min_freq", "800000"),
        ] {
            set(&mut seen, &format!("cpufreq/policy1/{name}"), value);
        }
        set(&mut seen, "intel_pstate/max_perf_pct", percent);
        set(&mut seen, "intel_pstate/status", status);
        seen
    };
    let mut after = seen(now);
    answered(&mut after, max, asked, "ok");
    let sequence = Sequence { name: "a".into(), steps: vec![Step::write(max, asked)] };
    let runs = [Run { name: "a".into(), observations: vec![seen("3200000"), after] }];
    check(mode, &[sequence], &runs).iter().any(|violation| violation.rule == "policy.limits-as-asked")
}

/// What intel_pstate does to a limit besides clamping it.
#[test]
fn limits_of_intel_pstate() {
    // Percentages are limits in passive mode only.
    assert!(!maximum_fails("intel_pstate=passive", "3000000", "2656000", "83"));
    assert!(!maximum_fails("intel_pstate=passive", "3000000", "3000000", "83"));
    assert!(maximum_fails("intel_pstate=passive", "3000000", "2656000", "100"));
    assert!(maximum_fails("intel_pstate=active", "3000000", "2656000", "83"));
    assert!(!maximum_fails("intel_pstate=active:passive", "3000000", "2656000", "83"));
    assert!(maximum_fails("intel_pstate=passive:active", "3000000", "2656000", "83"));
    // A limit in the range of turbo, without HWP.
    assert!(!maximum_fails("intel_pstate=active,hwp-off", "2600000", "3200000", "100"));
    assert!(maximum_fails("intel_pstate=active,hwp-off", "2500000", "3200000", "100"));
    assert!(maximum_fails("intel_pstate=active", "2600000", "3200000", "100"));
}

/// 0 selects the lowest frequency that saves energy; no other limit does.
#[test]
fn the_lowest_limit_of_amd_pstate_may_be_the_lowest_non_linear() {
    let min = "cpufreq/policy1/scaling_min_freq";
    let breaks = |asked: &str| {
        broken(Step::write(min, asked), |seen| {
            answered(seen, min, asked, "ok");
            set(seen, min, "1099000");
            seen.registers.insert((1, "0xc00102b3".into()), 0x8000_27a6);
        })
    };
    assert!(breaks("0").is_empty());
    assert_eq!(breaks("1"), ["policy.limits-as-asked"]);
}

/// In active mode without HWP requests follow load, even if a passive-mode sequence switches to it.
#[test]
fn active_mode_without_hwp_asks_by_load() {
    let modes = Mode::all("sst-guide").unwrap();
    let mode = modes.iter().find(|mode| mode.name == "intel_pstate=passive,hwp-off").unwrap();
    let is_steady = |status: &str| {
        let mut seen = Observation::default();
        set(&mut seen, "intel_pstate/status", status);
        set(&mut seen, "cpufreq/policy1/affected_cpus", "1");
        set(&mut seen, "cpufreq/policy1/scaling_governor", "powersave");
        has_steady_request(mode, &seen, 1, "0x199")
    };
    assert!(is_steady("passive") && !is_steady("active"));
}

/// All cores of Sandy Bridge run at the highest request of one.
#[test]
fn cores_may_share_a_clock() {
    let fails = |machine: &str| {
        let modes = Mode::all(machine).unwrap();
        let mode = modes.iter().find(|found| found.name == "acpi-cpufreq").unwrap();
        let mut seen = Observation::default();
        for (policy, max) in [(0, "3000000"), (2, "2000000")] {
            for (name, value) in [
                ("affected_cpus", policy.to_string()),
                ("cpuinfo_max_freq", "3400000".to_owned()),
                ("scaling_governor", "performance".to_owned()),
                ("scaling_max_freq", max.to_owned()),
            ] {
                set(&mut seen, &format!("cpufreq/policy{policy}/{name}"), &value);
            }
        }
        let mut after = seen.clone();
        after.load.insert(2, crate::record::Busy { lowest: 3_000_000, highest: 3_000_000 });
        let sequence = Sequence { name: "a".into(), steps: vec![Step::Load(5)] };
        let runs = [Run { name: "a".into(), observations: vec![seen, after] }];
        check(mode, &[sequence], &runs).iter().any(|violation| violation.rule == "silicon.maximum")
    };
    assert!(fails("ryzen-5750g") && !fails("i7-2600"));
}

#[test]
fn the_base_state_comes_back() {
    let mode = &Mode::all("ryzen-5750g").unwrap()[0];
    let mut other = good();
    set(&mut other, "cpufreq/policy1/scaling_max_freq", "4000000");
    other.registers.insert((1, "0xc00102b3".into()), 0x8000_0f8e);
    let sequence = Sequence { name: "a".into(), steps: vec![] };
    let run = |observation| Run { name: "a".into(), observations: vec![observation] };
    let found = check(mode, &[sequence.clone(), sequence], &[run(good()), run(other)]);
    let base = found.iter().find(|violation| violation.rule == "policy.base-state").unwrap();
    assert_eq!((base.sequence, base.step, base.details.len()), (1, None, 2));
}
