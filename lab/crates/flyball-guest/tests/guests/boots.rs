//! Boots real kernels: checks the drivers that bind, their answers, and the reports of a guest's
//! end.
//!
//! Kernels and the emulator come from the cache that `flyball guest fetch` fills. Missing ones are
//! skipped and counted. By default only the newest kernel is booted; `FLYBALL_GUEST_TESTS=all`
//! boots all.

use std::{fs, time::Duration};

use crate::common::{Guest, number, value};
use flyball_guest::{Interface, guest::Request, machine::Driver};

const FACTS: &str = "cd /sys/devices/system/cpu
for f in cpufreq/policy0/scaling_driver cpufreq/policy0/scaling_governor cpufreq/policy0/cpuinfo_min_freq \
    cpufreq/policy0/cpuinfo_max_freq amd_pstate/status intel_pstate/status cpufreq/boost intel_pstate/no_turbo; do
    [ -r $f ] && echo ${f##*/}=$(cat $f)
done
dmesg | grep -E 'Oops|BUG:|Call Trace|Firmware Bug|unchecked MSR' | head -3 >&2; true";

/// Driver, machine and interface, and the expected content of the policies' and the driver's files.
const MATRIX: &[(&str, &str, Option<Interface>, &str, &str)] = &[
    ("amd-pstate=passive", "ryzen-5750g", None, "amd-pstate", "passive"),
    ("amd-pstate=active", "ryzen-5750g", None, "amd-pstate-epp", "active"),
    ("amd-pstate=guided", "ryzen-5750g", None, "amd-pstate", "guided"),
    ("amd-pstate=passive", "ryzen-5750g", Some(Interface::CppcMailbox), "amd-pstate", "passive"),
    ("amd-pstate=active", "ryzen-5750g", Some(Interface::CppcMailbox), "amd-pstate-epp", "active"),
    ("acpi-cpufreq", "ryzen-5750g", None, "acpi-cpufreq", ""),
    ("intel_pstate", "sst-guide", None, "intel_pstate", "active"),
    ("intel_pstate=passive", "sst-guide", None, "intel_cpufreq", "passive"),
    ("intel_pstate=no_hwp", "sst-guide", None, "intel_cpufreq", "passive"),
];

#[test]
fn drivers_bind() {
    let Some((guest, kernels)) = Guest::new("drivers_bind") else { return };
    for kernel in &kernels {
        for (driver, machine, interface, bound, status) in MATRIX {
            // Before 6.3 there is only passive mode, and no status file.
            let old = kernel.starts_with("6.1.");
            if old && driver.starts_with("amd-pstate") && *driver != "amd-pstate=passive" {
                continue;
            }
            let mut request = Request::new(machine, kernel, &[FACTS]);
            request.driver = Driver::parse(driver).expect("a driver");
            request.interface = *interface;
            let what = format!("{kernel} {machine} {driver} {interface:?}");
            let ended = guest.run(&request);
            ended.must_exit(0, &what);
            assert_eq!(value(&ended, "scaling_driver"), *bound, "{what}");
            if !(status.is_empty() || old && driver.starts_with("amd")) {
                assert_eq!(value(&ended, "status"), *status, "{what}");
            }
            // A driver that fails to access its registers logs it.
            assert_eq!(ended.err, "", "{what}");
            let (least, most) = (number(&ended, "cpuinfo_min_freq"), number(&ended, "cpuinfo_max_freq"));
            let expected = match *bound {
                "amd-pstate" | "amd-pstate-epp" => (423_000.0, 4_683_000.0),
                "acpi-cpufreq" => (1_400_000.0, 4_680_000.0),
                _ => (800_000.0, 3_200_000.0),
            };
            assert!((least - expected.0).abs() < 25_000.0, "{what}: {least}");
            assert!((most - expected.1).abs() < 25_000.0, "{what}: {most}");
        }
    }
}

/// Links with the names of flyball's own logs, which an earlier guest could have left, and the
/// files that a guest can leave now.
#[test]
fn what_a_guest_leaves_redirects_nothing() {
    use std::os::unix::fs::symlink;
    let Some((guest, kernels)) = Guest::new("what_a_guest_leaves_redirects_nothing") else { return };
    let kernel = kernels.last().expect("a kernel");
    let dir = tempfile::tempdir().expect("a directory");
    let (out, victim) = (dir.path().join("out"), dir.path().join("victim"));
    fs::create_dir(&out).expect("a directory");
    fs::write(&victim, "precious").expect("a file");
    for name in ["console.log", "registers.log", "silicon.log", "result"] {
        symlink(&victim, out.join(name)).expect("a link");
    }
    let command = "cd out; echo new > result; ln -s /etc/passwd link; ln -s /etc/passwd console.log; mkfifo fifo; \
                   mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; chmod 4755 result";
    let mut request = Request::new("ryzen-5750g", kernel, &[command]);
    request.out = Some(out.clone());
    let ended = guest.run(&request);
    ended.must_exit(0, "a command that leaves links and special files");
    assert_eq!(fs::read_to_string(&victim).expect("the file"), "precious");
    for name in ["console.log", "registers.log", "silicon.log", "result"] {
        assert!(fs::symlink_metadata(out.join(name)).expect("the file").is_file(), "{name}");
    }
    assert_eq!(fs::read_to_string(out.join("result")).expect("the file"), "new\n");
    for name in ["link", "fifo", ".git"] {
        assert!(fs::symlink_metadata(out.join(name)).is_err(), "{name}");
    }
    assert!(ended.end.notes.iter().any(|note| note.contains("left out")), "{:?}", ended.end.notes);
}

#[test]
fn a_guest_says_how_it_ended() {
    let Some((guest, kernels)) = Guest::new("a_guest_says_how_it_ended") else { return };
    let kernel = kernels.last().expect("a kernel");
    let dir = tempfile::tempdir().expect("a directory");
    let mut request =
        Request::new("ryzen-5750g", kernel, &["echo good; echo bad >&2; echo kept > out/file; exit 7"]);
    request.out = Some(dir.path().to_owned());
    let ended = guest.run(&request);
    ended.must_exit(7, "a command that fails");
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("good\n", "bad\n"));
    assert_eq!(fs::read_to_string(dir.path().join("file")).expect("the file"), "kept\n");

    let mut request = Request::new("ryzen-5750g", kernel, &["true"]);
    request.append = vec!["rdinit=/nowhere".into(), "panic=1".into()];
    let ended = guest.run(&request);
    ended.must_exit(125, "a kernel that panics");
    assert!(ended.end.last_words(40).contains("panic"), "{}", ended.end.last_words(40));

    let mut request = Request::new("ryzen-5750g", kernel, &["echo begun; sleep 1000"]);
    request.timeout = Some(Duration::from_secs(60));
    let ended = guest.run(&request);
    ended.must_exit(124, "a command that lasts");
    assert_eq!(ended.out, "begun\n");
}
