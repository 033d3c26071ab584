//! The kernel's amd-pstate document: its selftest's tbench and gitsource tables.
//!
//! The document does not name its machine. It says: levels as on the Ryzen 7 5750G, all CPUs at 1.5 GHz under full load
//! with the highest level asked for, 14 W: a part with a low power limit. The model is that machine's file with the
//! limit of the second and third rounds. Its gitsource runs are parallel and give user time; no model of such a run
//! exists yet, so these rows are printed without a simulated value.

use flyball_silicon::MachineSpec;

use super::bench::Bench;
use super::{CheckError, Report, Row, chance, deviation, drivers_apart};
use crate::Kernel;
use crate::workload::Workload;

/// (driver, governor, rounds of (throughput or time, energy)).
type Arm = (&'static str, &'static str, [(f64, f64); 3]);

const TBENCH: [Arm; 4] = [
    ("acpi-cpufreq", "ondemand", [(2529.9, 1564.4), (2249.76, 1432.97), (2181.46, 1406.88)]),
    ("acpi-cpufreq", "schedutil", [(2137.64, 1385.24), (2107.05, 1372.23), (2085.86, 1365.35)]),
    ("amd-pstate", "ondemand", [(2504.05, 1563.67), (2243.64, 1430.32), (2183.88, 1401.32)]),
    ("amd-pstate", "schedutil", [(2136.54, 1395.26), (2100.56, 1380.5), (2084.12, 1375.76)]),
];

/// Round 1 of acpi-cpufreq with ondemand is printed as 2379.62 s; its average needs 379.62 s.
const GITSOURCE: [Arm; 4] = [
    ("acpi-cpufreq", "ondemand", [(379.62, 742.96), (441.74, 817.49), (455.48, 820.01)]),
    ("acpi-cpufreq", "schedutil", [(459.69, 838.54), (466.55, 830.89), (470.38, 837.32)]),
    ("amd-pstate", "ondemand", [(475.69, 865.78), (467.1, 839.67), (467.69, 855.85)]),
    ("amd-pstate", "schedutil", [(464.17, 866.8), (480.15, 880.4), (481.79, 867.02)]),
];

/// Package power limit, W; set from the energy of acpi-cpufreq with schedutil, 1374.27 J in 100 s.
const LIMIT_W: f64 = 13.7;
/// Throughput against that of the model's own scale; set from the same row.
const SCALE: f64 = 1.77;

pub(super) fn check(report: &mut Report) -> Result<(), CheckError> {
    let mut spec = MachineSpec::builtin("ryzen-5750g")?;
    let power = &mut spec.power;
    (power.pl1_w, power.pl1_s, power.pl2_w, power.pl2_s) = (LIMIT_W, 20.0, 25.0, 1.0);
    let mut workload = Workload::builtin("tbench")?;
    workload.seconds = 100.0;
    let table = "tbench, amd-pstate document";
    let mut averages = Vec::new();
    for (driver, governor, rounds) in TBENCH {
        let options: &[&str] =
            if driver == "amd-pstate" { &["amd_pstate=passive"] } else { &["amd_pstate=disable"] };
        let mut bench = Bench::of(spec.clone(), Kernel::V6_1, options)?;
        bench.set_all("scaling_governor", governor)?;
        let mut sums = [(0.0, 0.0); 2];
        for (round, &(mbps, joules)) in rounds.iter().enumerate() {
            let (progress, span) = bench.run(&workload, &[]);
            let got = (progress.rate() * workload.scale * SCALE, span.joules);
            sums[0] = (sums[0].0 + mbps, sums[0].1 + joules);
            sums[1] = (sums[1].0 + got.0, sums[1].1 + got.1);
            let used = (driver, governor) == ("acpi-cpufreq", "schedutil");
            for (of, published, simulated) in
                [(("throughput", "MB/s"), mbps, got.0), (("energy", "J"), joules, got.1)]
            {
                let row = format!("{governor}, {driver}, round {}", round + 1);
                let row = Row::new("amd-document", table, row, of, published);
                report.rows.push(row.simulated(simulated, used));
            }
        }
        averages.push((governor, driver, sums));
    }
    changes(report, table, &averages);
    gitsource(report);
    Ok(())
}

/// How throughput and energy of tbench scatter in the document's three rounds under a governor, driver by driver.
pub(super) fn spread(governor: &str) -> Option<([f64; 2], [f64; 2])> {
    let of = |driver: &str, value: fn(&(f64, f64)) -> f64| {
        let arm = TBENCH.iter().find(|arm| arm.0 == driver && arm.1 == governor)?;
        Some(deviation(&arm.2.iter().map(value).collect::<Vec<f64>>()))
    };
    let both = |value| Some([of("acpi-cpufreq", value)?, of("amd-pstate", value)?]);
    Some((both(|round| round.0)?, both(|round| round.1)?))
}

type Sums = [(f64, f64); 2];

fn changes(report: &mut Report, table: &'static str, averages: &[(&'static str, &'static str, Sums)]) {
    for governor in ["ondemand", "schedutil"] {
        let find = |driver: &str| averages.iter().find(|a| a.0 == governor && a.1 == driver).map(|a| a.2);
        let (Some(acpi), Some(amd)) = (find("acpi-cpufreq"), find("amd-pstate")) else { continue };
        let published = [acpi[0], amd[0]];
        let simulated = [acpi[1], amd[1]];
        report.rows.extend(drivers_apart(
            "amd-document",
            table,
            governor,
            "throughput",
            published,
            simulated,
            spread(governor).map(|both| (chance(both.0, 3.0), chance(both.1, 3.0))),
        ));
    }
}

fn gitsource(report: &mut Report) {
    for (driver, governor, rounds) in GITSOURCE {
        for (round, (seconds, joules)) in rounds.into_iter().enumerate() {
            for (of, published) in [(("user time", "s"), seconds), (("energy", "J"), joules)] {
                let row = format!("{governor}, {driver}, round {}", round + 1);
                report.rows.push(Row::new(
                    "amd-document",
                    "gitsource, amd-pstate document",
                    row,
                    of,
                    published,
                ));
            }
        }
    }
}
