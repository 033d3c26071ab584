//! Tests turbo off together with base-freq, in one command and in two, on kernels before and after
//! `cpuinfo_max_freq` began to follow `no_turbo`.

use flyball_testing::{Ran, flyball};

fn flyball(machine: &str, words: &[&str]) -> Ran {
    Ran::of(flyball!().args(["-M", machine]).args(words).env("NO_COLOR", "1"))
}

struct Guide {
    folder: tempfile::TempDir,
    machine: String,
}

impl Guide {
    fn new(kernel: &str) -> Guide {
        Guide { folder: tempfile::tempdir().unwrap(), machine: format!("sim:sst-guide,kernel={kernel}") }
    }

    /// Runs `flyball` on the machine in its current state.
    fn run(&self, line: &str) -> Ran {
        let state = self.folder.path().join("machine");
        let dir = self.folder.path().join("journal");
        let mut args = vec!["--sim-state", state.to_str().unwrap(), "--state-dir", dir.to_str().unwrap()];
        args.extend(line.split(' '));
        flyball(&self.machine, &args)
    }

    fn done(&self, line: &str) {
        let ran = self.run(line);
        assert_eq!(ran.code, 0, "{} {line}: {}{}", self.machine, ran.out, ran.err);
    }

    /// Asserts that CPU 5 may run at `highest` MHz, and CPU 0 at `other`.
    fn reach(&self, highest: u64, other: u64) {
        for (cpu, mhz) in [("5", highest), ("0", other)] {
            let ran = self.run(&format!("get max-freq -c {cpu} --json"));
            let khz = ran.json().to_string();
            assert!(khz.contains(&format!("{}", mhz * 1000)), "{} CPU {cpu}, {mhz} MHz: {khz}", self.machine);
        }
    }
}

const KERNELS: [&str; 4] = ["6.1", "6.12", "6.18", "7.2"];

#[test]
fn base_freq_and_turbo_off_hold_in_any_order() {
    for kernel in KERNELS {
        for commands in [
            ["set turbo=off sst-bf=on max-freq=max", "verify turbo=off"],
            ["set sst-bf=on turbo=off max-freq=max", "verify turbo=off"],
            ["set turbo=off", "set sst-bf=on max-freq=max"],
            ["set sst-bf=on", "set turbo=off max-freq=max"],
        ] {
            let guide = Guide::new(kernel);
            for command in commands {
                guide.done(command);
            }
            guide.reach(3000, 2400);
            guide.done("verify turbo=off sst-bf=on max-freq=max");
            let again = guide.run("plan turbo=off sst-bf=on max-freq=max --json");
            assert_eq!(again.json()["changes"].as_array().map(Vec::len), Some(0), "{}", again.out);
            guide.done("restore");
            guide.reach(3200, 3200);
        }
    }
}

/// A minimum that turbo off would lower is rejected with the same message, whether turbo is already
/// off or switched off with it.
#[test]
fn a_minimum_above_what_turbo_off_leaves_is_refused_on_every_kernel() {
    for kernel in KERNELS {
        let guide = Guide::new(kernel);
        let together = guide.run("set turbo=off min-freq=3GHz");
        assert!(
            together.code != 0 && together.err.contains("800 MHz to 2.6 GHz (turbo is off)"),
            "{}",
            together.err
        );
        guide.reach(3200, 3200);
        guide.done("set turbo=off");
        let after = guide.run("set min-freq=3GHz");
        let words = |ran: &Ran| ran.err.lines().last().unwrap_or_default().to_owned();
        assert_eq!((after.code, words(&after)), (together.code, words(&together)), "{kernel}");
        // base-freq raises the limit that turbo off leaves.
        guide.done("set sst-bf=on max-freq=max");
        guide.done("set min-freq=3GHz -c 5,6");
    }
}

/// A profile for high-priority CPUs gives them their base frequency, even if it was made while
/// turbo was off.
#[test]
fn recommended_profiles_hold_while_turbo_is_off() {
    for kernel in KERNELS {
        let guide = Guide::new(kernel);
        guide.done("set turbo=off");
        let made = guide.run("sst recommend --cpus 5,6 --profile");
        assert!(made.code == 0 && made.err.contains("turbo is off"), "{}", made.err);
        let path = guide.folder.path().join("profile.toml");
        std::fs::write(&path, &made.out).unwrap();
        guide.done(&format!("apply {}", path.display()));
        guide.reach(3000, 2400);
        guide.done("verify turbo=off");
        guide.done("restore");
    }
}

/// The guide's procedure: `echo 1 > no_turbo`, then `base-freq enable -a`, and back one by one.
#[test]
fn the_guides_procedure_works_on_every_kernel() {
    for kernel in KERNELS {
        let guide = Guide::new(kernel);
        guide.done("set turbo=off");
        let plan = guide.run("sst base-freq enable -a --dry-run");
        assert_eq!(plan.code, 0, "{}", plan.err);
        guide.done("sst base-freq enable -a");
        guide.reach(3000, 2400);
        guide.done("verify turbo=off sst-bf=on");
        guide.done("restore --last");
        guide.reach(2600, 2600);
        guide.done("restore");
        guide.reach(3200, 3200);
    }
}

/// Another tool enabled base-freq while turbo was off. The doctor finds the lower limits left
/// behind, and its remedy works.
#[test]
fn the_doctors_remedy_clears_its_finding() {
    let guide = Guide::new("6.12");
    guide.done("set turbo=off");
    guide.done("intel-speed-select base-freq enable -a");
    let finding = guide.run("doctor --only conflict.below-base --json").json().to_string();
    assert!(finding.contains("CPUs 5,6,8,13,"), "{finding}");
    guide.done("doctor --fix --only conflict.below-base");
    let finding = guide.run("doctor --only conflict.below-base --json").json().to_string();
    assert!(finding.contains("\"ok\""), "{finding}");
    guide.reach(3000, 2400);
}

/// turbo-freq only applies to the packages of the named CPUs.
#[test]
fn turbo_freq_leaves_other_packages_alone() {
    let guide = Guide::new("6.12");
    let on = |cpu: u32| guide.run(&format!("get sst-tf -c {cpu} --json")).json()[0]["value"].clone();
    let all = ["-c 12,13 ", ""];
    for (words, second) in all.into_iter().zip([false, true]) {
        guide.done(&format!("sst {words}turbo-freq enable"));
        assert_eq!((on(0), on(14)), (true.into(), second.into()), "{words}");
        guide.done(&format!("sst {words}turbo-freq disable"));
        assert_eq!((on(0), on(14)), (false.into(), false.into()), "{words}");
    }
    // The other package keeps its speed: turbo-freq clips low-priority CPUs.
    guide.done("sst -c 12,13 turbo-freq enable -a");
    assert_eq!((on(0), on(14)), (true.into(), false.into()));
    guide.done("restore");
    assert_eq!((on(0), on(14)), (false.into(), false.into()));
}
