//! The lines of a journal: each has a checksum and one record.

use serde::{Deserialize, Serialize};

use crate::{Content, Location, knob::spelling::Handling};

/// The purpose of a transaction. Commands that undo one kind of transaction select it by purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// Permanent settings: `set`, `apply`, `doctor --fix`.
    Set,
    QuietOn,
    /// `quiet` around one command.
    Quiet,
    /// Settings for one command.
    Run,
    /// The arms of a comparison.
    Compare,
    /// Tests that write.
    Doctor,
    /// Settings that `flyball hold` keeps.
    Hold,
    /// A purpose that a later flyball defines. An unknown name must not make the line count as
    /// damaged: the lines after it can still be restored.
    #[serde(other)]
    Other,
}

/// The boot and the machine that a journal belongs to.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize, Deserialize)]
pub struct Environment {
    pub boot: Option<String>,
    pub machine: String,
}

/// A record of the present format.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    Header {
        format: u32,
        boot: Option<String>,
        machine: String,
    },
    Begin {
        id: u32,
        pid: u32,
        command: String,
        at: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        purpose: Option<Purpose>,
        /// A copy of the header's boot and machine, so that a journal whose header is damaged can
        /// still be restored.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<Environment>,
        /// The holds that the transaction is for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        holds: Vec<String>,
    },
    Was {
        location: Location,
        content: Content,
        #[serde(flatten)]
        handling: Handling,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        late: bool,
        /// Only in a rewritten journal. Otherwise it follows from the writes.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        lost: bool,
        /// Only in a rewritten journal. Otherwise it follows from the writes.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        seen_late: bool,
    },
    Write {
        location: Location,
        old: Content,
        new: Content,
        /// How to write `old` back.
        #[serde(flatten)]
        handling: Handling,
        /// True if a hold wants the present content, and nothing was written.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        kept: bool,
    },
    /// The kernel refused the last write of a driver's mode and kept the earlier mode, so the
    /// driver has removed nothing.
    Refused {
        location: Location,
    },
    Commit {
        id: u32,
    },
    Restored {
        id: u32,
    },
    /// No hold sets these locations any more: they have been restored separately, or belong to
    /// another writer. Their contents in transactions of holds are void.
    Released {
        locations: Vec<Location>,
    },
}

pub(super) fn line(record: &Record) -> Vec<u8> {
    // A record has string keys and no other maps, so serialization cannot fail.
    let json = serde_json::to_string(record).unwrap_or_default();
    format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes())).into_bytes()
}
