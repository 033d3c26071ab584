//! A service's reports, one line each.

use crate::{Action, Cause, Drift, HoldName};

/// An event for the log.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    Drift(Box<Drift>),
    /// The holds that are in force, the strongest last.
    InForce(Vec<HoldName>),
    /// A command has added or replaced a hold.
    Added {
        hold: HoldName,
        owner: String,
    },
    /// A command has released a hold.
    Released(HoldName),
    /// A hold has ended by itself.
    Ended(HoldName),
    /// The holds cannot be applied, or the configuration cannot be used.
    Failed(String),
    /// Another flyball has held the lock for a long time.
    Waiting(String),
}

/// The priority of a notice, as syslog(3) numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Priority {
    Error = 3,
    Warning = 4,
    Notice = 5,
    Info = 6,
}

impl Notice {
    pub fn priority(&self) -> Priority {
        match self {
            Notice::Failed(_) => Priority::Error,
            Notice::Waiting(_) => Priority::Warning,
            Notice::Drift(drift) if matches!(drift.action, Action::GaveWay | Action::Failed(_)) => {
                Priority::Warning
            }
            Notice::Drift(_) => Priority::Notice,
            Notice::InForce(_) | Notice::Added { .. } | Notice::Released(_) | Notice::Ended(_) => {
                Priority::Info
            }
        }
    }

    /// Returns the fields of the journal, by which programs filter, besides the text.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        match self {
            Notice::Drift(drift) => {
                let mut fields = vec![
                    ("HOLD", drift.hold.to_string()),
                    ("KNOB", drift.knob.to_string()),
                    ("CPUS", drift.cpus.to_string()),
                    ("WANTED", drift.wanted.clone()),
                ];
                fields.extend(drift.found.clone().map(|found| ("FOUND", found)));
                if let Cause::Written(by) | Cause::After { by, .. } = &drift.cause {
                    fields.extend(by.name.clone().map(|name| ("BY", name)));
                    fields.push(("BY_PID", by.pid.to_string()));
                }
                fields
            }
            Notice::Added { hold, owner } => vec![("HOLD", hold.to_string()), ("OWNER", owner.clone())],
            Notice::Released(hold) | Notice::Ended(hold) => vec![("HOLD", hold.to_string())],
            Notice::InForce(_) | Notice::Failed(_) | Notice::Waiting(_) => Vec::new(),
        }
    }
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Notice::Drift(drift) => drift.fmt(f),
            Notice::InForce(holds) if holds.is_empty() => f.write_str("no hold is in force"),
            Notice::InForce(holds) => {
                let names: Vec<&str> = holds.iter().map(HoldName::as_str).collect();
                write!(f, "in force: {}", names.join(", "))
            }
            Notice::Added { hold, owner } => write!(f, "hold {hold} added by {owner}"),
            Notice::Released(hold) => write!(f, "hold {hold} released"),
            Notice::Ended(hold) => write!(f, "hold {hold} has ended"),
            Notice::Failed(error) => f.write_str(error),
            Notice::Waiting(holder) => write!(f, "waiting: {holder}"),
        }
    }
}
