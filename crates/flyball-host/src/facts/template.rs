//! Values that stand for one value per number: text, the number itself, a list with one item per
//! number.

/// One piece of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Text(Vec<u8>),
    /// The number, plus this.
    Number(i64),
    /// Items, each with how often it is repeated.
    List(Vec<(Vec<u8>, usize)>),
}

/// A value for each of a list of numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Template {
    pub parts: Vec<Part>,
    /// Whether `\c` stood at the end.
    pub unfinished: bool,
}

impl Template {
    fn push(&mut self, byte: u8) {
        match self.parts.last_mut() {
            Some(Part::Text(text)) => text.push(byte),
            _ => self.parts.push(Part::Text(vec![byte])),
        }
    }

    /// Reads a value: in quotes with escapes, or bare.
    pub(super) fn parse(text: &str) -> Result<Template, String> {
        match text.strip_prefix('"') {
            Some(text) => Template::read(text, true),
            None => Template::read(text, false),
        }
    }

    /// Reads what stands bare, or what follows the first quote.
    pub(super) fn read(text: &str, quoted: bool) -> Result<Template, String> {
        let mut rest = Rest { bytes: text.as_bytes(), at: 0 };
        let mut made = Template::default();
        loop {
            match rest.next() {
                None if quoted => return Err("a value in quotes has no end".to_owned()),
                None => return Ok(made),
                Some(b'"') if quoted => break,
                Some(b'\\') if quoted => match rest.escape()? {
                    Some(byte) => made.push(byte),
                    None => {
                        made.unfinished = true;
                        if !rest.take(b'"') {
                            return Err("\\c stands at the end of a value".to_owned());
                        }
                        break;
                    }
                },
                Some(b'{') => made.parts.push(rest.braces()?),
                Some(b'}') => return Err("'}' without '{'".to_owned()),
                Some(byte) => made.push(byte),
            }
        }
        if rest.at == rest.bytes.len() { Ok(made) } else { Err("text after a value in quotes".to_owned()) }
    }

    /// How many numbers the lists in this template are for; `None` without a list.
    pub(super) fn length(&self) -> Result<Option<usize>, String> {
        let mut length = None;
        for part in &self.parts {
            let Part::List(items) = part else { continue };
            let count = items.iter().try_fold(0usize, |sum, (_, count)| sum.checked_add(*count));
            // Checked, not wrapping: `a*18446744073709551615 b` must not count as a list of none.
            let count = count.ok_or("a list is too long")?;
            if length.is_some_and(|length| length != count) {
                return Err("two lists of different lengths".to_owned());
            }
            length = Some(count);
        }
        Ok(length)
    }

    /// The value without numbers, if it is one.
    pub(super) fn plain(&self) -> Option<Vec<u8>> {
        match &self.parts[..] {
            [] => Some(Vec::new()),
            [Part::Text(text)] => Some(text.clone()),
            _ => None,
        }
    }

    /// The value of each number, which `each` gets in order.
    pub(super) fn expand(&self, numbers: &[u32], each: &mut dyn FnMut(usize, Vec<u8>)) -> Result<(), String> {
        if self.length()?.is_some_and(|length| length != numbers.len()) {
            return Err(format!("a list that is not of {} items", numbers.len()));
        }
        // As long as `numbers`, which has just been checked.
        let flat = |part: &'_ Part| -> Vec<Vec<u8>> {
            let Part::List(items) = part else { return Vec::new() };
            items.iter().flat_map(|(item, count)| std::iter::repeat_n(item.clone(), *count)).collect()
        };
        let lists: Vec<Vec<Vec<u8>>> = self.parts.iter().map(flat).collect();
        for (index, number) in numbers.iter().enumerate() {
            let mut value = Vec::new();
            for (part, list) in self.parts.iter().zip(&lists) {
                match part {
                    Part::Text(text) => value.extend_from_slice(text),
                    Part::Number(offset) => {
                        let shifted = offset.checked_add(i64::from(*number)).filter(|number| *number >= 0);
                        let shifted =
                            shifted.ok_or_else(|| format!("{{{offset}}} of {number} is negative"))?;
                        value.extend_from_slice(shifted.to_string().as_bytes());
                    }
                    Part::List(_) => value.extend_from_slice(&list[index]),
                }
            }
            each(index, value);
        }
        Ok(())
    }
}

/// What is not read yet.
pub(super) struct Rest<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
}

impl Rest<'_> {
    pub(super) fn next(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.at).copied();
        self.at += usize::from(byte.is_some());
        byte
    }

    pub(super) fn take(&mut self, byte: u8) -> bool {
        let there = self.bytes.get(self.at) == Some(&byte);
        self.at += usize::from(there);
        there
    }

    /// What follows a backslash; `None` for `\c`.
    pub(super) fn escape(&mut self) -> Result<Option<u8>, String> {
        Ok(Some(match self.next() {
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'c') => return Ok(None),
            Some(byte @ (b'\\' | b'"' | b'{' | b'}')) => byte,
            Some(b'x') => {
                let digit = |byte: Option<u8>| byte.and_then(|byte| (byte as char).to_digit(16));
                match (digit(self.next()), digit(self.next())) {
                    (Some(high), Some(low)) => (high * 16 + low) as u8,
                    _ => return Err("\\x takes two hexadecimal digits".to_owned()),
                }
            }
            _ => return Err("an unknown escape".to_owned()),
        }))
    }

    /// What stands in braces, after the first of them.
    fn braces(&mut self) -> Result<Part, String> {
        let mut items: Vec<(Vec<u8>, usize)> = Vec::new();
        let (mut item, mut quoted) = (Vec::new(), false);
        loop {
            match self.next() {
                None => return Err("'{' without '}'".to_owned()),
                Some(b'"') if item.is_empty() && !quoted => {
                    quoted = true;
                    loop {
                        match self.next() {
                            None => return Err("an item in quotes has no end".to_owned()),
                            Some(b'"') => break,
                            Some(b'\\') => item.push(self.escape()?.ok_or("\\c in a list")?),
                            Some(byte) => item.push(byte),
                        }
                    }
                }
                // `value*3`: lists of hundreds of CPUs repeat few values.
                Some(b'*') => {
                    let digits =
                        self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                    let text =
                        std::str::from_utf8(&self.bytes[self.at..self.at + digits]).unwrap_or_default();
                    let count = text.parse().map_err(|_| "'*' takes a number".to_owned())?;
                    self.at += digits;
                    items.push((std::mem::take(&mut item), count));
                    quoted = false;
                    match self.next() {
                        Some(b' ') => {}
                        Some(b'}') => return Ok(Part::List(items)),
                        _ => return Err("no blank after a repeated item".to_owned()),
                    }
                }
                Some(end @ (b' ' | b'}')) => {
                    if items.is_empty() && !quoted && end == b'}' {
                        if item.is_empty() {
                            return Ok(Part::Number(0));
                        }
                        // A sign alone in the braces is an offset from the path's number: `{+1}`.
                        // In a list it is a value.
                        if let [b'+' | b'-', ..] = item[..] {
                            let offset = std::str::from_utf8(&item).ok().and_then(|text| text.parse().ok());
                            return offset
                                .map(Part::Number)
                                .ok_or_else(|| "a sign without a number".to_owned());
                        }
                    }
                    items.push((std::mem::take(&mut item), 1));
                    quoted = false;
                    if end == b'}' {
                        return Ok(Part::List(items));
                    }
                }
                Some(b'{') => return Err("'{' in braces".to_owned()),
                Some(_) if quoted => return Err("text after an item in quotes".to_owned()),
                Some(byte) => item.push(byte),
            }
        }
    }
}

/// Writes a value, in quotes if it cannot stand bare. `template` says whether braces in `parts` are
/// meant as such.
pub(super) fn print(template: &Template) -> String {
    let mut bare = !template.unfinished;
    for part in &template.parts {
        if let Part::Text(text) = part {
            bare &= std::str::from_utf8(text).is_ok()
                && text
                    .iter()
                    .all(|byte| !matches!(byte, b'{' | b'}' | b'\\' | b'"' | 0..=8 | 10..=31 | 127));
        }
    }
    let blank = |part: Option<&Part>, at: fn(&[u8]) -> Option<&u8>| match part {
        Some(Part::Text(text)) => at(text).is_some_and(|byte| matches!(byte, b' ' | b'\t')),
        _ => false,
    };
    // Blanks at the ends would be lost to an editor that trims lines.
    bare &= !blank(template.parts.first(), <[u8]>::first) && !blank(template.parts.last(), <[u8]>::last);
    let mut out = String::new();
    if !bare {
        out.push('"');
    }
    for part in &template.parts {
        match part {
            Part::Text(text) if bare => out.push_str(&String::from_utf8_lossy(text)),
            Part::Text(text) => escape(text, &mut out),
            Part::Number(0) => out.push_str("{}"),
            Part::Number(offset) => out.push_str(&format!("{{{offset:+}}}")),
            Part::List(items) => {
                let items: Vec<String> = items.iter().map(|(item, count)| print_item(item, *count)).collect();
                out.push_str(&format!("{{{}}}", items.join(" ")));
            }
        }
    }
    if !bare {
        out.push_str(if template.unfinished { "\\c\"" } else { "\"" });
    }
    out
}

fn print_item(item: &[u8], count: usize) -> String {
    let special = |byte: &u8| matches!(byte, b' ' | b'{' | b'}' | b'\\' | b'"' | b'*' | 0..=31 | 127..);
    let mut text = String::new();
    // A sign would make a list of one item an offset.
    if item.is_empty() || item.iter().any(special) || matches!(item[0], b'+' | b'-') {
        text.push('"');
        escape(item, &mut text);
        text.push('"');
    } else {
        text.push_str(&String::from_utf8_lossy(item));
    }
    if count > 1 {
        text.push_str(&format!("*{count}"));
    }
    text
}

/// Escapes for a value in quotes.
pub(super) fn escape(bytes: &[u8], out: &mut String) {
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\\' | '"' | '{' | '}' => out.extend(['\\', letter]),
                letter if letter.is_control() => {
                    let mut buffer = [0; 4];
                    for byte in letter.encode_utf8(&mut buffer).bytes() {
                        out.push_str(&format!("\\x{byte:02x}"));
                    }
                }
                letter => out.push(letter),
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
}
