//! The chat server, talked to over real sockets.

use std::net::SocketAddr;

use crate::common::{Program, Talker, output};

const CHAT: &str = env!("CARGO_BIN_EXE_chat");

fn chat() -> (Program, SocketAddr) {
    let mut chat = Program::start(CHAT, &["127.0.0.1:0"]);
    let address = chat.address();
    (chat, address)
}

/// Comes in under a name.
fn enter(address: SocketAddr, name: &str, welcome: &str) -> Talker {
    let mut talker = Talker::new(address);
    assert!(talker.hear().contains("What is your name?"));
    talker.say(name);
    assert_eq!(talker.hear(), welcome);
    talker
}

#[test]
fn two_clients_talk_and_move_between_rooms() {
    let (mut chat, address) = chat();
    let mut ann = enter(address, "ann", "* You are ann in lobby. Others here: 0");
    let mut bob = enter(address, "bob", "* You are bob in lobby. Others here: 1");
    assert_eq!(ann.hear(), "* bob has come");
    ann.say("hello, \x1b[31mbob");
    assert_eq!(bob.hear(), "ann: hello, [31mbob"); // without what colors the terminal
    bob.say("hello, ann\r");
    assert_eq!(ann.hear(), "bob: hello, ann");

    bob.say("/join garden");
    assert_eq!(bob.hear(), "* You are bob in garden. Others here: 0");
    assert_eq!(ann.hear(), "* bob has left");
    bob.say("nobody here?");
    bob.say("/who");
    assert_eq!(bob.hear(), "* Here are bob");
    ann.say("/who");
    assert_eq!(ann.hear(), "* Here are ann"); // and not what bob has said elsewhere

    let mut second = enter(address, "ann", "* You are ann_ in lobby. Others here: 1");
    assert_eq!(ann.hear(), "* ann_ has come");
    second.say("/quit");
    assert_eq!(second.hear(), "");
    assert_eq!(ann.hear(), "* ann_ has left");

    chat.signal("INT");
    for client in [&mut ann, &mut bob] {
        assert_eq!(client.hear(), "* The server closes. Goodbye!");
        assert_eq!(client.hear(), "");
    }
    let (status, text) = chat.end();
    assert!(status.success(), "{text}");
    assert!(text.contains("saying goodbye"), "{text}");
}

#[test]
fn bad_input_is_answered() {
    let (mut chat, address) = chat();
    let mut ann = Talker::new(address);
    for name in ["", "two words", &"x".repeat(21)] {
        assert!(ann.hear().contains("What is your name?"));
        ann.say(name);
    }
    assert!(ann.hear().contains("What is your name?"));
    ann.say("ann");
    assert!(ann.hear().contains("* You are ann"));
    ann.say("/dance");
    assert_eq!(ann.hear(), "* /join ROOM, /who or /quit?");
    ann.say(&"x".repeat(600));
    assert_eq!(ann.hear(), "* That line is too long. Goodbye!");
    assert_eq!(ann.hear(), "");
    chat.signal("INT");
    assert!(chat.end().0.success());
}

#[test]
fn a_client_that_does_not_read_is_dropped_and_holds_up_no_other() {
    let (mut chat, address) = chat();
    let mut ann = enter(address, "ann", "* You are ann in lobby. Others here: 0");
    let mut slow = enter(address, "slow", "* You are slow in lobby. Others here: 1");
    assert_eq!(ann.hear(), "* slow has come");
    let mut bob = enter(address, "bob", "* You are bob in lobby. Others here: 2");
    assert_eq!(ann.hear(), "* bob has come");
    // ann hears nothing of her own, so she can talk until the queue and the sockets' buffers are full.
    let mut said = 0;
    loop {
        ann.say(&format!("{said:0500}"));
        said += 1;
        let heard = bob.hear();
        if heard == "* slow reads too slowly, and was dropped" {
            break;
        }
        assert!(heard.starts_with("ann: "), "{heard}");
    }
    // The earlier messages reached the slow one too, and then the reason.
    assert_eq!(slow.hear(), "* bob has come");
    for number in 0.. {
        let heard = slow.hear();
        if heard != format!("ann: {number:0500}") {
            assert_eq!(heard, "* You read too slowly, and were dropped. Goodbye!");
            break;
        }
    }
    assert_eq!(slow.hear(), "");
    chat.signal("INT");
    assert!(chat.end().0.success());
}

#[test]
fn a_burst_of_all_members_drops_no_reader() {
    const MEMBERS: usize = 80;
    const LINES: usize = 8;
    let (mut chat, address) = chat();
    let enter = |number| {
        let welcome = format!("* You are m{number} in lobby. Others here: {number}");
        enter(address, &format!("m{number}"), &welcome)
    };
    let mut members: Vec<_> = (0..MEMBERS).map(enter).collect();
    for member in &mut members {
        member.say("hello\n".repeat(LINES).trim_end());
    }
    for (number, member) in members.iter_mut().enumerate() {
        for _ in number + 1..MEMBERS {
            assert!(member.hear().ends_with("has come"));
        }
        for _ in 0..(MEMBERS - 1) * LINES {
            let heard = member.hear();
            assert!(heard.ends_with(": hello"), "{heard}");
        }
    }
    chat.signal("INT");
    assert!(chat.end().0.success());
}

#[test]
fn arguments_are_checked() {
    let (is_ok, text) = output(CHAT, &["--help"]);
    assert!(is_ok && text.contains("Usage: chat"), "{text}");
    let (is_ok, text) = output(CHAT, &["nowhere"]);
    assert!(!is_ok && text.contains("has no port"), "{text}");
}
