//! The I/O traits of other crates, for the byte streams of this one.
//!
//! `impl_read!` and `impl_write!` give a type `futures_io`'s traits always, and tokio's and hyper's
//! with the features `tokio-io` and `hyper`. All of them call methods of the type:
//!
//! ```text
//! impl_read!    poll_read, poll_read_vectored
//! impl_write!   poll_write, poll_write_vectored, poll_flush, poll_close
//! ```
//!
//! They take `&mut self`, so that the type must be `Unpin`.

/// Implements the reading traits for a type.
macro_rules! impl_read {
    ($type:ty) => {
        crate::io::foreign::impl_read!($type, but hyper);

        #[cfg(feature = "hyper")]
        impl ::hyper::rt::Read for $type {
            #[inline]
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                cursor: ::hyper::rt::ReadBufCursor<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                let this = self.get_mut();
                crate::io::foreign::poll_fill(cursor, |buffer| <$type>::poll_read(this, cx, buffer))
            }
        }
    };
    // `hyper.rs` implements hyper's trait for this type.
    ($type:ty, but hyper) => {
        impl futures_io::AsyncRead for $type {
            #[inline]
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buffer: &mut [u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                <$type>::poll_read(self.get_mut(), cx, buffer)
            }

            #[inline]
            fn poll_read_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buffers: &mut [std::io::IoSliceMut<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                <$type>::poll_read_vectored(self.get_mut(), cx, buffers)
            }
        }

        #[cfg(feature = "tokio-io")]
        impl ::tokio::io::AsyncRead for $type {
            #[inline]
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buffer: &mut ::tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                let n =
                    std::task::ready!(<$type>::poll_read(self.get_mut(), cx, buffer.initialize_unfilled()))?;
                buffer.advance(n);
                std::task::Poll::Ready(Ok(()))
            }
        }
    };
}

/// Implements the writing traits for a type.
macro_rules! impl_write {
    ($type:ty) => {
        impl futures_io::AsyncWrite for $type {
            #[inline]
            fn poll_write(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bytes: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                <$type>::poll_write(self.get_mut(), cx, bytes)
            }

            #[inline]
            fn poll_write_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                slices: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                <$type>::poll_write_vectored(self.get_mut(), cx, slices)
            }

            #[inline]
            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                <$type>::poll_flush(self.get_mut(), cx)
            }

            fn poll_close(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                <$type>::poll_close(self.get_mut(), cx)
            }
        }

        #[cfg(feature = "tokio-io")]
        impl ::tokio::io::AsyncWrite for $type {
            crate::io::foreign::shutting_writer!($type);
        }

        #[cfg(feature = "hyper")]
        impl ::hyper::rt::Write for $type {
            crate::io::foreign::shutting_writer!($type);
        }
    };
}

/// The methods that tokio's and hyper's traits share, and that `futures_io` names differently.
#[cfg_attr(not(any(feature = "hyper", feature = "tokio-io")), expect(unused_macros))]
macro_rules! shutting_writer {
    ($type:ty) => {
        #[inline]
        fn poll_write(
            self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
            bytes: &[u8],
        ) -> std::task::Poll<std::io::Result<usize>> {
            <$type>::poll_write(self.get_mut(), cx, bytes)
        }

        #[inline]
        fn poll_write_vectored(
            self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
            slices: &[std::io::IoSlice<'_>],
        ) -> std::task::Poll<std::io::Result<usize>> {
            <$type>::poll_write_vectored(self.get_mut(), cx, slices)
        }

        #[inline]
        fn is_write_vectored(&self) -> bool {
            true
        }

        #[inline]
        fn poll_flush(
            self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            <$type>::poll_flush(self.get_mut(), cx)
        }

        fn poll_shutdown(
            self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            <$type>::poll_close(self.get_mut(), cx)
        }
    };
}

#[cfg(any(feature = "hyper", feature = "tokio-io"))]
pub(crate) use shutting_writer;
pub(crate) use {impl_read, impl_write};

/// The most bytes of a hyper buffer that are initialised before a read into it.
#[cfg(feature = "hyper")]
const MOST_FILLED: usize = 64 * 1024;

/// Reads into a hyper buffer by a function that needs initialised memory.
#[cfg(feature = "hyper")]
pub(crate) fn poll_fill(
    mut cursor: hyper::rt::ReadBufCursor<'_>,
    read: impl FnOnce(&mut [u8]) -> std::task::Poll<std::io::Result<usize>>,
) -> std::task::Poll<std::io::Result<()>> {
    // hyper may offer far more room than one read fills.
    let room = cursor.remaining().min(MOST_FILLED);
    let n = std::task::ready!(read(cursor.initialize_unfilled_to(room)))?;
    assert!(n <= room, "a reader returned {n} bytes for a buffer of {room}");
    // SAFETY: `room` bytes of the buffer were initialised above, and `n` is at most `room`.
    unsafe { cursor.advance(n) };
    std::task::Poll::Ready(Ok(()))
}
