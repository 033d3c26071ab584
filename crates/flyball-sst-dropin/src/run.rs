//! One run of the tool: checks the user and the machine, then handles the options and the command.

use std::{io::Write, time::Duration};

use flyball_host::{CpuInfo, Host, isst, topology::TopologyFile};
use flyball_sst::{
    access::{CpuModel, Mailbox},
    cpus::{self, CpuMap},
};

use crate::{
    command,
    daemon::{self, Daemon},
    debug::DebugHost,
    display::Display,
    getopt::Getopt,
    global_options, help, online,
    session::{Ended, Results, Session, VERSION},
};

/// The environment of a run.
pub struct Environment<'a> {
    pub host: &'a dyn Host,
    /// True if the user is root.
    pub root: bool,
    pub out: &'a mut dyn Write,
    pub err: &'a mut dyn Write,
    /// Services of the process that `--oob` needs.
    pub daemon: &'a mut dyn Daemon,
}

/// Runs a command line, in which `args[0]` is the program's name. Returns the exit code.
pub fn run(args: &[String], environment: Environment<'_>) -> u8 {
    let mut args = args.to_vec();
    if args.is_empty() {
        args.push("intel-speed-select".to_owned());
    }
    // The original would reject the word, so remove it before parsing anything like the original.
    let strict = take_strict(&mut args);
    let Environment { host, root, out, err, daemon } = environment;
    let debug_host = DebugHost::new(host);
    let host: &dyn Host = &debug_host;
    // Without it the family is 0, and the driver decides what is possible.
    let info = CpuInfo::read(host).unwrap_or_default();
    let model = CpuModel::new(&info);
    let mut session = Session {
        host,
        debug_host: &debug_host,
        out: &mut *out,
        err: &mut *err,
        results: if strict { Results::Out } else { Results::Err },
        display: Display::default(),
        program: args[0].clone(),
        // A placeholder until the interface is known: earlier messages are those of the mailbox
        // code.
        access: Box::new(Mailbox::new(host, &model)),
        platform: isst::Platform {
            api_version: 1,
            driver_version: 0,
            max_commands: 0,
            mailbox: false,
            mmio: false,
        },
        model,
        info,
        map: CpuMap::default(),
        targets: None,
        read_only: false,
        strict,
        debug: false,
        cgroup: false,
        cgroup_cpu0: false,
        failed: false,
    };
    let ended = start(&mut session, root).and_then(|()| options_and_command(&mut session, &args, daemon));
    session.flush();
    let code = match ended {
        Ok(()) => 0,
        Err(Ended(code)) => code,
    };
    if strict && code == 0 && session.failed { 1 } else { code }
}

/// Removes `--strict` from the options before the feature word.
fn take_strict(args: &mut Vec<String>) -> bool {
    let options = args.iter().skip(1).take_while(|word| word.starts_with('-')).count();
    let Some(at) = args[..=options].iter().position(|word| word == "--strict") else { return false };
    args.remove(at);
    true
}

/// Checks root, processor and driver and prints the results, before the tool's options are parsed.
fn start(session: &mut Session<'_>, root: bool) -> Result<(), Ended> {
    let platform = isst::Platform::read(session.host);
    // Before the check for root: without the node the original ends with a different message.
    let node_missing = platform.as_ref().is_err_and(|error| error.path == isst::NODE);
    if !root {
        if node_missing {
            session.warn("Must run as root\n");
            session.failed = true;
            // Its main() returns 0 after this message, and scripts have come to depend on it;
            // --strict changes the code.
            return Err(Ended(0));
        }
        // With the driver loaded, commands that only read go on.
        session.warn("\nNot running as root, Only read only operations are supported\n");
        session.read_only = true;
    }
    let CpuModel { family, model, .. } = session.model;
    // The tool adds the extended model only on families 6 and 15.
    let shown = if matches!(family, 6 | 15) { model } else { model & 0xf };
    session.model.model = shown;
    if session.is_bios_set()
        && !["6252N", "6230N", "5218N"].iter().any(|part| session.model.name.contains(part))
    {
        // exit(1) here, where other early errors exit with 0.
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
            // A later interface may have other structures with the same numbers.
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
            // The defaults of --retry and --pause, before the options are parsed.
            session.set_access(3, Duration::ZERO);
            Ok(())
        }
    }
}

/// Parses the options, prepares the list of CPUs, and runs the command or the daemon.
fn options_and_command(
    session: &mut Session<'_>,
    args: &[String],
    daemon: &mut dyn Daemon,
) -> Result<(), Ended> {
    let mut getopt = Getopt::new(args);
    let options = global_options::read(session, args, &mut getopt)?;
    // A feature and a command word are required, unless the run is a daemon.
    if getopt.index + 2 > args.len() && !options.out_of_band.requested {
        return Err(help::usage_error(session));
    }
    session.set_access(options.tries, options.pause);
    match cpus::room(session.host) {
        Some(room) => session.map.room = room,
        None => {
            session.warn("Can't get max cpu number\n");
            session.failed = true;
            return Err(Ended(0));
        }
    }
    if options.all_online {
        online::all_online(session)?;
    }
    // Before reading CPUs: the commands below may take CPUs offline, which removes their topology
    // from sysfs.
    keep_topology(session);
    session.read_cpus();
    if options.out_of_band.requested {
        return daemon::run(session, &options.out_of_band, daemon);
    }
    command::run(session, args, &mut getopt)
}

/// Stores the topology for the time when CPUs are offline and sysfs no longer has it.
fn keep_topology(session: &mut Session<'_>) {
    // Keep an older file, which may be from a time when more CPUs were online.
    let Some(file) = TopologyFile::for_host(session.host).filter(|file| !file.exists()) else { return };
    match file.store(session.host, session.map.room) {
        Ok(()) => session.warn("Caching topology information\n"),
        Err(_) => session.warn(&format!("Can't create file:{}\n", file.0.display())),
    }
}
