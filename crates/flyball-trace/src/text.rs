//! The text of `trace` and `trace_pipe`.
//!
//! ```text
//!           <idle>-0       [001] d..1.     3.552927: cpu_idle: state=1 cpu_id=1
//!  task, 16 wide ^ number, 7 wide; perhaps (TGID); [CPU]; perhaps five flags; time: event: fields
//! ```
//!
//! A task's name may hold anything, also brackets, blanks and minus signs. The kernel prints it 16
//! wide and it has at most 15 bytes, so in a line as the kernel wrote it the minus before the
//! number is the 17th byte, and nothing in the name can be mistaken. Lines from elsewhere (trimmed,
//! or printed by trace-cmd) take the careful path.

mod chunks;
mod line;

pub use chunks::{TextOptions, TextSummary, read_text};
pub use line::{LineParser, TextBatch};
