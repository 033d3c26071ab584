//! From the text after `-M` to the machine that it names.

use flyball_host::{Archive, Host, Live, Plain, Recorded};

use crate::{
    cli::Cli,
    exit::{Exit, Failure},
    simulated::{Choice, Simulated},
};

/// Opens the machine that `name` names: `live`, or a directory that holds `sys/`.
pub fn open(name: &str) -> Result<Box<dyn Host>, Failure> {
    if name == "live" {
        return Ok(Box::new(Live::new()));
    }
    // Plain files that take writes, for tests.
    if let Some(root) = name.strip_prefix("tree:") {
        return Ok(Box::new(Plain::open(root)?));
    }
    if let Some(machine) = simulated(name)? {
        return Ok(Box::new(machine));
    }
    if std::fs::metadata(name).is_ok_and(|status| status.is_file()) {
        let archive = Archive::open(name).map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
        return Ok(Box::new(archive));
    }
    match Recorded::open(name) {
        Ok(host) => Ok(Box::new(host)),
        Err(error) => Err(Failure::new(
            Exit::Usage,
            format!(
                "no machine at '{name}': {error}; give 'live', 'sim:NAME' (see 'flyball sim list') a directory that holds sys/ and proc/, or an archive of 'flyball record'"
            ),
        )),
    }
}

/// The machine's text with the options about simulated machines in it, so that it says everything by itself.
pub fn complete(cli: &Cli) -> Result<String, Failure> {
    let mut text = cli.machine.clone();
    if matches!(cli.command, crate::cli::Command::Sim(_) | crate::cli::Command::Guest(_)) {
        // Its machine is an argument, not -M.
        return Ok(text);
    }
    let options = [("kernel", cli.kernel.as_deref()), ("state", cli.sim_state.as_deref())];
    for (key, value) in options.into_iter().filter_map(|(key, value)| Some((key, value?))) {
        if !text.starts_with("sim:") {
            let option = if key == "kernel" { "--kernel" } else { "--sim-state" };
            return Err(Failure::new(
                Exit::Usage,
                format!("{option} is for simulated machines: give -M sim:NAME too"),
            ));
        }
        text = format!("{text},{key}={value}");
    }
    for rule in &cli.sim_fault {
        if !text.starts_with("sim:") {
            return Err(Failure::new(
                Exit::Usage,
                "--sim-fault is for simulated machines: give -M sim:NAME too",
            ));
        }
        if rule.contains(';') {
            return Err(Failure::new(Exit::Usage, format!("fault '{rule}': ';' has no place in a rule")));
        }
        // Commas separate the options of a machine.
        text = format!("{text},fault={}", rule.replace(',', ";"));
    }
    Ok(text)
}

/// The simulated machine that `name` names, if it names one.
pub fn simulated(name: &str) -> Result<Option<Simulated>, Failure> {
    let Some(rest) = name.strip_prefix("sim:") else { return Ok(None) };
    let choice = Choice::parse(rest)?;
    let machine = Simulated::open(&choice)?;
    crate::output::mark_simulated();
    eprintln!(
        "flyball: {} is simulated (kernel {}): nothing here was measured",
        machine.name(),
        choice.kernel
    );
    Ok(Some(machine))
}
