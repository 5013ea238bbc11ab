//! True against predicted classes: accuracy by class, and confusion tables.

use megabatch_nn::loss::{Classes, Loss};

use super::chart::{Axis, Chart, Mark, Series, Size, Words};
use super::horizons::judged;
use super::html::{Section, Table, escape, paragraph, scrolling};
use crate::evaluate::Evaluation;
use crate::evaluate::forecasts::few_horizons;
use crate::text::number::{grouped, percent, plural};

/// Tables of more classes than these have a column for the most frequent mistake in place of one
/// for each class.
const COLUMNS_MAX: usize = 24;
/// A chart of more lines than these has two of the same colour.
const LINES_MAX: usize = 6;

/// Number of targets, or of rows, by true and by predicted class.
struct Confusion {
    /// Noun of a count.
    noun: &'static str,
    names: Vec<String>,
    /// `counts[true][predicted]`.
    counts: Vec<Vec<usize>>,
}

/// Section on the classes of `loss`, whose targets have this `unit`. `graph_classes` names the
/// classes of a file of graphs. None where numbers are predicted.
pub(crate) fn section(evaluation: &Evaluation, loss: Loss, unit: &str, graph_classes: &[String]) -> Option<Section> {
    let targets = evaluation.model.rmse.len();
    let mut body = String::new();
    if let Some(counts) = &evaluation.model.confusion {
        let is_named = graph_classes.len() == counts.len();
        let names = if is_named { graph_classes.to_vec() } else { numbered(counts.len()) };
        let confusion = Confusion { noun: evaluation.unit_names.row, names, counts: counts.clone() };
        body.push_str(&confusion.to_html("Confusion"));
    }
    let tasks: Vec<(String, Evaluation)> = evaluation.by_task().collect();
    let alone = [(String::new(), evaluation)];
    let parts = tasks.iter().map(|(name, task)| (name.clone(), task));
    let parts: Vec<(String, &Evaluation)> = if tasks.is_empty() { alone.into() } else { parts.collect() };
    for (group, (name, part)) in loss.groups(targets).into_iter().zip(parts) {
        let Loss::Classes(classes) = group.loss else { continue };
        if !name.is_empty() {
            body.push_str(&format!("<h3>{}</h3>", escape(&name)));
        }
        body.push_str(&target_tables(part, group.targets.start + 1, &class_names(classes, unit)));
    }
    let intro = paragraph(&format!(
        "{} Rows of a confusion table are true classes and columns predicted ones; percentages are of the row. Right predictions stand on the diagonal.",
        judged(evaluation),
    ));
    (!body.is_empty()).then(|| Section { id: "classes", title: "Classes", body: intro + &body })
}

/// Tables and charts of the targets of one loss, the first of which has the number `first`.
fn target_tables(part: &Evaluation, first: usize, names: &[String]) -> String {
    let Some(classes) = &part.model.classes else { return String::new() };
    let confusion = |counts: Vec<Vec<usize>>| Confusion { noun: "target", names: names.to_vec(), counts };
    let targets = &classes.confusion;
    if let [counts] = targets.as_slice() {
        return confusion(counts.clone()).to_html("Confusion");
    }
    let mut html = confusion(sum(targets)).to_html(&format!("Confusion, all {} targets together", targets.len()));
    if names.len() <= LINES_MAX {
        html.push_str(&accuracy_by_target(targets, first, names).to_html());
    }
    let each = few_horizons(targets.len()).into_iter().map(|k| {
        let caption = format!("Confusion of target {}", part.target_cell(k - 1, first + k - 1));
        let table = confusion(targets[k - 1].clone()).table(&caption);
        format!("<details><summary>{}</summary>\n{table}</details>\n", escape(&caption))
    });
    html.extend(each);
    html
}

/// Counts of all targets together.
fn sum(targets: &[Vec<Vec<usize>>]) -> Vec<Vec<usize>> {
    let mut all = targets[0].clone();
    for (row, own) in targets[1..].iter().flat_map(|counts| counts.iter().enumerate()) {
        all[row].iter_mut().zip(own).for_each(|(sum, count)| *sum += count);
    }
    all
}

/// Chart with a line for each class.
fn accuracy_by_target(targets: &[Vec<Vec<usize>>], first: usize, names: &[String]) -> Chart {
    let points = |class: usize| {
        let shares = targets.iter().enumerate().map(move |(k, counts)| {
            let row = &counts[class];
            ((first + k) as f64, row[class] as f64 / row.iter().sum::<usize>() as f64)
        });
        shares.filter(|point| point.1.is_finite()).collect()
    };
    let line = |(class, name): (usize, &String)| Series::new(name.clone(), Mark::Dots, class, points(class));
    Chart {
        words: Words::new(
            "Accuracy of each class by target",
            "Share of the targets of a class that were predicted. Higher is better. One line a class.",
        ),
        size: Size::Wide,
        x: Axis::count("target"),
        y: Axis::number("accuracy").with_zero(),
        series: names.iter().enumerate().map(line).collect(),
    }
}

impl Confusion {
    /// Both tables, the confusion under this caption.
    fn to_html(&self, caption: &str) -> String {
        self.accuracies().to_html() + &self.table(caption)
    }

    fn total(&self) -> usize {
        self.counts.iter().flatten().sum()
    }

    fn row_total(&self, class: usize) -> usize {
        self.counts[class].iter().sum()
    }

    /// Number of predictions of `class`.
    fn column_total(&self, class: usize) -> usize {
        self.counts.iter().map(|row| row[class]).sum()
    }

    /// Accuracy within each class.
    fn accuracies(&self) -> Table {
        let row = |(class, name): (usize, &String)| {
            let (truly, predicted, right) =
                (self.row_total(class), self.column_total(class), self.counts[class][class]);
            vec![
                name.clone(),
                grouped(truly as u64),
                share(truly, self.total()),
                grouped(predicted as u64),
                share(right, truly),
                share(right, predicted),
            ]
        };
        let head = ["class", "true", "share of all", "predicted", "accuracy (recall)", "precision"];
        let caption = format!("Accuracy by class, {}", plural(self.total(), self.noun));
        Table::new(caption, head, self.names.iter().enumerate().map(row))
    }

    fn table(&self, caption: &str) -> String {
        if self.names.len() > COLUMNS_MAX {
            return self.mistakes(caption).to_html();
        }
        let classes = self.names.len();
        let column = |name: &String| format!("<th scope=\"col\" class=\"n\">{}</th>", escape(name));
        let columns: String = self.names.iter().map(column).collect();
        let row = |(class, name): (usize, &String)| {
            let total = self.row_total(class);
            let cell = |&count: &usize| {
                let shade = 60.0 * count as f64 / total.max(1) as f64;
                format!(
                    "<td class=\"n\" style=\"--shade:{shade:.0}%\">{}<small>{}</small></td>",
                    grouped(count as u64),
                    share(count, total)
                )
            };
            let cells: String = self.counts[class].iter().map(cell).collect();
            format!(
                "<tr><th scope=\"row\">{}</th>{cells}<td class=\"n\">{}</td></tr>\n",
                escape(name),
                grouped(total as u64)
            )
        };
        let rows: String = self.names.iter().enumerate().map(row).collect();
        let predicted: String = (0..classes)
            .map(|class| format!("<td class=\"n\">{}</td>", grouped(self.column_total(class) as u64)))
            .collect();
        let total = grouped(self.total() as u64);
        scrolling(
            caption,
            &format!(
                "<table class=\"confusion\"><caption>{}</caption>\n<thead><tr><td></td><th scope=\"colgroup\" colspan=\"{classes}\">predicted class</th><td></td></tr>\n\
                 <tr><th scope=\"col\">true class</th>{columns}<th scope=\"col\" class=\"n\">all</th></tr></thead>\n<tbody>\n{rows}\
                 <tr><th scope=\"row\">all</th>{predicted}<td class=\"n\">{total}</td></tr>\n</tbody></table>",
                escape(caption)
            ),
        )
    }

    /// The most frequent mistake of each class.
    fn mistakes(&self, caption: &str) -> Table {
        let row = |(class, name): (usize, &String)| {
            let wrong = (0..self.names.len()).filter(|&other| other != class);
            let most = wrong.rev().max_by_key(|&other| self.counts[class][other]).unwrap_or(class);
            let (count, total) = (self.counts[class][most], self.row_total(class));
            let mistaken = if count > 0 { self.names[most].clone() } else { "-".to_owned() };
            vec![name.clone(), mistaken, grouped(count as u64), share(count, total)]
        };
        let head = ["true class", "predicted most often of the others", "times", "share of the class"];
        let caption = format!("{caption}: the most frequent mistake of each class");
        Table::new(caption, head, self.names.iter().enumerate().map(row))
    }
}

fn share(part: usize, whole: usize) -> String {
    if whole > 0 { percent(part as f64 / whole as f64) } else { "-".to_owned() }
}

/// Names of the classes of targets in `unit`.
fn class_names(classes: Classes, unit: &str) -> Vec<String> {
    match classes {
        Classes::Labels(count) => numbered(count),
        Classes::Thresholds(thresholds) => {
            let all = thresholds.as_slice();
            let between = all.windows(2).map(|pair| format!("{} to {} {unit}", pair[0], pair[1]));
            std::iter::once(format!("up to {} {unit}", all[0]))
                .chain(between)
                .chain(all.last().map(|last| format!("above {last} {unit}")))
                .collect()
        }
    }
}

/// Names of `count` classes that have none.
fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|class| format!("class {class}")).collect()
}

#[cfg(test)]
mod tests {
    use megabatch_nn::loss::Ascending;
    use megabatch_trainer::ClassErrors;

    use super::*;

    /// Counts of the pairs of true and predicted classes.
    fn counted(pairs: &[(usize, usize)], classes: usize) -> Vec<Vec<usize>> {
        let count = |truly, predicted| pairs.iter().filter(|&&pair| pair == (truly, predicted)).count();
        (0..classes).map(|truly| (0..classes).map(|predicted| count(truly, predicted)).collect()).collect()
    }

    /// An evaluation with these counts, a matrix a target.
    fn evaluation(confusion: Vec<Vec<Vec<usize>>>) -> Evaluation {
        let mut evaluation = Evaluation::with_one_horizon([("model", 1.0)]);
        let targets = confusion.len();
        evaluation.model.rmse = vec![0.5; targets];
        evaluation.model.classes = Some(Box::new(ClassErrors { confusion, ..ClassErrors::default() }));
        evaluation
    }

    fn thresholds() -> Loss {
        Loss::Classes(Classes::Thresholds(Ascending::new(&[-0.5, 0.5]).unwrap()))
    }

    #[test]
    fn tables_have_the_counts_of_true_and_predicted_classes() {
        let pairs = [(0, 0), (0, 0), (0, 2), (1, 1), (2, 0), (2, 2), (2, 2), (2, 2)];
        let html = section(&evaluation(vec![counted(&pairs, 3)]), thresholds(), "pips", &[]).unwrap().body;
        for part in [
            "Accuracy by class, 8 targets",
            // Three of class 0, of which two were predicted, in three predictions of it.
            "<th scope=\"row\">up to -0.5 pips</th><td class=\"n\">3</td><td class=\"n\">37.5 %</td><td class=\"n\">3</td><td class=\"n\">66.7 %</td><td class=\"n\">66.7 %</td>",
            "<th scope=\"row\">-0.5 to 0.5 pips</th><td class=\"n\">1</td>",
            "<th scope=\"row\">above 0.5 pips</th><td class=\"n\" style=\"--shade:15%\">1<small>25.0 %</small></td><td class=\"n\" style=\"--shade:0%\">0<small>0.0 %</small></td><td class=\"n\" style=\"--shade:45%\">3<small>75.0 %</small></td><td class=\"n\">4</td>",
            "<th scope=\"row\">all</th><td class=\"n\">3</td><td class=\"n\">1</td><td class=\"n\">4</td><td class=\"n\">8</td>",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
    }

    #[test]
    fn targets_are_counted_together_and_a_few_alone() {
        let targets = [[(0, 0), (1, 1)], [(0, 1), (1, 1)]].map(|pairs| counted(&pairs, 2)).to_vec();
        let mut evaluation = evaluation(targets);
        let html = section(&evaluation, Loss::Classes(Classes::Labels(2)), "pips", &[]).unwrap().body;
        for part in
            ["all 2 targets together", "Accuracy of each class by target", "<summary>Confusion of target 2</summary>"]
        {
            assert!(html.contains(part), "{part}: {html}");
        }
        let all = "<th scope=\"row\">class 0</th><td class=\"n\" style=\"--shade:30%\">1<small>50.0 %</small></td>";
        assert!(html.contains(all), "{html}");
        evaluation.target_names = ["up", "<down>"].map(str::to_owned).to_vec();
        let html = section(&evaluation, Loss::Classes(Classes::Labels(2)), "pips", &[]).unwrap().body;
        assert!(html.contains("<summary>Confusion of target 2 &lt;down&gt;</summary>"), "{html}");
    }

    #[test]
    fn rows_of_graphs_have_the_names_of_their_classes_and_numbers_have_no_section() {
        let mut graphs = Evaluation::with_one_horizon([("model", 1.0)]);
        assert!(section(&graphs, Loss::Mse, "", &[]).is_none());
        graphs.model.confusion = Some(counted(&[(0, 1), (1, 1)], 2));
        let html = section(&graphs, Loss::Mse, "", &["<ring>".to_owned(), "chain".to_owned()]).unwrap().body;
        assert!(html.contains("<th scope=\"row\">&lt;ring&gt;</th>") && html.contains(">chain</th>"), "{html}");
        let html = section(&graphs, Loss::Mse, "", &[]).unwrap().body;
        assert!(html.contains(">class 1</th>"), "{html}");
    }

    #[test]
    fn very_many_classes_have_their_most_frequent_mistake() {
        let pairs = [(3, 7), (3, 7), (3, 9), (5, 5)];
        let html =
            section(&evaluation(vec![counted(&pairs, 30)]), Loss::Classes(Classes::Labels(30)), "", &[]).unwrap().body;
        let row = "<th scope=\"row\">class 3</th><td>class 7</td><td class=\"n\">2</td><td class=\"n\">66.7 %</td>";
        assert!(html.contains(row) && !html.contains("class=\"confusion\""), "{html}");
    }
}
