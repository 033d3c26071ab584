//! teo: predicts that a sleep lasts until the next timer, unless something else cut most of the
//! recent long sleeps short.

use super::{Choice, MAX_STATES, SHORT_US, Sleep, States};

const PULSE: u32 = 1024;

/// Sleeps whose length falls between the residency of a state and that of the next one.
#[derive(Debug, Clone, Copy, Default)]
struct Bin {
    /// Sleeps that ended with the known timer.
    hits: u32,
    /// Sleeps that ended before the known timer.
    intercepts: u32,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Teo {
    bins: [Bin; MAX_STATES],
    total: u32,
    /// Sleeps below [`SHORT_US`].
    short: u32,
    /// True if the last choice looked at the timers.
    has_looked: bool,
}

fn fade(value: &mut u32) {
    *value = if *value < 8 { 0 } else { *value - *value / 8 };
}

impl Teo {
    pub(super) fn learn(&mut self, states: &States, state: usize, sleep: Sleep) {
        fade(&mut self.short);
        self.short += if sleep.us < SHORT_US { PULSE } else { 0 };
        let timer_us = if self.has_looked { sleep.timer_us } else { u32::MAX };
        let (mut of_timer, mut of_sleep) = (0, 0);
        self.total = PULSE;
        for (index, bin) in self.bins.iter_mut().enumerate().take(states.list.len()) {
            fade(&mut bin.hits);
            fade(&mut bin.intercepts);
            self.total += bin.hits + bin.intercepts;
            let residency = states.residency(index);
            if residency <= timer_us {
                of_timer = index;
                if residency <= sleep.us {
                    of_sleep = index;
                }
            }
        }
        let tolerance = states.list[state].1 / 2;
        let is_hit = of_timer == of_sleep && timer_us <= sleep.us.saturating_add(tolerance);
        if sleep.by_tick || is_hit {
            self.bins[of_timer].hits += PULSE;
        } else {
            self.bins[of_sleep].intercepts += PULSE;
        }
    }

    pub(super) fn choose(&mut self, choice: &Choice<'_>, timer_us: u32) -> usize {
        let states = choice.states;
        let enabled = |&state: &usize| choice.is_enabled(state);
        let all = 0..states.list.len();
        let first = all.clone().find(enabled).unwrap_or(0);
        let mut chosen = all.clone().rev().find(enabled).unwrap_or(0);
        let lighter = &self.bins[..chosen];
        let hits: u32 = lighter.iter().map(|bin| bin.hits).sum();
        let intercepts: u32 = lighter.iter().map(|bin| bin.intercepts).sum();
        if 2 * intercepts > self.total.saturating_sub(hits) {
            // If bins are equal, use the deepest.
            let most = (0..chosen).max_by_key(|&index| lighter[index].intercepts).unwrap_or(0);
            let mut sum = 0;
            for index in (first..chosen).rev() {
                sum += self.bins[index].intercepts;
                if choice.is_enabled(index) {
                    chosen = index;
                    if 2 * sum > intercepts && index <= most {
                        break;
                    }
                }
            }
        }
        let deepest = all.rev().find(|&state| choice.is_allowed(state)).unwrap_or(0);
        chosen = chosen.min(deepest);
        let is_light = states.residency(chosen) < SHORT_US;
        let is_strict = choice.limit_us < SHORT_US as i32 / 2;
        self.has_looked = !(is_light && (2 * self.short >= self.total || is_strict));
        if !self.has_looked || states.residency(chosen) <= timer_us {
            return chosen;
        }
        let fits = |&state: &usize| choice.is_enabled(state) && states.residency(state) <= timer_us;
        (first..chosen).rev().find(fits).unwrap_or(first)
    }
}
