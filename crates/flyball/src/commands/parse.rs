//! `flyball parse`: whether words are a command line. Nothing is run. The tests of the examples in
//! documents ask it.

use crate::exit::{Exit, Failure};

/// Arguments of `parse`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The words, without the program's.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Parses the words.
pub(crate) fn run(top: clap::Command, args: &Args) -> Result<Exit, Failure> {
    let words = std::iter::once("flyball").chain(args.words.iter().map(String::as_str));
    match top.try_get_matches_from(words) {
        Err(error) if error.use_stderr() => Err(Failure::usage(error.render().to_string())),
        _ => Ok(Exit::Done),
    }
}
