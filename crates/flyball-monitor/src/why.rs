//! Explains a CPU's frequency: how much each limit cost, from the highest frequency of the hardware
//! down to the CPU's own, with evidence.

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

/// Explains CPUs from samples, given in the order of time. Explains all CPUs, or those in `wanted`.
pub fn explain(
    layout: &Layout,
    facts: &Facts,
    samples: &[Sample],
    wanted: Option<&CpuList>,
) -> Vec<Explanation> {
    let mut account = Account::new(layout);
    match samples {
        // A single sample has limits but no speed.
        [only] => account.add_moment(layout, facts, only),
        _ => samples.windows(2).for_each(|pair| account.add(layout, facts, &pair[0], &pair[1])),
    }
    account.explain(layout, facts, wanted)
}
