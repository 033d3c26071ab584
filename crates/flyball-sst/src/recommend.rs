//! Finds the best level and feature for given CPUs.
//!
//! A candidate is a level alone, with base-freq, or with turbo-freq and the CPUs as high-priority
//! ones. It is ranked by the frequency that the slowest of the CPUs is guaranteed (base) or may
//! reach while every core is busy (turbo), and by its cost to the other CPUs. All numbers are the
//! processor's own; only a measurement shows the gain for a workload.

use std::{cmp::Reverse, collections::BTreeSet, fmt};

use flyball_host::{CpuList, Host, HostError, MegaHertz};
use serde::Serialize;

use crate::{
    layout::{Domain, Layout},
    model::{self, Level},
};

/// The feature that a candidate adds to its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feature {
    None,
    BaseFreq,
    TurboFreq,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Feature::None => "none",
            Feature::BaseFreq => "base-freq",
            Feature::TurboFreq => "turbo-freq",
        })
    }
}

/// A setting of one of flyball's knobs; `KNOB=VALUE` as text, as `flyball set` takes it.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, derive_more::Display)]
#[schemars(with = "String")]
#[display("{}={}", knob, value)]
pub struct KnobSetting {
    pub knob: &'static str,
    pub value: String,
}

impl Serialize for KnobSetting {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One way to set up a power domain for the CPUs.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct Candidate {
    pub package: u8,
    /// The number in the package.
    pub domain: u8,
    pub level: u8,
    pub feature: Feature,
    /// Guaranteed frequency of the slowest of the CPUs.
    pub guaranteed_mhz: MegaHertz,
    /// Highest frequency of the slowest of the CPUs while every core is busy.
    pub turbo_mhz: MegaHertz,
    /// Guaranteed frequency of the other CPUs.
    pub others_guaranteed_mhz: MegaHertz,
    /// Highest frequency of the other CPUs while every core is busy.
    pub others_turbo_mhz: MegaHertz,
    /// CPUs of the domain that must be offline.
    pub offline: CpuList,
    pub settings: Vec<KnobSetting>,
}

/// The criterion that ranks candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// A frequency that holds under any load.
    Guaranteed,
    /// The highest frequency that may be reached with all cores busy.
    Turbo,
}

fn full_turbo(level: &Level) -> MegaHertz {
    // The first class of instructions (SSE) and the last bucket: ordinary code with every core
    // busy.
    level.turbo.first().and_then(|turbo| turbo.buckets.last()).map_or(level.base_mhz[0], |bucket| bucket.mhz)
}

/// The candidates for those of `cpus` that are in the domain, best first. Levels that would take
/// one of the CPUs offline are skipped.
pub fn candidates(
    layout: &Layout,
    host: &dyn Host,
    domain: &Domain,
    cpus: &CpuList,
    goal: Goal,
) -> Result<Vec<Candidate>, HostError> {
    let access = layout.access(host);
    let served = cpus.intersection(&domain.cpus);
    let mut found = Vec::new();
    let levels = access.levels(&domain.place)?;
    for number in model::level_numbers(access.as_ref(), domain)? {
        // A locked level cannot be changed, so only the current level is a candidate.
        if levels.locked && number != levels.current {
            continue;
        }
        let level = model::level(layout, access.as_ref(), domain, number)?;
        if served.is_subset(&level.cpus) {
            found.extend(level_candidates(layout, domain, &level, &served));
        }
    }
    let rank = |candidate: &Candidate| {
        let first = match goal {
            Goal::Guaranteed => candidate.guaranteed_mhz,
            Goal::Turbo => candidate.turbo_mhz,
        };
        // On a tie, prefer the candidate that costs the other CPUs least, and then the one that
        // changes least.
        (
            Reverse(first),
            candidate.offline.len(),
            Reverse((candidate.others_guaranteed_mhz, candidate.others_turbo_mhz)),
            candidate.settings.len(),
        )
    };
    found.sort_by_key(rank);
    Ok(found)
}

/// A level alone, with base-freq and with turbo-freq, as far as the level has them.
fn level_candidates(layout: &Layout, domain: &Domain, level: &Level, served: &CpuList) -> Vec<Candidate> {
    let change = (!level.current).then(|| KnobSetting { knob: "sst-level", value: level.level.to_string() });
    let settings = |extra: &[(&'static str, &str)]| -> Vec<KnobSetting> {
        let extra = extra.iter().map(|&(knob, value)| KnobSetting { knob, value: value.to_owned() });
        change.iter().cloned().chain(extra).collect()
    };
    let (base, turbo) = (level.base_mhz[0], full_turbo(level));
    let plain = Candidate {
        package: domain.place.package,
        domain: domain.place.domain,
        level: level.level,
        feature: Feature::None,
        guaranteed_mhz: base,
        turbo_mhz: turbo,
        others_guaranteed_mhz: base,
        others_turbo_mhz: turbo,
        offline: domain.cpus.difference(&level.cpus),
        settings: settings(&[]),
    };
    let base_freq = level.base_freq.as_ref().map(|offer| {
        // The slowest CPU decides: with one ordinary CPU among them, only the low base frequency is
        // guaranteed.
        let all_high = served.is_subset(&offer.high_cpus);
        Candidate {
            feature: Feature::BaseFreq,
            guaranteed_mhz: if all_high { offer.high_mhz } else { offer.low_mhz },
            others_guaranteed_mhz: offer.low_mhz,
            settings: settings(&[("sst-bf", "on")]),
            ..plain.clone()
        }
    });
    let turbo_freq = level.turbo_freq.as_ref().and_then(|offer| {
        let cores: BTreeSet<u16> =
            // Cores, not CPUs: buckets count cores, and both threads of a core share its class.
            served.iter().filter_map(|cpu| layout.map.get(cpu)).map(|cpu| cpu.core).collect();
        let buckets = offer.high.first().map(|turbo| turbo.buckets.as_slice()).unwrap_or_default();
        // The turbo frequency is that of the smallest bucket with room for all cores.
        let bucket = buckets.iter().find(|bucket| cores.len() <= bucket.cores as usize)?;
        Some(Candidate {
            feature: Feature::TurboFreq,
            turbo_mhz: bucket.mhz,
            others_turbo_mhz: offer.clip.first().map_or(turbo, |(_, clip)| *clip),
            // Otherwise the turbo ratio limits would still cap the high-priority cores.
            settings: settings(&[("sst-tf", "on"), ("trl", "0xffffffffffffffff")]),
            ..plain.clone()
        })
    });
    std::iter::once(plain.clone()).chain(base_freq).chain(turbo_freq).collect()
}

/// The best candidate of each domain for `cpus`, as a profile.
pub fn profile(layout: &Layout, found: &[Candidate], cpus: &CpuList, is_turbo_off: bool) -> String {
    let mut text = String::from("# Made by 'flyball sst recommend'.\n");
    if is_turbo_off {
        text.push_str("# Turbo is off: turbo frequencies, and so turbo-freq, have no effect.\n");
    }
    let mut done = BTreeSet::new();
    let mut sections: Vec<(String, Vec<(String, String)>)> = Vec::new();
    // TOML allows a section only once, so settings for the same CPUs share one.
    let mut section = |on: &CpuList, settings: Vec<(String, String)>| {
        let on = on.to_string();
        if on.is_empty() || settings.is_empty() {
            return;
        }
        match sections.iter_mut().find(|(known, _)| *known == on) {
            Some((_, known)) => known.extend(settings),
            None => sections.push((on, settings)),
        }
    };
    for best in found {
        // Candidates are sorted within their domain, so the first is the best.
        if !done.insert((best.package, best.domain)) {
            continue;
        }
        let domain = layout
            .domains
            .iter()
            .find(|domain| (domain.place.package, domain.place.domain) == (best.package, best.domain));
        let Some(domain) = domain else { continue };
        let pairs: Vec<(String, String)> =
            best.settings.iter().map(|setting| (setting.knob.to_owned(), setting.value.clone())).collect();
        section(&domain.cpus, pairs);
        // While turbo was off the limit followed the ordinary base frequency, and kernels before
        // 6.12 do not reset it.
        if best.feature == Feature::BaseFreq && is_turbo_off {
            section(&domain.cpus, vec![("max-freq".to_owned(), "max".to_owned())]);
        }
        section(&best.offline, vec![("online".to_owned(), "off".to_owned())]);
        if best.feature == Feature::TurboFreq {
            let wanted = cpus.intersection(&domain.cpus);
            let clos = |class: &str| vec![("clos".to_owned(), class.to_owned())];
            // Class 3 for the others and class 0 for the chosen CPUs, like `turbo-freq enable -a`
            // of the kernel's tool.
            section(&domain.cpus.difference(&wanted).difference(&best.offline), clos("3"));
            section(&wanted, clos("0"));
        }
    }
    for (on, settings) in sections {
        text.push_str(&format!("\n[cpus.\"{on}\"]\n"));
        for (name, value) in settings {
            text.push_str(&format!("\"{name}\" = \"{value}\"\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_sst_fake::FakeMachine;

    fn best(cpus: &[u32], goal: Goal) -> Candidate {
        let machine = FakeMachine::guide(true);
        let layout = Layout::read(&machine).unwrap();
        let cpus = cpus.iter().copied().collect();
        candidates(&layout, &machine, &layout.domains[0], &cpus, goal).unwrap().remove(0)
    }

    #[test]
    fn high_priority_cpus_get_base_freq() {
        let found = best(&[5, 6], Goal::Guaranteed);
        assert_eq!((found.feature, found.level, found.guaranteed_mhz.0), (Feature::BaseFreq, 0, 3000));
        let settings: Vec<String> = found.settings.iter().map(ToString::to_string).collect();
        assert_eq!(settings, ["sst-bf=on"]);
        assert_eq!(found.others_guaranteed_mhz.0, 2400);
    }

    #[test]
    fn other_cpus_get_the_level_that_keeps_them() {
        let found = best(&[0, 1], Goal::Guaranteed);
        assert_eq!((found.feature, found.level, found.guaranteed_mhz.0), (Feature::None, 4, 2800));
        assert_eq!(found.offline.to_string(), "4,6,12,13,32,34,40,41");
        // CPU 4 is offline at level 4; among the levels that keep it online, 2 has the highest
        // base.
        let found = best(&[0, 4], Goal::Guaranteed);
        assert_eq!((found.level, found.guaranteed_mhz.0), (2, 2700));
    }

    #[test]
    fn few_cores_get_turbo_freq() {
        let found = best(&[12, 13], Goal::Turbo);
        assert_eq!(
            (found.feature, found.turbo_mhz.0, found.others_turbo_mhz.0),
            (Feature::TurboFreq, 3200, 2600)
        );
    }
}
