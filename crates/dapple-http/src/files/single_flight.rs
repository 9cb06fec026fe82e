//! Single flight: of all requests for one path, one looks at the file system at a time, and the others wait for its result.
//!
//! # Invariants
//!
//! * **ONE-LOOKS**: the request that looks for a path holds the lock of the path's flight. Later requests wait for that
//!   lock and get the result. If there is none, because the lookup was given up, the next request looks itself.
//! * **NO-FLIGHT-LEFT**: a flight is in the table while a request looks or waits. The last request that leaves removes the
//!   flight. A request that has found something removes it at once, so that requests which come later look again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dapple::Cancelled;

/// Lookups under way, by path.
pub(super) struct SingleFlight<T>(Mutex<LookupTable<T>>);

type LookupTable<T> = HashMap<Box<[u8]>, Arc<PendingLookup<T>>>;
type PendingLookup<T> = dapple::sync::Mutex<Option<T>>;

impl<T> Default for SingleFlight<T> {
    fn default() -> SingleFlight<T> {
        SingleFlight(Mutex::default())
    }
}

impl<T: Clone> SingleFlight<T> {
    /// Returns the result of `look`, or that of a lookup of the same path that was under way. `None` if `look` found
    /// nothing; waiting requests do not get a `None`, but look themselves.
    pub(super) async fn find(
        &self,
        path: &[u8],
        look: impl Future<Output = Option<T>>,
    ) -> Result<Option<T>, Cancelled> {
        let guard = self.enter(path);
        let mut found = guard.flight.lock().await?; // ONE-LOOKS
        if let Some(found) = &*found {
            return Ok(Some(found.clone()));
        }
        *found = look.await;
        if found.is_some() {
            self.leave(path, &guard.flight, usize::MAX);
        }
        Ok(found.clone())
    }

    fn enter(&self, path: &[u8]) -> LookupGuard<'_, T> {
        let mut table = self.table();
        let flight = match table.get(path) {
            Some(flight) => flight.clone(),
            None => table.entry(path.into()).or_default().clone(),
        };
        LookupGuard { single_flight: self, path: path.into(), flight }
    }
}

impl<T> SingleFlight<T> {
    fn table(&self) -> MutexGuard<'_, LookupTable<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a flight from the table, if it is there and has at most `at_most` references.
    fn leave(&self, path: &[u8], flight: &Arc<PendingLookup<T>>, at_most: usize) {
        let mut table = self.table();
        let is_there = table.get(path).is_some_and(|other| Arc::ptr_eq(other, flight));
        if is_there && Arc::strong_count(flight) <= at_most {
            table.remove(path);
        }
    }
}

/// A request that looks or waits. Its drop removes the flight if no other request is left.
struct LookupGuard<'a, T> {
    single_flight: &'a SingleFlight<T>,
    path: Box<[u8]>,
    flight: Arc<PendingLookup<T>>,
}

impl<T> Drop for LookupGuard<'_, T> {
    fn drop(&mut self) {
        self.single_flight.leave(&self.path, &self.flight, 2); // NO-FLIGHT-LEFT: the table and we
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dapple::task::yield_now;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// Twenty tasks ask for one path; `gives_up` says which of the lookups find nothing.
    async fn many_ask(gives_up: fn(usize) -> bool) -> (usize, Vec<Option<usize>>) {
        let single_flight = Arc::new(SingleFlight::default());
        let looks = Arc::new(AtomicUsize::new(0));
        let asking: Vec<_> = (0..20)
            .map(|_| {
                let (single_flight, looks) = (single_flight.clone(), looks.clone());
                dapple::spawn(async move {
                    let look = async {
                        let look = looks.fetch_add(1, Relaxed);
                        yield_now().await;
                        yield_now().await;
                        (!gives_up(look)).then_some(look)
                    };
                    single_flight.find(b"path", look).await.unwrap()
                })
            })
            .collect();
        let mut found = Vec::new();
        for asked in asking {
            found.push(asked.await.unwrap());
        }
        assert!(single_flight.table().is_empty(), "a flight was left");
        (looks.load(Relaxed), found)
    }

    #[dapple::test(sim, workers = 3)]
    async fn all_waiters_get_what_one_finds() {
        let (looks, found) = many_ask(|_| false).await;
        assert!(looks < 20, "nobody waited");
        assert!(found.iter().all(|found| found.is_some_and(|look| look < looks)));
    }

    #[dapple::test(sim, workers = 3)]
    async fn a_lookup_without_a_result_leaves_it_to_the_next() {
        let (looks, found) = many_ask(|look| look < 3).await;
        assert!(looks > 3);
        assert_eq!(found.iter().filter(|found| found.is_none()).count(), 3);
    }

    #[dapple::test(sim)]
    async fn a_dropped_lookup_leaves_it_to_the_next() {
        let single_flight = SingleFlight::default();
        let mut first = Box::pin(single_flight.find(b"path", std::future::pending()));
        let mut second = Box::pin(single_flight.find(b"path", async { Some(2) }));
        assert!(is_pending(&mut first));
        assert!(is_pending(&mut second), "two look at a time");
        drop(first);
        assert_eq!(second.await, Ok(Some(2)));
        assert!(single_flight.table().is_empty());
    }

    /// Polls once.
    fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        std::pin::Pin::new(future).poll(&mut cx).is_pending()
    }
}
