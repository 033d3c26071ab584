//! Arms on a simulated machine: it is booted for every round, so that arms with another driver need
//! nothing from the user and every round starts from the same state.

use std::time::Duration;

use flyball_control::{
    quiet::{QuietOptions, QuietPlan},
    write::{journal::Purpose, state::StateDir, transaction::Transaction},
};
use flyball_host::{Host, Software};
use flyball_measure::{Arm, RefusedArm, Settings, SettingsError, SettingsSnapshot};

use super::{boot_needed, intent, notes};
use crate::RunSeeds;

/// How long the processors rest between the boot and the settings, and before the round.
const AFTER_BOOT: Duration = Duration::from_millis(500);
const AFTER_SETTINGS: Duration = Duration::from_millis(100);

/// The arms of a comparison as boots: each is applied to a machine that has just been booted, with
/// the words that it needs on the kernel's command line.
pub struct BootedArms<'h> {
    host: &'h dyn Host,
    software: &'h dyn Software,
    // The order matters: fields are dropped as they are listed, and the transaction needs its
    // journal to the end.
    transaction: Option<(Transaction<'h>, tempfile::TempDir)>,
    seeds: RunSeeds,
    /// The quiet level beneath every arm.
    quiet: Option<QuietOptions>,
}

impl<'h> BootedArms<'h> {
    pub fn new(
        host: &'h dyn Host,
        software: &'h dyn Software,
        quiet: Option<QuietOptions>,
        seeds: RunSeeds,
    ) -> Result<BootedArms<'h>, SettingsError> {
        // A boot loses the state that the state file should keep.
        if software.is_kept() {
            return Err(SettingsError::Kept);
        }
        Ok(BootedArms { host, software, transaction: None, seeds, quiet })
    }

    /// Applies each arm once, so that an arm that no boot makes possible is rejected before
    /// anything is measured.
    pub fn check(&mut self, arms: &[Arm]) -> Result<(), RefusedArm> {
        for arm in arms {
            self.apply(arm).map_err(|cause| RefusedArm { arm: arm.name.clone(), cause })?;
        }
        Ok(())
    }

    /// Boots the machine for the next run of an arm. Returns the words on the kernel's command
    /// line.
    pub fn boot(&mut self, arm: &Arm) -> Result<Vec<String>, SettingsError> {
        // Before the boot: the seed decides how the machine comes up.
        self.software.vary(self.seeds.next_seed());
        // First with its own parameters: the driver that they bring up decides what the arm still
        // needs.
        self.software.reboot(&[]).map_err(SettingsError::Boot)?;
        let Some(needed) = boot_needed(self.host, arm)? else { return Ok(Vec::new()) };
        let words: Vec<String> = needed.split_whitespace().map(str::to_owned).collect();
        self.software.reboot(&words).map_err(SettingsError::Boot)?;
        match boot_needed(self.host, arm)? {
            None => Ok(words),
            Some(needed) => {
                Err(SettingsError::NotBooted { machine: self.host.name(), words: words.join(" "), needed })
            }
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
        // The user's own knobs are rejected on simulated machines.
        let intent = intent(arm, &[])?;
        if intent.is_empty() && self.quiet.is_none() {
            return Ok(Vec::new());
        }
        // The journal is useless once this machine is gone, so it is separate from the user's.
        // Bound before the transaction: if something below fails, the transaction is dropped first
        // and still finds its journal.
        let folder = tempfile::tempdir().map_err(SettingsError::Journal)?;
        let state = StateDir::new(folder.path());
        let mut transaction =
            Transaction::begin(self.host, &state, Purpose::Compare, "flyball compare", None)?;
        if let Some(quiet) = &self.quiet {
            // Decided for this boot: the settings that make it quiet depend on the driver.
            let quiet_plan = QuietPlan::decide(self.host, quiet)?;
            // Without a check for Ctrl-C: this takes milliseconds of host time, and no real setting
            // has to be undone.
            quiet_plan.apply(self.host, &mut transaction, &|| false)?;
        }
        let applied = transaction.apply(&intent, &|| false)?;
        self.transaction = Some((transaction, folder));
        self.host.sleep(AFTER_SETTINGS);
        Ok(notes(&applied))
    }

    fn restore(&mut self) -> Result<(), SettingsError> {
        match self.transaction.take().map(|(transaction, _folder)| transaction.end()) {
            Some(restoration) if !restoration.is_exact() => Err(SettingsError::Restore(restoration)),
            _ => Ok(()),
        }
    }

    fn snapshot(&self) -> SettingsSnapshot {
        SettingsSnapshot::Booted { machine: self.host.name(), simulated: true }
    }
}
