//! Formats lists of writes. Equal writes to many CPUs, policies, cores or power domains share a
//! line. `plan`, `restore -n` and the plans of Speed Select use it.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Write as _,
};

use flyball_host::CpuList;
use flyball_sst::setting::Field;

use crate::Location;

/// One write: its location, and the text that follows on its line.
struct Write {
    domain: Option<(u8, u8)>,
    head: String,
    number: Option<u32>,
    foot: String,
}

impl Write {
    /// Creates the write to `location`, followed by `tail`.
    fn new(location: &Location, tail: &str) -> Write {
        let (domain, head, number, foot) = match location {
            Location::SpeedSelect(setting) => {
                let (head, number) = field_label(setting.field);
                (Some((setting.place.package, setting.place.domain)), head, number, "")
            }
            Location::Msr { cpu, register, .. } => {
                (None, format!("MSR {register:#x} of CPU "), Some(*cpu), "")
            }
            Location::File(path) => match numbered(path) {
                Some((before, number, after)) => (None, before.to_owned(), Some(number), after),
                None => (None, path.clone(), None, ""),
            },
            // A number in a control group's path is not a CPU's.
            Location::Partition(_) | Location::Command(_) => (None, location.to_string(), None, ""),
        };
        Write { domain, head, number, foot: format!("{foot}{tail}") }
    }
}

/// Returns a description of a Speed Select field, and the number of its core if it has one.
fn field_label(field: Field) -> (String, Option<u32>) {
    let words = match field {
        Field::ClosMin(class) => format!("class {class} minimum MHz"),
        Field::ClosMax(class) => format!("class {class} maximum MHz"),
        Field::ClosWeight(class) => format!("class {class} weight"),
        Field::ClosEpp(class) => format!("class {class} EPP"),
        Field::Class(core) => return ("class of core ".to_owned(), Some(core.into())),
        Field::Priority => "core-power priority".to_owned(),
        Field::TurboLimits => "turbo ratio limits".to_owned(),
        Field::Partition => "CPUs of the partition".to_owned(),
        other => other.name().to_owned(),
    };
    (words, None)
}

/// Splits a path at the number of its CPU or policy.
fn numbered(path: &str) -> Option<(&str, u32, &str)> {
    let mut start = 0;
    for part in path.split('/') {
        for prefix in ["policy", "cpu"] {
            // `cpufreq` and `cpuidle` also begin with `cpu`, but without a number.
            let digits = part.strip_prefix(prefix).filter(|digits| !digits.is_empty());
            if let Some(Ok(number)) = digits.map(str::parse) {
                let at = start + prefix.len();
                return Some((&path[..at], number, &path[start + part.len()..]));
            }
        }
        start += part.len() + 1;
    }
    None
}

/// Adds `item` to the group of `key`. Groups stay in the order of their first items.
fn add<K: Clone + Eq + std::hash::Hash, T>(
    groups: &mut Vec<(K, Vec<T>)>,
    place: &mut HashMap<K, usize>,
    key: K,
    item: T,
) {
    match place.get(&key) {
        Some(&at) => groups[at].1.push(item),
        None => {
            place.insert(key.clone(), groups.len());
            groups.push((key, vec![item]));
        }
    }
}

/// Formats writes, each with the text that follows on its line, as lines indented by two. Equal
/// writes share a line unless `each` is set.
pub fn lines<'l>(writes: impl IntoIterator<Item = (&'l Location, String)>, each: bool) -> String {
    let writes: Vec<Write> = writes.into_iter().map(|(location, tail)| Write::new(location, &tail)).collect();
    let mut out = String::new();
    if each {
        for write in &writes {
            let number = write.number.map(|number| number.to_string()).unwrap_or_default();
            let _ = writeln!(out, "  {}{}{number}{}", domains_label(&[write.domain]), write.head, write.foot);
        }
        return out;
    }
    // First combine the numbers of CPUs, policies and cores, then the power domains with equal
    // lines.
    let (mut by_number, mut place) = (Vec::new(), HashMap::new());
    for (index, write) in writes.iter().enumerate() {
        // Writes with neither a number nor a power domain never share a line.
        let alone = (write.number.is_none()).then_some(index).filter(|_| write.domain.is_none());
        add(&mut by_number, &mut place, (write.domain, &write.head, &write.foot, alone), write.number);
    }
    let (mut groups, mut place) = (Vec::new(), HashMap::new());
    for ((domain, head, foot, alone), numbers) in by_number {
        add(&mut groups, &mut place, (head, numbers, foot, alone), domain);
    }
    for ((head, numbers, foot, _), domains) in groups {
        let list = match numbers[..] {
            [None, ..] => String::new(),
            [Some(one)] => one.to_string(),
            _ => format!("{{{}}}", numbers.iter().flatten().copied().collect::<CpuList>()),
        };
        let count = numbers.len() * domains.len();
        let count = if count > 1 { format!("  ({count} writes)") } else { String::new() };
        let _ = writeln!(out, "  {}{head}{list}{foot}{count}", domains_label(&domains));
    }
    out
}

/// Returns the power domains for the start of a line. If they are all combinations of some packages
/// and some domains, these are two lists. Otherwise each domain is named.
fn domains_label(domains: &[Option<(u8, u8)>]) -> String {
    let all: BTreeSet<(u8, u8)> = domains.iter().flatten().copied().collect();
    let list = |numbers: &mut dyn Iterator<Item = u8>| numbers.map(u32::from).collect::<CpuList>();
    let packages = list(&mut all.iter().map(|(package, _)| *package));
    let parts = list(&mut all.iter().map(|(_, part)| *part));
    if all.is_empty() {
        String::new()
    // Only then do the two lists mean exactly these domains, and no other combinations.
    } else if packages.len() * parts.len() == all.len() {
        let several = |list: &CpuList| if list.len() > 1 { format!("{{{list}}}") } else { list.to_string() };
        format!("package {} domain {}: ", several(&packages), several(&parts))
    } else {
        let names: Vec<String> = all.iter().map(|(package, part)| format!("{package}.{part}")).collect();
        format!("domain {{{}}}: ", names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(locations: &[&str]) -> String {
        let locations: Vec<Location> = locations.iter().map(|text| text.parse().unwrap()).collect();
        lines(locations.iter().map(|location| (location, "  0 -> 1".to_owned())), false)
    }

    #[test]
    fn equal_writes_of_many_places_are_one_line() {
        let paths: Vec<String> = (0..9).map(|n| format!("/sys/cpufreq/policy{n}/min")).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        assert_eq!(text(&paths), "  /sys/cpufreq/policy{0-8}/min  0 -> 1  (9 writes)\n");
        assert_eq!(text(&paths[..2]), "  /sys/cpufreq/policy{0,1}/min  0 -> 1  (2 writes)\n");
        assert_eq!(text(&paths[..1]), "  /sys/cpufreq/policy0/min  0 -> 1\n");
        assert_eq!(text(&["/sys/smt/control"]), "  /sys/smt/control  0 -> 1\n");
    }

    #[test]
    fn power_domains_fold_after_cores() {
        let mut all = Vec::new();
        for package in 0..2 {
            for domain in 0..3 {
                all.extend((0..4).map(|core| format!("sst:tpmi3:{package}.{domain}:class:{core}")));
                all.push(format!("sst:tpmi3:{package}.{domain}:level"));
            }
        }
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        assert_eq!(
            text(&all),
            "  package {0,1} domain {0-2}: class of core {0-3}  0 -> 1  (24 writes)\n  package {0,1} domain {0-2}: level  0 \
             -> 1  (6 writes)\n"
        );
    }
}
