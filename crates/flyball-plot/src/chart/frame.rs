//! The part of a chart in which data is drawn: grid, axes and marks as shapes.

use super::{Chart, TEXT, TICK, labels, text};
use crate::{
    axis::{Fitted, Scale},
    marks::{BoxStat, Cross, Mark, Series},
    scene::{Anchor, Colour, Shape, text_width},
};

/// Maximum number of dots with hints in a series: with more, the file would be mostly hints.
const HINTED: usize = 400;

/// The part of the picture in which data is drawn.
pub(super) struct Frame {
    pub(super) left: f32,
    pub(super) right: f32,
    pub(super) top: f32,
    pub(super) bottom: f32,
    /// Height of the picture.
    pub(super) height: f32,
    pub(super) x: Fitted,
    pub(super) y: Fitted,
}

impl Frame {
    fn px(&self, x: f64) -> Option<f32> {
        // Values outside fixed ends are drawn slightly outside the frame, and cut off there.
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

    pub(super) fn grid(&self, chart: &Chart, shapes: &mut Vec<Shape>) {
        let line =
            |points: Vec<(f32, f32)>| Shape::Line { points, colour: Colour::GRID, width: 1.0, dashed: false };
        for y in self.y.ticks.iter().filter_map(|(value, _)| self.py(*value)) {
            shapes.push(line(vec![(self.left, y), (self.right, y)]));
        }
        // Between categories, a line would mark nothing.
        if !matches!(chart.x.scale, Scale::Categories(_)) {
            for x in self.x.ticks.iter().filter_map(|(value, _)| self.px(*value)) {
                shapes.push(line(vec![(x, self.top), (x, self.bottom)]));
            }
        }
    }

    /// Lines, ticks and titles of both axes; `short` are the names of categories whose full names
    /// do not fit.
    pub(super) fn axes(&self, chart: &Chart, short: Option<Vec<String>>, shapes: &mut Vec<Shape>) {
        shapes.push(Shape::Line {
            points: vec![(self.left, self.top), (self.left, self.bottom), (self.right, self.bottom)],
            colour: Colour::INK,
            width: 1.0,
            dashed: false,
        });
        for (value, label) in &self.y.ticks {
            if let Some(y) = self.py(*value) {
                // A third of the type's height below the tick, so that digits are centred on it.
                shapes.push(text(self.left - 6.0, y + TICK * 0.35, label, TICK, Colour::GREY, Anchor::End));
            }
        }
        let ticks = match short {
            Some(short) => self.x.ticks.iter().map(|(value, _)| *value).zip(short).collect(),
            None => self.x.ticks.clone(),
        };
        // Labels that would touch are left out, at even distances; names of categories may take two
        // lines.
        let room = (self.right - self.left) / ticks.len().max(1) as f32;
        let categories = matches!(chart.x.scale, Scale::Categories(_));
        let widest = ticks.iter().map(|(_, label)| text_width(label, TICK) + 10.0).fold(1.0, f32::max);
        // 16 pixels hold the two digits of a category's number.
        let every = if categories { (16.0 / room).ceil() } else { (widest / room).ceil() }.max(1.0) as usize;
        for (value, label) in ticks.iter().step_by(every) {
            if let Some(x) = self.px(*value) {
                let lines = if categories { lines(label, room * every as f32) } else { vec![label.clone()] };
                for (line, label) in lines.iter().enumerate() {
                    let y = self.bottom + TICK + 5.0 + line as f32 * (TICK + 2.0);
                    shapes.push(text(x, y, label, TICK, Colour::GREY, Anchor::Middle));
                }
            }
        }
        let middle = f32::midpoint(self.left, self.right);
        let below = self.height - 10.0;
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

    pub(super) fn draw(
        &self,
        series: &Series,
        colour: Colour,
        (bar, bars): (usize, usize),
        shapes: &mut Vec<Shape>,
    ) {
        match &series.mark {
            Mark::Line(points) => self.line(points, false, colour, shapes),
            Mark::Step(points) => self.line(points, true, colour, shapes),
            Mark::Dots(points) => self.dots(points, series, colour, shapes),
            Mark::Bars(points) => {
                // Three quarters of the space between two positions, for all series together.
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
            Mark::Cross(cross) => self.cross(cross, colour, shapes),
            Mark::Band(band) => {
                // Along the upper edge and back along the lower edge: one closed outline.
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
                // A line with one point (between two gaps) would not be visible.
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
            // Dots at the same half pixel are drawn once: with many thousands of dots, the file
            // would hold mostly invisible dots.
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
                // A pixel between neighbours, but a bar of a long histogram is still one pixel
                // wide.
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
        // Half the space of a category. Bounded, so that boxes do not fill a chart of two arms.
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
            // Keep a box of equal values visible.
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
        // Intervals in one category are 0.16 apart, so their ends do not meet.
        let half = (self.px(0.06).unwrap_or(0.0) - self.px(0.0).unwrap_or(0.0)).clamp(1.0, 6.0);
        shapes.push(line(vec![(x, low), (x, high)]));
        for end in [low, high] {
            shapes.push(line(vec![(x - half, end), (x + half, end)]));
        }
        shapes.push(Shape::Dot {
            x,
            y,
            radius: half.clamp(2.0, 4.5),
            colour,
            opacity: 1.0,
            hint: Some(short(middle)),
        });
    }
}

impl Frame {
    fn cross(&self, cross: &Cross, colour: Colour, shapes: &mut Vec<Shape>) {
        let Some((x, y)) = self.point((cross.x.1, cross.y.1)) else { return };
        let line = |points: Vec<(f32, f32)>| Shape::Line { points, colour, width: 1.5, dashed: false };
        if let (Some(low), Some(high)) = (self.px(cross.x.0), self.px(cross.x.2)) {
            shapes.push(line(vec![(low, y), (high, y)]));
        }
        if let (Some(low), Some(high)) = (self.py(cross.y.0), self.py(cross.y.2)) {
            shapes.push(line(vec![(x, low), (x, high)]));
        }
        let hint = Some(format!("{}: {}, {}", cross.label, short(cross.x.1), short(cross.y.1)));
        shapes.push(Shape::Dot { x, y, radius: 4.5, colour, opacity: 1.0, hint });
    }

    /// The labels of all crosses, placed together so that none covers another.
    pub(super) fn labels(&self, chart: &Chart, shapes: &mut Vec<Shape>) {
        let crosses = chart.series.iter().filter_map(|series| match &series.mark {
            Mark::Cross(cross) => {
                self.point((cross.x.1, cross.y.1)).map(|point| (point, cross.label.as_str()))
            }
            _ => None,
        });
        let frame = (self.left, self.top, self.right, self.bottom);
        let lines = chart.series.iter().filter_map(|series| match &series.mark {
            Mark::Line(points) => Some(points.iter().filter_map(|point| self.point(*point)).collect()),
            _ => None,
        });
        let lines: Vec<Vec<(f32, f32)>> = lines.collect();
        for label in labels::place(&crosses.collect::<Vec<_>>(), &lines, frame) {
            if let Some(points) = label.leader {
                shapes.push(Shape::Line { points, colour: Colour::GREY, width: 0.7, dashed: false });
            }
            shapes.push(text(label.x, label.y, label.text, TEXT, Colour::INK, Anchor::Start));
        }
    }
}

/// A name in at most two lines of the given width, broken at a blank.
pub(super) fn lines(name: &str, width: f32) -> Vec<String> {
    if text_width(name, TICK) > width
        && let Some((first, rest)) = name.split_once(' ')
    {
        return vec![shorten(first, width, TICK), shorten(rest, width, TICK)];
    }
    vec![shorten(name, width, TICK)]
}

/// A name, with its end left out if it is wider than this.
pub(super) fn shorten(name: &str, width: f32, size: f32) -> String {
    if text_width(name, size) <= width {
        return name.to_owned();
    }
    let mut kept = String::new();
    for letter in name.chars() {
        if text_width(&kept, size) + size * 1.6 > width {
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

/// Keeps the first, lowest, highest and last point of each pixel column: the others cannot be
/// seen.
fn thin(points: &[(f32, f32)]) -> Vec<(f32, f32)> {
    // With fewer points, thinning saves too little.
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
        // In their original order: the line enters the column at the first point and leaves at the
        // last, like the full line.
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
