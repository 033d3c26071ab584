//! `--power-command`: power of the whole machine from a command of the user's.

use flyball_control::Topology;
use flyball_host::{CpuList, Host, Kind};
use flyball_measure::{Manifest, PowerCommand};

use super::rounds::RoundArgs;
use crate::exit::Failure;

/// Rejects a command for a machine other than this one, before anything is created.
pub(in crate::commands) fn check(host: &dyn Host, args: &RoundArgs) -> Result<(), Failure> {
    // The command runs on this computer and measures it, so it would be wrong for a simulated
    // machine.
    if args.power_command.is_some() && host.kind() != Kind::Live {
        return Err(Failure::usage("--power-command measures this machine, not one of -M"));
    }
    Ok(())
}

/// Starts the command, if there is one. `pinned` are the workload's CPUs.
pub(in crate::commands) fn start(
    host: &dyn Host,
    args: &RoundArgs,
    pinned: Option<&CpuList>,
) -> Result<Option<PowerCommand>, Failure> {
    check(host, args)?;
    let Some(line) = &args.power_command else { return Ok(None) };
    let online = Topology::inspect(host).map(|topology| topology.online).unwrap_or_default();
    // If the workload is not pinned, no CPU is free.
    let free = pinned.map(|pinned| online.difference(pinned)).filter(|free| !free.is_empty());
    PowerCommand::start(line, free).map(Some).map_err(Failure::failed)
}

/// Returns whether the rounds so far have power from a command.
pub(super) fn has_power_command(manifest: &Manifest) -> bool {
    let mut sources = manifest.boots.iter().flat_map(|boot| &boot.meters.energy);
    sources.any(flyball_measure::EnergySource::is_command)
}

/// Like [`start`], for a comparison that is resumed: requires the command if and only if earlier
/// rounds had one.
pub(in crate::commands) fn resumed(
    host: &dyn Host,
    manifest: &Manifest,
    args: &RoundArgs,
) -> Result<Option<PowerCommand>, Failure> {
    match (has_power_command(manifest), args.power_command.is_some()) {
        (true, false) => {
            Err(Failure::usage("the earlier rounds have a power command; give --power-command again"))
        }
        (false, true) if !manifest.boots.is_empty() => {
            Err(Failure::usage("the earlier rounds have no power command; their meters cannot change now"))
        }
        _ => {
            let pinned = manifest.workload.cpus.as_ref().and_then(|cpus| cpus.parse().ok());
            start(host, args, pinned.as_ref())
        }
    }
}
