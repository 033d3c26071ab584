//! Parses the content of a file or register into a typed value, and formats a value as the exact
//! bytes of a write.

use flyball_host::{Celsius, Epb, Epp, KiloHertz, MicroJoules, MicroWatts, Micros, Percent, Perf};

use crate::{Form, Value, knob};

/// Parses `text`, without its line end, as a value of `form`.
///
/// # Errors
/// A description of the expected form.
pub(crate) fn value(form: Form, text: &str) -> Result<Value, &'static str> {
    if form == Form::Lines {
        let lines: Vec<&str> = text.lines().map(str::trim_ascii).filter(|line| !line.is_empty()).collect();
        return Ok(Value::Word(if lines.is_empty() { "none".to_owned() } else { lines.join(", ") }));
    }
    // An attribute is one line. If there are more, the first one counts. Attributes are ASCII, and
    // there are thousands of them, so only ASCII white space is trimmed.
    let text = text.trim_ascii().lines().next().unwrap_or_default().trim_ascii_end();
    if text.is_empty() {
        return match form {
            // An empty list is valid: boost frequencies of a driver without boost.
            Form::Words => Ok(Value::Words(Vec::new())),
            Form::KHzList => Ok(Value::Frequencies(Vec::new())),
            _ => Err(expected(form)),
        };
    }
    let number = || text.parse::<u64>().map_err(|_| expected(form));
    // Frequencies fit 32 bits in kHz. Reject anything else in a file or recording.
    let khz = |times: u64| {
        let khz = number().ok().and_then(|number| number.checked_mul(times));
        khz.filter(|khz| u32::try_from(*khz).is_ok()).map(KiloHertz).ok_or(expected(form))
    };
    let small = || number().and_then(|number| u8::try_from(number).map_err(|_| expected(form)));
    Ok(match form {
        Form::Word | Form::Lines => Value::Word(text.to_owned()),
        Form::Words => Value::Words(text.split_whitespace().map(str::to_owned).collect()),
        Form::Switch => Value::Switch(number()? != 0),
        Form::InvertedSwitch => Value::Switch(number()? == 0),
        Form::Enabled => match text {
            "enabled" => Value::Switch(true),
            "disabled" => Value::Switch(false),
            // Keep a later kernel's word instead of refusing it (see `Value`).
            other => Value::Word(other.to_owned()),
        },
        Form::KHz => Value::Frequency(khz(1)?),
        Form::KHzList => text
            .split_whitespace()
            .map(|word| word.parse::<u32>().map(|khz| KiloHertz(khz.into())).map_err(|_| expected(form)))
            .collect::<Result<_, _>>()
            .map(Value::Frequencies)?,
        Form::MHz => Value::Frequency(khz(1_000)?),
        Form::Ratio => Value::Frequency(khz(100_000)?),
        Form::Percent => {
            Value::Percent(Percent(number().and_then(|n| u32::try_from(n).map_err(|_| expected(form)))?))
        }
        Form::Micros => Value::Time(Micros(number()?)),
        Form::Nanos => match number()? {
            // CPUFREQ_ETERNAL, -1 printed as unsigned: the driver does not know its latency
            // (include/linux/cpufreq.h).
            0xffff_ffff => Value::Word("unknown".to_owned()),
            nanoseconds => Value::Time(Micros(nanoseconds / 1_000)),
        },
        Form::LatencyLimit => match text {
            "0" => Value::Word("no-limit".to_owned()),
            "n/a" => Value::Word("n/a".to_owned()),
            _ => Value::Time(Micros(number()?)),
        },
        Form::MicroWatts => Value::Power(MicroWatts(number()?)),
        Form::MicroJoules => Value::Energy(MicroJoules(number()?)),
        Form::MilliCelsius => {
            let thousandths = text.parse::<i64>().map_err(|_| expected(form))?;
            Value::Temperature(Celsius(thousandths as f64 / 1_000.0))
        }
        // A number, if no word matches the register's value (show_energy_performance_preference).
        Form::Epp => match text.parse::<u64>() {
            Ok(number) => Value::Epp(Epp(u8::try_from(number).map_err(|_| expected(form))?)),
            Err(_) => Value::Word(text.to_owned()),
        },
        Form::Epb => match small()? {
            number @ 0..=15 => Value::Epb(Epb(number)),
            _ => return Err(expected(form)),
        },
        Form::Perf => match number()? {
            level @ 0..=255 => Value::Perf(Perf(level as u8)),
            // Some firmware counts CPPC performance in MHz.
            level => Value::Count(level),
        },
        Form::Count => Value::Count(number()?),
        Form::Fields(_) => return Err(expected(form)),
    })
}

/// Parses the bits `bits` of `register` as a value of `form`.
pub(crate) fn field(form: Form, register: u64, bits: (u8, u8)) -> Result<Value, &'static str> {
    let raw = extract(register, bits);
    match form {
        Form::Fields(fields) => Ok(Value::Fields(
            fields
                .iter()
                .map(|&(name, high, low)| (name.to_owned(), extract(register, (high, low))))
                .collect(),
        )),
        Form::Epp => Ok(Value::Epp(Epp(raw as u8))),
        _ => value(form, &raw.to_string()),
    }
}

fn extract(register: u64, (high, low): (u8, u8)) -> u64 {
    (register >> low) & knob::mask((high - low, 0))
}

/// Returns the text that writes `value` in `form`; `None` if the form cannot express it.
pub(crate) fn text(form: Form, value: &Value) -> Option<String> {
    Some(match (form, value) {
        (Form::Word | Form::Epp, Value::Word(word)) => word.clone(),
        (Form::Switch, Value::Switch(on)) => u8::from(*on).to_string(),
        (Form::InvertedSwitch, Value::Switch(on)) => u8::from(!*on).to_string(),
        (Form::KHz, Value::Frequency(KiloHertz(khz))) => khz.to_string(),
        (Form::MHz, Value::Frequency(KiloHertz(khz))) if khz % 1_000 == 0 => (khz / 1_000).to_string(),
        (Form::Ratio, Value::Frequency(KiloHertz(khz))) if khz % 100_000 == 0 => (khz / 100_000).to_string(),
        (Form::Percent, Value::Percent(Percent(percent))) => percent.to_string(),
        (Form::Micros | Form::LatencyLimit, Value::Time(Micros(time))) => time.to_string(),
        (Form::LatencyLimit, Value::Word(word)) => match word.as_str() {
            "no-limit" => "0".to_owned(),
            "n/a" => "n/a".to_owned(),
            _ => return None,
        },
        (Form::MicroWatts, Value::Power(MicroWatts(power))) => power.to_string(),
        (Form::Epp, Value::Epp(Epp(number))) => number.to_string(),
        (Form::Epb, Value::Epb(Epb(number))) => number.to_string(),
        (Form::Perf, Value::Perf(Perf(level))) => level.to_string(),
        (Form::Perf | Form::Count, Value::Count(count)) => count.to_string(),
        _ => return None,
    })
}

/// Describes a form, for a message about text that does not match it.
pub(crate) fn expected(form: Form) -> &'static str {
    match form {
        Form::Word | Form::Words | Form::Lines => "a word",
        Form::Switch | Form::InvertedSwitch => "0 or 1",
        Form::Enabled => "'enabled' or 'disabled'",
        Form::KHz | Form::KHzList => "a frequency in kHz",
        Form::MHz => "a frequency in MHz",
        Form::Ratio | Form::Count | Form::Fields(_) => "a number",
        Form::Percent => "a percentage",
        Form::Micros => "a number of microseconds",
        Form::Nanos => "a number of nanoseconds",
        Form::LatencyLimit => "a number of microseconds or 'n/a'",
        Form::MicroWatts => "a number of microwatts",
        Form::MicroJoules => "a number of microjoules",
        Form::MilliCelsius => "a number of thousandths of a degree",
        Form::Epp => "a preference: a word or 0 to 255",
        Form::Epb => "a number from 0 to 15",
        Form::Perf => "a performance level",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_that_the_driver_does_not_know_is_no_four_seconds() {
        assert_eq!(value(Form::Nanos, "4294967295"), Ok(Value::Word("unknown".to_owned())));
        assert_eq!(value(Form::Nanos, "20000"), Ok(Value::Time(Micros(20))));
    }
}
