//! Finds what shifted together with a series: frequency, temperature, load, or any other column of
//! metadata.

use super::{Options, Shift, best_split, normal_scores, shape};
use crate::stats;

/// The values of a column, one for each run; `None` for a run without a value.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    Numbers(Vec<Option<f64>>),
    /// Words, such as a governor's name.
    Words(Vec<Option<String>>),
}

impl Values {
    /// Removes the runs whose `keep` is false.
    pub fn retain(&mut self, keep: &[bool]) {
        fn only<T>(values: &mut Vec<T>, keep: &[bool]) {
            let mut keep = keep.iter();
            values.retain(|_| keep.next().copied().unwrap_or(true));
        }
        match self {
            Values::Numbers(values) => only(values, keep),
            Values::Words(values) => only(values, keep),
        }
    }
}

/// Metadata of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its name: `frequency`.
    pub name: String,
    /// Its unit, empty if it has none.
    pub unit: String,
    /// One value per run.
    pub values: Values,
}

/// A column that changed where the series shifted.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct ColumnChange {
    /// The column's name.
    pub name: String,
    /// The column's unit.
    pub unit: String,
    /// The usual value before.
    pub before: String,
    /// The usual value after.
    pub after: String,
    /// Index at which the column itself changed.
    pub at: usize,
    /// Index at which it came to rest, if it changed over many runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<usize>,
    /// The p-value of the difference, corrected for all columns.
    pub p: f64,
}

/// The columns that changed with a shift, the surest first.
///
/// A column of numbers counts if its two sides differ (rank test, corrected for the number of
/// columns) and its own best split is near the shift's; a column of words counts if its usual word
/// changes there.
pub fn column_changes(shift: &Shift, columns: &[Column], options: &Options) -> Vec<ColumnChange> {
    // The column's own split is as uncertain as the series' split: a twentieth of the runs, at
    // least ten.
    let near = (shift.after.end - shift.before.start).div_ceil(20).max(10);
    // The cause of a drift may begin as long before it as it takes, or change during it.
    let going = shift.after.start - shift.before.end;
    let near = &(shift.at.saturating_sub(near + going)..=shift.at + near + going);
    let looked_at: Vec<Option<ColumnChange>> = columns
        .iter()
        .map(|column| match &column.values {
            Values::Numbers(values) => {
                numbers(shift, column, values, near, options).or_else(|| peak(shift, column, values))
            }
            Values::Words(values) => words(shift, column, values),
        })
        .collect();
    // The correction includes the columns that are not candidates.
    let p = |one: &Option<ColumnChange>| one.as_ref().map_or(1.0, |candidate| candidate.p);
    let corrected = stats::holm(&looked_at.iter().map(p).collect::<Vec<_>>());
    let mut candidates: Vec<ColumnChange> = looked_at
        .into_iter()
        .zip(corrected)
        .filter_map(|(candidate, p)| Some(ColumnChange { p, ..candidate? }))
        // The level of other hints to a reader, such as the drift in a report.
        .filter(|candidate| candidate.p < 0.01)
        .collect();
    candidates.sort_by(|a, b| a.p.total_cmp(&b.p));
    candidates
}

fn numbers(
    shift: &Shift,
    column: &Column,
    values: &[Option<f64>],
    near: &std::ops::RangeInclusive<usize>,
    options: &Options,
) -> Option<ColumnChange> {
    let (first, last) = shift.sides();
    let side = |range: &std::ops::Range<usize>| -> Vec<f64> {
        values
            .get(range.clone())
            .unwrap_or_default()
            .iter()
            .flatten()
            .copied()
            .filter(|v| v.is_finite())
            .collect()
    };
    let (before, after) = (side(&first), side(&last));
    // The median of two runs is moved by either of them.
    if before.len() < 3 || after.len() < 3 {
        return None;
    }
    let p = stats::rank_sum(&before, &after)?;
    // Where the column itself splits, as an index of the series.
    let places: Vec<usize> = (shift.before.start..shift.after.end)
        .filter(|&run| values.get(run).copied().flatten().is_some_and(f64::is_finite))
        .collect();
    let present: Vec<f64> = places.iter().filter_map(|&run| values[run]).collect();
    // A clock, or the run's number, changes everywhere.
    if present.windows(2).all(|pair| pair[1] > pair[0]) {
        return None;
    }
    let (split, _) = best_split(&normal_scores(&present), options.shortest.min(present.len() / 2).max(1))?;
    let mut at = places[split];
    let (median_before, mut median_after) = (stats::median(&before)?, stats::median(&after)?);
    let mut until = None;
    if !near.contains(&at) {
        // Heat follows a change for minutes: the column splits late, but it begins to move where
        // the series shifts.
        let ramp = shape::fit(&present, split, options.shortest);
        if ramp.is_empty() || ramp.start == 0 || !near.contains(&places[ramp.start]) {
            return None;
        }
        at = places[ramp.start];
        let end =
            present.get(ramp.end..).filter(|rest| rest.len() >= 3).unwrap_or(&present[present.len() - 3..]);
        median_after = stats::median(end)?;
        until = places.get(ramp.end).or(places.last()).copied();
    }
    Some(ColumnChange {
        name: column.name.clone(),
        unit: column.unit.clone(),
        before: round(median_before),
        after: round(median_after),
        at,
        until,
        p,
    })
    // A significant difference that does not show in four digits (a sensor's noise) explains
    // nothing to a reader.
    .filter(|change| change.before != change.after)
}

/// A column that is far from all its other values in a few runs around the shift and then returns,
/// as the load average does when another job begins.
fn peak(shift: &Shift, column: &Column, values: &[Option<f64>]) -> Option<ColumnChange> {
    // A load average of one minute lags by some runs.
    let near = shift.at.saturating_sub(3)..(shift.at + 10).min(shift.after.end);
    let known: Vec<(usize, f64)> = values
        .iter()
        .enumerate()
        .filter_map(|(run, value)| Some((run, value.filter(|v| v.is_finite())?)))
        .collect();
    let middle = stats::median(&known.iter().map(|(_, value)| *value).collect::<Vec<f64>>())?;
    let outside = |(run, _): &&(usize, f64)| !near.contains(run);
    let most = known.iter().filter(outside).map(|(_, value)| (value - middle).abs()).reduce(f64::max)?;
    let peaks: Vec<(usize, f64)> = known
        .iter()
        .copied()
        .filter(|(run, value)| near.contains(run) && (value - middle).abs() > most)
        .collect();
    let (at, highest) =
        peaks.iter().copied().max_by(|a, b| (a.1 - middle).abs().total_cmp(&(b.1 - middle).abs()))?;
    // The probability that all extreme runs of a column are near, if they are independent of the
    // shift.
    let share = near.len() as f64 / known.len() as f64;
    let p = share.powi(i32::try_from(peaks.len()).ok()?);
    Some(ColumnChange {
        name: column.name.clone(),
        unit: column.unit.clone(),
        before: round(middle),
        after: round(highest),
        at,
        until: None,
        p,
    })
    // Twice as far as any other run.
    .filter(|change| change.before != change.after && (highest - middle).abs() >= 2.0 * most)
}

fn words(shift: &Shift, column: &Column, values: &[Option<String>]) -> Option<ColumnChange> {
    let usual = |range: &std::ops::Range<usize>| -> Option<(String, usize, usize)> {
        let mut counts = std::collections::BTreeMap::new();
        for word in values.get(range.clone())?.iter().flatten() {
            *counts.entry(word.as_str()).or_insert(0usize) += 1;
        }
        let total = counts.values().sum();
        counts
            .into_iter()
            .max_by_key(|(_, count)| *count)
            .map(|(word, count)| (word.to_owned(), count, total))
    };
    let (first, last) = shift.sides();
    let (before, after) = (usual(&first)?, usual(&last)?);
    // The word must be usual on its side: nine of ten runs.
    let clear = |(_, count, total): &(String, usize, usize)| count * 10 >= total * 9 && *total >= 3;
    if before.0 == after.0 || !clear(&before) || !clear(&after) {
        return None;
    }
    // The probability of a clean split of this size among all orders: one in binomial(n, k).
    let m = before.2 as f64;
    // A running product, because factorials of hundreds of runs overflow. It may underflow, and no
    // probability is exactly 0.
    let p = (1..=after.2).fold(1.0, |p, i| p * i as f64 / (m + i as f64)).max(f64::MIN_POSITIVE);
    Some(ColumnChange {
        name: column.name.clone(),
        unit: column.unit.clone(),
        before: before.0,
        after: after.0,
        at: shift.at,
        until: None,
        p,
    })
}

/// Four significant digits, without needless zeros: metadata is read by people.
fn round(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    let text = if digits <= 0 {
        let scale = 10f64.powi(-digits);
        format!("{:.0}", (value / scale).round() * scale)
    } else {
        format!("{value:.*}", digits.min(12) as usize)
    };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shifts::find;

    fn column(name: &str, values: impl Iterator<Item = f64>) -> Column {
        Column {
            name: name.to_owned(),
            unit: String::new(),
            values: Values::Numbers(values.map(Some).collect()),
        }
    }

    /// A repeatable wobble between -1 and 1.
    fn wobble(run: usize) -> f64 {
        (run as f64 * 12.9898).sin()
    }

    #[test]
    fn the_frequency_is_named_and_the_load_is_not() {
        let values: Vec<f64> =
            (0..400).map(|run| if run < 105 { 20.3 } else { 11.0 } + 0.2 * wobble(run)).collect();
        let frequency = column(
            "frequency",
            (0..400).map(|run| if run < 105 { 1600.0 } else { 3400.0 } + wobble(run * 3)),
        );
        let load = column("load", (0..400).map(|run| 1.2 + 0.1 * wobble(run * 7)));
        let governor = Column {
            name: "governor".to_owned(),
            unit: String::new(),
            values: Values::Words(
                (0..400)
                    .map(|run| Some(if run < 105 { "powersave" } else { "performance" }.to_owned()))
                    .collect(),
            ),
        };
        let options = Options::default();
        let shifts = find(&values, &options);
        let changes = column_changes(&shifts[0], &[frequency, load, governor], &options);
        let names: Vec<&str> = changes.iter().map(|change| change.name.as_str()).collect();
        assert!(
            names.contains(&"frequency") && names.contains(&"governor") && !names.contains(&"load"),
            "{names:?}"
        );
        let frequency = changes.iter().find(|change| change.name == "frequency").unwrap();
        assert_eq!(
            (frequency.before.as_str(), frequency.after.as_str(), frequency.at),
            ("1600", "3400", 105)
        );
    }

    /// The load rises for some runs where the series shifts, and goes back.
    #[test]
    fn a_column_that_peaks_at_the_shift_is_named() {
        let values: Vec<f64> =
            (0..400).map(|run| if run < 105 { 20.3 } else { 11.0 } + 0.2 * wobble(run)).collect();
        let peak = |at: f64| {
            column(
                "load",
                (0..400).map(|run| {
                    let late = run as f64 - at;
                    1.1 + 0.05 * wobble(run * 7) + if late < 0.0 { 0.0 } else { 0.5 * (-late / 3.0).exp() }
                }),
            )
        };
        let options = Options::default();
        let shifts = find(&values, &options);
        let named = |column| column_changes(&shifts[0], &[column], &options).into_iter().next();
        let change = named(peak(107.0)).expect("it is named");
        assert_eq!((change.at, change.name.as_str()), (107, "load"));
        assert!(named(peak(250.0)).is_none());
    }

    #[test]
    fn a_column_that_changed_elsewhere_is_not_named() {
        let values: Vec<f64> =
            (0..300).map(|run| if run < 200 { 5.0 } else { 6.0 } + 0.1 * wobble(run)).collect();
        let early =
            column("early", (0..300).map(|run| if run < 50 { 1.0 } else { 2.0 } + 0.01 * wobble(run * 5)));
        let options = Options::default();
        let shifts = find(&values, &options);
        assert!(column_changes(&shifts[0], &[early], &options).is_empty());
    }

    #[test]
    fn numbers_are_rounded_for_people() {
        assert_eq!(round(3400.4), "3400");
        assert_eq!(round(0.012_345), "0.01235");
        assert_eq!(round(12.0), "12");
        assert_eq!(round(123_456.0), "123500");
    }
}
