//! Takes over the terminal for the screen, and restores it however the program ends.

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

/// The screen on the terminal. Never dropped: the library's drop (ratatui-core, terminal.rs) shows
/// the cursor, which [`give_back`] does anyway, and it panics if the terminal went away, so that
/// the recording would not be closed.
pub type Screen = ManuallyDrop<Terminal<CrosstermBackend<BufWriter<Stdout>>>>;

/// Restores the terminal when it is dropped.
#[derive(Debug)]
pub struct TerminalGuard(());

/// Restores the terminal. Tries every step even if one fails, because nothing restores it
/// afterwards.
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
/// Stdout is not a terminal, or the terminal went away.
pub fn take() -> io::Result<(TerminalGuard, Screen)> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        // First restore the terminal: otherwise the panic message would go to the alternate screen
        // and be lost with it.
        panic::set_hook(Box::new(move |info| {
            give_back();
            before(info);
        }));
    });
    has_terminal();
    enable_raw_mode()?;
    // From here on, an error must restore the terminal: it would stay in raw mode and not echo what
    // is typed.
    let taken = TerminalGuard(());
    execute!(io::stdout(), EnterAlternateScreen, Hide)?;
    // With this buffer, a frame is one write. Otherwise, each change of colour would be one.
    let out = BufWriter::with_capacity(1 << 16, io::stdout());
    let screen = Terminal::new(CrosstermBackend::new(out))?;
    Ok((taken, ManuallyDrop::new(screen)))
}

/// An event of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    Key(Key),
    Resized,
    /// The terminal went away: its window was closed, or the connection.
    Gone,
}

/// Returns whether stdin was a terminal at the start. A terminal that went away is no longer one.
fn has_terminal() -> bool {
    static FIRST: OnceLock<bool> = OnceLock::new();
    *FIRST.get_or_init(|| rustix::termios::isatty(rustix::stdio::stdin()))
}

/// Waits up to `wait` for input on stdin. Returns whether the terminal went away.
fn is_gone(wait: Duration) -> bool {
    let stdin = rustix::stdio::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
    if poll(&mut polled, Some(&wait)).is_err() {
        // A signal. When a terminal goes away, the signal comes before the descriptor shows it
        // (__tty_hangup() in tty_io.c).
        std::thread::sleep(Duration::from_millis(20));
        let _ = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    }
    polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}

/// Waits up to `wait` for input.
///
/// # Errors
/// The terminal went away.
pub fn input(wait: Duration) -> io::Result<Option<Input>> {
    // crossterm does not report a terminal that was hung up, so check here. If stdin is not a
    // terminal, crossterm reads /dev/tty, which this check does not see.
    let left = if has_terminal() {
        if is_gone(wait) {
            return Ok(Some(Input::Gone));
        }
        Duration::ZERO
    } else {
        wait
    };
    // With a wait of zero, crossterm does not check for input at all (event/source/unix/tty.rs).
    match event::poll(left.max(Duration::from_millis(1))) {
        Ok(true) => {}
        Ok(false) => return Ok(None),
        // A signal. The caller finds out which.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(None),
        Err(error) => return Err(error),
    }
    Ok(match event::read()? {
        // Terminals with kitty's keyboard protocol report key releases too.
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
        // Keys with Alt belong to the terminal and the multiplexer.
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
