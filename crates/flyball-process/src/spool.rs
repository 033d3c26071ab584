//! One file that several writers fill at once. Each has its own stretch, and the stretches are
//! joined at the end without copying.
//!
//! The stretches are terabytes apart in a file with holes, so that each can grow. fallocate(2)
//! removes the holes (`FALLOC_FL_COLLAPSE_RANGE`: ext4, xfs, f2fs). The file has no name until it
//! is complete, so a killed process leaves none. Writes bypass the page cache (`O_DIRECT`) if the
//! file system supports that: a trace is not read while it is written, and on a virtual machine a
//! new page of the page cache costs more than everything else that is done with its records.
//!
//! Measured with `cargo bench -p flyball-trace -- --live --only live` on two virtual CPUs, 200,000
//! records a second: 34 ns of CPU time a record with direct writes, 60 ns through the page cache.

#![allow(unsafe_code, reason = "madvise(2)")]

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::{
    fs::{FallocateFlags, OFlags},
    process::Resource,
};

/// Offsets and lengths of direct writes, and their memory, must be multiples of this.
const ALIGNMENT: usize = 4096;
/// Bytes before the first stretch, for the part that is written last.
const FRONT: u64 = 1 << 30;
/// The longest file of ext4 with blocks of 4 KiB is 16 TiB.
const MAX: u64 = 15 << 40;

#[derive(Debug)]
pub struct Spool {
    file: Arc<File>,
    direct: Arc<AtomicBool>,
    stretch: u64,
    count: u64,
}

/// One writer's part of the file.
#[derive(Debug)]
pub struct SpoolPart {
    file: Arc<File>,
    direct: Arc<AtomicBool>,
    start: u64,
    room: u64,
    written: u64,
}

impl Spool {
    /// Creates a file without a name in `directory`, for `stretches` writers. `None` if its file
    /// system cannot collapse ranges, or if the process may not create a file that long. Each
    /// writer then needs its own file.
    pub fn create_in(directory: &Path, stretches: usize) -> Option<Spool> {
        if rustix::process::getrlimit(Resource::Fsize).current.is_some() {
            // An offset beyond the limit would kill the process (SIGXFSZ).
            return None;
        }
        let mut options = File::options();
        options.read(true).write(true).mode(0o644).custom_flags(OFlags::TMPFILE.bits().cast_signed());
        let file = options.open(directory).ok()?;
        let count = stretches.max(1) as u64;
        // Whole mebibytes, because offsets must be multiples of the file system's block size,
        // whatever it is.
        let stretch = ((MAX - FRONT) / count).min(1 << 40) / (1 << 20) * (1 << 20);
        let block = ALIGNMENT as u64;
        // Try it on the empty file: there is no other way to know whether the file system supports
        // it, and after a recording it is too late.
        file.set_len(3 * block).ok()?;
        rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, block, block).ok()?;
        file.set_len(FRONT + count * stretch).ok()?;
        let direct = set_direct(&file, true).is_ok();
        Some(Spool { file: Arc::new(file), direct: Arc::new(AtomicBool::new(direct)), stretch, count })
    }

    /// Returns the stretch of writer `number`, counted from 0.
    pub fn stretch(&self, number: usize) -> SpoolPart {
        SpoolPart {
            file: self.file.clone(),
            direct: self.direct.clone(),
            start: self.place(number),
            room: if (number as u64) < self.count { self.stretch } else { 0 },
            written: 0,
        }
    }

    fn place(&self, number: usize) -> u64 {
        FRONT + number as u64 * self.stretch
    }

    /// Joins the stretches, of which `sizes` bytes are used, and moves the first to byte `front`.
    /// Sizes and `front` must be multiples of the file system's blocks. Returns the file.
    ///
    /// # Errors
    /// `EINVAL` for values that are not multiples, and other errors of fallocate(2). The file is
    /// lost then.
    pub fn close_gaps(self, front: u64, sizes: &[u64]) -> io::Result<File> {
        set_direct(&self.file, false)?;
        let end = |at: usize| self.place(at) + sizes[at];
        let Some(last) = sizes.len().checked_sub(1) else {
            self.file.set_len(front)?;
            return self.file.try_clone();
        };
        self.file.set_len(end(last))?;
        let take_out = |from: u64, to: u64| -> io::Result<()> {
            match to.checked_sub(from) {
                Some(0) => Ok(()),
                // The kernel cannot collapse a range that reaches the file's end.
                Some(_) if to >= self.file.metadata()?.len() => self.file.set_len(from),
                Some(length) => {
                    Ok(rustix::fs::fallocate(&self.file, FallocateFlags::COLLAPSE_RANGE, from, length)?)
                }
                None => Err(io::Error::other("what stands in front of the records is larger than 1 GiB")),
            }
        };
        // Start at the back, so that earlier stretches keep their offsets.
        for at in (1..sizes.len()).rev() {
            take_out(end(at - 1), self.place(at))?;
        }
        take_out(front, self.place(0))?;
        self.file.try_clone()
    }
}

impl SpoolPart {
    /// Returns whether writes bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Relaxed)
    }

    /// From now on, lets this and all other stretches write through the page cache: for a disk that
    /// is too slow.
    pub fn use_page_cache(&self) {
        if set_direct(&self.file, false).is_ok() {
            self.direct.store(false, Ordering::Relaxed);
        }
    }

    /// Appends `bytes`. If their length or memory is not a multiple of [`ALIGNMENT`], writes them
    /// through the page cache.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.written + bytes.len() as u64 > self.room {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let place = self.start + self.written;
        match self.file.write_all_at(bytes, place) {
            // Some file systems accept the flag but require larger multiples.
            Err(error) if self.is_direct() && error.raw_os_error() == Some(EINVAL) => {
                self.use_page_cache();
                self.file.write_all_at(bytes, place)?;
            }
            other => other?,
        }
        self.written += bytes.len() as u64;
        Ok(())
    }
}

const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();

/// Switches whether writes of `file` bypass the page cache. `EINVAL` if the file system does not
/// support it.
fn set_direct(file: &File, direct: bool) -> io::Result<()> {
    let mut flags = rustix::fs::fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, direct);
    Ok(rustix::fs::fcntl_setfl(file, flags)?)
}

/// Memory for direct writes. Its address and length are multiples of [`ALIGNMENT`].
#[derive(Debug)]
pub struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

/// A large page of x86-64 (`PMD_SIZE`).
const LARGE_PAGE: usize = 2 << 20;

impl Aligned {
    /// Allocates at least `length` zeroed bytes. From half a megabyte on, uses large pages if the
    /// kernel has them: a direct write is then one piece of memory for the disk instead of
    /// hundreds.
    pub fn new(length: usize) -> Aligned {
        let length = length.next_multiple_of(ALIGNMENT);
        let large = length >= LARGE_PAGE / 4;
        let (alignment, room) =
            if large { (LARGE_PAGE, length.next_multiple_of(LARGE_PAGE)) } else { (ALIGNMENT, length) };
        // The memory before and after is never touched, so it costs nothing.
        let mut bytes = vec![0; room + alignment];
        // align_offset may return usize::MAX. Then the slice below is still in range, and the write
        // is not direct.
        let start = bytes.as_ptr().align_offset(alignment).min(alignment);
        if large {
            let place = bytes[start..].as_mut_ptr();
            // SAFETY: `room` bytes from `place` on are in `bytes`; the advice changes nothing of
            // what they hold. Without large pages it fails, and the memory is as it was.
            unsafe { libc::madvise(place.cast(), room, libc::MADV_HUGEPAGE) };
        }
        Aligned { bytes, start, length }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_become_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let Some(spool) = Spool::create_in(folder.path(), 4) else {
            eprintln!("skipped 1 test: no holes can be taken out of files in {}", folder.path().display());
            return;
        };
        let mut memory = Aligned::new(3 * ALIGNMENT);
        let mut sizes = Vec::new();
        // The second and the last are empty.
        for (number, blocks) in [2, 0, 3, 0].into_iter().enumerate() {
            let mut stretch = spool.stretch(number);
            for block in 0..blocks {
                memory.bytes().fill((number * 16 + block) as u8 + 1);
                stretch.write(&memory.bytes()[..ALIGNMENT]).unwrap();
                if block == 1 {
                    stretch.use_page_cache();
                }
            }
            sizes.push(stretch.written);
        }
        let front = 5 * ALIGNMENT as u64;
        let file = spool.close_gaps(front, &sizes).unwrap();
        file.write_all_at(b"front", 0).unwrap();
        let path = folder.path().join("whole");
        flyball_files::Replacement::from_unnamed(&path, &file).unwrap().finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 10 * ALIGNMENT);
        assert!(bytes.starts_with(b"front\0\0"));
        let firsts: Vec<u8> = bytes[5 * ALIGNMENT..].chunks(ALIGNMENT).map(|block| block[0]).collect();
        assert_eq!(firsts, [1, 2, 33, 34, 35]);
        assert!(
            bytes[5 * ALIGNMENT..].chunks(ALIGNMENT).all(|block| block.iter().all(|byte| *byte == block[0]))
        );
    }

    #[test]
    fn nothing_written_is_nothing_but_the_front() {
        let folder = tempfile::tempdir().unwrap();
        let Some(spool) = Spool::create_in(folder.path(), 2) else { return };
        let file = spool.close_gaps(8192, &[0, 0]).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 8192);
    }

    #[test]
    fn memory_is_aligned() {
        for length in [1, 4096, 5000, 1 << 20, (2 << 20) + 1] {
            let mut memory = Aligned::new(length);
            let bytes = memory.bytes();
            assert!(bytes.len() >= length && bytes.len().is_multiple_of(ALIGNMENT));
            assert_eq!(bytes.as_ptr().align_offset(ALIGNMENT), 0);
        }
    }
}
