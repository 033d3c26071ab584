//! `compare --bisect`: the commit that changed a command's speed.

use std::{path::PathBuf, sync::Arc};

use flyball_compare::{
    RunSeeds,
    bisect::{BisectError, CommitBlocks, Repository, arms},
};
use flyball_host::{Host, Kind};
use flyball_measure::{Better, HookRunner, Hooks, Length, RunDirectory, Stop, Workload as _, WorkloadError};

use super::{Finished, args::Args, arms_and_workload, failure, manifest::manifest, power, run_rounds, take};
use crate::{
    change,
    context::Context,
    exit::{Exit, Failure},
    time,
};

pub(super) fn run(context: &Context, host: &dyn Host, args: &Args, range: &str) -> Result<Exit, Failure> {
    if host.kind() != Kind::Live {
        return Err(Failure::usage("--bisect runs programs of this machine, not on one of -M"));
    }
    let interrupted = change::interrupts()?;
    let stop = Stop::watching(Arc::clone(&interrupted));
    let user = args.run_as.user(host)?;
    let repository = match Repository::open(host, range, user.clone(), &stop) {
        Ok(repository) => repository,
        Err(error) => return ended(error),
    };
    // The arms of settings are replaced by those of commits.
    let mut one_arm = args.clone();
    one_arm.programs.aa = true;
    let (_, workload) = arms_and_workload(host, &one_arm, &[])?;
    let arms = arms(&repository, &workload.command.argv);
    // Blocks of two rounds.
    let length = Length::Search { most: 2 * args.max_rounds as usize, cut: None };
    let mut manifest = manifest(host, &args.measuring, length, arms, &workload);
    manifest.schedule.random_layout = !args.fixed_layout;
    manifest.schedule.timeout = args.timeout;
    manifest.trace = args.measuring.trace;
    // A commit that fails is skipped.
    manifest.workload.ignore_failure = true;
    let quiet = super::quiet(host, args, &mut manifest)?;
    let build = HookRunner {
        hooks: Hooks { setup: args.build.clone(), ..Hooks::default() },
        directory: None,
        user: user.clone(),
    };
    let confidence = args.measuring.confidence;
    let mut blocks = match CommitBlocks::new(&repository, build, stop, confidence) {
        Ok(blocks) => blocks,
        Err(error) => return ended(error),
    };
    let power_command = power::start(host, &args.measuring, workload.command.cpus.as_ref())?;
    let seeds = RunSeeds::of_comparison(manifest.schedule.seed, 0);
    let mut taken = take::take(context, host, &manifest, &interrupted, quiet, seeds)?;
    let mut directory = match &args.output {
        Some(path) => RunDirectory::create(path, manifest, user)?,
        None => {
            let path = PathBuf::from(format!("flyball-bisect-{}", time::stamp()));
            RunDirectory::create_numbered(&path, manifest, user)?
        }
    };
    let finished = run_rounds(
        host,
        &mut directory,
        &mut taken,
        interrupted,
        power_command,
        Some(&mut blocks),
        &mut |_| (),
    )?;
    if let Some(error) = blocks.failure.take() {
        return ended(error);
    }
    match finished {
        Finished::Complete => {}
        Finished::Stopped => return Ok(stopped()),
        Finished::Failed(error) => return Err(failure(*error, Some(directory.path()))),
    }
    let metric = workload.command.metric();
    let report = blocks.report(metric.better == Better::Lower, confidence);
    let found = report.answer == "found";
    context.output.about(host).object(|| report.clone(), || report.text(&metric.name))?;
    eprintln!("run directory: {}", directory.path().display());
    Ok(if found { Exit::Done } else { Exit::CannotTell })
}

/// How a bisection ends that cannot go on.
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
