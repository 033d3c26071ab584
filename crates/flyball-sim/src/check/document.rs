//! The kernel's amd-pstate document: every cell of the selftest's tbench and gitsource tables.
//!
//! The document does not name its machine. It shows the levels of the Ryzen 7 5750G, all CPUs at
//! 1.5 GHz under full load with the highest level requested, and 14 W, so the part has a low power
//! limit. The model is that machine's file with the limit of the second and third rounds. The
//! document's gitsource runs make with two jobs per CPU and reports user time, so all CPUs are
//! busy; this file has its own workload for it.

use flyball_silicon::MachineSpec;

use super::bench::{Bench, Span};
use super::{Aim, CheckError, Report, Row, chance, deviation};
use crate::Kernel;
use crate::workload::{Progress, Workload};

/// The columns of the selftest's CSV: desired performance, frequency, load, performance or time,
/// energy, performance per watt.
type Cells = [Option<f64>; 6];

const PERFORMANCE: usize = 3;
const ENERGY: usize = 4;
const PER_WATT: usize = 5;

/// (driver, governor, rounds of (throughput or time, energy), rounds of (desired performance, GHz,
/// load) where printed).
type Arm = (&'static str, &'static str, [(f64, f64); 3], Option<[(f64, f64, f64); 3]>);

/// A table of the document.
struct Test {
    table: &'static str,
    /// Name and unit of the fourth column, and the unit of performance per watt.
    performance: (&'static str, &'static str),
    per_watt: &'static str,
    arms: [Arm; 4],
}

const TBENCH: Test = Test {
    table: "tbench, amd-pstate document",
    performance: ("throughput", "MB/s"),
    per_watt: "MB/J",
    arms: [
        ("acpi-cpufreq", "ondemand", [(2529.9, 1564.4), (2249.76, 1432.97), (2181.46, 1406.88)], None),
        ("acpi-cpufreq", "schedutil", [(2137.64, 1385.24), (2107.05, 1372.23), (2085.86, 1365.35)], None),
        ("amd-pstate", "ondemand", [(2504.05, 1563.67), (2243.64, 1430.32), (2183.88, 1401.32)], None),
        (
            "amd-pstate",
            "schedutil",
            [(2136.54, 1395.26), (2100.56, 1380.5), (2084.12, 1375.76)],
            Some([(165.329, 1.62257, 99.798), (166.0, 1.49761, 99.9993), (166.0, 1.47806, 99.9993)]),
        ),
    ],
};

/// Round 1 of acpi-cpufreq with ondemand is printed as 2379.62 s; its average needs 379.62 s.
const GITSOURCE: Test = Test {
    table: "gitsource, amd-pstate document",
    performance: ("user time", "s"),
    per_watt: "1/J",
    arms: [
        ("acpi-cpufreq", "ondemand", [(379.62, 742.96), (441.74, 817.49), (455.48, 820.01)], None),
        ("acpi-cpufreq", "schedutil", [(459.69, 838.54), (466.55, 830.89), (470.38, 837.32)], None),
        (
            "amd-pstate",
            "ondemand",
            [(475.69, 865.78), (467.1, 839.67), (467.69, 855.85)],
            Some([(50.119, 2.10509, 23.3076), (94.8006, 1.98771, 56.6533), (76.6091, 2.53251, 43.7791)]),
        ),
        (
            "amd-pstate",
            "schedutil",
            [(464.17, 866.8), (480.15, 880.4), (481.79, 867.02)],
            Some([(165.919, 1.62319, 98.3868), (165.97, 1.31309, 99.5712), (165.973, 1.28448, 99.9252)]),
        ),
    ],
};

/// The pairs that the selftest compares, by arm.
const PAIRS: [(usize, usize); 4] = [(0, 1), (2, 3), (0, 2), (1, 3)];

/// Package power limit, W; set from the energy of acpi-cpufreq with schedutil, 1374.27 J in 100 s.
const LIMIT_W: f64 = 13.7;
/// Throughput relative to the model's own scale; set from the same row as `LIMIT_W`.
const SCALE: f64 = 2.12;
/// Switching activity of tbench on this part; set from 1.478 GHz of amd-pstate with schedutil in
/// round 3.
const INTENSITY: f64 = 0.75;
/// Processes of gitsource; set from the energy of acpi-cpufreq with schedutil, 835.6 J, which a
/// minute at the limit takes.
const PROCESSES: u64 = 459_600;
/// User share of the busy time; set from 465.5 s in the same row as `PROCESSES`.
const USER: f64 = 0.511;

pub(super) fn check(report: &mut Report) -> Result<(), CheckError> {
    let mut tbench = Workload::builtin("tbench")?;
    tbench.seconds = 100.0;
    tbench.task[0].intensity = INTENSITY;
    run(report, &TBENCH, &tbench, |progress| progress.rate() * tbench.scale * SCALE)?;
    run(report, &GITSOURCE, &parallel_make()?, |progress| progress.busy_ns * 1e-9 * USER)
}

/// `make -j` with two jobs per CPU, so that every CPU always has a process.
fn parallel_make() -> Result<Workload, CheckError> {
    let mut workload = Workload::builtin("gitsource")?;
    let group = &mut workload.task[0];
    (group.count, group.place, group.stretches) = (0, crate::workload::Placement::Fixed, None);
    (group.cycles, group.turns) = (2.0 * group.cycles, PROCESSES);
    Ok(workload)
}

fn run(
    report: &mut Report,
    test: &Test,
    workload: &Workload,
    performance: impl Fn(&Progress) -> f64,
) -> Result<(), CheckError> {
    let mut averages = Vec::new();
    for (driver, governor, rounds, sampled) in test.arms {
        let mut spec = MachineSpec::builtin("ryzen-5750g")?;
        let power = &mut spec.power;
        (power.pl1_w, power.pl1_s, power.pl2_w, power.pl2_s) = (LIMIT_W, 20.0, 25.0, 1.0);
        let amd = driver == "amd-pstate";
        let options: &[&str] = if amd { &["amd_pstate=passive"] } else { &["amd_pstate=disable"] };
        let mut bench = Bench::boot_spec(spec, Kernel::V6_1, options)?;
        bench.set_all("scaling_governor", governor)?;
        let mut both: [Vec<Cells>; 2] = Default::default();
        for (round, (value, joules)) in rounds.into_iter().enumerate() {
            let mut published: Cells = [None, None, None, Some(value), Some(joules), None];
            if let Some((des_perf, ghz, load)) = sampled.map(|rounds| rounds[round]) {
                (published[0], published[1], published[2]) = (Some(des_perf), Some(ghz), Some(load));
            }
            let (progress, span) = bench.run(workload, &[]);
            let simulated = cells(&span, performance(&progress), amd);
            let (published, simulated) = (test.complete(published), test.complete(simulated));
            let used: &[usize] = if (amd, governor, round, test.per_watt) == (true, "schedutil", 2, "MB/J") {
                &[1]
            } else {
                &[]
            };
            test.rows(
                report,
                &format!("{governor}, {driver}, round {}", round + 1),
                published,
                simulated,
                used,
            );
            both[0].push(published);
            both[1].push(simulated);
        }
        let means = both.map(|rounds| test.mean(&rounds));
        // This row set the constants of both tables.
        let used: &[usize] =
            if (driver, governor) == ("acpi-cpufreq", "schedutil") { &[PERFORMANCE, ENERGY] } else { &[] };
        test.rows(report, &format!("{governor}, {driver}, average"), means[0], means[1], used);
        averages.push(means);
    }
    for (base, other) in PAIRS {
        test.changes(report, base, other, &averages);
    }
    Ok(())
}

fn cells(span: &Span, performance: f64, amd: bool) -> Cells {
    [
        span.des_perf.filter(|_| amd),
        Some(span.ghz()),
        Some(span.load),
        Some(performance),
        Some(span.joules),
        None,
    ]
}

impl Test {
    /// Adds performance per watt, which the script computes from the other cells: 99 s x MB/s / J,
    /// or 1 / J.
    fn complete(&self, mut cells: Cells) -> Cells {
        cells[PER_WATT] = cells[PERFORMANCE].zip(cells[ENERGY]).map(|(value, joules)| match self.per_watt {
            "1/J" => 1.0 / joules,
            _ => 99.0 * value / joules,
        });
        cells
    }

    fn mean(&self, rounds: &[Cells]) -> Cells {
        let mean = |column: usize| {
            let values: Option<Vec<f64>> = rounds.iter().map(|cells| cells[column]).collect();
            values.map(|values| values.iter().sum::<f64>() / values.len() as f64)
        };
        self.complete(std::array::from_fn(mean))
    }

    /// Name and unit of a column.
    fn column(&self, column: usize) -> (&'static str, &'static str) {
        match column {
            0 => ("des-perf", ""),
            1 => ("freq", "GHz"),
            2 => ("load", "%"),
            PERFORMANCE => self.performance,
            ENERGY => ("energy", "J"),
            _ => ("perf/watt", self.per_watt),
        }
    }

    fn rows(&self, report: &mut Report, name: &str, published: Cells, simulated: Cells, used: &[usize]) {
        for column in 0..published.len() {
            let (Some(value), Some(here)) = (published[column], simulated[column]) else { continue };
            let row = Row::new("amd-document", self.table, name, self.column(column), value);
            report.rows.push(row.simulated(here, used.contains(&column)));
        }
    }

    /// Reports how the second arm's averages differ from the first arm's.
    fn changes(&self, report: &mut Report, base: usize, other: usize, averages: &[[Cells; 2]]) {
        let name = |arm: usize| format!("{}-{}", self.arms[arm].0, self.arms[arm].1);
        for column in [PERFORMANCE, ENERGY, PER_WATT] {
            let change = |of: usize| {
                let (base, other) = (averages[base][of][column]?, averages[other][of][column]?);
                Some((other / base - 1.0) * 100.0)
            };
            let (Some(published), Some(simulated)) = (change(0), change(1)) else { continue };
            let spread = |column| chance([self.deviation(base, column), self.deviation(other, column)], 3.0);
            let spread = match column {
                // The quotient combines the errors of performance and energy.
                PER_WATT => spread(PERFORMANCE).hypot(spread(ENERGY)),
                column => spread(column),
            };
            let name = format!("{} VS {}", name(base), name(other));
            let row = Row::new("amd-document", self.table, name, (self.column(column).0, "%"), published);
            let row =
                row.simulated(simulated, false).aim(Aim::Sign(if column == PER_WATT { 12.0 } else { 6.0 }));
            report.rows.push(Row { spread: Some(spread), ..row });
        }
    }

    /// Relative standard deviation of an arm's published rounds.
    fn deviation(&self, arm: usize, column: usize) -> f64 {
        let values = self.arms[arm].2.map(|(value, joules)| if column == ENERGY { joules } else { value });
        deviation(&values)
    }
}

/// Relative standard deviations of tbench's throughput and energy over the document's three rounds
/// under a governor, by driver.
pub(super) fn spread(governor: &str) -> Option<([f64; 2], [f64; 2])> {
    let find = |driver: &str| TBENCH.arms.iter().position(|arm| arm.0 == driver && arm.1 == governor);
    let (acpi, amd) = (find("acpi-cpufreq")?, find("amd-pstate")?);
    let both = |column| [TBENCH.deviation(acpi, column), TBENCH.deviation(amd, column)];
    Some((both(PERFORMANCE), both(ENERGY)))
}
