//! The settings after a step, as read by the calls of [`Shape::queries`].

use std::collections::BTreeMap;

use flyball_silicon::spec::SstClass;

use super::{Shape, answer, by_nr, bytes, nr};

/// Answers to queries, by `isst/` and the query's name.
type Answers = BTreeMap<String, String>;

/// A class of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Class {
    /// Lowest ratio.
    pub min: u8,
    pub max: u8,
    pub weight: u8,
    /// Preference and desired ratio, in the mailbox only.
    pub other: u16,
}

/// The settings of a power domain; `None` for values that could not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DomainState {
    pub level: Option<u32>,
    pub base_freq: Option<bool>,
    pub turbo_freq: Option<bool>,
    pub core_power: Option<bool>,
    pub ordered: Option<bool>,
    /// The configuration's core-power switch, in the mailbox only.
    pub configuration: Option<bool>,
    pub classes: [Option<Class>; 4],
    pub class_of: Vec<Option<u8>>,
}

/// The settings of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    pub domains: Vec<DomainState>,
    /// MSR 1ADh.
    pub limits: Option<u64>,
}

/// The argument after a query, unless the query failed.
fn read(seen: &Answers, name: &str) -> Option<Vec<u8>> {
    let (returned, argument) = seen.get(&format!("isst/{name}"))?.split_once(' ')?;
    (answer(returned) == "ok").then(|| bytes(argument))?
}

impl State {
    pub fn read(shape: &Shape, seen: &Answers) -> State {
        let limits = read(seen, "MSR_COMMAND.0x1ad");
        State {
            domains: (0..shape.domains.len()).map(|at| domain(shape, at, seen)).collect(),
            limits: limits.map(|bytes| by_nr(nr::MSR_COMMAND).of_command(&bytes, 0, "data")),
        }
    }
}

fn domain(shape: &Shape, at: usize, seen: &Answers) -> DomainState {
    let d = &shape.domains[at];
    let of = |what: &str| read(seen, &format!("{}.{}/{what}", d.package, d.number));
    let mut state = DomainState::default();
    if shape.class == SstClass::Tpmi {
        let call = by_nr(nr::PERF_LEVELS);
        if let Some(bytes) = of("PERF_LEVELS") {
            let features = call.get(&bytes, "feature_state");
            state.level = Some(call.get(&bytes, "current_level") as u32);
            state.base_freq = Some(features & 1 != 0);
            state.turbo_freq = Some(features & 2 != 0);
        }
        let call = by_nr(nr::CORE_POWER_STATE);
        if let Some(bytes) = of("CORE_POWER_STATE") {
            state.core_power = Some(call.get(&bytes, "enable") != 0);
            state.ordered = Some(call.get(&bytes, "priority_type") != 0);
        }
        let call = by_nr(nr::CLOS_PARAM);
        for (class, place) in state.classes.iter_mut().enumerate() {
            *place = of(&format!("CLOS_PARAM.{class}")).map(|bytes| Class {
                min: (call.get(&bytes, "min_freq_mhz") / 100) as u8,
                max: (call.get(&bytes, "max_freq_mhz") / 100) as u8,
                weight: call.get(&bytes, "prop_prio") as u8,
                other: 0,
            });
        }
        let call = by_nr(nr::CLOS_ASSOC);
        let all = of("CLOS_ASSOC");
        let class = |core| all.as_ref().map(|bytes| call.of_command(bytes, core, "clos") as u8);
        state.class_of = (0..d.cores as usize).map(class).collect();
        return state;
    }
    let call = by_nr(nr::MBOX_COMMAND);
    let word = |what: &str| {
        of(&format!("MBOX_COMMAND.{what}")).map(|bytes| call.of_command(&bytes, 0, "resp_data") as u32)
    };
    state.level = word("levels").map(|word| word >> 16 & 0xff);
    if let Some(word) = state.level.and_then(|level| word(&format!("features.{level}"))) {
        state.turbo_freq = Some(word >> 16 & 1 != 0);
        state.base_freq = Some(word >> 17 & 1 != 0);
    }
    if let Some(word) = word("core-power") {
        state.core_power = Some(word >> 1 & 1 != 0);
        state.ordered = Some(word >> 2 & 1 != 0);
    }
    state.configuration = word("configuration").map(|word| word >> 16 & 1 != 0);
    for (class, place) in state.classes.iter_mut().enumerate() {
        *place = word(&format!("class.{class}")).map(class_of_word);
    }
    state.class_of =
        (0..d.cores).map(|core| word(&format!("core.{core}")).map(|word| (word >> 16 & 3) as u8)).collect();
    state
}

/// Decodes the word of a class in the mailbox and in memory.
pub fn class_of_word(word: u32) -> Class {
    Class {
        min: (word >> 8) as u8,
        max: (word >> 16) as u8,
        weight: (word >> 4) as u8 & 15,
        other: (word & 15 | word >> 24 << 8) as u16,
    }
}
