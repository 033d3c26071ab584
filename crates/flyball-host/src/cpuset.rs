//! Sets of CPU numbers in the kernel's list form (`0-3,7`, with strides as `0-7:2`).

use std::{collections::BTreeSet, fmt, str::FromStr};

/// The highest CPU number that a list may name. Linux on x86 allows 8192 CPUs (CONFIG_NR_CPUS); the bound keeps
/// a mistyped `0-4000000000` from filling the memory.
const HIGHEST: u32 = 65_535;

/// A set of CPU numbers, in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuList(BTreeSet<u32>);

/// Why a text is no CPU list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuListError {
    /// The part that cannot be read.
    pub part: String,
    /// What is wrong with it.
    pub why: &'static str,
}

impl fmt::Display for CpuListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bad CPU list at '{}': {}; write CPUs as 0-3,7 or 0-7:2", self.part, self.why)
    }
}

impl std::error::Error for CpuListError {}

impl CpuList {
    /// The empty set.
    pub fn new() -> CpuList {
        CpuList::default()
    }

    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// Adds a CPU.
    pub fn insert(&mut self, cpu: u32) {
        self.0.insert(cpu);
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// The lowest CPU.
    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    /// How many CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// CPUs in both.
    #[must_use]
    pub fn intersection(&self, other: &CpuList) -> CpuList {
        CpuList(self.0.intersection(&other.0).copied().collect())
    }

    /// CPUs in either.
    #[must_use]
    pub fn union(&self, other: &CpuList) -> CpuList {
        CpuList(self.0.union(&other.0).copied().collect())
    }

    /// CPUs in this one and not in `other`.
    #[must_use]
    pub fn difference(&self, other: &CpuList) -> CpuList {
        CpuList(self.0.difference(&other.0).copied().collect())
    }

    /// Whether every CPU of this set is in `other`.
    pub fn is_subset(&self, other: &CpuList) -> bool {
        self.0.is_subset(&other.0)
    }

    /// Reads the blank-separated form of cpufreq's `affected_cpus` and `related_cpus`.
    ///
    /// # Errors
    /// The part that is no number.
    pub fn from_words(text: &str) -> Result<CpuList, CpuListError> {
        text.split_whitespace().map(number).collect()
    }
}

impl FromIterator<u32> for CpuList {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> CpuList {
        CpuList(cpus.into_iter().collect())
    }
}

impl Extend<u32> for CpuList {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, cpus: I) {
        self.0.extend(cpus);
    }
}

fn number(text: &str) -> Result<u32, CpuListError> {
    let bad = |why| CpuListError { part: text.to_owned(), why };
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad("not a CPU number"));
    }
    match text.parse::<u32>() {
        Ok(cpu) if cpu <= HIGHEST => Ok(cpu),
        _ => Err(bad("CPU number too large")),
    }
}

impl FromStr for CpuList {
    type Err = CpuListError;

    /// Reads a list; the empty text is the empty set, as the kernel prints it.
    fn from_str(text: &str) -> Result<CpuList, CpuListError> {
        let text = text.trim();
        let mut cpus = BTreeSet::new();
        if text.is_empty() {
            return Ok(CpuList(cpus));
        }
        for part in text.split(',') {
            let part = part.trim();
            let bad = |why| CpuListError { part: part.to_owned(), why };
            let (range, stride) = match part.split_once(':') {
                Some((range, stride)) => (range, number(stride)?),
                None => (part, 1),
            };
            if stride == 0 {
                return Err(bad("a stride of 0"));
            }
            match range.split_once('-') {
                Some((first, last)) => {
                    let (first, last) = (number(first)?, number(last)?);
                    if first > last {
                        return Err(bad("the range runs backwards"));
                    }
                    cpus.extend((first..=last).step_by(stride as usize));
                }
                None if stride != 1 => return Err(bad("a stride needs a range")),
                None => {
                    cpus.insert(number(range)?);
                }
            }
        }
        Ok(CpuList(cpus))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                1 => write!(f, "{separator}{first},{last}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl serde::Serialize for CpuList {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for CpuList {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<CpuList, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_the_kernel_and_people_write() {
        let list: CpuList = "0-3,7".parse().unwrap();
        assert_eq!(list.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 7]);
        assert_eq!("0-7:2".parse::<CpuList>().unwrap().to_string(), "0,2,4,6");
        assert_eq!("\n".parse::<CpuList>().unwrap(), CpuList::new());
        assert_eq!(CpuList::from_words("3 1 2 ").unwrap().to_string(), "1-3");
    }

    #[test]
    fn refuses_what_is_no_list() {
        for bad in
            ["1-", "-1", "a", "3-1", "0-7:0", "1,,2", "5:2", "0-4000000000", "99999999999", "1 2", "+1"]
        {
            assert!(bad.parse::<CpuList>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn printing_and_reading_is_the_identity(cpus in proptest::collection::btree_set(0u32..2000, 0..60)) {
            let list = CpuList(cpus);
            prop_assert_eq!(list.to_string().parse::<CpuList>().unwrap(), list);
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<CpuList>();
        }
    }
}
