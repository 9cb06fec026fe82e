//! Ledgers: the place of each item of a protocol, in whatever way its holder has ended.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dapple::Cancelled;
use dapple::channel::mpsc;

/// A list that outlives the program, so that its check can read it.
pub(crate) struct Ledger<T>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for Ledger<T> {
    fn clone(&self) -> Ledger<T> {
        Ledger(self.0.clone())
    }
}

impl<T: Clone> Ledger<T> {
    pub(crate) fn new() -> Ledger<T> {
        Ledger(Arc::default())
    }

    pub(crate) fn add(&self, item: T) {
        locked(&self.0).push(item);
    }

    pub(crate) fn add_all(&self, items: impl IntoIterator<Item = T>) {
        locked(&self.0).extend(items);
    }

    pub(crate) fn list(&self) -> Vec<T> {
        locked(&self.0).clone()
    }

    pub(crate) fn len(&self) -> usize {
        locked(&self.0).len()
    }
}

/// Locks a mutex also after a panic: a destructor that panics, too, would end the process before the report.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All items of some lists, in order.
pub(crate) fn sorted<T: Ord + Clone>(lists: &[Vec<T>]) -> Vec<T> {
    let mut all = lists.concat();
    all.sort_unstable();
    all
}

/// An item that a task holds. If the task is cancelled or dropped, the item goes to the ledger.
pub(crate) struct InHand<T: Clone> {
    item: Option<T>,
    if_dropped: Ledger<T>,
}

impl<T: Clone> InHand<T> {
    pub(crate) fn new(item: T, if_dropped: &Ledger<T>) -> InHand<T> {
        InHand { item: Some(item), if_dropped: if_dropped.clone() }
    }

    /// Takes the item out; it does not go to the ledger.
    pub(crate) fn done(mut self) -> T {
        self.item.take().expect("an item is done once")
    }
}

impl<T: Clone> Deref for InHand<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.item.as_ref().expect("an item that is not done")
    }
}

impl<T: Clone> Drop for InHand<T> {
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            self.if_dropped.add(item);
        }
    }
}

/// A receiver whose remaining messages are counted at the end: when its task drops it, it is closed and kept.
pub(crate) struct Kept<T> {
    receiver: Option<mpsc::Receiver<T>>,
    left: Left<T>,
}

/// The messages that a [`Kept`] receiver did not take.
pub(crate) struct Left<T>(Arc<Mutex<Option<mpsc::Receiver<T>>>>);

pub(crate) fn keep<T>(receiver: mpsc::Receiver<T>) -> (Kept<T>, Left<T>) {
    let place = Arc::new(Mutex::new(None));
    (Kept { receiver: Some(receiver), left: Left(place.clone()) }, Left(place))
}

impl<T> Left<T> {
    /// Takes the messages. The receiver's task must have ended.
    pub(crate) fn drain(&self) -> Vec<T> {
        let receiver = locked(&self.0).take();
        let mut receiver = receiver.expect("the receiver is still in use");
        std::iter::from_fn(|| receiver.try_recv().ok()).collect()
    }
}

impl<T> Deref for Kept<T> {
    type Target = mpsc::Receiver<T>;

    fn deref(&self) -> &mpsc::Receiver<T> {
        self.receiver.as_ref().expect("a receiver until it is dropped")
    }
}

impl<T> DerefMut for Kept<T> {
    fn deref_mut(&mut self) -> &mut mpsc::Receiver<T> {
        self.receiver.as_mut().expect("a receiver until it is dropped")
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        let mut receiver = self.receiver.take();
        receiver.iter_mut().for_each(mpsc::Receiver::close);
        *locked(&self.left.0) = receiver;
    }
}

/// The next message, or `None` after the last.
pub(crate) async fn next<T>(receiver: &mut mpsc::Receiver<T>) -> Result<Option<T>, Cancelled> {
    match receiver.recv().await {
        Ok(message) => Ok(Some(message)),
        Err(error) if error.is_closed() => Ok(None),
        Err(_) => Err(Cancelled),
    }
}

/// Sends a message and writes it down if it was sent: `false` if the channel is closed.
pub(crate) async fn send_noted<T: Clone>(
    sender: &mpsc::Sender<T>,
    message: T,
    sent: &Ledger<T>,
) -> Result<bool, Cancelled> {
    match sender.send(message.clone()).await {
        Ok(()) => {
            sent.add(message);
            Ok(true)
        }
        Err(error) if error.is_closed() => Ok(false),
        Err(_) => Err(Cancelled),
    }
}

/// Waits for room: `None` if the channel is closed.
pub(crate) async fn room<T>(sender: &mpsc::Sender<T>) -> Result<Option<mpsc::Permit<'_, T>>, Cancelled> {
    match sender.reserve().await {
        Ok(room) => Ok(Some(room)),
        Err(error) if error.is_closed() => Ok(None),
        Err(_) => Err(Cancelled),
    }
}
