//! Contents of the files of tracefs.

use std::fmt::Write as _;

use super::{TraceFile, What, in_group, kinds};
use crate::{
    errno::{Answer, Errno},
    text::cpu_mask,
    trace::{Instance, Kind, OPTIONS, PAGE, Record, TraceClock, format, line},
    world::World,
};

/// Appends a line.
fn push(out: &mut Vec<u8>, text: impl std::fmt::Display) {
    out.extend_from_slice(format!("{text}\n").as_bytes());
}

fn switch_digit(on: bool) -> char {
    if on { '1' } else { '0' }
}

/// `0`, `1`, or `X` if the events differ.
fn switch(instance: &Instance, kinds: impl Iterator<Item = Kind>) -> char {
    let (mut on, mut off) = (false, false);
    for kind in kinds.filter(|kind| *kind != Kind::Print) {
        let set = instance.enabled & kind.bit() != 0;
        (on, off) = (on || set, off || !set);
    }
    match (on, off) {
        (true, true) => 'X',
        (true, false) => '1',
        _ => '0',
    }
}

/// Reads a whole file. For streams use [`super::take`].
pub(crate) fn read(world: &World, file: TraceFile, out: &mut Vec<u8>) -> Answer {
    let instance = super::instance(world, file.instance).ok_or(Errno::NODEV)?;
    let kernel = world.platform.kernel;
    match file.what {
        What::Top(name) => return top(world, instance, name, out),
        What::Cpu(cpu, name) => return per_cpu(world, instance, cpu as usize, name, out),
        What::Option(index) => push(out, switch_digit(instance.option(index as usize))),
        What::Events("enable") => push(out, switch(instance, kinds(kernel))),
        What::Events("header_page") => out.extend_from_slice(format::page(kernel).as_bytes()),
        What::Events(_) => out.extend_from_slice(format::EVENT.as_bytes()),
        What::Group(group, "enable") => push(out, switch(instance, in_group(kernel, group))),
        What::Group(..) => push(
            out,
            "### global filter ###\n# Use this to set filters for multiple events.\n\
             # Only events with the given fields will be affected.\n\
             # If no events are modified, an error message will be displayed here",
        ),
        What::Event(kind, name) => {
            let known = Kind::ALL[kind as usize];
            match name {
                "enable" => push(out, switch(instance, std::iter::once(known))),
                "filter" => push(out, "none"),
                "format" => out.extend_from_slice(format::text(known, kernel).as_bytes()),
                _ => push(out, known.id(kernel)),
            }
        }
    }
    Ok(())
}

/// A file at the top of an instance.
fn top(world: &World, instance: &Instance, name: &str, out: &mut Vec<u8>) -> Answer {
    let kernel = world.platform.kernel;
    let cpus = instance.rings.len();
    match name {
        "available_tracers" | "current_tracer" => push(out, "nop"),
        "buffer_percent" => push(out, instance.percent),
        "buffer_size_kb" => push(out, size(instance, 1)),
        // The sum over all CPUs; buffer_size_kb is per CPU.
        "buffer_total_size_kb" => push(out, size(instance, cpus as u64)),
        "buffer_subbuf_size_kb" => push(out, PAGE / 1024),
        // SAVED_CMDLINES_DEFAULT (kernel/trace/trace_sched_switch.c).
        "saved_cmdlines_size" => push(out, 128),
        "timestamp_mode" => push(out, "[delta] absolute"),
        "tracing_on" => push(out, switch_digit(instance.on)),
        "error_log" | "printk_formats" | "saved_tgids" => {}
        "tracing_cpumask" => {
            let open = (0..cpus as u32).filter(|&cpu| !instance.masked[cpu as usize]);
            push(out, cpu_mask(open, cpus as u32));
        }
        "trace_clock" => {
            let chosen = instance.clock.index();
            let words: Vec<String> = TraceClock::NAMES
                .iter()
                .enumerate()
                .map(|(n, name)| if n == chosen { format!("[{name}]") } else { (*name).to_owned() })
                .collect();
            push(out, words.join(" "));
        }
        // t_next() in kernel/trace/trace_events.c lists events that can be registered, which
        // excludes ftrace's own `print`.
        "available_events" => {
            for kind in kinds(kernel).filter(|kind| *kind != Kind::Print) {
                push(out, format!("{}:{}", kind.group(), kind.name()));
            }
        }
        "set_event" => {
            for kind in kinds(kernel).filter(|kind| instance.enabled & kind.bit() != 0) {
                push(out, format!("{}:{}", kind.group(), kind.name()));
            }
        }
        "saved_cmdlines" => {
            for (pid, name) in &world.platform.trace.names {
                push(out, format!("{pid} {name}"));
            }
        }
        "trace_options" => {
            for (index, name) in OPTIONS.iter().enumerate() {
                push(out, format!("{}{name}", if instance.option(index) { "" } else { "no" }));
            }
        }
        "trace" => lines(world, instance, None, out),
        "free_buffer" | "trace_marker" => return Err(Errno::ACCES),
        _ => return Err(Errno::AGAIN),
    }
    Ok(())
}

/// A file of one CPU's buffer.
fn per_cpu(world: &World, instance: &Instance, cpu: usize, name: &str, out: &mut Vec<u8>) -> Answer {
    match name {
        "buffer_size_kb" => push(out, size(instance, 1)),
        "trace" => lines(world, instance, Some(cpu), out),
        "stats" => out.extend_from_slice(stats(world, instance, cpu).as_bytes()),
        _ => return Err(Errno::AGAIN),
    }
    Ok(())
}

/// The size of `buffers` buffers. An unused buffer is minimal in the kernel, which then shows both
/// sizes (kernel/trace/trace.c, tracing_entries_read).
fn size(instance: &Instance, buffers: u64) -> String {
    const UNUSED_KIB: u64 = 7;
    let full = instance.size_kib * buffers;
    if instance.expanded { full.to_string() } else { format!("{} (expanded: {full})", UNUSED_KIB * buffers) }
}

/// The text of `trace`: the header, and all records in chronological order.
fn lines(world: &World, instance: &Instance, only: Option<usize>, out: &mut Vec<u8>) {
    let mut text = line::head(instance, instance.rings.len());
    let mut records: Vec<(u64, usize, &Record)> = Vec::new();
    for (cpu, ring) in
        instance.rings.iter().enumerate().filter(|(cpu, _)| only.is_none_or(|only| only == *cpu))
    {
        records.extend(ring.records().map(|record| (record.stamp, cpu, record)));
    }
    // A stable sort, and by CPU if timestamps are equal, so that one trace always gives one text.
    records.sort_by_key(|(stamp, cpu, _)| (*stamp, *cpu));
    for (_, cpu, record) in records {
        line::line(&world.platform.trace, instance, cpu, record, &mut text);
    }
    out.extend_from_slice(text.as_bytes());
}

fn stats(world: &World, instance: &Instance, cpu: usize) -> String {
    let Some(ring) = instance.rings.get(cpu) else { return String::new() };
    let counts = ring.counts();
    let now = world.platform.now;
    let (oldest, now) = if instance.clock.is_time() {
        (line::seconds(ring.oldest().unwrap_or(0)), line::seconds(now))
    } else {
        (ring.oldest().unwrap_or(0).to_string(), now.to_string())
    };
    let mut text = String::new();
    let _ = write!(
        text,
        "entries: {}\noverrun: {}\ncommit overrun: 0\nbytes: {}\noldest event ts: {oldest}\nnow ts: {now}\n\
         dropped events: {}\nread events: {}\n",
        counts.entries, counts.overrun, counts.bytes, counts.dropped, counts.read
    );
    text
}
