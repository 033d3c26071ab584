//! The manifest of a comparison. Written before it starts, and read to resume it.

use flyball_compare::workloads;
use flyball_control::Topology;
use flyball_host::{Host, Kind};
use flyball_measure::{
    Arm, BackgroundNote, Command, Correction, EQUIVALENT, FORMAT, Length, MachineNote, Manifest, Schedule,
    SystemNote, USUAL_ROUNDS, VERSION, Workload, WorkloadNote,
    preset::{Reader, note_fixed_time},
    render,
    stats::{self, Test},
};

use flyball_text::counted;

use super::{
    args::{Args, Until},
    rounds::{Ignored, RoundArgs},
};
use crate::{exit::Failure, quiet_machine::Observer, time};

/// Minimum number of blocks for `--until`.
const LEAST_BLOCKS: usize = 6;

/// Used if /proc/cpuinfo names no model.
const UNKNOWN_PROCESSOR: &str = "unknown processor";

pub(super) fn command_of(note: &WorkloadNote) -> Command {
    let mut command = Command::new(note.argv.clone());
    command.title = Some(note.name.clone());
    // A model's result is not parsed from output, so its manifest has no reader.
    command.reader = note.reader.clone().unwrap_or_else(|| Reader::Model { metric: note.metric.clone() });
    command.cpus = note.cpus.as_ref().and_then(|text| text.parse().ok());
    command.directory.clone_from(&note.directory);
    command.input.clone_from(&note.input);
    command.environment.clone_from(&note.environment);
    command.accepted_exit_codes.clone_from(&note.accepted_exit_codes);
    command.digests_output = note.same_output;
    command
}

pub(super) fn background_of(note: &WorkloadNote) -> Vec<Command> {
    let command = |load: &BackgroundNote| {
        let mut command = Command::new(load.argv.clone());
        command.title = Some(load.name.clone());
        command.cpus = load.cpus.as_ref().and_then(|text| text.parse().ok());
        command.directory.clone_from(&note.directory);
        command
    };
    note.background.iter().map(command).collect()
}

/// Returns how many blocks a comparison runs to answer its questions at the given confidence.
pub(super) fn length(args: &Args, arms: usize, correction: Correction) -> Length {
    let confidence = args.measuring.confidence;
    let alpha = 1.0 - confidence;
    if let Some(until) = args.until {
        let (half_width, decided) = match until {
            Until::HalfWidth(width) => (width, false),
            Until::Decided => (EQUIVALENT, true),
        };
        // The interval is exact for normal noise from three pairs on. Detecting outliers needs some
        // more rounds.
        let least = args
            .min_rounds
            .map_or_else(|| stats::pairs_needed(alpha, 1).min(LEAST_BLOCKS), |least| least as usize);
        let most = args.max_rounds();
        note_too_few(most, arms, confidence, stats::rounds_needed(alpha / correction.medians, Test::Looks));
        return Length::Until { half_width, decided, least: least.min(most), most };
    }
    // 18 rounds decide each of 500 cases.
    let usual = if args.workload.suite.is_some() { 20 } else { USUAL_ROUNDS };
    let rounds = args.rounds.map_or(usual, |rounds| rounds as usize);
    note_too_few(rounds, arms, confidence, stats::pairs_needed(alpha / correction.medians, 1));
    Length::Rounds(rounds)
}

/// Returns how long the rounds of programs should take together, if the number of rounds is not
/// given. Hooks may take longer than what they prepare.
pub(super) fn least_seconds(args: &Args, manifest: &Manifest) -> Option<f64> {
    const LEAST: f64 = 3.0;
    let asks = args.measuring.warm_up == 0
        || args.rounds.is_some()
        || args.until.is_some()
        || args.workload.suite.is_some();
    let mut programs = manifest.arms.iter().map(|arm| arm.program.as_ref());
    let is_plain = programs.all(|program| program.is_some_and(|program| program.server.is_none()));
    (!asks && is_plain && manifest.workload.hooks.is_empty() && !manifest.machine.simulated).then_some(LEAST)
}

fn note_too_few(rounds: usize, arms: usize, confidence: f64, needed: usize) {
    if rounds < needed && arms > 1 {
        eprintln!(
            "note: {} of {arms} arms cannot show a difference at {} % confidence; at least {needed} are needed",
            counted(rounds, "round"),
            render::level(confidence)
        );
    }
}

/// Returns the manifest of a comparison or a search that has not started.
pub(in crate::commands) fn manifest(
    host: &dyn Host,
    args: &RoundArgs,
    length: Length,
    arms: Vec<Arm>,
    made: &workloads::PreparedWorkload,
) -> Manifest {
    let programs = arms.iter().filter_map(|arm| Some(arm.program.as_ref()?.argv.as_slice()));
    if let Some(note) = note_fixed_time(&made.command.reader, programs.chain([made.command.argv.as_slice()]))
    {
        eprintln!("note: {note}");
    }
    let topology = Topology::inspect(host).ok();
    let processor = topology.as_ref().and_then(|topology| topology.model_name.clone());
    let processor = processor.unwrap_or_else(|| UNKNOWN_PROCESSOR.to_owned());
    let system = system(host, topology.as_ref());
    Manifest {
        format: FORMAT.to_owned(),
        version: VERSION,
        tool: format!("flyball {}", env!("CARGO_PKG_VERSION")),
        command_line: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
        machine: MachineNote {
            name: host.name(),
            simulated: host.kind() == Kind::Simulated,
            emulated: flyball_host::emulated(host),
            processor,
            // Without /sys, count the CPUs that this process may use.
            cpus: topology.map_or_else(
                || std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
                |topology| topology.online.len(),
            ),
            system,
        },
        workload: WorkloadNote {
            name: made.command.name(),
            metric: made.command.metric(),
            // Stored as words, not as a line: a resumed comparison must run exactly the same
            // command.
            argv: made.command.argv.clone(),
            reader: match &made.command.reader {
                Reader::Model { .. } => None,
                reader => Some(reader.clone()),
            },
            cpus: made.command.cpus.as_ref().map(ToString::to_string),
            directory: made.command.directory.clone(),
            server: made.server.clone(),
            background: made.background.clone(),
            input: made.command.input.clone(),
            environment: made.command.environment.clone(),
            hooks: made.hooks.clone(),
            ignore_failure: args.ignore_failure == Some(Ignored::All),
            accepted_exit_codes: match &args.ignore_failure {
                Some(Ignored::Codes(codes)) => codes.clone(),
                _ => Vec::new(),
            },
            same_output: made.command.digests_output,
        },
        quiet: None,
        // Filled at the start of a boot, with the arms that need another one.
        boot_needs: vec![None; arms.len()],
        arms,
        schedule: Schedule {
            seed: args.seed.unwrap_or_else(time::arbitrary_seed),
            length,
            warm_up: args.warm_up as usize,
            cool_down: args.cool_down,
            interval: args.interval,
            confidence: args.confidence,
            unobserved: args.observer == Some(Observer::None),
            random_layout: false,
            timeout: None,
            least_seconds: None,
            most_seconds: None,
            ended_by_time: false,
            limits: Vec::new(),
        },
        boots: Vec::new(),
        trace: false,
        knobs: Vec::new(),
        experiment: None,
        bisect: None,
    }
}

/// Describes what distinguishes this machine from others with the same processor.
fn system(host: &dyn Host, topology: Option<&Topology>) -> SystemNote {
    let read = |path: &str| {
        let text = host.read(path).ok()?.trim().to_owned();
        (!text.is_empty()).then_some(text)
    };
    // Readable for all; the serial numbers next to them are not, and are not needed.
    let dmi = |name: &str| read(&format!("/sys/class/dmi/id/{name}"));
    let product =
        [dmi("sys_vendor"), dmi("product_name")].into_iter().flatten().collect::<Vec<_>>().join(" ");
    SystemNote {
        // All simulated machines have one.
        hostname: (host.kind() == Kind::Live).then(|| read("/proc/sys/kernel/hostname")).flatten(),
        product: (!product.is_empty()).then_some(product),
        firmware: dmi("bios_version"),
        microcode: topology.and_then(|topology| Some(format!("{:#x}", topology.microcode?))),
    }
}

/// Rejects resuming on another machine.
pub(in crate::commands) fn check_same_machine(host: &dyn Host, manifest: &Manifest) -> Result<(), Failure> {
    let processor = Topology::inspect(host).ok().and_then(|topology| topology.model_name);
    let begun_on = manifest.machine.processor.as_str();
    if host.name() == manifest.machine.name
        // The name alone is not enough: it is `live` on every real machine. Do not compare boot id
        // and kernel, which change when an arm needs another boot.
        && (begun_on == UNKNOWN_PROCESSOR || processor.as_deref() == Some(begun_on))
    {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "this comparison was started on '{}' ({}), which is another machine",
        manifest.machine.name, manifest.machine.processor
    )))
}
