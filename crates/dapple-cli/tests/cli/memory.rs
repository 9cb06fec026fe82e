//! How much memory the program takes, and how many file descriptors.

use std::fs;

use crate::program::{Folder, Program, get};

/// The memory of a process, in MiB.
fn resident(program: &Program) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", program.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

#[test]
fn the_cache_has_its_size_whatever_forms_pages_have() {
    const PAGES: usize = 150;
    let folder = Folder::new(&[]);
    // Files of zeros that take no room on the disk: each too large for the memory, with a form that is not.
    for number in 0..PAGES {
        for (name, len) in [(format!("{number}.js"), (1 << 20) + 1), (format!("{number}.js.gz"), 1 << 20)] {
            fs::File::create(folder.at(&name)).unwrap().set_len(len).unwrap();
        }
    }
    let folder_name = folder.path().display().to_string();
    let (program, address, _) = Program::serve(&["serve", &folder_name, "--cache-size", "8M"]);
    get(&address, "/0.js", "");
    let before = resident(&program);
    for number in 0..PAGES {
        let answer = get(&address, &format!("/{number}.js"), "accept-encoding: gzip\r\n");
        assert!(answer.contains("content-encoding: gzip\r\n") && answer.len() > 1 << 20);
    }
    let grown = resident(&program).saturating_sub(before);
    assert!(grown < 48, "{grown} MiB for a cache of 8");
}

#[test]
fn files_that_are_open_for_later_requests_make_room_when_descriptors_run_out() {
    const FILES: usize = 150;
    let folder = Folder::new(&[("small.txt", b"small")]);
    // Files of zeros, each too large for the memory: they are kept open.
    for number in 0..FILES {
        fs::File::create(folder.at(&format!("{number}.bin"))).unwrap().set_len((1 << 20) + 1).unwrap();
    }
    let name = folder.path().display().to_string();
    let program = Program::spawn_with_descriptors(96, &["serve", &name, "--port", "0", "--metrics", "off"]);
    let (_program, address, _) = program.served();
    for number in 0..FILES {
        let answer = get(&address, &format!("/{number}.bin"), "range: bytes=0-0\r\n");
        assert!(answer.starts_with("HTTP/1.1 206 "), "file {number}: {answer}");
    }
    let answer = get(&address, "/small.txt", "");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("small"), "{answer}");
}
