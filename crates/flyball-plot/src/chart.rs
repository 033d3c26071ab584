//! A chart, and its layout into shapes.

mod frame;
mod labels;

use self::frame::Frame;
use flyball_text::wrap_by;

use crate::{
    axis::{Axis, Fitted, Scale},
    marks::{Mark, Series},
    scene::{Anchor, Colour, Scene, Shape, palette, text_width},
};

const TITLE: f32 = 16.0;
const TEXT: f32 = 12.0;
const TICK: f32 = 11.0;

#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    pub title: String,
    /// A line below the title.
    pub subtitle: String,
    pub x: Axis,
    pub y: Axis,
    /// Series from back to front.
    pub series: Vec<Series>,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels, without the key of categories.
    pub height: u32,
    /// True if a key below the title explains the short names of categories.
    pub key: bool,
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
            key: true,
        }
    }

    /// Adds a series.
    #[must_use]
    pub fn with(mut self, series: Series) -> Chart {
        self.series.push(series);
        self
    }

    /// Sets the size; at least 200 x 120.
    #[must_use]
    pub fn sized(self, width: u32, height: u32) -> Chart {
        Chart { width: width.clamp(200, 16_000), height: height.clamp(120, 16_000), ..self }
    }

    /// Adds a line below the title.
    #[must_use]
    pub fn described(self, subtitle: impl Into<String>) -> Chart {
        Chart { subtitle: subtitle.into(), ..self }
    }

    /// Leaves out the key of short names, because the page around the chart has one.
    #[must_use]
    pub fn without_key(self) -> Chart {
        Chart { key: false, ..self }
    }

    /// Renders the chart as SVG.
    pub fn svg(&self) -> String {
        self.scene().svg()
    }

    pub fn scene(&self) -> Scene {
        let (x, y) = self.fit();
        let mut shapes = Vec::new();
        // The widest label of the y axis decides where the frame begins, with room for the axis
        // title at the left.
        let left = 24.0 + TEXT + y.ticks.iter().map(|(_, label)| text_width(label, TICK)).fold(0.0, f32::max);
        // Never inside out, however small the picture or long the labels.
        let right = (self.width as f32 - 18.0).max(left + 10.0);
        let mut top = 14.0;
        for (text, size, bold, colour) in
            [(&self.title, TITLE, true, Colour::INK), (&self.subtitle, TEXT, false, Colour::GREY)]
        {
            for line in wrap(text, size, right - left) {
                top += size;
                let (anchor, upwards) = (Anchor::Start, false);
                shapes.push(Shape::Text { x: left, y: top, text: line, size, colour, anchor, bold, upwards });
                top += 4.0;
            }
        }
        top = place_legend(&self.legend(), left, right, top, &mut shapes);
        let names = self.names((right - left) / x.ticks.len().max(1) as f32);
        let above_key = top;
        if let Some((_, key)) = names.as_ref().filter(|_| self.key) {
            top = place_legend(key, left, right, top, &mut shapes);
        }
        // A key makes the picture higher, and does not change the frame.
        let height = self.height + (top - above_key) as u32;
        let bottom = height as f32 - 20.0 - TEXT - TICK - 6.0;
        let top = top + 6.0;
        let frame = Frame { left, right, top, bottom: bottom.max(top + 10.0), height: height as f32, x, y };
        // Painting order: grid below the data, axes above it, so that the ends of bars do not cover
        // the lines.
        frame.grid(self, &mut shapes);
        let bars = self.series.iter().filter(|series| matches!(series.mark, Mark::Bars(_))).count();
        let mut bar = 0;
        for (index, series) in self.series.iter().enumerate() {
            let colour = palette(self.colour_of(index));
            frame.draw(series, colour, (bar, bars), &mut shapes);
            bar += usize::from(matches!(series.mark, Mark::Bars(_)));
        }
        frame.labels(self, &mut shapes);
        frame.axes(self, names.map(|(short, _)| short), &mut shapes);
        Scene { width: self.width, height, description: self.description(), shapes }
    }

    /// The short names of categories with their meaning, if full names do not fit into this width
    /// each.
    #[expect(clippy::type_complexity, reason = "two lists that belong together")]
    fn names(&self, room: f32) -> Option<(Vec<String>, Vec<(String, Option<Colour>)>)> {
        let Scale::Categories(names) = &self.x.scale else { return None };
        if names.iter().all(|name| frame::lines(name, room).concat().chars().all(|letter| letter != '…')) {
            return None;
        }
        let entry = |(short, name)| (format!("{short}  {name}"), None);
        Some((self.x.short.clone(), self.x.short.iter().zip(names).map(entry).collect()))
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
        // Bars on a linear axis need room next to the outermost ones.
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
    fn legend(&self) -> Vec<(String, Option<Colour>)> {
        let mut legend: Vec<(String, Option<Colour>)> = Vec::new();
        for (index, series) in self.series.iter().enumerate() {
            if !series.name.is_empty() && legend.iter().all(|(name, _)| *name != series.name) {
                legend.push((series.name.clone(), Some(palette(self.colour_of(index)))));
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

/// Arranges names in rows below the title, those of series with their colours. Returns where the
/// chart can begin.
fn place_legend(
    legend: &[(String, Option<Colour>)],
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
        let swatch = if colour.is_some() { 16.0 } else { 0.0 };
        let name = frame::shorten(name, right - left - swatch, TEXT);
        let width = swatch + text_width(&name, TEXT) + 18.0;
        // The first name of a row stays in it.
        if x > left && x + width - 18.0 > right {
            (x, y) = (left, y + TEXT + 6.0);
        }
        if let Some(colour) = *colour {
            let (y, opacity, hint) = (y - 9.0, 1.0, None);
            shapes.push(Shape::Bar { x, y, width: 11.0, height: 9.0, colour, opacity, hint });
        }
        shapes.push(text(x + swatch, y, &name, TEXT, Colour::INK, Anchor::Start));
        x += width;
    }
    y + 6.0
}

/// A text in lines that fit the width; no line for an empty one.
fn wrap(words: &str, size: f32, width: f32) -> Vec<String> {
    wrap_by(words, |line, word| text_width(line, size) + text_width(word, size) + size * 0.38 <= width)
}

fn text(x: f32, y: f32, words: &str, size: f32, colour: Colour, anchor: Anchor) -> Shape {
    Shape::Text { x, y, text: words.to_owned(), size, colour, anchor, bold: false, upwards: false }
}

#[cfg(test)]
mod tests;
