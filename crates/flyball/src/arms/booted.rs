//! Arms on a machine in software: it is booted for every round, so that arms that need another
//! driver need nothing from the user and every round starts from the same state.

use std::time::Duration;

use flyball_control::write::{journal::Purpose, state::StateDir, transaction::Transaction};
use flyball_host::{Host, Software};
use flyball_measure::{Arm, Settings, SettingsError};

use super::{boot_needed, intent, notes};
use crate::{
    change,
    exit::Failure,
    quiet_machine::{Quiet, QuietPlan},
    seeds::RunSeeds,
};

/// How long the processors rest between a boot and the settings, and between these and the round.
const AFTER_BOOT: Duration = Duration::from_millis(500);
const AFTER_SETTINGS: Duration = Duration::from_millis(100);

/// The arms of a comparison as boots: each is applied to a machine that has just been booted, with
/// what it needs on the kernel's command line.
pub struct BootedArms<'h> {
    host: &'h dyn Host,
    software: &'h dyn Software,
    // In this order: fields are dropped as they are listed, and the transaction needs its journal
    // to the end.
    transaction: Option<(Transaction<'h>, tempfile::TempDir)>,
    seeds: RunSeeds,
    /// What is held beneath every arm.
    quiet: Option<Quiet>,
}

impl<'h> BootedArms<'h> {
    pub fn new(
        host: &'h dyn Host,
        software: &'h dyn Software,
        quiet: Option<Quiet>,
        seeds: RunSeeds,
    ) -> Result<BootedArms<'h>, Failure> {
        // A boot loses what the state file promises to keep.
        if software.is_kept() {
            return Err(Failure::usage(
                "a comparison boots the machine again and again: it cannot be kept with --sim-state",
            ));
        }
        Ok(BootedArms { host, software, transaction: None, seeds, quiet })
    }

    /// Applies each arm once, so that one that no boot makes possible is refused before anything is
    /// measured.
    pub fn check(mut self, arms: &[Arm]) -> Result<(), Failure> {
        for arm in arms {
            self.apply(arm).map_err(|error| Failure::usage(format!("arm '{}': {error}", arm.name)))?;
        }
        self.restore().map_err(Failure::failed)
    }

    /// Boots the machine for the next run of an arm. Returns what it was booted with.
    pub fn boot(&mut self, arm: &Arm) -> Result<Vec<String>, SettingsError> {
        let failed = |error: std::io::Error| SettingsError(error.to_string());
        // Before the boot: the seed decides how the machine comes up.
        self.software.vary(self.seeds.next());
        // First with its own parameters: which driver they bring up decides what the arm still
        // needs.
        self.software.reboot(&[]).map_err(failed)?;
        let Some(needed) = boot_needed(self.host, arm)? else { return Ok(Vec::new()) };
        let words: Vec<String> = needed.split_whitespace().map(str::to_owned).collect();
        self.software.reboot(&words).map_err(failed)?;
        match boot_needed(self.host, arm)? {
            None => Ok(words),
            Some(still) => Err(SettingsError(format!(
                "{} booted with {} still needs {still}: this machine or kernel does not have that",
                self.host.name(),
                words.join(" ")
            ))),
        }
    }
}

impl Settings for BootedArms<'_> {
    fn apply(&mut self, arm: &Arm) -> Result<Vec<String>, SettingsError> {
        self.restore()?;
        self.boot(arm)?;
        // The processors leave the boot at its frequency and temperature; a round right after it
        // would start from there.
        self.host.sleep(AFTER_BOOT);
        let failed = |failure: Failure| SettingsError(failure.to_string());
        let intent = intent(arm).map_err(failed)?;
        if intent.is_empty() && self.quiet.is_none() {
            return Ok(Vec::new());
        }
        // The journal is of no use once this machine is gone, so it is kept apart from the user's.
        // Bound before the transaction: if something below fails, it is dropped first and still
        // finds its journal.
        let folder = tempfile::tempdir().map_err(|error| SettingsError(error.to_string()))?;
        let state = StateDir::new(folder.path());
        let mut transaction =
            Transaction::begin(self.host, &state, Purpose::Compare, &change::command_line(), None)
                .map_err(|error| SettingsError(error.to_string()))?;
        if let Some(quiet) = &self.quiet {
            // Decided for this boot: which settings make it quiet depends on the driver.
            let quiet_plan = QuietPlan::decide(self.host, quiet).map_err(failed)?;
            // Without a check for Ctrl-C: this takes milliseconds of host time, and no real setting
            // has to be undone.
            quiet_plan.apply(self.host, &mut transaction, &|| false).map_err(failed)?;
        }
        let applied =
            transaction.apply(&intent, &|| false).map_err(|error| SettingsError(error.to_string()))?;
        self.transaction = Some((transaction, folder));
        self.host.sleep(AFTER_SETTINGS);
        Ok(notes(&applied))
    }

    fn restore(&mut self) -> Result<(), SettingsError> {
        match self.transaction.take().map(|(transaction, _folder)| transaction.end()) {
            Some(restoration) if !restoration.is_exact() => Err(SettingsError(restoration.to_string())),
            _ => Ok(()),
        }
    }

    fn snapshot(&self) -> serde_json::Value {
        serde_json::json!({ "machine": self.host.name(), "simulated": true })
    }
}
