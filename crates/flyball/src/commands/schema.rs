//! `flyball schema`: prints the JSON Schemas of outputs and files.

use crate::{
    exit::{Exit, Failure},
    output,
    paint::{Columns, Paint},
};

mod documents;

use self::documents::{ALL, Schema, generate_all};

/// Arguments of `schema`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each object that --json prints begins with the name and number of its schema (\"schema\": \"get/1\"). The number changes if a field is \
renamed, removed or gets another meaning; new fields do not change it.

Examples:
  flyball schema             the list
  flyball schema get > get.json
  flyball schema --all       one schema that has all of them, for generators of code

Exit codes: 0 printed, 2 there is no such schema.")]
pub(crate) struct Args {
    /// Schema to print, such as get or get/1 [default: list all].
    #[arg(value_name = "NAME", value_parser = name, hide_possible_values = true)]
    name: Option<Schema>,

    /// Print one schema that has all others as properties.
    #[arg(long, conflicts_with = "name")]
    all: bool,
}

fn name(text: &str) -> Result<Schema, String> {
    let unknown = || format!("there is no schema '{text}'; 'flyball schema' lists them");
    Schema::find(text).copied().ok_or_else(unknown)
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let generated = match &args.name {
        Some(schema) => Some(schema.generate()),
        None => args.all.then(generate_all),
    };
    if let Some(generated) = generated {
        let text = serde_json::to_string_pretty(&generated).map_err(Failure::failed)?;
        output::raw(&(text + "\n"))?;
        return Ok(Exit::Done);
    }
    let mut rows = Columns::new();
    for schema in ALL {
        rows.text_row([schema.id, schema.title].map(str::to_owned));
    }
    output::print(rows.render(Paint::plain()))?;
    Ok(Exit::Done)
}
