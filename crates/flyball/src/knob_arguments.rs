//! Arguments that name knobs and CPUs.

use clap::builder::{PossibleValue, TypedValueParser};
use flyball_control::{KnobName, Snapshot, TABLE};
use flyball_host::{CpuList, Host};

use crate::exit::Failure;

/// Parses the name of a knob with its instance. Offers all names in help and completions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name;

impl TypedValueParser for Name {
    type Value = KnobName;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<KnobName, clap::Error> {
        // A name that is not UTF-8 is no knob. Convert it for the message.
        value.to_string_lossy().parse().map_err(|error: flyball_control::UnknownKnob| {
            clap::Error::raw(clap::error::ErrorKind::InvalidValue, format!("{error}\n")).with_cmd(command)
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        // Instances (power-limit:long_term) depend on the machine, so they are not listed, but
        // parse_ref() accepts them.
        Some(Box::new(TABLE.iter().map(|knob| PossibleValue::new(knob.name).help(knob.title))))
    }
}

/// Returns the CPUs that a selector chooses on a machine, if one is given.
pub(crate) fn cpus(
    host: &dyn Host,
    text: Option<&str>,
    snapshot: &mut Snapshot,
) -> Result<Option<CpuList>, Failure> {
    text.map(|text| snapshot.select(host, text)?.map_err(Failure::usage)).transpose()
}
