//! SIGHUP: the certificate and the log's file are opened again, and no connection ends.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::program::{Folder, PATIENCE, Program, connect, get};
use futures_rustls::rustls::client::Resumption;
use futures_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, Stream, crypto::aws_lc_rs};
use rustix::process::Signal;

/// A certificate and its key, as PEM, and a client that believes this one alone.
fn identity() -> (String, String, Arc<ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (made.cert.pem(), made.signing_key.serialize_pem(), client.into())
}

/// Connects, and asks for a page: whether the certificate is believed.
fn is_believed(client: &Arc<ClientConfig>, address: &str) -> bool {
    let mut tls = ClientConnection::new(client.clone(), "localhost".try_into().unwrap()).unwrap();
    let mut socket = connect(address);
    let mut stream = Stream::new(&mut tls, &mut socket);
    if stream.write_all(b"GET /a.txt HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").is_err() {
        return false;
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("twelve bytes"), "{answer}");
    true
}

#[test]
fn a_new_certificate_is_shown_and_a_bad_one_is_refused() {
    let (certificate, key, old) = identity();
    let folder = Folder::new(&[
        ("a.txt", b"twelve bytes"),
        ("cert.pem", certificate.as_bytes()),
        ("key.pem", key.as_bytes()),
        ("large.bin", &vec![b'x'; 24 << 20]),
    ]);
    let (folder_name, cert, key_file) =
        (folder.path().display().to_string(), folder.at("cert.pem"), folder.at("key.pem"));
    let (mut program, address, _) =
        Program::serve(&["serve", &folder_name, "--tls-cert", &cert, "--tls-key", &key_file]);
    assert!(is_believed(&old, &address));

    // A download that has begun.
    let mut tls = ClientConnection::new(old.clone(), "localhost".try_into().unwrap()).unwrap();
    let mut socket = connect(&address);
    let mut download = Stream::new(&mut tls, &mut socket);
    download.write_all(b"GET /large.bin HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    download.read_exact(&mut [0; 1000]).unwrap();

    for bad in ["no certificate", &certificate[..certificate.len() / 2]] {
        fs::write(&cert, bad).unwrap();
        program.signal(Signal::HUP);
        let said = program.stderr.find("SIGHUP");
        assert!(said.starts_with("error: ") && said.contains("the old certificate stays"), "{said}");
        assert!(said.contains(&cert), "{said}");
        assert!(is_believed(&old, &address));
    }

    let (certificate, key, new) = identity();
    fs::write(&cert, certificate).unwrap();
    fs::write(&key_file, key).unwrap();
    program.signal(Signal::HUP);
    assert_eq!(program.stderr.find("SIGHUP"), format!("SIGHUP: opened the certificate {cert} again"));
    assert!(is_believed(&new, &address));
    let mut fresh = ClientConfig::clone(&old);
    fresh.resumption = Resumption::disabled(); // a session that is resumed shows no certificate
    assert!(!is_believed(&fresh.into(), &address), "the old one is shown no more");

    let mut rest = Vec::new();
    download.read_to_end(&mut rest).unwrap();
    assert!(rest.len() + 1000 > 24 << 20, "{} bytes", rest.len());
    program.signal(Signal::TERM);
    assert_eq!(program.wait().code(), Some(0));
}

#[test]
fn a_log_that_was_renamed_is_opened_again_and_no_line_is_lost() {
    let folder = Folder::new(&[("a.txt", b"twelve bytes")]);
    let (folder_name, log, old) =
        (folder.path().display().to_string(), folder.at("access.log"), folder.at("access.log.1"));
    let (mut program, address, _) =
        Program::serve(&["serve", &folder_name, "--log", "common", "--log-file", &log]);
    get(&address, "/before", "");
    let begun = Instant::now();
    while !fs::read_to_string(&log).unwrap().contains("/before") {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(2));
    }
    fs::rename(&log, &old).unwrap();
    program.signal(Signal::HUP);
    assert_eq!(program.stderr.find("SIGHUP"), format!("SIGHUP: opened the log {log} again"));
    get(&address, "/after", "");
    program.signal(Signal::TERM);
    assert_eq!(program.wait().code(), Some(0));
    let (old, new) = (fs::read_to_string(&old).unwrap(), fs::read_to_string(&log).unwrap());
    assert_eq!((old.lines().count(), new.lines().count()), (1, 1), "{old}{new}");
    assert!(new.contains("\"GET /after HTTP/1.1\" 404"), "{new}");
}

#[test]
fn a_log_that_cannot_be_opened_again_goes_on() {
    let folder = Folder::new(&[("a.txt", b"twelve bytes")]);
    fs::create_dir(folder.at("logs")).unwrap();
    let (folder_name, log) = (folder.path().display().to_string(), folder.at("logs/access.log"));
    let (mut program, address, _) =
        Program::serve(&["serve", &folder_name, "--log", "common", "--log-file", &log]);
    fs::rename(folder.at("logs"), folder.at("old")).unwrap();
    program.signal(Signal::HUP);
    let said = program.stderr.find("SIGHUP");
    assert!(said.contains("the log stays as it is: cannot open") && said.contains(&log), "{said}");
    get(&address, "/a.txt", "");
    program.signal(Signal::TERM);
    assert_eq!(program.wait().code(), Some(0));
    assert_eq!(fs::read_to_string(folder.at("old/access.log")).unwrap().lines().count(), 1);
}

#[test]
fn with_nothing_to_open_it_goes_on_also_while_it_drains() {
    let folder = Folder::new(&[("large.bin", &vec![b'x'; 24 << 20])]);
    let (mut program, address, _) = Program::serve(&["serve", &folder.path().display().to_string()]);
    let begin = || {
        let mut stream: TcpStream = connect(&address);
        stream.write_all(b"GET /large.bin HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 1000]).unwrap();
        stream
    };
    let mut stream = begin();
    program.signal(Signal::HUP);
    assert!(program.stderr.find("SIGHUP").contains("nothing to open again"));
    program.signal(Signal::TERM);
    program.stderr.find("finishing");
    program.signal(Signal::HUP);
    assert!(program.stderr.find("SIGHUP").contains("nothing to open again"));
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.len() + 1000 > 24 << 20);
    assert_eq!(program.wait().code(), Some(0));
}

#[test]
fn when_its_terminal_is_closed_it_ends_as_if_told_to() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let (mut program, mut terminal) = {
        let inner = fs::File::options().read(true).write(true).open(name).unwrap();
        (Program::spawn_on(&["--port", "0"], inner), fs::File::from(terminal))
    };
    let mut said = String::new();
    let mut read_until = |part: &str| {
        while !said.contains(part) {
            let mut some = [0; 1024];
            let count = terminal.read(&mut some).unwrap();
            said.push_str(&String::from_utf8_lossy(&some[..count]));
        }
    };
    read_until("to stop");
    program.signal(Signal::HUP);
    read_until("nothing to open again"); // the terminal is there: it goes on
    drop(terminal);
    program.signal(Signal::HUP);
    assert_eq!(program.wait().code(), Some(0));
}
