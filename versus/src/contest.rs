//! A contest: one kind of work, the sides that do it, and the interleaved rounds.

use crate::progress::Progress;

/// Something that is measured, always as a cost: less is better.
pub(crate) struct Metric {
    /// The name in the lines; empty if the contest has only this one.
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// It counts: there is a line for each rival.
    pub(crate) ratios: bool,
    /// There is a line with the absolute value of each side.
    pub(crate) absolutes: bool,
}

impl Metric {
    /// One that counts.
    pub(crate) const fn new(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit, ratios: true, absolutes: false }
    }

    /// One that is in the table only.
    pub(crate) const fn shown(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit, ratios: false, absolutes: false }
    }
}

/// The name of CPU time, in every contest that measures it.
pub(crate) const CPU: &str = "cpu";

/// Time per operation: on the clock, and of all CPUs together.
pub(crate) const TIMES: &[Metric] = &[Metric::new("wall", "ns"), Metric::new(CPU, "ns")];

/// The same for cases with contention, with two columns that show whether there was any: a side that had a core to
/// itself met none.
pub(crate) const CONTENDED: &[Metric] =
    &[Metric::new("wall", "ns"), Metric::new(CPU, "ns"), Metric::shown("cpu/wall", ""), DENIED];

/// Of the time on the clock, how much threads of this process stood ready and got no core.
pub(crate) const DENIED: Metric = Metric::shown("denied", "%");

/// Resident memory per task.
pub(crate) const BYTES: &[Metric] = &[Metric::new("", "B")];

/// The cost of one round of one side: one value for each metric of the contest.
pub(crate) type Sample = Vec<f64>;

/// Why a side could not be measured.
pub(crate) type Failure = String;

/// The role of a side in a contest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Dapple itself.
    Ours,
    /// A rival that counts: it gets ratio lines.
    Rival,
    /// Shown in the table only.
    Reference,
}

/// How much work a run does.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// A smoke test: a twentieth of the operations.
    pub(crate) quick: bool,
    /// Live tasks in `memory`.
    pub(crate) tasks: u64,
    /// Rounds that count, where a contest does not say otherwise.
    pub(crate) rounds: usize,
}

/// One side of a contest.
pub(crate) struct Entry {
    /// The name in the ratio lines.
    pub(crate) side: &'static str,
    pub(crate) role: Role,
    /// Does one round, on a runtime that is built and dropped in it.
    pub(crate) round: Box<dyn Fn(Scale) -> Result<Sample, Failure>>,
}

/// One kind of work and the sides that do it.
pub(crate) struct Contest {
    /// `CASE` or `CASE/VARIANT`.
    pub(crate) name: &'static str,
    /// A sentence for `list`.
    pub(crate) about: &'static str,
    pub(crate) metrics: &'static [Metric],
    /// A round of every side before those that count.
    pub(crate) warm_up: bool,
    /// No more rounds than that, whatever was asked for.
    pub(crate) at_most: usize,
    pub(crate) entries: Vec<Entry>,
}

/// The result of one side.
pub(crate) struct Score {
    pub(crate) side: &'static str,
    pub(crate) role: Role,
    /// A sample for each round.
    pub(crate) rounds: Vec<Sample>,
}

/// The results of all sides of a contest.
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) metrics: &'static [Metric],
    pub(crate) scores: Vec<Score>,
}

impl Contest {
    /// Whether an argument names this contest, by its full name or by the first parts of it.
    pub(crate) fn is_named(&self, argument: &str) -> bool {
        let rest = self.name.strip_prefix(argument);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// The metric that a guard judges the contest by: CPU time where there is one, else the first.
    pub(crate) fn judged(&self) -> usize {
        self.metrics.iter().position(|metric| metric.name == CPU).unwrap_or(0)
    }

    /// One sample of one side, with the warm-up that the contest asks for.
    pub(crate) fn once(&self, entry: &Entry, scale: Scale) -> Result<Sample, Failure> {
        if self.warm_up {
            (entry.round)(scale)?;
        }
        self.sample(entry, scale)
    }

    /// Runs all rounds, every side once in each, the first side moving on by one.
    pub(crate) fn run(&self, scale: Scale, progress: &Progress) -> Result<Outcome, Failure> {
        let sides = self.entries.len();
        let mut scores: Vec<Score> = self.entries.iter().map(Score::of).collect();
        if self.warm_up {
            for entry in &self.entries {
                progress.show(&format!("{}: warm-up, {}", self.name, entry.side));
                (entry.round)(scale)?;
            }
        }
        let rounds = scale.rounds.min(self.at_most);
        for round in 0..rounds {
            for turn in 0..sides {
                let index = (round + turn) % sides;
                let entry = &self.entries[index];
                let at = format!("round {} of {rounds}", round + 1);
                progress.show(&format!("{}: {at}, {}", self.name, entry.side));
                scores[index].rounds.push(self.sample(entry, scale)?);
            }
        }
        progress.clear();
        Ok(Outcome { name: self.name, about: self.about, metrics: self.metrics, scores })
    }

    /// Runs a round of one side. If the contest shows `denied` and another process took a core during the round, the
    /// round is repeated, up to four times; the best one counts.
    pub(crate) fn sample(&self, entry: &Entry, scale: Scale) -> Result<Sample, Failure> {
        const TRIES: usize = 5;
        const FREE: f64 = 5.0;
        let mut best = (entry.round)(scale)?;
        let Some(denied) = self.metrics.iter().position(|metric| metric.name == DENIED.name) else {
            return Ok(best);
        };
        for _ in 1..if scale.quick { 1 } else { TRIES } {
            // Not a number: it is not known.
            if best[denied].is_nan() || best[denied] <= FREE {
                break;
            }
            let sample = (entry.round)(scale)?;
            if sample[denied] < best[denied] {
                best = sample;
            }
        }
        Ok(best)
    }
}

impl Score {
    fn of(entry: &Entry) -> Self {
        Self { side: entry.side, role: entry.role, rounds: Vec::new() }
    }

    /// The values of one metric, in the order of the rounds.
    pub(crate) fn values(&self, metric: usize) -> Vec<f64> {
        self.rounds.iter().map(|sample| sample[metric]).collect()
    }
}

impl Outcome {
    /// Dapple's score.
    pub(crate) fn ours(&self) -> Option<&Score> {
        self.scores.iter().find(|score| score.role == Role::Ours)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// A contest of one side, whose rounds are denied these percentages, one after the other.
    fn contest(denied: &'static [f64]) -> Contest {
        let denied = RefCell::new(denied.iter().copied());
        let round = move |_| Ok(vec![denied.borrow_mut().next().expect("another round")]);
        let entries = vec![Entry { side: "dapple", role: Role::Ours, round: Box::new(round) }];
        Contest { name: "", about: "", metrics: &[DENIED], warm_up: false, at_most: 1, entries }
    }

    fn measured(contest: &Contest, quick: bool) -> f64 {
        let scale = Scale { quick, tasks: 0, rounds: 1 };
        contest.sample(&contest.entries[0], scale).unwrap()[0]
    }

    #[test]
    fn a_round_without_a_free_core_is_done_again() {
        assert_eq!(measured(&contest(&[90.0, 6.0, 4.0]), false), 4.0);
        assert_eq!(measured(&contest(&[4.0]), false), 4.0);
    }

    #[test]
    fn a_round_is_not_done_again_where_nothing_is_known() {
        assert!(measured(&contest(&[f64::NAN]), false).is_nan());
    }

    #[test]
    fn when_no_core_gets_free_the_best_round_counts() {
        assert_eq!(measured(&contest(&[90.0, 70.0, 30.0, 50.0, 60.0]), false), 30.0);
    }

    #[test]
    fn a_smoke_test_does_nothing_twice() {
        assert_eq!(measured(&contest(&[90.0]), true), 90.0);
    }
}
