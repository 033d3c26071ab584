//! Rows of facts: read-only values that drivers and firmware report.

use flyball_host::msr::{MSR_AMD_CPPC_CAP1, MSR_PLATFORM_INFO};

use flyball_host::Vendor;

use super::{amd, intel, ro};
use crate::{
    Id,
    knob::{Form, Role, Row, Scope, Section, Visibility},
};

macro_rules! policy {
    ($file:literal) => {
        concat!("/sys/devices/system/cpu/cpufreq/policy{policy}/", $file)
    };
}

macro_rules! cppc {
    ($file:literal) => {
        concat!("/sys/devices/system/cpu/cpu{cpu}/acpi_cppc/", $file)
    };
}

pub(super) const DRIVER: Row = Row {
    title: "cpufreq driver",
    scope: Scope::Machine,
    vendor: None,
    shown: Visibility::in_section(Section::Machine),
    // Any policy will do: cpufreq has one driver at a time (cpufreq_register_driver returns EEXIST
    // for a second).
    mechanisms: &[ro("/sys/devices/system/cpu/cpufreq/policy{any-policy}/scaling_driver", Form::Word)],
    about: "What sets the frequency. intel_pstate and amd-pstate-epp are the drivers in active mode, where the processor \
            chooses; intel_cpufreq and amd-pstate the same in passive or guided mode; acpi-cpufreq uses the few \
            P-states that the firmware lists. The kernel has one driver for all CPUs.",
    interacts: &[(Id::DriverMode, "switches between a driver's modes; another driver needs another boot")],
    role: Role::Fact,
};

pub(super) const AVAILABLE_GOVERNORS: Row = Row {
    title: "governors that the driver accepts",
    scope: Scope::Machine,
    vendor: None,
    shown: Visibility::in_section(Section::Machine),
    mechanisms: &[ro(
        "/sys/devices/system/cpu/cpufreq/policy{any-policy}/scaling_available_governors",
        Form::Words,
    )],
    about: "The frequency governors that can be set now. Drivers in active mode have performance and powersave; others \
            have what the kernel was built with or has loaded.",
    interacts: &[(Id::Governor, "takes one of them"), (Id::DriverMode, "decides which they are")],
    role: Role::Fact,
};

pub(super) const AVAILABLE_EPP: Row = Row {
    title: "preferences that the driver accepts",
    scope: Scope::Policy,
    vendor: None,
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro(policy!("energy_performance_available_preferences"), Form::Words)],
    about: "The words that epp accepts now. amd-pstate lists performance alone while the governor is performance; \
            intel_pstate always lists all of its words, and still refuses most of them under that governor.",
    interacts: &[
        (Id::Epp, "takes one of them"),
        (Id::Governor, "performance shortens the list on amd-pstate"),
    ],
    role: Role::Fact,
};

pub(super) const HW_MIN_FREQ: Row = Row {
    title: "lowest frequency of the hardware",
    scope: Scope::Policy,
    vendor: None,
    shown: Visibility::in_section(Section::Cpus),
    mechanisms: &[ro(policy!("cpuinfo_min_freq"), Form::KHz)],
    about: "The lowest frequency that the driver can ask for. The word min for frequency knobs means this value.",
    interacts: &[(Id::MinFreq, "cannot go below")],
    role: Role::Fact,
};

pub(super) const HW_MAX_FREQ: Row = Row {
    title: "highest frequency of the hardware",
    scope: Scope::Policy,
    vendor: None,
    shown: Visibility::in_section(Section::Cpus),
    mechanisms: &[ro(policy!("cpuinfo_max_freq"), Form::KHz)],
    about: "The highest frequency that the driver can ask for, turbo included while turbo is on. With acpi-cpufreq on AMD \
            it may be above every frequency of the driver's table. The word max for frequency knobs means this value.",
    interacts: &[(Id::MaxFreq, "cannot go above"), (Id::Turbo, "off lowers it on current kernels")],
    role: Role::Fact,
};

pub(super) const BASE_FREQ: Row = Row {
    title: "guaranteed frequency",
    scope: Scope::Policy,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Cpus),
    // Prefer the file: it shows the present guaranteed level (show_base_frequency in
    // intel_pstate.c), which Speed Select changes.
    mechanisms: &[ro(policy!("base_frequency"), Form::KHz), intel(MSR_PLATFORM_INFO, (15, 8), Form::Ratio)],
    about: "The highest frequency that an Intel processor guarantees with all cores busy within its power limit; what lies \
            above is turbo. Speed Select can change it at run time. Without HWP it is read from PLATFORM_INFO.",
    interacts: &[(Id::Turbo, "allows frequencies above it"), (Id::MaxFreq, "the word base means this value")],
    role: Role::Fact,
};

pub(super) const NOMINAL_FREQ: Row = Row {
    title: "nominal frequency of CPPC",
    scope: Scope::Cpu,
    vendor: None,
    // Intel processors have base_frequency instead, with one file per policy instead of per CPU.
    shown: Visibility::without(Section::Cpus, Id::BaseFreq),
    mechanisms: &[ro(cppc!("nominal_freq"), Form::MHz)],
    about: "The frequency that goes with the nominal performance of CPPC: what the firmware calls sustained with all cores \
            busy. On AMD it is the frequency without boost. The firmware rounds it to MHz.",
    interacts: &[
        (Id::CppcNominal, "the performance level of it"),
        (Id::MaxFreq, "the word nominal means this value"),
    ],
    role: Role::Fact,
};

pub(super) const LOWEST_NONLINEAR_FREQ: Row = Row {
    title: "frequency below which energy per work rises again",
    scope: Scope::Policy,
    vendor: Some(Vendor::Amd),
    shown: Visibility::in_section(Section::Levels),
    mechanisms: &[ro(policy!("amd_pstate_lowest_nonlinear_freq"), Form::KHz)],
    about: "Above this frequency, voltage and so energy per work rise with the frequency; below it the voltage stays, and \
            going slower saves no energy for the same work. amd-pstate uses it as the default lowest frequency.",
    interacts: &[
        (Id::MinFreq, "starts as this on recent kernels"),
        (Id::CppcLowestNonlinear, "its performance level"),
    ],
    role: Role::Fact,
};

pub(super) const CUR_FREQ: Row = Row {
    title: "current frequency",
    scope: Scope::Policy,
    vendor: None,
    shown: Visibility::in_section(Section::Current),
    // arch_freq_get_on_cpu (APERF and MPERF), else the driver's last request (show_scaling_cur_freq
    // in cpufreq.c).
    mechanisms: &[ro(policy!("scaling_cur_freq"), Form::KHz)],
    about: "What the kernel thinks the frequency is: on x86 measured over the last tick where the CPU was busy, otherwise \
            what the driver asked for last. An idle CPU shows a stale or lowest value. Not for measuring: compare uses \
            the hardware's counters over a whole run.",
    interacts: &[(Id::MinFreq, "bounds it"), (Id::MaxFreq, "bounds it")],
    role: Role::Fact,
};

pub(super) const BIOS_LIMIT: Row = Row {
    title: "frequency limit of the firmware",
    scope: Scope::Policy,
    vendor: None,
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro(policy!("bios_limit"), Form::KHz)],
    about: "The highest frequency that the firmware allows now (ACPI _PPC). A limit below the highest frequency of the \
            table explains a machine that is slower than it should be: a power cap, a weak supply, or a setting. \
            acpi-cpufreq and passive intel_pstate present it.",
    interacts: &[(Id::MaxFreq, "has no effect above it")],
    role: Role::Fact,
};

pub(super) const AVAILABLE_FREQS: Row = Row {
    title: "frequencies of the driver's table",
    scope: Scope::Policy,
    vendor: None,
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro(policy!("scaling_available_frequencies"), Form::KHzList)],
    about: "The frequencies that a driver with a table (acpi-cpufreq) can ask for. Limits between two of them take effect \
            as the next one. Drivers without a table choose freely and do not present this.",
    interacts: &[(Id::BoostFreqs, "those above, which need turbo")],
    role: Role::Fact,
};

pub(super) const BOOST_FREQS: Row = Row {
    title: "frequencies of the table that need turbo",
    scope: Scope::Policy,
    vendor: None,
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro(policy!("scaling_boost_frequencies"), Form::KHzList)],
    about: "The frequencies of the driver's table that are used only while turbo is on. Often empty on AMD with \
            acpi-cpufreq, where the hardware boosts above its highest P-state without reporting how far.",
    interacts: &[(Id::Turbo, "must be on")],
    role: Role::Fact,
};

pub(super) const TRANSITION_LATENCY: Row = Row {
    title: "time that a frequency change takes",
    scope: Scope::Policy,
    vendor: None,
    shown: Visibility::on_request(Section::Line),
    // In nanoseconds, unlike the governors' sampling rates in microseconds.
    mechanisms: &[ro(policy!("cpuinfo_transition_latency"), Form::Nanos)],
    about: "How long the processor needs to change its frequency, as the driver states it; 0 or unknown if it does not. Governors \
            take their sampling rate from it.",
    interacts: &[(Id::Governor, "samples no faster than this allows")],
    role: Role::Fact,
};

pub(super) const NUM_PSTATES: Row = Row {
    title: "number of P-states of intel_pstate",
    scope: Scope::Machine,
    vendor: Some(Vendor::Intel),
    shown: Visibility::on_request(Section::Machine),
    mechanisms: &[ro("/sys/devices/system/cpu/intel_pstate/num_pstates", Form::Count)],
    about: "How many steps of 100 MHz there are from the lowest frequency to the highest turbo. Not presented on hybrid \
            processors, where core types differ.",
    interacts: &[(Id::TurboPct, "the share of them that is turbo")],
    role: Role::Fact,
};

pub(super) const TURBO_PCT: Row = Row {
    title: "share of P-states in the turbo range",
    scope: Scope::Machine,
    vendor: Some(Vendor::Intel),
    shown: Visibility::on_request(Section::Machine),
    mechanisms: &[ro("/sys/devices/system/cpu/intel_pstate/turbo_pct", Form::Percent)],
    about: "The share of intel_pstate's P-states that lie above the guaranteed frequency. Not presented on hybrid \
            processors, where core types differ.",
    interacts: &[(Id::Turbo, "allows them")],
    role: Role::Fact,
};

pub(super) const CPPC_HIGHEST: Row = Row {
    title: "highest performance of CPPC",
    scope: Scope::Cpu,
    vendor: None,
    // If there is a base frequency, hw-max-freq shows the best core's maximum in kHz
    // (intel_pstate.c, from HWP's highest performance). The kernel queries the firmware at each
    // read of this file (drivers/acpi/cppc_acpi.c, cppc_get_perf_caps).
    shown: Visibility::without(Section::Levels, Id::BaseFreq),
    mechanisms: &[ro(cppc!("highest_perf"), Form::Perf), amd(MSR_AMD_CPPC_CAP1, (31, 24), Form::Perf)],
    about: "The performance level of one core's highest boost, on the firmware's abstract scale. Cores of one machine \
            differ where some are preferred: the best core has the highest number.",
    interacts: &[(Id::PrefcoreRanking, "the ranking that amd-pstate makes of it")],
    role: Role::Fact,
};

pub(super) const CPPC_NOMINAL: Row = Row {
    title: "nominal performance of CPPC",
    scope: Scope::Cpu,
    vendor: None,
    shown: Visibility::on_request(Section::Levels),
    mechanisms: &[ro(cppc!("nominal_perf"), Form::Perf), amd(MSR_AMD_CPPC_CAP1, (23, 16), Form::Perf)],
    about: "The performance level that the firmware calls sustained with all cores busy, on the same scale as \
            cppc-highest. nominal-freq is its frequency.",
    interacts: &[(Id::NominalFreq, "its frequency")],
    role: Role::Fact,
};

pub(super) const CPPC_GUARANTEED: Row = Row {
    title: "guaranteed performance of CPPC",
    scope: Scope::Cpu,
    vendor: None,
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro(cppc!("guaranteed_perf"), Form::Perf)],
    about: "The performance level that the processor guarantees under its present power limit; it can change while the \
            machine runs. AMD's firmware leaves it at 0.",
    interacts: &[(Id::BaseFreq, "its frequency on Intel")],
    role: Role::Fact,
};

pub(super) const CPPC_LOWEST_NONLINEAR: Row = Row {
    title: "lowest non-linear performance of CPPC",
    scope: Scope::Cpu,
    vendor: None,
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[
        ro(cppc!("lowest_nonlinear_perf"), Form::Perf),
        amd(MSR_AMD_CPPC_CAP1, (15, 8), Form::Perf),
    ],
    about: "The performance level above which power grows faster than performance. Below it, a lower level does not save \
            energy for the same work.",
    interacts: &[(Id::LowestNonlinearFreq, "its frequency on AMD")],
    role: Role::Fact,
};

pub(super) const CPPC_LOWEST: Row = Row {
    title: "lowest performance of CPPC",
    scope: Scope::Cpu,
    vendor: None,
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro(cppc!("lowest_perf"), Form::Perf), amd(MSR_AMD_CPPC_CAP1, (7, 0), Form::Perf)],
    about: "The lowest performance level that the firmware takes, on the same scale as cppc-highest. Going this low may \
            use more energy for the same work than a higher level.",
    interacts: &[(Id::HwMinFreq, "its frequency")],
    role: Role::Fact,
};

pub(super) const PREFCORE: Row = Row {
    title: "preferred cores of amd-pstate",
    scope: Scope::Machine,
    vendor: Some(Vendor::Amd),
    shown: Visibility::in_section(Section::Machine),
    mechanisms: &[ro("/sys/devices/system/cpu/amd_pstate/prefcore", Form::Enabled)],
    about: "Whether amd-pstate gives the scheduler a ranking of the cores that boost highest, so that single tasks land on them. \
            Disabled where all cores are equal, or by amd_prefcore=disable on the kernel command line.",
    interacts: &[(Id::PrefcoreRanking, "the order of the cores")],
    role: Role::Fact,
};

pub(super) const PREFCORE_RANKING: Row = Row {
    title: "rank of a core among preferred cores",
    scope: Scope::Policy,
    vendor: Some(Vendor::Amd),
    shown: Visibility::in_section(Section::Levels),
    mechanisms: &[ro(policy!("amd_pstate_prefcore_ranking"), Form::Perf)],
    about: "The highest performance that the firmware gives this core: the scheduler prefers cores with a higher number. \
            The firmware may change it while the machine runs.",
    interacts: &[
        (Id::Prefcore, "whether the scheduler receives the ranking"),
        (Id::CppcHighest, "where the number comes from"),
    ],
    role: Role::Fact,
};
