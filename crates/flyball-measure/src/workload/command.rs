//! A command as a workload: its own process group and CPUs, its output kept and read. On a
//! simulated machine, the words name a model.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read, Seek, SeekFrom},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::ExitStatus,
    time::Duration,
};

use flyball_host::{CpuList, Host, Launch, Process};
use flyball_process::User;

use sha2::{Digest as _, Sha256};

use super::{
    Outcome, Stop, Workload, WorkloadError,
    preset::{Output, Reader},
    quote,
    suite::{PLACE, geometric_mean},
};
use crate::{arm::Arm, counters::Counting, metric::Metric, program::Program};

/// How much of the end of the output is kept with each round.
const KEPT: u64 = 64 * 1024;

/// Maximum stored output. If it grows longer, the file keeps only its end.
const MAX_STORED: u64 = 64 << 20;

/// More output than this is not compared.
const MAX_COMPARED: u64 = 1 << 30;

/// The variable that makes the environment of a round larger.
const PADDING_VARIABLE: &str = "FLYBALL_PADDING";

/// How long a command may take to end after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

impl Program {
    /// The command line, and the directory if the program has one.
    pub fn title(&self) -> String {
        let line = quote(&self.argv);
        self.directory.as_ref().map_or_else(|| line.clone(), |path| format!("{line} in {}", path.display()))
    }
}

/// A command, and how to read its performance.
#[derive(Debug, Default)]
pub struct Command {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The name in reports, if it is not the command line.
    pub title: Option<String>,
    /// The CPUs that it may use, if not all.
    pub cpus: Option<CpuList>,
    /// Where it runs, if not in the current directory.
    pub directory: Option<PathBuf>,
    /// How its performance is read.
    pub reader: Reader,
    /// The control group (cgroup v2) that it joins, if not this process's.
    pub group: Option<String>,
    /// The user that it runs as, if not this process's.
    pub user: Option<User>,
    /// A run is ended after this time.
    pub limit: Option<Duration>,
    /// The file that it reads as standard input, if not /dev/null.
    pub input: Option<PathBuf>,
    /// Variables that are added to its environment.
    pub environment: BTreeMap<String, String>,
    /// Exit codes other than 0 that are no failure.
    pub accepted_exit_codes: Vec<i32>,
    /// Whether a digest of its standard output is taken.
    pub digests_output: bool,
    /// Whether the processor's counters are read.
    pub is_counted: bool,
    /// Daemons that it starts live on after its end.
    pub keeps_daemons: bool,
    /// The current arm's program, which runs instead of `argv`.
    program: Option<Program>,
    /// Bytes by which the environment grows.
    padding: usize,
    /// The output files of a round that printed nothing, to be reused in the next.
    unused: Option<(File, File)>,
}

impl Command {
    /// A command whose wall time counts.
    pub fn new(argv: Vec<String>) -> Command {
        Command { argv, ..Command::default() }
    }

    /// What runs: the arm's program, or the workload.
    fn words(&self) -> &[String] {
        self.program.as_ref().map_or(&self.argv, |program| &program.argv)
    }

    /// Starts it, discards what it prints, and does not wait for it.
    pub(crate) fn start_silently(&self, host: &dyn Host) -> Result<Box<dyn Process>, WorkloadError> {
        host.spawn(self.launch(self.words()).silent()).map_err(|cause| self.not_started(cause))
    }

    /// Starts it with all output in a file, and does not wait for it.
    pub(crate) fn start_logged(&self, host: &dyn Host) -> Result<(Box<dyn Process>, File), WorkloadError> {
        let io = |cause| WorkloadError::Io { what: "make a file for the output".to_owned(), cause };
        let log = unnamed().map_err(io)?;
        let (stdout, stderr) = (log.try_clone().map_err(io)?, log.try_clone().map_err(io)?);
        let launch = self.launch(self.words()).output_to(stdout, stderr);
        let process = host.spawn(launch).map_err(|cause| self.not_started(cause))?;
        Ok((process, log))
    }

    fn not_started(&self, cause: std::io::Error) -> WorkloadError {
        let program = self.words().first().cloned().unwrap_or_default();
        let hint = match cause.kind() {
            // Other tools take a whole command line as one word.
            std::io::ErrorKind::NotFound if program.contains(char::is_whitespace) => {
                "; a line for a shell is given as: -- sh -c 'LINE'".to_owned()
            }
            std::io::ErrorKind::NotFound if program.contains('/') => {
                let own = self.program.as_ref().and_then(|program| program.directory.as_ref());
                let place = own.map_or_else(|| PathBuf::from(&program), |own| own.join(&program));
                if place.exists() {
                    "; the file is there, but not the interpreter that it names (a #! line, or that of a linked \
                     program)"
                        .to_owned()
                } else {
                    own.map_or_else(String::new, |directory| format!(" (in {})", directory.display()))
                }
            }
            std::io::ErrorKind::NotFound => "; is it installed and in PATH?".to_owned(),
            _ if cause.raw_os_error() == Some(flyball_host::Errno::NOEXEC.0) => {
                "; it is empty, a script without #! (--shell sh runs it), or for another processor".to_owned()
            }
            std::io::ErrorKind::InvalidInput if self.cpus.is_some() => {
                "; are the CPUs of --pin online?".to_owned()
            }
            _ => String::new(),
        };
        WorkloadError::Start { program, cause, hint }
    }

    fn launch(&self, words: &[String]) -> Launch {
        let program = words.first().map_or("", String::as_str);
        let mut launch = Launch::new(program, words.get(1..).unwrap_or_default()).as_user(self.user.as_ref());
        for (name, value) in &self.environment {
            launch = launch.with_variable(name, value);
        }
        if self.padding > 0 {
            launch = launch.with_variable(PADDING_VARIABLE, &"x".repeat(self.padding));
        }
        if self.keeps_daemons {
            launch = launch.keeping_daemons();
        }
        if let Some(cpus) = &self.cpus {
            launch = launch.on(cpus);
        }
        if let Some(group) = &self.group {
            launch = launch.in_control_group(group);
        }
        let own = self.program.as_ref().and_then(|program| program.directory.as_ref());
        if let Some(directory) = own.or(self.directory.as_ref()) {
            launch = launch.in_directory(directory);
        }
        launch
    }

    /// The file that a suite of benchmarks writes, if the command line names it.
    fn suite_file(&self) -> Result<Option<SuiteFile>, WorkloadError> {
        let is_named = self.words().iter().any(|word| word.contains(PLACE));
        let io =
            |cause| WorkloadError::Io { what: "make a directory for the suite's file".to_owned(), cause };
        let is_wanted = is_named && matches!(self.reader, Reader::Suite { .. });
        is_wanted.then(|| SuiteFile::new(self.user.clone()).map_err(io)).transpose()
    }

    /// The cases of a suite, from its file or from what it printed.
    fn cases(&self, stdout: &mut File, file: Option<&SuiteFile>) -> BTreeMap<String, f64> {
        let Reader::Suite { suite, .. } = &self.reader else { return BTreeMap::new() };
        suite.read(&file.map_or_else(|| tail(stdout, MAX_STORED), SuiteFile::read))
    }

    /// Files for both streams.
    fn files(&mut self) -> Result<(File, File), WorkloadError> {
        let files = self.unused.take().map_or_else(|| Ok((unnamed()?, unnamed()?)), Ok);
        files.map_err(|cause| {
            let place = std::env::temp_dir();
            let what = format!("make a file for the command's output in {} (TMPDIR)", place.display());
            WorkloadError::Io { what, cause }
        })
    }

    /// Returns how a command failed, if it did.
    fn failure(&self, status: ExitStatus, is_cut: bool, is_too_long: bool) -> Option<String> {
        if is_cut {
            // Its exit code says nothing then: it may have caught the signal and exited with 0.
            let limit = self.limit.unwrap_or_default().as_secs_f64();
            return Some(format!("it did not end within {limit} s"));
        }
        let most = MAX_COMPARED >> 20;
        let too_long = || format!("it printed more than {most} MiB, which --same-output cannot compare");
        let failure = match (status.code(), status.signal()) {
            (Some(0), _) => None,
            (Some(code), _) if self.accepted_exit_codes.contains(&code) => None,
            (Some(code), _) => Some(format!("exit {code}")),
            (None, Some(signal)) => Some(format!("signal {signal}")),
            (None, None) => Some("an unknown end".to_owned()),
        };
        failure.or_else(|| is_too_long.then(too_long))
    }

    /// Returns whether values can be read from its output again.
    fn keeps_output(&self) -> bool {
        !matches!(self.reader, Reader::WallTime | Reader::Suite { .. })
    }

    /// The file for standard input, opened as the user that the command runs as.
    fn open_input(&self) -> Result<Option<File>, WorkloadError> {
        let _as_user = self.user.as_ref().map(User::for_files);
        let open = |path: &PathBuf| {
            File::open(path).map_err(|cause| WorkloadError::Io {
                what: format!("read --input {}", path.display()),
                cause,
            })
        };
        self.input.as_ref().map(open).transpose()
    }
}

impl Workload for Command {
    fn name(&self) -> String {
        self.title.clone().unwrap_or_else(|| quote(&self.argv))
    }

    fn metric(&self) -> Metric {
        self.reader.metric()
    }

    fn sought(&self) -> String {
        match &self.reader {
            Reader::Suite { suite, .. } => format!("case ({})", suite.form()),
            reader => format!("{} (--metric time counts wall time)", reader.metric().name),
        }
    }

    fn begin_arm(&mut self, arm: &Arm, padding: usize) {
        self.program.clone_from(&arm.program);
        self.padding = padding;
    }

    fn limit(&mut self, time: Option<Duration>) {
        self.limit = time;
    }

    fn run(
        &mut self,
        host: &dyn Host,
        interval: Duration,
        tick: &mut dyn FnMut(),
        stop: &Stop,
    ) -> Result<Outcome, WorkloadError> {
        if stop.is_requested() {
            return Err(WorkloadError::Stopped);
        }
        let io = |what: &str, cause| WorkloadError::Io { what: what.to_owned(), cause };
        // Files, not pipes: nothing has to be read while the work is timed, and no output is too
        // long.
        let (mut stdout, mut stderr) = self.files()?;
        let clone = |file: &File| file.try_clone().map_err(|cause| io("share the command's output", cause));
        let suite_file = self.suite_file()?;
        let words =
            suite_file.as_ref().map_or_else(|| self.words().to_vec(), |file| file.named_in(self.words()));
        let mut launch = self.launch(&words).output_to(clone(&stdout)?, clone(&stderr)?);
        if let Some(input) = self.open_input()? {
            launch = launch.input_from(input);
        }
        // An output that is compared must be kept in full.
        let most = if self.digests_output { MAX_COMPARED } else { MAX_STORED };
        // Another program may have taken the counters since the last round: then run without.
        let counters = self.is_counted.then(|| Counting::open(host).ok()).flatten();
        let mut running = host.spawn(launch).map_err(|cause| self.not_started(cause))?;
        let began = host.now();
        let is_late = || self.limit.is_some_and(|limit| host.now().saturating_sub(began) > limit);
        let mut cut = false;
        let (ended, left_behind) = loop {
            match running.wait(interval).map_err(|cause| io("wait for the command", cause))? {
                // The end comes before the stop flag: a command that has ended by itself needs no
                // signal.
                Some(ended) => break (ended, running.kill_left_behind()),
                None if stop.is_requested() => {
                    running.stop(STOP_TIMEOUT).map_err(|cause| io("stop the command", cause))?;
                    return Err(WorkloadError::Stopped);
                }
                None if is_late() => {
                    cut = true;
                    let ended = running.stop(STOP_TIMEOUT).map_err(|cause| io("end the command", cause))?;
                    break (ended, Vec::new());
                }
                None => {
                    shorten(&stdout, most);
                    shorten(&stderr, MAX_STORED);
                    tick();
                }
            }
        };
        // A signal to the terminal may end the command before the flag is seen.
        if stop.is_requested() {
            return Err(WorkloadError::Stopped);
        }
        let printed_bytes = length(&stdout) + length(&stderr);
        let output = Output { stdout: tail(&mut stdout, KEPT), stderr: tail(&mut stderr, KEPT) };
        // f64 holds nanoseconds exactly up to 104 days.
        let seconds = ended.wall.as_nanos() as f64 * 1e-9;
        let output_digest = self.digests_output.then(|| digest(&mut stdout)).flatten();
        let is_too_long = self.digests_output && output_digest.is_none();
        let failure = self.failure(ended.status, cut, is_too_long);
        let cases = self.cases(&mut stdout, suite_file.as_ref());
        let reading = self.reader.read(&output, seconds, self.words());
        let value = match &self.reader {
            Reader::UserTime | Reader::CpuTime => ended.usage.map(|usage| self.reader.cpu_time(usage)),
            Reader::Model { .. } => Some(ended.rate.unwrap_or(seconds)),
            Reader::Suite { .. } => geometric_mean(cases.values().copied()),
            _ => reading.map(|reading| reading.value),
        };
        let failure = failure.map(|failure| with_lack_of_space(failure, &stdout));
        if printed_bytes == 0 && left_behind.is_empty() && are_at_start([&mut stdout, &mut stderr]) {
            self.unused = Some((stdout, stderr));
        }
        Ok(Outcome {
            // A command that was cut off did only part of its work.
            value: value.filter(|_| !cut),
            cut,
            work_seconds: reading.and_then(|reading| reading.work_seconds),
            seconds,
            usage: ended.usage,
            memory_at_most_kib: ended.usage.and_then(memory_at_most_kib),
            counts: counters.and_then(|counters| counters.read()),
            exit_code: ended.status.code(),
            output_digest,
            left_behind,
            printed_bytes,
            cases,
            // Wall time needs no output to be read again, and run directories stay small.
            output: if failure.is_some() || value.is_none() || self.keeps_output() {
                join(&output)
            } else {
                String::new()
            },
            failure,
        })
    }
}

/// Returns this process's own peak, as an upper bound, if the command's peak memory is unknown
/// because the kernel reports none below it.
fn memory_at_most_kib(usage: flyball_host::Usage) -> Option<u64> {
    usage.peak_kib.is_none().then(|| flyball_process::usage(false).peak_kib)
}

/// Adds to a failure that the file system has no space left for the output, if so.
fn with_lack_of_space(failure: String, mut file: &File) -> String {
    use std::io::{ErrorKind, Write as _};
    let written = file.seek(SeekFrom::End(0)).and_then(|_| file.write_all(&[0; 4096]));
    match written.map_err(|error| error.kind()) {
        Err(ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
            let place = std::env::temp_dir();
            format!("{failure}; there is no space left in {} for its output", place.display())
        }
        _ => failure,
    }
}

/// Both streams as one text for the record.
fn join(output: &Output) -> String {
    match (output.stdout.is_empty(), output.stderr.is_empty()) {
        (_, true) => output.stdout.clone(),
        (true, false) => output.stderr.clone(),
        (false, false) => format!("{}\n--- stderr ---\n{}", output.stdout, output.stderr),
    }
}

/// Creates a file without a name, which disappears when it is closed.
fn unnamed() -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let directory = std::env::temp_dir();
    let mut options = File::options();
    options.read(true).write(true);
    // O_TMPFILE (open(2)); not every file system has it.
    const O_TMPFILE: i32 = 0o20_000_000 | 0o200_000;
    if let Ok(file) = options.clone().custom_flags(O_TMPFILE).open(&directory) {
        return Ok(file);
    }
    // Other users may write to the directory. create_new (O_EXCL) follows no link and opens no
    // existing file, and mode 0600 keeps the output private. The file is unlinked at once, so that
    // nothing remains after a crash.
    for attempt in 0..100 {
        let path = directory.join(format!("flyball-{}-{attempt}", std::process::id()));
        match options.clone().create_new(true).mode(0o600).open(&path) {
            Ok(file) => {
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}

/// A file that a suite of benchmarks writes. It is in a directory of its own, because some suites
/// refuse to replace a file, and is removed on drop.
struct SuiteFile {
    directory: PathBuf,
    user: Option<User>,
}

impl SuiteFile {
    fn new(user: Option<User>) -> std::io::Result<SuiteFile> {
        use std::os::unix::fs::DirBuilderExt as _;
        let _as_user = user.as_ref().map(User::for_files);
        for attempt in 0..100 {
            let name = format!("flyball-suite-{}-{attempt}", std::process::id());
            let directory = std::env::temp_dir().join(name);
            // Fails if the path exists, so nobody else owns the directory.
            match std::fs::DirBuilder::new().mode(0o700).create(&directory) {
                Ok(()) => return Ok(SuiteFile { directory, user }),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(std::io::ErrorKind::AlreadyExists.into())
    }

    fn path(&self) -> PathBuf {
        self.directory.join("result")
    }

    /// A command line with the file's path.
    fn named_in(&self, words: &[String]) -> Vec<String> {
        let path = self.path().display().to_string();
        words.iter().map(|word| word.replace(PLACE, &path)).collect()
    }

    /// Its text; empty if the suite wrote none.
    fn read(&self) -> String {
        let _as_user = self.user.as_ref().map(User::for_files);
        File::open(self.path()).map(|mut file| tail(&mut file, MAX_STORED)).unwrap_or_default()
    }
}

impl Drop for SuiteFile {
    fn drop(&mut self) {
        let _as_user = self.user.as_ref().map(User::for_files);
        // If this fails, the files stay in a directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Gives back the disk space of all but the end of a file that has grown longer than `most`: a
/// program that prints without end must not fill the disk.
fn shorten(file: &File, most: u64) {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(data) = file.metadata() else { return };
    // Blocks of 512 bytes (stat(2)): the length still includes what has been given back.
    if data.blocks() * 512 <= most {
        return;
    }
    use rustix::fs::FallocateFlags;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // A file system without holes keeps the file as it is.
    let _ = rustix::fs::fallocate(file, flags, 0, data.len().saturating_sub(KEPT));
}

/// SHA-256 of a file, in hexadecimal; `None` if it is too long.
fn digest(file: &mut File) -> Option<String> {
    file.metadata().ok().filter(|data| data.len() <= MAX_COMPARED)?;
    file.seek(SeekFrom::Start(0)).ok()?;
    let mut sum = Sha256::new();
    std::io::copy(file, &mut sum).ok()?;
    Some(sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn length(file: &File) -> u64 {
    file.metadata().map_or(0, |data| data.len())
}

/// Returns whether both offsets are 0. A program may have moved one in an empty file.
fn are_at_start(files: [&mut File; 2]) -> bool {
    files.into_iter().all(|file| file.stream_position().is_ok_and(|place| place == 0))
}

/// The last part of a file as text.
fn tail(file: &mut File, most: u64) -> String {
    let length = length(file);
    let mut bytes = Vec::new();
    // The offset is shared with the command's copy of the descriptor: seeking is safe because it
    // has ended.
    if length > 0 && file.seek(SeekFrom::Start(length.saturating_sub(most))).is_ok() {
        // An error only shortens a message; a missing value is reported in any case.
        let _ = file.take(most).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        Command::new(["/bin/sh", "-c", script].map(str::to_owned).to_vec())
    }

    fn run(command: &mut Command, stop: &Stop) -> Result<Outcome, WorkloadError> {
        command.run(&flyball_host::Live::new(), Duration::from_millis(10), &mut || (), stop)
    }

    #[test]
    fn time_and_failure_are_told() {
        let outcome = run(&mut shell("sleep 0.05; echo no >&2; exit 7"), &Stop::default()).expect("sh runs");
        assert_eq!(outcome.failure.as_deref(), Some("exit 7"));
        assert!(outcome.seconds >= 0.05);
        assert_eq!(outcome.value, Some(outcome.seconds));
        assert_eq!(outcome.output, "no\n");
    }

    #[test]
    fn files_without_output_are_used_again() {
        let mut command = shell("exec true");
        let file = |command: &Command| {
            use std::os::unix::fs::MetadataExt as _;
            command.unused.as_ref().map(|(stdout, _)| stdout.metadata().expect("it is open").ino())
        };
        run(&mut command, &Stop::default()).expect("sh runs");
        let first = file(&command);
        assert!(first.is_some());
        run(&mut command, &Stop::default()).expect("sh runs");
        assert_eq!(file(&command), first);
        for script in ["echo out", "echo err >&2", "exec dd bs=1 seek=9 count=0 status=none"] {
            command.argv[2] = script.to_owned();
            run(&mut command, &Stop::default()).expect("sh runs");
            assert_eq!(file(&command), None, "{script}");
        }
    }

    #[test]
    fn stopping_stops() {
        let stop = Stop::default();
        let mut ticks = 0;
        let asked = stop.clone();
        let result = shell("sleep 100").run(
            &flyball_host::Live::new(),
            Duration::from_millis(10),
            &mut || {
                ticks += 1;
                if ticks == 3 {
                    asked.ask();
                }
            },
            &stop,
        );
        assert!(matches!(result, Err(WorkloadError::Stopped)));
        assert_eq!(ticks, 3);
    }

    #[test]
    fn late_runs_are_ended() {
        let mut command = shell("trap 'exit 0' TERM; sleep 100 & wait");
        Workload::limit(&mut command, Some(Duration::from_millis(200)));
        let outcome = run(&mut command, &Stop::default()).expect("sh runs");
        assert!(outcome.cut && outcome.value.is_none() && outcome.failure.is_some(), "{outcome:?}");
        assert!((0.2..20.0).contains(&outcome.seconds));
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = run(&mut Command::new(vec!["no-such-program-here".to_owned()]), &Stop::default())
            .expect_err("it is not there");
        assert!(error.to_string().contains("no-such-program-here"), "{error}");
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        let argv = ["sh", "-c", "echo 'a b'", ""].map(str::to_owned);
        assert_eq!(quote(&argv), r"sh -c 'echo '\''a b'\''' ''");
    }
}
