//! Files and folders that may not be read: the client gets only a status, and the log has the reason.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::not_run::not_run;
use crate::program::{Folder, Program, get};

#[test]
fn a_folder_that_may_not_be_read_is_forbidden_and_in_the_log() {
    let folder = Folder::new(&[("a.txt", b"a")]);
    let set =
        |name: &str, mode| fs::set_permissions(folder.at(name), PermissionsExt::from_mode(mode)).unwrap();
    set("", 0o755);
    fs::create_dir(folder.at("entered")).unwrap();
    set("entered", 0o311); // its files can be had, and it cannot be listed
    set("a.txt", 0o200);
    let name = folder.path().display().to_string();
    let arguments = ["serve", &name, "--list", "--port", "0", "--log", "common", "--metrics", "off"];
    let program = match Program::spawn_without_rights(&arguments) {
        Ok(program) => program,
        Err(error) => return not_run(format_args!("a user without rights cannot run the program: {error}")),
    };
    let line = program.stderr.find("address");
    let address = line.split_once("://").unwrap().1.trim_end_matches('/');
    program.stderr.find("to stop");
    for path in ["/entered/", "/a.txt"] {
        let answer = get(address, path, "");
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.ends_with("403 Forbidden\n"), "{answer}");
        let line = program.stderr.next();
        let wanted =
            format!("error: cannot serve {path}: Permission denied (os error 13); answered with 403");
        assert_eq!(line, wanted);
        assert!(program.stdout.next().contains(&format!("\"GET {path} HTTP/1.1\" 403 ")));
    }
    let answer = get(address, "/", "");
    assert!(answer.contains("href=\"./entered/\"") && answer.contains("href=\"./a.txt\""), "{answer}");
}
