//! Takes the machine for a comparison, from its first round to its last.

use std::sync::{Arc, atomic::AtomicBool};

use flyball_compare::{
    BootedArms, HeldArms, RunSeeds,
    arms::{CheckedArms, Holding},
};
use flyball_control::quiet::{QuietOptions, QuietPlan};
use flyball_host::Host;
use flyball_measure::{Arm, Manifest, Settings};

use crate::{change, context::Context, exit::Failure, quiet_machine::print_limits};

/// How to keep the machine quiet during all arms.
pub(crate) struct QuietDuringArms {
    pub options: QuietOptions,
    /// Planned for the machine before the first arm.
    pub plan: QuietPlan,
}

/// The settings of a comparison, and the workload's control group.
pub(crate) struct ComparisonSettings<'h> {
    pub settings: Box<dyn Settings + 'h>,
    pub group: Option<String>,
}

/// Rejects impossible arms before anything is created or written.
pub(super) fn check(host: &dyn Host, arms: &[Arm]) -> Result<(), Failure> {
    match host.software() {
        // Booting a simulated machine takes milliseconds, so try the arms.
        Some(software) => {
            let mut booted = BootedArms::new(host, software, None, RunSeeds::default())?;
            booted.check(arms).map_err(Failure::usage)?;
            booted.restore().map_err(Failure::failed)
        }
        // On a real machine, `take` plans the arms before writing.
        None => Ok(()),
    }
}

/// Takes the machine for the arms of a comparison.
pub(crate) fn take<'h>(
    context: &Context,
    host: &'h dyn Host,
    manifest: &Manifest,
    interrupted: &Arc<AtomicBool>,
    quiet: Option<QuietDuringArms>,
    seeds: RunSeeds,
) -> Result<ComparisonSettings<'h>, Failure> {
    // No control group: models are not processes, and --pin chooses their CPUs.
    if let Some(software) = host.software() {
        let booted = BootedArms::new(host, software, quiet.map(|beneath| beneath.options), seeds)?;
        return Ok(ComparisonSettings { settings: Box::new(booted), group: None });
    }
    let arms = CheckedArms::check(host, manifest)?;
    let plan = quiet.map(|beneath| beneath.plan);
    let holding = if arms.sets || plan.is_some() {
        change::must_be_writable(host)?;
        let state = context.state()?;
        let guardian = context.guardian(&state)?;
        Some(Holding { state, guardian, command_line: change::command_line() })
    } else {
        None
    };
    if let Some(plan) = &plan {
        print_limits(plan, host);
    }
    let held = HeldArms::take(host, arms, holding, plan.as_ref(), interrupted)?;
    for note in &held.notes {
        eprintln!("note: {note}");
    }
    let group = held.group.clone();
    Ok(ComparisonSettings { settings: Box::new(held), group })
}
