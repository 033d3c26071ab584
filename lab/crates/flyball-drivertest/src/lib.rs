//! Regression tests of cpufreq drivers and of those of Speed Select, on virtual silicon.
//!
//! A kernel boots as a guest of `flyball-guest`. In it a shell script (`agent.sh`) runs sequences
//! of steps and prints after each which cpufreq attributes changed; the emulator logs what reached
//! registers and mailboxes, and what frequency the silicon gave. From these the topics judge the
//! driver.
//!
//! - `step`, `agent.sh`: a step, a sequence, and how a guest runs them;
//! - `mode`: the driver modes of a machine, and what each needs;
//! - `speed_select`: the calls of Speed Select's device, and the program that makes them;
//! - `generate`: sequences from a seed;
//! - `record`: what came of a sequence, from the guest's output and the emulator's logs;
//! - `silicon`: the log of power, heat and frequencies;
//! - `rules`: what must hold after each step, each rule with its source;
//! - `shrink`: the shortest sequence that still shows a violation;
//! - `messages`: the kernel messages that are failures;
//! - `boots`: how guests are booted, behind a trait;
//! - `guests`: sequences in several guests at once;
//! - `topic`: what is tested, one file per topic;
//! - `fuzz`: sequences that are drawn by what the driver did with earlier ones;
//! - `config`: what a kernel's configuration lacks;
//! - `saved`: a kernel's recorded behaviour as a file;
//! - `report`: results, and KTAP and HTML made from them.

pub mod boots;
pub mod config;
pub mod fuzz;
pub mod generate;
pub mod guests;
pub mod messages;
pub mod mode;
pub mod record;
pub mod report;
pub mod rules;
pub mod saved;
pub mod shrink;
mod silicon;
pub mod speed_select;
pub mod step;
pub mod topic;
