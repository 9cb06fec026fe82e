//! `--round CASE SIDE`: one sample of one side in this process, as JSON. It is what the guard of any later commit
//! calls, so its form is fixed (README, "Guard").

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::contest::{CPU, Contest, Entry, Failure, Metric, Role, Sample, Scale};
use crate::stats::Summary;
use crate::{denied, setting};

/// The contest and the side that two names mean, exactly. An error lists what there is.
pub(crate) fn select<'a>(
    all: &'a [Contest],
    case: &str,
    side: &str,
) -> Result<(&'a Contest, &'a Entry), String> {
    let Some(contest) = all.iter().find(|contest| contest.name == case) else {
        let names: Vec<&str> = all.iter().map(|contest| contest.name).collect();
        return Err(format!("no case is called {case:?}; name one of: {}", names.join(", ")));
    };
    let Some(entry) = contest.entries.iter().find(|entry| entry.side == side) else {
        let sides: Vec<&str> = contest.entries.iter().map(|entry| entry.side).collect();
        return Err(format!("{case} has no side {side:?}; name one of: {}", sides.join(", ")));
    };
    Ok((contest, entry))
}

/// Measures one sample, and says it as JSON.
pub(crate) fn run(contest: &Contest, entry: &Entry, scale: Scale) -> Result<Value, Failure> {
    let (sample, denied) = measure(contest, entry, scale)?;
    let metric = |(metric, value): (&Metric, &f64)| json!({ "name": metric.name, "unit": metric.unit, "value": value });
    let metrics: Vec<Value> = contest.metrics.iter().zip(&sample).map(metric).collect();
    let judged = contest.judged();
    Ok(json!({
        "case": contest.name,
        "side": entry.side,
        "commit": setting::commit(),
        "cpu": (contest.metrics[judged].name == CPU).then_some(sample[judged]),
        "judged": metrics[judged],
        "metrics": metrics,
        "denied": denied,
    }))
}

/// A short round says little: a sample is the median of as many as begin within this time,
/// warm-up included, unless the contest asks for one only.
const LENGTH: Duration = Duration::from_millis(750);

/// The sample, and the denied time in percent, where the case measures it.
fn measure(contest: &Contest, entry: &Entry, scale: Scale) -> Result<(Sample, Option<f64>), Failure> {
    let begin = Instant::now();
    let mut rounds = vec![contest.once(entry, scale)?];
    let mut denied = vec![denied::last()];
    while contest.at_most > 1 && !scale.quick && begin.elapsed() < LENGTH {
        rounds.push(contest.sample(entry, scale)?);
        denied.push(denied::last());
    }
    let median = |metric: usize| {
        let values: Vec<f64> = rounds.iter().map(|round| round[metric]).collect();
        Summary::of(&values).median
    };
    let sample = (0..contest.metrics.len()).map(median).collect();
    let denied: Option<Vec<f64>> = denied.into_iter().collect();
    Ok((sample, denied.map(|denied| Summary::of(&denied).median)))
}

/// `list --json`: the cases with their sides, and the metric that a guard judges each by.
pub(crate) fn list(all: &[Contest]) -> Value {
    let side = |entry: &Entry| {
        let role = match entry.role {
            Role::Ours => "ours",
            Role::Rival => "rival",
            Role::Reference => "reference",
        };
        json!({ "side": entry.side, "role": role })
    };
    let case = |contest: &Contest| {
        json!({
            "case": contest.name,
            "judged": contest.metrics[contest.judged()].name,
            "sides": contest.entries.iter().map(side).collect::<Vec<_>>(),
        })
    };
    all.iter().map(case).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;

    #[test]
    fn a_case_must_be_named_exactly() {
        let all = cases::all();
        assert_eq!(select(&all, "wake", "dapple").unwrap().0.name, "wake");
        let error = select(&all, "timers", "dapple").err().unwrap();
        assert!(error.contains("\"timers\"") && error.contains("timers/cancel"), "{error}");
    }

    #[test]
    fn an_unknown_side_is_refused_with_those_that_there_are() {
        let error = select(&cases::all(), "spawn", "dappel").err().unwrap();
        assert_eq!(
            error,
            "spawn has no side \"dappel\"; name one of: dapple, tokio, smol, smol-static, monoio"
        );
    }

    #[test]
    fn a_sample_says_its_cpu_time_in_a_place_of_its_own() {
        let all = cases::all();
        let (contest, entry) = select(&all, "yield", "dapple").unwrap();
        let said = run(contest, entry, Scale { quick: true, tasks: 1, rounds: 1 }).unwrap();
        assert!(said["cpu"].as_f64().unwrap() > 0.0);
        assert_eq!(said["judged"], said["metrics"][1]);
        assert!(said["denied"].is_f64());
    }

    #[test]
    fn every_case_has_a_side_of_ours_and_cpu_time_or_a_first_metric() {
        for contest in cases::all() {
            assert_eq!(contest.entries.iter().filter(|entry| entry.role == Role::Ours).count(), 1);
            let judged = contest.metrics[contest.judged()].name;
            assert!(judged == CPU || contest.judged() == 0, "{}", contest.name);
        }
    }
}
