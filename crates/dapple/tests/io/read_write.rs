//! Reading and writing in several steps: nothing is lost, and errors say how far it got.

use std::io::{ErrorKind, IoSlice, IoSliceMut};

use crate::common::{Event, Random, runtime, watched};
use crate::io_common::{Script, Step, bytes, poll_times};
use dapple::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, BufWriter, Partial,
    Prefix, copy, how_far, sink, stderr, stdin, stdout,
};
use dapple::net::UnixStream;

#[test]
fn exact_reads_and_their_errors() {
    watched(|| {
        runtime(1).block_on(async {
            let mut from = Script::reads([
                bytes("ab"),
                Step::Fails(ErrorKind::Interrupted),
                Step::GiveWay,
                bytes("cd"),
                bytes("e"),
                Step::Fails(ErrorKind::ConnectionReset),
            ]);
            let mut buffer = [0; 4];
            from.read_exact(&mut buffer).await.unwrap();
            assert_eq!(&buffer, b"abcd");
            let error = from.read_exact(&mut buffer).await.unwrap_err();
            assert_eq!((error.kind(), how_far(&error)), (ErrorKind::ConnectionReset, Some(1)));
            assert_eq!(&buffer, b"ebcd");
            let error = from.read_exact(&mut buffer).await.unwrap_err();
            assert_eq!((error.kind(), how_far(&error)), (ErrorKind::UnexpectedEof, Some(0)));
            from.read_exact(&mut []).await.unwrap();
        });
    });
}

#[test]
fn a_cancelled_read_exact_reports_the_bytes_read() {
    watched(|| {
        let rt = runtime(2);
        let (near, mut far) = rt.block_on(async { UnixStream::pair().unwrap() });
        rt.block_on(far.write_all(b"abc")).unwrap();
        let begun = Event::default();
        let task = rt.spawn({
            let (mut near, begun) = (near, begun.clone());
            async move {
                let mut buffer = [0; 8];
                let mut reading = Box::pin(near.read_exact(&mut buffer));
                let result = std::future::poll_fn(|cx| {
                    let polled = reading.as_mut().poll(cx);
                    begun.set();
                    polled
                })
                .await;
                drop(reading);
                (result, buffer)
            }
        });
        begun.wait();
        task.cancel();
        let (result, buffer) = rt.block_on(task).unwrap();
        let error = result.unwrap_err();
        assert!(dapple::is_cancelled(&error));
        assert_eq!((how_far(&error), &buffer[..3]), (Some(3), &b"abc"[..]));
    });
}

#[test]
fn a_write_of_everything_that_is_cancelled_says_how_much_was_written() {
    watched(|| {
        let rt = runtime(2);
        let (mut near, mut far) = rt.block_on(async { UnixStream::pair().unwrap() });
        let all: Vec<u8> = (0..4 << 20).map(|i| (i % 253) as u8).collect();
        let begun = Event::default();
        let task = rt.spawn({
            let (all, begun) = (all.clone(), begun.clone());
            async move {
                let mut writing = Box::pin(near.write_all(&all));
                let result = std::future::poll_fn(|cx| {
                    let polled = writing.as_mut().poll(cx);
                    begun.set();
                    polled
                })
                .await;
                drop(writing);
                (result, near)
            }
        });
        begun.wait();
        task.cancel();
        let (result, near) = rt.block_on(task).unwrap();
        drop(near);
        let error = result.unwrap_err();
        assert!(dapple::is_cancelled(&error));
        let mut got = Vec::new();
        rt.block_on(far.read_to_end(&mut got)).unwrap();
        assert_eq!(how_far(&error), Some(got.len() as u64));
        assert!(got == all[..got.len()]);
    });
}

#[test]
fn a_cancelled_read_to_end_leaves_its_bytes_with_the_caller() {
    watched(|| {
        runtime(1).block_on(async {
            let mut from = Script::reads([bytes("ab"), Step::GiveWay, bytes("cd")]);
            let mut into = b"x".to_vec();
            assert!(poll_times(1, from.read_to_end(&mut into)).await.is_none());
            assert_eq!(into, b"xab", "dropped early");
            assert_eq!(from.read_to_end(&mut into).await.unwrap(), 2);
            assert_eq!(into, b"xabcd");

            let mut from = Script::reads([bytes("ab"), Step::Fails(ErrorKind::TimedOut)]);
            let error = from.read_to_end(&mut into).await.unwrap_err();
            assert_eq!((error.kind(), how_far(&error)), (ErrorKind::TimedOut, Some(2)));
            assert_eq!(into, b"xabcdab");

            let large: Vec<u8> = (0..300_000).map(|i| (i % 251) as u8).collect();
            let mut into = Vec::new();
            assert_eq!((&large[..]).read_to_end(&mut into).await.unwrap(), large.len());
            assert!(into == large);
        });
    });
}

#[test]
fn text_that_is_none_is_in_the_error() {
    watched(|| {
        runtime(1).block_on(async {
            let mut text = "x".to_owned();
            let error = (&b"ab\xff"[..]).read_to_string(&mut text).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData);
            assert_eq!(Partial::of(&error).unwrap().rest(), b"ab\xff");
            assert_eq!(text, "x");
            assert_eq!("äö".as_bytes().read_to_string(&mut text).await.unwrap(), 4);
            assert_eq!(text, "xäö");
        });
    });
}

#[test]
fn numbers_in_both_orders() {
    watched(|| {
        runtime(1).block_on(async {
            let mut to = Vec::new();
            to.write_u8(1).await.unwrap();
            to.write_u16(0x0203).await.unwrap();
            to.write_u32(0x0405_0607).await.unwrap();
            to.write_u64(0x0809_0a0b_0c0d_0e0f).await.unwrap();
            assert_eq!(to, (1..=15).collect::<Vec<u8>>());
            to.write_u16_le(0x0203).await.unwrap();
            to.write_u32_le(0x0405_0607).await.unwrap();
            to.write_u64_le(0x0809_0a0b_0c0d_0e0f).await.unwrap();
            let mut from = BufReader::with_capacity(3, &to[..]);
            assert_eq!(from.read_u8().await.unwrap(), 1);
            assert_eq!(from.read_u16().await.unwrap(), 0x0203);
            assert_eq!(from.read_u32().await.unwrap(), 0x0405_0607);
            assert_eq!(from.read_u64().await.unwrap(), 0x0809_0a0b_0c0d_0e0f);
            assert_eq!(from.read_u16_le().await.unwrap(), 0x0203);
            assert_eq!(from.read_u32_le().await.unwrap(), 0x0405_0607);
            assert_eq!(from.read_u64_le().await.unwrap(), 0x0809_0a0b_0c0d_0e0f);
            let error = from.read_u8().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);

            let mut to = Vec::new();
            to.write_i8(-1).await.unwrap();
            to.write_i16(-2).await.unwrap();
            to.write_i32_le(-3).await.unwrap();
            to.write_i64(i64::MIN).await.unwrap();
            to.write_u128_le(u128::MAX - 1).await.unwrap();
            to.write_i128(-4).await.unwrap();
            to.write_f32(0.5).await.unwrap();
            to.write_f64_le(-0.25).await.unwrap();
            assert_eq!(to[..7], [0xff, 0xff, 0xfe, 0xfd, 0xff, 0xff, 0xff]);
            let mut from = BufReader::with_capacity(3, &to[..]);
            assert_eq!(from.read_i8().await.unwrap(), -1);
            assert_eq!(from.read_i16().await.unwrap(), -2);
            assert_eq!(from.read_i32_le().await.unwrap(), -3);
            assert_eq!(from.read_i64().await.unwrap(), i64::MIN);
            assert_eq!(from.read_u128_le().await.unwrap(), u128::MAX - 1);
            assert_eq!(from.read_i128().await.unwrap(), -4);
            assert_eq!(from.read_f32().await.unwrap(), 0.5);
            assert_eq!(from.read_f64_le().await.unwrap(), -0.25);

            let error = (&b"abc"[..]).read_u32().await.unwrap_err();
            assert_eq!(Partial::of(&error).unwrap().rest(), b"abc");
            let mut full = Script::writes([Step::Room(2), Step::Room(0)]);
            let error = full.write_u32(1).await.unwrap_err();
            assert_eq!((error.kind(), how_far(&error)), (ErrorKind::WriteZero, Some(2)));
        });
    });
}

#[test]
fn parts_and_chains_of_readers() {
    watched(|| {
        runtime(1).block_on(async {
            let mut text = String::new();
            let mut both = (&b"one\ntw"[..]).take(100).chain(&b"o\nthree"[..]);
            both.read_line(&mut text).await.unwrap();
            both.read_line(&mut text).await.unwrap();
            assert_eq!(text, "one\ntwo\n");
            assert_eq!(both.into_inner().1, b"three");

            let mut few = (&b"abcdef"[..]).take(4);
            let mut two = [0; 3];
            few.read_exact(&mut two).await.unwrap();
            assert_eq!(few.limit(), 1);
            assert_eq!(few.read(&mut two).await.unwrap(), 1);
            assert_eq!(few.read(&mut two).await.unwrap(), 0);
            few.set_limit(1);
            let mut rest = Vec::new();
            few.read_until(b'z', &mut rest).await.unwrap();
            assert_eq!((rest, few.into_inner()), (b"e".to_vec(), &b"f"[..]));
        });
    });
}

#[test]
fn buffers_change_nothing_but_the_number_of_calls() {
    watched(|| {
        runtime(1).block_on(async {
            let mut random = Random(7);
            let all: Vec<u8> = (0..50_000).map(|i| (i % 249) as u8).collect();
            for _ in 0..20 {
                let mut to = Script::default();
                for _ in 0..random.below(400) {
                    let step = match random.below(4) {
                        0 => Step::GiveWay,
                        1 => Step::Fails(ErrorKind::Interrupted),
                        _ => Step::Room(1 + random.below(300) as usize),
                    };
                    to.writes.push_back(step);
                }
                let mut to = BufWriter::with_capacity(random.below(200) as usize, to);
                let mut left = &all[..];
                while !left.is_empty() {
                    let (part, rest) = left.split_at(left.len().min(random.below(500) as usize));
                    to.write_all(part).await.unwrap();
                    left = rest;
                }
                to.flush().await.unwrap();
                assert!(to.get_ref().written() == all && to.buffer().is_empty());

                let mut from = BufReader::with_capacity(random.below(200) as usize, &all[..]);
                let mut got: Vec<u8> = Vec::new();
                loop {
                    let (mut a, mut b) = (vec![0; 1 + random.below(150) as usize], [0; 20]);
                    let mut buffers = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
                    let n = match random.below(2) {
                        0 => from.read_vectored(&mut buffers).await.unwrap(),
                        _ => from.read(&mut buffers[0]).await.unwrap(),
                    };
                    if n == 0 {
                        break;
                    }
                    got.extend(a.iter().chain(&b).take(n));
                }
                assert!(got == all);
            }
        });
    });
}

#[test]
fn a_buffered_writer_keeps_unwritten_bytes() {
    watched(|| {
        runtime(1).block_on(async {
            let script = Script::writes([Step::Room(2), Step::Fails(ErrorKind::TimedOut)]);
            let mut to = BufWriter::new(script);
            to.write_all(b"hello").await.unwrap();
            assert_eq!(to.flush().await.unwrap_err().kind(), ErrorKind::TimedOut);
            assert_eq!((to.get_ref().written(), to.buffer()), (b"he".to_vec(), &b"llo"[..]));
            to.write_all(b" again").await.unwrap();
            to.close().await.unwrap();
            assert_eq!(to.get_ref().written(), b"hello again", "nothing twice, nothing lost");
            assert!(to.get_ref().closed);
            let slices = [IoSlice::new(b"a"), IoSlice::new(b"bc")];
            let mut plain = Vec::new();
            assert_eq!(plain.write_vectored(&slices).await.unwrap(), 3);
        });
    });
}

/// Also of readers and writers that are not known yet, if those are.
#[test]
fn the_futures_may_go_to_other_threads() {
    fn check<T: Send + Sync>(_: T) {}

    fn check_all<S: AsyncRead + AsyncWrite + Unpin + Send + Sync>(mut stream: S) {
        check(stream.read(&mut []));
        check(stream.read_exact(&mut []));
        check(stream.read_to_end(&mut Vec::new()));
        check(stream.read_u32());
        check(stream.write_all(&[]));
        check(stream.write_frame(Prefix::U8, &[]));
        check(stream.flush());
        check(copy(&mut stream, sink()));
        let mut lines = BufReader::new(&mut stream).lines();
        check(lines.next_line());
        check(lines);
        check(stream.frames());
    }

    check_all(Script::default());
    check((stdin(), stdout(), stderr()));
    fn check_type<T: Send + Sync>() {}
    check_type::<dapple::process::Child>();
    check_type::<dapple::process::Command>();
    check_type::<dapple::signal::Signal>();
    check_type::<Partial>();
}

#[test]
fn endless_reads_from_memory_yield() {
    watched(|| {
        let rt = runtime(1);
        let reading = rt.spawn(async {
            let mut from = futures_lite::io::repeat(1);
            let mut buffer = [0; 16];
            loop {
                if let Err(error) = from.read_exact(&mut buffer).await {
                    return error;
                }
            }
        });
        rt.block_on(rt.spawn(async {})).unwrap(); // gets its turn
        reading.cancel();
        assert!(dapple::is_cancelled(&rt.block_on(reading).unwrap()));
    });
}
