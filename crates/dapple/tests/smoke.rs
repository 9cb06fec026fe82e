//! The shortest way through everything.
use dapple::{Color, ColorCell};
use std::sync::Arc;

#[dapple::test]
async fn spawn_and_join() {
    let handles: Vec<_> = (0..1000u64)
        .map(|i| {
            dapple::spawn(async move {
                dapple::task::yield_now().await;
                i
            })
        })
        .collect();
    let mut sum = 0;
    for h in handles {
        sum += h.await.unwrap();
    }
    assert_eq!(sum, 499500);
}

#[test]
fn runtime_block_on() {
    let rt = dapple::Runtime::builder().workers(2).build().unwrap();
    for _ in 0..100 {
        let n = rt.block_on(async {
            let c = Color::new();
            let cell = Arc::new(ColorCell::in_color(&c, 0));
            let hs: Vec<_> = (0..100)
                .map(|_| {
                    let cell = cell.clone();
                    c.spawn(async move {
                        for _ in 0..10 {
                            cell.with(|n| *n += 1);
                            dapple::task::yield_now().await
                        }
                    })
                })
                .collect();
            for h in hs {
                h.await.unwrap();
            }
            c.call(move || cell.with(|n| *n)).await.unwrap()
        });
        assert_eq!(n, 1000);
    }
    println!("{:?}", rt.metrics());
}

#[dapple::test(workers = 2)]
async fn promote() {
    let h = dapple::spawn(async {
        let cell = Arc::new(ColorCell::new(0));
        let c = Color::current();
        let hs: Vec<_> = (0..100)
            .map(|_| {
                let cell = cell.clone();
                c.spawn(async move {
                    for _ in 0..10 {
                        cell.with(|n| *n += 1);
                        dapple::task::yield_now().await
                    }
                })
            })
            .collect();
        for h in hs {
            h.await.unwrap();
        }
        cell.with(|n| *n)
    });
    assert_eq!(h.await.unwrap(), 1000);
}

#[dapple::test]
async fn blocking_and_local() {
    let x = std::rc::Rc::new(5);
    let y = x.clone();
    assert_eq!(dapple::spawn_local(async move { *y }).await.unwrap(), 5);
    assert_eq!(dapple::blocking(|| 7).await.unwrap(), 7);
    assert!(dapple::spawn(async { panic!("x") }).await.unwrap_err().is_panic());
    dapple::spawn(std::future::pending::<()>()).detach();
}
