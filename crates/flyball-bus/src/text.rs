//! Texts for the bus. A D-Bus string must not contain NUL: the bus closes the connection of a
//! process that sends one. So every text from elsewhere goes through [`sendable`] first.

/// Limit on the bytes of an error's sentence, of a name and of a value.
pub(crate) const MAX_SENTENCE: usize = 4096;

/// Returns a text that the bus accepts: control characters are replaced, and it has at most `most`
/// bytes.
pub(crate) fn sendable(text: &str, most: usize) -> String {
    let mut out = String::with_capacity(text.len().min(most));
    for character in text.chars() {
        let is_plain = !character.is_control() || character == '\n';
        let character = if is_plain { character } else { char::REPLACEMENT_CHARACTER };
        if out.len() + character.len_utf8() > most {
            break;
        }
        out.push(character);
    }
    out
}

/// Returns a caller's text for messages and the log: at most `most` characters, and none that
/// affects a terminal or the surrounding text.
pub(crate) fn shown(text: &str, most: usize) -> String {
    let is_plain = |c: &char| flyball_process::terminal::is_plain(*c) && !c.is_control();
    text.chars().filter(is_plain).take(most).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zbus::{Str, message::Message};

    use super::*;
    use crate::{
        access::refused,
        message::{Refusal, Why},
    };

    #[test]
    fn a_callers_text_does_nothing() {
        assert_eq!(shown("ga\u{202e}m\te\n\u{200f}\u{1b}[1m", 6), "game[1");
    }

    proptest! {
        /// Any text makes a message that the bus accepts, as a value and as an error.
        #[test]
        fn any_text_makes_a_valid_message(bytes in proptest::collection::vec(any::<u8>(), 0..6000)) {
            let text = String::from_utf8_lossy(&bytes);
            let sent = sendable(&text, MAX_SENTENCE);
            prop_assert!(sent.len() <= MAX_SENTENCE && !sent.contains('\0'));
            let message = Message::signal("/x", "org.flyball.Control1", "Changed");
            let message = message.build(&(Str::from(sent.clone()),)).unwrap();
            prop_assert_eq!(message.body().deserialize::<(String,)>().unwrap().0, sent);
            for why in [Why::Invalid, Why::Denied, Why::TooMany, Why::Failed] {
                let error = refused(Refusal::new(why, &text)).to_string();
                prop_assert!(!error.contains('\0') && error.len() < MAX_SENTENCE + 200);
            }
        }
    }
}
