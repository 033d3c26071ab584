//! Calls as the drivers on real kernels answered them. tests/simulator/isst.rs replays complete
//! recordings.

use flyball_silicon::MachineSpec;

use super::{Caller, argument_size, encoded};
use crate::{Boot, Errno, Fault, Kernel, Op, SimMachine};

fn boot(name: &str, kernel: Kernel) -> SimMachine {
    SimMachine::boot(MachineSpec::builtin(name).unwrap(), kernel, Boot::default(), 0).unwrap()
}

fn ask(machine: &mut SimMachine, nr: u32, mut argument: Vec<u8>, caller: Caller) -> Result<Vec<u8>, Errno> {
    machine.isst(encoded(nr), &mut argument, caller).map(|_| argument)
}

/// A mailbox command of CPU 0.
fn command(command: u16, sub: u16, parameter: u32, data: u32) -> Vec<u8> {
    let mut bytes = vec![1, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend(parameter.to_le_bytes());
    bytes.extend(data.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(command.to_le_bytes());
    bytes.extend(sub.to_le_bytes());
    bytes.extend([0; 4]);
    bytes
}

#[test]
fn numbers_are_those_of_the_header() {
    let numbers: Vec<u32> = (0..18).map(encoded).collect();
    assert_eq!(numbers[..5], [0x8008_fe00, 0xc008_fe01, 0x4008_fe02, 0xc008_fe03, 0xc008_fe04]);
    assert_eq!(numbers[9..12], [0xc008_fe09, 0x4008_fe0a, 0x4008_fe0b]);
    assert_eq!(numbers[17], 0x8008_fe11);
    assert_eq!(argument_size(numbers[3], [2, 0, 0, 0]), 52);
    assert_eq!(argument_size(numbers[8], [2, 0, 1, 0]), 18);
    assert_eq!(argument_size(0x5401, [0; 4]), 0);
}

#[test]
fn machines_without_the_feature_have_no_node() {
    for (name, kernel, there) in [
        ("sst-guide", Kernel::V6_1, true),
        ("tpmi-small", Kernel::V6_1, false),
        ("tpmi-small", Kernel::V6_12, true),
        ("i7-2600", Kernel::V6_12, false),
        ("ryzen-5750g", Kernel::V6_12, false),
    ] {
        let mut machine = boot(name, kernel);
        assert_eq!(machine.exists("/dev/isst_interface"), there, "{name}, {kernel}");
        let answer = ask(&mut machine, 0, vec![0; 8], Caller::Root);
        assert_eq!(answer.is_ok(), there);
        if !there {
            assert_eq!(answer, Err(Errno::NOENT));
        }
    }
}

#[test]
fn a_level_of_the_guide_changes_the_base_frequency() {
    let mut machine = boot("sst-guide", Kernel::V6_12);
    let path = "/sys/devices/system/cpu/cpu0/cpufreq/base_frequency";
    assert_eq!(machine.read(path).unwrap(), b"2600000\n");
    ask(&mut machine, 3, command(0x7f, 8, 0, 4), Caller::Root).unwrap();
    assert_eq!(machine.read(path).unwrap(), b"2800000\n");
    assert_eq!(machine.read(&path.replace("cpu0", "cpu14")).unwrap(), b"2600000\n", "the other package");
    assert_eq!(ask(&mut machine, 3, command(0x7f, 8, 0, 2), Caller::Root), Err(Errno::NXIO), "no level 2");
}

#[test]
fn an_ordinary_user_with_the_node_open_may_do_what_the_drivers_list_forgets() {
    let mut machine = boot("sst-guide", Kernel::V7_2);
    for (c, s, p, refused) in [
        (0x7f, 8, 0, true),
        (0x7f, 2, 0, true),
        (0x95, 3, 3, true),
        (0xd0, 2, 8, true),
        (0xd0, 2, 0x100, false),
    ] {
        let answer = ask(&mut machine, 3, command(c, s, p, 0), Caller::Ordinary);
        assert_eq!(answer.err(), refused.then_some(Errno::PERM), "{c:x}/{s:x} {p:#x}");
    }
}

#[test]
fn a_stalled_mailbox_is_ebusy() {
    let mut machine = boot("sst-guide", Kernel::V6_12);
    machine.silicon_mut().stall_mailbox(0, true);
    assert_eq!(ask(&mut machine, 3, command(0x7f, 0, 0, 0), Caller::Root), Err(Errno::BUSY));
}

#[test]
fn the_two_calls_that_take_kernels_down() {
    // 6.12: the core mask of a nonexistent level far above the highest.
    let mask = |level: u8| {
        let mut bytes = vec![0; 24];
        (bytes[2], bytes[3]) = (level, 1);
        bytes
    };
    let mut machine = boot("tpmi-small", Kernel::V6_12);
    assert!(ask(&mut machine, 13, mask(3), Caller::Root).is_ok());
    assert!(machine.kernel_fault().is_none());
    assert!(ask(&mut machine, 13, mask(7), Caller::Root).is_err());
    assert!(machine.kernel_fault().is_some());
    assert_eq!(ask(&mut machine, 0, vec![0; 8], Caller::Root), Err(Errno::IO), "a caller now hangs");
    let mut machine = boot("tpmi-small", Kernel::V7_2);
    assert_eq!(ask(&mut machine, 13, mask(7), Caller::Root), Err(Errno::NOTTY));
    assert!(machine.kernel_fault().is_none());
    // 7.2: the class of a core in a domain without registers.
    let class = |domain: u8| vec![1, 0, 0, 0, 1, 0, 0, domain, 0, 0, 0, 0];
    let mut spec = MachineSpec::builtin("tpmi-small").unwrap();
    spec.sst.as_mut().unwrap().io_registers = false;
    let mut machine = SimMachine::boot(spec, Kernel::V7_2, Boot::default(), 0).unwrap();
    assert_eq!(ask(&mut machine, 5, vec![0; 4], Caller::Root).unwrap(), [0, 4, 3, 0], "two of four");
    assert!(ask(&mut machine, 8, class(1), Caller::Root).is_ok());
    assert!(ask(&mut machine, 8, class(2), Caller::Root).is_err());
    assert!(machine.kernel_fault().is_some());
}

#[test]
fn faults_by_rule_reach_ioctls() {
    let mut machine = boot("tpmi-small", Kernel::V6_12);
    machine.inject(Fault::errno("/dev/isst_interface", Op::Ioctl, Errno::IO).at(2));
    assert!(ask(&mut machine, 0, vec![0; 8], Caller::Root).is_ok());
    assert_eq!(ask(&mut machine, 0, vec![0; 8], Caller::Root), Err(Errno::IO));
    assert!(ask(&mut machine, 0, vec![0; 8], Caller::Root).is_ok());
}

#[test]
fn short_arguments_are_refused() {
    let mut machine = boot("sst-guide", Kernel::V6_12);
    assert_eq!(ask(&mut machine, 0, vec![0; 7], Caller::Root), Err(Errno::FAULT));
    assert_eq!(ask(&mut machine, 3, vec![9, 0, 0, 0], Caller::Root), Err(Errno::FAULT));
    assert_eq!(ask(&mut machine, 1, vec![], Caller::Root), Err(Errno::FAULT));
    assert_eq!(machine.isst(0x8008_fe01, &mut [0; 64], Caller::Root), Err(Errno::NOTTY), "another direction");
}
