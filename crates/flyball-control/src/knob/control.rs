//! Properties of a table row besides its name and files: how flyball writes, checks, saves and
//! shows it, and which other programs write it. A row that omits one of them does not compile.

use flyball_host::Errno;

use super::{
    Id,
    order::{Bound, Step, Turn},
    spelling::Spelling,
    subject::Subject,
};
use crate::programs::Program;

/// The role of a row: a fact, or a knob with everything that is needed to set it.
#[derive(Debug)]
pub enum Role {
    /// Read-only.
    Fact,
    /// Can be set.
    Knob(Control),
}

/// Everything that is needed to set a knob.
#[derive(Debug)]
pub struct Control {
    /// The accepted values, in words.
    pub accepts: &'static str,
    /// The values of the words `min` and `max`.
    pub ends: Ends,
    /// The check that a value must pass before it is written.
    pub check: Check,
    /// The knobs and facts that the planner checks a setting against, besides the knob itself. A
    /// snapshot for an intent holds these. `tests/control/settings.rs` plans settings of every knob
    /// and fails if one is missing.
    pub judged_by: &'static [Id],
    /// Changes that make the knob's files appear. Empty if the files exist from boot on.
    pub appears_with: &'static [AppearsWith],
    /// When `save` puts it into a profile.
    pub saved: Saved,
    /// Other programs that write it.
    pub written_by: &'static [Program],
    /// How it is written.
    pub writing: Writing,
}

/// How a setting is written, and what that does.
#[derive(Debug)]
pub struct Writing {
    /// The step in which it is written.
    pub turn: Turn,
    /// How its contents are spelled.
    pub spelling: Spelling,
    /// Which end of a range it is, if any.
    pub bound: Bound,
    /// Other settings that a write may change; see `table/effects.rs` for the groups.
    pub disturbs: &'static [Disturbs],
    /// Errnos that have a special meaning here.
    pub refusals: &'static [Refusal],
}

impl Writing {
    /// Returns the writing of a setting that belongs to one step, disturbs no other setting, is not
    /// an end of a range, and gives no errno a special meaning.
    pub const fn alone(step: Step, spelling: Spelling) -> Writing {
        Writing { turn: Turn::In(step), spelling, bound: Bound::None, disturbs: &[], refusals: &[] }
    }
}

/// Settings besides its own that a write may change.
#[derive(Debug, Clone, Copy)]
pub enum Disturbs {
    /// Settings that share a CPU or a power domain with the written location.
    Here(&'static [Subject]),
    /// These settings everywhere on the machine.
    Everywhere(&'static [Subject]),
    /// Interrupts that are restricted to some CPUs. When the last of these CPUs goes offline, the
    /// kernel allows all CPUs and forgets the restriction (`migrate_one_irq` in
    /// kernel/irq/cpuhotplug.c).
    PinnedInterrupts,
}

/// The meaning of these errnos if the kernel refuses a write with one of them.
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

/// A change that creates a knob's files, or makes them readable. Until then, a plan cannot read the
/// knob and says that its value will be checked later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppearsWith {
    /// The CPU comes online: the kernel removes the folders of a policy, a CPU, a die and a package
    /// with their last CPU.
    Cpu,
    /// The driver's mode changes. Each mode has its own files, and creates its policies' files with
    /// the policies (drivers/cpufreq/cpufreq.c, `cpufreq_add_dev_interface`).
    DriverMode,
    /// A policy switches to this governor. Its tunables exist while some policy uses it
    /// (drivers/cpufreq/cpufreq_governor.c, `cpufreq_dbs_governor_init`).
    Governor(&'static str),
    /// The performance level of Speed Select changes: each level has its own features.
    Level,
}

/// The values of the words `min` and `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// The words are not values of the knob.
    None,
    /// The values of these rows at the place.
    Rows(Id, Id),
    /// `max` is the value of this row at the place; `min` is not a value.
    UpToRow(Id),
    /// These numbers, in the knob's unit.
    Numbers(u32, u32),
}

/// The check that a value must pass before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Every value that parses.
    Any,
    /// One of the words that this row lists.
    Listed(Id),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A number up to this maximum.
    UpTo(u64),
    /// A frequency between [`Ends`], if they can be read.
    BetweenEnds,
    /// A frequency between [`Ends`] in steps of 100 MHz.
    BetweenEndsInSteps,
    /// A preference word of the driver, or a number if the driver accepts numbers.
    Preference,
    /// A mode of the driver that the machine has.
    DriverMode,
    /// A CPU that the kernel lets go offline.
    Online,
    /// A word that the present state of SMT's switch accepts.
    Smt,
    /// A power within reason.
    Power,
    /// A time window that can be restored.
    Window,
    /// A time that the register of CPPC can hold.
    ActivityWindow,
    /// A time other than 0, which would mean the opposite.
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
    /// Returns the row that holds the accepted words, if one does.
    pub fn list(self) -> Option<Id> {
        match self {
            Check::Listed(list) => Some(list),
            Check::Preference => Some(Id::AvailableEpp),
            _ => None,
        }
    }
}

/// When `save` puts a setting into a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saved {
    Always,
    /// Never: the setting belongs to the firmware, or is only temporary.
    Never,
    /// If a file accepts it: CPU 0 has no switch, and some registers can only be read.
    WhereWritable,
    /// If the user chose it. Under the governor `performance`, the governor sets the preference.
    OwnPreference,
    /// While turbo is on. Turbo off overrides it.
    WithTurbo,
    /// Unless its value is this word, which reports a state and cannot be set.
    UnlessWord(&'static str),
}

/// The section in which `show` prints a row, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visibility {
    /// The part of the screen.
    pub section: Section,
    /// When `show` prints it without being asked.
    pub when: When,
}

/// A part of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// Machine-wide values.
    Machine,
    /// The table of CPUs, where it splits CPUs into groups.
    Cpus,
    /// The table of CPUs, without splitting groups.
    Current,
    /// The firmware's performance levels.
    Levels,
    Idle,
    Uncore,
    /// Power limits and energy counters.
    Power,
    /// Temperatures and throttling.
    Heat,
    /// A separate line below the tables.
    Line,
}

/// When a row is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Always,
    /// Only by name or with `--all`: constants of the driver, registers that repeat files, details.
    OnRequest,
    /// Also if a knob has this value.
    Holds(Id, &'static str),
    /// Also if no place has a value of this knob, which would say as much or more.
    Lacks(Id),
}

impl Visibility {
    pub const fn in_section(section: Section) -> Visibility {
        Visibility { section, when: When::Always }
    }

    /// Shows the row on request.
    pub const fn on_request(section: Section) -> Visibility {
        Visibility { section, when: When::OnRequest }
    }

    /// Shows the row on request, and if no place has a value of `id`.
    pub const fn without(section: Section, id: Id) -> Visibility {
        Visibility { section, when: When::Lacks(id) }
    }

    /// Shows the row on request, and if `id` has the value `value`.
    pub const fn with(section: Section, id: Id, value: &'static str) -> Visibility {
        Visibility { section, when: When::Holds(id, value) }
    }
}
