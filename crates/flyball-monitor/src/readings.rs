//! Readings for users who may not read the machine's meters. The service answers them in a separate
//! thread with its own socket, so that neither a sample nor a slow client delays the correction of
//! a drift. `flyball_process::readings` describes who gets what, and why so rarely.

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

/// Minimum time between two samples, no matter how many clients ask.
const LEAST_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout for a client that reads its answer slowly. The next client waits for it.
const PATIENCE: Duration = Duration::from_millis(200);

/// A sampler without an energy meter is recreated after this time: a driver may have been loaded in
/// between (intel_rapl_msr).
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Starts the thread. It sleeps until a client connects.
///
/// # Errors
/// The socket cannot be created.
pub fn start(host: Box<dyn Host>, folder: &Path) -> std::io::Result<()> {
    // Other users must be able to traverse the directory. The modes of its files keep them out.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o711))?;
    let path = folder.join("readings");
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        // Left over from a service that was killed. No other service runs, as this one has the
        // lock.
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    // The peer's credentials decide who is answered: a file mode could only allow another group if
    // the file changed its group.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
    std::thread::Builder::new().name("readings".to_owned()).spawn(move || serve(&*host, &listener))?;
    Ok(())
}

fn serve(host: &dyn Host, listener: &UnixListener) {
    // Created for the first client: most machines have none.
    let mut sampler: Option<Sampler<'_>> = None;
    let mut made = Instant::now();
    let mut answer: Option<(Instant, String)> = None;
    for client in listener.incoming() {
        let Ok(client) = client else {
            // Out of descriptors or memory: an immediate retry would fail too.
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

/// Sends an answer. Ignores clients that have gone or do not read.
fn send(client: UnixStream, text: &str) {
    if client.set_write_timeout(Some(PATIENCE)).is_ok() {
        // SIGPIPE ends this program by default (flyball_process::set_signal_actions), so send
        // without it.
        let _ = flyball_process::send(&client, text.as_bytes());
    }
}
