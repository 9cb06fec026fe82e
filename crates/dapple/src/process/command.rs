//! Options for starting a child.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, ExitStatus, Output, Stdio};

use super::Child;
use crate::source::stream::begin;
use crate::world;

/// A program to start, and its options: as [`std::process::Command`], with waits that do not block.
///
/// # Examples
///
/// ```
/// use dapple::io::{AsyncReadExt, AsyncWriteExt};
/// use dapple::process::{Command, Stdio};
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let mut child =
///         Command::new("tr").args(["a-z", "A-Z"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
///     let mut stdin = child.stdin.take().expect("it is piped");
///     stdin.write_all(b"hello").await?;
///     drop(stdin); // the child reads the end
///     let mut answer = String::new();
///     child.stdout.as_mut().expect("it is piped").read_to_string(&mut answer).await?;
///     assert_eq!(answer, "HELLO");
///     assert!(child.wait().await?.success());
///     Ok(())
/// })
/// # }
/// ```
#[derive(Debug)]
pub struct Command {
    command: process::Command,
    kill_on_drop: bool,
    /// Whether the user has set standard input, output, and error.
    is_set: [bool; 3],
}

impl Command {
    /// Makes a command for `program`, which is looked up in `PATH` if it has no `/`. It has no arguments, and
    /// the environment, the directory and the standard streams of this program.
    pub fn new(program: impl AsRef<OsStr>) -> Command {
        Command::from(process::Command::new(program))
    }

    /// Adds an argument.
    pub fn arg(&mut self, arg: impl AsRef<OsStr>) -> &mut Command {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args(&mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> &mut Command {
        self.command.args(args);
        self
    }

    /// Sets the name that the program sees as its own.
    pub fn arg0(&mut self, arg: impl AsRef<OsStr>) -> &mut Command {
        self.command.arg0(arg);
        self
    }

    /// Sets a variable of the environment.
    pub fn env(&mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Command {
        self.command.env(key, value);
        self
    }

    /// Sets variables of the environment.
    pub fn envs<K, V>(&mut self, vars: impl IntoIterator<Item = (K, V)>) -> &mut Command
    where
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.command.envs(vars);
        self
    }

    /// Removes a variable of the environment.
    pub fn env_remove(&mut self, key: impl AsRef<OsStr>) -> &mut Command {
        self.command.env_remove(key);
        self
    }

    /// Removes all variables of the environment.
    pub fn env_clear(&mut self) -> &mut Command {
        self.command.env_clear();
        self
    }

    /// Sets the directory that the child starts in.
    pub fn current_dir(&mut self, dir: impl AsRef<Path>) -> &mut Command {
        self.command.current_dir(dir);
        self
    }

    /// Sets the child's standard input. The default is empty for [`output`](Self::output),
    /// otherwise the standard input of this program.
    pub fn stdin(&mut self, stdin: impl Into<Stdio>) -> &mut Command {
        self.command.stdin(stdin);
        self.is_set[0] = true;
        self
    }

    /// Sets the child's standard output. The default is a pipe for [`output`](Self::output),
    /// otherwise the standard output of this program.
    pub fn stdout(&mut self, stdout: impl Into<Stdio>) -> &mut Command {
        self.command.stdout(stdout);
        self.is_set[1] = true;
        self
    }

    /// Sets the child's standard error. The default is a pipe for [`output`](Self::output),
    /// otherwise the standard error of this program.
    pub fn stderr(&mut self, stderr: impl Into<Stdio>) -> &mut Command {
        self.command.stderr(stderr);
        self.is_set[2] = true;
        self
    }

    /// Sets the user that the child runs as.
    pub fn uid(&mut self, id: u32) -> &mut Command {
        self.command.uid(id);
        self
    }

    /// Sets the group that the child runs as.
    pub fn gid(&mut self, id: u32) -> &mut Command {
        self.command.gid(id);
        self
    }

    /// Sets the process group of the child; 0 is a new one, which a Ctrl-C at the terminal does not reach.
    pub fn process_group(&mut self, group: i32) -> &mut Command {
        self.command.process_group(group);
        self
    }

    /// Sets whether the child is killed when its [`Child`] is dropped before it has ended. The default is
    /// no.
    pub fn kill_on_drop(&mut self, kill: bool) -> &mut Command {
        self.kill_on_drop = kill;
        self
    }

    /// Calls `f` in the child before the program starts.
    ///
    /// # Safety
    ///
    /// As for [`pre_exec`](CommandExt::pre_exec) of the standard library: `f` runs in a copy of this
    /// process without its other threads, and the locks that they held stay locked. It must not
    /// allocate, lock, or use this runtime.
    pub unsafe fn pre_exec(
        &mut self,
        f: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
    ) -> &mut Command {
        // SAFETY: the caller promises the same.
        unsafe { self.command.pre_exec(f) };
        self
    }

    /// The command of the standard library.
    pub fn as_std(&self) -> &process::Command {
        &self.command
    }

    /// The command of the standard library, for options that have no method here.
    /// [`output`](Self::output) overrides the standard streams that are set there.
    pub fn as_std_mut(&mut self) -> &mut process::Command {
        &mut self.command
    }

    /// Converts it to a command of the standard library. Its children ignore
    /// [`kill_on_drop`](Self::kill_on_drop).
    #[must_use]
    pub fn into_std(self) -> process::Command {
        self.command
    }

    /// Whether dropping the child kills it; see [`kill_on_drop`](Self::kill_on_drop).
    #[must_use]
    pub fn get_kill_on_drop(&self) -> bool {
        self.kill_on_drop
    }

    /// Starts the child. The call blocks for as long as the system needs to make a process.
    ///
    /// # Errors
    ///
    /// If the program cannot be started. If it starts but cannot be waited for, it is killed.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::process::Command;
    ///
    /// # dapple::run(async {
    /// let mut child = Command::new("sleep").arg("3600").kill_on_drop(true).spawn()?;
    /// child.kill().await?; // and waits for its end
    /// assert!(!child.wait().await?.success());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn spawn(&mut self) -> io::Result<Child> {
        world::outside("Command::spawn")?;
        Child::new(self.command.spawn()?, self.kill_on_drop)
    }

    /// Starts the child, and waits until it ends. Pipes to it, if there are any, are closed at once.
    ///
    /// # Errors
    ///
    /// If it cannot be started; if the wait was cancelled ([`is_cancelled`](crate::is_cancelled)).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **hands over** the child to the background, where it runs on, or is killed if
    /// [`kill_on_drop`](Self::kill_on_drop) is set. *Scope cancelled*: returns an error, and the same. To keep the
    /// child, [`spawn`](Self::spawn) it. In a cancelled task no child is started.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// dapple::run(async {
    ///     let status = dapple::process::Command::new("true").status().await?;
    ///     assert!(status.success());
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub async fn status(&mut self) -> io::Result<ExitStatus> {
        world::outside("Command::status")?;
        begin().await?;
        let mut child = self.spawn()?;
        drop((child.stdout.take(), child.stderr.take())); // no one can read them
        child.wait().await
    }

    /// Starts the child, and waits until it ends. Returns its exit status and all that it has written.
    ///
    /// # Errors
    ///
    /// If it cannot be started; as for [`Child::wait_with_output`].
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: the bytes that were read; and as for [`status`](Self::status).
    /// *Scope cancelled*: returns an error that contains the bytes that were read; and as for [`status`](Self::status).
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::process::Command;
    ///
    /// # dapple::run(async {
    /// let output = Command::new("echo").arg("hello").output().await?;
    /// assert!(output.status.success());
    /// assert_eq!(output.stdout, b"hello\n");
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn output(&mut self) -> io::Result<Output> {
        world::outside("Command::output")?;
        begin().await?;
        self.set_others(Stdio::null, Stdio::piped);
        let spawned = self.spawn();
        self.set_others(Stdio::inherit, Stdio::inherit);
        spawned?.wait_with_output().await
    }

    /// Sets the standard streams that the user has not set.
    fn set_others(&mut self, input: fn() -> Stdio, output: fn() -> Stdio) {
        let [stdin, stdout, stderr] = self.is_set;
        if !stdin {
            self.command.stdin(input());
        }
        if !stdout {
            self.command.stdout(output());
        }
        if !stderr {
            self.command.stderr(output());
        }
    }
}

impl From<process::Command> for Command {
    /// Takes over its settings; but see [`Command::as_std_mut`].
    fn from(command: process::Command) -> Command {
        Command { command, kill_on_drop: false, is_set: [false; 3] }
    }
}
