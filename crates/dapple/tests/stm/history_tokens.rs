//! Random programs that carry tokens between all kinds of state, and are cancelled: no token is lost or doubled.
//!
//! The places are an `MVar`, a `Shared` with `when`, a `TMVar`, a `TQueue`, a `TBoundedQueue` and a `TMap`. A carrier takes a
//! token from a place and puts it into another one. A seed decides which ways they go, and which of them are cancelled,
//! aborted, or have a time limit. A token whose carrier is dropped goes to a list. In the end, each token is in one place.

use std::sync::{Arc, Mutex, PoisonError};

use dapple::shared::when;
use dapple::stm::{TBoundedQueue, TMVar, TMap, TQueue, atomically, atomically_blocking};
use dapple::sync::MVar;
use dapple::time::{Duration, sleep, timeout};
use dapple::{Shared, sim, spawn};

use crate::common::in_a_process_of_its_own;

const TOKENS: u64 = 6;
const CARRIERS: u64 = 6;
const PLACES: u64 = 6;

struct Places {
    mvar: MVar<u64>,
    shared: Shared<Vec<u64>>,
    tmvar: TMVar<u64>,
    queue: TQueue<u64>,
    ring: TBoundedQueue<u64>,
    /// Tokens by number.
    map: TMap<u64, u64>,
    /// Of carriers that were dropped, or cancelled with a token that they could not put down.
    dropped: Mutex<Vec<u64>>,
}

/// A token in a carrier's hand.
struct Token<'a>(Option<u64>, &'a Places);

impl Token<'_> {
    fn put_down(&mut self) {
        self.0 = None;
    }
}

impl Drop for Token<'_> {
    fn drop(&mut self) {
        if let Some(token) = self.0 {
            self.1.dropped.lock().unwrap_or_else(PoisonError::into_inner).push(token);
        }
    }
}

impl Places {
    fn new() -> Places {
        Places {
            mvar: MVar::empty(),
            shared: Shared::new(Vec::new()),
            tmvar: TMVar::empty(),
            queue: TQueue::new(),
            ring: TBoundedQueue::new(2),
            map: TMap::new(),
            dropped: Mutex::default(),
        }
    }

    /// Takes a token. `None`: cancelled, and nothing was taken.
    async fn take(&self, place: u64) -> Option<Token<'_>> {
        let token = match place {
            0 => self.mvar.take().await.ok(),
            1 => when((self.shared.writing(),), |(tokens,)| tokens.pop()).await.ok(),
            2 => atomically(|tx| self.tmvar.take(tx)).await.ok(),
            3 => atomically(|tx| self.queue.pop(tx)).await.ok(),
            // From either of two.
            4 => atomically(|tx| tx.or_else(|tx| self.ring.pop(tx), |tx| self.queue.pop(tx))).await.ok(),
            _ => {
                let any = atomically(|tx| {
                    for token in 0..TOKENS {
                        sim_pause();
                        if let Some(token) = self.map.remove(tx, &token)? {
                            return Ok(token);
                        }
                    }
                    tx.retry()
                });
                any.await.ok()
            }
        };
        Some(Token(Some(token?), self))
    }

    /// Puts a token down. If that is cancelled, the token stays in hand.
    async fn put(&self, place: u64, mut token: Token<'_>) {
        let Some(number) = token.0 else { return };
        let is_put = match place {
            0 => self.mvar.put(number).await.is_ok(),
            1 => self.shared.write(|tokens| tokens.push(number)).await.is_ok(),
            2 => atomically(|tx| self.tmvar.put(tx, number)).await.is_ok(),
            3 => atomically(|tx| self.queue.push(tx, number)).await.is_ok(),
            4 => atomically(|tx| self.ring.push(tx, number)).await.is_ok(),
            _ => atomically(|tx| self.map.insert(tx, number, number)).await.is_ok(),
        };
        if is_put {
            token.put_down();
        }
    }

    async fn all(&self) -> Vec<u64> {
        let mut all = self.dropped.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.extend(self.mvar.try_take());
        all.extend(self.shared.write(std::mem::take).await.unwrap());
        let in_variables = atomically(|tx| {
            let mut tokens: Vec<u64> = self.tmvar.try_take(tx)?.into_iter().collect();
            while let Some(token) = self.queue.try_pop(tx)? {
                tokens.push(token);
            }
            while let Some(token) = self.ring.try_pop(tx)? {
                tokens.push(token);
            }
            self.map.for_each(tx, |token, _| tokens.push(*token))?;
            Ok(tokens)
        });
        all.extend(in_variables.await.unwrap());
        all.sort_unstable();
        all
    }
}

fn sim_pause() {
    if sim::is_simulated() {
        sim::work(Duration::ZERO);
    }
}

/// Numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

async fn program(seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 11);
    let places = Arc::new(Places::new());
    for token in 0..TOKENS {
        // Not where it would have to wait.
        let place = [1, 3, 5][dice.below(3) as usize];
        places.put(place, Token(Some(token), &places)).await;
    }
    let carriers: Vec<_> = (0..CARRIERS)
        .map(|_| {
            let (places, mut dice) = (places.clone(), Dice(dice.below(u64::MAX)));
            spawn(async move {
                loop {
                    let (from, to) = (dice.below(PLACES), dice.below(PLACES));
                    // What is taken too late is in the error, and goes to the list with it.
                    let taken = timeout(Duration::from_micros(dice.below(20)), places.take(from)).await;
                    let token = match taken {
                        Ok(Some(token)) => token,
                        Ok(None) => return, // cancelled
                        Err(late) => match late.into_inner().flatten() {
                            Some(token) => token,
                            None => continue,
                        },
                    };
                    places.put(to, token).await;
                }
            })
        })
        .collect();
    for carrier in &carriers {
        sleep(Duration::from_micros(dice.below(30))).await.unwrap();
        if dice.below(2) == 0 { carrier.cancel() } else { carrier.abort() }
    }
    for carrier in carriers {
        if let Err(error) = carrier.await {
            assert!(!error.is_panic(), "{error}");
        }
    }
    assert_eq!(places.all().await, (0..TOKENS).collect::<Vec<_>>(), "lost, or doubled");
}

#[dapple::test(sim, seeds = 1_000, workers = 3)]
async fn tokens_stay_whatever_is_cancelled() {
    program(sim::random()).await;
}

#[test]
fn tokens_stay_on_real_workers() {
    in_a_process_of_its_own("tokens_stay_on_real_workers", run_programs);
}

fn run_programs() {
    let runtime = dapple::Runtime::builder().workers(4).build().unwrap();
    for seed in 0..if cfg!(miri) { 1 } else { 200 } {
        runtime.block_on(program(seed));
    }
    let one = TMVar::new(1);
    assert_eq!(atomically_blocking(|tx| one.take(tx)), Ok(1)); // the thread is usable
}
