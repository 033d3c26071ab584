//! Breaks lines to fit a terminal: at blanks, never inside a word, and continued below the column
//! that was cut.

use super::is_mark;

/// Breaks every line of `text` that is wider than `width`. Marks have no width.
pub(super) fn wrap(text: &str, width: usize) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    for line in text.split_inclusive('\n') {
        let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
        // The usual case: keep the line, with its trailing blanks.
        if visible(body) <= width {
            out.push_str(line);
        } else {
            broken(body, width, &mut out);
            out.push_str(end);
        }
    }
    out
}

fn visible(text: &str) -> usize {
    text.chars().filter(|char| !is_mark(*char)).count()
}

/// Returns the column where a line continues: that of its last table column that begins in the left
/// half, otherwise two right of its indentation. A table column begins after two blanks.
fn hang(line: &str, width: usize) -> usize {
    let indent = line.chars().take_while(|char| *char == ' ').count();
    let mut column = None;
    let (mut at, mut blanks) = (0, 0);
    for char in line.chars().filter(|char| !is_mark(*char)) {
        if char == ' ' {
            blanks += 1;
        } else {
            if blanks >= 2 && at > indent && at <= width / 2 {
                column = Some(at);
            }
            blanks = 0;
        }
        at += 1;
    }
    // Leave at least half of the width for text.
    column.unwrap_or(indent + 2).min(width / 2)
}

fn broken(line: &str, width: usize, out: &mut String) {
    let hang = hang(line, width);
    let mut used = 0;
    let mut rest = line;
    while !rest.is_empty() {
        let blanks = rest.len() - rest.trim_start_matches(' ').len();
        let end = rest[blanks..].find(' ').map_or(rest.len(), |end| blanks + end);
        let (gap, word) = rest[..end].split_at(blanks);
        let length = visible(word);
        // Never move the first word: on a line of its own it would not be shorter.
        let is_too_long = hang + length > width && used > 0 && used + blanks > width.saturating_sub(length);
        // Do not break a table column that fits on its own line: `old -> new` of a plan stays
        // together.
        let column = visible(rest[blanks..].split("  ").next().unwrap_or_default());
        let is_column_whole_below =
            blanks >= 2 && used > hang && used + blanks + column > width && hang + column <= width;
        if is_column_whole_below || (used + blanks + length > width && (used > hang || is_too_long)) {
            // A long word, such as a path, begins left of the column if it would not fit otherwise.
            let indent = hang.min(width.checked_sub(length).unwrap_or(2));
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            used = indent;
        } else {
            out.push_str(gap);
            used += blanks;
        }
        out.push_str(word);
        used += length;
        rest = &rest[end..];
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Mark, *};

    #[test]
    fn words_are_whole_and_go_on_below_their_column() {
        let line =
            "  c1-demotion  per package  whether the processor may enter C1 where the kernel asked for C6\n";
        assert_eq!(
            wrap(line, 60),
            "  c1-demotion  per package  whether the processor may enter\n                            C1 where the kernel asked for C6\n"
        );
        assert_eq!(
            wrap("  /sys/devices/a/scaling_governor  powersave -> performance  # line 10\n", 50),
            "  /sys/devices/a/scaling_governor\n    powersave -> performance  # line 10\n"
        );
        assert_eq!(wrap("note: one two three four\n", 14), "note: one two\n  three four\n");
        assert_eq!(wrap("short\nalso short\n", 80), "short\nalso short\n");
    }

    #[test]
    fn a_word_that_does_not_fit_is_not_cut() {
        let path = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor";
        assert_eq!(
            wrap(&format!("cannot write {path}: busy"), 30),
            format!("cannot write\n  {path}:\n  busy")
        );
    }

    #[test]
    fn marks_have_no_width() {
        let text = format!("{}bold{:#} word\n", Mark::Bold, Mark::Bold);
        assert_eq!(wrap(&text, 9), text);
    }
}
