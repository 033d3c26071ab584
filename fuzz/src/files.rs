//! Archives, directories and files that flyball keeps or is given. Directories are made below a temporary one, from tar
//! archives, by the same code that unpacks packages.

use std::{fs, io::Read, path::Path, time::Duration};

use flyball_control::write::{journal::Journal, state::StateDir};
use flyball_files::{Dir, Limits, TarError, archive, unpack};
use flyball_host::{Archive, Host, Recorded};
use flyball_measure::{RunDirectory, analyse, render};
use flyball_plot::columns::Unstyled;
use flyball_simhost::{SimHost, SimSetup};

use crate::{outcome, plain, texts::look};

const LIMITS: Limits = Limits { entries: 2_000, file: 1 << 20, total: 8 << 20, time: Duration::from_secs(5) };

/// A tar archive, with all of its contents.
pub fn archive(bytes: &[u8]) -> String {
    let mut found = 0;
    let read = archive::read::<TarError>(bytes, LIMITS, &mut |_, content| {
        found += 1;
        let _ = std::io::copy(&mut content.take(1 << 20), &mut std::io::sink());
        Ok(())
    });
    outcome(read, |()| format!("{}", found.min(9)))
}

/// A recorded machine as an archive that zstd packed.
pub fn packed(bytes: &[u8]) -> String {
    outcome(Archive::read("fuzz", bytes), |machine| look(&machine))
}

/// A recorded machine as a directory, links and all.
pub fn directory(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().expect("a directory for temporary files");
    let into = Dir::open(folder.path()).expect("it was just made");
    let unpacked = unpack(bytes, &into, LIMITS, &|_: &Path| true);
    if let Err(error) = unpacked {
        return plain(&error.to_string());
    }
    outcome(Recorded::open(folder.path()), |machine| {
        let _ = machine.list("/sys/devices/system/cpu");
        look(&machine)
    })
}

/// A journal, read for a restoration.
pub fn journal(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().expect("a directory for temporary files");
    let state = StateDir::new(folder.path().join("state"));
    state.create().expect("a state directory");
    fs::write(state.journal(), bytes).expect("room for a journal");
    let loaded = Journal::load(&state);
    let shape = outcome(loaded, |contents| {
        contents.map_or_else(String::new, |contents| {
            format!("{} {}", contents.entries.len(), contents.damaged.len())
        })
    });
    let opened = Journal::open(&state, "sim:ryzen-5750g", Some("boot"));
    shape + &outcome(opened, |(_, earlier)| format!(" {}", earlier.is_some()))
}

/// The state of a simulated machine that a process left for the next.
pub fn state(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().expect("a directory for temporary files");
    let file = folder.path().join("state");
    fs::write(&file, bytes).expect("room for a file");
    let setup = SimSetup::parse("ryzen-5750g").expect("a machine that is built in");
    let setup = SimSetup { state: Some(file), ..setup };
    outcome(SimHost::open(&setup), |_| String::new())
}

/// The files of a run directory: the manifest, a line of `---`, the rounds. And the report that is made of them.
pub fn run_directory(bytes: &[u8]) -> String {
    const BETWEEN: &[u8] = b"\n---\n";
    let at = bytes.windows(BETWEEN.len()).position(|window| window == BETWEEN).unwrap_or(bytes.len());
    let folder = tempfile::tempdir().expect("a directory for temporary files");
    fs::write(folder.path().join("manifest.json"), &bytes[..at]).expect("room for a file");
    let rounds = bytes.get(at + BETWEEN.len()..).unwrap_or_default();
    fs::write(folder.path().join("rounds.jsonl"), rounds).expect("room for a file");
    outcome(RunDirectory::open(folder.path()), |run| {
        let report = analyse(&run.manifest, &run.rounds);
        for width in [None, Some(40)] {
            let _ = render::text(&report, render::Screen { width, painter: Unstyled });
        }
        format!("{} {}", report.arms.len(), report.comparisons.len())
    })
}
