//! Speed Select's classes of service against the limits of cpufreq: both bound the same cores, and neither tells the other.

use flyball_host::CpuList;
use flyball_sst::{layout::Layout, model};

use super::{Answer, Check, Facts, Fix, Group, Vendor, note, ok, unknown, warning};

pub(super) const CHECKS: &[Check] = &[Check {
    id: "conflict.clos",
    group: Group::Conflicts,
    why: "With classes of service on, a core obeys the narrower of its class and of cpufreq's limits, and no file says so.",
    looks: "Speed Select's core-power state, the classes' limits and every CPU's class against scaling_min_freq and \
            scaling_max_freq",
    covers: &[],
    run: classes,
}];

fn classes(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Intel {
        return None;
    }
    // Where there is no Speed Select there are no classes.
    let layout = Layout::read(facts.host()).ok()?;
    match examine(facts, &layout) {
        Ok(answer) => answer,
        Err(error) => Some(unknown(format!("Speed Select's classes cannot be read: {error}"))),
    }
}

fn examine(facts: &Facts, layout: &Layout) -> Result<Option<Answer>, flyball_host::HostError> {
    let access = layout.access(facts.host());
    let mut on = false;
    let mut supported = false;
    // (CPUs, what) of limits that cut each other off, and of those that leave nothing.
    let mut cut: Vec<(CpuList, String, String)> = Vec::new();
    let mut apart: Vec<(CpuList, String, String)> = Vec::new();
    for domain in &layout.domains {
        let state = access.pm_config(&domain.place)?;
        supported |= state.supported;
        if !(state.enabled && access.qos(&domain.place)?.enabled) {
            continue;
        }
        on = true;
        let classes: Vec<_> =
            (0..4).map(|number| model::class(&*access, domain, number)).collect::<Result<_, _>>()?;
        let cpus = domain.cpus.intersection(&facts.online);
        for (cpu, number) in model::classes_of(layout, facts.host(), &cpus)? {
            let Some(class) = classes.get(usize::from(number)) else { continue };
            let Some(policy) = facts.policies.iter().find(|policy| policy.cpus.contains(cpu)) else {
                continue;
            };
            let (Some(low), Some(high)) =
                (policy.number("scaling_min_freq"), policy.number("scaling_max_freq"))
            else {
                continue;
            };
            let (low, high) = (low / 1000, high / 1000);
            let class_low = u64::from(class.min_mhz.0);
            let class_high = class.max_mhz.map(|mhz| u64::from(mhz.0));
            let class_words = format!(
                "class {number}: {class_low} to {}",
                class_high.map_or_else(|| "any".to_owned(), |mhz| format!("{mhz} MHz"))
            );
            let limits = format!("{low} to {high} MHz");
            let list = if class_high.is_some_and(|top| top < low) || class_low > high {
                &mut apart
            } else if class_high.is_some_and(|top| top < high) || class_low > low.max(1) && class_low > 0 {
                &mut cut
            } else {
                continue;
            };
            match list.iter_mut().find(|(_, class, own)| *class == class_words && *own == limits) {
                Some((cpus, ..)) => {
                    cpus.insert(cpu);
                }
                None => list.push(([cpu].into_iter().collect(), class_words, limits)),
            }
        }
    }
    if !supported {
        return Ok(None);
    }
    let told = |answer: Answer, list: &[(CpuList, String, String)]| {
        list.iter().take(4).fold(answer, |answer, (cpus, class, own)| {
            answer.seen(format!("CPUs {cpus}"), format!("{class}; cpufreq {own}"))
        })
    };
    let all = |list: &[(CpuList, String, String)]| -> CpuList {
        list.iter().flat_map(|(cpus, ..)| cpus.iter().collect::<Vec<_>>()).collect()
    };
    Ok(Some(if !apart.is_empty() {
        told(
            warning(format!("CPUs {}: the class of service and cpufreq's limits exclude each other", all(&apart))),
            &apart,
        )
        .fix(Fix::Person(
            "make them meet: flyball set min-freq and max-freq, or flyball sst core-power config; or take the CPUs out of \
             the class"
                .to_owned(),
        ))
    } else if !cut.is_empty() {
        told(
            note(format!(
                "CPUs {}: their class of service is narrower than cpufreq's limits, and wins",
                all(&cut)
            )),
            &cut,
        )
    } else if on {
        ok("no class of service cuts cpufreq's limits").seen("Speed Select core-power", "on")
    } else {
        ok("classes of service are off: cpufreq's limits alone count").seen("Speed Select core-power", "off")
    }))
}
