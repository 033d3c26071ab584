//! Why CPUs ran as fast as they did in a round, and whether that is the speed that the arm
//! requested. Another crate watches them ([`RoundSpeed`]). The finding is kept with the round, and
//! an arm's rounds are averaged here.

use flyball_text::ghz;

use crate::Arm;

/// Watches the CPUs of rounds, and explains their speed.
pub trait RoundSpeed {
    /// Begins. Called when the arm is in effect, before the meters start.
    fn begin(&mut self, arm: &Arm);

    /// Takes a sample, if one is due. Called at every tick.
    fn attend(&mut self);

    /// Ends. `None` if no speed can be seen.
    fn end(&mut self) -> Option<SpeedNote>;
}

/// The speed of the CPUs that ran, on average over the time in which each ran.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
pub struct SpeedNote {
    /// CPUs, in list form.
    pub cpus: String,
    /// The highest frequency of the hardware.
    pub highest_mhz: f64,
    /// The mean frequency while they ran.
    pub mhz: f64,
    /// The losses between the two, in the order in which they take effect.
    pub losses: Vec<SpeedLoss>,
}

/// The frequency that one limit cost.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
pub struct SpeedLoss {
    /// The name in `flyball why --json`.
    pub limiter: String,
    /// The words after 'lost to' in a sentence.
    pub words: String,
    pub mhz: f64,
    /// Share of the running time in which it limited.
    pub share: f64,
    pub evidence: Vec<String>,
    /// How the reason was concluded, as `flyball why` words it. Absent if the evidence shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certainty: Option<String>,
    /// The setting that changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knob: Option<String>,
    /// Whether a setting requested this limit.
    pub is_setting: bool,
}

/// Below this share, a requested frequency was not reached: rounding to whole ratios is less.
const REACHED: f64 = 0.98;

/// Losses as `flyball why` words them, the largest first.
fn lost(losses: &mut [&SpeedLoss]) -> String {
    losses.sort_by(|one, other| other.mhz.total_cmp(&one.mhz));
    let reasons = losses.iter().map(|loss| {
        let mut words =
            format!("{} to {} ({:.0} % of the time", ghz(loss.mhz), loss.words, loss.share * 100.0);
        let evidence = loss.evidence.first().into_iter().chain(&loss.certainty);
        words.extend(evidence.map(|words| format!(", {words}")));
        words.extend(loss.knob.as_ref().map(|knob| format!("; `{knob}`")));
        words + ")"
    });
    format!("lost {}", reasons.collect::<Vec<_>>().join(", "))
}

impl SpeedNote {
    /// The frequency that the settings request, in MHz, and the losses below it. A limit that takes
    /// effect before a lower one of a setting takes nothing from what was requested.
    fn asked_frequency(&self) -> (f64, Vec<&SpeedLoss>) {
        let settings = self.losses.iter().rposition(|loss| loss.is_setting).map_or(0, |last| last + 1);
        let (before, after) = self.losses.split_at(settings);
        (self.highest_mhz - before.iter().map(|loss| loss.mhz).sum::<f64>(), after.iter().collect())
    }

    /// Why the requested frequency was not reached, as a sentence; `None` if it was.
    pub fn why_not(&self) -> Option<String> {
        let (asked, mut losses) = self.asked_frequency();
        if self.mhz >= REACHED * asked || losses.is_empty() {
            return None;
        }
        Some(format!(
            "ran at {} of the {} GHz that it asked for: {}.",
            ghz(self.mhz),
            ghz(asked),
            lost(&mut losses)
        ))
    }

    /// The losses, the largest first: "lost 0.50 to ...". `None` if there are none.
    pub fn lost(&self) -> Option<String> {
        let mut losses: Vec<&SpeedLoss> = self.losses.iter().collect();
        (!losses.is_empty()).then(|| lost(&mut losses))
    }

    /// The mean of rounds; `None` without any.
    pub(crate) fn mean<'a>(rounds: impl Iterator<Item = &'a SpeedNote>) -> Option<SpeedNote> {
        let mut sum: Option<SpeedNote> = None;
        let mut count = 0.0;
        for round in rounds {
            count += 1.0;
            let Some(sum) = &mut sum else {
                sum = Some(round.clone());
                continue;
            };
            sum.highest_mhz += round.highest_mhz;
            sum.mhz += round.mhz;
            // In the order in which limits take effect, which is the same in all rounds.
            let mut at = 0;
            for loss in &round.losses {
                match sum.losses.iter().position(|other| other.limiter == loss.limiter) {
                    Some(place) => {
                        sum.losses[place].mhz += loss.mhz;
                        sum.losses[place].share += loss.share;
                        // A mean is as certain as its least certain round.
                        if sum.losses[place].certainty.is_none() {
                            sum.losses[place].certainty.clone_from(&loss.certainty);
                        }
                        at = place + 1;
                    }
                    None => {
                        sum.losses.insert(at, loss.clone());
                        at += 1;
                    }
                }
            }
        }
        let mut sum = sum?;
        sum.highest_mhz /= count;
        sum.mhz /= count;
        for loss in &mut sum.losses {
            loss.mhz /= count;
            loss.share /= count;
        }
        Some(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(mhz: f64, losses: &[(&str, f64, bool)]) -> SpeedNote {
        let loss = |&(limiter, mhz, is_setting): &(&str, f64, bool)| SpeedLoss {
            limiter: limiter.to_owned(),
            words: format!("the {limiter}"),
            mhz,
            share: 1.0,
            evidence: vec!["180 of 180 W".to_owned()],
            certainty: None,
            knob: (!is_setting).then(|| "power-limit".to_owned()),
            is_setting,
        };
        SpeedNote {
            cpus: "0-3".to_owned(),
            highest_mhz: 3500.0,
            mhz,
            losses: losses.iter().map(loss).collect(),
        }
    }

    #[test]
    fn what_a_setting_takes_was_asked_for() {
        assert_eq!(note(2000.0, &[("max-freq", 1500.0, true)]).why_not(), None);
        // A limit above that of the setting makes no difference.
        let limits = [("active-cores", 100.0, false), ("max-freq", 400.0, true), ("power", 1000.0, false)];
        let held = note(2000.0, &limits);
        assert_eq!(
            held.why_not().as_deref(),
            Some(
                "ran at 2.00 of the 3.00 GHz that it asked for: lost 1.00 to the power (100 % of the time, 180 of 180 W; \
                 `power-limit`)."
            )
        );
    }

    #[test]
    fn a_reason_that_was_inferred_says_so() {
        let measured = note(2000.0, &[("firmware", 1500.0, false)]);
        let mut inferred = measured.clone();
        inferred.losses[0].certainty = Some("inferred: firmware fits".to_owned());
        let mean = SpeedNote::mean([measured, inferred].iter()).unwrap();
        let why = mean.why_not().unwrap();
        assert!(why.contains("(100 % of the time, 180 of 180 W, inferred: firmware fits; "), "{why}");
    }

    #[test]
    fn rounds_are_averaged() {
        let rounds = [note(3000.0, &[("power", 500.0, false)]), note(3500.0, &[])];
        let mean = SpeedNote::mean(rounds.iter()).unwrap();
        assert_eq!((mean.mhz, mean.losses[0].mhz, mean.losses[0].share), (3250.0, 250.0, 0.5));
        assert_eq!(SpeedNote::mean([].into_iter()), None);
    }
}
