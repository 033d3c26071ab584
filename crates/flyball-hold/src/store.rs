//! The holds of this boot, in a file of the state directory: each hold's owner and settings, the
//! places left to others, and the last drifts. A writer must have the lock of the directory. A
//! reader needs no lock, because the file is replaced as a whole.

use std::{
    collections::BTreeSet,
    fs::{File, Permissions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use flyball_control::write::{state::StateDir, transaction::boot_id};
use flyball_host::{Host, watch::LocalTime};
use serde::{Deserialize, Serialize};

use crate::{Drift, Exemption, Facts, Hold, HoldName, Owner, hold::size};

/// The format that this flyball writes.
const FORMAT: u32 = 1;

/// Limit on holds at one time. Each change plans all of them.
pub(crate) const MAX_HOLDS: usize = 64;

/// Limit on holds of one user other than root.
pub(crate) const MAX_PER_USER: usize = 16;

/// Limit on holds of all users other than root: half of the holds are reserved for root and the
/// configuration.
pub(crate) const MAX_OF_USERS: usize = 32;

/// Limits on settings and further values of lists, in the holds of one user and of all users other
/// than root: the service plans the settings of all holds together.
pub const MAX_SETTINGS_PER_USER: usize = 256;
const MAX_SETTINGS_OF_USERS: usize = 512;

/// Limit on stored drifts.
const MAX_DRIFTS: usize = 100;

/// Mode of the files that every user may read. Holds are no secret, since anyone may read the
/// settings themselves.
const READABLE: u32 = 0o644;

/// Limit on the bytes of the file: many times the size of the maximum of holds with the largest
/// profiles.
const MAX_BYTES: u64 = 64 << 20;

/// The service, as commands see it.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize, Deserialize)]
pub struct ServiceState {
    pub process: crate::ProcessId,
    /// Start time, in seconds since 1970.
    pub since: u64,
    /// Changes that it cannot notice here, with the reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blind: Vec<String>,
}

/// A hold that is not in force although its condition is met, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub hold: HoldName,
    pub why: String,
}

/// Shows other processes that the service runs, even if they may not see its process. It is a mark
/// on a file of the state directory, which ends with the process.
#[derive(Debug)]
pub struct Presence {
    _file: File,
    /// Locked by the only running service. Nobody else can open this file: a reader's lock on the
    /// other file would keep services from starting.
    _only: File,
}

impl Presence {
    fn path(state: &StateDir) -> PathBuf {
        state.path().join("service")
    }

    /// Marks the file; `None` if another service has marked it.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn show(state: &StateDir) -> Result<Option<Presence>, StoreError> {
        let path = Presence::path(state);
        let open = |path: &Path, mode| -> io::Result<File> {
            let mut options = File::options();
            options.read(true).write(true).create(true).mode(mode);
            let file = flyball_files::open_trusted(&mut options, path)?;
            // The umask has reduced the mode above.
            file.set_permissions(Permissions::from_mode(mode))?;
            Ok(file)
        };
        let show = || -> io::Result<Option<Presence>> {
            let only = open(&path.with_extension("lock"), 0o600)?;
            if !flyball_process::mark(&only)? {
                return Ok(None);
            }
            let mut file = open(&path, READABLE)?;
            if !flyball_process::mark(&file)? {
                // Somebody has a reader's lock on the file. Nobody has a lock on a new file yet.
                std::fs::remove_file(&path)?;
                file = open(&path, READABLE)?;
                flyball_process::mark(&file)?;
            }
            Ok(Some(Presence { _file: file, _only: only }))
        };
        show().map_err(|error| StoreError::Io { path: path.clone(), error })
    }

    fn is_shown(state: &StateDir) -> bool {
        let file = flyball_files::open_trusted(File::options().read(true), &Presence::path(state));
        file.and_then(|file| flyball_process::is_marked(&file)).unwrap_or(false)
    }
}

/// The stored data about holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Store {
    format: u32,
    boot: Option<String>,
    machine: String,
    /// The holds, in the order in which they were added.
    pub holds: Vec<Hold>,
    #[serde(default)]
    pub left: Vec<Exemption>,
    /// The last drifts, oldest first.
    #[serde(default)]
    pub drifts: Vec<Drift>,
    /// Why the holds are not in force, if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The holds that are not in force because of `failure`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
    /// The error in /etc/flyball/hold.toml, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_error: Option<String>,
    /// The texts of conditions with a time span that the service considers met.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub lasting: BTreeSet<String>,
    /// The service, if it runs. [`Store::load`] removes a service that does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceState>,
}

/// Why the store cannot be used, or rejects a hold.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot use {}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{} is not a list of holds ({what}); 'flyball restore' restores what they set, then remove the file", path.display())]
    Content { path: PathBuf, what: String },
    #[error(
        "{} has the holds of the machine '{machine}'; use another state directory, or remove the file if 'flyball restore' has undone them",
        path.display()
    )]
    OtherMachine { path: PathBuf, machine: String },
    #[error("there are {MAX_HOLDS} holds already; release one first")]
    TooMany,
    #[error(
        "a user has at most {MAX_PER_USER} holds with {MAX_SETTINGS_PER_USER} settings and values in lists, all users together {MAX_OF_USERS} with {MAX_SETTINGS_OF_USERS}; release one first"
    )]
    TooManyOfUsers,
    #[error("the hold '{0}' belongs to another; only its owner and root change or release it")]
    NotOwner(HoldName),
    #[error("there is no hold '{0}'")]
    Unknown(HoldName),
    #[error(
        "the hold '{0}' comes from /etc/flyball/hold.toml; change it there and restart flyball-hold.service"
    )]
    OfConfig(HoldName),
}

/// A version of the file: a replaced one has another inode or time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// Returns the file's present version, if it exists.
    pub(crate) fn read(state: &StateDir) -> Option<Stamp> {
        let status = std::fs::symlink_metadata(Store::path(state)).ok()?;
        Some(Stamp { inode: status.ino(), changed: (status.ctime(), status.ctime_nsec()) })
    }
}

impl Store {
    fn path(state: &StateDir) -> PathBuf {
        state.path().join("holds")
    }

    /// The file's name, as a watch of the directory reports it.
    pub const NAME: &str = "holds";

    /// Returns a store without holds.
    pub fn empty(host: &dyn Host) -> Store {
        Store {
            format: FORMAT,
            boot: boot_id(host),
            machine: host.name(),
            holds: Vec::new(),
            left: Vec::new(),
            drifts: Vec::new(),
            failure: None,
            refused: Vec::new(),
            config_error: None,
            lasting: BTreeSet::new(),
            service: None,
        }
    }

    /// Reads the store. A store of an earlier boot counts as empty, because the kernel has
    /// forgotten its settings.
    ///
    /// # Errors
    /// The file cannot be read or is not a store.
    pub fn load(state: &StateDir, host: &dyn Host) -> Result<Store, StoreError> {
        let path = Store::path(state);
        let io = |error: io::Error| StoreError::Io { path: path.clone(), error };
        let file = match flyball_files::open_trusted(std::fs::File::options().read(true), &path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Store::empty(host)),
            Err(error) => return Err(io(error)),
        };
        let bytes = flyball_files::read_bounded(file, MAX_BYTES).map_err(io)?;
        let mut store =
            Store::parse(&bytes).map_err(|what| StoreError::Content { path: path.clone(), what })?;
        if store.machine != host.name() {
            return Err(StoreError::OtherMachine { path, machine: store.machine });
        }
        if store.service.is_some() && !Presence::is_shown(state) {
            store.service = None;
        }
        // sysfs forgets at boot, so the settings of an earlier boot's holds are gone, and process
        // numbers have changed.
        Ok(if store.boot == boot_id(host) { store } else { Store::empty(host) })
    }

    /// Parses the file's bytes.
    ///
    /// # Errors
    /// The error, in words.
    pub fn parse(bytes: &[u8]) -> Result<Store, String> {
        let store: Store = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if store.format > FORMAT {
            return Err(format!("format {}, this flyball knows up to {FORMAT}", store.format));
        }
        Ok(store)
    }

    /// Replaces the file. The caller has the lock.
    ///
    /// # Errors
    /// The file system refused. The old file is unchanged then.
    pub fn save(&mut self, state: &StateDir) -> Result<(), StoreError> {
        // Limit the drifts here, because every write of the file goes through this function.
        let excess = self.drifts.len().saturating_sub(MAX_DRIFTS);
        self.drifts.drain(..excess);
        let path = Store::path(state);
        // Plain data can always be serialized. The next load would refuse an empty file, not take
        // it for a store without holds.
        let bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        write(&path, &bytes).map_err(|error| StoreError::Io { path, error })
    }

    /// Adds a hold. It replaces a hold of the same name.
    ///
    /// # Errors
    /// There are too many holds, or the configuration uses the name.
    pub fn add(&mut self, hold: Hold) -> Result<(), StoreError> {
        // The configuration's names contain a colon, which users may write too. Without this check
        // a command could take over such a hold until the service reads the file again.
        let known = self.holds.iter().find(|known| known.name == hold.name);
        if known.is_some_and(|known| known.owner == Owner::Config && hold.owner != Owner::Config) {
            return Err(StoreError::OfConfig(hold.name));
        }
        if known.is_none() && self.holds.len() >= MAX_HOLDS {
            return Err(StoreError::TooMany);
        }
        // Append it even if it replaces a hold: on equal priority the newer hold wins.
        self.drop_hold(&hold.name);
        self.holds.push(hold);
        Ok(())
    }

    /// Adds a hold for a user. `None` is root, who may replace any hold except the configuration's.
    ///
    /// # Errors
    /// As [`Store::add`]; also if the hold of that name belongs to another, or users have too many
    /// holds.
    pub fn add_by(&mut self, user: Option<u32>, hold: Hold) -> Result<(), StoreError> {
        self.check_owner(user, &hold.name)?;
        if let Some(user) = user {
            // The settings of the desktop's profiles come from the administrator.
            let size = |hold: &Hold| match hold.owner {
                Owner::User(_) => size(&hold.settings),
                _ => 0,
            };
            let new = size(&hold);
            // Count holds and settings, of this user and of all users.
            let (mut own, mut all) = ((1, new), (1, new));
            for known in self.holds.iter().filter(|known| known.name != hold.name) {
                let Some(owner) = known.owner.user().filter(|owner| *owner != 0) else { continue };
                all = (all.0 + 1, all.1 + size(known));
                if owner == user {
                    own = (own.0 + 1, own.1 + size(known));
                }
            }
            let is_too_large = own.1 > MAX_SETTINGS_PER_USER || all.1 > MAX_SETTINGS_OF_USERS;
            if own.0 > MAX_PER_USER || all.0 > MAX_OF_USERS || new > 0 && is_too_large {
                return Err(StoreError::TooManyOfUsers);
            }
        }
        self.add(hold)
    }

    /// Returns the name of the hold with such an owner. Otherwise returns `name`, with a number
    /// appended if somebody else's hold has that name.
    pub fn name_for(&self, name: &HoldName, is_owner: impl Fn(&Owner) -> bool) -> HoldName {
        if let Some(known) = self.holds.iter().find(|hold| is_owner(&hold.owner)) {
            return known.name.clone();
        }
        let is_free = |name: &HoldName| !self.holds.iter().any(|hold| hold.name == *name);
        let numbered = (2..).map(|number| name.numbered(number));
        std::iter::once(name.clone()).chain(numbered).find(is_free).unwrap_or_else(|| name.clone())
    }

    /// Removes the holds that `is_one` selects. Returns their names.
    pub fn release_where(&mut self, is_one: impl Fn(&Hold) -> bool) -> Vec<HoldName> {
        let names: Vec<HoldName> =
            self.holds.iter().filter(|hold| is_one(hold)).map(|hold| hold.name.clone()).collect();
        for name in &names {
            self.drop_hold(name);
        }
        names
    }

    /// Removes a hold for a user. `None` is root, who may remove any hold except the
    /// configuration's.
    ///
    /// # Errors
    /// There is no hold of that name, or it belongs to another.
    pub fn release_by(&mut self, user: Option<u32>, name: &HoldName) -> Result<Hold, StoreError> {
        self.check_owner(user, name)?;
        self.release(name)
    }

    fn check_owner(&self, user: Option<u32>, name: &HoldName) -> Result<(), StoreError> {
        match self.holds.iter().find(|hold| hold.name == *name) {
            Some(hold) if hold.owner == Owner::Config => Err(StoreError::OfConfig(name.clone())),
            Some(hold) if user.is_some() && hold.owner.user() != user => {
                Err(StoreError::NotOwner(name.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Removes a hold.
    ///
    /// # Errors
    /// There is no hold of that name.
    pub fn release(&mut self, name: &HoldName) -> Result<Hold, StoreError> {
        self.drop_hold(name).ok_or_else(|| StoreError::Unknown(name.clone()))
    }

    /// Removes a hold, and forgets the places that were left to others because of it.
    fn drop_hold(&mut self, name: &HoldName) -> Option<Hold> {
        // If the hold is added again, every place is tried again.
        self.left.retain(|left| left.hold != *name);
        self.refused.retain(|refused| refused.hold != *name);
        let at = self.holds.iter().position(|hold| hold.name == *name)?;
        Some(self.holds.remove(at))
    }

    /// Removes the holds that have ended.
    pub fn expire(&mut self, now: Duration) -> Vec<HoldName> {
        self.release_where(|hold| hold.end.has_come(now))
    }

    /// Removes all holds, including the configuration's.
    pub fn clear(&mut self) -> usize {
        let count = self.holds.len();
        self.holds.clear();
        self.left.clear();
        self.refused.clear();
        self.failure = None;
        count
    }

    /// Returns the present facts for the holds' conditions.
    pub fn facts(&self, host: &dyn Host, now: LocalTime) -> Facts {
        let conditions = self.holds.iter().filter_map(|hold| hold.condition.as_ref());
        let mut facts = Facts::look(host, now, conditions);
        // Only the service sees how long something lasts. If it has ended, its observations are
        // outdated.
        if self.service.is_some() {
            facts.lasting.clone_from(&self.lasting);
        }
        facts
    }

    /// Returns whether there is no room for another hold.
    pub(crate) fn is_full(&self) -> bool {
        self.holds.len() >= MAX_HOLDS
    }

    /// Returns whether a service watches the machine of this directory.
    pub fn is_watched(state: &StateDir) -> bool {
        Presence::is_shown(state)
    }

    /// Returns why a hold is not in force now; `None` if it is.
    pub fn why_not_in_force(&self, hold: &Hold, facts: &Facts, now: Duration) -> Option<String> {
        let unmet = || hold.condition.as_ref().and_then(|condition| condition.unmet(facts));
        let refused = || self.refused.iter().find(|refused| refused.hold == hold.name);
        hold.end.because(now).or_else(unmet).or_else(|| refused().map(|refused| refused.why.clone()))
    }
}

/// Replaces the file, which every user may read. If the file system has no space for a second file,
/// overwrites the old one if it is long enough: releasing holds must not need space.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let is_full =
        |error: &io::Error| matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    match flyball_files::replace_with_mode(path, bytes, READABLE) {
        Err(error) if is_full(&error) => {
            let mut options = std::fs::File::options();
            let mut file = flyball_files::open_trusted(options.read(true).write(true), path)?;
            if file.metadata()?.len() < bytes.len() as u64 {
                return Err(error);
            }
            file.write_all(bytes)?;
            file.set_len(bytes.len() as u64)
        }
        result => result,
    }
}
