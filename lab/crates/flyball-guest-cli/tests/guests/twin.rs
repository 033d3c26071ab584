//! The simulated machine that is a guest's: the same file, cut down the same way.

use flyball_guest::{Interface, machine::GuestMachine};
use flyball_sim::{Boot, Kernel, SimMachine};

/// What a guest boots.
pub(crate) struct Twin<'a> {
    pub kernel: &'a str,
    pub machine: &'a str,
    pub driver: &'a str,
    /// The words of the command line that make the driver.
    pub words: &'a [&'a str],
    pub interface: Option<&'a str>,
    pub cpus: u32,
}

impl Twin<'_> {
    /// The machine, and whether it is AMD's. The guest's firmware names no preferred profile, which
    /// AMD's driver takes for a server and Intel's does not.
    pub(crate) fn boot(&self) -> Result<(SimMachine, bool), String> {
        let interface = match self.interface {
            Some(_) => Some(Interface::CppcMailbox),
            // As the guest does: firmware that has HWP on does not let it be refused.
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
