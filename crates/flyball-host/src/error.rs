//! Errors of a host: the operation, the path, and the kernel's errno.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
pub enum Op {
    #[display("read")]
    Read,
    #[display("write")]
    Write,
    #[display("list")]
    List,
    #[display("read link")]
    Link,
    #[display("read MSR")]
    ReadMsr,
    #[display("write MSR")]
    WriteMsr,
    #[display("make the Speed Select call")]
    Isst,
    #[display("create")]
    Create,
    #[display("remove")]
    Remove,
    #[display("mount")]
    Mount,
}

/// A Linux error number, as the kernel returned it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident),* $(,)?) => {
        impl Errno {
            $(#[doc = concat!("`E", stringify!($name), "`.")] pub const $name: Errno = Errno(errnos!(@ $name));)*

            /// Returns the number with this symbolic name (`EBUSY`).
            pub fn named(name: &str) -> Option<Errno> {
                [$(Errno::$name),*].into_iter().find(|errno| errno.name() == Some(name))
            }

            /// Returns the symbolic name (`EBUSY`), or `None` for a number that attribute files do
            /// not return.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Errno::$name => Some(concat!("E", stringify!($name))),)*
                    _ => None,
                }
            }
        }
    };
    (@ PERM) => { libc::EPERM }; (@ NOENT) => { libc::ENOENT }; (@ INTR) => { libc::EINTR };
    (@ IO) => { libc::EIO }; (@ NXIO) => { libc::ENXIO }; (@ BADF) => { libc::EBADF };
    (@ AGAIN) => { libc::EAGAIN }; (@ NOMEM) => { libc::ENOMEM }; (@ ACCES) => { libc::EACCES };
    (@ FAULT) => { libc::EFAULT }; (@ BUSY) => { libc::EBUSY }; (@ EXIST) => { libc::EEXIST };
    (@ NODEV) => { libc::ENODEV }; (@ NOTDIR) => { libc::ENOTDIR }; (@ ISDIR) => { libc::EISDIR };
    (@ INVAL) => { libc::EINVAL }; (@ MFILE) => { libc::EMFILE }; (@ NOTTY) => { libc::ENOTTY };
    (@ NOSPC) => { libc::ENOSPC }; (@ ROFS) => { libc::EROFS }; (@ RANGE) => { libc::ERANGE };
    (@ NOSYS) => { libc::ENOSYS }; (@ LOOP) => { libc::ELOOP }; (@ NODATA) => { libc::ENODATA };
    (@ ILSEQ) => { libc::EILSEQ }; (@ OPNOTSUPP) => { libc::EOPNOTSUPP }; (@ TIMEDOUT) => { libc::ETIMEDOUT };
    (@ NAMETOOLONG) => { libc::ENAMETOOLONG }; (@ FBIG) => { libc::EFBIG }; (@ XDEV) => { libc::EXDEV };
    (@ NOEXEC) => { libc::ENOEXEC }; (@ NOMSG) => { libc::ENOMSG }; (@ REMOTEIO) => { libc::EREMOTEIO };
}

errnos!(
    PERM,
    NOEXEC,
    NOENT,
    INTR,
    IO,
    NXIO,
    BADF,
    AGAIN,
    NOMEM,
    ACCES,
    FAULT,
    BUSY,
    EXIST,
    NODEV,
    NOTDIR,
    ISDIR,
    INVAL,
    MFILE,
    NOTTY,
    NOSPC,
    ROFS,
    RANGE,
    NOSYS,
    LOOP,
    NODATA,
    ILSEQ,
    OPNOTSUPP,
    TIMEDOUT,
    NAMETOOLONG,
    FBIG,
    XDEV,
    NOMSG,
    REMOTEIO,
);

impl Errno {
    /// Returns the system's one-line description, without a number.
    pub fn describe(self) -> String {
        // The standard library appends the number, which the caller replaces by the symbolic name.
        let text = std::io::Error::from_raw_os_error(self.0).to_string();
        text.split(" (os error").next().unwrap_or_default().to_owned()
    }
}

/// Describes an error of the standard library in the same form: `Permission denied (EACCES)`.
pub fn words_of(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => {
            let errno = Errno(number);
            format!("{} ({errno})", errno.describe())
        }
        None => error.to_string(),
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl From<&std::io::Error> for Errno {
    fn from(error: &std::io::Error) -> Errno {
        // Errors from the library itself (an early end, text that is not UTF-8) have no number.
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Errno {
        Errno(error.raw_os_error())
    }
}

/// A failed operation on a machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {} {}: {} ({})", .op, .path, .errno.describe(), .errno)]
pub struct HostError {
    pub op: Op,
    /// The path as the machine's kernel spells it, or `MSR 0x774 of CPU 3`.
    pub path: String,
    /// The kernel's error.
    pub errno: Errno,
}

impl HostError {
    pub fn new(op: Op, path: impl Into<String>, errno: impl Into<Errno>) -> HostError {
        HostError { op, path: path.into(), errno: errno.into() }
    }

    /// Returns whether the object does not exist, rather than being unreadable.
    pub fn is_absent(&self) -> bool {
        // ENXIO: a device node without a driver, or without its CPU.
        matches!(self.errno, Errno::NOENT | Errno::NODEV | Errno::NOTDIR | Errno::NXIO)
    }
}
