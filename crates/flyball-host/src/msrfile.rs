//! Recorded model-specific registers: one line per register,
//! `hex register:cpu|hex value cpu|hex value ...`.

use std::collections::BTreeMap;

/// Registers by (register, CPU).
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct MsrFile {
    values: BTreeMap<(u32, u32), u64>,
}

impl MsrFile {
    /// Reads the text form.
    ///
    /// # Errors
    /// The number (from 1) of the first line that cannot be read.
    pub(crate) fn parse(bytes: &[u8]) -> Result<MsrFile, usize> {
        let mut values = BTreeMap::new();
        for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            let text = std::str::from_utf8(line).map_err(|_| index + 1)?;
            let text = text.split('#').next().unwrap_or_default().trim();
            if text.is_empty() {
                continue;
            }
            Self::line(text, &mut values).ok_or(index + 1)?;
        }
        Ok(MsrFile { values })
    }

    fn line(text: &str, values: &mut BTreeMap<(u32, u32), u64>) -> Option<()> {
        let (register, pairs) = text.split_once(':')?;
        let register = u32::from_str_radix(register.trim(), 16).ok()?;
        for pair in pairs.split_whitespace() {
            let (cpu, value) = pair.split_once('|')?;
            values.insert((register, cpu.parse().ok()?), u64::from_str_radix(value, 16).ok()?);
        }
        Some(())
    }

    /// Returns the values by (register, CPU).
    pub(crate) fn values(&self) -> &BTreeMap<(u32, u32), u64> {
        &self.values
    }

    /// Returns the register's value on that CPU, if it was recorded.
    pub(crate) fn get(&self, cpu: u32, register: u32) -> Option<u64> {
        self.values.get(&(register, cpu)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_registers_and_names_the_bad_line() {
        let file = MsrFile::parse(b"# head\n1b0:0|6 1|f\n\n774:1|8000ff01\n").unwrap();
        assert_eq!(file.get(1, 0x1b0), Some(15));
        assert_eq!(file.get(0, 0x774), None);
        assert_eq!(MsrFile::parse(b"1b0:0|6\n1b1:x|6\n"), Err(2));
        assert_eq!(MsrFile::parse(b"\xff\xfe"), Err(1));
    }
}
