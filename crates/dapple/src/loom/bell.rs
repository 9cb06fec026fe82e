//! Models of the bell: who sleeps does not sleep through a ring.
//!
//! A ring that is lost shows as a thread that listens for ever, which loom calls a deadlock.

use std::sync::Arc;

use loom::model;
use loom::thread::spawn;

use crate::driver::wakeup::Wakeup;
use crate::prim::{AtomicUsize, Ordering};

/// A bell, and what is rung for: whether each of those who ring has pushed something. They rely on
/// nothing but the bell to be seen.
struct House {
    bell: Wakeup,
    pushed: [AtomicUsize; 2],
}

impl House {
    fn new() -> Arc<House> {
        let bell = Wakeup::without_kernel();
        Arc::new(House { bell, pushed: Default::default() })
    }

    fn push(&self, who: usize) {
        self.pushed[who].store(1, Ordering::Relaxed);
        self.bell.ring();
    }

    fn seen(&self) -> usize {
        self.pushed.iter().map(|pushed| pushed.load(Ordering::Relaxed)).sum()
    }

    /// Sleeps until so much has been pushed. `Driver::sleep`
    fn sleep_until_seen(&self, pushes: usize) {
        while self.seen() < pushes {
            if self.bell.prepare_sleep() {
                self.bell.listen(None);
            }
            self.bell.finish_sleep();
        }
    }
}

#[test]
fn a_sleeper_does_not_sleep_through_what_is_rung_for() {
    model(|| {
        let house = House::new();
        let others = [0, 1].map(|who| {
            let house = house.clone();
            spawn(move || house.push(who))
        });
        house.sleep_until_seen(2);
        for other in others {
            other.join().unwrap();
        }
    });
}

#[test]
fn a_sleeper_whom_something_else_woke_misses_no_ring() {
    model(|| {
        let house = House::new();
        let other = spawn({
            let house = house.clone();
            move || house.push(0)
        });
        house.bell.prepare_sleep();
        house.bell.finish_sleep(); // an event came, or its time
        house.sleep_until_seen(1);
        other.join().unwrap();
    });
}
