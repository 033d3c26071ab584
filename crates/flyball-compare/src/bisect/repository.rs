//! The commits of a range, and a work tree for each one that runs.
//!
//! git and the builds run as the workload's user. Work trees lie in their own directory below
//! TMPDIR and are removed with the [`Repository`], so the checkout stays as it is.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use flyball_host::Host;
use flyball_measure::{
    Arm, Command, Hook, HookRunner, Outcome, Program, Stop, Workload as _, WorkloadError, last_lines, quote,
};
use flyball_process::{User, terminal};

/// Maximum number of commits: with more, nobody could read the run directory.
const MAX_COMMITS: usize = 2000;

/// How often a build or git is checked.
const TICK: Duration = Duration::from_millis(100);

/// How long git may take. Removing the work trees does not end at Ctrl-C, so it needs a limit.
const MAX_GIT: Duration = Duration::from_secs(1800);

/// Why commits cannot be searched.
#[derive(Debug, thiserror::Error)]
pub enum BisectError {
    #[error("--bisect needs two revisions: GOOD..BAD, as in v1.0..main")]
    Range,
    #[error("--bisect: this is not the work tree of a git repository{0}")]
    NoRepository(String),
    #[error("--bisect: git knows no commit '{0}'")]
    Revision(String),
    #[error("--bisect: {good} is not an ancestor of {bad}\nhint: 'git merge-base {good} {bad}' names one")]
    NoAncestor { good: String, bad: String },
    #[error("--bisect: there is no commit between {good} and {bad}")]
    Empty { good: String, bad: String },
    #[error("--bisect: {0} commits are too many; at most {MAX_COMMITS}")]
    Many(usize),
    #[error("--bisect: {commit} cannot be measured: {why}")]
    End { commit: String, why: String },
    #[error("{what} failed{}", last_lines(.output))]
    Git { what: String, output: String },
    #[error(transparent)]
    Workload(#[from] WorkloadError),
}

/// A range of commits, and their work trees.
pub struct Repository<'a> {
    host: &'a dyn Host,
    user: Option<User>,
    top: String,
    /// The user's directory, relative to the top.
    prefix: String,
    /// The directory of the work trees.
    root: PathBuf,
    /// GOOD, then the commits after it on BAD's first-parent line, BAD last.
    pub commits: Vec<String>,
    built: RefCell<BTreeSet<usize>>,
}

/// The outcome of a build.
pub(super) enum Built {
    Ready,
    Not(String),
}

impl<'a> Repository<'a> {
    /// Opens the repository of `directory` at `GOOD..BAD`.
    ///
    /// # Errors
    /// No repository, no such commits, or none between them.
    pub fn open(
        host: &'a dyn Host,
        directory: &Path,
        range: &str,
        user: Option<User>,
        stop: &Stop,
    ) -> Result<Repository<'a>, BisectError> {
        let (good, bad) = range.split_once("..").ok_or(BisectError::Range)?;
        if good.is_empty() || bad.starts_with('.') {
            return Err(BisectError::Range);
        }
        let bad = if bad.is_empty() { "HEAD" } else { bad };
        let mut repository = Repository {
            host,
            user,
            top: Path::new(".").join(directory).to_string_lossy().into_owned(),
            prefix: String::new(),
            root: PathBuf::new(),
            commits: Vec::new(),
            built: RefCell::default(),
        };
        let found = repository.run(&["git", "rev-parse", "--show-toplevel"], stop)?;
        if found.failure.is_some() {
            // "fatal: not a git repository", or the repository belongs to somebody else.
            return Err(BisectError::NoRepository(last_lines(&found.output)));
        }
        repository.prefix = repository.git(&["rev-parse", "--show-prefix"], stop)?;
        found.output.trim_end().clone_into(&mut repository.top);
        let revision = |name: &str| {
            let words = [
                "git",
                "rev-parse",
                "--verify",
                "--short",
                "--end-of-options",
                &format!("{name}^{{commit}}"),
            ];
            let found = repository.run(&words, stop)?;
            let known = || found.output.trim().to_owned();
            found.failure.is_none().then(known).ok_or_else(|| BisectError::Revision(name.to_owned()))
        };
        let (first, last) = (revision(good)?, revision(bad)?);
        let names = || (good.to_owned(), bad.to_owned());
        if repository.run(&["git", "merge-base", "--is-ancestor", &first, &last], stop)?.failure.is_some() {
            let (good, bad) = names();
            return Err(BisectError::NoAncestor { good, bad });
        }
        let span = format!("{first}..{last}");
        let count = repository.git(&["rev-list", "--first-parent", "--count", &span], stop)?;
        let count = count.parse().unwrap_or(0);
        if count > MAX_COMMITS {
            return Err(BisectError::Many(count));
        }
        let list = ["rev-list", "--first-parent", "--reverse", "--abbrev-commit", &span];
        let list = repository.git(&list, stop)?;
        repository.commits = std::iter::once(first).chain(list.lines().map(str::to_owned)).collect();
        if repository.commits.len() < 2 {
            let (good, bad) = names();
            return Err(BisectError::Empty { good, bad });
        }
        repository.name_left_behind(stop)?;
        let root = ["sh", "-c", "mktemp -d \"${TMPDIR:-/tmp}/flyball-bisect-XXXXXXXX\""];
        let made = repository.run(&root, stop)?;
        if made.failure.is_some() {
            return Err(BisectError::Git { what: "mktemp -d".to_owned(), output: made.output });
        }
        repository.root = PathBuf::from(made.output.trim_end());
        Ok(repository)
    }

    /// Notes the work trees that a killed bisection left behind. They stay, because a running
    /// bisection has some too.
    fn name_left_behind(&self, stop: &Stop) -> Result<(), BisectError> {
        let list = self.git(&["worktree", "list", "--porcelain"], stop)?;
        let trees = list.lines().filter_map(|line| line.strip_prefix("worktree "));
        let roots = trees.filter_map(|tree| Path::new(tree).parent());
        let is_ours = |root: &&Path| {
            root.file_name().is_some_and(|name| name.to_string_lossy().starts_with("flyball-bisect-"))
        };
        for root in roots.filter(is_ours).collect::<BTreeSet<_>>() {
            terminal::complain(format!(
                "note: {0} holds work trees of another bisection. If none is running, remove them: rm -rf {0} && git worktree prune\n",
                quote(&[root.display().to_string()])
            ));
        }
        Ok(())
    }

    /// The directory in which the program of a commit runs.
    pub(super) fn directory(&self, commit: &str) -> PathBuf {
        self.root.join(commit).join(&self.prefix)
    }

    /// How many commits were built.
    pub(super) fn built(&self) -> usize {
        self.built.borrow().len()
    }

    /// The first line of a commit's message; empty if git fails.
    pub(super) fn subject(&self, place: usize) -> String {
        let words = ["log", "-1", "--format=%s", &self.commits[place]];
        self.git(&words, &Stop::default()).unwrap_or_default()
    }

    /// Returns true if a commit has a second parent.
    pub(super) fn is_merge(&self, place: usize) -> bool {
        let parent = format!("{}^2", self.commits[place]);
        let words = ["git", "rev-parse", "--verify", "--quiet", &parent];
        self.run(&words, &Stop::default()).is_ok_and(|found| found.failure.is_none())
    }

    /// Checks a commit out and builds it, unless that was done before.
    pub(super) fn build(&self, place: usize, hooks: &HookRunner, stop: &Stop) -> Result<Built, BisectError> {
        if self.built.borrow().contains(&place) {
            return Ok(Built::Ready);
        }
        let commit = &self.commits[place];
        let tree = self.root.join(commit);
        let subject = self.subject(place);
        terminal::complain(format!("flyball: building {commit} ({subject})\n"));
        let words = ["worktree", "add", "--quiet", "--detach", &tree.to_string_lossy(), commit];
        self.git(&words, stop)?;
        let directory = self.directory(commit);
        if !directory.is_dir() {
            return Ok(Built::Not(format!("it has no directory {}", self.prefix)));
        }
        let program = Some(Program { directory: Some(directory), ..Program::default() });
        let arm = Arm { name: commit.clone(), program, ..Arm::now() };
        let built = hooks.run(Hook::Setup, &arm, self.host, TICK, None, stop)?;
        if let Some(Outcome { failure: Some(failure), output, .. }) = built {
            return Ok(Built::Not(format!("it does not build ({failure}){}", last_lines(&output))));
        }
        self.built.borrow_mut().insert(place);
        Ok(Built::Ready)
    }

    /// Runs git at the top of the repository, and returns what it printed.
    fn git(&self, words: &[&str], stop: &Stop) -> Result<String, BisectError> {
        let ran = self.run(&[&["git"], words].concat(), stop)?;
        if ran.failure.is_some() {
            let what = format!("git {}", words.first().copied().unwrap_or_default());
            return Err(BisectError::Git { what, output: ran.output });
        }
        Ok(ran.output.trim_end().to_owned())
    }

    fn run(&self, words: &[&str], stop: &Stop) -> Result<Outcome, BisectError> {
        let mut command = Command::new(words.iter().map(|word| (*word).to_owned()).collect());
        // Only a command with a reader keeps its output. The metric is ignored.
        command.reader = flyball_measure::preset::Reader::UserTime;
        command.directory = Some(Path::new(&self.top).to_path_buf());
        command.user.clone_from(&self.user);
        command.limit = Some(MAX_GIT);
        Ok(command.run(self.host, TICK, &mut || (), stop)?)
    }
}

impl Drop for Repository<'_> {
    fn drop(&mut self) {
        if self.root.as_os_str().is_empty() {
            return;
        }
        let root = self.root.display().to_string();
        let line = format!("rm -rf -- {} && git worktree prune", quote(std::slice::from_ref(&root)));
        // Also after Ctrl-C, so it ignores the stop.
        let removed = self.run(&["sh", "-c", &line], &Stop::default());
        if !removed.is_ok_and(|outcome| outcome.failure.is_none()) {
            terminal::complain(format!(
                "note: cannot remove {root}; remove it, then run 'git worktree prune'
"
            ));
        }
    }
}
