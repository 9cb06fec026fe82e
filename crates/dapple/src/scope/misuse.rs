//! Misuse that must not compile, each next to a twin that does.
//!
//! A child may borrow variables declared outside of the scope, but not variables of the body, which may be
//! dropped before the child.
//!
//! ```
//! dapple::run(async {
//!     let outside = String::from("lives longer");
//!     dapple::finish(async |s| {
//!         s.start(async { assert_eq!(outside.len(), 12) });
//!     })
//!     .await;
//! });
//! ```
//! ```compile_fail,E0373
//! dapple::run(async {
//!     dapple::finish(async |s| {
//!         let inside = String::from("is gone first");
//!         s.start(async { assert_eq!(inside.len(), 13) });
//!     })
//!     .await;
//! });
//! ```
//! ```compile_fail,E0597
//! dapple::run(async {
//!     dapple::finish(async |s| {
//!         let inside = String::from("is gone first");
//!         let borrowed = &inside;
//!         s.start(async move { assert_eq!(borrowed.len(), 13) });
//!     })
//!     .await;
//! });
//! ```
//!
//! A child may own them:
//!
//! ```
//! dapple::run(async {
//!     dapple::finish(async |s| {
//!         let inside = String::from("goes along");
//!         s.start(async move { assert_eq!(inside.len(), 10) });
//!     })
//!     .await;
//! });
//! ```
//!
//! One child may change a variable; two children may not, nor a child and the body:
//!
//! ```
//! dapple::run(async {
//!     let (mut first, mut second) = (0, 0);
//!     dapple::finish(async |s| {
//!         s.start(async { first += 1 });
//!         s.start(async { second += 1 });
//!     })
//!     .await;
//!     assert_eq!(first + second, 2);
//! });
//! ```
//! ```compile_fail,E0499
//! dapple::run(async {
//!     let mut shared = 0;
//!     dapple::finish(async |s| {
//!         s.start(async { shared += 1 });
//!         s.start(async { shared += 1 });
//!     })
//!     .await;
//!     assert_eq!(shared, 2);
//! });
//! ```
//! ```compile_fail,E0502
//! dapple::run(async {
//!     let mut shared = 0;
//!     dapple::finish(async |s| {
//!         s.start(async { shared += 1 });
//!         assert_eq!(shared, 1);
//!     })
//!     .await;
//! });
//! ```
//!
//! A variable that a child changes can be used again after the scope has ended, not before:
//!
//! ```
//! dapple::run(async {
//!     let mut text = String::new();
//!     dapple::finish(async |s| drop(s.start(async { text.push('x') }))).await;
//!     text.push('y');
//! });
//! ```
//! ```compile_fail,E0499
//! dapple::run(async {
//!     let mut text = String::new();
//!     let scope = dapple::finish(async |s| drop(s.start(async { text.push('x') })));
//!     text.push('y');
//!     scope.await;
//! });
//! ```
//! ```compile_fail,E0505
//! dapple::run(async {
//!     let text = String::new();
//!     let scope = dapple::finish(async |s| drop(s.start(async { assert!(text.is_empty()) })));
//!     drop(text);
//!     scope.await;
//! });
//! ```
//!
//! A scope cannot be returned from its body, nor stored outside. A canceller can.
//!
//! ```
//! dapple::run(async {
//!     let canceller = dapple::finish(async |s| s.canceller()).await;
//!     canceller.cancel();
//! });
//! ```
//! ```compile_fail
//! dapple::run(async {
//!     let leaked = dapple::finish(async |s| s).await;
//!     leaked.cancel();
//! });
//! ```
//! ```compile_fail
//! dapple::run(async {
//!     let mut leaked = None;
//!     dapple::finish(async |s| leaked = Some(s)).await;
//! });
//! ```
//!
//! Nor can the handle of a started child. Its output can.
//!
//! ```
//! dapple::run(async {
//!     assert_eq!(dapple::finish(async |s| s.start(async { 1 }).await).await, 1);
//! });
//! ```
//! ```compile_fail
//! dapple::run(async {
//!     let started = dapple::finish(async |s| s.start(async { 1 })).await;
//!     assert_eq!(started.await, 1);
//! });
//! ```
//! ```compile_fail
//! dapple::run(async {
//!     let mut kept = None;
//!     dapple::finish(async |s| kept = Some(s.start(async { 1 }))).await;
//! });
//! ```
//!
//! A child that borrows a variable between two scopes can be started in the inner one, not in the outer one:
//!
//! ```
//! dapple::run(async {
//!     dapple::finish(async |outer| {
//!         let between = 1;
//!         dapple::finish(async |inner| drop(inner.start(async { assert_eq!(between, 1) }))).await;
//!         outer.start(async move { assert_eq!(between, 1) });
//!     })
//!     .await;
//! });
//! ```
//! ```compile_fail,E0597
//! dapple::run(async {
//!     dapple::finish(async |outer| {
//!         let between = 1;
//!         let between = &between;
//!         dapple::finish(async |_| drop(outer.start(async move { assert_eq!(*between, 1) }))).await;
//!     })
//!     .await;
//! });
//! ```
//!
//! A spawned task may outlive the scope, so it must not refer to the scope, nor borrow. A child may.
//!
//! ```
//! dapple::run(async {
//!     dapple::finish(async |s| {
//!         let canceller = s.canceller();
//!         dapple::spawn(async move { canceller.cancel() }).detach();
//!         s.start(async { s.cancel() });
//!     })
//!     .await;
//! });
//! ```
//! ```compile_fail,E0521
//! dapple::run(async {
//!     dapple::finish(async |s| {
//!         dapple::spawn(async { s.cancel() }).detach();
//!     })
//!     .await;
//! });
//! ```
//! ```compile_fail,E0521
//! dapple::run(async {
//!     dapple::finish(async |s| drop(s.spawn(async { s.cancel() }))).await;
//! });
//! ```
//! ```compile_fail,E0597
//! dapple::run(async {
//!     let borrowed = String::new();
//!     dapple::finish(async |s| drop(s.spawn(async { assert!(borrowed.is_empty()) }))).await;
//! });
//! ```
//!
//! Variables moved into the body are the body's own:
//!
//! ```
//! dapple::run(async {
//!     let text = String::from("stays outside");
//!     dapple::finish(async |s| drop(s.start(async { assert_eq!(text.len(), 13) }))).await;
//! });
//! ```
//! ```compile_fail
//! dapple::run(async {
//!     let text = String::from("is moved inside");
//!     dapple::finish(async move |s| drop(s.start(async { assert_eq!(text.len(), 15) }))).await;
//! });
//! ```
//!
//! In a task, the children, their outputs, and the body between its waits must be `Send`.
//! [`finish_local`](crate::finish_local) does not require that, and cannot be used in such a task.
//!
//! ```
//! use std::{cell::Cell, rc::Rc, sync::Arc};
//!
//! dapple::run(async {
//!     let task = dapple::spawn(async {
//!         let shared = Arc::new(1);
//!         dapple::finish(async |s| {
//!             let own = shared.clone();
//!             s.start(async move { dapple::task::yield_now().await; drop(own) });
//!             dapple::task::yield_now().await;
//!         })
//!         .await;
//!     });
//!     task.await.unwrap();
//!     let cell = Cell::new(0);
//!     dapple::finish_local(async |s| {
//!         let own = Rc::new(1);
//!         let child = s.start(async { cell.set(1); Rc::new(2) });
//!         assert_eq!(*own + *child.await, 3);
//!     })
//!     .await;
//! });
//! ```
//! ```compile_fail
//! use std::rc::Rc;
//!
//! dapple::run(async {
//!     dapple::finish(async |s| {
//!         let own = Rc::new(1);
//!         s.start(async move { dapple::task::yield_now().await; drop(own) });
//!     })
//!     .await;
//! });
//! ```
//! ```compile_fail
//! use std::cell::Cell;
//!
//! dapple::run(async {
//!     let cell = Cell::new(0);
//!     dapple::finish(async |s| drop(s.start(async { cell.set(1) }))).await;
//! });
//! ```
//! ```compile_fail
//! dapple::run(async {
//!     dapple::finish(async |s| drop(s.start(async { std::rc::Rc::new(1) }))).await;
//! });
//! ```
//! ```compile_fail
//! dapple::run(async {
//!     let task = dapple::spawn(async {
//!         dapple::finish(async |_| {
//!             let own = std::rc::Rc::new(1);
//!             dapple::task::yield_now().await;
//!             drop(own);
//!         })
//!         .await;
//!     });
//!     task.await.unwrap();
//! });
//! ```
//! ```compile_fail
//! dapple::run(async {
//!     let task = dapple::spawn(async { dapple::finish_local(async |_| ()).await });
//!     task.await.unwrap();
//! });
//! ```
//!
//! A race, a shield and a timeout borrow as any future does:
//!
//! ```
//! dapple::run(async {
//!     let text = String::from("x");
//!     let race = dapple::race((async { text.len() }, async { text.len() }));
//!     assert_eq!(race.await, 1);
//!     drop(text);
//! });
//! ```
//! ```compile_fail,E0505
//! dapple::run(async {
//!     let text = String::from("x");
//!     let race = dapple::race((async { text.len() }, async { text.len() }));
//!     drop(text);
//!     assert_eq!(race.await, 1);
//! });
//! ```
