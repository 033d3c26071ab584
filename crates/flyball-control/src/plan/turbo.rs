//! Detects that turbo was switched off before the base frequencies changed.
//!
//! Since kernel 6.12 intel_pstate lowers `cpuinfo_max_freq` to the base frequency when `no_turbo`
//! is written (intel_pstate_update_limits_for_all in store_no_turbo), and ignores writes that
//! change nothing. When base-freq or a performance level moves the base frequencies while turbo is
//! off, the limits stay at the old ones: cores that base-freq favours cannot go higher. The driver
//! updates the limits only when turbo is switched on and off again.

use super::{Change, Planner, Want};
use crate::{At, Id, Location, Place, ReadError, Value};

/// Smaller differences are rounding in firmware tables.
pub(super) const TOLERANCE_KHZ: u64 = 50_000;

impl Planner<'_> {
    /// Returns the turbo file if turbo is off and stays off, and its limit is not the base
    /// frequency, or will no longer be. The second value is true if the limit is wrong already.
    pub(super) fn outdated_turbo_off(&self) -> Result<Option<(Location, bool)>, ReadError> {
        let concerned = [Id::Turbo, Id::SstBf, Id::SstLevel, Id::MinFreq, Id::MaxFreq];
        if !self.wants.keys().any(|(knob, _)| concerned.contains(knob)) {
            return Ok(None);
        }
        let off = Some(Value::Switch(false));
        if self.snapshot.machine_value(Id::Turbo)? != off
            || self.wants.get(&(Id::Turbo, At::Machine)).is_some_and(|want| want.value != off)
        {
            return Ok(None);
        }
        let machine = Place::machine();
        let Some(slot) = self.snapshot.slot(Id::Turbo, &machine)? else { return Ok(None) };
        // cpufreq/boost belongs to other drivers, which do not use base frequencies as limits.
        if slot.location.name() != "no_turbo" {
            return Ok(None);
        }
        let mut any_lowered = false;
        for (place, entry) in self.snapshot.entries(Id::HwMaxFreq)? {
            // Skip policies that were not requested.
            if entry.is_none() {
                continue;
            }
            let frequency = |id| {
                Ok::<_, ReadError>(
                    self.snapshot.value_if_readable(id, place)?.and_then(|value| value.frequency()),
                )
            };
            let (Some(highest), Some(base)) = (frequency(Id::HwMaxFreq)?, frequency(Id::BaseFreq)?) else {
                continue;
            };
            // The limit is below the base frequency already, so switch even if the intent moves
            // nothing.
            if highest.0 + TOLERANCE_KHZ < base.0 {
                return Ok(Some((slot.location.clone(), true)));
            }
            // Before 6.12 the file keeps the turbo frequency, so nothing has to be switched.
            any_lowered |= highest.0 < base.0 + TOLERANCE_KHZ;
        }
        Ok((any_lowered && self.moves_base_frequencies()).then(|| (slot.location.clone(), false)))
    }

    /// Returns whether the intent moves base frequencies.
    pub(super) fn moves_base_frequencies(&self) -> bool {
        let moves = |want: &Want| {
            matches!(want.knob, Id::SstBf | Id::SstLevel) && want.value.is_some() && want.value != want.now
        };
        self.wants.values().any(moves)
    }

    /// Switches turbo on and off again if it is off with outdated base frequencies.
    pub(super) fn turbo_again(&mut self) -> Result<(), ReadError> {
        let Some((location, now)) = self.outdated_turbo_off()? else { return Ok(()) };
        let Some(control) = Id::Turbo.knob().control() else { return Ok(()) };
        let when = if now { "are not those of" } else { "will not be those of" };
        self.changes.push(Change {
            knob: Id::Turbo,
            instance: String::new(),
            place: Place::machine().to_string(),
            cpus: self.snapshot.topology().present.clone(),
            step: control.writing.turn.step("1"),
            location,
            // 1 turns turbo off. Writing 1 over 1 does nothing (store_no_turbo), so write 0 first.
            old: Some("1".to_owned()),
            through: Some("0".to_owned()),
            shown_as: None,
            new: "1".to_owned(),
            was: Some("off".to_owned()),
            value: "off".to_owned(),
            from: String::new(),
            because: format!(
                "turbo is off, and the driver's limits {when} the base frequencies; it looks only when turbo is switched: on, \
                 and off again"
            ),
            provisional: !now,
        });
        Ok(())
    }
}
