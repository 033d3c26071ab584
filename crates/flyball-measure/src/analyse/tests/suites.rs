//! Means of suites beside their cases.

use super::*;

/// Case 0 takes 30 % longer in arm 1, where it has no value in `lost` rounds.
fn losing(lost: usize, of: usize) -> (Report, [GateAnswer; 2]) {
    let (manifest, mut rounds) = suite(7, 3, &[1.0, 1.3], 20);
    for round in &mut rounds {
        for value in round.outcome.cases.values_mut() {
            *value = value.powf(0.1);
        }
        if round.arm == of && round.block < lost {
            round.outcome.cases.remove("case 0");
        }
        round.outcome.value = geometric_mean(round.outcome.cases.values().copied());
    }
    let report = analyse(&manifest, &rounds);
    let limits = ["metric > +2%", "case > +5%"].map(|limit| limit.parse().expect("a limit"));
    let answers = gate(&manifest, &report, &limits).try_into().expect("two answers");
    (report, answers)
}

#[test]
fn the_mean_of_a_suite_that_lost_a_case_is_not_told() {
    for (lost, of, words) in [
        (3, 1, "case 0 (none or 0 in 3 rounds of arm 1)"),
        (1, 1, "case 0 (none or 0 in 1 round of arm 1)"),
        (20, 1, "case 0 (none or 0 in arm 1)"),
        (3, 0, "case 0 (none or 0 in 3 rounds of arm 0)"),
    ] {
        let (report, answers) = losing(lost, of);
        let mean = &report.comparisons[0];
        let interval = mean.interval.expect("20 pairs have one");
        assert!(interval.low > -EQUIVALENT && interval.high < EQUIVALENT, "{interval:?}");
        assert_eq!((mean.verdict, mean.shows), (Verdict::NoDifferenceShown, None), "{lost} of arm {of}");
        let text = text_of(&report);
        assert!(text.contains("arm 1: mean of 2 of 3 cases unclear ("), "{text}");
        assert!(report.notes.iter().any(|note| note.contains(words)), "{:?}", report.notes);
        for answer in &answers {
            let found = (answer.verdict, answer.reason);
            assert_eq!(found, (GateVerdict::CannotTell, Some(NoInterval::LostCase)), "{answer}");
        }
    }
    // A case that the first arm never had is new.
    let (report, answers) = losing(20, 0);
    assert_eq!(report.comparisons[0].verdict, Verdict::Equivalent);
    assert!(text_of(&report).contains("arm 1 has the same mean of 2 of 3 cases as arm 0 within"));
    assert_eq!(answers.map(|answer| answer.verdict), [GateVerdict::Within; 2]);
}

#[test]
fn a_worse_case_is_named_before_the_same_mean() {
    let (manifest, mut rounds) = suite(8, 10, &[1.0, 1.0], 20);
    for round in &mut rounds {
        for (name, value) in &mut round.outcome.cases {
            let factor = match name.as_str() {
                _ if round.arm == 0 => 1.0,
                "case 0" => 1.5,
                _ => 1.5_f64.powf(-1.0 / 9.0),
            };
            *value = factor * value.powf(0.2);
        }
        round.outcome.value = geometric_mean(round.outcome.cases.values().copied());
    }
    let report = analyse(&manifest, &rounds);
    let text = text_of(&report);
    let first = "arm 1 is worse than arm 0 in 1 of 10 cases, and has the same mean of cases within \u{b1}0.5 %, shown (";
    assert!(text.starts_with(first), "{text}");
    let place = |words: &str| text.find(words).expect(words);
    assert!(place("\ncases: 1 worse, 9 better of 10") < place("\nbest mean of cases: no arm"), "{text}");
}
