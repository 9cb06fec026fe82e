//! `hotread`: 64 tasks and one state that 95 of 100 operations only look at.
//!
//! As `hot`, with `read` and `write`. `tokio` (its RwLock) puts tasks in line and must be beaten; `parking_lot` blocks,
//! and `arc-swap` lets readers use the old value while a writer copies: lines for the goal.
//!
//! `hotread/map`: a map of 10,000 keys, of which 95 of 100 operations get one and the others insert one;
//! against `tokio` (a `HashMap` in its RwLock), which must be beaten, and for the goal `dashmap` and a
//! `HashMap` in parking_lot's. All hash as they do by default; `dashmap-hasher`, a reference, hashes as Dapple.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::sync::Arc;

use dapple::{SharedMap, shared::MapHasher};
use dashmap::DashMap;

use crate::contest::Contest;
use crate::crowd::{self, Client, Fight};
use crate::keepers::{OfDapple, ParkingLotRwLock, Reader, Swapped, TokioRwLock};
use crate::scatter::{below, scatter};
use crate::sides::{Dapple, Side, Tokio};
use crate::spin;

pub(crate) fn contests() -> Vec<Contest> {
    let map = vec![
        crowd::ours::<Dapple, Lookups<SharedMap<u64, u64>>>(),
        crowd::rival::<Tokio, Lookups<TokioMap>>("tokio"),
        crowd::rival::<Tokio, Lookups<Dashed<RandomState>>>("dashmap"),
        crowd::rival::<Tokio, Lookups<ParkingLotMap>>("parking_lot"),
        crowd::reference::<Tokio, Lookups<Dashed<MapHasher>>>("dashmap-hasher"),
    ];
    vec![
        hot::<0>("hotread/0", "64 tasks and one state, 95% of the operations read; per operation"),
        hot::<100>("hotread/100ns", "the same with operations of 100 ns"),
        crowd::contest("hotread/map", "64 tasks and one map, 95% get and 5% insert; per operation", map),
    ]
}

fn hot<const NANOS: u64>(name: &'static str, about: &'static str) -> Contest {
    let entries = vec![
        crowd::ours::<Dapple, Looks<OfDapple, NANOS>>(),
        crowd::rival::<Tokio, Looks<TokioRwLock, NANOS>>("tokio"),
        crowd::rival::<Tokio, Looks<ParkingLotRwLock, NANOS>>("parking_lot"),
        crowd::rival::<Tokio, Looks<Swapped, NANOS>>("arc-swap"),
    ];
    crowd::contest(name, about, entries)
}

/// Whether the operation with this key is one of the five in a hundred that change something.
#[inline]
fn changes(key: u64) -> bool {
    below(key, 100) < 5
}

/// A keeper, and the steps of an operation of `NANOS` nanoseconds.
#[derive(Clone)]
struct Looks<K, const NANOS: u64> {
    keeper: K,
    steps: u64,
}

impl<K: Reader, const NANOS: u64> Client for Looks<K, NANOS> {
    #[inline]
    async fn once(&self, number: u64) -> u64 {
        let key = scatter(number);
        if changes(key) {
            black_box(self.keeper.change(key, self.steps).await);
            key
        } else {
            black_box(self.keeper.look(key, self.steps).await);
            0
        }
    }
}

impl<K: Reader, const NANOS: u64> Fight for Looks<K, NANOS> {
    const NANOS: u64 = 150 + NANOS;

    fn open<S: Side>(side: &S) -> Self {
        Self { keeper: K::keep(side), steps: spin::steps(NANOS) }
    }

    async fn check(&self, sum: u64) {
        assert_eq!(self.keeper.look(0, 0).await, sum, "a change was lost");
    }
}

/// A map that tasks share.
trait Map: Clone + Send + Sync + 'static {
    fn new() -> Self;
    fn get(&self, key: u64) -> impl Future<Output = Option<u64>> + Send;
    fn insert(&self, key: u64, value: u64) -> impl Future<Output = ()> + Send;
}

/// Keys of the map.
const KEYS: u64 = 10_000;

#[derive(Clone)]
struct Lookups<M>(M);

impl<M: Map> Client for Lookups<M> {
    /// Counts what is found, and finds only what belongs there: a multiple of the key.
    #[inline]
    async fn once(&self, number: u64) -> u64 {
        let scattered = scatter(number);
        let key = 1 + (scattered & 0xffff_ffff) % KEYS;
        if changes(scattered) {
            self.0.insert(key, key * (number & 0xffff)).await;
            return 0;
        }
        let Some(value) = self.0.get(key).await else {
            return 0;
        };
        assert_eq!(value % key, 0, "the value of another key");
        1
    }
}

impl<M: Map> Fight for Lookups<M> {
    const NANOS: u64 = 200;

    fn open<S: Side>(_: &S) -> Self {
        Self(M::new())
    }

    async fn check(&self, sum: u64) {
        assert!(sum > 0, "nothing was ever found");
    }
}

impl Map for SharedMap<u64, u64> {
    fn new() -> Self {
        SharedMap::new()
    }

    #[inline]
    async fn get(&self, key: u64) -> Option<u64> {
        SharedMap::get(self, &key)
    }

    #[inline]
    async fn insert(&self, key: u64, value: u64) {
        SharedMap::insert(self, key, value);
    }
}

#[derive(Clone)]
struct Dashed<H>(Arc<DashMap<u64, u64, H>>);

impl<H: BuildHasher + Clone + Default + Send + Sync + 'static> Map for Dashed<H> {
    fn new() -> Self {
        Self(Arc::default())
    }

    #[inline]
    async fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key).map(|value| *value)
    }

    #[inline]
    async fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }
}

#[derive(Clone)]
struct TokioMap(Arc<tokio::sync::RwLock<HashMap<u64, u64>>>);

impl Map for TokioMap {
    fn new() -> Self {
        Self(Arc::default())
    }

    #[inline]
    async fn get(&self, key: u64) -> Option<u64> {
        self.0.read().await.get(&key).copied()
    }

    #[inline]
    async fn insert(&self, key: u64, value: u64) {
        self.0.write().await.insert(key, value);
    }
}

#[derive(Clone)]
struct ParkingLotMap(Arc<parking_lot::RwLock<HashMap<u64, u64>>>);

impl Map for ParkingLotMap {
    fn new() -> Self {
        Self(Arc::default())
    }

    #[inline]
    async fn get(&self, key: u64) -> Option<u64> {
        self.0.read().get(&key).copied()
    }

    #[inline]
    async fn insert(&self, key: u64, value: u64) {
        self.0.write().insert(key, value);
    }
}
