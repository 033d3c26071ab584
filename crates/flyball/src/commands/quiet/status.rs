//! `flyball quiet -n` and `flyball quiet status`: show the planned writes, and the differences from
//! a quiet machine.

use flyball_control::{
    Location, Snapshot,
    plan::{Change, Note, Plan, Remark, plan},
    quiet::{BootParameter, Level, QuietPlan, QuietSetting, QuietSettings, extras},
};
use flyball_host::{CpuList, Host};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    change,
    context::Context,
    exit::{Exit, Failure},
    quiet_machine::{Quiet, print_limits},
};

/// The output of `quiet -n`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Planned<'a> {
    /// The settings of the level on this machine.
    recipe: &'a QuietSettings,
    /// The writes to knobs.
    plan: &'a Plan,
    /// The writes to interrupts and the kernel's profiling, if possible.
    extras: Vec<Extra<'a>>,
}

/// A write to a file that is not a knob.
#[derive(JsonSchema, Serialize)]
struct Extra<'a> {
    location: &'a Location,
    new: &'a str,
}

/// The output of `quiet status`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct QuietStatus<'a> {
    /// The requested level.
    level: Level,
    /// Whether all settings are in effect.
    quiet: bool,
    /// The settings of the level.
    settings: &'a [QuietSetting],
    /// The writes that are still needed.
    differs: &'a [Change],
    /// Number of interrupts and files of the kernel's profiling that could still be changed.
    interrupts_and_profiling: usize,
    /// What is not possible on this machine, with reasons.
    unavailable: &'a [String],
    /// Kernel parameters that would make the machine quieter after a reboot.
    boot: &'a [BootParameter],
}

/// Prints the plan without writing.
pub(crate) fn preview(context: &Context, quiet: &Quiet) -> Result<Exit, Failure> {
    let host = context.open()?;
    let quiet_plan = QuietPlan::decide(&*host, &quiet.options())?;
    let recipe = &quiet_plan.recipe;
    let snapshot = Snapshot::for_intent(&*host, &quiet_plan.intent)?;
    let plan = plan(&snapshot, &quiet_plan.intent)?;
    let extras = extras(&*host, &snapshot.topology().online, &recipe.cpus);
    let data = || {
        let extras = extras.iter().map(|(location, new)| Extra { location, new }).collect();
        Planned { recipe, plan: &plan, extras }
    };
    context.output.about(&*host).object(data, || {
        print_limits(&quiet_plan, &*host);
        let mut out = change::plan_text(&plan, false);
        if let Some(partition) = &recipe.partition {
            out += &format!("control group\n  {}  CPUs {}\n", partition.path, partition.content);
        }
        if !extras.is_empty() {
            out += "interrupts and profiling, where possible\n";
            for line in folded(&*host, &extras) {
                out += &format!("  {line}\n");
            }
        }
        out
    })?;
    Ok(Exit::Done)
}

/// Lists writes to files that are not knobs. Interrupts with the same old and new CPUs share a
/// line.
fn folded(host: &dyn Host, extras: &[(Location, String)]) -> Vec<String> {
    let mut interrupts: std::collections::BTreeMap<(String, &str), CpuList> =
        std::collections::BTreeMap::new();
    let mut lines = Vec::new();
    for (location, new) in extras {
        let path = location.path().unwrap_or_default();
        // Only for display: an interrupt that no longer exists has no old value.
        let old = host.read(path).unwrap_or_default();
        let number = path.strip_prefix("/proc/irq/").and_then(|rest| rest.split('/').next()?.parse().ok());
        match number {
            Some(number) => {
                interrupts.entry((old, new)).or_default().insert(number);
            }
            None => lines.push(format!("{location}  {old} -> {new}")),
        }
    }
    let of_interrupts = interrupts
        .into_iter()
        .map(|((old, new), numbers)| format!("/proc/irq/{{{numbers}}}/smp_affinity_list  {old} -> {new}"));
    of_interrupts.chain(lines).collect()
}

/// Prints whether the machine is quiet for a level.
pub(crate) fn status(context: &Context, quiet: &Quiet) -> Result<Exit, Failure> {
    let host = context.open()?;
    let quiet_plan = QuietPlan::decide(&*host, &quiet.options())?;
    let recipe = &quiet_plan.recipe;
    let snapshot = Snapshot::for_intent(&*host, &quiet_plan.intent)?;
    let mut plan = plan(&snapshot, &quiet_plan.intent)?;
    // A latency limit does not matter if there is no slower idle state.
    let is_needless = |change: &Change| {
        let is_about =
            |note: &Note| matches!(&note.remark, Remark::NoSlowerState { from } if *from == change.from);
        plan.notes.iter().any(is_about)
    };
    plan.changes = plan.changes.iter().filter(|change| !is_needless(change)).cloned().collect();
    plan.notes.retain(|note| !matches!(note.remark, Remark::NoSlowerState { .. }));
    // Not part of the verdict: many interrupts cannot be moved, so the machine would never count as
    // quiet.
    let left = extras(&*host, &snapshot.topology().online, &recipe.cpus).len();
    let data = || QuietStatus {
        level: quiet.level,
        quiet: plan.is_empty(),
        settings: &recipe.settings,
        differs: &plan.changes,
        interrupts_and_profiling: left,
        unavailable: &recipe.unavailable,
        boot: &recipe.boot,
    };
    context.output.about(&*host).object(data, || {
        let mut out = if plan.is_empty() {
            format!("quiet for level {}: all settings hold ({})\n", quiet.level, recipe.settings.len())
        } else {
            let writes = if plan.changes.len() == 1 { "write is" } else { "writes are" };
            format!("not quiet for level {}: {} {writes} missing\n", quiet.level, plan.changes.len())
        };
        if !plan.is_empty() {
            out += &change::plan_text(&plan, false);
        }
        for what in &recipe.unavailable {
            eprintln!("note: cannot {what}");
        }
        out
    })?;
    // The same exit codes as `verify`.
    Ok(if plan.is_empty() { Exit::Done } else { Exit::Drifted })
}
