//! TPMI: the Speed Select register block of a power domain (Granite Rapids and later), 64 bits per
//! register. The layout follows the kernel's isst_tpmi_core.c and a recorded Granite Rapids:
//! header, core-power block at 8, perf-profile block at 0x60 followed by the blocks of the levels.

use crate::silicon::Silicon;
use crate::spec::{SstBfSpec, SstClass, SstDomainSpec, SstLevelSpec, SstSpec, SstTfSpec};
use crate::sst_state::{Refusal, SstState};

/// Offset of the core-power block in the domain, in bytes.
const CP: u32 = 8;
/// Offset of the perf-profile block in the domain, in bytes.
const PP: u32 = 0x60;
/// Offset of the levels in the perf-profile block, in registers.
const FIRST_LEVEL: u32 = 5;
/// Registers of a level: 13 of perf-profile, 2 of base-freq, 9 of turbo-freq.
const BF: u32 = 13;
const TF: u32 = 15;
const LEVEL: u32 = 24;
/// Number of registers in a domain.
const REGISTERS: u32 = PP / 8 + FIRST_LEVEL + 5 * LEVEL;

/// Register value in a domain without Speed Select: an interface version of 0xff means invalid.
const ABSENT: u64 = u64::MAX;

impl Silicon {
    /// Number of a package's power domains with an instance of the Speed Select registers, those of
    /// IO dies last; 0 without TPMI.
    pub fn tpmi_domains(&self) -> usize {
        let Some(s) = self.sst.as_ref().filter(|s| s.spec.class == SstClass::Tpmi) else { return 0 };
        self.topology.dies() as usize + s.spec.io_domains as usize
    }

    /// Bytes of a domain's register block.
    pub const fn tpmi_bytes() -> u32 {
        REGISTERS * 8
    }

    /// Reads a register of a power domain. `None` if the package, domain or register does not
    /// exist, or the machine has no TPMI.
    pub fn tpmi_read(&self, package: usize, domain: usize, offset: u32) -> Option<u64> {
        let s = self.sst.as_ref().filter(|s| s.spec.class == SstClass::Tpmi)?;
        if package >= self.topology.packages()
            || domain >= self.tpmi_domains()
            || !offset.is_multiple_of(8)
            || offset / 8 >= REGISTERS
        {
            return None;
        }
        // IO dies without registers, and domains that are fused off, read as all ones.
        if domain >= s.per_package() || s.spec.absent.contains(&(domain as u32)) {
            return Some(ABSENT);
        }
        Some(s.register(
            package * s.per_package() + domain,
            offset,
            [self.spec.core[0].max_mhz, self.spec.core[0].efficient_mhz, self.spec.core[0].min_mhz],
        ))
    }

    /// Writes a register of a power domain; read-only bits do not change. Returns false if the
    /// register does not exist.
    pub fn tpmi_write(&mut self, package: usize, domain: usize, offset: u32, value: u64) -> bool {
        if self.tpmi_read(package, domain, offset).is_none() {
            return false;
        }
        let Some(s) = self.sst.as_mut().filter(|s| domain < s.per_package()) else { return true };
        // Memory accepts every write. If firmware ignores one, the caller notices by reading back.
        if s.refuses || s.spec.write_blocked || s.spec.absent.contains(&(domain as u32)) {
            return true;
        }
        let d = package * s.per_package() + domain;
        // Only a change of level moves turbo ratios and limits.
        let level_before = s.domains[d].at;
        s.write_register(d, offset, value);
        if s.domains[d].at == level_before {
            self.sst_changed(package);
        } else {
            self.level_changed(package);
        }
        true
    }
}

impl SstState {
    fn register(&self, d: usize, offset: u32, range: [u32; 3]) -> u64 {
        let dom = &self.domains[d];
        let core_power = u64::from(dom.core_power) | u64::from(dom.ordered) << 1;
        let features = u64::from(dom.base_freq) | u64::from(dom.turbo_freq) << 1;
        let number = u64::from(self.level(d).number);
        match offset {
            // Interface version 0.1; core-power and perf-profile exist; the offsets of their
            // blocks.
            0 => {
                1 | (2 | u64::from(self.spec.core_power)) << 8
                    | u64::from(CP / 8) << 16
                    | u64::from(PP / 8) << 24
            }
            // Core-power: feature 0, revision 1, ratio unit 0 (100 MHz).
            8 => 1 << 4,
            0x10 | 0x18 => core_power,
            0x20..=0x38 => {
                let c = dom.classes[(offset as usize - 0x20) / 8];
                u64::from(c.weight & 15) << 4 | u64::from(c.min) << 8 | u64::from(c.max) << 16
            }
            0x40..=0x58 => {
                let first = (offset as usize - 0x40) / 8 * 16;
                let classes = dom.class_of.iter().skip(first).take(16);
                classes.enumerate().fold(0, |v, (i, &c)| v | u64::from(c) << (4 * i))
            }
            // Perf-profile: feature 1, revision, existing and allowed levels, size of a level's
            // block.
            PP => {
                let mask = self.levels(d).iter().fold(0u64, |m, l| m | 1 << l.number);
                let allowed = if self.locked { 1 << number } else { mask };
                1 | u64::from(self.spec.version & 0xff) << 4
                    | mask << 12
                    | allowed << 20
                    | u64::from(LEVEL) << 34
                    | 1 << 42
            }
            0x68 => u64::from(BF) << 8 | u64::from(TF) << 16,
            0x70 => (0..5u32).fold(0, |v, i| v | u64::from(FIRST_LEVEL + LEVEL * i) << (8 * i)),
            0x78 => number | u64::from(self.locked) << 3 | features << 8,
            0x80 => {
                number
                    | u64::from(self.locked) << 3
                    | u64::from(dom.error & 15) << 4
                    | features << 8
                    | u64::from(dom.feature_error) << 32
            }
            _ => {
                let at = (offset - PP) / 8 - FIRST_LEVEL;
                let cores = dom.class_of.len() as u32;
                let level = self.level_numbered(d, at / LEVEL);
                level.map_or(0, |l| level_register(l, at % LEVEL, cores, self.bus_khz, range))
            }
        }
    }

    fn write_register(&mut self, d: usize, offset: u32, value: u64) {
        let dom = &mut self.domains[d];
        match offset {
            // The status register shows a rejected change by keeping its value.
            0x10 => drop(self.set_core_power(d, value & 1 != 0, value & 2 != 0)),
            0x20..=0x38 => {
                let c = &mut dom.classes[(offset as usize - 0x20) / 8];
                (c.weight, c.min, c.max) = ((value >> 4) as u8 & 15, (value >> 8) as u8, (value >> 16) as u8);
            }
            0x40..=0x58 => {
                let first = (offset as usize - 0x40) / 8 * 16;
                for (i, c) in dom.class_of.iter_mut().skip(first).take(16).enumerate() {
                    *c = (value >> (4 * i)) as u8 & 3;
                }
            }
            0x78 => {
                let (want, have) = ((value & 7) as u32, self.level(d).number);
                // The level first, because changing it disables both features, which the same write
                // may enable.
                let level = if want == have { Ok(()) } else { self.set_level(d, want) };
                let base = self.set_base_freq(d, value >> 8 & 1 != 0);
                let turbo = self.set_turbo_freq(d, value >> 9 & 1 != 0);
                // Error of a level: 1 not allowed. Error of a feature, three bits each: 1
                // unsupported, 7 not allowed.
                let of = |answer: Result<(), Refusal>| match answer {
                    Ok(()) => 0,
                    Err(Refusal::Absent) => 1,
                    Err(Refusal::NotAllowed) => 7,
                };
                let dom = &mut self.domains[d];
                dom.error = u8::from(level.is_err());
                dom.feature_error = of(base) | of(turbo) << 3;
            }
            _ => {}
        }
    }
}

/// Returns a register of a level's block.
fn level_register(l: &SstLevelSpec, at: u32, cores: u32, bus_khz: u32, range: [u32; 3]) -> u64 {
    let ratio = |mhz: u32| u64::from((mhz * 1000 / bus_khz).min(255));
    let bytes = |list: &mut dyn Iterator<Item = u64>| {
        list.take(8).enumerate().fold(0u64, |v, (i, x)| v | x << (8 * i))
    };
    let mask = |list: &[u32]| list.iter().filter(|&&c| c < 64).fold(0u64, |m, &c| m | 1 << c);
    let everyone: Vec<u32> = (0..cores).collect();
    let on = if l.cores.is_empty() { &everyone } else { &l.cores };
    match at {
        0 => bytes(
            &mut [l.base_mhz, l.base_avx2_mhz, l.base_avx512_mhz, l.base_amx_mhz].into_iter().map(ratio),
        ),
        1 => {
            u64::from((l.tdp_w * 8) & 0x7fff) << 32
                | u64::from(l.tjmax_c & 0xff) << 47
                | u64::from((l.memory_mhz / 100) & 0x7f) << 55
                | u64::from(l.cooling_type & 3) << 62
        }
        2 => mask(on),
        3 => u64::from(if l.counted > 0 { l.counted } else { cores } & 0xff) | (on.len() as u64 & 0xff) << 8,
        4..=9 => l.trl_mhz.get(at as usize - 4).map_or(0, |t| bytes(&mut t.iter().map(|&m| ratio(m)))),
        10 => bytes(&mut l.bucket_cores.iter().map(|&n| u64::from(n.min(255)))),
        11 => {
            let [p0, p1, pm] = l.uncore_mhz.map(ratio);
            let own = [range[0], l.base_mhz, range[1], range[2]];
            let core = if l.core_mhz == [0; 4] { own } else { l.core_mhz }.map(ratio);
            bytes(&mut core.into_iter().chain([p0, p1, pm]))
        }
        12 => bytes(&mut l.uncore1_mhz.map(ratio).into_iter()),
        BF => l.bf.as_ref().map_or(0, |b| {
            1 << 12
                | ratio(b.high_mhz) << 13
                | ratio(b.low_mhz) << 21
                | u64::from(b.tjmax_c & 0xff) << 38
                | u64::from((b.tdp_w * 8) & 0x7fff) << 46
        }),
        14 => l.bf.as_ref().map_or(0, |b| mask(&b.cores)),
        TF => l
            .tf
            .as_ref()
            .map_or(0, |t| bytes(&mut t.clip_mhz.iter().take(6).map(|&m| ratio(m))) << 16 | 1 << 12 | 1 << 4),
        16 => l.tf.as_ref().map_or(0, |t| bytes(&mut t.bucket_cores.iter().map(|&n| u64::from(n.min(255))))),
        17..=22 => {
            let list = l.tf.as_ref().and_then(|t| t.high_mhz.get(at as usize - 17));
            list.map_or(0, |t| bytes(&mut t.iter().map(|&m| ratio(m))))
        }
        _ => 0,
    }
}

impl SstSpec {
    /// Decodes the registers of all power domains of a real machine, package by package: `each`
    /// domains per package, of which the first `compute` have cores. `None` if no domain has
    /// registers of a known version.
    pub fn from_tpmi(domains: &[Vec<u64>], each: usize, compute: usize) -> Option<SstSpec> {
        let valid =
            |d: &&Vec<u64>| d.first().is_some_and(|h| h & 0xff != 0xff && h >> 5 & 7 == 0 && h >> 9 & 1 == 1);
        let first = domains.iter().find(valid)?;
        let pp = 8 * (first[0] >> 24 & 0xff) as usize;
        let at = |d: &Vec<u64>, offset: usize| d.get(offset / 8).copied().unwrap_or(0);
        let own = domains.iter().map(|d| SstDomainSpec {
            level: if valid(&d) { decode_levels(d) } else { decode_levels(first) },
        });
        let absent = domains.iter().take(each).zip(0u32..).filter(|(d, _)| !valid(d));
        Some(SstSpec {
            class: SstClass::Tpmi,
            version: (at(first, pp) >> 4 & 0xff) as u32,
            locked: at(first, pp + 32) >> 3 & 1 == 1,
            core_power: first[0] >> 8 & 1 == 1,
            level: decode_levels(first),
            io_domains: each.saturating_sub(compute) as u32,
            io_registers: true,
            cores_per_module: 1,
            absent: absent.map(|(_, n)| n).collect(),
            domain: own.collect(),
            write_blocked: false,
            pci_bus: Vec::new(),
        })
    }
}

/// The levels of a domain's registers.
fn decode_levels(d: &[u64]) -> Vec<SstLevelSpec> {
    let at = |index: u64| d.get(index as usize).copied().unwrap_or(0);
    let pp = d[0] >> 24 & 0xff;
    let mhz = |v: u64, from: u32| (v >> from & 0xff) as u32 * 100;
    let row = |v: u64, n: usize| -> Vec<u32> { (0..n as u32).map(|i| mhz(v, 8 * i)).collect() };
    let cores = |v: u64| -> Vec<u32> { (0..64).filter(|i| v >> i & 1 == 1).collect() };
    // A bucket without cores ends the list.
    let counts =
        |v: u64| -> Vec<u32> { v.to_le_bytes().into_iter().take_while(|&n| n > 0).map(u32::from).collect() };
    (0..5u32)
        .filter(|n| at(pp) >> (12 + n) & 1 == 1)
        .map(|number| {
            let block = pp + (at(pp + 2) >> (8 * number) & 0xff);
            let info = |n: u64| at(block + (at(pp + 1) & 0xff) + n);
            let bf = |n: u64| at(block + (at(pp + 1) >> 8 & 0xff) + n);
            let tf = |n: u64| at(block + (at(pp + 1) >> 16 & 0xff) + n);
            let buckets = counts(info(10));
            let high = counts(tf(1));
            SstLevelSpec {
                number,
                base_mhz: mhz(info(0), 0),
                base_avx2_mhz: mhz(info(0), 8),
                base_avx512_mhz: mhz(info(0), 16),
                base_amx_mhz: mhz(info(0), 24),
                tdp_w: (info(1) >> 32 & 0x7fff) as u32 / 8,
                tjmax_c: (info(1) >> 47 & 0xff) as u32,
                cores: cores(info(2)),
                counted: (info(3) & 0xff) as u32,
                memory_mhz: (info(1) >> 55 & 0x7f) as u32 * 100,
                uncore_mhz: [mhz(info(11), 32), mhz(info(11), 40), mhz(info(11), 48)],
                uncore1_mhz: [mhz(info(12), 0), mhz(info(12), 8), mhz(info(12), 16)],
                core_mhz: [0, 8, 16, 24].map(|from| mhz(info(11), from)),
                cooling_type: (info(1) >> 62) as u32,
                trl_mhz: (4..10).map(|n| row(info(n), buckets.len())).collect(),
                bucket_cores: buckets,
                bf: (bf(0) >> 12 & 1 == 1).then(|| SstBfSpec {
                    high_mhz: mhz(bf(0), 13),
                    low_mhz: mhz(bf(0), 21),
                    cores: cores(bf(1)),
                    tjmax_c: (bf(0) >> 38 & 0xff) as u32,
                    tdp_w: (bf(0) >> 46 & 0x7fff) as u32 / 8,
                }),
                tf: (tf(0) >> 12 & 1 == 1).then(|| SstTfSpec {
                    high_mhz: (2..8).map(|n| row(tf(n), high.len())).collect(),
                    clip_mhz: row(tf(0) >> 16, 6),
                    bucket_cores: high,
                }),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::{MachineSpec, Silicon};

    fn chip() -> Silicon {
        Silicon::new(MachineSpec::builtin("tpmi-small").unwrap(), 0).unwrap()
    }

    #[test]
    fn the_header_leads_to_the_blocks() {
        let s = chip();
        let header = s.tpmi_read(0, 0, 0).unwrap();
        assert_eq!(header, 0x0c01_0301, "as a recorded Granite Rapids has it");
        assert_eq!(s.tpmi_read(0, 2, 0), Some(header), "an IO die has them too");
        let mut bare = MachineSpec::builtin("tpmi-small").unwrap();
        bare.sst.as_mut().unwrap().io_registers = false;
        let bare = Silicon::new(bare, 0).unwrap();
        assert_eq!(bare.tpmi_read(0, 2, 0), Some(u64::MAX), "an IO die without registers");
        assert_eq!(s.tpmi_read(0, 4, 0), None);
        let level0 = 0x60 + 8 * (s.tpmi_read(0, 0, 0x70).unwrap() & 0xff) as u32;
        assert_eq!(s.tpmi_read(0, 0, level0).unwrap() & 0xff, 20, "base ratio");
    }

    #[test]
    fn a_level_changes_the_guaranteed_frequency_of_its_domain_only() {
        let mut s = chip();
        assert!(s.tpmi_write(0, 1, 0x78, 3));
        s.settle();
        assert_eq!(s.tpmi_read(0, 1, 0x80).unwrap() & 7, 3);
        assert_eq!((s.guaranteed(0).mhz(), s.guaranteed(8).mhz()), (2000, 2600));
        // Level 2 is not enabled: the change fails with an error, and the level stays.
        assert!(s.tpmi_write(0, 1, 0x78, 2));
        assert_eq!(s.tpmi_read(0, 1, 0x80).unwrap() & 0xf7, 0x13);
        // Level 3 has no turbo-freq and no base-freq.
        s.tpmi_write(0, 1, 0x78, 3 | 3 << 8);
        assert_eq!(s.tpmi_read(0, 1, 0x80).unwrap() >> 32 & 0x3f, 0o11);
    }

    #[test]
    fn classes_and_associations_read_back() {
        let mut s = chip();
        s.tpmi_write(0, 0, 0x10, 3);
        assert_eq!(s.tpmi_read(0, 0, 0x18), Some(3));
        s.tpmi_write(0, 0, 0x28, 0x0019_0a50);
        assert_eq!(s.tpmi_read(0, 0, 0x28), Some(0x0019_0a50));
        s.tpmi_write(0, 0, 0x40, 0x3210_3210);
        assert_eq!(s.tpmi_read(0, 0, 0x40), Some(0x3210_3210));
        assert!(!s.tpmi_write(0, 0, 0x41, 0) && !s.tpmi_write(1, 0, 0, 0));
    }

    #[test]
    fn registers_read_back_are_the_machine_that_they_came_from() {
        let s = chip();
        let block = |domain: usize| -> Vec<u64> {
            (0..Silicon::tpmi_bytes()).step_by(8).map(|at| s.tpmi_read(0, domain, at).unwrap()).collect()
        };
        let mut blocks: Vec<Vec<u64>> = (0..4).map(block).collect();
        blocks[3] = vec![u64::MAX; 20];
        let decoded = crate::spec::SstSpec::from_tpmi(&blocks, 4, 2).unwrap();
        assert_eq!((decoded.version, decoded.io_domains, &decoded.absent[..]), (2, 2, &[3][..]));
        let mut spec = MachineSpec::builtin("tpmi-small").unwrap();
        spec.sst = Some(decoded);
        let again = Silicon::new(spec, 0).unwrap();
        for domain in 0..3 {
            for at in (0..Silicon::tpmi_bytes()).step_by(8) {
                assert_eq!(again.tpmi_read(0, domain, at), s.tpmi_read(0, domain, at), "{domain}: {at:#x}");
            }
        }
        assert_eq!(again.tpmi_read(0, 3, 0), Some(u64::MAX));
        assert!(crate::spec::SstSpec::from_tpmi(&[vec![u64::MAX; 4], vec![]], 2, 1).is_none());
    }

    #[test]
    fn turbo_freq_stands_on_classes_of_service() {
        let mut s = chip();
        s.tpmi_write(0, 0, 0x78, 1 << 9);
        let status = s.tpmi_read(0, 0, 0x80).unwrap();
        assert_eq!((status >> 8 & 3, status >> 32 & 0x3f), (0, 0o70), "not allowed");
        s.tpmi_write(0, 0, 0x10, 1);
        s.tpmi_write(0, 0, 0x78, 3 << 8);
        assert_eq!(s.tpmi_read(0, 0, 0x80).unwrap() >> 8 & 3, 3);
        s.tpmi_write(0, 0, 0x10, 0);
        assert_eq!(s.tpmi_read(0, 0, 0x18), Some(1), "classes stay on under turbo-freq");
        s.tpmi_write(0, 0, 0x78, 0);
        s.tpmi_write(0, 0, 0x10, 0);
        assert_eq!(s.tpmi_read(0, 0, 0x18), Some(0));
        // The other domain has not changed.
        assert_eq!(s.tpmi_read(0, 1, 0x18), Some(0));
    }

    #[test]
    fn locked_levels_and_blocked_registers_stay() {
        let mut s = chip();
        s.lock_levels(true);
        s.tpmi_write(0, 0, 0x78, 1);
        assert_eq!(s.tpmi_read(0, 0, 0x80).unwrap() & 0xff, 1 << 3 | 1 << 4);
        let mut spec = MachineSpec::builtin("tpmi-small").unwrap();
        spec.sst.as_mut().unwrap().write_blocked = true;
        let mut s = Silicon::new(spec, 0).unwrap();
        s.tpmi_write(0, 0, 0x10, 1);
        assert_eq!(s.tpmi_read(0, 0, 0x10), Some(0));
    }
}
