//! CPUs to pin a workload to: a list, or the best ones by the firmware's ranking of cores.

use std::str::FromStr;

use flyball_host::{CpuList, Host, topology::CPUS};

use crate::exit::Failure;

/// What `--pin` takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pin {
    List(CpuList),
    /// So many CPUs, each the first of its core, of the cores that are ranked highest.
    Best(usize),
}

impl FromStr for Pin {
    type Err = String;

    fn from_str(text: &str) -> Result<Pin, String> {
        match text.strip_prefix("best:") {
            Some(count) => {
                let count = count.parse().ok().filter(|count| *count > 0);
                count.map(Pin::Best).ok_or_else(|| "write best:N, as in best:2".to_owned())
            }
            None => {
                text.parse().map(Pin::List).map_err(|error: flyball_host::CpuListError| error.to_string())
            }
        }
    }
}

impl Pin {
    /// The CPUs on this machine.
    pub fn cpus(&self, host: &dyn Host) -> Result<CpuList, Failure> {
        match self {
            Pin::List(cpus) => Ok(cpus.clone()),
            Pin::Best(count) => best(host, *count),
        }
    }
}

/// The first CPUs of the cores with the highest ranking.
fn best(host: &dyn Host, count: usize) -> Result<CpuList, Failure> {
    let online = host.read(&format!("{CPUS}/online")).ok().and_then(|text| text.parse::<CpuList>().ok());
    let number = |path: String| host.read(&path).ok()?.trim().parse::<u64>().ok();
    let mut ranked: Vec<(u64, u32)> = Vec::new();
    for cpu in online.unwrap_or_default().iter() {
        let siblings = host.read(&format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list")).ok();
        let siblings = siblings.and_then(|text| text.parse::<CpuList>().ok());
        if siblings.and_then(|list| list.first()).is_some_and(|first| first != cpu) {
            continue;
        }
        // amd-pstate's own file first: where firmware ranks by it, highest_perf is the boost limit
        // and the same for all (amd_get_boost_ratio_numerator() in arch/x86/kernel/acpi/cppc.c).
        // Intel's ITMT has the ranking in CPPC.
        let ranking = number(format!("{CPUS}/cpu{cpu}/cpufreq/amd_pstate_prefcore_ranking"))
            .or_else(|| number(format!("{CPUS}/cpu{cpu}/acpi_cppc/highest_perf")));
        ranked.extend(ranking.map(|ranking| (ranking, cpu)));
    }
    ranked.sort_by_key(|(ranking, cpu)| (std::cmp::Reverse(*ranking), *cpu));
    let differ = ranked.first().map(|one| one.0) != ranked.last().map(|one| one.0);
    if !differ {
        return Err(Failure::not_here("--pin best: firmware ranks no core above another on this machine"));
    }
    if ranked.len() < count {
        return Err(Failure::usage(format!("--pin best:{count}: there are {} cores", ranked.len())));
    }
    Ok(ranked[..count].iter().map(|(_, cpu)| *cpu).collect())
}
