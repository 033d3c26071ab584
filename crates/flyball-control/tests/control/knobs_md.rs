//! docs/knobs.md is the printed table. This test keeps it current; `FLYBALL_BLESS=1 cargo test -p
//! flyball-control --test control knobs_md` rewrites it.

use std::fmt::Write;

use flyball_control::{Access, Knob, TABLE, knob::order::Step};

fn markdown() -> String {
    let mut out = String::from(
        "# Knobs and facts\n\nKnobs can be set, facts only read. `flyball explain NAME` also prints what a knob interacts \
         with. Knobs are in the order in which flyball writes them.\n",
    );
    for &step in Step::ALL {
        let rows: Vec<&Knob> = TABLE.iter().filter(|knob| knob.step() == Some(step)).collect();
        if !rows.is_empty() {
            let _ = write!(out, "\n## Knobs: {step}\n");
        }
        for knob in rows {
            row(knob, &mut out);
        }
    }
    out.push_str("\n## Facts\n\n");
    for knob in TABLE.iter().filter(|knob| knob.access() == Access::ReadOnly) {
        let _ = writeln!(out, "- `{}`: {}{}", knob.name, capital(knob.title), vendor(knob));
    }
    out
}

fn vendor(knob: &Knob) -> String {
    knob.vendor.map(|vendor| format!(", {vendor} only")).unwrap_or_default()
}

fn row(knob: &Knob, out: &mut String) {
    let (title, vendor) = (capital(knob.title), vendor(knob));
    let _ = write!(out, "\n### {}\n\n{title}; one per {}{vendor}.\n\n", knob.name, knob.scope);
    // Text between angle brackets would count as HTML and be hidden.
    let _ = writeln!(out, "{}\n", knob.about.replace('<', "\\<"));
    let _ = writeln!(out, "- values: {}", knob.accepts());
    let files = knob.mechanisms.iter().map(|mechanism| {
        let access = if mechanism.writes() { "" } else { " (read-only)" };
        format!("`{mechanism}`{access}")
    });
    let _ = writeln!(out, "- in {}", files.collect::<Vec<_>>().join(", "));
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
