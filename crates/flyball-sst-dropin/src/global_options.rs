//! The options before the feature word (`main` in isst-config.c parses them with getopt_long_only).

use std::time::Duration;

use crate::{
    daemon,
    getopt::{Getopt, LongOption, ParsedWord},
    help, info, numbers,
    session::{Ended, Results, Session, VERSION},
};

const LONG: &[LongOption] = &[
    LongOption { name: "all-cpus-online", takes_value: false, letter: 'a' },
    LongOption { name: "cpu", takes_value: true, letter: 'c' },
    LongOption { name: "debug", takes_value: false, letter: 'd' },
    LongOption { name: "format", takes_value: true, letter: 'f' },
    LongOption { name: "help", takes_value: false, letter: 'h' },
    LongOption { name: "info", takes_value: false, letter: 'i' },
    LongOption { name: "pause", takes_value: true, letter: 'p' },
    LongOption { name: "out", takes_value: true, letter: 'o' },
    LongOption { name: "retry", takes_value: true, letter: 'r' },
    LongOption { name: "version", takes_value: false, letter: 'v' },
    LongOption { name: "oob", takes_value: false, letter: 'b' },
    LongOption { name: "no-daemon", takes_value: false, letter: 'n' },
    LongOption { name: "poll-interval", takes_value: true, letter: 'w' },
    // The tool declares it with a value and ignores the value.
    LongOption { name: "cgroupv2", takes_value: true, letter: 'g' },
    LongOption { name: "cpu0-workaround", takes_value: true, letter: 'u' },
];
const SHORT: &str = "c:df:hio:vabw:ngu";

/// The options that later steps need; the others take effect on the session at once.
pub(super) struct GlobalOptions {
    /// `--all-cpus-online`.
    pub all_online: bool,
    /// `--oob` and its options.
    pub out_of_band: daemon::Request,
    pub tries: u32,
    pub pause: Duration,
}

/// Returns the files of `--out`; `None` with `--oob`, which starts a daemon.
pub fn outputs(args: &[String]) -> Option<Vec<String>> {
    let mut getopt = Getopt::new(args);
    let mut files = Vec::new();
    while let ParsedWord::Option(letter, value) = getopt.next(SHORT, LONG, true) {
        match letter {
            'o' => files.extend(value),
            'b' => return None,
            _ => {}
        }
    }
    Some(files)
}

/// Parses the options up to the feature word.
///
/// Options take effect in the order in which they are given, like in the tool: `--info` and
/// `--version` end the run at once, with the options before them (`--format json --info` differs
/// from `--info --format json`).
pub(super) fn read(
    session: &mut Session<'_>,
    args: &[String],
    getopt: &mut Getopt<'_>,
) -> Result<GlobalOptions, Ended> {
    let mut options = GlobalOptions {
        all_online: false,
        out_of_band: daemon::Request::default(),
        tries: 3,
        pause: Duration::ZERO,
    };
    loop {
        let (letter, value) = match getopt.next(SHORT, LONG, true) {
            ParsedWord::End => return Ok(options),
            ParsedWord::Option(letter, value) => (letter, value.unwrap_or_default()),
            ParsedWord::Wrong(message) => {
                session.warn(&format!("{}: {message}\n", args[0]));
                return Err(help::usage_error(session));
            }
        };
        match letter {
            'a' => options.all_online = true,
            'c' => numbers::add_targets(session, &value)?,
            'd' => {
                session.debug = true;
                session.note("Debug Mode ON\n");
                session.debug_host.begin();
            }
            // A prefix is enough, and nothing switches back to text: strncmp(optarg, "json", 4).
            'f' => session.display.json |= value.starts_with("json"),
            'h' => {
                help::usage(session);
                return Err(Ended(0));
            }
            'i' => {
                info::show(session)?;
                return Err(Ended(0));
            }
            'o' => send_results_to(session, &value)?,
            'p' => match numbers::leading_number(&value) {
                // strtol(3) returns 0 for text without a number, so both are rejected.
                0 => session.warn("Invalid pause interval, ignore\n"),
                ms => options.pause = Duration::from_millis(u64::from(ms.max(0).unsigned_abs())),
            },
            'r' => match numbers::leading_number(&value) {
                0 => session.warn("Invalid retry count, ignore\n"),
                // Negative: the original counts down from it (_send_mbox_command()) and would retry
                // forever.
                count => options.tries = u32::try_from(count).unwrap_or(1),
            },
            'v' => {
                session.line(&format!("Version {VERSION}\n"));
                return Err(Ended(0));
            }
            'b' => options.out_of_band.requested = true,
            'n' => options.out_of_band.foreground = true,
            'w' => match numbers::leading_number(&value) {
                0 => {
                    session.warn("Invalid poll interval count\n");
                    session.failed = true;
                    return Err(Ended(0));
                }
                seconds => options.out_of_band.interval = u64::try_from(seconds).ok(),
            },
            'g' => session.cgroup = true,
            _ => session.cgroup_cpu0 = true,
        }
    }
}

/// `--out`: writes results to a file.
fn send_results_to(session: &mut Session<'_>, path: &str) -> Result<(), Ended> {
    // Like the tool, but not through another user's link.
    match flyball_files::create(path.as_ref()) {
        Ok(file) => {
            session.results = Results::File(Box::new(file));
            Ok(())
        }
        Err(error) => {
            // The tool has closed stderr by now, so its message is lost.
            session.results = Results::File(Box::new(std::io::sink()));
            Err(session.fatal(1, &format!("{path}: open failed"), Some((&error).into())))
        }
    }
}
