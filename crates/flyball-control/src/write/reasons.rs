//! Finds the likely reason behind an errno, and the remedy.
//!
//! The knob's row gives errnos their meaning for that knob (`refusals`); this module has the
//! general meanings. The rules come from the drivers' store functions (intel_pstate.c,
//! amd-pstate.c, cpufreq.c, intel_rapl_common.c, uncore-frequency-tpmi.c) and from the answers of
//! real kernels. Each errno there has one or two causes.

use std::fmt;

use flyball_host::{Errno, Host, HostError};

use crate::{Location, Scope, knob::subject::Subject};

/// The reason why the kernel refused a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The machine is a recording, or mounted read-only.
    ReadOnlyMachine,
    /// Registers cannot be written.
    Registers,
    /// The user is not root.
    NotRoot,
    /// The user is not root, or lacks a capability.
    NotPermitted,
    /// Every CPU of the policy is offline.
    PolicyOffline,
    /// The policy is being recreated.
    PolicyRecreated,
    /// The meaning of the errno in the knob's row. Files in the same folder fill its placeholders.
    OfRow {
        /// The message, with placeholders.
        means: &'static str,
        /// The contents, by placeholder.
        seen: Vec<(&'static str, String)>,
    },
    /// The file is gone.
    Gone,
    /// The value is not accepted.
    NotAccepted,
    /// Something else uses it.
    InUse,
    /// The hardware or its firmware did not answer.
    NoAnswer,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::ReadOnlyMachine => {
                "this machine is a recording or is mounted read-only: nothing can be written to it"
            }
            Reason::Registers => {
                "writing registers needs root, and the kernel refuses it under lockdown (secure boot) or \
                 msr.allow_writes=off"
            }
            Reason::NotRoot => "it is root's, or read-only on this kernel: run flyball with sudo",
            Reason::NotPermitted => {
                "it needs root (and, in a container, the capability): run flyball with sudo"
            }
            Reason::PolicyOffline => {
                "every CPU of this policy is offline: bring one online first (online=on)"
            }
            Reason::PolicyRecreated => {
                "the kernel is recreating the policy, or its CPUs are offline: try again"
            }
            Reason::OfRow { means, seen } => {
                let mut words = (*means).to_owned();
                for (name, content) in seen {
                    words = words.replace(&format!("{{{name}}}"), content);
                }
                return f.write_str(&words);
            }
            Reason::Gone => {
                "the file went away: the driver was switched or the CPU was taken offline meanwhile"
            }
            Reason::NotAccepted => "the kernel does not accept that value there",
            Reason::InUse => "something else is using it",
            Reason::NoAnswer => "the hardware or its firmware did not answer: see the kernel log (dmesg)",
        })
    }
}

/// Returns why writing to `location`, which holds `subject`, failed with `error`; `None` if nothing
/// is known beyond the errno.
pub fn reason(
    host: &dyn Host,
    location: &Location,
    subject: Option<Subject>,
    error: &HostError,
) -> Option<Reason> {
    // The error already contains the output of the user's command. Its errno is not the kernel's.
    if matches!(location, Location::Command(_)) {
        return None;
    }
    let errno = error.errno;
    match errno {
        Errno::ROFS => return Some(Reason::ReadOnlyMachine),
        // EPERM is lockdown or allow_writes=off (msr_write and filter_write in
        // arch/x86/kernel/msr.c).
        Errno::PERM | Errno::ACCES if matches!(location, Location::Msr { .. }) => {
            return Some(Reason::Registers);
        }
        Errno::ACCES => return Some(Reason::NotRoot),
        _ => {}
    }
    let path = location.path().unwrap_or_default();
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let in_folder = |name: &str| host.read(&format!("{folder}/{name}")).unwrap_or_default();
    let of_policy = matches!(subject, Some(Subject::Knob(id)) if id.knob().scope == Scope::Policy);
    // The kernel refuses every access to a policy without CPUs (cpufreq.c, policy_is_inactive),
    // whatever the file.
    if of_policy && errno == Errno::BUSY && in_folder("affected_cpus").is_empty() {
        return Some(Reason::PolicyOffline);
    }
    let refusals = subject.and_then(Subject::writing).map_or(&[][..], |writing| writing.refusals);
    if let Some(refusal) = refusals.iter().find(|refusal| refusal.errnos.contains(&errno)) {
        let seen = placeholders(refusal.means).map(|name| (name, in_folder(name))).collect();
        return Some(Reason::OfRow { means: refusal.means, seen });
    }
    Some(match errno {
        Errno::PERM => Reason::NotPermitted,
        // store() in cpufreq.c returns EBUSY while the policy has no CPU, for example for a moment
        // while it is recreated.
        Errno::BUSY if of_policy => Reason::PolicyRecreated,
        Errno::NOENT | Errno::NODEV if !path.is_empty() => Reason::Gone,
        Errno::INVAL => Reason::NotAccepted,
        Errno::BUSY => Reason::InUse,
        Errno::IO => Reason::NoAnswer,
        _ => return None,
    })
}

/// Returns the names between braces.
pub(crate) fn placeholders(means: &'static str) -> impl Iterator<Item = &'static str> {
    means.split('{').skip(1).filter_map(|rest| rest.split_once('}').map(|(name, _)| name))
}
