//! Every kind of mark, as gallery.html and gallery-N.png in a given directory, for review by eye.

use flyball_plot::{Axis, Block, BoxStat, Chart, Mark, Page, Series, Table};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = std::path::PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| ".".to_owned()));
    let wave = |shift: f64| -> Vec<(f64, f64)> {
        (0..200).map(|i| (f64::from(i) / 20.0, 2.0 + (f64::from(i) / 15.0 + shift).sin())).collect()
    };
    let noise = |seed: u32, count: u32| -> Vec<f64> {
        (0..count)
            .scan(seed, |state, _| {
                *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                Some(f64::from(*state >> 8) / f64::from(1 << 24))
            })
            .collect()
    };
    let lines =
        Chart::new("Frequency over time", Axis::new("time", "s"), Axis::new("frequency", "GHz").with_zero())
            .described("lines, steps, a level and a moment")
            .with(Series::new("CPU 0", Mark::Line(wave(0.0))))
            .with(Series::new("CPU 1", Mark::Step(wave(1.5).into_iter().step_by(8).collect())))
            .with(Series::new("base", Mark::Level(2.0)))
            .with(Series::new("throttled", Mark::Moment(6.2)));
    let names = ["governor=performance", "governor=powersave epp=power", "now"].map(str::to_owned).to_vec();
    let mut boxes = Chart::new("Energy by arm", Axis::categories("arm", names), Axis::new("energy", "J"));
    for arm in 0..3_u32 {
        let values: Vec<f64> =
            noise(arm + 7, 15).iter().map(|v| 100.0 + 5.0 * f64::from(arm) + 4.0 * v).collect();
        let stat = BoxStat::new(f64::from(arm), &values);
        let dots =
            values.iter().enumerate().map(|(i, v)| (f64::from(arm) + (i as f64 - 7.0) * 0.025, *v)).collect();
        boxes = boxes
            .with(Series::unnamed(Mark::Boxes(stat.into_iter().collect())).coloured(arm as usize))
            .with(Series::unnamed(Mark::Dots(dots)).coloured(arm as usize).faint(0.7));
    }
    let histogram = Chart::new("Latency", Axis::new("latency", "us"), Axis::new("count", "")).with(
        Series::new("all", Mark::histogram(&noise(3, 3000).iter().map(|v| v * v * 50.0).collect::<Vec<_>>())),
    );
    let bars = Chart::new("Rounds", Axis::new("round", ""), Axis::new("performance", "MB/s"))
        .with(Series::new("ondemand", Mark::Bars(vec![(1.0, 2504.0), (2.0, 2243.0), (3.0, 2183.0)])))
        .with(Series::new("schedutil", Mark::Bars(vec![(1.0, 2136.0), (2.0, 2100.0), (3.0, 2084.0)])));
    let scale = Chart::new(
        "Change against the first arm",
        Axis::categories("arm", vec!["b".into(), "c".into()]),
        Axis::new("change", "%"),
    )
    .with(Series::unnamed(Mark::Intervals(vec![(0.0, -1.0, 0.5, 2.0), (1.0, 3.0, 3.4, 4.1)])))
    .with(Series::unnamed(Mark::Level(0.0)).coloured(7));
    let log = Chart::new("A spectrum", Axis::new("frequency", "Hz"), Axis::new("power", "W"))
        .with(Series::new(
            "dots",
            Mark::Dots((1..2000).map(|i| (f64::from(i), 1e6 / f64::from(i * i))).collect()),
        ))
        .with(
            Series::new(
                "band",
                Mark::Band(
                    (1..100)
                        .map(|i| {
                            let x = f64::from(i * 20);
                            (x, 1e5 / (x * x), 1e7 / (x * x))
                        })
                        .collect(),
                ),
            )
            .coloured(2),
        );
    let charts = vec![lines, boxes, histogram, bars, scale, log];
    for (number, chart) in charts.iter().enumerate() {
        std::fs::write(place.join(format!("gallery-{number}.png")), chart.png(2.0)?)?;
    }
    let table = Table {
        header: ["arm", "time"].map(str::to_owned).to_vec(),
        rows: vec![["a", "1.23 s"].map(Into::into).to_vec()],
        colours: vec![0],
    };
    let page = Page::new("Gallery").with(Block::Tables(vec![table])).with(Block::Charts(charts));
    std::fs::write(place.join("gallery.html"), page.html())?;
    Ok(())
}
