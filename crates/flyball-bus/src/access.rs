//! Callers: what each may do, which polkit decides as for every service of a desktop, and when a
//! caller has ended.

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

/// Kinds of calls, each a polkit action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Choose a power profile.
    SwitchProfile,
    /// Hold a power profile while a program runs, or release it.
    HoldProfile,
    /// Read: plan, verify, status.
    Read,
    /// Add and release holds with arbitrary settings.
    Hold,
}

impl Action {
    pub(crate) fn id(self) -> &'static str {
        match self {
            // Use the names of power-profiles-daemon, because administrators have rules for them.
            Action::SwitchProfile => "org.freedesktop.UPower.PowerProfiles.switch-profile",
            Action::HoldProfile => "org.freedesktop.UPower.PowerProfiles.hold-profile",
            Action::Read => "org.flyball.read",
            Action::Hold => "org.flyball.hold",
        }
    }
}

/// Returns the user of a caller.
pub(crate) async fn user(connection: &Connection, sender: &str) -> Result<u32, Refusal> {
    let bus = "org.freedesktop.DBus";
    let reply = connection
        .call_method(Some(bus), "/org/freedesktop/DBus", Some(bus), "GetConnectionUnixUser", &(sender,))
        .await;
    reply
        .and_then(|reply| reply.body().deserialize::<u32>())
        .map_err(|error| Refusal::new(Why::Denied, format!("the caller is not known: {error}")))
}

/// Refuses a call that the caller may not make. Root and the user that the service runs as may make
/// all calls.
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
    // polkit's documentation: a caller that can show a dialogue sets this flag in the call's
    // header.
    let interactive = header.primary().flags().contains(Flags::ALLOW_INTERACTIVE_AUTH);
    // A dialogue can wait minutes for a password, and the bus limits the pending answers of this
    // process. So ask without a dialogue first.
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
    // Without polkit all other users are refused, with this reason.
    let refused = |error| Refusal::new(Why::Denied, format!("polkit does not answer: {error}"));
    answer.map(|(is_allowed, needs_dialogue, _)| (is_allowed, needs_dialogue)).map_err(refused)
}

/// Returns the sender's unique name, which the bus adds to every message.
pub(crate) fn sender_of(header: &Header<'_>) -> Result<String, Refusal> {
    let sender = header.sender().map(|sender| sender.as_str().to_owned());
    sender.ok_or_else(|| Refusal::new(Why::Denied, "a call without a sender"))
}

/// Converts a refusal to a D-Bus error.
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

/// Subscribes to the end of a caller, by this name alone: a subscription to all names would wake
/// this process whenever a program ends. The bus limits the subscriptions of a connection. This one
/// ends with the returned value.
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
        // The caller may have ended before the subscription.
        let has_owner = ("/org/freedesktop/DBus", "NameHasOwner");
        let reply = connection.call_method(Some(bus), has_owner.0, Some(bus), has_owner.1, &(name,)).await?;
        Ok(reply.body().deserialize::<bool>()?.then_some(stream))
    }
    .await;
    let refused = |error| Refusal::new(Why::TooMany, format!("the caller's end cannot be watched: {error}"));
    subscribed.map_err(refused)?.ok_or_else(|| Refusal::new(Why::Denied, "the caller has ended"))
}

/// Waits for the end of the caller given to [`end_of`], or of the bus. Returns whether it was the
/// caller's.
pub(crate) async fn has_ended(mut stream: MessageStream) -> bool {
    // A unique name is never reused, so the first signal means the end.
    matches!(poll_fn(|context| Pin::new(&mut stream).poll_next(context)).await, Some(Ok(_)))
}
