//! Threads that serve the machine's PCI functions to QEMU, one per function: `punit` behind
//! `vfio_user` on a Unix socket.
//!
//! QEMU, which this runs in, is the client: a CPU that accesses a function waits for the answer, so
//! that an access takes effect before the guest's next instruction, as on hardware, and guest time
//! does not pass meanwhile.

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

/// Listens on the function's socket in `dir` and serves each connection: `answer` gets each
/// message's bytes.
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
        // One client after the other; QEMU makes one connection and keeps it.
        for mut stream in listener.incoming().flatten() {
            let mut connection = Connection::default();
            let mut bytes = vec![0; 16 * 1024];
            // A plain read: descriptors of the guest's memory that come along are closed by the
            // kernel.
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
