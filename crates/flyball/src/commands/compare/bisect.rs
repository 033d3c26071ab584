//! `compare --bisect`: finds the commit that changed a command's speed.

use std::sync::{Arc, atomic::AtomicBool};

use flyball_compare::{
    RunSeeds,
    bisect::{BisectError, CommitBlocks, Repository, arms},
};
use flyball_host::{Host, Kind};
use flyball_measure::{
    BisectNote, HookRunner, Hooks, Length, Manifest, PowerCommand, RunDirectory, Stop, WorkloadError,
};
use flyball_process::User;

use super::{
    Finished,
    args::Args,
    arms_and_workload, dry_run, failure,
    manifest::manifest,
    power, run_rounds,
    take::{self, ComparisonSettings},
};
use crate::{
    change,
    context::Context,
    exit::{Exit, Failure},
};

pub(super) fn run(context: &Context, host: &dyn Host, args: &Args, range: &str) -> Result<Exit, Failure> {
    check_live(host)?;
    let interrupted = change::interrupts()?;
    let stop = Stop::watching(Arc::clone(&interrupted));
    let user = args.run_as.user(host)?;
    let directory = std::env::current_dir().map_err(Failure::failed)?;
    let repository = match Repository::open(host, &directory, range, user.clone(), &stop) {
        Ok(repository) => repository,
        Err(error) => return ended(error),
    };
    // The arms are replaced by commits below.
    let mut one_arm = args.clone();
    one_arm.programs.aa = true;
    let (programs, workload) = arms_and_workload(host, &one_arm, &[])?;
    let argv = programs.first().and_then(|arm| arm.program.as_ref()).map_or(&[][..], |program| &program.argv);
    let arms = arms(&repository, argv);
    // A block has two rounds.
    let length = Length::Search { most: 2 * args.max_rounds(), cut: None };
    let mut manifest = manifest(host, &args.measuring, length, arms, &workload);
    manifest.schedule.random_layout = !args.fixed_layout;
    manifest.schedule.timeout = args.timeout;
    manifest.trace = args.measuring.trace;
    manifest.bisect = Some(BisectNote { build: args.build.clone(), directory });
    // A commit that fails is skipped.
    manifest.workload.ignore_failure = true;
    let quiet = super::quiet(host, args, &mut manifest)?;
    if args.dry_run {
        return dry_run::dry_run(context, host, &manifest);
    }
    let blocks = match blocks(&repository, &manifest, user.clone(), stop) {
        Ok(blocks) => blocks,
        Err(error) => return ended(error),
    };
    let power_command = power::start(host, &args.measuring, workload.command.cpus.as_ref())?;
    let seeds = RunSeeds::for_comparison(manifest.schedule.seed, 0);
    let taken = take::take(context, host, &manifest, &interrupted, quiet, seeds)?;
    let directory = super::create(args, "bisect", manifest, user)?;
    search(context, host, directory, taken, blocks, power_command, interrupted)
}

/// Continues a bisection: the existing rounds lead to the same choice of commits again.
pub(super) fn resume(
    context: &Context,
    host: &dyn Host,
    mut directory: RunDirectory,
    power_command: Option<PowerCommand>,
) -> Result<Exit, Failure> {
    check_live(host)?;
    let interrupted = change::interrupts()?;
    let stop = Stop::watching(Arc::clone(&interrupted));
    let user = directory.owner().cloned();
    let names: Vec<String> = directory.manifest.arms.iter().map(|arm| arm.name.clone()).collect();
    let range = [names.first(), names.last()].map(|name| name.map_or("", String::as_str)).join("..");
    let place = directory.manifest.bisect.as_ref().map(|note| note.directory.clone()).unwrap_or_default();
    let repository = match Repository::open(host, &place, &range, user.clone(), &stop) {
        Ok(repository) => repository,
        Err(error) => return ended(error),
    };
    if repository.commits != names {
        return Err(Failure::usage(format!(
            "this repository has other commits in {range} than the bisection"
        )));
    }
    // The work trees are new, so their paths changed.
    let argv = directory.manifest.arms[0].program.as_ref().map_or(Vec::new(), |program| program.argv.clone());
    directory.manifest.arms = arms(&repository, &argv);
    let blocks = match blocks(&repository, &directory.manifest, user, stop) {
        Ok(blocks) => blocks,
        Err(error) => return ended(error),
    };
    let taken = super::acquire_for_resume(context, host, &directory, &interrupted)?;
    search(context, host, directory, taken, blocks, power_command, interrupted)
}

/// Rejects a simulated machine, which cannot run commits.
fn check_live(host: &dyn Host) -> Result<(), Failure> {
    match host.kind() {
        Kind::Live => Ok(()),
        _ => Err(Failure::usage("--bisect runs programs of this machine, not on one of -M")),
    }
}

/// Builds GOOD and BAD.
fn blocks<'a>(
    repository: &'a Repository<'a>,
    manifest: &Manifest,
    user: Option<User>,
    stop: Stop,
) -> Result<CommitBlocks<'a>, BisectError> {
    let setup = manifest.bisect.as_ref().and_then(|note| note.build.clone());
    let build = HookRunner { hooks: Hooks { setup, ..Hooks::default() }, directory: None, user };
    CommitBlocks::new(repository, build, stop, manifest.schedule.confidence)
}

/// Runs pairs of commits until the search ends, and prints the result.
fn search(
    context: &Context,
    host: &dyn Host,
    mut directory: RunDirectory,
    mut taken: ComparisonSettings<'_>,
    mut blocks: CommitBlocks<'_>,
    power_command: Option<PowerCommand>,
    interrupted: Arc<AtomicBool>,
) -> Result<Exit, Failure> {
    let finished =
        run_rounds(host, &mut directory, &mut taken, interrupted, power_command, Some(&mut blocks))?;
    match (blocks.failure.take(), finished) {
        (Some(BisectError::Workload(WorkloadError::Stopped)), _) | (None, Finished::Stopped) => {
            return Ok(super::stopped("compare", &context.machine, &directory));
        }
        (Some(error), _) => return ended(error),
        (None, Finished::Failed(error)) => return Err(failure(*error, Some(directory.path()))),
        (None, Finished::Complete) => {}
    }
    let metric = &directory.manifest.workload.metric;
    let report = blocks.report(&directory);
    let found = report.answer == "found";
    context.output.about(host).object(|| report.clone(), || report.text(&metric.name))?;
    eprintln!("run directory: {}", directory.path().display());
    Ok(if found { Exit::Done } else { Exit::CannotTell })
}

/// Converts an error that ends a bisection.
fn ended(error: BisectError) -> Result<Exit, Failure> {
    match error {
        BisectError::Workload(WorkloadError::Stopped) => Ok(stopped()),
        error @ (BisectError::Workload(_) | BisectError::Git { .. } | BisectError::End { .. }) => {
            Err(Failure::failed(error))
        }
        error => Err(Failure::usage(error)),
    }
}

fn stopped() -> Exit {
    eprintln!("flyball: stopped; the work trees are removed and settings are restored");
    // 128 + SIGINT, as shells report it.
    Exit::Command(130)
}
