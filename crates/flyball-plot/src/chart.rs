//! A chart, and its layout into shapes.

use crate::{
    axis::{Axis, Fitted, Scale},
    marks::{BoxStat, Mark, Series},
    scene::{Anchor, Colour, Scene, Shape, palette, text_width},
};

const TITLE: f32 = 16.0;
const TEXT: f32 = 12.0;
const TICK: f32 = 11.0;

/// Above this many dots in a series they carry no hints: the file would be mostly hints.
const HINTED: usize = 400;

#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    pub title: String,
    /// A line below the title.
    pub subtitle: String,
    pub x: Axis,
    pub y: Axis,
    /// What is drawn, those behind first.
    pub series: Vec<Series>,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
}

impl Chart {
    /// An empty chart of 760 x 380 pixels.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Chart {
        Chart {
            title: title.into(),
            subtitle: String::new(),
            x,
            y,
            series: Vec::new(),
            width: 760,
            height: 380,
        }
    }

    /// The same with another series.
    #[must_use]
    pub fn with(mut self, series: Series) -> Chart {
        self.series.push(series);
        self
    }

    /// The same in another size; at least 200 x 120.
    #[must_use]
    pub fn sized(self, width: u32, height: u32) -> Chart {
        Chart { width: width.clamp(200, 16_000), height: height.clamp(120, 16_000), ..self }
    }

    /// The same with a line below the title.
    #[must_use]
    pub fn described(self, subtitle: impl Into<String>) -> Chart {
        Chart { subtitle: subtitle.into(), ..self }
    }

    /// As SVG text.
    pub fn svg(&self) -> String {
        self.scene().svg()
    }

    pub fn scene(&self) -> Scene {
        let (x, y) = self.fit();
        let mut shapes = Vec::new();
        let legend = self.legend();
        // The widest label of the y axis decides where the frame begins, with room for the axis title on its side.
        let left = 24.0 + TEXT + y.ticks.iter().map(|(_, label)| text_width(label, TICK)).fold(0.0, f32::max);
        let mut top = 14.0;
        let mut words = |text: &str, size: f32, bold: bool, colour: Colour, top: &mut f32| {
            if !text.is_empty() {
                *top += size;
                shapes.push(Shape::Text {
                    x: left,
                    y: *top,
                    text: text.to_owned(),
                    size,
                    colour,
                    anchor: Anchor::Start,
                    bold,
                    upwards: false,
                });
                *top += 6.0;
            }
        };
        words(&self.title, TITLE, true, Colour::INK, &mut top);
        words(&self.subtitle, TEXT, false, Colour::GREY, &mut top);
        let right = self.width as f32 - 18.0;
        top = place_legend(&legend, left, right, top, &mut shapes);
        let bottom = self.height as f32 - 20.0 - TEXT - TICK - 6.0;
        let frame = Frame {
            left,
            // Never inside out, however small the picture or long the labels.
            right: right.max(left + 10.0),
            top: top + 6.0,
            bottom: bottom.max(top + 16.0),
            x,
            y,
        };
        // Painting order: grid below the data, axes above it, so that the ends of bars do not cover the lines.
        frame.grid(self, &mut shapes);
        let bars = self.series.iter().filter(|series| matches!(series.mark, Mark::Bars(_))).count();
        let mut bar = 0;
        for (index, series) in self.series.iter().enumerate() {
            let colour = palette(self.colour_of(index));
            frame.draw(series, colour, (bar, bars), &mut shapes);
            bar += usize::from(matches!(series.mark, Mark::Bars(_)));
        }
        frame.axes(self, &mut shapes);
        Scene { width: self.width, height: self.height, description: self.description(), shapes }
    }

    fn description(&self) -> String {
        let names: Vec<&str> =
            self.series.iter().map(|s| s.name.as_str()).filter(|name| !name.is_empty()).collect();
        let of = if names.is_empty() { String::new() } else { format!(" of {}", names.join(", ")) };
        format!("{}: {} over {}{of}", self.title, self.y.title(), self.x.title())
    }

    fn fit(&self) -> (Fitted, Fitted) {
        let (mut xs, mut ys) = (Extent::default(), Extent::default());
        for series in &self.series {
            series.mark.extent(|x, y| {
                xs.see(x);
                ys.see(y);
            });
        }
        // Counts and bars stand on the axis.
        let mut y = self.y.clone();
        y.from_zero |= self.series.iter().any(|s| matches!(s.mark, Mark::Bars(_) | Mark::Histogram(_)));
        let mut x = self.x.fit(xs.0);
        // Bars of a linear axis need room next to the outermost.
        if self.x.scale == Scale::Linear && self.series.iter().any(|s| matches!(s.mark, Mark::Bars(_))) {
            x.low -= 0.5;
            x.high += 0.5;
        }
        (x, y.fit(ys.0))
    }

    fn colour_of(&self, index: usize) -> usize {
        self.series[index].colour.unwrap_or_else(|| {
            self.series[..index].iter().filter(|s| s.colour.is_none() && !s.name.is_empty()).count()
        })
    }

    /// Names with colours, each name once.
    fn legend(&self) -> Vec<(String, Colour)> {
        let mut legend: Vec<(String, Colour)> = Vec::new();
        for (index, series) in self.series.iter().enumerate() {
            if !series.name.is_empty() && legend.iter().all(|(name, _)| *name != series.name) {
                legend.push((series.name.clone(), palette(self.colour_of(index))));
            }
        }
        legend
    }
}

#[derive(Default)]
struct Extent(Option<(f64, f64)>);

impl Extent {
    fn see(&mut self, value: Option<f64>) {
        let Some(value) = value.filter(|value| value.is_finite()) else { return };
        let (low, high) = self.0.get_or_insert((value, value));
        *low = low.min(value);
        *high = high.max(value);
    }
}

/// Puts the legend into rows below the title; returns where the chart can begin.
fn place_legend(
    legend: &[(String, Colour)],
    left: f32,
    right: f32,
    top: f32,
    shapes: &mut Vec<Shape>,
) -> f32 {
    if legend.is_empty() {
        return top;
    }
    let (mut x, mut y) = (left, top + TEXT);
    for (name, colour) in legend {
        let width = 18.0 + text_width(name, TEXT) + 16.0;
        // The first of a row stays in it, however long its name is.
        if x > left && x + width > right {
            (x, y) = (left, y + TEXT + 6.0);
        }
        shapes.push(Shape::Bar {
            x,
            y: y - 9.0,
            width: 11.0,
            height: 9.0,
            colour: *colour,
            opacity: 1.0,
            hint: None,
        });
        shapes.push(text(x + 16.0, y, name, TEXT, Colour::INK, Anchor::Start));
        x += width;
    }
    y + 6.0
}

fn text(x: f32, y: f32, words: &str, size: f32, colour: Colour, anchor: Anchor) -> Shape {
    Shape::Text { x, y, text: words.to_owned(), size, colour, anchor, bold: false, upwards: false }
}

/// The part of the picture that data is drawn in.
struct Frame {
    left: f32,
    right: f32,
    top: f32,
    bottom: f32,
    x: Fitted,
    y: Fitted,
}

impl Frame {
    fn px(&self, x: f64) -> Option<f32> {
        // What lies outside fixed ends is drawn at the edge's side, a little outside, and cut there.
        Some(self.left + (self.right - self.left) * self.x.place(x)?.clamp(-0.01, 1.01) as f32)
    }

    fn py(&self, y: f64) -> Option<f32> {
        Some(self.bottom - (self.bottom - self.top) * self.y.place(y)?.clamp(0.0, 1.0) as f32)
    }

    fn inside(&self, x: f64) -> bool {
        self.x.place(x).is_some_and(|place| (-1e-6..=1.0 + 1e-6).contains(&place))
    }

    fn point(&self, (x, y): (f64, f64)) -> Option<(f32, f32)> {
        Some((self.px(x)?, self.py(y)?))
    }

    fn grid(&self, chart: &Chart, shapes: &mut Vec<Shape>) {
        let line =
            |points: Vec<(f32, f32)>| Shape::Line { points, colour: Colour::GRID, width: 1.0, dashed: false };
        for y in self.y.ticks.iter().filter_map(|(value, _)| self.py(*value)) {
            shapes.push(line(vec![(self.left, y), (self.right, y)]));
        }
        // Between categories there is nothing that a line could mark.
        if !matches!(chart.x.scale, Scale::Categories(_)) {
            for x in self.x.ticks.iter().filter_map(|(value, _)| self.px(*value)) {
                shapes.push(line(vec![(x, self.top), (x, self.bottom)]));
            }
        }
    }

    fn axes(&self, chart: &Chart, shapes: &mut Vec<Shape>) {
        shapes.push(Shape::Line {
            points: vec![(self.left, self.top), (self.left, self.bottom), (self.right, self.bottom)],
            colour: Colour::INK,
            width: 1.0,
            dashed: false,
        });
        for (value, label) in &self.y.ticks {
            if let Some(y) = self.py(*value) {
                // A third of the height of the type below the tick: digits then stand in the middle of it.
                shapes.push(text(self.left - 6.0, y + TICK * 0.35, label, TICK, Colour::GREY, Anchor::End));
            }
        }
        // Labels that would touch are left out, evenly; long names of categories take two lines, and are cut then.
        let room = (self.right - self.left) / self.x.ticks.len().max(1) as f32;
        let categories = matches!(chart.x.scale, Scale::Categories(_));
        let widest = self.x.ticks.iter().map(|(_, label)| text_width(label, TICK) + 10.0).fold(1.0, f32::max);
        // 26 pixels hold two letters and the mark of a cut, the least that says something.
        let every = if categories { (26.0 / room).ceil() } else { (widest / room).ceil() }.max(1.0) as usize;
        for (value, label) in self.x.ticks.iter().step_by(every) {
            if let Some(x) = self.px(*value) {
                let lines = if categories { lines(label, room * every as f32) } else { vec![label.clone()] };
                for (line, label) in lines.iter().enumerate() {
                    let y = self.bottom + TICK + 5.0 + line as f32 * (TICK + 2.0);
                    shapes.push(text(x, y, label, TICK, Colour::GREY, Anchor::Middle));
                }
            }
        }
        let middle = f32::midpoint(self.left, self.right);
        let below = chart.height as f32 - 10.0;
        shapes.push(text(middle, below, &chart.x.title(), TEXT, Colour::INK, Anchor::Middle));
        shapes.push(Shape::Text {
            x: 6.0 + TEXT,
            y: f32::midpoint(self.top, self.bottom),
            text: chart.y.title(),
            size: TEXT,
            colour: Colour::INK,
            anchor: Anchor::Middle,
            bold: false,
            upwards: true,
        });
    }

    fn draw(&self, series: &Series, colour: Colour, (bar, bars): (usize, usize), shapes: &mut Vec<Shape>) {
        match &series.mark {
            Mark::Line(points) => self.line(points, false, colour, shapes),
            Mark::Step(points) => self.line(points, true, colour, shapes),
            Mark::Dots(points) => self.dots(points, series, colour, shapes),
            Mark::Bars(points) => {
                // Three quarters of the space between two places, for all series together.
                let width = 0.75 / bars.max(1) as f64;
                let bins: Vec<(f64, f64, f64)> = points
                    .iter()
                    .map(|(x, y)| {
                        let from = x - 0.375 + bar as f64 * width;
                        (from, from + width, *y)
                    })
                    .collect();
                self.bars(&bins, series, colour, shapes);
            }
            Mark::Histogram(bins) => self.bars(bins, series, colour, shapes),
            Mark::Boxes(boxes) => boxes.iter().for_each(|stat| self.one_box(stat, colour, shapes)),
            Mark::Intervals(intervals) => {
                for (x, low, middle, high) in intervals.iter().filter(|interval| self.inside(interval.0)) {
                    self.interval(*x, *low, *middle, *high, colour, shapes);
                }
            }
            Mark::Band(band) => {
                // There along the upper edge and back along the lower: one closed outline.
                let upper = band.iter().filter_map(|(x, _, high)| self.point((*x, *high)));
                let lower = band.iter().rev().filter_map(|(x, low, _)| self.point((*x, *low)));
                let points: Vec<(f32, f32)> = upper.chain(lower).collect();
                if points.len() > 2 {
                    shapes.push(Shape::Area { points, colour, opacity: series.opacity * 0.25 });
                }
            }
            Mark::Level(y) => {
                if let Some(y) = self.py(*y) {
                    let points = vec![(self.left, y), (self.right, y)];
                    shapes.push(Shape::Line { points, colour, width: 1.2, dashed: true });
                }
            }
            Mark::Moment(x) => {
                if let Some(x) = self.px(*x).filter(|_| self.inside(*x)) {
                    let points = vec![(x, self.top), (x, self.bottom)];
                    shapes.push(Shape::Line { points, colour, width: 1.2, dashed: true });
                }
            }
        }
    }

    fn line(&self, points: &[(f64, f64)], steps: bool, colour: Colour, shapes: &mut Vec<Shape>) {
        let unbroken = points.split(|(x, y)| !x.is_finite() || !y.is_finite());
        for part in unbroken {
            let mut places: Vec<(f32, f32)> = Vec::with_capacity(part.len().min(8192));
            for point in part {
                let Some(place) = self.point(*point) else { continue };
                // The old value holds until the next point: a corner at the new x.
                if let (true, Some(last)) = (steps, places.last().copied()) {
                    places.push((place.0, last.1));
                }
                places.push(place);
            }
            let places = thin(&places);
            match places.as_slice() {
                [] => {}
                // A line of one point (between two gaps) would not be visible.
                [(x, y)] => {
                    shapes.push(Shape::Dot { x: *x, y: *y, radius: 1.5, colour, opacity: 1.0, hint: None });
                }
                _ => shapes.push(Shape::Line { points: places, colour, width: 1.5, dashed: false }),
            }
        }
    }

    fn dots(&self, points: &[(f64, f64)], series: &Series, colour: Colour, shapes: &mut Vec<Shape>) {
        let hinted = points.len() <= HINTED;
        let mut seen = std::collections::HashSet::new();
        for point in points.iter().filter(|point| self.inside(point.0)) {
            let Some((x, y)) = self.point(*point) else { continue };
            // Dots that cover each other exactly are drawn once.
            // In half pixels: with many thousands of dots the file would hold mostly dots that are not visible.
            if !hinted && !seen.insert(((x * 2.0) as i32, (y * 2.0) as i32)) {
                continue;
            }
            let hint = hinted.then(|| {
                let name = if series.name.is_empty() { String::new() } else { format!("{}: ", series.name) };
                format!("{name}{}", short(point.1))
            });
            let radius = if hinted { 3.0 } else { 1.5 };
            shapes.push(Shape::Dot { x, y, radius, colour, opacity: series.opacity, hint });
        }
    }

    fn bars(&self, bins: &[(f64, f64, f64)], series: &Series, colour: Colour, shapes: &mut Vec<Shape>) {
        for (from, to, height) in bins {
            let ends = (self.px(*from), self.px(*to), self.py(*height), self.py(0.0));
            let (Some(left), Some(right), Some(y), Some(zero)) = ends else { continue };
            shapes.push(Shape::Bar {
                x: left.min(right),
                y: y.min(zero),
                // A pixel between neighbours; a bar of a long histogram is still one pixel wide.
                width: ((right - left).abs() - 1.0).max(1.0),
                height: (zero - y).abs(),
                colour,
                opacity: series.opacity,
                hint: (bins.len() <= HINTED).then(|| short(*height)),
            });
        }
    }

    fn one_box(&self, stat: &BoxStat, colour: Colour, shapes: &mut Vec<Shape>) {
        let numbers = [stat.low, stat.lower, stat.middle, stat.upper, stat.high].map(|value| self.py(value));
        let (Some(x), [Some(low), Some(lower), Some(middle), Some(upper), Some(high)]) =
            (self.px(stat.at), numbers)
        else {
            return;
        };
        // Half the space of a category; bounded, so that a chart of two arms is not all box.
        let half = self.px(stat.at + 0.25).map_or(12.0, |edge| (edge - x).abs()).clamp(3.0, 36.0);
        let line = |points: Vec<(f32, f32)>, width: f32| Shape::Line { points, colour, width, dashed: false };
        shapes.push(line(vec![(x, low), (x, lower)], 1.2));
        shapes.push(line(vec![(x, upper), (x, high)], 1.2));
        for end in [low, high] {
            shapes.push(line(vec![(x - half / 2.0, end), (x + half / 2.0, end)], 1.2));
        }
        shapes.push(Shape::Bar {
            x: x - half,
            y: upper,
            width: 2.0 * half,
            // A box of equal values is still visible.
            height: (lower - upper).max(0.5),
            colour,
            opacity: 0.18,
            hint: None,
        });
        let outline =
            [(x - half, lower), (x - half, upper), (x + half, upper), (x + half, lower), (x - half, lower)];
        shapes.push(line(outline.to_vec(), 1.2));
        shapes.push(line(vec![(x - half, middle), (x + half, middle)], 2.4));
    }

    fn interval(&self, x: f64, low: f64, middle: f64, high: f64, colour: Colour, shapes: &mut Vec<Shape>) {
        let (Some(x), Some(low), Some(y), Some(high)) =
            (self.px(x), self.py(low), self.py(middle), self.py(high))
        else {
            return;
        };
        let line = |points: Vec<(f32, f32)>| Shape::Line { points, colour, width: 2.0, dashed: false };
        shapes.push(line(vec![(x, low), (x, high)]));
        for end in [low, high] {
            shapes.push(line(vec![(x - 6.0, end), (x + 6.0, end)]));
        }
        shapes.push(Shape::Dot { x, y, radius: 4.5, colour, opacity: 1.0, hint: Some(short(middle)) });
    }
}

/// A name in at most two lines of a width, broken at a blank.
fn lines(name: &str, width: f32) -> Vec<String> {
    if text_width(name, TICK) > width
        && let Some((first, rest)) = name.split_once(' ')
    {
        return vec![cut(first, width), cut(rest, width)];
    }
    vec![cut(name, width)]
}

fn cut(name: &str, width: f32) -> String {
    if text_width(name, TICK) <= width {
        return name.to_owned();
    }
    let mut kept = String::new();
    for letter in name.chars() {
        if text_width(&kept, TICK) + TICK * 1.6 > width {
            break;
        }
        kept.push(letter);
    }
    format!("{}…", kept.trim_end())
}

fn short(value: f64) -> String {
    // Five significant digits, more than the picture shows.
    let digits = (5 - value.abs().max(1e-9).log10().ceil() as i32).clamp(0, 9) as usize;
    format!("{value:.digits$}")
}

/// Of the points in one column of pixels the first, the lowest, the highest and the last: what is seen of them all.
fn thin(points: &[(f32, f32)]) -> Vec<(f32, f32)> {
    // Below this all of them together are smaller than what thinning saves.
    if points.len() < 2000 {
        return points.to_vec();
    }
    let mut thinned = Vec::new();
    for column in points.chunk_by(|a, b| a.0.floor() == b.0.floor()) {
        let extreme = |wanted: fn(f32, f32) -> bool| {
            column
                .iter()
                .enumerate()
                .reduce(|a, b| if wanted(b.1.1, a.1.1) { b } else { a })
                .map_or(0, |(at, _)| at)
        };
        // In their order: the line enters the column at the first and leaves at the last, as the full line does.
        let mut keep = [0, extreme(|a, b| a < b), extreme(|a, b| a > b), column.len() - 1];
        keep.sort_unstable();
        let mut last = None;
        for at in keep {
            if last != Some(at) {
                thinned.push(column[at]);
                last = Some(at);
            }
        }
    }
    thinned
}

#[cfg(test)]
mod tests;
