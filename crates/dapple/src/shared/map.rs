//! A map that any task can reach, and that computes what is missing, once.
//!
//! ```text
//! hasher   how keys are hashed
//! shelf    one part of the map: who may be in it
//! ticket   one computation, for those who wait for it, and what it waits for itself
//! store    values and computations, on shelves
//! fill     the futures of get_or_insert_with
//! ```
//!
//! Measured and decided in docs/design/shared_map.md: a table of hashbrown on each of 32 shelves, behind the gate
//! of `Shared`. A hit writes to no cache line that another thread reads.
//!
//! # Foreign code
//!
//! | what | when it is called | if it comes back to a map | if it panics |
//! |---|---|---|---|
//! | `hash` | outside of everything | works | nothing has happened |
//! | `eq` | while the shelf is read, or changed | may read if it is read; otherwise a panic that says so | nothing has happened |
//! | `clone` of a value | while the shelf is read; what was computed, before it is put there | may read any map, a change is a panic | nothing has happened; what was computed is lost, and the next computes |
//! | closures of `read`, `for_each` | while a shelf is read | as `clone` | nothing has happened |
//! | closure of `retain` | while a shelf is changed | a panic that names both; not in a panic hook, see IN-A-PANIC in `shard` | those that were to go so far are gone |
//! | `drop` of keys and values | outside of everything | works | it has happened all the same |
//! | wakers | outside of everything | works | they are all woken all the same |
//! | the computation | outside of everything | works; asking for what it is to compute is a panic that names both | the caller gets the panic, another computes |

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

/// A map that any task or thread can read and change, and in which what is missing is computed once, however
/// many ask for it.
///
/// Clones share the map. [`get`](Self::get) and the others that are no futures never wait for a task: whoever
/// holds them up is running, and will be done in an instant. Those who read hold up nobody who reads.
///
/// # Computing what is missing
///
/// [`get_or_insert_with`](Self::get_or_insert_with) takes an async closure, which runs as part of its caller:
///
/// ```text
/// one      ---- asks: nothing there ---- computes ................ value is in the map ---> gets it
/// another          ---- asks: waits ...............................................  ---> gets it
/// others   ---- ask for other keys: are not held up -------------------------------------------->
///
/// one      ---- asks: nothing there ---- computes ...... dropped, cancelled, an error, or a panic
/// another          ---- asks: waits ................... computes, with its own closure ---> gets it
/// ```
///
/// * Of each key, there is at most one computation at a time.
/// * Who computes and gives up, in whatever way, leaves it to those who wait: the first of them who is polled
///   computes. A panic or an error goes to the one who computed, alone.
/// * What was computed is in the map before anybody is told: nothing is lost if the caller is dropped then.
/// * Those who wait have nothing: dropped, cancelled, forgotten or never polled again, they hold up nobody. *Who
///   computes* and is never polled again is a computation that takes for ever; an [`insert`](Self::insert)
///   helps those who wait for it.
/// * [`insert`](Self::insert) while somebody computes wins: those who wait get that value at once, and so does
///   who computes, at the end; what was computed is dropped.
/// * [`remove`](Self::remove), [`clear`](Self::clear) and [`retain`](Self::retain) do not stop a computation:
///   its value comes into the map when it is ready.
/// * A computation may ask for other keys. If it asks for the one that it computes, or for one whose computation
///   waits for it in turn, in whichever task, that is a panic that names both places, rather than a wait for ever.
///
/// # Inside of closures
///
/// In the closures of [`read`](Self::read) and [`for_each`](Self::for_each), and in the `eq` and `clone` of keys
/// and values, maps can be read, also this one; whatever would change a map panics, and says of which and where,
/// and so does whatever would wait. In that of [`retain`](Self::retain) no map can be used.
///
/// A panic hook, or a destructor that runs while a thread unwinds out of such a closure, may use any map all the same:
/// a second panic would end the process. If another thread has the map then, or this one has, it is waited for about
/// 10 ms; after that, whatever reads finds nothing, and whatever would change the map does nothing.
///
/// # Hashing
///
/// [`MapHasher`] is fast, and seeded at random, so that nobody has a list of keys that collide; see there for maps
/// whose keys are chosen by enemies with a stopwatch.
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
///                     dapple::task::yield_now().await; // asks somebody, say
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
    /// An empty map. In errors it is called by its type and by where this was.
    #[must_use]
    #[track_caller]
    pub fn new() -> SharedMap<K, V> {
        SharedMap::with_hasher(MapHasher::new())
    }

    /// As [`new`](Self::new), with a name for errors.
    #[must_use]
    #[track_caller]
    pub fn named(name: impl Into<Cow<'static, str>>) -> SharedMap<K, V> {
        SharedMap::made(Some(name.into()), 0, MapHasher::new())
    }

    /// As [`new`](Self::new), with room for so many entries.
    #[must_use]
    #[track_caller]
    pub fn with_capacity(capacity: usize) -> SharedMap<K, V> {
        SharedMap::with_capacity_and_hasher(capacity, MapHasher::new())
    }
}

impl<K, V, S> SharedMap<K, V, S> {
    /// An empty map with a hasher of one's own.
    #[must_use]
    #[track_caller]
    pub fn with_hasher(hasher: S) -> SharedMap<K, V, S> {
        SharedMap::made(None, 0, hasher)
    }

    /// As [`with_hasher`](Self::with_hasher), with room for so many entries.
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

    /// The name that it was given.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.label.name.as_deref()
    }

    /// Its hasher.
    #[must_use]
    pub fn hasher(&self) -> &S {
        &self.0.hasher
    }

    /// How many values there are. Those that are being computed do not count.
    ///
    /// If others change the map meanwhile, it is a number that was right for each part of it at some moment.
    #[must_use]
    #[track_caller]
    pub fn len(&self) -> usize {
        self.0.shelves().map(|shelf| shelf.read(&self.0.label, |table| table.values.len())).sum()
    }

    /// Whether there are no values. Those that are being computed do not count.
    #[must_use]
    #[track_caller]
    pub fn is_empty(&self) -> bool {
        self.0.shelves().all(|shelf| shelf.read(&self.0.label, |table| table.values.is_empty()))
    }

    /// Removes all values. It stops no computation.
    ///
    /// # Panics
    ///
    /// Inside of a closure of any map.
    #[track_caller]
    pub fn clear(&self) {
        for shelf in self.0.shelves() {
            let values = shelf.change(&self.0.label, |table| std::mem::take(&mut table.values));
            drop(values);
        }
    }

    /// Removes all values for which `keep` says `false`, in no particular order. It stops no computation.
    ///
    /// What it has let go is dropped after the last of its calls for the same part of the map.
    ///
    /// # Panics
    ///
    /// Inside of a closure of any map. If `keep` panics, that goes on to the caller, and those that were to
    /// go until then are gone.
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
        for shelf in self.0.shelves() {
            let mut gone = Vec::new();
            shelf.change(&self.0.label, |table| {
                closure::enter(&at, || {
                    gone.extend(table.values.extract_if(|entry| !keep(&entry.key, &mut entry.value)));
                });
            });
        }
    }

    /// Calls `f` with each key and value, in no particular order. What others do meanwhile it may see or not.
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
        for shelf in self.0.shelves() {
            shelf.read(&self.0.label, |table| {
                closure::enter(&at, || table.values.iter().for_each(|entry| f(&entry.key, &entry.value)));
            });
        }
    }

    /// The keys, in no particular order. What others do meanwhile they may have or not.
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
    /// A clone of the value of a key. Never waits for a task.
    ///
    /// # Panics
    ///
    /// Inside of the closure of [`retain`](Self::retain).
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

    /// What `f` returns for the value of a key, if there is one. Never waits for a task, and nobody else can change
    /// this part of the map until `f` is done.
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
    /// // Inside, maps can be read:
    /// let both = map.read("names", |names| names.len() + map.read("more", |more| more.len()).unwrap());
    /// assert_eq!(both, Some(3));
    /// ```
    ///
    /// A change is refused there:
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

    /// Whether there is a value. One that is being computed does not count.
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

    /// Puts a value there, and returns the one that was there.
    ///
    /// Those who wait for it to be computed get this one; see [`SharedMap`].
    ///
    /// # Panics
    ///
    /// Inside of a closure of any map.
    #[track_caller]
    pub fn insert(&self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    /// Removes a value, and returns it. It stops no computation.
    ///
    /// # Panics
    ///
    /// Inside of a closure of any map.
    #[track_caller]
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.0.remove(key).map(|(_key, value)| value)
    }

    /// A clone of the value of a key, which is computed if there is none, and nobody is doing so already.
    ///
    /// The closure is called at most once, and only if this caller is the one to compute. Whatever it returns is
    /// put into the map, also if the caller has been cancelled meanwhile: a computation in which something can fail
    /// or be cancelled is better one of [`get_or_try_insert_with`](Self::get_or_try_insert_with). See
    /// [`SharedMap`] for who computes, and when.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled. Who computes is not waiting: what is cancelled then is what the computation
    /// itself waits for.
    ///
    /// # Panics
    ///
    /// If it panics itself, `compute`. If it is part of the computation that it would wait for. If it is polled
    /// inside of a closure of a map and there is no value.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean** if it waits; who computes **hands over** to one who waits, and the computation is
    /// dropped.
    /// *Scope cancelled*: returns [`Cancelled`], and has computed nothing; or the value, if there was one when
    /// the wait was polled again; who computes goes on, and returns the value, which is in the map.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::{Cancelled, SharedMap};
    ///
    /// # async fn ask(name: &str) -> u32 { name.len() as u32 }
    /// async fn age(ages: &SharedMap<String, u32>, name: &str) -> Result<u32, Cancelled> {
    ///     if let Some(age) = ages.get(name) {
    ///         return Ok(age); // without a `String` of its own
    ///     }
    ///     ages.get_or_insert_with(name.to_owned(), async || ask(name).await).await
    /// }
    ///
    /// dapple::run(async {
    ///     let ages = SharedMap::new();
    ///     assert_eq!(age(&ages, "anna").await, Ok(4));
    ///     assert_eq!(age(&ages, "anna").await, Ok(4)); // nobody is asked
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

    /// As [`get_or_insert_with`](Self::get_or_insert_with), with a computation that can fail: then nothing is put
    /// into the map.
    ///
    /// The error goes to the caller whose closure returned it, and to nobody else: one of those who wait computes
    /// with its own closure.
    ///
    /// # Errors
    ///
    /// That of `compute`. If the wait was cancelled, what is made of [`Cancelled`]: the error is of a type that can
    /// say so, as `Cancelled` itself, [`io::Error`](std::io::Error) and `Box<dyn Error>` are, so that `?` in the
    /// computation and a cancelled wait come to the same.
    ///
    /// # Panics
    ///
    /// As [`get_or_insert_with`](Self::get_or_insert_with).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean** if it waits; who computes **hands over** to one who waits, and the computation is
    /// dropped.
    /// *Scope cancelled*: returns an error made of [`Cancelled`], and has computed nothing; or the value, if there
    /// was one when the wait was polled again; who computes goes on, and returns what the computation does.
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
    ///         dapple::time::sleep(Duration::from_millis(1)).await?; // cancelled: nothing is kept
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

/// Whose closure it is, and where: completes "inside of the closure of".
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
    /// Shares the map.
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
    /// The entries, but for those that are being changed at this moment. Never waits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_map();
        let mut is_all = true;
        for shelf in self.0.shelves() {
            let read = shelf.try_read(|table| {
                debug.entries(table.values.iter().map(|entry| (&entry.key, &entry.value)));
            });
            is_all &= read.is_some();
        }
        if is_all { debug.finish() } else { debug.finish_non_exhaustive() }
    }
}
