//! Traces: text, trace.dat, format files and pages.

use std::{
    num::NonZeroUsize,
    path::Path,
    sync::{Arc, LazyLock},
};

use flyball_trace::{
    Clock, Decoder, Detail, EventFormat, Names, Page, PageHeader, TextOptions,
    csv::Rows,
    dat::{Source, TraceFile},
    diagnose::{Diagnoser, Limits},
    read_file, read_text,
    report::Analyser,
    series::SeriesSet,
};

use crate::{outcome, plain};

/// Lines to records, records to a report, findings, rows, pictures, and back to lines.
pub fn text(bytes: &[u8]) -> String {
    let names = Arc::new(Names::default());
    let (mut analyser, mut series) = (Analyser::new(), SeriesSet::default());
    let mut diagnoser = Diagnoser::new(Limits::default(), vec![(0, 1)]).with_names(names.clone());
    let mut rows = Rows::default();
    let options = TextOptions { threads: NonZeroUsize::MIN, chunk: 4096, details: true };
    let mut clock = Clock::Local;
    let read = read_text(bytes, Path::new("fuzz"), &names, &options, &mut |batch| {
        clock = batch.clock();
        for record in &batch.records {
            analyser.add(record);
            diagnoser.add(record);
            series.add(record);
            let _ = rows.row(record);
            let _ = record.line(clock).to_string();
        }
        Ok(())
    });
    let read = read.expect("reading memory cannot fail");
    assert_eq!(read.bytes, bytes.len() as u64);
    let report = analyser.report(clock, &names);
    let findings = diagnoser.findings(clock);
    format!("{} {} {:?}", read.unparsed.min(1), report.events.len(), findings.first().map(|found| found.kind))
}

/// A whole trace.dat file, of either version, as a report reads it.
pub fn dat(bytes: &[u8]) -> String {
    outcome(TraceFile::read(Source::memory(bytes)), |file| {
        let names = Arc::new(Names::default());
        let mut analyser = Analyser::new();
        let read = read_file(&file, &names, &mut |records| {
            analyser.add_all(records);
            Ok(())
        });
        outcome(read, |summary| {
            let report = analyser.report(summary.clock, &names);
            let problem = summary.problems.first().cloned().unwrap_or_default();
            format!("{} {}", report.events.len(), plain(&problem))
        })
    })
}

/// A format file, what a decoder makes of it, and records of that event behind a NUL.
pub fn format(bytes: &[u8]) -> String {
    let _ = PageHeader::parse(bytes);
    let split = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (text, record) = bytes.split_at(split);
    outcome(EventFormat::parse("fuzz", text), |format| {
        for field in &format.fields {
            let _ = (field.integer(record), field.bytes(record), field.text(record));
        }
        let mut record = record.to_vec();
        if record.len() >= 2 {
            record[..2].copy_from_slice(&format.id.to_le_bytes());
        }
        let _ = Detail::Bytes { format: &format, payload: &record }.to_string();
        let shapes: Vec<_> = format.fields.iter().map(|field| field.shape).take(4).collect();
        let decoder = Decoder::new(&[format], &Names::default());
        format!("{shapes:?} {}", decoder.decode(0, 0, &record).is_ok())
    })
}

static DECODER: LazyLock<Decoder> = LazyLock::new(|| {
    let common = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";
    let events = [
        (
            "cpu_idle",
            "\tfield:u32 state;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:u32 cpu_id;\toffset:12;\tsize:4;\tsigned:0;\n",
        ),
        (
            "cdev_update",
            "\tfield:__data_loc char[] type;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:unsigned long target;\toffset:16;\tsize:8;\tsigned:0;\n",
        ),
        (
            "thermal_zone_trip",
            "\tfield:__rel_loc char[] thermal_zone;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:int id;\toffset:12;\tsize:4;\tsigned:1;\n\tfield:int trip;\toffset:16;\tsize:4;\tsigned:1;\n",
        ),
    ];
    let formats: Vec<EventFormat> = events
        .iter()
        .enumerate()
        .map(|(id, (name, fields))| {
            let text = format!("name: {name}\nID: {id}\nformat:\n{common}{fields}\nprint fmt: \"\"\n");
            EventFormat::parse("fuzz", text.as_bytes()).expect("the formats are whole")
        })
        .collect();
    Decoder::new(&formats, &Names::default())
});

/// A ring-buffer page behind a byte that chooses the header, and what it holds by a fixed set of
/// formats.
pub fn page(bytes: &[u8]) -> String {
    let Some((kind, bytes)) = bytes.split_first() else { return String::new() };
    let header = if kind & 1 == 0 { PageHeader::default() } else { PageHeader { commit_size: 4, data: 12 } };
    outcome(Page::parse(bytes, header), |page| {
        let (mut walked, mut decoded) = (0, 0);
        for entry in page.entries().flatten() {
            walked += 1;
            decoded += u64::from(DECODER.decode(entry.time, 0, entry.payload).is_ok());
        }
        let (count, damage) = page.count();
        assert_eq!(count, walked);
        format!("{} {} {:?}", walked.min(3), decoded.min(3), damage.map(|damage| damage.what))
    })
}
