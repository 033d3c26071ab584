//! The machine of a comparison, held from its first round to its last.

use std::sync::{Arc, atomic::AtomicBool};

use flyball_compare::{
    BootedArms, HeldArms, RunSeeds,
    arms::{CheckedArms, Holding},
};
use flyball_control::quiet::{QuietOptions, QuietPlan};
use flyball_host::Host;
use flyball_measure::{Arm, Manifest, Settings};

use crate::{change, context::Context, exit::Failure, quiet_machine::print_limits};

/// What keeps the machine quiet beneath all arms.
pub(crate) struct QuietDuringArms {
    pub options: QuietOptions,
    /// Decided for the machine as it is before the first arm.
    pub plan: QuietPlan,
}

/// The settings of a comparison, and the control group that the workload is to join.
pub(crate) struct ComparisonSettings<'h> {
    pub settings: Box<dyn Settings + 'h>,
    pub group: Option<String>,
}

/// Refuses arms that cannot be had, before anything is made or written.
pub(super) fn check(host: &dyn Host, arms: &[Arm]) -> Result<(), Failure> {
    match host.software() {
        // In software a boot costs milliseconds, so the arms are tried.
        Some(software) => {
            let mut booted = BootedArms::new(host, software, None, RunSeeds::default())?;
            booted.check(arms).map_err(Failure::usage)?;
            booted.restore().map_err(Failure::failed)
        }
        // On a real machine `take` plans them, before it writes.
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
    // No group: models are not processes, and what they run on is chosen by --pin.
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
