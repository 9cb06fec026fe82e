//! The two trees: the one that this program was built from, and the commit that it is compared with, in a worktree.
//!
//! [`Pair::check`] refuses what cannot be compared, and changes nothing. [`Pair::build`] makes the worktree
//! (`target/guard/old`, moved from commit to commit, so that little is compiled again) and builds both trees by their
//! own `versus/build`.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::contest::Failure;

/// The script by which a commit builds itself. Commits without it cannot be compared.
const BUILD: &str = "versus/build";

/// A tree that was built.
pub(super) struct Tree {
    pub(super) root: PathBuf,
    pub(super) commit: String,
    pub(super) versus: PathBuf,
    pub(super) probe: PathBuf,
    /// Where it was built, if not where cargo does by itself.
    pub(super) target: Option<PathBuf>,
}

/// Two commits that can be compared.
pub(super) struct Pair {
    root: PathBuf,
    old: String,
    new: String,
}

impl Pair {
    /// Looks whether this tree is clean and the commit is one that can be built.
    pub(super) fn check(against: &str) -> Result<Self, Failure> {
        let built_in = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = git(built_in, &["rev-parse", "--show-toplevel"])?;
        // A user whose working directory is in another clone means that clone.
        if let Ok(here) = git(Path::new("."), &["rev-parse", "--show-toplevel"])
            && here != root
        {
            return Err(format!(
                "this program was built in {root} and would judge that tree, not {here}: build it here"
            ));
        }
        Self::check_in(built_in, against)
    }

    fn check_in(folder: &Path, against: &str) -> Result<Self, Failure> {
        let root = PathBuf::from(git(folder, &["rev-parse", "--show-toplevel"])?);
        let commit = format!("{against}^{{commit}}");
        let old =
            git(&root, &["rev-parse", "--verify", "--quiet", "--end-of-options", &commit]).map_err(|_| {
                format!(
                    "{against:?} is no commit of {}; `git log` lists those that there are",
                    root.display()
                )
            })?;
        if git(&root, &["cat-file", "-e", &format!("{old}:{BUILD}")]).is_err() {
            let added =
                git(&root, &["log", "--diff-filter=A", "--format=%h", "--", BUILD]).unwrap_or_default();
            let first = added.lines().last().unwrap_or("the one that adds it");
            return Err(format!("{against} has no {BUILD}: the guard compares with commits from {first} on"));
        }
        let changes = git(&root, &["status", "--porcelain"])?;
        if !changes.is_empty() {
            let root = root.display();
            return Err(format!(
                "{root} has changes; commit or stash them, so that a commit is judged:\n{changes}"
            ));
        }
        Ok(Self { new: git(&root, &["rev-parse", "HEAD"])?, root, old })
    }

    /// The folder of all that the guard keeps, and a lock on it: one guard at a time.
    pub(super) fn folder(&self) -> Result<(PathBuf, File), Failure> {
        let folder = self.root.join("target/guard");
        let failed = |error| format!("{}: {error}", folder.display());
        fs::create_dir_all(&folder).map_err(failed)?;
        let lock = File::create(folder.join("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok((folder, lock)),
            Err(TryLockError::WouldBlock) => {
                Err(format!("another guard runs in {}; wait until it has ended", folder.display()))
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Builds the old tree and the new one.
    pub(super) fn build(&self, folder: &Path) -> Result<(Tree, Tree), Failure> {
        let worktree = folder.join("old");
        self.check_out(&worktree)?;
        let old = build(&worktree, &self.old, Some(folder.join("build-old")))?;
        let new = build(&self.root, &self.new, None)?;
        Ok((old, new))
    }

    /// Moves the worktree to the old commit, or makes it.
    fn check_out(&self, worktree: &Path) -> Result<(), Failure> {
        let path = worktree.to_string_lossy();
        if !worktree.exists() {
            // By force: it may be registered and gone.
            let add = ["worktree", "add", "--force", "--detach", "--quiet", &path, &self.old];
            return git(&self.root, &add).map(drop);
        }
        let remove = format!("remove it with `git worktree remove --force {path}`");
        let top = git(worktree, &["rev-parse", "--show-toplevel"]);
        if top.as_ref().map(Path::new) != Ok(worktree) {
            return Err(format!("{path} is no worktree; remove that folder"));
        }
        let changes = git(worktree, &["status", "--porcelain"])?;
        if !changes.is_empty() {
            return Err(format!("{path} has changes; {remove}:\n{changes}"));
        }
        git(worktree, &["checkout", "--detach", "--quiet", &self.old]).map(drop)
    }
}

impl Tree {
    /// The commit, shortly.
    pub(super) fn short(&self) -> &str {
        &self.commit[..10]
    }
}

/// Calls the tree's own script, which says where the binaries are.
fn build(root: &Path, commit: &str, target: Option<PathBuf>) -> Result<Tree, Failure> {
    let script = root.join(BUILD);
    let mut command = Command::new(&script);
    command.current_dir(root).stderr(Stdio::inherit());
    if let Some(target) = &target {
        command.env("CARGO_TARGET_DIR", target);
    }
    let output = command.output().map_err(|error| format!("{}: {error}", script.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("{} failed ({}); its messages are above", script.display(), output.status));
    }
    let path = |name| {
        binary(&text, name)
            .ok_or_else(|| format!("{} printed no {name}=PATH, but {text:?}", script.display()))
    };
    let (versus, probe) = (path("versus")?, path("probe")?);
    Ok(Tree { root: root.to_owned(), commit: commit.to_owned(), versus, probe, target })
}

/// The path in a line `NAME=PATH`.
fn binary(text: &str, name: &str) -> Option<PathBuf> {
    let mut pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, path)| path.into())
}

/// Runs git, and returns its output.
fn git(folder: &Path, arguments: &[&str]) -> Result<String, Failure> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output();
    let Output { status, stdout, stderr } = output.map_err(|error| format!("git: {error}"))?;
    if status.success() {
        Ok(String::from_utf8_lossy(&stdout).trim_end().to_owned())
    } else {
        let stderr = String::from_utf8_lossy(&stderr);
        Err(format!("git {}: {}", arguments.join(" "), stderr.trim_end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository of two commits, the second of which adds the script, that is gone with the value.
    struct Repository(PathBuf);

    impl Repository {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("versus-guard-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(path.join("versus")).unwrap();
            let repository = Self(path.canonicalize().unwrap());
            repository.git(&["init", "--quiet"]);
            for (file, text) in [("README", "before"), (BUILD, "echo versus=/v; echo probe=/p")] {
                fs::write(repository.0.join(file), text).unwrap();
                repository.git(&["add", "--all"]);
                let who = ["-c", "user.name=test", "-c", "user.email=test@example.com"];
                repository.git(&[&who[..], &["commit", "--quiet", "-m", file]].concat());
            }
            repository
        }

        fn git(&self, arguments: &[&str]) -> String {
            git(&self.0, arguments).unwrap()
        }

        fn refused(&self, against: &str) -> String {
            Pair::check_in(&self.0, against).err().expect("a refusal")
        }
    }

    impl Drop for Repository {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_clean_tree_and_a_commit_that_builds_itself_can_be_compared() {
        let repository = Repository::new("clean");
        let pair = Pair::check_in(&repository.0, "HEAD").unwrap();
        assert_eq!(pair.old, pair.new);
        assert!(!repository.0.join("target").exists());
    }

    #[test]
    fn an_unknown_commit_is_refused() {
        let repository = Repository::new("unknown");
        for against in ["nonsense", "--help", "0123456"] {
            let error = repository.refused(against);
            assert!(error.contains(against) && error.contains("is no commit"), "{error}");
        }
    }

    #[test]
    fn a_commit_without_the_script_is_refused_with_the_first_that_has_it() {
        let repository = Repository::new("script");
        let error = repository.refused("HEAD~1");
        let first = repository.git(&["rev-parse", "--short", "HEAD"]);
        assert_eq!(
            error,
            format!("HEAD~1 has no versus/build: the guard compares with commits from {first} on")
        );
    }

    #[test]
    fn a_tree_with_changes_is_refused_with_their_names_and_left_alone() {
        let repository = Repository::new("dirty");
        fs::write(repository.0.join("README"), "after").unwrap();
        fs::write(repository.0.join("new.rs"), "").unwrap();
        let error = repository.refused("HEAD");
        assert!(error.contains("commit or stash them"), "{error}");
        assert!(error.contains(" M README") && error.contains("?? new.rs"), "{error}");
        assert!(!repository.0.join("target").exists());
    }

    #[test]
    fn a_worktree_is_made_moved_and_refused_when_it_has_changes() {
        let repository = Repository::new("worktree");
        let mut pair = Pair::check_in(&repository.0, "HEAD").unwrap();
        let worktree = repository.0.join("target/guard/old");
        pair.check_out(&worktree).unwrap();
        assert!(worktree.join(BUILD).exists());
        pair.old = repository.git(&["rev-parse", "HEAD~1"]);
        pair.check_out(&worktree).unwrap();
        assert!(!worktree.join(BUILD).exists());
        fs::write(worktree.join("README"), "after").unwrap();
        let error = pair.check_out(&worktree).unwrap_err();
        assert!(error.contains("git worktree remove --force"), "{error}");
    }

    #[test]
    fn one_guard_runs_at_a_time() {
        let repository = Repository::new("lock");
        let pair = Pair::check_in(&repository.0, "HEAD").unwrap();
        let _held = pair.folder().unwrap();
        assert!(pair.folder().unwrap_err().contains("another guard"));
    }

    #[test]
    fn paths_are_read_from_what_the_script_prints() {
        let text = "versus=/a/versus\nprobe=/a/probe\n";
        assert_eq!(binary(text, "probe"), Some("/a/probe".into()));
        assert_eq!(binary(text, "other"), None);
    }
}
