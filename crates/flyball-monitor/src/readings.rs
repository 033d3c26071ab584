//! Readings for users who may not read the machine's meters: a thread of the service with a socket
//! of its own, so that neither a sample nor a slow client delays the correction of a drift. What is
//! given to whom, and why so seldom, is in `flyball_process::readings`.

use std::{
    fs,
    os::unix::{
        fs::PermissionsExt as _,
        net::{UnixListener, UnixStream},
    },
    path::Path,
    time::{Duration, Instant},
};

use flyball_host::Host;
use flyball_process::readings::is_entitled;

use crate::{Options, Quantity, Sampler, shared::readings_of};

/// Between two samples, no matter who asks.
const LEAST_INTERVAL: Duration = Duration::from_secs(1);
/// For a client that takes its answer slowly; the next one waits as long.
const PATIENCE: Duration = Duration::from_millis(200);

/// A sampler without an energy meter is made again after this time: a driver may have come since
/// (intel_rapl_msr).
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Starts the thread. Nothing wakes it but a client.
///
/// # Errors
/// The socket cannot be made.
pub fn start(host: Box<dyn Host>, folder: &Path) -> std::io::Result<()> {
    // Others must pass through the directory; its files stay closed to them by their own modes.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o711))?;
    let path = folder.join("readings");
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        // That of a service that was killed. There is one service: it has the lock.
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    // Who is answered is decided by the peer, whose groups the mode of a file could not name
    // without a change of its group.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
    std::thread::Builder::new().name("readings".to_owned()).spawn(move || serve(&*host, &listener))?;
    Ok(())
}

fn serve(host: &dyn Host, listener: &UnixListener) {
    // Made for the first client: a machine without such users has nothing of it.
    let mut sampler: Option<Sampler<'_>> = None;
    let mut made = Instant::now();
    let mut answer: Option<(Instant, String)> = None;
    for client in listener.incoming() {
        let Ok(client) = client else {
            // Out of descriptors or memory: another client would find the same at once.
            std::thread::sleep(LEAST_INTERVAL);
            continue;
        };
        if !is_entitled(&client) {
            continue;
        }
        let is_young = answer.as_ref().is_some_and(|(at, _)| at.elapsed() < LEAST_INTERVAL);
        if !is_young {
            let has_meter = |sampler: &Sampler<'_>| sampler.layout().field(Quantity::PackageEnergy).is_some();
            if !sampler.as_ref().is_some_and(has_meter) && (sampler.is_none() || made.elapsed() >= LOOK_AGAIN)
            {
                (sampler, made) = (Sampler::open(host, Options::default()).ok(), Instant::now());
            }
            answer = sampler.as_mut().map(|sampler| {
                let sample = sampler.sample();
                (Instant::now(), readings_of(sampler.layout(), &sample).encode())
            });
        }
        if let Some((_, text)) = &answer {
            send(client, text);
        }
    }
}

/// A client that has gone, or takes nothing, gets nothing.
fn send(client: UnixStream, text: &str) {
    if client.set_write_timeout(Some(PATIENCE)).is_ok() {
        // SIGPIPE ends this program by default (flyball_process::set_signal_actions), so it is sent
        // without.
        let _ = flyball_process::send(&client, text.as_bytes());
    }
}
