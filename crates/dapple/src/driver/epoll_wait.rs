//! The wait at an epoll: by `epoll_pwait2`, or by `epoll_pwait` where `epoll_pwait2` is refused.
//!
//! Linux has `epoll_pwait2`, with a timeout in nanoseconds, from 5.11 on. An older kernel answers ENOSYS; so does
//! valgrind 3.19, and the seccomp filter of a container may answer ENOSYS or EPERM. `epoll_pwait` is as old as epoll
//! and takes whole milliseconds. Neither call gives ENOSYS or EPERM for any other reason.
//!
//! # Invariants
//!
//! * **NEVER-EARLY**: a timeout is rounded up to the next millisecond. So a timer does not fire early, and a timer that
//!   is 300 us away is slept for, not spun for.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;

use super::EpollEvent;
use crate::prim::{AtomicBool, Ordering};

/// The most events that are taken from the kernel at a time.
pub(super) const EVENTS: usize = 256;

/// `epoll_pwait2` was refused. Set at the first refusal, for the whole process and for good: the flag guards no other
/// memory, and a thread that reads it late is only refused once more.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

/// Waits for events, for up to `limit`, or for ever, and adds them to `events`.
pub(super) fn wait(
    epoll: impl AsFd,
    events: &mut Vec<EpollEvent>,
    limit: Option<Duration>,
) -> Result<(), Errno> {
    if !IS_REFUSED.load(Ordering::Relaxed) {
        match in_nanos(&epoll, events, limit) {
            Err(Errno::NOSYS | Errno::PERM) => IS_REFUSED.store(true, Ordering::Relaxed),
            waited => return waited,
        }
    }
    in_millis(&epoll, events, limit)
}

#[inline]
fn in_nanos(epoll: &impl AsFd, events: &mut Vec<EpollEvent>, limit: Option<Duration>) -> Result<(), Errno> {
    // A limit that is too long for the kernel's type means no limit.
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    let mut buffer = [const { MaybeUninit::uninit() }; EVENTS];
    let (happened, _) = epoll::wait(epoll, &mut buffer, limit.as_ref())?;
    events.extend(happened.iter().map(|event| (event.data.u64(), event.flags)));
    Ok(())
}

/// By the C library: `rustix` is built for `epoll_pwait2` and knows no other.
#[cold]
fn in_millis(epoll: &impl AsFd, events: &mut Vec<EpollEvent>, limit: Option<Duration>) -> Result<(), Errno> {
    let mut buffer = [const { MaybeUninit::<libc::epoll_event>::uninit() }; EVENTS];
    let (epoll, most) = (epoll.as_fd().as_raw_fd(), EVENTS as libc::c_int);
    let (first, no_mask) = (buffer.as_mut_ptr().cast(), std::ptr::null());
    // SAFETY: the kernel writes at most `EVENTS` events, and the buffer has room for `EVENTS`. A null mask is not read.
    let n = unsafe { libc::epoll_pwait(epoll, first, most, millis(limit), no_mask) };
    let Ok(n) = usize::try_from(n) else {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    };
    events.extend(buffer[..n].iter().map(|event| {
        // SAFETY: the kernel has written the first `n`.
        let libc::epoll_event { u64: token, events } = unsafe { event.assume_init() };
        (token, EventFlags::from_bits_retain(events))
    }));
    Ok(())
}

/// A timeout as `epoll_pwait` takes it; -1 is for ever. A timeout that does not fit is cut to 24 days:
/// the sleeper then wakes, finds nothing to do and sleeps again. NEVER-EARLY
fn millis(limit: Option<Duration>) -> libc::c_int {
    let Some(limit) = limit else { return -1 };
    libc::c_int::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(libc::c_int::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_rounded_up() {
        assert_eq!(millis(None), -1);
        let of_nanos = |nanos| millis(Some(Duration::from_nanos(nanos)));
        assert_eq!([0, 1, 300_000, 999_999].map(of_nanos), [0, 1, 1, 1]);
        assert_eq!([1_000_000, 1_000_001, 2_000_000].map(of_nanos), [1, 2, 2]);
    }

    #[test]
    fn what_is_too_long_is_clamped() {
        let most = Duration::from_millis(i32::MAX as u64);
        let longest = [most, most + Duration::from_nanos(1), Duration::from_secs(1 << 40), Duration::MAX];
        assert_eq!(longest.map(|limit| millis(Some(limit))), [i32::MAX; 4]);
        assert_eq!(millis(Some(most - Duration::from_nanos(1))), i32::MAX);
        assert_eq!(millis(Some(most - Duration::from_millis(1))), i32::MAX - 1);
    }

    #[cfg(not(miri))]
    #[test]
    fn both_calls_tell_the_same() {
        use rustix::event::{EventfdFlags, epoll::EventData, eventfd};

        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let event = eventfd(1, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
        let token = 0x0123_4567_89ab_cdef;
        epoll::add(&epoll, &event, EventData::new_u64(token), EventFlags::IN | EventFlags::OUT).unwrap();
        let (mut nanos, mut millis) = (Vec::new(), Vec::new());
        in_nanos(&epoll, &mut nanos, None).unwrap();
        in_millis(&epoll, &mut millis, None).unwrap();
        assert_eq!(nanos, [(token, EventFlags::IN | EventFlags::OUT)]);
        assert_eq!(nanos, millis);
        assert_eq!(in_nanos(&event, &mut nanos, None), Err(Errno::INVAL));
        assert_eq!(in_millis(&event, &mut millis, None), Err(Errno::INVAL));
    }
}
