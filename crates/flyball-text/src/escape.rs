//! Text in pages and pictures.

/// Replaces the characters that have a meaning in XML and HTML, and control characters.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML 1.0 allows no control characters but tab and line ends, not even as references:
            // one would make the file unreadable.
            letter if letter.is_control() && letter != '\n' && letter != '\t' => out.push('\u{fffd}'),
            // These change the direction of the text after them, so a name could make a page look
            // like something else.
            '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

/// Returns whether a spreadsheet would read a cell with this text as a formula (OWASP, "CSV
/// Injection"). A `'` in front makes it text.
pub fn is_formula(text: &str) -> bool {
    text.trim_start().starts_with(['=', '+', '-', '@']) && text.trim().parse::<f64>().is_err()
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn text_stays_text() {
        assert_eq!(
            escape("<a title=\"x\">&\u{1b}\u{202e}\n"),
            "&lt;a title=&quot;x&quot;&gt;&amp;\u{fffd}\u{fffd}\n"
        );
    }
}
