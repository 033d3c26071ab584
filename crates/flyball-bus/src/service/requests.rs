//! The service's handling of each request, including refusals.

use flyball_control::{Setting, Snapshot, owners::owners, verify::verify};
use flyball_hold::{
    BringError, ChangeError, Changed, Effective, Hold, HoldName, Moment, OnExit, Owner, Service, Store,
    StoreError, status,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Bus, BusNotice, CHOSEN, PREFIX, is_chosen};
use crate::{Answer, Ask, Profile, Refusal, Why, text::shown};

/// Limit on the characters of an owner, since an application chooses its own name.
const MAX_OWNER: usize = 64;

fn json(data: &impl Serialize) -> Answer {
    serde_json::to_value(data).map_err(|error| Refusal::new(Why::Failed, error))
}

/// Changes the holds.
pub(super) fn change(
    service: &mut Service<'_>,
    moment: Moment,
    change: impl FnOnce(&mut Store) -> Result<(), StoreError>,
) -> Result<Changed, Refusal> {
    service.change(moment, change).map_err(|error| {
        let why = match &error {
            ChangeError::Store(StoreError::TooMany | StoreError::TooManyOfUsers) => Why::TooMany,
            ChangeError::Store(StoreError::NotOwner(_)) => Why::Denied,
            ChangeError::Store(StoreError::Unknown(_) | StoreError::OfConfig(_))
            | ChangeError::Bring(BringError::Plan(_)) => Why::Invalid,
            _ => Why::Failed,
        };
        Refusal::new(why, error)
    })
}

fn invalid(error: impl std::fmt::Display) -> Refusal {
    Refusal::new(Why::Invalid, error)
}

impl Bus<'_> {
    /// Executes a request.
    pub(super) fn decide(&mut self, ask: Ask, service: &mut Service<'_>, moment: Moment) -> Answer {
        match ask {
            // Both have been answered already.
            Ask::Serving | Ask::Plan { .. } => Ok(Value::Null),
            Ask::Choose { profile, user } => {
                self.choose(profile, Owner::Desktop(Some(user)), service, moment).map(|()| Value::Null)
            }
            Ask::Hold { cookie, profile, application, user } => {
                let name = shown(&application, MAX_OWNER);
                let owner = Owner::Client { cookie, user, name };
                self.hold((cookie, user), profile, owner, service, moment).map(|()| Value::Null)
            }
            Ask::Release { cookie } => {
                // This cannot fail, even if another flyball has the lock: the program is gone.
                self.ending.push(cookie);
                self.end_clients(service, moment);
                Ok(Value::Null)
            }
            Ask::Apply { name, settings, user } => self.apply(&name, settings, user, service, moment),
            Ask::ReleaseNamed { name, user } => {
                let hold: HoldName = name.parse().map_err(invalid)?;
                let changed = change(service, moment, |store| store.release_by(by(user), &hold).map(drop))?;
                let brought = &changed.brought;
                Ok(json!({"released": [name], "restoration": brought.restored, "applied": brought.applied}))
            }
            Ask::Verify => self.verify(service, moment),
            Ask::Status => {
                let facts = service.store().facts(self.host, moment.local);
                json(&status(self.host, service.store(), &facts, moment.now))
            }
        }
    }

    /// Executes a user's choice: ends all holds of programs, and holds the chosen profile.
    pub(super) fn choose(
        &mut self,
        profile: Profile,
        owner: Owner,
        service: &mut Service<'_>,
        moment: Moment,
    ) -> Result<(), Refusal> {
        let mut hold = self.new_hold(CHOSEN.0.to_owned(), CHOSEN.1, profile, owner, moment)?;
        change(service, moment, |store| {
            hold.name = store.name_for(&hold.name, is_chosen);
            store.release_where(|hold| hold.owner.cookie().is_some());
            store.add(hold)
        })?;
        self.clients.clear();
        self.orphans.clear();
        self.chosen = Some(profile);
        if let Some(path) = self.choice()
            && let Err(error) = flyball_files::replace(&path, profile.as_str().as_bytes())
        {
            self.notices.push(BusNotice::NotKept { profile, path, error });
        }
        Ok(())
    }

    fn hold(
        &mut self,
        (cookie, user): (u32, u32),
        profile: Profile,
        owner: Owner,
        service: &mut Service<'_>,
        moment: Moment,
    ) -> Result<(), Refusal> {
        let priority = match profile {
            Profile::PowerSaver => CHOSEN.1 + 2,
            _ => CHOSEN.1 + 1,
        };
        let mut hold = self.new_hold(format!("{PREFIX}{cookie}"), priority, profile, owner, moment)?;
        // The next service does not know the program's name on the bus.
        hold.on_exit = OnExit::Release;
        change(service, moment, |store| {
            hold.name = store.name_for(&hold.name, |owner| owner.cookie() == Some(cookie));
            store.add_by(by(user), hold)
        })?;
        self.clients.insert(cookie, profile);
        self.orphans.remove(&cookie);
        Ok(())
    }

    fn new_hold(
        &self,
        name: String,
        priority: u32,
        profile: Profile,
        owner: Owner,
        moment: Moment,
    ) -> Result<Hold, Refusal> {
        let (flyball, settings) = self
            .profiles
            .get(&profile)
            .ok_or_else(|| invalid(format_args!("{profile} is not available on this machine")))?;
        let name = name.parse().map_err(invalid)?;
        let hold = Hold::new(name, owner, settings.clone(), moment.unix);
        Ok(Hold { priority, profile: Some(flyball.clone()), ..hold })
    }

    fn apply(
        &self,
        name: &str,
        settings: Vec<Setting>,
        user: u32,
        service: &mut Service<'_>,
        moment: Moment,
    ) -> Answer {
        let hold = Hold::new(name.parse().map_err(invalid)?, Owner::User(user), settings, moment.unix);
        // This only avoids confusion: a hold is identified by its owner, not its name.
        if hold.name.as_str() == CHOSEN.0 || hold.name.as_str().starts_with(PREFIX) {
            return Err(invalid(format_args!("the name '{name}' is the desktop's")));
        }
        let changed = change(service, moment, |store| store.add_by(by(user), hold.clone()))?;
        let brought = &changed.brought;
        Ok(json!({"hold": hold, "in_force": true, "because": null, "applied": brought.applied,
                  "restoration": brought.restored}))
    }

    /// Compares everything that is held, as `flyball verify` does.
    fn verify(&self, service: &Service<'_>, moment: Moment) -> Answer {
        let store = service.store();
        let effective = Effective::new(&store.holds, &store.facts(self.host, moment.local));
        let failed = |error: &dyn std::fmt::Display| Refusal::new(Why::Failed, error);
        let snapshot = Snapshot::for_intent(self.host, &effective.intent).map_err(|error| failed(&error))?;
        let mut verdict = verify(&snapshot, &effective.intent).map_err(|error| failed(&error))?;
        if !verdict.holds() {
            verdict.set_owners(owners(self.host));
        }
        json(&verdict)
    }
}

/// Returns the user for changes of the store: `None` for root and the service's user.
pub(super) fn by(user: u32) -> Option<u32> {
    (user != 0 && user != flyball_process::user()).then_some(user)
}
