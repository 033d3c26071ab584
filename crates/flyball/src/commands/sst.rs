//! `flyball sst`: Intel Speed Select by the names of its features, with plan and undo.
//!
//! Reads use the processor's interface. Changes become settings of knobs (`sst-level`, `sst-bf`,
//! `clos` and so on), which are planned, journaled and read back as in `flyball set`, and undone by
//! `flyball restore`.

pub(crate) mod read;
mod recommend;
mod watch;
mod write;

use clap::{Args as ClapArgs, Subcommand};
use flyball_control::Snapshot;
use flyball_host::{CpuList, Errno, Host, HostError, Kind, isst};
use flyball_sst::{
    access::Access,
    layout::{Domain, Layout},
    setting::Via,
};

use crate::{
    context::Context,
    exit::{Exit, Failure},
    knob_arguments,
    output::Reporter,
};

/// Arguments of `sst`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  flyball sst info                                     what this machine supports
  flyball sst perf-profile info -l 0                   a performance level in full
  flyball sst perf-profile set-config-level -l 4 --online    change the level and bring its CPUs online, the others offline
  flyball sst base-freq enable --auto --dry-run        what enabling would write, why, and what it costs
  flyball sst -c 5,6 turbo-freq enable --auto          high turbo for the cores of CPUs 5 and 6
  flyball sst core-power config --clos 1 --min 1GHz --max 2GHz
  flyball sst -c 10 core-power assoc --clos 3
  flyball restore                                      undo everything

Exit codes: 0 done, 1 failed, settings restored, 2 not accepted, 4 no Speed Select here, 6 another flyball command is changing the machine, \
7 the firmware changed the value.")]
pub(crate) struct Args {
    /// CPUs: 0-3,7, package:0, core:3 and so on [default: the whole machine].
    #[arg(short, long, value_name = "CPUS")]
    cpu: Option<String>,

    /// Print every write with its reason; write nothing.
    #[arg(short = 'n', long, global = true)]
    dry_run: bool,

    #[command(subcommand)]
    feature: Feature,
}

#[derive(Debug, Subcommand)]
enum Feature {
    /// Show what the processor and the drivers support.
    Info,
    /// SST-PP: levels with their own cores, base frequency and power.
    PerfProfile {
        #[command(subcommand)]
        command: PerfProfile,
    },
    /// SST-BF: higher base frequency for some cores, lower for others.
    BaseFreq {
        #[command(subcommand)]
        command: BaseFreq,
    },
    /// SST-TF: higher turbo frequency for some cores, lower for others.
    TurboFreq {
        #[command(subcommand)]
        command: TurboFreq,
    },
    /// SST-CP: four classes of service that share power, and the assignment of cores to them.
    CorePower {
        #[command(subcommand)]
        command: CorePower,
    },
    /// Turbo through cpufreq's upper limits, and the turbo ratio limits.
    TurboMode {
        #[command(subcommand)]
        command: TurboMode,
    },
    /// Follow levels set by a management controller: bring CPUs online and offline accordingly.
    Watch(watch::Args),
    /// Recommend the level and features that are best for given CPUs.
    Recommend(recommend::Args),
}

#[derive(Debug, ClapArgs)]
struct Level {
    /// The level [default: the current one].
    #[arg(short, long, value_name = "LEVEL")]
    level: Option<u8>,
}

#[derive(Debug, Subcommand)]
enum PerfProfile {
    /// Show all levels, or one, in full.
    Info(Level),
    /// Show whether the firmware refuses another level.
    GetLockStatus,
    /// Show the highest level.
    GetConfigLevels,
    /// Show the version of the feature.
    GetConfigVersion,
    /// Show whether the processor has performance levels.
    GetConfigEnabled,
    /// Show the current level.
    GetConfigCurrentLevel,
    /// Change the level.
    SetConfigLevel {
        /// The level.
        #[arg(short, long, value_name = "LEVEL")]
        level: u8,
        /// Also bring the level's CPUs online and take the domain's other CPUs offline.
        #[arg(long, short_alias = 'o')]
        online: bool,
        /// Isolate CPUs outside the level in a cgroup v2 partition instead of taking them offline.
        #[arg(short = 'g', long, conflicts_with = "online")]
        cgroup: bool,
    },
}

#[derive(Debug, Subcommand)]
enum BaseFreq {
    /// Show what base-freq offers at a level.
    Info(Level),
    /// Enable base-freq.
    Enable {
        /// Also set classes of service (0 for the high-priority cores, 3 for the others) and raise
        /// the minimum frequency to the base frequency.
        // The letters of intel-speed-select work and are not listed: in flyball a letter has one
        // meaning.
        #[arg(long, short_alias = 'a')]
        auto: bool,
    },
    /// Disable base-freq.
    Disable {
        /// Also disable classes of service and lower the minimum frequency.
        #[arg(long, short_alias = 'a')]
        auto: bool,
    },
}

#[derive(Debug, Subcommand)]
enum TurboFreq {
    /// Show what turbo-freq offers at a level.
    Info {
        #[command(flatten)]
        level: Level,
        /// Show only this bucket.
        #[arg(long, short_alias = 'b', value_name = "BUCKET")]
        bucket: Option<u32>,
        /// Show only this instruction class: sse, avx2, avx512, or level-0 and so on.
        #[arg(short = 'r', long, value_name = "TYPE")]
        trl_type: Option<String>,
    },
    /// Enable turbo-freq.
    Enable {
        /// Also assign the cores of --cpu to class 0 and all others to class 3.
        #[arg(long, short_alias = 'a')]
        auto: bool,
        /// Turbo ratio limits [default: no limits].
        #[arg(long, short_alias = 't', value_name = "0xTRL")]
        trl: Option<String>,
    },
    /// Disable turbo-freq and restore the turbo ratio limits of the level.
    Disable {
        /// Also disable classes of service.
        #[arg(long, short_alias = 'a')]
        auto: bool,
        /// Turbo ratio limits [default: those of the level].
        #[arg(long, short_alias = 't', value_name = "0xTRL")]
        trl: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
enum CorePower {
    /// Show whether core-power is supported and enabled, and how classes share power.
    Info,
    /// Enable classes of service.
    Enable {
        /// How classes share power: ordered or proportional (or 1 or 0) [default: unchanged].
        #[arg(long, short_alias = 'p', value_name = "TYPE")]
        priority: Option<String>,
    },
    /// Disable classes of service.
    Disable,
    /// Change a class; values that are not given stay.
    Config {
        /// The class, 0 to 3.
        #[arg(long, short_alias = 'c', value_name = "CLASS")]
        clos: u8,
        /// Energy preference, 0 to 15 (mailbox processors).
        #[arg(long, short_alias = 'e')]
        epp: Option<u8>,
        /// Proportional priority, 0 (highest) to 15.
        #[arg(long, short_alias = 'w')]
        weight: Option<u8>,
        /// Minimum frequency, as 1GHz; a bare number is MHz, as in Intel's guide.
        #[arg(long, value_name = "FREQ")]
        min: Option<String>,
        /// Maximum frequency, or max for no limit.
        #[arg(short, long, value_name = "FREQ")]
        max: Option<String>,
    },
    /// Show a class, or all four.
    GetConfig {
        /// The class, 0 to 3.
        #[arg(long, short_alias = 'c', value_name = "CLASS")]
        clos: Option<u8>,
    },
    /// Assign the cores of --cpu to a class.
    Assoc {
        /// The class, 0 to 3.
        #[arg(long, short_alias = 'c', value_name = "CLASS")]
        clos: u8,
    },
    /// Show the classes of the cores of --cpu, or of all cores.
    GetAssoc,
}

#[derive(Debug, Subcommand)]
enum TurboMode {
    /// Set cpufreq's upper limits to the maximum.
    Enable,
    /// Set cpufreq's upper limits to the base frequency.
    Disable,
    /// Show the turbo ratio limits.
    GetTrl,
    /// Set the turbo ratio limits.
    SetTrl {
        /// Eight ratios of 100 MHz in hexadecimal, bucket 0 last.
        #[arg(long, short_alias = 't', value_name = "0xTRL")]
        trl: String,
    },
}

/// What every subcommand needs.
struct Session<'a> {
    context: &'a Context,
    host: &'a dyn Host,
    machine: Snapshot,
    dry_run: bool,
    cpus: Option<CpuList>,
    /// The text of --cpu.
    selector: Option<String>,
}

impl Session<'_> {
    /// Returns the reporter for the session's machine.
    fn output(&self) -> Reporter {
        self.context.output.about(self.host)
    }

    fn layout(&self) -> Result<&Layout, Failure> {
        // Cannot happen: `run` discovers Speed Select first.
        let Some(layout) = self.machine.speed_select() else {
            return Err(Failure::new(Exit::NotHere, "Speed Select was not looked for"));
        };
        layout.map_err(|error| {
            // A machine without Speed Select is not a failure, but an error of the driver is.
            let exit = if error.is_absent() { Exit::NotHere } else { Exit::Failed };
            Failure::new(exit, isst::explain(self.host, error))
        })
    }

    /// Returns the power domains with CPUs of --cpu, or all.
    fn domains(&self) -> Result<Vec<&Domain>, Failure> {
        let layout = self.layout()?;
        let selected = |domain: &&Domain| match &self.cpus {
            // One CPU is enough, because levels and features apply to the whole domain.
            Some(cpus) => domain.cpus.iter().any(|cpu| cpus.contains(cpu)),
            None => true,
        };
        let found: Vec<&Domain> = layout.domains.iter().filter(selected).collect();
        if found.is_empty() {
            return Err(Failure::not_here("none of these CPUs is in a power domain of Speed Select"));
        }
        Ok(found)
    }

    /// Opens the processor's interface.
    fn open(&self) -> Result<(&Layout, Box<dyn Access + '_>), Failure> {
        let layout = self.layout()?;
        Ok((layout, layout.access(self.host)))
    }

    /// Converts a driver's result. An error gets a hint.
    fn ask<T>(&self, answer: Result<T, HostError>) -> Result<T, Failure> {
        answer.map_err(|error| {
            // The requested level or class does not exist.
            let exit = if error.errno == Errno::INVAL { Exit::Usage } else { Exit::Failed };
            Failure::new(exit, isst::explain(self.host, &error))
        })
    }
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let host = context.open()?;
    let mut machine = Snapshot::begin(&*host)?;
    // Not part of `begin`, because it reads every power domain, which other commands do not need.
    machine.take_speed_select(&*host);
    let cpus = knob_arguments::cpus(&*host, args.cpu.as_deref(), &mut machine)?;
    let session =
        Session { context, host: &*host, machine, dry_run: args.dry_run, cpus, selector: args.cpu.clone() };
    // Print notes about restrictions. Without a layout, each command reports the error itself.
    if let Ok(layout) = session.layout() {
        if layout.via == Via::Dump && session.host.kind() == Kind::Live {
            eprintln!(
                "note: {} is missing (modprobe isst_tpmi): values are read from debugfs, and nothing can be changed",
                isst::NODE
            );
        }
        if layout.map.unplaced {
            eprintln!(
                "note: the power domains of CPUs are unknown, because MSR 0x54 cannot be read (modprobe msr, as root)"
            );
        }
    }
    match &args.feature {
        Feature::Info => read::info(&session),
        Feature::PerfProfile { command } => match command {
            PerfProfile::Info(level) => read::levels(&session, level.level),
            PerfProfile::GetLockStatus => read::single(&session, "lock-status", |levels| {
                read::Single::LockStatus(if levels.locked { "locked" } else { "unlocked" })
            }),
            PerfProfile::GetConfigLevels => {
                read::single(&session, "highest-level", |levels| read::Single::HighestLevel(levels.highest))
            }
            PerfProfile::GetConfigVersion => {
                read::single(&session, "version", |levels| read::Single::Version(levels.version))
            }
            PerfProfile::GetConfigEnabled => {
                read::single(&session, "enabled", |levels| read::Single::Enabled(levels.enabled))
            }
            PerfProfile::GetConfigCurrentLevel => {
                read::single(&session, "current-level", |levels| read::Single::CurrentLevel(levels.current))
            }
            PerfProfile::SetConfigLevel { level, online, cgroup } => {
                write::level(&session, *level, *online, *cgroup)
            }
        },
        Feature::BaseFreq { command } => match command {
            BaseFreq::Info(level) => read::base_freq(&session, level.level),
            BaseFreq::Enable { auto } => write::base_freq(&session, true, *auto),
            BaseFreq::Disable { auto } => write::base_freq(&session, false, *auto),
        },
        Feature::TurboFreq { command } => match command {
            TurboFreq::Info { level, bucket, trl_type } => {
                read::turbo_freq(&session, level.level, *bucket, trl_type.as_deref())
            }
            TurboFreq::Enable { auto, trl } => write::turbo_freq(&session, true, *auto, trl.as_deref()),
            TurboFreq::Disable { auto, trl } => write::turbo_freq(&session, false, *auto, trl.as_deref()),
        },
        Feature::CorePower { command } => match command {
            CorePower::Info => read::core_power(&session),
            CorePower::Enable { priority } => write::core_power(&session, true, priority.as_deref()),
            CorePower::Disable => write::core_power(&session, false, None),
            CorePower::Config { clos, epp, weight, min, max } => {
                write::class(&session, *clos, *epp, *weight, min.as_deref(), max.as_deref())
            }
            CorePower::GetConfig { clos } => read::classes(&session, *clos),
            CorePower::Assoc { clos } => write::assoc(&session, *clos),
            CorePower::GetAssoc => read::assoc(&session),
        },
        Feature::TurboMode { command } => match command {
            // Like the kernel's tool, whose turbo-mode sets scaling_max_freq without touching a
            // turbo switch.
            TurboMode::Enable => write::apply(&session, &[write::assign("max-freq", "max")]),
            TurboMode::Disable => write::apply(&session, &[write::assign("max-freq", "base")]),
            TurboMode::GetTrl => read::turbo_limits(&session),
            TurboMode::SetTrl { trl } => write::apply(&session, &[write::assign("trl", trl)]),
        },
        Feature::Watch(args) => watch::run(&session, args),
        Feature::Recommend(args) => recommend::run(&session, args),
    }
}
