//! Runs the targets on mutated seeds, on stable Rust: `drive MINUTES`, shared among all targets.
//!
//! Each target runs in a process of its own, with a limit on its memory, and each input has a limit
//! on its time. Inputs that panic, hang or end the process are kept in `fuzz/crashes`. There is no
//! coverage; an input that leads to an outcome not seen before becomes a seed.

use std::{
    collections::HashSet,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    panic,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use flyball_fuzz::{TARGETS, Target};

/// Memory of a target's process. What flyball states for a recorded machine is less than half of
/// it.
const MEMORY: u64 = 2 << 30;
/// Time of one input, in a build with all checks on a machine that does something else too.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of an input.
const LONGEST: usize = 256 * 1024;
/// Inputs of a new outcome that are kept.
const MAX_SEEDS: usize = 4096;

struct Options {
    seconds: f64,
    only: Vec<String>,
    seed: u64,
    crashes: PathBuf,
    corpus: PathBuf,
}

fn options() -> Result<Options, String> {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut options = Options {
        seconds: 0.0,
        only: Vec::new(),
        seed: std::process::id().into(),
        crashes: fuzz.join("crashes"),
        corpus: fuzz.join("corpus"),
    };
    let mut words = std::env::args().skip(1);
    let number = |text: Option<String>, what: &str| -> Result<f64, String> {
        text.and_then(|text| text.parse().ok()).ok_or(format!("{what} is not a number"))
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            // For each target; the minutes are shared.
            "--seconds" => options.seconds = number(words.next(), "--seconds")?,
            "--seed" => options.seed = number(words.next(), "--seed")? as u64,
            "--crashes" => options.crashes = words.next().unwrap_or_default().into(),
            name if TARGETS.iter().any(|target| target.name == name) => options.only.push(word),
            _ => {
                let minutes = number(Some(word), "MINUTES")?;
                options.seconds = minutes * 60.0 / TARGETS.len() as f64;
            }
        }
    }
    if options.seconds > 0.0 { Ok(options) } else { Err("drive MINUTES | --seconds N [TARGET...]".into()) }
}

fn main() -> ExitCode {
    if let [_, child, name, seconds, seed, crashes, corpus] = &std::env::args().collect::<Vec<_>>()[..]
        && child == "--child"
        && let Some(target) = TARGETS.iter().find(|target| target.name == name.as_str())
    {
        let (seconds, seed) = (seconds.parse().unwrap_or(1.0), seed.parse().unwrap_or(1));
        return run(target, seconds, seed, Path::new(crashes), &Path::new(corpus).join(target.name));
    }
    match options() {
        Ok(options) => drive(&options),
        Err(usage) => {
            eprintln!("{usage}");
            ExitCode::from(2)
        }
    }
}

/// Gives each target its time, again and again in a new process if one ends early.
fn drive(options: &Options) -> ExitCode {
    let own = std::env::current_exe().expect("this program has a name");
    fs::create_dir_all(&options.crashes).expect("a directory for crashes");
    let before = crashes(&options.crashes);
    for target in TARGETS
        .iter()
        .filter(|target| options.only.is_empty() || options.only.iter().any(|name| name == target.name))
    {
        let start = Instant::now();
        let mut seed = options.seed;
        while start.elapsed().as_secs_f64() < options.seconds {
            let left = options.seconds - start.elapsed().as_secs_f64();
            let status = Command::new(&own)
                .args(["--child", target.name, &left.to_string(), &seed.to_string()])
                .args([&options.crashes, &options.corpus])
                .env("TMPDIR", memory())
                .status()
                .expect("this program can be started again");
            seed += 1;
            if !status.success() {
                // A signal, or memory: the input that did it is still in its file.
                let input = current(target, std::process::id());
                let bytes = fs::read(&input).unwrap_or_default();
                keep(
                    &options.crashes,
                    target,
                    if status.code() == Some(3) { "slow" } else { "ended" },
                    &bytes,
                );
            }
        }
        let _ = fs::remove_file(current(target, std::process::id()));
    }
    let mut found: Vec<String> = crashes(&options.crashes).difference(&before).cloned().collect();
    found.sort();
    for name in &found {
        println!("found: {}", options.crashes.join(name).display());
    }
    if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn crashes(folder: &Path) -> HashSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Where files are memory, if there is such a place: each input is written to a file, and some
/// targets unpack directories.
fn memory() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() }
}

/// The input that a target's process works on; `driver` is that process's parent.
fn current(target: &Target, driver: u32) -> PathBuf {
    memory().join(format!("flyball-fuzz-{driver}-{}", target.name))
}

fn keep(crashes: &Path, target: &Target, what: &str, bytes: &[u8]) {
    let mut hash = DefaultHasher::new();
    bytes.hash(&mut hash);
    let _ = fs::write(crashes.join(format!("{}-{what}-{:016x}", target.name, hash.finish())), bytes);
}

/// The input since when it is worked on.
type Work = Arc<Mutex<(Instant, bool)>>;

/// A target's process.
fn run(target: &Target, seconds: f64, seed: u64, crashes: &Path, corpus: &Path) -> ExitCode {
    let limit = rustix::process::Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) };
    rustix::process::setrlimit(rustix::process::Resource::As, limit).expect("a limit on memory");
    let core = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, core);
    let place = Arc::new(Mutex::new(String::new()));
    let hook = place.clone();
    panic::set_hook(Box::new(move |info| {
        let text = info.location().map(|at| format!("{}:{}", at.file(), at.line())).unwrap_or_default();
        *hook.lock().unwrap_or_else(PoisonError::into_inner) = format!("{text}: {info}");
    }));
    let work: Work = Arc::new(Mutex::new((Instant::now(), false)));
    let watched = work.clone();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(250));
            let (since, busy) = *watched.lock().unwrap_or_else(PoisonError::into_inner);
            if busy && since.elapsed() > PATIENCE {
                std::process::exit(3);
            }
        }
    });
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for entry in fs::read_dir(corpus).into_iter().flatten().flatten() {
        seeds.extend(fs::read(entry.path()));
    }
    if seeds.is_empty() {
        println!("{}: no seeds in {}", target.name, corpus.display());
        seeds.push(Vec::new());
    }
    let file = current(target, std::os::unix::process::parent_id());
    let (mut random, mut outcomes, mut places) = (Random(seed | 1), HashSet::new(), HashSet::new());
    let (start, mut inputs, first) = (Instant::now(), 0u64, seeds.len());
    while inputs < first as u64 || start.elapsed().as_secs_f64() < seconds {
        // The seeds as they are, then what becomes of them.
        let input = match seeds.get(inputs as usize) {
            Some(seed) if inputs < first as u64 => seed.clone(),
            _ => mutated(&seeds, &mut random),
        };
        inputs += 1;
        let _ = fs::write(&file, &input);
        *work.lock().unwrap_or_else(PoisonError::into_inner) = (Instant::now(), true);
        let done = panic::catch_unwind(|| (target.run)(&input));
        work.lock().unwrap_or_else(PoisonError::into_inner).1 = false;
        match done {
            Ok(outcome) => {
                if outcomes.insert(outcome) && seeds.len() < MAX_SEEDS {
                    seeds.push(input);
                }
            }
            Err(_) => {
                let place = place.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // One input for each place; a mistake that is met often would fill the disk.
                if places.insert(place.split(": ").next().unwrap_or_default().to_owned()) {
                    println!("{}: {place}", target.name);
                    keep(crashes, target, "panic", &input);
                }
            }
        }
    }
    println!(
        "{:>9}: {inputs} inputs in {:.1} s, {} outcomes, {} panics",
        target.name,
        start.elapsed().as_secs_f64(),
        outcomes.len(),
        places.len()
    );
    ExitCode::SUCCESS
}

/// xorshift64: the same inputs for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Numbers at which parsers go wrong.
const NUMBERS: [u64; 16] = [
    0,
    1,
    7,
    127,
    128,
    255,
    256,
    65_535,
    65_536,
    i32::MAX as u64,
    u32::MAX as u64,
    1 << 32,
    1 << 53,
    i64::MAX as u64,
    u64::MAX - 1,
    u64::MAX,
];
/// Texts at which parsers of text go wrong.
const WORDS: [&str; 18] = [
    "",
    "-1",
    "1e308",
    "-0",
    "NaN",
    "inf",
    "99999999999999999999999",
    "null",
    "{}",
    "[]",
    "\"",
    "\0",
    "..",
    "/",
    "\n",
    ",",
    "=",
    "\u{feff}",
];

fn mutated(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = seeds[random.below(seeds.len())].clone();
    for _ in 0..1 + random.below(5) {
        mutate(&mut input, seeds, random);
    }
    input.truncate(LONGEST);
    input
}

fn mutate(input: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    let length = input.len();
    let at = random.below(length + 1);
    let size = 1 + random.below(32.min(length + 1));
    let end = (at + size).min(length);
    match random.below(12) {
        0 if at < length => input[at] ^= 1 << random.below(8),
        1 if at < length => input[at] = random.next() as u8,
        2 => input.truncate(at),
        3 => drop(input.drain(at..end)),
        4 => {
            let copy = input[at..end].to_vec();
            let to = random.below(length + 1);
            input.splice(to..to, copy);
        }
        // A number of the text is another one.
        5 | 6 => {
            let digit = |byte: &u8| byte.is_ascii_digit();
            let Some(from) = (at..length).find(|at| digit(&input[*at])) else { return };
            let to = (from..length).find(|at| !digit(&input[*at])).unwrap_or(length);
            let number = NUMBERS[random.below(NUMBERS.len())].to_string();
            input.splice(from..to, number.into_bytes());
        }
        7 => {
            let number = NUMBERS[random.below(NUMBERS.len())].to_le_bytes();
            let bytes = &number[..[1, 2, 4, 8][random.below(4)]];
            let end = (at + bytes.len()).min(length);
            input.splice(at..end, bytes.iter().copied());
        }
        8 => {
            let word = WORDS[random.below(WORDS.len())];
            input.splice(at..at.max(end.min(at + random.below(2) * size)), word.bytes());
        }
        // A piece of another seed.
        9 => {
            let other = &seeds[random.below(seeds.len())];
            let from = random.below(other.len() + 1);
            let to = (from + 1 + random.below(256)).min(other.len());
            input.splice(at..at, other[from..to].iter().copied());
        }
        // A line twice, elsewhere, or not at all.
        10 => {
            let start = input[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let stop = input[at..].iter().position(|byte| *byte == b'\n').map_or(length, |end| at + end + 1);
            let line = input[start..stop].to_vec();
            if random.below(2) == 0 {
                input.drain(start..stop);
            }
            let to = random.below(input.len() + 1);
            input.splice(to..to, line);
        }
        // A piece so often that what is bounded must show.
        _ => {
            let copy = input[at..end].to_vec();
            let many = copy.repeat(1 + random.below(2_000));
            input.splice(at..at, many.into_iter().take(LONGEST));
        }
    }
}
