//! What the commands that change a machine share: arguments, the way from failures to exit codes, rendering.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use flyball_control::{
    intent::Intent,
    plan::{Change, Plan, PlanError},
    profile::Profile,
    write::{
        hold::{Applied, ApplyError, Hold, HoldError, Made, Outcome},
        journal::JournalError,
        order::Step,
        state::{LockError, StateDir},
    },
};
use flyball_host::{CpuList, Host, Kind};

use crate::{
    cli::Cli,
    exit::{Exit, Failure},
};

/// Settings and profiles, mixed, as `plan`, `apply` and `verify` take them.
#[derive(Debug, clap::Args)]
pub struct Wanted {
    /// A profile (a TOML file, - for stdin) or a setting KNOB=VALUE; of several, the later ones count.
    #[arg(required = true, value_name = "PROFILE|KNOB=VALUE")]
    pub wanted: Vec<String>,

    /// CPUs that the KNOB=VALUE settings are for: 0-3,7, package:0, type:P and so on; all if not given.
    #[arg(short, long, value_name = "CPUS")]
    pub cpus: Option<String>,
}

impl Wanted {
    /// The intent behind the arguments.
    pub fn intent(&self) -> Result<Intent, Failure> {
        let usage = |message: String| Failure::new(Exit::Usage, message);
        let mut intent = Intent::default();
        for argument in &self.wanted {
            if argument.contains('=') && !Path::new(argument).exists() {
                let one = Intent::from_arguments(&[argument], self.cpus.as_deref());
                intent.settings.extend(one.map_err(|error| usage(error.to_string()))?.settings);
            } else {
                let bytes = read_profile(argument)?;
                let profile = Profile::parse(&bytes, argument).map_err(|error| usage(error.to_string()))?;
                intent.settings.extend(profile.intent.settings);
            }
        }
        if intent.is_empty() {
            return Err(usage("nothing is wanted: the profile has no settings".to_owned()));
        }
        Ok(intent)
    }
}

fn read_profile(name: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = if name == "-" {
        std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(name)
    };
    read.map_err(|error| {
        Failure::new(
            Exit::Usage,
            format!("cannot read the profile '{name}': {error}; a setting would be KNOB=VALUE, as governor=performance"),
        )
    })
}

/// The state directory of the machine: given, or where this kind of machine keeps it.
pub fn state(cli: &Cli) -> Result<StateDir, Failure> {
    if let Some(path) = &cli.state_dir {
        return Ok(StateDir::new(path));
    }
    if let Some(path) = std::env::var_os("FLYBALL_STATE").filter(|path| !path.is_empty()) {
        return Ok(StateDir::new(path));
    }
    match cli.machine.as_str() {
        "live" => Ok(StateDir::new(StateDir::LIVE)),
        // A simulated machine's journal stands beside its file, or goes with it.
        name if name.starts_with("sim:") => Ok(StateDir::new(crate::simulated::state_of(name))),
        name => match name.strip_prefix("tree:") {
            Some(root) => Ok(StateDir::new(PathBuf::from(root).join("run/flyball"))),
            None => Err(Failure::new(
                Exit::Usage,
                format!("changing '{name}' needs a place for its journal: give --state-dir DIR"),
            )),
        },
    }
}

/// Refuses a machine that is a recording, before anything is planned for it.
pub fn must_be_writable(host: &dyn Host) -> Result<(), Failure> {
    if host.kind() == Kind::Recorded {
        return Err(Failure::new(
            Exit::Failed,
            format!(
                "{} is a recording and cannot be changed; 'flyball plan' says what would be written",
                host.name()
            ),
        ));
    }
    Ok(())
}

/// What the user typed, for the lock and the journal.
pub fn command_line() -> String {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(first) = words.first_mut() {
        "flyball".clone_into(first);
    }
    words.join(" ")
}

/// The command that starts a guardian for this machine, for whoever runs a workload under settings.
#[allow(dead_code, reason = "used by the commands that run workloads")]
pub fn guardian(cli: &Cli, state: &StateDir) -> Result<std::process::Command, Failure> {
    if std::process::id() == 1 {
        // The kernel kills the whole PID namespace with its first process (pid_namespaces(7)).
        eprintln!(
            "note: flyball is process 1 here, of a container perhaps: if it is killed, its guardian is killed with it, and \
             nothing is put back before 'flyball restore' with the journal in {}; start it under an init (docker run --init)",
            state.path().display()
        );
    }
    let own = std::env::current_exe()
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot find flyball's own program: {error}")))?;
    let mut command = std::process::Command::new(own);
    // By its name, whatever the file is called: under that of intel-speed-select it would take other words.
    std::os::unix::process::CommandExt::arg0(&mut command, "flyball");
    command.arg("-M").arg(&cli.machine).arg("--state-dir").arg(state.path()).arg("guardian");
    // It steps in for this process, which holds the state file of a simulated machine.
    command.env(crate::simulated::STATE_HELD, "1");
    Ok(command)
}

/// A flag that Ctrl-C, SIGTERM and a closed terminal set, instead of ending the process between two writes.
pub fn interrupts() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&flag))
            .map_err(|error| Failure::new(Exit::Failed, format!("cannot catch signal {signal}: {error}")))?;
    }
    Ok(flag)
}

/// Applies an intent to stay, and prints what became of it.
pub fn apply(cli: &Cli, host: &dyn Host, intent: &Intent) -> Result<Exit, Failure> {
    must_be_writable(host)?;
    let state = state(cli)?;
    let interrupted = interrupts()?;
    let mut hold = Hold::begin(host, &state, &command_line(), None)?;
    // Said at the end: a closed pipe would end the process in the middle.
    let notes = hold.notes().to_vec();
    let applied = match hold.apply(intent, &|| interrupted.load(Ordering::Relaxed)) {
        Ok(applied) => applied,
        Err(error) => {
            // Nothing is left to put back, or trying once more is right.
            let _ = hold.end();
            return Err(error.into());
        }
    };
    hold.keep()?;
    for note in notes.iter().chain(&applied.notes) {
        eprintln!("note: {note}");
    }
    // A full disk behind stdout must not make it look as if nothing had been set.
    print_applied(cli, &applied).map_err(|failure| {
        let message = format!(
            "the settings are made and stay ('flyball restore' undoes them), but {}",
            failure.message
        );
        Failure::new(failure.exit, message)
    })?;
    Ok(if applied.clamped().next().is_some() { Exit::Clamped } else { Exit::Done })
}

fn print_applied(cli: &Cli, applied: &Applied) -> Result<(), Failure> {
    if cli.json {
        return print_json(applied);
    }
    let mut out = std::io::stdout().lock();
    let failed =
        |error: std::io::Error| Failure::new(Exit::Failed, format!("cannot write to stdout: {error}"));
    if applied.made.is_empty() {
        writeln!(out, "already so: nothing to write").map_err(failed)?;
    }
    // CPUs that were given the same value are one line.
    let mut lines: Vec<(String, String, CpuList)> = Vec::new();
    for Made { change, outcome } in &applied.made {
        let head = if change.instance.is_empty() {
            change.knob.to_string()
        } else {
            format!("{}:{}", change.knob, change.instance)
        };
        let was = change.was.as_deref().or(change.old.as_deref()).unwrap_or("unknown");
        let tail = match outcome {
            Outcome::Applied => format!("{} (was {was})", change.value),
            Outcome::Clamped(to) => {
                format!("{to}: the kernel clamped {} to it (was {was}); see {}", change.new, change.location)
            }
        };
        match lines.iter_mut().find(|(knob, text, _)| *knob == head && *text == tail) {
            Some((_, _, cpus)) => cpus.extend(change.cpus.iter()),
            None => lines.push((head, tail, change.cpus.clone())),
        }
    }
    for (knob, text, cpus) in lines {
        let whole = flyball_control::Knob::named(knob.split(':').next().unwrap_or_default())
            .is_ok_and(|knob| knob.scope == flyball_control::Scope::Machine);
        let on = if whole { String::new() } else { format!(" of CPUs {cpus}") };
        writeln!(out, "{knob}{on}: {text}").map_err(failed)?;
    }
    out.flush().map_err(failed)
}

pub use crate::output::print_json;

/// Prints a plan: every write in order on stdout, what else there is to know on stderr. Alike writes to many CPUs are
/// one line, unless `each` is asked for.
pub fn print_plan(cli: &Cli, plan: &Plan, each: bool) -> Result<(), Failure> {
    if cli.json {
        return print_json(plan);
    }
    for note in &plan.notes {
        eprintln!("note: {note}");
    }
    if plan.is_empty() {
        println!("already so: nothing to write");
    }
    print!("{}", render(plan, each));
    Ok(())
}

fn title(step: Step) -> &'static str {
    match step {
        Step::SpeedSelectOff => "base-freq and turbo-freq off",
        Step::Level => "performance level",
        Step::Classes => "classes of service",
        Step::CorePower => "core-power",
        Step::SpeedSelectOn => "base-freq and turbo-freq on",
        Step::DriverMode => "driver mode",
        Step::Online => "CPUs online",
        Step::Turbo => "turbo",
        Step::Governor => "governor",
        Step::Tunable => "governor's speed",
        Step::Preference => "preference",
        Step::Limit => "limits",
        Step::Idle => "idle states and latency",
        Step::Power => "uncore and power",
        Step::Offline => "CPUs offline",
    }
}

/// Fewer alike writes than this stay a line each.
const FOLDED_FROM: usize = 8;

/// A write's line, cut where the number of its CPU or policy stands.
fn line_of(change: &Change) -> (String, Option<u32>, String) {
    let old = change.old.as_deref().unwrap_or("(known then)");
    let location = change.location.to_string();
    let tail = format!("  {old} -> {}  # {}", change.new, change.because);
    for word in ["/policy", "/cpu"] {
        for (at, _) in location.match_indices(word) {
            let number = at + word.len();
            let digits = location[number..].bytes().take_while(u8::is_ascii_digit).count();
            if let Ok(cpu) = location[number..number + digits].parse() {
                let rest = format!("{}{tail}", &location[number + digits..]);
                return (location[..number].to_owned(), Some(cpu), rest);
            }
        }
    }
    (location, None, tail)
}

fn render(plan: &Plan, each: bool) -> String {
    let mut text = String::new();
    let mut changes = &plan.changes[..];
    while let Some(first) = changes.first() {
        let count = changes.iter().take_while(|change| change.step == first.step).count();
        let (step, rest) = changes.split_at(count);
        changes = rest;
        let _ = writeln!(text, "{}", title(first.step));
        // Alike lines stand where the first of them does.
        let mut alike: Vec<(String, String, Vec<u32>)> = Vec::new();
        let mut place: HashMap<(String, String), usize> = HashMap::new();
        for (head, number, tail) in step.iter().map(line_of) {
            match place.get(&(head.clone(), tail.clone())).filter(|_| number.is_some()) {
                Some(&at) => alike[at].2.extend(number),
                None => {
                    place.insert((head.clone(), tail.clone()), alike.len());
                    alike.push((head, tail, number.into_iter().collect()));
                }
            }
        }
        if each || alike.iter().all(|(_, _, numbers)| numbers.len() < FOLDED_FROM) {
            for (head, number, tail) in step.iter().map(line_of) {
                let number = number.map(|number| number.to_string()).unwrap_or_default();
                let _ = writeln!(text, "  {head}{number}{tail}");
            }
            continue;
        }
        for (head, tail, numbers) in alike {
            let _ = match numbers[..] {
                [] => writeln!(text, "  {head}{tail}"),
                [one] => writeln!(text, "  {head}{one}{tail}"),
                _ => {
                    let list: CpuList = numbers.iter().copied().collect();
                    writeln!(text, "  {head}{{{list}}}{tail}  ({} writes)", numbers.len())
                }
            };
        }
    }
    text
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Failure {
        let exit = match &error {
            PlanError::Refused(_) => Exit::Usage,
            PlanError::NotHere(_) => Exit::NotHere,
            PlanError::Read(_) => Exit::Failed,
        };
        Failure::new(exit, error.to_string())
    }
}

impl From<ApplyError> for Failure {
    fn from(error: ApplyError) -> Failure {
        if let ApplyError::Plan(error) = error {
            return error.into();
        }
        let exact = error.restoration().is_none_or(flyball_control::write::restore::Restoration::is_exact);
        let mut message = error.to_string();
        if !exact {
            message.push_str("\n'flyball restore' tries again; the journal still has what was");
        }
        Failure::new(if exact { Exit::Failed } else { Exit::HalfDone }, message)
    }
}

impl From<HoldError> for Failure {
    fn from(error: HoldError) -> Failure {
        let exit = if matches!(error, HoldError::Lock(LockError::Held { .. })) {
            Exit::Locked
        } else {
            Exit::Failed
        };
        Failure::new(exit, error.to_string())
    }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Failure {
        Failure::new(Exit::Failed, error.to_string())
    }
}

/// CPUs by value, for messages that would else repeat themselves.
pub fn by_value<'a>(items: impl IntoIterator<Item = (&'a CpuList, String)>) -> BTreeMap<String, CpuList> {
    let mut groups: BTreeMap<String, CpuList> = BTreeMap::new();
    for (cpus, value) in items {
        groups.entry(value).or_default().extend(cpus.iter());
    }
    groups
}
