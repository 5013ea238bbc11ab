//! Record of checks that have passed, which are skipped until something changes.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::workspace::Workspace;

/// One file a check in `target/passed`: its key on the first line, then the tests that it skipped.
pub(crate) struct Passed {
    folder: PathBuf,
    /// True if recorded checks are skipped; otherwise everything runs again and is recorded.
    reuse: bool,
}

impl Passed {
    pub(crate) fn open(workspace: &Workspace, reuse: bool) -> Result<Self> {
        let folder = workspace.target_dir.join("passed");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Passed { folder, reuse })
    }

    /// The lines recorded with the check `name` if it passed with `key`.
    pub(crate) fn lines(&self, name: &str, key: u64) -> Option<Vec<String>> {
        let text = fs::read_to_string(self.file(name)).ok().filter(|_| self.reuse)?;
        let mut lines = text.lines().map(str::to_owned);
        (lines.next()? == format!("{key:016x}")).then(|| lines.collect())
    }

    /// Records that the check `name` passed with `key`.
    pub(crate) fn record(&self, name: &str, key: u64, lines: &[String]) -> Result<()> {
        let file = self.file(name);
        let mut text = format!("{key:016x}\n");
        lines.iter().for_each(|line| text += &format!("{line}\n"));
        let unfinished = file.with_extension("unfinished");
        fs::write(&unfinished, text).with_context(|| format!("cannot write {}", unfinished.display()))?;
        fs::rename(&unfinished, &file).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Runs `check` unless it passed with `key` before.
    pub(crate) fn unless_unchanged(&self, name: &str, key: u64, check: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.lines(name, key).is_some() {
            println!("{name}: unchanged since it passed");
            return Ok(());
        }
        check()?;
        self.record(name, key, &[])
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name.replace([':', '/', ' '], "-"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_done_again_after_a_change_and_on_demand() {
        let folder = std::env::temp_dir().join(format!("xtask-passed-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let passed = Passed { folder: folder.clone(), reuse: true };
        assert_eq!(passed.lines("a::b", 1), None);
        assert!(passed.unless_unchanged("a::b", 1, || anyhow::bail!("fails")).is_err());
        assert_eq!(passed.lines("a::b", 1), None, "what failed is not recorded");
        passed.record("a::b", 1, &["one".to_owned()]).unwrap();
        assert_eq!(passed.lines("a::b", 1), Some(vec!["one".to_owned()]));
        assert!(passed.unless_unchanged("a::b", 1, || anyhow::bail!("not run")).is_ok());
        assert!(passed.unless_unchanged("a::b", 2, || anyhow::bail!("changed")).is_err());
        let again = Passed { folder: folder.clone(), reuse: false };
        assert_eq!(again.lines("a::b", 1), None);
        fs::remove_dir_all(folder).unwrap();
    }
}
