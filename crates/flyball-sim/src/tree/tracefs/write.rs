//! Effects of writes to the files of tracefs.

use super::{TraceFile, What, in_group, instance_mut, kinds};
use crate::{
    errno::{Answer, Errno},
    kernel::Kernel,
    text::{kstrtou32, kstrtou64},
    trace::{Context, Event, Instance, Kind, OPTIONS, PAGE, TraceClock},
    world::World,
};

fn boolean(text: &[u8]) -> Answer<bool> {
    match kstrtou32(text, 10)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Errno::INVAL),
    }
}

/// Writes to a file in one write(2).
pub(crate) fn write(world: &mut World, file: TraceFile, text: &[u8]) -> Answer {
    let kernel = world.platform.kernel;
    // Text that is not UTF-8 matches no word and is rejected like any unknown one.
    let words = std::str::from_utf8(text).unwrap_or("").trim();
    match file.what {
        What::Top("trace") | What::Cpu(_, "trace") => return truncate(world, file),
        What::Top("trace_marker") => {
            // tracing_mark_write() truncates a long text and ends it with a newline: at
            // TRACE_BUF_SIZE, later at TRACE_MARKER_MAX_SIZE, or earlier if an event of the ring
            // buffer (BUF_MAX_DATA_SIZE) has less room.
            let most = if kernel < Kernel::V6_12 { 1024 } else { PAGE - 16 - 8 - 18 };
            let mut text: Vec<u8> = text.iter().copied().take(most).collect();
            if text.last() != Some(&b'\n') {
                text.push(b'\n');
            }
            let now = world.platform.now;
            world.platform.trace.record(now, 0, Context::Writer, Event::Print(text.into()));
            return Ok(());
        }
        _ => {}
    }
    let own = instance_mut(world, file.instance)?;
    match file.what {
        What::Top("buffer_size_kb") | What::Cpu(_, "buffer_size_kb") => {
            // All buffers have one size here: a write to one CPU's file resizes all.
            match kstrtou64(text, 10)? {
                0 => return Err(Errno::INVAL),
                // A TiB per CPU: no machine has that much memory.
                kib if kib > 1 << 30 => return Err(Errno::NOMEM),
                kib => own.resize(kib),
            }
        }
        What::Top(name) => top(own, name, text, words, kernel)?,
        What::Option(index) => own.set_option(index as usize, boolean(text)?),
        What::Events("enable") => {
            let on = boolean(text)?;
            own.enable(kinds(kernel).filter(|kind| *kind != Kind::Print), on);
        }
        What::Group(group, "enable") => {
            let on = boolean(text)?;
            own.enable(in_group(kernel, group), on);
        }
        What::Event(kind, "enable") => {
            let on = boolean(text)?;
            own.enable(std::iter::once(Kind::ALL[kind as usize]), on);
        }
        // There are no filters to take away, and none can be set.
        What::Event(_, "filter") | What::Group(_, "filter") if words == "0" => {}
        What::Event(_, "filter") | What::Group(_, "filter") => return Err(Errno::INVAL),
        _ => return Err(Errno::ACCES),
    }
    let platform = &mut world.platform;
    platform.trace.review(&platform.chip);
    Ok(())
}

/// A file at the top of an instance.
fn top(own: &mut Instance, name: &str, text: &[u8], words: &str, kernel: Kernel) -> Answer {
    match name {
        "tracing_on" => own.on = kstrtou32(text, 10)? != 0,
        "current_tracer" if words != "nop" => return Err(Errno::INVAL),
        "current_tracer" | "error_log" | "free_buffer" | "saved_cmdlines_size" => {}
        "trace_clock" => {
            own.clock = TraceClock::named(words).ok_or(Errno::INVAL)?;
            // Timestamps of two clocks cannot be compared (tracing_set_clock() resets the buffers).
            own.clear();
        }
        "buffer_percent" => match kstrtou32(text, 10)? {
            percent @ 0..=100 => own.percent = percent,
            _ => return Err(Errno::INVAL),
        },
        "buffer_subbuf_size_kb" if kstrtou32(text, 10)? as usize == PAGE / 1024 => {}
        "buffer_subbuf_size_kb" => return Err(Errno::INVAL),
        "tracing_cpumask" => mask(own, words)?,
        "trace_options" => {
            let (name, on) = match words.strip_prefix("no") {
                Some(rest) if OPTIONS.contains(&rest) => (rest, false),
                _ => (words, true),
            };
            let index = OPTIONS.iter().position(|option| *option == name).ok_or(Errno::INVAL)?;
            own.set_option(index, on);
        }
        "set_event" => {
            for word in words.split_whitespace() {
                set_event(own, word, kernel)?;
            }
        }
        _ => return Err(Errno::ACCES),
    }
    Ok(())
}

/// Applies a word of `set_event`: GROUP:EVENT, GROUP:, :EVENT, or either name alone; a leading '!'
/// disables (kernel/trace/trace_events.c, ftrace_set_clr_event).
fn set_event(own: &mut Instance, word: &str, kernel: Kernel) -> Answer {
    let (word, on) = word.strip_prefix('!').map_or((word, true), |word| (word, false));
    let (group, name) = word.split_once(':').unwrap_or(("*", word));
    let fits = |kind: &Kind| {
        let is = |pattern: &str, text: &str| matches!(pattern, "*" | "") || pattern == text;
        is(group, kind.group()) && is(name, kind.name()) || !word.contains(':') && word == kind.group()
    };
    let chosen: Vec<Kind> = kinds(kernel).filter(|kind| *kind != Kind::Print).filter(fits).collect();
    if chosen.is_empty() {
        return Err(Errno::INVAL);
    }
    own.enable(chosen.into_iter(), on);
    Ok(())
}

fn mask(own: &mut Instance, words: &str) -> Answer {
    let mut open = vec![false; own.masked.len()];
    // Groups of 32 CPUs, highest first.
    for (group, word) in words.rsplit(',').enumerate() {
        let bits = u32::from_str_radix(word, 16).map_err(|_| Errno::INVAL)?;
        for bit in (0..32).filter(|bit| bits >> bit & 1 == 1) {
            *open.get_mut(32 * group + bit).ok_or(Errno::INVAL)? = true;
        }
    }
    own.masked = open.into_iter().map(|open| !open).collect();
    Ok(())
}

/// Truncates a file opened with O_TRUNC.
pub(crate) fn truncate(world: &mut World, file: TraceFile) -> Answer {
    let own = instance_mut(world, file.instance)?;
    match file.what {
        What::Top("trace") => own.clear(),
        What::Cpu(cpu, "trace") => {
            if let Some(ring) = own.rings.get_mut(cpu as usize) {
                ring.clear();
            }
        }
        What::Top("set_event") => own.enabled = 0,
        _ => {}
    }
    let platform = &mut world.platform;
    platform.trace.review(&platform.chip);
    Ok(())
}
