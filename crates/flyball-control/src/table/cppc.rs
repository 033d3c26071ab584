//! Rows of CPPC and amd-pstate facts besides levels and limits, as the kernel documents them
//! (Documentation/admin-guide/pm/amd-pstate.rst, Documentation/admin-guide/acpi/cppc_sysfs.rst).

use flyball_host::Vendor;

use super::ro;
use crate::{
    Id,
    knob::{Form, Role, Row, Scope, Section, Visibility},
};

pub(super) const LOWEST_FREQ: Row = Row {
    title: "frequency of the lowest performance",
    scope: Scope::Cpu,
    vendor: None,
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro("/sys/devices/system/cpu/cpu{cpu}/acpi_cppc/lowest_freq", Form::MHz)],
    about: "The frequency that goes with the lowest performance of CPPC, as the firmware states it. amd-pstate \
            before Linux 7 takes its lowest frequency from it and refuses a table that has 0 here.",
    interacts: &[(Id::CppcLowest, "the performance level of it")],
    role: Role::Fact,
};

pub(super) const REFERENCE: Row = Row {
    title: "performance at which both counters count the same",
    scope: Scope::Cpu,
    vendor: None,
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro("/sys/devices/system/cpu/cpu{cpu}/acpi_cppc/reference_perf", Form::Perf)],
    about: "The performance level at which CPPC's delivered and reference counters run at the same rate: delivered \
            performance is this level times the ratio of the two. Usually the nominal level.",
    interacts: &[(Id::CppcFeedback, "the counters that it scales")],
    role: Role::Fact,
};

pub(super) const WRAPAROUND: Row = Row {
    title: "least time before a counter of CPPC wraps",
    scope: Scope::Cpu,
    vendor: None,
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro("/sys/devices/system/cpu/cpu{cpu}/acpi_cppc/wraparound_time", Form::Count)],
    about: "How many seconds at least pass before the counters of cppc-feedback start again from zero, as the \
            firmware states it. The highest number of 64 bits means that they practically never do.",
    interacts: &[(Id::CppcFeedback, "the counters that wrap")],
    role: Role::Fact,
};

pub(super) const FEEDBACK: Row = Row {
    title: "delivered and reference counters of CPPC",
    scope: Scope::Cpu,
    vendor: None,
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro("/sys/devices/system/cpu/cpu{cpu}/acpi_cppc/feedback_ctrs", Form::Words)],
    about: "The two counters from which the delivered performance follows: two reads some time apart give the share \
            of delivered to reference, times cppc-reference. They count while the CPU is busy; each read asks the \
            firmware.",
    interacts: &[(Id::CppcReference, "the level that their ratio multiplies")],
    role: Role::Fact,
};

pub(super) const AMD_MAX_FREQ: Row = Row {
    title: "highest frequency that amd-pstate knows",
    scope: Scope::Policy,
    vendor: Some(Vendor::Amd),
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro("/sys/devices/system/cpu/cpufreq/policy{policy}/amd_pstate_max_freq", Form::KHz)],
    about: "The frequency of the highest performance with boost, whether boost is on or not: with boost off it is \
            above hw-max-freq, with boost on the two should be equal. Programs that read only cpufreq's limits see \
            the lower one.",
    interacts: &[
        (Id::HwMaxFreq, "equal to it while boost is on"),
        (Id::AmdHighestPerf, "its performance level"),
    ],
    role: Role::Fact,
};

pub(super) const AMD_HIGHEST_PERF: Row = Row {
    title: "highest performance that amd-pstate uses",
    scope: Scope::Policy,
    vendor: Some(Vendor::Amd),
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro("/sys/devices/system/cpu/cpufreq/policy{policy}/amd_pstate_highest_perf", Form::Perf)],
    about: "The level that amd-pstate scales frequencies by. With preferred cores it is the same for all of them \
            (166, 196 or 255 by model), while cppc-highest differs from core to core.",
    interacts: &[(Id::CppcHighest, "what the firmware says of this core")],
    role: Role::Fact,
};

pub(super) const HW_PREFCORE: Row = Row {
    title: "whether the hardware ranks this core",
    scope: Scope::Policy,
    vendor: Some(Vendor::Amd),
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro("/sys/devices/system/cpu/cpufreq/policy{policy}/amd_pstate_hw_prefcore", Form::Enabled)],
    about: "Whether the processor gives its cores different highest performances, so that amd-pstate can rank them. \
            Kernels before 7 present the file on every policy, later ones only where cores are ranked.",
    interacts: &[(Id::Prefcore, "whether the driver uses it"), (Id::PrefcoreRanking, "the rank")],
    role: Role::Fact,
};

pub(super) const DYNAMIC_EPP: Row = Row {
    title: "preferences by platform profile",
    scope: Scope::Machine,
    vendor: Some(Vendor::Amd),
    shown: Visibility::on_request(Section::Machine),
    mechanisms: &[ro("/sys/devices/system/cpu/amd_pstate/dynamic_epp", Form::Enabled)],
    about: "Whether amd-pstate itself changes the energy preference with the platform profile and the charger (Linux \
            7.0 to 7.2, in active mode). While it does, the kernel refuses every preference (EBUSY). Linux 7.3 has \
            epp=dynamic for each policy instead.",
    interacts: &[(Id::Epp, "changes by itself while enabled")],
    role: Role::Fact,
};
