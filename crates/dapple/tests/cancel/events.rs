//! Protocols over timers and callbacks.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use dapple::event::{self, Callback, Registration};
use dapple::sim;
use dapple::time::{Duration, Instant, interval, sleep, sleep_until, timeout};
use dapple::{Cancelled, Color, ColorCell, JoinHandle};

use super::Anything;

const STEP: Duration = Duration::from_millis(1);

type Log<T> = Arc<Mutex<Vec<T>>>;

fn note<T>(log: &Log<T>, entry: T) {
    log.lock().unwrap().push(entry);
}

fn entries<T: Clone>(log: &Log<T>) -> Vec<T> {
    log.lock().unwrap().clone()
}

fn count<T: PartialEq>(log: &Log<T>, entry: &T) -> usize {
    log.lock().unwrap().iter().filter(|noted| *noted == entry).count()
}

async fn join<T>(tasks: Vec<JoinHandle<Result<T, Anything>>>) -> Result<(), Anything> {
    for task in tasks {
        task.await??;
    }
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn a_callback_is_called_once_or_its_drop_closure_is_or_it_was_withdrawn() -> Result<(), Anything> {
    let (called, refused, withdrawn) = (Log::default(), Log::default(), Log::<(usize, usize)>::default());
    let (calls, refusals, withdrawals) = (called.clone(), refused.clone(), withdrawn.clone());
    sim::check_after(async move {
        let calls_of = |number| (count(&calls, &number), count(&refusals, &number));
        for number in [1, 3] {
            let (calls, refusals) = calls_of(number);
            assert_eq!(calls + refusals, 1, "{number} was left, and is called or refused");
        }
        for (number, calls_by_then) in entries(&withdrawals) {
            let (calls, refusals) = calls_of(number);
            assert_eq!(calls, calls_by_then, "{number} was called after it was withdrawn");
            assert!(calls + refusals <= 1, "{number}: {calls} and {refusals}");
        }
    });
    let color = Color::new();
    let register = |number: usize| {
        let (called, refused) = (called.clone(), refused.clone());
        let callback = Callback::new(move || note(&called, number)).color(&color);
        event::after(STEP * number as u32, callback.or_else(move || note(&refused, number)))
    };
    register(1).detach();
    register(3).detach();
    let registrations: Vec<Registration> = [2, 4, 5].map(register).into();
    sleep(STEP * 9 / 2).await?; // so 2 and 4 were called, and 5 was not
    for (registration, number) in registrations.into_iter().zip([2, 4, 5]) {
        registration.withdraw().await?;
        note(&withdrawn, (number, count(&called, &number)));
    }
    sleep(STEP).await?;
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn a_debounced_search_runs_once_after_each_pause() -> Result<(), Anything> {
    const QUIET: Duration = Duration::from_millis(3);
    let (typed, searched, refused) = (Log::<Instant>::default(), Log::default(), Log::default());
    let (keys, searches, refusals) = (typed.clone(), searched.clone(), refused.clone());
    let is_held = Arc::new(AtomicBool::new(true)); // until the last registration is detached
    let holds = is_held.clone();
    sim::check_after(async move {
        let (keys, searches) = (entries(&keys), entries(&searches));
        for (number, when) in &searches {
            assert!(*when >= keys[*number] + QUIET, "search {number} was early");
            assert!(keys.get(number + 1).is_none_or(|next| when <= next), "search {number} was replaced");
        }
        for number in 0..keys.len() {
            // A timer may be late, so that only the last one is called for sure.
            let is_left = number + 1 == keys.len() && !holds.load(Relaxed);
            let times = searches.iter().filter(|(searched, _)| *searched == number).count();
            let fates = times + count(&refusals, &number);
            assert!(fates <= 1 && (!is_left || fates == 1), "search {number}: {times} times");
        }
    });
    let (color, mut pending) = (Color::new(), None);
    for (number, pause) in [1, 1, 5, 2, 1, 6, 1].into_iter().enumerate() {
        let (searched, refused) = (searched.clone(), refused.clone());
        let search = Callback::new(move || note(&searched, (number, Instant::now()))).color(&color);
        drop(pending.take());
        note(&typed, Instant::now());
        pending = Some(event::after(QUIET, search.or_else(move || note(&refused, number))));
        sleep(STEP * pause).await?;
    }
    pending.into_iter().for_each(Registration::detach);
    is_held.store(false, Relaxed);
    Ok(())
}

/// Collects items, and passes them on when there are enough of them, or after a while.
#[derive(Default)]
struct Batcher {
    buffer: Vec<usize>,
    timer: Option<Registration>,
    batches: Vec<Vec<usize>>,
}

impl Batcher {
    const MOST: usize = 3;

    fn flush(&mut self) {
        self.timer = None;
        self.batches.extend(Some(std::mem::take(&mut self.buffer)).filter(|batch| !batch.is_empty()));
    }

    /// Adds an item. Called in the color of the cell.
    fn push(cell: &Arc<ColorCell<Batcher>>, item: usize) {
        cell.with(|batcher| {
            batcher.buffer.push(item);
            if batcher.buffer.len() == Batcher::MOST {
                return batcher.flush();
            }
            batcher.timer.get_or_insert_with(|| {
                let (on_time, refused) = (cell.clone(), cell.clone());
                let flush = Callback::new(move || on_time.with(Batcher::flush)).color(&Color::current());
                event::after(2 * STEP, flush.or_else(move || refused.with(Batcher::flush)))
            });
        });
    }
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn a_batcher_passes_on_each_item_once_and_in_time() -> Result<(), Anything> {
    let color = Color::new();
    let (cell, submitted) = (Arc::new(ColorCell::in_color(&color, Batcher::default())), Log::default());
    let (home, after, items) = (color.clone(), cell.clone(), submitted.clone());
    sim::check_after(async move {
        let look = move || after.with(|batcher| (batcher.buffer.clone(), batcher.batches.clone()));
        let (buffer, batches) = home.call(look).await.unwrap();
        assert_eq!(buffer, [0; 0], "items were left behind");
        assert!(batches.iter().all(|batch| (1..=Batcher::MOST).contains(&batch.len())), "{batches:?}");
        assert_eq!(batches.concat(), entries(&items));
    });
    let producer = |first: usize| {
        let (color, cell, submitted) = (color.clone(), cell.clone(), submitted.clone());
        dapple::spawn(async move {
            for item in first..first + 5 {
                let cell = cell.clone();
                note(&submitted, item);
                color.call(move || Batcher::push(&cell, item)).await?;
                sleep(STEP * (item % 3) as u32).await?;
            }
            Ok::<(), Anything>(())
        })
    };
    join([10, 21].map(producer).into()).await
}

#[dapple::test(cancel_everywhere, seeds = 3, workers = 3)]
async fn a_chain_of_callbacks_goes_on_to_its_end() -> Result<(), Anything> {
    const STEPS: usize = 6;
    let (colors, log) = (Arc::new([Color::new(), Color::new(), Color::new()]), Log::default());
    let (begun, steps) = (Arc::new(AtomicUsize::new(0)), log.clone());
    let chains = begun.clone();
    sim::check_after(async move {
        for chain in 0..chains.load(Relaxed) {
            let of_chain = entries(&steps).into_iter().filter(|(of, _)| *of == chain);
            let order: Vec<_> = of_chain.map(|(_, step)| step).collect();
            assert_eq!(order, (0..STEPS).collect::<Vec<_>>(), "chain {chain}");
        }
    });
    type Done = Box<dyn FnOnce() + Send>;
    fn step(colors: Arc<[Color; 3]>, log: Log<(usize, usize)>, at: (usize, usize), done: Done) {
        let color = colors[(at.0 + at.1) % 3].clone();
        let run = Callback::new(move || {
            note(&log, at);
            sim::work(STEP / 10);
            match at.1 + 1 {
                STEPS => done(),
                next => step(colors, log, (at.0, next), done),
            }
        });
        event::now(run.color(&color)).detach();
    }
    for chain in 0..3 {
        begun.fetch_add(1, Relaxed);
        let (colors, log) = (colors.clone(), log.clone());
        let end = dapple::suspend(move |resume| {
            step(colors, log, (chain, 0), Box::new(move || resume.resume(()).unwrap_or_default()));
            || {} // a chain that has begun goes on
        });
        end.await?;
        sleep(STEP).await?;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Watch {
    Finished,
    Barked,
    Refused,
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn a_watchdog_barks_if_and_only_if_the_heartbeat_stops() -> Result<(), Anything> {
    let (color, log) = (Color::new(), Log::default());
    let dog = Arc::new(ColorCell::in_color(&color, None::<Registration>));
    let (fates, kept) = (log.clone(), dog.clone());
    sim::check_after(async move {
        assert_eq!(entries(&fates).len(), 1, "{:?}", entries(&fates));
        drop(kept);
    });
    /// Replaces the watchdog, unless it has barked. Called in its color.
    fn feed(dog: &ColorCell<Option<Registration>>, log: &Log<Watch>) -> bool {
        let is_alive = entries(log).is_empty();
        if is_alive {
            let (barked, refused) = (log.clone(), log.clone());
            let bark = Callback::new(move || note(&barked, Watch::Barked)).color(&Color::current());
            let bark = bark.or_else(move || note(&refused, Watch::Refused));
            dog.with(|dog| *dog = Some(event::after(5 * STEP, bark)));
        }
        is_alive
    }
    let (first, fates) = (dog.clone(), log.clone());
    color.call(move || feed(&first, &fates)).detach();
    let mut beats = interval(2 * STEP);
    for _ in 0..5 {
        beats.tick().await?;
        let (dog, log) = (dog.clone(), log.clone());
        if !color.call(move || feed(&dog, &log)).await? {
            return Ok(()); // too late
        }
    }
    let finish = move || {
        if entries(&log).is_empty() {
            dog.with(|dog| drop(dog.take()));
            note(&log, Watch::Finished);
        }
    };
    color.call(finish).await?;
    Ok(())
}

/// Jobs by their deadlines, with one timer for the first.
#[derive(Default)]
struct Schedule {
    jobs: BTreeSet<(Instant, usize)>,
    timer: Option<Registration>,
    run: Vec<(Instant, usize)>,
    refused: usize,
}

type Scheduler = Arc<ColorCell<Schedule>>;

/// Sets the timer anew. Called in the color of the scheduler.
fn arm(scheduler: &Scheduler) {
    scheduler.with(|schedule| {
        schedule.timer = schedule.jobs.first().map(|(deadline, _)| {
            let (due, refused) = (scheduler.clone(), scheduler.clone());
            let callback = Callback::new(move || run_due(&due)).color(&Color::current());
            event::at(*deadline, callback.or_else(move || refused.with(|schedule| schedule.refused += 1)))
        });
    });
}

fn run_due(scheduler: &Scheduler) {
    scheduler.with(|schedule| {
        while schedule.jobs.first().is_some_and(|(deadline, _)| *deadline <= Instant::now()) {
            schedule.run.extend(schedule.jobs.pop_first());
        }
    });
    arm(scheduler);
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn a_scheduler_runs_each_job_once_and_loses_none() -> Result<(), Anything> {
    let color = Color::new();
    let scheduler: Scheduler = Arc::new(ColorCell::in_color(&color, Schedule::default()));
    let (home, after, accepted) = (color.clone(), scheduler.clone(), Arc::new(AtomicUsize::new(0)));
    let jobs = accepted.clone();
    sim::check_after(async move {
        let look =
            move || after.with(|schedule| (schedule.run.clone(), schedule.jobs.len(), schedule.refused));
        let (run, left, refused) = home.call(look).await.unwrap();
        let mut numbers: Vec<_> = run.iter().map(|(_, number)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), run.len(), "a job ran twice: {run:?}");
        assert_eq!(run.len() + left, jobs.load(Relaxed), "a job is lost");
        assert!(left == 0 || refused > 0, "{left} jobs were left behind");
    });
    let client = |number: usize| {
        let (color, scheduler, accepted) = (color.clone(), scheduler.clone(), accepted.clone());
        dapple::spawn(async move {
            for job in 0..3 {
                let deadline = Instant::now() + STEP * ((7 * number + 3 * job) % 10) as u32;
                let scheduler = scheduler.clone();
                accepted.fetch_add(1, Relaxed);
                let submit = move || {
                    scheduler.with(|schedule| schedule.jobs.insert((deadline, 10 * number + job)));
                    run_due(&scheduler);
                };
                color.call(submit).await?;
                sleep_until(deadline).await?;
                let after = Instant::now();
                assert!(after >= deadline, "{after:?} is before {deadline:?}");
            }
            Ok::<(), Anything>(())
        })
    };
    join((0..3).map(client).collect()).await
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn a_periodic_callback_stops_when_it_is_withdrawn() -> Result<(), Anything> {
    let (calls, stopped) = (Log::<(usize, Instant)>::default(), Log::default());
    let (after, ends) = (calls.clone(), stopped.clone());
    let begun = Instant::now();
    sim::check_after(async move {
        let calls = entries(&after);
        let of = |job: usize| calls.iter().filter(move |(of, _)| *of == job).map(|(_, when)| *when);
        for (job, calls) in entries(&ends) {
            assert_eq!(of(job).count(), calls, "job {job} was called after it was withdrawn");
        }
        assert!(of(0).count() <= 3, "it broke off after three calls");
        for job in 0..3 {
            let period = STEP * (job as u32 + 2);
            let rounds: Vec<_> = of(job).map(|when| (when - begun).as_nanos() / period.as_nanos()).collect();
            assert!(rounds.is_sorted_by(|one, two| one < two), "twice in a period: {rounds:?}");
        }
    });
    let mut jobs = Vec::new();
    for job in 0..3 {
        let (color, calls) = (Color::new(), calls.clone());
        let mut left = 3;
        let call = Callback::new(move || {
            note(&calls, (job, Instant::now()));
            sim::work(STEP / 10);
            left -= 1;
            if job == 0 && left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        jobs.push(event::every(STEP * (job as u32 + 2), call.color(&color)));
    }
    sleep(12 * STEP).await?;
    for (job, registration) in jobs.into_iter().enumerate() {
        registration.withdraw().await?;
        let calls = entries(&calls).iter().filter(|(of, _)| *of == job).count();
        note(&stopped, (job, calls));
        sleep(2 * STEP).await?;
    }
    Ok(())
}

/// Sends a request whose answer comes by a callback, in the given color.
async fn request(attempt: u32, latency: Duration, color: &Color, given: &Log<u32>) -> Result<u32, Cancelled> {
    let waiting = dapple::suspend(|resume| {
        let given = given.clone();
        let answer = Callback::new(move || {
            if resume.resume(attempt).is_ok() {
                note(&given, attempt);
            }
        });
        let answer = event::after(latency, answer.color(color));
        move || drop(answer)
    });
    waiting.await
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn an_answer_that_was_given_is_received() -> Result<(), Anything> {
    let (given, received, ended) = (Log::default(), Log::<u32>::default(), Arc::new(AtomicUsize::new(0)));
    let (answers, results, clients) = (given.clone(), received.clone(), ended.clone());
    sim::check_after(async move {
        let (mut answers, mut results) = (entries(&answers), entries(&results));
        answers.sort_unstable();
        results.sort_unstable();
        // A client that was dropped takes at most one answer with it.
        let lost = answers.iter().filter(|answer| !results.contains(answer)).count();
        assert!(lost + clients.load(Relaxed) <= 2, "given {answers:?}, received {results:?}");
        assert!(results.iter().all(|result| answers.contains(result)), "{results:?} of {answers:?}");
        results.dedup();
        assert!(results.len() <= answers.len());
    });
    let client = |number: u32| {
        let (given, received, ended) = (given.clone(), received.clone(), ended.clone());
        dapple::spawn(async move {
            // The callbacks of one client run in the color of its task, those of the other elsewhere.
            let color = if number == 0 { Color::current() } else { Color::new() };
            let mut result = Ok(());
            for (attempt, latency) in [5, 3, 4, 1].into_iter().enumerate() {
                let attempt = 10 * number + attempt as u32;
                // The second answer comes about when the time is up.
                let tried =
                    timeout(3 * STEP + STEP / 8, request(attempt, STEP * latency, &color, &given)).await;
                let was_late = tried.is_err();
                let answer = tried.unwrap_or_else(|late| late.into_inner().unwrap());
                if let Ok(answer) = answer {
                    note(&received, answer);
                } else if !was_late {
                    result = Err(Cancelled.into());
                    break;
                }
            }
            ended.fetch_add(1, Relaxed);
            result
        })
    };
    join((0..2).map(client).collect()).await
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 3)]
async fn money_on_its_way_arrives_if_its_sender_is_cancelled() -> Result<(), Anything> {
    struct Actor {
        color: Color,
        balance: ColorCell<i64>,
    }
    let actor = || {
        let color = Color::new();
        Arc::new(Actor { balance: ColorCell::in_color(&color, 50), color })
    };
    async fn balance(actor: &Arc<Actor>) -> Result<i64, Anything> {
        let of = actor.clone();
        Ok(actor.color.call(move || of.balance.with(|balance| *balance)).await?)
    }
    let (one, two) = (actor(), actor());
    let (near, far, sent) = (one.clone(), two.clone(), Arc::new(Mutex::new(0)));
    let total = sent.clone();
    sim::check_after(async move {
        let moved = *total.lock().unwrap();
        assert_eq!(balance(&near).await.unwrap(), 50 - moved);
        assert_eq!(balance(&far).await.unwrap(), 50 + moved);
    });
    let teller = |amount: i64| {
        let (one, two, sent) = (one.clone(), two.clone(), sent.clone());
        dapple::spawn(async move {
            for _ in 0..3 {
                let (source, target) = (one.clone(), two.clone());
                *sent.lock().unwrap() += amount;
                let transfer = one.color.call(move || {
                    source.balance.with(|balance| *balance -= amount);
                    sim::work(STEP / 10);
                    let home = target.color.clone();
                    event::now(
                        Callback::new(move || target.balance.with(|balance| *balance += amount)).color(&home),
                    )
                });
                transfer.await?.await?;
            }
            balance(&one).await
        })
    };
    join((1..=3).map(teller).collect()).await
}

#[dapple::test(cancel_everywhere)]
async fn a_tick_is_not_lost_by_a_wait_that_ends_early() -> Result<(), Anything> {
    let (begun, ticks) = (Instant::now(), Log::<Instant>::default());
    let after = ticks.clone();
    sim::check_after(async move {
        for (number, tick) in entries(&after).into_iter().enumerate() {
            assert_eq!(tick, begun + 5 * STEP * number as u32, "tick {number}");
        }
    });
    let mut clock = interval(5 * STEP);
    while entries(&ticks).len() < 6 {
        // Two waits per tick end before the tick.
        match timeout(2 * STEP + STEP / 4, clock.tick()).await {
            Ok(tick) => note(&ticks, tick?),
            Err(late) => late.into_inner().unwrap().into_iter().for_each(|tick| note(&ticks, tick)),
        }
    }
    Ok(())
}
