//! Requests over time, from a guest's register log and from a simulated machine's registers.

use std::time::Duration;

use flyball_silicon::{Activity, MachineSpec, msr, spec::Vendor};
use flyball_sim::{CpuWork, Load, SimMachine, Step};

use super::{
    SETTLE_MS,
    schedule::{self, Phase},
};

/// A CPU's requests: start time, ns after the schedule's start, and frequency, kHz. The first
/// starts at time 0.
pub(super) type Requests = Vec<(u64, u32)>;

/// When a trial started, ns of guest time, and each CPU's requests.
pub(super) type Trace = (u64, Vec<Requests>);

/// Converts values of a request register to frequencies.
pub(super) struct Decoder {
    pub register: u32,
    p_states: Vec<u32>,
    /// Frequency of one performance level, kHz.
    level: f64,
    /// Lowest and highest frequency of a request, kHz.
    pub range: (u32, u32),
}

impl Decoder {
    pub(super) fn new(spec: &MachineSpec, driver: &str) -> Decoder {
        let core = &spec.core[0];
        let p_states = spec.firmware.pstates_mhz.clone();
        let (lowest, highest) = (core.min_mhz * 1000, core.max_mhz * 1000);
        let amd = spec.identity.vendor == Vendor::Amd;
        let (register, level, range) = match driver {
            "acpi-cpufreq" => {
                let (high, low) = (p_states[0], p_states[p_states.len() - 1]);
                (0xc001_0062, 0.0, (low * 1000, high * 1000))
            }
            _ if amd => {
                let level = f64::from(core.base_mhz) * 1000.0 / f64::from(core.perf.nominal);
                (msr::AMD_CPPC_REQ, level, ((f64::from(core.perf.efficient) * level) as u32, highest))
            }
            _ if driver.ends_with("no_hwp") => (msr::PERF_CTL, 100_000.0, (lowest, highest)),
            _ => (msr::HWP_REQUEST, 100_000.0, (lowest, highest)),
        };
        Decoder { register, p_states, level, range }
    }

    /// The frequency that a value requests, kHz.
    pub(super) fn khz(&self, value: u64) -> u32 {
        let level = match self.register {
            // The desired level, or the minimum if the firmware chooses.
            msr::AMD_CPPC_REQ | msr::HWP_REQUEST => {
                let (least, desired) = match self.register {
                    msr::AMD_CPPC_REQ => (value >> 8 & 0xff, value >> 16 & 0xff),
                    _ => (value & 0xff, value >> 16 & 0xff),
                };
                least.max(desired)
            }
            msr::PERF_CTL => value >> 8 & 0xff,
            _ => return self.p_states.get((value & 7) as usize).copied().unwrap_or(0) * 1000,
        };
        (level as f64 * self.level) as u32
    }

    /// Returns the requests of each trial and CPU in a register log. A rejected write to `mark`
    /// starts a trial.
    pub(super) fn of_log(&self, log: &str, mark: u32, cpus: u32, length_ns: u64) -> Vec<Trace> {
        let (mark, register) = (format!("{mark:#x}"), format!("{:#x}", self.register));
        let mut present = vec![0; cpus as usize];
        let mut trials: Vec<Trace> = Vec::new();
        for line in log.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [time, cpu, "wrmsr", name, value, rest @ ..] = &words[..] else { continue };
            let (Some(at), Some(cpu)) = (nanoseconds(time), cpu.strip_prefix("cpu")) else { continue };
            let Ok(cpu) = cpu.parse::<usize>() else { continue };
            if *name == mark && *rest == ["refused"] {
                trials.push((at, present.iter().map(|khz| vec![(0, *khz)]).collect()));
            } else if *name == register && rest.is_empty() && cpu < present.len() {
                let value = u64::from_str_radix(value.trim_start_matches("0x"), 16).unwrap_or(0);
                present[cpu] = self.khz(value);
                // Within a turn, the CPUs' writes are not in order of time.
                if let Some((begin, requests)) = trials.last_mut()
                    && at.saturating_sub(*begin) < length_ns
                {
                    push(&mut requests[cpu], at.saturating_sub(*begin), present[cpu]);
                }
            }
        }
        trials
    }

    /// Plays a guest's busy times on a simulated machine: [`SETTLE_MS`] without recording, then the
    /// schedule.
    pub(super) fn of_machine(
        &self,
        machine: &mut SimMachine,
        plan: &[Vec<Phase>],
        busy: Vec<Vec<u32>>,
    ) -> Vec<Requests> {
        let (begin, steps) = (machine.now().as_nanos() as u64, busy[0].len() as u64);
        let pulses = plan.iter().map(|phases| schedule::pulses(phases)).collect();
        machine.run(Some(Box::new(ReplayedLoad { begin, busy, pulses })));
        let mut requests = vec![Requests::new(); plan.len()];
        for step in 0..=steps {
            if let Some(ms) = step.checked_sub(SETTLE_MS) {
                for (cpu, requests) in requests.iter_mut().enumerate() {
                    let value = machine.silicon().read_msr(cpu, self.register).unwrap_or(0);
                    push(requests, ms * 1_000_000, self.khz(value));
                }
            }
            machine.advance(Duration::from_millis(1));
        }
        machine.run(None);
        requests
    }
}

fn push(requests: &mut Requests, at: u64, khz: u32) {
    if requests.last().is_none_or(|last| last.1 != khz) {
        requests.push((at, khz));
    }
}

/// Parses seconds with nine decimals as nanoseconds.
fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, rest) = text.split_once('.')?;
    Some(seconds.parse::<u64>().ok()? * 1_000_000_000 + rest.parse::<u64>().ok()?)
}

/// How long each CPU was busy in each millisecond of a trial and of the [`SETTLE_MS`] before it,
/// ns, from the silicon log: `[cpu][ms]`.
pub(super) fn busy(silicon_log: &str, begin_ns: u64, cpus: usize, length_ns: u64) -> Vec<Vec<u32>> {
    const MS: u32 = 1_000_000;
    let first = (begin_ns / u64::from(MS)).saturating_sub(SETTLE_MS);
    let count = (length_ns / u64::from(MS) + SETTLE_MS) as usize;
    let mut busy = vec![vec![0u32; count]; cpus];
    let mut last = 0;
    for line in silicon_log.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let ms = words[0].split('.').next().and_then(|ms| ms.parse::<u64>().ok()).unwrap_or(0);
        let from = std::mem::replace(&mut last, ms);
        let Some(index) = from.checked_sub(first).map(|index| index as usize) else { continue };
        // Columns before the CPUs' pairs: the time, and two for each package (these machines have
        // one).
        for (cpu, busy) in busy.iter_mut().enumerate() {
            let mut ns = words.get(4 + 2 * cpu).and_then(|word| word.parse::<u32>().ok()).unwrap_or(0);
            for slot in busy.iter_mut().skip(index) {
                let part = ns.min(MS - *slot);
                *slot += part;
                ns -= part;
                if ns == 0 {
                    break;
                }
            }
        }
    }
    busy
}

/// A guest's busy times as a simulated load: the log gives the times, and the schedule decides
/// whether the load or the kernel used them.
struct ReplayedLoad {
    begin: u64,
    busy: Vec<Vec<u32>>,
    pulses: Vec<Vec<(u64, u64)>>,
}

impl Load for ReplayedLoad {
    fn step(&mut self, step: &Step<'_>, work: &mut [CpuWork]) {
        let end = step.now_ns.saturating_sub(self.begin);
        let index = (end.saturating_sub(1) / 1_000_000) as usize;
        for ((busy, pulses), work) in self.busy.iter().zip(&self.pulses).zip(work) {
            let ns = busy.get(index).copied().unwrap_or(0);
            let gap = busy.iter().skip(index + 1).take(1000).take_while(|next| **next == 0).count();
            // The load runs slightly behind the schedule.
            let index = (index as u64).saturating_sub(SETTLE_MS);
            let next = pulses.partition_point(|pulse| pulse.1 <= index.saturating_sub(1) * 1000);
            work.kernel = index > 0 && pulses.get(next).is_none_or(|pulse| pulse.0 >= (index + 1) * 1000);
            work.activity = Activity::partly(ns, u16::from(ns < 1_000_000), 0);
            work.gap_us = (1_000_000 - ns) / 1000 + 1000 * gap as u32;
        }
    }
}
