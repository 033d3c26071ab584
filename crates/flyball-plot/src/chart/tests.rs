use proptest::prelude::*;

use super::*;
use crate::marks::BoxStat;

fn chart(series: Vec<Series>) -> Chart {
    let mut chart = Chart::new("Title", Axis::new("time", "s"), Axis::new("power", "W"));
    chart.series = series;
    chart
}

#[test]
fn a_chart_has_its_words() {
    let svg = chart(vec![
        Series::new("a & b", Mark::Line(vec![(0.0, 1.0), (1.0, 2.0)])),
        Series::new("c", Mark::Dots(vec![(0.5, 1.5)])),
    ])
    .svg();
    for words in ["Title", "time (s)", "power (W)", "a &amp; b", ">c<", "<circle", "<path"] {
        assert!(svg.contains(words), "{words} is not in {svg}");
    }
}

#[test]
fn gaps_break_lines() {
    let scene = chart(vec![Series::new(
        "x",
        Mark::Line(vec![(0.0, 1.0), (1.0, 2.0), (2.0, f64::NAN), (3.0, 1.0), (4.0, 2.0)]),
    )])
    .scene();
    let colour = palette(0);
    let parts =
        scene.shapes.iter().filter(|shape| matches!(shape, Shape::Line { colour: c, .. } if *c == colour));
    assert_eq!(parts.count(), 2);
}

#[test]
fn a_million_points_stay_small_and_keep_their_peak() {
    let points: Vec<(f64, f64)> =
        (0..1_000_000).map(|i| (f64::from(i), if i == 654_321 { 100.0 } else { f64::from(i % 7) })).collect();
    let scene = chart(vec![Series::new("x", Mark::Line(points))]).scene();
    let colour = palette(0);
    let line = scene.shapes.iter().find_map(|shape| match shape {
        Shape::Line { colour: c, points, .. } if *c == colour => Some(points.clone()),
        _ => None,
    });
    let line = line.expect("it is drawn");
    assert!(line.len() < 5000, "{}", line.len());
    let highest = line.iter().map(|point| point.1).fold(f32::MAX, f32::min);
    let usual = line.iter().map(|point| point.1).filter(|y| *y > highest + 1.0).fold(f32::MAX, f32::min);
    assert!(usual > highest + 100.0, "the peak is gone");
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        -1e3..1e3_f64,
        Just(0.0),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::MAX),
        Just(f64::MIN_POSITIVE),
        any::<f64>()
    ]
}

proptest! {
    /// For any numbers there is a picture, with only finite coordinates.
    #[test]
    fn odd_numbers_do_no_harm(
        points in proptest::collection::vec((number(), number()), 0..20),
        kind in 0..8,
    ) {
        let triples: Vec<(f64, f64, f64)> = points.iter().map(|(x, y)| (*x, *y, *y)).collect();
        let mark = match kind {
            0 => Mark::Line(points),
            1 => Mark::Step(points),
            2 => Mark::Dots(points),
            3 => Mark::Bars(points),
            4 => Mark::Histogram(triples),
            5 => Mark::Band(triples),
            6 => Mark::histogram(&points.iter().map(|p| p.0).collect::<Vec<_>>()),
            _ => Mark::Boxes(BoxStat::new(1.0, &points.iter().map(|p| p.1).collect::<Vec<_>>()).into_iter().collect()),
        };
        let chart = chart(vec![Series::new("x", mark)]);
        let svg = chart.svg();
        prop_assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{}", svg);
    }
}
