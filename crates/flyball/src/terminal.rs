//! All output to stdout and stderr. Uses the writer of [`flyball_process::terminal`], which makes
//! control characters visible instead of sending them.
//!
//! `eprintln!` in this program calls [`crate::output::complain`], and data goes through
//! [`crate::output`]. A lint forbids `println!`, and a test looks for other ways to print.

mod wrap;

use std::{
    fs::{File, Metadata},
    io::{self, IsTerminal, Write},
    os::{fd::AsFd as _, unix::fs::MetadataExt as _},
    path::Path,
};

use flyball_process::terminal::{Form, Plain};
pub(crate) use flyball_process::terminal::{Mark, complain, is_mark, stderr};

pub(crate) fn stdout() -> Plain<io::Stdout> {
    Plain::new(io::stdout(), Form::Text { coloured: is_coloured() })
}

pub(crate) fn json_stdout() -> Plain<io::Stdout> {
    Plain::new(io::stdout(), Form::Json)
}

/// Uses colours as the user requested, instead of as stdout and the environment suggest.
pub(crate) fn use_colours(choice: clap::ColorChoice) {
    match choice {
        clap::ColorChoice::Auto => anstream::ColorChoice::Auto,
        clap::ColorChoice::Always => anstream::ColorChoice::Always,
        clap::ColorChoice::Never => anstream::ColorChoice::Never,
    }
    .write_global();
}

/// Returns whether stdout shows colours: if the terminal supports them and the user did not turn
/// them off (NO_COLOR, CLICOLOR).
pub(crate) fn is_coloured() -> bool {
    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
}

pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Returns whether the path is that of stdout (`record /dev/stdout`).
pub(crate) fn is_stdout(path: &Path) -> bool {
    let identity = |status: Metadata| (status.dev(), status.ino());
    let stdout = io::stdout().as_fd().try_clone_to_owned().and_then(|stdout| File::from(stdout).metadata());
    match (std::fs::metadata(path), stdout) {
        (Ok(file), Ok(stdout)) => identity(file) == identity(stdout),
        _ => false,
    }
}

/// Returns whether stdout is a terminal on which a screen can be drawn.
pub(crate) fn is_screen() -> bool {
    is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb" && !term.is_empty())
}

/// Returns the width of the terminal on stdout. `None` if it is not a terminal.
pub(crate) fn columns() -> Option<usize> {
    let columns =
        // A serial console has no size; 80 columns fit it.
        || terminal_size::terminal_size_of(io::stdout()).map_or(80, |(width, _)| usize::from(width.0));
    is_terminal().then(columns)
}

/// Fits `text` to stdout: on a terminal, breaks lines at its width.
pub(crate) fn fitted(text: String) -> String {
    match columns() {
        Some(width) => wrap::wrap(&text, width),
        None => text,
    }
}

/// Fits `text` to stderr, like [`fitted`].
pub(crate) fn fitted_stderr(text: String) -> String {
    if !io::stderr().is_terminal() {
        return text;
    }
    let columns = terminal_size::terminal_size_of(io::stderr()).map_or(80, |(width, _)| usize::from(width.0));
    wrap::wrap(&text, columns)
}

/// Draws `line` over the last line of stderr, if that is a terminal, and says whether it is.
pub(crate) fn redraw(line: &str) -> bool {
    let mut stderr = io::stderr().lock();
    if !stderr.is_terminal() {
        return false;
    }
    // Shorten the line, since a wrapped line could not be erased.
    let columns = terminal_size::terminal_size_of(&stderr).map_or(80, |(width, _)| usize::from(width.0));
    let line: String = line.chars().take(columns.saturating_sub(1)).collect();
    // Go to the start of the line and erase it. Ignore errors: if the terminal went away, only this
    // line is lost.
    let _ = stderr.write_all(b"\r\x1b[K");
    let mut plain = Plain::new(stderr, Form::Text { coloured: false });
    let _ = plain.write_all(line.as_bytes()).and_then(|()| plain.flush());
    true
}

/// Returns stderr as a file, for the output of a command if the report uses stdout.
pub(crate) fn stderr_file() -> io::Result<File> {
    io::stderr().as_fd().try_clone_to_owned().map(File::from)
}
