//! `flyball task`: the processes of the built-in workloads, started by `compare`.

use std::path::PathBuf;

use flyball_compare::workloads::Load;
use flyball_measure::task::{load, pipe_peer, random_reads, sched_pipe, spin};

use crate::{
    exit::{Exit, Failure},
    output::line,
    process::own_program,
};

/// Arguments of `task`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Round trips between two processes over a pair of pipes.
    SchedPipe {
        /// Number of round trips.
        #[arg(default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
        trips: u64,
    },
    /// The peer of sched-pipe.
    #[command(hide = true)]
    PipePeer,
    /// A fixed arithmetic loop.
    Spin {
        /// Steps in millions.
        #[arg(default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
        millions: u64,
    },
    /// Keep the CPUs that it may use busy until it is killed (compare --beside).
    Load { kind: Load },
    /// Random 4 KiB reads, one after the other.
    #[command(name = "io-4k")]
    Io4k {
        /// Number of reads.
        #[arg(default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
        reads: u64,
        /// The file or device.
        #[arg(long)]
        file: PathBuf,
        /// Random seed of the offsets.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let fail = |what: &str, error: std::io::Error| Failure::failed(format!("{what}: {error}"));
    match &args.task {
        Task::SchedPipe { trips } => {
            // A process, not a thread: like perf's benchmark, this also switches address spaces at
            // every turn.
            let mut peer = std::process::Command::new(own_program()?);
            peer.args(["task", "pipe-peer"]);
            let time = sched_pipe(peer, *trips).map_err(|error| fail("sched-pipe", error))?;
            line(format_args!("sched-pipe: {:.1} ops/s", *trips as f64 / time.as_secs_f64()))?;
        }
        Task::PipePeer => pipe_peer().map_err(|error| fail("sched-pipe's peer", error))?,
        Task::Spin { millions } => {
            // `compare` parses these lines. In nanoseconds, because differences of a thousandth
            // matter.
            line(format_args!("spin: {:.9} s", spin(millions * 1_000_000).as_secs_f64()))?;
        }
        Task::Load { kind } => load(kind.into_task()),
        Task::Io4k { reads, file, seed } => {
            let done = random_reads(file, *reads, *seed)
                .map_err(|error| fail(&format!("cannot read {}", file.display()), error))?;
            line(format_args!("io-4k: {:.1} ops/s", done.count as f64 / done.time.as_secs_f64()))?;
            line(format_args!("mean latency: {:.2} us", done.time.as_secs_f64() * 1e6 / done.count as f64))?;
            // Print it as part of the output, because it changes the meaning of the result.
            if !done.direct {
                line("the file system does not support O_DIRECT: reads may come from the page cache")?;
            }
        }
    }
    Ok(Exit::Done)
}
