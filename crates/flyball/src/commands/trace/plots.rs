//! The tracers' pictures: one of each value and CPU, and one of each value for all CPUs.

use std::path::Path;

use flyball_plot::{Axis, Chart, Mark, Series};
use flyball_trace::series::{Bucket, Metric, SeriesSet};

use crate::exit::{Exit, Failure};

/// How pictures are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Bitmaps, 1200 x 600.
    Png,
    /// Vector graphics.
    Svg,
}

/// Points that a picture's width can show; more would only be thinned again.
const COLUMNS: usize = 2048;

/// Writes all pictures into `directory`. Answers how many.
pub fn write(
    directory: &Path,
    format: Format,
    series: &mut SeriesSet,
    seconds: bool,
) -> Result<usize, Failure> {
    let failed = |path: &Path, error: String| {
        Failure::new(Exit::Failed, format!("cannot write {}: {error}", path.display()))
    };
    std::fs::create_dir_all(directory).map_err(|error| failed(directory, error.to_string()))?;
    let cpus: Vec<u32> = series.cpus().collect();
    series.thin(COLUMNS * cpus.len().max(1) * series.metrics().len().max(1));
    let mut count = 0;
    let mut save = |name: String, chart: &Chart| {
        let path = directory.join(name);
        let bytes = match format {
            Format::Svg => chart.svg().into_bytes(),
            Format::Png => chart.png(1.0).map_err(|error| failed(&path, error.to_string()))?,
        };
        count += 1;
        std::fs::write(&path, bytes).map_err(|error| failed(&path, error.to_string()))
    };
    let end = match format {
        Format::Png => "png",
        Format::Svg => "svg",
    };
    for (at, metric) in series.metrics().iter().enumerate() {
        let chart = |title: String| {
            let unit = if seconds { "s" } else { "ticks" };
            let y = Axis::new(metric.title, metric.unit);
            let y = if metric.high > 0 { y.between(0.0, f64::from(metric.high)) } else { y.with_zero() };
            Chart::new(title, Axis::new("elapsed time", unit), y).sized(1200, 600)
        };
        let mut all = chart(format!("{}, all CPUs", metric.title));
        for cpu in &cpus {
            let (line, band) = marks(series, *cpu, at, seconds, metric);
            let one = chart(format!("{}, CPU {cpu}", metric.title));
            let one =
                one.with(Series::unnamed(band).faint(0.4)).with(Series::unnamed(Mark::Line(line.clone())));
            save(format!("cpu{cpu:03}_{}.{end}", metric.name), &one)?;
            let named = Series::new(format!("CPU {cpu}"), Mark::Dots(line));
            // A legend of hundreds of CPUs would be all of the picture.
            all = all.with(if cpus.len() <= 16 { named } else { Series { name: String::new(), ..named } });
        }
        save(format!("all_cpu_{}.{end}", metric.all), &all)?;
    }
    Ok(count)
}

/// A CPU's values: a line of the most of each stretch, and the band from the least to the most.
fn marks(
    series: &SeriesSet,
    cpu: u32,
    at: usize,
    seconds: bool,
    _metric: &Metric,
) -> (Vec<(f64, f64)>, Mark) {
    let width = series.width as f64 / if seconds { 1e9 } else { 1.0 };
    let filled = || {
        let buckets = series.buckets(cpu, at).iter().enumerate();
        buckets
            .filter(|(_, bucket)| !bucket.is_empty())
            .map(|(place, bucket)| (place as f64 * width, *bucket))
    };
    let line = filled().map(|(time, Bucket { max, .. })| (time, f64::from(max))).collect();
    let band = filled().map(|(time, Bucket { min, max })| (time, f64::from(min), f64::from(max))).collect();
    (line, Mark::Band(band))
}
