//! The keys of the screen: one table for the screen's help, `flyball top --help` and the manual.

/// A key as a terminal sends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Ctrl(char),
    Function(u8),
    Enter,
    Escape,
    Tab,
    BackTab,
    Backspace,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
}

/// What a key does when no prompt is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Quit,
    Help,
    Overview,
    Map,
    Table,
    OneCpu,
    NextView,
    PreviousView,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Open,
    Back,
    Pause,
    StepBack,
    StepForward,
    MinuteBack,
    MinuteForward,
    Follow,
    Jump,
    Quantity,
    Sort,
    Reverse,
    Fold,
    Filter,
    Record,
    Export,
    Redraw,
}

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    /// The keys as printed in help.
    pub written: &'static str,
    pub keys: &'static [Key],
    pub action: Action,
    pub does: &'static str,
}

macro_rules! rows {
    ($($written:literal [$($key:expr),+] $action:ident $does:literal;)+) => {
        &[$(Row { written: $written, keys: &[$($key),+], action: Action::$action, does: $does }),+]
    };
}

use Key::{Char, Ctrl, Function};

/// All keys. If htop or less has a key for something, this uses the same key.
pub const KEYS: &[Row] = rows! {
    "q, F10, Ctrl-C" [Char('q'), Function(10), Ctrl('c')] Quit "quit";
    "?, h, F1" [Char('?'), Char('h'), Function(1)] Help "these keys";
    "1, o" [Char('1'), Char('o')] Overview "overview: a line per package or type of core";
    "2" [Char('2')] Map "map: a cell per CPU, in the order of the topology";
    "3" [Char('3')] Table "table: a row per group of equal CPUs";
    "4" [Char('4')] OneCpu "one CPU: why it is not faster";
    "Tab" [Key::Tab] NextView "next view";
    "Shift-Tab" [Key::BackTab] PreviousView "previous view";
    "Up, k" [Key::Up, Char('k')] Up "select the row or cell above";
    "Down, j" [Key::Down, Char('j')] Down "select the row or cell below";
    "PgUp, b" [Key::PageUp, Char('b')] PageUp "a page up";
    "PgDn, d" [Key::PageDown, Char('d')] PageDown "a page down";
    "Home, g" [Key::Home, Char('g')] First "the first row";
    "End, G" [Key::End, Char('G')] Last "the last row";
    "Enter" [Key::Enter] Open "open what is selected: a group's CPUs, one CPU";
    "Esc, Backspace" [Key::Escape, Key::Backspace] Back "back; drop the filter";
    "Space, Z" [Char(' '), Char('Z')] Pause "pause and go on";
    "Left, ," [Key::Left, Char(',')] StepBack "a sample back";
    "Right, ." [Key::Right, Char('.')] StepForward "a sample forward";
    "<" [Char('<')] MinuteBack "a minute back";
    ">" [Char('>')] MinuteForward "a minute forward";
    "F" [Char('F')] Follow "follow the newest sample again";
    "t" [Char('t')] Jump "jump to a time: 14:05, 14:05:30, -90s, -5m, -2h";
    "m" [Char('m')] Quantity "map: the next quantity";
    "s, F6" [Char('s'), Function(6)] Sort "table: sort by the next column";
    "I" [Char('I')] Reverse "table: reverse the order";
    "f" [Char('f')] Fold "table: a row per CPU, or per group of equal ones";
    "/, \\, F4" [Char('/'), Char('\\'), Function(4)] Filter "filter: CPUs (0-7,9), or words that a row has (power, P-core)";
    "r" [Char('r')] Record "begin a recording in the working directory, or end it";
    "e" [Char('e')] Export "write this view as text to the working directory";
    "Ctrl-L" [Ctrl('l')] Redraw "draw the whole screen again";
};

pub fn action(key: Key) -> Option<Action> {
    KEYS.iter().find(|row| row.keys.contains(&key)).map(|row| row.action)
}

/// Formats the table as text.
pub fn help() -> String {
    let width = KEYS.iter().map(|row| row.written.len()).max().unwrap_or_default();
    KEYS.iter().map(|row| format!("  {:width$}  {}\n", row.written, row.does)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_does_one_thing() {
        let keys: Vec<Key> = KEYS.iter().flat_map(|row| row.keys).copied().collect();
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key), "{key:?}");
        }
    }
}
