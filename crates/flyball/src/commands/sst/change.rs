//! Commands of `flyball sst` that change the machine: each becomes settings of knobs.

use flyball_control::{Intent, Setting};
use flyball_host::CpuList;
use flyball_sst::{cost, model};

use super::Session;
use crate::{
    change,
    exit::{Exit, Failure},
};

/// Applies settings, each for the CPUs of a list or of --cpu.
pub(super) fn apply(session: &Session<'_>, settings: &[(String, Option<CpuList>)]) -> Result<Exit, Failure> {
    // turbo-mode works through cpufreq's limits; everything else needs Speed Select, and fails here without it.
    if settings.iter().any(|(setting, _)| !setting.starts_with("max-freq=")) {
        session.layout()?;
    }
    let mut intent = Intent::default();
    for (setting, cpus) in settings {
        let on = cpus.as_ref().map(ToString::to_string).or_else(|| session.selector.clone());
        let usage = |error: String| Failure::usage(error);
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        let made = Setting::new(name, value, on.as_deref(), setting.as_str())
            .map_err(|error| usage(error.to_string()))?;
        intent.settings.push(made);
    }
    if session.dry_run {
        crate::commands::plan::print(session.context, session.host, &intent, false)
    } else {
        change::apply(session.context, session.host, &intent)
    }
}

/// `perf-profile set-config-level`.
pub(super) fn level(session: &Session<'_>, level: u8, online: bool, cgroup: bool) -> Result<Exit, Failure> {
    let layout = session.layout()?;
    let mut settings = vec![(format!("sst-level={level}"), None)];
    if cgroup {
        let access = layout.access(session.host);
        for domain in session.domains()?.into_iter().filter(|domain| !domain.cpus.is_empty()) {
            let Some(inside) = cost::cpus_of_level(layout, access.as_ref(), domain, level) else { continue };
            let outside = domain.cpus.difference(&inside);
            let list = if outside.is_empty() { "none".to_owned() } else { outside.to_string() };
            settings.push((format!("sst-apart={list}"), Some(domain.cpus.clone())));
        }
    }
    if online {
        let access = layout.access(session.host);
        for domain in session.domains()? {
            let Some(inside) = cost::cpus_of_level(layout, access.as_ref(), domain, level) else { continue };
            let switchable =
                |cpu: &u32| session.host.exists(&format!("/sys/devices/system/cpu/cpu{cpu}/online"));
            let on: CpuList = inside.iter().filter(switchable).collect();
            let off: CpuList = domain.cpus.difference(&inside).iter().filter(switchable).collect();
            let kept = domain.cpus.difference(&inside).difference(&off);
            if !kept.is_empty() {
                eprintln!("note: CPUs {kept} are not of level {level}, but this kernel keeps them online");
            }
            if !on.is_empty() {
                settings.push(("online=on".to_owned(), Some(on)));
            }
            if !off.is_empty() {
                settings.push(("online=off".to_owned(), Some(off)));
            }
        }
    }
    apply(session, &settings)
}

/// Class 0 with one lowest frequency and the highest priority, classes 1 to 3 with another and the lowest, as --auto of
/// both features sets them in the kernel's guide.
fn classes(
    session: &Session<'_>,
    high: String,
    low: &str,
) -> Result<Vec<(String, Option<CpuList>)>, Failure> {
    let has_epp = !session.layout()?.platform.is_tpmi();
    let mut settings = Vec::new();
    for class in 0..4 {
        let (min, least) = if class == 0 { (high.as_str(), 0) } else { (low, 15) };
        settings.push(format!("clos-min:{class}={min}"));
        settings.push(format!("clos-max:{class}=max"));
        settings.push(format!("clos-weight:{class}={least}"));
        if has_epp {
            settings.push(format!("clos-epp:{class}={least}"));
        }
    }
    Ok(settings.into_iter().map(|setting| (setting, None)).collect())
}

/// `base-freq enable` and `disable`.
pub(super) fn base_freq(session: &Session<'_>, on: bool, auto: bool) -> Result<Exit, Failure> {
    let word = if on { "on" } else { "off" };
    let mut settings = vec![(format!("sst-bf={word}"), None)];
    if !on {
        if auto {
            settings.extend([("sst-cp=off".to_owned(), None), ("min-freq=min".to_owned(), None)]);
        }
        return apply(session, &settings);
    }
    if auto {
        let layout = session.layout()?;
        let access = layout.access(session.host);
        for domain in session.domains()? {
            let current = access.levels(&domain.place).map_err(|error| session.explained(&error))?.current;
            let level = model::level(layout, access.as_ref(), domain, current)
                .map_err(|error| session.explained(&error))?;
            // The plan refuses a domain without base-freq, with its reason; one without CPUs has no classes.
            let Some(offer) = level.base_freq else { continue };
            if domain.cpus.is_empty() {
                continue;
            }
            let range = |mhz: flyball_host::MegaHertz| format!("{}MHz", mhz.0);
            for (setting, _) in classes(session, range(offer.high_mhz), &range(offer.low_mhz))? {
                settings.push((setting, Some(domain.cpus.clone())));
            }
            settings.push(("clos=0".to_owned(), Some(offer.high_cpus.clone())));
            settings.push(("clos=3".to_owned(), Some(domain.cpus.difference(&offer.high_cpus))));
        }
        settings.push(("sst-cp=on".to_owned(), None));
        settings.push(("min-freq=base".to_owned(), None));
    }
    apply(session, &settings)
}

/// `turbo-freq enable` and `disable`.
pub(super) fn turbo_freq(
    session: &Session<'_>,
    on: bool,
    auto: bool,
    trl: Option<&str>,
) -> Result<Exit, Failure> {
    // The feature is switched for whole domains; --cpu only chooses the high-priority CPUs of --auto.
    let layout = session.layout()?;
    let all = session.machine.topology().present.clone();
    let everywhere = |setting: String| (setting, Some(all.clone()));
    let mut settings = Vec::new();
    if on {
        settings.push(everywhere("sst-tf=on".to_owned()));
        settings.push(everywhere(format!("trl={}", trl.unwrap_or("0xffffffffffffffff"))));
        if auto {
            let Some(cpus) = &session.cpus else {
                return Err(Failure::usage(
                    "turbo-freq enable --auto needs the high-priority CPUs: flyball sst --cpu LIST turbo-freq \
                     enable --auto",
                ));
            };
            for (setting, _) in classes(session, "min".to_owned(), "min")? {
                settings.push(everywhere(setting));
            }
            let topology = session.machine.topology();
            let mut high = CpuList::new();
            for (_, core) in topology.cores() {
                if core.iter().any(|cpu| cpus.contains(cpu)) {
                    high.extend(core.iter());
                }
            }
            settings.push(("clos=0".to_owned(), Some(high.clone())));
            settings.push(("clos=3".to_owned(), Some(all.difference(&high))));
        }
    } else {
        settings.push(everywhere("sst-tf=off".to_owned()));
        if auto {
            settings.push(everywhere("sst-cp=off".to_owned()));
        }
        match trl {
            Some(trl) => settings.push(everywhere(format!("trl={trl}"))),
            None => {
                // One register per package; the domains of a package have the same limits.
                let access = layout.access(session.host);
                for domain in layout.domains.iter().filter(|domain| !domain.cpus.is_empty()) {
                    let levels = access.levels(&domain.place).map_err(|error| session.explained(&error))?;
                    let limits = access
                        .turbo_limits(&domain.place, levels.current)
                        .map_err(|error| session.explained(&error))?;
                    let bytes = limits[0].map(|limit| (limit.0 / 100).min(255) as u8);
                    settings.push((
                        format!("trl={:#018x}", u64::from_le_bytes(bytes)),
                        Some(domain.cpus.clone()),
                    ));
                }
            }
        }
    }
    apply(session, &settings)
}

/// `core-power enable` and `disable`.
pub(super) fn core_power(session: &Session<'_>, on: bool, priority: Option<&str>) -> Result<Exit, Failure> {
    let mut settings = vec![(format!("sst-cp={}", if on { "on" } else { "off" }), None)];
    if let Some(priority) = priority {
        let word = match priority {
            "0" => "proportional",
            "1" => "ordered",
            word => word,
        };
        settings.push((format!("sst-cp-priority={word}"), None));
    }
    apply(session, &settings)
}

/// A frequency of the command line: a bare number is MHz here, as in the guide.
fn frequency(text: &str) -> String {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { format!("{text}MHz") } else { text.to_owned() }
}

/// `core-power config`.
pub(super) fn class(
    session: &Session<'_>,
    class: u8,
    epp: Option<u8>,
    weight: Option<u8>,
    min: Option<&str>,
    max: Option<&str>,
) -> Result<Exit, Failure> {
    check_class(class)?;
    let given = [
        min.map(|min| format!("clos-min:{class}={}", frequency(min))),
        max.map(|max| format!("clos-max:{class}={}", frequency(max))),
        weight.map(|weight| format!("clos-weight:{class}={weight}")),
        epp.map(|epp| format!("clos-epp:{class}={epp}")),
    ];
    let settings: Vec<_> = given.into_iter().flatten().map(|setting| (setting, None)).collect();
    if settings.is_empty() {
        return Err(Failure::usage("nothing to change: give --min, --max, --weight or --epp"));
    }
    apply(session, &settings)
}

fn check_class(class: u8) -> Result<(), Failure> {
    if class < 4 { Ok(()) } else { Err(Failure::usage("there are the classes of service 0 to 3")) }
}

/// `core-power assoc`.
pub(super) fn assoc(session: &Session<'_>, class: u8) -> Result<Exit, Failure> {
    check_class(class)?;
    if session.cpus.is_none() {
        return Err(Failure::usage(
            "which CPUs? flyball sst --cpu LIST core-power assoc --clos CLASS (--cpu all for every one)",
        ));
    }
    apply(session, &[(format!("clos={class}"), None)])
}
