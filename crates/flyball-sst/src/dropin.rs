//! The drop-in for intel-speed-select v1.26: its command lines, its text and JSON, its streams and exit codes.
//!
//! Results go to stderr and most failures end with 0, as scripts know it; with `--strict` before the feature word
//! results go to stdout, everything else to stderr, and an exit code says what happened. Where the tool does harm
//! or hides a failure, this does not follow it: docs/speed-select.md lists every place.

mod bios;
mod command;
mod daemon;
mod display;
mod features;
mod getopt;
mod help;
mod online;
mod power;
mod profile;
mod session;
mod trace;
mod turbo;

use std::{io::Write, time::Duration};

use flyball_host::{Host, isst};

pub use command::Options;
pub use daemon::Daemon;

use crate::{
    access::{self, CpuModel, Mailbox},
    cpus::{self, CpuMap, TopologyCache},
};
use display::Display;
use getopt::{Found, Getopt, Long};
use session::{Results, Session};

/// The version whose behaviour this is.
pub const VERSION: &str = "v1.26";

/// The run is over, with this exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended(pub u8);

/// What a run has to do with.
pub struct Surroundings<'a> {
    /// The machine.
    pub host: &'a dyn Host,
    /// Whether the user is root.
    pub root: bool,
    /// Where the topology of CPUs that may go offline is kept.
    pub cache: TopologyCache,
    /// stdout.
    pub out: &'a mut dyn Write,
    /// stderr.
    pub err: &'a mut dyn Write,
    /// What `--oob` needs of the process.
    pub daemon: &'a mut dyn Daemon,
}

const LONG: &[Long] = &[
    Long { name: "all-cpus-online", takes_value: false, letter: 'a' },
    Long { name: "cpu", takes_value: true, letter: 'c' },
    Long { name: "debug", takes_value: false, letter: 'd' },
    Long { name: "format", takes_value: true, letter: 'f' },
    Long { name: "help", takes_value: false, letter: 'h' },
    Long { name: "info", takes_value: false, letter: 'i' },
    Long { name: "pause", takes_value: true, letter: 'p' },
    Long { name: "out", takes_value: true, letter: 'o' },
    Long { name: "retry", takes_value: true, letter: 'r' },
    Long { name: "version", takes_value: false, letter: 'v' },
    Long { name: "oob", takes_value: false, letter: 'b' },
    Long { name: "no-daemon", takes_value: false, letter: 'n' },
    Long { name: "poll-interval", takes_value: true, letter: 'w' },
    // Declared with a value, which nothing reads.
    Long { name: "cgroupv2", takes_value: true, letter: 'g' },
    Long { name: "cpu0-workaround", takes_value: true, letter: 'u' },
];
const SHORT: &str = "c:df:hio:vabw:ngu";

/// Runs a command line, `args[0]` being the program's name; the answer is the exit code.
pub fn run(args: &[String], surroundings: Surroundings<'_>) -> u8 {
    let mut args = args.to_vec();
    if args.is_empty() {
        args.push("intel-speed-select".to_owned());
    }
    let strict = take_strict(&mut args);
    let Surroundings { host, root, cache, out, err, daemon } = surroundings;
    let traced = trace::Traced::new(host);
    let host: &dyn Host = &traced;
    let model = CpuModel::read(host);
    let mut session = Session {
        host,
        trace: &traced,
        out: &mut *out,
        err: &mut *err,
        results: if strict { Results::Out } else { Results::Err },
        display: Display::default(),
        program: args[0].clone(),
        access: Box::new(Mailbox::new(host, &model)),
        platform: isst::Platform {
            api_version: 1,
            driver_version: 0,
            max_commands: 0,
            mailbox: false,
            mmio: false,
        },
        model,
        map: CpuMap::default(),
        cache,
        targets: None,
        read_only: false,
        strict,
        debug: false,
        cgroup: false,
        cgroup_cpu0: false,
        failed: false,
    };
    let ended = start(&mut session, root).and_then(|()| whole(&mut session, &args, daemon));
    session.flush();
    let code = match ended {
        Ok(()) => 0,
        Err(Ended(code)) => code,
    };
    if strict && code == 0 && session.failed { 1 } else { code }
}

/// Takes `--strict` out of the options before the feature word.
fn take_strict(args: &mut Vec<String>) -> bool {
    let options = args.iter().skip(1).take_while(|word| word.starts_with('-')).count();
    let Some(at) = args[..=options].iter().position(|word| word == "--strict") else { return false };
    args.remove(at);
    true
}

/// What comes before the options: who runs this, on what.
fn start(session: &mut Session<'_>, root: bool) -> Result<(), Ended> {
    let platform = isst::Platform::read(session.host);
    let node_missing = platform.as_ref().is_err_and(|error| error.path == isst::NODE);
    if !root {
        if node_missing {
            session.warn("Must run as root\n");
            session.failed = true;
            return Err(Ended(0));
        }
        session.warn("\nNot running as root, Only read only operations are supported\n");
        session.read_only = true;
    }
    let CpuModel { family, model, .. } = session.model;
    // The tool adds the extended model on families 6 and 15 alone.
    let shown = if matches!(family, 6 | 15) { model } else { model & 0xf };
    session.model.model = shown;
    if session.is_bios_set()
        && !["6252N", "6230N", "5218N"].iter().any(|part| session.model.name.contains(part))
    {
        session.warn(&format!("Invalid CPU model ({shown})\n"));
        return Err(Ended(1));
    }
    session.note("Intel(R) Speed Select Technology\n");
    session.note(&format!("Executing on CPU model:{shown}[{shown:#x}]\n"));
    if session.is_bios_set() {
        return Ok(());
    }
    match platform {
        Err(error) if node_missing => {
            session.warn("Intel speed select drivers are not loaded on this system.\n");
            session.warn("Verify that kernel config includes CONFIG_INTEL_SPEED_SELECT_INTERFACE.\n");
            session.warn("If the config is included then this is not a supported platform.\n");
            if session.strict {
                let why = isst::explain(session.host, &error);
                session.warn(&format!("{why}\n"));
            }
            session.failed = true;
            Err(Ended(if session.strict { 4 } else { 0 }))
        }
        Err(error) => {
            session.warn(&format!("ISST_IF_GET_PLATFORM_INFO: {}\n", error.errno.describe()));
            session.failed = true;
            Err(Ended(0))
        }
        Ok(platform) if platform.api_version > isst::HIGHEST_API => {
            session.line(&format!("Version {VERSION}\n"));
            session.note("Incompatible API versions; Upgrade of tool is required\n");
            Err(Ended(1))
        }
        Ok(platform) if platform.api_version == 0 => {
            session.warn("Failed to set platform callbacks\n");
            session.failed = true;
            Err(Ended(0))
        }
        Ok(platform) => {
            session.platform = platform;
            session.display.domains = platform.is_tpmi();
            set_access(session, 3, Duration::ZERO);
            Ok(())
        }
    }
}

/// Opens the interface, with the mailbox's patience.
fn set_access(session: &mut Session<'_>, tries: u32, pause: Duration) {
    session.access = if session.platform.is_tpmi() {
        Box::new(access::Tpmi::new(session.host, session.platform.api_version))
    } else {
        let mut mailbox = Mailbox::new(session.host, &session.model);
        mailbox.tries = tries;
        mailbox.pause = pause;
        Box::new(mailbox)
    };
}

/// The options, and what they ask for.
fn whole(session: &mut Session<'_>, args: &[String], daemon: &mut dyn Daemon) -> Result<(), Ended> {
    let mut getopt = Getopt::new(args);
    let mut all_online = false;
    let mut out_of_band = daemon::Request::default();
    let (mut tries, mut pause) = (3, Duration::ZERO);
    loop {
        let (letter, value) = match getopt.next(SHORT, LONG, true) {
            Found::End => break,
            Found::Option(letter, value) => (letter, value.unwrap_or_default()),
            Found::Wrong(message) => {
                session.warn(&format!("{}: {message}\n", args[0]));
                help::usage(session);
                return Err(usage_code(session));
            }
        };
        match letter {
            'a' => all_online = true,
            'c' => command::add_targets(session, &value)?,
            'd' => {
                session.debug = true;
                session.note("Debug Mode ON\n");
                session.trace.begin();
            }
            'f' => session.display.json |= value.starts_with("json"),
            'h' => {
                help::usage(session);
                return Err(Ended(0));
            }
            'i' => return info(session),
            'o' => match std::fs::File::create(&value) {
                Ok(file) => session.results = Results::File(Box::new(file)),
                Err(error) => {
                    // The tool has closed stderr by now, so that nobody is told.
                    session.results = Results::File(Box::new(std::io::sink()));
                    return Err(session.fatal(1, &format!("{value}: open failed"), Some((&error).into())));
                }
            },
            'p' => match command::leading_number(&value) {
                0 => session.warn("Invalid pause interval, ignore\n"),
                ms => pause = Duration::from_millis(ms.max(0).unsigned_abs()),
            },
            'r' => match command::leading_number(&value) {
                0 => session.warn("Invalid retry count, ignore\n"),
                count => tries = u32::try_from(count).unwrap_or(1),
            },
            'v' => {
                session.line(&format!("Version {VERSION}\n"));
                return Err(Ended(0));
            }
            'b' => out_of_band.wanted = true,
            'n' => out_of_band.stay = true,
            'w' => match command::leading_number(&value) {
                0 => {
                    session.warn("Invalid poll interval count\n");
                    session.failed = true;
                    return Err(Ended(0));
                }
                seconds => out_of_band.interval = u64::try_from(seconds).ok(),
            },
            'g' => session.cgroup = true,
            _ => session.cgroup_cpu0 = true,
        }
    }
    if getopt.index + 2 > args.len() && !out_of_band.wanted {
        help::usage(session);
        return Err(usage_code(session));
    }
    set_access(session, tries, pause);
    match cpus::room(session.host) {
        Some(room) => session.map.room = room,
        None => {
            session.warn("Can't get max cpu number\n");
            session.failed = true;
            return Err(Ended(0));
        }
    }
    if all_online {
        online::all_online(session)?;
    }
    keep_topology(session);
    read_cpus(session);
    if out_of_band.wanted {
        return daemon::run(session, &out_of_band, daemon);
    }
    command::run(session, args, &mut getopt)
}

/// The exit code after a wrong command line: 2 with `--strict`.
fn usage_code(session: &Session<'_>) -> Ended {
    Ended(if session.strict { 2 } else { 0 })
}

/// Keeps the topology for the time when CPUs are offline.
fn keep_topology(session: &mut Session<'_>) {
    if session.cache.0.is_none() || session.cache.exists() {
        return;
    }
    match session.cache.store(session.host, session.map.room) {
        Ok(()) => session.warn("Caching topology information\n"),
        Err(_) => {
            let path = session.cache.0.clone().unwrap_or_default();
            session.warn(&format!("Can't create file:{}\n", path.display()));
        }
    }
}

fn read_cpus(session: &mut Session<'_>) {
    session.map = CpuMap::read(session.host, session.platform.is_tpmi(), &session.cache);
    for cpu in session.map.unmapped.clone() {
        session.warn("ISST_IF_GET_PHY_ID: Invalid argument\n");
        session.line(&format!("Error: map logical_cpu:{cpu}\n"));
    }
}

/// `--info`.
fn info(session: &mut Session<'_>) -> Result<(), Ended> {
    if session.is_bios_set() {
        session.warn("\nThis option in not supported on this platform\n");
        return Err(Ended(0));
    }
    read_cpus(session);
    let isst::Platform { api_version, driver_version, mailbox, mmio, .. } = session.platform;
    session.line(&format!("Platform: API version : {api_version}\n"));
    session.line(&format!("Platform: Driver version : {driver_version}\n"));
    session.line(&format!("Platform: mbox supported : {}\n", u8::from(mailbox)));
    session.line(&format!("Platform: mmio supported : {}\n", u8::from(mmio)));
    let targets = session.targets.take();
    let first = session.power_domains()?.into_iter().find(|id| id.cpu >= 0);
    session.targets = targets;
    let mut levels = None;
    let (mut turbo_freq, mut base_freq) = (false, false);
    if let Some(id) = first {
        levels = session.levels(&id)?.ok();
        for level in 0..=levels.map_or(0, |levels| levels.highest) {
            if let Ok(control) = session.control(&id, level)? {
                turbo_freq |= control.features.turbo_freq;
                base_freq |= control.features.base_freq;
            }
        }
    }
    let levels = levels.filter(|levels| levels.enabled || levels.locked || levels.highest > 0);
    if levels.is_some_and(|levels| levels.enabled) {
        session.line("Intel(R) SST-PP (feature perf-profile) is supported\n");
    } else {
        session.line("Intel(R) SST-PP (feature perf-profile) is not supported\n");
        session.line("Only performance level 0 (base level) is present\n");
    }
    if levels.is_some_and(|levels| levels.locked) {
        session.line("TDP level change control is locked\n");
    } else {
        let highest = levels.map_or(0, |levels| levels.highest);
        session.line(&format!("TDP level change control is unlocked, max level: {highest}\n"));
    }
    let not = |has: bool| if has { "" } else { "not " };
    session.line(&format!("Intel(R) SST-TF (feature turbo-freq) is {}supported\n", not(turbo_freq)));
    session.line(&format!("Intel(R) SST-BF (feature base-freq) is {}supported\n", not(base_freq)));
    let power = match first {
        Some(id) => {
            let power = session.at(&id, |access, place| access.pm_config(place));
            session.ask(power)?.ok()
        }
        None => None,
    };
    match power {
        Some(power) => {
            let not = not(power.supported);
            session.line(&format!("Intel(R) SST-CP (feature core-power) is {not}supported\n"));
        }
        None => session.line("Intel(R) SST-CP (feature core-power) status is unknown\n"),
    }
    Err(Ended(0))
}

#[cfg(test)]
mod tests;
