//! Notes in a plan about the gains and costs of a level or a feature.

use flyball_host::{CpuList, MegaHertz};

use crate::{
    access::Access,
    layout::{Domain, Layout},
};

/// The base frequency of a level for ordinary code.
fn base_of_level(access: &dyn Access, domain: &Domain, level: u8) -> Option<MegaHertz> {
    let data = access.level_data(&domain.place, level).ok()?;
    if data.base[0].0 != 0 {
        Some(data.base[0])
    } else {
        Some(MegaHertz(data.tdp_ratio * 100)).filter(|base| base.0 != 0)
    }
}

/// The CPUs that a level keeps online.
pub fn cpus_of_level(layout: &Layout, access: &dyn Access, domain: &Domain, level: u8) -> Option<CpuList> {
    let cores = access.level_cores(&domain.place, level).ok()?;
    let cpus = layout.of_cores(domain, cores);
    // An empty mask cannot be intended: the power unit's core numbers of these CPUs must be
    // unknown.
    (!cpus.is_empty() || domain.cpus.is_empty()).then_some(cpus)
}

fn cpus(count: usize) -> String {
    if count == 1 { "1 CPU".to_owned() } else { format!("{count} CPUs") }
}

/// Base-freq: `8 CPUs (5,6,8,13) at 3000 MHz, 20 at 2400 MHz instead of 2600 MHz`.
pub fn base_freq(layout: &Layout, access: &dyn Access, domain: &Domain, level: u8) -> Option<String> {
    let base = access.base_freq(&domain.place, level).ok()?;
    if domain.cpus.is_empty() {
        return None;
    }
    // The mask of high-priority cores may contain cores that are offline at this level.
    let running = cpus_of_level(layout, access, domain, level)?;
    let high = layout.of_cores(domain, base.cores).intersection(&running);
    let rest = running.len() - high.len();
    let was = base_of_level(access, domain, level).map_or(String::new(), |was| format!(" instead of {was}"));
    Some(format!("{} ({high}) at {}, {} at {}{was}", cpus(high.len()), base.high, cpus(rest), base.low))
}

/// Turbo-freq: `up to 2 high-priority cores at 3200 MHz, up to 4 at 3100 MHz; all others no more
/// than 2600 MHz`.
pub fn turbo_freq(access: &dyn Access, domain: &Domain, level: u8) -> Option<String> {
    let turbo = access.turbo_freq(&domain.place, level).ok()?;
    let limits = access.turbo_limits(&domain.place, level).ok();
    let mut parts = Vec::new();
    for (bucket, &cores) in turbo.bucket_cores.iter().enumerate() {
        // The row of ordinary code (SSE).
        let limit = turbo.limits[0][bucket];
        if cores == 0 || limit.0 == 0 {
            break;
        }
        parts.push(format!("up to {cores} at {limit}"));
    }
    if parts.is_empty() {
        return None;
    }
    // The last valid bucket: the limit with the most cores active.
    let full = limits.and_then(|limits| limits[0].iter().rev().copied().find(|limit| limit.0 != 0));
    let was = full.map_or(String::new(), |full| format!(" instead of {full} with every core busy"));
    Some(format!("high-priority cores: {}; all others no more than {}{was}", parts.join(", "), turbo.clip[0]))
}

/// A level: `base 2800 MHz instead of 2600 MHz, 205 W; 20 of 28 CPUs`.
pub fn level(layout: &Layout, access: &dyn Access, domain: &Domain, level: u8) -> Option<String> {
    let now = access.levels(&domain.place).ok()?.current;
    let (then, before) = (base_of_level(access, domain, level)?, base_of_level(access, domain, now)?);
    let data = access.level_data(&domain.place, level).ok()?;
    let mut words =
        format!("base {then} instead of {before}, {} W, up to {} C", data.tdp_w, data.tjunction_c);
    if let Some(running) = cpus_of_level(layout, access, domain, level).filter(|_| !domain.cpus.is_empty()) {
        words.push_str(&format!("; {} of {}", running.len(), cpus(domain.cpus.len())));
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_sst_fake::FakeMachine;

    #[test]
    fn costs_are_given_in_numbers() {
        for tpmi in [false, true] {
            let machine = FakeMachine::guide(tpmi);
            let layout = Layout::read(&machine).unwrap();
            let access = layout.access(&machine);
            let domain = &layout.domains[0];
            assert_eq!(
                base_freq(&layout, access.as_ref(), domain, 0).unwrap(),
                "8 CPUs (5,6,8,13,33,34,36,41) at 3000 MHz, 20 CPUs at 2400 MHz instead of 2600 MHz"
            );
            assert_eq!(
                turbo_freq(access.as_ref(), domain, 0).unwrap(),
                "high-priority cores: up to 2 at 3200 MHz, up to 4 at 3100 MHz, up to 6 at 3100 MHz; all others no more \
                 than 2600 MHz instead of 3100 MHz with every core busy"
            );
            assert_eq!(
                level(&layout, access.as_ref(), domain, 4).unwrap(),
                "base 2800 MHz instead of 2600 MHz, 205 W, up to 105 C; 20 of 28 CPUs"
            );
            assert_eq!(base_freq(&layout, access.as_ref(), domain, 4), None);
        }
    }
}
