//! A subset of ACPI's machine language (ACPI 6.5, chapter 20) that describes processors: names,
//! packages, integers, buffers, register descriptors, devices and methods.

/// A piece of AML.
pub(crate) type Aml = Vec<u8>;

/// Prefixes `body` with its `PkgLength`, which includes itself (20.2.4).
fn with_length(body: &[u8]) -> Aml {
    let mut out = Vec::with_capacity(body.len() + 4);
    let bytes = match body.len() {
        0..=62 => 1,
        63..=0xffd => 2,
        0xffe..=0xf_fffc => 3,
        _ => 4,
    };
    // The length includes its own bytes, so the limits above are the encoding's minus that size.
    let length = body.len() + bytes;
    assert!(length < 1 << 28, "an AML package holds less than 256 MiB");
    // A single byte has six bits. Otherwise the first byte has the number of the others and four
    // bits, and each other has eight.
    if bytes == 1 {
        out.push(length as u8);
    } else {
        out.push(((bytes - 1) << 6) as u8 | (length & 0xf) as u8);
        out.extend((0..bytes - 1).map(|n| (length >> (4 + 8 * n)) as u8));
    }
    out.extend_from_slice(body);
    out
}

/// A path: `\` for the root, segments by dots, each filled up to four characters with `_`.
pub(crate) fn path(text: &str) -> Aml {
    let (mut out, rest) = match text.strip_prefix('\\') {
        Some(rest) => (vec![b'\\'], rest),
        None => (Vec::new(), text),
    };
    let segments: Vec<&str> = rest.split('.').filter(|segment| !segment.is_empty()).collect();
    // DualNamePrefix and MultiNamePrefix (20.2.2).
    match segments.len() {
        0 => out.push(0),
        1 => {}
        // Two segments have a special prefix; more are preceded by their number.
        2 => out.push(0x2e),
        count => out.extend_from_slice(&[0x2f, count as u8]),
    }
    for segment in segments {
        assert!(segment.len() <= 4, "'{segment}' is longer than an ACPI name");
        out.extend(segment.bytes().chain(std::iter::repeat(b'_')).take(4));
    }
    out
}

/// An integer in its shortest form.
pub(crate) fn int(value: u64) -> Aml {
    match value {
        // ZeroOp, OneOp, then BytePrefix to QWordPrefix (20.2.3).
        0 => vec![0x00],
        1 => vec![0x01],
        2..=0xff => vec![0x0a, value as u8],
        0x100..=0xffff => [&[0x0b][..], &(value as u16).to_le_bytes()].concat(),
        0x1_0000..=0xffff_ffff => [&[0x0c][..], &(value as u32).to_le_bytes()].concat(),
        _ => [&[0x0e][..], &value.to_le_bytes()].concat(),
    }
}

/// `Name (path, value)`.
pub(crate) fn name(at: &str, value: &[u8]) -> Aml {
    [&[0x08][..], &path(at), value].concat()
}

/// `Package () { elements }`.
pub(crate) fn package(elements: &[Aml]) -> Aml {
    let count = u8::try_from(elements.len()).expect("a package holds at most 255 elements");
    let body = [&[count][..], &elements.concat()].concat();
    [&[0x12][..], &with_length(&body)].concat()
}

/// `Buffer () { bytes }`.
pub(crate) fn buffer(bytes: &[u8]) -> Aml {
    let body = [int(bytes.len() as u64), bytes.to_vec()].concat();
    [&[0x11][..], &with_length(&body)].concat()
}

/// `Scope (path) { terms }`.
pub(crate) fn scope(at: &str, terms: &[Aml]) -> Aml {
    let body = [path(at), terms.concat()].concat();
    [&[0x10][..], &with_length(&body)].concat()
}

/// `Method (path, arguments, Serialized) { terms }`.
pub(crate) fn method(at: &str, arguments: u8, terms: &[Aml]) -> Aml {
    // Bit 3: serialized (20.2.5.2), because the method makes a field by name.
    let body = [path(at), vec![arguments & 7 | 8], terms.concat()].concat();
    [&[0x14][..], &with_length(&body)].concat()
}

/// `Device (path) { terms }`.
pub(crate) fn device(at: &str, terms: &[Aml]) -> Aml {
    let body = [path(at), terms.concat()].concat();
    [&[0x5b, 0x82][..], &with_length(&body)].concat()
}

/// A string.
pub(crate) fn string(text: &str) -> Aml {
    [&[0x0d][..], text.as_bytes(), &[0]].concat()
}

/// `Store (value, target)`.
pub(crate) fn store(value: &[u8], target: &[u8]) -> Aml {
    [&[0x70][..], value, target].concat()
}

/// `Notify (object, value)`.
pub(crate) fn notify(object: &str, value: u8) -> Aml {
    [&[0x86][..], &path(object), &int(u64::from(value))].concat()
}

/// `ArgN`.
pub(crate) fn arg(index: u8) -> Aml {
    vec![0x68 + index]
}

/// `If (condition) { terms }`.
pub(crate) fn if_true(condition: &[u8], terms: &[Aml]) -> Aml {
    let body = [condition.to_vec(), terms.concat()].concat();
    [&[0xa0][..], &with_length(&body)].concat()
}

/// `LEqual (a, b)`.
pub(crate) fn equal(a: &[u8], b: &[u8]) -> Aml {
    [&[0x93][..], a, b].concat()
}

/// `Return (value)`.
pub(crate) fn give_back(value: &[u8]) -> Aml {
    [&[0xa4][..], value].concat()
}

/// `CreateDWordField (source, offset, field)`.
pub(crate) fn dword_field(source: &[u8], offset: u64, field: &str) -> Aml {
    [&[0x8a][..], source, &int(offset), &path(field)].concat()
}

pub(crate) fn or(a: &[u8], b: &[u8], target: &[u8]) -> Aml {
    [&[0x7d][..], a, b, target].concat()
}

/// A UUID as ACPI stores it in a buffer: the first three groups little-endian.
pub(crate) fn uuid(text: &str) -> Aml {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let bytes: Vec<u8> = digits
        .chunks(2)
        .filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    assert_eq!(bytes.len(), 16, "'{text}' is not a UUID");
    // The text has the first three groups as numbers; in the buffer their lowest byte comes first
    // (ToUUID).
    const ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    buffer(&ORDER.map(|at| bytes[at]))
}

/// The address space of a register (ACPI 6.5, table 5.1 and 6.4.3.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// Physical memory.
    Memory = 0x00,
    /// I/O ports.
    Io = 0x01,
    /// The platform communication channel; the access size is the subspace.
    Pcc = 0x0a,
    /// Functional fixed hardware: a model-specific register on x86.
    FixedHardware = 0x7f,
}

/// A register: its address, and its bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register {
    /// The address space.
    pub space: Space,
    /// Its width in bits.
    pub bits: u8,
    /// Its lowest bit.
    pub offset: u8,
    /// 1 byte, 2 word, 3 double word, 4 quad word; the subspace for [`Space::Pcc`].
    pub access: u8,
    pub address: u64,
}

impl Register {
    /// A missing register: all fields are zero.
    pub const NONE: Register = Register { space: Space::Memory, bits: 0, offset: 0, access: 0, address: 0 };

    /// `ResourceTemplate () { Register (...) }`.
    pub fn resource(self) -> Aml {
        // A generic register descriptor of 12 bytes, followed by an end tag, whose checksum 0 means
        // "not checked" (6.4.2.9).
        let mut bytes = vec![0x82, 0x0c, 0x00, self.space as u8, self.bits, self.offset, self.access];
        bytes.extend_from_slice(&self.address.to_le_bytes());
        bytes.extend_from_slice(&[0x79, 0x00]);
        buffer(&bytes)
    }
}

/// A table: the standard header and its checksum around `body`.
pub(crate) fn table(signature: [u8; 4], revision: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(36 + body.len()).expect("an ACPI table is smaller than 4 GiB");
    let mut out = Vec::with_capacity(length as usize);
    out.extend_from_slice(&signature);
    out.extend_from_slice(&length.to_le_bytes());
    // The checksum stays 0 until the sum of all other bytes is known.
    out.extend_from_slice(&[revision, 0]);
    out.extend_from_slice(b"FLYBALSILICON ");
    out.extend_from_slice(&1u32.to_le_bytes());
    out.extend_from_slice(b"FLYB");
    out.extend_from_slice(&1u32.to_le_bytes());
    out.extend_from_slice(body);
    out[9] = out.iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_follow_the_specification() {
        assert_eq!(with_length(&[0; 62])[..1], [63]);
        assert_eq!(with_length(&[0; 63])[..2], [0x41, 0x04]);
        assert_eq!(with_length(&[0; 0xffd])[..2], [0x4f, 0xff]);
        assert_eq!(with_length(&[0; 0xffe])[..3], [0x81, 0x00, 0x01]);
    }

    #[test]
    fn names_and_integers() {
        assert_eq!(path("\\_SB.CPUS.C00A"), b"\\\x2f\x03_SB_CPUSC00A");
        assert_eq!(path("_PSS"), b"_PSS");
        assert_eq!(int(300), [0x0b, 0x2c, 0x01]);
        assert_eq!(int(0x1_0000_0000), [0x0e, 0, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(uuid("0811b06e-4a27-44f9-8d60-3cbbc22e7b48")[..6], [0x11, 0x13, 0x0a, 16, 0x6e, 0xb0]);
    }

    #[test]
    fn a_table_sums_to_zero() {
        let table = table(*b"SSDT", 2, &scope("\\_SB", &[name("A", &package(&[int(1), int(2)]))]));
        assert_eq!(table.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)), 0);
        assert_eq!(table.len(), u32::from_le_bytes([table[4], table[5], table[6], table[7]]) as usize);
    }
}
