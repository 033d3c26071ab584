//! Formats numbers like the tracers' Python: integers with itoa, decimals by integer arithmetic
//! with Python's rounding.

/// A row under construction. It is a fixed array, because a row has some forty pieces, and each
/// append to a vector is a call that may have to grow it.
#[derive(Debug, Clone)]
pub(super) struct Row {
    bytes: [u8; ROOM],
    used: usize,
}

/// Twice the longest row, which has seventeen columns of at most 24 characters, and a name of 16.
const ROOM: usize = 1024;

impl Default for Row {
    fn default() -> Row {
        Row { bytes: [0; ROOM], used: 0 }
    }
}

impl Row {
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or_default()
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    /// Appends `bytes`, or drops them if they do not fit, which never happens in a row.
    #[inline]
    pub(super) fn put(&mut self, bytes: &[u8]) {
        let end = self.used + bytes.len();
        if let Some(room) = self.bytes.get_mut(self.used..end) {
            room.copy_from_slice(bytes);
            self.used = end;
        }
    }

    /// Appends a task's name without its blanks. Any user can give a task any name, so it must not
    /// end the cell, and no spreadsheet may take it for a formula (OWASP, "CSV Injection"). All
    /// other names are as in the tracers' files.
    #[inline]
    pub(super) fn name(&mut self, name: &[u8]) {
        let plain = name.iter().all(|byte| matches!(byte, b'!'..=b'~') && !matches!(byte, b',' | b'"'));
        if plain && !matches!(name.first(), Some(b'=' | b'+' | b'-' | b'@')) {
            self.put(name);
        } else {
            self.odd_name(name);
        }
    }

    fn odd_name(&mut self, name: &[u8]) {
        // The tracers split lines at blanks, and join the words of a name without them.
        let mut kept = name.iter().filter(|byte| **byte != b' ').peekable();
        if matches!(kept.peek(), Some(b'=' | b'+' | b'-' | b'@')) {
            self.put(b"'");
        }
        for byte in kept {
            self.put(&[if matches!(byte, b',' | b'"' | 0..b' ' | 0x7f) { b'_' } else { *byte }]);
        }
    }

    /// Appends `, ` and the number.
    #[inline]
    pub(super) fn column(&mut self, value: u64) {
        self.put(b", ");
        self.number(value);
    }

    /// Appends `value` without padding.
    #[inline]
    pub(super) fn number(&mut self, value: u64) {
        self.put(itoa::Buffer::new().format(value).as_bytes());
    }

    /// Appends `value` with at least `WIDTH` digits, up to eight.
    #[inline]
    pub(super) fn padded<const WIDTH: usize>(&mut self, value: u64) {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(value).as_bytes();
        self.put(&b"00000000"[..WIDTH.saturating_sub(digits.len())]);
        self.put(digits);
    }

    /// Appends `value / 10^PLACES` with that many decimals, up to four.
    #[inline]
    pub(super) fn fixed<const PLACES: usize>(&mut self, value: u64) {
        let scale = 10u64.pow(PLACES as u32);
        self.number(value / scale);
        self.put(b".");
        self.padded::<PLACES>(value % scale);
    }

    /// Appends `numerator / denominator` with `PLACES` decimals, exactly as Python prints the
    /// Decimal's float. Except for ties, that is the rounded quotient.
    #[inline]
    pub(super) fn quotient<const PLACES: usize>(&mut self, numerator: u64, denominator: u64) {
        if denominator == 0 {
            // The tracers fail with a DivisionByZero here.
            return self.put(b"nan");
        }
        // Compute three more digits than are printed; more are needed only near a tie. Below a
        // thousand the Decimal has at least one more digit.
        let scaled = numerator.checked_mul(10u64.pow(PLACES as u32 + 3)).map(|scaled| scaled / denominator);
        if let Some(scaled) = scaled.filter(|scaled| *scaled < 1_000 * 10u64.pow(PLACES as u32 + 3)) {
            let (whole, rest) = (scaled / 1000, scaled % 1000);
            // Leave 0, 499, 500 and 999 to the exact path, because there the truncated digits
            // decide.
            match rest {
                1..=498 => return self.fixed::<PLACES>(whole),
                501..=998 => return self.fixed::<PLACES>(whole + 1),
                // The quotient is exact: a multiple of the last digit needs no rounding.
                0 if scaled * denominator == numerator * 10u64.pow(PLACES as u32 + 3) => {
                    return self.fixed::<PLACES>(whole);
                }
                _ => {}
            }
        }
        self.float(decimal11(u128::from(numerator), u128::from(denominator)), PLACES);
    }

    /// Appends a float with `places` decimals.
    pub(super) fn float(&mut self, value: f64, places: usize) {
        self.put(format!("{value:.places$}").as_bytes());
    }

    /// Appends `micros / 10^6` with three decimals, as Python prints the float.
    #[inline]
    pub(super) fn seconds(&mut self, micros: i64) {
        let rest = micros.unsigned_abs() % 1000;
        // At a tie the nearest float decides, which may be on either side of it.
        if micros < 0 || rest == 500 {
            self.float(micros as f64 / 1e6, 3);
        } else {
            self.fixed::<3>(micros.unsigned_abs() / 1000 + u64::from(rest > 500));
        }
    }
}

/// Returns `numerator / denominator` as Python's Decimal with eleven significant digits, half to
/// even, converted to a float.
pub(super) fn decimal11(numerator: u128, denominator: u128) -> f64 {
    const LOW: u128 = 10_000_000_000;
    if numerator == 0 || denominator == 0 {
        return if denominator == 0 { f64::NAN } else { 0.0 };
    }
    let (mut top, mut bottom, mut exponent) = (numerator, denominator, 0i32);
    while top / bottom < LOW {
        match top.checked_mul(10) {
            Some(next) => top = next,
            // Only above 10^37, which no counter of 64 bits reaches.
            None => bottom = (bottom / 10).max(1),
        }
        exponent -= 1;
    }
    while top / bottom >= LOW * 10 {
        bottom *= 10;
        exponent += 1;
    }
    let (mut digits, rest) = (top / bottom, top % bottom);
    if rest * 2 > bottom || (rest * 2 == bottom && digits % 2 == 1) {
        digits += 1;
    }
    // Through text, as Python converts a Decimal to a float, which gives the nearest float.
    format!("{digits}e{exponent}").parse().unwrap_or(f64::NAN)
}

/// Rounds microseconds to eleven significant digits, half to even, like a time in the tracers'
/// arithmetic.
pub(super) fn eleven(micros: u64) -> u64 {
    if micros < 100_000_000_000 {
        return micros;
    }
    // The value of the eleventh digit.
    let unit = 10u64.pow(micros.ilog10() - 10);
    let (whole, rest) = (micros / unit, micros % unit);
    let up = rest * 2 > unit || (rest * 2 == unit && whole % 2 == 1);
    (whole + u64::from(up)) * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl Fn(&mut Row)) -> String {
        let mut row = Row::default();
        write(&mut row);
        String::from_utf8(row.bytes().to_vec()).unwrap()
    }

    #[test]
    fn numbers_have_their_digits() {
        for (value, expected) in [
            (0, ["0", "000", "00000", "000000"]),
            (5, ["5", "005", "00005", "000005"]),
            (10, ["10", "010", "00010", "000010"]),
            (100, ["100", "100", "00100", "000100"]),
            (1_000, ["1000", "1000", "01000", "001000"]),
            (70_001, ["70001", "70001", "70001", "070001"]),
            (99_999_999, ["99999999"; 4]),
            (100_000_000, ["100000000"; 4]),
            (9_999_999_900_000_010, ["9999999900000010"; 4]),
            (u64::MAX, ["18446744073709551615"; 4]),
        ] {
            let found = [
                text(|row| row.number(value)),
                text(|row| row.padded::<3>(value)),
                text(|row| row.padded::<5>(value)),
                text(|row| row.padded::<6>(value)),
            ];
            assert_eq!(found, expected, "{value}");
        }
        assert_eq!(text(|row| row.fixed::<3>(12_005)), "12.005");
    }

    #[test]
    fn ties_are_rounded_as_python_rounds_the_float() {
        // "%.4f" % Decimal(3300050)/Decimal(1000000), and others, from Python 3.11 with
        // getcontext().prec = 11.
        for (numerator, denominator, places, expected) in [
            (3_300_050, 1_000_000, 4, "3.3001"),
            (3_300_150, 1_000_000, 4, "3.3001"),
            (423_077, 1_000_000, 4, "0.4231"),
            (100, 800, 2, "0.12"),
            (300, 800, 2, "0.38"),
            (750, 1_000, 2, "0.75"),
            (7_500, 100, 2, "75.00"),
            (12_345, 1_000, 2, "12.35"),
            (100, 3, 2, "33.33"),
            (0, 7, 2, "0.00"),
            (5, 0, 2, "nan"),
            (u64::MAX, 3, 2, "6148914691200000000.00"),
        ] {
            let found = text(|row| match places {
                2 => row.quotient::<2>(numerator, denominator),
                _ => row.quotient::<4>(numerator, denominator),
            });
            assert_eq!(found, expected, "{numerator}/{denominator}");
        }
    }

    #[test]
    fn names_are_no_formulas() {
        for (name, cell) in [
            ("kworker/u8:3+events_unbound", "kworker/u8:3+events_unbound"),
            ("a-b 3", "a-b3"),
            ("=cmd|x", "'=cmd|x"),
            (" -bash", "'-bash"),
            ("x,=1+1", "x_=1+1"),
            ("@\t\"", "'@__"),
        ] {
            assert_eq!(text(|row| row.name(name.as_bytes())), cell);
        }
    }

    #[test]
    fn times_keep_eleven_digits() {
        assert_eq!(eleven(99_999_999_999), 99_999_999_999);
        assert_eq!(eleven(123_456_789_015), 123_456_789_020);
        assert_eq!(eleven(123_456_789_025), 123_456_789_020);
        assert_eq!(text(|row| row.seconds(1_234_500)), "1.234");
        assert_eq!(text(|row| row.seconds(1_234_501)), "1.235");
        assert_eq!(text(|row| row.seconds(-1_000)), "-0.001");
    }

    proptest::proptest! {
        #[test]
        fn fast_quotients_are_those_of_the_decimals(numerator in 0u64..1 << 44, denominator in 1u64..1 << 34) {
            let exact = decimal11(u128::from(numerator), u128::from(denominator));
            proptest::prop_assert_eq!(text(|row| row.quotient::<2>(numerator, denominator)), format!("{exact:.2}"));
            proptest::prop_assert_eq!(text(|row| row.quotient::<4>(numerator, denominator)), format!("{exact:.4}"));
        }

        #[test]
        fn numbers_are_those_of_the_library(value: u64, bits in 0u32..64) {
            let value = value >> bits;
            proptest::prop_assert_eq!(text(|row| row.number(value)), format!("{value}"));
            proptest::prop_assert_eq!(text(|row| row.padded::<6>(value)), format!("{value:06}"));
            let fixed = text(|row| row.fixed::<4>(value));
            proptest::prop_assert_eq!(fixed, format!("{}.{:04}", value / 10_000, value % 10_000));
        }
    }
}
