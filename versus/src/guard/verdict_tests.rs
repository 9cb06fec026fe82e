//! Verdicts on made-up numbers.

use std::collections::VecDeque;

use super::*;

/// As quiet as a machine is.
const QUIET: Noise = Noise { others: 0.5, steal: 0.1 };

/// A series in which new costs `factor` times as much as old, both with the same little noise of 1%.
fn series(pairs: usize, factor: f64) -> Series {
    let wobble = |pair: usize| 100.0 + (pair * 7 % 5) as f64 / 4.0;
    let old: Vec<f64> = (0..pairs).map(wobble).collect();
    // The wobble of the new side is another one, so that pairs do not agree by themselves.
    let new = (0..pairs).map(|pair| wobble(pair * 3 + 2) * factor).collect();
    Series { old, new, noise: QUIET }
}

/// Judges by these series, one after the other; the verdict, and the lengths that were asked for.
fn judged(bar: f64, series: impl IntoIterator<Item = Series>) -> (Verdict, Vec<usize>) {
    let mut series: VecDeque<Series> = series.into_iter().collect();
    let mut asked = Vec::new();
    let verdict = judge(bar, FIRST.pairs, |pairs| {
        asked.push(pairs);
        Ok(series.pop_front().expect("no more series than these"))
    });
    (verdict.expect("no trouble"), asked)
}

fn why(verdict: Verdict) -> String {
    let Verdict::CannotTell(why) = verdict else { panic!("{verdict:?}") };
    why
}

#[test]
fn two_builds_of_the_same_are_ok_after_one_series() {
    assert_eq!(judged(CPU_BAR, [series(11, 1.0)]), (Verdict::Ok, vec![11]));
}

#[test]
fn five_percent_are_found_and_confirmed_by_fresh_pairs() {
    assert_eq!(judged(CPU_BAR, [series(11, 1.05), series(22, 1.05)]), (Verdict::Lost, vec![11, 22]));
}

#[test]
fn two_percent_and_what_is_faster_are_ok() {
    for factor in [1.02, 0.95, 0.5] {
        assert_eq!(judged(CPU_BAR, [series(11, factor)]), (Verdict::Ok, vec![11]));
    }
}

#[test]
fn a_suspicion_that_fresh_pairs_do_not_share_is_not_confirmed() {
    assert_eq!(judged(CPU_BAR, [series(11, 1.05), series(22, 1.01)]).0, Verdict::NotConfirmed);
}

#[test]
fn a_median_that_too_few_pairs_agree_with_is_no_suspicion() {
    let mut mixed = series(11, 1.05);
    for pair in [0, 4, 8] {
        mixed.new[pair] = 90.0;
    }
    assert!(mixed.ratio() >= 1.03 && mixed.worse() == 8);
    assert_eq!(judged(CPU_BAR, [mixed]).0, Verdict::Ok);
}

#[test]
fn nine_of_eleven_and_seventeen_of_twenty_two_are_enough() {
    let mut first = series(11, 1.05);
    let mut second = series(22, 1.05);
    first.new[..2].fill(90.0);
    second.new[..5].fill(90.0);
    assert_eq!((first.worse(), second.worse()), (9, 17));
    assert_eq!(judged(CPU_BAR, [first.clone(), second.clone()]).0, Verdict::Lost);
    second.new[5] = 90.0;
    assert_eq!(judged(CPU_BAR, [first, second]).0, Verdict::NotConfirmed);
}

#[test]
fn a_busy_machine_is_tried_again_and_then_nothing_can_be_said() {
    let busy = Series { noise: Noise { others: 40.0, steal: 0.0 }, ..series(11, 1.0) };
    assert_eq!(judged(CPU_BAR, [busy.clone(), series(11, 1.0)]), (Verdict::Ok, vec![11, 11]));
    let (verdict, asked) = judged(CPU_BAR, [busy.clone(), busy]);
    assert_eq!(asked, [11, 11]);
    assert!(why(verdict).contains("other processes took 40%"));
}

#[test]
fn steal_time_makes_it_unclear() {
    let stolen = Series { noise: Noise { others: 0.0, steal: 7.0 }, ..series(11, 1.0) };
    assert!(why(judged(CPU_BAR, [stolen.clone(), stolen]).0).contains("the host took 7%"));
}

#[test]
fn a_noisy_suspicion_is_judged_by_quiet_fresh_pairs() {
    let busy = |pairs| Series { noise: Noise { others: 40.0, steal: 0.0 }, ..series(pairs, 1.05) };
    assert_eq!(judged(CPU_BAR, [busy(11), series(22, 1.05)]).0, Verdict::Lost);
    assert_eq!(judged(CPU_BAR, [busy(11), series(22, 1.0)]).0, Verdict::NotConfirmed);
    // Noise to the end hides no suspicion: the verdict reports it, and the guard does not end with 0.
    let (verdict, asked) = judged(CPU_BAR, [busy(11), busy(22), busy(22)]);
    assert_eq!(asked, [11, 22, 22]);
    assert!(verdict.is_unclear() && why(verdict).starts_with("suspect, but other processes"));
}

#[test]
fn an_old_side_that_differs_from_itself_by_turns_is_unclear() {
    let mut wild = series(11, 1.0);
    for pair in (1..11).step_by(2) {
        wild.old[pair] *= 1.04;
        wild.new[pair] *= 1.04;
    }
    assert!(why(judged(CPU_BAR, [wild.clone(), wild.clone()]).0).contains("even and odd"));
    // Where percentiles are judged that is as quiet as it gets.
    assert_eq!(judged(LATENCY_BAR, [wild]).0, Verdict::Ok);
}

#[test]
fn a_drift_that_both_sides_share_cancels_out_until_it_is_large() {
    let drifted = |percent: f64| {
        let mut series = series(11, 1.0);
        for values in [&mut series.old, &mut series.new] {
            values.iter_mut().skip(6).for_each(|value| *value *= 1.0 + percent / 100.0);
        }
        series
    };
    assert_eq!(drifted(2.0).off(CPU_BAR), None);
    assert!(drifted(2.0).worse() < 9);
    let why = why(judged(CPU_BAR, [drifted(25.0), drifted(25.0)]).0);
    assert!(why.contains("apart"), "{why}");
}

#[test]
fn one_outlier_changes_nothing() {
    for factor in [1.0, 1.05] {
        let mut first = series(11, factor);
        let mut second = series(22, factor);
        first.old[3] *= 4.0;
        second.new[5] *= 4.0;
        let expected = if factor > 1.0 { Verdict::Lost } else { Verdict::Ok };
        assert_eq!(judged(CPU_BAR, [first, second]).0, expected);
    }
}

#[test]
fn latency_has_a_wider_bar() {
    assert_eq!(judged(LATENCY_BAR, [series(11, 1.15)]).0, Verdict::Ok);
    assert_eq!(judged(LATENCY_BAR, [series(11, 1.3), series(22, 1.3)]).0, Verdict::Lost);
}

#[test]
fn counts_are_judged_at_two_percent_and_not_below_a_thousandth() {
    let cases = [
        (40.0, 40.2, Verdict::Ok),
        (40.0, 40.9, Verdict::Lost),
        (40.0, 104.0, Verdict::Lost),
        (40.0, 30.0, Verdict::Ok),
        (0.0, 0.0, Verdict::Ok),
        (0.0, 0.0005, Verdict::Ok),
        (0.0, 1.0, Verdict::Lost),
        (0.001, 0.011, Verdict::Lost),
    ];
    for (old, new, expected) in cases {
        assert_eq!(judge_count(old, new), expected, "{old} {new}");
    }
}

#[test]
fn a_new_side_that_fails_is_a_loss_and_an_old_one_is_unclear() {
    assert!(Verdict::from(Trouble::New("panicked".to_owned())).is_loss());
    let old = Verdict::from(Trouble::Old("panicked".to_owned()));
    assert!(old.is_unclear() && !old.is_loss());
}

#[test]
fn a_short_series_keeps_the_share_that_must_agree() {
    let Length { pairs, agree } = FIRST.scaled(3);
    assert_eq!((pairs, agree), (3, 3));
    let Length { pairs, agree } = SECOND.scaled(3);
    assert_eq!((pairs, agree), (6, 5));
    let Length { pairs, agree } = SECOND.scaled(11);
    assert_eq!((pairs, agree), (22, 17));
}
