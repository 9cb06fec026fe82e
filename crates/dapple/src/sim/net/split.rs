//! The halves of a connection in a simulation: one to read, one to write.

use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::arrivals::ArrivalWait;
use super::stream::TcpStream;
use crate::io::foreign::{impl_read, impl_write};
use crate::net::halves::halves;

// The name that `halves!` uses.
use self::SimHalf as StreamHalf;

/// One direction of a stream, shared or borrowed, and the wait of its caller.
#[derive(Debug)]
struct SimHalf<S> {
    source: S,
    wait: ArrivalWait,
}

impl<S: Deref<Target = TcpStream>> SimHalf<S> {
    fn new(source: S) -> SimHalf<S> {
        SimHalf { source, wait: ArrivalWait::default() }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_read_vectored(cx, &mut [IoSliceMut::new(buffer)])
    }

    fn poll_read_vectored(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.source.socket.poll_read(&mut self.wait, cx, buffers)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.source.socket.poll_write(&mut self.wait, cx, slices)
    }
}

halves!(TcpStream, SocketAddr);

macro_rules! peeks {
    ($type:ty) => {
        impl $type {
            /// Waits for bytes and copies them, without taking them: see [`TcpStream::peek`].
            ///
            /// # Errors
            ///
            /// As for [`TcpStream::peek`].
            ///
            /// # Cancellation
            ///
            /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or the bytes if some
            /// were there.
            pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.stream().peek(buffer).await
            }
        }
    };
}

peeks!(ReadHalf<'_>);
peeks!(OwnedReadHalf);
