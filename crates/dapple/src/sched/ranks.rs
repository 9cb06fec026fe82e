//! Lanes that are queued by priority.
//!
//! There is one queue for each priority, shared by all workers: an urgent lane goes to the first worker that picks.
//! `Sched::queued_ranks` says which queues are not empty. While all are empty, workers pick without looking at them.
//! The thread that queues the first lane makes the workers look. A worker that looks takes the highest priority
//! first, except for ageing: see `Ranks::order`.

use std::collections::VecDeque;

use super::Sched;
use super::worker::Worker;
use crate::prim::{Mutex, Ordering, lock};
use crate::task::{Priority, Runnable};

/// Ageing: while more urgent lanes are always queued, one pick in this many goes to `Low`, `Normal` and `High`.
/// `Urgent` needs none.
const EVERY: [u32; 3] = [64, 16, 4];

/// Entries of lanes, by their priority.
#[derive(Default)]
pub(super) struct Ranks([Mutex<VecDeque<Runnable>>; Priority::ALL.len()]);

impl Ranks {
    fn push(&self, sched: &Sched, entry: Runnable, priority: Priority) {
        let mut queue = lock(&self.0[priority as usize]);
        queue.push_back(entry);
        if queue.len() == 1 {
            sched.queued_ranks.fetch_or(1 << priority as u8, Ordering::SeqCst);
        }
    }

    /// Takes the first lane of a priority.
    pub(super) fn pop(&self, sched: &Sched, priority: Priority) -> Option<Runnable> {
        if sched.queued_ranks.load(Ordering::Relaxed) & 1 << priority as u8 == 0 {
            return None;
        }
        let mut queue = lock(&self.0[priority as usize]);
        let entry = queue.pop_front()?;
        if queue.is_empty() {
            sched.queued_ranks.fetch_and(!(1 << priority as u8), Ordering::SeqCst);
        }
        Some(entry)
    }

    /// Takes a lane of any priority, the highest first.
    pub(super) fn pop_any(&self, sched: &Sched) -> Option<Runnable> {
        if !sched.has_ranks() {
            return None;
        }
        Priority::ALL.into_iter().rev().find_map(|priority| self.pop(sched, priority))
    }

    /// Number of queued lanes.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|queue| lock(queue).len()).sum()
    }

    /// The order in which a worker looks at priorities at its `pick`th pick: the most urgent first, unless it is the
    /// turn of a lower one by ageing.
    pub(super) fn order(pick: u32) -> impl Iterator<Item = Priority> {
        let aged = Ranks::aged(pick);
        aged.into_iter().chain(Priority::ALL.into_iter().rev().filter(move |p| Some(*p) != aged))
    }

    fn aged(pick: u32) -> Option<Priority> {
        let aged = Priority::ALL.into_iter().zip(EVERY).find(|(_, every)| pick % every == every - 1);
        aged.map(|(priority, _)| priority)
    }

    /// Whether the `pick`th pick goes to ordinary runnables by ageing.
    pub(super) fn is_aged(pick: u32) -> bool {
        Ranks::aged(pick) == Some(Priority::Normal)
    }
}

impl Sched {
    /// Queues an entry of a lane by its priority.
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
