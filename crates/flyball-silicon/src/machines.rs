//! The built-in machines.

use crate::spec::{MachineSpec, SpecError, SpecFault};

const FILES: &[(&str, &str)] = &[
    ("sst-guide", include_str!("../machines/sst-guide.toml")),
    ("gold-6138", include_str!("../machines/gold-6138.toml")),
    ("ryzen-5750g", include_str!("../machines/ryzen-5750g.toml")),
    ("ryzen-preferred", include_str!("../machines/ryzen-preferred.toml")),
    ("x3d-laptop", include_str!("../machines/x3d-laptop.toml")),
    ("zen6-client", include_str!("../machines/zen6-client.toml")),
    ("i7-3520m", include_str!("../machines/i7-3520m.toml")),
    ("i7-2600", include_str!("../machines/i7-2600.toml")),
    ("altra", include_str!("../machines/altra.toml")),
    ("grace", include_str!("../machines/grace.toml")),
    ("epyc-512", include_str!("../machines/epyc-512.toml")),
    ("hybrid-laptop", include_str!("../machines/hybrid-laptop.toml")),
    ("lunar-laptop", include_str!("../machines/lunar-laptop.toml")),
    ("msr-mailbox", include_str!("../machines/msr-mailbox.toml")),
    ("tpmi-small", include_str!("../machines/tpmi-small.toml")),
    ("tpmi-large", include_str!("../machines/tpmi-large.toml")),
];

impl MachineSpec {
    /// Names of the built-in machines.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FILES.iter().map(|f| f.0)
    }

    /// The text of a machine's file.
    pub fn builtin_text(name: &str) -> Option<&'static str> {
        FILES.iter().find(|f| f.0 == name).map(|f| f.1)
    }

    /// A built-in machine.
    ///
    /// # Errors
    /// No machine has this name; the message lists the names.
    pub fn builtin(name: &str) -> Result<MachineSpec, SpecError> {
        let Some(text) = MachineSpec::builtin_text(name) else {
            return Err(SpecError { machine: name.into(), fault: SpecFault::UnknownMachine });
        };
        MachineSpec::from_toml(text)
    }
}
