//! A map shared between tasks, which computes a missing value once.
//!
//! ```text
//! hasher       hashes keys
//! shard        one part of the map, and access to it
//! computation  one computation: its waiters, and the computations that it waits for itself
//! store        values and computations, in shards
//! fill         futures of get_or_insert_with
//! ```
//!
//! docs/design/shared_map.md has the measurements and decisions: a table of hashbrown in each of 32 shards,
//! behind the access lock of `Shared`. A hit writes to no cache line that another thread reads.
//!
//! # Foreign code
//!
//! | code | when it is called | if it uses a map | if it panics |
//! |---|---|---|---|
//! | `hash` | with no shard held | works | the map is unchanged |
//! | `eq` | while the shard is read, or changed | may read if the shard is read; otherwise panics, naming the map | the map is unchanged |
//! | `clone` of a value | while the shard is read; for a computed value, before it is inserted | may read any map; a change panics | the map is unchanged; a computed value is lost, and the next waiter computes |
//! | closures of `read`, `for_each` | while a shard is read | as `clone` | the map is unchanged |
//! | closure of `retain` | while a shard is changed | panics, naming both; not in a panic hook, see IN-A-PANIC in `shard` | the entries rejected so far are removed |
//! | `drop` of keys and values | with no shard held | works | the operation is complete |
//! | wakers | with no shard held | works | all of them are woken |
//! | the computation | with no shard held | works; asking for the key that it computes panics, naming both places | the caller gets the panic, another waiter computes |

mod computation;
mod fill;
mod hasher;
mod shard;
mod store;

use std::any::type_name;
use std::borrow::{Borrow, Cow};
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::panic::Location;
use std::sync::Arc;

use self::store::{MapLabel, MapStore};
use crate::Cancelled;
use crate::context::closure;

pub use self::{
    fill::{GetOrInsert, GetOrTryInsert},
    hasher::{KeyHasher, MapHasher},
};

/// A map that any task or thread can read and change, and that computes a missing value once, for all callers
/// that ask for it.
///
/// Use it as a cache, or for state by key. Clones share the map. [`get`](Self::get) and the other methods
/// that return no future never wait for a task: they wait at most for a thread that is inside of the map at
/// that moment. Readers never wait for readers.
///
/// # Computing missing values
///
/// [`get_or_insert_with`](Self::get_or_insert_with) takes an async closure, which runs as part of its caller:
///
/// ```text
/// one      ---- asks: no value ---- computes ..................... value is in the map ---> gets it
/// another          ---- asks: waits ...............................................  ---> gets it
/// others   ---- ask for other keys: do not wait ------------------------------------------------>
///
/// one      ---- asks: no value ---- computes ...... dropped, cancelled, an error, or a panic
/// another          ---- asks: waits .............. computes, with its own closure ---> gets it
/// ```
///
/// * Each key has at most one computation at a time.
/// * If the computing caller gives up, in whatever way, the first waiter that is polled computes with its own
///   closure. A panic or an error reaches the computing caller alone.
/// * A computed value is in the map before any waiter is woken: it is not lost if the caller is dropped then.
/// * Waiters hold nothing: a waiter that is dropped, cancelled, forgotten or never polled again delays no
///   other. A *computing caller* that is never polled again is a computation that takes for ever; an
///   [`insert`](Self::insert) serves its waiters.
/// * An [`insert`](Self::insert) during a computation wins: the waiters get the inserted value at once, and
///   the computing caller gets it at the end. The computed value is dropped.
/// * [`remove`](Self::remove), [`clear`](Self::clear) and [`retain`](Self::retain) do not stop a computation:
///   its value enters the map when it is ready.
/// * A computation may ask for other keys. If it asks for its own key, or for a key whose computation waits
///   for it in turn, in whichever task, the call panics and names both places. Otherwise it would be a
///   deadlock.
///
/// # Inside of closures
///
/// The closures of [`read`](Self::read) and [`for_each`](Self::for_each), and the `eq` and `clone` of keys
/// and values, may read maps, also this one. A call there that would change a map, or wait, panics and names
/// the map and the place. The closure of [`retain`](Self::retain) may use no map.
///
/// The exception is a panic hook, or a destructor that runs while a thread unwinds out of such a closure: it
/// may use any map, since a second panic would abort the process. If the part of the map that the call needs is
/// in use, by another thread or by this one, the call waits about 10 ms. After that, a read finds no value, and
/// a change does nothing.
///
/// # Hashing
///
/// [`MapHasher`] is fast, and seeded at random, so that no attacker has a list of colliding keys. Its
/// documentation says when another hasher is better.
///
/// # Examples
///
/// ```
/// use dapple::SharedMap;
/// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
/// use std::sync::Arc;
///
/// dapple::run(async {
///     let lengths = SharedMap::named("lengths");
///     let computed = Arc::new(AtomicUsize::new(0));
///     let readers: Vec<_> = (0..10)
///         .map(|_| {
///             let (lengths, computed) = (lengths.clone(), computed.clone());
///             dapple::spawn(async move {
///                 let compute = async || {
///                     computed.fetch_add(1, Relaxed);
///                     dapple::task::yield_now().await; // a network request, say
///                     "dapple".len()
///                 };
///                 lengths.get_or_insert_with("dapple", compute).await
///             })
///         })
///         .collect();
///     for reader in readers {
///         assert_eq!(reader.await.unwrap(), Ok(6));
///     }
///     assert_eq!(computed.load(Relaxed), 1);
///     assert_eq!(lengths.get("dapple"), Some(6));
/// });
/// ```
pub struct SharedMap<K, V, S = MapHasher>(Arc<MapStore<K, V, S>>);

impl<K, V> SharedMap<K, V> {
    /// Creates an empty map. Errors name it by its type and by the place of this call.
    #[must_use]
    #[track_caller]
    pub fn new() -> SharedMap<K, V> {
        SharedMap::with_hasher(MapHasher::new())
    }

    /// Creates an empty map with a name, which the messages of panics show.
    #[must_use]
    #[track_caller]
    pub fn named(name: impl Into<Cow<'static, str>>) -> SharedMap<K, V> {
        SharedMap::made(Some(name.into()), 0, MapHasher::new())
    }

    /// As [`new`](Self::new), with capacity for `capacity` entries.
    #[must_use]
    #[track_caller]
    pub fn with_capacity(capacity: usize) -> SharedMap<K, V> {
        SharedMap::with_capacity_and_hasher(capacity, MapHasher::new())
    }
}

impl<K, V, S> SharedMap<K, V, S> {
    /// Creates an empty map with the given hasher.
    #[must_use]
    #[track_caller]
    pub fn with_hasher(hasher: S) -> SharedMap<K, V, S> {
        SharedMap::made(None, 0, hasher)
    }

    /// As [`with_hasher`](Self::with_hasher), with capacity for `capacity` entries.
    #[must_use]
    #[track_caller]
    pub fn with_capacity_and_hasher(capacity: usize, hasher: S) -> SharedMap<K, V, S> {
        SharedMap::made(None, capacity, hasher)
    }

    #[track_caller]
    fn made(name: Option<Cow<'static, str>>, capacity: usize, hasher: S) -> SharedMap<K, V, S> {
        let label = MapLabel { name, type_name: type_name::<SharedMap<K, V>>(), made: Location::caller() };
        SharedMap(Arc::new(MapStore::new(label, capacity, hasher)))
    }

    /// Name given by [`named`](Self::named).
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.label.name.as_deref()
    }

    /// Hasher of this map.
    #[must_use]
    pub fn hasher(&self) -> &S {
        &self.0.hasher
    }

    /// Number of values, without those that are being computed.
    ///
    /// If other tasks change the map meanwhile, the number of each part of the map was right at some moment.
    #[must_use]
    #[track_caller]
    pub fn len(&self) -> usize {
        self.0.shards().map(|shard| shard.read(&self.0.label, |table| table.values.len())).sum()
    }

    /// Whether there are no values, not counting those that are being computed.
    #[must_use]
    #[track_caller]
    pub fn is_empty(&self) -> bool {
        self.0.shards().all(|shard| shard.read(&self.0.label, |table| table.values.is_empty()))
    }

    /// Removes all values. Does not stop computations.
    ///
    /// # Panics
    ///
    /// Inside of a closure of any map.
    #[track_caller]
    pub fn clear(&self) {
        for shard in self.0.shards() {
            let values = shard.change(&self.0.label, |table| std::mem::take(&mut table.values));
            drop(values);
        }
    }

    /// Removes all values for which `keep` returns `false`, in no particular order. Does not stop
    /// computations.
    ///
    /// Removed entries are dropped after the last call of `keep` for the same part of the map.
    ///
    /// # Panics
    ///
    /// Inside of a closure of any map. If `keep` panics, the caller gets the panic, and the entries that it
    /// rejected before are removed.
    ///
    /// # Examples
    ///
    /// ```
    /// let map = dapple::SharedMap::from([("one", 1), ("two", 2), ("three", 3)]);
    /// map.retain(|_, value| {
    ///     *value *= 10;
    ///     *value != 20
    /// });
    /// assert_eq!((map.get("one"), map.get("two"), map.len()), (Some(10), None, 2));
    /// ```
    #[track_caller]
    pub fn retain(&self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        let at = ClosureSite { map: &self.0.label, what: "retain", place: Location::caller() };
        for shard in self.0.shards() {
            let mut gone = Vec::new();
            shard.change(&self.0.label, |table| {
                closure::enter(&at, || {
                    gone.extend(table.values.extract_if(|entry| !keep(&entry.key, &mut entry.value)));
                });
            });
        }
    }

    /// Calls `f` with each key and value, in no particular order. It may or may not see concurrent changes.
    ///
    /// # Panics
    ///
    /// Inside of the closure of [`retain`](Self::retain).
    ///
    /// # Examples
    ///
    /// ```
    /// let map = dapple::SharedMap::from([("one", 1), ("two", 2)]);
    /// let mut sum = 0;
    /// map.for_each(|_, value| sum += value);
    /// assert_eq!(sum, 3);
    /// ```
    #[track_caller]
    pub fn for_each(&self, mut f: impl FnMut(&K, &V)) {
        let at = ClosureSite { map: &self.0.label, what: "for_each", place: Location::caller() };
        for shard in self.0.shards() {
            shard.read(&self.0.label, |table| {
                closure::enter(&at, || table.values.iter().for_each(|entry| f(&entry.key, &entry.value)));
            });
        }
    }

    /// Returns the keys, in no particular order. Concurrent changes may or may not be included.
    #[must_use]
    #[track_caller]
    pub fn keys(&self) -> Vec<K>
    where
        K: Clone,
    {
        let mut keys = Vec::new();
        self.for_each(|key, _| keys.push(key.clone()));
        keys
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> SharedMap<K, V, S> {
    /// Returns a clone of the value of a key. Never waits for a task.
    ///
    /// # Panics
    ///
    /// Inside of the closure of [`retain`](Self::retain).
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::SharedMap;
    ///
    /// let prices = SharedMap::new();
    /// prices.insert("bach", 25);
    /// assert_eq!(prices.get("bach"), Some(25)); // a clone of the value; never waits for a task
    /// assert_eq!(prices.get("verdi"), None);
    /// ```
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
        V: Clone,
    {
        self.0.read(self.0.hash(key), key, |entry| entry.value.clone())
    }

    /// Calls `f` with the value of a key, and returns its result; `None` if there is no value. Never waits
    /// for a task. No other thread can change this part of the map until `f` returns.
    ///
    /// # Panics
    ///
    /// Inside of the closure of [`retain`](Self::retain).
    ///
    /// # Examples
    ///
    /// ```
    /// let map = dapple::SharedMap::from([("names", vec!["a", "b"]), ("more", vec!["c"])]);
    /// assert_eq!(map.read("names", |names| names.len()), Some(2));
    /// assert_eq!(map.read("other", |names| names.len()), None);
    /// // The closure may read maps:
    /// let both = map.read("names", |names| names.len() + map.read("more", |more| more.len()).unwrap());
    /// assert_eq!(both, Some(3));
    /// ```
    ///
    /// It may not change one:
    ///
    /// ```should_panic
    /// let map = dapple::SharedMap::from([("one", 1)]);
    /// map.read("one", |one| map.insert("two", one + 1));
    /// ```
    #[track_caller]
    pub fn read<Q, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let at = ClosureSite { map: &self.0.label, what: "read", place: Location::caller() };
        self.0.read(self.0.hash(key), key, |entry| closure::enter(&at, || f(&entry.value)))
    }

    /// Whether there is a value, not counting one that is being computed.
    ///
    /// # Panics
    ///
    /// Inside of the closure of [`retain`](Self::retain).
    #[must_use]
    #[track_caller]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.0.read(self.0.hash(key), key, |_| ()).is_some()
    }

    /// Inserts a value, and returns the previous one.
    ///
    /// Tasks that wait for the key's computation get this value; see [`SharedMap`].
    ///
    /// # Panics
    ///
    /// Inside of a closure of any map.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::SharedMap;
    ///
    /// let prices = SharedMap::new();
    /// assert_eq!(prices.insert("bach", 25), None);
    /// assert_eq!(prices.insert("bach", 30), Some(25)); // returns the old value
    /// ```
    #[track_caller]
    pub fn insert(&self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    /// Removes a value, and returns it. Does not stop a computation.
    ///
    /// # Panics
    ///
    /// Inside of a closure of any map.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::SharedMap;
    ///
    /// let prices = SharedMap::new();
    /// prices.insert("bach", 25);
    /// assert_eq!(prices.remove("bach"), Some(25));
    /// assert!(prices.is_empty());
    /// ```
    #[track_caller]
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.0.remove(key).map(|(_key, value)| value)
    }

    /// Returns a clone of the value of a key. If there is none, computes it, unless another caller already
    /// does.
    ///
    /// The closure is called at most once, and only if this caller is the one to compute. Its result is
    /// inserted even if the caller has been cancelled meanwhile. If a step of the computation can fail or be
    /// cancelled, use [`get_or_try_insert_with`](Self::get_or_try_insert_with). [`SharedMap`] describes which
    /// caller computes, and when.
    ///
    /// # Errors
    ///
    /// If the wait for another caller's computation was cancelled. A computing caller does not wait here:
    /// cancellation then ends the waits inside of its computation.
    ///
    /// # Panics
    ///
    /// If `compute` panics. If this call is part of the computation that it would wait for. If it is polled
    /// inside of a closure of a map and there is no value.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean** for a waiter; a computing caller **hands over** to a waiter, and its
    /// computation is dropped.
    /// *Scope cancelled*: returns [`Cancelled`], and has computed nothing; or the value, if there was one
    /// when the wait was polled again. A computing caller goes on and returns the value, which is in the map.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::{Cancelled, SharedMap};
    ///
    /// # async fn ask(name: &str) -> u32 { name.len() as u32 }
    /// async fn age(ages: &SharedMap<String, u32>, name: &str) -> Result<u32, Cancelled> {
    ///     if let Some(age) = ages.get(name) {
    ///         return Ok(age); // without allocating a `String`
    ///     }
    ///     ages.get_or_insert_with(name.to_owned(), async || ask(name).await).await
    /// }
    ///
    /// dapple::run(async {
    ///     let ages = SharedMap::new();
    ///     assert_eq!(age(&ages, "anna").await, Ok(4));
    ///     assert_eq!(age(&ages, "anna").await, Ok(4)); // from the map
    /// });
    /// ```
    #[inline]
    #[track_caller]
    pub fn get_or_insert_with<F, Fut>(&self, key: K, compute: F) -> GetOrInsert<'_, K, V, S, F, Fut>
    where
        V: Clone,
        F: FnOnce() -> Fut,
        Fut: Future<Output = V>,
    {
        GetOrInsert::new(&self.0, key, compute, Location::caller())
    }

    /// As [`get_or_insert_with`](Self::get_or_insert_with), with a computation that can fail. On failure
    /// nothing is inserted.
    ///
    /// The error goes only to the caller whose closure returned it. One of the waiters then computes with its
    /// own closure.
    ///
    /// # Errors
    ///
    /// The error of `compute`. If the wait was cancelled, [`Cancelled`] converted to the error type, such as
    /// `Cancelled` itself, [`io::Error`](std::io::Error) or `Box<dyn Error>`. So `?` inside of the
    /// computation and a cancelled wait give the same error.
    ///
    /// # Panics
    ///
    /// As [`get_or_insert_with`](Self::get_or_insert_with).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean** for a waiter; a computing caller **hands over** to a waiter, and its
    /// computation is dropped.
    /// *Scope cancelled*: returns an error made from [`Cancelled`], and has computed nothing; or the value,
    /// if there was one when the wait was polled again. A computing caller goes on and returns the result of
    /// its computation.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::SharedMap;
    /// use std::{io, time::Duration};
    ///
    /// dapple::run(async {
    ///     let pages = SharedMap::named("pages");
    ///     let failed = pages.get_or_try_insert_with("/", async || Err(io::Error::other("no answer"))).await;
    ///     assert_eq!(failed.unwrap_err().to_string(), "no answer");
    ///     let page = pages.get_or_try_insert_with("/", async || {
    ///         dapple::time::sleep(Duration::from_millis(1)).await?; // cancelled: nothing is inserted
    ///         io::Result::Ok("welcome")
    ///     });
    ///     assert_eq!(page.await.unwrap(), "welcome");
    ///     assert_eq!(pages.get("/"), Some("welcome"));
    /// });
    /// ```
    #[inline]
    #[track_caller]
    pub fn get_or_try_insert_with<E, F, Fut>(&self, key: K, compute: F) -> GetOrTryInsert<'_, K, V, S, F, Fut>
    where
        V: Clone,
        E: From<Cancelled>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<V, E>>,
    {
        GetOrTryInsert::new(&self.0, key, compute, Location::caller())
    }
}

/// Map, method and place of a closure, for messages: completes "inside of the closure of".
struct ClosureSite<'a> {
    map: &'a MapLabel,
    what: &'static str,
    place: &'static Location<'static>,
}

impl fmt::Display for ClosureSite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} at {}", self.what, self.map, self.place)
    }
}

impl<K, V, S> Clone for SharedMap<K, V, S> {
    /// Makes another handle of the same map.
    fn clone(&self) -> SharedMap<K, V, S> {
        SharedMap(self.0.clone())
    }
}

impl<K, V, S: Default> Default for SharedMap<K, V, S> {
    #[track_caller]
    fn default() -> SharedMap<K, V, S> {
        SharedMap::with_hasher(S::default())
    }
}

impl<K: Hash + Eq, V, S: BuildHasher + Default> FromIterator<(K, V)> for SharedMap<K, V, S> {
    #[track_caller]
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> SharedMap<K, V, S> {
        let entries = entries.into_iter();
        let map = SharedMap::with_capacity_and_hasher(entries.size_hint().0, S::default());
        entries.for_each(|(key, value)| drop(map.insert(key, value)));
        map
    }
}

impl<K: Hash + Eq, V, const N: usize> From<[(K, V); N]> for SharedMap<K, V> {
    #[track_caller]
    fn from(entries: [(K, V); N]) -> SharedMap<K, V> {
        SharedMap::from_iter(entries)
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S> fmt::Debug for SharedMap<K, V, S> {
    /// Shows the entries, without the parts of the map that are being changed now. Never waits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_map();
        let mut is_all = true;
        for shard in self.0.shards() {
            let read = shard.try_read(|table| {
                debug.entries(table.values.iter().map(|entry| (&entry.key, &entry.value)));
            });
            is_all &= read.is_some();
        }
        if is_all { debug.finish() } else { debug.finish_non_exhaustive() }
    }
}
