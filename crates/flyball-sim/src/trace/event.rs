//! The modelled tracepoints and their records.

use strum::VariantArray as _;

use crate::kernel::Kernel;

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Kind {
    CpuFrequency,
    CpuFrequencyLimits,
    CpuIdle,
    PstateSample,
    #[strum(serialize = "amd_pstate_perf")]
    AmdPerf,
    #[strum(serialize = "amd_pstate_epp_perf")]
    AmdEpp,
    /// A performance floor was requested. Only processors with priorities (CPPC_PERF_PRIO) have its
    /// register.
    #[strum(serialize = "amd_pstate_cppc_req2")]
    AmdReq2,
    Print,
}

impl Kind {
    pub(crate) const ALL: &[Kind] = Kind::VARIANTS;

    pub(crate) const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// The event's directory in events/.
    pub(crate) fn group(self) -> &'static str {
        match self {
            Kind::AmdPerf | Kind::AmdEpp | Kind::AmdReq2 => "amd_cpu",
            Kind::Print => "ftrace",
            _ => "power",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        self.into()
    }

    /// Returns whether a kernel has the event. Debian's kernels have all others on every machine.
    pub(crate) fn is_in(self, kernel: Kernel) -> bool {
        match self {
            // amd-pstate came with 5.17.
            Kind::AmdPerf => kernel >= Kernel::V6_1,
            Kind::AmdEpp => kernel >= Kernel::V6_18,
            Kind::AmdReq2 => kernel >= Kernel::V7_2,
            _ => true,
        }
    }

    /// The event's id: Debian's if it was recorded, otherwise interpolated.
    pub(crate) fn id(self, kernel: Kernel) -> u16 {
        let base = match kernel {
            Kernel::V6_12 => 534,
            // Not recorded: interpolated.
            Kernel::V6_18 => 530,
            Kernel::V7_2 => 527,
            // 6.1's id; those of older kernels were not recorded.
            _ => 468,
        };
        let amd = match kernel {
            Kernel::V6_12 => 1342,
            Kernel::V6_18 => 1380,
            Kernel::V7_2 => 1412,
            _ => 1218,
        };
        match self {
            Kind::CpuFrequency => base,
            Kind::CpuFrequencyLimits => base - 1,
            Kind::CpuIdle => base + 4,
            Kind::PstateSample => base + 1,
            Kind::AmdPerf => amd,
            Kind::AmdEpp => amd - 1,
            Kind::AmdReq2 => amd - 2,
            Kind::Print => 5,
        }
    }
}

/// The content of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// `state` in kHz.
    CpuFrequency {
        khz: u32,
        cpu: u32,
    },
    CpuFrequencyLimits {
        min: u32,
        max: u32,
        cpu: u32,
    },
    /// A cpuidle state; `u32::MAX` is an exit.
    CpuIdle {
        state: u32,
        cpu: u32,
    },
    /// Counters as MPERF, APERF, TSC.
    PstateSample {
        busy: u32,
        scaled: u32,
        from: u32,
        to: u32,
        counters: [u64; 3],
        khz: u32,
        io_boost: u32,
    },
    AmdPerf {
        min: u8,
        desired: u8,
        max: u8,
        khz: u64,
        counters: [u64; 3],
        cpu: u32,
        changed: bool,
        fast: bool,
    },
    AmdEpp {
        cpu: u32,
        highest: u8,
        epp: u8,
        min: u8,
        max: u8,
        boost: bool,
        changed: bool,
    },
    /// Text written to trace_marker.
    Print(Box<[u8]>),
}

impl Event {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Event::CpuFrequency { .. } => Kind::CpuFrequency,
            Event::CpuFrequencyLimits { .. } => Kind::CpuFrequencyLimits,
            Event::CpuIdle { .. } => Kind::CpuIdle,
            Event::PstateSample { .. } => Kind::PstateSample,
            Event::AmdPerf { .. } => Kind::AmdPerf,
            Event::AmdEpp { .. } => Kind::AmdEpp,
            Event::Print(_) => Kind::Print,
        }
    }

    /// Size of a record in bytes, including the eight common bytes.
    pub(crate) fn size(&self, kernel: Kernel) -> usize {
        match self {
            Event::CpuFrequency { .. } | Event::CpuIdle { .. } => 16,
            Event::CpuFrequencyLimits { .. } | Event::AmdEpp { .. } => 20,
            Event::PstateSample { .. } => 56,
            Event::AmdPerf { .. } if kernel >= Kernel::V6_18 => 56,
            Event::AmdPerf { .. } => 72,
            // Including the zero at the end of the text.
            Event::Print(text) => (16 + text.len() + 1).next_multiple_of(4),
        }
    }

    /// Appends the fields after the common ones, in the layout of `format`.
    pub(crate) fn encode(&self, kernel: Kernel, to: &mut Vec<u8>) {
        let start = to.len();
        let words = |to: &mut Vec<u8>, words: &[u32]| {
            to.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        };
        let longs = |to: &mut Vec<u8>, longs: &[u64]| {
            to.extend(longs.iter().flat_map(|long| long.to_le_bytes()));
        };
        match self {
            Event::CpuFrequency { khz, cpu } => words(to, &[*khz, *cpu]),
            Event::CpuFrequencyLimits { min, max, cpu } => words(to, &[*min, *max, *cpu]),
            Event::CpuIdle { state, cpu } => words(to, &[*state, *cpu]),
            Event::PstateSample { busy, scaled, from, to: next, counters, khz, io_boost } => {
                words(to, &[*busy, *scaled, *from, *next]);
                longs(to, counters);
                words(to, &[*khz, *io_boost]);
            }
            Event::AmdPerf { min, desired, max, khz, counters, cpu, changed, fast } => {
                if kernel >= Kernel::V6_18 {
                    // Three bytes, and five bytes of padding before the next 64-bit field.
                    to.extend_from_slice(&[*min, *desired, *max, 0, 0, 0, 0, 0]);
                } else {
                    longs(to, &[u64::from(*min), u64::from(*desired), u64::from(*max)]);
                }
                longs(to, &[*khz]);
                longs(to, counters);
                words(to, &[*cpu]);
                if kernel < Kernel::V6_18 {
                    to.push(u8::from(*changed));
                }
                to.push(u8::from(*fast));
            }
            Event::AmdEpp { cpu, highest, epp, min, max, boost, changed } => {
                words(to, &[*cpu]);
                to.extend_from_slice(&[*highest, *epp, *min, *max, u8::from(*boost), u8::from(*changed)]);
            }
            Event::Print(text) => {
                // `ip`, the caller in the kernel. No address corresponds to it here.
                longs(to, &[0]);
                to.extend_from_slice(text);
            }
        }
        // Pad to the size that the format file implies, because compilers pad structures.
        to.resize(start + self.size(kernel) - 8, 0);
    }

    /// The text of `trace`, after the event's name.
    pub(crate) fn text(&self, kernel: Kernel) -> String {
        match self {
            Event::CpuFrequency { khz, cpu } => format!("state={khz} cpu_id={cpu}"),
            Event::CpuFrequencyLimits { min, max, cpu } => format!("min={min} max={max} cpu_id={cpu}"),
            Event::CpuIdle { state, cpu } => format!("state={state} cpu_id={cpu}"),
            Event::PstateSample { busy, scaled, from, to, counters: [mperf, aperf, tsc], khz, io_boost } => {
                format!(
                    "core_busy={busy} scaled={scaled} from={from} to={to} mperf={mperf} aperf={aperf} tsc={tsc} \
                     freq={khz} io_boost={io_boost}"
                )
            }
            Event::AmdPerf { min, desired, max, khz, counters: [mperf, aperf, tsc], cpu, changed, fast } => {
                let changed =
                    if kernel < Kernel::V6_18 { format!(" changed={changed}") } else { String::new() };
                format!(
                    "amd_min_perf={min} amd_des_perf={desired} amd_max_perf={max} freq={khz} mperf={mperf} \
                     aperf={aperf} tsc={tsc} cpu_id={cpu}{changed} fast_switch={fast}"
                )
            }
            Event::AmdEpp { cpu, highest, epp, min, max, boost, changed } => {
                let (boost, changed) = (u8::from(*boost), u8::from(*changed));
                format!("cpu{cpu}: [{min}<->{max}]/{highest}, epp={epp}, boost={boost}, changed={changed}")
            }
            Event::Print(text) => {
                format!("tracing_mark_write: {}", String::from_utf8_lossy(text).trim_end_matches('\n'))
            }
        }
    }
}
