//! Programs at random, by seed, and smaller ones that fail in the same way.

use std::sync::Arc;

use super::language::{Channel, Command, Condition, Expression, Io, Pool, Programs, Shared, Value, Variable};

/// Random numbers by seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice for one of many: neighbours have nothing in common.
    #[must_use]
    pub fn new(seed: u64, number: u64) -> Dice {
        let mut dice = Dice(seed);
        let seed = dice.throw();
        dice.0 = seed ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93);
        dice
    }

    /// The next number.
    pub fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of `0..n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.throw() % n as u64) as usize
    }

    /// True with a chance of one in `n`.
    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// The commands that programs may be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Everything.
    Any,
    /// Nothing that blocks.
    WithoutIo,
    /// No `try`: nothing that can be cancelled.
    WithoutTry,
}

/// The number of variables in each program that are assigned, received and asked; others count loops.
const VARIABLES: usize = 3;

struct Generator<'a> {
    dice: &'a mut Dice,
    kind: Kind,
    /// Where the variables of this program begin.
    first: usize,
    variables: usize,
    /// The number of channels.
    channels: usize,
    number: usize,
    count: usize,
    /// The value that was assigned or sent last: no two are the same, so that a value shows its origin.
    last: Value,
}

impl Programs {
    /// Programs at random: one, two or three that run side by side.
    #[must_use]
    pub fn random(dice: &mut Dice, kind: Kind) -> Programs {
        let count = [1, 1, 1, 2, 2, 2, 3][dice.below(7)];
        // In one of four, a message is all there is room for in each channel.
        let room = if dice.one_in(4) { 1 } else { usize::MAX };
        let channels = vec![room; count + dice.below(2)];
        let (mut variables, mut last) = (0, 0);
        let mut bodies = Vec::new();
        for number in 0..count {
            let size = match count {
                1 => 3 + dice.below(6),
                2 => 2 + dice.below(3),
                _ => 1 + dice.below(3),
            };
            let first = variables;
            let channels = channels.len();
            let mut generator =
                Generator { dice, kind, first, variables: first + VARIABLES, channels, number, count, last };
            bodies.push(generator.body(size, 0));
            (variables, last) = (generator.variables, generator.last);
        }
        Programs { bodies, variables, channels }
    }

    /// Programs that are a bit smaller, each in another way.
    #[must_use]
    pub fn smaller(&self) -> Vec<Programs> {
        let mut all = Vec::new();
        if self.channels.iter().any(|room| *room != usize::MAX) {
            all.push(Programs { channels: vec![usize::MAX; self.channels.len()], ..self.clone() });
        }
        for (i, body) in self.bodies.iter().enumerate() {
            if self.bodies.len() > 1 {
                let mut programs = self.clone();
                programs.bodies.remove(i);
                all.push(programs);
            }
            for body in smaller(body) {
                let mut programs = self.clone();
                programs.bodies[i] = body;
                all.push(programs);
            }
        }
        all
    }
}

impl Generator<'_> {
    /// The body of a pool. Often it cancels what it has started.
    fn body(&mut self, size: usize, depth: usize) -> Shared {
        let mut body = self.block(size, depth);
        if depth == 0 && self.kind != Kind::WithoutIo && self.dice.one_in(3) {
            body = self.feed(body);
        }
        match self.dice.one_in(3) {
            true => body,
            false => Arc::new(Command::Sequence(body, Arc::new(Command::Cancel))),
        }
    }

    /// Sends something to all channels in the end: then less is stuck.
    fn feed(&mut self, body: Shared) -> Shared {
        (0..self.channels).fold(body, |body, r| {
            let send = Command::Io(Io::Send(self.expression(), Channel(r as u8)));
            Arc::new(Command::Sequence(body, Arc::new(send)))
        })
    }

    /// A few commands, one after the other.
    fn block(&mut self, size: usize, depth: usize) -> Shared {
        let mut left = size.max(1);
        let mut commands = Vec::new();
        while left > 0 {
            let (command, taken) = self.command(left, depth);
            commands.push(Arc::new(command));
            left = left.saturating_sub(taken);
        }
        let last = commands.pop().expect("there is one");
        commands.into_iter().rev().fold(last, |rest, command| Arc::new(Command::Sequence(command, rest)))
    }

    /// A command, and how much of `left` it takes.
    fn command(&mut self, left: usize, depth: usize) -> (Command, usize) {
        let is_deep = depth >= 4 || left < 2;
        match self.dice.below(if is_deep { 14 } else { 30 }) {
            0..=2 => (self.assign(), 1),
            3 | 4 => (Command::Cancel, 1),
            5..=13 => {
                // Where an operation is not started, it holds up what comes after it, cancels too.
                let (operation, size) = self.operation(left, depth);
                match self.dice.one_in(4) {
                    true => (operation, size),
                    false => (Command::Async(Arc::new(operation)), size),
                }
            }
            14..=22 => {
                let size = 1 + self.dice.below(left - 1);
                (Command::Async(self.block(size, depth + 1)), size)
            }
            23..=26 => {
                let size = 1 + self.dice.below(left - 1);
                (Command::Pool(Pool::active(self.body(size, depth + 1))), size)
            }
            27 | 28 => {
                let (c, d) = (1 + self.dice.below(left - 1), self.dice.below(2));
                let (x, v) = (self.variable(), self.dice.below(4) as Value);
                let d = if d == 0 { Arc::new(Command::Skip) } else { self.block(d, depth + 1) };
                (Command::If(Condition::Equal(x, v), self.block(c, depth + 1), d), c + 1)
            }
            _ => {
                // No other command assigns the variable that counts, so the loop ends.
                let size = 1 + self.dice.below(left.min(3) - 1);
                let x = Variable(self.variables as u8);
                self.variables += 1;
                let count = Arc::new(Command::Assign(x, Expression::Sum(x, 1)));
                let body = Arc::new(Command::Sequence(count, self.block(size, depth + 1)));
                (Command::While(Condition::Less(x, 2), body), 2 * size)
            }
        }
    }

    fn assign(&mut self) -> Command {
        let x = self.variable();
        Command::Assign(x, self.expression())
    }

    fn operation(&mut self, left: usize, depth: usize) -> (Command, usize) {
        if self.kind == Kind::WithoutIo {
            return (self.assign(), 1);
        }
        let io = if self.dice.one_in(4) {
            Io::Send(self.expression(), Channel(self.dice.below(self.channels) as u8))
        } else {
            // Those channels whose number leaves ours.
            let ours = (self.channels - self.number).div_ceil(self.count);
            let r = self.number + self.count * self.dice.below(ours);
            Io::Recv(self.variable(), Channel(r as u8))
        };
        if self.kind == Kind::WithoutTry || self.dice.one_in(8) {
            return (Command::Io(io), 1);
        }
        if left < 2 || !self.dice.one_in(4) {
            return (Command::Try(io, Arc::new(self.assign())), 1);
        }
        let size = 1 + self.dice.below(left.min(3) - 1);
        (Command::Try(io, self.block(size, depth + 1)), 1 + size)
    }

    fn variable(&mut self) -> Variable {
        Variable((self.first + self.dice.below(VARIABLES)) as u8)
    }

    fn expression(&mut self) -> Expression {
        match self.dice.below(6) {
            0 => Expression::Variable(self.variable()),
            1 => Expression::Sum(self.variable(), 10),
            _ => {
                self.last += 1;
                Expression::Value(self.last)
            }
        }
    }
}

/// Returns slightly smaller commands. The counter of a loop's rounds stays in the loop.
fn smaller(command: &Shared) -> Vec<Shared> {
    let mut all = Vec::new();
    if !matches!(**command, Command::Skip) {
        all.push(Arc::new(Command::Skip));
    }
    let parts = command.parts();
    if let Command::While(b, body) = &**command {
        if let Command::Sequence(count, rest) = &**body {
            all.push(rest.clone());
            let rests = smaller(rest).into_iter();
            all.extend(
                rests
                    .map(|rest| Arc::new(Command::Sequence(count.clone(), rest)))
                    .map(|body| Arc::new(Command::While(*b, body))),
            );
        }
        return all;
    }
    all.extend(parts.iter().map(|part| (*part).clone()));
    for (i, part) in parts.iter().enumerate() {
        for part in smaller(part) {
            let mut parts: Vec<Shared> = parts.iter().map(|part| (*part).clone()).collect();
            parts[i] = part;
            all.push(Arc::new(command.with_parts(parts)));
        }
    }
    all
}
