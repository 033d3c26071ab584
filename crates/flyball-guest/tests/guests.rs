//! Real kernels, booted: what drivers bind to, what they answer, and what their decisions do to guest time and energy.
//!
//! Kernels and the emulator come from the cache that `flyball guest fetch` fills. What is not there is skipped, and
//! how much was is said. By default the newest kernel is booted; `FLYBALL_GUEST_TESTS=all` boots
//! all of them.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use flyball_guest::{
    Interface,
    cache::Cache,
    guest::{self, Request},
    initramfs::JobFile,
    machine::Driver,
    qemu::Qemu,
    run::{End, Kept, Outlets},
};

/// One emulator at a time.
static EMULATOR: Mutex<()> = Mutex::new(());

struct Guest {
    cache: Cache,
    _turn: MutexGuard<'static, ()>,
}

struct Ended {
    out: String,
    err: String,
    end: End,
}

impl Guest {
    /// A turn at the emulator, if everything that a guest needs is there.
    fn new(test: &str) -> Option<(Guest, Vec<String>)> {
        let cache = Cache::of_user();
        let why = match (Qemu::find(&cache), guest::find_plugin()) {
            (Err(e), _) | (_, Err(e)) => Some(e.to_string()),
            _ if cache.kernel_versions().is_empty() => Some("no kernels in the cache".to_owned()),
            _ => None,
        };
        if let Some(why) = why {
            eprintln!("skipped: 1 ({test}): {why}");
            return None;
        }
        let mut kernels = cache.kernel_versions();
        if std::env::var_os("FLYBALL_GUEST_TESTS").is_none_or(|value| value != "all") && kernels.len() > 1 {
            eprintln!("skipped: {} of {} kernels ({test})", kernels.len() - 1, kernels.len());
            kernels = vec![kernels.pop().unwrap_or_default()];
        }
        let turn = EMULATOR.lock().unwrap_or_else(PoisonError::into_inner);
        Some((Guest { cache, _turn: turn }, kernels))
    }

    fn run(&self, request: &Request) -> Ended {
        let (out, err) = (Kept::default(), Kept::default());
        let outlets = Outlets { out: Box::new(out.clone()), err: Box::new(err.clone()), console: None };
        let end = guest::run(&self.cache, request, outlets).expect("the guest starts");
        Ended { out: out.text(), err: err.text(), end }
    }
}

/// The values that a guest's command printed as `name=value`.
fn value(ended: &Ended, name: &str) -> String {
    let found = ended.out.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    found
        .unwrap_or_else(|| panic!("no {name} in {}\n{}\n{}", ended.out, ended.err, ended.end.last_words(20)))
        .to_owned()
}

fn number(ended: &Ended, name: &str) -> f64 {
    value(ended, name).parse().unwrap_or_else(|_| panic!("{name} is no number: {}", ended.out))
}

const FACTS: &str = "cd /sys/devices/system/cpu
for f in cpufreq/policy0/scaling_driver cpufreq/policy0/scaling_governor cpufreq/policy0/cpuinfo_min_freq \
    cpufreq/policy0/cpuinfo_max_freq amd_pstate/status intel_pstate/status cpufreq/boost intel_pstate/no_turbo; do
    [ -r $f ] && echo ${f##*/}=$(cat $f)
done
dmesg | grep -E 'Oops|BUG:|Call Trace|Firmware Bug|unchecked MSR' | head -3 >&2; true";

/// Driver, machine and interface, and what the policies and the driver's switch say then.
const MATRIX: &[(&str, &str, Option<Interface>, &str, &str)] = &[
    ("amd-pstate=passive", "ryzen-5750g", None, "amd-pstate", "passive"),
    ("amd-pstate=active", "ryzen-5750g", None, "amd-pstate-epp", "active"),
    ("amd-pstate=guided", "ryzen-5750g", None, "amd-pstate", "guided"),
    ("amd-pstate=passive", "ryzen-5750g", Some(Interface::CppcMailbox), "amd-pstate", "passive"),
    ("amd-pstate=active", "ryzen-5750g", Some(Interface::CppcMailbox), "amd-pstate-epp", "active"),
    ("acpi-cpufreq", "ryzen-5750g", None, "acpi-cpufreq", ""),
    ("intel_pstate", "sst-guide", None, "intel_pstate", "active"),
    ("intel_pstate=passive", "sst-guide", None, "intel_cpufreq", "passive"),
    ("intel_pstate=no_hwp", "sst-guide", None, "intel_pstate", "active"),
];

#[test]
fn drivers_bind() {
    let Some((guest, kernels)) = Guest::new("drivers_bind") else { return };
    for kernel in &kernels {
        for (driver, machine, interface, bound, status) in MATRIX {
            // Before 6.3 there was the passive mode alone, and no file that says so.
            let old = kernel.starts_with("6.1.");
            if old && driver.starts_with("amd-pstate") && *driver != "amd-pstate=passive" {
                continue;
            }
            let mut request = Request::new(machine, kernel, &[FACTS]);
            request.driver = Driver::parse(driver).expect("a driver");
            request.interface = *interface;
            let what = format!("{kernel} {machine} {driver} {interface:?}");
            let ended = guest.run(&request);
            assert_eq!(ended.end.exit_code(), 0, "{what}: {}\n{}", ended.err, ended.end.last_words(20));
            assert_eq!(value(&ended, "scaling_driver"), *bound, "{what}");
            if !(status.is_empty() || old && driver.starts_with("amd")) {
                assert_eq!(value(&ended, "status"), *status, "{what}");
            }
            // A driver that is refused its registers says so in the log.
            assert_eq!(ended.err, "", "{what}");
            let (least, most) = (number(&ended, "cpuinfo_min_freq"), number(&ended, "cpuinfo_max_freq"));
            let expected = match *bound {
                "amd-pstate" | "amd-pstate-epp" => (423_000.0, 4_683_000.0),
                "acpi-cpufreq" => (1_400_000.0, 4_680_000.0),
                _ => (800_000.0, 3_200_000.0),
            };
            assert!((least - expected.0).abs() < 25_000.0, "{what}: {least}");
            assert!((most - expected.1).abs() < 25_000.0, "{what}: {most}");
        }
    }
}

#[test]
fn a_guest_says_how_it_ended() {
    let Some((guest, kernels)) = Guest::new("a_guest_says_how_it_ended") else { return };
    let kernel = kernels.last().expect("a kernel");
    let dir = tempfile::tempdir().expect("a directory");
    let mut request =
        Request::new("ryzen-5750g", kernel, &["echo good; echo bad >&2; echo kept > out/file; exit 7"]);
    request.out = Some(dir.path().to_owned());
    let ended = guest.run(&request);
    assert_eq!((ended.out.as_str(), ended.err.as_str(), ended.end.exit_code()), ("good\n", "bad\n", 7));
    assert_eq!(fs::read_to_string(dir.path().join("file")).expect("the file"), "kept\n");

    let mut request = Request::new("ryzen-5750g", kernel, &["true"]);
    request.append = vec!["rdinit=/nowhere".into(), "panic=1".into()];
    let ended = guest.run(&request);
    assert_eq!(ended.end.exit_code(), 125);
    assert!(ended.end.last_words(40).contains("panic"), "{}", ended.end.last_words(40));

    let mut request = Request::new("ryzen-5750g", kernel, &["echo begun; sleep 1000"]);
    request.timeout = Some(Duration::from_secs(40));
    let ended = guest.run(&request);
    assert_eq!((ended.out.as_str(), ended.end.exit_code()), ("begun\n", 124));
}

/// A loop whose time is measured with the kernel's clock, in nanoseconds.
const LOOP: &str = "P=/sys/devices/system/cpu/cpufreq
now() { sed -n 's/^now at \\([0-9]*\\) nsecs$/\\1/p' /proc/timer_list | head -1; }
work() { i=0; while [ $i -lt 6000 ]; do i=$((i + 1)); done; }
all() { for p in $P/policy*; do echo $2 > $p/$1; done; }
timed() { sleep 0.05; work; a=$(now); work; b=$(now); echo $1=$((b - a)); echo $1.khz=$(cat $P/policy0/scaling_cur_freq); }
";

/// A program that does nothing but count down, ten instructions a turn: a shell's loop varies by a percent.
fn fixed_loop(turns: u32) -> Vec<u8> {
    const AT: u64 = 0x40_0000;
    let mut code = vec![0x48, 0xc7, 0xc1]; // mov $turns,%rcx
    code.extend(turns.to_le_bytes());
    code.extend([0x90; 8]); // nop, eight times
    code.extend([0x48, 0xff, 0xc9]); // dec %rcx
    code.extend([0x75, 0xf3]); // jnz to the first nop
    code.extend([0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 0x05]); // exit(0)
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    elf.extend((AT + 120).to_le_bytes()); // entry
    elf.extend(64u64.to_le_bytes()); // program headers
    elf.extend([0; 12]); // section headers, flags
    elf.extend([64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
    elf.extend([1, 0, 0, 0, 5, 0, 0, 0]); // load, read and execute
    let size = 120 + code.len() as u64;
    for word in [0, AT, AT, size, size, 0x1000] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend(code);
    elf
}

#[test]
fn guest_time_follows_what_is_asked_for() {
    let Some((guest, kernels)) = Guest::new("guest_time_follows_what_is_asked_for") else { return };
    let kernel = kernels.last().expect("a kernel");
    let script = format!(
        "{LOOP}
all scaling_governor userspace
for f in 1000000 2000000 3000000 4000000; do all scaling_setspeed $f; timed $f; done
all scaling_governor performance; timed fast
all scaling_governor powersave; timed slow
all scaling_governor performance
echo 0 > /sys/devices/system/cpu/cpufreq/boost; timed nominal; echo 1 > /sys/devices/system/cpu/cpufreq/boost
all scaling_max_freq 2000000; timed limited"
    );
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("loop");
    fs::write(&program, fixed_loop(12_000_000)).expect("the loop");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("the loop");
    let script =
        script.replace("sleep 0.05; work;", "sleep 0.05;").replace("a=$(now); work;", "a=$(now); ./loop;");
    let mut request = Request::new("ryzen-5750g", kernel, &[&script]);
    request.driver = Driver::AmdPstate("passive");
    request.files = vec![JobFile { source: program, name: "loop".into() }];
    request.cpus = 1;
    request.closed = true;
    let ended = guest.run(&request);
    assert_eq!(ended.end.exit_code(), 0, "{}", ended.err);
    // Time times frequency is the cycles of the loop and of the kernel's ticks in that time. The loop's are the same
    // at every frequency, the ticks' grow with the time: two runs give both, and all others must agree.
    let time = |name: &str| number(&ended, name);
    let cycles = |name: &str| time(name) * number(&ended, &format!("{name}.khz"));
    let ticks = (cycles("slow") - cycles("fast")) / (time("slow") - time("fast"));
    assert!((0.0..60_000.0).contains(&ticks), "{ticks} cycles a millisecond for ticks");
    let own = cycles("fast") - ticks * time("fast");
    for name in ["1000000", "2000000", "3000000", "4000000", "nominal", "limited"] {
        let error = (cycles(name) - ticks * time(name)) / own - 1.0;
        assert!(error.abs() < 0.01, "{name}: {error:+.4} in {}", ended.out);
    }
    // What was asked for, to within a performance level (28 MHz) and a step of the silicon (25 MHz).
    for khz in ["1000000", "2000000", "3000000", "4000000"] {
        let got = number(&ended, &format!("{khz}.khz"));
        let asked: f64 = khz.parse().expect("a number");
        // The governors do not go below the lowest non-linear frequency, 1100 MHz.
        assert!((got - asked.max(1_100_000.0)).abs() < 54_000.0, "{khz}: {got}");
    }
    assert!(
        number(&ended, "fast.khz") > 4_600_000.0 && number(&ended, "slow.khz") < 1_200_000.0,
        "{}",
        ended.out
    );
    assert!((number(&ended, "nominal.khz") - 3_300_000.0).abs() < 54_000.0, "{}", ended.out);
    assert!((number(&ended, "limited.khz") - 2_000_000.0).abs() < 54_000.0, "{}", ended.out);
}

#[test]
fn energy_is_the_models_power_over_time_and_runs_repeat() {
    let Some((guest, kernels)) = Guest::new("energy_is_the_models_power_over_time_and_runs_repeat") else {
        return;
    };
    let kernel = kernels.last().expect("a kernel");
    let script = format!(
        "{LOOP}
E=/sys/class/powercap/intel-rapl:0/energy_uj
all scaling_governor performance
echo before=$(now); echo before.uj=$(cat $E)
work & work; wait
sleep 0.2
echo after=$(now); echo after.uj=$(cat $E)"
    );
    let dir = tempfile::tempdir().expect("a directory");
    let run = |name: &str| {
        let mut request = Request::new("ryzen-5750g", kernel, &[&script]);
        request.driver = Driver::AmdPstate("passive");
        request.modules = vec!["intel_rapl_msr".into()];
        request.cpus = 2;
        request.closed = true;
        request.out = Some(dir.path().join(name));
        guest.run(&request)
    };
    let (first, second) = (run("first"), run("second"));
    assert_eq!(first.end.exit_code(), 0, "{}", first.err);
    let rows = fs::read_to_string(dir.path().join("first/silicon.log")).expect("the silicon's log");
    let (from, to) = (number(&first, "before") / 1e6, number(&first, "after") / 1e6);
    // The kernel's clock starts when the kernel does; the silicon's when the machine does.
    let millijoules = |shift: f64| -> f64 {
        let fields = rows.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let mut fields = line.split(' ').map(|field| field.parse::<f64>().unwrap_or(0.0));
            (fields.next().unwrap_or(0.0), fields.next().unwrap_or(0.0))
        });
        fields.filter(|(ms, _)| *ms >= from + shift && *ms < to + shift).map(|(_, watts)| watts).sum()
    };
    let last_ms =
        rows.lines().last().and_then(|line| line.split(' ').next()?.parse::<f64>().ok()).unwrap_or(0.0);
    let uptime = first.end.uptimes[2].expect("the end's uptime") * 1000.0;
    let shift = (last_ms - uptime).max(0.0) - 60.0; // from the end said to the machine off: some 60 ms
    let measured = (number(&first, "after.uj") - number(&first, "before.uj")) / 1000.0;
    let modelled = millijoules(shift.max(0.0));
    assert!((measured / modelled - 1.0).abs() < 0.05, "{measured} mJ, the model says {modelled}");
    assert_eq!(first.out, second.out);
    for name in ["registers.log", "silicon.log"] {
        let read = |run: &str| fs::read(dir.path().join(run).join(name)).expect("a log");
        assert!(read("first") == read("second"), "{name} differs between two runs with one seed");
    }
}
