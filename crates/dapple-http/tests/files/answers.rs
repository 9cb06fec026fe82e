//! Answers of a file service.

use crate::not_run::not_run;
use crate::site::{Site, ask, get};

#[dapple::test]
async fn a_file_with_its_headers() {
    let site = Site::new(&[("a/hello.html", "<p>Hello.")]);
    let files = site.files().recheck(std::time::Duration::MAX);
    for _ in 0..2 {
        let got = get(&files, "/a/hello.html?x=1").await;
        assert_eq!(got.status, 200);
        assert_eq!(got.text(), "<p>Hello.");
        assert_eq!(got.header("content-type"), "text/html; charset=utf-8");
        assert_eq!(got.header("accept-ranges"), "bytes");
        assert!(got.header("etag").starts_with('"'), "a strong tag");
        assert!(got.header("last-modified").ends_with(" GMT"));
        assert!(!got.has("vary") && !got.has("content-encoding") && !got.has("cache-control"));
    }
    let stats = files.stats();
    assert_eq!((stats.loads, stats.hits, stats.misses, stats.cached_pages), (1, 1, 1, 1));
}

#[dapple::test]
async fn head_is_get_without_a_body() {
    let site = Site::new(&[("a.txt", "eleven char")]);
    let files = site.files();
    let (head, get) = (ask(&files, "HEAD", "/a.txt", &[]).await, get(&files, "/a.txt").await);
    assert_eq!((head.status, head.header("content-length"), &head.body[..]), (get.status, "11", &b""[..]));
    for (name, value) in &get.headers {
        assert_eq!(head.headers.get(name), Some(value));
    }
    for (path, headers, status, length) in
        [("/none", &[][..], 404, "14"), ("/a.txt", &[("if-match", "\"other\"")][..], 412, "24")]
    {
        let head = ask(&files, "HEAD", path, headers).await;
        let got = (head.status.as_u16(), head.header("content-length"), head.body.len());
        assert_eq!(got, (status, length, 0), "{path}");
    }
}

#[dapple::test]
async fn other_methods_are_not_allowed() {
    let site = Site::new(&[("a.txt", "a")]);
    let files = site.files();
    for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE", "PROPFIND"] {
        let got = ask(&files, method, "/a.txt", &[]).await;
        assert_eq!((got.status.as_u16(), got.header("allow")), (405, "GET, HEAD, OPTIONS"), "{method}");
    }
    let got = ask(&files, "OPTIONS", "/a.txt", &[]).await;
    assert_eq!((got.status.as_u16(), got.header("allow"), got.body.len()), (204, "GET, HEAD, OPTIONS", 0));
    assert_eq!(ask(&files, "OPTIONS", "*", &[]).await.status, 204);
}

#[dapple::test]
async fn a_folder_is_its_index_and_has_a_slash() {
    let site = Site::new(&[("index.html", "root"), ("a b/index.htm", "below"), ("empty/x.txt", "x")]);
    let files = site.files().indexes(["index.html", "index.htm"]);
    assert_eq!(get(&files, "/").await.text(), "root");
    assert_eq!(get(&files, "/a%20b/").await.text(), "below");
    let got = get(&files, "/a%20b?q=1").await;
    assert_eq!((got.status.as_u16(), got.header("location")), (301, "./a%20b/?q=1"));
    // Never to another host, whatever the path looks like.
    assert_eq!(get(&files, "//empty").await.header("location"), "./empty/");
    assert_eq!(get(&files, "/empty/").await.status, 404);
    assert_eq!(get(&files, "/index.html/").await.status, 404);
    assert_eq!(get(&files, "/nowhere/").await.status, 404);
}

#[dapple::test]
async fn conditions_are_weighed_by_etag_and_date() {
    let site = Site::new(&[("a.css", "a{}")]);
    let files = site.files().cache_control("*.css", "max-age=60").unwrap();
    let got = get(&files, "/a.css").await;
    let (etag, modified) = (got.header("etag"), got.header("last-modified"));
    for header in [("if-none-match", etag), ("if-modified-since", modified)] {
        for method in ["GET", "HEAD"] {
            let again = ask(&files, method, "/a.css", &[header]).await;
            assert_eq!((again.status.as_u16(), again.body.len()), (304, 0));
            assert_eq!((again.header("etag"), again.header("cache-control")), (etag, "max-age=60"));
            assert!(!again.has("content-type") && !again.has("content-length"));
        }
    }
    assert_eq!(ask(&files, "GET", "/a.css", &[("if-none-match", "\"x\"")]).await.status, 200);
    assert_eq!(ask(&files, "GET", "/a.css", &[("if-match", "\"x\"")]).await.status, 412);
    assert_eq!(ask(&files, "GET", "/a.css", &[("if-match", etag)]).await.status, 200);
    assert_eq!(ask(&files, "GET", "/none", &[("if-none-match", "*")]).await.status, 404);
}

/// In memory, and in pieces.
async fn both(site: &Site, check: impl AsyncFn(&dapple_http::files::FileService)) {
    check(&site.files()).await;
    check(&site.files().largest_cached(0)).await;
}

#[dapple::test]
async fn one_range_is_a_part() {
    let content: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
    let site = Site::new(&[("a.bin", &content)]);
    both(&site, async |files| {
        let range = async |headers: &[(&str, &str)]| ask(files, "GET", "/a.bin", headers).await;
        let got = range(&[("range", "bytes=100000-199999")]).await;
        assert_eq!((got.status.as_u16(), &got.body[..]), (206, &content[100_000..]));
        assert_eq!(got.header("content-range"), "bytes 100000-199999/200000");
        assert_eq!(got.header("content-type"), "application/octet-stream");
        let etag = got.header("etag");

        let got = range(&[("range", "bytes=-1"), ("if-range", etag)]).await;
        assert_eq!((got.status.as_u16(), &got.body[..]), (206, &content[199_999..]));
        let got = range(&[("range", "bytes=-1"), ("if-range", "\"x\"")]).await;
        assert_eq!((got.status.as_u16(), &got.body[..]), (200, &content[..]));
        let got = range(&[("range", "bytes=-1"), ("if-range", got.header("last-modified"))]).await;
        assert_eq!(got.status, 206);
        let got = range(&[("range", "bytes=200000-")]).await;
        assert_eq!((got.status.as_u16(), got.header("content-range")), (416, "bytes */200000"));
        assert_eq!(range(&[("range", "bytes=9-1")]).await.status, 200);
        assert_eq!(range(&[("range", "bytes=0-1"), ("range", "bytes=2-3")]).await.status, 200);
        // A condition that fails counts before a range.
        assert_eq!(range(&[("range", "bytes=0-1"), ("if-none-match", etag)]).await.status, 304);
        let got = ask(files, "HEAD", "/a.bin", &[("range", "bytes=0-1")]).await;
        assert_eq!((got.status.as_u16(), got.header("content-length")), (200, "200000"));
    })
    .await;
}

#[dapple::test]
async fn several_ranges_are_a_multipart() {
    let content: Vec<u8> = (0..150_000u32).map(|i| (i % 251) as u8).collect();
    let site = Site::new(&[("a.html", &content)]);
    both(&site, async |files| {
        let header = [("range", "bytes=149999-, 0-1, 1000-99999")];
        let got = ask(files, "GET", "/a.html", &header).await;
        assert_eq!(got.status, 206);
        assert!(!got.has("content-range"));
        let boundary = got.header("content-type").strip_prefix("multipart/byteranges; boundary=").unwrap();
        let kind = get(files, "/a.html").await.header("content-type").to_owned();
        let mut wanted = Vec::new();
        for (start, end) in [(149_999, 149_999), (0, 1), (1000, 99_999)] {
            let head = format!(
                "\r\n--{boundary}\r\ncontent-type: {kind}\r\ncontent-range: bytes {start}-{end}/150000\r\n\r\n"
            );
            wanted.extend_from_slice(head.as_bytes());
            wanted.extend_from_slice(&content[start..=end]);
        }
        wanted.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        assert!(got.body == wanted, "the parts");
        let whole = ask(files, "GET", "/a.html", &[("range", "bytes=0-10,5-15")]).await;
        assert_eq!((whole.status.as_u16(), whole.body.len()), (200, content.len()));
    })
    .await;
}

#[dapple::test]
async fn compressed_forms_by_what_the_client_takes() {
    let site =
        Site::new(&[("a.js", "the original"), ("a.js.gz", "zipped"), ("a.js.br", "br"), ("b.js", "b")]);
    let files = site.files();
    let table = [
        ("gzip, deflate, br, zstd", Some("br"), "br"),
        ("gzip", Some("gzip"), "zipped"),
        ("br;q=0.5, gzip;q=0.9", Some("gzip"), "zipped"),
        ("br;q=0, *", Some("gzip"), "zipped"),
        ("zstd", None, "the original"),
        ("identity, gzip;q=0.5", None, "the original"),
        ("", None, "the original"),
        ("identity;q=0, zstd", None, "the original"),
    ];
    let mut etags = std::collections::HashSet::new();
    for (header, coding, body) in table {
        let got = ask(&files, "GET", "/a.js", &[("accept-encoding", header)]).await;
        assert_eq!((got.status.as_u16(), got.text()), (200, body), "{header}");
        assert_eq!(got.headers.get("content-encoding").map(|value| value.to_str().unwrap()), coding);
        assert_eq!(got.header("content-type"), "text/javascript; charset=utf-8");
        assert_eq!(got.header("vary"), "accept-encoding");
        etags.insert(got.header("etag").to_owned());
    }
    assert_eq!(etags.len(), 3, "other bytes, another tag");
    assert!(!get(&files, "/b.js").await.has("vary"));
    let plain = ask(&files.precompressed(false), "GET", "/a.js", &[("accept-encoding", "br")]).await;
    assert_eq!((plain.text(), plain.has("vary")), ("the original", false));
}

#[dapple::test]
async fn a_compressed_form_that_is_older_than_its_file_is_left_alone() {
    let site = Site::new(&[("a.js", "the new one"), ("a.js.gz", "old")]);
    site.age("a.js.gz", std::time::Duration::from_secs(7200));
    let got = ask(&site.files(), "GET", "/a.js", &[("accept-encoding", "gzip")]).await;
    assert_eq!((got.text(), got.has("content-encoding")), ("the new one", false));
}

#[dapple::test]
async fn cache_control_by_the_first_rule_that_fits() {
    let site = Site::new(&[("assets/a.css", "a"), ("b.css", "b"), ("index.html", "i"), ("c.txt", "c")]);
    let files = site.files();
    let files = files.cache_control("/assets/", "immutable").unwrap();
    let files = files.cache_control("*.css", "max-age=1").unwrap();
    let files = files.cache_control("/index.html", "no-cache").unwrap();
    for (path, wanted) in [("/assets/a.css", "immutable"), ("/b.css", "max-age=1"), ("/", "no-cache")] {
        assert_eq!(get(&files, path).await.header("cache-control"), wanted, "{path}");
    }
    assert!(!get(&files, "/c.txt").await.has("cache-control"));
    let error = site.files().cache_control("css", "x").unwrap_err().to_string();
    assert!(error.contains("\"css\"") && error.contains("*.css"), "{error}");
    let error = site.files().cache_control("*", "a\nb").unwrap_err().to_string();
    assert!(error.contains("the value") && error.contains("max-age"), "{error}");
}

#[dapple::test]
async fn folders_are_listed_if_that_is_wanted() {
    let name = "<b>&\"x\"'.txt";
    let site = Site::new(&[(name, "12345"), ("below/y.txt", ""), (".secret", "s"), ("j:a", "")]);
    assert_eq!(get(&site.files(), "/").await.status, 404);
    let files = site.files().listings(true);
    let got = get(&files, "/").await;
    assert_eq!((got.status.as_u16(), got.header("content-type")), (200, "text/html; charset=utf-8"));
    let text = got.text();
    assert!(text.contains("&lt;b&gt;&amp;&quot;x&quot;&#39;.txt") && !text.contains("<b>"), "{text}");
    assert!(text.contains("href=\"./%3Cb%3E%26%22x%22%27.txt\"") && text.contains(">5 B<"), "{text}");
    assert!(text.contains("href=\"./below/\"") && text.contains("href=\"./j%3Aa\""), "{text}");
    assert!(!text.contains(".secret") && !text.contains("../"), "{text}");
    assert!(get(&files, "/below/").await.text().contains("href=\"../\""));
    let head = ask(&files, "HEAD", "/", &[]).await;
    assert_eq!(head.header("content-length"), text.len().to_string());
    assert!(get(&files.hidden(true), "/").await.text().contains(".secret"));
}

#[dapple::test]
async fn an_empty_file_is_one() {
    let site = Site::new(&[("empty.txt", "")]);
    both(&site, async |files| {
        let got = get(files, "/empty.txt").await;
        assert_eq!((got.status.as_u16(), got.hint), (200, Some(0)));
        assert_eq!(ask(files, "GET", "/empty.txt", &[("range", "bytes=0-")]).await.status, 416);
    })
    .await;
}

#[test]
fn a_folder_that_is_none_is_told_of() {
    let site = Site::new(&[("file", "x")]);
    for name in ["none", "file"] {
        let error = dapple_http::files::files(site.at(name)).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("cannot serve the folder {}: ", site.at(name).display())),
            "{error}"
        );
    }
}

#[dapple::test]
async fn a_page_of_ones_own_for_what_is_not_there() {
    let site = Site::new(&[("404.html", "nothing here"), ("404.html.gz", "zipped"), ("a.txt", "a")]);
    let files = site.files().not_found("/404.html");
    let got = get(&files, "/none").await;
    assert_eq!((got.status.as_u16(), got.text()), (404, "nothing here"));
    assert_eq!(got.header("content-type"), "text/html; charset=utf-8");
    assert!(!got.has("etag") && !got.has("last-modified"), "it is not what was asked for");
    let conditions = [("if-none-match", "*"), ("range", "bytes=0-1"), ("accept-encoding", "gzip")];
    let got = ask(&files, "GET", "/none", &conditions).await;
    assert_eq!((got.status.as_u16(), got.text(), got.header("content-encoding")), (404, "zipped", "gzip"));
    let head = ask(&files, "HEAD", "/none", &[]).await;
    assert_eq!((head.status.as_u16(), head.header("content-length")), (404, "12"));
    assert_eq!(get(&files, "/a.txt").await.status, 200);
    assert_eq!(get(&site.files().not_found("none.html"), "/none").await.text(), "404 Not Found\n");
}

#[dapple::test]
async fn an_application_of_a_single_page() {
    let site = Site::new(&[("index.html", "the application"), ("a.js", "a"), ("404.html", "nothing")]);
    let files = site.files().single_page("index.html").not_found("404.html");
    for path in ["/", "/users/17", "/a.b/users"] {
        let got = get(&files, path).await;
        assert_eq!((got.status.as_u16(), got.text()), (200, "the application"), "{path}");
        let again = ask(&files, "GET", path, &[("if-none-match", got.header("etag"))]).await;
        assert_eq!(again.status, 304, "{path}");
    }
    assert_eq!(get(&files, "/a.js").await.text(), "a");
    let got = get(&files, "/b.js").await;
    assert_eq!((got.status.as_u16(), got.text()), (404, "nothing"));
}

#[dapple::test]
async fn a_time_in_the_future_or_before_all_time_is_no_date() {
    use std::time::{Duration, SystemTime};
    let site = Site::new(&[("a.txt", "a")]);
    let files = site.files().recheck(Duration::ZERO).listings(true);
    let file = std::fs::File::options().write(true).open(site.at("a.txt")).unwrap();
    let year = Duration::from_secs(365 * 24 * 3600);
    for time in [
        SystemTime::now() + year,
        SystemTime::UNIX_EPOCH + 400 * year,
        SystemTime::UNIX_EPOCH + 20_000 * year,
    ] {
        if let Err(error) = file.set_modified(time) {
            not_run(format_args!(
                "its part with a file of the future, which the file system refuses: {error}"
            ));
            continue;
        }
        let got = get(&files, "/a.txt").await;
        assert_eq!((got.status.as_u16(), got.has("last-modified")), (200, false));
        let again = ask(&files, "GET", "/a.txt", &[("if-none-match", got.header("etag"))]).await;
        assert_eq!(again.status, 304);
        assert_eq!(get(&files, "/").await.status, 200);
    }
    file.set_modified(SystemTime::UNIX_EPOCH - year).unwrap();
    assert_eq!(get(&files, "/a.txt").await.header("last-modified"), "Thu, 01 Jan 1970 00:00:00 GMT");
}

#[dapple::test]
async fn settings_at_their_limits() {
    let site = Site::new(&[("a.txt", "twelve bytes"), ("index.html", "i")]);
    let all = [
        site.files().cache_size(0),
        site.files().open_files(0).largest_cached(0),
        site.files().cache_size(u64::MAX).largest_cached(u64::MAX),
        site.files().cache_size(1),
        site.files().largest_cached(u64::MAX),
        site.files().recheck(std::time::Duration::MAX),
        site.files().indexes(["", "..", "a/b", "\0", "index.html"]),
    ];
    for files in all {
        for _ in 0..2 {
            assert_eq!(get(&files, "/a.txt").await.text(), "twelve bytes");
            assert_eq!(get(&files, "/").await.text(), "i");
        }
    }
    assert_eq!(get(&site.files().indexes([""; 0]), "/").await.status, 404);
}
