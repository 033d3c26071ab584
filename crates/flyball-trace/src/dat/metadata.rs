//! Everything in a trace.dat file except its pages: the kernel, the events, the names of tasks.

use std::path::Path;

use crate::{
    clock::Clock,
    error::TraceError,
    format::{EventFormat, PageHeader},
    machine::Machine,
    tasks::Tasks,
};

use super::{
    buffer::{Buffer, CpuData, CpuPages},
    compression::Compression,
    id::{self, MAGIC},
    options::Options,
    source::{Cursor, Source},
};

/// Maximum size of a metadata section; /proc/kallsyms of the largest kernels is below 20 MiB.
const LARGEST_SECTION: u32 = 256 << 20;

/// An opened trace.dat.
#[derive(Debug)]
pub struct TraceFile {
    source: Source,
    compression: Compression,
    /// 6 or 7, or 0 for raw pages without a file.
    pub version: u32,
    /// Size of a page of the main buffer.
    pub page_size: u32,
    /// The layout of page headers.
    pub header: PageHeader,
    /// Layouts of all events that the file describes.
    pub formats: Vec<EventFormat>,
    /// Names of tasks.
    pub tasks: Tasks,
    /// The kernel's `uname`, if the file has it.
    pub uname: Option<String>,
    /// The program that wrote the file.
    pub writer: Option<String>,
    /// per_cpu/cpuN/stats at the end of the recording, one text per CPU.
    pub stats: Vec<String>,
    /// Facts about the machine, if flyball wrote the file.
    pub machine: Option<Machine>,
    /// The ring buffers.
    pub buffers: Vec<Buffer>,
    /// Unreadable parts of the metadata. The other parts can be used.
    pub problems: Vec<String>,
}

impl TraceFile {
    /// Opens the file at `path` and reads its metadata.
    ///
    /// # Errors
    /// The file is not a trace.dat of version 6 or 7, or is too damaged to find the pages.
    pub fn open(path: &Path) -> Result<TraceFile, TraceError> {
        TraceFile::read(Source::open(path)?)
    }

    /// Reads the metadata of `source`.
    pub fn read(source: Source) -> Result<TraceFile, TraceError> {
        let mut cursor = source.cursor(0, None);
        if cursor.bytes(10, "the file's first bytes")? != MAGIC {
            return Err(source.cursor(0, None).error("not a trace.dat file"));
        }
        let version = cursor.text("the version")?;
        let version: u32 =
            version.parse().map_err(|_| cursor.error(format!("'{version}' is not a version")))?;
        if !matches!(version, 6 | 7) {
            return Err(TraceError::Unsupported(format!(
                "{}: trace.dat version {version}; versions 6 and 7 can be read (`trace-cmd convert` makes version 6)",
                source.path().display()
            )));
        }
        let big = cursor.u8("the byte order")? != 0;
        let long = cursor.u8("the size of long")?;
        // A long of 4 bytes means a 32-bit kernel, which can have intel_pstate and amd-pstate too.
        if big || !matches!(long, 4 | 8) {
            return Err(TraceError::Unsupported(format!(
                "{}: recorded on a machine {}; P-state drivers run on little-endian x86 alone",
                source.path().display(),
                if big { "of big-endian byte order".to_owned() } else { format!("with a {long}-byte long") }
            )));
        }
        let page_size = cursor.u32("the page size").and_then(|size| page_size(&cursor, size))?;
        let mut file = TraceFile {
            source,
            compression: Compression::None,
            version,
            page_size,
            header: PageHeader::default(),
            formats: Vec::new(),
            tasks: Tasks::default(),
            uname: None,
            writer: None,
            stats: Vec::new(),
            machine: None,
            buffers: Vec::new(),
            problems: Vec::new(),
        };
        if version == 6 {
            file.version_6(&mut cursor)?;
        } else {
            file.version_7(&mut cursor)?;
        }
        Ok(file)
    }

    /// Wraps raw pages, with the metadata that a trace.dat file would have; `version` is 0.
    pub(crate) fn from_pages(
        source: Source,
        formats: Vec<EventFormat>,
        header: PageHeader,
        tasks: Tasks,
        buffer: Buffer,
    ) -> TraceFile {
        TraceFile {
            source,
            compression: Compression::None,
            version: 0,
            page_size: buffer.page_size,
            header,
            formats,
            tasks,
            uname: None,
            writer: None,
            stats: Vec::new(),
            machine: None,
            buffers: vec![buffer],
            problems: Vec::new(),
        }
    }

    fn version_6(&mut self, cursor: &mut Cursor) -> Result<(), TraceError> {
        self.header_info(cursor)?;
        self.ftrace_formats(cursor)?;
        self.event_formats(cursor)?;
        // Version 6 has no table of its parts, so unused ones must be skipped in order.
        let size = cursor.u32("the size of the symbols")?;
        cursor.skip(u64::from(size), "the symbols")?;
        let size = cursor.u32("the size of the printk formats")?;
        cursor.skip(u64::from(size), "the printk formats")?;
        self.cmdlines(cursor)?;
        let cpus = cursor.u32("the number of CPUs")?;
        let mut options = Options::default();
        let mut kind = cursor.bytes(10, "the kind of the data")?;
        if kind == b"options  \0" {
            options.read(cursor, false, false)?;
            kind = cursor.bytes(10, "the kind of the data")?;
        }
        if kind == b"latency  \0" {
            return Err(TraceError::Unsupported(format!(
                "{}: holds the text of a latency tracer, not records",
                self.source.path().display()
            )));
        }
        if kind != b"flyrecord\0" {
            return Err(cursor.error("neither options nor records where one of them should be"));
        }
        let clock = options.clock.unwrap_or_default();
        let cpus_of_main = self.places(cursor, cpus);
        self.buffers.push(Buffer {
            name: String::new(),
            clock,
            page_size: self.page_size,
            cpus: cpus_of_main,
        });
        for (name, at) in std::mem::take(&mut options.instances) {
            self.instance(name, at, cpus, clock);
        }
        self.take(options);
        Ok(())
    }

    /// Reads the buffer of an instance (`trace-cmd record -B`): its own table, anywhere in the
    /// file, followed by its clock (tracecmd_buffer_instance_handle() in trace-input.c).
    fn instance(&mut self, name: String, at: u64, cpus: u32, main_clock: Clock) {
        let mut cursor = self.source.cursor(at, None);
        match cursor.bytes(10, "the kind of a buffer's data") {
            Ok(kind) if kind == b"flyrecord\0" => {}
            Ok(_) => {
                let error = cursor.error(format!("no records where those of buffer '{name}' should be"));
                return self.problems.push(error.to_string());
            }
            Err(error) => return self.problems.push(error.to_string()),
        }
        let found = self.places(&mut cursor, cpus);
        // Older versions write no clock here.
        let size = cursor.u64("the size of a buffer's clock").unwrap_or_default();
        let text = if size <= 1024 {
            cursor.bytes(size, "a buffer's clock").unwrap_or_default()
        } else {
            Vec::new()
        };
        let clock = match Clock::chosen(String::from_utf8_lossy(&text).trim_end_matches('\0')) {
            Clock::Unknown => main_clock,
            known => known,
        };
        self.buffers.push(Buffer { name, clock, page_size: self.page_size, cpus: found });
    }

    /// Reads version 6's table of CPUs: offset and size of each CPU's pages.
    fn places(&mut self, cursor: &mut Cursor, cpus: u32) -> Vec<CpuData> {
        let mut found = Vec::new();
        // A truncated table still describes the first CPUs, so use those.
        for cpu in 0..cpus {
            match (cursor.u64("a CPU's place"), cursor.u64("a CPU's size")) {
                (Ok(offset), Ok(size)) => found.push(CpuData { cpu, offset, size, compressed: false }),
                (Err(error), _) | (_, Err(error)) => {
                    self.problems.push(error.to_string());
                    break;
                }
            }
        }
        found
    }

    fn version_7(&mut self, cursor: &mut Cursor) -> Result<(), TraceError> {
        let name = cursor.text("the compression's name")?;
        // The version of the compression library; both formats are stable.
        cursor.text("the compression's version")?;
        self.compression = match name.as_str() {
            // trace-cmd writes `none`; a missing name means the same.
            "none" | "" => Compression::None,
            "zstd" => Compression::Zstd,
            "zlib" => Compression::Zlib,
            other => {
                return Err(TraceError::Unsupported(format!(
                    "{}: compressed with {other}; zstd and zlib can be read",
                    self.source.path().display()
                )));
            }
        };
        let mut next = cursor.u64("the place of the options")?;
        let mut options = Options::default();
        let mut seen = Vec::new();
        while next != 0 {
            // Each list has the offset of the next one. In a damaged file they may form a cycle.
            if seen.contains(&next) || seen.len() > 10_000 {
                self.problems.push(format!("the options at byte {next} point back at themselves"));
                break;
            }
            seen.push(next);
            let read = self.section(next, id::DONE).and_then(|mut cursor| {
                options.read(&mut cursor, true, self.compression != Compression::None)
            });
            if let Err(error) = read {
                // The first list is indispensable; without a later one only some information is
                // missing.
                if seen.len() == 1 && options.sections.is_empty() {
                    return Err(error);
                }
                self.problems.push(error.to_string());
                break;
            }
            next = options.next;
        }
        // After all lists of options, so that a damaged section does not hide the others.
        for (number, place) in std::mem::take(&mut options.sections) {
            let read = self.section(place, number).and_then(|mut cursor| match number {
                id::HEADER_INFO => self.header_info(&mut cursor),
                id::FTRACE_EVENTS => self.ftrace_formats(&mut cursor),
                id::EVENT_FORMATS => self.event_formats(&mut cursor),
                id::CMDLINES => self.cmdlines(&mut cursor),
                // Symbols and printk formats are needed only for events that print addresses.
                _ => Ok(()),
            });
            if let Err(error) = read {
                self.problems.push(error.to_string());
            }
        }
        for buffer in &mut options.buffers {
            // Used only so that the error has an offset near the wrong value.
            let places = buffer.cpus.first().map_or(0, |cpu| cpu.offset);
            buffer.page_size = page_size(&self.source.cursor(places, None), buffer.page_size)?;
        }
        self.buffers = std::mem::take(&mut options.buffers);
        self.take(options);
        Ok(())
    }

    /// Returns a cursor over the (unpacked) content of the section at `place`.
    fn section(&self, place: u64, number: u16) -> Result<Cursor, TraceError> {
        let mut cursor = self.source.cursor(place, None);
        let found = cursor.u16("a section's number")?;
        if found != number {
            return Err(self
                .source
                .cursor(place, None)
                .error(format!("section {found} where section {number} should be")));
        }
        let flags = cursor.u16("a section's flags")?;
        // An offset in the STRINGS section, for people who look at the file.
        cursor.u32("a section's description")?;
        let size = cursor.u64("a section's size")?;
        if size > cursor.left() {
            return Err(cursor.error(format!(
                "section {number} should take {size} bytes, but the file ends after {}",
                cursor.left()
            )));
        }
        // Do not unpack the two sections that are never read: kallsyms takes megabytes.
        if flags & 1 == 0 || number == id::KALLSYMS || number == id::PRINTK {
            let at = cursor.at();
            return Ok(self.source.cursor(at, Some(at + size)));
        }
        let packed = cursor.u32("a section's compressed size")?;
        let whole = cursor.u32("a section's full size")?;
        if whole > LARGEST_SECTION {
            return Err(cursor.error(format!("section {number} says that it holds {whole} bytes")));
        }
        let bytes = cursor.bytes(u64::from(packed), "a compressed section")?;
        let unpacked = self
            .compression
            .unpack(&bytes, whole as usize)
            .map_err(|error| cursor.error(error.to_string()))?;
        Ok(Source::memory(unpacked).cursor(0, None))
    }

    fn take(&mut self, options: Options) {
        self.uname = options.uname;
        self.writer = options.writer;
        self.stats = options.stats;
        self.machine = options.machine;
        if let (Some(clock), Some(main)) = (options.clock, self.buffers.first_mut())
            // Version 7 names each buffer's clock; the option is needed only if that name is
            // unknown.
            && main.clock == Clock::Unknown
        {
            main.clock = clock;
        }
    }

    fn header_info(&mut self, cursor: &mut Cursor) -> Result<(), TraceError> {
        // Both headers are copies of files in tracefs' events/, each preceded by its name and size
        // (trace-cmd.dat.v6(5)).
        if cursor.text("the page header's name")? != "header_page" {
            return Err(cursor.error("no header_page where it should be"));
        }
        let size = cursor.u64("the page header's size")?;
        let bytes = cursor.bytes(size, "the page header's description")?;
        match PageHeader::parse(&bytes) {
            Ok(header) => self.header = header,
            Err(error) => self.problems.push(format!(
                "the page header's description is damaged {error}; taken for a 64-bit kernel's"
            )),
        }
        if cursor.text("the event header's name")? != "header_event" {
            return Err(cursor.error("no header_event where it should be"));
        }
        let size = cursor.u64("the event header's size")?;
        // Its bit fields (type_len:5, time_delta:27) have not changed since 2.6.31; page.rs has
        // them.
        cursor.skip(size, "the event header's description")
    }

    fn format(&mut self, cursor: &mut Cursor, system: &str) -> Result<(), TraceError> {
        let size = cursor.u64("a format's size")?;
        let at = cursor.at();
        let bytes = cursor.bytes(size, "a format")?;
        match EventFormat::parse(system, &bytes) {
            Ok(format) => self.formats.push(format),
            // Skip this event; the others are still useful.
            Err(error) => self.problems.push(format!("a format is damaged {}", error.within(at))),
        }
        Ok(())
    }

    fn ftrace_formats(&mut self, cursor: &mut Cursor) -> Result<(), TraceError> {
        // The number needs no limit: each event takes at least the eight bytes of its size in the
        // file.
        for _ in 0..cursor.u32("the number of the tracers' events")? {
            self.format(cursor, "ftrace")?;
        }
        Ok(())
    }

    fn event_formats(&mut self, cursor: &mut Cursor) -> Result<(), TraceError> {
        for _ in 0..cursor.u32("the number of event groups")? {
            let system = cursor.text("an event group's name")?;
            for _ in 0..cursor.u32("the number of a group's events")? {
                self.format(cursor, &system)?;
            }
        }
        Ok(())
    }

    fn cmdlines(&mut self, cursor: &mut Cursor) -> Result<(), TraceError> {
        let size = cursor.u64("the size of the tasks' names")?;
        self.tasks = Tasks::parse(&cursor.bytes(size, "the tasks' names")?);
        Ok(())
    }

    /// The pages of one CPU, read in pieces of `ahead` bytes.
    pub fn pages(&self, buffer: &Buffer, data: CpuData, ahead: usize) -> CpuPages {
        CpuPages::new(self.source.clone(), data, buffer.page_size, self.compression, ahead)
    }

    /// Returns the file's name for messages.
    pub fn name(&self) -> String {
        self.source.path().display().to_string()
    }
}

/// Checks that a kernel may have this page size: whole pages of 4 KiB, and at most 64 MiB for a
/// sub-buffer.
fn page_size(cursor: &Cursor, size: u32) -> Result<u32, TraceError> {
    if (4096..=64 << 20).contains(&size) && size.is_multiple_of(4096) {
        Ok(size)
    } else {
        Err(cursor.error(format!("{size} bytes is not a page size")))
    }
}

#[cfg(all(test, feature = "compressed"))]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn both_compressions_are_unpacked_and_lies_about_sizes_found() {
        let text = b"a section's content ".repeat(100);
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(&text).unwrap();
        let zlib = zlib.finish().unwrap();
        let zstd = zstd::bulk::compress(&text, 1).unwrap();
        for (kind, packed) in [(Compression::Zlib, zlib), (Compression::Zstd, zstd)] {
            assert_eq!(kind.unpack(&packed, text.len()).unwrap(), text);
            for wrong in [0, text.len() - 1, text.len() + 1, usize::MAX >> 1] {
                let error = kind.unpack(&packed, wrong).unwrap_err();
                assert!(matches!(error, crate::dat::compression::UnpackError::Size { .. }), "{error}");
            }
            assert!(kind.unpack(&packed[..packed.len() / 2], text.len()).is_err());
            assert!(kind.unpack(b"no such thing", 5).is_err());
        }
        assert!(Compression::None.unpack(b"x", 1).is_err());
    }
}
