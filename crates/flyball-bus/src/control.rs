//! flyball's own interface. Its answers are the command line's JSON, so there is only one schema.

#![allow(clippy::too_many_arguments, reason = "those of the signal, also in the trait that the macro makes")]

use std::{collections::HashMap, sync::Arc};

use flyball_control::{Setting, profile::Profile};
use zbus::{
    Connection, OwnedVariant, Str, fdo::Result, interface, message::Header, object_server::SignalEmitter,
};

use crate::{
    access::{Action, check, refused},
    desktop::Desktop,
    link::Link,
    message::{Ask, MAX_REPORTED, Refusal, Why},
    text::{MAX_SENTENCE, sendable},
};

/// Limit on the bytes of a client's profile.
const MAX_PROFILE: usize = 64 << 10;

pub(crate) struct Control {
    pub(crate) link: Arc<Link>,
    pub(crate) desktop: Arc<Desktop>,
}

impl Control {
    fn settings(&self, profile: &str) -> std::result::Result<Vec<Setting>, Refusal> {
        if profile.len() > MAX_PROFILE {
            return Err(Refusal::new(Why::Invalid, format!("a profile has at most {MAX_PROFILE} bytes")));
        }
        let profile = Profile::parse(profile.as_bytes(), "profile");
        profile.map(|profile| profile.intent.settings).map_err(|error| Refusal::new(Why::Invalid, error))
    }

    async fn ask(&self, user: u32, ask: Ask) -> Result<String> {
        let answer = self.link.ask(Some(user), ask).await.map_err(refused)?;
        // JSON escapes control characters. A truncated answer would not be JSON.
        Ok(sendable(&answer.to_string(), MAX_REPORTED as usize))
    }
}

#[interface(name = "org.flyball.Control1")]
impl Control {
    /// Returns the changes that a profile would make. Writes nothing.
    #[zbus(out_args("plan"))]
    async fn plan(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        profile: &str,
    ) -> Result<String> {
        let user = check(&self.link, connection, &header, Action::Read).await.map_err(refused)?;
        let settings = self.settings(profile).map_err(refused)?;
        self.ask(user, Ask::Plan { settings, user }).await
    }

    /// Holds a profile under a name.
    #[zbus(out_args("result"))]
    async fn apply(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        profile: &str,
        hold: &str,
    ) -> Result<String> {
        // Check first, here and below, so that callers without permission cost nothing.
        let user = check(&self.link, connection, &header, Action::Hold).await.map_err(refused)?;
        let settings = self.settings(profile).map_err(refused)?;
        self.ask(user, Ask::Apply { name: hold.to_owned(), settings, user }).await
    }

    #[zbus(out_args("result"))]
    async fn release(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        hold: &str,
    ) -> Result<String> {
        let user = check(&self.link, connection, &header, Action::Hold).await.map_err(refused)?;
        self.ask(user, Ask::ReleaseNamed { name: hold.to_owned(), user }).await
    }

    /// Compares everything that is held.
    #[zbus(out_args("result"))]
    async fn verify(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<String> {
        let user = check(&self.link, connection, &header, Action::Read).await.map_err(refused)?;
        self.ask(user, Ask::Verify).await
    }

    #[zbus(out_args("status"))]
    async fn status(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<String> {
        let user = check(&self.link, connection, &header, Action::Read).await.map_err(refused)?;
        self.ask(user, Ask::Status).await
    }

    #[zbus(property)]
    fn holds(&self) -> Vec<HashMap<&'static str, OwnedVariant>> {
        let text = |text: &str| OwnedVariant::from(Str::from(sendable(text, MAX_SENTENCE)));
        let holds = self.desktop.state().holds.into_iter();
        let one = |hold: crate::HeldName| {
            HashMap::from([
                ("Name", text(&hold.name)),
                ("Owner", text(&hold.owner)),
                ("Priority", OwnedVariant::from(hold.priority)),
                ("InForce", OwnedVariant::from(hold.in_force)),
            ])
        };
        holds.map(one).collect()
    }

    /// The knobs that are left although a hold wants another value.
    #[zbus(property)]
    fn drifted(&self) -> Vec<String> {
        self.desktop.state().drifted.iter().map(|knob| sendable(knob, MAX_SENTENCE)).collect()
    }

    /// Something else changed a setting. `action` is the service's reaction.
    #[zbus(signal)]
    pub(crate) async fn changed(
        emitter: &SignalEmitter<'_>,
        knob: &str,
        cpus: &str,
        was: &str,
        is: &str,
        by: &str,
        pid: u32,
        action: &str,
    ) -> zbus::Result<()>;
}
