//! A day's recording of a machine with 512 CPUs whose process is killed again and again. Checks
//! what is lost, how many bytes a counter takes, and how long a jump within the day takes. By
//! default an hour is tested, and with `FLYBALL_DAY=1` (best with `--release`) the whole day.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use flyball_host::{Kind, Vendor};
use flyball_monitor::{
    Cost, Cpu, Field, Layout, Machine, Package, Quantity, Sample, Scope, Unit,
    file::{Recorder, Recording, Retention, shards},
};

const CPUS: u32 = 512;
const SECOND: u64 = 1_000_000_000;

/// Counters of a CPU that move.
const COUNTERS: [(Quantity, Unit); 10] = [
    (Quantity::Busy, Unit::Ticks),
    (Quantity::Idle, Unit::Ticks),
    (Quantity::IdleTime(1), Unit::Microseconds),
    (Quantity::IdleTime(2), Unit::Microseconds),
    (Quantity::IdleUsage(1), Unit::Count),
    (Quantity::IdleUsage(2), Unit::Count),
    (Quantity::CountersAt, Unit::Nanoseconds),
    (Quantity::Tsc, Unit::Cycles),
    (Quantity::Aperf, Unit::Cycles),
    (Quantity::Mperf, Unit::Cycles),
];

fn layout() -> Layout {
    let cpu = |number| Cpu {
        number,
        package: Some(number / 256),
        die: None,
        core: Some(number / 2),
        core_type: None,
        policy: Some(number),
        highest: None,
        base: None,
        reference: None,
        is_isolated: false,
    };
    let field = |(quantity, unit), scope| Field { quantity, scope, unit, wraps_after: 64 };
    let mut fields: Vec<Field> = COUNTERS.map(|counter| field(counter, Scope::Cpu)).to_vec();
    fields.push(field((Quantity::RequestMax, Unit::KiloHertz), Scope::Cpu));
    fields.push(field((Quantity::PackageEnergy, Unit::MicroJoules), Scope::Package));
    Layout {
        machine: Machine {
            name: "sim:made".into(),
            kind: Kind::Simulated,
            vendor: Vendor::Amd,
            family: None,
            model: None,
            model_name: None,
            kernel: "6.12".into(),
            driver: None,
            throttle_temperature: None,
            idle_states: vec!["POLL".into(), "C1".into(), "C2".into()],
            idle_exits_us: Vec::new(),
            governors: Vec::new(),
        },
        cpus: (0..CPUS).map(cpu).collect(),
        packages: (0..2)
            .map(|number| Package { number, cpus: (number * 256..(number + 1) * 256).collect() })
            .collect(),
        fields,
        missing: Vec::new(),
    }
}

/// A pseudorandom number (splitmix64), always the same for the same input.
fn noise(seed: u64) -> u64 {
    let mut value = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The machine at second `n`: of four CPUs one is busy, one less so, one sleeps and one is used in
/// bursts. Everything follows from `n`, so that another process can continue after a kill.
fn nth(layout: &Layout, n: u64) -> Sample {
    let mut values = Vec::with_capacity(layout.values());
    for field in &layout.fields {
        for index in 0..layout.instances(field.scope) as u64 {
            let seed = (index << 32) | n;
            // Readings are up to 20 us late.
            let late = noise(seed) % 20_000;
            let at = n * SECOND + index * 6_000 + late;
            let share = match index % 4 {
                0 => 970 + noise(index) % 30,
                1 => 20 + noise(index) % 200,
                2 => 0,
                _ => 300 + noise((index << 20) | (n / 20)) % 10,
            };
            // Thousandths of the time until now, plus or minus something for the last second.
            let wobble = noise(seed ^ 0x55) % 1_000_000;
            let busy_ns = |ns: u64| u128::from(ns) * u128::from(share) / 1000;
            let busy = if share == 0 { 0 } else { busy_ns(at) as u64 + wobble };
            values.push(match field.quantity {
                Quantity::Busy => busy / 10_000_000,
                Quantity::Idle => at.saturating_sub(busy) / 10_000_000,
                Quantity::IdleTime(1) => at.saturating_sub(busy) / 5_000,
                Quantity::IdleTime(_) => at.saturating_sub(busy) / 5_000 * 4,
                // A few hundred wakeups per second.
                Quantity::IdleUsage(_) if share == 0 => 7,
                Quantity::IdleUsage(_) => n * (50 + share / 4) + noise(seed ^ 0x77) % 20,
                // A sleeping CPU is not read.
                Quantity::CountersAt | Quantity::Tsc | Quantity::Aperf | Quantity::Mperf if share == 0 => 0,
                Quantity::CountersAt => at,
                Quantity::Tsc => (u128::from(at) * 27 / 10) as u64,
                Quantity::Mperf => (u128::from(busy) * 27 / 10) as u64,
                Quantity::Aperf => (u128::from(busy) * 35 / 10) as u64 + noise(seed ^ 0x99) % 5_000_000,
                Quantity::RequestMax => 3_700_000,
                _ => n * 340_000_000 + noise(seed) % 2_000_000,
            });
        }
    }
    let cost = Cost { cpu: 5_000_000 + noise(n) % 500_000, touched: 384, asked: 0, interrupts: 384 };
    // The wall clock's day begins with the first sample.
    Sample { at: n * SECOND, wall: 20_000 * 86_400 * SECOND + n * SECOND, cost, values }
}

/// Records from one second on, and prints the number of each sample. The test below starts this and
/// kills it.
#[test]
#[ignore = "records until it is killed; another test starts it"]
fn records_until_it_is_killed() {
    let (Some(path), Some(from)) =
        (std::env::var_os("FLYBALL_DAY_FILE"), std::env::var("FLYBALL_DAY_FROM").ok())
    else {
        return;
    };
    let until: u64 = std::env::var("FLYBALL_DAY_UNTIL").unwrap().parse().unwrap();
    let layout = layout();
    let mut recorder = Recorder::open(Path::new(&path), &layout, None, Retention::default()).unwrap();
    let mut out = std::io::stdout();
    for n in from.parse().unwrap()..until {
        recorder.add(nth(&layout, n)).unwrap();
        writeln!(out, "\ntaken {n}").unwrap();
        out.flush().unwrap();
    }
    recorder.finish().unwrap();
}

/// Starts the recorder and kills it after some samples. Returns the last sample that it printed.
fn record(path: &Path, from: u64, until: u64, kill_after: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "records_until_it_is_killed"])
        .env("FLYBALL_DAY_FILE", path)
        .env("FLYBALL_DAY_FROM", from.to_string())
        .env("FLYBALL_DAY_UNTIL", until.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut last = from;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let Some(number) = line.unwrap().strip_prefix("taken ").and_then(|number| number.parse().ok()) else {
            continue;
        };
        last = number;
        if last == from + kill_after {
            // The kill may come during one of the next samples, or while a chunk is written.
            std::thread::sleep(Duration::from_micros(noise(from) % 20_000));
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    last
}

#[test]
fn kill_9_loses_a_chunk_and_a_day_is_searched_at_once() {
    let is_whole = std::env::var_os("FLYBALL_DAY").is_some();
    let (samples, kills) = if is_whole { (86_400, 100) } else { (400, 5) };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("day.fbt");
    let open = || {
        let files = shards(&path).unwrap().into_iter().map(|path| File::open(path).unwrap());
        Recording::open(files.collect()).unwrap()
    };
    let (mut next, mut lost, mut most) = (0, 0, 0);
    for kill in 0..=kills {
        let after =
            if kill == kills { u64::MAX - samples } else { noise(kill) % (2 * samples / (kills + 1)) };
        if next >= samples {
            break;
        }
        let last = record(&path, next, samples, after);
        let mut recording = open();
        let kept = recording.sample(recording.len() - 1).unwrap().unwrap().at / SECOND;
        // Do not count again what an earlier kill has lost.
        let missing = last.saturating_sub(kept.max(next.saturating_sub(1)));
        (lost, most) = (lost + missing, most.max(missing));
        assert!(missing <= 16, "kill {kill}: taken until {last}, kept until {kept}");
        next = last.max(kept) + 1;
    }
    let begun = Instant::now();
    let mut recording = open();
    let opened = begun.elapsed();
    assert_eq!(recording.len() + lost, samples, "each sample is there once, or was lost to a kill");
    let layout = layout();
    let bytes: u64 = shards(&path).unwrap().iter().map(|path| std::fs::metadata(path).unwrap().len()).sum();
    let counters = recording.len() * u64::from(CPUS) * COUNTERS.len() as u64;
    let each = bytes as f64 / counters as f64;
    let mut slowest = Duration::ZERO;
    for jump in 0..200 {
        let wall = nth(&layout, noise(jump) % samples).wall;
        let begun = Instant::now();
        let index = recording.index_at(wall).unwrap();
        let (from, to) = (recording.sample(index.max(1) - 1).unwrap(), recording.sample(index).unwrap());
        slowest = slowest.max(begun.elapsed());
        assert_eq!(to, Some(nth(&layout, to.as_ref().unwrap().at / SECOND)));
        assert!(from.is_some());
    }
    println!(
        "{samples} samples, {kills} kills: {bytes} bytes, {each:.2} per counter; lost {lost}, at most {most} by one kill; \
         opened in {opened:.1?}, the slowest of 200 jumps {slowest:.1?}"
    );
    assert!(each <= 3.0, "{each} bytes per counter");
    // An unoptimized build is several times slower.
    let goal = Duration::from_millis(if cfg!(debug_assertions) { 500 } else { 50 });
    assert!(slowest <= goal, "{slowest:?}");
}
