use std::sync::Mutex;

use super::*;
use crate::boots::{Ended, Job};

/// A simulated driver that writes a byte per step. One sequence of three writes leaves a limit in
/// the base state.
struct Driver {
    boots: Mutex<usize>,
    faulty: bool,
}

impl Boots for Driver {
    fn boot(&self, mode: &Mode, job: &Job) -> Result<Ended, CannotTell> {
        *self.boots.lock().unwrap() += 1;
        let steps = String::from_utf8_lossy(&job.files[1].1).into_owned();
        let (mut output, mut registers) = (String::new(), String::new());
        let (mut number, mut progress, mut ns) = (0, 0, 0u64);
        let base = |limit: &str| {
            (0..mode.cpu_count()).map(|cpu| {
                format!("cpufreq/policy{cpu}/scaling_driver:{}\ncpufreq/policy{cpu}/scaling_governor:powersave\n\
                    cpufreq/policy{cpu}/affected_cpus:{cpu}\ncpufreq/policy{cpu}/scaling_max_freq:{limit}\n", mode.scaling_driver())
            }).collect::<String>()
        };
        for line in steps.lines() {
            ns += 1000;
            let mut words = line.split(' ');
            match words.next() {
                Some("seq") => {
                    progress = if progress == 3 { 3 } else { 0 };
                    output.push_str(&format!("{line}\n"));
                }
                Some("s") => {
                    number += 1;
                    output.push_str(&format!("{line}\n"));
                    registers.push_str(&format!("0.{ns:09} mark {}\n", number & 255));
                }
                Some("w") => {
                    let (path, value) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                    if number > 1 {
                        registers.push_str(&format!(
                            "0.{ns:09} cpu1 wrmsr 0x1b0 {:#x}\n",
                            value.len() * path.len() % 200
                        ));
                    }
                    // Each of the three writes needs the previous one, with anything in between.
                    let way = [("boost", "0"), ("scaling_governor", "performance"), ("boost", "1")];
                    if progress < way.len() && path.ends_with(way[progress].0) && value == way[progress].1 {
                        progress += 1;
                    }
                    output.push_str(&format!("w {path} ok {value}\n"));
                }
                Some("o") => {
                    let spoilt = self.faulty && progress == 3;
                    output.push_str(&format!("o\n{}.\n", base(if spoilt { "1" } else { "2" })));
                }
                _ => {}
            }
        }
        Ok(Ended { output: output + "end\n", registers, ..Ended::default() })
    }

    fn release(&self) -> &'static str {
        "6.12"
    }
}

fn fuzz(kernel: &Driver, baseline: Option<&dyn Boots>, corpus: Option<&Path>) -> Outcome {
    let mode = &Mode::all("ryzen-5750g").unwrap()[0];
    let fuzzer = Fuzzer {
        kernel,
        baseline,
        mode,
        seed: 5,
        corpus,
        should_continue: &|rounds| rounds < 4,
        on_progress: &mut |_, _| Ok(()),
    };
    fuzzer.run().unwrap()
}

#[test]
fn a_seed_gives_the_same_rounds() {
    let of = || {
        let kernel = Driver { boots: Mutex::new(0), faulty: true };
        let out = fuzz(&kernel, None, None);
        let ids: Vec<String> = out.findings.iter().map(|finding| finding.id.clone()).collect();
        (
            out.progress.iter().map(|round| (round.steps, round.features, round.corpus)).collect::<Vec<_>>(),
            ids,
        )
    };
    let (rounds, ids) = of();
    assert_eq!((rounds.clone(), ids), of());
    assert_eq!(rounds.len(), 4);
    // Later rounds find new behaviours with what the first one kept.
    assert!(rounds.windows(2).all(|pair| pair[1].1 > pair[0].1 && pair[1].2 >= pair[0].2), "{rounds:?}");
}

#[test]
fn what_the_baseline_shows_too_is_known() {
    let (faulty, other) =
        (|| Driver { boots: Mutex::new(0), faulty: true }, Driver { boots: Mutex::new(0), faulty: false });
    let of = |out: &Outcome| {
        let finding = out
            .findings
            .iter()
            .find(|finding| finding.id == "policy.base-state: cpufreq/policy/scaling_max_freq");
        finding.map(|finding| (finding.repeats, finding.known, finding.steps.len()))
    };
    assert_eq!(of(&fuzz(&faulty(), Some(&other), None)), Some((true, false, 3)));
    assert_eq!(of(&fuzz(&faulty(), Some(&faulty()), None)), Some((true, true, 3)));
    assert_eq!(of(&fuzz(&other, None, None)), None);
}

#[test]
fn a_corpus_is_gone_on_with() {
    let directory = tempfile::tempdir().unwrap();
    let kernel = Driver { boots: Mutex::new(0), faulty: false };
    let first = fuzz(&kernel, None, Some(directory.path()));
    let second = fuzz(&kernel, None, Some(directory.path()));
    let (first, second) = (first.progress.last().unwrap(), second.progress.last().unwrap());
    assert!(second.features >= first.features && second.corpus >= first.corpus);
}

#[test]
fn a_reproducer_is_a_script_of_its_own() {
    let mode = &Mode::all("ryzen-5750g").unwrap()[0];
    let finding = Finding {
        id: "policy.offline-and-online: 0xc00102b3".into(),
        about: Some("a CPU's\nsettings".into()),
        details: vec!["cpu1 0xc00102b3 was 0x1".into(), "cpufreq/policy1/boost was '1'; rm -rf".into()],
        steps: vec![
            Step::write("cpu1/online", "0"),
            Step::Run("echo 'x'".into()),
            Step::write("cpufreq/policy*/x", "it's"),
        ],
        round: 1,
        repeats: true,
        known: false,
    };
    assert_eq!(finding.file_name(), "policy.offline-and-online-0xc00102b3");
    let script = finding.script(mode, "6.12");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("script.sh");
    std::fs::write(&file, &script).unwrap();
    let shell = std::process::Command::new("sh").arg("-n").arg(&file).status().unwrap();
    assert!(shell.success(), "{script}");
    for part in [
        "write 'cpufreq/policy*/x' 'it'\\''s'",
        "register 1 0xc00102b3",
        "grep -s . cpufreq/policy1/boost\n",
        "\n# settings\n",
        "write() {",
    ] {
        assert!(script.contains(part), "{part} is not in\n{script}");
    }
    // The note's text is not run.
    assert!(!script.lines().any(|line| line.contains("rm -rf") && !line.starts_with('#')));
}
