//! Tokens go round between places of all kinds, taken and put in races, timeouts, scopes, shields and tasks that are
//! cancelled. In the end each token is there once: none was lost with a wait, and none came twice.

use std::sync::Arc;

use dapple::channel::{mpmc, mpsc, oneshot};
use dapple::shared::when;
use dapple::sim::random;
use dapple::stm::{TQueue, TVar, atomically};
use dapple::sync::{Condvar, MVar, Mutex, Semaphore};
use dapple::time::{Duration, Elapsed, sleep, timeout};
use dapple::{Shared, finish, race, shield, spawn};

type Token = u64;

/// Where tokens lie.
enum Place {
    Mpmc(mpmc::Sender<Token>, mpmc::Receiver<Token>),
    Mpsc(mpsc::Sender<Token>, Mutex<mpsc::Receiver<Token>>),
    MVar(MVar<Token>),
    Shared(Shared<Vec<Token>>),
    Two(Shared<Vec<Token>>, Shared<Vec<Token>>),
    Queue(TQueue<Token>),
    Var(TVar<Option<Token>>),
    Permits(Semaphore, std::sync::Mutex<Vec<Token>>),
    Condition(Mutex<Vec<Token>>, Condvar),
}

/// The places that have always room.
const ROOMY: [usize; 4] = [3, 5, 7, 8];

fn places() -> Vec<Place> {
    let (many, one) = (mpmc::bounded(2), mpsc::bounded(2));
    vec![
        Place::Mpmc(many.0, many.1),
        Place::Mpsc(one.0, Mutex::new(one.1)),
        Place::MVar(MVar::empty()),
        Place::Shared(Shared::new(Vec::new())),
        Place::Two(Shared::new(Vec::new()), Shared::new(Vec::new())),
        Place::Queue(TQueue::new()),
        Place::Var(TVar::new(None)),
        Place::Permits(Semaphore::new(0), std::sync::Mutex::default()),
        Place::Condition(Mutex::new(Vec::new()), Condvar::new()),
    ]
}

impl Place {
    /// Waits for a token. `None`: the wait was cancelled.
    async fn take(&self) -> Option<Token> {
        match self {
            Place::Mpmc(_, receiver) => receiver.recv().await.ok(),
            Place::Mpsc(_, receiver) => receiver.lock().await.ok()?.recv().await.ok(),
            Place::MVar(place) => {
                if random().is_multiple_of(2) {
                    place.with(|_| ()).await.ok()?;
                }
                place.take().await.ok()
            }
            Place::Shared(tokens) => tokens.when(Vec::pop).await.ok(),
            Place::Two(a, b) => {
                let both = (a.writing(), b.writing());
                when(both, |(a, b)| a.pop().or_else(|| b.pop())).await.ok()
            }
            Place::Queue(queue) => atomically(|tx| queue.pop(tx)).await.ok(),
            Place::Var(var) => {
                let take = atomically(|tx| match tx.modify(var, Option::take)? {
                    Some(token) => Ok(token),
                    None => tx.retry(),
                });
                take.await.ok()
            }
            Place::Permits(permits, tokens) => {
                permits.acquire().await.ok()?.forget();
                tokens.lock().unwrap().pop()
            }
            Place::Condition(tokens, changed) => {
                let mut tokens = tokens.lock().await.ok()?;
                while tokens.is_empty() {
                    let waited;
                    (tokens, waited) = changed.wait(tokens).await;
                    waited.ok()?;
                }
                tokens.pop()
            }
        }
    }

    /// Waits for room, and puts a token there. Hands it back if the wait was cancelled.
    async fn put(&self, token: Token) -> Result<(), Token> {
        match self {
            Place::Mpmc(sender, _) => sender.send(token).await.map_err(|error| error.into_inner()),
            Place::Mpsc(sender, _) => sender.send(token).await.map_err(|error| error.into_inner()),
            Place::MVar(place) => place.put(token).await.map_err(|error| error.into_inner()),
            Place::Shared(tokens) => tokens.write(|tokens| tokens.push(token)).await.map_err(|_| token),
            Place::Two(a, _) if token.is_multiple_of(2) => {
                a.write(|a| a.push(token)).await.map_err(|_| token)
            }
            Place::Two(a, b) => {
                let put = when((a.reading(), b.writing()), |(_, b)| {
                    b.push(token);
                    Some(())
                });
                put.await.map_err(|_| token)
            }
            Place::Queue(queue) => atomically(|tx| queue.push(tx, token)).await.map_err(|_| token),
            Place::Var(var) => {
                let put = atomically(|tx| {
                    let is_free = tx.with(var, Option::is_none)?;
                    tx.check(is_free)?;
                    tx.write(var, Some(token))
                });
                put.await.map_err(|_| token)
            }
            Place::Permits(permits, tokens) => {
                tokens.lock().unwrap().push(token);
                permits.add_permits(1);
                Ok(())
            }
            Place::Condition(tokens, changed) => {
                let mut tokens = tokens.lock().await.map_err(|_| token)?;
                tokens.push(token);
                changed.notify_one();
                Ok(())
            }
        }
    }

    /// All that is left, when there are no waits any more.
    async fn drain(&self) -> Vec<Token> {
        match self {
            Place::Mpmc(_, receiver) => std::iter::from_fn(|| receiver.try_recv().ok()).collect(),
            Place::Mpsc(_, receiver) => {
                let mut receiver = receiver.lock().await.unwrap();
                std::iter::from_fn(|| receiver.try_recv().ok()).collect()
            }
            Place::MVar(place) => place.try_take().into_iter().collect(),
            Place::Shared(tokens) => tokens.write(std::mem::take).await.unwrap(),
            Place::Two(a, b) => {
                let both = dapple::together((a.writing(), b.writing()), |(a, b)| {
                    a.append(b);
                    std::mem::take(a)
                });
                both.await.unwrap()
            }
            Place::Queue(queue) => {
                let all = atomically(|tx| {
                    let mut all = Vec::new();
                    while let Some(token) = queue.try_pop(tx)? {
                        all.push(token);
                    }
                    Ok(all)
                });
                all.await.unwrap()
            }
            Place::Var(var) => var.load().into_iter().collect(),
            Place::Permits(_, tokens) => std::mem::take(&mut *tokens.lock().unwrap()),
            Place::Condition(tokens, _) => std::mem::take(&mut *tokens.lock().await.unwrap()),
        }
    }
}

fn micros(most: u64) -> Duration {
    Duration::from_micros(random() % most)
}

/// What was taken, also if that was at the last moment.
fn taken(result: Result<Option<Token>, Elapsed<Option<Token>>>) -> Option<Token> {
    result.unwrap_or_else(|elapsed| elapsed.into_inner().flatten())
}

/// Puts a token, for some time. Gives it back if there was no room.
async fn put_in_time(place: &Place, token: Token) -> Option<Token> {
    match timeout(micros(400), place.put(token)).await {
        Ok(put) => put.err(),
        Err(elapsed) => elapsed.into_inner().expect("a wait that was not dropped with its token").err(),
    }
}

/// Takes tokens in one of many ways, each of which is cut off after some time.
async fn take_somehow(places: &Arc<Vec<Place>>) -> Vec<Token> {
    let (a, b) = (random() as usize % places.len(), random() as usize % places.len());
    let (first, second) = (&places[a], &places[b]);
    let time = micros(600);
    let got = match random() % 9 {
        0 => [taken(timeout(time, first.take()).await), None],
        1 => [taken(timeout(time, race((first.take(), second.take()))).await), None],
        2 => [race((first.take(), async { sleep(time).await.ok().and(None) })).await, None],
        3 => {
            let yields = async {
                dapple::task::yield_now().await;
                None
            };
            [race((yields, first.take())).await, None]
        }
        4 => {
            let children = finish(async |scope| {
                let (one, two) = (scope.start(first.take()), scope.start(second.take()));
                sleep(time).await.ok();
                scope.cancel();
                [one.await, two.await]
            });
            children.await
        }
        5 => {
            let task = spawn({
                let places = places.clone();
                async move { places[a].take().await }
            });
            sleep(time).await.ok();
            task.cancel();
            [task.await.unwrap(), None]
        }
        6 => {
            let tasks = finish(async |scope| {
                let (one, two) = (places.clone(), places.clone());
                let one = scope.spawn(async move { one[a].take().await });
                let two = scope.spawn(async move { taken(timeout(micros(300), two[b].take()).await) });
                sleep(time).await.ok();
                scope.cancel();
                shield(async { [one.await.unwrap(), two.await.unwrap()] }).await
            });
            tasks.await
        }
        7 => {
            let cancelled_from_elsewhere = finish(async |scope| {
                let canceller = scope.canceller();
                let killer = spawn(async move {
                    sleep(micros(500)).await.ok();
                    canceller.cancel();
                });
                killer.detach();
                scope.start(async { taken(timeout(micros(700), first.take()).await) }).await
            });
            [cancelled_from_elsewhere.await, None]
        }
        _ => {
            let (sender, receiver) = oneshot::channel();
            let task = spawn({
                let places = places.clone();
                async move {
                    if let Some(token) = taken(timeout(micros(400), places[a].take()).await)
                        && let Err(token) = sender.send(token)
                    {
                        shield(places[ROOMY[b % 4]].put(token)).await.unwrap(); // the receiver is gone
                    }
                }
            });
            task.detach();
            [taken(timeout(time, async { receiver.await.ok() }).await), None]
        }
    };
    got.into_iter().flatten().collect()
}

async fn put_somehow(places: &[Place], token: Token) -> Option<Token> {
    if random().is_multiple_of(2) {
        return put_in_time(&places[random() as usize % places.len()], token).await;
    }
    let put = shield(places[ROOMY[random() as usize % 4]].put(token));
    match timeout(micros(600), put).await {
        Ok(put) => put.err(),
        Err(elapsed) => elapsed.into_inner().expect("a shield that was not dropped").err(),
    }
}

#[dapple::test(sim, seeds = 100, workers = 3)]
async fn each_token_is_there_once_however_it_was_taken_and_put() {
    const ACTORS: u64 = 6;
    let places = Arc::new(places());
    let actors: Vec<_> = (0..ACTORS)
        .map(|actor| {
            let places = places.clone();
            spawn(async move {
                let mut held = vec![2 * actor, 2 * actor + 1];
                for _ in 0..30 {
                    held.append(&mut take_somehow(&places).await);
                    if random().is_multiple_of(4) || held.len() > 2 {
                        let token = held.pop();
                        if let Some(token) = token {
                            held.extend(put_somehow(&places, token).await);
                        }
                    }
                }
                held
            })
        })
        .collect();
    let mut all = Vec::new();
    for actor in actors {
        all.append(&mut actor.await.unwrap());
    }
    sleep(Duration::from_millis(50)).await.unwrap(); // tasks that were detached end
    for place in places.iter() {
        all.append(&mut place.drain().await);
    }
    all.sort_unstable();
    assert!(all.iter().copied().eq(0..2 * ACTORS), "{all:?}");
}
