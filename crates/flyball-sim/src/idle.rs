//! The choice of idle states (cpuidle). A governor learns from past sleeps and predicts the length
//! of the next one. If the prediction is wrong, it chooses a state that is too deep (`above`) or
//! too light (`below`).
//!
//! Two governors are modelled after kernel 7.2: menu (drivers/cpuidle/governors/menu.c) and teo
//! (teo.c). The models differ from the kernel in three points. They know the length of sleeps to
//! the microsecond, without the exit. They never choose POLL. The tick wakes a CPU only if it
//! sleeps for a whole step in a state that is not the deepest allowed.

mod menu;
mod teo;

use crate::{board::Board, cpu_state::IdleCount, load::CpuWork};

/// Maximum number of a processor's idle states (flyball-silicon checks it).
const MAX_STATES: usize = 15;

/// If the typical sleep is shorter, the governor ignores timers, us (RESIDENCY_THRESHOLD_NS in
/// drivers/cpuidle/governors/gov.h).
const SHORT_US: u32 = 15;

/// Time to the kernel's own next timer if the workload has set none, us. An estimate: ten per
/// second.
const KERNEL_TIMER_US: u32 = 100_000;

/// After this many equal sleeps, another one changes no governor's prediction: averages drop an
/// eighth of their history with each sleep.
const SETTLED: u8 = 64;

/// The modelled idle governors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Governor {
    #[default]
    Menu,
    Teo,
}

impl Governor {
    pub(crate) fn from_name(name: &[u8]) -> Option<Governor> {
        [Governor::Menu, Governor::Teo].into_iter().find(|governor| governor.name().as_bytes() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Governor::Menu => "menu",
            Governor::Teo => "teo",
        }
    }
}

/// The machine's idle states. Index 0 is the lightest modelled state.
#[derive(Debug)]
pub(crate) struct States {
    /// Target residency and exit latency, us.
    list: Vec<(u32, u32)>,
    /// cpuidle's number of the first state in `list`.
    first: usize,
    /// The tick's period, ns.
    tick: u64,
}

impl States {
    pub(crate) fn new(board: &Board) -> States {
        // The first state is always possible, so its residency is 0.
        let list = board.idle.iter().enumerate().map(|(index, state)| match index {
            0 => (0, state.latency_us),
            _ => (state.residency_us, state.latency_us),
        });
        States { list: list.collect(), first: board.first_idle, tick: (board.tick_us * 1000).max(1) }
    }

    fn residency(&self, state: usize) -> u32 {
        self.list[state].0
    }
}

/// Limits to the choice on a CPU: latency limits of the machine and of the CPU, us, and the mask of
/// disabled states by cpuidle's number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) limit_us: i32,
    pub(crate) own_us: i32,
    pub(crate) disabled: u32,
}

/// The states that a CPU may choose now.
#[derive(Debug, Clone, Copy)]
struct Choice<'a> {
    states: &'a States,
    limit_us: i32,
    disabled: u32,
}

impl<'a> Choice<'a> {
    fn new(states: &'a States, limits: Limits) -> Choice<'a> {
        let limit_us = match limits.own_us {
            // pm_qos_resume_latency_us: 0 sets no constraint of its own, -1 ("n/a") allows no
            // latency at all (drivers/cpuidle/governor.c).
            0 => limits.limit_us,
            -1 => 0,
            own => own.min(limits.limit_us),
        };
        Choice { states, limit_us, disabled: limits.disabled >> states.first }
    }

    fn is_enabled(&self, state: usize) -> bool {
        self.disabled >> state & 1 == 0
    }

    fn is_allowed(&self, state: usize) -> bool {
        self.is_enabled(state) && self.states.list[state].1 as i32 <= self.limit_us
    }

    /// The deepest allowed state that pays off in a sleep of this length, or else the first.
    fn deepest(&self, sleep_us: u32) -> usize {
        let pays = |&state: &usize| self.is_allowed(state) && self.states.residency(state) <= sleep_us;
        (0..self.states.list.len()).rev().find(pays).unwrap_or(0)
    }

    /// Counts an exit like cpuidle_enter_state() (drivers/cpuidle/cpuidle.c): `above` if the state
    /// was too deep and a lighter one is enabled, `below` if the next deeper enabled state would
    /// have paid off, regardless of the latency limit.
    fn count(&self, count: &mut IdleCount, state: usize, sleep_us: u32, exits: u64) {
        count.usage += exits;
        let (residency, latency) = self.states.list[state];
        if sleep_us.saturating_add(latency) < residency {
            // POLL is the lightest state, and always enabled here.
            let has_lighter = self.states.first > 0 || (0..state).any(|lighter| self.is_enabled(lighter));
            count.above += exits * u64::from(has_lighter);
        } else {
            let deeper = (state + 1..self.states.list.len()).find(|&deeper| self.is_enabled(deeper));
            let pays = deeper.is_some_and(|deeper| self.states.residency(deeper) <= sleep_us);
            count.below += exits * u64::from(pays);
        }
    }
}

/// A finished sleep as a governor sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sleep {
    us: u32,
    /// Time from the start of the sleep to the next timer, us.
    timer_us: u32,
    /// True if the tick ended it.
    by_tick: bool,
}

/// A governor's knowledge about a CPU.
#[derive(Debug, Clone)]
enum History {
    Menu(menu::Menu),
    Teo(teo::Teo),
}

impl Default for History {
    fn default() -> History {
        History::Menu(menu::Menu::default())
    }
}

impl History {
    fn new(governor: Governor) -> History {
        match governor {
            Governor::Menu => History::default(),
            Governor::Teo => History::Teo(teo::Teo::default()),
        }
    }

    fn learn(&mut self, states: &States, state: usize, sleep: Sleep) {
        match self {
            History::Menu(menu) => menu.learn(sleep),
            History::Teo(teo) => teo.learn(states, state, sleep),
        }
    }

    fn choose(&mut self, choice: &Choice<'_>, timer_us: u32) -> usize {
        match self {
            History::Menu(menu) => choice.deepest(menu.predict(timer_us)),
            History::Teo(teo) => teo.choose(choice, timer_us),
        }
    }
}

/// A CPU as its idle governor sees it. It fills a cache line, because each step looks at all CPUs.
#[derive(Debug, Clone, Default)]
#[repr(align(64))]
pub(crate) struct Sleeper {
    history: Box<History>,
    limits: Limits,
    /// The state in which the CPU sleeps, or will sleep next.
    state: u8,
    /// The deepest state that the CPU may choose.
    deepest: u8,
    /// Number of recent sleeps equal to `last`, up to [`SETTLED`].
    equal: u8,
    last: Sleep,
    /// Start of the current sleep, rounded to a step.
    since: u64,
    usual: Usual,
}

/// A step whose sleeps teach the governor nothing, and how each sleep is counted.
#[derive(Debug, Clone, Copy, Default)]
struct Usual {
    /// Length of the sleeps, 0 for none. The next field is the timer of the next sleep.
    us: u32,
    timer_us: u32,
    timer: bool,
    above: bool,
    below: bool,
}

impl Sleeper {
    /// Resets the history, as a governor does when it takes over (menu_enable_device(),
    /// teo_enable_device()).
    pub(crate) fn set_governor(&mut self, governor: Governor) {
        *self.history = History::new(governor);
        // Different from any real limits, so that the next call to `limit` chooses again.
        self.limits = Limits { limit_us: -1, ..Limits::default() };
    }

    /// The deepest state that the CPU may choose.
    pub(crate) fn deepest(&self) -> u8 {
        self.deepest
    }

    /// Records that the CPU was busy until `now`.
    pub(crate) fn stay_awake_until(&mut self, now: u64) {
        self.since = self.since.max(now);
    }

    /// Sets the limits of the next step.
    #[inline]
    pub(crate) fn limit(&mut self, states: &States, limits: Limits) {
        if self.limits != limits {
            self.apply_limits(states, limits);
        }
    }

    #[cold]
    fn apply_limits(&mut self, states: &States, limits: Limits) {
        let choice = Choice::new(states, limits);
        (self.limits, self.equal, self.usual.us) = (limits, 0, 0);
        self.deepest = choice.deepest(u32::MAX) as u8;
        self.state = self.history.choose(&choice, KERNEL_TIMER_US) as u8;
    }

    /// Simulates a step that ends at `now` and in which the CPU was idle for `rest` ns: counts the
    /// sleeps that ended, and chooses states for the next ones. Returns the state in which the CPU
    /// was idle.
    #[inline]
    pub(crate) fn step(
        &mut self,
        states: &States,
        (work, rest): (&CpuWork, u64),
        (now, span): (u64, u64),
        counts: &mut [IdleCount],
    ) -> u8 {
        let wakes = work.activity.wakes;
        let usual = &self.usual;
        let rested = if wakes == 0 {
            self.rest(states, work, rest, (now, span), counts)
        } else if work.gap_us == usual.us
            && (work.timer_us, work.timer) == (usual.timer_us, usual.timer)
            && work.other.1 == 0
        {
            let count = &mut counts[usize::from(self.state) + states.first];
            count.usage += u64::from(wakes);
            count.above += u64::from(wakes) * u64::from(usual.above);
            count.below += u64::from(wakes) * u64::from(usual.below);
            self.since = now;
            self.state
        } else {
            self.wake(states, (work, rest), (now, span), counts)
        };
        counts[usize::from(rested) + states.first].time_ns += rest;
        rested
    }

    /// Handles a step in which no sleep ends.
    #[inline]
    fn rest(
        &mut self,
        states: &States,
        work: &CpuWork,
        rest: u64,
        (now, span): (u64, u64),
        counts: &mut [IdleCount],
    ) -> u8 {
        if rest < span {
            self.since = now;
            let choice = Choice::new(states, self.limits);
            if u64::from(work.gap_us) * 1000 < span {
                // Uncounted sleeps that fit into the step, such as those of new processes.
                let us = work.gap_us.max(1);
                let sleep = Sleep { us, timer_us: KERNEL_TIMER_US, by_tick: false };
                for _ in 0..(rest / 1000 / u64::from(us)).clamp(1, u64::from(SETTLED)) {
                    if self.is_settled(&choice, sleep) {
                        break;
                    }
                    self.learn(&choice, sleep, KERNEL_TIMER_US);
                }
            }
            self.fall_asleep(&choice, work.timer_us);
        } else if self.state < self.deepest && now / states.tick > (now - span) / states.tick {
            self.tick(states, now, counts);
        }
        self.state
    }

    /// Handles the sleeps that ended in a step. Returns the state with the most sleep time.
    #[inline(never)]
    fn wake(
        &mut self,
        states: &States,
        (work, rest): (&CpuWork, u64),
        (now, span): (u64, u64),
        counts: &mut [IdleCount],
    ) -> u8 {
        let choice = Choice::new(states, self.limits);
        let wakes = work.activity.wakes;
        let others = work.other.1.min(wakes);
        // No sleep is longer than the time since the CPU last ran.
        let longest = u32::try_from((now - self.since + span) / 1000).unwrap_or(u32::MAX);
        let unknown =
            longest.saturating_sub((span / 1000) as u32).max((rest / 1000) as u32) / u32::from(wakes);
        let us = |us: u32| if us == u32::MAX { unknown } else { us.min(longest) }.max(1);
        let mut most = (0, self.state);
        for (us, mut left) in [(us(work.gap_us), wakes - others), (us(work.other.0), others)] {
            let timer_us = if work.timer { us } else { us.max(KERNEL_TIMER_US) };
            let sleep = Sleep { us, timer_us, by_tick: false };
            if work.timer && (1..wakes).contains(&left) {
                self.fall_asleep(&choice, us);
            }
            while left > 0 {
                // If the next sleep would teach nothing, count all remaining ones at once.
                let exits = if self.is_settled(&choice, sleep) { left } else { 1 };
                left -= exits;
                let state = self.state;
                let counted = &mut counts[usize::from(state) + states.first];
                choice.count(counted, usize::from(state), us, u64::from(exits));
                most = most.max((u64::from(us) * u64::from(exits), state));
                if left > 0 || !self.is_settled(&choice, sleep) {
                    self.learn(&choice, sleep, timer_us);
                }
            }
        }
        self.fall_asleep(&choice, work.timer_us);
        self.since = now;
        let is_usual = self.equal >= SETTLED
            && others == 0
            && u64::from(work.gap_us) * 1000 <= span
            && (work.timer_us == u32::MAX || work.timer_us == self.last.timer_us);
        self.usual = Usual::default();
        if is_usual {
            let mut count = IdleCount::default();
            choice.count(&mut count, usize::from(self.state), self.last.us, 1);
            let (above, below) = (count.above > 0, count.below > 0);
            self.usual = Usual { us: work.gap_us, timer_us: work.timer_us, timer: work.timer, above, below };
        }
        most.1
    }

    /// Starts a sleep that ends with a timer in `timer_us`, if that is known.
    fn fall_asleep(&mut self, choice: &Choice<'_>, timer_us: u32) {
        let is_known = self.equal >= SETTLED && timer_us == self.last.timer_us;
        if timer_us != u32::MAX && !is_known {
            self.usual.us = 0;
            self.state = self.history.choose(choice, timer_us) as u8;
        }
    }

    /// Returns whether another sleep like this one would change nothing.
    fn is_settled(&self, choice: &Choice<'_>, sleep: Sleep) -> bool {
        let is_like = |one: u32, other: u32| {
            one == other
                || (one.abs_diff(other) <= other / 32 && choice.deepest(one) == choice.deepest(other))
        };
        self.equal >= SETTLED
            && is_like(sleep.us, self.last.us)
            && (sleep.timer_us == sleep.us) == (self.last.timer_us == self.last.us)
    }

    fn learn(&mut self, choice: &Choice<'_>, sleep: Sleep, next_timer_us: u32) {
        self.equal = if sleep == self.last { self.equal.saturating_add(1).min(SETTLED) } else { 0 };
        (self.last, self.usual.us) = (sleep, 0);
        self.history.learn(choice.states, usize::from(self.state), sleep);
        self.state = self.history.choose(choice, next_timer_us) as u8;
    }

    /// The tick wakes the CPU from a state that was chosen for a short sleep.
    #[cold]
    fn tick(&mut self, states: &States, now: u64, counts: &mut [IdleCount]) {
        let choice = Choice::new(states, self.limits);
        let us = u32::try_from((now - self.since) / 1000).unwrap_or(u32::MAX);
        let counted = &mut counts[usize::from(self.state) + states.first];
        choice.count(counted, usize::from(self.state), us, 1);
        let sleep = Sleep { us, timer_us: us.max(KERNEL_TIMER_US), by_tick: true };
        self.learn(&choice, sleep, KERNEL_TIMER_US);
        self.since = now;
    }
}
