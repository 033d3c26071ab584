//! `flyball sst recommend`: finds the best level and features for given CPUs and their cost for the
//! others, and prints a profile.

use flyball_control::{Id, Snapshot, Value};
use flyball_host::CpuList;
use flyball_sst::recommend::{Candidate, Goal, candidates, profile};

use super::Session;
use crate::{
    exit::{Exit, Failure},
    knob_arguments,
    paint::{Columns, Paint},
};

/// Arguments of `recommend`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The CPUs to optimise for [default: those of `sst --cpu`].
    #[arg(long, value_name = "CPUS")]
    cpus: Option<String>,

    /// Optimise the turbo frequency with all cores busy, instead of the guaranteed frequency.
    #[arg(long)]
    turbo: bool,

    /// Print the profile of the best candidate, for 'flyball apply -'.
    #[arg(long)]
    profile: bool,

    /// A command to optimise for: the CPUs that this process may run on (as under taskset).
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Returns the CPUs that this process, and so a command that it starts, may use.
fn allowed(session: &Session<'_>) -> Option<CpuList> {
    // Use the affinity mask instead of interpreting the command's words: taskset, numactl and
    // cpusets all set it.
    let status = session.host.read("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")?.trim().parse().ok())
}

pub(super) fn run(session: &Session<'_>, args: &Args) -> Result<Exit, Failure> {
    let usage = |message: &str| Failure::usage(message);
    // Take another snapshot, because a selector may need files that the session's lacks.
    let mut snapshot = Snapshot::begin(session.host)?;
    let chosen = knob_arguments::cpus(session.host, args.cpus.as_deref(), &mut snapshot)?;
    let cpus = match chosen.or_else(|| session.cpus.clone()) {
        Some(cpus) => cpus,
        None if !args.command.is_empty() => allowed(session)
            .ok_or_else(|| usage("cannot find out on which CPUs the command may run: give --cpus LIST"))?,
        None => return Err(usage("no CPUs: give --cpus LIST, or -- CMD under taskset")),
    };
    let layout = session.layout()?;
    let goal = if args.turbo { Goal::Turbo } else { Goal::Guaranteed };
    let mut found: Vec<Candidate> = Vec::new();
    for domain in layout.domains.iter().filter(|domain| domain.cpus.iter().any(|cpu| cpus.contains(cpu))) {
        let of = session.ask(candidates(layout, session.host, domain, &cpus, goal))?;
        // Each domain needs a level that keeps its share of the CPUs. If one has none, nothing can
        // be recommended.
        if of.is_empty() {
            return Err(Failure::not_here(format!(
                "no level of power domain {}:{} keeps all of these CPUs",
                domain.place.package, domain.place.domain
            )));
        }
        found.extend(of);
    }
    if found.is_empty() {
        return Err(Failure::not_here("none of these CPUs is in a power domain of Speed Select"));
    }
    let turbo = Snapshot::take_knobs(session.host, &[Id::Turbo])?.machine_value(Id::Turbo)?;
    let is_turbo_off = turbo == Some(Value::Switch(false));
    let profile = args.profile.then(|| profile(layout, &found, &cpus, is_turbo_off));
    if is_turbo_off {
        eprintln!(
            "note: turbo is off: only the guaranteed frequencies are reached, until 'flyball set turbo=on'"
        );
    }
    // The note explains the table. Programs read the other formats.
    let is_table = profile.is_none() && !session.context.output.is_json();
    session.output().list(|| found.iter().collect(), || profile.unwrap_or_else(|| render(&found)))?;
    if is_table {
        eprintln!(
            "note: best first in each domain, by the processor's own numbers; 'flyball compare' measures the effect"
        );
    }
    Ok(Exit::Done)
}

fn render(found: &[Candidate]) -> String {
    let mut table = Columns::new();
    table.heading([
        "domain",
        "level",
        "feature",
        "guaranteed",
        "turbo, all busy",
        "others",
        "others' turbo",
        "offline",
        "by",
    ]);
    for one in found {
        table.text_row([
            format!("{}:{}", one.package, one.domain),
            one.level.to_string(),
            one.feature.to_string(),
            one.guaranteed_mhz.to_string(),
            one.turbo_mhz.to_string(),
            one.others_guaranteed_mhz.to_string(),
            one.others_turbo_mhz.to_string(),
            if one.offline.is_empty() { "-".to_owned() } else { one.offline.to_string() },
            if one.settings.is_empty() {
                "as it is".to_owned()
            } else {
                one.settings.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            },
        ]);
    }
    table.render(Paint::plain())
}
