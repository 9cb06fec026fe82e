//! Room: a buffered writer takes all slices that fit, and reading to the end keeps to the room that it was given.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::common::{runtime, watched};
use crate::io_common::{Script, bytes};
use dapple::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, BufWriter};

/// A writer that counts its calls, and takes all slices of each.
#[derive(Default)]
struct Slices(Vec<Vec<u8>>);

impl AsyncWrite for Slices {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = slices.iter().flat_map(|slice| slice.iter().copied()).collect::<Vec<_>>();
        self.0.push(bytes);
        Poll::Ready(Ok(self.0.last().unwrap().len()))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[test]
fn a_buffered_writer_takes_all_slices_that_fit() {
    watched(|| {
        runtime(1).block_on(async {
            let all: Vec<u8> = (0..100).collect();
            let slices = |ends: &[usize]| {
                let starts = std::iter::once(0).chain(ends.iter().copied());
                starts.zip(ends).map(|(start, end)| IoSlice::new(&all[start..*end])).collect::<Vec<_>>()
            };
            // All of them, into the buffer.
            let mut to = BufWriter::with_capacity(16, Slices::default());
            assert_eq!(to.write_vectored(&slices(&[3, 3, 5, 10])).await.unwrap(), 10);
            assert_eq!((to.buffer(), to.get_ref().0.len()), (&all[..10], 0));
            // No more room: the buffer is emptied before.
            assert_eq!(to.write_vectored(&slices(&[3, 9])).await.unwrap(), 9);
            assert_eq!((to.buffer(), &to.get_ref().0[..]), (&all[..9], &[all[..10].to_vec()][..]));
            // Many small ones: as much as fits, and never one by one.
            let small: Vec<usize> = (1..=40).collect();
            assert_eq!(to.write_vectored(&slices(&small)).await.unwrap(), 16);
            assert_eq!((to.buffer(), to.get_ref().0.len()), (&all[..16], 2));
            // A large one, and one behind a small one, pass through, with all that follows.
            assert_eq!(to.write_vectored(&slices(&[50, 60])).await.unwrap(), 60);
            assert_eq!((to.buffer(), to.get_ref().0.len()), (&[][..], 4));
            assert_eq!(to.write_vectored(&slices(&[2, 2, 70, 72])).await.unwrap(), 72);
            assert_eq!((to.buffer(), to.get_ref().0.len()), (&[][..], 5));
            assert_eq!(to.write_vectored(&[]).await.unwrap(), 0);
            let written = [&all[..10], &all[..9], &all[..16], &all[..60], &all[..72]].concat();
            assert_eq!(to.get_ref().0.concat(), written);
        });
    });
}

/// Room for exactly what there is, for a little more, and for a little less; from readers that give it in parts.
#[test]
fn reading_to_the_end_keeps_to_the_room_that_is_enough() {
    watched(|| {
        runtime(1).block_on(async {
            for len in [1, 10, 31, 32, 33, 100, 5_000, 70_000] {
                for more in [0, 1, 10, 31, 32, 40, 4096] {
                    for part in [len, 7 + len / 100, 1 + len / 3] {
                        let text = "x".repeat(len);
                        let script = || Script::reads(text.as_bytes().chunks(part).map(bytes));
                        let mut into = Vec::with_capacity(len + more);
                        let (start, capacity) = (into.as_ptr(), into.capacity());
                        assert_eq!(script().read_to_end(&mut into).await.unwrap(), len);
                        assert_eq!((into.as_ptr(), into.capacity()), (start, capacity), "{len} and {more}");
                        let mut into = String::with_capacity(len + more);
                        let (start, capacity) = (into.as_ptr(), into.capacity());
                        assert_eq!(script().read_to_string(&mut into).await.unwrap(), len);
                        assert_eq!((into.as_ptr(), into.capacity()), (start, capacity), "{len} and {more}");
                        assert_eq!(into, text);
                        // Behind what is there.
                        let mut into = Vec::with_capacity(5 + len);
                        into.extend(b"first");
                        let capacity = into.capacity();
                        script().read_to_end(&mut into).await.unwrap();
                        assert_eq!((into.capacity(), into.len()), (capacity, 5 + len));
                        // Too little: it grows, but not without bounds.
                        let mut into = Vec::with_capacity(len / 2 + 1);
                        script().read_to_end(&mut into).await.unwrap();
                        assert_eq!(into, text.as_bytes());
                        assert!(into.capacity() <= 2 * len + (64 << 10), "{} for {len}", into.capacity());
                    }
                }
            }
            let mut into = String::from("as it was");
            let error = Script::reads([bytes(b"\xff")]).read_to_string(&mut into).await.unwrap_err();
            assert_eq!((error.kind(), &into[..]), (ErrorKind::InvalidData, "as it was"));
        });
    });
}
