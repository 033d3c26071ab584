//! The tracefs of the running kernel: the existing mount, or a private one.

use std::{
    fs,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::{Errno, HostError, Op};

use super::{TraceFiles, reader::LivePages};

#[derive(Debug)]
pub struct LiveFiles {
    root: PathBuf,
    /// Keeps a private mount alive.
    _mount: Option<OwnedFd>,
}

fn failed(op: Op, path: &Path, error: &std::io::Error) -> HostError {
    HostError::new(op, path.display().to_string(), Errno::from(error))
}

impl LiveFiles {
    /// Opens the mounted tracefs. If none is mounted, creates a mount that is not attached to any
    /// directory and that ends with this value.
    ///
    /// # Errors
    /// `EACCES`/`EPERM` without the right to access it or under lockdown, `ENODEV` in a kernel
    /// without tracing.
    pub fn open() -> Result<LiveFiles, HostError> {
        let mut refused = None;
        for root in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
            let root = PathBuf::from(root);
            // Check a file: without a mount the folder exists too, but is empty.
            match fs::metadata(root.join("trace_clock")) {
                Ok(_) => return Ok(LiveFiles { root, _mount: None }),
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    refused.get_or_insert(failed(Op::Read, &root, &error));
                }
                Err(_) => {}
            }
        }
        // It is mounted but not accessible. A private mount would be refused too, with a less clear
        // message.
        if let Some(refused) = refused {
            return Err(refused);
        }
        let fail = |errno: rustix::io::Errno| HostError::new(Op::Mount, "tracefs", errno);
        let context = rustix::mount::fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(fail)?;
        rustix::mount::fsconfig_create(&context).map_err(fail)?;
        let mount = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
            .map_err(fail)?;
        // A detached mount can be reached only through its descriptor.
        let root = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        // Under lockdown tracefs can be mounted but is empty (fs/tracefs/inode.c,
        // `tracefs_create_file`).
        if !root.join("trace_clock").exists() {
            return Err(HostError::new(Op::Read, "tracefs, which is empty", Errno::PERM));
        }
        Ok(LiveFiles { root, _mount: Some(mount) })
    }
}

impl TraceFiles for LiveFiles {
    fn root(&self) -> String {
        self.root.display().to_string()
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, HostError> {
        use std::io::Read;
        let path = self.root.join(path);
        // Read large pieces: `events/header_page` answers only its first read(2), whatever the
        // length.
        let read = || {
            let mut file = fs::File::open(&path)?;
            let mut bytes = Vec::new();
            loop {
                let have = bytes.len();
                bytes.resize(have + 64 * 1024, 0);
                let count = file.read(&mut bytes[have..])?;
                bytes.truncate(have + count);
                if count == 0 {
                    return Ok(bytes);
                }
            }
        };
        read().map_err(|error| failed(Op::Read, &path, &error))
    }

    fn write(&self, path: &str, value: &str) -> Result<(), HostError> {
        use std::io::Write;
        let path = self.root.join(path);
        // Without O_TRUNC, which would disable all events (ftrace_event_set_open in
        // kernel/trace/trace_events.c).
        let open = fs::OpenOptions::new().write(true).open(&path);
        open.and_then(|mut file| file.write_all(value.as_bytes()))
            .map_err(|error| failed(Op::Write, &path, &error))
    }

    fn directories(&self, path: &str) -> Result<Vec<String>, HostError> {
        let path = self.root.join(path);
        let entries = fs::read_dir(&path).map_err(|error| failed(Op::List, &path, &error))?;
        Ok(entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect())
    }

    fn make_dir(&self, path: &str) -> Result<(), HostError> {
        let path = self.root.join(path);
        fs::create_dir(&path).map_err(|error| failed(Op::Create, &path, &error))
    }

    fn remove_dir(&self, path: &str) -> Result<(), HostError> {
        let path = self.root.join(path);
        fs::remove_dir(&path).map_err(|error| failed(Op::Remove, &path, &error))
    }

    fn open_pages(&self, path: &str) -> Result<Box<dyn super::Pages>, HostError> {
        let path = self.root.join(path);
        LivePages::open(&path)
            .map(|pages| Box::new(pages) as _)
            .map_err(|error| failed(Op::Read, &path, &error))
    }

    fn open_to_write(&self, path: &str) -> Result<fs::File, HostError> {
        let path = self.root.join(path);
        let open = fs::OpenOptions::new().write(true).open(&path);
        open.map_err(|error| failed(Op::Write, &path, &error))
    }

    fn is_concurrent(&self) -> bool {
        true
    }
}
