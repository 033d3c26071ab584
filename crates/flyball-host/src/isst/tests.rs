//! Sizes, offsets and checks of the calls, and dumps of registers.

use std::{cell::RefCell, time::Duration};

use super::{
    Platform, legacy,
    legacy::{Mailbox, PunitCpu},
    memdump,
};
use crate::{Errno, Host, HostError, Kind, Op};

type Answer = Box<dyn Fn(u32, &mut [u8]) -> Result<i32, Errno> + Send + Sync>;

/// A call's number and argument.
type Call = (u32, Vec<u8>);

/// A host that answers calls with a function and records them.
struct Calls {
    answer: Answer,
    seen: std::sync::Mutex<RefCell<Vec<Call>>>,
}

impl Calls {
    fn new(answer: impl Fn(u32, &mut [u8]) -> Result<i32, Errno> + Send + Sync + 'static) -> Calls {
        Calls { answer: Box::new(answer), seen: std::sync::Mutex::default() }
    }

    fn seen(&self) -> Vec<(u32, Vec<u8>)> {
        self.seen.lock().unwrap().borrow().clone()
    }
}

impl Host for Calls {
    fn kind(&self) -> Kind {
        Kind::Simulated
    }
    fn name(&self) -> String {
        "calls".to_owned()
    }
    fn read_into(&self, path: &str, _: &mut Vec<u8>) -> Result<(), HostError> {
        Err(HostError::new(Op::Read, path, Errno::NOENT))
    }
    fn write(&self, path: &str, _: &[u8]) -> Result<(), HostError> {
        Err(HostError::new(Op::Write, path, Errno::NOENT))
    }
    fn list(&self, path: &str) -> Result<Vec<String>, HostError> {
        Err(HostError::new(Op::List, path, Errno::NOENT))
    }
    fn exists(&self, _: &str) -> bool {
        false
    }
    fn writable(&self, _: &str) -> bool {
        false
    }
    fn link(&self, path: &str) -> Result<String, HostError> {
        Err(HostError::new(Op::Link, path, Errno::NOENT))
    }
    fn msr(&self, _: u32, _: u32) -> Result<u64, HostError> {
        Err(HostError::new(Op::ReadMsr, "", Errno::NODEV))
    }
    fn write_msr(&self, _: u32, _: u32, _: u64) -> Result<(), HostError> {
        Err(HostError::new(Op::WriteMsr, "", Errno::NODEV))
    }
    fn isst(&self, number: u32, argument: &mut [u8]) -> Result<i32, HostError> {
        self.seen.lock().unwrap().borrow_mut().push((number, argument.to_vec()));
        (self.answer)(number, argument).map_err(|errno| HostError::new(Op::Isst, "call", errno))
    }
    fn now(&self) -> Duration {
        Duration::ZERO
    }
    fn sleep(&self, _: Duration) {}
}

fn only_call(host: &Calls) -> (u32, Vec<u8>) {
    let mut seen = host.seen();
    assert_eq!(seen.len(), 1, "{seen:02x?}");
    seen.remove(0)
}

#[test]
fn sizes_are_those_of_the_header() {
    assert_eq!(Platform::SIZE, 8);
    assert_eq!([1, 2, 64].map(legacy::cpu_maps_size), [12, 20, 516]);
    assert_eq!([1, 64].map(legacy::io_regs_size), [20, 1028]);
    assert_eq!([1, 64].map(legacy::mbox_cmds_size), [28, 1540]);
    assert_eq!([1, 64].map(legacy::msr_cmds_size), [32, 1544]);
}

#[test]
fn platform_is_read_from_its_offsets() {
    let host = Calls::new(|_, argument| {
        argument.copy_from_slice(&[3, 0, 1, 0, 64, 0, 0, 1]);
        Ok(0)
    });
    let platform = Platform::read(&host).unwrap();
    assert_eq!((platform.api_version, platform.driver_version, platform.max_commands), (3, 1, 64));
    assert_eq!((platform.mailbox, platform.mmio, platform.is_tpmi()), (false, true, true));
    assert_eq!(only_call(&host), (0x8008_fe00, vec![0; 8]));
}

#[test]
fn a_refused_cpu_does_not_hide_those_after_it() {
    // Like isst_if_common.c: stops at the first bad CPU, and returns the number done, or the errno
    // if it is 0.
    let host = Calls::new(|_, argument| {
        let count = argument[0] as usize;
        for index in 0..count {
            let cpu = u32::from_le_bytes(argument[4 + 8 * index..8 + 8 * index].try_into().unwrap());
            if cpu == 7 {
                return if index == 0 { Err(Errno::INVAL) } else { Ok(index as i32) };
            }
            let raw = if cpu == 3 { u32::MAX } else { cpu << 1 };
            argument[8 + 8 * index..12 + 8 * index].copy_from_slice(&raw.to_le_bytes());
        }
        Ok(count as i32)
    });
    let answers = legacy::punit_cpus(&host, &[1, 3, 7, 7, 2]).unwrap();
    assert_eq!(answers, [Some(PunitCpu(2)), Some(PunitCpu::UNKNOWN), None, None, Some(PunitCpu(4))]);
    let many: Vec<u32> = (100..300).collect();
    assert_eq!(legacy::punit_cpus(&host, &many).unwrap().len(), 200);
    assert!(host.seen().iter().all(|(_, bytes)| bytes.len() <= legacy::cpu_maps_size(64)));
}

#[test]
fn a_signal_leaves_no_cpu_out() {
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let host = Calls::new(move |_, argument| {
        let count = match calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => return Err(Errno::INTR),
            1 => 2,
            _ => argument[0] as usize,
        };
        for index in 0..count {
            let cpu = u32::from(argument[4 + 8 * index]);
            argument[8 + 8 * index..12 + 8 * index].copy_from_slice(&(cpu << 1).to_le_bytes());
        }
        Ok(count as i32)
    });
    let answers = legacy::punit_cpus(&host, &[1, 2, 3, 4]).unwrap();
    assert_eq!(answers, [2, 4, 6, 8].map(|raw| Some(PunitCpu(raw))));
    assert!(legacy::punit_cpus(&Calls::new(|_, _| Err(Errno::INTR)), &[1]).is_err());
}

#[test]
fn power_unit_numbers_split_as_the_msrs_do() {
    assert_eq!(PunitCpu(0x0930).split(true), (1, 0x26));
    assert_eq!(PunitCpu(0x0215).split(false), (1, 10));
}

#[test]
fn mailbox_commands_are_laid_out_and_checked() {
    let host = Calls::new(|_, argument| {
        argument[16..20].copy_from_slice(&0x8100_0400u32.to_le_bytes());
        Ok(1)
    });
    let levels = Mailbox { cpu: 14, command: 0x7f, sub_command: 0x0c, parameter: 5, data: 0x1_0002 };
    assert_eq!(levels.send(&host).unwrap(), 0x8100_0400);
    let (number, bytes) = only_call(&host);
    assert_eq!(number, 0xc008_fe03);
    let words: Vec<u32> = bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    assert_eq!(words, [1, 14, 5, 0x1_0002, 0, 0x000c_007f, 0]);

    for (command, sub_command) in [(0x7f, 0x0d), (0x7f, 0x24), (0xd0, 4), (0x94, 2), (0x95, 4), (0, 0)] {
        let bad = Mailbox { command, sub_command, ..levels };
        assert_eq!(bad.send(&host).unwrap_err().errno, Errno::INVAL);
    }
    assert_eq!(host.seen().len(), 1, "a command outside the list reached the driver");
}

#[test]
fn mmio_and_msr_are_laid_out_and_checked() {
    let host = Calls::new(|_, argument| {
        let end = argument.len();
        argument[end - 8..].fill(0x5a);
        Ok(1)
    });
    assert_eq!(legacy::read_msr(&host, 3, 0x1ad).unwrap(), 0x5a5a_5a5a_5a5a_5a5a);
    legacy::write_msr(&host, 3, 0x1ad, 0x1122_3344_5566_7788).unwrap();
    legacy::write_mmio(&host, 3, 0x2c, 0x3_0000).unwrap();
    let seen = host.seen();
    assert_eq!(seen[0].0, 0xc008_fe04);
    assert_eq!(seen[1].1[8..16], [1, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(seen[1].1[16..24], 0x1adu64.to_le_bytes());
    assert_eq!(seen[1].1[24..], 0x1122_3344_5566_7788u64.to_le_bytes());
    assert_eq!(seen[2].0, 0x4008_fe02);
    assert_eq!(seen[2].1, [1, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 0x2c, 0, 0, 0, 0, 0, 3, 0]);
    assert!(legacy::read_msr(&host, 0, 0x10).is_err());
    assert!(legacy::read_mmio(&host, 0, 0x22).is_err());
    assert!(legacy::read_mmio(&host, 0, 0x120).is_err());
    assert_eq!(host.seen().len(), 3);
}

#[test]
fn a_dump_is_read() {
    let text = "TPMI Instance:0 offset:0x90007000\n 00000000: 0c010301 00000000 00000010 00000000 00000000 \
                00000000 00000000 00000000\n 00000020: 00ff0000\nTPMI Instance:1 offset:0x900073f8\n 00000000: \
                ffffffff ffffffff\n";
    let instances = memdump::parse(text.as_bytes()).unwrap();
    assert_eq!(instances.len(), 2);
    assert_eq!((instances[1].offset, instances[0].words[8]), (0x9000_73f8, 0x00ff_0000));
    assert_eq!(instances[1].registers(), [u64::MAX]);
    assert_eq!(memdump::parse(b"nonsense"), Err(memdump::BadLine(1)));
    assert!(memdump::parse(b" 00000000: 00000001\n").is_err());
    // The text is cut within a word.
    assert_eq!(memdump::parse(&text.as_bytes()[..90]).unwrap()[0].words.len(), 5);
}

/// Skylake has Cascade Lake's model and an earlier stepping, but no Speed Select.
#[test]
fn skylake_is_not_told_to_load_a_driver() {
    let missing = HostError::new(Op::Isst, super::NODE, Errno::NOENT);
    let words = |stepping| {
        let (family, model, name) = (Some(6), Some(0x55), Some("a Xeon"));
        let vendor = crate::Vendor::Intel;
        let processor = super::Processor { vendor, family, model, stepping: Some(stepping), name };
        super::explain_on(&Kind::Simulated, processor, &missing)
    };
    assert!(words(4).starts_with("no Speed Select here: a Xeon does not support it"), "{}", words(4));
    assert!(words(7).contains("isst_if_mbox_msr"), "{}", words(7));
}
