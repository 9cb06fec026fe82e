//! How much memory the program takes.

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
