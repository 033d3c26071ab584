//! Messages of a service to the service manager that started it.

use std::os::{
    linux::net::SocketAddrExt,
    unix::net::{SocketAddr, UnixDatagram},
};

/// Notifies the service manager, if there is one (sd_notify(3)).
pub fn notify(text: &str) {
    if let Some(path) = std::env::var_os("NOTIFY_SOCKET") {
        notify_at(&path.to_string_lossy(), text);
    }
}

/// Sends to the socket at `path`. With a leading @, it is the name of an abstract socket.
fn notify_at(path: &str, text: &str) {
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(path),
    };
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        // The service manager may be gone. The service continues then.
        let _ = socket.send_to_addr(text.as_bytes(), &address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_manager_is_notified() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        notify_at(path.to_str().unwrap(), "READY=1");
        let name = format!("flyball-notify-{}", std::process::id());
        let hidden = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        notify_at(&format!("@{name}"), "STOPPING=1");
        let mut buffer = [0; 64];
        for (socket, text) in [(manager, "READY=1"), (hidden, "STOPPING=1")] {
            socket.set_nonblocking(true).unwrap();
            let count = socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..count], text.as_bytes());
        }
        // Without a listener, nothing must happen.
        notify_at("/nowhere/notify", "READY=1");
        notify_at(&"x".repeat(300), "READY=1");
    }
}
