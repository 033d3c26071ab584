//! The silicon's log: one line per millisecond of guest time, with `ms`, W and C of each package,
//! and kHz and busy ns of each CPU.

/// A line.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Line {
    /// End of the line's interval.
    pub ms: f64,
    /// Mean power of all packages since the previous line.
    pub watts: f64,
    /// Temperature of the hottest package.
    pub celsius: f64,
    /// kHz, and busy ns since the previous line, of each CPU.
    pub cpus: Vec<(u32, u64)>,
}

impl Line {
    fn read(line: &str) -> Option<Line> {
        let (ms, rest) = line.split_once(' ')?;
        let mut out = Line { ms: ms.parse().ok()?, ..Line::default() };
        // Lines do not tell the number of packages. Power and temperature have a decimal point,
        // frequencies do not.
        let words: Vec<&str> = rest.split(' ').collect();
        let packages = words.iter().take_while(|word| word.contains('.')).count();
        // A truncated line.
        if !packages.is_multiple_of(2) || !(words.len() - packages).is_multiple_of(2) {
            return None;
        }
        for pair in words[..packages].chunks_exact(2) {
            out.watts += pair[0].parse::<f64>().ok()?;
            out.celsius = out.celsius.max(pair[1].parse().ok()?);
        }
        let pair = |pair: &[&str]| Some((pair[0].parse().ok()?, pair[1].parse().ok()?));
        out.cpus = words[packages..].chunks_exact(2).map(pair).collect::<Option<_>>()?;
        Some(out)
    }
}

/// A CPU that is busy for this long in a millisecond shows its frequency; a time slice may end
/// slightly later.
pub(crate) const BUSY_NS: u64 = 940_000;

/// The lines between two times, ms.
pub(crate) fn between(lines: &[Line], from: f64, to: f64) -> &[Line] {
    let first = lines.partition_point(|line| line.ms <= from);
    let last = lines.partition_point(|line| line.ms <= to);
    &lines[first.min(last)..last]
}

/// The readable lines.
pub(crate) fn lines(log: &str) -> impl Iterator<Item = Line> {
    log.lines().filter_map(Line::read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let log =
            "# ms, then\n12.000 9.5 41.25 10.5 40.00 3300000 1000000 400000 0\n13.0 x\n14.000 1.0 2.0 5";
        let found: Vec<Line> = lines(log).collect();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].watts, found[0].celsius), (20.0, 41.25));
        assert_eq!(found[0].cpus, [(3_300_000, 1_000_000), (400_000, 0)]);
    }
}
