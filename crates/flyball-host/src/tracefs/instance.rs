//! One trace instance: creation, setup, start, stop and removal.

use std::sync::atomic::{AtomicU32, Ordering};

use flyball_process::started_at;

use crate::{CpuList, HostError};

use super::{PREFIX, Tracefs, reader::PageReader};

/// Settings of an instance.
#[derive(Debug, Clone, Default)]
pub struct InstanceOptions {
    /// Events: `group/event`, or `group` for all of a group.
    pub events: Vec<String>,
    /// Filters of events, with alternatives: the kernel gets the first that it accepts. Without a
    /// filter everything is recorded.
    pub filters: Vec<(&'static str, Vec<String>)>,
    /// CPUs to record on; all if `None`.
    pub cpus: Option<CpuList>,
    /// Buffer of each CPU, KiB.
    pub buffer_kib: u64,
    /// Sub-buffer size, KiB, if the kernel (6.8 and later) can change it and has the memory for it;
    /// otherwise the kernel's own.
    pub wished_page_kib: Option<u32>,
    /// The trace clock; the kernel's default if `None`.
    pub clock: Option<String>,
    /// Fill level of a buffer, percent, at which readers are woken.
    pub wake_percent: u32,
}

/// An instance. Removed when dropped.
#[derive(Debug)]
pub struct Instance {
    tracefs: Tracefs,
    /// Path below the root of tracefs; empty once it is removed.
    path: String,
    name: String,
}

static NUMBER: AtomicU32 = AtomicU32::new(0);

impl Instance {
    /// Creates an instance that records nothing yet.
    ///
    /// # Errors
    /// `EACCES`/`EPERM` without root; `EINVAL` for an unknown clock, `ENOENT` for an unknown event;
    /// `ENOMEM` if the buffer does not fit. After a failure nothing is left behind.
    pub fn create(tracefs: &Tracefs, options: &InstanceOptions) -> Result<Instance, HostError> {
        let pid = std::process::id();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{pid}-{}-{number}", started_at(pid).unwrap_or(0));
        let path = format!("instances/{name}");
        tracefs.files().make_dir(&path)?;
        // Create it before the setup: if that fails, dropping the instance removes the directory.
        let instance = Instance { tracefs: tracefs.clone(), path, name };
        instance.set_up(options)?;
        Ok(instance)
    }

    fn set_up(&self, options: &InstanceOptions) -> Result<(), HostError> {
        // A new instance has tracing on. Switch it off until everything is set.
        self.write("tracing_on", "0")?;
        // Set the clock first: a new clock empties the buffers, because times before and after
        // cannot be compared (tracing_set_clock(), kernel/trace/trace.c).
        if let Some(clock) = &options.clock {
            self.write("trace_clock", clock)?;
        }
        // Before the size: sub-buffers of another order are allocated again, and the size is
        // counted in them (ring_buffer_subbuf_order_set(), kernel/trace/ring_buffer.c).
        if let Some(kib) = options.wished_page_kib {
            // A wish: if the file or the memory is missing, the kernel's own size stays.
            let _ = self.write("buffer_subbuf_size_kb", &kib.to_string());
        }
        // At least two pages, the kernel's minimum (ring_buffer_resize()).
        self.write("buffer_size_kb", &options.buffer_kib.max(8).to_string())?;
        if let Some(cpus) = &options.cpus {
            self.write("tracing_cpumask", &mask(cpus))?;
        }
        // Kernels before 4.20 lack the file and wake readers at any record.
        let _ = self.write("buffer_percent", &options.wake_percent.min(100).to_string());
        for (event, choices) in &options.filters {
            choices.iter().any(|filter| self.write(&format!("events/{event}/filter"), filter).is_ok());
        }
        for event in &options.events {
            self.write(&format!("events/{event}/enable"), "1")?;
        }
        Ok(())
    }

    /// Returns the instance's name below `instances/`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads a file of the instance.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, HostError> {
        self.tracefs.files().read(&format!("{}/{name}", self.path))
    }

    fn write(&self, name: &str, value: &str) -> Result<(), HostError> {
        self.tracefs.files().write(&format!("{}/{name}", self.path), value)
    }

    /// Starts recording.
    pub fn start(&self) -> Result<(), HostError> {
        self.write("tracing_on", "1")
    }

    /// Stops recording. Records in the buffers can still be read.
    pub fn stop(&self) -> Result<(), HostError> {
        self.write("tracing_on", "0")
    }

    /// Opens the file through which a program writes its own records into the buffer of its current
    /// CPU. The first four bytes of each write become the record's id.
    pub fn raw_marker(&self) -> Result<std::fs::File, HostError> {
        self.tracefs.files().open_to_write(&format!("{}/trace_marker_raw", self.path))
    }

    /// Returns the CPUs that have a buffer.
    pub fn cpus(&self) -> Result<Vec<u32>, HostError> {
        let names = self.tracefs.files().directories(&format!("{}/per_cpu", self.path))?;
        let mut cpus: Vec<u32> =
            names.iter().filter_map(|name| name.strip_prefix("cpu")?.parse().ok()).collect();
        cpus.sort_unstable();
        Ok(cpus)
    }

    /// Reads the text of per_cpu/cpuN/stats.
    pub fn stats(&self, cpu: u32) -> Result<String, HostError> {
        Ok(String::from_utf8_lossy(&self.read(&format!("per_cpu/cpu{cpu}/stats"))?).into_owned())
    }

    /// Returns the bytes of a page or sub-buffer.
    pub fn page_size(&self) -> usize {
        let kib = self.read("buffer_subbuf_size_kb").ok();
        let kib = kib.and_then(|bytes| String::from_utf8_lossy(&bytes).trim().parse::<usize>().ok());
        // Kernels before 6.8 have no such file, and a sub-buffer is a page.
        kib.filter(|kib| (4..=65_536).contains(kib)).map_or(4096, |kib| kib * 1024)
    }

    /// Opens a reader of one CPU's pages. All readers must be dropped before the instance is.
    ///
    /// # Errors
    /// The errno of open(2): `ENXIO` or `ENOENT` for a CPU without a buffer.
    pub fn reader(&self, cpu: u32) -> Result<PageReader, HostError> {
        let pages =
            self.tracefs.files().open_pages(&format!("{}/per_cpu/cpu{cpu}/trace_pipe_raw", self.path))?;
        Ok(PageReader::new(pages, cpu, self.page_size()))
    }

    /// Removes the instance, or returns why it cannot.
    ///
    /// # Errors
    /// `EBUSY` while a reader is open.
    pub fn remove(mut self) -> Result<(), HostError> {
        self.take_away()
    }

    fn take_away(&mut self) -> Result<(), HostError> {
        let path = std::mem::take(&mut self.path);
        let files = self.tracefs.files();
        // Removal also stops it. If removal is refused, at least stop recording.
        let _ = files.write(&format!("{path}/tracing_on"), "0");
        files.remove_dir(&path)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if !self.path.is_empty() {
            // A drop cannot report a failure; the next recording removes the leftovers.
            let _ = self.take_away();
        }
    }
}

/// Formats a CPU mask for the kernel: groups of eight hexadecimal digits, the highest CPUs first.
fn mask(cpus: &CpuList) -> String {
    let mut words = vec![0u32; 1];
    for cpu in cpus.iter() {
        let at = (cpu / 32) as usize;
        if words.len() <= at {
            words.resize(at + 1, 0);
        }
        words[at] |= 1 << (cpu % 32);
    }
    words.iter().rev().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_written_as_the_kernel_reads_them() {
        let mask = |text: &str| mask(&text.parse().unwrap());
        assert_eq!(mask("0-3"), "0000000f");
        assert_eq!(mask("0,33,64"), "00000001,00000002,00000001");
        assert_eq!(mask(""), "00000000");
    }
}
