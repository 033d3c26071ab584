//! The likely reason behind an errno, by the file that answered it, with what to do about it.
//!
//! The rules are from the drivers' store functions (intel_pstate.c, amd-pstate.c, cpufreq.c, intel_rapl_common.c,
//! uncore-frequency-tpmi.c) and from what real kernels answered; each errno there has one or two causes.

use flyball_host::{Errno, Host, HostError};

use crate::Location;

/// Why `location` answered `error`, in words for a person; `None` where nothing is known beyond the errno.
pub fn reason(host: &dyn Host, location: &Location, error: &HostError) -> Option<String> {
    let words = match error.errno {
        Errno::ROFS => "this machine is a recording or is mounted read-only: nothing can be written to it",
        Errno::PERM | Errno::ACCES if location.path().is_none() => {
            "writing registers needs root, and the kernel refuses it under lockdown (secure boot) or msr.allow_writes=off"
        }
        Errno::ACCES => "it is root's, or read-only on this kernel: run flyball with sudo",
        Errno::PERM => return Some(permission(location)),
        _ => return by_file(host, location, error.errno),
    };
    Some(words.to_owned())
}

fn permission(location: &Location) -> String {
    match location.name() {
        "no_turbo" => "the firmware has turbo switched off: switch it on in the BIOS setup",
        "min_freq_khz" | "max_freq_khz" => "the firmware blocks writes to the uncore registers",
        "disable" => "it needs CAP_SYS_ADMIN: run flyball with sudo, outside a container",
        "online" | "control" => "this CPU cannot be taken offline or brought online",
        _ => "it needs root (and, in a container, the capability): run flyball with sudo",
    }
    .to_owned()
}

fn by_file(host: &dyn Host, location: &Location, errno: Errno) -> Option<String> {
    let path = location.path().unwrap_or_default();
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let text = |name: &str| host.read(&format!("{folder}/{name}")).unwrap_or_default();
    let words = match (location.name(), errno) {
        (name, Errno::BUSY) if path.contains("/cpufreq/policy") => {
            let cpus = text("affected_cpus");
            if cpus.is_empty() {
                "every CPU of this policy is offline: bring one online first (online=on)".to_owned()
            } else if name == "energy_performance_preference" {
                format!(
                    "under the governor '{}' only the preference 'performance' is accepted: set governor=powersave as \
                     well",
                    text("scaling_governor")
                )
            } else {
                "the policy is being made anew, or its CPUs are offline: try again".to_owned()
            }
        }
        ("energy_performance_preference", Errno::INVAL) => {
            let list = text("energy_performance_available_preferences");
            format!("this driver does not know that preference; it accepts: {list}")
        }
        ("energy_performance_preference", Errno::OPNOTSUPP) => {
            "this processor has no energy preference of its own: use epb".to_owned()
        }
        ("scaling_governor", Errno::INVAL) => format!(
            "this driver does not have that governor, or its module cannot be loaded; it has: {}",
            text("scaling_available_governors")
        ),
        ("scaling_setspeed", Errno::INVAL) => format!(
            "only the governor 'userspace' takes a speed, and this policy has '{}': set governor=userspace as well",
            text("scaling_governor")
        ),
        ("status", Errno::BUSY) => {
            "intel_pstate cannot be switched off while hardware P-states (HWP) are on; boot with intel_pstate=disable \
             to use another driver"
                .to_owned()
        }
        ("status", Errno::INVAL) => "this kernel's driver does not have that mode".to_owned(),
        ("status", Errno::NODEV | Errno::OPNOTSUPP) => {
            "the driver cannot work on this processor: see the kernel log (dmesg | grep pstate)".to_owned()
        }
        ("no_turbo" | "min_perf_pct" | "max_perf_pct" | "energy_performance_preference", Errno::AGAIN) => {
            "intel_pstate is off: set driver-mode=active or passive first".to_owned()
        }
        ("boost", Errno::INVAL) if path.contains("/policy") => {
            "boost is off for the whole machine, or this policy cannot boost: set turbo=on for all CPUs first".to_owned()
        }
        ("boost", Errno::INVAL | Errno::OPNOTSUPP) => {
            "this processor cannot boost, or the firmware has it switched off (Core Performance Boost in the BIOS setup)"
                .to_owned()
        }
        ("online", Errno::BUSY) => "the kernel refuses to take this CPU away now (something is bound to it)".to_owned(),
        ("online" | "control", Errno::PERM | Errno::NODEV | Errno::OPNOTSUPP) => {
            "this machine or kernel cannot do that (nosmt=force, or no SMT in the processor)".to_owned()
        }
        (name, Errno::NODATA) if name.contains("power_limit") || name.contains("time_window") => {
            "the firmware has locked the power limits: unlock them in the BIOS setup".to_owned()
        }
        ("min_freq_khz" | "max_freq_khz", Errno::INVAL) => {
            "outside what the hardware, or the package's own entry, allows".to_owned()
        }
        ("min_freq_khz" | "max_freq_khz", Errno::NXIO) => "no CPU of that die is online".to_owned(),
        (_, Errno::NOENT | Errno::NODEV) if path.contains("/cpufreq/") => {
            "the file went away: the driver was switched or the CPU was taken offline meanwhile".to_owned()
        }
        (_, Errno::INVAL) => "the kernel does not accept that value there".to_owned(),
        (_, Errno::BUSY) => "something else is using it".to_owned(),
        (_, Errno::IO) => "the hardware or its firmware did not answer: see the kernel log (dmesg)".to_owned(),
        _ => return None,
    };
    Some(words)
}
