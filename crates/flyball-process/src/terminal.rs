//! Text for a terminal. Some of flyball's output comes from others: names of tasks and files, files
//! of recorded machines, run directories. A terminal would obey control sequences in it, so
//! characters that are not plain text are shown in escaped form.

use std::{
    fmt::Display,
    io::{self, Write},
};

/// How text stands out. In text, a mark is a character that no text contains (a noncharacter of
/// Unicode). The terminal's writer turns it into a colour or drops it. Escape sequences in the text
/// itself could come from anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    Plain,
    Bold,
    Faint,
    Green,
    Cyan,
    Grey,
    Yellow,
    BoldYellow,
    BoldRed,
}

/// The first of the 32 noncharacters inside the basic plane.
const FIRST_MARK: u32 = 0xfdd0;

/// The parameters of "select graphic rendition" (ECMA-48) for each mark. The first ends all others.
const RENDITIONS: [&str; 9] = ["0", "1", "2", "32", "36", "90", "33", "1;33", "1;31"];

impl Mark {
    /// Returns the rendition for `char`, if it is a mark.
    fn rendition(char: char) -> Option<&'static str> {
        RENDITIONS.get(u32::from(char).checked_sub(FIRST_MARK)? as usize).copied()
    }
}

impl std::fmt::Display for Mark {
    /// Writes the mark, or with `#` its end.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = if f.alternate() { 0 } else { *self as u32 };
        match char::from_u32(FIRST_MARK + number) {
            Some(mark) if *self != Mark::Plain => write!(f, "{mark}"),
            _ => Ok(()),
        }
    }
}

pub fn is_mark(char: char) -> bool {
    Mark::rendition(char).is_some()
}

/// How to treat characters that are not plain text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Shown as `\u{1b}`; marks become colours, or nothing.
    Text { coloured: bool },
    /// Written as `\u001b`, which JSON reads back as the same character.
    Json,
}

/// A writer that outputs only plain text.
#[derive(Debug)]
pub struct Plain<W> {
    inner: W,
    form: Form,
    out: Vec<u8>,
}

impl<W: Write> Plain<W> {
    /// Creates a writer that converts its input to plain text and passes it to `inner`.
    pub fn new(inner: W, form: Form) -> Plain<W> {
        Plain { inner, form, out: Vec::new() }
    }

    fn escape(&mut self, char: char) {
        match (self.form, Mark::rendition(char)) {
            (Form::Text { coloured: true }, Some(rendition)) => {
                self.out.extend_from_slice(format!("\x1b[{rendition}m").as_bytes());
            }
            (Form::Text { coloured: false }, Some(_)) => {}
            (Form::Text { .. }, None) => {
                self.out.extend_from_slice(char.escape_unicode().to_string().as_bytes());
            }
            // All of them are below 0x10000, so one unit of UTF-16 is enough.
            (Form::Json, _) => self.out.extend_from_slice(format!("\\u{:04x}", u32::from(char)).as_bytes()),
        }
    }
}

impl<W: Write> Write for Plain<W> {
    /// Writes all of `bytes` or fails. A character must not be split between two calls, which text
    /// formatting never does.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Nearly all output is plain, so pass it on without a copy.
        if bytes.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t')) {
            self.inner.write_all(bytes)?;
            return Ok(bytes.len());
        }
        self.out.clear();
        for chunk in bytes.utf8_chunks() {
            let mut chars = chunk.valid().chars().peekable();
            while let Some(char) = chars.next() {
                match char {
                    // Line ends of other systems, and of kernel consoles.
                    '\r' if chars.peek() == Some(&'\n') => {}
                    char if is_plain(char) => {
                        self.out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
                    }
                    char => self.escape(char),
                }
            }
            for byte in chunk.invalid() {
                self.out.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
            }
        }
        self.inner.write_all(&self.out)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Returns whether a terminal only shows `char`, at its position.
pub fn is_plain(char: char) -> bool {
    match char {
        '\n' | '\t' => true,
        // Marks, line and paragraph separators, and characters that change the text direction
        // (Trojan Source).
        '\u{fdd0}'..='\u{fdef}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{feff}' => false,
        // C0, DEL and C1: U+009B starts a control sequence just like ESC [.
        char => !char.is_control(),
    }
}

/// Returns the file to which stdout leads, as `DEVICE:INODE`.
pub fn stdout_file() -> Option<String> {
    let status = rustix::fs::fstat(io::stdout()).ok()?;
    Some(format!("{}:{}", status.st_dev, status.st_ino))
}

/// Returns stderr for text, without colours.
pub fn stderr() -> Plain<io::Stderr> {
    Plain::new(io::stderr(), Form::Text { coloured: false })
}

/// Writes to stderr in one piece, so that messages of several threads do not mix. If that fails (a
/// full disk behind `2>`), the message is lost and the result is `false`.
pub fn complain(text: impl Display) -> bool {
    stderr().write_all(text.to_string().as_bytes()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(form: Form, bytes: &[u8]) -> String {
        let mut out = Plain::new(Vec::new(), form);
        out.write_all(bytes).unwrap();
        String::from_utf8(out.inner).unwrap()
    }

    #[test]
    fn control_characters_are_shown() {
        let text = Form::Text { coloured: false };
        assert_eq!(written(text, b"plain\ttext\n"), "plain\ttext\n");
        assert_eq!(
            written(text, "\u{1b}]52;c;eA==\u{7}\u{9b}2J".as_bytes()),
            "\\u{1b}]52;c;eA==\\u{7}\\u{9b}2J"
        );
        assert_eq!(written(text, b"\x9b2J\xff"), "\\x9b2J\\xff");
        assert_eq!(
            written(text, "naïve · \u{202e}txt\r\nx\ry\n".as_bytes()),
            "naïve · \\u{202e}txt\nx\\u{d}y\n"
        );
    }

    #[test]
    fn only_marks_become_colours() {
        let text = format!("{}red{:#} \u{1b}[31m", Mark::BoldRed, Mark::BoldRed);
        assert_eq!(
            written(Form::Text { coloured: true }, text.as_bytes()),
            "\u{1b}[1;31mred\u{1b}[0m \\u{1b}[31m"
        );
        assert_eq!(written(Form::Text { coloured: false }, text.as_bytes()), "red \\u{1b}[31m");
        assert_eq!(format!("{}x{:#}", Mark::Plain, Mark::Plain), "x");
    }

    #[test]
    fn json_reads_back_the_same() {
        let value = "a\u{9b}b\u{7f}\u{202e}\u{fdd1}ü";
        let text = written(Form::Json, serde_json::to_string(value).unwrap().as_bytes());
        assert_eq!(text, "\"a\\u009bb\\u007f\\u202e\\ufdd1ü\"");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), value);
    }
}
