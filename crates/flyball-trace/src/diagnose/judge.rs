//! Judges a trace's windows.

use super::{
    Diagnoser, Finding, FindingKind, Severity, explain::explain, findings::finding, windows::Window,
};

/// The range of frequencies and levels that occur in the whole trace.
struct Scale {
    lowest_ghz: f64,
    highest_ghz: f64,
    highest_max: f64,
    highest_des: f64,
    /// Usual GHz per performance level.
    ratio: f64,
}

impl Scale {
    fn new(diagnoser: &Diagnoser) -> Scale {
        let busy = diagnoser.limits.busy;
        let mut scale = Scale {
            lowest_ghz: f64::INFINITY,
            highest_ghz: 0.0,
            highest_max: 0.0,
            highest_des: 0.0,
            ratio: 0.0,
        };
        // Only busy windows: an idle CPU's frequency is measured over few cycles.
        let mut ratios = Vec::new();
        for window in diagnoser.windows.cpus.iter().flatten().filter(|window| window.count > 0) {
            if window.ghz() > 0.0 {
                scale.lowest_ghz = scale.lowest_ghz.min(window.ghz());
            }
            scale.highest_ghz = scale.highest_ghz.max(window.ghz());
            scale.highest_max = scale.highest_max.max(window.max());
            scale.highest_des = scale.highest_des.max(window.des());
            if window.load() >= busy && window.des() > 0.0 {
                ratios.push((window.ghz() / window.des()) as f32);
            }
        }
        if !ratios.is_empty() {
            let middle = ratios.len() / 2;
            // The median is robust against CPUs whose requests are ignored.
            let (_, median, _) = ratios.select_nth_unstable_by(middle, f32::total_cmp);
            scale.ratio = f64::from(*median);
        }
        scale
    }
}

/// A run of windows that satisfy a condition.
struct WindowRun {
    from: u64,
    to: u64,
    samples: u64,
    turns: u64,
    des: f64,
    max: f64,
    ghz: f64,
    load: f64,
}

impl WindowRun {
    fn range(&self) -> (u64, u64) {
        (self.from, self.to)
    }

    fn seconds(&self) -> f64 {
        (self.to - self.from) as f64 / 1e9
    }
}

/// The runs of one CPU's windows that satisfy `holds`, last at least `least` seconds and have some
/// samples. A window without a sample does not end a run, because the interval between decisions
/// may exceed a window.
fn stretches(
    diagnoser: &Diagnoser,
    windows: &[Window],
    least: f64,
    holds: impl Fn(&Window) -> bool,
) -> Vec<WindowRun> {
    let mut found = Vec::new();
    let mut now: Option<WindowRun> = None;
    let mut close = |stretch: Option<WindowRun>| {
        if let Some(mut stretch) = stretch
            // Fewer samples may be due to the position of the windows.
            && stretch.samples >= 5
            && stretch.seconds() >= least
        {
            for sum in [&mut stretch.des, &mut stretch.max, &mut stretch.ghz, &mut stretch.load] {
                *sum /= stretch.samples as f64;
            }
            found.push(stretch);
        }
    };
    for (at, window) in windows.iter().enumerate() {
        if window.count == 0 {
            continue;
        }
        if !holds(window) {
            close(now.take());
            continue;
        }
        let from = diagnoser.windows.time(at);
        let stretch = now.get_or_insert(WindowRun {
            from,
            to: from,
            samples: 0,
            turns: 0,
            des: 0.0,
            max: 0.0,
            ghz: 0.0,
            load: 0.0,
        });
        let count = f64::from(window.count);
        stretch.to = from.saturating_add(diagnoser.windows.width);
        stretch.samples += u64::from(window.count);
        stretch.turns += u64::from(window.turns);
        stretch.des += window.des() * count;
        stretch.max += window.max() * count;
        stretch.ghz += window.ghz() * count;
        stretch.load += window.load() * count;
    }
    close(now);
    found
}

/// All findings, ordered by severity, CPU and time.
pub(super) fn judge(diagnoser: &Diagnoser) -> Vec<Finding> {
    let scale = Scale::new(diagnoser);
    let mut findings = Vec::new();
    for (cpu, windows) in diagnoser.windows.cpus.iter().enumerate() {
        if !windows.is_empty() {
            windows_of(diagnoser, &scale, cpu as u32, windows, &mut findings);
        }
    }
    states(diagnoser, &mut findings);
    siblings(diagnoser, &scale, &mut findings);
    for event in &diagnoser.limited {
        let range = (event.time, event.end);
        let times = if event.count > 1 { format!(" ({} times)", event.count) } else { String::new() };
        let what = format!("{}{times}", event.what);
        findings.push(finding(FindingKind::Throttled, event.cpu, range, what));
    }
    // After all others: it explains their findings and adds evidence to them.
    if let Some(isolation) = &diagnoser.isolation {
        explain(diagnoser, isolation, &mut findings);
    }
    for found in &mut findings {
        let Some(state) = found.cpu.and_then(|cpu| diagnoser.cpus.get(cpu as usize)) else { continue };
        let inside = |time: &u64| (found.from..=found.to).contains(&(*time as f64 / 1e9));
        // Lost records may contain decisions, so a silence proves nothing.
        found.uncertain = found.kind != FindingKind::Lost && state.losses.iter().any(inside);
    }
    findings.sort_by(|a, b| {
        b.severity
            .cmp(&a.severity)
            .then(a.kind.cmp(&b.kind))
            .then(a.cpu.cmp(&b.cpu))
            .then(a.from.total_cmp(&b.from))
    });
    findings
}

fn windows_of(
    diagnoser: &Diagnoser,
    scale: &Scale,
    cpu: u32,
    windows: &[Window],
    findings: &mut Vec<Finding>,
) {
    let limits = &diagnoser.limits;
    let busy = |window: &Window| window.load() >= limits.busy;
    // If all frequencies in a trace are close together, the lowest is not a fault.
    let wide = scale.lowest_ghz <= 0.6 * scale.highest_ghz;
    // Ten percent above the lowest, because other windows vary around that one.
    let low = |window: &Window| wide && window.ghz() <= 1.1 * scale.lowest_ghz;
    // AMD requests contain their own bounds; Intel's have 0 there. Half a level of tolerance,
    // because these are means over a window's samples.
    let at_max = |window: &Window| {
        if window.max() > 0.0 {
            window.des() >= window.max() - 0.5
        } else {
            window.des() >= scale.highest_des - 0.5
        }
    };

    for stretch in stretches(diagnoser, windows, limits.least, |window| busy(window) && low(window)) {
        let what = format!(
            "ran at {:.2} GHz, the lowest of the trace (highest {:.2}), at {:.0} % load; asked for performance {:.0}",
            stretch.ghz,
            scale.highest_ghz,
            stretch.load * 100.0,
            stretch.des
        );
        findings.push(finding(FindingKind::StuckLow, cpu, stretch.range(), what));
    }
    // A request with equal bounds leaves the governor no choice: it is a setting, not a decision.
    let idle_at_max =
        |window: &Window| window.load() <= limits.idle && at_max(window) && window.max() > window.min() + 1.0;
    for stretch in stretches(diagnoser, windows, 4.0 * limits.least, idle_at_max) {
        let what =
            format!("asked for its maximum of {:.0} at {:.1} % load", stretch.des, stretch.load * 100.0);
        findings.push(finding(FindingKind::StuckHigh, cpu, stretch.range(), what));
    }
    let ignored = |window: &Window| {
        let usual = scale.ratio * window.des();
        busy(window) && window.des() > 0.0 && usual > 0.0 && window.ghz() <= limits.follows * usual
    };
    for stretch in stretches(diagnoser, windows, limits.least, ignored) {
        let what = format!(
            "got {:.2} GHz for a request of {:.0}, which gives {:.2} GHz elsewhere in the trace",
            stretch.ghz,
            stretch.des,
            scale.ratio * stretch.des
        );
        findings.push(finding(FindingKind::Ignored, cpu, stretch.range(), what));
    }
    unresponsive(diagnoser, cpu, windows, findings);
    let clipped = |window: &Window| {
        window.max() > 0.0 && busy(window) && at_max(window) && window.max() <= 0.95 * scale.highest_max
    };
    for stretch in stretches(diagnoser, windows, limits.least, clipped) {
        let what = format!(
            "asked for all it may, {:.0}, at {:.0} % load; the highest limit in the trace is {:.0}",
            stretch.max,
            stretch.load * 100.0,
            scale.highest_max
        );
        findings.push(finding(FindingKind::Clipped, cpu, stretch.range(), what));
    }
    hunting(diagnoser, cpu, windows, findings);
    no_boost(diagnoser, cpu, windows, |window| busy(window) && at_max(window), findings);
}

/// Finds CPUs for which the maximum was requested under load, but whose frequency never exceeded
/// nominal.
fn no_boost(
    diagnoser: &Diagnoser,
    cpu: u32,
    windows: &[Window],
    at_full: impl Fn(&Window) -> bool,
    findings: &mut Vec<Finding>,
) {
    let full = stretches(diagnoser, windows, 0.0, &at_full);
    let time: f64 = full.iter().map(WindowRun::seconds).sum();
    let most = windows.iter().filter(|window| window.count > 0 && at_full(window)).map(Window::boost);
    let most = most.fold(0.0, f64::max);
    // APERF over MPERF is 1 at nominal frequency. One percent of tolerance, because the two are not
    // read at once.
    if time >= 2.0 * diagnoser.limits.least
        && most > 0.0
        && most <= 1.01
        && let (Some(first), Some(last)) = (full.first(), full.last())
    {
        let what =
            format!("asked for its maximum for {time:.1} s under load and never ran above nominal frequency");
        let range = (first.from, last.to);
        findings.push(finding(FindingKind::NoBoost, cpu, range, what));
    }
}

/// Finds requests that differ widely without an effect on the frequency.
fn unresponsive(diagnoser: &Diagnoser, cpu: u32, windows: &[Window], findings: &mut Vec<Finding>) {
    let busy: Vec<(usize, &Window)> = windows
        .iter()
        .enumerate()
        .filter(|(_, window)| {
            window.count > 0 && window.load() >= diagnoser.limits.busy && window.des() > 0.0
        })
        .collect();
    if (busy.len() as f64) * (diagnoser.windows.width as f64 / 1e9) < diagnoser.limits.least
        || busy.len() < 10
    {
        return;
    }
    let range = |value: fn(&Window) -> f64| {
        let mut values: Vec<f64> = busy.iter().map(|(_, window)| value(window)).collect();
        values.sort_by(f64::total_cmp);
        // Drop the outermost 5 % at either end, which a single odd window can reach.
        let cut = values.len() / 20;
        (values[cut], values[values.len() - 1 - cut])
    };
    let ((low, high), (slow, fast)) = (range(Window::des), range(Window::ghz));
    if high >= 1.5 * low && slow > 0.0 && fast <= 1.05 * slow {
        let (first, last) = (busy[0].0, busy[busy.len() - 1].0);
        let what = format!(
            "asked for {low:.0} to {high:.0} under load and ran at {slow:.2} to {fast:.2} GHz whatever it asked for"
        );
        let range = (diagnoser.windows.time(first), diagnoser.windows.time(last + 1));
        let ignored = finding(FindingKind::Ignored, cpu, range, what);
        findings.push(Finding { severity: Severity::Fault, ..ignored });
    }
}

fn hunting(diagnoser: &Diagnoser, cpu: u32, windows: &[Window], findings: &mut Vec<Finding>) {
    let rate = diagnoser.limits.hunting;
    // Judge half seconds, because a window may be shorter than the time between two reversals.
    let group = ((diagnoser.limits.least * 1e9 / diagnoser.windows.width as f64).ceil() as usize).max(1);
    let seconds = group as f64 * diagnoser.windows.width as f64 / 1e9;
    let mut run: Option<(usize, usize, u64)> = None;
    let mut report = |run: Option<(usize, usize, u64)>| {
        let Some((from, to, turns)) = run else { return };
        // At least two groups: a burst inside one is not a state.
        if to - from < 2 * group {
            return;
        }
        let range = (diagnoser.windows.time(from), diagnoser.windows.time(to));
        let time = (range.1 - range.0) as f64 / 1e9;
        let levels = windows[from..to.min(windows.len())].iter().filter(|window| window.count > 0);
        let (low, high) = levels.fold((f64::INFINITY, 0.0f64), |(low, high), window| {
            (low.min(window.des()), high.max(window.des()))
        });
        let what = format!(
            "the request turned between up and down {:.0} times a second for {time:.1} s, between about {low:.0} and {high:.0}",
            turns as f64 / time
        );
        findings.push(finding(FindingKind::Hunting, cpu, range, what));
    };
    for (number, chunk) in windows.chunks(group).enumerate() {
        let turns: u64 = chunk.iter().map(|window| u64::from(window.turns)).sum();
        let at = number * group;
        if turns as f64 >= rate * seconds {
            let (_, to, sum) = run.get_or_insert((at, at, 0));
            *to = at + group;
            *sum += turns;
        } else {
            report(run.take());
        }
    }
    report(run);
}

fn states(diagnoser: &Diagnoser, findings: &mut Vec<Finding>) {
    let least = diagnoser.limits.least;
    for (cpu, state) in diagnoser.cpus.iter().enumerate() {
        let cpu = cpu as u32;
        for silence in &state.decision_gaps {
            let seconds = (silence.to - silence.from) as f64 / 1e9;
            let what = format!(
                "no decision for {seconds:.2} s at {:.0} % load; it ran at {:.2} GHz meanwhile",
                silence.load * 100.0,
                silence.ghz
            );
            let range = (silence.from, silence.to);
            findings.push(finding(FindingKind::NoDecisions, cpu, range, what));
        }
        if let Some(last) = state.last
            && state.samples >= 10
        {
            // The length of a silence depends on the driver: intel_pstate decides at each tick,
            // schedutil at each change of load.
            let usual = last.saturating_sub(state.first) / state.samples;
            let silent = diagnoser.last.saturating_sub(last);
            // Determine from other events whether the CPU was busy or idle since then. 100 ms is
            // longer than any driver's interval, and short compared to the silence.
            let soon = last.saturating_add(100_000_000);
            let task = state.running.filter(|(pid, since)| *pid != 0 && *since <= soon).map(|(pid, _)| pid);
            let asleep = state.idle.is_some_and(|(idle, since)| idle && since <= soon)
                || state.running.is_some_and(|(pid, since)| pid == 0 && since <= soon);
            if silent as f64 >= 2e9 * least && silent >= 50 * usual.max(1) && !asleep {
                let seconds = silent as f64 / 1e9;
                let (kind, what) = match task {
                    Some(task) => (
                        FindingKind::NoDecisions,
                        format!(
                            "no decision for {seconds:.2} s, to the end of the trace, while task {task} ran"
                        ),
                    ),
                    None => (
                        FindingKind::Stopped,
                        format!(
                            "its last decision is {seconds:.1} s before the end of the trace; until then it decided every \
                             {:.1} ms",
                            usual as f64 / 1e6
                        ),
                    ),
                };
                findings.push(finding(kind, cpu, (last, diagnoser.last), what));
            }
        }
        let lasting = state.limit.map(|(max, since)| (since, diagnoser.last, max));
        for (from, to, max) in state.limits.iter().copied().chain(lasting) {
            // 5 %: policies round their limits to the driver's steps, and report both values.
            let lower = f64::from(max) <= 0.95 * f64::from(state.highest_limit);
            if lower && to.saturating_sub(from) as f64 >= 1e9 * least {
                let what = format!(
                    "the policy's limit was {:.2} GHz; at another time of the trace it was {:.2}",
                    f64::from(max) / 1e6,
                    f64::from(state.highest_limit) / 1e6
                );
                findings.push(finding(FindingKind::Clipped, cpu, (from, to), what));
            }
        }
        // A single finding, because where records were lost says nothing about the machine.
        if let (Some(first), Some(last)) = (state.losses.first(), state.losses.last()) {
            let places = state.losses.len();
            let what = if state.lost > 0 {
                format!("{} records were lost at {places} places", state.lost)
            } else {
                format!("records were lost at {places} places; the trace does not say how many")
            };
            findings.push(finding(FindingKind::Lost, cpu, (*first, *last), what));
        }
    }
}

fn siblings(diagnoser: &Diagnoser, scale: &Scale, findings: &mut Vec<Finding>) {
    let all = &diagnoser.windows.cpus;
    // A quarter of the scale, and both under load: siblings always differ a little, like their
    // tasks.
    let width = (0.25 * scale.highest_des.max(scale.highest_max)).max(1.0);
    for (first, second) in &diagnoser.siblings {
        let (Some(one), Some(other)) = (all.get(*first as usize), all.get(*second as usize)) else {
            continue;
        };
        let mut run: Option<(usize, usize)> = None;
        let mut runs = Vec::new();
        for (at, (one, other)) in one.iter().zip(other).enumerate() {
            // A window without a decision neither continues a run nor ends it.
            if one.count == 0 || other.count == 0 {
                continue;
            }
            if (one.des() - other.des()).abs() >= width && one.load().min(other.load()) >= 0.2 {
                run.get_or_insert((at, at)).1 = at + 1;
            } else {
                runs.extend(run.take());
            }
        }
        runs.extend(run);
        for (from, to) in runs {
            let range = (diagnoser.windows.time(from), diagnoser.windows.time(to));
            if ((range.1 - range.0) as f64) < 2e9 * diagnoser.limits.least {
                continue;
            }
            let mean = |windows: &[Window]| {
                let used = windows[from..to].iter().filter(|window| window.count > 0);
                let (sum, count) =
                    used.fold((0.0, 0.0), |(sum, count), window| (sum + window.des(), count + 1.0));
                sum / f64::max(count, 1.0)
            };
            let what = format!(
                "asks for {:.0} while CPU {second} of the same core asks for {:.0}, both under load",
                mean(one),
                mean(other)
            );
            let mut found = finding(FindingKind::SiblingsDisagree, *first, range, what);
            found.other_cpu = Some(*second);
            findings.push(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Clock,
        comm::Comm,
        diagnose::Limits,
        events::{AmdPerf, Event},
        record::Record,
    };

    /// A trace with a request every 5 ms; `at` returns requested level, limit, frequency and load
    /// at each millisecond.
    fn trace(
        diagnoser: &mut Diagnoser,
        cpu: u32,
        ms: std::ops::Range<u64>,
        at: impl Fn(u64) -> (u32, u32, f64, f64),
    ) {
        for ms in ms.step_by(5) {
            let (des, max, ghz, load) = at(ms);
            let tsc = 15_000_000u64;
            let mperf = (tsc as f64 * load) as u64;
            let event = AmdPerf {
                min: 15,
                des,
                max,
                cpu,
                khz: (ghz * 1e6) as u64,
                mperf,
                aperf: (mperf as f64 * ghz / 3.0) as u64,
                tsc,
                changed: None,
                fast_switch: true,
            };
            diagnoser.add(&Record {
                time: 1_000_000_000 + ms * 1_000_000,
                cpu,
                pid: 1,
                comm: Comm::default(),
                flags: 0,
                preempt: 0,
                event: Event::AmdPerf(event),
            });
        }
    }

    fn kinds(diagnoser: &Diagnoser) -> Vec<(FindingKind, Option<u32>)> {
        diagnoser.findings(Clock::Mono).iter().map(|finding| (finding.kind, finding.cpu)).collect()
    }

    fn new() -> Diagnoser {
        Diagnoser::new(Limits::default(), vec![(0, 1)])
    }

    /// A CPU that follows its requests: level 200 is 4 GHz.
    fn healthy(ms: u64) -> (u32, u32, f64, f64) {
        if (ms / 700).is_multiple_of(2) { (200, 200, 4.0, 0.9) } else { (50, 200, 1.0, 0.3) }
    }

    #[test]
    fn a_healthy_cpu_has_no_findings() {
        let mut diagnoser = new();
        trace(&mut diagnoser, 0, 0..5_000, healthy);
        trace(&mut diagnoser, 1, 0..5_000, healthy);
        assert_eq!(kinds(&diagnoser), []);
    }

    #[test]
    fn a_cpu_stuck_low_under_load_is_a_fault() {
        let mut diagnoser = new();
        trace(&mut diagnoser, 0, 0..5_000, healthy);
        trace(&mut diagnoser, 3, 0..5_000, |ms| if ms < 2_000 { healthy(ms) } else { (50, 200, 1.0, 0.99) });
        let findings = diagnoser.findings(Clock::Mono);
        assert_eq!((findings[0].kind, findings[0].cpu), (FindingKind::StuckLow, Some(3)));
        assert!((findings[0].from - 3.0).abs() < 0.02 && (findings[0].to - 6.0).abs() < 0.02, "{findings:?}");
        assert!(diagnoser.findings(Clock::Counter).is_empty());
    }

    #[test]
    fn a_request_that_the_firmware_ignores() {
        let mut diagnoser = new();
        trace(&mut diagnoser, 0, 0..6_000, healthy);
        trace(&mut diagnoser, 5, 0..3_000, |ms| {
            if ms < 1_500 { (200, 200, 4.0, 0.9) } else { (200, 200, 2.0, 0.9) }
        });
        assert!(kinds(&diagnoser).contains(&(FindingKind::Ignored, Some(5))), "{:?}", kinds(&diagnoser));
        let mut diagnoser = new();
        trace(&mut diagnoser, 6, 0..3_000, |ms| (if ms / 100 % 2 == 0 { 100 } else { 200 }, 250, 2.5, 0.95));
        let findings = diagnoser.findings(Clock::Mono);
        assert!(findings[0].what.contains("whatever it asked for"), "{findings:?}");
    }

    #[test]
    fn limits_that_clip() {
        let mut diagnoser = new();
        trace(&mut diagnoser, 0, 0..4_000, |ms| {
            if ms < 2_000 { (200, 200, 4.0, 0.9) } else { (120, 120, 2.4, 0.95) }
        });
        let findings = diagnoser.findings(Clock::Mono);
        assert_eq!(findings.iter().map(|finding| finding.kind).collect::<Vec<_>>(), [FindingKind::Clipped]);
        assert!((findings[0].from - 3.0).abs() < 0.02, "{findings:?}");
    }

    #[test]
    fn a_governor_that_hunts() {
        let mut diagnoser = new();
        trace(&mut diagnoser, 0, 0..3_000, |ms| {
            if ms / 5 % 2 == 0 { (60, 200, 1.2, 0.5) } else { (180, 200, 3.6, 0.5) }
        });
        assert_eq!(kinds(&diagnoser), [(FindingKind::Hunting, Some(0))]);
    }

    #[test]
    fn decisions_that_stop_with_and_without_load() {
        let mut diagnoser = new();
        trace(&mut diagnoser, 0, 0..9_000, healthy);
        trace(&mut diagnoser, 7, 0..2_000, healthy);
        trace(&mut diagnoser, 8, 0..1_000, healthy);
        trace(
            &mut diagnoser,
            8,
            4_000..9_000,
            |ms| if ms == 4_000 { (50, 200, 1.0, 0.99) } else { healthy(ms) },
        );
        let found = kinds(&diagnoser);
        assert!(found.contains(&(FindingKind::Stopped, Some(7))), "{found:?}");
        assert!(found.contains(&(FindingKind::NoDecisions, Some(8))), "{found:?}");
        assert!(!found.contains(&(FindingKind::Stopped, Some(8))), "{found:?}");
    }

    #[test]
    fn boost_that_is_never_reached_and_siblings_that_disagree() {
        let mut diagnoser = new();
        trace(&mut diagnoser, 0, 0..3_000, |_| (200, 200, 3.0, 0.95));
        trace(&mut diagnoser, 1, 0..3_000, |_| (60, 200, 3.0, 0.5));
        let found = kinds(&diagnoser);
        assert!(found.contains(&(FindingKind::NoBoost, Some(0))), "{found:?}");
        assert!(found.contains(&(FindingKind::SiblingsDisagree, Some(0))), "{found:?}");
    }

    #[test]
    fn losses_make_conclusions_unsafe() {
        let mut diagnoser = new();
        trace(&mut diagnoser, 0, 0..1_000, healthy);
        let time = 3_000_000_000;
        let event = Event::Lost(Some(40));
        diagnoser.add(&Record { time, cpu: 0, pid: 0, comm: Comm::default(), flags: 0, preempt: 0, event });
        trace(
            &mut diagnoser,
            0,
            4_000..6_000,
            |ms| if ms == 4_000 { (50, 200, 1.0, 0.99) } else { healthy(ms) },
        );
        let findings = diagnoser.findings(Clock::Mono);
        let silent = findings.iter().find(|finding| finding.kind == FindingKind::NoDecisions).unwrap();
        assert!(silent.uncertain);
        assert!(
            findings
                .iter()
                .any(|finding| finding.kind == FindingKind::Lost && finding.what.contains("40 records"))
        );
    }

    #[test]
    fn long_traces_take_bounded_memory() {
        let mut diagnoser = new();
        for hour in 0..2_000u64 {
            trace(&mut diagnoser, (hour % 300) as u32, hour * 3_600_000..hour * 3_600_000 + 50, healthy);
        }
        let windows: usize = diagnoser.windows.cpus.iter().map(Vec::len).sum();
        assert!(windows <= 512 * 1024, "{windows}");
        let _ = diagnoser.findings(Clock::Mono);
    }
}
