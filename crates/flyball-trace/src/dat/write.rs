//! Writing trace.dat files, of version 6, which every trace-cmd and kernelshark opens.

use std::{
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    path::Path,
};

use crate::{clock::Clock, error::TraceError, machine::Machine};

use super::id::{self, MAGIC};

/// The content of a trace.dat file besides the pages; texts are as in tracefs.
#[derive(Debug, Clone, Default)]
pub struct Description {
    /// Bytes of a page or sub-buffer.
    pub page_size: u32,
    /// `events/header_page`.
    pub header_page: Vec<u8>,
    pub header_event: Vec<u8>,
    /// Format files of `events/ftrace`.
    pub ftrace_formats: Vec<Vec<u8>>,
    /// Groups, and the format files of their events.
    pub event_formats: Vec<(String, Vec<Vec<u8>>)>,
    /// `/proc/kallsyms`, or empty: only events that print addresses need it.
    pub kallsyms: Vec<u8>,
    /// `printk_formats`.
    pub printk: Vec<u8>,
    /// `saved_cmdlines`.
    pub cmdlines: Vec<u8>,
    /// `trace_clock`, with the chosen clock in brackets.
    pub clock: String,
    /// `uname`: system, host, release, machine.
    pub uname: String,
    /// The recording program and its version.
    pub writer: String,
    /// For each CPU `CPU: N` and its per_cpu/cpuN/stats.
    pub stats: Vec<String>,
    /// Number of the machine's CPUs; CPUs without pages are described as empty.
    pub cpus: u32,
    /// Facts about the machine.
    pub machine: Option<Machine>,
    /// A number that distinguishes this trace from others.
    pub trace_id: u64,
}

/// The pages of one CPU, in a separate file, from its start.
#[derive(Debug)]
pub struct CpuInput {
    pub cpu: u32,
    pub pages: File,
    /// Bytes of pages.
    pub size: u64,
}

/// Bytes that are assembled before they are written.
#[derive(Default)]
struct Part(Vec<u8>);

impl Part {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
        self.bytes(&[0]);
    }

    fn long_text(&mut self, bytes: &[u8]) {
        self.u64(bytes.len() as u64);
        self.bytes(bytes);
    }

    fn option(&mut self, number: u16, data: &[u8]) {
        self.u16(number);
        self.u32(data.len() as u32);
        self.bytes(data);
    }

    fn text_option(&mut self, number: u16, text: &str) {
        let mut data = text.as_bytes().to_vec();
        data.push(0);
        self.option(number, &data);
    }
}

impl Description {
    fn header_info(&self) -> Part {
        let mut part = Part::default();
        part.text("header_page");
        part.long_text(&self.header_page);
        part.text("header_event");
        part.long_text(&self.header_event);
        part
    }

    fn ftrace_part(&self) -> Part {
        let mut part = Part::default();
        part.u32(self.ftrace_formats.len() as u32);
        for format in &self.ftrace_formats {
            part.long_text(format);
        }
        part
    }

    fn events_part(&self) -> Part {
        let mut part = Part::default();
        part.u32(self.event_formats.len() as u32);
        for (system, formats) in &self.event_formats {
            part.text(system);
            part.u32(formats.len() as u32);
            for format in formats {
                part.long_text(format);
            }
        }
        part
    }

    fn short(bytes: &[u8]) -> Part {
        let mut part = Part::default();
        part.u32(bytes.len() as u32);
        part.bytes(bytes);
        part
    }

    fn cmdlines_part(&self) -> Part {
        let mut part = Part::default();
        part.long_text(&self.cmdlines);
        part
    }

    fn options(&self, part: &mut Part) {
        part.text_option(id::TRACECLOCK, &self.clock);
        part.text_option(id::UNAME, &self.uname);
        part.text_option(id::VERSION, &self.writer);
        part.option(id::TRACEID, &self.trace_id.to_le_bytes());
        for stats in &self.stats {
            part.text_option(id::CPUSTAT, stats);
        }
        if let Some(machine) = &self.machine {
            part.option(id::MACHINE, &machine.bytes());
        }
    }

    fn clock_name(&self) -> &str {
        let name =
            self.clock.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(name, _)| name);
        name.unwrap_or(self.clock.trim())
    }

    fn start(&self) -> Part {
        let mut part = Part::default();
        part.bytes(MAGIC);
        part.text("6");
        // Little-endian, and a 64-bit long: the only kernels with these drivers that trace-cmd is
        // built for.
        part.bytes(&[0, 8]);
        part.u32(self.page_size);
        part
    }
}

/// Writes a trace.dat file next to `path` and renames it, so that `path` is either the complete new
/// file or the old one.
///
/// # Errors
/// Fails like [`write`]; the error names the path.
pub fn save(path: &Path, about: &Description, cpus: &mut [CpuInput]) -> Result<(), TraceError> {
    let failed = |error| TraceError::io("write", path, error);
    let (mut file, replacement) = flyball_files::Replacement::create(path).map_err(failed)?;
    write(&mut file, about, cpus).map_err(failed)?;
    replacement.finish().map_err(failed)
}

/// Writes a whole trace.dat file to `out`, which must be empty.
///
/// # Errors
/// Returns the operating system's error from reading pages or writing.
pub fn write(out: &mut File, about: &Description, cpus: &mut [CpuInput]) -> io::Result<()> {
    let sizes: Vec<(u32, u64)> = cpus.iter().map(|cpu| (cpu.cpu, cpu.size)).collect();
    let head = Head::new(about, &sizes);
    out.write_all(&head.bytes)?;
    copy_pages(out, &head.places, head.end, cpus)
}

/// Everything in a file before its pages, and the offsets of the pages.
#[derive(Debug)]
pub struct Head {
    /// The first bytes of the file.
    pub bytes: Vec<u8>,
    /// Offset of each CPU's pages. If all sizes are multiples of the page size, each CPU starts
    /// where the previous one ends.
    pub places: Vec<u64>,
    /// The length of the file.
    pub end: u64,
}

impl Head {
    /// For CPUs with so many bytes of pages each.
    pub fn new(about: &Description, cpus: &[(u32, u64)]) -> Head {
        debug_assert!(Clock::chosen(&about.clock) != Clock::Ticks);
        let mut head = about.start();
        head.bytes(&about.header_info().0);
        head.bytes(&about.ftrace_part().0);
        head.bytes(&about.events_part().0);
        head.bytes(&Description::short(&about.kallsyms).0);
        head.bytes(&Description::short(&about.printk).0);
        head.bytes(&about.cmdlines_part().0);
        // All CPUs of the machine, not only the recorded ones: readers take a place in this table
        // for the CPU's number.
        head.u32(about.cpus);
        head.bytes(b"options  \0");
        about.options(&mut head);
        // Version 6 ends its options with the bare number.
        head.u16(id::DONE);
        head.bytes(b"flyrecord\0");
        // trace-cmd looks for the brackets that trace_clock puts around the chosen clock.
        let clock = format!("[{}]", about.clock_name());
        // Where the pages start depends on the table's own length: offset and size of eight bytes
        // for each CPU.
        let table = 16 * u64::from(about.cpus);
        let start = head.0.len() as u64 + table + 8 + clock.len() as u64;
        let (places, end) = places(start, about.page_size, cpus);
        let end = end.next_multiple_of(u64::from(about.page_size.max(1)));
        // CPUs without pages point at the file's end: readers map each CPU's place, and refuse one
        // outside the file.
        let mut described = vec![(end, 0); about.cpus as usize];
        for (place, (cpu, size)) in places.iter().zip(cpus) {
            if let Some(slot) = described.get_mut(*cpu as usize) {
                *slot = (*place, *size);
            }
        }
        for (place, size) in described {
            head.u64(place);
            head.u64(size);
        }
        head.long_text(clock.as_bytes());
        Head { bytes: head.0, places, end }
    }
}

/// Returns the offset of each CPU's pages, from `start` on, and their end.
fn places(start: u64, page_size: u32, cpus: &[(u32, u64)]) -> (Vec<u64>, u64) {
    let page = u64::from(page_size.max(1));
    let mut at = start;
    let places = cpus
        .iter()
        .map(|(_, size)| {
            // Readers use mmap(), which needs multiples of the page size.
            let place = at.next_multiple_of(page);
            at = place + size;
            place
        })
        .collect();
    (places, at)
}

/// Copies each CPU's pages to its offset, and extends the file to `end` even if the last CPUs have
/// no pages: readers require all offsets to be inside the file.
fn copy_pages(out: &mut File, places: &[u64], end: u64, cpus: &mut [CpuInput]) -> io::Result<()> {
    for (place, cpu) in places.iter().zip(cpus) {
        out.seek(SeekFrom::Start(*place))?;
        cpu.pages.seek(SeekFrom::Start(0))?;
        // Between files the kernel copies the data, or shares the blocks.
        let copied = io::copy(&mut io::Read::take(&mut cpu.pages, cpu.size), out)?;
        if copied != cpu.size {
            return Err(io::Error::other(format!(
                "CPU {}: {copied} of {} bytes of pages",
                cpu.cpu, cpu.size
            )));
        }
    }
    if out.seek(SeekFrom::End(0))? < end { out.set_len(end) } else { Ok(()) }
}
