//! Statistics for comparing rounds of measurements.
//!
//! Everything here is a pure function of numbers (and of a seed, if chance is involved).
//! Distributions come from `statrs`. The tests are our own, because small numbers of rounds need
//! exact null distributions, ties included, which no available crate has. All of it is checked
//! against SciPy in `tests/measure/scipy.rs`.

mod always;
mod counts;
mod effect;
mod interval;
mod order;
mod paired;
mod pooled;
mod power;
mod trend;
mod unpaired;

/// The median distance of normal values from their median, in standard deviations.
pub const NORMAL_MEDIAN_DISTANCE: f64 = 0.674_489_750_196_081_7;

pub use always::{always_interval, always_p};
pub use counts::fisher;
pub use effect::{cliffs_delta, false_discovery, holm};
pub use interval::{Interval, median_interval};
pub use order::{mean, median, midranks, quantile, standard_deviation};
pub use paired::{SignedRank, hodges_lehmann, signed_rank, walsh_interval};
pub use pooled::{
    Estimate, Groups, LeftOutOne, Pooled, groups, leave_one_out, machines_to_show, next_machine, pooled,
    unweighted,
};
pub use power::{Test, pairs_needed, rounds_needed, rounds_to_show, shift_shown, spread_of_interval};
pub use trend::{Trend, alike, trend};
pub use unpaired::{
    rank_sum, rank_sum_normal, rank_sum_tail, shift, shift_interval, smallest_rank_sum_p, trimmed_t, welch,
};
