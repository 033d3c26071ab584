//! The drivers of Speed Select: which calls they reject, and what other calls change. After each
//! step everything that can be set is read again.
//!
//! The expected result of a step is computed from the settings before it (`expect`), and compared
//! with the settings after it.

mod expect;
mod values;

use super::{Case, Rule};
use crate::{
    record::Answer,
    speed_select::{self, Shape, State, nr},
    step::Step,
};
use expect::{Expected, Verdict};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "speed-select.base-state",
        about: "the base state can be restored: what it reads is the same each time",
        source: "flyball: sequences are independent of each other",
        applies: |_| true,
        check: base_state,
    },
    Rule {
        id: "speed-select.refused",
        about: "a call that is out of range, or about what there is not, is refused",
        source: "drivers/platform/x86/intel/speed_select_if: isst_if_common.c (isst_if_mbox_cmd_invalid, isst_if_exec_multi_cmd), isst_if_mmio.c (isst_if_mmio_rd_wr), isst_tpmi_core.c (get_instance and each call)",
        applies: |_| true,
        check: refused,
    },
    Rule {
        id: "speed-select.accepted",
        about: "a call that the machine can do is accepted",
        source: "include/uapi/linux/isst_if.h; admin-guide/pm/intel-speed-select.rst",
        applies: |_| true,
        check: accepted,
    },
    Rule {
        id: "speed-select.reads-back",
        about: "what an accepted call sets reads back: level, features, classes, associations, core-power, turbo limits",
        source: "admin-guide/pm/intel-speed-select.rst, sections on perf-profile, base-freq, turbo-freq and core-power; include/uapi/linux/isst_if.h",
        applies: |_| true,
        check: reads_back,
    },
    Rule {
        id: "speed-select.own-domain",
        about: "an accepted call changes nothing of another power domain",
        source: "include/uapi/linux/isst_if.h, power_domain_id: power domain id of the request",
        applies: |mode| mode.shape.as_ref().is_some_and(|shape| shape.domains.len() > 1),
        check: own_domain,
    },
    Rule {
        id: "speed-select.refused-changes-nothing",
        about: "a refused call changes nothing that can be set",
        source: "drivers/platform/x86/intel/speed_select_if/isst_tpmi_core.c, isst_if_common.c: arguments are checked before anything is written",
        applies: |_| true,
        check: refused_changes_nothing,
    },
    Rule {
        id: "speed-select.refused-writes-nothing",
        about: "a call that the kernel refuses by its argument writes no register and sends no command",
        source: "drivers/platform/x86/intel/speed_select_if/isst_if_common.c, isst_if_mbox_cmd_invalid: an invalid command may result in instability of the platform",
        applies: |_| true,
        check: refused_writes_nothing,
    },
    Rule {
        id: "speed-select.kept",
        about: "CPUs that go offline and come back, and load, change nothing that is set",
        source: "admin-guide/pm/intel-speed-select.rst: settings are those of a package or power domain, not of a CPU",
        applies: |_| true,
        check: kept,
    },
    Rule {
        id: "speed-select.level-values",
        about: "what is read about a level, base-freq and turbo-freq is what the machine has",
        source: "include/uapi/linux/isst_if.h, struct isst_perf_level_data_info and those after it",
        applies: |mode| mode.shape.as_ref().is_some_and(Shape::is_tpmi),
        check: values::of_level,
    },
    Rule {
        id: "speed-select.answer-of-firmware",
        about: "what the mailbox answers arrives as the firmware gave it",
        source: "include/uapi/linux/isst_if.h, struct isst_if_mbox_cmd: resp_data",
        applies: |mode| mode.shape.as_ref().is_some_and(|shape| !shape.is_tpmi()),
        check: values::of_mailbox,
    },
    Rule {
        id: "speed-select.platform",
        about: "the platform, its power domains and the numbers of its CPUs are those of the machine",
        source: "include/uapi/linux/isst_if.h, struct isst_if_platform_info, isst_if_cpu_map, isst_tpmi_instance_count",
        applies: |_| true,
        check: values::of_platform,
    },
    Rule {
        id: "speed-select.base-frequency",
        about: "base_frequency follows the level, and base-freq's high and low priority",
        source: "admin-guide/pm/intel_pstate.rst, base_frequency; admin-guide/pm/intel-speed-select.rst, base-freq",
        applies: |_| true,
        check: values::base_frequency,
    },
];

/// The step's call and its answer.
pub(super) struct Made<'a> {
    number: u32,
    argument: &'a [u8],
    answer: &'a Answer,
}

impl<'a> Made<'a> {
    fn of(case: &'a Case<'_>) -> Option<Made<'a>> {
        let Some(Step::Ioctl { number, argument }) = case.step else { return None };
        Some(Made { number: *number, argument, answer: case.after.answers.first()? })
    }
}

/// The firmware's faults before the step, as bits in lab/docs/guest.md.
fn faults(case: &Case<'_>) -> u8 {
    let done = case.earlier.iter().rev().skip(1).find_map(|(_, step)| match step {
        Some(Step::Firmware(faults)) => Some(*faults),
        _ => None,
    });
    done.unwrap_or(0)
}

fn states<'a>(case: &'a Case<'_>) -> Option<(&'a Shape, State, State)> {
    let shape = case.mode.shape.as_ref()?;
    Some((shape, State::read(shape, &case.before.attributes), State::read(shape, &case.after.attributes)))
}

fn expected(case: &Case<'_>, made: &Made<'_>, shape: &Shape, before: &State) -> Expected {
    expect::expect(case, shape, before, faults(case), made)
}

fn base_state(case: &Case<'_>) -> Vec<String> {
    if case.step.is_some() {
        return Vec::new();
    }
    let show = |value: Option<&str>| value.unwrap_or("nothing").to_owned();
    let differences = super::differences(case.first, case.after).into_iter();
    differences.map(|(path, first, now)| format!("{path} was {} and is {}", show(first), show(now))).collect()
}

fn refused(case: &Case<'_>) -> Vec<String> {
    let (Some(made), Some((shape, before, _))) = (Made::of(case), states(case)) else { return Vec::new() };
    let expected = expected(case, &made, shape, &before);
    match expected.verdict {
        Verdict::Refused(why) | Verdict::RefusedByFirmware(why) if made.answer.is_ok() => {
            vec![format!("it was accepted: {why}")]
        }
        _ => Vec::new(),
    }
}

fn accepted(case: &Case<'_>) -> Vec<String> {
    let (Some(made), Some((shape, before, _))) = (Made::of(case), states(case)) else { return Vec::new() };
    let expected = expected(case, &made, shape, &before);
    match expected.verdict {
        Verdict::Accepted if made.answer.is_ok() => {
            let (done, count) = (made.answer.returned, expected.count);
            if count > 0 && done != count {
                vec![format!("{done} commands were done of {count}")]
            } else {
                Vec::new()
            }
        }
        Verdict::Accepted => vec![format!("it was answered {}", made.answer.answer)],
        _ => Vec::new(),
    }
}

/// Differences from the expected state: the domain (`None` if it is not specific to one), and a
/// line.
fn differences(shape: &Shape, wanted: &State, found: &State) -> Vec<(Option<usize>, String)> {
    let mut all = Vec::new();
    for (at, (wanted, found)) in wanted.domains.iter().zip(&found.domains).enumerate() {
        let d = &shape.domains[at];
        let mut compare = |what: &str, wanted: Option<String>, found: Option<String>| {
            if let (Some(wanted), Some(found)) = (wanted, found)
                && wanted != found
            {
                let line =
                    format!("power domain {}.{}: {what} is {found} instead of {wanted}", d.package, d.number);
                all.push((Some(at), line));
            }
        };
        let text = |value: Option<bool>| value.map(|value| if value { "on" } else { "off" }.to_owned());
        compare("the level", wanted.level.map(|n| n.to_string()), found.level.map(|n| n.to_string()));
        compare("base-freq", text(wanted.base_freq), text(found.base_freq));
        compare("turbo-freq", text(wanted.turbo_freq), text(found.turbo_freq));
        compare("core-power", text(wanted.core_power), text(found.core_power));
        compare("ordered priority", text(wanted.ordered), text(found.ordered));
        compare("core-power's configuration", text(wanted.configuration), text(found.configuration));
        for (class, (wanted, found)) in wanted.classes.iter().zip(&found.classes).enumerate() {
            compare(
                &format!("class {class}"),
                wanted.map(|c| format!("{c:?}")),
                found.map(|c| format!("{c:?}")),
            );
        }
        for (core, (wanted, found)) in wanted.class_of.iter().zip(&found.class_of).enumerate() {
            let text = |class: &Option<u8>| class.map(|class| class.to_string());
            compare(&format!("the class of core {core}"), text(wanted), text(found));
        }
    }
    if let (Some(wanted), Some(found)) = (wanted.limits, found.limits)
        && wanted != found
    {
        all.push((None, format!("MSR 1ADh is {found:#x} instead of {wanted:#x}")));
    }
    all
}

fn reads_back(case: &Case<'_>) -> Vec<String> {
    accepted_differences(case, |of_call, domain| domain.is_none_or(|domain| of_call.contains(&domain)))
}

fn own_domain(case: &Case<'_>) -> Vec<String> {
    accepted_differences(case, |of_call, domain| domain.is_some_and(|domain| !of_call.contains(&domain)))
}

fn accepted_differences(case: &Case<'_>, shown: impl Fn(&[usize], Option<usize>) -> bool) -> Vec<String> {
    let (Some(made), Some((shape, before, after))) = (Made::of(case), states(case)) else {
        return Vec::new();
    };
    let expected = expected(case, &made, shape, &before);
    // Another rule checks calls that should have been rejected.
    if !made.answer.is_ok() || matches!(expected.verdict, Verdict::Refused(_) | Verdict::RefusedByFirmware(_))
    {
        return Vec::new();
    }
    let all = differences(shape, &expected.state, &after).into_iter();
    all.filter(|(domain, _)| shown(&expected.domains, *domain)).map(|(_, line)| line).collect()
}

fn refused_changes_nothing(case: &Case<'_>) -> Vec<String> {
    let (Some(made), Some((shape, before, after))) = (Made::of(case), states(case)) else {
        return Vec::new();
    };
    if made.answer.is_ok() {
        return Vec::new();
    }
    let expected = expected(case, &made, shape, &before);
    // The commands of a call before the rejected one took effect.
    let wanted = match expected.verdict {
        Verdict::Refused(_) | Verdict::RefusedByFirmware(_) => &expected.state,
        Verdict::Accepted | Verdict::Open => &before,
    };
    differences(shape, wanted, &after).into_iter().map(|(_, line)| line).collect()
}

fn refused_writes_nothing(case: &Case<'_>) -> Vec<String> {
    let (Some(made), Some((shape, before, _))) = (Made::of(case), states(case)) else { return Vec::new() };
    let expected = expected(case, &made, shape, &before);
    let Verdict::Refused(why) = expected.verdict else { return Vec::new() };
    if expected.done > 0 {
        return Vec::new();
    }
    let writes = case.after.writes.iter().filter(|write| speed_select::is_register(&write.register));
    writes
        .map(|write| format!("{} was written, {:#x}, although {why}", write.register, write.value))
        .collect()
}

fn kept(case: &Case<'_>) -> Vec<String> {
    let Some((shape, before, after)) = states(case) else { return Vec::new() };
    match case.step {
        None | Some(Step::Ioctl { .. } | Step::Run(_) | Step::Firmware(_)) => Vec::new(),
        Some(Step::Write { .. } | Step::Load(_) | Step::Wait(_)) => {
            differences(shape, &before, &after).into_iter().map(|(_, line)| line).collect()
        }
    }
}

/// A successful call that reads one thing.
fn answered<'a>(
    case: &'a Case<'_>,
    nr: u32,
) -> Option<(&'a [u8], Vec<u8>, &'static crate::speed_select::Call)> {
    let made = Made::of(case)?;
    let call =
        crate::speed_select::by_number(made.number).filter(|call| call.nr == nr && made.answer.is_ok())?;
    Some((made.argument, crate::speed_select::bytes(&made.answer.value)?, call))
}

/// Calls about a level.
const OF_LEVELS: std::ops::RangeInclusive<u32> = nr::GET_PERF_LEVEL_INFO..=nr::GET_PERF_LEVEL_FABRIC_INFO;

#[cfg(test)]
mod tests;
