//! Rows of hints between performance and power.

use super::{FACT, INTEL, Id, amd, intel, rw};
use crate::{
    knob::{Form, Knob, Mechanism, Phase, Scope},
    topology::Vendor,
};

pub(super) const EPP: Knob = Knob {
    id: Id::Epp,
    name: "epp",
    title: "energy performance preference",
    scope: Scope::Policy,
    phase: Some(Phase::Preference),
    mechanisms: &[
        rw("/sys/devices/system/cpu/cpufreq/policy{policy}/energy_performance_preference", Form::Epp),
        intel(0x774, (31, 24), Form::Epp),
        amd(0xc001_02b3, (31, 24), Form::Epp),
    ],
    accepts: "a word of available-epp (performance, balance_performance, balance_power, power, default) or 0 to 255",
    about: "The hint by which the processor trades speed for energy when it chooses its own frequency: 0 asks for \
            performance, 255 for power saving. The words stand for 0, 128, 192 (AMD 191) and 255, on some models for \
            other numbers: balance_performance is 32 on Sapphire, Emerald and Granite Rapids. Numbers are refused by \
            amd-pstate before kernel 7.",
    interacts: &[
        (
            Id::Governor,
            "under performance in active mode anything above 0 is refused with EBUSY; a change of governor \
                        may forget the preference",
        ),
        (Id::DriverMode, "a change resets it; passive amd-pstate has none"),
        (Id::Epb, "the older hint for the same; where the processor has EPP, it wins"),
        (Id::AvailableEpp, "lists the words"),
    ],
    ..FACT
};

pub(super) const EPB: Knob = Knob {
    id: Id::Epb,
    name: "epb",
    title: "energy performance bias",
    scope: Scope::Cpu,
    phase: Some(Phase::Preference),
    mechanisms: &[
        rw("/sys/devices/system/cpu/cpu{cpu}/power/energy_perf_bias", Form::Epb),
        Mechanism::Msr { vendor: Vendor::Intel, register: 0x1b0, bits: (3, 0), form: Form::Epb, write: true },
    ],
    accepts: "0 to 15, performance (0), balance-performance (4), normal (6), balance-power (8) or power (15)",
    about: "Intel's older hint between performance (0) and power saving (15). It still steers turbo, uncore and \
            package power decisions on many models even where EPP steers the core's frequency, so set both alike. The \
            kernel changes a 0 left by the firmware to normal at boot.",
    interacts: &[(Id::Epp, "steers the core's frequency where the processor has it")],
    ..INTEL
};

pub(super) const ENERGY_EFFICIENCY: Knob = Knob {
    id: Id::EnergyEfficiency,
    name: "energy-efficiency",
    title: "the processor's own energy efficiency optimisation",
    phase: Some(Phase::Preference),
    mechanisms: &[
        rw("/sys/devices/system/cpu/intel_pstate/energy_efficiency", Form::Switch),
        intel(0x1fc, (19, 19), Form::InvertedSwitch),
    ],
    accepts: "on or off",
    about: "Whether the processor may lower the frequency on its own where it thinks that speed does not pay, mostly \
            while memory is the bottleneck. intel_pstate presents it on Kaby and Coffee Lake only, and turns it off \
            there at boot; elsewhere it is read from bit 19 of POWER_CTL.",
    interacts: &[(Id::Epp, "steers the same trade on newer processors")],
    ..INTEL
};

pub(super) const HWP_DYNAMIC_BOOST: Knob = Knob {
    id: Id::HwpDynamicBoost,
    name: "hwp-dynamic-boost",
    title: "boost after waits for I/O",
    phase: Some(Phase::Preference),
    mechanisms: &[rw("/sys/devices/system/cpu/intel_pstate/hwp_dynamic_boost", Form::Switch)],
    accepts: "on or off",
    about: "With HWP in active mode, raises a CPU's minimum performance for a few milliseconds when a task wakes from \
            waiting for I/O, in steps up to turbo. Helps short I/O-bound tasks, which are over before the processor \
            notices them. On by default where the firmware says that the machine is a server.",
    interacts: &[
        (Id::DriverMode, "exists in active mode with HWP only"),
        (Id::MinFreq, "is raised for the moment"),
    ],
    ..INTEL
};
