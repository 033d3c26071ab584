//! An explanation in one sentence.

use std::fmt;

use flyball_text::ghz;

use crate::{Explanation, Limiter, State, Step};

/// `2.1 of 3.5 GHz: 0.9 lost to the package's power limit (180 of 180 W, 97 % of the time;
/// power-limit), 0.5 to heat`.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.state, self.mhz) {
            (State::Offline, _) => return f.write_str("offline"),
            (State::Asleep, _) => return f.write_str("asleep: idle for the whole time"),
            (State::Unknown, _) => return f.write_str("a recording has limits but no speed"),
            (State::Running, None) => {
                // The counters of a CPU that hardly runs are not read, because reading would wake
                // it.
                return f.write_str(match self.busy {
                    Some(busy) if busy < 0.02 => {
                        "it ran less than 2 % of the time; its frequency was not measured"
                    }
                    _ => "it ran; its frequency cannot be read here",
                });
            }
            (State::Running, Some(mhz)) => match self.highest {
                Some(highest) => write!(f, "{} of {} GHz", ghz(mhz), ghz(highest))?,
                None => write!(f, "{} GHz; the highest frequency is not known", ghz(mhz))?,
            },
        }
        let mut steps: Vec<&Step> = self.steps.iter().collect();
        // The largest first, not in the waterfall's order: the sentence answers what to change.
        steps.sort_by(|one, other| other.mhz.total_cmp(&one.mhz));
        if steps.is_empty() && self.highest.is_some() {
            f.write_str(": nothing limited it")?;
        }
        for (number, step) in steps.iter().enumerate() {
            f.write_str(if number == 0 { ": " } else { ", " })?;
            write!(
                f,
                "{} {}to {}",
                ghz(step.mhz),
                if number == 0 { "lost " } else { "" },
                step.limiter.words()
            )?;
            let mut words: Vec<String> = Vec::new();
            let evidence = step.evidence.first();
            words.push(match step.limiter {
                Limiter::Power | Limiter::Package | Limiter::ActiveCores => evidence.value.clone(),
                _ => evidence.to_string(),
            });
            words.extend(step.certainty.words());
            words.push(format!("{:.0} % of the time", step.share * 100.0));
            words.extend(step.by.as_ref().map(|by| format!("set by {by}")));
            write!(f, " ({}", words.join(", "))?;
            if let Some(knob) = step.knob {
                write!(f, "; `{knob}`")?;
            }
            f.write_str(")")?;
        }
        if let Some(cap) = self.unheld() {
            write!(
                f,
                "; {} of {} GHz did not hold it ({})",
                cap.limiter.words(),
                ghz(cap.mhz),
                cap.evidence
            )?;
        }
        match self.busy {
            Some(busy) if busy < 0.5 => {
                write!(f, "; it ran {:.0} % of the time and slept otherwise", (busy * 100.0).max(1.0))
            }
            _ => Ok(()),
        }
    }
}
