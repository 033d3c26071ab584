//! One record, one row, in the columns of the kernel's tracers.

use crate::{
    clock::microseconds,
    events::Event,
    record::{MAX_CPUS, Record},
};

use super::digits::{Row, decimal11, eleven};

/// First line of cpu.csv from amd_pstate_perf events.
pub const AMD_HEADER: &str = "common_cpu, common_secs, common_usecs, min_perf, des_perf, max_perf, freq, mperf, \
    aperf, tsc, load, duration_ms, sample_num, elapsed_time, common_comm\n";
/// First line of cpu.csv from pstate_sample events.
pub const INTEL_HEADER: &str = "common_cpu, common_secs, common_usecs, core_busy, scaled_busy, from, to, mperf, \
    aperf, tsc, freq, boost, load, duration_ms, sample_num, elapsed_time, tsc_ghz, common_comm\n";

/// The tracer whose file format is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tracer {
    Amd,
    Intel,
}

impl Tracer {
    fn header(self) -> &'static str {
        match self {
            Tracer::Amd => AMD_HEADER,
            Tracer::Intel => INTEL_HEADER,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CsvRow<'a> {
    /// The CPU of the row.
    pub cpu: u32,
    /// The header line of its file.
    pub header: &'static str,
    /// The row, with its newline.
    pub row: &'a [u8],
}

/// Formats the rows of both tracers. Independent of files.
#[derive(Debug, Default)]
pub struct Rows {
    row: Row,
    tracer: Option<Tracer>,
    samples: u64,
    start: u64,
    last: Vec<Option<u64>>,
    /// Number of records of the other tracer, which the trace did not start with.
    pub of_other_driver: u64,
    pub rows: u64,
}

impl Rows {
    /// The record's row, if it has one.
    #[inline]
    pub fn row(&mut self, record: &Record) -> Option<CsvRow<'_>> {
        let tracer = match &record.event {
            Event::AmdPerf(_) => Tracer::Amd,
            Event::Intel(_) => Tracer::Intel,
            _ => return None,
        };
        // A file has one header, so records of another driver, after a switch, do not fit.
        if *self.tracer.get_or_insert(tracer) != tracer {
            self.of_other_driver += 1;
            return None;
        }
        // The CPU in brackets, like the tracers. Intel's event has no other.
        let cpu = record.cpu;
        if cpu >= MAX_CPUS {
            return None;
        }
        // The tracers read text, which has microseconds.
        let now = microseconds(record.time);
        if self.samples == 0 {
            self.start = eleven(now);
        }
        self.samples += 1;
        if self.last.len() <= cpu as usize {
            self.last.resize(cpu as usize + 1, None);
        }
        // The tracers skip a CPU's first sample, because its counters include time before the
        // trace.
        let last = self.last[cpu as usize].replace(now)?;
        self.rows += 1;
        // Signed: concatenated traces go back in time, and the tracers print the negative value.
        let duration = now.cast_signed().wrapping_sub(last.cast_signed());
        let row = &mut self.row;
        row.clear();
        row.put(b"CPU_");
        row.padded::<3>(u64::from(cpu));
        row.put(b", ");
        row.padded::<5>(now / 1_000_000);
        row.put(b", ");
        row.padded::<6>(now % 1_000_000);
        let (mperf, tsc) = event_columns(row, &record.event);
        row.put(b", ");
        // Overflows only for values that no kernel writes; the slow path prints them like the
        // tracers.
        match mperf.checked_mul(100) {
            Some(share) => row.quotient::<2>(share, tsc),
            None => row.float(decimal11(u128::from(mperf) * 100, u128::from(tsc)), 2),
        }
        row.put(b", ");
        if duration < 0 {
            row.put(b"-");
        }
        row.fixed::<3>(duration.unsigned_abs());
        row.column(self.samples);
        row.put(b", ");
        row.seconds(eleven(now).cast_signed().wrapping_sub(self.start.cast_signed()));
        if tracer == Tracer::Intel {
            row.put(b", ");
            match u64::try_from(duration) {
                // intel_pstate_tracer.py checks this divisor, but not TSC.
                Ok(0) => row.put(b"0.000"),
                // GHz: cycles in `duration` milliseconds, divided by a million.
                Ok(duration) if duration < u64::MAX / 1000 => row.quotient::<3>(tsc, duration * 1000),
                _ => row.float(tsc as f64 / (duration as f64 * 1000.0), 3),
            }
        }
        row.put(b", ");
        row.name(record.comm.bytes());
        row.put(b"-");
        // Negative numbers are damage, and their sign would be a second separator after the name.
        row.number(u64::try_from(record.pid).unwrap_or(0));
        row.put(b"\n");
        Some(CsvRow { cpu, header: tracer.header(), row: row.bytes() })
    }

    /// The header line of the rows; `None` before the first record.
    pub fn header(&self) -> Option<&'static str> {
        self.tracer.map(Tracer::header)
    }
}

/// Appends the columns in which the tracers differ. Returns MPERF and TSC.
#[inline]
fn event_columns(row: &mut Row, event: &Event) -> (u64, u64) {
    match event {
        Event::AmdPerf(event) => {
            row.column(u64::from(event.min));
            row.column(u64::from(event.des));
            row.column(u64::from(event.max));
            row.put(b", ");
            row.quotient::<4>(event.khz, 1_000_000);
            for counter in [event.mperf, event.aperf, event.tsc] {
                row.column(counter);
            }
            (event.mperf, event.tsc)
        }
        Event::Intel(event) => {
            for level in [event.core_busy, event.scaled_busy, event.from, event.to] {
                row.column(u64::from(level));
            }
            for counter in [event.mperf, event.aperf, event.tsc] {
                row.column(counter);
            }
            row.put(b", ");
            row.quotient::<4>(u64::from(event.khz), 1_000_000);
            row.column(u64::from(event.io_boost));
            (event.mperf, event.tsc)
        }
        _ => (0, 0),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::comm::Comm;
    use crate::events::{AmdPerf, IntelSample};

    pub(in crate::csv) fn amd(time: u64, cpu: u32, pid: i32) -> Record {
        let event = AmdPerf {
            min: 15,
            des: 39,
            max: 166,
            cpu,
            khz: 3_300_050,
            mperf: 1,
            aperf: 2,
            tsc: 3,
            changed: None,
            fast_switch: true,
        };
        Record { time, cpu, pid, comm: Comm::new(b"a b"), flags: 0, preempt: 0, event: Event::AmdPerf(event) }
    }

    #[test]
    fn the_first_record_of_a_cpu_takes_a_number_and_makes_no_row() {
        let mut rows = Rows::default();
        let mut out = Vec::new();
        for (time, cpu) in [(1_000_000_499, 0), (2_000_000_500, 1), (3_500_000_000, 0)] {
            out.extend(rows.row(&amd(time, cpu, 7)).into_iter().flat_map(|made| made.row.to_vec()));
        }
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "CPU_000, 00003, 500000, 15, 39, 166, 3.3001, 1, 2, 3, 33.33, 2500.000, 3, 2.500, ab-7\n"
        );
    }

    #[test]
    fn intel_rows_have_their_own_columns() {
        let mut rows = Rows::default();
        let mut out = Vec::new();
        let event = IntelSample {
            core_busy: 97,
            scaled_busy: 8,
            from: 9,
            to: 10,
            mperf: 300,
            aperf: 200,
            tsc: 27_000_000,
            khz: 2_900_000,
            io_boost: 5,
        };
        for time in [1_000_000_000, 1_010_000_000] {
            let comm = Comm::new(b"<idle>");
            let record =
                Record { time, cpu: 300, pid: 0, comm, flags: 0, preempt: 0, event: Event::Intel(event) };
            out.extend(rows.row(&record).into_iter().flat_map(|made| made.row.to_vec()));
        }
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "CPU_300, 00001, 010000, 97, 8, 9, 10, 300, 200, 27000000, 2.9000, 5, 0.00, 10.000, 2, 0.010, 2.700, <idle>-0\n"
        );
        assert_eq!(rows.row(&amd(5, 0, 1)), None);
        assert_eq!(rows.of_other_driver, 1);
    }
}
