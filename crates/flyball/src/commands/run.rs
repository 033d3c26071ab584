//! `flyball run`: runs a command under settings, and restores them afterwards.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use flyball_compare::SpeedWatch;
use flyball_control::{
    Intent,
    quiet::Level,
    quiet::{QuietOptions, QuietPlan},
    write::{journal::Purpose, transaction::Transaction},
};
use flyball_host::{CpuList, Host, Kind, Launch};
use flyball_measure::{Domain, Meters};
use flyball_process::User;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::{
    change,
    context::Context,
    exit::{Exit, Failure},
    process::{flag_on, run_in_foreground},
    quiet_machine::print_limits,
    run_as::RunAs,
};

/// How often to read energy counters. Under load, a package's counter wraps after minutes
/// (powercap's max_energy_range_uj).
const BETWEEN_ENERGY: Duration = Duration::from_secs(30);

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  flyball run governor=performance -- make -j8
  flyball run --profile benchmark --pin 2-3 -- ./bench
  flyball run max-freq=base -c 0-7 -- sh
  flyball run --why -- ./bench               how fast its CPUs ran, and what limited them
  flyball run --hold latency -- make -j8     other settings and holds can change meanwhile
  flyball run --quiet=fixed --pin 3 latency-limit=2us -- ./bench    a quiet machine with another setting on top

Under sudo the command runs as the user who called sudo, with that user's groups and home; --as-root keeps it root, --user \
names another user.

Exit codes: that of the command (128 + N if signal N ended it; 127 there is no such command). flyball's own errors also print a \
line that begins with 'flyball:'. Before the command runs: 1 a write failed and everything was restored, 2 a value is not \
accepted, 4 the machine does not have this knob, 6 another flyball command is changing the machine. Afterwards: 3 the settings \
could not be restored.")]
pub(crate) struct Args {
    /// Settings: KNOB=VALUE, or KNOB@CPUS=VALUE for some CPUs. They override those of the profile.
    #[arg(value_name = "KNOB[@CPUS]=VALUE")]
    settings: Vec<String>,

    /// A profile (a name of `flyball profiles`, a TOML file, - for stdin).
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,

    /// CPUs of settings that do not name their own [default: all].
    #[arg(short, long, value_name = "CPUS")]
    cpus: Option<String>,

    /// CPUs that the command may use.
    #[arg(long, value_name = "CPUS")]
    pin: Option<CpuList>,

    /// Make the machine quiet first (light, steady or fixed; see flyball quiet) for the CPUs of
    /// --pin, then apply the settings.
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "steady")]
    quiet: Option<Level>,

    /// Hold this profile while the command runs, over other holds. Other flyball commands can run
    /// meanwhile.
    #[arg(long, value_name = "PROFILE", conflicts_with_all = ["settings", "profile", "cpus", "quiet", "why"])]
    hold: Option<String>,

    /// Afterwards, explain the CPUs' speed (see flyball why), with the packages' energy, and what
    /// wake-ups cost. flyball interrupts running CPUs once per second for this.
    #[arg(long)]
    why: bool,

    #[command(flatten)]
    run_as: RunAs,

    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    if let Some(profile) = &args.hold {
        let user = args.run_as.user_of_program()?;
        let signals = Signals::catch()?;
        return super::hold::while_running(context, profile, || {
            command(args, user.as_ref(), None, &signals, None)
        });
    }
    let wanted: Vec<String> = args.profile.iter().chain(&args.settings).cloned().collect();
    let sets = !wanted.is_empty() || args.quiet.is_some();
    if !sets && !args.why {
        return Err(Failure::usage(
            "no settings: give --profile FILE, --hold PROFILE, --quiet or KNOB=VALUE before --, as in 'flyball run turbo=off -- make'",
        ));
    }
    let intent = if wanted.is_empty() {
        Intent::default()
    } else {
        change::SettingArgs { wanted, cpus: args.cpus.clone() }.intent()?
    };
    let host = context.open()?;
    let user = args.run_as.user_of_program()?;
    if args.why && host.kind() != Kind::Live {
        return Err(Failure::usage(
            "--why explains the processors that run the command; for a simulated machine, use 'flyball why -M NAME --workload MODEL'",
        ));
    }
    if host.software().is_some() {
        eprintln!(
            "note: only the settings are simulated: the command runs on the processors of this computer"
        );
    }
    if !sets {
        // Without settings, there is nothing to lock, to journal or to restore.
        let mut speed = SpeedWatch::new(&*host, args.pin.clone());
        return command(args, user.as_ref(), None, &Signals::catch()?, Some(&mut speed));
    }
    change::must_be_writable(&*host)?;
    let state = context.state()?;
    let guardian = context.guardian(&state)?;
    // Before the first write: until signals are caught, Ctrl-C would end the process and leave
    // restoring to its guardian.
    let signals = Signals::catch()?;
    // Use a guardian: a command may run for hours, and kill -9 of flyball must not leave its
    // settings in effect.
    let mut transaction =
        Transaction::begin(&*host, &state, Purpose::Run, &change::command_line(), Some(guardian))?;
    for note in transaction.notes() {
        eprintln!("note: {note}");
    }
    let group = match make_quiet(&*host, &mut transaction, args, &signals) {
        Ok(group) => group,
        Err(failure) => {
            let _ = transaction.end();
            return Err(failure);
        }
    };
    let applied = match transaction.apply(&intent, &|| signals.any()) {
        Ok(applied) => applied,
        Err(error) => {
            // The error has already rolled back the writes; this closes the transaction.
            let _ = transaction.end();
            return Err(error.into());
        }
    };
    for note in &applied.notes {
        eprintln!("note: {note}");
    }
    for made in applied.clamped() {
        eprintln!("note: {made}");
    }
    // Keep the result for later: the settings must be restored first.
    let mut speed = args.why.then(|| SpeedWatch::new(&*host, args.pin.clone()));
    let ended = command(args, user.as_ref(), group.as_deref(), &signals, speed.as_mut());
    let restoration = transaction.end();
    if !restoration.is_exact() {
        return Err(Failure::new(Exit::HalfDone, restoration.to_string()));
    }
    ended
}

/// Makes the machine quiet before the settings are applied, if requested. Returns the control group
/// for the command.
fn make_quiet(
    host: &dyn Host,
    transaction: &mut Transaction<'_>,
    args: &Args,
    signals: &Signals,
) -> Result<Option<String>, Failure> {
    let Some(level) = args.quiet else { return Ok(None) };
    let options = QuietOptions { level, cpus: args.pin.clone(), freq: None };
    let quiet_plan = QuietPlan::decide(host, &options)?;
    print_limits(&quiet_plan, host);
    let result = quiet_plan.apply(host, transaction, &|| signals.any())?;
    result.notes.iter().for_each(|note| eprintln!("note: {note}"));
    Ok(result.group)
}

/// Forwards signals to the command, except Ctrl-C, which reaches it through the shared terminal.
struct Signals {
    interrupted: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
}

impl Signals {
    fn catch() -> Result<Signals, Failure> {
        Ok(Signals { interrupted: flag_on(&[SIGINT])?, ended: flag_on(&[SIGTERM, SIGHUP])? })
    }

    fn any(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed) || self.ended.load(Ordering::Relaxed)
    }
}

/// Runs the command to its end.
fn command(
    args: &Args,
    user: Option<&User>,
    group: Option<&str>,
    signals: &Signals,
    mut speed: Option<&mut SpeedWatch<'_>>,
) -> Result<Exit, Failure> {
    let program = &args.command[0];
    let mut launch = Launch::new(program, &args.command[1..]).as_user(user);
    if let Some(cpus) = &args.pin {
        launch = launch.on(cpus);
    }
    if let Some(group) = group {
        launch = launch.in_control_group(group);
    }
    // Do not stop for Ctrl-C: the command gets it too and may handle it and go on (a shell, a
    // debugger).
    if let Some(speed) = &mut speed {
        speed.begin("");
    }
    let metered = speed.as_ref().map(|speed| (speed.host(), Meters::find(speed.host(), args.pin.as_ref())));
    let mut recording = metered.as_ref().map(|(host, meters)| meters.start(*host));
    let mut read = Instant::now();
    let mut tick = || {
        if let Some(speed) = &mut speed {
            speed.attend();
        }
        if let Some(recording) = &mut recording
            && read.elapsed() >= BETWEEN_ENERGY
        {
            recording.tick();
            read = Instant::now();
        }
    };
    let ended = run_in_foreground(launch, program, &signals.ended, &mut tick)?;
    if let (Some(recording), Some((_, meters))) = (recording, &metered) {
        let (sources, domain) = (&meters.list().energy, Domain::Package);
        let readings = recording.finish();
        if let (Some(joules), Some(watts)) =
            (readings.joules(sources, domain), readings.watts(sources, domain))
        {
            eprintln!("energy: {joules:.1} J of all packages, {watts:.1} W on average");
        }
        if let Some(words) = readings.wakes(&meters.list().idle_states) {
            eprintln!("wake-ups: the CPUs {words}");
        }
    }
    if let Some(speed) = speed {
        // Before the settings are restored, because the current limits are part of the answer.
        match speed.end() {
            Some(found) => eprintln!("why: CPUs {}: {found}", found.cpus),
            None => eprintln!(
                "note: how fast the CPUs ran cannot be seen here; 'flyball why' says what would show it"
            ),
        }
    }
    Ok(ended)
}
