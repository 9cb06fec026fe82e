//! State that is free: read, written, looked up and inserted.

use std::hint::black_box;

use dapple::{Shared, SharedMap};
use foldhash::quality::FixedState;

/// How many keys the map has.
const KEYS: usize = 1000;

pub(crate) async fn read(count: usize) {
    let state = Shared::new(7_usize);
    for _ in 0..count {
        assert_eq!(state.read(|value| *value).await, Ok(7));
    }
}

pub(crate) async fn write(count: usize) {
    let state = Shared::new(0_usize);
    for _ in 0..count {
        state.write(|value| *value += 1).await.expect("a free state");
    }
    assert_eq!(state.try_read(|value| *value), Ok(count));
}

/// Hashed as a map does by itself, but with the same seeds every time.
fn map() -> SharedMap<usize, usize, FixedState> {
    let map = SharedMap::with_capacity_and_hasher(KEYS, FixedState::with_seed(1));
    for key in 0..KEYS {
        map.insert(key, key);
    }
    map
}

pub(crate) async fn get(count: usize) {
    let map = map();
    for number in 0..count {
        assert_eq!(map.get(&(number % KEYS)), Some(number % KEYS));
    }
}

/// A new value for a key that is there.
pub(crate) async fn insert(count: usize) {
    let map = map();
    for number in 0..count {
        black_box(map.insert(number % KEYS, number));
    }
}
