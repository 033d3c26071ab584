//! What wrong input gets: options, recordings and replays.

use std::{
    fs,
    process::Stdio,
    time::{Duration, Instant},
};

use flyball_testing::{Tree, flyball};

use super::{pty::Terminal, run, top};

const MACHINE: &str = "sim:i7-2600";

#[test]
fn words_and_numbers_out_of_range_are_usage() {
    for (words, said) in [
        (&["-i", "10ms"][..], "50ms to 1h"),
        (&["-i", "2h"], "50ms to 1h"),
        (&["-n", "0"], "1.."),
        (&["--touch", "some"], "none"),
        (&["--size", "5MB"], "--record"),
        (&["--record", "x", "--size", "many"], "unit"),
        (&["--record", "x", "--replay", "y"], "--replay"),
        (&["--at", "14:05"], "--replay"),
        (&["--csv", "--json"], "--json"),
        (&["--colunms", "mhz"], "--colunms"),
    ] {
        let ran = run(&mut top(MACHINE, words));
        assert!(ran.code == 2 && ran.err.contains(said), "{words:?}: {}", ran.text());
    }
}

#[test]
fn without_a_terminal_it_is_one_sample_as_text() {
    let ran = run(&mut top(MACHINE, &["-i", "50ms"]));
    assert!(ran.code == 0 && ran.out.contains("want MHz"), "{}", ran.text());
    let mut command = top(MACHINE, &["-i", "50ms"]);
    let mut dumb = flyball_testing::command("env");
    dumb.args(["TERM=dumb"]).arg(command.get_program()).args(command.get_args());
    let left = Terminal::start((80, 24), &dumb).ended();
    assert!(left.status.success() && !left.screen.is_taken && left.screen.last.is_empty());
    assert!(left.screen.printed.contains("want MHz"), "{}", left.screen.printed);
    // A terminal that is too small gets a line of numbers.
    command.args(["-n", "2"]);
    let left = Terminal::start((30, 5), &command).ended();
    assert!(left.status.success() && left.screen.last.contains('%'), "{}", left.screen.last);
}

#[test]
fn files_that_are_not_recordings_are_refused_with_the_place() {
    let tree = Tree::new();
    let path = |name: &str| tree.path().join(name).to_str().unwrap().to_owned();
    let whole = path("whole");
    assert_eq!(run(&mut top(MACHINE, &["-i", "50ms", "--samples", "40", "--record", &whole])).code, 0);
    let bytes = fs::read(&whole).unwrap();
    let changed = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        fs::write(path(name), bytes).unwrap();
    };
    changed("newer", &|bytes| bytes[8] = 9);
    changed("header", &|bytes| bytes[40] ^= 1);
    changed("short", &|bytes| bytes.truncate(10));
    tree.put("text", "not a recording\n");
    tree.put("empty", "");
    // Sparse, so it takes no space.
    let zeros = fs::File::create(path("zeros")).unwrap();
    zeros.set_len(10 << 30).unwrap();
    for (name, said) in [
        ("newer", "format 9"),
        ("header", "at byte 20"),
        ("short", "at byte 10"),
        ("text", "not a recording"),
        ("empty", "not a recording"),
        ("zeros", "not a recording"),
        ("absent", "no such recording"),
    ] {
        for form in ["--json", "--csv"] {
            let begun = Instant::now();
            let ran = run(flyball!().args(["top", form, "--replay", &path(name)]));
            assert!(ran.code == 2 && ran.err.contains(said) && ran.out.is_empty(), "{name}: {}", ran.text());
            assert!(begun.elapsed() < Duration::from_secs(30), "{name}");
        }
    }
    // Complete parts are shown, and losses are counted.
    changed("torn", &|bytes| bytes.truncate(bytes.len() - 3));
    let middle = bytes.len() / 2;
    changed("flipped", &|bytes| bytes[middle] ^= 4);
    for name in ["torn", "flipped"] {
        let ran = run(flyball!().args(["top", "--csv", "--replay", &path(name)]));
        assert!(ran.code == 0 && ran.out.lines().count() > 8, "{name}: {}", ran.text());
        assert!(ran.err.contains("torn") || ran.err.contains("damaged"), "{name}: {}", ran.text());
    }
}

#[test]
fn a_recording_of_another_machine_and_a_full_disk_end_with_what_is_whole() {
    let tree = Tree::new();
    let file = tree.path().join("a.fbt").to_str().unwrap().to_owned();
    let record = |machine: &str, words: &[&str]| {
        run(&mut top(machine, &[&["-i", "50ms", "--samples", "100", "--record", &file][..], words].concat()))
    };
    assert_eq!(record(MACHINE, &[]).code, 0);
    let before = fs::read(&file).unwrap();
    let ran = record("sim:ryzen-5750g", &[]);
    assert!(ran.code == 2 && ran.err.contains("another machine"), "{}", ran.text());
    assert_eq!(fs::read(&file).unwrap(), before);
    // The current file alone reaches --size.
    let ran = record(MACHINE, &["--size", &format!("{}kB", before.len() / 1000 + 1)]);
    assert!(ran.code == 2 && ran.err.contains("has reached"), "{}", ran.text());
    let replay = |file: &str| run(flyball!().args(["top", "--csv", "--replay", file]));
    assert!(replay(&file).code == 0 && !replay(&file).err.contains("torn"), "{}", replay(&file).err);
    // If the command cannot run, no new file is left behind, and an old one is unchanged.
    let ran = record(MACHINE, &["--", "nonsense"]);
    assert!(ran.code == 2 && ran.err.contains("nonsense"), "{}", ran.text());
    assert_eq!(replay(&file).code, 0);
    let new = tree.path().join("new.fbt");
    let ran = run(&mut top(MACHINE, &["-n", "2", "--record", new.to_str().unwrap(), "--", "nonsense"]));
    assert!(ran.code == 2 && !new.exists(), "{}", ran.text());
    // /dev/full has no space, and a nonexistent directory cannot have a file.
    let ran = run(&mut top(MACHINE, &["-i", "50ms", "--samples", "2", "--record", "/proc/none/a.fbt"]));
    assert!(ran.code == 10 && ran.err.contains("ENOENT"), "{}", ran.text());
    // A file size limit acts like a full disk. Complete chunks stay readable.
    let full = tree.path().join("full.fbt").to_str().unwrap().to_owned();
    let command = top(MACHINE, &["-i", "50ms", "--samples", "2000", "--record", &full]);
    let mut limited = flyball_testing::command("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$0\" \"$@\""]);
    limited.arg(command.get_program()).args(command.get_args());
    let ran = run(&mut limited);
    assert!(ran.code == 10 && ran.err.contains("EFBIG"), "{}", ran.text());
    let ran = replay(&full);
    assert!(ran.code == 0 && ran.out.lines().count() > 16 * 8, "{}", ran.text());
}

#[test]
fn a_reader_that_goes_away_ends_it() {
    let mut child =
        top(MACHINE, &["-i", "50ms", "--csv"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    let until = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            let _ = child.kill();
            panic!("it goes on without a reader");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
