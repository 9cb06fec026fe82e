//! Models of the driver's `Wakeup`: a sleeper misses no notification.
//!
//! A lost notification shows as a thread that listens for ever, which loom reports as a deadlock.

use std::sync::Arc;

use loom::model;
use loom::thread::spawn;

use crate::driver::wakeup::Wakeup;
use crate::prim::{AtomicUsize, Ordering};

/// A `Wakeup`, and for each notifier whether it has pushed something. Only the `Wakeup` makes pushes visible
/// to the sleeper.
struct House {
    wakeup: Wakeup,
    pushed: [AtomicUsize; 2],
}

impl House {
    fn new() -> Arc<House> {
        let wakeup = Wakeup::without_kernel();
        Arc::new(House { wakeup, pushed: Default::default() })
    }

    fn push(&self, notifier: usize) {
        self.pushed[notifier].store(1, Ordering::Relaxed);
        self.wakeup.notify();
    }

    fn seen(&self) -> usize {
        self.pushed.iter().map(|pushed| pushed.load(Ordering::Relaxed)).sum()
    }

    /// Sleeps until `pushes` pushes are visible. `Driver::sleep`
    fn sleep_until_seen(&self, pushes: usize) {
        while self.seen() < pushes {
            if self.wakeup.prepare_sleep() {
                self.wakeup.park(None);
            }
            self.wakeup.finish_sleep();
        }
    }
}

#[test]
fn a_sleeper_misses_no_notification() {
    model(|| {
        let house = House::new();
        let others = [0, 1].map(|notifier| {
            let house = house.clone();
            spawn(move || house.push(notifier))
        });
        house.sleep_until_seen(2);
        for other in others {
            other.join().unwrap();
        }
    });
}

#[test]
fn a_sleeper_woken_by_another_event_misses_no_notification() {
    model(|| {
        let house = House::new();
        let other = spawn({
            let house = house.clone();
            move || house.push(0)
        });
        house.wakeup.prepare_sleep();
        house.wakeup.finish_sleep(); // woken by an event or a timer
        house.sleep_until_seen(1);
        other.join().unwrap();
    });
}
