//! Converts numbers to SVG, PNG and self-contained HTML.
//!
//! A [`Chart`] is data: axes with labels and units, and series of marks. It is laid out once into a
//! [`Scene`] of simple shapes, which is then written as SVG text or painted as a PNG, so that both
//! look the same. A [`Page`] puts charts, tables and words into one HTML file that refers to
//! nothing outside itself.
//!
//! ```
//! use flyball_plot::{Axis, Chart, Mark, Series};
//!
//! let chart = Chart::new("Frequency", Axis::new("time", "s"), Axis::new("frequency", "GHz"))
//!     .with(Series::new("CPU 0", Mark::Step(vec![(0.0, 1.2), (1.0, 3.4), (2.0, 3.3)])));
//! assert!(chart.svg().starts_with("<svg"));
//! ```
//!
//! Values that are not finite are gaps. Lines of any length are thinned to the points that the
//! width can show, including extremes.

mod axis;
mod chart;
mod marks;
mod page;
#[cfg(feature = "png")]
mod png;
mod scene;
mod svg;

pub use axis::{Axis, Scale};
pub use chart::Chart;
pub use marks::{BoxStat, Cross, Mark, Series};
pub use page::{Block, Page, Table};
#[cfg(feature = "png")]
pub use png::PngError;
pub use scene::{Anchor, Colour, Scene, Shape, palette};
