//! The screen: a pure function of what is known of a run.

use megabatch_run::monitor::RunStatus;
use megabatch_run::text::bytes;
use megabatch_run::text::number::{fixed, grouped, percent, seconds, significant};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{
    Axis, Block, Chart, Dataset, GraphType, LegendPosition, LineGauge, Paragraph, Widget as _, Wrap,
};

/// Columns of the numbers beside the loss.
const NUMBERS_WIDTH: u16 = 37;
/// Width of the names in them.
const NAME_WIDTH: usize = 11;
/// Rows of the warnings, with their frame, and on a screen of few rows.
const WARNINGS_HEIGHT: u16 = 7;
const WARNINGS_HEIGHT_LOW: u16 = 4;
/// Rows below which a screen has few.
const LOW: u16 = 30;
/// Training losses are shown as so many means: a terminal has no more columns of dots.
const MEANS: usize = 200;
/// Columns of the share in percent, and of the gap before it.
const GAUGE_WIDTH_MIN: usize = 9;
/// Losses of runs that explode are drawn no larger: the distance of two of them, in dots, has to be
/// a number.
const LOSS_MAX: f64 = 1e100;

/// Life of a screen.
#[derive(Clone, Copy)]
pub(super) enum Life {
    /// Until a key ends it.
    UntilKey,
    /// Printed once.
    Printed,
}

/// Draws the run called `name` into an area.
pub(super) fn draw(name: &str, status: &RunStatus, life: Life, area: Rect, buffer: &mut Buffer) {
    let warnings_height = if area.height < LOW { WARNINGS_HEIGHT_LOW } else { WARNINGS_HEIGHT };
    let rows = [Constraint::Length(2), Constraint::Min(8), Constraint::Length(warnings_height)];
    let [head, middle, foot] = Layout::vertical(rows).areas(area);
    draw_head(name, status, life, head, &mut *buffer);
    let [left, right] = Layout::horizontal([Constraint::Min(20), Constraint::Length(NUMBERS_WIDTH)]).areas(middle);
    draw_losses(status, left, &mut *buffer);
    let mut numbers = numbers(status);
    // Blank lines between groups give way before numbers do.
    if numbers.len() + 2 > usize::from(middle.height) {
        numbers.retain(|(name, _)| !name.is_empty());
    }
    let numbers = numbers.into_iter().map(|(name, value)| Line::raw(format!("{name:<NAME_WIDTH$} {value}")));
    Paragraph::new(numbers.collect::<Vec<_>>()).block(Block::bordered().title(" now ")).render(right, buffer);
    draw_warnings(status, foot, buffer);
}

/// Screen as lines without colours.
pub(super) fn to_text(buffer: &Buffer) -> String {
    let Rect { width, height, .. } = buffer.area;
    let row = |y: u16| {
        let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        line.trim_end().to_owned() + "\n"
    };
    (0..height).map(row).collect()
}

fn draw_head(name: &str, status: &RunStatus, life: Life, area: Rect, buffer: &mut Buffer) {
    let (title, standing) = titles(name, status, life, usize::from(area.width));
    let [first, second] = Layout::vertical([Constraint::Length(1), Constraint::Length(1)]).areas(area);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    Line::styled(title, bold).render(first, buffer);
    let columns = standing.as_ref().map_or(0, |text| text.chars().count() as u16 + 2);
    let [left, gauge] = Layout::horizontal([Constraint::Length(columns), Constraint::Min(0)]).areas(second);
    Line::styled(standing.unwrap_or_default(), bold).render(left, buffer);
    let share = status.progress().unwrap_or(0.0).clamp(0.0, 1.0);
    LineGauge::default().ratio(share).label(percent(share)).filled_style(Color::Cyan).render(gauge, buffer);
}

/// The run's name, its progress and how it stands, if they fit into `width` characters; else how it
/// stands is a text of its own, for the line of the gauge.
fn titles(name: &str, status: &RunStatus, life: Life, width: usize) -> (String, Option<String>) {
    let (progress, standing) = (progress_by_length(status), standing_by_length(status, life));
    let whole: Vec<&str> = progress.first().into_iter().chain(standing.first()).map(String::as_str).collect();
    let line = format!("{name}: {}", whole.join("; "));
    if line.chars().count() <= width {
        return (line, None);
    }
    let progress = fitting(&progress, width).unwrap_or_default();
    // The run's name gives way before its progress.
    let room = width.saturating_sub(progress.chars().count() + 2);
    let name = match name.chars().count() {
        length if length <= room => format!("{name}: "),
        length if room > 4 => format!("…{}: ", name.chars().skip(length + 1 - room).collect::<String>()),
        _ => String::new(),
    };
    (name + progress, fitting(&standing, width.saturating_sub(GAUGE_WIDTH_MIN)).map(str::to_owned))
}

/// Fold, step and epoch, and shorter forms for narrow screens.
fn progress_by_length(status: &RunStatus) -> Vec<String> {
    let fold = status.fold.map_or_else(String::new, |(number, folds)| format!("fold {number} of {folds}, "));
    let Some(step) = status.get("step") else { return vec![format!("{fold}no step yet")] };
    let steps = status.get("steps").map_or_else(String::new, |steps| format!(" of {}", grouped(steps as u64)));
    let epoch = status.get("epoch").unwrap_or(0.0) as u64 + 1;
    let step = format!("step {}", grouped(step as u64));
    vec![format!("{fold}{step}{steps}, epoch {epoch}"), format!("{fold}{step}{steps}"), format!("{step}{steps}"), step]
}

/// The time left, how long the run is silent and the key that ends the screen, and shorter forms
/// for narrow screens. Empty if there is nothing to say.
fn standing_by_length(status: &RunStatus, life: Life) -> Vec<String> {
    let key = match life {
        Life::UntilKey => Some("q ends".to_owned()),
        Life::Printed => None,
    };
    let left = status.get("step").map(|_| status.remaining());
    let silence = status.silence.filter(|_| left.is_some() && !status.is_over());
    let silence = silence.map(|silence| format!("silent {}", seconds(silence.as_secs_f64().round())));
    let parts: Vec<String> = left.into_iter().chain(silence).chain(key).collect();
    (1..=parts.len()).rev().map(|count| parts[..count].join("; ")).collect()
}

/// The first of the texts, longest first, with at most `width` characters; the last if none has.
fn fitting(by_length: &[String], width: usize) -> Option<&str> {
    let fits = by_length.iter().find(|text| text.chars().count() <= width);
    fits.or(by_length.last()).map(String::as_str)
}

/// The range of most losses: a few spikes run out of the picture rather than flatten the curve.
fn usual_range(values: &[f64]) -> [f64; 2] {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let (Some(&low), Some(&high)) = (sorted.first(), sorted.last()) else { return [-0.5, 0.5] };
    let most = sorted[(sorted.len() - 1) * 19 / 20];
    let high = if sorted.len() >= 20 { high.min(most + 2.0 * (most - low).max(most.abs() * 0.05)) } else { high };
    if low < high { [low, high] } else { [low - 0.5, high + 0.5] }
}

fn draw_losses(status: &RunStatus, area: Rect, buffer: &mut Buffer) {
    let (training, validations) = (drawable(&status.losses), drawable(&status.validations));
    let block = Block::bordered().title(" loss by step ");
    let all = || training.iter().chain(&validations).copied();
    let range = |values: &mut dyn Iterator<Item = f64>| {
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        if low < high { [low, high] } else { [low - 0.5, high + 0.5] }
    };
    if all().next().is_none() {
        return Paragraph::new("nothing to show yet").block(block).render(area, buffer);
    }
    let x = range(&mut all().map(|point| point.0));
    let y = usual_range(&all().map(|point| point.1).collect::<Vec<_>>());
    let dataset = |name: &'static str, points, (marker, kind, color): (Marker, GraphType, Color)| {
        Dataset::default().name(name).marker(marker).graph_type(kind).style(color).data(points)
    };
    let datasets = vec![
        dataset("training", &training[..], (Marker::Braille, GraphType::Line, Color::Cyan)),
        dataset("validation", &validations[..], (Marker::Dot, GraphType::Scatter, Color::Yellow)),
    ];
    let labels = |[low, high]: [f64; 2], text: fn(f64) -> String| [low, (low + high) / 2.0, high].map(text);
    Chart::new(datasets)
        .block(block)
        .legend_position(Some(LegendPosition::TopRight))
        .x_axis(Axis::default().bounds(x).labels(labels(x, |step| grouped(step as u64))))
        .y_axis(Axis::default().bounds(y).labels(labels(y, |loss| significant(loss, 4))))
        .render(area, buffer);
}

/// Names and values of the numbers beside the loss.
fn numbers(status: &RunStatus) -> Vec<(&'static str, String)> {
    let number = |key: &str, text: fn(f64) -> String| status.get(key).map_or("-".to_owned(), text);
    let size = |key: &str| number(key, |size| bytes(size as usize));
    let share = |key: &str| status.percent_of(key).unwrap_or_else(|| "-".to_owned());
    let best = status
        .best()
        .map_or("-".to_owned(), |(step, loss)| format!("{}, step {}", significant(loss, 5), grouped(step as u64)));
    let mut numbers = vec![
        ("loss", number("loss", |loss| significant(loss, 5))),
        ("validation", number("validation_loss", |loss| significant(loss, 5))),
        ("  best", best),
        ("rate", number("learning_rate", |rate| significant(rate, 3))),
        ("grad norm", number("grad_norm", |norm| significant(norm, 3))),
    ];
    numbers.extend(status.get("loss_scale").map(|scale| ("loss scale", significant(scale, 1))));
    numbers.extend([
        ("", String::new()),
        ("speed", number("samples_per_second", |rate| format!("{} samples/s", fixed(rate, 0)))),
        ("computing", format!("{} of the step", share("computing_ratio"))),
        ("data wait", format!("{} of the step", share("data_wait_ratio"))),
    ]);
    if let Some(gpu) = status.gpu {
        let power = number("gpu_power_watts", |power| format!("{} W", fixed(power, 0)));
        let heat = number("gpu_temperature_celsius", |celsius| format!("{} °C", fixed(celsius, 0)));
        let whole = gpu.memory_total_bytes.map_or(String::new(), |total| format!(" of {}", bytes(total as usize)));
        numbers.extend([
            ("gpu busy", format!("{} of the time", share("gpu_busy_ratio"))),
            ("  power", format!("{power}, {heat}")),
            ("  memory", size("gpu_memory_used_bytes") + &whole),
        ]);
    }
    numbers.extend([
        ("", String::new()),
        ("allocated", size("allocated_bytes")),
        ("  peak", size("allocated_bytes_peak")),
        ("reserved", size("reserved_bytes")),
        ("free", size("free_bytes")),
    ]);
    numbers
}

fn draw_warnings(status: &RunStatus, area: Rect, buffer: &mut Buffer) {
    let title = format!(" warnings: {} ", status.warnings_total);
    let lines = status.warnings.iter().rev().map(|(step, text)| Line::raw(format!("step {}: {text}", grouped(*step))));
    let style = if status.warnings.is_empty() { Style::new() } else { Style::new().fg(Color::Yellow) };
    let block = Block::bordered().title(title).border_style(style);
    Paragraph::new(lines.collect::<Vec<_>>()).wrap(Wrap { trim: true }).block(block).render(area, buffer);
}

/// Points that a picture has room for.
fn drawable(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let within = points.iter().map(|&(step, loss)| (step, loss.clamp(-LOSS_MAX, LOSS_MAX)));
    means(&within.collect::<Vec<_>>(), MEANS)
}

/// The points where they are few; else the means of so many neighbourhoods.
fn means(points: &[(f64, f64)], count: usize) -> Vec<(f64, f64)> {
    if points.len() <= count {
        return points.to_vec();
    }
    let mean = |group: &[(f64, f64)]| {
        let sum = group.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        (sum.0 / group.len() as f64, sum.1 / group.len() as f64)
    };
    points.chunks(points.len().div_ceil(count)).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use megabatch_run::monitor::fixtures::{epoch, gpu, seen, step, validation};
    use ratatui::backend::TestBackend;
    use ratatui::{Frame, Terminal};
    use serde_json::json;

    use super::*;

    /// Screen of a terminal of this size.
    fn shown(status: &RunStatus, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let draw = |frame: &mut Frame<'_>| {
            draw("runs/first", status, Life::UntilKey, frame.area(), frame.buffer_mut());
        };
        terminal.draw(draw).unwrap();
        to_text(terminal.backend().buffer())
    }

    #[test]
    fn a_run_under_way_is_shown_with_all_its_numbers() {
        let warning = json!({ "event": "waiting", "step": 3, "share": 0.5, "cause": "disk", "cause_share": 0.4 });
        let lines = [step(1, 4.0), step(2, 2.0), validation(2, 3.0), epoch(2), step(3, 1.0), warning];
        let mut status = seen(&lines);
        (status.available_bytes, status.silence) = (Some(1e9), Some(Duration::from_millis(2_400)));
        let text = shown(&status, 100, 30);
        for part in [
            "runs/first: step 3 of 10, epoch 1; 5.83 s left; silent 2.00 s; q ends",
            "30.0 %",
            "loss by step",
            "loss        1.0000",
            "validation  3.0000",
            "best      3.0000, step 2",
            "rate        0.00100",
            "speed       20 samples/s",
            "computing   50.0 % of the step",
            "data wait   25.0 % of the step",
            "allocated   300 MB",
            "reserved    400 MB",
            "free        600 MB",
            "warnings: 1",
            "step 3: steps wait for data for 50.0 % of their time, 40.0 % for disk",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        status.fold = Some((2, 5));
        let folded = shown(&status, 100, 30);
        let head = "fold 2 of 5, step 3 of 10, epoch 1; 5.83 s left of the fold; silent 2.00 s; q ends";
        assert!(folded.contains(head), "{folded}");
        status.fold = None;
        assert!(!text.contains("loss scale"), "only fp16 has one:\n{text}");
        assert!(!text.contains("gpu busy"), "only a run on one has it:\n{text}");
        status.gpu = Some(gpu(43.0));
        let text = shown(&status, 100, 30);
        for part in [
            "gpu busy    43.0 % of the time",
            "  power     351 W, 61 °C",
            "  memory    3.00 GB of 80.0 GB",
            "free        600 MB",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        let mut line = step(4, 1.0);
        line["loss_scale"] = 1024.0.into();
        assert!(shown(&seen(&[line]), 100, 30).contains("loss scale  1,024"));
    }

    #[test]
    fn runs_that_have_not_begun_and_that_have_ended_are_shown() {
        let text = shown(&RunStatus::default(), 80, 24);
        assert!(text.contains("runs/first: no step yet") && text.contains("nothing to show yet"), "{text}");
        let mut status = seen(&[step(10, 1.0)]);
        (status.has_ended, status.silence) = (true, Some(Duration::from_secs(9)));
        let text = shown(&status, 80, 24);
        assert!(text.contains("step 10 of 10, epoch 1; ended; q ends") && text.contains("100.0 %"), "{text}");
        let mut status = seen(&[step(3, 1.0), json!({ "event": "end", "step": 3, "how": "stopped" })]);
        status.silence = Some(Duration::from_secs(9));
        let text = shown(&status, 80, 24);
        assert!(text.contains("step 3 of 10, epoch 1; stopped; --resume goes on; q ends"), "{text}");
    }

    /// One spike flattened the curve, a killed run had a time left, and 60 columns cut off how the
    /// run stands.
    #[test]
    fn spikes_silence_and_narrow_screens_hide_nothing() {
        let losses: Vec<f64> = (0..100).map(|k| if k == 50 { 1e6 } else { 2.0 - f64::from(k) * 0.01 }).collect();
        let [low, high] = usual_range(&losses);
        assert!(low == 1.01 && high < 5.0, "{low} {high}");
        assert_eq!((usual_range(&[1.0, 9.0]), usual_range(&[])), ([1.0, 9.0], [-0.5, 0.5]));
        let mut status = seen(&[step(1, 4.0), step(3, 1.0)]);
        status.silence = Some(Duration::from_secs(9));
        let text = shown(&status, 60, 24);
        assert!(text.lines().nth(1).unwrap().contains("silent 9.00 s; q ends  30.0 %"), "{text}");
        status.silence = Some(Duration::from_secs(900));
        let text = shown(&status, 100, 24);
        assert!(text.contains("no longer running, or stalled") && !text.contains(" left;"), "{text}");
    }

    /// At 60 columns and 24 rows, long runs lost the time left, and runs on a GPU their last
    /// numbers.
    #[test]
    fn a_small_screen_has_every_number() {
        let mut last = step(1_234_567, 1.0);
        (last["steps"], last["epoch"], last["loss_scale"]) = (9_876_543.into(), 122.into(), 1024.0.into());
        let mut status = seen(&[validation(1_234_000, 0.123_456), epoch(1_234_000), last]);
        (status.available_bytes, status.silence, status.gpu) =
            (Some(1e9), Some(Duration::from_secs(9)), Some(gpu(43.0)));
        let text = shown(&status, 60, 24);
        let head = text.lines().next().unwrap();
        assert!(head.starts_with("runs/first: step 1,234,567 of 9,876,543, epoch "), "{text}");
        assert!(text.lines().nth(1).unwrap().contains(" left; silent 9.00 s; q ends  12.5 %"), "{text}");
        for part in
            ["0.12346, step 1,234,000", "351 W, 61 °C", "50.0 % of the step", "loss scale", "free        600 MB"]
        {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    /// At 60 columns the head lost the run's name, the epoch, the silence and the key.
    #[test]
    fn the_head_has_every_field_on_narrow_and_wide_screens() {
        let mut status = seen(&[step(1, 4.0), step(3, 1.0)]);
        (status.fold, status.silence) = (Some((2, 5)), Some(Duration::from_secs(9)));
        for (width, is_folded) in [(60, true), (100, false)] {
            let text = shown(&status, width, 24);
            let head: Vec<&str> = text.lines().take(2).collect();
            assert!(head.iter().all(|line| line.chars().count() <= usize::from(width)), "{text}");
            let progress = "runs/first: fold 2 of 5, step 3 of 10, epoch 1";
            let standing = format!("{}; silent 9.00 s; q ends", status.remaining());
            let expected = match is_folded {
                true => [progress.to_owned(), format!("{standing}  30.0 %")],
                false => [format!("{progress}; {standing}"), "30.0 %".to_owned()],
            };
            assert_eq!(head[0], expected[0], "{text}");
            assert!(head[1].starts_with(&expected[1]), "{text}");
        }
    }

    #[test]
    fn a_screen_of_any_size_is_drawn() {
        let status = seen(&[step(1, f64::MAX), step(2, -1.0), validation(2, 0.0), epoch(2)]);
        for size in [(1, 1), (3, 40), (200, 2), (39, 9), (250, 80)] {
            shown(&status, size.0, size.1);
            shown(&RunStatus::default(), size.0, size.1);
        }
    }

    #[test]
    fn the_curve_falls_with_the_loss() {
        let lines: Vec<_> = (1..=400).map(|at| step(at, 400.0 - at as f64)).collect();
        let text = shown(&seen(&lines), 100, 30);
        let rows: Vec<&str> = text.lines().collect();
        let first = |row: &str| row.chars().position(|c| ('\u{2801}'..='\u{28ff}').contains(&c));
        let firsts: Vec<usize> = rows.iter().filter_map(|row| first(row)).collect();
        assert!(firsts.len() > 10 && firsts.is_sorted(), "{firsts:?}\n{text}");
    }

    #[test]
    fn many_losses_are_shown_as_means() {
        let points: Vec<(f64, f64)> = (0..1000).map(|k| (f64::from(k), f64::from(k % 10))).collect();
        let means = means(&points, 100);
        assert_eq!((means.len(), means[0], means[99]), (100, (4.5, 4.5), (994.5, 4.5)));
    }
}
