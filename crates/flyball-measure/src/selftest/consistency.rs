//! What a sheet is worth: does every cell that follows from others follow, and do its rounds show
//! any difference?

use super::{
    decimal::{Decimal, six_digits},
    read::{Columns, Group, Line, Sheet},
};
use crate::stats;

/// One cell, computed again.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Check {
    /// The line in the file.
    pub line: usize,
    /// The row: `amd-pstate-ondemand round 1`.
    pub row: String,
    pub column: String,
    /// What the file has.
    pub printed: String,
    /// What follows from the other cells.
    pub computed: String,
    /// Whether both are the same.
    pub agrees: bool,
    /// What the misprint probably is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub likely: Option<String>,
}

/// What the rounds of two groups show in one column.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct PairVerdict {
    /// The group compared with.
    pub base: String,
    /// The other group.
    pub compared: String,
    pub column: String,
    /// Rounds of either.
    pub rounds: (usize, usize),
    /// The median change from the first group to the second, as a fraction.
    pub change: f64,
    /// The two-sided probability of ranks this uneven without a difference.
    pub p: f64,
    /// The same, corrected for the number of pairs.
    pub p_corrected: f64,
    /// The smallest probability that so few rounds can give.
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
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
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
    /// What a reader should know.
    pub notes: Vec<String>,
}

impl SelftestReport {
    /// The cells that do not follow from the others.
    pub fn misprints(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| !check.agrees)
    }
}

/// Confidence of the verdicts, as the conventional level.
const ALPHA: f64 = 0.05;

/// Checks and judges a sheet. `seconds` is the factor of performance per watt, if it is known;
/// otherwise it is found from the cells themselves.
pub fn judge(sheet: &Sheet, seconds: Option<i64>) -> SelftestReport {
    let seconds = if sheet.is_time { None } else { seconds.or_else(|| factor(sheet)) };
    let mut notes = Vec::new();
    let formula = match seconds {
        _ if sheet.is_time => most_follow(sheet, None),
        Some(seconds) => {
            notes.push(format!(
                "Performance per watt is {seconds} s x throughput / energy: a time limit of {} s less one.",
                seconds + 1
            ));
            true
        }
        None => false,
    };
    if !formula && sheet.groups.iter().any(|group| group.rounds.iter().any(has_per_watt)) {
        notes.push(
            "Performance per watt is not what the selftest makes of the other cells; it is not checked."
                .to_owned(),
        );
    }
    let mut checks = Vec::new();
    let mut corrected = sheet.clone();
    let work = |row: &Line| per_watt(sheet, row, seconds);
    for group in &mut corrected.groups {
        check_group(sheet, group, formula.then_some(&work), &mut checks);
    }
    check_comparisons(sheet, &mut checks);
    checks.sort_by_key(|check| check.line);
    for group in &corrected.groups {
        notes.extend(drift(sheet, group));
    }
    let pairs = pairs(&corrected);
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
        let number = |column| row.columns.number(column).map(Decimal::to_f64);
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

/// Whether performance per watt of most rounds is, digit by digit, what the script makes of the
/// other cells. It is not in sheets of other tools, which round once, at the end, and whose rounds
/// last as long as they last.
fn most_follow(sheet: &Sheet, seconds: Option<i64>) -> bool {
    let rounds = || sheet.groups.iter().flat_map(|group| &group.rounds).filter(|row| has_per_watt(row));
    let follows = |row: &&Line| {
        let printed = row.columns.number(Columns::PER_WATT);
        printed.zip(per_watt(sheet, row, seconds)).is_some_and(|(printed, computed)| printed.equals(computed))
    };
    rounds().filter(follows).count() * 2 > rounds().count()
}

/// Performance per watt of a row as the script computes it.
fn per_watt(sheet: &Sheet, row: &Line, seconds: Option<i64>) -> Option<Decimal> {
    let energy = row.columns.number(Columns::ENERGY)?;
    if sheet.is_time {
        // Nine digits for gitsource and four for tbench, cut off by bc: so are all rows of the
        // published sheets.
        return Decimal::parse("1")?.over(energy, 9);
    }
    row.columns.number(Columns::PERFORMANCE)?.times(seconds?)?.over(energy, 4)
}

fn check(line: usize, row: String, column: String, printed: &str, computed: &str) -> Check {
    let same = match (Decimal::parse(printed), Decimal::parse(computed)) {
        (Some(a), Some(b)) => a.equals(b),
        _ => printed == computed,
    };
    Check {
        line,
        row,
        column,
        printed: printed.to_owned(),
        computed: computed.to_owned(),
        agrees: same,
        likely: None,
    }
}

/// How performance per watt follows from the other cells of a row.
type Formula<'a> = dyn Fn(&Line) -> Option<Decimal> + 'a;

/// Checks rounds and averages of a group. A round's cell that is found out as a misprint is
/// replaced, for the verdicts. `formula` makes performance per watt, where the sheet's is the
/// script's.
fn check_group(sheet: &Sheet, group: &mut Group, formula: Option<&Formula>, checks: &mut Vec<Check>) {
    let per_watt_check = |row: &Line, name: String| {
        let printed = row.columns.cells[Columns::PER_WATT].as_ref()?;
        let computed = formula?(row)?.to_string();
        Some(check(row.line, name, column_name(sheet, Columns::PER_WATT), &printed.text, &computed))
    };
    for row in &group.rounds {
        checks.extend(per_watt_check(row, format!("{} round {}", group.name, row.round)));
    }
    let Some(average) = group.average.clone() else { return };
    for column in 0..Columns::PER_WATT {
        let Some(printed) = &average.columns.cells[column] else { continue };
        let values: Vec<String> = group
            .rounds
            .iter()
            .filter_map(|row| row.columns.cells[column].as_ref().map(|cell| cell.text.clone()))
            .collect();
        if values.is_empty() {
            continue;
        }
        let computed = mean_text(&values);
        let row = format!("{} average", group.name);
        let mut result = check(average.line, row, column_name(sheet, column), &printed.text, &computed);
        if !result.agrees
            && let Some((place, repaired)) = one_slip(&values, &printed.text)
        {
            // The comparisons are made from the averages: an average that they confirm is right.
            let round = &mut group.rounds[place];
            result.likely = Some(format!(
                "round {} (line {}) is printed {}; with {repaired} the average is right",
                round.round, round.line, values[place]
            ));
            if let (Some(cell), Some(number)) = (&mut round.columns.cells[column], Decimal::parse(&repaired))
            {
                cell.number = number;
                cell.text = repaired;
            }
        }
        checks.push(result);
    }
    checks.extend(per_watt_check(&average, format!("{} average", group.name)));
}

/// The mean of cells as awk prints it.
fn mean_text(values: &[String]) -> String {
    let sum: f64 = values.iter().filter_map(|value| value.parse::<f64>().ok()).sum();
    six_digits(sum / values.len() as f64)
}

/// The one cell that a slip of the pen (a digit too many, too few, or another; a lost or extra
/// sign) can have spoilt: its place and what it should be. `None` if there is none or more than one
/// candidate.
fn one_slip(values: &[String], average: &str) -> Option<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for place in 0..values.len() {
        let mut candidates: Vec<String> = Vec::new();
        let text = &values[place];
        for at in 0..text.len() {
            let (before, after) = (text.get(..at)?, text.get(at + 1..)?);
            // A digit too many; then another digit; then one too few.
            candidates.push(format!("{before}{after}"));
            if text.as_bytes()[at].is_ascii_digit() {
                candidates.extend((0..10).map(|digit| format!("{before}{digit}{after}")));
            }
            candidates.extend(
                (0..10).map(|digit| format!("{before}{digit}{}", text.get(at..).unwrap_or_default())),
            );
        }
        // A lost or extra sign.
        candidates.push(text.strip_prefix('-').map_or(format!("-{text}"), str::to_owned));
        for candidate in candidates {
            // A leading zero is the same number without it.
            let zero = candidate
                .trim_start_matches('-')
                .strip_prefix('0')
                .is_some_and(|rest| !rest.starts_with('.'));
            if zero || Decimal::parse(&candidate).is_none() || candidate.ends_with('.') {
                continue;
            }
            let mut repaired = values.to_vec();
            repaired[place].clone_from(&candidate);
            if mean_text(&repaired) == average && !found.contains(&(place, candidate.clone())) {
                found.push((place, candidate));
            }
        }
    }
    if found.len() == 1 { found.pop() } else { None }
}

fn check_comparisons(sheet: &Sheet, checks: &mut Vec<Check>) {
    for comparison in &sheet.comparisons {
        let average = |name: &str| sheet.groups.iter().find(|group| group.name == name)?.average.as_ref();
        let (Some(base), Some(compared)) = (average(&comparison.base), average(&comparison.compared)) else {
            continue;
        };
        for column in 0..6 {
            let cells = (
                comparison.line.columns.cells[column].as_ref(),
                base.columns.number(column),
                compared.columns.number(column),
            );
            let (Some(printed), Some(base), Some(compared)) = cells else { continue };
            // In the order of the script, because each bc division cuts digits off.
            let percent = compared.minus(base).times(100).and_then(|hundredfold| hundredfold.over(base, 4));
            let Some(percent) = percent else { continue };
            let row = format!("{} VS {}", comparison.base, comparison.compared);
            let mut result = check(
                comparison.line.line,
                row,
                column_name(sheet, column),
                &printed.text,
                &percent.to_string(),
            );
            // A published table of the amd-pstate document has this misprint.
            if !result.agrees && printed.number.equals(percent.negated()) {
                result.likely = Some("the sign is lost".to_owned());
            }
            checks.push(result);
        }
    }
}

/// Rounds that only rise or only fall.
fn drift(sheet: &Sheet, group: &Group) -> Option<String> {
    let values: Vec<f64> = group
        .rounds
        .iter()
        .filter_map(|row| row.columns.number(Columns::PERFORMANCE).map(Decimal::to_f64))
        .collect();
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
        group.rounds.iter().filter_map(|row| row.columns.number(column).map(Decimal::to_f64)).collect()
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
                    // Set below, when all pairs of the column are known to Holm's correction.
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
