//! A finding as a shell script, which needs only root and a POSIX shell with the usual tools.

use super::Finding;
use crate::{
    mode::Mode,
    speed_select,
    step::{AGENT, Step},
};

/// The part of agent.sh that runs steps is between these lines.
const FIRST: &str = "# -- steps --\n";
const LAST: &str = "# -- end of steps --\n";

/// Other definitions that the steps need.
const HEAD: &str = r#"t=$(mktemp -d) || exit
trap 'rm -r "$t"' EXIT

pause() { sleep "$1"; }

register() { # CPU NUMBER
    [ -e "/dev/cpu/$1/msr" ] || modprobe msr
    echo "cpu$1 $2:$(dd if="/dev/cpu/$1/msr" bs=8 count=1 skip=$(($2)) iflag=skip_bytes 2>/dev/null | od -A n -t x8)"
}

"#;

/// Writes the script. It sets the base state, runs the steps, and prints the finding's subject
/// before and after the last step.
pub(super) fn script(finding: &Finding, mode: &Mode, release: &str) -> String {
    let mut text = String::from("#!/bin/sh\n");
    for line in finding.about.iter().chain(&finding.details).flat_map(|text| text.lines()) {
        text.push_str(&format!("# {}\n", line.trim_end()));
    }
    // The release of a stripped image is unknown.
    let kernel = if release.starts_with(|c: char| c.is_ascii_digit()) {
        format!("Linux {release}")
    } else {
        "Linux".to_owned()
    };
    let functions =
        AGENT.split_once(FIRST).and_then(|(_, rest)| Some(rest.split_once(LAST)?.0)).unwrap_or_default();
    text.push_str(&format!(
        "# Seen on {kernel} with {}, {} CPUs like those of {}. Run as root.\n{HEAD}{functions}",
        mode.name,
        mode.cpu_count(),
        mode.machine
    ));
    if mode.shape.is_some() {
        let octal: String = speed_select::elf().iter().map(|byte| format!("\\{byte:03o}")).collect();
        text.push_str(&format!(
            "isst=$t/isst\nexport isst\nprintf '{octal}' > \"$isst\"\nchmod +x \"$isst\"\n"
        ));
    }
    text.push_str("remember\n# The base state\n{\n");
    for step in mode.reset() {
        text.push_str(&format!("{}\n", line(&step)));
    }
    text.push_str(&format!("}} > /dev/null\n\nshow() {{\npause 0.05\n{}}}\n\n", shown(finding, mode)));
    text.push_str("# The steps\necho '# in the base state'\nshow\n");
    for (at, step) in finding.steps.iter().enumerate() {
        if at + 1 == finding.steps.len() && at > 0 {
            text.push_str("echo '# before the last step'\nshow\n");
        }
        text.push_str(&format!("{}\n", line(step)));
    }
    text.push_str("echo '# after the last step'\nshow\n");
    text
}

/// Quotes a word for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn line(step: &Step) -> String {
    match step {
        Step::Write { path, value } => format!("write {} {}", quoted(path), quoted(value)),
        Step::Load(ms) => format!("load {}", f64::from(*ms) / 1000.0),
        Step::Wait(ms) => format!("pause {}", f64::from(*ms) / 1000.0),
        Step::Run(command) => format!("sh -c {}", quoted(command)),
        Step::Ioctl { number, argument } => format!(
            "call {number:#x} {} # {}",
            speed_select::hex(argument),
            speed_select::describe(*number, argument)
        ),
        Step::Firmware(faults) => format!("firmware {faults}"),
    }
}

/// Lines that print the attributes and registers at the start of the finding's details.
fn shown(finding: &Finding, mode: &Mode) -> String {
    if let Some(shape) = &mode.shape {
        return format!("{}\n", shape.queries_command());
    }
    let mut lines: Vec<String> = Vec::new();
    for detail in &finding.details {
        let mut words = detail.split([' ', ':']);
        let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let is_path =
            first.contains('/') && first.chars().all(|c| c.is_ascii_alphanumeric() || "/_-".contains(c));
        let cpu = first.strip_prefix("cpu").and_then(|number| number.parse::<u32>().ok());
        let register = second.strip_prefix("0x").filter(|hex| u32::from_str_radix(hex, 16).is_ok());
        let line = match (cpu, register) {
            (Some(cpu), Some(register)) => format!("register {cpu} 0x{register}\n"),
            _ if is_path => format!("grep -s . {first}\n"),
            _ => continue,
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    if lines.is_empty() {
        lines.push(
            "grep -s . cpufreq/policy*/scaling_* cpufreq/policy*/energy_performance_preference\n".to_owned(),
        );
    }
    lines.concat()
}
