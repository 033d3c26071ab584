//! The sources of a socket's frequency limit that an EPYC's management port (HSMP) reports.

/// A source. The port's answer has a bit for each, in this order
/// (drivers/platform/x86/amd/hsmp/acpi.c).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum LimitSource {
    Heat,
    Prochot,
    Current,
    Power,
    Model,
    Reliability,
    Controller,
    Program,
}

use LimitSource::{Controller, Current, Heat, Model, Power, Prochot, Program, Reliability};

impl LimitSource {
    pub const ALL: [LimitSource; 8] =
        [Heat, Prochot, Current, Power, Model, Reliability, Controller, Program];

    /// Returns the sources listed in the file, one per line. A name may have two words.
    pub fn named_in(text: &str) -> impl Iterator<Item = LimitSource> {
        LimitSource::ALL.into_iter().filter(|source| text.contains(source.name()))
    }

    /// Returns the kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            Heat => "cHTC-Active",
            Prochot => "PROCHOT",
            Current => "TDC limit",
            Power => "PPT Limit",
            Model => "OPN Max",
            Reliability => "Reliability Limit",
            Controller => "APML Agent",
            Program => "HSMP Agent",
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            Heat => "heat (HTC)",
            Prochot => "PROCHOT, asserted from outside or by heat",
            Current => "the current limit (TDC)",
            Power => "the package power limit (PPT)",
            Model => "the highest frequency of the model",
            Reliability => "the reliability limit (voltage and age)",
            Controller => "the management controller (APML)",
            Program => "a program through HSMP",
        }
    }

    /// Returns whether the limit is below the processor's own rating.
    pub fn is_below_rating(self) -> bool {
        !matches!(self, Model | Reliability)
    }
}
