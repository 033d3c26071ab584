//! AMD's slides: acpi-cpufreq against amd-pstate under three governors, three workloads.

use super::bench::Bench;
use super::{Aim, CheckError, Report, Row, chance, change, document, drivers_apart};
use crate::Kernel;
use crate::workload::Workload;

const GOVERNORS: [&str; 3] = ["schedutil", "ondemand", "performance"];
const DRIVERS: [&str; 2] = ["acpi-cpufreq", "amd-pstate"];

/// One workload's table: for each governor and driver, (performance, energy).
struct Table {
    name: &'static str,
    workload: &'static str,
    quantity: &'static str,
    unit: &'static str,
    published: [[(f64, f64); 2]; 3],
    /// Rows that set constants: (governor, driver).
    used: &'static [(usize, usize)],
    /// Ratio of the published run's length to the model's.
    times: f64,
}

const TABLES: [Table; 3] = [
    Table {
        name: "tbench, slides",
        workload: "tbench",
        quantity: "throughput",
        unit: "MB/s",
        published: [
            [(2214.0, 9074.0), (2207.0, 9080.0)],
            [(2221.0, 9039.0), (2182.0, 9167.0)],
            [(2214.0, 9218.0), (2228.0, 9093.0)],
        ],
        used: &[(0, 0), (2, 0), (2, 1)],
        times: 1.0,
    },
    Table {
        name: "gitsource, slides",
        workload: "gitsource",
        quantity: "time",
        unit: "s",
        published: [
            [(360.218_551_7, 5728.061_311), (401.057_759_7, 4606.293_384)],
            [(501.147_187_6, 4491.407_676), (578.824_580_7, 3435.134_909)],
            [(357.112_983, 5732.135_085), (353.706_530_7, 5701.750_577)],
        ],
        used: &[(0, 1), (1, 0), (2, 0)],
        times: 1.0,
    },
    Table {
        name: "speedometer, slides",
        workload: "speedometer",
        quantity: "score",
        unit: "",
        published: [
            [(194.594_243_9, 747.867_016_1), (188.281_473_3, 715.0619)],
            [(189.389_341_9, 721.856_737_2), (180.675_487_7, 682.2303)],
            [(195.193_477_4, 738.304_19), (194.500_182, 760.2146)],
        ],
        used: &[(1, 0), (2, 0)],
        times: 1.0,
    },
];

/// Lengths of Speedometer's runs in seconds.
const SPEEDOMETER_S: [[f64; 2]; 3] = [[69.0, 68.0], [75.0, 81.0], [68.0, 68.0]];

/// Score times length of a Speedometer run, constant because each run does equal work. Set from
/// performance with acpi-cpufreq.
const SPEEDOMETER_WORK: f64 = 195.193_477_4 * 68.0;

/// Performance per watt as printed, and amd-pstate's change in percent.
const PER_WATT: [[([f64; 2], f64); 3]; 3] = [
    [([48.5662, 48.383], -0.4), ([48.89, 47.3753], -3.1), ([47.8084, 48.7735], 2.0)],
    [
        ([0.000_174_579, 0.000_217_094], 24.35),
        ([0.000_222_647, 0.000_291_109], 30.75),
        ([0.000_174_455, 0.000_175_385], 0.53),
    ],
    [
        ([17.953_730_47, 17.904_939_8], -0.27),
        ([19.677_312_56, 21.451_283_02], 9.02),
        ([17.977_896_71, 17.397_734_57], -3.23),
    ],
];

impl Table {
    /// Performance per watt, from performance and energy; `speedometer_s` is the length of a
    /// Speedometer run.
    fn per_watt(&self, (performance, joules): (f64, f64), speedometer_s: f64) -> f64 {
        match self.quantity {
            "time" => 1.0 / joules,
            "score" => performance * speedometer_s / joules,
            // tbench -t 200: the selftest counts a second less.
            _ => performance * 199.0 / joules,
        }
    }

    /// The printed performance per watt and its change under a governor.
    fn efficiency(&self, number: usize, g: usize, got: [(f64, f64); 2]) -> Vec<Row> {
        let (printed, printed_change) = PER_WATT[number][g];
        let governor = GOVERNORS[g];
        let here = [0, 1].map(|d| self.per_watt(got[d], SPEEDOMETER_S[g][d]));
        let unit = match self.quantity {
            "time" => "1/J",
            "score" => "s/J",
            _ => "MB/J",
        };
        let of = ("perf/watt", unit);
        let mut rows: Vec<Row> = DRIVERS
            .iter()
            .enumerate()
            .map(|(d, driver)| {
                Row::new("amd-slides", self.name, format!("{governor}, {driver}"), of, printed[d])
                    .simulated(here[d], false)
            })
            .collect();
        let name = format!("{governor}: amd-pstate against acpi-cpufreq");
        let row = Row::new("amd-slides", self.name, name, ("perf/watt", "%"), printed_change);
        let row = row.simulated(change(here), false);
        // The quotient combines the errors of performance and energy, both the model's and chance.
        let spread = document::spread(governor)
            .filter(|_| self.workload == "tbench")
            .map(|both| chance(both.0, 1.0).hypot(chance(both.1, 1.0)));
        rows.push(Row { spread, ..row.aim(Aim::Sign(12.0)) });
        if self.quantity == "score" {
            for (d, driver) in DRIVERS.iter().enumerate() {
                let name = format!("{governor}, {driver}");
                let row = Row::new("amd-slides", self.name, name, ("length", "s"), SPEEDOMETER_S[g][d]);
                rows.push(row.simulated(SPEEDOMETER_WORK / got[d].0, g == 2 && d == 0));
            }
        }
        rows
    }
}

/// Runs one arm and returns performance and energy, scaled to the published length.
fn arm(table: &Table, governor: &str, driver: &str, published_s: f64) -> Result<(f64, f64), CheckError> {
    let options: &[&str] =
        if driver == "amd-pstate" { &["amd_pstate=passive"] } else { &["amd_pstate=disable"] };
    let mut bench = Bench::boot("ryzen-5750g", Kernel::V6_1, options)?;
    bench.set_all("scaling_governor", governor)?;
    let workload = Workload::builtin(table.workload)?;
    bench.wait(0.5);
    let (progress, span) = bench.run(&workload, &[]);
    Ok(match table.quantity {
        "time" => (span.seconds * table.times, span.joules * table.times),
        "score" => (progress.rate() * workload.scale, span.joules / span.seconds * published_s),
        _ => (progress.rate() * workload.scale, span.joules * table.times),
    })
}

pub(super) fn check(report: &mut Report) -> Result<(), CheckError> {
    for (number, table) in TABLES.iter().enumerate() {
        let mut changes = Vec::new();
        for (g, governor) in GOVERNORS.into_iter().enumerate() {
            let mut got = [(0.0, 0.0); 2];
            for (d, driver) in DRIVERS.into_iter().enumerate() {
                got[d] = arm(table, governor, driver, SPEEDOMETER_S[g][d])?;
                let (p, e) = table.published[g][d];
                let used = table.used.contains(&(g, d));
                for (of, published, simulated) in
                    [((table.quantity, table.unit), p, got[d].0), (("energy", "J"), e, got[d].1)]
                {
                    let row = format!("{governor}, {driver}");
                    let row = Row::new("amd-slides", table.name, row, of, published);
                    report.rows.push(row.simulated(simulated, used));
                }
            }
            let published = table.published[g];
            // The slides show one run per arm. Take the spread of tbench from the kernel document's
            // rounds.
            let spread = document::spread(governor)
                .filter(|_| table.workload == "tbench")
                .map(|both| (chance(both.0, 1.0), chance(both.1, 1.0)));
            let rows =
                drivers_apart("amd-slides", table.name, governor, table.quantity, published, got, spread);
            changes.extend(rows);
            changes.extend(table.efficiency(number, g, got));
        }
        report.rows.append(&mut changes);
    }
    Ok(())
}
