//! Whether what happened is allowed.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use dapple::Runtime;

use super::explore::Outcome;
use super::generate::{Dice, Kind};
use super::language::Programs;
use super::rules::Rules;
use super::run::{Place, happens};

/// The runtimes to run programs on.
#[derive(Debug)]
pub struct Places {
    one: Runtime,
    several: Runtime,
    effort: Effort,
}

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// How many simulations of each, by each of the rules.
    pub simulations: u64,
    /// How many runs on one worker, and on four, by each of the rules.
    pub runs: u64,
    /// Programs with more states than this are left out.
    pub states: usize,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort { simulations: 3, runs: 1, states: 1_000 }
    }
}

/// The results of many programs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// How many were checked.
    pub checked: u64,
    /// In how many a cancel has met an operation that was blocked.
    pub met: u64,
    /// How many can be stuck, so that they were simulated only.
    pub can_be_stuck: u64,
    /// How many were left out, since they have too many states.
    pub too_large: u64,
    /// How many outcomes the rules allow.
    pub allowed: usize,
    /// How many of these were seen.
    pub seen: usize,
}

impl Totals {
    fn add(&mut self, kept: Option<Kept>) {
        let Some(kept) = kept else {
            self.too_large += 1;
            return;
        };
        self.checked += 1;
        self.met += u64::from(kept.met);
        self.can_be_stuck += u64::from(kept.can_be_stuck);
        self.allowed += kept.allowed;
        self.seen += kept.seen;
    }

    /// In how many of 100 programs that was so.
    #[must_use]
    pub fn percent(&self, part: u64) -> f64 {
        100.0 * part as f64 / self.checked.max(1) as f64
    }
}

/// The counts of programs that kept to the rules.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kept {
    /// Whether a cancel has met an operation that was blocked.
    pub met: bool,
    /// Whether they can be stuck, so that they were simulated only.
    pub can_be_stuck: bool,
    /// How many outcomes the rules allow.
    pub allowed: usize,
    /// How many of these were seen.
    pub seen: usize,
}

/// Programs that did what they are not allowed to.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The programs.
    pub programs: Programs,
    /// By which rules.
    pub rules: Rules,
    /// Where.
    pub place: String,
    /// The outcomes that the rules allow.
    pub allowed: BTreeSet<Outcome>,
    /// The outcome that happened.
    pub happened: Result<Outcome, String>,
}

/// The programs of a number, which are the same each time.
#[must_use]
pub fn programs(seed: u64, number: u64, kind: Kind) -> Programs {
    Programs::random(&mut Dice::new(seed, number), kind)
}

impl Places {
    /// Starts the runtimes.
    ///
    /// # Errors
    ///
    /// If they cannot be started.
    pub fn new(effort: Effort) -> std::io::Result<Places> {
        let one = Runtime::builder().workers(1).build()?;
        let several = Runtime::builder().workers(4).build()?;
        Ok(Places { one, several, effort })
    }

    /// Checks as many programs as `count` says, on all processors: those of a seed, from a number on.
    ///
    /// # Errors
    ///
    /// The first thing that happens outside of the rules, and the number of its programs.
    pub fn check_all(
        &self,
        seed: u64,
        from: u64,
        count: u64,
        progress: &(dyn Fn(&Totals) + Sync),
    ) -> Result<Totals, (u64, Box<Violation>)> {
        let next = AtomicU64::new(from);
        let found = Mutex::new((Totals::default(), None::<(u64, Box<Violation>)>));
        let look = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let checked = self.check(&programs(seed, number, Kind::Any), number);
                let (totals, violation) = &mut *found.lock().expect("nobody panics");
                if totals.checked >= count || violation.is_some() {
                    return;
                }
                match checked {
                    Ok(kept) => totals.add(kept),
                    Err(new) => *violation = Some((number, new)),
                }
                progress(totals);
            }
        };
        std::thread::scope(|threads| {
            for _ in 0..std::thread::available_parallelism().map_or(1, NonZero::get) {
                threads.spawn(look);
            }
        });
        match found.into_inner().expect("nobody panics") {
            (totals, None) => Ok(totals),
            (_, Some(violation)) => Err(violation),
        }
    }

    /// Runs programs everywhere, and checks what they do. `Ok(None)`: they have too many states.
    ///
    /// # Errors
    ///
    /// The first thing that happens outside of the rules.
    pub fn check(&self, programs: &Programs, seed: u64) -> Result<Option<Kept>, Box<Violation>> {
        let mut kept = Kept::default();
        for rules in [Rules::Dapple, Rules::Paper] {
            let Some(allowed) = rules.outcomes(programs, self.effort.states) else { return Ok(None) };
            let can_be_stuck = allowed.iter().any(Outcome::is_stuck);
            let mut seen = BTreeSet::new();
            let mut check = |place: &Place<'_>, seed: u64| {
                let happened = happens(programs, rules, place, seed);
                kept.met |= happened.met;
                match happened.outcome {
                    Ok(outcome) if allowed.contains(&outcome) => {
                        seen.insert(outcome);
                        Ok(())
                    }
                    happened => Err(Box::new(Violation {
                        programs: programs.clone(),
                        rules,
                        place: match place {
                            Place::Real(runtime) => format!("on {} workers", runtime.metrics().workers.len()),
                            Place::Simulated => format!("simulated, by seed {seed}"),
                        },
                        allowed: allowed.clone(),
                        happened,
                    })),
                }
            };
            let mut dice = Dice::new(seed, rules as u64);
            for _ in 0..self.effort.simulations {
                check(&Place::Simulated, dice.throw())?;
            }
            if !can_be_stuck {
                for _ in 0..self.effort.runs {
                    check(&Place::Real(&self.one), dice.throw())?;
                    check(&Place::Real(&self.several), dice.throw())?;
                }
            }
            kept.can_be_stuck |= can_be_stuck;
            kept.allowed += allowed.len();
            kept.seen += seen.len();
        }
        Ok(Some(kept))
    }

    /// The smallest programs, made of those of a violation, that do what they are not allowed to.
    #[must_use]
    pub fn shrink(&self, violation: Box<Violation>, seed: u64) -> Box<Violation> {
        let mut smallest = violation;
        'smaller: loop {
            for programs in smallest.programs.smaller() {
                // A violation that depends on the order of events may not show in one run.
                for again in 0..4 {
                    if let Err(violation) = self.check(&programs, seed.wrapping_add(again)) {
                        smallest = violation;
                        continue 'smaller;
                    }
                }
            }
            return smallest;
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "outside of the rules ({:?}), {}:\n\n{}\n", self.rules, self.place, self.programs)?;
        match &self.happened {
            Ok(outcome) => writeln!(f, "happened: {outcome}")?,
            Err(why) => writeln!(f, "happened: {why}")?,
        }
        for outcome in self.allowed.iter().take(20) {
            writeln!(f, "allowed:  {outcome}")?;
        }
        match self.allowed.len().saturating_sub(20) {
            0 => Ok(()),
            more => writeln!(f, "          and {more} more"),
        }
    }
}
