//! Rows of frequency selection: governor and limits.

use flyball_host::{Errno, Vendor};

use super::{effects, rw};
use crate::{
    Id,
    knob::{
        AppearsWith, Check, Control, Disturbs, Ends, Form, Refusal, Role, Row, Saved, Scope, Section,
        Visibility, Writing,
        order::{Bound, Step},
        spelling::Spelling,
    },
    programs::Program,
};

const FREQUENCIES: &str = "a frequency with its unit (2.6GHz, 2600MHz), min, max, base or nominal";

/// The accepted values for the limits of a policy.
const LIMITS: &str = "a frequency with its unit (2.6GHz, 2600MHz), a share of the highest (75%), min, max, base, \
                      nominal or efficient";

/// The rows that frequency limits are checked against.
const JUDGING_LIMITS: &[Id] = &[
    Id::MinFreq,
    Id::MaxFreq,
    Id::HwMinFreq,
    Id::HwMaxFreq,
    Id::BaseFreq,
    Id::NominalFreq,
    Id::LowestNonlinearFreq,
    Id::AvailableFreqs,
    Id::BoostFreqs,
    Id::BiosLimit,
    Id::Turbo,
    // Requests of intel_pstate in passive mode (`under_percentage`).
    Id::Driver,
    Id::MinPerfPct,
    Id::MaxPerfPct,
];

pub(super) const GOVERNOR: Row = Row {
    title: "frequency governor",
    scope: Scope::Policy,
    vendor: None,
    shown: Visibility::in_section(Section::Cpus),
    mechanisms: &[rw("/sys/devices/system/cpu/cpufreq/policy{policy}/scaling_governor", Form::Word)],
    about: "The rule by which the kernel requests frequencies. In active mode only performance (request \
            the most, EPP 0) and powersave (let the processor choose by EPP) exist, and powersave is not \
            slow. Otherwise schedutil follows the scheduler's utilisation, ondemand and conservative \
            sample the load, performance and powersave pin the ends of the limits, and userspace takes \
            setspeed.",
    interacts: &[
        (
            Id::Epp,
            "under performance in active mode every preference above 0 is refused with EBUSY, and a change of \
                   governor may forget the preference: set the governor first",
        ),
        (Id::Setspeed, "needs userspace"),
        (Id::DriverMode, "decides which governors exist"),
        (Id::AvailableGovernors, "lists them"),
    ],
    role: Role::Knob(Control {
        accepts: "a governor of available-governors: performance, powersave, schedutil, ondemand, conservative, userspace",
        ends: Ends::None,
        check: Check::Listed(Id::AvailableGovernors),
        judged_by: &[Id::AvailableGovernors, Id::Driver, Id::AvailableEpp],
        appears_with: &[AppearsWith::DriverMode, AppearsWith::Cpu],
        saved: Saved::Always,
        written_by: &[
            Program::Tuned,
            Program::PowerProfilesDaemon,
            Program::Tlp,
            Program::AutoCpufreq,
            Program::System76,
            Program::GameMode,
            Program::SteamosManager,
            Program::Cpufreqd,
            Program::Cpupower,
            Program::CpufreqApplet,
        ],
        writing: Writing {
            disturbs: &[
                Disturbs::Here(effects::POLICY),
                // Under `performance` intel_pstate_hwp_set writes EPP 0 and saves the old value. It
                // restores that value only if the register still holds 0.
                Disturbs::Here(effects::BIAS),
                // Everywhere: tunables shared by all policies of a governor belong to no policy.
                Disturbs::Everywhere(effects::SHARED_TUNABLES),
            ],
            refusals: &[Refusal::new(
                &[Errno::INVAL],
                "this driver does not have that governor, or its module cannot be loaded; it has: {scaling_available_governors}",
            )],
            // The kernel ignores case (strncasecmp in cpufreq_parse_policy and find_governor of
            // cpufreq.c).
            ..Writing::alone(Step::Governor, Spelling::AnyCase)
        },
    }),
};

const INTEL_PSTATE_OFF: &[Refusal] =
    &[Refusal::new(&[Errno::AGAIN], "intel_pstate is off: set driver-mode=active or passive first")];

/// One of the two percentages of intel_pstate.
const fn percentage(bound: Bound, judged_by: &'static [Id], written_by: &'static [Program]) -> Role {
    Role::Knob(Control {
        accepts: "0 to 100, min or max",
        ends: Ends::Numbers(0, 100),
        check: Check::Any,
        judged_by,
        appears_with: &[AppearsWith::DriverMode],
        saved: Saved::Always,
        written_by,
        writing: Writing {
            // store_min_perf_pct clamps to max_perf_pct without an error, so the write that widens
            // the range must come first.
            bound,
            disturbs: &[Disturbs::Everywhere(effects::PERCENTAGES)],
            refusals: INTEL_PSTATE_OFF,
            ..Writing::alone(Step::Limit, Spelling::Number)
        },
    })
}

pub(super) const MIN_PERF_PCT: Row = Row {
    title: "lowest performance, in percent of the highest turbo",
    scope: Scope::Machine,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Machine),
    mechanisms: &[rw("/sys/devices/system/cpu/intel_pstate/min_perf_pct", Form::Percent)],
    about: "Lower bound for all CPUs, in percent of the highest turbo frequency, in addition to each \
            policy's min-freq: the higher one wins. The kernel clamps it silently between the hardware's \
            lowest and max-perf-pct.",
    interacts: &[
        (Id::MaxPerfPct, "never above it"),
        (Id::MinFreq, "the higher bound counts"),
        (Id::Turbo, "turning turbo off may lower it"),
    ],
    role: percentage(
        Bound::Lower,
        &[Id::MaxPerfPct, Id::HwMinFreq, Id::HwMaxFreq],
        &[Program::Tuned, Program::Tlp, Program::AutoCpufreq, Program::System76],
    ),
};

pub(super) const MAX_PERF_PCT: Row = Row {
    title: "highest performance, in percent of the highest turbo",
    scope: Scope::Machine,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Machine),
    mechanisms: &[rw("/sys/devices/system/cpu/intel_pstate/max_perf_pct", Form::Percent)],
    about: "Upper bound for all CPUs, in percent of the highest turbo frequency, in addition to each \
            policy's max-freq: the lower one wins. The kernel clamps it silently to at least \
            min-perf-pct.",
    interacts: &[(Id::MinPerfPct, "never below it"), (Id::MaxFreq, "the lower bound counts")],
    role: percentage(
        Bound::Upper,
        &[Id::MinPerfPct],
        &[Program::Tuned, Program::Tlp, Program::AutoCpufreq, Program::Thermald, Program::System76],
    ),
};

/// One of the two limits of a policy.
const fn limit(bound: Bound, written_by: &'static [Program]) -> Role {
    Role::Knob(Control {
        accepts: LIMITS,
        ends: Ends::Rows(Id::HwMinFreq, Id::HwMaxFreq),
        check: Check::BetweenEnds,
        judged_by: JUDGING_LIMITS,
        appears_with: &[AppearsWith::DriverMode, AppearsWith::Cpu],
        saved: Saved::Always,
        written_by,
        writing: Writing {
            bound,
            // Both limits: a minimum above the maximum is cut to it (cpufreq_verify_within_limits),
            // and takes effect again when the maximum rises.
            disturbs: &[Disturbs::Here(effects::LIMITS)],
            // The file shows the limit in force (policy->min), not the written one: handle_update
            // runs in a worker and clips to the driver's range and to other requests.
            ..Writing::alone(Step::Limit, Spelling::FrequencyLimit)
        },
    })
}

pub(super) const MIN_FREQ: Row = Row {
    title: "lowest frequency to use",
    scope: Scope::Policy,
    vendor: None,
    shown: Visibility::in_section(Section::Cpus),
    mechanisms: &[rw("/sys/devices/system/cpu/cpufreq/policy{policy}/scaling_min_freq", Form::KHz)],
    about: "Lowest frequency that the governor or the processor may choose while a CPU works. The value \
            read back is the bound in effect, clipped to the hardware's limits and to other requests in \
            the kernel. Idle and thermal limits still go below.",
    interacts: &[
        (
            Id::MaxFreq,
            "a minimum above the maximum is cut to the maximum: raise max-freq before min-freq, lower \
                       min-freq before max-freq",
        ),
        (Id::HwMinFreq, "the hardware's own bound"),
        (Id::MinPerfPct, "the higher bound counts"),
    ],
    role: limit(
        Bound::Lower,
        &[
            Program::Tuned,
            Program::Tlp,
            Program::AutoCpufreq,
            Program::System76,
            Program::Cpufreqd,
            Program::Cpupower,
            Program::CpufreqApplet,
        ],
    ),
};

pub(super) const MAX_FREQ: Row = Row {
    title: "highest frequency to use",
    scope: Scope::Policy,
    vendor: None,
    shown: Visibility::in_section(Section::Cpus),
    mechanisms: &[rw("/sys/devices/system/cpu/cpufreq/policy{policy}/scaling_max_freq", Form::KHz)],
    about: "Highest frequency that the governor or the processor may choose. Above the base or nominal \
            frequency it is a permission, not a promise: turbo depends on active cores, power and heat.",
    interacts: &[
        (Id::MinFreq, "raise max-freq before min-freq, lower min-freq before max-freq"),
        (Id::Turbo, "off caps the frequency at base or nominal whatever the limit says"),
        (Id::HwMaxFreq, "the hardware's own bound"),
        (Id::MaxPerfPct, "the lower bound counts"),
        (Id::BiosLimit, "the firmware's cap in acpi-cpufreq"),
    ],
    role: limit(
        Bound::Upper,
        &[
            Program::Tuned,
            Program::Tlp,
            Program::AutoCpufreq,
            Program::Thermald,
            Program::System76,
            Program::IntelLpmd,
            Program::Cpufreqd,
            Program::Cpupower,
            Program::CpufreqApplet,
        ],
    ),
};

pub(super) const SETSPEED: Row = Row {
    title: "frequency asked for by the userspace governor",
    scope: Scope::Policy,
    vendor: None,
    shown: Visibility::with(Section::Cpus, Id::Governor, "userspace"),
    mechanisms: &[rw("/sys/devices/system/cpu/cpufreq/policy{policy}/scaling_setspeed", Form::KHz)],
    about: "Frequency that the userspace governor requests. Under any other governor a read gives \
            <unsupported> and a write fails with EINVAL.",
    interacts: &[
        (Id::Governor, "must be userspace, which drivers in active mode do not have"),
        (Id::MinFreq, "bounds it"),
        (Id::MaxFreq, "bounds it"),
    ],
    role: Role::Knob(Control {
        accepts: FREQUENCIES,
        ends: Ends::Rows(Id::HwMinFreq, Id::HwMaxFreq),
        check: Check::BetweenEnds,
        judged_by: &[Id::Governor, Id::HwMinFreq, Id::HwMaxFreq, Id::BaseFreq, Id::NominalFreq],
        appears_with: &[AppearsWith::DriverMode, AppearsWith::Cpu],
        saved: Saved::Always,
        written_by: &[],
        writing: Writing {
            refusals: &[Refusal::new(
                &[Errno::INVAL],
                "only the governor 'userspace' takes a speed, and this policy has '{scaling_governor}': set governor=userspace as well",
            )],
            // After the governor, which must be userspace. show_scaling_setspeed prints
            // `<unsupported>` if the governor has no such operation.
            ..Writing::alone(Step::Tunable, Spelling::Speed)
        },
    }),
};

pub(super) const FLOOR_FREQ: Row = Row {
    title: "frequency that the firmware keeps under power limits",
    scope: Scope::Policy,
    vendor: Some(Vendor::Amd),
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[rw("/sys/devices/system/cpu/cpufreq/policy{policy}/amd_pstate_floor_freq", Form::KHz)],
    about: "With CPPC performance priority, the firmware does not push the core below this frequency \
            when it shares out a power limit; cores with lower floors give way first. Must be between \
            the hardware's lowest frequency and max-freq, or the write fails with EINVAL.",
    interacts: &[
        (Id::MaxFreq, "the floor cannot be above it"),
        (Id::HwMinFreq, "the floor cannot be below it"),
    ],
    role: Role::Knob(Control {
        accepts: FREQUENCIES,
        ends: Ends::Rows(Id::HwMinFreq, Id::HwMaxFreq),
        check: Check::Any,
        judged_by: &[Id::HwMinFreq, Id::HwMaxFreq, Id::BaseFreq, Id::NominalFreq],
        appears_with: &[AppearsWith::DriverMode, AppearsWith::Cpu],
        saved: Saved::Never,
        written_by: &[],
        writing: Writing::alone(Step::Limit, Spelling::Number),
    }),
};
