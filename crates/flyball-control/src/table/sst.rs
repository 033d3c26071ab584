//! Rows of Intel Speed Select: performance level, features, classes of service.

use flyball_host::Vendor;
use flyball_sst::setting::Field;

use super::effects;
use crate::{
    Id,
    knob::{
        AppearsWith, Check, Control, Disturbs, Ends, Form, Mechanism, Role, Row, Saved, Scope, Section,
        Visibility, Writing,
        order::{Bound, Step, Turn},
        spelling::Spelling,
    },
};

const fn sst(field: Field, form: Form) -> Mechanism {
    // The driver reports both but has no call to set them.
    let write = !matches!(field, Field::Highest | Field::Locked);
    Mechanism::SpeedSelect { field, form, write }
}

/// Register value, in kHz, of a class of service that has no highest frequency.
// The field has 8 bits of 100 MHz. 255 is the largest value, which firmware writes for "no limit".
pub(crate) const NO_LIMIT: u32 = 25_500_000;
const SWITCH: &str = "on or off";
const NUMBER: &str = "a number from 0 to 15";

/// Features depend on the level and on core-power, so every setting is checked against all of
/// these.
const JUDGING: &[Id] = &[Id::SstLevel, Id::SstBf, Id::SstTf, Id::SstCp, Id::SstCpPriority];

/// A feature also switches on core-power, whose classes interact with the limits of cpufreq.
const JUDGING_FEATURES: &[Id] = &[
    Id::SstLevel,
    Id::SstBf,
    Id::SstTf,
    Id::SstCp,
    Id::SstCpPriority,
    Id::Turbo,
    Id::MaxFreq,
    Id::HwMaxFreq,
    Id::BaseFreq,
];

const JUDGING_LEVEL: &[Id] = &[
    Id::SstLevel,
    Id::SstBf,
    Id::SstTf,
    Id::SstCp,
    Id::SstCpPriority,
    Id::SstLocked,
    Id::SstApart,
    Id::Online,
    Id::Turbo,
    Id::MaxFreq,
    Id::HwMaxFreq,
    Id::BaseFreq,
];

const JUDGING_CLASSES: &[Id] = &[
    Id::SstLevel,
    Id::SstBf,
    Id::SstTf,
    Id::SstCp,
    Id::SstCpPriority,
    Id::ClosMin,
    Id::ClosMax,
    Id::BaseFreq,
    Id::NominalFreq,
];

/// The role of base-freq and turbo-freq: two switches in one word of a register, with the same
/// conditions.
const FEATURE: Role = Role::Knob(Control {
    accepts: SWITCH,
    ends: Ends::None,
    check: Check::Any,
    judged_by: JUDGING_FEATURES,
    appears_with: &[AppearsWith::Level],
    saved: Saved::Never,
    written_by: &[],
    writing: Writing {
        turn: Turn::Switch { off: Step::SpeedSelectOff, on: Step::SpeedSelectOn },
        spelling: Spelling::Number,
        bound: Bound::None,
        // Base-freq moves the guaranteed ratio and turbo-freq the turbo ratios. cpufreq's hardware
        // limits follow both.
        disturbs: &[Disturbs::Everywhere(effects::TURBO), Disturbs::Here(effects::FEATURES)],
        refusals: &[],
    },
});

/// Returns the role of a field in a class's register, or of a core's membership in a class.
const fn class_role(
    accepts: &'static str,
    ends: Ends,
    check: Check,
    judged_by: &'static [Id],
    bound: Bound,
) -> Role {
    Role::Knob(Control {
        accepts,
        ends,
        check,
        judged_by,
        appears_with: &[],
        saved: Saved::Never,
        written_by: &[],
        writing: Writing { bound, ..Writing::alone(Step::Classes, Spelling::Number) },
    })
}

pub(super) const LEVEL: Row = Row {
    title: "performance level (SST-PP)",
    scope: Scope::PowerDomain,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Line),
    mechanisms: &[sst(Field::Level, Form::Count)],
    about: "Trades cores for base frequency: a higher level lets fewer cores run, guarantees them a \
            higher frequency, and may have other power and temperature limits. CPUs outside the level \
            must be offline for the guarantee to hold: 'flyball sst perf-profile set-config-level -o' \
            takes them offline in the same step. Firmware may lock the level.",
    interacts: &[
        (Id::SstBf, "a change of level switches it off"),
        (Id::SstTf, "a change of level switches it off"),
        (Id::Online, "CPUs outside the level have to be offline"),
        (Id::BaseFreq, "is that of the level"),
    ],
    role: Role::Knob(Control {
        accepts: "the number of a level that the processor has, from 0",
        ends: Ends::None,
        check: Check::Level,
        judged_by: JUDGING_LEVEL,
        appears_with: &[],
        saved: Saved::Never,
        written_by: &[],
        writing: Writing {
            disturbs: &[
                // With the level, firmware changes which CPUs may run, their base and turbo
                // frequencies and the power limits. Then the driver clears the features
                // (isst_if_set_perf_level).
                Disturbs::Everywhere(effects::EVERYTHING),
                Disturbs::Everywhere(effects::UNCORE),
                Disturbs::Everywhere(effects::POWER),
                Disturbs::Here(effects::FEATURES),
                Disturbs::Here(effects::RATIOS),
            ],
            ..Writing::alone(Step::Level, Spelling::Number)
        },
    }),
};

pub(super) const BF: Row = Row {
    title: "base-freq (SST-BF)",
    scope: Scope::PowerDomain,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Line),
    mechanisms: &[sst(Field::BaseFreq, Form::Switch)],
    about: "Gives some cores, chosen by the processor, a higher base frequency and all others a lower \
            one. Use it if a few threads need guaranteed speed and can be pinned to those cores. It \
            needs classes of service (sst-cp), and not every performance level has it.",
    interacts: &[
        (Id::SstCp, "has to be on"),
        (Id::SstLevel, "not every level has it, and changing the level switches it off"),
        (Id::MinFreq, "a core is only held at its base frequency where its minimum is as high"),
    ],
    role: FEATURE,
};

pub(super) const TF: Row = Row {
    title: "turbo-freq (SST-TF)",
    scope: Scope::PowerDomain,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Line),
    mechanisms: &[sst(Field::TurboFreq, Form::Switch)],
    about: "Lets cores of classes 0 and 1 exceed the ordinary turbo limits while every core is busy, and \
            holds cores of classes 2 and 3 below a clip frequency. Choose the cores with clos. It needs \
            classes of service (sst-cp) and turbo, and not every performance level has it.",
    interacts: &[
        (Id::SstCp, "has to be on, and cannot go off before it"),
        (Id::Turbo, "has to be on"),
        (Id::SstLevel, "not every level has it, and changing the level switches it off"),
        (Id::Clos, "chooses the cores"),
    ],
    role: FEATURE,
};

pub(super) const CP: Row = Row {
    title: "core-power (SST-CP)",
    scope: Scope::PowerDomain,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Line),
    mechanisms: &[sst(Field::CorePower, Form::Switch)],
    about: "Switches classes of service on: when power runs short, the cores of a class get at least its \
            minimum and at most its maximum, and the remainder goes by weight or in order. sst-bf and \
            sst-tf need it.",
    interacts: &[
        (Id::SstTf, "cannot go off while turbo-freq is on"),
        (Id::MinFreq, "limits of cpufreq and of classes should not fight: the narrower one counts"),
    ],
    role: Role::Knob(Control {
        accepts: SWITCH,
        ends: Ends::None,
        check: Check::Any,
        judged_by: JUDGING_FEATURES,
        appears_with: &[],
        saved: Saved::Never,
        written_by: &[],
        writing: Writing {
            disturbs: &[Disturbs::Here(effects::CORE_POWER)],
            ..Writing::alone(Step::CorePower, Spelling::Number)
        },
    }),
};

pub(super) const PRIORITY: Row = Row {
    title: "how classes share power",
    scope: Scope::PowerDomain,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Line),
    mechanisms: &[sst(Field::Priority, Form::Word)],
    about: "Ordered: class 0 gets what it requests first, then class 1, and so on. Proportional: every \
            class gets a share by its weight. base-freq and turbo-freq need ordered. Skylake and Cascade \
            Lake servers have only ordered.",
    interacts: &[(Id::SstCp, "counts while it is on"), (Id::ClosWeight, "counts with proportional")],
    role: Role::Knob(Control {
        accepts: "ordered or proportional",
        ends: Ends::None,
        check: Check::OneOf(&["ordered", "proportional"]),
        judged_by: JUDGING,
        appears_with: &[],
        saved: Saved::Never,
        written_by: &[],
        writing: Writing {
            disturbs: &[Disturbs::Here(effects::CORE_POWER)],
            ..Writing::alone(Step::CorePower, Spelling::Text)
        },
    }),
};

pub(super) const CLOS_MIN: Row = Row {
    title: "lowest frequency of a class of service",
    scope: Scope::Clos,
    vendor: Some(Vendor::Intel),
    shown: Visibility::with(Section::Line, Id::SstCp, "on"),
    mechanisms: &[sst(Field::ClosMin(0), Form::MHz)],
    about: "The frequency that cores of the class get before lower-priority classes get power. \
            clos-min:0 is class 0; clos-0-min is another spelling. Values are rounded down to 100 MHz.",
    interacts: &[(Id::ClosMax, "must not be below it"), (Id::SstCp, "counts while it is on")],
    role: class_role(
        "a frequency with its unit in steps of 100MHz (2.4GHz), min or base",
        Ends::Numbers(0, NO_LIMIT),
        Check::ClassFrequency,
        JUDGING_CLASSES,
        Bound::Lower,
    ),
};

pub(super) const CLOS_MAX: Row = Row {
    title: "highest frequency of a class of service",
    scope: Scope::Clos,
    vendor: Some(Vendor::Intel),
    shown: Visibility::with(Section::Line, Id::SstCp, "on"),
    mechanisms: &[sst(Field::ClosMax(0), Form::MHz)],
    about: "The frequency that cores of the class never exceed while core-power is on. max means no \
            limit. clos-max:3 is class 3.",
    interacts: &[(Id::ClosMin, "must not be above it"), (Id::MaxFreq, "the lower of the two counts")],
    role: class_role(
        "a frequency with its unit in steps of 100MHz (3.1GHz), or max for none",
        Ends::Numbers(0, NO_LIMIT),
        Check::ClassFrequency,
        JUDGING_CLASSES,
        Bound::Upper,
    ),
};

pub(super) const CLOS_WEIGHT: Row = Row {
    title: "proportional priority of a class of service",
    scope: Scope::Clos,
    vendor: Some(Vendor::Intel),
    shown: Visibility::with(Section::Line, Id::SstCp, "on"),
    mechanisms: &[sst(Field::ClosWeight(0), Form::Count)],
    about: "Sets how little a class gets when power is shared in proportion: 0 gets most, 15 least. \
            Skylake and Cascade Lake servers have only ordered priority and ignore it.",
    interacts: &[(Id::SstCpPriority, "counts with proportional")],
    role: class_role(NUMBER, Ends::None, Check::UpTo(15), JUDGING, Bound::None),
};

pub(super) const CLOS_EPP: Row = Row {
    title: "energy preference of a class of service",
    scope: Scope::Clos,
    vendor: Some(Vendor::Intel),
    shown: Visibility::on_request(Section::Line),
    mechanisms: &[sst(Field::ClosEpp(0), Form::Count)],
    about: "Between performance (0) and energy (15) for the cores of a class. Only processors with a mailbox (Ice Lake to \
            Emerald Rapids) have it; later ones take the preference of each CPU instead.",
    interacts: &[(Id::Epp, "the preference of a CPU, which every processor has")],
    role: class_role(NUMBER, Ends::None, Check::UpTo(15), JUDGING, Bound::None),
};

pub(super) const CLOS: Row = Row {
    title: "class of service of a core",
    scope: Scope::Core,
    vendor: Some(Vendor::Intel),
    shown: Visibility::with(Section::Line, Id::SstCp, "on"),
    mechanisms: &[sst(Field::Class(0), Form::Count)],
    about: "Assigns a core to one of four classes of service, with all of its threads. With turbo-freq, \
            classes 0 and 1 have high priority.",
    interacts: &[(Id::SstCp, "counts while it is on"), (Id::SstTf, "classes 0 and 1 turbo high")],
    role: class_role("a class from 0 to 3", Ends::None, Check::UpTo(3), JUDGING, Bound::None),
};

pub(super) const TRL: Row = Row {
    title: "turbo ratio limits",
    scope: Scope::Package,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Line),
    mechanisms: &[sst(Field::TurboLimits, Form::Word)],
    about: "Highest turbo frequency by number of active cores, in eight buckets (MSR 0x1AD). turbo-freq \
            raises the limit temporarily.",
    interacts: &[(Id::SstTf, "its own limits replace these for high-priority cores")],
    role: Role::Knob(Control {
        accepts: "eight ratios of 100 MHz in hexadecimal, bucket 0 last: 0x1f1f1f1f1f1f1f20",
        ends: Ends::None,
        check: Check::Ratios,
        judged_by: JUDGING,
        appears_with: &[],
        saved: Saved::Never,
        written_by: &[],
        writing: Writing::alone(Step::Turbo, Spelling::Hexadecimal),
    }),
};

pub(super) const PARTITION: Row = Row {
    title: "CPUs set apart in a cgroup v2 partition",
    scope: Scope::PowerDomain,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Line),
    mechanisms: &[sst(Field::Partition, Form::Word)],
    about: "Keeps CPUs outside the performance level idle without taking them offline, in an isolated \
            cpuset partition. They keep their frequency policies and interrupts, and CPU 0, which cannot \
            go offline, can be among them. 'flyball sst perf-profile set-config-level --cgroup' sets the \
            list that fits the level.",
    interacts: &[
        (Id::SstLevel, "says which CPUs those are"),
        (Id::Online, "taking them offline is the other way"),
    ],
    role: Role::Knob(Control {
        accepts: "CPUs of the power domain as a list (4,6,12-13), or none",
        ends: Ends::None,
        check: Check::PartitionCpus,
        judged_by: JUDGING,
        appears_with: &[],
        saved: Saved::Never,
        written_by: &[],
        writing: Writing {
            // Setting CPUs apart is like taking them offline: it comes after everything that needs
            // these CPUs.
            turn: Turn::Switch { off: Step::Online, on: Step::Offline },
            spelling: Spelling::Text,
            bound: Bound::None,
            disturbs: &[],
            refusals: &[],
        },
    }),
};

pub(super) const HIGHEST: Row = Row {
    title: "highest performance level (SST-PP)",
    scope: Scope::PowerDomain,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Line),
    mechanisms: &[sst(Field::Highest, Form::Count)],
    about: "The number of the highest performance level of the power domain; 0 where there is only the base level. What \
            each level offers is in 'flyball sst perf-profile info'.",
    interacts: &[(Id::SstLevel, "may be any level up to it that the processor has")],
    role: Role::Fact,
};

pub(super) const LOCKED: Row = Row {
    title: "performance level locked by firmware",
    scope: Scope::PowerDomain,
    vendor: Some(Vendor::Intel),
    shown: Visibility::in_section(Section::Line),
    mechanisms: &[sst(Field::Locked, Form::Switch)],
    about: "Whether firmware refuses another performance level. A BIOS setup entry (dynamic SST-PP, or speed select \
            configuration) unlocks it where the vendor offers one.",
    interacts: &[(Id::SstLevel, "cannot be changed while locked")],
    role: Role::Fact,
};
