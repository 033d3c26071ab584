//! Findings about settings that the user made with flyball. They are not alarms, since the user
//! chose them for another purpose.

use std::collections::BTreeSet;

use flyball_host::Host;

use super::{Evidence, Finding, Fix, Group, Report, Verdict};
use crate::{
    Intent, Location, Snapshot,
    knob::spelling::Spelling,
    place::is_uncore_cluster,
    plan::{Change, plan},
    write::journal::{Contents, Entry},
};

impl Report {
    /// Turns warnings about settings that flyball made into notes that name the command, according
    /// to the journal. Keeps [`Report::settings`] from undoing them. A fault remains a fault.
    pub fn note_choices(&mut self, host: &dyn Host, journal: &Contents) {
        for finding in &mut self.findings {
            // The user asked for the comparison with a published page.
            let is_asked = finding.group == Group::Recommended;
            if is_asked || !matches!(finding.verdict, Verdict::Note | Verdict::Warning) {
                continue;
            }
            let Some(Entry { command, holds, .. }) = chosen_by(finding, host, journal) else { continue };
            finding.verdict = Verdict::Note;
            finding.what = format!("{} (set by '{command}')", finding.what);
            if let Some(Fix::Settings(_)) = &finding.fix {
                let undo = if holds.is_empty() {
                    "to undo it: flyball restore"
                } else {
                    "to undo it, release the hold that 'flyball hold list' shows"
                };
                finding.fix = Some(Fix::Person(undo.to_owned()));
            }
        }
    }
}

/// Returns the transaction that caused a finding. Either flyball wrote every location that the
/// remedy would change, or flyball made the policies differ, or it wrote a location in the evidence
/// that the remedy does not change. In each case the location still holds flyball's value.
fn chosen_by<'j>(finding: &Finding, host: &dyn Host, journal: &'j Contents) -> Option<&'j Entry> {
    let changes = finding.fix.as_ref().map(|fix| changes(fix, host)).unwrap_or_default();
    let made_by = |change: &Change| {
        let (entry, wrote) = journal.last_write(&change.location)?;
        let spelling = change.knob.knob().control()?.writing.spelling;
        spelling.agrees(wrote.trimmed(), change.old.as_deref()?.trim()).then_some(entry)
    };
    let entries: Option<Vec<&Entry>> = changes.iter().map(made_by).collect();
    let by_changes = entries.and_then(|entries| entries.last().copied());
    if let Some(entry) = by_changes.or_else(|| differs_by(finding, host, journal)) {
        return Some(entry);
    }
    if !finding.compared.is_empty() {
        return None;
    }
    let Evidence { place, .. } = finding.evidence.first()?;
    if changes.iter().any(|change| change.location.path() == Some(place)) {
        return None;
    }
    holds(place, host, journal)
}

/// Returns the transaction that made policies differ, if the policies that flyball did not write
/// are all alike. If another program changed a file after flyball wrote it, that program caused the
/// difference.
fn differs_by<'j>(finding: &Finding, host: &dyn Host, journal: &'j Contents) -> Option<&'j Entry> {
    let is_overwritten = |file: &String| {
        let written = journal.last_write(&Location::File(file.clone())).is_some();
        written && holds(file, host, journal).is_none()
    };
    if finding.compared.iter().any(|(_, files)| files.iter().any(is_overwritten)) {
        return None;
    }
    let writer = |files: &[String]| files.iter().find_map(|file| holds(file, host, journal));
    let others = finding.compared.iter().filter(|(_, files)| writer(files).is_none());
    let others: BTreeSet<&str> = others.map(|(value, _)| value.as_str()).collect();
    if others.len() > 1 { None } else { finding.compared.iter().find_map(|(_, files)| writer(files)) }
}

/// Returns the transaction that wrote a file last, if the file still holds the written value.
fn holds<'j>(path: &str, host: &dyn Host, journal: &'j Contents) -> Option<&'j Entry> {
    let (entry, wrote) = journal.last_write(&Location::File(path.to_owned()))?;
    let found = host.read(path).ok()?;
    let is_same = wrote.trimmed() == found.trim() || Spelling::FrequencyLimit.agrees(wrote.trimmed(), &found);
    is_same.then_some(entry)
}

/// Returns the writes of a remedy.
fn changes(fix: &Fix, host: &dyn Host) -> Vec<Change> {
    let Fix::Settings(settings) = fix else { return Vec::new() };
    let intent = Intent { settings: settings.iter().filter_map(|one| one.setting().ok()).collect() };
    let snapshot = Snapshot::for_intent(host, &intent).ok();
    let planned = snapshot.and_then(|snapshot| plan(&snapshot, &intent).ok());
    let mut changes = planned.map_or_else(Vec::new, |plan| plan.changes);
    // Drop an entry above uncore clusters: it shows their widest range, and flyball may have
    // written only the clusters.
    let is_cluster = |change: &Change| {
        let (_, rest) = change.location.path()?.split_once("/intel_uncore_frequency/")?;
        Some(is_uncore_cluster(rest))
    };
    if changes.iter().any(|change| is_cluster(change) == Some(true)) {
        changes.retain(|change| is_cluster(change) != Some(false));
    }
    changes
}
