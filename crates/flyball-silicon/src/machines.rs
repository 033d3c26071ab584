//! The machines that come with the crate.

use crate::spec::{MachineSpec, SpecError};

const FILES: &[(&str, &str)] = &[
    ("sst-guide", include_str!("../machines/sst-guide.toml")),
    ("ryzen-5750g", include_str!("../machines/ryzen-5750g.toml")),
];

impl MachineSpec {
    /// Names of the machines that come with the crate.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FILES.iter().map(|f| f.0)
    }

    /// The text of a machine's file.
    pub fn builtin_text(name: &str) -> Option<&'static str> {
        FILES.iter().find(|f| f.0 == name).map(|f| f.1)
    }

    /// A machine that comes with the crate.
    ///
    /// # Errors
    /// There is none of that name; the message lists the names.
    pub fn builtin(name: &str) -> Result<MachineSpec, SpecError> {
        let Some(text) = MachineSpec::builtin_text(name) else {
            let names: Vec<_> = MachineSpec::names().collect();
            return Err(SpecError {
                machine: name.into(),
                what: format!("not known; there are {}", names.join(", ")),
            });
        };
        MachineSpec::from_toml(text)
    }
}
