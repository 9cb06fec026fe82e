//! The report of a guard: a line for each case, a summary, and the same as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use super::counts::Count;
use super::pairs::Judged;
use super::verdict::{Series, Verdict};
use crate::stats::Summary;

/// A line of the report.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) verdict: Verdict,
    text: String,
    json: Value,
}

/// The line above all others.
pub(super) fn heading() -> String {
    format!(
        "{:<32}{:<10}{:>12}{:>12}{:>8}{:>8}{:>9}{:>7}{:>6}  verdict",
        "case", "judged by", "old", "new", "ratio", "worse", "others %", "steal", "s"
    )
}

impl Line {
    /// Of a case that was measured in pairs.
    pub(super) fn of_pairs(name: &str, judged: &Judged, took: Duration) -> Self {
        let judged_by = format!("{} {}", judged.metric, judged.unit);
        let numbers = judged.series.last().map(numbers).unwrap_or_default();
        let verdict = judged.verdict.text();
        let text =
            format!("{name:<32}{:<10}{numbers:<56}{:>6.0}  {verdict}", judged_by.trim(), took.as_secs_f64());
        let [old, new] = &judged.denied;
        let json = json!({
            "case": name,
            "metric": judged.metric,
            "unit": judged.unit,
            "seconds": took.as_secs_f64(),
            "series": judged.series.iter().map(series).collect::<Vec<_>>(),
            "denied": { "old": old, "new": new },
            "verdict": judged.verdict.word(),
            "text": verdict,
        });
        Self { name: name.to_owned(), verdict: judged.verdict.clone(), text, json }
    }

    /// Of something that was counted.
    pub(super) fn of_count(count: &Count) -> Self {
        let cell = |value: Option<f64>| {
            value.map_or(String::new(), |value| format!("{value:.decimals$}", decimals = decimals(value)))
        };
        let [old, new] = count.values;
        let ratio = old.zip(new).filter(|(old, _)| *old > 0.0).map(|(old, new)| new / old);
        let verdict = count.verdict.text();
        let text = format!(
            "{:<32}{:<10}{:>12}{:>12}{:>8}{:>30}  {verdict}",
            count.name,
            count.unit,
            cell(old),
            cell(new),
            ratio.map_or(String::new(), |ratio| format!("{ratio:.3}")),
            "",
        );
        let json = json!({
            "case": count.name,
            "unit": count.unit,
            "old": old,
            "new": new,
            "verdict": count.verdict.word(),
            "text": verdict,
        });
        Self { name: count.name.clone(), verdict: count.verdict.clone(), text, json }
    }

    /// Of a case that only one tree has.
    pub(super) fn only_in(name: &str, tree: &'static str) -> Self {
        let verdict = Verdict::OnlyIn(tree);
        let text = format!("{name:<32}{}", verdict.text());
        let json = json!({ "case": name, "verdict": verdict.word(), "text": verdict.text() });
        Self { name: name.to_owned(), verdict, text, json }
    }

    pub(super) fn print(&self) {
        println!("{}", self.text);
    }
}

/// Medians, ratio, pairs and noise of a series.
fn numbers(series: &Series) -> String {
    let [old, new] = [&series.old, &series.new].map(|values| Summary::of(values).median);
    let worse = format!("{}/{}", series.worse(), series.old.len());
    let decimals = decimals(old);
    format!(
        "{old:>12.decimals$}{new:>12.decimals$}{:>8.3}{worse:>8}{:>9.1}{:>7.1}",
        series.ratio(),
        series.noise.others,
        series.noise.steal
    )
}

fn decimals(value: f64) -> usize {
    if value < 1.0 {
        4
    } else if value < 100.0 {
        2
    } else {
        1
    }
}

fn series(series: &Series) -> Value {
    json!({
        "old": series.old,
        "new": series.new,
        "ratio": series.ratio(),
        "worse": series.worse(),
        "others": series.noise.others,
        "steal": series.noise.steal,
    })
}

/// The exit codes: nothing lost; something lost; nothing lost, and something could not be judged.
pub(super) const CLEAN: u8 = 0;
pub(super) const LOSS: u8 = 1;
pub(super) const UNCLEAR: u8 = 3;

/// The lines of a whole run.
pub(super) struct Report(pub(super) Vec<Line>);

impl Report {
    pub(super) fn code(&self) -> u8 {
        if self.0.iter().any(|line| line.verdict.is_loss()) {
            LOSS
        } else if self.0.iter().any(|line| line.verdict.is_unclear()) {
            UNCLEAR
        } else {
            CLEAN
        }
    }

    fn names(&self, wanted: fn(&Verdict) -> bool) -> Vec<&str> {
        self.0.iter().filter(|line| wanted(&line.verdict)).map(|line| line.name.as_str()).collect()
    }

    /// The last lines.
    pub(super) fn summary(&self) -> String {
        let (lost, unclear) = (self.names(Verdict::is_loss), self.names(Verdict::is_unclear));
        let mut summary = match lost.len() {
            0 => format!("nothing lost in {} of {} lines\n", self.0.len() - unclear.len(), self.0.len()),
            count => format!("LOST ({count}): {}\n", lost.join(", ")),
        };
        if !unclear.is_empty() {
            let (count, names) = (unclear.len(), unclear.join(", "));
            summary.push_str(&format!(
                "CANNOT TELL ({count}): {names}\nthese may hide a loss: run them again when the machine is quiet\n"
            ));
        }
        summary
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "lines": self.0.iter().map(|line| line.json.clone()).collect::<Vec<_>>(),
            "lost": self.names(Verdict::is_loss),
            "cannot_tell": self.names(Verdict::is_unclear),
            "exit": self.code(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, verdict: Verdict) -> Line {
        let series = Series { old: vec![50.0; 3], new: vec![51.0; 3], ..Series::default() };
        let judged = Judged {
            metric: "cpu".to_owned(),
            unit: "ns".to_owned(),
            series: vec![series],
            denied: [vec![0.5], vec![]],
            verdict,
        };
        Line::of_pairs(name, &judged, Duration::from_secs(9))
    }

    #[test]
    fn a_line_says_it_all() {
        let text = line("spawn", Verdict::Lost).text;
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(
            words,
            ["spawn", "cpu", "ns", "50.00", "51.00", "1.020", "3/3", "0.0", "0.0", "9", "LOST"]
        );
        assert_eq!(heading().find("verdict"), text.find("LOST"));
    }

    #[test]
    fn nothing_lost_is_0() {
        let report = Report(vec![line("spawn", Verdict::Ok), line("yield", Verdict::NotConfirmed)]);
        assert_eq!(report.code(), CLEAN);
        assert_eq!(report.summary(), "nothing lost in 2 of 2 lines\n");
    }

    #[test]
    fn what_cannot_be_told_is_3_and_named() {
        let why = Verdict::CannotTell("steal".to_owned());
        let report = Report(vec![line("spawn", Verdict::Ok), line("yield", why)]);
        assert_eq!(report.code(), UNCLEAR);
        assert!(report.summary().contains("CANNOT TELL (1): yield\n"), "{}", report.summary());
    }

    #[test]
    fn a_loss_is_1_whatever_else_there_is() {
        let why = Verdict::CannotTell("steal".to_owned());
        let report =
            Report(vec![line("a", Verdict::Lost), line("b", why), line("c", Verdict::Failed(String::new()))]);
        assert_eq!(report.code(), LOSS);
        assert!(report.summary().starts_with("LOST (2): a, c\nCANNOT TELL (1): b\n"));
        let json = report.to_json();
        assert_eq!((&json["lost"], &json["exit"]), (&json!(["a", "c"]), &json!(1)));
    }

    #[test]
    fn a_case_of_one_tree_is_named_and_no_loss() {
        let only = Line::only_in("brand-new", "new");
        assert!(only.text.ends_with("only in new"));
        assert_eq!(Report(vec![only]).code(), CLEAN);
    }
}
