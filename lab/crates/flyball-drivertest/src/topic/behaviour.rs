//! `behaviour`: compares time, energy, frequency and heat of equal work under each governor and
//! preference, in the closed loop. Equal seeds on the baseline make pairs, so a difference is due
//! to the kernel; its interval is over the seeds. The topic reports differences, and fails only if
//! a file of thresholds says so.

mod figures;
mod loads;
mod thresholds;

pub use thresholds::Thresholds;

use std::collections::BTreeMap;

use flyball_measure::stats::{hodges_lehmann, walsh_interval};

use super::{Bench, Topic};
use crate::{
    boots::{Boots, CannotTell, Ended, Job},
    mode::Mode,
    record,
    report::Test,
    silicon,
    step::Step,
};
use figures::{Figures, Quantity, figures};
use loads::{LOADS, WORK};

pub(super) struct Behaviour;

/// Boots of each kernel: the minimum for an interval of [`LEVEL`] (two in 64 orders of signs are
/// more extreme).
const SEEDS: u64 = 6;
/// Confidence level of an interval.
const LEVEL: f64 = 0.95;

impl Topic for Behaviour {
    fn name(&self) -> &'static str {
        "behaviour"
    }

    fn applies(&self, mode: &Mode) -> bool {
        mode.shape.is_none()
    }

    fn about(&self) -> &'static str {
        "time, energy, frequency and heat of the same work under each governor and preference"
    }

    // It takes twelve boots of minutes each.
    fn is_default(&self, _: &Bench<'_>) -> bool {
        false
    }

    fn run(&self, bench: &Bench<'_>, mode: &Mode) -> Result<Vec<Test>, CannotTell> {
        let settings = settings(mode);
        let seeds = (0..SEEDS).map(|n| bench.seed.wrapping_add(n));
        let baseline = bench.baseline.filter(|boots| mode.exists_in(boots.release()));
        let (mut new, mut old) = (Vec::new(), Vec::new());
        for seed in seeds {
            new.push(measure(bench.kernel, mode, &settings, seed)?);
            if let Some(baseline) = baseline {
                old.push(measure(baseline, mode, &settings, seed)?);
            }
        }
        Ok(report(&settings, &new, &old, bench.thresholds))
    }
}

/// A governor with a preference, if there is one.
struct Setting {
    name: String,
    steps: Vec<Step>,
}

fn settings(mode: &Mode) -> Vec<Setting> {
    let write = |name: &str, value: &str| Step::write(format!("cpufreq/policy*/{name}"), value);
    let governors: &[&str] = if mode.is_setpolicy() {
        &["performance", "powersave"]
    } else {
        &["performance", "powersave", "ondemand", "conservative", "schedutil"]
    };
    let mut all = Vec::new();
    for governor in governors {
        let steps = vec![write("scaling_governor", governor)];
        // Under performance the driver decides the preference (amd-pstate.rst, intel_pstate.rst).
        if mode.has_preference() && mode.is_setpolicy() && *governor == "powersave" {
            for preference in ["performance", "balance_performance", "balance_power", "power"] {
                let steps =
                    [steps.clone(), vec![write("energy_performance_preference", preference)]].concat();
                all.push(Setting { name: format!("{governor}-{preference}"), steps });
            }
        } else {
            all.push(Setting { name: (*governor).to_owned(), steps });
        }
    }
    all
}

/// Figures by load and setting; none for a setting that the kernel rejects.
type Measured = BTreeMap<(usize, usize), Figures>;

/// The agent's text, and the step number of each load under each setting.
fn steps(mode: &Mode, settings: &[Setting]) -> (String, Vec<(u32, usize, usize)>) {
    let mut text = String::from("seq behaviour\n");
    let mut number = 0;
    let mut begin = |text: &mut String| {
        number += 1;
        text.push_str(&format!("s {number}\n"));
        number
    };
    let mut places = Vec::new();
    for (at, setting) in settings.iter().enumerate() {
        begin(&mut text);
        for step in mode.reset().iter().chain(&setting.steps) {
            text.push_str(&format!("{step}\n"));
        }
        for (load, row) in LOADS.iter().enumerate() {
            // A pause, so that the previous load's heat and a governor's history do not differ
            // between kernels.
            begin(&mut text);
            text.push_str("p 0.05\n");
            places.push((begin(&mut text), load, at));
            text.push_str(&format!("x exec >/dev/null 2>&1; {WORK} {}\n", row.command));
        }
    }
    begin(&mut text);
    (text, places)
}

fn measure(boots: &dyn Boots, mode: &Mode, settings: &[Setting], seed: u64) -> Result<Measured, CannotTell> {
    let (text, places) = steps(mode, settings);
    let ended = boots.boot(mode, &Job::agent(text, seed))?;
    read(&ended, settings, &places).ok_or_else(|| {
        CannotTell::Driver(format!("{} did not run all loads: {}", boots.release(), ended.last_words()))
    })
}

/// The figures of a guest that completed.
fn read(ended: &Ended, settings: &[Setting], places: &[(u32, usize, usize)]) -> Option<Measured> {
    if !ended.output.lines().any(|line| line == "end") {
        return None;
    }
    let marks = record::marks(&ended.registers);
    let lines: Vec<silicon::Line> = silicon::lines(&ended.silicon).collect();
    let mut refused = vec![false; settings.len()];
    let mut step = 0;
    for line in ended.output.lines() {
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next()) {
            (Some("s"), Some(number), _) => step = number.parse().unwrap_or(0),
            (Some("w"), Some(path), Some(answer)) if answer != "ok" => {
                // The number of the setting's first load is two above its own.
                let own = places.iter().find(|(number, load, _)| *load == 0 && *number == step + 2);
                let wanted = |step: &Step| matches!(step, Step::Write { path: of, .. } if of.rsplit('/').next() == path.rsplit('/').next());
                if let Some((.., at)) = own
                    && settings[*at].steps.iter().any(wanted)
                {
                    refused[*at] = true;
                }
            }
            _ => {}
        }
    }
    let mut all = Measured::new();
    for (number, load, at) in places.iter().filter(|(.., at)| !refused[*at]) {
        let number = *number as usize;
        let (from, to) = (marks.get(number - 1)?, marks.get(number)?);
        all.insert((*load, *at), figures(&lines, *from, *to));
    }
    Some(all)
}

fn report(
    settings: &[Setting],
    new: &[Measured],
    old: &[Measured],
    thresholds: Option<&Thresholds>,
) -> Vec<Test> {
    let mut tests = Vec::new();
    for (load, row) in LOADS.iter().enumerate() {
        for (at, setting) in settings.iter().enumerate() {
            let name = format!("{}.{}", row.name, setting.name);
            let key = (load, at);
            let of =
                |all: &[Measured]| all.iter().map(|one| one.get(&key).copied()).collect::<Option<Vec<_>>>();
            let Some(new) = of(new).filter(|new| !new.is_empty()) else {
                tests.push(Test::skip(name, "the kernel does not have this governor or preference"));
                continue;
            };
            let old = of(old).filter(|old| !old.is_empty());
            let (lines, beyond) = compare(&new, old.as_deref(), thresholds);
            tests.push(if beyond.is_empty() {
                Test { details: lines, ..Test::pass(name) }
            } else {
                Test::fail(name, [beyond, lines].concat())
            });
        }
    }
    tests
}

/// Prints a line per quantity, and one per exceeded threshold.
fn compare(
    new: &[Figures],
    old: Option<&[Figures]>,
    thresholds: Option<&Thresholds>,
) -> (Vec<String>, Vec<String>) {
    let (mut lines, mut beyond) = (Vec::new(), Vec::new());
    for quantity in Quantity::ALL {
        let values = |all: &[Figures]| all.iter().map(|one| one.get(quantity)).collect::<Option<Vec<f64>>>();
        let Some(now) = values(new) else { continue };
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let mut line = format!("{}: {}", quantity.word(), quantity.show(mean(&now)));
        if let Some(was) = old.and_then(values) {
            line = format!("{line}, baseline {}", quantity.show(mean(&was)));
            let changes: Option<Vec<f64>> =
                was.iter().zip(&now).map(|(was, now)| quantity.change(*was, *now)).collect();
            let changes = changes.unwrap_or_default();
            let unit = quantity.change_unit();
            if let (Some(middle), Some(interval)) =
                (hodges_lehmann(&changes), walsh_interval(&changes, LEVEL))
            {
                let (low, high) = (interval.low, interval.high);
                line = format!(
                    "{line}; change {middle:+.2} {unit} ({low:+.2} to {high:+.2}, {} seeds)",
                    changes.len()
                );
                if let Some(limit) = thresholds.and_then(|all| all.exceeded(quantity, low, high)) {
                    beyond.push(format!(
                        "{} changed by {low:+.2} to {high:+.2} {unit}: beyond {limit:+} {unit}",
                        quantity.word()
                    ));
                }
            }
        }
        lines.push(line);
    }
    (lines, beyond)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode() -> Mode {
        Mode::all("ryzen-5750g").unwrap().remove(0)
    }

    /// A kernel with constant times, whose power depends on the seed and the kernel.
    struct Kernel {
        watts: f64,
        refuses: &'static str,
    }

    impl Boots for Kernel {
        fn boot(&self, _: &Mode, job: &Job) -> Result<Ended, CannotTell> {
            let text = String::from_utf8_lossy(&job.files[1].1).into_owned();
            let (mut ended, mut ms) = (Ended::default(), 1000);
            for line in text.lines() {
                match line.split_once(' ').unwrap_or((line, "")) {
                    ("s", number) => {
                        ended.output += &format!("s {number}\n");
                        ended.registers += &format!("{}.{:09} mark 1\n", ms / 1000, ms % 1000 * 1_000_000);
                    }
                    ("w", rest) => {
                        let answer = if !self.refuses.is_empty() && rest.ends_with(self.refuses) {
                            "EINVAL"
                        } else {
                            "ok"
                        };
                        let (path, value) = rest.split_once(' ').unwrap();
                        ended.output += &format!("w {path} {answer} {value}\n");
                    }
                    ("x", _) => {
                        for _ in 0..10 {
                            ms += 1;
                            let watts = self.watts + job.seed as f64 / 100.0;
                            ended.silicon += &format!("{ms}.000 {watts:.3} 40.0 3000000 1000000\n");
                        }
                    }
                    _ => ms += 5,
                }
            }
            ended.output += "end\n";
            Ok(ended)
        }

        fn release(&self) -> &'static str {
            "unknown"
        }
    }

    fn run(new: &Kernel, old: Option<&Kernel>, thresholds: Option<&Thresholds>) -> Vec<Test> {
        let bench = Bench {
            kernel: new,
            baseline: old.map(|old| old as &dyn Boots),
            against: None,
            seed: 0,
            shrinks: true,
            save: None,
            thresholds,
        };
        Behaviour.run(&bench, &mode()).unwrap()
    }

    #[test]
    fn thresholds_decide() {
        let (old, new) = (Kernel { watts: 10.0, refuses: "" }, Kernel { watts: 11.0, refuses: "" });
        let tests = run(&new, Some(&old), None);
        assert!(tests.len() == LOADS.len() * 5 && tests.iter().all(Test::is_good));
        let energy = &tests[0].details[1];
        assert!(
            energy.starts_with("energy: 0.110 J, baseline 0.100 J; change +9.98 % (+9.95 to +10.00"),
            "{energy}"
        );
        let limit = |text: &str| Thresholds::parse(text).unwrap();
        assert!(run(&new, Some(&old), Some(&limit("energy = +12 %"))).iter().all(Test::is_good));
        assert!(run(&old, Some(&new), Some(&limit("energy = +3 %"))).iter().all(Test::is_good));
        let failed = run(&new, Some(&old), Some(&limit("energy = +3 %\ntime = +3 %")));
        assert!(failed.iter().all(|test| !test.is_good() && test.details[0].contains("beyond +3 %")));
    }

    #[test]
    fn a_refused_setting_is_skipped() {
        let kernel = Kernel { watts: 10.0, refuses: "preference balance_power" };
        let tests = run(&kernel, None, None);
        let skipped = tests.iter().filter(|test| test.outcome == crate::report::Outcome::Skip);
        assert!(
            skipped.clone().count() == LOADS.len()
                && skipped.clone().all(|test| test.name.ends_with("balance_power"))
        );
        assert!(tests[0].details.iter().all(|line| !line.contains("baseline")));
    }

    #[test]
    fn a_guest_that_stops_says_nothing() {
        struct Stops;
        impl Boots for Stops {
            fn boot(&self, _: &Mode, _: &Job) -> Result<Ended, CannotTell> {
                Ok(Ended { output: "s 1\n".into(), ..Ended::default() })
            }
            fn release(&self) -> &'static str {
                "6.12"
            }
        }
        assert!(matches!(measure(&Stops, &mode(), &settings(&mode()), 0), Err(CannotTell::Driver(_))));
    }
}
