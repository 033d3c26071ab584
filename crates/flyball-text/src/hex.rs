//! Bytes in hexadecimal.

use std::fmt::Write as _;

/// Bytes as two lower-case digits each.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Reads what [`hex`] writes; `None` for anything else.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    // ASCII digits only: from_str_radix accepts a sign, and a slice may not split a character.
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(&hex(&bytes)), Some(bytes));
        assert_eq!(hex(&[0, 0x7f, 0xff]), "007fff");
        for bad in ["0", "+1", "é", "0g", "- "] {
            assert_eq!(unhex(bad), None, "{bad}");
        }
    }
}
