//! Parses numbers and lists of CPUs like the tool, with strtol(3) and strtoul(3).

use crate::session::{Ended, Session};

/// Maximum number of CPUs in a command line.
const MAX_TARGETS: usize = 512;

/// Parses a number at the start of a text like strtol(3), truncated to 32 bits like the tool's
/// `int`.
pub(super) fn leading_number(text: &str) -> i32 {
    let text = text.trim_start();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    // strtol(3) returns LONG_MAX on overflow.
    let value = digits[..end].parse::<i64>().unwrap_or(if end == 0 { 0 } else { i64::MAX });
    (if text.starts_with('-') { -value } else { value }) as i32
}

/// Parses a number at the start of `text` like strtoul(3), truncated like the tool's `unsigned
/// int`. Also returns the text after it.
fn number(text: &str) -> (u32, &str) {
    let start = text.trim_start_matches([' ', '\t', '\n', '\r', '\u{b}', '\u{c}']);
    let digits = start.strip_prefix(['-', '+']).unwrap_or(start);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    if end == 0 {
        return (0, text);
    }
    (digits[..end].parse::<u64>().unwrap_or(u64::MAX) as u32, &digits[end..])
}

/// Parses `--cpu`: `1,2,4..6,8-10`.
pub(super) fn add_targets(session: &mut Session<'_>, text: &str) -> Result<(), Ended> {
    match targets(text) {
        Some(cpus) => {
            // Count numbers, not distinct CPUs: the tool keeps an array of them.
            if cpus.len() > MAX_TARGETS {
                session.display.start();
                session.error(&format!("Too many CPUs in one request: max is {}", MAX_TARGETS - 1));
                session.display.finish();
                return Err(Ended(255));
            }
            if !cpus.is_empty() {
                session.targets.get_or_insert_default().extend(cpus);
            }
            Ok(())
        }
        None => {
            session.warn(&format!("\"--cpu {text}\" malformed\n"));
            session.failed = true;
            Err(Ended(255))
        }
    }
}

/// The numbers in a list, or `None` if it is malformed. Stops once there are too many.
fn targets(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        // strtoul(3) would accept it as a huge number.
        if rest.starts_with('-') {
            return None;
        }
        let (first, after) = number(rest);
        cpus.push(first);
        if after.is_empty() {
            break;
        }
        if let Some(next) = after.strip_prefix(',') {
            rest = next;
            continue;
        }
        let after = match after.strip_prefix("..") {
            Some(after) => after,
            None if after.starts_with('.') => return None,
            None => after.strip_prefix('-').unwrap_or(after),
        };
        let (last, after) = number(after);
        if last <= first {
            return None;
        }
        // `0-4294967295` must not allocate all of its numbers before it is rejected.
        cpus.extend((first..=last).skip(1).take(MAX_TARGETS + 1));
        rest = match after.strip_prefix(',') {
            Some(next) => next,
            None if after.is_empty() => after,
            None => return None,
        };
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_read_as_the_tool_reads_them() {
        assert_eq!(targets("1,2,4..6,8-10"), Some(vec![1, 2, 4, 5, 6, 8, 9, 10]));
        assert_eq!(targets("5,"), Some(vec![5]));
        for bad in ["0-x", "3-1", "-1", "1.2", "a", "1-2x", "4-4"] {
            assert_eq!(targets(bad), None, "{bad}");
        }
        // The tool keeps the lower 32 bits of strtoul(3)'s result, which is its maximum on
        // overflow.
        assert_eq!(targets("4294967296,4294967299"), Some(vec![0, 3]));
        assert_eq!(targets("99999999999999999999"), Some(vec![u32::MAX]));
        assert_eq!(targets("2-4294967300"), Some(vec![2, 3, 4]));
        assert_eq!(leading_number("4294967296 s"), 0);
        assert_eq!(leading_number("-4294967295"), 1);
        assert!(targets("0-4294967295").is_some_and(|cpus| cpus.len() > MAX_TARGETS));
    }

    proptest! {
        #[test]
        fn no_list_panics_or_hangs(text in "[0-9,.x -]{0,24}") {
            let _ = targets(&text);
            let _ = leading_number(&text);
        }
    }
}
