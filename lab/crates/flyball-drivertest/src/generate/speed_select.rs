//! Calls of Speed Select's device: every call with accepted and rejected arguments, scenarios, and
//! random calls.

use rand::Rng as _;

use super::Source;
use crate::{
    speed_select::{self, Domain, MAX_COMMANDS, Shape, WRITE, by_nr, mailbox, nr},
    step::{Sequence, Step},
};

type Fields<'a> = &'a [(&'a str, u64)];

fn ioctl(nr: u32, argument: Vec<u8>) -> Step {
    Step::Ioctl { number: by_nr(nr).number, argument }
}

/// A call without commands.
fn ask(nr: u32, values: Fields<'_>) -> Step {
    ioctl(nr, by_nr(nr).argument(values))
}

/// A call with commands.
fn commands(nr: u32, values: Fields<'_>, all: &[Fields<'_>]) -> Step {
    ioctl(nr, by_nr(nr).with_commands(values, all))
}

fn send(cpu: u32, command: u32, parameter: u32, data: u32) -> Step {
    ioctl(nr::MBOX_COMMAND, mailbox(cpu, command, parameter, data))
}

fn online(cpu: u32, value: &str) -> Step {
    Step::write(format!("cpu{cpu}/online"), value)
}

/// MSR 1ADh, the turbo limits.
const LIMITS: u64 = 0x1ad;

fn limits(cpu: u32, value: u64) -> Step {
    let write = [("read_write", 1), ("logical_cpu", u64::from(cpu)), ("msr", LIMITS), ("data", value)];
    commands(nr::MSR_COMMAND, &[], &[&write])
}

/// Makes calls on a power domain, on mailbox and TPMI machines.
struct Maker<'a> {
    shape: &'a Shape,
}

impl Maker<'_> {
    fn place(d: &Domain) -> [(&'static str, u64); 2] {
        [("socket_id", u64::from(d.package)), ("power_domain_id", u64::from(d.number))]
    }

    fn with(d: &Domain, nr: u32, more: Fields<'_>) -> Step {
        ask(nr, &[&Self::place(d)[..], more].concat())
    }

    fn level(&self, d: &Domain, level: u32) -> Step {
        if self.shape.is_tpmi() {
            return Self::with(d, nr::PERF_SET_LEVEL, &[("level", u64::from(level))]);
        }
        send(d.cpu(), 0x7f08, 0, level)
    }

    /// Base-freq (1), turbo-freq (2) or both.
    fn features(&self, d: &Domain, features: u32) -> Step {
        if self.shape.is_tpmi() {
            return Self::with(d, nr::PERF_SET_FEATURE, &[("feature", u64::from(features))]);
        }
        send(d.cpu(), 0x7f02, 0, (features >> 1 & 1) << 16 | (features & 1) << 17)
    }

    fn core_power(&self, d: &Domain, enable: u32, ordered: u32) -> Step {
        if self.shape.is_tpmi() {
            let values =
                [("get_set", 1), ("enable", u64::from(enable)), ("priority_type", u64::from(ordered))];
            return Self::with(d, nr::CORE_POWER_STATE, &values);
        }
        send(d.cpu(), 0xd002, WRITE, enable << 1 | ordered << 2)
    }

    fn class(&self, d: &Domain, class: u32, min: u32, max: u32, weight: u32) -> Step {
        if self.shape.is_tpmi() {
            let values = [
                ("get_set", 1),
                ("clos", u64::from(class)),
                ("min_freq_mhz", u64::from(min)),
                ("max_freq_mhz", u64::from(max)),
                ("prop_prio", u64::from(weight)),
            ];
            return Self::with(d, nr::CLOS_PARAM, &values);
        }
        send(d.cpu(), 0xd001, WRITE | class, weight << 4 | (min / 100) << 8 | (max / 100) << 16)
    }

    fn class_of(&self, d: &Domain, core: u32, class: u32) -> Step {
        if self.shape.is_tpmi() {
            let [socket, domain] = Self::place(d);
            let one = [socket, domain, ("logical_cpu", u64::from(core)), ("clos", u64::from(class))];
            return commands(nr::CLOS_ASSOC, &[("get_set", 1), ("punit_cpu_map", 1)], &[&one]);
        }
        send(d.cpu(), 0xd000, WRITE | core, class << 16)
    }

    /// Addresses without a power domain. Those that crash some kernels come last.
    fn absent(&self) -> Vec<[(&'static str, u64); 2]> {
        let place = |package: u64, domain: u64| [("socket_id", package), ("power_domain_id", domain)];
        let (packages, domains) = (u64::from(self.shape.packages), u64::from(self.shape.per_package));
        let mut all = vec![place(packages, 0), place(255, 0), place(0, domains), place(0, 255), place(0, 16)];
        all.extend(self.without_registers());
        all
    }

    fn without_registers(&self) -> Vec<[(&'static str, u64); 2]> {
        let all = (0..self.shape.packages).flat_map(|p| (0..self.shape.per_package).map(move |d| (p, d)));
        let bare = all.filter(|(p, d)| self.shape.domain(u64::from(*p), u64::from(*d)).is_none());
        bare.map(|(p, d)| [("socket_id", u64::from(p)), ("power_domain_id", u64::from(d))]).collect()
    }

    /// Levels that a domain does not have, nearest first.
    fn no_levels(d: &Domain, most: u64) -> Vec<u64> {
        let highest = u64::from(d.highest());
        let missing = (0..highest).filter(|level| d.level(*level as u32).is_none());
        let above = [highest + 1, 5, 7, 8, 31, 32, 64, 128, 255, 256, 65535];
        let mut all: Vec<u64> = missing.chain(above).filter(|level| *level <= most).collect();
        all.retain(|level| *level > highest || d.level(*level as u32).is_none());
        all
    }
}

/// Numbers of CPUs that do not exist.
fn no_cpus(shape: &Shape) -> [u64; 3] {
    [u64::from(shape.cpus), 4096, u64::from(u32::MAX)]
}

/// Counts of commands that are rejected.
const NO_COUNTS: [u64; 3] = [0, MAX_COMMANDS + 1, u32::MAX as u64];

type Named = (&'static str, Vec<Step>);

/// The calls of TPMI, accepted and rejected ones.
fn of_tpmi(make: &Maker<'_>) -> Vec<Named> {
    let shape = make.shape;
    let (first, last) = (&shape.domains[0], &shape.domains[shape.domains.len() - 1]);
    let with = Maker::with;
    let mut all: Vec<Named> = Vec::new();

    let sockets = (0..=u64::from(shape.packages)).chain([255]);
    all.push((
        "count",
        sockets.map(|socket| ask(nr::COUNT_TPMI_INSTANCES, &[("socket_id", socket)])).collect(),
    ));

    let mut steps: Vec<Step> = Vec::new();
    for d in [first, last] {
        steps.push(with(d, nr::CORE_POWER_STATE, &[]));
        for (enable, ordered) in [(1, 0), (1, 1), (0, 1), (0, 0)] {
            steps.push(make.core_power(d, enable, ordered));
        }
    }
    for (enable, ordered) in [(2, 0), (255, 0), (0, 2), (1, 255)] {
        steps.push(make.core_power(first, enable, ordered));
    }
    for [socket, domain] in make.absent() {
        steps.push(ask(nr::CORE_POWER_STATE, &[socket, domain]));
        steps.push(ask(nr::CORE_POWER_STATE, &[socket, domain, ("get_set", 1), ("enable", 1)]));
    }
    all.push(("core-power", steps));

    let mut steps: Vec<Step> = Vec::new();
    for d in [first, last] {
        for (class, min, max, weight) in
            [(0, 800, 2500, 0), (1, 0, 25_500, 15), (2, 1000, 900, 7), (3, 1555, 2660, 1)]
        {
            steps.push(make.class(d, class, min, max, weight));
            steps.push(with(d, nr::CLOS_PARAM, &[("clos", u64::from(class))]));
        }
    }
    for (class, min, max, weight) in [
        (4, 0, 100, 0),
        (255, 0, 100, 0),
        (0, 25_600, 25_500, 0),
        (1, 0, 25_600, 0),
        (2, 0, 65_535, 0),
        (3, 0, 100, 16),
        (0, 0, 100, 255),
    ] {
        steps.push(make.class(first, class, min, max, weight));
    }
    steps.push(with(first, nr::CLOS_PARAM, &[("clos", 4)]));
    for [socket, domain] in make.absent() {
        steps.push(ask(nr::CLOS_PARAM, &[socket, domain]));
        steps.push(ask(nr::CLOS_PARAM, &[socket, domain, ("get_set", 1), ("max_freq_mhz", 1000)]));
    }
    all.push(("class", steps));
    all.extend(of_association(make));

    let mut steps: Vec<Step> = shape.domains.iter().map(|d| with(d, nr::PERF_LEVELS, &[])).collect();
    steps.extend(make.absent().iter().map(|place| ask(nr::PERF_LEVELS, place)));
    all.push(("levels", steps));

    let mut steps: Vec<Step> = Vec::new();
    for d in [first, last] {
        let mut levels: Vec<u32> = d.levels.iter().map(|level| level.number).collect();
        levels.extend([d.highest(), 0]);
        steps.extend(levels.into_iter().map(|level| make.level(d, level)));
    }
    steps.extend(Maker::no_levels(first, 255).into_iter().map(|level| make.level(first, level as u32)));
    for [socket, domain] in make.absent() {
        steps.push(ask(nr::PERF_SET_LEVEL, &[socket, domain, ("level", 1)]));
    }
    all.push(("level", steps));

    let mut steps: Vec<Step> = Vec::new();
    for power in [0, 1] {
        steps.push(make.core_power(first, power, 1));
        steps.extend([1, 2, 3, 0, 4, 8, 255].map(|features| make.features(first, features)));
    }
    steps.push(make.features(last, 1));
    for [socket, domain] in make.absent() {
        steps.push(ask(nr::PERF_SET_FEATURE, &[socket, domain, ("feature", 1)]));
    }
    all.push(("feature", steps));
    all.extend(of_levels(make));
    all
}

fn of_association(make: &Maker<'_>) -> Vec<Named> {
    let shape = make.shape;
    let assoc = |values: Fields<'_>, all: &[Fields<'_>]| {
        commands(nr::CLOS_ASSOC, &[&[("punit_cpu_map", 1)], values].concat(), all)
    };
    let set = [("get_set", 1)];
    let first = &shape.domains[0];
    let mut all: Vec<Named> = Vec::new();
    let mut steps: Vec<Step> = Vec::new();
    for d in shape.domains.iter().filter(|d| d.cores > 0) {
        for class in 0..4 {
            steps.push(make.class_of(d, class % d.cores, class));
        }
    }
    let [socket, domain] = Maker::place(first);
    let one = |core: u64, class: u64| [socket, domain, ("logical_cpu", core), ("clos", class)];
    steps.push(assoc(&set, &[&one(0, 3), &one(1, 2)]));
    steps.push(assoc(&[], &[&one(0, 0), &one(1, 0)]));
    // Core numbers without a CPU.
    steps.push(assoc(&set, &[&one(63, 1)]));
    steps.push(assoc(&[], &[&one(63, 0)]));
    let many: Vec<[(&str, u64); 4]> = (0..MAX_COMMANDS).map(|core| one(core, 1)).collect();
    steps.push(assoc(&set, &many.iter().map(|one| &one[..]).collect::<Vec<_>>()));
    all.push(("association", steps));

    let mut steps: Vec<Step> = Vec::new();
    for values in [&set[..], &[]] {
        steps
            .extend(NO_COUNTS.map(|count| assoc(&[values, &[("cmd_count", count)]].concat(), &[&one(0, 1)])));
        for (core, class) in [(0, 4), (0, 65_535), (64, 0), (65_535, 0)] {
            steps.push(assoc(values, &[&one(core, class)]));
        }
        steps.push(assoc(&[values, &[("punit_cpu_map", 0)]].concat(), &[&one(0, 1)]));
        // The second of two commands is bad.
        steps.push(assoc(values, &[&one(0, 2), &one(64, 0)]));
    }
    for [socket, domain] in make.absent() {
        if shape.domain(socket.1, domain.1).is_none() && domain.1 >= u64::from(shape.per_package)
            || socket.1 >= u64::from(shape.packages)
        {
            steps.push(assoc(&[], &[&[socket, domain]]));
            steps.push(assoc(&set, &[&[socket, domain, ("clos", 1)]]));
        }
    }
    all.push(("association-refused", steps));
    for values in [&[][..], &set] {
        let name = if values.is_empty() {
            "association-without-registers"
        } else {
            "set-association-without-registers"
        };
        let steps = make.without_registers().iter().map(|place| assoc(values, &[&place[..]])).collect();
        all.push((name, steps));
    }
    all
}

/// Queries about a level.
fn of_levels(make: &Maker<'_>) -> Vec<Named> {
    const NAMES: [(u32, &str, &str); 6] = [
        (nr::GET_PERF_LEVEL_INFO, "level-info", "level-info-refused"),
        (nr::GET_PERF_LEVEL_CPU_MASK, "level-mask", "level-mask-refused"),
        (nr::GET_BASE_FREQ_INFO, "base-freq-info", "base-freq-info-refused"),
        (nr::GET_BASE_FREQ_CPU_MASK, "base-freq-mask", "base-freq-mask-refused"),
        (nr::GET_TURBO_FREQ_INFO, "turbo-freq-info", "turbo-freq-info-refused"),
        (nr::GET_PERF_LEVEL_FABRIC_INFO, "fabric-info", "fabric-info-refused"),
    ];
    let mut all: Vec<Named> = Vec::new();
    for (nr, name, refused) in NAMES {
        let mask = [("punit_cpu_map", 1)];
        let is_mask = matches!(nr, nr::GET_PERF_LEVEL_CPU_MASK | nr::GET_BASE_FREQ_CPU_MASK);
        let more: Fields<'_> = if is_mask { &mask } else { &[] };
        let about = |d: &Domain, level: u64| Maker::with(d, nr, &[&[("level", level)], more].concat());
        let mut steps: Vec<Step> = Vec::new();
        for d in &make.shape.domains {
            steps.extend(d.levels.iter().map(|level| about(d, u64::from(level.number))));
        }
        all.push((name, steps));
        let first = &make.shape.domains[0];
        let mut steps: Vec<Step> = Vec::new();
        for place in make.absent() {
            steps.push(ask(nr, &[&place[..], more].concat()));
        }
        if is_mask {
            steps.push(Maker::with(first, nr, &[]));
        }
        let most = if is_mask { 255 } else { 65_535 };
        steps.extend(Maker::no_levels(first, most).into_iter().map(|level| about(first, level)));
        all.push((refused, steps));
    }
    all
}

/// The commands of the mailbox, and the memory registers.
fn of_mailbox(make: &Maker<'_>) -> Vec<Named> {
    let shape = make.shape;
    let d = &shape.domains[0];
    let cpu = d.cpu();
    let mut all: Vec<Named> = Vec::new();
    let mut steps: Vec<Step> = Vec::new();
    let mut levels: Vec<u32> = d.levels.iter().map(|level| level.number).collect();
    levels.extend([d.highest() + 1, 255]);
    for level in &levels {
        for part in (0x01..=0x0c).chain(0x10..=0x12).chain(0x20..=0x23).filter(|part| !matches!(part, 2 | 8))
        {
            steps.push(send(cpu, 0x7f00 | part, 0, *level));
        }
        // The upper half, and other kinds of code.
        steps.push(send(cpu, 0x7f06, 0, level | 1 << 8));
        steps.push(send(cpu, 0x7f07, 0, level | 1 << 8 | 2 << 16));
        steps.push(send(cpu, 0x7f11, 0, level | 1 << 16));
        steps.push(send(cpu, 0x7f0c, 0, level | 1 << 16));
    }
    steps.extend([0xd003, 0x9403, 0x7f00].map(|command| send(cpu, command, 0, 0)));
    all.push(("queries", steps));

    let mut steps: Vec<Step> =
        levels.iter().chain(&[d.highest(), 0]).map(|level| make.level(d, *level)).collect();
    for power in [0, 1] {
        steps.push(make.core_power(d, power, 1));
        steps.extend([1, 2, 3, 0].map(|features| make.features(d, features)));
    }
    steps.extend([1 << 16, 0].map(|data| send(cpu, 0x9503, 0, data)));
    all.push(("levels", steps));

    let mut steps: Vec<Step> = Vec::new();
    for (class, min, max, weight) in [
        (0, 800, 2500, 0),
        (1, 0, 25_500, 15),
        (2, 1000, 900, 7),
        (3, 1500, 2600, 1),
        (4, 0, 100, 0),
        (255, 0, 100, 0),
    ] {
        steps.push(make.class(d, class, min, max, weight));
        steps.push(send(cpu, 0xd001, class, 0));
    }
    for (core, class) in [(0, 1), (d.cores - 1, 3), (0, 2), (d.cores, 1), (255, 1)] {
        steps.push(make.class_of(d, core, class));
        steps.push(send(cpu, 0xd000, core, 0));
    }
    all.push(("classes", steps));

    let good = [("logical_cpu", u64::from(cpu)), ("command", 0x7f)];
    let mut steps: Vec<Step> = Vec::new();
    for command in [
        0x7f0d, 0x7f0f, 0x7f13, 0x7f1f, 0x7f24, 0x7fff, 0xd004, 0x9402, 0x9404, 0x9500, 0x0000, 0x7e00,
        0xffff,
    ] {
        steps.push(send(cpu, command, 0, 0));
    }
    // Command and part have 16 bits each.
    steps.push(commands(nr::MBOX_COMMAND, &[], &[&[good[0], ("command", 0x17f)]]));
    steps.push(commands(nr::MBOX_COMMAND, &[], &[&[good[0], good[1], ("sub_command", 0x108)]]));
    steps.extend(no_cpus(shape).map(|cpu| send(cpu as u32, 0x7f00, 0, 0)));
    steps.extend(NO_COUNTS.map(|count| commands(nr::MBOX_COMMAND, &[("cmd_count", count)], &[&good])));
    // The second of three commands is bad; then the longest call.
    let bad = [("logical_cpu", 4096), ("command", 0x7f)];
    steps.push(commands(nr::MBOX_COMMAND, &[], &[&good, &bad, &good]));
    steps.push(commands(nr::MBOX_COMMAND, &[], &[&good[..]; MAX_COMMANDS as usize]));
    all.push(("mailbox-refused", steps));
    all.push(("memory", of_memory(make)));
    all
}

fn of_memory(make: &Maker<'_>) -> Vec<Step> {
    let cpu = ("logical_cpu", u64::from(make.shape.domains[0].cpu()));
    let write = ("read_write", 1);
    let io = |fields: Fields<'_>| commands(nr::IO_CMD, &[], &[fields]);
    let mut steps: Vec<Step> = Vec::new();
    for class in 0..4u64 {
        let reg = ("reg", 8 + 4 * class);
        steps.push(io(&[cpu, reg, write, ("value", 0x0019_0800 | class << 4)]));
        steps.push(io(&[cpu, reg]));
    }
    for core in 0..u64::from(make.shape.domains[0].cores) {
        let reg = ("reg", 0x20 + 4 * core);
        steps.push(io(&[cpu, reg, write, ("value", ((core + 1) % 4) << 16)]));
        steps.push(io(&[cpu, reg]));
    }
    for reg in [0x04, 0x18, 0xd0, 0, 1, 2, 3, 0x22, 0x2000, 0xffff_fffc] {
        steps.push(io(&[cpu, ("reg", reg)]));
        if !(4..=0xd0).contains(&reg) {
            steps.push(io(&[cpu, ("reg", reg), write]));
        }
    }
    steps.extend(no_cpus(make.shape).map(|cpu| io(&[("logical_cpu", cpu), ("reg", 8)])));
    steps.extend(NO_COUNTS.map(|count| commands(nr::IO_CMD, &[("cmd_count", count)], &[&[cpu, ("reg", 8)]])));
    steps
}

/// The calls of isst_if_common.c.
fn of_all(shape: &Shape) -> Vec<Named> {
    let mut steps = vec![ask(nr::GET_PLATFORM_INFO, &[])];
    let cpus: Vec<[(&str, u64); 1]> = (0..u64::from(shape.cpus)).map(|cpu| [("logical_cpu", cpu)]).collect();
    let cpus: Vec<Fields<'_>> = cpus.iter().map(|fields| &fields[..]).collect();
    steps.push(commands(nr::GET_PHY_ID, &[], &cpus));
    steps.extend(no_cpus(shape).map(|cpu| commands(nr::GET_PHY_ID, &[], &[&[("logical_cpu", cpu)]])));
    steps.extend(NO_COUNTS.map(|count| commands(nr::GET_PHY_ID, &[("cmd_count", count)], &cpus)));
    // Unknown numbers: another direction, another size, numbers above the highest.
    for number in [0xc008_fe00u32, 0x8004_fe00, 0x8008_fe12, 0xc008_feff, 0x8008_ff00, 0] {
        steps.push(Step::Ioctl { number, argument: vec![0; 8] });
    }
    // Calls of the other drivers.
    if shape.is_tpmi() {
        steps.push(send(0, 0x7f00, 0, 0));
        steps.push(commands(nr::IO_CMD, &[], &[&[("reg", 8)]]));
    } else {
        steps.extend((nr::COUNT_TPMI_INSTANCES..=nr::GET_PERF_LEVEL_FABRIC_INFO).map(|nr| ask(nr, &[])));
    }
    let mut registers: Vec<Step> = Vec::new();
    let msr = |fields: Fields<'_>| commands(nr::MSR_COMMAND, &[], &[fields]);
    registers.extend(
        [0x1ad, 0x1ae, 0x64b, 0, 0x10, 0x1ac, 0x1b0, 0x770, 0x774, u64::MAX]
            .map(|number| msr(&[("msr", number)])),
    );
    registers.extend([0x1010_1010_1010_1010, shape.limits].map(|value| limits(0, value)));
    registers.push(msr(&[("read_write", 1), ("msr", 0x770), ("data", 0)]));
    registers.extend(no_cpus(shape).map(|cpu| msr(&[("msr", LIMITS), ("logical_cpu", cpu)])));
    registers.extend(
        NO_COUNTS.map(|count| commands(nr::MSR_COMMAND, &[("cmd_count", count)], &[&[("msr", LIMITS)]])),
    );
    vec![("common", steps), ("registers", registers)]
}

/// Every call, with accepted and rejected arguments.
pub(super) fn sweeps(shape: &Shape) -> Vec<Sequence> {
    let make = Maker { shape };
    let mut all = of_all(shape);
    all.extend(if shape.is_tpmi() { of_tpmi(&make) } else { of_mailbox(&make) });
    let named = |(name, steps)| Sequence { name: format!("sweep.{name}"), steps };
    all.into_iter().map(named).filter(|sequence| !sequence.steps.is_empty()).collect()
}

/// Typical orders of calls in programs.
pub(super) fn scenarios(shape: &Shape) -> Vec<Sequence> {
    let make = Maker { shape };
    let d = &shape.domains[0];
    let other = shape.domains.iter().rfind(|d| d.cores > 0).unwrap_or(d);
    let next = d.levels.get(1).map_or(0, |level| level.number);
    // A CPU that can go offline.
    let cpu = shape.cpus - 1;
    let features = [make.core_power(d, 1, 1), make.features(d, 3)];
    let classes = [
        make.class(d, 1, 900, 1900, 3),
        make.class_of(d, d.cores - 1, 1),
        make.class(d, 3, 800, 1200, 15),
        make.class_of(other, 0, 3),
    ];
    let mut all: Vec<Named> = Vec::new();

    // Features belong to a level.
    let mut steps = features.to_vec();
    steps.extend([
        make.level(d, next),
        make.features(d, 1),
        make.features(d, 3),
        make.level(d, 0),
        make.features(d, 3),
    ]);
    steps.extend([
        make.core_power(d, 0, 0),
        make.features(d, 1),
        make.core_power(d, 0, 0),
        make.features(d, 0),
    ]);
    all.push(("level-with-features", steps));

    // Classes do not belong to a level.
    let mut steps = classes.to_vec();
    steps.extend([
        make.core_power(d, 1, 0),
        make.level(d, next),
        make.level(other, next),
        make.core_power(d, 1, 1),
    ]);
    steps.extend([make.level(d, 0), Step::Load(super::LOAD)]);
    all.push(("classes-over-levels", steps));

    // CPUs go offline and online.
    let mut steps = classes.to_vec();
    steps.extend([make.core_power(d, 1, 1), make.features(d, 1), online(cpu, "0")]);
    steps.extend([make.class(d, 1, 1000, 2000, 4), make.class_of(d, 0, 2), make.level(d, next)]);
    steps.extend([
        online(cpu, "1"),
        make.class_of(other, other.cores - 1, 2),
        online(1, "0"),
        online(1, "1"),
        Step::Load(super::LOAD),
    ]);
    all.push(("offline-and-online", steps));

    // Turbo limits belong to the package, whichever CPU writes them.
    let mut steps = vec![limits(cpu, 0x1111_1111_1111_1111), limits(0, 0x1212_1212_1212_1212)];
    steps.extend([
        online(cpu, "0"),
        limits(0, shape.limits),
        limits(cpu, 0x1313_1313_1313_1313),
        online(cpu, "1"),
    ]);
    all.push(("limits-and-offline", steps));

    for (name, fault) in [("busy", 1), ("refuses", 2), ("locked", 4)] {
        let mut steps = classes[..2].to_vec();
        steps.push(Step::Firmware(fault));
        steps.extend([
            make.level(d, next),
            make.core_power(d, 1, 1),
            make.features(d, 1),
            make.class(d, 0, 1000, 2000, 2),
        ]);
        steps.extend([make.class_of(d, 0, 2), limits(0, 0x1414_1414_1414_1414)]);
        // The firmware works again.
        steps.extend([
            Step::Firmware(0),
            make.level(d, next),
            make.core_power(d, 1, 0),
            make.class(d, 0, 1000, 2000, 2),
        ]);
        all.push((name, steps));
    }
    all.into_iter().map(|(name, steps)| Sequence { name: format!("scenario.{name}"), steps }).collect()
}

impl Source<'_> {
    fn below(&mut self, end: u32) -> u32 {
        self.random.random_range(0..end.max(1))
    }

    /// A number for a field: mostly a valid one, sometimes any.
    fn odd(&mut self, usual: u32, most: u32) -> u32 {
        if self.below(14) > 0 {
            usual
        } else {
            [usual + 1, most, most / 2, self.below(most)][self.below(4) as usize]
        }
    }

    /// One random call, CPU change or firmware fault.
    pub(super) fn random_call(&mut self, shape: &Shape) -> Step {
        let make = Maker { shape };
        let mut d = shape.domains[self.below(shape.domains.len() as u32) as usize].clone();
        let level = d.levels[self.below(d.levels.len() as u32) as usize].number;
        // Occasionally an address that does not exist.
        if shape.is_tpmi() && self.below(30) == 0 {
            let absent = make.absent();
            let [package, domain] = absent[self.below(absent.len() as u32) as usize];
            (d.package, d.number) = (package.1 as u32, domain.1 as u32);
        }
        let (class, core) = (self.below(4), self.below(d.cores));
        match self.below(100) {
            0..=17 => {
                let level = self.odd(level, 255);
                make.level(&d, level)
            }
            18..=33 => {
                let usual = self.below(4);
                let features = self.odd(usual, 255);
                make.features(&d, features)
            }
            34..=46 => {
                let (usual, ordered) = (self.below(2), self.below(2));
                let (enable, ordered) = (self.odd(usual, 3), self.odd(ordered, 3));
                make.core_power(&d, enable, ordered)
            }
            47..=60 => {
                let (min, max, weight) = (self.below(40) * 100, self.below(40) * 100, self.below(16));
                let (class, max, weight) =
                    (self.odd(class, 255), self.odd(max, 65_500), self.odd(weight, 15));
                make.class(&d, class, min, max, weight)
            }
            61..=74 => {
                let (core, class) = (self.odd(core, 255), self.odd(class, 3));
                make.class_of(&d, core, class)
            }
            75..=82 => {
                let level = u64::from(self.odd(level, 255));
                let nr = nr::GET_PERF_LEVEL_INFO + self.below(6);
                if shape.is_tpmi() {
                    Maker::with(&d, nr, &[("level", level), ("punit_cpu_map", 1)])
                } else {
                    let part = [1, 3, 4, 5, 6, 7, 9, 0xa, 0xb, 0xc, 0x10, 0x11, 0x12, 0x20, 0x21]
                        [self.below(15) as usize];
                    send(d.cpu(), 0x7f00 | part, 0, level as u32)
                }
            }
            83..=86 => {
                let cpu = self.below(shape.cpus);
                let value = u64::from(10 + self.below(30)) * 0x0101_0101_0101_0101;
                limits(cpu, value)
            }
            87..=89 => {
                let number = 0x8008_fe00 | self.below(20) | self.below(4) << 30;
                let size = speed_select::by_number(number).map_or(8, |call| call.size + 24);
                let argument = (0..size).map(|_| self.below(4) as u8).collect();
                Step::Ioctl { number, argument }
            }
            90..=95 => {
                let cpu = 1 + self.below(shape.cpus - 1);
                let value = ["0", "1", "1"][self.below(3) as usize];
                online(cpu, value)
            }
            96..=97 => {
                let fault = [0, 0, 1, 2, 4][self.below(5) as usize];
                Step::Firmware(fault)
            }
            _ => Step::Load(super::LOAD),
        }
    }
}
