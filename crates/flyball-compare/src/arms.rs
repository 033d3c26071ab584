//! A comparison's arms: the knobs of `flyball set`, and settings that need another boot.
//! [`HeldArms`] applies them to a real machine inside one transaction, [`BootedArms`] to a
//! simulated machine.

mod booted;
mod user_knobs;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use flyball_control::{
    Intent, Snapshot,
    plan::{Plan, plan},
    quiet::QuietPlan,
    save,
    write::{
        journal::Purpose,
        state::StateDir,
        transaction::{Applied, HeldContents, Transaction},
    },
};
use flyball_host::{CommandKnob, CpuInfo, CpuList, Host, online_cpus, topology::scaling_driver};
use flyball_measure::{
    Arm, ArmSetting, Manifest, Meaning, RefusedArm, Settings, SettingsError, SettingsSnapshot,
};

pub use self::booted::BootedArms;

/// The settings of an arm that are knobs of flyball, not of a boot and not of the user's `knobs`.
///
/// # Errors
/// A setting that is none of these.
pub fn intent(arm: &Arm, knobs: &[CommandKnob]) -> Result<Intent, SettingsError> {
    let mut intent = Intent::default();
    for setting in arm.settings.iter().filter(|setting| setting.user_knob(knobs).is_none()) {
        match setting.meaning() {
            Meaning::Knob(setting) => intent.settings.push(setting.clone()),
            Meaning::Driver(_) | Meaning::Boot(_) => {}
            Meaning::Other(error) => return Err(error.clone().into()),
        }
    }
    Ok(intent)
}

/// Plans an intent for the machine as it is now.
pub fn plan_now(host: &dyn Host, intent: &Intent) -> Result<Plan, SettingsError> {
    Ok(plan(&Snapshot::for_intent(host, intent)?, intent)?)
}

/// Returns the boot options that an arm needs and the machine does not have.
pub fn boot_needed(host: &dyn Host, arm: &Arm) -> Result<Option<String>, SettingsError> {
    let mut needed = Vec::new();
    for setting in &arm.settings {
        match setting.meaning() {
            Meaning::Driver(driver) => needed.extend(driver_needs(host, driver)?),
            Meaning::Boot(parameter) => {
                let line = host.read("/proc/cmdline").unwrap_or_default();
                // Whole words: `isolcpus=1` is a prefix of `isolcpus=1-3`.
                if !line.split_whitespace().any(|word| word == parameter) {
                    needed.push(parameter.clone());
                }
            }
            Meaning::Knob(_) | Meaning::Other(_) => {}
        }
    }
    Ok((!needed.is_empty()).then(|| needed.join(" ")))
}

/// The kernel parameter that brings up a cpufreq driver, if another one runs.
fn driver_needs(host: &dyn Host, wanted: &str) -> Result<Option<String>, SettingsError> {
    if scaling_driver(host).as_deref() == Some(wanted) {
        return Ok(None);
    }
    // amd_pstate drives AMD's own processors only, not Hygon's.
    let amd = CpuInfo::read(host).is_ok_and(|info| info.vendor_id == "AuthenticAMD");
    // Documentation/admin-guide/kernel-parameters.txt: amd_pstate=, intel_pstate=.
    let parameter = match wanted {
        "acpi-cpufreq" if amd => "amd_pstate=disable",
        "acpi-cpufreq" => "intel_pstate=disable",
        "amd-pstate-epp" => "amd_pstate=active",
        "amd-pstate" => "amd_pstate=passive",
        "intel_pstate" => "intel_pstate=active",
        "intel_cpufreq" => "intel_pstate=passive",
        other => return Err(SettingsError::Driver(other.to_owned())),
    };
    Ok(Some(parameter.to_owned()))
}

/// The means of holding a real machine while arms are applied.
pub struct Holding {
    /// The directory of the lock and the journal.
    pub state: StateDir,
    /// Restores the machine if this process dies.
    pub guardian: std::process::Command,
    /// The command line, for the lock and the journal.
    pub command_line: String,
}

/// Why the arms of a comparison cannot be applied on a real machine.
#[derive(Debug, thiserror::Error)]
pub enum ArmsError {
    #[error(transparent)]
    Arm(#[from] RefusedArm),
    /// A knob of the user failed.
    #[error(transparent)]
    Knob(SettingsError),
}

/// Arms that a real machine accepts, checked in this boot.
#[derive(Debug)]
pub struct CheckedArms {
    /// The user's own knobs that arms name.
    knobs: Vec<CommandKnob>,
    /// Whether an arm sets something. Arms without settings need no lock, no journal and no root.
    pub sets: bool,
}

impl CheckedArms {
    /// Checks every arm that is possible in this boot. Nothing is written.
    ///
    /// # Errors
    /// The first arm that the machine does not accept.
    pub fn check(host: &dyn Host, manifest: &Manifest) -> Result<CheckedArms, ArmsError> {
        let is_named = |knob: &&CommandKnob| {
            manifest.arms.iter().any(|arm| arm.settings.iter().any(|one| one.knob() == knob.name))
        };
        let knobs: Vec<CommandKnob> = manifest.knobs.iter().filter(is_named).cloned().collect();
        user_knobs::check(host, &knobs).map_err(ArmsError::Knob)?;
        let mut sets = !knobs.is_empty();
        for arm in &manifest.arms {
            let refused = |cause| RefusedArm { arm: arm.name.clone(), cause };
            let intent = intent(arm, &knobs).map_err(refused)?;
            // Arms of another boot are not planned: their driver, and with it their knobs, is
            // missing now.
            let here = boot_needed(host, arm).map_err(refused)?;
            if here.is_none() && !intent.is_empty() {
                // Planned only as a check: a setting that does not exist here must be rejected
                // before the first round.
                plan_now(host, &intent).map_err(refused)?;
                sets = true;
            }
        }
        Ok(CheckedArms { knobs, sets })
    }
}

/// The state that another program may change while an arm is in effect.
#[derive(Default)]
struct ArmState {
    /// The online CPUs, as the kernel lists them.
    online: Option<CpuList>,
    held: Option<HeldContents>,
}

/// The arms of a comparison on a machine that does not reboot in between.
pub struct HeldArms<'h> {
    host: &'h dyn Host,
    transaction: Option<Transaction<'h>>,
    interrupted: Arc<AtomicBool>,
    /// The settings that are applied now.
    current: Option<Vec<ArmSetting>>,
    last_notes: Vec<String>,
    /// The knobs of the user that arms may name.
    knobs: Vec<CommandKnob>,
    /// The state when the arm had been applied.
    seen: ArmState,
    /// Notes for the user from taking the machine.
    pub notes: Vec<String>,
    /// The control group that the workload should join: its CPUs are reserved for the workload.
    pub group: Option<String>,
}

impl<'h> HeldArms<'h> {
    /// Takes the machine, with its lock, a journal and a guardian if `holding` has them. Makes it
    /// quiet before any arm if there is a plan for that.
    ///
    /// # Errors
    /// The machine cannot be taken or made quiet. What was written has been restored.
    pub fn take(
        host: &'h dyn Host,
        arms: CheckedArms,
        holding: Option<Holding>,
        quiet: Option<&QuietPlan>,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<HeldArms<'h>, SettingsError> {
        let mut held = HeldArms {
            host,
            transaction: None,
            interrupted: Arc::clone(interrupted),
            current: None,
            last_notes: Vec::new(),
            knobs: arms.knobs,
            seen: ArmState::default(),
            notes: Vec::new(),
            group: None,
        };
        let Some(Holding { state, guardian, command_line }) = holding else { return Ok(held) };
        let mut transaction =
            Transaction::begin(host, &state, Purpose::Compare, &command_line, Some(guardian))?;
        held.notes.extend(transaction.notes().iter().map(ToString::to_string));
        if let Some(plan) = quiet {
            match plan.apply(host, &mut transaction, &|| interrupted.load(Ordering::Relaxed)) {
                Ok(result) => {
                    held.notes.extend(result.notes);
                    held.group = result.group;
                }
                Err(error) => {
                    // Report the failure that led here. If the restoration fails too, it stays in
                    // the journal for `flyball restore`.
                    let _ = transaction.end();
                    return Err(error.into());
                }
            }
            // Between arms the machine returns to this state, not to the original one.
            transaction.set_baseline();
        }
        held.transaction = Some(transaction);
        Ok(held)
    }
}

/// The notes on an application: values that the kernel changed, and the plan's notes.
fn notes(applied: &Applied) -> Vec<String> {
    let mut notes: Vec<String> = applied.notes.iter().map(ToString::to_string).collect();
    notes.extend(applied.clamped().map(ToString::to_string));
    // Equal notes for many CPUs are adjacent.
    notes.dedup();
    notes
}

fn list(cpus: Option<&CpuList>) -> String {
    cpus.map_or_else(|| "unknown".to_owned(), ToString::to_string)
}

impl Settings for HeldArms<'_> {
    fn apply(&mut self, arm: &Arm) -> Result<Vec<String>, SettingsError> {
        // These settings are already applied: the next arm may differ only in its program.
        if self.current.as_ref() == Some(&arm.settings) {
            return Ok(self.last_notes.clone());
        }
        self.current = None;
        let intent = intent(arm, &self.knobs)?;
        let Some(transaction) = &mut self.transaction else {
            if intent.is_empty() {
                self.seen = ArmState { online: online_cpus(self.host), held: None };
                self.current = Some(arm.settings.clone());
                return Ok(Vec::new());
            }
            return Err(SettingsError::NotHeld);
        };
        // Return to the baseline between arms: a setting of the previous arm must not leak into
        // this one.
        let restoration = transaction.restore();
        // A round on a machine that is not in the arm's state measures something else.
        if !restoration.is_exact() {
            return Err(SettingsError::Restore(restoration));
        }
        self.last_notes = if intent.is_empty() {
            Vec::new()
        } else {
            let interrupted = &self.interrupted;
            let applied = transaction.apply(&intent, &|| interrupted.load(Ordering::Relaxed))?;
            notes(&applied)
        };
        // After the machine's own settings, because the user's command may look at them.
        user_knobs::apply(transaction, &self.knobs, arm)?;
        self.seen = ArmState { online: online_cpus(self.host), held: Some(transaction.held()) };
        self.current = Some(arm.settings.clone());
        Ok(self.last_notes.clone())
    }

    fn restore(&mut self) -> Result<(), SettingsError> {
        self.current = None;
        match self.transaction.take().map(Transaction::end) {
            Some(restoration) if !restoration.is_exact() => Err(SettingsError::Restore(restoration)),
            _ => Ok(()),
        }
    }

    fn boot_needed(&self, arm: &Arm) -> Result<Option<String>, SettingsError> {
        boot_needed(self.host, arm)
    }

    fn changed(&mut self) -> Option<String> {
        let (was, now) = (self.seen.online.clone(), online_cpus(self.host));
        let hotplug =
            || format!("the online CPUs were {} and are {}", list(was.as_ref()), list(now.as_ref()));
        let changed = if was == now {
            let held = self.seen.held.as_ref();
            self.transaction
                .as_ref()
                .zip(held)
                .and_then(|(transaction, held)| transaction.changed_since(held))
        } else {
            Some(hotplug())
        };
        if changed.is_some() {
            // The arm must be applied again, although it is the current one.
            self.current = None;
        }
        changed
    }

    // Only for readers of the run directory: if the machine cannot be read, the comparison must not
    // end.
    fn snapshot(&self) -> SettingsSnapshot {
        let settings =
            Snapshot::take_knobs(self.host, &save::saved()).and_then(|snapshot| save::settings(&snapshot));
        match settings {
            Ok(settings) => SettingsSnapshot::Settings { settings },
            Err(error) => SettingsSnapshot::Unread { error: error.to_string() },
        }
    }
}
