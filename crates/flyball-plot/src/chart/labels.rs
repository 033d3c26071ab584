//! Positions for the labels of points, so that no label covers another, a point or a line.

use super::TEXT;
use crate::scene::text_width;

/// Left, top, right and bottom.
type Area = (f32, f32, f32, f32);

pub(super) struct Label<'a> {
    pub(super) text: &'a str,
    /// The left end of its base line.
    pub(super) x: f32,
    pub(super) y: f32,
    /// A line from the point to a label that is not next to it.
    pub(super) leader: Option<Vec<(f32, f32)>>,
}

/// Distances from the point, nearest first.
const RINGS: [f32; 9] = [9.0, 16.0, 26.0, 38.0, 52.0, 68.0, 86.0, 106.0, 130.0];

/// Directions, best first: readers look at the upper right first.
const WAYS: [(f32, f32); 12] = [
    (0.7, -0.7),
    (-0.7, -0.7),
    (0.7, 0.7),
    (-0.7, 0.7),
    (1.0, 0.0),
    (-1.0, 0.0),
    (0.0, -1.0),
    (0.0, 1.0),
    (0.92, -0.38),
    (-0.92, -0.38),
    (0.92, 0.38),
    (-0.92, 0.38),
];

/// A position for each label within `frame`, one after the other. If no position is free, labels
/// cover each other as little as possible.
pub(super) fn place<'a>(
    points: &[((f32, f32), &'a str)],
    lines: &[Vec<(f32, f32)>],
    frame: Area,
) -> Vec<Label<'a>> {
    // Without labels, skip the lines of a long trace.
    if points.is_empty() {
        return Vec::new();
    }
    let around = |x: f32, y: f32, half: f32| (x - half, y - half, x + half, y + half);
    let mut dots: Vec<Area> = points.iter().map(|((x, y), _)| around(*x, *y, 5.0)).collect();
    for pair in lines.iter().flat_map(|line| line.windows(2)) {
        let [(from_x, from_y), (to_x, to_y)] = [pair[0], pair[1]];
        let steps = ((to_x - from_x).hypot(to_y - from_y) / 4.0).ceil().clamp(1.0, 500.0) as u16;
        dots.extend((0..=steps).map(|step| {
            let share = f32::from(step) / f32::from(steps);
            around(from_x + (to_x - from_x) * share, from_y + (to_y - from_y) * share, 1.0)
        }));
    }
    let mut taken: Vec<Area> = Vec::new();
    let mut labels = Vec::new();
    for ((x, y), text) in points {
        let (width, height) = (text_width(text, TEXT), TEXT);
        // The box of a label in a direction: its near side or corner is at the distance.
        let before = |way: f32| if way == 0.0 { 0.5 } else { f32::from(u8::from(way < 0.0)) };
        let at = |ring: f32, (right, down): (f32, f32)| {
            let left = x + right * ring - width * before(right);
            let top = y + down * ring - height * before(down);
            (left, top, left + width, top + height)
        };
        let candidates = RINGS.iter().flat_map(|ring| WAYS.map(|way| (*ring, at(*ring, way))));
        let cost = |spot: &Area| {
            let covered: f32 = dots.iter().chain(&taken).map(|other| common(*spot, *other)).sum();
            // The part outside the frame may cover the axes' labels.
            covered + (width * height - common(*spot, frame))
        };
        // The first of the cheapest positions: the nearest, in the best direction.
        let best = candidates
            .map(|(ring, spot)| (cost(&spot), ring, spot))
            .reduce(|a, b| if b.0 < a.0 - 0.5 { b } else { a });
        let Some((_, ring, spot)) = best else { continue };
        taken.push((spot.0 - 3.0, spot.1 - 1.0, spot.2 + 3.0, spot.3 + 1.0));
        let near = (x.clamp(spot.0, spot.2), y.clamp(spot.1, spot.3));
        let leader = (ring > RINGS[1]).then(|| vec![(*x, *y), near]);
        // Letters stand on a line a fifth of their height above the bottom of their box.
        labels.push(Label { text, x: spot.0, y: spot.3 - height * 0.2, leader });
    }
    labels
}

/// The area that two boxes share.
fn common(a: Area, b: Area) -> f32 {
    let width = a.2.min(b.2) - a.0.max(b.0);
    let height = a.3.min(b.3) - a.1.max(b.1);
    width.max(0.0) * height.max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_labels_of_one_place_are_apart() {
        let frame = (40.0, 40.0, 360.0, 260.0);
        let names: Vec<String> = (1..=16).map(|number| format!("arm {number}")).collect();
        let points: Vec<((f32, f32), &str)> = names
            .iter()
            .enumerate()
            .map(|(at, name)| ((200.0 + at as f32, 150.0 + (at % 3) as f32), name.as_str()))
            .collect();
        let labels = place(&points, &[], frame);
        let boxes: Vec<Area> = labels
            .iter()
            .map(|label| (label.x, label.y - TEXT * 0.8, label.x + text_width(label.text, TEXT), label.y))
            .collect();
        for (at, one) in boxes.iter().enumerate() {
            assert!(one.0 >= frame.0 && one.2 <= frame.2, "{one:?}");
            for other in &boxes[at + 1..] {
                assert!(common(*one, *other) < 1.0, "{one:?} and {other:?}");
            }
        }
    }
}
