//! Turns and time: connects the scheduler to QEMU (closed loop), and records since when each CPU
//! has been running (open loop).

#![allow(unsafe_code, reason = "QEMU's C interface")]

use std::{
    cell::Cell,
    ffi::c_void,
    sync::{PoisonError, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{Open, Plugin, State};
use crate::{
    chip::Chip,
    clock::Clock,
    scheduler::{LIMIT, Machine, Next, Slice},
    settings::Time,
};

thread_local! {
    /// True on threads that may see the time within a slice.
    static SEES_SLICES: Cell<bool> = const { Cell::new(false) };
}

/// How far the clock lags behind on QEMU's main thread, so that this thread never runs one of the
/// guest's timers.
// As long as the longest slice: the CPUs' thread then always sees a guest's timer first.
const LAG: i64 = 1_000_000;
/// Maximum idle time to skip in one jump, ns.
// Limited because input from the host arrives only between jumps.
const JUMP: u64 = 2_000_000;
/// How long all CPUs may be halted without a timer, in host time.
const DEAD: Duration = Duration::from_secs(30);

impl Machine for Chip {
    fn advance(&mut self, dt_ns: u64, busy_ns: &[u64]) {
        Chip::advance(self, dt_ns, busy_ns.iter().copied());
    }

    fn khz(&self, cpu: usize) -> u64 {
        Chip::khz(self, cpu)
    }
}

impl Plugin {
    pub(super) fn counter(&self, cpu: usize) -> u64 {
        self.handles(cpu).map_or(LIMIT, |handles| {
            // SAFETY: QEMU's table has an entry for every CPU and lives as long as the plug-in.
            unsafe { handles.counter.read() }
        })
    }

    pub(super) fn set_counter(&self, cpu: usize, value: u64) {
        if let Some(handles) = self.handles(cpu) {
            // SAFETY: as above.
            unsafe { handles.counter.write(value) }
        }
    }

    pub(super) fn leave(&self, cpu: usize) {
        self.set_counter(cpu, LIMIT);
        if let (Some(handles), Some(clock)) = (self.handles(cpu), self.clock.get()) {
            // SAFETY: the CPU is the one that QEMU gave for this index.
            unsafe { (clock.cpu_exit)(handles.cpu) }
        }
    }

    /// Returns the guest time of a CPU, and how long it has executed without the silicon knowing,
    /// ns. In the open loop, updates the silicon first if its last update was at least `least_ns`
    /// ago.
    pub(super) fn now(&self, state: &mut State, cpu: usize, least_ns: u64) -> (u64, u64) {
        match self.settings.time {
            Time::Closed => {
                let counter = self.counter(cpu);
                (state.scheduler.time_of(cpu, counter), state.scheduler.unaccounted(cpu, counter))
            }
            Time::Open => {
                let now = self.start.elapsed().as_nanos() as u64;
                if now.saturating_sub(state.open.advanced_to) >= least_ns {
                    state.catch_up(now);
                }
                let since = state.open.running_since.get(cpu).copied().flatten();
                let unaccounted =
                    since.map_or(0, |since| now.saturating_sub(since.max(state.open.advanced_to)));
                (now, unaccounted + state.open.busy.get(cpu).copied().unwrap_or(0))
            }
        }
    }

    /// Asks the scheduler in the closed loop: see [`Scheduler::limit_reached`]. Returns `Some` with
    /// the address to continue at later if the block at `at` must not be executed now.
    pub(super) fn limit(&self, cpu: usize, at: u64) -> Option<u64> {
        SEES_SLICES.set(true);
        let next = {
            let state = &mut *self.state();
            let counter = self.counter(cpu);
            let next =
                state.scheduler.limit_reached(&mut state.chip, cpu, counter, |other| self.counter(other));
            self.publish(state);
            next
        };
        let slice = match next {
            Next::Run(counter) => Slice::Run(counter),
            Next::Leave => Slice::Leave,
            Next::AskForTimers => {
                let deadline = self.clock.get().and_then(Clock::deadline);
                let state = &mut *self.state();
                let slice = state.scheduler.slice_over(&mut state.chip, cpu, deadline);
                self.publish(state);
                slice
            }
        };
        match slice {
            Slice::Run(counter) => self.set_counter(cpu, counter),
            Slice::Leave => {
                self.leave(cpu);
                return self.handles(cpu).map(|handles| self.after(handles, at, 0));
            }
            Slice::MoveClock(ns) => {
                self.set_counter(cpu, LIMIT);
                // SAFETY: the handle is the one that QEMU gave to this plug-in.
                unsafe { (self.api.qemu_plugin_update_ns)(self.time_control as *const c_void, ns as i64) }
                // The clock moves after this CPU has left its loop, as requested. Until then
                // nothing runs.
                return self.handles(cpu).map(|handles| self.after(handles, at, 0));
            }
        }
        None
    }

    /// Like `limit`, for a block that begins with a repeated string instruction. Such an
    /// instruction is interrupted and restarted when the host interrupts. So a CPU in its slice
    /// does not ask the scheduler here, whatever its counter; it asks after the instruction.
    pub(super) fn limit_in_string(&self, cpu: usize, at: u64) -> Option<u64> {
        let goes_on = self.state().scheduler.current() == Some(cpu);
        if goes_on { None } else { self.limit(cpu, at) }
    }

    pub(super) fn pause(&self, cpu: usize) {
        if self.state().scheduler.pause(cpu, self.counter(cpu)) {
            self.set_counter(cpu, LIMIT);
        }
    }

    pub(super) fn publish(&self, state: &State) {
        // QEMU's other threads read the clock without the lock, which a CPU may hold.
        self.published.store(state.scheduler.clock() as i64, Ordering::Release);
    }

    pub(super) fn halt(&self, cpu: usize) {
        let all = self.state().scheduler.halt(cpu, self.counter(cpu));
        self.set_counter(cpu, LIMIT);
        if all {
            let mut count = self.idle.0.lock().unwrap_or_else(PoisonError::into_inner);
            *count += 1;
            self.idle.1.notify_one();
        }
    }

    pub(super) fn interrupts_sent(&self, cpu: usize) {
        if self.settings.time == Time::Closed
            && self.state().scheduler.interrupts_sent(cpu, self.counter(cpu))
        {
            self.set_counter(cpu, LIMIT);
        }
    }

    pub(super) fn clock_get(&self) -> i64 {
        let published = self.published.load(Ordering::Acquire);
        if !SEES_SLICES.get() {
            return (published - LAG).max(0);
        }
        self.state().scheduler.clock_for_cpus(|cpu| self.counter(cpu)) as i64
    }

    pub(super) fn clock_set(&self, ns: i64) {
        let state = &mut *self.state();
        state.scheduler.move_clock(&mut state.chip, ns.max(0) as u64);
        self.publish(state);
    }

    /// Ends the emulator because the guest can never run again.
    fn end_dead_guest(&self) {
        let mut state = self.state();
        state.chip.end();
        eprintln!("flyball: every CPU is halted and no timer is set: the guest is dead");
        eprintln!("flyball: {}", self.counts(&state));
        // SAFETY: ends the process at once, without QEMU's own exit paths, which wait for its other
        // threads.
        unsafe { libc::_exit(3) }
    }

    /// Runs in its own thread: if all CPUs are halted, moves the time to the next timer.
    pub(super) fn jump_when_idle(&self) {
        SEES_SLICES.set(true);
        let mut seen = 0;
        let mut asleep: Option<Instant> = None;
        loop {
            {
                let mut count = self.idle.0.lock().unwrap_or_else(PoisonError::into_inner);
                while *count == seen {
                    count = self.idle.1.wait(count).unwrap_or_else(PoisonError::into_inner);
                }
                seen = *count;
            }
            loop {
                // Give input from the host a moment to arrive before the time is skipped.
                thread::sleep(Duration::from_micros(50));
                let Some(clock) = self.clock.get() else { break };
                let (idle, armed) =
                    clock.jump_if_idle(|deadline| self.state().scheduler.jump(deadline, JUMP));
                if !self.state().scheduler.all_halted() {
                    break;
                }
                // A kernel without a timer can never run again, because nothing else would wake it.
                let since = asleep.filter(|_| idle && !armed).unwrap_or_else(Instant::now);
                asleep = (idle && !armed).then_some(since);
                if since.elapsed() > DEAD {
                    self.end_dead_guest();
                }
                if !armed {
                    thread::sleep(Duration::from_micros(if idle { 500 } else { 20 }));
                }
            }
        }
    }

    /// Open loop: a CPU starts or stops waiting.
    pub(super) fn set_waiting(&self, cpu: usize, waits: bool) {
        let now = self.start.elapsed().as_nanos() as u64;
        let open = &mut self.state().open;
        let advanced_to = open.advanced_to;
        let Some(since) = open.running_since.get_mut(cpu) else { return };
        match (waits, *since) {
            (true, Some(start)) => {
                open.busy[cpu] += now.saturating_sub(start.max(advanced_to));
                *since = None;
            }
            (false, None) => *since = Some(now),
            _ => {}
        }
    }
}

impl State {
    /// Open loop: advances the silicon to the host's time.
    pub(super) fn catch_up(&mut self, now: u64) {
        let passed = now.saturating_sub(self.open.advanced_to);
        if passed == 0 {
            return;
        }
        let Open { advanced_to, running_since, busy } = &mut self.open;
        for (busy, since) in busy.iter_mut().zip(running_since.iter()) {
            if let Some(since) = since {
                *busy += now.saturating_sub((*since).max(*advanced_to));
            }
        }
        *advanced_to = now;
        self.chip.advance(passed, busy.iter().copied());
        busy.fill(0);
    }
}
