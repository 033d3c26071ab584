//! Starts a guest, passes on its output, and reports how it ended.
//!
//! The guest's four serial lines are connected to pipes: the kernel's console, the command's
//! standard output and standard error, and the control line on which init reports progress. Serial
//! lines are synchronous in QEMU, so that the guest's output does not depend on when the host reads
//! it.

use std::{
    ffi::OsString,
    io::{self, Read, Write},
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    error::GuestError,
    qemu,
    watch::{self, ProgressLimits, Stuck, Watched},
};

/// Parameters of a start.
#[derive(Debug)]
pub struct Boot<'a> {
    pub qemu: &'a qemu::Qemu,
    /// The machine's part of the command line.
    pub board: Vec<OsString>,
    pub kernel: &'a Path,
    pub initramfs: &'a Path,
    /// The kernel's command line.
    pub command_line: String,
    /// Further arguments for QEMU.
    pub more: Vec<OsString>,
    /// Limit of host time.
    pub timeout: Option<Duration>,
    /// When to end a guest that makes no progress.
    pub progress_limits: ProgressLimits,
    /// True if standard input and output are connected to a person in the guest's shell.
    pub interactive: bool,
}

/// Destinations of the guest's output while it runs.
pub struct OutputSinks {
    /// The command's standard output.
    pub out: Box<dyn Write + Send>,
    /// The command's standard error.
    pub err: Box<dyn Write + Send>,
    /// The kernel's console, unbuffered.
    pub console: Option<Box<dyn Write + Send>>,
}

/// How far a guest got, and how it ended.
#[derive(Debug, Clone, Default)]
pub struct End {
    /// The command's exit code, if it was run and ended.
    pub code: Option<u8>,
    /// True if the time limit was reached.
    pub timed_out: bool,
    /// Why the guest was ended before its time limit.
    pub stuck: Option<Stuck>,
    pub console: String,
    /// Init's reports.
    pub notes: Vec<String>,
    /// Guest seconds at which init started, the command started, and the command ended.
    pub uptimes: [Option<f64>; 3],
    /// Host time from the emulator's start to init, to the command, and to the emulator's end.
    pub host: [Option<Duration>; 3],
    /// The tar of the guest's `/job/out`.
    pub out: Option<Vec<u8>>,
    /// The emulator's standard error, without its warnings about features that TCG lacks.
    pub emulator: String,
    /// The plug-in's counts by name: `guest_ns`, `instructions`, `joules` and more.
    pub counted: Vec<(String, f64)>,
    /// Peak memory of the emulator in bytes.
    pub memory: Option<u64>,
}

impl End {
    /// The command's code; 124 at the time limit; 125 if the guest did not complete the command.
    pub fn exit_code(&self) -> u8 {
        match self.code {
            _ if self.timed_out => 124,
            Some(code) => code,
            None => 125,
        }
    }

    /// The last lines of the console.
    pub fn last_words(&self, lines: usize) -> String {
        let all: Vec<&str> = self.console.lines().map(str::trim_end).filter(|l| !l.is_empty()).collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Splits the emulator's standard error into the plug-in's counts and QEMU's own messages.
    fn take_stderr(&mut self, text: &str) {
        for line in text.lines() {
            if let Some(counts) = line.strip_prefix("flyball: guest_ns=") {
                let pairs = counts.split_whitespace().filter_map(|pair| pair.split_once('='));
                // The first count has no name after the prefix.
                let first = counts.split_whitespace().next().map(|ns| ("guest_ns", ns));
                let all = first.into_iter().chain(pairs);
                self.counted =
                    all.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect();
            } else if !line.contains("TCG doesn't support requested feature") {
                self.emulator.push_str(line);
                self.emulator.push('\n');
            }
        }
    }
}

/// Maximum size of a guest's tar. No honest init sends more than its memory can hold.
const MAX_OUTPUTS: u64 = 1 << 30;
/// Maximum number of the last bytes to keep of the console, of the emulator's standard error, and
/// of kept output.
const MAX_KEPT: usize = 64 << 20;
/// Maximum number of init's notes. An honest init makes one for each module.
const MAX_NOTES: usize = 1000;

/// Appends to kept bytes. A guest can print forever, so at twice the limit the older half is
/// dropped.
fn keep(kept: &mut Vec<u8>, bytes: &[u8]) {
    kept.extend_from_slice(bytes);
    if kept.len() > 2 * MAX_KEPT {
        kept.drain(..kept.len() - MAX_KEPT);
    }
}

/// Passes bytes on and, if `keeps`, returns them.
fn pump(mut from: impl Read, mut to: Option<Box<dyn Write + Send>>, keeps: bool) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut buffer = [0u8; 16 * 1024];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return kept,
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return kept,
        };
        if let Some(writer) = &mut to {
            // A closed reader does not stop the guest; its output is dropped.
            if writer.write_all(&buffer[..count]).and_then(|()| writer.flush()).is_err() {
                to = None;
            }
        }
        if keeps {
            keep(&mut kept, &buffer[..count]);
        }
    }
}

/// State of the control line.
#[derive(Debug, Default)]
struct Control {
    end: End,
    /// Set once init has reported.
    up: Arc<AtomicBool>,
}

impl Control {
    /// Parses one line from init. A guest may write anything, so unknown lines are ignored.
    fn line(&mut self, line: &str, since: Duration) -> Option<u64> {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("up") => {
                self.up.store(true, Ordering::Relaxed);
                self.end.uptimes[0] = words.next().and_then(|w| w.parse().ok());
                self.end.host[0] = Some(since);
            }
            Some("command") => {
                self.end.uptimes[1] = words.next().and_then(|w| w.parse().ok());
                self.end.host[1] = Some(since);
            }
            Some("exit") => {
                self.end.code = words.next().and_then(|w| w.parse().ok());
                self.end.uptimes[2] = words.next().and_then(|w| w.parse().ok());
            }
            Some("out") => return words.next().and_then(|w| w.parse().ok()),
            Some("note") if self.end.notes.len() < MAX_NOTES => {
                self.end.notes.push(line[4..].trim().to_owned());
            }
            _ => {}
        }
        None
    }

    /// Reads the control line to its end.
    fn read(mut self, from: impl Read, start: Instant) -> End {
        let mut from = io::BufReader::new(from);
        let mut line = Vec::new();
        loop {
            line.clear();
            // A guest that never ends its line must not fill the memory; a longer line is split
            // into several.
            let limited = &mut io::Read::take(&mut from, 4096);
            match io::BufRead::read_until(limited, b'\n', &mut line) {
                Ok(0) | Err(_) => return self.end,
                Ok(_) => {}
            }
            let text = String::from_utf8_lossy(&line);
            if let Some(size) =
                self.line(text.trim_end(), start.elapsed()).filter(|size| *size <= MAX_OUTPUTS)
            {
                let mut out = Vec::new();
                // Ignore a truncated tar: its missing files would look like files that the command
                // did not write.
                if io::Read::take(&mut from, size).read_to_end(&mut out).is_ok() && out.len() as u64 == size {
                    self.end.out = Some(out);
                }
            }
        }
    }
}

/// A pipe whose write end the emulator gets as the file of a character device.
struct Line {
    read: io::PipeReader,
    write: io::PipeWriter,
}

impl Line {
    fn new() -> io::Result<Line> {
        let (read, write) = io::pipe()?;
        keep_open(&write)?;
        Ok(Line { read, write })
    }

    fn chardev(&self, id: &str) -> [OsString; 2] {
        ["-chardev".into(), format!("file,id={id},path=/proc/self/fd/{}", self.write.as_raw_fd()).into()]
    }
}

/// Lets a child inherit the descriptor.
pub fn keep_open(fd: &impl std::os::fd::AsFd) -> io::Result<()> {
    // The standard library opens everything with close-on-exec.
    rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
    Ok(())
}

/// Guest memory without a file name, which exists as long as the emulator and this process.
pub fn memory(megabytes: u32) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create("flyball-guest", rustix::fs::MemfdFlags::empty())?;
    // Sparse: the host allocates only pages that the guest has touched.
    rustix::fs::ftruncate(&fd, u64::from(megabytes) << 20)?;
    Ok(fd)
}

/// Writes to the guest's memory before it starts.
pub fn fill(memory: &OwnedFd, mut at: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = rustix::io::pwrite(memory, bytes, at)?;
        at += count as u64;
        bytes = &bytes[count..];
    }
    Ok(())
}

/// Rows and columns of the terminal on standard output; 24 and 80 without a terminal.
pub fn terminal_size() -> (u16, u16) {
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row, size.ws_col),
        _ => (24, 80),
    }
}

/// The serial lines' interrupts. The four lines of a PC share two, which does not work in a guest
/// without shared interrupts; QEMU's ACPI tables describe these to the kernel.
const LINES: [(&str, u32); 4] = [("console", 4), ("out", 3), ("err", 5), ("control", 7)];

pub fn run(boot: Boot<'_>, sinks: OutputSinks) -> Result<End, GuestError> {
    let mut lines = Vec::new();
    for _ in LINES {
        lines.push(Line::new().map_err(|e| GuestError::Emulator(format!("cannot make a pipe: {e}")))?);
    }
    let mut command = command(&boot, &lines);
    let start = Instant::now();
    let mut child = spawn(&mut command)?;
    let mut reads = Vec::new();
    for Line { read, write } in lines {
        // The emulator has its own copy. If this one stayed open, the pipe would never end.
        drop(write);
        reads.push(read);
    }
    let [console, out, err, control]: [io::PipeReader; 4] =
        reads.try_into().map_err(|_| GuestError::Emulator("a serial line is missing".into()))?;
    let said = child.stderr.take();
    let OutputSinks { out: to_out, err: to_err, console: to_console } = sinks;
    // One thread per pipe, because a full pipe would stop the emulator.
    let console = thread::spawn(move || pump(console, to_console, true));
    let said = thread::spawn(move || said.map(|from| pump(from, None, true)).unwrap_or_default());
    let out = thread::spawn(move || pump(out, Some(to_out), false));
    let err = thread::spawn(move || pump(err, Some(to_err), false));
    let up = Arc::new(AtomicBool::new(false));
    let listens = Control { up: Arc::clone(&up), ..Control::default() };
    let control = thread::spawn(move || listens.read(control, start));
    let Watched { timed_out, stuck, memory } =
        watch::wait(&mut child, boot.timeout, boot.progress_limits, &up)?;
    let host_end = start.elapsed();
    let _ = (out.join(), err.join());
    let mut end = control.join().unwrap_or_default();
    // The threads end when the emulator closes its copies of the pipes, at its end.
    end.console = String::from_utf8_lossy(&console.join().unwrap_or_default()).into_owned();
    end.take_stderr(&String::from_utf8_lossy(&said.join().unwrap_or_default()));
    // If the exit code was reported, the command has ended, and only the shutdown hung.
    end.timed_out = timed_out && end.code.is_none();
    end.stuck = stuck.filter(|_| end.code.is_none());
    // Taken before joining the threads, which is not the guest's time.
    end.host[2] = Some(host_end);
    end.memory = memory;
    Ok(end)
}

/// The emulator's command line, with the serial lines' write ends as its character devices.
fn command(boot: &Boot<'_>, lines: &[Line]) -> Command {
    let mut command = boot.qemu.command();
    command.args(&boot.board);
    for (n, ((id, irq), line)) in LINES.iter().zip(lines).enumerate() {
        if boot.interactive && *id == "out" {
            // Ctrl-C goes to the guest: without this option it would end the emulator.
            command.args(["-chardev", "stdio,id=out,signal=off"]);
        } else {
            command.args(line.chardev(id));
        }
        command.arg("-device").arg(format!("isa-serial,chardev={id},index={n},irq={irq}"));
    }
    command.arg("-kernel").arg(boot.kernel).arg("-initrd").arg(boot.initramfs);
    command.arg("-append").arg(&boot.command_line).args(&boot.more);
    if boot.interactive {
        command.stdin(Stdio::inherit()).stdout(Stdio::inherit());
    } else {
        command.stdin(Stdio::null()).stdout(Stdio::null());
    }
    command.stderr(Stdio::piped());
    command
}

/// Starts the emulator such that it does not outlive this process.
fn spawn(command: &mut Command) -> Result<Child, GuestError> {
    use std::os::unix::process::CommandExt;
    #[expect(unsafe_code, reason = "pre_exec")]
    // SAFETY: between fork and exec only this one system call is made, and it takes no lock and no
    // memory.
    unsafe {
        command.pre_exec(|| {
            // Sent when the forking thread ends, not the process (prctl(2)); that thread waits for
            // the emulator.
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            Ok(())
        });
    }
    let program = PathBuf::from(command.get_program());
    command.spawn().map_err(|e| GuestError::file("start", program, e))
}

/// A writer that stores its output, for callers that want it as bytes.
#[derive(Debug, Clone, Default)]
pub struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl SharedBuffer {
    /// The bytes written so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().map(|bytes| bytes.clone()).unwrap_or_default()
    }

    /// The bytes written so far, as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }
}

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Ok(mut kept) = self.0.lock() {
            keep(&mut kept, bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A channel as a writer, for callers that follow the output line by line.
#[derive(Debug)]
pub struct ChannelWriter(pub mpsc::Sender<Vec<u8>>);

impl Write for ChannelWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(text: &str) -> End {
        Control::default().read(text.as_bytes(), Instant::now())
    }

    #[test]
    fn the_control_line_is_understood() {
        let end = control("up 1.25\ncommand 1.50\nnote module x\nexit 3 2.75\nout 5\nabcde");
        assert_eq!(end.code, Some(3));
        assert_eq!(end.exit_code(), 3);
        assert_eq!(end.uptimes, [Some(1.25), Some(1.5), Some(2.75)]);
        assert_eq!(end.notes, ["module x"]);
        assert_eq!(end.out.as_deref(), Some(&b"abcde"[..]));
    }

    #[test]
    fn whatever_a_guest_writes_there_does_no_harm() {
        for text in
            ["exit 999 x\n", "exit\n", "out 99999999999999\nabc", "out -1\n", "\u{0}\n\n", "note", "up x\n"]
        {
            let end = control(text);
            assert_eq!((end.code, end.out), (None, None), "{text:?}");
            assert_eq!(end.notes.len(), usize::from(text == "note"));
        }
        let long = "x".repeat(100_000);
        assert_eq!(control(&format!("{long}\nexit 0 1\n")).code, Some(0));
        assert_eq!(control("").exit_code(), 125);
    }

    #[test]
    fn endless_output_is_kept_in_part() {
        let mut kept = Vec::new();
        let block = vec![1; 1 << 20];
        for _ in 0..200 {
            keep(&mut kept, &block);
            assert!(kept.len() <= 2 * MAX_KEPT);
        }
        assert!(kept.len() >= MAX_KEPT);
        let end = control(&"note x\n".repeat(5000));
        assert_eq!(end.notes.len(), MAX_NOTES);
    }

    #[test]
    fn last_words_are_the_last() {
        let end = End { console: "a\n\nb\r\nc\n".into(), ..End::default() };
        assert_eq!(end.last_words(2), "b\nc");
        assert_eq!(End { timed_out: true, ..End::default() }.exit_code(), 124);
    }
}
