//! The loads of a comparison: phases of periodic pulses on each CPU, each with a period and a busy
//! time.

/// Number of CPUs under load.
pub(super) const CPUS: u32 = 4;

/// A phase with one kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Phase {
    /// Duration, ms.
    pub ms: u64,
    /// Time from one pulse to the next, us.
    pub period_us: u64,
    /// Length of a pulse, us. Equal to the period for a load without gaps.
    pub busy_us: u64,
}

const fn phase(ms: u64, period_us: u64, busy_us: u64) -> Phase {
    Phase { ms, period_us, busy_us }
}

/// The phases with their start times, ms.
pub(super) fn begins(phases: &[Phase]) -> impl Iterator<Item = (u64, Phase)> + '_ {
    phases.iter().scan(0, |at, phase| {
        let begin = *at;
        *at += phase.ms;
        Some((begin, *phase))
    })
}

/// The pulses of a CPU: start and end, us after the schedule's start.
pub(super) fn pulses(phases: &[Phase]) -> Vec<(u64, u64)> {
    let mut pulses: Vec<(u64, u64)> = Vec::new();
    for (begin, phase) in begins(phases) {
        let (begin, end) = (begin * 1000, (begin + phase.ms) * 1000);
        let mut at = begin;
        while phase.busy_us > 0 && at < end {
            let to = (at + phase.busy_us).min(end);
            match pulses.last_mut() {
                Some(last) if last.1 == at => last.1 = to,
                _ => pulses.push((at, to)),
            }
            at += phase.period_us;
        }
    }
    pulses
}

/// The phases of every CPU, from a seed: CPU 0 has a full step up and down and then a staircase,
/// CPUs 1 and 2 random phases, CPU 3 little load and full load at the end. All have the same total
/// length. Periods are not multiples of the tick's 4 ms: otherwise samples would fall into every
/// pulse or into none, by chance.
pub(super) fn schedule(seed: u64) -> Vec<Vec<Phase>> {
    let stair = [10, 30, 50, 70, 90].map(|percent| phase(260, 21_300, percent * 213));
    let mut first = vec![phase(200, 1000, 0), phase(500, 1000, 1000), phase(500, 1000, 0)];
    first.extend(stair);
    let length: u64 = first.iter().map(|phase| phase.ms).sum();
    let last = vec![phase(length - 800, 97_000, 3000), phase(400, 1000, 1000), phase(400, 4700, 1400)];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = |n: u64| {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    };
    let mut drawn = || {
        let mut phases = vec![phase(100, 1000, 0)];
        let mut left = length - 100;
        while left > 0 {
            let ms = (150 + 50 * draw(8)).min(left);
            let ms = if left - ms < 150 { left } else { ms };
            let period = [2_300, 5_300, 9_700, 21_300, 47_000, 97_000][draw(6) as usize];
            let percent = [0, 5, 10, 20, 30, 45, 60, 75, 80, 90, 100][draw(11) as usize];
            phases.push(phase(ms, period, period * percent / 100));
            left -= ms;
        }
        phases
    };
    let (second, third) = (drawn(), drawn());
    vec![first, second, third, last]
}
