//! The program's output. Its own text goes through flyball's writer, which escapes control
//! characters. The bytes of a command in the guest are passed on unchanged.

use std::io::{self, Write as _};

use flyball_process::terminal::{Form, Plain};
use serde::Serialize;

use crate::failure::{Exit, Failure};

/// The JSON Schemas of the output of `--json`.
pub(crate) mod schema {
    pub(crate) const LIST: &str = "guest-list/1";
    pub(crate) const TEST: &str = "guest-test/1";
    pub(crate) const FUZZ: &str = "guest-fuzz/1";
}

/// Data with its schema as the first field.
#[derive(Serialize)]
struct Envelope<T> {
    schema: &'static str,
    #[serde(flatten)]
    data: T,
}

/// Prints data as JSON that follows this schema.
pub(crate) fn json(schema: &'static str, data: impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(&Envelope { schema, data }).map_err(Failure::failed)?;
    write(Form::Json, &format!("{text}\n"))
}

/// Prints text on stdout.
pub(crate) fn text(text: &str) -> Result<(), Failure> {
    write(Form::Text { coloured: false }, text)
}

fn write(form: Form, text: &str) -> Result<(), Failure> {
    let mut out = Plain::new(io::stdout(), form);
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| Failure::new(Exit::Unwritten, format!("cannot write to stdout: {error}")))
}
