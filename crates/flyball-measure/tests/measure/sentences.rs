//! docs/dev/sentences.md and the code that prints.

use std::{fs, path::Path};

/// A new sentence belongs on the page, with the condition under which it is true.
#[test]
fn the_page_lists_each_sentence_that_the_code_prints() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| fs::read_to_string(root.join(path)).expect("a file of the repository");
    let page = read("docs/dev/sentences.md");
    let missing: Vec<String> = PRINTING
        .iter()
        .flat_map(|file| sentences(&read(&format!("crates/{file}"))))
        .filter(|sentence| !pieces(sentence).all(|piece| page.contains(piece)))
        .collect();
    assert!(missing.is_empty(), "docs/dev/sentences.md lacks {missing:#?}");
}

/// Sources of what `compare`, `tune`, `quiet bench`, `results`, shifts and fleets print.
const PRINTING: [&str; 27] = [
    "flyball-compare/src/bisect.rs",
    "flyball-measure/src/analyse/cases.rs",
    "flyball-measure/src/analyse/notes.rs",
    "flyball-measure/src/analyse/programs.rs",
    "flyball-measure/src/analyse/report.rs",
    "flyball-measure/src/meter/wakes.rs",
    "flyball-measure/src/render/best.rs",
    "flyball-measure/src/render/cases.rs",
    "flyball-measure/src/render/charts.rs",
    "flyball-measure/src/render/effects.rs",
    "flyball-measure/src/render/fleet.rs",
    "flyball-measure/src/render/page.rs",
    "flyball-measure/src/render/parts.rs",
    "flyball-measure/src/render/table.rs",
    "flyball-measure/src/render/text.rs",
    "flyball-measure/src/speed.rs",
    "flyball-measure/src/watch/grade.rs",
    "flyball-results/src/shifts.rs",
    "flyball-tune/src/blocks.rs",
    "flyball-tune/src/intake.rs",
    "flyball-tune/src/pictures.rs",
    "flyball-tune/src/profile.rs",
    "flyball-tune/src/verdict.rs",
    "flyball/src/commands/compare/manifest.rs",
    "flyball/src/commands/quiet/bench.rs",
    "flyball/src/commands/quiet/shifts.rs",
    "flyball/src/commands/results/print.rs",
];

/// Literals of four words or more; the help of a command is no sentence of a report.
fn sentences(code: &str) -> Vec<String> {
    let product = code.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = product.lines().filter(|line| !line.trim_start().starts_with("//"));
    let joined = lines.collect::<Vec<_>>().join("\n").replace("\\\"", "'");
    let literals =
        joined.split('"').skip(1).step_by(2).map(|literal| {
            literal.split("\\\n").map(str::trim_start).collect::<String>().replace("\\n", " ")
        });
    let is_word = |word: &&str| word.chars().filter(char::is_ascii_lowercase).count() > 1;
    let is_sentence = |literal: &String| {
        let words = pieces(literal).flat_map(str::split_whitespace).filter(is_word);
        words.count() >= 4 && !literal.contains("Exit codes:")
    };
    literals.filter(is_sentence).collect()
}

/// The parts of a literal between names and numbers.
fn pieces(literal: &str) -> impl Iterator<Item = &str> {
    let parts = literal.split('{').flat_map(|part| part.rsplit('}').take(1));
    parts.map(|part| part.trim_matches(|c: char| !c.is_alphanumeric())).filter(|part| part.len() > 3)
}
