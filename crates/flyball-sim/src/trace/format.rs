//! The format files: the layout of each kernel version's records, as recorded on Debian's kernels.

use std::fmt::Write as _;

use super::Kind;
use crate::kernel::Kernel;

/// Type, name, offset, size, signed.
type Field = (&'static str, &'static str, u32, u32, u32);

const COMMON: [Field; 4] = [
    ("unsigned short", "common_type", 0, 2, 0),
    ("unsigned char", "common_flags", 2, 1, 0),
    ("unsigned char", "common_preempt_count", 3, 1, 0),
    ("int", "common_pid", 4, 4, 1),
];

fn fields(kind: Kind, kernel: Kernel) -> &'static [Field] {
    match kind {
        Kind::CpuFrequency | Kind::CpuIdle => &[("u32", "state", 8, 4, 0), ("u32", "cpu_id", 12, 4, 0)],
        Kind::CpuFrequencyLimits => {
            &[("u32", "min_freq", 8, 4, 0), ("u32", "max_freq", 12, 4, 0), ("u32", "cpu_id", 16, 4, 0)]
        }
        Kind::PstateSample => &[
            ("u32", "core_busy", 8, 4, 0),
            ("u32", "scaled_busy", 12, 4, 0),
            ("u32", "from", 16, 4, 0),
            ("u32", "to", 20, 4, 0),
            ("u64", "mperf", 24, 8, 0),
            ("u64", "aperf", 32, 8, 0),
            ("u64", "tsc", 40, 8, 0),
            ("u32", "freq", 48, 4, 0),
            ("u32", "io_boost", 52, 4, 0),
        ],
        Kind::AmdPerf if kernel >= Kernel::V6_18 => &[
            ("u8", "min_perf", 8, 1, 0),
            ("u8", "target_perf", 9, 1, 0),
            ("u8", "capacity", 10, 1, 0),
            ("unsigned long long", "freq", 16, 8, 0),
            ("unsigned long long", "mperf", 24, 8, 0),
            ("unsigned long long", "aperf", 32, 8, 0),
            ("unsigned long long", "tsc", 40, 8, 0),
            ("unsigned int", "cpu_id", 48, 4, 0),
            ("bool", "fast_switch", 52, 1, 0),
        ],
        Kind::AmdPerf => &[
            ("unsigned long", "min_perf", 8, 8, 0),
            ("unsigned long", "target_perf", 16, 8, 0),
            ("unsigned long", "capacity", 24, 8, 0),
            ("unsigned long long", "freq", 32, 8, 0),
            ("unsigned long long", "mperf", 40, 8, 0),
            ("unsigned long long", "aperf", 48, 8, 0),
            ("unsigned long long", "tsc", 56, 8, 0),
            ("unsigned int", "cpu_id", 64, 4, 0),
            ("bool", "changed", 68, 1, 0),
            ("bool", "fast_switch", 69, 1, 0),
        ],
        Kind::AmdEpp => &[
            ("unsigned int", "cpu_id", 8, 4, 0),
            ("u8", "highest_perf", 12, 1, 0),
            ("u8", "epp", 13, 1, 0),
            ("u8", "min_perf", 14, 1, 0),
            ("u8", "max_perf", 15, 1, 0),
            ("bool", "boost", 16, 1, 0),
            ("bool", "changed", 17, 1, 0),
        ],
        // Not recorded: derived from the source of its text (linux 7.3, amd-pstate-trace.h).
        Kind::AmdReq2 => &[
            ("unsigned int", "cpu_id", 8, 4, 0),
            ("u8", "floor_perf", 12, 1, 0),
            ("bool", "changed", 13, 1, 0),
            ("int", "err_code", 16, 4, 1),
        ],
        Kind::Print => &[("unsigned long", "ip", 8, 8, 0), ("char", "buf[]", 16, 0, 0)],
    }
}

fn print(kind: Kind, kernel: Kernel) -> String {
    let cast = |cast: &str, names: &[&str]| {
        names.iter().map(|name| format!(", ({cast})REC->{name}")).collect::<String>()
    };
    let truth = |name: &str| format!(", (REC->{name}) ? \"true\" : \"false\"");
    match kind {
        Kind::CpuFrequency | Kind::CpuIdle => {
            format!("\"state=%lu cpu_id=%lu\"{}", cast("unsigned long", &["state", "cpu_id"]))
        }
        Kind::CpuFrequencyLimits => format!(
            "\"min=%lu max=%lu cpu_id=%lu\"{}",
            cast("unsigned long", &["min_freq", "max_freq", "cpu_id"])
        ),
        Kind::PstateSample => format!(
            "\"core_busy=%lu scaled=%lu from=%lu to=%lu mperf=%llu aperf=%llu tsc=%llu freq=%lu io_boost=%lu\"{}{}{}",
            cast("unsigned long", &["core_busy", "scaled_busy", "from", "to"]),
            cast("unsigned long long", &["mperf", "aperf", "tsc"]),
            cast("unsigned long", &["freq", "io_boost"]),
        ),
        Kind::AmdPerf => {
            let new = kernel >= Kernel::V6_18;
            let (of, level, changed) = if new {
                ("u8", "%hhu", String::new())
            } else {
                ("unsigned long", "%lu", " changed=%s".to_owned())
            };
            format!(
                "\"amd_min_perf={level} amd_des_perf={level} amd_max_perf={level} freq=%llu mperf=%llu aperf=%llu \
                 tsc=%llu cpu_id=%u{changed} fast_switch=%s\"{}{}{}{}{}",
                cast(of, &["min_perf", "target_perf", "capacity"]),
                cast("unsigned long long", &["freq", "mperf", "aperf", "tsc"]),
                cast("unsigned int", &["cpu_id"]),
                if new { String::new() } else { truth("changed") },
                truth("fast_switch"),
            )
        }
        Kind::AmdEpp => format!(
            "\"cpu%u: [%hhu<->%hhu]/%hhu, epp=%hhu, boost=%u, changed=%u\"{}{}{}",
            cast("unsigned int", &["cpu_id"]),
            cast("u8", &["min_perf", "max_perf", "highest_perf", "epp"]),
            cast("bool", &["boost", "changed"]),
        ),
        Kind::AmdReq2 => format!(
            "\"cpu%u: floor_perf=%u, changed=%u (error = %d)\"{}",
            ["cpu_id", "floor_perf", "changed", "err_code"].map(|name| format!(", REC->{name}")).concat()
        ),
        Kind::Print => "\"%ps: %s\", (void *)REC->ip, REC->buf".to_owned(),
    }
}

/// events/GROUP/EVENT/format.
pub(crate) fn text(kind: Kind, kernel: Kernel) -> String {
    let mut text = format!("name: {}\nID: {}\nformat:\n", kind.name(), kind.id(kernel));
    let mut line = |(of, name, offset, size, signed): Field| {
        let _ = writeln!(text, "\tfield:{of} {name};\toffset:{offset};\tsize:{size};\tsigned:{signed};");
    };
    COMMON.into_iter().for_each(&mut line);
    text.push('\n');
    let mut line = |(of, name, offset, size, signed): Field| {
        // Up to 6.1 plain char is signed.
        let signed = if of == "char" && kernel < Kernel::V6_12 { 1 } else { signed };
        let _ = writeln!(text, "\tfield:{of} {name};\toffset:{offset};\tsize:{size};\tsigned:{signed};");
    };
    fields(kind, kernel).iter().copied().for_each(&mut line);
    let _ = write!(text, "\nprint fmt: {}\n", print(kind, kernel));
    text
}

/// events/header_page.
pub(crate) fn page(kernel: Kernel) -> String {
    let signed = u8::from(kernel < Kernel::V6_12);
    format!(
        "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
         \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
         \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
         \tfield: char data;\toffset:16;\tsize:4080;\tsigned:{signed};\n"
    )
}

pub(crate) const EVENT: &str = "# compressed entry header\n\
    \ttype_len    :    5 bits\n\
    \ttime_delta  :   27 bits\n\
    \tarray       :   32 bits\n\n\
    \tpadding     : type == 29\n\
    \ttime_extend : type == 30\n\
    \ttime_stamp : type == 31\n\
    \tdata max type_len  == 28\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_fit_into_their_records() {
        for &kernel in Kernel::ALL {
            for kind in Kind::ALL.iter().copied().filter(|kind| kind.is_in(kernel)) {
                let mut end = 8;
                for (_, name, offset, size, _) in fields(kind, kernel) {
                    assert!(*offset >= end, "{} {name}", kind.name());
                    end = offset + size;
                }
                assert!(text(kind, kernel).contains("print fmt: \""));
            }
        }
    }
}
