//! Models of a post: who is stuck and comes back, and who stood in for it meanwhile.
//!
//! Who sleeps for ever, with nobody left to ring, is a deadlock to loom.

use std::sync::Arc;

use loom::model;
use loom::thread::spawn;

use crate::driver::bell::Bell;
use crate::prim::{AtomicUsize, Mutex, Ordering, lock};
use crate::sched::holder::Holder;

/// The post's own worker, and who stands in for it.
const OWN: usize = 0;
const SPARE: usize = 1;

struct Post {
    holder: Holder,
    bell: Bell,
    /// The driver's claim, which who sleeps in it has.
    claim: Mutex<()>,
    /// What somebody rings the post's own worker for.
    ready: AtomicUsize,
}

impl Post {
    /// Held by the spare.
    fn new() -> Arc<Post> {
        let (holder, bell) = (Holder::new(OWN), Bell::without_kernel());
        assert!(holder.pass(OWN, SPARE));
        Arc::new(Post { holder, bell, claim: Mutex::new(()), ready: AtomicUsize::new(0) })
    }

    /// `Driver::sleep`
    fn sleep(&self, who: usize) {
        let _claim = lock(&self.claim);
        if self.bell.lie_down() && self.holder.get() == who {
            self.bell.listen(None);
        }
        self.bell.get_up();
    }

    /// `Sched::stand_in` and `Worker::leave`
    fn stand_in(&self) {
        while self.holder.get() == SPARE {
            self.sleep(SPARE);
        }
        self.bell.ring(); // PASSED-ON
    }

    /// `Sched::take_post_back`
    fn take_back(&self) {
        self.holder.take_back(OWN);
        self.bell.ring();
    }
}

#[test]
fn who_stood_in_leaves_when_the_post_is_taken_back() {
    model(|| {
        let post = Post::new();
        let spare = spawn({
            let post = post.clone();
            move || post.stand_in()
        });
        post.take_back();
        spare.join().unwrap();
    });
}

#[test]
fn who_came_back_hears_a_ring_that_woke_who_stood_in() {
    model(|| {
        let post = Post::new();
        let spare = spawn({
            let post = post.clone();
            move || post.stand_in()
        });
        let other = spawn({
            let post = post.clone();
            move || {
                post.ready.store(1, Ordering::Relaxed);
                post.bell.ring();
            }
        });
        post.take_back();
        while post.ready.load(Ordering::Relaxed) == 0 {
            post.sleep(OWN);
        }
        spare.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn a_post_is_taken_over_or_back_but_has_one_holder() {
    model(|| {
        let post = Post::new();
        let monitor = spawn({
            let post = post.clone();
            move || post.holder.pass(SPARE, 2) // the spare is stuck, too
        });
        post.take_back();
        let passed = monitor.join().unwrap();
        // Passed on before it was taken back, or not at all.
        assert_eq!(post.holder.get(), OWN, "{passed}");
    });
}
