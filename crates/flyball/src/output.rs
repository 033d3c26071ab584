//! Data on stdout as JSON. What comes from a simulated machine says so in every object that is printed.

use std::{
    io::Write,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::exit::{Exit, Failure};

/// Whether the machine of this command exists only in software: said once, by whoever opens it, before data is printed.
static SIMULATED: AtomicBool = AtomicBool::new(false);

/// From now on data is of a simulated machine.
pub fn mark_simulated() {
    SIMULATED.store(true, Ordering::Release);
}

/// Prints `data` as JSON, on lines of its own.
pub fn print_json(data: &impl serde::Serialize) -> Result<(), Failure> {
    let failed =
        |error: std::io::Error| Failure::new(Exit::Failed, format!("cannot write to stdout: {error}"));
    let out = std::io::stdout().lock();
    let mut out = std::io::BufWriter::with_capacity(1 << 16, out);
    if SIMULATED.load(Ordering::Acquire) {
        let text = serde_json::to_string_pretty(data).map_err(|error| failed(error.into()))?;
        out.write_all(marked(&text).as_bytes()).map_err(failed)?;
    } else {
        serde_json::to_writer_pretty(&mut out, data).map_err(|error| failed(error.into()))?;
    }
    out.write_all(b"\n").and_then(|()| out.flush()).map_err(failed)
}

/// Puts the word into an object, or into each of a list of objects, as their first field. JSON has no line ends inside of
/// strings, so that lines tell where the outermost objects begin; the order of all other fields stays as it is.
fn marked(text: &str) -> String {
    let (opening, field) = match text.lines().next() {
        Some("{") => ("{", "  \"simulated\": true"),
        Some("[") => ("  {", "    \"simulated\": true"),
        _ => return text.to_owned(),
    };
    // Some say it themselves.
    if text.lines().any(|line| line.starts_with(field)) {
        return text.to_owned();
    }
    let mut lines = Vec::new();
    for line in text.lines() {
        lines.push(line.to_owned());
        if line == opening {
            lines.push(format!("{field},"));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &serde_json::Value) {
        let text = marked(&serde_json::to_string_pretty(value).unwrap());
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        let says = |value: &serde_json::Value| value["simulated"] == true;
        match &read {
            serde_json::Value::Object(fields) if !fields.is_empty() => assert!(says(&read), "{text}"),
            serde_json::Value::Array(items) => {
                assert!(
                    items.iter().filter(|item| item.as_object().is_some_and(|f| !f.is_empty())).all(says),
                    "{text}"
                );
            }
            _ => assert_eq!(&read, value),
        }
    }

    #[test]
    fn objects_and_lists_of_them_say_it() {
        check(&serde_json::json!({ "a": { "b": [1, { "c": 2 }] }, "d": "x\n  {\ny" }));
        check(&serde_json::json!([{ "a": {} }, { "b": [{}] }, {}, 3]));
        check(&serde_json::json!({ "simulated": true, "a": 1 }));
        check(&serde_json::json!({}));
        check(&serde_json::json!([]));
        check(&serde_json::json!("text"));
    }
}
