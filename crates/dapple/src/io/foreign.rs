//! The I/O traits of others, for our streams of bytes.
//!
//! `impl_read!` and `impl_write!` give a type `futures_io`'s traits always, and tokio's and hyper's
//! with the features `tokio-io` and `hyper`. All of them come down to methods of the type:
//!
//! ```text
//! impl_read!    poll_read, poll_read_vectored
//! impl_write!   poll_write, poll_write_vectored, poll_flush, poll_close
//! ```
//!
//! They take `&mut self`, so that the type must be `Unpin`.

/// Gives a type the traits of what can be read.
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
    // `hyper.rs` has that.
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

/// Gives a type the traits of what can be written to.
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

/// What tokio's and hyper's traits have in common, and `futures_io` calls otherwise.
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

/// How much of a buffer of hyper's is initialised to read into it.
#[cfg(feature = "hyper")]
const MOST_FILLED: usize = 64 * 1024;

/// Reads into a buffer of hyper's what can only be read into an initialised one.
#[cfg(feature = "hyper")]
pub(crate) fn poll_fill(
    mut cursor: hyper::rt::ReadBufCursor<'_>,
    read: impl FnOnce(&mut [u8]) -> std::task::Poll<std::io::Result<usize>>,
) -> std::task::Poll<std::io::Result<()>> {
    // hyper may offer far more than comes at a time.
    let room = cursor.remaining().min(MOST_FILLED);
    let n = std::task::ready!(read(cursor.initialize_unfilled_to(room)))?;
    assert!(n <= room, "read more than there was room for");
    // SAFETY: so many bytes of the buffer and more were initialised above.
    unsafe { cursor.advance(n) };
    std::task::Poll::Ready(Ok(()))
}
