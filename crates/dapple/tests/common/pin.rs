//! Pins which types are `Send` and `Sync`, at compile time.

/// Compiles exactly if the type has the trait, or with `!` exactly if it has not: two ways to
/// choose a method that does not exist twice are ambiguous.
macro_rules! pin_markers {
    ($($type:ty: $send:tt $sync:tt;)*) => {$(
        pin_markers!(@ $type, Send, $send);
        pin_markers!(@ $type, Sync, $sync);
    )*};
    (@ $type:ty, $marker:ident, yes) => {
        const _: fn() = || {
            fn has<T: $marker + ?Sized>() {}
            has::<$type>();
        };
    };
    (@ $type:ty, $marker:ident, no) => {
        const _: fn() = || {
            trait Ambiguous<A> {
                fn check() {}
            }
            impl<T: ?Sized> Ambiguous<()> for T {}
            struct Has;
            impl<T: ?Sized + $marker> Ambiguous<Has> for T {}
            <$type as Ambiguous<_>>::check();
        };
    };
}
