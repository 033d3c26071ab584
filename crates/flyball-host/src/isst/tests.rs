//! Sizes, offsets and checks of the calls, and the register block.

use std::{cell::RefCell, time::Duration};

use super::{
    Platform, legacy,
    legacy::{Mailbox, PunitCpu},
    memdump, number,
    registers::Block,
    tpmi,
    tpmi::{Clos, CorePower, LevelData, PerfLevels, TurboFreq},
};
use crate::{Archive, Errno, Host, HostError, Kind, Op};

type Answer = Box<dyn Fn(u32, &mut [u8]) -> Result<i32, Errno> + Send + Sync>;

/// A call's number and argument.
type Call = (u32, Vec<u8>);

/// A host that answers calls with a function and keeps what was asked.
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

/// Builds package 0 with domains 0 and 3, six levels' worth of everything.
fn tpmi_host() -> Calls {
    Calls::new(|number, argument| {
        match number {
            number::COUNT_TPMI_INSTANCES if argument[0] == 0 => {
                argument[1..4].copy_from_slice(&[4, 0b1001, 0]);
            }
            number::COUNT_TPMI_INSTANCES => return Err(Errno::NOTTY),
            number::PERF_LEVELS => {
                argument.copy_from_slice(&[0, argument[1], 2, 1, 0b101, 2, 3, 1, 1, 0b100, 0b001]);
            }
            _ => {}
        }
        Ok(0)
    })
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
    assert_eq!((tpmi::ASSOC_SIZE, tpmi::CPU_MASK_SIZE), (12, 24));
    assert_eq!((PerfLevels::SIZE, LevelData::SIZE, TurboFreq::SIZE), (11, 154, 134));
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
    // As isst_if_common.c: stops at the first bad CPU, answers the number done, or the errno if
    // none was.
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
fn domains_come_from_the_mask_and_levels_from_what_exists() {
    let host = tpmi_host();
    let domains = tpmi::domains(&host, 0).unwrap();
    assert_eq!(domains.iter().map(|domain| domain.id()).collect::<Vec<_>>(), [0, 3]);
    assert!(tpmi::domains(&host, 1).unwrap().is_empty());
    let levels = PerfLevels::read(&host, domains[1]).unwrap();
    assert_eq!((levels.highest, levels.current, levels.locked, levels.enabled), (2, 2, true, true));
    assert!(levels.base_freq_on && levels.turbo_freq_on);
    assert_eq!((levels.turbo_freq_support, levels.base_freq_support), (0b100, 0b001));
    let known: Vec<u8> = (0..=255).filter(|&number| levels.level(number).is_some()).collect();
    assert_eq!(known, [0, 2]);
}

#[test]
fn bad_values_reach_no_driver() {
    let host = tpmi_host();
    let domain = tpmi::domains(&host, 0).unwrap()[0];
    let clos = Clos { min_mhz: 800, max_mhz: 25_599, priority: 15 };
    let before = host.seen().len();
    assert!(clos.write(&host, domain, 4).is_err());
    assert!(Clos { priority: 16, ..clos }.write(&host, domain, 0).is_err());
    assert!(Clos { max_mhz: 25_600, ..clos }.write(&host, domain, 0).is_err());
    assert!(tpmi::associate(&host, domain, 64, 0).is_err());
    assert!(tpmi::associate(&host, domain, 0, 4).is_err());
    assert!(tpmi::class_of(&host, domain, 64).is_err());
    assert_eq!(host.seen().len(), before);
    clos.write(&host, domain, 3).unwrap();
    CorePower::write(&host, domain, true, false).unwrap();
    tpmi::associate(&host, domain, 63, 2).unwrap();
    tpmi::set_features(&host, domain, true, true).unwrap();
    let level = PerfLevels::read(&host, domain).unwrap().level(2).unwrap();
    tpmi::set_level(&host, domain, level).unwrap();
    let seen = host.seen();
    assert_eq!(seen[before], (0xc008_fe07, vec![1, 0, 0, 3, 0x20, 3, 0xff, 0x63, 15, 0]));
    assert_eq!(seen[before + 1], (0xc008_fe06, vec![1, 0, 0, 1, 0, 0]));
    assert_eq!(seen[before + 2], (0xc008_fe08, vec![1, 0, 1, 0, 1, 0, 0, 0, 63, 0, 2, 0]));
    assert_eq!(seen[before + 3], (0x4008_fe0b, vec![0, 0, 3]));
    assert_eq!(seen[before + 5], (0x4008_fe0a, vec![0, 0, 2]));
}

#[test]
fn level_data_is_read_from_its_offsets() {
    let host = Calls::new(|number, argument| {
        match number {
            number::COUNT_TPMI_INSTANCES => argument[1..3].copy_from_slice(&[1, 1]),
            number::PERF_LEVELS => argument[4] = 1,
            // Each 16-bit field holds its own offset.
            number::GET_PERF_LEVEL_INFO
            | number::GET_TURBO_FREQ_INFO
            | number::GET_BASE_FREQ_INFO
            | number::GET_PERF_LEVEL_FABRIC_INFO => {
                for offset in (4..argument.len()).step_by(2) {
                    argument[offset..offset + 2].copy_from_slice(&(offset as u16).to_le_bytes());
                }
            }
            number::GET_PERF_LEVEL_CPU_MASK => {
                argument[8..16].copy_from_slice(&0x1_0000_0003u64.to_le_bytes());
            }
            _ => return Err(Errno::NOTTY),
        }
        Ok(0)
    });
    let domain = tpmi::domains(&host, 0).unwrap()[0];
    let level = PerfLevels::read(&host, domain).unwrap().level(0).unwrap();
    let data = LevelData::read(&host, domain, level).unwrap();
    assert_eq!((data.tdp_ratio, data.base_mhz), (4, [6, 8, 10, 12]));
    assert_eq!((data.tdp_w, data.tjunction_c, data.memory_mhz, data.cooling_type), (14, 16, 18, 20));
    assert_eq!((data.core_mhz, data.fabric_mhz), ([22, 24, 26, 28], [30, 32, 36]));
    assert_eq!((data.bucket_cores[0], data.bucket_cores[7]), (42, 56));
    assert_eq!((data.trl_mhz[0][0], data.trl_mhz[1][0], data.trl_mhz[5][7]), (58, 74, 152));
    let turbo = TurboFreq::read(&host, domain, level).unwrap();
    assert_eq!((turbo.clip_mhz[0], turbo.clip_mhz[3]), (10, 16));
    assert_eq!((turbo.bucket_cores[5], turbo.trl_mhz[0][0], turbo.trl_mhz[5][5]), (32, 38, 128));
    let base = tpmi::BaseFreq::read(&host, domain, level).unwrap();
    assert_eq!((base.high_mhz, base.low_mhz, base.tjunction_c, base.tdp_w), (4, 6, 8, 10));
    assert_eq!(tpmi::second_fabric(&host, domain, level).unwrap(), Some([8, 24, 40]));
    assert_eq!(tpmi::level_cores(&host, domain, level).unwrap(), 0x1_0000_0003);
    assert_eq!(tpmi::base_freq_cores(&host, domain, level).unwrap_err().errno, Errno::NOTTY);
}

#[test]
fn a_dump_is_read() {
    let text = "TPMI Instance:0 offset:0x90007000\n 00000000: 0c010301 00000000 00000010 00000000 00000000 \
                00000000 00000000 00000000\n 00000020: 00ff0000\nTPMI Instance:1 offset:0x900073f8\n 00000000: \
                ffffffff ffffffff\n";
    let instances = memdump::parse(text.as_bytes()).unwrap();
    assert_eq!(instances.len(), 2);
    assert_eq!((instances[1].offset, instances[0].words[8]), (0x9000_73f8, 0x00ff_0000));
    assert_eq!(Block::decode(&instances[1].registers()), None);
    assert_eq!(memdump::parse(b"nonsense"), Err(memdump::BadLine(1)));
    assert!(memdump::parse(b" 00000000: 00000001\n").is_err());
    // Cut off within a word.
    assert_eq!(memdump::parse(&text.as_bytes()[..90]).unwrap()[0].words.len(), 5);
}

/// Returns the register dumps of the recorded machines, by path.
fn dumps() -> Vec<(String, Vec<u8>)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let archives = paths.filter(|path| path.extension().is_some_and(|extension| extension == "zst"));
    let mut found = Vec::new();
    for path in archives {
        let machine = Archive::open(path.to_str().unwrap()).unwrap();
        for device in machine.list("/sys/kernel/debug").unwrap_or_default() {
            let mut bytes = Vec::new();
            let path = format!("/sys/kernel/debug/{device}/tpmi-id-05/mem_dump");
            if machine.read_into(&path, &mut bytes).is_ok() {
                found.push((path, bytes));
            }
        }
    }
    found
}

#[test]
fn recorded_blocks_decode_to_sane_levels() {
    let (mut blocks, mut empty, mut files) = (0, 0, 0);
    for (path, bytes) in dumps() {
        files += 1;
        for instance in memdump::parse(&bytes).unwrap() {
            let registers = instance.registers();
            if let Some(block) = Block::decode(&registers) {
                sane(&block);
                blocks += 1;
            } else {
                // A domain without registers answers all ones.
                assert!(registers.iter().all(|&register| register == u64::MAX), "{path}");
                empty += 1;
            }
        }
    }
    eprintln!("{files} dumps: {blocks} register blocks checked, {empty} domains without registers");
    assert!(blocks > 0, "the recorded machines hold no Speed Select registers");
}

fn sane(block: &Block) {
    // Some have levels alone.
    assert_eq!(block.core_power.is_some(), block.capability & 1 != 0);
    if let Some(core_power) = &block.core_power {
        assert!(core_power.assoc.iter().all(|&class| class < 4));
        assert!(core_power.clos.iter().all(|clos| clos.min <= clos.max));
    }
    let profile = block.perf_profile.as_ref().unwrap();
    assert_eq!(profile.enabled & 1, 1);
    assert_ne!(profile.enabled >> profile.status[0] & 1, 0, "the level in force does not exist");
    for (number, level) in profile.levels.iter().enumerate() {
        assert_eq!(level.is_some(), profile.enabled >> number & 1 != 0, "level {number}");
        level.iter().for_each(sane_level);
    }
}

fn sane_level(level: &super::registers::Level) {
    // IO domains have no cores, but the same package power.
    assert!((100..=600).contains(&(level.tdp / 8)), "{} W", level.tdp / 8);
    assert!((60..=110).contains(&level.tjunction));
    if level.cores != 0 {
        assert!((5..=40).contains(&level.base[0]), "base ratio {}", level.base[0]);
        // Firmware that does not count leaves 0.
        assert!([0, u64::from(level.cores.count_ones())].contains(&level.core_counts[1]));
        assert_eq!(level.base_freq.cores & !level.cores, 0);
        for pair in level.bucket_cores.windows(2) {
            assert!(pair[0] <= pair[1]);
        }
        for row in level.trl {
            assert!(row.windows(2).all(|pair| pair[0] >= pair[1]), "more cores, yet a higher turbo: {row:?}");
        }
    }
}

/// Skylake has the model of Cascade Lake and an earlier stepping, and no Speed Select.
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
