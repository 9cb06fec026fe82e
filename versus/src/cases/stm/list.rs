//! `stm/list`: a sorted list of about 256 nodes, each link a variable.
//!
//! Of the operations 10% insert a key, 10% remove one, and 80% look whether one is there; the keys are random among 512.
//! Each transaction walks from the head to its key, so it reads 64 to 256 variables one after the other. In the end the list
//! must be sorted, and as long as the operations say.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::contest::Contest;
use crate::scatter::{below, scatter};
use crate::sides::Side;
use crate::stms::{AsyncStm, DappleStm, FastStm, Step, Stm};
use crate::work::Work;

pub(super) fn contest() -> Contest {
    let about = "a sorted list of 256 variables, 20% of the transactions change it; per transaction";
    super::contest::<List<DappleStm>, List<FastStm>, List<AsyncStm>>("stm/list", about)
}

/// The keys are below it. Every other one is in the list at the start.
const KEYS: u64 = 512;

/// Operations after which a task lets others run.
const TURN: u64 = 64;

/// The rest of a list.
type Link<M> = Option<Arc<Node<M>>>;

struct Node<M: Stm> {
    key: u64,
    next: M::Var<Link<M>>,
}

struct List<M>(PhantomData<M>);

impl<M: Stm> Work for List<M>
where
    M::Var<Link<M>>: Send + Sync + 'static,
{
    const BATCHES: usize = 40;
    const OPERATIONS: usize = 1024;

    async fn run<S: Side>(side: S, batches: usize) {
        let mut link = None;
        for key in (0..KEYS / 2).rev().map(|half| 2 * half) {
            link = Some(Arc::new(Node::<M> { key, next: M::var(link) }));
        }
        let head: Arc<M::Var<Link<M>>> = Arc::new(M::var(link));
        let each = (batches * Self::OPERATIONS / M::TASKS) as u64;
        let mut tasks = Vec::with_capacity(M::TASKS);
        for task in 0..M::TASKS as u64 {
            let head = head.clone();
            tasks.push(side.spawn(async move {
                let mut grown = 0_i64;
                for number in task * each..(task + 1) * each {
                    grown += operation::<M>(&head, scatter(number)).await;
                    if number % TURN == TURN - 1 {
                        S::yield_now().await;
                    }
                }
                grown
            }));
        }
        let mut length = KEYS as i64 / 2;
        for task in tasks {
            length += S::join(task).await;
        }
        assert_eq!(sorted_length::<M>(&head).await, length, "a change of the list was lost");
    }
}

/// One operation. Returns by how much the list has grown.
async fn operation<M: Stm>(head: &M::Var<Link<M>>, scattered: u64) -> i64
where
    M::Var<Link<M>>: Send + Sync + 'static,
{
    let key = below(scattered, KEYS);
    match scattered % 10 {
        0 => M::atomically(|transaction| insert::<M>(transaction, head, key)).await.into(),
        1 => -i64::from(M::atomically(|transaction| remove::<M>(transaction, head, key)).await),
        _ => {
            M::atomically(|transaction| {
                let (_, next) = find::<M>(transaction, head, key)?;
                Ok(next.is_some_and(|node| node.key == key))
            })
            .await;
            0
        }
    }
}

/// The last node before `key` (none: the head) and the first one that is not.
fn find<M: Stm>(
    transaction: &mut M::Transaction<'_>,
    head: &M::Var<Link<M>>,
    key: u64,
) -> Step<M, (Link<M>, Link<M>)>
where
    M::Var<Link<M>>: Send + Sync + 'static,
{
    let mut before: Link<M> = None;
    loop {
        let at = before.as_ref().map_or(head, |node| &node.next);
        match M::with(transaction, at, Link::<M>::clone)? {
            Some(node) if node.key < key => before = Some(node),
            next => return Ok((before, next)),
        }
    }
}

/// Returns whether the key was not there.
fn insert<M: Stm>(transaction: &mut M::Transaction<'_>, head: &M::Var<Link<M>>, key: u64) -> Step<M, bool>
where
    M::Var<Link<M>>: Send + Sync + 'static,
{
    let (before, next) = find::<M>(transaction, head, key)?;
    let is_new = next.as_ref().is_none_or(|node| node.key != key);
    if is_new {
        let at = before.as_ref().map_or(head, |node| &node.next);
        M::write(transaction, at, Some(Arc::new(Node { key, next: M::var(next) })))?;
    }
    Ok(is_new)
}

/// Returns whether the key was there.
fn remove<M: Stm>(transaction: &mut M::Transaction<'_>, head: &M::Var<Link<M>>, key: u64) -> Step<M, bool>
where
    M::Var<Link<M>>: Send + Sync + 'static,
{
    let (before, next) = find::<M>(transaction, head, key)?;
    let Some(node) = next.filter(|node| node.key == key) else { return Ok(false) };
    let rest = M::with(transaction, &node.next, Link::<M>::clone)?;
    let at = before.as_ref().map_or(head, |node| &node.next);
    M::write(transaction, at, rest)?;
    Ok(true)
}

/// The length of the list. Panics if it is not sorted.
async fn sorted_length<M: Stm>(head: &M::Var<Link<M>>) -> i64
where
    M::Var<Link<M>>: Send + Sync + 'static,
{
    let keys = M::atomically(|transaction| {
        let mut keys = Vec::new();
        let mut at: Link<M> = M::with(transaction, head, Link::<M>::clone)?;
        while let Some(node) = at {
            keys.push(node.key);
            at = M::with(transaction, &node.next, Link::<M>::clone)?;
        }
        Ok(keys)
    })
    .await;
    assert!(keys.is_sorted_by(|one, next| one < next), "the list is not sorted: {keys:?}");
    keys.len() as i64
}
