//! Profiles by name: the administrator's in /etc/flyball, those that the package installed, and the
//! built-in ones, so that `flyball apply storage` works without an installation. A name has no
//! slash and does not end in .toml. Everything else is a file.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use flyball_control::profile::Profile;
use flyball_files::{check_trusted, open_input, read_bounded, read_input};

use crate::exit::Failure;

/// Directories of named profiles, in order of priority.
const DIRECTORIES: [&str; 2] = ["/etc/flyball", "/usr/lib/flyball/profiles"];

/// The profiles of dist/profiles, in the order of the list.
const BUILT_IN: [(&str, &str); 9] = [
    ("latency", include_str!("../../../dist/profiles/latency.toml")),
    ("throughput", include_str!("../../../dist/profiles/throughput.toml")),
    ("balanced", include_str!("../../../dist/profiles/balanced.toml")),
    ("powersave", include_str!("../../../dist/profiles/powersave.toml")),
    ("storage", include_str!("../../../dist/profiles/storage.toml")),
    ("realtime", include_str!("../../../dist/profiles/realtime.toml")),
    ("hpc", include_str!("../../../dist/profiles/hpc.toml")),
    ("benchmark", include_str!("../../../dist/profiles/benchmark.toml")),
    ("battery", include_str!("../../../dist/profiles/battery.toml")),
];

/// Maximum bytes of a profile: a hundred times the size of one with the maximum number of settings.
pub(crate) const MAX_PROFILE: u64 = 64 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    File(PathBuf),
    /// A built-in profile's text.
    BuiltIn(&'static str),
}

#[derive(Debug)]
pub(crate) struct NamedProfile {
    pub name: String,
    /// The file, if the profile is not built in.
    pub file: Option<PathBuf>,
    pub text: String,
    pub profile: Profile,
}

/// Returns whether an argument is a name, not a file.
fn is_name(argument: &str) -> bool {
    // /etc/flyball/hold.toml is no profile: it configures which profile is held when.
    !matches!(argument, "hold" | "-") && !argument.contains(['/', '=']) && !argument.ends_with(".toml")
}

pub(crate) fn find(name: &str) -> Option<Source> {
    find_in(&DIRECTORIES.map(Path::new), name)
}

fn find_in(directories: &[&Path], name: &str) -> Option<Source> {
    if !is_name(name) {
        return None;
    }
    let file =
        // An administrator's file replaces the package's, and both replace the built-in profile.
        directories.iter().map(|directory| directory.join(format!("{name}.toml"))).find(|file| file.exists());
    let built_in =
        || BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| Source::BuiltIn(text));
    file.map(Source::File).or_else(built_in)
}

/// Returns the names of all profiles: the built-in ones, then those in the directories.
pub(crate) fn names() -> Vec<String> {
    let mut names: Vec<String> = BUILT_IN.iter().map(|(name, _)| (*name).to_owned()).collect();
    let mut others: Vec<String> = Vec::new();
    for directory in DIRECTORIES {
        // Most machines have neither directory. A directory that cannot be read has no names for
        // this user.
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().strip_suffix(".toml").map(str::to_owned);
            others.extend(name.filter(|name| !names.contains(name) && is_name(name)));
        }
    }
    others.sort_unstable();
    others.dedup();
    names.extend(others);
    names
}

/// Reads a file that no other user can have written.
fn read_trusted(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open_input(path)?;
    check_trusted(&file)?;
    read_bounded(file, most)
}

/// Reads the profile of an argument: a name, a file, or `-` for stdin.
pub(crate) fn read(argument: &str) -> Result<NamedProfile, Failure> {
    read_with(argument, read_input)
}

/// Like [`read`], but for a service, which trusts the file that its configuration names.
pub(crate) fn read_for_service(argument: &str) -> Result<NamedProfile, Failure> {
    read_with(argument, read_trusted)
}

fn read_with(argument: &str, file: fn(&Path, u64) -> io::Result<Vec<u8>>) -> Result<NamedProfile, Failure> {
    // Messages refer to a built-in profile by name, and to others by file.
    let (path, text) = match find(argument) {
        Some(Source::BuiltIn(text)) => (None, Ok(text.to_owned().into_bytes())),
        Some(Source::File(path)) => (Some(path.clone()), read_trusted(&path, MAX_PROFILE)),
        None if argument == "-" => (None, read_bounded(io::stdin().lock(), MAX_PROFILE)),
        None if is_name(argument) => return Err(Failure::usage(unknown(argument))),
        None => (Some(PathBuf::from(argument)), file(Path::new(argument), MAX_PROFILE)),
    };
    let bytes =
        text.map_err(|error| Failure::usage(format!("cannot read the profile '{argument}': {error}")))?;
    let called = path.as_ref().map_or_else(|| argument.to_owned(), |file| file.display().to_string());
    let profile = Profile::parse(&bytes, &called).map_err(Failure::usage)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(NamedProfile { name: argument.to_owned(), file: path, text, profile })
}

/// Returns a hint for a name that no profile has.
fn unknown(name: &str) -> String {
    // A bare word is never a file, so that a file in the current directory cannot replace a
    // profile.
    if Path::new(name).is_file() {
        return format!("'{name}' is not the name of a profile; the file of that name here is './{name}'");
    }
    let near = names()
        .into_iter()
        .map(|known| (strsim::damerau_levenshtein(name, &known), known))
        .min()
        .filter(|(distance, known)| *distance <= 1 + known.len() / 4);
    let advice = near.map_or_else(
        || "'flyball profiles' lists them, and a file needs a slash or .toml".to_owned(),
        |(_, known)| format!("did you mean '{known}'?"),
    );
    format!(
        "'{name}' is neither a setting (KNOB=VALUE, as in governor=performance) nor the name of a profile; {advice}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_administrators_profile_comes_before_the_packages() {
        let tree = flyball_testing::Tree::new();
        let (etc, lib) = (tree.path().join("etc"), tree.path().join("lib"));
        let directories = [etc.as_path(), lib.as_path()];
        assert!(matches!(find_in(&directories, "storage"), Some(Source::BuiltIn(_))));
        for directory in [&lib, &etc] {
            fs::create_dir(directory).unwrap();
            let file = directory.join("storage.toml");
            fs::write(&file, "turbo = \"on\"").unwrap();
            assert_eq!(find_in(&directories, "storage"), Some(Source::File(file)));
        }
        for file in ["./storage", "storage.toml", "-", "turbo=on", "nothing-of-the-kind"] {
            assert_eq!(find_in(&directories, file), None, "{file}");
        }
    }

    #[test]
    fn a_misspelled_profile_gets_the_nearest_name() {
        assert!(unknown("latncy").ends_with("did you mean 'latency'?"));
        assert!(unknown("nothing-of-the-kind").contains("'flyball profiles' lists them"));
    }

    #[test]
    fn built_in_profiles_are_those_of_the_repository() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/profiles");
        let mut files: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|one| one.unwrap().file_name().into_string().unwrap())
            .collect();
        let mut known: Vec<String> = BUILT_IN.iter().map(|(name, _)| format!("{name}.toml")).collect();
        files.sort();
        known.sort();
        assert_eq!(files, known);
        for (name, text) in BUILT_IN {
            let profile = Profile::parse(text.as_bytes(), name).unwrap();
            let description = profile.description.expect("a profile says what it is for");
            assert!(description.chars().count() <= 60, "{name}: a line of the list");
            assert!(text.starts_with("# "), "{name} begins with what it is for");
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{name}: {line}");
            }
        }
    }
}
