//! The memory of the TPMI device (8086:09a7, one per package), as intel_vsec, intel_vsec_tpmi and
//! the drivers above them expect it: a table of features at the start, then the registers of each
//! feature, with one instance per power domain.
//!
//! | at | feature | content |
//! |---|---|---|
//! | 0 | | the table (PFS): 64 bits a feature, see [`TpmiDevice`] |
//! | 4 KiB | 0x80 control | the mailbox with which a driver asks whether it may use a feature |
//! | 8 KiB | 0x81 info | the device's PCI address and the package's number |
//! | 12 KiB | 0x02 uncore | with TPMI clusters: header, cluster's offset, status, control |
//! | 16 KiB | 0x05 Speed Select | the blocks of flyball-silicon |
//!
//! The device must have PCI Express extended capability 0x23 with vendor 8086 and id 66 (TPMI),
//! with the number of entries, an entry size of 2 doublewords and table offset 0 in its first
//! memory region.

use flyball_silicon::{Silicon, spec::SstClass};

const SST: u32 = 0x05;
const UNCORE: u32 = 0x02;
const CONTROL: u32 = 0x80;
const INFO: u32 = 0x81;

const KIB: u32 = 1024;
const AT_CONTROL: u32 = 4 * KIB;
const AT_INFO: u32 = 8 * KIB;
const AT_UNCORE: u32 = 12 * KIB;
const AT_SST: u32 = 16 * KIB;
/// Bytes of an uncore instance: header, cluster's offset, status, control, two advanced registers.
const UNCORE_BYTES: u32 = 48;

/// Completion codes of the control mailbox (TPMI_CMD_STATUS_SUCCESS in
/// drivers/platform/x86/intel/tpmi.c).
const SUCCESS: u64 = 0x40;
const FAILED: u64 = 0x80;
/// The only command that the control mailbox supports here: the state of a feature.
const GET_STATE: u64 = 0x10;

/// The TPMI device of a package. flyball-silicon defines the meaning of its registers.
#[derive(Clone, Debug)]
pub(crate) struct TpmiDevice {
    /// Number of entries in the table of features. Each entry has 8 bytes: identity (7:0),
    /// instances (15:8), doublewords per instance (31:16), offset in KiB (47:32), attribute
    /// (49:48).
    pub(crate) features: u32,
    /// Size of the memory in bytes, a power of two.
    pub(crate) bytes: u32,
    /// The device's PCI bus, as reported by INFO. It is device 3, function 1.
    pub(crate) bus: u32,
    package: usize,
    /// The control mailbox: status and command.
    control: [u64; 2],
}

/// One feature: identity, offset, bytes per instance, instances.
type Feature = (u32, u32, u32, u32);

fn features(silicon: &Silicon) -> Vec<Feature> {
    let domains = silicon.tpmi_domains() as u32;
    let mut all = vec![(CONTROL, AT_CONTROL, 40, 1), (INFO, AT_INFO, 16, 1)];
    if silicon.spec().uncore.as_ref().is_some_and(|u| u.clusters > 0) {
        all.push((UNCORE, AT_UNCORE, UNCORE_BYTES, domains));
    }
    all.push((SST, AT_SST, Silicon::tpmi_bytes(), domains));
    all
}

impl TpmiDevice {
    /// The TPMI device of a package; `None` if the machine has none.
    pub(crate) fn new(silicon: &Silicon, package: usize) -> Option<TpmiDevice> {
        let sst = silicon.spec().sst.as_ref().filter(|s| s.class == SstClass::Tpmi)?;
        if package >= silicon.topology().packages() {
            return None;
        }
        let features = features(silicon);
        let end = features.iter().map(|(_, at, size, count)| at + size * count).max().unwrap_or(0);
        let bus = sst.pci_bus.get(package).copied().unwrap_or(0x80 * package as u32);
        // A BAR's size is a power of two.
        Some(TpmiDevice {
            features: features.len() as u32,
            bytes: end.next_power_of_two(),
            bus,
            package,
            control: [0; 2],
        })
    }

    /// Reads 64 bits of memory; `offset` is a multiple of 8. Missing registers read 0.
    pub(crate) fn read(&self, silicon: &Silicon, offset: u32) -> u64 {
        let features = features(silicon);
        if let Some(&(id, at, size, count)) = features.get(offset as usize / 8) {
            // Attribute 1: the registers are for the operating system's drivers.
            let place = u64::from(at / KIB) << 32 | 1 << 48;
            return u64::from(id) | u64::from(count) << 8 | u64::from(size / 4) << 16 | place;
        }
        let Some((id, domain, register)) = find(&features, offset) else { return 0 };
        match id {
            SST => silicon.tpmi_read(self.package, domain as usize, register).unwrap_or(0),
            UNCORE => silicon.uncore_cluster_read(self.package, domain as usize, register),
            CONTROL => self.control.get(register as usize / 8).copied().unwrap_or(0),
            // Header, then function, device, bus, package (isst's and the uncore's drivers read the
            // package here).
            _ if register == 0 => 2,
            _ => 1 | 3 << 3 | u64::from(self.bus & 0xff) << 8 | (self.package as u64 & 0xff) << 16,
        }
    }

    /// Writes 64 bits of memory. Read-only and missing registers do not change.
    pub(crate) fn write(&mut self, silicon: &mut Silicon, offset: u32, value: u64) {
        let Some((id, domain, register)) = find(&features(silicon), offset) else { return };
        match id {
            SST => {
                silicon.tpmi_write(self.package, domain as usize, register, value);
            }
            UNCORE => silicon.uncore_cluster_write(self.package, domain as usize, register, value),
            CONTROL => self.control_mailbox(silicon, register, value),
            _ => {}
        }
    }

    /// The mailbox for features' states. Status register: run (0), owner (5:4, 1 is the operating
    /// system), done with it (6), completion code (15:8). Command register: command (7:0), in the
    /// upper half the feature (47:40) and then the answer.
    fn control_mailbox(&mut self, silicon: &Silicon, register: u32, value: u64) {
        let known = |id: u64| features(silicon).iter().any(|f| u64::from(f.0) == id);
        let blocked = silicon.spec().sst.as_ref().is_some_and(|s| s.write_blocked);
        let [status, command] = self.control;
        self.control = match register {
            0 if value & 1 != 0 => {
                let id = command >> 40 & 0xff;
                if command & 0xff == GET_STATE && known(id) {
                    // Enabled (0), writes blocked (4), the feature (15:8).
                    let state = 1 | u64::from(blocked && id == u64::from(SST)) << 4 | id << 8;
                    [1 << 4 | SUCCESS << 8, command & 0xffff_ffff | state << 32]
                } else {
                    [1 << 4 | FAILED << 8, command]
                }
            }
            // The operating system is done with the mailbox, and releases it.
            0 if value & 1 << 6 != 0 => [0, command],
            // A command makes the operating system the owner.
            8 => [1 << 4, value],
            _ => [status, command],
        };
    }
}

/// Finds the feature register at an offset: identity, instance, offset in the instance.
fn find(features: &[Feature], offset: u32) -> Option<(u32, u32, u32)> {
    features.iter().find_map(|&(id, at, size, count)| {
        let inside = offset.checked_sub(at)?;
        (inside < size * count).then_some((id, inside / size, inside % size))
    })
}

#[cfg(test)]
mod tests {
    use flyball_silicon::MachineSpec;

    use super::*;

    fn chip() -> Silicon {
        Silicon::new(MachineSpec::builtin("tpmi-large").unwrap(), 0).unwrap()
    }

    /// The offset and size of a feature, read from the table as a driver does.
    fn feature(s: &Silicon, device: &TpmiDevice, id: u64) -> (u32, u32, u32) {
        let mut entries = (0..device.features).map(|n| device.read(s, 8 * n));
        let entry = entries.find(|e| e & 0xff == id).unwrap();
        ((entry >> 32 & 0xffff) as u32 * 1024, (entry >> 16 & 0xffff) as u32 * 4, (entry >> 8 & 0xff) as u32)
    }

    #[test]
    fn a_driver_finds_its_registers_through_the_table() {
        let mut s = chip();
        let device = |s: &Silicon, package| TpmiDevice::new(s, package);
        assert!(device(&s, 2).is_none());
        let (first, mut second) = (device(&s, 0).unwrap(), device(&s, 1).unwrap());
        let (at, size, count) = feature(&s, &first, 0x05);
        assert_eq!(count, 5, "three dies, two IO dies");
        assert_eq!(first.read(&s, at) & 0xff, 1, "version of the interface");
        // Change core power in the third domain of package 1, and check that only this domain
        // changes.
        second.write(&mut s, at + 2 * size + 0x10, 1);
        assert_eq!(second.read(&s, at + 2 * size + 0x18), 1);
        assert_eq!(first.read(&s, at + 2 * size + 0x18), 0);
        let (info, ..) = feature(&s, &first, 0x81);
        assert_eq!(second.read(&s, info + 8) >> 16 & 0xff, 1, "the package");
        assert!(at + size * count <= first.bytes);
    }

    #[test]
    fn the_control_mailbox_tells_a_features_state() {
        let mut spec = MachineSpec::builtin("tpmi-large").unwrap();
        spec.sst.as_mut().unwrap().write_blocked = true;
        let mut s = Silicon::new(spec, 0).unwrap();
        let mut device = TpmiDevice::new(&s, 0).unwrap();
        let (at, ..) = feature(&s, &device, 0x80);
        let mut ask = |id: u64| {
            device.write(&mut s, at + 8, 0x10 | id << 40);
            assert_eq!(device.read(&s, at) >> 4 & 3, 1, "ours now");
            device.write(&mut s, at, 1);
            let (status, state) = (device.read(&s, at), device.read(&s, at + 8) >> 32);
            device.write(&mut s, at, 1 << 6);
            (status >> 8 & 0xff, state)
        };
        assert_eq!(ask(0x05), (0x40, 0x0511));
        assert_eq!(ask(0x02), (0x40, 0x0201));
        assert_eq!(ask(0x77).0, 0x80);
    }

    #[test]
    fn a_lower_uncore_saves_power() {
        let mut s = chip();
        let mut device = TpmiDevice::new(&s, 0).unwrap();
        let (at, size, count) = feature(&s, &device, 0x02);
        assert_eq!(device.read(&s, at + 0x18) >> 8 & 0x7f, 22);
        s.advance(50_000_000, &[]);
        let before = s.power(0).0;
        for domain in 0..count {
            device.write(&mut s, at + domain * size + 0x18, 8 << 8 | 8 << 15);
        }
        s.advance(50_000_000, &[]);
        assert!(s.power(0).0 < before * 0.9, "{} W before, {} W after", before, s.power(0).0);
        assert_eq!(device.read(&s, at + 0x10) & 0x7f, 8);
    }
}
