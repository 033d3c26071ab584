//! CPUs to pin a workload to: a list, or the best ones by the firmware's ranking of cores.

use std::str::FromStr;

use flyball_host::{
    CpuList, CpuListError, Host,
    topology::{AbsentCpus, CPUS, must_be_present},
};

/// The value of `--pin`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pin {
    List(CpuList),
    /// A number of CPUs, each the first of its core, on the cores with the highest ranking.
    Best(usize),
}

/// Why a text names no CPUs, or none of this machine.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    #[error("write best:N, as in best:2")]
    Count,
    #[error(transparent)]
    List(#[from] CpuListError),
    #[error("--pin best: firmware ranks no core above another on this machine")]
    NoRanking,
    #[error("--pin best:{count}: there are {cores} cores")]
    FewCores { count: usize, cores: usize },
    #[error("--pin: {0}")]
    Absent(#[from] AbsentCpus),
}

impl FromStr for Pin {
    type Err = PinError;

    fn from_str(text: &str) -> Result<Pin, PinError> {
        match text.strip_prefix("best:") {
            Some(count) => {
                let count = count.parse().ok().filter(|count| *count > 0);
                count.map(Pin::Best).ok_or(PinError::Count)
            }
            None => Ok(Pin::List(text.parse()?)),
        }
    }
}

impl Pin {
    /// The CPUs on this machine.
    pub fn cpus(&self, host: &dyn Host) -> Result<CpuList, PinError> {
        match self {
            Pin::List(cpus) => Ok(must_be_present(host, cpus).map(|()| cpus.clone())?),
            Pin::Best(count) => best(host, *count),
        }
    }
}

/// The first CPUs of the cores with the highest ranking.
fn best(host: &dyn Host, count: usize) -> Result<CpuList, PinError> {
    let online = host.read(&format!("{CPUS}/online")).ok().and_then(|text| text.parse::<CpuList>().ok());
    let number = |path: String| host.read(&path).ok()?.trim().parse::<u64>().ok();
    let mut ranked: Vec<(u64, u32)> = Vec::new();
    for cpu in online.unwrap_or_default().iter() {
        let siblings = host.read(&format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list")).ok();
        let siblings = siblings.and_then(|text| text.parse::<CpuList>().ok());
        if siblings.and_then(|list| list.first()).is_some_and(|first| first != cpu) {
            continue;
        }
        // amd-pstate's own file first: if firmware ranks by it, highest_perf is the boost limit and
        // equal on all CPUs (amd_get_boost_ratio_numerator() in arch/x86/kernel/acpi/cppc.c).
        // Intel's ITMT has the ranking in CPPC.
        let ranking = number(format!("{CPUS}/cpu{cpu}/cpufreq/amd_pstate_prefcore_ranking"))
            .or_else(|| number(format!("{CPUS}/cpu{cpu}/acpi_cppc/highest_perf")));
        ranked.extend(ranking.map(|ranking| (ranking, cpu)));
    }
    ranked.sort_by_key(|(ranking, cpu)| (std::cmp::Reverse(*ranking), *cpu));
    let differ = ranked.first().map(|one| one.0) != ranked.last().map(|one| one.0);
    if !differ {
        return Err(PinError::NoRanking);
    }
    if ranked.len() < count {
        return Err(PinError::FewCores { count, cores: ranked.len() });
    }
    Ok(ranked[..count].iter().map(|(_, cpu)| *cpu).collect())
}
