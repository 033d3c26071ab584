//! Our own comparisons in the selftest's layout, so that whatever reads its files reads ours.

use std::fmt::Write;

use super::decimal::{Decimal, six_digits};
use crate::{
    analyse::{ArmReport, Quantity, Report},
    stats,
};

/// The values of one row: freq, load, performance, energy, performance per watt.
type Row = [Option<f64>; 5];

const COLUMNS: [Quantity; 5] =
    [Quantity::Frequency, Quantity::Busy, Quantity::Performance, Quantity::Energy, Quantity::PerWatt];

/// The report as a sheet. Desired performance is not measured here and stays empty. Averages are means, as in the
/// selftest; percentages are cut after four digits. Of a simulated or emulated machine the first two lines have one cell more that
/// says so.
pub fn write(report: &Report) -> String {
    let metric = &report.workload.metric;
    let name = if metric.is_rate() { "Performance" } else { "Time" };
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
    let mut averages: Vec<(String, [String; 5])> = Vec::new();
    for arm in &report.arms {
        let arm_name = clean(&arm.name);
        for (index, row) in rounds(arm).iter().enumerate() {
            let cells = row.map(|value| value.map_or_else(String::new, plain));
            let _ = writeln!(out, "{arm_name}, {}, , {}", index + 1, cells.join(", "));
        }
        if arm.rounds > 0 {
            let cells = COLUMNS.map(|quantity| {
                let values: Vec<f64> = arm
                    .summary(quantity)
                    .map_or_else(Vec::new, |s| s.points.iter().map(|p| p.value).collect());
                stats::mean(&values).map_or_else(String::new, plain)
            });
            let _ = writeln!(out, "{arm_name}, Average, , {}", cells.join(", "));
            averages.push((arm_name, cells));
        }
    }
    if let Some(((base, first), others)) = averages.split_first() {
        for (name, cells) in others {
            let percent: Vec<String> = first
                .iter()
                .zip(cells)
                .map(|(a, b)| {
                    let (a, b) = (Decimal::parse(a)?, Decimal::parse(b)?);
                    Some(b.minus(a).times(100)?.over(a, 4)?.to_string())
                })
                .map(Option::unwrap_or_default)
                .collect();
            // Spelled as the script spells it, for those who look for it.
            let _ = writeln!(out, "{base} VS {name}, Comprison(%), , {}", percent.join(", "));
        }
    }
    out
}

/// Rounds by boot and block, with what each quantity has of them.
fn rounds(arm: &ArmReport) -> Vec<Row> {
    let mut rows: std::collections::BTreeMap<(usize, usize), Row> = std::collections::BTreeMap::new();
    for (place, quantity) in COLUMNS.into_iter().enumerate() {
        for point in arm.summary(quantity).map_or(&[][..], |summary| &summary.points) {
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

/// A cell without separators, which no spreadsheet takes for a formula (OWASP, "CSV Injection"): names come from the author
/// of the run directory.
fn clean(text: &str) -> String {
    let cell: String =
        text.chars().map(|letter| if letter == ',' || letter.is_control() { ' ' } else { letter }).collect();
    let formula = cell.trim_start().starts_with(['=', '+', '-', '@']) && cell.trim().parse::<f64>().is_err();
    if formula { format!("'{cell}") } else { cell }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula() {
        for (name, cell) in [
            ("=HYPERLINK(\"x\")", "'=HYPERLINK(\"x\")"),
            ("@SUM(1,2)", "'@SUM(1 2)"),
            ("\t=1", "' =1"),
            ("-x", "'-x"),
            ("-1.5", "-1.5"),
            ("epp=power", "epp=power"),
        ] {
            assert_eq!(clean(name), cell);
        }
    }
}
