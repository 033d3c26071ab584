//! tracefs: its directories and files, the streams, and the instances. `read` has the content of
//! the files, `write` the effects of writes.
//!
//! Function tracers and triggers are not modelled. Their files do not exist, as on a kernel built
//! without them.

mod read;
mod write;

use super::{Dir, Node, numbered};
use crate::{
    errno::{Answer, Errno},
    kernel::Kernel,
    trace::{Instance, Kind, OPTIONS, PAGE, line},
    world::World,
};

pub(crate) use self::{
    read::read,
    write::{truncate, write},
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
// The kernel's only bound is memory. Here a program that never removes its instances must not use
// up ours.
const MAX_INSTANCES: usize = 64;

/// Name and mode of the top-level files of every instance.
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
/// Files of tracefs itself that instances do not have.
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
    Kind::ALL.iter().copied().filter(move |kind| kind.is_in(kernel))
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

/// Files of this kernel: the size of sub-buffers is visible since 6.8.
fn top(kernel: Kernel) -> &'static [(&'static str, u16)] {
    if kernel < Kernel::V6_12 { &TOP[..TOP.len() - 1] } else { &TOP }
}

/// Looks up `name` in a directory.
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
                // The group of tracers' own records cannot be enabled or disabled.
                None if GROUPS[group as usize] == "ftrace" => None,
                None => file(What::Group(group, find(&GROUP, name)?)),
            }
        }
        Folder::Event(kind) => {
            let name = find(&EVENT, name)?;
            // ftrace's own events have no switch and no filter.
            let own = Kind::ALL[kind as usize] == Kind::Print;
            if own && name != "format" && name != "id" { None } else { file(What::Event(kind, name)) }
        }
        Folder::PerCpus => {
            // Offline CPUs keep their buffers and records.
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

/// Returns whether reading the file consumes its content.
pub(crate) fn is_stream(file: TraceFile) -> bool {
    matches!(file.what, What::Top("trace_pipe") | What::Cpu(_, "trace_pipe" | "trace_pipe_raw"))
}

/// Returns whether a stream has something to read.
pub(crate) fn is_ready(world: &World, file: TraceFile) -> bool {
    let Some(instance) = instance(world, file.instance) else { return true };
    match file.what {
        // The kernel wakes readers of pages when enough pages are full.
        What::Cpu(cpu, "trace_pipe_raw") => instance.rings.get(cpu as usize).is_none_or(|ring| {
            let (full, of) = ring.fill();
            !ring.is_empty() && full * 100 >= of * instance.percent as usize
        }),
        What::Cpu(cpu, _) => instance.rings.get(cpu as usize).is_none_or(|ring| !ring.is_empty()),
        _ => instance.rings.iter().any(|ring| !ring.is_empty()),
    }
}

/// Takes at most `limit` bytes of a stream; `EAGAIN` if it is empty.
pub(crate) fn take(world: &mut World, file: TraceFile, limit: usize) -> Answer<Vec<u8>> {
    let kernel = world.platform.kernel;
    if let What::Cpu(cpu, "trace_pipe_raw") = file.what {
        let instance = instance_mut(world, file.instance)?;
        let ring = instance.rings.get_mut(cpu as usize).ok_or(Errno::NODEV)?;
        let mut pages = Vec::new();
        // At least one page, however short the read: tracing_buffers_read() returns the remainder
        // with the next read.
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
        // Records are merged by time while reading, as in trace_find_next_entry().
        let oldest = rings
            .filter(|(cpu, _)| only.is_none_or(|only| only == *cpu))
            .filter_map(|(cpu, ring)| Some((ring.oldest()?, cpu)))
            .min();
        let Some((_, cpu)) = oldest else { break };
        let before = text.len();
        if let Some(record) = instance.rings[cpu].records().next() {
            line::line(&world.platform.trace, instance, cpu, record, &mut text);
        }
        // Only whole lines: this record stays in the buffer for the next read.
        if before > 0 && text.len() > limit {
            text.truncate(before);
            break;
        }
        instance_mut(world, file.instance)?.rings[cpu].pop();
    }
    if text.is_empty() { Err(Errno::AGAIN) } else { Ok(text.into_bytes()) }
}

/// mkdir in instances/.
pub(crate) fn make(world: &mut World, name: &str) -> Answer {
    // NAME_MAX.
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
        None if instances.len() < MAX_INSTANCES => instances.push(fresh),
        None => return Err(Errno::NOMEM),
    }
    Ok(())
}

/// rmdir in instances/.
pub(crate) fn remove(world: &mut World, number: u8) -> Answer {
    let slot = world.platform.trace.instances.get_mut(number as usize).filter(|_| number > 0);
    // Keep the other instances' numbers: programs have their files open.
    *slot.ok_or(Errno::PERM)? = None;
    let platform = &mut world.platform;
    platform.trace.review(&platform.chip);
    Ok(())
}
