//! What the program says if it cannot start, and what it ends with.

mod program;

use std::net::TcpListener;

use program::{Folder, run};

/// Runs it to its end: what it ends with, and what it says.
#[track_caller]
fn fails(code: i32, arguments: &[&str]) -> String {
    let output = run(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(output.stdout.is_empty());
    assert!(said.starts_with("error: "), "{said}");
    said
}

#[test]
fn a_port_that_is_in_use() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let folder = Folder::new(&[]);
    for command in [&["serve", folder.path().to_str().unwrap()][..], &["site"], &[]] {
        let said = fails(1, &[command, &["--port", &port]].concat());
        let wanted = format!(
            "error: cannot listen at 127.0.0.1:{port}: something else listens there; choose another port with \
             --port, 0 for any that is free\n"
        );
        assert_eq!(said, wanted);
    }
    let address = listener.local_addr().unwrap().to_string();
    assert!(fails(1, &["--port", "0", "--metrics", &address]).contains("choose another port with --metrics"));
}

#[test]
fn an_address_that_this_machine_has_not() {
    let said = fails(1, &["--address", "192.0.2.1", "--port", "0"]);
    assert!(said.contains("this machine has no such address; 0.0.0.0 or ::"), "{said}");
}

#[test]
fn a_folder_that_is_none() {
    let folder = Folder::new(&[("file", b"")]);
    let none = folder.at("none");
    let said = fails(1, &["serve", &none]);
    assert_eq!(
        said,
        format!("error: there is no folder {none}: name one that exists, as in `dapple serve .`\n")
    );
    let file = folder.at("file");
    let said = fails(1, &["serve", &file]);
    assert_eq!(said, format!("error: {file} is not a folder: name the folder that it is in\n"));
}

#[test]
fn a_command_line_that_makes_no_sense() {
    for (arguments, part) in [
        (&["serve", "--port", "x"][..], "--port"),
        (&["serve", ".", "--cache-size", "lots"], "use a number of bytes, or one with K, M, G or T, as 64M"),
        (&["serve", ".", "--drain", "5"], "use a number with ms, s, m or h"),
        (&["--max-wait", "0s"], "use 1ms or more, or \"off\""),
        (&["serve", ".", "--cache-control", "x"], "use files and a value"),
        (&["--metrics", "here"], "use an address and a port, as 127.0.0.1:9090, or \"off\""),
        (&["serve", "--tls-cert", "x.pem"], "--tls-key"),
        (&["--log", "xml"], "[possible values: off, common, json]"),
        (&["sevre"], "serve"),
        (&["--unknown"], "--unknown"),
    ] {
        let said = fails(2, arguments);
        assert!(said.contains(part), "{arguments:?}: {said}");
    }
    let folder = Folder::new(&[]);
    let said = fails(1, &["serve", folder.path().to_str().unwrap(), "--cache-control", "css=max-age=1"]);
    assert!(said.contains("the pattern of the rule \"css\""), "{said}");
    assert!(fails(1, &["--workers", "0", "--port", "0"]).contains("a runtime needs at least one worker"));
}

#[test]
fn help_and_version() {
    let help = run(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("Usage: dapple") && help.contains("serve") && help.contains("--metrics"), "{help}");
    let version = run(&["--version"]);
    assert_eq!(String::from_utf8(version.stdout).unwrap(), format!("dapple {}\n", env!("CARGO_PKG_VERSION")));
    let serve = run(&["serve", "--help"]);
    let serve = String::from_utf8(serve.stdout).unwrap();
    assert!(serve.contains("[DIR]") && serve.contains("--cache-control"), "{serve}");
}

#[test]
fn certificates_and_keys_that_cannot_be_used() {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().signing_key;
    let folder = Folder::new(&[
        ("cert.pem", cert.pem().as_bytes()),
        ("key.pem", signing_key.serialize_pem().as_bytes()),
        ("other.pem", other.serialize_pem().as_bytes()),
        ("text.pem", b"no key"),
    ]);
    let tls = |cert: &str, key: &str| {
        fails(1, &["--port", "0", "--tls-cert", &folder.at(cert), "--tls-key", &folder.at(key)])
    };
    for (cert, key, named) in [
        ("none.pem", "key.pem", "none.pem"),
        ("cert.pem", "none.pem", "none.pem"),
        ("cert.pem", "text.pem", "text.pem"),
        ("text.pem", "key.pem", "text.pem"),
        ("cert.pem", "other.pem", "other.pem"),
    ] {
        let said = tls(cert, key);
        assert!(said.contains(&folder.at(named)), "{cert}, {key}: {said}");
    }
}
