//! Models of the state word of a oneshot channel.

use std::sync::Arc;

use loom::model;
use loom::thread::spawn;

use super::Plain;
use crate::channel::oneshot::word::{RawWaker, Said, Word};

/// The memory shared by the halves: the word, the value, and the allocation, which each user reads and the
/// half that frees it writes.
struct Between {
    word: Word,
    value: Plain<Option<u8>>,
    memory: Plain<usize>,
    /// Waker of the receiver: its owner writes to it.
    waker: Plain<usize>,
}

fn between() -> Arc<Between> {
    Arc::new(Between {
        word: Word::new(),
        value: Plain::default(),
        memory: Plain::default(),
        waker: Plain::default(),
    })
}

impl Between {
    fn waker(&self) -> RawWaker {
        std::ptr::from_ref(&self.waker).cast_mut().cast()
    }

    fn free(&self) {
        self.memory.change(|freed| *freed += 1);
    }

    /// The word gave the waker to the caller.
    fn got_waker(&self) {
        self.waker.change(|used| *used += 1);
    }

    /// `Sender::send`, which returns the value if it was not sent.
    fn send(&self) -> Option<u8> {
        self.memory.read();
        self.value.write(Some(5));
        match self.word.send() {
            Ok(Some(_)) => {
                self.got_waker();
                None
            }
            Ok(None) => None,
            Err(()) => {
                let value = self.value.change(Option::take);
                self.drop_sender();
                value
            }
        }
    }

    /// `Sender::drop`
    fn drop_sender(&self) {
        match self.word.drop_sender() {
            Said::ReceiverGone => self.free(),
            Said::Waits(_) => self.got_waker(),
            _ => {}
        }
    }

    /// `Receiver::drop`, which returns the former state.
    fn drop_receiver(&self) -> Option<u8> {
        self.memory.read();
        if let Said::Waits(_) = self.word.close() {
            self.got_waker();
        }
        self.memory.read(); // checks whether the sender waits for this
        match self.word.drop_receiver() {
            Said::Sent => {
                let value = self.value.change(Option::take);
                self.free();
                value
            }
            Said::SenderGone => {
                self.free();
                None
            }
            _ => None,
        }
    }
}

#[test]
fn a_value_is_received_or_handed_back_and_the_last_frees() {
    model(|| {
        let between = between();
        let sender = spawn({
            let between = between.clone();
            move || between.send()
        });
        let received = between.drop_receiver();
        let back = sender.join().unwrap();
        assert!(received.is_some() != back.is_some(), "{received:?} {back:?}");
        assert_eq!(between.memory.read(), 1, "freed once");
    });
}

#[test]
fn a_sender_that_goes_and_a_receiver_that_goes_free_once() {
    model(|| {
        let between = between();
        let sender = spawn({
            let between = between.clone();
            move || between.drop_sender()
        });
        assert_eq!(between.drop_receiver(), None);
        sender.join().unwrap();
        assert_eq!(between.memory.read(), 1, "freed once");
    });
}

#[test]
fn a_waiter_is_woken_or_sees_the_value() {
    model(|| {
        let between = between();
        between.waker.write(10);
        let sender = spawn({
            let between = between.clone();
            move || between.send()
        });
        let woken = match between.word.wait(between.waker()) {
            Ok(()) => true,
            Err(said) => {
                assert_eq!(said, Said::Sent);
                assert_eq!(between.value.read(), Some(5));
                false
            }
        };
        assert_eq!(sender.join().unwrap(), None);
        assert_eq!(between.waker.read(), if woken { 11 } else { 10 });
    });
}

#[test]
fn a_waker_that_is_withdrawn_has_one_owner() {
    model(|| {
        let between = between();
        between.waker.write(10);
        assert!(between.word.wait(between.waker()).is_ok());
        let sender = spawn({
            let between = between.clone();
            move || between.drop_sender()
        });
        if between.word.withdraw(between.waker()) {
            between.got_waker();
        } else {
            assert_eq!(between.word.load(), Said::SenderGone);
        }
        sender.join().unwrap();
        assert_eq!(between.waker.read(), 11, "one has it");
    });
}
