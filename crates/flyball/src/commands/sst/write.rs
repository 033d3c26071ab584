//! Subcommands of `flyball sst` that change the machine, by setting knobs.

use flyball_control::{Id, Intent, Setting, Snapshot};
use flyball_host::CpuList;
use flyball_sst::{cost, model};

use super::Session;
use crate::{
    change,
    exit::{Exit, Failure},
};

/// A setting of a knob, for given CPUs or for those of --cpu.
pub(super) struct Assignment {
    knob: String,
    value: String,
    cpus: Option<CpuList>,
}

pub(super) fn assign(knob: impl Into<String>, value: impl ToString) -> Assignment {
    Assignment { knob: knob.into(), value: value.to_string(), cpus: None }
}

impl Assignment {
    fn on(self, cpus: CpuList) -> Assignment {
        Assignment { cpus: Some(cpus), ..self }
    }
}

fn switch(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Applies the settings, or prints their plan.
pub(super) fn apply(session: &Session<'_>, settings: &[Assignment]) -> Result<Exit, Failure> {
    // cpufreq limits work without Speed Select. For everything else, fail here with the reason why
    // there is no Speed Select.
    if settings.iter().any(|setting| setting.knob != Id::MaxFreq.knob().name) {
        session.layout()?;
    }
    let mut intent = Intent::default();
    for Assignment { knob, value, cpus } in settings {
        let on = cpus.as_ref().map(ToString::to_string).or_else(|| session.selector.clone());
        let made =
            Setting::new(knob, value, on.as_deref(), format!("{knob}={value}")).map_err(Failure::usage)?;
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
    let mut settings = vec![assign("sst-level", level)];
    if cgroup {
        let access = layout.access(session.host);
        for domain in session.domains()?.into_iter().filter(|domain| !domain.cpus.is_empty()) {
            let Some(inside) = cost::cpus_of_level(layout, access.as_ref(), domain, level) else { continue };
            let outside = domain.cpus.difference(&inside);
            // If the level keeps all CPUs, dissolve the partition of the previous level.
            let list = if outside.is_empty() { "none".to_owned() } else { outside.to_string() };
            settings.push(assign("sst-apart", list).on(domain.cpus.clone()));
        }
    }
    if online {
        let access = layout.access(session.host);
        for domain in session.domains()? {
            let Some(inside) = cost::cpus_of_level(layout, access.as_ref(), domain, level) else { continue };
            // CPU 0 has no such file on most kernels (arch/x86/kernel/topology.c made it permanent
            // in 6.5).
            let switchable =
                |cpu: &u32| session.host.exists(&format!("/sys/devices/system/cpu/cpu{cpu}/online"));
            // Switch on as well as off: an earlier level may have taken CPUs of this one offline.
            let on: CpuList = inside.iter().filter(switchable).collect();
            let off: CpuList = domain.cpus.difference(&inside).iter().filter(switchable).collect();
            let kept = domain.cpus.difference(&inside).difference(&off);
            if !kept.is_empty() {
                eprintln!(
                    "note: CPUs {kept} are not part of level {level}, but this kernel cannot take them offline"
                );
            }
            if !on.is_empty() {
                settings.push(assign("online", "on").on(on));
            }
            if !off.is_empty() {
                settings.push(assign("online", "off").on(off));
            }
        }
    }
    apply(session, &settings)
}

/// Returns settings for class 0 with minimum frequency `high` and the highest priority, and for
/// classes 1 to 3 with `low` and the lowest, like --auto of both features in Intel's guide.
fn classes(session: &Session<'_>, high: &str, low: &str) -> Result<Vec<Assignment>, Failure> {
    // The class registers of TPMI processors have no such field.
    let has_epp = !session.layout()?.platform.is_tpmi();
    let mut settings = Vec::new();
    for class in 0..4 {
        // 0 is the highest proportional priority, and the EPP for performance.
        let (min, priority) = if class == 0 { (high, 0) } else { (low, 15) };
        settings.push(assign(format!("clos-min:{class}"), min));
        settings.push(assign(format!("clos-max:{class}"), "max"));
        settings.push(assign(format!("clos-weight:{class}"), priority));
        if has_epp {
            settings.push(assign(format!("clos-epp:{class}"), priority));
        }
    }
    Ok(settings)
}

/// `base-freq enable` and `disable`.
pub(super) fn base_freq(session: &Session<'_>, on: bool, auto: bool) -> Result<Exit, Failure> {
    let mut settings = vec![assign("sst-bf", switch(on))];
    if !on {
        if auto {
            settings.extend([assign("sst-cp", "off"), assign("min-freq", "min")]);
        }
        return apply(session, &settings);
    }
    if auto {
        let (layout, access) = session.open()?;
        for domain in session.domains()? {
            let current = session.ask(access.levels(&domain.place))?.current;
            let level = session.ask(model::level(layout, access.as_ref(), domain, current))?;
            // The plan rejects a domain without base-freq and gives the reason. A domain without
            // CPUs has no classes.
            let Some(offer) = level.base_freq else { continue };
            if domain.cpus.is_empty() {
                continue;
            }
            let range = |mhz: flyball_host::MegaHertz| format!("{}MHz", mhz.0);
            let classes = classes(session, &range(offer.high_mhz), &range(offer.low_mhz))?;
            settings.extend(classes.into_iter().map(|class| class.on(domain.cpus.clone())));
            settings.push(assign("clos", 0).on(offer.high_cpus.clone()));
            settings.push(assign("clos", 3).on(domain.cpus.difference(&offer.high_cpus)));
        }
        settings.push(assign("sst-cp", "on"));
        settings.push(assign("min-freq", "base"));
        // With turbo off, the old maximum is the base frequency. intel-speed-select raises it too
        // (isst-config.c, set_scaling_min_to_cpuinfo_max).
        if turbo_is_off(session) {
            settings.push(assign("max-freq", "max"));
        }
    }
    apply(session, &settings)
}

fn turbo_is_off(session: &Session<'_>) -> bool {
    let snapshot = Snapshot::take_knobs(session.host, &[Id::Turbo]);
    let turbo = snapshot.and_then(|snapshot| snapshot.machine_value(Id::Turbo));
    turbo.is_ok_and(|turbo| turbo.and_then(|turbo| turbo.switch()) == Some(false))
}

/// `turbo-freq enable` and `disable`.
pub(super) fn turbo_freq(
    session: &Session<'_>,
    on: bool,
    auto: bool,
    trl: Option<&str>,
) -> Result<Exit, Failure> {
    // The feature and the turbo ratio limits apply to whole packages: those with CPUs of --cpu.
    // With --auto, the CPUs of --cpu also get priority.
    let layout = session.layout()?;
    let all = packages_of(session);
    let everywhere = |knob: &str, value: &str| assign(knob, value).on(all.clone());
    let mut settings = Vec::new();
    if on {
        settings.push(everywhere("sst-tf", "on"));
        // All ones, because the turbo ratio limits would still cap the cores that the feature
        // speeds up.
        settings.push(everywhere("trl", trl.unwrap_or("0xffffffffffffffff")));
        if auto {
            let Some(cpus) = &session.cpus else {
                return Err(Failure::usage(
                    "turbo-freq enable --auto needs the CPUs that get the higher turbo: flyball sst --cpu LIST turbo-freq \
                     enable --auto",
                ));
            };
            let classes = classes(session, "min", "min")?;
            settings.extend(classes.into_iter().map(|class| class.on(all.clone())));
            let topology = session.machine.topology();
            let mut high = CpuList::new();
            for (_, core) in topology.cores() {
                // Use whole cores: a class belongs to a core, so a sibling in another class would
                // overwrite it.
                if core.iter().any(|cpu| cpus.contains(cpu)) {
                    high.extend(core.iter());
                }
            }
            settings.push(assign("clos", 0).on(high.clone()));
            settings.push(assign("clos", 3).on(all.difference(&high)));
        }
    } else {
        settings.push(everywhere("sst-tf", "off"));
        if auto {
            settings.push(everywhere("sst-cp", "off"));
        }
        match trl {
            Some(trl) => settings.push(everywhere("trl", trl)),
            None => {
                // There is one register per package, and the package's domains have the same
                // limits.
                let access = layout.access(session.host);
                for domain in layout.domains.iter().filter(|domain| domain.cpus.intersects(&all)) {
                    let levels = session.ask(access.levels(&domain.place))?;
                    let limits = session.ask(access.turbo_limits(&domain.place, levels.current))?;
                    // The SSE row, bucket 0 in the low byte (MSR 0x1AD).
                    let bytes = limits[0].map(|limit| (limit.0 / 100).min(255) as u8);
                    let value = format!("{:#018x}", u64::from_le_bytes(bytes));
                    settings.push(assign("trl", value).on(domain.cpus.clone()));
                }
            }
        }
    }
    apply(session, &settings)
}

/// Returns all CPUs of the packages with CPUs of --cpu, or of all packages without --cpu.
fn packages_of(session: &Session<'_>) -> CpuList {
    let topology = session.machine.topology();
    let Some(chosen) = &session.cpus else { return topology.present.clone() };
    let packages = topology.packages();
    let touched = packages.into_iter().filter(|(_, cpus)| cpus.intersects(chosen));
    touched.flat_map(|(_, cpus)| cpus.iter().collect::<Vec<_>>()).collect()
}

/// `core-power enable` and `disable`.
pub(super) fn core_power(session: &Session<'_>, on: bool, priority: Option<&str>) -> Result<Exit, Failure> {
    let mut settings = vec![assign("sst-cp", switch(on))];
    if let Some(priority) = priority {
        let word = match priority {
            "0" => "proportional",
            "1" => "ordered",
            word => word,
        };
        settings.push(assign("sst-cp-priority", word));
    }
    apply(session, &settings)
}

/// Converts a frequency from the command line. A bare number is in MHz, as in Intel's guide.
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
        min.map(|min| assign(format!("clos-min:{class}"), frequency(min))),
        max.map(|max| assign(format!("clos-max:{class}"), frequency(max))),
        weight.map(|weight| assign(format!("clos-weight:{class}"), weight)),
        epp.map(|epp| assign(format!("clos-epp:{class}"), epp)),
    ];
    let settings: Vec<_> = given.into_iter().flatten().collect();
    if settings.is_empty() {
        return Err(Failure::usage("nothing to change: give --min, --max, --weight or --epp"));
    }
    apply(session, &settings)
}

fn check_class(class: u8) -> Result<(), Failure> {
    if class < 4 { Ok(()) } else { Err(Failure::usage("classes of service are 0 to 3")) }
}

/// `core-power assoc`.
pub(super) fn assoc(session: &Session<'_>, class: u8) -> Result<Exit, Failure> {
    check_class(class)?;
    if session.cpus.is_none() {
        return Err(Failure::usage(
            "no CPUs: flyball sst --cpu LIST core-power assoc --clos CLASS (--cpu all for all of them)",
        ));
    }
    apply(session, &[assign("clos", class)])
}
