//! Rows of idle states and wake-up latency.

use flyball_host::{Errno, Vendor};

use super::{ro, rw};
use crate::{
    Id,
    knob::{
        AppearsWith, Check, Control, Ends, Form, Refusal, Role, Row, Saved, Scope, Section, Visibility,
        Writing, order::Step, spelling::Spelling,
    },
    programs::Program,
};

pub(super) const IDLE_STATE: Row = Row {
    title: "whether an idle state may be used",
    scope: Scope::IdleState,
    vendor: None,
    shown: Visibility::in_section(Section::Idle),
    mechanisms: &[rw("/sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}/disable", Form::InvertedSwitch)],
    about: "Deeper idle states save more power and let other cores turbo higher, but take longer to wake \
            from. Set one state with idle-state:C6=off, or the deepest allowed one with idle-state=C1. \
            State 0 on Intel is POLL, which burns power to wake at once. Disabling a state does not \
            disable deeper ones.",
    interacts: &[
        (Id::LatencyLimit, "forbids states with a longer exit latency, whatever this knob says"),
        (Id::IdleGovernor, "chooses among the allowed states"),
        (Id::IdleLatency, "the exit latencies"),
    ],
    role: Role::Knob(Control {
        accepts: "on, off or default (the driver's own choice); or the deepest state to allow, by name (C1) or number (1); or the longest exit latency to \
              allow (20us)",
        ends: Ends::None,
        check: Check::Any,
        judged_by: &[Id::IdleLatency, Id::IdleDefault],
        appears_with: &[AppearsWith::Cpu],
        saved: Saved::Always,
        written_by: &[],
        writing: Writing {
            refusals: &[Refusal::new(
                // store_state_disable in drivers/cpuidle/sysfs.c requires CAP_SYS_ADMIN, whatever
                // the file's mode.
                &[Errno::PERM],
                "it needs CAP_SYS_ADMIN: run flyball with sudo, outside a container",
            )],
            ..Writing::alone(Step::Idle, Spelling::Switch)
        },
    }),
};

pub(super) const IDLE_GOVERNOR: Row = Row {
    title: "rule for choosing idle states",
    scope: Scope::Machine,
    vendor: None,
    shown: Visibility::in_section(Section::Machine),
    mechanisms: &[
        rw("/sys/devices/system/cpu/cpuidle/current_governor", Form::Word),
        // Older kernels have only this file unless booted with cpuidle_sysfs_switch
        // (drivers/cpuidle/sysfs.c).
        ro("/sys/devices/system/cpu/cpuidle/current_governor_ro", Form::Word),
    ],
    about: "Predicts how long a CPU will be idle, and so which state to enter. menu weighs the next \
            timer and recent history, teo looks at timers first and is often better for bursts of short \
            sleeps, haltpoll is for guests.",
    interacts: &[
        (Id::IdleState, "what it may choose from"),
        (Id::AvailableIdleGovernors, "lists the governors"),
    ],
    role: Role::Knob(Control {
        accepts: "a governor of available-idle-governors: menu, teo, ladder, haltpoll",
        ends: Ends::None,
        check: Check::Listed(Id::AvailableIdleGovernors),
        judged_by: &[Id::AvailableIdleGovernors],
        appears_with: &[],
        saved: Saved::Always,
        written_by: &[],
        writing: Writing::alone(Step::Idle, Spelling::Text),
    }),
};

pub(super) const C1_DEMOTION: Row = Row {
    title: "demotion of deep idle requests to C1",
    scope: Scope::Machine,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Machine),
    mechanisms: &[rw("/sys/devices/system/cpu/cpuidle/intel_c1_demotion", Form::Switch)],
    about: "Lets an Intel processor enter C1 when the kernel requested C6 but an early wakeup is likely. \
            Lowers latency for steady interrupt loads and costs idle power. Since kernel 6.16, on some \
            processors.",
    interacts: &[(Id::IdleState, "the processor's own judgement overrides the kernel's choice")],
    role: Role::Knob(Control {
        accepts: "on or off",
        ends: Ends::None,
        check: Check::Any,
        judged_by: &[],
        appears_with: &[],
        saved: Saved::Never,
        written_by: &[],
        writing: Writing::alone(Step::Idle, Spelling::Switch),
    }),
};

pub(super) const LATENCY_LIMIT: Row = Row {
    title: "longest wake-up latency of a CPU",
    scope: Scope::Cpu,
    vendor: None,
    shown: Visibility::in_section(Section::Cpus),
    // Not /dev/cpu_dma_latency: its request ends with the process that holds the file open.
    mechanisms: &[rw("/sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us", Form::LatencyLimit)],
    about: "Keeps the CPU out of idle states whose exit latency is longer than this. Prefer it to \
            forbidding states one by one. The kernel's file has 0 for no limit and n/a for no latency at \
            all; flyball writes n/a for 0us.",
    interacts: &[(Id::IdleState, "states above the limit are skipped even when they are on")],
    role: Role::Knob(Control {
        accepts: "a time with its unit (20us), an idle state for its exit latency (C1E), no-limit, or n/a to allow no latency \
                  at all",
        ends: Ends::None,
        check: Check::NotZero,
        judged_by: &[Id::IdleLatency],
        appears_with: &[AppearsWith::Cpu],
        saved: Saved::Always,
        written_by: &[Program::Tuned, Program::ScxIdle, Program::ScxP2dq],
        writing: Writing::alone(Step::Idle, Spelling::Number),
    }),
};

pub(super) const IDLE_DRIVER: Row = Row {
    title: "cpuidle driver",
    scope: Scope::Machine,
    vendor: None,
    shown: Visibility::in_section(Section::Machine),
    mechanisms: &[ro("/sys/devices/system/cpu/cpuidle/current_driver", Form::Word)],
    about: "What gives the kernel its table of idle states: intel_idle knows Intel's processors by itself, acpi_idle takes \
            what the firmware lists, none leaves the CPU in a plain HLT. A server on acpi_idle where intel_idle was \
            expected often lacks deep states.",
    interacts: &[(Id::IdleState, "the states are the driver's")],
    role: Role::Fact,
};

pub(super) const AVAILABLE_IDLE_GOVERNORS: Row = Row {
    title: "cpuidle governors of this kernel",
    scope: Scope::Machine,
    vendor: None,
    shown: Visibility::in_section(Section::Machine),
    mechanisms: &[ro("/sys/devices/system/cpu/cpuidle/available_governors", Form::Words)],
    about: "The rules for choosing idle states that this kernel was built with; idle-governor takes one of them.",
    interacts: &[(Id::IdleGovernor, "takes one of them")],
    role: Role::Fact,
};

pub(super) const IDLE_DEFAULT: Row = Row {
    title: "whether the driver allows an idle state by itself",
    scope: Scope::IdleState,
    vendor: None,
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro("/sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}/default_status", Form::Enabled)],
    about: "The kernel lists some idle states and leaves them off, for example those that the firmware does not \
            list. Kernels before 5.6 do not say which.",
    interacts: &[(Id::IdleState, "takes it with idle-state=default")],
    role: Role::Fact,
};

pub(super) const IDLE_LATENCY: Row = Row {
    title: "exit latency of an idle state",
    scope: Scope::IdleState,
    vendor: None,
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro("/sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}/latency", Form::Micros)],
    about: "How long the processor needs, at worst, to run again after an interrupt in this idle state, as the cpuidle \
            driver states it. A latency limit below it forbids the state.",
    interacts: &[(Id::LatencyLimit, "is compared with it")],
    role: Role::Fact,
};

pub(super) const IDLE_RESIDENCY: Row = Row {
    title: "shortest stay for which an idle state pays",
    scope: Scope::IdleState,
    vendor: None,
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro("/sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}/residency", Form::Micros)],
    about: "The time a CPU must stay in the idle state before entering it has saved energy, as the cpuidle driver states \
            it. The idle governor enters the state only when it expects to sleep longer.",
    interacts: &[(Id::IdleGovernor, "compares it with the sleep it expects")],
    role: Role::Fact,
};
