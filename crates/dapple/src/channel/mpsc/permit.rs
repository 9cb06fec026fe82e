//! Reserved room for one message.

use std::fmt;

use super::sender::Sender;

/// Reserved room for one message. Dropping it frees the room. Made by [`Sender::reserve`].
#[must_use = "the room is given back at once if the permit is dropped"]
pub struct Permit<'a, T> {
    sender: &'a Sender<T>,
}

impl<'a, T> Permit<'a, T> {
    pub(super) fn new(sender: &'a Sender<T>) -> Permit<'a, T> {
        Permit { sender }
    }

    /// Sends the message, even if the receiver has been closed meanwhile.
    ///
    /// # Errors
    ///
    /// Returns the message if the receiver is dropped.
    pub fn send(self, message: T) -> Result<(), T> {
        let sender = self.sender;
        std::mem::forget(self); // the message owns the room now
        sender.chan.push(message)
    }
}

impl<T> Drop for Permit<'_, T> {
    fn drop(&mut self) {
        self.sender.chan.give_back();
    }
}

impl<T> fmt::Debug for Permit<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

/// Reserved room for one message, with its sender. Dropping it frees the room. Made by
/// [`Sender::reserve_owned`].
#[must_use = "the room is given back at once if the permit is dropped"]
pub struct OwnedPermit<T> {
    /// None once it was used.
    sender: Option<Sender<T>>,
}

impl<T> OwnedPermit<T> {
    pub(super) fn new(sender: Sender<T>) -> OwnedPermit<T> {
        OwnedPermit { sender: Some(sender) }
    }

    /// Sends the message, even if the receiver has been closed meanwhile, and returns the sender.
    ///
    /// # Errors
    ///
    /// Returns the message if the receiver is dropped.
    pub fn send(mut self, message: T) -> Result<Sender<T>, T> {
        let sender = self.sender.take().expect("a permit is used once");
        sender.chan.push(message).map(|()| sender)
    }

    /// Frees the room, and returns the sender.
    #[must_use]
    pub fn release(mut self) -> Sender<T> {
        let sender = self.sender.take().expect("a permit is used once");
        sender.chan.give_back();
        sender
    }
}

impl<T> Drop for OwnedPermit<T> {
    fn drop(&mut self) {
        if let Some(sender) = &self.sender {
            sender.chan.give_back();
        }
    }
}

impl<T> fmt::Debug for OwnedPermit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedPermit").finish_non_exhaustive()
    }
}
