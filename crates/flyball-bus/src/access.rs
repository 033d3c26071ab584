//! Callers: who may do what, which polkit decides as for every service of a desktop, and when one
//! is gone.

use std::{collections::HashMap, future::poll_fn, pin::Pin};

use zbus::{
    Connection, MatchRule, MessageStream, Variant,
    export::futures_core::Stream as _,
    message::{Flags, Header, Type},
};

use crate::{
    link::Link,
    message::{Refusal, Why},
    text::{MAX_SENTENCE, sendable},
};

/// Kinds of change, each a polkit action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Choose a power profile.
    SwitchProfile,
    /// Hold a power profile while a program runs, or release it.
    HoldProfile,
    /// Look: plan, verify, status.
    Read,
    /// Add and release holds with settings of one's own.
    Hold,
}

impl Action {
    pub(crate) fn id(self) -> &'static str {
        match self {
            // The names of power-profiles-daemon, because administrators have rules for them.
            Action::SwitchProfile => "org.freedesktop.UPower.PowerProfiles.switch-profile",
            Action::HoldProfile => "org.freedesktop.UPower.PowerProfiles.hold-profile",
            Action::Read => "org.flyball.read",
            Action::Hold => "org.flyball.hold",
        }
    }
}

/// The user of a caller.
pub(crate) async fn user(connection: &Connection, sender: &str) -> Result<u32, Refusal> {
    let bus = "org.freedesktop.DBus";
    let reply = connection
        .call_method(Some(bus), "/org/freedesktop/DBus", Some(bus), "GetConnectionUnixUser", &(sender,))
        .await;
    reply
        .and_then(|reply| reply.body().deserialize::<u32>())
        .map_err(|error| Refusal::new(Why::Denied, format!("the caller is not known: {error}")))
}

/// Refuses what the caller may not do. Root and the user that the service runs as may do
/// everything.
pub(crate) async fn check(
    link: &Link,
    connection: &Connection,
    header: &Header<'_>,
    action: Action,
) -> Result<u32, Refusal> {
    let sender = sender_of(header)?;
    let user = user(connection, &sender).await?;
    if !link.is_bounded(user) {
        return Ok(user);
    }
    // A question can wait minutes for a password, and the bus limits how many this process may have
    // open.
    let _check = link.begin_check(user)?;
    // polkit's documentation: a caller that can show a dialogue says so in the call's header.
    let interactive = header.primary().flags().contains(Flags::ALLOW_INTERACTIVE_AUTH);
    let subject = ("system-bus-name", HashMap::from([("name", Variant::from(sender.as_str()))]));
    let details: HashMap<&str, &str> = HashMap::new();
    let reply = connection
        .call_method(
            Some("org.freedesktop.PolicyKit1"),
            "/org/freedesktop/PolicyKit1/Authority",
            Some("org.freedesktop.PolicyKit1.Authority"),
            "CheckAuthorization",
            &(subject, action.id(), details, u32::from(interactive), ""),
        )
        .await;
    let allowed = reply.and_then(|reply| reply.body().deserialize::<(bool, bool, HashMap<String, String>)>());
    match allowed {
        Ok((true, ..)) => Ok(user),
        Ok(_) => Err(Refusal::new(Why::Denied, format!("not authorized: {}", action.id()))),
        // Without polkit no other user may, and the caller is given the reason.
        Err(error) => Err(Refusal::new(Why::Denied, format!("polkit does not answer: {error}"))),
    }
}

/// The sender's unique name, which the bus adds to every message.
pub(crate) fn sender_of(header: &Header<'_>) -> Result<String, Refusal> {
    let sender = header.sender().map(|sender| sender.as_str().to_owned());
    sender.ok_or_else(|| Refusal::new(Why::Denied, "a call without a sender"))
}

/// A refusal as an error of D-Bus.
pub(crate) fn refused(refusal: Refusal) -> zbus::fdo::Error {
    let Refusal { why, sentence } = refusal;
    let sentence = sendable(&sentence, MAX_SENTENCE);
    match why {
        Why::Invalid => zbus::fdo::Error::InvalidArgs(sentence),
        Why::Denied => zbus::fdo::Error::AccessDenied(sentence),
        Why::TooMany => zbus::fdo::Error::LimitsExceeded(sentence),
        Why::Failed => zbus::fdo::Error::Failed(sentence),
    }
}

/// Subscribes to the end of a caller, for this name alone: a subscription to all names would wake
/// this process for every program that ends. The bus bounds the subscriptions of a connection; this
/// one ends with the value.
pub(crate) async fn end_of(connection: &Connection, name: &str) -> Result<MessageStream, Refusal> {
    let bus = "org.freedesktop.DBus";
    let subscribed: zbus::Result<_> = async {
        let rule = MatchRule::builder()
            .msg_type(Type::Signal)
            .sender(bus)
            .interface(bus)
            .member("NameOwnerChanged")
            .arg(0, name)
            .arg(2, "")
            .build()?;
        let stream = MessageStream::for_match_rule(rule, connection, None).await?;
        // It may have ended before the subscription.
        let has_owner = ("/org/freedesktop/DBus", "NameHasOwner");
        let reply = connection.call_method(Some(bus), has_owner.0, Some(bus), has_owner.1, &(name,)).await?;
        Ok(reply.body().deserialize::<bool>()?.then_some(stream))
    }
    .await;
    let refused = |error| Refusal::new(Why::TooMany, format!("the caller's end cannot be watched: {error}"));
    subscribed.map_err(refused)?.ok_or_else(|| Refusal::new(Why::Denied, "the caller has ended"))
}

/// Waits for the end of what [`end_of`] subscribed to, or of the bus; which of both.
pub(crate) async fn has_ended(mut stream: MessageStream) -> bool {
    // A unique name is never used again: the first signal is the end.
    matches!(poll_fn(|context| Pin::new(&mut stream).poll_next(context)).await, Some(Ok(_)))
}
