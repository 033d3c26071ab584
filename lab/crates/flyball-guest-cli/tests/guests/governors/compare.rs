//! Compares two records of requests: means by phase, time at each frequency, how soon a step is
//! followed, and how often requests change.

use super::{
    decisions::Requests,
    schedule::{self, Phase},
};

/// Mean request from `from` to `to`, ns, kHz.
pub(super) fn mean(requests: &Requests, from: u64, to: u64) -> f64 {
    pieces(requests, from, to).map(|(khz, ns)| f64::from(khz) * ns as f64).sum::<f64>() / (to - from) as f64
}

/// Each frequency requested in an interval, in order, and for how long.
fn pieces(requests: &Requests, from: u64, to: u64) -> impl Iterator<Item = (u32, u64)> + '_ {
    requests.iter().enumerate().filter_map(move |(index, &(at, khz))| {
        let until = requests.get(index + 1).map_or(u64::MAX, |next| next.0);
        let ns = until.min(to).saturating_sub(at.max(from));
        (ns > 0).then_some((khz, ns))
    })
}

/// Distance between two distributions of time over frequencies (the area between the cumulative
/// ones), kHz.
fn distance(a: &Requests, b: &Requests, length: u64) -> f64 {
    let mut shares: Vec<(u32, f64)> = pieces(a, 0, length)
        .map(|(khz, ns)| (khz, ns as f64))
        .chain(pieces(b, 0, length).map(|(khz, ns)| (khz, -(ns as f64))))
        .collect();
    shares.sort_by_key(|share| share.0);
    let mut sum = 0.0;
    let mut area = 0.0;
    for pair in shares.windows(2) {
        sum += pair[0].1;
        area += f64::abs(sum) * f64::from(pair[1].0 - pair[0].0);
    }
    area / length as f64
}

/// Time after `from` at which a request first matches `wanted`, ms; at most up to `to`.
fn until(requests: &Requests, from: u64, to: u64, wanted: impl Fn(u32) -> bool) -> f64 {
    let mut at = from;
    for (khz, ns) in pieces(requests, from, to) {
        if wanted(khz) {
            break;
        }
        at += ns;
    }
    (at - from) as f64 / 1e6
}

/// The results of a trial: the guest's and the simulator's.
#[derive(Debug, Clone, Default)]
pub(super) struct Findings {
    /// Mean request over all CPUs, as a share of the range.
    pub mean: [f64; 2],
    /// Difference of a phase's means, as shares of the range: root mean square, maximum, and the
    /// phase with the maximum.
    pub phases: (f64, f64, String),
    /// Distance between the distributions over frequencies, as a share of the range, mean of all
    /// CPUs.
    pub distance: f64,
    /// CPU 0's step up: ms until its request is within a twentieth of the highest.
    pub up: [f64; 2],
    /// CPU 0's step down: ms until its request is within a twentieth of the lowest.
    pub down: [f64; 2],
    /// Changes per second, all CPUs.
    pub changes: [f64; 2],
}

/// Compares the requests of a guest with those of the simulator.
pub(super) fn compare(
    plan: &[Vec<Phase>],
    range: (u32, u32),
    guest: &[Requests],
    model: &[Requests],
) -> Findings {
    let length = plan[0].iter().map(|phase| phase.ms).sum::<u64>() * 1_000_000;
    let span = f64::from(range.1 - range.0);
    let both = [guest, model];
    let cpus = plan.len() as f64;
    let mut findings = Findings::default();
    let mut squares = (0.0, 0.0);
    for (cpu, phases) in plan.iter().enumerate() {
        for (index, (begin, phase)) in schedule::begins(phases).enumerate() {
            let (from, to) = (begin * 1_000_000, (begin + phase.ms) * 1_000_000);
            let [real, ours] = both.map(|side| mean(&side[cpu], from, to));
            let off = (ours - real) / span;
            squares = (squares.0 + off * off, squares.1 + 1.0);
            if off.abs() > findings.phases.1.abs() {
                findings.phases.1 = off;
                findings.phases.2 = format!(
                    "cpu{cpu} {index}: {}/{} ms, {:.0} for {:.0} MHz",
                    phase.busy_us as f64 / 1000.0,
                    phase.period_us as f64 / 1000.0,
                    ours / 1000.0,
                    real / 1000.0
                );
            }
        }
        findings.distance += distance(&guest[cpu], &model[cpu], length) / span / cpus;
        for (side, requests) in both.iter().enumerate() {
            findings.mean[side] += (mean(&requests[cpu], 0, length) - f64::from(range.0)) / span / cpus;
            findings.changes[side] += (requests[cpu].len() - 1) as f64 / (length as f64 / 1e9);
        }
    }
    findings.phases.0 = f64::sqrt(squares.0 / squares.1);
    // CPU 0's first three phases: idle, busy, idle.
    let [rest, busy, after] = [0, 1, 2].map(|index| plan[0][index].ms * 1_000_000);
    let (high, low) = (range.1 - (span * 0.05) as u32, range.0 + (span * 0.05) as u32);
    findings.up = both.map(|side| until(&side[0], rest, rest + busy, |khz| khz >= high));
    findings.down = both.map(|side| until(&side[0], rest + busy, rest + busy + after, |khz| khz <= low));
    findings
}
