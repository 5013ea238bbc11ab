//! The commands that a README shows are run as they stand, in the order in which they stand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::stage::Stage;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// One command of a `sh` block: the line on which it begins, and its text with continuations joined.
#[derive(Debug, PartialEq)]
struct Shown {
    line: usize,
    text: String,
}

/// The commands of all `sh` blocks of a page, without comments.
fn shown(page: &str) -> Vec<Shown> {
    let (mut commands, mut in_block, mut continues) = (Vec::<Shown>::new(), false, false);
    for (k, line) in page.lines().enumerate() {
        let text = line.trim();
        if text.starts_with("```") {
            (in_block, continues) = (!in_block && text == "```sh", false);
        } else if in_block && !text.is_empty() && !text.starts_with('#') {
            let (part, goes_on) = text.strip_suffix('\\').map_or((text, false), |part| (part.trim_end(), true));
            match commands.last_mut().filter(|_| continues) {
                Some(command) => command.text += &format!(" {part}"),
                None => commands.push(Shown { line: k + 1, text: part.to_owned() }),
            }
            continues = goes_on;
        }
    }
    commands
}

/// Whether `cargo xtask` knows `command`.
fn is_known_to_xtask(command: &str) -> bool {
    let main = fs::read_to_string(workspace().join("xtask/src/main.rs")).unwrap();
    main.contains(&format!("\n        \"{command}\" =>"))
}

/// Runs a page's `megabatch` commands in one folder and looks up its `cargo xtask` commands; how many ran.
fn check_page(page: &Path) -> usize {
    let stage = Stage::new();
    let text = fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
    let mut ran = 0;
    for Shown { line, text } in shown(&text) {
        let place = format!("{}:{line}: {text}", page.display());
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["megabatch", ..] => {
                run_in_shell(&stage, &text, &place);
                ran += 1;
            }
            ["cargo", "xtask", command, ..] => assert!(is_known_to_xtask(command), "{place}: no such command"),
            ["cargo" | "git" | "cd", ..] => {}
            _ => panic!("{place}: neither run nor known to need no run"),
        }
    }
    ran
}

/// Runs a command as a user's shell would, quotes and redirections included.
fn run_in_shell(stage: &Stage, command: &str, place: &str) {
    let megabatch = stage.command("");
    let binaries = Path::new(megabatch.get_program()).parent().unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(binaries.to_owned()).chain(std::env::split_paths(&path))).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-eu", "-c", command]).current_dir(stage.path("")).env("PATH", path);
    for (name, value) in megabatch.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{place}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_commands_of_the_readme_run() {
    assert!(check_page(&workspace().join("README.md")) > 0, "the README shows no command");
}

#[test]
fn the_commands_of_the_libraries_readmes_run() {
    for library in fs::read_dir(workspace().join("crates")).unwrap() {
        let page = library.unwrap().path().join("README.md");
        if page.exists() {
            check_page(&page);
        }
    }
}

#[test]
fn the_commands_of_the_pages_about_memory_run() {
    for page in ["docs/memory.md", "docs/fragmentation.md"] {
        assert!(check_page(&workspace().join(page)) > 0, "{page} shows no command");
    }
}

#[test]
fn commands_are_read_as_a_shell_would() {
    let page = "```sh\n# comment\nmegabatch a \\\n  --b \\\n  c\n\nmegabatch d\n```\n```rust\nmegabatch e\n```\n  ```sh\n  cargo xtask f\n  ```\n";
    let expected = [(3, "megabatch a --b c"), (7, "megabatch d"), (13, "cargo xtask f")];
    assert_eq!(shown(page), expected.map(|(line, text)| Shown { line, text: text.to_owned() }));
    assert!(is_known_to_xtask("demo") && !is_known_to_xtask("dance"));
}
