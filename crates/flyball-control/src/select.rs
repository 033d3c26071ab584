//! CPU selectors of the command line and of profiles: `0-3,7`, `package:0`, `type:P`, and
//! comma-separated unions of them.

use flyball_host::CpuList;

use crate::{CoreType, Topology, topology::LastCache};

/// The reason why a selector selects nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bad CPU selector '{part}': {why}")]
pub struct SelectError {
    /// The part of the selector that is wrong.
    pub part: String,
    /// The problem, and the valid alternatives.
    pub why: String,
}

const FORMS: &str = "write CPUs as 0-3,7, 0-7:2, all, online, offline, package:0, die:0 or die:PACKAGE.DIE, \
                     core:3 or core:PACKAGE.CORE, node:0, policy:0, type:P, type:E or type:LP, ccd:0, cache:big, several with \
                     commas between";

/// Returns the CPUs of `topology` that `selector` names.
///
/// # Errors
/// The part that is invalid or names nothing on this machine, and the valid alternatives.
pub fn select(selector: &str, topology: &Topology) -> Result<CpuList, SelectError> {
    let mut cpus = CpuList::new();
    for part in selector.split(',') {
        cpus.extend(one(part.trim(), topology)?.iter());
    }
    Ok(cpus)
}

const NO_CACHES: &str = "the caches are not known here; write CPU numbers";

fn one(part: &str, topology: &Topology) -> Result<CpuList, SelectError> {
    let bad = |why: String| SelectError { part: part.to_owned(), why };
    let caches = || topology.caches.as_deref().ok_or_else(|| bad(NO_CACHES.to_owned()));
    match part.to_ascii_lowercase().as_str() {
        "" => return Err(bad(format!("it is empty; {FORMS}"))),
        "all" => return Ok(topology.present.clone()),
        "online" => return Ok(topology.online.clone()),
        "offline" => return Ok(topology.offline.clone()),
        _ => {}
    }
    if part.starts_with(|c: char| c.is_ascii_digit()) {
        let cpus: CpuList =
            part.parse().map_err(|error: flyball_host::CpuListError| bad(error.why.to_owned()))?;
        // Check the present CPUs, not the possible ones: kernels reserve numbers for CPUs that can
        // never be plugged in.
        let missing = cpus.difference(&topology.present);
        if !missing.is_empty() {
            // `0-65535:2` is a short selector for 32,768 CPUs.
            let missing = missing.short();
            return Err(bad(format!("no CPU {missing} here; this machine has {}", topology.present)));
        }
        return Ok(cpus);
    }
    let Some((kind, value)) = part.split_once(':') else { return Err(bad(FORMS.to_owned())) };
    let wanted = Numbers::parse(value);
    let numbers = || wanted.clone().ok_or_else(|| bad(format!("'{value}' is not a number; {FORMS}")));
    // `there` lists the alternatives, for the message if nothing is selected.
    let (cpus, there): (CpuList, String) = match kind.to_ascii_lowercase().as_str() {
        "package" | "socket" => {
            let wanted = numbers()?;
            let packages = topology.packages();
            (collect(&packages, |package| wanted.matches(&[*package])), listed(packages.keys()))
        }
        "die" => {
            let wanted = numbers()?;
            let dies = topology.dies();
            let there = listed(dies.keys().map(|(package, die)| format!("{package}.{die}")));
            (collect(&dies, |(package, die)| wanted.matches(&[*package, *die])), there)
        }
        // Core numbers repeat in each package, on some machines in each die. Both forms name one
        // core.
        "core" => {
            let wanted = numbers()?;
            let cores = topology.cores();
            let matches = |&(package, die, core): &(u32, u32, u32)| {
                wanted.matches(&[package, core]) || wanted.matches(&[package, die, core])
            };
            (
                collect(&cores, matches),
                listed(cores.keys().map(|(package, _, core)| format!("{package}.{core}"))),
            )
        }
        "node" => {
            let wanted = numbers()?;
            (collect(&topology.nodes, |node| wanted.matches(&[*node])), listed(topology.nodes.keys()))
        }
        "policy" => {
            let wanted = numbers()?;
            let policies = topology.policies.iter().filter(|policy| wanted.matches(&[policy.number]));
            (
                policies.flat_map(|policy| policy.cpus.iter()).collect(),
                listed(topology.policies.iter().map(|p| p.number)),
            )
        }
        "ccd" => {
            let wanted = numbers()?;
            let caches = caches()?;
            let is_wanted = |(number, _): &(usize, &LastCache)| wanted.matches(&[*number as u32]);
            let cpus = caches.iter().enumerate().filter(is_wanted).flat_map(|(_, cache)| cache.cpus.iter());
            (cpus.collect(), listed(0..caches.len()))
        }
        "cache" => {
            caches()?;
            let there =
                topology.big_cache().map_or("none, because no L3 cache is larger than another", |_| "big");
            let big = topology.big_cache().filter(|_| value.eq_ignore_ascii_case("big"));
            (big.unwrap_or_default(), there.to_owned())
        }
        "type" => cpus_of_type(value, topology)
            .ok_or_else(|| bad(format!("core types here: {}", types(topology))))?,
        _ => return Err(bad(FORMS.to_owned())),
    };
    // A well-formed selector that selects nothing is an error: otherwise a setting would be lost
    // silently.
    if cpus.is_empty() {
        return Err(bad(format!("it selects no CPU; possible here: {there}")));
    }
    Ok(cpus)
}

/// Returns the CPUs of a core type, and the available types; `None` if `word` names no type.
fn cpus_of_type(word: &str, topology: &Topology) -> Option<(CpuList, String)> {
    let wanted = match word.to_ascii_lowercase().as_str() {
        "p" | "core" | "performance" => CoreType::P,
        "e" | "atom" | "efficiency" => CoreType::E,
        "lp" | "lowpower" => CoreType::LP,
        _ => return None,
    };
    let kinds = topology.core_kinds();
    Some((kinds.get(&wanted).cloned().unwrap_or_default(), types(topology)))
}

/// Lists the core types of the machine.
fn types(topology: &Topology) -> String {
    let kinds = topology.core_kinds();
    if kinds.is_empty() {
        "none, because all cores are of the same type, or their types are not known".to_owned()
    } else {
        listed(kinds.keys())
    }
}

/// A selection such as `3`, `0-2` or `1.3`: one number per level, of which the last may be a range.
#[derive(Debug, Clone)]
struct Numbers {
    above: Vec<u32>,
    last: (u32, u32),
}

impl Numbers {
    fn parse(text: &str) -> Option<Numbers> {
        let mut parts: Vec<&str> = text.split('.').collect();
        let last = parts.pop()?;
        let (low, high) = last.split_once('-').unwrap_or((last, last));
        let above = parts.into_iter().map(|part| part.parse().ok()).collect::<Option<_>>()?;
        Some(Numbers { above, last: (low.parse().ok()?, high.parse().ok()?) })
    }

    /// Returns whether `ids`, outermost first, match. A bare number matches in every outer level.
    fn matches(&self, ids: &[u32]) -> bool {
        let Some((last, above)) = ids.split_last() else { return false };
        let in_range = (self.last.0..=self.last.1).contains(last);
        in_range && (self.above.is_empty() || self.above == above)
    }
}

fn collect<K>(groups: &std::collections::BTreeMap<K, CpuList>, wanted: impl Fn(&K) -> bool) -> CpuList {
    groups.iter().filter(|(key, _)| wanted(key)).flat_map(|(_, cpus)| cpus.iter()).collect()
}

fn listed<T: std::fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let all: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match all.len() {
        0 => "none known".to_owned(),
        count if count > 12 => format!("{} to {}, {count} in all", all[0], all[count - 1]),
        _ => all.join(" "),
    }
}
