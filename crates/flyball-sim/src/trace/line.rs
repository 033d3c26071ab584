//! Records as the lines of `trace` and `trace_pipe` (kernel/trace/trace_output.c).

use std::fmt::Write as _;

use super::{IRQ_INFO, Instance, Tracer, ring::Record};

/// Five characters: irqs, need-resched, hard and soft interrupts, preemption depth, migration
/// disabled.
fn flags(record: &Record) -> [char; 5] {
    let off = if record.flags & 0x01 != 0 { 'd' } else { '.' };
    let hard = if record.flags & 0x08 != 0 { 'h' } else { '.' };
    let depth = match record.preempt & 0xf {
        0 => '.',
        depth => char::from_digit(u32::from(depth), 16).unwrap_or('.'),
    };
    [off, '.', hard, depth, '.']
}

/// Appends a record's line.
pub(crate) fn line(tracer: &Tracer, instance: &Instance, cpu: usize, record: &Record, text: &mut String) {
    let name = match record.pid {
        0 => "<idle>",
        pid => tracer.names.get(&pid).map_or("<...>", String::as_str),
    };
    // trace_print_context(): TASK_COMM_LEN wide, and the number padded to seven.
    let _ = write!(text, "{name:>16}-{:<7} [{cpu:03}] ", record.pid);
    if instance.option(IRQ_INFO) {
        text.extend(flags(record));
    }
    let _ = if instance.clock.is_time() {
        write!(text, " {}", seconds(record.stamp))
    } else {
        write!(text, " {:>12}", record.stamp)
    };
    let name = match &record.event {
        // trace_print_print() writes the function instead of a name.
        super::Event::Print(_) => String::new(),
        event => format!("{}: ", event.kind().name()),
    };
    let _ = writeln!(text, ": {name}{}", record.event.text(tracer.kernel));
}

/// Seconds and microseconds, truncated.
pub(crate) fn seconds(ns: u64) -> String {
    let us = ns / 1000;
    format!("{:>5}.{:06}", us / 1_000_000, us % 1_000_000)
}

/// The head of `trace`.
pub(crate) fn head(instance: &Instance, cpus: usize) -> String {
    let (mut entries, mut written) = (0, 0);
    for ring in &instance.rings {
        let counts = ring.counts();
        entries += counts.entries;
        written += counts.entries + counts.overrun;
    }
    let mut text = format!(
        "# tracer: nop\n#\n# entries-in-buffer/entries-written: {entries}/{written}   #P:{cpus}\n#\n"
    );
    if instance.option(IRQ_INFO) {
        text.push_str(
            "#                                _-----=> irqs-off/BH-disabled\n\
             #                               / _----=> need-resched\n\
             #                              | / _---=> hardirq/softirq\n\
             #                              || / _--=> preempt-depth\n\
             #                              ||| / _-=> migrate-disable\n\
             #                              |||| /     delay\n\
             #           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n\
             #              | |         |   |||||     |         |\n",
        );
    } else {
        text.push_str(
            "#           TASK-PID     CPU#     TIMESTAMP  FUNCTION\n\
             #              | |         |         |         |\n",
        );
    }
    text
}
