//! Protocols over byte streams: a wait that ends early is resumed where it stopped.

use dapple::io::{
    AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Partial, Prefix, copy, duplex, how_far,
};
use dapple::sim;
use dapple::time::{sleep, timeout};
use dapple::{finish, is_cancelled};

use super::{Anything, Log, STEP, entries, is_gone, join, note, unless_gone};

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_frame_that_was_cut_is_taken_up_where_it_ended() -> Result<(), Anything> {
    let frames: Vec<Vec<u8>> = (1..=4).map(|number| vec![number; 5 * number as usize]).collect();
    let (received, ended) = (Log::<Vec<u8>>::default(), Log::<&str>::default());
    let (got, ends, sent) = (received.clone(), ended.clone(), frames.clone());
    sim::check_after(async move {
        let got = entries(&got);
        assert!(sent.starts_with(&got), "{got:?}");
        if entries(&ends).len() == 2 {
            assert_eq!(got, sent, "both sides have ended");
        }
    });
    let (mut near, far) = duplex(8);
    let reader = dapple::spawn({
        let ended = ended.clone();
        async move {
            let mut frames = far.frames().prefix(Prefix::U16);
            loop {
                // Bytes of a frame that were read are kept, so that a cancelled wait can be tried again.
                match finish(async |_| frames.next_frame().await).await {
                    Ok(Some(frame)) => note(&received, frame),
                    Ok(None) => break note(&ended, "reader"),
                    Err(error) if is_cancelled(&error) => sleep(STEP).await?,
                    Err(error) => return unless_gone::<()>(Err(error)).map(drop),
                }
            }
            Ok(())
        }
    });
    for frame in frames {
        let bytes = [&(frame.len() as u16).to_be_bytes()[..], &frame].concat();
        let mut done = 0;
        while done < bytes.len() {
            match finish(async |_| near.write_all(&bytes[done..]).await).await {
                Ok(()) => break,
                Err(error) if is_cancelled(&error) => done += how_far(&error).unwrap() as usize,
                Err(error) => return Ok(unless_gone::<()>(Err(error)).map(drop)?),
            }
        }
    }
    drop(near);
    note(&ended, "writer");
    join(vec![reader]).await
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_line_is_not_lost_by_a_read_that_ends_early() -> Result<(), Anything> {
    const LINES: [&str; 5] = ["one", "two and more", "", "three", "the end"];
    let (received, ended) = (Log::<String>::default(), Log::<()>::default());
    let (got, ends) = (received.clone(), ended.clone());
    sim::check_after(async move {
        let got = entries(&got);
        // A writer that was stopped may have left half a line, which is the last one.
        let (last, whole) = got.split_last().map_or(("", &[][..]), |(last, whole)| (last.as_str(), whole));
        assert!(LINES.iter().zip(whole).all(|(line, got)| line == got), "{got:?}");
        assert!(got.is_empty() || LINES[whole.len()].starts_with(last), "{got:?}");
        assert!(entries(&ends).len() < 2 || got == LINES, "both sides have ended: {got:?}");
    });
    let (mut near, far) = duplex(4);
    let writer = dapple::spawn({
        let ended = ended.clone();
        async move {
            for line in LINES {
                near.write_all(line.as_bytes()).await?;
                sleep(STEP).await?;
                near.write_all(b"\n").await?;
            }
            note(&ended, ());
            Ok(())
        }
    });
    let mut lines = BufReader::new(far).lines();
    loop {
        let tried = timeout(STEP * 3 / 4, lines.next_line()).await;
        let was_late = tried.is_err();
        match tried.unwrap_or_else(|late| late.into_inner().unwrap()) {
            Ok(Some(line)) => note(&received, line),
            Ok(None) => break note(&ended, ()),
            Err(error) if was_late && is_cancelled(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    join(vec![writer]).await
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_copy_that_was_cancelled_is_taken_up_with_its_rest() -> Result<(), Anything> {
    let source: Vec<u8> = (0..60).collect();
    let (arrived, ended) = (Log::<Vec<u8>>::default(), Log::<&str>::default());
    let (got, ends, sent) = (arrived.clone(), ended.clone(), source.clone());
    sim::check_after(async move {
        let got = entries(&got);
        assert!(got.iter().all(|got| sent.starts_with(got)), "{got:?}");
        assert!(entries(&ends).len() < 2 || got == [sent], "nothing is lost, nothing doubled: {got:?}");
    });
    let ((mut near, mut inlet), (mut outlet, mut far)) = (duplex(16), duplex(8));
    let writer = dapple::spawn({
        let ended = ended.clone();
        async move {
            near.write_all(&source).await?;
            note(&ended, "writer");
            Ok(())
        }
    });
    let reader = dapple::spawn(async move {
        let mut all = Vec::new();
        let read = far.read_to_end(&mut all).await;
        note(&arrived, all);
        read.map(drop)
    });
    let mut rest = Vec::new();
    loop {
        let pass_on = async {
            let written = outlet.write_all(&rest).await;
            let done =
                written.as_ref().map_or_else(|error| how_far(error).unwrap() as usize, |()| rest.len());
            rest.drain(..done);
            written?;
            let copied = copy(&mut inlet, &mut outlet).await;
            if let Err(error) = &copied {
                rest.extend(Partial::of(error).unwrap().rest());
            }
            copied
        };
        match finish(async |_| pass_on.await).await {
            Ok(_) => break,
            Err(error) if is_cancelled(&error) => sleep(STEP).await?,
            Err(error) => {
                unless_gone::<()>(Err(error))?;
                return Ok(());
            }
        }
    }
    drop(outlet);
    let read = reader.await?;
    if read.is_ok() {
        note(&ended, "reader");
    }
    join(vec![writer]).await
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn a_pipeline_passes_on_a_prefix_of_whole_numbers() -> Result<(), Anything> {
    const COUNT: u32 = 6;
    let (received, ended) = (Log::<u32>::default(), Log::<()>::default());
    let (got, ends) = (received.clone(), ended.clone());
    sim::check_after(async move {
        let (got, all) = (entries(&got), (0..COUNT).map(|number| 2 * number + 1).collect::<Vec<_>>());
        assert!(all.starts_with(&got), "{got:?}");
        assert!(entries(&ends).len() < 3 || got == all, "all stages have ended: {got:?}");
    });
    let ((mut source, mut first), (mut second, mut sink)) = (duplex(6), duplex(3));
    let producer = dapple::spawn({
        let ended = ended.clone();
        async move {
            for number in 0..COUNT {
                source.write_u32(number).await?;
            }
            note(&ended, ());
            Ok(())
        }
    });
    let stage = dapple::spawn({
        let ended = ended.clone();
        async move {
            loop {
                match first.read_u32().await {
                    Ok(number) => second.write_u32(2 * number + 1).await?,
                    // The end, between two numbers or within one.
                    Err(error) if is_gone(&error) => break assert!(how_far(&error) < Some(4)),
                    Err(error) => return Err(error),
                }
            }
            note(&ended, ());
            Ok(())
        }
    });
    loop {
        match sink.read_u32().await {
            Ok(number) => note(&received, number),
            Err(error) if is_gone(&error) => {
                let next = 2 * entries(&received).len() as u32 + 1;
                let rest = Partial::of(&error).map_or(&[][..], Partial::rest);
                assert!(next.to_be_bytes().starts_with(rest), "half of another number: {rest:?}");
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    note(&ended, ());
    join(vec![producer, stage]).await
}
