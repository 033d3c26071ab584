//! What `flyball results` reads: files to add, and Parquet files of any program.

use std::io::Write as _;

use flyball_results::{Input, InputDefaults, Kind, Words, columns};

use crate::outcome;

/// A file that is added: reports, profiles, results of other tools.
pub fn input(bytes: &[u8]) -> String {
    let given = InputDefaults { host: Some("fuzz".to_owned()), time: Some(1) };
    outcome(Input::from_bytes(bytes, &given), |input| {
        let width = input.kind.columns().len();
        assert!(
            input.rows.iter().all(|row| row.len() == width),
            "a row does not have the columns of its kind"
        );
        format!("{} {} {}", input.kind.name(), input.rows.len().min(9), input.warnings.len().min(9))
    })
}

/// A Parquet file in a dataset.
pub fn parquet(bytes: &[u8]) -> String {
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(bytes).expect("room for a file");
    outcome(columns(file, &Kind::Rounds.columns(), &mut Words::default()), |read| {
        format!("{}", read.rows.min(40))
    })
}
