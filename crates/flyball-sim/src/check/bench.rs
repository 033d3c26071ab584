//! A simulated machine in an experiment: settings through its files, a workload, and the values
//! that turbostat and powercap would show.

use std::time::Duration;

use flyball_silicon::MachineSpec;

use super::CheckError;
use crate::workload::{Engine, Progress, Shared, Workload};
use crate::{Boot, Kernel, SimMachine};

/// A snapshot: APERF and MPERF of each CPU, energy of all packages, time.
#[derive(Debug, Clone)]
pub(super) struct Mark {
    counters: Vec<(u64, u64)>,
    joules: f64,
    wall_joules: f64,
    seconds: f64,
}

/// Measurements between two marks.
#[derive(Debug, Clone)]
pub(super) struct Span {
    /// turbostat's Bzy_MHz of each CPU.
    pub(super) bzy_mhz: Vec<f64>,
    pub(super) joules: f64,
    pub(super) seconds: f64,
    pub(super) wall_watts: f64,
    /// Busy share of all CPUs' time, in percent.
    pub(super) load: f64,
    /// Mean requested performance level (AMD).
    pub(super) des_perf: Option<f64>,
}

impl Span {
    /// Mean of turbostat's Bzy_MHz, GHz.
    pub(super) fn ghz(&self) -> f64 {
        self.bzy_mhz.iter().sum::<f64>() / self.bzy_mhz.len() as f64 / 1000.0
    }
}

/// A machine and its running workload.
pub(super) struct Bench {
    pub(super) machine: SimMachine,
    wall: f64,
    mhz: f64,
    /// Requested levels: their sum and their number.
    asked: (f64, u64),
}

impl Bench {
    /// Boots a built-in machine.
    pub(super) fn boot(name: &str, kernel: Kernel, options: &[&str]) -> Result<Bench, CheckError> {
        let spec = MachineSpec::builtin(name)?;
        Bench::boot_spec(spec, kernel, options)
    }

    /// Boots a machine.
    pub(super) fn boot_spec(
        spec: MachineSpec,
        kernel: Kernel,
        options: &[&str],
    ) -> Result<Bench, CheckError> {
        let mhz = f64::from(spec.clock.tsc_khz) / 1000.0;
        let boot = Boot { options: options.iter().map(|&o| o.to_owned()).collect(), ..Boot::default() };
        let machine = SimMachine::boot(spec, kernel, boot, 0)?;
        Ok(Bench { machine, wall: 0.0, mhz, asked: (0.0, 0) })
    }

    /// Writes a file under /sys/devices/system/cpu.
    pub(super) fn set(&mut self, file: &str, value: &str) -> Result<(), CheckError> {
        let path = format!("/sys/devices/system/cpu/{file}");
        let answer = self.machine.write(&path, value.as_bytes());
        answer.map_err(|errno| CheckError::Write { path, value: value.to_owned(), errno })
    }

    /// Writes a cpufreq file of every CPU.
    pub(super) fn set_all(&mut self, file: &str, value: &str) -> Result<(), CheckError> {
        for cpu in 0..self.machine.silicon().cpus() {
            if self.machine.is_online(cpu as u32) {
                self.set(&format!("cpu{cpu}/cpufreq/{file}"), value)?;
            }
        }
        Ok(())
    }

    pub(super) fn wait(&mut self, seconds: f64) {
        let mut left = (seconds * 1000.0) as u64;
        while left > 0 {
            let part = left.min(10);
            self.machine.advance(Duration::from_millis(part));
            self.wall += self.machine.silicon().platform_power().0 * part as f64 * 0.001;
            left -= part;
            self.read_requests();
        }
    }

    /// Reads each CPU's desired performance from amd-pstate's request register (bits 23:16).
    fn read_requests(&mut self) {
        let silicon = self.machine.silicon();
        for cpu in 0..silicon.cpus() {
            if let Ok(request) = silicon.read_msr(cpu, flyball_silicon::msr::AMD_CPPC_REQ) {
                let desired = request >> 16 & 0xff;
                // 0: the driver is not bound, or leaves the choice to the processor.
                if desired > 0 {
                    self.asked = (self.asked.0 + desired as f64, self.asked.1 + 1);
                }
            }
        }
    }

    /// Starts a workload on some CPUs, or on all if `cpus` is empty.
    pub(super) fn start(&mut self, workload: &Workload, cpus: &[u32]) -> Shared {
        let engine = Engine::new(workload.clone(), cpus.to_vec(), 1);
        let shared = engine.shared();
        self.machine.run(Some(Box::new(engine)));
        shared
    }

    /// Runs a workload to its end. Returns its progress and the measurements over the run.
    pub(super) fn run(&mut self, workload: &Workload, cpus: &[u32]) -> (Progress, Span) {
        let shared = self.start(workload, cpus);
        let from = self.mark();
        self.asked = (0.0, 0);
        let mut guard = 0;
        while !self.machine.is_idle() && guard < 1_000_000 {
            self.wait(0.01);
            guard += 1;
        }
        let span = self.since(&from);
        self.machine.run(None);
        let progress = shared.lock().map(|p| p.clone()).unwrap_or_default();
        (progress, span)
    }

    /// Runs a workload on some CPUs, with a busy loop on others.
    pub(super) fn run_beside(
        &mut self,
        mut workload: Workload,
        cpus: &[u32],
        busy: &[u32],
    ) -> Result<(Progress, Span), CheckError> {
        if !busy.is_empty() {
            let mut spin = Workload::builtin("spin")?.task.remove(0);
            (spin.count, spin.counts) = (busy.len() as u32, false);
            // The spinning tasks come after the others in the list of CPUs.
            workload.task.push(spin);
        }
        Ok(self.run(&workload, &[cpus, busy].concat()))
    }

    pub(super) fn mark(&mut self) -> Mark {
        let silicon = self.machine.silicon();
        let read = |cpu: usize, register| silicon.read_msr(cpu, register).unwrap_or(0);
        let counters = (0..silicon.cpus())
            .map(|cpu| (read(cpu, flyball_silicon::msr::APERF), read(cpu, flyball_silicon::msr::MPERF)))
            .collect();
        let joules = (0..silicon.topology().packages()).map(|p| silicon.energy_joules(p)).sum();
        Mark { counters, joules, wall_joules: self.wall, seconds: self.machine.now().as_secs_f64() }
    }

    /// Returns the measurements since a mark.
    pub(super) fn since(&mut self, from: &Mark) -> Span {
        let now = self.mark();
        let seconds = now.seconds - from.seconds;
        let mperf = |mark: &Mark| mark.counters.iter().map(|both| both.1 as f64).sum::<f64>();
        let whole = seconds * self.mhz * 1e6 * now.counters.len() as f64;
        let load = (mperf(&now) - mperf(from)) / whole.max(1.0) * 100.0;
        let bzy_mhz = now
            .counters
            .iter()
            .zip(&from.counters)
            .map(|(b, a)| {
                let (aperf, mperf) = (b.0.wrapping_sub(a.0) as f64, b.1.wrapping_sub(a.1) as f64);
                if mperf > 0.0 { aperf / mperf * self.mhz } else { 0.0 }
            })
            .collect();
        Span {
            bzy_mhz,
            joules: now.joules - from.joules,
            seconds,
            load,
            des_perf: (self.asked.1 > 0).then(|| self.asked.0 / self.asked.1 as f64),
            wall_watts: (now.wall_joules - from.wall_joules) / seconds.max(1e-9),
        }
    }
}
