//! The feature and command words: what each runs.

use crate::{
    features,
    getopt::Getopt,
    help, options, power,
    profile::{self, Single},
    session::{Ended, Session},
    turbo,
};

/// The action of a feature's command word.
#[derive(Debug, Clone, Copy)]
pub(super) enum Action {
    Single(Single),
    SetLevel,
    Info,
    BaseInfo,
    BaseSet(bool),
    TurboInfo,
    TurboSet(bool),
    PowerInfo,
    PowerSet(bool),
    Config,
    ShowConfig,
    Assoc,
    ShowAssoc,
    Mode(bool),
    Limits(bool),
}

/// A feature word.
pub(super) struct Feature {
    pub name: &'static str,
    pub purpose: &'static str,
    /// The command words, each with its action, its purpose and its options.
    pub commands: &'static [(&'static str, Action, &'static str)],
}

pub(super) const FEATURES: &[Feature] = &[
    Feature {
        name: "perf-profile",
        purpose: "SST-PP: performance levels, each with cores, base frequency, power and temperature",
        commands: &[
            ("info", Action::Info, "what a level offers; -l LEVEL, otherwise all levels"),
            ("get-lock-status", Action::Single(Single::Locked), "whether firmware locks the level"),
            ("get-config-levels", Action::Single(Single::Levels), "the highest level"),
            ("get-config-version", Action::Single(Single::Version), "the feature's version"),
            ("get-config-enabled", Action::Single(Single::Enabled), "whether there are levels"),
            ("get-config-current-level", Action::Single(Single::Current), "the current level"),
            (
                "set-config-level",
                Action::SetLevel,
                "change the level: -l LEVEL; -o brings its CPUs online and takes the others offline",
            ),
        ],
    },
    Feature {
        name: "base-freq",
        purpose: "SST-BF: a higher base frequency on some cores for a lower one on the rest",
        commands: &[
            ("info", Action::BaseInfo, "what base-freq offers at a level: -l LEVEL"),
            (
                "enable",
                Action::BaseSet(true),
                "switch it on; -a also sets classes of service and cpufreq's lower limits",
            ),
            (
                "disable",
                Action::BaseSet(false),
                "switch it off; -a also undoes classes of service and lower limits",
            ),
        ],
    },
    Feature {
        name: "turbo-freq",
        purpose: "SST-TF: higher turbo limits on chosen cores for lower ones on the rest",
        commands: &[
            (
                "info",
                Action::TurboInfo,
                "what turbo-freq offers at a level: -l LEVEL [-b BUCKET] [-r sse|avx2|avx512]",
            ),
            (
                "enable",
                Action::TurboSet(true),
                "switch it on; -a prefers the CPUs of --cpu; -t 0xTRL sets turbo limits",
            ),
            (
                "disable",
                Action::TurboSet(false),
                "switch it off; -a also switches classes of service off; -t 0xTRL sets turbo limits",
            ),
        ],
    },
    Feature {
        name: "core-power",
        purpose: "SST-CP: four classes of service that share power, and the class of each core",
        commands: &[
            (
                "info",
                Action::PowerInfo,
                "whether classes of service are supported and on, and how they share power",
            ),
            (
                "enable",
                Action::PowerSet(true),
                "switch classes of service on; -p|--priority 0 proportional, 1 ordered",
            ),
            ("disable", Action::PowerSet(false), "switch classes of service off"),
            (
                "config",
                Action::Config,
                "define a class: -c|--clos CLASS [-e|--epp EPP] [-w|--weight WEIGHT] [-n|--min MHZ] [-m|--max MHZ]",
            ),
            ("get-config", Action::ShowConfig, "show a class: -c|--clos CLASS"),
            ("assoc", Action::Assoc, "put the CPUs of --cpu into a class: -c|--clos CLASS"),
            ("get-assoc", Action::ShowAssoc, "the classes of the CPUs of --cpu"),
        ],
    },
    Feature {
        name: "turbo-mode",
        purpose: "turbo through cpufreq's limits, and turbo ratio limits",
        commands: &[
            ("enable", Action::Mode(true), "lift cpufreq's upper limits from the base frequency"),
            ("disable", Action::Mode(false), "set cpufreq's upper limits to the base frequency"),
            ("get-trl", Action::Limits(false), "the turbo ratio limits"),
            ("set-trl", Action::Limits(true), "set the turbo ratio limits: -t 0xTRL"),
        ],
    },
];

impl Action {
    /// Returns whether only root may run the action. `set-trl` asks later, domain by domain.
    fn writes(self) -> bool {
        matches!(
            self,
            Action::SetLevel
                | Action::BaseSet(_)
                | Action::TurboSet(_)
                | Action::PowerSet(_)
                | Action::Config
                | Action::Assoc
                | Action::Mode(_)
        )
    }

    /// Returns whether Cascade Lake N parts have the action.
    fn is_of_bios(self) -> bool {
        matches!(self, Action::Info | Action::BaseInfo | Action::BaseSet(_))
    }
}

/// Runs the feature's command.
pub(super) fn run(session: &mut Session<'_>, args: &[String], getopt: &mut Getopt<'_>) -> Result<(), Ended> {
    let (Some(feature), Some(word)) = (args.get(getopt.index), args.get(getopt.index + 1)) else {
        return Ok(());
    };
    // Help for a feature is asked for in the place of its command.
    if matches!(word.as_str(), "-h" | "--help") && help::feature(session, feature) {
        return Ok(());
    }
    let bios = session.is_bios_set();
    let found = FEATURES.iter().filter(|known| known.name == feature).flat_map(|known| known.commands);
    // clx_n_cmds of isst-config.c is a shorter list.
    let mut found = found.filter(|(name, action, _)| name == word && (!bios || action.is_of_bios()));
    let Some(&(_, action, purpose)) = found.next() else {
        session.warn("Invalid command\n");
        session.failed = true;
        // process_command() prints the message and returns, so the exit code is 0.
        return if session.strict { Err(Ended(2)) } else { Ok(()) };
    };
    // Past the feature and the command, whose own options follow.
    getopt.index += 2;
    let options = options::read(session, args, getopt)?;
    if action.writes() {
        session.check_privilege()?;
    }
    // After the check for root, as in the original: an ordinary user gets no help about commands
    // that write.
    if options.help {
        session.warn(&format!("{feature} {word}: {purpose}\n"));
        return Ok(());
    }
    match action {
        Action::Single(what) => profile::single(session, what),
        Action::SetLevel => profile::set_level(session, &options),
        Action::Info => profile::info(session, &options),
        Action::BaseInfo => features::base_info(session, &options),
        Action::BaseSet(on) => features::set_base(session, &options, on),
        Action::TurboInfo => features::turbo_info(session, &options),
        Action::TurboSet(on) => features::set_turbo(session, &options, on),
        Action::PowerInfo => power::info(session),
        Action::PowerSet(on) => power::enable(session, &options, on),
        Action::Config => power::config(session, &options),
        Action::ShowConfig => power::show_config(session, &options),
        Action::Assoc => power::assoc(session, &options),
        Action::ShowAssoc => power::show_assoc(session),
        Action::Mode(on) => turbo::set_mode(session, on),
        Action::Limits(set) => turbo::limits(session, &options, set),
    }
}
