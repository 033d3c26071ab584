//! Tests traces in every file format: all give the same numbers, and the same as trace-cmd. Damage
//! is reported with its position.

use std::{
    io::Write,
    path::Path,
    process::{Command, Output},
};

use crate::traces::{self, Request, flyball, requests};
use flyball_testing::{dat_7, skip};

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A trace in one format, and the arguments to read it from standard input.
struct Form {
    name: &'static str,
    bytes: Vec<u8>,
    options: Vec<String>,
    /// How many records it can have, as raw pages are those of one CPU.
    records: usize,
}

fn forms(requests: &[Request], directory: &Path) -> Vec<Form> {
    traces::events(directory);
    let text = traces::text(requests).into_bytes();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&text).unwrap();
    let form = |name, bytes| Form { name, bytes, options: Vec::new(), records: requests.len() };
    let raw = traces::pages(requests, 1);
    let own = requests.iter().filter(|request| request.cpu == 1).count();
    let events = vec!["--events".to_owned(), directory.display().to_string(), "--raw-cpu".into(), "1".into()];
    vec![
        form("text", text),
        form("gzip", gzip.finish().unwrap()),
        form("6", traces::dat(requests)),
        form("7", dat_7(&traces::dat(requests))),
        Form { options: events, records: own, ..form("raw", raw) },
    ]
}

fn report(form: &Form, bytes: &[u8]) -> Output {
    let mut words = vec!["report", "--json"];
    words.extend(form.options.iter().map(String::as_str));
    words.push("-");
    flyball(&words, bytes)
}

fn records(output: &Output) -> Option<u64> {
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    value["report"]["records"].as_u64()
}

#[test]
fn every_form_gives_the_same_report() {
    let folder = tempfile::tempdir().unwrap();
    let requests = requests(1_000, 3);
    let mut known: Option<serde_json::Value> = None;
    for form in forms(&requests, folder.path()) {
        let output = report(&form, &form.bytes);
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()), "{}", form.name);
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(value["report"]["records"], form.records as u64, "{}", form.name);
        // Text has only microseconds and no clock. Everything else must be identical.
        let cpu = value["report"]["cpus"].as_array().unwrap().iter().find(|cpu| cpu["cpu"] == 1).unwrap();
        let mut numbers = cpu.clone();
        for timed in ["levels", "lag", "decisions_per_second", "longest_gap_seconds"] {
            numbers.as_object_mut().unwrap().remove(timed);
        }
        assert_eq!(known.get_or_insert_with(|| numbers.clone()), &numbers, "{}", form.name);
    }
}

/// Checks that the user is told: an error or a partial report, with the position.
fn honest(form: &Form, what: &str, output: &Output) {
    let said = stderr(output);
    let code = output.status.code();
    assert!(matches!(code, Some(0..=2)), "{} {what}: {code:?} {said}", form.name);
    assert!(!said.contains("panicked"), "{} {what}: {said}", form.name);
    if code != Some(0) {
        assert!(said.contains("flyball: "), "{} {what}: {code:?} without a word", form.name);
        // A decompressor's errors have no position.
        let placed = said.contains("byte")
            // The records are complete and in place; their number is reported.
            || said.contains("records have fields that cannot be read")
            || form.name == "gzip" || said.contains("format files");
        assert!(placed, "{} {what}: no place in: {said}", form.name);
    }
    if code == Some(1) && form.name != "gzip" {
        let partial = records(output).is_some_and(|count| count <= form.records as u64);
        assert!(partial, "{} {what}: exit 1 without what could be read: {said}", form.name);
    }
}

#[test]
fn a_cut_is_never_taken_for_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let requests = requests(600, 2);
    for form in forms(&requests, folder.path()) {
        let whole = form.bytes.len();
        for part in [1, 3, 8, 13, 21, 30, 47, 66, 90, 99] {
            let cut = whole * part / 100 + part % 2;
            let output = report(&form, &form.bytes[..cut]);
            honest(&form, &format!("cut at {cut} of {whole}"), &output);
            if output.status.code() == Some(0) {
                // Text may be cut between two lines, and raw pages between two pages. That cannot
                // be detected.
                let clean = match form.name {
                    "text" => form.bytes[cut - 1] == b'\n',
                    "raw" => cut % 4096 == 0,
                    _ => false,
                };
                assert!(clean, "{} cut at {cut} of {whole} went unnoticed", form.name);
            }
        }
    }
}

#[test]
fn flipped_bits_end_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let requests = requests(300, 2);
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut chance = |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % limit as u64) as usize
    };
    for form in forms(&requests, folder.path()) {
        for _ in 0..14 {
            let mut bytes = form.bytes.clone();
            let places: Vec<usize> = (0..=chance(4)).map(|_| chance(bytes.len())).collect();
            for place in &places {
                bytes[*place] ^= 1 << chance(8);
            }
            honest(&form, &format!("flipped at {places:?}"), &report(&form, &bytes));
        }
    }
}

#[test]
fn claims_of_gigabytes_cost_nothing() {
    let requests = requests(60, 2);
    let six = traces::dat(&requests);
    for bytes in [dat_7(&six), six] {
        // Every aligned word of the metadata in turn claims to be as large as it can.
        let metadata = bytes.windows(9).position(|window| window == b"flyrecord").unwrap_or(4096);
        for at in (10..metadata).step_by(metadata / 24) {
            let mut bytes = bytes.clone();
            bytes[at..at + 8].fill(0xff);
            let form = Form { name: "dat", bytes: Vec::new(), options: Vec::new(), records: 60 };
            let output = report(&form, &bytes);
            honest(&form, &format!("claim at {at}"), &output);
        }
    }
}

#[test]
fn trace_cmd_reads_the_same_values() {
    let folder = tempfile::tempdir().unwrap();
    let requests = requests(500, 3);
    let six = traces::dat(&requests);
    for (name, bytes) in [("7.dat", dat_7(&six)), ("6.dat", six)] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let Ok(theirs) = Command::new("trace-cmd").args(["report", "-i"]).arg(&path).output() else {
            skip(1, "comparison with trace-cmd", "it is not installed");
            return;
        };
        if name == "7.dat" && !theirs.status.success() {
            skip(1, "comparison with trace-cmd", "it does not read version 7");
            continue;
        }
        // trace-cmd skips what only flyball writes.
        assert_eq!(stderr(&theirs).replace("trace-cmd: No such file or directory", "").trim(), "", "{name}");
        let theirs = String::from_utf8_lossy(&theirs.stdout).into_owned();
        let ours = flyball(&["report", "--print", path.to_str().unwrap()], b"");
        assert_eq!(ours.status.code(), Some(0), "{}", stderr(&ours));
        let ours = String::from_utf8_lossy(&ours.stdout).into_owned();
        // Columns and blanks may differ, but not task, CPU, time, event and values.
        let words = |text: &str| -> Vec<String> {
            text.lines()
                .filter(|line| line.contains("amd_pstate_perf:"))
                .map(|line| {
                    let words = line.split_whitespace().filter(|word| !word.starts_with("d.."));
                    words.collect::<Vec<_>>().join(" ")
                })
                .collect()
        };
        let (ours, theirs) = (words(&ours), words(&theirs));
        assert_eq!(ours.len(), 500);
        for (our, their) in ours.iter().zip(&theirs) {
            assert_eq!(our, their, "{name}");
        }
        assert_eq!(theirs.len(), 500);
        // The output of trace-cmd is a readable trace itself.
        let again = flyball(&["report", "--json", "-"], theirs.join("\n").as_bytes());
        assert_eq!(records(&again), Some(500), "{}", stderr(&again));
    }
}

#[test]
fn trace_cmd_packs_what_is_read_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain.dat");
    std::fs::write(&plain, traces::dat(&requests(500, 3))).unwrap();
    let print = |path: &Path| {
        let output = flyball(&["report", "--print", path.to_str().unwrap()], b"");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        output.stdout
    };
    let mut packed = 0;
    for way in ["zstd", "zlib"] {
        let path = folder.path().join(format!("{way}.dat"));
        let convert = Command::new("trace-cmd")
            .args(["convert", "--file-version", "7", "--compression", way, "-i"])
            .arg(&plain)
            .arg("-o")
            .arg(&path)
            .output();
        if convert.is_ok_and(|output| output.status.success()) && path.exists() {
            assert_eq!(print(&path), print(&plain), "{way}");
            packed += 1;
        }
    }
    if packed == 0 {
        skip(1, "comparison with trace-cmd", "none that compresses");
    }
}

#[test]
fn events_without_a_name_here_show_their_fields() {
    let text =
        "              sh-9       [000] .....     1.000000: sched_waking: comm=x y pid=7 target_cpu=001\n";
    let printed = flyball(&["report", "--print", "-"], text.as_bytes());
    assert_eq!(String::from_utf8_lossy(&printed.stdout), text);
    // In trace.dat they come out of the bytes, by the format: here of an event that is not
    // P-states'.
    let mut bytes = traces::dat(&requests(3, 1));
    while let Some(at) = bytes.windows(15).position(|window| window == b"amd_pstate_perf") {
        bytes[at..at + 15].copy_from_slice(b"any_other_event");
    }
    let printed = flyball(&["report", "--print", "-"], &bytes);
    let line = String::from_utf8_lossy(&printed.stdout).lines().next().unwrap_or_default().to_owned();
    assert_eq!(
        line,
        "         job[12]-4000    [000] d..2.     5.000000: any_other_event: min_perf=15 target_perf=20 capacity=255 \
         freq=400000 mperf=1000000 aperf=900000 tsc=3000000 cpu_id=0 fast_switch=0"
    );
}

/// `trace-cmd record -B` of version 6: an option with the position of a table of CPUs, and the
/// instance's name.
#[test]
fn instances_of_version_6_are_read() {
    let mut bytes = traces::dat(&requests(30, 3));
    let place =
        |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).position(|window| window == text).unwrap();
    // Turn the option with the kernel's name into a buffer with the records of the main one.
    let name = place(&bytes, b"Linux box 7.2 x86_64\0");
    let table = place(&bytes, b"flyrecord\0") as u64;
    bytes[name - 6..name - 4].copy_from_slice(&3u16.to_le_bytes());
    bytes[name..name + 8].copy_from_slice(&table.to_le_bytes());
    bytes[name + 8..name + 21].copy_from_slice(b"instance\0\0\0\0\0");
    let lines = |bytes: &[u8]| {
        let printed = flyball(&["report", "--print", "-"], bytes);
        (String::from_utf8_lossy(&printed.stdout).lines().count(), stderr(&printed))
    };
    assert_eq!(lines(&bytes), (60, String::new()));
    // An instance with a wrong position is reported.
    bytes[name..name + 8].copy_from_slice(&(table + 1).to_le_bytes());
    let (count, error) = lines(&bytes);
    assert!(count == 30 && error.contains("instance"), "{count}: {error}");
}
