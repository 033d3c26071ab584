//! The sequences that showed something new, in memory and as files: one step per line, as `flyball
//! guest test` prints them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::step::Step;

/// Maximum number of steps in a sequence; the next limit is the number of sequences in a corpus.
pub(super) const LONGEST: usize = 24;
const MAX: usize = 4000;

#[derive(Debug, Default)]
pub(super) struct Corpus {
    pub entries: Vec<Vec<Step>>,
    directory: Option<PathBuf>,
}

impl Corpus {
    /// Reads the corpus in a directory, which is created if necessary. Files that are not sequences
    /// are skipped; their number is returned.
    ///
    /// # Errors
    /// The directory cannot be created or read.
    pub(super) fn open(directory: &Path) -> io::Result<(Corpus, usize)> {
        flyball_files::make_dirs(directory)?;
        let mut files: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(directory)? {
            files.push(entry?.path());
        }
        files.retain(|file| file.extension().is_some_and(|word| word == "steps"));
        // Directories list their files in different orders.
        files.sort();
        let read = |file: &PathBuf| parse(&fs::read_to_string(file).ok()?);
        let entries: Vec<Vec<Step>> = files.iter().take(MAX).filter_map(read).collect();
        let passed_over = files.len() - entries.len();
        Ok((Corpus { entries, directory: Some(directory.to_owned()) }, passed_over))
    }

    /// Adds a sequence to the corpus.
    ///
    /// # Errors
    /// Its file cannot be written.
    pub(super) fn keep(&mut self, steps: Vec<Step>) -> io::Result<()> {
        if self.entries.len() >= MAX || self.entries.contains(&steps) {
            return Ok(());
        }
        if let Some(directory) = &self.directory {
            let text = text(&steps);
            let mut sum = flate2::Crc::new();
            sum.update(text.as_bytes());
            let file = directory.join(format!("{:08x}.steps", sum.sum()));
            flyball_files::replace(&file, text.as_bytes())?;
        }
        self.entries.push(steps);
        Ok(())
    }
}

pub(super) fn text(steps: &[Step]) -> String {
    steps.iter().map(|step| format!("{step}\n")).collect()
}

fn parse(text: &str) -> Option<Vec<Step>> {
    let steps: Option<Vec<Step>> = text.lines().take(LONGEST + 1).map(Step::parse).collect();
    steps.filter(|steps| (1..=LONGEST).contains(&steps.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_corpus_outlasts_its_process() {
        let directory = tempfile::tempdir().unwrap();
        let steps = vec![Step::write("cpu1/online", "0"), Step::Load(20)];
        let (mut corpus, _) = Corpus::open(directory.path()).unwrap();
        corpus.keep(steps.clone()).unwrap();
        corpus.keep(steps.clone()).unwrap();
        fs::write(directory.path().join("junk.steps"), "not a step\n").unwrap();
        fs::write(directory.path().join("long.steps"), "l 1\n".repeat(LONGEST + 1)).unwrap();
        fs::write(directory.path().join("notes"), "text").unwrap();
        let (corpus, passed_over) = Corpus::open(directory.path()).unwrap();
        assert_eq!((corpus.entries, passed_over), (vec![steps], 2));
    }
}
