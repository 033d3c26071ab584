//! Completes values of options and arguments, by their names in help.

use clap::{Arg, Command};
use flyball_control::{
    Id, Knob, KnobName, Outcome, Snapshot, SurveyOptions, TABLE, Value, doctor,
    knob::{Check, Ends},
    quiet, select, survey,
};
use flyball_sim::{Kernel, check, silicon::MachineSpec, workload::Workload};
use flyball_tune::quantities;

use super::Offer;
use crate::{machine::MachineArg, profiles};

/// Returns the completions for `arg`, and whether files fit.
pub(super) fn offers(
    arg: &Arg,
    top: &Command,
    path: &[String],
    machine: &MachineArg,
    current: &str,
) -> (Vec<Offer>, bool) {
    let possible = arg.get_possible_values();
    // Knobs have possible values too, but not all of these fit everywhere.
    if !possible.is_empty() && !value_name(arg).starts_with("KNOB") {
        let offer = |value: &clap::builder::PossibleValue| {
            Offer::new(value.get_name(), value.get_help().map(ToString::to_string).unwrap_or_default())
        };
        return (possible.iter().map(offer).collect(), false);
    }
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    match (path.as_slice(), value_name(arg)) {
        (["man", before @ ..], "COMMAND") => (commands(top, before), false),
        (_, "MACHINE") if arg.get_id() == "machine" => (machines(true), true),
        // Below `sim` and `guest`, the kind of machine is known, so the argument is only its name.
        (["sim" | "guest", ..], "NAME" | "MACHINE") => (machines(false), true),
        (["sim", "check"], _) => (documents(), false),
        (["why"], "NAME") => (Workload::names().map(|name| Offer::new(name, "a model")).collect(), true),
        (_, "VERSION|FILE") => {
            (Kernel::ALL.iter().map(|one| Offer::new(one.to_string(), "kernel")).collect(), true)
        }
        (_, "PROFILE") => (profiles(), true),
        (_, "KNOB") => (knobs(), false),
        (_, "KNOB|PROFILE|WORD") => ([knobs(), profiles()].concat(), false),
        (_, "KNOB[@CPUS]=VALUE" | "KNOB=V1,V2" | "KNOB=VALUES") => (settings(machine, current), false),
        (_, "PROFILE|KNOB=VALUE") => {
            let mut offers = profiles();
            // For an empty word, do not offer all knobs, which would hide the profiles: `apply` is
            // mostly used with profiles.
            if !current.is_empty() {
                offers.extend(settings(machine, current));
            }
            (offers, !current.contains('='))
        }
        (_, "ARM") => {
            ([vec![Offer::new("now", "the machine as it is")], settings(machine, current)].concat(), false)
        }
        (["tune"], "QUANTITY") => (quantities().map(|name| Offer::new(name, "")).collect(), false),
        (["tune"], "PURPOSE") => {
            (["efficiency", "latency", "power-cap="].map(|word| Offer::new(word, "")).to_vec(), false)
        }
        (["doctor"], "ID") => (checks(), false),
        (_, "CPUS" | "LIST") => (cpus(machine), false),
        (["sst", ..], "LEVEL") => (levels(machine), false),
        (_, "LEVEL") => {
            (quiet::Level::ALL.map(|level| Offer::new(level.to_string(), "how quiet")).to_vec(), false)
        }
        (_, name) => {
            let files = ["DIR", "FILE", "OUT", "PATH", "CSV", "initramfs"];
            (Vec::new(), files.iter().any(|word| name.contains(word)))
        }
    }
}

fn value_name(arg: &Arg) -> &str {
    arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str())
}

fn commands(top: &Command, below: &[&str]) -> Vec<Offer> {
    let command = below.iter().try_fold(top, |command, name| command.find_subcommand(name));
    let visible = command.into_iter().flat_map(Command::get_subcommands).filter(|one| !one.is_hide_set());
    visible.map(|one| Offer::new(one.get_name(), "")).collect()
}

fn checks() -> Vec<Offer> {
    doctor::CHECKS.iter().copied().flatten().map(|check| Offer::new(check.id, check.why)).collect()
}

fn documents() -> Vec<Offer> {
    check::DOCUMENTS.map(|name| Offer::new(name, "")).to_vec()
}

fn machines(with_kind: bool) -> Vec<Offer> {
    let title = |name: &str| MachineSpec::builtin(name).map(|spec| spec.title).unwrap_or_default();
    let mut offers: Vec<Offer> = MachineSpec::names()
        .map(|name| Offer::new(if with_kind { format!("sim:{name}") } else { name.to_owned() }, title(name)))
        .collect();
    if with_kind {
        offers.insert(0, Offer::new("live", "this machine"));
        offers.extend(
            MachineSpec::names().map(|name| Offer::new(format!("guest:{name}"), "a real kernel on it")),
        );
    }
    offers
}

fn knobs() -> Vec<Offer> {
    TABLE.iter().map(|knob| Offer::new(knob.name, knob.title)).collect()
}

fn profiles() -> Vec<Offer> {
    profiles::names().into_iter().map(|name| Offer::new(name, "a profile")).collect()
}

/// Completes `KNOB=`, and then the knob's values on the machine. After a comma, completes another
/// value.
fn settings(machine: &MachineArg, current: &str) -> Vec<Offer> {
    let Some((name, value)) = current.split_once('=') else {
        let settable = TABLE.iter().filter(|knob| knob.control().is_some());
        return settable.map(|knob| Offer::new(format!("{}=", knob.name), knob.title)).collect();
    };
    // `epp@0-3`: values do not depend on the CPUs.
    let bare = name.split('@').next().unwrap_or(name);
    let Ok(KnobName { knob, .. }) = bare.parse() else { return Vec::new() };
    // In --matrix and in lists, only complete the part after the last comma.
    let before = value.rfind(',').map_or("", |comma| &value[..=comma]);
    values(knob.knob(), machine)
        .into_iter()
        .map(|value| Offer::new(format!("{name}={before}{value}"), ""))
        .collect()
}

/// Returns the values of a knob on the machine, or the values of its kind if the machine has no
/// list.
pub(super) fn values(knob: &Knob, machine: &MachineArg) -> Vec<String> {
    let Some(control) = knob.control() else { return Vec::new() };
    let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let from_list = |list: Id| match read(machine, list).into_iter().next() {
        Some(Value::Words(words)) => words,
        _ => Vec::new(),
    };
    let mut all = match control.check {
        Check::OneOf(words) => own(words),
        Check::DriverMode => own(&["active", "passive", "guided"]),
        Check::Level => levels(machine).into_iter().map(|offer| offer.word).collect(),
        Check::BetweenEnds | Check::BetweenEndsInSteps => own(match control.ends {
            Ends::None => &[][..],
            Ends::UpToRow(_) => &["max"],
            _ => &["min", "max"],
        }),
        check => check.list().map(from_list).unwrap_or_default(),
    };
    // Knobs with a number or a switch have no list of values. Their help names the words.
    if control.accepts.contains("on or off") || control.accepts.starts_with("on, off") {
        for word in ["on", "off"] {
            if !all.iter().any(|known| known == word) {
                all.push(word.to_owned());
            }
        }
    }
    if matches!(knob.id, Id::MinFreq | Id::MaxFreq) {
        all.extend(own(&["base", "nominal", "efficient"]));
    }
    all
}

/// The different values of a knob or fact on the machine.
fn read(machine: &MachineArg, knob: Id) -> Vec<Value> {
    // Ignore errors: a message would end up in the line that is being typed.
    let Ok(host) = machine.open_quietly() else { return Vec::new() };
    let Ok(mut snapshot) = Snapshot::begin(host.as_ref()) else { return Vec::new() };
    let options = SurveyOptions { cpus: None, sample_absence: true, apart: false };
    snapshot.take(host.as_ref(), &options.request(&[knob]));
    let rows = survey(&snapshot, &[KnobName { knob, instance: None }], &options).unwrap_or_default();
    rows.into_iter()
        .filter_map(|row| match row.outcome {
            Outcome::Value(value) => Some(value),
            _ => None,
        })
        .collect()
}

/// Performance levels of Speed Select.
fn levels(machine: &MachineArg) -> Vec<Offer> {
    let highest = read(machine, Id::SstHighestLevel)
        .iter()
        .filter_map(|value| value.to_string().parse::<u8>().ok())
        .max();
    (0..=highest.unwrap_or(0)).map(|level| Offer::new(level.to_string(), "performance level")).collect()
}

/// Returns `all`, and selectors of parts that the machine has several of.
fn cpus(machine: &MachineArg) -> Vec<Offer> {
    let Ok(host) = machine.open_quietly() else { return Vec::new() };
    let Ok(mut snapshot) = Snapshot::begin(host.as_ref()) else { return Vec::new() };
    // If that fails, selectors of caches are not offered.
    let _ = snapshot.take_caches(host.as_ref());
    let topology = snapshot.topology();
    let mut offers = vec![Offer::new("all", format!("CPUs {}", topology.online))];
    let kinds = topology.core_kinds();
    offers
        .extend(kinds.iter().map(|(kind, cpus)| Offer::new(format!("type:{kind}"), format!("CPUs {cpus}"))));
    if let Ok(big) = select("cache:big", topology) {
        offers.push(Offer::new("cache:big", format!("CPUs {big}")));
    }
    let caches =
        (0..).zip(topology.caches.iter().flatten()).map(|(number, cache)| (number, cache.cpus.clone()));
    let parts =
        [("package", topology.packages()), ("node", topology.nodes.clone()), ("ccd", caches.collect())];
    for (name, parts) in parts {
        // With one package, `package:0` is the same as `all`.
        let several = parts.iter().filter(|_| parts.len() > 1);
        offers.extend(
            several.map(|(number, cpus)| Offer::new(format!("{name}:{number}"), format!("CPUs {cpus}"))),
        );
    }
    offers
}
