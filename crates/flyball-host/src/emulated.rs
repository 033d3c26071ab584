//! Detects machines whose processors flyball itself emulates. Their firmware names flyball in the
//! DMI tables, so that programs in the guest and readers of a recording can recognise it.

use crate::{Host, Kind};

/// Manufacturer in the firmware of flyball's guests (`lab/crates/flyball-guest/src/qemu.rs`).
const GUEST_MANUFACTURER: &str = "flyball";

/// Returns the machine's own description, such as `guest of ryzen-5750g, closed loop`, if flyball
/// emulates its processors.
pub fn emulated(host: &dyn Host) -> Option<String> {
    const DMI: &str = "/sys/class/dmi/id";
    let said = |name: &str| host.read(&format!("{DMI}/{name}")).ok().filter(|text| !text.is_empty());
    if said("sys_vendor")? != GUEST_MANUFACTURER {
        return None;
    }
    let words: Vec<String> = ["product_name", "product_version"].into_iter().filter_map(said).collect();
    Some(if words.is_empty() { "guest".to_owned() } else { words.join(", ") })
}

/// Returns whether the machine is simulated, or a recording of a simulated machine. The release of
/// a simulated kernel shows this, and every recording contains the release.
pub fn simulated(host: &dyn Host) -> bool {
    let release = || host.read("/proc/sys/kernel/osrelease").or_else(|_| host.read("/proc/version"));
    host.kind() == Kind::Simulated || release().is_ok_and(|text| text.contains("-flyball-sim"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recorded;

    #[test]
    fn the_firmware_says_it() {
        let dir = tempfile::tempdir().unwrap();
        let dmi = dir.path().join("sys/class/dmi/id");
        std::fs::create_dir_all(&dmi).unwrap();
        let says = |vendor: &str| {
            std::fs::write(dmi.join("sys_vendor"), vendor).unwrap();
            emulated(&Recorded::open(dir.path()).unwrap())
        };
        assert_eq!(says("Dell Inc.\n"), None);
        assert_eq!(says("flyball\n").as_deref(), Some("guest"));
        std::fs::write(dmi.join("product_name"), "guest of x\n").unwrap();
        std::fs::write(dmi.join("product_version"), "closed loop\n").unwrap();
        assert_eq!(says("flyball\n").as_deref(), Some("guest of x, closed loop"));
    }
}
