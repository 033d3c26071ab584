//! Reads sample files from any moment on. The files may come from anybody.

use std::io::{self, Read, Seek, SeekFrom};

use flyball_files::{ZstdReader, read_bounded};

use super::{
    CHUNK, CHUNK_MAGIC, FileError, Header, MAGIC, MAX_CHUNKS, MAX_HEADER, MAX_LAYOUT, MAX_SEARCHED, VERSION,
    check,
    codec::{LEADING, MAX_NUMBER},
    unpack,
    writer::HEAD,
};
use crate::{Facts, Layout, Sample};

/// Location of a chunk, and the values of its head.
#[derive(Debug, Clone, Copy)]
struct ChunkHead {
    file: u32,
    offset: u64,
    length: u32,
    crc: u32,
    count: u8,
    /// Nanoseconds since 1970 of its first and last sample.
    first: u64,
    last: u64,
    /// Number of samples in all chunks before it.
    before: u64,
}

/// Parts of a recording that could not be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    /// Torn chunks at the end of a file: its process was killed, or its disk was full.
    pub torn: u32,
    /// Bytes of damaged areas between chunks.
    pub bytes: u64,
    /// Samples of chunks whose content is damaged. Only counted when such a chunk is read.
    pub samples: u64,
    /// Files of other days that have another layout because the machine changed in between.
    pub files: u32,
    /// Offset of the first damage in its file.
    pub first: Option<u64>,
}

/// A recording: one file, or the files of several days in order.
#[derive(Debug)]
pub struct Recording<R> {
    files: Vec<R>,
    facts: Vec<Option<Facts>>,
    layout: Layout,
    chunks: Vec<ChunkHead>,
    lost: Lost,
    end: u64,
    /// The chunk that was decoded last, because callers usually ask for neighbouring samples.
    decoded: Option<(usize, Vec<Sample>)>,
}

fn at(offset: u64) -> impl Fn(io::Error) -> FileError {
    move |cause| match cause.kind() {
        io::ErrorKind::UnexpectedEof => FileError::Damaged { offset, what: "it ends within its header" },
        _ => FileError::Io { offset, cause },
    }
}

fn number<const N: usize>(bytes: &[u8], from: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[from..from + N]);
    out
}

/// Reads a file's header. Returns the layout, the facts, and where the chunks begin.
fn header(file: &mut (impl Read + Seek)) -> Result<(Layout, Option<Facts>, u64), FileError> {
    const FIXED: usize = 20;
    let mut fixed = [0; FIXED];
    file.seek(SeekFrom::Start(0)).map_err(at(0))?;
    let mut have = 0;
    while have < FIXED {
        match file.read(&mut fixed[have..]).map_err(at(0))? {
            0 => break,
            more => have += more,
        }
    }
    if !fixed[..have].starts_with(&MAGIC) {
        return Err(FileError::NotOne);
    }
    if have < FIXED {
        return Err(FileError::Damaged { offset: have as u64, what: "it ends within its header" });
    }
    let version = u32::from_le_bytes(number(&fixed, 8));
    match version {
        VERSION => {}
        0 => return Err(FileError::Damaged { offset: 8, what: "its format number is wrong" }),
        newer => return Err(FileError::Newer(newer)),
    }
    let length = u64::from(u32::from_le_bytes(number(&fixed, 12)));
    if length > MAX_HEADER {
        return Err(FileError::TooLarge { offset: 12, what: "its header is longer" });
    }
    let mut content = vec![0; length as usize];
    file.read_exact(&mut content).map_err(at(FIXED as u64))?;
    let damaged = |what| FileError::Damaged { offset: FIXED as u64, what };
    if crc32fast::hash(&content) != u32::from_le_bytes(number(&fixed, 16)) {
        return Err(damaged("the checksum of its header is wrong"));
    }
    let text = read_bounded(ZstdReader::new(content.as_slice()), MAX_LAYOUT)
        .map_err(|_| damaged("its header cannot be unpacked"))?;
    let Header::<Layout, Facts> { layout, facts } =
        serde_json::from_slice(&text).map_err(|_| damaged("its header does not describe a machine"))?;
    if !check(&layout) {
        return Err(FileError::TooLarge { offset: FIXED as u64, what: "its header has more CPUs or fields" });
    }
    // Facts of other CPUs than the layout's would be attributed to the wrong CPUs.
    let facts = facts.filter(|facts| {
        facts.cpus.len() == layout.cpus.len() && facts.packages.len() == layout.packages.len()
    });
    Ok((layout, facts, FIXED as u64 + length))
}

/// Parses the head of a chunk. The caller sets offset and position.
fn head(bytes: &[u8; HEAD], values: usize) -> Option<ChunkHead> {
    let place = ChunkHead {
        file: 0,
        offset: 0,
        length: u32::from_le_bytes(number(bytes, 4)),
        count: u8::try_from(u32::from_le_bytes(number(bytes, 8))).ok()?,
        first: u64::from_le_bytes(number(bytes, 12)),
        last: u64::from_le_bytes(number(bytes, 20)),
        crc: u32::from_le_bytes(number(bytes, 28)),
        before: 0,
    };
    let is_whole = bytes.starts_with(&CHUNK_MAGIC)
        && crc32fast::hash(&bytes[..HEAD - 4]) == u32::from_le_bytes(number(bytes, HEAD - 4));
    let counted = (1..=CHUNK).contains(&place.count.into());
    // Data that does not compress is stored in blocks with heads of three bytes.
    let most = (values + LEADING) as u64 * CHUNK as u64 * MAX_NUMBER * 2 + 1024;
    (is_whole && counted && u64::from(place.length) <= most).then_some(place)
}

/// Searches for the next chunk's head from `from` on, after damage.
fn resume(file: &mut (impl Read + Seek), from: u64, values: usize) -> io::Result<Option<u64>> {
    const STEP: usize = 1 << 16;
    file.seek(SeekFrom::Start(from))?;
    let mut window = Vec::with_capacity(2 * STEP);
    let mut start = from;
    while start - from < MAX_SEARCHED {
        let more = file.by_ref().take(STEP as u64).read_to_end(&mut window)?;
        for at in 0..window.len().saturating_sub(HEAD - 1) {
            if window[at..].starts_with(&CHUNK_MAGIC) && head(&number(&window, at), values).is_some() {
                return Ok(Some(start + at as u64));
            }
        }
        if more == 0 {
            return Ok(None);
        }
        // A head may span two steps.
        let done = window.len().saturating_sub(HEAD - 1);
        window.drain(..done);
        start += done as u64;
    }
    Ok(None)
}

impl<R: Read + Seek> Recording<R> {
    /// Reads the headers and the chunks' heads of a recording's files, in the order of time. The
    /// last file's layout is that of the recording.
    ///
    /// # Errors
    /// See [`FileError`]. A torn or damaged chunk is not an error. [`Recording::lost`] counts it.
    pub fn open(files: Vec<R>) -> Result<Recording<R>, FileError> {
        let recording = Recording::open_any(files)?;
        if recording.is_empty() { Err(FileError::Empty) } else { Ok(recording) }
    }

    /// Opens recordings like [`Recording::open`], but accepts those without a sample.
    ///
    /// # Errors
    /// The errors of [`Recording::open`], except for a missing sample.
    pub fn open_any(files: Vec<R>) -> Result<Recording<R>, FileError> {
        let mut headed = Vec::with_capacity(files.len());
        for mut file in files {
            let (layout, facts, offset) = header(&mut file)?;
            headed.push((file, layout, facts, offset));
        }
        let Some((_, layout, _, offset)) = headed.last() else { return Err(FileError::Empty) };
        let mut recording = Recording {
            files: Vec::new(),
            facts: Vec::new(),
            layout: layout.clone(),
            chunks: Vec::new(),
            lost: Lost::default(),
            end: *offset,
            decoded: None,
        };
        // Another layout has other columns, so its samples cannot be on one timeline with the last
        // file's.
        for (mut file, layout, facts, offset) in headed {
            if layout == recording.layout {
                recording.index(&mut file, offset)?;
                recording.files.push(file);
                recording.facts.push(facts);
            } else {
                recording.lost.files += 1;
            }
        }
        Ok(recording)
    }

    /// Returns where the last complete chunk of the last file ends. A writer continues there.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Reads the heads of a file's chunks.
    fn index(&mut self, file: &mut R, mut offset: u64) -> Result<(), FileError> {
        let end = file.seek(SeekFrom::End(0)).map_err(at(offset))?;
        let values = self.layout.values();
        self.end = offset;
        while offset < end {
            let mut bytes = [0; HEAD];
            let mut found = None;
            if end - offset >= HEAD as u64 {
                file.seek(SeekFrom::Start(offset)).map_err(at(offset))?;
                file.read_exact(&mut bytes).map_err(at(offset))?;
                found = head(&bytes, values);
            }
            let content = offset + HEAD as u64;
            match found {
                Some(place) if u64::from(place.length) <= end - content => {
                    if self.chunks.len() == MAX_CHUNKS {
                        return Err(FileError::TooLarge { offset, what: "it has more chunks" });
                    }
                    let file = self.files.len() as u32;
                    self.chunks.push(ChunkHead { file, offset: content, before: self.len(), ..place });
                    offset = content + u64::from(place.length);
                    self.end = offset;
                }
                // The head is complete but not the content: the file ends here, or a hole follows.
                _ => {
                    self.lost.first.get_or_insert(offset);
                    let Some(next) = resume(file, offset + 1, values).map_err(at(offset))? else {
                        self.lost.torn += 1;
                        self.lost.bytes += end - offset;
                        return Ok(());
                    };
                    self.lost.bytes += next - offset;
                    offset = next;
                }
            }
        }
        Ok(())
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the limits by settings at the start of the file that holds a sample; `None` if the
    /// file lacks them.
    pub fn facts(&self, index: u64) -> Option<&Facts> {
        let chunk = self.chunks.get(self.chunk_of(index))?;
        self.facts.get(chunk.file as usize)?.as_ref()
    }

    fn chunk_of(&self, index: u64) -> usize {
        self.chunks.partition_point(|chunk| chunk.before + u64::from(chunk.count) <= index)
    }

    /// Returns the number of samples in all complete chunks.
    pub fn len(&self) -> u64 {
        self.chunks.last().map_or(0, |chunk| chunk.before + u64::from(chunk.count))
    }

    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Returns the parts that could not be read so far.
    pub fn lost(&self) -> Lost {
        self.lost
    }

    /// Returns when the recording begins and ends, ns since 1970.
    pub fn span(&self) -> (u64, u64) {
        let first = self.chunks.first().map_or(0, |chunk| chunk.first);
        (first, self.chunks.iter().map(|chunk| chunk.last).max().unwrap_or(first))
    }

    /// Returns which sample was current at a time (ns since 1970): the last one that is not later,
    /// or the first sample.
    pub fn index_at(&mut self, wall: u64) -> Result<u64, FileError> {
        // No bisection: the wall clock may have been set back. A day has only 5,400 heads.
        let Some(chunk) = self.chunks.iter().rposition(|chunk| chunk.first <= wall) else { return Ok(0) };
        let before = self.chunks[chunk].before;
        let samples = self.chunk(chunk)?;
        let within = samples.iter().rposition(|sample| sample.wall <= wall).unwrap_or(0);
        Ok(before + within as u64)
    }

    /// Returns a sample by its number. `None` past the end, or if the chunk's content is damaged.
    ///
    /// # Errors
    /// [`FileError::Io`].
    pub fn sample(&mut self, index: u64) -> Result<Option<Sample>, FileError> {
        let chunk = self.chunk_of(index);
        let Some(before) = self.chunks.get(chunk).map(|chunk| chunk.before) else { return Ok(None) };
        Ok(self.chunk(chunk)?.get((index - before) as usize).cloned())
    }

    /// The samples of a chunk; none if its content is damaged.
    fn chunk(&mut self, index: usize) -> Result<&[Sample], FileError> {
        if self.decoded.as_ref().is_none_or(|(which, _)| *which != index) {
            let place = self.chunks[index];
            let file = &mut self.files[place.file as usize];
            let mut content = vec![0; place.length as usize];
            file.seek(SeekFrom::Start(place.offset)).map_err(at(place.offset))?;
            file.read_exact(&mut content).map_err(at(place.offset))?;
            let values = self.layout.values();
            // The head's checksum does not cover the content, which has its own.
            let is_whole = crc32fast::hash(&content) == place.crc;
            let samples = is_whole.then(|| unpack(&content, place.count.into(), values)).flatten();
            if samples.is_none() {
                self.lost.samples += u64::from(place.count);
                self.lost.first.get_or_insert(place.offset);
            }
            self.decoded = Some((index, samples.unwrap_or_default()));
        }
        Ok(self.decoded.as_ref().map_or(&[], |(_, samples)| samples))
    }
}
