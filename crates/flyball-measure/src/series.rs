//! A series of runs that some tool has stored already: values in the order in which they were
//! measured, and whatever metadata the tool stored with them.
//!
//! Formats: pyperf JSON, hyperfine JSON, Google Benchmark JSON, a JSON list of numbers or of
//! objects, and tables with a header (CSV; semicolons or tabs do too). The format is recognised by
//! the content, never from the file's name. Everything takes bytes, and none of it panics.

mod json;
mod model;
mod rounds;
mod table;

pub use json::EXIT_CODE;
use model::error;
pub use model::{Series, SeriesError};
pub use rounds::read_rounds;

/// Reads every series in a file. `value` names the column of a table that is the measurement;
/// without it the first one that is named like a time, else the first column of numbers.
pub fn read(bytes: &[u8], value: Option<&str>) -> Result<Vec<Series>, SeriesError> {
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(error("this is UTF-16: save it as UTF-8"));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|e| error(format!("not text: a byte that is not UTF-8 at offset {}", e.valid_up_to())))?;
    // The byte order mark of spreadsheets would become part of the first column's name.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err(error("the file is empty"));
    }
    // No table's header begins like this.
    if text.trim_start().starts_with(['{', '[']) {
        return json::read(&json::parse(text)?, value);
    }
    table::read(text, value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shifts::Values;

    #[test]
    fn csv_takes_the_first_measured_column_and_keeps_the_rest() {
        let text = "run,time (ms),frequency [MHz],governor\n1,20.3,1600,powersave\n2,20.1,1600,powersave\n3,11,3400,performance\n";
        let series = read(text.as_bytes(), None).unwrap();
        assert_eq!((series[0].name.as_str(), series[0].unit.as_str()), ("time", "ms"));
        assert_eq!(series[0].values, [20.3, 20.1, 11.0]);
        let names: Vec<_> = series[0].columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["frequency", "governor"], "numbers of runs explain nothing");
        let series = read(text.as_bytes(), Some("frequency")).unwrap();
        assert_eq!(series[0].values, [1600.0, 1600.0, 3400.0]);
    }

    #[test]
    fn what_is_no_series_is_refused_with_a_reason() {
        for (bytes, expected) in [
            (&b""[..], "empty"),
            (b"\xff\xfe1,2", "UTF-16"),
            (b"a\xff,b\n1,2", "offset 1"),
            (b"{", "bad JSON"),
            (b"{\"a\": 1}", "neither"),
            (b"1,2\n3,4\n", "names"),
            (b"a,b\n", "no runs"),
            (b"a,b\nx,y\n", "no column"),
            (b"run,time\n1,20,3\n2,20,1\n", "line 2 has 3 cells, the header 2"),
            (b"command,mean,stddev,median\nls,1,2,3\nls,1,2,3\n", "--export-json"),
        ] {
            let error = read(bytes, None).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(read(b"a,b\n1,2\n", Some("c")).is_err(), "there is no column c");
    }

    /// The same three runs, as programs and spreadsheets write them.
    #[test]
    fn tables_of_every_kind() {
        for text in [
            "run,time (ms),cpu\n1,20.5,3\n2,20.1,3\n3,11,3\n",
            "\u{feff}run,time (ms),cpu\r\n1,20.5,3\r\n2,20.1,3\r\n3,11,3\r\n",
            "run;time (ms);cpu\n1;20,5;3\n2;20,1;3\n3;11;3\n",
            "sep=;\nrun;time (ms);cpu\n1;20,5;3\n2;20,1;3\n3;11;3\n",
            "run\ttime (ms)\tcpu\n1\t20.5\t3\n2\t20.1\t3\n3\t11\t3\n",
            "# machine x\n\nrun,time (ms),cpu\n1,20.5,3\n2,20.1,3\n3,11,3\n",
            "\"run\",\"time (ms)\",\"cpu\"\n\"1\",\"20.5\",\"3\"\n\"2\",\"20.1\",\"3\"\n\"3\",\"11\",\"3\"\n",
            "cpu,stamp,time (ms)\n3,1769817600,20.5\n3,1769817601,20.1\n3,1769817602,11\n",
        ] {
            let series = &read(text.as_bytes(), None).unwrap()[0];
            assert_eq!((series.name.as_str(), series.unit.as_str()), ("time", "ms"), "{text:?}");
            assert_eq!(series.values, [20.5, 20.1, 11.0], "{text:?}");
        }
    }

    #[test]
    fn runs_without_a_number_are_left_out_and_counted() {
        for text in [
            "time,governor\n5,a\n,b\nnan,c\n6,d\ninf,e\n7,f\n",
            "[{\"time\":5,\"governor\":\"a\"},{\"governor\":\"b\"},{\"time\":NaN,\"governor\":\"c\"},{\"time\":6,\"governor\":\"d\"},{\"time\":-Infinity,\"governor\":\"e\"},{\"time\":7,\"governor\":\"f\"}]",
        ] {
            let series = &read(text.as_bytes(), None).unwrap()[0];
            assert_eq!(series.values, [5.0, 6.0, 7.0], "{text}");
            assert_eq!(series.left_out, [2, 3, 5]);
            let words = ["a", "d", "f"].map(|word| Some(word.to_owned()));
            assert_eq!(series.columns[0].values, Values::Words(words.to_vec()));
        }
    }

    #[test]
    fn google_benchmarks_table_has_one_series_a_name() {
        let text = "name,iterations,real_time,cpu_time,time_unit,bytes_per_second,error_occurred,error_message\n\"a/8\",100,5.5,5.4,us,,,\n\"a/8\",100,5.7,5.4,us,,,\n\"b\",9,1,1,us,,,\n\"a/8_mean\",2,5.6,5.4,us,,,\n";
        let series = read(text.as_bytes(), None).unwrap();
        let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["a/8", "b"]);
        assert_eq!((series[0].values.as_slice(), series[0].unit.as_str()), (&[5.5, 5.7][..], "us"));
    }

    #[test]
    fn lists_of_json() {
        let numbers = &read(b"[3, 2.5, null, 4]", None).unwrap()[0];
        assert_eq!(
            (numbers.values.as_slice(), numbers.left_out.as_slice()),
            (&[3.0, 2.5, 4.0][..], &[3][..])
        );
        for (bytes, expected) in [
            (&b"[]"[..], "no runs"),
            (b"[\"a\"]", "list"),
            (b"[[1,2]]", "list"),
            (b"{\"results\":[]}", "without runs"),
        ] {
            let error = read(bytes, None).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        // A word that only looks like a number's spelling stays a word.
        let named = &read(br#"[{"v":1,"w":"NaN"},{"v":2,"w":"-Infinity"}]"#, None).unwrap()[0];
        assert_eq!(
            named.columns[0].values,
            Values::Words(vec![Some("NaN".to_owned()), Some("-Infinity".to_owned())])
        );
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let _ = read(&bytes, None);
        }
    }
}
