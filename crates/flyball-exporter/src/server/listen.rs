//! Listens on addresses, unix sockets, and sockets passed by the service manager.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs as _},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::PathBuf,
    str::FromStr,
};

use super::socket::Socket;

/// Where to listen: `HOST:PORT`, `:PORT` for all addresses, or `unix:PATH`.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub enum Address {
    #[display("{}", _0)]
    Tcp(String),
    #[display("unix:{}", _0.display())]
    Unix(PathBuf),
}

/// An address that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not an address to listen on; expected HOST:PORT, :PORT, [IPV6]:PORT or unix:PATH")]
pub struct AddressError {
    text: String,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let fail = || AddressError { text: text.to_owned() };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(fail()) } else { Ok(Address::Unix(path.into())) };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(fail)?;
        port.parse::<u16>().map_err(|_| fail())?;
        if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
            return Err(fail());
        }
        Ok(Address::Tcp(text.to_owned()))
    }
}

impl Address {
    /// Opens the listening sockets.
    ///
    /// # Errors
    /// The name has no address, the port is taken, or the file cannot be created.
    pub fn listen(&self) -> io::Result<Vec<Listener>> {
        match self {
            Address::Tcp(text) => {
                let addresses: Vec<SocketAddr> = match text.strip_prefix(':') {
                    // Like Go: all addresses. The IPv6 socket accepts both kinds. Without IPv6, use
                    // IPv4.
                    Some(port) => return all(port),
                    None => text.to_socket_addrs()?.collect(),
                };
                // Only the first, like Go's net.Listen: the system's order decides whether
                // `localhost` is 127.0.0.1 or ::1.
                let first = addresses.first().ok_or_else(|| io::Error::other("the name has no address"))?;
                Ok(vec![tcp(*first)?])
            }
            Address::Unix(path) => {
                let listener = flyball_files::listen_at(path)?;
                listener.set_nonblocking(true)?;
                Ok(vec![Listener::Unix(listener, Some(path.clone()))])
            }
        }
    }
}

fn all(port: &str) -> io::Result<Vec<Listener>> {
    let port = port.parse().unwrap_or(0);
    let any = |address: IpAddr| tcp(SocketAddr::new(address, port));
    let listener = any(IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED));
    match listener {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            Ok(vec![any(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))?])
        }
        other => Ok(vec![other?]),
    }
}

fn tcp(address: SocketAddr) -> io::Result<Listener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(Listener::Tcp(listener))
}

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    /// A unix socket, and the file to remove at the end.
    Unix(UnixListener, Option<PathBuf>),
}

impl Listener {
    /// Takes a socket from the service manager.
    ///
    /// # Errors
    /// It is not a listening socket.
    pub fn inherited(descriptor: OwnedFd) -> io::Result<Listener> {
        // Ask the socket itself, because the administrator chooses order and kind of the
        // ListenStream= lines.
        let is_unix = matches!(
            rustix::net::getsockname(&descriptor)?.address_family(),
            rustix::net::AddressFamily::UNIX
        );
        if is_unix {
            let listener = UnixListener::from(descriptor);
            listener.set_nonblocking(true)?;
            return Ok(Listener::Unix(listener, None));
        }
        let listener = TcpListener::from(descriptor);
        listener.set_nonblocking(true)?;
        // Fails if it is not an internet socket.
        listener.local_addr()?;
        Ok(Listener::Tcp(listener))
    }

    /// Returns whether other machines can reach the listener.
    pub fn is_open_to_others(&self) -> bool {
        match self {
            Listener::Tcp(listener) => listener.local_addr().is_ok_and(|address| !address.ip().is_loopback()),
            Listener::Unix(..) => false,
        }
    }

    /// Accepts the next client, if one is waiting. Also returns its address as its name, without
    /// the port, which changes with each connection.
    pub(super) fn accept(&self) -> io::Result<Option<(Socket, String)>> {
        let accepted = match self {
            Listener::Tcp(listener) => {
                listener.accept().map(|(socket, peer)| (Socket::Tcp(socket), peer.ip().to_string()))
            }
            Listener::Unix(listener, _) => {
                listener.accept().map(|(socket, _)| (Socket::Unix(socket), "unix".to_owned()))
            }
        };
        match accepted {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listener::Tcp(listener) => match listener.local_addr() {
                Ok(address) => address.fmt(f),
                Err(error) => error.fmt(f),
            },
            Listener::Unix(_, Some(path)) => write!(f, "unix:{}", path.display()),
            Listener::Unix(_, None) => f.write_str("a socket of the service manager"),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, Some(path)) = self {
            // Ignore errors: the file may be gone already.
            let _ = flyball_files::remove_output(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for good in ["127.0.0.1:9735", ":9735", "[::1]:0", "localhost:1", "unix:/run/x"] {
            assert_eq!(good.parse::<Address>().unwrap().to_string(), good);
        }
        for bad in ["", "9735", "a:b", "a:99999", "::1:80", "unix:"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }
}
