//! Runs a guest for a request: finds and makes everything that it needs, and cleans up afterwards.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    io,
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use flyball_files::{Dir, Scratch};
use flyball_guest_plugin::{
    WorkloadClass,
    machine::Interface,
    punit,
    settings::{self, Settings, Time},
};
use flyball_silicon::spec::InterfaceSpec;

use crate::{
    acpi::Firmware,
    cache::Cache,
    copy_back::{self, Rule},
    error::GuestError,
    initramfs::{self, JobFile},
    kernel::{self, Kernel},
    machine::{Driver, GuestMachine},
    qemu::{self, Board, Qemu},
    run::{self, Boot, End, OutputSinks},
    watch::ProgressLimits,
};

/// The root file system of the command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Root {
    /// busybox, in memory.
    #[default]
    Initramfs,
    /// A directory of the host, read-only with an overlay in memory.
    Directory(PathBuf),
    /// An image of an ext4 file system, read-only with an overlay in memory. Unlike a directory, it
    /// still works after the guest was suspended: the kernel's virtio_blk supports suspend, but its
    /// 9pnet_virtio does not.
    Image(PathBuf),
}

/// Modules that a kernel needs for a root in an image.
const OF_IMAGE: [&str; 4] = ["virtio_pci", "virtio_blk", "ext4", "crc32c_generic"];

/// What to boot, on which machine, and what to run in it.
#[derive(Debug, Clone)]
pub struct Request {
    /// The machine's name or file.
    pub machine: String,
    /// The kernel: a version in the cache, a bzImage, a vmlinux or a Debian package.
    pub kernel: String,
    /// Directory of the kernel's modules, if it is not next to the kernel.
    pub modules_dir: Option<PathBuf>,
    pub driver: Driver,
    /// CPUs; 0 for four.
    pub cpus: u32,
    /// Replaces the machine's interface.
    pub interface: Option<Interface>,
    /// True if the guest may break its firmware (`flyball_guest_plugin::settings::FAULTS`).
    pub faults: bool,
    /// True if guest time follows the silicon (the closed loop).
    pub closed: bool,
    /// Cycles per instruction in the closed loop, in 1/256.
    pub cycles: u32,
    /// The memory share of an instruction's time in the closed loop.
    pub class: WorkloadClass,
    /// The silicon's and the emulator's seed.
    pub seed: u64,
    /// Megabytes of memory.
    pub memory_mb: u32,
    pub root: Root,
    /// True to run the root's own init as process 1, with the command as one of its units.
    pub init: bool,
    /// Files for the job directory.
    pub files: Vec<JobFile>,
    /// Further modules to load.
    pub modules: Vec<String>,
    /// Further words for the kernel's command line.
    pub append: Vec<String>,
    /// Directory for `/job/out`, the console and the register log.
    pub out: Option<PathBuf>,
    /// Directory for `/job/out` only: the user's working directory.
    pub copy_back: Option<PathBuf>,
    /// Files in the working directory that may be replaced, and directories whose whole content may
    /// be.
    pub replaced: Vec<PathBuf>,
    /// Limit of host time.
    pub timeout: Option<Duration>,
    /// When to end a guest that makes no progress.
    pub progress_limits: ProgressLimits,
    /// The command; empty for a shell.
    pub command: Vec<String>,
}

impl Request {
    /// A request with default values.
    pub fn new(machine: &str, kernel: &str, command: &[&str]) -> Request {
        Request {
            machine: machine.to_owned(),
            kernel: kernel.to_owned(),
            modules_dir: None,
            driver: Driver::Default,
            cpus: 0,
            interface: None,
            faults: false,
            closed: false,
            cycles: settings::CYCLES,
            class: WorkloadClass::INTEGER,
            seed: 0,
            memory_mb: 512,
            root: Root::Initramfs,
            init: false,
            files: Vec::new(),
            modules: Vec::new(),
            append: Vec::new(),
            out: None,
            copy_back: None,
            replaced: Vec::new(),
            timeout: Some(Duration::from_secs(300)),
            progress_limits: ProgressLimits::default(),
            command: command.iter().map(|&word| word.to_owned()).collect(),
        }
    }
}

/// The plug-in's file name.
const PLUGIN: &str = "libflyball_guest_plugin.so";

/// Finds the plug-in: `$FLYBALL_GUEST_PLUGIN`, next to the program, in cargo's directories, or in
/// `../lib/flyball`.
pub fn find_plugin() -> Result<PathBuf, GuestError> {
    // Not checked here: if it cannot be loaded, the emulator reports why.
    if let Some(named) = env::var_os("FLYBALL_GUEST_PLUGIN").filter(|name| !name.is_empty()) {
        return Ok(named.into());
    }
    let program = env::current_exe().map_err(|e| GuestError::file("find", "/proc/self/exe", e))?;
    let dir = program.parent().unwrap_or(Path::new("/"));
    let places = [dir.join(PLUGIN), dir.join("deps").join(PLUGIN), dir.join("../lib/flyball").join(PLUGIN)];
    // The newest, so that a development tree does not use the plug-in of an earlier build.
    let newest = places
        .iter()
        .filter(|path| path.is_file())
        .max_by_key(|path| fs::metadata(path).and_then(|meta| meta.modified()).ok());
    newest.cloned().ok_or_else(|| {
        GuestError::Request(format!(
            "the plug-in {PLUGIN} is neither in the program's directory ({}) nor in ../lib/flyball; \
             set FLYBALL_GUEST_PLUGIN to its path",
            dir.display()
        ))
    })
}

/// Boots a guest, runs the command in it, and returns how it ended.
pub fn run(cache: &Cache, request: &Request, sinks: OutputSinks) -> Result<End, GuestError> {
    let interface = interface(request)?;
    let machine = GuestMachine::find(&request.machine, request.cpus, interface)?;
    if request.memory_mb < 256 {
        return Err(GuestError::Request("a guest needs at least 256 MB of memory".into()));
    }
    match &request.root {
        Root::Directory(dir) => qemu::check_root(dir, request.init)?,
        // Opened here, because the emulator's own message does not tell what is wrong with it.
        Root::Image(file) => drop(File::open(file).map_err(|e| GuestError::file("read", file, e))?),
        Root::Initramfs if request.init => {
            return Err(GuestError::Request("--init needs --root DIR with an init of its own".into()));
        }
        Root::Initramfs => {}
    }
    // First check for missing files that must be fetched, because packing takes seconds.
    let qemu = Qemu::find(cache)?;
    let plugin = find_plugin()?;
    let kernel = kernel::find(cache, &request.kernel, request.modules_dir.as_deref())?;
    // Inaccessible to others: it contains the user's files, and sockets that determine the answers
    // of the guest's firmware.
    let work = Scratch::new("flyball-guest").map_err(|e| GuestError::file("make", env::temp_dir(), e))?;
    let initramfs = pack(cache, request, &kernel, work.path())?;
    let words = kernel_words(request, &machine);
    let command_line = machine.command_line(request.driver, &kernel.release, &words);

    let no_memory = |e: io::Error| GuestError::Emulator(format!("cannot make the guest's memory: {e}"));
    let memory = run::memory(request.memory_mb).map_err(no_memory)?;
    run::keep_open(&memory).map_err(no_memory)?;
    // The emulator maps this file as the guest's memory; the plug-in maps it for the mailbox and
    // the feedback table.
    let memory_path = path_of(&memory);
    let results = request.out.as_deref().map(Results::open).transpose()?;
    let mut settings = settings(request, &machine, interface, work.path())?;
    if let Some(results) = &results {
        (settings.log, settings.trace) = (Some(path_of(&results.registers)), Some(path_of(&results.silicon)));
    }
    if let Some((base, contents)) = machine.mailbox_contents() {
        run::fill(&memory, base, &contents).map_err(no_memory)?;
        settings.memory = Some(memory_path.clone());
    }
    if machine.spec.firmware.feedback {
        settings.memory = Some(memory_path.clone());
    }
    let more = devices(request, &machine, &mut settings, &plugin, work.path())?;

    let board = Board {
        cpu: &machine.cpu_model(),
        layout: qemu::Layout {
            sockets: machine.layout.packages,
            cores: machine.layout.cores,
            threads: machine.layout.threads,
        },
        memory_mb: request.memory_mb,
        memory: &memory_path,
        one_thread: request.closed,
    };
    let boot = Boot {
        qemu: &qemu,
        board: board.arguments(),
        kernel: &kernel.boot,
        initramfs: &initramfs,
        command_line,
        more,
        timeout: request.timeout,
        progress_limits: request.progress_limits,
        interactive: request.command.is_empty(),
    };
    // `work`, `memory` and `results` must live until here, because the emulator opens them by path.
    let mut end = run::run(boot, sinks)?;
    let (into, rule) = match (&results, &request.copy_back) {
        (Some(results), _) => (Some(&results.path), Rule::Results { reserved: LOGS }),
        (None, back) => (back.as_ref(), Rule::Work { replaced: request.replaced.clone() }),
    };
    if let (Some(into), Some(tar)) = (into, &end.out) {
        end.notes.extend(copy_back::copy(tar, into, &rule)?.into_texts());
    }
    if let Some(results) = &results {
        let mut file = results.create(CONSOLE)?;
        io::Write::write_all(&mut file, end.console.as_bytes())
            .map_err(|e| GuestError::file("write", results.path.join(CONSOLE), e))?;
    }
    Ok(end)
}

const CONSOLE: &str = "console.log";
const REGISTERS: &str = "registers.log";
const SILICON: &str = "silicon.log";
/// flyball's own files in a directory for results.
const LOGS: &[&str] = &[CONSOLE, REGISTERS, SILICON];

/// The directory for a guest's results, with the logs that the plug-in writes while it runs.
///
/// An earlier guest may have left links with these names. So the files are created here, and the
/// emulator inherits them instead of following a link by path.
#[derive(Debug)]
struct Results {
    path: PathBuf,
    dir: Dir,
    registers: File,
    silicon: File,
}

impl Results {
    fn open(path: &Path) -> Result<Results, GuestError> {
        let error = |e| GuestError::file("make", path, e);
        flyball_files::make_dirs(path).map_err(error)?;
        let dir = Dir::open(path).map_err(error)?;
        let log = |name: &str| -> Result<File, GuestError> {
            let error = |e| GuestError::file("write", path.join(name), e);
            let file = dir.replace(name, 0o644).map_err(error)?;
            run::keep_open(&file).map_err(error)?;
            Ok(file)
        };
        let (registers, silicon) = (log(REGISTERS)?, log(SILICON)?);
        // Keep the open directory, not only its path, which a link may replace while the guest
        // runs.
        Ok(Results { path: path.to_owned(), dir, registers, silicon })
    }

    fn create(&self, name: &str) -> Result<File, GuestError> {
        self.dir.replace(name, 0o644).map_err(|e| GuestError::file("write", self.path.join(name), e))
    }
}

/// The path by which the emulator opens a file that it inherits from this process.
fn path_of(file: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Writes the guest's initramfs into `work`: the cached base followed by the job.
fn pack(cache: &Cache, request: &Request, kernel: &Kernel, work: &Path) -> Result<PathBuf, GuestError> {
    let mut modules: Vec<String> =
        // `?` tells init not to report a missing module.
        request.modules.iter().map(|name| name.trim_start_matches('?').to_owned()).collect();
    if let Root::Image(_) = request.root {
        modules.extend(OF_IMAGE.map(str::to_owned));
    }
    let base = initramfs::base(cache, kernel, &modules)?;
    let mut image = fs::read(&base).map_err(|e| GuestError::file("read", &base, e))?;
    let mut files = request.files.clone();
    if request.root == Root::Initramfs {
        // A root of the host has its own libraries, at the paths where programs expect them.
        files.extend(initramfs::libraries(&request.files));
    }
    image.extend(initramfs::job(&request.command, &files)?);
    let path = work.join("initramfs");
    write(&path, &image)?;
    Ok(path)
}

/// The request's words for the kernel's command line; `init.sh` reads those that begin with
/// `flyball.`.
fn kernel_words(request: &Request, machine: &GuestMachine) -> Vec<String> {
    let mut words: Vec<String> = request.append.clone();
    words.push(format!("flyball.modules={}", machine.modules(request.driver, &request.modules).join(",")));
    words.push(format!("flyball.out={}", u8::from(request.out.is_some() || request.copy_back.is_some())));
    match request.root {
        Root::Directory(_) => words.push("flyball.root=9p".into()),
        Root::Image(_) => words.push("flyball.root=image".into()),
        Root::Initramfs => {}
    }
    if request.init {
        // A login on the console would wait for a device that only udev announces, and a first boot
        // for user input.
        words.push("flyball.init=1 systemd.getty_auto=no systemd.firstboot=no".into());
    }
    if request.command.is_empty() {
        let (rows, columns) = run::terminal_size();
        words.push(format!("flyball.shell=1 flyball.rows={rows} flyball.cols={columns}"));
        // The kernel passes TERM on to init, and init to the shell.
        let is_plain =
            |term: &String| term.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._+".contains(&b));
        words.extend(env::var("TERM").ok().filter(is_plain).map(|term| format!("TERM={term}")));
    }
    words
}

/// The plug-in's settings, except for the guest's memory; writes the machine's file into `work`.
fn settings(
    request: &Request,
    machine: &GuestMachine,
    interface: Option<Interface>,
    work: &Path,
) -> Result<Settings, GuestError> {
    let settings = Settings {
        machine: work.join("machine.toml"),
        cpus: machine.layout.cpus(),
        interface,
        time: if request.closed { Time::Closed } else { Time::Open },
        seed: request.seed,
        cycles: request.cycles,
        class: request.class,
        faults: request.faults,
        ..Settings::default()
    };
    write(&settings.machine, machine.toml.as_bytes())?;
    Ok(settings)
}

/// QEMU's arguments except for board, kernel and serial lines: shares, PCI functions, firmware
/// tables, the clock and the plug-in. Functions are served on sockets in `work`, which `settings`
/// then names.
fn devices(
    request: &Request,
    machine: &GuestMachine,
    settings: &mut Settings,
    plugin: &Path,
    work: &Path,
) -> Result<Vec<OsString>, GuestError> {
    let mut words: Vec<OsString> = Vec::new();
    match &request.root {
        Root::Directory(dir) => words.extend(qemu::share(dir, "root")),
        Root::Image(file) => words.extend(qemu::disk(file)),
        Root::Initramfs => {}
    }
    let places = punit::places(&machine.spec);
    if !places.is_empty() {
        settings.sockets = Some(work.to_owned());
        words.extend(qemu::functions(&places, work));
    }
    let firmware = Firmware { acts: request.faults, ..machine.firmware() };
    for (number, table) in firmware.tables().iter().enumerate() {
        let path = work.join(format!("table{number}.aml"));
        write(&path, table)?;
        words.push("-acpitable".into());
        words.push(format!("file={}", qemu::escape(&path.to_string_lossy())).into());
    }
    words.extend(qemu::identity(&machine.spec.name, request.closed));
    if request.closed {
        // Only guest time may reach the guest: no host clock, and no randomness except from the
        // seed.
        words.extend(["-rtc", "base=2026-01-01T00:00:00,clock=vm", "-seed"].map(OsString::from));
        words.push(request.seed.to_string().into());
    }
    words.push("-plugin".into());
    let plugin = qemu::escape(&plugin.to_string_lossy());
    words.push(std::iter::once(plugin).chain(settings.arguments()).collect::<Vec<_>>().join(",").into());
    Ok(words)
}

/// The interface for performance requests: the requested one, or one that the driver requires. If
/// firmware has enabled HWP, the kernel does not let users disable it
/// (drivers/cpufreq/intel_pstate.c, `intel_pstate_hwp_is_enabled`), so `no_hwp` is only possible on
/// machines where it is off.
fn interface(request: &Request) -> Result<Option<Interface>, GuestError> {
    if request.interface.is_none() && request.driver == Driver::IntelPstate("no_hwp") {
        let machine = GuestMachine::find(&request.machine, request.cpus, None)?;
        let has_hwp = machine.spec.firmware.interface == InterfaceSpec::Hwp;
        return Ok(has_hwp.then_some(Interface::HwpOff));
    }
    Ok(request.interface)
}

/// Writes a new file that only this user can read, because the initramfs contains the user's files
/// for the guest.
fn write(path: &Path, bytes: &[u8]) -> Result<(), GuestError> {
    let error = |e| GuestError::file("write", path, e);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path).map_err(error)?;
    io::Write::write_all(&mut file, bytes).map_err(error)
}

/// A shell command that runs `command` under the kernel's tracer and leaves the trace in
/// `out/trace.txt`. `events` are directories below events/; events that the guest's kernel lacks
/// are skipped.
pub fn recording(command: &[String], events: &[String]) -> String {
    let events = events.join(" ");
    let line = initramfs::command_line(command);
    format!(
        "T=/sys/kernel/tracing; echo 0 > $T/tracing_on; echo 8192 > $T/buffer_size_kb
for e in {events}; do [ -d $T/events/$e ] && echo 1 > $T/events/$e/enable; done
echo 1 > $T/tracing_on
({line}
)
code=$?
echo 0 > $T/tracing_on
cat $T/trace > /job/out/trace.txt
exit $code"
    )
}
