//! In place of `threads` in a build without the feature `sim`: a world has threads, so there is no simulated world.

use super::World;

pub(crate) type Context = Box<dyn Fn()>;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadId;

impl ThreadId {
    pub(crate) fn index(self) -> usize {
        0
    }
}

#[derive(Default)]
pub(crate) struct NotifiedThreads;

impl NotifiedThreads {
    pub(super) fn add(&self, _thread: ThreadId) {}
}

pub(super) enum Threads {}

impl World {
    pub(super) fn thread(&self) -> ThreadId {
        match *self.threads.borrow() {}
    }

    pub(super) fn slowness(&self) -> u64 {
        match *self.threads.borrow() {}
    }

    pub(crate) fn start_thread(&self, _work: impl FnOnce() + 'static) {
        match *self.threads.borrow() {}
    }

    pub(super) fn wait(&self, _until: Option<u64>, _rests: bool) {
        match *self.threads.borrow() {}
    }

    pub(super) fn leave_threads(&self) {
        match *self.threads.borrow() {}
    }
}
