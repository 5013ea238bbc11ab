//! `cargo xtask report`: the reports of a demo, of runs with attention, with graphs and with
//! classes, of several folds, and a comparison, checked in a real browser.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::demo;
use crate::limits::succeed;
use crate::workspace::Workspace;

const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// Texts that a reader must find on the demo's report.
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

/// Markup that would load a resource or run a script.
const OUTSIDE: [&str; 6] = ["<script", " src=", "url(", "@import", "http://", "https://"];

/// A view of the page.
struct View {
    name: &'static str,
    /// In pixels; headless browsers take no less than 500.
    width: u32,
    options: &'static [&'static str],
}

const VIEWS: [View; 4] = [
    View { name: "light", width: 1400, options: &[] },
    View { name: "dark", width: 1400, options: &["--blink-settings=preferredColorScheme=0"] },
    View { name: "medium", width: 800, options: &[] },
    View { name: "narrow", width: 600, options: &[] },
];

const TWO_VIEWS: &[View] =
    &[View { name: "light", width: 1400, options: &[] }, View { name: "narrow", width: 600, options: &[] }];

/// The top of the demo's report, which the README shows.
const README_VIEW: View = View { name: "readme", width: 1100, options: &[] };
const README_HEIGHT: u32 = 930;

/// Appended to a copy of the page, to ask the browser how large the page is, what it cuts off, and
/// in which order the Tab key goes through it.
const MEASURE: &str = include_str!("report/measure.html");

/// Starts of a browser until its window has the focus.
const STARTS_MAX: usize = 5;

/// The largest page that is still a small attachment.
const BYTES_MAX: u64 = 1 << 20;

/// A page that is checked.
struct Page {
    name: &'static str,
    /// Below the folder of the runs.
    file: &'static str,
    /// Texts that a reader must find on it.
    texts: &'static [&'static str],
    views: &'static [View],
}

const PAGES: &[Page] = &[
    Page { name: "report", file: "demo/run/report.html", texts: &TEXTS, views: &VIEWS },
    Page {
        name: "attention",
        file: "attention/report.html",
        texts: &["Where the model looks", "half of the weight on the last", "weight", "who looks"],
        views: TWO_VIEWS,
    },
    Page {
        name: "graph",
        file: "graph/report.html",
        texts: &["The graph of the last day", "gather from it", "Correlation by day", "Rank IC by day", "mean of 20"],
        views: TWO_VIEWS,
    },
    Page {
        name: "classes",
        file: "classes/report.html",
        texts: &[
            "Accuracy by class",
            "Confusion, all 36 targets together",
            "Accuracy of each class by target",
            "above 2 pips",
            "predicted class",
        ],
        views: &VIEWS,
    },
    Page {
        name: "folds",
        file: "folds/report.html",
        texts: &["Walk-forward evaluation", "Errors on the test of each fold", "Fold by fold"],
        views: TWO_VIEWS,
    },
    Page {
        name: "comparison",
        file: "comparison.html",
        texts: &["Settings that differ", "Learning curves", "Error by horizon", "Time by phase"],
        views: TWO_VIEWS,
    },
];

/// Commands that make the pages beside the demo's, each in the folder of the runs.
const COMMANDS: [&str; 9] = [
    "train --data demo/series.h5 --out attention --set training.epochs=2 --set model.hidden=16 --set training.lr=0.003 --set model.pooling=attention \
     --set model.fusion=attention",
    "train --data demo/series.h5 --out classes --set training.epochs=2 --set model.hidden=16 --set training.lr=0.003 --set training.loss=cross_entropy \
     --set training.thresholds=[-2,2]",
    "train --data demo/series.h5 --out folds --set training.epochs=1 --set model.hidden=8 --set data.walk_forward=3",
    "synth shares --shares 40 --days 500",
    "ingest shares --out shares.h5 --timeframes D1:10 --features log_return,range --target log_return --horizon 3",
    "graph build shares --kind correlation --lookback 30 --k 4 --out shares.mbg",
    "train --data shares.h5 --out graph --set model.graph=shares.mbg --set model.hidden=8 --set model.graph_hidden=8 --set training.epochs=3 \
     --set gpu_optimization.batch_size=8",
    "compare demo/run attention --out comparison.html",
    "compare demo/run attention",
];

pub(crate) fn run(args: &[String]) -> Result<()> {
    if let Some(stray) = args.first() {
        bail!("report takes no arguments, but there is `{stray}`");
    }
    let workspace = Workspace::load()?;
    let browser = Browser::find(workspace.target_dir.join("report"))?;
    let runs = browser.folder.join("runs");
    if runs.exists() {
        std::fs::remove_dir_all(&runs).with_context(|| format!("cannot remove {}", runs.display()))?;
    }
    std::fs::create_dir_all(&runs)?;
    demo::run(&["--out".to_owned(), runs.join("demo").display().to_string(), "--force".to_owned()])?;
    for command in COMMANDS {
        println!("xtask: megabatch {}", command.split_whitespace().collect::<Vec<_>>().join(" "));
        let mut megabatch = Command::new(workspace.binary());
        succeed(megabatch.args(command.split_whitespace()).current_dir(&runs).stdout(std::process::Stdio::null()))?;
    }
    PAGES.iter().try_for_each(|page| look(&browser, &runs, page))?;
    let picture = browser.picture(&runs.join(PAGES[0].file), PAGES[0].name, &README_VIEW, README_HEIGHT)?;
    println!("xtask: the README's picture, docs/guide/images/report.png: {}", picture.display());
    Ok(())
}

/// Shows `page` in each of its views, and takes a picture of it.
fn look(browser: &Browser, runs: &Path, page: &Page) -> Result<()> {
    let Page { name, file, texts, views } = page;
    let path = runs.join(file);
    let html = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    require_alone(&html).with_context(|| (*name).to_owned())?;
    let copy = browser.folder.join("measured.html");
    std::fs::write(&copy, html.replace("</body>", &format!("{MEASURE}</body>")))?;
    for view in *views {
        let dom = browser.focused_dom(&copy, view)?;
        require_texts(&dom, texts).with_context(|| (*name).to_owned())?;
        let [width, height] = ["width", "height"].map(|side| measured::<u32>(&dom, side));
        let (width, height) = (width?, height?);
        if width > view.width {
            bail!("{name}, {}: the page is {width} pixels wide in a window of {}", view.name, view.width);
        }
        let shown = || format!("{name}, {}", view.name);
        require_whole(&measured::<String>(&dom, "cut")?).with_context(shown)?;
        require_order(&measured::<String>(&dom, "order")?).with_context(shown)?;
        let picture = browser.picture(&path, name, view, height)?;
        println!("xtask: {name}, {}: no message on the console, all parts there: {}", view.name, picture.display());
    }
    Ok(())
}

/// Fails if a part of the page cannot be seen at this width, and not be scrolled to either. `cut`
/// is what [`MEASURE`] found: `nothing`, or what is cut off.
fn require_whole(cut: &str) -> Result<()> {
    match cut {
        "nothing" => Ok(()),
        parts => bail!("cut off or on top of each other: {parts}"),
    }
}

/// Fails unless the Tab key reaches everything in the order in which it stands on the page, the way
/// past the contents list first, and each shows that it is reached. `order` is what [`MEASURE`]
/// found: `ok`, or what is wrong.
fn require_order(order: &str) -> Result<()> {
    match order {
        "ok" => Ok(()),
        wrong => bail!("by keyboard: {wrong}"),
    }
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

fn require_texts(dom: &str, texts: &[&str]) -> Result<()> {
    match texts.iter().find(|text| !dom.contains(**text)) {
        Some(text) => bail!("the page does not say `{text}`"),
        None => Ok(()),
    }
}

/// Value that [`MEASURE`] left in the page.
fn measured<T: std::str::FromStr>(dom: &str, side: &str) -> Result<T>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
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

    /// The page's document after it was shown in a window with the focus. On a loaded machine, a
    /// browser may start without it.
    fn focused_dom(&self, page: &Path, view: &View) -> Result<String> {
        for _ in 0..STARTS_MAX {
            let dom = self.dom(page, view)?;
            if measured(&dom, "focus")? {
                return Ok(dom);
            }
        }
        bail!("{}: {} had no focus in {STARTS_MAX} starts", view.name, self.program)
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

    fn picture(&self, page: &Path, name: &str, view: &View, height: u32) -> Result<PathBuf> {
        let picture = self.folder.join(format!("{name}-{}.png", view.name));
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
        assert!(require_texts(&whole, &TEXTS).is_ok());
        for text in TEXTS {
            assert!(require_texts(&whole.replace(text, ""), &TEXTS).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_read_off_the_document() {
        let dom = "<html lang=\"en\" data-width=\"500\" data-height=\"9000\" data-cut=\"nothing\" data-order=\"ok\">";
        assert_eq!(measured::<u32>(dom, "height").unwrap(), 9000);
        assert!(measured::<u32>("<html>", "width").is_err());
        assert!(require_order(&measured::<String>(dom, "order").unwrap()).is_ok());
        assert!(require_whole(&measured::<String>(dom, "cut").unwrap()).is_ok());
        assert!(require_whole("table Settings, 40 pixels").is_err());
        assert!(require_order("the 3rd is reached before the 2nd").is_err());
    }
}
