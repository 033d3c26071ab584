//! Serves the interfaces until the bus or the service is gone.

use std::{os::unix::net::UnixStream, sync::Arc};

use zbus::{
    Connection,
    conn::Builder,
    fdo::{RequestNameFlags, RequestNameReply},
    object_server::SignalEmitter,
    runtime::traits::TaskHandle as _,
};

use crate::{
    control::Control,
    desktop::{Desktop, DesktopHold, Face, Hadess, UPower},
    link::{Link, News},
    message::{State, Tell},
    text::{MAX_SENTENCE, sendable},
};

const CONTROL: (&str, &str) = ("org.flyball.Control1", "/org/flyball/Control1");
const UPOWER: (&str, &str) =
    ("org.freedesktop.UPower.PowerProfiles", "/org/freedesktop/UPower/PowerProfiles");
const HADESS: (&str, &str) = ("net.hadess.PowerProfiles", "/net/hadess/PowerProfiles");

/// Returns the names to serve, with or without the desktop's.
pub(crate) fn names(desktop: bool) -> &'static [&'static str] {
    const NAMES: &[&str] = &[CONTROL.0, UPOWER.0, HADESS.0];
    if desktop { NAMES } else { &NAMES[..1] }
}

/// The interfaces to serve, and the users of both processes.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Whether to serve the desktop's names too.
    pub desktop: bool,
    /// The user that the service runs as.
    pub service_user: u32,
    /// The user that this process runs as, by which the bus knows the connection.
    pub own_user: u32,
}

/// Serves the interfaces on a connected bus. If the service ends, this ends the process
/// immediately, even if it is waiting for an answer from the service or the bus.
///
/// # Errors
/// A sentence: the bus refuses or is gone, or another program owns a name.
pub fn serve(bus: UnixStream, service: UnixStream, options: Options) -> Result<(), String> {
    let link = Link::start(service, options.service_user, || std::process::exit(0))
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    zbus::block_on(run(bus, link, options))
}

async fn run(bus: UnixStream, link: Arc<Link>, options: Options) -> Result<(), String> {
    let desktop = Desktop::new(Arc::clone(&link));
    // Wait for the first state: the properties must be readable before a name is taken.
    if let News::Tell(Tell::State(state)) = link.news.take().await {
        desktop.take(state);
    }
    let failed = |error: zbus::Error| format!("D-Bus: {error}");
    let control = Control { link: Arc::clone(&link), desktop: Arc::clone(&desktop) };
    let mut builder = Builder::unix_stream(bus).user_id(options.own_user).serve_at(CONTROL.1, control);
    if options.desktop {
        builder = builder.serve_at(UPOWER.1, UPower(Arc::clone(&desktop)));
        builder = builder.serve_at(HADESS.1, Hadess(Arc::clone(&desktop)));
    }
    let connection = builder.build().await.map_err(failed)?;
    for name in names(options.desktop) {
        let flags = RequestNameFlags::DO_NOT_QUEUE;
        let reply = connection.request_name_with_flags(*name, flags).await;
        match reply {
            Ok(RequestNameReply::PrimaryOwner | RequestNameReply::AlreadyOwner) => {}
            Ok(_) | Err(zbus::Error::NameTaken) => {
                return Err(format!("another program has the name {name}; stop it first"));
            }
            Err(error) => return Err(format!("the bus does not give the name {name}: {error}")),
        }
    }
    desktop.serving().await.map_err(|refusal| refusal.sentence)?;
    let (closes, closed) = (connection.clone(), Arc::clone(&link));
    let gone = async move {
        closes.closed().await;
        closed.news.put(News::BusGone);
    };
    connection.spawn("bus", gone).detach();
    loop {
        let state = match link.news.take().await {
            News::Tell(Tell::State(state)) => state,
            News::Look => desktop.state(),
            News::Tell(Tell::Drifted(drifted)) => {
                // If the bus is gone, the signal is lost, and the next event says so.
                let _ = emit_drift(&connection, &drifted).await;
                continue;
            }
            // The link handles answers.
            News::Tell(Tell::Answer { .. }) => continue,
            News::BusGone => return Err("the bus is gone".to_owned()),
        };
        let (before, gone) = desktop.take(state);
        if options.desktop {
            for (cookie, held) in &gone {
                let _ = emit_released(&connection, *cookie, held).await;
            }
            let _ = emit_desktop(&connection, &desktop, &before).await;
        }
        let _ = emit_control(&connection, &desktop, &before).await;
    }
}

/// Emits the signal only to the holder, on the interface that it used.
async fn emit_released(connection: &Connection, cookie: u32, held: &DesktopHold) -> zbus::Result<()> {
    let path = match held.face {
        Face::UPower => UPOWER.1,
        Face::Hadess => HADESS.1,
    };
    let emitter = SignalEmitter::new(connection, path)?.set_destination(held.sender.as_str().try_into()?);
    match held.face {
        Face::UPower => UPower::profile_released(&emitter, cookie).await,
        Face::Hadess => Hadess::profile_released(&emitter, cookie).await,
    }
}

/// Emits the changed properties on both faces.
async fn emit_desktop(connection: &Connection, desktop: &Desktop, before: &State) -> zbus::Result<()> {
    let now = desktop.state();
    let holds = desktop.holds_changed();
    let server = connection.object_server();
    macro_rules! emit {
        ($face:ident, $path:expr) => {
            let face = server.interface::<_, $face>($path).await?;
            let (emitter, object) = (face.signal_emitter(), face.get().await);
            if now.active != before.active {
                object.active_profile_changed(emitter).await?;
            }
            if now.degraded != before.degraded {
                object.performance_degraded_changed(emitter).await?;
            }
            if now.profiles != before.profiles {
                object.profiles_changed(emitter).await?;
            }
            if holds {
                object.active_profile_holds_changed(emitter).await?;
            }
        };
    }
    emit!(UPower, UPOWER.1);
    emit!(Hadess, HADESS.1);
    Ok(())
}

async fn emit_control(connection: &Connection, desktop: &Desktop, before: &State) -> zbus::Result<()> {
    let now = desktop.state();
    let control = connection.object_server().interface::<_, Control>(CONTROL.1).await?;
    let (emitter, object) = (control.signal_emitter(), control.get().await);
    if now.holds != before.holds {
        object.holds_changed(emitter).await?;
    }
    if now.drifted != before.drifted {
        object.drifted_changed(emitter).await?;
    }
    Ok(())
}

async fn emit_drift(connection: &Connection, drifted: &crate::Drifted) -> zbus::Result<()> {
    let crate::Drifted { knob, cpus, was, is, by, pid, action } = drifted;
    let [knob, cpus, was, is, by, action] =
        [knob, cpus, was, is, by, action].map(|text| sendable(text, MAX_SENTENCE));
    let emitter = SignalEmitter::new(connection, CONTROL.1)?;
    Control::changed(&emitter, &knob, &cpus, &was, &is, &by, *pid, &action).await
}
