//! Words on lines of a given width.

/// `text` on lines of at most `width` characters, broken at white space; a longer word has a line
/// of its own. No line for an empty text.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    wrap_by(text, |line, word| line.chars().count() + 1 + word.chars().count() <= width)
}

/// Like [`wrap`], but `fits` decides whether a line has room for another word.
pub fn wrap_by(text: &str, fits: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if fits(line, word) => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn lines_are_broken_at_blanks() {
        assert_eq!(wrap("one two  three, überlang\nx", 8), ["one two", "three,", "überlang", "x"]);
        assert!(wrap(" ", 8).is_empty());
    }
}
