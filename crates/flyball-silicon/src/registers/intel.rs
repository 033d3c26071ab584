//! Intel's registers: HWP, P-states, RAPL, thermal, turbo, idle residency, uncore. Fields as in the
//! kernel's asm/msr-index.h, intel_pstate.c, intel_rapl_common.c, therm_throt.c and turbostat.

use crate::energy::EnergyUnit;
use crate::fault::Fault;
use crate::firmware::Interface;
use crate::limits::{PowerLimit, decode_window};
use crate::msr;
use crate::silicon::Silicon;
use crate::spec::EnergyDomain;

impl Silicon {
    #[expect(clippy::too_many_lines, reason = "one register per arm")]
    pub(super) fn read_intel(&self, cpu: usize, reg: u32) -> Option<u64> {
        let r = &self.registers.cpu[cpu];
        let place = self.topology.core_of(cpu);
        let core = self.topology.cpu(cpu).core;
        let pk = &self.package[place.package];
        let pr = &self.registers.package[place.package];
        let spec = &*self.spec;
        let kind = &self.kinds[place.kind];
        let bus = spec.clock.bus_khz;
        let ratio = |khz: u32| u64::from(khz / bus) & 0xff;
        let hwp = spec.firmware.interface == Interface::Hwp;
        let p = &spec.power;
        let has = |d: EnergyDomain| p.domains.contains(&d);
        let residency = |which: usize| {
            (u128::from(self.core[core].residency[which]) * u128::from(spec.clock.tsc_khz) / 1_000_000) as u64
        };
        Some(match reg {
            msr::TSC_ADJUST => r.tsc_adjust,
            msr::BIOS_SIGN_ID => u64::from(spec.identity.microcode) << 32,
            // As in isst_if_common.c: bit 0 is the thread, bits 8:1 the core.
            msr::THREAD_ID_INFO if spec.sst.is_some() => {
                u64::from(self.topology.cpu(cpu).thread) | u64::from(place.unit) << 1
            }
            msr::PM_LOGICAL_ID if spec.topology.dies_are_power_domains => {
                // On these parts the thread's bits number the cores of a module.
                let module = spec.sst.as_ref().map_or(1, |s| s.cores_per_module.max(1));
                u64::from(self.topology.cpu(cpu).thread)
                    | u64::from(place.unit % module)
                    | u64::from(place.unit / module) << 3
                    | u64::from(place.die) << 11
            }
            msr::PLATFORM_INFO => {
                // Bits 34:33 count further CONFIG_TDP levels. intel_pstate reads the level
                // registers only if there are any.
                let levels = spec.sst.as_ref().map_or(0, |s| (s.level.len() as u64 - 1).min(2));
                // Bits 28 and 29: turbo ratios and power limits can be programmed.
                ratio(kind.base) << 8 | 3 << 28 | ratio(kind.min) << 40 | levels << 33
            }
            msr::PERF_STATUS => {
                let khz = self.core[core].khz;
                // Bits 47:32: volts in units of 1/8192 (Intel SDM 4, IA32_PERF_STATUS).
                let volts = kind.curve.volts(khz);
                ratio(khz) << 8 | ((volts * 8192.0) as u64 & 0xffff) << 32
            }
            msr::PERF_CTL => r.perf_ctl,
            msr::CLOCK_MODULATION => r.clock_modulation,
            msr::THERM_INTERRUPT => r.therm_interrupt,
            msr::THERM_STATUS => {
                self.therm_status(self.core_temperature(cpu).0, self.core[core].hot_log, place.package)
            }
            msr::PACKAGE_THERM_STATUS => {
                self.therm_status(pk.hottest, pk.hot_log, place.package) | u64::from(pr.feedback_new) << 26
            }
            msr::HW_FEEDBACK_PTR if spec.firmware.feedback => pr.feedback_pointer,
            msr::HW_FEEDBACK_CONFIG if spec.firmware.feedback => pr.feedback_config,
            msr::PACKAGE_THERM_INTERRUPT => pr.therm_interrupt,
            msr::MISC_ENABLE => r.misc_enable,
            msr::TEMPERATURE_TARGET => u64::from(spec.thermal.tjmax_c) << 16,
            msr::TURBO_RATIO_LIMIT if !spec.turbo.cores.is_empty() => pr.turbo_ratios,
            msr::TURBO_RATIO_LIMIT1 if spec.turbo.counts_register || spec.turbo.cores.len() > 8 => {
                pr.turbo_counts
            }
            // Without buckets, the core's own maximum applies to every number of cores.
            msr::TURBO_RATIO_LIMIT => (0..8).fold(0, |v, i| v | ratio(kind.max) << (8 * i)),
            msr::ENERGY_PERF_BIAS => r.epb,
            msr::PKG_C2_RESIDENCY | msr::PKG_C6_RESIDENCY => {
                // A package passes through C2 on its way into C6; a tenth of the time is an
                // estimate.
                let half = if reg == msr::PKG_C2_RESIDENCY { 10 } else { 1 };
                (u128::from(pk.sleep_ns) * u128::from(spec.clock.tsc_khz) / 1_000_000) as u64 / half
            }
            msr::SMI_COUNT
            | msr::PLATFORM_ID
            | msr::PKG_C3_RESIDENCY
            | msr::PKG_C7_RESIDENCY
            | msr::PKG_C8_RESIDENCY
            | msr::PKG_C9_RESIDENCY
            | msr::PKG_C10_RESIDENCY => 0,
            msr::CORE_C1_RESIDENCY => residency(0),
            msr::CORE_C3_RESIDENCY => residency(1),
            msr::CORE_C6_RESIDENCY => residency(2),
            msr::CORE_C7_RESIDENCY => residency(3),
            msr::RAPL_POWER_UNIT => {
                u64::from(p.power_unit) | u64::from(p.energy_unit) << 8 | u64::from(p.time_unit) << 16
            }
            msr::PKG_POWER_LIMIT => pr.power_limit,
            msr::PKG_ENERGY_STATUS if has(EnergyDomain::Package) => u64::from(self.esu().counter(pk.energy)),
            // In RAPL time units of 2^-10 s.
            msr::PKG_PERF_STATUS => (pk.control.limited_ns / 976_562) & 0xffff_ffff,
            msr::PKG_POWER_INFO => {
                let unit = f64::from(1u32 << p.power_unit);
                (p.tdp_w * unit) as u64 & 0x7fff | ((p.pl2_w.max(p.tdp_w) * unit) as u64 & 0x7fff) << 32
            }
            msr::DRAM_ENERGY_STATUS if has(EnergyDomain::Dram) => {
                u64::from(self.dram_unit().counter(pk.dram_energy))
            }
            msr::DRAM_POWER_LIMIT | msr::DRAM_POWER_INFO | msr::DRAM_PERF_STATUS
                if has(EnergyDomain::Dram) =>
            {
                0
            }
            msr::PP0_ENERGY_STATUS if has(EnergyDomain::Core) => {
                u64::from(self.esu().counter(pk.cores_energy))
            }
            msr::PP0_POWER_LIMIT | msr::PP0_POLICY if has(EnergyDomain::Core) => 0,
            msr::PP1_ENERGY_STATUS | msr::PP1_POWER_LIMIT | msr::PP1_POLICY if has(EnergyDomain::Uncore) => 0,
            msr::PLATFORM_ENERGY_STATUS if has(EnergyDomain::Platform) => {
                let unit = if p.platform_unit_nj > 0 {
                    EnergyUnit::Nanojoules(p.platform_unit_nj)
                } else {
                    self.esu()
                };
                u64::from(unit.counter(self.platform_energy))
            }
            msr::CONFIG_TDP_NOMINAL => ratio(self.core[core].guaranteed),
            // Speed Select's levels have their own interface; these registers describe at most
            // three.
            msr::CONFIG_TDP_LEVEL1 | msr::CONFIG_TDP_LEVEL2 => 0,
            msr::CONFIG_TDP_CONTROL => pr.config_tdp_control,
            // One below the guaranteed ratio, because intel_pstate regards the level as valid only
            // then (core_get_max_pstate).
            msr::TURBO_ACTIVATION_RATIO => ratio(self.core[core].guaranteed).saturating_sub(1),
            // Sandy Bridge and Ivy Bridge lack it (Intel SDM 4).
            msr::CORE_PERF_LIMIT_REASONS if !matches!(spec.identity.model, 42 | 58) => {
                self.limit_reasons(place.package)
            }
            msr::UNCORE_RATIO_LIMIT if spec.uncore.as_ref().is_some_and(|u| u.clusters == 0) => {
                pr.uncore_limit
            }
            msr::UNCORE_PERF_STATUS if spec.uncore.as_ref().is_some_and(|u| u.clusters == 0) => {
                let u = spec.uncore.as_ref()?;
                // The mesh runs at its limit while something is awake, and otherwise at its
                // minimum.
                let top =
                    (pr.uncore_limit & 0x7f).clamp(u64::from(u.min_mhz / 100), u64::from(u.max_mhz / 100));
                if pk.awake < 0.5 {
                    top.min(u64::from(u.min_mhz / 100)).max(pr.uncore_limit >> 8 & 0x7f)
                } else {
                    top
                }
            }
            msr::OS_MAILBOX_INTERFACE | msr::OS_MAILBOX_DATA if self.has_msr_mailbox() => {
                self.mailbox_msr(place.package, reg == msr::OS_MAILBOX_INTERFACE)
            }
            msr::CPU_BUS_NUMBER if spec.sst.is_some() => {
                let bus = spec.sst.as_ref()?.pci_bus.get(place.package).copied().unwrap_or(0);
                u64::from(bus & 0xff) | u64::from(bus & 0xff) << 8
            }
            msr::PM_ENABLE if hwp => pr.pm_enable,
            msr::HWP_CAPABILITIES if hwp => self.hwp_capabilities(cpu),
            msr::HWP_REQUEST_PKG if hwp => pr.hwp_request,
            msr::HWP_INTERRUPT if hwp => r.hwp_interrupt,
            msr::HWP_REQUEST if hwp => r.hwp_request,
            msr::HWP_STATUS if hwp => r.hwp_status,
            _ => return None,
        })
    }

    fn dram_unit(&self) -> EnergyUnit {
        match self.spec.power.dram_unit_nj {
            0 => self.esu(),
            n => EnergyUnit::Nanojoules(n),
        }
    }

    /// The current highest, guaranteed, most efficient and lowest level of a CPU.
    fn hwp_capabilities(&self, cpu: usize) -> u64 {
        let place = self.topology.core_of(cpu);
        let core = self.topology.cpu(cpu).core;
        let s = &self.spec.core[place.kind].perf;
        let kind = &self.kinds[place.kind];
        let highest =
            self.spec.core[place.kind].ranking.get(place.in_package as usize).copied().unwrap_or(s.highest);
        // Speed Select changes the guaranteed frequency. Its level is then on the scale of the
        // highest level.
        let guaranteed = if self.core[core].guaranteed == kind.base {
            u32::from(s.nominal)
        } else {
            (u64::from(self.core[core].guaranteed) * u64::from(s.highest) / u64::from(kind.max)) as u32
        };
        u64::from(highest)
            | u64::from(guaranteed & 0xff) << 8
            | u64::from(s.efficient) << 16
            | u64::from(s.lowest) << 24
    }

    fn therm_status(&self, celsius: f64, log: bool, package: usize) -> u64 {
        let tj = f64::from(self.spec.thermal.tjmax_c);
        // Seven bits.
        let below = (tj - celsius).clamp(0.0, 127.0) as u64;
        let pk = &self.package[package];
        let limited = pk.control.room < 1.0;
        // Intel SDM 4, IA32_THERM_STATUS: 0 throttled for heat, 1 its log, 4 critical, 10 power
        // limited, 11 its log, 22:16 degrees below TjMax, 30:27 resolution of 1 degree, 31 valid.
        let throttles_at = match self.spec.thermal.throttle_c {
            0 => tj,
            limit => f64::from(limit),
        };
        u64::from(celsius >= throttles_at - 1.0)
            | u64::from(log) << 1
            | u64::from(celsius >= tj + 1.0) << 4
            | u64::from(limited) << 10
            | u64::from(pk.power_log) << 11
            | below << 16
            | 1 << 27
            | 1 << 31
    }

    /// The limit reasons: bit 0 PROCHOT, 1 thermal, 8 current, 10 PL1, 11 PL2, as turbostat decodes
    /// 0x64F; the log is in the upper half.
    fn limit_reasons(&self, package: usize) -> u64 {
        let pk = &self.package[package];
        let hot = pk.cool < 1.0;
        let over = |i: usize| {
            let l = pk.control.limits[i];
            l.enabled && pk.control.room < 1.0 && pk.control.average[i] >= l.watts * 0.97
        };
        let current = self.is_current_limited(package);
        let now = u64::from(hot) << 1
            | u64::from(current) << 8
            | u64::from(over(0)) << 10
            | u64::from(over(1)) << 11;
        now | now << 16 | u64::from(pk.hot_log) << 17 | u64::from(pk.current_log) << 24
    }

    #[expect(clippy::too_many_lines, reason = "one register per arm")]
    pub(super) fn write_intel(&mut self, cpu: usize, reg: u32, value: u64) -> Result<(), Fault> {
        let package = self.topology.package_of(cpu);
        let hwp = self.spec.firmware.interface == Interface::Hwp;
        let mailbox = self.has_msr_mailbox();
        let r = &mut self.registers.cpu[cpu];
        let pr = &mut self.registers.package[package];
        match reg {
            msr::TSC_ADJUST => r.tsc_adjust = value,
            msr::PERF_CTL => {
                // Bit 32 disables turbo for this CPU, which changes the package's ceilings.
                r.perf_ctl = value & (0xffff | 1 << 32);
                self.package[package].stale = true;
            }
            msr::CLOCK_MODULATION => r.clock_modulation = value & 0x1f,
            // The other bits are reserved and read back as 0.
            msr::THERM_INTERRUPT => r.therm_interrupt = value & 0x01ff_ff17,
            msr::THERM_STATUS => {
                // Software clears log bits by writing 0 to them; the other bits are read-only.
                if value & 2 == 0 {
                    let core = self.topology.cpu(cpu).core;
                    self.core[core].hot_log = false;
                }
            }
            msr::PACKAGE_THERM_STATUS => {
                let pk = &mut self.package[package];
                pk.hot_log &= value & 2 != 0;
                pk.power_log &= value & 1 << 11 != 0;
                pr.feedback_new &= value & 1 << 26 != 0;
            }
            msr::HW_FEEDBACK_PTR => pr.feedback_pointer = value & (0x000f_ffff_ffff_f000 | 1),
            msr::HW_FEEDBACK_CONFIG => pr.feedback_config = value & 1,
            msr::PACKAGE_THERM_INTERRUPT => pr.therm_interrupt = value & 0x01ff_ff17,
            msr::MISC_ENABLE => {
                // A write on any CPU switches turbo for the whole package.
                for c in self.topology.package_cores(package) {
                    for i in self.topology.core(c).cpus {
                        self.registers.cpu[i].misc_enable = value;
                    }
                }
                self.package[package].stale = true;
            }
            msr::TURBO_RATIO_LIMIT => {
                pr.turbo_ratios = value;
                self.package[package].stale = true;
            }
            msr::TURBO_RATIO_LIMIT1 => {
                pr.turbo_counts = value;
                self.package[package].stale = true;
            }
            msr::ENERGY_PERF_BIAS => r.epb = value & 0xf,
            msr::PKG_POWER_LIMIT => self.write_power_limits(package, value),
            msr::UNCORE_RATIO_LIMIT => {
                pr.uncore_limit = value & 0x7f7f;
                self.package[package].stale = true;
            }
            msr::CONFIG_TDP_CONTROL => {
                // The lock bit: until reset every further write faults.
                if pr.config_tdp_control >> 31 & 1 != 0 {
                    return Err(Fault::BadValue(reg, value));
                }
                pr.config_tdp_control = value & 0x8000_0003;
            }
            // Accepted without effect: nothing in the model uses these registers.
            msr::BIOS_SIGN_ID
            | msr::SMI_COUNT
            | msr::TURBO_ACTIVATION_RATIO
            | msr::PP0_POWER_LIMIT
            | msr::PP0_POLICY
            | msr::PP1_POLICY
            | msr::DRAM_POWER_LIMIT => {}
            msr::OS_MAILBOX_INTERFACE | msr::OS_MAILBOX_DATA if mailbox => {
                self.write_mailbox_msr(package, reg == msr::OS_MAILBOX_INTERFACE, value);
            }
            // Once on, HWP stays on until reset.
            msr::PM_ENABLE if hwp => {
                // Reserved bits fault: only bit 0 is defined.
                if value > 1 {
                    return Err(Fault::BadValue(reg, value));
                }
                pr.pm_enable |= value & 1;
                self.package[package].stale = true;
            }
            // Without bit 42: package control is a bit of each thread's request.
            msr::HWP_REQUEST_PKG if hwp => pr.hwp_request = value & 0xf800_03ff_ffff_ffff,
            msr::HWP_INTERRUPT if hwp => r.hwp_interrupt = value & 7,
            msr::HWP_REQUEST if hwp => r.hwp_request = value & 0xf800_07ff_ffff_ffff,
            // Log bits: software clears them by writing 0, and cannot set them.
            msr::HWP_STATUS if hwp => r.hwp_status &= value,
            _ if self.write_counter(cpu, reg, value) => {}
            _ => return Err(Fault::ReadOnly(reg)),
        }
        Ok(())
    }

    fn write_power_limits(&mut self, package: usize, value: u64) {
        let pr = &mut self.registers.package[package];
        if pr.power_limit >> 63 != 0 {
            // Locked: writes are ignored until reset, without a fault (Intel SDM 3B, package RAPL
            // domain).
            return;
        }
        pr.power_limit = value;
        let p = &self.spec.power;
        let limit = |half: u64| PowerLimit {
            enabled: half >> 15 & 1 != 0,
            clamp: half >> 16 & 1 != 0,
            watts: (half & 0x7fff) as f64 / f64::from(1u32 << p.power_unit),
            // At least 1 ms, because the average is divided by it.
            window: decode_window(half >> 17 & 0x7f, p.time_unit).clamp(0.001, 1e6),
        };
        self.package[package].control.limits = [limit(value & 0xffff_ffff), limit(value >> 32 & 0x7fff_ffff)];
    }
}
