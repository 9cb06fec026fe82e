//! Which signal.

use std::fmt;

/// Which signal to wait for.
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
    /// `SIGALRM`: the time of `alarm(2)` has come.
    alarm = SIGALRM;
    /// `SIGCHLD`: a child has ended or stopped.
    child = SIGCHLD;
    /// `SIGCONT`: the program goes on after it was stopped.
    resume = SIGCONT;
    /// `SIGHUP`: the terminal is gone; for daemons: read the configuration again.
    hangup = SIGHUP;
    /// `SIGINT`: Ctrl-C.
    interrupt = SIGINT;
    /// `SIGIO`: a file descriptor is ready.
    io = SIGIO;
    /// `SIGPIPE`: nobody reads what is written.
    pipe = SIGPIPE;
    /// `SIGQUIT`: Ctrl-\.
    quit = SIGQUIT;
    /// `SIGTERM`: the program should end.
    terminate = SIGTERM;
    /// `SIGTSTP`: Ctrl-Z.
    stop = SIGTSTP;
    /// `SIGUSR1`: whatever the program makes of it.
    user_defined1 = SIGUSR1;
    /// `SIGUSR2`: whatever the program makes of it.
    user_defined2 = SIGUSR2;
    /// `SIGWINCH`: the terminal has another size.
    window_change = SIGWINCH;
}

impl SignalKind {
    /// By its number, also of a real-time signal.
    #[must_use]
    pub const fn from_raw(number: i32) -> SignalKind {
        SignalKind(number)
    }

    /// Its number.
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
