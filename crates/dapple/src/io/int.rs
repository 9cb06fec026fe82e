//! Reading and writing of numbers of a fixed length.

use std::io;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::{AsyncRead, AsyncWrite};

use super::error::Partial;
use super::read::{Filled, ended_early, poll_fill};
use super::write::poll_write_all;
use crate::cancel::wait::Wait;

/// The length of the longest number.
const MAX: usize = 16;

/// A number that can be read and written: a signed or unsigned integer of 1, 2, 4, 8 or 16 bytes, `f32`
/// or `f64`.
///
/// # Examples
///
/// ```
/// use dapple::io::{AsyncReadExt, AsyncWriteExt};
///
/// # dapple::run(async {
/// let mut bytes = Vec::new();
/// bytes.write_f64(0.5).await?; // f64 is an `Int`, as far as its bytes matter
/// assert_eq!((&bytes[..]).read_f64().await?, 0.5);
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
pub trait Int: sealed::Sealed + Copy + Unpin {}

mod sealed {
    pub trait Sealed {
        const LEN: usize;
        fn from_be(bytes: [u8; super::MAX]) -> Self;
        fn to_be(self) -> [u8; super::MAX];
    }
}

macro_rules! int {
    ($($int:ty)*) => {$(
        impl Int for $int {}

        impl sealed::Sealed for $int {
            const LEN: usize = size_of::<$int>();

            /// Uses the first bytes, most significant first.
            fn from_be(bytes: [u8; MAX]) -> $int {
                let mut own = [0; size_of::<$int>()];
                own.copy_from_slice(&bytes[..Self::LEN]);
                <$int>::from_be_bytes(own)
            }

            fn to_be(self) -> [u8; MAX] {
                let mut bytes = [0; MAX];
                bytes[..Self::LEN].copy_from_slice(&self.to_be_bytes());
                bytes
            }
        }
    )*};
}

int! { u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 }

/// The future of [`AsyncReadExt::read_u16`](super::AsyncReadExt::read_u16) and the like.
///
/// # Examples
///
/// ```
/// use dapple::io::AsyncReadExt;
///
/// # dapple::run(async {
/// let mut reader = &b"\x00\x01\x02\x00"[..];
/// assert_eq!(reader.read_u16().await?, 1);
/// assert_eq!(reader.read_u16_le().await?, 2);
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct ReadInt<'a, R: ?Sized, N> {
    reader: &'a mut R,
    bytes: [u8; MAX],
    done: usize,
    little: bool,
    wait: Wait,
    _int: PhantomData<N>,
}

impl<'a, R: ?Sized, N> ReadInt<'a, R, N> {
    pub(super) fn new(reader: &'a mut R, little: bool) -> ReadInt<'a, R, N> {
        ReadInt { reader, bytes: [0; MAX], done: 0, little, wait: Wait::default(), _int: PhantomData }
    }
}

impl<R: AsyncRead + Unpin + ?Sized, N: Int> Future for ReadInt<'_, R, N> {
    type Output = io::Result<N>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<N>> {
        let this = &mut *self;
        let own = &mut this.bytes[..N::LEN];
        let filled = ready!(poll_fill(this.reader, &mut this.wait, cx, own, &mut this.done));
        let read = || own[..this.done].to_vec();
        match filled {
            Ok(Filled::Wholly) => {}
            Ok(Filled::Partly) => return Poll::Ready(Err(ended_early(this.done, read(), N::LEN))),
            Err(error) => return Poll::Ready(Err(Partial::error(this.done as u64, read(), error))),
        }
        if this.little {
            own.reverse();
        }
        Poll::Ready(Ok(N::from_be(this.bytes)))
    }
}

/// The future of [`AsyncWriteExt::write_u16`](super::AsyncWriteExt::write_u16) and the like.
///
/// # Examples
///
/// ```
/// use dapple::io::AsyncWriteExt;
///
/// # dapple::run(async {
/// let mut bytes = Vec::new();
/// bytes.write_u16(1).await?;
/// bytes.write_u16_le(2).await?;
/// assert_eq!(bytes, [0, 1, 2, 0]);
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct WriteInt<'a, W: ?Sized, N> {
    writer: &'a mut W,
    bytes: [u8; MAX],
    done: usize,
    wait: Wait,
    _int: PhantomData<N>,
}

impl<'a, W: ?Sized, N: Int> WriteInt<'a, W, N> {
    pub(super) fn new(writer: &'a mut W, int: N, little: bool) -> WriteInt<'a, W, N> {
        let mut bytes = int.to_be();
        if little {
            bytes[..N::LEN].reverse();
        }
        WriteInt { writer, bytes, done: 0, wait: Wait::default(), _int: PhantomData }
    }
}

impl<W: AsyncWrite + Unpin + ?Sized, N: Int> Future for WriteInt<'_, W, N> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let own = &this.bytes[..N::LEN];
        let written = ready!(poll_write_all(this.writer, &mut this.wait, cx, own, &mut this.done));
        Poll::Ready(written.map_err(|error| Partial::error(this.done as u64, Vec::new(), error)))
    }
}
