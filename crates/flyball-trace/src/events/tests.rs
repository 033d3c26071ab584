//! Walks the table: each row must agree in binary, text and print.

use std::collections::HashSet;

use super::*;
use crate::format::tests::format_text;

/// A format file with the fields of `row`, of eight bytes each, or sixteen bytes for those with
/// text.
fn format_of(row: &EventRow, without: Option<usize>, texts: &[&str]) -> EventFormat {
    let mut fields: Vec<(String, usize, usize)> = Vec::new();
    let mut offset = 8;
    for (at, names) in row.fields.iter().enumerate() {
        let Some(name) = names.first().filter(|_| without != Some(at)) else { continue };
        let (declaration, size) =
            if texts.contains(name) { (format!("char {name}[16]"), 16) } else { (format!("long {name}"), 8) };
        fields.push((declaration, offset, size));
        offset += size;
    }
    let fields: Vec<(&str, usize, usize)> =
        fields.iter().map(|(name, offset, size)| (name.as_str(), *offset, *size)).collect();
    let text = format_text(row.name, 7, &fields, "\"\"");
    EventFormat::parse(row.system, text.as_bytes()).unwrap()
}

/// Text fields; a new event with such a field adds its name here.
const TEXTS: [&str; 5] = ["prev_comm", "next_comm", "thermal_zone", "type", "reason"];

#[test]
fn every_event_reads_what_it_prints() {
    for (at, row) in TABLE.iter().enumerate() {
        let event = Event::parse(row.name.as_bytes(), row.example.as_bytes());
        let event = event.unwrap_or_else(|| panic!("{}: its example cannot be read", row.name));
        assert_eq!(event.row(), Some(at), "{}", row.name);
        assert_eq!(event.to_string(), format!("{}: {}", row.name, row.example));
    }
}

#[test]
fn every_event_is_decoded_from_the_fields_it_names() {
    for (at, row) in TABLE.iter().enumerate() {
        let format = format_of(row, None, &TEXTS);
        let plan = Plan::new(&format);
        // Each field has a distinct value, so the event survives decoding, printing and parsing
        // only if every field is in its place.
        let mut record = vec![0u8; format.size()];
        for (number, field) in format.fields.iter().skip(format.common).enumerate() {
            record[field.offset] = if field.size == 16 { b'a' } else { 1 } + number as u8;
        }
        let event = plan.decode(&record, NameId(0));
        assert_eq!(event.row(), Some(at), "{}: {plan:?}", row.name);
        let printed = event.to_string();
        let (name, fields) = printed.split_once(": ").unwrap();
        let read = Event::parse(name.as_bytes(), fields.as_bytes());
        assert_eq!(read, Some(event), "{printed}");
    }
}

#[test]
fn an_event_that_lacks_a_field_is_passed_through() {
    for row in &TABLE {
        let needed = row.fields.iter().enumerate().filter(|(_, names)| !names.is_empty());
        for (at, names) in needed {
            let plan = Plan::new(&format_of(row, Some(at), &TEXTS));
            // Without counters, amd_pstate_perf has the layout of kernel 5.17.
            let as_before = matches!(plan, Plan::AmdRequest(_)) && row.fields.len() > 6;
            assert!(matches!(plan, Plan::Other) || as_before, "{} without {names:?}", row.name);
        }
    }
}

#[test]
fn layouts_are_unique_and_recordings_name_each_event_once() {
    let mut rows = HashSet::new();
    for row in
        TABLE.iter().map(|row| (row.name, row.fields)).chain(BY_NAME.iter().map(|row| (row.name, &[][..])))
    {
        assert!(rows.insert(row), "{row:?}");
    }
    let mut names = HashSet::new();
    assert!(by_default().all(|name| names.insert(name)));
}

#[test]
fn recordings_take_decisions_and_limits() {
    let decisions: Vec<String> = decisions().collect();
    assert!(decisions.contains(&"amd_cpu/amd_pstate_perf".to_owned()));
    assert!(!decisions.contains(&"power/cpu_idle".to_owned()));
    let all: Vec<String> = by_default().collect();
    assert!(all.starts_with(&decisions));
    assert!(all.contains(&"irq_vectors/thermal_apic_entry".to_owned()));
}

#[test]
fn requests_of_all_kernels_are_read() {
    let read = |text: &[u8]| match Event::parse(b"amd_pstate_perf", text) {
        Some(Event::AmdPerf(event)) => Some(event),
        _ => None,
    };
    let new = b"amd_min_perf=15 amd_des_perf=39 amd_max_perf=166 freq=1100000 mperf=10 aperf=11 tsc=12 cpu_id=3 fast_switch=true";
    let event = read(new).unwrap();
    assert_eq!((event.min, event.des, event.max, event.cpu, event.khz), (15, 39, 166, 3, 1_100_000));
    assert_eq!((event.changed, event.fast_switch), (None, true));
    let other = b"fast_switch=true cpu_id=3 tsc=12 aperf=11 mperf=10 freq=9 amd_max_perf=8 amd_des_perf=7 amd_min_perf=6";
    let event = read(other).unwrap();
    assert_eq!((event.min, event.aperf, event.mperf, event.changed), (6, 11, 10, None));
    assert_eq!(read(b"amd_min_perf=15 amd_des_perf=39"), None);
    // A line from the document (Documentation/admin-guide/pm/amd-pstate.rst).
    let first = b"amd_min_perf=85 amd_des_perf=85 amd_max_perf=166 cpu_id=15 changed=false fast_switch=true";
    let Some(Event::AmdRequest(event)) = Event::parse(b"amd_pstate_perf", first) else { panic!() };
    assert_eq!((event.min, event.des, event.max, event.cpu), (85, 85, 166, 15));
    assert_eq!((event.changed, event.fast_switch), (Some(false), true));
}

#[test]
fn fields_that_some_kernels_lack_are_not_needed() {
    let text = b"core_busy=97 scaled=8 from=9 to=10 mperf=1 aperf=2 tsc=3 freq=2900000";
    let Some(Event::Intel(event)) = Event::parse(b"pstate_sample", text) else { panic!() };
    assert_eq!((event.core_busy, event.to, event.khz, event.io_boost), (97, 10, 2_900_000, 0));
    let text = b"thermal_zone=x86_pkg_temp id=2 temp=71000";
    let Some(Event::Temperature(event)) = Event::parse(b"thermal_temperature", text) else { panic!() };
    assert_eq!((event.id, event.before, event.temperature), (2, None, 71_000));
}
