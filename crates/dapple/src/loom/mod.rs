//! Models of the lock-free protocols, checked in every interleaving by loom (`ci/loom`).
//!
//! A model is a few threads, a few operations of the real code and one promise, which names it.
//! What the protocols guard (futures, outputs, payloads, the memory itself) is [`Plain`]: loom
//! tells of every access that is not ordered after the one before, so that a missing release or
//! acquire shows even where the values would be right.
//!
//! Two things loom cannot see: a load that is delayed past a later store (so the release of a
//! compare-and-swap that only keeps earlier *reads* in place, SLOT-KEPT, is not shown to matter),
//! and `membarrier` (both fences of `prim` are sequentially consistent ones here).
//!
//! # Proof that they can fail
//!
//! Each was run with one thing in the protocol made weaker, and failed:
//!
//! | `state` | what was made weaker | what failed |
//! |---|---|---|
//! | a_wake_up_during_a_poll_is_not_lost | `before_poll`: Acquire to Relaxed | the last poll did not see the event |
//! | a_storm_of_wake_ups_is_not_lost | `calm`: does not set STORM | the last poll did not see the events |
//! | of_two_wakers_one_becomes_the_owner | `wake`: `fetch_add` to load and store | both own it |
//! | an_owner_sees_what_wakers_and_the_last_owner_did | `rest`: AcqRel to Acquire | race of two polls |
//! | an_abort_is_seen_by_the_next_poll | `wake_with`: wakes, then sets the flag | nobody ended it |
//! | an_output_is_dropped_once_when_the_handle_goes | `detach`: compare-and-swap to load and store | the output was not dropped |
//! | whoever_waits_is_woken_or_sees_the_end | `offer_join_waker`: AcqRel to Acquire | race for the slot |
//! | a_waker_is_taken_once_when_another_takes_its_place | `finish`: AcqRel to Release | race for the slot |
//! | an_uncounted_waker_that_is_dropped_elsewhere_keeps_the_memory | `finish`: settles after its compare-and-swap | freed while in use |
//! | an_uncounted_waker_that_wakes_elsewhere_keeps_the_memory | `rest`: settles after its compare-and-swap | the count of references wraps |
//! | a_wake_up_at_the_end_frees_or_leaves_the_memory | `wake_and_drop_ref`: AcqRel to Release | freed while in use |
//! | a_walker_gets_no_reference_to_what_is_freed | `drop_ref`: Acquire of its load to Relaxed | freed while in use |
//! | a_walker_sees_the_task_that_a_cell_was_made_into | `reset`: Release to Relaxed | race for the new task |
//! | a_counted_thing_on_its_way_out_is_not_given_out | `drop_ref`: does not look at COUNTED | freed while in use |
//!
//! | `promotion` | what was made weaker | what failed |
//! |---|---|---|
//! | a_wake_up_after_promotion_goes_to_the_lane | `rest`: AcqRel to Acquire | the waker saw the old vtable |
//!
//! | `inbox` | what was made weaker | what failed |
//! |---|---|---|
//! | everything_is_run_once_and_in_order_by_one_at_a_time | `push`: AcqRel to Release | race of two turns |
//! | a_push_at_the_end_of_a_turn_is_not_lost | `release`: compare-and-swap to load and store | one was not run |
//! | one_push_makes_an_idle_lane_runnable | `push`: compare-and-swap to load and store | two turns |
//! | a_closed_lane_runs_nothing_and_an_open_one_all | `close`: AcqRel to Release | race of the closer with the last turn |
//!
//! | `oneshot` | what was made weaker | what failed |
//! |---|---|---|
//! | a_value_is_received_or_handed_back_and_the_last_frees | `change`: AcqRel to Acquire | race for the value |
//! | a_sender_that_goes_and_a_receiver_that_goes_free_once | `drop_receiver`: AcqRel to Acquire | freed while in use |
//! | who_waits_is_woken_or_sees_the_value | `change`: Acquire of its loads to Relaxed | race for the value |
//! | a_waker_that_is_withdrawn_has_one_owner | `withdraw`: compare-and-swap to load and store | two have it |
//!
//! | `ring` | what was made weaker | what failed |
//! |---|---|---|
//! | owner_and_thief_take_each_once | `push`: Release of `tail` to Relaxed | one was lost |
//! | two_thieves_take_each_once | `move_head`: compare-and-swap to load and store | one was taken twice |
//! | what_was_stolen_can_be_stolen_again | `steal_into`: Release of `into.tail` to Relaxed | one was lost |
//! | a_slot_is_kept_until_it_is_taken | `push`: one more than fits | two were overwritten |
//! | what_overflows_is_taken_once | `pop_half`: compare-and-swap to store | one was taken twice |
//!
//! | `idle` | what was made weaker | what failed |
//! |---|---|---|
//! | a_worker_does_not_sleep_through_a_push | `whom_to_wake`: no fence | asleep for ever |
//! | a_worker_does_not_sleep_through_a_push_from_outside | `whom_to_wake_from_outside`: no fence | asleep for ever |
//! | a_searcher_does_not_sleep_through_a_push_that_relied_on_it | `fall_asleep`: no fence | asleep for ever |
//! | the_last_searcher_to_find_something_wakes_another | `end_search`: no fence | asleep for ever |
//! | two_pushes_wake_two_sleepers | `fall_asleep`: no fence as the last one | asleep for ever |

mod idle;
mod inbox;
mod oneshot;
mod promotion;
mod ring;
mod state;

use loom::cell::UnsafeCell;

/// Memory that is read and written without atomics: the model fails if two threads race for it.
#[derive(Default)]
struct Plain<T>(UnsafeCell<T>);

// SAFETY: loom ends the model before an access that races with another one is made.
unsafe impl<T: Send> Sync for Plain<T> {}

impl<T> Plain<T> {
    fn new(value: T) -> Plain<T> {
        Plain(UnsafeCell::new(value))
    }

    fn read(&self) -> T
    where
        T: Copy,
    {
        // SAFETY: loom has seen that nobody writes meanwhile.
        self.0.with(|value| unsafe { *value })
    }

    fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: loom has seen that nobody else reads or writes meanwhile.
        self.0.with_mut(|value| change(unsafe { &mut *value }))
    }

    fn write(&self, value: T) {
        self.change(|old| *old = value);
    }
}
