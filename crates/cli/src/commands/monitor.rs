//! `megabatch monitor`: how a run does, while it trains and afterwards.

mod prometheus;
mod screen;

use std::io::IsTerminal as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use megabatch_run::monitor::MonitoredRun;
use megabatch_run::{Context as _, Result};
use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::Rect;

use self::screen::Life;
use crate::answer::{Answer, Form};

/// Interval of looks at the log.
const INTERVAL: Duration = Duration::from_millis(500);
/// Columns and rows of a screen that is printed.
const PRINTED: (u16, u16) = (100, 30);

/// Follow a run: loss, speed, time left, waiting for data, memory, warnings
///
/// Reads only the run folder, so it can start and end at any time, on a running or finished run,
/// here or on a shared disk. q quits. If standard output is not a terminal, one screen is printed.
/// A walk-forward run is shown by its last started fold.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch monitor runs/first
  megabatch monitor runs/first --once
  megabatch monitor runs/first --json
  megabatch monitor runs/first --prometheus 127.0.0.1:9464")]
pub(crate) struct Args {
    /// Folder of the run
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Print one screen and end
    #[arg(long)]
    once: bool,
    /// Also answer GET /metrics at this address in the text format of Prometheus; without a
    /// terminal, do only that, until ended
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "once")]
    prometheus: Option<String>,
}

pub(crate) fn run(args: &Args, form: Form) -> Result<Answer> {
    let mut monitored = MonitoredRun::open(&args.run)?;
    let listener = args.prometheus.as_deref().map(prometheus::listen).transpose()?;
    let has_screen = std::io::stdout().is_terminal() && !args.once && form == Form::Text;
    match (listener, has_screen) {
        (Some(listener), false) => return Err(prometheus::serve(&listener, monitored)),
        (listener, true) => {
            serve_beside(listener, &args.run)?;
            let mut terminal = ratatui::try_init().context("the terminal cannot show a screen; --once prints one")?;
            let shown = show(&mut terminal, &mut monitored);
            ratatui::try_restore()?;
            shown?;
            return Ok(Answer::new(monitored.sentence(), &monitored.to_json()));
        }
        (None, false) => {}
    }
    monitored.refresh()?;
    Ok(Answer::new(printed(&monitored), &monitored.to_json()))
}

/// Answers on a thread of its own, which reads the log for itself and ends with the program.
fn serve_beside(listener: Option<TcpListener>, run: &Path) -> Result<()> {
    let Some(listener) = listener else { return Ok(()) };
    let monitored = MonitoredRun::open(run)?;
    let serve = move || prometheus::serve(&listener, monitored);
    std::thread::Builder::new().name("prometheus".to_owned()).spawn(serve)?;
    Ok(())
}

/// The screen until the user has had enough of it.
fn show(terminal: &mut DefaultTerminal, monitored: &mut MonitoredRun) -> Result<()> {
    loop {
        monitored.refresh()?;
        let (name, status) = (monitored.name(), &monitored.status);
        terminal.draw(|frame| screen::draw(name, status, Life::UntilKey, frame.area(), frame.buffer_mut()))?;
        if event::poll(INTERVAL)? && ends(&event::read()?) {
            return Ok(());
        }
    }
}

/// True if a key was struck that ends the screen: the terminal hands Ctrl-C over as any other.
fn ends(event: &Event) -> bool {
    let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else { return false };
    match code {
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => true,
        KeyCode::Char('c') => modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}

/// The screen as plain text.
fn printed(monitored: &MonitoredRun) -> String {
    let area = Rect::new(0, 0, PRINTED.0, PRINTED.1);
    let mut buffer = Buffer::empty(area);
    screen::draw(monitored.name(), &monitored.status, Life::Printed, area, &mut buffer);
    screen::to_text(&buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_escape_and_control_c_end_the_screen() {
        let key = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
        for (event, expected) in [
            (key(KeyCode::Char('q'), KeyModifiers::NONE), true),
            (key(KeyCode::Esc, KeyModifiers::NONE), true),
            (key(KeyCode::Char('c'), KeyModifiers::CONTROL), true),
            (key(KeyCode::Char('c'), KeyModifiers::NONE), false),
            (Event::Resize(10, 10), false),
        ] {
            assert_eq!(ends(&event), expected, "{event:?}");
        }
    }
}
