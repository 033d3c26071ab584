//! Tests the screen in a terminal: keys of the views, sizes, and the terminal after every way to
//! end.

use std::{path::PathBuf, process::Command, time::Duration};

use flyball_testing::flyball;
use flyball_top::{Options, Recording, Source, SourceError, State, Status};
use rustix::process::Signal;

use super::{
    machine,
    pty::{Screen, Terminal},
    top,
};

fn start(size: (u16, u16)) -> Terminal {
    Terminal::start(size, &top("sim:i7-2600", &["-i", "100ms", "--", "tbench"]))
}

fn shows(word: &str) -> impl Fn(&Screen) -> bool {
    let word = word.to_owned();
    move |screen| screen.text().contains(&word)
}

/// Returns whether a sample is shown.
fn is_full(screen: &Screen) -> bool {
    screen.is_taken && screen.text().contains("cost ")
}

#[test]
fn every_view_and_help_have_their_keys() {
    let mut terminal = start((80, 24));
    terminal.wait("the first screen", is_full);
    for (keys, begins) in [
        ("2", " 2 map"),
        ("3", " 3 table"),
        ("4", " 4 one CPU"),
        ("1", " 1 overview"),
        ("\t", " 2 map"),
        ("\x1b[Z", " 1 overview"),
    ] {
        terminal.keys(keys);
        terminal.wait(begins, |screen| screen.line(0).starts_with(begins));
    }
    terminal.keys("?");
    terminal.wait("help", shows("Keys"));
    terminal.keys("\x1b");
    terminal.wait("no help", |screen| screen.line(0).starts_with(" 1 overview"));
    terminal.keys(" ");
    terminal.wait("a pause", |screen| screen.line(0).contains("paused"));
    terminal.keys("q");
    let left = terminal.ended();
    assert!(left.status.success() && left.is_restored(), "{}", left.status);
}

#[test]
fn signals_give_the_terminal_back() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut terminal = start((80, 24));
        terminal.wait("the first screen", is_full);
        terminal.signal(signal);
        let left = terminal.ended();
        assert!(left.is_restored(), "{signal:?}");
        assert!(left.signal().is_none(), "{signal:?}: it ends by itself");
    }
    // While the terminal is taken over, Ctrl-C is a key.
    let mut terminal = start((80, 24));
    terminal.wait("the first screen", is_full);
    terminal.keys("\x03");
    assert!(terminal.ended().is_restored());
}

#[test]
fn a_terminal_that_goes_away_ends_it_and_closes_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.fbt");
    let words = ["-i", "50ms", "--record", file.to_str().unwrap(), "--", "tbench"];
    let mut terminal = Terminal::start((80, 24), &top("sim:i7-2600", &words));
    terminal.wait("the first screen", is_full);
    // The first screen has only one sample, and a speed needs two.
    std::thread::sleep(Duration::from_secs(1));
    terminal.hang_up();
    let ran = super::run(flyball!().args(["top", "--replay", file.to_str().unwrap(), "--csv"]));
    assert!(ran.code == 0 && !ran.err.contains("torn"), "{}", ran.text());
}

/// After kill -9 the program cannot restore the terminal. docs/top.md says what to do.
#[test]
fn after_kill_9_reset_restores() {
    let mut terminal = start((80, 24));
    terminal.wait("the first screen", is_full);
    terminal.signal(Signal::KILL);
    let left = terminal.ended();
    assert_eq!(left.signal(), Some(9));
    assert!(!left.is_restored() && left.screen.is_taken);
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/top.md")).unwrap();
    assert!(page.contains("`reset`"));
}

/// A source that panics, like a bug in flyball would.
struct Panics;

impl Source for Panics {
    fn timeline(&mut self) -> &mut dyn flyball_monitor::history::Timeline {
        panic!("a planned mistake")
    }

    fn advance(&mut self) -> std::io::Result<bool> {
        Ok(false)
    }

    fn status(&self) -> Status<'_> {
        panic!("a planned mistake")
    }

    fn known(&self, _number: u64) -> (&flyball_monitor::Layout, Option<&flyball_monitor::Facts>) {
        panic!("a planned mistake")
    }

    fn record(&mut self) -> Result<Recording, SourceError> {
        Err(SourceError::Replay)
    }

    fn export(&mut self, _text: &str) -> Result<PathBuf, SourceError> {
        Err(SourceError::Replay)
    }
}

/// The test below starts this in a terminal. Does nothing by itself.
#[test]
#[ignore = "ends with a panic; another test starts it"]
fn a_mistake_with_the_terminal_taken() {
    if std::env::var_os("FLYBALL_PANICS").is_some() {
        let ended = std::sync::atomic::AtomicBool::new(false);
        let options = Options { coloured: true, samples: None, ended: &ended };
        let _ = flyball_top::run(&mut Panics, &mut State::default(), &options);
    }
}

#[test]
fn a_panic_gives_the_terminal_back_before_its_message() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "--nocapture", "top::screens::a_mistake_with_the_terminal_taken"]);
    command.env("FLYBALL_PANICS", "1");
    let left = Terminal::start((80, 24), &command).ended_by_panic();
    assert!(left.is_restored());
    assert!(left.screen.printed.contains("a planned mistake"), "{}", left.screen.printed);
}

#[test]
fn a_storm_of_sizes_does_not_end_it() {
    let mut terminal = start((80, 24));
    terminal.wait("the first screen", is_full);
    let sizes = [(1, 1), (200, 60), (39, 11), (40, 12), (0, 0), (500, 3), (3, 200), (80, 24)];
    for round in 0..25 {
        for (at, (width, height)) in sizes.into_iter().enumerate() {
            terminal.resize(width, height);
            if (round + at) % 3 == 0 {
                terminal.keys(["1", "2", "3", "4", "?", "m"][(round + at) % 6]);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    terminal.keys("\x1b1");
    terminal.resize(100, 30);
    terminal.wait("the whole screen", |screen| screen.line(29).contains("? help"));
    terminal.signal(Signal::TERM);
    assert!(terminal.ended().is_restored());
}

#[test]
fn every_size_of_machine_and_screen() {
    let folder = tempfile::tempdir().unwrap();
    for cpus in [1, 2, 16, 56, 128, 512, 576] {
        let machine = format!("sim:{}", machine(folder.path(), cpus).display());
        // Record once, since simulating hundreds of CPUs for each size would take too long.
        let file = folder.path().join(format!("{cpus}.fbt"));
        let file = file.to_str().unwrap();
        let ran = super::run(&mut top(
            &machine,
            &["--record", file, "--samples", "3", "-i", "100ms", "--speed", "1000", "--", "tbench"],
        ));
        assert_eq!(ran.code, 0, "{}", ran.text());
        let mut command = flyball!();
        command.args(["top", "--replay", file]);
        let mut terminal = Terminal::start((40, 12), &command);
        for (width, height) in [(40, 12), (80, 24), (200, 60)] {
            terminal.resize(width, height);
            // Wait first, because a key sent at the same time might be read with the next one.
            terminal.wait("the new size", |screen| screen.line(usize::from(height) - 1).contains("? help"));
            for (key, begins) in [("1", " 1 "), ("2", " 2 "), ("3", " 3 "), ("4", " 4 ")] {
                terminal.keys(key);
                let what = format!("{cpus} CPUs, {width}x{height}, view {key}");
                let screen = terminal.wait(&what, |screen| {
                    screen.line(0).starts_with(begins)
                        && screen.line(usize::from(height) - 1).contains("? help")
                });
                assert!(screen.text().lines().count() == usize::from(height), "{what}");
            }
        }
        terminal.keys("q");
        let left = terminal.ended();
        assert!(left.status.success() && left.is_restored(), "{cpus} CPUs: {}", left.status);
    }
}
