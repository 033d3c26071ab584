//! The report of a trace as text: tables of CPUs, idle states and tasks.

use std::fmt::Write as _;

use flyball_host::CpuList;
use flyball_trace::{
    TraceSummary,
    report::{CpuReport, Range, Report},
};

use super::input::simulated;
use crate::paint::{Columns, Paint, cpus_within, one_line, terminal_columns};

/// The report as text, with the first `tasks` tasks and, if asked for, the time at each level.
pub(super) fn render(summary: &TraceSummary, report: &Report, tasks: usize) -> String {
    let mut out = String::new();
    let paint = Paint::stdout();
    let unit = if report.clock.nanoseconds() { "s" } else { " ticks" };
    let driver = report.driver.unwrap_or("no P-state driver's");
    let _ = writeln!(
        out,
        "{driver} events: {} records in {:.3}{unit}, from {:.6}{unit}",
        report.records, report.duration, report.start
    );
    if let Some(machine) = simulated(summary) {
        let _ = writeln!(out, "machine: {}, simulated", one_line(machine.to_owned()));
    }
    if let Some(uname) = &summary.uname {
        let _ = writeln!(out, "kernel: {}", one_line(uname.clone()));
    }
    let events: Vec<String> =
        report.events.iter().map(|event| format!("{} {}", event.name, event.count)).collect();
    let _ =
        writeln!(out, "events: {}", if events.is_empty() { "none".to_owned() } else { events.join(", ") });
    let lost = report.losses.iter().fold(0u64, |sum, loss| sum.saturating_add(loss.records));
    if !report.losses.is_empty() {
        let places: u64 = report.losses.iter().map(|loss| loss.places).sum();
        let _ = writeln!(
            out,
            "lost inside the trace: {lost} records at {places} places on {} CPUs",
            report.losses.len()
        );
    }
    for event in &report.unread {
        let _ = writeln!(
            out,
            "left out: {} records of {} with fields that cannot be read",
            event.count, event.name
        );
    }
    if report.impossible_cpus > 0 {
        let _ = writeln!(out, "left out: {} records of CPU numbers that cannot be", report.impossible_cpus);
    }
    if report.cpus.iter().any(|cpu| cpu.samples > 0) {
        // This is the widest table. On a narrow terminal it is split, not wrapped.
        let _ = write!(out, "\n{}", cpu_table(report).render_within(paint, terminal_columns()));
    }
    if report.cpus.iter().any(|cpu| cpu.samples > 0) {
        out.push_str(
            "three numbers: least, mean and most of the samples; min, max: the limits of the requests; lag: median (95th \
             percentile);\nfast: share of requests made without a kernel thread; gap: the longest time between two samples\n",
        );
    }
    if report.cpus.iter().any(|cpu| !cpu.idle.is_empty()) {
        let _ = write!(out, "\n{}", idle_table(report).render(paint));
    }
    if !report.tasks.is_empty() && tasks > 0 {
        let _ = write!(out, "\n{}", task_table(report, tasks).render(paint));
    }
    out
}

fn table(heads: &[&str]) -> Columns {
    // All but the first column are numbers.
    let mut table = Columns::aligned_right(1..heads.len());
    table.heading(heads.iter().copied());
    table
}

fn range(range: Option<Range>, digits: usize) -> String {
    range.map_or_else(String::new, |range| {
        // At most two digits for minimum and maximum: the table is wide, and readers compare the
        // mean.
        format!("{:.*} {:.*} {:.*}", digits.min(2), range.min, digits, range.mean, digits.min(2), range.max)
    })
}

fn optional(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(String::new, |value| format!("{value:.digits$}"))
}

fn cpu_table(report: &Report) -> Columns {
    let level = if report.driver == Some("intel_pstate") { "P-state" } else { "desired" };
    let mut table = table(&[
        "CPU",
        "samples",
        "min",
        level,
        "max",
        "GHz",
        "load %",
        "C0 %",
        "decisions",
        "/s",
        "fast %",
        "lag ms",
        "gap s",
    ]);
    let levels = |range: Option<Range>| {
        range.map_or_else(String::new, |range| {
            if range.min == range.max {
                format!("{:.0}", range.min)
            } else {
                format!("{:.0}-{:.0}", range.min, range.max)
            }
        })
    };
    // CPUs with equal numbers are one row.
    let mut rows: Vec<(CpuList, [String; 12])> = Vec::new();
    for cpu in report.cpus.iter().filter(|cpu| cpu.samples > 0) {
        let CpuReport { lag, .. } = cpu;
        let cells = [
            cpu.samples.to_string(),
            levels(cpu.min_perf),
            range(cpu.des_perf, 0),
            levels(cpu.max_perf),
            range(cpu.ghz, 3),
            range(cpu.load, 1),
            optional(cpu.c0, 1),
            cpu.decisions.to_string(),
            optional(cpu.decisions_per_second, 1),
            optional(cpu.fast_switch, 0),
            lag.map_or_else(String::new, |lag| format!("{:.1} ({:.1})", lag.median_ms, lag.p95_ms)),
            optional(cpu.longest_gap_seconds, 3),
        ];
        // Idle CPUs of a large machine often have the same numbers to the digit.
        match rows.iter_mut().find(|(_, known)| *known == cells) {
            Some((cpus, _)) => cpus.extend([cpu.cpu]),
            None => rows.push(([cpu.cpu].into_iter().collect(), cells)),
        }
    }
    for (list, cells) in rows {
        table.text_row(std::iter::once(cpus_within(&list, 16)).chain(cells));
    }
    table
}

fn idle_table(report: &Report) -> Columns {
    let mut table = table(&["CPU", "idle state", "entries", "seconds", "share %"]);
    for cpu in &report.cpus {
        for idle in &cpu.idle {
            table.text_row([
                cpu.cpu.to_string(),
                idle.state.to_string(),
                idle.entries.to_string(),
                format!("{:.3}", idle.seconds),
                optional(idle.share, 1),
            ]);
        }
    }
    table
}

fn task_table(report: &Report, count: usize) -> Columns {
    let mut table = table(&["task", "PID", "samples", "desired", "GHz", "load %"]);
    for task in report.tasks.iter().take(count) {
        table.text_row([
            task.name.to_string(),
            task.pid.to_string(),
            task.samples.to_string(),
            range(task.des_perf, 0),
            range(task.ghz, 3),
            range(task.load, 1),
        ]);
    }
    table
}
