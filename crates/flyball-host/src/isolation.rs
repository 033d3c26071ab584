//! The CPUs that the kernel keeps free of work: `nohz_full=` and `isolcpus=` of its command line,
//! parsed as the kernel parses them.

use crate::CpuList;

/// A limit above any CPU number that a kernel accepts: CONFIG_NR_CPUS is at most 8192 on x86.
const HIGHEST: u32 = 65_535;

/// The highest CPU that the machine can have, for `N` and `all` in lists of the command line.
#[derive(Debug, Clone, Copy)]
pub struct LastCpu {
    pub cpu: u32,
    /// True if it comes from cpu/possible, so that it is the maximum. Recordings may lack that
    /// file.
    pub is_exact: bool,
}

impl LastCpu {
    /// Reads it from the contents of cpu/possible, or of cpu/present if a recording lacks
    /// cpu/possible.
    pub fn parse(possible: Option<&str>, present: Option<&str>) -> Option<LastCpu> {
        let last = |list: &str| list.parse::<CpuList>().ok()?.iter().next_back();
        let exact = possible.and_then(last).map(|cpu| LastCpu { cpu, is_exact: true });
        exact.or_else(|| present.and_then(last).map(|cpu| LastCpu { cpu, is_exact: false }))
    }
}

/// Parses a list as bitmap_parselist() in lib/bitmap-str.c does: `3,5-7`, `all`, `N` for the last
/// CPU, and `0-31:2/4` for two of every four. `None` if the kernel refuses the list, which it does
/// as a whole.
pub fn kernel_list(text: &str, last: LastCpu) -> Option<CpuList> {
    // `parse` would accept a plus sign.
    let digits = |text: &str| {
        if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse::<u32>().ok() } else { None }
    };
    // bitmap_getnum() takes `N` only as a capital.
    let number = |text: &str| if text == "N" { Some(last.cpu) } else { digits(text) };
    let mut cpus = CpuList::new();
    for part in text.split([',', ' ', '\n']).filter(|part| !part.is_empty()) {
        let (range, pattern) = part.split_once(':').map_or((part, None), |(range, of)| (range, Some(of)));
        let (from, to) = match range.split_once('-') {
            // bitmap_parse_region() compares `all` without case.
            _ if range.eq_ignore_ascii_case("all") => (0, last.cpu),
            Some((from, to)) => (number(from)?, number(to)?),
            None => (number(range)?, number(range)?),
        };
        // bitmap_check_region() refuses ranges that run backwards, and CPUs from nr_cpu_ids on.
        if from > to || (last.is_exact && to > last.cpu) {
            return None;
        }
        let to = to.min(HIGHEST);
        let Some(pattern) = pattern else {
            cpus.extend(from..=to);
            continue;
        };
        let (used, group) = pattern.split_once('/')?;
        let (used, group) = (number(used)?, number(group)?);
        if group == 0 || used > group {
            return None;
        }
        cpus.extend((from..=to).filter(|cpu| (cpu - from) % group < used));
    }
    Some(cpus)
}

/// Kinds of work that the kernel keeps away from a list of CPUs (`enum hk_type` in
/// kernel/sched/isolation.c). Only some are needed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Tick,
    Domain,
    ManagedInterrupts,
}

/// The CPUs that the kernel keeps free of work, with the evidence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Isolation {
    /// CPUs without a tick while one task runs: `nohz_full=`, or `isolcpus=nohz,`. Their RCU
    /// callbacks run elsewhere, with or without `rcu_nocbs=` (rcu_init_nohz() in
    /// kernel/rcu/tree_nocb.h, since 3.10).
    pub tickless: CpuList,
    /// CPUs that the scheduler excludes from load balancing: `isolcpus=`, without flags or with
    /// `domain`.
    pub isolated: CpuList,
    /// The words of the command line that isolate them.
    pub words: Vec<String>,
}

impl Isolation {
    /// Parses `/proc/cmdline`.
    pub fn parse(text: &str, last: LastCpu) -> Isolation {
        let mut isolation = Isolation::default();
        let mut taken: Vec<(Purpose, CpuList)> = Vec::new();
        for word in command_line_words(text) {
            let Some((name, value)) = word.split_once('=') else { continue };
            let value = value.trim_matches('"');
            let (kept, list) = match name {
                "nohz_full" => (vec![Purpose::Tick], value),
                "isolcpus" => match isolcpus(value) {
                    Some(meant) => meant,
                    None => continue,
                },
                "rcu_nocbs" if kernel_list(value, last).is_some() => {
                    isolation.words.push(word.to_owned());
                    continue;
                }
                _ => continue,
            };
            let Some(mut cpus) = kernel_list(list, last) else { continue };
            // One CPU must do the work of the others: if all are listed, the boot CPU
            // (housekeeping_setup()).
            if cpus.len() as u64 > u64::from(last.cpu) {
                cpus = cpus.difference(&CpuList::from_iter([0]));
            }
            // housekeeping_setup() refuses a second list for the same purpose if it differs from
            // the first.
            let differs = |kept: &Purpose| taken.iter().any(|(other, list)| other == kept && *list != cpus);
            if cpus.is_empty() || kept.iter().any(differs) {
                continue;
            }
            for kept in kept {
                match kept {
                    Purpose::Tick => isolation.tickless = cpus.clone(),
                    Purpose::Domain => isolation.isolated = cpus.clone(),
                    Purpose::ManagedInterrupts => {}
                }
                taken.push((kept, cpus.clone()));
            }
            // Keep only words that were understood, since they are printed as evidence.
            isolation.words.push(word.to_owned());
        }
        isolation
    }

    /// Replaces the command line's tickless CPUs with the kernel's actual ones:
    /// /sys/devices/system/cpu/nohz_full. A kernel without CONFIG_NO_HZ_FULL accepts the option but
    /// has no tickless CPU.
    #[must_use]
    pub fn with_tickless(mut self, list: &str) -> Isolation {
        if let Some(cpus) = reported(list) {
            self.tickless = cpus;
        }
        self
    }

    /// Keeps only the tickless CPUs that `wanted` selects.
    #[must_use]
    pub fn only(mut self, wanted: impl Fn(u32) -> bool) -> Isolation {
        self.tickless = self.tickless.iter().filter(|cpu| wanted(*cpu)).collect();
        self
    }
}

/// Returns the CPUs of cpu/nohz_full or cpu/isolated.
pub fn reported(list: &str) -> Option<CpuList> {
    match list.trim() {
        // print_cpus_nohz_full() in drivers/base/cpu.c prints an unallocated mask, even in 6.12.
        "(null)" => Some(CpuList::new()),
        list => list.parse().ok(),
    }
}

/// Returns the words of a command line. A quoted part may contain blanks (next_arg() in
/// lib/cmdline.c).
pub fn command_line_words(text: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |c: char| {
        quoted ^= c == '"';
        c.is_whitespace() && !quoted
    })
    .filter(|word| !word.is_empty())
}

/// Parses `isolcpus=[flag-list,]cpu-list` as housekeeping_isolcpus_setup() does. Every word that
/// starts with a letter is a flag, so `all` and a leading `N` isolate nothing. Returns `None` for
/// these, and for a flag with other characters.
fn isolcpus(value: &str) -> Option<(Vec<Purpose>, &str)> {
    let mut kept = Vec::new();
    let mut rest = value;
    while rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
        let (flag, behind) = rest.split_once(',')?;
        match flag {
            "nohz" => kept.push(Purpose::Tick),
            "domain" => kept.push(Purpose::Domain),
            "managed_irq" => kept.push(Purpose::ManagedInterrupts),
            _ if flag.chars().all(|c| c.is_ascii_alphabetic() || c == '_') => {}
            _ => return None,
        }
        rest = behind;
    }
    if kept.is_empty() {
        kept.push(Purpose::Domain);
    }
    Some((kept, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: LastCpu = LastCpu { cpu: 15, is_exact: true };

    fn list(text: &str) -> Option<String> {
        kernel_list(text, LAST).map(|cpus| cpus.to_string())
    }

    fn of(text: &str) -> Isolation {
        Isolation::parse(text, LAST)
    }

    #[test]
    fn lists_are_read_as_the_kernel_reads_them() {
        assert_eq!(list("3,5-7").as_deref(), Some("3,5-7"));
        assert_eq!(list("all").as_deref(), Some("0-15"));
        assert_eq!(list("1-N").as_deref(), Some("1-15"));
        assert_eq!(list("N").as_deref(), Some("15"));
        assert_eq!(list("0-9:2/4").as_deref(), Some("0,1,4,5,8,9"));
        assert_eq!(list("ALL:1/N").as_deref(), Some("0,15"));
        assert_eq!(list("").as_deref(), Some(""));
        for wrong in ["x", "3-", "1:2", "0-9:3/2", "0-9:0/0", "-1", "7-3", "+3", "n"] {
            assert_eq!(list(wrong), None, "{wrong}");
        }
        // ERANGE applies to the whole list. If only the present CPUs are known, there may be more.
        assert_eq!(list("3,12-40"), None);
        let present = LastCpu { is_exact: false, ..LAST };
        assert_eq!(kernel_list("3,12-17", present).unwrap().to_string(), "3,12-17");
        assert!(kernel_list("0-4000000000", present).unwrap().len() <= 65_536);
    }

    #[test]
    fn the_last_cpu_is_that_of_the_possible_ones() {
        let last =
            |possible, present| LastCpu::parse(possible, present).map(|last| (last.cpu, last.is_exact));
        assert_eq!(last(Some("0-7,16"), Some("0-3")), Some((16, true)));
        assert_eq!(last(None, Some("0-3\n")), Some((3, false)));
        assert_eq!(last(None, None), None);
    }

    #[test]
    fn command_lines_say_what_is_isolated() {
        let found = of("quiet nohz_full=3,7 isolcpus=managed_irq,domain,3,7 rcu_nocbs=3,7\n");
        assert_eq!((found.tickless.to_string(), found.isolated.to_string()), ("3,7".into(), "3,7".into()));
        assert_eq!(found.words, ["nohz_full=3,7", "isolcpus=managed_irq,domain,3,7", "rcu_nocbs=3,7"]);
        assert!(of("isolcpus=2-4 nohz=off").tickless.is_empty());
        // The first parameter counts. A quoted value is one word.
        assert_eq!(of("nohz_full=1 nohz_full=2 dyndbg=\"file x nohz_full=9\"").tickless.to_string(), "1");
        assert_eq!(of("nohz_full=broken"), Isolation::default());
        assert_eq!(of("nohz_full=1-3").with_tickless("(null)\n").tickless.to_string(), "");
        assert_eq!(of("nohz_full=1-3").with_tickless("2\n").tickless.to_string(), "2");
        assert_eq!(of("nohz_full=1-5").only(|cpu| cpu != 3).tickless.to_string(), "1,2,4,5");
        // The boot CPU keeps the time for the others.
        assert_eq!(of("nohz_full=all").tickless.to_string(), "1-15");
    }

    #[test]
    fn flags_of_isolcpus_say_what_is_kept_away() {
        let both = |text: &str| {
            let found = of(text);
            (found.tickless.to_string(), found.isolated.to_string())
        };
        let pair = |tickless: &str, isolated: &str| (tickless.to_owned(), isolated.to_owned());
        assert_eq!(both("isolcpus=2-4"), pair("", "2-4"));
        assert_eq!(both("isolcpus=nohz,2-4"), pair("2-4", ""));
        assert_eq!(both("isolcpus=nohz,domain,2-N"), pair("2-15", "2-15"));
        assert_eq!(both("isolcpus=managed_irq,2"), pair("", ""));
        assert_eq!(both("isolcpus=later,2"), pair("", "2"));
        // A letter begins a flag, even in `all` and `N`.
        for nothing in ["isolcpus=all", "isolcpus=N", "isolcpus=domain,N", "isolcpus=x-y,2", "isolcpus=2,99"]
        {
            assert_eq!(both(nothing), pair("", ""), "{nothing}");
        }
        assert!(of("isolcpus=all").words.is_empty());
        // A second list for the same purpose must be equal. A list for another purpose may differ.
        assert_eq!(both("isolcpus=nohz,2 nohz_full=3"), pair("2", ""));
        assert_eq!(both("isolcpus=2 nohz_full=3"), pair("3", "2"));
    }
}
