//! What the two processes send each other: one JSON value per line, with bounds.

use std::{
    fmt,
    io::{self, BufRead, Read as _, Write},
    str::FromStr,
};

use flyball_control::Setting;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Bytes of a line to the service: a profile of the largest size that a client may send, as JSON.
pub const MAX_REQUESTED: u64 = 1 << 20;

/// Bytes of a line from the service: the plan of a machine with thousands of CPUs.
pub const MAX_REPORTED: u64 = 16 << 20;

/// The three names that desktops know. There is no fourth: a desktop that reads another name shows
/// nothing or fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    PowerSaver,
    Balanced,
    Performance,
}

impl Profile {
    /// In the order in which the interface lists them.
    pub const ALL: [Profile; 3] = [Profile::PowerSaver, Profile::Balanced, Profile::Performance];

    pub fn as_str(self) -> &'static str {
        match self {
            Profile::PowerSaver => "power-saver",
            Profile::Balanced => "balanced",
            Profile::Performance => "performance",
        }
    }
}

impl FromStr for Profile {
    type Err = ();

    fn from_str(text: &str) -> Result<Profile, ()> {
        Profile::ALL.into_iter().find(|profile| profile.as_str() == text).ok_or(())
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What the bus asks the service for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// Nothing: these names are served from now on.
    Serving {
        names: Vec<String>,
    },
    /// A user has chosen this profile: all holds of programs end.
    Choose {
        profile: Profile,
        user: u32,
    },
    /// A program holds a profile.
    Hold {
        cookie: u32,
        profile: Profile,
        application: String,
        user: u32,
    },
    /// It does not any more.
    Release {
        cookie: u32,
    },
    /// What these settings would change.
    Plan {
        settings: Vec<Setting>,
        user: u32,
    },
    /// A hold of this name with these settings.
    Apply {
        name: String,
        settings: Vec<Setting>,
        user: u32,
    },
    ReleaseNamed {
        name: String,
        user: u32,
    },
    Verify,
    Status,
}

/// A question; its answer has the same number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub id: u64,
    pub ask: Ask,
}

/// Why something is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// What was sent is wrong.
    Invalid,
    /// The caller may not.
    Denied,
    /// There are too many already.
    TooMany,
    /// The machine refuses.
    Failed,
}

/// A refusal, in one sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub why: Why,
    pub sentence: String,
}

impl Refusal {
    pub fn new(why: Why, sentence: impl fmt::Display) -> Refusal {
        Refusal { why, sentence: sentence.to_string() }
    }
}

/// An answer of the service: the command line's JSON, or `null` where there is nothing to say.
pub type Answer = Result<Value, Refusal>;

/// What keeps the performance profile from its performance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Degraded {
    #[default]
    No,
    LapDetected,
    HighOperatingTemperature,
}

impl Degraded {
    /// In the interface's words.
    pub fn as_str(self) -> &'static str {
        match self {
            Degraded::No => "",
            Degraded::LapDetected => "lap-detected",
            Degraded::HighOperatingTemperature => "high-operating-temperature",
        }
    }
}

/// A profile that can be chosen here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offered {
    pub profile: Profile,
    /// The driver of the CPU's frequencies.
    pub driver: String,
}

/// A hold, for flyball's own interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldName {
    pub name: String,
    pub owner: String,
    pub priority: u32,
    pub in_force: bool,
}

/// What the properties show.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct State {
    pub active: Option<Profile>,
    pub profiles: Vec<Offered>,
    /// The holds of programs that are in the store.
    pub cookies: Vec<u32>,
    pub degraded: Degraded,
    pub holds: Vec<HeldName>,
    /// Knobs that are left although a hold wants them otherwise.
    pub drifted: Vec<String>,
}

/// Something else changed a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drifted {
    pub knob: String,
    pub cpus: String,
    pub was: String,
    pub is: String,
    /// In words.
    pub by: String,
    /// The process that wrote it; 0 if that is not known.
    pub pid: u32,
    pub action: String,
}

/// What the service sends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tell {
    State(State),
    Answer { id: u64, answer: Answer },
    Drifted(Drifted),
}

/// Writes one line.
pub fn write_line(mut to: impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Reads one line of at most `most` bytes; `None` at the end.
///
/// # Errors
/// The line is longer, is cut off, or is not such a message.
pub fn read_line<T: DeserializeOwned>(from: &mut impl BufRead, most: u64) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    from.take(most).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long or cut off"));
    }
    Ok(Some(serde_json::from_slice(&line)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_bounded_lines() {
        let request = Request { id: 7, ask: Ask::Choose { profile: Profile::PowerSaver, user: 1000 } };
        let mut bytes = Vec::new();
        write_line(&mut bytes, &request).unwrap();
        write_line(&mut bytes, &Request { id: 8, ask: Ask::Status }).unwrap();
        assert_eq!(bytes.iter().filter(|&&byte| byte == b'\n').count(), 2);
        let mut reader = bytes.as_slice();
        assert_eq!(read_line::<Request>(&mut reader, 100).unwrap(), Some(request));
        assert!(read_line::<Request>(&mut reader, 5).is_err(), "longer than that");
        assert_eq!(read_line::<Request>(&mut &b""[..], 100).unwrap(), None);
        for bad in ["{", "{}\n", "{\"id\":1,\"ask\":{\"choose\":{\"profile\":\"custom\"}}}\n", "\u{fe}\n"] {
            assert!(read_line::<Request>(&mut bad.as_bytes(), 100).is_err(), "{bad}");
        }
    }

    proptest::proptest! {
        /// Whatever a process that was taken over sends is read as a message or refused, and
        /// reading ends.
        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in proptest::collection::vec(proptest::arbitrary::any::<u8>(), 0..400),
            place in 0_usize..120,
        ) {
            let mut line = Vec::new();
            let ask = Ask::Choose { profile: Profile::Performance, user: 1000 };
            write_line(&mut line, &Request { id: 7, ask }).unwrap();
            // A message that is right up to one place, too: random bytes hardly ever begin as one.
            let place = place.min(line.len());
            let spoilt = [&line[..place], bytes.as_slice(), &line[place..]].concat();
            for mut input in [bytes.as_slice(), spoilt.as_slice()] {
                let mut lines = 0;
                while let Ok(Some(_)) = read_line::<Request>(&mut input, 200) {
                    lines += 1;
                    proptest::prop_assert!(lines <= spoilt.len());
                }
            }
        }
    }

    #[test]
    fn there_are_three_profiles() {
        for profile in Profile::ALL {
            assert_eq!(profile.as_str().parse(), Ok(profile));
            assert_eq!(serde_json::to_value(profile).unwrap(), profile.as_str());
        }
        assert_eq!("custom".parse::<Profile>(), Err(()));
    }
}
