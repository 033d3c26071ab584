//! The probe measures how long a sleeping CPU takes to run a woken thread, by idle state.
//!
//! A thread pinned to one CPU sleeps. A thread on another CPU wakes it (futex), or its own timer
//! does. The sleeping CPU's counters are read before and after each wake-up. A wake-up counts for a
//! state only if the CPU left that state once and no other.

mod here;

use std::time::Duration;

use flyball_control::{CoreType, Cpu, Topology};
use flyball_host::{
    CpuList, Host, Kind,
    cpuidle::{self, IdleState},
};

use crate::WakeError;

/// How the sleeping CPU is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WakeBy {
    /// A thread on another CPU wakes the sleeping one.
    Futex,
    /// A timer of the sleeping CPU ends the sleep.
    Timer,
}

/// Position of the waking CPU relative to the sleeping one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distance {
    /// The waking CPU is the other thread of the core.
    Sibling,
    Package,
    OtherPackage,
    /// A timer needs no other CPU.
    Itself,
}

/// The median latency of each state from a probe's report. The kernel's own path is subtracted if
/// it was measured with the latency limit held.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
pub struct Measured {
    rows: Vec<MeasuredRow>,
    path: Option<MeasuredPath>,
}

#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
struct MeasuredRow {
    state: String,
    exit_latency_us: Option<u64>,
    distance: Distance,
    p50_us: f64,
}

#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
struct MeasuredPath {
    is_held: bool,
    p50_us: f64,
}

impl Measured {
    /// Returns the exit latency of a state, us, if the report has it. With several kinds of cores,
    /// the slowest counts.
    pub(crate) fn exit_us(&self, state: &IdleState) -> Option<f64> {
        if state.latency_us == 0 {
            // POLL has no exit: its whole latency is the kernel's path.
            return None;
        }
        let rows = |distance: Option<Distance>| {
            let of = self.rows.iter().filter(move |row| {
                // A state of this name with another latency is from another machine.
                (&row.state, row.exit_latency_us) == (&state.name, Some(state.latency_us))
                    && distance.is_none_or(|distance| row.distance == distance)
            });
            of.map(|row| row.p50_us).reduce(f64::max)
        };
        let path = self.path.as_ref().filter(|path| path.is_held).map_or(0.0, |path| path.p50_us);
        Some((rows(Some(Distance::Package)).or_else(|| rows(None))? - path).max(0.0))
    }
}

/// The results of a probe.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct ProbeReport {
    /// The result in one sentence.
    pub sentence: String,
    pub seconds: f64,
    /// The cpuidle driver and governor; `null` without cpuidle.
    pub driver: Option<String>,
    pub governor: Option<String>,
    pub rows: Vec<ProbeRow>,
    pub not_reached: Vec<NotReached>,
    /// The time of the kernel's own path, without an exit from an idle state.
    pub path: Option<KernelPath>,
    /// Wake-ups for which the counters show exactly one state.
    pub attributed: u64,
    /// Wake-ups for which the counters show several states, or one twice: something else also woke
    /// the CPU.
    pub ambiguous: u64,
    /// Wake-ups of a CPU that did not sleep because something ran on it.
    pub awake: u64,
    pub virtual_machine: bool,
    pub notes: Vec<String>,
}

/// Latencies of one kind of wake-up from one state.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct ProbeRow {
    /// The idle state; `halt` without cpuidle.
    pub state: String,
    pub exit_latency_us: Option<u64>,
    pub target_residency_us: Option<u64>,
    /// Kind of the sleeping core; `null` if all are of one kind.
    pub core_type: Option<CoreType>,
    pub by: WakeBy,
    pub distance: Distance,
    pub sleeper: u32,
    pub waker: Option<u32>,
    pub samples: usize,
    pub p50_us: f64,
    /// `null` with fewer than 100 samples.
    pub p99_us: Option<f64>,
    pub worst_us: f64,
}

/// A state without any attributed wake-up.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
pub struct NotReached {
    pub state: String,
    pub core_type: Option<CoreType>,
    pub why: String,
}

/// The median wake-up from the lightest available state.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct KernelPath {
    pub state: String,
    /// Whether flyball held the latency limit at 0 during the measurement (/dev/cpu_dma_latency).
    pub is_held: bool,
    pub p50_us: f64,
}

/// The sleeping and the waking CPU, which may be the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) sleeper: u32,
    pub(crate) waker: Option<u32>,
    pub(crate) distance: Distance,
    pub(crate) core_type: Option<CoreType>,
}

/// One wake-up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    pub(crate) state: LeftState,
    pub(crate) us: f64,
}

/// The idle states that a CPU left at a wake-up, from the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeftState {
    State(usize),
    /// The CPU was not idle.
    None,
    Several,
}

impl LeftState {
    /// Compares the exit counts of each state before and after a wake-up.
    pub(crate) fn between(before: &[u64], after: &[u64]) -> LeftState {
        let mut left = LeftState::None;
        for (index, (then, now)) in before.iter().zip(after).enumerate() {
            left = match (left, now.wrapping_sub(*then)) {
                (left, 0) => left,
                (LeftState::None, 1) => LeftState::State(index),
                _ => return LeftState::Several,
            };
        }
        left
    }
}

/// Returns a quantile of sorted samples, by the nearest rank.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

impl ProbeReport {
    /// Lists the median of each state. Prefers wake-ups by another CPU of the package.
    fn answer(&self) -> String {
        let mut parts: Vec<(&str, String)> = Vec::new();
        for row in &self.rows {
            let stands_for =
                |other: &&ProbeRow| other.state == row.state && other.distance == Distance::Package;
            let row = self.rows.iter().find(stands_for).unwrap_or(row);
            if parts.iter().all(|part| part.0 != row.state) {
                let advertised =
                    row.exit_latency_us.map_or_else(String::new, |us| format!(" (advertised {us} us)"));
                parts.push((&row.state, format!("{:.1} us out of {}{advertised}", row.p50_us, row.state)));
            }
        }
        match parts.as_slice() {
            [] => "no wake-up could be attributed to an idle state: the CPUs were busy".to_owned(),
            parts => {
                let parts: Vec<&str> = parts.iter().map(|part| part.1.as_str()).collect();
                format!("a wake-up takes {} at the median", parts.join(", "))
            }
        }
    }
}

/// Chooses one sleeping CPU of each kind of core, with a waking CPU at each distance.
pub(crate) fn pairs(topology: &Topology, allowed: &CpuList) -> Vec<Pair> {
    let mut kinds: Vec<Option<CoreType>> = Vec::new();
    let mut found = Vec::new();
    // From the last CPU on: interrupts and housekeeping prefer the first ones.
    let usable: Vec<&Cpu> =
        topology.cpus.values().rev().filter(|cpu| cpu.online && allowed.contains(cpu.number)).collect();
    for sleeper in &usable {
        if kinds.contains(&sleeper.core_type) {
            continue;
        }
        kinds.push(sleeper.core_type);
        let mut seen = Vec::new();
        for waker in usable.iter().filter(|waker| waker.number != sleeper.number) {
            let distance = if waker.package != sleeper.package {
                Distance::OtherPackage
            } else if waker.core.is_some() && (waker.die, waker.core) == (sleeper.die, sleeper.core) {
                Distance::Sibling
            } else {
                Distance::Package
            };
            if !seen.contains(&distance) {
                seen.push(distance);
                found.push(Pair {
                    sleeper: sleeper.number,
                    waker: Some(waker.number),
                    distance,
                    core_type: sleeper.core_type,
                });
            }
        }
        found.push(Pair {
            sleeper: sleeper.number,
            waker: None,
            distance: Distance::Itself,
            core_type: sleeper.core_type,
        });
    }
    found
}

/// Returns how long to leave the CPU alone to reach each state: between the state's residency and
/// the next one's.
pub(crate) fn idle_lengths(table: &[IdleState]) -> Vec<Duration> {
    let residency = |state: &IdleState| state.residency_us.unwrap_or(state.latency_us * 2).max(1);
    let mut lengths: Vec<Duration> = Vec::new();
    for (index, state) in table.iter().enumerate() {
        let least = residency(state) as f64;
        let us = match table.get(index + 1) {
            // Closer to the next state: the governor expects a shorter sleep than it gets.
            Some(next) => least + 0.75 * (residency(next) as f64 - least).max(0.0),
            None => 3.0 * least,
        };
        lengths.push(Duration::from_micros(us.clamp(20.0, 20_000.0) as u64));
    }
    // Enough for today's deepest state (1 ms), whatever the governor predicts.
    lengths.push(Duration::from_millis(10));
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// Summarizes the samples of one pair, with a row per state.
fn rows(table: &[IdleState], pair: Pair, samples: &[Sample]) -> Vec<ProbeRow> {
    let row = |name: &str, state: Option<&IdleState>, mut us: Vec<f64>| {
        us.sort_by(f64::total_cmp);
        (!us.is_empty()).then(|| ProbeRow {
            state: name.to_owned(),
            exit_latency_us: state.map(|state| state.latency_us),
            target_residency_us: state.and_then(|state| state.residency_us),
            core_type: pair.core_type,
            by: if pair.waker.is_some() { WakeBy::Futex } else { WakeBy::Timer },
            distance: pair.distance,
            sleeper: pair.sleeper,
            waker: pair.waker,
            samples: us.len(),
            p50_us: quantile(&us, 0.5),
            p99_us: (us.len() >= 100).then(|| quantile(&us, 0.99)),
            worst_us: us.last().copied().unwrap_or(0.0),
        })
    };
    if table.is_empty() {
        return row("halt", None, samples.iter().map(|sample| sample.us).collect()).into_iter().collect();
    }
    let of = |index: usize| -> Vec<f64> {
        samples
            .iter()
            .filter(|sample| sample.state == LeftState::State(index))
            .map(|sample| sample.us)
            .collect()
    };
    table.iter().enumerate().filter_map(|(index, state)| row(&state.name, Some(state), of(index))).collect()
}

/// Number of wake-ups per state on a simulated machine.
const MODEL_DRAWS: usize = 2000;

/// Pseudorandom numbers from 0 to 1, the same in every run (SplitMix64).
#[derive(Default)]
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The setting of a CPU that forbids a state.
fn forbidden(host: &dyn Host, cpu: u32, state: &IdleState) -> Option<String> {
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}");
    if host.read(&format!("{folder}/cpuidle/state{}/disable", state.index)).is_ok_and(|text| text != "0") {
        return Some(format!("it is disabled (cpu{cpu}/cpuidle/state{}/disable)", state.index));
    }
    // 0 is no limit, and n/a allows no latency (drivers/base/power/sysfs.c).
    let limit = host.read(&format!("{folder}/power/pm_qos_resume_latency_us")).unwrap_or_default();
    let limit_us = if limit == "n/a" { Some(0) } else { limit.parse().ok().filter(|us: &u64| *us > 0) };
    let is_over = limit_us.is_some_and(|us| us < state.latency_us);
    is_over.then(|| format!("the latency limit of CPU {cpu} is {limit} us (latency-limit)"))
}

/// Returns the reason why a CPU did not reach a state.
fn prevented(host: &dyn Host, cpu: u32, state: &IdleState, longest: Duration) -> String {
    if let Some(why) = forbidden(host, cpu, state) {
        return why;
    }
    // Only root may read the machine's latency limit.
    let machine = flyball_process::latency_limit();
    if let Some(us) = machine.filter(|us| *us < state.latency_us) {
        return format!("a program holds /dev/cpu_dma_latency at {us} us");
    }
    let residency = state.residency_us.unwrap_or(0);
    if state.index == 0 && state.latency_us == 0 {
        return "the governor polls only before very short sleeps".to_owned();
    }
    let unknown =
        if machine.is_none() { "; or a limit in /dev/cpu_dma_latency, which only root may read" } else { "" };
    format!(
        "the governor chose other states for sleeps of up to {} us (it pays after {residency} us){unknown}",
        longest.as_micros()
    )
}

/// Measures for about `time`. Only CPUs in `wanted` sleep or wake others.
///
/// # Errors
/// Nothing can be measured.
pub fn probe(
    host: &dyn Host,
    topology: &Topology,
    wanted: &CpuList,
    time: Duration,
) -> Result<ProbeReport, WakeError> {
    if host.kind() == Kind::Recorded {
        return Err(WakeError::OneMoment(host.name()));
    }
    let cpus = wanted.intersection(&topology.online);
    let Some(first) = cpus.first() else { return Err(WakeError::Offline(wanted.clone())) };
    let table = cpuidle::table(host, first);
    let started = host.now();
    let (driver, governor) = cpuidle::driver_and_governor(host, &table);
    let mut report = ProbeReport {
        sentence: String::new(),
        seconds: 0.0,
        driver,
        governor,
        rows: Vec::new(),
        not_reached: Vec::new(),
        path: None,
        attributed: 0,
        ambiguous: 0,
        awake: 0,
        virtual_machine: topology.flags.contains("hypervisor"),
        notes: Vec::new(),
    };
    if let Some(software) = host.software() {
        for pair in pairs(topology, &cpus).into_iter().filter(|pair| pair.waker.is_none()) {
            let (mut draws, mut shares) = (Vec::new(), Draws::default());
            for state in &table {
                if let Some(why) = forbidden(host, pair.sleeper, state) {
                    report.not_reached.push(NotReached {
                        state: state.name.clone(),
                        core_type: pair.core_type,
                        why,
                    });
                    continue;
                }
                draws.extend((0..MODEL_DRAWS).map(|_| Sample {
                    state: LeftState::State(state.index as usize),
                    us: software.wake_latency(pair.sleeper, state.index, shares.next()).as_secs_f64() * 1e6,
                }));
            }
            report.attributed += draws.len() as u64;
            report.rows.extend(rows(&table, pair, &draws));
        }
        report.notes.push("simulated: drawn from the machine's model, without the kernel's path".to_owned());
        report.sentence = report.answer();
        return Ok(report);
    }
    if host.kind() != Kind::Live {
        return Err(WakeError::NoProcessor(host.name()));
    }
    measure(host, topology, &cpus, &table, time, &mut report)?;
    report.seconds = host.now().saturating_sub(started).as_secs_f64();
    report.sentence = report.answer();
    Ok(report)
}

/// Measures on the live machine.
fn measure(
    host: &dyn Host,
    topology: &Topology,
    cpus: &CpuList,
    table: &[IdleState],
    time: Duration,
    report: &mut ProbeReport,
) -> Result<(), WakeError> {
    let allowed = cpus.intersection(&flyball_process::allowed_cpus().into_iter().collect());
    let pairs = pairs(topology, &allowed);
    let Some(nearest) = pairs.iter().find(|pair| pair.waker.is_some()).copied() else {
        return Err(WakeError::OneCpu(allowed));
    };
    let lengths = idle_lengths(table);
    let longest = lengths.last().copied().unwrap_or_default();
    let budget = time / pairs.len() as u32 / lengths.len() as u32;
    for pair in &pairs {
        let samples = here::run(host, *pair, table.len(), &lengths, budget)?;
        report.rows.extend(rows(table, *pair, &samples));
        for sample in &samples {
            match sample.state {
                LeftState::State(_) => report.attributed += 1,
                LeftState::None => report.awake += 1,
                LeftState::Several => report.ambiguous += 1,
            }
        }
    }
    let kinds = pairs.iter().filter(|pair| pair.waker.is_none());
    for pair in kinds {
        for state in table {
            let is_reached = |row: &ProbeRow| row.state == state.name && row.core_type == pair.core_type;
            if !report.rows.iter().any(is_reached) {
                let why = if report.attributed + report.ambiguous == 0 {
                    format!("CPU {} never slept meanwhile: other programs ran on it", pair.sleeper)
                } else {
                    prevented(host, pair.sleeper, state, longest)
                };
                report.not_reached.push(NotReached {
                    state: state.name.clone(),
                    core_type: pair.core_type,
                    why,
                });
            }
        }
    }
    report.path = path(host, nearest, table, report)?;
    if table.is_empty() {
        report.awake = 0;
        report.notes.push("this machine has no cpuidle: which wake-ups left a halt is not known".to_owned());
    }
    if report.virtual_machine {
        report.notes.push(
            "this is a virtual machine: its host decides how a halted CPU sleeps, may poll before it lets it sleep, and may \
             run others first. These are the latencies of this guest, now"
                .to_owned(),
        );
    }
    Ok(())
}

/// Measures the kernel's path with the latency limit held at 0. Without permission to hold it, uses
/// the lightest measured state instead.
fn path(
    host: &dyn Host,
    pair: Pair,
    table: &[IdleState],
    report: &ProbeReport,
) -> Result<Option<KernelPath>, WakeError> {
    if let Ok(held) = flyball_process::hold_latency(0) {
        // One short length: polling costs power, and the path does not depend on the length.
        let lengths = [Duration::from_micros(200)];
        let samples = here::run(host, pair, table.len(), &lengths, Duration::from_millis(500))?;
        // The kernel restores the limit when the descriptor is closed.
        drop(held);
        // If the CPU ran something else, this was no wake-up.
        let slept = samples.iter().filter(|sample| table.is_empty() || sample.state != LeftState::None);
        let mut us: Vec<f64> = slept.map(|sample| sample.us).collect();
        us.sort_by(f64::total_cmp);
        let state = table.first().map_or_else(|| "halt".to_owned(), |state| state.name.clone());
        return Ok((!us.is_empty()).then(|| KernelPath { state, is_held: true, p50_us: quantile(&us, 0.5) }));
    }
    let lightest = report.rows.iter().find(|row| row.by == WakeBy::Futex && row.sleeper == pair.sleeper);
    Ok(lightest.map(|row| KernelPath { state: row.state.clone(), is_held: false, p50_us: row.p50_us }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_name_one_state_or_none() {
        assert_eq!(LeftState::between(&[1, 2, 3], &[1, 3, 3]), LeftState::State(1));
        assert_eq!(LeftState::between(&[1, 2, 3], &[1, 2, 3]), LeftState::None);
        assert_eq!(LeftState::between(&[1, 2, 3], &[1, 4, 3]), LeftState::Several);
        assert_eq!(LeftState::between(&[1, 2, 3], &[2, 3, 3]), LeftState::Several);
        assert_eq!(LeftState::between(&[], &[]), LeftState::None);
        // The counter went back.
        assert_eq!(LeftState::between(&[5], &[0]), LeftState::Several);
    }

    #[test]
    fn quantiles_are_samples() {
        let sorted: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!((quantile(&sorted, 0.5), quantile(&sorted, 0.99)), (100.0, 198.0));
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
    }

    #[test]
    fn lengths_lie_between_the_residencies() {
        let state = |index, latency_us, residency_us| IdleState {
            index,
            name: format!("C{index}"),
            latency_us,
            measured_us: None,
            residency_us: Some(residency_us),
        };
        let table =
            [state(0, 0, 0), state(1, 1, 1), state(2, 4, 40), state(3, 170, 650), state(4, 210, 1000)];
        let us: Vec<u128> = idle_lengths(&table).iter().map(Duration::as_micros).collect();
        assert_eq!(us, [20, 30, 497, 912, 3000, 10_000]);
        assert_eq!(idle_lengths(&[]), [Duration::from_millis(10)]);
    }

    #[test]
    fn each_kind_of_core_sleeps_once_and_is_woken_from_each_distance() {
        let mut topology = Topology::default();
        // Two packages with two cores of two threads each. The last core is of another kind.
        for number in 0..8 {
            let core_type = Some(if number >= 6 { CoreType::E } else { CoreType::P });
            let cpu = Cpu {
                number,
                online: number != 5,
                package: Some(number / 4),
                die: Some(0),
                core: Some(number % 4 / 2),
                core_type,
                ..Cpu::default()
            };
            topology.cpus.insert(number, cpu);
        }
        let found = pairs(&topology, &"0-7".parse().unwrap());
        let of = |sleeper| -> Vec<(Option<u32>, Distance)> {
            found
                .iter()
                .filter(|pair| pair.sleeper == sleeper)
                .map(|pair| (pair.waker, pair.distance))
                .collect()
        };
        let itself = (None, Distance::Itself);
        assert_eq!(
            of(7),
            [
                (Some(6), Distance::Sibling),
                (Some(4), Distance::Package),
                (Some(3), Distance::OtherPackage),
                itself
            ]
        );
        assert_eq!(of(4), [(Some(7), Distance::Package), (Some(3), Distance::OtherPackage), itself]);
        assert_eq!(found.len(), 7);
        assert_eq!(pairs(&topology, &"3".parse().unwrap()).len(), 1);
    }
}
