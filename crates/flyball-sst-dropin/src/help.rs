//! Help: the only output that does not equal the tool's byte by byte.

use crate::{
    session::{Ended, Session},
    words::{FEATURES, Feature},
};

/// Prints the whole usage on stdout.
pub(super) fn usage(session: &mut Session<'_>) {
    let mut text = String::from(
        "\nUsage:\nintel-speed-select [OPTIONS] FEATURE COMMAND [COMMAND OPTIONS]\n\nFeatures (FEATURE -h and FEATURE \
         COMMAND -h show more):\n",
    );
    for Feature { name, purpose, .. } in FEATURES {
        text.push_str(&format!("\t{name}: {purpose}\n"));
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

/// Prints the usage after a wrong command line; the exit code is 2 with `--strict`.
pub(super) fn usage_error(session: &mut Session<'_>) -> Ended {
    usage(session);
    Ended(if session.strict { 2 } else { 0 })
}

/// Prints a feature's help on stdout. Returns false for an unknown feature.
pub(super) fn feature(session: &mut Session<'_>, name: &str) -> bool {
    let Some(Feature { name, purpose, commands }) = FEATURES.iter().find(|known| known.name == name) else {
        return false;
    };
    if session.is_bios_set() && !matches!(*name, "perf-profile" | "base-freq") {
        return false;
    }
    let mut text = format!("{name}:\t{purpose}\n\nCommands:\n");
    for (command, ..) in *commands {
        text.push_str(&format!("\t{command}\n"));
    }
    session.note(&text);
    true
}
