//! Rows of uncore frequency, power limits, energy, heat.

use flyball_host::{Errno, Vendor};

use super::{effects, ro, rw};
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

const UNCORE: &str = "a frequency with its unit in steps of 100MHz (1.8GHz), min or max";

const UNCORE_REFUSALS: &[Refusal] = &[
    // uncore-frequency-tpmi.c reads write_blocked from TPMI's feature state when the driver loads.
    Refusal::new(&[Errno::PERM], "the firmware blocks writes to the uncore registers"),
    Refusal::new(&[Errno::INVAL], "outside what the hardware, or the package's own entry, allows"),
    // uncore-frequency.c reads the MSR on control_cpu, which is negative without an online CPU.
    Refusal::new(&[Errno::NXIO], "no CPU of that die is online"),
];

const LOCKED_POWER: &[Refusal] = &[Refusal::new(
    // powercap_sys.c returns ENODATA for any failure to set a constraint. In intel_rapl_common.c
    // the cause is the lock bit.
    &[Errno::NODATA],
    "the firmware has locked the power limits: unlock them in the BIOS setup",
)];

macro_rules! uncore {
    ($file:literal) => {
        concat!("/sys/devices/system/cpu/intel_uncore_frequency/{uncore}/", $file)
    };
}

macro_rules! powercap {
    ($file:literal) => {
        concat!("/sys/class/powercap/{zone}/", $file)
    };
}

/// Returns the role of one end of the uncore's range.
const fn uncore_limit(judged_by: &'static [Id], bound: Bound) -> Role {
    Role::Knob(Control {
        accepts: UNCORE,
        ends: Ends::Rows(Id::UncoreHwMin, Id::UncoreHwMax),
        check: Check::BetweenEndsInSteps,
        judged_by,
        appears_with: &[AppearsWith::Cpu],
        saved: Saved::Always,
        written_by: &[Program::Tuned],
        writing: Writing {
            bound,
            // Everywhere, not here: a root entry writes all clusters of its package, and writes of
            // a cluster are checked against the entry.
            disturbs: &[Disturbs::Everywhere(effects::UNCORE)],
            refusals: UNCORE_REFUSALS,
            ..Writing::alone(Step::Power, Spelling::Number)
        },
    })
}

/// The role of a threshold of efficiency latency control.
const ELC_THRESHOLD: Role = Role::Knob(Control {
    accepts: "0 to 100",
    ends: Ends::Numbers(0, 100),
    check: Check::Any,
    judged_by: &[],
    appears_with: &[AppearsWith::Cpu],
    saved: Saved::Never,
    written_by: &[],
    writing: Writing::alone(Step::Power, Spelling::PercentOf127),
});

pub(super) const UNCORE_MIN_FREQ: Row = Row {
    title: "lowest uncore frequency",
    scope: Scope::Uncore,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Uncore),
    mechanisms: &[rw(uncore!("min_freq_khz"), Form::KHz)],
    about: "The uncore is what the cores share: mesh, last-level cache, memory and I/O controllers. Its \
            lowest frequency sets the memory latency of a lightly loaded machine, and much of its idle \
            power. With TPMI, each fabric cluster (uncoreNN) has its own, and package_NN_die_00 sets the \
            whole package: from then on, no cluster can go below it.",
    interacts: &[
        (Id::UncoreMaxFreq, "the driver does not check their order: keep min at or below max"),
        (Id::ElcFloorFreq, "counts at low load if it is higher"),
    ],
    role: uncore_limit(&[Id::UncoreMaxFreq, Id::UncoreHwMin, Id::UncoreHwMax], Bound::Lower),
};

pub(super) const UNCORE_MAX_FREQ: Row = Row {
    title: "highest uncore frequency",
    scope: Scope::Uncore,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Uncore),
    mechanisms: &[rw(uncore!("max_freq_khz"), Form::KHz)],
    about: "Highest frequency of what the cores share. Lowering it leaves power to the cores but costs memory \
            bandwidth. With TPMI, a fabric cluster cannot exceed its package's root entry (package_NN_die_00).",
    interacts: &[
        (Id::UncoreMinFreq, "keep it at or above the minimum"),
        (Id::PowerLimit, "cores and uncore share the package's power"),
    ],
    role: uncore_limit(&[Id::UncoreMinFreq, Id::UncoreHwMin, Id::UncoreHwMax], Bound::Upper),
};

pub(super) const ELC_FLOOR_FREQ: Row = Row {
    title: "uncore frequency at low load",
    scope: Scope::Uncore,
    vendor: Some(Vendor::Intel),
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[rw(uncore!("elc_floor_freq_khz"), Form::KHz)],
    about: "Efficiency latency control (TPMI): below elc-low-threshold, the uncore falls to this frequency \
            at lowest, unless uncore-min-freq is higher. A high floor keeps memory latency low after idle, \
            a low floor saves idle power.",
    interacts: &[
        (Id::ElcLowThreshold, "below which the floor applies"),
        (Id::UncoreMinFreq, "the firmware ignores a floor below it"),
    ],
    role: Role::Knob(Control {
        accepts: UNCORE,
        ends: Ends::Rows(Id::UncoreHwMin, Id::UncoreHwMax),
        check: Check::Any,
        judged_by: &[Id::UncoreHwMin, Id::UncoreHwMax],
        appears_with: &[AppearsWith::Cpu],
        saved: Saved::Never,
        written_by: &[],
        writing: Writing::alone(Step::Power, Spelling::Number),
    }),
};

pub(super) const ELC_LOW_THRESHOLD: Row = Row {
    title: "load below which the uncore floor applies",
    scope: Scope::Uncore,
    vendor: Some(Vendor::Intel),
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[rw(uncore!("elc_low_threshold_percent"), Form::Percent)],
    about: "Efficiency latency control: below this load, elc-floor-freq is the lowest uncore frequency if it \
            is above uncore-min-freq. It may read back one percent lower.",
    interacts: &[(Id::ElcFloorFreq, "what applies below it")],
    role: ELC_THRESHOLD,
};

pub(super) const ELC_HIGH_THRESHOLD: Row = Row {
    title: "load above which the uncore speeds up",
    scope: Scope::Uncore,
    vendor: Some(Vendor::Intel),
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[rw(uncore!("elc_high_threshold_percent"), Form::Percent)],
    about: "Efficiency latency control: above this load, the uncore frequency rises step by step while \
            the power budget allows, if elc-high-enable is on. It may read back one percent lower.",
    interacts: &[(Id::ElcHighEnable, "turns it on")],
    role: ELC_THRESHOLD,
};

pub(super) const ELC_HIGH_ENABLE: Row = Row {
    title: "whether the high uncore threshold counts",
    scope: Scope::Uncore,
    vendor: Some(Vendor::Intel),
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[rw(uncore!("elc_high_threshold_enable"), Form::Switch)],
    about: "Efficiency latency control: lets a load above elc-high-threshold raise the uncore frequency.",
    interacts: &[(Id::ElcHighThreshold, "the load that it is about")],
    role: Role::Knob(Control {
        accepts: "on or off",
        ends: Ends::None,
        check: Check::Any,
        judged_by: &[],
        appears_with: &[AppearsWith::Cpu],
        saved: Saved::Never,
        written_by: &[],
        writing: Writing::alone(Step::Power, Spelling::Switch),
    }),
};

pub(super) const POWER_LIMIT: Row = Row {
    title: "power limit of a zone",
    scope: Scope::Constraint,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Power),
    mechanisms: &[rw(powercap!("constraint_{constraint}_power_limit_uw"), Form::MicroWatts)],
    about: "Average power over the constraint's time window: long_term is PL1, short_term PL2, \
            peak_power PL4. Name one as power-limit:long_term=65W. If the firmware has locked the \
            limits, a write fails with ENODATA. AMD processors have no limits here.",
    interacts: &[
        (Id::PowerWindow, "the time over which it is averaged"),
        (Id::PowerMax, "the highest that the processor reports"),
        (Id::MaxFreq, "frequencies fall while the limit is reached"),
    ],
    role: Role::Knob(Control {
        accepts: "a power with its unit (65W, 12.5W) of at least 1W, or max where the processor reports one",
        ends: Ends::UpToRow(Id::PowerMax),
        check: Check::Power,
        judged_by: &[Id::PowerMax],
        appears_with: &[AppearsWith::Cpu],
        saved: Saved::Never,
        written_by: &[Program::Thermald, Program::Throttled],
        writing: Writing { refusals: LOCKED_POWER, ..Writing::alone(Step::Power, Spelling::Number) },
    }),
};

/// Errnos of the management port (Documentation/arch/x86/amd_hsmp.rst).
const PORT_REFUSALS: &[Refusal] = &[
    Refusal::new(&[Errno::NOMSG], "the processor's firmware does not know this message"),
    Refusal::new(
        &[Errno::BUSY, Errno::TIMEDOUT, Errno::REMOTEIO],
        "the management port (HSMP) did not carry the message out: a management controller may own the limit",
    ),
];

pub(super) const SOCKET_POWER_LIMIT: Row = Row {
    title: "power limit of an EPYC socket",
    scope: Scope::Socket,
    vendor: Some(Vendor::Amd),
    // On request, because each read is a message to the firmware that may take a millisecond.
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[rw("/sys/class/hwmon/{hwmon}/power1_cap", Form::MicroWatts)],
    about: "Package power (PPT) that a socket may draw, through EPYC's management port (HSMP). Needs the driver hsmp_acpi \
            (or amd_hsmp) of Linux 6.16 or later, and HSMP enabled in the firmware. Debian's kernels have neither driver. \
            The driver does not check the value; the firmware drops what is below 1 mW.",
    interacts: &[
        (Id::SocketPowerMax, "the highest that the firmware allows"),
        (Id::SocketLimitSource, "PPT Limit there means that this limit acts"),
        (Id::MaxFreq, "frequencies fall while the limit is reached"),
    ],
    role: Role::Knob(Control {
        accepts: "a power with its unit (200W) of at least 1W, or max",
        ends: Ends::UpToRow(Id::SocketPowerMax),
        check: Check::Power,
        judged_by: &[Id::SocketPowerMax],
        appears_with: &[],
        saved: Saved::Never,
        written_by: &[],
        writing: Writing { refusals: PORT_REFUSALS, ..Writing::alone(Step::Power, Spelling::Number) },
    }),
};

pub(super) const SOCKET_POWER_MAX: Row = Row {
    title: "highest power limit of an EPYC socket",
    scope: Scope::Socket,
    vendor: Some(Vendor::Amd),
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro("/sys/class/hwmon/{hwmon}/power1_cap_max", Form::MicroWatts)],
    about: "The highest package power that the firmware allows on this socket, through the management port (HSMP).",
    interacts: &[(Id::SocketPowerLimit, "up to this")],
    role: Role::Fact,
};

pub(super) const SOCKET_FREQ_LIMIT: Row = Row {
    title: "frequency limit in effect on an EPYC socket",
    scope: Scope::Socket,
    vendor: Some(Vendor::Amd),
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro("/sys/devices/platform/{port}/pwr_current_active_freq_limit", Form::MHz)],
    about: "The highest frequency that the firmware allows on this socket at this moment, from the driver hsmp_acpi of \
            Linux 6.16 or later.",
    interacts: &[(Id::SocketLimitSource, "says what sets it")],
    role: Role::Fact,
};

pub(super) const SOCKET_LIMIT_SOURCE: Row = Row {
    title: "what sets the frequency limit of an EPYC socket",
    scope: Scope::Socket,
    vendor: Some(Vendor::Amd),
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro("/sys/devices/platform/{port}/pwr_current_active_freq_limit_source", Form::Lines)],
    about: "The limits that act, in the kernel's words: cHTC-Active and PROCHOT (heat), TDC limit (current), PPT Limit \
            (power), OPN Max (the model's highest), Reliability Limit, APML Agent (management controller), HSMP Agent.",
    interacts: &[(Id::SocketFreqLimit, "is the limit"), (Id::SocketPowerLimit, "is the PPT limit")],
    role: Role::Fact,
};

pub(super) const POWER_WINDOW: Row = Row {
    title: "time window of a power limit",
    scope: Scope::Constraint,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Power),
    mechanisms: &[rw(powercap!("constraint_{constraint}_time_window_us"), Form::Micros)],
    about: "Time over which a power limit is averaged. A long window lets short bursts run above the \
            limit. The kernel rounds down to a supported value. A few windows below 4 ms can be read but \
            not written; flyball does not change these, because it could not restore them.",
    interacts: &[(Id::PowerLimit, "the limit that it belongs to")],
    role: Role::Knob(Control {
        accepts: "a time with its unit (28s, 976us)",
        ends: Ends::None,
        // Only 2^y (1 + f/4) units exist. `cannot_be_written` in plan/resolve.rs finds windows that
        // the kernel cannot write.
        check: Check::Window,
        judged_by: &[],
        appears_with: &[AppearsWith::Cpu],
        saved: Saved::Never,
        written_by: &[Program::Thermald, Program::Throttled],
        writing: Writing { refusals: LOCKED_POWER, ..Writing::alone(Step::Power, Spelling::Number) },
    }),
};

pub(super) const UNCORE_DOMAIN: Row = Row {
    title: "power domain of an uncore domain",
    scope: Scope::Uncore,
    vendor: Some(Vendor::Intel),
    shown: Visibility::on_request(Section::Line),
    // Only the TPMI driver has it (uncore-frequency-tpmi.c).
    mechanisms: &[ro(uncore!("domain_id"), Form::Count)],
    about: "The number of the die in its package, as the power unit counts compute and I/O dies and Speed Select names its power \
            domains. Linux's die_id counts otherwise: it is 0 for all CPUs of a package of several compute dies.",
    interacts: &[(Id::UncoreAgents, "says what is on that die")],
    role: Role::Fact,
};

pub(super) const UNCORE_AGENTS: Row = Row {
    title: "what an uncore domain clocks",
    scope: Scope::Uncore,
    vendor: Some(Vendor::Intel),
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro(uncore!("agent_types"), Form::Words)],
    about: "The kinds of agents whose fabric this domain clocks: core, cache, memory and io. Kernel 6.17 has it and 6.12 does \
            not, for processors with TPMI.",
    interacts: &[(Id::UncoreMaxFreq, "limits these agents")],
    role: Role::Fact,
};

pub(super) const UNCORE_FREQ: Row = Row {
    title: "current uncore frequency",
    scope: Scope::Uncore,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Uncore),
    mechanisms: &[ro(uncore!("current_freq_khz"), Form::KHz)],
    about: "The frequency at which mesh, last-level cache and memory controllers run now. Only root may read it, and \
            some kernels cannot read it at all.",
    interacts: &[(Id::UncoreMinFreq, "bounds it"), (Id::UncoreMaxFreq, "bounds it")],
    role: Role::Fact,
};

pub(super) const UNCORE_HW_MIN: Row = Row {
    title: "lowest uncore frequency at boot",
    scope: Scope::Uncore,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Uncore),
    // uncore_freq_add_entry keeps the values that it found. If the driver was reloaded, they are
    // the last ones set before.
    mechanisms: &[ro(uncore!("initial_min_freq_khz"), Form::KHz)],
    about: "The lowest uncore frequency that was set when the driver loaded, which is the firmware's choice. The word min \
            for uncore knobs means this value.",
    interacts: &[(Id::UncoreMinFreq, "starts as this")],
    role: Role::Fact,
};

pub(super) const UNCORE_HW_MAX: Row = Row {
    title: "highest uncore frequency at boot",
    scope: Scope::Uncore,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Uncore),
    mechanisms: &[ro(uncore!("initial_max_freq_khz"), Form::KHz)],
    about: "The highest uncore frequency that was set when the driver loaded, which is the firmware's choice. The word \
            max for uncore knobs means this value.",
    interacts: &[(Id::UncoreMaxFreq, "starts as this")],
    role: Role::Fact,
};

pub(super) const POWER_MAX: Row = Row {
    title: "highest power limit of a constraint",
    scope: Scope::Constraint,
    vendor: Some(Vendor::Intel),
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro(powercap!("constraint_{constraint}_max_power_uw"), Form::MicroWatts)],
    about: "The highest limit that the processor names for this constraint, usually its thermal design power for \
            long_term. Many processors report nothing (0) for the others.",
    interacts: &[(Id::PowerLimit, "the word max means this value")],
    role: Role::Fact,
};

pub(super) const ENERGY: Row = Row {
    title: "energy counter of a zone",
    scope: Scope::Zone,
    vendor: None,
    shown: Visibility::in_section(Section::Power),
    // Mode 0400 since 2020: power readings leak data of other programs (CVE-2020-8694).
    mechanisms: &[ro(powercap!("energy_uj"), Form::MicroJoules)],
    about: "Energy that the zone (package, cores, memory, whole platform) has used since an arbitrary start, as the \
            processor counts it. It wraps to 0 after energy-range, on a busy server within minutes. Only root may \
            read it.",
    interacts: &[(Id::EnergyRange, "where it wraps")],
    role: Role::Fact,
};

pub(super) const ENERGY_RANGE: Row = Row {
    title: "where an energy counter wraps",
    scope: Scope::Zone,
    vendor: None,
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro(powercap!("max_energy_range_uj"), Form::MicroJoules)],
    about: "The highest value that the zone's energy counter shows before it starts again at 0. Differences of two \
            readings must add it once for each wrap between them.",
    interacts: &[(Id::Energy, "the counter")],
    role: Role::Fact,
};

pub(super) const CORE_THROTTLES: Row = Row {
    title: "times that the core was throttled for heat",
    scope: Scope::Cpu,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Heat),
    // therm_throt.c counts interrupts, not the time of throttling: a long throttling counts once.
    mechanisms: &[ro("/sys/devices/system/cpu/cpu{cpu}/thermal_throttle/core_throttle_count", Form::Count)],
    about: "How often since boot the core reached its temperature limit and was slowed down. A count that grows during a \
            measurement spoils it. Intel only: the kernel has no such count for AMD.",
    interacts: &[(Id::PackageThrottles, "the same for the package")],
    role: Role::Fact,
};

pub(super) const PACKAGE_THROTTLES: Row = Row {
    title: "times that the package was throttled for heat",
    scope: Scope::Cpu,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Heat),
    mechanisms: &[ro(
        "/sys/devices/system/cpu/cpu{cpu}/thermal_throttle/package_throttle_count",
        Form::Count,
    )],
    about: "How often since boot the package reached its temperature limit and was slowed down. Every CPU of the package \
            counts for itself, so the numbers are similar but not equal. Intel only.",
    interacts: &[(Id::CoreThrottles, "the same for the core")],
    role: Role::Fact,
};

pub(super) const TEMPERATURE: Row = Row {
    title: "temperature",
    scope: Scope::Sensor,
    vendor: None,
    shown: Visibility::in_section(Section::Heat),
    mechanisms: &[ro("/sys/class/hwmon/{hwmon}/temp{sensor}_input", Form::MilliCelsius)],
    about: "What the processor's own sensors say: coretemp on Intel, a package and each core; k10temp on AMD, where Tctl \
            is the value that the fans follow and Tccd the dies. coretemp renews its values once a second.",
    interacts: &[(Id::CoreThrottles, "what happens at the limit")],
    role: Role::Fact,
};
