//! The loads of `behaviour`. Each does equal work on every kernel, so its energy is energy per
//! work.

/// A guest's work under each setting.
pub(super) struct Load {
    pub name: &'static str,
    /// A shell command in which `w N` does N units of work.
    pub command: &'static str,
}

/// A unit of work: 100 iterations of a shell loop.
pub(super) const WORK: &str = "w() { i=0; while [ $i -lt $1 ]; do j=0; while [ $j -lt 100 ]; do j=$((j + 1)); done; i=$((i + 1)); done; }; \
     on() { taskset -p $((1 << $1)) $$ >/dev/null; };";

/// All loads, in the order in which they run.
pub(super) const LOADS: &[Load] = &[
    // From idle to busy, on one chosen CPU.
    Load { name: "step", command: "on 1; w 120" },
    // CPUs become busy one after the other.
    Load { name: "ramp", command: "w 90 & sleep 0.01; w 60 & sleep 0.01; w 30; wait" },
    // Work after pauses longer than the history of governors.
    Load { name: "bursts", command: "on 1; for n in 1 2 3 4 5 6; do w 12; sleep 0.02; done" },
    Load { name: "processes", command: "n=0; while [ $n -lt 24 ]; do sh -c : ; n=$((n + 1)); done" },
    // Little work per iteration, at fixed times.
    Load {
        name: "server",
        command: "for n in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 0.005; w 2; done & for n in 1 2 3 4 5 6 7 8; do sleep 0.008; w 3; done; wait",
    },
    // Threads of different lengths, placed by the scheduler.
    Load {
        name: "mixed",
        command: "w 100 & for n in 1 2 3 4; do w 8; sleep 0.004; done & for n in 1 2 3 4 5 6; do sh -c : ; done; wait",
    },
];
