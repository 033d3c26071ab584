//! Tests the scheduler with an emulator without a guest: CPUs take turns to execute blocks of code.

use super::*;

/// A machine with constant frequencies that records its calls.
struct Fixed {
    khz: Vec<u64>,
    now: u64,
    busy: Vec<u64>,
}

impl Machine for Fixed {
    fn advance(&mut self, dt_ns: u64, busy_ns: &[u64]) {
        self.now += dt_ns;
        for (sum, busy) in self.busy.iter_mut().zip(busy_ns) {
            assert!(*busy <= dt_ns);
            *sum += busy;
        }
    }

    fn khz(&self, cpu: usize) -> u64 {
        self.khz[cpu]
    }
}

fn fixed(khz: &[u64]) -> Fixed {
    Fixed { khz: khz.to_vec(), now: 0, busy: vec![0; khz.len()] }
}

/// An emulator without a guest: every CPU in turn executes blocks of `block` instructions, as
/// QEMU's one thread does.
struct Emulator {
    scheduler: Scheduler,
    machine: Fixed,
    counter: Vec<u64>,
}

impl Emulator {
    fn new(khz: &[u64], threads: usize) -> Emulator {
        Emulator {
            scheduler: Scheduler::new(khz.len(), 4 * 256, 0, 50_000, threads, 640),
            machine: fixed(khz),
            counter: vec![LIMIT; khz.len()],
        }
    }

    /// Runs one block of one CPU. Returns whether the CPU continues.
    fn block(&mut self, cpu: usize, size: u64) -> bool {
        self.counter[cpu] += size;
        if self.counter[cpu] < LIMIT {
            return true;
        }
        let counters = self.counter.clone();
        let next = self.scheduler.limit_reached(&mut self.machine, cpu, counters[cpu], |c| counters[c]);
        let (counter, go_on) = match next {
            Next::Run(counter) => (counter, true),
            Next::Leave => (LIMIT, false),
            Next::AskForTimers => match self.scheduler.slice_over(&mut self.machine, cpu, None) {
                Slice::Run(counter) => (counter, true),
                Slice::Leave => (LIMIT, false),
                Slice::MoveClock(_) => unreachable!("no timers"),
            },
        };
        self.counter[cpu] = counter;
        go_on
    }

    fn run(&mut self, ns: u64, sizes: &[u64]) {
        let mut at = 0;
        while self.scheduler.clock() < ns {
            for cpu in 0..self.counter.len() {
                if self.scheduler.cpus[cpu].halted {
                    continue;
                }
                for _ in 0..100_000 {
                    at += 1;
                    if !self.block(cpu, sizes[at % sizes.len()]) {
                        break;
                    }
                }
            }
        }
    }
}

#[test]
fn instructions_take_their_time() {
    for khz in [400_000, 1_234_567, 4_683_000] {
        let mut one = Emulator::new(&[khz], 1);
        one.run(100_000_000, &[7, 1, 30, 3]);
        let expected = khz * one.scheduler.clock() / 1_000_000 / 4;
        let done = one.scheduler.instructions();
        assert!(done.abs_diff(expected) * 1000 < expected, "{done} {expected}");
    }
}

#[test]
fn memory_takes_the_same_time_at_any_frequency() {
    for khz in [1_000_000, 4_000_000] {
        let mut one = Emulator::new(&[khz], 1);
        one.scheduler.memory_ps = 250;
        one.run(100_000_000, &[7, 1, 30, 3]);
        // Four cycles, each with as much time for memory as a cycle at 4 GHz takes.
        let expected = one.scheduler.clock() * 1000 / (4 * (1_000_000_000 / khz + 250));
        let done = one.scheduler.instructions();
        assert!(done.abs_diff(expected) * 1000 < expected, "{done} {expected}");
    }
}

#[test]
fn cpus_run_beside_each_other_each_at_its_own_speed() {
    let mut four = Emulator::new(&[1_000_000, 2_000_000, 3_000_000, 4_000_000], 1);
    four.run(30_000_000, &[5, 9, 1]); // until all have started
    let state = |four: &Emulator, cpu: usize| (four.scheduler.cpus[cpu].instructions, four.machine.busy[cpu]);
    let (start, before) = (four.machine.now, [0, 1, 2, 3].map(|cpu| state(&four, cpu)));
    four.run(80_000_000, &[5, 9, 1]);
    let passed = four.machine.now - start;
    for cpu in 0..4 {
        let expected = (cpu as u64 + 1) * passed / 4;
        let (done, busy) = state(&four, cpu);
        let (done, busy) = (done - before[cpu].0, busy - before[cpu].1);
        assert!(done.abs_diff(expected) * 200 < expected, "CPU {cpu}: {done} {expected}");
        assert!(busy.abs_diff(passed) < 100_000, "CPU {cpu}: {busy} {passed}");
    }
    assert_eq!(four.machine.now, four.scheduler.clock());
}

#[test]
fn threads_share_a_core() {
    let mut two = Emulator::new(&[2_000_000, 2_000_000], 2);
    two.run(30_000_000, &[5]);
    let (start, before) = (two.machine.now, [0, 1].map(|cpu: usize| two.scheduler.cpus[cpu].instructions));
    two.run(80_000_000, &[5]);
    let alone = 2 * (two.machine.now - start) / 4;
    for cpu in 0..2 {
        let done = two.scheduler.cpus[cpu].instructions - before[cpu];
        assert!((done * 1024 / alone).abs_diff(640) < 10, "{done} {alone}");
    }
}

#[test]
fn a_halted_cpu_wakes_where_time_is() {
    let mut two = Emulator::new(&[1_000_000, 1_000_000], 1);
    two.run(10_000_000, &[4]);
    assert!(!two.scheduler.halt(1, two.counter[1]));
    two.counter[1] = LIMIT;
    let busy = two.machine.busy[1];
    two.run(20_000_000, &[4]);
    assert!(two.machine.busy[1] - busy < 100_000, "a halted CPU is not busy");
    two.scheduler.cpus[1].halted = true;
    two.block(1, 4);
    for _ in 0..20 {
        two.block(0, 100_000);
        two.block(1, 4);
    }
    assert!(two.scheduler.time_of(1, two.counter[1]) >= 20_000_000);
}

#[test]
fn a_jump_ends_at_the_timer_or_at_the_most() {
    let mut one = Emulator::new(&[1_000_000], 1);
    one.run(1_000_000, &[4]);
    assert!(one.scheduler.halt(0, one.counter[0]));
    let clock = one.scheduler.clock();
    assert_eq!(one.scheduler.jump(300_000, 2_000_000), clock + 300_000);
    one.scheduler.move_clock(&mut one.machine, clock + 300_000);
    assert_eq!(one.scheduler.jump(u64::from(u32::MAX), 2_000_000), clock + 2_300_000);
    let before = one.scheduler.clock();
    one.scheduler.move_clock(&mut one.machine, before - 5);
    assert_eq!(one.scheduler.clock(), before, "time never goes back");
}

/// Time neither stops nor goes back, whenever the host interrupts and whichever CPU calls.
#[test]
fn any_order_of_questions_makes_progress() {
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..20 {
        let mut four = Emulator::new(&[1_000_000, 4_000_000, 2_500_000, 800_000], 2);
        let mut clock = 0;
        for _ in 0..200_000 {
            let cpu = next() as usize % 4;
            match next() % 64 {
                0 => {
                    four.scheduler.halt(cpu, four.counter[cpu]);
                    four.counter[cpu] = LIMIT;
                }
                1 => {
                    if four.scheduler.interrupts_sent(cpu, four.counter[cpu]) {
                        four.counter[cpu] = LIMIT;
                    }
                }
                _ => {
                    for _ in 0..next() % 5 {
                        if !four.block(cpu, next() % 2_000) {
                            break;
                        }
                    }
                }
            }
            assert!(four.scheduler.clock() >= clock);
            clock = four.scheduler.clock();
        }
        assert!(clock > 10_000_000, "{clock} {:?}", four.scheduler.counts);
    }
}
