//! The selftest's sheets: a small one of our own, and, where the facts are at hand, the tables of
//! the kernel document.

use std::fmt::Write;

use flyball_measure::selftest::{judge, read};
use flyball_testing::{shared, skip};

/// A sheet in the script's layout with our own numbers: T = 20, two governors of one driver.
const SHEET: &str = "\
Governor, Round, Des-perf, Freq, Load, Performance, Energy, Performance Per Watt
Unit, , , GHz, , MB/s, J, MB/J
amd-pstate-ondemand, 1, 120.5, 2.1, 55.25, 1000.5, 400.25, 47.4940
amd-pstate-ondemand, 2, 121.5, 2.2, 56.25, 1001.5, 401.25, 47.4230
amd-pstate-ondemand, 3, 122.5, 2.3, 57.25, 1002.5, 402.25, 47.3523
amd-pstate-ondemand, Average, 121.5, 2.2, 56.25, 1001.5, 401.25, 47.4230
amd-pstate-schedutil, 1, , , , 900.25, 300.5, 56.9209
amd-pstate-schedutil, 2, , , , 901.25, 301.5, 56.7951
amd-pstate-schedutil, 3, , , , 902.25, 302.5, 56.6702
amd-pstate-schedutil, Average, , , , 901.25, 301.5, 56.7951
amd-pstate-ondemand VS amd-pstate-schedutil, Comprison(%), , , , -10.0099, -24.8598, 19.7627
";

fn misprints(text: &str) -> Vec<(String, String)> {
    let sheet = read(text.as_bytes()).expect("a sheet");
    judge(&sheet, None).misprints().map(|check| (check.row.clone(), check.column.clone())).collect()
}

#[test]
fn a_right_sheet_has_no_misprints() {
    let sheet = read(SHEET.as_bytes()).expect("a sheet");
    let report = judge(&sheet, None);
    assert_eq!(report.seconds, Some(19));
    assert_eq!(report.misprints().collect::<Vec<_>>(), Vec::<&flyball_measure::selftest::Check>::new());
    // Six rounds and two averages per watt, seven averages, three percentages.
    assert_eq!(report.checks.len(), 8 + 7 + 3);
}

#[test]
fn each_slip_is_found() {
    let lost_sign = SHEET.replace("-10.0099", "10.0099");
    assert_eq!(
        misprints(&lost_sign),
        [("amd-pstate-ondemand VS amd-pstate-schedutil".to_owned(), "performance".to_owned())]
    );
    // A digit too many in a round: its average and its performance per watt do not follow any more.
    let digit = SHEET.replace("1, , , , 900.25", "1, , , , 9900.25");
    let found = misprints(&digit);
    assert_eq!(found.len(), 2, "{found:?}");
    let wrong = SHEET.replace("47.3523", "47.3525");
    assert_eq!(misprints(&wrong).len(), 1);
}

/// Rounds of a comparison by flyball have no fixed length, and its work per joule is rounded once.
#[test]
fn work_per_joule_of_other_tools_is_not_called_misprinted() {
    let sheet = "\
Governor, Round, Des-perf, Freq, Load, Performance, Energy, Performance Per Watt
Unit, , , GHz, %, Mcycles/s, J, Mcycles/J
now, 1, , 3.5, , 16663.9, 949.146, 175.585
now, 2, , 3.5, , 16666.3, 948.464, 175.737
now, 3, , 3.5, , 16668.7, 949.151, 175.635
now, Average, , 3.5, , 16666.3, 948.92, 175.652
";
    let report = judge(&read(sheet.as_bytes()).expect("a sheet"), None);
    assert_eq!(report.seconds, None);
    assert_eq!(report.misprints().count(), 0);
    assert_eq!(report.checks.len(), 3, "the averages that can be checked");
    assert_eq!(report.notes.len(), 1, "that work per joule is not checked: {:?}", report.notes);
}

#[test]
fn three_rounds_show_nothing() {
    let report = judge(&read(SHEET.as_bytes()).expect("a sheet"), None);
    assert_eq!(report.pairs.len(), 3);
    for pair in &report.pairs {
        assert!(pair.apart && !pair.shown, "{pair:?}");
        assert!((pair.smallest_p - 0.1).abs() < 1e-12);
        // At this distance, a t test that trusts three normal rounds would claim a difference.
        assert!(pair.welch_corrected.is_some_and(|p| p < 0.01), "{pair:?}");
    }
}

#[test]
fn odd_files_are_refused_with_their_line() {
    for (text, want) in [
        ("", "not a CSV file of the selftest"),
        ("a,b,c\n1,2,3\n", "not a CSV file of the selftest"),
        ("Governor, Round, Des-perf, Freq, Load, Time, Energy, Performance Per Watt\n", "no rounds"),
        (
            "Governor, Round, Des-perf, Freq, Load, Time, Energy, Performance Per Watt\nx, 1, , , , twelve, 3, 4\n",
            "line 2: 'twelve' in column performance",
        ),
        (
            "Governor, Round, Des-perf, Freq, Load, Time, Energy, Performance Per Watt\nx, y, , , , 1, 3, 4\n",
            "line 2",
        ),
    ] {
        let error = read(text.as_bytes()).expect_err("no sheet").to_string();
        assert!(error.contains(want), "{error}");
    }
    // Any cut of a good sheet is read or refused, never a panic.
    for length in 0..SHEET.len() {
        if let Ok(sheet) = read(&SHEET.as_bytes()[..length]) {
            let _ = judge(&sheet, None);
        }
    }
}

/// The numbers of the facts as the script would have written them. Cells of the facts are
/// `Governor,Round,DesPerf,Freq,Load,Performance,Energy,PPW,...`.
fn sheet_of_facts(text: &str, section: &str, head: &str, unit: &str) -> Option<String> {
    let part = text.split(section).nth(1)?;
    let mut out = format!(
        "Governor, Round, Des-perf, Freq, Load, {head}, Energy, Performance Per Watt\nUnit, , , GHz, , {unit}, J, x\n"
    );
    let mut comparisons = String::new();
    let mut seen: Vec<(String, [String; 3])> = Vec::new();
    for line in part.split("### ").next()?.lines() {
        let cells: Vec<&str> = line.split(',').collect();
        if cells.len() == 10 && cells[1] != "Round" {
            let _ = writeln!(out, "{}", cells[..8].join(", "));
        }
        if cells.len() == 5 && cells[0].contains(" VS ") {
            let columns = ["DesPerf", "Freq_GHz", "Load_pct"];
            let place = match columns.iter().position(|column| *column == cells[1]) {
                Some(place) => place,
                None if cells[1].starts_with("Energy") => 4,
                None if cells[1].starts_with("PPW") => 5,
                None => 3,
            };
            if seen.last().is_none_or(|(name, _)| name != cells[0]) {
                seen.push((cells[0].to_owned(), Default::default()));
                comparisons.push_str(if comparisons.is_empty() { "" } else { "\n" });
                let _ = write!(comparisons, "{}, Comprison(%)", cells[0]);
                let _ = write!(comparisons, "{}", ", ".repeat(place));
            }
            let _ = write!(comparisons, ", {}", cells[2]);
        }
    }
    let _ = writeln!(out, "{comparisons}");
    Some(out)
}

#[test]
fn the_kernel_documents_tables_have_two_misprints() {
    let Some(page) = shared("facts/ut-and-benchmarks.md") else {
        skip(1, "comparison with the kernel documents", "no facts/ut-and-benchmarks.md");
        return;
    };
    let text = std::fs::read_to_string(page).unwrap();
    let (mut cells, mut found) = (0, Vec::new());
    for (section, head, unit) in
        [("### 2.1 tbench", "Performance", "MB/s"), ("### 2.2 gitsource", "Time", "s")]
    {
        let sheet = sheet_of_facts(&text, section, head, unit).expect("the section is there");
        let sheet = read(sheet.as_bytes()).expect("a sheet");
        assert_eq!(sheet.groups.len(), 4);
        assert_eq!(sheet.comparisons.len(), 4);
        let report = judge(&sheet, None);
        cells += report.checks.len();
        found.extend(report.misprints().cloned());
        assert_eq!(report.pairs.len(), 18);
        assert!(report.pairs.iter().all(|pair| !pair.shown));
        if head == "Performance" {
            assert_eq!(report.seconds, Some(99));
            assert_eq!(report.notes.len(), 1 + 4, "the time limit, and four arms drift: {:?}", report.notes);
        }
    }
    // 32 cells per watt, 25 averages, 27 percentages.
    assert_eq!(cells, 32 + 25 + 27);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[0].row, "amd-pstate-ondemand VS amd-pstate-schedutil");
    assert_eq!((found[0].printed.as_str(), found[0].computed.as_str()), ("8.8053", "-8.8053"));
    assert_eq!(found[1].row, "acpi-cpufreq-ondemand average");
    assert_eq!(found[1].computed, "1092.28");
}
