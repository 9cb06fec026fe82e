//! Files that change, shrink, vanish, or are asked for by many at once.

use std::fs;
use std::io::Write;
use std::time::Duration;

use crate::site::{Site, begin, get};
use http_body_util::BodyExt;

/// More than is read at a time, twice over.
const LARGE: usize = 300_000;

#[dapple::test(workers = 4)]
async fn a_thousand_ask_and_one_reads() {
    let site = Site::new(&[("a.txt", "x".repeat(10_000))]);
    let files = site.files().recheck(Duration::MAX);
    let asking: Vec<_> = (0..1000)
        .map(|_| {
            let files = files.clone();
            dapple::spawn(async move { get(&files, "/a.txt").await.body.len() })
        })
        .collect();
    for asked in asking {
        assert_eq!(asked.await.unwrap(), 10_000);
    }
    let stats = files.stats();
    assert_eq!((stats.loads, stats.hits + stats.misses), (1, 1000));
}

#[dapple::test(workers = 4)]
async fn a_thousand_ask_and_one_opens() {
    let site = Site::new(&[("a.bin", "x".repeat(10_000))]);
    let files = site.files().largest_cached(100).recheck(Duration::MAX);
    let asking: Vec<_> = (0..1000)
        .map(|_| {
            let files = files.clone();
            dapple::spawn(async move { get(&files, "/a.bin").await.body.len() })
        })
        .collect();
    for asked in asking {
        assert_eq!(asked.await.unwrap(), 10_000);
    }
    assert_eq!((files.stats().opens, files.stats().loads), (1, 0));
}

#[dapple::test]
async fn a_known_file_is_not_looked_at_before_its_time() {
    let site = Site::new(&[("a.txt", "old")]);
    let files = site.files().recheck(Duration::MAX);
    assert_eq!(get(&files, "/a.txt").await.text(), "old");
    site.write("a.txt", "new");
    for _ in 0..100 {
        assert_eq!(get(&files, "/a.txt").await.text(), "old");
    }
    let stats = files.stats();
    assert_eq!((stats.hits, stats.misses, stats.loads, stats.checks), (100, 1, 1, 0));
}

#[dapple::test]
async fn a_changed_file_is_seen_when_it_is_looked_at() {
    for largest in [0, 1 << 20] {
        let site = Site::new(&[("a.txt", "old")]);
        let files = site.files().recheck(Duration::ZERO).largest_cached(largest);
        let old = get(&files, "/a.txt").await;
        // As long, and as old: it is another file all the same.
        let modified = fs::metadata(site.at("a.txt")).unwrap().modified().unwrap();
        site.write("a.txt", "new");
        fs::File::options().write(true).open(site.at("a.txt")).unwrap().set_modified(modified).unwrap();
        let new = get(&files, "/a.txt").await;
        assert_eq!((old.text(), new.text()), ("old", "new"));
        assert_ne!(old.header("etag"), new.header("etag"));
        assert_eq!(old.header("last-modified"), new.header("last-modified"));

        fs::remove_file(site.at("a.txt")).unwrap();
        assert_eq!(get(&files, "/a.txt").await.status, 404);
        site.write("a.txt/index.html", "a folder");
        assert_eq!(get(&files, "/a.txt").await.status, 301);
        assert_eq!(get(&files, "/a.txt/").await.text(), "a folder");
    }
}

#[dapple::test]
async fn an_index_and_compressed_forms_that_come_and_go_are_seen() {
    let site = Site::new(&[("b.html", "b")]);
    let files = site.files().recheck(Duration::ZERO).indexes(["a.html", "b.html"]);
    assert_eq!(get(&files, "/").await.text(), "b");
    site.write("a.html", "a, at length");
    assert_eq!(get(&files, "/").await.text(), "a, at length");
    site.write("a.html.gz", "zipped");
    let gzip = [("accept-encoding", "gzip")];
    assert_eq!(crate::site::ask(&files, "GET", "/", &gzip).await.text(), "zipped");
    fs::remove_file(site.at("a.html.gz")).unwrap();
    assert_eq!(crate::site::ask(&files, "GET", "/", &gzip).await.text(), "a, at length");
    fs::remove_file(site.at("a.html")).unwrap();
    assert_eq!(get(&files, "/").await.text(), "b");
}

#[dapple::test]
async fn another_folder_in_its_place_is_served() {
    let site = Site::new(&[("one/a.txt", "one"), ("two/a.txt", "two")]);
    std::os::unix::fs::symlink("one", site.at("current")).unwrap();
    let files = dapple_http::files::files(site.at("current")).unwrap().recheck(Duration::ZERO);
    assert_eq!(get(&files, "/a.txt").await.text(), "one");
    std::os::unix::fs::symlink("two", site.at("next")).unwrap();
    fs::rename(site.at("next"), site.at("current")).unwrap();
    assert_eq!(get(&files, "/a.txt").await.text(), "two");
}

/// Reads the first piece of a large file, lets something happen to it, and reads on.
async fn cut_by(change: impl FnOnce(&Site)) -> Result<Vec<u8>, String> {
    let site = Site::new(&[("a.bin", vec![b'o'; LARGE])]);
    let files = site.files().largest_cached(1000);
    let mut body = begin(&files, "GET", "/a.bin", &[]).await.into_body();
    let mut all = body.frame().await.unwrap().unwrap().into_data().unwrap().to_vec();
    assert!(all.len() < LARGE / 2, "sent in pieces");
    change(&site);
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => all.extend_from_slice(&frame.into_data().unwrap()),
            Err(error) => {
                assert!(all.iter().all(|&byte| byte == b'o'), "bytes of another state");
                assert!(body.frame().await.is_none(), "nothing comes after an error");
                return Err(error.to_string());
            }
        }
    }
    Ok(all)
}

#[dapple::test]
async fn a_file_that_is_written_to_while_it_is_sent_is_cut_off() {
    let cut = cut_by(|site| {
        let mut file = fs::File::options().write(true).open(site.at("a.bin")).unwrap();
        file.write_all(&vec![b'n'; LARGE]).unwrap();
    });
    assert_eq!(cut.await.unwrap_err(), "the file was changed while it was being sent");
}

#[dapple::test]
async fn a_file_that_shrinks_while_it_is_sent_is_cut_off() {
    let cut = cut_by(|site| {
        let file = fs::File::options().write(true).open(site.at("a.bin")).unwrap();
        file.set_len(LARGE as u64 / 2).unwrap();
    });
    assert_eq!(cut.await.unwrap_err(), "the file was changed while it was being sent");
}

#[dapple::test]
async fn a_file_that_is_replaced_or_removed_is_sent_to_its_end() {
    let replaced = cut_by(|site| {
        site.write("b.bin", "new");
        fs::rename(site.at("b.bin"), site.at("a.bin")).unwrap();
    });
    assert!(replaced.await.unwrap() == vec![b'o'; LARGE]);
    let removed = cut_by(|site| fs::remove_file(site.at("a.bin")).unwrap());
    assert!(removed.await.unwrap() == vec![b'o'; LARGE]);
}

#[dapple::test]
async fn a_change_with_its_time_set_back_is_cut_off() {
    let cut = cut_by(|site| {
        let mut file = fs::File::options().write(true).open(site.at("a.bin")).unwrap();
        let modified = file.metadata().unwrap().modified().unwrap();
        file.write_all(&vec![b'n'; LARGE]).unwrap();
        file.set_modified(modified).unwrap();
    });
    assert_eq!(cut.await.unwrap_err(), "the file was changed while it was being sent");
}

#[dapple::test]
async fn the_cache_stays_within_its_size() {
    let names: Vec<String> = (0..50).map(|i| format!("{i}.bin")).collect();
    let site = Site::new(&names.iter().map(|name| (&name[..], vec![0; 10_000])).collect::<Vec<_>>());
    let files = site.files().cache_size(100_000).largest_cached(10_000);
    for name in names.iter().chain(&names) {
        assert_eq!(get(&files, &format!("/{name}")).await.body.len(), 10_000);
        assert!(files.stats().cached_bytes <= 100_000);
    }
    assert!(files.stats().cached_pages >= 5, "it is used");
    // One that takes half of it stays.
    site.write("half.bin", vec![0; 100_000]);
    let half = files.clone().cache_size(200_000).largest_cached(1 << 30).recheck(Duration::MAX);
    for _ in 0..3 {
        assert_eq!(get(&half, "/half.bin").await.body.len(), 100_000);
    }
    assert_eq!((half.stats().loads, half.stats().hits), (1, 2));
    let files = files.cache_size(0);
    assert_eq!(get(&files, "/0.bin").await.body.len(), 10_000);
    assert_eq!(files.stats().cached_pages, 0);
}

#[dapple::test]
async fn a_client_that_goes_away_while_a_file_is_read_leaves_it_to_others() {
    let site = Site::new(&[("a.bin", vec![b'x'; 100_000])]);
    let files = site.files();
    for _ in 0..20 {
        let other = files.clone();
        let gone = dapple::spawn(async move { get(&other, "/a.bin").await.body.len() });
        gone.cancel();
        let _ = gone.await; // cancelled, or just in time
        assert_eq!(get(&files, "/a.bin").await.body.len(), 100_000);
    }
}

#[dapple::test]
async fn an_unchanged_file_is_read_once_and_looked_at_again() {
    // Files that are older than a test can make them.
    let files = dapple_http::files::files(env!("CARGO_MANIFEST_DIR")).unwrap().recheck(Duration::ZERO);
    for _ in 0..5 {
        assert!(get(&files, "/Cargo.toml").await.text().contains("dapple-http"));
    }
    let stats = files.stats();
    assert_eq!((stats.hits, stats.misses, stats.loads, stats.checks), (0, 5, 1, 4));
}

#[dapple::test]
async fn a_file_that_is_not_in_the_kernels_memory_is_sent_in_order() {
    let content: Vec<u8> = (0..2_000_000u32).map(|i| (i / 7) as u8).collect();
    let site = Site::new(&[("a.bin", &content)]);
    let files = site.files().largest_cached(1000);
    let file = fs::File::open(site.at("a.bin")).unwrap();
    for _ in 0..3 {
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        assert!(get(&files, "/a.bin").await.body == content);
        let range = [("range", "bytes=-100,70000-1999000")];
        let got = crate::site::ask(&files, "GET", "/a.bin", &range).await;
        assert_eq!(got.status, 206);
        assert!(got.body.windows(64).any(|window| window == &content[1_998_937..=1_999_000]));
    }
}

#[dapple::test]
async fn pieces_that_grow_are_sent_in_order() {
    // So much that a client who takes it fast gets larger pieces, and an end that fills none.
    let text: String = (0..1_600_000).map(|number| format!("{number:>8}")).collect();
    let site = Site::new(&[("a.bin", &text)]);
    let files = site.files().largest_cached(1000);
    assert!(get(&files, "/a.bin").await.body == text.as_bytes());
}
