//! Guest time: decides which CPU runs, for how many instructions, and what time it is.
//!
//! Every CPU has a local time that advances with the instructions it executes, at the frequency
//! from the silicon. All CPUs of the guest share one host thread. They take turns in slices of
//! guest time, so that they run in parallel in guest time. The guest's clock advances when all of
//! them have finished their slice. If all are halted, it jumps.
//!
//! The scheduler has no side effects: it takes events and returns decisions. Time is in
//! picoseconds. Fractions of a picosecond are carried over, so that nothing is lost and every host
//! computes the same times.
//!
//! How the emulator is controlled: each CPU has a counter that increases with its instructions.
//! When it reaches [`LIMIT`], the CPU's next block of code calls [`Scheduler::limit_reached`]. The
//! counter of a CPU that may run is set just below the limit. The counter of any other CPU is set
//! to the limit, so that the CPU calls again before it executes anything.

/// The counter value at which a CPU calls the scheduler.
pub const LIMIT: u64 = 1 << 40;

/// Picoseconds in a nanosecond.
const PS: u64 = 1000;

/// The machine's interface for the scheduler.
pub trait Machine {
    /// Advances the machine by `dt_ns`. `busy_ns` is each CPU's busy time in this step.
    fn advance(&mut self, dt_ns: u64, busy_ns: &[u64]);
    /// A CPU's frequency, kHz, never 0.
    fn khz(&self, cpu: usize) -> u64;
}

/// What the calling CPU must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Set its counter to this value and continue.
    Run(u64),
    /// Set its counter to [`LIMIT`] and leave its loop: it is another CPU's turn.
    Leave,
    /// All CPUs have finished their slice: find out when the next timer expires and call
    /// [`Scheduler::slice_over`].
    AskForTimers,
}

/// What to do at the end of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slice {
    /// Like [`Next::Run`].
    Run(u64),
    /// Like [`Next::Leave`].
    Leave,
    /// Timers have expired: set the counter to [`LIMIT`] and let the emulator move its clock to
    /// this time, ns.
    MoveClock(u64),
}

/// The scheduler's state for one CPU.
#[derive(Debug, Clone, Default)]
struct Cpu {
    /// True if it has executed something since reset.
    started: bool,
    halted: bool,
    /// True if it must yield when it next calls, even if its slice is not over.
    leave: bool,
    /// Local time, ps.
    local: u64,
    /// Fraction of a picosecond, in units of 1 / (256 rate).
    part: u64,
    /// Rate of instructions, in kHz / 1024: the frequency, reduced by the share of the core's other
    /// thread.
    rate: u64,
    /// The end of the slice for which the rate was computed: it applies to the whole slice.
    rated: u64,
    /// The counter when it was last read.
    base: u64,
    /// Executed time by which the machine has not been advanced yet, ps.
    owed: u64,
    instructions: u64,
    /// The other thread of the core.
    sibling: Option<usize>,
}

/// How often each event happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub slices: u64,
    /// Times that another CPU got its turn.
    pub turns: u64,
    /// Times that the emulator moved the clock because of timers.
    pub timers: u64,
    /// Jumps while all CPUs were halted.
    pub jumps: u64,
    /// CPUs that were assumed not to be running.
    pub stuck: u64,
}

/// The scheduler; see the module.
#[derive(Debug)]
pub struct Scheduler {
    cpus: Vec<Cpu>,
    /// Cycles per instruction, in 1/256.
    cycles: u64,
    /// Time spent on memory for each cycle, ps.
    memory_ps: u64,
    /// Throughput of a thread while the core's other thread is busy, in 1/1024.
    share: u64,
    slice: u64,
    slice_end: u64,
    /// The guest's clock, ns.
    clock: u64,
    /// Time up to which the machine has been advanced, ns.
    advanced_to: u64,
    /// Local time of the CPU that was halted last, ps.
    last: u64,
    /// Local time of the CPU that last wrote to its interrupt controller, ps. A CPU that wakes up
    /// in the middle of a slice was woken at this time.
    sent: u64,
    /// All CPUs were halted, and the first has woken up.
    waking: bool,
    /// PAUSEs since the current turn began.
    pauses: u32,
    /// The counter of the CPU in its slice when another CPU last called.
    seen: u64,
    current: Option<usize>,
    turn: Option<usize>,
    yields: usize,
    waits: usize,
    busy: Vec<u64>,
    pub counts: Counts,
}

impl Scheduler {
    /// For `cpus` CPUs. An instruction takes `cycles`, in 1/256, and each cycle takes `memory_ps`
    /// more, at any frequency. Slices are `slice_ns` long. A core has `threads` threads; when both
    /// are busy, each gets `share`/1024 of the core's speed.
    pub fn new(
        cpus: usize,
        cycles: u32,
        memory_ps: u32,
        slice_ns: u64,
        threads: usize,
        share: u64,
    ) -> Scheduler {
        let sibling = |cpu: usize| (threads == 2).then_some(cpu ^ 1).filter(|other| *other < cpus);
        Scheduler {
            cpus: (0..cpus)
                .map(|cpu| Cpu { base: LIMIT, rate: 1, sibling: sibling(cpu), ..Cpu::default() })
                .collect(),
            cycles: u64::from(cycles.max(1)),
            memory_ps: u64::from(memory_ps),
            share: share.clamp(1, 1024),
            slice: slice_ns.max(1) * PS,
            slice_end: 0,
            clock: 0,
            advanced_to: 0,
            last: 0,
            sent: 0,
            waking: false,
            pauses: 0,
            seen: 0,
            current: None,
            turn: None,
            yields: 0,
            waits: 0,
            busy: vec![0; cpus],
            counts: Counts::default(),
        }
    }

    /// The guest's clock, ns.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// Instructions that all CPUs have executed.
    pub fn instructions(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.instructions).sum()
    }

    /// The CPU that is in its slice.
    pub fn current(&self) -> Option<usize> {
        self.current
    }

    /// How long `instructions` take at a CPU's rate, ps, and the remaining fraction of a
    /// picosecond.
    fn duration(&self, cpu: usize, instructions: u64) -> (u64, u64) {
        let cpu = &self.cpus[cpu];
        let units = u128::from(instructions) * self.instruction(cpu.rate) + u128::from(cpu.part);
        let ps = u128::from(cpu.rate) * 256;
        ((units / ps) as u64, (units % ps) as u64)
    }

    /// Duration of an instruction at a rate, in picoseconds times 256 times the rate. Memory's part
    /// does not depend on the other thread: a CPU that waits leaves the core to it.
    fn instruction(&self, rate: u64) -> u128 {
        // cycles/256 cycles at rate/1024 kHz: 1e9 * 1024 / 256 = 4e9 ps an instruction and kHz.
        u128::from(self.cycles) * (4_000_000_000 * 256 + u128::from(self.memory_ps) * u128::from(rate))
    }

    /// A CPU's local time when its counter is `counter`, ps.
    fn local_at(&self, cpu: usize, counter: u64) -> u64 {
        let executed = counter.saturating_sub(self.cpus[cpu].base);
        self.cpus[cpu].local + self.duration(cpu, executed).0
    }

    /// The time for a CPU whose counter is `counter`, ns.
    pub fn time_of(&self, cpu: usize, counter: u64) -> u64 {
        let local =
            if self.current == Some(cpu) { self.local_at(cpu, counter) } else { self.cpus[cpu].local };
        (local / PS).max(self.clock)
    }

    /// Time that a CPU has executed and by which the machine has not been advanced, ns. The CPU's
    /// own counters include it.
    pub fn unaccounted(&self, cpu: usize, counter: u64) -> u64 {
        let more =
            if self.current == Some(cpu) { self.local_at(cpu, counter) - self.cpus[cpu].local } else { 0 };
        (self.cpus[cpu].owed + more) / PS
    }

    /// The clock as the CPUs' thread sees it, ns.
    pub fn clock_for_cpus(&self, counter: impl FnOnce(usize) -> u64) -> u64 {
        self.current.map_or(self.clock, |cpu| self.time_of(cpu, counter(cpu)))
    }

    fn account(&mut self, cpu: usize, counter: u64) {
        let executed = counter.saturating_sub(self.cpus[cpu].base);
        let (time, part) = self.duration(cpu, executed);
        let state = &mut self.cpus[cpu];
        state.base = counter;
        state.part = part;
        state.instructions += executed;
        state.local += time;
        state.owed += time;
    }

    /// Drops a CPU's count of instructions, so that it is not charged for them.
    fn forget(&mut self, cpu: usize) {
        self.cpus[cpu].base = LIMIT;
    }

    /// Lets a CPU run until its local time is `to`.
    fn grant(&mut self, machine: &impl Machine, cpu: usize, to: u64) -> u64 {
        let busy_sibling =
            self.cpus[cpu].sibling.is_some_and(|other| self.cpus[other].started && !self.cpus[other].halted);
        let rate = machine.khz(cpu).max(1) * if busy_sibling { self.share } else { 1024 };
        let slice_end = self.slice_end;
        let state = &mut self.cpus[cpu];
        // The rate is constant for the whole slice, so that a CPU that the host interrupts in the
        // middle of it continues unchanged.
        if state.rated != slice_end && state.rate != rate {
            state.rate = rate;
            state.part = 0;
        }
        state.rated = slice_end;
        let rate = state.rate;
        // 128 bits: picoseconds times kHz times 256 exceed 2^64 within a second.
        let left = u128::from(to.saturating_sub(state.local)) * u128::from(rate) * 256;
        let left = left.saturating_sub(u128::from(state.part));
        // Rounded up: if a CPU stopped before the end of its slice, it would call again without
        // progress. The maximum of 2^30 keeps the counter below its limit.
        let instructions = left.div_ceil(self.instruction(rate)).clamp(1, 1 << 30) as u64;
        let state = &mut self.cpus[cpu];
        state.base = LIMIT - instructions;
        let base = state.base;
        if self.current != Some(cpu) {
            self.pauses = 0;
        }
        self.current = Some(cpu);
        base
    }

    /// The first CPU that is not halted.
    fn first_awake(&self) -> Option<usize> {
        self.cpus.iter().position(|cpu| cpu.started && !cpu.halted)
    }

    /// Ends the turn of `cpu`. The next CPU in order that has not finished its slice continues.
    fn give_way(&mut self, cpu: usize) {
        let count = self.cpus.len();
        self.turn = (1..count).map(|step| (cpu + step) % count).find(|next| self.is_ready(*next));
        self.current = None;
        self.forget(cpu);
        self.counts.turns += 1;
    }

    /// Whether a CPU has not finished this slice yet.
    fn is_ready(&self, cpu: usize) -> bool {
        let cpu = &self.cpus[cpu];
        cpu.started && !cpu.halted && cpu.local < self.slice_end
    }

    /// How often to wait for a CPU that does not call: more often than the host can interrupt in a
    /// row, because interruptions must not change which CPU runs. The scheduler does not wait twice
    /// for a CPU in reset.
    fn max_waits(&self) -> usize {
        200 * self.cpus.len()
    }

    /// Records that a CPU which was halted or in reset runs again. Returns false if it must wait,
    /// because all were halted and others may wake up at the same time.
    fn note_awake(&mut self, cpu: usize, clock: u64) -> bool {
        if self.cpus[cpu].halted || !self.cpus[cpu].started {
            // It wakes up no earlier than the event that woke it: a timer at the clock's time, or
            // another CPU. Its turn may come later, but from now on it gets turns.
            let now = self.sent.max(clock);
            let state = &mut self.cpus[cpu];
            state.local = state.local.max(now);
            state.halted = false;
            state.started = true;
            // A timer may wake several CPUs at once, and QEMU's round-robin order among them is not
            // deterministic. So no CPU continues until all have had the chance to report that they
            // are awake. Then the first one continues.
            let alone = (0..self.cpus.len())
                .all(|other| other == cpu || self.cpus[other].halted || !self.cpus[other].started);
            if self.current.is_none() && alone && self.cpus.len() > 1 {
                self.waking = true;
                return false;
            }
        } else if self.waking && self.current.is_none() {
            self.waking = false;
            // The CPU with the lowest number, not the caller: the host decides which one calls
            // first.
            self.turn = self.first_awake();
        }
        !(self.waking && self.current.is_none())
    }

    /// A CPU's counter has reached the limit: its slice is over, or the CPU has re-entered its
    /// loop. `counter` is that CPU's counter, and `other` returns another CPU's.
    pub fn limit_reached(
        &mut self,
        machine: &mut impl Machine,
        cpu: usize,
        counter: u64,
        other: impl Fn(usize) -> u64,
    ) -> Next {
        let clock = self.clock * PS;
        if !self.note_awake(cpu, clock) {
            self.forget(cpu);
            return Next::Leave;
        }
        if let Some(current) = self.current.filter(|current| *current != cpu) {
            // The current CPU left in the middle of its slice (PAUSE, a kick from the host): it
            // continues first.
            let progress = other(current);
            self.yields = if progress == self.seen { self.yields + 1 } else { 0 };
            self.seen = progress;
            if self.yields <= self.max_waits() {
                self.forget(cpu);
                return Next::Leave;
            }
            self.yields = 0;
            self.account(current, progress);
            self.forget(current);
            self.current = None;
        }
        if let Some(turn) = self.turn.filter(|turn| *turn != cpu) {
            // Not its turn yet: the order must not depend on when the host interrupts.
            if self.cpus[turn].started && !self.cpus[turn].halted {
                self.waits += 1;
                if self.waits <= self.max_waits() {
                    self.forget(cpu);
                    return Next::Leave;
                }
            }
        }
        self.turn = None;
        self.waits = 0;
        if self.current == Some(cpu) {
            self.account(cpu, counter);
        } else {
            self.forget(cpu);
            self.cpus[cpu].local = self.cpus[cpu].local.max(clock);
        }
        // The clock has jumped beyond the slice while all CPUs were halted.
        if self.slice_end <= clock {
            self.slice_end = clock + self.slice;
            self.counts.slices += 1;
        }
        // The clock advances only after every running CPU has finished its slice.
        let others_ready = (0..self.cpus.len()).any(|other| other != cpu && self.is_ready(other));
        let leave = std::mem::take(&mut self.cpus[cpu].leave);
        if self.cpus[cpu].local < self.slice_end {
            if leave {
                // It has written to its APIC, or spins: another CPU may be about to wake up, or may
                // have what this one waits for.
                self.give_way(cpu);
                return Next::Leave;
            }
            self.yields = 0;
            let end = self.slice_end;
            return Next::Run(self.grant(machine, cpu, end));
        }
        if others_ready {
            self.yields += 1;
            if self.yields <= self.max_waits() {
                self.give_way(cpu);
                return Next::Leave;
            }
            // They do not call, so they are in reset and will not run until they are started.
            self.counts.stuck += 1;
            for other in 0..self.cpus.len() {
                if other != cpu && self.is_ready(other) {
                    // A CPU in reset does not call, and QEMU does not report resets to a plug-in.
                    // So a CPU that never calls is assumed to be in reset.
                    self.cpus[other].started = false;
                }
            }
            self.yields = 0;
        }
        self.current = None;
        Next::AskForTimers
    }

    /// All CPUs have finished the slice. `deadline` is the time from the clock to the next timer,
    /// ns.
    pub fn slice_over(&mut self, machine: &mut impl Machine, cpu: usize, deadline: Option<u64>) -> Slice {
        if deadline.is_some_and(|deadline| (self.clock + deadline) * PS <= self.slice_end) {
            self.forget(cpu);
            self.counts.timers += 1;
            return Slice::MoveClock(self.slice_end / PS);
        }
        self.move_clock(machine, self.slice_end / PS);
        self.slice_end += self.slice;
        self.counts.slices += 1;
        let others = (0..self.cpus.len())
            .any(|other| other != cpu && self.cpus[other].started && !self.cpus[other].halted);
        if others {
            self.give_way(cpu);
            return Slice::Leave;
        }
        let end = self.slice_end;
        Slice::Run(self.grant(machine, cpu, end))
    }

    /// Sets the clock to `ns`, which never decreases, and advances the machine by its CPUs' work up
    /// to then.
    pub fn move_clock(&mut self, machine: &mut impl Machine, ns: u64) {
        self.clock = self.clock.max(ns);
        if self.clock * PS >= self.slice_end && self.current.is_none() {
            // A new slice begins with the first CPU, not with the one that the host lets call
            // first.
            self.turn = self.first_awake();
        }
        let passed = self.clock - self.advanced_to;
        if passed == 0 {
            return;
        }
        self.advanced_to = self.clock;
        // A CPU may have run past the clock, by a block of code. The excess counts in the next
        // step.
        for (cpu, busy) in self.cpus.iter_mut().zip(&mut self.busy) {
            *busy = (cpu.owed / PS).min(passed);
            cpu.owed -= *busy * PS;
        }
        machine.advance(passed, &self.busy);
    }

    /// A CPU executes HLT. Returns whether all CPUs are halted now.
    pub fn halt(&mut self, cpu: usize, counter: u64) -> bool {
        if self.current == Some(cpu) {
            self.account(cpu, counter);
        }
        self.current = None;
        // It may be ahead of the clock, and the clock must not jump to an earlier time.
        self.last = self.cpus[cpu].local;
        self.cpus[cpu].halted = true;
        self.forget(cpu);
        self.all_halted()
    }

    /// Whether all CPUs are halted.
    pub fn all_halted(&self) -> bool {
        self.cpus.iter().all(|cpu| cpu.halted || !cpu.started)
    }

    /// A CPU writes to its interrupt controller. Returns whether to set its counter to [`LIMIT`].
    pub fn interrupts_sent(&mut self, cpu: usize, counter: u64) -> bool {
        if self.current != Some(cpu) {
            return false;
        }
        self.account(cpu, counter);
        self.sent = self.cpus[cpu].local;
        self.cpus[cpu].leave = true;
        self.forget(cpu);
        true
    }

    /// A CPU executes PAUSE: it spins, and after some PAUSEs lets others run. Returns whether to
    /// set its counter to [`LIMIT`].
    pub fn pause(&mut self, cpu: usize, counter: u64) -> bool {
        const SPINS: u32 = 6;
        if self.current != Some(cpu) {
            return false;
        }
        self.pauses += 1;
        if self.pauses < SPINS {
            return false;
        }
        self.pauses = 0;
        self.account(cpu, counter);
        self.cpus[cpu].leave = true;
        self.forget(cpu);
        true
    }

    /// All CPUs are halted and the next timer is `deadline` ns away. Returns the time to jump to,
    /// at most `most` ns from now.
    pub fn jump(&mut self, deadline: u64, most: u64) -> u64 {
        self.counts.jumps += 1;
        // Time that the CPU which was halted last has already used.
        let to = (self.clock + deadline).max(self.last.div_ceil(PS)).min(self.clock + most);
        // Always forward: a deadline of 0 would otherwise be returned again forever.
        let to = to.max(self.clock + 1);
        self.last = self.last.max(to * PS);
        to
    }
}

#[cfg(test)]
mod tests;
