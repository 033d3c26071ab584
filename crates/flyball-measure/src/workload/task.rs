//! The work of flyball's own benchmarks. Each is a function that a child process of flyball calls,
//! so that the work has processes of its own to pin, account for and stop.

use std::{
    fs::File,
    hint::black_box,
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng};

/// Sends a word back and forth between this process and `peer` (which must call [`pipe_peer`])
/// through a pair of pipes, `trips` times, and returns the time. One trip is two wake-ups, as in
/// `perf bench sched pipe`.
///
/// # Errors
/// The system's error, or a peer that went away.
pub fn sched_pipe(mut peer: Command, trips: u64) -> io::Result<Duration> {
    let mut peer = peer.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let ends = (peer.stdin.take(), peer.stdout.take());
    let (Some(mut to), Some(mut from)) = ends else { return Err(io::ErrorKind::BrokenPipe.into()) };
    // Four bytes, as `perf bench sched pipe` sends (tools/perf/bench/sched-pipe.c).
    let mut word = [0; 4];
    // The first trip waits for the peer's start.
    to.write_all(&word)?;
    from.read_exact(&mut word)?;
    let start = Instant::now();
    for _ in 0..trips {
        to.write_all(&word)?;
        from.read_exact(&mut word)?;
    }
    let time = start.elapsed();
    // The peer ends at the end of its input; a wait before that would never return.
    drop(to);
    peer.wait()?;
    Ok(time)
}

/// The other end of [`sched_pipe`]: answers each word on standard input until it ends.
pub fn pipe_peer() -> io::Result<()> {
    use std::os::fd::AsFd;
    // Separate descriptors: the standard streams are buffered.
    let mut from = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut to = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut word = [0; 4];
    loop {
        match from.read(&mut word)? {
            0 => return Ok(()),
            4 => to.write_all(&word)?,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// A fixed piece of arithmetic: `rounds` dependent steps of a linear congruential generator. Its
/// time follows the frequency of its core and nothing else.
pub fn spin(rounds: u64) -> Duration {
    let start = Instant::now();
    // Without black_box the compiler computes the loop, or its closed form.
    let mut state = black_box(0x2545_f491_4f6c_dd1d_u64);
    for _ in 0..rounds {
        // Each step needs the last one's result, so the loop runs at the multiplier's latency
        // everywhere.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
    black_box(state);
    start.elapsed()
}

/// A load that keeps CPUs busy while something else is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Arithmetic without pause.
    Spin,
    /// Reads and writes of more memory than caches hold.
    Memory,
    /// Arithmetic for 10 ms, then 10 ms of sleep.
    Bursts,
}

/// Runs a load on each CPU that this process may use, until it is killed.
pub fn load(kind: Load) -> ! {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    for _ in 1..threads {
        std::thread::spawn(move || load_one(kind));
    }
    load_one(kind)
}

fn load_one(kind: Load) -> ! {
    // Some milliseconds of work at any frequency.
    const STEPS: u64 = 1_000_000;
    const BURST: Duration = Duration::from_millis(10);
    // More than a core's part of the last-level cache: 4 Mi words are 32 MiB.
    let mut words = vec![1_u64; if kind == Load::Memory { 4 << 20 } else { 0 }];
    loop {
        match kind {
            Load::Spin => drop(spin(STEPS)),
            Load::Memory => words.iter_mut().for_each(|word| *word = black_box(word.wrapping_mul(3))),
            Load::Bursts => {
                let start = Instant::now();
                while start.elapsed() < BURST {
                    spin(STEPS / 10);
                }
                std::thread::sleep(BURST);
            }
        }
    }
}

/// The result of [`random_reads`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reads {
    /// How many reads were made.
    pub count: u64,
    /// The time that they took.
    pub time: Duration,
    /// Whether the page cache was bypassed. If the file system refuses that, reads may come from
    /// memory.
    pub direct: bool,
}

/// Reads `count` blocks of 4 KiB at random offsets of a file or device, one after the other.
///
/// # Errors
/// The system's error; a file smaller than a block.
pub fn random_reads(path: &Path, count: u64, seed: u64) -> io::Result<Reads> {
    const BLOCK: u64 = 4096;
    // The value on x86 (include/uapi/asm-generic/fcntl.h). The page cache would answer from memory.
    const O_DIRECT: i32 = 0o40_000;
    let direct = File::options().read(true).custom_flags(O_DIRECT).open(path);
    let (mut file, direct) = match direct {
        Ok(file) => (file, true),
        // tmpfs before Linux 6.6 and some network file systems refuse O_DIRECT with EINVAL
        // (open(2)).
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => (File::open(path)?, false),
        Err(error) => return Err(error),
    };
    // Devices have no length in their metadata; seeking to the end works for both.
    let blocks = file.seek(SeekFrom::End(0))? / BLOCK;
    if blocks == 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the file is smaller than one block of 4 KiB",
        ));
    }
    // O_DIRECT needs a buffer that is aligned like the device's blocks.
    let mut space = vec![0_u8; 2 * BLOCK as usize];
    let skip = space.as_ptr().align_offset(BLOCK as usize).min(BLOCK as usize);
    let buffer = &mut space[skip..skip + BLOCK as usize];
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
    let start = Instant::now();
    for _ in 0..count {
        file.read_exact_at(buffer, random.random_range(0..blocks) * BLOCK)?;
    }
    Ok(Reads { count, time: start.elapsed(), direct })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trips_are_made() {
        // `cat` answers each word as the peer would.
        let time = sched_pipe(Command::new("cat"), 100).expect("cat is there");
        assert!(time > Duration::ZERO);
        assert!(sched_pipe(Command::new("true"), 100).is_err());
    }

    #[test]
    fn twice_the_work_takes_longer() {
        let best = |rounds| (0..5).map(|_| spin(rounds)).min().expect("five runs");
        assert!(best(2_000_000) > best(200_000) * 3);
    }

    #[test]
    fn reads_are_counted() {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(&[7; 3 * 4096 + 5]).expect("it can be written");
        let reads = random_reads(file.path(), 50, 1).expect("it can be read");
        assert_eq!(reads.count, 50);
        let empty = tempfile::NamedTempFile::new().expect("a temporary file");
        assert!(random_reads(empty.path(), 1, 1).is_err());
        assert!(random_reads(Path::new("/nonexistent"), 1, 1).is_err());
    }
}
