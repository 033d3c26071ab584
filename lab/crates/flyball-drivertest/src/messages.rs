//! Kernel messages that are failures in any test, with the step after which they came.

use serde::{Deserialize, Serialize};

/// Beginnings of reports, and their names.
const REPORTS: &[(&str, &str)] = &[
    ("WARNING: possible circular locking", "lockdep"),
    ("WARNING: possible recursive locking", "lockdep"),
    ("WARNING: suspicious RCU usage", "lockdep"),
    ("WARNING: inconsistent lock state", "lockdep"),
    ("WARNING: bad unlock balance", "lockdep"),
    ("INFO: possible recursive locking", "lockdep"),
    ("BUG: KASAN", "KASAN"),
    ("BUG: KFENCE", "KFENCE"),
    ("BUG: KCSAN", "KCSAN"),
    ("UBSAN:", "UBSAN"),
    ("BUG: sleeping function", "BUG"),
    ("BUG: scheduling while atomic", "BUG"),
    ("BUG: kernel NULL pointer", "oops"),
    ("BUG: unable to handle", "oops"),
    ("Oops:", "oops"),
    ("general protection fault", "oops"),
    ("divide error", "oops"),
    ("invalid opcode", "oops"),
    ("stack segment:", "oops"),
    ("Kernel panic", "panic"),
    ("kernel BUG at", "BUG"),
    ("WARNING: CPU:", "WARN"),
    ("WARNING: kernel/", "WARN"),
    ("WARNING: drivers/", "WARN"),
    ("WARNING: ", "WARN"),
    ("rcu_sched self-detected stall", "RCU stall"),
    ("rcu_preempt self-detected stall", "RCU stall"),
    ("detected stalls on CPUs", "RCU stall"),
    ("detected expedited stalls", "RCU stall"),
    ("INFO: task ", "hung task"),
    ("watchdog: BUG: soft lockup", "soft lockup"),
    ("watchdog: Watchdog detected hard LOCKUP", "hard lockup"),
    ("unchecked MSR access error", "unchecked MSR access"),
    ("sysfs: cannot create duplicate", "duplicate sysfs file"),
    ("refcount_t:", "refcount"),
    ("list_add corruption", "list corruption"),
    ("list_del corruption", "list corruption"),
];

/// Maximum number of lines of a report to keep.
const LINES: usize = 30;

/// A failure reported by the kernel itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `WARN`, `oops`, `RCU stall` and so on.
    pub kind: String,
    /// The last step before the message; 0 before the first step.
    pub step: u32,
    /// The first lines of the report, without times.
    pub text: Vec<String>,
}

/// The reports on a console. A report's own lines do not start another report before the next mark,
/// or within 30 lines.
pub fn read(console: &str) -> Vec<Message> {
    let mut found: Vec<Message> = Vec::new();
    let (mut step, mut left) = (0, 0);
    for line in console.lines() {
        let text = without_time(line.trim_end());
        if let Some(number) = text.strip_prefix("flyball: step ") {
            (step, left) = (number.trim().parse().unwrap_or(step), 0);
            continue;
        }
        let report = REPORTS.iter().find(|(begin, _)| text.contains(begin));
        let panicked = found.last().is_some_and(|message| message.kind == "panic");
        match (report, found.last_mut()) {
            (Some((_, kind)), _) if left == 0 || *kind == "panic" && !panicked => {
                found.push(Message { kind: (*kind).to_owned(), step, text: vec![text.to_owned()] });
                left = LINES;
            }
            (_, Some(last)) if left > 0 => {
                last.text.push(text.to_owned());
                left -= 1;
            }
            _ => {}
        }
        if found.len() >= 100 {
            break;
        }
    }
    found
}

/// Strips `[    1.234567] ` from a line, also with a caller (`[    1.2][  T1]`).
fn without_time(line: &str) -> &str {
    let mut rest = line.trim_start();
    while let Some((time, after)) = rest.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        let time = time.trim();
        let is_time = time.parse::<f64>().is_ok();
        let is_caller = time.starts_with(['T', 'C']) && time[1..].bytes().all(|b| b.is_ascii_digit());
        if !is_time && !is_caller {
            break;
        }
        rest = after.trim_start();
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_have_their_step_and_text() {
        let console = "[    1.0] flyball: step 6\n[    2.5][  T45] WARNING: CPU: 1 PID: 45 at drivers/cpufreq/cpufreq.c:9 f+0x1/0x2\n\
            [    2.6] RIP: 0010:f\n[    2.7] flyball: step 7\n[    3.0] Oops: 0000 [#1]\n[    3.0] RIP: 1\n\
            [    3.1] Kernel panic - not syncing: Fatal exception\n";
        let found = read(console);
        let kinds: Vec<(&str, u32)> = found.iter().map(|m| (&*m.kind, m.step)).collect();
        assert_eq!(kinds, [("WARN", 6), ("oops", 7), ("panic", 7)]);
        assert_eq!(found[0].text[1], "RIP: 0010:f");
        assert!(read("[    0.1] amd_pstate: driver load is disabled\n\n[x] y\n[").is_empty());
    }
}
