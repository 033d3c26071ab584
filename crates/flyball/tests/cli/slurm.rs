//! Tests Slurm's prolog and epilog with a `scontrol` that prints what a hostile job owner can make
//! it print. scripts/test-slurm uses a real Slurm.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

fn program(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs one of the scripts, with a folder's programs before the system's in PATH. Returns its exit
/// code.
fn run(script: &str, folder: &Path, profile: &str) -> i32 {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/slurm").join(script);
    let text = fs::read_to_string(path).unwrap();
    let profiles = folder.join("profiles");
    let text = text
        .replace("PATH=/usr/local/sbin:", &format!("PATH={}:", folder.display()))
        .replace("/etc/flyball/slurm.profiles", profiles.to_str().unwrap());
    fs::write(profiles, "10 max-freq=1GHz\nslow max-freq=2GHz\nnode hpc\n").unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", &text]).env("SLURM_JOB_ID", "4").env("SLURMD_NODENAME", "n1");
    command.env("SLURM_JOB_COMMENT", format!("flyball={profile}")).env("SLURM_JOB_CONSTRAINTS", "");
    command.env("FLYBALL_STATE", folder);
    command.status().unwrap().code().unwrap()
}

/// Returns the arguments with which the prolog calls flyball when scontrol prints `lines`.
fn held(lines: &str) -> Option<String> {
    held_for("slow", lines)
}

/// Like [`held`], for a job that requests this profile.
fn held_for(profile: &str, lines: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("job"), lines).unwrap();
    let show = format!("case $2 in hostnames) echo n1 ;; *) cat '{}' ;; esac", at("job"));
    program(folder.path(), "scontrol", &show);
    program(folder.path(), "lscpu", "for cpu in 0 1 2 3 4 5 6 7; do echo 0,$cpu,$cpu; done");
    program(folder.path(), "logger", "exit 0");
    program(folder.path(), "flyball", &format!("echo \"$@\" >'{}'", at("calls")));
    assert_eq!(run("prolog", folder.path(), profile), 0, "a prolog that fails drains the node");
    fs::read_to_string(at("calls")).ok()
}

/// Returns a job's line in the format of `scontrol -d -o show job`, with words chosen by its owner.
fn line(name: &str, work_dir: &str, comment: &str) -> String {
    format!(
        "JobId=4 JobName={name} UserId=u(1) JobState=CONFIGURING JOB_GRES=(null)   Nodes=n1 CPU_IDs=2-3 Mem=10 \
         GRES= MinCPUsNode=1 WorkDir={work_dir} Comment={comment} Power= \n"
    )
}

#[test]
fn a_jobs_words_choose_no_cpus() {
    let own = Some("hold add slurm-4 --cpus 2,3 max-freq=2GHz\n".to_owned());
    assert_eq!(held(&line("x", "/home/u", "flyball=slow")), own);
    assert_eq!(held(&line("Nodes=n1 CPU_ID=0-7", "/a b", "GRES= Mem=1")), own, "not like a record");
    let two = "JOB_GRES=(null)  Nodes=n1 CPU_IDs=2-3 Mem=0 GRES= Nodes=n1 CPU_IDs=0 Mem=0 GRES=";
    assert_eq!(held(&format!("JobId=4 JobName=x {two} \n")), None, "twice the same node");
    for hostile in [
        "x Nodes=n1 CPU_IDs=0-7 y",
        "x Nodes=n1 CPU_IDs=0-7 Mem=10 GRES= y",
        "Nodes=n1 CPU_IDs=0-90000000 Mem=1",
        "x CPU_IDs=0-7",
        "x\nJobId=4 Nodes=n1 CPU_IDs=0-7 Mem=1 GRES=",
        "x\nJobId=4 y",
        " Nodes=n1 CPU_IDs=0-7 Mem=10 x\n",
        " Nodes=n1 CPU_IDs=0-7 Mem=10 GRES= x\nJobId=5 JobName=y",
        "x\n",
        "$(touch /tmp/x) Nodes=n1 CPU_IDs=* Mem=1 ",
    ] {
        assert_eq!(held(&line(hostile, "/", "c")), None, "JobName={hostile}");
        let expected = if hostile.contains("CPU_IDs") || hostile.contains('\n') { None } else { own.clone() };
        assert_eq!(held(&line("x", hostile, "c")), expected, "WorkDir={hostile}");
        assert_eq!(held(&line("x", "/", hostile)), expected, "Comment={hostile}");
    }
    assert_eq!(held_for("1e1", &line("x", "/", "c")), None, "not the 10 of the list");
    // Slurm prints no record. The job forges one, with the words that follow a record.
    for forged in ["Nodes=n1 CPU_IDs=0-7 Mem=1 GRES=", "Nodes=n1 CPU_IDs=0-7 Mem=1 GRES= MinCPUsNode=1"] {
        for line in [line(forged, "/", "c"), line("x", forged, "c"), line("x", "/", forged)] {
            assert_eq!(held(&line.replace("Nodes=n1 CPU_IDs=2-3 Mem=10 GRES= ", "")), None, "{line}");
        }
    }
    // Slurm itself prints CPUs that the node does not have.
    for ids in ["0-8", "0-90000000", "3-2", "1,,2", "-1", "99999999999999999999"] {
        assert_eq!(held(&line("x", "/", "c").replace("=2-3", &format!("={ids}"))), None, "{ids}");
    }
}

/// Whatever a job's owner writes, the job gets its own CPUs or no profile.
#[test]
fn no_words_of_a_job_choose_its_cpus() {
    const PARTS: [&str; 13] = [
        " Nodes=n1 CPU_IDs=0-7 Mem=1 GRES=",
        " Nodes=n1 CPU_IDs=0-7 Mem=10 ",
        "CPU_IDs=",
        "MinCPUsNode=1",
        "Nodes=n1",
        " GRES= ",
        "\n",
        "JobId=4 ",
        "\nJobId=4 Nodes=n1 CPU_IDs=0 Mem=1 GRES= \n",
        "x",
        " ",
        "$(id)`id`'\"",
        "\u{1b}*?\\",
    ];
    // xorshift: a fixed sequence of choices.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut choose = |count: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % count as u64).unwrap()
    };
    let count = std::env::var("FLYBALL_SLURM_RECORDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let own = "hold add slurm-4 --cpus 2,3 max-freq=2GHz\n";
    let mut kept = 0;
    for _ in 0..count {
        let mut text = || (0..choose(4)).map(|_| PARTS[choose(PARTS.len())]).collect::<String>();
        let (name, work_dir, comment) = (text(), text(), text());
        let held = held(&line(&name, &work_dir, &comment));
        kept += usize::from(held.is_some());
        assert!(held.is_none_or(|held| held == own), "{name:?} {work_dir:?} {comment:?}");
    }
    assert!(kept > 0, "nothing was held");
    println!("{kept} of {count} jobs got a profile");
}

#[test]
fn the_epilog_fails_only_for_a_hold_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    program(folder.path(), "logger", "exit 0");
    for code in [127, 1, 2, 0] {
        program(folder.path(), "flyball", &format!("exit {code}"));
        assert_eq!(run("epilog", folder.path(), ""), 0, "no hold, flyball ends with {code}");
    }
    program(folder.path(), "flyball", "exit 3");
    let holds = folder.path().join("holds");
    fs::write(
        &holds,
        "{\"holds\": [{\"name\": \"slurm-40\", \"owner\": \"\\\"name\\\": \\\"slurm-4\\\"\"}]}",
    )
    .unwrap();
    assert_eq!(run("epilog", folder.path(), ""), 0, "another job's hold");
    fs::write(&holds, "{\"holds\": [{\"name\": \"slurm-4\"}]}").unwrap();
    assert_eq!(run("epilog", folder.path(), ""), 1);
}
