//! `compare --dry-run`: prints the writes of each arm, the order of rounds, and the duration.

use std::fmt::Write as _;

use flyball_compare::{BootedArms, RunSeeds, arms};
use flyball_host::Host;
use flyball_measure::{Hook, Manifest, Program, RefusedArm, Schedule, WorkloadNote};
use flyball_text::{counted, span};

use crate::{
    change,
    context::Context,
    exit::{Exit, Failure},
};

#[derive(schemars::JsonSchema, serde::Serialize)]
struct ArmPlan {
    name: String,
    needs_boot: Option<String>,
    /// What the arm runs, if arms run different programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<Program>,
    /// Boot options of a simulated machine for this arm.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    booted_with: Vec<String>,
    plan: Option<flyball_control::plan::Plan>,
}

#[derive(schemars::JsonSchema, serde::Serialize)]
pub(crate) struct DryRun<'a> {
    workload: &'a WorkloadNote,
    schedule: &'a Schedule,
    arms: Vec<ArmPlan>,
    rounds_at_most: usize,
    pause_seconds: f64,
    order: Vec<Vec<String>>,
}

/// Prints what the comparison would do.
pub(super) fn dry_run(context: &Context, host: &dyn Host, manifest: &Manifest) -> Result<Exit, Failure> {
    let mut arms = Vec::new();
    let mut booted = match host.software() {
        Some(software) => {
            let seeds = RunSeeds::for_comparison(manifest.schedule.seed, 0);
            Some(BootedArms::new(host, software, None, seeds)?)
        }
        None => None,
    };
    for arm in &manifest.arms {
        let booted_with = match &mut booted {
            // On a simulated machine, plan for the arm's boot: its driver decides which knobs
            // exist.
            Some(booted) => booted.boot(arm).map_err(Failure::failed)?,
            None => Vec::new(),
        };
        let refused = |cause| RefusedArm { arm: arm.name.clone(), cause };
        let needs_boot = arms::boot_needed(host, arm).map_err(refused)?;
        let intent = arms::intent(arm, &manifest.knobs).map_err(refused)?;
        let plan = match &needs_boot {
            None if !intent.is_empty() => Some(arms::plan_now(host, &intent).map_err(refused)?),
            _ => None,
        };
        arms.push(ArmPlan {
            name: arm.name.clone(),
            needs_boot,
            program: arm.program.clone(),
            booted_with,
            plan,
        });
    }
    // Arms that need another boot are not part of this boot's order, like in the comparison itself.
    let runnable: Vec<usize> = (0..arms.len()).filter(|arm| arms[*arm].needs_boot.is_none()).collect();
    let schedule = &manifest.schedule;
    // The maximum, for blocks that take no time.
    let rounds_at_most = fixed(schedule, f64::MIN_POSITIVE).rounds(runnable.len());
    // A search chooses the commits of each block from earlier rounds.
    let blocks = if manifest.bisect.is_some() { 0 } else { schedule.warm_up + schedule.most() };
    let order: Vec<Vec<String>> = (0..blocks)
        .map(|block| schedule.order(block, &runnable).into_iter().map(|arm| arms[arm].name.clone()).collect())
        .collect();
    let pause_seconds = rounds_at_most as f64 * schedule.cool_down;
    let preview =
        DryRun { workload: &manifest.workload, schedule, arms, rounds_at_most, pause_seconds, order };
    context.output.about(host).object(|| &preview, || render(manifest, &preview))?;
    Ok(Exit::Done)
}

/// Returns the schedule as if the blocks of the warm-up had taken this long.
fn fixed(schedule: &Schedule, block_seconds: f64) -> Schedule {
    let mut fixed = schedule.clone();
    fixed.fix_rounds(Some(block_seconds));
    fixed
}

fn render(manifest: &Manifest, preview: &DryRun<'_>) -> String {
    let DryRun { schedule, arms, rounds_at_most, order, .. } = preview;
    let mut out = String::new();
    if let Some(quiet) = &manifest.quiet {
        let _ = writeln!(out, "quiet ({}, CPUs {}): {}", quiet.level, quiet.cpus, quiet.settings.join(" "));
        for what in &quiet.unavailable {
            let _ = writeln!(out, "  cannot {what}");
        }
    }
    let _ = writeln!(
        out,
        "workload: {} ({}, {})",
        manifest.workload.name, manifest.workload.metric.name, manifest.workload.metric.unit
    );
    for load in &manifest.workload.background {
        let _ = writeln!(out, "during each round: {}", load.title());
    }
    for hook in Hook::ALL {
        if let Some(script) = manifest.workload.hooks.get(hook) {
            let _ = writeln!(out, "{}: {script}", hook.option());
        }
    }
    if let Some(note) = &manifest.bisect {
        let [good, bad] = [arms.first(), arms.last()].map(|arm| arm.map_or("", |arm| arm.name.as_str()));
        let _ =
            writeln!(out, "searches the {} commits after {good}, up to {bad}", arms.len().saturating_sub(1));
        let build = note.build.as_ref().map_or_else(String::new, |build| format!(" and built once: {build}"));
        let _ = writeln!(out, "each commit that runs is checked out below TMPDIR{build}");
        let _ = writeln!(out, "at most {rounds_at_most} rounds, in blocks of two commits");
        return out;
    }
    for (index, arm) in arms.iter().enumerate() {
        let _ = writeln!(out, "\narm '{}'", arm.name);
        if let Some(program) = &arm.program {
            let _ = writeln!(out, "  runs {}", program.title());
        }
        let settings = &manifest.arms[index].settings;
        let own: Vec<String> = settings
            .iter()
            .filter(|setting| setting.user_knob(&manifest.knobs).is_some())
            .map(ToString::to_string)
            .collect();
        if !own.is_empty() {
            let _ = writeln!(out, "  by your own commands: {}", own.join(" "));
        }
        if !arm.booted_with.is_empty() {
            let _ = writeln!(out, "  booted with {}", arm.booted_with.join(" "));
        }
        match (&arm.needs_boot, &arm.plan) {
            (Some(needed), _) => out += &format!("  needs a boot with {needed}, then --resume\n"),
            (None, None) if own.is_empty() => out += "  the machine as it is\n",
            (None, None) => {}
            (None, Some(plan)) => out += &change::plan_text(plan, false),
        }
    }
    let _ = writeln!(
        out,
        "\norder (seed {}; {} warm-up; two blocks take turns)",
        schedule.seed, schedule.warm_up
    );
    // Enough to show that the order is random. --json has all.
    for (block, names) in order.iter().enumerate().take(8) {
        let label = if block < schedule.warm_up {
            "warm-up".to_owned()
        } else {
            format!("{}", block - schedule.warm_up + 1)
        };
        let _ = writeln!(out, "  {label:>7}  {}", names.join("  |  "));
    }
    if order.len() > 8 {
        let _ = writeln!(out, "      ...  {} more blocks", order.len() - 8);
    }
    // How long the workload takes is not known before it runs, so give three examples.
    let arms = order.first().map_or(0, Vec::len);
    let [second, ten, minute] = [1.0, 10.0, 60.0].map(|seconds| duration(schedule, arms, seconds));
    let rounds = counted(*rounds_at_most, "round");
    let _ = writeln!(
        out,
        "\nat most {rounds}: {second} if a round takes 1 s, {ten} if 10 s, {minute} if a minute"
    );
    out
}

/// Returns the maximum length of a session with this many arms if each round takes `seconds`.
fn duration(schedule: &Schedule, arms: usize, seconds: f64) -> String {
    let round = seconds + schedule.cool_down;
    let all = fixed(schedule, round * arms as f64).rounds(arms) as f64 * round;
    // At least two blocks run, however long they take.
    let least = ((schedule.warm_up + 2) * arms) as f64 * round;
    span::words(all.min(schedule.most_seconds.unwrap_or(all).max(least)))
}
