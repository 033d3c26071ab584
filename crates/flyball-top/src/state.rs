//! State of the screen, and how keys change it. Does no drawing.

use flyball_host::CpuList;
use strum::VariantArray;

use crate::{
    keys::{Action, Key, action},
    scene::Drawn,
};

/// A way to look at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum View {
    Overview,
    Map,
    Table,
    #[strum(serialize = "one CPU")]
    OneCpu,
}

impl View {
    /// All views, in the order of their keys.
    pub const ALL: &[View] = View::VARIANTS;

    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Quantity in the cells of the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Quantity {
    /// Frequency while busy, relative to the highest.
    Speed,
    Busy,
    /// Frequency as a share of the requested one.
    #[strum(serialize = "got of want")]
    Got,
    /// Why the CPU is not faster, as a letter.
    #[strum(serialize = "why not more")]
    Why,
    /// Temperature, degrees Celsius.
    #[strum(serialize = "temperature")]
    Heat,
    /// The share of time in the deepest idle state.
    #[strum(serialize = "deepest idle")]
    Idle,
}

impl Quantity {
    pub const ALL: &[Quantity] = Quantity::VARIANTS;

    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Column that sorts the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray)]
pub enum Column {
    Cpu,
    Busy,
    Want,
    Got,
    Why,
    Heat,
}

impl Column {
    pub const ALL: &[Column] = Column::VARIANTS;
}

/// Input that a prompt asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptKind {
    Filter,
    Time,
}

/// A line that is being typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    pub asked: PromptKind,
    pub text: String,
}

/// A time to jump to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jump {
    /// Seconds before the newest sample.
    Back(u64),
    /// Seconds after midnight, UTC.
    Clock(u64),
}

/// Work that a key requests from the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    None,
    Quit,
    Redraw,
    /// Start or stop recording.
    Record,
    /// Write the view to a file.
    Export,
    /// Show the sample at a time: [`State::show`] with its number.
    Jump(Jump),
}

/// The range of the data that keys move in.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// Numbers of the oldest and the newest sample.
    pub first: u64,
    pub last: u64,
    /// Number of samples per minute.
    pub minute: u64,
    /// Size of the last frame's list.
    pub drawn: Drawn,
    /// The samples come from a recording.
    pub is_replay: bool,
}

/// Everything that keys can change about the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own, with its own key")]
pub struct State {
    pub view: View,
    pub quantity: Quantity,
    pub column: Column,
    pub reversed: bool,
    /// Show similar CPUs as one row of the table.
    pub folded: bool,
    pub filter: String,
    /// Index of the selected row or cell.
    pub selected: usize,
    /// The CPU in the view of one CPU.
    pub cpu: Option<u32>,
    /// The number of the shown sample. `None` for the newest one.
    pub shown: Option<u64>,
    /// A recording is being played, so the shown sample advances.
    pub is_playing: bool,
    /// The page of the help that is shown, from 1. 0 without help.
    pub help: usize,
    pub prompt: Option<Prompt>,
    /// Error in the last input; the next key clears it.
    pub message: Option<String>,
    /// The view to return to from the view of one CPU.
    pub(crate) before: View,
}

impl Default for State {
    fn default() -> State {
        State {
            view: View::Overview,
            quantity: Quantity::Speed,
            column: Column::Cpu,
            reversed: false,
            folded: true,
            filter: String::new(),
            selected: 0,
            cpu: None,
            shown: None,
            is_playing: false,
            help: 0,
            prompt: None,
            message: None,
            before: View::Table,
        }
    }
}

/// Maximum length of a prompt's input.
const MAX_TYPED: usize = 60;

impl State {
    /// Handles a key.
    pub fn key(&mut self, key: Key, extent: &Extent) -> Effect {
        self.message = None;
        // Keys that quit work even in a prompt.
        if key == Key::Ctrl('c') {
            return Effect::Quit;
        }
        // Take the prompt, because nearly every key in it closes it.
        if let Some(prompt) = self.prompt.take() {
            return self.typed(prompt, key);
        }
        let Some(action) = action(key) else { return Effect::None };
        // While help covers the screen, any key turns its page, except those that quit.
        if self.help > 0 && action != Action::Quit {
            let is_last = self.help >= extent.drawn.help_pages || action == Action::Back;
            self.help = if is_last { 0 } else { self.help + 1 };
            return Effect::None;
        }
        self.act(action, extent)
    }

    fn act(&mut self, action: Action, extent: &Extent) -> Effect {
        match action {
            Action::Quit => return Effect::Quit,
            Action::Record => return Effect::Record,
            Action::Export => return Effect::Export,
            Action::Redraw => return Effect::Redraw,
            Action::Help => self.help = 1,
            Action::Overview => self.look(View::Overview),
            Action::Map => self.look(View::Map),
            Action::Table => self.look(View::Table),
            Action::OneCpu => self.open_cpu(extent),
            Action::NextView => self.turn(1, extent),
            Action::PreviousView => self.turn(View::ALL.len() - 1, extent),
            Action::Up if self.view == View::OneCpu => self.cpu = extent.drawn.neighbours.0.or(self.cpu),
            Action::Down if self.view == View::OneCpu => self.cpu = extent.drawn.neighbours.1.or(self.cpu),
            Action::Up => self.select(self.selected.saturating_sub(extent.drawn.line), extent),
            Action::Down => self.down(extent.drawn.line, extent),
            Action::PageUp => self.select(self.selected.saturating_sub(extent.drawn.page), extent),
            Action::PageDown => self.select(self.selected + extent.drawn.page, extent),
            Action::First => self.select(0, extent),
            Action::Last => self.select(usize::MAX, extent),
            Action::Open => self.open(extent),
            Action::Back => self.back(),
            Action::Pause if extent.is_replay => self.play(extent),
            // Pausing fixes the shown sample. Sampling continues, so nothing is lost.
            Action::Pause => self.shown = if self.shown.is_none() { Some(extent.last) } else { None },
            Action::StepBack => self.step(-1, extent),
            Action::StepForward => self.step(1, extent),
            Action::MinuteBack => self.step(-(extent.minute as i64), extent),
            Action::MinuteForward => self.step(extent.minute as i64, extent),
            Action::Follow => {
                self.shown = None;
                self.is_playing = false;
            }
            Action::Jump => self.ask(PromptKind::Time),
            Action::Filter => self.ask(PromptKind::Filter),
            Action::Quantity => self.quantity = next(Quantity::ALL, self.quantity),
            Action::Sort => self.column = next(Column::ALL, self.column),
            Action::Reverse => self.reversed = !self.reversed,
            Action::Fold => {
                self.folded = !self.folded;
                self.selected = 0;
            }
        }
        Effect::None
    }

    fn look(&mut self, view: View) {
        if self.view != view {
            self.view = view;
            self.selected = 0;
        }
    }

    fn turn(&mut self, by: usize, extent: &Extent) {
        let at = View::ALL.iter().position(|view| *view == self.view).unwrap_or_default();
        match View::ALL[(at + by) % View::ALL.len()] {
            View::OneCpu => self.open_cpu(extent),
            view => self.look(view),
        }
    }

    /// Shows one CPU: the selected one, the last shown one, or the first.
    fn open_cpu(&mut self, extent: &Extent) {
        if self.view != View::OneCpu {
            self.before = self.view;
            self.cpu = extent.drawn.selected_cpu.or(self.cpu);
        }
        self.view = View::OneCpu;
        self.selected = 0;
    }

    /// Opens the selected row or cell. A group becomes the table's filter.
    fn open(&mut self, extent: &Extent) {
        match self.view {
            View::OneCpu => {}
            View::Overview => self.look(View::Table),
            View::Map => self.open_cpu(extent),
            View::Table if extent.drawn.groups && self.folded => {
                self.folded = false;
            }
            View::Table => self.open_cpu(extent),
        }
    }

    fn back(&mut self) {
        match self.view {
            View::OneCpu => self.view = self.before,
            // Like Esc in less, go back one level: remove the filter, then the unfolding, then
            // leave the view.
            _ if !self.filter.is_empty() => self.filter.clear(),
            View::Table if !self.folded => self.folded = true,
            _ => self.look(View::Overview),
        }
    }

    fn select(&mut self, item: usize, extent: &Extent) {
        self.selected = item.min(extent.drawn.items.saturating_sub(1));
    }

    /// Moves down. From the last full line of the map there may be no cell below.
    fn down(&mut self, by: usize, extent: &Extent) {
        if self.selected + by < extent.drawn.items {
            self.selected += by;
        }
    }

    /// Plays or pauses a recording. At its end, playing restarts from the beginning.
    fn play(&mut self, extent: &Extent) {
        self.is_playing = !self.is_playing;
        if self.is_playing && self.shown.is_none_or(|shown| shown >= extent.last) {
            self.shown = Some(extent.first);
        }
    }

    /// Called once per sample time. Advances a recording that is being played.
    pub fn tick(&mut self, last: u64) {
        if self.is_playing {
            let next = self.shown.map_or(last, |shown| (shown + 1).min(last));
            self.shown = Some(next);
            // Pause at the end, so that Space starts again.
            self.is_playing = next < last;
        }
    }

    fn step(&mut self, by: i64, extent: &Extent) {
        let now = self.shown.unwrap_or(extent.last);
        self.shown = Some(now.saturating_add_signed(by).clamp(extent.first, extent.last));
    }

    fn ask(&mut self, asked: PromptKind) {
        let text = if asked == PromptKind::Filter { self.filter.clone() } else { String::new() };
        self.prompt = Some(Prompt { asked, text });
    }

    fn typed(&mut self, mut prompt: Prompt, key: Key) -> Effect {
        match key {
            Key::Enter => return self.entered(&prompt),
            Key::Escape => return Effect::None,
            Key::Ctrl('u') => prompt.text.clear(),
            // As in less, Backspace in an empty prompt closes it.
            Key::Backspace if prompt.text.pop().is_none() => return Effect::None,
            Key::Char(char) if prompt.text.len() < MAX_TYPED && !char.is_control() => prompt.text.push(char),
            _ => {}
        }
        self.prompt = Some(prompt);
        Effect::None
    }

    fn entered(&mut self, prompt: &Prompt) -> Effect {
        let text = prompt.text.trim();
        match prompt.asked {
            PromptKind::Filter => {
                text.clone_into(&mut self.filter);
                self.selected = 0;
                if self.view == View::Overview && !text.is_empty() {
                    self.view = View::Table;
                }
                Effect::None
            }
            PromptKind::Time if text.is_empty() => Effect::None,
            PromptKind::Time => match time(text) {
                Some(jump) => Effect::Jump(jump),
                None => {
                    self.message =
                        Some(format!("'{text}' is not a time; give 14:05, 14:05:30, -90s, -5m or -2h"));
                    Effect::None
                }
            },
        }
    }

    /// Shows the sample with this number.
    pub fn show(&mut self, sample: u64) {
        self.shown = Some(sample);
    }

    /// Updates the shown sample if it is no longer kept.
    pub fn drop_before(&mut self, first: u64) {
        self.shown = self.shown.map(|shown| shown.max(first));
    }
}

fn next<T: Copy + PartialEq>(all: &[T], now: T) -> T {
    let at = all.iter().position(|one| *one == now).unwrap_or_default();
    all[(at + 1) % all.len()]
}

/// Parses a time to jump to: `14:05`, `14:05:30`, `-90s`, `-5m`, `-2h`.
pub fn time(text: &str) -> Option<Jump> {
    if let Some(back) = text.strip_prefix('-') {
        return flyball_text::span::parse(back).ok().map(|time| Jump::Back(time.as_secs()));
    }
    let mut parts = text.split(':').map(|part| part.parse::<u64>().ok().filter(|_| part.len() <= 2));
    let (hour, minute) = (parts.next()??, parts.next()??);
    let second = parts.next().unwrap_or(Some(0))?;
    let is_time = hour < 24 && minute < 60 && second < 60 && parts.next().is_none();
    is_time.then_some(Jump::Clock(hour * 3600 + minute * 60 + second))
}

/// Returns whether a row passes a filter: a CPU list must contain its CPU, otherwise its text must
/// contain every word.
pub fn passes(filter: &str, cpu: u32, text: &str) -> bool {
    if filter.is_empty() {
        return true;
    }
    // Try a CPU list first. No word in a row consists only of digits, commas and dashes.
    if let Ok(list) = filter.parse::<CpuList>() {
        return list.contains(cpu);
    }
    let text = text.to_lowercase();
    filter.to_lowercase().split_whitespace().all(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent() -> Extent {
        Extent {
            first: 100,
            last: 700,
            minute: 60,
            drawn: Drawn {
                items: 40,
                line: 1,
                page: 10,
                selected_cpu: Some(7),
                groups: true,
                wakes: false,
                neighbours: (Some(6), Some(8)),
                help_pages: 2,
            },
            is_replay: false,
        }
    }

    /// Returns the state after these keys, and the effect of the last one.
    fn after(keys: &[Key]) -> (State, Effect) {
        let mut state = State::default();
        let effects: Vec<Effect> = keys.iter().map(|key| state.key(*key, &extent())).collect();
        (state, effects.last().copied().unwrap_or(Effect::None))
    }

    fn line(text: &str) -> Vec<Key> {
        text.chars().map(Key::Char).chain([Key::Enter]).collect()
    }

    #[test]
    fn views_are_reached_by_number_and_in_turn() {
        for (key, view) in ['1', '2', '3', '4'].into_iter().zip(View::ALL.iter().copied()) {
            assert_eq!(after(&[Key::Char(key)]).0.view, view);
        }
        assert_eq!(after(&[Key::Tab, Key::Tab]).0.view, View::Table);
        assert_eq!(after(&[Key::BackTab]).0.view, View::OneCpu);
        assert_eq!(after(&[Key::Tab, Key::Tab, Key::Tab, Key::Tab]).0.view, View::Overview);
    }

    #[test]
    fn a_row_is_opened_and_left() {
        let (state, _) = after(&[Key::Char('3'), Key::Enter]);
        assert_eq!((state.view, state.folded), (View::Table, false));
        let (state, _) = after(&[Key::Char('3'), Key::Enter, Key::Enter]);
        assert_eq!((state.view, state.cpu), (View::OneCpu, Some(7)));
        let (state, _) = after(&[Key::Char('2'), Key::Enter, Key::Escape]);
        assert_eq!(state.view, View::Map);
        let (state, _) = after(&[Key::Char('3'), Key::Escape]);
        assert_eq!(state.view, View::Overview);
    }

    #[test]
    fn time_is_paused_stepped_and_followed() {
        assert_eq!(after(&[Key::Char(' ')]).0.shown, Some(700));
        assert_eq!(after(&[Key::Char(' '), Key::Char(' ')]).0.shown, None);
        assert_eq!(after(&[Key::Left, Key::Left]).0.shown, Some(698));
        assert_eq!(after(&[Key::Left, Key::Right, Key::Right]).0.shown, Some(700));
        assert_eq!(after(&[Key::Char('<')]).0.shown, Some(640));
        assert_eq!(after(&[Key::Char('<'), Key::Char('F')]).0.shown, None);
        // Not before the oldest kept sample.
        assert_eq!(after(&[Key::Char('<'); 30]).0.shown, Some(100));
    }

    #[test]
    fn a_recording_is_played_to_its_end_and_again() {
        let extent = Extent { is_replay: true, ..extent() };
        let mut state = State { shown: Some(698), ..State::default() };
        state.key(Key::Char(' '), &extent);
        state.tick(700);
        assert_eq!((state.shown, state.is_playing), (Some(699), true));
        state.tick(700);
        assert_eq!((state.shown, state.is_playing), (Some(700), false));
        state.key(Key::Char(' '), &extent);
        assert_eq!((state.shown, state.is_playing), (Some(100), true));
        state.key(Key::Char(' '), &extent);
        state.tick(700);
        assert_eq!((state.shown, state.is_playing), (Some(100), false));
    }

    #[test]
    fn the_neighbours_of_a_cpu_are_above_and_below() {
        assert_eq!(after(&[Key::Char('4'), Key::Up]).0.cpu, Some(6));
        assert_eq!(after(&[Key::Char('4'), Key::Down]).0.cpu, Some(8));
    }

    #[test]
    fn times_are_typed() {
        let jump = |text: &str| after(&[vec![Key::Char('t')], line(text)].concat());
        assert_eq!(jump("14:05").1, Effect::Jump(Jump::Clock(50_700)));
        assert_eq!(jump("-2h").1, Effect::Jump(Jump::Back(7200)));
        assert_eq!(jump("-90s").1, Effect::Jump(Jump::Back(90)));
        let (state, effect) = jump("25:00");
        assert_eq!(effect, Effect::None);
        assert!(state.message.is_some_and(|message| message.contains("25:00")));
        for wrong in ["", "-", "-5x", "1:2:3:4", "005:00", "-99999999999999999999s", "-20000000000000000000d"]
        {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_prompt_takes_letters_that_are_keys_elsewhere() {
        let (state, effect) = after(&[vec![Key::Char('/')], line("q 1")].concat());
        assert_eq!((state.filter.as_str(), effect), ("q 1", Effect::None));
        // Filters by words apply to rows, so the view changes to the table.
        assert_eq!(state.view, View::Table);
        let (state, _) = after(&[Key::Char('/'), Key::Char('x'), Key::Escape]);
        assert_eq!((state.filter.as_str(), state.prompt), ("", None));
        let (state, _) = after(&[Key::Char('/'), Key::Char('x'), Key::Backspace, Key::Backspace]);
        assert_eq!(state.prompt, None);
        assert_eq!(after(&[Key::Char('/'), Key::Ctrl('c')]).1, Effect::Quit);
        let (state, _) = after(&[vec![Key::Char('/')], line("power"), vec![Key::Escape]].concat());
        assert_eq!(state.filter, "");
    }

    #[test]
    fn help_covers_the_screen_until_a_key() {
        let (state, _) = after(&[Key::Char('?')]);
        assert_eq!(state.help, 1);
        // There are two pages. Esc closes the help from the first one.
        let (state, effect) = after(&[Key::Char('?'), Key::Char('3')]);
        assert_eq!((state.help, state.view, effect), (2, View::Overview, Effect::None));
        for keys in [&[Key::Char('?'), Key::Char('3'), Key::Char('3')][..], &[Key::Char('?'), Key::Escape]] {
            let (state, effect) = after(keys);
            assert_eq!((state.help, state.view, effect), (0, View::Overview, Effect::None));
        }
        assert_eq!(after(&[Key::Char('?'), Key::Char('q')]).1, Effect::Quit);
    }

    #[test]
    fn the_selection_stays_within_the_rows() {
        let select = |keys: &[Key]| after(&[&[Key::Char('3')], keys].concat()).0.selected;
        assert_eq!(select(&[Key::Up]), 0);
        assert_eq!(select(&[Key::Down, Key::Down]), 2);
        assert_eq!(select(&[Key::PageDown; 9]), 39);
        assert_eq!(select(&[Key::End, Key::Down]), 39);
        assert_eq!(select(&[Key::End, Key::Home]), 0);
        let mut state = State { selected: 5, ..State::default() };
        let nothing = Extent { drawn: Drawn::default(), ..extent() };
        state.key(Key::Down, &nothing);
        state.key(Key::End, &nothing);
        assert_eq!(state.selected, 0);
    }

    #[test]
    fn rows_are_filtered_by_list_and_by_words() {
        assert!(passes("", 3, ""));
        assert!(passes("0-3,9", 3, "") && !passes("0-3,9", 4, ""));
        assert!(passes("POWER p-core", 0, "P-core power limit") && !passes("heat", 0, "power"));
    }

    #[test]
    fn every_key_does_something_without_a_panic() {
        for row in crate::keys::KEYS {
            for key in row.keys {
                for view in ['1', '2', '3', '4'] {
                    after(&[Key::Char(view), *key, *key, Key::Escape]);
                }
            }
        }
    }
}
