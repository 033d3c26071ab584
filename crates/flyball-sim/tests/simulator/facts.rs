//! Descriptions of the recorded machines of this repository, from their facts.

use flyball_sim::{Recording, describe, silicon::MachineSpec};
use flyball_testing::{Fact, Facts};

/// A recorded machine of the repository. Its facts are used as they are: as files they are tens of
/// thousands.
pub struct FromFacts<'a> {
    pub name: &'a str,
    pub facts: &'a Facts,
}

impl Recording for FromFacts<'_> {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn file(&self, path: &str) -> Option<Vec<u8>> {
        file(self.facts, path)
    }

    fn folder(&self, path: &str) -> Vec<String> {
        let inside = self.facts.facts.keys().filter_map(|fact| fact.strip_prefix(path)?.strip_prefix('/'));
        let mut names: Vec<String> =
            inside.filter_map(|rest| rest.split('/').next()).map(str::to_owned).collect();
        names.dedup();
        names
    }

    fn register(&self, cpu: u32, register: u32) -> Option<u64> {
        self.facts.registers.get(&(register, cpu)).copied()
    }
}

/// A file, also behind links to folders and files.
pub fn file(facts: &Facts, path: &str) -> Option<Vec<u8>> {
    let parts: Vec<&str> = path.split('/').collect();
    for end in 1..=parts.len() {
        match facts.facts.get(&parts[..end].join("/")) {
            Some(Fact::Link(target)) => {
                let mut walked = parts[..end - 1].to_vec();
                for part in target.split('/') {
                    match part {
                        ".." => drop(walked.pop()),
                        part => walked.push(part),
                    }
                }
                walked.extend(&parts[end..]);
                return file(facts, &walked.join("/"));
            }
            Some(Fact::File { bytes, .. }) if end == parts.len() => return Some(bytes.clone()),
            _ => {}
        }
    }
    None
}

/// A recorded machine of the repository, described.
pub fn described(name: &str) -> MachineSpec {
    let facts = flyball_testing::facts(name);
    describe(&FromFacts { name, facts: &facts }).unwrap_or_else(|error| panic!("{error}"))
}
