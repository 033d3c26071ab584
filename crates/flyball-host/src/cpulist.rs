//! Sets of CPU numbers in the kernel's list form (`0-3,7`, with strides as `0-7:2`).

use std::{cmp::Ordering, fmt, str::FromStr};

/// Highest CPU number that a list may contain. Linux on x86 allows 8192 CPUs (CONFIG_NR_CPUS). The
/// limit keeps a mistyped `0-4000000000` from filling the memory.
const HIGHEST: u32 = 65_535;

/// A set of CPU numbers, in ascending order. Stored as one bit per CPU, without zero words at the
/// end. A large machine's set is a handful of words, and there are thousands of sets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, schemars::JsonSchema)]
#[schemars(with = "String")]
pub struct CpuList(Vec<u64>);

/// The reason why a text is not a CPU list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bad CPU list at '{part}': {why}; write CPUs as 0-3,7 or 0-7:2")]
pub struct CpuListError {
    /// The part that cannot be read.
    pub part: String,
    /// The problem.
    pub why: &'static str,
}

impl CpuList {
    pub const fn new() -> CpuList {
        CpuList(Vec::new())
    }

    /// Returns whether `cpu` is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.get(cpu as usize / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// Adds a CPU. Ignores a number above 65535, which no kernel has.
    pub fn insert(&mut self, cpu: u32) {
        if cpu > HIGHEST {
            return;
        }
        let index = cpu as usize / 64;
        if index >= self.0.len() {
            self.0.resize(index + 1, 0);
        }
        self.0[index] |= 1 << (cpu % 64);
    }

    /// Returns the CPUs in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            let first = index as u32 * 64;
            Bits(word).map(move |bit| first + bit)
        })
    }

    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        // No list ends in an empty word: `trimmed` removes them, and nothing else clears bits.
        self.0.is_empty()
    }

    /// Returns whether the sets have a CPU in common.
    pub fn intersects(&self, other: &CpuList) -> bool {
        self.0.iter().zip(&other.0).any(|(one, two)| one & two != 0)
    }

    /// Returns the CPUs in both sets.
    #[must_use]
    pub fn intersection(&self, other: &CpuList) -> CpuList {
        // Beyond the shorter set there are no common CPUs.
        CpuList::trimmed(self.0.iter().zip(&other.0).map(|(one, two)| one & two).collect())
    }

    /// Returns the CPUs in either set.
    #[must_use]
    pub fn union(&self, other: &CpuList) -> CpuList {
        let mut all = self.clone();
        all.add(other);
        all
    }

    pub fn add(&mut self, other: &CpuList) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }

    /// Returns the CPUs in this set but not in `other`.
    #[must_use]
    pub fn difference(&self, other: &CpuList) -> CpuList {
        let others = other.0.iter().copied().chain(std::iter::repeat(0));
        CpuList::trimmed(self.0.iter().zip(others).map(|(one, two)| one & !two).collect())
    }

    /// Returns whether every CPU of this set is in `other`.
    pub fn is_subset(&self, other: &CpuList) -> bool {
        let others = other.0.iter().copied().chain(std::iter::repeat(0));
        self.0.iter().zip(others).all(|(one, two)| one & !two == 0)
    }

    fn trimmed(mut words: Vec<u64>) -> CpuList {
        while words.last() == Some(&0) {
            words.pop();
        }
        CpuList(words)
    }

    /// Parses the blank-separated form of cpufreq's `affected_cpus` and `related_cpus`.
    ///
    /// # Errors
    /// The part that is not a number.
    pub fn from_words(text: &str) -> Result<CpuList, CpuListError> {
        text.split_whitespace().map(number).collect()
    }
}

/// Iterator over the numbers of the bits set in a word, from either end.
struct Bits(u64);

impl Iterator for Bits {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let bit = (self.0 != 0).then(|| self.0.trailing_zeros())?;
        // Clears the lowest bit that is set.
        self.0 &= self.0 - 1;
        Some(bit)
    }
}

impl DoubleEndedIterator for Bits {
    fn next_back(&mut self) -> Option<u32> {
        let bit = (self.0 != 0).then(|| self.0.ilog2())?;
        self.0 &= !(1 << bit);
        Some(bit)
    }
}

impl Ord for CpuList {
    /// Compares by the first CPU in which they differ, in the order of reading.
    fn cmp(&self, other: &CpuList) -> Ordering {
        self.iter().cmp(other.iter())
    }
}

impl PartialOrd for CpuList {
    fn partial_cmp(&self, other: &CpuList) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FromIterator<u32> for CpuList {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> CpuList {
        let mut list = CpuList::new();
        list.extend(cpus);
        list
    }
}

impl Extend<u32> for CpuList {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, cpus: I) {
        for cpu in cpus {
            self.insert(cpu);
        }
    }
}

fn number(text: &str) -> Result<u32, CpuListError> {
    let bad = |why| CpuListError { part: text.to_owned(), why };
    // `parse` would accept a plus sign.
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

    /// Parses a list. As in the kernel, an empty text is the empty set.
    fn from_str(text: &str) -> Result<CpuList, CpuListError> {
        let text = text.trim();
        let mut cpus = CpuList::new();
        if text.is_empty() {
            return Ok(cpus);
        }
        for part in text.split(',') {
            let part = part.trim();
            let bad = |why| CpuListError { part: part.to_owned(), why };
            let (range, stride) = match part.split_once(':') {
                Some((range, stride)) => (range, number(stride)?),
                None => (part, 1),
            };
            // step_by(0) panics.
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
        Ok(cpus)
    }
}

impl CpuList {
    /// Returns the list as people read it: runs with a step are written as `0-14:2`. flyball's
    /// options accept that, but the kernel's files do not.
    pub fn short(&self) -> String {
        let numbers: Vec<u32> = self.iter().collect();
        let mut runs = Vec::new();
        let mut rest = numbers.as_slice();
        while let [first, tail @ ..] = rest {
            let step = tail.first().map_or(1, |next| next - first);
            // The longest run from the first CPU with the step to the second.
            let run = 1 + tail.iter().zip(1..).take_while(|(cpu, n)| **cpu == first + step * n).count();
            // Two CPUs are a run only if they are neighbours.
            let run = if run == 2 && step != 1 { 1 } else { run };
            let last = rest[run - 1];
            runs.push(match (run, step) {
                (1, _) => first.to_string(),
                (2, 1) => format!("{first},{last}"),
                (_, 1) => format!("{first}-{last}"),
                _ => format!("{first}-{last}:{step}"),
            });
            rest = &rest[run..];
        }
        runs.join(",")
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
                // Prints two neighbours as a pair, while the kernel prints a range. Both read back
                // the same.
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

    proptest! {
        #[test]
        fn behaves_as_a_set(one: Vec<u16>, two: Vec<u16>) {
            use std::collections::BTreeSet;
            let set = |cpus: &[u16]| cpus.iter().map(|&cpu| u32::from(cpu) % 300).collect::<BTreeSet<u32>>();
            let (one, two) = (set(&one), set(&two));
            let list = |set: &BTreeSet<u32>| set.iter().copied().collect::<CpuList>();
            let (left, right) = (list(&one), list(&two));
            prop_assert_eq!(left.union(&right), list(&one.union(&two).copied().collect()));
            prop_assert_eq!(left.intersection(&right), list(&one.intersection(&two).copied().collect()));
            prop_assert_eq!(left.difference(&right), list(&one.difference(&two).copied().collect()));
            prop_assert_eq!(left.is_subset(&right), one.is_subset(&two));
            prop_assert_eq!(left.intersects(&right), !one.is_disjoint(&two));
            prop_assert_eq!(left.cmp(&right), one.cmp(&two));
            prop_assert_eq!((left.len(), left.first()), (one.len(), one.first().copied()));
            prop_assert!(left.iter().rev().eq(one.iter().rev().copied()));
        }
    }

    #[test]
    fn reads_what_the_kernel_and_people_write() {
        let list: CpuList = "0-3,7".parse().unwrap();
        assert_eq!(list.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 7]);
        assert_eq!("0-7:2".parse::<CpuList>().unwrap().to_string(), "0,2,4,6");
        assert_eq!("\n".parse::<CpuList>().unwrap(), CpuList::new());
        assert_eq!(CpuList::from_words("3 1 2 ").unwrap().to_string(), "1-3");
    }

    #[test]
    fn cpu_lists_use_steps_and_read_back() {
        for (text, short) in [
            ("0-511", "0-511"),
            ("0,2,4,6,8", "0-8:2"),
            ("0,1", "0,1"),
            ("0,2", "0,2"),
            ("0,2,3,4,9", "0,2-4,9"),
            ("5", "5"),
            ("", ""),
            ("0-3,8-11,16", "0-3,8-11,16"),
        ] {
            let list: CpuList = text.parse().unwrap();
            assert_eq!(list.short(), short);
            assert_eq!(list.short().parse::<CpuList>().unwrap(), list);
        }
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
            let list = CpuList::from_iter(cpus);
            prop_assert_eq!(list.to_string().parse::<CpuList>().unwrap(), list);
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<CpuList>();
        }
    }
}
