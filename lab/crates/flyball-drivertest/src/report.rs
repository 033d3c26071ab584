//! Results, and their output: KTAP for tools, one HTML page for people, JSON through serde.

use std::fmt::Write as _;

use flyball_text::escape;
use serde::Serialize;

use crate::step::Step;

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Pass,
    Fail,
    /// It failed, but the failure is known.
    Known,
    /// It does not apply to this mode.
    Skip,
    /// It could not be judged.
    CannotTell,
}

/// One test of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Test {
    pub name: String,
    pub outcome: Outcome,
    /// Why the test was skipped, is known to fail, or cannot be judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The observations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
    /// The shortest sequence found that shows a failure.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
}

impl Test {
    fn new(name: impl Into<String>, outcome: Outcome) -> Test {
        Test { name: name.into(), outcome, reason: None, details: Vec::new(), steps: Vec::new() }
    }

    pub fn pass(name: impl Into<String>) -> Test {
        Test::new(name, Outcome::Pass)
    }

    pub fn fail(name: impl Into<String>, details: Vec<String>) -> Test {
        let lines = details.iter().flat_map(|text| text.lines()).map(str::to_owned).collect();
        Test { details: lines, ..Test::new(name, Outcome::Fail) }
    }

    /// A failure for one kind of the kernel's own reports.
    pub fn kernel_report(kind: &str, text: Vec<String>) -> Test {
        Test::fail(format!("kernel-messages.{}", kind.replace(' ', "-")), text)
    }

    pub fn skip(name: impl Into<String>, reason: impl Into<String>) -> Test {
        Test { reason: Some(reason.into()), ..Test::new(name, Outcome::Skip) }
    }

    pub fn cannot_tell(name: impl Into<String>, reason: impl Into<String>) -> Test {
        Test { reason: Some(reason.into()), ..Test::new(name, Outcome::CannotTell) }
    }

    #[must_use]
    pub fn known(self, reason: impl Into<String>) -> Test {
        Test { outcome: Outcome::Known, reason: Some(reason.into()), ..self }
    }

    #[must_use]
    pub fn with_steps(self, steps: Option<Vec<Step>>) -> Test {
        Test { steps: steps.unwrap_or_default(), ..self }
    }

    pub fn is_good(&self) -> bool {
        !matches!(self.outcome, Outcome::Fail | Outcome::CannotTell)
    }
}

/// A topic in a mode.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    pub machine: String,
    pub mode: String,
    pub topic: String,
    /// Host seconds.
    pub seconds: f64,
    pub tests: Vec<Test>,
}

impl Group {
    pub fn name(&self) -> String {
        format!("{}:{}:{}", self.machine, self.mode, self.topic)
    }

    /// The worst outcome of the tests.
    pub fn outcome(&self) -> Outcome {
        let has = |outcome| self.tests.iter().any(|test| test.outcome == outcome);
        // A failure counts even if other tests could not be judged.
        if has(Outcome::Fail) {
            Outcome::Fail
        } else if has(Outcome::CannotTell) {
            Outcome::CannotTell
        } else if !self.tests.is_empty() && self.tests.iter().all(|test| test.outcome == Outcome::Skip) {
            Outcome::Skip
        } else {
            Outcome::Pass
        }
    }
}

/// A whole run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Suite {
    /// The tested kernel, as `--kernel` gave it, and its release.
    pub kernel: String,
    pub release: String,
    /// The baseline, as `--baseline` gave it, or the release of a recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    pub seed: u64,
    pub seconds: f64,
    pub groups: Vec<Group>,
}

/// A verdict in the form that `git bisect run` expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Good,
    Bad,
    CannotTell,
}

impl Verdict {
    pub fn code(self) -> u8 {
        match self {
            Verdict::Good => 0,
            Verdict::Bad => 1,
            Verdict::CannotTell => 125,
        }
    }
}

impl Suite {
    /// One failure makes the kernel bad. If nothing was tested, or a test could not be judged,
    /// there is no verdict.
    pub fn verdict(&self) -> Verdict {
        let has = |outcome| self.groups.iter().any(|group| group.outcome() == outcome);
        if has(Outcome::Fail) {
            Verdict::Bad
        } else if has(Outcome::CannotTell) || !has(Outcome::Pass) {
            Verdict::CannotTell
        } else {
            Verdict::Good
        }
    }
}

/// The first lines of a run's KTAP (Documentation/dev-tools/ktap.rst).
pub fn ktap_head(groups: usize) -> String {
    format!("KTAP version 1\n1..{groups}\n")
}

/// A group's lines, as test `number` of the run.
pub fn ktap_group(group: &Group, number: usize) -> String {
    let mut out =
        format!("    KTAP version 1\n    # Subtest: {}\n    1..{}\n", group.name(), group.tests.len());
    for (at, test) in group.tests.iter().enumerate() {
        for line in &test.details {
            let _ = writeln!(out, "    # {line}");
        }
        if !test.steps.is_empty() {
            let _ = writeln!(out, "    # shortest sequence found, from the base state:");
        }
        for step in &test.steps {
            let _ = writeln!(out, "    #   {step}");
        }
        let _ = writeln!(out, "    {}", line(&test.outcome, at + 1, &test.name, test.reason.as_deref()));
    }
    let _ = writeln!(out, "# {} took {:.1} s", group.name(), group.seconds);
    let reason = group
        .tests
        .iter()
        .find(|test| test.outcome == group.outcome())
        .and_then(|test| test.reason.as_deref());
    let reason = reason.filter(|_| matches!(group.outcome(), Outcome::Skip | Outcome::CannotTell));
    let _ = writeln!(out, "{}", line(&group.outcome(), number, &group.name(), reason));
    out
}

fn line(outcome: &Outcome, number: usize, name: &str, reason: Option<&str>) -> String {
    let reason = reason.unwrap_or_default().replace('\n', " ");
    match outcome {
        Outcome::Pass => format!("ok {number} {name}"),
        Outcome::Fail => format!("not ok {number} {name}"),
        Outcome::Known => format!("not ok {number} {name} # XFAIL {reason}"),
        Outcome::Skip => format!("ok {number} {name} # SKIP {reason}"),
        Outcome::CannotTell => format!("not ok {number} {name} # ERROR {reason}"),
    }
}

/// A self-contained page.
pub fn html(suite: &Suite) -> String {
    let mut out = String::from(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>flyball guest test</title><style>\
         body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#1b1b1b;background:#fff}\
         table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.25em .6em;border-bottom:1px solid #ddd;vertical-align:top}\
         pre{margin:.3em 0;white-space:pre-wrap;overflow-wrap:anywhere}.fail{color:#a40000;font-weight:600}.pass{color:#1a6b1a}\
         .skip,.known{color:#666}.cannot-tell{color:#8a5a00;font-weight:600}details{margin:.2em 0}\
         @media(prefers-color-scheme:dark){body{background:#151515;color:#e5e5e5}td,th{border-color:#333}.pass{color:#7bc47b}.fail{color:#ff7b7b}\
         .cannot-tell{color:#e0b050}}</style></head><body>",
    );
    let verdict = match suite.verdict() {
        Verdict::Good => "good",
        Verdict::Bad => "bad",
        Verdict::CannotTell => "cannot tell",
    };
    let _ = write!(
        out,
        "<h1>Kernel {}: {verdict}</h1><p>{}{} Seed {}, {:.0} s. All processors are emulated.</p>",
        escape(&suite.release),
        escape(&suite.kernel),
        suite.baseline.as_ref().map_or_else(|| ".".into(), |old| format!(", compared with {}.", escape(old))),
        suite.seed,
        suite.seconds
    );
    out.push_str("<table><thead><tr><th>machine</th><th>mode</th><th>topic</th><th>result</th><th>tests</th><th>s</th></tr></thead><tbody>");
    for group in &suite.groups {
        let count = |outcome: Outcome| group.tests.iter().filter(|test| test.outcome == outcome).count();
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"{}\">{}</td><td>{} of {} failed</td><td>{:.1}</td></tr>",
            escape(&group.machine),
            escape(&group.mode),
            escape(&group.topic),
            class(&group.outcome()),
            word(&group.outcome()),
            count(Outcome::Fail),
            group.tests.len(),
            group.seconds
        );
    }
    out.push_str("</tbody></table>");
    for group in &suite.groups {
        let _ = write!(out, "<h2>{}</h2><table><tbody>", escape(&group.name()));
        for test in &group.tests {
            let _ = write!(
                out,
                "<tr><td class=\"{}\">{}</td><td>{}",
                class(&test.outcome),
                word(&test.outcome),
                escape(&test.name)
            );
            if let Some(reason) = &test.reason {
                let _ = write!(out, " ({})", escape(reason));
            }
            if !test.details.is_empty() || !test.steps.is_empty() {
                let mut text = test.details.join("\n");
                if !test.steps.is_empty() {
                    text.push_str("\n\nshortest sequence found, from the base state:\n");
                    text.extend(test.steps.iter().map(|step| format!("  {step}\n")));
                }
                let open = if test.outcome == Outcome::Fail { " open" } else { "" };
                let _ = write!(
                    out,
                    "<details{open}><summary>details</summary><pre>{}</pre></details>",
                    escape(&text)
                );
            }
            out.push_str("</td></tr>");
        }
        out.push_str("</tbody></table>");
    }
    out.push_str("</body></html>\n");
    out
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Pass => "passed",
        Outcome::Fail => "failed",
        Outcome::Known => "failed, known",
        Outcome::Skip => "skipped",
        Outcome::CannotTell => "cannot tell",
    }
}

fn class(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Pass => "pass",
        Outcome::Fail => "fail",
        Outcome::Known => "known",
        Outcome::Skip => "skip",
        Outcome::CannotTell => "cannot-tell",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(tests: Vec<Test>) -> Suite {
        let group =
            Group { machine: "m".into(), mode: "d=a".into(), topic: "contract".into(), seconds: 1.0, tests };
        Suite {
            kernel: "k".into(),
            release: "6".into(),
            baseline: None,
            seed: 0,
            seconds: 2.0,
            groups: vec![group],
        }
    }

    #[test]
    fn verdicts_are_those_of_bisect() {
        let verdict = |tests: Vec<Test>| suite(tests).verdict().code();
        let fail = || Test::fail("b", vec![]);
        assert_eq!(verdict(vec![Test::pass("a"), Test::skip("s", "x")]), 0);
        assert_eq!(verdict(vec![Test::pass("a"), fail(), Test::cannot_tell("c", "x")]), 1);
        assert_eq!(verdict(vec![Test::pass("a"), fail().known("x")]), 0);
        assert_eq!(verdict(vec![Test::pass("a"), Test::cannot_tell("c", "x")]), 125);
        assert_eq!(verdict(vec![Test::skip("s", "x")]), 125);
    }

    #[test]
    fn ktap_is_nested() {
        let suite = suite(vec![
            Test::pass("a"),
            Test::fail("b", vec!["x\ny".into()]).with_steps(Some(vec![Step::Load(5)])),
        ]);
        let text = ktap_head(1) + &ktap_group(&suite.groups[0], 1);
        let expected = "KTAP version 1\n1..1\n    KTAP version 1\n    # Subtest: m:d=a:contract\n    1..2\n    ok 1 a\n    # x\n    # y\n    \
            # shortest sequence found, from the base state:\n    #   l 0.005\n    not ok 2 b\n# m:d=a:contract took 1.0 s\n\
            not ok 1 m:d=a:contract\n";
        assert_eq!(text, expected);
        assert!(html(&suite).contains("<td class=\"fail\">failed</td><td>b<details open>"));
    }
}
