//! The meters of a round on a simulated machine, whose counters have the truth.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::time::Duration;

use flyball_host::{CpuList, Host, Launch};
use flyball_measure::Meters;
use flyball_simhost::{SimHost, SimSetup};

#[test]
fn exits_of_a_round_are_those_that_the_kernel_counted() {
    for machine in ["tpmi-small", "sst-guide", "ryzen-5750g"] {
        let host = SimHost::open(&SimSetup::parse(machine).unwrap()).unwrap();
        let words = ["audio", "--endless", "--pin", "1"].map(str::to_owned);
        let _load = host.spawn(Launch::new(&words[0], &words[1..])).unwrap();
        let cpus: CpuList = "1-2".parse().unwrap();
        let meters = Meters::find(&host, Some(&cpus));
        let states = &meters.list().idle_states;
        let counted = || -> Vec<u64> {
            let usage = |cpu: u32, state: usize| {
                let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}/usage");
                host.read(&path).unwrap().parse::<u64>().unwrap()
            };
            (0..states.len()).map(|state| usage(1, state) + usage(2, state)).collect()
        };
        let outer = counted();
        let recording = meters.start(&host);
        let inner = counted();
        host.sleep(Duration::from_secs(1));
        let before_end = counted();
        let readings = recording.finish();
        let end = counted();
        let exits = readings.exits.clone().unwrap();
        assert_eq!(exits.cpus, 2, "{machine}");
        for (state, count) in exits.by_state.iter().enumerate() {
            let least = before_end[state] - inner[state];
            let most = end[state] - outer[state];
            assert!((least..=most).contains(count), "{machine} {state}: {count} of {least} to {most}");
        }
        assert!(exits.by_state.iter().sum::<u64>() > 100, "{machine}: {exits:?}");
        println!("{machine}: {:?}", readings.wakes(states));
    }
}
