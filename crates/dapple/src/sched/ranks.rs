//! What is in line by its priority: the lanes in which something has one.
//!
//! A line for each priority, shared by all workers: what is urgent goes to the first that has a hand free.
//! `Sched::queued_ranks` says which of them are not empty. As long as none is, workers pick without a look at it; whoever
//! puts something in the first line makes them look. A worker that looks takes from the highest, but for its
//! ageing: see `Ranks::order`.

use std::collections::VecDeque;

use super::Sched;
use super::worker::Worker;
use crate::prim::{Mutex, Ordering, lock};
use crate::task::{Priority, Runnable};

/// While there is always something more urgent, one pick in so many goes to the priority, if anything of it is
/// in line. Not for `Urgent`, which there is nothing above of.
const EVERY: [u32; 3] = [64, 16, 4];

/// Entries of lanes, by their priority.
#[derive(Default)]
pub(super) struct Ranks([Mutex<VecDeque<Runnable>>; Priority::ALL.len()]);

impl Ranks {
    fn push(&self, sched: &Sched, entry: Runnable, priority: Priority) {
        let mut line = lock(&self.0[priority as usize]);
        line.push_back(entry);
        if line.len() == 1 {
            sched.queued_ranks.fetch_or(1 << priority as u8, Ordering::SeqCst);
        }
    }

    /// Takes the first of a priority.
    pub(super) fn pop(&self, sched: &Sched, priority: Priority) -> Option<Runnable> {
        if sched.queued_ranks.load(Ordering::Relaxed) & 1 << priority as u8 == 0 {
            return None;
        }
        let mut line = lock(&self.0[priority as usize]);
        let entry = line.pop_front()?;
        if line.is_empty() {
            sched.queued_ranks.fetch_and(!(1 << priority as u8), Ordering::SeqCst);
        }
        Some(entry)
    }

    /// Takes one of any priority.
    pub(super) fn pop_any(&self, sched: &Sched) -> Option<Runnable> {
        if !sched.has_ranks() {
            return None;
        }
        Priority::ALL.into_iter().rev().find_map(|priority| self.pop(sched, priority))
    }

    /// How many are in line.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|line| lock(line).len()).sum()
    }

    /// In which order a worker looks at priorities at its `pick`th pick: the most urgent first, but for the turn
    /// of one that has waited.
    pub(super) fn order(pick: u32) -> impl Iterator<Item = Priority> {
        let aged = Ranks::aged(pick);
        aged.into_iter().chain(Priority::ALL.into_iter().rev().filter(move |p| Some(*p) != aged))
    }

    fn aged(pick: u32) -> Option<Priority> {
        let aged = Priority::ALL.into_iter().zip(EVERY).find(|(_, every)| pick % every == every - 1);
        aged.map(|(priority, _)| priority)
    }

    /// Whether the `pick`th is the turn of what is ordinary and has waited.
    pub(super) fn is_aged(pick: u32) -> bool {
        Ranks::aged(pick) == Some(Priority::Normal)
    }
}

impl Sched {
    /// Puts an entry of a lane in line, by its priority.
    #[cold]
    pub(crate) fn enqueue_ranked(&self, entry: Runnable, priority: Priority) {
        if let Some(managed) = self.managed.as_ref().filter(|managed| managed.weighs()) {
            return managed.enqueue(self, entry);
        }
        let was_none = self.queued_ranks.load(Ordering::Relaxed) == 0;
        self.ranks.push(self, entry, priority);
        if was_none {
            self.all_workers().for_each(Worker::look_soon);
        }
        self.wake_for_one();
    }
}
