//! trace.dat version 7, which flyball reads and does not write.

const BUFFER: u16 = 3;
const CPUCOUNT: u16 = 8;
const STRINGS: u16 = 15;

/// Reads a version 6 file from its start.
struct Six<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Six<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        self.at += count;
        &self.bytes[self.at - count..self.at]
    }

    fn number(&mut self, bytes: usize) -> usize {
        self.take(bytes).iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
    }

    fn text(&mut self) -> &'a [u8] {
        let end = self.bytes[self.at..].iter().position(|byte| *byte == 0).expect("a text has an end");
        self.take(end + 1)
    }

    /// A length of eight bytes and as much text.
    fn long_text(&mut self) -> &'a [u8] {
        let length = self.number(8);
        self.take(length)
    }

    /// The bytes of a part that `read` passes over.
    fn part(&mut self, read: impl FnOnce(&mut Six<'a>)) -> &'a [u8] {
        let start = self.at;
        read(self);
        &self.bytes[start..self.at]
    }
}

/// A count and as many long texts.
fn formats(from: &mut Six<'_>) {
    for _ in 0..from.number(4) {
        from.long_text();
    }
}

/// A length of four bytes and as much text.
fn short(from: &mut Six<'_>) {
    let length = from.number(4);
    from.take(length);
}

/// The file so far, with its options and the list of strings.
#[derive(Default)]
struct Seven {
    file: Vec<u8>,
    options: Vec<u8>,
    strings: Vec<u8>,
}

impl Seven {
    fn option(&mut self, number: u16, data: &[u8]) {
        self.options.extend(number.to_le_bytes());
        self.options.extend((data.len() as u32).to_le_bytes());
        self.options.extend(data);
    }

    /// Begins a section; it is not compressed. Returns its place.
    fn section(&mut self, number: u16, string: usize, size: usize) -> u64 {
        let place = self.file.len() as u64;
        self.file.extend(number.to_le_bytes());
        self.file.extend(0_u16.to_le_bytes());
        self.file.extend((string as u32).to_le_bytes());
        self.file.extend((size as u64).to_le_bytes());
        place
    }

    fn string(&mut self, text: &str) -> usize {
        let place = self.strings.len();
        self.strings.extend(text.bytes().chain([0]));
        place
    }
}

/// Makes version 7 of a trace.dat file that flyball has written, with sections as trace-cmd 3 has
/// them.
///
/// # Panics
/// The file is not of version 6.
pub fn dat_7(bytes: &[u8]) -> Vec<u8> {
    let mut from = Six { bytes, at: 0 };
    let mut out = Seven { file: from.take(10).to_vec(), ..Seven::default() };
    assert_eq!(from.text(), b"6\0");
    out.file.extend(b"7\0");
    out.file.extend(from.take(2));
    let page = from.number(4);
    out.file.extend((page as u32).to_le_bytes());
    out.file.extend(b"none\0\0");
    let options_place = out.file.len();
    out.file.extend([0; 8]);
    let headers = from.part(|from| {
        for _ in 0..2 {
            from.text();
            from.long_text();
        }
    });
    let ftrace = from.part(formats);
    let events = from.part(|from| {
        for _ in 0..from.number(4) {
            from.text();
            formats(from);
        }
    });
    let (kallsyms, printk) = (from.part(short), from.part(short));
    let cmdlines = from.part(|from| {
        from.long_text();
    });
    let sections = [
        (16, "headers", headers),
        (17, "ftrace events", ftrace),
        (18, "events format", events),
        (19, "kallsyms", kallsyms),
        (20, "printk", printk),
        (21, "command lines", cmdlines),
    ];
    for (number, name, content) in sections {
        let string = out.string(name);
        let place = out.section(number, string, content.len());
        out.file.extend(content);
        out.option(number, &place.to_le_bytes());
    }
    let cpus = from.number(4);
    assert_eq!(from.text(), b"options  \0");
    loop {
        let number = from.number(2);
        if number == 0 {
            break;
        }
        let length = from.number(4);
        out.option(number as u16, from.take(length));
    }
    out.option(CPUCOUNT, &(cpus as u32).to_le_bytes());
    assert_eq!(from.text(), b"flyrecord\0");
    let table: Vec<(usize, usize)> = (0..cpus).map(|_| (from.number(8), from.number(8))).collect();
    let clock = from.long_text();
    let pages: Vec<_> = (0_u32..).zip(table).filter(|(_, (_, size))| *size > 0).collect();
    finish(&mut out, (options_place, page), &clock[1..clock.len() - 1], &pages, bytes);
    out.file
}

/// Adds the options, the strings and the pages: of each CPU its number, and place and size in
/// `bytes`. Pages are behind everything else, and their places in the options, whose length is
/// known.
fn finish(
    out: &mut Seven,
    (options_place, page): (usize, usize),
    clock: &[u8],
    pages: &[(u32, (usize, usize))],
    bytes: &[u8],
) {
    let buffer_size = 8 + 1 + clock.len() + 1 + 4 + 4 + 20 * pages.len();
    let names = [out.string("options"), out.string("strings"), out.string("flyrecord")];
    let options_size = out.options.len() + 6 + buffer_size + 6 + 8;
    let buffer_at = out.file.len() + 16 + options_size + 16 + out.strings.len();
    let first = (buffer_at + 16).next_multiple_of(page);
    let mut buffer = (buffer_at as u64).to_le_bytes().to_vec();
    buffer.push(0);
    buffer.extend(clock.iter().chain(&[0]));
    buffer.extend((page as u32).to_le_bytes());
    buffer.extend((pages.len() as u32).to_le_bytes());
    let mut end = first;
    for (cpu, (_, size)) in pages {
        buffer.extend(cpu.to_le_bytes());
        buffer.extend((end as u64).to_le_bytes());
        buffer.extend((*size as u64).to_le_bytes());
        end = (end + size).next_multiple_of(page);
    }
    out.option(BUFFER, &buffer);
    out.option(0, &[0; 8]);
    let options = std::mem::take(&mut out.options);
    let place = out.section(0, names[0], options.len());
    out.file[options_place..options_place + 8].copy_from_slice(&place.to_le_bytes());
    out.file.extend(options);
    let strings = std::mem::take(&mut out.strings);
    out.section(STRINGS, names[1], strings.len());
    out.file.extend(strings);
    assert_eq!(out.file.len(), buffer_at);
    out.section(BUFFER, names[2], end - buffer_at - 16);
    for (_, (place, size)) in pages {
        out.file.resize(out.file.len().next_multiple_of(page), 0);
        out.file.extend(&bytes[*place..*place + *size]);
    }
}
