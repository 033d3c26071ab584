//! The cpufreq driver of a snapshot, which decides what other settings mean.

use crate::{Id, ReadError, Snapshot, Value};

/// Whether the driver chooses frequencies by itself (cpufreq's `setpolicy`): intel_pstate and
/// amd-pstate in active mode. Then `performance` and `powersave` are all the governors there are.
pub(super) fn chooses_by_itself(snapshot: &Snapshot) -> Result<bool, ReadError> {
    Ok(matches!(name(snapshot)?.as_deref(), Some("intel_pstate" | "amd-pstate-epp")))
}

/// The cpufreq driver's name.
pub(super) fn name(snapshot: &Snapshot) -> Result<Option<String>, ReadError> {
    Ok(match snapshot.machine_value(Id::Driver)? {
        Some(Value::Word(name)) => Some(name),
        _ => None,
    })
}
