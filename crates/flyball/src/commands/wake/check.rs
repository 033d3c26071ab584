//! `wake --check`: runs `compare` to find out whether the advised limit pays off.

use std::path::{Path, PathBuf};

use flyball_host::Host;
use flyball_measure::{
    ArmSetting, Comparison, EQUIVALENT, Quantity, RunDirectory, Verdict, analyse, judge, render,
};
use flyball_wake::{CheckVerdict, WakeAdvice, WakeCheck};

use super::Args;
use crate::{
    commands::compare,
    context::Context,
    exit::{Exit, Failure},
    output::{Format, Reporter},
    time,
};

/// Returns the words of a `compare` command line: the current settings against the limit, by the
/// command's metric.
pub(super) fn words(args: &Args, host: &dyn Host, setting: &str, directory: &Path) -> Vec<String> {
    let mut words = ["--arm", "now", "--arm"].map(str::to_owned).to_vec();
    words.extend([format!("limited: {setting}"), "-o".to_owned()]);
    words.push(directory.display().to_string());
    let options =
        [("--metric", args.metric.clone()), ("--rounds", args.rounds.map(|rounds| rounds.to_string()))];
    let options = options.into_iter().chain([("--user", args.run_as.user.clone())]);
    words.extend(options.filter_map(|(option, value)| Some(format!("{option}={}", value?))));
    if let (Some(unit), true) = (&args.unit, args.metric.is_some()) {
        words.push(format!("--unit={unit}"));
    }
    if args.run_as.as_root {
        words.push("--as-root".to_owned());
    }
    // A simulated machine runs models, which are options of `compare`.
    words.push(if host.software().is_some() { "--model" } else { "--" }.to_owned());
    words.extend(args.command.iter().cloned());
    words
}

/// Printed if nothing is compared or written.
pub(super) const NO_LIMIT: &str = "no latency limit is expected to pay";

/// Compares, and returns whether the limit paid off. Returns an exit code if the comparison did not
/// finish.
pub(super) fn check(
    context: &Context,
    words: &[String],
    directory: PathBuf,
    advice: &WakeAdvice,
) -> Result<Result<WakeCheck, Exit>, Failure> {
    let typed = compare::Args::from_words(words).map_err(Failure::usage)?;
    // JSON output is a single object. The comparison itself is in its directory.
    let output =
        if context.output.is_json() { Reporter::new(Format::Nothing) } else { context.output.clone() };
    let exit =
        compare::run(&Context::new(context.machine.clone(), context.state_dir.clone(), output), &typed)?;
    if exit != Exit::Done {
        return Ok(Err(exit));
    }
    Ok(Ok(judged(&RunDirectory::open(&directory)?, advice)))
}

/// The verdict of a finished comparison.
fn judged(directory: &RunDirectory, advice: &WakeAdvice) -> WakeCheck {
    let (manifest, rounds) = (&directory.manifest, &directory.rounds);
    let report = analyse(manifest, rounds);
    let found = report.comparisons.iter().zip(render::verdicts(&report));
    let found = found.into_iter().find(|(one, _)| one.quantity == Quantity::Performance);
    // With many steady rounds, even worthless gains are significant.
    let is_small =
        |one: &Comparison| one.interval.is_some_and(|ends| ends.low.abs().max(ends.high.abs()) <= EQUIVALENT);
    let verdict = match found.as_ref().map(|(one, _)| one) {
        Some(one) if one.verdict == Verdict::Better && !is_small(one) => CheckVerdict::Pays,
        Some(one) if one.verdict != Verdict::NoDifferenceShown && one.verdict != Verdict::TooFewRounds => {
            CheckVerdict::DoesNotPay
        }
        _ => CheckVerdict::NotShown,
    };
    // Use the power of the packages, or of the platform if only that is metered.
    let price = [(Quantity::Power, "packages"), (Quantity::PlatformPower, "platform")];
    let price = price.into_iter().find_map(|(quantity, of)| {
        let one = judge(manifest, rounds, quantity, report.questions).into_iter().next()?;
        let base = report.arms[0].summary(quantity)?.median;
        Some((of, base * one.change, one.interval.map(|ends| (base * ends.low, base * ends.high))))
    });
    let watts = match (&price, &report.no_energy) {
        (Some((of, watts, Some((low, high)))), _) => {
            format!("its price is {watts:+.2} W ({low:+.2} to {high:+.2} W, {of})")
        }
        (Some((of, watts, None)), _) => {
            format!("its price is {watts:+.2} W ({of}; too few rounds to bound it)")
        }
        (None, why) => {
            format!("its price in watts is not known: {}", why.as_deref().unwrap_or("no meter was read"))
        }
    };
    let word = match verdict {
        CheckVerdict::Pays => "pays",
        CheckVerdict::DoesNotPay => "does not pay",
        CheckVerdict::NotShown => "is not shown to pay",
    };
    let how = found.as_ref().map_or("", |(_, sentence)| sentence.trim_end_matches('.'));
    WakeCheck {
        sentence: format!("{} {word}: {how}; {watts}", advice.setting),
        verdict,
        change: found.as_ref().map(|(one, _)| one.change),
        interval: found.and_then(|(one, _)| one.interval).map(|ends| (ends.low, ends.high)),
        watts: price.as_ref().map(|price| price.1),
        watts_interval: price.and_then(|price| price.2),
        directory: directory.path().display().to_string(),
    }
}

/// A name for the comparison's directory.
pub(super) fn directory() -> PathBuf {
    PathBuf::from(format!("flyball-wake-{}", time::stamp()))
}

/// Writes the advised limit as a profile, unless none could pay or the check shows no gain.
pub(super) fn save(
    path: &Path,
    advice: Option<&WakeAdvice>,
    check: Option<&WakeCheck>,
    simulated: Option<&str>,
) -> Result<(), Failure> {
    let advice = match (advice, check) {
        (None, _) => Err(NO_LIMIT),
        (Some(_), Some(check)) if check.verdict != CheckVerdict::Pays => Err("no gain is shown"),
        (Some(advice), _) => Ok(advice),
    };
    let shown = path.display();
    let advice = match advice {
        Ok(advice) => advice,
        Err(why) => {
            eprintln!("profile: none; {shown} is not written, because {why}");
            return Ok(());
        }
    };
    let place = simulated.map_or_else(String::new, |machine| format!(" on {machine}, simulated"));
    let doubt = if check.is_some() { "" } else { "; not compared yet" };
    let description = format!("Latency limit that saves exits, found by flyball wake{place}{doubt}");
    let setting = ArmSetting::parse(&advice.setting).ok_or_else(|| Failure::failed("no setting"))?;
    let text = flyball_tune::profile_text(&description, "", &[&setting]);
    flyball_files::replace(path, text.as_bytes())
        .map_err(|error| Failure::failed(format!("cannot write {shown}: {error}")))?;
    eprintln!("profile: {shown}; to hold it: flyball hold add NAME {shown} --when program=/PATH");
    Ok(())
}
