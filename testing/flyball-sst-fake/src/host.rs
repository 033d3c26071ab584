//! The machine as a host: files that react to writes, and the driver's node.

use std::time::Duration;

use flyball_host::{Errno, Host, HostError, Kind, Op, topology::CPUS};

use crate::{FakeMachine, Inner};

impl Inner {
    /// Counts a change, or fails if it is the one to fail.
    pub(crate) fn change(&mut self, what: String) -> Result<(), Errno> {
        self.log.push(what);
        // Also count a failed change: a test that fails every change in turn relies on it.
        let number = self.changes;
        self.changes += 1;
        match self.fail_at {
            Some((at, errno)) if at == number => Err(errno),
            _ => Ok(()),
        }
    }

    fn is_offline(&self, path: &str) -> bool {
        path.strip_prefix(CPUS)
            .and_then(|rest| rest.strip_prefix("/cpu"))
            .and_then(|rest| rest.split_once('/'))
            .and_then(|(cpu, _)| self.files.get(&format!("{CPUS}/cpu{cpu}/online")))
            .is_some_and(|online| online == "0")
    }
}

impl Host for FakeMachine {
    fn kind(&self) -> Kind {
        Kind::Simulated
    }

    fn name(&self) -> String {
        "machine".to_owned()
    }

    fn read_into(&self, path: &str, buffer: &mut Vec<u8>) -> Result<(), HostError> {
        let fail = |errno| HostError::new(Op::Read, path, errno);
        let inner = self.lock();
        // The kernel removes the topology of an offline CPU. Its policy stays, but every access
        // returns EBUSY (show() and store() in drivers/cpufreq/cpufreq.c).
        if inner.is_offline(path) {
            if path.contains("/topology/") {
                return Err(fail(Errno::NOENT));
            }
            if path.contains("/cpufreq/") {
                return Err(fail(Errno::BUSY));
            }
        }
        let text = inner.files.get(path).ok_or_else(|| fail(Errno::NOENT))?;
        buffer.clear();
        buffer.extend_from_slice(text.as_bytes());
        buffer.push(b'\n');
        Ok(())
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), HostError> {
        let text = String::from_utf8_lossy(bytes).trim().to_owned();
        let fail = |errno| HostError::new(Op::Write, path, errno);
        let mut inner = self.lock();
        if !inner.files.contains_key(path) {
            return Err(fail(Errno::NOENT));
        }
        // Before any effect: a change that fails on request leaves the machine unchanged.
        inner.change(format!("{path} <- {text}")).map_err(fail)?;
        if inner.is_offline(path) && path.contains("/cpufreq/") {
            return Err(fail(Errno::BUSY));
        }
        let online = path.ends_with("/online") && path != format!("{CPUS}/online");
        // Like cpufreq, move limits into the range of the processor (cpufreq_verify_within_limits).
        let value = if path.ends_with("_freq") {
            text.parse::<u64>().map_err(|_| fail(Errno::INVAL))?.clamp(800_000, 3_200_000).to_string()
        } else if path.ends_with("/cgroup.subtree_control") {
            let now = inner.files.get(path).cloned().unwrap_or_default();
            let mut words: Vec<&str> = now.split_whitespace().collect();
            for word in text.split_whitespace() {
                // Adding a controller twice is no error and lists it once.
                words.retain(|known| *known != &word[1..]);
                if let Some(name) = word.strip_prefix('+') {
                    words.push(name);
                }
            }
            words.join(" ")
        } else {
            text
        };
        inner.files.insert(path.to_owned(), value);
        // Like in the kernel, the list of online CPUs follows the switches.
        if online {
            let total = self.cores * u32::from(self.packages) * self.threads;
            let list: flyball_host::CpuList = (0..total)
                .filter(|cpu| {
                    inner.files.get(&format!("{CPUS}/cpu{cpu}/online")).is_none_or(|online| online == "1")
                })
                .collect();
            inner.files.insert(format!("{CPUS}/online"), list.to_string());
        }
        Ok(())
    }

    fn make_dir(&self, path: &str) -> Result<(), HostError> {
        let mut inner = self.lock();
        inner.change(format!("mkdir {path}")).map_err(|errno| HostError::new(Op::Write, path, errno))?;
        // A new cgroup has the files of its controllers.
        for (name, value) in [("cpuset.cpus", ""), ("cpuset.cpus.partition", "member")] {
            inner.files.insert(format!("{path}/{name}"), value.to_owned());
        }
        Ok(())
    }

    fn remove_dir(&self, path: &str) -> Result<(), HostError> {
        let mut inner = self.lock();
        inner.change(format!("rmdir {path}")).map_err(|errno| HostError::new(Op::Write, path, errno))?;
        // rmdir of a cgroup also removes the files that the kernel created.
        let prefix = format!("{path}/");
        inner.files.retain(|file, _| !file.starts_with(&prefix));
        Ok(())
    }

    fn list(&self, path: &str) -> Result<Vec<String>, HostError> {
        let prefix = format!("{path}/");
        let inner = self.lock();
        let mut names: Vec<String> = inner
            .files
            .keys()
            .filter_map(|file| file.strip_prefix(&prefix)?.split('/').next().map(str::to_owned))
            .collect();
        names.sort();
        names.dedup();
        if names.is_empty() { Err(HostError::new(Op::List, path, Errno::NOENT)) } else { Ok(names) }
    }

    fn exists(&self, path: &str) -> bool {
        let prefix = format!("{path}/");
        let inner = self.lock();
        if path.contains("/topology") && inner.is_offline(&prefix) {
            return false;
        }
        inner.files.contains_key(path)
            || inner.files.range(prefix.clone()..).next().is_some_and(|(file, _)| file.starts_with(&prefix))
    }

    fn writable(&self, path: &str) -> bool {
        self.exists(path)
    }

    fn link(&self, path: &str) -> Result<String, HostError> {
        Err(HostError::new(Op::Link, path, Errno::NOENT))
    }

    fn msr(&self, cpu: u32, register: u32) -> Result<u64, HostError> {
        Err(HostError::new(Op::ReadMsr, format!("MSR {register:#x} of CPU {cpu}"), Errno::NODEV))
    }

    fn write_msr(&self, cpu: u32, register: u32, _value: u64) -> Result<(), HostError> {
        Err(HostError::new(Op::WriteMsr, format!("MSR {register:#x} of CPU {cpu}"), Errno::NODEV))
    }

    fn isst(&self, number: u32, argument: &mut [u8]) -> Result<i32, HostError> {
        {
            let mut inner = self.lock();
            // Counted separately from changes, because reading calls may fail as well.
            let call = inner.calls;
            inner.calls += 1;
            if let Some((_, errno)) = inner.failing_calls.as_ref().filter(|(calls, _)| calls.contains(&call))
            {
                return Err(HostError::new(Op::Isst, format!("ioctl {number:#x}"), *errno));
            }
        }
        // Not for calls that fail on request, as they do not reach the driver.
        self.note_hazard(number, argument);
        self.call(number, argument)
            .map_err(|errno| HostError::new(Op::Isst, format!("ioctl {number:#x}"), errno))
    }

    // The tested code's waits take no time here, and nothing depends on the clock.
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, _time: Duration) {}
}
