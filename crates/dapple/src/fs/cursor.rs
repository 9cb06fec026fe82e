//! A file with a cursor: reading and writing through the traits of streams.
//!
//! The cursor is the kernel's, so that duplicates of a file share it, and that files without one (pipes,
//! terminals) work. A file whose cursor no one shares is read and written by position, and the cursor is moved
//! afterwards. A file whose cursor others may share is read and written by a thread of the pool, by calls that move the
//! cursor. At most one operation with the cursor is under way. A read whose future was dropped stays here,
//! and the next read gets its bytes. A write is copied and goes on by itself.
//!
//! # Invariants
//!
//! * **ONE-AT-A-TIME**: at most one operation that moves the cursor is under way, and it is in `activity`; or in the
//!   hands of the future that polls it, which leaves `Elsewhere` there meanwhile. So it is polled with no lock held:
//!   polling drops wakers and wakes the list of waiters, which is foreign code. A waiter that finds it elsewhere joins
//!   the list, and is woken when the operation is back or done.
//! * **PROMISED**: a write whose length was returned is not cancelled, only the wait for it is. The ring or the pool
//!   does all of it, also if the file is dropped (GOES-ON in `driver::uring`). If it fails, the error is kept in
//!   `error` until a caller gets it; if the file is dropped before, the failure is counted.
//! * **KERNEL-AHEAD**: the kernel's cursor is ahead of the user's by the bytes in `left`.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, SeekFrom};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};

use super::cached;
use super::file::{File, Opened};
use super::operation::{Operation, check_place, end_of, send};
use super::request::{CURSOR, ReadAt, WriteAt};
use crate::cancel::wait::{Wait, got_at_once, is_lost, wake};
use crate::driver::uring::failures::Failures;
use crate::driver::uring::node::Op;
use crate::io::foreign::{impl_read, impl_write};
use crate::prim::{Mutex, lock};
use crate::scope::Shield;
use crate::task::guarded::GuardedWaker;
use crate::{Cancelled, JoinHandle, blocking, shield};

/// The most bytes that are copied at once, in either direction.
const MOST: usize = 2 << 20;

#[derive(Default)]
pub(super) struct Cursor {
    /// ONE-AT-A-TIME
    activity: Activity,
    /// The bytes that were read and not given out: `left.0[left.1..]`. KERNEL-AHEAD
    left: (Vec<u8>, usize),
    /// PROMISED
    error: Option<Untold>,
    /// Memory for the next operation.
    spare: Vec<u8>,
    /// The wait of a caller with exclusive access that reads, writes or seeks.
    wait: Wait,
    /// The wait of an operation that is done at once, or that goes on as an `Activity`.
    at_once: Wait,
    /// The waiters that share the file (`&File`) and wait for the operation that is under way.
    waiters: Option<Arc<CursorWaiters>>,
}

/// The error of a promised write, until a caller gets it. If none does, it is counted.
struct Untold {
    error: Option<io::Error>,
    opened: Arc<Opened>,
    failures: Option<Arc<Failures>>,
}

impl Untold {
    fn tell(mut self) -> io::Error {
        let error = self.error.take().expect("an error is returned once");
        self.opened.failed("write", error)
    }
}

impl Drop for Untold {
    fn drop(&mut self) {
        if let (Some(error), Some(failures)) = (&self.error, &self.failures) {
            failures.note(self.opened.path(), error);
        }
    }
}

#[derive(Default)]
enum Activity {
    #[default]
    None,
    Reading(Operation<ReadAt<Vec<u8>>>),
    /// A write, which goes on by itself.
    Writing(Op<WriteAt<Vec<u8>>>),
    /// A seek, by a thread of the pool.
    Seeking(SeekFrom, Shield<JoinHandle<io::Result<u64>>>),
    /// A future polls the activity. True if waiters have come meanwhile. ONE-AT-A-TIME
    Elsewhere(bool),
}

/// The end of an activity that no future waits for, except to see it end.
enum EndedActivity {
    Read(Vec<u8>),
    Wrote(Option<Untold>, Vec<u8>),
    Neither,
}

impl Activity {
    /// Polls the activity until it has ended.
    fn poll(&mut self, cx: &mut Context<'_>, opened: &Opened) -> Poll<EndedActivity> {
        Poll::Ready(match self {
            Activity::None | Activity::Elsewhere(_) => EndedActivity::Neither,
            Activity::Reading(read) => {
                read.give_up(); // its future was dropped, and it may wait for another program
                let (result, request) = ready!(Pin::new(read).poll(cx));
                let (mut buffer, at) = (request.buffer, request.at);
                // The next read will find the same error.
                let Ok(n) = result else { return Poll::Ready(EndedActivity::Neither) };
                // SAFETY: the kernel has written `n` bytes to its room.
                unsafe { super::BufferMut::filled(&mut buffer, n as usize) };
                opened.move_cursor(at, n as usize);
                EndedActivity::Read(buffer)
            }
            Activity::Writing(op) => {
                let written = ready!(poll_written(op, cx));
                let request = op.take();
                let untold =
                    |error| Untold { error: Some(error), opened: request.file, failures: op.failures() };
                EndedActivity::Wrote(written.err().map(untold), request.buffer)
            }
            Activity::Seeking(_, seek) => {
                drop(ready!(Pin::new(seek).poll(cx)));
                EndedActivity::Neither
            }
        })
    }
}

#[derive(Default)]
struct CursorWaiters(Mutex<Vec<GuardedWaker>>);

impl CursorWaiters {
    /// Adds a waker. Returns it if the list has an equal one.
    fn join(&self, waker: GuardedWaker) -> Option<GuardedWaker> {
        let mut waiters = lock(&self.0);
        if waiters.iter().any(|other| other.wakes_same(&waker)) {
            return Some(waker);
        }
        waiters.push(waker);
        None
    }

    fn wake_all(&self) {
        let waiters = std::mem::take(&mut *lock(&self.0)); // the lock is released before the wakers run
        waiters.into_iter().for_each(wake);
    }
}

impl Wake for CursorWaiters {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }
}

/// The activity of a file, in the hands of the future that polls it. ONE-AT-A-TIME
struct InHand<'a> {
    cursor: &'a Mutex<Cursor>,
    waiters: &'a CursorWaiters,
    activity: Activity,
}

impl InHand<'_> {
    fn poll(mut self, cx: &mut Context<'_>, opened: &Opened) -> Poll<()> {
        let ended = ready!(self.activity.poll(cx, opened)); // if pending, `drop` puts it back
        let done = std::mem::take(&mut self.activity);
        let earlier = lock(self.cursor).ended(ended);
        drop((done, earlier)); // may report to a `tracing` subscriber, which is foreign code
        self.waiters.wake_all();
        Poll::Ready(())
    }
}

impl Drop for InHand<'_> {
    /// Puts the activity back.
    fn drop(&mut self) {
        let activity = std::mem::take(&mut self.activity);
        if matches!(activity, Activity::None) {
            return;
        }
        let elsewhere = std::mem::replace(&mut lock(self.cursor).activity, activity);
        // Waiters may have joined after the wake-up that they would have waited for.
        if matches!(elsewhere, Activity::Elsewhere(true)) {
            self.waiters.wake_all();
        }
    }
}

impl Cursor {
    /// Whether no operation is under way.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.activity, Activity::None)
    }

    /// The error of an earlier write.
    pub(super) fn take_error(&mut self) -> io::Result<()> {
        self.error.take().map_or(Ok(()), |untold| Err(untold.tell()))
    }

    /// Waits until no operation is under way. The bytes of a read, and the error of a write, stay here.
    pub(super) fn poll_settle(
        &mut self,
        cx: &mut Context<'_>,
        opened: &Opened,
        wait: &mut Wait,
    ) -> Poll<io::Result<()>> {
        if self.is_settled() {
            return Poll::Ready(Ok(()));
        }
        ready!(wait.begin(cx))?;
        if let Poll::Ready(ended) = self.activity.poll(cx, opened) {
            drop(self.ended(ended));
            wait.end();
            return Poll::Ready(Ok(()));
        }
        rest(cx, wait)
    }

    /// As `poll_settle`, for futures that share the file. The lock is not held while the activity is polled.
    pub(super) fn poll_settle_shared(
        cursor: &Mutex<Cursor>,
        cx: &mut Context<'_>,
        opened: &Opened,
        wait: &mut Wait,
    ) -> Poll<io::Result<()>> {
        if lock(cursor).is_settled() {
            return Poll::Ready(Ok(()));
        }
        ready!(wait.begin(cx))?;
        let waker = GuardedWaker::of(cx.waker()); // foreign code, not under the lock
        let mut locked = lock(cursor);
        let waiters = locked.waiters.get_or_insert_default().clone();
        let spare = waiters.join(waker);
        let activity = locked.take_activity();
        drop(locked);
        drop(spare);
        let polled = match activity {
            Some(activity) => {
                let in_hand = InHand { cursor, waiters: &waiters, activity };
                in_hand.poll(&mut Context::from_waker(&Waker::from(waiters.clone())), opened)
            }
            None => Poll::Pending,
        };
        if polled.is_ready() {
            wait.end();
            return Poll::Ready(Ok(()));
        }
        rest(cx, wait)
    }

    /// Takes the activity in hand; `None` if another future has it, and will wake the waiters. ONE-AT-A-TIME
    fn take_activity(&mut self) -> Option<Activity> {
        match &mut self.activity {
            Activity::Elsewhere(others) => {
                *others = true;
                None
            }
            activity => Some(std::mem::replace(activity, Activity::Elsewhere(false))),
        }
    }

    /// Records the end of the activity. Returns the earlier error that the new one replaces.
    fn ended(&mut self, ended: EndedActivity) -> Option<Untold> {
        self.activity = Activity::None;
        match ended {
            EndedActivity::Read(buffer) => self.left = (buffer, 0),
            EndedActivity::Wrote(untold, buffer) => {
                self.spare = buffer;
                if let Some(untold) = untold {
                    return self.error.replace(untold);
                }
            }
            EndedActivity::Neither => {}
        }
        None
    }

    /// Moves the kernel's cursor back to the user's. KERNEL-AHEAD
    pub(super) fn rewind(&mut self, opened: &Opened) {
        let ahead = self.left.0.len() - self.left.1;
        // For a file without a cursor, the bytes stay here for the next read.
        if ahead > 0
            && opened.is_regular()
            && rustix::fs::seek(opened, rustix::fs::SeekFrom::Current(-(ahead as i64))).is_ok()
        {
            self.left = (Vec::new(), 0);
        }
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        opened: &Arc<Opened>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            if !matches!(self.activity, Activity::Reading(_)) {
                let mut wait = std::mem::take(&mut self.wait);
                let settled = self.poll_settle(cx, opened, &mut wait);
                self.wait = wait;
                ready!(settled)?;
                let (left, given) = &mut self.left;
                if *given < left.len() || buffer.is_empty() {
                    ready!(self.at_once.begin_at_once(cx))?;
                    got_at_once();
                    let n = buffer.len().min(left.len() - *given);
                    buffer[..n].copy_from_slice(&left[*given..*given + n]);
                    *given += n;
                    return Poll::Ready(Ok(n));
                }
                ready!(self.at_once.begin_at_once(cx))?;
                check_place()?;
                // SAFETY: initialised bytes are also valid as `MaybeUninit`, and the kernel writes only initialised bytes.
                let room = unsafe { &mut *(std::ptr::from_mut(buffer) as *mut [MaybeUninit<u8>]) };
                if let Some(result) = cached::read(opened, room, CURSOR) {
                    got_at_once();
                    return Poll::Ready(result.map_err(|error| opened.failed("read", error)));
                }
                let mut own = std::mem::take(&mut self.left.0);
                self.left.1 = 0;
                own.clear();
                let wanted = buffer.len().min(MOST);
                if own.capacity() < wanted || own.capacity() > 2 * wanted {
                    own = Vec::with_capacity(wanted);
                }
                let read = ReadAt { file: opened.clone(), buffer: own, at: opened.cursor() };
                self.activity = Activity::Reading(Operation::new(read));
            }
            let Activity::Reading(read) = &mut self.activity else { continue };
            // The caller would drop the bytes, so they stay here for the next read. EXACT
            if is_lost() {
                return Poll::Ready(Err(Cancelled.into()));
            }
            let (result, request) = ready!(Pin::new(read).poll(cx));
            self.activity = Activity::None;
            let (mut own, at) = (request.buffer, request.at);
            let n = result.map_err(|error| opened.failed("read", error))? as usize;
            opened.move_cursor(at, n);
            // SAFETY: the kernel has written `n` bytes to its room.
            unsafe { super::BufferMut::filled(&mut own, n) };
            let given = n.min(buffer.len());
            buffer[..given].copy_from_slice(&own[..given]);
            self.left = (own, given);
            return Poll::Ready(Ok(given));
        }
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        opened: &Arc<Opened>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(cx, opened))?;
        ready!(self.at_once.begin_at_once(cx))?;
        check_place()?;
        got_at_once();
        self.rewind(opened);
        let mut buffer = std::mem::take(&mut self.spare);
        buffer.clear();
        for slice in slices {
            let n = slice.len().min(MOST - buffer.len());
            buffer.extend_from_slice(&slice[..n]);
        }
        let len = buffer.len();
        if len == 0 {
            return Poll::Ready(Ok(0));
        }
        let write = WriteAt { file: opened.clone(), buffer, done: 0, at: opened.cursor() };
        let mut op = Op::going_on(write);
        send(&mut op)?;
        self.activity = Activity::Writing(op);
        Poll::Ready(Ok(len))
    }

    /// Waits for the operation that is under way, and returns its error.
    fn poll_flush(&mut self, cx: &mut Context<'_>, opened: &Opened) -> Poll<io::Result<()>> {
        let mut wait = std::mem::take(&mut self.wait);
        let settled = self.poll_settle(cx, opened, &mut wait);
        self.wait = wait;
        ready!(settled)?;
        Poll::Ready(self.take_error())
    }

    fn poll_seek(
        &mut self,
        cx: &mut Context<'_>,
        opened: &Arc<Opened>,
        to: SeekFrom,
    ) -> Poll<io::Result<u64>> {
        // Any other operation that is under way is waited for.
        if !matches!(&self.activity, Activity::Seeking(other, _) if *other == to) {
            ready!(self.poll_flush(cx, opened))?;
            ready!(self.at_once.begin_at_once(cx))?;
            check_place()?;
            self.rewind(opened);
            if !matches!(to, SeekFrom::End(_)) {
                got_at_once();
                let sought = io::Seek::seek(&mut opened.std(), to);
                return Poll::Ready(sought.map_err(|error| opened.failed("seek in", error)));
            }
            // To find the end of the file, a file system may have to ask another machine.
            let file = opened.clone();
            let seek = blocking(move || io::Seek::seek(&mut file.std(), to));
            self.activity = Activity::Seeking(to, shield(seek)); // shielded, because it moves the cursor in any case
        }
        let Activity::Seeking(_, seek) = &mut self.activity else { return Poll::Pending };
        let sought = ready!(Pin::new(seek).poll(cx));
        self.activity = Activity::None;
        Poll::Ready(match sought {
            Ok(sought) => sought.map_err(|error| opened.failed("seek in", error)),
            Err(error) => Err(io::Error::other(error)),
        })
    }
}

/// Ends a poll that found the file not settled. PROMISED
fn rest(cx: &mut Context<'_>, wait: &mut Wait) -> Poll<io::Result<()>> {
    if wait.is_cancelled() {
        wait.end();
        return Poll::Ready(Err(Cancelled.into()));
    }
    wait.rest(cx, &"a file");
    Poll::Pending
}

/// Waits until a promised write is done, all of it.
fn poll_written(op: &mut Op<WriteAt<Vec<u8>>>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    loop {
        let Some(outcome) = op.outcome(cx.waker()) else { return Poll::Pending };
        match end_of(outcome) {
            Some(Ok(0)) => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
            Some(written) => return Poll::Ready(written.map(drop)),
            // The runtime that worked on it has ended: the rest is done in this one.
            None => send(op)?,
        }
    }
}

/// Methods for callers with exclusive access: no lock is needed, nor taken.
impl File {
    fn parts(&mut self) -> (&mut Cursor, &Arc<Opened>) {
        (self.cursor.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()), &self.opened)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let (cursor, opened) = self.parts();
        cursor.poll_read(cx, opened, buffer)
    }

    fn poll_read_vectored(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = buffers.iter_mut().find(|buffer| !buffer.is_empty());
        self.poll_read(cx, first.map_or(&mut [], |buffer| &mut *buffer))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let (cursor, opened) = self.parts();
        cursor.poll_write(cx, opened, slices)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (cursor, opened) = self.parts();
        cursor.poll_flush(cx, opened)
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

impl_read!(File);
impl_write!(File);

impl futures_io::AsyncSeek for File {
    fn poll_seek(self: Pin<&mut Self>, cx: &mut Context<'_>, to: SeekFrom) -> Poll<io::Result<u64>> {
        let (cursor, opened) = self.get_mut().parts();
        cursor.poll_seek(cx, opened, to)
    }
}
