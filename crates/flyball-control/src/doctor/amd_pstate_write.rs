//! The writing part of the kernel's amd-pstate unit tests, in user space: energy preferences read
//! back as written, every change between modes works, and each mode has the right attributes.
//!
//! Everything is written through a [`Transaction`], so it is restored even if this process dies.
//! The kernel's module tests the same from inside (amd-pstate-ut.c: epp, check_driver,
//! check_freq_attrs).

use flyball_host::{Errno, Host};

use super::{
    Answer, Facts, Finding, Group, amd_pstate::since, driver::STATUS_AMD, fault, finding, ok, unknown,
};
use crate::{
    Location,
    write::transaction::{ApplyError, ProbeOutcome, Transaction},
};

const DYNAMIC: &str = "/sys/devices/system/cpu/amd_pstate/dynamic_epp";

/// A test that writes.
struct Test {
    id: &'static str,
    why: &'static str,
    run: fn(&Facts, &mut Writer) -> Result<Answer, ApplyError>,
}

const TESTS: &[Test] = &[
    Test {
        id: "amd-pstate.epp",
        why: "A preference that does not read back as written does not reach the processor.",
        run: epp,
    },
    Test {
        id: "amd-pstate.modes",
        why: "A mode that cannot be left or entered leaves the machine without frequency control.",
        run: modes,
    },
    Test {
        id: "amd-pstate.attributes",
        why: "A mode without its attributes cannot be configured; attributes of another mode have no effect.",
        run: attributes,
    },
];

/// Returns the names of the tests that write.
pub fn ids() -> impl Iterator<Item = (&'static str, &'static str)> {
    TESTS.iter().map(|test| (test.id, test.why))
}

/// The transaction that the tests use, and the check for interruption.
struct Writer<'a, 'h> {
    host: &'h dyn Host,
    transaction: &'a mut Transaction<'h>,
    interrupted: &'a dyn Fn() -> bool,
}

impl Writer<'_, '_> {
    fn write(&mut self, path: &str, value: &str) -> Result<ProbeOutcome, ApplyError> {
        if (self.interrupted)() {
            return Err(ApplyError::Interrupted { restoration: Box::new(self.transaction.restore()) });
        }
        self.transaction.probe(&Location::file(path), value)
    }

    /// Writes a value and returns a complaint if it does not read back as written.
    fn must(&mut self, path: &str, value: &str) -> Result<Option<String>, ApplyError> {
        Ok(match self.write(path, value)? {
            ProbeOutcome::Held => None,
            ProbeOutcome::Reads(text) => Some(format!("{path}: wrote {value}, reads '{text}'")),
            ProbeOutcome::Refused(error) => Some(format!("{path}: {value} was refused: {}", error.errno)),
        })
    }

    fn read(&self, path: &str) -> Option<String> {
        self.host.read(path).ok()
    }
}

/// Runs the tests that write. Returns nothing if amd-pstate is not the driver. The transaction
/// restores the original values when it ends.
///
/// # Errors
/// The journal cannot be written, or the user interrupted. Everything has been restored then.
pub fn examine<'h>(
    host: &'h dyn Host,
    transaction: &mut Transaction<'h>,
    interrupted: &dyn Fn() -> bool,
) -> Result<Vec<Finding>, ApplyError> {
    let Ok(facts) = Facts::gather(host) else { return Ok(Vec::new()) };
    if !facts.driver().is_some_and(|driver| driver.starts_with("amd-pstate")) {
        return Ok(Vec::new());
    }
    let mut writer = Writer { host, transaction, interrupted };
    let mut found = Vec::new();
    for test in TESTS {
        let answer = (test.run)(&facts, &mut writer)?;
        found.push(finding(test.id, Group::AmdPstate, test.why, answer));
    }
    Ok(found)
}

/// The number for each word (amd_pstate's epp_values[]).
const WORDS: [(&str, u8); 4] =
    [("power", 0xff), ("balance_power", 0xbf), ("balance_performance", 0x80), ("performance", 0)];

/// Checks that every number and word reads back as written. Kernels before 7.2 accept no numbers as
/// preferences: they refuse the first one, and the test continues with the words.
fn epp(facts: &Facts, writer: &mut Writer) -> Result<Answer, ApplyError> {
    let test = "amd_pstate_ut_epp";
    // The module has this test in 7.2, but not in 6.18, which accepts no numbers.
    let with_kernel_test = |answer: Answer, complaint: Option<String>| {
        if since(facts, 7, 2) { answer.kernel_says(test, complaint) } else { answer }
    };
    let failed = |complaint: String| {
        with_kernel_test(
            fault(format!("a preference did not read back as written: {complaint}"))
                .seen(STATUS_AMD, "active, while tested")
                .person("report it with this kernel's version: the driver or firmware is at fault"),
            Some(complaint),
        )
    };
    if writer.read(STATUS_AMD).is_none() {
        return Ok(unknown(format!(
            "{STATUS_AMD} does not exist: this kernel's driver has no energy preferences"
        )));
    }
    // Only the driver of active mode has the attribute (amd_pstate_epp_driver).
    if let Some(complaint) = writer.must(STATUS_AMD, "active")? {
        return Ok(failed(complaint));
    }
    // While the driver chooses the preference by platform profile, a written preference does not
    // stay.
    if writer.read(DYNAMIC).as_deref() == Some("enabled")
        && let Some(complaint) = writer.must(DYNAMIC, "disabled")?
    {
        return Ok(failed(complaint));
    }
    let Some(policy) =
        facts.policies.iter().find(|policy| !policy.cpus.intersection(&facts.online).is_empty())
    else {
        return Ok(unknown("no policy has a CPU online"));
    };
    let governor = policy.path("scaling_governor");
    // Under `performance` the driver refuses every other preference (EBUSY).
    if let Some(complaint) = writer.must(&governor, "powersave")? {
        return Ok(failed(complaint));
    }
    let path = policy.path("energy_performance_preference");
    let mut numbers = 0;
    // Count up from 0 like the module: a driver without numbers refuses the first one.
    for number in 0..=u8::MAX {
        match writer.write(&path, &number.to_string())? {
            ProbeOutcome::Refused(error)
                if number == 0 && error.errno == Errno::INVAL && !since(facts, 7, 2) =>
            {
                break;
            }
            ProbeOutcome::Refused(error) => {
                return Ok(failed(format!("{number} was refused: {}", error.errno)));
            }
            ProbeOutcome::Held | ProbeOutcome::Reads(_) => {}
        }
        let reads = writer.read(&path).unwrap_or_default();
        let same = match WORDS.iter().find(|(word, _)| *word == reads) {
            Some((_, value)) => *value == number,
            None => reads.parse() == Ok(number),
        };
        if !same {
            return Ok(failed(format!("wrote {number}, reads '{reads}'")));
        }
        numbers += 1;
    }
    for (word, _) in WORDS {
        match writer.write(&path, word)? {
            ProbeOutcome::Held => {}
            ProbeOutcome::Reads(text) => return Ok(failed(format!("wrote {word}, reads '{text}'"))),
            ProbeOutcome::Refused(error) => {
                return Ok(failed(format!("{word} was refused: {}", error.errno)));
            }
        }
    }
    let what = if numbers == 0 {
        format!("{} words written and read back", WORDS.len())
    } else {
        format!("{numbers} numbers and {} words written and read back", WORDS.len())
    };
    Ok(with_kernel_test(ok(what).seen(path, "as written each time"), None))
}

/// Returns the modes that this kernel's driver has; guided was added in 6.4.
fn known(facts: &Facts) -> Vec<&'static str> {
    let mut modes = vec!["disable", "passive", "active"];
    if since(facts, 6, 4) {
        modes.push("guided");
    }
    modes
}

/// Returns a sequence of modes that contains every change from one mode to another exactly once.
fn all_changes(modes: &[&'static str]) -> Vec<&'static str> {
    let mut sequence = Vec::new();
    for (index, &from) in modes.iter().enumerate() {
        for &to in &modes[index + 1..] {
            // The change from one pair to the next counts too.
            sequence.extend([from, to]);
        }
    }
    sequence.extend(modes.first());
    sequence
}

fn modes(facts: &Facts, writer: &mut Writer) -> Result<Answer, ApplyError> {
    let test = "amd_pstate_ut_check_driver";
    let Some(first) = writer.read(STATUS_AMD) else {
        return Ok(unknown(format!(
            "{STATUS_AMD} does not exist: this kernel cannot change the mode at run time"
        )));
    };
    let sequence = all_changes(&known(facts));
    let mut from = first;
    for to in &sequence {
        // The file shows the driver's intention, the policies its success.
        let complaint = match writer.must(STATUS_AMD, to)? {
            Some(complaint) => Some(complaint),
            None => wrong_driver(facts, writer, to),
        };
        if let Some(complaint) = complaint {
            return Ok(fault(format!("the mode cannot be changed from {from} to {to}: {complaint}"))
                .seen(STATUS_AMD, from)
                .person("look in the kernel log for amd_pstate's reason: dmesg | grep -i amd_pstate")
                .kernel_says(test, Some(complaint)));
        }
        (*to).clone_into(&mut from);
    }
    let text = format!("all {} changes between {} work", sequence.len() - 1, known(facts).join(", "));
    Ok(ok(text).seen(STATUS_AMD, "as written each time").kernel_says(test, None))
}

/// Returns a complaint if the policies' driver does not match the mode.
fn wrong_driver(facts: &Facts, writer: &Writer, mode: &str) -> Option<String> {
    let policy = facts.policies.iter().find(|policy| !policy.cpus.intersection(&facts.online).is_empty())?;
    let driver = writer.read(&policy.path("scaling_driver"));
    let expected = match mode {
        "disable" => None,
        "active" => Some("amd-pstate-epp"),
        _ => Some("amd-pstate"),
    };
    // With amd-pstate disabled, another driver may take over the CPUs.
    let right = match expected {
        None => !driver.as_deref().is_some_and(|name| name.starts_with("amd-pstate")),
        Some(name) => driver.as_deref() == Some(name),
    };
    (!right).then(|| {
        format!("in mode {mode} the policy's driver is {}", driver.unwrap_or_else(|| "none".to_owned()))
    })
}

/// When an attribute must exist.
#[derive(Clone, Copy, PartialEq)]
enum When {
    Always,
    Active,
    /// If preferred cores are enabled. The tests of kernels before 7.2 do not check this.
    Preferred,
}

const ATTRIBUTES: &[(&str, When)] = &[
    ("amd_pstate_max_freq", When::Always),
    ("amd_pstate_lowest_nonlinear_freq", When::Always),
    ("amd_pstate_highest_perf", When::Always),
    ("amd_pstate_prefcore_ranking", When::Preferred),
    ("amd_pstate_hw_prefcore", When::Preferred),
    ("energy_performance_preference", When::Active),
    ("energy_performance_available_preferences", When::Active),
];

fn attributes(facts: &Facts, writer: &mut Writer) -> Result<Answer, ApplyError> {
    let test = "amd_pstate_ut_check_freq_attrs";
    if writer.read(STATUS_AMD).is_none() {
        return Ok(unknown(format!("{STATUS_AMD} does not exist: the mode cannot be changed")));
    }
    let Some(policy) =
        facts.policies.iter().find(|policy| !policy.cpus.intersection(&facts.online).is_empty())
    else {
        return Ok(unknown("no policy has a CPU online"));
    };
    let strict = since(facts, 7, 2);
    // Read it before the first change of mode, because some modes lack the file.
    let preferred = policy.get("amd_pstate_hw_prefcore") == Some("enabled");
    for mode in known(facts).into_iter().filter(|mode| *mode != "disable") {
        let mut complaint = writer.must(STATUS_AMD, mode)?;
        for (name, when) in ATTRIBUTES {
            let expected = match when {
                When::Always => true,
                When::Active => mode == "active",
                When::Preferred if strict => preferred,
                When::Preferred => continue,
            };
            // Check that the file exists, not that it can be read: a file without a value may fail
            // with an errno.
            let exists = writer.host.exists(&policy.path(name));
            if expected != exists {
                let word = |exists| if exists { "present" } else { "missing" };
                complaint = complaint.or_else(|| {
                    Some(format!("mode {mode}: {name} is {}, should be {}", word(exists), word(expected)))
                });
            }
        }
        if let Some(complaint) = complaint {
            let answer = fault(format!("attributes do not follow the mode: {complaint}"))
                .seen(policy.path(""), complaint.clone());
            return Ok(if strict { answer.kernel_says(test, Some(complaint)) } else { answer });
        }
    }
    let answer = ok("each mode shows its own attributes").seen(policy.path(""), "as expected in each mode");
    Ok(if strict { answer.kernel_says(test, None) } else { answer })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_made_once() {
        let modes = ["a", "b", "c", "d"];
        let sequence = all_changes(&modes);
        let mut pairs: Vec<_> = sequence.windows(2).map(|pair| (pair[0], pair[1])).collect();
        assert!(pairs.iter().all(|(from, to)| from != to));
        pairs.sort_unstable();
        pairs.dedup();
        assert_eq!((pairs.len(), sequence.len()), (12, 13));
    }
}
