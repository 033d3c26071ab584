//! The expected answer of a call, and the expected settings after it.

use flyball_silicon::{Silicon, spec::SstClass};

use super::{Case, Made, OF_LEVELS};
use crate::speed_select::{Call, Class, MAX_COMMANDS, Shape, State, WRITE, by_number, class_of_word, nr};

/// The expected answer of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Accepted,
    /// Rejected by the kernel, because of the argument.
    Refused(&'static str),
    RefusedByFirmware(&'static str),
    /// Not defined: kernels or machines differ.
    Open,
}
use Verdict::{Accepted, Open, Refused, RefusedByFirmware};

/// The expected result of a call.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    pub verdict: Verdict,
    /// Expected number of completed commands, for a call that returns it.
    pub count: i64,
    /// Number of commands before the rejected one.
    pub done: usize,
    pub state: State,
    /// Domains that the call affects.
    pub domains: Vec<usize>,
}

/// Fault bits: busy mailbox, rejected changes, locked levels.
const BUSY: u8 = 1;
const REFUSES: u8 = 2;
const LOCKED: u8 = 4;

/// MSRs that programs may access (isst_if_common.c, punit_msr_white_list).
const MSRS: [u64; 5] = [0x1ad, 0x1ae, 0x1af, 0x64b, 0x54];

const NO_DOMAIN: &str = "there is no power domain with registers of these numbers";
const NO_CPU: &str = "there is no such CPU";

struct Work<'a> {
    case: &'a Case<'a>,
    shape: &'a Shape,
    faults: u8,
    call: &'static Call,
    argument: &'a [u8],
    state: State,
    domains: Vec<usize>,
}

pub(super) fn expect(
    case: &Case<'_>,
    shape: &Shape,
    before: &State,
    faults: u8,
    made: &Made<'_>,
) -> Expected {
    let nothing =
        |verdict| Expected { verdict, count: 0, done: 0, state: before.clone(), domains: Vec::new() };
    let Some(call) = by_number(made.number) else { return nothing(Refused("there is no such call")) };
    let mut work = Work {
        case,
        shape,
        faults,
        call,
        argument: made.argument,
        state: before.clone(),
        domains: Vec::new(),
    };
    let legacy = call.nr <= nr::MSR_COMMAND;
    let has = match call.nr {
        nr::GET_PLATFORM_INFO | nr::GET_PHY_ID | nr::MSR_COMMAND => true,
        nr::IO_CMD => shape.class == SstClass::MailboxPci,
        nr::MBOX_COMMAND => !shape.is_tpmi(),
        _ => shape.is_tpmi(),
    };
    if !has {
        return nothing(Refused("the machine does not have this kind of registers"));
    }
    if call.commands.is_none() {
        let verdict = work.single();
        return Expected { verdict, count: 0, done: 0, state: work.state, domains: work.domains };
    }
    let count = call.get(made.argument, "cmd_count");
    if count == 0 || count > MAX_COMMANDS {
        return nothing(Refused("the number of commands is 0 or above 64"));
    }
    let mut verdict = Accepted;
    let mut done = 0;
    for command in 0..count as usize {
        // If the verdict is open, the answer tells how far the call came.
        let of_command = match call.nr {
            nr::CLOS_ASSOC => work.association(command),
            nr::GET_PHY_ID => work.cpu(command, false),
            nr::IO_CMD => work.memory(command),
            nr::MBOX_COMMAND => work.mailbox(command),
            _ => work.register(command),
        };
        match of_command {
            Accepted => done += 1,
            Open => {
                verdict = Open;
                break;
            }
            // The calls of isst_if_common.c return the number of completed commands instead of an
            // error.
            _ if legacy && done > 0 => break,
            refused => {
                verdict = refused;
                break;
            }
        }
    }
    let count = if legacy && verdict == Accepted { done as i64 } else { 0 };
    Expected { verdict, count, done, state: work.state, domains: work.domains }
}

impl Work<'_> {
    fn get(&self, name: &str) -> u64 {
        self.call.get(self.argument, name)
    }

    fn of(&self, command: usize, name: &str) -> u64 {
        self.call.of_command(self.argument, command, name)
    }

    /// The domain in the call.
    fn domain(&mut self) -> Option<usize> {
        let found = self.shape.domain(self.get("socket_id"), self.get("power_domain_id"));
        self.domains.extend(found);
        found
    }

    fn single(&mut self) -> Verdict {
        match self.call.nr {
            nr::GET_PLATFORM_INFO => return Accepted,
            nr::COUNT_TPMI_INSTANCES => {
                let there = self.get("socket_id") < u64::from(self.shape.packages);
                return if there { Accepted } else { Refused("there is no such package") };
            }
            _ => {}
        }
        if self.call.nr == nr::CLOS_PARAM && self.get("clos") > 3 {
            return Refused("there are four classes");
        }
        let Some(at) = self.domain() else { return Refused(NO_DOMAIN) };
        match self.call.nr {
            nr::CORE_POWER_STATE => self.core_power(at),
            nr::CLOS_PARAM => self.class(at),
            nr::PERF_LEVELS => Accepted,
            nr::PERF_SET_LEVEL => self.level(at),
            nr::PERF_SET_FEATURE => {
                let features = self.get("feature");
                if features > 3 {
                    return Refused("bits 0 and 1 are the features");
                }
                // If firmware ignores the change, the kernel does not notice.
                self.features(at, features & 1 != 0, features & 2 != 0);
                Accepted
            }
            nr if OF_LEVELS.contains(&nr) => {
                let there = u32::try_from(self.get("level"))
                    .ok()
                    .and_then(|n| self.shape.domains[at].level(n))
                    .is_some();
                let is_mask = matches!(nr, nr::GET_PERF_LEVEL_CPU_MASK | nr::GET_BASE_FREQ_CPU_MASK);
                match () {
                    () if !there => Refused("the power domain does not have this level"),
                    () if is_mask && self.get("punit_cpu_map") == 0 => {
                        Refused("masks are those of the power unit's numbers")
                    }
                    // Not all kernels have it.
                    () if nr == nr::GET_PERF_LEVEL_FABRIC_INFO => Open,
                    () => Accepted,
                }
            }
            _ => Open,
        }
    }

    fn core_power(&mut self, at: usize) -> Verdict {
        if self.get("get_set") == 0 {
            return Accepted;
        }
        let (enable, ordered) = (self.get("enable"), self.get("priority_type"));
        if enable > 1 || ordered > 1 {
            return Refused("core-power is on or off, and its priority proportional or ordered");
        }
        if self.faults & REFUSES == 0 && self.shape.core_power {
            let state = &mut self.state.domains[at];
            // Turbo-freq needs core-power.
            if enable == 1 || state.turbo_freq == Some(false) {
                state.core_power = Some(enable == 1);
            } else if state.turbo_freq.is_none() {
                state.core_power = None;
            }
            state.ordered = Some(ordered == 1);
        }
        Accepted
    }

    fn class(&mut self, at: usize) -> Verdict {
        if self.get("get_set") == 0 {
            return Accepted;
        }
        let (min, max, weight) =
            (self.get("min_freq_mhz") / 100, self.get("max_freq_mhz") / 100, self.get("prop_prio"));
        if min > 255 || max > 255 || weight > 15 {
            return Refused("a frequency does not fit into 8 bits of 100 MHz, or a priority not into 4 bits");
        }
        if self.faults & REFUSES == 0 {
            let class = Class { min: min as u8, max: max as u8, weight: weight as u8, other: 0 };
            let number = self.get("clos") as usize;
            self.state.domains[at].classes[number] = Some(class);
        }
        Accepted
    }

    fn level(&mut self, at: usize) -> Verdict {
        let level = self.get("level") as u32;
        if self.shape.domains[at].level(level).is_none() {
            return Refused("the power domain does not have this level");
        }
        let now = self.state.domains[at].level;
        if now == Some(level) {
            return Refused("this level is in force already");
        }
        if self.faults & (REFUSES | LOCKED) != 0 {
            return RefusedByFirmware("the firmware did not change the level");
        }
        self.set_level(at, level);
        Accepted
    }

    fn set_level(&mut self, at: usize, level: u32) {
        let state = &mut self.state.domains[at];
        (state.level, state.base_freq, state.turbo_freq) = (Some(level), Some(false), Some(false));
        // The turbo limits follow the level.
        self.state.limits = None;
    }

    /// Applies the firmware's reaction to requested features.
    fn features(&mut self, at: usize, base: bool, turbo: bool) {
        if self.faults & REFUSES != 0 {
            return;
        }
        let state = &mut self.state.domains[at];
        let level = state.level.and_then(|level| self.shape.domains[at].level(level));
        state.base_freq = level.map(|level| base && level.bf.is_some());
        state.turbo_freq = match (level, state.core_power) {
            (Some(level), Some(power)) => Some(turbo && level.tf.is_some() && power),
            _ => None,
        };
    }

    fn association(&mut self, command: usize) -> Verdict {
        let set = self.get("get_set") != 0;
        let (core, class) = (self.of(command, "logical_cpu"), self.of(command, "clos"));
        if class > 3 {
            return Refused("there are four classes");
        }
        if core > 63 {
            return Refused("a power domain has 64 cores at most");
        }
        if self.get("punit_cpu_map") == 0 {
            return Refused("cores have the power unit's numbers");
        }
        let at = self.shape.domain(self.of(command, "socket_id"), self.of(command, "power_domain_id"));
        let Some(at) = at else { return Refused(NO_DOMAIN) };
        self.domains.push(at);
        if set
            && self.faults & REFUSES == 0
            && let Some(place) = self.state.domains[at].class_of.get_mut(core as usize)
        {
            *place = Some(class as u8);
        }
        Accepted
    }

    /// Checks a command's CPU.
    fn cpu(&self, command: usize, online: bool) -> Verdict {
        let cpu = self.of(command, "logical_cpu");
        if cpu >= u64::from(self.shape.cpus) {
            return Refused(NO_CPU);
        }
        if online && self.case.before.get(&format!("cpu{cpu}/online")) == Some("0") {
            return Refused("the CPU is offline");
        }
        Accepted
    }

    fn memory(&mut self, command: usize) -> Verdict {
        let register = self.of(command, "reg");
        if !register.is_multiple_of(4) {
            return Refused("registers are multiples of 4");
        }
        if let refused @ Refused(_) = self.cpu(command, false) {
            return refused;
        }
        // isst_if_mmio.c, mmio_range_devid_0 and mmio_range_devid_1.
        let last = if matches!(self.case.mode.spec.identity.model, 0x8f | 0xcf) { 0x11c } else { 0xd0 };
        if !(4..=last).contains(&register) {
            return Refused("the register is outside of the two ranges");
        }
        let at = self.shape.domain_of_cpu(self.of(command, "logical_cpu"));
        self.domains.extend(at);
        if self.of(command, "read_write") == 0 || self.faults & REFUSES != 0 {
            return Accepted;
        }
        let Some(at) = at else { return Open };
        let word = self.of(command, "value") as u32;
        let state = &mut self.state.domains[at];
        match register {
            8..=0x14 => state.classes[(register as usize - 8) / 4] = Some(class_of_word(word)),
            0x20.. => {
                if let Some(place) = state.class_of.get_mut((register as usize - 0x20) / 4) {
                    *place = Some((word >> 16 & 3) as u8);
                }
            }
            _ => {}
        }
        Accepted
    }

    fn register(&mut self, command: usize) -> Verdict {
        let register = self.of(command, "msr");
        if register > u64::from(u32::MAX) {
            // The kernel compares only the lower half.
            return Open;
        }
        if !MSRS.contains(&register) {
            return Refused("programs may not reach this register");
        }
        if let refused @ Refused(_) = self.cpu(command, true) {
            return refused;
        }
        if self.of(command, "read_write") == 0 {
            return Accepted;
        }
        match register {
            0x1ad => {
                let package = self
                    .case
                    .mode
                    .shape
                    .as_ref()
                    .and_then(|shape| shape.domain_of_cpu(self.of(command, "logical_cpu")));
                if package.is_some_and(|at| self.shape.domains[at].package == 0) {
                    self.state.limits = Some(self.of(command, "data"));
                }
                Accepted
            }
            _ => Open,
        }
    }

    fn mailbox(&mut self, command: usize) -> Verdict {
        let (word, parameter) = (self.of(command, "command"), self.of(command, "parameter") as u32 & 0x3fff);
        let (part, data) = (self.of(command, "sub_command"), self.of(command, "req_data") as u32);
        // isst_if_common.c, isst_valid_cmds.
        let known = match word {
            0xd0 => part <= 3,
            0x7f => matches!(part, 0..=0x0c | 0x10..=0x12 | 0x20..=0x23),
            0x94 | 0x95 => part == 3,
            _ => false,
        };
        let by_cpu = self.shape.class == SstClass::MailboxMsr;
        match self.cpu(command, by_cpu && known) {
            Accepted if !known => return Refused("programs may not send this command"),
            Accepted => {}
            refused => return refused,
        }
        let Some(at) = self.shape.domain_of_cpu(self.of(command, "logical_cpu")) else { return Open };
        self.domains.push(at);
        let write = parameter & WRITE != 0;
        if self.faults & BUSY != 0 {
            return RefusedByFirmware("the mailbox is busy");
        }
        if self.faults & REFUSES != 0 && (write || matches!((word, part), (0x7f, 2 | 8) | (0x95, 3))) {
            return RefusedByFirmware("the firmware refuses changes");
        }
        let number = (parameter & 0xff) as usize;
        let state = &mut self.state.domains[at];
        let domain = &self.shape.domains[at];
        match (word, part) {
            (0x7f, 8) if self.faults & LOCKED != 0 => RefusedByFirmware("levels are locked"),
            (0x7f, 8) => match domain.level(data & 0xff) {
                Some(level) => {
                    self.set_level(at, level.number);
                    Accepted
                }
                None => RefusedByFirmware("there is no such level"),
            },
            (0x7f, 2) => {
                let (turbo, base) = (data >> 16 & 1 != 0, data >> 17 & 1 != 0);
                let level = state.level.and_then(|level| domain.level(level));
                let (Some(level), Some(power)) = (level, state.core_power) else { return Open };
                if base && level.bf.is_none() || turbo && (level.tf.is_none() || !power) {
                    return RefusedByFirmware("the level does not have this feature, or core-power is off");
                }
                self.features(at, base, turbo);
                Accepted
            }
            (0x95, 3) if !self.shape.core_power => RefusedByFirmware("there is no core-power"),
            (0x95, 3) => {
                state.configuration = Some(data >> 16 & 1 != 0);
                Accepted
            }
            (0xd0, 0) if number >= domain.cores as usize => RefusedByFirmware("there is no such core"),
            (0xd0, 1) if number > 3 => RefusedByFirmware("there are four classes"),
            (0xd0, 0) if write => {
                state.class_of[number] = Some((data >> 16 & 3) as u8);
                Accepted
            }
            (0xd0, 1) if write => {
                state.classes[number] = Some(class_of_word(data));
                Accepted
            }
            (0xd0, 2) if write => {
                let on = data >> 1 & 1 != 0;
                match state.turbo_freq {
                    None => return Open,
                    Some(true) if !on => return RefusedByFirmware("turbo-freq needs core-power"),
                    _ if on && !self.shape.core_power => return RefusedByFirmware("there is no core-power"),
                    _ => {}
                }
                (state.core_power, state.ordered) = (Some(on), Some(data >> 2 & 1 != 0));
                Accepted
            }
            (0xd0, _) | (0x94, 3) | (0x7f, 0) => Accepted,
            _ => match answer_of_silicon(self.case, domain.package, part as u8, parameter, data) {
                Some(_) => Accepted,
                None => RefusedByFirmware("there is no such level"),
            },
        }
    }
}

/// The silicon's answer to a query about a level, which does not depend on settings.
pub(super) fn answer_of_silicon(
    case: &Case<'_>,
    package: u32,
    part: u8,
    parameter: u32,
    data: u32,
) -> Option<u32> {
    let mut silicon = Silicon::new(case.mode.spec.clone(), 0).ok()?;
    silicon.mailbox(package as usize, 0x7f, part, parameter, data).ok()
}
