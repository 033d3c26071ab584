//! Frequencies: the kernel's files during a round, and the hardware's counters over it.
//!
//! APERF counts at the frequency that a CPU runs at, MPERF at a fixed one (that of the TSC), both
//! only while it is not idle (Intel SDM vol. 3, 16.5; AMD APM vol. 2, 17.3.2). Their ratio over a
//! round is therefore the mean frequency while running, and MPERF over TSC the share of time that
//! was not idle.

use std::time::Duration;

use flyball_host::{CpuList, Host, online_cpus};

use super::{Series, read_number};

const IA32_TIME_STAMP_COUNTER: u32 = 0x10;
const IA32_MPERF: u32 = 0xe7;
const IA32_APERF: u32 = 0xe8;

/// Maximum number of CPUs followed by file: each reading costs microseconds and may wake the CPU.
const FILES: usize = 8;

/// Differences of one CPU's registers over a round.
#[derive(Debug, Clone, Copy, PartialEq, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
pub struct Effective {
    /// APERF's difference.
    pub aperf: u64,
    /// MPERF's difference.
    pub mperf: u64,
    /// The time stamp counter's difference.
    pub tsc: u64,
    /// The time between the two readings, in seconds.
    pub seconds: f64,
}

/// The registers of a CPU at one moment.
pub(super) struct Registers {
    at: Duration,
    aperf: u64,
    mperf: u64,
    tsc: u64,
}

impl Registers {
    pub(super) fn difference(before: &Registers, after: &Registers) -> Option<Effective> {
        let seconds = after.at.checked_sub(before.at)?.as_secs_f64();
        // The counters may wrap at 64 bits, and a reset or hotplug sets them to 0. A difference far
        // beyond the TSC's is invalid.
        let effective = Effective {
            // APERF and MPERF wrap. The TSC of a 5 GHz machine wraps after a century, so a smaller
            // value is a reset.
            aperf: after.aperf.wrapping_sub(before.aperf),
            mperf: after.mperf.wrapping_sub(before.mperf),
            tsc: after.tsc.checked_sub(before.tsc)?,
            seconds,
        };
        (effective.mperf <= effective.tsc.saturating_mul(2) && effective.tsc > 0).then_some(effective)
    }
}

/// The mean frequency in kHz over CPUs, weighted by the time that each ran.
pub(super) fn effective(registers: &[Option<Effective>]) -> Option<f64> {
    let (mut cycles, mut running) = (0.0, 0.0);
    for counted in registers.iter().flatten().filter(|c| c.seconds > 0.0) {
        // MPERF runs at the TSC's frequency, which the round itself measures.
        // Neither CPUID nor cpufreq has the exact frequency on all machines.
        let tsc_khz = counted.tsc as f64 / counted.seconds / 1000.0;
        cycles += counted.aperf as f64;
        running += counted.mperf as f64 / tsc_khz;
    }
    (running > 0.0).then(|| cycles / running)
}

/// The share of time that CPUs were not idle.
pub(super) fn busy(registers: &[Option<Effective>]) -> Option<f64> {
    let (mut mperf, mut tsc) = (0.0, 0.0);
    for counted in registers.iter().flatten() {
        mperf += counted.mperf as f64;
        tsc += counted.tsc as f64;
    }
    (tsc > 0.0).then(|| mperf / tsc)
}

/// The frequency meters in use.
pub(super) struct Clocks {
    files: Vec<(u32, String)>,
    registers: Vec<u32>,
}

impl Clocks {
    pub(super) fn find(host: &dyn Host, cpus: Option<&CpuList>) -> (Clocks, Option<String>) {
        let online = online_cpus(host).unwrap_or_default();
        let wanted: Vec<u32> =
            online.iter().filter(|cpu| cpus.is_none_or(|only| only.contains(*cpu))).collect();
        // Some hypervisors allow to read the registers but always return 0. On a simulated machine,
        // 0 is a valid count: it has just booted, and a CPU that has been idle since then has not
        // counted.
        let counts = |mperf: u64| mperf > 0 || host.software().is_some();
        let registers: Vec<u32> = wanted
            .iter()
            .copied()
            .filter(|cpu| read_registers(host, *cpu).is_some_and(|registers| counts(registers.mperf)))
            .collect();
        // Spread over the list, to include all packages and kinds of core.
        let step = wanted.len().div_ceil(FILES).max(1);
        let files: Vec<(u32, String)> = wanted
            .iter()
            .step_by(step)
            .filter_map(|cpu| {
                // cpuinfo_avg_freq (Linux 6.18) comes from the hardware, and fails with EAGAIN on
                // an idle CPU. scaling_cur_freq comes from the hardware with some drivers and is
                // the last request with others.
                ["cpuinfo_avg_freq", "scaling_cur_freq"]
                    .iter()
                    .map(|file| format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/{file}"))
                    .find(|path| host.exists(path))
                    .map(|path| (*cpu, path))
            })
            .collect();
        let reason = (files.is_empty() && registers.is_empty()).then(|| {
            let how = if super::is_virtual(host) { "" } else { " (/dev/cpu/*/msr: modprobe msr, as root)" };
            format!("no cpufreq driver, and APERF and MPERF cannot be read{how}")
        });
        (Clocks { files, registers }, reason)
    }

    pub(super) fn files(&self) -> Vec<(u32, String)> {
        self.files.clone()
    }

    pub(super) fn registers(&self) -> Vec<u32> {
        self.registers.clone()
    }

    pub(super) fn read(&self, host: &dyn Host, at: f64, into: &mut [Series]) {
        for ((_, path), series) in self.files.iter().zip(into) {
            // An idle CPU has no frequency; a gap in the series says so.
            if let Some(khz) = read_number(host, path).filter(|khz| *khz > 0) {
                series.push((at, khz));
            }
        }
    }

    pub(super) fn read_registers(&self, host: &dyn Host) -> Vec<Option<Registers>> {
        self.registers.iter().map(|cpu| read_registers(host, *cpu)).collect()
    }
}

fn read_registers(host: &dyn Host, cpu: u32) -> Option<Registers> {
    // The same order at both ends of a round: the time between the reads is nearly equal and drops
    // out of the differences. MPERF and APERF are adjacent, because their ratio counts.
    let tsc = host.msr(cpu, IA32_TIME_STAMP_COUNTER).ok()?;
    let at = host.now();
    let mperf = host.msr(cpu, IA32_MPERF).ok()?;
    let aperf = host.msr(cpu, IA32_APERF).ok()?;
    Some(Registers { at, aperf, mperf, tsc })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequency_is_cycles_over_running_time() {
        // A 3 GHz TSC; CPU 0 ran half of two seconds at 4 GHz, CPU 1 a tenth at 1 GHz.
        let cpu = |busy: f64, ghz: f64| {
            Some(Effective {
                aperf: (busy * 2.0 * ghz * 1e9) as u64,
                mperf: (busy * 2.0 * 3e9) as u64,
                tsc: 6_000_000_000,
                seconds: 2.0,
            })
        };
        let counted = [cpu(0.5, 4.0), None, cpu(0.1, 1.0)];
        let khz = effective(&counted).expect("two CPUs ran");
        assert!((khz - (4.0 * 0.5 + 1.0 * 0.1) / 0.6 * 1e6).abs() < 1.0, "{khz}");
        assert!((busy(&counted).expect("two CPUs counted") - 0.3).abs() < 1e-9);
        assert_eq!(effective(&[None]), None);
    }

    #[test]
    fn a_reset_counter_is_no_reading() {
        let at = |seconds: u64, mperf, tsc| Registers {
            at: Duration::from_secs(seconds),
            aperf: mperf,
            mperf,
            tsc,
        };
        assert!(Registers::difference(&at(0, 1000, 1000), &at(1, 10, 3000)).is_none());
        assert!(Registers::difference(&at(0, 10, 1000), &at(1, 1000, 10)).is_none());
        assert!(Registers::difference(&at(0, u64::MAX - 5, 1000), &at(1, 500, 3000)).is_some());
    }
}
