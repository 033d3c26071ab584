//! The topics of tests. Each is one file below topic/ and one line in [`TOPICS`].

mod behaviour;
mod contract;
mod difference;
mod lifecycle;
mod selftests;

pub use behaviour::Thresholds;
pub use lifecycle::harmless_events;

use crate::{
    boots::{Boots, CannotTell, Ended},
    guests::Seen,
    mode::{Kind, Mode},
    record::Observation,
    report::Test,
    saved::Saved,
    step::Sequence,
};

/// A part of the suite, run on each mode.
pub trait Topic: Sync {
    /// The word for `--only`.
    fn name(&self) -> &'static str;

    /// What it tests, in a line.
    fn about(&self) -> &'static str;

    /// Returns whether a suite without `--only` runs it.
    fn is_default(&self, _bench: &Bench<'_>) -> bool {
        true
    }

    /// Returns whether it can run in this mode.
    fn applies(&self, _mode: &Mode) -> bool {
        true
    }

    /// Kernel configuration options that it needs in addition to the mode's.
    fn options(&self) -> &'static [&'static str] {
        &[]
    }

    /// Runs the topic. An error means that it could not be judged; the suite then ends with 125.
    fn run(&self, bench: &Bench<'_>, mode: &Mode) -> Result<Vec<Test>, CannotTell>;
}

/// Every topic, in the order in which they run.
pub const TOPICS: &[&dyn Topic] = &[
    &contract::Contract,
    &lifecycle::Lifecycle,
    &selftests::SelfTests,
    &difference::Difference,
    &behaviour::Behaviour,
];

/// The inputs of a topic.
pub struct Bench<'a> {
    /// The kernel that is tested.
    pub kernel: &'a dyn Boots,
    /// The kernel to compare with.
    pub baseline: Option<&'a dyn Boots>,
    /// Recorded behaviour to compare with.
    pub against: Option<&'a Saved>,
    /// Seed of sequences, silicon and guest.
    pub seed: u64,
    /// True to show failures with the shortest sequence that can be found.
    pub shrinks: bool,
    /// Allowed changes from the baseline.
    pub thresholds: Option<&'a Thresholds>,
    /// Receives the recorded behaviour of the tested kernel.
    pub save: Option<&'a (dyn Fn(crate::saved::ModeRecord) + Sync)>,
}

/// The seed of the baseline's guests if the tested kernel's is `seed`. They differ, so that random
/// differences also appear between a kernel and itself.
fn of_baseline(seed: u64) -> u64 {
    seed.wrapping_add(1000)
}

/// Start of the result of a kernel without any driver.
const NO_DRIVER: &str = "scaling_driver reads none";

const NO_DEVICE: &str = "there is no /dev/isst_interface, or it does not answer";

/// Returns whether a test failed because the kernel has no driver at all, possibly because of its
/// configuration.
pub fn has_no_driver(test: &Test) -> bool {
    let lacks = |line: &String| line.starts_with(NO_DRIVER) || line == NO_DEVICE;
    test.name == "driver" && test.details.first().is_some_and(lacks)
}

/// [`driver_test`] for several guests.
pub(crate) fn driver_of_all(mode: &Mode, seen: &Seen) -> Test {
    match seen.parts.first() {
        Some(part) => driver_test(mode, &part.ended),
        None => Test::skip("driver", "nothing was run"),
    }
}

/// Checks that the mode was entered: a driver that does not bind is a failure of the kernel, not of
/// the test.
fn driver_test(mode: &Mode, ended: &Ended) -> Test {
    let boot = ended.record();
    let base = boot.runs.first().and_then(|run| run.observations.first());
    if mode.shape.is_some() {
        let answers = |base: &Observation| base.attributes.keys().any(|path| path.starts_with("isst/"));
        return if base.is_some_and(answers) {
            Test::pass("driver")
        } else {
            Test::fail("driver", vec![NO_DEVICE.to_owned(), ended.last_words()])
        };
    }
    let found = base
        .and_then(|base| base.policies().first().and_then(|policy| base.policy(*policy, "scaling_driver")));
    let wanted = mode.scaling_driver();
    // IA32_PM_ENABLE distinguishes the two modes, which have one name.
    let has_hwp = base.and_then(|base| base.register(0, "0x770")).is_some_and(|on| on & 1 == 1);
    if has_hwp && matches!(mode.kind, Kind::IntelActiveNoHwp | Kind::IntelPassiveNoHwp) {
        return Test::fail("driver", vec!["the driver has switched HWP on".to_owned(), ended.last_words()]);
    }
    if found == Some(wanted) {
        return Test::pass("driver");
    }
    let found = found.unwrap_or("none");
    Test::fail(
        "driver",
        vec![format!("scaling_driver reads {found} instead of {wanted}"), ended.last_words()],
    )
}

/// The sequence and step with this number in `step::script`; `None` for the return to the base
/// state.
pub(crate) fn locate(sequences: &[Sequence], number: u32) -> Option<(usize, Option<usize>)> {
    let mut left = number.checked_sub(1)? as usize;
    for (index, sequence) in sequences.iter().enumerate() {
        if left <= sequence.steps.len() {
            return Some((index, left.checked_sub(1)));
        }
        left -= sequence.steps.len() + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::Step;

    #[test]
    fn topics_have_names() {
        let mut names: Vec<&str> = TOPICS.iter().map(|topic| topic.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TOPICS.len());
    }

    #[test]
    fn a_mode_without_hwp_has_none() {
        let modes = Mode::all("sst-guide").unwrap();
        let good = |name: &str, registers: &str| {
            let mode = modes.iter().find(|mode| mode.name == name).unwrap();
            let output = format!(
                "seq a\ns 1\no\ncpufreq/policy0/scaling_governor:performance\ncpufreq/policy0/scaling_driver:{}\n.\nend\n",
                mode.scaling_driver()
            );
            driver_test(mode, &Ended { output, registers: registers.to_owned(), ..Ended::default() })
                .is_good()
        };
        let on = "0.1 cpu0 wrmsr 0x770 0x1\n1.0 mark 1\n";
        assert!(good("intel_pstate=passive", on) && !good("intel_pstate=passive,hwp-off", on));
        assert!(good("intel_pstate=passive,hwp-off", "") && !good("intel_pstate=active,hwp-off", on));
    }

    #[test]
    fn numbers_are_steps() {
        let sequence = |count| Sequence { name: "a".into(), steps: vec![Step::Load(1); count] };
        let all = [sequence(2), sequence(0), sequence(1)];
        let found: Vec<_> = (0..8).map(|number| locate(&all, number)).collect();
        let at = |index, step| Some((index, step));
        assert_eq!(
            found,
            [
                None,
                at(0, None),
                at(0, Some(0)),
                at(0, Some(1)),
                at(1, None),
                at(2, None),
                at(2, Some(0)),
                None
            ]
        );
    }
}
