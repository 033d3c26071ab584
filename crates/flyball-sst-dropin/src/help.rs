//! Help: the one output that does not equal the tool's to the byte.

use crate::session::{Ended, Session};

/// The commands of a feature, for its help.
const FEATURES: &[(&str, &str, &[&str])] = &[
    (
        "perf-profile",
        "SST-PP: performance levels, each with cores, base frequency, power and temperature",
        &[
            "info",
            "get-lock-status",
            "get-config-levels",
            "get-config-version",
            "get-config-enabled",
            "get-config-current-level",
            "set-config-level",
        ],
    ),
    (
        "base-freq",
        "SST-BF: a higher base frequency on some cores for a lower one on the rest",
        &["info", "enable", "disable"],
    ),
    (
        "turbo-freq",
        "SST-TF: higher turbo limits on chosen cores for lower ones on the rest",
        &["info", "enable", "disable"],
    ),
    (
        "core-power",
        "SST-CP: four classes of service that share power, and the class of each core",
        &["info", "enable", "disable", "config", "get-config", "assoc", "get-assoc"],
    ),
    (
        "turbo-mode",
        "turbo through cpufreq's limits, and turbo ratio limits",
        &["enable", "disable", "get-trl", "set-trl"],
    ),
];

/// Each command's purpose and options.
const COMMANDS: &[(&str, &str)] = &[
    ("perf-profile info", "what a level offers; -l LEVEL, otherwise all levels"),
    ("perf-profile get-lock-status", "whether firmware locks the level"),
    ("perf-profile get-config-levels", "the highest level"),
    ("perf-profile get-config-version", "the feature's version"),
    ("perf-profile get-config-enabled", "whether there are levels"),
    ("perf-profile get-config-current-level", "the current level"),
    (
        "perf-profile set-config-level",
        "change the level: -l LEVEL; -o brings its CPUs online and takes the others offline",
    ),
    ("base-freq info", "what base-freq offers at a level: -l LEVEL"),
    ("base-freq enable", "switch it on; -a also sets classes of service and cpufreq's lower limits"),
    ("base-freq disable", "switch it off; -a also undoes classes of service and lower limits"),
    ("turbo-freq info", "what turbo-freq offers at a level: -l LEVEL [-b BUCKET] [-r sse|avx2|avx512]"),
    ("turbo-freq enable", "switch it on; -a prefers the CPUs of --cpu; -t 0xTRL sets turbo limits"),
    (
        "turbo-freq disable",
        "switch it off; -a also switches classes of service off; -t 0xTRL sets turbo limits",
    ),
    ("core-power info", "whether classes of service are supported and on, and how they share power"),
    ("core-power enable", "switch classes of service on; -p|--priority 0 proportional, 1 ordered"),
    ("core-power disable", "switch classes of service off"),
    (
        "core-power config",
        "define a class: -c|--clos CLASS [-e|--epp EPP] [-w|--weight WEIGHT] [-n|--min MHZ] [-m|--max MHZ]",
    ),
    ("core-power get-config", "show a class: -c|--clos CLASS"),
    ("core-power assoc", "put the CPUs of --cpu into a class: -c|--clos CLASS"),
    ("core-power get-assoc", "the classes of the CPUs of --cpu"),
    ("turbo-mode enable", "lift cpufreq's upper limits from the base frequency"),
    ("turbo-mode disable", "set cpufreq's upper limits to the base frequency"),
    ("turbo-mode get-trl", "the turbo ratio limits"),
    ("turbo-mode set-trl", "set the turbo ratio limits: -t 0xTRL"),
];

/// The whole usage, on stdout.
pub(super) fn usage(session: &mut Session<'_>) {
    let mut text = String::from(
        "\nUsage:\nintel-speed-select [OPTIONS] FEATURE COMMAND [COMMAND OPTIONS]\n\nFeatures (FEATURE -h and FEATURE \
         COMMAND -h show more):\n",
    );
    for (name, what, _) in FEATURES {
        text.push_str(&format!("\t{name}: {what}\n"));
    }
    text.push_str(
        "\nOptions:\n\
         \t-c, --cpu LIST\t\tthese CPUs instead of one run per power domain\n\
         \t-f, --format json|text\thow results are printed\n\
         \t-o, --out FILE\t\tresults into a file instead of stderr\n\
         \t-i, --info\t\twhat platform and drivers can do\n\
         \t-a, --all-cpus-online\tbring every CPU online first\n\
         \t-d, --debug\t\tdebug mode\n\
         \t--pause MS\t\twait before each mailbox command\n\
         \t--retry N\t\ttries of a mailbox command, 3 if not given\n\
         \t-b, --oob\t\tfollow level changes made by a management controller\n\
         \t-n, --no-daemon\t\twith --oob: stay in the foreground\n\
         \t-w, --poll-interval S\twith --oob: look every S seconds\n\
         \t-g\t\t\tisolate CPUs by cgroup v2 instead of taking them offline\n\
         \t-u\t\t\tisolate CPU 0 by cgroup v2\n\
         \t-v, --version\t\tversion\n\
         \t-h, --help\t\tthis\n\
         \t--strict\t\t(flyball's) results on stdout, exit codes that report failures\n\n\
         This is flyball's drop-in; 'flyball sst' does the same with a plan, and can undo it.\n",
    );
    session.note(&text);
}

/// The usage after a wrong command line; the exit code is 2 with `--strict`.
pub(super) fn usage_error(session: &mut Session<'_>) -> Ended {
    usage(session);
    Ended(if session.strict { 2 } else { 0 })
}

/// A feature's help, on stdout; false for an unknown feature.
pub(super) fn feature(session: &mut Session<'_>, name: &str) -> bool {
    let Some((name, what, commands)) = FEATURES.iter().find(|(known, ..)| *known == name) else {
        return false;
    };
    if session.is_bios_set() && !matches!(*name, "perf-profile" | "base-freq") {
        return false;
    }
    let mut text = format!("{name}:\t{what}\n\nCommands:\n");
    for command in *commands {
        text.push_str(&format!("\t{command}\n"));
    }
    session.note(&text);
    true
}

/// A command's help, on stderr.
pub(super) fn command(session: &mut Session<'_>, feature: &str, command: &str) {
    let name = format!("{feature} {command}");
    let what = COMMANDS.iter().find(|(known, _)| *known == name).map_or("", |(_, what)| what);
    session.warn(&format!("{name}: {what}\n"));
}
