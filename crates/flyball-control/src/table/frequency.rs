//! Rows of frequency selection: governor and limits.

use super::{AMD, FACT, INTEL, Id, rw};
use crate::knob::{Form, Knob, Phase, Scope};

const FREQUENCIES: &str = "a frequency with its unit (2.6GHz, 2600MHz), min, max, base or nominal";

pub(super) const GOVERNOR: Knob = Knob {
    id: Id::Governor,
    name: "governor",
    title: "frequency governor",
    scope: Scope::Policy,
    phase: Some(Phase::Governor),
    mechanisms: &[rw("/sys/devices/system/cpu/cpufreq/policy{policy}/scaling_governor", Form::Word)],
    accepts: "a governor of available-governors: performance, powersave, schedutil, ondemand, conservative, userspace",
    about: "The rule by which the kernel asks for frequencies. With a driver in active mode only performance (ask for \
            the most, EPP 0) and powersave (let the processor choose by EPP) exist, and powersave is no slow mode. \
            Otherwise schedutil follows the scheduler's utilisation, ondemand and conservative sample the load, \
            performance and powersave pin the ends of the limits, userspace takes setspeed.",
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
    ..FACT
};

pub(super) const MIN_PERF_PCT: Knob = Knob {
    id: Id::MinPerfPct,
    name: "min-perf-pct",
    title: "lowest performance, in percent of the highest turbo",
    phase: Some(Phase::Limits),
    mechanisms: &[rw("/sys/devices/system/cpu/intel_pstate/min_perf_pct", Form::Percent)],
    accepts: "0 to 100, min or max",
    about: "A lower bound for all CPUs of intel_pstate, in percent of the highest turbo frequency. It adds to each \
            policy's min-freq: the higher of the two counts. The kernel clamps silently between the hardware's lowest \
            and max-perf-pct.",
    interacts: &[
        (Id::MaxPerfPct, "never above it"),
        (Id::MinFreq, "the higher bound counts"),
        (Id::Turbo, "turning turbo off may lower it"),
    ],
    ..INTEL
};

pub(super) const MAX_PERF_PCT: Knob = Knob {
    id: Id::MaxPerfPct,
    name: "max-perf-pct",
    title: "highest performance, in percent of the highest turbo",
    phase: Some(Phase::Limits),
    mechanisms: &[rw("/sys/devices/system/cpu/intel_pstate/max_perf_pct", Form::Percent)],
    accepts: "0 to 100, min or max",
    about: "An upper bound for all CPUs of intel_pstate, in percent of the highest turbo frequency. It adds to each \
            policy's max-freq: the lower of the two counts. The kernel clamps silently to at least min-perf-pct.",
    interacts: &[(Id::MinPerfPct, "never below it"), (Id::MaxFreq, "the lower bound counts")],
    ..INTEL
};

pub(super) const MIN_FREQ: Knob = Knob {
    id: Id::MinFreq,
    name: "min-freq",
    title: "lowest frequency to use",
    scope: Scope::Policy,
    phase: Some(Phase::Limits),
    mechanisms: &[rw("/sys/devices/system/cpu/cpufreq/policy{policy}/scaling_min_freq", Form::KHz)],
    accepts: FREQUENCIES,
    about: "The lowest frequency that the governor or the processor may choose while a CPU works. What is read back is \
            the bound in force, clipped to the hardware's limits and to what other parts of the kernel ask for; idle \
            and thermal limits still go below.",
    interacts: &[
        (
            Id::MaxFreq,
            "a minimum above the maximum is cut to the maximum: raise max-freq before min-freq, lower \
                       min-freq before max-freq",
        ),
        (Id::HwMinFreq, "the hardware's own bound"),
        (Id::MinPerfPct, "the higher bound counts"),
    ],
    ..FACT
};

pub(super) const MAX_FREQ: Knob = Knob {
    id: Id::MaxFreq,
    name: "max-freq",
    title: "highest frequency to use",
    scope: Scope::Policy,
    phase: Some(Phase::Limits),
    mechanisms: &[rw("/sys/devices/system/cpu/cpufreq/policy{policy}/scaling_max_freq", Form::KHz)],
    accepts: FREQUENCIES,
    about: "The highest frequency that the governor or the processor may choose. What is read back is the bound in \
            force, clipped to the hardware's limits. Above the base or nominal frequency it is a permission, not a \
            promise: turbo depends on active cores, power and heat.",
    interacts: &[
        (Id::MinFreq, "raise max-freq before min-freq, lower min-freq before max-freq"),
        (Id::Turbo, "off caps the frequency at base or nominal whatever the limit says"),
        (Id::HwMaxFreq, "the hardware's own bound"),
        (Id::MaxPerfPct, "the lower bound counts"),
        (Id::BiosLimit, "the firmware's cap in acpi-cpufreq"),
    ],
    ..FACT
};

pub(super) const SETSPEED: Knob = Knob {
    id: Id::Setspeed,
    name: "setspeed",
    title: "frequency asked for by the userspace governor",
    scope: Scope::Policy,
    phase: Some(Phase::Limits),
    mechanisms: &[rw("/sys/devices/system/cpu/cpufreq/policy{policy}/scaling_setspeed", Form::KHz)],
    accepts: FREQUENCIES,
    about: "The frequency that the userspace governor asks the driver for. Under any other governor the kernel answers \
            <unsupported> to a read and EINVAL to a write. A frequency outside the limits is kept and applied when the \
            limits allow it.",
    interacts: &[
        (Id::Governor, "must be userspace, which drivers in active mode do not have"),
        (Id::MinFreq, "bounds it"),
        (Id::MaxFreq, "bounds it"),
    ],
    ..FACT
};

pub(super) const FLOOR_FREQ: Knob = Knob {
    id: Id::FloorFreq,
    name: "floor-freq",
    title: "frequency that the firmware keeps under power limits",
    scope: Scope::Policy,
    phase: Some(Phase::Limits),
    mechanisms: &[rw("/sys/devices/system/cpu/cpufreq/policy{policy}/amd_pstate_floor_freq", Form::KHz)],
    accepts: FREQUENCIES,
    about: "On AMD processors with CPPC performance priority, the frequency below which the firmware does not push the \
            core while it shares a power limit out; cores with lower floors give way first. Must lie between the \
            hardware's lowest frequency and max-freq, or the kernel answers EINVAL.",
    interacts: &[
        (Id::MaxFreq, "the floor cannot be above it"),
        (Id::HwMinFreq, "the floor cannot be below it"),
    ],
    ..AMD
};
