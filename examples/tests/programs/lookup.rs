//! Names looked up at servers that the test plays, and at the program's own.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use crate::common::{accept, output};

const LOOKUP: &str = env!("CARGO_BIN_EXE_lookup");

/// A server that calls `play` with the one connection that it gets.
fn server(play: impl FnOnce(BufReader<TcpStream>) + Send + 'static) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound").to_string();
    (address, thread::spawn(move || play(BufReader::new(accept(&listener)))))
}

fn hear(stream: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).expect("a line");
    line
}

fn say(stream: &mut BufReader<TcpStream>, text: &str) {
    stream.get_mut().write_all(text.as_bytes()).expect("it is sent");
}

/// Answers all questions with this address.
fn always(address: &'static str) -> (String, JoinHandle<()>) {
    server(move |mut stream| {
        loop {
            let question = hear(&mut stream);
            let Some((number, _)) = question.split_once(' ') else { break };
            say(&mut stream, &format!("{number} {address}\n"));
        }
    })
}

#[test]
fn all_servers_are_asked_and_must_agree() {
    let servers = [always("10.0.0.1"), always("10.0.0.1")];
    let [a, b] = servers.each_ref().map(|(address, _)| address.as_str());
    let (is_ok, text) = output(LOOKUP, &["all", "bread", a, b]);
    assert!(is_ok && text.contains("= 10.0.0.1, in ") && text.contains("still owed: 0"), "{text}");
    let servers = [always("10.0.0.1"), always("10.0.0.2")];
    let [a, b] = servers.each_ref().map(|(address, _)| address.as_str());
    let (is_ok, text) = output(LOOKUP, &["all", "bread", a, b]);
    assert!(!is_ok && text.contains("= the servers do not agree"), "{text}");
    for answer in [format!("{a} says 10.0.0.1"), format!("{b} says 10.0.0.2")] {
        assert!(text.contains(&answer), "{text}");
    }
}

#[test]
fn the_first_answer_cancels_the_other_queries_and_a_late_one_is_not_mistaken() {
    // The second server has said half of its answer to the first question when its query is cancelled.
    let (half_said, is_half_said) = std::sync::mpsc::channel();
    let late = server(move |mut stream| {
        assert_eq!(hear(&mut stream), "1 bread\n");
        say(&mut stream, "1 10.0.");
        half_said.send(()).expect("the first server waits");
        assert_eq!(hear(&mut stream), "2 milk\n");
        say(&mut stream, "0.2\n2 10.0.0.22\n");
        assert_eq!(hear(&mut stream), ""); // closed, with nothing half asked
    });
    let first = server(move |mut stream| {
        assert_eq!(hear(&mut stream), "1 bread\n");
        is_half_said.recv().expect("the second server says something");
        say(&mut stream, "1 10.0.0.1\n");
        assert_eq!(hear(&mut stream), "2 milk\n"); // and does not answer
        assert_eq!(hear(&mut stream), "");
    });
    let (is_ok, text) = output(LOOKUP, &["first", "bread,milk", &first.0, &late.0]);
    assert!(is_ok, "{text}");
    let [bread, milk, ..] = text.split("\n\n").collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert!(bread.contains(&format!("{}: the wait was cancelled", late.0)), "{text}");
    assert!(bread.contains("= 10.0.0.1, in ") && bread.contains("passed over: 0; still owed: 1"), "{text}");
    assert!(milk.contains(&format!("{} says 10.0.0.22", late.0)), "{text}");
    assert!(milk.contains(&format!("{}: the wait was cancelled", first.0)), "{text}");
    assert!(milk.contains("= 10.0.0.22, in ") && milk.contains("passed over: 1; still owed: 1"), "{text}");
    for (_, server) in [first, late] {
        server.join().expect("the server has seen what it should");
    }
}

#[test]
fn a_time_limit_ends_an_unanswered_lookup() {
    let mute = server(|mut stream| while !hear(&mut stream).is_empty() {});
    let (is_ok, text) = output(LOOKUP, &["--timeout", "20", "within", "bread", &mute.0]);
    assert!(!is_ok && text.contains("= cancelled, after ") && text.contains("still owed: 1"), "{text}");
    mute.1.join().expect("its connection is closed");
    let quick = always("10.0.0.1");
    let (is_ok, text) = output(LOOKUP, &["--timeout", "600000", "within", "bread", &quick.0]);
    assert!(is_ok && text.contains("= 10.0.0.1, in ") && text.contains("still owed: 0"), "{text}");
}

#[test]
fn a_server_that_goes_is_not_one_that_answers() {
    let gone = server(|mut stream| assert_eq!(hear(&mut stream), "1 bread\n"));
    let (is_ok, text) = output(LOOKUP, &["first", "bread", &gone.0]);
    assert!(!is_ok && text.contains("= unexpected end of file"), "{text}");
    let odd = server(|mut stream| {
        hear(&mut stream);
        say(&mut stream, "2 10.0.0.1\n"); // to a question that was not asked
        hear(&mut stream);
    });
    let (is_ok, text) = output(LOOKUP, &["first", "bread", &odd.0]);
    assert!(!is_ok && text.contains("what is \"2 10.0.0.1\"?"), "{text}");
}

#[test]
fn it_shows_all_shapes_with_servers_of_its_own() {
    let (is_ok, text) = output(LOOKUP, &[]);
    assert!(is_ok, "{text}");
    let steps: Vec<&str> = text.split("\n\n").collect();
    assert!(steps[0].contains("= 10.140.69.81, in "), "{text}");
    assert!(steps[1].contains("= the servers do not agree"), "{text}");
    assert!(steps[2].contains("mute: the wait was cancelled") && steps[2].contains("= 10."), "{text}");
    assert!(steps[3].contains("= 10.149.200.162, in "), "{text}");
    assert!(steps[4].contains("= cancelled, after "), "{text}");
}

#[test]
fn arguments_are_checked() {
    let (is_ok, text) = output(LOOKUP, &["--help"]);
    assert!(is_ok && text.contains("Usage: lookup"), "{text}");
    for (arguments, complaint) in [
        (&["first"][..], "which names?"),
        (&["last", "bread"], "what is \"last\"?"),
        (&["first", "bread"], "there is no server"),
        (&["--timeout", "soon"], "soon"),
    ] {
        let (is_ok, text) = output(LOOKUP, arguments);
        assert!(!is_ok && text.contains(complaint), "{arguments:?}: {text}");
    }
}
