//! `flyball exporter`: metrics of the processors for Prometheus, over HTTP, in a file or on stdout.

mod serve;

use std::{path::PathBuf, time::Duration};

use flyball_exporter::{Collector, Format, Options, server::Address};
use flyball_host::Host;
use flyball_process::confine::Confinement;

use crate::{
    context::Context,
    exit::{Exit, Failure},
    output,
    time::span_within,
};

/// Arguments of `exporter`.
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
#[derive(Debug, clap::Args)]
#[command(after_help = "\
It listens on loopback unless you give --web.listen-address. It never writes. To read energy, it wakes at most one sleeping CPU per \
package and scrape, and no others. Averages cover the time since the same client's last scrape. docs/metrics.md lists the metrics.

Examples:
  flyball exporter
  flyball exporter --web.listen-address :9966 --web.config.file /etc/flyball/web.yml
  flyball exporter --node --per-cpu                      in place of node_exporter's cpu, cpufreq and rapl
  flyball exporter --textfile /var/lib/prometheus/node-exporter/flyball.prom
  flyball -M sim:epyc-512 exporter --stdout

Exit codes: 0 ended by a signal, or --stdout is done, 1 it cannot listen or write, 2 an address or the configuration is not accepted, \
4 the machine has no CPUs to list.")]
pub(crate) struct Args {
    /// Write the metrics to this file periodically, for node_exporter's textfile collector, instead
    /// of serving them.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["stdout", "node"])]
    textfile: Option<PathBuf>,

    /// With --textfile: the time between two writes, from 1s to 1h.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = span_within(Duration::from_secs(1), Duration::from_secs(3600)))]
    every: Duration,

    /// Print the metrics once, after a second of sampling.
    #[arg(long)]
    stdout: bool,

    /// With --stdout: use the OpenMetrics format.
    #[arg(long, requires = "stdout")]
    openmetrics: bool,

    /// Add the frequency and load of each CPU.
    #[arg(long)]
    per_cpu: bool,

    /// Add what each limit takes from the CPUs' frequency, as 'flyball why' explains it.
    #[arg(long)]
    why: bool,

    /// Add exits from idle states. Each scrape then reads five files per CPU and state.
    #[arg(long)]
    wakes: bool,

    /// Add the metrics of node_exporter's collectors cpu, cpufreq and rapl; most of them need
    /// --per-cpu.
    #[arg(long)]
    node: bool,

    /// Number of values of a setting to count by name; rarer ones are counted as 'other'.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1000))]
    max_values: u16,

    /// Do not run the doctor's checks every ten minutes.
    #[arg(long)]
    no_doctor: bool,

    /// Where to listen: HOST:PORT, :PORT for all addresses, unix:PATH; may be repeated [default:
    /// 127.0.0.1:9966 and [::1]:9966].
    #[arg(long = "web.listen-address", value_name = "ADDRESS")]
    listen: Vec<Address>,

    /// The path of the metrics.
    #[arg(long = "web.telemetry-path", value_name = "PATH", default_value = "/metrics")]
    telemetry_path: String,

    /// Listen on the sockets that systemd opened.
    #[arg(long = "web.systemd-socket", conflicts_with = "listen")]
    systemd_socket: bool,

    /// File with users and TLS, in the format of Prometheus' exporter-toolkit.
    #[arg(long = "web.config.file", value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Args {
    /// Adds the output file. Returns whether the command only writes a file or prints, without a
    /// server.
    pub(super) fn files(&self, files: &mut Confinement) -> bool {
        if let Some(file) = &self.textfile {
            files.write(file);
        }
        self.stdout || self.textfile.is_some()
    }
}

/// The default port, on the loopback address.
const PORT: u16 = 9966;

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    // Before opening the machine, so that a problem with the server is reported at once.
    let web = if args.stdout || args.textfile.is_some() { None } else { Some(serve::Web::open(args)?) };
    let host = context.open()?;
    let options = Options {
        per_cpu: args.per_cpu,
        node: args.node,
        why: args.why,
        wakes: args.wakes,
        process: args.textfile.is_none(),
        most_values: usize::from(args.max_values),
    };
    // A recorded machine has no holds.
    let mut collector = Collector::open(&*host, options, context.state().ok())?;
    match (&args.textfile, web) {
        (Some(file), _) => write_again(&*host, &mut collector, file, args.every),
        (None, Some(web)) => serve::run(context, &*host, collector, web, !args.no_doctor),
        (None, None) => {
            host.sleep(Duration::from_secs(1));
            let format = if args.openmetrics { Format::OpenMetrics } else { Format::Text };
            output::print(collector.scrape("stdout", format))?;
            Ok(Exit::Done)
        }
    }
}

/// Writes the file until a signal arrives. Writes no other file, and readers never see it
/// incomplete.
fn write_again(
    host: &dyn Host,
    collector: &mut Collector<'_>,
    file: &std::path::Path,
    every: Duration,
) -> Result<Exit, Failure> {
    let stopped = serve::signals()?;
    loop {
        if host.software().is_some() {
            host.sleep(every);
        }
        let text = collector.scrape("textfile", Format::Text);
        flyball_files::replace(file, text.as_bytes())
            .map_err(|error| Failure::failed(format!("cannot write {}: {error}", file.display())))?;
        if serve::wait_for(&stopped, every)? {
            return Ok(Exit::Done);
        }
    }
}
