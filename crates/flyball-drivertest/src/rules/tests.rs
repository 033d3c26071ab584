use super::*;
use crate::record::Answer;

/// amd-pstate in active mode on two of the machine's CPUs, as a kernel leaves it in the base state.
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

/// The rules that do not hold after `step`, which was answered and left this.
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
    seen.answers.push(Answer { path: path.into(), answer: answer.into(), value: value.into() });
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
    // A refused value was taken.
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
    // Boost stayed on.
    let found = broken(Step::write("cpufreq/boost", "0"), |seen| {
        answered(seen, "cpufreq/boost", "0", "ok");
        set(seen, "cpufreq/boost", "0");
        for cpu in 0..4 {
            set(seen, &format!("cpufreq/policy{cpu}/boost"), "0");
        }
    });
    assert_eq!(found, ["amd.boost"]);
    // A CPU came up without a policy.
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
