//! What a machine lacks of what was asked for: one line for the many places that lack it alike, and the remedy where there
//! is one.

use flyball_host::CpuList;

use super::couplings::driver;
use crate::{At, Id, Place, ReadError, Snapshot, Value, Vendor, Why};

/// A knob that is missing at a place.
#[derive(Debug, Clone)]
pub(super) struct Absence {
    /// Who asked for it, in the words in which it was asked.
    pub from: String,
    /// The knob.
    pub knob: Id,
    /// Where it is missing.
    pub place: Place,
    /// Why.
    pub why: Why,
}

/// The absences in words, alike ones in one line.
pub(super) fn lines(snapshot: &Snapshot, absences: &[Absence]) -> Result<Vec<String>, ReadError> {
    let mut lines = Vec::new();
    let mut rest: Vec<&Absence> = absences.iter().collect();
    while let Some(first) = rest.first().copied() {
        let is_like =
            |a: &&Absence| a.from == first.from && a.knob == first.knob && a.why.is_like(&first.why);
        let (alike, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_like);
        rest = others;
        let remedy = remedy(snapshot, first.knob)?.map(|words| format!("; {words}"));
        let where_ = places(&alike.iter().map(|absence| &absence.place).collect::<Vec<_>>());
        let have = if alike.len() > 1 { "have" } else { "has" };
        let why = match (&first.why, &first.place.at) {
            (Why::NoFile(path), At::Policy(number)) if alike.len() > 1 => {
                Why::NoFile(path.replacen(&format!("policy{number}/"), "policy*/", 1))
            }
            (why, _) => why.clone(),
        };
        let remedy = remedy.unwrap_or_default();
        lines.push(format!("{}: {where_} {have} no {}: {why}{remedy}", first.from, first.knob));
    }
    Ok(lines)
}

/// `policies 0-127`, `CPUs 0,2`, or the places one by one.
pub(super) fn places(alike: &[&Place]) -> String {
    if let [one] = alike {
        return place(one);
    }
    let number = |place: &&Place| match place.at {
        At::Policy(number) => Some(("policies", number)),
        At::Cpu(number) => Some(("CPUs", number)),
        _ => None,
    };
    let numbers: Option<Vec<(&str, u32)>> = alike.iter().map(number).collect();
    match numbers.as_deref() {
        Some([(what, first), rest @ ..]) if rest.iter().all(|(other, _)| other == what) => {
            let list: CpuList =
                std::iter::once(*first).chain(rest.iter().map(|(_, number)| *number)).collect();
            format!("{what} {list}")
        }
        _ => {
            let mut names: Vec<String> = alike.iter().map(ToString::to_string).collect();
            names.dedup();
            let more = names.len().saturating_sub(4);
            names.truncate(4);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{}{more}", names.join(", "))
        }
    }
}

/// A place in a sentence.
pub(super) fn place(place: &Place) -> String {
    match place.at {
        At::Machine => "this machine".to_owned(),
        _ => place.to_string(),
    }
}

/// What to do about it, where something can be done.
fn remedy(snapshot: &Snapshot, knob: Id) -> Result<Option<String>, ReadError> {
    Ok(match knob {
        Id::Epp => preference(snapshot)?,
        Id::DriverMode => driver(snapshot)?.map(|driver| match driver.as_str() {
            "acpi-cpufreq" if snapshot.topology().flags.contains("cppc") => {
                "acpi-cpufreq has no modes; amd-pstate has: boot with amd_pstate=active".to_owned()
            }
            other => format!("{other} has no modes"),
        }),
        Id::Boost if snapshot.machine_value(Id::Turbo)?.is_some() => {
            Some("turbo is the whole machine's here: turbo=on or turbo=off".to_owned())
        }
        _ => None,
    })
}

/// What would bring a preference (EPP): the drivers that have one are intel_pstate with HWP
/// (drivers/cpufreq/intel_pstate.c, `hwp_cpufreq_attrs`) and amd-pstate in active mode (drivers/cpufreq/amd-pstate.c,
/// `amd_pstate_epp_attr`).
fn preference(snapshot: &Snapshot) -> Result<Option<String>, ReadError> {
    let topology = snapshot.topology();
    let lacks_hwp = !topology.flags.is_empty() && !topology.flags.contains("hwp_epp");
    let mode = snapshot.machine_value(Id::DriverMode)?;
    let has_mode = matches!(mode, Some(Value::Word(word)) if word != "active");
    Ok(match (topology.vendor, driver(snapshot)?.as_deref()) {
        (Vendor::Amd, Some("amd-pstate")) if has_mode => {
            Some("driver-mode=active in the same command brings it".to_owned())
        }
        (Vendor::Amd, Some("acpi-cpufreq")) if topology.flags.contains("cppc") => {
            Some("acpi-cpufreq has none; amd-pstate has: boot with amd_pstate=active".to_owned())
        }
        (Vendor::Intel, Some("intel_pstate" | "intel_cpufreq")) if lacks_hwp => Some(
            "it is a part of hardware P-states (HWP), which this processor lacks or firmware hides"
                .to_owned(),
        ),
        (Vendor::Intel, Some("intel_cpufreq")) if has_mode => Some(
            "driver-mode=active in the same command brings it, unless intel_pstate=no_hwp was booted"
                .to_owned(),
        ),
        (Vendor::Intel, Some("acpi-cpufreq")) if topology.flags.contains("hwp_epp") => {
            Some("acpi-cpufreq has none; intel_pstate has: boot without intel_pstate=disable".to_owned())
        }
        (_, Some(name)) if !matches!(name, "intel_pstate" | "amd-pstate-epp") => {
            Some(format!("{name} has none"))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place_at(at: At) -> Place {
        Place::new(at, CpuList::new())
    }

    #[test]
    fn places_that_lack_it_alike_are_one_line() {
        let all = [0, 1, 2, 5].map(|n| place_at(At::Policy(n)));
        let all: Vec<&Place> = all.iter().collect();
        assert_eq!(places(&all), "policies 0-2,5");
        assert_eq!(places(&all[..1]), "policy 0");
        let mixed = [place_at(At::Cpu(1)), place_at(At::Package(0))];
        assert_eq!(places(&mixed.iter().collect::<Vec<_>>()), "CPU 1, package 0");
        assert_eq!(places(&[&place_at(At::Machine)]), "this machine");
    }
}
