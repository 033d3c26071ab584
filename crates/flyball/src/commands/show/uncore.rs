//! Uncore domains on the screen: their dies, agents and frequencies.

use flyball_control::{At, Id, Scope, Value};
use flyball_host::{CpuList, KiloHertz};

use super::screen::{Screen, range};
use crate::paint::{Columns, cpus_within};

impl Screen<'_> {
    /// Returns the compute die of an uncore domain as package:domain (Linux's die ids do not count
    /// these dies), and its agents.
    fn die(&self, name: &str, cpus: &CpuList) -> (String, String) {
        let value = |knob: Id| {
            let mut entries = self.snapshot.entries(knob).ok()?;
            let (_, entry) = entries.find(|(place, _)| matches!(&place.at, At::Uncore(of) if of == name))?;
            match &entry?.reading {
                Ok(reading) => reading.value().cloned(),
                Err(_) => None,
            }
        };
        let package = cpus.first().and_then(|cpu| self.snapshot.topology().cpus.get(&cpu)?.package);
        let die = match (package, value(Id::UncoreDomain)) {
            (Some(package), Some(Value::Count(domain))) => format!("{package}:{domain}"),
            _ => String::new(),
        };
        (die, value(Id::UncoreAgents).map(|agents| agents.to_string()).unwrap_or_default())
    }

    pub(super) fn uncore(&self) -> String {
        let columns_of =
            [Id::UncoreMinFreq, Id::UncoreMaxFreq, Id::UncoreHwMin, Id::UncoreHwMax, Id::UncoreFreq];
        // Each domain has a row per knob, all with the domain's name.
        let mut domains: Vec<(String, &CpuList, [Option<KiloHertz>; 5])> = Vec::new();
        for row in
            self.rows.iter().filter(|row| row.knob.knob().scope == Scope::Uncore && !row.name.is_empty())
        {
            let Some(column) = columns_of.iter().position(|knob| *knob == row.knob) else { continue };
            let frequency = row.outcome.value().and_then(Value::frequency);
            match domains.iter_mut().find(|(name, _, _)| *name == row.name) {
                Some((_, _, values)) => values[column] = frequency,
                None => {
                    let mut values = [None; 5];
                    values[column] = frequency;
                    domains.push((row.name.clone(), &row.cpus, values));
                }
            }
        }
        if domains.is_empty() {
            return String::new();
        }
        let mut columns = Columns::new();
        columns.heading(["uncore domain", "die", "agents", "CPUs", "min-max GHz", "at boot", "now"]);
        type Merged<'a> = (String, usize, &'a CpuList, (String, String), [Option<KiloHertz>; 5]);
        let mut merged: Vec<Merged> = Vec::new();
        for (name, cpus, values) in domains {
            let die = self.die(&name, cpus);
            match merged.last_mut() {
                // Only group neighbours: domains are sorted by number, and readers take `and N
                // more` as the following ones.
                Some((_, count, other, same, alike))
                    if *other == cpus && *same == die && *alike == values =>
                {
                    *count += 1;
                }
                _ => merged.push((name, 1, cpus, die, values)),
            }
        }
        for (name, count, cpus, (die, agents), [min, max, low, high, now]) in merged {
            let name = if count > 1 { format!("{name} and {} more", count - 1) } else { name };
            columns.row(vec![
                name.into(),
                die.into(),
                agents.into(),
                cpus_within(cpus, 26).into(),
                range(min, max).into(),
                range(low, high).into(),
                range(now, None).into(),
            ]);
        }
        columns.drop_empty();
        columns.render(self.paint)
    }
}
