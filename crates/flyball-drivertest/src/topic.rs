//! What is tested. A topic is one file below topic/ and one line in [`TOPICS`].

mod behaviour;
mod contract;
mod difference;
mod lifecycle;

pub use behaviour::Thresholds;

use crate::{
    boots::{Boots, CannotTell, Ended},
    guests::Seen,
    mode::Mode,
    report::Test,
    saved::Saved,
    step::Sequence,
};

/// A part of the suite, run on each mode.
pub trait Topic: Sync {
    /// The word of `--only`.
    fn name(&self) -> &'static str;

    /// What it tests, in a line.
    fn about(&self) -> &'static str;

    /// Whether a suite without `--only` runs it.
    fn is_default(&self, _bench: &Bench<'_>) -> bool {
        true
    }

    /// Whether it can be run in this mode.
    fn applies(&self, _mode: &Mode) -> bool {
        true
    }

    /// Options of the kernel's configuration that it needs besides the mode's.
    fn options(&self) -> &'static [&'static str] {
        &[]
    }

    /// Runs it. What could not be judged is an error: the suite then ends with 125.
    fn run(&self, bench: &Bench<'_>, mode: &Mode) -> Result<Vec<Test>, CannotTell>;
}

/// Every topic, in the order in which they run.
pub const TOPICS: &[&dyn Topic] =
    &[&contract::Contract, &lifecycle::Lifecycle, &difference::Difference, &behaviour::Behaviour];

/// What a topic has to work with.
pub struct Bench<'a> {
    /// The kernel that is tested.
    pub kernel: &'a dyn Boots,
    /// The kernel that it is compared with.
    pub baseline: Option<&'a dyn Boots>,
    /// Recorded behaviour that it is compared with.
    pub against: Option<&'a Saved>,
    /// Of sequences, the silicon and the guest.
    pub seed: u64,
    /// Failures are shown with the shortest sequence that can be found.
    pub shrinks: bool,
    /// What may change from the baseline.
    pub thresholds: Option<&'a Thresholds>,
    /// Gets the recorded behaviour of the tested kernel.
    pub save: Option<&'a (dyn Fn(crate::saved::ModeRecord) + Sync)>,
}

/// How the result of a kernel without any driver begins.
const NO_DRIVER: &str = "scaling_driver reads none";

/// Whether a test failed because the kernel has no driver at all, which may be its configuration's fault.
pub fn has_no_driver(test: &Test) -> bool {
    test.name == "driver" && test.details.first().is_some_and(|line| line.starts_with(NO_DRIVER))
}

/// [`driver_test`] of guests that share the work.
fn driver_of_all(mode: &Mode, seen: &Seen) -> Test {
    match seen.parts.first() {
        Some(part) => driver_test(mode, &part.ended),
        None => Test::skip("driver", "nothing was run"),
    }
}

/// Checks that the mode came up as it should: a driver that does not is a failure of the kernel, not of the test.
fn driver_test(mode: &Mode, ended: &Ended) -> Test {
    let boot = ended.record();
    let base = boot.runs.first().and_then(|run| run.observations.first());
    let found = base
        .and_then(|base| base.policies().first().and_then(|policy| base.policy(*policy, "scaling_driver")));
    let wanted = mode.scaling_driver();
    if found == Some(wanted) {
        return Test::pass("driver");
    }
    let found = found.unwrap_or("none");
    Test::fail(
        "driver",
        vec![format!("scaling_driver reads {found} instead of {wanted}"), ended.last_words()],
    )
}

/// The sequence and step of a number of `step::script`; `None` for the return to the base state.
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
