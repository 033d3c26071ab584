//! `flyball apply --at-boot`: enables a oneshot unit that applies a profile at each boot. Also
//! prints what else can be set at boot, for copying.

use std::{
    fmt::Write as _,
    io,
    path::{Path, PathBuf},
};

use flyball_control::{
    Id, Location, Snapshot,
    intent::Intent,
    plan::{plan, targets},
};
use flyball_host::Host;
use serde::Serialize;

use crate::{
    change,
    context::Context,
    exit::{Exit, Failure},
    machine::MachineArg,
    profiles,
};

/// The packages' unit, for machines on which flyball was not installed from a package.
const TEMPLATE: &str = include_str!("../../../../../dist/systemd/flyball-apply@.service");

/// Unit directories of packages and administrators, in order of priority (systemd.unit(5)).
const UNITS: [&str; 4] =
    ["etc/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"];

/// What was done, and what the user may copy.
#[derive(Debug, schemars::JsonSchema, Serialize)]
pub(crate) struct AtBoot {
    profile: String,
    /// The unit that applies the profile at each boot.
    unit: String,
    /// The created files. Empty if nothing was to be written.
    made: Vec<PathBuf>,
    /// Other settings for boot. None of them was written.
    snippets: Vec<Snippet>,
}

/// Text for a file that an administrator may want.
#[derive(Debug, schemars::JsonSchema, Serialize)]
struct Snippet {
    file: String,
    why: &'static str,
    lines: Vec<String>,
}

pub(super) fn run(
    context: &Context,
    wanted: &[String],
    intent: &Intent,
    dry_run: bool,
) -> Result<Exit, Failure> {
    let profile = match wanted {
        [profile] if profiles::find(profile).is_some() => profile,
        _ => {
            return Err(Failure::usage(
                "--at-boot takes one profile with a name; 'flyball save' and a file in /etc/flyball make one of settings",
            ));
        }
    };
    // systemd would escape other characters (systemd.unit(5)), and %i would then be another name.
    if !profile.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c)) {
        return Err(Failure::usage(format!(
            "'{profile}' cannot be part of a unit's name; rename the profile"
        )));
    }
    let root = match &context.machine {
        MachineArg::Live => PathBuf::from("/"),
        MachineArg::Tree(root) => root.clone(),
        _ if dry_run => PathBuf::from("/"),
        other => {
            return Err(Failure::usage(format!("'{other}' does not boot; -n prints what would be made")));
        }
    };
    let host = context.open()?;
    // Check now: a profile that this machine does not support would fail at every boot.
    let snippets = snippets(&*host, profile, intent)?;
    let unit = format!("flyball-apply@{profile}.service");
    let made = if dry_run { Vec::new() } else { enable(&root, &unit)? };
    change::note_neighbours(&*host, intent.settings.iter());
    let done = AtBoot { profile: profile.clone(), unit, made, snippets };
    context.output.about(&*host).object(|| &done, || render(&done))?;
    Ok(Exit::Done)
}

/// Enables the unit like systemctl, which a root directory under installation may lack.
fn enable(root: &Path, unit: &str) -> Result<Vec<PathBuf>, Failure> {
    let fail =
        |path: &Path, error: io::Error| Failure::failed(format!("cannot make {}: {error}", path.display()));
    let mut made = Vec::new();
    let name = "flyball-apply@.service";
    let installed = UNITS.iter().find(|folder| root.join(folder).join(name).exists());
    let folder = *installed.unwrap_or(&UNITS[0]);
    if installed.is_none() {
        let path = root.join(folder).join(name);
        let program = std::env::current_exe().map_err(|error| fail(&path, error))?;
        let text = TEMPLATE.replace("/usr/bin/flyball", &program.display().to_string());
        flyball_files::make_dirs(&root.join(folder)).map_err(|error| fail(&path, error))?;
        flyball_files::replace(&path, text.as_bytes()).map_err(|error| fail(&path, error))?;
        made.push(path);
    }
    let wants = root.join("etc/systemd/system/multi-user.target.wants");
    let link = wants.join(unit);
    flyball_files::make_dirs(&wants).map_err(|error| fail(&link, error))?;
    match flyball_files::link_output(format!("/{folder}/{name}").as_ref(), &link) {
        Ok(()) => made.push(link),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(fail(&link, error)),
    }
    Ok(made)
}

fn snippets(host: &dyn Host, profile: &str, intent: &Intent) -> Result<Vec<Snippet>, Failure> {
    let snapshot = Snapshot::for_intent(host, intent)?;
    let planned = plan(&snapshot, intent)?;
    let mut snippets = Vec::new();
    let (mut files, mut has_registers) = (Vec::new(), false);
    for target in targets(&snapshot, intent)? {
        if let Location::Msr { .. } = target.location {
            has_registers = true;
        }
        let Some(path) = target.location.path() else { continue };
        let change = planned.changes.iter().find(|change| change.location == target.location);
        let text = match change {
            Some(change) => change.new.clone(),
            None => host.read(path).unwrap_or_default(),
        };
        if target.knob == Id::DriverMode {
            // amd_pstate= and intel_pstate= accept the same words as the file `status`
            // (kernel-parameters.txt).
            let driver = if path.contains("amd_pstate") { "amd_pstate" } else { "intel_pstate" };
            snippets.push(Snippet {
                file: "kernel command line".to_owned(),
                why: "the driver starts in this mode: no switch makes the policies again",
                lines: vec![format!("{driver}={text}")],
            });
            continue;
        }
        // % begins a specifier (tmpfiles.d(5)).
        files.push(format!("w {path} - - - - {}", text.replace('%', "%%")));
    }
    if has_registers {
        let why = "registers need the module msr; without the option the kernel logs writes and is tainted";
        let load =
            Snippet { file: "/etc/modules-load.d/flyball.conf".to_owned(), why, lines: vec!["msr".into()] };
        let file = "/etc/modprobe.d/flyball.conf".to_owned();
        let option = Snippet { file, why, lines: vec!["options msr allow_writes=on".into()] };
        snippets.extend([load, option]);
    }
    if !files.is_empty() {
        snippets.push(Snippet {
            file: format!("/etc/tmpfiles.d/flyball-{profile}.conf"),
            why: "instead of the unit, on a machine that has no flyball: these files only, with no check and no undo",
            lines: files,
        });
    }
    Ok(snippets)
}

fn render(done: &AtBoot) -> String {
    let AtBoot { profile, unit, made, snippets } = done;
    let mut out = String::new();
    for path in made {
        let _ = writeln!(out, "made: {}", path.display());
    }
    let _ = writeln!(
        out,
        "{unit} applies {profile} at each boot; 'systemctl disable {unit}' ends that, 'flyball apply {profile}' applies it now"
    );
    if !snippets.is_empty() {
        out += "\nNot written, for you to copy:\n";
    }
    for Snippet { file, why, lines } in snippets {
        let _ = writeln!(out, "\n{file}: {why}");
        for line in lines {
            let _ = writeln!(out, "    {line}");
        }
    }
    out
}
