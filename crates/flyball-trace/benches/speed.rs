//! Measures how fast traces are read, compared with other readers: `cargo bench -p flyball-trace`.
//!
//! All figures are CPU time except for the gain by threads, and each is the best of several rounds.
//! `-- --lines N` sets the size of the text (a million lines are 200 MB), `-- --tracer PATH` runs
//! the kernel's amd_pstate_trace.py on the same file, `-- --live` also records on this machine
//! (root; compared with trace-cmd if that is installed), `-- --only
//! command|text|report|pages|live|page|parquet` selects one part. `command` runs the program
//! itself, `-- --flyball PATH` or the one that was built next to this benchmark (`cargo build
//! --release`). `--only page` makes the page for this many lines and CPUs, `--only parquet` (with
//! `--features parquet`) the Parquet file; `--keep DIR` keeps both, and the CSV files.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufWriter, Write},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use flyball_host::{Host, Live};
use flyball_process::{pin_thread, thread_time, usage};
use flyball_trace::{
    AmdPerf, Comm, Decoder, Event, EventFormat, Names, Page, PageHeader, Record, TextOptions, Trace,
    TraceError,
    csv::CsvFiles,
    html::{Head, write_page},
    live::{Capture, CaptureOptions},
    read_text,
    report::Analyser,
    series::SeriesSet,
};

struct Options {
    lines: u64,
    cpus: u32,
    tracer: Option<PathBuf>,
    live: bool,
    only: Option<String>,
    chunk: usize,
    directory: PathBuf,
    keep: Option<PathBuf>,
    flyball: Option<PathBuf>,
}

impl Options {
    fn wants(&self, part: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == part)
    }
}

fn options() -> Options {
    let mut options = Options {
        lines: 2_000_000,
        cpus: 16,
        tracer: None,
        live: false,
        only: None,
        chunk: TextOptions::default().chunk,
        directory: std::env::temp_dir(),
        keep: None,
        flyball: next_to_this(),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_default();
        match word.as_str() {
            "--lines" => options.lines = value().parse().unwrap_or(options.lines),
            "--cpus" => options.cpus = value().parse().unwrap_or(options.cpus),
            "--tracer" => options.tracer = Some(value().into()),
            "--dir" => options.directory = value().into(),
            "--flyball" => options.flyball = Some(value().into()),
            "--keep" => options.keep = Some(value().into()),
            "--live" => options.live = true,
            "--chunk" => options.chunk = value().parse().unwrap_or(options.chunk),
            "--only" => options.only = Some(value()),
            _ => {}
        }
    }
    options
}

/// Returns target/release/flyball if this is target/release/deps/speed-HASH.
fn next_to_this() -> Option<PathBuf> {
    let flyball = std::env::current_exe().ok()?.parent()?.parent()?.join("flyball");
    flyball.is_file().then_some(flyball)
}

/// Pseudo-random numbers, equal in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn event(&mut self, cpu: u32) -> AmdPerf {
        let tsc = 2_000_000 + self.below(90_000_000);
        let mperf = self.below(tsc);
        AmdPerf {
            min: 15,
            des: 15 + self.below(152) as u32,
            max: 166,
            cpu,
            khz: 400_000 + self.below(4_300_000),
            mperf,
            aperf: mperf / 2 + self.below(mperf + 1),
            tsc,
            changed: None,
            fast_switch: self.below(10) < 7,
        }
    }
}

fn write_text(path: &Path, lines: u64, cpus: u32) {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path).expect("a file in the directory"));
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let names = ["<idle>", "bash", "kworker/3:1", "tbench", "a-b 3", "stress-ng-cpu"];
    writeln!(out, "# tracer: nop\n#").expect("room on the disk");
    let mut time = 849_000_000_000u64;
    for _ in 0..lines {
        time += 1_000 * (1 + chance.below(40));
        let cpu = chance.below(u64::from(cpus)) as u32;
        let task = chance.below(names.len() as u64) as usize;
        let record = Record {
            time,
            cpu,
            pid: task as i32 * 311,
            comm: Comm::new(names[task].as_bytes()),
            flags: 1,
            preempt: 2,
            event: Event::AmdPerf(chance.event(cpu)),
        };
        writeln!(out, "{}", record.line(flyball_trace::Clock::Local)).expect("room on the disk");
    }
    out.flush().expect("room on the disk");
}

/// The lowest CPU time of some rounds, of this process or of its children.
fn best(rounds: u32, children: bool, mut work: impl FnMut()) -> f64 {
    let round = |_| {
        let before = usage(children).time;
        work();
        (usage(children).time - before).as_secs_f64()
    };
    (0..rounds).map(round).fold(f64::INFINITY, f64::min)
}

/// Parses the text. Returns the number of records, and the CPU time of the busiest thread.
fn parse(path: &Path, threads: usize, chunk: usize) -> (u64, Duration) {
    let options = TextOptions { threads: NonZeroUsize::new(threads).expect("not 0"), chunk, details: false };
    let mut sum = 0u64;
    let mut used = HashMap::new();
    let file = File::open(path).expect("the file that was written");
    let read = read_text(file, path, &Arc::new(Names::default()), &options, &mut |batch| {
        for record in &batch.records {
            if let Event::AmdPerf(event) = &record.event {
                sum = sum.wrapping_add(event.aperf ^ event.tsc ^ u64::from(event.des));
            }
        }
        used.insert(std::thread::current().id(), thread_time());
        Ok(())
    });
    std::hint::black_box(sum);
    let most = used.into_values().max().unwrap_or_default();
    (read.expect("readable text").records, most)
}

fn line(what: &str, found: String, wanted: &str, met: bool) {
    println!("{what:<44} {found:>26}   wanted {wanted:<18} {}", if met { "met" } else { "NOT MET" });
}

fn text(options: &Options, path: &Path) {
    let bytes = std::fs::metadata(path).expect("the file").len() as f64;
    let ours = best(5, false, || assert_eq!(parse(path, 1, options.chunk).0, options.lines));
    let grep = best(5, true, || {
        // Use a pipe: with output to /dev/null grep stops at the first matching line.
        let found = Command::new("grep").arg("-c").arg("amd_pstate_perf").arg(path).output().expect("grep");
        assert_eq!(String::from_utf8_lossy(&found.stdout).trim(), options.lines.to_string());
    });
    let rate = bytes / ours / 1e9;
    println!("text: {} lines, {:.0} MB, {} CPUs", options.lines, bytes / 1e6, options.cpus);
    line(
        "  parse, CPU time over that of grep -c",
        format!("{ours:.3} / {grep:.3} s = {:.2}", ours / grep),
        "<= 2.2",
        ours / grep <= 2.2,
    );
    line("  parse, bytes a second of CPU time", format!("{rate:.2} GB/s"), ">= 0.9 GB/s", rate >= 0.9);
    let peak = usage(false).peak_kib as f64 / 1024.0;
    line("  largest memory so far", format!("{peak:.1} MiB"), "< 64 MiB", peak < 64.0);
    // Interleave the rounds, so that other load affects both equally.
    let (mut one, mut two, mut busier) = (f64::INFINITY, f64::INFINITY, f64::INFINITY);
    for _ in 0..7 {
        let round = |threads| {
            let start = Instant::now();
            let (_, most) = parse(path, threads, options.chunk);
            (start.elapsed().as_secs_f64(), most.as_secs_f64())
        };
        one = one.min(round(1).0);
        let (wall, most) = round(2);
        (two, busier) = (two.min(wall), busier.min(most));
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default().to_owned();
    line(
        "  two threads over one, wall time",
        format!("{:.2} (load {load})", one / two),
        ">= 1.7",
        one / two >= 1.7,
    );
    // The upper bound of two threads' gain: two that share nothing, each with the whole text.
    let mut apart = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| parse(path, 1, options.chunk));
            }
        });
        apart = apart.min(start.elapsed().as_secs_f64());
    }
    println!("    (two parses of the whole that share nothing gain {:.2})", 2.0 * one / apart);
    let gain = ours / busier;
    line("  one thread over the busier of two, CPU time", format!("{gain:.2}"), ">= 1.7", gain >= 1.7);
}

/// Compares the whole command with `grep -c` of the same file: start, reading, analysis and
/// printing. The rounds are interleaved, so that other load affects all equally.
fn command(options: &Options, path: &Path) {
    let Some(flyball) = &options.flyball else {
        println!("command: left out: build flyball, or name it with --flyball");
        return;
    };
    let once = |program: &Path, arguments: &[&str]| {
        best(1, true, || {
            let output =
                Command::new(program).args(arguments).arg(path).output().expect("a program that runs");
            assert!(output.status.success() && !output.stdout.is_empty(), "{}", program.display());
        })
    };
    let (mut grep, mut plain, mut json) = (f64::INFINITY, f64::INFINITY, f64::INFINITY);
    for _ in 0..9 {
        grep = grep.min(once(Path::new("grep"), &["-c", "amd_pstate_perf"]));
        plain = plain.min(once(flyball, &["trace", "report"]));
        json = json.min(once(flyball, &["--json", "trace", "report"]));
    }
    let size = std::fs::metadata(path).expect("the file").len() as f64 / 1e6;
    println!("command: {} over grep -c, CPU time, {size:.0} MB", flyball.display());
    for (what, time) in [("  trace report", plain), ("  trace report --json", json)] {
        let words = format!("{time:.3} / {grep:.3} s = {:.2}", time / grep);
        line(what, words, "<= 2.0", time / grep <= 2.0);
    }
}

fn report(options: &Options, path: &Path) {
    let folder = options.keep.as_deref().unwrap_or(&options.directory).join("flyball-speed-csv");
    let once = |csv: bool| {
        // Into a new directory, like the tracer.
        let _ = std::fs::remove_dir_all(&folder);
        best(1, false, || {
            let names = Arc::new(Names::default());
            let mut analyser = Analyser::new();
            let mut files = csv.then(|| CsvFiles::create(&folder, true).expect("a directory"));
            let trace = Trace::open(path).expect("the file");
            let mut sink = |records: &[Record]| -> Result<(), TraceError> {
                analyser.add_all(records);
                if let Some(files) = &mut files {
                    records.iter().try_for_each(|record| files.add(record))?;
                }
                Ok(())
            };
            let summary =
                trace.read(&TextOptions::default(), None, &names, &mut sink).expect("readable text");
            std::hint::black_box(analyser.report(summary.clock, &names));
            if let Some(files) = files {
                files.finish().expect("room on the disk");
            }
        })
    };
    // Interleave the rounds, so that other load affects both equally.
    let (mut with, mut without) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..5 {
        without = without.min(once(false));
        with = with.min(once(true));
    }
    let rows = options.lines as f64 / (with - without).max(1e-9) / 1e6;
    println!("report: of the same text");
    println!("  without CSV {without:.3} s, with cpu.csv and cpuNNN.csv {with:.3} s of CPU time");
    line("  CSV rows a second of CPU time", format!("{rows:.2} million"), ">= 3 million", rows >= 3.0);
    let peak = usage(false).peak_kib as f64 / 1024.0;
    line("  largest memory so far", format!("{peak:.1} MiB"), "< 64 MiB", peak < 64.0);
    if let Some(tracer) = &options.tracer {
        let place = options.directory.join("flyball-speed-tracer");
        let _ = std::fs::remove_dir_all(&place);
        // Exclude the cost of its plots: it imports a module for them, so give it one that does
        // nothing.
        let module = place.join("stand-in/Gnuplot");
        std::fs::create_dir_all(&module).expect("a directory");
        std::fs::write(
            module.join("__init__.py"),
            "class Gnuplot:\n    def __init__(self, *a, **k): pass\n    def __call__(self, *a): pass\n",
        )
        .expect("a file in the directory");
        // It imports all names of numpy but uses only one, for a list.
        let numpy = Command::new("python3").args(["-c", "import numpy"]).stderr(Stdio::null()).status();
        if !numpy.is_ok_and(|status| status.success()) {
            std::fs::write(
                place.join("stand-in/numpy.py"),
                "def zeros(shape, dtype=None):\n    return [0] * shape[0]\n",
            )
            .expect("a file in the directory");
        }
        let theirs = best(1, true, || {
            let mut command = Command::new("python3");
            command
                .env("PYTHONPATH", place.join("stand-in"))
                .arg(tracer)
                .arg("-t")
                .arg(path)
                .args(["-n", "speed"])
                .current_dir(&place)
                .stdout(Stdio::null());
            let _ = command.status();
        });
        // It keeps its files two directories down. Without rows it failed early, and its time means
        // nothing.
        let rows = std::fs::read(place.join("results/speed/cpu.csv")).unwrap_or_default();
        let rows = rows.iter().filter(|byte| **byte == b'\n').count();
        println!("  amd_pstate_trace.py, without its plots, made {rows} lines of cpu.csv");
        let wanted = if options.cpus >= 256 { 100.0 } else { 40.0 };
        let words = format!("{theirs:.1} / {with:.3} s = {:.0}", theirs / with);
        line(
            "  amd_pstate_trace.py over report and CSV",
            words,
            &format!(">= {wanted}"),
            theirs / with >= wanted,
        );
    }
    if options.keep.is_none() {
        let _ = std::fs::remove_dir_all(&folder);
    }
}

/// Measures the page with plots: its size, and its cost beyond the report.
fn page(options: &Options, path: &Path) {
    let out = options.keep.as_deref().unwrap_or(&options.directory).join("flyball-speed.html");
    let time = best(1, false, || {
        let names = Arc::new(Names::default());
        let (mut analyser, mut series) = (Analyser::new(), SeriesSet::default());
        let mut sink = |records: &[Record]| -> Result<(), TraceError> {
            for record in records {
                series.add(record);
            }
            analyser.add_all(records);
            Ok(())
        };
        let trace = Trace::open(path).expect("the file");
        let summary = trace.read(&TextOptions::default(), None, &names, &mut sink).expect("readable text");
        let mut file = BufWriter::new(File::create(&out).expect("a file in the directory"));
        write_page(&mut file, &Head::default(), &analyser.report(summary.clock, &names), series)
            .expect("room");
        file.flush().expect("room on the disk");
    });
    let size = std::fs::metadata(&out).expect("the page").len() as f64 / f64::from(1 << 20);
    println!(
        "page: {} samples on {} CPUs: {size:.1} MiB, {time:.2} s of CPU time",
        options.lines, options.cpus
    );
    let peak = usage(false).peak_kib as f64 / 1024.0;
    println!("  largest memory so far {peak:.1} MiB");
    if options.keep.is_none() {
        let _ = std::fs::remove_file(&out);
    }
}

/// Measures the Parquet file: rows per second beyond reading, and bytes per row.
#[cfg(feature = "parquet")]
fn parquet(options: &Options, path: &Path) {
    use flyball_trace::parquet::ParquetFile;
    let out = options.keep.as_deref().unwrap_or(&options.directory).join("flyball-speed.parquet");
    let read = |write: bool| {
        best(3, false, || {
            let mut file = write.then(|| ParquetFile::create(&out).expect("a file in the directory"));
            let mut sink = |records: &[Record]| -> Result<(), TraceError> {
                if let Some(file) = &mut file {
                    records.iter().try_for_each(|record| file.add(record))?;
                }
                Ok(())
            };
            let trace = Trace::open(path).expect("the file");
            trace.read(&TextOptions::default(), None, &Arc::default(), &mut sink).expect("readable text");
            if let Some(file) = file {
                assert_eq!(file.finish().expect("room on the disk"), options.lines);
            }
        })
    };
    let (with, without) = (read(true), read(false));
    let rate = options.lines as f64 / (with - without).max(1e-9) / 1e6;
    let bytes = std::fs::metadata(&out).expect("the file").len() as f64 / options.lines as f64;
    println!("parquet: {} rows of {} CPUs", options.lines, options.cpus);
    line("  rows a second of CPU time", format!("{rate:.2} million"), ">= 4 million", rate >= 4.0);
    line("  bytes a row", format!("{bytes:.1}"), "<= 32", bytes <= 32.0);
    if options.keep.is_none() {
        let _ = std::fs::remove_file(&out);
    }
}

#[cfg(not(feature = "parquet"))]
fn parquet(_: &Options, _: &Path) {
    println!("parquet: left out: build with --features parquet");
}

/// `amd_pstate_perf` of kernels from 6.15 on.
fn format(id: u16) -> EventFormat {
    let fields = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:u8 min_perf;\toffset:8;\tsize:1;\tsigned:0;\n\
        \tfield:u8 target_perf;\toffset:9;\tsize:1;\tsigned:0;\n\
        \tfield:u8 capacity;\toffset:10;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned long long freq;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned long long mperf;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned long long aperf;\toffset:32;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned long long tsc;\toffset:40;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int cpu_id;\toffset:48;\tsize:4;\tsigned:0;\n\
        \tfield:bool fast_switch;\toffset:52;\tsize:1;\tsigned:0;\n";
    let text = format!("name: amd_pstate_perf\nID: {id}\nformat:\n{fields}\nprint fmt: \"\"\n");
    EventFormat::parse("amd_cpu", text.as_bytes()).expect("a whole format")
}

/// The bytes of a record from `common_type` on.
fn payload(id: u16, event: &AmdPerf) -> [u8; 56] {
    let mut bytes = [0; 56];
    bytes[..2].copy_from_slice(&id.to_le_bytes());
    bytes[4..8].copy_from_slice(&4711u32.to_le_bytes());
    bytes[8..11].copy_from_slice(&[event.min as u8, event.des as u8, event.max as u8]);
    for (at, value) in [(16, event.khz), (24, event.mperf), (32, event.aperf), (40, event.tsc)] {
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    bytes[48..52].copy_from_slice(&event.cpu.to_le_bytes());
    bytes[52] = u8::from(event.fast_switch);
    bytes
}

fn pages() {
    const ID: u16 = 2203;
    let mut chance = Chance(7);
    let mut all = Vec::new();
    let mut events = 0u64;
    for page in 0..16_384u64 {
        let start = all.len();
        all.extend_from_slice(&(page * 1_000_000).to_le_bytes());
        all.extend_from_slice(&[0; 8]);
        while all.len() - start + 60 <= 4096 {
            all.extend_from_slice(&(14u32 | (1_000 << 5)).to_le_bytes());
            all.extend_from_slice(&payload(ID, &chance.event(3)));
            events += 1;
        }
        let used = (all.len() - start - 16) as u64;
        all[start + 8..start + 16].copy_from_slice(&used.to_le_bytes());
        all.resize(start + 4096, 0);
    }
    let decoder = Decoder::new(&[format(ID)], &Names::default());
    let time = best(5, false, || {
        let mut sum = 0u64;
        let mut count = 0;
        for page in all.chunks_exact(4096) {
            let page = Page::parse(page, PageHeader::default()).expect("a whole page");
            for entry in page.entries() {
                let entry = entry.expect("a whole record");
                let record = decoder.decode(entry.time, 3, entry.payload).expect("a known event");
                if let Event::AmdPerf(event) = record.event {
                    sum = sum.wrapping_add(event.aperf ^ event.tsc ^ u64::from(event.des) ^ record.time);
                    count += 1;
                }
            }
        }
        assert_eq!(count, events);
        std::hint::black_box(sum);
    });
    let each = time * 1e9 / events as f64;
    println!("pages: {events} records of amd_pstate_perf in 64 MiB");
    line("  walk and decode, a record", format!("{each:.1} ns"), "<= 25 ns", each <= 25.0);
}

/// Writes records of `amd_pstate_perf`'s size into the ring buffer of each CPU, 100,000 per second
/// and CPU, from a thread bound to the CPU. Returns their number and the CPU time.
fn feed(marker: impl Fn() -> File) -> (u64, Duration) {
    const RATE: f64 = 100_000.0;
    let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get) as u32;
    let feeders: Vec<_> = (0..cpus)
        .map(|cpu| {
            let mut marker = marker();
            std::thread::spawn(move || {
                // A container may lack the first CPUs; then the scheduler chooses.
                let _ = pin_thread(cpu);
                let bytes = payload(0, &Chance(3).event(0));
                let start = Instant::now();
                let mut written = 0u64;
                while start.elapsed().as_secs_f64() < SECONDS {
                    let wanted = (start.elapsed().as_secs_f64() * RATE) as u64;
                    while written < wanted {
                        marker.write_all(&bytes[8..]).expect("a record of 48 bytes");
                        written += 1;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                (written, thread_time())
            })
        })
        .collect();
    feeders.into_iter().fold((0, Duration::ZERO), |(count, time), feeder| {
        let (written, used) = feeder.join().expect("a feeder");
        (count + written, time + used)
    })
}

const SECONDS: f64 = 10.0;

fn live(options: &Options) {
    let capture_options = CaptureOptions {
        events: vec!["power/cpu_frequency_limits".into()],
        cpus: None,
        buffer_kib: None,
        clock: None,
        directory: options.directory.clone(),
        writer: "flyball speed".into(),
        machine: None,
        trace_id: 0,
    };
    let before = usage(false).time;
    let capture = match Capture::start(&Live::new(), &capture_options, None) {
        Ok(capture) => capture,
        Err(error) => {
            println!("live: left out: {error}");
            return;
        }
    };
    let (written, fed) = feed(|| capture.raw_marker().expect("the instance's marker"));
    let file = options.directory.join("flyball-speed.dat");
    let summary = capture.stop(&file).expect("a written file");
    let own = usage(false).time - before - fed;
    let each = own.as_nanos() as f64 / summary.received.max(1) as f64;
    println!(
        "live: {written} records fed in {SECONDS} s, {} received, {} lost",
        summary.received, summary.lost
    );
    line("  start, reading and file, a record", format!("{each:.1} ns"), "<= 60 ns", each <= 60.0);
    let adds_up = summary.received + summary.lost == summary.written && summary.written >= written;
    line(
        "  received + lost = written",
        format!("{}", summary.written),
        &format!("{written} or more"),
        adds_up,
    );
    line("  lost", format!("{}", summary.lost), "0", summary.lost == 0);
    let _ = std::fs::remove_file(file);
    match trace_cmd(options) {
        Ok((theirs, count)) => {
            println!("  trace-cmd record, not compressing, received {count}");
            let words = format!("{:.3} / {:.3} s", theirs.as_secs_f64(), own.as_secs_f64());
            let times = theirs.div_duration_f64(own);
            line("  its CPU time over ours", format!("{words} = {times:.1}"), ">= 5", times >= 5.0);
        }
        Err(why) => println!("  trace-cmd record: left out: {why}"),
    }
}

/// A script around trace-cmd for containers, because trace-cmd gives up if it may not write to
/// these files. In its own mount namespace it finds plain files instead, and the machine does not
/// change.
const UNHINDERED: &str = "plain=$1; instance=$2; shift 2
for file in /proc/sys/kernel/ftrace_enabled $instance/set_ftrace_filter $instance/set_ftrace_notrace \
    $instance/set_ftrace_pid; do
  if [ -e $file ]; then mount --bind $plain $file; fi
done
exec \"$@\"";

/// Records in a trace.dat file.
fn records_in(path: &Path) -> u64 {
    let mut count = 0;
    let read = Trace::open(path).and_then(|trace| {
        trace.read(&TextOptions::default(), None, &Arc::new(Names::default()), &mut |records| {
            count += records.len() as u64;
            Ok(())
        })
    });
    if read.is_ok() { count } else { 0 }
}

/// Runs `trace-cmd record` on the same records. Returns its CPU time, including its start and its
/// file, and the number of records. Compression is off, because it would cost more.
fn trace_cmd(options: &Options) -> Result<(Duration, u64), String> {
    let said = |error: std::io::Error| error.to_string();
    let file = options.directory.join("flyball-speed-trace-cmd.dat");
    let plain = options.directory.join("flyball-speed-plain");
    let tracefs = Live::new().tracefs().map_err(|error| error.to_string())?;
    let instance = PathBuf::from(tracefs.root()).join("instances/flyball-speed");
    let gone = || {
        let _ = (std::fs::remove_file(&file), std::fs::remove_file(&plain), std::fs::remove_dir(&instance));
    };
    gone();
    // trace-cmd turns the global buffer off and leaves it off.
    let global = instance.join("../../tracing_on");
    let was_on = std::fs::read(&global).unwrap_or_default();
    std::fs::create_dir(&instance).map_err(said)?;
    // Turn tracing off, to see when trace-cmd has started.
    std::fs::write(instance.join("tracing_on"), "0").map_err(said)?;
    File::create(&plain).map_err(said)?;
    let before = usage(true).time;
    let child = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-ec", UNHINDERED, "sh"])
        .args([&plain, &instance])
        .args(["trace-cmd", "record", "-q", "--compression", "none", "-B", "flyball-speed"])
        .args(["-e", "power:cpu_frequency_limits", "-o"])
        .arg(&file)
        .args(["sleep", &format!("{}", SECONDS + 2.0)])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.inspect_err(|_| gone()).map_err(said)?;
    let recording = || std::fs::read_to_string(instance.join("tracing_on")).is_ok_and(|on| on.trim() == "1");
    let (mut ready, mut fed) = (false, 0);
    while !ready && child.try_wait().map_err(said)?.is_none() {
        std::thread::sleep(Duration::from_millis(20));
        ready = recording();
    }
    std::thread::sleep(Duration::from_millis(300));
    if ready {
        (fed, _) =
            feed(|| File::options().write(true).open(instance.join("trace_marker_raw")).expect("its marker"));
    }
    let output = child.wait_with_output().map_err(said)?;
    let used = usage(true).time - before;
    let received = records_in(&file);
    gone();
    let _ = std::fs::write(&global, &was_on);
    if received * 10 >= fed * 9 && fed > 0 {
        return Ok((used, received));
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "it recorded {received} of {fed} records ({}): {}",
        output.status,
        words.trim().replace('\n', "; ")
    ))
}

fn main() {
    let options = options();
    let path = options.directory.join("flyball-speed.txt");
    if ["command", "text", "report", "page", "parquet"].iter().any(|part| options.wants(part)) {
        write_text(&path, options.lines, options.cpus);
        if options.wants("command") {
            command(&options, &path);
        }
        if options.wants("text") {
            text(&options, &path);
        }
        if options.wants("report") {
            report(&options, &path);
        }
        if options.wants("page") {
            page(&options, &path);
        }
        if options.wants("parquet") {
            parquet(&options, &path);
        }
        let _ = std::fs::remove_file(&path);
    }
    if options.wants("pages") {
        pages();
    }
    if options.live && options.wants("live") {
        live(&options);
    }
}
