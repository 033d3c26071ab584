//! Tests with the registers of recorded machines.

use flyball_host::Archive;

use super::*;

#[test]
fn recorded_blocks_decode_to_sane_levels() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let archives = paths.filter(|path| path.extension().is_some_and(|extension| extension == "zst"));
    let mut blocks = 0;
    for path in archives {
        let Ok(dump) = Dump::read(&Archive::open(path.to_str().unwrap()).unwrap()) else { continue };
        for package in 0..dump.packages.len() as u8 {
            for domain in dump.domains(package) {
                sane(&dump, &DomainAddress { cpu: None, package, domain });
                blocks += 1;
            }
        }
        for registers in dump.packages.iter().flatten().flatten() {
            assert!(registers[0] & INVALID != INVALID);
        }
    }
    eprintln!("{blocks} register blocks checked");
    assert!(blocks > 0, "the recorded machines hold no Speed Select registers");
}

fn sane(dump: &Dump, at: &DomainAddress) {
    // Some have only levels.
    if dump.pm_config(at).unwrap().supported {
        assert!((0..64).all(|core| dump.class_of(at, core).unwrap() < 4));
        let classes = (0..4).map(|class| dump.clos(at, class).unwrap());
        classes.for_each(|clos| assert!(clos.min <= clos.max));
        assert!(dump.clos(at, 4).is_err() && dump.class_of(at, 64).is_err());
    } else {
        assert!(dump.clos(at, 0).is_err());
    }
    let levels = dump.levels(at).unwrap();
    let exists = |level| dump.features(at, level).is_ok();
    assert!(exists(0) && exists(levels.highest) && exists(levels.current) && !exists(levels.highest + 1));
    (0..=levels.highest).filter(|&level| exists(level)).for_each(|level| sane_level(dump, at, level));
}

fn sane_level(dump: &Dump, at: &DomainAddress, level: u8) {
    let data = dump.level_data(at, level).unwrap();
    // IO domains have no cores, but the same package power.
    assert!((100..=600).contains(&data.tdp_w), "{} W", data.tdp_w);
    assert!((60..=110).contains(&data.tjunction_c));
    let cores = dump.level_cores(at, level).unwrap();
    if cores != 0 {
        assert!((5..=40).contains(&data.tdp_ratio), "base ratio {}", data.tdp_ratio);
        assert_eq!(dump.base_freq(at, level).unwrap().cores & !cores, 0);
        assert!(dump.bucket_cores(at, level).unwrap().is_sorted());
        for row in dump.turbo_limits(at, level).unwrap() {
            assert!(row.windows(2).all(|pair| pair[0] >= pair[1]), "more cores, yet a higher turbo: {row:?}");
        }
    }
}
