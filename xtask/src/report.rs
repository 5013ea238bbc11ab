//! `cargo xtask report`: the report of a demo, looked at in a real browser.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::demo;
use crate::workspace::{Workspace, succeed};

const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// What a reader must find on the page.
const TEXTS: [&str; 20] = [
    "Loss by step",
    "Loss by epoch",
    "Learning rate",
    "Norm of the gradients",
    "Error by horizon",
    "Root mean square error by horizon",
    "Direction by horizon",
    "Predicted against actual",
    "samples in a row",
    "Data, gaps and repairs",
    "Split and purge",
    "Parts over time",
    "Time of each epoch by phase",
    "Memory",
    "Allocated by step",
    "Allocated over time",
    "Memory map",
    "Machine",
    "instruction set",
    "Configuration",
];

/// Markup that would load something, or run.
const OUTSIDE: [&str; 6] = ["<script", " src=", "url(", "@import", "http://", "https://"];

/// A way of looking at the page.
struct View {
    name: &'static str,
    /// In pixels; headless browsers take no less than 500.
    width: u32,
    options: &'static [&'static str],
}

const VIEWS: [View; 4] = [
    View { name: "light", width: 1200, options: &[] },
    View { name: "dark", width: 1200, options: &["--blink-settings=preferredColorScheme=0"] },
    View { name: "medium", width: 800, options: &[] },
    View { name: "narrow", width: 500, options: &[] },
];

/// Appended to a copy of the page, to ask the browser how large the page is.
const MEASURE: &str = "<script>const e = document.documentElement; e.dataset.width = e.scrollWidth; e.dataset.height = e.scrollHeight</script>";

/// The largest page that is still a small attachment.
const BYTES_MAX: u64 = 1 << 20;

pub(crate) fn run(args: &[String]) -> Result<()> {
    if let Some(stray) = args.first() {
        bail!("report takes no arguments, but there is `{stray}`");
    }
    let workspace = Workspace::load()?;
    let browser = Browser::find(workspace.target_dir.join("report"))?;
    let demo_folder = browser.folder.join("demo");
    demo::run(&["--out".to_owned(), demo_folder.display().to_string(), "--force".to_owned()])?;
    let page = demo_folder.join("run/report.html");
    let html = std::fs::read_to_string(&page).with_context(|| format!("cannot read {}", page.display()))?;
    require_alone(&html)?;
    let copy = browser.folder.join("measured.html");
    std::fs::write(&copy, html.replace("</body>", &format!("{MEASURE}</body>")))?;
    for view in &VIEWS {
        let dom = browser.dom(&copy, view)?;
        require_texts(&dom)?;
        let [width, height] = ["width", "height"].map(|side| measured(&dom, side));
        let (width, height) = (width?, height?);
        if width > view.width {
            bail!("{}: the page is {width} pixels wide in a window of {}", view.name, view.width);
        }
        let picture = browser.picture(&page, view, height)?;
        println!("xtask: {}: no message on the console, all parts there: {}", view.name, picture.display());
    }
    Ok(())
}

/// Fails unless the page is small and needs nothing else.
fn require_alone(html: &str) -> Result<()> {
    if html.len() as u64 > BYTES_MAX {
        bail!("the page has {} bytes, more than {BYTES_MAX}", html.len());
    }
    match OUTSIDE.iter().find(|outside| html.contains(**outside)) {
        Some(outside) => bail!("the page has `{outside}` in it: it would load or run something"),
        None => Ok(()),
    }
}

fn require_texts(dom: &str) -> Result<()> {
    match TEXTS.iter().find(|text| !dom.contains(**text)) {
        Some(text) => bail!("the page does not say `{text}`"),
        None => Ok(()),
    }
}

/// The number that [`MEASURE`] left in the page.
fn measured(dom: &str, side: &str) -> Result<u32> {
    let rest =
        dom.split_once(&format!("data-{side}=\"")).with_context(|| format!("the browser ran no script: no {side}"))?.1;
    Ok(rest.split('"').next().unwrap_or_default().parse()?)
}

/// Chromium, and a folder for what it leaves.
struct Browser {
    program: &'static str,
    folder: PathBuf,
}

impl Browser {
    fn find(folder: PathBuf) -> Result<Self> {
        let runs = |program: &&str| {
            Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
        };
        let program = BROWSERS.into_iter().find(runs);
        let program =
            program.with_context(|| format!("no browser on the path; one of {} is needed", BROWSERS.join(", ")))?;
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Browser { program, folder })
    }

    /// The page's document after it was shown.
    ///
    /// # Errors
    /// Anything that the page wrote to the console.
    fn dom(&self, page: &Path, view: &View) -> Result<String> {
        let mut command = self.command(view, 2_000);
        command.args(["--enable-logging=stderr", "--dump-dom"]).arg(address(page)?);
        let output = command.output()?;
        if !output.status.success() {
            bail!("{} ended with {}", self.program, output.status);
        }
        let log = String::from_utf8_lossy(&output.stderr);
        let messages: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
        if !messages.is_empty() {
            bail!("{}: the console has messages:\n{}", view.name, messages.join("\n"));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn picture(&self, page: &Path, view: &View, height: u32) -> Result<PathBuf> {
        let picture = self.folder.join(format!("{}.png", view.name));
        let mut command = self.command(view, height);
        command.arg(format!("--screenshot={}", picture.display())).arg(address(page)?);
        succeed(command.stderr(std::process::Stdio::null()))?;
        Ok(picture)
    }

    fn command(&self, view: &View, height: u32) -> Command {
        let mut command = Command::new(self.program);
        // The page is our own, and root, as which containers run, cannot have a sandbox.
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
        command.arg(format!("--user-data-dir={}", self.folder.join("profile").display()));
        command.arg(format!("--window-size={},{height}", view.width)).args(view.options);
        command
    }
}

fn address(page: &Path) -> Result<String> {
    Ok(format!("file://{}", std::path::absolute(page)?.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_load_something_or_lack_something_are_refused() {
        assert!(require_alone("<p>text</p>").is_ok());
        for outside in OUTSIDE {
            assert!(require_alone(&format!("<p>{outside}</p>")).is_err(), "{outside}");
        }
        assert!(require_alone(&" ".repeat(BYTES_MAX as usize + 1)).is_err());
        let whole = TEXTS.join(" ");
        assert!(require_texts(&whole).is_ok());
        for text in TEXTS {
            assert!(require_texts(&whole.replace(text, "")).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_read_off_the_document() {
        let dom = "<html lang=\"en\" data-width=\"500\" data-height=\"9000\">";
        assert_eq!(measured(dom, "height").unwrap(), 9000);
        assert!(measured("<html>", "width").is_err());
    }
}
