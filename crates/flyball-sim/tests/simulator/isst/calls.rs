//! The recorded calls: every ioctl of Speed Select's device node, with valid and invalid arguments,
//! in the recordings' order.

use flyball_sim::Caller;

/// A call of the probe.
pub(super) struct Call {
    /// The call's name in the recordings.
    pub name: String,
    /// The ioctl's number.
    pub number: u32,
    /// The argument's content before the call.
    pub argument: Vec<u8>,
    pub caller: Caller,
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

/// An association call: count, set, numbering, then package, domain, core and class of each
/// element.
fn associations(header: [u16; 3], elements: &[(u8, u16, u16)]) -> Vec<u8> {
    let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (domain, core, class) in elements {
        bytes.extend([0, *domain]);
        bytes.extend(core.to_le_bytes());
        bytes.extend(class.to_le_bytes());
    }
    bytes
}

#[expect(clippy::too_many_lines, reason = "a script: the order of the calls is that of the recordings")]
/// The probe's calls in order. `highest` is the highest level of the first domain.
pub(super) fn script(cpus: u32, highest: u8) -> Vec<Call> {
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
