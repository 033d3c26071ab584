//! Tests unusual machines: without cpufreq, with offline CPUs, with files that are empty,
//! truncated, not text, or from the future. Each is a small tree made here. Commands must print a
//! clear message with the path, return the documented exit code, and never panic.

use std::{
    fs,
    io::{BufReader, Read as _, Write as _},
    path::Path,
};

use flyball_files::{ZstdReader, ZstdWriter};
use flyball_testing::{Ran, Tree, archive, flyball};
use serde_json::Value;

const CPU: &str = "sys/devices/system/cpu";

/// A machine of four CPUs with intel_pstate, in a folder of its own.
struct Machine {
    tree: Tree,
}

impl Machine {
    fn bare() -> Machine {
        let machine = Machine { tree: Tree::new() };
        machine.put("online", "0-3\n");
        machine.put("present", "0-3\n");
        machine.put("possible", "0-7\n");
        machine
    }

    fn new() -> Machine {
        let machine = Machine::bare();
        let mut cpuinfo = String::new();
        for cpu in 0..4 {
            cpuinfo.push_str(&format!(
                "processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Test CPU\n\
                 stepping\t: 1\nphysical id\t: 0\ncore id\t\t: {}\nflags\t\t: fpu hwp\n\n",
                cpu / 2
            ));
            for (file, text) in [
                ("related_cpus", cpu.to_string()),
                ("scaling_driver", "intel_pstate".to_owned()),
                ("scaling_governor", "powersave".to_owned()),
                ("scaling_available_governors", "performance powersave ".to_owned()),
                ("scaling_min_freq", "800000".to_owned()),
                ("scaling_max_freq", "3000000".to_owned()),
                ("cpuinfo_min_freq", "800000".to_owned()),
                ("cpuinfo_max_freq", "3000000".to_owned()),
                ("scaling_cur_freq", "1200000".to_owned()),
                ("scaling_setspeed", "<unsupported>".to_owned()),
            ] {
                machine.put(&format!("cpufreq/policy{cpu}/{file}"), format!("{text}\n"));
            }
        }
        machine.put("intel_pstate/status", "active\n");
        machine.put("intel_pstate/no_turbo", "1\n");
        machine.tree.put("proc/cpuinfo", cpuinfo);
        machine
    }

    fn put(&self, path: &str, text: impl AsRef<[u8]>) {
        self.tree.put(Path::new(CPU).join(path), text);
    }

    fn remove(&self, path: &str) {
        fs::remove_file(self.tree.path().join(CPU).join(path)).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        run(self.tree.path(), arguments)
    }

    /// Runs and checks the exit code.
    #[track_caller]
    fn expect(&self, code: i32, arguments: &[&str]) -> Ran {
        let ran = self.run(arguments);
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.text());
        ran
    }

    #[track_caller]
    fn get(&self, knob: &str) -> Value {
        self.expect(0, &["get", knob, "--json"]).json()
    }
}

fn run(machine: &Path, arguments: &[&str]) -> Ran {
    Ran::of(flyball!().arg("-M").arg(machine).args(arguments))
}

#[test]
fn a_machine_without_cpufreq_says_so_and_what_to_do() {
    let machine = Machine::bare();
    let words = machine.expect(0, &["show"]).err;
    assert!(words.contains("no cpufreq driver") && words.contains("/proc/cmdline"), "{words}");
    // On s390, the firmware offers no P-states.
    machine.tree.put("proc/cpuinfo", "vendor_id       : IBM/S390\n# processors    : 4\n");
    let words = machine.expect(0, &["show"]).err;
    assert!(words.contains("s390") && !words.contains("CPPC"), "{words}");
    let words = machine.run(&["doctor"]).out;
    assert!(words.contains("No cpufreq driver") && !words.contains("CPPC"), "{words}");
    let got = machine.expect(4, &["get", "governor"]);
    assert_eq!(got.out, "");
    assert!(got.err.contains("governor is absent"), "{}", got.err);
    let values = machine.expect(4, &["get", "governor", "--json"]).json();
    assert!(values[0]["value"].is_null() && values[0]["absent"] == "no cpufreq driver", "{values}");
}

#[test]
fn a_policy_of_two_cpus_is_one_in_a_kernel_before_policies() {
    let machine = Machine::bare();
    for (cpu, file, value) in [
        (0, "scaling_driver", "acpi-cpufreq\n"),
        (0, "related_cpus", "0 1\n"),
        (0, "scaling_governor", "ondemand\n"),
        (1, "related_cpus", "0 1\n"),
    ] {
        machine.put(&format!("cpu{cpu}/cpufreq/{file}"), value);
    }
    assert_eq!(machine.run(&["show", "--json"]).json()["machine"]["policies"], 1);
    let got = machine.run(&["get", "governor", "--json"]).json();
    assert_eq!((&got[0]["value"], &got[0]["cpus"]), (&"ondemand".into(), &"0,1".into()), "{got}");
}

#[test]
fn a_virtual_machine_is_told_to_go_to_its_host() {
    let machine = Machine::bare();
    machine.tree.put("proc/cpuinfo", "processor : 0\nvendor_id : AuthenticAMD\nflags : fpu hypervisor\n");
    let words = machine.run(&["show"]).err;
    assert!(words.contains("virtual machine") && words.contains("host"), "{words}");
}

/// For each file with content that no kernel prints: the exit code of a command that reads it, and
/// the words of the error.
#[test]
fn a_file_with_nonsense_is_an_error_with_its_path() {
    let files: &[(&str, &[u8], &str)] = &[
        ("cpufreq/policy2/scaling_governor", b"", "governor"),
        ("cpufreq/policy1/scaling_max_freq", b"30x\n", "max-freq"),
        ("cpufreq/policy1/scaling_max_freq", b"99999999999999999999999\n", "max-freq"),
        ("cpufreq/policy0/scaling_governor", b"\xff\xfe\n", "governor"),
        ("online", b"\xff", "online"),
    ];
    for (file, content, knob) in files {
        let machine = Machine::new();
        machine.put(file, content);
        let path = format!("/{CPU}/{file}");
        for command in [&["show", knob][..], &["get", knob], &["show"], &["show", "--json"]] {
            let ran = machine.expect(1, command);
            assert!(ran.err.contains(&path), "{command:?}: {}", ran.err);
        }
    }
    // The other values are shown.
    let machine = Machine::new();
    machine.put("cpufreq/policy2/scaling_governor", "");
    let rows = machine.expect(1, &["show", "governor", "--json"]).json();
    assert_eq!((&rows[0]["value"], &rows[0]["cpus"]), (&"powersave".into(), &"0,1,3".into()), "{rows}");
}

#[test]
fn values_from_the_future_are_shown_as_they_are() {
    let machine = Machine::new();
    machine.put("intel_pstate/status", "clairvoyant\n");
    machine.put("cpufreq/policy0/scaling_governor", "oracle\n");
    machine.put("cpufreq/policy0/energy_performance_preference", "adaptive(profile:eco)\n");
    assert_eq!(machine.get("driver-mode")[0]["value"], "clairvoyant");
    assert_eq!(machine.get("governor")[0]["value"], "oracle");
    assert_eq!(machine.get("epp")[0]["value"], "adaptive(profile:eco)");
    machine.expect(0, &["show"]);
}

#[test]
fn offline_cpus_are_told_apart() {
    let machine = Machine::new();
    machine.put("online", "0-2\n");
    machine.put("cpu3/online", "0\n");
    machine.put("cpufreq/policy3/scaling_governor", "");
    let out = machine.expect(0, &["show"]).out;
    assert_eq!(machine.run(&["show", "--json"]).json()["machine"]["online"], "0-2");
    assert!(out.lines().any(|line| line.starts_with("0-2") && line.contains("powersave")), "{out}");
    assert!(out.lines().any(|line| line.starts_with('3') && line.contains("offline")), "{out}");
    let online = machine.get("online");
    let states: Vec<bool> =
        online.as_array().unwrap().iter().map(|value| value["value"].as_bool().unwrap()).collect();
    assert_eq!(states, [true, true, true, false]);
}

#[test]
fn a_policy_of_several_cpus_is_one_place() {
    let machine = Machine::new();
    for policy in [1, 2, 3] {
        fs::remove_dir_all(machine.tree.path().join(CPU).join(format!("cpufreq/policy{policy}"))).unwrap();
    }
    machine.put("cpufreq/policy0/related_cpus", "0 1 2 3\n");
    let governor = machine.get("governor");
    assert_eq!(governor.as_array().unwrap().len(), 1);
    assert_eq!(governor[0]["cpus"], "0-3");
    assert_eq!(machine.run(&["show", "--json"]).json()["machine"]["policy_size"], 4);
}

#[test]
fn missing_lists_are_made_up_for() {
    let machine = Machine::new();
    for file in ["online", "present", "possible"] {
        machine.remove(file);
    }
    for cpu in 0..4 {
        machine.put(&format!("cpu{cpu}/power/energy_perf_bias"), "6\n");
    }
    assert_eq!(machine.get("epb").as_array().unwrap().len(), 4);
    let nothing = Tree::new();
    fs::create_dir_all(nothing.path().join("sys")).unwrap();
    assert_eq!(run(nothing.path(), &["show"]).code, 2);
}

#[test]
fn turbo_is_on_when_no_turbo_is_off() {
    let machine = Machine::new();
    assert_eq!(machine.get("turbo")[0]["value"], false);
    machine.put("intel_pstate/no_turbo", "0\n");
    assert_eq!(machine.get("turbo")[0]["value"], true);
}

#[test]
fn setspeed_without_the_userspace_governor_is_absent() {
    let machine = Machine::new();
    let values = machine.expect(4, &["get", "setspeed", "--json"]).json();
    assert!(values[0]["value"].is_null() && values[0]["absent"].is_string(), "{values}");
}

#[test]
fn mistakes_on_the_command_line_are_answered_with_what_is_right() {
    let machine = Machine::new();
    let cases: &[(&[&str], &str)] = &[
        (&["get", "govenor"], "did you mean 'governor'"),
        (&["get", "scaling_max_freq"], "did you mean 'max-freq'"),
        (&["show", "xyzzy"], "flyball explain"),
        (&["get", "governor", "-c", "0-"], "bad CPU selector '0-'"),
        (&["get", "governor", "-c", "7"], "this machine has 0-3"),
        (&["get", "governor", "-c", "package:9"], "possible here: 0"),
        (&["get", "governor", "-c", "type:P"], "all cores are of the same type"),
        (&["get", "governor", "-c", "planet:3"], "write CPUs as"),
        (&["get", "governor", "-c", "5-2"], "backwards"),
        (&["explain", "turboo"], "did you mean 'turbo'"),
    ];
    for (arguments, wanted) in cases {
        let ran = machine.expect(2, arguments);
        assert!(ran.err.contains(wanted) && ran.out.is_empty(), "{arguments:?}: {}", ran.text());
    }
}

#[test]
fn odd_words_of_a_command_line_do_not_reach_the_terminal_raw() {
    for word in ["b\u{1b}]0;title\u{7}.dat", "a\u{202e}tad"] {
        let ran = Ran::of(flyball!().args(["--color", "always", "trace", "report", "a.dat", word]));
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(!ran.err.contains(['\u{7}', '\u{202e}']) && !ran.err.contains("\u{1b}]"), "{:?}", ran.err);
    }
    let ran = Ran::of(flyball!().args(["quiet", "bench", "-n", "4294967296", "--", "spin", "1"]));
    assert_eq!(ran.code, 2, "{}", ran.err);
}

#[test]
fn selectors_name_cpus_by_what_they_are() {
    let machine = Machine::new();
    for (selector, cpus) in
        [("core:1", "2,3"), ("package:0", "0-3"), ("0-2:2", "0,2"), ("policy:1,3", "1,3"), ("online", "0-3")]
    {
        let out = machine.expect(0, &["get", "governor", "-c", selector]).out;
        assert_eq!(out, format!("governor  powersave  CPUs {cpus}\n"), "{selector}");
    }
}

#[test]
fn a_damaged_archive_is_refused() {
    let tree = Tree::new();
    tree.put("x.tar.zst", "no archive");
    for name in ["x.tar.zst", "nowhere"] {
        let ran = run(&tree.path().join(name), &["show"]);
        assert_eq!(ran.code, 2, "{name}: {}", ran.err);
        assert!(ran.err.contains(name), "{}", ran.err);
    }
}

#[test]
fn alike_writes_to_many_cpus_are_one_line() {
    let plan = |arguments: &[&str]| {
        let command = ["-M", "sim:epyc-512", "plan", "governor=powersave"];
        let ran = Ran::of(flyball!().args(command).args(arguments));
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let folded = plan(&[]);
    assert_eq!(folded.len(), 2, "{folded:?}");
    assert!(folded[1].contains("/policy{0-511}/scaling_governor  schedutil -> powersave"), "{folded:?}");
    assert_eq!(plan(&["--each"]).len(), 513);
    let few = plan(&["-c", "3-5,300"]);
    assert_eq!(few.len(), 2, "{few:?}");
    assert!(few[1].contains("/policy{3-5,300}/scaling_governor  schedutil -> powersave"), "{few:?}");
    assert!(few[1].ends_with("(4 writes)"), "{few:?}");
}

#[test]
fn base_and_nominal_are_one_frequency_under_two_names() {
    let plan = |machine: &str, setting: &str| {
        let command = ["-M", machine, "plan", setting, "-c", "0"];
        let ran = Ran::of(flyball!().args(command));
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.out.lines().nth(1).unwrap().split("  #").next().unwrap().to_owned()
    };
    for machine in ["sim:ryzen-5750g", "sim:gold-6138", "sim:i7-2600"] {
        assert_eq!(plan(machine, "max-freq=base"), plan(machine, "max-freq=nominal"));
    }
}

#[test]
fn what_cannot_be_printed_is_an_error() {
    let machine = Machine::new();
    for command in ["show", "get governor", "explain epp", "plan governor=performance", "show --json"] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command_line = flyball!();
        command_line.arg("-M").arg(machine.tree.path()).args(command.split(' ')).stdout(full);
        let ran = Ran::of(&mut command_line);
        assert_eq!(ran.code, 10, "{command}: {}", ran.err);
        assert!(ran.err.contains("No space left on device"), "{command}: {}", ran.err);
    }
}

#[test]
fn ratios_multiply_the_bus_clock_of_their_time() {
    let machine = Machine::new();
    let cpuinfo = machine.tree.path().join("proc/cpuinfo");
    // PLATFORM_INFO of a processor with a base ratio of 22.
    fs::write(machine.tree.path().join("msr.txt"), "ce:0|1600 1|1600 2|1600 3|1600\n").unwrap();
    let text = fs::read_to_string(&cpuinfo).unwrap();
    for (model, khz) in [(143, Some(2_200_000)), (42, Some(2_200_000)), (44, Some(2_933_333)), (55, None)] {
        fs::write(&cpuinfo, text.replace("model\t\t: 143", &format!("model\t\t: {model}"))).unwrap();
        let ran = machine.expect(if khz.is_some() { 0 } else { 4 }, &["get", "base-freq", "--json"]);
        assert_eq!(ran.json()[0]["value"], khz.map_or(Value::Null, Value::from), "{model}");
    }
}

#[test]
fn a_recording_shows_first_what_it_holds_and_holds_no_secrets() {
    let machine = Machine::new();
    machine.tree.put(
        "proc/cmdline",
        "BOOT_IMAGE=http://lab.example.org/k root=UUID=1 ip=192.168.1.17 nohz_full=1-3\n",
    );
    machine.tree.put("proc/modules", "msr 12288 0 - Live 0xffffffffc0a00000\n");
    machine.tree.put("proc/sys/kernel/hostname", "build7.example.org\n");
    machine.tree.put("proc/version", "Linux version 6.12.1 (me@build7) on build7\n");
    let shown = machine.expect(0, &["record", "--print-what"]).out;
    for secret in ["lab.example", "192.168", "UUID=1", "c0a00000", "build7", "me@"] {
        assert!(!shown.contains(secret), "{secret}");
    }
    assert!(shown.contains("nohz_full=1-3"), "what matters is kept");
    let file = machine.tree.path().join("out.tar.zst");
    machine.expect(0, &["record", file.to_str().unwrap()]);
    assert_eq!(run(&file, &["record", "--print-what"]).out, shown);
    // The file works as a machine.
    assert_eq!(run(&file, &["get", "governor", "--json"]).json(), machine.get("governor"));
}

/// Shows the compute dies (which Linux's die ids do not count), what uncore domains clock, and the
/// microcode.
#[test]
fn dies_and_agents_of_uncore_domains_and_the_microcode_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let packed = fs::File::open(archive("gnr0")).unwrap();
    let mut tar = Vec::new();
    ZstdReader::new(BufReader::new(packed)).read_to_end(&mut tar).unwrap();
    // A tar archive ends with two blocks of zeros. Insert more entries before them.
    tar.truncate(tar.len() - 1024);
    let agents: Vec<(String, &str)> = (0..10)
        .map(|domain| {
            let path = format!("{CPU}/intel_uncore_frequency/uncore{domain:02}/agent_types");
            (path, if domain % 5 < 3 { "core cache memory\n" } else { "io\n" })
        })
        .collect();
    let agents: Vec<(&str, &str)> = agents.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    tar.extend(flyball_testing::tar(&agents, 0o444));
    let file = folder.path().join("gnr.tar.zst");
    let mut writer = ZstdWriter::new(fs::File::create(&file).unwrap());
    writer.write_all(&tar).unwrap();
    writer.finish().unwrap();
    let shown = run(&file, &["show", "--all"]).out;
    for words in ["microcode 0x81000360", "die ", "1:2", "core cache memory"] {
        assert!(shown.contains(words), "no '{words}' in {shown}");
    }
    let row = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(row("uncore06").contains("1:1") && row("uncore03").contains("io"), "{shown}");
    let values = run(&file, &["get", "uncore-agents", "--json"]).json();
    assert!(values.to_string().contains("memory"), "{values}");
}
