//! Compares Speed Select's classes of service with the limits of cpufreq: both limit the same
//! cores, and neither shows the other's limits.

use flyball_host::{CpuList, HostError};
use flyball_sst::{
    layout::Layout,
    model::{self, ClassOfService},
};

use super::{Answer, Check, Facts, Vendor, note, ok, unknown, warning};

pub(super) const CHECKS: &[Check] = &[Check::new(
    "conflict.clos",
    "With classes of service on, a core obeys the narrower of its class and of cpufreq's limits, and no file shows it.",
    "Speed Select's core-power state, the classes' limits and every CPU's class against scaling_min_freq and \
            scaling_max_freq",
    classes,
)];

fn classes(facts: &Facts) -> Option<Answer> {
    if facts.vendor != Vendor::Intel {
        return None;
    }
    // Without Speed Select there are no classes.
    match compare(facts, facts.speed_select()?) {
        Ok(classes) => classes.answer(),
        Err(error) => Some(unknown(format!("Speed Select's classes cannot be read: {error}"))),
    }
}

/// A frequency range in MHz.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Range {
    low: u64,
    /// `None` if there is no upper limit.
    high: Option<u64>,
}

impl Range {
    fn from_class(class: &ClassOfService) -> Range {
        Range { low: class.min_mhz.0.into(), high: class.max_mhz.map(|mhz| mhz.0.into()) }
    }

    fn is_below(self, other: Range) -> bool {
        self.high.is_some_and(|high| high < other.low)
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.high {
            Some(high) => write!(f, "{} to {high} MHz", self.low),
            None => write!(f, "{} to any", self.low),
        }
    }
}

/// CPUs of one class with the same limits of cpufreq.
struct Clash {
    cpus: CpuList,
    number: u8,
    class: Range,
    cpufreq: Range,
}

/// The result of comparing the classes with cpufreq's limits.
#[derive(Default)]
struct Classes {
    supported: bool,
    on: bool,
    /// Clashes in which the class is narrower than cpufreq's limits.
    narrower: Vec<Clash>,
    /// Clashes in which no frequency is in both ranges.
    disjoint: Vec<Clash>,
}

fn compare(facts: &Facts, layout: &Layout) -> Result<Classes, HostError> {
    let access = layout.access(facts.host());
    let mut found = Classes::default();
    for domain in &layout.domains {
        let state = access.pm_config(&domain.place)?;
        found.supported |= state.supported;
        // A mailbox processor has two switches, core-power in the power unit and the classes' own.
        // Both must be on.
        if !(state.enabled && access.qos(&domain.place)?.enabled) {
            continue;
        }
        found.on = true;
        let classes: Vec<_> =
            (0..4).map(|number| model::class(&*access, domain, number)).collect::<Result<_, _>>()?;
        // Offline CPUs have a class too, but no limits of cpufreq to compare.
        let cpus = domain.cpus.intersection(&facts.online);
        for (cpu, number) in model::classes_of(layout, facts.host(), &cpus)? {
            let class = classes.get(usize::from(number)).map(Range::from_class);
            if let (Some(class), Some(cpufreq)) = (class, cpufreq_limits(facts, cpu)) {
                found.add(cpu, number, class, cpufreq);
            }
        }
    }
    Ok(found)
}

fn cpufreq_limits(facts: &Facts, cpu: u32) -> Option<Range> {
    let policy = facts.policies.iter().find(|policy| policy.cpus.contains(cpu))?;
    let mhz = |name| policy.number(name).map(|khz| khz / 1000);
    Some(Range { low: mhz("scaling_min_freq")?, high: Some(mhz("scaling_max_freq")?) })
}

impl Classes {
    fn add(&mut self, cpu: u32, number: u8, class: Range, cpufreq: Range) {
        let lowers_maximum = class.high.zip(cpufreq.high).is_some_and(|(class, cpufreq)| class < cpufreq);
        let list = if class.is_below(cpufreq) || cpufreq.is_below(class) {
            &mut self.disjoint
        // `max`, because every class is above a minimum of 0, which cpufreq can have.
        } else if lowers_maximum || class.low > cpufreq.low.max(1) {
            &mut self.narrower
        } else {
            return;
        };
        match list
            .iter_mut()
            .find(|clash| (clash.number, clash.cpufreq) == (number, cpufreq) && clash.class == class)
        {
            Some(clash) => {
                clash.cpus.insert(cpu);
            }
            None => list.push(Clash { cpus: CpuList::from_iter([cpu]), number, class, cpufreq }),
        }
    }

    fn answer(&self) -> Option<Answer> {
        if !self.supported {
            return None;
        }
        let cpus = |clashes: &[Clash]| -> CpuList {
            clashes.iter().flat_map(|clash| clash.cpus.iter().collect::<Vec<_>>()).collect()
        };
        let with_evidence = |answer: Answer, clashes: &[Clash]| {
            // A machine may have hundreds of CPUs, so show some examples.
            clashes.iter().take(4).fold(answer, |answer, Clash { cpus, number, class, cpufreq }| {
                answer.seen(
                    format!("CPUs {}", cpus.short()),
                    format!("class {number}: {class}; cpufreq {cpufreq}"),
                )
            })
        };
        // Report only the worst: a check has one answer.
        Some(if !self.disjoint.is_empty() {
            let what = "the class of service and cpufreq's limits exclude each other";
            with_evidence(warning(format!("CPUs {}: {what}", cpus(&self.disjoint))), &self.disjoint).person(
                "make them overlap with flyball set min-freq and max-freq, or flyball sst \
                        core-power config; or move the \
                     CPUs to another class",
            )
        } else if !self.narrower.is_empty() {
            let what = "their class of service is narrower than cpufreq's limits, and takes precedence";
            with_evidence(note(format!("CPUs {}: {what}", cpus(&self.narrower))), &self.narrower)
        } else if self.on {
            ok("no class of service restricts cpufreq's limits").seen("Speed Select core-power", "on")
        } else {
            ok("classes of service are off: only cpufreq's limits apply")
                .seen("Speed Select core-power", "off")
        })
    }
}
