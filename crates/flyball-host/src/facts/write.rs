//! Facts into their text: paths that differ in one number are folded, in whichever form of their
//! values is shortest.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use flyball_text::Natural;

use super::{
    FORMAT, Fact, Facts, MAGIC,
    template::{Part, Template, escape, print},
};
use crate::{CpuList, Errno};

/// The highest number that is folded: the highest that a [`CpuList`] holds.
const HIGHEST: u32 = 65_535;
/// What another line costs a reader, in characters: a list may be that much longer than lines by
/// value.
const LINE: usize = 24;

/// What comes before a path's number and after it (nothing for a path without a number), and the
/// kind of its fact.
type Pattern<'a> = (&'a str, Option<&'a str>, u8);
/// A path, its number, what is there.
type Member<'a> = (&'a str, u32, &'a Fact);

/// Where a folder comes among the sections: its parts in their natural order, which has `cpu2`
/// before `cpu10`.
type Place = Vec<Natural<String>>;
/// A path, which orders the lines of a section, and its line.
type Line = (String, String);

/// Folders and their lines, by section.
#[derive(Default)]
struct Sections {
    lines: BTreeMap<Place, (String, BTreeSet<Line>)>,
}

impl Sections {
    fn add(&mut self, folder: &str, path: &str, line: String) {
        let key = folder.split('/').map(|part| Natural(part.to_owned())).collect();
        let section = self.lines.entry(key).or_insert_with(|| (folder.to_owned(), BTreeSet::new()));
        section.1.insert((path.to_owned(), line));
    }
}

impl Facts {
    /// The text form, the same for the same facts.
    pub fn to_text(&self) -> String {
        let mut out = format!("{MAGIC} {FORMAT}\n");
        for (key, value) in &self.head {
            let _ = writeln!(out, "{key}: {value}");
        }
        let mut sections = Sections::default();
        for (pattern, facts) in groups(&self.facts) {
            match (&facts[..], pattern) {
                // A group of one is shorter, and easier to read, as a path of its own.
                ([(path, _, fact)], _) => write_one(path, fact, &mut sections),
                (_, (before, after, _)) => {
                    write_group(before, after.unwrap_or_default(), &facts, &mut sections);
                }
            }
        }
        for (folder, lines) in sections.lines.into_values() {
            let _ = writeln!(out, "\n[{}]", print_path(&format!("/{folder}"), None, ""));
            for (_, line) in lines {
                out.push_str(&line);
                out.push('\n');
            }
        }
        self.write_registers(&mut out);
        if let Some(log) = &self.log {
            out.push_str("\n[kernel log]\n");
            for line in log.lines() {
                out.push_str(&block_line(line.as_bytes()));
            }
        }
        out
    }

    fn write_registers(&self, out: &mut String) {
        let mut by_register: BTreeMap<u32, BTreeMap<u32, Vec<u8>>> = BTreeMap::new();
        for ((register, cpu), value) in &self.registers {
            by_register.entry(*register).or_default().insert(*cpu, format!("{value:x}").into_bytes());
        }
        if !by_register.is_empty() {
            out.push_str("\n[msr]\n");
        }
        for (register, values) in by_register {
            // A CPU's number in a hexadecimal value means nothing.
            for (list, template) in fold(&values, false, &[View::Literal]) {
                let _ = writeln!(out, "{register:#x} {{{list}}} = {}", print(&template));
            }
        }
    }
}

/// The number that ends the first part of a path with such an end, as (start, end).
fn number(path: &str) -> Option<(usize, usize)> {
    let mut start = 0;
    for part in path.split('/') {
        let digits = part.len() - part.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (stem, text) = part.split_at(part.len() - digits);
        // `cpu01` and numbers above the bound must not become ranges: they would read back as other
        // paths.
        let plain = text == "0" || !text.is_empty() && !text.starts_with('0');
        if plain
            && stem.ends_with(|c: char| c.is_ascii_lowercase())
            && text.parse::<u32>().is_ok_and(|number| number <= HIGHEST)
        {
            return Some((start + stem.len(), start + part.len()));
        }
        start += part.len() + 1;
    }
    None
}

/// What kind of line a fact makes: only facts of one kind are folded together.
fn kind(fact: &Fact) -> u8 {
    match fact {
        Fact::File { writable: false, .. } => 0,
        Fact::File { writable: true, .. } => 1,
        Fact::Link(_) => 2,
        Fact::Fails(_) => 3,
        Fact::Folder => 4,
    }
}

/// Facts whose paths differ in one number only, in the order of the numbers.
fn groups(facts: &BTreeMap<String, Fact>) -> BTreeMap<Pattern<'_>, Vec<Member<'_>>> {
    let mut groups: BTreeMap<Pattern, Vec<Member>> = BTreeMap::new();
    for (path, fact) in facts {
        let (before, number, after) = match number(path) {
            Some((at, end)) => (&path[..at], path[at..end].parse().unwrap_or(0), Some(&path[end..])),
            None => (path.as_str(), 0, None),
        };
        groups.entry((before, after, kind(fact))).or_default().push((path, number, fact));
    }
    for group in groups.values_mut() {
        // The map has them in the order of text: 10 before 2.
        group.sort_by_key(|(_, number, _)| *number);
    }
    groups
}

/// A path in a line: bare if nothing in it means something else.
fn print_path(before: &str, list: Option<&CpuList>, after: &str) -> String {
    let special = |c: char| c.is_control() || matches!(c, ' ' | '"' | '\\' | '{' | '}');
    let quoted =
        // At the start of a line these would be a comment, a section or a block.
        before.starts_with(['#', '[', '|']) || [before, after].iter().any(|part| part.contains(special));
    let list = list.map_or(String::new(), |list| format!("{{{list}}}"));
    if !quoted {
        return format!("{before}{list}{after}");
    }
    let mut text = String::from("\"");
    escape(before.as_bytes(), &mut text);
    text.push_str(&list);
    escape(after.as_bytes(), &mut text);
    text.push('"');
    text
}

fn write_one(path: &str, fact: &Fact, sections: &mut Sections) {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let shown = print_path(name, None, "");
    let line = match fact {
        Fact::File { bytes, writable } => {
            let operator = if *writable { ":=" } else { "=" };
            match bytes.strip_suffix(b"\n") {
                Some(text) if text.contains(&b'\n') => {
                    repeated(text, &shown, operator).unwrap_or_else(|| {
                        let lines: String = text.split(|byte| *byte == b'\n').map(block_line).collect();
                        format!("{shown} {operator}\n{}", lines.trim_end_matches('\n'))
                    })
                }
                // Without a value the operator ends the line.
                _ => format!("{shown} {operator} {}", print(&literal(bytes, true))).trim_end().to_owned(),
            }
        }
        Fact::Link(target) => format!("{shown} -> {}", print(&literal(target.as_bytes(), false))),
        Fact::Fails(errno) => {
            format!("{shown} ! {}", errno.name().map_or(errno.0.to_string(), str::to_owned))
        }
        Fact::Folder => format!("{shown} /"),
    };
    sections.add(folder, name, line);
}

fn write_group(before: &str, after: &str, facts: &[Member], sections: &mut Sections) {
    let (folder, name) = before.rsplit_once('/').unwrap_or(("", before));
    let mut add = |list: &CpuList, rest: &str| {
        let line = format!("{} {rest}", print_path(name, Some(list), after));
        // Five digits, so that the text sorts as the numbers do.
        sections.add(folder, &format!("{name}{{{:05}}}{after}", list.first().unwrap_or(0)), line);
    };
    let mut values: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let (mut errors, mut folders): (BTreeMap<Errno, CpuList>, CpuList) = Default::default();
    let mut operator = "=";
    for (_, number, fact) in facts {
        match fact {
            Fact::File { bytes, writable } => {
                operator = if *writable { ":=" } else { "=" };
                values.insert(*number, bytes.clone());
            }
            Fact::Link(target) => {
                operator = "->";
                values.insert(*number, target.clone().into_bytes());
            }
            Fact::Fails(errno) => errors.entry(*errno).or_default().insert(*number),
            Fact::Folder => folders.insert(*number),
        }
    }
    for (errno, list) in errors {
        add(&list, &format!("! {}", errno.name().map_or(errno.0.to_string(), str::to_owned)));
    }
    if !folders.is_empty() {
        add(&folders, "/");
    }
    for (list, template) in fold(&values, operator != "->", VIEWS) {
        add(&list, format!("{operator} {}", print(&template)).trim_end());
    }
}

/// A value that is a line, as a template without numbers. A file's value ends with a newline, or
/// says that it does not.
fn literal(bytes: &[u8], file: bool) -> Template {
    let (text, unfinished) = match bytes.strip_suffix(b"\n") {
        Some(text) if file => (text, false),
        _ => (bytes, file),
    };
    let parts = if text.is_empty() { Vec::new() } else { vec![Part::Text(text.to_vec())] };
    Template { parts, unfinished }
}

/// How numbers in a value are seen.
#[derive(Clone, Copy)]
enum View {
    /// As they are.
    Literal,
    /// As `{}` where they are the path's own number.
    Own,
    /// As an offset from the path's number.
    Offset,
}

const VIEWS: &[View] = &[View::Literal, View::Own, View::Offset];

/// A value as a template of its number.
fn template(number: u32, bytes: &[u8], file: bool, view: View) -> Template {
    let whole = literal(bytes, file);
    let [Part::Text(text)] = &whole.parts[..] else { return whole };
    let (mut parts, mut plain, mut at) = (Vec::new(), Vec::new(), 0);
    while at < text.len() {
        let digits = text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let token = &text[at..at + digits.max(1)];
        at += token.len();
        // Longer ones are not CPUs, and a leading zero would be lost.
        let value = (digits > 0 && digits <= 5 && (token[0] != b'0' || digits == 1))
            .then(|| std::str::from_utf8(token).ok()?.parse::<i64>().ok())
            .flatten();
        let offset = value.map(|value| value - i64::from(number));
        match (offset, view) {
            (Some(0), View::Own) | (Some(_), View::Offset) => {
                if !plain.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut plain)));
                }
                parts.extend(offset.map(Part::Number));
            }
            _ => plain.extend_from_slice(token),
        }
    }
    if !plain.is_empty() {
        parts.push(Part::Text(plain));
    }
    Template { parts, ..whole }
}

/// The values of numbers as few lines: one for each value that differs, or one with a list,
/// whichever is shorter.
fn fold(values: &BTreeMap<u32, Vec<u8>>, file: bool, views: &[View]) -> Vec<(CpuList, Template)> {
    let all: CpuList = {
        let mut all = CpuList::new();
        for number in values.keys() {
            all.insert(*number);
        }
        all
    };
    let by_value = |view: View| -> Vec<(CpuList, Template)> {
        let mut lines: Vec<(CpuList, Template)> = Vec::new();
        let mut known: BTreeMap<String, usize> = BTreeMap::new();
        for (number, bytes) in values {
            let template = template(*number, bytes, file, view);
            let index = *known.entry(print(&template)).or_insert_with(|| {
                lines.push((CpuList::new(), template));
                lines.len() - 1
            });
            lines[index].0.insert(*number);
        }
        lines
    };
    let cost = |lines: &[(CpuList, Template)]| -> usize {
        lines.iter().map(|(list, template)| list.to_string().len() + print(template).len() + LINE).sum()
    };
    let mut forms: Vec<_> = views.iter().map(|view| by_value(*view)).collect();
    forms.extend(listed(values, file).map(|template| vec![(all, template)]));
    // The first of several that are equally short, so that the text is the same each time.
    forms.into_iter().min_by_key(|lines| cost(lines)).unwrap_or_default()
}

/// One line with a list; `None` where the values do not have the same ending.
fn listed(values: &BTreeMap<u32, Vec<u8>>, file: bool) -> Option<Template> {
    let mut items: Vec<(Vec<u8>, usize)> = Vec::new();
    for bytes in values.values() {
        let text = if file { bytes.strip_suffix(b"\n")? } else { bytes };
        match items.last_mut() {
            Some((last, count)) if last == text => *count += 1,
            _ => items.push((text.to_vec(), 1)),
        }
    }
    // One item that is not repeated reads as an offset or as the number; lines by value do it
    // better.
    (values.len() > 1).then(|| Template { parts: vec![Part::List(items)], unfinished: false })
}

fn block_line(line: &[u8]) -> String {
    let plain = std::str::from_utf8(line)
        .ok()
        .filter(|text| !text.ends_with([' ', '\t']) && !text.chars().any(|c| c.is_control() && c != '\t'));
    match plain {
        Some("") => "|\n".to_owned(),
        Some(text) => format!("| {text}\n"),
        None => {
            let mut text = String::from("|\"");
            escape(line, &mut text);
            text.push_str("\"\n");
            text
        }
    }
}

/// A file of sections that end with an empty line and are the same except for some values, one for
/// each CPU, as /proc/cpuinfo is. `text` is without its final newline. `None` where it is no such
/// file.
fn repeated(text: &[u8], shown: &str, operator: &str) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('\n')?;
    let sections: Vec<Vec<&str>> = text.split("\n\n").map(|section| section.split('\n').collect()).collect();
    let mut lines: Vec<BTreeMap<u32, (&str, &str)>> = vec![BTreeMap::new(); sections.first()?.len()];
    let mut list = CpuList::new();
    for section in &sections {
        let number: u32 = section[0].rsplit(' ').next()?.parse().ok().filter(|number| *number <= HIGHEST)?;
        if section.len() != lines.len() || list.iter().next_back().is_some_and(|last| last >= number) {
            return None;
        }
        list.insert(number);
        for (line, by_number) in section.iter().zip(&mut lines) {
            by_number.insert(number, line.split_once(": ").unwrap_or((line, "")));
        }
    }
    // One section is shorter as it is.
    if sections.len() < 2 {
        return None;
    }
    let mut out = format!("{shown} {{{list}}} {operator}\n");
    for (index, by_number) in lines.iter().enumerate() {
        let whole = sections.iter().zip(by_number.keys()).map(|(section, number)| (*number, section[index]));
        let whole: BTreeMap<u32, Vec<u8>> =
            whole.map(|(number, line)| (number, line.as_bytes().to_vec())).collect();
        let template = match &fold(&whole, false, VIEWS)[..] {
            [(_, template)] if !matches!(template.parts[..], [Part::List(_)]) => template.clone(),
            _ => {
                // The same key, and a list of what differs after it.
                let keys: BTreeSet<&str> = by_number.values().map(|(key, _)| *key).collect();
                let values =
                    by_number.iter().map(|(number, (_, value))| (*number, value.as_bytes().to_vec()));
                let values: BTreeMap<u32, Vec<u8>> = values.collect();
                let same = keys.len() == 1 && sections.iter().all(|section| section[index].contains(": "));
                if same {
                    let key = format!("{}: ", keys.first()?);
                    let mut template = listed(&values, false)?;
                    template.parts.insert(0, Part::Text(key.into_bytes()));
                    template
                } else {
                    listed(&whole, false)?
                }
            }
        };
        let printed = print(&template);
        let bar = if printed.is_empty() || printed.starts_with('"') { "|" } else { "| " };
        out.push_str(&format!("{bar}{printed}\n"));
    }
    // The empty line that ends the last section: split("\n\n") has taken it away.
    out.push('|');
    Some(out)
}
