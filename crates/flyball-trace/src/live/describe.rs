//! The content of a trace.dat file except for its pages, read from the machine's kernel.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use flyball_host::{
    HostError,
    tracefs::{Instance, Tracefs},
};

use crate::{comm::Comm, dat::Description, format::EventFormat, machine::Machine, tasks::Tasks};

/// The origin of a recording, as stated in its file.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) uname: String,
    pub(super) writer: String,
    pub(super) machine: Option<Machine>,
    pub(super) trace_id: u64,
}

/// Names of tasks, collected while the kernel still has them.
#[derive(Debug, Default)]
pub(super) struct TaskNames(Mutex<HashMap<i32, Comm>>);

impl TaskNames {
    /// Adds the names that the kernel currently has, and returns their number.
    pub(super) fn look(&self, tracefs: &Tracefs) -> usize {
        // Names are optional: without them tasks are printed as <...>.
        let Ok(bytes) = tracefs.read("saved_cmdlines") else { return 0 };
        let found = Tasks::parse(&bytes);
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The newest name wins, because a number may have been reused.
        names.extend(found.iter());
        found.len()
    }

    pub(super) fn name(&self, pid: i32) -> Comm {
        if pid == 0 {
            return Comm::new(b"<idle>");
        }
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.get(&pid).copied().unwrap_or_else(|| Comm::new(b"<...>"))
    }

    /// Prints the names in the format of `saved_cmdlines`.
    pub(super) fn text(&self) -> Vec<u8> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names: Vec<(i32, Comm)> = names.iter().map(|(pid, name)| (*pid, *name)).collect();
        names.sort();
        let mut text = Vec::new();
        for (pid, name) in names {
            text.extend_from_slice(pid.to_string().as_bytes());
            text.push(b' ');
            text.extend_from_slice(name.bytes());
            text.push(b'\n');
        }
        text
    }
}

/// The format files of the groups in `events`, group by group.
fn format_files(tracefs: &Tracefs, events: &[String]) -> Vec<(String, Vec<Vec<u8>>)> {
    let mut groups: Vec<(String, Vec<Vec<u8>>)> = Vec::new();
    for event in events {
        let (group, name) =
            event.split_once('/').map_or((event.as_str(), None), |(group, name)| (group, Some(name)));
        let names = match name {
            Some(name) => vec![name.to_owned()],
            None => tracefs.directories(&format!("events/{group}")).unwrap_or_default(),
        };
        let at = groups.iter().position(|(known, _)| known == group).unwrap_or_else(|| {
            groups.push((group.to_owned(), Vec::new()));
            groups.len() - 1
        });
        for name in names {
            if let Ok(bytes) = tracefs.read(&format!("events/{group}/{name}/format"))
                // Skip duplicates: an event may be named both alone and with its group.
                && !groups[at].1.contains(&bytes)
            {
                groups[at].1.push(bytes);
            }
        }
    }
    groups
}

/// The layouts of `events`.
pub(super) fn formats(tracefs: &Tracefs, events: &[String]) -> Vec<EventFormat> {
    let groups = format_files(tracefs, events);
    let parse = |group: &str, bytes: &[u8]| EventFormat::parse(group, bytes).ok();
    groups
        .iter()
        .flat_map(|(group, files)| files.iter().filter_map(move |bytes| parse(group, bytes)))
        .collect()
}

/// Everything except the names of tasks and the statistics.
pub(super) fn description(
    tracefs: &Tracefs,
    instance: &Instance,
    events: &[String],
    origin: &Origin,
) -> Result<Description, HostError> {
    let mut tracers = tracefs.directories("events/ftrace").unwrap_or_default();
    tracers.retain(|name| !name.is_empty());
    Ok(Description {
        page_size: instance.page_size() as u32,
        header_page: tracefs.read("events/header_page")?,
        header_event: tracefs.read("events/header_event")?,
        ftrace_formats: tracers
            .iter()
            // Formats of the tracers' own records. None is recorded here, but trace-cmd expects
            // this part.
            .filter_map(|name| tracefs.read(&format!("events/ftrace/{name}/format")).ok())
            .collect(),
        event_formats: format_files(tracefs, events),
        // Root's symbol addresses do not belong in a file that may be shared.
        kallsyms: Vec::new(),
        printk: tracefs.read("printk_formats").unwrap_or_default(),
        cmdlines: Vec::new(),
        clock: String::from_utf8_lossy(&instance.read("trace_clock")?).into_owned(),
        uname: origin.uname.clone(),
        writer: origin.writer.clone(),
        stats: Vec::new(),
        cpus: tracefs.cpu_count(),
        machine: origin.machine.clone(),
        trace_id: origin.trace_id,
    })
}
