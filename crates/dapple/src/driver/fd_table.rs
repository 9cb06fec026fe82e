//! The file descriptors of a driver, by token.
//!
//! A token is the index of a slot and the number of the slot's user. NO-STALE-EVENT

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use rustix::event::epoll::EventFlags;

use super::readiness::Readiness;
use crate::task::guarded::GuardedWaker;

#[derive(Default)]
pub(super) struct FdTable {
    places: Vec<FdSlot>,
    free: Vec<u32>,
    closed: bool,
}

struct FdSlot {
    user: u32,
    /// The number of the file descriptor, while the slot is in use.
    fd: RawFd,
    readiness: Option<Arc<Readiness>>,
}

fn split(token: u64) -> (usize, u32) {
    ((token & u64::from(u32::MAX)) as usize, (token >> 32) as u32)
}

impl FdTable {
    pub(super) fn insert(&mut self, fd: RawFd, readiness: Arc<Readiness>) -> io::Result<u64> {
        if self.closed {
            return Err(io::Error::other("the runtime has ended"));
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(FdSlot { user: 0, fd, readiness: None });
            (self.places.len() - 1) as u32
        });
        let place = &mut self.places[index as usize];
        (place.fd, place.readiness) = (fd, Some(readiness));
        Ok(u64::from(place.user) << 32 | u64::from(index))
    }

    /// Removes a registration. The caller drops the returned value without the lock.
    pub(super) fn remove(&mut self, token: u64) -> Option<Arc<Readiness>> {
        let (index, user) = split(token);
        let place = self.places.get_mut(index).filter(|place| place.user == user)?;
        // The tokens of the wake-up and the ring have the largest user number, so it is skipped.
        place.user = (user + 1) % u32::MAX;
        let removed = place.readiness.take();
        self.free.push(index as u32);
        removed
    }

    /// Whether a file descriptor of this number is registered with another token.
    pub(super) fn has_another(&self, fd: RawFd, token: u64) -> bool {
        let is_another = |(index, place): (usize, &FdSlot)| {
            place.fd == fd && place.readiness.is_some() && (index, place.user) != split(token)
        };
        self.places.iter().enumerate().any(is_another)
    }

    pub(super) fn deliver(&self, token: u64, flags: EventFlags, wakers: &mut Vec<GuardedWaker>) {
        let (index, user) = split(token);
        let place = self.places.get(index).filter(|place| place.user == user); // NO-STALE-EVENT
        if let Some(readiness) = place.and_then(|place| place.readiness.as_ref()) {
            readiness.deliver(flags, wakers);
        }
    }

    pub(super) fn close(&mut self, wakers: &mut Vec<GuardedWaker>) {
        self.closed = true;
        let all = self.places.iter().filter_map(|place| place.readiness.as_ref());
        all.for_each(|readiness| readiness.close(wakers));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_used_once() {
        let mut table = FdTable::default();
        let first = table.insert(7, Arc::default()).unwrap();
        assert!(table.remove(first).is_some());
        let second = table.insert(7, Arc::default()).unwrap();
        assert_ne!(first, second);
        assert!(table.remove(first).is_none());
        let mut wakers = Vec::new();
        let readiness = table.places[0].readiness.clone().unwrap();
        table.deliver(first, EventFlags::IN, &mut wakers);
        assert!(readiness.seen(super::super::readiness::Direction::Read).is_none());
        table.deliver(second, EventFlags::IN, &mut wakers);
        assert!(readiness.seen(super::super::readiness::Direction::Read).is_some());
    }
}
