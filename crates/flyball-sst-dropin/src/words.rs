//! The feature and command words: a table of their actions.

use crate::profile::Single;

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
    pub(super) fn writes(self) -> bool {
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
    pub(super) fn is_of_bios(self) -> bool {
        matches!(self, Action::Info | Action::BaseInfo | Action::BaseSet(_))
    }
}
