//! Which CPUs the kernel leaves alone: `nohz_full=`, `isolcpus=` and `rcu_nocbs=` of its command line.

use std::fmt;

/// CPUs, as the kernel's command line lists them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuRanges(Vec<(u32, u32)>);

impl CpuRanges {
    /// Reads a list as bitmap_parselist() in lib/bitmap-str.c does: `3,5-7`, `all`, `N` for the last CPU, and
    /// `0-31:2/4` for two of every four. `last` is the highest CPU that the machine can have. `None` for what is not
    /// a list.
    pub fn parse(text: &str, last: u32) -> Option<CpuRanges> {
        let number = |text: &str| if text == "N" { Some(last) } else { text.parse().ok() };
        let mut ranges = Vec::new();
        for part in text.trim().split([',', ' ', '\n']).filter(|part| !part.is_empty()) {
            let (range, pattern) = part.split_once(':').map_or((part, None), |(range, of)| (range, Some(of)));
            let (from, to) = match range.split_once('-') {
                // bitmap_parse_region() compares `all` without case, and only `N` as a capital.
                _ if range.eq_ignore_ascii_case("all") => (0, last),
                Some((from, to)) => (number(from)?, number(to)?),
                None => (number(range)?, number(range)?),
            };
            // bitmap_check_region() refuses the whole list.
            if from > to {
                return None;
            }
            // It also refuses CPUs beyond `nr_cpu_ids`. `last` may be that of the present CPUs, in recordings that lack
            // the possible ones, so these are only left out.
            let to = to.min(last);
            if from > to {
                continue;
            }
            match pattern {
                None => ranges.push((from, to)),
                Some(pattern) => {
                    let (used, group) = pattern.split_once('/')?;
                    let (used, group): (u32, u32) = (used.parse().ok()?, group.parse().ok()?);
                    if used == 0 || used > group {
                        return None;
                    }
                    let starts = (from..=to).step_by(group as usize);
                    ranges.extend(starts.map(|start| (start, start.saturating_add(used - 1).min(to))));
                }
            }
        }
        ranges.sort_unstable();
        Some(CpuRanges(ranges))
    }

    /// Whether a CPU is one of them.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.iter().any(|(from, to)| (*from..=*to).contains(&cpu))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, those in several ranges more than once.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().flat_map(|(from, to)| *from..=*to)
    }

    pub(crate) fn of(cpus: impl Iterator<Item = u32>) -> CpuRanges {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for cpu in cpus {
            match ranges.last_mut() {
                Some((_, to)) if to.saturating_add(1) == cpu => *to = cpu,
                Some((_, to)) if *to == cpu => {}
                _ => ranges.push((cpu, cpu)),
            }
        }
        CpuRanges(ranges)
    }
}

impl fmt::Display for CpuRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (from, to)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            if from == to { write!(f, "{comma}{from}")? } else { write!(f, "{comma}{from}-{to}")? }
        }
        Ok(())
    }
}

/// Which CPUs the kernel leaves alone, and how that is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Isolation {
    /// CPUs without a tick while one task runs: `nohz_full=`, or `isolcpus=nohz,`.
    pub tickless: CpuRanges,
    /// CPUs that the scheduler balances nothing onto: `isolcpus=`.
    pub isolated: CpuRanges,
    /// CPUs whose RCU callbacks run elsewhere: `rcu_nocbs=`; tickless ones are among them without being named.
    pub offloaded: CpuRanges,
    /// The words of the command line that say so.
    pub words: Vec<String>,
}

impl Isolation {
    /// What `/proc/cmdline` says, on a machine whose highest possible CPU is `last`.
    pub fn of_command_line(text: &str, last: u32) -> Isolation {
        let mut isolation = Isolation::default();
        for word in words(text) {
            let Some((name, value)) = word.split_once('=') else { continue };
            let value = value.trim_matches('"');
            match name {
                // housekeeping_setup() in kernel/sched/isolation.c refuses a second list that differs from the first.
                "nohz_full" if isolation.tickless.is_empty() => {
                    let Some(cpus) = CpuRanges::parse(value, last) else { continue };
                    isolation.tickless = cpus;
                }
                "isolcpus" if isolation.isolated.is_empty() => {
                    let (flags, list) = isolcpus(value);
                    let Some(cpus) = CpuRanges::parse(list, last) else { continue };
                    // housekeeping_isolcpus_setup() takes `nohz` as nohz_full= for the same CPUs.
                    if flags.contains(&"nohz") && isolation.tickless.is_empty() {
                        isolation.tickless = cpus.clone();
                    }
                    isolation.isolated = cpus;
                }
                "rcu_nocbs" => {
                    let Some(cpus) = CpuRanges::parse(value, last) else { continue };
                    isolation.offloaded = cpus;
                }
                _ => continue,
            }
            // Only words that were understood: they are printed as evidence.
            isolation.words.push(word.to_owned());
        }
        isolation
    }

    /// Replaces what the command line asks for by what the kernel made of it: /sys/devices/system/cpu/nohz_full. A
    /// kernel without CONFIG_NO_HZ_FULL takes the option and has no tickless CPU.
    #[must_use]
    pub fn with_tickless(mut self, list: &str, last: u32) -> Isolation {
        // print_cpus_nohz_full() in drivers/base/cpu.c prints a mask that was never allocated, in 6.12 too.
        let list = if list.trim() == "(null)" { "" } else { list };
        if let Some(cpus) = CpuRanges::parse(list, last) {
            self.tickless = cpus;
        }
        self
    }

    /// Leaves only the CPUs that were recorded or are asked about.
    #[must_use]
    pub fn only(mut self, wanted: impl Fn(u32) -> bool) -> Isolation {
        self.tickless = CpuRanges::of(self.tickless.iter().filter(|cpu| wanted(*cpu)));
        self
    }
}

/// The words of a command line; a quoted part may hold blanks (next_arg() in lib/cmdline.c).
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |c: char| {
        quoted ^= c == '"';
        c.is_whitespace() && !quoted
    })
    .filter(|word| !word.is_empty())
}

/// `isolcpus=[flag-list,]cpu-list`: where the flags end.
fn isolcpus(value: &str) -> (Vec<&str>, &str) {
    let mut flags = Vec::new();
    let mut rest = value;
    while rest.starts_with(|c: char| c.is_ascii_alphabetic())
        && !rest.starts_with('N')
        && !rest.starts_with("all")
    {
        let (flag, behind) = rest.split_once(',').unwrap_or((rest, ""));
        // `nohz`, `domain` and `managed_irq`; without any of them the list means `domain`.
        flags.push(flag);
        rest = behind;
    }
    (flags, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Option<String> {
        CpuRanges::parse(text, 15).map(|cpus| cpus.to_string())
    }

    #[test]
    fn lists_are_read_as_the_kernel_reads_them() {
        assert_eq!(list("3,5-7").as_deref(), Some("3,5-7"));
        assert_eq!(list("all").as_deref(), Some("0-15"));
        assert_eq!(list("1-N").as_deref(), Some("1-15"));
        assert_eq!(list("N").as_deref(), Some("15"));
        assert_eq!(list("0-9:2/4").as_deref(), Some("0-1,4-5,8-9"));
        assert_eq!(list("12-40,99").as_deref(), Some("12-15"));
        assert_eq!(list("").as_deref(), Some(""));
        for wrong in ["x", "3-", "1:2", "0-9:3/2", "0-9:0/0", "-1", "7-3"] {
            assert_eq!(list(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn command_lines_say_what_is_isolated() {
        let of = |text: &str| Isolation::of_command_line(text, 15);
        let found = of("quiet nohz_full=3,7 isolcpus=managed_irq,domain,3,7 rcu_nocbs=3,7\n");
        assert_eq!(found.tickless.to_string(), "3,7");
        assert_eq!((found.isolated.to_string(), found.offloaded.to_string()), ("3,7".into(), "3,7".into()));
        assert_eq!(found.words, ["nohz_full=3,7", "isolcpus=managed_irq,domain,3,7", "rcu_nocbs=3,7"]);
        assert_eq!(of("isolcpus=nohz,2-4").tickless.to_string(), "2-4");
        assert!(of("isolcpus=2-4 nohz=off").tickless.is_empty());
        // The first counts; a quoted value is one word.
        assert_eq!(of("nohz_full=1 nohz_full=2 dyndbg=\"file x nohz_full=9\"").tickless.to_string(), "1");
        assert_eq!(of("nohz_full=broken"), Isolation::default());
        assert_eq!(of("nohz_full=1-3").with_tickless("(null)\n", 15).tickless.to_string(), "");
        assert_eq!(of("nohz_full=1-3").with_tickless("2\n", 15).tickless.to_string(), "2");
        assert_eq!(of("nohz_full=1-5").only(|cpu| cpu != 3).tickless.to_string(), "1-2,4-5");
    }
}
