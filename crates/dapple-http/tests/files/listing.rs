//! Lists of folders, over sockets: what is in them, in which order, and how many are made.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use crate::common::Server;
use crate::site::{Site, get};

/// The names in a list, as they are shown.
fn names(page: &str) -> Vec<&str> {
    page.split("<tr><td><a href=").skip(1).map(|row| row.split(['>', '<']).nth(1).unwrap()).collect()
}

/// A server of a folder, with lists that are never kept.
fn serve(site: &Site, folder: &str) -> Server {
    let files = dapple_http::files(site.at(folder)).unwrap();
    Server::start(files.listings(true).recheck(Duration::ZERO))
}

#[test]
fn columns_have_titles_and_sort() {
    let site =
        Site::new(&[("b.txt", vec![b'x'; 3]), ("a.txt", vec![b'x'; 2000]), ("c.txt", vec![b'x'; 100])]);
    fs::create_dir(site.at("z")).unwrap();
    fs::create_dir(site.at("y")).unwrap();
    for (name, hours) in [("b.txt", 1), ("c.txt", 2), ("a.txt", 3)] {
        site.age(name, Duration::from_secs(3600 * hours));
    }
    let server = serve(&site, "");
    let mut client = server.connect();
    for (query, wanted) in [
        ("", ["y/", "z/", "a.txt", "b.txt", "c.txt"]),
        ("?sort=name&order=desc", ["z/", "y/", "c.txt", "b.txt", "a.txt"]),
        ("?sort=size", ["y/", "z/", "b.txt", "c.txt", "a.txt"]),
        ("?sort=size&order=desc", ["z/", "y/", "a.txt", "c.txt", "b.txt"]),
        ("?x=y&sort=none", ["y/", "z/", "a.txt", "b.txt", "c.txt"]),
    ] {
        let answer = client.get(&format!("/{query}"));
        assert_eq!(names(answer.text()), wanted, "{query}");
    }
    for (query, wanted) in [("", ["a.txt", "c.txt", "b.txt"]), ("&order=desc", ["b.txt", "c.txt", "a.txt"])] {
        let answer = client.get(&format!("/?sort=modified{query}"));
        assert_eq!(names(answer.text())[2..], wanted, "{query}");
    }
    let answer = client.get("/?sort=size");
    let text = answer.text();
    assert!(text.contains("<th scope=\"col\"><a href=\"./\">Name</a></th>"), "{text}");
    assert!(
        text.contains("aria-sort=\"ascending\"><a href=\"./?sort=size&amp;order=desc\">Size</a>"),
        "{text}"
    );
    assert!(text.contains("<a href=\"./?sort=modified\">Modified</a>"), "{text}");
    assert!(text.contains("href=\"./y/?sort=size\"") && text.contains("href=\"./a.txt\""), "{text}");
    assert!(
        !text.contains("<script") && !text.contains("http"),
        "nothing runs, or comes from elsewhere: {text}"
    );
}

#[test]
fn the_first_of_very_many_are_sorted() {
    let site = Site::new(&[("many/00000", "")]);
    fs::create_dir(site.at("many/zz")).unwrap();
    for number in 1..10_500 {
        fs::hard_link(site.at("many/00000"), site.at(&format!("many/{number:05}"))).unwrap_or_else(|_| {
            fs::write(site.at(&format!("many/{number:05}")), "").unwrap(); // there are too many names for one file
        });
    }
    let server = serve(&site, "many");
    let answer = server.connect().get("/");
    let wanted: Vec<_> =
        ["zz/".to_owned()].into_iter().chain((0..9_999).map(|number| format!("{number:05}"))).collect();
    assert!(names(answer.text()) == wanted, "the first by name, folders before them");
    assert!(answer.text().contains("These are the first 10000 by name, of 10501 in this folder."));
}

#[test]
fn a_link_is_what_it_leads_to_or_left_out() {
    let site = Site::new(&[
        ("secret.txt", "nobody may see this"),
        ("public/a.txt", &"x".repeat(2048)),
        ("public/below/b.txt", "b"),
    ]);
    let link = |to: &str, name: &str| symlink(to, site.at("public").join(name)).unwrap();
    link("a.txt", "file");
    link("below", "folder");
    link(site.at("public/a.txt").to_str().unwrap(), "absolute");
    link("../secret.txt", "out");
    link("/etc", "etc");
    link("none", "dangling");
    link("loop", "loop");
    let fifo = site.at("public/fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let server = serve(&site, "public");
    let mut client = server.connect();
    let answer = client.get("/");
    assert_eq!(names(answer.text()), ["below/", "folder/", "a.txt", "absolute", "file"]);
    assert_eq!(answer.text().matches("<td>2.0 KiB</td>").count(), 3, "the sizes of files: {}", answer.text());
    for name in ["/below/", "/folder/", "/a.txt", "/absolute", "/file"] {
        assert_eq!(client.get(name).status, 200, "what is listed can be had: {name}");
    }
    let files = dapple_http::files(site.at("public")).unwrap().listings(true).symlinks(false);
    let answer = Server::start(files).connect().get("/");
    assert_eq!(names(answer.text()), ["below/", "a.txt"]);
}

#[dapple::test(workers = 4)]
async fn a_list_is_made_once_for_all_that_ask() {
    const FOLDERS: usize = 60;
    let files: Vec<_> = (0..FOLDERS).map(|number| format!("{number}/a.txt")).collect();
    let site = Site::new(&files.iter().map(|name| (&name[..], "")).collect::<Vec<_>>());
    let files = site.files().listings(true).recheck(Duration::MAX);
    let asking: Vec<_> = (0..10 * FOLDERS)
        .map(|number| {
            let (files, path) = (files.clone(), format!("/{}/", number % FOLDERS));
            dapple::spawn(async move { get(&files, &path).await.text().contains("a.txt") })
        })
        .collect();
    for asked in asking {
        assert!(asked.await.unwrap());
    }
    assert_eq!(files.stats().listings, FOLDERS as u64);
}

#[dapple::test]
async fn a_folder_that_stays_as_it_is_is_not_read_again() {
    const RECHECK: Duration = Duration::from_millis(100);
    let site = Site::new(&[("a/b.txt", ""), ("a/c.txt", "")]);
    let folder = fs::File::open(site.at("a")).unwrap();
    // A folder that was changed a moment ago may be changed again with the same stamp.
    while folder.metadata().unwrap().modified().unwrap().elapsed().unwrap() < Duration::from_millis(2500) {
        dapple::time::sleep(RECHECK).await.unwrap();
    }
    let (files, begun) = loop {
        let (files, begun) = (site.files().listings(true).recheck(RECHECK), Instant::now());
        assert_eq!(names(get(&files, "/a/").await.text()), ["../", "b.txt", "c.txt"]);
        dapple::time::sleep(2 * RECHECK).await.unwrap();
        assert_eq!(names(get(&files, "/a/").await.text()), ["../", "b.txt", "c.txt"]);
        // On a machine that is so busy the list has become too old, and that says nothing.
        if begun.elapsed() < 9 * RECHECK {
            break (files, begun);
        }
    };
    assert_eq!((files.stats().listings, files.stats().checks), (1, 1));
    // Sizes change without the folder, and are read again after a while.
    site.write("a/c.txt", "four");
    dapple::time::sleep((11 * RECHECK).saturating_sub(begun.elapsed())).await.unwrap();
    assert!(get(&files, "/a/").await.text().contains("<td>4 B</td>"));
    assert_eq!(files.stats().listings, 2);
    // A name that is new is seen at the next look.
    site.write("a/d.txt", "");
    dapple::time::sleep(2 * RECHECK).await.unwrap();
    assert_eq!(names(get(&files, "/a/").await.text()), ["../", "b.txt", "c.txt", "d.txt"]);
    assert_eq!(files.stats().listings, 3);
}

#[dapple::test]
async fn a_list_is_as_new_as_a_file_would_be() {
    let site = Site::new(&[("a.txt", "")]);
    let kept = site.files().listings(true).recheck(Duration::MAX);
    let fresh = site.files().listings(true).recheck(Duration::ZERO);
    for files in [&kept, &fresh] {
        assert_eq!(names(get(files, "/").await.text()), ["a.txt"]);
    }
    site.write("b.txt", "");
    assert_eq!(names(get(&kept, "/").await.text()), ["a.txt"]);
    assert_eq!(names(get(&fresh, "/").await.text()), ["a.txt", "b.txt"]);
    assert!(kept.stats().cached_bytes > 1000, "it is weighed");
    let none = site.files().listings(true).cache_size(0);
    assert_eq!(names(get(&none, "/").await.text()), ["a.txt", "b.txt"]);
    assert_eq!(none.stats().cached_bytes, 0);
}
