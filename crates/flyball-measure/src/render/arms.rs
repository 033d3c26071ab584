//! The names of arms in tables: their own names if these are short, otherwise numbers with a legend
//! that lists common settings only once.

use std::fmt::Write;

use flyball_text::columns::{Columns, Painter, Style, one_line};

use super::parts::Screen;
use crate::analyse::Report;

/// Names that are longer would leave no room for numbers.
const SHORT: usize = 16;

/// The arms of a report, as tables call them.
pub(super) struct Arms {
    names: Vec<String>,
    /// The settings of each arm as knob and value, if the names consist of nothing else.
    settings: Option<Vec<Vec<(String, String)>>>,
    numbered: bool,
}

impl Arms {
    pub(super) fn new(report: &Report) -> Arms {
        Arms::numbered(report, |names| names.iter().any(|name| name.chars().count() > SHORT))
    }

    /// Numbered unless the names have room below the charts of a narrow page: six of six letters.
    pub(super) fn for_page(report: &Report) -> Arms {
        Arms::numbered(report, |names| names.len() > 6 || names.iter().any(|name| name.chars().count() > 6))
    }

    fn numbered(report: &Report, is_numbered: impl Fn(&[String]) -> bool) -> Arms {
        let names: Vec<String> = report.arms.iter().map(|arm| one_line(arm.name.clone())).collect();
        let numbered = is_numbered(&names);
        // `now` has no settings, and all others are called by theirs.
        let by_settings = |(arm, name): (&crate::analyse::ArmReport, &String)| {
            arm.settings.join(" ") == *name || name == "now"
        };
        let settings = (numbered && report.arms.iter().zip(&names).all(by_settings)).then(|| {
            let split = |text: &String| {
                let (knob, value) = text.split_once('=').unwrap_or((text, ""));
                (knob.to_owned(), value.to_owned())
            };
            report.arms.iter().map(|arm| arm.settings.iter().map(split).collect()).collect()
        });
        Arms { names, settings, numbered }
    }

    /// How a table calls an arm.
    pub(super) fn label(&self, arm: usize) -> String {
        if self.numbered { (arm + 1).to_string() } else { self.names.get(arm).cloned().unwrap_or_default() }
    }

    /// How a sentence calls an arm.
    pub(super) fn name(&self, arm: usize) -> String {
        let name = self.names.get(arm).cloned().unwrap_or_default();
        if self.numbered { format!("{} ({name})", arm + 1) } else { name }
    }

    /// A number, if arms have numbers, and the name: as the first column of a table that has room.
    pub(super) fn heading(&self, arm: usize) -> String {
        let name = self.names.get(arm).cloned().unwrap_or_default();
        if self.numbered { format!("{}  {name}", arm + 1) } else { name }
    }

    /// The meaning of the numbers; empty if arms are called by their names.
    pub(super) fn legend<P: Painter + Copy>(&self, screen: Screen<P>) -> String {
        if !self.numbered {
            return String::new();
        }
        let mut out = String::new();
        let Some(settings) = &self.settings else {
            for (arm, name) in self.names.iter().enumerate() {
                let _ = writeln!(out, "{:>3}  {name}", arm + 1);
            }
            out.push('\n');
            return out;
        };
        let mut knobs: Vec<&str> = Vec::new();
        for (knob, _) in settings.iter().flatten() {
            if !knobs.contains(&knob.as_str()) {
                knobs.push(knob);
            }
        }
        let value = |arm: usize, knob: &str| {
            settings[arm].iter().find(|(name, _)| name == knob).map(|(_, value)| value.as_str())
        };
        // A single arm has all settings in common with itself, and its table would be empty.
        let is_common = |knob: &&str| {
            (1..settings.len()).all(|arm| value(arm, knob) == value(0, knob)) && settings.len() > 1
        };
        let (common, different): (Vec<&str>, Vec<&str>) = knobs.into_iter().partition(is_common);
        if !common.is_empty() {
            let words: Vec<String> =
                common.iter().map(|knob| format!("{knob}={}", value(0, knob).unwrap_or_default())).collect();
            let _ = writeln!(out, "all arms: {}", words.join(" "));
        }
        let mut table = Columns::aligned_right(0..1);
        table.heading(std::iter::once("arm").chain(different.iter().copied()));
        for arm in 0..settings.len() {
            let mut row = vec![(arm + 1).to_string().into()];
            row.extend(different.iter().map(|knob| match value(arm, knob) {
                Some(value) => value.into(),
                None => flyball_text::columns::Cell::styled(Style::Faint, "as it is"),
            }));
            table.row(row);
        }
        out.push_str(&table.render(screen.painter));
        out.push('\n');
        out
    }
}
