//! The tracefs of a simulated machine.

use std::os::fd::BorrowedFd;

use flyball_host::{
    Errno, Host, HostError, Op,
    tracefs::{Pages, TraceFiles},
};

use super::SimHost;

const ROOT: &str = "/sys/kernel/tracing";

fn full(path: &str) -> String {
    format!("{ROOT}/{path}")
}

fn failed(op: Op, path: &str, errno: flyball_sim::Errno) -> HostError {
    HostError::new(op, full(path), Errno(errno.0))
}

#[derive(Debug)]
pub(crate) struct SimTracing(pub(crate) SimHost);

impl TraceFiles for SimTracing {
    fn root(&self) -> String {
        ROOT.to_owned()
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, HostError> {
        let mut bytes = Vec::new();
        self.0.read_into(&full(path), &mut bytes)?;
        Ok(bytes)
    }

    fn write(&self, path: &str, value: &str) -> Result<(), HostError> {
        self.0.write(&full(path), value.as_bytes())
    }

    fn directories(&self, path: &str) -> Result<Vec<String>, HostError> {
        let mut names = self.0.list(&full(path))?;
        // tracefs does not tell the type of an entry, but only directories can be listed.
        names.retain(|name| self.0.list(&full(&format!("{path}/{name}"))).is_ok());
        Ok(names)
    }

    fn make_dir(&self, path: &str) -> Result<(), HostError> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        self.0
            .with(|machine| machine.make_directory(&full(parent), name))
            .map_err(|errno| failed(Op::Create, path, errno))
    }

    fn remove_dir(&self, path: &str) -> Result<(), HostError> {
        self.0
            .with(|machine| machine.remove_directory(&full(path)))
            .map_err(|errno| failed(Op::Remove, path, errno))
    }

    fn open_pages(&self, path: &str) -> Result<Box<dyn Pages>, HostError> {
        if !self.0.exists(&full(path)) {
            return Err(failed(Op::Read, path, flyball_sim::Errno::NOENT));
        }
        Ok(Box::new(SimPages { host: self.0.clone(), path: path.to_owned() }))
    }

    fn open_to_write(&self, path: &str) -> Result<std::fs::File, HostError> {
        // A file descriptor of this process cannot refer to the simulated machine.
        Err(HostError::new(Op::Write, full(path), Errno::NOSYS))
    }

    fn is_concurrent(&self) -> bool {
        false
    }
}

/// The ring buffer of one CPU.
#[derive(Debug)]
struct SimPages {
    host: SimHost,
    path: String,
}

impl Pages for SimPages {
    fn read_page(&self, page: &mut [u8]) -> Result<bool, HostError> {
        match self.host.with(|machine| machine.take(&full(&self.path), page.len())) {
            Ok(bytes) => {
                let (start, rest) = page.split_at_mut(bytes.len().min(page.len()));
                // A reader expects whole pages; the kernel pads them with zeros after the last
                // record.
                start.copy_from_slice(&bytes[..start.len()]);
                rest.fill(0);
                Ok(true)
            }
            // The buffer is empty, or its CPU is offline.
            Err(flyball_sim::Errno::AGAIN | flyball_sim::Errno::NODEV) => Ok(false),
            Err(errno) => Err(failed(Op::Read, &self.path, errno)),
        }
    }

    fn is_ready(&self) -> bool {
        self.host.with(|machine| machine.is_ready(&full(&self.path)))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
