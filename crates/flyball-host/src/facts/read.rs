//! Facts out of their text. It may come from anywhere: sizes are bounded before memory is taken,
//! and paths that climb are refused.

use std::path::Path;

use super::{
    FORMAT, Fact, Facts, FactsError, MAGIC,
    template::{Rest, Template},
};
use crate::{CpuList, Errno};

/// How many facts a text may make: four times what a machine of 512 CPUs has.
const MAX_FACTS: usize = 400_000;
/// How many bytes of values it may make.
const MAX_BYTES: usize = 256 << 20;

/// Where in the text's sections a line stands.
enum Section {
    Files(String),
    Registers,
    Log,
}

/// What a path in a line stands for: what comes before and after the numbers.
struct Paths {
    before: Vec<u8>,
    /// The numbers, and what follows them.
    numbers: Option<(Vec<u32>, Vec<u8>)>,
}

struct Reader<'a> {
    lines: std::iter::Peekable<std::iter::Enumerate<std::str::Lines<'a>>>,
    made: Facts,
    bytes: usize,
}

impl Facts {
    /// Reads the text form.
    ///
    /// # Errors
    /// The first line that cannot be read, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Facts, FactsError> {
        let mut reader =
            Reader { lines: text.lines().enumerate().peekable(), made: Facts::default(), bytes: 0 };
        let mut line = 0;
        match reader.all(&mut line) {
            Ok(()) => Ok(reader.made),
            Err(why) => Err(FactsError { line: line + 1, why }),
        }
    }
}

impl Reader<'_> {
    fn all(&mut self, at: &mut usize) -> Result<(), String> {
        self.head(at)?;
        let mut section = Section::Files(String::new());
        while let Some((number, line)) = self.lines.next() {
            *at = number;
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(name) = line.strip_prefix('[') {
                let name = name.strip_suffix(']').ok_or("'[' without ']'")?;
                section = match name {
                    "msr" => Section::Registers,
                    "kernel log" => {
                        self.made.log = Some(String::new());
                        Section::Log
                    }
                    "/" => Section::Files(String::new()),
                    _ => {
                        let name = if name.starts_with('"') {
                            // Quoted like a value, with the same escapes. `plain` refuses braces: a
                            // section is one folder.
                            Template::parse(name)?.plain()
                        } else {
                            Some(name.into())
                        };
                        let name = name.and_then(|name| String::from_utf8(name).ok());
                        Section::Files(folder(&name.ok_or("a folder that is not text")?)?)
                    }
                };
                continue;
            }
            match &section {
                Section::Files(folder) => self.file(folder, line)?,
                Section::Registers => self.register(line)?,
                Section::Log => {
                    let text = String::from_utf8(block_line(line)?).map_err(|_| "the log is not text")?;
                    let log = self.made.log.get_or_insert_default();
                    log.push_str(&text);
                    log.push('\n');
                }
            }
        }
        Ok(())
    }

    fn head(&mut self, at: &mut usize) -> Result<(), String> {
        let (_, first) = self.lines.next().ok_or("an empty file")?;
        let format = first.strip_prefix(MAGIC).map(str::trim).ok_or_else(|| format!("not '{MAGIC}'"))?;
        let format: u32 = format.parse().map_err(|_| format!("'{format}' is not the number of a format"))?;
        // A later format may mean something else by the same line.
        if format > FORMAT {
            return Err(format!("format {format}; this flyball reads up to {FORMAT}"));
        }
        for (number, line) in self.lines.by_ref() {
            *at = number;
            if line.is_empty() {
                break;
            }
            let (key, value) = line.split_once(": ").ok_or("the head has lines of 'key: value'")?;
            self.made.head.push((key.to_owned(), value.to_owned()));
        }
        Ok(())
    }

    /// One line of a section of files, with the block below it.
    fn file(&mut self, folder: &str, line: &str) -> Result<(), String> {
        let (paths, rest) = self.paths(folder, line)?;
        let rest = rest.strip_prefix(' ').ok_or("a path alone")?;
        if let Some(list) = rest.strip_prefix('{') {
            return self.repeated(&paths, list);
        }
        let (operator, value) = rest.split_once(' ').unwrap_or((rest, ""));
        match operator {
            "=" | ":=" => {
                let writable = operator == ":=";
                // Content of several lines is below, each after `| `.
                if value.is_empty() && self.has_block() {
                    let bytes = self.block()?;
                    return self.add(&paths, &|| Fact::File { bytes: bytes.clone(), writable });
                }
                let template = Template::parse(value)?;
                let finish = |mut bytes: Vec<u8>| {
                    // Attribute files end in a newline; `\c` marks the few that do not.
                    if !template.unfinished {
                        bytes.push(b'\n');
                    }
                    Ok(Fact::File { bytes, writable })
                };
                self.expand(&paths, &template, &finish)
            }
            "->" => self.expand(&paths, &Template::parse(value)?, &|bytes| {
                String::from_utf8(bytes).map(Fact::Link).map_err(|_| "a target that is not text".to_owned())
            }),
            "!" => {
                let errno = value.parse().ok().map(Errno).or_else(|| Errno::named(value));
                let errno = errno.ok_or_else(|| format!("'{value}' is not an errno name"))?;
                self.add(&paths, &|| Fact::Fails(errno))
            }
            "/" => self.add(&paths, &|| Fact::Folder),
            _ => Err(format!("'{operator}' is not one of = := -> ! /")),
        }
    }

    /// The path at the beginning of a line, and what follows it.
    fn paths<'l>(&self, folder: &str, line: &'l str) -> Result<(Paths, &'l str), String> {
        let mut rest = Rest { bytes: line.as_bytes(), at: 0 };
        let quoted = rest.take(b'"');
        let mut paths = Paths { before: folder.as_bytes().to_vec(), numbers: None };
        if !folder.is_empty() {
            paths.before.push(b'/');
        }
        while let Some(&byte) = rest.bytes.get(rest.at) {
            if byte == b' ' && !quoted {
                break;
            }
            rest.at += 1;
            let byte = match byte {
                b'"' if quoted => break,
                b'\\' if quoted => rest.escape()?.ok_or("\\c in a path")?,
                b'{' => {
                    let end = line[rest.at..].find('}').ok_or("'{' without '}'")?;
                    let list = numbers(&line[rest.at..rest.at + end])?;
                    rest.at += end + 1;
                    if paths.numbers.replace((list, Vec::new())).is_some() {
                        return Err("two lists of numbers in a path".to_owned());
                    }
                    continue;
                }
                byte => byte,
            };
            // Bytes before the list and after it; the number itself goes in between.
            paths.numbers.as_mut().map_or(&mut paths.before, |(_, after)| after).push(byte);
        }
        Ok((paths, line.get(rest.at..).unwrap_or_default()))
    }

    fn expand(
        &mut self,
        paths: &Paths,
        template: &Template,
        fact: &dyn Fn(Vec<u8>) -> Result<Fact, String>,
    ) -> Result<(), String> {
        let Some((list, _)) = &paths.numbers else {
            let bytes = template.plain().ok_or("braces in a value of a path without a list")?;
            return self.add_one(path(paths, None)?, fact(bytes)?);
        };
        let mut values = Vec::with_capacity(list.len());
        template.expand(list, &mut |_, value| values.push(value))?;
        for (number, value) in list.iter().zip(values) {
            self.add_one(path(paths, Some(*number))?, fact(value)?)?;
        }
        Ok(())
    }

    /// The same fact at every path of a line.
    fn add(&mut self, paths: &Paths, fact: &dyn Fn() -> Fact) -> Result<(), String> {
        match &paths.numbers {
            None => self.add_one(path(paths, None)?, fact()),
            Some((list, _)) => {
                list.iter().try_for_each(|number| self.add_one(path(paths, Some(*number))?, fact()))
            }
        }
    }

    fn add_one(&mut self, path: String, fact: Fact) -> Result<(), String> {
        self.bytes += match &fact {
            Fact::File { bytes, .. } => bytes.len() + path.len(),
            _ => path.len(),
        };
        if self.made.facts.len() >= MAX_FACTS || self.bytes > MAX_BYTES {
            return Err("more than any machine has".to_owned());
        }
        match self.made.facts.insert(path, fact) {
            None => Ok(()),
            Some(_) => Err("a path for the second time".to_owned()),
        }
    }

    /// `PATH {LIST} =`, and the block that is repeated.
    fn repeated(&mut self, paths: &Paths, list: &str) -> Result<(), String> {
        let (list, operator) = list.split_once("} ").ok_or("no '}' and operator after '{'")?;
        let writable = match operator {
            "=" => false,
            ":=" => true,
            _ => return Err("a repeated block follows '=' or ':='".to_owned()),
        };
        let list = numbers(list)?;
        if paths.numbers.is_some() {
            return Err("a repeated block at a path with a list".to_owned());
        }
        let mut copies = vec![Vec::new(); list.len()];
        while self.has_block() {
            let Some((_, line)) = self.lines.next() else { break };
            let template = match line.strip_prefix("|\"") {
                Some(text) => Template::read(text, true)?,
                None => Template::read(line_of_block(line)?, false)?,
            };
            // Counted while it grows: one line of a block is repeated for up to 65,536 numbers.
            let mut room = MAX_BYTES.saturating_sub(self.bytes);
            template.expand(&list, &mut |index, mut value| {
                room = room.saturating_sub(value.len() + 1);
                if room > 0 {
                    copies[index].append(&mut value);
                    copies[index].push(b'\n');
                }
            })?;
            self.bytes = MAX_BYTES - room;
            if room == 0 {
                return Err("more than any machine has".to_owned());
            }
        }
        self.add_one(path(paths, None)?, Fact::File { bytes: copies.concat(), writable })
    }

    fn has_block(&mut self) -> bool {
        self.lines.peek().is_some_and(|(_, line)| line.starts_with('|'))
    }

    fn block(&mut self) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        while self.has_block() {
            let Some((_, line)) = self.lines.next() else { break };
            bytes.extend(block_line(line)?);
            bytes.push(b'\n');
        }
        Ok(bytes)
    }

    /// `0x1b0 {0-3} = 6`
    fn register(&mut self, line: &str) -> Result<(), String> {
        let (place, value) = line.split_once(" = ").ok_or("no ' = ' in a register's line")?;
        let (register, list) = place.split_once(" {").ok_or("no list of CPUs after the register")?;
        let list = numbers(list.strip_suffix('}').ok_or("'{' without '}'")?)?;
        let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok();
        let register = hex(register).and_then(|number| u32::try_from(number).ok());
        let register = register.ok_or("not the number of a register")?;
        // Before it is expanded: a line of a few bytes can name thousands of registers.
        if self.made.registers.len() + list.len() > MAX_FACTS {
            return Err("more than any machine has".to_owned());
        }
        let mut values = Vec::with_capacity(list.len());
        Template::parse(value)?.expand(&list, &mut |_, value| values.push(value))?;
        for (cpu, value) in list.iter().zip(values) {
            let value = std::str::from_utf8(&value).ok().and_then(hex).ok_or("not a register's value")?;
            if self.made.registers.insert((register, *cpu), value).is_some() {
                return Err("a register for the second time".to_owned());
            }
        }
        Ok(())
    }
}

/// The path for one number, without the leading slash.
fn path(paths: &Paths, number: Option<u32>) -> Result<String, String> {
    let mut whole = paths.before.clone();
    if let (Some((_, after)), Some(number)) = (&paths.numbers, number) {
        whole.extend_from_slice(number.to_string().as_bytes());
        whole.extend_from_slice(after);
    }
    let whole = String::from_utf8(whole).map_err(|_| "a path that is not text")?;
    folder(&whole)
}

/// A path in its normal form, without the leading slash.
fn folder(path: &str) -> Result<String, String> {
    let relative = path.strip_prefix('/').unwrap_or(path);
    let plain = flyball_files::plain(Path::new(relative)).map_err(|why| format!("a path that {why}"))?;
    // Two spellings of one path would make two facts of it.
    if relative.is_empty() || plain.as_os_str() != relative {
        return Err(format!("'{path}' is not a path in its normal form"));
    }
    Ok(relative.to_owned())
}

fn numbers(list: &str) -> Result<Vec<u32>, String> {
    let list: CpuList = list.parse().map_err(|error: crate::CpuListError| error.to_string())?;
    Ok(list.iter().collect())
}

/// A line of a block as it stands in the value.
fn block_line(line: &str) -> Result<Vec<u8>, String> {
    let text = line_of_block(line)?;
    if !line.starts_with("|\"") {
        return Ok(text.as_bytes().to_vec());
    }
    Template::parse(text)?.plain().ok_or_else(|| "a quoted line cannot contain braces".to_owned())
}

/// What follows the bar: after one blank, or in quotes.
fn line_of_block(line: &str) -> Result<&str, String> {
    match line.strip_prefix('|') {
        Some("") => Ok(""),
        Some(text) if text.starts_with('"') => Ok(text),
        Some(text) => text.strip_prefix(' ').ok_or_else(|| "no blank after '|'".to_owned()),
        None => Err("a line of a block begins with '|'".to_owned()),
    }
}
