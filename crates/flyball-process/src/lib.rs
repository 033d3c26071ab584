//! The environment of this process, as opposed to a machine: confinement and limits, users and
//! terminals, locks and sockets, and writing large files.

pub mod bounds;
pub mod confine;
#[cfg(any(test, target_env = "musl"))]
mod memcmp;
mod process;
pub mod readings;
mod service_manager;
mod socket;
pub mod spool;
pub mod terminal;
mod user;

pub use process::{
    OWNER_VARIABLE, Usage, adopt_orphans, allowed_cpus, current_cpu, hold_latency, is_marked, is_root,
    keep_descriptors, kill_adopted, kill_owned_by, latency_limit, lock_holder, mark, names_of_group,
    pin_thread, prefer_thread, release_freed_memory, release_start_code, send, set_nonblocking,
    set_signal_actions, sockets_of_service, started_at, thread_time, try_lock, unique_name, usage, user,
};
pub use service_manager::notify;
pub use socket::{connect_at_once, is_readable_within};
pub use user::{FilesOfUser, SUDO_VARIABLES, User, caller};
