//! The paper's core language (Figure 5, "Definitions").

use std::fmt;
use std::sync::Arc;

/// The value of a variable or a message.
pub type Value = i16;

/// A variable, by its number. All names are global.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Variable(pub u8);

/// A channel, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Channel(pub u8);

/// *NExp*: what is assigned, and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Expression {
    /// `v`
    Value(Value),
    /// `x`
    Variable(Variable),
    /// `x + v`
    Sum(Variable, Value),
}

/// *BExp*: what `if` and `while` ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Condition {
    /// `x < v`
    Less(Variable, Value),
    /// `x = v`
    Equal(Variable, Value),
}

/// *IOCom*
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Io {
    /// `send e to r`
    Send(Expression, Channel),
    /// `recv x from r`
    Recv(Variable, Channel),
}

/// Whether a pool was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flag {
    /// `ACTV`
    Active,
    /// `CNCL`
    Cancelled,
}

/// A command, shared: the states of a program have most of it in common.
pub type Shared = Arc<Command>;

/// `pool f CS`: a flag, and a multi-set of commands. (They are kept in order, so that equal ones are equal.)
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pool {
    /// *f*
    pub flag: Flag,
    /// *CS*
    pub commands: Vec<Shared>,
}

/// *Com*
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// `skip`
    Skip,
    /// `x := e`
    Assign(Variable, Expression),
    /// `C; D`
    Sequence(Shared, Shared),
    /// `if b then C else D`
    If(Condition, Shared, Shared),
    /// `while b do C`
    While(Condition, Shared),
    /// `async C`
    Async(Shared),
    /// `pool f CS`; `do C finish` is `pool ACTV {C}`
    Pool(Pool),
    /// `cancel`
    Cancel,
    /// `send e to r`, `recv x from r`: cannot be cancelled
    Io(Io),
    /// `try IO else D`
    Try(Io, Shared),
    /// Not in the paper: what its program is at, under [`Rules::Dapple`](super::rules::Rules::Dapple).
    Now(Shared),
    /// Not in the paper: an operation that was begun, and waits, under the same rules.
    Waits(Shared),
}

/// Programs that run side by side: they share channels, not variables. A channel is received from by one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Programs {
    /// Each is the body of a pool.
    pub bodies: Vec<Shared>,
    /// How many variables there are; all are 0 at first.
    pub variables: usize,
    /// How many messages each channel has room for, under [`Rules::Dapple`](super::rules::Rules::Dapple); in
    /// the paper there is always room. All are empty at first.
    pub channels: Vec<usize>,
}

impl Pool {
    /// `pool ACTV {C}`
    #[must_use]
    pub fn active(command: Shared) -> Pool {
        Pool { flag: Flag::Active, commands: vec![command] }
    }

    /// `pool f C :: CS`
    #[must_use]
    pub fn with(&self, command: Shared) -> Pool {
        let mut pool = self.clone();
        let place = pool.commands.partition_point(|other| *other < command);
        pool.commands.insert(place, command);
        pool
    }

    /// `pool f CS`, of `pool f C :: CS`
    #[must_use]
    pub fn without(&self, index: usize) -> Pool {
        let mut pool = self.clone();
        pool.commands.remove(index);
        pool
    }
}

impl Command {
    /// The commands that are next inside.
    #[must_use]
    pub fn parts(&self) -> Vec<&Shared> {
        match self {
            Command::Sequence(c, d) | Command::If(_, c, d) => vec![c, d],
            Command::While(_, c) | Command::Async(c) | Command::Now(c) | Command::Waits(c) => vec![c],
            Command::Try(_, d) => vec![d],
            Command::Pool(pool) => pool.commands.iter().collect(),
            Command::Skip | Command::Assign(..) | Command::Cancel | Command::Io(_) => Vec::new(),
        }
    }

    /// The same command with other parts, in the order of [`parts`](Self::parts).
    #[must_use]
    pub fn with_parts(&self, parts: Vec<Shared>) -> Command {
        let mut parts = parts.into_iter();
        let mut next = || parts.next().expect("as many parts as there were");
        match self {
            Command::Sequence(..) => Command::Sequence(next(), next()),
            Command::If(b, ..) => Command::If(*b, next(), next()),
            Command::While(b, _) => Command::While(*b, next()),
            Command::Async(_) => Command::Async(next()),
            Command::Now(_) => Command::Now(next()),
            Command::Waits(_) => Command::Waits(next()),
            Command::Try(io, _) => Command::Try(*io, next()),
            Command::Pool(pool) => {
                let mut commands: Vec<Shared> = parts.collect();
                commands.sort();
                Command::Pool(Pool { flag: pool.flag, commands })
            }
            Command::Skip | Command::Assign(..) | Command::Cancel | Command::Io(_) => self.clone(),
        }
    }

    /// Whether something holds for it or for a command inside.
    pub fn any(&self, holds: &dyn Fn(&Command) -> bool) -> bool {
        holds(self)
            || match self {
                Command::Sequence(c, d) | Command::If(_, c, d) => c.any(holds) || d.any(holds),
                Command::While(_, c) | Command::Async(c) | Command::Now(c) | Command::Waits(c) => {
                    c.any(holds)
                }
                Command::Try(_, d) => d.any(holds),
                Command::Pool(pool) => pool.commands.iter().any(|c| c.any(holds)),
                Command::Skip | Command::Assign(..) | Command::Cancel | Command::Io(_) => false,
            }
    }

    /// How many commands it is made of.
    #[must_use]
    pub fn size(&self) -> usize {
        1 + self.parts().iter().map(|part| part.size()).sum::<usize>()
    }

    fn print(&self, f: &mut fmt::Formatter<'_>, indent: usize) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, text: &dyn fmt::Display| {
            write!(f, "{:width$}{text}", "", width = 2 * indent)
        };
        let inside = |f: &mut fmt::Formatter<'_>, command: &Command| {
            f.write_str("\n")?;
            command.print(f, indent + 1)
        };
        match self {
            Command::Skip => line(f, &"skip"),
            Command::Assign(x, e) => line(f, &format_args!("{x} := {e}")),
            Command::Sequence(c, d) => {
                c.print(f, indent)?;
                f.write_str(";\n")?;
                d.print(f, indent)
            }
            Command::If(b, c, d) => {
                line(f, &format_args!("if {b} then ("))?;
                inside(f, c)?;
                f.write_str("\n")?;
                line(f, &") else (")?;
                inside(f, d)?;
                f.write_str("\n")?;
                line(f, &")")
            }
            Command::While(b, c) => {
                line(f, &format_args!("while {b} do ("))?;
                inside(f, c)?;
                f.write_str("\n")?;
                line(f, &")")
            }
            Command::Async(c) | Command::Now(c) | Command::Waits(c) => {
                let word = match self {
                    Command::Async(_) => "async",
                    Command::Now(_) => "now",
                    _ => "waits",
                };
                line(f, &format_args!("{word} ("))?;
                inside(f, c)?;
                f.write_str("\n")?;
                line(f, &")")
            }
            Command::Pool(pool) => {
                let flag = if pool.flag == Flag::Active { "ACTV" } else { "CNCL" };
                line(f, &format_args!("pool {flag} {{"))?;
                for (i, command) in pool.commands.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { "," })?;
                    inside(f, command)?;
                }
                f.write_str("\n")?;
                line(f, &"}")
            }
            Command::Cancel => line(f, &"cancel"),
            Command::Io(io) => line(f, io),
            Command::Try(io, d) if d.size() == 1 => line(f, &format_args!("try {io} else {d}")),
            Command::Try(io, d) => {
                line(f, &format_args!("try {io} else ("))?;
                inside(f, d)?;
                f.write_str("\n")?;
                line(f, &")")
            }
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print(f, 0)
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "x{}", self.0)
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expression::Value(v) => write!(f, "{v}"),
            Expression::Variable(x) => write!(f, "{x}"),
            Expression::Sum(x, v) => write!(f, "{x} + {v}"),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Less(x, v) => write!(f, "{x} < {v}"),
            Condition::Equal(x, v) => write!(f, "{x} = {v}"),
        }
    }
}

impl fmt::Display for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Io::Send(e, r) => write!(f, "send {e} to {r}"),
            Io::Recv(x, r) => write!(f, "recv {x} from {r}"),
        }
    }
}

impl fmt::Display for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, body) in self.bodies.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { "\nbeside\n" })?;
            write!(f, "{}", Command::Pool(Pool::active(body.clone())))?;
        }
        let bounded = |(_, room): &(usize, &usize)| **room != usize::MAX;
        for (r, room) in self.channels.iter().enumerate().filter(bounded) {
            write!(f, "\nwhere r{r} has room for {room}")?;
        }
        Ok(())
    }
}
