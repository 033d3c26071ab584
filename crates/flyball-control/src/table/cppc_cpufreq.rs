//! Rows of the driver cppc_cpufreq, which most Arm servers use: optional registers of CPPC
//! (drivers/cpufreq/cppc_cpufreq.c). A missing register reads `<unsupported>`.

use flyball_host::Errno;

use super::{ro, rw};
use crate::{
    Id,
    knob::{
        AppearsWith, Check, Control, Ends, Form, Refusal, Role, Row, Saved, Scope, Section, Visibility,
        Writing, order::Step, spelling::Spelling,
    },
};

/// The register is missing in the firmware's table of a CPU (`_CPC`).
const LACKING: Refusal =
    Refusal::new(&[Errno::OPNOTSUPP], "the firmware of this processor does not offer it");

/// The processor holds all three, and forgets them when the CPU goes offline.
const APPEARS: &[AppearsWith] = &[AppearsWith::DriverMode, AppearsWith::Cpu];

pub(super) const AUTO_SELECT: Row = Row {
    title: "frequency chosen by the processor",
    scope: Scope::Policy,
    vendor: None,
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[rw("/sys/devices/system/cpu/cpufreq/policy{policy}/auto_select", Form::Switch)],
    about: "With the driver cppc_cpufreq: on lets the processor choose its frequency between min-freq and max-freq, \
            so that the governor's requests no longer count. Off lets the governor choose. Linux has the file from \
            6.16 on.",
    interacts: &[
        (Id::Governor, "does not choose the frequency while this is on"),
        (Id::EppValue, "steers the processor's choice"),
        (Id::ActivityWindow, "is the time that the processor looks back"),
    ],
    role: Role::Knob(Control {
        accepts: "on or off",
        ends: Ends::None,
        check: Check::Any,
        judged_by: &[],
        appears_with: APPEARS,
        saved: Saved::Always,
        written_by: &[],
        writing: Writing {
            refusals: &[LACKING],
            // After the limits, which the driver writes to the processor together with it
            // (store_auto_select).
            ..Writing::alone(Step::Limit, Spelling::Switch)
        },
    }),
};

pub(super) const ACTIVITY_WINDOW: Row = Row {
    title: "time over which the processor averages its load",
    scope: Scope::Policy,
    vendor: None,
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[rw("/sys/devices/system/cpu/cpufreq/policy{policy}/auto_act_window", Form::Micros)],
    about: "With the driver cppc_cpufreq and auto-select: how far back the processor looks when it chooses its \
            frequency. A short window follows bursts, a long one saves energy. 0 lets the firmware choose.",
    interacts: &[(Id::AutoSelect, "without it the window has no effect")],
    role: Role::Knob(Control {
        accepts: "a time up to 1270 s of at most two digits and zeros, or up to 127 and zeros (20us, 1.2ms), or 0us",
        ends: Ends::None,
        check: Check::ActivityWindow,
        judged_by: &[],
        appears_with: APPEARS,
        saved: Saved::Always,
        written_by: &[],
        writing: Writing { refusals: &[LACKING], ..Writing::alone(Step::Preference, Spelling::Number) },
    }),
};

pub(super) const EPP_VALUE: Row = Row {
    title: "energy preference of cppc_cpufreq",
    scope: Scope::Policy,
    vendor: None,
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[rw(
        "/sys/devices/system/cpu/cpufreq/policy{policy}/energy_performance_preference_val",
        Form::Count,
    )],
    about: "With the driver cppc_cpufreq: the preference between performance (0) and energy (255) that the processor \
            follows while auto-select is on. The driver has numbers only; epp is the same on drivers with words.",
    interacts: &[
        (Id::AutoSelect, "without it the preference has no effect"),
        (Id::Epp, "the same with intel_pstate and amd-pstate"),
    ],
    role: Role::Knob(Control {
        accepts: "a number from 0 to 255",
        ends: Ends::None,
        check: Check::UpTo(255),
        judged_by: &[],
        appears_with: APPEARS,
        saved: Saved::Always,
        written_by: &[],
        writing: Writing { refusals: &[LACKING], ..Writing::alone(Step::Preference, Spelling::Number) },
    }),
};

pub(super) const PERF_LIMITED: Row = Row {
    title: "limits that the platform has enforced",
    scope: Scope::Policy,
    vendor: None,
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro("/sys/devices/system/cpu/cpufreq/policy{policy}/perf_limited", Form::Count)],
    about: "With the driver cppc_cpufreq: 1 if the processor delivered less than the desired performance, 2 if less \
            than the minimum, 3 if both, since someone last wrote the number back to clear it. The processor does \
            not say why. 1 is not reported while auto-select is on. Linux 7.2 has it.",
    interacts: &[(Id::AutoSelect, "hides 1 while on"), (Id::MinFreq, "2 means that it was not kept")],
    role: Role::Fact,
};
