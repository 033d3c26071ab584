//! The CSV files of the kernel's own tracers (tools/power/x86/amd_pstate_tracer and intel_pstate_tracer): the same
//! columns, formats and roundings, so that whatever reads theirs reads these.
//!
//! What is kept of their ways: the first record of each CPU consumes a sample number and makes no row; arithmetic
//! has eleven significant digits (so times above 100,000 s lose their last microseconds digit); the task's column
//! is name, minus sign and number without blanks. What is not: a task called `job[12]` is not booked on CPU 12, CPUs
//! from 256 on are no error, a TGID is not glued to the task's number, and no file is made for a CPU without rows.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{
    clock::microseconds,
    error::TraceError,
    record::{Event, Record},
    report::MOST_CPUS,
};

/// First line of cpu.csv from amd_pstate_perf events.
pub const AMD_HEADER: &str = "common_cpu, common_secs, common_usecs, min_perf, des_perf, max_perf, freq, mperf, \
    aperf, tsc, load, duration_ms, sample_num, elapsed_time, common_comm\n";
/// First line of cpu.csv from pstate_sample events.
pub const INTEL_HEADER: &str = "common_cpu, common_secs, common_usecs, core_busy, scaled_busy, from, to, mperf, \
    aperf, tsc, freq, boost, load, duration_ms, sample_num, elapsed_time, tsc_ghz, common_comm\n";

fn number(out: &mut Vec<u8>, value: u64) {
    padded(out, value, 1);
}

/// `value` in at least `width` digits.
#[inline]
fn padded(out: &mut Vec<u8>, mut value: u64, width: usize) {
    const PAIRS: &[u8; 200] = b"0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849\
        5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";
    let mut digits = [b'0'; 20];
    let mut at = 20;
    while value >= 10 {
        let pair = (value % 100) as usize * 2;
        value /= 100;
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    if value > 0 || at == 20 {
        at -= 1;
        digits[at] = b'0' + value as u8;
    }
    let from = at.min(20 - width.min(20));
    out.extend_from_slice(&digits[from..]);
}

/// `thousandths / 10^places` with `places` digits behind the point.
#[inline]
fn fixed(out: &mut Vec<u8>, value: u64, places: usize) {
    let scale = 10u64.pow(places as u32);
    number(out, value / scale);
    out.push(b'.');
    padded(out, value % scale, places);
}

/// `numerator / denominator` as Python's Decimal has it with eleven significant digits, half to even; as a float.
fn decimal11(numerator: u128, denominator: u128) -> f64 {
    const LOW: u128 = 10_000_000_000;
    if numerator == 0 || denominator == 0 {
        return if denominator == 0 { f64::NAN } else { 0.0 };
    }
    let (mut top, mut bottom, mut exponent) = (numerator, denominator, 0i32);
    while top / bottom < LOW {
        match top.checked_mul(10) {
            Some(next) => top = next,
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
    format!("{digits}e{exponent}").parse().unwrap_or(f64::NAN)
}

/// `numerator / denominator` printed with `places` digits, exactly as Python prints the Decimal's float. Off the
/// ties, that is plain rounding of the quotient.
fn quotient(out: &mut Vec<u8>, numerator: u64, denominator: u64, places: u32) {
    if denominator == 0 {
        out.extend_from_slice(b"nan");
        return;
    }
    // Three more digits than are printed; only where these are near a tie does more than that matter.
    let scaled = numerator.checked_mul(10u64.pow(places + 3)).map(|scaled| scaled / denominator);
    if let Some(scaled) = scaled.filter(|scaled| *scaled < 1_000_000 * 10u64.pow(places + 3)) {
        let (whole, rest) = (scaled / 1000, scaled % 1000);
        match rest {
            1..=498 => return fixed(out, whole, places as usize),
            501..=998 => return fixed(out, whole + 1, places as usize),
            _ => {}
        }
    }
    let value = decimal11(u128::from(numerator), u128::from(denominator));
    let _ = write!(out, "{value:.*}", places as usize);
}

/// Microseconds with eleven significant digits, half to even: what is left of a time in the tracers' arithmetic.
fn eleven(micros: u64) -> u64 {
    if micros < 100_000_000_000 {
        return micros;
    }
    let unit = 10u64.pow(micros.ilog10() - 10);
    let (whole, rest) = (micros / unit, micros % unit);
    let up = rest * 2 > unit || (rest * 2 == unit && whole % 2 == 1);
    (whole + u64::from(up)) * unit
}

/// `micros / 10^6` with three digits, as Python prints the float.
fn seconds(out: &mut Vec<u8>, micros: i64) {
    let rest = micros.unsigned_abs() % 1000;
    if micros < 0 || rest == 500 {
        let _ = write!(out, "{:.3}", micros as f64 / 1e6);
    } else {
        fixed(out, micros.unsigned_abs() / 1000 + u64::from(rest > 500), 3);
    }
}

/// Which tracer's files are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tracer {
    Amd,
    Intel,
}

/// Rows of one CPU that are not written yet.
#[derive(Debug, Default)]
struct CpuRows {
    rows: Vec<u8>,
    made: bool,
}

/// Makes the rows of both tracers. Knows nothing of files.
#[derive(Debug, Default)]
pub struct Rows {
    tracer: Option<Tracer>,
    samples: u64,
    start: u64,
    last: Vec<Option<u64>>,
    /// Records of the tracer that the trace did not start with.
    pub of_other_driver: u64,
    /// Rows made.
    pub rows: u64,
}

impl Rows {
    /// Appends the record's row to `out`, if it has one. Answers the row's CPU.
    #[inline]
    pub fn row(&mut self, record: &Record, out: &mut Vec<u8>) -> Option<u32> {
        let tracer = match &record.event {
            Event::AmdPerf(_) => Tracer::Amd,
            Event::Intel(_) => Tracer::Intel,
            _ => return None,
        };
        if *self.tracer.get_or_insert(tracer) != tracer {
            self.of_other_driver += 1;
            return None;
        }
        let cpu = record.cpu;
        if cpu >= MOST_CPUS {
            return None;
        }
        let now = microseconds(record.time);
        if self.samples == 0 {
            self.start = eleven(now);
        }
        self.samples += 1;
        if self.last.len() <= cpu as usize {
            self.last.resize(cpu as usize + 1, None);
        }
        let last = self.last[cpu as usize].replace(now)?;
        self.rows += 1;
        out.reserve(256);
        out.extend_from_slice(b"CPU_");
        padded(out, u64::from(cpu), 3);
        out.extend_from_slice(b", ");
        padded(out, now / 1_000_000, 5);
        out.extend_from_slice(b", ");
        padded(out, now % 1_000_000, 6);
        let integers = |out: &mut Vec<u8>, values: &[u64]| {
            for value in values {
                out.extend_from_slice(b", ");
                number(out, *value);
            }
        };
        let duration = now.cast_signed().wrapping_sub(last.cast_signed());
        let (mperf, tsc) = match &record.event {
            Event::AmdPerf(event) => {
                integers(out, &[u64::from(event.min), u64::from(event.des), u64::from(event.max)]);
                out.extend_from_slice(b", ");
                quotient(out, event.khz, 1_000_000, 4);
                integers(out, &[event.mperf, event.aperf, event.tsc]);
                (event.mperf, event.tsc)
            }
            Event::Intel(event) => {
                let levels = [event.core_busy, event.scaled_busy, event.from, event.to].map(u64::from);
                integers(out, &levels);
                integers(out, &[event.mperf, event.aperf, event.tsc]);
                out.extend_from_slice(b", ");
                quotient(out, u64::from(event.khz), 1_000_000, 4);
                integers(out, &[u64::from(event.io_boost)]);
                (event.mperf, event.tsc)
            }
            _ => (0, 0),
        };
        out.extend_from_slice(b", ");
        match mperf.checked_mul(100) {
            Some(share) => quotient(out, share, tsc, 2),
            None => {
                let _ = write!(out, "{:.2}", decimal11(u128::from(mperf) * 100, u128::from(tsc)));
            }
        }
        out.extend_from_slice(b", ");
        if duration < 0 {
            out.push(b'-');
        }
        fixed(out, duration.unsigned_abs(), 3);
        integers(out, &[self.samples]);
        out.extend_from_slice(b", ");
        seconds(out, eleven(now).cast_signed().wrapping_sub(self.start.cast_signed()));
        if tracer == Tracer::Intel {
            out.extend_from_slice(b", ");
            match u64::try_from(duration) {
                Ok(0) => out.extend_from_slice(b"0.000"),
                // GHz: cycles in duration milliseconds, over a million.
                Ok(duration) if duration < u64::MAX / 1000 => quotient(out, tsc, duration * 1000, 3),
                _ => {
                    let _ = write!(out, "{:.3}", tsc as f64 / (duration as f64 * 1000.0));
                }
            }
        }
        out.extend_from_slice(b", ");
        out.extend(record.comm.bytes().iter().filter(|byte| **byte != b' '));
        out.push(b'-');
        number(out, u64::try_from(record.pid).unwrap_or(0));
        out.push(b'\n');
        Some(cpu)
    }

    /// The header line that goes with the rows; `None` before the first record.
    pub fn header(&self) -> Option<&'static str> {
        self.tracer.map(|tracer| if tracer == Tracer::Amd { AMD_HEADER } else { INTEL_HEADER })
    }
}

/// Bytes of one CPU's rows that are kept before they are written.
const KEPT: usize = 32 * 1024;

/// Writes cpu.csv and a cpuNNN.csv for each CPU into a directory.
#[derive(Debug)]
pub struct CsvFiles {
    directory: PathBuf,
    rows: Rows,
    all: Option<File>,
    /// Rows of all CPUs not written yet.
    kept: Vec<u8>,
    cpus: Vec<Option<Box<CpuRows>>>,
    per_cpu: bool,
}

impl CsvFiles {
    /// Files in `directory`, which is made if it is not there. With `per_cpu`, one more for each CPU.
    ///
    /// # Errors
    /// Where the directory or cpu.csv cannot be made.
    pub fn create(directory: &Path, per_cpu: bool) -> Result<CsvFiles, TraceError> {
        std::fs::create_dir_all(directory).map_err(|error| TraceError::io("create", directory, error))?;
        let path = directory.join("cpu.csv");
        let all = File::create(&path).map_err(|error| TraceError::io("create", path, error))?;
        Ok(CsvFiles {
            directory: directory.to_owned(),
            rows: Rows::default(),
            all: Some(all),
            kept: Vec::with_capacity(300 * 1024),
            cpus: Vec::new(),
            per_cpu,
        })
    }

    fn cpu_path(&self, cpu: usize) -> PathBuf {
        self.directory.join(format!("cpu{cpu:03}.csv"))
    }

    /// Adds one record.
    ///
    /// # Errors
    /// Where a file cannot be written.
    #[inline]
    pub fn add(&mut self, record: &Record) -> Result<(), TraceError> {
        let start = self.kept.len();
        let first = self.rows.header().is_none();
        let Some(cpu) = self.rows.row(record, &mut self.kept) else {
            if let (true, Some(header)) = (first, self.rows.header()) {
                self.kept.extend_from_slice(header.as_bytes());
            }
            return Ok(());
        };
        if self.per_cpu {
            let cpu = cpu as usize;
            if self.cpus.len() <= cpu {
                self.cpus.resize_with(cpu + 1, || None);
            }
            let header = self.rows.header().unwrap_or_default();
            let rows = self.cpus[cpu].get_or_insert_with(|| {
                let mut rows = Vec::with_capacity(KEPT + 512);
                rows.extend_from_slice(header.as_bytes());
                Box::new(CpuRows { rows, made: false })
            });
            rows.rows.extend_from_slice(&self.kept[start..]);
            if rows.rows.len() >= KEPT {
                self.flush_cpu(cpu)?;
            }
        }
        if self.kept.len() >= 256 * 1024 {
            self.flush_all()?;
        }
        Ok(())
    }

    fn flush_all(&mut self) -> Result<(), TraceError> {
        let path = self.directory.join("cpu.csv");
        if let Some(all) = &mut self.all {
            all.write_all(&self.kept).map_err(|error| TraceError::io("write", path, error))?;
        }
        self.kept.clear();
        Ok(())
    }

    /// Opened for each write: a process may not have thousands of files open.
    fn flush_cpu(&mut self, cpu: usize) -> Result<(), TraceError> {
        let path = self.cpu_path(cpu);
        let Some(Some(rows)) = self.cpus.get_mut(cpu) else { return Ok(()) };
        let write = |rows: &mut CpuRows| -> io::Result<()> {
            let mut options = OpenOptions::new();
            options.write(true);
            if rows.made {
                options.append(true)
            } else {
                options.create(true).truncate(true)
            };
            options.open(&path)?.write_all(&rows.rows)?;
            rows.made = true;
            rows.rows.clear();
            Ok(())
        };
        write(rows).map_err(|error| TraceError::io("write", path, error))
    }

    /// Writes what is left. Answers the number of rows, and of records of another driver that were left out.
    ///
    /// # Errors
    /// Where a file cannot be written.
    pub fn finish(mut self) -> Result<(u64, u64), TraceError> {
        self.flush_all()?;
        for cpu in 0..self.cpus.len() {
            if self.cpus[cpu].is_some() {
                self.flush_cpu(cpu)?;
            }
        }
        Ok((self.rows.rows, self.rows.of_other_driver))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{AmdPerf, Comm, IntelSample};

    fn text(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_have_their_digits() {
        for (value, width, expected) in [
            (0, 1, "0"),
            (0, 3, "000"),
            (5, 3, "005"),
            (10, 1, "10"),
            (100, 3, "100"),
            (100, 1, "100"),
            (1_000, 3, "1000"),
            (123, 1, "123"),
            (70_001, 6, "070001"),
            (u64::MAX, 1, "18446744073709551615"),
        ] {
            assert_eq!(text(|out| padded(out, value, width)), expected, "{value} {width}");
        }
        assert_eq!(text(|out| fixed(out, 12_005, 3)), "12.005");
    }

    #[test]
    fn ties_are_rounded_as_python_rounds_the_float() {
        // "%.4f" % Decimal(3300050)/Decimal(1000000), and others, from Python 3.11 with getcontext().prec = 11.
        for (numerator, denominator, places, expected) in [
            (3_300_050, 1_000_000, 4, "3.3001"),
            (3_300_150, 1_000_000, 4, "3.3001"),
            (423_077, 1_000_000, 4, "0.4231"),
            (100, 800, 2, "0.12"),
            (300, 800, 2, "0.38"),
            (12_345, 1_000, 2, "12.35"),
            (100, 3, 2, "33.33"),
            (0, 7, 2, "0.00"),
            (5, 0, 2, "nan"),
            (u64::MAX, 3, 2, "6148914691200000000.00"),
        ] {
            let found = text(|out| quotient(out, numerator, denominator, places));
            assert_eq!(found, expected, "{numerator}/{denominator}");
        }
    }

    #[test]
    fn times_keep_eleven_digits() {
        assert_eq!(eleven(99_999_999_999), 99_999_999_999);
        assert_eq!(eleven(123_456_789_015), 123_456_789_020);
        assert_eq!(eleven(123_456_789_025), 123_456_789_020);
        assert_eq!(text(|out| seconds(out, 1_234_500)), "1.234");
        assert_eq!(text(|out| seconds(out, 1_234_501)), "1.235");
        assert_eq!(text(|out| seconds(out, -1_000)), "-0.001");
    }

    fn amd(time: u64, cpu: u32, pid: i32) -> Record {
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
            rows.row(&amd(time, cpu, 7), &mut out);
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
            rows.row(&record, &mut out);
        }
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "CPU_300, 00001, 010000, 97, 8, 9, 10, 300, 200, 27000000, 2.9000, 5, 0.00, 10.000, 2, 0.010, 2.700, <idle>-0\n"
        );
        assert_eq!(rows.row(&amd(5, 0, 1), &mut Vec::new()), None);
        assert_eq!(rows.of_other_driver, 1);
    }

    #[test]
    fn files_are_made_for_cpus_with_rows() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = CsvFiles::create(&folder.path().join("new"), true).unwrap();
        for round in 0..1_000u64 {
            files.add(&amd(round * 1_000_000, (round % 2) as u32 * 300, 7)).unwrap();
        }
        files.add(&amd(5_000_000_000, 5, 7)).unwrap();
        assert_eq!(files.finish().unwrap(), (998, 0));
        let read = |name: &str| std::fs::read_to_string(folder.path().join("new").join(name));
        let all = read("cpu.csv").unwrap();
        assert_eq!(all.lines().count(), 999);
        let one = read("cpu300.csv").unwrap();
        assert_eq!(one.lines().count(), 500);
        assert!(one.starts_with(AMD_HEADER) && all.starts_with(AMD_HEADER));
        let rows: Vec<&str> = all.lines().filter(|line| line.starts_with("CPU_300")).collect();
        assert_eq!(one.lines().skip(1).collect::<Vec<_>>(), rows);
        assert!(read("cpu005.csv").is_err());
    }
}
