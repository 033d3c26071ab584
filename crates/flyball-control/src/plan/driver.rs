//! The cpufreq driver of a snapshot, which determines the meaning of other settings.

use crate::{Id, ReadError, Snapshot, Value};

/// Returns whether the driver chooses frequencies by itself (cpufreq's `setpolicy`), as
/// intel_pstate and amd-pstate do in active mode. `performance` and `powersave` are then the only
/// governors.
pub(super) fn chooses_by_itself(snapshot: &Snapshot) -> Result<bool, ReadError> {
    Ok(matches!(name(snapshot)?.as_deref(), Some("intel_pstate" | "amd-pstate-epp")))
}

/// Returns the cpufreq driver's name.
pub(super) fn name(snapshot: &Snapshot) -> Result<Option<String>, ReadError> {
    Ok(match snapshot.machine_value(Id::Driver)? {
        Some(Value::Word(name)) => Some(name),
        _ => None,
    })
}
