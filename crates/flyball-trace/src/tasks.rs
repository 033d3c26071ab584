//! Names of tasks. A ring-buffer record has only a task's number; `saved_cmdlines`, which the
//! kernel fills while it traces and trace.dat files contain, has the names.

use std::collections::HashMap;

use crate::comm::Comm;
use crate::events::Event;
use crate::record::Record;

/// Known names by task number.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    names: HashMap<i32, Comm>,
}

impl Tasks {
    /// Parses `saved_cmdlines`: lines with a number, a blank and a name. Other lines are skipped.
    pub fn parse(bytes: &[u8]) -> Tasks {
        let mut names = HashMap::new();
        // trace-cmd ends the section with a NUL.
        for line in bytes.split(|byte| matches!(byte, b'\n' | 0)) {
            let Some((pid, end)) = crate::scan::signed(line, 0) else { continue };
            if let (Ok(pid), Some(b' '), Some(name)) =
                (i32::try_from(pid), line.get(end), line.get(end + 1..))
            {
                names.insert(pid, Comm::new(name));
            }
        }
        Tasks { names }
    }

    /// The name of task `pid`: `<idle>` for 0 and `<...>` for an unknown task, as the kernel prints
    /// them.
    pub fn name(&self, pid: i32) -> Comm {
        if pid == 0 {
            return Comm::new(b"<idle>");
        }
        self.names.get(&pid).copied().unwrap_or_else(|| Comm::new(b"<...>"))
    }

    /// Adds names from a task switch for tasks without a name.
    pub fn learn(&mut self, record: &Record) {
        if let Event::Switch(switch) = &record.event {
            for (pid, comm) in [(switch.prev_pid, switch.prev_comm), (switch.next_pid, switch.next_comm)] {
                // Number 0 is the idle task of every CPU (swapper/N), which prints as <idle>.
                if pid != 0 {
                    self.names.entry(pid).or_insert(comm);
                }
            }
        }
    }

    /// All names by number, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (i32, Comm)> + '_ {
        self.names.iter().map(|(pid, name)| (*pid, *name))
    }

    /// Returns the number of known names.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns whether no name is known.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_hold_blanks() {
        let tasks = Tasks::parse(b"18 migration/0\n7 job [1] 2\nnonsense\n-1 x\n9\n");
        assert_eq!(tasks.name(18).to_string(), "migration/0");
        assert_eq!(tasks.name(7).to_string(), "job [1] 2");
        assert_eq!((tasks.name(0).to_string(), tasks.name(9).to_string()), ("<idle>".into(), "<...>".into()));
        assert_eq!(tasks.len(), 3);
    }
}
