//! Absolute links, over sockets: those that lead to inside are followed, and no text of a link leads out.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use crate::common::Server;
use crate::site::Site;

const SECRET: &str = "nobody may see this";

fn site() -> Site {
    Site::new(&[
        ("secret.txt", SECRET),
        ("public-too/x.txt", SECRET),
        ("public/a.txt", "a"),
        ("public/b/c.txt", "c"),
    ])
}

fn serve(folder: impl AsRef<Path>) -> Server {
    Server::start(dapple_http::files(folder).unwrap().recheck(Duration::ZERO))
}

#[test]
fn absolute_links_to_inside_are_followed() {
    let site = site();
    let inside = |name: &str| site.at("public").join(name).to_str().unwrap().to_owned();
    let link = |to: &str, name: &str| symlink(to, inside(name)).unwrap();
    link(&inside("a.txt"), "absolute.txt");
    link(&inside("b"), "folder");
    link(&inside(""), "self");
    link(&inside("b/../a.txt").replace("/public/", "//public/./"), "winding.txt");
    link("folder/c.txt", "relative-to-absolute.txt");
    link(&inside("absolute.txt"), "absolute-to-absolute.txt");
    link("../absolute.txt", "b/up.txt");
    let server = serve(site.at("public"));
    let mut client = server.connect();
    for (path, wanted) in [
        ("/absolute.txt", "a"),
        ("/folder/c.txt", "c"),
        ("/self/b/c.txt", "c"),
        ("/self/self/folder/c.txt", "c"),
        ("/winding.txt", "a"),
        ("/relative-to-absolute.txt", "c"),
        ("/absolute-to-absolute.txt", "a"),
        ("/b/up.txt", "a"),
    ] {
        for _ in 0..2 {
            let answer = client.get(path);
            assert_eq!((answer.status, answer.text()), (200, wanted), "{path}");
        }
    }
    assert_eq!(client.get("/folder").status, 301);
    // The target of a link is checked again like any other file.
    site.write("public/a.txt", "another");
    assert_eq!(client.get("/absolute.txt").text(), "another");
    fs::remove_file(site.at("public/a.txt")).unwrap();
    assert_eq!(client.get("/absolute.txt").status, 404);
}

#[test]
fn the_folder_may_be_a_link_itself() {
    let site = site();
    symlink("public", site.at("current")).unwrap();
    symlink(site.at("current/a.txt"), site.at("public/by-link.txt")).unwrap();
    symlink(site.at("public/a.txt"), site.at("public/by-folder.txt")).unwrap();
    let server = serve(site.at("current"));
    let mut client = server.connect();
    for path in ["/by-link.txt", "/by-folder.txt"] {
        assert_eq!(client.get(path).text(), "a", "{path}");
    }
}

#[test]
fn no_text_of_a_link_leads_out() {
    let site = site();
    let root = site.at("public").to_str().unwrap().to_owned();
    let parent = site.path().to_str().unwrap().to_owned();
    let targets = [
        format!("{root}/../secret.txt"),
        format!("{root}/b/../../secret.txt"),
        format!("{parent}/secret.txt"),
        format!("{root}/../public-too/x.txt"),
        format!("{root}-too/x.txt"),
        format!("{parent}/./public/../secret.txt"),
        format!("{parent}/other/../secret.txt"),
        format!("{root}/up/secret.txt"),
        format!("{root}/loop"),
        "/etc/passwd".into(),
        "/".into(),
        "/proc/self/root/etc/passwd".into(),
    ];
    symlink("..", site.at("public/up")).unwrap();
    symlink(format!("{root}/loop"), site.at("public/loop")).unwrap();
    for (number, target) in targets.iter().enumerate() {
        symlink(target, site.at(&format!("public/{number}"))).unwrap();
    }
    let server = serve(site.at("public"));
    let mut client = server.connect();
    for (number, target) in targets.iter().enumerate() {
        for rest in ["", "/", "/secret.txt", "/etc/passwd"] {
            let answer = client.get(&format!("/{number}{rest}"));
            assert_eq!(answer.status, 404, "{target}{rest}");
            assert!(!answer.text().contains(SECRET));
        }
    }
    let strict = dapple_http::files(site.at("public")).unwrap().symlinks(false);
    symlink(format!("{root}/a.txt"), site.at("public/inside")).unwrap();
    assert_eq!(Server::start(strict).connect().get("/inside").status, 404);
}
