//! `hot`: 64 tasks that all want one state, and `hotcolor`: the same in the color of the state.
//!
//! A task makes a number (a little work outside, 2 or 3 ns), adds it to the state in a critical section, and
//! goes on; after every 64 it lets the others run. The sum is checked. The critical section does that and
//! nothing else, or that and calibrated arithmetic of 100 ns, 1 us or 10 us, the same code on all sides
//! ([`crate::keepers`]).
//!
//! `hot`: `tokio` (its Mutex) and `actor` put tasks in line as Dapple does, and must be beaten; `std` and
//! `parking_lot` block the thread and let others barge: lines for the goal. `hotcolor` counts against
//! `parking_lot`: at 0 by wall time; at 100 ns by CPU time, since one color runs on one core only.

use std::hint::black_box;

use crate::contest::{Contest, DENIED, Entry, Metric};
use crate::crowd::{self, Client, Fight};
use crate::keepers::{Actor, Keeper, OfColor, OfDapple, ParkingLotMutex, StdMutex, TokioMutex};
use crate::scatter::scatter;
use crate::sides::{Dapple, DappleLane, Side, Tokio};
use crate::spin;
use crate::work;

pub(crate) fn contests() -> Vec<Contest> {
    vec![
        hot::<0>("hot/0", "64 tasks change one state; per change"),
        hot::<100>("hot/100ns", "the same with a critical section of 100 ns"),
        hot::<1_000>("hot/1us", "the same with a critical section of 1 us"),
        hot::<10_000>("hot/10us", "the same with a critical section of 10 us"),
        work::measured(
            "hotcolor/0",
            "`hot/0` with all tasks in the color of the state",
            BY_WALL,
            lane::<0>(),
        ),
        work::measured("hotcolor/100ns", "`hot/100ns` in the color of the state", BY_CPU, lane::<100>()),
    ]
}

const BY_WALL: &[Metric] =
    &[Metric::new("wall", "ns"), Metric::shown("cpu", "ns"), Metric::shown("cpu/wall", ""), DENIED];

const BY_CPU: &[Metric] =
    &[Metric::shown("wall", "ns"), Metric::new("cpu", "ns"), Metric::shown("cpu/wall", ""), DENIED];

fn hot<const NANOS: u64>(name: &'static str, about: &'static str) -> Contest {
    let entries = vec![
        crowd::ours::<Dapple, Changes<OfDapple, NANOS>>(),
        crowd::rival::<Tokio, Changes<TokioMutex, NANOS>>("tokio"),
        crowd::rival::<Tokio, Changes<Actor, NANOS>>("actor"),
        crowd::rival::<Tokio, Changes<ParkingLotMutex, NANOS>>("parking_lot"),
        crowd::rival::<Tokio, Changes<StdMutex, NANOS>>("std"),
    ];
    crowd::contest(name, about, entries)
}

fn lane<const NANOS: u64>() -> Vec<Entry> {
    vec![
        crowd::ours::<DappleLane, Changes<OfColor, NANOS>>(),
        crowd::rival::<Tokio, Changes<ParkingLotMutex, NANOS>>("parking_lot"),
    ]
}

/// A keeper, and the steps of a critical section of `NANOS` nanoseconds.
#[derive(Clone)]
struct Changes<K, const NANOS: u64> {
    keeper: K,
    steps: u64,
}

impl<K: Keeper, const NANOS: u64> Client for Changes<K, NANOS> {
    #[inline]
    async fn once(&self, number: u64) -> u64 {
        let key = scatter(number);
        black_box(self.keeper.change(key, self.steps).await);
        key
    }
}

impl<K: Keeper, const NANOS: u64> Fight for Changes<K, NANOS> {
    const NANOS: u64 = 250 + NANOS;

    fn open<S: Side>(side: &S) -> Self {
        Self { keeper: K::keep(side), steps: spin::steps(NANOS) }
    }

    async fn check(&self, sum: u64) {
        assert_eq!(self.keeper.change(0, 0).await, sum, "a change was lost");
    }
}
