//! An Arm server as cppc_cpufreq shows it, in files that change between samples: levels and limits
//! of an Ampere Altra (3.0 GHz highest, 2.8 GHz nominal), whose counters tell the speed.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::{fs, time::Duration};

use flyball_host::{Host as _, Plain};
use flyball_monitor::{Certainty, Explanation, Facts, Limiter, Options, Sampler, explain};

const CPUS: &str = "sys/devices/system/cpu";
const CORES: u32 = 4;

struct Server(tempfile::TempDir);

impl Server {
    fn new(governor: &str, report: &str) -> Server {
        let server = Server(tempfile::tempdir().unwrap());
        for list in ["online", "present", "possible"] {
            server.put(&format!("{CPUS}/{list}"), "0-3");
        }
        let mut info = String::new();
        for cpu in 0..CORES {
            info += &format!("processor\t: {cpu}\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\n");
            for (file, value) in [("physical_package_id", 0), ("core_id", cpu)] {
                server.put(&format!("{CPUS}/cpu{cpu}/topology/{file}"), &value.to_string());
            }
            let levels = [("highest_perf", 300), ("nominal_perf", 280), ("lowest_perf", 100)];
            for (file, value) in levels.into_iter().chain([("nominal_freq", 2800), ("reference_perf", 100)]) {
                server.put(&format!("{CPUS}/cpu{cpu}/acpi_cppc/{file}"), &value.to_string());
            }
            let policy = format!("{CPUS}/cpufreq/policy{cpu}");
            let number = cpu.to_string();
            for (file, value) in [
                ("affected_cpus", number.as_str()),
                ("related_cpus", &number),
                ("scaling_driver", "cppc_cpufreq"),
                ("scaling_governor", governor),
                ("scaling_available_governors", "performance schedutil"),
                ("scaling_min_freq", "1000000"),
                ("scaling_max_freq", "3000000"),
                ("scaling_cur_freq", "3000000"),
                ("cpuinfo_min_freq", "1000000"),
                ("cpuinfo_max_freq", "3000000"),
                ("perf_limited", report),
            ] {
                server.put(&format!("{policy}/{file}"), value);
            }
        }
        server.put("proc/cpuinfo", &info);
        server.put("proc/version", "Linux version 7.2.13 (made) #1 SMP");
        server
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    /// Sets the counters to those after `steps` of 100 ticks in which CPU 0 ran at this frequency
    /// and the others slept.
    fn run(&self, steps: u64, mhz: u64) {
        let mut stat = String::from("cpu  0 0 0 0 0 0 0 0 0 0\n");
        for cpu in 0..CORES {
            let (busy, idle) = if cpu == 0 { (steps * 100, 0) } else { (0, steps * 100) };
            stat += &format!("cpu{cpu} {busy} 0 0 {idle} 0 0 0 0 0 0\n");
            // The reference counter has its own rate: here, 25 MHz stand for 1.0 GHz.
            let text = format!("ref:{} del:{}", 25_000_000 * steps, 25_000_000 * steps * mhz / 1000);
            self.put(&format!("{CPUS}/cpu{cpu}/acpi_cppc/feedback_ctrs"), &text);
        }
        self.put("proc/stat", &stat);
    }

    /// Explains CPU 0 at this frequency. `reports` are perf_limited in the two later samples.
    fn why(&self, mhz: u64, reports: [&str; 2]) -> Explanation {
        self.run(1, mhz);
        let host = Plain::open(self.0.path()).unwrap();
        let mut sampler =
            Sampler::open(&host, Options { slow: Duration::ZERO, ..Options::default() }).unwrap();
        sampler.begin();
        self.run(2, mhz);
        let mut samples = vec![sampler.sample()];
        for (steps, report) in (3..).zip(reports) {
            host.sleep(Duration::from_millis(20));
            self.run(steps, mhz);
            self.put(&format!("{CPUS}/cpufreq/policy0/perf_limited"), report);
            samples.push(sampler.sample());
        }
        assert!(samples.iter().all(|sample| sample.cost.touched <= 1), "no sleeping CPU is asked");
        let facts = Facts::take(&host, sampler.layout(), |_| None).unwrap();
        let only = std::iter::once(0).collect();
        explain(sampler.layout(), &facts, &samples, Some(&only)).remove(0)
    }
}

/// The report is sticky: only a bit that changes from clear to set proves a limit in between.
#[test]
fn a_report_that_comes_is_proof_and_one_that_was_there_is_not() {
    for (before, reports, limiter, is_measured, says) in [
        ("0", ["1", "1"], Limiter::Platform, true, "1 since the watch began"),
        ("0", ["0", "3"], Limiter::Platform, true, "3 since the watch began: less than the minimum"),
        ("1", ["1", "3"], Limiter::Platform, true, "2 since the watch began"),
        ("1", ["0", "1"], Limiter::Platform, true, "1 since the watch began"),
        ("1", ["1", "1"], Limiter::Platform, false, "1 since before the watch"),
        ("0", ["0", "0"], Limiter::Unseen, false, "0: the processor reports no limit"),
    ] {
        let found = Server::new("performance", before).why(2000, reports);
        let mhz = found.mhz.unwrap();
        assert!((mhz - 2000.0).abs() < 1.0 && found.highest == Some(3000.0), "{found:?}");
        assert!(found.busy.unwrap() > 0.99, "{found:?}");
        // Before the report appears, the limit is not known.
        let step = found.steps.iter().find(|step| step.limiter == limiter);
        let step = step.unwrap_or_else(|| panic!("{found:?}"));
        assert_eq!(step.certainty == Certainty::Measured, is_measured, "{found:?}");
        assert!(step.evidence.pieces().iter().any(|piece| piece.value.contains(says)), "{says}: {found:?}");
    }
}

#[test]
fn a_limit_in_the_files_needs_no_report() {
    let server = Server::new("performance", "1");
    server.put(&format!("{CPUS}/cpufreq/policy0/scaling_max_freq"), "2000000");
    let found = server.why(2000, ["1", "1"]);
    assert_eq!(found.steps.iter().map(|step| step.limiter).collect::<Vec<_>>(), [Limiter::MaxFreq]);
    let found = Server::new("performance", "<unsupported>").why(3000, ["<unsupported>"; 2]);
    assert!(found.steps.is_empty(), "{found:?}");
    // The platform delivered what the governor requested, which was less.
    let found = Server::new("schedutil", "0").why(2000, ["0", "0"]);
    assert_eq!(found.steps.iter().map(|step| step.limiter).collect::<Vec<_>>(), [Limiter::Governor]);
    // Switching off boost lowers cpuinfo_max_freq too.
    let server = Server::new("performance", "0");
    for file in ["cpuinfo_max_freq", "scaling_max_freq"] {
        server.put(&format!("{CPUS}/cpufreq/policy0/{file}"), "2800000");
    }
    server.put(&format!("{CPUS}/cpufreq/policy0/boost"), "0");
    let found = server.why(2800, ["0", "0"]);
    assert_eq!(found.first().map(|step| step.limiter), Some(Limiter::TurboOff), "{found:?}");
}
