//! The simulated machine that matches a guest: made from the same file and reduced in the same way.

use flyball_guest::{Interface, machine::GuestMachine};
use flyball_sim::{Boot, Kernel, SimMachine};

/// The machine and driver of a guest.
pub(crate) struct Twin<'a> {
    pub kernel: &'a str,
    pub machine: &'a str,
    pub driver: &'a str,
    /// The words of the command line that select the driver.
    pub words: &'a [&'a str],
    pub interface: Option<&'a str>,
    pub cpus: u32,
}

impl Twin<'_> {
    /// Returns the machine, and whether it is AMD's. The guest's firmware has no preferred profile.
    /// AMD's driver therefore assumes a server, Intel's does not.
    pub(crate) fn boot(&self) -> Result<(SimMachine, bool), String> {
        let interface = match self.interface {
            Some(_) => Some(Interface::CppcMailbox),
            // As in the guest: if the firmware has enabled HWP, the driver cannot leave it off.
            None => self.driver.ends_with("no_hwp").then_some(Interface::HwpOff),
        };
        let mut spec =
            GuestMachine::find(self.machine, self.cpus, interface).map_err(|e| e.to_string())?.spec;
        let amd = spec.identity.vendor == flyball_silicon::spec::Vendor::Amd;
        spec.identity.server = amd;
        let kernel = Kernel::ALL.iter().copied().find(|kernel| kernel.to_string() == self.kernel);
        let kernel = kernel.ok_or("no such kernel")?;
        let boot = Boot {
            options: self.words.iter().map(|&word| word.to_owned()).collect(),
            modular_governors: false,
        };
        Ok((SimMachine::boot(spec, kernel, boot, 0).map_err(|error| error.to_string())?, amd))
    }
}
