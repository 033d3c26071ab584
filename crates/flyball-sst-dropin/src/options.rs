//! The options of a command, which follow the feature and command words (`parse_cmd_args` in
//! isst-config.c).

use crate::{
    getopt::{Getopt, LongOption, ParsedWord},
    session::{Ended, Session},
};

/// A command's own options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub level: Option<u32>,
    pub bucket: Option<u32>,
    /// `--trl-type`, as a mask of instruction classes.
    pub kinds: Option<u32>,
    /// `--trl`; 0 if not given.
    pub turbo_limits: u64,
    pub online: bool,
    pub auto: bool,
    pub clos: Option<u32>,
    pub epp: Option<u32>,
    pub weight: Option<u32>,
    /// `--min` in MHz.
    pub min: Option<u32>,
    /// `--max` in MHz.
    pub max: Option<u32>,
    /// `--desired` in MHz.
    pub desired: Option<u32>,
    pub priority: u32,
    pub help: bool,
}

const LONG: &[LongOption] = &[
    LongOption { name: "bucket", takes_value: true, letter: 'b' },
    LongOption { name: "level", takes_value: true, letter: 'l' },
    // The tool declares it with a value and ignores the value.
    LongOption { name: "online", takes_value: true, letter: 'o' },
    LongOption { name: "trl-type", takes_value: true, letter: 'r' },
    LongOption { name: "trl", takes_value: true, letter: 't' },
    LongOption { name: "help", takes_value: false, letter: 'h' },
    LongOption { name: "clos", takes_value: true, letter: 'c' },
    LongOption { name: "desired", takes_value: true, letter: 'd' },
    LongOption { name: "epp", takes_value: true, letter: 'e' },
    LongOption { name: "min", takes_value: true, letter: 'n' },
    LongOption { name: "max", takes_value: true, letter: 'm' },
    LongOption { name: "priority", takes_value: true, letter: 'p' },
    LongOption { name: "weight", takes_value: true, letter: 'w' },
    LongOption { name: "auto", takes_value: false, letter: 'a' },
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
    // check_optarg() checks each digit, so an empty text passes, and atoi() returns 0 for it.
    // atoi() is strtol(3), which saturates at LONG_MAX, truncated to 32 bits.
    Ok(if text.is_empty() { 0 } else { text.parse::<i64>().unwrap_or(i64::MAX) as u32 })
}

fn hexadecimal(session: &mut Session<'_>, name: &str, text: &str) -> Result<u64, Ended> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match digits {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            // The tool parses the number only after a lower-case x; after 0X it is 0.
            Ok(if text.starts_with("0x") { u64::from_str_radix(digits, 16).unwrap_or(u64::MAX) } else { 0 })
        }
        _ => Err(malformed(session, name, text)),
    }
}

/// Parses the options. Like in the tool, some end the run on some processors, in their order on the
/// command line, so the checks cannot wait until all options are parsed.
pub(super) fn read(
    session: &mut Session<'_>,
    args: &[String],
    getopt: &mut Getopt<'_>,
) -> Result<Options, Ended> {
    let mut options = Options::default();
    loop {
        let (letter, text) = match getopt.next(SHORT, LONG, false) {
            ParsedWord::End => break,
            ParsedWord::Option(letter, value) => (letter, value.unwrap_or_default()),
            ParsedWord::Wrong(message) => {
                session.warn(&format!("{}: {message}\n", args[0]));
                session.note("Unknown option: ignore\n");
                session.failed = true;
                continue;
            }
        };
        let skylake = session.model.is_skylake_based();
        // 255 is the tool's value for "not given".
        let known = |value: u32| (value != 255).then_some(value);
        // -1 is "not given" for the classes' options.
        let given = |value: u32| (value != u32::MAX).then_some(value);
        match letter {
            'a' => options.auto = true,
            'h' => options.help = true,
            'o' => options.online = true,
            'b' => options.bucket = known(decimal(session, "bucket", &text)?),
            'l' => options.level = known(decimal(session, "level", &text)?),
            't' => options.turbo_limits = hexadecimal(session, "trl", &text)?,
            'r' => {
                let kinds = [("sse", 1), ("avx2", 2), ("avx512", 4)];
                // strncmp(3) with the name's length: what follows is ignored.
                let Some(kind) = kinds.iter().find(|(name, _)| text.starts_with(name)) else {
                    session.line("Invalid sse,avx options\n");
                    return Err(Ended(1));
                };
                options.kinds = Some(kind.1);
            }
            'c' => options.clos = given(decimal(session, "clos", &text)?),
            'd' => options.desired = Some(decimal(session, "desired", &text)?),
            'n' => options.min = Some(decimal(session, "min", &text)?),
            'm' => options.max = Some(decimal(session, "max", &text)?),
            'e' => {
                options.epp = given(decimal(session, "epp", &text)?);
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
                options.weight = given(decimal(session, "weight", &text)?);
                if skylake {
                    session.error("weight can't be specified on this platform");
                    return Err(Ended(0));
                }
            }
        }
    }
    // Only a note, like in the original: the command runs nevertheless.
    if getopt.index < args.len() {
        session.note("Garbage at the end of command: ignore\n");
    }
    Ok(options)
}
