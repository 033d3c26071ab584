//! How the kernel parses text that is written to its files, and how it prints lists.
//!
//! `kstrto*` (lib/kstrtox.c) accept one number with an optional trailing newline. `sscanf`
//! (lib/vsprintf.c), which cpufreq used up to 6.1, skips leading white space, stops at the first
//! character that does not fit and ignores what follows.

use std::fmt::Write as _;

use crate::errno::{Answer, Errno};

/// Removes one trailing newline, like kstrto* and sysfs_streq.
fn chomp(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"\n").unwrap_or(text)
}

/// Removes white space from both ends, like strim().
pub(crate) fn trim(text: &[u8]) -> &[u8] {
    text.trim_ascii()
}

/// Parses digits of `base`; 0 means that a prefix gives the base. Overflow is `ERANGE`.
fn digits(text: &[u8], base: u32) -> Answer<u64> {
    let (text, base) = match (base, text) {
        (0 | 16, [b'0', b'x' | b'X', rest @ ..]) if rest.first().is_some_and(u8::is_ascii_hexdigit) => {
            (rest, 16)
        }
        // _parse_integer_fixup_radix() in lib/kstrtox.c: octal for a leading zero, as in C.
        (0, [b'0', rest @ ..]) if !rest.is_empty() => (rest, 8),
        (0, _) => (text, 10),
        _ => (text, base),
    };
    if text.is_empty() {
        return Err(Errno::INVAL);
    }
    let mut value: u64 = 0;
    for &byte in text {
        let digit = (byte as char).to_digit(base).ok_or(Errno::INVAL)?;
        value = value
            .checked_mul(u64::from(base))
            .and_then(|value| value.checked_add(u64::from(digit)))
            .ok_or(Errno::RANGE)?;
    }
    Ok(value)
}

/// `kstrtoull`: an unsigned number; base 0 accepts decimal, 0x and a leading 0 for octal.
pub(crate) fn kstrtou64(text: &[u8], base: u32) -> Answer<u64> {
    let text = chomp(text);
    digits(text.strip_prefix(b"+").unwrap_or(text), base)
}

/// `kstrtouint`: like [`kstrtou64`], with `ERANGE` beyond 32 bits.
pub(crate) fn kstrtou32(text: &[u8], base: u32) -> Answer<u32> {
    u32::try_from(kstrtou64(text, base)?).map_err(|_| Errno::RANGE)
}

/// `kstrtoint`: signed, 32 bits.
pub(crate) fn kstrtoi32(text: &[u8], base: u32) -> Answer<i32> {
    let text = chomp(text);
    let value = match text.strip_prefix(b"-") {
        // The sign comes before the base's prefix: `-0x10` is a number.
        Some(rest) => i64::try_from(digits(rest, base)?).map_err(|_| Errno::RANGE)?.wrapping_neg(),
        None => i64::try_from(kstrtou64(text, base)?).map_err(|_| Errno::RANGE)?,
    };
    i32::try_from(value).map_err(|_| Errno::RANGE)
}

/// `kstrtobool`: only the first characters count.
pub(crate) fn kstrtobool(text: &[u8]) -> Answer<bool> {
    match text {
        [b'y' | b'Y' | b't' | b'T' | b'1', ..] | [b'o' | b'O', b'n' | b'N', ..] => Ok(true),
        [b'n' | b'N' | b'f' | b'F' | b'0', ..] | [b'o' | b'O', b'f' | b'F', ..] => Ok(false),
        _ => Err(Errno::INVAL),
    }
}

/// `sscanf(text, "%u")`: skips leading white space, stops at the first non-digit, and wraps
/// silently.
pub(crate) fn scan_unsigned(text: &[u8]) -> Answer<u64> {
    let text = text.trim_ascii_start();
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    if end == 0 {
        return Err(Errno::INVAL);
    }
    Ok(text[..end]
        .iter()
        // vsscanf() uses simple_strtoull(), which does not check for overflow.
        .fold(0, |value: u64, byte| value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'))))
}

/// `sscanf(text, "%d")`: like [`scan_unsigned`], with a sign.
pub(crate) fn scan_signed(text: &[u8]) -> Answer<i64> {
    let text = text.trim_ascii_start();
    match text.strip_prefix(b"-") {
        Some(rest) if rest.first().is_some_and(u8::is_ascii_digit) => {
            Ok((scan_unsigned(rest)? as i64).wrapping_neg())
        }
        Some(_) => Err(Errno::INVAL),
        None => Ok(scan_unsigned(text)? as i64),
    }
}

/// `sscanf(text, "%Ns")`: the first word, cut at `longest` characters; `EINVAL` if empty.
pub(crate) fn scan_word(text: &[u8], longest: usize) -> Answer<&[u8]> {
    let text = text.trim_ascii_start();
    let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len()).min(longest);
    if end == 0 { Err(Errno::INVAL) } else { Ok(&text[..end]) }
}

/// `sysfs_streq`: equal, except for one trailing newline.
pub(crate) fn streq(text: &[u8], word: &str) -> bool {
    chomp(text) == word.as_bytes()
}

/// Appends a value and a newline.
pub(crate) fn line(out: &mut Vec<u8>, value: impl std::fmt::Display) -> Answer {
    use std::io::Write as _;
    writeln!(out, "{value}").map_err(|_| Errno::NOMEM)
}

/// Formats ascending CPU numbers as a list (`0-3,7`).
pub(crate) fn cpu_list(cpus: impl IntoIterator<Item = u32>) -> String {
    let mut text = String::new();
    let mut cpus = cpus.into_iter().peekable();
    while let Some(first) = cpus.next() {
        let mut last = first;
        while cpus.next_if_eq(&(last + 1)).is_some() {
            last += 1;
        }
        let comma = if text.is_empty() { "" } else { "," };
        let _ = if first == last {
            write!(text, "{comma}{first}")
        } else {
            write!(text, "{comma}{first}-{last}")
        };
    }
    text
}

/// Parses a CPU list; the empty text is the empty list. `None` if the text is not a list or
/// contains a CPU above 8191.
pub(crate) fn read_cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        // Check before expanding the range: the text may come from a damaged recording.
        if first > last || last > 8191 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// Formats CPUs as a mask (`ff` or `1,00000000`) for `possible` CPU numbers, like `%*pb`.
pub(crate) fn cpu_mask(cpus: impl IntoIterator<Item = u32>, possible: u32) -> String {
    let words = possible.max(1).div_ceil(32) as usize;
    let mut mask = vec![0u32; words];
    for cpu in cpus {
        if let Some(word) = mask.get_mut(cpu as usize / 32) {
            *word |= 1 << (cpu % 32);
        }
    }
    let mut text = String::new();
    for (index, word) in mask.iter().enumerate().rev() {
        // The first word is only as wide as the highest possible CPU needs (bitmap_string() in
        // lib/vsprintf.c).
        if index + 1 == words {
            let width = ((possible.max(1) - 1) % 32 / 4 + 1) as usize;
            let _ = write!(text, "{word:0width$x}");
        } else {
            let _ = write!(text, ",{word:08x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_kstrto_reads_them() {
        assert_eq!(kstrtou64(b"2000000\n", 0), Ok(2_000_000));
        assert_eq!(kstrtou64(b"0x100000\n", 0), Ok(1_048_576));
        assert_eq!(kstrtou64(b"010", 0), Ok(8));
        assert_eq!(kstrtou64(b"0", 0), Ok(0));
        for bad in [&b""[..], b"\n", b"-1", b"junk", b"2000000 junk", b" 5", b"0x", b"0xg", b"5\n\n"] {
            assert_eq!(kstrtou64(bad, 0), Err(Errno::INVAL), "{bad:?}");
        }
        assert_eq!(kstrtou64(b"99999999999999999999", 10), Err(Errno::RANGE));
        assert_eq!(kstrtou32(b"4294967296", 10), Err(Errno::RANGE));
        assert_eq!(kstrtoi32(b"-5", 10), Ok(-5));
        assert_eq!(kstrtoi32(b"2147483648", 10), Err(Errno::RANGE));
    }

    #[test]
    fn numbers_as_sscanf_reads_them() {
        assert_eq!(scan_unsigned(b"2000000 junk"), Ok(2_000_000));
        assert_eq!(scan_unsigned(b"0x100000"), Ok(0));
        assert_eq!(scan_unsigned(b"-1"), Err(Errno::INVAL));
        assert_eq!(scan_signed(b"-1"), Ok(-1));
    }

    #[test]
    fn booleans_and_words() {
        assert_eq!(kstrtobool(b"on\n"), Ok(true));
        assert_eq!(kstrtobool(b"off"), Ok(false));
        assert_eq!(kstrtobool(b"2"), Err(Errno::INVAL));
        assert_eq!(scan_word(b"  performance junk", 15), Ok(&b"performance"[..]));
        assert_eq!(scan_word(b"xxxxxxxxxxxxxxxxxxxx", 15), Ok(&b"xxxxxxxxxxxxxxx"[..]));
    }

    #[test]
    fn lists_and_masks() {
        assert_eq!(cpu_list([0, 1, 2, 3, 7, 9, 10]), "0-3,7,9-10");
        assert_eq!(cpu_list([]), "");
        assert_eq!(read_cpu_list("0-3,7"), Some(vec![0, 1, 2, 3, 7]));
        assert_eq!(read_cpu_list(""), Some(vec![]));
        assert_eq!(read_cpu_list("3-1"), None);
        assert_eq!(read_cpu_list("0-4000000000"), None);
        assert_eq!(cpu_mask([0, 1], 4), "3");
        assert_eq!(cpu_mask([0], 16), "0001");
        assert_eq!(cpu_mask([33], 40), "02,00000000");
    }
}
