//! Parses decimal numbers from text, eight digits per step. Reading trace text spends nearly all
//! its time on digits: an `amd_pstate_perf` line of 230 bytes has some 60 of them.

#![expect(clippy::inline_always, reason = "measured: calls here cost a fifth of the time that text takes")]

const POWERS: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// Converts eight digit values (not characters) in `word`, with the first digit in the lowest byte.
const fn eight(word: u64) -> u64 {
    const PAIRS: u64 = 0x0000_00ff_0000_00ff;
    let pairs = word.wrapping_mul(10).wrapping_add(word >> 8);
    // The weights of the four pairs: 100 and 1,000,000 here, 1 and 10,000 below. The sum is in the
    // upper half.
    let high = (pairs & PAIRS).wrapping_mul(0x000f_4240_0000_0064);
    let low = ((pairs >> 16) & PAIRS).wrapping_mul(0x0000_2710_0000_0001);
    high.wrapping_add(low) >> 32
}

/// Parses the unsigned decimal number at `at`, and returns its end. `None` without a digit, or
/// above [`u64::MAX`].
#[inline]
pub(crate) fn decimal(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut value = 0u64;
    let mut end = at;
    while let Some(word) = bytes.get(end..).and_then(<[u8]>::first_chunk::<8>) {
        let digits = u64::from_le_bytes(*word) ^ ZEROS;
        let others = others(digits);
        if others == 0 {
            // Eight more digits fit without a check.
            value = if end - at < 8 {
                value * POWERS[8] + eight(digits)
            } else {
                value.checked_mul(POWERS[8])?.checked_add(eight(digits))?
            };
            end += 8;
            continue;
        }
        let count = (others.trailing_zeros() / 8) as usize;
        if count > 0 {
            let last = eight(digits << (64 - 8 * count));
            // At most eight digits so far, and seven more: 10^15 fits.
            value = if end - at < 16 {
                value * POWERS[count] + last
            } else {
                value.checked_mul(POWERS[count])?.checked_add(last)?
            };
            end += count;
        }
        return (end > at).then_some((value, end));
    }
    // The last bytes of the text, fewer than a word.
    while let Some(digit) = bytes.get(end).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
        end += 1;
    }
    (end > at).then_some((value, end))
}

/// Like [`decimal`], but optimised for numbers of up to seven digits that are followed by a blank,
/// comma or point. Other numbers give equal results, but more slowly.
///
/// The end of a number determines where the next one starts, so finding it is the critical path of
/// a line; the value is computed meanwhile. Therefore the end is guessed from one bit of each byte,
/// and the digits are checked afterwards.
#[inline(always)]
pub(crate) fn short_decimal(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let Some(word) = word(bytes, at) else { return any_decimal(bytes, at) };
    // 0 digits wrap to a large number here, so one comparison covers "none" and "too many".
    let count = likely_digits(word);
    if count.wrapping_sub(1) < 7 {
        let digits = (word ^ ZEROS) << (64 - 8 * count);
        if others(digits) == 0 {
            return Some((eight(digits), at + count as usize));
        }
    }
    any_decimal(bytes, at)
}

/// Like [`short_decimal`] for numbers with up to fifteen digits, mostly about eight. It has a
/// single branch: whether there are more than eight.
#[inline(always)]
#[expect(clippy::needless_bitwise_bool, reason = "one branch instead of two")]
pub(crate) fn long_decimal(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<16>) else {
        return any_decimal(bytes, at);
    };
    let word = u128::from_le_bytes(*word);
    let (low, high) = (word as u64, (word >> 64) as u64);
    let first = likely_digits(low);
    let ninth = (first == 8) & ((high as u8 ^ b'0') <= 9);
    if (first.wrapping_sub(1) < 8) & !ninth {
        let digits = (low ^ ZEROS) << (64 - 8 * first);
        if others(digits) == 0 {
            return Some((eight(digits), at + first as usize));
        }
        return any_decimal(bytes, at);
    }
    let second = likely_digits(high);
    if ninth & (second.wrapping_sub(1) < 7) {
        let (low, high) = (low ^ ZEROS, (high ^ ZEROS) << (64 - 8 * second));
        // `likely_digits` guesses by one bit of each byte, so letters can pass for digits until
        // here.
        if others(low) | others(high) == 0 {
            return Some((eight(low) * POWERS[second as usize] + eight(high), at + 8 + second as usize));
        }
    }
    any_decimal(bytes, at)
}

/// Like [`decimal`] for numbers of up to seven digits, whatever follows them.
#[inline(always)]
pub(crate) fn bracketed_decimal(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let Some(word) = word(bytes, at) else { return any_decimal(bytes, at) };
    let digits = word ^ ZEROS;
    let count = others(digits).trailing_zeros() / 8;
    if count.wrapping_sub(1) < 7 {
        return Some((eight(digits << (64 - 8 * count)), at + count as usize));
    }
    any_decimal(bytes, at)
}

/// Parses the fraction of a line's time: six digits, a colon and a blank.
#[inline(always)]
pub(crate) fn micros(bytes: &[u8], at: usize) -> Option<u64> {
    let word = word(bytes, at)?;
    let digits = (word ^ ZEROS) << 16;
    (word >> 48 == u64::from(u16::from_le_bytes(*b": ")) && others(digits) == 0).then(|| eight(digits))
}

/// [`decimal`], not inlined. The pair is returned in registers; an `Option` would be returned in
/// memory, and the common case would go through memory too.
#[inline(always)]
fn any_decimal(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    #[cold]
    #[inline(never)]
    fn pair(bytes: &[u8], at: usize) -> (u64, usize) {
        decimal(bytes, at).unwrap_or((0, at))
    }
    let (value, end) = pair(bytes, at);
    (end != at).then_some((value, end))
}

const ZEROS: u64 = 0x3030_3030_3030_3030;

/// The eight bytes at `at`.
#[inline(always)]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk::<8>().map(|word| u64::from_le_bytes(*word))
}

/// Number of bytes, from the lowest, with the bit that all digits have, and that blank, comma,
/// point, slash and newline lack.
#[inline(always)]
const fn likely_digits(word: u64) -> u32 {
    (!word & 0x1010_1010_1010_1010).trailing_zeros() / 8
}

/// Not 0 if one of the eight bytes is not a digit's value.
#[inline(always)]
const fn others(digits: u64) -> u64 {
    // Sets bit 7 of each byte above 9: 0x76 + 10 sets it, digits up to 9 do not. A carry can only
    // affect bytes after the first such byte.
    (digits.wrapping_add(0x7676_7676_7676_7676) | digits) & 0x8080_8080_8080_8080
}

/// `true` or `false`.
#[inline(always)]
pub(crate) fn truth(bytes: &[u8], at: usize) -> Option<(bool, usize)> {
    const TRUE: u32 = u32::from_le_bytes(*b"true");
    const FALSE: u64 = u64::from_le_bytes(*b"false\0\0\0");
    let Some(word) = word(bytes, at) else {
        let rest = bytes.get(at..)?;
        let no = || rest.starts_with(b"false").then_some((false, at + 5));
        return if rest.starts_with(b"true") { Some((true, at + 4)) } else { no() };
    };
    // Without a branch on the value, which cannot be predicted.
    let (yes, no) = (word as u32 == TRUE, word & 0xff_ffff_ffff == FALSE);
    (yes | no).then_some((yes, at + 5 - usize::from(yes)))
}

/// Parses the decimal number at `at`, which may have a minus sign, and returns its end.
#[inline]
pub(crate) fn signed(bytes: &[u8], at: usize) -> Option<(i64, usize)> {
    if bytes.get(at) == Some(&b'-') {
        let (value, end) = decimal(bytes, at + 1)?;
        return Some((0i64.checked_sub_unsigned(value)?, end));
    }
    let (value, end) = decimal(bytes, at)?;
    Some((i64::try_from(value).ok()?, end))
}

/// Returns the end of the spaces at `at`.
#[inline(always)]
pub(crate) fn blanks(bytes: &[u8], at: usize) -> usize {
    #[cold]
    #[inline(never)]
    fn more(bytes: &[u8], mut at: usize) -> usize {
        while bytes.get(at) == Some(&b' ') {
            at += 1;
        }
        at
    }
    // Without a loop, because the number of iterations depends on earlier digits and cannot be
    // predicted.
    match word(bytes, at).map(|word| (word ^ 0x2020_2020_2020_2020).trailing_zeros() / 8) {
        Some(count @ 0..8) => at + count as usize,
        _ => more(bytes, at),
    }
}

/// Finds the value after `key`, which must start a word. For text whose order is unknown.
pub(crate) fn value_of(bytes: &[u8], key: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(found) = memchr::memmem::find(bytes.get(from..)?, key) {
        let at = from + found;
        // `mperf=` must not match inside `aperf_mperf=`, nor `freq=` inside a name.
        if at == 0 || matches!(bytes[at - 1], b' ' | b'\t' | b',' | b'(') {
            return Some(at + key.len());
        }
        from = at + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_where_their_digits_end() {
        for text in ["0", "7", "12345678", "123456789", "1234567890123456", "18446744073709551615"] {
            for tail in ["", " ", "x", "\n        more text behind", ".5", "\u{e9}", ":", "/"] {
                let line = format!("{text}{tail}");
                assert_eq!(decimal(line.as_bytes(), 0), Some((text.parse().unwrap(), text.len())), "{line}");
            }
        }
    }

    #[test]
    fn numbers_that_do_not_fit_are_none() {
        assert_eq!(decimal(b"18446744073709551616", 0), None);
        assert_eq!(decimal(b"99999999999999999999999999999999999", 0), None);
        assert_eq!(decimal(b"", 0), None);
        assert_eq!(decimal(b"x1", 0), None);
        assert_eq!(decimal(b"1", 5), None);
        assert_eq!(signed(b"-12 ", 0), Some((-12, 3)));
        assert_eq!(signed(b"-9223372036854775808", 0), Some((i64::MIN, 20)));
        assert_eq!(signed(b"9223372036854775808", 0), None);
    }

    #[test]
    fn keys_are_found_at_the_start_of_a_word() {
        assert_eq!(value_of(b"mperf=1 aperf=2", b"aperf="), Some(14));
        assert_eq!(value_of(b"xfreq=1 freq=2", b"freq="), Some(13));
        assert_eq!(value_of(b"xfreq=1", b"freq="), None);
    }

    proptest::proptest! {
        #[test]
        fn any_number_reads_back(value: u64, shift in 0u32..64, tail in "[^0-9].{0,20}|") {
            let value = value >> shift;
            let line = format!("{value}{tail}");
            let read = Some((value, value.to_string().len()));
            proptest::prop_assert_eq!(decimal(line.as_bytes(), 0), read);
            proptest::prop_assert_eq!(short_decimal(line.as_bytes(), 0), read);
            proptest::prop_assert_eq!(long_decimal(line.as_bytes(), 0), read);
        }

        #[test]
        fn any_bytes_read_the_same(bytes in proptest::collection::vec(
            proptest::prop_oneof![4 => b'0'..=b'9', 1 => proptest::num::u8::ANY], 0..40), at in 0usize..42)
        {
            let read = decimal(&bytes, at);
            proptest::prop_assert_eq!(short_decimal(&bytes, at), read);
            proptest::prop_assert_eq!(long_decimal(&bytes, at), read);
            // The reference: digit by digit.
            let digits = bytes.iter().skip(at).take_while(|byte| byte.is_ascii_digit());
            let plain = String::from_utf8(digits.copied().collect()).unwrap();
            proptest::prop_assert_eq!(read, plain.parse().ok().map(|value| (value, at + plain.len())));
        }
    }
}
