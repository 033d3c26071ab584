//! The kernel to boot: a version in the cache, a bzImage, an uncompressed vmlinux or a Debian
//! package, and how QEMU can start it.
//!
//! QEMU enters an uncompressed kernel directly (PVH), which avoids emulated seconds of
//! decompression. A kernel without a PVH entry or with an unsupported compression is booted as a
//! bzImage.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{cache, cache::Cache, deb::Package, decompress, elf::Elf, error::GuestError};

/// A kernel that can be booted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// The output of `uname -r`, if the image contains it.
    pub release: String,
    /// The file for QEMU's `-kernel`.
    pub boot: PathBuf,
    /// Whether `boot` is an uncompressed kernel entered by PVH.
    pub pvh: bool,
    /// The directory `lib/modules/RELEASE`, if there is one.
    pub modules: Option<PathBuf>,
    /// The configuration file, if there is one.
    pub config: Option<PathBuf>,
}

/// Maximum size of an unpacked kernel, against files made to fill the memory.
const UNPACKED: u64 = 1 << 30;

/// Why a file cannot be booted uncompressed.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("neither a bzImage, an ELF kernel nor a Debian package")]
    Unknown,
    #[error("boot protocol {0:#x} is too old (a kernel before 2.6.26)")]
    OldProtocol(u16),
    #[error("the kernel image is truncated")]
    Truncated,
    #[error("unsupported compression (gzip, xz and zstd are supported)")]
    Compression,
    #[error("cannot unpack the kernel: {0}")]
    Unpack(io::Error),
    #[error("the unpacked kernel is not a 64-bit ELF file")]
    NotElf,
}

/// The parts of a bzImage's setup header (Documentation/arch/x86/boot.rst) that locate the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BzImage<'a> {
    /// The release: the first word of the version string.
    pub release: String,
    payload: &'a [u8],
}

impl<'a> BzImage<'a> {
    /// Reads the setup header.
    pub fn parse(bytes: &'a [u8]) -> Result<BzImage<'a>, ImageError> {
        let word = |at: usize| Some(u16::from_le_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        let long = |at: usize| Some(u32::from(word(at)?) | u32::from(word(at + 2)?) << 16);
        if bytes.get(0x202..0x206) != Some(b"HdrS") {
            return Err(ImageError::Unknown);
        }
        let protocol = word(0x206).unwrap_or(0);
        // payload_offset and payload_length came with 2.08.
        if protocol < 0x208 {
            return Err(ImageError::OldProtocol(protocol));
        }
        let cut = || ImageError::Truncated;
        let setup = match bytes[0x1f1] {
            // "For backwards compatibility, if the setup_sects field contains 0, the real value is
            // 4" (boot.rst).
            0 => 4,
            sectors => usize::from(sectors),
        };
        let start = (setup + 1) * 512 + long(0x248).ok_or_else(cut)? as usize;
        let length = long(0x24c).ok_or_else(cut)? as usize;
        // Both numbers have 32 bits, so their sum cannot overflow on 64-bit machines.
        let payload = bytes.get(start..start + length).ok_or_else(cut)?;
        // kernel_version is the offset of the text minus 0x200.
        let text = usize::from(word(0x20e).ok_or_else(cut)?) + 0x200;
        let text = bytes.get(text..).unwrap_or_default().split(|byte| *byte == 0).next().unwrap_or_default();
        // The builder and the time of the build follow in the text.
        let release = String::from_utf8_lossy(&text[..text.len().min(256)]);
        let release = release.split_whitespace().next().unwrap_or("unknown").to_owned();
        Ok(BzImage { release, payload })
    }

    /// The uncompressed kernel.
    pub fn vmlinux(&self) -> Result<Vec<u8>, ImageError> {
        if decompress::Compression::of(self.payload) == decompress::Compression::None {
            return Err(ImageError::Compression);
        }
        let kernel = decompress::unpack(self.payload, UNPACKED).map_err(ImageError::Unpack)?;
        Elf::new(&kernel).ok_or(ImageError::NotElf)?;
        Ok(kernel)
    }
}

/// Finds the kernel `wanted`: the path of a bzImage, a vmlinux, a Debian package or a build tree,
/// or the beginning of a version in the cache. `modules` overrides the directory of its modules
/// (`.../lib/modules/RELEASE`).
pub fn find(cache: &Cache, wanted: &str, modules: Option<&Path>) -> Result<Kernel, GuestError> {
    let path = Path::new(wanted);
    // A file takes precedence over a version with its name.
    let mut kernel = if path.is_file() {
        if path.extension().is_some_and(|e| e == "deb") {
            of_deb(cache, path)?
        } else {
            of_image(cache, path)?
        }
    } else if path.join(".config").is_file() {
        of_build(cache, path)?
    } else {
        let Some(version) = cache.kernel_version(wanted) else {
            if path.is_dir() {
                return Err(GuestError::format(
                    path,
                    "no kernel was built in this directory: it has no .config",
                ));
            }
            // Versions contain no slash.
            if wanted.contains('/') {
                return Err(GuestError::file("read", path, io::Error::from(io::ErrorKind::NotFound)));
            }
            return Err(GuestError::NotFetched {
                what: format!("a kernel {wanted}"),
                cache: cache.kernels(),
                remedy: format!("flyball guest fetch --kernel {wanted}"),
            });
        };
        of_tree(cache, &cache.kernels().join(version))?
    };
    if let Some(dir) = modules {
        kernel.modules = Some(dir.to_owned());
    }
    Ok(kernel)
}

fn of_deb(cache: &Cache, path: &Path) -> Result<Kernel, GuestError> {
    let deb = Package::read(path)?;
    // By content: another package may have this name and even this length.
    let tree = cache.made(&format!("deb-{}", deb.sha256()))?;
    if !tree.is_dir() {
        let part = tree.with_extension("part");
        // Left by an interrupted attempt. If it cannot be removed, unpacking reports why.
        let _ = fs::remove_dir_all(&part);
        deb.unpack(&part, is_kernel_file)?;
        fs::rename(&part, &tree).map_err(|e| GuestError::file("rename", &part, e))?;
    }
    of_tree(cache, &tree)
}

/// The files of a kernel package that a guest can use.
pub fn is_kernel_file(path: &Path) -> bool {
    ["boot", "lib/modules", "usr/lib/modules"].iter().any(|dir| path.starts_with(dir))
        && !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("System.map"))
}

/// A kernel package that has been unpacked at `tree`.
fn of_tree(cache: &Cache, tree: &Path) -> Result<Kernel, GuestError> {
    let entries = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    let modules = ["lib/modules", "usr/lib/modules"]
        .iter()
        .flat_map(|dir| entries(tree.join(dir)))
        .find(|dir| dir.join("kernel").is_dir());
    let image = entries(tree.join("boot"))
        .find(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("vmlinuz")))
        .or_else(|| modules.iter().map(|dir| dir.join("vmlinuz")).find(|path| path.is_file()));
    let Some(image) = image else {
        return Err(GuestError::format(tree, "no kernel image in this package"));
    };
    let config = entries(tree.join("boot"))
        .find(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("config")))
        .or_else(|| modules.iter().map(|dir| dir.join("config")).find(|path| path.is_file()));
    Ok(Kernel { modules, config, ..of_image(cache, &image)? })
}

/// A build tree. Its modules are where they were compiled.
fn of_build(cache: &Cache, tree: &Path) -> Result<Kernel, GuestError> {
    let image = tree.join("arch/x86/boot/bzImage");
    if !image.is_file() {
        return Err(GuestError::format(tree, "no arch/x86/boot/bzImage in this tree: run make"));
    }
    let modules = tree.join("modules.order").is_file().then(|| tree.to_owned());
    Ok(Kernel { modules, config: Some(tree.join(".config")), ..of_image(cache, &image)? })
}

/// A bzImage or vmlinux; the modules are where `make modules_install` puts them, next to a
/// package's bzImage.
fn of_image(cache: &Cache, image: &Path) -> Result<Kernel, GuestError> {
    let bytes = fs::read(image).map_err(|e| GuestError::file("read", image, e))?;
    if let Some(elf) = Elf::new(&bytes) {
        if !elf.has_pvh_entry() {
            return Err(GuestError::format(
                image,
                "this vmlinux has no PVH entry (CONFIG_PVH): give its bzImage",
            ));
        }
        return Ok(Kernel {
            release: "unknown".into(),
            boot: image.to_owned(),
            pvh: true,
            modules: None,
            config: None,
        });
    }
    let bz = BzImage::parse(&bytes).map_err(|why| GuestError::format(image, why.to_string()))?;
    // By content: builds of one release differ, and an image made to look like another must not be
    // mistaken for it.
    let mark = cache::sha256(bz.payload);
    let unpacked = cache.made(&format!("vmlinux-{}-{mark}", bz.release.replace('/', "_")))?;
    let pvh = if unpacked.is_file() {
        true
    } else {
        match bz.vmlinux() {
            // Cached, because unpacking takes seconds; every later guest of this kernel starts
            // without it.
            Ok(kernel) if Elf::new(&kernel).is_some_and(|elf| elf.has_pvh_entry()) => {
                cache::write_whole(&unpacked, &kernel)?;
                true
            }
            // The kernel unpacks itself, in emulated time.
            _ => false,
        }
    };
    let boot = if pvh { unpacked } else { image.to_owned() };
    // An image in its build tree.
    let config = image.ancestors().nth(4).map(|tree| tree.join(".config")).filter(|path| path.is_file());
    Ok(Kernel { release: bz.release, boot, pvh, modules: None, config })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bzimage(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0u8; 1024];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x206..0x208].copy_from_slice(&0x20fu16.to_le_bytes());
        image[0x20e..0x210].copy_from_slice(&0x100u16.to_le_bytes());
        image[0x300..0x30d].copy_from_slice(b"6.99.0-a (me)");
        image[0x248..0x24c].copy_from_slice(&16u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        image.extend_from_slice(&[0xcc; 16]);
        image.extend_from_slice(payload);
        image
    }

    #[test]
    fn finds_the_kernel_in_a_bzimage() {
        let elf = crate::elf::tests::module("");
        let image = bzimage(&zstd::encode_all(&elf[..], 1).unwrap());
        let bz = BzImage::parse(&image).unwrap();
        assert_eq!(bz.release, "6.99.0-a");
        assert_eq!(bz.vmlinux().unwrap(), elf);
        let lzo = bzimage(b"LZO?");
        assert!(matches!(BzImage::parse(&lzo).unwrap().vmlinux(), Err(ImageError::Compression)));
    }

    #[test]
    fn another_package_of_the_same_name_and_length_is_another_kernel() {
        let dir = tempfile::tempdir().unwrap();
        let (cache, file) = (Cache::at(dir.path().join("cache")), dir.path().join("linux-image.deb"));
        let package = crate::deb::tests::package();
        let mut other = package.clone();
        // Changes the time in the header of the last member, but neither a name nor a length.
        let at = other.windows(4).rposition(|bytes| bytes == b"data").unwrap() + 16;
        other[at] = b'7';
        for bytes in [package, other] {
            fs::write(&file, bytes).unwrap();
            let _ = find(&cache, file.to_str().unwrap(), None);
        }
        let made = cache.made("x").unwrap();
        let trees = fs::read_dir(made.parent().unwrap()).unwrap();
        assert_eq!(trees.filter(|tree| tree.as_ref().unwrap().path().join("boot").is_dir()).count(), 2);
    }

    #[test]
    fn broken_images_are_errors() {
        let image = bzimage(&zstd::encode_all(&[0u8; 100][..], 1).unwrap());
        for cut in 0..image.len() {
            assert!(BzImage::parse(&image[..cut]).is_err(), "{cut}");
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x");
        fs::write(&file, "text").unwrap();
        let error = find(&Cache::at(dir.path()), file.to_str().unwrap(), None).unwrap_err();
        assert!(error.to_string().contains("neither a bzImage"), "{error}");
        let error = find(&Cache::at(dir.path()), "9.9", None).unwrap_err();
        assert!(error.to_string().contains("guest fetch --kernel 9.9"), "{error}");
        let error = find(&Cache::at(dir.path()), dir.path().to_str().unwrap(), None).unwrap_err();
        assert!(error.to_string().contains("no .config"), "{error}");
        let error = find(&Cache::at(dir.path()), "./no-such/bzImage", None).unwrap_err();
        assert!(error.to_string().contains("cannot read ./no-such/bzImage"), "{error}");
    }
}
