//! Rows of the firmware's and the board's choices for the whole machine: platform profiles, and the
//! order of an AMD processor's dies.

use flyball_host::{Errno, Vendor};

use super::{effects, ro, rw};
use crate::{
    Id,
    knob::{
        Check, Control, Disturbs, Ends, Form, Refusal, Role, Row, Saved, Scope, Section, Visibility, Writing,
        order::Step, spelling::Spelling,
    },
    programs::Program,
};

pub(super) const PLATFORM_PROFILE: Row = Row {
    title: "profile of the firmware",
    scope: Scope::Machine,
    vendor: None,
    shown: Visibility::in_section(Section::Machine),
    mechanisms: &[rw("/sys/firmware/acpi/platform_profile", Form::Word)],
    about: "Chooses power limits and fan curves in the firmware, below all settings of the kernel. A write \
            sets every profile device and stops at the first that fails. custom means that the devices differ: set \
            device-profile then.",
    interacts: &[
        (Id::DeviceProfile, "sets one device; a write here sets all of them"),
        (Id::PowerLimit, "firmware may bring its own limits with a profile"),
        (Id::Epp, "a dynamic preference of amd-pstate follows the profile"),
        (Id::AvailablePlatformProfiles, "lists the words"),
    ],
    role: Role::Knob(Control {
        accepts: "a word of available-platform-profiles, such as low-power, balanced or performance",
        ends: Ends::None,
        check: Check::Listed(Id::AvailablePlatformProfiles),
        judged_by: &[Id::AvailablePlatformProfiles],
        appears_with: &[],
        saved: Saved::UnlessWord("custom"),
        written_by: WRITERS,
        writing: Writing {
            disturbs: &[Disturbs::Everywhere(effects::PROFILES), Disturbs::Everywhere(effects::POWER)],
            // platform_profile_store in drivers/acpi/platform_profile.c.
            refusals: &[Refusal::new(
                &[Errno::INVAL, Errno::OPNOTSUPP],
                "not every profile device has that profile; all of them have: {platform_profile_choices}",
            )],
            // Before power limits and preferences, which firmware may change with the profile.
            ..Writing::alone(Step::Turbo, Spelling::Text)
        },
    }),
};

pub(super) const DEVICE_PROFILE: Row = Row {
    title: "profile of one profile device",
    scope: Scope::ProfileDevice,
    vendor: None,
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[rw("/sys/class/platform-profile/{profile-device}/profile", Form::Word)],
    about: "A laptop can have several drivers with profiles: its maker's, AMD's power management (amd-pmf) and, on \
            Linux 7.3, one per policy with a dynamic preference. Set one by its name: device-profile:amd-pmf=quiet. \
            platform-profile shows custom while \
            they differ, so set either one or the other.",
    interacts: &[
        (Id::PlatformProfile, "sets all devices at once"),
        (Id::AvailableDeviceProfiles, "lists the words"),
    ],
    role: Role::Knob(Control {
        accepts: "a word of available-device-profiles",
        ends: Ends::None,
        check: Check::Listed(Id::AvailableDeviceProfiles),
        judged_by: &[Id::AvailableDeviceProfiles],
        appears_with: &[],
        saved: Saved::Always,
        written_by: &[],
        writing: Writing {
            disturbs: &[Disturbs::Everywhere(effects::POWER)],
            // profile_store: EINVAL for a word that no device knows, EOPNOTSUPP for a word of
            // another device.
            refusals: &[Refusal::new(
                &[Errno::INVAL, Errno::OPNOTSUPP],
                "this device does not have that profile; it has: {choices}",
            )],
            // After preferences: when a preference becomes dynamic, its device starts at balanced.
            ..Writing::alone(Step::Limit, Spelling::Text)
        },
    }),
};

/// Programs that write the machine's profile.
const WRITERS: &[Program] = &[
    Program::Tuned,
    Program::PowerProfilesDaemon,
    Program::Tlp,
    Program::System76,
    Program::Asusd,
    Program::SteamosManager,
    Program::Hhd,
];

pub(super) const X3D_MODE: Row = Row {
    title: "die that is preferred on a processor with 3D V-Cache",
    scope: Scope::Machine,
    vendor: Some(Vendor::Amd),
    shown: Visibility::in_section(Section::Machine),
    mechanisms: &[rw("/sys/devices/platform/AMDI0101:00/amd_x3d_mode", Form::Word)],
    about: "A Ryzen with two dies has large cache on one and higher frequency on the other. The firmware ranks the \
            cores of the preferred die higher, and the scheduler fills them first. The file shows what the driver \
            wrote last, not what the firmware does. The driver writes frequency when it is loaded.",
    interacts: &[(Id::PrefcoreRanking, "changes with it")],
    role: Role::Knob(Control {
        accepts: "frequency or cache",
        ends: Ends::None,
        // amd_x3d_mode_strings in drivers/platform/x86/amd/x3d_vcache.c.
        check: Check::OneOf(&["frequency", "cache"]),
        judged_by: &[],
        appears_with: &[],
        saved: Saved::Always,
        written_by: &[],
        writing: Writing {
            refusals: &[Refusal::new(&[Errno::INVAL], "the firmware refused the mode")],
            ..Writing::alone(Step::Turbo, Spelling::Text)
        },
    }),
};

pub(super) const AVAILABLE_PLATFORM_PROFILES: Row = Row {
    title: "profiles that every profile device has",
    scope: Scope::Machine,
    vendor: None,
    shown: Visibility::on_request(Section::Machine),
    mechanisms: &[ro("/sys/firmware/acpi/platform_profile_choices", Form::Words)],
    about: "The words that platform-profile takes: those that all profile devices have in common. A device may take \
            more than that by device-profile.",
    interacts: &[(Id::PlatformProfile, "takes one of them")],
    role: Role::Fact,
};

pub(super) const AVAILABLE_DEVICE_PROFILES: Row = Row {
    title: "profiles of one profile device",
    scope: Scope::ProfileDevice,
    vendor: None,
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[ro("/sys/class/platform-profile/{profile-device}/choices", Form::Words)],
    about: "The words that device-profile takes on this device. Some drivers take more words than they list, so that \
            another device's words are found among theirs.",
    interacts: &[(Id::DeviceProfile, "takes one of them")],
    role: Role::Fact,
};

pub(super) const SCHEDULER: Row = Row {
    title: "scheduler loaded through sched_ext",
    scope: Scope::Machine,
    vendor: None,
    shown: Visibility::in_section(Section::Machine),
    mechanisms: &[ro("/sys/kernel/sched_ext/root/ops", Form::Word)],
    about: "The name of the BPF scheduler that has replaced the kernel's own, if one is loaded. Under schedutil, a \
            scheduler that takes all tasks and asks for no frequency makes CPUs run at their highest.",
    interacts: &[
        (Id::SchedulerChanges, "tells whether another was loaded meanwhile"),
        (Id::Governor, "schedutil follows what it asks for"),
    ],
    role: Role::Fact,
};

pub(super) const SCHEDULER_STATE: Row = Row {
    title: "state of sched_ext",
    scope: Scope::Machine,
    vendor: None,
    shown: Visibility::on_request(Section::Machine),
    mechanisms: &[ro("/sys/kernel/sched_ext/state", Form::Word)],
    about: "enabled while a BPF scheduler runs the tasks, disabled while the kernel's own does, and enabling or \
            disabling in between.",
    interacts: &[(Id::Scheduler, "names it")],
    role: Role::Fact,
};

pub(super) const SCHEDULER_CHANGES: Row = Row {
    title: "schedulers loaded through sched_ext since boot",
    scope: Scope::Machine,
    vendor: None,
    shown: Visibility::on_request(Section::Machine),
    mechanisms: &[ro("/sys/kernel/sched_ext/enable_seq", Form::Count)],
    about: "The kernel counts each BPF scheduler that it enables. If the count differs between two readings, a \
            scheduler was loaded or replaced in between.",
    interacts: &[(Id::Scheduler, "is the present one")],
    role: Role::Fact,
};
