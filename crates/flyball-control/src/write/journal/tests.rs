//! Tests of the journal: damage, torn ends, compaction, old formats.

use proptest::prelude::*;

use super::*;

fn location(number: u32) -> Location {
    Location::file(format!("/sys/devices/system/cpu/cpufreq/policy{number}/scaling_governor"))
}

fn text(text: &str) -> Content {
    Content::Text(text.to_owned())
}

fn handling() -> Handling {
    Subject::from_location(&location(0)).and_then(|subject| subject.handling("powersave")).unwrap()
}

fn was(number: u32, content: &str) -> (Location, Content, Handling) {
    (location(number), text(content), handling())
}

fn write(number: u32, old: &str, new: &str) -> Announced {
    Announced {
        location: location(number),
        old: text(old),
        new: new.to_owned(),
        handling: handling(),
        kept: false,
    }
}

fn state() -> (tempfile::TempDir, StateDir) {
    let folder = tempfile::tempdir().unwrap();
    let state = StateDir::new(folder.path());
    (folder, state)
}

/// Writes a journal with one committed and one open transaction.
fn written(state: &StateDir) -> Vec<u8> {
    let (mut journal, aside) = Journal::open(state, "live", Some("boot-1")).unwrap();
    assert_eq!(aside, None);
    let first = journal.begin(Purpose::Set, "flyball set governor=performance").unwrap();
    journal.announce(vec![was(0, "powersave\n")], vec![write(0, "powersave\n", "performance")]).unwrap();
    journal.commit(first).unwrap();
    journal.begin(Purpose::Set, "flyball apply quiet.toml").unwrap();
    journal
        .announce(
            vec![was(0, "performance\n"), was(1, "powersave\n")],
            vec![write(0, "performance\n", "powersave")],
        )
        .unwrap();
    std::fs::read(state.journal()).unwrap()
}

#[test]
fn what_was_written_is_read_back() {
    let (_folder, state) = state();
    written(&state);
    let contents = Journal::load(&state).unwrap().unwrap();
    assert_eq!(contents.entries.len(), 2);
    assert_eq!(contents.entries[0].standing, TransactionState::Committed);
    assert_eq!(contents.interrupted().unwrap().id, 2);
    let goals = Contents::goals(contents.pending());
    assert_eq!(goals.0[&location(0)].was, text("powersave\n"), "the oldest memory counts");
    assert_eq!(goals.0[&location(1)].was, text("powersave\n"));
}

/// Its record would count as another program's, and the restore would claim to be exact.
#[test]
fn a_place_that_could_not_be_undone_is_not_announced() {
    let (_folder, state) = state();
    let mut journal = Journal::open(&state, "live", Some("boot-1")).unwrap().0;
    journal.begin(Purpose::Set, "flyball set").unwrap();
    let elsewhere = Location::file("/sys/class/hwmon/hwmon0/pwm1");
    let foreign = Announced { location: elsewhere.clone(), ..write(0, "1\n", "2") };
    assert!(journal.announce(Vec::new(), vec![foreign]).is_err());
    assert!(journal.announce(vec![(elsewhere, text("1\n"), handling())], Vec::new()).is_err());
    assert!(Journal::load(&state).unwrap().unwrap().entries[0].was.is_empty());
}

#[test]
fn every_torn_end_is_tolerated_and_cut() {
    let (_folder, state) = state();
    let bytes = written(&state);
    let whole = Journal::load(&state).unwrap().unwrap();
    let header = bytes.iter().position(|&byte| byte == b'\n').unwrap();
    for length in 0..bytes.len() {
        std::fs::write(state.journal(), &bytes[..length]).unwrap();
        // A process that is killed while it appends has not written the length yet.
        remove(&length_path(&state.journal())).unwrap();
        let loaded = Journal::load(&state).unwrap();
        if length <= header {
            assert!(loaded.is_none(), "{length}");
            continue;
        }
        let loaded = loaded.unwrap();
        assert!(loaded.damaged.is_empty());
        assert!(loaded.entries.len() <= whole.entries.len());
        // Lines appended after a torn end can be read.
        let (mut journal, _) = Journal::open(&state, "live", Some("boot-1")).unwrap();
        if let Some(open) = journal.contents().interrupted().map(|entry| entry.id) {
            journal.restored(&[open]).unwrap();
        }
        if journal.contents().pending().next().is_some() {
            let id = journal.begin(Purpose::Set, "after").unwrap();
            assert!(Journal::load(&state).unwrap().unwrap().entries.iter().any(|entry| entry.id == id));
        }
    }
}

#[test]
fn a_journal_that_was_cut_off_is_damaged() {
    let (_folder, state) = state();
    let bytes = written(&state);
    let ends = (1..bytes.len()).filter(|&end| bytes[end - 1] == b'\n');
    for length in ends {
        std::fs::write(state.journal(), &bytes[..length]).unwrap();
        let found = |state| Journal::load(state).unwrap().unwrap().unusable();
        assert_eq!(found(&state), 1, "{length}");
        // The damage remains, whatever is appended.
        let (mut journal, _) = Journal::open(&state, "live", Some("boot-1")).unwrap();
        let open: Vec<u32> = journal.contents().interrupted().map(|entry| entry.id).into_iter().collect();
        journal.restored(&open).unwrap();
        while std::fs::metadata(state.journal()).unwrap().len() < bytes.len() as u64 {
            let id = journal.begin(Purpose::Set, "after").unwrap();
            journal.restored(&[id]).unwrap();
        }
        assert_eq!(found(&state), 1, "{length}");
        let (_, aside) = Journal::open(&state, "live", Some("boot-1")).unwrap();
        assert!(aside.is_none() && found(&state) == 1);
        std::fs::write(state.journal(), &bytes).unwrap();
        std::fs::write(length_path(&state.journal()), bytes.len().to_string()).unwrap();
    }
    std::fs::write(state.journal(), "").unwrap();
    assert!(matches!(Journal::load(&state), Err(JournalError::NoHeader { .. })));
    // Another boot begins a new journal, without damage.
    std::fs::write(state.journal(), &bytes[..bytes.len() / 2]).unwrap();
    Journal::open(&state, "live", Some("boot-2")).unwrap();
    assert_eq!(Journal::load(&state).unwrap().unwrap().unusable(), 0);
}

#[test]
fn damage_in_the_middle_is_reported_and_the_rest_is_used() {
    let (_folder, state) = state();
    let mut bytes = written(&state);
    let third = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(1).unwrap().0 + 20;
    bytes[third] ^= 1;
    std::fs::write(state.journal(), &bytes).unwrap();
    let contents = Journal::load(&state).unwrap().unwrap();
    assert_eq!(contents.damaged, [3]);
    assert_eq!(contents.entries.len(), 2);
}

#[test]
fn an_earlier_boot_is_set_aside_and_another_machine_is_refused() {
    let (_folder, state) = state();
    written(&state);
    let other = Journal::open(&state, "sim:rome", Some("boot-1")).unwrap_err();
    assert!(matches!(other, JournalError::OtherMachine { .. }), "{other}");
    let (journal, aside) = Journal::open(&state, "live", Some("boot-2")).unwrap();
    assert!(aside.is_some());
    assert!(journal.contents().entries.is_empty());
    assert!(state.journal().with_extension("earlier-boot").exists());
}

#[test]
fn nothing_begins_while_a_transaction_is_open() {
    let (_folder, state) = state();
    written(&state);
    let (mut journal, _) = Journal::open(&state, "live", Some("boot-1")).unwrap();
    let error = journal.begin(Purpose::Set, "flyball set x=y").unwrap_err();
    assert!(matches!(&error, JournalError::Interrupted { entry } if entry.id == 2), "{error}");
}

#[test]
fn a_journal_with_nothing_pending_goes_away() {
    let (_folder, state) = state();
    written(&state);
    let (mut journal, _) = Journal::open(&state, "live", Some("boot-1")).unwrap();
    journal.restored(&[2]).unwrap();
    assert!(state.journal().exists());
    journal.restored(&[1]).unwrap();
    assert!(!state.journal().exists());
}

#[test]
fn other_formats_and_foreign_files_are_refused() {
    let (_folder, state) = state();
    for format in [FORMAT - 1, FORMAT + 1] {
        let other = line(&Record::Header { format, boot: None, machine: "live".to_owned() });
        std::fs::write(state.journal(), other).unwrap();
        assert!(matches!(Journal::load(&state), Err(JournalError::OtherFormat { .. })), "{format}");
    }
    std::fs::write(state.journal(), "something else\n").unwrap();
    assert!(matches!(Journal::load(&state), Err(JournalError::NoHeader { .. })));
}

#[test]
fn compacting_keeps_what_restoring_needs() {
    let (_folder, state) = state();
    written(&state);
    let (mut journal, _) = Journal::open(&state, "live", Some("boot-1")).unwrap();
    for round in 0..50 {
        let new = if round % 2 == 0 { "performance" } else { "powersave" };
        journal.announce(vec![], vec![write(0, "x", new)]).unwrap();
    }
    let before = std::fs::metadata(state.journal()).unwrap().len();
    let goals = Contents::goals(journal.contents().pending());
    journal.compact().unwrap();
    journal.announce(vec![], vec![write(1, "x", "y")]).unwrap();
    let after = Journal::load(&state).unwrap().unwrap();
    assert!(std::fs::metadata(state.journal()).unwrap().len() < before / 3);
    assert_eq!(
        Contents::goals(after.pending()).0.keys().collect::<Vec<_>>(),
        goals.0.keys().collect::<Vec<_>>()
    );
    assert_eq!(after.interrupted().unwrap().id, 2);
}

#[test]
fn compacting_keeps_what_is_not_known_for_certain() {
    let (_folder, state) = state();
    let (mut journal, _) = Journal::open(&state, "live", Some("boot-1")).unwrap();
    journal.begin(Purpose::Set, "flyball set online=on governor=performance").unwrap();
    let online = Location::file("/sys/devices/system/cpu/cpu3/online");
    let handling = Subject::from_location(&online).and_then(|subject| subject.handling("0")).unwrap();
    let busy =
        |number| (location(number), Content::Unreadable(flyball_host::Errno::BUSY.0), self::handling());
    let brings = Announced { location: online, old: text("0"), new: "1".to_owned(), handling, kept: false };
    journal.announce(vec![busy(2), busy(3)], vec![brings]).unwrap();
    // The content of policy 3 is known: this transaction brought its CPU online. Something else
    // brought the CPU of policy 2 online.
    journal.announce(vec![was(2, "powersave"), was(3, "powersave")], vec![write(0, "x", "y")]).unwrap();
    let uncertain = |contents: &Contents| -> Vec<bool> {
        Contents::goals(contents.pending()).0.values().map(|goal| goal.uncertainty.is_some()).collect()
    };
    let before = uncertain(journal.contents());
    assert_eq!(before.iter().filter(|is| **is).count(), 1);
    let brought = journal.contents().interrupted().unwrap().brought.clone();
    journal.compact().unwrap();
    let after = Journal::load(&state).unwrap().unwrap();
    assert_eq!(uncertain(&after), before);
    assert_eq!(after.interrupted().unwrap().brought, brought);
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn flipping_any_bit_never_invents_a_record(at in 0usize..2000, bit in 0u8..8) {
        let (_folder, state) = state();
        let mut bytes = written(&state);
        let before = Journal::load(&state).unwrap().unwrap();
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        let (_, after) = parse(&bytes);
        for entry in &after.entries {
            for (location, content) in &entry.was {
                prop_assert!(before.entries.iter().any(|known| known.was.get(location) == Some(content)));
            }
        }
    }
}

/// A tree of files for restoring a journal.
struct Tree {
    folder: tempfile::TempDir,
    host: flyball_host::Plain,
    state: StateDir,
}

impl Tree {
    fn new(files: &[(&str, &str)]) -> Tree {
        let folder = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = folder.path().join(path.trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let host = flyball_host::Plain::open(folder.path()).unwrap();
        let state = StateDir::new(folder.path().join("state"));
        Tree { folder, host, state }
    }

    /// Writes a journal from records, with their checksums. `FORMAT` stands for the number, and
    /// `MACHINE` for the tree's name.
    fn journal(&self, records: &[&str]) {
        use flyball_host::Host as _;
        self.state.create().unwrap();
        let machine = self.host.name();
        let lines = records.iter().map(|record| {
            let record = record.replace("MACHINE", &machine).replace("FORMAT", &FORMAT.to_string());
            format!("{:08x} {record}\n", crc32fast::hash(record.as_bytes()))
        });
        std::fs::write(self.state.journal(), lines.collect::<String>()).unwrap();
    }

    fn restore(&self) -> crate::write::restore::Restoration {
        use crate::write::transaction::{Scope, restore};
        restore(&self.host, &self.state, "restore", Scope::All).unwrap().restoration
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(path.trim_start_matches('/'))).unwrap()
    }
}

/// A journal of one transaction.
const COMMITTED: &[&str] = &[
    r#"{"header":{"format":FORMAT,"boot":null,"machine":"MACHINE"}}"#,
    r#"{"begin":{"id":1,"pid":4211,"command":"flyball set turbo=off max-freq=2GHz","at":1770000000}}"#,
    r#"{"was":{"location":"/sys/devices/system/cpu/cpufreq/boost","content":{"text":"1\n"},"step":"turbo","spelling":"switch"}}"#,
    r#"{"was":{"location":"/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq","content":{"text":"4600000\n"},"step":"limit","spelling":"frequency-limit","bound":"upper"}}"#,
    r#"{"was":{"location":"/sys/devices/system/cpu/cpufreq/policy0/scaling_min_freq","content":{"text":"400000\n"},"step":"limit","spelling":"frequency-limit","bound":"lower"}}"#,
    r#"{"write":{"location":"/sys/devices/system/cpu/cpufreq/boost","old":{"text":"1\n"},"new":{"text":"0"},"step":"turbo","spelling":"switch"}}"#,
    r#"{"write":{"location":"/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq","old":{"text":"3300000\n"},"new":{"text":"2000000"},"step":"limit","spelling":"frequency-limit","bound":"upper"}}"#,
    r#"{"commit":{"id":1}}"#,
];

/// Restoring needs no row: the journal of a flyball with another knob can be restored.
#[test]
fn what_no_row_knows_is_restored() {
    const PATH: &str = "/sys/devices/system/cpu/cpufreq/policy0/knob_of_next_year";
    let tree = Tree::new(&[(PATH, "0\n")]);
    assert_eq!(Subject::from_location(&Location::file(PATH)), None);
    tree.journal(&[
        r#"{"header":{"format":FORMAT,"boot":null,"machine":"MACHINE"}}"#,
        r#"{"begin":{"id":1,"pid":4211,"command":"flyball set next=off","at":1770000000}}"#,
        r#"{"was":{"location":"/sys/devices/system/cpu/cpufreq/policy0/knob_of_next_year","content":{"text":"1\n"},"step":"limit","spelling":"switch"}}"#,
        r#"{"write":{"location":"/sys/devices/system/cpu/cpufreq/policy0/knob_of_next_year","old":{"text":"1\n"},"new":{"text":"0"},"step":"limit","spelling":"switch"}}"#,
        r#"{"commit":{"id":1}}"#,
    ]);
    assert!(tree.restore().is_exact());
    assert_eq!(tree.read(PATH), "1\n");
}

#[test]
fn a_damaged_journal_is_not_called_restored() {
    const POLICY: &str = "/sys/devices/system/cpu/cpufreq/policy0";
    let files = [
        ("/sys/devices/system/cpu/cpufreq/boost", "0\n"),
        ("/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", "2000000\n"),
        ("/sys/devices/system/cpu/cpufreq/policy0/scaling_min_freq", "400000\n"),
    ];
    for bad in 1..8 {
        let tree = Tree::new(&files);
        tree.journal(COMMITTED);
        let text = std::fs::read_to_string(tree.state.journal()).unwrap();
        let lines = text.lines().enumerate().map(|(number, line)| {
            if number == bad { format!("ffffffff{}\n", &line[8..]) } else { format!("{line}\n") }
        });
        std::fs::write(tree.state.journal(), lines.collect::<String>()).unwrap();
        let restoration = tree.restore();
        assert_eq!(restoration.damaged, 1, "line {bad}");
        assert!(!restoration.is_exact() && tree.state.journal().exists(), "line {bad}");
        // If the line with the saved content is gone, the old value of the write is used.
        assert_eq!(tree.read("/sys/devices/system/cpu/cpufreq/boost"), "1\n", "line {bad}");
        let max = tree.read(&format!("{POLICY}/scaling_max_freq"));
        assert_eq!(max, if bad == 3 { "3300000\n" } else { "4600000\n" }, "line {bad}");
    }
}

#[test]
fn a_boot_that_cannot_be_read_is_not_another_boot() {
    let (_folder, state) = state();
    written(&state);
    let error = Journal::open(&state, "live", None).unwrap_err();
    assert!(matches!(error, JournalError::BootUnknown { .. }), "{error}");
    assert!(state.journal().exists());
}

#[test]
fn a_purpose_may_be_absent_or_of_a_later_flyball() {
    let (_folder, state) = state();
    written(&state);
    let text = std::fs::read_to_string(state.journal()).unwrap();
    assert_eq!(Journal::load(&state).unwrap().unwrap().entries[0].purpose, Some(Purpose::Set));
    for (now, expected) in [("", None), (r#","purpose":"tune""#, Some(Purpose::Other))] {
        let line = |line: &str| {
            let json = line[9..].replace(r#","purpose":"set""#, now);
            format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()))
        };
        remove(&length_path(&state.journal())).unwrap();
        std::fs::write(state.journal(), text.lines().map(line).collect::<String>()).unwrap();
        let contents = Journal::load(&state).unwrap().unwrap();
        assert!(contents.damaged.is_empty(), "{:?}", contents.damaged);
        assert_eq!(contents.entries[0].purpose, expected);
    }
}

#[test]
fn a_journal_whose_header_is_damaged_is_restored_and_kept() {
    const MAX: &str = "/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq";
    let tree = Tree::new(&[(MAX, "2000000\n")]);
    let machine = flyball_host::Host::name(&tree.host);
    tree.state.create().unwrap();
    let (mut journal, _) = Journal::open(&tree.state, &machine, None).unwrap();
    let id = journal.begin(Purpose::Set, "flyball set max-freq=2GHz").unwrap();
    let location = Location::file(MAX);
    let handling = Subject::from_location(&location).and_then(|subject| subject.handling("4600000")).unwrap();
    let old = text("4600000\n");
    let write = Announced {
        location: location.clone(),
        old: old.clone(),
        new: "2000000".to_owned(),
        handling,
        kept: false,
    };
    journal.announce(vec![(location, old, handling)], vec![write]).unwrap();
    journal.commit(id).unwrap();
    let mut bytes = std::fs::read(tree.state.journal()).unwrap();
    bytes[20] ^= 1;
    std::fs::write(tree.state.journal(), &bytes).unwrap();
    let restoration = tree.restore();
    assert_eq!((restoration.damaged, restoration.left.len()), (1, 0), "{restoration}");
    assert_eq!(tree.read(MAX).trim(), "4600000");
    assert!(!restoration.is_exact() && tree.state.journal().exists());
    // It still belongs to its machine, and other commands can use it.
    assert!(matches!(Journal::open(&tree.state, "live", None), Err(JournalError::OtherMachine { .. })));
    let (mut journal, _) = Journal::open(&tree.state, &machine, None).unwrap();
    journal.begin(Purpose::Set, "flyball set epb=0").unwrap();
}

#[test]
fn a_boot_that_cannot_be_read_sets_nothing_aside() {
    let (_folder, state) = state();
    written(&state);
    assert!(matches!(Journal::open(&state, "live", None), Err(JournalError::BootUnknown { .. })));
    assert!(state.journal().exists());
}

#[test]
fn only_a_regular_file_is_a_journal() {
    let (folder, state) = state();
    let fifo = std::process::Command::new("mkfifo").arg(state.journal()).status().unwrap();
    assert!(fifo.success());
    // Reading a fifo would wait for a writer.
    assert!(matches!(Journal::load(&state), Err(JournalError::Io { .. })));
    assert!(matches!(Journal::open(&state, "live", None), Err(JournalError::Io { .. })));
    std::fs::remove_file(state.journal()).unwrap();
    let elsewhere = folder.path().join("elsewhere");
    std::fs::write(&elsewhere, "").unwrap();
    std::os::unix::fs::symlink(&elsewhere, state.journal()).unwrap();
    assert!(matches!(Journal::open(&state, "live", None), Err(JournalError::Io { .. })));
    assert_eq!(std::fs::read(&elsewhere).unwrap(), b"");
}

/// The journal contains commands that `restore` runs.
#[test]
fn what_others_may_write_is_no_journal() {
    let (_folder, state) = state();
    written(&state);
    let files = std::fs::read_dir(state.path()).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = files.collect();
    assert!(files.len() > 1, "the journal and its length");
    for path in files {
        let mode = |mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(&path, mode).unwrap();
        };
        mode(0o666);
        let loaded = Journal::load(&state).and_then(|_| Journal::open(&state, "live", Some("boot-1")));
        let refused = loaded.map(drop).unwrap_err().to_string();
        assert!(refused.contains("another user could have written"), "{}: {refused}", path.display());
        mode(0o600);
        assert!(Journal::load(&state).is_ok());
    }
}

/// A journal lists files and their contents. Files that flyball never writes must be ignored.
#[test]
fn a_journal_cannot_name_files_that_flyball_does_not_write() {
    for path in [
        "/etc/shadow",
        "/sys/devices/system/cpu/../../../../etc/shadow",
        "/sys/kernel/uevent_helper",
        "/proc/irq/../sys/kernel/core_pattern",
    ] {
        let plain = format!("/{}", path.rsplit("../").next().unwrap_or_default().trim_start_matches('/'));
        let tree = Tree::new(&[(&plain, "mine\n"), ("/sys/devices/system/cpu/online", "0\n")]);
        let handling = r#""step":"limit","spelling":"number""#;
        tree.journal(&[
            r#"{"header":{"format":FORMAT,"boot":null,"machine":"MACHINE"}}"#,
            r#"{"begin":{"id":1,"pid":1,"command":"flyball set x=y","at":1}}"#,
            &format!(r#"{{"was":{{"location":"{path}","content":{{"text":"theirs"}},{handling}}}}}"#),
            &format!(
                r#"{{"write":{{"location":"{path}","old":{{"text":"theirs"}},"new":{{"text":"x"}},{handling}}}}}"#
            ),
            r#"{"commit":{"id":1}}"#,
        ]);
        let restoration = tree.restore();
        assert_eq!(tree.read(&plain), "mine\n", "{path}");
        assert_eq!(restoration.foreign.len(), 2, "{restoration}");
        assert!(!restoration.is_exact() && tree.state.journal().exists());
    }
}
