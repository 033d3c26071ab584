//! The main loop: handles keys, takes samples, draws frames.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use flyball_monitor::{Layout, Sample};
use ratatui_core::buffer::Buffer;

use crate::{
    draw,
    moment::{Moment, steps},
    scene::{Drawn, Scene},
    series::{Point, Series},
    source::{Recording, Source, moment_at, read, target},
    state::{Effect, Extent, State},
    terminal::{self, Input, Screen},
};

/// Why the loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The user quit with a key.
    Quit,
    Signal,
    /// All requested samples were taken.
    Done,
}

/// How the screen runs.
#[derive(Debug)]
pub struct Options<'a> {
    pub coloured: bool,
    /// Number of samples after which the screen ends.
    pub samples: Option<u64>,
    /// Set by signal handlers.
    pub ended: &'a AtomicBool,
}

/// The longest wait for a key. The library continues to wait after a signal, so this bounds how
/// late a signal is noticed.
const LOOK: Duration = Duration::from_millis(200);

/// Runs the screen until a key or a signal ends it.
///
/// # Errors
/// The terminal went away, or [`Source::advance`] failed.
pub fn run(source: &mut dyn Source, state: &mut State, options: &Options) -> io::Result<Ended> {
    // Keep it to the end of the function: dropping it restores the terminal, however the function
    // ends.
    let (_taken, mut screen) = terminal::take()?;
    let mut looker = ScreenRun {
        layout: source.timeline().layout().clone(),
        series: Series::default(),
        moment: None,
        last: None,
        drawn: Drawn::default(),
        frame: Buffer::default(),
    };
    // Take the first sample at once. It has limits and requests, and the second adds speeds.
    let mut due = Instant::now();
    let mut taken_at = Instant::now();
    let mut count = 0;
    let mut changed = true;
    loop {
        if options.ended.load(Ordering::Relaxed) {
            return Ok(Ended::Signal);
        }
        // Draw before the next sample, which may take long, so that a key has an immediate effect.
        if changed {
            looker.look(source, state)?;
            let age = (!source.status().is_replay && state.shown.is_none())
                .then(|| taken_at.elapsed().as_secs_f64());
            looker.draw(&mut screen, source, state, age, options.coloured)?;
            changed = false;
        }
        // One sample more than requested, because the first has no predecessor to compare with.
        if options.samples.is_some_and(|samples| count > samples) {
            return Ok(Ended::Done);
        }
        if Instant::now() >= due {
            source.count_wakes(looker.drawn.wakes);
            if source.advance()? {
                taken_at = Instant::now();
                count += 1;
                looker.newest(source)?;
            }
            state.tick(source.timeline().end().saturating_sub(1));
            changed = true;
            // Counted from when the sample was due, so that the time of sampling does not add up.
            // At least now: a machine slower than the interval must not be sampled twice in a row.
            due = (due + source.status().interval).max(Instant::now());
        }
        // Wait for a key, the next sample, or the next check for signals, whichever comes first.
        // Even if samples take longer than the interval, keys are handled between them.
        let wait =
            if changed { Duration::ZERO } else { due.saturating_duration_since(Instant::now()).min(LOOK) };
        let mut next = terminal::input(wait)?;
        // Handle all pending input before the next frame, so that a held key or a series of resizes
        // causes only one frame.
        while let Some(input) = next {
            changed = true;
            if input == Input::Gone {
                return Ok(Ended::Signal);
            }
            if looker.input(input, source, state, &mut screen)? {
                return Ok(Ended::Quit);
            }
            next = terminal::input(Duration::ZERO)?;
        }
    }
}

/// Explains why a CPU was not faster at a sample, with a line per step.
fn why(source: &mut dyn Source, number: u64, cpu: u32) -> io::Result<Vec<String>> {
    let before = match number.checked_sub(1) {
        Some(before) => read(source, before)?,
        None => None,
    };
    let to = read(source, number)?;
    let (layout, facts) = source.known(number);
    Ok(match (facts, before, to) {
        (Some(facts), Some(from), Some(to)) => steps(layout, facts, &from, &to, cpu),
        _ => Vec::new(),
    })
}

/// State of one run of the screen.
struct ScreenRun {
    layout: Layout,
    series: Series,
    moment: Option<Moment>,
    /// The newest sample, to compare the next one with.
    last: Option<(u64, Sample)>,
    drawn: Drawn,
    frame: Buffer,
}

impl ScreenRun {
    /// Adds the newest sample to the graphs.
    fn newest(&mut self, source: &mut dyn Source) -> io::Result<()> {
        let number = source.timeline().end().saturating_sub(1);
        let Some(sample) = read(source, number)? else { return Ok(()) };
        // If a sample was dropped in between, there is no interval.
        if let Some((_, before)) = self.last.take().filter(|(last, _)| last + 1 == number) {
            let (layout, facts) = source.known(number);
            let moment = Moment::between(layout, facts, number, &before, &sample);
            self.series.add(Point::from(&moment));
            self.moment = Some(moment);
        }
        self.last = Some((number, sample));
        Ok(())
    }

    /// Computes the moment to show.
    fn look(&mut self, source: &mut dyn Source, state: &mut State) -> io::Result<()> {
        let (first, end) = (source.timeline().first(), source.timeline().end());
        // The first sample has no predecessor to compare with.
        state.drop_before(first + 1);
        let number = state.shown.unwrap_or_else(|| end.saturating_sub(1));
        if self.moment.as_ref().is_some_and(|moment| moment.number == number) {
            return Ok(());
        }
        if number <= first {
            // Show limits, requests and online CPUs at once. Rates need a second sample.
            if self.moment.is_none()
                && let Some(only) = read(source, number)?
            {
                self.moment = Some(Moment::between(&self.layout, None, number, &only, &only));
            }
            return Ok(());
        }
        if let Some(moment) = moment_at(source, number)? {
            self.moment = Some(moment);
        }
        if !self.series.has(number) {
            self.fill(source, number)?;
        }
        Ok(())
    }

    /// Builds the graphs up to the sample that the user jumped to.
    fn fill(&mut self, source: &mut dyn Source, number: u64) -> io::Result<()> {
        /// Columns of a usual screen. More points are only visible on wide screens.
        const POINTS: u64 = 100;
        if number > 0 && self.series.has(number - 1) {
            if let Some(moment) = &self.moment {
                self.series.add(Point::from(moment));
            }
            return Ok(());
        }
        let from = number.saturating_sub(POINTS).max(source.timeline().first());
        // The old points are from before the jump, and graphs need consecutive samples.
        self.series = Series::default();
        let mut before = read(source, from)?;
        for number in from + 1..=number {
            let sample = read(source, number)?;
            if let (Some(before), Some(sample)) = (&before, &sample) {
                let (layout, facts) = source.known(number);
                let moment = Moment::between(layout, facts, number, before, sample);
                self.series.add(Point::from(&moment));
            }
            before = sample;
        }
        Ok(())
    }

    fn draw(
        &mut self,
        screen: &mut Screen,
        source: &mut dyn Source,
        state: &State,
        age: Option<f64>,
        coloured: bool,
    ) -> io::Result<()> {
        let end = source.timeline().end();
        let shown = state.cpu.or_else(|| self.layout.cpus.first().map(|cpu| cpu.number));
        let why = match (&self.moment, shown) {
            (Some(moment), Some(cpu)) if state.view == crate::state::View::OneCpu => {
                why(source, moment.number, cpu)?
            }
            _ => Vec::new(),
        };
        let newest = end.saturating_sub(1);
        // If nothing was sampled (a recording), read its newest sample.
        let wall = match &self.last {
            Some((_, sample)) => sample.wall,
            None => read(source, newest)?.map_or(0, |sample| sample.wall),
        };
        let status = source.status();
        let scene = Scene {
            layout: &self.layout,
            moment: self.moment.as_ref(),
            series: &self.series,
            newest: (newest, wall),
            age,
            is_replay: status.is_replay,
            interval: status.interval.as_secs_f64(),
            own: status.own,
            missing: status.missing,
            notices: status.notices,
            why: &why,
            recording: status.recording,
        };
        let mut drawn = Drawn::default();
        let frame = &mut self.frame;
        screen.draw(|screen| {
            drawn = draw::draw(screen.buffer_mut(), state, &scene, coloured);
            frame.clone_from(screen.buffer_mut());
        })?;
        self.drawn = drawn;
        Ok(())
    }

    /// Handles one input and returns whether to quit.
    fn input(
        &mut self,
        input: Input,
        source: &mut dyn Source,
        state: &mut State,
        screen: &mut Screen,
    ) -> io::Result<bool> {
        let Input::Key(key) = input else { return Ok(false) };
        let (first, end) = (source.timeline().first(), source.timeline().end());
        let status = source.status();
        let interval = status.interval.as_secs_f64().max(0.001);
        let extent = Extent {
            first: first + 1,
            last: end.saturating_sub(1).max(first + 1),
            minute: (60.0 / interval).round().max(1.0) as u64,
            drawn: self.drawn,
            is_replay: status.is_replay,
        };
        match state.key(key, &extent) {
            Effect::Quit => return Ok(true),
            Effect::Redraw => screen.clear()?,
            Effect::Record => {
                state.message = Some(match source.record() {
                    Ok(Recording::Started(name)) => format!("recording to {name}; press r to stop"),
                    Ok(Recording::Finished(name)) => format!("the recording is in {name}"),
                    Err(error) => error.to_string(),
                });
            }
            // Export the frame that is on the screen, so that users get what they see.
            Effect::Export => {
                state.message = Some(match source.export(&draw::text(&self.frame)) {
                    Ok(path) => format!("the view is in {}", path.display()),
                    Err(error) => error.to_string(),
                });
            }
            Effect::Jump(jump) => {
                let newest = end.saturating_sub(1);
                let wall = read(source, newest)?.map_or(0, |sample| sample.wall);
                let at = source.timeline().at(target(jump, wall)).map_err(io::Error::other)?;
                state.show(at.max(first + 1));
            }
            Effect::None => {}
        }
        Ok(false)
    }
}
