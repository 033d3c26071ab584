//! The closed loop: compares the effect of a real driver's decisions on guest time, frequency,
//! energy and heat with flyball-silicon, computed here without a guest from the same registers.
//!
//! Each machine has one boot with many checks. Kernels and the emulator come from the cache that
//! `flyball guest fetch` fills; missing ones are skipped and counted.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use crate::common::{Ended, Guest, number};
use flyball_guest::{fixed_loop, guest::Request, initramfs::JobFile, machine::Driver};
use flyball_guest_plugin::machine::Reduction;
use flyball_silicon::{Activity, MachineSpec, Silicon, msr};

/// Functions of the guest's script. `timed NAME` runs the fixed loop on CPU 0, and prints its time
/// in ns of the guest's clock, and the frequency that the kernel then reports.
const SCRIPT: &str = "P=/sys/devices/system/cpu/cpufreq
now() { { read -r x; read -r x; read -r x x n x; } < /proc/timer_list; }
all() { for p in $P/policy*; do echo $2 > $p/$1; done; }
timed() {
    now; a=$n; taskset 1 ./loop; now; echo $1=$((n - a))
    echo $1.khz=$(taskset 1 cat $P/policy0/scaling_cur_freq)
}
E=/sys/class/powercap/intel-rapl:0/energy_uj
";

/// A guest of `machine` with the fixed loop, in the closed loop.
fn request(machine: &str, kernel: &str, dir: &Path, script: &str) -> Request {
    let program = dir.join("loop");
    fs::write(&program, fixed_loop::program(5_000_000)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut request = Request::new(machine, kernel, &[&format!("{SCRIPT}{script}")]);
    request.files = vec![JobFile { source: program, name: "loop".into() }];
    request.modules = vec!["?intel_rapl_msr".into(), "?cpufreq_ondemand".into(), "?cpufreq_powersave".into()];
    request.closed = true;
    request
}

/// The silicon's frequency if CPU 0 is busy for a while and these registers were written on every
/// CPU, kHz.
fn model(toml: &str, cpus: u32, writes: &[(u32, u64)]) -> f64 {
    let (spec, _) = Reduction { toml: toml.to_owned(), cpus, interface: None }.make().unwrap();
    let mut silicon = Silicon::new(spec, 0).unwrap();
    for cpu in 0..silicon.cpus() {
        for (register, value) in writes {
            silicon.write_msr(cpu, *register, *value).unwrap();
        }
    }
    let mut activity = vec![Activity::idle(0); silicon.cpus()];
    activity[0] = Activity::busy();
    for _ in 0..400 {
        silicon.advance(1_000_000, &activity);
    }
    f64::from(silicon.frequency(0).0)
}

/// The fixed loop's time at each setting, without the kernel's ticks.
struct Times<'a> {
    ended: &'a Ended,
    /// Cycles of the kernel's ticks per nanosecond.
    ticks: f64,
    /// Cycles of the loop itself.
    own: f64,
}

impl<'a> Times<'a> {
    /// Time times frequency is the cycles of the loop plus those of the ticks in that time. The
    /// loop's cycles are the same at every frequency; the ticks' grow with time. Two runs give
    /// both, and all others must agree.
    fn new(ended: &'a Ended, fast: &str, slow: &str) -> Times<'a> {
        let time = |name: &str| number(ended, name);
        let cycles = |name: &str| time(name) * number(ended, &format!("{name}.khz")) / 1e6;
        let ticks = (cycles(slow) - cycles(fast)) / (time(slow) - time(fast));
        assert!((-0.01..0.06).contains(&ticks), "{ticks} cycles a ns for ticks: {}", ended.out);
        Times { ended, ticks, own: cycles(fast) - ticks * time(fast) }
    }

    /// The loop's frequency, kHz, from its time alone.
    fn khz(&self, name: &str) -> f64 {
        (self.own / number(self.ended, name) + self.ticks) * 1e6
    }

    /// Checks that the loop ran at `khz` to within 1 %, and that the kernel reports this.
    fn check(&self, name: &str, khz: f64) {
        self.near(name, khz, 0.01, 0.01);
    }

    /// Like `check`, if the firmware chooses by load: it reacts with a delay, and may alternate
    /// between two frequencies, of which the kernel shows the last.
    fn chosen(&self, name: &str, khz: f64) {
        self.near(name, khz, 0.04, 0.15);
    }

    fn near(&self, name: &str, khz: f64, ran_share: f64, said_share: f64) {
        let (ran, said) = (self.khz(name), number(self.ended, &format!("{name}.khz")));
        assert!(
            (ran / khz - 1.0).abs() < ran_share && (said / khz - 1.0).abs() < said_share,
            "{name}: ran {ran:.0}, said {said}, wanted {khz}: {}",
            self.ended.out
        );
    }
}

#[test]
fn amd_settings_act() {
    let Some((guest, kernels)) = Guest::new("amd_settings_act") else { return };
    let kernel = kernels.last().unwrap();
    let script = "
S=/sys/devices/system/cpu/amd_pstate/status; B=/sys/devices/system/cpu/cpufreq/boost
all scaling_governor userspace
for f in 1500000 2000000 3000000 4000000; do all scaling_setspeed $f; timed $f; done
all scaling_setspeed 2500000; read -r start < $E
./loop & ./loop; wait; sleep 0.1; taskset 1 ./loop; sleep 0.2
read -r end < $E; all scaling_setspeed 1500000; echo start.uj=$start; echo end.uj=$end
for g in performance powersave ondemand schedutil; do all scaling_governor $g; timed $g; done
all scaling_governor performance; echo 0 > $B; timed nominal; echo 1 > $B
all scaling_max_freq 2000000; timed limited; all scaling_max_freq 9000000
all scaling_governor powersave; all scaling_min_freq 3000000; timed floor; all scaling_min_freq 0
echo active > $S; all scaling_governor powersave; all scaling_min_freq 0
for e in performance balance_performance balance_power power; do all energy_performance_preference $e; timed $e.epp; done";
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str| {
        let mut request = request("ryzen-5750g", kernel, dir.path(), script);
        request.driver = Driver::AmdPstate("passive");
        request.cpus = 2;
        request.out = Some(dir.path().join(name));
        guest.run(&request)
    };
    let (first, second) = (run("first"), run("second"));
    first.must_exit(0, "the first run");
    assert_eq!(first.err, "", "{}", first.out);
    // Equal seeds, machines and kernels must give equal bytes.
    assert_eq!(first.out, second.out);
    for name in ["registers.log", "silicon.log"] {
        let read = |run: &str| fs::read(dir.path().join(run).join(name)).unwrap();
        assert!(read("first") == read("second"), "{name} differs between two runs with one seed");
    }

    let toml = MachineSpec::builtin_text("ryzen-5750g").unwrap();
    // CPPC_REQ: highest, lowest and desired level, preference. 117 levels are 3300 MHz.
    let level = |khz: f64| (khz / 3_300_000.0 * 117.0).ceil().min(166.0) as u64;
    let asked = |max: u64, min: u64, desired: u64, epp: u64| {
        let request = max | min << 8 | desired << 16 | epp << 24;
        model(toml, 2, &[(msr::AMD_CPPC_ENABLE, 1), (msr::AMD_CPPC_REQ, request)])
    };
    let times = Times::new(&first, "performance", "powersave");
    for khz in ["1500000", "2000000", "3000000", "4000000"] {
        let wanted: f64 = khz.parse().unwrap();
        times.check(khz, asked(166, 39, level(wanted), 0));
        // The request, to within a performance level and a step of the silicon.
        assert!((times.khz(khz) - wanted).abs() < 54_000.0, "{khz}: {}", times.khz(khz));
    }
    times.check("performance", asked(166, 166, 166, 0));
    // The governors do not go below the lowest non-linear level, 39, which the driver converts to
    // 1100.3 MHz and rounds up.
    times.check("powersave", asked(40, 40, 40, 0));
    times.check("nominal", asked(117, 117, 117, 0));
    times.check("limited", asked(71, 71, 71, 0));
    times.check("floor", asked(level(3_000_000.0), level(3_000_000.0), level(3_000_000.0), 0));
    // A governor reacts to load with a delay: the first part of a tenth of a second is slow,
    // depending on when it begins.
    for (governor, least) in [("ondemand", 3_500_000.0), ("schedutil", 3_500_000.0)] {
        let khz = times.khz(governor);
        assert!((least..4_680_000.0).contains(&khz), "a busy CPU under {governor}: {khz}");
    }
    let mut before = f64::INFINITY;
    for (preference, epp) in
        [("performance", 0), ("balance_performance", 0x80), ("balance_power", 0xbf), ("power", 0xff)]
    {
        let name = format!("{preference}.epp");
        times.chosen(&name, asked(166, 39, 0, epp));
        assert!(times.khz(&name) < before + 1.0, "{name} is no slower than what comes before it");
        before = times.khz(&name);
    }
    assert!(before < 0.9 * times.khz("performance.epp"), "the preference makes a difference: {}", first.out);
    energy(&first, &dir.path().join("first"));
}

/// Powercap's energy between two register writes must equal the model's power times the time
/// between them.
fn energy(ended: &Ended, out: &Path) {
    // The two times at which all CPUs' requests change for the measurement, s: 2.5 GHz is level 89.
    let log = fs::read_to_string(out.join("registers.log")).unwrap();
    let writes: Vec<(f64, u64)> = log
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let time = words.next()?.parse().ok()?;
            let value = words.nth(3)?.strip_prefix("0x")?;
            line.contains("wrmsr 0xc00102b3 ").then_some((time, u64::from_str_radix(value, 16).ok()?))
        })
        .collect();
    let begin = writes.iter().position(|(_, value)| value >> 16 & 0xff == 89).expect("level 89 is asked for");
    let end = (begin..writes.len()).find(|at| writes[*at].1 >> 16 & 0xff != 89).expect("and left again");
    let (from, to) = (writes[begin].0 * 1000.0, writes[end].0 * 1000.0);
    assert!(to - from > 300.0, "{from} to {to} ms");
    // Mean power of the interval that ends at each line, ms and W.
    let log = fs::read_to_string(out.join("silicon.log")).unwrap();
    let mut rows = log.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let mut fields = line.split(' ').map(|field| field.parse::<f64>().unwrap());
        (fields.next().unwrap(), fields.next().unwrap())
    });
    let mut last = rows.next().unwrap().0;
    let mut millijoules = 0.0;
    for (ms, watts) in rows {
        let part = (ms.min(to) - last.max(from)).max(0.0);
        millijoules += part * watts;
        last = ms;
    }
    let counted = (number(ended, "end.uj") - number(ended, "start.uj")) / 1000.0;
    let error = counted / millijoules - 1.0;
    assert!(error.abs() < 0.01, "{counted} mJ counted, {millijoules} by the model: {error:+.4}");
}

#[test]
fn intel_settings_act() {
    let Some((guest, kernels)) = Guest::new("intel_settings_act") else { return };
    let kernel = kernels.last().unwrap();
    let script = "
I=/sys/devices/system/cpu/intel_pstate
all scaling_governor performance; timed performance
echo 1 > $I/no_turbo; timed no_turbo; echo 0 > $I/no_turbo
echo 50 > $I/max_perf_pct; timed half; echo 100 > $I/max_perf_pct
all scaling_governor powersave
for e in performance balance_performance balance_power power; do all energy_performance_preference $e; timed $e.epp; done
all scaling_max_freq 1200000; timed limited; all scaling_max_freq 9000000
all scaling_min_freq 3000000; timed floor; all scaling_min_freq 0
all scaling_governor performance
for c in 2 4 8; do (for i in 1 2 3; do taskset $c ./loop; done) & done
timed hot; timed hotter
for h in /sys/class/hwmon/hwmon*; do [ \"$(cat $h/name)\" = coretemp ] && echo celsius=$(cat $h/temp1_input); done
wait";
    let dir = tempfile::tempdir().unwrap();
    // The machine with a small cooler that warms up quickly: it suffices for one busy CPU, but not
    // for four.
    let toml = MachineSpec::builtin_text("sst-guide").unwrap();
    let toml = toml
        .replace("sink_k_per_w = 0.16", "sink_k_per_w = 0.85")
        .replace("sink_j_per_k = 250", "sink_j_per_k = 0.1");
    let machine = dir.path().join("small-cooler.toml");
    fs::write(&machine, &toml).unwrap();
    let mut request = request(machine.to_str().unwrap(), kernel, dir.path(), script);
    request.modules.push("?coretemp".into());
    request.out = Some(dir.path().join("out"));
    let ended = guest.run(&request);
    ended.must_exit(0, "a run on closed silicon");
    assert_eq!(ended.err, "", "{}", ended.out);
    let asked = |max: u64, min: u64, epp: u64| {
        model(&toml, 4, &[(msr::PM_ENABLE, 1), (msr::HWP_REQUEST, min | max << 8 | epp << 24)])
    };
    let times = Times::new(&ended, "performance", "limited");
    times.check("performance", asked(32, 32, 0));
    times.check("no_turbo", 2_600_000.0);
    times.check("half", asked(16, 16, 0));
    times.chosen("limited", asked(12, 8, 0xff));
    times.chosen("floor", asked(32, 30, 0xff));
    let mut before = f64::INFINITY;
    for (preference, epp) in
        [("performance", 0), ("balance_performance", 0x80), ("balance_power", 0xc0), ("power", 0xff)]
    {
        let name = format!("{preference}.epp");
        times.chosen(&name, asked(32, 8, epp));
        assert!(times.khz(&name) < before + 1.0, "{name} is no slower than what comes before it");
        before = times.khz(&name);
    }
    assert!(before < 0.9 * times.khz("performance.epp"), "the preference makes a difference: {}", ended.out);
    // Heat: slower than with one busy CPU, and no hotter than allowed.
    assert!(times.khz("hotter") < 0.9 * times.khz("performance"), "{}", ended.out);
    let log = fs::read_to_string(dir.path().join("out/silicon.log")).unwrap();
    let hottest =
        log.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<f64>().ok()).fold(0.0, f64::max);
    assert!((103.0..109.0).contains(&hottest), "{hottest} C, where 105 are allowed");
    let seen = number(&ended, "celsius") / 1000.0;
    assert!((hottest - seen).abs() < 12.0, "coretemp says {seen} C, {hottest} were the most");
}
