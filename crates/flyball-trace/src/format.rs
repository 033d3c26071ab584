//! `events/*/format` files: the only source of record layouts.
//!
//! Kernels change layouts without notice (between 6.12 and 6.18 `amd_pstate_perf` went from
//! `unsigned long` to `u8` performance levels and lost a field), so this library has no hard-coded
//! offsets.

use crate::error::Malformed;

/// How to read a field's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// One integer of the field's size.
    Integer,
    /// Bytes of text, up to the first NUL.
    Text,
    /// Adjacent integers of this many bytes each.
    Array(u32),
    /// A word with the offset (low half, from the record's start) and length (high half) of the
    /// bytes.
    Located {
        /// True if the bytes are text.
        text: bool,
    },
    /// Like [`Shape::Located`], but the offset counts from the end of the word.
    Relative {
        /// True if the bytes are text.
        text: bool,
    },
}

/// One field of a record.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Field {
    pub name: String,
    /// The type as the kernel spells it, without the name.
    pub declared: String,
    /// Offset from the record's start.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
    /// True if integers are signed.
    pub signed: bool,
    /// How to read the field.
    pub shape: Shape,
}

impl Field {
    /// The field's integer in `record`, sign-extended; `None` if the field is not an integer or the
    /// record is too short.
    pub fn integer(&self, record: &[u8]) -> Option<i64> {
        if self.shape == Shape::Integer { integer(record, self.offset, self.size, self.signed) } else { None }
    }

    /// The field's bytes in `record`: the integer's own, or those that a location word refers to.
    pub fn bytes<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        let (start, length) = match self.shape {
            Shape::Located { .. } | Shape::Relative { .. } => {
                // __data_loc and __rel_loc (include/trace/stages/stage1_struct_define.h): offset in
                // the low half, length in the high half.
                let word = integer(record, self.offset, 4, false)? as u32;
                let base = match self.shape {
                    // __rel_loc counts from the end of its own word, so that user space can write
                    // records without knowing the size of the common fields.
                    Shape::Relative { .. } => self.offset.checked_add(self.size)?,
                    _ => 0,
                };
                (base.checked_add((word & 0xffff) as usize)?, (word >> 16) as usize)
            }
            // A flexible array (`buf[]`, size 0) extends to the end of the record.
            _ if self.size == 0 => (self.offset, record.len().checked_sub(self.offset)?),
            _ => (self.offset, self.size),
        };
        record.get(start..start.checked_add(length)?)
    }

    /// The field's text in `record`, up to the first NUL.
    pub fn text<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        let text = matches!(
            self.shape,
            Shape::Text | Shape::Located { text: true } | Shape::Relative { text: true }
        );
        let bytes = if text { self.bytes(record)? } else { return None };
        Some(&bytes[..memchr::memchr(0, bytes).unwrap_or(bytes.len())])
    }
}

/// A little-endian integer of 1, 2, 4 or 8 bytes.
pub(crate) fn integer(bytes: &[u8], offset: usize, size: usize, signed: bool) -> Option<i64> {
    let bytes = bytes.get(offset..offset.checked_add(size)?)?;
    Some(match (bytes, signed) {
        ([a], false) => i64::from(*a),
        ([a], true) => i64::from(a.cast_signed()),
        ([a, b], false) => i64::from(u16::from_le_bytes([*a, *b])),
        ([a, b], true) => i64::from(i16::from_le_bytes([*a, *b])),
        ([a, b, c, d], false) => i64::from(u32::from_le_bytes([*a, *b, *c, *d])),
        ([a, b, c, d], true) => i64::from(i32::from_le_bytes([*a, *b, *c, *d])),
        // Eight bytes keep their bits; callers that know they are unsigned cast back.
        ([_, _, _, _, _, _, _, _], _) => u64::from_le_bytes(bytes.try_into().ok()?).cast_signed(),
        _ => return None,
    })
}

/// One event: its number in the ring buffer and the layout of its records.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct EventFormat {
    /// The group: `power` in `events/power/cpu_idle`. Empty if the file's location is unknown.
    pub system: String,
    pub name: String,
    /// `common_type` of its records. Differs between boots.
    pub id: u16,
    /// All fields, the common ones first.
    pub fields: Vec<Field>,
    /// Number of fields that all events have.
    pub common: usize,
    /// The text after `print fmt:`.
    pub print: String,
}

impl EventFormat {
    /// Parses one format file.
    ///
    /// # Errors
    /// A name, number or field is missing or unreadable. The error has its offset in `bytes`.
    pub fn parse(system: &str, bytes: &[u8]) -> Result<EventFormat, Malformed> {
        let mut name = None;
        let mut id = None;
        let mut fields = Vec::new();
        let mut common = None;
        let mut print = String::new();
        let mut offset = 0u64;
        for line in bytes.split(|byte| *byte == b'\n') {
            let text = String::from_utf8_lossy(line);
            let text = text.trim_matches(['\t', ' ', '\r', '\0']);
            if let Some(rest) = text.strip_prefix("name:") {
                name = Some(rest.trim().to_owned());
            } else if let Some(rest) = text.strip_prefix("ID:") {
                let number = rest.trim();
                id = Some(number.parse().map_err(|_| {
                    Malformed::new(offset, format!("'{number}' is not an event number from 0 to 65535"))
                })?);
            } else if text.starts_with("field:") || text.starts_with("field special:") {
                fields.push(parse_field(text).map_err(|what| Malformed::new(offset, what))?);
            // f_show() in kernel/trace/trace_events.c prints an empty line after the common fields.
            } else if text.is_empty() && !fields.is_empty() && common.is_none() {
                common = Some(fields.len());
            } else if let Some(rest) = text.strip_prefix("print fmt:") {
                rest.trim().clone_into(&mut print);
            }
            offset += line.len() as u64 + 1;
        }
        let name = name.filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| Malformed::new(0, "no event name in the format file"))?;
        let id = id.ok_or_else(|| Malformed::new(0, format!("no ID in the format of {name}")))?;
        // All kernels name the common fields like this (trace_define_common_fields() in
        // kernel/trace/trace_events.c).
        let prefixed = fields.iter().take_while(|field| field.name.starts_with("common_")).count();
        // Without an empty line, and if a user's uprobe has no fields, use the names.
        let common = common.filter(|count| *count <= prefixed || prefixed == 0).unwrap_or(prefixed);
        Ok(EventFormat { system: system.to_owned(), name, id, fields, common, print })
    }

    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Size up to the end of the last field; records may be longer (alignment, located bytes).
    pub fn size(&self) -> usize {
        self.fields.iter().map(|field| field.offset.saturating_add(field.size)).max().unwrap_or(0)
    }
}

/// Parses `field:unsigned char common_flags; offset:2; size:1; signed:0;`
fn parse_field(line: &str) -> Result<Field, String> {
    let body = line.split_once(':').map_or("", |(_, rest)| rest);
    let mut parts = body.split(';');
    let declaration = parts.next().unwrap_or_default().trim();
    let (mut offset, mut size, mut signed) = (None, None, false);
    for part in parts {
        let part = part.trim();
        if let Some(number) = part.strip_prefix("offset:") {
            offset = number.trim().parse::<u32>().ok();
        } else if let Some(number) = part.strip_prefix("size:") {
            size = number.trim().parse::<u32>().ok();
        } else if let Some(number) = part.strip_prefix("signed:") {
            signed = number.trim() == "1";
        }
    }
    let (Some(offset), Some(size)) = (offset, size) else {
        return Err(format!("field '{declaration}' has no offset or no size"));
    };
    // The name is the last word outside brackets; brackets after it make it an array.
    let outside = declaration.find('[').filter(|at| declaration[*at..].ends_with(']'));
    // `char name[16]` has a length after the name; `__data_loc char[] name` has the brackets in the
    // type.
    let head = outside.map_or(declaration, |at| declaration[..at].trim_end());
    let (mut declared, name) = match head.rfind([' ', '\t', '*']) {
        Some(at) => (head[..=at].trim_end().to_owned(), &head[at + 1..]),
        None => return Err(format!("field '{declaration}' has no type or no name")),
    };
    if name.is_empty() {
        return Err(format!("field '{declaration}' has no name"));
    }
    if let Some(at) = outside {
        declared.push_str(&declaration[at..]);
    }
    let shape = shape_of(&declared, size);
    Ok(Field { name: name.to_owned(), declared, offset: offset as usize, size: size as usize, signed, shape })
}

fn shape_of(declared: &str, size: u32) -> Shape {
    let text = is_text(declared);
    if declared.starts_with("__data_loc") {
        return Shape::Located { text };
    }
    if declared.starts_with("__rel_loc") {
        return Shape::Relative { text };
    }
    match declared.split_once('[') {
        None if matches!(size, 1 | 2 | 4 | 8) => Shape::Integer,
        // A struct by value.
        None => Shape::Array(1),
        Some((_, _)) if text => Shape::Text,
        Some((element, count)) => {
            let element = element.trim();
            // The length may also be a macro's name (`TASK_COMM_LEN`), or empty for a flexible
            // array.
            let count = count.trim_end_matches(']').trim().parse::<u32>().ok().filter(|count| *count > 0);
            let even = count.filter(|count| size.is_multiple_of(*count)).map(|count| size / count);
            Shape::Array(even.filter(|size| *size > 0).unwrap_or_else(|| element_size(element)))
        }
    }
}

/// Returns whether the elements are characters: `char` or `signed char`, but not `unsigned char`,
/// which holds numbers.
fn is_text(declared: &str) -> bool {
    let element = declared.split('[').next().unwrap_or_default();
    let words: Vec<&str> = element.split_whitespace().filter(|word| !word.starts_with("__")).collect();
    words.last() == Some(&"char") && !words.contains(&"unsigned")
}

fn element_size(element: &str) -> u32 {
    match element.split_whitespace().last().unwrap_or_default() {
        "u8" | "s8" | "char" | "bool" | "__u8" | "__s8" | "uint8_t" => 1,
        "u16" | "s16" | "short" | "__u16" | "__s16" | "uint16_t" => 2,
        "long" | "u64" | "s64" | "__u64" | "__s64" | "size_t" | "uint64_t" => 8,
        // int, unsigned, enums, pid_t and the like.
        _ => 4,
    }
}

/// The layout of a ring-buffer page's header, from `events/header_page`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct PageHeader {
    /// Bytes of the commit word: the kernel's `long`, 4 or 8.
    pub commit_size: usize,
    /// Offset of the records.
    pub data: usize,
}

impl Default for PageHeader {
    /// The layout on a 64-bit kernel.
    fn default() -> PageHeader {
        PageHeader { commit_size: 8, data: 16 }
    }
}

impl PageHeader {
    /// Parses `events/header_page`.
    ///
    /// # Errors
    /// The fields `commit` and `data` are missing, or not where any kernel has them.
    pub fn parse(bytes: &[u8]) -> Result<PageHeader, Malformed> {
        let mut commit = None;
        let mut data = None;
        let mut offset = 0u64;
        for line in bytes.split(|byte| *byte == b'\n') {
            let text = String::from_utf8_lossy(line);
            let text = text.trim();
            if text.starts_with("field:") {
                let field = parse_field(text).map_err(|what| Malformed::new(offset, what))?;
                match field.name.as_str() {
                    "commit" => commit = Some(field),
                    "data" => data = Some(field),
                    _ => {}
                }
            }
            offset += line.len() as u64 + 1;
        }
        let (Some(commit), Some(data)) = (commit, data) else {
            return Err(Malformed::new(0, "no commit or no data field in the page header's description"));
        };
        // struct buffer_data_page in kernel/trace/ring_buffer.c: u64 time_stamp, local_t commit,
        // data.
        if commit.offset != 8 || !matches!(commit.size, 4 | 8) || data.offset != 8 + commit.size {
            return Err(Malformed::new(0, "a page header as no known kernel has it"));
        }
        Ok(PageHeader { commit_size: commit.size, data: data.offset })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fmt::Write;

    use super::*;

    const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";

    /// A format file with these fields, each `(type and name, offset, size)`.
    pub(crate) fn format_text(name: &str, id: u16, fields: &[(&str, usize, usize)], print: &str) -> String {
        let mut text = format!("name: {name}\nID: {id}\nformat:\n{COMMON}");
        for (declaration, offset, size) in fields {
            writeln!(text, "\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:0;").unwrap();
        }
        writeln!(text, "\nprint fmt: {print}").unwrap();
        text
    }

    /// The fields of `amd_pstate_perf` in kernels from 6.15 on.
    pub(crate) const AMD_PERF: [(&str, usize, usize); 9] = [
        ("u8 min_perf", 8, 1),
        ("u8 target_perf", 9, 1),
        ("u8 capacity", 10, 1),
        ("unsigned long long freq", 16, 8),
        ("unsigned long long mperf", 24, 8),
        ("unsigned long long aperf", 32, 8),
        ("unsigned long long tsc", 40, 8),
        ("unsigned int cpu_id", 48, 4),
        ("bool fast_switch", 52, 1),
    ];

    pub(crate) fn amd_perf_new() -> EventFormat {
        let text =
            format_text("amd_pstate_perf", 2203, &AMD_PERF, "\"amd_min_perf=%hhu\", (u8)REC->min_perf");
        EventFormat::parse("amd_cpu", text.as_bytes()).unwrap()
    }

    #[test]
    fn fields_have_names_types_and_shapes() {
        let text = format_text(
            "mixed",
            300,
            &[
                ("char prev_comm[16]", 8, 16),
                ("__data_loc char[] name", 24, 4),
                ("__rel_loc u32[] cells", 28, 4),
                ("unsigned char raw[6]", 32, 6),
                ("unsigned long args[6]", 40, 48),
                ("const char * ip", 88, 8),
                ("enum thermal_trip_type trip_type", 96, 4),
                ("char buf[]", 100, 0),
            ],
            "\"x\"",
        );
        let format = EventFormat::parse("test", text.as_bytes()).unwrap();
        assert_eq!((format.name.as_str(), format.id, format.common), ("mixed", 300, 4));
        let shapes: Vec<(&str, &str, Shape)> = format.fields[4..]
            .iter()
            .map(|field| (field.name.as_str(), field.declared.as_str(), field.shape))
            .collect();
        assert_eq!(
            shapes,
            [
                ("prev_comm", "char[16]", Shape::Text),
                ("name", "__data_loc char[]", Shape::Located { text: true }),
                ("cells", "__rel_loc u32[]", Shape::Relative { text: false }),
                ("raw", "unsigned char[6]", Shape::Array(1)),
                ("args", "unsigned long[6]", Shape::Array(8)),
                ("ip", "const char *", Shape::Integer),
                ("trip_type", "enum thermal_trip_type", Shape::Integer),
                ("buf", "char[]", Shape::Text),
            ]
        );
    }

    #[test]
    fn located_bytes_are_found_and_bounded() {
        let text = format_text(
            "located",
            1,
            &[("__data_loc char[] a", 8, 4), ("__rel_loc char[] b", 12, 4)],
            "\"\"",
        );
        let format = EventFormat::parse("", text.as_bytes()).unwrap();
        let mut record = vec![0; 16];
        record[8..12].copy_from_slice(&(16u32 | (6 << 16)).to_le_bytes());
        record[12..16].copy_from_slice(&(6u32 | (3 << 16)).to_le_bytes());
        record.extend_from_slice(b"hello\0ab\0");
        assert_eq!(format.field("a").unwrap().text(&record), Some(&b"hello"[..]));
        assert_eq!(format.field("b").unwrap().text(&record), Some(&b"ab"[..]));
        record.truncate(20);
        assert_eq!(format.field("a").unwrap().text(&record), None);
    }

    #[test]
    fn damaged_formats_name_the_place() {
        let error = EventFormat::parse("", b"name: x\nID: 70000\n").unwrap_err();
        assert_eq!((error.offset, error.what.contains("70000")), (8, true));
        let error =
            EventFormat::parse("", b"name: x\nID: 7\nformat:\n\tfield:int y;\tsize:4;\n").unwrap_err();
        assert_eq!(error.offset, 22);
        assert!(EventFormat::parse("", b"").is_err());
        assert!(EventFormat::parse("", b"name: x\n").is_err());
    }

    #[test]
    fn page_headers_of_both_word_sizes() {
        let text = |size: usize| {
            format!(
                "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
                 \tfield: local_t commit;\toffset:8;\tsize:{size};\tsigned:1;\n\
                 \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
                 \tfield: char data;\toffset:{};\tsize:4080;\tsigned:1;\n",
                8 + size
            )
        };
        assert_eq!(PageHeader::parse(text(8).as_bytes()), Ok(PageHeader::default()));
        assert_eq!(PageHeader::parse(text(4).as_bytes()), Ok(PageHeader { commit_size: 4, data: 12 }));
        assert!(PageHeader::parse(text(2).as_bytes()).is_err());
        assert!(PageHeader::parse(b"").is_err());
    }
}
