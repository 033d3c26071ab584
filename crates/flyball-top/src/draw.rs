//! The frame around the views: the top line, the bottom line, help, and the output for a screen
//! that is too small.

use ratatui_core::buffer::Buffer;

use crate::{
    canvas::Canvas,
    keys, moment,
    palette::Tone,
    scene::{Drawn, Scene},
    state::{PromptKind, State, View},
    views,
};

/// The characters of a screen.
pub(crate) fn text(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area().width).max(1);
    let line = |cells: &[ratatui_core::buffer::Cell]| {
        let line: String = cells.iter().map(ratatui_core::buffer::Cell::symbol).collect();
        line.trim_end().to_owned() + "\n"
    };
    buffer.content().chunks(width).map(line).collect()
}

/// The smallest screen with views. Smaller screens show one line of numbers.
pub(crate) const LEAST: (u16, u16) = (40, 12);

/// Draws a screen into a blank buffer.
pub fn draw(buffer: &mut Buffer, state: &State, scene: &Scene, coloured: bool) -> Drawn {
    let area = *buffer.area();
    let mut canvas = Canvas { buffer, area, coloured };
    if area.width < LEAST.0 || area.height < LEAST.1 {
        canvas.text(0, 0, &one_line(scene), Tone::Plain);
        return Drawn::default();
    }
    if state.help > 0 {
        return Drawn { help_pages: help(&mut canvas, state.help), ..Drawn::default() };
    }
    head(&mut canvas, state, scene);
    // Before the body, whose height depends on it.
    let notice = notice_line(scene);
    let below = 1 + u16::from(notice.is_some());
    let mut body = canvas.part(1, area.height - 1 - below);
    let drawn = match scene.moment {
        None => {
            body.text(0, 1, "waiting for the first sample", Tone::Faint);
            Drawn::default()
        }
        Some(moment) => match state.view {
            View::Overview => views::overview(&mut body, state, scene, moment),
            View::Map => views::map(&mut body, state, scene, moment),
            View::Table => views::table(&mut body, state, scene, moment),
            View::OneCpu => views::one_cpu(&mut body, state, scene, moment),
        },
    };
    let last = usize::from(area.height - 1);
    if let Some((text, tone)) = notice {
        canvas.text(0, last - 1, &text, tone);
    }
    bottom(&mut canvas, last, state, scene);
    drawn
}

/// The newest notice, and how many others there are.
fn notice_line(scene: &Scene) -> Option<(String, Tone)> {
    let newest = scene.notices.last()?;
    let more = match scene.notices.len() {
        1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    };
    Some((format!("! {newest}{more}"), Tone::Alert))
}

/// Formats a time as `14:05:30` UTC. `wall` is in ns since 1970.
pub(crate) fn clock(wall: u64) -> String {
    let seconds = wall / 1_000_000_000;
    format!("{:02}:{:02}:{:02}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}

fn head(canvas: &mut Canvas, state: &State, scene: &Scene) {
    let machine = &scene.layout.machine;
    let time = scene.moment.map_or(String::new(), |moment| clock(moment.wall));
    let mode = match (state.shown, scene.moment) {
        (Some(_), Some(moment)) => {
            // By wall time: samples of a recording may be hours apart.
            let back = scene.newest.1.saturating_sub(moment.wall) as f64 * 1e-9;
            let what = match (scene.is_replay, state.is_playing) {
                (true, true) => "replay",
                (true, false) => "replay, paused",
                (false, _) => "paused",
            };
            if back < 0.5 { what.to_owned() } else { format!("{what}, {back:.0} s back") }
        }
        _ if scene.is_replay => "replay, end".to_owned(),
        _ => "live".to_owned(),
    };
    let right = format!(" {time} {mode} ");
    let number = View::ALL.iter().position(|view| *view == state.view).unwrap_or_default() + 1;
    let model = machine.model_name.as_deref().unwrap_or_default();
    let driver = machine.driver.as_deref().unwrap_or("no cpufreq");
    let left = format!(
        " {number} {}  {}  {} CPUs  {driver}  {model}",
        state.view.name(),
        machine.name,
        scene.layout.cpus.len()
    );
    let room = canvas.width().saturating_sub(right.chars().count());
    canvas.text(0, 0, &crate::canvas::shorten(&left, room), Tone::Plain);
    canvas.right(0, &right, Tone::Plain);
    canvas.select(0);
}

/// Draws the bottom line: the prompt, an error, or how reliable the numbers above are.
fn bottom(canvas: &mut Canvas, y: usize, state: &State, scene: &Scene) {
    if let Some(prompt) = &state.prompt {
        let asked = match prompt.asked {
            PromptKind::Filter => "filter (CPUs or words): ",
            PromptKind::Time => "time (14:05, -90s, -5m): ",
        };
        let end = canvas.text(0, y, &format!("{asked}{}", prompt.text), Tone::Plain);
        canvas.glyph(end, y, ' ', Tone::Selected);
        return;
    }
    if let Some(message) = &state.message {
        canvas.text(0, y, message, Tone::Notice);
        return;
    }
    canvas.text(0, y, &footing(scene, state), Tone::Faint);
}

/// Describes age and cost of the sample, and what is missing.
fn footing(scene: &Scene, state: &State) -> String {
    let mut parts = Vec::new();
    if let Some(age) = scene.age {
        parts.push(format!("{age:.1} s old"));
    }
    if let Some(moment) = scene.moment {
        let cost = &moment.cost;
        let own = scene.own.map_or(String::new(), |own| format!(", {:.1} % of a CPU", own * 100.0));
        parts.push(format!("cost {:.1} ms{own}", cost.cpu as f64 * 1e-6));
        parts.push(format!("{} interrupts", cost.interrupts));
        if moment.interval.seconds == 0.0 {
            parts.push("first sample: speeds come with the second".to_owned());
        } else if moment.interval.is_broken {
            parts.push("the clock jumped: no rates".to_owned());
        }
    }
    if !state.filter.is_empty() {
        parts.push(format!("filter {}", state.filter));
    }
    if let Some(file) = scene.recording {
        parts.push(format!("records to {file}"));
    }
    // Last, because it is the longest part: the end is cut first.
    if !scene.missing.is_empty() {
        parts.push(format!("not read: {}", scene.missing.join("; ")));
    }
    format!("? help  {}", parts.join("  "))
}

/// Draws all keys, in several columns if they fit, otherwise a page of them. Returns the number of
/// pages.
fn help(canvas: &mut Canvas, page: usize) -> usize {
    let rows = keys::KEYS;
    let named = rows.iter().map(|row| row.written.len()).max().unwrap_or_default();
    let longest = rows.iter().map(|row| row.does.len()).max().unwrap_or_default();
    let room = canvas.height() - 2;
    // Narrow screens, such as 40 columns, have no room for names and descriptions, so these are
    // cut.
    let columns = ((canvas.width() - 1) / (named + longest + 4)).clamp(1, rows.len().div_ceil(room));
    let width = (canvas.width() - 1) / columns;
    let named = named.min(width / 2);
    let pages = rows.len().div_ceil(room * columns);
    let page = page.clamp(1, pages);
    let title = match page == pages {
        true if pages == 1 => " Keys (any key closes this)".to_owned(),
        true => format!(" Keys, page {page} of {pages} (any key closes this)"),
        false => format!(" Keys, page {page} of {pages} (any key: next, Esc: close)"),
    };
    canvas.text(0, 0, &title, Tone::Heading);
    for (at, row) in rows.iter().skip((page - 1) * room * columns).take(room * columns).enumerate() {
        let (x, y) = (1 + at / room * width, 2 + at % room);
        let text = format!("{:named$}  {}", row.written, row.does);
        canvas.text(x, y, &crate::canvas::shorten(&text, width.saturating_sub(1)), Tone::Plain);
    }
    pages
}

/// Summarizes the machine in one line of numbers.
pub fn one_line(scene: &Scene) -> String {
    let Some(moment) = scene.moment else { return "waiting".to_owned() };
    let cpus = &moment.interval.cpus;
    let busy = moment::mean(cpus.iter().filter_map(|cpu| cpu.busy));
    let speed = moment::spread(cpus.iter().filter_map(|cpu| cpu.mhz).collect());
    let watts: f64 = moment.interval.packages.iter().filter_map(|package| package.watts).sum();
    let held = moment.reasons.iter().flatten().filter(|reason| reason.is_throttle).count();
    let mut parts = Vec::new();
    if let Some(busy) = busy {
        parts.push(format!("{:.0}%", busy * 100.0));
    }
    if let Some((_, median, _)) = speed {
        parts.push(format!("{median:.0} MHz"));
    }
    // Without a meter, watts are 0 too. In neither case are they worth space on such a narrow line.
    if watts > 0.0 {
        parts.push(format!("{watts:.0} W"));
    }
    if held > 0 {
        parts.push(format!("{held} held back"));
    }
    parts.join(" ")
}
