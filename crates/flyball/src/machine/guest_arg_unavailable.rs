//! `-M guest:MACHINE` in a build without the feature `guest`: understood, so that the command can
//! say what is missing.

use std::fmt;

/// A guest that was chosen with `-M guest:`.
#[derive(Debug, Clone)]
pub struct GuestArg {
    typed: String,
}

impl GuestArg {
    /// Keeps what follows `guest:`.
    #[expect(clippy::unnecessary_wraps, reason = "as in a build with guests")]
    pub fn parse(text: &str) -> Result<GuestArg, String> {
        Ok(GuestArg { typed: text.to_owned() })
    }

    /// Nothing is booted.
    pub fn set_kernel(&mut self, _kernel: &str) {}
}

impl fmt::Display for GuestArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.typed)
    }
}
