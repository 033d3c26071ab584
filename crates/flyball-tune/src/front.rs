//! `tune --front`: the settings that no other one beats in two quantities.
//!
//! The fresh rounds of the search follow the others in one run directory. Which rounds are fresh is
//! computed from the others, so resuming and recomputing need nothing else.

mod draw;

use std::fmt::Write as _;

use flyball_measure::{Blocks, Manifest, Metric, Round, render, step};
use flyball_search::{Front, FrontGoal, Label};
use flyball_text::columns::one_line;

use crate::{
    Progress,
    blocks::spent,
    goal::{Aim, Goal, certainty},
    intake::{Block, Intake},
    record::Record,
    space::SpaceError,
};

/// The probability that all claims of a front are right.
const CONFIDENCE: f64 = 0.95;

/// Lets the search for a front choose the blocks of a comparison.
pub struct FrontBlocks<'a> {
    front: Front,
    record: &'a Record,
    intake: Intake<'a>,
    /// Where progress is shown.
    progress: Option<&'a dyn Progress>,
    rounds: usize,
    is_over: bool,
}

/// The result of a search for a front.
#[derive(Debug, schemars::JsonSchema, serde::Serialize)]
pub struct FrontFound {
    pub goal: Goal,
    /// The probability that all claims are right.
    pub confidence: f64,
    pub rounds: usize,
    /// The number of fresh rounds, on which the claims rest.
    pub fresh: usize,
    pub blocks: usize,
    /// In the order of the first quantity.
    pub settings: Vec<FrontPlace>,
}

/// A setting's place in relation to the front.
#[derive(Debug, Clone, schemars::JsonSchema, serde::Serialize)]
pub struct FrontPlace {
    #[serde(skip)]
    pub arm: usize,
    pub name: String,
    pub claim: FrontClaim,
    /// The setting that dominates it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The probability, by the model alone, that nothing dominates it.
    pub chance: f64,
    /// The p-value of fresh rounds if the proposal is wrong, without the correction.
    pub p: f64,
    /// The expected change of each quantity against now as a fraction, low, middle and high (two
    /// deviations).
    pub changes: [[f64; 3]; 2],
}

/// The claim about a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FrontClaim {
    OnFront,
    Dominated,
    Undecided,
}

impl<'a> FrontBlocks<'a> {
    pub fn new(
        record: &'a Record,
        seed: u64,
        progress: Option<&'a dyn Progress>,
    ) -> Result<FrontBlocks<'a>, SpaceError> {
        let goal = FrontGoal { within: record.goal.within, confidence: CONFIDENCE, most: record.most_rounds };
        Ok(FrontBlocks {
            front: Front::new(record.searched.space()?, goal, seed),
            intake: Intake::new(record.searched.arms.len()),
            record,
            progress,
            rounds: 0,
            is_over: false,
        })
    }

    pub fn failure(&self) -> Option<&str> {
        self.intake.failure.as_deref()
    }

    /// The result, if the search is over.
    pub fn found(&self) -> Option<FrontFound> {
        self.is_over.then(|| self.progress())
    }

    /// The findings so far, even while the search goes on.
    fn progress(&self) -> FrontFound {
        let aims = self.aims();
        let name = |arm: usize| self.record.searched.arms[arm].name.clone();
        let changes = self.front.against_base();
        let mut settings: Vec<FrontPlace> = self
            .front
            .standings()
            .into_iter()
            .enumerate()
            .map(|(arm, standing)| {
                let (claim, by) = match standing.label {
                    Label::OnFront => (FrontClaim::OnFront, None),
                    Label::Dominated { by } => (FrontClaim::Dominated, Some(name(by))),
                    Label::Undecided => (FrontClaim::Undecided, None),
                };
                let change = |quantity: usize| {
                    let (mean, deviation) = changes[arm][quantity];
                    let aim = aims[quantity];
                    let mut ends =
                        [-2.0, 0.0, 2.0].map(|times| aim.change_of_log(mean + times * deviation).exp_m1());
                    ends.sort_by(f64::total_cmp);
                    ends
                };
                let changes = [change(0), change(1)];
                FrontPlace {
                    arm,
                    name: name(arm),
                    claim,
                    by,
                    chance: standing.chance,
                    p: standing.p,
                    changes,
                }
            })
            .collect();
        settings.sort_by(|a, b| a.changes[0][1].total_cmp(&b.changes[0][1]));
        FrontFound {
            goal: self.record.goal,
            confidence: CONFIDENCE,
            rounds: self.rounds,
            fresh: self.front.fresh_rounds(),
            blocks: self.intake.taken,
            settings,
        }
    }

    fn aims(&self) -> [Aim; 2] {
        let first = self.record.goal.aim;
        [first, self.record.goal.second.unwrap_or(first)]
    }

    /// Reports what is known and which settings come next.
    fn report(&self, manifest: &Manifest, next: &[usize]) {
        let Some(progress) = self.progress else { return };
        let found = self.progress();
        let metric = &manifest.workload.metric;
        let what = if self.front.is_fresh() {
            let count = |claim: FrontClaim| found.settings.iter().filter(|one| one.claim == claim).count();
            format!(
                "fresh rounds: {} on the front, {} dominated, {} undecided",
                count(FrontClaim::OnFront),
                count(FrontClaim::Dominated),
                count(FrontClaim::Undecided)
            )
        } else {
            let likely = found.settings.iter().filter(|one| one.chance >= 0.5).count();
            format!("{likely} settings are likely on the front")
        };
        let picture = draw::picture(&found, metric, draw::Mark::Likely);
        let text = format!("{picture}{} rounds; {what}\n", self.rounds);
        // A terminal shows the growing picture in one place; a log needs only the line.
        if !progress.draw(&text) {
            progress.say(&format!("{} rounds; {what}; next: {} settings", self.rounds, next.len()));
        }
    }
}

impl Blocks for FrontBlocks<'_> {
    fn next(&mut self, manifest: &Manifest, done: &[&Round]) -> Option<Vec<Vec<usize>>> {
        while let Some(block) = self.intake.next(self.record, manifest, done) {
            if let Block::Rounds(rounds) = block {
                let aims = self.aims();
                self.front.add(&rounds, |quantity, arms| {
                    step(manifest, done, aims[quantity].quantity, &arms).map(f64::ln_1p)
                });
            }
        }
        self.rounds = done.len();
        self.intake.progress = self.progress;
        if self.intake.failure.is_some() {
            return None;
        }
        let used_up = self.record.most_seconds.is_some_and(|most| spent(done) >= most);
        let next = self.front.next().filter(|_| !used_up);
        match next.as_ref().and_then(|orders| orders.first()) {
            Some(order) if !done.is_empty() => self.report(manifest, order),
            Some(_) => {}
            None => self.is_over = true,
        }
        next
    }
}

impl FrontFound {
    pub fn pictures(&self, manifest: &Manifest) -> crate::Pictures {
        draw::pictures(self, manifest)
    }

    /// The text to print.
    pub fn text(&self, manifest: &Manifest) -> String {
        let metric = &manifest.workload.metric;
        let mut out = String::new();
        let within = 100.0 * self.goal.within;
        let _ = writeln!(
            out,
            "goal       {}; differences up to {within} % do not matter",
            self.goal.title(metric)
        );
        let _ = writeln!(out, "machine    {}", one_line(manifest.machine.summary()));
        let _ = writeln!(
            out,
            "search     {} rounds in {} blocks, {} of them fresh",
            self.rounds, self.blocks, self.fresh
        );
        out.push('\n');
        out += &draw::picture(self, metric, draw::Mark::Claims);
        out.push('\n');
        let [first, second] = self.names(metric);
        let _ = writeln!(out, "{:>4} {:>12} {:>12}  setting", "", first, second);
        for (index, place) in self.settings.iter().enumerate() {
            let change = |quantity: usize| render::percent(place.changes[quantity][1]);
            let claim = match (place.claim, &place.by) {
                (FrontClaim::OnFront, _) => "on the front".to_owned(),
                (_, Some(by)) => format!("dominated by {}", self.number_of(by)),
                _ => format!("undecided ({} on the front by the model)", certainty(place.chance)),
            };
            let _ = writeln!(
                out,
                "{:>4} {:>12} {:>12}  {}: {claim}",
                index + 1,
                change(0),
                change(1),
                place.name
            );
        }
        out.push('\n');
        if self.fresh == 0 {
            out += "There were no fresh rounds (--max-runs, --max-time): nothing is claimed.\n";
        } else {
            let _ = writeln!(
                out,
                "All claims together are right with {} % confidence, by the fresh rounds. The changes against now are the model's.",
                render::level(self.confidence)
            );
        }
        out
    }

    /// The number of a setting in the list, and its name.
    fn number_of(&self, name: &str) -> String {
        let place = self.settings.iter().position(|one| one.name == name);
        place.map_or_else(|| name.to_owned(), |place| (place + 1).to_string())
    }

    /// The names of the two quantities.
    fn names(&self, metric: &Metric) -> [String; 2] {
        let second = self.goal.second.unwrap_or(self.goal.aim);
        [self.goal.aim, second].map(|aim| aim.quantity.metric(metric).name.clone())
    }
}
