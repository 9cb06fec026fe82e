//! Models of the spin lock.

use std::sync::Arc;

use loom::model;
use loom::thread::spawn;

use super::Plain;
use crate::prim::SpinLock;

#[test]
fn one_is_inside_at_a_time_and_sees_what_the_last_one_did() {
    model(|| {
        let lock: Arc<SpinLock<Plain<usize>>> = Arc::default();
        let twice = |lock: &SpinLock<Plain<usize>>| {
            (0..2).for_each(|_| lock.lock().change(|n| *n += 1));
        };
        let other = spawn({
            let lock = lock.clone();
            move || twice(&lock)
        });
        twice(&lock);
        other.join().unwrap();
        assert_eq!(lock.lock().read(), 4);
    });
}
