//! Rows of the whole machine: driver mode, CPUs online, SMT, turbo.

use flyball_host::Errno;

use super::{effects, rw};
use crate::{
    Id,
    knob::{
        AppearsWith, Check, Control, Disturbs, Ends, Form, Mechanism, Refusal, Role, Row, Saved, Scope,
        Section, Visibility, Writing,
        order::{Bound, Step, Turn},
        spelling::Spelling,
    },
    programs::Program,
};

const NO_HOTPLUG: &str = "this machine or kernel cannot do that (nosmt=force, or no SMT in the processor)";

pub(super) const DRIVER_MODE: Row = Row {
    title: "mode of the P-state driver",
    scope: Scope::Machine,
    vendor: None,
    shown: Visibility::in_section(Section::Machine),
    mechanisms: &[
        // At most one of the folders exists: each driver creates its own, and a processor has one
        // vendor.
        rw("/sys/devices/system/cpu/amd_pstate/status", Form::Word),
        rw("/sys/devices/system/cpu/intel_pstate/status", Form::Word),
    ],
    about: "Decides who picks the frequency. In active mode the processor does, within the limits and \
            guided by EPP (without HWP, intel_pstate itself follows the load), and only the governors \
            performance and powersave exist. In passive mode a kernel governor requests each frequency. In guided mode (amd-pstate) the governor sets the \
            lower bound and the processor chooses above it. A change re-registers the driver, so \
            governor, EPP and frequency limits return to their defaults. intel_pstate rejects `off` \
            (EBUSY) while HWP is on; after `off` there is no driver until the next boot.",
    interacts: &[
        (Id::Governor, "a change re-creates the policies: the governor returns to its default"),
        (Id::Epp, "exists in active mode of amd-pstate, and with HWP; a mode change resets it"),
        (Id::MinFreq, "a mode change resets the limits"),
        (Id::MaxFreq, "a mode change resets the limits"),
        (Id::HwpDynamicBoost, "exists in active mode only"),
    ],
    role: Role::Knob(Control {
        accepts: "active, passive, or guided and disable (amd-pstate), or off (intel_pstate)",
        ends: Ends::None,
        check: Check::DriverMode,
        judged_by: &[Id::Driver, Id::AvailableEpp],
        appears_with: &[],
        saved: Saved::Always,
        written_by: &[Program::PowerProfilesDaemon, Program::Tlp, Program::AutoCpufreq, Program::System76],
        writing: Writing {
            // cpufreq_unregister_driver removes every policy, even inactive ones, and resets
            // no_turbo and the percentages (intel_pstate_register_driver clears `global`).
            disturbs: &[Disturbs::Everywhere(effects::EVERYTHING)],
            refusals: &[
                Refusal::new(
                    // intel_pstate_update_status: `off` while hwp_active.
                    &[Errno::BUSY],
                    "intel_pstate cannot be switched off while hardware P-states (HWP) are on; boot with intel_pstate=disable to use another driver",
                ),
                Refusal::new(&[Errno::INVAL], "this kernel's driver does not have that mode"),
                Refusal::new(
                    &[Errno::NODEV, Errno::OPNOTSUPP],
                    "the driver cannot work on this processor: see the kernel log (dmesg | grep pstate)",
                ),
            ],
            ..Writing::alone(Step::DriverMode, Spelling::Text)
        },
    }),
};

pub(super) const ONLINE: Row = Row {
    title: "whether a CPU runs",
    scope: Scope::Cpu,
    vendor: None,
    shown: Visibility::in_section(Section::Line),
    mechanisms: &[
        rw("/sys/devices/system/cpu/cpu{cpu}/online", Form::Switch),
        Mechanism::Member { path: "/sys/devices/system/cpu/online" },
    ],
    about: "Takes a CPU away from the scheduler or gives it back. An offline CPU sits in the deepest \
            idle state; if it is the last of its frequency policy, the policy answers EBUSY. Limits and \
            governor return with the CPU. CPU 0 always runs on current x86 kernels.",
    interacts: &[
        (Id::Smt, "with SMT off, second threads are offline and cannot be brought online (EPERM)"),
        (Id::Governor, "a policy whose CPUs are all offline answers EBUSY"),
        (Id::Epb, "kept over offline and online by the kernel"),
    ],
    role: Role::Knob(Control {
        accepts: "on or off",
        ends: Ends::None,
        check: Check::Online,
        judged_by: &[],
        appears_with: &[],
        saved: Saved::WhereWritable,
        written_by: &[Program::IntelLpmd, Program::CpufreqApplet],
        writing: Writing {
            // Online before its settings are written, offline after: show() and store() of
            // cpufreq.c return EBUSY for a policy without CPUs.
            turn: Turn::Switch { off: Step::Offline, on: Step::Online },
            spelling: Spelling::Switch,
            bound: Bound::None,
            disturbs: &[
                Disturbs::Here(effects::CPU),
                // With the last CPU of a policy its governor exits. When a CPU returns, cpufreq
                // restarts the governor, without its tunables and without userspace's speed.
                Disturbs::Here(effects::POLICY),
                // Tunables shared by all policies of a governor disappear with the last of these
                // policies (cpufreq_exit_governor in __cpufreq_offline of cpufreq.c).
                Disturbs::Everywhere(effects::SHARED_TUNABLES),
                Disturbs::PinnedInterrupts,
            ],
            refusals: &[
                // cpu_up() in kernel/cpu.c: cpu_bootable() refuses a second thread with SMT off.
                Refusal::new(&[Errno::PERM], "this CPU cannot be taken offline or brought online"),
                Refusal::new(
                    &[Errno::BUSY],
                    "the kernel refuses to take this CPU offline now (something is bound to it)",
                ),
                // cpu_down_maps_locked(): EOPNOTSUPP if the platform has disabled hotplug, as in
                // confidential guests.
                Refusal::new(&[Errno::NODEV, Errno::OPNOTSUPP], NO_HOTPLUG),
            ],
        },
    }),
};

pub(super) const SMT: Row = Row {
    title: "simultaneous multi-threading",
    scope: Scope::Machine,
    vendor: None,
    shown: Visibility::in_section(Section::Machine),
    mechanisms: &[rw("/sys/devices/system/cpu/smt/control", Form::Word)],
    about: "Decides whether the second thread of each core runs. Off gives each task a whole core, which \
            steadies benchmarks and helps code that fills a core, but costs throughput if threads share \
            well. `forceoff` cannot be undone before the next boot.",
    interacts: &[(
        Id::Online,
        "on brings second threads online, including CPUs that were taken offline individually",
    )],
    role: Role::Knob(Control {
        accepts: "on, off or forceoff (until the next boot), on some kernels a number of threads per core",
        ends: Ends::None,
        check: Check::Smt,
        judged_by: &[],
        appears_with: &[],
        saved: Saved::Never,
        written_by: &[],
        writing: Writing {
            turn: Turn::Switch { off: Step::Offline, on: Step::Online },
            spelling: Spelling::SmtControl,
            bound: Bound::None,
            // cpuhp_smt_enable (kernel/cpu.c) brings every allowed CPU online, even a CPU that the
            // user took offline.
            disturbs: &[Disturbs::Everywhere(effects::EVERYTHING), Disturbs::PinnedInterrupts],
            refusals: &[
                // __store_smt_control: EPERM after `forceoff` or nosmt=force, ENODEV if the
                // processor has no SMT.
                Refusal::new(&[Errno::PERM], "SMT cannot be switched on this machine"),
                Refusal::new(&[Errno::NODEV, Errno::OPNOTSUPP], NO_HOTPLUG),
            ],
        },
    }),
};

pub(super) const TURBO: Row = Row {
    title: "turbo of the whole machine",
    scope: Scope::Machine,
    vendor: None,
    shown: Visibility::in_section(Section::Machine),
    mechanisms: &[
        // At most one of these exists: intel_pstate has no set_boost, so there is no `boost` under
        // it, and other drivers have no `no_turbo`.
        rw("/sys/devices/system/cpu/intel_pstate/no_turbo", Form::InvertedSwitch),
        rw("/sys/devices/system/cpu/cpufreq/boost", Form::Switch),
    ],
    about: "Lets cores run above the base (Intel) or nominal (AMD) frequency while power and heat allow. \
            Switch it off for repeatable measurements. Intel's file no_turbo is inverted; flyball always \
            says on if turbo is allowed. If the firmware has turned turbo off, turning it on fails with \
            EPERM.",
    interacts: &[
        (
            Id::MaxFreq,
            "with turbo off, limits above the base or nominal frequency have no effect; since kernel 6.12 \
                       the hardware limit itself falls",
        ),
        (Id::MinPerfPct, "a change clamps min-perf-pct under the new range"),
        (Id::Boost, "off overrides every policy's boost, and on turns all of them on"),
    ],
    role: Role::Knob(Control {
        accepts: "on or off",
        ends: Ends::None,
        check: Check::Any,
        // The frequencies show whether turbo off still means the present base frequencies
        // (plan/turbo.rs).
        judged_by: &[Id::Boost, Id::Driver, Id::HwMaxFreq, Id::BaseFreq, Id::FirmwareTurbo],
        appears_with: &[AppearsWith::DriverMode],
        saved: Saved::Always,
        written_by: &[
            Program::Tuned,
            Program::PowerProfilesDaemon,
            Program::Tlp,
            Program::AutoCpufreq,
            Program::Thermald,
            Program::System76,
            Program::ScxP2dq,
        ],
        writing: Writing {
            // store_no_turbo lowers min_perf_pct to the remaining range, and does not raise it when
            // turbo returns. cpufreq_boost_trigger_state writes every active policy's boost.
            disturbs: &[Disturbs::Everywhere(effects::TURBO)],
            refusals: &[
                Refusal::new(
                    // turbo_is_disabled(): bit 38 of IA32_MISC_ENABLE. The kernel answers `0` with
                    // EPERM, and logs the reason.
                    &[Errno::PERM],
                    "the firmware has turbo switched off, and then the kernel takes no change: see the BIOS setup",
                ),
                // The folder intel_pstate/ stays when the driver is off. Its files check for a
                // driver.
                Refusal::new(&[Errno::AGAIN], "intel_pstate is off: set driver-mode=active or passive first"),
                Refusal::new(
                    &[Errno::INVAL, Errno::OPNOTSUPP],
                    "this processor cannot boost, or the firmware has it switched off (Core Performance Boost in the BIOS setup)",
                ),
            ],
            ..Writing::alone(Step::Turbo, Spelling::Switch)
        },
    }),
};

pub(super) const BOOST: Row = Row {
    title: "turbo of one policy",
    scope: Scope::Policy,
    vendor: None,
    shown: Visibility::in_section(Section::Cpus),
    mechanisms: &[
        rw("/sys/devices/system/cpu/cpufreq/policy{policy}/boost", Form::Switch),
        // acpi-cpufreq's own switch on AMD (store_cpb in acpi-cpufreq.c).
        rw("/sys/devices/system/cpu/cpufreq/policy{policy}/cpb", Form::Switch),
    ],
    about: "Turbo for the CPUs of one policy (amd-pstate, acpi-cpufreq). Fails with EINVAL while the \
            machine-wide turbo is off.",
    interacts: &[
        (Id::Turbo, "must be on; a write of it sets all policies"),
        (Id::MaxFreq, "with boost off the hardware limit is the nominal frequency"),
    ],
    role: Role::Knob(Control {
        accepts: "on or off",
        ends: Ends::None,
        check: Check::Any,
        judged_by: &[Id::Turbo],
        appears_with: &[AppearsWith::DriverMode, AppearsWith::Cpu],
        saved: Saved::WithTurbo,
        written_by: &[Program::Tuned, Program::Tlp, Program::AutoCpufreq, Program::System76],
        writing: Writing {
            disturbs: &[Disturbs::Here(effects::POLICY)],
            refusals: &[Refusal::new(
                // store_local_boost: EINVAL while cpufreq_driver->boost_enabled, the machine-wide
                // switch, is off.
                &[Errno::INVAL],
                "boost is off for the whole machine, or this policy cannot boost: set turbo=on for all CPUs first",
            )],
            ..Writing::alone(Step::Turbo, Spelling::Switch)
        },
    }),
};
