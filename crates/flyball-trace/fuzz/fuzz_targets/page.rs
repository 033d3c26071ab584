//! A ring-buffer page, and decoding what it holds by a fixed set of formats.
#![no_main]

use std::sync::LazyLock;

use flyball_trace::{Decoder, EventFormat, Names, Page, PageHeader};
use libfuzzer_sys::fuzz_target;

static DECODER: LazyLock<Decoder> = LazyLock::new(|| {
    let common = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";
    let events = [
        ("cpu_idle", "\tfield:u32 state;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:u32 cpu_id;\toffset:12;\tsize:4;\tsigned:0;\n"),
        ("cdev_update", "\tfield:__data_loc char[] type;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:unsigned long target;\toffset:16;\tsize:8;\tsigned:0;\n"),
        ("thermal_zone_trip", "\tfield:__rel_loc char[] thermal_zone;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:int id;\toffset:12;\tsize:4;\tsigned:1;\n\tfield:int trip;\toffset:16;\tsize:4;\tsigned:1;\n"),
    ];
    let formats: Vec<EventFormat> = events
        .iter()
        .enumerate()
        .map(|(id, (name, fields))| {
            let text = format!("name: {name}\nID: {id}\nformat:\n{common}{fields}\nprint fmt: \"\"\n");
            EventFormat::parse("fuzz", text.as_bytes()).expect("the formats are well")
        })
        .collect();
    Decoder::new(&formats, &Names::default())
});

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let header = if kind & 1 == 0 { PageHeader::default() } else { PageHeader { commit_size: 4, data: 12 } };
    let Ok(page) = Page::parse(bytes, header) else { return };
    let mut walked = 0;
    for entry in page.entries().flatten() {
        walked += 1;
        let _ = DECODER.decode(entry.time, 0, entry.payload);
    }
    assert_eq!(page.count().0, walked);
});
