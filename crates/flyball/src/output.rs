//! Prints the commands' results on stdout. A command builds data, and the [`Reporter`] prints it as
//! text or as JSON. JSON has an envelope that names its schema and says if the machine is not real.

use std::{
    fmt::Display,
    io::{self, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use flyball_host::{Host, emulated, simulated};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    exit::{Exit, Failure},
    terminal,
};

/// Data that a command prints with `--json`.
pub(crate) trait Document: Serialize + JsonSchema {
    /// Name and number of the schema, as in `"schema": "get/1"`. Only an incompatible change needs
    /// a new number; adding fields does not.
    const ID: &'static str;
}

impl<T: Document> Document for &T {
    const ID: &'static str = T::ID;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
    /// Print nothing, because the data is part of another object.
    Nothing,
}

/// The first fields of JSON objects that describe a machine that is not real.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize)]
struct Provenance {
    /// The machine exists only in software.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    simulated: bool,
    /// The machine is a guest whose processors flyball emulates.
    #[serde(skip_serializing_if = "Option::is_none")]
    emulated: Option<String>,
}

/// Data with its schema and provenance as the first fields.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Envelope<'a, T> {
    schema: &'static str,
    #[serde(flatten)]
    provenance: &'a Provenance,
    #[serde(flatten)]
    data: T,
}

/// Prints data in the user's chosen format.
#[derive(Debug, Clone)]
pub(crate) struct Reporter {
    format: Format,
    provenance: Provenance,
}

impl Reporter {
    /// A reporter for data that is not about a machine.
    pub(crate) fn new(format: Format) -> Reporter {
        Reporter { format, provenance: Provenance::default() }
    }

    pub(crate) fn about(&self, host: &dyn Host) -> Reporter {
        if self.format != Format::Json {
            // Only JSON has an envelope.
            return self.clone();
        }
        let provenance = Provenance { simulated: simulated(host), emulated: emulated(host) };
        Reporter { format: self.format, provenance }
    }

    /// Returns a reporter for data about a machine that may be simulated.
    pub(crate) fn about_simulated(&self, simulated: bool) -> Reporter {
        Reporter { format: self.format, provenance: Provenance { simulated, emulated: None } }
    }

    /// Returns whether the format is JSON, for commands that collect other data for it than for
    /// text.
    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Prints an object: `data` as JSON, or `text`. Only builds what it prints.
    pub(crate) fn object<T: Document>(
        &self,
        data: impl FnOnce() -> T,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Text => print(text()),
            Format::Json => json(&self.envelope(data())),
            Format::Nothing => Ok(()),
        }
    }

    /// Prints an object of a stream as JSON on one line.
    pub(crate) fn json_line<T: Document>(&self, data: &T) -> Result<(), Failure> {
        let mut out = terminal::json_stdout();
        let text = serde_json::to_string(&self.envelope(data)).map_err(Failure::failed)? + "\n";
        checked(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
    }

    /// Prints a list of objects, each with its schema and provenance.
    pub(crate) fn list<T: Document>(
        &self,
        data: impl FnOnce() -> Vec<T>,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Text => print(text()),
            Format::Json => {
                let items: Vec<_> = data().into_iter().map(|data| self.envelope(data)).collect();
                json(&items)
            }
            Format::Nothing => Ok(()),
        }
    }

    /// Returns the object as the content of a JSON file.
    pub(crate) fn file<T: Document>(data: T) -> Result<Vec<u8>, Failure> {
        let whole = Envelope { schema: T::ID, provenance: &Provenance::default(), data };
        serde_json::to_vec_pretty(&whole).map_err(Failure::failed)
    }

    fn envelope<T: Document>(&self, data: T) -> Envelope<'_, T> {
        Envelope { schema: T::ID, provenance: &self.provenance, data }
    }
}

/// Set if something could not be written to stderr.
static STDERR_FAILED: AtomicBool = AtomicBool::new(false);

/// Writes to stderr. If that fails, the standard library's macros would panic, perhaps in the
/// middle of a change.
pub(crate) fn complain(text: impl Display) {
    if !terminal::complain(terminal::fitted_stderr(text.to_string())) {
        STDERR_FAILED.store(true, Ordering::Relaxed);
    }
}

/// Returns the exit code of the process. A success whose output could not be written becomes
/// another code. The exit code of a command that flyball ran is kept.
pub(crate) fn concluded(exit: Exit) -> Exit {
    if exit == Exit::Done && STDERR_FAILED.load(Ordering::Relaxed) { Exit::Unwritten } else { exit }
}

pub(crate) fn print(text: impl Display) -> Result<(), Failure> {
    let mut out = terminal::stdout();
    // Flush here, where an error can be reported. At the end of the process it would be lost.
    let text = terminal::fitted(text.to_string());
    checked(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Prints text for another program on stdout, without fitting it to the terminal.
pub(crate) fn raw(text: &str) -> Result<(), Failure> {
    let mut out = terminal::stdout();
    checked(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

pub(crate) fn line(text: impl Display) -> Result<(), Failure> {
    print(format_args!("{text}\n"))
}

fn json(data: &impl Serialize) -> Result<(), Failure> {
    // Buffered, because stdout flushes at every line, and the JSON of a large machine has tens of
    // thousands.
    let mut out = io::BufWriter::with_capacity(1 << 16, terminal::json_stdout());
    let written = serde_json::to_writer_pretty(&mut out, data).map_err(io::Error::from);
    checked(written.and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()))
}

/// Turns an error of writing to stdout (a full disk behind `>`) into a failure. A reader that went
/// away is no failure. That only gets here if SIGPIPE does not end the process.
pub(crate) fn checked(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Unwritten, format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_envelope_comes_first_and_says_only_what_applies() {
        #[derive(Serialize)]
        struct Data {
            b: u8,
            a: [u8; 2],
        }
        let text = |provenance: &Provenance| {
            serde_json::to_string(&Envelope { schema: "get/1", provenance, data: &Data { b: 1, a: [2, 3] } })
                .unwrap()
        };
        assert_eq!(text(&Provenance::default()), r#"{"schema":"get/1","b":1,"a":[2,3]}"#);
        let simulated = Provenance { simulated: true, emulated: None };
        assert_eq!(text(&simulated), r#"{"schema":"get/1","simulated":true,"b":1,"a":[2,3]}"#);
        let emulated = Provenance { simulated: false, emulated: Some("guest".to_owned()) };
        assert_eq!(text(&emulated), r#"{"schema":"get/1","emulated":"guest","b":1,"a":[2,3]}"#);
    }
}
