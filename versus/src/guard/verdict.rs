//! The rules by which a case is judged. Numbers go in, a verdict comes out; nothing is measured here.
//!
//! Old and new run in pairs, one right after the other, so what makes both slower cancels out in the ratio of a pair.
//! Time is lost when the median ratio is above the bar *and* most pairs agree, first in a short series (suspect), then
//! in a fresh one twice as long (confirmed). A series says nothing when the machine was busy with something else, or
//! when the old side does not even agree with itself: its samples of the even pairs with those of the odd ones, or
//! (more loosely, since a slow drift cancels out in pairs) the first half with the second.

use crate::stats::Summary;

/// How much worse the median may be where CPU time is judged.
pub(crate) const CPU_BAR: f64 = 0.03;

/// The same where there is no CPU time: percentiles and goodput, which differ more from round to round.
pub(crate) const LATENCY_BAR: f64 = 0.2;

/// The same for counts: bytes, allocations, instructions.
pub(crate) const COUNT_BAR: f64 = 0.02;

/// A difference of counts that is never a loss: a thousandth of an allocation per operation.
const COUNT_FLOOR: f64 = 0.001;

/// The most that other processes may take of all cores, in percent.
const OTHERS: f64 = 5.0;

/// The most that the host may take of all cores, in percent.
const STEAL: f64 = 2.0;

/// How far apart the first and the second half of the old side may be.
const DRIFT: f64 = 0.1;

/// A series of pairs: how many there are, and how many must agree.
#[derive(Clone, Copy)]
pub(crate) struct Length {
    pub(crate) pairs: usize,
    pub(crate) agree: usize,
}

/// The series that makes a case suspect.
pub(crate) const FIRST: Length = Length { pairs: 11, agree: 9 };

/// The series that confirms it.
pub(crate) const SECOND: Length = Length { pairs: 22, agree: 17 };

impl Length {
    /// A shorter or longer series, for tests, in which the same share of the pairs must agree.
    pub(crate) fn scaled(self, first: usize) -> Self {
        let scale = |count: usize| (count * first).div_ceil(FIRST.pairs);
        Self { pairs: scale(self.pairs), agree: scale(self.agree) }
    }
}

/// The load of the machine during a series, in percent of all cores.
#[derive(Clone, Copy, Default)]
pub(crate) struct Noise {
    /// CPU time of processes that the guard did not start.
    pub(crate) others: f64,
    /// Time that the host took.
    pub(crate) steal: f64,
}

/// Samples of both sides, by pair.
#[derive(Clone, Default)]
pub(crate) struct Series {
    pub(crate) old: Vec<f64>,
    pub(crate) new: Vec<f64>,
    pub(crate) noise: Noise,
}

impl Series {
    fn ratios(&self) -> Vec<f64> {
        self.old.iter().zip(&self.new).map(|(old, new)| new / old).collect()
    }

    /// The median of the ratios, above 1 if the new side is worse.
    pub(crate) fn ratio(&self) -> f64 {
        Summary::of(&self.ratios()).median
    }

    /// In how many pairs the new side was worse.
    pub(crate) fn worse(&self) -> usize {
        self.ratios().iter().filter(|&&ratio| ratio > 1.0).count()
    }

    /// Whether the new side lost, if the series can be trusted.
    fn is_worse(&self, bar: f64, length: Length) -> bool {
        self.ratio() >= 1.0 + bar && self.worse() >= length.agree
    }

    /// Why the series cannot be trusted.
    pub(crate) fn off(&self, bar: f64) -> Option<String> {
        let Noise { others, steal } = self.noise;
        if others > OTHERS {
            return Some(format!("other processes took {others:.0}% of the cores (at most {OTHERS:.0}%)"));
        }
        if steal > STEAL {
            return Some(format!("the host took {steal:.0}% of the cores (at most {STEAL:.0}%)"));
        }
        if self.old.len() < 2 {
            return None;
        }
        let (even, odd): (Vec<_>, Vec<_>) = self.old.iter().enumerate().partition(|(pair, _)| pair % 2 == 0);
        let [even, odd] =
            [even, odd].map(|half| half.into_iter().map(|(_, &value)| value).collect::<Vec<_>>());
        let apart = apart(&even, &odd);
        if apart > bar {
            let (apart, bar) = (100.0 * apart, 100.0 * bar);
            return Some(format!("even and odd samples of old are {apart:.1}% apart (at most {bar:.0}%)"));
        }
        let (first, second) = self.old.split_at(self.old.len() / 2);
        let (drift, most) = (self::apart(first, second), DRIFT.max(bar));
        (drift > most).then(|| {
            format!("the halves of old are {:.1}% apart (at most {:.0}%)", 100.0 * drift, 100.0 * most)
        })
    }
}

/// How far apart the medians of two halves are.
fn apart(one: &[f64], other: &[f64]) -> f64 {
    let [one, other] = [one, other].map(|half| Summary::of(half).median);
    one.max(other) / one.min(other) - 1.0
}

/// The verdict on a case.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    Ok,
    /// Suspect in the first series, and not in the second.
    NotConfirmed,
    Lost,
    /// The case could not be judged, and why.
    CannotTell(String),
    /// The new side could not be measured at all, and why: as bad as a loss.
    Failed(String),
    /// The case is only in this tree.
    OnlyIn(&'static str),
}

impl Verdict {
    /// Whether the guard must fail.
    pub(crate) fn is_loss(&self) -> bool {
        matches!(self, Self::Lost | Self::Failed(_))
    }

    pub(crate) fn is_unclear(&self) -> bool {
        matches!(self, Self::CannotTell(_))
    }

    /// In a word, for programs.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::NotConfirmed => "not confirmed",
            Self::Lost => "lost",
            Self::CannotTell(_) => "cannot tell",
            Self::Failed(_) => "failed",
            Self::OnlyIn(_) => "only in one",
        }
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Ok => "ok".to_owned(),
            Self::NotConfirmed => "ok (suspect at first, not confirmed)".to_owned(),
            Self::Lost => "LOST".to_owned(),
            Self::CannotTell(why) => format!("CANNOT TELL: {why}"),
            Self::Failed(why) => format!("FAILED: {why}"),
            Self::OnlyIn(tree) => format!("only in {tree}"),
        }
    }
}

/// A side that could not be measured, and why.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    Old(String),
    New(String),
}

/// Why a case has no numbers.
impl From<Trouble> for Verdict {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Old(why) => Self::CannotTell(format!("old failed: {why}")),
            Trouble::New(why) => Self::Failed(why),
        }
    }
}

/// Judges a case by series of pairs that are measured as they are needed: `first` pairs, where that is not 11.
///
/// A series that cannot be trusted is measured once more, since most disturbances pass.
pub(crate) fn judge(
    bar: f64,
    first: usize,
    mut measure: impl FnMut(usize) -> Result<Series, Trouble>,
) -> Result<Verdict, Trouble> {
    let length = FIRST.scaled(first);
    let mut series = measure(length.pairs)?;
    if !series.is_worse(bar, length) && series.off(bar).is_some() {
        series = measure(length.pairs)?;
    }
    if !series.is_worse(bar, length) {
        return Ok(series.off(bar).map_or(Verdict::Ok, Verdict::CannotTell));
    }
    let length = SECOND.scaled(first);
    let mut series = measure(length.pairs)?;
    if series.off(bar).is_some() {
        series = measure(length.pairs)?;
    }
    Ok(match series.off(bar) {
        Some(why) => Verdict::CannotTell(format!("suspect, but {why}")),
        None if series.is_worse(bar, length) => Verdict::Lost,
        None => Verdict::NotConfirmed,
    })
}

/// Judges two counts.
pub(crate) fn judge_count(old: f64, new: f64) -> Verdict {
    if new > old * (1.0 + COUNT_BAR) && new - old > COUNT_FLOOR { Verdict::Lost } else { Verdict::Ok }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
