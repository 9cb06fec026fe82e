//! How a value is kept in a cell: a number in place, any other type behind an `Arc`.
//!
//! # Invariants
//!
//! * **PLAIN-NUMBER**: a type that is kept in place has no padding, no destructor and no pointers, and at most 64 bits. Its
//!   bits are the address of a pointer without provenance.
//! * **ARC-BITS**: the bits of any other type are a pointer from `Arc::into_raw`, which own one reference.
//! * **SENDABLE**: values are dropped on any thread, and seen on several at once: `Send + Sync + 'static`.

use std::any::TypeId;
use std::marker::PhantomData;
use std::mem::needs_drop;
use std::num::{
    NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroIsize, NonZeroU8, NonZeroU16, NonZeroU32,
    NonZeroU64, NonZeroUsize,
};
use std::ptr::without_provenance_mut;
use std::sync::Arc;

use super::cell::ValueBits;
use super::realm::ValueKind;

/// Whether a type is kept in place. The compiler knows the answer. PLAIN-NUMBER
#[inline(always)]
pub(super) fn is_in_place<T: 'static>() -> bool {
    macro_rules! is_one_of {
        ($($t:ty)*) => { $(TypeId::of::<T>() == TypeId::of::<$t>())||* };
    }
    is_one_of! {
        () bool char u8 i8 u16 i16 u32 i32 u64 i64 usize isize f32 f64
        NonZeroU8 NonZeroI8 NonZeroU16 NonZeroI16 NonZeroU32 NonZeroI32 NonZeroU64 NonZeroI64 NonZeroUsize NonZeroIsize
        Option<NonZeroU8> Option<NonZeroU16> Option<NonZeroU32> Option<NonZeroU64> Option<NonZeroUsize>
    }
}

/// The bits of a new value.
#[inline]
pub(super) fn to_bits<T: Send + Sync + 'static>(value: T) -> ValueBits {
    if !is_in_place::<T>() {
        return Arc::into_raw(Arc::new(value)).cast_mut().cast(); // ARC-BITS
    }
    let mut bits = 0_usize;
    let to: *mut usize = &raw mut bits;
    // SAFETY: `T` has at most 64 bits, none of them is padding, and none has provenance. PLAIN-NUMBER
    unsafe { to.cast::<T>().write(value) };
    without_provenance_mut(bits)
}

/// The number that is kept in place. PLAIN-NUMBER
///
/// # Safety
///
/// `T` is kept in place, and the bits are of a `T`.
#[inline]
unsafe fn number<T: 'static>(bits: ValueBits) -> T {
    let bits = bits.addr();
    let from: *const usize = &raw const bits;
    // SAFETY: the bits are of a `T`, which owns nothing, and is aligned to at most 64 bits.
    unsafe { from.cast::<T>().read() }
}

/// Calls `f` with the value.
///
/// # Safety
///
/// The bits are of a `T`, which is not dropped during the call.
#[inline]
pub(super) unsafe fn with<T: 'static, R>(bits: ValueBits, f: impl FnOnce(&T) -> R) -> R {
    if is_in_place::<T>() {
        // SAFETY: promised by the caller.
        f(&unsafe { number(bits) })
    } else {
        // SAFETY: promised by the caller. ARC-BITS
        f(unsafe { &*bits.cast::<T>() })
    }
}

/// The value in an `Arc`: the one that it is kept in, unless it is a number.
///
/// # Safety
///
/// The bits are of a `T`, which is not dropped during the call.
pub(super) unsafe fn to_arc<T: 'static>(bits: ValueBits) -> Arc<T> {
    if is_in_place::<T>() {
        // SAFETY: promised by the caller.
        return Arc::new(unsafe { number(bits) });
    }
    let value: *const T = bits.cast();
    // SAFETY: the bits own a reference, which keeps the value during this call. ARC-BITS
    unsafe { Arc::increment_strong_count(value) };
    // SAFETY: the reference was just counted.
    unsafe { Arc::from_raw(value) }
}

/// The value for exclusive use, if no other reference to it exists. For bits that are in no cell.
///
/// # Safety
///
/// The bits are of a `T` that is not kept in place, and the caller owns them.
pub(super) unsafe fn get_mut<'a, T: 'static>(bits: ValueBits) -> Option<&'a mut T> {
    // SAFETY: the bits are those of an `Arc`. ARC-BITS
    let mut arc = std::mem::ManuallyDrop::new(unsafe { Arc::from_raw(bits.cast::<T>().cast_const()) });
    let value: *mut T = Arc::get_mut(&mut arc)?;
    // SAFETY: there is no other reference, and the caller owns this one for the lifetime.
    Some(unsafe { &mut *value })
}

/// The most bytes of a value that a log keeps to retire it with others.
const SMALL: usize = 64;

/// How values of the type are dropped; `None` if they need not be.
#[inline(always)]
pub(super) fn kind<T: Send + Sync + 'static>() -> Option<&'static ValueKind> {
    struct Of<T>(PhantomData<T>);
    impl<T: Send + Sync + 'static> Of<T> {
        const KIND: ValueKind =
            ValueKind { drop_bits: drop_arc::<T>, is_plain: !needs_drop::<T>() && size_of::<T>() <= SMALL };
    }
    (!is_in_place::<T>()).then_some(const { &Of::<T>::KIND })
}

/// # Safety
///
/// The bits are of a `T` that is not kept in place, and the caller owns them.
pub(super) unsafe fn drop_arc<T: Send + Sync + 'static>(bits: ValueBits) {
    // SAFETY: promised by the caller. ARC-BITS
    drop(unsafe { Arc::from_raw(bits.cast::<T>().cast_const()) });
}
