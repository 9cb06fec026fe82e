//! The table of medians, and the lines under it that programs read.

use crate::contest::{Metric, Outcome, Role};
use crate::stats::{Summary, paired_ratio};

/// One ratio of Dapple and a rival that counts; above 1, Dapple is ahead.
pub(crate) struct Ratio {
    pub(crate) metric: &'static str,
    pub(crate) rival: &'static str,
    pub(crate) value: f64,
}

/// All ratios of a contest.
pub(crate) fn ratios(outcome: &Outcome) -> Vec<Ratio> {
    let Some(ours) = outcome.ours() else {
        return Vec::new();
    };
    let rivals = outcome.scores.iter().filter(|s| s.role == Role::Rival);
    rivals
        .flat_map(|rival| {
            let metrics = outcome.metrics.iter().enumerate().filter(|(_, metric)| metric.ratios);
            metrics.map(|(index, metric)| Ratio {
                metric: metric.name,
                rival: rival.side,
                value: paired_ratio(&ours.values(index), &rival.values(index)),
            })
        })
        // A shape of Dapple's own may be there for one metric only.
        .filter(|ratio| !ratio.value.is_nan())
        .collect()
}

/// Prints the table and the lines of one contest.
pub(crate) fn print(outcome: &Outcome) {
    println!("{}: {}", outcome.name, outcome.about);
    let headings = outcome.metrics.iter().map(heading).collect::<String>();
    println!("  {:<18}{headings}", "");
    for score in &outcome.scores {
        let cells = (0..outcome.metrics.len())
            .map(|metric| cell(Summary::of(&score.values(metric))))
            .collect::<String>();
        let mark = match score.role {
            Role::Reference => "  (reference)",
            Role::Ours | Role::Rival => "",
        };
        println!("  {:<18}{cells}{mark}", score.side);
    }
    println!();
    for line in lines(outcome) {
        println!("{line}");
    }
    println!();
}

fn heading(metric: &Metric) -> String {
    let Metric { name, unit, .. } = metric;
    let title = format!("{name} {unit}");
    format!("{:>16}  {:<22}", title.trim(), "min .. max")
}

fn cell(summary: Summary) -> String {
    let Summary { median, min, max } = summary;
    if median.is_nan() {
        return format!("{:>16}  {:<22}", "", "");
    }
    // Small values are shares or numbers of cores, for which one decimal is too coarse.
    let decimals = if max < 10.0 { 2 } else { 1 };
    format!("{median:>16.decimals$}  {:<22}", format!("{min:.decimals$} .. {max:.decimals$}"))
}

/// The lines that programs read.
fn lines(outcome: &Outcome) -> Vec<String> {
    let name = outcome.name;
    let mut lines: Vec<String> = ratios(outcome)
        .iter()
        .map(|ratio| {
            let slash = if ratio.metric.is_empty() { "" } else { "/" };
            let Ratio { metric, rival, value } = ratio;
            format!("{name}{slash}{metric}: dapple/{rival} = {value:.2}")
        })
        .collect();
    if let (Some(ours), Some(metric)) = (outcome.ours(), outcome.metrics.first()) {
        let median = Summary::of(&ours.values(0)).median;
        lines.push(format!("{name}: dapple = {median:.1} {}", metric.unit));
    }
    let absolutes = outcome.metrics.iter().enumerate().filter(|(_, metric)| metric.absolutes);
    for (index, Metric { name: metric, unit, .. }) in absolutes {
        let medians = outcome.scores.iter().map(|score| (score, Summary::of(&score.values(index)).median));
        lines.extend(
            medians
                .filter(|(_, median)| !median.is_nan())
                .map(|(score, median)| format!("{name}/{metric}: {} = {median:.1} {unit}", score.side)),
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contest::{BYTES, Score, TIMES};

    fn outcome(name: &'static str, metrics: &'static [Metric], sample: &[f64]) -> Outcome {
        let score = |side, role, factor: f64| Score {
            side,
            role,
            rounds: vec![sample.iter().map(|value| value * factor).collect()],
        };
        Outcome {
            name,
            about: "",
            metrics,
            scores: vec![
                score("dapple", Role::Ours, 1.0),
                score("tokio", Role::Rival, 3.0),
                score("monoio", Role::Reference, 0.5),
            ],
        }
    }

    #[test]
    fn times_have_a_line_for_each_metric_and_rival_that_counts() {
        let expected =
            ["spawn/wall: dapple/tokio = 3.00", "spawn/cpu: dapple/tokio = 3.00", "spawn: dapple = 50.0 ns"];
        assert_eq!(lines(&outcome("spawn", TIMES, &[50.0, 80.0])), expected);
    }

    #[test]
    fn what_is_shown_in_absolutes_has_a_line_for_each_side() {
        const METRICS: &[Metric] =
            &[Metric::new("cpu", "ns"), Metric { name: "worst", unit: "us", ratios: false, absolutes: true }];
        let expected = [
            "timers/cpu: dapple/tokio = 3.00",
            "timers: dapple = 50.0 ns",
            "timers/worst: dapple = 2.0 us",
            "timers/worst: tokio = 6.0 us",
            "timers/worst: monoio = 1.0 us",
        ];
        assert_eq!(lines(&outcome("timers", METRICS, &[50.0, 2.0])), expected);
    }

    #[test]
    fn a_side_without_a_value_has_no_line() {
        const METRICS: &[Metric] =
            &[Metric::new("cpu", "ns"), Metric { name: "worst", unit: "us", ratios: true, absolutes: true }];
        let mut outcome = outcome("timers", METRICS, &[50.0, 2.0]);
        outcome.scores[1].rounds = vec![vec![100.0, f64::NAN]];
        outcome.scores.truncate(2);
        let expected =
            ["timers/cpu: dapple/tokio = 2.00", "timers: dapple = 50.0 ns", "timers/worst: dapple = 2.0 us"];
        assert_eq!(lines(&outcome), expected);
    }

    #[test]
    fn a_single_metric_is_not_named() {
        let expected = ["memory/loop: dapple/tokio = 3.00", "memory/loop: dapple = 40.1 B"];
        assert_eq!(lines(&outcome("memory/loop", BYTES, &[40.1])), expected);
    }
}
