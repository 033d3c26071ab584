//! Records through this machine's own ring buffer. Needs root and tracefs, and says so if it cannot
//! run.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::{io::Write, path::Path, sync::Mutex};

use flyball_trace::{
    AmdPerf, Decoder, Event, EventFormat, Names, Readahead,
    dat::TraceFile,
    live::{Capture, CaptureOptions},
    merge,
};

/// One test at a time: the instances of a process share its name.
static ONE: Mutex<()> = Mutex::new(());

fn start(directory: &Path, buffer_kib: u64) -> Option<Capture> {
    let options = CaptureOptions {
        events: vec!["power/cpu_frequency_limits".into()],
        cpus: None,
        buffer_kib: Some(buffer_kib),
        clock: None,
        directory: directory.to_owned(),
        writer: "test".into(),
        machine: None,
        trace_id: 0,
    };
    match Capture::start(&flyball_host::Live::new(), &options, None) {
        Ok(capture) => Some(capture),
        Err(error) => {
            flyball_testing::skip(1, "recording", &error.to_string());
            None
        }
    }
}

/// The fed event with this number: the bytes of a record from offset 8 on.
fn event(number: u32) -> AmdPerf {
    AmdPerf {
        min: 15,
        des: number % 256,
        max: 255,
        cpu: 700,
        khz: u64::from(number),
        mperf: u64::from(number) << 20,
        aperf: 3,
        tsc: u64::MAX - u64::from(number),
        changed: None,
        fast_switch: number.is_multiple_of(3),
    }
}

fn feed(capture: &Capture, count: u32) {
    let mut marker = capture.raw_marker().unwrap();
    for number in 0..count {
        let event = event(number);
        let mut bytes = [0u8; 48];
        bytes[..3].copy_from_slice(&[event.min as u8, event.des as u8, event.max as u8]);
        for (at, value) in [(8, event.khz), (16, event.mperf), (24, event.aperf), (32, event.tsc)] {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes[40..44].copy_from_slice(&event.cpu.to_le_bytes());
        bytes[44] = u8::from(event.fast_switch);
        marker.write_all(&bytes).unwrap();
    }
}

/// The decoder of a file whose raw_data records are decoded as amd_pstate_perf, because the test
/// writes such bytes.
fn decoder(file: &TraceFile) -> Decoder {
    let raw =
        file.formats.iter().find(|format| format.name == "raw_data").expect("every kernel has raw_data");
    let field = |declaration: &str, offset: usize, size: usize| {
        format!("\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:0;\n")
    };
    let text = [
        format!("name: amd_pstate_perf\nID: {}\nformat:\n", raw.id),
        field("unsigned short common_type", 0, 2),
        field("unsigned char common_flags", 2, 1),
        field("unsigned char common_preempt_count", 3, 1),
        field("int common_pid", 4, 4),
        "\n".into(),
        field("u8 min_perf", 8, 1),
        field("u8 target_perf", 9, 1),
        field("u8 capacity", 10, 1),
        field("unsigned long long freq", 16, 8),
        field("unsigned long long mperf", 24, 8),
        field("unsigned long long aperf", 32, 8),
        field("unsigned long long tsc", 40, 8),
        field("unsigned int cpu_id", 48, 4),
        field("bool fast_switch", 52, 1),
    ]
    .concat();
    let format = EventFormat::parse("amd_cpu", text.as_bytes()).unwrap();
    Decoder::new(&[format], &Names::default())
}

fn decoded(path: &Path) -> Vec<AmdPerf> {
    let file = TraceFile::open(path).unwrap();
    assert_eq!(file.problems, Vec::<String>::new());
    let decoder = decoder(&file);
    let mut events = Vec::new();
    let mut last = 0;
    let summary = merge(&file, &file.buffers[0], &decoder, Readahead::default(), |record, _| {
        assert!(record.time >= last);
        last = record.time;
        if let Event::AmdPerf(event) = record.event {
            events.push(event);
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(summary.problems, Vec::<String>::new());
    events
}

#[test]
fn every_record_arrives_as_it_was_written() {
    let _one = ONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.dat");
    let Some(capture) = start(folder.path(), 8192) else { return };
    feed(&capture, 60_000);
    let summary = capture.stop(&path).unwrap();
    assert_eq!((summary.received, summary.lost, summary.written), (60_000, 0, 60_000));
    let events = decoded(&path);
    let mut numbers: Vec<u64> = events.iter().map(|event| event.khz).collect();
    for found in &events {
        assert_eq!(*found, event(found.khz as u32));
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..60_000).collect::<Vec<u64>>());
}

#[test]
fn what_is_lost_is_counted() {
    let _one = ONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lost.dat");
    let Some(capture) = start(folder.path(), 8) else { return };
    feed(&capture, 400_000);
    let summary = capture.stop(&path).unwrap();
    assert_eq!(summary.received + summary.lost, 400_000);
    assert!(summary.cpus.iter().all(flyball_trace::live::CpuCapture::balanced));
    assert_eq!(decoded(&path).len() as u64, summary.received);
}

#[test]
fn an_unfinished_capture_leaves_nothing() {
    let _one = ONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let Some(capture) = start(folder.path(), 64) else { return };
    drop(capture);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let tracefs = flyball_host::Host::tracefs(&flyball_host::Live::new()).unwrap();
    let own = format!("flyball-{}-", std::process::id());
    let left = tracefs.directories("instances").unwrap();
    assert!(!left.iter().any(|name| name.starts_with(&own)), "{left:?}");
}

#[test]
fn events_that_are_not_there_are_named() {
    let _one = ONE.lock();
    let folder = tempfile::tempdir().unwrap();
    for (events, words) in [
        (vec![], "none of the events"),
        (vec!["power:nonsense".to_owned()], "power/nonsense"),
        (vec!["../events/power".to_owned()], "../events"),
    ] {
        let options = CaptureOptions {
            events,
            cpus: None,
            buffer_kib: Some(64),
            clock: None,
            directory: folder.path().to_owned(),
            writer: "test".into(),
            machine: None,
            trace_id: 0,
        };
        let Err(error) = Capture::start(&flyball_host::Live::new(), &options, None) else {
            panic!("{words}")
        };
        let error = error.to_string();
        assert!(error.contains(words) || error.contains("tracefs") || error.contains("tracing"), "{error}");
    }
}
