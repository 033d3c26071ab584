//! Directories and archives with content from another user or program: recorded machines, packages,
//! files that a guest leaves behind.
//!
//! A [`Dir`] is opened once. Everything below it is accessed through its descriptor, never by a
//! separate path, and resolution cannot leave it: a link that leads outside is an error, and is not
//! followed. Only regular files are opened, and reading them is limited. [`archive`] reads tar
//! archives with limits on names, counts, sizes and time; [`unpack`] unpacks one below a [`Dir`].
//! [`ZstdReader`] decompresses with a limit on memory. [`private`] creates directories that no
//! other user can write. [`Scratch`] creates temporary ones, which the next start removes if this
//! process is killed. [`Replacement`] creates complete files. It and [`open_output`] create every
//! output: root follows no link of another user on the way.
//!
//! A hostile tree can make an operation fail, but nothing else. The limits are the constants of
//! this crate; docs/limits.md states the consequences for each command.

pub mod archive;
mod beneath;
mod dir;
mod output;
mod path;
mod private;
mod regular;
mod replace;
mod scratch;
mod unpack;
mod zstd;

pub use archive::{Item, Kind, Limits, TarError};
pub use dir::{Dir, Status, Type};
pub use output::{
    Opening, link_output, listen_at, make_dir, make_dirs, open_output, remove_output, rename_output,
};
pub use path::{PathError, plain};
pub use private::{Untrusted, check_private, private};
pub use regular::{
    check_trusted, free_bytes, open_input, open_regular, open_trusted, read_bounded, read_input,
};
pub use replace::{Replacement, create, folder_of, is_stream, replace, replace_file, replace_with_mode};
pub use scratch::Scratch;
pub use unpack::{UnpackError, Unpacked, unpack};
pub use zstd::{ZstdReader, ZstdWriter};

/// Limit on the bytes of a path below a [`Dir`], and of a link's target. The longest path in a
/// Debian kernel package has 140, the longest in sysfs some 300.
pub const MAX_PATH: usize = 1024;
/// Limit on the parts of a path, and of a link's target. sysfs has some 20 behind several PCI
/// bridges.
pub const MAX_PARTS: usize = 64;
/// Limit on the bytes of one name, as in Linux (`NAME_MAX`).
pub const MAX_NAME: usize = 255;
/// Limit on links that are followed on the way to one file, as in Linux (`MAXSYMLINKS`,
/// include/linux/namei.h).
pub const MAX_LINKS: usize = 40;
/// Limit on the names that are listed in one directory: six times the files of a recorded machine
/// of 512 CPUs, which has 61,500 in all.
pub const MAX_LISTED: usize = 400_000;
