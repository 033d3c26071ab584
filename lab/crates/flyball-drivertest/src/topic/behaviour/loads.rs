//! The loads of `behaviour`: each does the same work on every kernel, so that its energy is energy
//! per work.

/// What a guest does under each setting.
pub(super) struct Load {
    pub name: &'static str,
    /// A line for the guest's shell, in which `w N` does N units of work.
    pub command: &'static str,
}

/// A unit of work: 100 turns of a loop in the shell.
pub(super) const WORK: &str = "w() { i=0; while [ $i -lt $1 ]; do j=0; while [ $j -lt 100 ]; do j=$((j + 1)); done; i=$((i + 1)); done; }; \
     on() { taskset -p $((1 << $1)) $$ >/dev/null; };";

/// All loads, in the order in which they run.
pub(super) const LOADS: &[Load] = &[
    // From idle to busy, on one CPU that is chosen.
    Load { name: "step", command: "on 1; w 120" },
    // One more CPU becomes busy at a time.
    Load { name: "ramp", command: "w 90 & sleep 0.01; w 60 & sleep 0.01; w 30; wait" },
    // Work after pauses that are longer than governors look back.
    Load { name: "bursts", command: "on 1; for n in 1 2 3 4 5 6; do w 12; sleep 0.02; done" },
    Load { name: "processes", command: "n=0; while [ $n -lt 24 ]; do sh -c : ; n=$((n + 1)); done" },
    // Little work at each turn, with a clock that does not wait for it.
    Load {
        name: "server",
        command: "for n in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 0.005; w 2; done & for n in 1 2 3 4 5 6 7 8; do sleep 0.008; w 3; done; wait",
    },
    // Threads of different length that the scheduler places.
    Load {
        name: "mixed",
        command: "w 100 & for n in 1 2 3 4; do w 8; sleep 0.004; done & for n in 1 2 3 4 5 6; do sh -c : ; done; wait",
    },
];
