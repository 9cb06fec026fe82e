//! Protocols over channels: queues, pools and pipelines.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use dapple::channel::{mpsc, oneshot};
use dapple::sim::check_after;
use dapple::sync::Mutex;
use dapple::time::{Duration, sleep, timeout};
use dapple::{Cancelled, shield, spawn};
use futures_util::StreamExt;
use futures_util::future::{Either, select};

use crate::Anything;
use crate::ledger::{InHand, Kept, Ledger, keep, next, room, send_noted, sorted};

const MS: Duration = Duration::from_millis(1);

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_worker_pool_handles_each_job_once() -> Result<(), Anything> {
    let (sender, receiver) = mpsc::bounded::<u32>(2);
    let (jobs, left) = keep(receiver);
    let (sent, done, broken_off) = (Ledger::new(), Ledger::new(), Ledger::new());
    check_after({
        let (sent, done, broken_off) = (sent.clone(), done.clone(), broken_off.clone());
        async move { assert_eq!(sorted(&[done.list(), broken_off.list(), left.drain()]), sent.list()) }
    });
    let jobs = Arc::new(Mutex::new(jobs));
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let (jobs, done, broken_off) = (jobs.clone(), done.clone(), broken_off.clone());
            spawn(async move {
                loop {
                    let Some(job) = next(&mut *jobs.lock().await?).await? else {
                        return Ok::<_, Cancelled>(());
                    };
                    let job = InHand::new(job, &broken_off);
                    sleep(MS * (*job % 3)).await?;
                    done.add(job.done());
                }
            })
        })
        .collect();
    drop(jobs);
    for job in 0..8 {
        send_noted(&sender, job, &sent).await?;
    }
    drop(sender);
    for worker in workers {
        worker.await??;
    }
    assert_eq!(done.len(), 8);
    Ok(())
}

/// Reserves room in `output` before it takes an item, so that it never holds an item while it waits.
async fn stage(mut input: Kept<u32>, output: mpsc::Sender<u32>) -> Result<(), Cancelled> {
    while let Some(room) = room(&output).await? {
        let Some(item) = next(&mut input).await? else { break };
        room.send(item).expect("the receiver is kept");
    }
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 3)]
async fn a_pipeline_of_three_stages_keeps_all_in_order() -> Result<(), Anything> {
    let (source, first) = mpsc::bounded(1);
    let (to_second, second) = mpsc::bounded(1);
    let (to_third, third) = mpsc::bounded(2);
    let ((first, left_first), (second, left_second), (mut third, left_third)) =
        (keep(first), keep(second), keep(third));
    let (sent, stored) = (Ledger::new(), Ledger::new());
    check_after({
        let (sent, stored) = (sent.clone(), stored.clone());
        async move {
            // Items that are further on are older.
            let along = [stored.list(), left_third.drain(), left_second.drain(), left_first.drain()];
            assert_eq!(along.concat(), sent.list());
        }
    });
    let stages = [spawn(stage(first, to_second)), spawn(stage(second, to_third))];
    let store = spawn({
        let stored = stored.clone();
        async move {
            while let Some(item) = next(&mut third).await? {
                stored.add(item);
                sleep(MS).await?;
            }
            Ok::<_, Cancelled>(())
        }
    });
    for item in 0..8 {
        if !send_noted(&source, item, &sent).await? {
            break;
        }
    }
    drop(source);
    for stage in stages {
        stage.await??;
    }
    store.await??;
    assert_eq!(stored.len(), 8);
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_batcher_hands_on_all_that_it_took() -> Result<(), Anything> {
    let (sender, receiver) = mpsc::bounded(3);
    let (batch_sender, batch_receiver) = mpsc::bounded::<Vec<u32>>(1);
    let ((mut items, left), (mut batches, left_batches)) = (keep(receiver), keep(batch_receiver));
    let (sent, written, broken_off) = (Ledger::new(), Ledger::new(), Ledger::new());
    check_after({
        let (sent, written, broken_off) = (sent.clone(), written.clone(), broken_off.clone());
        async move {
            let batches: Vec<Vec<u32>> = [written.list(), left_batches.drain()].concat();
            assert!(batches.iter().all(|batch| (1..=3).contains(&batch.len())), "{batches:?}");
            assert_eq!([batches.concat(), broken_off.list(), left.drain()].concat(), sent.list());
        }
    });
    let batcher = spawn(async move {
        let mut batch: Vec<InHand<u32>> = Vec::new();
        let mut input = Ok(true);
        while let Ok(true) = input {
            input = match select(pin!(next(&mut items)), pin!(sleep(5 * MS))).await {
                Either::Left((Ok(Some(item)), _)) => {
                    batch.push(InHand::new(item, &broken_off));
                    if batch.len() < 3 {
                        continue;
                    }
                    Ok(true)
                }
                Either::Left((Ok(None), _)) => Ok(false),
                Either::Right((Ok(()), _)) => Ok(true),
                Either::Left((Err(error), _)) | Either::Right((Err(error), _)) => Err(error),
            };
            // A batcher that was cancelled writes the batch that it has begun.
            if !batch.is_empty()
                && let Some(room) = shield(room(&batch_sender)).await?
            {
                room.send(batch.drain(..).map(InHand::done).collect()).expect("the receiver is kept");
            }
        }
        input.map(drop)
    });
    let writer = spawn(async move {
        while let Some(batch) = next(&mut batches).await? {
            written.add(batch);
            sleep(2 * MS).await?;
        }
        Ok::<_, Cancelled>(())
    });
    for item in 0..8 {
        sleep(MS * (item % 4) * 2).await?;
        if !send_noted(&sender, item, &sent).await? {
            break;
        }
    }
    drop(sender);
    batcher.await??;
    Ok(writer.await??)
}

#[dapple::test(cancel_everywhere, seeds = 3)]
async fn a_drain_at_shutdown_takes_all_that_was_accepted() -> Result<(), Anything> {
    let (sender, receiver) = mpsc::bounded(2);
    let (mut jobs, left) = keep(receiver);
    let (stop, mut stopped) = oneshot::channel::<()>();
    let (accepted, done, is_drained) = (Ledger::new(), Ledger::new(), Arc::new(AtomicBool::new(false)));
    check_after({
        let (accepted, done, is_drained) = (accepted.clone(), done.clone(), is_drained.clone());
        async move {
            let left = left.drain();
            assert!(left.is_empty() || !is_drained.load(Relaxed), "accepted after the drain: {left:?}");
            assert_eq!(sorted(&[done.list(), left]), sorted(&[accepted.list()]));
        }
    });
    let server = spawn(async move {
        while let Either::Right((Ok(Some(job)), _)) = select(&mut stopped, pin!(next(&mut jobs))).await {
            done.add(job);
        }
        jobs.close();
        shield(async {
            while let Ok(job) = jobs.recv().await {
                done.add(job);
            }
        })
        .await;
        is_drained.store(true, Relaxed);
    });
    let clients: Vec<_> = (0..3)
        .map(|client| {
            let (sender, accepted) = (sender.clone(), accepted.clone());
            spawn(async move {
                for number in 0..3 {
                    let Some(room) = room(&sender).await? else { break };
                    // The job is made while its room is held; the server may close meanwhile.
                    sleep(MS * (client + 1)).await?;
                    room.send((client, number)).expect("the receiver is kept");
                    accepted.add((client, number));
                }
                Ok::<_, Cancelled>(())
            })
        })
        .collect();
    drop(sender);
    sleep(4 * MS).await?;
    let _ = stop.send(());
    for client in clients {
        client.await??;
    }
    Ok(server.await?)
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn fan_out_and_fan_in_lose_nothing() -> Result<(), Anything> {
    let (results, receiver) = mpsc::bounded(1);
    let (mut collected, left_results) = keep(receiver);
    let (inputs, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| mpsc::unbounded::<u32>()).unzip();
    let (receivers, left_inputs): (Vec<_>, Vec<_>) = receivers.into_iter().map(keep).unzip();
    let (sent, squares) = (Ledger::new(), Ledger::new());
    check_after({
        let (sent, squares) = (sent.clone(), squares.clone());
        async move {
            let left =
                left_inputs.iter().flat_map(|left| left.drain()).map(|number| number * number).collect();
            let expected: Vec<u32> = sent.list().iter().map(|number| number * number).collect();
            assert_eq!(sorted(&[squares.list(), left_results.drain(), left]), expected);
        }
    });
    let workers: Vec<_> = receivers
        .into_iter()
        .map(|mut numbers| {
            let results = results.clone();
            spawn(async move {
                while let Some(room) = room(&results).await? {
                    let Some(number) = next(&mut numbers).await? else { break };
                    room.send(number * number).expect("the receiver is kept");
                    sleep(MS).await?;
                }
                Ok::<_, Cancelled>(())
            })
        })
        .collect();
    drop(results);
    for number in 0..9 {
        let input = &inputs[number as usize % 3];
        send_noted(input, number, &sent).await?;
    }
    drop(inputs);
    while let Some(square) = next(&mut collected).await? {
        squares.add(square);
    }
    for worker in workers {
        worker.await??;
    }
    assert_eq!(squares.len(), 9);
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_select_between_two_queues_keeps_the_order_of_each() -> Result<(), Anything> {
    let (urgent_sender, urgent) = mpsc::bounded(1);
    let (normal_sender, normal) = mpsc::bounded(2);
    let ((mut urgent, left_urgent), (mut normal, left_normal)) = (keep(urgent), keep(normal));
    let (sent, handled) = (Ledger::new(), Ledger::new());
    check_after({
        let (sent, handled) = (sent.clone(), handled.clone());
        async move {
            for (kind, left) in [("urgent", left_urgent.drain()), ("normal", left_normal.drain())] {
                let of_kind = |list: Vec<(&'static str, u32)>| {
                    list.into_iter().filter(|message| message.0 == kind).collect::<Vec<_>>()
                };
                assert_eq!([of_kind(handled.list()), left].concat(), of_kind(sent.list()));
            }
        }
    });
    let producers =
        [("urgent", urgent_sender, 3 * MS), ("normal", normal_sender, MS)].map(|(kind, sender, pause)| {
            let sent = sent.clone();
            spawn(async move {
                for number in 0..5 {
                    if !send_noted(&sender, (kind, number), &sent).await? {
                        break;
                    }
                    sleep(pause).await?;
                }
                Ok::<_, Cancelled>(())
            })
        });
    // Urgent messages first. The wait that did not win is dropped.
    loop {
        let first = match select(pin!(next(&mut urgent)), pin!(next(&mut normal))).await {
            Either::Left((message, _)) | Either::Right((message, _)) => message?,
        };
        let Some(message) = first else { break };
        handled.add(message);
    }
    for queue in [&mut urgent, &mut normal] {
        while let Some(message) = next(queue).await? {
            handled.add(message);
        }
    }
    for producer in producers {
        producer.await??;
    }
    assert_eq!(handled.len(), 10);
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_message_that_is_late_comes_back_to_its_sender() -> Result<(), Anything> {
    let (sender, receiver) = mpsc::bounded(1);
    let (mut messages, left) = keep(receiver);
    let (made, sent, handled) = (Ledger::new(), Ledger::new(), Ledger::new());
    let (late, dropped) = (Ledger::new(), Ledger::new());
    check_after({
        let (made, sent, handled) = (made.clone(), sent.clone(), handled.clone());
        let (late, dropped) = (late.clone(), dropped.clone());
        async move {
            let left = left.drain().into_iter().map(InHand::done).collect();
            let arrived = [handled.list(), left].concat();
            assert_eq!(arrived, sent.list());
            assert_eq!(sorted(&[arrived, late.list(), dropped.list()]), made.list());
        }
    });
    let consumer = spawn(async move {
        while let Some(message) = next(&mut messages).await? {
            handled.add(InHand::done(message));
            sleep(5 * MS).await?;
        }
        Ok::<_, Cancelled>(())
    });
    for number in 0..6 {
        made.add(number);
        // A message that is dropped inside of `send` is in the ledger.
        let send = sender.send(InHand::new(number, &dropped));
        let result = match timeout(2 * MS * number, send).await {
            Ok(result) => result,
            Err(elapsed) => elapsed.into_inner().unwrap(),
        };
        match result {
            Ok(()) => sent.add(number),
            Err(error) if error.is_closed() => {
                late.add(error.into_inner().done());
                break;
            }
            // A timeout or a cancel: the next wait shows which of the two.
            Err(error) => late.add(error.into_inner().done()),
        }
    }
    drop(sender);
    Ok(consumer.await??)
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn merged_streams_keep_the_order_of_each() -> Result<(), Anything> {
    let (near_sender, near) = mpsc::bounded(2);
    let (far_sender, far) = mpsc::unbounded();
    let ((mut near, left_near), (mut far, left_far)) = (keep(near), keep(far));
    let (sent, merged) = (Ledger::new(), Ledger::new());
    check_after({
        let (sent, merged) = (sent.clone(), merged.clone());
        async move {
            for (source, left) in [(0, left_near.drain()), (1, left_far.drain())] {
                let of_source = |list: Vec<u32>| {
                    list.into_iter().filter(|number| number % 2 == source).collect::<Vec<_>>()
                };
                assert_eq!([of_source(merged.list()), left].concat(), of_source(sent.list()));
            }
        }
    });
    let producers = [(0, near_sender), (1, far_sender)].map(|(source, sender)| {
        let sent = sent.clone();
        spawn(async move {
            for number in 0..5 {
                if !send_noted(&sender, 2 * number + source, &sent).await? {
                    break;
                }
                sleep(MS * source).await?;
            }
            Ok::<_, Cancelled>(())
        })
    });
    let mut both = futures_util::stream::select(&mut *near, &mut *far);
    while let Some(number) = both.next().await {
        merged.add(number?);
    }
    for producer in producers {
        producer.await??;
    }
    assert_eq!(merged.len(), 10);
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_log_written_in_bulk_has_no_gap() -> Result<(), Anything> {
    let (sender, receiver) = mpsc::bounded(4);
    let (mut lines, left) = keep(receiver);
    let (sent, written) = (Ledger::new(), Ledger::new());
    check_after({
        let (sent, written) = (sent.clone(), written.clone());
        async move { assert_eq!([written.list().concat(), left.drain()].concat(), sent.list()) }
    });
    let writer = spawn({
        let written = written.clone();
        async move {
            loop {
                let mut bulk = Vec::new();
                match lines.recv_many(&mut bulk, 3).await {
                    Ok(count) => assert!(count == bulk.len() && (1..=3).contains(&count)),
                    Err(error) if error.is_closed() => return Ok(()),
                    Err(error) => return Err(Anything::from(error)),
                }
                written.add(bulk);
                sleep(3 * MS).await?;
            }
        }
    });
    for line in 0..12 {
        if line % 5 == 4 {
            sleep(4 * MS).await?;
        }
        if !send_noted(&sender, line, &sent).await? {
            break;
        }
    }
    drop(sender);
    writer.await??;
    assert_eq!(written.list().concat().len(), 12);
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_job_that_fails_is_queued_again_and_ends_once() -> Result<(), Anything> {
    let (sender, receiver) = mpsc::unbounded::<(u32, u32)>();
    let (mut jobs, left) = keep(receiver);
    let (made, done, broken_off) = (Ledger::new(), Ledger::new(), Ledger::new());
    check_after({
        let (made, done, broken_off) = (made.clone(), done.clone(), broken_off.clone());
        async move {
            let left = left.drain().into_iter().map(|(job, _)| job).collect();
            assert_eq!(sorted(&[done.list(), broken_off.list(), left]), made.list());
        }
    });
    // A weak sender does not keep the queue open; a job in hand does, until its last attempt.
    let again = sender.downgrade();
    let worker = spawn({
        let done = done.clone();
        async move {
            while let Some((job, attempt)) = next(&mut jobs).await? {
                let queue = again.upgrade();
                let job = InHand::new(job, &broken_off);
                sleep(MS).await?;
                let has_failed = attempt < *job % 3;
                match queue {
                    Some(queue) if has_failed => {
                        let _ = queue.try_send((job.done(), attempt + 1));
                    }
                    _ => done.add(job.done()),
                }
            }
            Ok::<_, Cancelled>(())
        }
    });
    for job in 0..5 {
        if sender.try_send((job, 0)).is_err() {
            break;
        }
        made.add(job);
        sleep(MS).await?;
    }
    drop(sender);
    worker.await??;
    assert_eq!(done.len(), 5);
    Ok(())
}
