//! Machines that are odd: no cpufreq, offline CPUs, files that are empty, cut short, not text, or from the future.
//! Each is a small tree made here. What counts: a clear message with the path, the documented exit code, never a panic.

use std::{fs, path::Path, process::Output};

use flyball_testing::flyball;
use serde_json::Value;

const CPU: &str = "sys/devices/system/cpu";

/// A machine of four CPUs with intel_pstate, in a folder of its own.
struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    fn bare() -> Machine {
        let machine = Machine { folder: tempfile::tempdir().unwrap() };
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
        let proc = machine.folder.path().join("proc");
        fs::create_dir_all(&proc).unwrap();
        fs::write(proc.join("cpuinfo"), cpuinfo).unwrap();
        machine
    }

    fn put(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.folder.path().join(CPU).join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn remove(&self, path: &str) {
        fs::remove_file(self.folder.path().join(CPU).join(path)).unwrap();
    }

    /// Exit code, standard output, standard error. A panic ends with 101, which no command documents.
    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        run(self.folder.path(), arguments)
    }

    fn get(&self, knob: &str) -> Value {
        let (code, out, err) = self.run(&["get", knob, "--json"]);
        assert_eq!(code, 0, "{err}");
        serde_json::from_str(&out).unwrap()
    }
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn run(machine: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output: Output = flyball!().arg("-M").arg(machine).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert_ne!(output.status.code(), Some(101), "{arguments:?} panicked: {err}");
    (output.status.code().expect("ended by itself"), out, err)
}

#[test]
fn a_machine_without_cpufreq_says_so_and_what_to_do() {
    let machine = Machine::bare();
    let (code, out, err) = machine.run(&["show"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("no cpufreq driver: "), "{out}");
    assert!(err.contains("no cpufreq driver") && err.contains("/proc/cmdline"), "{err}");
    let (code, out, err) = machine.run(&["get", "governor"]);
    assert_eq!((code, out.as_str()), (4, ""));
    assert!(err.contains("governor is absent") && err.contains("no cpufreq driver"), "{err}");
    let (code, out, _) = machine.run(&["get", "governor", "--json"]);
    let values: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 4);
    assert!(values[0]["value"].is_null() && values[0]["absent"] == "no cpufreq driver", "{values}");
}

#[test]
fn a_kernel_before_policies_is_told_apart_from_one_without_a_driver() {
    let machine = Machine::bare();
    machine.put("cpu0/cpufreq/scaling_driver", "acpi-cpufreq\n");
    let (_, _, words) = run(machine.folder.path(), &["show"]);
    assert!(words.contains("acpi-cpufreq") && words.contains("4.3"), "{words}");
    let (_, report, _) = run(machine.folder.path(), &["doctor", "--json"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    let found = report["findings"].as_array().unwrap();
    let present = found.iter().find(|finding| finding["id"] == "driver.present").unwrap();
    assert_eq!(present["verdict"], "unknown");
}

#[test]
fn a_virtual_machine_is_told_to_go_to_its_host() {
    let machine = Machine::bare();
    let proc = machine.folder.path().join("proc");
    fs::create_dir_all(&proc).unwrap();
    fs::write(proc.join("cpuinfo"), "processor : 0\nvendor_id : AuthenticAMD\nflags : fpu hypervisor\n")
        .unwrap();
    let (_, _, err) = machine.run(&["show"]);
    assert!(err.contains("virtual machine") && err.contains("host"), "{err}");
}

#[test]
fn an_empty_file_is_an_error_with_its_path() {
    let machine = Machine::new();
    machine.put("cpufreq/policy2/scaling_governor", "");
    let (code, out, err) = machine.run(&["show", "governor"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("/sys/devices/system/cpu/cpufreq/policy2/scaling_governor"), "{err}");
    assert!(out.contains("powersave"), "the others are shown: {out}");
    assert_eq!(machine.run(&["show"]).0, 1);
}

#[test]
fn a_truncated_or_senseless_number_is_an_error_with_path_and_content() {
    let machine = Machine::new();
    machine.put("cpufreq/policy1/scaling_max_freq", "30x\n");
    let (code, _, err) = machine.run(&["get", "max-freq"]);
    assert_eq!(code, 1);
    assert!(err.contains("policy1/scaling_max_freq") && err.contains("30x"), "{err}");
    machine.put("cpufreq/policy1/scaling_max_freq", "99999999999999999999999\n");
    assert_eq!(machine.run(&["get", "max-freq"]).0, 1);
}

#[test]
fn what_is_not_text_is_an_error_with_its_path() {
    let machine = Machine::new();
    machine.put("cpufreq/policy0/scaling_governor", [0xff, 0xfe, b'\n']);
    let (code, _, err) = machine.run(&["show"]);
    assert_eq!(code, 1);
    assert!(err.contains("policy0/scaling_governor"), "{err}");
    machine.put("online", [0xff]);
    let (code, _, err) = machine.run(&["show"]);
    assert_eq!(code, 1);
    assert!(err.contains("/sys/devices/system/cpu/online"), "{err}");
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
    assert_eq!(machine.run(&["show"]).0, 0);
}

#[test]
fn offline_cpus_are_told_apart() {
    let machine = Machine::new();
    machine.put("online", "0-2\n");
    machine.put("cpu3/online", "0\n");
    machine.put("cpufreq/policy3/scaling_governor", "");
    let (code, out, err) = machine.run(&["show"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(json_of(&machine.run(&["show", "--json"]).1)["machine"]["online"], "0-2");
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
        fs::remove_dir_all(machine.folder.path().join(CPU).join(format!("cpufreq/policy{policy}"))).unwrap();
    }
    machine.put("cpufreq/policy0/related_cpus", "0 1 2 3\n");
    let governor = machine.get("governor");
    assert_eq!(governor.as_array().unwrap().len(), 1);
    assert_eq!(governor[0]["cpus"], "0-3");
    assert!(machine.run(&["show"]).1.contains("one policy for all CPUs"));
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
    let nothing = tempfile::tempdir().unwrap();
    fs::create_dir_all(nothing.path().join("sys")).unwrap();
    let (code, _, err) = run(nothing.path(), &["show"]);
    assert_eq!(code, 4);
    assert!(err.contains("/sys/devices/system/cpu"), "{err}");
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
    assert_eq!(machine.run(&["get", "setspeed"]).0, 4);
    let (code, out, err) = machine.run(&["get", "setspeed", "--json"]);
    assert_eq!(code, 4, "{err}");
    let values: Value = serde_json::from_str(&out).unwrap();
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
        (&["get", "governor", "-c", "package:9"], "here: 0"),
        (&["get", "governor", "-c", "type:P"], "all cores are alike"),
        (&["get", "governor", "-c", "planet:3"], "write CPUs as"),
        (&["get", "governor", "-c", "5-2"], "backwards"),
        (&["explain", "turboo"], "did you mean 'turbo'"),
    ];
    for (arguments, wanted) in cases {
        let (code, out, err) = machine.run(arguments);
        assert_eq!(code, 2, "{arguments:?}: {err}");
        assert!(err.contains(wanted) && out.is_empty(), "{arguments:?}: {err}");
    }
}

#[test]
fn selectors_name_cpus_by_what_they_are() {
    let machine = Machine::new();
    for (selector, cpus) in
        [("core:1", "2,3"), ("package:0", "0-3"), ("0-2:2", "0,2"), ("policy:1,3", "1,3"), ("online", "0-3")]
    {
        let (code, out, err) = machine.run(&["get", "governor", "-c", selector]);
        assert_eq!(code, 0, "{selector}: {err}");
        assert_eq!(out, format!("governor  powersave  CPUs {cpus}\n"), "{selector}");
    }
}

#[test]
fn a_damaged_archive_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.tar.zst");
    fs::write(&file, "no archive").unwrap();
    let (code, _, err) = run(&file, &["show"]);
    assert_eq!(code, 2);
    assert!(err.contains("x.tar.zst"), "{err}");
    let (code, _, err) = run(&folder.path().join("nowhere"), &["show"]);
    assert_eq!(code, 2);
    assert!(err.contains("nowhere"), "{err}");
}

#[test]
fn alike_writes_to_many_cpus_are_one_line() {
    let plan = |arguments: &[&str]| {
        let command = ["-M", "sim:epyc-512", "plan", "governor=powersave"];
        let output = flyball!().args(command).args(arguments).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let folded = plan(&[]);
    assert_eq!(folded.len(), 2, "{folded:?}");
    assert!(folded[1].contains("/policy{0-511}/scaling_governor  performance -> powersave"), "{folded:?}");
    assert_eq!(plan(&["--each"]).len(), 513);
    let few = plan(&["-c", "3-5,300"]);
    assert_eq!(few.len(), 5, "{few:?}");
    assert!(few[4].contains("/policy300/scaling_governor  performance -> powersave"), "{few:?}");
}

#[test]
fn base_and_nominal_are_one_frequency_under_two_names() {
    let plan = |machine: &str, setting: &str| {
        let command = ["-M", machine, "plan", setting, "-c", "0"];
        let output = flyball!().args(command).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().nth(1).unwrap().split("  #").next().unwrap().to_owned()
    };
    for machine in ["sim:ryzen-5750g", "sim:gold-6138", "sim:i7-2600"] {
        assert_eq!(plan(machine, "max-freq=base"), plan(machine, "max-freq=nominal"));
    }
}

#[test]
fn what_cannot_be_printed_is_told() {
    let machine = Machine::new();
    for command in ["show", "get governor", "explain epp", "plan governor=performance", "show --json"] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let out = flyball!()
            .arg("-M")
            .arg(machine.folder.path())
            .args(command.split(' '))
            .stdout(full)
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{command}: {words}");
        assert!(words.contains("No space left on device"), "{command}: {words}");
    }
}

#[test]
fn ratios_multiply_the_bus_clock_of_their_time() {
    let machine = Machine::new();
    let cpuinfo = machine.folder.path().join("proc/cpuinfo");
    // PLATFORM_INFO of a processor with 22 times its bus clock.
    fs::write(machine.folder.path().join("msr.txt"), "ce:0|1600 1|1600 2|1600 3|1600\n").unwrap();
    let text = fs::read_to_string(&cpuinfo).unwrap();
    for (model, khz) in [(143, Some(2_200_000)), (42, Some(2_200_000)), (44, Some(2_933_333)), (55, None)] {
        fs::write(&cpuinfo, text.replace("model\t\t: 143", &format!("model\t\t: {model}"))).unwrap();
        let (code, out, err) = machine.run(&["get", "base-freq", "--json"]);
        match khz {
            Some(khz) => assert!(code == 0 && json_of(&out)[0]["value"] == khz, "{model}: {out}{err}"),
            None => assert!(code == 4 && json_of(&out)[0]["value"].is_null(), "{model}: {out}{err}"),
        }
    }
}
