//! Regression tests of cpufreq drivers and of Speed Select's drivers, on virtual silicon.
//!
//! A kernel boots as a guest of `flyball-guest`. In the guest a shell script (`agent.sh`) runs
//! sequences of steps, and prints after each step which cpufreq attributes changed. The emulator
//! logs the writes to registers and mailboxes, and the silicon's frequency. From these the topics
//! judge the driver.
//!
//! - `step`, `agent.sh`: a step, a sequence, and how a guest runs them;
//! - `mode`: the driver modes of a machine, and what each needs;
//! - `speed_select`: the calls of Speed Select's device, and the program that makes them;
//! - `generate`: sequences from a seed;
//! - `record`: the observations of a sequence, from the guest's output and the emulator's logs;
//! - `silicon`: the log of power, heat and frequencies;
//! - `rules`: what must hold after each step, each rule with its source;
//! - `shrink`: the shortest sequence that still shows a violation;
//! - `messages`: kernel messages that are failures;
//! - `boots`: how guests are booted, behind a trait;
//! - `guests`: sequences in several guests at once;
//! - `topic`: what is tested, one file per topic;
//! - `fuzz`: sequences that are guided by what the driver did with earlier ones;
//! - `config`: options that a kernel's configuration lacks;
//! - `saved`: a kernel's recorded behaviour as a file;
//! - `report`: results, as KTAP and HTML.

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
