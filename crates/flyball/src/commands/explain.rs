//! `flyball explain`: describes a knob: what it does, its values, interactions, files and
//! registers. Also prints the text of a profile.

use flyball_control::{Access, Knob, KnobName, TABLE, called, doctor::CHECKS};
use flyball_text::wrap;
use serde::Serialize;

use crate::{
    exit::{Exit, Failure},
    output::Reporter,
    paint::{Cell, Columns, Paint, Style, terminal_columns},
    profiles::{self, NamedProfile},
};

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  flyball explain epp
  flyball explain storage    a profile, with the reasons of its settings
  flyball explain ratio      what mentions a word that is not a knob
  flyball explain            all knobs and facts

Exit codes: 0 explained or found, 2 nothing has the name or mentions the word.")]
pub(crate) struct Args {
    /// A knob or fact, a profile, or a word to search for [default: list all].
    #[arg(value_name = "KNOB|PROFILE|WORD")]
    pub words: Vec<String>,
}

/// An explanation in JSON.
#[derive(Debug, schemars::JsonSchema, Serialize)]
#[serde(untagged)]
pub(crate) enum Explained {
    Knob(Box<Object>),
    Profile { profile: String, file: Option<String>, text: String },
}

/// A knob in JSON.
#[derive(Debug, schemars::JsonSchema, Serialize)]
#[schemars(inline)]
pub(crate) struct Object {
    knob: &'static str,
    title: &'static str,
    access: Access,
    scope: String,
    step: Option<String>,
    unit: &'static str,
    accepts: &'static str,
    about: String,
    interacts: Vec<(String, &'static str)>,
    lives: Vec<String>,
}

impl From<&Knob> for Object {
    fn from(knob: &Knob) -> Object {
        Object {
            knob: knob.name,
            title: knob.title,
            access: knob.access(),
            scope: knob.scope.to_string(),
            step: knob.step().map(|step| step.to_string()),
            unit: knob.unit().symbol(),
            accepts: knob.accepts(),
            about: knob.about.to_owned(),
            interacts: knob.interacts.iter().map(|(other, how)| (other.to_string(), *how)).collect(),
            lives: knob.mechanisms.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<&NamedProfile> for Explained {
    fn from(named: &NamedProfile) -> Explained {
        let file = named.file.as_ref().map(|file| file.display().to_string());
        Explained::Profile { profile: named.name.clone(), file, text: named.text.clone() }
    }
}

fn heading(named: &NamedProfile, paint: Paint) -> String {
    let place = named.file.as_ref().map_or_else(|| "built in".to_owned(), |file| file.display().to_string());
    format!("{}: a profile ({place})\n\n", paint.apply(Style::Heading, &named.name))
}

/// Prints the named knobs and profiles, the knobs that mention a word, or a list of all.
pub(crate) fn run(output: &Reporter, args: &Args) -> Result<Exit, Failure> {
    let mut named: Vec<&Knob> = Vec::new();
    let mut found: Vec<&Knob> = Vec::new();
    let mut profiles: Vec<NamedProfile> = Vec::new();
    for word in &args.words {
        // A profile's name has priority over a search for the word, but not over a knob's name.
        if word.parse::<KnobName>().is_err() && profiles::find(word).is_some() {
            profiles.push(profiles::read(word)?);
            continue;
        }
        match (word.parse::<KnobName>(), called(word)) {
            (Ok(name), _) => named.push(name.knob.knob()),
            (Err(_), Some(knob)) => {
                eprintln!("flyball: '{word}' is {} here", knob.name);
                named.push(knob);
            }
            (Err(error), None) => {
                let mention: Vec<&Knob> = TABLE.iter().filter(|knob| mentions(knob, word)).collect();
                if mention.is_empty() {
                    return Err(Failure::usage(elsewhere(word).unwrap_or_else(|| error.to_string())));
                }
                // Print knobs that mention the word together with the knob that other tools call by
                // it.
                let nearest = error.nearest.and_then(|name| Knob::named(name).ok());
                let fitting: Vec<&Knob> = mention.into_iter().chain(nearest).collect();
                eprintln!("flyball: unknown knob '{word}'. Related:");
                for knob in fitting {
                    if !found.iter().any(|known| known.id == knob.id) {
                        found.push(knob);
                    }
                }
            }
        }
    }
    let all = || TABLE.iter().collect::<Vec<_>>();
    // Named knobs come first, in the order of the words.
    let asked: Vec<&Knob> = if args.words.is_empty() { all() } else { [&named[..], &found[..]].concat() };
    let paint = Paint::stdout();
    output.list(
        || {
            let knobs = asked.iter().map(|knob| Explained::Knob(Box::new(Object::from(*knob))));
            knobs.chain(profiles.iter().map(Explained::from)).collect()
        },
        || {
            let mut parts: Vec<String> = named.iter().map(|knob| one(knob, paint)).collect();
            if args.words.is_empty() {
                parts.push(list(&asked, paint));
            } else if !found.is_empty() {
                parts.push(list(&found, paint));
            }
            parts.extend(profiles.iter().map(|one| heading(one, paint) + &one.text));
            parts.join("\n")
        },
    )?;
    Ok(Exit::Done)
}

/// Returns where flyball handles a word that no knob mentions.
fn elsewhere(word: &str) -> Option<String> {
    if ["irq", "irqs", "interrupt", "interrupts"].contains(&word.to_lowercase().as_str()) {
        return Some(format!("'{word}' is not a knob; 'flyball quiet' moves interrupts away from CPUs"));
    }
    if ["watt", "watts"].contains(&word.to_lowercase().as_str()) {
        return Some(format!(
            "'{word}' is not a knob; 'flyball top' shows watts, and power-limit limits them"
        ));
    }
    let checks = CHECKS.iter().copied().flatten();
    let ids: Vec<&str> = checks
        .filter(|check| [check.id, check.why, check.looks].iter().any(|text| has(text, word)))
        .map(|check| check.id)
        .collect();
    let checked = || format!("'{word}' is not a knob; 'flyball doctor' checks it: {}", ids.join(", "));
    (!ids.is_empty()).then(checked)
}

/// Returns whether a text contains the word.
fn has(text: &str, word: &str) -> bool {
    let word = word.to_lowercase();
    let is_part = |char: char| !char.is_alphanumeric();
    // A short word occurs in nearly everything, so match it as a whole word.
    match word.len() {
        0..4 => text.to_lowercase().split(is_part).any(|part| part == word),
        _ => text.to_lowercase().contains(&word),
    }
}

/// Returns whether any text about a knob contains the word.
fn mentions(knob: &Knob, word: &str) -> bool {
    let has = |text: &str| has(text, word);
    !word.is_empty()
        && (has(knob.name)
            || has(knob.title)
            || has(knob.about)
            || has(knob.accepts())
            || knob.mechanisms.iter().any(|mechanism| has(&mechanism.to_string())))
}

/// Lists knobs, one per line.
fn list(knobs: &[&Knob], paint: Paint) -> String {
    let mut columns = Columns::new();
    for (access, heading) in
        [(Access::ReadWrite, "Knobs, in the order of their writes"), (Access::ReadOnly, "Facts")]
    {
        let of_kind: Vec<&&Knob> = knobs.iter().filter(|knob| knob.access() == access).collect();
        if of_kind.is_empty() {
            continue;
        }
        if access == Access::ReadOnly && of_kind.len() < knobs.len() {
            columns.row(Vec::new());
        }
        columns.heading([heading]);
        for knob in of_kind {
            columns.row(vec![
                format!("  {}", knob.name).into(),
                knob.title.into(),
                Cell::styled(Style::Faint, format!("per {}", knob.scope)),
            ]);
        }
    }
    columns.render(paint)
}

fn one(knob: &Knob, paint: Paint) -> String {
    // Like a page, but narrower if the terminal is.
    let width = terminal_columns().map_or(88, |columns| columns.clamp(50, 90) - 2);
    let mut out = format!("{}: {}\n\n", paint.apply(Style::Heading, knob.name), knob.title);
    for line in wrap(knob.about, width - 2) {
        out += &format!("  {line}\n");
    }
    out.push('\n');
    let mut columns = Columns::new();
    let label = |text: &str| Cell::styled(Style::Heading, format!("  {text}"));
    let mut rows = |name: &str, lines: Vec<String>| {
        for (index, line) in lines.into_iter().enumerate() {
            columns.row(vec![label(if index == 0 { name } else { "" }), line.into()]);
        }
    };
    if let Some(step) = knob.step() {
        rows("takes", wrap(knob.accepts(), width - 14));
        rows("order", vec![format!("written in step '{step}'")]);
    } else {
        rows("takes", vec!["nothing: a fact of the machine".to_owned()]);
    }
    rows("one per", vec![knob.scope.to_string()]);
    if !knob.unit().symbol().is_empty() {
        rows("JSON unit", vec![knob.unit().symbol().to_owned()]);
    }
    rows("lives in", knob.mechanisms.iter().map(ToString::to_string).collect());
    let mut related = Vec::new();
    for (other, how) in knob.interacts {
        related.extend(wrap(&format!("{other}: {how}"), width - 14));
    }
    rows("goes with", related);
    if let Some(narrower) = knob.narrower() {
        rows("", vec![format!("for some CPUs only: {narrower}")]);
    }
    out + &columns.render(paint)
}
