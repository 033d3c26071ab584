//! `flyball guest test`: regression tests of cpufreq drivers in guests. The tests are in
//! `flyball-drivertest`; this module has the command line, the order of the work, and the output
//! files.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Instant,
};

use flyball_drivertest::{
    boots::{Boots, CannotTell, Guests, Remembering, Slots},
    config::Config,
    mode::Mode,
    report::{self, Group, Suite, Test},
    saved::{ModeRecord, Saved},
    topic::{self, Bench, TOPICS, Thresholds, Topic},
};
use flyball_guest::{cache::Cache, error::GuestError, guest, qemu::Qemu};
use flyball_silicon::MachineSpec;

use crate::{
    failure::{CANNOT_TELL, Exit, Failure},
    guest_arg::KERNEL,
    output::{self, schema},
};

/// Arguments of `guest test`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Boots the kernel (--kernel) once or a few times for each driver mode of each machine, runs generated sequences of settings, \
and checks what sysfs reports, what registers and mailboxes receive and what frequency the processor runs at. Prints KTAP.

Examples:
  flyball guest test ryzen-5750g --kernel 6.12                      all modes of one machine
  flyball guest test ryzen-5750g --driver amd-pstate=active --only contract --kernel ~/linux
  flyball guest test all --kernel ~/linux --baseline 6.12 -j 2      what differs from another kernel
  flyball guest test all --kernel 6.12 --save 6.12.record           keep a kernel's behaviour
  flyball guest test all --kernel ~/linux --against 6.12.record --html report.html

Exit codes, as `git bisect run` takes them:
  0    good: no test failed
  1    bad: a test failed
  2    the command line cannot be used: unknown topic, machine or driver
  125  cannot tell: the kernel does not boot or lacks the driver, or the host is too busy")]
pub(crate) struct Args {
    /// Machines, from `flyball guest list`, or machines' TOML files; `all` for every driver and
    /// interface.
    #[arg(value_name = "MACHINE", default_value = "ryzen-5750g")]
    machines: Vec<String>,

    /// Kernel to compare with: a version in the cache, an image, a package or a build tree.
    #[arg(long, value_name = "OLD")]
    baseline: Option<String>,

    /// Topics: contract, lifecycle, selftests, difference, behaviour [default: all that the other
    /// options allow, without behaviour].
    #[arg(long, value_name = "TOPIC", value_delimiter = ',')]
    only: Vec<String>,

    /// Drivers, with all of their modes, or modes: amd-pstate, amd-pstate=active (registers),
    /// amd-pstate=active,mailbox [default: all].
    #[arg(long, value_name = "DRIVER")]
    driver: Vec<String>,

    /// Guests to run at the same time.
    #[arg(short, long, value_name = "N", default_value_t = 2)]
    jobs: usize,

    /// Seed of the sequences and of the guests.
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// Show failures as they were found, without the boots that look for a shorter sequence: for a
    /// bisection.
    #[arg(long)]
    no_shrink: bool,

    /// Save the kernel's behaviour to a file, for --against.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,

    /// Compare with behaviour that was saved.
    #[arg(long, value_name = "FILE", conflicts_with = "baseline")]
    against: Option<PathBuf>,

    /// What may change from the baseline in `behaviour` before the run fails: lines like
    /// `energy = +3 %`.
    #[arg(long, value_name = "FILE", requires = "baseline")]
    thresholds: Option<PathBuf>,

    /// Write the results as one HTML page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// The kernel's modules (lib/modules/RELEASE), if they are not in its package or tree.
    #[arg(long, value_name = "DIR")]
    modules_dir: Option<PathBuf>,
}

/// The machines that `all` stands for: together they have every driver, interface and class of
/// Speed Select.
const ALL: &[&str] =
    &["ryzen-5750g", "ryzen-preferred", "sst-guide", "gold-6138", "i7-2600", "hybrid-laptop"];
/// Machines of `all` on which only Speed Select is tested: other machines have the same cpufreq
/// drivers.
const ALL_SPEED_SELECT: &[&str] = &["msr-mailbox", "tpmi-small"];

pub(crate) fn run(kernel: Option<&str>, json: bool, args: &Args) -> Result<Exit, Failure> {
    let topics = topics(args)?;
    let modes = modes(&args.machines, &args.driver)?;
    let against = args.against.as_deref().map(read_saved).transpose()?;
    let thresholds = args.thresholds.as_deref().map(read_thresholds).transpose()?;
    if thresholds.is_some() && !args.only.iter().any(|word| word == "behaviour") {
        return Err(Failure::usage("--thresholds are those of the topic behaviour; add --only behaviour"));
    }
    let kernels = Kernels::find(kernel, args.baseline.as_deref(), args.modules_dir.as_deref(), args.jobs)?;
    let (wanted, guests, baseline) = (kernels.wanted, &kernels.tested, kernels.baseline.as_ref());
    let jobs = args.jobs.clamp(1, MAX_JOBS);
    let config = Config::of(&guests.kernel);
    report_configuration(config.as_ref());

    let started = Instant::now();
    let work = Work {
        kernel: guests,
        baseline,
        against: against.as_ref(),
        thresholds: thresholds.as_ref(),
        config: config.as_ref(),
        topics: &topics,
        named: !args.only.is_empty(),
        seed: args.seed,
        shrinks: !args.no_shrink,
        records: Mutex::default(),
        hung: Mutex::default(),
        keeps: args.save.is_some(),
    };
    let groups = work.all(&modes, jobs, !json)?;
    let suite = Suite {
        kernel: wanted.to_owned(),
        release: guests.release().to_owned(),
        baseline: args.baseline.clone().or_else(|| against.as_ref().map(|saved| saved.release.clone())),
        seed: args.seed,
        seconds: started.elapsed().as_secs_f64(),
        groups,
    };
    if let Some(path) = &args.save {
        let records = work.records.into_inner().unwrap_or_else(PoisonError::into_inner);
        let saved = Saved::new(guests.release(), records);
        write_file(path, &saved.write().map_err(Failure::failed)?)?;
    }
    if let Some(path) = &args.html {
        write_file(path, report::html(&suite).as_bytes())?;
    }
    let verdict = suite.verdict();
    if json {
        output::json(schema::TEST, &suite)?;
    } else {
        output::text(&format!("# {:.0} s in all\n", suite.seconds))?;
    }
    Ok(match verdict.code() {
        0 => Exit::Done,
        1 => Exit::Failed,
        _ => CANNOT_TELL,
    })
}

/// Maximum number of guests at the same time.
const MAX_JOBS: usize = 64;

/// The kernels of a command.
pub(crate) struct Kernels<'a> {
    /// As given with `--kernel`.
    pub(crate) wanted: &'a str,
    pub(crate) tested: Guests,
    pub(crate) baseline: Option<Guests>,
}

impl<'a> Kernels<'a> {
    pub(crate) fn find(
        wanted: Option<&'a str>,
        baseline: Option<&str>,
        modules_dir: Option<&Path>,
        jobs: usize,
    ) -> Result<Kernels<'a>, Failure> {
        let cache = Cache::of_user().map_err(cannot_start)?;
        // Search for these once, to print one message instead of one per mode.
        Qemu::find(&cache).map_err(cannot_start)?;
        guest::find_plugin().map_err(cannot_start)?;
        let wanted = wanted.unwrap_or(KERNEL);
        let slots = Arc::new(Slots::new(jobs.clamp(1, MAX_JOBS)));
        let guests = |name: &str, modules: Option<&Path>| {
            Guests::new(&slots, cache.clone(), name, modules).map_err(cannot_start)
        };
        Ok(Kernels {
            wanted,
            tested: guests(wanted, modules_dir)?,
            baseline: baseline.map(|old| guests(old, None)).transpose()?,
        })
    }
}

/// A failure because the kernel or the emulator cannot be used: exit code 125, so that a bisection
/// skips this kernel. An invalid argument is 2.
fn cannot_start(error: GuestError) -> Failure {
    let failure = Failure::from(error);
    match failure.exit {
        Exit::Usage => failure,
        _ => failure.exiting(CANNOT_TELL),
    }
}

fn topics(args: &Args) -> Result<Vec<&'static dyn Topic>, Failure> {
    for word in &args.only {
        if TOPICS.iter().all(|topic| topic.name() != word) {
            let names: Vec<&str> = TOPICS.iter().map(|topic| topic.name()).collect();
            return Err(Failure::usage(format!("unknown topic '{word}' (expected {})", names.join(", "))));
        }
    }
    let chosen = |topic: &&&'static dyn Topic| {
        args.only.is_empty() || args.only.iter().any(|word| word == topic.name())
    };
    Ok(TOPICS.iter().filter(chosen).copied().collect())
}

/// The modes of these machines that `--driver` selects; all of them without `--driver`.
pub(crate) fn modes(machines: &[String], drivers: &[String]) -> Result<Vec<Mode>, Failure> {
    let mut names: Vec<&str> = Vec::new();
    for name in machines {
        if name == "all" {
            names.extend(ALL);
        } else {
            names.push(name);
        }
    }
    let mut modes = Vec::new();
    for name in names {
        modes.extend(Mode::all(name)?);
    }
    if machines.iter().any(|name| name == "all") {
        for name in ALL_SPEED_SELECT.iter().filter(|name| !machines.iter().any(|given| given == *name)) {
            modes.extend(Mode::all(name)?.into_iter().filter(|mode| mode.shape.is_some()));
        }
    }
    let known: Vec<String> = modes.iter().map(|mode| mode.name.clone()).collect();
    for word in drivers {
        if !modes.iter().any(|mode| mode.is_named(word)) {
            return Err(Failure::usage(format!(
                "no driver or mode '{word}' on these machines (they have {})",
                known.join(", ")
            )));
        }
    }
    modes.retain(|mode| drivers.is_empty() || drivers.iter().any(|word| mode.is_named(word)));
    if modes.is_empty() {
        let machines = MachineSpec::names().collect::<Vec<_>>().join(", ");
        return Err(Failure::usage(format!("nothing to test on these machines (flyball has {machines})")));
    }
    Ok(modes)
}

fn read_saved(path: &Path) -> Result<Saved, Failure> {
    let bytes = fs::read(path).map_err(|e| Failure::usage(format!("cannot read {}: {e}", path.display())))?;
    Saved::read(&bytes)
        .map_err(|why| Failure::usage(format!("{} does not hold saved behaviour: {why}", path.display())))
}

fn read_thresholds(path: &Path) -> Result<Thresholds, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|e| Failure::usage(format!("cannot read {}: {e}", path.display())))?;
    Thresholds::parse(&text)
        .map_err(|why| Failure::usage(format!("{} does not hold thresholds: {why}", path.display())))
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    flyball_files::replace(path, bytes)
        .map_err(|e| Failure::failed(format!("cannot write {}: {e}", path.display())))
}

/// Prints, before any boot, which options are missing from the kernel's configuration.
fn report_configuration(config: Option<&Config>) {
    let Some(config) = config else {
        eprintln!(
            "flyball: the kernel's configuration is not known (no .config next to it, no CONFIG_IKCONFIG in it)"
        );
        return;
    };
    let missing = config.missing_for_guest();
    if !missing.is_empty() {
        eprintln!("flyball: the kernel may not boot: its configuration lacks {}", missing.join(", "));
    }
    let missing = config.missing_useful();
    if !missing.is_empty() {
        eprintln!("flyball: less is tested: the kernel's configuration lacks {}", missing.join(", "));
    }
}

/// The settings and state of a run.
struct Work<'a> {
    kernel: &'a Guests,
    baseline: Option<&'a Guests>,
    against: Option<&'a Saved>,
    thresholds: Option<&'a Thresholds>,
    config: Option<&'a Config>,
    topics: &'a [&'static dyn Topic],
    /// True if the user named the topics. They then run even if they are not in the default set.
    named: bool,
    seed: u64,
    shrinks: bool,
    records: Mutex<Vec<ModeRecord>>,
    /// The mode in which the kernel hung before its init.
    hung: Mutex<Option<String>>,
    keeps: bool,
}

impl Work<'_> {
    /// Tests all modes, `jobs` at a time. Prints each mode's KTAP as soon as it and all modes
    /// before it are done.
    fn all(&self, modes: &[Mode], jobs: usize, prints: bool) -> Result<Vec<Group>, Failure> {
        let next = AtomicUsize::new(0);
        let (send, receive) = mpsc::channel();
        let mut done: Vec<Option<Vec<Group>>> = modes.iter().map(|_| None).collect();
        let mut groups: Vec<Group> = Vec::new();
        let planned: usize = modes.len() * self.planned().count();
        thread::scope(|scope| {
            for _ in 0..jobs.min(modes.len()) {
                let (send, next) = (send.clone(), &next);
                scope.spawn(move || {
                    while let Some((index, mode)) = Some(next.fetch_add(1, Ordering::Relaxed))
                        .and_then(|index| Some((index, modes.get(index)?)))
                    {
                        // The receiver exists until all threads are done.
                        let _ = send.send((index, self.mode(mode)));
                    }
                });
            }
            drop(send);
            if prints {
                output::text(&report::ktap_head(planned))?;
            }
            let mut printed = 0;
            for (index, of_mode) in receive {
                done[index] = Some(of_mode);
                while let Some(of_mode) = done.get_mut(printed).and_then(Option::take) {
                    printed += 1;
                    for group in of_mode {
                        groups.push(group);
                        if prints {
                            output::text(&report::ktap_group(&groups[groups.len() - 1], groups.len()))?;
                        }
                    }
                }
            }
            Ok::<(), Failure>(())
        })?;
        Ok(groups)
    }

    /// The topics to run.
    fn planned(&self) -> impl Iterator<Item = &'static dyn Topic> {
        let bench = self.bench(self.kernel, None, None);
        let chosen = self.topics.iter().copied().filter(|topic| self.named || topic.is_default(&bench));
        chosen.collect::<Vec<_>>().into_iter()
    }

    fn bench<'b>(
        &'b self,
        kernel: &'b dyn Boots,
        baseline: Option<&'b dyn Boots>,
        save: Option<&'b (dyn Fn(ModeRecord) + Sync)>,
    ) -> Bench<'b> {
        let baseline = baseline.or_else(|| self.baseline.map(|guests| guests as &dyn Boots));
        let (against, thresholds) = (self.against, self.thresholds);
        Bench { kernel, baseline, against, seed: self.seed, shrinks: self.shrinks, save, thresholds }
    }

    /// Runs the topics of one mode, which share boots.
    fn mode(&self, mode: &Mode) -> Vec<Group> {
        let kernel = Remembering::new(self.kernel);
        let baseline = self.baseline.map(Remembering::new);
        let save = |record: ModeRecord| {
            let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
            if records.iter().all(|known| (&known.machine, &known.mode) != (&record.machine, &record.mode)) {
                records.push(record);
            }
        };
        let save: Option<&(dyn Fn(ModeRecord) + Sync)> = if self.keeps { Some(&save) } else { None };
        let bench = self.bench(&kernel, baseline.as_ref().map(|kept| kept as &dyn Boots), save);
        let group = |topic: &'static dyn Topic| {
            let started = Instant::now();
            let tests = self.topic(&bench, mode, topic);
            Group {
                machine: mode.machine.clone(),
                mode: mode.name.clone(),
                topic: topic.name().to_owned(),
                seconds: started.elapsed().as_secs_f64(),
                tests,
            }
        };
        self.planned().map(group).collect()
    }

    fn topic(&self, bench: &Bench<'_>, mode: &Mode, tested: &'static dyn Topic) -> Vec<Test> {
        if !tested.applies(mode) {
            return vec![Test::skip("mode", format!("{} is not about {}", tested.name(), mode.name))];
        }
        let release = self.kernel.release();
        if !mode.exists_in(release) {
            return vec![Test::skip("mode", format!("{release} does not have {}", mode.name))];
        }
        if let Some(config) = self.config {
            let mut missing = config.missing_for(mode);
            missing.extend(tested.options().iter().filter(|option| !config.has(option)));
            if !missing.is_empty() {
                return vec![Test::skip(
                    "mode",
                    format!("the kernel's configuration lacks {}", missing.join(", ")),
                )];
            }
        }
        if let Some(config) = self.config
            && self.kernel.kernel.modules.is_none()
            && let modules = config.modules_for(mode)
            && !modules.is_empty()
        {
            let why =
                format!("{} is a module, and no modules were found (--modules-dir)", modules.join(", "));
            return vec![Test::skip("mode", why)];
        }
        let hung = || self.hung.lock().unwrap_or_else(PoisonError::into_inner);
        // Such a boot takes minutes, so a kernel that hangs before its init in one mode is not
        // tried in the others.
        if let Some(place) = &*hung() {
            return vec![Test::cannot_tell("boot", format!("not tried: the kernel hung in {place}"))];
        }
        match tested.run(bench, mode) {
            Ok(tests) if self.config.is_none() && tests.first().is_some_and(topic::has_no_driver) => {
                let why = "the kernel has no driver in this mode, and its configuration is not known";
                vec![Test::cannot_tell("driver", why)]
            }
            Ok(tests) => tests,
            Err(CannotTell::Boot { why, last, hangs }) => {
                if hangs {
                    hung().get_or_insert_with(|| format!("{}:{}", mode.machine, mode.name));
                }
                let test = Test::cannot_tell("boot", format!("the kernel did not reach the test: {why}"));
                vec![Test { details: last.lines().map(str::to_owned).collect(), ..test }]
            }
            Err(why) => vec![Test::cannot_tell("boot", why.to_string())],
        }
    }
}
