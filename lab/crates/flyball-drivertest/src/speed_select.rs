//! Speed Select's interface to programs: the calls of /dev/isst_interface, and the layouts of their
//! arguments (include/uapi/linux/isst_if.h).
//!
//! - `program`: the program that makes calls in a guest;
//! - `shape`: a machine's power domains, levels and cores, and the calls that read everything that
//!   can be set;
//! - `state`: the answers to these calls.

mod program;
mod shape;
mod state;

pub use program::elf;
pub use shape::{Domain, Shape, WRITE, mailbox};
pub use state::{Class, DomainState, State, class_of_word};

/// The device.
pub const DEVICE: &str = "/dev/isst_interface";

/// The program's name in agent.sh and in reproducers.
const PROGRAM: &str = "\"$isst\"";

/// Maximum number of commands in a call (ISST_IF_CMD_LIMIT).
pub const MAX_COMMANDS: u64 = 64;

/// Numbers of calls.
pub mod nr {
    pub const GET_PLATFORM_INFO: u32 = 0;
    pub const GET_PHY_ID: u32 = 1;
    pub const IO_CMD: u32 = 2;
    pub const MBOX_COMMAND: u32 = 3;
    pub const MSR_COMMAND: u32 = 4;
    pub const COUNT_TPMI_INSTANCES: u32 = 5;
    pub const CORE_POWER_STATE: u32 = 6;
    pub const CLOS_PARAM: u32 = 7;
    pub const CLOS_ASSOC: u32 = 8;
    pub const PERF_LEVELS: u32 = 9;
    pub const PERF_SET_LEVEL: u32 = 10;
    pub const PERF_SET_FEATURE: u32 = 11;
    pub const GET_PERF_LEVEL_INFO: u32 = 12;
    pub const GET_PERF_LEVEL_CPU_MASK: u32 = 13;
    pub const GET_BASE_FREQ_INFO: u32 = 14;
    pub const GET_BASE_FREQ_CPU_MASK: u32 = 15;
    pub const GET_TURBO_FREQ_INFO: u32 = 16;
    pub const GET_PERF_LEVEL_FABRIC_INFO: u32 = 17;
}

/// A field of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    pub name: &'static str,
    pub at: usize,
    /// Size of a value in bytes.
    pub width: usize,
    /// Number of values; more than one is an array.
    pub count: usize,
}

const fn f(name: &'static str, at: usize, width: usize) -> Field {
    Field { name, at, width, count: 1 }
}

const fn many(name: &'static str, at: usize, width: usize, count: usize) -> Field {
    Field { name, at, width, count }
}

/// A call.
#[derive(Debug, PartialEq, Eq)]
pub struct Call {
    pub nr: u32,
    /// Name in isst_if.h, without ISST_IF_.
    pub name: &'static str,
    /// Number for ioctl(2).
    pub number: u32,
    /// Fields set by the caller.
    pub asks: &'static [Field],
    /// Other fields, which the kernel sets.
    pub answers: &'static [Field],
    /// Offset, size and fields of the commands, for a call that takes several.
    pub commands: Option<(usize, usize, &'static [Field])>,
    /// Size without commands.
    pub size: usize,
}

const DOMAIN: [Field; 2] = [f("socket_id", 0, 1), f("power_domain_id", 1, 1)];
const OF_LEVEL: &[Field] = &[DOMAIN[0], DOMAIN[1], f("level", 2, 2)];
const OF_MASK: &[Field] = &[DOMAIN[0], DOMAIN[1], f("level", 2, 1), f("punit_cpu_map", 3, 1)];
const COUNT: &[Field] = &[f("cmd_count", 0, 4)];

const fn call(
    nr: u32,
    name: &'static str,
    number: u32,
    size: usize,
    asks: &'static [Field],
    answers: &'static [Field],
) -> Call {
    Call { nr, name, number, asks, answers, commands: None, size }
}

const fn of_commands(
    nr: u32,
    name: &'static str,
    number: u32,
    from: usize,
    bytes: usize,
    fields: &'static [Field],
) -> Call {
    Call { nr, name, number, asks: COUNT, answers: &[], commands: Some((from, bytes, fields)), size: from }
}

const CALLS: &[Call] = &[
    call(
        nr::GET_PLATFORM_INFO,
        "GET_PLATFORM_INFO",
        0x8008_fe00,
        8,
        &[],
        &[
            f("api_version", 0, 2),
            f("driver_version", 2, 2),
            f("max_cmds_per_ioctl", 4, 2),
            f("mbox_supported", 6, 1),
            f("mmio_supported", 7, 1),
        ],
    ),
    of_commands(
        nr::GET_PHY_ID,
        "GET_PHY_ID",
        0xc008_fe01,
        4,
        8,
        &[f("logical_cpu", 0, 4), f("physical_cpu", 4, 4)],
    ),
    of_commands(
        nr::IO_CMD,
        "IO_CMD",
        0x4008_fe02,
        4,
        16,
        &[f("read_write", 0, 4), f("logical_cpu", 4, 4), f("reg", 8, 4), f("value", 12, 4)],
    ),
    of_commands(
        nr::MBOX_COMMAND,
        "MBOX_COMMAND",
        0xc008_fe03,
        4,
        24,
        &[
            f("logical_cpu", 0, 4),
            f("parameter", 4, 4),
            f("req_data", 8, 4),
            f("resp_data", 12, 4),
            f("command", 16, 2),
            f("sub_command", 18, 2),
            f("reserved", 20, 4),
        ],
    ),
    of_commands(
        nr::MSR_COMMAND,
        "MSR_COMMAND",
        0xc008_fe04,
        8,
        24,
        &[f("read_write", 0, 4), f("logical_cpu", 4, 4), f("msr", 8, 8), f("data", 16, 8)],
    ),
    call(
        nr::COUNT_TPMI_INSTANCES,
        "COUNT_TPMI_INSTANCES",
        0x8008_fe05,
        4,
        &[DOMAIN[0]],
        &[f("count", 1, 1), f("valid_mask", 2, 2)],
    ),
    call(
        nr::CORE_POWER_STATE,
        "CORE_POWER_STATE",
        0xc008_fe06,
        6,
        &[
            f("get_set", 0, 1),
            f("socket_id", 1, 1),
            f("power_domain_id", 2, 1),
            f("enable", 3, 1),
            f("priority_type", 5, 1),
        ],
        &[f("supported", 4, 1)],
    ),
    call(
        nr::CLOS_PARAM,
        "CLOS_PARAM",
        0xc008_fe07,
        10,
        &[
            f("get_set", 0, 1),
            f("socket_id", 1, 1),
            f("power_domain_id", 2, 1),
            f("clos", 3, 1),
            f("min_freq_mhz", 4, 2),
            f("max_freq_mhz", 6, 2),
            f("prop_prio", 8, 1),
        ],
        &[],
    ),
    Call {
        nr: nr::CLOS_ASSOC,
        name: "CLOS_ASSOC",
        number: 0xc008_fe08,
        asks: &[f("cmd_count", 0, 2), f("get_set", 2, 2), f("punit_cpu_map", 4, 2)],
        answers: &[],
        commands: Some((6, 6, &[DOMAIN[0], DOMAIN[1], f("logical_cpu", 2, 2), f("clos", 4, 2)])),
        size: 6,
    },
    call(
        nr::PERF_LEVELS,
        "PERF_LEVELS",
        0xc008_fe09,
        11,
        &DOMAIN,
        &[
            f("max_level", 2, 1),
            f("feature_rev", 3, 1),
            f("level_mask", 4, 1),
            f("current_level", 5, 1),
            f("feature_state", 6, 1),
            f("locked", 7, 1),
            f("enabled", 8, 1),
            f("sst_tf_support", 9, 1),
            f("sst_bf_support", 10, 1),
        ],
    ),
    call(
        nr::PERF_SET_LEVEL,
        "PERF_SET_LEVEL",
        0x4008_fe0a,
        3,
        &[DOMAIN[0], DOMAIN[1], f("level", 2, 1)],
        &[],
    ),
    call(
        nr::PERF_SET_FEATURE,
        "PERF_SET_FEATURE",
        0x4008_fe0b,
        3,
        &[DOMAIN[0], DOMAIN[1], f("feature", 2, 1)],
        &[],
    ),
    call(
        nr::GET_PERF_LEVEL_INFO,
        "GET_PERF_LEVEL_INFO",
        0x8008_fe0c,
        154,
        OF_LEVEL,
        &[
            f("tdp_ratio", 4, 2),
            f("base_freq_mhz", 6, 2),
            f("base_freq_avx2_mhz", 8, 2),
            f("base_freq_avx512_mhz", 10, 2),
            f("base_freq_amx_mhz", 12, 2),
            f("thermal_design_power_w", 14, 2),
            f("tjunction_max_c", 16, 2),
            f("max_memory_freq_mhz", 18, 2),
            f("cooling_type", 20, 2),
            f("p0_freq_mhz", 22, 2),
            f("p1_freq_mhz", 24, 2),
            f("pn_freq_mhz", 26, 2),
            f("pm_freq_mhz", 28, 2),
            f("p0_fabric_freq_mhz", 30, 2),
            f("p1_fabric_freq_mhz", 32, 2),
            f("pm_fabric_freq_mhz", 36, 2),
            f("max_buckets", 38, 2),
            f("max_trl_levels", 40, 2),
            many("bucket_core_counts", 42, 2, 8),
            many("trl_freq_mhz", 58, 2, 48),
        ],
    ),
    call(
        nr::GET_PERF_LEVEL_CPU_MASK,
        "GET_PERF_LEVEL_CPU_MASK",
        0x8008_fe0d,
        24,
        OF_MASK,
        &[f("mask", 8, 8)],
    ),
    call(
        nr::GET_BASE_FREQ_INFO,
        "GET_BASE_FREQ_INFO",
        0x8008_fe0e,
        12,
        OF_LEVEL,
        &[
            f("high_base_freq_mhz", 4, 2),
            f("low_base_freq_mhz", 6, 2),
            f("tjunction_max_c", 8, 2),
            f("thermal_design_power_w", 10, 2),
        ],
    ),
    call(nr::GET_BASE_FREQ_CPU_MASK, "GET_BASE_FREQ_CPU_MASK", 0x8008_fe0f, 24, OF_MASK, &[f("mask", 8, 8)]),
    call(
        nr::GET_TURBO_FREQ_INFO,
        "GET_TURBO_FREQ_INFO",
        0x8008_fe10,
        134,
        OF_LEVEL,
        &[
            f("max_clip_freqs", 4, 2),
            f("max_buckets", 6, 2),
            f("max_trl_levels", 8, 2),
            many("lp_clip_freq_mhz", 10, 2, 6),
            many("bucket_core_counts", 22, 2, 8),
            many("trl_freq_mhz", 38, 2, 48),
        ],
    ),
    call(
        nr::GET_PERF_LEVEL_FABRIC_INFO,
        "GET_PERF_LEVEL_FABRIC_INFO",
        0x8008_fe11,
        54,
        OF_LEVEL,
        &[
            f("max_fabrics", 4, 2),
            many("p0_fabric_freq_mhz", 6, 2, 8),
            many("p1_fabric_freq_mhz", 22, 2, 8),
            many("pm_fabric_freq_mhz", 38, 2, 8),
        ],
    ),
];

/// The call with this number (without direction and type); an unknown number gives the first call.
pub fn by_nr(nr: u32) -> &'static Call {
    CALLS.iter().find(|call| call.nr == nr).unwrap_or(&CALLS[0])
}

/// The call with this ioctl(2) number.
pub fn by_number(number: u32) -> Option<&'static Call> {
    CALLS.iter().find(|call| call.number == number)
}

/// The call of this name.
pub fn by_name(name: &str) -> Option<&'static Call> {
    CALLS.iter().find(|call| call.name == name)
}

/// A value in an argument; 0 if the argument is too short.
fn value(argument: &[u8], at: usize, width: usize) -> u64 {
    let bytes = argument.get(at..at + width).unwrap_or_default();
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn put(argument: &mut [u8], at: usize, width: usize, value: u64) {
    if let Some(place) = argument.get_mut(at..at + width) {
        place.copy_from_slice(&value.to_le_bytes()[..width]);
    }
}

impl Call {
    /// A field of the argument; for an array, its first value.
    pub fn get(&self, argument: &[u8], name: &str) -> u64 {
        self.list(argument, name).first().copied().unwrap_or_default()
    }

    /// The values of a field.
    pub fn list(&self, argument: &[u8], name: &str) -> Vec<u64> {
        let field = self.asks.iter().chain(self.answers).find(|field| field.name == name);
        field.map_or_else(Vec::new, |field| {
            (0..field.count).map(|n| value(argument, field.at + n * field.width, field.width)).collect()
        })
    }

    /// A field of a command.
    pub fn of_command(&self, argument: &[u8], command: usize, name: &str) -> u64 {
        let Some((from, bytes, fields)) = self.commands else { return 0 };
        let field = fields.iter().find(|field| field.name == name);
        field.map_or(0, |field| value(argument, from + command * bytes + field.at, field.width))
    }

    /// The number of commands in the argument; 0 if the kernel would reject it.
    pub fn count(&self, argument: &[u8]) -> usize {
        let count = self.get(argument, "cmd_count");
        if count > MAX_COMMANDS { 0 } else { count as usize }
    }

    /// An argument with these fields; all others are 0.
    pub fn argument(&self, values: &[(&str, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; self.size];
        for (name, value) in values {
            if let Some(field) = self.asks.iter().find(|field| field.name == *name) {
                put(&mut bytes, field.at, field.width, *value);
            }
        }
        bytes
    }

    /// An argument with these commands, and these fields before them. It contains their count
    /// unless `values` sets it.
    pub fn with_commands(&self, values: &[(&str, u64)], commands: &[&[(&str, u64)]]) -> Vec<u8> {
        let mut all = vec![("cmd_count", commands.len() as u64)];
        all.extend(values);
        let mut bytes = self.argument(&all);
        let Some((from, size, fields)) = self.commands else { return bytes };
        bytes.resize(from + size * commands.len().max(1), 0);
        for (number, command) in commands.iter().enumerate() {
            for (name, value) in *command {
                if let Some(field) = fields.iter().find(|field| field.name == *name) {
                    put(&mut bytes, from + number * size + field.at, field.width, *value);
                }
            }
        }
        bytes
    }

    /// Describes a caller's request in words.
    fn describe(&self, argument: &[u8]) -> String {
        let mut text = self.name.to_owned();
        for field in self.asks {
            text.push_str(&format!(" {}={}", field.name, value(argument, field.at, field.width)));
        }
        let Some((.., fields)) = self.commands else { return text };
        for command in 0..self.count(argument).min(2) {
            text.push_str(" [");
            let shown =
                fields.iter().map(|field| (field.name, self.of_command(argument, command, field.name)));
            let shown =
                shown.filter(|(_, value)| *value != 0).map(|(name, value)| format!("{name}={value:#x}"));
            text.push_str(&shown.collect::<Vec<_>>().join(" "));
            text.push(']');
        }
        if self.count(argument) > 2 {
            text.push_str(" ...");
        }
        text
    }
}

/// Describes a call's request in words.
pub fn describe(number: u32, argument: &[u8]) -> String {
    by_number(number).map_or_else(|| "unknown".to_owned(), |call| call.describe(argument))
}

/// Returns whether a name in the log of writes is a register of Speed Select.
pub fn is_register(name: &str) -> bool {
    ["tpmi.", "registers.", "mailbox.0x"].iter().any(|begin| name.starts_with(begin))
        || matches!(name, "0xb0" | "0xb1" | "0x1ad" | "0x1ae" | "0x1af" | "0x64b")
}

/// The fields in which two replies to a call differ: name, old and new value.
pub fn differing(call: &Call, old: &[u8], new: &[u8]) -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    let show = |list: &[u64]| list.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
    for field in call.asks.iter().chain(call.answers) {
        let (old, new) = (call.list(old, field.name), call.list(new, field.name));
        if old != new {
            all.push((field.name.to_owned(), show(&old), show(&new)));
        }
    }
    for field in call.commands.iter().flat_map(|(.., fields)| fields.iter()) {
        let list =
            |bytes| (0..call.count(bytes)).map(|n| call.of_command(bytes, n, field.name)).collect::<Vec<_>>();
        let (old, new) = (list(old), list(new));
        if old != new {
            all.push((field.name.to_owned(), show(&old), show(&new)));
        }
    }
    all
}

/// A path of the observed state without its numbers, and the first field in which two answers
/// differ.
pub fn differing_state(path: &str, old: &str, new: &str) -> Option<(String, String, String)> {
    let name = path.strip_prefix("isst/")?.rsplit('/').next()?;
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let call = by_name(name.split('.').next()?)?;
    let (old, new) = (old.split_once(' ')?, new.split_once(' ')?);
    if old.0 != new.0 {
        return Some((name.to_owned(), answer(old.0), answer(new.0)));
    }
    let (field, old, new) = differing(call, &bytes(old.1)?, &bytes(new.1)?).into_iter().next()?;
    Some((format!("{name}.{field}"), old, new))
}

/// A call without its values: `CLOS_PARAM.set`, `MBOX_COMMAND.7f08`.
pub fn kind(number: u32, argument: &[u8]) -> String {
    let Some(call) = by_number(number) else { return format!("{number:#x}") };
    match call.nr {
        nr::MBOX_COMMAND => {
            let of = |name| call.of_command(argument, 0, name);
            format!("{}.{:02x}{:02x}", call.name, of("command"), of("sub_command"))
        }
        nr::IO_CMD | nr::MSR_COMMAND if call.of_command(argument, 0, "read_write") != 0 => {
            format!("{}.set", call.name)
        }
        _ if call.get(argument, "get_set") != 0 => format!("{}.set", call.name),
        _ => call.name.to_owned(),
    }
}

/// A shell command that makes calls in order.
pub fn command(calls: &[(u32, Vec<u8>)]) -> String {
    let words = calls.iter().map(|(number, argument)| format!(" {number:#x} {}", hex(argument)));
    format!("{PROGRAM} {DEVICE}{}", words.collect::<String>())
}

/// A call with its values as coarse as a fuzzer needs to detect something new.
pub fn coarse(number: u32, argument: &[u8]) -> String {
    let mut text = kind(number, argument);
    let Some(call) = by_number(number) else { return text };
    let mut add = |name: &str, value: u64| {
        let place = match value {
            0..8 => value.to_string(),
            8..64 => "low".to_owned(),
            64..256 => "middle".to_owned(),
            _ => "high".to_owned(),
        };
        text.push_str(&format!(" {name}={place}"));
    };
    for field in call.asks {
        add(field.name, value(argument, field.at, field.width));
    }
    if let Some((.., fields)) = call.commands {
        for field in fields {
            add(field.name, call.of_command(argument, 0, field.name));
        }
    }
    text
}

/// Formats bytes for the program.
pub fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".to_owned();
    }
    flyball_text::hex(bytes)
}

/// Parses bytes in the program's format.
pub fn bytes(hex: &str) -> Option<Vec<u8>> {
    if matches!(hex, "" | "-") {
        return Some(Vec::new());
    }
    if hex.len() > 8192 { None } else { flyball_text::unhex(hex) }
}

/// Converts the program's 64-bit result of ioctl(2) to `ok` or an errno's name.
pub fn answer(returned: &str) -> String {
    const NAMES: &[(i64, &str)] = &[
        (1, "EPERM"),
        (2, "ENOENT"),
        (4, "EINTR"),
        (5, "EIO"),
        (6, "ENXIO"),
        (11, "EAGAIN"),
        (12, "ENOMEM"),
        (13, "EACCES"),
        (14, "EFAULT"),
        (16, "EBUSY"),
        (19, "ENODEV"),
        (22, "EINVAL"),
        (25, "ENOTTY"),
        (34, "ERANGE"),
        (95, "EOPNOTSUPP"),
        (110, "ETIMEDOUT"),
    ];
    let Ok(returned) = u64::from_str_radix(returned, 16) else { return returned.to_owned() };
    match returned as i64 {
        0.. => "ok".to_owned(),
        errno => NAMES
            .iter()
            .find(|(number, _)| *number == -errno)
            .map_or_else(|| format!("errno-{}", errno.unsigned_abs()), |(_, name)| (*name).to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_header_has_them() {
        let call = by_nr(nr::CLOS_PARAM);
        let bytes = call.argument(&[("get_set", 1), ("clos", 3), ("max_freq_mhz", 2500)]);
        assert_eq!(bytes, [1, 0, 0, 3, 0, 0, 0xc4, 9, 0, 0]);
        assert_eq!(call.get(&bytes, "max_freq_mhz"), 2500);
        let call = by_nr(nr::CLOS_ASSOC);
        let bytes = call.with_commands(&[("punit_cpu_map", 1)], &[&[], &[("logical_cpu", 5), ("clos", 2)]]);
        assert_eq!(bytes, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 2, 0]);
        assert_eq!((call.count(&bytes), call.of_command(&bytes, 1, "clos")), (2, 2));
        assert_eq!(call.count(&call.with_commands(&[("cmd_count", 65)], &[])), 0);
        for call in CALLS {
            let fields = call.asks.iter().chain(call.answers);
            assert!(
                fields.clone().all(|field| field.at + field.width * field.count <= call.size),
                "{}",
                call.name
            );
            assert_eq!((call.number & 0xff, by_number(call.number)), (call.nr, Some(call)));
        }
    }

    #[test]
    fn any_text_is_read() {
        assert_eq!(bytes("00ff"), Some(vec![0, 255]));
        for bad in ["0", "zz", "é1", "0x"] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
        assert_eq!(answer("ffffffffffffffe7"), "ENOTTY");
        assert_eq!(answer("0000000000000003"), "ok");
        assert_eq!(answer("fffffffffffffc18"), "errno-1000");
        assert_eq!(answer("killed"), "killed");
        for (number, argument) in [(0xc008_fe08, vec![255; 9]), (1, Vec::new()), (0xc008_fe03, vec![40])] {
            assert!(!describe(number, &argument).is_empty());
        }
    }
}
