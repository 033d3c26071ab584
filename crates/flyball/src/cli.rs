//! The command line. Each command's own arguments are in its module under `commands`.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::{
    commands,
    machine::{EVERYWHERE, MachineOptions},
};

/// Set up a machine's processors for a workload, measure the effect, and restore everything.
#[derive(Debug, Parser)]
#[command(name = "flyball", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub machine: MachineOptions,

    /// Print data as JSON on stdout.
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub json: bool,

    /// Directory of the lock and the journal [default: FLYBALL_STATE, or /run/flyball]. flyball
    /// also takes the lock in /run/flyball, so only one command changes a machine at a time.
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "DIR", hide_short_help = true)]
    pub state_dir: Option<PathBuf>,

    /// Use colours: auto (if stdout is a terminal and NO_COLOR is not set), always or never.
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "WHEN", default_value = "auto", hide_short_help = true)]
    pub color: ColorWhen,

    #[command(subcommand)]
    pub command: Command,
}

/// When text is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ColorWhen {
    Auto,
    Always,
    Never,
}

impl ColorWhen {
    /// What the command line asks for. Read before clap reads it, because clap's own help and
    /// errors are coloured too.
    pub(crate) fn of_process() -> ColorWhen {
        let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
        // What follows `--` are the options of another program (`flyball run -- ls --color`).
        let words: Vec<String> = words.take_while(|word| word != "--").collect();
        let mut given =
            words.iter().enumerate().filter_map(|(at, word)| match word.strip_prefix("--color")? {
                "" => words.get(at + 1).map(String::as_str),
                value => value.strip_prefix('='),
            });
        // What is not a value is left to clap, which names those there are.
        match given.next_back() {
            Some("always") => ColorWhen::Always,
            Some("never") => ColorWhen::Never,
            _ => ColorWhen::Auto,
        }
    }

    /// For clap.
    pub(crate) fn choice(self) -> clap::ColorChoice {
        match self {
            ColorWhen::Auto => clap::ColorChoice::Auto,
            ColorWhen::Always => clap::ColorChoice::Always,
            ColorWhen::Never => clap::ColorChoice::Never,
        }
    }
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "a process has one")]
pub(crate) enum Command {
    /// Show the whole machine on one screen.
    Show(commands::show::Args),

    /// Print the values of knobs.
    Get(commands::get::Args),

    /// Explain a knob: effect, values, interactions, files and registers.
    Explain(commands::explain::Args),

    /// Explain why CPUs run below their maximum frequency.
    Why(commands::why::Args),

    /// Check the machine's CPU configuration and suggest fixes.
    Doctor(commands::doctor::Args),

    /// Change settings until reboot or restore: governor=performance turbo=off ...
    Set(commands::set::Args),

    /// Show every write that settings need, without writing.
    Plan(commands::plan::Args),

    /// List profiles and what each would change here.
    Profiles(commands::profiles::Args),

    /// Apply a profile until reboot or restore.
    Apply(commands::apply::Args),

    /// Check that settings are still in effect, and find out who changed them.
    Verify(commands::verify::Args),

    /// Undo flyball's changes, even after a crash.
    Restore(commands::restore::Args),

    /// Keep settings in place, and report what changes them.
    Hold(commands::hold::Args),

    /// Save the current settings as a profile.
    Save(commands::save::Args),

    /// Run a workload under several settings and report the differences.
    Compare(commands::compare::Args),

    /// Find the best settings for a workload, and measure them again.
    Tune(commands::tune::Args),

    /// Run a command under settings, then restore them.
    Run(commands::run::Args),

    /// Rebuild a comparison's report, combine those of a fleet, or check a kernel selftest's CSV.
    Report(commands::report::Args),

    /// Collect results over years as Parquet files, and find shifts.
    Results(commands::results::Args),

    /// Prepare the machine for benchmarks, and find shifts in a series of runs.
    Quiet(commands::quiet::Args),

    /// Intel Speed Select: performance levels, base-freq, turbo-freq, core-power, with plan and
    /// undo.
    Sst(commands::sst::Args),

    /// Record, report and diagnose the P-state driver's decisions.
    Trace(commands::trace::Args),

    /// Show the speed each CPU is asked for, the speed it delivers, and what limits it.
    Top(commands::top::Args),

    /// Serve processor metrics to Prometheus, or write them to a file.
    Exporter(commands::exporter::Args),

    /// List simulated machines, run programs on them, compare them with measurements.
    Sim(commands::sim::Args),

    /// Boot real kernels on emulated processors and run commands in them.
    Guest(commands::guest::Args),

    /// Record this machine in one file, for -M elsewhere.
    Record(commands::record::Args),

    /// Drop-in replacement for the kernel's intel-speed-select.
    // -h and -v are the tool's own.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    IntelSpeedSelect(commands::intel_speed_select::Args),

    /// Drop-in replacement for the kernel's amd_pstate_trace.py.
    #[command(
        name = "amd_pstate_trace.py",
        override_usage = "flyball amd_pstate_trace.py -n <NAME> -t <FILE> [OPTIONS]\n       flyball amd_pstate_trace.py -n <NAME> -i <SECONDS> [OPTIONS]"
    )]
    AmdPstateTrace(commands::tracer_dropin::Args),

    /// Drop-in replacement for the kernel's intel_pstate_tracer.py.
    #[command(
        name = "intel_pstate_tracer.py",
        override_usage = "flyball intel_pstate_tracer.py -n <NAME> -t <FILE> [OPTIONS]\n       flyball intel_pstate_tracer.py -n <NAME> -i <SECONDS> [OPTIONS]"
    )]
    IntelPstateTracer(commands::tracer_dropin::Args),

    /// Print the manual.
    Man(commands::man::Args),

    /// Print shell completions.
    Completions(commands::completions::Args),

    /// Print the JSON Schemas of output and files.
    Schema(commands::schema::Args),

    /// What fits at the cursor: for the scripts of `completions`.
    #[command(hide = true)]
    Complete(commands::complete::Args),

    /// Whether words are a command line: for tests of documents.
    #[command(hide = true)]
    Parse(commands::parse::Args),

    /// Run a built-in workload once and print its result.
    #[command(hide = true)]
    Task(commands::task::Args),

    /// The process that restores settings if flyball dies.
    #[command(hide = true)]
    Guardian(commands::guardian::Args),

    /// The process that speaks D-Bus for the service.
    #[cfg(feature = "bus")]
    #[command(hide = true)]
    HoldBus(commands::hold_bus::Args),
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    /// Every option and rule that takes a time span takes the same spellings of it.
    #[test]
    fn a_time_span_has_the_same_spellings_everywhere() {
        const SPELLINGS: [&str; 12] = [
            "30",
            "30s",
            "30 s",
            "30sec",
            "30.0s",
            "0.5m",
            "0.5min",
            "0.5 min",
            "30000ms",
            "30000000us",
            "20s10s",
            "29s 1000ms",
        ];
        const OPTIONS: [&[&str]; 10] = [
            &["compare", "--cool-down", "30", "--", "true"],
            &["compare", "--interval", "30", "--", "true"],
            &["exporter", "--textfile", "x", "--every", "30"],
            &["hold", "add", "a", "governor=performance", "--for", "30"],
            &["show", "--nfd=x", "--expires", "30"],
            &["sst", "watch", "--poll", "30"],
            &["top", "--interval", "30"],
            &["top", "--record", "x", "--keep", "30"],
            &["trace", "record", "--time", "30"],
            &["why", "--time", "30"],
        ];
        for text in SPELLINGS {
            for option in OPTIONS {
                let words = option.iter().map(|word| if *word == "30" { text } else { word });
                let parsed = Cli::try_parse_from(std::iter::once("flyball").chain(words));
                assert!(parsed.is_ok(), "{option:?} with '{text}': {}", parsed.unwrap_err());
            }
            let mut condition = flyball_hold::Condition::default();
            assert_eq!(condition.add("for", text), Ok(()), "{text}");
            let alert = format!("package > 1 W for {text}").parse::<flyball_monitor::alert::Alert>();
            assert_eq!(alert.map(|alert| alert.hold.as_secs()).map_err(|error| error.to_string()), Ok(30));
            // Words of one line: a span there has no blanks.
            let word = text.replace(' ', "");
            assert!(format!("fan blocked after {word}").parse::<flyball_sim::Fault>().is_ok(), "{word}");
            let back = flyball_top::state::time(&format!("-{word}"));
            assert_eq!(back, Some(flyball_top::state::Jump::Back(30)), "{word}");
            let events = flyball_hold::events(format!("{word} power battery\n").as_bytes(), "events");
            assert!(events.is_ok(), "{word}: {}", events.unwrap_err());
        }
    }
}
