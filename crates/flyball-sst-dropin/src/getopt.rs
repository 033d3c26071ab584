//! Parses options like glibc's getopt_long and getopt_long_only, in the order that stops at the
//! first plain word.
//!
//! A script may rely on any detail: abbreviations, `-cpu` with one dash, a value attached to its
//! letter, the messages.

#[derive(Debug, Clone, Copy)]
pub(super) struct LongOption {
    pub name: &'static str,
    pub takes_value: bool,
    pub letter: char,
}

/// The state that getopt keeps between calls, and between this tool's two lists of options.
#[derive(Debug)]
pub(super) struct Getopt<'a> {
    args: &'a [String],
    /// Index of the next word.
    pub index: usize,
    /// Rest of a word with short options.
    rest: String,
    first_plain: usize,
    last_plain: usize,
}

/// The result of one call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ParsedWord {
    /// An option and its value.
    Option(char, Option<String>),
    /// A mistake, with the message for stderr without the program's name.
    Wrong(String),
    /// No more options.
    End,
}

impl<'a> Getopt<'a> {
    /// Starts after the program's name.
    pub(super) fn new(args: &'a [String]) -> Getopt<'a> {
        Getopt { args, index: 1, rest: String::new(), first_plain: 1, last_plain: 1 }
    }

    fn word(&self) -> Option<&'a str> {
        self.args.get(self.index).map(String::as_str)
    }

    /// Returns the next option. `only`: long options may have a single dash.
    pub(super) fn next(&mut self, short: &str, long: &[LongOption], only: bool) -> ParsedWord {
        if self.rest.is_empty() {
            // The caller has moved the index back to parse a second list of options, which
            // getopt(3) allows.
            self.last_plain = self.last_plain.min(self.index);
            self.first_plain = self.first_plain.min(self.index);
            if self.word() == Some("--") {
                self.index += 1;
                // glibc's bookkeeping (_getopt_internal_r in posix/getopt.c); words are never moved
                // here, only counted.
                if self.first_plain == self.last_plain {
                    self.first_plain = self.index;
                }
                self.last_plain = self.args.len();
                self.index = self.args.len();
            }
            let Some(word) = self.word() else {
                if self.first_plain != self.last_plain {
                    self.index = self.first_plain;
                }
                return ParsedWord::End;
            };
            // POSIXLY_CORRECT order ("+" in the original's option string): the first plain word
            // ends the options.
            if !word.starts_with('-') || word == "-" {
                return ParsedWord::End;
            }
            if let Some(name) = word.strip_prefix("--") {
                return self.long(name, "--", short, long, only).unwrap_or(ParsedWord::End);
            }
            let letters = &word[1..];
            let first = letters.chars().next().unwrap_or('-');
            // A single dash and a single known letter is a short option; try everything else as a
            // long option first.
            if only && (letters.len() > first.len_utf8() || spec(short, first).is_none()) {
                if let Some(found) = self.long(letters, "-", short, long, only) {
                    return found;
                }
            }
            letters.clone_into(&mut self.rest);
        }
        self.short(short)
    }

    fn short(&mut self, short: &str) -> ParsedWord {
        // Whole characters, unlike glibc, which uses bytes: no option has more than one.
        let letter = self.rest.remove(0);
        if self.rest.is_empty() {
            self.index += 1;
        }
        match spec(short, letter) {
            None => ParsedWord::Wrong(format!("invalid option -- '{letter}'")),
            Some(false) => ParsedWord::Option(letter, None),
            Some(true) => {
                if !self.rest.is_empty() {
                    self.index += 1;
                    return ParsedWord::Option(letter, Some(std::mem::take(&mut self.rest)));
                }
                match self.word() {
                    Some(value) => {
                        self.index += 1;
                        ParsedWord::Option(letter, Some(value.to_owned()))
                    }
                    None => ParsedWord::Wrong(format!("option requires an argument -- '{letter}'")),
                }
            }
        }
    }

    /// Parses a long option. `None` if it is not one and should be tried as short options.
    fn long(
        &mut self,
        text: &str,
        dashes: &str,
        short: &str,
        long: &[LongOption],
        only: bool,
    ) -> Option<ParsedWord> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let exact = long.iter().find(|option| option.name == name);
        let option = match exact {
            Some(option) => option,
            None => {
                let fitting: Vec<&LongOption> =
                    long.iter().filter(|option| option.name.starts_with(name)).collect();
                // Abbreviations of two names for one option are not ambiguous, except with
                // getopt_long_only.
                let same = |a: &LongOption, b: &LongOption| {
                    !only && a.takes_value == b.takes_value && a.letter == b.letter
                };
                match fitting.as_slice() {
                    [] => {
                        let first = text.chars().next();
                        let known = first.is_some_and(|letter| spec(short, letter).is_some());
                        if only && dashes == "-" && known {
                            return None;
                        }
                        self.index += 1;
                        return Some(ParsedWord::Wrong(format!("unrecognized option '{dashes}{text}'")));
                    }
                    [first, others @ ..] if others.iter().any(|other| !same(first, other)) => {
                        self.index += 1;
                        let mut message = format!("option '{dashes}{text}' is ambiguous; possibilities:");
                        for option in fitting {
                            message.push_str(&format!(" '{dashes}{}'", option.name));
                        }
                        return Some(ParsedWord::Wrong(message));
                    }
                    [first, ..] => *first,
                }
            }
        };
        self.index += 1;
        let LongOption { name, takes_value, letter } = *option;
        Some(match value {
            Some(_) if !takes_value => {
                ParsedWord::Wrong(format!("option '{dashes}{name}' doesn't allow an argument"))
            }
            Some(value) => ParsedWord::Option(letter, Some(value.to_owned())),
            None if !takes_value => ParsedWord::Option(letter, None),
            None => match self.word() {
                Some(value) => {
                    self.index += 1;
                    ParsedWord::Option(letter, Some(value.to_owned()))
                }
                None => ParsedWord::Wrong(format!("option '{dashes}{name}' requires an argument")),
            },
        })
    }
}

/// Returns whether a short option takes a value; `None` for a letter that is not an option.
fn spec(short: &str, letter: char) -> Option<bool> {
    if letter == ':' || letter == ';' {
        return None;
    }
    let at = short.find(letter)?;
    Some(short[at + letter.len_utf8()..].starts_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LONG: &[LongOption] = &[
        LongOption { name: "cpu", takes_value: true, letter: 'c' },
        LongOption { name: "debug", takes_value: false, letter: 'd' },
        LongOption { name: "pause", takes_value: true, letter: 'p' },
        LongOption { name: "poll-interval", takes_value: true, letter: 'w' },
        LongOption { name: "retry", takes_value: true, letter: 'r' },
    ];

    fn all(words: &[&str], only: bool) -> (Vec<String>, usize) {
        let args: Vec<String> =
            std::iter::once("tool").chain(words.iter().copied()).map(str::to_owned).collect();
        let mut getopt = Getopt::new(&args);
        let mut found = Vec::new();
        loop {
            match getopt.next("c:df:h", LONG, only) {
                ParsedWord::End => return (found, getopt.index),
                ParsedWord::Option(letter, value) => {
                    found.push(format!(
                        "{letter}{}",
                        value.map_or(String::new(), |value| format!("={value}"))
                    ));
                }
                ParsedWord::Wrong(message) => found.push(message),
            }
        }
    }

    #[test]
    fn forms_of_options() {
        assert_eq!(all(&["-c", "1", "-d", "x", "-d"], true), (vec!["c=1".into(), "d".into()], 4));
        assert_eq!(all(&["-cpu", "1", "-dh", "--cpu=2"], true).0, ["c=1", "d", "h", "c=2"]);
        assert_eq!(all(&["-c1", "-r", "5"], true).0, ["c=1", "r=5"]);
        assert_eq!(all(&["-c1"], false).0, ["c=1"]);
        assert_eq!(all(&["--", "x"], true), (vec![], 2));
    }

    #[test]
    fn messages() {
        assert_eq!(
            all(&["-p", "5"], true).0,
            ["option '-p' is ambiguous; possibilities: '-pause' '-poll-interval'"]
        );
        assert_eq!(all(&["--zzz"], true).0, ["unrecognized option '--zzz'"]);
        assert_eq!(all(&["-z"], true).0, ["unrecognized option '-z'"]);
        assert_eq!(all(&["-z"], false).0, ["invalid option -- 'z'"]);
        assert_eq!(all(&["--cpu"], true).0, ["option '--cpu' requires an argument"]);
        assert_eq!(all(&["-c"], true).0, ["option requires an argument -- 'c'"]);
        assert_eq!(all(&["--debug=1"], true).0, ["option '--debug' doesn't allow an argument"]);
    }

    proptest! {
        #[test]
        fn no_words_panic_or_hang(words in proptest::collection::vec("-{0,3}[a-z=:é]{0,6}", 0..6), only: bool) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let (found, index) = all(&words, only);
            prop_assert!(found.len() <= 60 && index <= words.len() + 1);
        }
    }
}
