//! Numbers that look random, and are the same on all sides and in every run.

/// A number that looks random, a different one for each number.
#[inline]
pub(crate) fn scatter(number: u64) -> u64 {
    // The finalizer of splitmix64.
    let mut hash = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// A number in `0..range`, of a scattered one; without a division.
#[inline]
pub(crate) fn below(scattered: u64, range: u64) -> u64 {
    ((u128::from(scattered) * u128::from(range)) >> 64) as u64
}
