//! A scene as a PNG, painted with tiny-skia; letters are the outlines of DejaVu Sans.

use ab_glyph::{Font, FontRef, OutlineCurve, Point, ScaleFont};
use tiny_skia::{FillRule, LineJoin, Paint, Path, PathBuilder, Pixmap, Rect, Stroke, StrokeDash, Transform};

use crate::{
    chart::Chart,
    scene::{Anchor, Colour, Scene, Shape},
};

/// Why a picture could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PngError {
    /// The size is zero, or exceeds the memory limit of a picture.
    #[error("the picture is too large for a PNG; write SVG instead")]
    Size,
    /// The embedded font cannot be read.
    #[error("the embedded font cannot be read")]
    Font,
    /// The encoder's message.
    #[error("cannot encode the PNG: {0}")]
    Encode(String),
}

impl Chart {
    /// Renders a PNG file at `scale` pixels per chart pixel (2 is sharp on most screens).
    ///
    /// # Errors
    /// A size that no picture can have.
    pub fn png(&self, scale: f32) -> Result<Vec<u8>, PngError> {
        self.scene().png(scale)
    }
}

impl Scene {
    /// Renders a PNG file at `scale` pixels per scene pixel.
    ///
    /// # Errors
    /// A size that no picture can have.
    pub fn png(&self, scale: f32) -> Result<Vec<u8>, PngError> {
        let size = |length: u32| (length as f32 * scale).round();
        let (width, height) = (size(self.width), size(self.height));
        // 64 million pixels are 256 MB.
        if !(width >= 1.0 && height >= 1.0 && width * height <= 64e6) {
            // Written so that NaN (a scale that is not a number) is rejected too.
            return Err(PngError::Size);
        }
        let mut painter = Painter {
            pixels: Pixmap::new(width as u32, height as u32).ok_or(PngError::Size)?,
            scale: Transform::from_scale(scale, scale),
            regular: FontRef::try_from_slice(dejavu::sans::regular()).map_err(|_| PngError::Font)?,
            bold: FontRef::try_from_slice(dejavu::sans::bold()).map_err(|_| PngError::Font)?,
        };
        painter.pixels.fill(tiny_skia::Color::WHITE);
        for shape in &self.shapes {
            painter.paint(shape);
        }
        painter.pixels.encode_png().map_err(|error| PngError::Encode(error.to_string()))
    }
}

struct Painter {
    pixels: Pixmap,
    scale: Transform,
    regular: FontRef<'static>,
    bold: FontRef<'static>,
}

fn paint_of(colour: Colour, opacity: f32) -> Paint<'static> {
    let mut paint = Paint { anti_alias: true, ..Paint::default() };
    paint.set_color_rgba8(colour.red, colour.green, colour.blue, (opacity.clamp(0.0, 1.0) * 255.0) as u8);
    paint
}

fn polygon(points: &[(f32, f32)], closed: bool) -> Option<Path> {
    let mut builder = PathBuilder::new();
    for (index, (x, y)) in points.iter().enumerate() {
        if index == 0 { builder.move_to(*x, *y) } else { builder.line_to(*x, *y) }
    }
    if closed {
        builder.close();
    }
    builder.finish()
}

impl Painter {
    fn fill(&mut self, path: Option<Path>, paint: &Paint<'_>) {
        if let Some(path) = path {
            self.pixels.fill_path(&path, paint, FillRule::Winding, self.scale, None);
        }
    }

    fn paint(&mut self, shape: &Shape) {
        match shape {
            Shape::Line { points, colour, width, dashed } => {
                let mut stroke = Stroke { width: *width, line_join: LineJoin::Round, ..Stroke::default() };
                if *dashed {
                    stroke.dash = StrokeDash::new(vec![5.0, 4.0], 0.0);
                }
                // tiny-skia has no path of fewer than two points, so such a line is skipped.
                if let Some(path) = polygon(points, false) {
                    self.pixels.stroke_path(&path, &paint_of(*colour, 1.0), &stroke, self.scale, None);
                }
            }
            Shape::Area { points, colour, opacity } => {
                self.fill(polygon(points, true), &paint_of(*colour, *opacity));
            }
            Shape::Bar { x, y, width, height, colour, opacity, .. } => {
                // `None` if a size is negative or not finite: there is nothing to fill.
                let path = Rect::from_xywh(*x, *y, *width, *height).map(PathBuilder::from_rect);
                self.fill(path, &paint_of(*colour, *opacity));
            }
            Shape::Dot { x, y, radius, colour, opacity, .. } => {
                self.fill(PathBuilder::from_circle(*x, *y, *radius), &paint_of(*colour, *opacity));
            }
            Shape::Text { x, y, text, size, colour, anchor, bold, upwards } => {
                let path = self.words(text, *size, *bold, *anchor);
                let turn = if *upwards { Transform::from_rotate(-90.0) } else { Transform::identity() };
                if let Some(path) = path.and_then(|path| path.transform(turn.post_translate(*x, *y))) {
                    self.fill(Some(path), &paint_of(*colour, 1.0));
                }
            }
        }
    }

    /// The outlines of a text whose anchor is at 0, 0.
    fn words(&self, text: &str, size: f32, bold: bool, anchor: Anchor) -> Option<Path> {
        let font = if bold { &self.bold } else { &self.regular };
        // A size in CSS is the size of the em square; ab_glyph's is ascent and descent together.
        let em = font.units_per_em().unwrap_or(2048.0);
        let factor = size / em;
        let scaled = font.as_scaled(size * font.height_unscaled() / em);
        let mut pen = 0.0;
        let mut glyphs = Vec::new();
        let mut last = None;
        for letter in text.chars() {
            let id = font.glyph_id(letter);
            if let Some(last) = last {
                // As in browsers, so that SVG and PNG have equal widths.
                pen += scaled.kern(last, id);
            }
            glyphs.push((id, pen));
            pen += scaled.h_advance(id);
            last = Some(id);
        }
        let shift = match anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => -pen / 2.0,
            Anchor::End => -pen,
        };
        let mut builder = PathBuilder::new();
        for (id, place) in glyphs {
            // Blanks have no outline, only an advance.
            let Some(outline) = font.outline(id) else { continue };
            // Font units grow upwards, pixels downwards.
            let at = |point: Point| (point.x * factor + place + shift, -point.y * factor);
            // ab_glyph gives the curves of all contours in one list: a contour ends if the next
            // curve does not begin at the last point.
            let mut end: Option<Point> = None;
            for curve in &outline.curves {
                let (start, stop) = match curve {
                    OutlineCurve::Line(a, b)
                    | OutlineCurve::Quad(a, _, b)
                    | OutlineCurve::Cubic(a, _, _, b) => (*a, *b),
                };
                if end != Some(start) {
                    if end.is_some() {
                        builder.close();
                    }
                    let (x, y) = at(start);
                    builder.move_to(x, y);
                }
                let (x, y) = at(stop);
                match curve {
                    OutlineCurve::Line(..) => builder.line_to(x, y),
                    OutlineCurve::Quad(_, c, _) => builder.quad_to(at(*c).0, at(*c).1, x, y),
                    OutlineCurve::Cubic(_, c, d, _) => {
                        builder.cubic_to(at(*c).0, at(*c).1, at(*d).0, at(*d).1, x, y);
                    }
                }
                end = Some(stop);
            }
            if end.is_some() {
                builder.close();
            }
        }
        builder.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axis, Mark, Series};

    #[test]
    fn a_png_has_its_size_and_its_ink() {
        let chart = Chart::new("Title", Axis::new("x", ""), Axis::new("y", ""))
            .with(Series::new("a", Mark::Bars(vec![(0.0, 1.0), (1.0, 3.0)])));
        let bytes = chart.png(1.0).expect("it can be painted");
        let picture = Pixmap::decode_png(&bytes).expect("it is a PNG");
        assert_eq!((picture.width(), picture.height()), (760, 380));
        let blue = crate::palette(0);
        let count = picture
            .pixels()
            .iter()
            .filter(|pixel| (pixel.red(), pixel.green(), pixel.blue()) == (blue.red, blue.green, blue.blue))
            .count();
        assert!(count > 5000, "{count} blue pixels");
        // The title's letters: dark pixels in the band at the top.
        let dark = picture.pixels()[..760 * 34].iter().filter(|pixel| pixel.green() < 0x60).count();
        assert!(dark > 80, "{dark} dark pixels");
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let chart = Chart::new("", Axis::new("x", ""), Axis::new("y", ""));
        for scale in [0.0, -1.0, f32::NAN, 1000.0] {
            assert_eq!(chart.png(scale), Err(PngError::Size), "{scale}");
        }
    }
}
