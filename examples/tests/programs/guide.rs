//! The guide hangs together: its links lead somewhere, and each page with code is run as doctests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The pages of the guide, by name.
fn pages() -> BTreeSet<String> {
    let folder = fs::read_dir(root().join("docs/guide/src")).expect("the guide is there");
    let names =
        folder.map(|entry| entry.expect("it can be read").file_name().into_string().expect("it is UTF-8"));
    names.filter(|name| name.ends_with(".md") && name != "SUMMARY.md").collect()
}

/// The targets of links and pictures in a text, without those to other sites.
fn links(text: &str) -> Vec<&str> {
    let mut is_code = false;
    let mut found = Vec::new();
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        if !is_code {
            found.extend(line.split("](").skip(1).filter_map(|rest| rest.split(')').next()));
        }
    }
    found.retain(|link| !link.starts_with("http"));
    found
}

/// The anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-' || *c == '_');
    kept.collect::<String>().trim().to_lowercase().replace(' ', "-")
}

#[test]
fn every_relative_link_leads_to_a_file_or_heading() {
    let guide = root().join("docs/guide/src");
    let mut files: Vec<PathBuf> = pages().iter().map(|page| guide.join(page)).collect();
    files.extend([guide.join("SUMMARY.md"), root().join("README.md"), root().join("examples/README.md")]);
    let mut count = 0;
    for file in files {
        let text = fs::read_to_string(&file).expect("it can be read");
        for link in links(&text) {
            count += 1;
            let (page, heading) =
                link.split_once('#').map_or((link, None), |(page, heading)| (page, Some(heading)));
            let target = match page {
                "" => file.clone(),
                page => file.parent().expect("it is in a folder").join(page),
            };
            assert!(target.exists(), "{}: {link} leads nowhere", file.display());
            let Some(heading) = heading else { continue };
            let there = fs::read_to_string(&target).expect("it can be read");
            let found = there
                .lines()
                .any(|line| line.starts_with('#') && anchor(line.trim_start_matches('#')) == heading);
            assert!(found, "{}: no heading for {link}", file.display());
        }
    }
    assert!(count > 60, "only {count} links were looked at");
}

#[test]
fn the_summary_has_each_page() {
    let summary = fs::read_to_string(root().join("docs/guide/src/SUMMARY.md")).expect("it is there");
    let listed: BTreeSet<String> = links(&summary).into_iter().map(str::to_owned).collect();
    assert_eq!(listed, pages());
}

#[test]
fn each_page_with_code_is_run() {
    let list = fs::read_to_string(root().join("examples/src/guide.rs")).expect("it is there");
    for page in pages() {
        let text = fs::read_to_string(root().join("docs/guide/src").join(&page)).expect("it can be read");
        if text.contains("```rust") {
            assert!(
                list.contains(&format!("docs/guide/src/{page}")),
                "{page} is not in examples/src/guide.rs"
            );
        }
    }
}
