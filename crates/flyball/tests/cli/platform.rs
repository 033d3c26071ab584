//! Tests platform profiles and the preferred die of a processor with 3D V-Cache, on a simulated
//! laptop with two profile devices that accept different words. Also tests the power limit of
//! EPYC's management port.

use flyball_control::{
    Intent, Setting, Snapshot,
    plan::Plan,
    write::{journal::Purpose, state::StateDir, transaction::Transaction},
};
use flyball_host::{Errno, Host};
use flyball_sim::silicon::MachineSpec;
use flyball_simhost::{SimHost, SimSetup};
use flyball_testing::{Ran, Tree, flyball};

const LEGACY: &str = "/sys/firmware/acpi/platform_profile";
const ASUS: &str = "/sys/class/platform-profile/platform-profile-0/profile";
const PMF: &str = "/sys/class/platform-profile/platform-profile-1/profile";
const X3D: &str = "/sys/devices/platform/AMDI0101:00/amd_x3d_mode";

fn laptop(kernel: &str) -> SimHost {
    SimHost::open(&SimSetup::parse(&format!("x3d-laptop,kernel={kernel}")).unwrap()).unwrap()
}

fn intent(settings: &[(&str, &str)]) -> Intent {
    let setting = |(knob, value): &(&str, &str)| Setting::new(knob, value, None, format!("{knob}={value}"));
    Intent { settings: settings.iter().map(|one| setting(one).unwrap()).collect() }
}

/// Returns what the files show.
fn shown(host: &SimHost) -> [String; 4] {
    [LEGACY, ASUS, PMF, X3D].map(|path| host.read(path).unwrap())
}

#[test]
fn what_a_profile_sets_is_restored_when_devices_differed() {
    let starts: [[&str; 4]; 3] = [
        ["balanced", "balanced", "balanced", "frequency"],
        ["custom", "quiet", "low-power", "cache"],
        // A word that the device accepts but does not list.
        ["custom", "performance", "balanced-performance", "frequency"],
    ];
    let changes: [&[(&str, &str)]; 4] = [
        &[("platform-profile", "performance"), ("x3d-mode", "cache")],
        &[("platform-profile", "quiet")],
        &[("device-profile:amd-pmf", "low-power")],
        &[("device-profile", "balanced"), ("x3d-mode", "frequency")],
    ];
    for start in starts {
        for change in changes {
            let host = laptop("7.2");
            for (path, word) in [ASUS, PMF, X3D].iter().zip(&start[1..]) {
                host.write(path, word.as_bytes()).unwrap();
            }
            assert_eq!(shown(&host), start, "{change:?}");
            let folder = Tree::new();
            let state = StateDir::new(folder.path());
            let mut transaction = Transaction::begin(&host, &state, Purpose::Set, "test", None).unwrap();
            transaction.apply(&intent(change), &|| false).unwrap();
            let restored = transaction.end();
            assert!(restored.is_exact(), "{start:?} {change:?}: {restored}");
            assert_eq!(shown(&host), start, "{change:?}");
        }
    }
}

const PORT: &str = "/sys/devices/platform/AMDI0097:01";

/// A server with two sockets and management ports, whose drivers have a fault.
fn server(folder: &Tree, fault: &str) -> SimHost {
    let text = MachineSpec::builtin_text("epyc-512").unwrap();
    let text =
        text.replacen("[firmware]", "[firmware]\nhsmp = true", 1).replacen("count = 128", "count = 4", 1);
    let path = folder.path().join("server.toml");
    std::fs::write(&path, text).unwrap();
    let mut setup = SimSetup::parse(&format!("{},kernel=7.2", path.display())).unwrap();
    setup.faults.extend((!fault.is_empty()).then(|| fault.parse().unwrap()));
    SimHost::open(&setup).unwrap()
}

#[test]
fn the_power_limit_of_a_socket_is_restored_whatever_fails() {
    let folder = Tree::new();
    // No fault, then a fault at each write of the change and of its undo.
    for nth in 0..5 {
        let rule = format!("write /sys/class/hwmon/hwmon*/power1_cap fails EBUSY nth {nth}");
        let fault = if nth == 0 { "" } else { rule.as_str() };
        let host = server(&folder, fault);
        let caps = || [2, 3].map(|n| host.read(&format!("/sys/class/hwmon/hwmon{n}/power1_cap")).ok());
        let state = Tree::new();
        let state = StateDir::new(state.path());
        let mut transaction = Transaction::begin(&host, &state, Purpose::Set, "test", None).unwrap();
        let applied = transaction.apply(
            &intent(&[("socket-power-limit", "300W"), ("socket-power-limit:socket-1", "250W")]),
            &|| false,
        );
        assert_eq!(applied.is_err(), matches!(nth, 1 | 2), "{fault}");
        assert!(
            applied.is_err() || caps() == [Some("300000000".to_owned()), Some("250000000".to_owned())],
            "{fault}"
        );
        let restored = transaction.end();
        assert!(restored.is_exact(), "{fault}: {restored}");
        assert_eq!(caps(), [Some("500000000".to_owned()), Some("500000000".to_owned())], "{fault}");
    }
}

#[test]
fn a_management_port_shows_its_limit_and_the_source() {
    let folder = Tree::new();
    let host = server(&folder, "");
    let show = |words: &[&str]| {
        let machine = format!("sim:{},kernel=7.2", folder.path().join("server.toml").display());
        Ran::of(flyball!().args(["-M", &machine]).args(words))
    };
    let shown = show(&["get", "socket-limit-source", "socket-freq-limit", "socket-power-limit:socket-1"]).out;
    for text in ["OPN Max", "socket-power-limit", "500 W"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    let refused = show(&["plan", "socket-power-limit=900W"]);
    assert!(refused.code == 2 && refused.err.contains("at most 500 W"), "{}", refused.text());
    assert!(host.exists(&format!("{PORT}/prochot_status")));
    let other = Ran::of(flyball!().args(["-M", "sim:epyc-512", "get", "socket-power-limit"]));
    assert_eq!(other.code, 4, "{}", other.text());
}

/// `why` reports a limit named by a port with its value, and no such limit without a port.
#[test]
fn a_management_port_says_why_a_socket_is_slow() {
    let folder = Tree::new();
    server(&folder, "");
    let path = folder.path().join("server.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let words = ["why", "0", "-t", "2s", "--workload", "spin", "--json"];
    for (change, limiter, source) in [
        (("pl1_w = 500 ", "pl1_w = 90 "), "power", "PPT Limit"),
        (("sink_k_per_w = 0.07 ", "sink_k_per_w = 1 "), "heat", "cHTC-Active"),
        (("", ""), "none", ""),
    ] {
        std::fs::write(&path, text.replacen(change.0, change.1, 1)).unwrap();
        let machine = format!("sim:{},kernel=7.2", path.display());
        let ran = Ran::of(flyball!().args(["-M", &machine]).args(words));
        let found = ran.json()["cpus"][0]["steps"][0].clone();
        if source.is_empty() {
            assert!(found.is_null(), "{found}");
            continue;
        }
        assert_eq!((&found["limiter"], &found["certainty"]["kind"]), (&limiter.into(), &"measured".into()));
        let evidence = &found["evidence"][0];
        let is_named = evidence["value"].as_str().unwrap().ends_with(&format!(" MHz, {source}"));
        assert!(is_named && evidence["place"].as_str().unwrap().starts_with("pwr_current"), "{found}");
        assert_eq!(found["knob"] == "socket-power-limit", limiter == "power", "{found}");
        let words = ["top", "--samples", "4", "--", "spin"];
        let top = Ran::of(flyball!().args(["-M", &machine]).args(words).env("NO_COLOR", "1"));
        assert!(top.out.contains(limiter) && !top.out.contains(&format!("{limiter}?")), "{}", top.text());
    }
}

#[test]
fn the_simulated_files_answer_as_the_kernel_does() {
    let host = laptop("7.2");
    let error = |path: &str, text: &str| host.write(path, text.as_bytes()).unwrap_err().errno;
    assert_eq!(error(LEGACY, "custom"), Errno::INVAL);
    assert_eq!(error(LEGACY, "Balanced"), Errno::INVAL);
    assert_eq!(error(LEGACY, "low-power"), Errno::OPNOTSUPP, "only one device has it");
    assert_eq!(error(ASUS, "low-power"), Errno::OPNOTSUPP);
    assert_eq!(error(X3D, "both"), Errno::INVAL);
    host.write(PMF, b"quiet\n").unwrap();
    assert_eq!(host.read(&format!("{LEGACY}_choices")).unwrap(), "quiet balanced performance");
    // Before 6.14, only the first registered driver provided a profile.
    let host = laptop("6.12");
    assert!(!host.exists(ASUS) && !host.exists(X3D));
    assert_eq!(host.read(LEGACY).unwrap(), "balanced");
    assert!(!laptop("5.10").exists(LEGACY));
}

#[test]
fn words_that_the_machine_lacks_are_refused_with_those_it_has() {
    for (setting, known) in [
        ("platform-profile=low-power", "it takes quiet, balanced, performance"),
        ("platform-profile=custom", "it takes quiet, balanced, performance"),
        ("device-profile:asus-wmi=low-power", "it takes quiet, balanced, performance"),
        ("x3d-mode=both", "it takes frequency or cache"),
    ] {
        let ran = Ran::of(flyball!().args(["-M", "sim:x3d-laptop,kernel=7.2", "plan", setting]));
        assert!(ran.err.contains(known), "{setting}: {}", ran.err);
    }
}

/// While amd-pstate chooses the preference, Linux 7.2 rejects every preference, and it can be
/// switched only in active mode (dynamic_epp_store in amd-pstate.c).
#[test]
fn a_preference_is_refused_while_the_driver_chooses_it() {
    const DYNAMIC: &str = "/sys/devices/system/cpu/amd_pstate/dynamic_epp";
    const EPP: &str = "/sys/devices/system/cpu/cpufreq/policy0/energy_performance_preference";
    let host = laptop("7.2");
    host.write(EPP, b"power").unwrap();
    assert_eq!(host.write(EPP, b"power x").unwrap_err().errno, Errno::INVAL, "a whole word");
    host.write(DYNAMIC, b"disabled").unwrap();
    assert_eq!(host.read(EPP).unwrap(), "power", "the same value changes nothing");
    host.write(DYNAMIC, b"enabled").unwrap();
    assert_eq!(host.read(EPP).unwrap(), "performance");
    assert_eq!(host.write(EPP, b"power").unwrap_err().errno, Errno::BUSY);
    let refused = plan(&host, "epp=power").unwrap_err();
    assert!(refused.contains("none while dynamic-epp is enabled"), "{refused}");
    assert!(plan(&host, "epp=performance").is_ok(), "it holds already");
    host.write(DYNAMIC, b"0").unwrap();
    host.write("/sys/devices/system/cpu/amd_pstate/status", b"passive").unwrap();
    assert_eq!(host.write(DYNAMIC, b"1").unwrap_err().errno, Errno::INVAL);
}

/// Since Linux 7.3, each policy's preference can follow the platform profile.
#[test]
fn a_dynamic_preference_is_set_and_undone_with_its_profile() {
    const POLICY: &str = "/sys/devices/system/cpu/cpufreq/policy0";
    const DEVICE: &str = "/sys/class/platform-profile/platform-profile-2";
    let epp = format!("{POLICY}/energy_performance_preference");
    let host = laptop("7.3");
    assert!(!host.exists("/sys/devices/system/cpu/amd_pstate/dynamic_epp"));
    let words = epp.replace("preference", "available_preferences");
    assert!(host.read(&words).unwrap().ends_with("dynamic"));
    host.write(&epp, b"power").unwrap();
    let changed = |host: &SimHost, settings: &[(&str, &str)], shown: &str| {
        let folder = Tree::new();
        let before = [&epp, &format!("{DEVICE}/profile"), LEGACY].map(|path| host.read(path));
        let mut transaction =
            Transaction::begin(host, &StateDir::new(folder.path()), Purpose::Set, "test", None).unwrap();
        transaction.apply(&intent(settings), &|| false).unwrap();
        assert_eq!(host.read(&epp).unwrap(), shown);
        let restored = transaction.end();
        assert!(restored.is_exact(), "{settings:?}: {restored}");
        assert_eq!([&epp, &format!("{DEVICE}/profile"), LEGACY].map(|path| host.read(path)), before);
    };
    changed(&host, &[("epp", "dynamic")], "dynamic(profile:performance)");
    changed(&host, &[("governor", "performance")], "performance");
    assert!(!host.exists(DEVICE));
    host.write(&epp, b"dynamic").unwrap();
    assert_eq!(host.read(&format!("{DEVICE}/name")).unwrap(), "amd-pstate-epp-cpu0");
    host.write(&format!("{DEVICE}/profile"), b"low-power").unwrap();
    assert_eq!(host.read(&epp).unwrap(), "dynamic(profile:power)");
    changed(&host, &[("epp", "balance_power")], "balance_power");
    changed(&host, &[("governor", "performance")], "performance");
    changed(&host, &[("platform-profile", "performance")], "dynamic(profile:performance)");
    changed(&host, &[("device-profile:amd-pstate-epp-cpu0", "balanced")], "dynamic(profile:performance)");
}

/// Devices that come back get the lowest numbers, in the order of their policies. If they had other
/// numbers before, a restored profile may go to another policy's device.
#[test]
fn an_undo_that_swaps_profiles_of_dynamic_preferences_is_not_called_exact() {
    let epp = |cpu: u32| format!("/sys/devices/system/cpu/cpufreq/policy{cpu}/energy_performance_preference");
    let host = laptop("7.3");
    for (cpu, device, profile) in [(1, 2, "low-power"), (0, 3, "balanced")] {
        host.write(&epp(cpu), b"dynamic").unwrap();
        host.write(
            &format!("/sys/class/platform-profile/platform-profile-{device}/profile"),
            profile.as_bytes(),
        )
        .unwrap();
    }
    let before = [0, 1].map(|cpu| host.read(&epp(cpu)).unwrap());
    let folder = Tree::new();
    let mut transaction =
        Transaction::begin(&host, &StateDir::new(folder.path()), Purpose::Set, "test", None).unwrap();
    transaction.apply(&intent(&[("epp", "balance_power")]), &|| false).unwrap();
    let restored = transaction.end();
    let after = [0, 1].map(|cpu| host.read(&epp(cpu)).unwrap());
    assert!(before == after || !restored.is_exact(), "{before:?} {after:?}: {restored}");
}

fn plan(host: &SimHost, setting: &str) -> Result<Plan, String> {
    let intent = intent(&[setting.split_once('=').unwrap()]);
    let snapshot = Snapshot::for_intent(host, &intent).unwrap();
    flyball_control::plan::plan(&snapshot, &intent).map_err(|error| error.to_string())
}

/// On Arm's grace nothing can boost. A refused write turns the switch (Linux 7.2).
#[test]
fn a_switch_without_turbo_behind_it_is_left_alone() {
    const BOOST: &str = "/sys/devices/system/cpu/cpufreq/boost";
    let host = SimHost::open(&SimSetup::parse("grace,kernel=7.3").unwrap()).unwrap();
    let refused = |setting| plan(&host, setting).unwrap_err();
    assert!(refused("turbo=on").contains("no frequency above its nominal one"), "{}", refused("turbo=on"));
    assert_eq!(plan(&host, "turbo=off").unwrap().changes.len(), 0);
    assert_eq!(host.write(BOOST, b"0").unwrap_err().errno, Errno::INVAL);
    assert_eq!(host.read(BOOST).unwrap(), "1");
    assert!(refused("turbo=off").contains("no frequency above its nominal one"), "{}", refused("turbo=off"));
    assert_eq!(plan(&host, "turbo=on").unwrap().changes.len(), 0);
    // Its preference is a number.
    assert!(refused("epp=power").contains("has epp-value instead"), "{}", refused("epp=power"));
}

#[test]
fn an_idle_state_stands_for_its_latency() {
    let host = laptop("7.2");
    let news = |setting| -> Vec<String> {
        plan(&host, setting).unwrap().changes.into_iter().map(|change| change.new).collect()
    };
    assert_eq!(news("latency-limit=c2"), vec!["18"; 32], "C2 wakes within 18 us");
    let refused = plan(&host, "latency-limit=C9").unwrap_err();
    assert!(refused.contains("the idle states here are POLL C1 C2 C3"), "{refused}");
}
