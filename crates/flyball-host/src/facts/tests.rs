use proptest::prelude::*;

use super::*;

fn file(text: &str) -> Fact {
    Fact::File { bytes: text.as_bytes().to_vec(), writable: false }
}

fn machine(facts: &[(&str, Fact)]) -> Facts {
    Facts {
        facts: facts.iter().map(|(path, fact)| ((*path).to_owned(), fact.clone())).collect(),
        ..Facts::default()
    }
}

#[test]
fn paths_and_values_are_folded() {
    let mut facts = Facts { head: vec![("name".into(), "sixteen CPUs".into())], ..Facts::default() };
    for cpu in 0..16u32 {
        let base = format!("sys/devices/system/cpu/cpu{cpu}");
        let siblings = format!("{},{}\n", cpu % 8, cpu % 8 + 8);
        facts.facts.insert(format!("{base}/topology/thread_siblings_list"), file(&siblings));
        facts.facts.insert(format!("{base}/topology/die_id"), file(&format!("{}\n", cpu / 8)));
        facts.facts.insert(format!("{base}/cpufreq"), Fact::Link(format!("../cpufreq/policy{cpu}")));
        let policy = format!("sys/devices/system/cpu/cpufreq/policy{cpu}");
        facts
            .facts
            .insert(format!("{policy}/scaling_cur_freq"), file(&format!("{}\n", 800_000 + cpu / 8 * 31)));
        let governor = Fact::File { bytes: b"powersave\n".to_vec(), writable: true };
        facts.facts.insert(format!("{policy}/scaling_governor"), governor);
        facts.registers.insert((0x1b0, cpu), 6);
    }
    facts.facts.insert("sys/devices/system/cpu/online".into(), file("0-3\n"));
    facts.facts.insert("sys/devices/system/cpu/kernel_max".into(), Fact::Fails(Errno::IO));
    facts.facts.insert("proc/version".into(), file("one \ntwo\n"));
    let text = facts.to_text();
    assert_eq!(
        text,
        r#"flyball facts 1
name: sixteen CPUs

[/proc]
version =
|"one "
| two

[/sys/devices/system/cpu]
cpu{0-15}/cpufreq -> ../cpufreq/policy{}
cpu{0-15}/topology/die_id = {0*8 1*8}
cpu{0-7}/topology/thread_siblings_list = {},{+8}
cpu{8-15}/topology/thread_siblings_list = {-8},{}
kernel_max ! EIO
online = 0-3

[/sys/devices/system/cpu/cpufreq]
policy{0-15}/scaling_cur_freq = {800000*8 800031*8}
policy{0-15}/scaling_governor := powersave

[msr]
0x1b0 {0-15} = 6
"#
    );
    assert_eq!(Facts::parse(&text).unwrap(), facts);
}

#[test]
fn cpuinfo_is_one_block() {
    let mut text = String::new();
    for cpu in 0..6 {
        text += &format!(
            "processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu MHz\t\t: {}.000\ncore id\t\t: {}\nflags\t\t: fpu {{}} \nbugs\t\t:\n\n",
            800 + 100 * (cpu / 4),
            cpu / 2,
        );
    }
    let facts = machine(&[("proc/cpuinfo", file(&text))]);
    let text = facts.to_text();
    assert!(text.contains("cpuinfo {0-5} =\n| processor\t: {}\n"), "{text}");
    assert!(text.contains("| cpu MHz\t\t: {800.000*4 900.000*2}\n"), "{text}");
    assert_eq!(text.lines().count(), 11, "{text}");
    assert_eq!(Facts::parse(&text).unwrap(), facts);
}

#[test]
fn what_cannot_be_read_is_named_with_its_line() {
    let wrong = |text: &str| Facts::parse(&format!("flyball facts 1\n\n{text}")).unwrap_err();
    for (text, line) in [
        ("[/sys\n", 3),
        ("[/sys]\na\n", 4),
        ("[/sys]\na ? b\n", 4),
        ("[/sys]\n../a = b\n", 4),
        ("[/sys/../etc]\n", 3),
        ("[/sys]\na = b\na = c\n", 5),
        ("[/sys]\na{0-3} = {1 2}\n", 4),
        ("[/sys]\na{0-3} = {-1}\n", 4),
        ("[/sys]\na{0-4000000000} = 1\n", 4),
        ("[/sys]\na{0-1} = {1*18446744073709551615 1}\n", 4),
        ("[/sys]\na = {}\n", 4),
        ("[/sys]\na = \"b\n", 4),
        ("[/sys]\na ! ENOTHING\n", 4),
        ("[msr]\n0x1b0 {0} = x\n", 4),
        ("[kernel log]\nline\n", 4),
    ] {
        assert_eq!(wrong(text).line, line, "{text}");
    }
    assert_eq!(Facts::parse("flyball facts 2\n").unwrap_err().line, 1);
    assert_eq!(Facts::parse("").unwrap_err().line, 1);
}

/// Bytes of attributes: short words and numbers, and now and then anything.
fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => "[0-9]{1,4}\n".prop_map(String::into_bytes),
        2 => "[a-z0-9,-]{0,6} ?[{}*\"+-]?[a-z]{0,3}\n?".prop_map(String::into_bytes),
        1 => "(processor\t: [0-9]\nkey\t: [0-9 {]{0,3}\n\n){1,3}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..12),
        1 => prop::collection::vec(prop_oneof![Just(b'\n'), Just(b' '), Just(b'|'), Just(b'\\'), any::<u8>()], 0..8),
    ]
}

fn fact() -> impl Strategy<Value = Fact> {
    prop_oneof![
        6 => (content(), any::<bool>()).prop_map(|(bytes, writable)| Fact::File { bytes, writable }),
        1 => "[a-z0-9./ {}\"]{0,8}".prop_map(Fact::Link),
        1 => prop_oneof![Just(5), Just(16), Just(999), any::<i32>()].prop_map(|number| Fact::Fails(Errno(number))),
        1 => Just(Fact::Folder),
    ]
}

fn facts() -> impl Strategy<Value = Facts> {
    let part =
        prop_oneof![4 => "(cpu|policy|state)[0-9]{0,2}", 1 => "[a-z {}\"|#=]{1,4}", 1 => "[^/\0]{1,3}"];
    let part = part.prop_filter("a path's part", |part| !matches!(part.as_str(), "." | ".."));
    let path = prop::collection::vec(part, 1..4).prop_map(|parts| parts.join("/"));
    (
        prop::collection::btree_map(path, fact(), 0..40),
        prop::collection::btree_map((0..4u32, 0..9u32), prop_oneof![Just(6), any::<u64>()], 0..20),
        prop::option::of("([a-z\t\\[|]{0,9}\n){0,3}"),
    )
        .prop_map(|(facts, registers, log)| Facts { head: Vec::new(), facts, registers, log })
}

proptest! {
    #[test]
    fn any_machine_comes_back(facts in facts()) {
        let text = facts.to_text();
        prop_assert_eq!(Facts::parse(&text).map_err(|error| format!("{error}\n{text}")), Ok(facts));
    }

    #[test]
    fn no_text_makes_it_panic(text in any::<String>(), lines in prop::collection::vec(
        "[a-z]{0,3}(\\{[0-9,+*-]{0,5}\\})?[ =:!>|\"\\\\\\[\\]{}*x0-9a-]{0,12}", 0..6)) {
        let _ = Facts::parse(&text);
        let _ = Facts::parse(&format!("flyball facts 1\n\n[/sys]\n{}", lines.join("\n")));
        let _ = Facts::parse(&format!("flyball facts 1\n\n[msr]\n{}", lines.join("\n")));
    }

    #[test]
    fn damage_does_not_make_it_panic(facts in facts(), at in any::<prop::sample::Index>(), with in any::<char>()) {
        let text: Vec<char> = facts.to_text().chars().collect();
        let mut changed = text.clone();
        let at = at.index(text.len());
        changed[at] = with;
        let _ = Facts::parse(&changed.iter().collect::<String>());
        let _ = Facts::parse(&text[..at].iter().collect::<String>());
    }
}
