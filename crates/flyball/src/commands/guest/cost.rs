//! `flyball guest cost`: what a guest costs on this host: time until a command runs, speed, memory,
//! in both kinds of time.

use std::{
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use flyball_guest::{
    cache::Cache,
    error::GuestError,
    fixed_loop,
    guest::{self, Request},
    initramfs::JobFile,
    run::{End, OutputSinks},
};
use flyball_host::{Host as _, Live};
use serde::Serialize;

use crate::{
    exit::{Exit, Failure},
    machine::GUEST_KERNEL,
    output::Reporter,
    schema, terminal,
};

/// Arguments of `guest cost`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The machine: a name from `flyball guest list`, or a machine's TOML file.
    // Not `machine`, which is the id of the global option -M.
    #[arg(id = "guest", value_name = "MACHINE", default_value = "ryzen-5750g")]
    machine: String,

    /// Number of CPUs.
    #[arg(long, default_value_t = 2, value_name = "N")]
    cpus: u32,

    /// Boots of each kind; the medians are printed.
    #[arg(long, default_value_t = 3, value_name = "N")]
    rounds: u32,
}

/// Turns of the loop that keeps a CPU busy, ten instructions each, and guest seconds of sleep.
const TURNS: u32 = 30_000_000;
const SLEEP: u32 = 5;

/// The medians of one kind of time.
#[derive(Debug, Serialize)]
struct Row {
    time: &'static str,
    /// Host seconds from the start to the kernel's init and to the command.
    init_s: f64,
    command_s: f64,
    /// Guest seconds that pass in a host second while all CPUs are busy, and while all sleep.
    busy: f64,
    idle: f64,
    /// Millions of the guest's instructions executed in a host second while all CPUs are busy.
    mips: f64,
    /// The most memory that the emulator held, MB of 2^20 bytes.
    memory_mb: f64,
}

#[derive(Debug, Serialize)]
struct Table {
    machine: String,
    kernel: String,
    cpus: u32,
    rounds: u32,
    /// The host's load average of the last minute, before and after.
    load: [f64; 2],
    rows: Vec<Row>,
}

/// Bytes with the host's time at which they came.
type StampedBytes = (Instant, Vec<u8>);

/// What was written, with the host's time.
#[derive(Clone, Default)]
struct Stamped(Arc<Mutex<Vec<StampedBytes>>>);

impl Write for Stamped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The clock is read when bytes arrive, and lines are made of them later: parsing would
        // delay the next ones.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), bytes.to_vec()));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stamped {
    /// `(host, guest)` seconds of each line, whose text is the guest's uptime.
    fn marks(&self) -> Vec<(Instant, f64)> {
        let pieces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut line = String::new();
        let mut marks = Vec::new();
        for (at, bytes) in pieces.iter() {
            line.push_str(&String::from_utf8_lossy(bytes));
            while let Some((first, rest)) = line.split_once('\n') {
                marks.extend(first.trim().parse().ok().map(|guest| (*at, guest)));
                line = rest.to_owned();
            }
        }
        marks
    }
}

fn boot(cache: &Cache, request: &Request) -> Result<[f64; 6], Failure> {
    let said = Stamped::default();
    let sinks =
        OutputSinks { out: Box::new(said.clone()), err: Box::new(terminal::foreign_stderr()), console: None };
    let end: End = guest::run(cache, request, sinks).map_err(super::before)?;
    let marks = said.marks();
    // Three marks: before the busy loop, after it, and after the sleep.
    let ([Some(init), Some(command), _], [a, b, c]) = (end.host, marks.as_slice()) else {
        super::finish(&end, false);
        return Err(Failure::new(Exit::Command(125), "the guest did not come to the end"));
    };
    let passed =
        // Not 0: two marks may arrive in one piece.
        |from: &(Instant, f64), to: &(Instant, f64)| ((to.0 - from.0).as_secs_f64().max(1e-9), to.1 - from.1);
    let (busy_host, busy_guest) = passed(a, b);
    let (idle_host, idle_guest) = passed(b, c);
    let instructions = f64::from(TURNS) * 10.0 * f64::from(request.cpus);
    Ok([
        init.as_secs_f64(),
        command.as_secs_f64(),
        busy_guest / busy_host,
        idle_guest / idle_host,
        instructions / busy_host * 1e-6,
        end.memory.unwrap_or(0) as f64 / f64::from(1 << 20),
    ])
}

fn load() -> f64 {
    // Printed with the results: on a busy host they are worth little.
    let text = Live::new().read("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// Measures and prints the results.
pub fn run(kernel: Option<&str>, output: &Reporter, args: &Args) -> Result<Exit, Failure> {
    let cache = Cache::of_user()?;
    let kernel = kernel.unwrap_or(GUEST_KERNEL).to_owned();
    let dir = tempfile::tempdir().map_err(Failure::failed)?;
    let program = dir.path().join("loop");
    std::fs::write(&program, fixed_loop::program(TURNS))
        .and_then(|()| std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)))
        .map_err(|e| GuestError::file("write", &program, e))?;
    let now = "cut -d' ' -f1 /proc/uptime";
    let line = format!(
        "{now}; for c in $(seq 0 {}); do taskset $(printf %x $((1 << c))) ./loop & done; wait; {now}; sleep {SLEEP}; {now}",
        args.cpus.saturating_sub(1)
    );
    let mut request = Request::new(&args.machine, &kernel, &[&line]);
    request.cpus = args.cpus.max(1);
    request.files = vec![JobFile { source: program, name: "loop".into() }];
    let before = load();
    let mut rows = Vec::new();
    for (time, closed) in [("open", false), ("closed", true)] {
        request.closed = closed;
        let mut rounds = Vec::new();
        for round in 0..args.rounds.max(1) {
            eprintln!("flyball: {time} loop, boot {} of {}", round + 1, args.rounds.max(1));
            rounds.push(boot(&cache, &request)?);
        }
        let median = |which: usize| {
            let mut values: Vec<f64> = rounds.iter().map(|values| values[which]).collect();
            values.sort_by(f64::total_cmp);
            // The upper one of two in the middle; the figures differ by more than that from host to
            // host.
            values[values.len() / 2]
        };
        rows.push(Row {
            time,
            init_s: median(0),
            command_s: median(1),
            busy: median(2),
            idle: median(3),
            mips: median(4),
            memory_mb: median(5),
        });
    }
    let table = Table {
        machine: args.machine.clone(),
        kernel,
        cpus: request.cpus,
        rounds: args.rounds.max(1),
        load: [before, load()],
        rows,
    };
    output.object(schema::GUEST_COST, || &table, || render(&table))?;
    Ok(Exit::Done)
}

fn render(table: &Table) -> String {
    let mut out = format!(
        "{}, {} CPUs, kernel {}: medians of {} boots; load of this host {:.1} to {:.1}\n",
        table.machine, table.cpus, table.kernel, table.rounds, table.load[0], table.load[1]
    );
    out += " time    start to init  start to command  guest s a host s: busy    idle  instructions a host s  memory\n";
    for row in &table.rows {
        out += &format!(
            " {:<7} {:>11.2} s  {:>14.2} s  {:>22.2}  {:>6.1}  {:>17.0} M  {:>4.0} MB\n",
            row.time, row.init_s, row.command_s, row.busy, row.idle, row.mips, row.memory_mb
        );
    }
    out
}
