//! Boots: jobs of topics, their results, and the boots of `flyball-guest`.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

use flyball_guest::{
    cache::Cache,
    error::GuestError,
    guest::{self, Request},
    initramfs::JobFile,
    kernel::Kernel,
    run::{End, OutputSinks, SharedBuffer},
};

use crate::{
    messages::{self, Message},
    mode::Mode,
    record, speed_select,
    step::{self, AGENT, Sequence},
};

/// A job to run in a guest.
#[derive(Debug, Clone)]
pub struct Job {
    /// Files of the job directory.
    pub files: Vec<(String, Vec<u8>)>,
    /// Files and directories of this host to copy to the guest; programs with their libraries.
    pub copies: Vec<PathBuf>,
    /// A shell command line.
    pub command: String,
    pub seed: u64,
    /// Further words for the kernel's command line.
    pub append: Vec<String>,
    /// Further modules to load.
    pub modules: Vec<String>,
    /// True if the guest may break its firmware.
    pub faults: bool,
    /// Limit of host time.
    pub timeout: Duration,
}

impl Job {
    /// A job for the agent: the sequences, each starting from the mode's base state.
    pub fn sequences(mode: &Mode, sequences: &[Sequence], seed: u64) -> Job {
        let mut job = Job::agent(step::script(&mode.reset(), sequences), seed);
        if let Some(shape) = &mode.shape {
            job.files.push(("isst".to_owned(), speed_select::elf()));
            job.files.push(("state".to_owned(), shape.queries_text().into_bytes()));
            job.faults = true;
            // The guest breaks its firmware through a register.
            job.modules.push("?msr".to_owned());
        }
        job
    }

    /// A job for the agent with this text of steps.
    pub fn agent(steps: String, seed: u64) -> Job {
        let marks: Vec<u8> = (0..=255).collect();
        Job {
            files: vec![
                ("agent.sh".to_owned(), AGENT.into()),
                ("steps".to_owned(), steps.into()),
                ("marks".to_owned(), marks),
            ],
            copies: Vec::new(),
            command: "sh ./agent.sh".to_owned(),
            seed,
            append: Vec::new(),
            modules: Vec::new(),
            faults: false,
            timeout: Duration::from_secs(900),
        }
    }
}

/// A guest that has ended.
#[derive(Debug, Clone, Default)]
pub struct Ended {
    pub output: String,
    pub console: String,
    pub registers: String,
    pub silicon: String,
    /// The command's exit code, if it ended.
    pub code: Option<u8>,
    /// Why the command did not end by itself.
    pub cut: Option<String>,
}

impl Ended {
    /// The observations of the agent's steps.
    pub fn record(&self) -> record::Boot {
        record::read(&self.output, &self.registers, &self.silicon)
    }

    /// The reports of the kernel itself.
    pub fn messages(&self) -> Vec<Message> {
        messages::read(&self.console)
    }

    /// The number of the last step that began.
    pub fn last_step(&self) -> Option<u32> {
        self.output.lines().rev().find_map(|line| line.strip_prefix("s ")?.parse().ok())
    }

    /// The last lines of the console.
    pub fn last_words(&self) -> String {
        let lines: Vec<&str> = self.console.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}

/// Why a test cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotTell {
    #[error("{0}")]
    Guest(String),
    #[error("the kernel did not reach the test: {why}")]
    Boot {
        why: String,
        last: String,
        /// True if the guest did not end either.
        hangs: bool,
    },
    #[error("the host is too busy: {0}")]
    Busy(String),
    #[error("{0}")]
    Driver(String),
}

/// Boots a kernel in a mode and runs a job in it.
pub trait Boots: Sync {
    fn boot(&self, mode: &Mode, job: &Job) -> Result<Ended, CannotTell>;

    /// What `uname -r` prints, if the image shows it.
    fn release(&self) -> &str;

    /// The directory tools/testing/selftests of the kernel's source, if the kernel lies in a tree.
    fn selftests(&self) -> Option<&Path> {
        None
    }
}

/// Keeps the results of the first guests, for topics that run the same sequences.
pub struct Remembering<'a> {
    boots: &'a dyn Boots,
    kept: Mutex<Vec<(Vec<u8>, u64, Ended)>>,
}

/// Number of kept results: the guests of the suite's sequences.
const KEPT: usize = 4;

impl<'a> Remembering<'a> {
    pub fn new(boots: &'a (impl Boots + 'a)) -> Remembering<'a> {
        Remembering { boots, kept: Mutex::default() }
    }
}

impl Boots for Remembering<'_> {
    fn boot(&self, mode: &Mode, job: &Job) -> Result<Ended, CannotTell> {
        // Jobs for a mode's sequences differ only in their steps and the seed.
        let steps = job.files.iter().find(|(name, _)| name == "steps").map(|(_, steps)| steps.clone());
        let plain = job.append.is_empty() && job.faults == mode.shape.is_some();
        let Some(steps) = steps.filter(|_| plain) else { return self.boots.boot(mode, job) };
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((.., ended)) = lock().iter().find(|(known, seed, _)| (known, *seed) == (&steps, job.seed))
        {
            return Ok(ended.clone());
        }
        let ended = self.boots.boot(mode, job)?;
        let mut kept = lock();
        if kept.len() < KEPT {
            kept.push((steps, job.seed, ended.clone()));
        }
        Ok(ended)
    }

    fn release(&self) -> &str {
        self.boots.release()
    }

    fn selftests(&self) -> Option<&Path> {
        self.boots.selftests()
    }
}

/// Cycles per instruction, in 1/256: four, so that deferred work completes within milliseconds even
/// at the lowest frequency.
const CYCLES: u32 = 4 * 256;

/// Limits the number of concurrent guests, of all kernels.
#[derive(Debug)]
pub struct Slots {
    free: Mutex<usize>,
    freed: Condvar,
}

/// The right to run a guest.
struct Slot<'a>(&'a Slots);

impl Slots {
    pub fn new(count: usize) -> Slots {
        Slots { free: Mutex::new(count.max(1)), freed: Condvar::new() }
    }

    fn take(&self) -> Slot<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self.freed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Slot(self)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

/// Guests of one kernel.
#[derive(Debug)]
pub struct Guests {
    pub slots: Arc<Slots>,
    pub cache: Cache,
    /// The kernel as given to `--kernel`.
    pub wanted: String,
    pub modules_dir: Option<PathBuf>,
    pub kernel: Kernel,
    selftests: Option<PathBuf>,
}

/// The tests in the source tree of a kernel: in the tree that contains the image, or in the
/// `source` of a build directory.
fn selftests(kernel: &Path) -> Option<PathBuf> {
    /// Depth of arch/x86/boot/bzImage below a build directory inside a tree.
    const DEPTH: usize = 6;
    let kernel = kernel.canonicalize().ok()?;
    let places = kernel.ancestors().take(DEPTH);
    let mut all = places.flat_map(|place| [place.to_owned(), place.join("source")]);
    all.find_map(|place| Some(place.join("tools/testing/selftests")).filter(|tests| tests.is_dir()))
}

impl Guests {
    pub fn new(
        slots: &Arc<Slots>,
        cache: Cache,
        wanted: &str,
        modules_dir: Option<&Path>,
    ) -> Result<Guests, GuestError> {
        let kernel = flyball_guest::kernel::find(&cache, wanted, modules_dir)?;
        Ok(Guests {
            slots: Arc::clone(slots),
            cache,
            wanted: wanted.to_owned(),
            modules_dir: modules_dir.map(Path::to_owned),
            kernel,
            selftests: selftests(Path::new(wanted)),
        })
    }

    fn request(&self, mode: &Mode, job: &Job, dir: &Path) -> Result<Request, GuestError> {
        let mut request = Request::new(&mode.machine, &self.wanted, &[&job.command]);
        if let Some(toml) = &mode.toml {
            let path = dir.join("machine.toml");
            fs::write(&path, toml).map_err(|e| GuestError::file("write", &path, e))?;
            request.machine = path.display().to_string();
        }
        request.modules_dir.clone_from(&self.modules_dir);
        request.driver = mode.driver()?;
        request.interface = mode.interface;
        request.cpus = mode.cpus;
        request.closed = true;
        request.cycles = CYCLES;
        request.seed = job.seed;
        request.faults = job.faults;
        request.timeout = Some(job.timeout);
        request.modules.clone_from(&job.modules);
        request.modules.extend(GOVERNORS.iter().map(|name| format!("?{name}")));
        request.append.clone_from(&job.append);
        request.append.extend(mode.append().iter().map(|&word| word.to_owned()));
        // Show all warnings and marks on the console. A kernel that has panicked ends at once by
        // default.
        request.append.extend(["loglevel=5".to_owned(), "printk.devkmsg=on".to_owned()]);
        for (name, content) in &job.files {
            let source = dir.join(name);
            fs::write(&source, content).map_err(|e| GuestError::file("write", &source, e))?;
            request.files.push(JobFile { source, name: name.clone() });
        }
        for source in &job.copies {
            let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
            request.files.push(JobFile { source: source.clone(), name });
        }
        request.out = Some(dir.join("out"));
        Ok(request)
    }
}

/// Governors that a kernel may have as modules.
const GOVERNORS: &[&str] = &[
    "cpufreq_ondemand",
    "cpufreq_powersave",
    "cpufreq_userspace",
    "cpufreq_conservative",
    "cpufreq_performance",
];

impl Boots for Guests {
    fn release(&self) -> &str {
        &self.kernel.release
    }

    fn selftests(&self) -> Option<&Path> {
        self.selftests.as_deref()
    }

    fn boot(&self, mode: &Mode, job: &Job) -> Result<Ended, CannotTell> {
        let guest = |e: &dyn std::fmt::Display| CannotTell::Guest(e.to_string());
        let _slot = self.slots.take();
        let dir = tempfile::Builder::new().prefix("flyball-test").tempdir().map_err(|e| guest(&e))?;
        let request = self.request(mode, job, dir.path()).map_err(|e| guest(&e))?;
        let output = SharedBuffer::default();
        let sinks =
            OutputSinks { out: Box::new(output.clone()), err: Box::new(std::io::sink()), console: None };
        let end = guest::run(&self.cache, &request, sinks).map_err(|e| guest(&e))?;
        let read = |name: &str| {
            // The plug-in and this process wrote them.
            fs::read(dir.path().join("out").join(name))
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        };
        let ended = Ended {
            output: output.text(),
            registers: read("registers.log").unwrap_or_default(),
            silicon: read("silicon.log").unwrap_or_default(),
            code: end.code,
            cut: None,
            console: end.console.clone(),
        };
        judge(&end, ended)
    }
}

/// A boot that never reached the command is not a failure of the kernel; a command that did not
/// complete is.
fn judge(end: &End, mut ended: Ended) -> Result<Ended, CannotTell> {
    let reached = end.uptimes[1].is_some();
    if end.code.is_some() {
        return Ok(ended);
    }
    let why = match &end.stuck {
        Some(stuck) => stuck.to_string(),
        None if end.timed_out => "the time limit was reached".to_owned(),
        None => "the guest ended by itself".to_owned(),
    };
    if !reached {
        let last = end.last_words(12);
        let messages = ended.messages();
        let panic =
            messages.iter().find(|message| message.kind == "panic").and_then(|panic| panic.text.first());
        let panicked = panic.is_some();
        let why = match panic {
            Some(panic) => format!("it panicked while it booted ({panic})"),
            None if last.is_empty() => {
                format!("{why}, and it printed nothing (a console needs SERIAL_8250_CONSOLE)")
            }
            None => why,
        };
        let hangs = !panicked && (end.stuck.is_some() || end.timed_out && last.is_empty());
        return Err(if end.timed_out && !panicked && !hangs {
            CannotTell::Busy(format!("{why} before the kernel's init ran"))
        } else if end.emulator.is_empty() || panicked || hangs {
            CannotTell::Boot { why, last, hangs }
        } else {
            CannotTell::Guest(end.emulator.trim().to_owned())
        });
    }
    // The guest watches its own time, so a host timeout is caused by the host.
    if end.timed_out && ended.messages().is_empty() {
        return Err(CannotTell::Busy("the guest did not end within its limit of host time".to_owned()));
    }
    ended.cut = Some(why);
    Ok(ended)
}
