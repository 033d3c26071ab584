//! A recorded machine as text: values, folded over CPUs, that a person can read and review.
//!
//! ```text
//! flyball facts 1
//! name: example
//! source: where the values come from, and under which licence
//!
//! [/sys/devices/system/cpu]
//! online = 0-3
//! cpu{0-3}/cpufreq -> ../cpufreq/policy{}
//! cpu{0-1}/topology/thread_siblings_list = {},{+2}
//! cpu{2-3}/topology/thread_siblings_list = {-2},{}
//! cpu{0-3}/cpuidle/state1/usage = {1205*2 17 4}
//!
//! [/sys/devices/system/cpu/cpufreq]
//! policy{0-3}/scaling_available_governors = "performance powersave "
//! policy{0-3}/scaling_cur_freq ! EBUSY
//! policy{0-3}/scaling_governor := powersave
//!
//! [/proc]
//! cpuinfo {0-3} =
//! | processor : {}
//! | cpu MHz : {800.000*3 1100.000}
//! |
//!
//! [msr]
//! 0x1b0 {0-3} = 6
//! ```
//!
//! The head is `key: value` up to the first empty line. `[FOLDER]` begins a section; paths in it
//! are relative to the folder. Lines that begin with `#` are comments. A line is one of:
//!
//! | line | meaning |
//! |---|---|
//! | `PATH = VALUE` | a file without write permission |
//! | `PATH := VALUE` | a file with write permission |
//! | `PATH -> TARGET` | a symbolic link |
//! | `PATH ! ERRNO` | a file that answers reads with this error, by name or number |
//! | `PATH /` | a folder with nothing in it |
//! | `PATH {LIST} =` | a file that repeats the block below it for each number of the list |
//! | `REGISTER {LIST} = VALUE` | in the section `[msr]`: a register of these CPUs, in hexadecimal |
//!
//! One `{LIST}` of numbers in a path (`0-3,8`) stands for as many paths. Values and targets of such
//! a line are templates: `{}` is the number itself, `{+2}` and `{-2}` the number plus or minus two,
//! `{a b*3}` a list with one item per number, where `*3` repeats an item. A file's value is one
//! line, and the newline that attributes end with is left out. A value of several lines is a block
//! of lines that begin with `|`, below a line with no value. A value in double quotes can hold
//! anything: `\n`, `\t`, `\\`, `\"`, `\{`, `\}`, `\xNN`, and `\c` at its end for a value without a
//! final newline. `[kernel log]` is followed by the block of the log's lines.

mod read;
mod template;
mod write;

use std::{collections::BTreeMap, io, path::Path};

use flyball_files::{Dir, Type};

use crate::{Errno, msrfile::MsrFile, recorded::MAX_FILE};

/// The first line of a text of facts, before the format's number.
pub(crate) const MAGIC: &str = "flyball facts";
/// The number of the format that this code writes, and the highest that it reads.
const FORMAT: u32 = 1;

/// Something at a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fact {
    /// A file's content, and whether it has a write permission.
    File {
        /// All of it, with the final newline.
        bytes: Vec<u8>,
        /// Whether a write permission bit is set.
        writable: bool,
    },
    /// A symbolic link's target.
    Link(String),
    /// A file that cannot be read.
    Fails(Errno),
    /// An empty folder.
    Folder,
}

/// A machine's facts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Name, source and whatever else is said of the machine, in order.
    pub head: Vec<(String, String)>,
    /// By path, without the leading slash.
    pub facts: BTreeMap<String, Fact>,
    /// By register and CPU.
    pub registers: BTreeMap<(u32, u32), u64>,
    /// The kernel's log.
    pub log: Option<String>,
}

/// Why a text does not hold a machine's facts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct FactsError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

impl Facts {
    /// The facts of a machine recorded as files: `sys`, `proc`, `msr.txt` and `kernel.log` below
    /// `root`.
    ///
    /// # Errors
    /// Where a folder cannot be listed, a name is not text, or `msr.txt` is damaged.
    pub fn from_tree(root: &Path) -> io::Result<Facts> {
        let dir = Dir::open(root)?;
        let mut found = Facts::default();
        for part in ["sys", "proc"] {
            // Not through a link: it could lead to the running machine's own /sys.
            if dir.status_of_link(part).is_ok_and(|status| status.kind == Type::Directory) {
                found.walk(&dir, part)?;
            }
        }
        // Neither this nor the log needs to be there: registers and the log are root's.
        if let Ok(bytes) = dir.read("msr.txt", MAX_FILE) {
            let file =
                MsrFile::parse(&bytes).map_err(|line| io::Error::other(format!("msr.txt, line {line}")))?;
            found.registers = file.into_values();
        }
        if let Ok(bytes) = dir.read("kernel.log", MAX_FILE) {
            found.log = Some(String::from_utf8_lossy(&bytes).into_owned());
        }
        Ok(found)
    }

    /// Takes a folder and what is below it. It ends: links are taken as links, and `dir` bounds the
    /// depth of paths.
    fn walk(&mut self, dir: &Dir, folder: &str) -> io::Result<()> {
        let names = dir.list(folder)?;
        if names.is_empty() {
            self.facts.insert(folder.to_owned(), Fact::Folder);
        }
        for name in names {
            let path = format!("{folder}/{name}");
            let status = dir.status_of_link(&path)?;
            let fact = match status.kind {
                Type::Directory => {
                    self.walk(dir, &path)?;
                    continue;
                }
                Type::Link => Fact::Link(dir.link(&path)?),
                // A device or FIFO is refused by `dir`: its error is what is kept.
                Type::File | Type::Special => match dir.read(&path, MAX_FILE) {
                    Ok(bytes) => Fact::File { bytes, writable: status.mode & 0o222 != 0 },
                    // The errno is a fact too: the copy answers as the machine did.
                    Err(error) => Fact::Fails(Errno::from(&error)),
                },
            };
            self.facts.insert(path, fact);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
