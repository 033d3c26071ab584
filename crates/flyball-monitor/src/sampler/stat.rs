//! /proc/stat: what each CPU spent its time on, in hundredths of a second.

/// A CPU's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) cpu: u32,
    pub(super) busy: u64,
    pub(super) idle: u64,
    pub(super) steal: u64,
}

/// The lines of the online CPUs. The file has no others.
pub(super) fn cpus(text: &[u8]) -> impl Iterator<Item = Times> {
    text.split(|byte| *byte == b'\n').skip(1).map_while(|line| line.strip_prefix(b"cpu")).filter_map(line)
}

fn line(rest: &[u8]) -> Option<Times> {
    let mut words = rest.split(|byte| *byte == b' ').map(super::file::number);
    let cpu = u32::try_from(words.next()??).ok()?;
    // user nice system idle iowait irq softirq steal; guest time is part of user time
    // (kernel/sched/cputime.c).
    let mut columns = [0; 8];
    for (column, word) in columns.iter_mut().zip(words) {
        *column = word?;
    }
    let [user, nice, system, idle, iowait, irq, softirq, steal] = columns;
    let sum = |parts: &[u64]| parts.iter().fold(0u64, |sum, part| sum.saturating_add(*part));
    Some(Times { cpu, busy: sum(&[user, nice, system, irq, softirq]), idle: sum(&[idle, iowait]), steal })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_cpus() {
        let text =
            b"cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu17 1 0 0 9\ncpux\nintr 5 cpu3 1\n";
        let times: Vec<Times> = cpus(text).collect();
        assert_eq!(
            times,
            [Times { cpu: 0, busy: 19, idle: 9, steal: 8 }, Times { cpu: 17, busy: 1, idle: 9, steal: 0 },]
        );
        assert_eq!(cpus(b"").count(), 0);
        assert_eq!(cpus(b"cpu\ncpu99999999999999999999999 1\n").count(), 0);
    }
}
