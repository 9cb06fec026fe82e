//! A chat server with rooms, in which nothing has a lock.
//!
//! You learn how to give each room a color, how to drop a reader that is too slow, and how to say goodbye to all clients
//! without losing a line.
//!
//! Run it: `cargo run --release -p examples --bin chat`
//!
//! In a second terminal, and in a third: `nc 127.0.0.1 7777`. Type a name, then a message, or `/join ROOM`, `/who`,
//! `/quit`. Ctrl-C in the first terminal says goodbye to all clients and ends.
//!
//! * **Colors**: a room is a plain map in a color. Its members use it one after the other; rooms run in parallel.
//! * **A slow reader holds up no one**: if its queue is full, it is dropped, and the room hears of it.
//! * **Exact cancellation**: Ctrl-C cancels the clients' tasks. A cancelled wait has taken nothing, so the lines in the
//!   queues are still written before the goodbye.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, ErrorKind};
use std::process::ExitCode;
use std::sync::{Arc, Weak};

use dapple::channel::mpsc;
use dapple::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Split, how_far};
use dapple::net::{TcpListener, TcpStream, tcp};
use dapple::signal::{SignalKind, signal};
use dapple::time::{Duration, sleep};
use dapple::{Cancelled, Color, ColorCell, JoinHandle, is_cancelled, spawn};
use futures_lite::future;

const HELP: &str = "A chat server.\n\nUsage: chat [ADDRESS]  where to listen (127.0.0.1:7777; port 0: any)\n";
const QUEUE: usize = 1024; // lines that may wait for a client: more than all members of a room say at once
const LINE: usize = 512; // bytes that a line may have
const TOO_SLOW: &str = "* You read too slowly, and were dropped. Goodbye!\n";
const TOO_LONG: &str = "* That line is too long. Goodbye!\n";
const PATIENCE: Duration = Duration::from_secs(5); // how long a write to a client may take

/// State that lives in a color.
struct Place<T> {
    color: Color,
    state: ColorCell<T>,
}

impl<T: Send + 'static> Place<T> {
    fn new(color: Color, state: T) -> Arc<Place<T>> {
        Arc::new(Place { state: ColorCell::in_color(&color, state), color })
    }

    /// Calls `f` with the state, in its color: after those who came before, never beside them.
    async fn call<R: Send + 'static>(
        self: &Arc<Self>,
        f: impl FnOnce(&mut T) -> R + Send + 'static,
    ) -> io::Result<R> {
        let place = self.clone();
        let called = self.color.call(move || place.state.with(f)).await;
        called.map_err(|e| if e.is_cancelled() { Cancelled.into() } else { io::Error::other(e) })
    }
}

type Queue = mpsc::Sender<Arc<str>>; // to one client
/// The members of a room. A member that was dropped has no queue, but keeps its name until it has left.
type Members = BTreeMap<String, Option<Queue>>;
type Room = Place<Members>;
type Hall = Place<HashMap<String, Weak<Room>>>; // a room lives as long as it has members

/// Tells all members of a room but `from`, and drops those whose queue is full.
fn say(members: &mut Members, from: &str, text: String) {
    let line: Arc<str> = format!("{text}\n").into();
    let is_full = |queue: &mut Queue| queue.try_send(line.clone()).is_err_and(|error| error.is_full());
    let others = members.iter_mut().filter(|(name, _)| *name != from);
    let slow = others.filter_map(|(name, queue)| queue.take_if(is_full).map(|_| name.clone()));
    for name in slow.collect::<Vec<_>>() {
        say(members, &name, format!("* {name} reads too slowly, and was dropped"));
    }
}

fn leave(members: &mut Members, name: &str) -> Option<Queue> {
    let queue = members.remove(name).flatten();
    say(members, name, format!("* {name} has left"));
    queue
}

/// Finds a room, or opens it.
fn room(rooms: &mut HashMap<String, Weak<Room>>, name: &str) -> Arc<Room> {
    rooms.get(name).and_then(Weak::upgrade).unwrap_or_else(|| {
        rooms.retain(|_, room| room.strong_count() > 0);
        let room = Place::new(Color::keyed(name), Members::new());
        rooms.insert(name.to_owned(), Arc::downgrade(&room));
        room
    })
}

struct Client {
    name: String,
    hall: Arc<Hall>,
    room: Option<Arc<Room>>,
    /// The messages of the room. The room holds the only sender: if it drops the sender, this ends.
    heard: mpsc::Receiver<Arc<str>>,
    typed: Split<BufReader<tcp::OwnedReadHalf>>,
    write: tcp::OwnedWriteHalf,
    unsent: Vec<u8>,
}

enum Event {
    Heard(Result<Arc<str>, mpsc::RecvError>),
    Typed(io::Result<Option<Vec<u8>>>),
}

impl Client {
    /// Stays until it quits or is dropped, or its task is cancelled: then another says goodbye.
    async fn stay(stream: TcpStream, hall: Arc<Hall>) -> Option<JoinHandle<io::Result<()>>> {
        let (read, write) = stream.into_split();
        let typed = BufReader::new(read).split(b'\n').max(LINE);
        let (queue, heard) = mpsc::bounded(QUEUE);
        let (name, unsent) = (String::new(), Vec::new());
        let mut client = Client { name, hall, room: None, heard, typed, write, unsent };
        if client.talk(queue).await.is_err_and(|error| is_cancelled(&error)) {
            return Some(spawn(client.farewell())); // a task that was cancelled writes no more
        }
        if let Some(room) = client.room {
            let _ = room.call(move |members| leave(members, &client.name)).await;
        }
        None
    }

    async fn talk(&mut self, queue: Queue) -> io::Result<()> {
        while !is_name(&self.name) {
            self.send("* What is your name? (1 to 20 letters, digits, - or _)\n").await?;
            let Some(line) = self.typed.next_part().await? else { return Ok(()) };
            self.name = clean(&line);
        }
        self.join("lobby", Some(queue)).await?;
        loop {
            let heard = async { Event::Heard(self.heard.recv().await) }; // takes nothing if dropped
            let typed = async { Event::Typed(self.typed.next_part().await) };
            match future::or(heard, typed).await {
                Event::Heard(Ok(line)) => self.send(&line).await?,
                Event::Heard(Err(end)) if end.is_cancelled() => return Err(Cancelled.into()),
                Event::Heard(Err(_)) => return self.send(TOO_SLOW).await,
                Event::Typed(Ok(Some(line))) if self.obey(&clean(&line)).await? => {}
                Event::Typed(Ok(_)) => return Ok(()), // it has quit
                Event::Typed(Err(e)) if e.kind() == ErrorKind::InvalidData => {
                    return self.send(TOO_LONG).await;
                }
                Event::Typed(Err(error)) => return Err(error),
            }
        }
    }

    /// Does what was typed; says whether to go on.
    async fn obey(&mut self, line: &str) -> io::Result<bool> {
        let (name, text) = (self.name.clone(), format!("{}: {line}", self.name));
        let room = self.room.clone().expect("it has joined one");
        match line.split_once(' ').unwrap_or((line, "")) {
            ("", _) => {}
            ("/quit", _) => return Ok(false),
            ("/who", _) => {
                let names = room.call(|members| members.keys().cloned().collect::<Vec<_>>()).await?;
                self.send(&format!("* Here are {}\n", names.join(", "))).await?;
            }
            ("/join", to) if is_name(to) => {
                let queue = room.call(move |members| leave(members, &name)).await?;
                self.join(to, queue).await?;
            }
            (word, _) if word.starts_with('/') => self.send("* /join ROOM, /who or /quit?\n").await?,
            _ => room.call(move |members| say(members, &name, text)).await?,
        }
        Ok(true)
    }

    async fn join(&mut self, to: &str, queue: Option<Queue>) -> io::Result<()> {
        let (mut name, to_room) = (self.name.clone(), to.to_owned());
        let room = self.hall.call(move |rooms| room(rooms, &to_room)).await?;
        let enter = move |members: &mut Members| {
            while members.contains_key(&name) {
                name.push('_');
            }
            say(members, &name, format!("* {name} has come"));
            members.insert(name.clone(), queue);
            (name, members.len() - 1)
        };
        let (name, others) = room.call(enter).await?;
        (self.name, self.room) = (name, Some(room));
        self.send(&format!("* You are {} in {to}. Others here: {others}\n", self.name)).await
    }

    /// Writes, but not for longer than [`PATIENCE`]. If the write is cancelled, the rest stays in `unsent`.
    async fn send(&mut self, text: &str) -> io::Result<()> {
        self.unsent.extend_from_slice(text.as_bytes());
        let late = async {
            sleep(PATIENCE).await?;
            Err(ErrorKind::TimedOut.into())
        };
        let sent = future::or(self.write.write_all(&self.unsent), late).await;
        let done = sent.as_ref().map_or_else(how_far, |()| None);
        self.unsent.drain(..done.map_or(self.unsent.len(), |done| done as usize));
        sent
    }

    /// Writes the messages from before the end, and goodbye.
    async fn farewell(mut self) -> io::Result<()> {
        while let Ok(line) = self.heard.try_recv() {
            self.unsent.extend_from_slice(line.as_bytes());
        }
        self.send("* The server closes. Goodbye!\n").await
    }
}

/// A line as it may be shown: without what plays tricks on a terminal.
fn clean(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim().chars().filter(|c| !c.is_control()).collect()
}

fn is_name(name: &str) -> bool {
    (1..=20).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
}

async fn serve(address: &str) -> io::Result<()> {
    let mut ctrl_c = signal(SignalKind::interrupt())?;
    let listener = TcpListener::bind(address).await?;
    println!("listening at {}", listener.local_addr()?);
    let hall = Place::new(Color::new(), HashMap::new());
    let mut clients: Vec<JoinHandle<_>> = Vec::new();
    loop {
        let asked = async { ctrl_c.recv().await.map(|()| None) };
        match future::or(asked, async { listener.accept().await.map(Some) }).await {
            Ok(Some((stream, _))) => {
                clients.retain(|client| !client.is_finished());
                clients.push(spawn(Client::stay(stream, hall.clone())));
            }
            Ok(None) => break,
            Err(error) => eprintln!("chat: {error}"), // out of descriptors; `accept` makes a pause then
        }
    }
    clients.iter().for_each(JoinHandle::cancel);
    println!("saying goodbye");
    for client in clients {
        let Ok(Some(farewell)) = client.await else { continue };
        let _ = farewell.await; // a client that has left needs none
    }
    Ok(())
}

#[dapple::main]
async fn main() -> ExitCode {
    let arguments = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let done = match arguments.as_str() {
        "-h" | "--help" => dapple::io::stdout().write_all(HELP.as_bytes()).await,
        "" => serve("127.0.0.1:7777").await,
        address => serve(address).await,
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    eprintln!("chat: {error}");
    ExitCode::FAILURE
}
