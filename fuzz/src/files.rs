//! Archives, directories and files that flyball keeps or is given. Directories are made below a
//! temporary one, from tar archives, by the same code that unpacks packages.

use std::{
    fs,
    io::{Cursor, Read},
    path::Path,
    time::Duration,
};

use flyball_control::write::{journal::Journal, state::StateDir};
use flyball_files::{Dir, Limits, TarError, archive, unpack};
use flyball_host::{Archive, Host, Recorded};
use flyball_measure::{RunDirectory, analyse, render};
use flyball_monitor::file::Recording;
use flyball_simhost::{SimHost, SimSetup};
use flyball_text::columns::Unstyled;

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

/// The files of a run directory: the manifest, a line of `---`, the rounds. And the report that is
/// made of them.
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

/// A recording of `top`: as it is, and with the checksums that it should have, which leads further
/// in.
pub fn samples(bytes: &[u8]) -> String {
    let mut mended = bytes.to_vec();
    mend(&mut mended);
    [bytes, &mended].map(read_samples).join(" ")
}

fn read_samples(bytes: &[u8]) -> String {
    outcome(Recording::open(vec![Cursor::new(bytes)]), |mut recording| {
        let known =
            (0..recording.len()).filter(|index| matches!(recording.sample(*index), Ok(Some(_)))).count();
        let _ = recording.index_at(recording.span().1);
        format!("{} {} {}", known.min(40), recording.lost().torn, recording.lost().samples.min(40))
    })
}

/// Writes the checksums of the header and of the chunks behind it.
fn mend(bytes: &mut [u8]) {
    let length = |bytes: &[u8], at: usize| {
        let field = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(field.try_into().ok()?) as usize)
    };
    let sum = |bytes: &mut [u8], from: usize, to: usize, into: usize| {
        let sum = crc32fast::hash(bytes.get(from..to)?);
        bytes.get_mut(into..into + 4)?.copy_from_slice(&sum.to_le_bytes());
        Some(to)
    };
    // Header: magic, version, length, checksum. Head of a chunk: magic, length, count, two times,
    // two checksums.
    let header = length(bytes, 12).and_then(|length| sum(bytes, 20, 20usize.checked_add(length)?, 16));
    let mut at = header;
    while let Some(head) = at {
        let content = head + 36;
        at = length(bytes, head + 4)
            .and_then(|length| sum(bytes, content, content.checked_add(length)?, head + 28))
            .and_then(|next| sum(bytes, head, head + 32, head + 32).map(|_| next));
    }
}
