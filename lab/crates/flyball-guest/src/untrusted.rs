//! The parsers of data from packages, mirrors and guests, as functions of bytes, for `fuzz/`: no
//! bytes may make them panic, hang or write outside their directory.

use std::{fs, path::Path};

use crate::{
    apt, copy_back,
    deb::Package,
    elf::Elf,
    error::GuestError,
    kernel::{self, BzImage},
};

/// Unpacks a Debian package below `folder`.
///
/// # Errors
/// Why it is rejected.
pub fn package(bytes: &[u8], folder: &Path) -> Result<(), GuestError> {
    let file = folder.join("fuzz.deb");
    fs::write(&file, bytes).map_err(|error| GuestError::file("write", &file, error))?;
    let package = Package::read(&file)?;
    let _ = package.sha256();
    package.unpack(&folder.join("files"), |path| !kernel::is_kernel_file(path) || path.starts_with("boot"))
}

/// Parses apt's output about a mirror's signed lists. Returns the number of lines with a package
/// and its hash.
pub fn lists(text: &str) -> usize {
    apt::try_lists(text)
}

/// Parses a kernel image or module. Returns its release, and whether it has an entry.
pub fn image(bytes: &[u8]) -> String {
    let mut found = String::new();
    let unpacked = BzImage::parse(bytes).and_then(|image| {
        found.clone_from(&image.release);
        image.vmlinux()
    });
    if let Err(error) = &unpacked {
        found += &error.to_string();
    }
    if let Some(elf) = Elf::new(unpacked.as_deref().unwrap_or(bytes)) {
        let module = elf.modinfo("depends").len();
        found += &format!(" {} {} {}", elf.has_pvh_entry(), elf.is_dynamic(), module.min(2));
    }
    found
}

/// Copies a guest's results into `folder` by the rule for results and by that for a working
/// directory.
///
/// # Errors
/// Why they are rejected.
pub fn results(tar: &[u8], folder: &Path) -> Result<Vec<String>, GuestError> {
    let work = copy_back::Rule::Work { replaced: vec!["a".into()] };
    let notes = copy_back::copy(tar, folder, &work)?.into_texts();
    copy_back::copy(tar, folder, &copy_back::Rule::Results { reserved: &["console.log"] })?;
    Ok(notes)
}
