//! Frequencies in sentences.

/// Returns MHz in GHz, to 5 MHz. Clocks are multiples of 25 MHz, so two measurements of one clock
/// print alike; to 10 MHz, 4275 would become 4.27 or 4.28.
pub fn ghz(mhz: f64) -> String {
    let fives = (mhz / 5.0).round();
    format!("{:.*}", if fives % 2.0 == 0.0 { 2 } else { 3 }, fives / 200.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_of_one_clock_print_alike() {
        for clock in (400..6000).step_by(25).map(f64::from) {
            assert_eq!(ghz(clock - 2.4), ghz(clock + 2.4), "{clock}");
        }
        assert_eq!([ghz(4275.0), ghz(4280.0), ghz(400.0)], ["4.275", "4.28", "0.40"]);
    }
}
