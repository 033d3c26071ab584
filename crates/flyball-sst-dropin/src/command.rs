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
enum Action {
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

const ACTIONS: &[(&str, &str, Action)] = &[
    ("perf-profile", "get-lock-status", Action::Single(Single::Locked)),
    ("perf-profile", "get-config-levels", Action::Single(Single::Levels)),
    ("perf-profile", "get-config-version", Action::Single(Single::Version)),
    ("perf-profile", "get-config-enabled", Action::Single(Single::Enabled)),
    ("perf-profile", "get-config-current-level", Action::Single(Single::Current)),
    ("perf-profile", "set-config-level", Action::SetLevel),
    ("perf-profile", "info", Action::Info),
    ("base-freq", "info", Action::BaseInfo),
    ("base-freq", "enable", Action::BaseSet(true)),
    ("base-freq", "disable", Action::BaseSet(false)),
    ("turbo-freq", "info", Action::TurboInfo),
    ("turbo-freq", "enable", Action::TurboSet(true)),
    ("turbo-freq", "disable", Action::TurboSet(false)),
    ("core-power", "info", Action::PowerInfo),
    ("core-power", "enable", Action::PowerSet(true)),
    ("core-power", "disable", Action::PowerSet(false)),
    ("core-power", "config", Action::Config),
    ("core-power", "get-config", Action::ShowConfig),
    ("core-power", "assoc", Action::Assoc),
    ("core-power", "get-assoc", Action::ShowAssoc),
    ("turbo-mode", "enable", Action::Mode(true)),
    ("turbo-mode", "disable", Action::Mode(false)),
    ("turbo-mode", "get-trl", Action::Limits(false)),
    ("turbo-mode", "set-trl", Action::Limits(true)),
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
    let found = ACTIONS
        .iter()
        // clx_n_cmds of isst-config.c is a shorter list.
        .find(|(of, name, action)| of == feature && name == word && (!bios || action.is_of_bios()));
    let Some(&(_, _, action)) = found else {
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
        help::command(session, feature, word);
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
