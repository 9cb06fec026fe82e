//! `sim::explore`: one seed after the other, to the first that fails, which can be run again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::children::{child, is_child, shell};
use dapple::sim::{self, Sim};
use dapple::task::yield_now;
use dapple::time::{Instant, sleep};

/// Looks first and acts then: both may see a ticket that is there once. With most seeds they do not.
async fn sell_the_last_ticket() {
    let (tickets, sold) = (Arc::new(AtomicU32::new(1)), Arc::new(AtomicU32::new(0)));
    let buyers: Vec<_> = (0..2)
        .map(|_| {
            let (tickets, sold) = (tickets.clone(), sold.clone());
            dapple::spawn(async move {
                sleep(Duration::from_nanos(sim::random() % 1_000_000)).await.unwrap();
                if tickets.load(Ordering::Relaxed) > 0 {
                    yield_now().await;
                    tickets.store(0, Ordering::Relaxed);
                    sold.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for buyer in buyers {
        buyer.await.unwrap();
    }
    assert_eq!(sold.load(Ordering::Relaxed), 1, "sold more than once");
}

/// The seed that [`sim::explore`] should find, by trying one after the other.
fn first_failing_seed() -> u64 {
    let fails = |seed: &u64| Sim::new(*seed).try_run(sell_the_last_ticket()).is_err();
    (0..1000).find(fails).expect("it can go wrong")
}

#[test]
fn the_first_seed_that_fails_is_found() {
    let failure = Sim::new(0).try_explore(0..1000, sell_the_last_ticket).unwrap_err();
    assert_eq!(failure.seed(), first_failing_seed());
    assert!(failure.why().contains("sold more than once"), "{failure}");
    assert!(failure.to_string().contains(&failure.run_again()), "{failure}");
}

#[test]
fn nothing_is_tried_after_a_failure() {
    let mut runs = 0;
    let tried = catch_unwind(AssertUnwindSafe(|| {
        sim::explore(100..200, || {
            runs += 1;
            let is_last = runs == 18;
            async move { assert!(!is_last, "that is it") }
        });
    }));
    assert_eq!(runs, 18);
    assert_eq!(tried.unwrap_err().downcast_ref(), Some(&"that is it"), "the panic comes out as it was");
}

#[test]
fn all_seeds_are_tried_if_none_fails() {
    let mut runs = 0;
    let tried = Sim::new(0).try_explore(5..105, || {
        runs += 1;
        async {}
    });
    assert_eq!((tried.unwrap(), runs), (100, 100));
    assert_eq!(Sim::new(0).try_explore(7..7, || async {}).unwrap(), 0);
    sim::explore(7..7, || async { panic!("there is nothing to try") as () });
}

#[test]
fn an_error_is_a_failure() {
    let mut runs = 0u8;
    let failure = Sim::new(0).try_explore(0..100, || {
        runs += 1;
        let result = if runs < 6 { Ok(runs) } else { Err("sold out") };
        async move { result }
    });
    let failure = failure.unwrap_err();
    assert_eq!((failure.seed(), failure.why()), (5, "returned an error: \"sold out\""));
    assert_eq!(runs, 6);

    let error = || async { Err::<(), _>("sold out") };
    let panicked = catch_unwind(|| sim::explore(3..100, error)).unwrap_err();
    let text = panicked.downcast_ref::<String>().unwrap();
    assert_eq!(text, "the simulation failed with seed 3: returned an error: \"sold out\"");
}

#[test]
fn what_does_not_end_is_a_failure() {
    let stuck = || std::future::pending::<()>();
    let failure = Sim::new(0).try_explore(0..100, stuck).unwrap_err();
    assert!(failure.seed() == 0 && failure.why().starts_with("deadlock"), "{failure}");

    let endless = || async {
        while sim::is_simulated() {
            yield_now().await;
        }
    };
    let failure = Sim::new(0).max_polls(1000).try_explore(0..100, endless).unwrap_err();
    assert!(failure.seed() == 0 && failure.why().starts_with("it does not end"), "{failure}");
}

#[test]
fn settings_are_those_of_the_simulation() {
    Sim::new(0).workers(8).steady().explore(0..20, || async {
        let begun = Instant::now();
        let work = || async { sim::work(Duration::from_millis(10)) };
        let tasks: Vec<_> = (0..16).map(|_| dapple::spawn(work())).collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(begun.elapsed().as_millis(), 20);
    });
}

#[test]
fn seeds_go_to_the_last_there_is() {
    let mut runs = 0;
    let count = || {
        runs += 1;
        async {}
    };
    sim::explore(u64::MAX - 3..u64::MAX, count);
    assert_eq!(runs, 3);
}

// The tests below run in child processes, which fail.

#[test]
fn explores_the_sale() {
    if is_child() {
        sim::explore(0..1000, sell_the_last_ticket);
    }
}

#[test]
fn explore_passes_a_correct_program() {
    if is_child() {
        let begun = std::time::Instant::now();
        let mut runs = 0;
        // Longer than it takes for a bar to be drawn, where one is.
        sim::explore(0..1_000_000, || {
            runs += 1;
            assert!(runs < 1_000_000 && begun.elapsed() < Duration::from_millis(300), "enough");
            async {}
        });
    }
}

#[test]
fn explores_a_few() {
    if is_child() {
        sim::explore(0..5, || async { eprintln!("rolled {}", sim::random()) });
    }
}

#[test]
fn explores_by_chance() {
    if is_child() {
        let mut runs = 0;
        sim::explore(0..5, || {
            runs += 1;
            let is_first = runs == 1;
            async move { assert!(!is_first, "once only") }
        });
    }
}

#[test]
fn runs_one() {
    if is_child() {
        Sim::new(first_failing_seed()).run(sell_the_last_ticket());
    }
}

#[test]
fn a_single_run_writes_the_same_trace() {
    let traced = |test| {
        let ended = child(test, &[("DAPPLE_TRACE", "-")]);
        let (_, trace) = ended.stderr.split_once("its trace:\n").unwrap_or_else(|| panic!("{ended:#?}"));
        trace.lines().take_while(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(traced("runs_one").len() > 5);
    assert_eq!(traced("runs_one"), traced("explores_the_sale"));
}

#[test]
fn the_line_that_is_printed_fails_in_the_same_way() {
    let first = child("explores_the_sale", &[]);
    let seed = first_failing_seed();
    assert!(!first.is_success, "{first:#?}");
    let why = format!("dapple: the simulation failed with seed {seed}: ");
    assert_eq!(first.lines(&why).len(), 1, "{first:#?}");
    assert!(first.run_again().starts_with(&format!("DAPPLE_SEED={seed} ")), "{first:#?}");

    let second = shell(first.run_again());
    assert!(!second.is_success, "{second:#?}");
    assert_eq!(second.lines(&why), first.lines(&why));
    assert_eq!(second.run_again(), first.run_again());
    let summary = format!("dapple: seed {seed} alone, by DAPPLE_SEED: it failed (passed: 0 of 1 seeds,");
    assert_eq!(second.lines(&summary).len(), 1, "{second:#?}");
}

#[test]
fn the_trace_of_a_failure_is_the_same_every_time() {
    let folder = std::env::temp_dir().join(format!("dapple-sim-explore-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let traced = |name: &str, seed: &str| {
        let path = folder.join(name);
        let path = path.to_str().unwrap();
        let ended = child("explores_the_sale", &[("DAPPLE_TRACE", path), ("DAPPLE_SEED", seed)]);
        assert!(!ended.is_success, "{ended:#?}");
        assert_eq!(ended.lines("its trace: "), [path], "{ended:#?}");
        (std::fs::read_to_string(path).unwrap(), ended)
    };
    let seed = first_failing_seed();
    let (searched, ended) = traced("searched", "");
    assert!(searched.starts_with(&format!("# seed {seed}, 4 workers\n")), "{searched}");
    assert!(searched.lines().count() > 5, "{searched}");
    assert_eq!(ended.lines(&format!("dapple: runs seed {seed} again, for its trace")).len(), 1, "{ended:#?}");

    let (alone, ended) = traced("alone", &seed.to_string());
    assert_eq!(alone, searched);
    assert!(ended.lines("dapple: runs seed").is_empty(), "it is traced at once: {ended:#?}");

    let fails = |seed: &u64| Sim::new(*seed).try_run(sell_the_last_ticket()).is_err();
    let other = (seed + 1..2000).find(fails).unwrap();
    assert_ne!(traced("other", &other.to_string()).0, searched);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_trace_can_go_to_stderr_and_its_file_be_impossible() {
    let ended = child("explores_the_sale", &[("DAPPLE_TRACE", "-")]);
    assert!(!ended.is_success && ended.stderr.contains("its trace:\n# seed "), "{ended:#?}");
    let ended = child("explores_the_sale", &[("DAPPLE_TRACE", "/dev/null/no")]);
    assert_eq!(ended.lines("its trace: DAPPLE_TRACE=/dev/null/no: ").len(), 1, "{ended:#?}");
    assert_eq!(ended.lines("run it again: ").len(), 1, "{ended:#?}");
}

#[test]
fn what_does_not_go_by_the_seed_is_told() {
    let ended = child("explores_by_chance", &[("DAPPLE_TRACE", "-")]);
    assert!(!ended.is_success, "{ended:#?}");
    assert_eq!(ended.lines("dapple: this time it did not fail: ").len(), 1, "{ended:#?}");
    assert!(ended.stderr.contains("its trace: this run has none"), "{ended:#?}");
}

#[test]
fn one_seed_can_be_asked_for() {
    let all = child("explores_a_few", &[]);
    assert!(all.is_success && all.lines("rolled ").len() == 5, "{all:#?}");
    assert_eq!(all.lines("dapple: none failed (passed: 5 of 5 seeds, in 0.").len(), 1, "{all:#?}");
    for (seed, rolled) in all.lines("rolled ").into_iter().enumerate() {
        let one = child("explores_a_few", &[("DAPPLE_SEED", &seed.to_string())]);
        assert!(one.is_success, "{one:#?}");
        assert_eq!(one.lines("rolled "), [rolled]);
        let summary = format!("dapple: seed {seed} alone, by DAPPLE_SEED: it did not fail");
        assert_eq!(one.lines(&summary).len(), 1, "{one:#?}");
    }
    let last = child("explores_a_few", &[("DAPPLE_SEED", "18446744073709551615")]);
    assert!(last.is_success && last.lines("rolled ").len() == 1, "{last:#?}");
}

#[test]
fn a_seed_that_is_no_number_is_refused() {
    for wrong in ["seventeen", "-1", "1.5", "18446744073709551616"] {
        let ended = child("explores_a_few", &[("DAPPLE_SEED", wrong)]);
        assert!(!ended.is_success && ended.lines("rolled ").is_empty(), "{ended:#?}");
        assert_eq!(ended.lines(&format!("DAPPLE_SEED={wrong}: it must be a number")).len(), 1, "{ended:#?}");
    }
}

#[test]
fn there_is_no_bar_where_there_is_no_terminal() {
    let ended = child("explore_passes_a_correct_program", &[("TERM", "xterm")]);
    assert!(ended.stderr.contains("enough"), "{ended:#?}");
    assert!(!ended.stderr.contains(['\r', '\x1b']), "{ended:#?}");
    assert!(!ended.stderr.contains("seeds, none failed"), "{ended:#?}");
}

/// The closure is called inside of the simulation: what it makes has its deadline from the virtual clock.
#[test]
fn timers_that_the_closure_makes_go_by_the_virtual_clock() {
    let tried = Sim::new(0).try_explore(0..3, || {
        assert!(sim::is_simulated());
        let hour = sleep(Duration::from_secs(3600));
        async {
            let begun = Instant::now();
            hour.await.unwrap();
            assert_eq!(begun.elapsed().as_secs(), 3600);
        }
    });
    assert_eq!(tried.unwrap(), 3);
}
