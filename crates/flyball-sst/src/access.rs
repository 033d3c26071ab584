//! A common form of both interfaces: mailboxes (API 1) and power-domain registers (TPMI, API 2 and
//! 3).
//!
//! A request names a [`DomainAddress`]. Mailboxes are reached through a CPU of the package, TPMI
//! through package and domain. Frequencies are in MHz on both, whatever the registers hold.

pub mod commands;
mod cpu_model;
mod dump;
mod interface;
mod mailbox;
mod tpmi;

use flyball_host::{Errno, Host, HostError, Op, isst};

pub use cpu_model::{CpuModel, ICELAKE_X, SKYLAKE_X};
pub use dump::Dump;
pub use interface::{
    Access, BaseFreq, Clos, DomainAddress, Features, LevelData, Levels, PmConfig, Qos, TurboFreq, TurboLimits,
};
pub use mailbox::Mailbox;
pub use tpmi::Tpmi;

/// Opens the interface that the drivers offer.
///
/// # Errors
/// `EOPNOTSUPP` for an unknown interface version.
pub fn open<'h>(
    host: &'h dyn Host,
    platform: &isst::Platform,
    model: &CpuModel,
) -> Result<Box<dyn Access + 'h>, HostError> {
    match platform.api_version {
        1 => Ok(Box::new(Mailbox::new(host, model))),
        // Reject later versions: their structures may be larger, and the driver would access memory
        // beyond ours.
        2 | 3 => Ok(Box::new(Tpmi::new(host, platform.api_version))),
        version => {
            let what = format!("interface version {version} of {}", isst::NODE);
            Err(HostError::new(Op::Isst, what, Errno::OPNOTSUPP))
        }
    }
}
