//! Axes: the positions of values, and the ticks between.

/// How values map to positions on an axis.
#[derive(Debug, Clone, PartialEq)]
pub enum Scale {
    Linear,
    /// Categories by name; category N is at value N.
    Categories(Vec<String>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Name of the quantity.
    pub label: String,
    /// The unit, or nothing.
    pub unit: String,
    /// How values map to positions.
    pub scale: Scale,
    /// Short names of categories, used if the full names do not fit; by default their numbers.
    pub short: Vec<String>,
    /// The ends, if they do not follow the data.
    pub range: Option<(f64, f64)>,
    /// True if the axis includes 0.
    pub from_zero: bool,
}

impl Axis {
    /// A linear axis that follows its data.
    pub fn new(label: impl Into<String>, unit: impl Into<String>) -> Axis {
        let scale = Scale::Linear;
        Axis {
            label: label.into(),
            unit: unit.into(),
            scale,
            short: Vec::new(),
            range: None,
            from_zero: false,
        }
    }

    pub fn categories(label: impl Into<String>, names: Vec<String>) -> Axis {
        let short = (1..=names.len()).map(|number| number.to_string()).collect();
        Axis { scale: Scale::Categories(names), short, ..Axis::new(label, "") }
    }

    /// Sets the short names, one for each category.
    #[must_use]
    pub fn in_short(self, short: Vec<String>) -> Axis {
        Axis { short, ..self }
    }

    /// Fixes the ends.
    #[must_use]
    pub fn between(self, low: f64, high: f64) -> Axis {
        Axis { range: Some((low, high)), ..self }
    }

    /// Includes 0.
    #[must_use]
    pub fn with_zero(self) -> Axis {
        Axis { from_zero: true, ..self }
    }

    /// Label and unit in one line.
    pub(crate) fn title(&self) -> String {
        if self.unit.is_empty() { self.label.clone() } else { format!("{} ({})", self.label, self.unit) }
    }

    /// Fits the axis to data from `low` to `high`.
    pub(crate) fn fit(&self, data: Option<(f64, f64)>) -> Fitted {
        if let Scale::Categories(names) = &self.scale {
            let ticks = names.iter().enumerate().map(|(place, name)| (place as f64, name.clone())).collect();
            // Half a category at either end: a box or bar of the outermost category is as wide as
            // the others.
            return Fitted { low: -0.5, high: (names.len().max(1) as f64) - 0.5, ticks };
        }
        let given = self.range.filter(|(low, high)| low.is_finite() && high.is_finite() && low < high);
        let (mut low, mut high) = given.or(data).unwrap_or((0.0, 1.0));
        if given.is_none() {
            if self.from_zero {
                (low, high) = (low.min(0.0), high.max(0.0));
            }
            let spread = high - low;
            // Data without spread gets an axis around it.
            let room = if spread > 0.0 { spread * 0.06 } else { (low.abs() * 0.05).max(0.5) };
            // Bars stand on the axis: there is no room below their foot.
            let touches_zero = |end: f64| self.from_zero && end == 0.0;
            if !touches_zero(low) {
                low -= room;
            }
            if !touches_zero(high) {
                high += room;
            }
            // The room around the largest numbers overflows to infinity, where no tick can be
            // placed.
            (low, high) = (low.max(f64::MIN), high.min(f64::MAX));
        }
        Fitted { low, high, ticks: linear_ticks(low, high, 6) }
    }
}

/// An axis with its ends and ticks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fitted {
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Value and label.
    pub(crate) ticks: Vec<(f64, String)>,
}

impl Fitted {
    /// The position of a value, 0 to 1 if it is between the ends; `None` if it has none.
    pub(crate) fn place(&self, value: f64) -> Option<f64> {
        // Halved first, so that ends near the largest number do not overflow.
        let place = (value / 2.0 - self.low / 2.0) / (self.high / 2.0 - self.low / 2.0);
        // An axis of no length gives 0/0.
        place.is_finite().then_some(place)
    }
}

/// About `wanted` ticks at steps of 1, 2, 2.5 or 5 times a power of ten.
fn linear_ticks(low: f64, high: f64, wanted: usize) -> Vec<(f64, String)> {
    // Divided first: the difference of two large ends could overflow.
    let raw = (high / wanted as f64) - (low / wanted as f64);
    if !raw.is_finite() || raw <= 0.0 {
        return Vec::new();
    }
    // The step is rounded up, so there are at most as many ticks as wanted. Rounded to the nearest
    // step, labels would touch.
    let power = 10_f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|nice| nice * power).find(|step| *step >= raw);
    let Some(step) = step.filter(|step| step.is_finite() && *step > 0.0) else { return Vec::new() };
    let first = (low / step).ceil();
    // By index, because adding the step repeatedly drifts. The bound stops steps that vanish
    // against the value.
    let count = ((high / step).floor() - first).clamp(0.0, 50.0) as usize;
    (0..=count)
        .map(|index| {
            let value = (first + index as f64) * step;
            (value, label(value, step))
        })
        .collect()
}

/// A tick's label: as many digits as the step needs.
fn label(value: f64, step: f64) -> String {
    // Zero is labelled 0, never -0 or a rounding error.
    let value = if value.abs() < step * 1e-9 { 0.0 } else { value };
    // The step counts too, so that the 0 of an axis in GHz has the unit of its neighbours.
    let size = value.abs().max(step);
    if size >= 1e6 {
        for (unit, name) in [(1e12, "T"), (1e9, "G"), (1e6, "M")] {
            if size >= unit && size < unit * 1e3 {
                return format!("{}{name}", plain(value / unit, step / unit));
            }
        }
        return format!("{value:e}");
    }
    if step < 1e-6 { format!("{value:.2e}") } else { plain(value, step) }
}

fn plain(value: f64, step: f64) -> String {
    // A step of 2.5 needs a digit more than one of 2.
    let digits = (0..=9).find(|digits| {
        let scaled = step * 10_f64.powi(*digits);
        // A tolerance, because 2.5e-3 x 1000 is not exactly 2.5.
        (scaled - scaled.round()).abs() < 1e-6 * scaled.max(1.0)
    });
    format!("{value:.*}", digits.unwrap_or(6) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(low: f64, high: f64) -> Vec<String> {
        linear_ticks(low, high, 6).into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(labels(0.0, 1.0), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(-3.0, 12.0), ["-2.5", "0.0", "2.5", "5.0", "7.5", "10.0"]);
        assert_eq!(labels(0.0, 5e6), ["0M", "1M", "2M", "3M", "4M", "5M"]);
        assert_eq!(labels(1.0, 1.0), Vec::<String>::new());
        assert_eq!(labels(f64::NAN, 1.0), Vec::<String>::new());
    }

    #[test]
    fn places_are_between_the_ends() {
        let axis = Axis::new("x", "").fit(Some((10.0, 20.0)));
        assert!(axis.low < 10.0 && axis.high > 20.0);
        assert!((axis.place(15.0).expect("finite") - 0.5).abs() < 1e-9);
        assert_eq!(axis.place(f64::NAN), None);
        let zero = Axis::new("x", "").with_zero().fit(Some((5.0, 6.0)));
        assert_eq!(zero.low.to_bits(), 0.0_f64.to_bits());
        let point = Axis::new("x", "").fit(Some((3.0, 3.0)));
        assert!(point.low < 3.0 && point.high > 3.0);
    }
}
