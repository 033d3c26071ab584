//! `flyball sst`: Intel Speed Select by its features' names, with plans, errors that say why, and undo.
//!
//! Reading goes to the processor's interface; everything that changes the machine becomes an intent on the knobs
//! (`sst-level`, `sst-bf`, `clos` and so on) and is applied as by `flyball set`: planned, journaled, read back,
//! restored with `flyball restore`.

mod change;
mod read;
mod recommend;
mod watch;

use clap::{Args as ClapArgs, Subcommand};
use flyball_control::{Snapshot, select};
use flyball_host::{CpuList, Host, Kind, isst};
use flyball_sst::{
    layout::{Domain, Layout},
    setting::Via,
};

use crate::{
    context::Context,
    exit::{Exit, Failure},
    output::Reporter,
};

/// Arguments of `sst`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
  flyball sst info                                     which Speed Select features this machine has
  flyball sst perf-profile info -l 0                   everything about a performance level
  flyball sst perf-profile set-config-level -l 4 -o    change the level, and switch CPUs on and off with it
  flyball sst base-freq enable -a --dry-run            what enabling would write, why, and what it costs
  flyball sst -c 5,6 turbo-freq enable -a              high turbo for the cores of CPUs 5 and 6
  flyball sst core-power config -c 1 --min 1GHz --max 2GHz
  flyball sst -c 10 core-power assoc --clos 3
  flyball restore                                      undo everything

Exit: 0 done, 1 failed and restored, 2 not accepted, 4 no Speed Select here, 6 another flyball holds the machine,
7 the firmware chose another value.")]
pub struct Args {
    /// CPUs instead of the whole machine: 0-3,7, package:0, core:3 and so on.
    #[arg(short, long, value_name = "CPUS")]
    cpu: Option<String>,

    /// Print every write with its reason, and write nothing.
    #[arg(long, global = true)]
    dry_run: bool,

    /// The feature.
    #[command(subcommand)]
    feature: Feature,
}

/// Features of Speed Select.
#[derive(Debug, Subcommand)]
enum Feature {
    /// What the driver and the processor support.
    Info,
    /// SST-PP: performance levels, each with its cores, base frequency, power and temperature.
    PerfProfile {
        #[command(subcommand)]
        command: PerfProfile,
    },
    /// SST-BF: a higher base frequency on some cores for a lower one on the rest.
    BaseFreq {
        #[command(subcommand)]
        command: BaseFreq,
    },
    /// SST-TF: higher turbo on chosen cores for lower turbo on the rest.
    TurboFreq {
        #[command(subcommand)]
        command: TurboFreq,
    },
    /// SST-CP: four classes of service that share power, and the class of each core.
    CorePower {
        #[command(subcommand)]
        command: CorePower,
    },
    /// Turbo by cpufreq's upper limit, and the turbo ratio limits.
    TurboMode {
        #[command(subcommand)]
        command: TurboMode,
    },
    /// Follow a level that a management controller changes: switch CPUs on and off with it.
    Watch(watch::Args),
    /// Which level and feature serve given CPUs best.
    Recommend(recommend::Args),
}

/// A performance level.
#[derive(Debug, ClapArgs)]
struct Level {
    /// The level; the current one if not given.
    #[arg(short, long, value_name = "LEVEL")]
    level: Option<u8>,
}

#[derive(Debug, Subcommand)]
enum PerfProfile {
    /// Everything about all levels, or one.
    Info(Level),
    /// Whether firmware locks the level.
    GetLockStatus,
    /// The highest level.
    GetConfigLevels,
    /// The feature's version.
    GetConfigVersion,
    /// Whether SST-PP is enabled.
    GetConfigEnabled,
    /// The current level.
    GetConfigCurrentLevel,
    /// Change the level.
    SetConfigLevel {
        /// The level.
        #[arg(short, long, value_name = "LEVEL")]
        level: u8,
        /// Also bring the level's CPUs online and take all others of the domain offline.
        #[arg(short, long)]
        online: bool,
        /// Isolate CPUs that are not of the level in a cgroup v2 partition instead of taking them offline.
        #[arg(short = 'g', long, conflicts_with = "online")]
        cgroup: bool,
    },
}

#[derive(Debug, Subcommand)]
enum BaseFreq {
    /// What it offers at a level.
    Info(Level),
    /// Switch it on.
    Enable {
        /// Also set classes of service (class 0 for the high-priority cores, 3 for the rest) and hold the lower
        /// frequency limits at the base frequency.
        #[arg(short, long)]
        auto: bool,
    },
    /// Switch it off.
    Disable {
        /// Also switch classes of service off and lower the minimum frequencies.
        #[arg(short, long)]
        auto: bool,
    },
}

#[derive(Debug, Subcommand)]
enum TurboFreq {
    /// What it offers at a level.
    Info {
        #[command(flatten)]
        level: Level,
        /// Only one bucket.
        #[arg(short, long, value_name = "BUCKET")]
        bucket: Option<u32>,
        /// Only one class of instructions: sse, avx2, avx512, or level-0 and so on.
        #[arg(short = 'r', long, value_name = "TYPE")]
        trl_type: Option<String>,
    },
    /// Switch it on.
    Enable {
        /// Also make the cores of --cpu class 0 and all others class 3.
        #[arg(short, long)]
        auto: bool,
        /// Turbo ratio limits; without limits if not given.
        #[arg(short, long, value_name = "0xTRL")]
        trl: Option<String>,
    },
    /// Switch it off, and set the turbo ratio limits to those of the level.
    Disable {
        /// Also switch classes of service off.
        #[arg(short, long)]
        auto: bool,
        /// Turbo ratio limits instead of the level's.
        #[arg(short, long, value_name = "0xTRL")]
        trl: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
enum CorePower {
    /// Whether it is supported and on, and how classes share power.
    Info,
    /// Switch classes of service on.
    Enable {
        /// How they share power: ordered or proportional (also 1 or 0); unchanged if not given.
        #[arg(short, long, value_name = "TYPE")]
        priority: Option<String>,
    },
    /// Switch classes of service off.
    Disable,
    /// Change a class; what is not given stays as it is.
    Config {
        /// The class, 0 to 3.
        #[arg(short, long, value_name = "CLASS")]
        clos: u8,
        /// Energy preference, 0 to 15 (mailbox parts).
        #[arg(short, long)]
        epp: Option<u8>,
        /// Proportional priority, 0 (highest) to 15.
        #[arg(short, long)]
        weight: Option<u8>,
        /// Lowest frequency: 1GHz; a bare number is MHz, as in the guide.
        #[arg(short = 'n', long, value_name = "FREQ")]
        min: Option<String>,
        /// Highest frequency, or max for no limit.
        #[arg(short, long, value_name = "FREQ")]
        max: Option<String>,
    },
    /// Show a class, or all four.
    GetConfig {
        /// The class, 0 to 3.
        #[arg(short, long, value_name = "CLASS")]
        clos: Option<u8>,
    },
    /// Put the cores of --cpu into a class.
    Assoc {
        /// The class, 0 to 3.
        #[arg(short, long, value_name = "CLASS")]
        clos: u8,
    },
    /// The classes of the cores of --cpu, or of all.
    GetAssoc,
}

#[derive(Debug, Subcommand)]
enum TurboMode {
    /// Upper limits of cpufreq as high as they go.
    Enable,
    /// Upper limits of cpufreq at the base frequency.
    Disable,
    /// The turbo ratio limits.
    GetTrl,
    /// Set the turbo ratio limits.
    SetTrl {
        /// Eight ratios of 100 MHz in hexadecimal, bucket 0 last.
        #[arg(short, long, value_name = "0xTRL")]
        trl: String,
    },
}

/// The machine and the options of every command.
struct Session<'a> {
    context: &'a Context,
    host: &'a dyn Host,
    machine: Snapshot,
    dry_run: bool,
    /// The CPUs of --cpu.
    cpus: Option<CpuList>,
    /// As they were typed.
    selector: Option<String>,
}

impl Session<'_> {
    /// Prints data about the session's machine.
    fn output(&self) -> Reporter {
        self.context.output.about(self.host)
    }

    fn layout(&self) -> Result<&Layout, Failure> {
        let Some(layout) = self.machine.speed_select() else {
            return Err(Failure::new(Exit::NotHere, "Speed Select was not looked for"));
        };
        layout.map_err(|error| {
            let exit = if error.is_absent() { Exit::NotHere } else { Exit::Failed };
            Failure::new(exit, isst::explain(self.host, error))
        })
    }

    /// The domains of --cpu, or all.
    fn domains(&self) -> Result<Vec<&Domain>, Failure> {
        let layout = self.layout()?;
        let selected = |domain: &&Domain| match &self.cpus {
            Some(cpus) => domain.cpus.iter().any(|cpu| cpus.contains(cpu)),
            None => true,
        };
        let found: Vec<&Domain> = layout.domains.iter().filter(selected).collect();
        if found.is_empty() {
            return Err(Failure::not_here("none of these CPUs is in a power domain of Speed Select"));
        }
        Ok(found)
    }

    /// An error of the driver, with its remedy.
    fn explained(&self, error: &flyball_host::HostError) -> Failure {
        let exit = if error.errno == flyball_host::Errno::INVAL { Exit::Usage } else { Exit::Failed };
        Failure::new(exit, isst::explain(self.host, error))
    }
}

/// Runs the feature's command.
pub fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let host = context.open()?;
    let mut machine = Snapshot::begin(&*host).map_err(crate::knobs::unreadable)?;
    machine.take_speed_select(&*host, false);
    let cpus = match &args.cpu {
        Some(text) => Some(select(text, machine.topology()).map_err(Failure::usage)?),
        None => None,
    };
    let session =
        Session { context, host: &*host, machine, dry_run: args.dry_run, cpus, selector: args.cpu.clone() };
    if let Ok(layout) = session.layout() {
        if layout.via == Via::Dump && session.host.kind() == Kind::Live {
            eprintln!(
                "note: {} is missing (modprobe isst_tpmi): what follows is from debugfs, and nothing can be changed",
                isst::NODE
            );
        }
        if layout.map.unplaced {
            eprintln!(
                "note: which CPU is in which power domain is not known: MSR 0x54 cannot be read (modprobe msr, as root)"
            );
        }
    }
    match &args.feature {
        Feature::Info => read::info(&session),
        Feature::PerfProfile { command } => match command {
            PerfProfile::Info(level) => read::levels(&session, level.level),
            PerfProfile::GetLockStatus => read::single(&session, "lock-status", |levels| {
                if levels.locked { "locked" } else { "unlocked" }.into()
            }),
            PerfProfile::GetConfigLevels => {
                read::single(&session, "highest-level", |levels| levels.highest.into())
            }
            PerfProfile::GetConfigVersion => {
                read::single(&session, "version", |levels| levels.version.into())
            }
            PerfProfile::GetConfigEnabled => {
                read::single(&session, "enabled", |levels| levels.enabled.into())
            }
            PerfProfile::GetConfigCurrentLevel => {
                read::single(&session, "current-level", |levels| levels.current.into())
            }
            PerfProfile::SetConfigLevel { level, online, cgroup } => {
                change::level(&session, *level, *online, *cgroup)
            }
        },
        Feature::BaseFreq { command } => match command {
            BaseFreq::Info(level) => read::base_freq(&session, level.level),
            BaseFreq::Enable { auto } => change::base_freq(&session, true, *auto),
            BaseFreq::Disable { auto } => change::base_freq(&session, false, *auto),
        },
        Feature::TurboFreq { command } => match command {
            TurboFreq::Info { level, bucket, trl_type } => {
                read::turbo_freq(&session, level.level, *bucket, trl_type.as_deref())
            }
            TurboFreq::Enable { auto, trl } => change::turbo_freq(&session, true, *auto, trl.as_deref()),
            TurboFreq::Disable { auto, trl } => change::turbo_freq(&session, false, *auto, trl.as_deref()),
        },
        Feature::CorePower { command } => match command {
            CorePower::Info => read::core_power(&session),
            CorePower::Enable { priority } => change::core_power(&session, true, priority.as_deref()),
            CorePower::Disable => change::core_power(&session, false, None),
            CorePower::Config { clos, epp, weight, min, max } => {
                change::class(&session, *clos, *epp, *weight, min.as_deref(), max.as_deref())
            }
            CorePower::GetConfig { clos } => read::classes(&session, *clos),
            CorePower::Assoc { clos } => change::assoc(&session, *clos),
            CorePower::GetAssoc => read::assoc(&session),
        },
        Feature::TurboMode { command } => match command {
            TurboMode::Enable => change::apply(&session, &[("max-freq=max".to_owned(), None)]),
            TurboMode::Disable => change::apply(&session, &[("max-freq=base".to_owned(), None)]),
            TurboMode::GetTrl => read::turbo_limits(&session),
            TurboMode::SetTrl { trl } => change::apply(&session, &[(format!("trl={trl}"), None)]),
        },
        Feature::Watch(args) => watch::run(&session, args),
        Feature::Recommend(args) => recommend::run(&session, args),
    }
}
