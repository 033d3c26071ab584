//! Marks that a chart draws.

/// The five numbers of a box.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BoxStat {
    /// Position on the x axis.
    pub at: f64,
    /// The lower whisker's end.
    pub low: f64,
    /// The box's lower edge.
    pub lower: f64,
    /// The line in the box.
    pub middle: f64,
    /// The box's upper edge.
    pub upper: f64,
    /// The upper whisker's end.
    pub high: f64,
}

impl BoxStat {
    /// Quartiles, with whiskers to the furthest values within one and a half box heights (Tukey).
    /// `None` without values.
    pub fn new(at: f64, values: &[f64]) -> Option<BoxStat> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let quantile = |q: f64| {
            // Type 7 of Hyndman and Fan (1996), as flyball-measure and NumPy compute quartiles.
            let place = q * last as f64;
            let below = place.floor() as usize;
            sorted[below] + (sorted[(below + 1).min(last)] - sorted[below]) * (place - below as f64)
        };
        let (lower, upper) = (quantile(0.25), quantile(0.75));
        let reach = 1.5 * (upper - lower);
        let low = sorted.iter().copied().find(|value| *value >= lower - reach)?;
        let high = sorted.iter().copied().rev().find(|value| *value <= upper + reach)?;
        Some(BoxStat { at, low, lower, middle: quantile(0.5), upper, high })
    }
}

/// A point with an interval in both directions: low, middle, high.
#[derive(Debug, Clone, PartialEq)]
pub struct Cross {
    pub x: (f64, f64, f64),
    pub y: (f64, f64, f64),
    /// Text next to the mark.
    pub label: String,
}

/// How a series is drawn. Points are x and y in the axes' units.
#[derive(Debug, Clone, PartialEq)]
pub enum Mark {
    /// A line; a point that is not finite breaks it.
    Line(Vec<(f64, f64)>),
    /// A line that holds each value until the next point.
    Step(Vec<(f64, f64)>),
    Dots(Vec<(f64, f64)>),
    /// Bars from 0; several series of bars at the same positions stand side by side.
    Bars(Vec<(f64, f64)>),
    /// Bars with their own edges: from, to, height.
    Histogram(Vec<(f64, f64, f64)>),
    /// Boxes with whiskers.
    Boxes(Vec<BoxStat>),
    /// Intervals: x, low, middle, high.
    Intervals(Vec<(f64, f64, f64, f64)>),
    /// A labelled point with an interval in both directions.
    Cross(Cross),
    /// An area between two heights: x, low, high.
    Band(Vec<(f64, f64, f64)>),
    /// A dashed line across the chart at this height.
    Level(f64),
    /// A dashed line from bottom to top at this x.
    Moment(f64),
}

impl Mark {
    /// A histogram of values in bins of equal width. The number of bins follows the rule of
    /// Freedman and Diaconis.
    pub fn histogram(values: &[f64]) -> Mark {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (Some(low), Some(high)) = (sorted.first().copied(), sorted.last().copied()) else {
            return Mark::Histogram(Vec::new());
        };
        if low == high {
            // A single value has no range to divide: use one bin around it.
            let room = (low.abs() * 0.01).max(0.5);
            return Mark::Histogram(vec![(low - room, low + room, sorted.len() as f64)]);
        }
        let count = sorted.len();
        // Without interpolation: the bin width needs no exact quartiles.
        let spread = sorted[count * 3 / 4] - sorted[count / 4];
        // Freedman and Diaconis (1981): twice the interquartile range over the cube root of n.
        // Unlike a rule by the standard deviation, a few outliers do not widen it.
        let width = 2.0 * spread / (count as f64).cbrt();
        // The smallest and the largest float are further apart than any float.
        let range = (high - low).min(f64::MAX);
        // If half of the values are equal, the interquartile range is 0. Far outliers would require
        // millions of bins.
        let bins = if width > 0.0 { (range / width).ceil().clamp(1.0, 200.0) } else { 20.0 };
        let width = range / bins;
        let mut heights = vec![0.0; bins as usize];
        for value in sorted {
            let bin = ((value - low) / width) as usize;
            // The largest value is on the upper edge of the last bin and belongs to that bin.
            heights[bin.min(bins as usize - 1)] += 1.0;
        }
        let edge = |bin: usize| low + bin as f64 * width;
        Mark::Histogram(
            heights.iter().enumerate().map(|(bin, height)| (edge(bin), edge(bin + 1), *height)).collect(),
        )
    }

    /// Reports the smallest and largest x and y among finite points.
    pub(crate) fn extent(&self, mut see: impl FnMut(Option<f64>, Option<f64>)) {
        match self {
            Mark::Line(points) | Mark::Step(points) | Mark::Dots(points) => {
                for (x, y) in points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()) {
                    see(Some(*x), Some(*y));
                }
            }
            Mark::Bars(points) => {
                see(None, Some(0.0));
                for (x, y) in points {
                    see(Some(*x), Some(*y));
                }
            }
            Mark::Histogram(bins) => {
                see(None, Some(0.0));
                for (from, to, height) in bins {
                    see(Some(*from), Some(*height));
                    see(Some(*to), None);
                }
            }
            Mark::Boxes(boxes) => {
                for stat in boxes {
                    see(Some(stat.at), Some(stat.low));
                    see(None, Some(stat.high));
                }
            }
            Mark::Intervals(intervals) => {
                for (x, low, _, high) in intervals {
                    see(Some(*x), Some(*low));
                    see(None, Some(*high));
                }
            }
            Mark::Cross(cross) => {
                see(Some(cross.x.0), Some(cross.y.0));
                see(Some(cross.x.2), Some(cross.y.2));
            }
            Mark::Band(band) => {
                for (x, low, high) in band {
                    see(Some(*x), Some(*low));
                    see(None, Some(*high));
                }
            }
            Mark::Level(y) => see(None, Some(*y)),
            Mark::Moment(x) => see(Some(*x), None),
        }
    }
}

/// A mark under a name.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The name in the legend; a series without a name is not in it.
    pub name: String,
    /// Shape and points.
    pub mark: Mark,
    /// The number of its colour; by default, its position among the named series.
    pub colour: Option<usize>,
    /// 0 to 1.
    pub opacity: f32,
}

impl Series {
    pub fn new(name: impl Into<String>, mark: Mark) -> Series {
        Series { name: name.into(), mark, colour: None, opacity: 1.0 }
    }

    /// A series that the legend does not name.
    pub fn unnamed(mark: Mark) -> Series {
        Series::new("", mark)
    }

    /// Sets the number of the colour.
    #[must_use]
    pub fn coloured(self, colour: usize) -> Series {
        Series { colour: Some(colour), ..self }
    }

    /// Makes the series transparent.
    #[must_use]
    pub fn faint(self, opacity: f32) -> Series {
        Series { opacity: opacity.clamp(0.0, 1.0), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_have_tukeys_whiskers() {
        let stat = BoxStat::new(0.0, &[1.0, 2.0, 3.0, 4.0, 5.0, 100.0]).expect("values");
        assert_eq!((stat.low, stat.middle, stat.high), (1.0, 3.5, 5.0));
        assert_eq!(BoxStat::new(0.0, &[f64::NAN]), None);
    }

    #[test]
    fn histograms_count_everything() {
        let values: Vec<f64> = (0..1000).map(|i| f64::from(i * i % 997)).collect();
        let Mark::Histogram(bins) = Mark::histogram(&values) else { panic!("no histogram") };
        assert!((bins.iter().map(|bin| bin.2).sum::<f64>() - 1000.0).abs() < 1e-9);
        assert_eq!(Mark::histogram(&[]), Mark::Histogram(Vec::new()));
        let Mark::Histogram(bins) = Mark::histogram(&[5.0; 4]) else { panic!("no histogram") };
        assert_eq!(bins.len(), 1);
    }
}
