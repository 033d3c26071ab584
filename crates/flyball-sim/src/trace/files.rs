//! tracefs on a simulated machine: switches, formats, buffers, instances.
//!
//! What is not modelled is not there (function tracers, triggers), so that a program finds out by itself.

use std::fmt::Write as _;

use super::{
    Event, Instance, Kind, OPTIONS, TraceClock,
    filter::Filter,
    format,
    line::{head, line, seconds},
    ring::{PAGE, Record},
};
use crate::{
    errno::{Answer, Errno},
    kernel::Kernel,
    text::{cpu_mask, kstrtou32, kstrtou64},
    tree::{Dir, Node, numbered},
    world::World,
};

/// A directory of tracefs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Folder {
    Root,
    Events,
    Group(u8),
    Event(u8),
    PerCpus,
    PerCpu(u32),
    Options,
    Instances,
}

/// A file of tracefs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TraceFile {
    pub(crate) instance: u8,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Top(&'static str),
    Events(&'static str),
    Group(u8, &'static str),
    Event(u8, &'static str),
    Cpu(u32, &'static str),
    Option(u8),
}

const GROUPS: [&str; 3] = ["amd_cpu", "ftrace", "power"];
const MOST_INSTANCES: usize = 64;

/// Name and mode of what every instance has at its top.
const TOP: [(&str, u16); 17] = [
    ("available_tracers", 0o444),
    ("buffer_percent", 0o640),
    ("buffer_size_kb", 0o640),
    ("buffer_total_size_kb", 0o444),
    ("current_tracer", 0o640),
    ("error_log", 0o640),
    ("free_buffer", 0o200),
    ("set_event", 0o640),
    ("timestamp_mode", 0o444),
    ("trace", 0o640),
    ("trace_clock", 0o640),
    ("trace_marker", 0o220),
    ("trace_options", 0o640),
    ("trace_pipe", 0o440),
    ("tracing_cpumask", 0o640),
    ("tracing_on", 0o640),
    ("buffer_subbuf_size_kb", 0o640),
];
/// What only tracefs itself has.
const ONCE: [(&str, u16); 5] = [
    ("available_events", 0o440),
    ("printk_formats", 0o440),
    ("saved_cmdlines", 0o440),
    ("saved_cmdlines_size", 0o640),
    ("saved_tgids", 0o440),
];
const EVENTS: [(&str, u16); 3] = [("enable", 0o640), ("header_event", 0o440), ("header_page", 0o440)];
const GROUP: [(&str, u16); 2] = [("enable", 0o640), ("filter", 0o640)];
const EVENT: [(&str, u16); 4] = [("enable", 0o640), ("filter", 0o640), ("format", 0o440), ("id", 0o440)];
const CPU: [(&str, u16); 5] = [
    ("buffer_size_kb", 0o640),
    ("stats", 0o440),
    ("trace", 0o640),
    ("trace_pipe", 0o440),
    ("trace_pipe_raw", 0o440),
];

fn find(table: &'static [(&'static str, u16)], name: &str) -> Option<&'static str> {
    table.iter().find(|(known, _)| *known == name).map(|(known, _)| *known)
}

fn kinds(kernel: Kernel) -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(move |kind| kind.is_in(kernel))
}

fn in_group(kernel: Kernel, group: u8) -> impl Iterator<Item = Kind> {
    kinds(kernel).filter(move |kind| kind.group() == GROUPS[group as usize])
}

fn instance(world: &World, number: u8) -> Option<&Instance> {
    world.platform.trace.instances.get(number as usize)?.as_ref()
}

fn instance_mut(world: &mut World, number: u8) -> Answer<&mut Instance> {
    let instances = &mut world.platform.trace.instances;
    instances.get_mut(number as usize).and_then(Option::as_mut).ok_or(Errno::NODEV)
}

/// Files that this kernel has: the size of sub-buffers can be seen since 6.8.
fn top(kernel: Kernel) -> &'static [(&'static str, u16)] {
    if kernel == Kernel::V6_1 { &TOP[..TOP.len() - 1] } else { &TOP }
}

/// Sets a filter for those of some events that have its fields; `0` takes all away.
fn filter(own: &mut Instance, kinds: impl Iterator<Item = Kind>, words: &str, kernel: Kernel) -> Answer {
    let mut fits = false;
    for kind in kinds {
        if words == "0" {
            own.filters.remove(&(kind as u8));
            fits = true;
        } else if let Some(filter) = Filter::parse(words, kind, kernel) {
            own.filters.insert(kind as u8, filter);
            fits = true;
        }
    }
    if fits { Ok(()) } else { Err(Errno::INVAL) }
}

/// What `name` is in a directory.
pub(crate) fn child(world: &World, number: u8, folder: Folder, name: &str) -> Option<Node> {
    let file = |what| Some(Node::Trace(TraceFile { instance: number, what }));
    let dir = |folder| Some(Node::Dir(Dir::Trace(number, folder)));
    let kernel = world.platform.kernel;
    instance(world, number)?;
    match folder {
        Folder::Root => match name {
            "events" => dir(Folder::Events),
            "per_cpu" => dir(Folder::PerCpus),
            "options" => dir(Folder::Options),
            "instances" if number == 0 => dir(Folder::Instances),
            _ => match find(top(kernel), name) {
                Some(name) => file(What::Top(name)),
                None if number == 0 => file(What::Top(find(&ONCE, name)?)),
                None => None,
            },
        },
        Folder::Events => match GROUPS.iter().position(|group| *group == name) {
            Some(group) => dir(Folder::Group(group as u8)),
            None => file(What::Events(find(&EVENTS, name)?)),
        },
        Folder::Group(group) => {
            match in_group(kernel, group).find(|kind| kind.name() == name) {
                Some(kind) => dir(Folder::Event(kind as u8)),
                // The group of tracers' own records cannot be switched.
                None if GROUPS[group as usize] == "ftrace" => None,
                None => file(What::Group(group, find(&GROUP, name)?)),
            }
        }
        Folder::Event(kind) => {
            let name = find(&EVENT, name)?;
            let own = Kind::ALL[kind as usize] == Kind::Print;
            if own && name != "format" && name != "id" { None } else { file(What::Event(kind, name)) }
        }
        Folder::PerCpus => {
            let cpu = numbered(name, "cpu").filter(|&cpu| cpu < world.platform.board.cpus())?;
            dir(Folder::PerCpu(cpu))
        }
        Folder::PerCpu(cpu) => file(What::Cpu(cpu, find(&CPU, name)?)),
        Folder::Options => file(What::Option(OPTIONS.iter().position(|option| *option == name)? as u8)),
        Folder::Instances => {
            let instances = world.platform.trace.instances.iter().enumerate().skip(1);
            let mut named = instances.filter(|(_, own)| own.as_ref().is_some_and(|own| own.name == name));
            named.next().map(|(number, _)| Node::Dir(Dir::Trace(number as u8, Folder::Root)))
        }
    }
}

/// The names in a directory.
pub(crate) fn names(world: &World, number: u8, folder: Folder) -> Vec<String> {
    let kernel = world.platform.kernel;
    let of = |table: &'static [(&'static str, u16)]| table.iter().map(|(name, _)| (*name).to_owned());
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    match folder {
        Folder::Root => {
            let mut names: Vec<String> =
                of(top(kernel)).chain(words(&["events", "per_cpu", "options"])).collect();
            if number == 0 {
                names.extend(of(&ONCE));
                names.push("instances".to_owned());
            }
            names
        }
        Folder::Events => of(&EVENTS).chain(words(&GROUPS)).collect(),
        Folder::Group(group) => {
            let events = in_group(kernel, group).map(|kind| kind.name().to_owned());
            if GROUPS[group as usize] == "ftrace" {
                events.collect()
            } else {
                events.chain(of(&GROUP)).collect()
            }
        }
        Folder::Event(kind) if Kind::ALL[kind as usize] == Kind::Print => words(&["format", "id"]),
        Folder::Event(_) => of(&EVENT).collect(),
        Folder::PerCpus => (0..world.platform.board.cpus()).map(|cpu| format!("cpu{cpu}")).collect(),
        Folder::PerCpu(_) => of(&CPU).collect(),
        Folder::Options => words(&OPTIONS),
        Folder::Instances => {
            world.platform.trace.instances.iter().skip(1).flatten().map(|own| own.name.clone()).collect()
        }
    }
}

/// A file's permission bits.
pub(crate) fn mode(file: TraceFile) -> u16 {
    let table: &[(&str, u16)] = match file.what {
        What::Top(_) => &TOP,
        What::Events(_) => &EVENTS,
        What::Group(..) => &GROUP,
        What::Event(..) => &EVENT,
        What::Cpu(..) => &CPU,
        What::Option(_) => return 0o644,
    };
    let (What::Top(name)
    | What::Events(name)
    | What::Group(_, name)
    | What::Event(_, name)
    | What::Cpu(_, name)) = file.what
    else {
        return 0o644;
    };
    table.iter().chain(&ONCE).find(|(known, _)| *known == name).map_or(0o440, |(_, mode)| *mode)
}

/// Whether reading takes what is read away.
pub(crate) fn is_stream(file: TraceFile) -> bool {
    matches!(file.what, What::Top("trace_pipe") | What::Cpu(_, "trace_pipe" | "trace_pipe_raw"))
}

/// Whether a stream has something to read.
pub(crate) fn is_ready(world: &World, file: TraceFile) -> bool {
    let Some(instance) = instance(world, file.instance) else { return true };
    match file.what {
        // Readers of pages are woken when enough of them are full.
        What::Cpu(cpu, "trace_pipe_raw") => instance.rings.get(cpu as usize).is_none_or(|ring| {
            let (full, of) = ring.fill();
            !ring.is_empty() && full * 100 >= of * instance.percent as usize
        }),
        What::Cpu(cpu, _) => instance.rings.get(cpu as usize).is_none_or(|ring| !ring.is_empty()),
        _ => instance.rings.iter().any(|ring| !ring.is_empty()),
    }
}

/// Takes at most `limit` bytes of a stream; `EAGAIN` where there is nothing.
pub(crate) fn take(world: &mut World, file: TraceFile, limit: usize) -> Answer<Vec<u8>> {
    let kernel = world.platform.kernel;
    if let What::Cpu(cpu, "trace_pipe_raw") = file.what {
        let instance = instance_mut(world, file.instance)?;
        let ring = instance.rings.get_mut(cpu as usize).ok_or(Errno::NODEV)?;
        let mut pages = Vec::new();
        while pages.len() + PAGE <= limit.max(PAGE) {
            match ring.take_page(kernel) {
                Some(page) => pages.extend(page),
                None => break,
            }
        }
        return if pages.is_empty() { Err(Errno::AGAIN) } else { Ok(pages) };
    }
    let only = if let What::Cpu(cpu, _) = file.what { Some(cpu as usize) } else { None };
    let mut text = String::new();
    loop {
        let Some(instance) = instance(world, file.instance) else { return Err(Errno::NODEV) };
        let rings = instance.rings.iter().enumerate();
        let oldest = rings
            .filter(|(cpu, _)| only.is_none_or(|only| only == *cpu))
            .filter_map(|(cpu, ring)| Some((ring.oldest()?, cpu)))
            .min();
        let Some((_, cpu)) = oldest else { break };
        let before = text.len();
        if let Some(record) = instance.rings[cpu].records().next() {
            line(&world.platform.trace, instance, cpu, record, &mut text);
        }
        if before > 0 && text.len() > limit {
            text.truncate(before);
            break;
        }
        instance_mut(world, file.instance)?.rings[cpu].pop();
    }
    if text.is_empty() { Err(Errno::AGAIN) } else { Ok(text.into_bytes()) }
}

#[expect(clippy::unnecessary_wraps, reason = "it is the answer of most arms")]
fn push(out: &mut Vec<u8>, text: impl std::fmt::Display) -> Answer {
    out.extend_from_slice(format!("{text}\n").as_bytes());
    Ok(())
}

fn truth(on: bool) -> char {
    if on { '1' } else { '0' }
}

/// `0`, `1` or `X` for a mixture.
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

/// Reads a file as a whole; streams are emptied.
pub(crate) fn read(world: &World, file: TraceFile, out: &mut Vec<u8>) -> Answer {
    let instance = instance(world, file.instance).ok_or(Errno::NODEV)?;
    let kernel = world.platform.kernel;
    let tracer = &world.platform.trace;
    let cpus = instance.rings.len();
    let size = |per: u64| {
        let now = if instance.expanded { instance.size_kib } else { 7 };
        if instance.expanded {
            (now * per).to_string()
        } else {
            format!("{} (expanded: {})", now * per, instance.size_kib * per)
        }
    };
    match file.what {
        What::Top("available_tracers" | "current_tracer") => push(out, "nop"),
        What::Top("buffer_percent") => push(out, instance.percent),
        What::Top("buffer_size_kb") | What::Cpu(_, "buffer_size_kb") => push(out, size(1)),
        What::Top("buffer_total_size_kb") => push(out, size(cpus as u64)),
        What::Top("buffer_subbuf_size_kb") => push(out, PAGE / 1024),
        What::Top("saved_cmdlines_size") => push(out, 128),
        What::Top("timestamp_mode") => push(out, "[delta] absolute"),
        What::Top("tracing_on") => push(out, truth(instance.on)),
        What::Top("error_log" | "printk_formats" | "saved_tgids") => Ok(()),
        What::Top("tracing_cpumask") => {
            let open = (0..cpus as u32).filter(|&cpu| !instance.masked[cpu as usize]);
            push(out, cpu_mask(open, cpus as u32))
        }
        What::Top("trace_clock") => {
            let chosen = instance.clock.index();
            let words: Vec<String> = TraceClock::NAMES
                .iter()
                .enumerate()
                .map(|(n, name)| if n == chosen { format!("[{name}]") } else { (*name).to_owned() })
                .collect();
            push(out, words.join(" "))
        }
        What::Top("available_events") => {
            for kind in kinds(kernel).filter(|kind| *kind != Kind::Print) {
                push(out, format!("{}:{}", kind.group(), kind.name()))?;
            }
            Ok(())
        }
        What::Top("set_event") => {
            for kind in kinds(kernel).filter(|kind| instance.enabled & kind.bit() != 0) {
                push(out, format!("{}:{}", kind.group(), kind.name()))?;
            }
            Ok(())
        }
        What::Top("saved_cmdlines") => {
            for (pid, name) in &tracer.names {
                push(out, format!("{pid} {name}"))?;
            }
            Ok(())
        }
        What::Top("trace_options") => {
            for (index, name) in OPTIONS.iter().enumerate() {
                push(out, format!("{}{name}", if instance.option(index) { "" } else { "no" }))?;
            }
            Ok(())
        }
        What::Option(index) => push(out, truth(instance.option(index as usize))),
        What::Events("enable") => push(out, switch(instance, kinds(kernel))),
        What::Events("header_page") => {
            out.extend_from_slice(format::page(kernel).as_bytes());
            Ok(())
        }
        What::Events(_) => {
            out.extend_from_slice(format::EVENT.as_bytes());
            Ok(())
        }
        What::Group(group, "enable") => push(out, switch(instance, in_group(kernel, group))),
        What::Event(kind, "enable") => push(out, switch(instance, std::iter::once(Kind::ALL[kind as usize]))),
        What::Event(kind, "filter") => {
            push(out, instance.filters.get(&kind).map_or("none", |filter| filter.text.as_str()))
        }
        What::Group(..) => push(
            out,
            "### global filter ###\n# Use this to set filters for multiple events.\n\
             # Only events with the given fields will be affected.\n\
             # If no events are modified, an error message will be displayed here",
        ),
        What::Event(kind, "format") => {
            out.extend_from_slice(format::text(Kind::ALL[kind as usize], kernel).as_bytes());
            Ok(())
        }
        What::Event(kind, _) => push(out, Kind::ALL[kind as usize].id(kernel)),
        What::Top("trace") => {
            let mut text = head(instance, cpus);
            lines(world, instance, None, &mut text);
            out.extend_from_slice(text.as_bytes());
            Ok(())
        }
        What::Cpu(cpu, "trace") => {
            let mut text = head(instance, cpus);
            lines(world, instance, Some(cpu as usize), &mut text);
            out.extend_from_slice(text.as_bytes());
            Ok(())
        }
        What::Cpu(cpu, "stats") => {
            out.extend_from_slice(stats(world, instance, cpu as usize).as_bytes());
            Ok(())
        }
        What::Top("free_buffer" | "trace_marker") => Err(Errno::ACCES),
        What::Top(_) | What::Cpu(..) => Err(Errno::AGAIN),
    }
}

/// All records of an instance in the order of their time.
fn lines(world: &World, instance: &Instance, only: Option<usize>, text: &mut String) {
    let mut records: Vec<(u64, usize, &Record)> = Vec::new();
    for (cpu, ring) in
        instance.rings.iter().enumerate().filter(|(cpu, _)| only.is_none_or(|only| only == *cpu))
    {
        records.extend(ring.records().map(|record| (record.stamp, cpu, record)));
    }
    records.sort_by_key(|(stamp, cpu, _)| (*stamp, *cpu));
    for (_, cpu, record) in records {
        line(&world.platform.trace, instance, cpu, record, text);
    }
}

fn stats(world: &World, instance: &Instance, cpu: usize) -> String {
    let Some(ring) = instance.rings.get(cpu) else { return String::new() };
    let counts = ring.counts();
    let now = world.platform.now;
    let (oldest, now) = if instance.clock.is_time() {
        (seconds(ring.oldest().unwrap_or(0)), seconds(now))
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

fn boolean(text: &[u8]) -> Answer<bool> {
    match kstrtou32(text, 10)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Errno::INVAL),
    }
}

pub(crate) fn write(world: &mut World, file: TraceFile, text: &[u8]) -> Answer {
    let kernel = world.platform.kernel;
    let now = world.platform.now;
    let words = std::str::from_utf8(text).unwrap_or("").trim();
    let own = instance_mut(world, file.instance)?;
    let all = kinds(kernel).filter(|kind| *kind != Kind::Print);
    let set = |own: &mut Instance, kinds: Box<dyn Iterator<Item = Kind>>, on: bool| {
        let bits = kinds.fold(0, |bits, kind| bits | kind.bit());
        if on { own.enabled |= bits } else { own.enabled &= !bits }
    };
    match file.what {
        What::Top("tracing_on") => own.on = kstrtou32(text, 10)? != 0,
        What::Top("trace") | What::Cpu(_, "trace") => return truncate(world, file),
        What::Top("current_tracer") => {
            if words != "nop" {
                return Err(Errno::INVAL);
            }
        }
        What::Top("trace_clock") => {
            own.clock = TraceClock::named(words).ok_or(Errno::INVAL)?;
            own.clear();
        }
        What::Top("buffer_size_kb") | What::Cpu(_, "buffer_size_kb") => {
            // Buffers of one size each: a write to one CPU's sizes all.
            match kstrtou64(text, 10)? {
                0 => return Err(Errno::INVAL),
                kib if kib > 1 << 30 => return Err(Errno::NOMEM),
                kib => own.resize(kib),
            }
        }
        What::Top("buffer_percent") => match kstrtou32(text, 10)? {
            percent @ 0..=100 => own.percent = percent,
            _ => return Err(Errno::INVAL),
        },
        What::Top("buffer_subbuf_size_kb") => {
            if kstrtou32(text, 10)? as usize != PAGE / 1024 {
                return Err(Errno::INVAL);
            }
        }
        What::Top("tracing_cpumask") => mask(own, words)?,
        What::Top("trace_options") => {
            let (name, on) = match words.strip_prefix("no") {
                Some(rest) if OPTIONS.contains(&rest) => (rest, false),
                _ => (words, true),
            };
            let index = OPTIONS.iter().position(|option| *option == name).ok_or(Errno::INVAL)?;
            own.options = own.options & !(1 << index) | u32::from(on) << index;
        }
        What::Option(index) => {
            let on = boolean(text)?;
            own.options = own.options & !(1 << index) | u32::from(on) << index;
        }
        What::Top("set_event") => {
            for word in words.split_whitespace() {
                let (word, on) = word.strip_prefix('!').map_or((word, true), |word| (word, false));
                let (group, name) = word.split_once(':').unwrap_or(("*", word));
                let fits = |kind: &Kind| {
                    let is = |pattern: &str, text: &str| matches!(pattern, "*" | "") || pattern == text;
                    is(group, kind.group()) && is(name, kind.name())
                        || !word.contains(':') && word == kind.group()
                };
                let chosen: Vec<Kind> =
                    kinds(kernel).filter(|kind| *kind != Kind::Print).filter(fits).collect();
                if chosen.is_empty() {
                    return Err(Errno::INVAL);
                }
                set(own, Box::new(chosen.into_iter()), on);
            }
        }
        What::Events("enable") => {
            let on = boolean(text)?;
            set(own, Box::new(all), on);
        }
        What::Group(group, "enable") => {
            let on = boolean(text)?;
            set(own, Box::new(in_group(kernel, group)), on);
        }
        What::Event(kind, "enable") => {
            let on = boolean(text)?;
            set(own, Box::new(std::iter::once(Kind::ALL[kind as usize])), on);
        }
        What::Event(kind, "filter") => filter(own, std::iter::once(Kind::ALL[kind as usize]), words, kernel)?,
        What::Group(group, "filter") => filter(own, in_group(kernel, group), words, kernel)?,
        What::Top("trace_marker") => {
            let mut text: Vec<u8> = text.iter().copied().take(1000).collect();
            if text.last() != Some(&b'\n') {
                text.push(b'\n');
            }
            let trace = &mut world.platform.trace;
            let context = super::Context::Writer;
            trace.record(now, 0, context, Event::Print(text.into()));
        }
        What::Top("error_log" | "free_buffer" | "saved_cmdlines_size") => {}
        _ => return Err(Errno::ACCES),
    }
    let platform = &mut world.platform;
    platform.trace.review(&platform.chip);
    Ok(())
}

fn mask(own: &mut Instance, words: &str) -> Answer {
    let mut open = vec![false; own.masked.len()];
    // Groups of 32 CPUs, the highest first.
    for (group, word) in words.rsplit(',').enumerate() {
        let bits = u32::from_str_radix(word, 16).map_err(|_| Errno::INVAL)?;
        for bit in (0..32).filter(|bit| bits >> bit & 1 == 1) {
            *open.get_mut(32 * group + bit).ok_or(Errno::INVAL)? = true;
        }
    }
    own.masked = open.into_iter().map(|open| !open).collect();
    Ok(())
}

/// A file is opened to be cut off.
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

/// mkdir in instances/.
pub(crate) fn make(world: &mut World, name: &str) -> Answer {
    if name.is_empty() || name.len() > 255 {
        return Err(Errno::INVAL);
    }
    let cpus = world.platform.board.cpus() as usize;
    let instances = &mut world.platform.trace.instances;
    if instances.iter().flatten().any(|own| own.name == name) {
        return Err(Errno::EXIST);
    }
    let fresh = Some(Instance::new(name, cpus));
    match instances.iter().position(Option::is_none) {
        Some(gap) => instances[gap] = fresh,
        None if instances.len() < MOST_INSTANCES => instances.push(fresh),
        None => return Err(Errno::NOMEM),
    }
    Ok(())
}

/// rmdir in instances/.
pub(crate) fn remove(world: &mut World, number: u8) -> Answer {
    let slot = world.platform.trace.instances.get_mut(number as usize).filter(|_| number > 0);
    *slot.ok_or(Errno::PERM)? = None;
    let platform = &mut world.platform;
    platform.trace.review(&platform.chip);
    Ok(())
}
