//! Command lines as words, and words as command lines.

/// Why a command line cannot be split into words without a shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    #[error("a quote is not closed")]
    OpenQuote,
    #[error("it ends in a backslash")]
    Backslash,
    #[error("only a shell understands '{0}': give --shell sh, or quote it")]
    Shell(char),
    #[error("it has no words")]
    Empty,
}

/// Splits a command line as a POSIX shell does, without expanding anything.
///
/// # Errors
/// A part that needs a shell: operators, variables, patterns and substitutions that are not quoted.
pub fn split(line: &str) -> Result<Vec<String>, SplitError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            letter if letter.is_ascii_whitespace() => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next().ok_or(SplitError::OpenQuote)? {
                        '\'' => break,
                        letter => word.push(letter),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next().ok_or(SplitError::OpenQuote)? {
                        '"' => break,
                        // Within double quotes a backslash is itself, except before these.
                        '\\' => match letters.next().ok_or(SplitError::OpenQuote)? {
                            letter @ ('"' | '\\' | '$' | '`') => word.push(letter),
                            letter => word.extend(['\\', letter]),
                        },
                        letter @ ('$' | '`') => return Err(SplitError::Shell(letter)),
                        letter => word.push(letter),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(letters.next().ok_or(SplitError::Backslash)?),
            letter @ ('|' | '&' | ';' | '<' | '>' | '(' | ')' | '$' | '`' | '*' | '?') => {
                return Err(SplitError::Shell(letter));
            }
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    if words.is_empty() { Err(SplitError::Empty) } else { Ok(words) }
}

/// A command line as a shell would take it.
pub fn quote(argv: &[String]) -> String {
    let plain = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(&b))
    };
    let words: Vec<String> = argv
        .iter()
        .map(|word| if plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', "'\\''")) })
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_as_a_shell_does() {
        for (line, words) in [
            ("./new --x", &["./new", "--x"][..]),
            (r#"grep -c 'a b' "c\"d" e\ f"#, &["grep", "-c", "a b", "c\"d", "e f"]),
            (r#"a'b'"c" '' "\n""#, &["abc", "", r"\n"]),
            ("  a\tb\n", &["a", "b"]),
            ("awk '{print $1}'", &["awk", "{print $1}"]),
        ] {
            assert_eq!(
                split(line).as_deref(),
                Ok(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>()[..])
            );
        }
    }

    #[test]
    fn what_needs_a_shell_is_refused() {
        for (line, error) in [
            ("a | b", SplitError::Shell('|')),
            ("a > b", SplitError::Shell('>')),
            ("echo $HOME", SplitError::Shell('$')),
            ("echo \"$HOME\"", SplitError::Shell('$')),
            ("ls *.c", SplitError::Shell('*')),
            ("'a", SplitError::OpenQuote),
            ("a\\", SplitError::Backslash),
            (" ", SplitError::Empty),
        ] {
            assert_eq!(split(line), Err(error), "{line}");
        }
    }

    #[test]
    fn what_is_quoted_is_split_again() {
        let words = ["a", "b c", "d'e", "", "$f", "g\"h\\"].map(str::to_owned);
        assert_eq!(split(&quote(&words)).as_deref(), Ok(&words[..]));
    }
}
