//! From the text after `-M` to the machine that it names.

use flyball_host::{Host, Live, Plain, Recorded};

use crate::exit::{Exit, Failure};

/// Opens the machine that `name` names: `live`, or a directory that holds `sys/`.
pub fn open(name: &str) -> Result<Box<dyn Host>, Failure> {
    if name == "live" {
        return Ok(Box::new(Live::new()));
    }
    // Plain files that take writes, for tests.
    if let Some(root) = name.strip_prefix("tree:") {
        return Ok(Box::new(Plain::open(root)?));
    }
    match Recorded::open(name) {
        Ok(host) => Ok(Box::new(host)),
        Err(error) => Err(Failure::new(
            Exit::Usage,
            format!("no machine at '{name}': {error}; give 'live' or a directory that holds sys/ and proc/"),
        )),
    }
}
