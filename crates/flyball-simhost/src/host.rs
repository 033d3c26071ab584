//! The machine as a [`Host`]. If there is a state file, every call that changes the machine is
//! recorded in it.

mod program;
mod tracing;

use std::{
    fs::File,
    io::{self, Write},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use flyball_host::{Errno, Host, HostError, Kind, Launch, Model, Op, Process, Software, tracefs::Tracefs};
use flyball_process::terminal;
use flyball_sim::{
    Caller, SimMachine,
    workload::{Engine, Several, Shared},
};

pub use self::program::PROGRAM;
use self::{program::Program, tracing::SimTracing};
use crate::{
    SimError, SimSetup,
    state::{self, hex},
};

/// A simulated machine. Clones share it.
#[derive(Debug, Clone)]
pub struct SimHost {
    label: String,
    setup: SimSetup,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    machine: SimMachine,
    /// Time on the host's clock before the machine's last boot.
    before: Duration,
    journal: Option<File>,
    /// True once the machine was written to or time has passed.
    was_led_on: bool,
    /// True if faults watch reads, so that the state file must record reads too.
    notes_reads: bool,
    /// True if the state file could not be written, which is reported once.
    failed: bool,
    /// Number of the run, if runs are to vary.
    run: Option<u64>,
    /// The running models.
    running: Several,
}

impl SimHost {
    /// Boots the chosen machine and restores its state.
    pub fn open(setup: &SimSetup) -> Result<SimHost, SimError> {
        let mut machine = setup.boot()?;
        // Before the state is replayed, which may have removed CPUs and their files.
        setup.warn_of_idle_faults(&mut machine);
        let journal = match &setup.state {
            Some(path) => Some(state::resume(setup, path, &mut machine)?),
            None => None,
        };
        let label = format!("sim:{}", machine.name());
        // Reads change only the clock and the rules' counts, so record them only if a rule counts
        // them.
        let notes_reads = setup.state.is_some() && setup.watches_reads();
        let inner = Inner {
            machine,
            before: Duration::ZERO,
            journal,
            was_led_on: false,
            notes_reads,
            failed: false,
            run: None,
            running: Several::default(),
        };
        Ok(SimHost { label, setup: setup.clone(), inner: Arc::new(Mutex::new(inner)) })
    }

    /// The seed chosen for the machine.
    pub fn seed(&self) -> u64 {
        self.setup.seed
    }

    /// Runs `work` on the machine itself.
    pub fn with<T>(&self, work: impl FnOnce(&mut SimMachine) -> T) -> T {
        work(&mut self.lock().machine)
    }

    /// Runs a load on some CPUs, or on all if `cpus` is empty, in addition to loads on other CPUs.
    /// Returns `false` if one of the CPUs is taken.
    fn begin(&self, cpus: &[u32], load: Engine) -> bool {
        let mut inner = self.lock();
        let shared = load.shared();
        let free = inner.running.add(cpus, Box::new(load), shared);
        let all = inner.running.clone();
        inner.machine.run(Some(Box::new(all)));
        free
    }

    /// Ends the load with this progress handle.
    fn finish(&self, load: &Shared) {
        let mut inner = self.lock();
        inner.running.end(load);
        if inner.running.is_empty() {
            inner.machine.run(None);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic in another thread leaves a machine that can still answer.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn note(&mut self, line: &str) {
        self.was_led_on = true;
        if let Some(file) = &mut self.journal
            // In one write, so that lines of concurrent commands stay whole.
            && let Err(error) = file.write_all(format!("{line}\n").as_bytes())
            && !std::mem::replace(&mut self.failed, true)
        {
            terminal::complain(format_args!(
                "flyball: warning: cannot keep the simulated machine's state: {error}\n"
            ));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Time passes without calls too (sleeps, workloads), and the next process must start at
        // that time. A command that only reads does not record its time: looking at a machine does
        // not change its file.
        if self.was_led_on {
            let now = self.machine.now().as_nanos();
            self.note(&format!("until {now}"));
        }
    }
}

impl Software for SimHost {
    fn model(&self, words: &[String]) -> io::Result<Model> {
        program::model(words).map_err(program::invalid)
    }

    fn reboot(&self, words: &[String]) -> io::Result<()> {
        let mut inner = self.lock();
        let mut setup = self.setup.clone();
        setup.boot.extend(words.iter().cloned());
        // Each round of a comparison differs from the others, but repeats with equal seeds.
        setup.seed ^= inner.run.unwrap_or(0);
        let mut machine = setup.boot().map_err(program::invalid)?;
        machine.vary(setup.seed);
        let ran = inner.machine.now();
        // The host's clock continues over a reboot, like a wall clock; the machine's clock starts
        // at 0.
        inner.before += ran;
        inner.machine = machine;
        inner.running = Several::default();
        Ok(())
    }

    fn vary(&self, run: u64) {
        self.lock().run = Some(run);
    }

    fn wake_latency(&self, cpu: u32, state: u32, below: f64) -> Duration {
        // cpuidle's state 0 polls, and the silicon's first state is 1.
        let Some(state) = state.checked_sub(1) else { return Duration::ZERO };
        let inner = self.lock();
        let silicon = inner.machine.silicon();
        let mean = silicon.wake_ns(cpu as usize, state as u8) as f64;
        let spread = silicon.wake_spread_ns(cpu as usize, state as u8) as f64;
        Duration::from_nanos((mean + spread * (2.0 * below - 1.0)) as u64)
    }

    fn is_kept(&self) -> bool {
        self.setup.state.is_some()
    }
}

fn error(op: Op, path: &str, errno: flyball_sim::Errno) -> HostError {
    HostError::new(op, path, Errno(errno.0))
}

fn msr_name(cpu: u32, register: u32) -> String {
    format!("MSR {register:#x} of CPU {cpu}")
}

impl Host for SimHost {
    fn kind(&self) -> Kind {
        Kind::Simulated
    }

    /// In the directory of the state file.
    fn topology_cache(&self) -> Option<PathBuf> {
        self.setup.state.as_ref().map(|state| PathBuf::from(format!("{}.topology", state.display())))
    }

    fn name(&self) -> String {
        self.label.clone()
    }

    fn read_into(&self, path: &str, buffer: &mut Vec<u8>) -> Result<(), HostError> {
        let mut inner = self.lock();
        if inner.notes_reads {
            let at = inner.machine.now().as_nanos();
            inner.note(&format!("read {at} {path}"));
        }
        inner.machine.read_into(path, buffer).map_err(|errno| error(Op::Read, path, errno))
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), HostError> {
        let mut inner = self.lock();
        let at = inner.machine.now().as_nanos();
        let result = inner.machine.write(path, bytes).map_err(|errno| error(Op::Write, path, errno));
        // Record failed writes too: they took time, a fault rule may have counted them, and drivers
        // may have acted before the error.
        inner.note(&format!("write {at} {path} {}", hex(bytes)));
        result
    }

    fn list(&self, path: &str) -> Result<Vec<String>, HostError> {
        self.lock().machine.list(path).map_err(|errno| error(Op::List, path, errno))
    }

    fn exists(&self, path: &str) -> bool {
        self.lock().machine.exists(path)
    }

    fn writable(&self, path: &str) -> bool {
        self.lock().machine.writable(path)
    }

    fn link(&self, path: &str) -> Result<String, HostError> {
        self.lock().machine.readlink(path).map_err(|errno| error(Op::Link, path, errno))
    }

    fn msr(&self, cpu: u32, register: u32) -> Result<u64, HostError> {
        let result = self.lock().machine.read_msr(cpu, register);
        result.map_err(|errno| error(Op::ReadMsr, &msr_name(cpu, register), errno))
    }

    fn cpuid(&self, leaf: u32, subleaf: u32) -> Option<[u32; 4]> {
        Some(self.lock().machine.cpuid(leaf, subleaf))
    }

    fn write_msr(&self, cpu: u32, register: u32, value: u64) -> Result<(), HostError> {
        let mut inner = self.lock();
        let at = inner.machine.now().as_nanos();
        let result = inner.machine.write_msr(cpu, register, value);
        inner.note(&format!("msr {at} {cpu} {register} {value}"));
        result.map_err(|errno| error(Op::WriteMsr, &msr_name(cpu, register), errno))
    }

    fn isst(&self, number: u32, argument: &mut [u8]) -> Result<i32, HostError> {
        let mut inner = self.lock();
        let at = inner.machine.now().as_nanos();
        // Before the call, which overwrites the argument.
        let asked = hex(argument);
        // The user who runs flyball is root on this machine.
        let result = inner.machine.isst(number, argument, Caller::Root);
        inner.note(&format!("isst {at} {number} {asked}"));
        result.map_err(|errno| match errno {
            flyball_sim::Errno::NOENT => error(Op::Isst, flyball_host::isst::NODE, errno),
            // The lowest eight bits of an ioctl number are its index; the others are size and
            // direction.
            _ => error(Op::Isst, &format!("call {} of {}", number & 0xff, flyball_host::isst::NODE), errno),
        })
    }

    fn tracefs(&self) -> Result<Tracefs, HostError> {
        Ok(Tracefs::new(SimTracing(self.clone())))
    }

    fn spawn(&self, launch: Launch) -> io::Result<Box<dyn Process>> {
        let run = self.lock().run;
        let program = Program::start(self.clone(), launch, run).map_err(program::invalid)?;
        Ok(Box::new(program))
    }

    fn software(&self) -> Option<&dyn Software> {
        Some(self)
    }

    fn now(&self) -> Duration {
        let inner = self.lock();
        inner.before + inner.machine.now()
    }

    fn sleep(&self, time: Duration) {
        let mut inner = self.lock();
        inner.was_led_on = true;
        inner.machine.advance(time);
    }
}
