//! `flyball explain`: what a knob does, its values, what it interacts with, its files and registers.

use flyball_control::{Access, Knob, KnobName, TABLE};
use serde::Serialize;

use crate::{
    exit::{Exit, Failure},
    knob_arguments,
    output::Reporter,
    paint::{Cell, Columns, Paint, Style, wrapped},
};

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The knob or fact [default: list all].
    #[arg(value_name = "KNOB", value_parser = knob_arguments::Name)]
    pub knobs: Vec<KnobName>,
}

/// A knob as JSON has it.
#[derive(Debug, Serialize)]
struct Object {
    knob: &'static str,
    title: &'static str,
    access: Access,
    scope: String,
    step: Option<String>,
    unit: &'static str,
    accepts: &'static str,
    about: String,
    interacts: Vec<(String, &'static str)>,
    lives: Vec<String>,
}

impl From<&Knob> for Object {
    fn from(knob: &Knob) -> Object {
        Object {
            knob: knob.name,
            title: knob.title,
            access: knob.access(),
            scope: knob.scope.to_string(),
            step: knob.step().map(|step| step.to_string()),
            unit: knob.unit().symbol(),
            accepts: knob.accepts(),
            about: knob.about.to_owned(),
            interacts: knob.interacts.iter().map(|(other, how)| (other.to_string(), *how)).collect(),
            lives: knob.mechanisms.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Prints the knobs that were named, or a list of all.
pub fn run(output: &Reporter, args: &Args) -> Result<Exit, Failure> {
    let named: Vec<&Knob> = args.knobs.iter().map(|name| name.knob.knob()).collect();
    let objects = || match named.as_slice() {
        [] => TABLE.iter().map(Object::from).collect(),
        named => named.iter().map(|knob| Object::from(*knob)).collect(),
    };
    let paint = Paint::stdout();
    output.list(objects, || {
        if named.is_empty() {
            return list(paint);
        }
        let pages: Vec<String> = named.iter().map(|knob| one(knob, paint)).collect();
        pages.join("\n")
    })?;
    Ok(Exit::Done)
}

/// All rows, a line each.
fn list(paint: Paint) -> String {
    let mut columns = Columns::new();
    for (access, heading) in
        [(Access::ReadWrite, "Knobs, in the order of their writes"), (Access::ReadOnly, "Facts")]
    {
        if access == Access::ReadOnly {
            columns.row(Vec::new());
        }
        columns.heading([heading]);
        for knob in TABLE.iter().filter(|knob| knob.access() == access) {
            columns.row(vec![
                format!("  {}", knob.name).into(),
                knob.title.into(),
                Cell::styled(Style::Faint, format!("per {}", knob.scope)),
            ]);
        }
    }
    columns.render(paint)
}

/// One row in full.
fn one(knob: &Knob, paint: Paint) -> String {
    const WIDTH: usize = 88;
    let mut out = format!("{}: {}\n\n", paint.apply(Style::Heading, knob.name), knob.title);
    for line in wrapped(knob.about, WIDTH) {
        out += &format!("  {line}\n");
    }
    out.push('\n');
    let mut columns = Columns::new();
    let label = |text: &str| Cell::styled(Style::Heading, format!("  {text}"));
    let mut rows = |name: &str, lines: Vec<String>| {
        for (index, line) in lines.into_iter().enumerate() {
            columns.row(vec![label(if index == 0 { name } else { "" }), line.into()]);
        }
    };
    if let Some(step) = knob.step() {
        rows("takes", wrapped(knob.accepts(), WIDTH - 14));
        rows("written", vec![format!("in step '{step}'")]);
    } else {
        rows("takes", vec!["nothing: a fact of the machine".to_owned()]);
    }
    rows("one per", vec![knob.scope.to_string()]);
    if !knob.unit().symbol().is_empty() {
        rows("JSON unit", vec![knob.unit().symbol().to_owned()]);
    }
    rows("lives in", knob.mechanisms.iter().map(ToString::to_string).collect());
    let mut related = Vec::new();
    for (other, how) in knob.interacts {
        related.extend(wrapped(&format!("{other}: {how}"), WIDTH - 14));
    }
    rows("goes with", related);
    if let Some(narrower) = knob.narrower() {
        rows("", vec![format!("for some CPUs only: {narrower}")]);
    }
    out + &columns.render(paint)
}
