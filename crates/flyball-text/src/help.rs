//! The text after a command's options: paragraphs, tables and examples. An example that is too long
//! for a line continues after a backslash, so that it can be pasted; clap would break it at a
//! blank.

use crate::wrap;

/// A part of the text after a command's options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// A paragraph.
    Prose(String),
    /// Lines that stay as they are.
    Lines(Vec<String>),
    Examples(Vec<Example>),
    ExitCodes(String),
}

/// A command, and a note on what it shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    pub command: String,
    pub note: Option<String>,
}

/// The parts of `text`, separated by blank lines.
pub fn blocks(text: &str) -> Vec<Block> {
    text.split("\n\n")
        .filter(|block| !block.trim().is_empty())
        .map(|block| {
            let filled = || block.split_whitespace().collect::<Vec<_>>().join(" ");
            if let Some(examples) = block.strip_prefix("Examples:\n") {
                Block::Examples(examples.lines().filter_map(example).collect())
            // Indented lines are tables or files, whose line ends mean something.
            } else if block.lines().any(|line| line.starts_with(' ')) {
                Block::Lines(block.lines().map(str::to_owned).collect())
            } else if block.starts_with("Exit codes") {
                Block::ExitCodes(filled())
            } else {
                Block::Prose(filled())
            }
        })
        .collect()
}

/// `  command   note`, separated by two or more blanks.
fn example(line: &str) -> Option<Example> {
    let line = line.trim();
    let (command, note) = match line.split_once("  ") {
        Some((command, note)) => (command, Some(note.trim().to_owned())),
        None => (line, None),
    };
    (!command.is_empty()).then(|| Example { command: command.to_owned(), note })
}

/// Examples as lines for a shell: notes are comments, and a command that is too long continues
/// after a backslash.
fn examples(all: &[Example], width: usize) -> String {
    // One long command must not push the notes of all others to the right margin.
    let longest = all.iter().map(|one| one.command.chars().count()).filter(|length| *length < width / 2);
    let column = longest.max().unwrap_or(0);
    let mut out = String::from("Examples:");
    for Example { command, note } in all {
        let length = command.chars().count().max(column);
        match note {
            // 2: the indentation; 4: the blanks and the `# ` in front of the note.
            Some(note) if 2 + length + 4 + note.chars().count() <= width => {
                out += &format!("\n  {command:column$}  # {note}");
                continue;
            }
            Some(note) => {
                for line in wrap(note, width - 4) {
                    out += &format!("\n  # {line}");
                }
            }
            None => {}
        }
        // 6 columns for the indentation of later lines, 2 for the backslash.
        let lines = wrap(command, width - 8);
        out += &format!("\n  {}", lines.join(" \\\n      "));
    }
    out
}

/// The text after the options: all of it for `--help`, a few examples for `-h`.
pub fn after(blocks: &[Block], long: bool, width: usize) -> String {
    let mut parts = Vec::new();
    for block in blocks {
        match block {
            Block::Examples(all) if long => parts.push(examples(all, width)),
            // The usual examples come first. -h has to fit a screen, so long ones are left to
            // --help.
            Block::Examples(all) => {
                let short = |one: &&Example| one.command.chars().count() + 8 <= width;
                let mut first: Vec<Example> = all.iter().filter(short).take(3).cloned().collect();
                if first.is_empty() {
                    first.extend(all.first().cloned());
                }
                parts.push(examples(&first, width));
            }
            _ if !long => {}
            Block::Prose(text) | Block::ExitCodes(text) => parts.push(text.clone()),
            Block::Lines(lines) => parts.push(lines.join("\n")),
        }
    }
    parts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_examples_are_comments() {
        let text = "Examples:\n  flyball show     the machine\n  flyball get governor epp min-freq max-freq -c 0-3   some values";
        let fitted = after(&blocks(text), true, 40);
        assert_eq!(
            fitted,
            "Examples:\n  flyball show  # the machine\n  # some values\n  flyball get governor epp \\\n      min-freq max-freq -c 0-3"
        );
    }
}
