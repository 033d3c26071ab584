//! Runs a workload on a simulated machine, step by step. A task's turn can span several steps;
//! turns much shorter than a step are run in bulk. Tasks on one CPU get equal shares of its time.
//! The two threads of a core slow each other down by the share in the machine's file.
//!
//! The engine does not model caches, memory bandwidth, wakeup latencies other than those of idle
//! states, or the order in which a run queue runs its tasks.

use std::sync::{Arc, Mutex, PoisonError};

use flyball_silicon::{Activity, License, Silicon};

use super::{Group, Noise, Placement, Workload};
use crate::load::{CpuWork, Load, Step};

/// Kernel housekeeping of each CPU: wakeups per second and cycles per wakeup. The cycles are set
/// from the Speed Select guide's idle CPUs with base-freq on: the 20 us at the slow frequency after
/// a wakeup from C6 are a sixth of the total.
const HOUSEKEEPING_HZ: u64 = 10;
const HOUSEKEEPING_CYCLES: f64 = 290_000.0;
/// Activity of a core that waits for memory, relative to one that executes.
const STALLED: f64 = 0.45;

/// The progress of a workload.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    /// Turns of the groups that count.
    pub turns: u64,
    /// Time when the last counted turn ended, or the current time, in nanoseconds since the start.
    pub ns: u64,
    /// True if the workload has nothing more to do.
    pub done: bool,
    /// Sum of the lengths of all turns, including idle gaps, in nanoseconds.
    pub turn_ns: f64,
    /// Sum of the busy time of all turns.
    pub busy_ns: f64,
}

impl Progress {
    /// Mean length of a turn, s.
    pub fn turn_seconds(&self) -> f64 {
        self.turn_ns / self.turns.max(1) as f64 * 1e-9
    }

    /// Turns per second.
    pub fn rate(&self) -> f64 {
        self.turns as f64 / (self.ns.max(1) as f64 * 1e-9)
    }
}

/// An engine's progress, which remains accessible after the machine has taken the engine.
pub type Shared = Arc<Mutex<Progress>>;

#[derive(Debug, Clone, Default)]
struct Task {
    group: usize,
    /// The task's CPU; for a pair, both CPUs.
    cpus: [usize; 2],
    /// Remaining work of the turn.
    cycles: f64,
    memory: f64,
    gap: f64,
    /// Whole length of the turn's gap.
    pause: f64,
    /// Start of the turn, ns since the start of the workload.
    began: f64,
    /// Busy time of the turn so far.
    busy: f64,
    over: bool,
    /// True if a new process has just begun.
    fresh: bool,
    /// Number of turns begun.
    begun: u64,
    /// For a pair: busy share of each CPU in the turn.
    share: f64,
    /// [`Group::is_steady`] of its group.
    steady: bool,
}

/// Length of a task's turn on its current CPU, in ns, and its parts. It is constant within a step
/// until the task moves.
#[derive(Clone, Copy)]
struct Turn {
    whole: f64,
    /// Tasks that share the CPU.
    tasks_on: f64,
    /// Time of wakeups from idle states within the turn.
    wake: f64,
    /// Nanoseconds per cycle of work.
    slow: f64,
}

/// Runs one workload.
#[derive(Debug)]
pub struct Engine {
    workload: Workload,
    /// CPUs that the tasks may use; empty for all.
    allowed: Vec<usize>,
    tasks: Vec<Task>,
    /// Turns left to begin, by group.
    left: Vec<u64>,
    noise: Noise,
    clock: f64,
    /// Current progress, copied to `shared` at the end of each step that changed it.
    progress: Progress,
    /// End of the last counted turn, ns.
    counted_at: f64,
    shared: Shared,
    /// For each CPU, the other thread of its core (the CPU itself if there is none), and the share
    /// of work that remains when both threads are busy.
    beside: Vec<(usize, f64)>,
    /// Tasks on each CPU in this step.
    tasks_on: Vec<u16>,
    busy: Vec<f64>,
    stalled: Vec<f64>,
    intensity: Vec<f64>,
    rotor: usize,
    started: bool,
    /// True if no task ever pauses or moves, and none has ended since `tasks_on` was counted.
    is_counted: bool,
    /// The kernel's own work: its factor in this run, and its start, in steps.
    kernel: (f64, u64),
}

impl Engine {
    /// Creates a run of a workload on some CPUs, or on all if `allowed` is empty.
    pub fn new(workload: Workload, allowed: Vec<u32>, seed: u64) -> Engine {
        let left = workload.task.iter().map(|g| if g.turns == 0 { u64::MAX } else { g.turns }).collect();
        Engine {
            workload,
            allowed: allowed.into_iter().map(|c| c as usize).collect(),
            tasks: Vec::new(),
            left,
            noise: Noise::new(seed ^ 0x666c_7962_616c_6c21),
            clock: 0.0,
            progress: Progress::default(),
            counted_at: 0.0,
            shared: Shared::default(),
            beside: Vec::new(),
            tasks_on: Vec::new(),
            busy: Vec::new(),
            stalled: Vec::new(),
            intensity: Vec::new(),
            rotor: 0,
            started: false,
            is_counted: false,
            kernel: (1.0, 0),
        }
    }

    /// Like [`Engine::new`], but varied by the amounts in the workload's description. Equal seeds
    /// give equal runs.
    pub fn varied(mut workload: Workload, allowed: Vec<u32>, seed: u64) -> Engine {
        let mut noise = Noise::new(seed ^ 0x7661_7269_6174_696f);
        let v = workload.variation.clone();
        let mut factor = |deviation: f64| (1.0 + deviation * noise.normal()).max(0.05);
        let (cycles, memory, kernel) = (factor(v.cycles), factor(v.memory), factor(v.kernel));
        for group in &mut workload.task {
            group.cycles *= cycles;
            group.long = group.long.map(|(share, long)| (share, long * cycles));
            group.memory_ns *= memory;
            // The time of devices does not depend on the clock, but varies too.
            if group.io {
                group.gap_ns *= memory;
            }
        }
        let begins = noise.next_u64() % 1000;
        Engine { kernel: (kernel, begins), ..Engine::new(workload, allowed, seed) }
    }

    /// A handle to the engine's progress.
    pub fn shared(&self) -> Shared {
        Arc::clone(&self.shared)
    }

    fn start(&mut self, silicon: &Silicon) {
        self.started = true;
        let cpus = silicon.cpus();
        self.tasks_on = vec![0; cpus];
        self.busy = vec![0.0; cpus];
        self.stalled = vec![0.0; cpus];
        self.intensity = vec![1.0; cpus];
        self.beside = (0..cpus)
            .map(|cpu| {
                let core = silicon.topology().core_of(cpu);
                let [a, b] = core.cpus;
                (if cpu == a { b } else { a }, silicon.spec().core[core.kind].smt_share)
            })
            .collect();
        self.allowed.retain(|&c| c < cpus);
        if self.allowed.is_empty() {
            self.allowed = (0..cpus).collect();
        }
        // Groups with their own CPUs take them in order.
        let mut first = 0;
        let groups = std::mem::take(&mut self.workload.task);
        for (group, g) in groups.iter().enumerate() {
            let count = if g.count == 0 { self.allowed.len() as u32 } else { g.count };
            for n in 0..count as usize {
                let at = |i: usize| self.allowed[(first + i) % self.allowed.len()];
                let cpus =
                    if g.place == Placement::Pair { [at(2 * n), at(2 * n + 1)] } else { [at(n), at(n)] };
                let mut task =
                    Task { group, cpus, share: g.busy_share, steady: g.is_steady(), ..Task::default() };
                self.begin(&mut task, g, 0.0);
                self.tasks.push(task);
            }
            first += match g.place {
                Placement::Pair => 2 * count as usize,
                Placement::Fixed => count as usize,
                Placement::Roam | Placement::Stay => 0,
            };
        }
        self.workload.task = groups;
    }

    /// Begins a task's next turn, if turns are left.
    #[inline]
    fn begin(&mut self, task: &mut Task, g: &Group, now: f64) {
        if self.left[task.group] == 0 {
            (task.over, self.is_counted) = (true, false);
            return;
        }
        if self.left[task.group] != u64::MAX {
            self.left[task.group] -= 1;
        }
        task.begun += 1;
        (task.cycles, task.memory, task.gap, task.pause) = (g.cycles, g.memory_ns, g.gap_ns, g.gap_ns);
        (task.began, task.busy, task.fresh) = (now, 0.0, g.fork);
        if task.steady {
            // Steady groups use none of the following.
            return;
        }
        if let Some((share, long)) = g.long
            && self.noise.share() < share
        {
            task.cycles = long;
        }
        if let Some((share, long)) = g.long_gap
            && self.noise.share() < share
        {
            (task.gap, task.pause) = (long, long);
        }
        if g.spread > 0.0 {
            task.cycles *= 1.0 + g.spread * (2.0 * self.noise.share() - 1.0);
        }
        if let Some((share, busy, turns)) = g.stretches {
            let stretch = task.begun / turns;
            let draw = Noise::new(stretch ^ 0x7374_7265_7463_6800).share();
            task.share = if draw < share { busy } else { g.busy_share };
        }
        let (place, over) = (g.place, g.over as usize);
        if place == Placement::Roam || (place == Placement::Stay && self.tasks_on[task.cpus[0]] > 1) {
            self.tasks_on[task.cpus[0]] = self.tasks_on[task.cpus[0]].saturating_sub(1);
            let cpu = self.find(task.cpus[0], over);
            self.tasks_on[cpu] += 1;
            task.cpus = [cpu, cpu];
        }
    }

    /// Finds an idle CPU, preferably on an idle core, in round-robin order. If all are busy,
    /// returns the one with the fewest tasks.
    fn find(&mut self, last: usize, over: usize) -> usize {
        let n = if over == 0 { self.allowed.len() } else { self.allowed.len().min(over) };
        self.rotor = (self.rotor + 1) % n;
        let mut best = (u32::MAX, last);
        for k in 0..n {
            let cpu = self.allowed[(self.rotor + k) % n];
            let (other, _) = self.beside[cpu];
            let neighbour = if other == cpu { 0 } else { u32::from(self.tasks_on[other] > 0) };
            let cost = u32::from(self.tasks_on[cpu]) * 4 + neighbour;
            if cost < best.0 {
                best = (cost, cpu);
                if cost == 0 {
                    break;
                }
            }
        }
        best.1
    }

    /// A task's speed on a CPU in GHz (cycles per nanosecond), reduced if the core's other thread
    /// is busy.
    fn speed(&self, silicon: &Silicon, cpu: usize) -> f64 {
        let ghz = f64::from(silicon.frequency(cpu).0) * 1e-6;
        let (other, share) = self.beside[cpu];
        let share = if other != cpu && self.tasks_on[other] > 0 { share } else { 1.0 };
        ghz * share
    }

    fn run(&mut self, task: &mut Task, g: &Group, step: &Step<'_>, work: &mut [CpuWork]) {
        let span = step.span_ns as f64;
        // Tasks of these groups may begin a turn on another CPU.
        let moves = matches!(g.place, Placement::Roam | Placement::Stay);
        let mut known: Option<Turn> = None;
        let mut t = 0.0;
        while t < span && !task.over {
            let cpu = task.cpus[0];
            if task.cycles <= 0.0 && task.memory <= 0.0 {
                // In its idle gap.
                let d = task.gap.min(span - t);
                task.gap -= d;
                t += d;
                if task.gap <= 0.0 {
                    // Read it before `finish`, which starts the next turn.
                    let pause = task.pause;
                    self.finish(task, g, t);
                    known = known.filter(|_| !moves);
                    let work = &mut work[task.cpus[0]];
                    work.io |= g.io;
                    work.timer |= g.timer;
                    work.end_sleep((pause / 1000.0) as u32);
                }
                continue;
            }
            if std::mem::take(&mut task.fresh) {
                work[cpu].fork = true;
                work[task.cpus[1]].fork = true;
            }
            let turn = match known {
                Some(turn) => turn,
                None => *known.insert(self.turn(task, g, step)),
            };
            let Turn { whole, tasks_on, wake, slow } = turn;
            if g.has_equal_turns() && whole * 2.0 < span && task.cycles >= g.cycles {
                let passed = self.whole_turns(task, g, &turn, (t, span), work);
                if passed > 0.0 {
                    t += passed;
                    known = known.filter(|_| !moves);
                    continue;
                }
            }
            // The order of memory, cycles and the wakeup does not matter: only the sums do.
            let need = (task.cycles * slow + task.memory) * tasks_on;
            let d = need.min(span - t);
            let share = if d < need { d / need } else { 1.0 };
            let (cycles, memory) = (task.cycles * share, task.memory * share);
            self.account(task, g, cycles * slow, memory, work);
            task.busy += cycles * slow + memory;
            (task.cycles, task.memory) = (task.cycles - cycles, task.memory - memory);
            t += d;
            if d >= need {
                (task.cycles, task.memory) = (0.0, 0.0);
                if g.timer {
                    work[cpu].timer_us = (task.gap / 1000.0) as u32;
                }
                task.gap += wake;
                if task.gap <= 0.0 {
                    self.finish(task, g, t);
                    known = known.filter(|_| !moves);
                }
            }
        }
    }

    /// One step of a task of a steady group: a faster version of [`run`](Self::run) without checks
    /// that are constant there.
    fn run_steady(&mut self, task: &mut Task, g: &Group, step: &Step<'_>, work: &mut [CpuWork]) {
        if task.over || (task.cycles <= 0.0 && task.memory <= 0.0) {
            return self.run(task, g, step, work);
        }
        let span = step.span_ns as f64;
        let cpu = task.cpus[0];
        let tasks_on = f64::from(self.tasks_on[cpu].max(1));
        let slow = 1.0 / self.speed(step.silicon, cpu);
        let whole = (g.cycles * slow + g.memory_ns) * tasks_on;
        let in_bulk = whole * 2.0 < span;
        let (mut busy, mut stalled) = (self.busy[cpu], self.stalled[cpu]);
        let mut t = 0.0;
        while t < span && !task.over {
            let mut count = 0;
            if in_bulk && task.cycles >= g.cycles {
                // 32 bits suffice: a turn is at least a cycle or a nanosecond, a step is a
                // millisecond.
                let fit = u64::from(((span - t) / whole) as u32);
                count = fit.min(self.left[task.group].saturating_add(1));
            }
            if count > 0 {
                let turns = f64::from(count as u32);
                let memory = turns * g.memory_ns;
                busy += turns * g.cycles * slow + memory;
                stalled += memory;
                t += self.end_turns(task, g, (count, turns), slow, (t, turns * whole));
                continue;
            }
            let need = (task.cycles * slow + task.memory) * tasks_on;
            let left = span - t;
            if need <= left {
                let took = task.cycles * slow + task.memory;
                busy += took;
                stalled += task.memory;
                task.busy += took;
                t += need;
                self.finish(task, g, t);
            } else {
                let share = left / need;
                let (cycles, memory) = (task.cycles * share, task.memory * share);
                busy += cycles * slow + memory;
                stalled += memory;
                task.busy += cycles * slow + memory;
                (task.cycles, task.memory) = (task.cycles - cycles, task.memory - memory);
                t += left;
            }
        }
        (self.busy[cpu], self.stalled[cpu], self.intensity[cpu]) = (busy, stalled, g.intensity);
        if busy > 0.0 {
            work[cpu].gap_us = work[cpu].gap_us.min(1000);
        }
    }

    /// Counts the tasks on each CPU, except those that wait during the whole step.
    fn count_tasks(&mut self, span: f64) {
        self.tasks_on.fill(0);
        for task in &self.tasks {
            let waits = task.cycles <= 0.0 && task.memory <= 0.0 && task.gap > span;
            if !task.over && !waits {
                for cpu in task.cpus.into_iter().take(if task.cpus[0] == task.cpus[1] { 1 } else { 2 }) {
                    self.tasks_on[cpu] += 1;
                }
            }
        }
        self.is_counted = self.workload.task.iter().all(Group::is_steady);
    }

    /// Computes a turn of a task on its current CPUs.
    #[inline]
    fn turn(&self, task: &Task, g: &Group, step: &Step<'_>) -> Turn {
        let cpu = task.cpus[0];
        let tasks_on = f64::from(self.tasks_on[cpu].max(1));
        let wake = if g.gap_ns > 0.0 || (g.place == Placement::Pair && !g.fork) {
            let each = if g.place == Placement::Pair { 2.0 } else { 1.0 };
            let state = step.idle.get(cpu).copied().unwrap_or(0);
            each * (step.silicon.wake_ns(cpu, state) as f64 + step.silicon.wake_loss_ns(cpu, state))
        } else {
            0.0
        };
        let slow = match g.place {
            Placement::Pair => {
                0.5 / self.speed(step.silicon, cpu) + 0.5 / self.speed(step.silicon, task.cpus[1])
            }
            _ => 1.0 / self.speed(step.silicon, cpu),
        };
        let whole = (g.cycles * slow + g.memory_ns) * tasks_on + g.gap_ns + wake;
        Turn { whole, tasks_on, wake, slow }
    }

    /// Ends a turn and begins the next.
    #[inline]
    fn finish(&mut self, task: &mut Task, g: &Group, t: f64) {
        let now = self.clock + t;
        if g.counts {
            let p = &mut self.progress;
            p.turns += 1;
            p.turn_ns += now - task.began;
            p.busy_ns += task.busy;
            self.counted_at = now;
        }
        self.begin(task, g, now);
    }

    /// Runs as many whole turns as fit between `from` and `to` at once. Returns the time that they
    /// took.
    fn whole_turns(
        &mut self,
        task: &mut Task,
        g: &Group,
        turn: &Turn,
        (from, to): (f64, f64),
        work: &mut [CpuWork],
    ) -> f64 {
        let fit = ((to - from) / turn.whole) as u64;
        // One more than `left`, which excludes the current turn.
        let count = fit.min(self.left[task.group].saturating_add(1));
        if count == 0 {
            return 0.0;
        }
        let turns = count as f64;
        self.account_turns(task, g, turns, turn, work);
        self.end_turns(task, g, (count, turns), turn.slow, (from, turns * turn.whole))
    }

    /// Ends whole turns, which took `passed` from `from` on, and begins the next. Returns `passed`.
    #[inline]
    fn end_turns(
        &mut self,
        task: &mut Task,
        g: &Group,
        (count, turns): (u64, f64),
        slow: f64,
        (from, passed): (f64, f64),
    ) -> f64 {
        task.begun += count - 1;
        if self.left[task.group] != u64::MAX {
            self.left[task.group] -= (count - 1).min(self.left[task.group]);
        }
        let now = self.clock + (from + passed);
        if g.counts {
            let p = &mut self.progress;
            p.turns += count;
            p.turn_ns += passed;
            p.busy_ns += turns * (g.cycles * slow + g.memory_ns);
            self.counted_at = now;
        }
        self.begin(task, g, now);
        passed
    }

    fn account_turns(&mut self, task: &Task, g: &Group, turns: f64, turn: &Turn, work: &mut [CpuWork]) {
        let &Turn { whole, wake, slow, .. } = turn;
        if g.place == Placement::Pair && task.cpus[0] != task.cpus[1] {
            for cpu in task.cpus {
                let busy = turns * whole * task.share;
                self.busy[cpu] += busy;
                self.stalled[cpu] += busy * g.memory_ns / (g.cycles * slow + g.memory_ns).max(1.0);
                self.intensity[cpu] = g.intensity;
                if g.fork {
                    work[cpu].fork = true;
                } else {
                    let wakes = &mut work[cpu].activity.wakes;
                    *wakes = wakes.saturating_add(turns as u16);
                }
                // The exit itself is not idle time.
                work[cpu].gap_us = ((whole - wake) * (1.0 - task.share) / 1000.0) as u32;
            }
        } else {
            self.account(task, g, turns * g.cycles * slow, turns * g.memory_ns, work);
            if g.gap_ns > 0.0 {
                let wakes = &mut work[task.cpus[0]].activity.wakes;
                *wakes = wakes.saturating_add(turns as u16);
                work[task.cpus[0]].io |= g.io;
                if g.timer {
                    work[task.cpus[0]].timer = true;
                    work[task.cpus[0]].timer_us = (g.gap_ns / 1000.0) as u32;
                }
            }
        }
    }

    #[inline]
    fn account(&mut self, task: &Task, g: &Group, executing: f64, memory: f64, work: &mut [CpuWork]) {
        let [first, second] = task.cpus;
        if first == second {
            return self.account_on(first, 1.0, (task, g), (executing, memory), work);
        }
        self.account_on(first, task.share, (task, g), (executing, memory), work);
        self.account_on(second, task.share, (task, g), (executing, memory), work);
    }

    /// Accounts a task's work to a CPU, which is busy for the share `part` of it.
    #[inline]
    fn account_on(
        &mut self,
        cpu: usize,
        part: f64,
        (task, g): (&Task, &Group),
        (executing, memory): (f64, f64),
        work: &mut [CpuWork],
    ) {
        self.busy[cpu] += (executing + memory) * part;
        self.stalled[cpu] += memory * part;
        self.intensity[cpu] = g.intensity;
        // A sleep that ended in this step has set the exact gap.
        let has_slept = work[cpu].activity.wakes > 0 && g.place != Placement::Pair;
        let gap = &mut work[cpu].gap_us;
        if has_slept && *gap != u32::MAX {
            return;
        }
        if g.place == Placement::Pair {
            *gap = (*gap).min(((executing + memory) * (1.0 - task.share) / 1000.0) as u32);
        } else if g.gap_ns > 0.0 {
            *gap = (*gap).min((task.pause / 1000.0) as u32);
        } else if executing + memory > 0.0 {
            *gap = (*gap).min(1000);
        }
    }
}

impl Group {
    /// Returns whether all turns of the group have equal length.
    #[inline]
    fn has_equal_turns(&self) -> bool {
        self.spread == 0.0 && self.long.is_none() && self.long_gap.is_none()
    }

    /// Returns whether the group's tasks never move or pause, and all their turns are equal.
    #[inline]
    fn is_steady(&self) -> bool {
        self.place == Placement::Fixed
            && self.gap_ns == 0.0
            && self.has_equal_turns()
            && !self.fork
            && self.stretches.is_none()
    }
}

impl Load for Engine {
    fn step(&mut self, step: &Step<'_>, work: &mut [CpuWork]) {
        if !self.started {
            self.start(step.silicon);
        }
        let span = step.span_ns as f64;
        self.busy.fill(0.0);
        self.stalled.fill(0.0);
        if !self.is_counted {
            self.count_tasks(span);
        }
        // Moved out while they run, because a turn changes both its task and the engine.
        let (mut tasks, groups) = (std::mem::take(&mut self.tasks), std::mem::take(&mut self.workload.task));
        let before = self.progress.clone();
        for task in &mut tasks {
            let g = &groups[task.group];
            if task.steady { self.run_steady(task, g, step, work) } else { self.run(task, g, step, work) }
        }
        (self.tasks, self.workload.task) = (tasks, groups);
        self.clock += span;
        let beat = step.now_ns / step.span_ns.max(1) + self.kernel.1;
        let period = (1_000_000_000 / HOUSEKEEPING_HZ / step.span_ns.max(1)).max(1);
        // `beat + 7 * cpu` modulo `period`, without a division for each CPU.
        let (mut rest, more) = (beat % period, 7 % period);
        for (cpu, w) in work.iter_mut().enumerate() {
            let is_due = rest == 0;
            rest += more;
            rest -= if rest >= period { period } else { 0 };
            if is_due && self.busy[cpu] < span * 0.5 {
                // The start of the work is slower than the frequency suggests; the silicon has that
                // loss.
                let ghz = f64::from(step.silicon.frequency(cpu).0) * 1e-6;
                let slow = step.silicon.wake_loss_ns(cpu, step.idle.get(cpu).copied().unwrap_or(0));
                w.kernel = self.busy[cpu] == 0.0;
                if w.activity.wakes == 0 {
                    // The kernel's own timer ends a sleep for which no task gives a length.
                    (w.timer, w.other) = (true, (u32::MAX, 1));
                }
                self.busy[cpu] += HOUSEKEEPING_CYCLES * self.kernel.0 / ghz + slow;
                w.activity.wakes = w.activity.wakes.saturating_add(1);
            }
            let busy = self.busy[cpu];
            if busy > 0.0 {
                let stalled = self.stalled[cpu];
                let stalled = if stalled == 0.0 { 0.0 } else { (stalled / busy).clamp(0.0, 1.0) };
                let intensity = self.intensity[cpu] * (1.0 - stalled * (1.0 - STALLED));
                w.activity = Activity {
                    busy_ns: if busy < span { busy as u32 } else { step.span_ns as u32 },
                    wakes: w.activity.wakes,
                    intensity: (intensity * 256.0) as u16,
                    memory: (stalled * 255.0) as u8,
                    idle: 0,
                    license: License::Sse,
                };
            }
        }
        self.progress.ns = self.counted_at as u64;
        let all_over = !self.tasks.is_empty()
            && self.tasks.iter().all(|t| t.over || !self.workload.task[t.group].counts);
        let ends = self.workload.seconds > 0.0 && self.clock >= self.workload.seconds * 1e9;
        if all_over || ends {
            self.progress.done = true;
            if ends {
                self.progress.ns = self.clock as u64;
            }
        }
        if self.progress != before {
            self.shared.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&self.progress);
        }
    }

    fn name(&self) -> &str {
        &self.workload.name
    }

    fn is_done(&self) -> bool {
        self.progress.done
    }
}
