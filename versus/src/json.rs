//! A run as JSON: the setting, every round of every side, and the ratios.

use serde_json::{Value, json};

use crate::contest::{Outcome, Role, Scale, Score};
use crate::report::ratios;
use crate::setting::Setting;
use crate::stats::Summary;

/// The whole run.
pub(crate) fn run(setting: &Setting, scale: Scale, outcomes: &[Outcome]) -> String {
    let mut run = setting.to_json();
    run["rounds"] = scale.rounds.into();
    run["quick"] = scale.quick.into();
    run["tasks"] = scale.tasks.into();
    run["contests"] = outcomes.iter().map(contest).collect();
    format!("{run:#}\n")
}

fn contest(outcome: &Outcome) -> Value {
    let sides: Vec<Value> = outcome.scores.iter().map(|s| side(outcome, s)).collect();
    let ratios: Vec<Value> = ratios(outcome)
        .iter()
        .map(|r| json!({ "metric": r.metric, "rival": r.rival, "value": r.value }))
        .collect();
    json!({
        "name": outcome.name,
        "about": outcome.about,
        "sides": sides,
        "ratios": ratios,
    })
}

fn side(outcome: &Outcome, score: &Score) -> Value {
    let metrics = outcome.metrics.iter().enumerate();
    let costs: Vec<Value> = metrics
        .map(|(index, metric)| {
            let rounds = score.values(index);
            let Summary { median, min, max } = Summary::of(&rounds);
            json!({
                "metric": metric.name,
                "unit": metric.unit,
                "median": median,
                "min": min,
                "max": max,
                "rounds": rounds,
            })
        })
        .collect();
    let counts = score.role != Role::Reference;
    json!({ "side": score.side, "counts": counts, "costs": costs })
}
