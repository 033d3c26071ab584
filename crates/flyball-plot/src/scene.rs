//! A laid-out picture: shapes in pixels, from the top left, in painting order.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Colour {
    pub red: u8,
    pub green: u8,
    pub blue: u8,
}

impl Colour {
    /// Text and axes.
    pub const INK: Colour = Colour::rgb(0x22_22_22);
    /// Secondary text.
    pub const GREY: Colour = Colour::rgb(0x66_66_66);
    /// Grid lines.
    pub const GRID: Colour = Colour::rgb(0xe4_e4_e4);
    pub const PAPER: Colour = Colour::rgb(0xff_ff_ff);

    /// A colour from its number, 0xRRGGBB.
    pub const fn rgb(number: u32) -> Colour {
        Colour { red: (number >> 16) as u8, green: (number >> 8) as u8, blue: number as u8 }
    }
}

/// Colours on white and on black. The first eight can be distinguished with any colour vision
/// (Okabe and Ito 2008, its yellow darkened to show on white). The other eight are for charts with
/// up to 16 series (after Tol's muted scheme, 2021), in which a label or a position identifies a
/// series besides the colour.
const COLOURS: [(u32, u32); 16] = [
    (0x00_72_b2, 0x4d_a6_e8),
    (0xd5_5e_00, 0xff_8a_3d),
    (0x00_9e_73, 0x2f_c4_99),
    (0xcc_79_a7, 0xe0_9c_c4),
    (0xe6_9f_00, 0xf2_b5_33),
    (0x56_b4_e9, 0x8a_cf_f5),
    (0x8a_7f_00, 0xc9_bc_3a),
    (0x55_55_55, 0xa8_a8_a8),
    (0x33_22_88, 0x9a_8c_f0),
    (0x88_22_55, 0xe0_6a_a4),
    (0x11_77_33, 0x5c_c9_7f),
    (0xaa_44_99, 0xd6_82_c8),
    (0x66_11_00, 0xd9_85_6e),
    (0x44_aa_99, 0x7f_d9_ca),
    (0x90_7a_45, 0xd4_bf_86),
    (0x99_99_99, 0x77_77_77),
];

/// How many colours of series there are.
pub(crate) const SERIES: usize = COLOURS.len();

/// The colour of the series with this number; after 16 they begin again.
pub fn palette(number: usize) -> Colour {
    Colour::rgb(COLOURS[number % SERIES].0)
}

/// Every colour of charts, with its replacement on a black background.
pub(crate) fn on_black() -> impl Iterator<Item = (Colour, Colour)> {
    let fixed = [
        (Colour::INK, 0xe6_ed_f3),
        (Colour::GREY, 0x9d_a7_b3),
        (Colour::GRID, 0x2a_31_3a),
        (Colour::PAPER, 0x0d_11_17),
    ];
    let series = COLOURS.into_iter().map(|(light, dark)| (Colour::rgb(light), dark));
    fixed.into_iter().chain(series).map(|(light, dark)| (light, Colour::rgb(dark)))
}

/// The point of a text that is at its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// Left end.
    Start,
    Middle,
    /// Right end.
    End,
}

/// A thing to paint.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// A line through points.
    Line {
        points: Vec<(f32, f32)>,
        colour: Colour,
        width: f32,
        /// True for a dashed line.
        dashed: bool,
    },
    Area {
        points: Vec<(f32, f32)>,
        colour: Colour,
        /// 0 (invisible) to 1 (opaque).
        opacity: f32,
    },
    /// A filled rectangle, with an outline of the same colour if it is not opaque.
    Bar {
        x: f32,
        y: f32,
        width: f32,
        height: f32,
        colour: Colour,
        /// 0 to 1.
        opacity: f32,
        /// Tooltip.
        hint: Option<String>,
    },
    Dot {
        x: f32,
        y: f32,
        radius: f32,
        colour: Colour,
        /// 0 to 1.
        opacity: f32,
        /// Tooltip.
        hint: Option<String>,
    },
    Text {
        x: f32,
        /// The base line.
        y: f32,
        text: String,
        /// Height of the type.
        size: f32,
        colour: Colour,
        /// The point of the text that is at the position.
        anchor: Anchor,
        /// True for bold text.
        bold: bool,
        /// True for text that runs upwards.
        upwards: bool,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Scene {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Description for screen readers.
    pub description: String,
    /// The shapes, from back to front.
    pub shapes: Vec<Shape>,
}

/// The width of a text, by the mean width of a sans-serif letter; layout leaves room for its error.
pub(crate) fn text_width(text: &str, size: f32) -> f32 {
    // Estimated without the font: without the feature `png` there is none, and a browser may use
    // another one.
    text.chars()
        .map(|letter| match letter {
            'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | ' ' | '(' | ')' | 'f' | 't' | 'r' => 0.38,
            'm' | 'w' | 'M' | 'W' | '%' => 0.92,
            'A'..='Z' => 0.70,
            '0'..='9' => 0.62,
            _ => 0.60,
        })
        .sum::<f32>()
        * size
}
