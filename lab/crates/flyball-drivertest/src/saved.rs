//! A kernel's recorded behaviour as one file: for each mode the sequences and their observations.
//! The file is gzipped JSON; observations are stored as differences.
//!
//! The file may come from anywhere, so reading is bounded.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read as _, Write as _},
};

use serde::{Deserialize, Serialize};

use crate::{
    mode::Mode,
    record::{self, Answer, Busy, Observation, Run, Written},
    step::Sequence,
};

/// The format's name and version.
pub const FORMAT: &str = "flyball-drivertest/1";

/// Maximum size of the unpacked file in bytes.
const MAX: u64 = 512 << 20;

/// A recording.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    pub format: String,
    /// `uname -r` of the kernel.
    pub release: String,
    pub modes: Vec<ModeRecord>,
}

/// A kernel's behaviour in one mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeRecord {
    pub machine: String,
    pub mode: String,
    pub seed: u64,
    pub sequences: Vec<Sequence>,
    /// The kernel's own reports, as `contract` names them. Files of older versions have none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub reports: BTreeSet<String>,
    runs: Vec<PackedRun>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PackedRun {
    name: String,
    observations: Vec<Packed>,
}

/// An observation as the difference from the previous one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Packed {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    answers: Vec<Answer>,
    /// `None` if the file has disappeared.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<String, Option<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    writes: Vec<Written>,
    /// Registers that were written before the first step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    registers: Vec<(u32, String, u64)>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    load: BTreeMap<u32, Busy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<i32>,
}

impl ModeRecord {
    pub fn new(mode: &Mode, seed: u64, sequences: &[Sequence], boot: &record::Boot) -> ModeRecord {
        let mut before = Observation::default();
        let mut pack = |after: &Observation| {
            let paths = before.attributes.keys().chain(after.attributes.keys());
            let changed = paths.filter(|path| before.get(path) != after.get(path));
            let attributes =
                changed.map(|path| (path.clone(), after.attributes.get(path).cloned())).collect();
            let changed =
                after.registers.iter().filter(|(key, value)| before.registers.get(*key) != Some(*value));
            let registers = changed.map(|((cpu, name), value)| (*cpu, name.clone(), *value)).collect();
            before = after.clone();
            Packed {
                answers: after.answers.clone(),
                attributes,
                writes: after.writes.clone(),
                registers,
                load: after.load.clone(),
                code: after.code,
            }
        };
        let runs = boot.runs.iter().map(|run| PackedRun {
            name: run.name.clone(),
            observations: run.observations.iter().map(&mut pack).collect(),
        });
        ModeRecord {
            machine: mode.machine.clone(),
            mode: mode.name.clone(),
            seed,
            sequences: sequences.to_vec(),
            reports: BTreeSet::new(),
            runs: runs.collect(),
        }
    }

    /// The observations.
    pub fn runs(&self) -> Vec<Run> {
        let mut now = Observation::default();
        let mut unpack = |packed: &Packed| {
            for (path, value) in &packed.attributes {
                match value {
                    Some(value) => drop(now.attributes.insert(path.clone(), value.clone())),
                    None => drop(now.attributes.remove(path)),
                }
            }
            for (cpu, name, value) in &packed.registers {
                now.registers.insert((*cpu, name.clone()), *value);
            }
            Observation {
                answers: packed.answers.clone(),
                writes: packed.writes.clone(),
                load: packed.load.clone(),
                code: packed.code,
                ..now.clone()
            }
        };
        let runs = self.runs.iter().map(|run| Run {
            name: run.name.clone(),
            observations: run.observations.iter().map(&mut unpack).collect(),
        });
        runs.collect()
    }
}

impl Saved {
    pub fn new(release: &str, mut modes: Vec<ModeRecord>) -> Saved {
        modes.sort_by(|a, b| (&a.machine, &a.mode).cmp(&(&b.machine, &b.mode)));
        Saved { format: FORMAT.to_owned(), release: release.to_owned(), modes }
    }

    pub fn find(&self, mode: &Mode) -> Option<&ModeRecord> {
        self.modes.iter().find(|record| record.machine == mode.machine && record.mode == mode.name)
    }

    /// The recording as bytes of a file.
    pub fn write(&self) -> io::Result<Vec<u8>> {
        let mut gzip = flate2::GzBuilder::new().mtime(0).write(Vec::new(), flate2::Compression::default());
        serde_json::to_writer(&mut gzip, self)?;
        gzip.flush()?;
        gzip.finish()
    }

    /// Parses a file's bytes.
    pub fn read(bytes: &[u8]) -> Result<Saved, String> {
        let mut text = String::new();
        let unpacked = flate2::read::GzDecoder::new(bytes).take(MAX).read_to_string(&mut text);
        unpacked.map_err(|e| format!("it is not a gzip file of text: {e}"))?;
        let saved: Saved = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        if saved.format != FORMAT {
            return Err(format!("its format is '{}' instead of {FORMAT}", saved.format));
        }
        Ok(saved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::Step;

    #[test]
    fn a_file_is_read_as_written() {
        let mode = &Mode::all("ryzen-5750g").unwrap()[0];
        let sequences = [Sequence { name: "a".into(), steps: vec![Step::Load(5)] }];
        let boot = record::read(
            "seq a\ns 1\no\nx/a:1\nx/b:2\n.\ns 2\nw x/a ok 3\no\nx/a:3\n.\nend\n",
            "0.1 cpu0 wrmsr 0x774 0x1\n1.0 mark 1\n1.5 cpu0 wrmsr 0x774 0x2\n2.0 mark 2\n2.1 cpu1 wrmsr 0x774 0x3\n",
            "",
        );
        let mut record = ModeRecord::new(mode, 3, &sequences, &boot);
        assert_eq!(record.runs(), boot.runs);
        record.reports.insert("oops".to_owned());
        let saved = Saved::new("6.12", vec![record]);
        let bytes = saved.write().unwrap();
        assert_eq!(Saved::read(&bytes).unwrap(), saved);
        assert!(saved.find(mode).is_some());
        for cut in 0..bytes.len() {
            assert!(Saved::read(&bytes[..cut]).is_err());
        }
    }
}
