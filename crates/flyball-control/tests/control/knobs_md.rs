//! docs/knobs.md is the table, printed. This test keeps it current;
//! `FLYBALL_BLESS=1 cargo test -p flyball-control --test knobs_md` writes it anew.

use std::fmt::Write;

use flyball_control::{Access, Knob, TABLE, knob::order::Step};

fn markdown() -> String {
    let mut out = String::from(
        "# Knobs and facts\n\nMade from the table in `crates/flyball-control/src/table`; `flyball explain KNOB` prints the \
         same. Knobs stand in the order in which `apply` writes them.\n",
    );
    for step in Step::ALL {
        let rows: Vec<&Knob> = TABLE.iter().filter(|knob| knob.step() == Some(step)).collect();
        if !rows.is_empty() {
            let _ = write!(out, "\n## Knobs: {step}\n");
        }
        for knob in rows {
            row(knob, &mut out);
        }
    }
    out.push_str("\n## Facts\n");
    for knob in TABLE.iter().filter(|knob| knob.access() == Access::ReadOnly) {
        row(knob, &mut out);
    }
    out
}

fn row(knob: &Knob, out: &mut String) {
    let unit = match knob.unit().symbol() {
        "" => String::new(),
        symbol => format!(", {symbol} in JSON"),
    };
    let vendor = knob.vendor.map(|vendor| format!(", {vendor} only")).unwrap_or_default();
    let _ = write!(
        out,
        "\n### {}\n\n{}; one per {}{unit}{vendor}.\n\n",
        knob.name,
        capital(knob.title),
        knob.scope
    );
    // What stands between angle brackets would be taken for HTML and not be shown.
    let _ = writeln!(out, "{}\n", knob.about.replace('<', "\\<"));
    if knob.access() == Access::ReadWrite {
        let _ = writeln!(out, "- takes: {}", knob.accepts());
    }
    for mechanism in knob.mechanisms {
        let access = if mechanism.writes() { "rw" } else { "ro" };
        let _ = writeln!(out, "- lives in: `{mechanism}` ({access})");
    }
    for (other, how) in knob.interacts {
        let _ = writeln!(out, "- with [{other}](#{other}): {how}");
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[test]
fn the_document_is_the_table() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/knobs.md");
    let wanted = markdown();
    if std::env::var_os("FLYBALL_BLESS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/knobs.md is not what the table says; FLYBALL_BLESS=1 cargo test -p flyball-control --test control knobs_md"
    );
}
