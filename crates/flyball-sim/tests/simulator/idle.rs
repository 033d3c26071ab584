//! Choices and errors of the idle governors for known sleeps.

use flyball_sim::{Boot, CpuWork, Kernel, Load, SimMachine, Step, silicon::MachineSpec};

/// The sleeps of CPU 0 in microseconds, a list per step, repeated.
struct Planned {
    steps: Vec<Vec<u32>>,
    timer: bool,
    step: usize,
}

impl Load for Planned {
    fn step(&mut self, _: &Step<'_>, work: &mut [CpuWork]) {
        let work = &mut work[0];
        for us in &self.steps[self.step % self.steps.len()] {
            work.end_sleep(*us);
        }
        self.step += 1;
        work.activity.busy_ns = if work.activity.wakes > 0 { 10_000 } else { 0 };
        work.timer = self.timer;
        if let (true, Some(us)) = (self.timer, self.steps[self.step % self.steps.len()].first()) {
            work.timer_us = *us;
        }
    }
}

/// Exits of CPU 0 in a second, for each state of tpmi-small: C1, C1E (pays off from 4 us), C6 (650)
/// and C6P (1000), each with `above` and `below`.
fn exits(governor: &str, timer: bool, steps: &[&[u32]]) -> [[u64; 3]; 4] {
    let spec = MachineSpec::builtin("tpmi-small").unwrap();
    let boot = Boot { options: vec!["cpuidle.governor=teo".to_owned()], ..Boot::default() };
    let mut machine = SimMachine::boot(spec, Kernel::V7_2, boot, 0).unwrap();
    let cpuidle = "/sys/devices/system/cpu/cpuidle";
    machine.write(&format!("{cpuidle}/current_governor"), governor.as_bytes()).unwrap();
    assert_eq!(
        machine.read(&format!("{cpuidle}/current_governor")).unwrap(),
        format!("{governor}\n").as_bytes()
    );
    let read = |machine: &mut SimMachine| {
        [1, 2, 3, 4].map(|state| {
            ["usage", "above", "below"].map(|name| {
                let path = format!("/sys/devices/system/cpu/cpu0/cpuidle/state{state}/{name}");
                String::from_utf8(machine.read(&path).unwrap()).unwrap().trim().parse::<u64>().unwrap()
            })
        })
    };
    let steps = steps.iter().map(|step| step.to_vec()).collect();
    machine.run(Some(Box::new(Planned { steps, timer, step: 0 })));
    // Let the governor learn the load.
    machine.advance(std::time::Duration::from_secs(1));
    let before = read(&mut machine);
    machine.advance(std::time::Duration::from_secs(1));
    let after = read(&mut machine);
    [0, 1, 2, 3].map(|state| [0, 1, 2].map(|at| after[state][at] - before[state][at]))
}

const NONE: [u64; 3] = [0; 3];

#[test]
fn equal_sleeps_are_guessed_right() {
    for governor in ["menu", "teo"] {
        for timer in [false, true] {
            assert_eq!(exits(governor, timer, &[&[700]]), [NONE, NONE, [1000, 0, 0], NONE], "{governor}");
            assert_eq!(exits(governor, timer, &[&[40; 20]])[1], [20_000, 0, 0], "{governor}");
            let [.., c6p] = exits(governor, timer, &[&[2000], &[]]);
            assert_eq!(c6p, [500, 0, 0], "{governor}");
        }
    }
}

/// menu takes the short sleeps as typical, so every long one gets too light a state
/// (get_typical_interval() discards the long ones as outliers). teo predicts what most sleeps were,
/// weighting the last one most, and so always predicts the other kind.
#[test]
fn sleeps_that_alternate_mislead_both_governors() {
    let [c1, c1e, c6, c6p] = exits("menu", false, &[&[20, 700]]);
    assert_eq!([c1, c1e, c6, c6p], [NONE, [2000, 0, 1000], NONE, NONE]);
    let [c1, c1e, c6, c6p] = exits("teo", false, &[&[20, 700]]);
    assert_eq!([c1, c1e, c6, c6p], [NONE, [1000, 0, 1000], [1000, 1000, 0], NONE]);
}

/// With known timers teo follows the next timer, unless most sleeps are cut short. menu's typical
/// sleep hides the long ones, so tools that wake by timers make it choose light states.
#[test]
fn teo_believes_timers_where_menu_believes_the_past() {
    assert_eq!(exits("teo", true, &[&[20, 700]]), [NONE, [1000, 0, 0], [1000, 0, 0], NONE]);
    assert_eq!(exits("menu", true, &[&[20, 700]]), [NONE, [2000, 0, 1000], NONE, NONE]);
}

/// A governor needs some sleeps to notice a change of load: too deep a state after long sleeps, too
/// light a state after short ones.
#[test]
fn bursts_cost_both_errors() {
    for governor in ["menu", "teo"] {
        let steps: Vec<&[u32]> = (0..40).map(|step| if step < 20 { &[20][..] } else { &[900] }).collect();
        let [_, light, deep, _] = exits(governor, false, &steps);
        let (above, below) = (deep[1], light[2]);
        // 25 changes in each direction, in a second of 1,000 sleeps.
        assert!((25..=150).contains(&above), "{governor}: {light:?} {deep:?}");
        // menu's factor for distant timers adapts slowly after short sleeps.
        assert!((25..=300).contains(&below), "{governor}: {light:?} {deep:?}");
        assert_eq!(light[1] + deep[2], 0, "{governor}");
        assert_eq!(light[0] + deep[0], 1000, "{governor}");
    }
}

/// A short sleep among seven long ones is an outlier, and its state is too deep.
#[test]
fn a_rare_interrupt_finds_the_cpu_too_deep() {
    let steps: Vec<&[u32]> = (0..8).map(|step| if step == 0 { &[20][..] } else { &[900] }).collect();
    for governor in ["menu", "teo"] {
        let [_, _, c6, _] = exits(governor, false, &steps);
        assert_eq!(c6, [1000, 125, 0], "{governor}");
    }
}

/// The tick ends a light state that was chosen for a short sleep, until a deep one is chosen.
#[test]
fn no_cpu_stays_in_a_light_state() {
    let mut steps: Vec<&[u32]> = vec![&[20; 30]; 100];
    steps.resize(500, &[]);
    for governor in ["menu", "teo"] {
        let [_, light, c6, c6p] = exits(governor, false, &steps);
        assert!((6000..6100).contains(&light[0]), "{governor}: {light:?}");
        assert!((1..=20).contains(&light[2]), "{governor}: {light:?} {c6:?} {c6p:?}");
    }
}

#[test]
fn teo_is_there_if_the_command_line_names_it() {
    let spec = || MachineSpec::builtin("tpmi-small").unwrap();
    let path = "/sys/devices/system/cpu/cpuidle";
    let mut plain = SimMachine::boot(spec(), Kernel::V7_2, Boot::default(), 0).unwrap();
    assert_eq!(plain.read(&format!("{path}/available_governors")).unwrap(), b"menu \n");
    assert!(plain.write(&format!("{path}/current_governor"), b"teo").is_err());
    let boot = Boot { options: vec!["cpuidle.governor=teo".to_owned()], ..Boot::default() };
    let mut machine = SimMachine::boot(spec(), Kernel::V7_2, boot, 0).unwrap();
    assert_eq!(machine.read(&format!("{path}/available_governors")).unwrap(), b"menu teo \n");
    assert_eq!(machine.read(&format!("{path}/current_governor_ro")).unwrap(), b"teo\n");
}
