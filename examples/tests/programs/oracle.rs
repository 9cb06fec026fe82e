//! Dapple keeps to the rules of scopes, and the rules have the properties that the paper states.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use crate::common::output;
use examples::oracle::check::{Effort, Places, programs};
use examples::oracle::elision::{without_async, without_cancel};
use examples::oracle::explore::Outcome;
use examples::oracle::generate::Kind;
use examples::oracle::language::{
    Channel, Command, Expression, Flag, Io, Pool, Programs, Shared, Value, Variable,
};
use examples::oracle::rules::{Rules, State};
use examples::oracle::run::{Place, happens};

const SEED: u64 = 5;
/// Programs with more states than this are left out.
const STATES: usize = 100;

fn sequence(commands: impl IntoIterator<Item = Command, IntoIter: DoubleEndedIterator>) -> Shared {
    let commands = commands.into_iter().rev().map(Arc::new);
    commands.reduce(|rest, command| Arc::new(Command::Sequence(command, rest))).expect("there is one")
}

fn assign(x: u8, value: Value) -> Command {
    Command::Assign(Variable(x), Expression::Value(value))
}

fn send(value: Value, r: u8) -> Io {
    Io::Send(Expression::Value(value), Channel(r))
}

fn recv(x: u8, r: u8) -> Io {
    Io::Recv(Variable(x), Channel(r))
}

fn attempt(io: Io, x: u8, value: Value) -> Command {
    Command::Try(io, Arc::new(assign(x, value)))
}

fn start(commands: impl IntoIterator<Item = Command, IntoIter: DoubleEndedIterator>) -> Command {
    Command::Async(sequence(commands))
}

fn pool(commands: impl IntoIterator<Item = Command, IntoIter: DoubleEndedIterator>) -> Command {
    Command::Pool(Pool::active(sequence(commands)))
}

/// The final states of a program with two variables and a channel.
fn stores(rules: Rules, body: Shared) -> Vec<(Vec<Value>, Vec<Value>, bool)> {
    let programs = Programs { bodies: vec![body], variables: 2, channels: vec![usize::MAX] };
    let outcomes = rules.outcomes(&programs, 1_000).expect("it is small").into_iter();
    outcomes.map(|mut outcome| (outcome.store, outcome.buffers.remove(0), outcome.ended[0])).collect()
}

/// Programs of a kind.
fn small(kind: Kind, count: u64) -> impl Iterator<Item = (u64, Programs)> {
    (0..count).map(move |number| (number, programs(SEED, number, kind)))
}

// ---- what the rules say ----

#[test]
fn the_rules_say_what_the_paper_says() {
    // A started command runs until it blocks, then its starter goes on; in the paper every operation blocks.
    let body = || sequence([start([Command::Io(send(1, 0)), assign(0, 2)]), assign(0, 3)]);
    assert_eq!(stores(Rules::Paper, body()), [(vec![2, 0], vec![1], true)]);
    assert_eq!(stores(Rules::Dapple, body()), [(vec![3, 0], vec![1], true)]);

    // An operation in a cancelled pool happens or not, and so does one that is begun there; not with us.
    let body = || sequence([Command::Cancel, attempt(send(1, 0), 0, 2)]);
    let (sent, cancelled) = ((vec![0, 0], vec![1], true), (vec![2, 0], vec![], true));
    assert_eq!(stores(Rules::Paper, body()), [sent, cancelled.clone()]);
    assert_eq!(stores(Rules::Dapple, body()), [cancelled]);

    // A message is received, or the wait for it is cancelled, and the message is left.
    for rules in [Rules::Paper, Rules::Dapple] {
        let body = [start([attempt(recv(0, 0), 1, 2)]), Command::Io(send(1, 0)), Command::Cancel];
        assert_eq!(stores(rules, sequence(body)), [(vec![0, 2], vec![1], true), (vec![1, 0], vec![], true)]);
    }

    // A pool inside of a cancelled one is cancelled; one around it is not, nor what cannot be.
    for rules in [Rules::Paper, Rules::Dapple] {
        let inner = [start([pool([attempt(recv(0, 0), 0, 1)])]), Command::Cancel];
        assert_eq!(stores(rules, sequence(inner)), [(vec![1, 0], vec![], true)]);
        let outer = [start([attempt(recv(0, 0), 0, 1)]), pool([Command::Cancel]), assign(1, 1)];
        assert_eq!(stores(rules, sequence(outer)), [(vec![0, 1], vec![], false)]);
        let plain = [start([Command::Io(recv(0, 0))]), Command::Cancel];
        assert_eq!(stores(rules, sequence(plain)), [(vec![0, 0], vec![], false)]);
    }
}

#[test]
fn a_pool_without_waits_does_not_block_its_starter() {
    // In the paper, all that is cancelled has blocked before: there x1 is 1 only.
    let inner = || start([pool([start([attempt(recv(0, 0), 0, 1)]), Command::Cancel])]);
    let copy = || Command::Assign(Variable(1), Expression::Sum(Variable(0), 1));
    let body = || sequence([inner(), copy()]);
    assert_eq!(stores(Rules::Paper, body()), [(vec![1, 1], vec![], true)]);
    assert_eq!(stores(Rules::Dapple, body()), [(vec![1, 1], vec![], true), (vec![1, 2], vec![], true)]);
}

// ---- what Dapple does ----

#[test]
fn dapple_keeps_to_the_rules() {
    let effort = Effort { simulations: 2, runs: 1, states: STATES };
    let places = Places::new(effort).unwrap();
    let totals = match places.check_all(SEED, 0, 2_000, &|_| {}) {
        Ok(totals) => totals,
        Err((number, violation)) => panic!("program {number}: {}", places.shrink(violation, number)),
    };
    println!("{totals:?}");
    assert_eq!(totals.checked, 2_000);
    assert!(totals.percent(totals.met) >= 30.0, "a cancel met a blocked operation too rarely: {totals:?}");
    assert!(totals.percent(totals.can_be_stuck) <= 60.0, "too few ran on real workers: {totals:?}");
}

#[test]
fn programs_come_by_number_and_shrink() {
    for (number, programs) in small(Kind::Any, 200) {
        assert_eq!(programs, examples::oracle::check::programs(SEED, number, Kind::Any));
        let size = |programs: &Programs| programs.bodies.iter().map(|body| body.size()).sum::<usize>();
        let smaller = programs.smaller();
        assert!(size(&programs) == programs.bodies.len() || !smaller.is_empty());
        assert!(smaller.iter().all(|smaller| size(smaller) <= size(&programs) && *smaller != programs));
    }
}

// ---- a pool leaves its surroundings alone ----

/// Calls `visit` with all states that programs can come to, by the rules of the paper, if they are put into one
/// pool: the properties hold for pools of any commands, cancelled or not.
fn states(programs: &Programs, visit: &mut dyn FnMut(&State)) {
    let empty = Pool { flag: Flag::Active, commands: Vec::new() };
    let pool = programs.bodies.iter().fold(empty, |pool, body| pool.with(body.clone()));
    let cancelled = Pool { flag: Flag::Cancelled, ..pool.clone() };
    for pool in [pool, cancelled] {
        let commands = vec![Arc::new(Command::Pool(pool))];
        states_from(State { commands, ..Rules::Paper.first(programs) }, visit);
    }
}

fn states_from(first: State, visit: &mut dyn FnMut(&State)) {
    let mut seen = HashSet::from([first.clone()]);
    let mut left = vec![first];
    while let Some(state) = left.pop() {
        visit(&state);
        left.extend(Rules::Paper.next(&state).into_iter().filter(|next| seen.insert(next.clone())));
        if seen.len() > STATES / 4 {
            return;
        }
    }
}

#[test]
fn a_pool_leaves_its_surroundings_alone_by_the_rules() {
    let mut pools = 0;
    for (_, programs) in small(Kind::Any, 500) {
        states(&programs, &mut |state| {
            for flag in [Flag::Active, Flag::Cancelled] {
                let around = Pool { flag, commands: vec![Arc::new(Command::Io(send(1, 0)))] };
                for command in state.commands.iter().filter(|command| matches!(***command, Command::Pool(_)))
                {
                    for (_, after, _) in Rules::Paper.evaluate(&state.store, &around, command) {
                        assert_eq!(after, around);
                        pools += 1;
                    }
                }
            }
        });
    }
    assert!(pools > 5_000, "{pools}");
}

/// A program inside of another one that waits: the outer waiter is not cancelled, and is sent a message when the inner
/// program is over. Returns the variable that it has received.
fn surrounded(programs: &Programs) -> (Programs, usize) {
    let (variable, channel) = (programs.variables, programs.channels.len());
    let (x, r) = (variable as u8, channel as u8);
    let mut around = programs.clone();
    around.bodies.truncate(1);
    let inner = Command::Pool(Pool::active(around.bodies.remove(0)));
    around.bodies.push(sequence([
        start([attempt(recv(x, r), x, -1)]),
        inner,
        attempt(send(-2, r), x, -3), // begun late, if the cancel has come out of the pool
    ]));
    around.channels.push(usize::MAX);
    (Programs { variables: variable + 1, ..around }, variable)
}

#[test]
fn a_pool_leaves_its_surroundings_alone() {
    let mut checked = 0;
    for (number, programs) in small(Kind::Any, 600) {
        let (around, variable) = surrounded(&programs);
        for rules in [Rules::Dapple, Rules::Paper] {
            let Some(allowed) = rules.outcomes(&around, STATES) else { continue };
            let is_well =
                |outcome: &Outcome| outcome.store[variable] == if outcome.is_stuck() { 0 } else { -2 };
            assert!(allowed.iter().all(is_well), "{around}");
            let outcome = happens(&around, rules, &Place::Simulated, number).outcome;
            let outcome = outcome.unwrap_or_else(|why| panic!("{around}\n{why}"));
            assert!(is_well(&outcome), "{around}\n{outcome}");
            checked += 1;
        }
    }
    assert!(checked > 900, "{checked}");
}

// ---- elision ----

/// Whether each transition of `state` has a counterpart from the elided state to the elided successor.
fn is_followed(state: &State, elide: fn(&Shared) -> Shared) -> bool {
    let elided = |state: &State| {
        let mut state = state.clone();
        state.commands = state.commands.iter().map(elide).collect();
        state
    };
    let follow: HashSet<State> = Rules::Paper.next(&elided(state)).into_iter().collect();
    Rules::Paper.next(state).iter().all(|next| follow.contains(&elided(next)))
}

fn elided(programs: &Programs, elide: fn(&Shared) -> Shared) -> Programs {
    Programs { bodies: programs.bodies.iter().map(elide).collect(), ..programs.clone() }
}

#[test]
fn async_makes_no_difference_where_nothing_blocks() {
    for (number, programs) in small(Kind::WithoutIo, 500) {
        states(&programs, &mut |state| {
            assert!(is_followed(state, without_async), "{programs}\n{state:?}");
        });
        let elided = elided(&programs, without_async);
        let happened = |programs: &Programs| {
            happens(programs, Rules::Dapple, &Place::Simulated, number).outcome.unwrap()
        };
        let [happened, expected] = [&programs, &elided].map(happened);
        assert_eq!(happened, expected, "{programs}");
        for rules in [Rules::Dapple, Rules::Paper] {
            assert_eq!(rules.outcomes(&elided, STATES), Some(BTreeSet::from([happened.clone()])), "{elided}");
        }
    }
}

#[test]
fn cancel_makes_no_difference_where_nothing_can_be_cancelled() {
    let mut checked = 0;
    for (number, programs) in small(Kind::WithoutTry, 500) {
        states(&programs, &mut |state| {
            assert!(is_followed(state, without_cancel), "{programs}\n{state:?}");
        });
        let elided = elided(&programs, without_cancel);
        for rules in [Rules::Dapple, Rules::Paper] {
            let Some(allowed) = rules.outcomes(&elided, STATES) else { continue };
            let happened = happens(&programs, rules, &Place::Simulated, number);
            let outcome = happened.outcome.unwrap_or_else(|why| panic!("{programs}\n{why}"));
            assert!(allowed.contains(&outcome), "{programs}\n{outcome}");
            assert!(!happened.met);
            checked += 1;
        }
    }
    assert!(checked > 750, "{checked}");
}

// ---- the example ----

#[test]
fn the_example_says_what_it_found() {
    let oracle = |arguments: &[&str]| output(env!("CARGO_BIN_EXE_oracle"), arguments);
    let (is_ok, text) = oracle(&["--count", "100", "--states", "100", "--simulations", "1"]);
    assert!(
        is_ok && text.contains("100 programs in ") && text.contains(", 0 outside of the rules"),
        "{text}"
    );
    assert!(text.contains(" % of them a cancel met a blocked operation"), "{text}");
    let (is_ok, shown) = oracle(&["--show", "--from", "7", "--count", "1"]);
    assert!(is_ok && shown.contains("pool ACTV {") && shown.contains("Paper: x0 = "), "{shown}");
    assert_eq!(oracle(&["--show", "--from", "7", "--count", "1"]).1, shown);
    for arguments in [&["--count", "x"][..], &["all"], &["--fast"]] {
        let (is_ok, text) = oracle(arguments);
        assert!(!is_ok && text.contains("oracle: "), "{arguments:?}: {text}");
    }
}
