//! /proc/interrupts and /proc/softirqs: what interrupted each CPU.

use std::collections::BTreeMap;

use flyball_host::{CpuList, Host};

/// What kind of source woke a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, schemars::JsonSchema, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// The local timer: the end of a sleep, or the tick.
    Timer,
    /// Another CPU put a task on this one.
    Reschedule,
    /// Another CPU ran a function on this one: TLB shootdowns, queued wake-ups, register reads.
    FunctionCall,
    /// A device.
    Device,
    /// Another interrupt vector of the processor.
    Other,
    /// A thread that woke another one.
    Thread,
    /// Polling reached its time limit, after which the governor chooses again.
    EndOfPolling,
    /// The trace does not show it.
    NotSeen,
}

/// The counts in /proc/interrupts or /proc/softirqs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interrupts {
    cpus: Vec<u32>,
    /// By label: the description after the counts, and the counts in the order of the columns.
    lines: BTreeMap<String, (String, Vec<u64>)>,
}

/// Lines that are also counted in another line: TLB shootdowns are function calls
/// (arch/x86/mm/tlb.c), and performance counters raise NMIs.
const COUNTED_TWICE: [&str; 2] = ["TLB", "PMI"];

/// Kind, name and count of a source.
pub(crate) type Counted = (SourceKind, String, u64);

impl Interrupts {
    pub(crate) fn read(host: &dyn Host) -> Interrupts {
        host.read("/proc/interrupts").map(|text| parse_interrupts(&text)).unwrap_or_default()
    }

    pub(crate) fn read_soft(host: &dyn Host) -> Interrupts {
        host.read("/proc/softirqs").map(|text| parse_interrupts(&text)).unwrap_or_default()
    }

    /// Returns whether the kernel counts the interrupts by which CPUs wake each other.
    pub(crate) fn counts_wake_ups(&self) -> bool {
        self.lines.contains_key("RES")
    }

    /// Returns the number of sources.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Counts the interrupts of some CPUs since `before`: by source, the most frequent first, and
    /// by CPU.
    pub(crate) fn since(&self, before: &Interrupts, cpus: &CpuList) -> (Vec<Counted>, BTreeMap<u32, u64>) {
        let mut found = Vec::new();
        let mut by_cpu = BTreeMap::new();
        // A CPU that came online in between has a new column.
        let columns: Vec<(u32, usize, usize)> = self
            .cpus
            .iter()
            .enumerate()
            .filter(|(_, cpu)| cpus.contains(**cpu))
            .filter_map(|(now, cpu)| Some((*cpu, now, before.cpus.iter().position(|other| other == cpu)?)))
            .collect();
        for (label, (words, counts)) in &self.lines {
            let Some((_, earlier)) = before.lines.get(label) else { continue };
            if COUNTED_TWICE.contains(&label.as_str()) {
                continue;
            }
            let mut sum = 0;
            for (cpu, now, then) in &columns {
                let count = counts[*now].saturating_sub(earlier[*then]);
                *by_cpu.entry(*cpu).or_default() += count;
                sum += count;
            }
            if sum > 0 {
                let (kind, name) = named(label, words);
                found.push((kind, name, sum));
            }
        }
        found.sort_by(|one, other| other.2.cmp(&one.2).then_with(|| one.1.cmp(&other.1)));
        (found, by_cpu)
    }
}

/// The kind and name of a line.
fn named(label: &str, words: &str) -> (SourceKind, String) {
    match label {
        "LOC" => (SourceKind::Timer, "local timer".to_owned()),
        "RES" => (SourceKind::Reschedule, "reschedule IPI".to_owned()),
        "CAL" => (SourceKind::FunctionCall, "function-call IPI".to_owned()),
        _ if label.bytes().all(|byte| byte.is_ascii_digit()) => {
            // Chip, hardware number with the trigger, then the driver's name for it, which may
            // contain spaces (show_interrupts() in kernel/irq/proc.c).
            let name: Vec<&str> = words.split_whitespace().skip(2).collect();
            let name = if name.is_empty() { words.to_owned() } else { name.join(" ") };
            (SourceKind::Device, format!("{name} (IRQ {label})"))
        }
        _ if words.is_empty() => (SourceKind::Other, label.to_owned()),
        _ => (SourceKind::Other, words.to_lowercase()),
    }
}

/// Parses /proc/interrupts or /proc/softirqs: a column for each online CPU, then a line for each
/// source. Skips lines without counts.
pub fn parse_interrupts(text: &str) -> Interrupts {
    let mut lines = text.lines();
    let cpus: Vec<u32> = lines
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .map_while(|word| word.strip_prefix("CPU")?.parse().ok())
        .collect();
    let mut found = Interrupts { lines: BTreeMap::new(), cpus };
    for line in lines {
        let Some((label, mut rest)) = line.split_once(':') else { continue };
        let mut counts = Vec::new();
        for _ in &found.cpus {
            rest = rest.trim_start();
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            // ERR and MIS have only one count, which belongs to no CPU.
            let Ok(count) = rest[..end].parse() else { break };
            counts.push(count);
            rest = &rest[end..];
        }
        if counts.len() == found.cpus.len() && !counts.is_empty() {
            found.lines.insert(label.trim().to_owned(), (rest.trim().to_owned(), counts));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "           CPU0       CPU2       \n 36:          5     248373 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0\n\
                          LOC:     100     217356   Local timer interrupts\nRES:      1      2   Rescheduling interrupts\n\
                          TLB:      1      2   TLB shootdowns\nERR:          0\nHYP:  1 1   Hypervisor callback interrupts\n";

    #[test]
    fn differences_have_names_and_kinds() {
        let after = BEFORE
            .replace("248373", "248383")
            .replace("  100 ", "  400 ")
            .replace("TLB:      1", "TLB:    9");
        let (before, after) = (parse_interrupts(BEFORE), parse_interrupts(&after));
        let (both, by_cpu) = after.since(&before, &"0-3".parse().unwrap());
        assert_eq!(
            both,
            [
                (SourceKind::Timer, "local timer".to_owned(), 300),
                (SourceKind::Device, "virtio1-req.0 (IRQ 36)".to_owned(), 10)
            ]
        );
        assert_eq!(by_cpu, BTreeMap::from([(0, 300), (2, 10)]));
        assert!(before.counts_wake_ups() && !before.lines.contains_key("ERR"));
    }

    #[test]
    fn a_cpu_that_came_online_counts_from_there() {
        let before = parse_interrupts("  CPU0\nLOC: 5   Local timer interrupts\n");
        let after = parse_interrupts("  CPU0  CPU1\nLOC: 6 900   Local timer interrupts\n");
        assert_eq!(after.since(&before, &"0-1".parse().unwrap()).0[0].2, 1);
    }

    #[test]
    fn other_text_has_no_lines() {
        for text in
            ["", "\n", "CPU0\n:", "CPU0 CPU1\nLOC: 1\nRES: x 2\n", "LOC: 1 2\n", "CPU99999999999\nLOC: 1"]
        {
            assert!(parse_interrupts(text).is_empty(), "{text:?}");
        }
    }
}
