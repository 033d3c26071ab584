//! Threads that serve the machine's PCI functions to QEMU, one per function: `punit` behind
//! `vfio_user` on a Unix socket.
//!
//! The client is QEMU, in the same process. A CPU that accesses a function waits for the answer. So
//! an access takes effect before the guest's next instruction, as on hardware, and no guest time
//! passes during it.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixListener,
    path::Path,
    thread,
};

use crate::{
    error::PluginError,
    punit::{Function, Place},
    vfio_user::Connection,
};

/// Listens on the function's socket in `dir` and serves each connection. `answer` is called with
/// each message's bytes.
pub(crate) fn start(
    dir: &Path,
    place: Place,
    mut function: Function,
    answer: impl Fn(&mut Connection, &[u8], &mut Function) -> Option<Vec<u8>> + Send + 'static,
) -> Result<(), PluginError> {
    let path = dir.join(place.socket());
    let error = |source: io::Error| PluginError::File { what: "serve", path: path.clone(), source };
    let listener = UnixListener::bind(&path).map_err(error)?;
    let serve = move || {
        // One client at a time; QEMU makes one connection and keeps it.
        for mut stream in listener.incoming().flatten() {
            let mut connection = Connection::default();
            let mut bytes = vec![0; 16 * 1024];
            // A plain read: the kernel closes descriptors of the guest's memory that are sent with
            // the data.
            while let Ok(count) = stream.read(&mut bytes) {
                // 0 bytes: QEMU has closed the connection.
                let answers =
                    (count > 0).then(|| answer(&mut connection, &bytes[..count], &mut function)).flatten();
                let Some(answers) = answers else { break };
                if stream.write_all(&answers).is_err() {
                    break;
                }
            }
        }
    };
    thread::Builder::new().name(format!("flyball-{}", place.socket())).spawn(serve).map_err(error)?;
    Ok(())
}
