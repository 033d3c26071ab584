//! The words after the options: feature, command, and the command's own options.

use super::{
    Ended, features,
    getopt::{Found, Getopt, Long},
    help, power,
    profile::{self, Single},
    session::Session,
    turbo,
};

/// A command's own options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// `--level`.
    pub level: Option<u32>,
    /// `--bucket`.
    pub bucket: Option<u32>,
    /// `--trl-type`, as a mask of instruction classes.
    pub kinds: Option<u32>,
    /// `--trl`; 0 where it was not given.
    pub turbo_limits: u64,
    /// `--online`.
    pub online: bool,
    /// `--auto`.
    pub auto: bool,
    /// `--clos`.
    pub clos: Option<u32>,
    /// `--epp`.
    pub epp: Option<u32>,
    /// `--weight`.
    pub weight: Option<u32>,
    /// `--min` in MHz.
    pub min: Option<u32>,
    /// `--max` in MHz.
    pub max: Option<u32>,
    /// `--desired` in MHz.
    pub desired: Option<u32>,
    /// `--priority`.
    pub priority: u32,
    /// `--help`.
    pub help: bool,
}

/// Most CPUs that one command line may name.
const MOST_TARGETS: usize = 512;

/// The number that a text starts with, as strtol(3) reads it.
pub(super) fn leading_number(text: &str) -> i64 {
    let text = text.trim_start();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let value = digits[..end].parse::<i64>().unwrap_or(if end == 0 { 0 } else { i64::MAX });
    if text.starts_with('-') { -value } else { value }
}

/// A number at the start of `text`, as strtoul(3) reads it into 32 bits, and what follows it.
fn number(text: &str) -> (u64, &str) {
    let start = text.trim_start_matches([' ', '\t', '\n', '\r', '\u{b}', '\u{c}']);
    let digits = start.strip_prefix(['-', '+']).unwrap_or(start);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    if end == 0 {
        return (0, text);
    }
    (digits[..end].parse().unwrap_or(u64::MAX).min(u64::from(u32::MAX)), &digits[end..])
}

/// Reads `--cpu`: `1,2,4..6,8-10`.
pub(super) fn add_targets(session: &mut Session<'_>, text: &str) -> Result<(), Ended> {
    match targets(text) {
        Some(cpus) => {
            // Numbers are counted, not CPUs: the tool keeps a row of them.
            if cpus.len() > MOST_TARGETS {
                session.display.start();
                session.error(&format!("Too many CPUs in one request: max is {}", MOST_TARGETS - 1));
                session.display.finish();
                return Err(Ended(255));
            }
            if !cpus.is_empty() {
                session.targets.get_or_insert_default().extend(cpus);
            }
            Ok(())
        }
        None => {
            session.warn(&format!("\"--cpu {text}\" malformed\n"));
            session.failed = true;
            Err(Ended(255))
        }
    }
}

/// The numbers of a list, or `None` for a malformed one. No more than are needed to see that they are too many.
fn targets(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if rest.starts_with('-') {
            return None;
        }
        let (first, after) = number(rest);
        cpus.push(first as u32);
        if after.is_empty() {
            break;
        }
        if let Some(next) = after.strip_prefix(',') {
            rest = next;
            continue;
        }
        let after = match after.strip_prefix("..") {
            Some(after) => after,
            None if after.starts_with('.') => return None,
            None => after.strip_prefix('-').unwrap_or(after),
        };
        let (last, after) = number(after);
        if last <= first {
            return None;
        }
        cpus.extend((first + 1..=last).take(MOST_TARGETS + 1).map(|cpu| cpu as u32));
        rest = match after.strip_prefix(',') {
            Some(next) => next,
            None if after.is_empty() => after,
            None => return None,
        };
    }
    Some(cpus)
}

const LONG: &[Long] = &[
    Long { name: "bucket", takes_value: true, letter: 'b' },
    Long { name: "level", takes_value: true, letter: 'l' },
    // Declared with a value, which nothing reads.
    Long { name: "online", takes_value: true, letter: 'o' },
    Long { name: "trl-type", takes_value: true, letter: 'r' },
    Long { name: "trl", takes_value: true, letter: 't' },
    Long { name: "help", takes_value: false, letter: 'h' },
    Long { name: "clos", takes_value: true, letter: 'c' },
    Long { name: "desired", takes_value: true, letter: 'd' },
    Long { name: "epp", takes_value: true, letter: 'e' },
    Long { name: "min", takes_value: true, letter: 'n' },
    Long { name: "max", takes_value: true, letter: 'm' },
    Long { name: "priority", takes_value: true, letter: 'p' },
    Long { name: "weight", takes_value: true, letter: 'w' },
    Long { name: "auto", takes_value: false, letter: 'a' },
];
const SHORT: &str = "b:l:t:c:d:e:n:m:p:w:r:hoa";

fn malformed(session: &mut Session<'_>, name: &str, text: &str) -> Ended {
    session.warn(&format!("malformed arguments for:{name} [{text}]\n"));
    session.failed = true;
    Ended(0)
}

fn decimal(session: &mut Session<'_>, name: &str, text: &str) -> Result<u32, Ended> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(malformed(session, name, text));
    }
    Ok(if text.is_empty() { 0 } else { text.parse().unwrap_or(u32::MAX) })
}

fn hexadecimal(session: &mut Session<'_>, name: &str, text: &str) -> Result<u64, Ended> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match digits {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            // The tool reads a number after a small x alone.
            Ok(if text.starts_with("0x") { u64::from_str_radix(digits, 16).unwrap_or(u64::MAX) } else { 0 })
        }
        _ => Err(malformed(session, name, text)),
    }
}

fn read(session: &mut Session<'_>, args: &[String], getopt: &mut Getopt<'_>) -> Result<Options, Ended> {
    let mut options = Options::default();
    loop {
        let (letter, text) = match getopt.next(SHORT, LONG, false) {
            Found::End => break,
            Found::Option(letter, value) => (letter, value.unwrap_or_default()),
            Found::Wrong(message) => {
                session.warn(&format!("{}: {message}\n", args[0]));
                session.note("Unknown option: ignore\n");
                session.failed = true;
                continue;
            }
        };
        let skylake = session.model.is_skylake_based();
        // 255 is the tool's "not given".
        let known = |value: u32| (value != 255).then_some(value);
        match letter {
            'a' => options.auto = true,
            'h' => options.help = true,
            'o' => options.online = true,
            'b' => options.bucket = known(decimal(session, "bucket", &text)?),
            'l' => options.level = known(decimal(session, "level", &text)?),
            't' => options.turbo_limits = hexadecimal(session, "trl", &text)?,
            'r' => {
                let kinds = [("sse", 1), ("avx2", 2), ("avx512", 4)];
                let Some(kind) = kinds.iter().find(|(name, _)| text.starts_with(name)) else {
                    session.line("Invalid sse,avx options\n");
                    return Err(Ended(1));
                };
                options.kinds = Some(kind.1);
            }
            'c' => options.clos = Some(decimal(session, "clos", &text)?),
            'd' => options.desired = Some(decimal(session, "desired", &text)?),
            'n' => options.min = Some(decimal(session, "min", &text)?),
            'm' => options.max = Some(decimal(session, "max", &text)?),
            'e' => {
                options.epp = Some(decimal(session, "epp", &text)?);
                if skylake {
                    session.error("epp can't be specified on this platform");
                    return Err(Ended(0));
                }
            }
            'p' => {
                options.priority = decimal(session, "priority", &text)?;
                if skylake && options.priority == 0 {
                    session.error("Invalid clos priority type: proportional for this platform");
                    return Err(Ended(0));
                }
            }
            _ => {
                options.weight = Some(decimal(session, "weight", &text)?);
                if skylake {
                    session.error("weight can't be specified on this platform");
                    return Err(Ended(0));
                }
            }
        }
    }
    if getopt.index < args.len() {
        session.note("Garbage at the end of command: ignore\n");
    }
    Ok(options)
}

/// What a feature's command word means.
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
    /// Whether only root may do it. `set-trl` asks later, domain by domain.
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

    /// Whether Cascade Lake N parts have it.
    fn is_of_bios(self) -> bool {
        matches!(self, Action::Info | Action::BaseInfo | Action::BaseSet(_))
    }
}

/// Runs the feature's command.
pub(super) fn run(session: &mut Session<'_>, args: &[String], getopt: &mut Getopt<'_>) -> Result<(), Ended> {
    let (Some(feature), Some(word)) = (args.get(getopt.index), args.get(getopt.index + 1)) else {
        return Ok(());
    };
    if matches!(word.as_str(), "-h" | "--help") && help::feature(session, feature) {
        return Ok(());
    }
    let bios = session.is_bios_set();
    let found = ACTIONS
        .iter()
        .find(|(of, name, action)| of == feature && name == word && (!bios || action.is_of_bios()));
    let Some(&(_, _, action)) = found else {
        session.warn("Invalid command\n");
        session.failed = true;
        return if session.strict { Err(Ended(2)) } else { Ok(()) };
    };
    getopt.index += 2;
    let options = read(session, args, getopt)?;
    if action.writes() {
        session.check_privilege()?;
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_read_as_the_tool_reads_them() {
        assert_eq!(targets("1,2,4..6,8-10"), Some(vec![1, 2, 4, 5, 6, 8, 9, 10]));
        assert_eq!(targets("5,"), Some(vec![5]));
        for bad in ["0-x", "3-1", "-1", "1.2", "a", "1-2x", "4-4"] {
            assert_eq!(targets(bad), None, "{bad}");
        }
        assert!(targets("0-4294967295").is_some_and(|cpus| cpus.len() > MOST_TARGETS));
    }

    proptest! {
        #[test]
        fn no_list_panics_or_hangs(text in "[0-9,.x -]{0,24}") {
            let _ = targets(&text);
            let _ = leading_number(&text);
        }
    }
}
