//! Checks a sheet: whether computed cells follow from the others, and whether its rounds show a
//! difference.

use super::{
    read::{Columns, Group, Line, Printed, Sheet},
    write::{six_digits, truncate},
};
use crate::stats;

/// One cell, computed again.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
pub struct Check {
    /// The line in the file.
    pub line: usize,
    /// The row: `amd-pstate-ondemand round 1`.
    pub row: String,
    pub column: String,
    /// The cell in the file.
    pub printed: String,
    /// The value that follows from the other cells.
    pub computed: String,
    /// Whether both are the same, to the last digit that the script prints.
    pub agrees: bool,
}

/// What the rounds of two groups show in one column.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct PairVerdict {
    /// The group compared with.
    pub base: String,
    /// The other group.
    pub compared: String,
    pub column: String,
    /// Rounds of each group.
    pub rounds: (usize, usize),
    /// The median change from the first group to the second, as a fraction.
    pub change: f64,
    /// The two-sided probability of ranks this uneven without a difference.
    pub p: f64,
    /// `p`, corrected for the number of pairs.
    pub p_corrected: f64,
    /// The smallest p-value that this number of rounds can give.
    pub smallest_p: f64,
    /// Welch's t test, corrected for the number of pairs: right only if rounds are independent and
    /// normal.
    pub welch_corrected: Option<f64>,
    /// Whether one group's rounds all lie on one side of the other's.
    pub apart: bool,
    /// Whether a difference is shown.
    pub shown: bool,
}

/// A sheet, checked and judged.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct SelftestReport {
    /// `tbench` or `gitsource`.
    pub test: &'static str,
    /// Seconds that a rate is multiplied with in performance per watt: one less than the time
    /// limit.
    pub seconds: Option<i64>,
    /// Every cell that follows from others.
    pub checks: Vec<Check>,
    /// Each pair of groups in performance, energy and performance per watt.
    pub pairs: Vec<PairVerdict>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

impl SelftestReport {
    /// The cells that do not follow from the others.
    pub fn misprints(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| !check.agrees)
    }
}

/// The conventional significance level.
const ALPHA: f64 = 0.05;

/// Checks and judges a sheet. `seconds` is the factor of performance per watt, if it is known;
/// otherwise it is found from the cells themselves.
pub fn judge(sheet: &Sheet, seconds: Option<i64>) -> SelftestReport {
    let seconds = if sheet.is_time { None } else { seconds.or_else(|| factor(sheet)) };
    let mut notes = Vec::new();
    if let Some(seconds) = seconds {
        notes.push(format!(
            "Performance per watt is {seconds} s x throughput / energy: a time limit of {} s less one.",
            seconds + 1
        ));
    }
    let checks_per_watt = seconds.is_some() || sheet.is_time && most_follow(sheet, None);
    if !checks_per_watt && sheet.groups.iter().any(|group| group.rounds.iter().any(has_per_watt)) {
        notes.push(
            "Performance per watt is not what the selftest makes of the other cells; it is not checked."
                .to_owned(),
        );
    }
    let mut checks = Vec::new();
    for group in &sheet.groups {
        for row in group.rounds.iter().chain(&group.average).filter(|_| checks_per_watt) {
            let name = match row.round {
                0 => format!("{} average", group.name),
                round => format!("{} round {round}", group.name),
            };
            checks.extend(check(sheet, row, &name, Columns::PER_WATT, per_watt(sheet, row, seconds)));
        }
        check_averages(sheet, group, &mut checks);
    }
    check_comparisons(sheet, &mut checks);
    checks.sort_by_key(|check| check.line);
    notes.extend(sheet.groups.iter().filter_map(|group| drift(sheet, group)));
    let pairs = pairs(sheet);
    SelftestReport { test: if sheet.is_time { "gitsource" } else { "tbench" }, seconds, checks, pairs, notes }
}

fn column_name(sheet: &Sheet, column: usize) -> String {
    let name = if column == Columns::PERFORMANCE && sheet.is_time { "time" } else { Columns::NAMES[column] };
    name.to_owned()
}

/// The whole number of seconds that most rows agree on.
fn factor(sheet: &Sheet) -> Option<i64> {
    let mut found: Vec<i64> = Vec::new();
    for row in sheet.groups.iter().flat_map(|group| &group.rounds) {
        let number = |column| row.columns.number(column);
        let (Some(rate), Some(energy), Some(per_watt)) =
            (number(Columns::PERFORMANCE), number(Columns::ENERGY), number(Columns::PER_WATT))
        else {
            continue;
        };
        let seconds = per_watt * energy / rate;
        // Cells are rounded: with 199 s the factor of published sheets comes out between 198.97 and
        // 199.06.
        if seconds.is_finite() && seconds > 0.5 && (seconds - seconds.round()).abs() < 0.01 * seconds.sqrt() {
            found.push(seconds.round() as i64);
        }
    }
    found.sort_unstable();
    // The median: a misprint in one row must not decide.
    let middle = *found.get(found.len() / 2)?;
    let rows: usize = sheet.groups.iter().map(|group| group.rounds.len()).sum();
    let agreed = found.iter().filter(|seconds| **seconds == middle).count() * 2 > rows;
    (agreed && most_follow(sheet, Some(middle))).then_some(middle)
}

fn has_per_watt(row: &Line) -> bool {
    row.columns.cells[Columns::PER_WATT].is_some()
}

/// Returns whether, in most rounds, performance per watt follows from the other cells as in the
/// script. In sheets of other tools, whose rounds differ in length, it does not.
fn most_follow(sheet: &Sheet, seconds: Option<i64>) -> bool {
    let rounds = || sheet.groups.iter().flat_map(|group| &group.rounds).filter(|row| has_per_watt(row));
    let follows = |row: &&Line| {
        check(sheet, row, "", Columns::PER_WATT, per_watt(sheet, row, seconds)).is_some_and(|one| one.agrees)
    };
    rounds().filter(follows).count() * 2 > rounds().count()
}

/// A cell that was computed again, as text and as a number, with the difference that rounding
/// explains.
struct Computed {
    text: String,
    number: f64,
    tolerance: f64,
}

impl Computed {
    /// A quotient of bc, which cuts digits off after `places`.
    fn quotient(number: f64, places: usize) -> Computed {
        // A published cell may be rounded where the script cuts: one unit of the last digit.
        Computed { text: truncate(number, places), number, tolerance: 1.001 * 0.1_f64.powi(places as i32) }
    }
}

/// Performance per watt of a row as the script computes it: four digits for tbench, nine for
/// gitsource.
fn per_watt(sheet: &Sheet, row: &Line, seconds: Option<i64>) -> Option<Computed> {
    let energy = row.columns.number(Columns::ENERGY).filter(|energy| *energy != 0.0)?;
    if sheet.is_time {
        return Some(Computed::quotient(1.0 / energy, 9));
    }
    let work = row.columns.number(Columns::PERFORMANCE)? * seconds? as f64;
    Some(Computed::quotient(work / energy, 4))
}

/// Compares a cell of a row, if the sheet has it and it follows from others.
fn check(sheet: &Sheet, line: &Line, row: &str, column: usize, computed: Option<Computed>) -> Option<Check> {
    let (Printed { text, number }, computed) = (line.columns.cells[column].as_ref()?, computed?);
    Some(Check {
        line: line.line,
        row: row.to_owned(),
        column: column_name(sheet, column),
        printed: text.clone(),
        computed: computed.text,
        agrees: (number - computed.number).abs() <= computed.tolerance,
    })
}

/// Averages are means of the cells above them, printed by awk with six significant digits.
fn check_averages(sheet: &Sheet, group: &Group, checks: &mut Vec<Check>) {
    let Some(average) = &group.average else { return };
    for column in 0..Columns::PER_WATT {
        let values: Vec<f64> = group.rounds.iter().filter_map(|row| row.columns.number(column)).collect();
        let computed = stats::mean(&values).map(|mean| Computed {
            text: six_digits(mean),
            number: mean,
            tolerance: 1e-5 * mean.abs(),
        });
        checks.extend(check(sheet, average, &format!("{} average", group.name), column, computed));
    }
}

fn check_comparisons(sheet: &Sheet, checks: &mut Vec<Check>) {
    for comparison in &sheet.comparisons {
        let average = |name: &str| sheet.groups.iter().find(|group| group.name == name)?.average.as_ref();
        let (Some(base), Some(compared)) = (average(&comparison.base), average(&comparison.compared)) else {
            continue;
        };
        let row = format!("{} VS {}", comparison.base, comparison.compared);
        for column in 0..6 {
            let numbers = base.columns.number(column).zip(compared.columns.number(column));
            let computed = numbers
                .filter(|(base, _)| *base != 0.0)
                .map(|(base, compared)| Computed::quotient((compared - base) * 100.0 / base, 4));
            checks.extend(check(sheet, &comparison.line, &row, column, computed));
        }
    }
}

/// Rounds that only rise or only fall.
fn drift(sheet: &Sheet, group: &Group) -> Option<String> {
    let values: Vec<f64> =
        group.rounds.iter().filter_map(|row| row.columns.number(Columns::PERFORMANCE)).collect();
    // Two rounds always go one way.
    if values.len() < 3 {
        return None;
    }
    let (first, last) = (values.first()?, values.last()?);
    let change = (last - first) / first * 100.0;
    let steady =
        values.windows(2).all(|pair| pair[1] < pair[0]) || values.windows(2).all(|pair| pair[1] > pair[0]);
    // Three rounds are in order by chance in two of six cases; only the size makes that worth a
    // note.
    (steady && change.abs() >= 1.0).then(|| {
        format!(
            "{}: {} goes one way from round to round, {change:+.1} % from first to last: the rounds are not \
             independent of each other.",
            group.name,
            column_name(sheet, Columns::PERFORMANCE)
        )
    })
}

/// Every pair of groups, in performance, energy and performance per watt.
fn pairs(sheet: &Sheet) -> Vec<PairVerdict> {
    let values = |group: &Group, column: usize| -> Vec<f64> {
        group.rounds.iter().filter_map(|row| row.columns.number(column)).collect()
    };
    let mut all = Vec::new();
    // Each column is a family of its own, as the quantities of a comparison are.
    for column in [Columns::PERFORMANCE, Columns::ENERGY, Columns::PER_WATT] {
        let mut family = Vec::new();
        for (index, base) in sheet.groups.iter().enumerate() {
            for compared in &sheet.groups[index + 1..] {
                let (a, b) = (values(base, column), values(compared, column));
                let (Some(p), Some(middle), Some(change)) =
                    (stats::rank_sum(&a, &b), stats::median(&a), stats::shift(&a, &b))
                else {
                    continue;
                };
                let delta = stats::cliffs_delta(&a, &b).unwrap_or(0.0);
                family.push(PairVerdict {
                    base: base.name.clone(),
                    compared: compared.name.clone(),
                    column: column_name(sheet, column),
                    rounds: (a.len(), b.len()),
                    change: change / middle,
                    p,
                    p_corrected: p,
                    smallest_p: stats::smallest_rank_sum_p(a.len(), b.len()),
                    welch_corrected: stats::welch(&a, &b),
                    apart: delta.abs() >= 1.0,
                    // Set below: Holm's correction needs all pairs of the column.
                    shown: false,
                });
            }
        }
        let ranks = stats::holm(&family.iter().map(|pair| pair.p).collect::<Vec<_>>());
        let welch =
            stats::holm(&family.iter().map(|pair| pair.welch_corrected.unwrap_or(1.0)).collect::<Vec<_>>());
        for ((pair, p), welch) in family.iter_mut().zip(ranks).zip(welch) {
            pair.p_corrected = p;
            pair.shown = p <= ALPHA;
            pair.welch_corrected = pair.welch_corrected.map(|_| welch);
        }
        all.extend(family);
    }
    all
}
