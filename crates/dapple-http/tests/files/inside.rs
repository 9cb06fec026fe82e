//! Nothing outside of the folder is served, however it is asked for, and nothing that is not a file.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use crate::not_run::not_run;
use crate::site::{Site, get};
use dapple_http::files::FileService;
use http::StatusCode;

const SECRET: &str = "nobody may see this";

/// A folder `public` with a file, beside a secret.
fn site() -> (Site, FileService) {
    let site = Site::new(&[("secret.txt", SECRET), ("public/a.txt", "a"), ("public/b/c.txt", "c")]);
    let files = dapple_http::files::files(site.at("public")).unwrap().recheck(std::time::Duration::ZERO);
    (site, files)
}

async fn status(files: &FileService, path: &str) -> StatusCode {
    let got = get(files, path).await;
    assert!(!got.text().contains(SECRET), "{path}");
    got.status
}

#[dapple::test]
async fn no_way_of_writing_it_leads_out() {
    let (_site, files) = site();
    assert_eq!(status(&files, "/a.txt").await, 200);
    let paths = [
        "/../secret.txt",
        "/b/../../secret.txt",
        "/b/../a.txt",
        "/./a.txt",
        "/%2e%2e/secret.txt",
        "/%2E%2E/secret.txt",
        "/.%2e/secret.txt",
        "/b/%2e%2e/%2e%2e/secret.txt",
        "/%2e%2e%2fsecret.txt",
        "/..%2fsecret.txt",
        "/b%2f..%2f..%2fsecret.txt",
        "/%252e%252e/secret.txt",
        "/%252e%252e%252fsecret.txt",
        "/%25252e%25252e/secret.txt",
        "/..;/secret.txt",
        "/..\\secret.txt",
        "/..%5csecret.txt",
        "/%5c..%5csecret.txt",
        "/%c0%ae%c0%ae/secret.txt",
        "/%e0%80%ae%e0%80%ae/secret.txt",
        "/..%c0%afsecret.txt",
        "/%uff0e%uff0e/secret.txt",
        "//../secret.txt",
        "///etc/passwd",
        "/%2fetc/passwd",
        "/b/c.txt/../../../secret.txt",
        "/a.txt/",
        "/a.txt/b",
    ];
    for path in paths {
        let status = status(&files, path).await;
        assert!(matches!(status.as_u16(), 400 | 404), "{path}: {status}");
    }
}

#[dapple::test]
async fn what_is_no_path_is_a_bad_request() {
    let (_site, files) = site();
    for path in ["/a.txt%00", "/%00", "/a%00.txt", "/a.txt%", "/a.txt%4", "/%gg"] {
        assert_eq!(status(&files, path).await, 400, "{path}");
    }
    let long = format!("/{}", "x".repeat(5000));
    assert_eq!(status(&files, &long).await, 404);
    assert_eq!(status(&files, &format!("/{}", "x/".repeat(3000))).await, 404);
}

#[dapple::test]
async fn links_lead_to_inside_only() {
    let (site, files) = site();
    let link = |to: &str, name: &str| symlink(to, site.at("public").join(name)).unwrap();
    link("a.txt", "inside.txt");
    link("b", "folder");
    link("b/../a.txt", "winding.txt");
    link("../secret.txt", "out.txt");
    link("..", "up");
    link("b/../../secret.txt", "winding-out.txt");
    link(site.at("secret.txt").to_str().unwrap(), "absolute.txt");
    link(site.at("public/a.txt").to_str().unwrap(), "absolute-inside.txt");
    link("/", "root");
    link("/proc/self/root", "magic");
    link("/proc/self/cwd", "cwd");
    link("loop", "loop");
    for path in ["/inside.txt", "/folder/c.txt", "/winding.txt", "/absolute-inside.txt"] {
        assert_eq!(status(&files, path).await, 200, "{path}");
    }
    let out = ["/out.txt", "/up/secret.txt", "/winding-out.txt", "/absolute.txt"];
    for path in
        out.iter().chain(&["/root/etc/passwd", "/magic/etc/passwd", "/cwd/Cargo.toml", "/loop", "/up/"])
    {
        assert_eq!(status(&files, path).await, 404, "{path}");
    }
    let files = files.symlinks(false);
    for path in ["/inside.txt", "/folder/c.txt", "/winding.txt", "/absolute-inside.txt"] {
        assert_eq!(status(&files, path).await, 404, "{path}");
    }
    assert_eq!(status(&files, "/a.txt").await, 200);
}

#[dapple::test]
async fn magic_links_of_the_kernel_are_not_followed() {
    // The folder itself has them: the file descriptors of this process, one of which is open on a secret.
    let (site, _) = site();
    let secret = fs::File::open(site.at("secret.txt")).unwrap();
    let files = dapple_http::files::files("/proc/self/fd").unwrap();
    let path = format!("/{}", std::os::fd::AsRawFd::as_raw_fd(&secret));
    assert_eq!(status(&files, &path).await, 404);
}

#[dapple::test]
async fn only_regular_files_are_opened() {
    let (site, files) = site();
    let fifo = site.at("public/fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let _listener = UnixListener::bind(site.at("public/socket")).unwrap();
    assert_eq!(status(&files, "/fifo").await, 404); // and did not wait for a writer
    assert_eq!(status(&files, "/socket").await, 404);
    let devices = dapple_http::files::files("/dev").unwrap();
    for path in ["/null", "/zero", "/tty", "/full"] {
        assert_eq!(status(&devices, path).await, 404, "{path}");
    }
    // Nor as an index, or as a compressed form.
    fs::rename(&fifo, site.at("public/index.html")).unwrap();
    assert_eq!(status(&files, "/").await, 404);
    fs::rename(site.at("public/index.html"), site.at("public/a.txt.gz")).unwrap();
    let got = crate::site::ask(&files, "GET", "/a.txt", &[("accept-encoding", "gzip")]).await;
    assert_eq!((got.status.as_u16(), got.text()), (200, "a"));
}

#[dapple::test]
async fn hidden_names_are_served_only_if_that_is_wanted() {
    let (site, files) = site();
    for name in ["public/.env", "public/.git/config", "public/.well-known/x"] {
        site.write(name, "hidden");
    }
    for path in ["/.env", "/.git/config", "/%2eenv", "/.git/"] {
        assert_eq!(status(&files, path).await, 404, "{path}");
    }
    assert_eq!(status(&files, "/.well-known/x").await, 200);
    assert_eq!(status(&files.hidden(true), "/.env").await, 200);
}

#[dapple::test]
async fn a_folder_swapped_for_a_link_lets_nothing_out() {
    let (site, files) = site();
    assert_eq!(status(&files, "/b/c.txt").await, 200);
    fs::rename(site.at("public/b"), site.at("b")).unwrap();
    site.write("b/c.txt", SECRET);
    symlink("../b", site.at("public/b")).unwrap();
    assert_eq!(status(&files, "/b/c.txt").await, 404, "known before, and outside now");
}

#[dapple::test]
async fn what_may_not_be_read_is_forbidden() {
    let (site, files) = site();
    let path = site.at("public/a.txt");
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    if fs::File::open(&path).is_ok() {
        return not_run("this user, root, may read every file");
    }
    assert_eq!(status(&files, "/a.txt").await, 403);
}
