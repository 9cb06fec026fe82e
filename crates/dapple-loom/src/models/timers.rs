//! Models of the timers of a driver: its worker against threads that insert timers from elsewhere.

use std::sync::Arc;
use std::task::Waker;

use loom::model;
use loom::thread::spawn;

use crate::driver::clock::{TickCount, between};
use crate::driver::timers::{TimerInsert, Timers};
use crate::driver::wakeup::Wakeup;
use crate::task::guarded::GuardedWaker;

struct Driver {
    timers: Timers,
    wakeup: Wakeup,
}

const SOON: TickCount = 10;
const LATER: TickCount = 100;

impl Driver {
    fn new() -> Arc<Driver> {
        Arc::new(Driver { timers: Timers::new(), wakeup: Wakeup::without_kernel() })
    }

    /// The step of a thread that does not drive it. `Sleep::has_elapsed`
    fn enter_from_elsewhere(&self, tick: TickCount) {
        match self.timers.insert(tick, GuardedWaker::of(Waker::noop())) {
            TimerInsert::At { is_first: true, .. } => self.wakeup.notify(),
            TimerInsert::At { is_first: false, .. } => {}
            TimerInsert::Due | TimerInsert::Gone => {
                panic!("the timers are open, and the tick is in the future")
            }
        }
    }

    /// Sleeps without a time limit, until a plan to wake up by the tick exists. `Driver::sleep`
    fn sleep_until_planned(&self, tick: TickCount) {
        while self.timers.plan(0).is_none_or(|until| until > between(0, tick)) {
            if self.wakeup.prepare_sleep() {
                self.wakeup.park(None);
            }
            self.wakeup.finish_sleep();
        }
    }
}

#[test]
fn a_worker_does_not_sleep_beyond_a_timer_that_is_entered_elsewhere() {
    for is_another in [false, true] {
        model(move || {
            let driver = Driver::new();
            if is_another {
                driver.enter_from_elsewhere(LATER);
            }
            let other = spawn({
                let driver = driver.clone();
                move || driver.enter_from_elsewhere(SOON)
            });
            driver.sleep_until_planned(SOON);
            other.join().unwrap();
        });
    }
}

#[test]
fn a_timer_that_is_entered_while_others_fire_is_not_forgotten() {
    model(|| {
        let driver = Driver::new();
        driver.enter_from_elsewhere(SOON);
        let other = spawn({
            let driver = driver.clone();
            move || driver.enter_from_elsewhere(LATER)
        });
        let mut wakers = Vec::new();
        assert!(!driver.timers.fire(SOON, 1, &mut wakers));
        other.join().unwrap();
        driver.timers.fire(LATER, 1, &mut wakers);
        assert_eq!(wakers.len(), 2);
    });
}
