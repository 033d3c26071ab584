//! A scene as SVG text.

use std::fmt::Write;

use flyball_text::escape;

use crate::scene::{Anchor, Colour, Scene, Shape};

impl std::fmt::Display for Colour {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{:02x}{:02x}{:02x}", self.red, self.green, self.blue)
    }
}

/// A coordinate, to a tenth of a pixel.
fn place(value: f32) -> String {
    // A tenth of a pixel is below what screens show, and long traces are mostly coordinates.
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

fn path(points: &[(f32, f32)]) -> String {
    let mut out = String::with_capacity(points.len() * 12);
    for (index, (x, y)) in points.iter().enumerate() {
        let _ = write!(out, "{}{} {}", if index == 0 { 'M' } else { 'L' }, place(*x), place(*y));
    }
    out
}

impl Scene {
    /// The picture as an SVG element that can stand alone or in a page.
    pub fn svg(&self) -> String {
        let mut out = String::new();
        // viewBox and size: a picture alone has its own size, and in a page the style sheet scales
        // it.
        let (width, height) = (self.width, self.height);
        let description = escape(&self.description);
        let _ = write!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" aria-label=\"{description}\" \
             font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"{}\"/>\n",
            Colour::PAPER
        );
        for shape in &self.shapes {
            write_shape(&mut out, shape);
        }
        out.push_str("</svg>\n");
        out
    }
}

/// Closes an element, with a hint in it if there is one.
fn close(out: &mut String, name: &str, hint: Option<&String>) {
    match hint {
        Some(hint) => {
            let _ = writeln!(out, "><title>{}</title></{name}>", escape(hint));
        }
        None => out.push_str("/>\n"),
    }
}

fn opacity_of(opacity: f32) -> String {
    if opacity < 1.0 { format!(" fill-opacity=\"{opacity:.2}\"") } else { String::new() }
}

fn write_shape(out: &mut String, shape: &Shape) {
    // Writing to a string does not fail.
    let _ = match shape {
        Shape::Line { points, colour, width, dashed } => {
            let dashes = if *dashed { " stroke-dasharray=\"5 4\"" } else { "" };
            writeln!(
                out,
                "<path d=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" \
                 stroke-linejoin=\"round\"{dashes}/>",
                path(points)
            )
        }
        Shape::Area { points, colour, opacity } => {
            writeln!(out, "<path d=\"{}Z\" fill=\"{colour}\"{}/>", path(points), opacity_of(*opacity))
        }
        Shape::Bar { x, y, width, height, colour, opacity, hint } => {
            let _ = write!(
                out,
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{colour}\"{}",
                place(*x),
                place(*y),
                place(*width),
                place(*height),
                opacity_of(*opacity)
            );
            close(out, "rect", hint.as_ref());
            Ok(())
        }
        Shape::Dot { x, y, radius, colour, opacity, hint } => {
            let _ = write!(
                out,
                "<circle cx=\"{}\" cy=\"{}\" r=\"{radius}\" fill=\"{colour}\"{}",
                place(*x),
                place(*y),
                opacity_of(*opacity)
            );
            close(out, "circle", hint.as_ref());
            Ok(())
        }
        Shape::Text { x, y, text, size, colour, anchor, bold, upwards } => {
            let anchor = match anchor {
                Anchor::Start => "",
                Anchor::Middle => " text-anchor=\"middle\"",
                Anchor::End => " text-anchor=\"end\"",
            };
            let weight = if *bold { " font-weight=\"bold\"" } else { "" };
            let (x, y) = (place(*x), place(*y));
            let turn = if *upwards { format!(" transform=\"rotate(-90 {x} {y})\"") } else { String::new() };
            writeln!(
                out,
                "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" fill=\"{colour}\"{anchor}{weight}{turn}>{}</text>",
                escape(text)
            )
        }
    };
}
