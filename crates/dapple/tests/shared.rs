//! `Shared`, `together` and `together_all`: what they promise, one test for each.

use dapple::{Shared, together, together_all};

#[test]
fn first() {
    dapple::run(async {
        let (a, b) = (Shared::new(1), Shared::named("b", String::from("x")));
        let got = together((a.reading(), b.writing()), |(a, b)| {
            b.push_str(&a.to_string());
            b.len()
        })
        .await;
        assert_eq!(got, Ok(2));
        let all = [a.writing(), a.writing()];
        let _ = &all[..1];
        together_all(&all[..1], |all| *all[0] += 1).await.unwrap();
        assert_eq!(a.read(|a| *a).await, Ok(2));
        println!("{a:?} {b:?}");
    });
}
