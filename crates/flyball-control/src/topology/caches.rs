//! Level-3 caches, which are read only for selectors that use them.

use flyball_host::{CpuList, Host};

use super::{CPUS, Topology, read_list};
use crate::value::ReadError;

/// The CPUs that share a level-3 cache. On AMD this is a chiplet; on Zen and Zen 2, half a chiplet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastCache {
    /// Size in KiB; `None` if the kernel does not report it.
    pub kib: Option<u32>,
    /// The online CPUs that share it.
    pub cpus: CpuList,
}

impl Topology {
    /// Reads the additional files that these selectors need.
    ///
    /// # Errors
    /// A file exists but cannot be read or makes no sense.
    pub(crate) fn read_for<'a>(
        &mut self,
        host: &dyn Host,
        selectors: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), ReadError> {
        let names = |selector: &str| {
            let selector = selector.to_ascii_lowercase();
            selector.split(',').any(|part| matches!(part.trim().split_once(':'), Some(("ccd" | "cache", _))))
        };
        if self.caches.is_none() && selectors.into_iter().any(names) {
            self.read_caches(host)?;
        }
        Ok(())
    }

    /// Reads the level-3 caches: two files for each.
    pub fn read_caches(&mut self, host: &dyn Host) -> Result<(), ReadError> {
        let mut caches: Vec<LastCache> = Vec::new();
        for cpu in self.online.iter() {
            if caches.iter().any(|cache| cache.cpus.contains(cpu)) {
                continue;
            }
            // CPUID enumerates both L1s, the L2 and the L3 in this order.
            let folder = format!("{CPUS}/cpu{cpu}/cache/index3");
            // A low-power core may have no L3.
            let Some(cpus) = read_list(host, &format!("{folder}/shared_cpu_list"))? else { continue };
            let size = host.read_optional(&format!("{folder}/size"))?;
            // cacheinfo prints KiB, followed by K (drivers/base/cacheinfo.c, size_show()).
            let kib = size.and_then(|text| text.trim().strip_suffix('K')?.parse().ok());
            // Add this CPU, so that the loop makes progress whatever the file contains.
            caches.push(LastCache { kib, cpus: cpus.union(&CpuList::from_iter([cpu])) });
        }
        self.caches = Some(caches);
        Ok(())
    }

    /// Returns the CPUs with the largest level-3 cache; `None` if all are equal or a size is
    /// unknown.
    pub(crate) fn big_cache(&self) -> Option<CpuList> {
        let caches = self.caches.as_deref()?;
        let sizes: Option<Vec<u32>> = caches.iter().map(|cache| cache.kib).collect();
        let sizes = sizes?;
        let largest = *sizes.iter().max()?;
        let with = |cache: &&LastCache| cache.kib == Some(largest);
        sizes
            .iter()
            .any(|size| *size != largest)
            .then(|| caches.iter().filter(with).flat_map(|cache| cache.cpus.iter()).collect())
    }
}
