//! Rows of values that exist only in model-specific registers.

use flyball_host::msr::{
    MSR_AMD_CPPC_REQ, MSR_HWP_CAPABILITIES, MSR_HWP_REQUEST, MSR_IA32_MISC_ENABLE, MSR_PLATFORM_INFO,
    MSR_TURBO_RATIO_LIMIT, MSR_TURBO_RATIO_LIMIT1,
};

use flyball_host::Vendor;

use super::{amd, intel, intel_on};
use crate::{
    Id,
    knob::{Form, On, Role, Row, Scope, Section, Visibility},
};

pub(super) const HWP_REQUEST: Row = Row {
    title: "what the kernel asks of HWP",
    scope: Scope::Cpu,
    vendor: Some(Vendor::Intel),
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[intel(
        MSR_HWP_REQUEST,
        (63, 0),
        Form::Fields(&[
            ("min", 7, 0),
            ("max", 15, 8),
            ("desired", 23, 16),
            ("epp", 31, 24),
            ("window", 41, 32),
            ("package-control", 42, 42),
        ]),
    )],
    about: "The register in which intel_pstate gives the processor its bounds (in ratios of 100 MHz, on hybrid parts in \
            levels), a desired level (0: choose yourself) and EPP. It shows what is really in force when a file and the \
            processor seem to disagree.",
    interacts: &[(Id::Epp, "bits 31:24"), (Id::MinFreq, "bits 7:0"), (Id::MaxFreq, "bits 15:8")],
    role: Role::Fact,
};

pub(super) const HWP_CAPABILITIES: Row = Row {
    title: "what HWP can do",
    scope: Scope::Cpu,
    vendor: Some(Vendor::Intel),
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[intel(
        MSR_HWP_CAPABILITIES,
        (63, 0),
        Form::Fields(&[("highest", 7, 0), ("guaranteed", 15, 8), ("efficient", 23, 16), ("lowest", 31, 24)]),
    )],
    about: "The performance levels that the processor offers to HWP: highest turbo, guaranteed, most efficient, lowest. \
            The guaranteed level changes with Speed Select and power limits while the machine runs.",
    interacts: &[
        (Id::HwpRequest, "asks within these levels"),
        (Id::BaseFreq, "the guaranteed level as a frequency"),
    ],
    role: Role::Fact,
};

pub(super) const CPPC_REQUEST: Row = Row {
    title: "what the kernel asks of CPPC",
    scope: Scope::Cpu,
    vendor: Some(Vendor::Amd),
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[amd(
        MSR_AMD_CPPC_REQ,
        (63, 0),
        // The maximum is the lowest byte. In the register of HWP that is the minimum.
        Form::Fields(&[("max", 7, 0), ("min", 15, 8), ("desired", 23, 16), ("epp", 31, 24)]),
    )],
    about: "The register in which amd-pstate gives the processor its bounds, a desired level (0: choose yourself) and EPP, \
            in performance levels of CPPC. Processors without the register are asked through memory \
            shared with the firmware instead.",
    interacts: &[(Id::Epp, "bits 31:24"), (Id::MinFreq, "bits 15:8"), (Id::MaxFreq, "bits 7:0")],
    role: Role::Fact,
};

/// Eight fields of eight bits, lowest first.
const BYTES: Form = Form::Fields(&[
    ("0", 7, 0),
    ("1", 15, 8),
    ("2", 23, 16),
    ("3", 31, 24),
    ("4", 39, 32),
    ("5", 47, 40),
    ("6", 55, 48),
    ("7", 63, 56),
]);

/// Family 6 models whose TURBO_RATIO_LIMIT1 has core counts (turbostat.c, `TRL_CORECOUNT`): Xeons
/// since Skylake-SP, and Atoms since Goldmont except Gemini, Elkhart and Jasper Lake. Haswell and
/// Ivy Bridge servers have further ratios there (`TRL_LIMIT1`).
const WITH_CORE_COUNTS: On =
    On::Models(&[0x55, 0x6a, 0x6c, 0x8f, 0xcf, 0xad, 0xae, 0xaf, 0xb6, 0xdd, 0x5c, 0x5f, 0x86]);

/// Family 6 models whose TURBO_RATIO_LIMIT has eight ratios, one per byte (turbostat.c,
/// `TRL_BASE`). The list omits Nehalem-EX and Westmere-EX, Silvermont (other registers) and Xeon
/// Phi (deltas of five and three bits).
const WITH_RATIOS: On = On::Models(&[
    0x1a, 0x1e, 0x1f, 0x25, 0x2c, 0x2a, 0x2d, 0x3a, 0x3e, 0x3c, 0x3f, 0x45, 0x46, 0x3d, 0x47, 0x4f, 0x56,
    0x4e, 0x5e, 0x55, 0x8e, 0x9e, 0xa5, 0xa6, 0x66, 0x6a, 0x6c, 0x7e, 0x9d, 0xa7, 0x8c, 0x8d, 0x8f, 0xcf,
    0xad, 0xae, 0x8a, 0x97, 0x9a, 0xb7, 0xba, 0xbf, 0xac, 0xaa, 0xc5, 0xb5, 0xc6, 0xbd, 0xcc, 0x4d, 0x4c,
    0x5c, 0x5f, 0x7a, 0x86, 0x96, 0x9c, 0xbe, 0xaf, 0xb6, 0xdd,
]);

pub(super) const TURBO_RATIOS: Row = Row {
    title: "highest turbo ratios by number of active cores",
    scope: Scope::Package,
    vendor: Some(Vendor::Intel),
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[intel_on(WITH_RATIOS, MSR_TURBO_RATIO_LIMIT, (63, 0), BYTES)],
    about: "Eight highest ratios (times 100 MHz), for rising numbers of active cores. Before Skylake-SP, ratio N holds for \
            N+1 active cores; on later Xeons turbo-ratio-cores says for how many.",
    interacts: &[(Id::TurboRatioCores, "the numbers of cores"), (Id::Turbo, "allows them")],
    role: Role::Fact,
};

pub(super) const TURBO_RATIO_CORES: Row = Row {
    title: "numbers of active cores of the turbo ratios",
    scope: Scope::Package,
    vendor: Some(Vendor::Intel),
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[intel_on(WITH_CORE_COUNTS, MSR_TURBO_RATIO_LIMIT1, (63, 0), BYTES)],
    about: "On Xeons since Skylake-SP and some Atoms, the largest number of active cores for which each of the eight \
            turbo-ratios holds. Xeons of E-cores count modules of up to four cores. On older and client processors the \
            register means something else or is missing.",
    interacts: &[(Id::TurboRatios, "the ratios that go with them")],
    role: Role::Fact,
};

pub(super) const PLATFORM_INFO: Row = Row {
    title: "ratios that the platform was built with",
    scope: Scope::Package,
    vendor: Some(Vendor::Intel),
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[intel(
        MSR_PLATFORM_INFO,
        (63, 0),
        Form::Fields(&[
            ("max-non-turbo", 15, 8),
            ("turbo-ratios-writable", 28, 28),
            ("tdp-writable", 29, 29),
            ("tdp-levels", 34, 33),
            ("max-efficiency", 47, 40),
        ]),
    )],
    about: "The highest ratio without turbo and the ratio of greatest efficiency (times 100 MHz), whether turbo ratios and \
            power limits can be written, and how many configurable power levels there are besides the nominal one.",
    interacts: &[(Id::BaseFreq, "comes from it where nothing else says")],
    role: Role::Fact,
};

pub(super) const FIRMWARE_TURBO: Row = Row {
    title: "turbo that the firmware allows",
    scope: Scope::Package,
    vendor: Some(Vendor::Intel),
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[intel(MSR_IA32_MISC_ENABLE, (38, 38), Form::InvertedSwitch)],
    about: "Off if the firmware has disabled turbo in this package: then no setting can raise its cores above the base \
            frequency. Under acpi-cpufreq, turbo=off sets the same bit.",
    interacts: &[(Id::Turbo, "has no effect where this is off")],
    role: Role::Fact,
};
