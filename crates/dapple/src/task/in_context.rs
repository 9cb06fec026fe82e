//! The types of this layer that the context points to.

use super::header::Header;
use super::runtime_shared::RuntimeShared;
use super::slab::LocalSlab;
use crate::context::{Fills, OfRuntime, OfSlab, OfTask};

// SAFETY: no other type fills it. ONE-TYPE
unsafe impl Fills<OfTask> for Header {}
// SAFETY: as above.
unsafe impl Fills<OfRuntime> for RuntimeShared {}
// SAFETY: as above.
unsafe impl Fills<OfSlab> for LocalSlab {}
