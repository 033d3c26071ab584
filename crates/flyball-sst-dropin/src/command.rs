//! Runs the command of a feature's word.

use crate::{
    features,
    getopt::Getopt,
    help, options, power, profile,
    session::{Ended, Session},
    turbo,
    words::{Action, FEATURES},
};

/// Runs the feature's command.
pub(super) fn run(session: &mut Session<'_>, args: &[String], getopt: &mut Getopt<'_>) -> Result<(), Ended> {
    let (Some(feature), Some(word)) = (args.get(getopt.index), args.get(getopt.index + 1)) else {
        return Ok(());
    };
    // Help for a feature takes the position of its command.
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
    // After the check for root, like the original: an ordinary user gets no help about commands
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
