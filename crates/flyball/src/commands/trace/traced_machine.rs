//! Facts about the machine of a trace: read from the machine while recording, and later from the
//! file or another recording.

use std::path::Path;

use flyball_files::read_bounded;
use flyball_host::{CpuList, Host, topology::CPUS};
use flyball_trace::Machine;

use crate::{exit::Failure, machine::MachineArg};

pub(crate) fn from_host(host: &dyn Host) -> Result<Machine, Failure> {
    let read = |path: &str| -> Option<String> {
        let text = host.read_optional(path).ok().flatten()?;
        Some(text.trim().to_owned())
    };
    let mut cores: Vec<Vec<u32>> = Vec::new();
    let mut driver = None;
    let mut cpus: Vec<u32> =
        host.list(CPUS)?.iter().filter_map(|name| name.strip_prefix("cpu")?.parse().ok()).collect();
    cpus.sort_unstable();
    for cpu in cpus {
        // Use the first CPU that has a driver: CPU 0 may be offline, and there is only one driver
        // at a time.
        if driver.is_none() {
            driver = read(&format!("{CPUS}/cpu{cpu}/cpufreq/scaling_driver"));
        }
        let path = format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list");
        let Some(Ok(list)) = read(&path).map(|text| text.parse::<CpuList>()) else { continue };
        let core: Vec<u32> = list.iter().collect();
        // Add each core once, at its first CPU. A core with one CPU has no siblings that could
        // conflict.
        if core.len() > 1 && core.first() == Some(&cpu) {
            cores.push(core);
        }
    }
    let processor = read("/proc/cpuinfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("model name"))?;
        Some(line.trim_start_matches([' ', '\t', ':']).to_owned())
    });
    Ok(Machine {
        processor,
        driver,
        command_line: read("/proc/cmdline").map(|text| Machine::telling_words(&text)),
        tickless: read(&format!("{CPUS}/nohz_full")),
        possible: read(&format!("{CPUS}/possible")),
        online: read(&format!("{CPUS}/online")),
        cores,
    })
}

/// Reads the facts from `from`: a machine for `-M`, or a file with the output of `lscpu -p`.
pub(crate) fn from_text(from: &str) -> Result<Machine, Failure> {
    let path = Path::new(from);
    if path.is_file()
        // A line of lscpu has about 20 bytes.
        && let Ok(text) = std::fs::File::open(path).and_then(|file| read_bounded(file, 16 << 20))
        && let Ok(text) = String::from_utf8(text)
    {
        return match lscpu(&text) {
            Some(cores) => Ok(Machine { cores, ..Machine::default() }),
            None => Err(Failure::usage(format!(
                "{from}: no output of `lscpu -p=CPU,CORE,SOCKET`, whose heading names these columns"
            ))),
        };
    }
    from_host(&*from.parse::<MachineArg>().map_err(Failure::usage)?.open()?)
}

/// Parses cores with several CPUs from `lscpu -p`: numbers separated by commas, after a heading
/// with the columns.
fn lscpu(text: &str) -> Option<Vec<Vec<u32>>> {
    let heading = text.lines().filter(|line| line.starts_with('#')).find(|line| line.contains("CPU,"))?;
    let names: Vec<String> =
        heading.trim_start_matches(['#', ' ']).split(',').map(|name| name.trim().to_lowercase()).collect();
    let column = |name: &str| names.iter().position(|known| known == name);
    let (cpu, core) = (column("cpu")?, column("core")?);
    // Most versions of lscpu number cores over the whole machine, but not all.
    let socket = column("socket");
    let mut cores: std::collections::BTreeMap<(String, String), Vec<u32>> = std::collections::BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let values: Vec<&str> = line.split(',').map(str::trim).collect();
        let number = values.get(cpu)?.parse().ok()?;
        let place = socket.and_then(|at| values.get(at)).copied().unwrap_or_default();
        // An offline CPU has no core number.
        let core = *values.get(core)?;
        if !core.is_empty() && core != "-" {
            cores.entry((place.to_owned(), core.to_owned())).or_default().push(number);
        }
    }
    Some(cores.into_values().filter(|core| core.len() > 1).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_read_from_lscpu() {
        let text = "# The following is the parsable format\n# CPU,Core,Socket\n0,0,0\n1,1,0\n2,0,1\n3,1,1\n4,0,0\n\
                    5,1,0\n6,-,-\n";
        assert_eq!(lscpu(text), Some(vec![vec![0, 4], vec![1, 5]]));
        assert_eq!(lscpu("# CPU,Core,Socket,Node,,L1d\n0,0,0,0,,0\n1,0,0,0,,0\n"), Some(vec![vec![0, 1]]));
        assert_eq!(lscpu("0,0,0\n"), None);
        assert_eq!(lscpu("# CPU,Core\nx,0\n"), None);
    }
}
