//! The program at work: what it serves, logs and counts, and how it ends.

use std::io::{Read, Write};
use std::time::Duration;

use crate::program::{Folder, Program, connect, get};
use futures_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, Stream, crypto::aws_lc_rs};
use rustix::process::Signal;

#[test]
fn a_folder_is_served_until_it_is_told_to_end() {
    let folder = Folder::new(&[("index.html", b"<h1>Hello</h1>"), ("a.txt", b"a")]);
    let folder_name = folder.path().display().to_string();
    for signal in [Signal::TERM, Signal::INT] {
        let (mut program, address, _) = Program::serve(&["serve", &folder_name, "--workers", "2"]);
        let answer = get(&address, "/", "");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("<h1>Hello</h1>"), "{answer}");
        assert!(answer.contains("content-length: 14\r\n"), "{answer}");
        assert!(get(&address, "/none", "").starts_with("HTTP/1.1 404 "));
        assert!(get(&address, "/../a.txt", "").starts_with("HTTP/1.1 404 "));
        program.signal(signal);
        assert_eq!(program.wait().code(), Some(0));
        assert!(program.stderr.all().contains("served 3 requests on 3 connections; 0 connections cut off"));
    }
}

#[test]
fn without_a_command_the_built_in_site_is_served() {
    let (_program, address, _) = Program::serve(&[]);
    let page = get(&address, "/", "");
    assert!(
        page.contains("content-type: text/html; charset=utf-8\r\n")
            && page.contains("every task has a color")
    );
    for outside in ["src=\"http", "href=\"http", "url(http", "@import"] {
        assert!(!page.contains(outside), "nothing comes from elsewhere: {outside}");
    }
    let numbers = get(&address, "/numbers.json", "");
    assert!(numbers.contains("\"requests\":1,") && numbers.contains("\"workers\":"), "{numbers}");
    assert!(get(&address, "/icon.svg", "").contains("image/svg+xml"));
    let missing = get(&address, "/none", "");
    assert!(missing.starts_with("HTTP/1.1 404 ") && missing.contains("<a href=\"/\">"), "{missing}");
}

#[test]
fn visitors_of_the_site_can_block_threads_and_others_go_on() {
    let (_program, address, _) = Program::serve(&["--workers", "1"]);
    let post = |path: &str| {
        let mut stream = connect(&address);
        write!(stream, "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        stream
    };
    let read = |mut stream: std::net::TcpStream| {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    // Each takes a quarter of a second, and few may be in line: there is no room for all.
    let answers: Vec<_> = (0..20).map(|_| read(post("/work/red"))).collect();
    let (taken, refused): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer.starts_with("HTTP/1.1 202 "));
    assert!(!taken.is_empty() && !refused.is_empty(), "{} and {}", taken.len(), refused.len());
    for answer in refused {
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: 1"), "{answer}");
    }
    assert!(read(post("/work/blue")).contains("{\"id\":"));
    // The last of all is done before most of the others: a color waits for itself alone.
    loop {
        let numbers = get(&address, "/numbers.json", "");
        let of = |color: &str| numbers.split('{').filter(|piece| piece.contains(color)).collect::<Vec<_>>();
        let (red, blue) = (of("\"red\""), of("\"blue\""));
        assert_eq!((red.len(), blue.len()), (taken.len(), 1), "{numbers}");
        let is_open = |piece: &&&str| piece.contains("\"ended\":null");
        assert!(red.iter().filter(|piece| is_open(piece) && !piece.contains("\"begun\":null")).count() <= 1);
        if blue.iter().filter(is_open).count() == 0 {
            assert!(red.iter().filter(is_open).count() > 0, "{numbers}");
            break;
        }
    }
    assert!(read(post("/work/pink")).starts_with("HTTP/1.1 404 "));
    assert!(get(&address, "/work/red", "").contains("allow: POST\r\n"));
    let numbers = get(&address, "/numbers.json", "");
    assert!(numbers.contains("\"relieved\":") && !numbers.contains("\"relieved\":0,"), "{numbers}");
}

#[test]
fn what_was_begun_is_finished_and_a_second_signal_ends_at_once() {
    let content = vec![b'x'; 64 << 20]; // more than sockets hold
    let folder = Folder::new(&[("large.bin", &content)]);
    let folder_name = folder.path().display().to_string();
    for is_second in [false, true] {
        let (mut program, address, _) = Program::serve(&["serve", &folder_name]);
        let mut stream = connect(&address);
        stream.write_all(b"GET /large.bin HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut head = [0; 1000];
        stream.read_exact(&mut head).unwrap();
        program.signal(Signal::TERM);
        assert!(program.stderr.find("finishing").contains("of 1 connection; a second signal ends at once"));
        if is_second {
            program.signal(Signal::INT);
            assert_eq!(program.wait().code(), Some(130));
            continue;
        }
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert!(head.len() + rest.len() > content.len(), "{} bytes", rest.len());
        assert_eq!(program.wait().code(), Some(0));
    }
}

#[test]
fn what_takes_longer_than_the_drain_is_cut_off() {
    let folder = Folder::new(&[("large.bin", &vec![b'x'; 64 << 20])]);
    let (mut program, address, _) =
        Program::serve(&["serve", &folder.path().display().to_string(), "--drain", "50ms"]);
    let mut stream = connect(&address);
    stream.write_all(b"GET /large.bin HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 1000]).unwrap();
    program.signal(Signal::TERM);
    assert_eq!(program.wait().code(), Some(0));
    assert!(program.stderr.all().contains("1 connections cut off"));
}

#[test]
fn each_request_is_a_line_of_the_log() {
    let folder = Folder::new(&[("a.txt", b"twelve bytes")]);
    let folder_name = folder.path().display().to_string();
    let (_program, address, _) = Program::serve(&["serve", &folder_name, "--log", "common"]);
    get(&address, "/a.txt?q=%22", "");
    let line = _program.stdout.next();
    assert!(
        line.starts_with("127.0.0.1 - - [") && line.ends_with("] \"GET /a.txt?q=%22 HTTP/1.1\" 200 12"),
        "{line}"
    );
    get(&address, "/none", "");
    assert!(_program.stdout.next().ends_with("\"GET /none HTTP/1.1\" 404 14"));

    let (mut program, address, _) = Program::serve(&["serve", &folder_name, "--log", "json"]);
    get(&address, "/a.txt", "user-agent: \"te\\st\"\r\nrange: bytes=0-4\r\n");
    let line = program.stdout.next();
    assert!(line.starts_with("{\"time\":\"2") && line.ends_with('}'), "{line}");
    for part in [
        "\"remote\":\"127.0.0.1\"",
        "\"method\":\"GET\"",
        "\"uri\":\"/a.txt\"",
        "\"user_agent\":\"\\\"te\\\\st\\\"\"",
        "\"status\":206",
        "\"bytes\":5",
        "\"seconds\":0.",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
    // The last lines are written before the end.
    (0..50).for_each(|_| drop(get(&address, "/a.txt", "")));
    program.signal(Signal::TERM);
    program.wait();
    assert_eq!(program.stdout.all().lines().count(), 50);
}

#[test]
fn what_the_server_answers_itself_is_in_the_log() {
    let folder = Folder::new(&[("a.txt", b"twelve bytes")]);
    let folder_name = folder.path().display().to_string();
    let ask = |address: &str, request: &str| {
        let mut stream = connect(address);
        stream.write_all(request.as_bytes()).unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        String::from_utf8_lossy(&first[9..]).into_owned()
    };
    let too_many = "x: y\r\n".repeat(10_000);
    let forms = [
        ("GET /a.txt HTTP/1.1\r\nhost: a\r\n".to_owned() + &too_many + "\r\n", "GET /a.txt HTTP/1.1", "431"),
        ("GET /a.txt HTTP/1.1\r\n\r\n".into(), "GET /a.txt HTTP/1.1", "400"),
        ("GET /a.txt HTTP/1.1\r\nhost : x\r\n\r\n".into(), "GET /a.txt HTTP/1.1", "400"),
        ("\u{1}\u{2}\"\r\n\r\n".into(), "-", "400"),
        (
            "PUT /a HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999\r\n\r\n".into(),
            "PUT /a HTTP/1.1",
            "413",
        ),
        (
            "PUT /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n".into(),
            "PUT /a HTTP/1.1",
            "501",
        ),
        ("GET /a.txt HT".into(), "-", "408"),
    ];
    for format in ["common", "json"] {
        let options = ["serve", &folder_name, "--log", format, "--header-timeout", "200ms"];
        let (program, address, _) = Program::serve(&options);
        for (request, asked, status) in &forms {
            assert_eq!(ask(&address, request), *status, "{asked}");
            let line = program.stdout.next();
            let wanted = match format {
                "common" => format!("] \"{asked}\" {status} "),
                _ => format!("\"uri\":\"{}\"", asked.split(' ').nth(1).unwrap_or("-")),
            };
            assert!(line.contains(&wanted) && line.contains(status), "{wanted} in {line}");
            assert!(line.contains("127.0.0.1"), "{line}");
        }
    }
}

#[test]
fn metrics_have_an_address_of_their_own() {
    let folder = Folder::new(&[("a.txt", b"twelve bytes")]);
    let folder_name = folder.path().display().to_string();
    let (_program, address, metrics) =
        Program::serve(&["serve", &folder_name, "--workers", "2", "--recheck", "1h"]);
    (0..3).for_each(|_| drop(get(&address, "/a.txt", "")));
    get(&address, "/none", "");
    assert!(get(&address, "/_dapple/metrics", "").starts_with("HTTP/1.1 404 "), "not for everybody");
    let page = get(&metrics, "/_dapple/metrics", "accept: application/openmetrics-text; version=1.0.0\r\n");
    assert!(page.contains("content-type: application/openmetrics-text"), "{page}");
    for line in [
        "dapple_http_requests_total{status=\"200\"} 3",
        "dapple_http_requests_total{status=\"404\"} 2",
        "dapple_http_request_seconds_count 5",
        "dapple_http_request_seconds_bucket{le=\"+Inf\"} 5",
        "dapple_http_connections_accepted_total 5",
        "dapple_http_requests_refused_total 0",
        "dapple_workers 2",
        "dapple_cache_hits_total 2",
        "dapple_files_read_total 1",
        "dapple_cache_pages 1",
        "# EOF",
    ] {
        assert!(page.lines().any(|other| other == line), "{line} in {page}");
    }
    for name in [
        "dapple_http_wait_seconds ",
        "dapple_stalls_total ",
        "dapple_longest_stall_seconds ",
        "dapple_worker_runs_total{worker=\"1\"}",
        "dapple_lanes_waiting ",
        "dapple_tasks ",
    ] {
        assert!(page.contains(name), "{name} in {page}");
    }
    assert!(get(&metrics, "/", "").starts_with("HTTP/1.1 404 "));
}

#[test]
fn metrics_are_in_the_format_that_is_asked_for() {
    let (_program, address, metrics) = Program::serve(&[]);
    get(&address, "/", "");
    for accept in ["", "accept: */*\r\n", "accept: text/plain;version=0.0.4\r\n"] {
        let page = get(&metrics, "/_dapple/metrics", accept);
        assert!(page.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{page}");
        assert!(
            page.contains("\n# TYPE dapple_http_requests_total counter\n") && !page.contains("# EOF"),
            "{page}"
        );
        assert!(page.contains("\ndapple_http_requests_total{status=\"200\"} 1\n"), "{page}");
    }
    let prometheus = "accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2\r\n";
    let page = get(&metrics, "/_dapple/metrics", prometheus);
    assert!(page.contains("content-type: application/openmetrics-text; version=1.0.0;"), "{page}");
    assert!(page.contains("\n# TYPE dapple_http_requests counter\n") && page.ends_with("# EOF\n"), "{page}");
}

#[test]
fn metrics_are_not_shown_to_a_name_that_leads_here() {
    let ask = |metrics: &str, host: &str| {
        let mut stream = connect(metrics);
        write!(stream, "GET /_dapple/metrics HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let (_program, _, metrics) = Program::serve(&[]);
    let port = metrics.rsplit(':').next().unwrap();
    for host in ["evil.example", &format!("evil.example:{port}"), "192.0.2.1", "localhost.evil.example"] {
        let answer = ask(&metrics, host);
        assert!(answer.starts_with("HTTP/1.1 421 ") && answer.contains("--metrics-host"), "{host}: {answer}");
        assert!(!answer.contains("dapple_"), "{answer}");
    }
    for host in ["localhost", &format!("localhost:{port}"), &metrics, "[::1]:80"] {
        assert!(ask(&metrics, host).starts_with("HTTP/1.1 200 "), "{host}");
    }
    let (_program, _, metrics) = Program::serve(&["--metrics-host", "metrics.example.com"]);
    assert!(ask(&metrics, "Metrics.Example.com:9090").starts_with("HTTP/1.1 200 "));
    assert!(ask(&metrics, "evil.example").starts_with("HTTP/1.1 421 "));
}

#[test]
fn no_password_is_in_the_log() {
    let folder = Folder::new(&[("a.txt", b"twelve bytes")]);
    let folder_name = folder.path().display().to_string();
    for format in ["common", "json"] {
        let (program, address, _) = Program::serve(&["serve", &folder_name, "--log", format]);
        for target in ["http://user:secret@a/a.txt", "http://user:secret@b/a.txt", "user:secret@a"] {
            let mut stream = connect(&address);
            let headers = "host: a\r\nreferer: http://me:secret@c/d\r\nconnection: close\r\n";
            write!(stream, "GET {target} HTTP/1.1\r\n{headers}\r\n").unwrap();
            stream.read_to_end(&mut Vec::new()).unwrap();
            let line = program.stdout.next();
            assert!(!line.contains("secret") && !line.contains("user"), "{line}");
            let shown = target.replace("user:secret@", "");
            assert!(
                line.contains(&format!("{shown}\"")) || line.contains(&format!("{shown} HTTP/1.1\"")),
                "{line}"
            );
        }
    }
}

#[test]
fn a_folder_without_an_index_says_what_to_do() {
    let folder = Folder::new(&[("a.txt", b"twelve bytes")]);
    let folder_name = folder.path().display().to_string();
    let serve = |options: &[&str]| {
        let program = Program::spawn(&[&["serve", &folder_name, "--port", "0"], options].concat());
        let line = program.stderr.find("address");
        let address = line.split_once("://").unwrap().1.trim_end_matches('/').to_owned();
        let note = program.stderr.next();
        (program, address, note)
    };
    let (_program, address, note) = serve(&[]);
    assert!(note.contains("index.html") && note.contains("--list"), "{note}");
    let page = get(&address, "/", "");
    assert!(page.starts_with("HTTP/1.1 404 ") && page.contains("text/html; charset=utf-8"), "{page}");
    assert!(page.contains("This folder has no index.html") && page.contains("--list"), "{page}");
    assert!(!page.contains("http://") && !page.contains("src="), "nothing comes from elsewhere: {page}");
    assert!(get(&address, "/none", "").ends_with("404 Not Found\n"), "only folders");
    for options in [&["--list"][..], &["--index", "a.txt"], &["--single-page", "a.txt"]] {
        let (_program, address, note) = serve(options);
        assert!(note.contains("workers"), "{options:?}: {note}");
        assert!(get(&address, "/", "").starts_with("HTTP/1.1 200 "), "{options:?}");
    }
    let (_program, address, _) = serve(&["--not-found", "a.txt"]);
    assert!(get(&address, "/", "").ends_with("twelve bytes"), "a page of one's own comes first");
}

#[test]
fn options_reach_the_files() {
    let folder = Folder::new(&[("start.htm", b"start"), (".hidden", b"h"), ("a.css", b"a")]);
    let folder_name = folder.path().display().to_string();
    let options =
        ["--index", "start.htm", "--hidden", "--cache-control", "*.css=max-age=60", "--cache-size", "0"];
    let (_program, address, metrics) = Program::serve(&[&["serve", &folder_name][..], &options].concat());
    assert!(get(&address, "/", "").ends_with("start"));
    assert!(get(&address, "/.hidden", "").starts_with("HTTP/1.1 200 "));
    assert!(get(&address, "/a.css", "").contains("cache-control: max-age=60\r\n"));
    assert!(get(&metrics, "/_dapple/metrics", "").contains("dapple_cache_pages 0\n"));
    let (_program, address, _) = Program::serve(&["serve", &folder_name, "--list", "--metrics", "off"]);
    assert!(get(&address, "/", "").contains("<a href=\"./a.css\">"));
}

#[test]
fn a_client_that_says_nothing_is_let_go() {
    let (_program, address, _) = Program::serve(&["--header-timeout", "100ms"]);
    let mut stream = connect(&address);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
    stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "closed");
}

#[test]
fn with_a_certificate_it_is_https() {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert_pem, key_pem) = (cert.pem(), signing_key.serialize_pem());
    let folder = Folder::new(&[("cert.pem", cert_pem.as_bytes()), ("key.pem", key_pem.as_bytes())]);
    let program = Program::spawn(&[
        "--port",
        "0",
        "--tls-cert",
        &folder.at("cert.pem"),
        "--tls-key",
        &folder.at("key.pem"),
    ]);
    let line = program.stderr.find("address");
    let address = line.split_once("https://").expect("https").1.trim_end_matches('/');

    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut tls = ClientConnection::new(config.into(), "localhost".try_into().unwrap()).unwrap();
    let mut socket = connect(address);
    let mut stream = Stream::new(&mut tls, &mut socket);
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("every task has a color"));
}

#[test]
fn a_server_whose_standard_error_cannot_be_written_to_serves_all_the_same() {
    let folder = Folder::new(&[("index.html", b"hello")]);
    let (name, log) = (folder.path().display().to_string(), folder.at("access.log"));
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let arguments = ["serve", &name, "--port", "0", "--log", "json", "--log-file", &log];
    let mut program = Program::spawn_on(&arguments, full);
    // The file is there after the signals are waited for, and before the banner.
    while !std::fs::exists(&log).unwrap() {
        std::thread::sleep(Duration::from_millis(1));
    }
    program.signal(Signal::TERM);
    assert_eq!(program.wait().code(), Some(0));
}

#[test]
fn requests_may_wait_for_longer_than_half_a_second() {
    let folder = Folder::new(&[("index.html", b"hello")]);
    let name = folder.path().display().to_string();
    for wait in ["501ms", "2s", "9999999999h", "off"] {
        let (_program, address, _) = Program::serve(&["serve", &name, "--max-wait", wait]);
        assert!(get(&address, "/", "").ends_with("hello"), "{wait}");
    }
}
