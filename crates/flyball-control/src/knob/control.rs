//! What a row of the table states besides its name and its files: how it is written, judged, saved
//! and shown, and which other programs write it. A row that leaves one of these out does not
//! compile.

use flyball_host::Errno;

use super::{
    Id,
    order::{Bound, Step, Turn},
    spelling::Spelling,
    subject::Subject,
};
use crate::programs::Program;

/// Whether a row can be set, and then all that setting it takes.
#[derive(Debug)]
pub enum Role {
    /// It is read only.
    Fact,
    /// It can be set.
    Knob(Control),
}

/// What setting a knob takes.
#[derive(Debug)]
pub struct Control {
    /// The accepted values, in words.
    pub accepts: &'static str,
    /// What the words `min` and `max` stand for.
    pub ends: Ends,
    /// What a value is judged by before it is written.
    pub check: Check,
    /// The knobs and facts that the planner looks at to judge a setting, besides the knob itself: a
    /// snapshot for an intent holds these. `tests/control/settings.rs` plans settings of every knob
    /// and fails where one is left out.
    pub judged_by: &'static [Id],
    /// What, when it changes, makes the knob's files appear. Empty where they are there from boot
    /// on.
    pub appears_with: &'static [AppearsWith],
    /// The knob to use for a part of the machine, where this one is machine-wide.
    pub narrower: Option<Id>,
    /// Whether `save` takes it into a profile.
    pub saved: Saved,
    /// Other programs that write it.
    pub written_by: &'static [Program],
    /// How it is written.
    pub writing: Writing,
}

/// How a setting is written, and what that does.
#[derive(Debug)]
pub struct Writing {
    /// When a write has its turn.
    pub turn: Turn,
    /// How its contents are spelled.
    pub spelling: Spelling,
    /// Which end of a range it is.
    pub bound: Bound,
    /// What else a write may change; see `table/effects.rs` for the groups.
    pub disturbs: &'static [Disturbs],
    /// What an errno means here, where it means more than elsewhere.
    pub refusals: &'static [Refusal],
}

impl Writing {
    /// A setting of one step whose write disturbs nothing else: no end of a range, and no errno
    /// with a meaning of its own.
    pub const fn alone(step: Step, spelling: Spelling) -> Writing {
        Writing { turn: Turn::In(step), spelling, bound: Bound::None, disturbs: &[], refusals: &[] }
    }
}

/// Settings that a write may change besides its own.
#[derive(Debug, Clone, Copy)]
pub enum Disturbs {
    /// Where they share a CPU or a power domain with the location written.
    Here(&'static [Subject]),
    /// Wherever the machine has them.
    Everywhere(&'static [Subject]),
    /// Interrupts that may not be on every CPU: when the last CPU that one may be on goes offline,
    /// the kernel lets it be anywhere, and forgets (`migrate_one_irq` in kernel/irq/cpuhotplug.c).
    PinnedInterrupts,
}

/// What it means that the kernel refuses a write with one of these errnos.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    pub errnos: &'static [Errno],
    /// The likely reason, with the remedy. `{name}` stands for the content of the file `name` in
    /// the same folder.
    pub means: &'static str,
}

impl Refusal {
    pub const fn new(errnos: &'static [Errno], means: &'static str) -> Refusal {
        Refusal { errnos, means }
    }
}

/// A change that makes files of a knob appear, or makes them answer: until it is made, a plan
/// cannot read the knob, and says that its write is judged later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppearsWith {
    /// The CPU comes online: the kernel removes the folders of a policy, a CPU, a die and a package
    /// with their last CPU.
    Cpu,
    /// The driver's mode changes: a mode has files of its own, and makes its policies' files with
    /// the policies (drivers/cpufreq/cpufreq.c, `cpufreq_add_dev_interface`).
    DriverMode,
    /// A policy gets this governor: its tunables are there while a policy has it
    /// (drivers/cpufreq/cpufreq_governor.c, `cpufreq_dbs_governor_init`).
    Governor(&'static str),
    /// The performance level of Speed Select changes: each level has its own features.
    Level,
}

/// What the words `min` and `max` stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// They are not values of the knob.
    None,
    /// The values of these rows at the place.
    Rows(Id, Id),
    /// `max` is the value of this row at the place; `min` is not a value.
    UpToRow(Id),
    /// These numbers, in the knob's unit.
    Numbers(u32, u32),
}

/// What a value is judged by before it is written: that the machine takes it at this place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Every value that parses.
    Any,
    /// A word of the list that this row holds.
    Listed(Id),
    /// A word of these.
    OneOf(&'static [&'static str]),
    /// A number up to this one.
    UpTo(u64),
    /// A frequency between [`Ends`], where they can be read.
    BetweenEnds,
    /// The same in steps of 100 MHz.
    BetweenEndsInSteps,
    /// A preference word of the driver, or a number where the driver takes numbers.
    Preference,
    /// A mode of the driver that the machine has.
    DriverMode,
    /// A CPU that the kernel lets go offline.
    Online,
    /// A power within reason.
    Power,
    /// A time window that can be restored.
    Window,
    /// A time that is not 0, which would mean the opposite.
    NotZero,
    /// A performance level that the processor has.
    Level,
    /// A frequency that the class's register can hold.
    ClassFrequency,
    /// CPUs of the place, with one CPU left for everything else.
    PartitionCpus,
    /// Turbo ratio limits in hexadecimal.
    Ratios,
}

impl Check {
    /// The row that holds the accepted words, where one does.
    pub fn list(self) -> Option<Id> {
        match self {
            Check::Listed(list) => Some(list),
            Check::Preference => Some(Id::AvailableEpp),
            _ => None,
        }
    }
}

/// Whether `save` takes a setting into a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saved {
    Always,
    /// Never: it belongs to the machine's firmware, or is a fact of the moment.
    Never,
    /// Where a file takes it: CPU 0 has no switch, and some registers can only be read.
    WhereWritable,
    /// Where it was chosen: under the governor `performance` the preference is the governor's.
    OwnPreference,
    /// While turbo is on: off overrides it.
    WithTurbo,
}

/// Where `show` prints a row, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// The part of the screen.
    pub section: Section,
    /// When it is there without being asked for.
    pub when: When,
}

/// A part of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// Machine-wide values.
    Machine,
    /// The table of CPUs: where groups of CPUs differ.
    Cpus,
    /// The table of CPUs, without making them different.
    Current,
    /// The firmware's performance levels.
    Levels,
    Idle,
    Uncore,
    /// Power limits and energy counters.
    Power,
    /// Temperatures and throttling.
    Heat,
    /// A line of its own below the tables.
    Line,
}

/// When a row is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Always,
    /// By name or with `--all`: constants of the driver, registers that repeat what files say, fine
    /// points.
    OnRequest,
    /// Also where a knob has this value.
    Holds(Id, &'static str),
    /// Also where no place has a value of this knob, which says the same or more.
    Lacks(Id),
}

impl Shown {
    pub const fn in_section(section: Section) -> Shown {
        Shown { section, when: When::Always }
    }

    /// When asked for.
    pub const fn on_request(section: Section) -> Shown {
        Shown { section, when: When::OnRequest }
    }

    /// When asked for, and where no place has a value of `id`.
    pub const fn without(section: Section, id: Id) -> Shown {
        Shown { section, when: When::Lacks(id) }
    }

    /// When asked for, and where `id` has the value `value`.
    pub const fn with(section: Section, id: Id, value: &'static str) -> Shown {
        Shown { section, when: When::Holds(id, value) }
    }
}
