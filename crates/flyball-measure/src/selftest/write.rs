//! Writes comparisons in the selftest's layout, so that its readers can read them.

use std::fmt::Write;

use crate::{
    analyse::{ArmReport, Quantity, Report},
    stats,
};

/// The cells of one row: desired performance, freq, load, performance, energy, performance per
/// watt.
type Row = [Option<f64>; 6];

/// The quantities of each column: the first one that the arm's rounds have.
const COLUMNS: [&[Quantity]; 6] = [
    &[Quantity::DesiredPerformance],
    // As in the script, means over the driver's records; without a trace, the processor's counters.
    &[Quantity::SampledFrequency, Quantity::Frequency],
    &[Quantity::SampledLoad, Quantity::Busy],
    &[Quantity::Performance],
    &[Quantity::Energy],
    &[Quantity::PerWatt],
];

/// Indexes of columns.
const PERFORMANCE: usize = 3;
const ENERGY: usize = 4;
const PER_WATT: usize = 5;

/// The report as a sheet. Averages are means, as in the selftest; percentages are cut after four
/// digits. For a simulated or emulated machine, the first two lines have one more cell that says
/// so.
pub fn write(report: &Report) -> String {
    let metric = &report.workload.metric;
    let is_performance = metric.better == crate::metric::Better::Higher;
    let name = if is_performance { "Performance" } else { "Time" };
    let machine = &report.machine;
    let (machine, says) = if machine.simulated || machine.emulated.is_some() {
        (", Machine", format!(", {}", clean(&machine.title().replace(['(', ')'], ""))))
    } else {
        ("", String::new())
    };
    let mut out =
        format!("Governor, Round, Des-perf, Freq, Load, {name}, Energy, Performance Per Watt{machine}\n");
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "Unit, , , GHz, %, {}, J, {}{says}",
        clean(&metric.unit),
        clean(&metric.per_watt().unit)
    );
    let mut averages: Vec<Option<[String; 6]>> = Vec::new();
    for arm in &report.arms {
        let arm_name = clean(&arm.name);
        let rows = rounds(arm);
        for (index, row) in rows.iter().enumerate() {
            let _ = writeln!(out, "{arm_name}, {}, {}", index + 1, cells(row, is_performance).join(", "));
        }
        // From the cells as they are printed, like awk in the script.
        let printed = |row: &Row, column: usize| plain(row[column]?).parse::<f64>().ok();
        let mean = |column: usize| {
            stats::mean(&rows.iter().filter_map(|row| printed(row, column)).collect::<Vec<_>>())
        };
        let row: Row = std::array::from_fn(mean);
        let average = (arm.rounds > 0).then(|| cells(&row, is_performance));
        if let Some(cells) = &average {
            let _ = writeln!(out, "{arm_name}, Average, {}", cells.join(", "));
        }
        averages.push(average);
    }
    for (base, other) in pairs(&report.arms) {
        let (Some(first), Some(second)) = (&averages[base], &averages[other]) else { continue };
        let percent: Vec<String> = first
            .iter()
            .zip(second)
            .map(|(a, b)| {
                let (a, b) = (a.parse::<f64>().ok()?, b.parse::<f64>().ok()?);
                (a != 0.0).then(|| truncate((b - a) * 100.0 / a, 4))
            })
            .map(Option::unwrap_or_default)
            .collect();
        // Spelled as in the script, for those who search for it.
        let (base, other) = (clean(&report.arms[base].name), clean(&report.arms[other].name));
        let _ = writeln!(out, "{base} VS {other}, Comprison(%), {}", percent.join(", "));
    }
    out
}

/// The pairs of arms that are compared. In a cross product, such as the selftest's two governors
/// with two drivers, these are arms that differ in one setting, in the script's order
/// (calc_comp_tbench: the last setting first). Otherwise, each arm is compared with the first.
fn pairs(arms: &[ArmReport]) -> Vec<(usize, usize)> {
    let knob = |setting: &String| setting.split('=').next().unwrap_or_default().to_owned();
    let knobs = |arm: &ArmReport| arm.settings.iter().map(knob).collect::<Vec<_>>();
    let first = arms.first().map(knobs).unwrap_or_default();
    if first.len() < 2 || arms.iter().any(|arm| knobs(arm) != first) {
        return (1..arms.len()).map(|other| (0, other)).collect();
    }
    let mut pairs = Vec::new();
    for place in (0..first.len()).rev() {
        for (base, a) in arms.iter().enumerate() {
            for (other, b) in arms.iter().enumerate().skip(base + 1) {
                let differ: Vec<usize> =
                    (0..first.len()).filter(|at| a.settings[*at] != b.settings[*at]).collect();
                if differ == [place] {
                    pairs.push((base, other));
                }
            }
        }
    }
    pairs
}

/// A row's cells as text. Performance per watt is computed from the other cells, as in the script.
fn cells(row: &Row, is_rate: bool) -> [String; 6] {
    let mut cells = row.map(|value| value.map_or_else(String::new, plain));
    if let Some(text) = per_watt(row, &cells, is_rate) {
        cells[PER_WATT] = text;
    }
    cells
}

/// `(TIME_LIMIT-1) * throughput / energy` to four digits, or `1 / energy` to nine, cut off as bc
/// does. None if the rate was not taken over a whole number of seconds.
fn per_watt(row: &Row, cells: &[String; 6], is_rate: bool) -> Option<String> {
    let value = row[PER_WATT]?;
    let energy: f64 = cells[ENERGY].parse().ok().filter(|energy| *energy != 0.0)?;
    if !is_rate {
        // For a latency, performance per watt is something else.
        let close = (value * row[ENERGY]? - 1.0).abs() < 1e-3;
        return close.then(|| truncate(1.0 / energy, 9));
    }
    let seconds = value * row[ENERGY]? / row[PERFORMANCE]?;
    // A simulated round ends with a step of a millisecond.
    if seconds < 0.5 || (seconds / seconds.round() - 1.0).abs() > 2e-3 {
        return None;
    }
    let performance: f64 = cells[PERFORMANCE].parse().ok()?;
    Some(truncate(performance * seconds.round() / energy, 4))
}

/// The cells of each round, by boot and block.
fn rounds(arm: &ArmReport) -> Vec<Row> {
    let mut rows: std::collections::BTreeMap<(usize, usize), Row> = std::collections::BTreeMap::new();
    for (place, quantities) in COLUMNS.into_iter().enumerate() {
        let summary = quantities.iter().find_map(|quantity| arm.summary(*quantity));
        for point in summary.map_or(&[][..], |summary| &summary.points) {
            rows.entry((point.boot, point.block)).or_default()[place] = Some(point.value);
        }
    }
    rows.into_values().collect()
}

/// Six significant digits, never with an exponent: bc could not read it.
fn plain(value: f64) -> String {
    let text = six_digits(value);
    if text.contains('e') { format!("{value:.*}", if value.abs() < 1.0 { 12 } else { 0 }) } else { text }
}

/// A quotient as bc prints it: digits after `places` are cut off, not rounded.
pub(super) fn truncate(value: f64, places: usize) -> String {
    let scale = 10_f64.powi(places as i32);
    // Cells have six digits: a quotient this close to a whole digit is that digit.
    let digits = (value * scale + 1e-5_f64.copysign(value)).trunc();
    format!("{:.places$}", if digits == 0.0 { 0.0 } else { digits / scale })
}

/// A number as awk prints it by default: `%.6g`.
pub(super) fn six_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value.is_finite() { "0".to_owned() } else { value.to_string() };
    }
    // Rounded first: 999999.5 becomes 1e+06, and only then is the exponent known.
    let scientific = format!("{value:.5e}");
    let exponent: i32 = scientific.split_once('e').and_then(|(_, power)| power.parse().ok()).unwrap_or(0);
    // The bounds of %g with six digits (C standard, fprintf).
    if !(-4..6).contains(&exponent) {
        let (mantissa, _) = scientific.split_once('e').unwrap_or((&scientific, ""));
        let mantissa = trim(mantissa);
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    trim(&format!("{value:.*}", (5 - exponent) as usize)).to_owned()
}

fn trim(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// A cell without separators, which no spreadsheet takes for a formula (OWASP, "CSV Injection"):
/// names come from the author of the run directory.
fn clean(text: &str) -> String {
    // Quotes around a cell are not part of it for a spreadsheet, which would see a formula inside
    // them.
    let plain = |letter| match letter {
        '"' => '\'',
        ',' => ' ',
        letter if letter.is_control() => ' ',
        letter => letter,
    };
    let cell: String = text.chars().map(plain).collect();
    if flyball_text::is_formula(&cell) { format!("'{cell}") } else { cell }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_cut_not_rounded() {
        // echo "scale=4; 99 * 2504.05 / 1563.67" | bc, and so on.
        for (value, places, text) in [
            (99.0 * 2504.05 / 1563.67, 4, "158.5378"),
            (-2.0 / 3.0, 4, "-0.6666"),
            (1.0 / 865.78, 9, "0.001155027"),
            (0.3 / 0.1, 4, "3.0000"),
            (-0.000_000_1, 4, "0.0000"),
        ] {
            assert_eq!(truncate(value, places), text);
        }
    }

    #[test]
    fn six_digits_are_awks() {
        // awk 'BEGIN { print 2310.5233333, 165.7763, 0.00117127912, 1092280.4, 100000, 1e-5/3,
        // 425.61333, 47.5 }'
        for (value, expected) in [
            (2_310.523_333_3, "2310.52"),
            (165.776_3, "165.776"),
            (0.001_171_279_12, "0.00117128"),
            (1_092_280.4, "1.09228e+06"),
            (100_000.0, "100000"),
            (1e-5 / 3.0, "3.33333e-06"),
            (425.613_33, "425.613"),
            (47.5, "47.5"),
            (0.0, "0"),
        ] {
            assert_eq!(six_digits(value), expected);
        }
    }

    #[test]
    fn no_cell_is_a_formula() {
        for (name, cell) in [
            ("=HYPERLINK(\"x\")", "'=HYPERLINK('x')"),
            ("@SUM(1,2)", "'@SUM(1 2)"),
            ("\t=1", "' =1"),
            ("\"=1+1\"", "'=1+1'"),
            ("-x", "'-x"),
            ("-1.5", "-1.5"),
            ("epp=power", "epp=power"),
        ] {
            assert_eq!(clean(name), cell);
        }
    }
}
