//! What the screen shows for one sample: an interval, what the sample cost, and a reason per CPU.

use std::collections::BTreeMap;

use flyball_host::CpuList;
use flyball_monitor::{
    Account, Cost, CpuInterval, Facts, Interval, Layout, Limiter, Machine, Sample, State, Waking,
};

/// Why a CPU is not faster, as shown on the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The letter for a cell of the map.
    pub letter: char,
    /// The reason's name, with a question mark if the evidence does not prove it.
    pub word: String,
    /// The firmware or hardware holds the CPU below its request.
    pub is_throttle: bool,
}

#[derive(Debug, Clone)]
pub struct Moment {
    /// The number of its sample.
    pub number: u64,
    /// Nanoseconds since 1970.
    pub wall: u64,
    pub cost: Cost,
    pub interval: Interval,
    /// In the layout's order; `None` for a CPU that is not held back, or sleeps.
    pub reasons: Vec<Option<Reason>>,
}

impl Moment {
    /// Describes the interval between two samples. Without `facts` there are no reasons, because
    /// reasons follow from the settings.
    pub fn between(
        layout: &Layout,
        facts: Option<&Facts>,
        number: u64,
        from: &Sample,
        to: &Sample,
    ) -> Moment {
        let interval = Interval::between(layout, from, to);
        let reasons = match facts {
            Some(facts) => reasons(layout, facts, from, to),
            None => vec![None; layout.cpus.len()],
        };
        Moment { number, wall: to.wall, cost: to.cost, interval, reasons }
    }

    /// Groups the CPUs that are held back by reason, the most frequent first.
    pub fn held_back(&self, layout: &Layout) -> Vec<(Reason, CpuList)> {
        let mut by_word: BTreeMap<&str, (Reason, Vec<u32>)> = BTreeMap::new();
        for (cpu, reason) in layout.cpus.iter().zip(&self.reasons) {
            if let Some(reason) = reason {
                let entry = by_word.entry(&reason.word).or_insert_with(|| (reason.clone(), Vec::new()));
                entry.1.push(cpu.number);
            }
        }
        let mut all: Vec<(Reason, CpuList)> =
            by_word.into_values().map(|(reason, cpus)| (reason, cpus.into_iter().collect())).collect();
        // A stable sort keeps equally frequent reasons in place from frame to frame.
        all.sort_by_key(|(_, cpus)| std::cmp::Reverse(cpus.len()));
        all
    }
}

/// Returns the highest requested frequency of a CPU, MHz.
pub fn wanted(cpu: &CpuInterval) -> Option<f64> {
    cpu.max
}

/// A line of the overview: a package's CPUs, or its cores of one type.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    pub name: String,
    /// Layout indices of the CPUs.
    pub cpus: Vec<usize>,
    /// The index of its package, only in the package's first group.
    pub package: Option<usize>,
}

/// The groups of a layout, in the order of the topology.
pub fn groups(layout: &Layout) -> Vec<Group> {
    let mut order: Vec<usize> = (0..layout.cpus.len()).collect();
    // This makes threads of a core neighbours, however the firmware numbers them. On Intel the
    // second threads come last.
    order.sort_by_key(|index| {
        let cpu = &layout.cpus[*index];
        let core_type = cpu.core_type.map(|core_type| core_type as u8);
        (cpu.package, core_type, cpu.die, cpu.core, cpu.number)
    });
    let mut groups: Vec<Group> = Vec::new();
    let mut last = None;
    let mut last_package = None;
    for index in order {
        let cpu = &layout.cpus[index];
        let key = (cpu.package, cpu.core_type);
        if last != Some(key) {
            let mut name = cpu.package.map_or("offline".to_owned(), |number| format!("package {number}"));
            if let Some(core_type) = cpu.core_type {
                name = if layout.packages.len() > 1 {
                    format!("{name} {core_type}-cores")
                } else {
                    format!("{core_type}-cores")
                };
            }
            // P and E cores share the package's power, so only the first group shows it.
            let package = layout.package_of(cpu).filter(|package| last_package != Some(*package));
            last_package = package.or(last_package);
            groups.push(Group { name, cpus: Vec::new(), package });
            last = Some(key);
        }
        if let Some(group) = groups.last_mut() {
            group.cpus.push(index);
        }
    }
    groups
}

/// Summary line of a group of CPUs.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    pub watts: Option<f64>,
    /// Long-term and short-term power limit, W.
    pub limit: Option<f64>,
    pub short_limit: Option<f64>,
    pub busy: Option<f64>,
    pub want: Option<f64>,
    /// Minimum, median and maximum frequency of the CPUs that ran.
    pub got: Option<(f64, f64, f64)>,
    pub celsius: Option<f64>,
    pub asleep: usize,
    /// Reasons with the number of their CPUs, the most frequent first.
    pub why: String,
    pub is_throttled: bool,
}

impl Summary {
    pub fn new(group: &Group, moment: &Moment) -> Summary {
        let cpus = || group.cpus.iter().map(|index| &moment.interval.cpus[*index]);
        let package = group.package.and_then(|index| moment.interval.packages.get(index));
        let mut words: BTreeMap<&str, usize> = BTreeMap::new();
        let mut is_throttled = false;
        for reason in group.cpus.iter().filter_map(|index| moment.reasons[*index].as_ref()) {
            *words.entry(&reason.word).or_default() += 1;
            is_throttled |= reason.is_throttle;
        }
        let mut words: Vec<(&str, usize)> = words.into_iter().collect();
        words.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let why: Vec<String> = words.iter().map(|(word, count)| format!("{count} {word}")).collect();
        Summary {
            watts: package.and_then(|package| package.watts),
            limit: package.and_then(|package| package.limit),
            short_limit: package.and_then(|package| package.short_limit),
            busy: mean(cpus().filter_map(|cpu| cpu.busy)),
            // Without sleeping CPUs, whose requests may be higher.
            want: cpus()
                .filter(|cpu| is_running(cpu))
                .filter_map(wanted)
                .reduce(f64::max)
                .or_else(|| cpus().filter_map(wanted).reduce(f64::max)),
            got: spread(cpus().filter_map(|cpu| cpu.mhz).collect()),
            celsius: package
                .and_then(|package| package.celsius)
                .or_else(|| cpus().filter_map(|cpu| cpu.celsius).reduce(f64::max)),
            asleep: cpus().filter(|cpu| cpu.state == State::Asleep).count(),
            why: match why.is_empty() {
                false => why.join(", "),
                // Its speed may be hidden, as in a virtual machine.
                true if cpus().any(|cpu| is_running(cpu) || cpu.busy.is_none()) => "-".to_owned(),
                true => "no CPU runs".to_owned(),
            },
            is_throttled,
        }
    }

    /// Formats the power limits: `28/64` if the short-term limit is higher than the long-term one.
    /// Power may exceed the long-term limit until its mean reaches it.
    pub fn limits(&self) -> String {
        let whole = |watts: f64| format!("{watts:.0}");
        match (self.limit, self.short_limit) {
            (Some(limit), Some(short)) if short > limit => format!("{limit:.0}/{short:.0}"),
            (limit, _) => limit.map_or_else(|| "-".to_owned(), whole),
        }
    }
}

/// Returns the minimum, the median and the maximum of numbers.
pub fn spread(mut numbers: Vec<f64>) -> Option<(f64, f64, f64)> {
    numbers.sort_by(f64::total_cmp);
    let (first, last) = (*numbers.first()?, *numbers.last()?);
    Some((first, numbers[numbers.len() / 2], last))
}

/// Returns the mean of the known values.
pub fn mean(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = numbers.fold((0u32, 0.0), |(count, sum), number| (count + 1, sum + number));
    (count > 0).then(|| sum / f64::from(count))
}

/// Returns the mean wakeups of the CPUs that have counts.
pub fn waking<'a>(machine: &Machine, cpus: impl Iterator<Item = &'a CpuInterval>) -> Option<Waking> {
    let counted: Vec<&[f64]> = cpus.map(|cpu| &cpu.wakes[..]).filter(|wakes| !wakes.is_empty()).collect();
    let means = (0..machine.idle_states.len())
        .map(|state| mean(counted.iter().filter_map(|wakes| wakes.get(state).copied())));
    Waking::new(machine, &means.collect::<Option<Vec<f64>>>()?)
}

/// Returns whether a CPU ran.
pub fn is_running(cpu: &CpuInterval) -> bool {
    cpu.state == State::Running
}

/// Returns the deciding limit of each CPU, because a cell has room for only one letter.
fn reasons(layout: &Layout, facts: &Facts, from: &Sample, to: &Sample) -> Vec<Option<Reason>> {
    let mut reasons = vec![None; layout.cpus.len()];
    let mut account = Account::new(layout);
    account.add(layout, facts, from, to);
    for explanation in account.explain(layout, facts, None) {
        let Some(step) = explanation.deciding() else { continue };
        let is_throttle = matches!(
            step.limiter,
            Limiter::Power
                | Limiter::Current
                | Limiter::Heat
                | Limiter::Prochot
                | Limiter::Platform
                | Limiter::Package
                | Limiter::Firmware
        );
        let reason = Reason { letter: letter(step.limiter), word: step.name(), is_throttle };
        for index in explanation.cpus.iter().filter_map(|cpu| layout.index_of(cpu)) {
            reasons[index] = Some(reason.clone());
        }
    }
    reasons
}

/// Explains what a CPU lost from its highest frequency, with a line per step.
pub fn steps(layout: &Layout, facts: &Facts, from: &Sample, to: &Sample, cpu: u32) -> Vec<String> {
    let only = std::iter::once(cpu).collect();
    let mut account = Account::new(layout);
    account.add(layout, facts, from, to);
    account.explain(layout, facts, Some(&only)).iter().map(ToString::to_string).collect()
}

/// Returns the letter for a cell of the map. Settings have lower case letters.
fn letter(limiter: Limiter) -> char {
    match limiter {
        Limiter::Power => 'P',
        Limiter::Current => 'C',
        Limiter::Heat => 'H',
        Limiter::Prochot => 'X',
        Limiter::Platform => 'L',
        Limiter::Package => 'p',
        Limiter::Firmware => 'F',
        Limiter::BiosLimit => 'b',
        Limiter::LatencyLimit => 'l',
        Limiter::IdleState => 'i',
        Limiter::TurboOff => 't',
        Limiter::ActiveCores => 'n',
        Limiter::SpeedSelect => 's',
        Limiter::ClassOfService => 'c',
        Limiter::Percentage | Limiter::MaxFreq => 'm',
        Limiter::Governor => 'g',
        Limiter::Preference => 'e',
        _ => '?',
    }
}
