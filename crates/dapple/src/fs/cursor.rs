//! A file with a cursor: reading and writing through the traits of streams.
//!
//! The cursor is the kernel's, so that duplicates of a file share it, and that files which have none (pipes,
//! terminals) work. A file of ours alone is read and written by position, and the cursor moved afterwards; of a
//! file whose cursor others may use, a thread of the pool reads and writes, by calls that move it. At most one operation is under way with it. A read that a future has left behind stays here,
//! and the next one gets what it got. A write is copied and goes on by itself.
//!
//! # Invariants
//!
//! * **ONE-AT-A-TIME**: at most one operation that moves the cursor is under way, and it is in `activity`.
//! * **PROMISED**: a write whose length was returned is not cancelled, only the wait for it is. The ring or the pool
//!   does all of it, also if the file is dropped (GOES-ON in `driver::ring`). If it fails, the error is kept in `error`
//!   until the caller is told; if the file is dropped before, the failure is counted.
//! * **AHEAD**: the kernel's cursor is ahead of ours by what is in `left`.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, SeekFrom};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};

use super::at_once;
use super::file::{File, Opened};
use super::operation::{Operation, check_place, end_of, send};
use super::request::{CURSOR, ReadAt, WriteAt};
use crate::driver::ring::failures::Failures;
use crate::driver::ring::node::Op;
use crate::net::traits::{impl_read, impl_write};
use crate::prim::{Mutex, lock};
use crate::task::wait::{Wait, got_at_once, is_lost, wake};
use crate::{Cancelled, JoinHandle, blocking};

/// The most that is copied at once, in either direction.
const MOST: usize = 2 << 20;

#[derive(Default)]
pub(super) struct Cursor {
    /// ONE-AT-A-TIME
    activity: Activity,
    /// What was read and not given out: `left.0[left.1..]`. AHEAD
    left: (Vec<u8>, usize),
    /// PROMISED
    error: Option<Untold>,
    /// Memory to be used again.
    spare: Vec<u8>,
    /// Of who has the file for himself, and reads, writes or seeks.
    wait: Wait,
    /// Of an operation that is done at once, or goes on as an `Activity`.
    at_once: Wait,
    /// Who waits for what is under way: several may, since much is done through a `&File`.
    crowd: Option<(Arc<Crowd>, Waker)>,
}

/// The error of a promised write, until it is told; if it never is, it is counted.
struct Untold {
    error: Option<io::Error>,
    opened: Arc<Opened>,
    failures: Option<Arc<Failures>>,
}

impl Untold {
    fn tell(mut self) -> io::Error {
        let error = self.error.take().expect("told once");
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
    /// It goes on by itself.
    Writing(Op<WriteAt<Vec<u8>>>),
    /// By a thread of the pool.
    Seeking(SeekFrom, JoinHandle<io::Result<u64>>),
}

#[derive(Default)]
struct Crowd(Mutex<Vec<Waker>>);

impl Crowd {
    fn join(&self, waker: &Waker) {
        let waker = waker.clone(); // foreign code, not under the lock
        let mut crowd = lock(&self.0);
        if crowd.iter().any(|other| other.will_wake(&waker)) {
            drop(crowd);
            return drop(waker);
        }
        crowd.push(waker);
    }
}

impl Wake for Crowd {
    fn wake(self: Arc<Self>) {
        std::mem::take(&mut *lock(&self.0)).into_iter().for_each(wake);
    }
}

impl Cursor {
    /// Whether nothing is under way.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.activity, Activity::None)
    }

    /// What went wrong with an earlier write.
    pub(super) fn take_error(&mut self) -> io::Result<()> {
        self.error.take().map_or(Ok(()), |untold| Err(untold.tell()))
    }

    /// Waits until nothing is under way. What was read stays here; what went wrong with a write, too.
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
        let (crowd, waker) = self.crowd.get_or_insert_with(|| {
            let crowd = Arc::<Crowd>::default();
            (crowd.clone(), Waker::from(crowd))
        });
        crowd.join(cx.waker());
        let waker = waker.clone();
        if self.poll_activity(&mut Context::from_waker(&waker), opened).is_ready() {
            wait.end();
            waker.wake(); // the others
            return Poll::Ready(Ok(()));
        }
        if wait.is_cancelled() {
            wait.end();
            return Poll::Ready(Err(Cancelled.into())); // PROMISED
        }
        wait.rest(cx, &"a file");
        Poll::Pending
    }

    /// Waits until what is under way is done; whatever came of it is kept.
    fn poll_activity(&mut self, cx: &mut Context<'_>, opened: &Opened) -> Poll<()> {
        match &mut self.activity {
            Activity::None => {}
            Activity::Reading(read) => {
                read.give_up(); // nobody waits for it, and it may wait for somebody else
                let (result, request) = ready!(Pin::new(read).poll(cx));
                let (mut buffer, at) = (request.buffer, request.at);
                // What there was to be told of a read that nobody waits for will be told by the next.
                if let Ok(n) = result {
                    // SAFETY: the kernel has written so many bytes to its room.
                    unsafe { super::BufferMut::filled(&mut buffer, n as usize) };
                    opened.move_cursor(at, n as usize);
                    self.left = (buffer, 0);
                }
            }
            Activity::Writing(op) => {
                let written = ready!(poll_written(op, cx));
                let request = op.take();
                if let Err(error) = written {
                    let untold = Untold { error: Some(error), opened: request.file, failures: op.failures() };
                    self.error = Some(untold);
                }
                self.spare = request.buffer;
            }
            Activity::Seeking(_, seek) => drop(ready!(Pin::new(seek).poll(cx))),
        }
        self.activity = Activity::None;
        Poll::Ready(())
    }

    /// Moves the kernel's cursor back to ours. AHEAD
    pub(super) fn rewind(&mut self, opened: &Opened) {
        let ahead = self.left.0.len() - self.left.1;
        // What has no cursor keeps it, for the next read.
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
                // SAFETY: what is initialised is also possibly not, and only bytes are written to it.
                let room = unsafe { &mut *(std::ptr::from_mut(buffer) as *mut [MaybeUninit<u8>]) };
                if let Some(result) = at_once::read(opened, room, CURSOR) {
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
            // What it reads would be dropped: it stays here, for the next read. EXACT
            if is_lost() {
                return Poll::Ready(Err(Cancelled.into()));
            }
            let (result, request) = ready!(Pin::new(read).poll(cx));
            self.activity = Activity::None;
            let (mut own, at) = (request.buffer, request.at);
            let n = result.map_err(|error| opened.failed("read", error))? as usize;
            opened.move_cursor(at, n);
            // SAFETY: the kernel has written so many bytes to its room.
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

    /// Waits for what is under way, and tells what went wrong with it.
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
        // Another that was left behind is waited for, as all else.
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
            // Where the end is, a file system may have to ask for elsewhere.
            let file = opened.clone();
            self.activity = Activity::Seeking(to, blocking(move || io::Seek::seek(&mut file.std(), to)));
        }
        let Activity::Seeking(_, seek) = &mut self.activity else { return Poll::Pending };
        let sought = ready!(Pin::new(seek).poll(cx));
        self.activity = Activity::None;
        Poll::Ready(match sought {
            Ok(sought) => sought.map_err(|error| opened.failed("seek in", error)),
            Err(error) if error.is_cancelled() => Err(Cancelled.into()),
            Err(error) => Err(io::Error::other(error)),
        })
    }
}

/// Waits until a write that goes on by itself is done, all of it.
fn poll_written(op: &mut Op<WriteAt<Vec<u8>>>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    loop {
        let Some(outcome) = op.outcome(cx.waker()) else { return Poll::Pending };
        match end_of(outcome) {
            Some(Ok(0)) => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
            Some(written) => return Poll::Ready(written.map(drop)),
            // The runtime that was at it has ended: the rest is done in this one.
            None => send(op)?,
        }
    }
}

/// They are for who has the file for himself: no lock is needed, nor taken.
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
