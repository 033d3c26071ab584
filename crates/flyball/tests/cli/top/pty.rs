//! A pseudo-terminal for the real program, and an emulator of what the program draws.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustix::{
    fs::{Mode, OFlags},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize},
};

/// Far longer than anything takes, even on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(90);

#[derive(Debug, Clone, Default)]
pub(super) struct Screen {
    width: usize,
    height: usize,
    cells: Vec<char>,
    at: (usize, usize),
    /// The program has taken over the screen (alternate screen).
    pub is_taken: bool,
    pub hides_cursor: bool,
    pub bells: usize,
    /// The content of the screen when the program gave it back.
    pub last: String,
    /// Output printed while the screen was not taken over.
    pub printed: String,
    /// The beginning of an incomplete escape sequence.
    begun: Vec<u8>,
    asks_for_cursor: bool,
}

impl Screen {
    fn resize(&mut self, width: usize, height: usize) {
        (self.width, self.height) = (width, height);
        self.cells = vec![' '; width * height];
    }

    /// Returns the lines, without trailing blanks.
    pub(super) fn text(&self) -> String {
        let width = self.width.max(1);
        let line = |cells: &[char]| cells.iter().collect::<String>().trim_end().to_owned() + "\n";
        self.cells.chunks(width).map(line).collect()
    }

    pub(super) fn line(&self, y: usize) -> String {
        self.text().lines().nth(y).unwrap_or_default().to_owned()
    }

    fn take(&mut self, bytes: &[u8]) {
        self.begun.extend(bytes);
        let bytes = std::mem::take(&mut self.begun);
        let mut rest = &bytes[..];
        while let Some(length) = self.step(rest) {
            rest = &rest[length..];
        }
        self.begun = rest.to_vec();
    }

    /// Processes one character or escape sequence. `None` if it is incomplete.
    fn step(&mut self, bytes: &[u8]) -> Option<usize> {
        match *bytes {
            [] | [0x1b] => None,
            [0x1b, b'[', ref sequence @ ..] => {
                let end = sequence.iter().position(|byte| (0x40..=0x7e).contains(byte))?;
                let words = String::from_utf8_lossy(&sequence[..end]).into_owned();
                self.obey(&words, sequence[end]);
                Some(end + 3)
            }
            [0x1b, _, ..] => Some(2),
            [b'\r', ..] => {
                self.at.0 = 0;
                Some(1)
            }
            [7, ..] => {
                self.bells += 1;
                Some(1)
            }
            [first, ..] => {
                let length = match first {
                    0xf0.. => 4,
                    0xe0.. => 3,
                    0xc0.. => 2,
                    _ => 1,
                };
                let text = std::str::from_utf8(bytes.get(..length)?).unwrap_or("?");
                for char in text.chars() {
                    self.put(char);
                }
                Some(length)
            }
        }
    }

    fn put(&mut self, char: char) {
        if !self.is_taken {
            self.printed.push(char);
            return;
        }
        let (x, y) = self.at;
        if x < self.width && y < self.height {
            self.cells[y * self.width + x] = char;
        }
        self.at.0 += 1;
    }

    fn obey(&mut self, words: &str, last: u8) {
        let number =
            |index: usize| words.split(';').nth(index).and_then(|word| word.parse().ok()).unwrap_or(1usize);
        match (last, words) {
            (b'H', _) => self.at = (number(1).saturating_sub(1), number(0).saturating_sub(1)),
            (b'J', "2") => self.cells.fill(' '),
            (b'h', "?1049") => {
                self.is_taken = true;
                self.cells.fill(' ');
            }
            (b'l', "?1049") => {
                self.last = self.text();
                self.is_taken = false;
            }
            (b'l', "?25") => self.hides_cursor = true,
            (b'h', "?25") => self.hides_cursor = false,
            (b'n', "6") => self.asks_for_cursor = true,
            _ => {}
        }
    }
}

pub(super) struct Terminal {
    person: File,
    child: Child,
    screen: Arc<Mutex<Screen>>,
    reader: Option<JoinHandle<()>>,
    /// Set to close the user's side.
    closes: Arc<AtomicBool>,
    /// Terminal settings before the program started.
    before: Termios,
}

fn set_size(person: &File, screen: &mut Screen, (width, height): (u16, u16)) {
    screen.resize(width.into(), height.into());
    let size = Winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(person, size).unwrap();
}

/// The state in which a program left its terminal.
pub(super) struct Left {
    pub status: ExitStatus,
    pub screen: Screen,
    /// Whether terminal settings for editing and echo are as before.
    pub is_as_before: bool,
}

impl Terminal {
    /// Starts a command in a terminal of this size, as the leader of a new session.
    pub(super) fn start(size: (u16, u16), command: &Command) -> Terminal {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let name = ptsname(&person, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let program = File::from(rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap());
        let person = File::from(person);
        let screen = Arc::new(Mutex::new(Screen::default()));
        let before = tcgetattr(&person).unwrap();
        // Make it the session's controlling terminal, so that it is /dev/tty and resizing sends a
        // signal.
        let mut child = Command::new("setsid");
        child.arg("-c").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => child.env(name, value),
                None => child.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            child.current_dir(folder);
        }
        child.env("TERM", "xterm-256color").env_remove("NO_COLOR");
        child
            .stdin(Stdio::from(program.try_clone().unwrap()))
            .stdout(Stdio::from(program.try_clone().unwrap()));
        child.stderr(Stdio::from(program));
        set_size(&person, &mut screen.lock().unwrap(), size);
        let mut terminal = Terminal {
            child: child.spawn().unwrap(),
            person,
            screen,
            reader: None,
            closes: Arc::default(),
            before,
        };
        // Drop the copies of the program's side, which would keep the reader from ending.
        drop(child);
        terminal.read();
        terminal
    }

    fn read(&mut self) {
        let screen = Arc::clone(&self.screen);
        let closes = Arc::clone(&self.closes);
        let mut person = self.person.try_clone().unwrap();
        self.reader = Some(std::thread::spawn(move || {
            let mut part = [0; 1 << 14];
            // An error means that no program has the other side open any more. The kernel may
            // report it before returning the program's last output (n_tty_read() in n_tty.c checks
            // for input first and for the other side second), so stop at the second error.
            let mut errors = 0;
            while errors < 2 {
                let count = match person.read(&mut part) {
                    Ok(0) => break,
                    Ok(count) => count,
                    Err(_) => {
                        errors += 1;
                        continue;
                    }
                };
                if closes.load(Ordering::Relaxed) {
                    break;
                }
                let mut screen = screen.lock().unwrap();
                screen.take(&part[..count]);
                if std::mem::take(&mut screen.asks_for_cursor) {
                    let _ = person.write_all(b"\x1b[1;1R");
                }
            }
        }));
    }

    pub(super) fn resize(&self, width: u16, height: u16) {
        set_size(&self.person, &mut self.screen.lock().unwrap(), (width, height));
    }

    /// Closes the terminal like its window would, and waits until the program has ended. The
    /// program must keep drawing.
    #[track_caller]
    pub(super) fn hang_up(mut self) {
        self.closes.store(true, Ordering::Relaxed);
        self.reader.take().unwrap().join().unwrap();
        self.person = File::open("/dev/null").unwrap();
        let until = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "it goes on without a terminal");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(super) fn keys(&mut self, keys: &str) {
        self.person.write_all(keys.as_bytes()).unwrap();
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap(), signal).unwrap();
    }

    pub(super) fn screen(&self) -> Screen {
        self.screen.lock().unwrap().clone()
    }

    /// Waits until the screen meets a condition.
    #[track_caller]
    pub(super) fn wait(&mut self, what: &str, is_so: impl Fn(&Screen) -> bool) -> Screen {
        let until = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("{what}: it ended with {status}: {}{}", screen.printed, screen.last);
            }
            assert!(Instant::now() < until, "{what}:\n{}", screen.text());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the program has ended, without a panic.
    #[track_caller]
    pub(super) fn ended(self) -> Left {
        let left = self.ended_by_panic();
        assert_ne!(left.status.code(), Some(101), "{}", left.screen.printed);
        left
    }

    /// Waits until the program has ended.
    #[track_caller]
    pub(super) fn ended_by_panic(mut self) -> Left {
        let until = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "it goes on:\n{}", self.screen().text());
            std::thread::sleep(Duration::from_millis(10));
        };
        let _ = self.reader.take().unwrap().join();
        let now = tcgetattr(&self.person).unwrap();
        let edits = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        let is_as_before = now.local_modes & edits == self.before.local_modes & edits
            && now.output_modes == self.before.output_modes
            && now.input_modes == self.before.input_modes;
        let screen = self.screen();
        Left { status, screen, is_as_before }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Left {
    /// Returns whether the program restored the terminal.
    pub(super) fn is_restored(&self) -> bool {
        let Screen { is_taken, hides_cursor, .. } = self.screen;
        let is_restored = self.is_as_before && !is_taken && !hides_cursor;
        if !is_restored {
            eprintln!(
                "modes as before: {}, screen taken: {is_taken}, cursor hidden: {hides_cursor}",
                self.is_as_before
            );
        }
        is_restored
    }

    pub(super) fn signal(&self) -> Option<i32> {
        self.status.signal()
    }
}
