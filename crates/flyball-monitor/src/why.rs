//! From the highest frequency of the hardware to the one that a CPU had: what took how much of it,
//! with evidence.

mod account;
mod attribution;
mod awake;
mod explanation;
mod package;

use flyball_host::CpuList;

pub use self::{
    account::Account,
    explanation::{Explanation, Step},
};
use crate::{Facts, Layout, Sample};

/// Explains the CPUs of a run of samples, the earliest first: all of them, or those in `wanted`.
pub fn explain(
    layout: &Layout,
    facts: &Facts,
    samples: &[Sample],
    wanted: Option<&CpuList>,
) -> Vec<Explanation> {
    let mut account = Account::new(layout);
    match samples {
        // A single sample has limits and no speed: it is compared with itself.
        [only] => account.add_moment(layout, facts, only),
        _ => samples.windows(2).for_each(|pair| account.add(layout, facts, &pair[0], &pair[1])),
    }
    account.explain(layout, facts, wanted)
}
