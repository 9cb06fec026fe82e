//! Lines, other parts, and frames: limits, what is kept when a wait is lost, and errors.

use std::io::ErrorKind;

use crate::common::{Event, runtime, watched};
use crate::io_common::{Script, Step, bytes, poll_times};
use dapple::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Partial, Prefix, how_far};
use futures_lite::StreamExt;

#[test]
fn lines_end_in_several_ways() {
    watched(|| {
        runtime(1).block_on(async {
            for capacity in [1, 2, 3, 100] {
                let text = "one\ntwo\r\n\nä\r\rx\nlast";
                let mut lines = BufReader::with_capacity(capacity, text.as_bytes()).lines();
                let mut got = Vec::new();
                while let Some(line) = lines.next_line().await.unwrap() {
                    got.push(line);
                }
                assert_eq!(got, ["one", "two", "", "ä\r\rx", "last"]);
                assert_eq!(lines.next_line().await.unwrap(), None, "and again");
            }
            let lines: Vec<_> = (&b"a\r\nb\r"[..]).lines().map(Result::unwrap).collect().await;
            assert_eq!(lines, ["a", "b\r"], "half an end is none");
            let lines: Vec<_> = (&b"a\nb\n"[..]).lines().map(Result::unwrap).collect().await;
            assert_eq!(lines, ["a", "b"]);
            let parts: Vec<_> = BufReader::new(&b"a,,b"[..]).split(b',').map(Result::unwrap).collect().await;
            assert_eq!(parts, [&b"a"[..], b"", b"b"]);
        });
    });
}

#[test]
fn a_line_is_as_long_as_the_maximum_and_not_longer() {
    watched(|| {
        runtime(1).block_on(async {
            for capacity in [1, 3, 100] {
                let reader = BufReader::with_capacity(capacity, &b"abcd\nabcdefgh\nx\nabcdef"[..]);
                let mut lines = reader.lines().max(5);
                assert_eq!(lines.next_line().await.unwrap().unwrap(), "abcd");
                let error = lines.next_line().await.unwrap_err();
                assert_eq!((error.kind(), how_far(&error)), (ErrorKind::InvalidData, Some(5)));
                assert_eq!(Partial::of(&error).unwrap().rest(), b"abcde");
                assert!(error.to_string().contains("a line of more than 5 bytes"), "{error}");
                assert_eq!(lines.next_line().await.unwrap().unwrap(), "x", "told once");
                assert_eq!(lines.next_line().await.unwrap_err().kind(), ErrorKind::InvalidData);
                for _ in 0..2 {
                    assert_eq!(lines.next_line().await.unwrap(), None, "its rest is no line");
                }

                let parts = BufReader::with_capacity(capacity, &b"abc,,a,abc"[..]).split(b',').max(2);
                let parts: Vec<_> = parts.map(|part| part.map_err(|error| error.kind())).collect().await;
                let too_long = Err(ErrorKind::InvalidData);
                assert_eq!(parts, [too_long.clone(), Ok(vec![]), Ok(b"a".to_vec()), too_long]);

                let mut lines = BufReader::with_capacity(capacity, &b"abcde"[..]).lines().max(5);
                assert_eq!(lines.next_line().await.unwrap().unwrap(), "abcde", "the end is no byte");
            }
            // For ever without an end: it does not take all memory.
            let mut lines = BufReader::new(futures_lite::io::repeat(b'x')).lines();
            let error = lines.next_line().await.unwrap_err();
            assert_eq!(how_far(&error), Some(1 << 20));

            let mut reader = &b"abcdef\n"[..];
            let mut line = String::new();
            let error = reader.read_line_limited(&mut line, 3).await.unwrap_err();
            assert_eq!((error.kind(), &line[..], reader), (ErrorKind::InvalidData, "abc", &b"def\n"[..]));
            assert_eq!(reader.read_line_limited(&mut line, 4).await.unwrap(), 4);
            assert_eq!(line, "abcdef\n");
        });
    });
}

#[test]
fn what_is_not_text_is_in_the_error_and_the_next_line_comes() {
    watched(|| {
        runtime(1).block_on(async {
            let mut lines = (&b"good\nb\xffd\nagain\n"[..]).lines();
            assert_eq!(lines.next_line().await.unwrap().unwrap(), "good");
            let error = lines.next_line().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData);
            assert_eq!(Partial::of(&error).unwrap().rest(), b"b\xffd");
            assert_eq!(lines.next_line().await.unwrap().unwrap(), "again");

            // Line by line, and every byte turns up once, wherever the buffer ends.
            for capacity in 1..8 {
                let bytes = b"a\xff\xe2\x82b\n\xf0\x9f\n\xc3\xa4\xff\nz\xe2";
                let mut reader = BufReader::with_capacity(capacity, &bytes[..]);
                let mut got = Vec::new();
                loop {
                    let mut line = String::new();
                    match reader.read_line(&mut line).await {
                        Ok(0) => break,
                        Ok(_) => got.push((line, vec![])),
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::InvalidData);
                            let rest = Partial::of(&error).unwrap().rest();
                            assert_eq!(how_far(&error), Some((line.len() + rest.len()) as u64));
                            got.push((line, rest.to_vec()));
                        }
                    }
                }
                let expected: [(&str, &[u8]); 8] = [
                    ("a", b"\xff"),
                    ("", b"\xe2\x82"),
                    ("b\n", b""),
                    ("", b"\xf0\x9f"),
                    ("\n", b""),
                    ("ä", b"\xff"),
                    ("\n", b""),
                    ("z", b"\xe2"),
                ];
                let expected = expected.map(|(line, rest)| (line.to_owned(), rest.to_vec()));
                assert_eq!(got, expected, "capacity {capacity}");
            }
        });
    });
}

#[test]
fn a_character_may_be_cut_in_two() {
    watched(|| {
        runtime(1).block_on(async {
            for capacity in 1..6 {
                let mut reader = BufReader::with_capacity(capacity, "aä€𝄞z\nx".as_bytes());
                let mut line = String::new();
                assert_eq!(reader.read_line(&mut line).await.unwrap(), 12);
                assert_eq!(line, "aä€𝄞z\n");
            }
            let mut reader = BufReader::with_capacity(1, &"a€".as_bytes()[..3]);
            let mut line = String::new();
            let error = reader.read_line(&mut line).await.unwrap_err();
            assert_eq!((error.kind(), &line[..]), (ErrorKind::InvalidData, "a"));
            assert_eq!(Partial::of(&error).unwrap().rest(), &"€".as_bytes()[..2]);
        });
    });
}

#[test]
fn what_was_read_is_kept_when_a_wait_is_dropped() {
    watched(|| {
        runtime(1).block_on(async {
            let script =
                || Script::reads([bytes("on"), Step::GiveWay, bytes("e\ntw"), Step::GiveWay, bytes("o\n")]);
            let mut lines = BufReader::new(script()).lines();
            assert!(poll_times(1, lines.next_line()).await.is_none());
            assert_eq!(lines.next_line().await.unwrap().unwrap(), "one");
            assert!(poll_times(1, lines.next_line()).await.is_none());
            assert_eq!(lines.next_line().await.unwrap().unwrap(), "two");

            let mut reader = BufReader::new(script());
            let (mut part, mut line) = (Vec::new(), String::new());
            assert!(poll_times(1, reader.read_until(b'\n', &mut part)).await.is_none());
            assert_eq!(part, b"on");
            assert_eq!(reader.read_until(b'\n', &mut part).await.unwrap(), 2);
            assert_eq!(part, b"one\n");
            assert!(poll_times(1, reader.read_line(&mut line)).await.is_none());
            assert_eq!(reader.read_line(&mut line).await.unwrap(), 2);
            assert_eq!(line, "two\n");
        });
    });
}

#[test]
fn what_was_read_is_kept_when_a_wait_is_cancelled() {
    watched(|| {
        let rt = runtime(1);
        let asked = Event::default();
        let reader = Script::reads([bytes("on"), Step::Never(asked.clone())]);
        let task = rt.spawn(async move {
            let mut lines = BufReader::new(reader).lines();
            let first = lines.next_line().await.unwrap_err();
            // Begun late: no effect, though a line is there.
            lines.get_mut().get_mut().reads = [bytes("e\n")].into();
            let late = lines.next_line().await.unwrap_err();
            (first, late, lines)
        });
        asked.wait();
        task.cancel();
        let (first, late, mut lines) = rt.block_on(task).unwrap();
        assert!(dapple::is_cancelled(&first) && dapple::is_cancelled(&late));
        assert_eq!(how_far(&first), Some(2));
        assert_eq!(rt.block_on(lines.next_line()).unwrap().unwrap(), "one");
    });
}

#[test]
fn lines_of_memory_give_way() {
    watched(|| {
        let rt = runtime(1);
        let reading = rt.spawn(async {
            let mut lines = BufReader::new(futures_lite::io::repeat(b'\n')).lines();
            loop {
                if let Err(error) = lines.next_line().await {
                    return error;
                }
            }
        });
        rt.block_on(rt.spawn(async {})).unwrap();
        reading.cancel();
        assert!(dapple::is_cancelled(&rt.block_on(reading).unwrap()));
    });
}

const PREFIXES: [Prefix; 7] =
    [Prefix::U8, Prefix::U16, Prefix::U16Le, Prefix::U32, Prefix::U32Le, Prefix::U64, Prefix::U64Le];

#[test]
fn frames_come_out_as_they_went_in() {
    watched(|| {
        runtime(1).block_on(async {
            for prefix in PREFIXES {
                let mut frames: Vec<Vec<u8>> = vec![vec![], vec![7], (0..255).collect()];
                if prefix != Prefix::U8 {
                    frames.push(vec![9; 65_535]);
                }
                let mut to = Script::writes([Step::Room(1), Step::GiveWay, Step::Room(2)]);
                for frame in &frames {
                    to.write_frame(prefix, frame).await.unwrap();
                }
                let written = to.written();
                let got: Vec<_> =
                    BufReader::new(&written[..]).frames().prefix(prefix).map(Result::unwrap).collect().await;
                assert!(got == frames, "{prefix:?}");
            }
            let error = Vec::new().write_frame(Prefix::U8, &[0; 256]).await.unwrap_err();
            assert_eq!((error.kind(), how_far(&error)), (ErrorKind::InvalidInput, Some(0)));
        });
    });
}

#[test]
fn frames_that_are_too_long_or_cut_short_are_errors() {
    watched(|| {
        runtime(1).block_on(async {
            let mut frames = (&b"\0\0\0\x05hello"[..]).frames().max(4);
            let error = frames.next_frame().await.unwrap_err();
            assert_eq!((error.kind(), how_far(&error)), (ErrorKind::InvalidData, Some(4)));
            for _ in 0..2 {
                assert_eq!(frames.next_frame().await.unwrap(), None, "told once");
            }
            assert_eq!(frames.into_inner(), (&b"hello"[..], b"\0\0\0\x05".to_vec()));

            let error = (&[0xff; 8][..]).frames().prefix(Prefix::U64).max(usize::MAX - 1).next_frame().await;
            assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidData);

            for cut in 1..9 {
                let mut frames = (&b"\0\0\0\x05hello"[..cut]).frames();
                let error = frames.next_frame().await.unwrap_err();
                assert_eq!((error.kind(), how_far(&error)), (ErrorKind::UnexpectedEof, Some(cut as u64)));
                assert_eq!(frames.next_frame().await.unwrap(), None, "told once");
                assert_eq!(frames.into_inner().1, b"\0\0\0\x05hello"[..cut], "all that was read");
            }

            // A reader that says that it was cut off has not ended.
            let mut frames = Script::reads([Step::Fails(ErrorKind::UnexpectedEof)]).frames();
            assert_eq!(frames.next_frame().await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        });
    });
}

#[test]
fn a_frame_survives_waits_that_are_dropped() {
    watched(|| {
        runtime(1).block_on(async {
            let mut script = Script::default();
            for byte in *b"\0\0\0\x05hello" {
                script.reads.extend([bytes([byte]), Step::GiveWay]);
            }
            let mut frames = script.frames();
            let mut polls = 0;
            let frame = loop {
                polls += 1;
                if let Some(frame) = poll_times(1, frames.next_frame()).await {
                    break frame.unwrap().unwrap();
                }
            };
            assert_eq!((&frame[..], polls), (&b"hello"[..], 9));
        });
    });
}
