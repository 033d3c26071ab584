//! A user without access gets the same speed, energy and reasons from the hold service, which never
//! reads more often than it hands out.

use std::{sync::Mutex, time::Duration};

use flyball_host::{Errno, Host, HostError, Launch, Op};
use flyball_monitor::{Interval, Options, Sampler, missing::What, shared::readings_of};
use flyball_process::readings::Readings;
use flyball_simhost::{SimHost, SimSetup};

/// A simulated machine as an ordinary user sees it, with a service that shares its readings.
struct Restricted {
    inner: SimHost,
    readings: Mutex<Option<Readings>>,
}

impl Host for Restricted {
    flyball_host::forward!(
        inner: kind, name, write, list, exists, writable, link, write_msr, isst, now, sleep
    );

    fn read_into(&self, path: &str, buffer: &mut Vec<u8>) -> Result<(), HostError> {
        if path.ends_with("energy_uj") {
            return Err(HostError::new(Op::Read, path, Errno::ACCES));
        }
        self.inner.read_into(path, buffer)
    }

    fn msr(&self, cpu: u32, register: u32) -> Result<u64, HostError> {
        Err(HostError::new(Op::ReadMsr, format!("/dev/cpu/{cpu}/msr {register:#x}"), Errno::ACCES))
    }

    fn shared_readings(&self) -> Result<Readings, HostError> {
        let readings = self.readings.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        readings.ok_or_else(|| HostError::new(Op::Read, flyball_process::readings::SOCKET, Errno::ACCES))
    }
}

#[test]
fn the_service_gives_what_a_user_may_not_read() {
    let inner = SimHost::open(&SimSetup::parse("gold-6138").expect("a machine")).expect("it boots");
    let words = ["--endless".to_owned(), "--pin".to_owned(), "2-3".to_owned()];
    let _load = inner.spawn(Launch::new("spin", &words)).expect("a load");
    inner.sleep(Duration::from_secs(1));
    let mut service = Sampler::open(&inner, Options::default()).expect("a sampler");
    let user = Restricted { inner: inner.clone(), readings: Mutex::new(None) };

    let without = Sampler::open(&user, Options::default()).expect("a sampler");
    let missing: Vec<What> = without.layout().missing.iter().map(|missing| missing.what).collect();
    assert!(missing.contains(&What::Speed) && missing.contains(&What::Power), "{missing:?}");
    assert!(without.layout().missing.iter().all(|missing| missing.remedy().is_some()));

    let mut share = || {
        let sample = service.sample();
        let text = readings_of(service.layout(), &sample).encode();
        *user.readings.lock().expect("no panic") = Readings::parse(&text);
        (service.layout().clone(), sample)
    };
    share();
    let mut sampler = Sampler::open(&user, Options::default()).expect("a sampler");
    assert!(sampler.layout().missing.is_empty(), "{:?}", sampler.layout().missing);
    let (layout, from) = share();
    let first = sampler.sample();
    inner.sleep(Duration::from_secs(2));
    let (_, to) = share();
    let second = sampler.sample();
    let truth = Interval::between(&layout, &from, &to);
    let seen = Interval::between(sampler.layout(), &first, &second);
    assert_eq!(seen.cpus[2].mhz.map(f64::round), truth.cpus[2].mhz.map(f64::round));
    assert!(seen.cpus[2].mhz.is_some_and(|mhz| mhz > 1000.0));
    let (watts, right) = (seen.packages[0].watts.expect("energy"), truth.packages[0].watts.expect("energy"));
    assert!((watts / right - 1.0).abs() < 0.02, "{watts} against {right}");

    // The service reads at most once a second, so an answer may be the previous one, and the next
    // one covers more than the sample's time.
    inner.sleep(Duration::from_secs(1));
    let third = sampler.sample();
    assert_eq!(Interval::between(sampler.layout(), &second, &third).packages[0].watts, None);
    inner.sleep(Duration::from_secs(1));
    share();
    let fourth = sampler.sample();
    let watts = Interval::between(sampler.layout(), &third, &fourth).packages[0].watts.expect("energy");
    assert!((watts / right - 1.0).abs() < 0.02, "{watts} against {right}");
}
