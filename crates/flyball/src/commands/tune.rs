//! `flyball tune`: searches settings for the best one under a limit, then measures it again in fresh rounds.
//!
//! The search is a comparison whose blocks a model chooses (`flyball-search`); its run directory holds its rounds and
//! `search.json`. What is announced comes from a second comparison, in the folder `confirm` of that directory.

mod args;
mod blocks;
mod goal;
mod space;
mod verdict;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use flyball_control::save::quoted;
use flyball_host::{Host, User};
use flyball_measure::{Arm, End, Length, Manifest, Meters, Quantity, RunDirectory, stats};
use flyball_search::Search;

pub use self::args::Args;
use self::{
    blocks::{Outcome, SearchBlocks},
    goal::Goal,
    space::Searched,
    verdict::{Confirmed, Verdict},
};
use super::compare::{confirm, failure, manifest, run_rounds};
use crate::{
    arms, change,
    context::Context,
    exit::{Exit, Failure},
    schema,
    seeds::RunSeeds,
    time, workloads,
};

/// What `search.json` holds, besides the manifest: enough to continue the search and to compute it again.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Record {
    format: String,
    version: u32,
    goal: Goal,
    most_rounds: usize,
    searched: Searched,
}

const FORMAT: &str = "flyball-search";
const VERSION: u32 = 1;
const FILE: &str = "search.json";

/// Bytes of a search's file: two thousand settings of a few hundred bytes.
const MOST_BYTES: u64 = 16 << 20;

/// The probability at which a search ends.
const CERTAINTY: f64 = 0.98;

/// Pairs of the confirmation beyond those without which its test cannot decide.
const SPARE_PAIRS: usize = 2;

/// Runs the search, or describes it.
pub fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let host = context.open()?;
    let interrupted = change::interrupts()?;
    let (mut directory, record) = match &args.resume {
        Some(path) => resumed(&*host, path, args)?,
        None => match begun(context, &*host, args)? {
            Some(begun) => begun,
            None => return Ok(Exit::Done),
        },
    };
    let Some(outcome) = search(context, &*host, &mut directory, &record, &interrupted)? else {
        eprintln!(
            "flyball: stopped; settings are restored. {} rounds are kept; to continue: flyball tune --resume {}",
            directory.rounds.len(),
            directory.path().display()
        );
        return Ok(Exit::Command(130));
    };
    let confirmed = match outcome.chosen {
        0 => None,
        _ => match confirmation(context, &*host, &directory, &record, &outcome, &interrupted)? {
            Some(confirmed) => Some(confirmed),
            None => return Ok(Exit::Command(130)),
        },
    };
    let verdict = Verdict::new(&record.goal, &record.searched, &outcome, confirmed);
    context.output.about(&*host).object(
        schema::TUNE,
        || &verdict,
        || verdict.text(&directory.manifest, &record.searched),
    )?;
    if let Some(path) = &args.output {
        save_profile(path, &directory, &record, &verdict)?;
        eprintln!("profile: {}", path.display());
    }
    eprintln!("run directory: {}", directory.path().display());
    Ok(Exit::Done)
}

/// A new search; `None` if it was only to be described.
fn begun(context: &Context, host: &dyn Host, args: &Args) -> Result<Option<(RunDirectory, Record)>, Failure> {
    let workload = workloads::make(host, &args.workload)?;
    let goal = Goal::parse(
        args.minimize.as_deref(),
        args.maximize.as_deref(),
        args.subject_to.as_deref(),
        args.within,
        &flyball_measure::Workload::metric(&workload.command),
    )?;
    check_meters(host, &goal, workload.command.cpus.as_ref())?;
    let searched = Searched::new(host, &context.machine, &args.over, &args.without)?;
    let length = Length::Search { most: args.max_runs as usize };
    let manifest = manifest::manifest(host, &args.measuring, length, searched.arms.clone(), &workload);
    let record = Record {
        format: FORMAT.to_owned(),
        version: VERSION,
        goal,
        most_rounds: args.max_runs as usize,
        searched,
    };
    if args.dry_run {
        describe(context, host, &manifest, &record)?;
        return Ok(None);
    }
    let user = args.run_as.user(host)?;
    let directory = match &args.directory {
        Some(path) => RunDirectory::create(path, manifest, user)?,
        None => {
            let path = PathBuf::from(format!("flyball-tune-{}", time::stamp()));
            RunDirectory::create_numbered(&path, manifest, user)?
        }
    };
    let text = serde_json::to_vec_pretty(&record).map_err(Failure::failed)?;
    directory.write(FILE, &text)?;
    Ok(Some((directory, record)))
}

/// A search that was stopped.
fn resumed(host: &dyn Host, path: &Path, args: &Args) -> Result<(RunDirectory, Record), Failure> {
    let mut directory = RunDirectory::open(path)?;
    let wrong = |why: String| Failure::usage(format!("{}: {why}", path.join(FILE).display()));
    let bytes = flyball_files::Dir::open(path)
        .and_then(|dir| dir.read(FILE, MOST_BYTES))
        .map_err(|error| wrong(format!("{error}; is this a run directory of 'flyball tune'?")))?;
    let record: Record = serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
    if record.format != FORMAT || record.version > VERSION {
        return Err(wrong(format!(
            "format {} {} is not one that this flyball reads",
            record.format, record.version
        )));
    }
    // They index each other.
    if record.searched.arms != directory.manifest.arms
        || record.searched.levels.len() != record.searched.arms.len()
    {
        return Err(wrong("its settings are not those of the manifest".to_owned()));
    }
    manifest::check_same_machine(host, &directory.manifest)?;
    confirm::confirm(&directory, args.yes)?;
    directory.give_to(args.run_as.user(host)?);
    Ok((directory, record))
}

/// Refuses goals that nothing here measures, before any round is run.
fn check_meters(host: &dyn Host, goal: &Goal, cpus: Option<&flyball_host::CpuList>) -> Result<(), Failure> {
    use flyball_measure::Domain;
    let meters = Meters::find(host, cpus);
    let has = |domain| meters.list().energy.iter().any(|source| source.domain == domain);
    for aim in [Some(goal.aim), goal.limit.map(|limit| limit.aim)].into_iter().flatten() {
        let there = match aim.quantity {
            Quantity::Energy | Quantity::Power => has(Domain::Package),
            Quantity::PerWatt => has(Domain::Package) || has(Domain::Platform),
            Quantity::Dram => has(Domain::Dram),
            Quantity::Platform => has(Domain::Platform),
            _ => true,
        };
        if !there {
            let why = meters.list().no_energy.as_deref().unwrap_or("this machine has no meter for it");
            return Err(Failure::not_here(format!("{:?} cannot be measured: {why}", aim.quantity)));
        }
    }
    Ok(())
}

/// Runs the search; `None` if it was interrupted.
fn search(
    context: &Context,
    host: &dyn Host,
    directory: &mut RunDirectory,
    record: &Record,
    interrupted: &Arc<AtomicBool>,
) -> Result<Option<Outcome>, Failure> {
    let goal = flyball_search::Goal {
        within: record.goal.within,
        bound: record.goal.limit.map(goal::Limit::bound),
        certainty: CERTAINTY,
    };
    let seed = directory.manifest.schedule.seed;
    let search = Search::new(record.searched.space()?, goal, seed);
    let mut blocks = SearchBlocks::new(search, record.goal, record.most_rounds);
    let seeds = RunSeeds::of_comparison(seed, directory.rounds.len());
    let mut taken = arms::take(context, host, &record.searched.arms, interrupted, None, seeds)?;
    match run_rounds(
        host,
        directory,
        &mut taken,
        Arc::clone(interrupted),
        None,
        Some(&mut blocks),
        &mut |_| (),
    )? {
        Ok(End::Complete) => blocks.outcome.map(Some).ok_or_else(|| {
            Failure::failed("the search ended without a result: no round has yielded the quantity")
        }),
        Ok(End::Stopped) => Ok(None),
        Err(error) => Err(failure(&error, Some(directory.path()))),
    }
}

/// Compares the machine as it is, the chosen setting and the runner-up in fresh rounds; `None` if it was interrupted.
fn confirmation(
    context: &Context,
    host: &dyn Host,
    directory: &RunDirectory,
    record: &Record,
    outcome: &Outcome,
    interrupted: &Arc<AtomicBool>,
) -> Result<Option<Confirmed>, Failure> {
    let runner_up = outcome.runner_up.filter(|arm| *arm != 0 && *arm != outcome.chosen);
    let chosen = [Some(0), Some(outcome.chosen), runner_up];
    let arms: Vec<Arm> = chosen.into_iter().flatten().map(|arm| record.searched.arms[arm].clone()).collect();
    let path = directory.path().join("confirm");
    let mut fresh = if path.exists() {
        let mut fresh = RunDirectory::open(&path)?;
        fresh.give_to(directory.owner().cloned());
        fresh
    } else {
        let mut manifest = Manifest { boots: Vec::new(), ..directory.manifest.clone() };
        manifest.boot_needs = vec![None; arms.len()];
        let alpha = 1.0 - manifest.schedule.confidence;
        manifest.schedule.length = Length::Rounds(stats::pairs_needed(alpha, arms.len() - 1) + SPARE_PAIRS);
        // Another order than that of the search, and other random numbers of a simulated machine.
        manifest.schedule.seed = manifest.schedule.seed.wrapping_add(1);
        // The machine is warm from the search.
        manifest.schedule.warm_up = 0;
        manifest.arms = arms;
        RunDirectory::create(&path, manifest, directory.owner().cloned())?
    };
    if fresh.manifest.arms.len() < 2
        || fresh.manifest.arms[1].name != record.searched.arms[outcome.chosen].name
    {
        return Err(Failure::usage(format!("{} is of another search; move it away", path.display())));
    }
    eprintln!("flyball: the search has chosen '{}'; fresh rounds now", fresh.manifest.arms[1].name);
    let seeds = RunSeeds::of_comparison(fresh.manifest.schedule.seed, fresh.rounds.len());
    let mut taken = arms::take(context, host, &fresh.manifest.arms.clone(), interrupted, None, seeds)?;
    match run_rounds(host, &mut fresh, &mut taken, Arc::clone(interrupted), None, None, &mut |_| ())? {
        Ok(End::Complete) => {}
        Ok(End::Stopped) => {
            eprintln!(
                "flyball: stopped; settings are restored. To continue: flyball tune --resume {}",
                directory.path().display()
            );
            return Ok(None);
        }
        Err(error) => return Err(failure(&error, Some(fresh.path()))),
    }
    super::report::write_files(&fresh, fresh.path())?;
    Ok(Some(Confirmed::new(&fresh, &record.goal)))
}

/// Prints what would be searched.
fn describe(context: &Context, host: &dyn Host, manifest: &Manifest, record: &Record) -> Result<(), Failure> {
    use std::fmt::Write as _;
    let searched = &record.searched;
    let text = || {
        let mut out = format!("goal       {}\n", record.goal.title(&manifest.workload.metric));
        for row in &searched.factors {
            let order = if row.places.is_some() { "" } else { " (no order)" };
            let _ = writeln!(out, "{:<10} {}{order}", row.knob, row.values.join(" "));
        }
        let _ = writeln!(
            out,
            "settings   {} and the machine as it is, {} left out",
            searched.arms.len() - 1,
            searched.left_out.len()
        );
        for one in &searched.left_out {
            let _ = writeln!(out, "  without {}: {}", one.settings, one.why);
        }
        let _ =
            writeln!(out, "rounds     at most {}, then a confirmation in fresh rounds", record.most_rounds);
        out
    };
    context.output.about(host).object(schema::TUNE_PLAN, || record, text)
}

/// Writes the chosen settings as a profile.
fn save_profile(
    path: &Path,
    directory: &RunDirectory,
    record: &Record,
    verdict: &Verdict<'_>,
) -> Result<(), Failure> {
    use std::fmt::Write as _;
    let arm = &record.searched.arms[verdict.search.chosen];
    let metric = &directory.manifest.workload.metric;
    let is_limit_kept = verdict.confirmed.as_ref().is_none_or(|fresh| fresh.keeps_limit == Some(true));
    // A profile is read later, without the verdict.
    let doubt =
        if record.goal.limit.is_none() || is_limit_kept { "" } else { "; the limit was not shown to hold" };
    let description = format!(
        "{} for {}, found by flyball tune{doubt}",
        record.goal.title(metric),
        directory.manifest.workload.name
    );
    let mut text = format!("description = {}\n", quoted(&description));
    let mut sections = String::new();
    for setting in &arm.settings {
        let line = |knob: &str| format!("{} = {}\n", quoted(knob), quoted(&setting.value));
        match setting.knob.split_once('@') {
            None => text += &line(&setting.knob),
            Some((knob, cpus)) => {
                let _ = write!(sections, "\n[cpus.{}]\n{}", quoted(cpus), line(knob));
            }
        }
    }
    text += &sections;
    let _as_owner = directory.owner().map(User::for_files);
    flyball_files::replace(path, text.as_bytes())
        .map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))
}
