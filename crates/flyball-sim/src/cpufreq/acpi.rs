//! acpi-cpufreq (drivers/cpufreq/acpi-cpufreq.c): the P-states of ACPI's `_PSS`, requested through
//! a register.

use flyball_silicon::msr::{AMD_HWCR, AMD_PERF_CTL, MISC_ENABLE, PERF_CTL, TURBO_RATIO_LIMIT};

use super::{
    Driver, Platform, Style,
    policy::{Limits, Policy},
};
use crate::{board::Vendor, errno::Answer, governor::Relation, kernel::Kernel};

pub(crate) struct AcpiCpufreq;

impl AcpiCpufreq {
    /// get_max_boost_ratio(): boost's highest frequency according to CPPC, in kHz.
    fn boosted(platform: &Platform, policy: &Policy) -> Option<u32> {
        let cppc = platform.board.cppc.get(policy.number as usize)?;
        if cppc.nominal == 0 || cppc.highest <= cppc.nominal {
            return None;
        }
        // Since 5.11 and 5.10.13 (acpi_cpufreq_cpu_init()).
        if platform.before(Kernel::V5_10) {
            return None;
        }
        // SCHED_CAPACITY_SHIFT: the kernel keeps ten binary places and truncates twice.
        let ratio = (u64::from(cppc.highest) << 10) / u64::from(cppc.nominal);
        // The ratio applies to CPPC's nominal frequency if firmware gives one, otherwise to the
        // table's highest frequency.
        let nominal = match cppc.nominal_mhz {
            0 => *policy.table.first()?,
            mhz => mhz * 1000,
        };
        Some(((u64::from(nominal) * ratio) >> 10) as u32)
    }
}

impl Driver for AcpiCpufreq {
    fn name(&self) -> &'static str {
        "acpi-cpufreq"
    }

    fn style(&self) -> Style {
        Style::Target
    }

    fn init(&self, platform: &mut Platform, policy: &mut Policy) -> Answer {
        let table = &platform.board.pss;
        let (Some(&first), Some(&last)) = (table.first(), table.last()) else {
            return Err(crate::errno::Errno::NODEV);
        };
        policy.table.clone_from(table);
        // ACPI lists P-states in descending order; acpi_cpufreq_cpu_init() skips entries out of
        // order.
        policy.lowest = last;
        // The driver sets the maximum above the table, and cpufreq_frequency_table_cpuinfo() does
        // not change it.
        policy.highest = Self::boosted(platform, policy).unwrap_or(first);
        policy.latency_ns = platform.board.pss_latency_us * 1000;
        if !platform.board.pss_ports {
            // "P-state transition latency capped at 20 uS": the driver does not trust firmware's
            // latency of registers.
            policy.latency_ns = policy.latency_ns.min(20_000);
        }
        // perf->state starts at 0; the first target writes the register in any case (data->resume).
        policy.current = first;
        Ok(())
    }

    fn verify(&self, platform: &Platform, policy: &Policy, limits: &mut Limits) {
        limits.clip(policy.lowest, policy.highest);
        // Up to 6.1, a range without a table entry is extended to the next higher entry
        // (cpufreq_frequency_table_verify).
        if platform.before(Kernel::V6_12)
            && !policy.table.iter().any(|khz| (limits.min..=limits.max).contains(khz))
        {
            let larger = policy.table.iter().rev().find(|&&khz| khz > limits.max);
            limits.max = larger.copied().unwrap_or(u32::MAX);
            limits.clip(policy.lowest, policy.highest);
        }
    }

    fn target(&self, platform: &mut Platform, policy: &mut Policy, khz: u32, _relation: Relation) -> u32 {
        // The core passes only entries of the table.
        let index = policy.table.iter().position(|&entry| entry == khz).unwrap_or(0);
        for &cpu in &policy.online {
            // If the register rejects the write, the CPU stays as it was, as on hardware.
            let _ = match platform.board.vendor {
                // AMD's register takes the P-state's number, Intel's the ratio.
                Vendor::Amd | Vendor::Arm => platform.chip.write(cpu, AMD_PERF_CTL, index as u64),
                Vendor::Intel => {
                    let scaling = platform.board.places[cpu as usize].scaling_khz.max(1);
                    // Intel's _PSS marks turbo with a first entry 1 MHz above the second; for it,
                    // the register takes the highest ratio.
                    let is_turbo = index == 0 && policy.table.get(1).is_some_and(|&next| next + 1000 == khz);
                    let ratio = if is_turbo {
                        let limit = platform.chip.read(cpu, TURBO_RATIO_LIMIT).unwrap_or(0) & 0xff;
                        limit.max(u64::from(khz / scaling))
                    } else {
                        u64::from(khz / scaling)
                    };
                    platform.chip.write(cpu, PERF_CTL, ratio << 8)
                }
            };
        }
        khz
    }

    fn switches_fast(&self, _platform: &Platform) -> bool {
        true
    }

    fn has_boost(&self, platform: &Platform) -> Option<bool> {
        // Without CPUID's CPB or IDA there is no switch (acpi_cpufreq_boost_init()).
        platform.board.boost.then_some(true)
    }

    fn set_boost(&self, platform: &mut Platform, policy: &mut Policy, on: bool) -> Answer {
        for &cpu in &policy.online {
            // The bits that switch boost off (boost_set_msr()).
            let (register, bit) = match platform.board.vendor {
                Vendor::Amd | Vendor::Arm => (AMD_HWCR, 25),
                Vendor::Intel => (MISC_ENABLE, 38),
            };
            let value = platform.chip.read(cpu, register)?;
            let value = if on { value & !(1 << bit) } else { value | 1 << bit };
            platform.chip.write(cpu, register, value)?;
        }
        Ok(())
    }

    fn current(&self, platform: &Platform, policy: &Policy) -> Option<u32> {
        // get_cur_freq_on_cpu() is set only if a register can be read back; it returns the table
        // entry for the register's value.
        (!platform.board.pss_ports).then(|| policy.resolve(policy.current, Relation::Close))
    }
}
