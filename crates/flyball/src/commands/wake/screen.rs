//! Prints the report of `flyball wake` on a terminal.

use std::fmt::Write as _;

use flyball_wake::{Distance, ProbeReport, ProbeRow, WakeReport, WakeSources};

use crate::paint::{Columns, Paint, Style, cpus_within};

/// Maximum CPUs, sources and threads in a list.
const MAX_ROWS: usize = 8;

fn rate(rate: f64) -> String {
    if rate > 0.0 && rate < 9.95 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

fn optional(value: Option<f64>) -> String {
    value.map(rate).unwrap_or_default()
}

/// Prints how many rows are omitted.
fn more(out: &mut String, all: usize, what: &str) {
    if all > MAX_ROWS {
        let _ = writeln!(out, "{} more {what}: --json has all", all - MAX_ROWS);
    }
}

pub(super) fn render(report: &WakeReport) -> String {
    let paint = Paint::stdout();
    let mut out = format!("{}\n", paint.apply(Style::Heading, &report.sentence));
    let _ = write!(out, "watched CPUs {} for {:.1} s", cpus_within(&report.cpus, 40), report.seconds);
    if let (Some(driver), Some(governor)) = (&report.driver, &report.governor) {
        let _ = write!(out, " ({driver}, {governor})");
    }
    if let Some(stolen) = report.stolen {
        let _ = write!(out, ", {:.1} % of their time stolen", stolen * 100.0);
    }
    out.push('\n');
    if !report.left_out.is_empty() {
        let _ = writeln!(out, "left out, because they were offline: CPUs {}", report.left_out.short());
    }
    states(&mut out, report, paint);
    advice(&mut out, report);
    workload(&mut out, report, paint);
    match &report.sources {
        Some(sources) => causes(&mut out, report, sources, paint),
        None => interrupts(&mut out, report, paint),
    }
    by_cpu(&mut out, report, paint);
    out.push('\n');
    for what in &report.unseen {
        let _ = writeln!(out, "not seen: {what}");
    }
    let _ = writeln!(out, "reading the counters took {:.1} ms and interrupted no CPU", report.reading_ms);
    out
}

fn states(out: &mut String, report: &WakeReport, paint: Paint) {
    if report.states.is_empty() {
        return;
    }
    let mut table = Columns::aligned_right(1..10);
    table.heading([
        "idle state",
        "wakes/s",
        "share",
        "exit us",
        "pays us",
        "stay us",
        "time",
        "too deep/s",
        "too light/s",
        "refused/s",
    ]);
    for state in &report.states {
        table.text_row([
            state.name.clone(),
            rate(state.wakes),
            format!("{:.0} %", state.share * 100.0),
            state.exit_latency_us.to_string(),
            state.target_residency_us.map(|time| time.to_string()).unwrap_or_default(),
            optional(state.mean_residency_us),
            format!("{:.0} %", state.residency * 100.0),
            optional(state.above),
            optional(state.below),
            optional(state.rejected),
        ]);
    }
    let _ = write!(out, "\n{}", table.render(paint));
}

/// Prints the limit that could pay off, and how to check it.
fn advice(out: &mut String, report: &WakeReport) {
    let _ = match (&report.advice, report.lost_ms_at_most) {
        (Some(advice), _) => writeln!(
            out,
            "\n{} could save up to {} ms of that. Its price in watts is not known: --check -- COMMAND measures both",
            advice.setting,
            rate(advice.saved_ms_at_most)
        ),
        (None, Some(_)) => writeln!(out, "\nno latency limit could save 1 % of the time"),
        (None, None) => Ok(()),
    };
}

fn workload(out: &mut String, report: &WakeReport, paint: Paint) {
    let Some(workload) = &report.workload else { return };
    let ended =
        if workload.ended > 0 { format!(", {} of them ended", workload.ended) } else { String::new() };
    let delay = workload.run_delay_ms.map_or_else(
        || "how long they waited for a CPU is not known".to_owned(),
        |delay| format!("ready without a CPU {} ms a second", rate(delay)),
    );
    let _ = writeln!(
        out,
        "\n{} threads{ended}: {} wake-ups and {} preemptions a second, {delay}",
        workload.threads,
        rate(workload.wakes),
        rate(workload.preempted)
    );
    let mut table = Columns::aligned_right(1..6);
    table.heading(["thread", "tid", "wakes/s", "preempted/s", "running", "delay ms/s"]);
    for thread in workload.busiest.iter().take(MAX_ROWS) {
        table.text_row([
            thread.name.clone(),
            thread.tid.to_string(),
            rate(thread.wakes),
            rate(thread.preempted),
            thread.running.map(|share| format!("{:.0} %", share * 100.0)).unwrap_or_default(),
            optional(thread.run_delay_ms),
        ]);
    }
    out.push_str(&table.render(paint));
    more(out, workload.threads, "threads");
}

/// Prints what woke the CPUs, from a trace.
fn causes(out: &mut String, report: &WakeReport, sources: &WakeSources, paint: Paint) {
    let states: Vec<(usize, String)> =
        report.states.iter().map(|state| format!("{}/s", state.name)).enumerate().collect();
    let states: Vec<(usize, String)> =
        states.into_iter().filter(|(at, _)| report.states[*at].exits > 0).collect();
    let is_sampled = sources.sampled_seconds.is_some();
    let mut table = Columns::aligned_right(2..states.len() + 3 + usize::from(is_sampled));
    let heading = ["woken by", "then ran", "wakes/s"].map(str::to_owned).into_iter();
    let heading = heading.chain(is_sampled.then(|| "+-".to_owned()));
    table.heading(heading.chain(states.iter().map(|state| state.1.clone())));
    let with_number = |name: &str, tid: Option<u32>| match tid {
        Some(tid) => format!("{name} ({tid})"),
        None => name.to_owned(),
    };
    for cause in sources.causes.iter().take(MAX_ROWS) {
        let ours = if cause.of_workload { ", workload" } else { "" };
        let woken =
            cause.woken.as_deref().map_or_else(String::new, |name| with_number(name, cause.woken_tid) + ours);
        let mut row = vec![with_number(&cause.name, cause.tid), woken, rate(cause.wakes)];
        row.extend(is_sampled.then(|| cause.wakes_error.map_or_else(String::new, rate)));
        row.extend(states.iter().map(|(at, _)| rate(cause.by_state[*at])));
        table.text_row(row);
    }
    if sources.causes.is_empty() {
        out.push('\n');
    } else {
        let _ = write!(out, "\n{}", table.render(paint));
    }
    more(out, sources.all_causes, "sources");
    let WakeSources { exits, counted, attributed, records, lost, reading_ms, .. } = sources;
    let of = if report.states.is_empty() {
        ", which the kernel does not count without cpuidle".to_owned()
    } else {
        format!(" of the {counted} that the kernel counted")
    };
    let _ = writeln!(
        out,
        "traced {exits} exits{of}, and the source of {attributed}; {records} records took {reading_ms:.1} ms of CPU time \
         to read"
    );
    if let Some(seconds) = sources.sampled_seconds {
        let _ = writeln!(
            out,
            "the CPUs woke too often to trace all the time: flyball traced {seconds:.1} s of {:.1} s, and the rates are \
             estimates (+- at 95 % confidence)",
            report.seconds
        );
    }
    if *lost > 0 {
        let _ =
            writeln!(out, "{lost} more records were overwritten before they were read: rates are too low");
    }
    if let Some(ours) = sources.of_workload {
        let _ = writeln!(out, "{} exits a second were for a thread of the workload", rate(ours));
    }
}

/// Prints what may have woken the CPUs, without a trace.
fn interrupts(out: &mut String, report: &WakeReport, paint: Paint) {
    let softirqs = report.softirqs.iter().map(|source| (format!("softirq {}", source.name), source.rate));
    let interrupts = report.interrupts.iter().map(|source| (source.name.clone(), source.rate));
    let mut rows: Vec<(String, f64)> = interrupts.chain(softirqs).collect();
    rows.sort_by(|one, other| other.1.total_cmp(&one.1));
    if rows.is_empty() {
        return;
    }
    let mut table = Columns::aligned_right(1..2);
    table.heading(["interrupts of these CPUs", "per second"]);
    for (name, per_second) in rows.iter().take(MAX_ROWS) {
        table.text_row([name.clone(), rate(*per_second)]);
    }
    let _ = write!(out, "\n{}", table.render(paint));
    more(out, rows.len(), "sources");
    if let Some(without) = report.wakes_without_interrupt {
        let _ = writeln!(out, "{} wake-ups a second at least came without an interrupt", rate(without));
    }
}

fn by_cpu(out: &mut String, report: &WakeReport, paint: Paint) {
    if report.by_cpu.len() < 2 {
        return;
    }
    let names = report.states.iter().map(|state| format!("{}/s", state.name));
    let mut table = Columns::aligned_right(1..report.states.len() + 4);
    let heading = ["CPU", "wakes/s"].map(str::to_owned).into_iter().chain(names);
    table.heading(heading.chain(["exits ms/s".to_owned(), "interrupts/s".to_owned()]));
    for cpu in report.by_cpu.iter().take(MAX_ROWS) {
        let mut row = vec![cpu.cpu.to_string(), rate(cpu.wakes)];
        row.extend(cpu.by_state.iter().map(|wakes| rate(*wakes)));
        row.extend([rate(cpu.lost_ms_at_most), rate(cpu.interrupts)]);
        table.text_row(row);
    }
    let _ = write!(out, "\n{}", table.render(paint));
    more(out, report.by_cpu.len(), "CPUs");
}

/// Formats the report of `flyball wake --probe`.
pub(super) fn probe(report: &ProbeReport) -> String {
    let paint = Paint::stdout();
    let mut out = format!("{}\n", paint.apply(Style::Heading, &report.sentence));
    let mut table = Columns::aligned_right(2..8);
    table.heading(["idle state", "woken by", "exit us", "pays us", "wakes", "p50 us", "p99 us", "worst us"]);
    for row in &report.rows {
        table.text_row([
            row.state.clone(),
            woken_by(row),
            row.exit_latency_us.map(|us| us.to_string()).unwrap_or_default(),
            row.target_residency_us.map(|us| us.to_string()).unwrap_or_default(),
            row.samples.to_string(),
            optional(Some(row.p50_us)),
            optional(row.p99_us),
            optional(Some(row.worst_us)),
        ]);
    }
    if !report.rows.is_empty() {
        let _ = writeln!(out, "\n{}", table.render(paint));
    }
    for state in &report.not_reached {
        let kind = state.core_type.map_or_else(String::new, |kind| format!(" of type {kind}"));
        let _ = writeln!(out, "not reached: {}{kind}: {}", state.state, state.why);
    }
    if let Some(path) = &report.path {
        let how = if path.is_held { "with the latency limit held at 0" } else { "its exit included" };
        let _ = writeln!(
            out,
            "the kernel's own path: {} us at the median, out of {} ({how})",
            rate(path.p50_us),
            path.state
        );
    }
    if report.seconds > 0.0 {
        let _ = writeln!(
            out,
            "{} wake-ups name one state, {} more than one, {} found the CPU running; {:.1} s",
            report.attributed, report.ambiguous, report.awake, report.seconds
        );
    }
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

fn woken_by(row: &ProbeRow) -> String {
    let kind = row.core_type.map_or_else(String::new, |kind| format!(" ({kind})"));
    let from = match (row.distance, row.waker) {
        (Distance::Itself, _) | (_, None) => return format!("timer of CPU {}{kind}", row.sleeper),
        (Distance::Sibling, Some(waker)) => format!("{waker}, the same core"),
        (Distance::Package, Some(waker)) => format!("{waker}, the same package"),
        (Distance::OtherPackage, Some(waker)) => format!("{waker}, another package"),
    };
    format!("CPU {}{kind} by {from}", row.sleeper)
}
