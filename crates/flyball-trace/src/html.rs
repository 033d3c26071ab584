//! A self-contained HTML page with a trace's plots, for 512 CPUs and any number of samples.
//!
//! The page draws thinned series ([`SeriesSet`]) of minima and maxima on canvases. Values are
//! stored as 16-bit shares of each metric's range, so that a trace of 512 CPUs is a file of some
//! ten megabytes.

use std::io::{self, Write};

use flyball_text::escape;

use crate::{
    report::Report,
    series::{Bucket, SeriesSet},
};

/// Maximum number of min-max pairs on a page, over all CPUs and metrics.
// Four bytes each, and a third more in base 64: eleven megabytes.
const PAIRS: usize = 2 << 20;

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

#[derive(serde::Serialize)]
struct Meta<'a> {
    start: f64,
    width: f64,
    count: usize,
    unit: &'a str,
    cpus: Vec<u32>,
    metrics: Vec<MetricMeta>,
}

#[derive(serde::Serialize)]
struct MetricMeta {
    title: &'static str,
    unit: &'static str,
    low: f32,
    high: f32,
}

/// Text above the plots.
#[derive(Debug, Default)]
pub struct Head {
    pub title: String,
    /// A warning that readers must see first.
    pub banner: Option<String>,
    /// Facts about the machine and its kernel: (label, value).
    pub facts: Vec<(&'static str, String)>,
}

/// Writes the page.
///
/// # Errors
/// Returns the error of `out`.
pub fn write_page(
    out: &mut dyn Write,
    head: &Head,
    report: &Report,
    mut series: SeriesSet,
) -> io::Result<()> {
    // Not while reading, because only now is the number of CPUs that share the pairs known.
    series.thin(PAIRS);
    let (scale, unit) = if report.clock.nanoseconds() { (1e9, "s") } else { (1.0, "ticks") };
    let cpus: Vec<u32> = series.cpus().collect();
    let range =
        |metric: usize| series.range(metric).filter(|(low, high)| low.is_finite() && high.is_finite());
    let meta = Meta {
        start: series.start as f64 / scale,
        width: series.width as f64 / scale,
        count: series.len(),
        unit,
        metrics: series
            .metrics()
            .iter()
            .enumerate()
            .map(|(at, metric)| {
                let (low, high) = range(at).unwrap_or((0.0, 1.0));
                MetricMeta { title: metric.title, unit: metric.unit, low, high }
            })
            .collect(),
        cpus,
    };
    let title = escape(&head.title);
    // The empty icon keeps browsers from requesting /favicon.ico.
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <link rel=\"icon\" href=\"data:,\"><title>{title}</title>\n<style>\n{STYLE}</style></head>\n<body>\n\
         <header><h1>{title}</h1><p>{}</p></header>\n",
        escape(&summary(report))
    )?;
    if let Some(words) = &head.banner {
        writeln!(out, "<p class=\"banner\" role=\"note\">{}</p>", escape(words))?;
    }
    out.write_all(b"<dl>\n")?;
    for (word, fact) in &head.facts {
        writeln!(out, "<dt>{}</dt><dd>{}</dd>", escape(word), escape(fact))?;
    }
    out.write_all(b"</dl>\n")?;
    out.write_all(
        b"<nav id=\"metrics\" aria-label=\"value\"></nav>\n\
          <p class=\"hint\">Wheel: zoom. Drag: move. Double click: all. Click a CPU's row to draw its line; with Shift, \
          more than one.</p>\n\
          <h2>All CPUs</h2>\n<div id=\"scale\"></div>\n\
          <canvas id=\"map\" aria-label=\"all CPUs over time\"></canvas>\n\
          <h2>Chosen CPUs</h2>\n<div id=\"legend\"></div>\n\
          <canvas id=\"lines\" aria-label=\"chosen CPUs over time\"></canvas>\n\
          <p id=\"readout\" role=\"status\"></p>\n<noscript><p>The plots need scripts; the table below does not.</p></noscript>\n",
    )?;
    table(out, report)?;
    // JSON inside a script element: a `<` could end the element.
    let json = serde_json::to_string(&meta).map_err(io::Error::other)?.replace('<', "\\u003c");
    writeln!(out, "<script type=\"application/json\" id=\"meta\">{json}</script>")?;
    for (at, metric) in meta.metrics.iter().enumerate() {
        write!(out, "<script type=\"text/plain\" id=\"values{at}\">")?;
        values(out, &series, &meta.cpus, at, metric)?;
        out.write_all(b"</script>\n")?;
    }
    write!(out, "<script>\n{SCRIPT}</script>\n</body></html>\n")
}

fn summary(report: &Report) -> String {
    // Saturate, because counts of a damaged file may be anything.
    let lost = report.losses.iter().fold(0u64, |sum, loss| sum.saturating_add(loss.records));
    let places: u64 = report.losses.iter().map(|loss| loss.places).sum();
    let losses = match (lost, places) {
        (0, 0) => String::new(),
        (0, places) => format!(", records lost at {places} places"),
        (lost, places) => format!(", {lost} records lost at {places} places"),
    };
    let unit = if report.clock.nanoseconds() { "s" } else { "ticks" };
    format!(
        "{}: {} records of {} CPUs in {:.3} {unit}{losses}",
        report.driver.unwrap_or("no P-state driver"),
        report.records,
        report.cpus.len(),
        report.duration
    )
}

fn table(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    out.write_all(
        b"<table><thead><tr><th>CPU</th><th>samples</th><th>desired, mean</th><th>GHz, mean</th><th>GHz, most</th>\
          <th>load %</th><th>C0 %</th><th>decisions</th><th>per second</th></tr></thead><tbody>\n",
    )?;
    for cpu in report.cpus.iter().filter(|cpu| cpu.samples > 0) {
        let number = |value: Option<f64>, digits: usize| {
            value.map_or_else(String::new, |value| format!("{value:.digits$}"))
        };
        writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            cpu.cpu,
            cpu.samples,
            number(cpu.des_perf.map(|range| range.mean), 1),
            number(cpu.ghz.map(|range| range.mean), 3),
            number(cpu.ghz.map(|range| range.max), 3),
            number(cpu.load.map(|range| range.mean), 1),
            number(cpu.c0, 1),
            cpu.decisions,
            number(cpu.decisions_per_second, 1)
        )?;
    }
    out.write_all(b"</tbody></table>\n")
}

/// Writes a metric's pairs for all CPUs in order: little-endian 16-bit numbers, 0 for none, in base
/// 64.
fn values(
    out: &mut dyn Write,
    series: &SeriesSet,
    cpus: &[u32],
    at: usize,
    metric: &MetricMeta,
) -> io::Result<()> {
    // A constant metric has no span to divide by.
    let span = (metric.high - metric.low).max(f32::MIN_POSITIVE);
    let share = |value: f32| {
        if value.is_finite() {
            1 + ((value - metric.low) / span * 65_534.0).round().clamp(0.0, 65_534.0) as u16
        } else {
            0
        }
    };
    let count = series.len();
    let mut bytes = Vec::with_capacity(count * 4 + 3);
    let mut text = Vec::new();
    for cpu in cpus {
        let buckets = series.buckets(*cpu, at);
        for place in 0..count {
            let bucket = buckets.get(place).copied().unwrap_or(Bucket { min: f32::NAN, max: f32::NAN });
            bytes.extend_from_slice(&share(bucket.min).to_le_bytes());
            bytes.extend_from_slice(&share(bucket.max).to_le_bytes());
        }
        // Encode only whole groups of three; the remainder goes before the next CPU's bytes.
        let whole = bytes.len() / 3 * 3;
        text.clear();
        base64(&bytes[..whole], &mut text);
        out.write_all(&text)?;
        bytes.drain(..whole);
    }
    text.clear();
    base64(&bytes, &mut text);
    out.write_all(&text)
}

fn base64(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for group in bytes.chunks(3) {
        let word = u32::from(group[0]) << 16
            | u32::from(group.get(1).copied().unwrap_or(0)) << 8
            | u32::from(group.get(2).copied().unwrap_or(0));
        for place in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * place)) as usize & 63];
            out.push(if place <= group.len() { digit } else { b'=' });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Clock, Names,
        comm::Comm,
        events::{AmdPerf, Event},
        record::Record,
        report::Analyser,
    };

    #[test]
    fn base_64_is_what_others_write() {
        let encode = |bytes: &[u8]| {
            let mut out = Vec::new();
            base64(bytes, &mut out);
            String::from_utf8(out).unwrap()
        };
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(encode(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn the_page_needs_nothing_and_escapes_its_title() {
        let mut analyser = Analyser::new();
        let mut series = SeriesSet::default();
        for time in 0..100u64 {
            let event = AmdPerf { des: 9, cpu: 2, khz: 1_000_000, mperf: 1, tsc: 2, ..AmdPerf::default() };
            let event = Event::AmdPerf(event);
            let record = Record {
                time: time * 1_000_000,
                cpu: 2,
                pid: 0,
                comm: Comm::default(),
                flags: 0,
                preempt: 0,
                event,
            };
            analyser.add(&record);
            series.add(&record);
        }
        let report = analyser.report(Clock::Mono, &Names::default());
        let mut page = Vec::new();
        let nasty = "</title><script>alert(1)".to_owned();
        let head = Head { title: nasty.clone(), banner: Some(nasty.clone()), facts: vec![("kernel", nasty)] };
        write_page(&mut page, &head, &report, series).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert!(page.contains("&lt;/title&gt;") && !page.contains("<script>alert"));
        for outside in ["http://", "https://", "src=", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert_eq!(page.matches("id=\"values").count(), 5);
        let empty = Analyser::new().report(Clock::Mono, &Names::default());
        write_page(&mut Vec::new(), &Head::default(), &empty, SeriesSet::default()).unwrap();
    }
}
