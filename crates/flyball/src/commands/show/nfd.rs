//! `show --nfd`: prints the machine as node labels for Kubernetes' Node Feature Discovery, in the
//! format of its directory features.d: a line `NAME=VALUE` without a domain, so that the label
//! becomes `feature.node.kubernetes.io/NAME`.

use std::{fmt::Write as _, path::Path, time::Duration};

use flyball_control::{Id, KnobName, Snapshot, SurveyOptions, survey};
use flyball_host::Host;
use flyball_text::date::Utc;

use super::facts::Facts;
use crate::{
    exit::{Exit, Failure},
    output::{self, Reporter},
    time::seconds_since_1970,
};

/// Maximum length of a label's value in Kubernetes (IsValidLabelValue in apimachinery's
/// validation.go).
const MAX: usize = 63;

/// Knobs that become labels, if the machine has them.
const KNOBS: [Id; 10] = [
    Id::Driver,
    Id::DriverMode,
    Id::Governor,
    Id::Epp,
    Id::Turbo,
    Id::Smt,
    Id::SstLevel,
    Id::SstBf,
    Id::SstTf,
    Id::SstCp,
];

/// Prints the labels, or writes them to the file. `-` is stdout.
pub(super) fn run(
    output: &Reporter,
    host: &dyn Host,
    snapshot: &mut Snapshot,
    file: &Path,
    expires: Option<Duration>,
) -> Result<Exit, Failure> {
    if output.is_json() {
        return Err(Failure::usage("--nfd does not work with --json"));
    }
    let labels = labels(host, snapshot)?;
    let mut text = String::new();
    if let Some(time) = expires {
        // NFD ignores labels that expired before it reads the file.
        let _ = writeln!(
            text,
            "# +expiry-time={}",
            Utc::from_seconds(seconds_since_1970().saturating_add(time.as_secs())).rfc3339()
        );
    }
    for (name, value) in labels {
        let _ = writeln!(text, "{name}={value}");
    }
    if file.as_os_str() == "-" {
        output::print(text)?;
    } else {
        // Until it is complete, its name begins with a dot, and NFD ignores such files.
        flyball_files::replace(file, text.as_bytes())
            .map_err(|error| Failure::failed(format!("cannot write {}: {error}", file.display())))?;
    }
    Ok(Exit::Done)
}

fn labels(host: &dyn Host, snapshot: &mut Snapshot) -> Result<Vec<(String, String)>, Failure> {
    let options = SurveyOptions { sample_absence: true, ..SurveyOptions::default() };
    snapshot.take(host, &options.request(&KNOBS));
    let rows = survey(snapshot, &KNOBS.map(KnobName::from), &options)?;
    let facts = Facts::collect(host, snapshot);
    let kinds = facts.core_types.len() > 1;
    let known = [
        ("vendor", Some(facts.vendor.to_string())),
        ("microcode", facts.microcode.clone()),
        ("core-types", kinds.then(|| facts.core_types.len().to_string())),
        ("simulated", facts.simulated.then(|| "true".to_owned())),
    ];
    let mut labels: Vec<(String, String)> =
        known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    for id in KNOBS {
        let mut values: Vec<String> = rows
            .iter()
            .filter(|row| row.knob == id)
            .filter_map(|row| row.outcome.value())
            .map(ToString::to_string)
            .collect();
        values.sort();
        values.dedup();
        let value = match values.as_slice() {
            [] => continue,
            [one] => one.clone(),
            // Several values would need a label per CPU, and a pod cannot request a CPU.
            _ => "mixed".to_owned(),
        };
        labels.push((KnobName::from(id).to_string(), value));
    }
    let labels = labels.into_iter().map(|(name, value)| (format!("flyball.{name}"), label(&value)));
    Ok(labels.filter(|(_, value)| !value.is_empty()).collect())
}

/// Converts a value to what Kubernetes accepts: letters, digits, '-', '_' and '.', with a letter or
/// digit at both ends.
fn label(value: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    let plain: String = value.chars().map(plain).collect();
    let trimmed = plain.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let cut = &trimmed[..trimmed.len().min(MAX)];
    cut.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_valid_labels() {
        assert_eq!(label("amd-pstate-epp"), "amd-pstate-epp");
        assert_eq!(label("2.6 GHz (base)"), "2.6-GHz--base");
        assert_eq!(label("_é_"), "");
        let long = label(&format!("{}-x", "a".repeat(62)));
        assert_eq!(long.len(), 62, "no '-' at the end");
    }
}
