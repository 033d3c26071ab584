//! Writes traces for the tests of `flyball trace`: the same requests as text, as trace.dat of both
//! versions, and as raw pages.

use std::{
    io::Write,
    path::Path,
    process::{Output, Stdio},
};

use flyball_testing::flyball;
use flyball_trace::{
    Machine,
    dat::{self, CpuInput, Description},
};

pub(crate) fn flyball(arguments: &[&str], input: &[u8]) -> Output {
    let mut command = flyball!();
    command.arg("trace").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let feeder = std::thread::spawn({
        let input = input.to_vec();
        // A command that rejects its input does not read all of it.
        move || drop(stdin.write_all(&input))
    });
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    output
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub time: u64,
    pub cpu: u32,
    pub pid: i32,
    pub des: u8,
    pub khz: u64,
    pub mperf: u64,
    pub aperf: u64,
    pub tsc: u64,
    pub fast: bool,
}

/// `count` requests of `cpus` CPUs in turn, a millisecond apart.
pub(crate) fn requests(count: u64, cpus: u32) -> Vec<Request> {
    (0..count)
        .map(|number| Request {
            time: 5_000_000_000 + number * 1_000_000 + number % 7 * 1_000,
            cpu: (number % u64::from(cpus)) as u32,
            pid: 4000 + (number % 3) as i32,
            des: (20 + number * 13 % 200) as u8,
            khz: 400_000 + number * 7_919 % 4_300_000,
            mperf: 1_000_000 + number * 104_729 % 2_000_000,
            aperf: 900_000 + number * 99_991 % 3_000_000,
            tsc: 3_000_000 + number * 31 % 1_000,
            fast: number % 3 != 0,
        })
        .collect()
}

const NAMES: [&str; 3] = ["job[12]", "a b-3", "kworker/0:1"];

/// Formats requests like the file `trace`.
pub(crate) fn text(requests: &[Request]) -> String {
    let mut text = String::from("# tracer: nop\n#\n");
    for request in requests {
        let Request { cpu, pid, des, khz, mperf, aperf, tsc, fast, .. } = request;
        text.push_str(&format!(
            "{:>16}-{pid:<7} [{cpu:03}] d..2. {:5}.{:06}: amd_pstate_perf: amd_min_perf=15 amd_des_perf={des} \
             amd_max_perf=255 freq={khz} mperf={mperf} aperf={aperf} tsc={tsc} cpu_id={cpu} fast_switch={fast}\n",
            NAMES[(pid - 4000) as usize],
            request.time / 1_000_000_000,
            request.time / 1_000 % 1_000_000,
        ));
    }
    text
}

pub(crate) const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";

pub(crate) const HEADER_EVENT: &str = "# compressed entry header\n\ttype_len    :    5 bits\n\ttime_delta  :   27 bits\n\
    \tarray       :   32 bits\n\n\tpadding     : type == 29\n\ttime_extend : type == 30\n\
    \ttime_stamp : type == 31\n\tdata max type_len  == 28\n";

/// Returns the format file of `amd_pstate_perf` since kernel 6.15.
pub(crate) fn format() -> String {
    let field = |declaration: &str, offset: usize, size: usize, signed: u8| {
        format!("\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n")
    };
    [
        "name: amd_pstate_perf\nID: 2203\nformat:\n".to_owned(),
        field("unsigned short common_type", 0, 2, 0),
        field("unsigned char common_flags", 2, 1, 0),
        field("unsigned char common_preempt_count", 3, 1, 0),
        field("int common_pid", 4, 4, 1),
        "\n".to_owned(),
        field("u8 min_perf", 8, 1, 0),
        field("u8 target_perf", 9, 1, 0),
        field("u8 capacity", 10, 1, 0),
        field("unsigned long long freq", 16, 8, 0),
        field("unsigned long long mperf", 24, 8, 0),
        field("unsigned long long aperf", 32, 8, 0),
        field("unsigned long long tsc", 40, 8, 0),
        field("unsigned int cpu_id", 48, 4, 0),
        field("bool fast_switch", 52, 1, 0),
        "\nprint fmt: \"amd_min_perf=%hhu amd_des_perf=%hhu amd_max_perf=%hhu freq=%llu mperf=%llu aperf=%llu \
         tsc=%llu cpu_id=%u fast_switch=%s\", REC->min_perf, REC->target_perf, REC->capacity, REC->freq, REC->mperf, \
         REC->aperf, REC->tsc, REC->cpu_id, REC->fast_switch ? \"true\" : \"false\"\n"
            .to_owned(),
    ]
    .concat()
}

/// Returns the pages of one CPU, in the format of trace_pipe_raw.
pub(crate) fn pages(requests: &[Request], cpu: u32) -> Vec<u8> {
    let mut pages = Vec::new();
    let own: Vec<&Request> = requests.iter().filter(|request| request.cpu == cpu).collect();
    for some in own.chunks(66) {
        let start = pages.len();
        pages.extend_from_slice(&some[0].time.to_le_bytes());
        pages.extend_from_slice(&[0; 8]);
        let mut last = some[0].time;
        for request in some {
            let delta = request.time - last;
            last = request.time;
            pages.extend_from_slice(&(14u32 | ((delta as u32) << 5)).to_le_bytes());
            let mut record = [0u8; 56];
            record[..4].copy_from_slice(&[0x9b, 0x08, 1, 2]);
            record[4..8].copy_from_slice(&request.pid.to_le_bytes());
            record[8..11].copy_from_slice(&[15, request.des, 255]);
            for (at, value) in
                [(16, request.khz), (24, request.mperf), (32, request.aperf), (40, request.tsc)]
            {
                record[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            record[48..52].copy_from_slice(&cpu.to_le_bytes());
            record[52] = u8::from(request.fast);
            pages.extend_from_slice(&record);
        }
        let used = (pages.len() - start - 16) as u64;
        pages[start + 8..start + 16].copy_from_slice(&used.to_le_bytes());
        pages.resize(start + 4096, 0);
    }
    pages
}

/// A trace.dat file.
pub(crate) fn dat(requests: &[Request]) -> Vec<u8> {
    let cpus = requests.iter().map(|request| request.cpu + 1).max().unwrap_or(1);
    let mut inputs: Vec<CpuInput> = (0..cpus)
        .map(|cpu| {
            let bytes = pages(requests, cpu);
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            CpuInput { cpu, pages: file, size: bytes.len() as u64 }
        })
        .collect();
    let cmdlines: String = (0..3).map(|at| format!("{} {}\n", 4000 + at, NAMES[at])).collect();
    let about = Description {
        page_size: 4096,
        header_page: HEADER_PAGE.into(),
        header_event: HEADER_EVENT.into(),
        event_formats: vec![("amd_cpu".into(), vec![format().into_bytes()])],
        cmdlines: cmdlines.into_bytes(),
        clock: "local global [mono] boot\n".into(),
        uname: "Linux box 7.2 x86_64".into(),
        writer: "flyball test".into(),
        machine: Some(Machine {
            command_line: Some("nohz_full=1".into()),
            possible: Some("0-3".into()),
            cores: vec![vec![0, 1]],
            ..Machine::default()
        }),
        cpus,
        ..Description::default()
    };
    let mut out = tempfile::tempfile().unwrap();
    dat::write(&mut out, &about, &mut inputs).unwrap();
    let mut bytes = vec![0; out.metadata().unwrap().len() as usize];
    std::os::unix::fs::FileExt::read_exact_at(&out, &mut bytes, 0).unwrap();
    bytes
}

/// Writes the format files that raw pages need.
pub(crate) fn events(directory: &Path) {
    let event = directory.join("events/amd_cpu/amd_pstate_perf");
    std::fs::create_dir_all(&event).unwrap();
    std::fs::write(event.join("format"), format()).unwrap();
    std::fs::write(directory.join("events/header_page"), HEADER_PAGE).unwrap();
}
