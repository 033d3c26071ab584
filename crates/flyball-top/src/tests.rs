//! Draws every view at several sizes, on machines with 1 to 576 CPUs.

use flyball_monitor::{
    Cpu, CpuFacts, Facts, Field, Layout, Machine, Package, PackageFacts, Quantity, Sample, Scope, Unit,
};
use ratatui_core::{buffer::Buffer, layout::Rect};

use crate::{
    Drawn, Moment, Scene, Series, State,
    draw::{draw, text},
    series::Point,
    state::{self, View},
};

/// A machine of `cpus` CPUs, two per core, in packages of up to 288; the last quarter are E-cores
/// if it is hybrid.
fn layout(cpus: u32, is_hybrid: bool) -> Layout {
    let per_package = if cpus > 64 { cpus / 2 } else { cpus };
    let field = |quantity, scope, unit| Field { quantity, scope, unit, wraps_after: 64 };
    let cpu = |number: u32| Cpu {
        number,
        package: Some(number / per_package),
        die: Some(0),
        core: Some(number % per_package / 2),
        core_type: is_hybrid.then_some(if number * 4 < cpus * 3 {
            flyball_control::CoreType::P
        } else {
            flyball_control::CoreType::E
        }),
        policy: Some(number),
        highest: None,
        base: None,
        reference: None,
        is_isolated: false,
    };
    let of_cpu = |quantity, unit| field(quantity, Scope::Cpu, unit);
    Layout {
        machine: Machine {
            name: "sim:made".into(),
            kind: flyball_host::Kind::Simulated,
            vendor: flyball_host::Vendor::Intel,
            model_name: Some("Made Processor 9000".into()),
            kernel: "6.12".into(),
            driver: Some("intel_pstate".into()),
            idle_states: vec!["POLL".into(), "C1".into(), "C6".into()],
            idle_exits_us: vec![0, 2, 133],
            governors: vec!["powersave".into()],
            family: None,
            model: None,
            throttle_temperature: None,
        },
        cpus: (0..cpus).map(cpu).collect(),
        packages: (0..cpus / per_package)
            .map(|number| Package {
                number,
                cpus: (number * per_package..(number + 1) * per_package).collect(),
            })
            .collect(),
        fields: vec![
            of_cpu(Quantity::Online, Unit::Count),
            of_cpu(Quantity::Busy, Unit::Ticks),
            of_cpu(Quantity::Idle, Unit::Ticks),
            of_cpu(Quantity::IdleTime(0), Unit::Microseconds),
            of_cpu(Quantity::IdleTime(1), Unit::Microseconds),
            of_cpu(Quantity::IdleTime(2), Unit::Microseconds),
            of_cpu(Quantity::IdleUsage(0), Unit::Count),
            of_cpu(Quantity::IdleUsage(1), Unit::Count),
            of_cpu(Quantity::IdleUsage(2), Unit::Count),
            of_cpu(Quantity::CountersAt, Unit::Nanoseconds),
            of_cpu(Quantity::Tsc, Unit::Cycles),
            of_cpu(Quantity::Aperf, Unit::Cycles),
            of_cpu(Quantity::Mperf, Unit::Cycles),
            of_cpu(Quantity::RequestMin, Unit::KiloHertz),
            of_cpu(Quantity::RequestMax, Unit::KiloHertz),
            of_cpu(Quantity::Governor, Unit::Count),
            of_cpu(Quantity::CoreThrottles, Unit::Count),
            field(Quantity::PackageEnergy, Scope::Package, Unit::MicroJoules),
            field(Quantity::PowerLimit, Scope::Package, Unit::MicroWatts),
        ],
        missing: Vec::new(),
    }
}

/// The sample of second `n`. Of eight CPUs, two sleep, one is held back by heat, and the others run
/// at different speeds.
fn sample(layout: &Layout, n: u64) -> Sample {
    let second = 1_000_000_000;
    let mut values = Vec::new();
    for field in &layout.fields {
        for index in 0..layout.instances(field.scope) as u64 {
            let sleeps = index % 8 >= 6;
            let busy = if sleeps { 0 } else { 30 + index % 5 * 15 };
            let mhz = if index % 8 == 5 { 1400 } else { 3500 - index % 3 * 100 - n % 7 * 20 };
            values.push(match field.quantity {
                // On a large machine, CPU 63 is offline.
                Quantity::Online => u64::from(index != 63),
                Quantity::Busy => n * busy,
                Quantity::Idle => n * (100 - busy),
                Quantity::IdleTime(2) => n * (100 - busy) * 10_000,
                Quantity::IdleTime(_) => 0,
                Quantity::IdleUsage(1) => n * 700,
                Quantity::IdleUsage(2) => n * (100 - busy) * 4,
                Quantity::CountersAt if sleeps => 0,
                Quantity::CountersAt => n * second,
                Quantity::Tsc => n * 2_000_000_000,
                Quantity::Mperf => n * 20_000_000 * busy,
                Quantity::Aperf => n * 10_000 * busy * mhz,
                Quantity::RequestMin => 800_000,
                Quantity::RequestMax => 3_500_000,
                Quantity::CoreThrottles if index % 8 == 5 => n,
                Quantity::PackageEnergy => n * (180 + index) * 1_000_000,
                Quantity::PowerLimit => 225_000_000,
                _ => 0,
            });
        }
    }
    let cost = flyball_monitor::Cost { cpu: 6_100_000, touched: 9, asked: 0, interrupts: 9 };
    Sample { at: n * second, wall: (50_700 + n) * second, cost, values }
}

/// Facts without any limits, for CPUs of 3.5 GHz.
fn facts(layout: &Layout) -> Facts {
    let cpu = CpuFacts { highest: 3500.0, highest_from: "cpuinfo_max_freq".into(), ..CpuFacts::default() };
    Facts {
        cpus: vec![cpu; layout.cpus.len()],
        packages: vec![PackageFacts::default(); layout.packages.len()],
        programs: Vec::new(),
    }
}

struct Fixture {
    layout: Layout,
    series: Series,
    moment: Moment,
}

impl Fixture {
    fn new(cpus: u32, is_hybrid: bool) -> Fixture {
        let layout = layout(cpus, is_hybrid);
        let facts = facts(&layout);
        let mut series = Series::default();
        // All counters begin at zero, so speeds are the same in every interval.
        let moments: Vec<Moment> = (1..40)
            .map(|n| Moment::between(&layout, Some(&facts), n, &sample(&layout, n - 1), &sample(&layout, n)))
            .collect();
        for moment in &moments {
            series.add(Point::from(moment));
        }
        let moment = moments.into_iter().next_back().expect("there are 39");
        Fixture { layout, series, moment }
    }

    fn scene(&self) -> Scene<'_> {
        Scene {
            layout: &self.layout,
            moment: Some(&self.moment),
            series: &self.series,
            newest: (39, self.moment.wall),
            age: Some(0.4),
            is_replay: false,
            interval: 1.0,
            own: Some(0.012),
            missing: &[],
            notices: &[],
            why: &[],
            recording: None,
        }
    }

    fn drawn(&self, state: &State, width: u16, height: u16) -> (Buffer, Drawn) {
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
        let drawn = draw(&mut buffer, state, &self.scene(), true);
        (buffer, drawn)
    }
}

const SIZES: [(u16, u16); 4] = [(40, 12), (80, 24), (132, 40), (200, 60)];

#[test]
fn views_look_as_they_should() {
    const ALL: &[(u16, u16)] = &[(80, 24), (40, 12), (200, 60)];
    for (cpus, is_hybrid, sizes) in
        [(1, false, &ALL[..1]), (8, true, &ALL[..2]), (64, false, &ALL[..1]), (576, false, ALL)]
    {
        let shown = Fixture::new(cpus, is_hybrid);
        for &view in View::ALL {
            for &(width, height) in sizes {
                let state = State { view, ..State::default() };
                let (buffer, _) = shown.drawn(&state, width, height);
                let name = format!("{}-{cpus}-{width}x{height}", view.name().replace(' ', "-"));
                insta::assert_snapshot!(name, text(&buffer));
            }
        }
    }
}

#[test]
fn help_has_every_key_where_there_is_room() {
    let shown = Fixture::new(8, false);
    let state = State { help: 1, ..State::default() };
    let (buffer, _) = shown.drawn(&state, 80, 40);
    let screen = text(&buffer);
    for row in crate::keys::KEYS {
        assert!(screen.contains(row.written), "{}", row.written);
    }
    insta::assert_snapshot!("help-80x24", text(&shown.drawn(&state, 80, 24).0));
    // With at least 80 columns nothing is cut, and every key is on one of the pages.
    for (width, height) in [(80, 24), (132, 40)] {
        let pages = shown.drawn(&state, width, height).1.help_pages;
        let all: String = (1..=pages)
            .map(|help| text(&shown.drawn(&State { help, ..state.clone() }, width, height).0))
            .collect();
        for row in crate::keys::KEYS {
            assert!(all.contains(row.does), "{width}x{height}: {}", row.does);
        }
    }
}

#[test]
fn no_size_and_no_state_panics() {
    for (cpus, is_hybrid) in
        [(1, false), (2, true), (16, true), (56, false), (128, false), (512, false), (576, false)]
    {
        let shown = Fixture::new(cpus, is_hybrid);
        for &view in View::ALL {
            for (width, height) in
                SIZES.into_iter().chain([(0, 0), (1, 1), (39, 12), (40, 11), (41, 13), (60, 12)])
            {
                for selected in [0, 7, 10_000] {
                    for filter in ["", "0-3", "none such", "heat"] {
                        let filter = filter.to_owned();
                        let folded = selected == 0;
                        let state =
                            State { view, selected, filter, folded, cpu: Some(3), ..State::default() };
                        shown.drawn(&state, width, height);
                    }
                }
            }
        }
    }
}

/// No line may end within a word that a wider screen shows completely, unless it ends with a mark.
#[test]
fn nothing_is_cut_without_a_mark() {
    for (cpus, is_hybrid) in
        [(1, false), (2, true), (16, true), (56, false), (128, false), (512, false), (576, false)]
    {
        let shown = Fixture::new(cpus, is_hybrid);
        for &view in View::ALL {
            let state = State { view, ..State::default() };
            let wide = text(&shown.drawn(&state, 400, 60).0);
            for (width, height) in [(40, 12), (80, 24), (200, 60)] {
                let screen = text(&shown.drawn(&state, width, height).0);
                for line in screen.lines().filter(|line| line.chars().count() == usize::from(width)) {
                    let goes_on = |other: &str| {
                        let rest = other.strip_prefix(line).and_then(|rest| rest.chars().next());
                        rest.is_some_and(char::is_alphanumeric) && line.ends_with(char::is_alphanumeric)
                    };
                    assert!(!wide.lines().any(goes_on), "{cpus} CPUs, {view:?}, {width}x{height}: {line}");
                }
            }
        }
    }
}

#[test]
fn every_cpu_has_a_cell_from_80_by_24_on() {
    for cpus in [8, 64, 512, 576] {
        let shown = Fixture::new(cpus, false);
        for quantity in state::Quantity::ALL {
            let state = State { view: View::Map, quantity: *quantity, ..State::default() };
            let (buffer, drawn) = shown.drawn(&state, 80, 24);
            assert_eq!(drawn.items, cpus as usize);
            let screen = text(&buffer);
            assert!(!screen.contains("below"), "{screen}");
        }
    }
}

#[test]
fn colours_say_nothing_that_characters_do_not() {
    let shown = Fixture::new(64, false);
    let state = State { view: View::Map, ..State::default() };
    let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
    draw(&mut buffer, &state, &shown.scene(), false);
    let reset = ratatui_core::style::Color::Reset;
    assert!(buffer.content().iter().all(|cell| cell.fg == reset && cell.bg == reset));
    assert_eq!(text(&buffer), text(&shown.drawn(&state, 80, 24).0));
}

/// Wakeups are only counted while there is room for them.
#[test]
fn a_wide_table_has_wake_ups() {
    let shown = Fixture::new(8, false);
    let state = State { view: View::Table, ..State::default() };
    for (width, expected) in [(90, false), (200, true)] {
        let (buffer, drawn) = shown.drawn(&state, width, 30);
        assert_eq!(drawn.wakes, expected);
        let text = crate::draw::text(&buffer);
        // 700 from C1 at 2 us and 400 from C6 at 133 us, on sleeping CPUs.
        for part in ["wakes/s from", "1100 C6"] {
            assert_eq!(text.contains(part), expected, "{width}:\n{text}");
        }
    }
}
