//! Tests sizes, offsets and checks of the calls.

use std::sync::Mutex;

use flyball_host::{Errno, Host, HostError, Op, isst::number};

use flyball_sst_fake::FakeMachine;

use super::*;

type Answer = Box<dyn Fn(u32, &mut [u8]) -> Result<i32, Errno> + Send + Sync>;

/// A host that answers calls with a function, and records them.
struct Calls {
    files: FakeMachine,
    answer: Answer,
    seen: Mutex<Vec<(u32, Vec<u8>)>>,
}

impl Calls {
    fn new(answer: impl Fn(u32, &mut [u8]) -> Result<i32, Errno> + Send + Sync + 'static) -> Calls {
        let files = FakeMachine::guide(true);
        Calls { files, answer: Box::new(answer), seen: Mutex::default() }
    }

    fn seen(&self) -> Vec<(u32, Vec<u8>)> {
        self.seen.lock().unwrap().clone()
    }
}

impl Host for Calls {
    flyball_host::forward!(files: kind, name, read_into, write, list, exists, writable, link, msr, write_msr);

    fn isst(&self, number: u32, argument: &mut [u8]) -> Result<i32, HostError> {
        self.seen.lock().unwrap().push((number, argument.to_vec()));
        (self.answer)(number, argument).map_err(|errno| HostError::new(Op::Isst, "call", errno))
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, _: Duration) {}
}

/// Builds package 0 with domains 0 and 3, and levels 0 and 2.
fn machine() -> Calls {
    Calls::new(|number, argument| {
        match number {
            number::COUNT_TPMI_INSTANCES if argument[0] == 0 => {
                argument[1..4].copy_from_slice(&[4, 0b1001, 0]);
            }
            number::COUNT_TPMI_INSTANCES => return Err(Errno::NOTTY),
            number::PERF_LEVELS => {
                argument.copy_from_slice(&[0, argument[1], 2, 1, 0b101, 2, 3, 1, 1, 0b100, 0b001]);
            }
            number::CORE_POWER_STATE => argument[3] = 1,
            _ => {}
        }
        Ok(0)
    })
}

fn at(package: u8, domain: u8) -> DomainAddress {
    DomainAddress { cpu: None, package, domain }
}

#[test]
fn domains_come_from_the_mask_and_levels_from_what_exists() {
    let host = machine();
    let tpmi = Tpmi::new(&host, 3);
    assert_eq!(tpmi.domains(0), [0, 3]);
    assert!(tpmi.domains(1).is_empty());
    assert_eq!(tpmi.levels(&at(0, 16)).unwrap_err().errno, Errno::NODEV);
    let place = at(0, 3);
    let levels = tpmi.levels(&place).unwrap();
    assert_eq!((levels.highest, levels.current, levels.locked, levels.enabled), (2, 2, true, true));
    let features = |level| tpmi.features(&place, level).unwrap();
    assert!(features(0).base_freq_on && features(0).turbo_freq_on);
    assert_eq!((features(0).base_freq, features(0).turbo_freq), (true, false));
    assert_eq!((features(2).base_freq, features(2).turbo_freq), (false, true));
    let known: Vec<u8> = (0..=255).filter(|&number| tpmi.features(&place, number).is_ok()).collect();
    assert_eq!(known, [0, 2]);
    // Version 2 has one flag for all levels.
    assert!(Tpmi::new(&host, 2).features(&place, 0).unwrap().turbo_freq);
}

#[test]
fn bad_values_reach_no_driver() {
    let host = machine();
    let tpmi = Tpmi::new(&host, 3);
    let place = at(0, 0);
    assert!(tpmi.has(&place));
    let clos = Clos { min: MegaHertz(800), max: MegaHertz(25_599), weight: 15, ..Clos::default() };
    let before = host.seen().len();
    assert!(tpmi.set_clos(&place, 4, &clos).is_err());
    assert!(tpmi.set_clos(&place, 0, &Clos { weight: 16, ..clos }).is_err());
    assert!(tpmi.set_clos(&place, 0, &Clos { max: MegaHertz(25_600), ..clos }).is_err());
    assert!(tpmi.associate(&place, 64, 0).is_err());
    assert!(tpmi.associate(&place, 0, 4).is_err());
    assert!(tpmi.class_of(&place, 64).is_err());
    assert!(tpmi.associate(&at(0, 1), 0, 0).is_err());
    assert_eq!(host.seen().len(), before);
    tpmi.set_clos(&place, 3, &clos).unwrap();
    tpmi.set_qos(&place, Qos { enabled: true, ordered: false }).unwrap();
    tpmi.associate(&place, 63, 2).unwrap();
    tpmi.set_features(&place, true, true).unwrap();
    tpmi.set_level(&place, 2).unwrap();
    let read = [number::PERF_LEVELS, number::COUNT_TPMI_INSTANCES];
    let written = host.seen().split_off(before).into_iter().filter(|(call, _)| !read.contains(call));
    assert_eq!(
        written.collect::<Vec<_>>(),
        [
            (0xc008_fe07, vec![1, 0, 0, 3, 0x20, 3, 0xff, 0x63, 15, 0]),
            (0xc008_fe06, vec![1, 0, 0, 1, 0, 0]),
            (0xc008_fe06, vec![0; 6]),
            (0xc008_fe08, vec![1, 0, 1, 0, 1, 0, 0, 0, 63, 0, 2, 0]),
            (0x4008_fe0b, vec![0, 0, 3]),
            (0x4008_fe0a, vec![0, 0, 2]),
        ]
    );
}

#[test]
fn a_level_is_read_from_its_offsets() {
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
            number::GET_BASE_FREQ_CPU_MASK if argument[3] != 1 => return Err(Errno::NOTTY),
            _ => {}
        }
        Ok(0)
    });
    let tpmi = Tpmi::new(&host, 3);
    let place = at(0, 0);
    let data = tpmi.level_data(&place, 0).unwrap();
    assert_eq!((data.tdp_ratio, data.base.map(|base| base.0)), (4, [6, 8, 10, 12]));
    assert_eq!((data.tdp_w, data.tjunction_c, data.memory.0, data.cooling), (14, 16, 18, 20));
    assert_eq!((data.uncore, data.second_uncore), ([30, 32, 36].map(MegaHertz), [8, 24, 40].map(MegaHertz)));
    assert_eq!(tpmi.uncore(&place, 0).unwrap(), data.uncore);
    assert_eq!(tpmi.bucket_cores(&place, 0).unwrap(), [42, 44, 46, 48, 50, 52, 54, 56]);
    let limits = tpmi.turbo_limits(&place, 0).unwrap();
    assert_eq!((limits[0][0].0, limits[1][0].0, limits[5][7].0), (58, 74, 152));
    // The driver reports 4 clips, 6 buckets and 8 levels.
    let turbo = tpmi.turbo_freq(&place, 0).unwrap();
    assert_eq!(turbo.clip.map(|clip| clip.0), [10, 12, 14, 16, 0, 0]);
    assert_eq!(turbo.bucket_cores, [22, 24, 26, 28, 30, 32, 0, 0]);
    assert_eq!((turbo.limits[0][0].0, turbo.limits[5][5].0, turbo.limits[5][6].0), (38, 128, 0));
    let base = tpmi.base_freq(&place, 0).unwrap();
    assert_eq!((base.high.0, base.low.0, base.tjunction_c, base.tdp_w), (4, 6, 8, 10));
    assert_eq!(tpmi.level_cores(&place, 0).unwrap(), 0x1_0000_0003);
    let sizes: Vec<(u32, usize)> =
        host.seen().iter().map(|(call, bytes)| (call & 0xff, bytes.len())).collect();
    for (call, size) in
        [(5, 4), (9, 11), (0xc, 154), (0xd, 24), (0xe, 12), (0xf, 24), (0x10, 134), (0x11, 54)]
    {
        assert!(sizes.contains(&(call, size)), "{call:#x}: {sizes:?}");
    }
}
