use std::{collections::BTreeSet, sync::LazyLock};

use crate::{
    mode::Mode,
    record::{Answer, Observation, Run, Written},
    rules::check,
    speed_select::{self, Shape, by_nr, mailbox, nr},
    step::{Sequence, Step},
};

/// Created once, because a machine's file is read for each of its modes.
fn mode(machine: &str) -> &'static Mode {
    static MODES: LazyLock<Vec<Mode>> = LazyLock::new(|| {
        let of = |machine| Mode::all(machine).unwrap().into_iter().filter(|mode| mode.shape.is_some());
        [SMALL, GUIDE, "msr-mailbox"].into_iter().flat_map(of).collect()
    });
    MODES.iter().find(|mode| mode.machine == machine).unwrap()
}

/// The base state as the queries read it, with some bytes replaced: (query, offset, byte).
fn base(shape: &Shape, changes: &[(&str, usize, u8)]) -> Observation {
    let mut seen = Observation::default();
    for (name, number, mut reply) in shape.queries() {
        let call = speed_select::by_number(number).unwrap();
        if call.nr == nr::CLOS_PARAM {
            reply[6..8].copy_from_slice(&25_500u16.to_le_bytes());
        }
        if name.contains("MBOX_COMMAND.class") {
            reply[18] = 0xff;
        }
        for (_, at, byte) in changes.iter().filter(|(of, ..)| *of == name) {
            reply[*at] = *byte;
        }
        seen.attributes.insert(format!("isst/{name}"), format!("{:016x} {}", 0, speed_select::hex(&reply)));
    }
    seen
}

/// The rules that are violated after a call with this answer and these changes.
fn broken(
    machine: &str,
    call: (u32, Vec<u8>),
    answer: &str,
    reply: &[u8],
    changes: &[(&str, usize, u8)],
) -> Vec<String> {
    broken_after(machine, &[], call, answer, reply, changes, &[])
}

fn broken_after(
    machine: &str,
    earlier: &[Step],
    (nr, argument): (u32, Vec<u8>),
    answer: &str,
    reply: &[u8],
    changes: &[(&str, usize, u8)],
    writes: &[&str],
) -> Vec<String> {
    let mode = mode(machine);
    let shape = mode.shape.as_ref().unwrap();
    let mut after = base(shape, changes);
    let returned = i64::from(answer == "ok" && nr <= nr::MSR_COMMAND && by_nr(nr).commands.is_some());
    let value = speed_select::hex(if reply.is_empty() { &argument } else { reply });
    let path = speed_select::DEVICE.to_owned();
    after.answers.push(Answer { path, answer: answer.to_owned(), value, returned });
    after.writes = writes
        .iter()
        .map(|name| Written { cpu: 0, register: (*name).to_owned(), value: 1, refused: false })
        .collect();
    let mut steps = earlier.to_vec();
    steps.push(Step::Ioctl { number: by_nr(nr).number, argument });
    let mut observations = vec![base(shape, &[]); steps.len()];
    observations.push(after);
    let runs = [Run { name: "a".into(), observations }];
    let found = check(mode, &[Sequence { name: "a".into(), steps }], &runs);
    let mut ids: BTreeSet<String> = BTreeSet::new();
    ids.extend(found.into_iter().map(|violation| violation.rule));
    ids.into_iter().map(|id| id.replace("speed-select.", "")).collect()
}

fn class(class: u64, max: u64) -> (u32, Vec<u8>) {
    let values = [("get_set", 1), ("clos", class), ("max_freq_mhz", max)];
    (nr::CLOS_PARAM, by_nr(nr::CLOS_PARAM).argument(&values))
}

fn level(level: u64) -> (u32, Vec<u8>) {
    (nr::PERF_SET_LEVEL, by_nr(nr::PERF_SET_LEVEL).argument(&[("level", level)]))
}

const SMALL: &str = "tpmi-small";
const GUIDE: &str = "sst-guide";

#[test]
fn a_good_driver_breaks_no_rule() {
    // 1900 MHz.
    let set = [("0.0/CLOS_PARAM.2", 6, 0x6c), ("0.0/CLOS_PARAM.2", 7, 7)];
    assert!(broken(SMALL, class(2, 1900), "ok", &[], &set).is_empty());
    assert!(broken(SMALL, level(1), "ok", &[], &[("0.0/PERF_LEVELS", 5, 1)]).is_empty());
    for refused in [class(4, 100), class(0, 25_600), level(2), level(0), level(255)] {
        assert!(broken(SMALL, refused, "ENOTTY", &[], &[]).is_empty());
    }
    let set = (nr::MBOX_COMMAND, mailbox(0, 0xd001, speed_select::WRITE | 1, 0x0019_0800));
    let after = [("0.0/MBOX_COMMAND.class.1", 17, 8), ("0.0/MBOX_COMMAND.class.1", 18, 0x19)];
    assert!(broken(GUIDE, set, "ok", &[], &after).is_empty());
    // Firmware that rejects changes.
    let set = (nr::MBOX_COMMAND, mailbox(0, 0x7f08, 0, 4));
    assert!(broken_after(GUIDE, &[Step::Firmware(2)], set, "ENXIO", &[], &[], &["mailbox.0xa4"]).is_empty());
}

#[test]
fn bugs_break_rules() {
    // The class is written to its neighbour, to another domain, or nowhere.
    let lands =
        |place: &'static str| broken(SMALL, class(2, 1900), "ok", &[], &[(place, 6, 0x6c), (place, 7, 7)]);
    assert_eq!(lands("0.0/CLOS_PARAM.3"), ["reads-back"]);
    assert_eq!(lands("0.1/CLOS_PARAM.2"), ["own-domain", "reads-back"]);
    assert_eq!(broken(SMALL, class(2, 1900), "ok", &[], &[]), ["reads-back"]);
    // An out-of-range value is accepted.
    for taken in [class(4, 100), class(0, 25_600), level(2), level(0), level(200)] {
        assert_eq!(broken(SMALL, taken, "ok", &[], &[]), ["refused"]);
    }
    // A rejected call takes effect, or writes.
    let changed = [("0.0/PERF_LEVELS", 5, 3)];
    assert_eq!(broken(SMALL, level(2), "ENOTTY", &[], &changed), ["refused-changes-nothing"]);
    assert_eq!(
        broken_after(SMALL, &[], level(9), "ENOTTY", &[], &[], &["tpmi.0x78", "0x774"]),
        ["refused-writes-nothing"]
    );
    assert_eq!(broken(SMALL, level(1), "ENOTTY", &[], &[]), ["accepted"]);
    // A change of level keeps base-freq.
    let kept = [("0.0/PERF_LEVELS", 5, 1), ("0.0/PERF_LEVELS", 6, 1)];
    assert_eq!(broken(SMALL, level(1), "ok", &[], &kept), ["reads-back"]);
    // A domain without registers answers.
    let one = [("power_domain_id", 3)];
    let read = by_nr(nr::CLOS_ASSOC).with_commands(&[("punit_cpu_map", 1)], &[&one]);
    assert_eq!(broken(SMALL, (nr::CLOS_ASSOC, read), "ok", &[], &[]), ["refused"]);
}

#[test]
fn values_are_the_machines() {
    let ask = by_nr(nr::GET_BASE_FREQ_INFO).argument(&[("level", 1)]);
    let reply = |high: u16| {
        let mut reply = ask.clone();
        for (at, value) in [(4, high), (6, 2100), (8, 98), (10, 165)] {
            reply[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        reply
    };
    let of = |high| broken(SMALL, (nr::GET_BASE_FREQ_INFO, ask.clone()), "ok", &reply(high), &[]);
    assert!(of(2600).is_empty());
    assert_eq!(of(2100), ["level-values"]);
    // Base frequency of level 4, with AVX2 and AVX-512.
    let ask = mailbox(0, 0x7f0a, 0, 4);
    let mut reply = ask.clone();
    reply[16..20].copy_from_slice(&[28, 26, 23, 0]);
    assert!(broken(GUIDE, (nr::MBOX_COMMAND, ask.clone()), "ok", &reply, &[]).is_empty());
    reply[16] = 29;
    assert_eq!(broken(GUIDE, (nr::MBOX_COMMAND, ask), "ok", &reply, &[]), ["answer-of-firmware"]);
}

#[test]
fn any_call_is_judged() {
    for machine in [SMALL, GUIDE, "msr-mailbox"] {
        for number in 0..20 {
            for length in [0, 1, 3, 5, 12, 200] {
                for byte in [0, 1, 3, 64, 255] {
                    for answer in ["ok", "EINVAL", "killed"] {
                        let _ = broken(machine, (number, vec![byte; length]), answer, &[1], &[]);
                    }
                }
            }
        }
    }
}
