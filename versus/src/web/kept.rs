//! A measurement that is made once and shown in several contests: for example a curve of one server, each point of
//! which is a contest of its own.
//!
//! The first contest that runs measures, the others take their part of the same round.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use crate::contest::{Entry, Failure, Role, Sample, Scale};

/// Measures a side, shortly if that is only a smoke test.
type Measure<T> = dyn Fn(&'static str, bool) -> Result<T, Failure>;

/// The measurements of each side, in each round.
pub(crate) struct Kept<T> {
    measure: Box<Measure<T>>,
    rounds: RefCell<HashMap<&'static str, Vec<Rc<T>>>>,
}

impl<T: 'static> Kept<T> {
    pub(crate) fn new(measure: impl Fn(&'static str, bool) -> Result<T, Failure> + 'static) -> Rc<Self> {
        Rc::new(Self { measure: Box::new(measure), rounds: RefCell::default() })
    }

    /// Of a side in some round, measured now if that has not been done.
    fn get(&self, side: &'static str, round: usize, quick: bool) -> Result<Rc<T>, Failure> {
        let mut sides = self.rounds.borrow_mut();
        let rounds = sides.entry(side).or_default();
        // A smoke test has seen enough after one.
        let round = if quick { 0 } else { round };
        while rounds.len() <= round {
            rounds.push(Rc::new((self.measure)(side, quick)?));
        }
        Ok(rounds[round].clone())
    }

    /// A side of a contest with this name: a part of the measurements of a server.
    pub(crate) fn entry(
        self: &Rc<Self>,
        side: &'static str,
        server: &'static str,
        role: Role,
        part: impl Fn(&T) -> Sample + 'static,
    ) -> Entry {
        let (kept, rounds) = (self.clone(), Cell::new(0));
        let round = move |scale: Scale| {
            let round = rounds.replace(rounds.get() + 1);
            Ok(part(&*kept.get(server, round, scale.quick)?))
        };
        Entry { side, role, round: Box::new(round) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn each_round_is_measured_once_and_shown_to_all() {
        static MEASURED: AtomicU32 = AtomicU32::new(0);
        let kept = Kept::new(|_, _| Ok(MEASURED.fetch_add(1, Ordering::Relaxed)));
        let entries = ["a", "b"].map(|name| kept.entry(name, "server", Role::Ours, |&n| vec![n.into()]));
        let scale = Scale { quick: false, tasks: 0, rounds: 2 };
        for round in 0..2 {
            for entry in &entries {
                assert_eq!((entry.round)(scale).unwrap(), [f64::from(round)]);
            }
        }
        assert_eq!(MEASURED.load(Ordering::Relaxed), 2);
    }
}
