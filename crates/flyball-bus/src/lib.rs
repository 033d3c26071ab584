//! The D-Bus side of `flyball hold run`: the desktop's power profiles
//! (`org.freedesktop.UPower.PowerProfiles` and the older `net.hadess.PowerProfiles`), and
//! `org.flyball.Control1`.
//!
//! [`serve`] runs in a separate process that can write nothing. It reads messages of any program on
//! the bus, asks polkit whether the caller is permitted, and sends the request as a line of
//! [`Request`] to the service, which decides. The service answers with lines of [`Tell`]. Neither
//! side parses more than [`MAX_REQUESTED`] or [`MAX_REPORTED`] bytes of a line.

mod access;
mod control;
mod desktop;
mod link;
mod mailbox;
mod message;
mod server;
mod service;
mod text;

pub use self::{
    message::{
        Answer, Ask, Degraded, Drifted, HeldName, MAX_REPORTED, MAX_REQUESTED, Offered, Profile, Refusal,
        Request, State, Tell, Why, read_line, write_line,
    },
    server::{Options, serve},
    service::{Bus, BusNotice, BusOptions},
};
