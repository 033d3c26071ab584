//! Prints what samples cost. Run `cargo run --release -p flyball-monitor --example cost [SAMPLES]
//! [none|ran|all]`, or the built program under `flyball sim run epyc-512 --` for a large machine.

use std::time::Duration;

use flyball_host::{Host, Live};
use flyball_monitor::{Options, Sampler, Touch};

fn main() {
    let mut words = std::env::args().skip(1);
    let count: u32 = words.next().and_then(|word| word.parse().ok()).unwrap_or(10);
    let touch = match words.next().as_deref() {
        Some("none") => Touch::Nothing,
        Some("all") => Touch::All,
        _ => Touch::Ran,
    };
    let host = Live::new();
    let started = flyball_process::thread_time();
    let mut sampler = match Sampler::open(&host, Options { touch, ..Options::default() }) {
        Ok(sampler) => sampler,
        Err(error) => return eprintln!("{error}"),
    };
    let opened = flyball_process::thread_time() - started;
    let first = sampler.sample();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{} CPUs, {} values; opened in {:.1} ms, first sample by {:.1} ms",
        sampler.layout().cpus.len(),
        first.values.len(),
        ms(opened),
        ms(flyball_process::thread_time() - started)
    );
    let mut costs = Vec::new();
    for _ in 0..count {
        host.sleep(Duration::from_secs(1));
        let sample = sampler.sample();
        costs.push((sample.cost.cpu, sample.cost.touched, sample.cost.interrupts));
    }
    costs.sort_unstable();
    if let Some((cpu, touched, interrupts)) = costs.get(costs.len() / 2) {
        println!(
            "a sample, median of {count}: {:.2} ms of CPU time; {touched} CPUs touched, {interrupts} interrupts",
            *cpu as f64 * 1e-6
        );
    }
}
