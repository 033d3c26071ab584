use std::{
    fs,
    io::{Cursor, Read, Seek},
};

use proptest::prelude::*;
use tempfile::tempdir;

use super::*;
use crate::{ABSENT, Cpu, Field, Machine, Package, Quantity, Sample, Unit, sample::Cost};

/// A machine with this many CPUs in one package.
pub(crate) fn layout(cpus: u32) -> Layout {
    let cpu = |number| Cpu {
        number,
        package: Some(0),
        die: None,
        core: Some(number / 2),
        core_type: None,
        policy: Some(number),
        highest: None,
        base: None,
        reference: None,
        is_isolated: false,
    };
    let field = |quantity, scope| Field { quantity, scope, unit: Unit::Count, wraps_after: 64 };
    Layout {
        machine: Machine {
            name: "sim:made".into(),
            kind: flyball_host::Kind::Simulated,
            vendor: flyball_host::Vendor::Intel,
            family: None,
            model: None,
            model_name: None,
            kernel: "6.12".into(),
            driver: None,
            throttle_temperature: None,
            idle_states: Vec::new(),
            idle_exits_us: Vec::new(),
            governors: Vec::new(),
        },
        cpus: (0..cpus).map(cpu).collect(),
        packages: vec![Package { number: 0, cpus: (0..cpus).collect() }],
        fields: vec![
            field(Quantity::Busy, Scope::Cpu),
            field(Quantity::Aperf, Scope::Cpu),
            field(Quantity::PackageEnergy, Scope::Package),
        ],
        missing: Vec::new(),
    }
}

fn sample(at: u64, values: Vec<u64>) -> Sample {
    Sample { at, wall: at, cost: Cost { cpu: at % 977, ..Cost::default() }, values }
}

/// The nth sample of a machine with an even load.
pub(crate) fn nth(layout: &Layout, n: u64) -> Sample {
    let second = 1_000_000_000;
    sample(n * second, (0..layout.values() as u64).map(|value| value * 1000 + n * 100).collect())
}

fn written(layout: &Layout, samples: &[Sample]) -> Vec<u8> {
    let mut writer = Writer::create(Vec::new(), layout, None).unwrap();
    for sample in samples {
        writer.add(sample.clone()).unwrap();
    }
    writer.flush().unwrap();
    writer.into_inner()
}

fn all<R: Read + Seek>(recording: &mut Recording<R>) -> Vec<Sample> {
    (0..recording.len()).filter_map(|index| recording.sample(index).unwrap()).collect()
}

fn open(bytes: &[u8]) -> Result<Recording<Cursor<&[u8]>>, FileError> {
    Recording::open(vec![Cursor::new(bytes)])
}

#[test]
fn a_process_that_is_killed_at_any_byte_loses_at_most_a_chunk() {
    let layout = layout(3);
    let samples: Vec<Sample> = (0..50).map(|n| nth(&layout, n)).collect();
    let bytes = written(&layout, &samples);
    let first = written(&layout, &samples[..16]).len();
    let mut known = 0;
    for length in first..=bytes.len() {
        let mut recording = open(&bytes[..length]).unwrap();
        let read = all(&mut recording);
        assert_eq!(read, samples[..read.len()]);
        // Complete chunks stay readable.
        assert!(read.len() >= known && read.len() - known <= 16);
        known = read.len();
        assert_eq!(recording.lost().torn, u32::from(recording.end() != length as u64));
    }
    assert_eq!(known, 50);
}

#[test]
fn damage_in_the_middle_costs_the_chunk_that_it_is_in() {
    let layout = layout(3);
    let samples: Vec<Sample> = (0..64).map(|n| nth(&layout, n)).collect();
    let bytes = written(&layout, &samples);
    let begins: Vec<usize> =
        (1..4).map(|chunks| written(&layout, &samples[..chunks * CHUNK]).len()).collect();
    for at in begins[0]..begins[1] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let mut recording = open(&damaged).unwrap();
        let read = all(&mut recording);
        let expected: Vec<Sample> = samples[..16].iter().chain(&samples[32..]).cloned().collect();
        assert_eq!(read, expected, "byte {at}");
        assert!(recording.lost().bytes > 0 || recording.lost().samples == 16);
        assert!(recording.lost().first.is_some_and(|first| first as usize >= begins[0]));
    }
}

#[test]
fn what_is_not_a_recording_is_refused_with_the_place() {
    assert!(matches!(open(b""), Err(FileError::NotOne)));
    assert!(matches!(open(&vec![0; 100_000]), Err(FileError::NotOne)));
    let bytes = written(&layout(2), &[nth(&layout(2), 0)]);
    let mut newer = bytes.clone();
    newer[8] = 9;
    assert!(matches!(open(&newer), Err(FileError::Newer(9))));
    assert!(matches!(open(&bytes[..15]), Err(FileError::Damaged { offset: 15, .. })));
    let mut long = bytes.clone();
    long[15] = 0xff;
    assert!(matches!(open(&long), Err(FileError::TooLarge { offset: 12, .. })));
    let mut flipped = bytes.clone();
    flipped[40] ^= 1;
    assert!(matches!(open(&flipped), Err(FileError::Damaged { offset: 20, .. })));
    assert!(matches!(open(&written(&layout(2), &[])), Err(FileError::Empty)));
    // More CPUs than any kernel supports.
    assert!(!check(&layout(300_000)));
}

#[test]
fn zeros_behind_the_header_are_searched_within_bounds() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("zeros");
    let layout = layout(2);
    fs::write(&path, written(&layout, &[nth(&layout, 0)])).unwrap();
    // Sparse, so it takes no space.
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10 << 30).unwrap();
    let mut recording = Recording::open(vec![fs::File::open(&path).unwrap()]).unwrap();
    assert_eq!(all(&mut recording).len(), 1);
    assert_eq!(recording.lost().torn, 1);
    assert!(recording.lost().bytes > 9 << 30);
}

#[test]
fn a_moment_is_found_by_its_time() {
    let layout = layout(2);
    let samples: Vec<Sample> = (10..100).map(|n| nth(&layout, n)).collect();
    let bytes = written(&layout, &samples);
    let mut recording = open(&bytes).unwrap();
    let second = 1_000_000_000;
    assert_eq!(recording.span(), (10 * second, 99 * second));
    for (seconds, index) in [(0, 0), (10, 0), (25, 15), (26, 16), (99, 89), (1000, 89)] {
        assert_eq!(recording.index_at(seconds * second + 7).unwrap(), index);
    }
}

/// Bytes of all files of a recording.
fn bytes_of(path: &std::path::Path) -> u64 {
    shards(path).unwrap().iter().map(|path| fs::metadata(path).unwrap().len()).sum()
}

#[test]
fn a_day_has_a_file_and_the_oldest_goes_first() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("rec");
    let layout = layout(4);
    // 100 samples per day over five days.
    let sample = |n: u64| Sample { wall: n * 864_000_000_000, ..nth(&layout, n) };
    let record = |from: u64, to: u64, kept: Retention| {
        let mut recorder = Recorder::open(&path, &layout, None, kept).unwrap();
        for n in from..to {
            recorder.add(sample(n)).unwrap();
        }
        recorder
    };
    record(0, 250, Retention::default()).finish().unwrap();
    record(250, 500, Retention::default()).finish().unwrap();
    let files = shards(&path).unwrap();
    assert_eq!(files.len(), 5);
    assert!(files[0].ends_with("rec.1970-01-01") && files[4] == path);
    let open = || {
        let files = shards(&path).unwrap().into_iter().map(|path| fs::File::open(path).unwrap());
        Recording::open(files.collect()).unwrap()
    };
    assert_eq!(open().len(), 500);
    let most = bytes_of(&path) * 2 / 3;
    record(500, 550, Retention { bytes: Some(most), age: None }).finish().unwrap();
    assert!(bytes_of(&path) <= most);
    let mut left = open();
    assert_eq!(left.sample(left.len() - 1).unwrap(), Some(sample(549)));
    // The current file is never removed.
    let full = Recorder::open(&path, &layout, None, Retention { bytes: Some(100), age: None });
    assert!(matches!(full, Err(RecordError::Full { bytes: 100, .. })));
    assert_eq!(shards(&path).unwrap(), [path]);
}

#[test]
fn a_torn_end_is_cut_off_and_another_machine_or_writer_is_refused() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("rec");
    let mut layout = layout(4);
    let open = |layout: &Layout| Recorder::open(&path, layout, None, Retention::default());
    let samples: Vec<Sample> = (0..40).map(|n| nth(&layout, n)).collect();
    let whole = written(&layout, &samples);
    fs::write(&path, &whole[..whole.len() - 3]).unwrap();
    let mut recorder = open(&layout).unwrap();
    assert!(matches!(open(&layout), Err(RecordError::Busy(_))));
    recorder.add(nth(&layout, 50)).unwrap();
    recorder.finish().unwrap();
    let mut recording = Recording::open(vec![fs::File::open(&path).unwrap()]).unwrap();
    assert_eq!(recording.lost(), Lost::default());
    assert_eq!(all(&mut recording).len(), 33);
    // A new kernel: the same machine, in a new file.
    layout.machine.kernel = "6.13".into();
    open(&layout).unwrap().finish().unwrap();
    assert_eq!(shards(&path).unwrap().len(), 2);
    layout.machine.name = "sim:other".into();
    assert!(matches!(open(&layout), Err(RecordError::OtherMachine { .. })));
}

/// Any sample: mostly plausible counters, and absent values, jumps and counters that go back.
fn samples() -> impl Strategy<Value = (u32, Vec<Sample>)> {
    let value = prop_oneof![4 => 0..1u64 << 40, 1 => Just(ABSENT), 1 => any::<u64>()];
    (1u32..5).prop_flat_map(move |cpus| {
        let values = prop::collection::vec(value.clone(), layout(cpus).values());
        let cost = any::<(u64, u32, u32, u32)>();
        let one = (any::<u64>(), any::<u64>(), cost, values).prop_map(|(at, wall, cost, values)| {
            let (cpu, touched, asked, interrupts) = cost;
            Sample { at, wall, cost: Cost { cpu, touched, asked, interrupts }, values }
        });
        (Just(cpus), prop::collection::vec(one, 1..40))
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read((cpus, samples) in samples()) {
        let bytes = written(&layout(cpus), &samples);
        let mut recording = open(&bytes).unwrap();
        prop_assert_eq!(recording.layout(), &layout(cpus));
        prop_assert_eq!(all(&mut recording), samples);
        prop_assert_eq!(recording.lost(), Lost::default());
    }

    #[test]
    fn damage_is_an_error_or_fewer_samples_but_no_panic(
        (cpus, samples) in samples(), at in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<prop::sample::Index>()
    ) {
        let mut bytes = written(&layout(cpus), &samples);
        let length = bytes.len();
        bytes[at.index(length)] ^= 1 << bit;
        bytes.truncate(cut.index(length) + 1);
        if let Ok(mut recording) = open(&bytes) {
            prop_assert!(all(&mut recording).len() <= samples.len());
        }
    }
}

/// The seed of the fuzz target. `FLYBALL_BLESS=1` writes it again after a change of the format.
#[test]
fn the_seed_of_the_fuzz_target_is_a_recording() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/samples/small");
    let layout = layout(3);
    if std::env::var_os("FLYBALL_BLESS").is_some() {
        let samples: Vec<Sample> = (0..40).map(|n| nth(&layout, n)).collect();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, written(&layout, &samples)).unwrap();
    }
    assert_eq!(all(&mut open(&fs::read(path).unwrap()).unwrap()).len(), 40);
}
