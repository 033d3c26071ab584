//! Checks the invariants of the page that are visible in the sources.

use std::fs;

use super::sources::{Source, crates, root, sources};

/// Crates that open real or simulated machines. No other crate opens a kernel path or makes a
/// system call.
const MACHINES: [&str; 4] = ["flyball-host", "flyball-process", "flyball-sim", "flyball-silicon"];
/// Crates that may contain `unsafe`.
const UNSAFE: [&str; 3] = ["flyball-host", "flyball-process", "flyball-sim"];

/// Mutable values of the process, with the reasons why they do not belong to a machine.
const STATICS: &[(&str, &str)] = &[
    ("crates/flyball-process/src/process.rs::NAME", "this process's own name"),
    ("crates/flyball-host/src/child/start.rs::HANDLED", "signals that this process handles, asked for once"),
    ("crates/flyball-host/src/child/start.rs::NULL", "/dev/null, opened once"),
    ("crates/flyball-process/src/process.rs::IS_TAKEN", "whether this process has taken over its sockets"),
    ("crates/flyball-host/src/tracefs/instance.rs::NUMBER", "a counter that keeps names of instances apart"),
    ("crates/flyball-host/src/kept.rs::LIMIT", "how many files this process may open, as read last"),
    ("crates/flyball-process/src/bounds.rs::BOUNDS", "how this process ends where it takes too much"),
    ("crates/flyball-process/src/bounds.rs::REFUSED", "whether this process was refused memory"),
    ("crates/flyball-process/src/confine.rs::COUNT", "the processors, counted before files are out of reach"),
    ("crates/flyball-table/src/parquet.rs::READS", "whether a panic of this thread is a damaged file's"),
    ("crates/flyball-top/src/terminal.rs::FIRST", "whether this process was started with a terminal"),
    ("crates/flyball/src/commands.rs::WORDS", "the words that this process was started with"),
    ("crates/flyball/src/output.rs::STDERR_FAILED", "whether this process could write to its own stderr"),
];

fn fail(wrong: &[String], rule: &str) {
    assert!(wrong.is_empty(), "{rule}:\n{}", wrong.join("\n"));
}

fn at(source: &Source, place: usize, text: &str) -> String {
    format!("{}:{}: {text}", source.path, source.line(place))
}

/// Looks for std functions that open or check files in statements with a kernel path.
#[test]
fn paths_of_the_kernel_are_opened_by_hosts_only() {
    const WAYS: [&str; 7] =
        ["fs::", "File::", "OpenOptions", "Path::new", "PathBuf::from", "read_to_string(", "read_dir("];
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| !MACHINES.contains(&source.krate.as_str())) {
        let code = source.product();
        for folder in ["\"/sys", "\"/proc", "\"/dev"] {
            for (place, _) in code.match_indices(folder) {
                let begin = code[..place].rfind([';', '{', '}']).map_or(0, |begin| begin + 1);
                // A host's own methods are allowed.
                let statement = &code[begin..place];
                // `SysFile::` is not `File::`.
                let opens = |way: &str| {
                    statement
                        .match_indices(way)
                        .any(|(at, _)| !statement[..at].ends_with(char::is_alphanumeric))
                };
                if WAYS.iter().any(|way| opens(way)) {
                    let line = code[place..].lines().next().unwrap_or_default();
                    wrong.push(at(source, place, line));
                }
            }
        }
    }
    fail(&wrong, "paths of the kernel are opened by flyball-host, or served by the simulator");
}

#[test]
fn unsafe_code_is_where_it_is_allowed() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| !UNSAFE.contains(&source.krate.as_str())) {
        let code = source.product();
        for begin in ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "unsafe("] {
            wrong.extend(code.match_indices(begin).map(|(place, _)| at(source, place, begin)));
        }
    }
    fail(&wrong, "unsafe only in flyball-host, flyball-process and flyball-sim");
    for name in crates().iter().filter(|name| !UNSAFE.contains(&name.as_str())) {
        let manifest = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
        let product = manifest.split("[dev-dependencies]").next().unwrap_or_default();
        assert!(!product.contains("\nlibc"), "{name} depends on libc");
    }
}

#[test]
fn comments_fit_100_columns() {
    let mut wrong = Vec::new();
    for source in sources() {
        let long =
            |(_, line): &(usize, &str)| line.trim_start().starts_with("//") && line.chars().count() > 100;
        let lines = source.text.lines().enumerate().filter(long);
        wrong.extend(lines.map(|(number, _)| format!("{}:{}", source.path, number + 1)));
    }
    fail(&wrong, "lines of comments have at most 100 columns");
}

/// A machine's root must be a value. A mutable `static` could be one in disguise.
#[test]
fn no_static_that_changes() {
    const CELLS: [&str; 7] = ["OnceLock", "OnceCell", "LazyLock", "Mutex", "RwLock", "Cell<", "Atomic"];
    let mut wrong = Vec::new();
    let own = ["flyball-sim", "flyball-silicon"];
    for source in sources().iter().filter(|source| !own.contains(&source.krate.as_str())) {
        let code = source.product();
        for (place, _) in code.match_indices("static ") {
            let declared = &code[place + 7..];
            let (name, kind) = declared.split_once(':').unwrap_or((declared, ""));
            let kind = kind.split(['=', ';']).next().unwrap_or_default();
            let named = name
                .trim_start_matches("mut ")
                .chars()
                .all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit());
            let known = STATICS.iter().any(|(place, _)| *place == format!("{}::{name}", source.path));
            if named && CELLS.iter().any(|cell| kind.contains(cell)) && !known {
                wrong.push(at(source, place, &format!("static {name}")));
            }
        }
    }
    fail(&wrong, "a static that changes, which STATICS does not list with a reason");
    for (known, reason) in STATICS {
        let (path, name) = known.split_once("::").unwrap();
        let there = sources()
            .iter()
            .any(|source| source.path == path && source.text.contains(&format!("static {name}:")));
        assert!(there && !reason.is_empty(), "STATICS lists {known}, which is not there");
    }
}

/// Outputs are created, renamed and removed such that no other user's link is followed. Other files
/// are in directories that no other user can write, have no name, or belong to the kernel.
#[test]
fn outputs_are_made_by_flyball_files() {
    const WAYS: [&str; 14] = [
        "File::create(",
        "File::create_new(",
        "fs::write(",
        "create_dir",
        "DirBuilder",
        "create(true)",
        "create_new(true)",
        "fs::rename",
        "fs::remove_",
        "fs::copy",
        "fs::symlink(",
        "hard_link(",
        "chown(",
        "tempfile_in(",
    ];
    const ALLOWED: [(&str, &str); 10] = [
        ("crates/flyball-files/", "this is it"),
        ("crates/flyball-control/src/write/", "the state directory"),
        ("crates/flyball-hold/src/store.rs", "the state directory"),
        ("crates/flyball-monitor/src/readings.rs", "the state directory"),
        ("crates/flyball-host/src/topology/stored.rs", "the state directory"),
        ("crates/flyball-host/src/tracefs/mount.rs", "tracefs"),
        ("crates/flyball-process/src/user.rs", "a file that `open_output` opened"),
        ("crates/flyball-measure/src/workload/command.rs", "names that are new, in the temporary directory"),
        ("crates/flyball-sim/src/serve/namespace.rs", "mounts that only the served programs see"),
        ("crates/flyball-trace/src/live/collect.rs", "files without names"),
    ];
    let mut wrong = Vec::new();
    for source in &sources() {
        if ALLOWED.iter().any(|(path, _)| source.path.starts_with(path)) {
            continue;
        }
        let code = source.product();
        for way in WAYS {
            // `ParquetFile::create(` is not `File::create(`.
            let whole = |place: usize| !code[..place].ends_with(char::is_alphanumeric);
            let found = code.match_indices(way).filter(|(place, _)| whole(*place));
            wrong.extend(found.map(|(place, _)| at(source, place, way)));
        }
    }
    fail(&wrong, "outputs are made by flyball-files (`Replacement`, `open_output`, `make_dirs`)");
}

/// All output goes through `terminal.rs` or `output.rs`, which make control characters visible
/// instead of sending them.
#[test]
fn only_the_terminal_module_writes_to_stdout_and_stderr() {
    const WAYS: [&str; 4] = ["io::stdout()", "io::stderr()", "stdout().lock", "stderr().lock"];
    const ALLOWED: [(&str, &str); 5] = [
        ("crates/flyball/src/commands/hold_bus.rs", "stdin and stdout are its sockets"),
        ("crates/flyball-process/src/terminal.rs", "this is it"),
        ("crates/flyball/src/terminal.rs", "stdout, and whether it is a terminal"),
        (
            "crates/flyball-top/src/terminal.rs",
            "the screen; what is drawn there are cells of plain characters",
        ),
        ("crates/flyball-measure/src/workload/task.rs", "words of a benchmark through a pipe"),
    ];
    let mut wrong = Vec::new();
    for source in &sources() {
        if ALLOWED.iter().any(|(path, _)| source.path.starts_with(path)) {
            continue;
        }
        let code = source.product();
        // In the program itself, these macros are redefined by terminal.rs.
        let own = source.krate == "flyball";
        let ways =
            WAYS.iter().chain(if own { &[][..] } else { &["println!(", "eprint!(", "print!(", "dbg!("][..] });
        for way in ways {
            wrong.extend(code.match_indices(way).map(|(place, _)| at(source, place, way)));
        }
    }
    fail(&wrong, "only crates/flyball-process/src/terminal.rs writes to stdout and stderr");
}
