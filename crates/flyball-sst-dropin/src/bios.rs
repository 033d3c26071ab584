//! Cascade Lake N: SST-BF is set in the BIOS, and only cpufreq's base frequencies show it.

use flyball_host::{CpuList, MegaHertz};

use flyball_sst::access::{BaseFreq, Features};

use crate::{
    display::Id,
    levels::LevelInfo,
    online,
    options::Options,
    session::{Control, Ended, Session},
    show,
};

/// High and low base frequency of a domain's CPUs, and the CPUs with the high one.
pub(super) fn base_freq(session: &mut Session<'_>, id: &Id) -> Result<(BaseFreq, CpuList), Ended> {
    let mut found = Vec::new();
    for cpu in session.domain_cpus(id) {
        let path = format!("/sys/devices/system/cpu/cpu{}/cpufreq/base_frequency", cpu.number);
        // Rounded down to 100 MHz, the unit in which the original compares them.
        found.push((cpu.number, session.number(true, &path)?.max(0) / 100_000));
    }
    let high = found.iter().map(|&(_, ratio)| ratio).max().unwrap_or(0);
    let low = found.iter().map(|&(_, ratio)| ratio).min().unwrap_or(0);
    let cpus = found.iter().filter(|&&(_, ratio)| ratio == high).map(|&(cpu, _)| cpu).collect();
    let mhz = |ratio: i64| MegaHertz(ratio as u32 * 100);
    Ok((BaseFreq { high: mhz(high), low: mhz(low), ..BaseFreq::default() }, cpus))
}

/// The base ratio at the end of the brand string: `@ 2.30GHz`.
fn brand_ratio(name: &str) -> u32 {
    let Some((_, rest)) = name.split_once("@ ") else { return 0 };
    let number = rest.split("GHz").next().unwrap_or_default();
    number.trim().parse::<f32>().map_or(0, |ghz| (ghz * 10.0) as u32)
}

/// `perf-profile info`.
pub(super) fn info(session: &mut Session<'_>, id: &Id, options: &Options) -> Result<(), Ended> {
    if let Some(level) = options.level.filter(|&level| level != 0) {
        session.error(&format!("Invalid level {level}"));
        // exit(0), as if it had succeeded.
        return Err(Ended(0));
    }
    let ratio = brand_ratio(&session.model.name);
    // clx_n_config() fails without a base ratio, and the original then shows no level.
    if ratio == 0 {
        return Ok(());
    }
    let (base, high) = base_freq(session, id)?;
    let all = session.domain_cpus(id).into_iter().map(|cpu| cpu.number).collect();
    // No register tells: these three parts have only SST-BF, and it is on (clx_n_config()).
    let features = Features { base_freq: true, base_freq_on: true, ..Features::default() };
    let control = Control { features, core_power: false, core_power_on: false };
    let level = LevelInfo::bios_set(control, ratio, all, base, high);
    show::show_levels(session, id, &[level]);
    Ok(())
}

/// `base-freq enable` and `disable`: sets cpufreq's limits to the CPUs' base frequencies, or to the
/// whole range.
pub(super) fn set_limits(session: &mut Session<'_>, id: &Id, on: bool) -> Result<(), Ended> {
    if !on {
        for cpu in session.domain_cpus(id) {
            online::copy_limit(session, cpu.number, "cpuinfo_max_freq", "scaling_max_freq");
        }
        return online::lower_min(session, id);
    }
    let (base, high) = base_freq(session, id)?;
    for cpu in session.domain_cpus(id) {
        let MegaHertz(frequency) = if high.contains(cpu.number) { base.high } else { base.low };
        for limit in ["scaling_max_freq", "scaling_min_freq"] {
            online::write_limit(session, cpu.number, limit, i64::from(frequency) * 1000);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::brand_ratio;

    #[test]
    fn the_brand_names_the_base_ratio() {
        assert_eq!(brand_ratio("Intel(R) Xeon(R) Gold 6252N CPU @ 2.30GHz"), 23);
        assert_eq!(brand_ratio("Intel(R) Xeon(R)"), 0);
        assert_eq!(brand_ratio("@ é"), 0);
    }
}
