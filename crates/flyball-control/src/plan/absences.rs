//! Settings that a machine lacks: one line for all places that lack a knob for the same reason, and
//! the remedy if there is one.

use std::fmt;

use flyball_host::CpuList;

use super::driver;
use crate::{
    At, FirmwareTurbo, Id, Place, ReadError, Snapshot, TargetError, Value, Vendor, Why, knob::AppearsWith,
};

/// Something that a setting needs and the machine lacks.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "fields are named as in the messages")]
pub enum Absence {
    /// The machine has nothing of this kind.
    Nowhere { from: String, knob: Id, why: Why },
    /// The places do not have the knob, or it is read-only there.
    AtPlaces {
        from: String,
        knob: Id,
        places: Vec<Place>,
        why: Why,
        remedy: Option<Remedy>,
        is_readable: bool,
    },
    /// No write can set the value.
    NotWritable { from: String, error: TargetError },
    /// More absences of the same kinds.
    More(usize),
}

impl Absence {
    /// Returns the setting that it is about, as the user wrote it.
    pub fn settings(&self) -> Option<&str> {
        match self {
            Absence::Nowhere { from, .. }
            | Absence::AtPlaces { from, .. }
            | Absence::NotWritable { from, .. } => Some(from),
            Absence::More(_) => None,
        }
    }
}

/// A way to get a knob, or a knob to use instead.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub enum Remedy {
    /// Another driver, selected with a kernel parameter, has the knob.
    #[display("{driver} does not have it, but {other} does: boot {parameter}")]
    Boot {
        /// The driver without the knob.
        driver: &'static str,
        /// The driver with the knob.
        other: &'static str,
        /// The parameter and what to do with it.
        parameter: &'static str,
    },
    /// No mode and no other driver is known to have the knob.
    #[display("{_0} does not have it")]
    DriverHasNone(String),
    /// cppc_cpufreq has a number in place of the words.
    #[display("cppc_cpufreq has epp-value instead, a number that counts while auto-select is on")]
    EppValue,
    /// The driver has no modes.
    #[display("{_0} has no modes")]
    NoModes(String),
    /// The driver has modes; an old kernel or a recording lacks the file.
    #[display("{_0} is a mode of its driver, but the file that changes the mode is missing")]
    ModeOf(String),
    /// `driver-mode=active` in the same command.
    #[display("add driver-mode=active to the same command")]
    ActiveMode,
    /// `driver-mode=active` in the same command, unless hardware P-states are switched off at boot.
    #[display(
        "add driver-mode=active to the same command, unless the kernel was booted with intel_pstate=no_hwp"
    )]
    ActiveModeUnlessNoHwp,
    /// The knob exists only with hardware P-states.
    #[display("it is part of hardware P-states (HWP), which this processor lacks or firmware hides")]
    NeedsHwp,
    /// Turbo has only one switch for the whole machine.
    #[display("turbo is one switch for the whole machine: turbo=on or turbo=off")]
    TurboOfMachine,
    /// The processor lacks this flag for turbo.
    #[display("the processor reports none (no {_0} in /proc/cpuinfo): it has none, or firmware disables it")]
    NoTurbo(&'static str),
    /// The knob exists on policies with this governor.
    #[display("set governor={_0} as well")]
    Governor(&'static str),
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Absence::Nowhere { from, knob, why } => write!(f, "{from}: this machine has no {knob}: {why}"),
            Absence::AtPlaces { from, knob, places: at, why, remedy, is_readable } => {
                let names = places(&at.iter().collect::<Vec<_>>());
                let have = if at.len() > 1 { "have" } else { "has" };
                if *is_readable {
                    write!(f, "{from}: {knob} cannot be set on {names}: ")?;
                } else {
                    write!(f, "{from}: {names} {have} no {knob}: ")?;
                }
                // The path belongs to the first place.
                match at.as_slice() {
                    [Place { at: At::Policy(number), .. }, _, ..] => {
                        write!(f, "{}", why.for_every_policy(*number))?;
                    }
                    _ => write!(f, "{why}")?,
                }
                remedy.as_ref().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
            }
            Absence::NotWritable { from, error } => write!(f, "{from}: {error}"),
            Absence::More(count) => write!(f, "(and {count} more like these)"),
        }
    }
}

/// Records that `place` lacks `knob`. If an absence differs only in the place, adds the place to
/// it.
pub(super) fn add(
    snapshot: &Snapshot,
    absences: &mut Vec<Absence>,
    (from, knob): (&str, Id),
    place: &Place,
    why: Why,
    is_readable: bool,
) -> Result<(), ReadError> {
    // Use one line for all places: 512 CPUs may lack the same file.
    for absence in absences.iter_mut() {
        if let Absence::AtPlaces { from: other, knob: of, places, why: like, .. } = absence
            && (other.as_str(), *of) == (from, knob)
            && like.is_like(&why)
        {
            places.push(place.clone());
            return Ok(());
        }
    }
    let (from, places, remedy) = (from.to_owned(), vec![place.clone()], remedy(snapshot, knob)?);
    absences.push(Absence::AtPlaces { from, knob, places, why, remedy, is_readable });
    Ok(())
}

/// Formats places as `policies 0-127`, `CPUs 0,2`, or one by one.
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
            // One idle state has the same name on every CPU.
            names.dedup();
            let more = names.len().saturating_sub(4);
            names.truncate(4);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{}{more}", names.join(", "))
        }
    }
}

/// Formats a place for use in a sentence.
pub(super) fn place(place: &Place) -> String {
    match place.at {
        At::Machine => "this machine".to_owned(),
        _ => place.to_string(),
    }
}

fn remedy(snapshot: &Snapshot, knob: Id) -> Result<Option<Remedy>, ReadError> {
    Ok(match knob {
        Id::Epp => preference(snapshot)?,
        Id::DriverMode => driver::name(snapshot)?.map(|driver| match driver.as_str() {
            "acpi-cpufreq" if snapshot.topology().flags.contains("cppc") => AMD_PSTATE,
            "intel_pstate" | "intel_cpufreq" | "amd-pstate" | "amd-pstate-epp" => Remedy::ModeOf(driver),
            _ => Remedy::NoModes(driver),
        }),
        Id::Turbo => match snapshot.firmware_turbo()?.0 {
            FirmwareTurbo::NoFlag(flag) => Some(Remedy::NoTurbo(flag)),
            FirmwareTurbo::Off { .. } | FirmwareTurbo::Absent | FirmwareTurbo::Allowed => None,
        },
        Id::Boost if snapshot.machine_value(Id::Turbo)?.is_some() => Some(Remedy::TurboOfMachine),
        _ => knob.knob().control().and_then(|control| {
            control.appears_with.iter().find_map(|with| match with {
                AppearsWith::Governor(name) => Some(Remedy::Governor(name)),
                _ => None,
            })
        }),
    })
}

const AMD_PSTATE: Remedy =
    Remedy::Boot { driver: "acpi-cpufreq", other: "amd-pstate", parameter: "with amd_pstate=active" };

const INTEL_PSTATE: Remedy =
    Remedy::Boot { driver: "acpi-cpufreq", other: "intel_pstate", parameter: "without intel_pstate=disable" };

/// Returns a way to get a preference (EPP). Only intel_pstate with HWP
/// (drivers/cpufreq/intel_pstate.c, `hwp_cpufreq_attrs`) and amd-pstate in active mode
/// (drivers/cpufreq/amd-pstate.c, `amd_pstate_epp_attr`) have one.
fn preference(snapshot: &Snapshot) -> Result<Option<Remedy>, ReadError> {
    let topology = snapshot.topology();
    // No flags at all means that the recording lacks /proc/cpuinfo, which proves nothing about HWP.
    let lacks_hwp = !topology.flags.is_empty() && !topology.flags.contains("hwp_epp");
    let mode = snapshot.machine_value(Id::DriverMode)?;
    let has_mode = matches!(mode, Some(Value::Word(word)) if word != "active");
    Ok(match (topology.vendor, driver::name(snapshot)?.as_deref()) {
        (Vendor::Amd, Some("amd-pstate")) if has_mode => Some(Remedy::ActiveMode),
        (Vendor::Amd, Some("acpi-cpufreq")) if topology.flags.contains("cppc") => Some(AMD_PSTATE),
        (Vendor::Intel, Some("intel_pstate" | "intel_cpufreq")) if lacks_hwp => Some(Remedy::NeedsHwp),
        // hwp_epp is the processor's flag. It stays with intel_pstate=no_hwp, but then active mode
        // has no preference either.
        (Vendor::Intel, Some("intel_cpufreq")) if has_mode => Some(Remedy::ActiveModeUnlessNoHwp),
        (Vendor::Intel, Some("acpi-cpufreq")) if topology.flags.contains("hwp_epp") => Some(INTEL_PSTATE),
        (_, Some("cppc_cpufreq")) if is_readable(snapshot, Id::EppValue)? => Some(Remedy::EppValue),
        (_, Some(name)) if !matches!(name, "intel_pstate" | "amd-pstate-epp") => {
            Some(Remedy::DriverHasNone(name.to_owned()))
        }
        _ => None,
    })
}

/// Returns whether the first place of a knob can be read: the driver makes some files where the
/// firmware has no register behind them.
fn is_readable(snapshot: &Snapshot, knob: Id) -> Result<bool, ReadError> {
    let place = snapshot.places(knob)?.first();
    place.map_or(Ok(false), |place| Ok(snapshot.value_if_readable(knob, place)?.is_some()))
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
