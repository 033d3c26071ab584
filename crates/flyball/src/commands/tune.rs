//! `flyball tune`: searches for the best settings under a limit, then measures the result again in
//! fresh rounds.
//!
//! The search is a comparison in which a model chooses the blocks (`flyball-search`). Its run
//! directory has its rounds and `search.json`. The reported result comes from a second comparison,
//! in that directory's folder `confirm`.

mod args;
mod pictures;
mod replay;
mod screen;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use flyball_compare::{RoundTraces, user_knobs, workloads};
use flyball_control::{Knob, quiet::QuietOptions};
use flyball_host::Host;
use flyball_measure::{Arm, Blocks, Length, Manifest, Meters, Metric, Quantity, RunDirectory, stats};
use flyball_process::User;
use flyball_tune::{
    CONFIRM, Candidates, Confirmed, Goal, Outcome, Pictures, Record, SearchBlocks, SearchRequest, Searched,
    Verdict,
};

pub(crate) use self::args::Args;
pub(crate) use self::replay::report;
use self::screen::Screen;
use super::compare::{
    Finished, acquire_for_resume, confirm, failure, manifest, power, quiet_during_arms, run_rounds, stopped,
};
use crate::{
    change,
    commands::complete,
    context::Context,
    exit::{Exit, Failure},
    time,
};

/// If the goal is about time, a round is stopped after this multiple of the base's median.
const CAP: f64 = 3.0;

/// Pairs in the confirmation beyond the minimum for its test to decide.
const SPARE_PAIRS: usize = 2;

/// Runs the search, or describes it for --dry-run.
pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let host = context.open()?;
    let interrupted = change::interrupts()?;
    let (directory, record) = match &args.resume {
        Some(path) => resumed(&*host, path, args)?,
        None => match start_new(context, &*host, args)? {
            Some(begun) => begun,
            None => return Ok(Exit::Done),
        },
    };
    let mut tuning = Tuning { context, host: &*host, args, directory, record, interrupted };
    let Some((outcome, confirmed)) = tuning.run()? else { return Ok(tuning.stopped()) };
    let Tuning { directory, record, .. } = tuning;
    let second = record.contradicted_after.is_some();
    let verdict = Verdict::new(&record.goal, &record.searched, &directory, &outcome, confirmed, second);
    let pictures = Pictures::draw(&directory, &record, &outcome, &verdict);
    pictures::write(&directory, &pictures, directory.path())?;
    context
        .output
        .about(&*host)
        .object(|| &verdict, || verdict.text(&directory.manifest, &record.searched))?;
    match &args.output {
        Some(path) if verdict.keeps_now => {
            eprintln!("profile: none; {} is not written, because no gain is shown", path.display());
        }
        Some(path) => {
            save_profile(path, &directory, &record, &verdict)?;
            eprintln!("profile: {}", path.display());
        }
        None => {}
    }
    eprintln!("run directory: {}", directory.path().display());
    if verdict.failed.len() + 1 == record.searched.arms.len() {
        return Err(Failure::failed("every setting but 'now' failed; there is nothing to compare"));
    }
    Ok(Exit::Done)
}

/// Creates a new search. `None` if it is only described.
fn start_new(
    context: &Context,
    host: &dyn Host,
    args: &Args,
) -> Result<Option<(RunDirectory, Record)>, Failure> {
    let workload = workloads::prepare(host, &args.with_direction())?;
    let metric = flyball_measure::Workload::metric(&workload.command);
    let asked = resolve_request(context, host, args, &metric)?;
    let goal = Goal::parse(&asked, args.within, &args.prefer, &metric)?;
    power::check(host, &args.measuring)?;
    check_meters(
        host,
        &goal,
        &metric,
        workload.command.cpus.as_ref(),
        args.measuring.power_command.is_some(),
    )?;
    let knobs = user_knobs::read(host, &args.measuring.knob)?;
    let quiet = args.measuring.quiet.map(|level| QuietOptions {
        level,
        cpus: workload.command.cpus.clone(),
        freq: None,
    });
    let values_of = |knob: &Knob| complete::values_of(knob, &context.machine);
    let candidates = Candidates::new(host, &values_of, &knobs, quiet.as_ref())?;
    let searched = Searched::new(&candidates, &asked.over, &args.without)?;
    // Enough to make 95 % of simulated searches right. More settings need more rounds
    // (docs/dev/tune.md).
    let by_size = if searched.arms.len() > 100 { 400 } else { 200 };
    let most_rounds = args.max_runs.map_or(by_size, |most| most as usize);
    let length = Length::Search { most: most_rounds, cut: Some(round_timeout(args, &goal)?) };
    let mut manifest = manifest::manifest(host, &args.measuring, length, searched.arms.clone(), &workload);
    manifest.trace = args.measuring.trace;
    manifest.knobs = user_knobs::commands(&knobs);
    if let Some(quiet) = quiet {
        // Decides again before each part; this puts it into the manifest.
        quiet_during_arms(host, quiet, &mut manifest)?;
    }
    if args.measuring.trace && !args.dry_run {
        RoundTraces::check(host)?;
    }
    let mut record = Record::new(goal, searched, most_rounds);
    record.most_seconds = args.max_time.map(|minutes| 60.0 * f64::from(minutes));
    record.strict = args.strict;
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
    record.write(&directory)?;
    Ok(Some((directory, record)))
}

/// Returns the search request from the options or a preset. Prints the preset as options.
fn resolve_request(
    context: &Context,
    host: &dyn Host,
    args: &Args,
    metric: &Metric,
) -> Result<SearchRequest, Failure> {
    let Some(preset) = args.preset else {
        return Ok(SearchRequest {
            over: args.over.clone(),
            minimize: args.minimize.clone(),
            maximize: args.maximize.clone(),
            subject_to: args.subject_to.clone(),
        });
    };
    let asked = preset.expand(host, &|knob: &Knob| complete::values_of(knob, &context.machine), metric)?;
    let over: Vec<String> = asked.over.iter().map(|over| format!("--over {over}")).collect();
    let limit = asked.subject_to.iter().map(|limit| format!(" --subject-to '{limit}'")).collect::<String>();
    let goal = match (&asked.minimize, &asked.maximize) {
        (Some(least), _) => format!("--minimize {least}"),
        (None, most) => format!("--maximize {}", most.as_deref().unwrap_or_default()),
    };
    eprintln!("flyball: the preset is {} {goal}{limit}", over.join(" "));
    Ok(asked)
}

/// Returns the multiple of the base's median after which a round is stopped.
fn round_timeout(args: &Args, goal: &Goal) -> Result<f64, Failure> {
    match args.cap {
        // A run that takes several times as long may still use the least power, and a score is only
        // known at the end.
        Some(_) if !goal.is_about_time() => Err(Failure::usage(
            "--cap needs time as a quantity or as the limit: other quantities need the whole run; use --timeout",
        )),
        Some(cap) if cap >= args.timeout => Err(Failure::usage(format!(
            "--cap {cap}: a round ends after --timeout {} times the base's time anyway; give a smaller cap",
            args.timeout
        ))),
        Some(cap) => Ok(cap),
        None if goal.is_about_time() => Ok(CAP.min(args.timeout)),
        None => Ok(args.timeout),
    }
}

/// Opens a search that was stopped.
fn resumed(host: &dyn Host, path: &Path, args: &Args) -> Result<(RunDirectory, Record), Failure> {
    let mut directory = RunDirectory::open(path)?;
    let record = Record::read(&directory)?;
    manifest::check_same_machine(host, &directory.manifest)?;
    confirm::confirm(&directory, args.yes)?;
    directory.give_to(args.run_as.user(host)?);
    Ok((directory, record))
}

/// Rejects goals that cannot be measured here, before any round is run.
fn check_meters(
    host: &dyn Host,
    goal: &Goal,
    metric: &Metric,
    cpus: Option<&flyball_host::CpuList>,
    has_command: bool,
) -> Result<(), Failure> {
    use flyball_measure::Domain;
    let meters = Meters::find(host, cpus);
    let has = |domain| meters.list().energy.iter().any(|source| source.domain == domain);
    for aim in [Some(goal.aim), goal.limit.map(|limit| limit.aim)].into_iter().flatten() {
        let there = match aim.quantity {
            Quantity::Energy | Quantity::Power => has(Domain::Package),
            Quantity::WorkEnergy | Quantity::PerWatt => {
                has(Domain::Package) || has(Domain::Platform) || has_command
            }
            Quantity::Dram => has(Domain::Dram),
            Quantity::Platform => has(Domain::Platform) || has_command,
            _ => true,
        };
        if !there {
            let why = meters.list().no_energy.as_deref().unwrap_or("this machine has no meter for it");
            return Err(Failure::not_here(format!(
                "{} cannot be measured: {why}",
                aim.quantity.metric(metric).name
            )));
        }
    }
    Ok(())
}

/// A running search on a machine.
struct Tuning<'a> {
    context: &'a Context,
    host: &'a dyn Host,
    args: &'a Args,
    directory: RunDirectory,
    record: Record,
    interrupted: Arc<AtomicBool>,
}

impl Tuning<'_> {
    /// Says how to continue after Ctrl-C.
    fn stopped(&self) -> Exit {
        stopped("tune", &self.context.machine, &self.directory)
    }

    /// Searches and confirms, and once more if fresh rounds contradict the search. `None` if it was
    /// interrupted.
    fn run(&mut self) -> Result<Option<(Outcome, Option<Confirmed>)>, Failure> {
        loop {
            let Some(outcome) = self.search()? else { return Ok(None) };
            let number = usize::from(self.record.contradicted_after.is_some());
            if outcome.chosen == 0 {
                return Ok(Some((outcome, None)));
            }
            let Some(confirmed) = self.confirm(&outcome, CONFIRM[number])? else { return Ok(None) };
            if number > 0 || !confirmed.contradicts(self.record.goal.aim) {
                return Ok(Some((outcome, Some(confirmed))));
            }
            eprintln!("flyball: the fresh rounds contradict the search; it goes on with them, once");
            self.record.contradicted_after = Some(outcome.blocks);
            // Allow as many rounds again, because the earlier rounds led to a wrong choice.
            self.record.most_rounds += outcome.rounds;
            if let Length::Search { most, .. } = &mut self.directory.manifest.schedule.length {
                *most = self.record.most_rounds;
            }
            self.record.write(&self.directory)?;
        }
    }

    /// Runs the rounds of a directory, for the search or the confirmation. `None` if interrupted.
    fn rounds(
        &self,
        directory: &mut RunDirectory,
        blocks: Option<&mut dyn Blocks>,
    ) -> Result<Option<()>, Failure> {
        let power_command = power::resumed(self.host, &directory.manifest, &self.args.measuring)?;
        let mut taken = acquire_for_resume(self.context, self.host, directory, &self.interrupted)?;
        let interrupted = Arc::clone(&self.interrupted);
        match run_rounds(self.host, directory, &mut taken, interrupted, power_command, blocks)? {
            Finished::Complete => Ok(Some(())),
            Finished::Stopped => Ok(None),
            Finished::Failed(error) => Err(failure(*error, Some(directory.path()))),
        }
    }

    fn search(&mut self) -> Result<Option<Outcome>, Failure> {
        let record = self.record.clone();
        let screen = Screen;
        let mut blocks = SearchBlocks::from_directory(&record, &self.directory, Some(&screen))?;
        if self.search_rounds(&mut blocks)?.is_none() {
            return Ok(None);
        }
        self.ended(blocks.failure(), blocks.outcome.as_ref()).cloned().map(Some)
    }

    /// Runs the rounds that a search asks for. `None` if interrupted.
    fn search_rounds(&mut self, blocks: &mut dyn Blocks) -> Result<Option<()>, Failure> {
        // Open it again: its rounds change while `self.directory` is read.
        let mut directory = RunDirectory::open(self.directory.path())?;
        directory.give_to(self.directory.owner().cloned());
        if let Length::Search { most, .. } = &mut directory.manifest.schedule.length {
            *most = self.record.most_rounds;
        }
        let ended = self.rounds(&mut directory, Some(blocks));
        self.directory = directory;
        ended
    }

    /// Returns the result of a finished search, or its failure.
    fn ended<T>(&self, failure: Option<&str>, found: Option<T>) -> Result<T, Failure> {
        if let Some(why) = failure {
            return Err(Failure::failed(format!(
                "{why}\ncompleted rounds are in {}",
                self.directory.path().display()
            )));
        }
        found.ok_or_else(|| {
            Failure::failed("the search ended without a result: no round has yielded the quantity")
        })
    }

    /// Compares the current settings, the chosen ones and the runner-up in fresh rounds.
    fn confirm(&self, outcome: &Outcome, folder: &str) -> Result<Option<Confirmed>, Failure> {
        let (directory, record) = (&self.directory, &self.record);
        let runner_up = outcome.runner_up.filter(|arm| *arm != 0 && *arm != outcome.chosen);
        let chosen = [Some(0), Some(outcome.chosen), runner_up];
        let arms: Vec<Arm> =
            chosen.into_iter().flatten().map(|arm| record.searched.arms[arm].clone()).collect();
        let path = directory.path().join(folder);
        let mut fresh = if path.exists() {
            let mut fresh = RunDirectory::open(&path)?;
            fresh.give_to(directory.owner().cloned());
            fresh
        } else {
            let mut manifest = Manifest { boots: Vec::new(), ..directory.manifest.clone() };
            manifest.boot_needs = vec![None; arms.len()];
            let alpha = 1.0 - manifest.schedule.confidence;
            manifest.schedule.length =
                Length::Rounds(stats::pairs_needed(alpha, arms.len() - 1) + SPARE_PAIRS);
            // Use another order than the search, and other random numbers on a simulated machine.
            manifest.schedule.seed = manifest.schedule.seed.wrapping_add(folder.len() as u64);
            // The search has already warmed up the machine.
            manifest.schedule.warm_up = 0;
            manifest.arms = arms;
            RunDirectory::create(&path, manifest, directory.owner().cloned())?
        };
        if fresh.manifest.arms.len() < 2
            || fresh.manifest.arms[1].name != record.searched.arms[outcome.chosen].name
        {
            return Err(Failure::usage(format!(
                "{} belongs to another search; move it away",
                path.display()
            )));
        }
        eprintln!("flyball: the search has chosen '{}'; fresh rounds now", fresh.manifest.arms[1].name);
        if self.rounds(&mut fresh, None)?.is_none() {
            return Ok(None);
        }
        super::report::write_files(&fresh, fresh.path(), false)?;
        Ok(Some(Confirmed::new(&fresh, &record.goal, directory, outcome.chosen)))
    }
}

/// Prints the search space.
fn describe(context: &Context, host: &dyn Host, manifest: &Manifest, record: &Record) -> Result<(), Failure> {
    use std::fmt::Write as _;
    let searched = &record.searched;
    let text = || {
        let metric = &manifest.workload.metric;
        let mut out = format!("goal       {}\n", record.goal.title(metric));
        if metric.is_rate() {
            let _ = writeln!(
                out,
                "           {} is a rate, so energy is that of the same work: the load may run for a fixed time",
                metric.name
            );
        }
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
    context.output.about(host).object(|| record, text)
}

/// Writes the chosen settings as a profile.
fn save_profile(
    path: &Path,
    directory: &RunDirectory,
    record: &Record,
    verdict: &Verdict<'_>,
) -> Result<(), Failure> {
    let is_limit_kept = verdict.confirmed.as_ref().is_none_or(|fresh| fresh.keeps_limit == Some(true));
    // A profile is read later, without the verdict.
    let doubt =
        if record.goal.limit.is_none() || is_limit_kept { "" } else { "; the limit was not shown to hold" };
    write_profile(path, directory, record, verdict.search.chosen, doubt)
}

/// Writes the settings of an arm as a profile. `doubt` is added to its description.
fn write_profile(
    path: &Path,
    directory: &RunDirectory,
    record: &Record,
    arm: usize,
    doubt: &str,
) -> Result<(), Failure> {
    let text = flyball_tune::profile(&directory.manifest, record, arm, doubt)?;
    let _as_owner = directory.owner().map(User::for_files);
    flyball_files::replace(path, text.as_bytes())
        .map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))
}
