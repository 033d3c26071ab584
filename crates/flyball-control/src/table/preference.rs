//! Rows of hints between performance and power.

use flyball_host::msr::{MSR_AMD_CPPC_REQ, MSR_HWP_REQUEST, MSR_IA32_ENERGY_PERF_BIAS, MSR_IA32_POWER_CTL};
use flyball_host::{Errno, Vendor};

use super::{amd, effects, intel_on, rw};
use crate::{
    Id,
    knob::{
        AppearsWith, Check, Control, Disturbs, Ends, Form, Mechanism, On, Refusal, Role, Row, Saved, Scope,
        Section, Visibility, Writing, order::Step, spelling::Spelling,
    },
    programs::Program,
};

/// The start of the refusal below, which is also the reason of a hold whose preference the governor
/// rules out.
macro_rules! only_performance {
    () => {
        "with the governor performance the kernel accepts only the preference performance"
    };
}

/// Why a preference does not go with the governor performance.
pub const ONLY_PERFORMANCE: &str = only_performance!();

pub(super) const EPP: Row = Row {
    title: "energy performance preference",
    scope: Scope::Policy,
    vendor: None,
    shown: Visibility::in_section(Section::Cpus),
    mechanisms: &[
        // The registers are only read, if the driver shows no preference. A direct write would last
        // only until the driver's next request, which comes from its cache (hwp_req_cached,
        // cppc_req_cached).
        rw("/sys/devices/system/cpu/cpufreq/policy{policy}/energy_performance_preference", Form::Epp),
        // Without the flag the bits are reserved and read as 0, which would look like a preference
        // for performance. intel_pstate uses the bias instead (intel_pstate_get_epp).
        intel_on(On::Flag("hwp_epp"), MSR_HWP_REQUEST, (31, 24), Form::Epp),
        amd(MSR_AMD_CPPC_REQ, (31, 24), Form::Epp),
    ],
    about: "Tells the processor how to trade speed for energy when it chooses its own frequency: 0 is \
            performance, 255 is power saving. The numbers of the words differ by driver, kernel, model \
            and kind of core: on performance cores of AMD's Zen 6, power reads back as balance_power \
            (kernel 7.4). amd-pstate before kernel 7 rejects numbers. dynamic (amd-pstate from kernel 7.3 on) \
            lets the platform profile decide, until another value or governor performance is set.",
    interacts: &[
        (
            Id::Governor,
            "in active mode, governor performance rejects any other EPP (EBUSY); a change of governor \
                        may reset the preference",
        ),
        (Id::DriverMode, "a change resets it; passive amd-pstate has none"),
        (Id::Epb, "the older hint; if the processor has EPP, EPP wins"),
        (Id::AvailableEpp, "lists the words"),
    ],
    role: Role::Knob(Control {
        accepts: "a word of available-epp (performance, balance_performance, balance_power, power, default) or 0 to 255",
        ends: Ends::None,
        check: Check::Preference,
        judged_by: &[
            Id::AvailableEpp,
            Id::DynamicEpp,
            Id::Governor,
            Id::Driver,
            Id::DriverMode,
            Id::HwpRequest,
            Id::CppcRequest,
        ],
        appears_with: &[AppearsWith::DriverMode, AppearsWith::Cpu],
        saved: Saved::OwnPreference,
        written_by: &[
            Program::Tuned,
            Program::PowerProfilesDaemon,
            Program::Tlp,
            Program::AutoCpufreq,
            Program::System76,
            Program::IntelLpmd,
            Program::Throttled,
            Program::Asusd,
            Program::Hhd,
            Program::ScxP2dq,
            Program::CpufreqApplet,
        ],
        writing: Writing {
            // Without X86_FEATURE_HWP_EPP the driver writes the bias instead
            // (intel_pstate_set_energy_pref_index).
            disturbs: &[Disturbs::Here(effects::BIAS)],
            refusals: &[
                Refusal::new(
                    &[Errno::BUSY],
                    concat!(
                        only_performance!(),
                        "; the governor changed after flyball had planned, and is {scaling_governor} now"
                    ),
                ),
                Refusal::new(
                    &[Errno::INVAL],
                    "this driver does not know that preference; it accepts: {energy_performance_available_preferences}",
                ),
                Refusal::new(
                    // Numbers need X86_FEATURE_HWP_EPP (store_energy_performance_preference).
                    &[Errno::OPNOTSUPP],
                    "this processor has no energy preference of its own: use epb",
                ),
                Refusal::new(&[Errno::AGAIN], "intel_pstate is off: set driver-mode=active or passive first"),
            ],
            // After the governor, which resets it and, as `performance`, refuses every value but 0.
            ..Writing::alone(Step::Preference, Spelling::Preference)
        },
    }),
};

pub(super) const EPB: Row = Row {
    title: "energy performance bias",
    scope: Scope::Cpu,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Cpus),
    mechanisms: &[
        rw("/sys/devices/system/cpu/cpu{cpu}/power/energy_perf_bias", Form::Epb),
        Mechanism::Msr {
            vendor: Vendor::Intel,
            on: On::Flag("epb"),
            register: MSR_IA32_ENERGY_PERF_BIAS,
            bits: (3, 0),
            form: Form::Epb,
            write: true,
        },
    ],
    about: "Intel's older hint between performance (0) and power saving (15). On many models it still \
            affects turbo, uncore and package power even if EPP steers the core's frequency, so set both \
            to match.",
    interacts: &[(Id::Epp, "steers the core's frequency where the processor has it")],
    role: Role::Knob(Control {
        accepts: "0 to 15, performance (0), balance-performance (4), normal (6; 7 on Alder Lake-L, Alder Lake-N and \
                  Raptor Lake-P), balance-power (8) or power (15)",
        ends: Ends::None,
        check: Check::Any,
        judged_by: &[],
        appears_with: &[AppearsWith::Cpu],
        saved: Saved::Always,
        written_by: &[
            Program::Tuned,
            Program::PowerProfilesDaemon,
            Program::Tlp,
            Program::AutoCpufreq,
            Program::System76,
            Program::Cpupower,
            Program::IntelLpmd,
        ],
        writing: Writing {
            // Without EPP the preference reads back from the bias (intel_pstate_get_epb).
            disturbs: &[Disturbs::Here(effects::PREFERENCE)],
            ..Writing::alone(Step::Preference, Spelling::Bias)
        },
    }),
};

pub(super) const ENERGY_EFFICIENCY: Row = Row {
    title: "the processor's own energy efficiency optimisation",
    scope: Scope::Machine,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Machine),
    mechanisms: &[
        rw("/sys/devices/system/cpu/intel_pstate/energy_efficiency", Form::Switch),
        // The bit disables the optimisation (MSR_IA32_POWER_CTL_BIT_EE in msr-index.h). The kernel
        // knows the bit on Kaby and Coffee Lake desktops (intel_pstate_cpu_ee_disable_ids). For
        // other processors, editions of Intel's manual differ on whether it is bit 19 or 20, and
        // Xeons have both reserved.
        intel_on(On::Models(&[0x9e]), MSR_IA32_POWER_CTL, (19, 19), Form::InvertedSwitch),
    ],
    about: "Lets the processor lower the frequency when it expects no benefit, mostly while memory is \
            the bottleneck. Only on Kaby and Coffee Lake, where intel_pstate turns it off at boot.",
    interacts: &[(Id::Epp, "steers the same trade on newer processors")],
    role: Role::Knob(Control {
        accepts: "on or off",
        ends: Ends::None,
        check: Check::Any,
        judged_by: &[],
        appears_with: &[AppearsWith::DriverMode],
        saved: Saved::WhereWritable,
        written_by: &[],
        writing: Writing::alone(Step::Preference, Spelling::Switch),
    }),
};

pub(super) const HWP_DYNAMIC_BOOST: Row = Row {
    title: "boost after waits for I/O",
    scope: Scope::Machine,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Machine),
    mechanisms: &[rw("/sys/devices/system/cpu/intel_pstate/hwp_dynamic_boost", Form::Switch)],
    about: "With HWP in active mode, raises a CPU's minimum performance for a few milliseconds when a \
            task wakes from waiting for I/O. On by default on servers.",
    interacts: &[
        (Id::DriverMode, "exists in active mode with HWP only"),
        (Id::MinFreq, "is raised for the moment"),
    ],
    role: Role::Knob(Control {
        accepts: "on or off",
        ends: Ends::None,
        check: Check::Any,
        judged_by: &[],
        appears_with: &[AppearsWith::DriverMode],
        saved: Saved::Always,
        written_by: &[Program::Throttled],
        writing: Writing::alone(Step::Preference, Spelling::Switch),
    }),
};
