//! Checks whether a machine is set up as it should be.
//!
//! Each check answers one question, from firmware to daemons, with a [`Finding`]: what the check
//! found, where it read that, why it matters, and what to do. A check that cannot read what it
//! needs returns [`Verdict::Unknown`] with the reason, not [`Verdict::Ok`]. Checks only read,
//! through [`flyball_host::Host`], so they work on recorded and simulated machines too.
//!
//! `facts` gathers what several checks need. Each group of checks has a module, and [`CHECKS`] is
//! the table of all checks.

// All checks share one signature, even those that always have an answer.
#![allow(clippy::unnecessary_wraps)]

/// Returns the value that was read. If the read failed, ends the check with the reason.
macro_rules! seen {
    ($read:expr) => {
        match $read {
            Ok(value) => value,
            Err(why) => return Some(unknown(why)),
        }
    };
}

mod amd_firmware;
mod amd_pstate;
pub mod amd_pstate_write;
mod chosen;
mod conflicts;
mod driver;
mod facts;
mod firmware;
mod firmware_limits;
mod idle;
mod limits;
mod models;
mod now;
mod pass;
mod platform;
mod requests;
mod settings;
mod speed_select;
mod storpool;

pub use facts::{Facts, Policy};
pub use pass::Unseen;

pub use crate::Evidence;
use crate::{Id, KnobName, ReadError, Setting, Vendor, intent::IntentError};

use flyball_host::Host;
use serde::Serialize;

/// How bad a finding is, in order of severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, schemars::JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "DoctorVerdict")]
pub enum Verdict {
    /// Nothing to complain about.
    Ok,
    /// Could not be examined; `what` says why.
    Unknown,
    /// Worth knowing; nothing is wrong.
    Note,
    /// Costs performance or power, or makes measurements unsafe.
    Warning,
    /// Broken or contradictory.
    Fault,
}

impl Verdict {
    /// Returns the word that reports print.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Unknown => "unknown",
            Verdict::Note => "note",
            Verdict::Warning => "warning",
            Verdict::Fault => "fault",
        }
    }
}

/// A section of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, schemars::JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Which driver runs, in which mode, and why a better one does not.
    Driver,
    /// The kernel's amd-pstate unit tests, repeated from user space.
    AmdPstate,
    /// Firmware settings that are visible from the running system.
    Firmware,
    /// Settings that contradict each other.
    Conflicts,
    /// Current state: throttling, heat, offline CPUs, competing programs.
    Now,
    /// Findings from a trace of the driver's decisions, if one is given.
    Trace,
    /// The recommendations of a published page, on request.
    Recommended,
}

impl Group {
    /// Returns the heading in the report.
    pub fn title(self) -> &'static str {
        match self {
            Group::Driver => "Driver",
            Group::AmdPstate => "amd-pstate tests",
            Group::Firmware => "Firmware",
            Group::Conflicts => "Contradictions",
            Group::Now => "At this moment",
            Group::Trace => "In the trace",
            Group::Recommended => "Recommended settings",
        }
    }
}

/// A knob and the value to set it to: `KNOB=VALUE` as text, as `flyball set` takes it.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, derive_more::Display)]
#[schemars(with = "String")]
#[display("{}={}", name, value)]
pub struct KnobValue {
    pub name: KnobName,
    pub value: String,
}

impl KnobValue {
    pub fn new(name: impl Into<KnobName>, value: impl Into<String>) -> KnobValue {
        KnobValue { name: name.into(), value: value.into() }
    }

    /// Returns this value as a setting of the whole machine.
    ///
    /// # Errors
    /// The knob does not take the value.
    pub fn setting(&self) -> Result<Setting, IntentError> {
        Setting::new(&self.name.to_string(), &self.value, None, self.to_string())
    }
}

impl Serialize for KnobValue {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The remedy for a finding.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case", tag = "by", content = "do")]
pub enum Fix {
    /// Settings that flyball can make.
    Settings(Vec<KnobValue>),
    /// A kernel parameter to add, change or remove, with the action in words.
    KernelParameter(String),
    /// A firmware setup entry to look for.
    Firmware(String),
    /// Something to do outside flyball.
    Person(String),
}

/// The result that the kernel's amd-pstate-ut module would report on this machine and kernel.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct KernelTest {
    /// Name in the module.
    pub name: &'static str,
    pub passes: bool,
    /// The complaint of a test that would fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

/// The answer of one check.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct Finding {
    /// The check's stable name, `group.question`.
    pub id: &'static str,
    pub group: Group,
    pub verdict: Verdict,
    /// The finding in one sentence.
    pub what: String,
    /// Why it matters, in a sentence or two.
    pub why: &'static str,
    pub evidence: Vec<Evidence>,
    /// The remedy, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<Fix>,
    /// The result of the kernel's own test of this question, if this kernel's module has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_test: Option<KernelTest>,
    /// True if the verdict is [`Verdict::Unknown`] only because a recording lacks the files that
    /// the check reads.
    #[serde(skip)]
    pub not_recorded: bool,
    /// The policies that the check compared: the value of each and the files that hold it.
    #[serde(skip)]
    pub compared: Compared,
}

/// Values, each with the files that hold it.
pub type Compared = Vec<(String, Vec<String>)>;

/// The answer of a check's function. The table adds id, group and reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    verdict: Verdict,
    what: String,
    evidence: Vec<Evidence>,
    fix: Option<Fix>,
    kernel_test: Option<KernelTest>,
    not_recorded: bool,
    compared: Compared,
}

impl Answer {
    pub fn new(verdict: Verdict, what: impl Into<String>) -> Answer {
        let (evidence, fix, kernel_test) = (Vec::new(), None, None);
        let compared = Vec::new();
        Answer { verdict, what: what.into(), evidence, fix, kernel_test, not_recorded: false, compared }
    }

    /// Adds evidence: a location and the value read there.
    #[must_use]
    pub fn seen(mut self, place: impl Into<String>, value: impl Into<String>) -> Answer {
        self.evidence.push(Evidence { place: place.into(), value: value.into() });
        self
    }

    #[must_use]
    pub fn fix(mut self, fix: Fix) -> Answer {
        self.fix = Some(fix);
        self
    }

    /// Proposes an act of a person as the fix.
    #[must_use]
    fn person(self, act: impl Into<String>) -> Answer {
        self.fix(Fix::Person(act.into()))
    }

    /// Proposes a firmware setting as the fix.
    #[must_use]
    fn firmware(self, setting: impl Into<String>) -> Answer {
        self.fix(Fix::Firmware(setting.into()))
    }

    /// Proposes a change of the kernel's command line as the fix.
    #[must_use]
    fn parameter(self, change: impl Into<String>) -> Answer {
        self.fix(Fix::KernelParameter(change.into()))
    }

    /// Proposes this setting as the fix.
    #[must_use]
    fn set(self, knob: Id, value: impl Into<String>) -> Answer {
        self.fix(Fix::Settings(vec![KnobValue::new(knob, value)]))
    }
}

fn finding(id: &'static str, group: Group, why: &'static str, answer: Answer) -> Finding {
    let Answer { verdict, what, evidence, fix, kernel_test, not_recorded, compared } = answer;
    Finding { id, group, verdict, what, why, evidence, fix, kernel_test, not_recorded, compared }
}

fn ok(what: impl Into<String>) -> Answer {
    Answer::new(Verdict::Ok, what)
}

fn unknown(why: impl Into<Unseen>) -> Answer {
    let why = why.into();
    let not_recorded = matches!(why, Unseen::NotRecorded(_));
    Answer { not_recorded, ..Answer::new(Verdict::Unknown, why.to_string()) }
}

fn note(what: impl Into<String>) -> Answer {
    Answer::new(Verdict::Note, what)
}

fn warning(what: impl Into<String>) -> Answer {
    Answer::new(Verdict::Warning, what)
}

fn fault(what: impl Into<String>) -> Answer {
    Answer::new(Verdict::Fault, what)
}

/// One row of the table of checks.
#[derive(Debug)]
pub struct Check {
    /// Stable name, `group.question`.
    pub id: &'static str,
    /// Why the question matters, in a sentence or two.
    pub why: &'static str,
    /// The files, registers and parameters that it reads.
    pub looks: &'static str,
    /// Files that must be readable on every policy (`scaling_governor`) or online CPU
    /// (`cpuN/acpi_cppc/nominal_freq`) for [`Verdict::Ok`], if any policy or CPU has them.
    pub covers: &'static [&'static str],
    /// Answers the question; `None` if it does not apply to the machine.
    run: fn(&Facts) -> Option<Answer>,
}

impl Check {
    const fn new(
        id: &'static str,
        why: &'static str,
        looks: &'static str,
        run: fn(&Facts) -> Option<Answer>,
    ) -> Check {
        Check { id, why, looks, covers: &[], run }
    }

    const fn covers(self, covers: &'static [&'static str]) -> Check {
        Check { covers, ..self }
    }

    /// Returns the section of the report, which the first word of the name decides.
    pub fn group(&self) -> Group {
        match self.id.split('.').next() {
            Some("driver") => Group::Driver,
            Some("amd-pstate") => Group::AmdPstate,
            Some("firmware") => Group::Firmware,
            Some("conflict") => Group::Conflicts,
            Some("storpool") => Group::Recommended,
            _ => Group::Now,
        }
    }
}

/// Every check, in the order in which they run.
pub static CHECKS: &[&[Check]] = &[
    driver::CHECKS,
    amd_pstate::CHECKS,
    firmware::CHECKS,
    firmware_limits::CHECKS,
    amd_firmware::CHECKS,
    platform::CHECKS,
    conflicts::CHECKS,
    settings::CHECKS,
    requests::CHECKS,
    idle::CHECKS,
    speed_select::CHECKS,
    now::CHECKS,
    limits::CHECKS,
    storpool::CHECKS,
];

/// A machine that hides the processors' settings.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct NotVisible {
    pub what: String,
    /// A place to look instead.
    pub remedy: String,
    /// How it was recognised.
    pub evidence: Vec<Evidence>,
}

/// The doctor's answers.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct Report {
    /// The machine's name as given after `-M`.
    pub machine: String,
    pub kind: flyball_host::Kind,
    /// The processor, from /proc/cpuinfo.
    pub processor: String,
    /// The kernel's release; `None` if it was not recorded.
    pub kernel: Option<String>,
    /// Set if the machine hides its processors; there are no findings then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_visible: Option<NotVisible>,
    /// The findings, in table order.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Returns the worst verdict; [`Verdict::Ok`] without findings.
    pub fn worst(&self) -> Verdict {
        self.findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok)
    }

    /// Returns the findings with a verdict of at least `verdict`, worst first, in table order
    /// within a verdict.
    pub fn from(&self, verdict: Verdict) -> Vec<&Finding> {
        let mut found: Vec<&Finding> = self.findings.iter().filter(|f| f.verdict >= verdict).collect();
        // The sort is stable: within a verdict the table's order remains.
        found.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
        found
    }

    /// Returns the settings of all fixes that flyball can make itself, those of the worst findings
    /// first. Each knob appears once: the worse finding wins.
    pub fn settings(&self) -> Vec<KnobValue> {
        let mut settings: Vec<KnobValue> = Vec::new();
        for finding in self.from(Verdict::Note) {
            let Some(Fix::Settings(asked)) = &finding.fix else { continue };
            for setting in asked {
                if settings.iter().all(|known| known.name.knob != setting.name.knob) {
                    settings.push(setting.clone());
                }
            }
        }
        settings
    }
}

/// Which checks to run beyond the usual ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Compare the machine with the StorPool page's values for Xeon Scalable processors.
    pub storpool: bool,
}

/// Returns why a check is incomplete: it could read a file on one policy or CPU but not on another.
/// Otherwise a check would return ok after seeing only a part of the machine.
fn gap_in_coverage(facts: &Facts, check: &Check) -> Option<Unseen> {
    if let (false, Err(why)) = (check.covers.is_empty(), &facts.online_is_listed) {
        return Some(why.clone());
    }
    check.covers.iter().find_map(|name| {
        let missing: flyball_host::CpuList = match name.strip_prefix("cpuN/") {
            Some(name) => {
                let path = |cpu: u32| format!("/sys/devices/system/cpu/cpu{cpu}/{name}");
                facts.online.iter().filter(|&cpu| facts.read(&path(cpu)).is_err()).collect()
            }
            None => {
                let having = facts.policies.iter().filter(|policy| policy.get(name).is_some());
                facts
                    .online
                    .difference(&having.flat_map(|policy| policy.cpus.iter().collect::<Vec<_>>()).collect())
            }
        };
        // A file missing everywhere is not a gap: this driver or processor lacks it, and the check
        // expects that.
        let partly = !missing.is_empty() && missing.len() < facts.online.len();
        partly.then(|| format!("{name} cannot be read on CPUs {missing}, so they were not examined").into())
    })
}

/// Runs the checks. Only reads.
///
/// # Errors
/// The list of processors cannot be read.
pub fn examine(host: &dyn Host, options: Options) -> Result<Report, ReadError> {
    // Without /sys nothing can be read, and a page of unknowns would hide the cause.
    if let Some(hidden) = now::nothing_visible(host) {
        return Ok(Report {
            machine: host.name(),
            kind: host.kind(),
            processor: "unknown processor".to_owned(),
            kernel: None,
            not_visible: Some(hidden),
            findings: Vec::new(),
        });
    }
    let facts = Facts::gather(host)?;
    // In a guest or a container, every check would be unknown for the same reason.
    let not_visible = now::not_visible(&facts);
    let mut findings = Vec::new();
    if not_visible.is_none() {
        for check in CHECKS.iter().copied().flatten() {
            if check.group() == Group::Recommended && !options.storpool {
                continue;
            }
            if let Some(answer) = (check.run)(&facts) {
                let answer = match gap_in_coverage(&facts, check) {
                    // A problem stays a problem even if something else could not be read. Only an
                    // ok requires that everything was seen.
                    Some(why) if answer.verdict == Verdict::Ok => {
                        Answer { evidence: answer.evidence, ..unknown(why) }
                    }
                    _ => answer,
                };
                findings.push(finding(check.id, check.group(), check.why, answer));
            }
        }
    }
    Ok(Report {
        machine: host.name(),
        kind: host.kind(),
        processor: facts.processor.clone(),
        kernel: facts.kernel.clone(),
        not_visible,
        findings,
    })
}
