//! The messages between the two processes: one JSON value per line, with limits.

use std::{
    fmt,
    io::{self, BufRead, Read as _, Write},
    str::FromStr,
};

use flyball_control::Setting;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::text::{MAX_SENTENCE, sendable};

/// Limit on the bytes of a line to the service: many times the settings of a client's largest
/// allowed profile, as JSON. A longer request is refused.
pub const MAX_REQUESTED: u64 = 1 << 20;

/// Limit on the bytes of a line from the service: the plan of a machine with thousands of CPUs. A
/// longer answer becomes a refusal.
pub const MAX_REPORTED: u64 = 16 << 20;

/// The three names that desktops know. A desktop that reads any other name shows nothing or fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    PowerSaver,
    Balanced,
    Performance,
}

impl Profile {
    /// All profiles, in the interface's order.
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

/// A request of the bus to the service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// The names are served from now on. This requests nothing.
    Serving,
    /// A user has chosen this profile, which ends all holds of programs.
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
    /// A program no longer holds a profile.
    Release {
        cookie: u32,
    },
    /// Plan the changes that these settings would make.
    Plan {
        settings: Vec<Setting>,
        user: u32,
    },
    /// Hold these settings under this name.
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

/// A request. Its answer has the same number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub id: u64,
    pub ask: Ask,
}

/// The kind of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The request is invalid.
    Invalid,
    /// The caller is not permitted.
    Denied,
    /// There are too many holds or requests already.
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
        Refusal { why, sentence: sendable(&sentence.to_string(), MAX_SENTENCE) }
    }
}

/// An answer of the service: the command line's JSON, or `null` if there is none.
pub type Answer = Result<Value, Refusal>;

/// The reason for reduced performance under the performance profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Degraded {
    #[default]
    No,
    LapDetected,
    HighOperatingTemperature,
}

impl Degraded {
    /// Returns the interface's word for it.
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
    /// The CPU frequency driver.
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

/// The state that the properties show.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct State {
    pub active: Option<Profile>,
    pub profiles: Vec<Offered>,
    /// Cookies of the programs' holds in the store.
    pub cookies: Vec<u32>,
    pub degraded: Degraded,
    pub holds: Vec<HeldName>,
    /// Knobs that are left although a hold wants another value.
    pub drifted: Vec<String>,
}

/// Something else changed a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drifted {
    pub knob: String,
    pub cpus: String,
    pub was: String,
    pub is: String,
    /// The cause, in words.
    pub by: String,
    /// The process that wrote it; 0 if unknown.
    pub pid: u32,
    pub action: String,
}

/// A message of the service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tell {
    State(State),
    Answer { id: u64, answer: Answer },
    Drifted(Drifted),
}

/// Writes one line.
///
/// # Errors
/// `FileTooLarge` for a line of more than `most` bytes, of which nothing is written, because the
/// reader would end the connection. Otherwise the error of write(2).
pub fn write_line(mut to: impl Write, message: &impl Serialize, most: u64) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    if line.len() as u64 > most {
        let what = format!("it is longer than {} MiB", most >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    to.write_all(&line)
}

/// Writes a line of the service. An answer that is too long becomes a refusal: one caller must not
/// end the connection of all.
pub(crate) fn write_tell(to: impl Write + Copy, tell: &Tell) -> io::Result<()> {
    match (write_line(to, tell, MAX_REPORTED), tell) {
        (Err(error), Tell::Answer { id, .. }) if error.kind() == io::ErrorKind::FileTooLarge => {
            let refusal = Refusal::new(Why::Failed, format_args!("the answer is refused: {error}"));
            write_line(to, &Tell::Answer { id: *id, answer: Err(refusal) }, MAX_REPORTED)
        }
        (written, _) => written,
    }
}

/// Reads one line of at most `most` bytes; `None` at the end.
///
/// # Errors
/// The line is too long, is cut off, or is not such a message.
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
        write_line(&mut bytes, &request, 100).unwrap();
        let length = bytes.len() as u64;
        let too_long = write_line(&mut bytes, &request, length - 1).unwrap_err();
        assert_eq!((too_long.kind(), bytes.len() as u64), (io::ErrorKind::FileTooLarge, length));
        write_line(&mut bytes, &Request { id: 8, ask: Ask::Status }, 100).unwrap();
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
        /// Whatever a compromised process sends is read as a message or refused, and reading ends.
        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in proptest::collection::vec(proptest::arbitrary::any::<u8>(), 0..400),
            place in 0_usize..120,
        ) {
            let mut line = Vec::new();
            let ask = Ask::Choose { profile: Profile::Performance, user: 1000 };
            write_line(&mut line, &Request { id: 7, ask }, 200).unwrap();
            // Also test a message that is valid up to some byte: random bytes hardly ever begin
            // like one.
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

    /// The answer to a plan, and a refusal that repeats a caller's text.
    #[test]
    fn an_answer_that_is_too_long_is_refused() {
        let text = "x".repeat(MAX_REPORTED as usize);
        for answer in [Ok(Value::String(text.clone())), Err(Refusal::new(Why::Invalid, &text))] {
            let mut file = tempfile::tempfile().unwrap();
            write_tell(&file, &Tell::Answer { id: 7, answer }).unwrap();
            io::Seek::rewind(&mut file).unwrap();
            let told = read_line::<Tell>(&mut io::BufReader::new(file), MAX_SENTENCE as u64 + 100).unwrap();
            assert!(matches!(told, Some(Tell::Answer { id: 7, answer: Err(_) })), "{told:?}");
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
