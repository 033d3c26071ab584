//! Recorded answers of the real Speed Select drivers, call by call, asked of the simulator.
//!
//! The recordings are text files that a probe wrote in guests with real kernels over played firmware: a call's name, its
//! return value or errno, and the first 160 bytes of its argument afterwards. They are looked for in
//! `$FLYBALL_SHARED/lab/results/sst` (else `../shared` beside the workspace), the recorded Granite Rapids, whose registers
//! the TPMI guests had, in `$FLYBALL_MACHINES`; without them the tests skip and say so.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::path::{Path, PathBuf};

use flyball_sim::{Boot, Caller, Kernel, SimMachine, describe, silicon::MachineSpec};

/// Differences that are known: (file, call, reason). Each must occur.
const KNOWN: &[(&str, &str, &str)] = &[
    ("clx", "msr read 0x1af", EMULATOR),
    ("clx", "msr read 0x54", EMULATOR),
    ("icx", "msr read 0x1af", EMULATOR),
    ("icx", "msr read 0x54", EMULATOR),
    ("spr", "msr read 0x1af", EMULATOR),
    ("spr", "msr read 0x54", EMULATOR),
    ("gnr", "msr read 0x1af", EMULATOR),
    ("gnr-6.12", "perf levels 0/0", CLASSES),
    ("gnr-levels3-6.12", "perf levels 0/0", CLASSES),
    ("gnr-levels3-6.12", "mask", NEIGHBOURS),
    ("gnr-6.12", "mask", NEIGHBOURS),
    ("gnr-levels3", "bf info 2", REST),
    ("gnr-levels3", "bf mask 2", REST),
    ("gnr-levels3", "tf info 2", REST),
    ("gnr-levels3", "msr read", LIMITS),
];

const REST: &str = "the laboratory's firmware leaves the numbers of features that its third level has not";
const LIMITS: &str = "a level brings its turbo limits along, which the laboratory's firmware does not";
const EMULATOR: &str = "the emulator reads registers that the processor has not as 0; here they fault";
const CLASSES: &str =
    "6.12 had let classes of service be switched off before; here turbo-freq is then refused by the firmware";
const NEIGHBOURS: &str =
    "6.12 reads beyond its table of levels; here that faults at once, there after one or two";

fn folder() -> Option<PathBuf> {
    let shared = std::env::var_os("FLYBALL_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    Some(shared.join("lab/results/sst")).filter(|folder| folder.is_dir())
}

fn granite_rapids() -> Option<MachineSpec> {
    let machines = std::env::var_os("FLYBALL_MACHINES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../machines"), PathBuf::from);
    let mut spec = describe(&machines.join("gnr0")).ok()?;
    // The guest had one of the packages.
    spec.topology.packages = 1;
    Some(spec)
}

/// The machine that a recording was made on, and its kernel.
fn machine(name: &str) -> Option<(MachineSpec, Kernel)> {
    let (class, kernel) = name.rsplit_once('-')?;
    let kernel: Kernel = kernel.parse().unwrap();
    let mailbox = |model: u32, class: &str| {
        let text =
            include_str!("machines/intel.toml").to_owned() + include_str!("machines/speed-select.toml");
        let text = text
            .replace("model = 85", &format!("model = {model}"))
            .replace("CLASS", class)
            .replace("cores = [1, 2, 3, 4]\nsse_mhz = [4600, 4500, 4300, 4200]",
                "cores = [1, 2, 3, 4, 5, 6, 7, 8]\nsse_mhz = [4600, 4500, 4300, 4200, 4200, 4200, 4200, 4200]\ncounts_register = true");
        MachineSpec::from_toml(&text).unwrap()
    };
    let spec = match class {
        "isst-clx" => mailbox(85, "mailbox-msr"),
        "isst-icx" => mailbox(106, "mailbox-pci"),
        "isst-spr" => mailbox(143, "mailbox-pci"),
        "isst-gnr" => granite_rapids()?,
        "isst-gnr-blocked" => {
            let mut spec = granite_rapids()?;
            spec.sst.as_mut().unwrap().write_blocked = true;
            spec
        }
        "isst-gnr-levels3" => {
            let mut spec = granite_rapids()?;
            let sst = spec.sst.as_mut().unwrap();
            sst.locked = false;
            for domain in &mut sst.domain {
                three_levels(&mut domain.level);
            }
            spec
        }
        _ => return None,
    };
    Some((spec, kernel))
}

/// Three levels out of one, as the laboratory's firmware makes them: each 200 MHz, 20 W and 2 degrees lower than the one
/// before and without its highest cores; the last without base-freq and turbo-freq.
fn three_levels(levels: &mut Vec<flyball_sim::silicon::spec::SstLevelSpec>) {
    for number in 1..3 {
        let mut level = levels[0].clone();
        level.number = number;
        for base in [&mut level.base_mhz, &mut level.base_avx2_mhz, &mut level.base_avx512_mhz] {
            *base = base.saturating_sub(200 * number);
        }
        level.tdp_w -= 20 * number;
        level.tjmax_c -= 2 * number;
        for _ in 0..4 * number {
            if level.cores.last().is_some_and(|&highest| highest >= 24) {
                level.cores.pop();
            }
        }
        let kept = level.cores.clone();
        if let Some(bf) = &mut level.bf {
            bf.cores.retain(|core| kept.contains(core));
        }
        levels.push(level);
    }
    (levels[2].bf, levels[2].tf) = (None, None);
}

/// A call as the probe makes it.
struct Call {
    name: String,
    number: u32,
    argument: Vec<u8>,
    caller: Caller,
}

struct Script {
    calls: Vec<Call>,
    caller: Caller,
}

impl Script {
    fn add(&mut self, name: impl Into<String>, nr: u32, direction: u32, argument: impl Into<Vec<u8>>) {
        let number = direction << 30 | 8 << 16 | 0xfe << 8 | nr;
        self.calls.push(Call { name: name.into(), number, argument: argument.into(), caller: self.caller });
    }

    fn words(&mut self, name: impl Into<String>, nr: u32, direction: u32, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.add(name, nr, direction, bytes);
    }

    fn mailbox(
        &mut self,
        name: impl Into<String>,
        cpu: u32,
        command: u16,
        sub: u16,
        parameter: u32,
        data: u32,
    ) {
        let word = u32::from(command) | u32::from(sub) << 16;
        self.words(name, 3, RW, &[1, cpu, parameter, data, 0, word, 0]);
    }

    fn levels(&mut self, package: u8, domain: u8) {
        let mut argument = vec![package, domain];
        argument.resize(11, 0);
        self.add(format!("perf levels {package}/{domain}"), 9, RW, argument);
    }
}

const R: u32 = 2;
const W: u32 = 1;
const RW: u32 = 3;

/// A structure that begins with these bytes.
fn sized(size: usize, bytes: &[u8]) -> Vec<u8> {
    let mut all = bytes.to_vec();
    all.resize(size, 0);
    all
}

fn clos(set: u8, class: u8, min: u16, max: u16, priority: u8) -> Vec<u8> {
    let mut bytes = vec![set, 0, 0, class];
    bytes.extend(min.to_le_bytes());
    bytes.extend(max.to_le_bytes());
    bytes.extend([priority, 0]);
    bytes
}

/// Count, set, whose numbers, then package, domain, core and class of each.
fn associations(header: [u16; 3], elements: &[(u8, u16, u16)]) -> Vec<u8> {
    let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (domain, core, class) in elements {
        bytes.extend([0, *domain]);
        bytes.extend(core.to_le_bytes());
        bytes.extend(class.to_le_bytes());
    }
    bytes
}

/// The probe's calls in its order. `highest` is the highest level of the first domain.
fn script(cpus: u32, highest: u8) -> Vec<Call> {
    let mut s = Script { calls: Vec::new(), caller: Caller::Root };
    s.add("platform info", 0, R, [0; 8]);
    for cpu in (0..cpus.min(6)).chain([cpus, 9999]) {
        s.words(format!("phy id cpu {cpu}"), 1, RW, &[1, cpu, 0]);
    }
    s.words("phy id, 2 commands", 1, RW, &[2, 0, 0, 1, 0]);
    s.words("phy id, second is bad", 1, RW, &[2, 0, 0, 9999, 0]);
    s.words("phy id, 0 commands", 1, RW, &[0, 0, 0]);
    s.add("phy id, 65 commands", 1, RW, sized(4 + 8 * 65, &[65]));
    for register in [0, 2, 4, 8, 0x14, 0x18, 0x20, 0xd0, 0xd4, 0x11c, 0x120] {
        s.words(format!("mmio read {register:#x}"), 2, W, &[1, 0, 0, register, 0]);
    }
    s.words("mmio write 0x2c", 2, W, &[1, 1, 0, 0x2c, 0x2_0000]);
    s.words("mmio read 0x2c", 2, W, &[1, 0, 0, 0x2c, 0]);
    s.words("mmio cpu 9999", 2, W, &[1, 0, 9999, 8, 0]);
    for (command, sub, parameter, data) in [
        (0x7f, 0, 0, 0),
        (0x7f, 1, 0, 0),
        (0x7f, 1, 0, 9),
        (0x7f, 0x0d, 0, 0),
        (0x7f, 0x0f, 0, 0),
        (0x94, 3, 0, 0),
        (0x94, 2, 0, 0),
        (0xd0, 1, 0, 0),
        (0xd0, 1, 0x101, 0x2010_0000),
        (0xd0, 1, 1, 0),
        (0xd0, 4, 0, 0),
    ] {
        let name = format!("mbox {command:02x}/{sub:02x} par {parameter:#x} data {data:#x}");
        s.mailbox(name, 0, command, sub, parameter, data);
    }
    s.mailbox("mbox cpu 9999", 9999, 0x7f, 0, 0, 0);
    for register in [0x1ad, 0x1ae, 0x1af, 0x64b, 0x54, 0x53, 0x770] {
        s.words(format!("msr read {register:#x}"), 4, RW, &[1, 0, 0, 0, register, 0, 0, 0]);
    }
    s.words("msr write 0x1ad", 4, RW, &[1, 0, 1, 0, 0x1ad, 0, 0x1111_1111, 0x1111_1111]);
    s.words("msr write 0x53", 4, RW, &[1, 0, 1, 0, 0x53, 0, 0, 0]);
    s.words("msr read cpu 9999", 4, RW, &[1, 0, 0, 9999, 0x1ad, 0, 0, 0]);
    for nr in [18, 19, 200] {
        s.add(format!("unknown call {nr}"), nr, R, [0; 64]);
    }
    for socket in [0, 1, 7] {
        s.add(format!("tpmi instances socket {socket}"), 5, R, [socket, 0, 0, 0]);
    }
    for (package, domain) in [(0, 0), (0, 3), (0, 5), (1, 0)] {
        s.add(format!("core power get {package}/{domain}"), 6, RW, [0, package, domain, 0, 0, 0]);
    }
    for (enable, priority) in [(1, 1), (2, 0), (0, 2)] {
        s.add(
            format!("core power set enable {enable} prio {priority}"),
            6,
            RW,
            [1, 0, 0, enable, 0, priority],
        );
        s.add("core power get", 6, RW, [0; 6]);
    }
    for class in [0, 3, 4] {
        s.add(format!("clos get {class}"), 7, RW, clos(0, class, 0, 0, 0));
    }
    for (class, min, max, priority) in
        [(1, 850, 3199, 7), (1, 800, 25500, 15), (1, 800, 25600, 0), (1, 800, 2000, 16), (4, 800, 2000, 0)]
    {
        let name = format!("clos set ({class}, {min}, {max}, {priority})");
        s.add(name, 7, RW, clos(1, class, min, max, priority));
        s.add("clos get 1", 7, RW, clos(0, 1, 0, 0, 0));
    }
    s.add("assoc set cpu 1 -> 2", 8, RW, associations([1, 1, 1], &[(0, 1, 2)]));
    s.add("assoc get cpu 1", 8, RW, associations([1, 0, 1], &[(0, 1, 0)]));
    s.add("assoc set 2 items, second bad", 8, RW, associations([2, 1, 1], &[(0, 5, 3), (0, 6, 4)]));
    s.add("assoc get cpu 5", 8, RW, associations([1, 0, 1], &[(0, 5, 0)]));
    for (what, header, element) in [
        ("clos 4", [1, 1, 1], (0, 1, 4)),
        ("cpu 64", [1, 1, 1], (0, 64, 1)),
        ("linux cpu map", [1, 1, 0], (0, 1, 1)),
        ("0 items", [0, 1, 1], (0, 1, 1)),
        ("65 items", [65, 1, 1], (0, 1, 1)),
        ("domain 9", [1, 1, 1], (9, 1, 1)),
    ] {
        s.add(format!("assoc set: {what}"), 8, RW, sized(412, &associations(header, &[element])));
    }
    for (package, domain) in [(0, 0), (0, 4), (0, 9), (2, 0)] {
        s.levels(package, domain);
    }
    for level in [0, 1, 1, 2, 5, 0] {
        s.add(format!("set level {level}"), 10, W, [0, 0, level]);
        s.levels(0, 0);
    }
    s.add("set level: domain 9", 10, W, [0, 9, 1]);
    for features in [1, 2, 3, 4, 0x80, 0] {
        s.add(format!("set feature {features}"), 11, W, [0, 0, features]);
        s.levels(0, 0);
    }
    s.levels(0, 0);
    let mask = |level: u8, punit: u8| sized(24, &[0, 0, level, punit]);
    for level in [0, 1, 2, 3, 5] {
        s.add(format!("level info {level}"), 12, R, sized(154, &[0, 0, level]));
        if level <= highest {
            for punit in [1, 0] {
                s.add(format!("level mask {level} punit {punit}"), 13, R, mask(level, punit));
                s.add(format!("bf mask {level} punit {punit}"), 15, R, mask(level, punit));
            }
        }
        s.add(format!("bf info {level}"), 14, R, sized(12, &[0, 0, level]));
        s.add(format!("tf info {level}"), 16, R, sized(134, &[0, 0, level]));
        s.add(format!("fabric info {level}"), 17, R, sized(54, &[0, 0, level]));
    }
    s.add("level info: socket 3", 12, R, sized(154, &[3]));
    s.caller = Caller::Ordinary;
    s.add("core power set", 6, RW, [1, 0, 0, 1, 0, 0]);
    s.add("core power get", 6, RW, [0; 6]);
    s.add("clos set", 7, RW, clos(1, 1, 800, 2000, 0));
    s.add("set level", 10, W, [0, 0, 1]);
    s.add("set feature", 11, W, [0, 0, 1]);
    s.words("msr write", 4, RW, &[1, 0, 1, 0, 0x1ad, 0, 0, 0]);
    s.words("msr read", 4, RW, &[1, 0, 0, 0, 0x1ad, 0, 0, 0]);
    s.words("mmio write", 2, W, &[1, 1, 0, 0x2c, 0]);
    for (command, sub, parameter) in [
        (0x7f, 8, 0),
        (0x7f, 2, 0),
        (0x95, 3, 0),
        (0x95, 3, 3),
        (0xd0, 2, 0x100),
        (0xd0, 2, 8),
        (0xd0, 1, 0x100),
    ] {
        s.mailbox(format!("mbox {command:02x}/{sub:02x} par {parameter:#x}"), 0, command, sub, parameter, 0);
    }
    s.caller = Caller::Root;
    for level in highest + 1..6 {
        s.add(format!("level mask {level} punit 1 (levels end at {highest})"), 13, R, mask(level, 1));
        s.add(format!("bf mask {level} punit 1 (levels end at {highest})"), 15, R, mask(level, 1));
    }
    s.calls
}

#[test]
fn calls_are_answered_as_by_the_real_drivers() {
    let Some(folder) = folder() else {
        eprintln!("skipped: no recorded answers of the drivers");
        return;
    };
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_string_lossy().strip_suffix(".txt").map(str::to_owned))
        .filter(|name| name.starts_with("isst-"))
        .collect();
    names.sort();
    let (mut compared, mut skipped) = (0, 0);
    let mut wrong = String::new();
    let mut met = vec![false; KNOWN.len()];
    for name in names {
        let Some((spec, kernel)) = machine(&name) else {
            skipped += 1;
            continue;
        };
        let tpmi = name.contains("gnr");
        let mut machine = SimMachine::boot(spec, kernel, Boot::default(), 0).unwrap();
        let recorded = std::fs::read_to_string(folder.join(format!("{name}.txt"))).unwrap();
        let highest = if name.contains("levels3") { 2 } else { 0 };
        let cpus = if tpmi { 6 } else { 4 };
        // Lines of calls, in order: name in 58 columns, then the answer.
        let mut lines = recorded.lines().filter(|line| {
            !["modprobe", "node", "--", "open:", "rmmod", "    "].iter().any(|word| line.starts_with(word))
        });
        for mut call in script(cpus, highest) {
            let Some(line) = lines.next() else { break };
            if line.contains("killed by signal") {
                let _ = machine.isst(call.number, &mut call.argument, call.caller);
                assert!(machine.kernel_fault().is_some(), "{name}: {line}");
                break;
            }
            let (title, theirs) = line.split_at(line.len().min(58));
            assert_eq!(title.trim_end(), call.name, "{name}");
            // The guest's CPUs sat elsewhere in the package.
            if tpmi && call.name.starts_with("phy id") {
                continue;
            }
            let ours = match machine.isst(call.number, &mut call.argument, call.caller) {
                Ok(value) => {
                    let bytes: String =
                        call.argument.iter().take(160).map(|byte| format!("{byte:02x}")).collect();
                    format!("{value}  {bytes}")
                }
                Err(errno) => format!("{errno:?}"),
            };
            compared += 1;
            let theirs = theirs.trim();
            if ours != theirs {
                let known =
                    KNOWN.iter().position(|(file, what, _)| name.contains(file) && call.name.contains(what));
                match known {
                    Some(index) => met[index] = true,
                    None => wrong.push_str(&format!(
                        "{name}: {}\n  recorded  {theirs}\n  simulated {ours}\n",
                        call.name
                    )),
                }
            }
        }
    }
    eprintln!("{compared} calls compared; {skipped} recordings skipped");
    assert!(wrong.is_empty(), "{wrong}");
    assert!(compared > 500);
    if skipped == 0 {
        let never: Vec<_> =
            KNOWN.iter().zip(&met).filter(|(_, met)| !**met).map(|(known, _)| known).collect();
        assert!(never.is_empty(), "known differences that do not occur: {never:?}");
    }
}
