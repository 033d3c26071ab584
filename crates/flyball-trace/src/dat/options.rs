//! Options: the list after version 6's fixed parts, and the lists that link version 7's sections.

use crate::{clock::Clock, error::TraceError, machine::Machine};

use super::{
    buffer::{Buffer, CpuData},
    id,
    source::Cursor,
};

/// Contents of a file's options.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) clock: Option<Clock>,
    pub(super) uname: Option<String>,
    pub(super) writer: Option<String>,
    pub(super) stats: Vec<String>,
    pub(super) machine: Option<Machine>,
    pub(super) cpus: Option<u32>,
    /// Sections of version 7: number and offset.
    pub(super) sections: Vec<(u16, u64)>,
    pub(super) buffers: Vec<Buffer>,
    /// Other buffers than the main one in version 6: name, and offset of the table of CPUs.
    pub(super) instances: Vec<(String, u64)>,
    /// Offset of the next list; 0 for none.
    pub(super) next: u64,
}

fn text(bytes: &[u8]) -> String {
    let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map(|bytes| u64::from_le_bytes(*bytes))
}

fn small(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map(|bytes| u32::from_le_bytes(*bytes))
}

impl Options {
    /// Reads one list up to its DONE, inclusive. `sections` is true for version 7, whose DONE has a
    /// size.
    pub(super) fn read(
        &mut self,
        cursor: &mut Cursor,
        sections: bool,
        compressed: bool,
    ) -> Result<(), TraceError> {
        self.next = 0;
        // Without DONE, a list in version 7 ends with its section.
        while !sections || cursor.left() > 0 {
            let number_of = cursor.u16("an option's number")?;
            // Version 6 ends its list with the number alone, version 7 with an option of eight
            // bytes.
            if number_of == id::DONE && !sections {
                return Ok(());
            }
            let size = cursor.u32("an option's size")?;
            let data = cursor.bytes(u64::from(size), "an option")?;
            match number_of {
                id::DONE => {
                    self.next = number(&data, 0).unwrap_or(0);
                    return Ok(());
                }
                // One option per CPU; the text names the CPU.
                id::CPUSTAT => self.stats.push(text(&data)),
                id::TRACECLOCK => self.clock = Some(Clock::chosen(&text(&data))),
                id::UNAME => self.uname = Some(text(&data)),
                id::VERSION => self.writer = Some(text(&data)),
                id::MACHINE => self.machine = Machine::parse(&data),
                id::CPUCOUNT => self.cpus = small(&data, 0),
                id::BUFFER if sections => {
                    let buffer = buffer(&data, compressed);
                    self.buffers
                        .push(buffer.ok_or_else(|| cursor.error("a buffer's description is cut off"))?);
                }
                // Version 6 has only offset and name (handle_options() in trace-input.c).
                id::BUFFER => {
                    let at = number(&data, 0);
                    let at = at.ok_or_else(|| cursor.error("a buffer's description is cut off"))?;
                    self.instances.push((text(&data[8..]), at));
                }
                id::HEADER_INFO..=id::CMDLINES if sections => {
                    let at = number(&data, 0);
                    self.sections
                        .push((number_of, at.ok_or_else(|| cursor.error("a section has no offset"))?));
                }
                // Skip options that later versions of trace-cmd add; each has its size.
                _ => {}
            }
        }
        Ok(())
    }
}

/// Parses offset, name, clock, page size, CPUs; for each CPU its number, offset and size.
fn buffer(data: &[u8], compressed: bool) -> Option<Buffer> {
    // Skip the offset of the buffer's section: the CPUs' offsets suffice.
    let mut at = 8;
    let mut next_text = || {
        let end = at + memchr::memchr(0, data.get(at..)?)?;
        let found = String::from_utf8_lossy(&data[at..end]).into_owned();
        at = end + 1;
        Some(found)
    };
    let (name, clock) = (next_text()?, next_text()?);
    let (page_size, count) = (small(data, at)?, small(data, at + 4)?);
    at += 8;
    let mut cpus = Vec::new();
    for _ in 0..count {
        // Do not allocate by `count`: the length of the description limits the number.
        cpus.push(CpuData {
            cpu: small(data, at)?,
            offset: number(data, at + 4)?,
            size: number(data, at + 12)?,
            compressed,
        });
        at += 20;
    }
    Some(Buffer { name, clock: Clock::chosen(&clock), page_size, cpus })
}
