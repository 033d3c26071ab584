//! Speed Select's driver with wrong answers: a machine in memory whose calls succeed, and answer
//! what the bytes say.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use flyball_host::{CpuList, Errno, Host, HostError, Op};
use flyball_sst::{
    layout::Layout,
    model,
    recommend::{self, Goal},
};
use flyball_sst_fake::FakeMachine;

use crate::outcome;

/// The machine, with answers changed: of each five bytes the first two say in which call (modulo
/// 512), the third where, the fourth what is there instead, and the fifth how many bytes more get
/// the same; 255 at the third makes the call fail.
struct Wrong<'b> {
    machine: FakeMachine,
    changes: Vec<&'b [u8]>,
    calls: AtomicUsize,
}

impl Host for Wrong<'_> {
    flyball_host::forward!(
        machine: kind, name, read_into, write, list, exists, writable, link, msr, write_msr
    );

    fn isst(&self, number: u32, argument: &mut [u8]) -> Result<i32, HostError> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let answer = self.machine.isst(number, argument)?;
        for change in self
            .changes
            .iter()
            .filter(|change| usize::from(u16::from_le_bytes([change[0], change[1]])) % 512 == call % 512)
        {
            if change[2] == 255 {
                return Err(HostError::new(Op::Isst, "a call", Errno(i32::from(change[3] % 133))));
            }
            let from = usize::from(change[2]) % argument.len().max(1);
            let to = (from + 1 + usize::from(change[4] % 32)).min(argument.len());
            argument[from..to].fill(change[3]);
        }
        Ok(answer)
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, _time: Duration) {}
}

/// The bytes as answers behind one that chooses the machine: everything that is read of Speed
/// Select, recommendations, and the plan of a change.
pub fn answers(bytes: &[u8]) -> String {
    let Some((kind, rest)) = bytes.split_first() else { return String::new() };
    let machine = match kind % 6 {
        0 => FakeMachine::small(true),
        1 => FakeMachine::small(false),
        2 => FakeMachine::guide(true),
        3 => FakeMachine::guide(false),
        4 => FakeMachine::small(true).with_io_domains(2),
        _ => FakeMachine::guide(false).as_skylake(),
    };
    let host = Wrong { machine, changes: rest.chunks_exact(5).collect(), calls: AtomicUsize::new(0) };
    let planned = planned(&host);
    outcome(Layout::read(&host), |layout| {
        let access = layout.access(&host);
        let mut seen = format!("{} {planned}", layout.domains.len().min(5));
        for domain in &layout.domains {
            let _ = model::domain(access.as_ref(), domain);
            for number in model::level_numbers(access.as_ref(), domain).unwrap_or_default() {
                seen.push(if model::level(&layout, access.as_ref(), domain, number).is_ok() {
                    'o'
                } else {
                    'x'
                });
            }
            let cpus: CpuList = domain.cpus.iter().take(2).collect();
            for goal in [Goal::Guaranteed, Goal::Turbo] {
                let found = recommend::candidates(&layout, &host, domain, &cpus, goal);
                seen.push_str(&found.map_or_else(|_| "-".to_owned(), |found| found.len().min(9).to_string()));
            }
        }
        seen.chars().take(60).collect()
    })
}

fn planned(host: &dyn Host) -> String {
    let words = ["sst-level=1", "sst-bf=on", "sst-cp=on"];
    let Ok(intent) = flyball_control::Intent::from_arguments(&words, None) else { return "?".to_owned() };
    outcome(flyball_control::Snapshot::for_intent(host, &intent), |snapshot| {
        outcome(flyball_control::plan::plan(&snapshot, &intent), |plan| plan.changes.len().min(9).to_string())
    })
}
