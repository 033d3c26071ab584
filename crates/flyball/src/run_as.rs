//! The user that a command runs as. Under sudo, that is the calling user: only flyball itself needs
//! root, and files from a build or a benchmark should not belong to root.

use flyball_host::Host;
use flyball_process::User;

use crate::exit::Failure;

/// The options of commands that run a command.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct RunAs {
    /// Run the command as this user [default: under sudo, the user who called sudo].
    #[arg(long, value_name = "NAME", help_heading = "Workload", hide_short_help = true)]
    pub user: Option<String>,

    /// Under sudo, run the command as root.
    #[arg(long, conflicts_with = "user", help_heading = "Workload", hide_short_help = true)]
    pub as_root: bool,
}

impl RunAs {
    /// Returns the user to run a command on `host` as. `None` for flyball's own user. Prints the
    /// user if sudo started flyball or an option names one.
    pub(crate) fn user(&self, host: &dyn Host) -> Result<Option<User>, Failure> {
        // A simulated machine runs models. Only their output files belong to a user.
        self.choose(host.software().is_none())
    }

    /// Like [`RunAs::user`], for a command that always runs on this computer.
    pub(crate) fn user_of_program(&self) -> Result<Option<User>, Failure> {
        self.choose(true)
    }

    fn choose(&self, runs_program: bool) -> Result<Option<User>, Failure> {
        let caller = User::from_sudo()
            .map_err(|error| Failure::usage(format!("cannot tell who called sudo: {error}")))?;
        let user = match &self.user {
            Some(name) => Some(named(name)?),
            // Root's own session has no calling user either, and stays root.
            None if self.as_root => None,
            None => caller.clone(),
        };
        match &user {
            _ if !runs_program => {}
            Some(user) => eprintln!("note: the command runs as {} (user {})", user.name, user.uid),
            None if caller.is_some() => eprintln!("note: the command runs as root"),
            None => {}
        }
        // Nothing to change then, and an ordinary user would not be allowed to.
        Ok(user.filter(|user| !user.is_self()))
    }
}

fn named(name: &str) -> Result<User, Failure> {
    let found = User::by_name(name)
        .map_err(|error| Failure::failed(format!("cannot look up user {name}: {error}")))?;
    // Check before anything is set: setuid() would only fail when the command starts.
    let user = found.ok_or_else(|| Failure::usage(format!("no user '{name}' on this machine")))?;
    if !flyball_process::is_root() && !user.is_self() {
        return Err(Failure::usage(format!("only root can run a command as {name}")));
    }
    Ok(user)
}
