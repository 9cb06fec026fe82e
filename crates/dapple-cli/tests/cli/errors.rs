//! Errors at the start: their text and the exit status.

use std::net::TcpListener;

use crate::program::{Folder, run};

/// Runs the program to its end. Returns its exit status and its standard error.
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
            "error: cannot listen at 127.0.0.1:{port}: another program listens there; choose another port with \
             --port, 0 for any free one\n"
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
        (&["--port", "abc"], "use a number from 1 to 65535, or 0 for any free port"),
        (&["--port", "-1"], "use a number from 1 to 65535, or 0 for any free port"),
        (&["--port", "65536"], "use a number from 1 to 65535, or 0 for any free port"),
        (&["serve", ".", "--cache-size", "-1"], "use a number of bytes, or one with K, M, G or T, as 64M"),
        (&["serve", ".", "--recheck", "-1s"], "use a number with ms, s, m or h"),
        (
            &["--header-timeout", "0"],
            "this would cut off every client; the unit is missing: use a number with",
        ),
        (&["--header-timeout", "0s"], "this would cut off every client: use 1ms or more"),
        (&["--idle-timeout", "0ms"], "this would cut off every client: use 1ms or more"),
        (&["--write-timeout", "0h"], "this would cut off every client: use 1ms or more"),
        (&["--workers", "many"], "use a number, as 4"),
        (&["--workers", "0"], "a server needs a worker: use 1 or more, or leave the option out"),
        (&["--address", "localhost"], "use an IP address: 127.0.0.1 is that of localhost"),
        (&["--address", "nowhere"], "use an IP address, as 127.0.0.1, or 0.0.0.0 for all"),
        (&["--address", "127.0.0.1:90"], "use --address 127.0.0.1 --port 90"),
        (&["--max-connections", "0"], "use 1 or more, or leave the option out"),
        (&["--max-connections-per-address", "0"], "use 1 or more, or leave the option out"),
        (&["serve", ".", "--index", "../x"], "use a name without slashes, as index.html"),
        (&["serve", ".", "--index", ""], "use the name of a file, as index.html"),
        (&["--metrics-host", "http://a/"], "use a name without scheme, port and path"),
        (
            &["demo"],
            "there is no command demo: use `dapple serve DIR` for a folder, `dapple` or `dapple site`",
        ),
        (&["serve", ".", "demo"], "unexpected argument 'demo'"),
        (&["src"], "to serve the folder src: dapple serve src"),
        (&["serve", ".", "--cache-size", "lots"], "use a number of bytes, or one with K, M, G or T, as 64M"),
        (&["serve", ".", "--drain", "5"], "the unit is missing: use a number with ms, s, m or h"),
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
}

#[test]
fn files_that_stand_in_for_others_and_are_not_there() {
    let folder = Folder::new(&[("here.html", b"")]);
    let name = folder.path().to_str().unwrap();
    for option in ["--not-found", "--single-page"] {
        let said = fails(1, &["serve", name, option, "nope.html"]);
        let wanted = folder.at("nope.html");
        assert_eq!(
            said,
            format!("error: {option} nope.html: there is no file {wanted}: make it, or name another\n")
        );
        let said = fails(1, &["serve", name, option, "../here.html"]);
        assert!(
            said.contains("leads out of the folder") && said.contains("name a file that is in it"),
            "{said}"
        );
        assert!(fails(1, &["serve", name, option, "/"]).contains("there is no file"));
    }
}

#[test]
fn a_log_file_that_cannot_be_written() {
    let folder = Folder::new(&[]);
    let said = fails(1, &["--port", "0", "--log-file", &folder.at("a.log")]);
    assert!(
        said.contains("--log-file needs a format for its lines: add --log common or --log json"),
        "{said}"
    );
    let said = fails(1, &["--port", "0", "--log", "json", "--log-file", &folder.at("none/a.log")]);
    assert!(said.contains(&folder.at("none/a.log")) && said.contains("in a folder that exists"), "{said}");
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
        ("cut.pem", cert.pem().split("-----END").next().unwrap().as_bytes()),
        ("cut-key.pem", signing_key.serialize_pem().split("-----END").next().unwrap().as_bytes()),
        (
            "both.pem",
            format!("{}{}", cert.pem(), signing_key.serialize_pem().split("-----END").next().unwrap())
                .as_bytes(),
        ),
        ("odd-key.pem", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
        ("odd.pem", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        ("damaged.pem", b"-----BEGIN CERTIFICATE-----\n????\n-----END CERTIFICATE-----\n"),
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
    let marker = "-----END CERTIFICATE----- is missing at its end";
    let key_marker = "-----END PRIVATE KEY----- is missing at its end";
    for (cert, key, wrong, parts) in [
        ("cut.pem", "key.pem", "cut.pem", ["a certificate in the file", marker]),
        ("cert.pem", "cut-key.pem", "cut-key.pem", ["the key in the file", key_marker]),
        // The certificate in it is fine.
        ("both.pem", "both.pem", "both.pem", ["the key in the file", key_marker]),
        ("cert.pem", "odd-key.pem", "odd-key.pem", ["the key in the file", "cannot be used"]),
        ("cert.pem", "cert.pem", "cert.pem", ["has no private key in it", "this looks like a certificate"]),
        ("odd.pem", "key.pem", "odd.pem", ["the first certificate in the file", "cannot be read"]),
        ("damaged.pem", "key.pem", "damaged.pem", ["is damaged", "Copy it once more"]),
    ] {
        let said = tls(cert, key);
        assert!(said.contains(&folder.at(wrong)), "{cert}, {key}: {said}");
        assert!(
            cert == key || cert == wrong || !said.contains(&folder.at(cert)),
            "it is not to blame: {said}"
        );
        assert!(parts.iter().all(|part| said.contains(part)) && !said.contains("[80"), "{said}");
    }
}
