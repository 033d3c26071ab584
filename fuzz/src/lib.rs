//! Every parser of flyball as a function of bytes. A target must not panic, hang or take much
//! memory, whatever the bytes say; what it returns only tells a driver without coverage whether an
//! input led somewhere new.

mod exporter;
mod files;
mod guests;
mod holds;
mod isst;
mod results;
mod texts;
mod traces;

/// A parser to be fuzzed.
pub struct Target {
    /// Its name, and that of its folder in `fuzz/corpus`.
    pub name: &'static str,
    /// Parses the bytes, and describes what came out.
    pub run: fn(&[u8]) -> String,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "text", run: traces::text },
    Target { name: "dat", run: traces::dat },
    Target { name: "format", run: traces::format },
    Target { name: "page", run: traces::page },
    Target { name: "cpulist", run: texts::cpulist },
    Target { name: "cpuinfo", run: texts::cpuinfo },
    Target { name: "profile", run: texts::profile },
    Target { name: "import", run: texts::import },
    Target { name: "setting", run: texts::setting },
    Target { name: "arm", run: texts::arm },
    Target { name: "machine", run: texts::machine },
    Target { name: "setup", run: texts::setup },
    Target { name: "series", run: texts::series },
    Target { name: "selftest", run: texts::selftest },
    Target { name: "tpmi", run: texts::tpmi },
    Target { name: "interrupts", run: texts::interrupts },
    Target { name: "archive", run: files::archive },
    Target { name: "packed", run: files::packed },
    Target { name: "directory", run: files::directory },
    Target { name: "journal", run: files::journal },
    Target { name: "state", run: files::state },
    Target { name: "run", run: files::run_directory },
    Target { name: "samples", run: files::samples },
    Target { name: "package", run: guests::package },
    Target { name: "lists", run: guests::lists },
    Target { name: "image", run: guests::image },
    Target { name: "results", run: guests::results },
    Target { name: "test-record", run: guests::test_record },
    Target { name: "results-input", run: results::input },
    Target { name: "results-parquet", run: results::parquet },
    Target { name: "http", run: exporter::http },
    Target { name: "web-config", run: exporter::web_config },
    Target { name: "readings", run: exporter::readings },
    Target { name: "isst", run: isst::answers },
    Target { name: "hold-config", run: holds::config },
    Target { name: "hold-reload", run: holds::reload },
    Target { name: "hold-lines", run: holds::lines },
    Target { name: "hold-store", run: holds::store },
    Target { name: "hold-reports", run: holds::reports },
];

/// What came out, or the error without numbers and paths: the same mistake at another place is not
/// new.
fn outcome<T, E: std::fmt::Display>(result: Result<T, E>, shape: impl FnOnce(T) -> String) -> String {
    match result {
        Ok(value) => shape(value),
        Err(error) => plain(&error.to_string()),
    }
}

/// The words of a message that are no paths, without digits.
fn plain(message: &str) -> String {
    let words = message.split_whitespace().filter(|word| !word.contains('/'));
    let words: Vec<String> =
        words.map(|word| word.chars().filter(|char| !char.is_ascii_digit()).collect()).collect();
    words.join(" ").chars().take(120).collect()
}
