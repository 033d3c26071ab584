//! intel-speed-select's text and JSON: one line per value, containers by indentation or braces.
//!
//! Scripts parse both, so both equal the tool's byte by byte, including the odd blank lines and
//! commas in its JSON. The position of a comma or brace depends only on the depth of the previous
//! line (`format_and_print` in isst-display.c).

/// Longest list or mask that fits the tool's buffers.
const LONGEST: usize = 1023;

/// Collects the output of one run.
#[derive(Debug, Default)]
pub(super) struct Display {
    pub json: bool,
    /// True if records show the power domain.
    pub domains: bool,
    pub text: String,
    depth_before: usize,
    open: bool,
    messages: u32,
}

/// The CPU or power domain of a record. -1 means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id {
    pub cpu: i32,
    pub package: i32,
    pub die: i32,
    pub domain: i32,
}

impl Display {
    /// Prints `name:value` at a depth, or the head of a container.
    fn put(&mut self, depth: usize, name: &str, value: Option<&str>) {
        if !self.json {
            // One blank for the first depth and two per depth after it.
            let indent = if depth == 1 { " ".to_owned() } else { "  ".repeat(depth - 1) };
            self.text.push_str(&indent);
            self.text.push_str(name);
            if let Some(value) = value {
                self.text.push(':');
                self.text.push_str(value);
            }
            self.text.push('\n');
            return;
        }
        // A second entry at this depth: print the comma that the previous line lacks.
        if self.depth_before == depth {
            self.text.push_str(",\n");
        }
        let indent = "  ".repeat(depth);
        match value {
            Some(value) => {
                if self.depth_before != depth {
                    self.text.push('\n');
                }
                self.text.push_str(&format!("{indent}\"{name}\": \"{value}\""));
            }
            None => {
                self.close_down_to(depth, true);
                self.text.push_str(&format!("{indent}\"{name}\": {{"));
            }
        }
        self.depth_before = depth;
    }

    /// Closes containers that are deeper than `depth`. `more`: another entry of that depth follows.
    fn close_down_to(&mut self, depth: usize, more: bool) {
        // The loop over `last_level` in format_and_print().
        for level in (depth..self.depth_before).rev() {
            let indent = "  ".repeat(level);
            let comma = if level == depth && more { "," } else { "" };
            self.text.push_str(&format!("\n{indent}}}{comma}"));
        }
        // In the tool, deeper ends have no line break.
        if self.depth_before.abs_diff(depth) < 3 {
            self.text.push('\n');
        }
    }

    /// Ends a container, before another entry of the same depth.
    fn end(&mut self, depth: usize) {
        if self.json && depth > 0 {
            if self.depth_before == depth {
                self.text.push_str(",\n");
            }
            self.close_down_to(depth, false);
            self.depth_before = depth;
        }
    }

    /// Begins the output of a command.
    pub(super) fn start(&mut self) {
        self.depth_before = 0;
        self.brace("{");
        self.open = true;
    }

    /// Ends the output of a command.
    pub(super) fn finish(&mut self) {
        self.brace("\n}\n");
        self.open = false;
    }

    fn brace(&mut self, text: &str) {
        if self.json {
            self.text.push_str(text);
            self.depth_before = 0;
        }
    }

    /// Prints the head of a record. Returns its depth.
    fn head(&mut self, id: &Id) -> usize {
        let Id { cpu, package, die, domain } = *id;
        if self.json {
            let key = match (self.domains, die < 0, cpu < 0) {
                (false, _, _) => format!("package-{package}:die-{die}:cpu-{cpu}"),
                (true, true, true) => format!("package-{package}:die-IO:powerdomain-{domain}:cpu-None"),
                (true, false, true) => format!("package-{package}:die-{die}:powerdomain-{domain}:cpu-None"),
                (true, _, false) => format!("package-{package}:die-{die}:powerdomain-{domain}:cpu-{cpu}"),
            };
            self.put(1, &key, None);
            return 1;
        }
        self.put(1, &format!("package-{package}"), None);
        let die = if die < 0 { "die-IO".to_owned() } else { format!("die-{die}") };
        self.put(2, &die, None);
        let mut depth = 3;
        if self.domains {
            self.put(depth, &format!("powerdomain-{domain}"), None);
            depth += 1;
        }
        let cpu = if cpu < 0 { "cpu-None".to_owned() } else { format!("cpu-{cpu}") };
        self.put(depth, &cpu, None);
        depth
    }

    /// Prints a record; `lines` prints the values below the head.
    pub(super) fn record(&mut self, id: &Id, lines: impl FnOnce(&mut Lines<'_>)) {
        let depth = self.head(id);
        lines(&mut Lines { display: self, depth: depth + 1 });
        // In text a record has no end mark; in JSON close its containers.
        self.end(1);
    }

    /// Ends a record without lines.
    pub(super) fn end_record(&mut self) {
        self.end(1);
    }

    /// Prints a message: an error, or information.
    pub(super) fn message(&mut self, error: bool, text: &str) {
        if !self.json {
            let kind = if error { "Error" } else { "Information" };
            self.text.push_str(&format!("{kind}: {text}\n"));
            return;
        }
        // A message outside a record is a separate document.
        if !self.open {
            self.brace("{");
        }
        let count = self.messages;
        self.messages += 1;
        self.put(1, &if error { format!("Error{count}") } else { format!("Information:{count}") }, None);
        self.put(2, "message", Some(text));
        self.end(1);
        if !self.open {
            self.brace("\n}\n");
        }
    }
}

/// Receives the lines of a record.
pub(super) struct Lines<'a> {
    display: &'a mut Display,
    depth: usize,
}

impl Lines<'_> {
    pub(super) fn value(&mut self, name: &str, value: impl std::fmt::Display) {
        self.display.put(self.depth, name, Some(&value.to_string()));
    }

    /// Prints the value unless it is 0.
    pub(super) fn value_unless_zero(&mut self, name: &str, value: u32) {
        if value != 0 {
            self.value(name, value);
        }
    }

    pub(super) fn section(&mut self, name: &str, lines: impl FnOnce(&mut Lines<'_>)) {
        self.display.put(self.depth, name, None);
        lines(&mut Lines { display: self.display, depth: self.depth + 1 });
    }
}

/// CPUs as plain numbers, truncated like in the tool's buffer.
pub(super) fn list(cpus: &flyball_host::CpuList) -> String {
    if cpus.is_empty() {
        return "none".to_owned();
    }
    let mut text = cpus.iter().map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",");
    text.truncate(LONGEST);
    text
}

/// CPUs as groups of eight hexadecimal digits, highest first.
pub(super) fn mask(cpus: &flyball_host::CpuList, room: u32) -> String {
    let mut groups = vec![0u32; room.div_ceil(32) as usize];
    for cpu in cpus.iter().filter(|&cpu| cpu < room) {
        groups[cpu as usize / 32] |= 1 << (cpu % 32);
    }
    let mut text = groups.iter().rev().map(|group| format!("{group:08x}")).collect::<Vec<_>>().join(",");
    // The original's buffer ends here and truncates the list.
    text.truncate(LONGEST);
    text
}
