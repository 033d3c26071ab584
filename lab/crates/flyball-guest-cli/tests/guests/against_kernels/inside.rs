//! The part that runs in the guest: performs the script's writes on the real kernel, and compares
//! each answer and the state after it.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{Read as _, Write as _},
    os::unix::fs::{FileExt as _, PermissionsExt as _},
    thread,
    time::Duration,
};

use rustix::thread::CpuSet;

use super::script::{self, CPU, Look, Machine, agrees, escape};

/// The machine that this program runs on.
struct Here;

fn number(error: &std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(-1)
}

impl Machine for Here {
    fn list(&mut self, dir: &str) -> Vec<(String, u32)> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| {
                let meta = fs::symlink_metadata(entry.path()).ok().filter(fs::Metadata::is_file)?;
                Some((entry.file_name().into_string().ok()?, meta.permissions().mode() & 0o777))
            })
            .collect()
    }

    fn mode(&mut self, path: &str) -> Option<u32> {
        Some(fs::metadata(path).ok()?.permissions().mode() & 0o777)
    }

    fn read(&mut self, path: &str) -> Result<Vec<u8>, i32> {
        let mut bytes = Vec::new();
        let mut file = File::open(path).map_err(|e| number(&e))?;
        file.read_to_end(&mut bytes).map_err(|e| number(&e))?;
        Ok(bytes)
    }

    fn write(&mut self, path: &str, text: &[u8]) -> Result<(), i32> {
        let mut file = OpenOptions::new().write(true).open(path).map_err(|e| number(&e))?;
        file.write(text).map(drop).map_err(|e| number(&e))
    }

    fn register(&mut self, cpu: u32, register: u32) -> Result<u64, i32> {
        let mut bytes = [0; 8];
        let file = File::open(format!("/dev/cpu/{cpu}/msr")).map_err(|e| number(&e))?;
        file.read_exact_at(&mut bytes, register.into()).map_err(|e| number(&e))?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// Makes every CPU schedule this thread once, so that a governor that follows load has sent its
/// request.
///
/// schedutil does not send a request when it starts (`sugov_start`) but at the next scheduler event
/// on the CPU, and an idle CPU may have none for seconds. Until then the register holds the earlier
/// driver's value: on 6.12 `amd_pstate_epp_cpu_offline` leaves EPP 191, and the first request of
/// the driver without preferences, whose `cppc_req_cached` starts at 0, sets it to 0.
fn wake_all(cpus: u32) {
    let mut all = CpuSet::new();
    for cpu in 0..cpus {
        all.set(cpu as usize);
        // An offline CPU cannot be woken, and its register is not compared.
        if flyball_process::pin_thread(cpu).is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
    }
    // Fails only if none of the CPUs is online.
    let _ = rustix::thread::sched_setaffinity(None, &all);
}

/// Runs a script and prints each difference on a line, and then how much was compared. Unexpected
/// values are read again for a while: work items run late, and on a busy emulator very late.
pub(super) fn run(path: &str) {
    let text = fs::read_to_string(path).expect("a script");
    let (watch, steps) = script::read(&text);
    let mut expected = Look::new();
    let mut told: HashMap<String, (Option<String>, Option<String>)> = HashMap::new();
    let (mut compared, mut differing) = (0, 0);
    for (number, step) in steps.iter().enumerate() {
        if !step.path.is_empty() && step.path != "." {
            let answer = match Here.write(&format!("{CPU}/{}", step.path), &step.text) {
                Ok(()) => "ok".to_owned(),
                Err(errno) => errno.to_string(),
            };
            compared += 1;
            if answer != step.answer {
                println!("answer {number} {} {} {} {answer}", step.path, escape(&step.text), step.answer);
            }
        }
        for (path, value) in &step.changed {
            match value {
                Some(value) => expected.insert(path.clone(), value.clone()),
                None => expected.remove(path),
            };
        }
        let mut tries = 0;
        loop {
            thread::sleep(Duration::from_millis(2));
            let seen = script::look(&mut Here, &watch);
            let paths: Vec<&String> =
                expected.keys().chain(seen.keys().filter(|path| !expected.contains_key(*path))).collect();
            let wrong: Vec<&String> = paths
                .iter()
                .filter(|path| !agrees(expected.get(**path), seen.get(**path)))
                .copied()
                .filter(|path| {
                    told.get(*path).is_none_or(|told| {
                        (told.0.as_ref(), told.1.as_ref()) != (expected.get(*path), seen.get(*path))
                    })
                })
                .collect();
            tries += 1;
            // Retry less if a script has many differences.
            let patience = if differing > 40 { 2 } else { 9 };
            if !wrong.is_empty() && tries < patience {
                wake_all(watch.cpus);
                thread::sleep(Duration::from_millis(4 << tries.min(6)));
                continue;
            }
            compared += paths.len();
            differing += wrong.len();
            for path in wrong {
                let show =
                    |value: Option<&String>| value.map_or("-".to_owned(), |value| escape(value.as_bytes()));
                println!("value {number} {path} {} {}", show(expected.get(path)), show(seen.get(path)));
            }
            told.clear();
            for path in paths {
                if !agrees(expected.get(path), seen.get(path)) {
                    told.insert(path.clone(), (expected.get(path).cloned(), seen.get(path).cloned()));
                }
            }
            break;
        }
    }
    println!("compared {compared}");
}
