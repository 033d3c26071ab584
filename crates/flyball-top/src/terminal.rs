//! The terminal: taken over for the screen, and given back however the program ends.

use std::{
    io::{self, BufWriter, Stdout, Write},
    mem::ManuallyDrop,
    panic,
    sync::{Once, OnceLock},
    time::Duration,
};

use crossterm::{
    cursor::{Hide, Show},
    event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    execute,
    terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::keys::Key;

/// The screen while it is taken over. It is not dropped: the library's drop (ratatui-core,
/// terminal.rs) shows the cursor, which [`give_back`] does, and panics where the terminal went
/// away, so that the recording would not be closed.
pub type Screen = ManuallyDrop<Terminal<CrosstermBackend<BufWriter<Stdout>>>>;

/// Gives the terminal back when it is dropped.
#[derive(Debug)]
pub struct TerminalGuard(());

/// Gives the terminal back. Whatever fails, the rest is tried: this is the last that the process
/// does with it.
pub fn give_back() {
    let mut out = io::stdout();
    let _ = execute!(out, LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
    let _ = out.flush();
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        give_back();
    }
}

/// Takes the terminal over.
///
/// # Errors
/// It is not a terminal, or went away.
pub fn take() -> io::Result<(TerminalGuard, Screen)> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        // First of all: the message would be drawn into the screen, and lost with it.
        panic::set_hook(Box::new(move |info| {
            give_back();
            before(info);
        }));
    });
    has_terminal();
    enable_raw_mode()?;
    // From here on every failure restores: raw mode without a screen would leave a terminal
    // that shows nothing typed.
    let taken = TerminalGuard(());
    execute!(io::stdout(), EnterAlternateScreen, Hide)?;
    // A frame is one write: without the buffer each change of colour would be one.
    let out = BufWriter::with_capacity(1 << 16, io::stdout());
    let screen = Terminal::new(CrosstermBackend::new(out))?;
    Ok((taken, ManuallyDrop::new(screen)))
}

/// Rings the bell.
///
/// # Errors
/// The terminal went away.
pub fn bell() -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(b"\x07")?;
    out.flush()
}

/// An event of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    Key(Key),
    Resized,
    /// The terminal went away: its window was closed, or the connection.
    Gone,
}

/// Returns whether stdin was a terminal at the start. A terminal that goes away no longer counts.
fn has_terminal() -> bool {
    static FIRST: OnceLock<bool> = OnceLock::new();
    *FIRST.get_or_init(|| rustix::termios::isatty(rustix::stdio::stdin()))
}

/// Waits until stdin has something to read, at most this long; whether it went away meanwhile.
fn is_gone(wait: Duration) -> bool {
    let stdin = rustix::stdio::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
    if poll(&mut polled, Some(&wait)).is_err() {
        // A signal. That of a terminal that goes away comes before the descriptor shows it
        // (__tty_hangup() in tty_io.c).
        std::thread::sleep(Duration::from_millis(20));
        let _ = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    }
    polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}

/// Waits for input, at most this long.
///
/// # Errors
/// The terminal went away.
pub fn input(wait: Duration) -> io::Result<Option<Input>> {
    // crossterm does not report a terminal that was hung up: this look does. Where stdin is not a
    // terminal crossterm reads /dev/tty, which this does not know.
    let left = if has_terminal() {
        if is_gone(wait) {
            return Ok(Some(Input::Gone));
        }
        Duration::ZERO
    } else {
        wait
    };
    // Without time to wait crossterm does not even look (event/source/unix/tty.rs).
    match event::poll(left.max(Duration::from_millis(1))) {
        Ok(true) => {}
        Ok(false) => return Ok(None),
        // A signal; the caller looks which.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(None),
        Err(error) => return Err(error),
    }
    Ok(match event::read()? {
        // Terminals with the keyboard protocol of kitty report releases too.
        Event::Key(key) if key.kind != KeyEventKind::Release => key_of(key).map(Input::Key),
        Event::Resize(..) => Some(Input::Resized),
        _ => None,
    })
}

fn key_of(event: KeyEvent) -> Option<Key> {
    Some(match event.code {
        KeyCode::Char(char) if event.modifiers.contains(KeyModifiers::CONTROL) => {
            Key::Ctrl(char.to_ascii_lowercase())
        }
        // Alt is for the terminal's and the multiplexer's own keys.
        KeyCode::Char(_) if event.modifiers.contains(KeyModifiers::ALT) => return None,
        KeyCode::Char(char) => Key::Char(char),
        KeyCode::F(number) => Key::Function(number),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Tab => Key::Tab,
        KeyCode::BackTab => Key::BackTab,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        _ => return None,
    })
}
