//! A machine made of plain files that can be written: for tests and experiments.
//!
//! It is a directory laid out like a recorded machine. A write replaces the file's content, as in
//! an attribute that stores the written value. Files do not depend on each other, unlike a
//! kernel's.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{Errno, Host, HostError, Kind, Op, Recorded, recorded::below};

/// A directory of plain files that can be written.
#[derive(Debug)]
pub struct Plain {
    recorded: Recorded,
}

impl Plain {
    /// Opens the machine at `root`, which must hold `sys`.
    pub fn open(root: impl Into<PathBuf>) -> Result<Plain, HostError> {
        Ok(Plain { recorded: Recorded::open(root)? })
    }
}

impl Host for Plain {
    fn kind(&self) -> Kind {
        Kind::Simulated
    }

    fn name(&self) -> String {
        format!("tree:{}", self.recorded.tree.root().display())
    }

    crate::recorded::read_from_tree!(recorded.tree);

    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), HostError> {
        let fail = |error: std::io::Error| HostError::new(Op::Write, path, Errno::from(&error));
        let dir = self.recorded.tree.dir();
        let file = Path::new(below(path));
        let mode = dir.status(file).map_err(fail)?.mode;
        if mode & 0o222 == 0 {
            return Err(HostError::new(Op::Write, path, Errno::ACCES));
        }
        // As in sysfs, the file must exist, and a reader sees either the old or the new value.
        let temporary = file.with_file_name(format!(".{}.new", std::process::id()));
        let mut content = bytes.to_vec();
        // A kernel prints attributes with a line end, however they were written.
        if content.last() != Some(&b'\n') {
            content.push(b'\n');
        }
        let mut new = dir.replace(&temporary, 0o600).map_err(fail)?;
        std::io::Write::write_all(&mut new, &content).map_err(fail)?;
        new.set_permissions(std::fs::Permissions::from_mode(mode)).map_err(fail)?;
        dir.rename(&temporary, file).map_err(fail)
    }

    fn msr(&self, cpu: u32, register: u32) -> Result<u64, HostError> {
        self.recorded.msr(cpu, register)
    }

    fn write_msr(&self, cpu: u32, register: u32, value: u64) -> Result<(), HostError> {
        self.recorded.write_msr(cpu, register, value)
    }

    fn isst(&self, number: u32, argument: &mut [u8]) -> Result<i32, HostError> {
        self.recorded.isst(number, argument)
    }

    /// Starts programs on the machine of this process.
    fn spawn(&self, launch: crate::Launch) -> std::io::Result<Box<dyn crate::Process>> {
        Ok(Box::new(launch.start()?))
    }

    fn now(&self) -> Duration {
        self.recorded.now()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_replaces_the_content_and_needs_a_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("sys")).unwrap();
        std::fs::write(folder.path().join("sys/epp"), "balance_performance\n").unwrap();
        let host = Plain::open(folder.path()).unwrap();
        host.write("/sys/epp", b"power").unwrap();
        assert_eq!(std::fs::read(folder.path().join("sys/epp")).unwrap(), b"power\n");
        assert_eq!(host.write("/sys/none", b"1").unwrap_err().errno, Errno::NOENT);
        assert_eq!(host.write("/sys/../x", b"1").unwrap_err().errno, Errno::INVAL);
        assert_eq!(std::fs::read_dir(folder.path().join("sys")).unwrap().count(), 1);
    }
}
