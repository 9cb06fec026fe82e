//! Models of permits: their word against their queue.
//!
//! A lost wake-up shows as a thread that is parked for ever, which loom reports as a deadlock.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use loom::model;
use loom::thread::spawn;

use super::{Plain, block_on};
use crate::waitlist::permits::{PermitRefusal, PermitWait, Permits};

fn permits(free: usize) -> Arc<Permits> {
    Arc::new(Permits::new(free))
}

fn take(permits: &Permits, need: usize) -> Result<(), PermitRefusal> {
    block_on(PermitWait::new(permits, need))
}

/// A wait that was polled once, must wait, and is not polled again.
fn waiting(permits: &Permits, need: usize) -> PermitWait<'_> {
    let mut take = PermitWait::new(permits, need);
    let polled = std::pin::pin!(&mut take).poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(polled, Poll::Pending);
    take
}

#[test]
fn one_has_a_permit_at_a_time_and_sees_what_the_last_one_did() {
    model(|| {
        let (permits, guarded) = (permits(1), Arc::new(Plain::new(0)));
        let work = |permits: Arc<Permits>, guarded: Arc<Plain<usize>>| {
            take(&permits, 1).unwrap();
            guarded.change(|n| *n += 1);
            permits.release(1);
        };
        let other = spawn({
            let (permits, guarded) = (permits.clone(), guarded.clone());
            move || work(permits, guarded)
        });
        work(permits.clone(), guarded.clone());
        other.join().unwrap();
        assert_eq!((permits.free(), guarded.read()), (1, 2));
    });
}

#[test]
fn a_waiter_does_not_sleep_through_a_release() {
    model(|| {
        let permits = permits(0);
        let waiter = spawn({
            let permits = permits.clone();
            move || take(&permits, 1)
        });
        permits.release(1);
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
}

#[test]
fn two_releases_are_enough_for_a_waiter_for_both() {
    model(|| {
        let permits = permits(0);
        let waiter = spawn({
            let permits = permits.clone();
            move || take(&permits, 2)
        });
        let other = spawn({
            let permits = permits.clone();
            move || permits.release(1)
        });
        permits.release(1);
        other.join().unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
}

#[test]
fn a_waiter_whose_permit_was_taken_does_not_sleep_through_its_release() {
    model(|| {
        let permits = permits(0);
        let waiter = spawn({
            let permits = permits.clone();
            move || take(&permits, 1)
        });
        let passer_by = spawn({
            let permits = permits.clone();
            move || permits.try_take(1).into_iter().for_each(|()| permits.release(1))
        });
        permits.release(1);
        passer_by.join().unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
}

#[test]
fn a_waiter_that_gives_up_passes_on_its_wake_up() {
    model(|| {
        let permits = permits(0);
        let first = waiting(&permits, 1);
        let (waiter, releaser) = (permits.clone(), permits.clone());
        let waiter = spawn(move || take(&waiter, 1));
        let releaser = spawn(move || releaser.release(1));
        drop(first);
        releaser.join().unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
}

#[test]
fn a_leaked_waiter_holds_up_no_other() {
    model(|| {
        let permits = permits(0);
        std::mem::forget(waiting(&permits, 1));
        let waiter = spawn({
            let permits = permits.clone();
            move || take(&permits, 1)
        });
        permits.release(1);
        permits.release(1);
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
}

#[test]
fn all_waiters_learn_that_it_is_closed() {
    model(|| {
        let permits = permits(0);
        let waiters = [1, 2].map(|need| {
            let permits = permits.clone();
            spawn(move || take(&permits, need))
        });
        permits.close();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Err(PermitRefusal::Closed));
        }
    });
}

#[test]
fn newcomers_and_releases_from_all_sides_leave_no_waiter_behind() {
    model(|| {
        let permits = permits(1);
        let others = [1, 2].map(|need| {
            let permits = permits.clone();
            spawn(move || {
                take(&permits, need).unwrap();
                permits.release(need);
            })
        });
        permits.release(1);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(permits.free(), 2);
    });
}
