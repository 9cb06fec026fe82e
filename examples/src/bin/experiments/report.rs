//! The report: a text, from a template with the figures in it, drawings, and lines on the standard output.

use std::path::Path;
use std::{fs, io};

use indicatif::ProgressBar;

const TEMPLATE: &str = include_str!("template.md");

pub(crate) struct Report {
    bar: ProgressBar,
    texts: Vec<(&'static str, String)>,
    files: Vec<(&'static str, String)>,
}

impl Report {
    /// Makes an empty report. The bar is hidden while text is printed.
    pub(crate) fn new(bar: ProgressBar) -> Report {
        Report { bar, texts: Vec::new(), files: Vec::new() }
    }

    /// A figure, for the standard output: `WHAT = VALUE`.
    pub(crate) fn line(&self, line: &str) {
        self.bar.suspend(|| println!("{line}"));
    }

    /// Sets the text that replaces `{{key}}` in the template.
    pub(crate) fn text(&mut self, key: &'static str, text: String) {
        self.texts.push((key, text));
    }

    /// A drawing, which the text refers to.
    pub(crate) fn file(&mut self, name: &'static str, content: String) {
        self.files.push((name, content));
    }

    /// Writes the text and the drawings.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let text = self.readme().map_err(io::Error::other)?;
        fs::create_dir_all(folder)?;
        for (name, content) in &self.files {
            fs::write(folder.join(name), content)?;
        }
        fs::write(folder.join("README.md"), text)
    }

    fn readme(&self) -> Result<String, String> {
        let mut readme = TEMPLATE.to_owned();
        for (key, text) in &self.texts {
            let mark = format!("{{{{{key}}}}}");
            if !readme.contains(&mark) {
                return Err(format!("the template has no place for {mark}"));
            }
            readme = readme.replace(&mark, text.trim_end());
        }
        match readme.split_once("{{") {
            Some((_, rest)) => {
                Err(format!("nothing was found out for {{{{{}", rest.lines().next().unwrap_or("")))
            }
            None => Ok(readme),
        }
    }
}
