//! Tests recordings: replaying, damaged files, and exports.

use std::fs;

use flyball_testing::flyball;
use rustix::process::Signal;

use super::{machine, pty::Terminal, run, top};

/// Returns the screen without the first line, which has the mode, and the last line, which has age
/// and cost.
fn body(screen: &str) -> Vec<String> {
    let lines: Vec<String> = screen.lines().map(str::to_owned).collect();
    lines[1..lines.len() - 1].to_vec()
}

#[test]
fn a_replayed_screen_is_the_live_one_cell_by_cell() {
    let folder = tempfile::tempdir().unwrap();
    for (cpus, size) in [(8, (80, 24)), (64, (200, 60)), (576, (200, 60))] {
        let machine = format!("sim:{}", machine(folder.path(), cpus).display());
        for view in ["1", "2", "3", "4"] {
            let file = folder.path().join(format!("{cpus}-{view}.fbt"));
            let file = file.to_str().unwrap();
            let words = ["--record", file, "--samples", "6", "-i", "1s", "--speed", "2", "--", "tbench"];
            let mut live = Terminal::start(size, &top(&machine, &words));
            live.wait("the screen", |screen| screen.is_taken);
            live.keys(view);
            let left = live.ended();
            assert!(left.status.success() && left.is_restored(), "{}", left.screen.printed);
            let begins = format!(" {view} ");
            assert!(left.screen.last.starts_with(&begins), "{}", left.screen.last);
            let mut command = flyball!();
            command.args(["top", "--replay", file]);
            let mut replay = Terminal::start(size, &command);
            replay.wait("the replay", |screen| screen.text().contains("replay"));
            replay.keys(&format!("{view}F"));
            // On a busy machine, a frame arrives in parts.
            replay.wait(&format!("the last screen of {cpus} CPUs, view {view}"), |screen| {
                screen.line(0).starts_with(&begins)
                    && screen.line(0).contains("replay, end")
                    && body(&screen.text()) == body(&left.screen.last)
            });
            replay.keys("q");
            replay.ended();
        }
    }
}

/// Records some samples, and returns the file's path.
fn recorded(folder: &std::path::Path, name: &str, samples: &str) -> String {
    let file = folder.join(name).to_str().unwrap().to_owned();
    let ran = run(&mut top("sim:i7-2600", &["--record", &file, "--samples", samples, "-i", "50ms"]));
    assert_eq!(ran.code, 0, "{}", ran.text());
    file
}

#[test]
fn csv_of_a_replay_has_the_columns_of_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let file = recorded(folder.path(), "a.fbt", "5");
    let ran = run(flyball!().args(["top", "--replay", &file, "--csv"]));
    assert_eq!(ran.code, 0, "{}", ran.text());
    let lines: Vec<Vec<&str>> = ran.out.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines[0][..2], ["time_ns", "cpu"]);
    assert!(lines[0].contains(&"khz") && lines[0].contains(&"scaling_max_freq"), "{:?}", lines[0]);
    // Five samples after the first, eight CPUs each.
    assert_eq!(lines.len(), 1 + 5 * 8);
    assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    // docs/formats.md lists all columns.
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats.md")).unwrap();
    assert!(lines[0].iter().all(|column| page.contains(&format!("`{column}`"))), "{:?}", lines[0]);
}

#[test]
fn parquet_is_a_feature() {
    let folder = tempfile::tempdir().unwrap();
    let file = recorded(folder.path(), "a.fbt", "5");
    let out = folder.path().join("a.parquet");
    let ran = run(flyball!().args(["top", "--replay", &file, "--parquet", out.to_str().unwrap()]));
    if cfg!(feature = "parquet") {
        assert_eq!(ran.code, 0, "{}", ran.text());
        let bytes = fs::read(out).unwrap();
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    } else {
        assert!(ran.code == 2 && ran.err.contains("--features parquet"), "{}", ran.text());
        assert!(!out.exists());
    }
}

#[test]
fn a_signal_closes_the_last_chunk() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.fbt");
    let words = ["-i", "50ms", "--record", file.to_str().unwrap()];
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let _ = fs::remove_file(&file);
        let mut terminal = Terminal::start((80, 24), &top("sim:i7-2600", &words));
        // Less than a chunk, so only the end of the recording writes them.
        terminal.wait("a sample", |screen| screen.text().contains("cost "));
        std::thread::sleep(std::time::Duration::from_millis(400));
        terminal.signal(signal);
        assert!(terminal.ended().is_restored());
        let ran = run(flyball!().args(["top", "--replay", file.to_str().unwrap(), "--csv"]));
        assert!(ran.code == 0 && !ran.err.contains("torn"), "{signal:?}: {}", ran.text());
    }
}
