//! Futures that are ready: started in a scope, pushed to a `FuturesUnordered`, awaited.

use std::hint::black_box;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

/// How many are started in one scope.
const IN_A_SCOPE: usize = 1000;

async fn child(number: usize) -> usize {
    black_box(number)
}

pub(crate) async fn in_scope(count: usize) {
    for _ in 0..count.div_ceil(IN_A_SCOPE) {
        let sum = dapple::finish(async |scope| {
            let mut sum = 0;
            for number in 0..IN_A_SCOPE {
                sum += scope.start(child(number)).await;
            }
            sum
        });
        check(sum.await);
    }
}

pub(crate) async fn unordered(count: usize) {
    for _ in 0..count.div_ceil(IN_A_SCOPE) {
        let mut set = FuturesUnordered::new();
        let mut sum = 0;
        for number in 0..IN_A_SCOPE {
            set.push(child(number));
            sum += set.next().await.expect("what was pushed");
        }
        check(sum);
    }
}

pub(crate) async fn awaited(count: usize) {
    for _ in 0..count.div_ceil(IN_A_SCOPE) {
        let mut sum = 0;
        for number in 0..IN_A_SCOPE {
            sum += child(number).await;
        }
        check(sum);
    }
}

fn check(sum: usize) {
    assert_eq!(sum, IN_A_SCOPE * (IN_A_SCOPE - 1) / 2);
}
