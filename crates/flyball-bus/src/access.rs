//! Callers: who may do what, which polkit decides as for every service of a desktop, and when one
//! is gone.

use std::{collections::HashMap, future::poll_fn, pin::Pin};

use zbus::{
    Connection, MatchRule, MessageStream, Variant,
    export::futures_core::Stream as _,
    message::{Flags, Header, Type},
};

use crate::{
    link::{Link, Question},
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
    // polkit's documentation: a caller that can show a dialogue says so in the call's header.
    let interactive = header.primary().flags().contains(Flags::ALLOW_INTERACTIVE_AUTH);
    // A dialogue can wait minutes for a password, and the bus limits how many answers this process
    // may wait for. So it asks without one first.
    let needs_dialogue = match ask_polkit(link, connection, (user, &sender), action, Question::Quick).await? {
        (true, _) => return Ok(user),
        (false, needs_dialogue) => needs_dialogue,
    };
    if interactive && needs_dialogue {
        let dialogue = ask_polkit(link, connection, (user, &sender), action, Question::Dialogue).await?;
        if let (true, _) = dialogue {
            return Ok(user);
        }
    }
    Err(Refusal::new(Why::Denied, format!("not authorized: {}", action.id())))
}

/// Asks polkit whether the caller may make this call. Returns the answer, and whether a dialogue
/// could allow it.
async fn ask_polkit(
    link: &Link,
    connection: &Connection,
    (user, sender): (u32, &str),
    action: Action,
    question: Question,
) -> Result<(bool, bool), Refusal> {
    let _check = link.begin_check(user, question)?;
    let subject = ("system-bus-name", HashMap::from([("name", Variant::from(sender))]));
    let details: HashMap<&str, &str> = HashMap::new();
    let flags = u32::from(question == Question::Dialogue);
    let reply = connection
        .call_method(
            Some("org.freedesktop.PolicyKit1"),
            "/org/freedesktop/PolicyKit1/Authority",
            Some("org.freedesktop.PolicyKit1.Authority"),
            "CheckAuthorization",
            &(subject, action.id(), details, flags, ""),
        )
        .await;
    let answer = reply.and_then(|reply| reply.body().deserialize::<(bool, bool, HashMap<String, String>)>());
    // Without polkit no other user may, and the caller is given the reason.
    let refused = |error| Refusal::new(Why::Denied, format!("polkit does not answer: {error}"));
    answer.map(|(is_allowed, needs_dialogue, _)| (is_allowed, needs_dialogue)).map_err(refused)
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
