//! Serves a machine's metrics, runs the doctor in another process, and reads energy counters
//! between scrapes.

use std::{
    io::{self, Read as _},
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::net::UnixStream,
    },
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use flyball_host::Host;
use flyball_process::{release_freed_memory, release_start_code};

use crate::{
    Collector, Format,
    collect::doctor::Findings,
    server::{Handler, Server},
};

/// How often to run the doctor.
const DOCTOR_EVERY: Duration = Duration::from_secs(600);
/// Number of scrapes after which memory that only the first ones needed is released.
const WARM_UP: u8 = 3;
/// Maximum bytes of the doctor's report, a hundred times a long one.
const MAX_REPORT: usize = 4 << 20;

#[derive(Clone, Copy)]
pub struct AskDoctor<'a> {
    /// Returns the command that prints the doctor's report.
    pub command: &'a dyn Fn() -> Option<Command>,
    /// Called if the report cannot be read. The metrics keep the previous one.
    pub on_unreadable: &'a dyn Fn(),
}

/// The doctor process, and its output so far.
struct Doctor {
    child: Child,
    out: ChildStdout,
    report: Vec<u8>,
}

struct Exporter<'h, 'c> {
    ask: Option<AskDoctor<'c>>,
    host: &'h dyn Host,
    collector: Collector<'h>,
    stopped: UnixStream,
    doctor: Option<Doctor>,
    /// Number of scrapes, counted up to one more than [`WARM_UP`].
    scrapes: u8,
    next_doctor: Option<Instant>,
    /// When the energy counters were read last.
    metered: Instant,
    /// When a simulated machine's clock was last advanced.
    advanced: Instant,
}

/// Serves until `stopped` becomes readable.
///
/// # Errors
/// poll(2) failed.
pub fn serve(
    host: &dyn Host,
    collector: Collector<'_>,
    server: &mut Server,
    stopped: UnixStream,
    ask: Option<AskDoctor<'_>>,
) -> io::Result<()> {
    let now = Instant::now();
    let mut exporter = Exporter {
        ask,
        host,
        collector,
        stopped,
        doctor: None,
        scrapes: 0,
        next_doctor: ask.map(|_| now),
        metered: now,
        advanced: now,
    };
    let served = server.run(&mut exporter);
    exporter.end_doctor();
    served
}

impl Handler for Exporter<'_, '_> {
    fn metrics(&mut self, client: &str, format: Format) -> String {
        // The clock of a simulated machine only advances here, at the speed of real time.
        if self.host.software().is_some() {
            let passed = self.advanced.elapsed();
            self.host.sleep(passed);
            self.advanced += passed;
        }
        self.metered = Instant::now();
        self.scrapes = (self.scrapes + 1).min(WARM_UP + 1);
        self.collector.scrape(client, format)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let doctor = self.doctor.as_ref().map(|doctor| doctor.out.as_fd());
        [self.stopped.as_fd()].into_iter().chain(doctor).collect()
    }

    fn tick(&mut self) -> Option<Option<Duration>> {
        if self.stopped.read(&mut [0]).is_ok() {
            return None;
        }
        if let 1..=WARM_UP = self.scrapes {
            // The first scrape opens and reads every file and queries Speed Select, with code and
            // memory that later scrapes do not need. The next few have parts of their own.
            release_freed_memory();
            release_start_code();
        }
        let now = Instant::now();
        self.read_doctor();
        if self.doctor.is_none() && self.next_doctor.is_some_and(|next| next <= now) {
            self.next_doctor = Some(now + DOCTOR_EVERY);
            self.doctor = self.ask.and_then(|ask| start_doctor((ask.command)()?));
        }
        // If scrapes are far apart, a counter could wrap unseen.
        let within = self.collector.meters_within();
        if within.is_some_and(|within| now.duration_since(self.metered) >= within) {
            self.collector.follow_meters();
            self.metered = now;
        }
        let meters = within.map(|within| self.metered + within);
        let next = meters.into_iter().chain(self.next_doctor).min();
        Some(next.map(|next| next.saturating_duration_since(now)))
    }
}

impl Exporter<'_, '_> {
    /// Reads what the doctor has printed, and parses its report once it has ended.
    fn read_doctor(&mut self) {
        let Some(doctor) = &mut self.doctor else { return };
        let mut buffer = [0; 1 << 14];
        loop {
            match doctor.out.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) if doctor.report.len() + count <= MAX_REPORT => {
                    doctor.report.extend_from_slice(&buffer[..count]);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                // The report is too long or cannot be read. The doctor is killed below.
                Ok(_) | Err(_) => break,
            }
        }
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
        match Findings::parse(&doctor.report, at) {
            Ok(findings) => self.collector.set_findings(findings),
            Err(_) => self.ask.iter().for_each(|ask| (ask.on_unreadable)()),
        }
        self.end_doctor();
    }

    fn end_doctor(&mut self) {
        if let Some(mut doctor) = self.doctor.take() {
            // Usually it has ended already. Wait for it in any case, so that it does not stay a
            // zombie.
            let _ = doctor.child.kill();
            let _ = doctor.child.wait();
        }
    }
}

/// Starts the doctor. If that fails, its metrics are absent.
fn start_doctor(mut command: Command) -> Option<Doctor> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let out = child.stdout.take()?;
    if flyball_process::set_nonblocking(&out).is_err() {
        let _ = child.kill();
        let _ = child.wait();
        return None;
    }
    Some(Doctor { child, out, report: Vec::new() })
}
