//! `-M guest:MACHINE[,OPTION]...`: a guest in which the whole command line runs. The options are
//! `driver=D`, `cpus=N`, `interface=W`, `cycles=N`, `class=C`, `seed=N`, `memory=MB`, `root=host`,
//! `file=FILE` and `open`.

use std::path::PathBuf;

use flyball_guest::{
    Interface, WorkloadClass,
    guest::{Request, Root},
    initramfs::JobFile,
    machine::Driver,
};

/// The default kernel: Debian stable's.
pub(crate) const KERNEL: &str = "6.12";

/// A guest that was selected with `-M guest:`.
#[derive(Debug, Clone)]
pub(crate) struct GuestArg {
    /// What to boot. The command is added later.
    pub(crate) request: Request,
}

impl GuestArg {
    /// Parses the text after `guest:`.
    pub(crate) fn parse(text: &str) -> Result<GuestArg, String> {
        let mut parts = text.split(',');
        let machine = parts.next().unwrap_or_default();
        let mut request = Request::new(machine, KERNEL, &[]);
        // Guest time follows the emulated processor unless the user says `open`, and a command may
        // run for as long as it needs.
        request.closed = true;
        request.timeout = None;
        // More than `guest run` uses, because flyball and its child processes need memory too.
        request.memory_mb = 768;
        for part in parts {
            let bad = || {
                format!(
                    "'{part}' in 'guest:{text}' is not understood; after the name come driver=amd-pstate=passive, \
                     cpus=N, interface=cppc-mailbox, cycles=N, class=network, seed=N, memory=MB, file=FILE (for the command's \
                     directory), root=host or open, separated by commas"
                )
            };
            match part.split_once('=') {
                Some(("driver", word)) => {
                    request.driver = Driver::parse(word).map_err(|error| error.to_string())?;
                }
                Some(("cpus", number)) => request.cpus = number.parse().map_err(|_| bad())?,
                Some(("seed", number)) => request.seed = number.parse().map_err(|_| bad())?,
                Some(("cycles", number)) => {
                    let cycles: Option<f64> = number.parse().ok().filter(|n| (0.25..=1000.0).contains(n));
                    let cycles = cycles.ok_or_else(bad)?;
                    // Fixed point, as in the plug-in: 1/256 of a cycle. The limit of 1000 ensures
                    // that it fits.
                    request.cycles = (cycles * 256.0) as u32;
                }
                Some(("class", word)) => request.class = workload_class(word)?,
                Some(("memory", number)) => request.memory_mb = number.parse().map_err(|_| bad())?,
                Some(("interface", word)) => {
                    request.interface = Some(Interface::parse(word).ok_or_else(bad)?);
                }
                // May be repeated. A file name with a comma cannot be given here.
                Some(("file", file)) if !file.is_empty() => request.files.push(JobFile::parse(file)),
                Some(("root", "host")) => request.root = Root::Directory("/".into()),
                Some(("root", dir)) => request.root = Root::Directory(dir.into()),
                None if part == "open" => request.closed = false,
                _ => return Err(bad()),
            }
        }
        // Drivers that are modules in these kernels and that flyball's commands use. "?" makes a
        // module optional.
        request.modules = [
            "?acpi-cpufreq",
            "?msr",
            "?intel_rapl_msr",
            "?coretemp",
            "?cpufreq_ondemand",
            "?cpufreq_powersave",
        ]
        .map(str::to_owned)
        .into();
        request.copy_back = Some(PathBuf::from("."));
        Ok(GuestArg { request })
    }
}

/// Returns the workload class with that name.
pub(crate) fn workload_class(word: &str) -> Result<WorkloadClass, String> {
    WorkloadClass::named(word).ok_or_else(|| {
        let names = WorkloadClass::ALL.map(|class| class.name).join(", ");
        format!("unknown workload class '{word}' (expected {names})")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_no_guest_has_are_rejected() {
        assert_eq!(GuestArg::parse("ryzen-5750g,cpus=2,open").unwrap().request.cpus, 2);
        assert!(GuestArg::parse("x,colour=red").is_err());
    }
}
