//! Atomics that give way to the simulation before each step (`--cfg dapple_steps`, `ci/steps`).
//!
//! A simulation is atomic between two waits of a thread, so it does not see what goes wrong between two steps of a
//! protocol. With these, any other virtual thread may come between, by the seed, at every load, store and
//! read-modify-write of the runtime, and at every lock. The interleavings are sequentially consistent: weak memory is
//! loom's. See docs/design/simulation.md.

use std::sync::atomic::{self, Ordering};

use crate::world::step;

/// The operations that all of them have.
macro_rules! atomic {
    ($name:ident $(<$t:ident>)?, $inner:ty, $value:ty) => {
        #[derive(Debug)]
        pub(crate) struct $name $(<$t>)? ($inner);

        impl $(<$t>)? Default for $name $(<$t>)? {
            fn default() -> Self {
                Self(<$inner>::default())
            }
        }

        #[allow(dead_code, reason = "each type has what any of them needs")]
        impl $(<$t>)? $name $(<$t>)? {
            pub(crate) const fn new(value: $value) -> Self {
                Self(<$inner>::new(value))
            }

            pub(crate) fn load(&self, order: Ordering) -> $value {
                step();
                self.0.load(order)
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                step();
                self.0.store(value, order);
            }

            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.swap(value, order)
            }

            pub(crate) fn compare_exchange(
                &self,
                old: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                step();
                self.0.compare_exchange(old, new, success, failure)
            }

            pub(crate) fn compare_exchange_weak(
                &self,
                old: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(old, new, success, failure)
            }

            pub(crate) fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut old = self.load(fetch);
                while let Some(new) = f(old) {
                    match self.compare_exchange(old, new, set, fetch) {
                        Ok(old) => return Ok(old),
                        Err(now) => old = now,
                    }
                }
                Err(old)
            }

            pub(crate) fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            pub(crate) fn into_inner(self) -> $value {
                self.0.into_inner()
            }
        }
    };
}

/// Read-modify-writes, by name.
macro_rules! steps {
    ($name:ident, $value:ty, $($step:ident)*) => {
        #[allow(dead_code, reason = "each type has what any of them needs")]
        impl $name {
            $(pub(crate) fn $step(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.$step(value, order)
            })*
        }
    };
}

macro_rules! number {
    ($name:ident, $value:ty) => {
        atomic!($name, atomic::$name, $value);
        steps!($name, $value, fetch_add fetch_sub fetch_or fetch_and fetch_xor fetch_max fetch_min);
    };
}

number!(AtomicU8, u8);
number!(AtomicU32, u32);
number!(AtomicU64, u64);
number!(AtomicUsize, usize);
atomic!(AtomicBool, atomic::AtomicBool, bool);
steps!(AtomicBool, bool, fetch_or fetch_and fetch_xor);
atomic!(AtomicPtr<T>, atomic::AtomicPtr<T>, *mut T);
