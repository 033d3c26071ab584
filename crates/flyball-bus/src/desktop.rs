//! The desktop's power profiles, under both names that desktops use. The members, their types and
//! their meaning are those of power-profiles-daemon 0.30, which this replaces.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;
use zbus::{
    Connection, MessageStream, OwnedVariant, Str,
    fdo::{Error, Result},
    interface,
    message::Header,
    object_server::SignalEmitter,
    runtime::traits::TaskHandle,
};

use crate::{
    access::{Action, check, end_of, has_ended, refused, sender_of},
    link::{Link, News},
    message::{Ask, Profile, Refusal, State, Why},
    text::{MAX_SENTENCE, sendable, shown},
};

/// Limit on holds of one user other than root, including those that the service has not accepted
/// yet. The service limits the holds of all users.
const MAX_PER_USER: usize = 16;

/// Limit on the bytes of a reason or of an application's name.
const MAX_TEXT: usize = 1024;

/// Limit on holds of all users other than root in this process. Each may have a subscription to its
/// program's end, and the buses allow 512 in all.
const MAX_OF_USERS: usize = 256;

/// Which of the two names a call used. Signals use the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Face {
    UPower,
    Hadess,
}

/// A program's hold.
pub(crate) struct DesktopHold {
    pub(crate) sender: String,
    user: u32,
    pub(crate) face: Face,
    profile: Profile,
    reason: String,
    application: String,
    /// True until the service has answered.
    pending: bool,
    /// The task that waits for the program's end. Dropping it with the hold ends the subscription.
    watch: Option<Box<dyn TaskHandle<()>>>,
}

#[derive(Default)]
struct Inner {
    state: State,
    held: BTreeMap<u32, DesktopHold>,
    /// The holds that the property showed when it last changed.
    shown: Vec<u32>,
    cookie: u32,
    battery_aware: bool,
}

/// The state that both interfaces share.
pub(crate) struct Desktop {
    link: Arc<Link>,
    inner: Mutex<Inner>,
}

type Dict = HashMap<&'static str, OwnedVariant>;

fn text(text: &str) -> OwnedVariant {
    OwnedVariant::from(Str::from(sendable(text, MAX_SENTENCE)))
}

impl Desktop {
    pub(crate) fn new(link: Arc<Link>) -> Arc<Desktop> {
        Arc::new(Desktop { link, inner: Mutex::default() })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self) -> State {
        self.inner().state.clone()
    }

    /// Stores a new state. Returns the old state, and the holds that the service has ended.
    pub(crate) fn take(&self, state: State) -> (State, BTreeMap<u32, DesktopHold>) {
        let mut inner = self.inner();
        let before = std::mem::replace(&mut inner.state, state);
        let Inner { state, held, .. } = &mut *inner;
        let is_gone = |(cookie, hold): &(u32, DesktopHold)| !hold.pending && !state.cookies.contains(cookie);
        let (gone, kept) = std::mem::take(held).into_iter().partition(is_gone);
        *held = kept;
        (before, gone)
    }

    fn active(&self) -> String {
        self.inner().state.active.unwrap_or(Profile::Balanced).to_string()
    }

    fn profiles(&self) -> Vec<Dict> {
        let inner = self.inner();
        let one = |offered: &crate::Offered| {
            HashMap::from([
                ("Profile", text(offered.profile.as_str())),
                // `powerprofilesctl list` of 0.12 fails without `Driver`.
                ("Driver", text(&offered.driver)),
                ("CpuDriver", text(&offered.driver)),
            ])
        };
        inner.state.profiles.iter().map(one).collect()
    }

    fn holds(&self) -> Vec<Dict> {
        let inner = self.inner();
        let known = inner.held.values().filter(|held| !held.pending);
        let one = |held: &DesktopHold| {
            HashMap::from([
                ("ApplicationId", text(&held.application)),
                ("Profile", text(held.profile.as_str())),
                ("Reason", text(&held.reason)),
            ])
        };
        known.map(one).collect()
    }

    fn profile(&self, name: &str) -> std::result::Result<Profile, Refusal> {
        let invalid = || Refusal::new(Why::Invalid, format!("'{}' is not a power profile", shown(name, 40)));
        let profile: Profile = name.parse().map_err(|()| invalid())?;
        let offered = self.inner().state.profiles.iter().any(|offered| offered.profile == profile);
        offered
            .then_some(profile)
            .ok_or_else(|| Refusal::new(Why::Invalid, format!("{profile} is not available on this machine")))
    }

    async fn choose(
        &self,
        connection: &Connection,
        header: Option<Header<'_>>,
        name: &str,
    ) -> std::result::Result<(), Refusal> {
        let header = header.ok_or_else(|| Refusal::new(Why::Denied, "not a call"))?;
        let user = check(&self.link, connection, &header, Action::SwitchProfile).await?;
        let profile = self.profile(name)?;
        self.link.ask(Some(user), Ask::Choose { profile, user }).await.map(drop)
    }

    async fn hold(
        self: &Arc<Desktop>,
        connection: &Connection,
        header: &Header<'_>,
        face: Face,
        (name, reason, application): (&str, &str, &str),
    ) -> std::result::Result<u32, Refusal> {
        let invalid = |sentence: &str| Refusal::new(Why::Invalid, sentence);
        let user = check(&self.link, connection, header, Action::HoldProfile).await?;
        let profile = self.profile(name)?;
        if profile == Profile::Balanced {
            return Err(invalid("only power-saver and performance can be held"));
        }
        if reason.len() > MAX_TEXT || application.len() > MAX_TEXT {
            return Err(invalid("the reason or the application's name is too long"));
        }
        let sender = sender_of(header)?;
        let cookie = {
            let mut inner = self.inner();
            let of_user = inner.held.values().filter(|held| held.user == user).count();
            let of_users = inner.held.values().filter(|held| self.link.is_bounded(held.user)).count();
            if self.link.is_bounded(user) && (of_user >= MAX_PER_USER || of_users >= MAX_OF_USERS) {
                return Err(Refusal::new(Why::TooMany, "there are too many holds; release one first"));
            }
            loop {
                inner.cookie = inner.cookie.checked_add(1).unwrap_or(1);
                // Cookies of an earlier process that spoke D-Bus remain valid for a while.
                let is_taken = inner.state.cookies.contains(&inner.cookie);
                if !inner.held.contains_key(&inner.cookie) && !is_taken {
                    break;
                }
            }
            let held = DesktopHold {
                sender: sender.clone(),
                user,
                face,
                profile,
                reason: reason.to_owned(),
                application: application.to_owned(),
                pending: true,
                watch: None,
            };
            let cookie = inner.cookie;
            inner.held.insert(cookie, held);
            cookie
        };
        // Subscribe first: a program that cannot be watched must not hold anything.
        let ask = async {
            let end = end_of(connection, &sender).await?;
            let application = application.to_owned();
            self.link.ask(Some(user), Ask::Hold { cookie, profile, application, user }).await.map(|_| end)
        };
        match ask.await {
            Ok(end) => {
                let vanishes = vanishes(end, cookie, Arc::clone(self));
                let watch = connection.spawn("caller", vanishes);
                if let Some(held) = self.inner().held.get_mut(&cookie) {
                    held.pending = false;
                    held.watch = Some(Box::new(watch));
                }
            }
            Err(refusal) => {
                self.inner().held.remove(&cookie);
                return Err(refusal);
            }
        }
        // A choice may have ended the hold before this task learnt of it, so compare with the last
        // state again.
        self.link.news.put(News::Look);
        Ok(cookie)
    }

    async fn release(&self, header: &Header<'_>, cookie: u32) -> std::result::Result<(), Refusal> {
        let sender = sender_of(header)?;
        {
            let mut inner = self.inner();
            // Release only the caller's own holds: a cookie is a small number that anyone can
            // guess.
            let own = inner.held.get(&cookie).is_some_and(|held| held.sender == sender && !held.pending);
            if !own {
                return Err(Refusal::new(Why::Invalid, format!("no hold has the cookie {cookie}")));
            }
            inner.held.remove(&cookie);
        }
        self.link.ask(None, Ask::Release { cookie }).await.map(drop)
    }

    /// Returns whether the list of holds has changed since the last call.
    pub(crate) fn holds_changed(&self) -> bool {
        let mut inner = self.inner();
        let known = inner.held.iter().filter(|(_, held)| !held.pending).map(|(cookie, _)| *cookie);
        let now: Vec<u32> = known.collect();
        let before = std::mem::replace(&mut inner.shown, now);
        before != inner.shown
    }
}

/// Ends a hold when its program ends. Without a bus, the service decides how long holds last.
async fn vanishes(end: MessageStream, cookie: u32, desktop: Arc<Desktop>) {
    if has_ended(end).await {
        // Keep the hold until the end of this function: it contains the handle of this task, which
        // ends with it.
        let _held = desktop.inner().held.remove(&cookie);
        // The service retries by itself.
        let _ = desktop.link.ask(None, Ask::Release { cookie }).await;
    }
}

/// Both faces have these members. The newer face has additional ones.
macro_rules! face {
    ($name:ident, $interface:tt, $face:expr, { $($more:tt)* }) => {
        pub(crate) struct $name(pub(crate) Arc<Desktop>);

        #[interface(name = $interface)]
        impl $name {
            #[zbus(out_args("cookie"))]
            async fn hold_profile(
                &self,
                #[zbus(connection)] connection: &Connection,
                #[zbus(header)] header: Header<'_>,
                profile: &str,
                reason: &str,
                application_id: &str,
            ) -> Result<u32> {
                let asked = (profile, reason, application_id);
                self.0.hold(connection, &header, $face, asked).await.map_err(refused)
            }

            async fn release_profile(&self, #[zbus(header)] header: Header<'_>, cookie: u32) -> Result<()> {
                self.0.release(&header, cookie).await.map_err(refused)
            }

            #[zbus(signal)]
            pub(crate) async fn profile_released(emitter: &SignalEmitter<'_>, cookie: u32) -> zbus::Result<()>;

            #[zbus(property)]
            fn active_profile(&self) -> String {
                self.0.active()
            }

            #[zbus(property)]
            async fn set_active_profile(
                &self,
                profile: String,
                #[zbus(connection)] connection: &Connection,
                #[zbus(header)] header: Option<Header<'_>>,
            ) -> Result<()> {
                self.0.choose(connection, header, &profile).await.map_err(refused)
            }

            /// Deprecated; always empty.
            #[zbus(property)]
            fn performance_inhibited(&self) -> &str {
                ""
            }

            #[zbus(property)]
            fn performance_degraded(&self) -> &str {
                self.0.inner().state.degraded.as_str()
            }

            #[zbus(property)]
            fn profiles(&self) -> Vec<Dict> {
                self.0.profiles()
            }

            #[zbus(property)]
            fn actions(&self) -> Vec<String> {
                Vec::new()
            }

            #[zbus(property)]
            fn active_profile_holds(&self) -> Vec<Dict> {
                self.0.holds()
            }

            /// The version of the interface, not of flyball.
            #[zbus(property)]
            fn version(&self) -> &str {
                "0.30"
            }

            $($more)*
        }
    };
}

face!(Hadess, "net.hadess.PowerProfiles", Face::Hadess, {});

face!(UPower, "org.freedesktop.UPower.PowerProfiles", Face::UPower, {
    fn set_action_enabled(&self, action: &str, enabled: bool) -> Result<()> {
        // No action exists.
        let _ = enabled;
        Err(Error::NotSupported(format!("there is no action '{}'", shown(action, 40))))
    }

    #[zbus(property)]
    fn actions_info(&self) -> Vec<Dict> {
        Vec::new()
    }

    /// Whether a battery changes a profile's settings. hold.toml does that here, so this is false.
    #[zbus(property)]
    fn battery_aware(&self) -> bool {
        self.0.inner().battery_aware
    }

    #[zbus(property)]
    async fn set_battery_aware(
        &self,
        aware: bool,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Option<Header<'_>>,
    ) -> Result<()> {
        let header = header.ok_or_else(|| Error::AccessDenied("not a call".to_owned()))?;
        check(&self.0.link, connection, &header, Action::SwitchProfile).await.map_err(refused)?;
        self.0.inner().battery_aware = aware;
        Ok(())
    }
});

impl Desktop {
    /// The service answers `null`, which nobody reads.
    pub(crate) async fn serving(&self) -> std::result::Result<Value, Refusal> {
        self.link.ask(None, Ask::Serving).await
    }
}
