//! Programs of a simulated machine: workload models, which take the machine's time.

use std::{io, os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration};

use flyball_host::{CpuList, Ended, Host, Launch, Process, topology::must_be_present};
use flyball_sim::workload::{Engine, Progress, Shared, Workload};

use super::SimHost;
use crate::{SimError, workload_model};

/// Word before a model's name in a comparison's records. No real program has this name.
pub const PROGRAM: &str = "sim:workload";

/// Time limit for models that never end: all others end within this much machine time.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The command as words: `[sim:workload] NAME [AMOUNT] [--amount N] [--pin CPUS] [--endless]`.
#[derive(Debug)]
struct Request {
    name: String,
    amount: Option<u64>,
    pins: Vec<u32>,
    /// True for a background load, which does not end by itself.
    endless: bool,
}

impl Request {
    fn parse(words: &[String]) -> Result<Request, SimError> {
        let mut request = Request { name: String::new(), amount: None, pins: Vec::new(), endless: false };
        // Words from a record may be passed as a command.
        let mut words = words.iter().filter(|word| *word != PROGRAM);
        while let Some(word) = words.next() {
            let mut value =
                |option: &str| words.next().ok_or_else(|| SimError::Setup(format!("{option} needs a value")));
            match word.as_str() {
                "--amount" => {
                    let text = value("--amount")?;
                    let amount = text.parse().ok().filter(|&amount: &u64| amount > 0);
                    request.amount = Some(
                        amount.ok_or_else(|| SimError::Setup(format!("amount '{text}' is not a count")))?,
                    );
                }
                "--endless" => request.endless = true,
                "--pin" => {
                    let list: Result<CpuList, _> = value("--pin")?.parse();
                    let list = list.map_err(|error| SimError::Setup(format!("--pin: {error}")))?;
                    request.pins = list.iter().collect();
                }
                _ if request.name.is_empty() && !word.starts_with('-') => request.name.clone_from(word),
                _ if request.amount.is_none() && word.parse::<u64>().is_ok() => {
                    request.amount = word.parse().ok();
                }
                _ => {
                    return Err(SimError::Setup(format!(
                        "'{word}' is not understood: on a simulated machine a model runs, not a command; give its name \
                         and perhaps --amount N and --pin CPUS ('flyball sim list' names the models)"
                    )));
                }
            }
        }
        Ok(request)
    }
}

/// The error of starting words that name no model.
pub(crate) fn invalid(error: SimError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

pub(crate) fn model(words: &[String]) -> Result<flyball_host::Model, SimError> {
    let request = Request::parse(words)?;
    let model = workload_model(&request.name, request.amount)?;
    let rate_unit =
        (model.seconds > 0.0).then(|| model.result.unwrap_or_else(|| format!("{}/s", model.unit)));
    Ok(flyball_host::Model { name: model.name, rate_unit })
}

/// A running model.
#[derive(Debug)]
pub(crate) struct Program {
    host: SimHost,
    launch: Launch,
    model: Workload,
    progress: Shared,
    started: Duration,
}

impl Program {
    /// Starts the model that `launch` names. `run` is the number of the run, if runs are to vary.
    pub(crate) fn start(host: SimHost, launch: Launch, run: Option<u64>) -> Result<Program, SimError> {
        let request = Request::parse(&launch.words())?;
        let mut model = workload_model(&request.name, request.amount)?;
        if request.endless {
            model.seconds = 0.0;
            model.task.iter_mut().for_each(|group| group.turns = 0);
        }
        // The caller's pinning takes precedence over --pin in the model's words, like taskset
        // around a program.
        let pins = launch.cpus().map_or(request.pins, |cpus| cpus.iter().collect());
        must_be_present(&host, &pins.iter().copied().collect())
            .map_err(|absent| SimError::Setup(format!("--pin: {absent}")))?;
        let engine = match run {
            // The run's number makes rounds differ as on a real machine; the seed makes them
            // repeat.
            Some(run) => Engine::varied(model.clone(), pins.clone(), host.seed() ^ run),
            None => Engine::new(model.clone(), pins.clone(), host.seed()),
        };
        let progress = engine.shared();
        if !host.begin(&pins, engine) {
            return Err(SimError::Setup(
                "another workload runs on CPUs that this one may use: give each of them CPUs of its own (--pin, --beside-pin)"
                    .to_owned(),
            ));
        }
        let started = host.now();
        Ok(Program { host, launch, model, progress, started })
    }

    fn progress(&self) -> Progress {
        self.progress.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Takes the model off the machine and prints its result.
    fn end(&mut self) -> Ended {
        self.host.finish(&self.progress);
        let progress = self.progress();
        let seconds = progress.ns as f64 * 1e-9;
        // Print it where a program's output would go, so that callers that read output find a
        // result.
        self.launch.print(
            &self.model.name,
            &format!("{} {} in {seconds:.6} s, simulated\n", progress.turns, self.model.unit),
        );
        Ended {
            status: ExitStatus::from_raw(0),
            // A model has no process for which the kernel would account usage.
            usage: None,
            wall: Duration::from_nanos(progress.ns),
            rate: (self.model.seconds > 0.0).then(|| progress.rate() * self.model.scale),
        }
    }
}

impl Drop for Program {
    /// A program that nobody waited for releases its CPUs.
    fn drop(&mut self) {
        self.host.finish(&self.progress);
    }
}

impl Process for Program {
    /// Lets the machine's time pass in slices, to notice the end early and let other programs run.
    /// Only checks if `limit` is zero.
    fn wait(&mut self, limit: Duration) -> io::Result<Option<Ended>> {
        let began = self.host.now();
        // 10 ms is short compared to changes of power and heat, and long compared to the cost of a
        // step.
        let slice = limit.clamp(Duration::from_millis(1), Duration::from_millis(10));
        loop {
            if self.progress().done {
                return Ok(Some(self.end()));
            }
            if self.host.now().saturating_sub(self.started) > LONGEST {
                return Err(io::Error::other("the model does not end"));
            }
            if self.host.now().saturating_sub(began) >= limit {
                return Ok(None);
            }
            self.host.sleep(slice);
            // Return to the caller before noticing the end, so that meters are read at every
            // multiple of its interval.
            if self.host.now().saturating_sub(began) >= limit {
                return Ok(None);
            }
        }
    }

    fn stop(mut self: Box<Self>, _patience: Duration) -> io::Result<Ended> {
        Ok(self.end())
    }
}
