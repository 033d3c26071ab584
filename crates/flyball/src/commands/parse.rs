//! `flyball parse`: checks whether words are a valid command line, without running it. Used by
//! tests of examples in documents.

use crate::exit::{Exit, Failure};

/// Arguments of `parse`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The words, without the program's.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

pub(crate) fn run(top: clap::Command, args: &Args) -> Result<Exit, Failure> {
    let words = std::iter::once("flyball").chain(args.words.iter().map(String::as_str));
    match top.try_get_matches_from(words) {
        Err(error) if error.use_stderr() => Err(Failure::usage(error.render().to_string())),
        _ => Ok(Exit::Done),
    }
}
