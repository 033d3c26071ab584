//! Descriptions of the recorded machines of this repository.

use flyball_sim::{Recording, describe, silicon::MachineSpec};
use flyball_testing::{Archive, Host as _};

/// A recorded machine in this repository.
pub(crate) struct Recorded<'a> {
    pub name: &'a str,
    pub machine: &'a Archive,
}

impl Recording for Recorded<'_> {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn file(&self, path: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.machine.read_into(&format!("/{path}"), &mut bytes).ok()?;
        Some(bytes)
    }

    fn folder(&self, path: &str) -> Vec<String> {
        self.machine.list(&format!("/{path}")).unwrap_or_default()
    }

    fn register(&self, cpu: u32, register: u32) -> Option<u64> {
        self.machine.msr(cpu, register).ok()
    }
}

/// The description of a recorded machine in this repository.
pub(crate) fn described(name: &str) -> MachineSpec {
    let machine = flyball_testing::machine(name);
    describe(&Recorded { name, machine: &machine }).unwrap_or_else(|error| panic!("{error}"))
}
