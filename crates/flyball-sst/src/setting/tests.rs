//! Tests writing settings: round trips on every interface, rejected writes, busy firmware, and
//! values that must not reach a driver.

use flyball_host::Errno;
use flyball_sst_fake::FakeMachine;
use proptest::prelude::*;

use crate::{
    layout::Layout,
    setting::{Field, Setting},
};

/// The three ways to the firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interface {
    Tpmi,
    Mailbox,
    /// Classes of service go through the mailbox too.
    Skylake,
}

const INTERFACES: [Interface; 3] = [Interface::Tpmi, Interface::Mailbox, Interface::Skylake];

fn machine(interface: Interface) -> FakeMachine {
    match interface {
        Interface::Tpmi => FakeMachine::guide(true),
        Interface::Mailbox => FakeMachine::guide(false),
        Interface::Skylake => FakeMachine::guide(false).as_skylake(),
    }
}

fn layout(machine: &FakeMachine) -> Layout {
    Layout::read(machine).unwrap()
}

/// A setting of the second package's domain.
fn setting(machine: &FakeMachine, field: Field) -> Setting {
    let layout = layout(machine);
    layout.setting(layout.domains[1].place, field)
}

/// Fields with the value of a fresh machine and another one.
fn fields() -> Vec<(Field, [&'static str; 2])> {
    vec![
        (Field::ClosMin(1), ["0", "1200"]),
        (Field::ClosMax(1), ["25500", "2500"]),
        (Field::ClosWeight(2), ["0", "7"]),
        (Field::Class(5), ["0", "3"]),
        (Field::Priority, ["proportional", "ordered"]),
        (Field::CorePower, ["0", "1"]),
        (Field::TurboFreq, ["0", "1"]),
        (Field::BaseFreq, ["0", "1"]),
        (Field::TurboLimits, ["0x1f1f1f1f1f1f1f20", "0x1e1e1e1e1e1e1e1e"]),
        (Field::Level, ["0", "1"]),
        (Field::Partition, ["none", "26,27"]),
    ]
}

#[test]
fn what_was_written_is_read_on_every_interface() {
    for interface in INTERFACES {
        let machine = machine(interface);
        let layout = layout(&machine);
        assert_eq!(layout.domains.len(), 2);
        assert_eq!(layout.domains[1].cpus.to_string(), "14-27,42-55");
        for (field, [before, after]) in fields() {
            let setting = layout.setting(layout.domains[1].place, field);
            assert_eq!(setting.read(&machine).unwrap(), before, "{setting}");
            setting.write(&machine, after).unwrap();
            assert_eq!(setting.read(&machine).unwrap(), after, "{setting}");
            assert_eq!(setting.to_string().parse(), Ok(setting));
            assert!(setting.write(&machine, "nonsense").is_err());
        }
        // The other package is unchanged, and a level change switches features off.
        assert_eq!(machine.state(0, 0), FakeMachine::guide(false).state(0, 0));
        assert!(!machine.state(1, 0).base_freq && !machine.state(1, 0).turbo_freq);
        assert_eq!(machine.hazards(), Vec::<String>::new());
    }
}

#[test]
fn writing_back_what_was_read_restores_the_machine() {
    for interface in INTERFACES {
        for (field, [_, after]) in fields() {
            let machine = machine(interface);
            // Turbo-freq needs classes of service.
            machine.set(|state| (state.qos, state.core_power) = (true, true));
            let before = machine.everything();
            let setting = setting(&machine, field);
            let content = setting.read(&machine).unwrap();
            setting.write(&machine, after).unwrap();
            setting.write(&machine, &content).unwrap();
            assert_eq!(machine.everything(), before, "{interface:?}: {setting}");
        }
    }
}

#[test]
fn each_switch_leaves_the_other_as_it_is() {
    for interface in INTERFACES {
        let machine = machine(interface);
        setting(&machine, Field::CorePower).write(&machine, "1").unwrap();
        setting(&machine, Field::BaseFreq).write(&machine, "1").unwrap();
        setting(&machine, Field::TurboFreq).write(&machine, "1").unwrap();
        setting(&machine, Field::BaseFreq).write(&machine, "0").unwrap();
        let state = machine.state(1, 0);
        assert!(state.turbo_freq && !state.base_freq, "{interface:?}");
        setting(&machine, Field::Priority).write(&machine, "ordered").unwrap();
        let state = machine.state(1, 0);
        assert!(state.qos && state.ordered, "{interface:?}");
        setting(&machine, Field::TurboFreq).write(&machine, "0").unwrap();
        setting(&machine, Field::CorePower).write(&machine, "0").unwrap();
        let state = machine.state(1, 0);
        assert!(!state.qos && state.ordered, "{interface:?}");
    }
}

#[test]
fn the_two_switches_of_a_mailbox_part_are_kept_apart() {
    let machine = FakeMachine::guide(false);
    machine.set(|state| state.qos = true);
    let layout = layout(&machine);
    let setting = layout.setting(layout.domains[0].place, Field::CorePower);
    assert_eq!(setting.read(&machine).unwrap(), "qos-only");
    setting.write(&machine, "1").unwrap();
    setting.write(&machine, "qos-only").unwrap();
    assert_eq!(machine.everything().1[&(0, 0)], machine.state(1, 0));
}

#[test]
fn refused_writes_change_nothing_and_carry_the_errno() {
    for interface in INTERFACES {
        // The common TPMI driver has one errno for every rejection by firmware.
        let refused = if interface == Interface::Tpmi { Errno::NOTTY } else { Errno::NXIO };
        let machine = machine(interface);
        machine.set(|state| state.locked = true);
        let before = machine.everything();
        for (field, content, errno) in [
            (Field::Level, "1", refused),
            // Classes of service are off.
            (Field::TurboFreq, "1", refused),
            (Field::Highest, "1", Errno::ACCES),
            (Field::Locked, "0", Errno::ACCES),
            (Field::Level, "256", Errno::INVAL),
            (Field::Level, "200", if interface == Interface::Tpmi { Errno::INVAL } else { refused }),
            (Field::Class(5), "4", Errno::INVAL),
            (Field::Class(300), "1", Errno::INVAL),
            (Field::ClosWeight(1), "16", Errno::INVAL),
            (Field::ClosMin(1), "25600", Errno::INVAL),
            (Field::ClosMax(1), "4294967295", Errno::INVAL),
            (Field::ClosMax(1), "-1", Errno::INVAL),
            (Field::Priority, "1", Errno::INVAL),
            (Field::CorePower, "on", Errno::INVAL),
            (Field::TurboLimits, "0x", Errno::INVAL),
            (Field::TurboLimits, "0x11111111111111111", Errno::INVAL),
            (Field::Partition, "", Errno::INVAL),
        ] {
            let setting = setting(&machine, field);
            let error = setting.write(&machine, content).unwrap_err();
            assert_eq!(error.errno, errno, "{interface:?}: {setting} = {content}: {error}");
            assert_eq!(machine.everything(), before, "{interface:?}: {setting} = {content}");
        }
        assert_eq!(machine.hazards(), Vec::<String>::new());
    }
}

#[test]
fn the_level_in_effect_is_not_written_again() {
    for interface in INTERFACES {
        let machine = machine(interface);
        machine.fail_at(usize::MAX, Errno::NXIO);
        setting(&machine, Field::Level).write(&machine, "0").unwrap();
        assert_eq!(machine.changes(), 0, "the driver refuses the level that is in effect");
    }
}

#[test]
fn a_busy_mailbox_is_asked_three_times() {
    let machine = FakeMachine::guide(false);
    let setting = setting(&machine, Field::Level);
    machine.fail_calls(0..2, Errno::BUSY);
    assert_eq!(setting.read(&machine).unwrap(), "0");
    assert_eq!(machine.calls(), 3);
    machine.fail_calls(0..3, Errno::BUSY);
    assert_eq!(setting.read(&machine).unwrap_err().errno, Errno::BUSY);
    assert_eq!(machine.calls(), 3);
    // A driver that is not loaded does not appear between two attempts.
    machine.fail_calls(0..1, Errno::NOTTY);
    assert_eq!(setting.read(&machine).unwrap_err().errno, Errno::NOTTY);
    assert_eq!(machine.calls(), 1);
}

#[test]
fn firmware_that_does_not_follow_is_a_timeout() {
    let machine = FakeMachine::guide(true);
    machine.set(|state| (state.qos, state.core_power) = (true, true));
    machine.ignore_switches(true);
    for (field, content) in [(Field::TurboFreq, "1"), (Field::BaseFreq, "1"), (Field::CorePower, "0")] {
        let error = setting(&machine, field).write(&machine, content).unwrap_err();
        assert_eq!(error.errno, Errno::TIMEDOUT, "{error}");
    }
    machine.ignore_switches(false);
    setting(&machine, Field::TurboFreq).write(&machine, "1").unwrap();
}

#[test]
fn a_mailbox_setting_is_reached_through_a_cpu_that_is_online() {
    let machine = FakeMachine::guide(false);
    let setting = setting(&machine, Field::ClosMin(0));
    assert_eq!(setting.place.cpu, Some(14));
    flyball_host::Host::write(&machine, "/sys/devices/system/cpu/cpu14/online", b"0").unwrap();
    setting.write(&machine, "1000").unwrap();
    assert_eq!(setting.read(&machine).unwrap(), "1000");
    assert_eq!(machine.state(1, 0).clos[0] >> 8 & 0xff, 10);
}

#[test]
fn domains_without_cpus_are_addressed_too() {
    let machine = FakeMachine::guide(true).with_io_domains(2);
    let layout = layout(&machine);
    let names: Vec<String> = layout
        .domains
        .iter()
        .map(|domain| format!("{}.{}", domain.place.package, domain.place.domain))
        .collect();
    assert_eq!(names, ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]);
    assert_eq!(layout.domains[1].place.cpu, None);
    assert!(layout.setting(layout.domains[1].place, Field::Level).read(&machine).is_ok());
}

/// Settings that both interfaces have, with contents that both accept.
fn common_setting() -> impl Strategy<Value = (Field, String)> {
    let switch = || prop_oneof![Just("0".to_owned()), Just("1".to_owned())];
    prop_oneof![
        (0..6u8).prop_map(|level| (Field::Level, level.to_string())),
        switch().prop_map(|on| (Field::BaseFreq, on)),
        switch().prop_map(|on| (Field::TurboFreq, on)),
        switch().prop_map(|on| (Field::CorePower, on)),
        prop_oneof![Just("ordered"), Just("proportional")]
            .prop_map(|kind| (Field::Priority, kind.to_owned())),
        (0..4u8, 0..26_000u32).prop_map(|(class, mhz)| (Field::ClosMin(class), mhz.to_string())),
        (0..4u8, 0..26_000u32).prop_map(|(class, mhz)| (Field::ClosMax(class), mhz.to_string())),
        (0..4u8, 0..18u8).prop_map(|(class, weight)| (Field::ClosWeight(class), weight.to_string())),
        (0..14u16, 0..5u8).prop_map(|(core, class)| (Field::Class(core), class.to_string())),
        any::<u64>().prop_map(|limits| (Field::TurboLimits, format!("{limits:#018x}"))),
    ]
}

proptest! {
    #[test]
    fn the_interfaces_agree_on_any_sequence_of_writes(
        writes in proptest::collection::vec(common_setting(), 1..12)
    ) {
        let machines = INTERFACES.map(machine);
        for (field, content) in writes {
            let answers = machines.each_ref().map(|machine| {
                let setting = setting(machine, field);
                let done = setting.write(machine, &content).is_ok();
                (done, setting.read(machine).unwrap())
            });
            prop_assert_eq!(&answers[0], &answers[1], "{:?} = {}", field, content);
            prop_assert_eq!(&answers[1], &answers[2], "{:?} = {}", field, content);
        }
        let states = machines.each_ref().map(|machine| machine.state(1, 0));
        prop_assert_eq!(&states[0], &states[1]);
        prop_assert_eq!(&states[1], &states[2]);
        for machine in &machines {
            prop_assert_eq!(machine.state(0, 0), FakeMachine::guide(true).state(0, 0));
            prop_assert_eq!(machine.hazards(), Vec::<String>::new());
        }
    }

    #[test]
    fn a_field_of_a_class_leaves_the_others_as_they_are(
        word in any::<u32>(),
        class in 0..4u8,
        ratio in 0..=255u32,
        small in 0..16u8,
        which in 0..4,
    ) {
        for interface in [Interface::Mailbox, Interface::Skylake] {
            let machine = machine(interface);
            machine.set(|state| state.clos = [word; 4]);
            let (field, content, mask) = match which {
                0 => (Field::ClosMin(class), (ratio * 100).to_string(), 0xff << 8),
                1 => (Field::ClosMax(class), (ratio * 100).to_string(), 0xff << 16),
                2 => (Field::ClosWeight(class), small.to_string(), 0xf << 4),
                _ => (Field::ClosEpp(class), small.to_string(), 0xf),
            };
            setting(&machine, field).write(&machine, &content).unwrap();
            let state = machine.state(1, 0);
            for (number, &after) in state.clos.iter().enumerate() {
                let written = number == usize::from(class);
                prop_assert_eq!(after & !mask, word & !mask);
                if !written {
                    prop_assert_eq!(after, word);
                }
            }
            prop_assert_eq!(setting(&machine, field).read(&machine).unwrap(), content);
        }
    }

    #[test]
    fn no_forged_journal_reaches_a_driver_unchecked(
        package in 0..3u8,
        domain in 0..8u8,
        field in "(level|base-freq|turbo-freq|core-power|priority|trl|clos-(min|max|weight|epp):[0-9]|class:[0-9]{1,4})",
        content in "(-?[0-9]{1,6}|ordered|proportional|pm-only|0x[0-9a-f]{1,17}|)",
    ) {
        let machine = FakeMachine::small(true).with_dead_domain().with_io_domains(1);
        if let Ok(setting) = format!("sst:tpmi3:{package}.{domain}@0:{field}").parse::<Setting>() {
            let _ = setting.read(&machine);
            let _ = setting.write(&machine, &content);
        }
        prop_assert_eq!(machine.hazards(), Vec::<String>::new());
    }

    #[test]
    fn no_text_panics(text in "sst:[a-z0-9:@.-]{0,30}") {
        if let Ok(setting) = text.parse::<Setting>() {
            prop_assert_eq!(setting.to_string().parse(), Ok(setting));
        }
    }
}
