//! The comparison as it runs: block after block, arm after arm, with settings restored at the end.

mod background;
mod server;

use std::{path::PathBuf, time::Duration};

use flyball_host::{CpuList, Host};

use self::{background::Background, server::Served};
use crate::{
    analyse::{disturbed_blocks, is_known},
    arm::Arm,
    hooks::HookRunner,
    meter::{MeterList, Meters},
    program::Hook,
    run_directory::{Boot, Manifest, RecordError, Round, RunDirectory, TraceNote},
    schedule::{Length, Schedule},
    settings::{RefusedArm, Settings, SettingsError, SettingsSnapshot},
    speed::{RoundSpeed, SpeedNote},
    watch::{Clock, Conditions, Counting},
    workload::{Command, Outcome, Stop, Workload, WorkloadError},
};

/// Chooses the arms of each block, if not all arms are in every block.
pub trait Blocks {
    /// Returns the arms of the next blocks, which run interleaved, each in its order; `None` ends
    /// the comparison. The choice depends only on the rounds of all blocks before them, so that a
    /// comparison can be resumed.
    fn next(&mut self, manifest: &Manifest, done: &[&Round]) -> Option<Vec<Vec<usize>>>;
}

/// Why a trace could not be recorded. Boxed, because the tracer is not in this crate.
pub type TracerError = Box<dyn std::error::Error + Send + Sync>;

/// Records the driver's decisions while a round runs.
pub trait RoundTracer {
    /// Starts recording. Called right before the meters start.
    fn begin(&mut self, host: &dyn Host) -> Result<(), TracerError>;

    /// Stores what was recorded so far, on machines whose buffers nothing else empties. Called at
    /// every tick.
    fn attend(&mut self) -> Result<(), TracerError> {
        Ok(())
    }

    /// Stops recording, stores the trace in `directory` as `name` with a file extension, and
    /// summarizes it.
    fn end(&mut self, directory: &std::path::Path, name: &str) -> Result<TraceNote, TracerError>;

    /// Discards the recording, because the round failed.
    fn abandon(&mut self);
}

/// An event of a run, for the progress display.
#[derive(Debug)]
pub enum Event<'a> {
    /// A round begins. Nothing may be drawn until it is over.
    Begin {
        arm: &'a Arm,
        /// Rounds done in this session.
        done: usize,
        /// Maximum number of rounds in this session.
        of: usize,
    },
    /// A round is over.
    Over {
        arm: &'a Arm,
        round: &'a Round,
        /// Rounds done in this session.
        done: usize,
        /// Maximum number of rounds in this session.
        of: usize,
        /// Whether it is the last of its block.
        ends_block: bool,
    },
    /// A stop was requested, and the arms' cleanup is running. A second request aborts the cleanup.
    CleanUp,
    /// The time limit has no room for another block. `blocks` is how many count, `beyond` by how
    /// many seconds they may have exceeded the limit.
    TimeUp { blocks: usize, beyond: f64 },
}

/// How a comparison ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Every round that can be run in this boot has been.
    Complete,
    /// A stop was requested.
    Stopped,
}

/// Why a comparison ended early. Unless it is `Restore`, the settings were restored.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// An arm could not be applied.
    #[error(transparent)]
    Apply(#[from] RefusedArm),
    /// The workload could not be run.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The workload ran and failed.
    #[error("arm '{arm}': the workload failed ({failure}){}", last_lines(output))]
    Failed {
        arm: String,
        failure: String,
        /// The end of what it printed.
        output: String,
    },
    /// A hook failed.
    #[error("arm '{arm}': {} failed ({failure}){}", hook.option(), last_lines(output))]
    Hook {
        arm: String,
        hook: Hook,
        failure: String,
        /// The end of what it printed.
        output: String,
    },
    /// The workload's output does not hold the metric.
    #[error("arm '{arm}': found no {metric} in the workload's output{}", last_lines(output))]
    NoValue {
        arm: String,
        /// The metric that was searched for.
        metric: String,
        /// The end of what it printed.
        output: String,
    },
    /// A program was built again during the comparison.
    #[error(
        "arm '{arm}': {} was replaced since the first round, so later rounds would be of another program; start \
         another comparison",
        path.display()
    )]
    Replaced { arm: String, path: PathBuf },
    /// Two arms had to print the same output and did not.
    #[error("arm '{arm}': its standard output differs from that of '{other}' (--same-output)")]
    OtherOutput {
        arm: String,
        /// The first arm.
        other: String,
    },
    /// The driver's decisions could not be recorded.
    #[error("arm '{arm}': {cause}")]
    Trace { arm: String, cause: TracerError },
    /// The run directory failed.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Settings could not be restored. Takes precedence over an earlier error, which is in `first`.
    #[error("the settings could not be restored: {cause}{}", first.as_ref().map(|e| format!(" (after: {e})")).unwrap_or_default())]
    Restore {
        /// The reason.
        cause: SettingsError,
        /// The earlier error, if there was one.
        first: Option<Box<MeasureError>>,
    },
}

/// The last lines of an output, for a message: at most 2 KiB, so that the reason stays in sight.
pub fn last_lines(output: &str) -> String {
    const LINES: usize = 5;
    const BYTES: usize = 2048;
    let is_binary = |c: &char| c.is_control() && !c.is_whitespace() || *c == char::REPLACEMENT_CHARACTER;
    if output.chars().filter(is_binary).count() > output.chars().count() / 10 {
        return "; it printed binary data".to_owned();
    }
    let from = output.len().saturating_sub(BYTES);
    let from = (from..output.len()).find(|place| output.is_char_boundary(*place)).unwrap_or(0);
    let lines: Vec<&str> = output[from..].lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    if last.is_empty() { String::new() } else { format!("; it printed:\n  {}", last.join("\n  ")) }
}

/// The outcome of one round.
struct RoundOutcome {
    notes: Vec<String>,
    outcome: Outcome,
    readings: crate::meter::Readings,
    trace: Option<TraceNote>,
    speed: Option<SpeedNote>,
    /// Other activity on the machine, if it was watched.
    conditions: Option<Conditions>,
    /// Why the whole block is invalid.
    void: Option<String>,
}

impl RoundOutcome {
    /// A round that did not run, because its settings could not be applied.
    fn not_applied(cause: &SettingsError) -> RoundOutcome {
        let outcome = Outcome { failure: Some(cause.to_string()), ..Outcome::default() };
        let readings = crate::meter::Readings::default();
        RoundOutcome {
            notes: Vec::new(),
            outcome,
            readings,
            trace: None,
            speed: None,
            conditions: None,
            void: None,
        }
    }
}

/// A round that is to run.
struct Turn {
    /// The number of its block, counted from the first one that warms up.
    number: usize,
    block: usize,
    place: usize,
    arm: usize,
    ends_block: bool,
}

/// Everything that takes part in a comparison.
pub struct Conductor<'a> {
    pub host: &'a dyn Host,
    pub settings: &'a mut dyn Settings,
    pub workload: &'a mut dyn Workload,
    /// The meters to read.
    pub meters: &'a Meters,
    /// A request to stop.
    pub stop: &'a Stop,
    /// Whether a failing workload is recorded instead of ending the comparison.
    pub ignore_failure: bool,
    /// Shell commands around rounds, unmetered.
    pub hooks: Option<&'a HookRunner>,
    /// Loads that run during each round.
    pub background: &'a [Command],
    /// Records the driver's decisions in each round that counts.
    pub tracer: Option<&'a mut dyn RoundTracer>,
    /// Explains the speed of each round.
    pub speed: Option<&'a mut dyn RoundSpeed>,
    /// Chooses the arms of each block; without it, all arms of the boot are in every block.
    pub blocks: Option<&'a mut dyn Blocks>,
    /// When this session began, in seconds since 1970: noted in the manifest.
    pub began_at: u64,
}

impl Conductor<'_> {
    /// Runs the rounds of the manifest that are possible in this boot, and restores the settings in
    /// any case.
    ///
    /// # Errors
    /// See [`MeasureError`]. Rounds that were measured are in the directory in any case.
    pub fn conduct(
        &mut self,
        directory: &mut RunDirectory,
        progress: &mut dyn FnMut(&Event<'_>),
    ) -> Result<End, MeasureError> {
        let boot = self.enter_boot(directory)?;
        let mut set_up = Vec::new();
        // Not an error: with --resume, a boot may have nothing left to run.
        let outcome = if directory.manifest.boots[boot].arms.is_empty() {
            Ok(End::Complete)
        } else {
            directory.write(&format!("snapshot-{boot}-before.json"), &pretty(&self.settings.snapshot()))?;
            let ended = self.blocks(directory, boot, &mut set_up, progress);
            let flushed = directory.flush();
            ended.and_then(|end| Ok(flushed.map(|()| end)?))
        };
        // Before anything is done with the outcome: settings are restored whatever the rounds did.
        // The failure to restore is reported first, because it concerns the machine and not only
        // this comparison.
        if let Err(cause) = self.settings.restore() {
            return Err(MeasureError::Restore { cause, first: outcome.err().map(Box::new) });
        }
        // The settings are restored by now, whatever these commands do.
        let cleaned = self.clean_up(&set_up, &directory.manifest, progress);
        let written =
            directory.write(&format!("snapshot-{boot}-after.json"), &pretty(&self.settings.snapshot()));
        let outcome = outcome.and_then(|end| cleaned.and_then(|()| Ok(written.map(|()| end)?)));
        match outcome {
            Err(MeasureError::Workload(WorkloadError::Stopped)) => Ok(End::Stopped),
            other => other,
        }
    }

    /// Returns the index of this boot in the manifest. If the boot is new, adds it with the arms
    /// that run in it.
    fn enter_boot(&mut self, directory: &mut RunDirectory) -> Result<usize, MeasureError> {
        let fact = |path: &str| self.host.read(path).unwrap_or_default();
        // A machine without boot ids (a simulated one) is always in the same boot.
        let id = match fact("/proc/sys/kernel/random/boot_id") {
            id if id.is_empty() => "only".to_owned(),
            id => id,
        };
        let mut needs = Vec::new();
        // Asked even in a known boot: an arm that no boot makes possible must fail before hours of
        // rounds, not after.
        for arm in &directory.manifest.arms {
            needs.push(
                self.settings
                    .boot_needed(arm)
                    .map_err(|cause| RefusedArm { arm: arm.name.clone(), cause })?,
            );
        }
        if let Some(boot) = directory.manifest.boots.iter().position(|boot| boot.id == id) {
            return Ok(boot);
        }
        // Arms that this boot can apply and that no earlier one has finished.
        let most = directory.manifest.schedule.most();
        let arms = (0..directory.manifest.arms.len())
            .filter(|arm| needs[*arm].is_none() && !finished(directory, *arm, most))
            .collect();
        directory.manifest.boots.push(Boot {
            id,
            kernel: fact("/proc/sys/kernel/osrelease"),
            // Reports are shared with others, so private parameters are removed.
            command_line: flyball_host::recorder::parameters(&fact("/proc/cmdline")).trim().to_owned(),
            driver: flyball_host::topology::scaling_driver(self.host),
            started: self.began_at,
            arms,
            meters: MeterList::clone(self.meters.list()),
        });
        // An arm that can run in this boot keeps the need that an earlier boot recorded: if it has
        // no rounds, the report says what to boot with.
        for (known, new) in directory.manifest.boot_needs.iter_mut().zip(&needs) {
            if new.is_some() {
                known.clone_from(new);
            }
        }
        if directory.manifest.boot_needs.len() != needs.len() {
            directory.manifest.boot_needs = needs;
        }
        directory.save()?;
        Ok(directory.manifest.boots.len() - 1)
    }

    /// Runs all blocks, the warm-up first.
    fn blocks(
        &mut self,
        directory: &mut RunDirectory,
        boot: usize,
        set_up: &mut Vec<usize>,
        progress: &mut dyn FnMut(&Event<'_>),
    ) -> Result<End, MeasureError> {
        let schedule = directory.manifest.schedule.clone();
        let arms = directory.manifest.boots[boot].arms.clone();
        let done_before: Vec<(usize, usize)> = directory
            .rounds
            .iter()
            .filter(|round| round.boot == boot && !round.warm_up)
            .map(|round| (round.block, round.arm))
            .collect();
        let mut of = schedule.rounds(arms.len()).saturating_sub(done_before.len());
        let began = self.host.now();
        let (mut clock, mut done, mut number, mut room) = (Clock::default(), 0, 0, Some(usize::MAX));
        while let Some((together, turns)) = self.turns(directory, boot, (number, room), &arms) {
            let warm_up = number < schedule.warm_up;
            if number >= schedule.warm_up + schedule.most() {
                of = of.max(done + turns.len());
            }
            number += together;
            let is_due = |turn: &Turn| warm_up || !done_before.contains(&(turn.block, turn.arm));
            let due: Vec<Turn> = turns.into_iter().filter(is_due).collect();
            let pair_began = self.host.now();
            // The time of setups is subtracted from that of the block: builds are repeated, setups
            // are not.
            let mut preparing = self.rebuild(set_up, &directory.manifest, &due)?;
            for (at, turn) in due.iter().enumerate() {
                let Turn { number, block, place, arm, ends_block } = *turn;
                if self.stop.is_requested() {
                    return Ok(End::Stopped);
                }
                let arm_data = directory.manifest.arms[arm].clone();
                progress(&Event::Begin { arm: &arm_data, done, of });
                // After the event: what the front end draws takes time, and must not be part of the
                // round.
                let started = self.host.now().saturating_sub(began).as_secs_f64();
                let moment = clock.moment(self.host);
                let trace = (!warm_up).then(|| (directory.path(), format!("trace-{boot}-{block:04}-{arm}")));
                let watched = self.watched(directory, arm);
                self.workload.limit(time_limit(directory, boot));
                self.workload.begin_arm(&arm_data, schedule.padding(number, place));
                preparing += self.set_up(set_up, arm, &arm_data, &schedule)?;
                let RoundOutcome { notes, mut outcome, readings, trace, speed, conditions, void } =
                    self.round(&arm_data, &schedule, trace, watched)?;
                if let Some(other) = other_output(directory, &outcome) {
                    if !self.ignore_failure {
                        return Err(MeasureError::OtherOutput { arm: arm_data.name, other });
                    }
                    outcome.failure = Some(format!("its output differs from that of '{other}'"));
                }
                done += 1;
                let known = &directory.manifest.boots[boot].meters.energy;
                // The manifest's list was made when the boot was entered; after --resume another
                // user may have other meters.
                let readings = readings.in_order_of(known, &self.meters.list().energy);
                let round = Round {
                    boot,
                    block,
                    arm,
                    place,
                    warm_up,
                    started,
                    moment,
                    notes,
                    outcome,
                    readings,
                    trace,
                    void,
                    speed,
                    conditions,
                };
                progress(&Event::Over { arm: &arm_data, round: &round, done, of, ends_block });
                // Written here, between rounds: no meter runs, and if this process is killed in the
                // next round, only that one is lost.
                directory.append(round)?;
                // Rebuild for the arm's next block now, not right before that round: the heat of
                // the build would slow only this arm. Now it slows whichever arm is next.
                if let Some(again) = due[at + 1..].iter().find(|turn| turn.arm == arm) {
                    self.rebuild(set_up, &directory.manifest, std::slice::from_ref(again))?;
                }
            }
            of += fix_rounds(directory, boot, arms.len(), number)?;
            let now = self.host.now();
            // An interrupted block ran fewer rounds than the next one will.
            let rounds = due.len() as f64 / arms.len() as f64;
            let block = now.saturating_sub(pair_began + preparing).as_secs_f64() / rounds;
            let spent = now.saturating_sub(began).as_secs_f64();
            if !due.is_empty() {
                room = blocks_left(directory, boot, number, (spent, block), progress)?;
            }
        }
        Ok(End::Complete)
    }

    /// Returns the CPUs on which to watch other programs in a round of `arm`: those made quiet,
    /// else all that it may use. `None` for a model, and if the arm's last round was too short to
    /// watch.
    fn watched(&self, directory: &RunDirectory, arm: usize) -> Option<CpuList> {
        let manifest = &directory.manifest;
        if let Some(quiet) = &manifest.quiet {
            return Some(quiet.cpus.parse().unwrap_or_default());
        }
        let last = directory.rounds.iter().rev().find(|round| round.arm == arm);
        let is_short = last.is_some_and(|round| round.outcome.seconds < Counting::SHORTEST_SECONDS);
        let is_real = self.host.kind() == flyball_host::Kind::Live && self.host.software().is_none();
        let cpus = manifest.workload.cpus.as_deref().unwrap_or_default();
        (is_real && !is_short).then(|| cpus.parse().unwrap_or_default())
    }

    /// Returns how many blocks run interleaved from `number` on, if there is time for `room` more,
    /// and their rounds: the first of each block, then the second of each, and so on. `None` after
    /// the last block.
    fn turns(
        &mut self,
        directory: &RunDirectory,
        boot: usize,
        (number, room): (usize, Option<usize>),
        arms: &[usize],
    ) -> Option<(usize, Vec<Turn>)> {
        let room = room?;
        let (manifest, schedule) = (&directory.manifest, &directory.manifest.schedule);
        let warm_up = number < schedule.warm_up;
        // Warm-up blocks are numbered apart, so that block 0 is the first that counts.
        let first = if warm_up { number } else { number - schedule.warm_up };
        let mut end = schedule.most();
        if !warm_up && first >= end {
            // Whether a round was disturbed does not depend on its value, so the number of rounds
            // is still fixed in advance, as the tests require.
            end += disturbed_blocks(manifest, &directory.rounds, boot).min(schedule.repeats());
            if first >= end {
                return None;
            }
        }
        let together = if warm_up { 1 } else { schedule.together(first, end, room) };
        let mut turns = Vec::new();
        let orders = self.orders(directory, boot, number, together, arms)?;
        let together = orders.len();
        for (next, order) in orders.into_iter().enumerate() {
            let of_place = |(place, arm)| {
                let ends_block = place + 1 == order.len();
                Turn { number: number + next, block: first + next, place, arm, ends_block }
            };
            turns.extend(order.iter().copied().enumerate().map(of_place));
        }
        turns.sort_by_key(|turn| (turn.place, turn.number));
        Some((together, turns))
    }

    /// Returns the arms of the next blocks, each in its order; `None` after the last block.
    fn orders(
        &mut self,
        directory: &RunDirectory,
        boot: usize,
        number: usize,
        together: usize,
        arms: &[usize],
    ) -> Option<Vec<Vec<usize>>> {
        let schedule = &directory.manifest.schedule;
        let Some(blocks) = &mut self.blocks else {
            return Some((number..number + together).map(|block| schedule.order(block, arms)).collect());
        };
        let Some(block) = number.checked_sub(schedule.warm_up) else {
            return Some(vec![arms.first().copied().into_iter().collect()]);
        };
        // Only earlier blocks: an interrupted block must be chosen again as it was, to be
        // completed. References, because a round holds up to 64 KiB of its workload's output.
        let mut done: Vec<&Round> = directory
            .rounds
            .iter()
            .filter(|round| round.boot == boot && !round.warm_up && round.block < block)
            .collect();
        done.sort_by_key(|round| (round.block, round.place));
        blocks.next(&directory.manifest, &done)
    }

    /// Runs one round: settings, pause, preparation, then the workload between two readings of the
    /// meters.
    fn round(
        &mut self,
        arm: &Arm,
        schedule: &Schedule,
        trace: Option<(&std::path::Path, String)>,
        watched: Option<CpuList>,
    ) -> Result<RoundOutcome, MeasureError> {
        check_file(arm)?;
        let notes = match self.settings.apply(arm) {
            Ok(notes) => notes,
            // A search goes on. The setting was rolled back, counts as failed in this round, and is
            // dropped after the second time. A stop can also make it fail, which is not its fault.
            Err(cause) if self.blocks.is_some() && !self.stop.is_requested() => {
                return Ok(RoundOutcome::not_applied(&cause));
            }
            Err(_) if self.stop.is_requested() => return Err(WorkloadError::Stopped.into()),
            Err(cause) => return Err(RefusedArm { arm: arm.name.clone(), cause }.into()),
        };
        self.pause(schedule.pause())?;
        self.hook(Hook::Prepare, arm, schedule, None)?;
        let user = self.hooks.and_then(|hooks| hooks.user.clone());
        let mut served = Served::start(self.host, arm, user, schedule.timeout(), self.stop)?;
        let mut background = Background::start(self.host, self.background)?;
        let failed = |cause| MeasureError::Trace { arm: arm.name.clone(), cause };
        // From here to the workload's start nothing may be slow: speed, tracer, then counters, then
        // meters, and they end in the opposite order, so that each covers those within.
        let mut speed = self.speed.as_deref_mut();
        if let Some(speed) = &mut speed {
            speed.begin(arm);
        }
        let mut tracer = self.tracer.as_deref_mut().zip(trace);
        if let Some((tracer, _)) = &mut tracer {
            tracer.begin(self.host).map_err(failed)?;
        }
        let counting = watched.map(|cpus| Counting::start(self.host, cpus, self.meters));
        let mut recording = self.meters.start(self.host);
        // A tick cannot return an error: the first one is reported after the workload has ended,
        // which must not be interrupted while the settings are in effect.
        let mut attended = Ok(());
        let mut tick = || {
            if !schedule.unobserved {
                recording.tick();
                if let Some(speed) = &mut speed {
                    speed.attend();
                }
            }
            if let (Some((tracer, _)), Ok(())) = (&mut tracer, &attended) {
                attended = tracer.attend();
            }
        };
        let ran = self.workload.run(self.host, schedule.tick(), &mut tick, self.stop);
        let mut readings = recording.finish();
        let conditions = counting.map(|counting| counting.stop(&mut readings));
        let speed = speed.and_then(RoundSpeed::end);
        let outcome = match ran {
            Ok(outcome) => outcome,
            Err(error) => {
                if let Some((tracer, _)) = tracer {
                    // Otherwise the buffers stay enabled in tracefs after this process has ended.
                    tracer.abandon();
                }
                return Err(error.into());
            }
        };
        background.check(&arm.name)?;
        if let Some(served) = &mut served {
            served.check()?;
        }
        drop((background, served));
        attended.map_err(failed)?;
        let trace = tracer
            .map(|(tracer, (directory, name))| tracer.end(directory, &name).map_err(failed))
            .transpose()?;
        self.hook(Hook::Conclude, arm, schedule, None)?;
        // In a search, a round that was cut off is a result: its setting is too slow.
        if !(self.ignore_failure || outcome.cut && self.blocks.is_some()) {
            if let Some(failure) = &outcome.failure {
                let is_load = arm.program.as_ref().is_some_and(|program| program.server.is_some());
                let failure = if is_load { format!("its load: {failure}") } else { failure.clone() };
                return Err(MeasureError::Failed { arm: arm.name.clone(), failure, output: outcome.output });
            }
            if outcome.value.is_none() {
                return Err(MeasureError::NoValue {
                    arm: arm.name.clone(),
                    metric: self.workload.sought(),
                    output: outcome.output,
                });
            }
        }
        let void = self.blocks.is_some().then(|| self.settings.changed()).flatten();
        Ok(RoundOutcome { notes, outcome, readings, trace, speed, conditions, void })
    }

    /// Runs a shell command of the user's around a round, unmetered.
    fn hook(
        &self,
        hook: Hook,
        arm: &Arm,
        schedule: &Schedule,
        seed: Option<u32>,
    ) -> Result<(), MeasureError> {
        let Some(hooks) = self.hooks else { return Ok(()) };
        let ran = hooks.run(hook, arm, self.host, schedule.tick(), seed, self.stop)?;
        let failed = ran.and_then(|outcome| Some((outcome.failure?, outcome.output)));
        failed.map_or(Ok(()), |(failure, output)| {
            Err(MeasureError::Hook { arm: arm.name.clone(), hook, failure, output })
        })
    }

    /// Rebuilds each arm in `due` once, for its first round there. Returns how long setups took.
    fn rebuild(
        &self,
        set_up: &mut Vec<usize>,
        manifest: &Manifest,
        due: &[Turn],
    ) -> Result<Duration, MeasureError> {
        let mut time = Duration::ZERO;
        for (at, turn) in due.iter().enumerate() {
            let arm = &manifest.arms[turn.arm];
            let is_first = due[..at].iter().all(|one| one.arm != turn.arm);
            if is_first && self.hooks.is_some_and(|hooks| hooks.script(Hook::Rebuild, arm).is_some()) {
                time += self.set_up(set_up, turn.arm, arm, &manifest.schedule)?;
                let seed = Some(manifest.schedule.build_seed(turn.number, turn.place));
                self.hook(Hook::Rebuild, arm, &manifest.schedule, seed)?;
            }
        }
        Ok(time)
    }

    /// Runs the setup of an arm before its first round of this session. Returns how long it took.
    fn set_up(
        &self,
        done: &mut Vec<usize>,
        number: usize,
        arm: &Arm,
        schedule: &Schedule,
    ) -> Result<Duration, MeasureError> {
        if done.contains(&number) {
            return Ok(Duration::ZERO);
        }
        let began = self.host.now();
        // Before it runs: a setup that failed half way has something to clean up too.
        done.push(number);
        self.hook(Hook::Setup, arm, schedule, None)?;
        Ok(self.host.now().saturating_sub(began))
    }

    /// Runs the cleanup of each arm that was set up, also after a stop request. Another request
    /// aborts it.
    fn clean_up(
        &self,
        set_up: &[usize],
        manifest: &Manifest,
        progress: &mut dyn FnMut(&Event<'_>),
    ) -> Result<(), MeasureError> {
        let (arms, schedule) = (&manifest.arms, &manifest.schedule);
        let arms: Vec<&Arm> = set_up.iter().filter_map(|arm| arms.get(*arm)).collect();
        let has_cleanup =
            |hooks: &&HookRunner| arms.iter().any(|arm| hooks.script(Hook::Cleanup, arm).is_some());
        let Some(hooks) = self.hooks.filter(has_cleanup) else { return Ok(()) };
        if self.stop.take() {
            progress(&Event::CleanUp);
        }
        let mut result = Ok(());
        for arm in arms {
            let ran = hooks.run(Hook::Cleanup, arm, self.host, schedule.tick(), None, self.stop);
            let failed = match ran {
                Err(WorkloadError::Stopped) => return Err(WorkloadError::Stopped.into()),
                Ok(outcome) => outcome.and_then(|outcome| Some((outcome.failure?, outcome.output))),
                Err(error) => Some((error.to_string(), String::new())),
            };
            if let Some((failure, output)) = failed {
                result =
                    Err(MeasureError::Hook { arm: arm.name.clone(), hook: Hook::Cleanup, failure, output });
            }
        }
        result
    }

    /// Lets time pass, in steps short enough to notice a request to stop.
    fn pause(&self, time: Duration) -> Result<(), WorkloadError> {
        let until = self.host.now() + time;
        loop {
            if self.stop.is_requested() {
                return Err(WorkloadError::Stopped);
            }
            let left = until.saturating_sub(self.host.now());
            if left.is_zero() {
                return Ok(());
            }
            // A signal only sets a flag, which is noticed after a tenth of a second at most.
            self.host.sleep(left.min(Duration::from_millis(100)));
        }
    }
}

/// Returns how many blocks from `number` on fit into the time limit; `None` if the comparison ends
/// before `number`, because no block fits or enough is known. `spent` is the time of the session,
/// and `block` that of a block like the last one, in seconds.
fn blocks_left(
    directory: &mut RunDirectory,
    boot: usize,
    number: usize,
    (spent, block): (f64, f64),
    progress: &mut dyn FnMut(&Event<'_>),
) -> Result<Option<usize>, RecordError> {
    let schedule = &mut directory.manifest.schedule;
    let counted = number.saturating_sub(schedule.warm_up);
    let is_last = counted >= schedule.most();
    let room = schedule.room(spent, block);
    if schedule.end_if_time_up(room, counted) {
        let beyond = (spent - schedule.most_seconds.unwrap_or(spent)).max(0.0);
        directory.save()?;
        if !is_last || beyond > 0.0 {
            progress(&Event::TimeUp { blocks: counted, beyond });
        }
        return Ok(None);
    }
    // Judged after whole blocks, so that arms keep equal numbers of rounds. A fixed-sample test at
    // every look would find false differences in every fifth comparison; these intervals hold over
    // all looks.
    let is_looked_at = matches!(schedule.length, Length::Until { least, .. } if counted >= least.max(1));
    let is_known = is_looked_at && is_known(&directory.manifest, &directory.rounds, boot);
    Ok((!is_known).then_some(room))
}

/// Fixes the number of blocks by the time of the warm-up, which ends with the block before
/// `number`. Returns how many rounds this adds.
fn fix_rounds(
    directory: &mut RunDirectory,
    boot: usize,
    arms: usize,
    number: usize,
) -> Result<usize, RecordError> {
    let rounds = &directory.rounds;
    let schedule = &mut directory.manifest.schedule;
    if schedule.least_seconds.is_none() || number != schedule.warm_up {
        return Ok(0);
    }
    let warm_up = rounds.iter().filter(|round| round.boot == boot && round.warm_up);
    let seconds: Vec<f64> = warm_up.map(|round| round.outcome.seconds + schedule.cool_down).collect();
    let before = schedule.rounds(arms);
    schedule.fix_rounds(crate::stats::mean(&seconds).map(|seconds| seconds * arms as f64));
    let added = schedule.rounds(arms) - before;
    directory.save()?;
    Ok(added)
}

/// Returns the time after which a round is cut off. In a search with a limit, that is a multiple of
/// the first arm's median, and `None` until that arm has run.
fn time_limit(directory: &RunDirectory, boot: usize) -> Option<Duration> {
    let schedule = &directory.manifest.schedule;
    let Length::Search { cut: Some(cut), .. } = schedule.length else {
        return schedule.timeout();
    };
    let of_base = |round: &&Round| round.boot == boot && round.arm == 0 && round.outcome.failure.is_none();
    // Warm-up rounds count too: otherwise nothing would end a command that hangs in the first
    // block.
    let seconds: Vec<f64> =
        directory.rounds.iter().filter(of_base).map(|round| round.outcome.seconds).collect();
    Duration::try_from_secs_f64(cut * crate::stats::median(&seconds)?).ok()
}

/// Fails if the arm's program was rebuilt since the comparison began.
fn check_file(arm: &Arm) -> Result<(), MeasureError> {
    match arm.program.as_ref().and_then(|program| program.file.as_ref()) {
        Some(file) if file.is_replaced() => {
            Err(MeasureError::Replaced { arm: arm.name.clone(), path: file.path.clone() })
        }
        _ => Ok(()),
    }
}

/// Returns the first arm's name if outputs are compared and `outcome` differs from that arm's first
/// successful round. Nothing is compared before that round, which is in the same block.
fn other_output(directory: &RunDirectory, outcome: &Outcome) -> Option<String> {
    let digest = outcome.output_digest.as_ref()?;
    let first = directory.rounds.iter().find(|round| {
        round.arm == 0 && round.outcome.failure.is_none() && round.outcome.output_digest.is_some()
    })?;
    let differs = first.outcome.output_digest.as_ref() != Some(digest);
    differs.then(|| directory.manifest.arms.get(first.arm).map(|arm| arm.name.clone())).flatten()
}

/// Whether one of the earlier boots ran all rounds of an arm.
fn finished(directory: &RunDirectory, arm: usize, most: usize) -> bool {
    let wanted = match directory.manifest.schedule.length {
        Length::Rounds(rounds) => rounds,
        // How many are needed depends on the noise. With the minimum, an arm counts as finished and
        // does not run again in another boot.
        Length::Until { least, .. } => least.min(most),
        Length::Search { .. } => return false,
    };
    (0..directory.manifest.boots.len()).any(|boot| {
        directory
            .rounds
            .iter()
            .filter(|round| round.boot == boot && round.arm == arm && !round.warm_up)
            .count()
            >= wanted
    })
}

fn pretty(value: &SettingsSnapshot) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).unwrap_or_default();
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests;
