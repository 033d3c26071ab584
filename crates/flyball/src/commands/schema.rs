//! `flyball schema`: prints the JSON Schemas of outputs and files.

use serde_json::Value as Json;

use crate::{
    exit::{Exit, Failure},
    output,
    paint::{Columns, Paint},
    schema::{ALL, Schema},
};

/// Arguments of `schema`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each object that --json prints begins with the name and number of its schema (\"schema\": \"get/1\"). The number changes if a field is \
renamed, removed or gets another meaning; new fields do not change it.

Examples:
  flyball schema             the list
  flyball schema get > get.json

Exit codes: 0 printed, 2 there is no such schema.")]
pub struct Args {
    /// A schema, with its number or without; without a name, all are listed.
    #[arg(value_name = "NAME", value_parser = name, hide_possible_values = true)]
    name: Option<Schema>,
}

fn name(text: &str) -> Result<Schema, String> {
    let unknown = || format!("there is no schema '{text}'; 'flyball schema' lists them");
    Schema::find(text).copied().ok_or_else(unknown)
}

/// Prints a schema or the list.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    if let Some(schema) = &args.name {
        output::raw(schema.text)?;
        return Ok(Exit::Done);
    }
    let mut rows = Columns::new();
    for schema in ALL {
        let read: Json = serde_json::from_str(schema.text).map_err(Failure::failed)?;
        rows.text_row([schema.id.to_owned(), read["title"].as_str().unwrap_or_default().to_owned()]);
    }
    output::print(rows.render(Paint::plain()))?;
    Ok(Exit::Done)
}
