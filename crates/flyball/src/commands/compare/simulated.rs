//! `compare` on a simulated machine: models of workloads in its own time, and a boot for each round, so that arms which
//! want another driver need nothing of the user and every round starts from the same state.

use std::{cell::RefCell, path::PathBuf, rc::Rc, time::Duration};

use flyball_control::write::{hold::Hold, state::StateDir};
use flyball_host::Host;
use flyball_measure::{
    Arm, Better, Conductor, Metric, Outcome, RunDirectory, Settings, SettingsError, Stop, Workload,
    WorkloadError, WorkloadNote,
};
use flyball_sim::workload::{Engine, Workload as Model};
use flyball_simhost::{SimError, SimHost, workload_model};

use super::{Args, Progress, beside, conclude, manifest};
use crate::{
    arms, change,
    commands::quiet::{Quiet, hold::Hush},
    context::Context,
    exit::{Exit, Failure},
    output, workloads,
};

/// A model that does not end would run for ever: this much of the machine's time is enough for all that do.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The first word of the recorded command line, which no program has.
const MARK: &str = "sim:workload";

/// Compares on a simulated machine.
pub(super) fn run(context: &Context, args: &Args, machine: &SimHost) -> Result<Exit, Failure> {
    if machine.is_kept() {
        return Err(Failure::usage(
            "a comparison boots the machine again and again: it cannot be kept with --sim-state",
        ));
    }
    let directory = if let Some(path) = &args.resume {
        let directory = RunDirectory::open(path)?;
        super::check_same_machine(machine, &directory.manifest)?;
        Some(directory)
    } else {
        None
    };
    let mut work = match &directory {
        Some(directory) => Work::recorded(machine, &directory.manifest.workload)?,
        None => Work::typed(machine, &args.workload)?,
    };
    let interrupted = change::interrupts()?;
    let mut settings = Boots {
        machine,
        hold: None,
        current: None,
        notes: Vec::new(),
        chances: Chances::default(),
        quiet: None,
        walls: Rc::default(),
    };
    if let Some(directory) = &directory {
        settings.quiet = super::resumed_quiet(&directory.manifest)?;
    }
    let mut directory = match directory {
        Some(directory) => directory,
        None => {
            let arms = Arm::all(&args.arm, &args.matrix).map_err(Failure::usage)?;
            for arm in &arms {
                // What no boot gives is told before anything runs.
                settings
                    .apply(arm)
                    .map_err(|error| Failure::usage(format!("arm '{}': {error}", arm.name)))?;
            }
            settings.restore().map_err(Failure::failed)?;
            let mut command = flyball_measure::Command::new(work.argv.clone());
            command.title = Some(work.name());
            let mut manifest = manifest(machine, args, arms, &workloads::Made { command, server: None });
            manifest.workload = work.note();
            if let Some(level) = args.quiet {
                let quiet = Quiet { level, cpus: args.workload.pin.clone(), freq: None, keep_aslr: true };
                super::quiet_beneath(machine, &quiet, &mut manifest)?;
                settings.quiet = Some(quiet);
            }
            if args.dry_run {
                return outlook(context, &mut settings, &manifest);
            }
            let path = args
                .output
                .clone()
                .unwrap_or_else(|| PathBuf::from(format!("flyball-compare-{}", crate::time::stamp())));
            RunDirectory::create(&path, manifest)?
        }
    };
    let chances = Chances::of(&directory);
    (settings.chances, work.chances) = (chances.clone(), chances);
    let walls = Rc::new(RefCell::new(beside::Walls::default()));
    (settings.walls, work.walls) = (Rc::clone(&walls), Rc::clone(&walls));
    let meters = flyball_measure::Meters::find(machine, work.pins.as_ref());
    let stop = Stop::watching(interrupted);
    let mut progress = Progress::new();
    let ignore_failure = directory.manifest.workload.ignore_failure;
    let mut witness = directory.manifest.trace.then(|| super::witness::OnHost { machine: machine.clone() });
    let outcome = Conductor {
        host: machine,
        settings: &mut settings,
        workload: &mut work,
        meters: &meters,
        stop: &stop,
        ignore_failure,
        prepare: None,
        tracer: witness.as_mut().map(|witness| witness as &mut dyn flyball_measure::RoundTracer),
        began_at: crate::time::seconds_since_1970(),
    }
    .conduct(&mut directory, &mut |event| progress.show(event));
    progress.end();
    let exit = conclude(&context.output.about(machine), &directory, outcome)?;
    beside::tell(&context.output, machine, &directory, &walls.borrow())?;
    Ok(exit)
}

/// What each arm would write, on the machine booted for it.
fn outlook(
    context: &Context,
    settings: &mut Boots<'_>,
    manifest: &flyball_measure::Manifest,
) -> Result<Exit, Failure> {
    for arm in &manifest.arms {
        let failed = |error: SettingsError| Failure::failed(error.to_string());
        let booted = settings.boot(arm).map_err(failed)?;
        output::line(format_args!("arm '{}'", arm.name))?;
        if !booted.is_empty() {
            output::line(format_args!("  booted with {}", booted.join(" ")))?;
        }
        change::print_plan(
            &context.output.about(settings.machine),
            &arms::plan_of(settings.machine, arm)?,
            false,
        )?;
    }
    Ok(Exit::Done)
}

/// A model as a workload.
pub struct Work {
    machine: SimHost,
    model: Model,
    argv: Vec<String>,
    pins: Option<flyball_host::CpuList>,
    chances: Chances,
    walls: Rc<RefCell<beside::Walls>>,
}

impl Work {
    /// The model `name`, for so long, on a machine that is not booted between runs: the way of a series.
    pub fn of_series(
        machine: &SimHost,
        words: &[String],
        pins: Option<flyball_host::CpuList>,
        seed: u64,
    ) -> Result<Work, Failure> {
        if words.len() > 2 || words.get(1).is_some_and(|amount| amount.parse::<u64>().is_err()) {
            return Err(Failure::usage(
                "on a simulated machine a series is of a model: NAME [AMOUNT], such as call-simple 1; 'flyball sim list' names them",
            ));
        }
        let argv = std::iter::once(MARK.to_owned()).chain(words.iter().cloned()).collect();
        let mut work = Work::of(machine, argv, pins)?;
        work.chances = Chances { seed, ..Chances::default() };
        Ok(work)
    }

    /// The next run has other chances.
    pub fn again(&mut self) {
        self.chances.next();
    }

    fn typed(machine: &SimHost, args: &workloads::WorkloadArgs) -> Result<Work, Failure> {
        if !args.command.is_empty() {
            return Err(Failure::usage(format!(
                "a command does not run on {}: its work would take the time of the real processors. Give --workload or \
                 --model; 'flyball sim run' lets a program see the machine's files",
                machine.name()
            )));
        }
        let name = match (&args.model, args.workload) {
            (Some(path), _) => path.display().to_string(),
            (None, Some(known)) => clap::ValueEnum::to_possible_value(&known)
                .map(|value| value.get_name().to_owned())
                .unwrap_or_default(),
            (None, None) => {
                return Err(Failure::usage("nothing to run: give --workload NAME or --model FILE"));
            }
        };
        let mut argv = vec![MARK.to_owned(), name];
        argv.extend(args.amount.map(|amount| amount.to_string()));
        Work::of(machine, argv, args.pin.clone())
    }

    fn recorded(machine: &SimHost, note: &WorkloadNote) -> Result<Work, Failure> {
        let pins = note.cpus.as_ref().and_then(|text| text.parse().ok());
        Work::of(machine, note.argv.clone(), pins)
    }

    fn of(
        machine: &SimHost,
        argv: Vec<String>,
        pins: Option<flyball_host::CpuList>,
    ) -> Result<Work, Failure> {
        let name = match argv.split_first() {
            Some((mark, rest)) if mark == MARK && !rest.is_empty() => rest[0].clone(),
            _ => return Err(Failure::usage("that comparison was not of a simulated machine's workload")),
        };
        let amount = argv.get(2).and_then(|text| text.parse().ok());
        let model = workload_model(&name, amount)?;
        Ok(Work {
            machine: machine.clone(),
            model,
            argv,
            pins,
            chances: Chances::default(),
            walls: Rc::default(),
        })
    }

    fn note(&self) -> WorkloadNote {
        WorkloadNote {
            name: self.name(),
            metric: self.metric(),
            argv: self.argv.clone(),
            reader: None,
            cpus: self.pins.as_ref().map(ToString::to_string),
            directory: None,
            server: None,
            prepare: None,
            ignore_failure: false,
        }
    }

    /// Whether the result is how much gets done in a given time, not how long a given amount takes.
    fn is_rate(&self) -> bool {
        self.model.seconds > 0.0
    }
}

impl Workload for Work {
    fn name(&self) -> String {
        match self.argv.get(2) {
            Some(amount) => format!("{} {amount} (model)", self.model.name),
            None => format!("{} (model)", self.model.name),
        }
    }

    fn metric(&self) -> Metric {
        if self.is_rate() {
            Metric::new("rate", format!("{}/s", self.model.unit), Better::Higher)
        } else {
            Metric::wall_time()
        }
    }

    fn run(
        &mut self,
        host: &dyn Host,
        interval: Duration,
        tick: &mut dyn FnMut(),
        stop: &Stop,
    ) -> Result<Outcome, WorkloadError> {
        let pins = self.pins.as_ref().map(|cpus| cpus.iter().collect()).unwrap_or_default();
        let engine = Engine::varied(self.model.clone(), pins, self.machine.seed() ^ self.chances.run());
        let progress = engine.shared();
        let now = || progress.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        self.machine.with(|machine| machine.run(Some(Box::new(engine))));
        let started = host.now();
        let mut ticked = started;
        let slice = interval.clamp(Duration::from_millis(1), Duration::from_millis(10));
        let failure = loop {
            host.sleep(slice);
            let watts = self.machine.with(|machine| machine.silicon().platform_power().0);
            self.walls.borrow_mut().add(watts, slice);
            if host.now().saturating_sub(ticked) >= interval {
                ticked = host.now();
                tick();
            }
            if now().done {
                break None;
            }
            if stop.asked() {
                self.machine.with(|machine| machine.run(None));
                return Err(WorkloadError::Stopped);
            }
            if host.now().saturating_sub(started) > LONGEST {
                break Some("the model does not end".to_owned());
            }
        };
        self.machine.with(|machine| machine.run(None));
        let progress = now();
        let seconds = progress.ns as f64 * 1e-9;
        let value = if self.is_rate() { progress.rate() * self.model.scale } else { seconds };
        Ok(Outcome {
            value: Some(value),
            seconds,
            work_seconds: None,
            usage: None,
            failure,
            output: format!("{} {} in {seconds:.6} s, simulated\n", progress.turns, self.model.unit),
        })
    }
}

/// What makes each run differ a little from the others, as runs do: a number for each, out of the comparison's seed. The
/// same seed makes the same comparison.
#[derive(Debug, Clone, Default)]
struct Chances {
    seed: u64,
    boots: std::rc::Rc<std::cell::Cell<u64>>,
}

impl Chances {
    fn of(directory: &RunDirectory) -> Chances {
        // A comparison that is resumed goes on with other chances than it began with.
        let before = directory.rounds.len() as u64;
        Chances { seed: mix(directory.manifest.schedule.seed ^ mix(before)), ..Chances::default() }
    }

    /// A new run begins.
    fn next(&self) {
        self.boots.set(self.boots.get() + 1);
    }

    /// The number of the present one.
    fn run(&self) -> u64 {
        mix(self.seed ^ self.boots.get())
    }
}

/// One round of splitmix64.
fn mix(seed: u64) -> u64 {
    flyball_sim::workload::Noise::new(seed).next_u64()
}

/// Arms as boots: each is applied to a machine that has just been booted, with what it needs on the command line.
struct Boots<'m> {
    machine: &'m SimHost,
    hold: Option<(Hold<'m>, tempfile::TempDir)>,
    current: Option<Arm>,
    notes: Vec<String>,
    chances: Chances,
    /// What is held beneath every arm.
    quiet: Option<Quiet>,
    walls: Rc<RefCell<beside::Walls>>,
}

impl Boots<'_> {
    /// Boots the machine that an arm needs; the words that it was booted with.
    fn boot(&mut self, arm: &Arm) -> Result<Vec<String>, SettingsError> {
        let failed = |error: SimError| SettingsError(error.to_string());
        self.machine.reboot(&[], self.chances.run()).map_err(failed)?;
        let Some(needed) = arms::boot_needed(self.machine, arm)? else { return Ok(Vec::new()) };
        let words: Vec<String> = needed.split_whitespace().map(str::to_owned).collect();
        self.machine.reboot(&words, self.chances.run()).map_err(failed)?;
        match arms::boot_needed(self.machine, arm)? {
            None => Ok(words),
            Some(still) => Err(SettingsError(format!(
                "{} booted with {} still needs {still}: this machine or kernel does not have that",
                self.machine.name(),
                words.join(" ")
            ))),
        }
    }
}

impl Settings for Boots<'_> {
    fn apply(&mut self, arm: &Arm) -> Result<Vec<String>, SettingsError> {
        self.restore()?;
        self.chances.next();
        self.boot(arm)?;
        // The processors come to rest before the round begins.
        self.machine.sleep(Duration::from_millis(500));
        let intent = arms::intent(arm).map_err(|failure| SettingsError(failure.to_string()))?;
        self.notes.clear();
        if !intent.is_empty() || self.quiet.is_some() {
            let folder = tempfile::tempdir().map_err(|error| SettingsError(error.to_string()))?;
            let state = StateDir::new(folder.path());
            let mut hold = Hold::begin(self.machine, &state, &change::command_line(), None)
                .map_err(|error| SettingsError(error.to_string()))?;
            if let Some(quiet) = &self.quiet {
                let failed = |failure: Failure| SettingsError(failure.to_string());
                let hush = Hush::decide(self.machine, quiet).map_err(failed)?;
                hush.apply(self.machine, &mut hold, &|| false).map_err(failed)?;
            }
            let applied = hold.apply(&intent, &|| false).map_err(|error| SettingsError(error.to_string()))?;
            self.notes = arms::notes(&applied);
            self.hold = Some((hold, folder));
            self.machine.sleep(Duration::from_millis(100));
        }
        self.walls.borrow_mut().now(&arm.name);
        self.current = Some(arm.clone());
        Ok(self.notes.clone())
    }

    fn restore(&mut self) -> Result<(), SettingsError> {
        self.current = None;
        match self.hold.take().map(|(hold, _folder)| hold.end()) {
            Some(restoration) if !restoration.is_exact() => Err(SettingsError(restoration.to_string())),
            _ => Ok(()),
        }
    }

    fn snapshot(&self) -> serde_json::Value {
        serde_json::json!({ "machine": self.machine.name(), "simulated": true })
    }
}
