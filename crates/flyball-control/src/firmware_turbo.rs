//! Turbo that the firmware has switched off, so that no setting can switch it on.

use crate::{At, Evidence, Id, Place, ReadError, Snapshot, Value, Vendor};

/// Turbo as the firmware has set it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirmwareTurbo {
    Allowed,
    /// Bit 38 of MSR 0x1a0 is set in these packages.
    Off {
        packages: Vec<u32>,
        is_everywhere: bool,
    },
    /// The flag is missing: the firmware has turbo off, or the processor has no turbo.
    NoFlag(&'static str),
    /// The highest CPPC level is the nominal one (neither Intel nor AMD), so there is nothing to
    /// switch, whatever the file says.
    Absent,
}

impl FirmwareTurbo {
    /// Judges by the processor's flags, and by whether the bit is set in each package whose
    /// register can be read. Processors of neither Intel nor AMD are judged by their levels.
    pub(crate) fn new(
        vendor: Vendor,
        has_flag: impl Fn(&str) -> bool,
        has_boost_file: bool,
        bits: &[(u32, bool)],
        has_equal_levels: impl FnOnce() -> bool,
    ) -> FirmwareTurbo {
        let flag = match vendor {
            // acpi-cpufreq's switch writes the same bit (boost_set_msr). It creates the file only
            // if the flag was there at boot (acpi_cpufreq_boost_init).
            Vendor::Intel if has_boost_file => return FirmwareTurbo::Allowed,
            Vendor::Intel => "ida",
            Vendor::Amd => "cpb",
            Vendor::Other if has_equal_levels() => return FirmwareTurbo::Absent,
            Vendor::Other => return FirmwareTurbo::Allowed,
        };
        let packages: Vec<u32> =
            bits.iter().filter(|(_, is_off)| *is_off).map(|(package, _)| *package).collect();
        if !packages.is_empty() {
            let is_everywhere = packages.len() == bits.len();
            return FirmwareTurbo::Off { packages, is_everywhere };
        }
        // While the bit is set, the processor clears CPUID.06H:EAX[1], which is the flag ida (Intel
        // SDM 4).
        if has_flag(flag) { FirmwareTurbo::Allowed } else { FirmwareTurbo::NoFlag(flag) }
    }
}

impl Snapshot {
    /// Returns turbo as the firmware has set it, with the evidence.
    ///
    /// # Errors
    /// The snapshot was taken without the knobs that show it.
    pub fn firmware_turbo(&self) -> Result<(FirmwareTurbo, Vec<Evidence>), ReadError> {
        let topology = self.topology();
        let switch = self.slot(Id::Turbo, &Place::machine())?;
        let has_boost_file = switch.is_some_and(|slot| slot.location.name() == "boost");
        let (mut bits, mut seen) = (Vec::new(), Vec::new());
        for place in self.places(Id::FirmwareTurbo)? {
            let At::Package(package) = place.at else { continue };
            let is_off = self.value_if_readable(Id::FirmwareTurbo, place)? == Some(Value::Switch(false));
            bits.push((package, is_off));
            if is_off {
                seen.push(self.evidence(Id::FirmwareTurbo, place));
            }
        }
        let has_flag = |flag: &str| topology.flags.is_empty() || topology.flags.contains(flag);
        let equal = self.equal_levels();
        let is_equal = || equal.is_some();
        let turbo = FirmwareTurbo::new(topology.vendor, has_flag, has_boost_file, &bits, is_equal);
        if let (FirmwareTurbo::Absent, Some(levels)) = (&turbo, equal) {
            seen = levels;
        }
        if let FirmwareTurbo::NoFlag(flag) = turbo {
            seen = vec![Evidence { place: "/proc/cpuinfo flags".to_owned(), value: format!("no {flag}") }];
        }
        Ok((turbo, seen))
    }

    /// Returns the CPPC levels as evidence if the highest is the nominal one: cppc_cpufreq then
    /// refuses boost of a policy (policy->boost_supported).
    fn equal_levels(&self) -> Option<Vec<Evidence>> {
        let level = |knob: Id| {
            let place = self.places(knob).ok()?.first()?;
            Some((self.value_if_readable(knob, place).ok()??, self.evidence(knob, place)))
        };
        let (highest, nominal) = (level(Id::CppcHighest)?, level(Id::CppcNominal)?);
        (highest.0 == nominal.0).then(|| vec![highest.1, nominal.1])
    }
}
