//! Which level and feature serve given CPUs best.
//!
//! A candidate is a level with nothing more, with base-freq, or with turbo-freq and the CPUs as high-priority ones.
//! It is judged by the frequency that the slowest of the CPUs is guaranteed (base), or may reach while every core
//! is busy (turbo), and by what it takes from the other CPUs. All numbers are the processor's own; what a workload
//! makes of them only a measurement can say.

use flyball_host::{CpuList, Host, HostError, MegaHertz};
use serde::Serialize;

use crate::{
    model::{self, Level},
    setting::{Domain, Layout},
};

/// One way to set a power domain up for the CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// The package.
    pub package: u8,
    /// The domain in it.
    pub domain: u8,
    /// The level.
    pub level: u8,
    /// `none`, `base-freq` or `turbo-freq`.
    pub feature: &'static str,
    /// What the slowest of the CPUs is guaranteed.
    pub guaranteed_mhz: MegaHertz,
    /// What the slowest of the CPUs may reach while every core is busy.
    pub turbo_mhz: MegaHertz,
    /// What the other CPUs are guaranteed.
    pub others_guaranteed_mhz: MegaHertz,
    /// What the other CPUs may reach while every core is busy.
    pub others_turbo_mhz: MegaHertz,
    /// CPUs of the domain that have to be offline.
    pub offline: CpuList,
    /// The settings that make it so, as `flyball set` takes them.
    pub settings: Vec<String>,
}

/// What matters more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// A frequency that holds under any load.
    Guaranteed,
    /// The highest that may be reached with all cores busy.
    Turbo,
}

fn full_turbo(level: &Level) -> MegaHertz {
    level.turbo.first().and_then(|turbo| turbo.buckets.last()).map_or(level.base_mhz[0], |bucket| bucket.mhz)
}

/// The candidates of a domain for those of `cpus` that are in it, best first. Levels that would take one of the
/// CPUs offline are no candidates.
///
/// # Errors
/// What the driver answered.
pub fn candidates(
    layout: &Layout,
    host: &dyn Host,
    domain: &Domain,
    cpus: &CpuList,
    goal: Goal,
) -> Result<Vec<Candidate>, HostError> {
    let access = layout.access(host);
    let wanted = cpus.intersection(&domain.cpus);
    let mut found = Vec::new();
    let levels = access.levels(&domain.place)?;
    for number in model::level_numbers(access.as_ref(), domain)? {
        if levels.locked && number != levels.current {
            continue;
        }
        let level = model::level(layout, access.as_ref(), domain, number)?;
        if !wanted.is_subset(&level.cpus) {
            continue;
        }
        let offline = domain.cpus.difference(&level.cpus);
        let mut settings = Vec::new();
        if number != levels.current {
            settings.push(format!("sst-level={number}"));
        }
        let (base, turbo) = (level.base_mhz[0], full_turbo(&level));
        let plain = Candidate {
            package: domain.place.package,
            domain: domain.place.domain,
            level: number,
            feature: "none",
            guaranteed_mhz: base,
            turbo_mhz: turbo,
            others_guaranteed_mhz: base,
            others_turbo_mhz: turbo,
            offline,
            settings: settings.clone(),
        };
        found.push(plain.clone());
        if let Some(offer) = &level.base_freq {
            let all_high = wanted.is_subset(&offer.high_cpus);
            found.push(Candidate {
                feature: "base-freq",
                guaranteed_mhz: if all_high { offer.high_mhz } else { offer.low_mhz },
                others_guaranteed_mhz: offer.low_mhz,
                settings: settings.iter().cloned().chain(["sst-bf=on".to_owned()]).collect(),
                ..plain.clone()
            });
        }
        if let Some(offer) = &level.turbo_freq {
            let cores: std::collections::BTreeSet<u16> =
                wanted.iter().filter_map(|cpu| layout.map.get(cpu)).map(|cpu| cpu.core).collect();
            let buckets = offer.high.first().map(|turbo| turbo.buckets.as_slice()).unwrap_or_default();
            let fitting = buckets.iter().find(|bucket| cores.len() <= bucket.cores as usize);
            if let Some(bucket) = fitting {
                let clip = offer.clip.first().map_or(turbo, |(_, clip)| *clip);
                let extra = ["sst-tf=on".to_owned(), "trl=0xffffffffffffffff".to_owned()];
                found.push(Candidate {
                    feature: "turbo-freq",
                    turbo_mhz: bucket.mhz,
                    others_turbo_mhz: clip,
                    settings: settings.iter().cloned().chain(extra).collect(),
                    ..plain
                });
            }
        }
    }
    let rank = |candidate: &Candidate| {
        let first = match goal {
            Goal::Guaranteed => candidate.guaranteed_mhz,
            Goal::Turbo => candidate.turbo_mhz,
        };
        // Of equals, the one that costs the others least, and changes least.
        (
            std::cmp::Reverse(first),
            candidate.offline.len(),
            std::cmp::Reverse((candidate.others_guaranteed_mhz, candidate.others_turbo_mhz)),
            candidate.settings.len(),
        )
    };
    found.sort_by_key(rank);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_sst_fake::FakeMachine;

    use crate::cpus::TopologyCache;

    fn best(cpus: &[u32], goal: Goal) -> Candidate {
        let machine = FakeMachine::guide(true);
        let layout = Layout::read(&machine, &TopologyCache::default()).unwrap();
        let cpus = cpus.iter().copied().collect();
        candidates(&layout, &machine, &layout.domains[0], &cpus, goal).unwrap().remove(0)
    }

    #[test]
    fn high_priority_cpus_get_base_freq() {
        let found = best(&[5, 6], Goal::Guaranteed);
        assert_eq!((found.feature, found.level, found.guaranteed_mhz.0), ("base-freq", 0, 3000));
        assert_eq!(found.settings, ["sst-bf=on"]);
        assert_eq!(found.others_guaranteed_mhz.0, 2400);
    }

    #[test]
    fn other_cpus_get_the_level_that_keeps_them() {
        let found = best(&[0, 1], Goal::Guaranteed);
        assert_eq!((found.feature, found.level, found.guaranteed_mhz.0), ("none", 4, 2800));
        assert_eq!(found.offline.to_string(), "4,6,12,13,32,34,40,41");
        // CPU 4 is not of level 4, nor of those in between with a higher base than level 0.
        let found = best(&[0, 4], Goal::Guaranteed);
        assert_eq!((found.level, found.guaranteed_mhz.0), (2, 2700));
    }

    #[test]
    fn few_cores_get_turbo_freq() {
        let found = best(&[12, 13], Goal::Turbo);
        assert_eq!((found.feature, found.turbo_mhz.0, found.others_turbo_mhz.0), ("turbo-freq", 3200, 2600));
    }
}
