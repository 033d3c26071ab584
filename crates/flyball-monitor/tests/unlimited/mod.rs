//! Machines that have only the limits that a test plants, and the judge of their explanations.

use flyball_monitor::{Certainty, Explanation, Limiter, Step};
use flyball_sim::silicon::MachineSpec;

/// Returns a simulated machine without limits of power, heat, current and wide instructions, and
/// with cores that are alike.
pub(crate) fn machine(name: &str) -> MachineSpec {
    let mut spec = MachineSpec::builtin(name).unwrap();
    spec.power.pl1_w = 9000.0;
    spec.power.pl2_w = 0.0;
    spec.power.pl1_s = 1.0;
    spec.power.locked = false;
    spec.thermal.ambient_c = 5.0;
    // Cooling that never is the limit.
    spec.thermal.sink_k_per_w = 0.01;
    spec.thermal.die_k_per_w = 0.01;
    spec.thermal.core_k_per_w = 0.05;
    spec.turbo.avx2_mhz.clear();
    spec.turbo.avx512_mhz.clear();
    for core in &mut spec.core {
        core.budget_w = 0.0;
        core.better.clear();
        core.ranking.clear();
    }
    spec
}

/// Accepted differences between an explanation and the truth, MHz.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tolerance {
    /// Losses below it are rounding.
    pub(crate) least: f64,
    /// If two reasons cost equally much, within this, either may come first.
    pub(crate) tie: f64,
    /// An attributed frequency may differ by this share of the true one, and by `near`.
    pub(crate) share: f64,
    pub(crate) near: f64,
}

/// Compares an explanation with the true costs. Any limiter of an entry counts as correct.
pub(crate) fn judge(truth: &[(&[Limiter], f64)], found: &Explanation, tolerance: Tolerance) -> Count {
    let Tolerance { least, tie, share, near } = tolerance;
    let most = truth.iter().map(|step| step.1).fold(0.0, f64::max);
    let steps = || found.steps.iter().filter(|step| step.mhz >= least);
    // An inferred reason matches each limiter that its evidence fits.
    let fits = |step: &Step| match &step.certainty {
        Certainty::Inferred { fits } => fits.iter().copied().chain([step.limiter]).collect(),
        _ => vec![step.limiter],
    };
    let is_of = |of: &[Limiter], fits: &[Limiter]| of.iter().any(|limiter| fits.contains(limiter));
    let is_first = |fits: &[Limiter]| truth.iter().any(|(of, mhz)| is_of(of, fits) && *mhz >= most - tie);
    let first = found.first().filter(|step| step.mhz >= least);
    let is_none = first.is_none() && most < 1.5 * least;
    let is_near = |of: &[Limiter]| {
        let of_it = found.steps.iter().map(fits).filter(|fits| is_of(of, fits));
        let fits_it: Vec<Limiter> = of_it.flatten().chain(of.iter().copied()).collect();
        let steps = found.steps.iter().filter(|step| is_of(&fits(step), &fits_it));
        let found: f64 = steps.map(|step| step.mhz).sum();
        let truth = truth.iter().filter(|(of, _)| is_of(of, &fits_it));
        let truth: f64 = truth.map(|(_, mhz)| mhz.max(0.0)).sum();
        (found - truth).abs() <= near.max(share * truth)
    };
    let is_named = is_none || first.is_some_and(|step| is_first(&[step.limiter]));
    let is_first = is_none || first.is_some_and(|step| is_first(&fits(step)));
    let is_true = |step: &Step| truth.iter().any(|(of, mhz)| is_of(of, &fits(step)) && *mhz >= 0.2 * least);
    Count {
        situations: 1,
        first: is_first.into(),
        named: is_named.into(),
        second: (!steps().all(is_true)).into(),
        mhz: truth.iter().all(|(of, _)| is_near(of)).into(),
    }
}

/// The number of correct explanations, by criterion.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Count {
    pub(crate) situations: usize,
    pub(crate) first: usize,
    /// The first reason has the true name. In the others counted in `first`, the true one only
    /// fits.
    pub(crate) named: usize,
    /// A false reason is given.
    pub(crate) second: usize,
    pub(crate) mhz: usize,
}

impl Count {
    /// Returns the marks of what was wrong about one explanation.
    pub(crate) fn marks(&self) -> Option<String> {
        let marks = [(self.first == 0, "FIRST"), (self.second > 0, "SECOND"), (self.mhz == 0, "MHZ")];
        let marks: Vec<&str> = marks.iter().filter(|mark| mark.0).map(|mark| mark.1).collect();
        (!marks.is_empty()).then(|| marks.join(" "))
    }

    pub(crate) fn add(&mut self, other: &Count) {
        self.situations += other.situations;
        self.first += other.first;
        self.named += other.named;
        self.second += other.second;
        self.mhz += other.mhz;
    }

    /// Prints the counts. Asserts that at least 99 % of the first reasons and of the MHz are right,
    /// and that at most 1 % have a false second reason.
    pub(crate) fn check(&self, name: &str) {
        let Count { situations, first, named, second, mhz } = *self;
        println!(
            "{name}: first reason right in {first} of {situations} ({named} by name, the others among reasons \
             that fit), a false second reason in {second}, MHz right in {mhz}"
        );
        assert!(first * 100 >= situations * 99, "{name}: {self:?}");
        assert!(second * 100 <= situations, "{name}: {self:?}");
        assert!(mhz * 100 >= situations * 99, "{name}: {self:?}");
    }
}
