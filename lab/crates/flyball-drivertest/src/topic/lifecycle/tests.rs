use super::*;
use crate::record::Busy;

fn mode() -> Mode {
    Mode::all("ryzen-5750g").unwrap().remove(0)
}

/// amd-pstate in active mode, after a run without the event.
fn good() -> Observation {
    let mut seen = Observation::default();
    for cpu in 0..2 {
        let mut put = |name: &str, value: &str| {
            seen.attributes.insert(format!("cpufreq/policy{cpu}/{name}"), value.to_owned());
        };
        put("affected_cpus", &cpu.to_string());
        put("cpuinfo_max_freq", "4000000");
        put("scaling_governor", "powersave");
        put("scaling_max_freq", "2000000");
        seen.registers.insert((cpu, "0xc00102b3".into()), 0x8000_0fa6);
        seen.load.insert(cpu, Busy { lowest: 2_000_000, highest: 2_000_000 });
    }
    seen
}

/// The result of an event in a guest modified by `change`.
fn seen(event: &Event, change: impl Fn(&mut Guest)) -> Seen {
    let (sequences, places) = plan(std::slice::from_ref(event));
    let run = |sequence: &Sequence| Run {
        name: sequence.name.clone(),
        observations: vec![good(); sequence.steps.len() + 1],
    };
    let boot = record::Boot { runs: sequences.iter().map(run).collect(), complete: true, hang: None };
    let mut guest = Guest { boot, ..Guest::default() };
    change(&mut guest);
    judge(&mode(), std::slice::from_ref(event), &sequences, &places, &guest).remove(0)
}

fn event(name: &str) -> Event {
    events::all(&mode()).into_iter().find(|event| event.name == name).unwrap()
}

/// The last observation of the run at whose end the state is judged.
fn end(guest: &mut Guest) -> &mut Observation {
    let at = guest.boot.runs.len() - 2;
    guest.boot.runs[at].observations.last_mut().unwrap()
}

/// The lines of a failure.
fn lines(seen: Seen) -> String {
    match seen {
        Seen::Bad(lines) => lines.join("\n"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn events_have_names_and_sources() {
    for machine in ["ryzen-5750g", "sst-guide", "i7-2600"] {
        for mode in Mode::all(machine).unwrap() {
            let events = events::all(&mode);
            let mut names: Vec<&str> = events.iter().map(|event| event.name).collect();
            assert!(names.len() >= 12 && events.iter().all(|event| event.about.len() > 20), "{}", mode.name);
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), events.len());
            // The agent reads a step from one line, and what a command prints must not be read as
            // the agent's.
            for step in events.iter().flat_map(|event| &event.steps) {
                assert!(!step.to_string().contains('\n'));
                assert_eq!(Step::parse(&step.to_string()).as_ref(), Some(step));
                assert!(!matches!(step, Step::Run(text) if !text.starts_with("exec >/dev/null 2>&1;")));
            }
        }
    }
}

#[test]
fn a_machine_as_it_was_is_good() {
    for event in events::all(&mode()).iter().filter(|event| event.check.is_none()) {
        assert_eq!(seen(event, |_| ()), Seen::Good, "{}", event.name);
    }
    // Heat changes a frequency slightly.
    let warm = |guest: &mut Guest| end(guest).load.get_mut(&1).unwrap().highest = 1_950_000;
    assert_eq!(seen(&event("sleep.memory-core"), warm), Seen::Good);
}

#[test]
fn what_an_event_changes_is_a_failure() {
    for name in ["sleep.memory-core", "hotplug.one", "mode.loop"] {
        let event = event(name);
        let max = "cpufreq/policy1/scaling_max_freq";
        let found = seen(&event, |guest| drop(end(guest).attributes.insert(max.into(), "4000000".into())));
        assert_eq!(
            lines(found),
            format!("{max} is '4000000' at the end, and '2000000' without it"),
            "{name}"
        );
        let found = seen(&event, |guest| drop(end(guest).attributes.remove(max)));
        assert!(lines(found).contains("is no such file at the end"));
        let found = seen(&event, |guest| {
            end(guest).registers.insert((1, "0xc00102b3".into()), 0xbf00_0fa6);
        });
        assert_eq!(lines(found), "cpu1 0xc00102b3 holds 0xbf000fa6 at the end, and 0x80000fa6 without it");
        let stuck = Busy { lowest: 400_000, highest: 400_000 };
        let found = seen(&event, |guest| {
            end(guest).load.insert(1, stuck);
        });
        assert!(lines(found).contains("cpu1 runs at 400000 kHz"));
        // The difference appears only after the return to the base state.
        let found = seen(&event, |guest| {
            let base = &mut guest.boot.runs.last_mut().unwrap().observations[0];
            base.attributes.insert("cpufreq/boost".into(), "0".into());
        });
        assert!(lines(found).contains("cpufreq/boost is '0' after the return to the base state"));
    }
}

#[test]
fn what_an_earlier_event_spoilt_is_not_reported_again() {
    let event = event("mode.loop");
    let spoil = |seen: &mut Observation| drop(seen.attributes.insert("cpufreq/boost".into(), "0".into()));
    // The state after the event equals the first or the previous state.
    let healed = |guest: &mut Guest| spoil(&mut guest.boot.runs[1].observations[0]);
    assert_eq!(seen(&event, healed), Seen::Good);
    let still = |guest: &mut Guest| {
        guest.boot.runs[1..].iter_mut().flat_map(|run| &mut run.observations).for_each(spoil);
    };
    assert_eq!(seen(&event, still), Seen::Good);
}

#[test]
fn what_the_kernel_says_is_a_failure() {
    let event = event("hotplug.storm");
    let (sequences, places) = plan(std::slice::from_ref(&event));
    let before: usize = sequences[..places[0].at].iter().map(|sequence| sequence.steps.len() + 1).sum();
    let message =
        |step: usize| Message { kind: "oops".into(), step: step as u32, text: vec!["RIP: x".into()] };
    let found = seen(&event, |guest| guest.messages.push(message(before + 2)));
    assert_eq!(lines(found), "the kernel reports: oops\nRIP: x");
    // A message of another sequence.
    assert_eq!(seen(&event, |guest| guest.messages.push(message(1))), Seen::Good);
}

#[test]
fn an_event_that_does_not_end_or_work_is_a_failure() {
    let event = event("sleep.memory-core");
    let first = 2;
    let code = |code| move |guest: &mut Guest| guest.boot.runs[1].observations[first].code = Some(code);
    assert_eq!(seen(&event, code(LACKS)), Seen::Lacks);
    assert!(lines(seen(&event, code(1))).contains("ended with code 1"));
    let found = seen(&event, |guest| {
        guest.boot.runs.truncate(2);
        guest.boot.runs[1].observations.truncate(first);
        guest.boot.hang = Some(20);
        guest.reached = Some(6);
        guest.end = vec!["Call Trace:".into()];
    });
    let text = lines(found);
    assert!(
        text.contains("did not return") && text.contains("Call Trace:") && text.contains("pm_test"),
        "{text}"
    );
    assert_eq!(seen(&event, |guest| guest.boot.runs.truncate(1)), Seen::NotReached);
    let refused =
        record::Answer { path: "cpu1/online".into(), answer: "EBUSY".into(), value: "0".into(), returned: 0 };
    let online = self::event("hotplug.one");
    let found = seen(&online, |guest| {
        let first = 2;
        guest.boot.runs[1].observations[first].answers.push(refused.clone());
    });
    assert_eq!(lines(found), "cpu1/online <- 0 was answered EBUSY");
}

#[test]
fn limits_hold_while_they_are_there() {
    // 2 GHz of 4 is below 60 %.
    assert_eq!(seen(&event("thermal.pressure"), |_| ()), Seen::Good);
    let event = event("thermal.pressure");
    let found = seen(&event, |guest| {
        let at = 2;
        let during = &mut guest.boot.runs[1].observations[at];
        during.attributes.insert("cpufreq/policy0/scaling_max_freq".into(), "4000000".into());
    });
    assert!(lines(found).contains("policy0: scaling_max_freq reads 4000000 during it"));
}

#[test]
fn a_shorter_form_is_found() {
    /// A kernel that resets CPU 1's preference if it was set before.
    struct Forgets;
    impl Boots for Forgets {
        fn boot(&self, _: &Mode, job: &Job) -> Result<Ended, CannotTell> {
            let text = String::from_utf8_lossy(&job.files[1].1).into_owned();
            let (mut output, mut epp, mut set, mut number) = (String::new(), "base", false, 0);
            for line in text.lines() {
                match line.split_once(' ').unwrap_or((line, "")) {
                    ("seq", name) => {
                        (epp, set) = ("base", false);
                        output += &format!("seq {name}\n");
                    }
                    ("s", _) => {
                        number += 1;
                        output += &format!("s {number}\n");
                    }
                    ("x", rest) => {
                        if rest.contains("echo power > cpufreq/policy1/energy_performance_preference") {
                            (epp, set) = ("power", true);
                        }
                        output += "x 0\n";
                    }
                    ("w", "cpu1/online 1") if set => epp = "lost",
                    ("o", _) => {
                        output += &format!(
                            "o\ncpufreq/policy1/energy_performance_preference:{epp}\ncpufreq/policy1/scaling_governor:powersave\n\
                             cpufreq/policy1/scaling_driver:amd-pstate-epp\n.\n"
                        );
                    }
                    _ => {}
                }
            }
            Ok(Ended { output: output + "end\n", ..Ended::default() })
        }

        fn release(&self) -> &'static str {
            "unknown"
        }
    }
    let bench = Bench {
        kernel: &Forgets,
        baseline: None,
        against: None,
        seed: 0,
        shrinks: true,
        save: None,
        thresholds: None,
    };
    let tests = Lifecycle.run(&bench, &mode()).unwrap();
    let failed: Vec<&Test> = tests.iter().filter(|test| !test.is_good()).collect();
    let names: Vec<&str> = failed.iter().map(|test| &*test.name).collect();
    assert_eq!(names, ["hotplug.one", "hotplug.all-but-one", "hotplug.changed-during"]);
    let steps: Vec<String> = failed[0].steps.iter().map(Step::to_string).collect();
    assert_eq!(
        steps,
        ["w cpufreq/policy1/energy_performance_preference power", "w cpu1/online 0", "w cpu1/online 1"]
    );
    // The same failure on the baseline makes it known.
    let bench = Bench { baseline: Some(&Forgets), ..bench };
    let tests = Lifecycle.run(&bench, &mode()).unwrap();
    assert!(tests.iter().all(Test::is_good));
    assert_eq!(tests.iter().filter(|test| test.outcome == crate::report::Outcome::Known).count(), 3);
}
