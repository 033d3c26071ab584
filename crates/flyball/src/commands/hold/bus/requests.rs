//! What the service does about each request, and when it refuses.

use flyball_bus::{Answer, Ask, Profile, Refusal, Why};
use flyball_control::{Setting, Snapshot, owners::owners, plan::plan, verify::verify};
use flyball_hold::{
    BringError, ChangeError, Changed, Effective, End, Hold, HoldName, Moment, OnDrift, OnExit, Owner,
    Service, Store, StoreError,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Bus, CHOSEN, PREFIX, change_holds, client_name};
use crate::{commands::hold::facts, time::seconds_since_1970};

/// Characters of an owner: an application names itself.
const MAX_OWNER: usize = 64;

fn json(data: &impl Serialize) -> Answer {
    serde_json::to_value(data).map_err(|error| Refusal::new(Why::Failed, error))
}

impl Bus<'_> {
    /// Does what is asked; with the holds after it, if they are others.
    pub(super) fn decide(
        &mut self,
        ask: Ask,
        service: &Service<'_>,
        moment: Moment,
    ) -> (Answer, Option<Store>) {
        let done = |result: Result<Store, Refusal>| match result {
            Ok(store) => (Ok(Value::Null), Some(store)),
            Err(refusal) => (Err(refusal), None),
        };
        match ask {
            // Both are answered before.
            Ask::Serving { .. } | Ask::Plan { .. } => (Ok(Value::Null), None),
            Ask::Choose { profile, user } => done(self.choose(profile, Owner::User(user))),
            Ask::Hold { cookie, profile, application, user } => {
                done(self.hold(cookie, profile, &application, user))
            }
            Ask::Release { cookie } => {
                // Also if another flyball has the machine now: the program is gone, so this cannot
                // fail.
                self.ending.push(cookie);
                (Ok(Value::Null), self.end_clients(moment))
            }
            Ask::Apply { name, settings, user } => self.apply(&name, settings, user),
            Ask::ReleaseNamed { name, user } => self.release(&name, user),
            Ask::Verify => (self.verify(service), None),
            Ask::Status => {
                let status = super::super::status_of(self.host, service.store());
                (json(&status), None)
            }
        }
    }

    /// Changes the holds.
    pub(super) fn change(
        &self,
        change: impl FnOnce(&mut Store) -> Result<(), StoreError>,
    ) -> Result<Store, Refusal> {
        self.changed(change).map(|changed| changed.store)
    }

    fn changed(&self, change: impl FnOnce(&mut Store) -> Result<(), StoreError>) -> Result<Changed, Refusal> {
        let changed = change_holds(self.host, &self.state, "flyball hold run", Moment::here(), change);
        changed.map_err(|error| {
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

    /// A user's choice: all holds of programs end, and the choice is held.
    pub(super) fn choose(&mut self, profile: Profile, owner: Owner) -> Result<Store, Refusal> {
        let hold = self.of_profile(CHOSEN.0.to_owned(), CHOSEN.1, profile, owner)?;
        let store = self.change(|store| {
            let programs: Vec<HoldName> = store.holds.iter().map(|hold| hold.name.clone()).collect();
            for name in programs.iter().filter(|name| name.as_str().starts_with(PREFIX)) {
                store.release(name)?;
            }
            store.add(hold)
        })?;
        self.clients.clear();
        self.orphans.clear();
        self.chosen = Some(profile);
        if let Some(kept) = &self.kept
            && let Err(error) = flyball_files::replace(kept, profile.as_str().as_bytes())
        {
            eprintln!("note: the choice of {profile} ends at the next boot: {}: {error}", kept.display());
        }
        Ok(store)
    }

    fn hold(
        &mut self,
        cookie: u32,
        profile: Profile,
        application: &str,
        user: u32,
    ) -> Result<Store, Refusal> {
        let priority = match profile {
            Profile::PowerSaver => CHOSEN.1 + 2,
            _ => CHOSEN.1 + 1,
        };
        let name = application.chars().filter(|c| !c.is_control()).take(MAX_OWNER).collect();
        let owner = Owner::Client { user, name };
        let mut hold = self.of_profile(client_name(cookie), priority, profile, owner)?;
        // The program's name on the bus is not known to the next service.
        hold.on_exit = OnExit::Release;
        let store = self.change(|store| store.add_by(by(user), hold))?;
        self.clients.insert(cookie, profile);
        self.orphans.remove(&cookie);
        Ok(store)
    }

    fn of_profile(
        &self,
        name: String,
        priority: u32,
        profile: Profile,
        owner: Owner,
    ) -> Result<Hold, Refusal> {
        let (flyball, settings) = self.profiles.get(&profile).ok_or_else(|| {
            Refusal::new(Why::Invalid, format!("{profile} is not available on this machine"))
        })?;
        Ok(Hold {
            name: name.parse().map_err(|error| Refusal::new(Why::Invalid, error))?,
            owner,
            priority,
            profile: Some(flyball.clone()),
            settings: settings.clone(),
            condition: None,
            end: End::default(),
            on_drift: OnDrift::default(),
            on_exit: OnExit::default(),
            since: seconds_since_1970(),
        })
    }

    fn apply(&self, name: &str, settings: Vec<Setting>, user: u32) -> (Answer, Option<Store>) {
        let applied = || -> Result<(Value, Store), Refusal> {
            let hold = Hold {
                name: name.parse().map_err(|error| Refusal::new(Why::Invalid, error))?,
                owner: Owner::User(user),
                priority: Hold::PRIORITY,
                profile: None,
                settings,
                condition: None,
                end: End::default(),
                on_drift: OnDrift::default(),
                on_exit: OnExit::default(),
                since: seconds_since_1970(),
            };
            // The desktop's own holds are changed by its own calls.
            if hold.name.as_str() == CHOSEN.0 || hold.name.as_str().starts_with(PREFIX) {
                return Err(Refusal::new(Why::Invalid, format!("the name '{name}' is the desktop's")));
            }
            // As `hold add`: alone, too, it must be possible. One that is possible only beside
            // another hold would stand in the way when that hold ends.
            let invalid = |error: &dyn std::fmt::Display| Refusal::new(Why::Invalid, error);
            let snapshot =
                Snapshot::for_intent(self.host, &hold.intent()).map_err(|error| invalid(&error))?;
            plan(&snapshot, &hold.intent()).map_err(|error| invalid(&error))?;
            let changed = self.changed(|store| store.add_by(by(user), hold.clone()))?;
            let brought = &changed.brought;
            let answer = json!({"hold": hold, "in_force": true, "because": null, "applied": brought.applied,
                                "restoration": brought.restored});
            Ok((answer, changed.store))
        };
        match applied() {
            Ok((answer, store)) => (Ok(answer), Some(store)),
            Err(refusal) => (Err(refusal), None),
        }
    }

    fn release(&self, name: &str, user: u32) -> (Answer, Option<Store>) {
        let released = || -> Result<Changed, Refusal> {
            let name: HoldName = name.parse().map_err(|error| Refusal::new(Why::Invalid, error))?;
            self.changed(|store| store.release_by(by(user), &name).map(drop))
        };
        match released() {
            Ok(changed) => {
                let brought = &changed.brought;
                let answer =
                    json!({"released": [name], "restoration": brought.restored, "applied": brought.applied});
                (Ok(answer), Some(changed.store))
            }
            Err(refusal) => (Err(refusal), None),
        }
    }

    /// Everything that is held, compared as `flyball verify` does.
    fn verify(&self, service: &Service<'_>) -> Answer {
        let store = service.store();
        let effective = Effective::of(&store.holds, &facts(self.host, store));
        let failed = |error: &dyn std::fmt::Display| Refusal::new(Why::Failed, error);
        let snapshot = Snapshot::for_intent(self.host, &effective.intent).map_err(|error| failed(&error))?;
        let mut verdict = verify(&snapshot, &effective.intent).map_err(|error| failed(&error))?;
        if !verdict.holds() {
            verdict.set_owners(owners(self.host));
        }
        json(&verdict)
    }
}

/// For whom the store is changed: `None` for root and the user of the service.
fn by(user: u32) -> Option<u32> {
    (user != 0 && user != flyball_process::user()).then_some(user)
}
