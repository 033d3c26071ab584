//! `per_cpu/cpuN/stats`: the kernel's counts. Unlike pages' headers, they do not undercount losses:
//! read, overwritten and dropped records add up to the written ones.

use crate::scan::decimal;

/// One CPU's counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
pub struct CpuStats {
    pub cpu: u32,
    /// Records still in the buffer.
    pub entries: u64,
    /// Records that were overwritten before they were read.
    pub overrun: u64,
    /// Records that did not fit because a nested writer was ahead.
    pub commit_overrun: u64,
    /// Records that were rejected because the buffer was full (only if it does not overwrite).
    pub dropped: u64,
    /// Records that were read.
    pub read: u64,
}

impl CpuStats {
    /// Parses the file's text. Missing lines count as 0; a `CPU: N` line, as in trace.dat, names
    /// the CPU.
    pub fn parse(cpu: u32, text: &str) -> CpuStats {
        let mut stats = CpuStats { cpu, ..CpuStats::default() };
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            // The two times have a decimal point, and only the part before it is parsed; they are
            // not used.
            let value = decimal(value.trim().as_bytes(), 0).map_or(0, |(value, _)| value);
            match key.trim() {
                "CPU" => stats.cpu = u32::try_from(value).unwrap_or(cpu),
                "entries" => stats.entries = value,
                "overrun" => stats.overrun = value,
                "commit overrun" => stats.commit_overrun = value,
                "dropped events" => stats.dropped = value,
                "read events" => stats.read = value,
                _ => {}
            }
        }
        stats
    }

    /// Records that can no longer be read.
    pub fn lost(&self) -> u64 {
        self.overrun.saturating_add(self.commit_overrun).saturating_add(self.dropped)
    }

    /// Records that were written or dropped.
    pub fn written(&self) -> u64 {
        self.entries.saturating_add(self.read).saturating_add(self.lost())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_and_add_up() {
        let text = "CPU: 3\nentries: 617\noverrun: 20\ncommit overrun: 1\nbytes: 24456\n\
                    oldest event ts:  1371.627877\nnow ts:  1371.7\ndropped events: 4\nread events: 120\n";
        let stats = CpuStats::parse(0, text);
        assert_eq!(
            stats,
            CpuStats { cpu: 3, entries: 617, overrun: 20, commit_overrun: 1, dropped: 4, read: 120 }
        );
        assert_eq!((stats.lost(), stats.written()), (25, 762));
        assert_eq!(CpuStats::parse(9, "").cpu, 9);
    }
}
