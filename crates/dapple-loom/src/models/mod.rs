//! Models of the lock-free protocols, checked in every interleaving by loom (`ci/loom`).
//!
//! A model is a few threads, a few operations of the real code and one promise, which is its name. Memory
//! that the protocols guard (futures, outputs, payloads, the allocations themselves) is [`Plain`]: loom
//! reports every access that is not ordered after the one before, so a missing release or acquire shows even
//! where the values would be right.
//!
//! Loom cannot see two things: a load that is delayed past a later store (so it does not show that the
//! release of a compare-and-swap matters which only keeps earlier *reads* in place, SLOT-KEPT), and
//! `membarrier` (both fences of `prim` are sequentially consistent here). It also has no clock: a thread that
//! sleeps until a time sleeps for ever. It does not watch over memory that an included file frees by itself, as
//! `stm::parking` does (LINK-OUT-LAST): a use after that shows only if it crashes.
//!
//! A thread that yields is run again only after all others, so what it does between is not explored. A task is polled
//! only after a wake-up: a model that polls a wait once more without one does not see a lost wake-up.
//!
//! # Proof that they can fail
//!
//! Each model was run with one part of the protocol weakened, and failed:
//!
//! | `state` | weakened | failure |
//! |---|---|---|
//! | a_wake_up_during_a_poll_is_not_lost | `before_poll`: Acquire to Relaxed | the last poll did not see the event |
//! | a_storm_of_wake_ups_is_not_lost | `calm`: does not set STORM | the last poll did not see the events |
//! | of_two_wakers_one_becomes_the_owner | `wake`: `fetch_add` to load and store | both own it |
//! | an_owner_sees_what_wakers_and_the_last_owner_did | `rest`: AcqRel to Acquire | race of two polls |
//! | an_abort_is_seen_by_the_next_poll | `wake_with`: wakes, then sets the flag | no thread ended it |
//! | an_output_is_dropped_once_when_the_handle_goes | `detach`: compare-and-swap to load and store | the output was not dropped |
//! | a_waiter_is_woken_or_sees_the_end | `offer_join_waker`: AcqRel to Acquire | race for the slot |
//! | a_waker_is_taken_once_when_another_takes_its_place | `finish`: AcqRel to Release | race for the slot |
//! | an_uncounted_waker_that_is_dropped_elsewhere_keeps_the_memory | `finish`: settles after its compare-and-swap | freed while in use |
//! | an_uncounted_waker_that_wakes_elsewhere_keeps_the_memory | `rest`: settles after its compare-and-swap | the count of references wraps |
//! | a_wake_up_at_the_end_frees_or_leaves_the_memory | `wake_and_drop_ref`: AcqRel to Release | freed while in use |
//! | a_walker_gets_no_reference_to_what_is_freed | `drop_ref`: Acquire of its load to Relaxed | freed while in use |
//! | a_walker_sees_the_task_that_a_cell_was_made_into | `reset`: Release to Relaxed | race for the new task |
//! | a_counted_thing_on_its_way_out_is_not_given_out | `drop_ref`: does not look at COUNTED | freed while in use |
//! | a_failed_look_at_a_counted_thing_comes_after_its_end | `try_ref_counted`: Acquire of its load to Relaxed | race for the value that a color guards |
//!
//! | `promotion` | weakened | failure |
//! |---|---|---|
//! | a_wake_up_after_promotion_goes_to_the_lane | `rest`: AcqRel to Acquire | the waker saw the old vtable |
//!
//! | `inbox` | weakened | failure |
//! |---|---|---|
//! | everything_is_run_once_and_in_order_by_one_at_a_time | `claim`: Acquire to Relaxed | race of two turns |
//! | of_two_entries_one_has_the_turn | `claim`: compare-and-swap to load and store | both have it |
//! | a_lane_that_is_put_back_is_claimed_with_all_that_came_in | `put_back`: leaves an empty inbox idle; Release to Relaxed | there was nothing to claim; race of two turns |
//! | a_rank_is_seen_by_the_holder_of_the_entry_or_sees_the_lane_in_line | `rank`: compare-and-swap to load and store | neither saw the other |
//! | a_push_at_the_end_of_a_turn_is_not_lost | `release`: compare-and-swap to load and store | one was not run |
//! | one_push_makes_an_idle_lane_runnable | `push`: compare-and-swap to load and store | two turns |
//! | a_push_when_a_thread_leaves_finds_it_there_or_a_worker | `enqueue`: does not see the last turn; `leave`: notes it after it has given the turn back | handed to a thread that has left |
//!
//! | `oneshot` | weakened | failure |
//! |---|---|---|
//! | a_value_is_received_or_handed_back_and_the_last_frees | `change`: AcqRel to Acquire | race for the value |
//! | a_sender_that_goes_and_a_receiver_that_goes_free_once | `drop_receiver`: AcqRel to Acquire | freed while in use |
//! | a_waiter_is_woken_or_sees_the_value | `change`: Acquire of its loads to Relaxed | race for the value |
//! | a_waker_that_is_withdrawn_has_one_owner | `withdraw`: compare-and-swap to load and store | two have it |
//!
//! | `run_queue` | weakened | failure |
//! |---|---|---|
//! | owner_and_thief_take_each_once | `push`: Release of `tail` to Relaxed | one was lost |
//! | two_thieves_take_each_once | `move_head`: compare-and-swap to load and store | one was taken twice |
//! | what_was_stolen_can_be_stolen_again | `steal_into`: Release of `into.tail` to Relaxed | one was lost |
//! | a_slot_is_kept_until_it_is_taken | `push`: one more than fits | two were overwritten |
//! | what_overflows_is_taken_once | `pop_half`: compare-and-swap to store | one was taken twice |
//!
//! | `idle` | weakened | failure |
//! |---|---|---|
//! | a_worker_does_not_sleep_through_a_push | `worker_to_wake`: no fence | asleep for ever |
//! | a_worker_does_not_sleep_through_a_push_from_outside | `worker_to_wake_from_outside`: no fence | asleep for ever |
//! | a_searcher_does_not_sleep_through_a_push_that_relied_on_it | `fall_asleep`: no fence | asleep for ever |
//! | the_last_searcher_to_find_something_wakes_another | `end_search`: no fence | asleep for ever |
//! | two_pushes_wake_two_sleepers | `fall_asleep`: no fence as the last one | asleep for ever |
//!
//! | `wakeup` | weakened | failure |
//! |---|---|---|
//! | a_sleeper_misses_no_notification | `notify`: no write over NOTIFIED | asleep for ever |
//! | (the same) | `finish_sleep`: swap to store | asleep for ever |
//! | a_sleeper_woken_by_another_event_misses_no_notification | `prepare_sleep`: compare-and-swap to load and store | asleep for ever |
//!
//! | `slot_owner` | weakened | failure |
//! |---|---|---|
//! | a_spare_leaves_when_its_slot_is_taken_back | `take_back`: notifies before it writes | asleep for ever |
//! | a_returned_worker_gets_a_notification_that_woke_its_spare | a woken thread that is not the owner does not notify; a sleeper does not check the owner | asleep for ever |
//! | a_returned_worker_does_not_sleep_when_its_slot_is_passed_on | `hand_off`: does not notify | asleep for ever |
//! | a_spare_gets_a_notification_that_woke_the_returned_worker | a woken thread that is not the owner does not notify; `hand_off`: does not notify | asleep for ever |
//! | a_spare_that_is_sent_while_it_goes_to_sleep_serves_its_slot | `hand_off`: the spare is out before it is the owner | asleep for ever |
//! | a_timer_that_the_new_owner_inserts_is_seen_by_the_sleeper | `hand_off`: does not notify | asleep for ever |
//! | a_slot_is_taken_over_or_back_but_has_one_owner | `pass`: compare-and-swap to load and store | the spare has it |
//!
//! | `readiness` | weakened | failure |
//! |---|---|---|
//! | a_reader_gets_all_that_comes_in_one_by_one | `enlist`: does not look at the word | asleep for ever |
//! | a_reader_that_takes_all_there_is_gets_what_comes_later | `note`: does not count | asleep for ever |
//! | a_reader_that_takes_all_there_is_comes_to_the_end | `drained`: takes back READ_CLOSED too | asleep for ever |
//! | a_reader_and_a_writer_do_not_take_from_each_other | `clear`: takes back both directions | asleep for ever |
//! | one_event_wakes_all_waiters_of_a_file_descriptor | `note`: takes one of the waiters | asleep for ever |
//! | a_waiter_learns_that_the_driver_is_gone | `note`: takes the list before it changes the word | asleep for ever |
//! | a_waiter_that_sees_an_event_sees_the_data_before_it | `note`: AcqRel to Acquire | race for the received data |
//!
//! | `timers` | weakened | failure |
//! |---|---|---|
//! | a_worker_does_not_sleep_beyond_a_timer_that_is_entered_elsewhere | `plan`: gives up the lock between its look and its note | asleep for ever |
//! | a_timer_that_is_entered_while_others_fire_is_not_forgotten | `fire`: stores `earliest` without the lock | did not fire |
//!
//! | `spin_lock` | weakened | failure |
//! |---|---|---|
//! | one_is_inside_at_a_time_and_sees_what_the_last_one_did | `drop`: Release to Relaxed; `take`: Acquire to Relaxed | race for the value |
//!
//! | `permits` | weakened | failure |
//! |---|---|---|
//! | one_has_a_permit_at_a_time_and_sees_what_the_last_one_did | `release`: AcqRel to Acquire; `take_if`: Acquire to Relaxed | race for the guarded value |
//! | a_waiter_does_not_sleep_through_a_release | `poll_newcomer`: sets its flags after its look | asleep for ever |
//! | two_releases_are_enough_for_a_waiter_for_both | `wake`: looks at what was released, not at what is free | asleep for ever |
//! | a_waiter_whose_permit_was_taken_does_not_sleep_through_its_release | `poll_in_line`: does not look again after `show` | asleep for ever |
//! | a_waiter_that_gives_up_passes_on_its_wake_up | `leave`: wakes no waiter | asleep for ever |
//! | a_leaked_waiter_holds_up_no_other | `release`: relies on woken waiters | asleep for ever |
//! | all_waiters_learn_that_it_is_closed | `close`: wakes, then sets the flag | asleep for ever |
//! | newcomers_and_releases_from_all_sides_leave_no_waiter_behind | `poll_in_line`: looks at what was free before `show` | asleep for ever |
//!
//! | `access_lock` | weakened | failure |
//! |---|---|---|
//! | a_writer_is_alone_and_sees_earlier_writes | `read_by`: does not look at the word | race for the value |
//! | two_writers_and_a_reader_all_get_in | `readers`: no fence | race for the value |
//! | the_flag_that_slots_are_used_is_unset_and_set_again | `read_by`: does not look at the mark | race for the value |
//! | of_two_readers_on_an_unset_mark_none_is_in_beside_a_writer | `read_by`: does not look again after it has set the mark; no fence | race for the value |
//! | a_counted_reader_lets_the_waiter_in | `leave_slot`: releases no permit | asleep for ever |
//! | a_waiter_for_a_reader_keeps_its_place_and_is_woken | `wake_one`: wakes no waiter | asleep for ever |
//! | a_waiter_in_line_looks_for_readers_in_slots | `poll_in_line`: does not look at `others` | race for the value |
//! | a_writer_that_gives_up_lets_readers_in | `give_up`: stays in the queue | asleep for ever |
//!
//! | `watch` | weakened | failure |
//! |---|---|---|
//! | a_watcher_does_not_sleep_through_a_write | `note_write`: wakes no watcher; `watch`: does not set WATCHED; enlists after it has left | asleep for ever |
//! | watchers_that_read_are_all_woken_by_one_write | `fill`: the first one only | asleep for ever |
//! | two_watchers_that_write_each_get_a_thing | `take_token`: keeps the token; `note_write`: takes the list for empty | asleep for ever |
//! | a_watcher_that_goes_away_passes_its_wake_up_on | `leave`: does not pass on | asleep for ever |
//! | a_watcher_whose_waker_changes_is_woken_or_sees_that | `sleep_on`: does not look whether it was woken, or does not say so | asleep for ever |
//! | two_first_watchers_get_the_same_list | `get_or_make`: compare-and-swap to store | two lists |
//!
//! | `exchange` | weakened | failure |
//! |---|---|---|
//! | a_taker_does_not_sleep_through_a_put | `unlock_taken`: wakes no waiter | asleep for ever |
//! | a_putter_does_not_sleep_through_a_take | `unlock_taken`: wakes no waiter; `poll_in_line`: does not wake the other side | asleep for ever |
//! | two_values_go_to_two_takers | `poll_take`: a newcomer does not wake the other side | asleep for ever |
//! | a_taker_that_gives_up_passes_its_wake_up_on | `leave_line`: wakes no waiter | asleep for ever |
//! | a_value_that_was_lent_is_given_to_a_waiter | `give_back`: wakes no waiter | asleep for ever |
//! | all_waiters_learn_that_it_is_closed | `wake_everyone`: wakes, then closes; wakes the first one only | asleep for ever |
//!
//! | `stm` | weakened | failure |
//! |---|---|---|
//! | a_transaction_never_sees_half_of_a_commit | `find`, `read`: no second look; reads later versions; `extend`: compares nothing | saw 0 and 1 |
//! | of_two_updates_none_is_lost | `commit`: compares nothing; compares before it locks; takes its time before it locks; its shortcut allows for one more | one was lost |
//! | of_two_transactions_that_read_what_the_other_writes_one_sees_the_other | `is_unchanged`: ignores locks | both wrote |
//! | a_value_is_dropped_once_after_its_last_reader | `begin`: a Relaxed store; `end`: SeqCst to Relaxed; `retire`: does not look | freed while in use |
//! | (the same) | `free`: does not mark; `end`: swap to load and store, or does not collect | left in limbo |
//! | plain_values_are_dropped_together_after_their_last_reader | `publish`: a plain value is retired with a time two earlier | freed while in use |
//! | a_parked_task_does_not_sleep_through_a_commit | `park`: does not compare, or does not set WAITED; `publish`: takes no waiters; unlocks first | asleep for ever |
//! | a_task_parked_in_two_cells_is_woken_by_either | `take_waiters`: does not take the waker | asleep for ever |
//! | one_commit_wakes_all_tasks_that_are_parked_in_a_cell | `take_waiters`: the first one only | asleep for ever |
//! | a_task_that_leaves_takes_no_other_out_of_the_list | `remove`: empties the list; leaves the last link in it | asleep for ever; used after it was freed |
//! | a_task_that_leaves_while_it_is_woken_is_gone_from_all_lists | `leave`: keeps WAITED | WAITED with an empty list |
//! | a_waker_that_changes_is_woken_or_its_task_sees_that | `sleep_on`: compare-and-swap to store | asleep for ever |
//! | what_a_transaction_has_read_alone_stays_until_it_ends | `commit`: does not look after it has locked; `is_taken`: no fence | a commit got through |
//!
//! | `cancel_table` | weakened | failure |
//! |---|---|---|
//! | a_wait_that_begins_during_a_cancel_is_told_of_it | `add`: no fence; `of`: no fence | asleep for ever |
//! | all_waits_of_a_task_are_told | `of`: the first one only | asleep for ever |
//! | a_scope_is_cancelled_when_the_cancel_of_an_outer_one_has_returned | `add`: no fence; `of`: no fence | not cancelled |
//! | of_two_cancels_none_returns_before_all_scopes_are_cancelled | `cancel`: returns if another was the first | not cancelled |
//!
//! | `child_waker` | weakened | failure |
//! |---|---|---|
//! | a_wake_up_of_a_scope_that_goes_to_rest_is_not_lost | `PollerWake::prepare`: the task is queued before the child; not woken again if it was awake | asleep for ever |
//! | a_wake_up_from_a_spawned_task_is_not_lost | `is_inside`: takes the frame of a spawned task for a poll of the scope | asleep for ever |
//! | a_wake_up_by_reference_is_not_lost | `try_enqueue`: without a reference | the CancelScope was not freed |
//! | a_wake_up_of_a_scope_that_goes_to_another_is_not_lost (and: to_another_task) | `polled_with`: does not change the ready list's word | asleep for ever |
//! | wake_ups_of_an_inner_scope_are_not_lost | `wake_poller`: takes a waker of ours | asleep for ever |
//! | what_is_put_in_line_while_others_are_taken_is_not_lost | `pull`: swap to load and store | one was lost |
//! | a_task_that_ends_while_its_scope_is_woken_is_not_used_any_more | `polled_with`: keeps the task without a reference | freed while in use |
//! | a_scope_that_goes_to_another_does_not_sleep_through_a_cancel | `goes_by_waker` or `polled_with`: no fence | asleep for ever |
//! | of_two_wakers_one_queues_the_child | `note_dequeued`, `try_enqueue` or `wake`: AcqRel to Relaxed; `wake`: swap to load and store | asleep for ever; in line twice |
//! | a_child_that_is_woken_when_it_is_done_is_freed_once | `leave`: Acquire of its load to Relaxed; `drop_ref`: AcqRel to Relaxed | freed while in use |
//! | (the same) | `push`: keeps its reference if it is closed; `leave_to_others`: does not keep the CancelScope | the CancelScope was not freed; used after that |
//! | a_scope_that_is_dropped_while_it_is_woken_is_freed_once | `leave_to_others`: AcqRel to Relaxed; `close`: swap to load and store | freed while in use; the CancelScope was not freed |
//! | references_that_a_poll_has_not_counted_keep_the_memory | BIAS is 1 | freed while in use |
//! | a_scope_does_not_sleep_through_a_cancel | `cancel`: wakes the poller, then sets the flag | asleep for ever |
//! | of_two_cancels_one_is_the_first_and_none_is_slept_through | `cancel`: swap to load and store | both are the first |
//! | a_scope_waits_for_what_was_spawned_and_sees_what_it_did | `task_ended`: wakes the poller before it counts; AcqRel to Acquire | asleep for ever; race for the result |

mod access_lock;
mod cancel_table;
mod child_waker;
mod exchange;
mod idle;
mod inbox;
mod oneshot;
mod permits;
mod promotion;
mod readiness;
mod run_queue;
mod slot_owner;
mod spin_lock;
mod state;
mod stm;
mod timers;
mod wakeup;
mod watch;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use loom::cell::UnsafeCell;

use crate::prim::Parker;

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.unpark();
    }
}

/// A place where a thread sleeps, and its waker.
fn sleeper() -> (Arc<Parker>, Waker) {
    let parker = Arc::new(Parker::default());
    (parker.clone(), Waker::from(parker))
}

fn block_on<F: Future>(future: F) -> F::Output {
    let (parker, waker) = sleeper();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => drop(parker.park(None)),
        }
    }
}

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
        // SAFETY: loom has checked that no thread writes meanwhile.
        self.0.with(|value| unsafe { *value })
    }

    fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: loom has checked that no other thread reads or writes meanwhile.
        self.0.with_mut(|value| change(unsafe { &mut *value }))
    }

    fn write(&self, value: T) {
        self.change(|old| *old = value);
    }
}
