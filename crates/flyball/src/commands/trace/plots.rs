//! The tracers' pictures: for each value, one picture per CPU and one with all CPUs. They are
//! plotted over time, and requests also over the sample number.

use std::{
    io::{self, Write},
    path::Path,
};

use flyball_files::Replacement;
use flyball_plot::{Axis, Chart, Mark, Series};
use flyball_trace::series::{Bucket, Metric, SeriesSet};

use crate::exit::Failure;

/// How pictures are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// Bitmaps, 1200 x 600 (builds with feature `png`).
    Png,
    /// Vector graphics.
    Svg,
}

impl Default for Format {
    /// Bitmaps like the kernel's tracers, if this build supports them.
    fn default() -> Self {
        if cfg!(feature = "png") { Format::Png } else { Format::Svg }
    }
}

#[cfg(not(feature = "png"))]
const NO_PNG: &str =
    "this build draws no PNG files: use --plot-format svg, or build flyball with --features png";

/// Maximum points across a picture's width. More would be thinned again.
const COLUMNS: usize = 2048;

struct FileNames {
    /// For a single CPU. For some values, the tracers only have the picture of all CPUs.
    of_one: Option<&'static str>,
    of_all: &'static str,
}

fn over_time(metric: &Metric) -> FileNames {
    FileNames { of_one: Some(metric.name), of_all: metric.all }
}

/// Returns the file names of pictures over the sample number, which only requests have.
fn over_samples(metric: &Metric) -> Option<FileNames> {
    match metric.name {
        "des_perf" => Some(FileNames { of_one: Some("des_perf_vs_samples"), of_all: "des_perf_vs_samples" }),
        // Included in the picture of one CPU's performance.
        "pstates" => Some(FileNames { of_one: None, of_all: "pstates_vs_samples" }),
        _ => None,
    }
}

/// Where to write pictures, and in which format.
struct Pictures<'a> {
    directory: &'a Path,
    format: Format,
    /// The machine, if it is simulated. Every picture names it.
    simulated: Option<&'a str>,
    count: usize,
}

impl Pictures<'_> {
    fn save(&mut self, name: &str, chart: &Chart) -> Result<(), Failure> {
        let (end, bytes) = match self.format {
            Format::Svg => ("svg", Ok(chart.svg().into_bytes())),
            #[cfg(feature = "png")]
            Format::Png => ("png", chart.png(1.0).map_err(|error| error.to_string())),
            #[cfg(not(feature = "png"))]
            Format::Png => return Err(Failure::usage(NO_PNG)),
        };
        let path = self.directory.join(format!("{name}.{end}"));
        // Not synced to disk like in `replace`: hundreds of CPUs have thousands of pictures, which
        // can be drawn again.
        let write = |bytes: Vec<u8>| {
            let (mut file, replacement) = Replacement::create(&path)?;
            file.write_all(&bytes)?;
            replacement.finish()
        };
        let written = bytes.and_then(|bytes| write(bytes).map_err(|error: io::Error| error.to_string()));
        written.map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))?;
        self.count += 1;
        Ok(())
    }
}

/// Writes all pictures into `directory`: `series` over time, and those of `samples` that the
/// tracers have. Returns their number.
pub(super) fn write(
    directory: &Path,
    format: Format,
    series: &mut SeriesSet,
    samples: &mut SeriesSet,
    seconds: bool,
    simulated: Option<&str>,
) -> Result<usize, Failure> {
    flyball_files::make_dirs(directory)
        .map_err(|error| Failure::failed(format!("cannot write {}: {error}", directory.display())))?;
    let mut out = Pictures { directory, format, simulated, count: 0 };
    let time = Axis::new("elapsed time", if seconds { "s" } else { "ticks" });
    let scale = if seconds { 1e9 } else { 1.0 };
    pictures(&mut out, series, &time, scale, "perf_busy", |metric| Some(over_time(metric)))?;
    pictures(&mut out, samples, &Axis::new("sample", ""), 1.0, "perf_busy_vs_samples", over_samples)?;
    Ok(out.count)
}

fn pictures(
    out: &mut Pictures<'_>,
    series: &mut SeriesSet,
    x: &Axis,
    scale: f64,
    both_name: &str,
    names: impl Fn(&Metric) -> Option<FileNames>,
) -> Result<(), Failure> {
    let simulated = out.simulated;
    let cpus: Vec<u32> = series.cpus().collect();
    // The budget is for all series together, as `thin` counts.
    series.thin(COLUMNS * cpus.len().max(1) * series.metrics().len().max(1));
    let metrics = series.metrics();
    let chart = |title: String, metric: &Metric| {
        let y = Axis::new(metric.title, metric.unit);
        // Use the same scale in all pictures of a value, so that CPUs can be compared by eye.
        let y = if metric.high > 0 { y.between(0.0, f64::from(metric.high)) } else { y.with_zero() };
        Chart::new(with_machine(title, simulated), x.clone(), y).sized(1200, 600)
    };
    for (at, metric) in metrics.iter().enumerate() {
        let Some(FileNames { of_one, of_all }) = names(metric) else { continue };
        let mut all = chart(format!("{}, all CPUs", metric.title), metric);
        for cpu in &cpus {
            let (line, band) = marks(series, *cpu, at, scale);
            let mut one = chart(format!("{}, CPU {cpu}", metric.title), metric);
            if series.buckets(*cpu, at).iter().any(|bucket| bucket.min < bucket.max) {
                one = one.described(
                    "thinned: the line is the most of each stretch, the band goes down to its least",
                );
            }
            let one =
                one.with(Series::unnamed(band).faint(0.4)).with(Series::unnamed(Mark::Line(line.clone())));
            if let Some(of_one) = of_one {
                out.save(&format!("cpu{cpu:03}_{of_one}"), &one)?;
            }
            // Plot both ends of each stretch: the maximum alone would make every CPU look busy.
            let ends = match band_of(series, *cpu, at, scale) {
                dots if dots.iter().any(|(_, low, high)| low < high) => {
                    dots.into_iter().flat_map(|(x, low, high)| [(x, low), (x, high)]).collect()
                }
                _ => line,
            };
            let named = Series::new(format!("CPU {cpu}"), Mark::Dots(ends));
            // A legend with hundreds of CPUs would fill the picture.
            all = all.with(if cpus.len() <= 16 { named } else { Series { name: String::new(), ..named } });
        }
        out.save(&format!("all_cpu_{of_all}"), &all)?;
    }
    // The request and the busy share of a CPU, in one picture.
    let place = |name: &str| metrics.iter().position(|metric| metric.name == name);
    if let (Some(asked), Some(busy)) = (place("pstates"), place("performance")) {
        for cpu in &cpus {
            let title = format!("P-state and performance, CPU {cpu}");
            let mut both = Chart::new(
                with_machine(title, simulated),
                x.clone(),
                Axis::new("P-state, and performance in percent", "").with_zero(),
            )
            .sized(1200, 600);
            for (at, name) in [(asked, "P-state"), (busy, "performance, %")] {
                both = both.with(Series::new(name, Mark::Line(marks(series, *cpu, at, scale).0)));
            }
            out.save(&format!("cpu{cpu:03}_{both_name}"), &both)?;
        }
    }
    Ok(())
}

/// Adds the machine to a title, if it is simulated.
fn with_machine(title: String, simulated: Option<&str>) -> String {
    simulated.map_or(title.clone(), |machine| format!("{title} ({machine}, simulated)"))
}

/// Returns the minimum and the maximum of each stretch that has values.
fn band_of(series: &SeriesSet, cpu: u32, at: usize, scale: f64) -> Vec<(f64, f64, f64)> {
    let width = series.width as f64 / scale;
    let buckets = series.buckets(cpu, at).iter().enumerate();
    buckets
        .filter(|(_, bucket)| !bucket.is_empty())
        .map(|(place, Bucket { min, max })| (place as f64 * width, f64::from(*min), f64::from(*max)))
        .collect()
}

/// Returns a CPU's values: a line of the maximum of each stretch, and the band from minimum to
/// maximum.
fn marks(series: &SeriesSet, cpu: u32, at: usize, scale: f64) -> (Vec<(f64, f64)>, Mark) {
    let band = band_of(series, cpu, at, scale);
    (band.iter().map(|(x, _, high)| (*x, *high)).collect(), Mark::Band(band))
}
