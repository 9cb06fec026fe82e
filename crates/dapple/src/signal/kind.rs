//! The kinds of signals.

use std::fmt;

/// A kind of signal.
///
/// # Examples
///
/// ```
/// use dapple::signal::SignalKind;
///
/// assert_eq!(SignalKind::terminate().as_raw(), 15);
/// assert_eq!(SignalKind::from_raw(15), SignalKind::terminate());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SignalKind(i32);

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:ident;)*) => {
        impl SignalKind {
            $($(#[$doc])*
            #[must_use]
            pub const fn $name() -> SignalKind {
                SignalKind(libc::$number)
            })*

            fn name(self) -> Option<&'static str> {
                match self.0 {
                    $(libc::$number => Some(stringify!($number)),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// `SIGALRM`: a timer of `alarm(2)` has expired.
    alarm = SIGALRM;
    /// `SIGCHLD`: a child has ended or stopped.
    child = SIGCHLD;
    /// `SIGCONT`: the program continues after it was stopped.
    resume = SIGCONT;
    /// `SIGHUP`: the terminal is gone; daemons read their configuration again.
    hangup = SIGHUP;
    /// `SIGINT`: Ctrl-C.
    interrupt = SIGINT;
    /// `SIGIO`: a file descriptor is ready.
    io = SIGIO;
    /// `SIGPIPE`: a write to a pipe that has no reader.
    pipe = SIGPIPE;
    /// `SIGQUIT`: Ctrl-\.
    quit = SIGQUIT;
    /// `SIGTERM`: the program should end.
    terminate = SIGTERM;
    /// `SIGTSTP`: Ctrl-Z.
    stop = SIGTSTP;
    /// `SIGUSR1`: the program defines its meaning.
    user_defined1 = SIGUSR1;
    /// `SIGUSR2`: the program defines its meaning.
    user_defined2 = SIGUSR2;
    /// `SIGWINCH`: the terminal was resized.
    window_change = SIGWINCH;
}

impl SignalKind {
    /// Makes a kind from its number, also for a real-time signal.
    #[must_use]
    pub const fn from_raw(number: i32) -> SignalKind {
        SignalKind(number)
    }

    /// The number of the signal.
    #[must_use]
    pub const fn as_raw(self) -> i32 {
        self.0
    }
}

impl fmt::Display for SignalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "signal {}", self.0),
        }
    }
}

impl fmt::Debug for SignalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignalKind({self})")
    }
}
