//! What an analysis found, for people.

use super::rows::{self, HEADER, LEAST, LEGEND};
use super::words;
use crate::cli::output::Table;
use crate::page::Unit;
use cinnabar_study::analysis::{Analysis, Settings};

/// All of it.
pub(super) fn render(analysis: &Analysis, settings: &Settings, volumes: usize) -> String {
    let prices = &settings.rules.prices;
    let mut table = Table::new(1, HEADER).least(LEAST);
    for line in rows::lines(analysis, prices, settings.rules.reach_part, volumes) {
        table.row(line.cells(analysis.seconds()));
    }
    let mut text = head(analysis) + "\n" + &table.render() + LEGEND + "\n\n";
    for sentence in words::answer(analysis, settings) {
        text += &sentence;
        text.push('\n');
    }
    text
}

fn head(analysis: &Analysis) -> String {
    let length = analysis.seconds().map_or("no times".to_owned(), |s| Unit::Seconds.show(s));
    let (requests, references) = (analysis.requests, analysis.references);
    let all = format!("{requests} requests, {references} references to 4 KiB blocks, {length}");
    let mut table = Table::new(2, &["trace", &all]);
    for (path, format) in &analysis.files {
        table.row(vec!["file".to_owned(), format!("{} ({format})", path.display())]);
    }
    let bytes = analysis.cache_blocks.saturating_mul(super::args::BLOCK_BYTES);
    let size = Unit::Bytes.show(bytes as f64);
    table.row(vec!["cache".to_owned(), size]);
    table.render()
}
