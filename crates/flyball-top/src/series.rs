//! Points of the graphs: a few numbers per sample of the last minutes.

use std::collections::VecDeque;

use crate::Moment;

/// One point of the graphs.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    pub number: u64,
    /// By CPU: MHz while busy, and the busy share in units of 1/255. Both are 0 for a sleeping CPU.
    pub mhz: Vec<u16>,
    pub busy: Vec<u8>,
    /// Power by package, W. NaN if not known.
    pub watts: Vec<f32>,
}

impl From<&Moment> for Point {
    fn from(moment: &Moment) -> Point {
        let cpus = &moment.interval.cpus;
        Point {
            number: moment.number,
            // Compact, because 600 points of 576 CPUs take 0.7 MB this way, and 2.8 MB with the
            // numbers of the interval.
            mhz: cpus.iter().map(|cpu| cpu.mhz.unwrap_or(0.0).min(65_535.0) as u16).collect(),
            busy: cpus.iter().map(|cpu| (cpu.busy.unwrap_or(0.0) * 255.0).round() as u8).collect(),
            watts: moment
                .interval
                .packages
                .iter()
                .map(|package| package.watts.map_or(f32::NAN, |watts| watts as f32))
                .collect(),
        }
    }
}

/// Points with consecutive numbers.
#[derive(Debug, Default)]
pub struct Series {
    points: VecDeque<Point>,
}

/// Maximum number of points, which is the width of the widest terminal.
const MAX: usize = 600;

impl Series {
    /// Adds a point. If it does not follow the last one, the series starts again.
    pub fn add(&mut self, point: Point) {
        // After a jump: graphs show consecutive samples.
        if self.points.back().is_some_and(|last| last.number + 1 != point.number) {
            self.points.clear();
        }
        if self.points.len() == MAX {
            self.points.pop_front();
        }
        self.points.push_back(point);
    }

    pub fn has(&self, number: u64) -> bool {
        self.index(number).is_some()
    }

    fn index(&self, number: u64) -> Option<usize> {
        let index = number.checked_sub(self.points.front()?.number)? as usize;
        (index < self.points.len()).then_some(index)
    }

    /// Returns up to `count` points ending with this number, oldest first.
    pub fn up_to(&self, number: u64, count: usize) -> impl Iterator<Item = &Point> {
        let end = self.index(number).map_or(0, |index| index + 1);
        self.points.range(end.saturating_sub(count)..end)
    }
}
