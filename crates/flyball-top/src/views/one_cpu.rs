//! One CPU: its position, what is requested of it, what it delivered over the last samples, and why
//! not more.

use flyball_monitor::{Cpu, CpuInterval};

use super::{map::sentence, number, percent, spark};
use crate::{
    canvas::Canvas,
    moment::{Moment, wanted},
    palette::{Tone, bar},
    scene::{Drawn, Scene},
    state::State,
};

pub(crate) fn one_cpu(canvas: &mut Canvas, state: &State, scene: &Scene, moment: &Moment) -> Drawn {
    let layout = scene.layout;
    let first = layout.cpus.first().map(|cpu| cpu.number);
    let chosen = state.cpu.or(first).and_then(|number| layout.index_of(number)).unwrap_or(0);
    let Some(place) = layout.cpus.get(chosen) else { return Drawn::default() };
    let cpu = &moment.interval.cpus[chosen];
    let reason = moment.reasons[chosen].as_ref();
    let tone = if reason.is_some_and(|reason| reason.is_throttle) { Tone::Alert } else { Tone::Heading };
    let mut y = canvas.wrapped(0, 0, &sentence(place, cpu, reason), tone);
    // The purpose of this view comes first. On a short screen, the other parts are cut with a mark.
    canvas.text(0, y, "Why not more", Tone::Heading);
    y += 1;
    let none = ["-".to_owned()];
    let steps = if scene.why.is_empty() { &none[..] } else { scene.why };
    for step in steps {
        y += canvas.wrapped(2, y, step, Tone::Plain).max(1);
    }
    for line in facts(scene, place, cpu, moment) {
        y += canvas.wrapped(2, y, &line, Tone::Plain).max(1);
    }
    y += graph(canvas, y, scene, moment, chosen, cpu);
    y += idle(canvas, y, scene, cpu).max(usize::from(!cpu.idle.is_empty()));
    if y > canvas.height() {
        canvas.right(canvas.height() - 1, " more: a taller screen ", Tone::Notice);
    }
    Drawn {
        items: layout.cpus.len(),
        line: 1,
        page: 10,
        selected_cpu: Some(place.number),
        wakes: true,
        neighbours: (
            chosen.checked_sub(1).map(|before| layout.cpus[before].number),
            layout.cpus.get(chosen + 1).map(|cpu| cpu.number),
        ),
        ..Drawn::default()
    }
}

/// Describes the CPU's position and its requests.
fn facts(scene: &Scene, place: &Cpu, cpu: &CpuInterval, moment: &Moment) -> Vec<String> {
    let known = |name: &str, value: Option<u32>| value.map(|value| format!("{name} {value}"));
    let mut at: Vec<String> = [
        known("package", place.package),
        known("die", place.die),
        known("core", place.core),
        known("policy", place.policy),
    ]
    .into_iter()
    .flatten()
    .collect();
    at.extend(place.core_type.map(|core_type| format!("{core_type}-core")));
    if place.is_isolated {
        at.push("isolated: not asked".to_owned());
    }
    let mut asked = vec![format!("want {} to {} MHz", number(cpu.min, 0), number(wanted(cpu), 0))];
    let governors = &scene.layout.machine.governors;
    asked
        .extend(cpu.governor.and_then(|number| governors.get(number)).map(|name| format!("governor {name}")));
    asked.extend(cpu.epp.map(|epp| format!("EPP {epp}")));
    let mut got = vec![format!("got {} MHz ({} %)", number(cpu.mhz, 0), percent(cpu.got()))];
    if cpu.is_reported {
        got.push("as the kernel last measured or asked for".to_owned());
    }
    got.push(format!("busy {} %", percent(cpu.busy)));
    got.extend(cpu.celsius.map(|celsius| format!("{celsius:.0} C")));
    got.extend(cpu.productive.map(|productive| format!("productive {productive:.2}")));
    got.extend(cpu.throttles.filter(|count| *count > 0).map(|count| format!("{count} heat throttles")));
    got.extend(cpu.smi.filter(|count| *count > 0).map(|count| format!("{count} SMI")));
    got.extend(cpu.core_watts.map(|watts| format!("core {watts:.1} W")));
    let package = scene.layout.package_of(place).and_then(|index| moment.interval.packages.get(index));
    if let Some(package) = package
        && package.watts.is_some()
    {
        got.push(format!("package {} W", number(package.watts, 0)));
        got.extend(package.limit.map(|limit| format!("limit {limit:.0} W")));
        got.extend(
            package
                .short_limit
                .filter(|short| package.limit.is_some_and(|limit| *short > limit))
                .map(|short| format!("for a short time {short:.0} W")),
        );
    }
    [at, asked, got].into_iter().map(|parts| parts.join(", ")).collect()
}

/// Draws speed and busy share over the last samples.
fn graph(
    canvas: &mut Canvas,
    y: usize,
    scene: &Scene,
    moment: &Moment,
    chosen: usize,
    cpu: &CpuInterval,
) -> usize {
    const LABEL: usize = 8;
    // On a short screen, leave the room for the reasons.
    if canvas.height() < y + 8 {
        return 0;
    }
    let count = canvas.width().saturating_sub(LABEL + 1);
    let points: Vec<_> = scene.series.up_to(moment.number, count).collect();
    // Used twice: to find the peak, and for the line that it scales.
    let speeds = || {
        points.iter().map(|point| match point.mhz[chosen] {
            0 => f64::NAN,
            mhz => f64::from(mhz),
        })
    };
    let peak = speeds().filter(|speed| !speed.is_nan()).fold(0.0, f64::max);
    canvas.text(2, y, "speed", Tone::Faint);
    canvas.text(LABEL, y, &spark(speeds(), wanted(cpu).unwrap_or(peak).max(peak)), Tone::Good);
    canvas.text(2, y + 1, "busy", Tone::Faint);
    canvas.text(
        LABEL,
        y + 1,
        &spark(points.iter().map(|point| f64::from(point.busy[chosen])), 255.0),
        Tone::Plain,
    );
    2
}

/// Draws the idle states with their shares of time, and the wakeups.
fn idle(canvas: &mut Canvas, y: usize, scene: &Scene, cpu: &CpuInterval) -> usize {
    let names = &scene.layout.machine.idle_states;
    let part = |(name, share): (&String, &Option<f64>)| match share {
        Some(share) => format!("{name} {} {:.0} %", bar(*share), share * 100.0),
        None => format!("{name} -"),
    };
    let parts: Vec<String> = names.iter().zip(&cpu.idle).map(part).collect();
    if parts.is_empty() {
        return 0;
    }
    let waking = cpu.waking(&scene.layout.machine).map_or_else(String::new, |waking| format!("; {waking}"));
    canvas.wrapped(2, y, &format!("idle: {}{waking}", parts.join(",  ")), Tone::Plain)
}
