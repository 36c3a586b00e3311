//! What an analysis found, for people.

use super::rows::{self, HEADER, LEAST, LEGEND};
use super::words;
use cinnabar_study::analysis::{Analysis, Settings};
use cinnabar_text::{Table, Unit};

/// All of it.
pub fn render(
    analysis: &Analysis,
    settings: &Settings,
    volumes: usize,
    room: Option<usize>,
) -> String {
    let prices = &settings.rules.prices;
    let mut table = Table::new(1, HEADER).least(LEAST);
    for line in rows::lines(analysis, prices, settings.rules.reach_part, volumes) {
        table.push(line.cells(analysis.seconds()));
    }
    let mut text = head(analysis, room) + "\n" + &table.render(room) + LEGEND + "\n\n";
    for sentence in words::answer(analysis, settings) {
        text += &sentence;
        text.push('\n');
    }
    text
}

fn head(analysis: &Analysis, room: Option<usize>) -> String {
    let length = analysis.seconds().map_or("no times".to_owned(), |s| Unit::Seconds.show(s));
    let (requests, references) = (analysis.requests, analysis.references);
    let all = format!("{requests} requests, {references} references to 4 KiB blocks, {length}");
    let mut table = Table::new(2, &["trace", &all]);
    for (path, format) in &analysis.files {
        table.push(vec!["file".to_owned(), format!("{} ({format})", path.display())]);
    }
    let bytes = analysis.cache_blocks.saturating_mul(super::BLOCK_BYTES);
    let size = Unit::Bytes.show(bytes as f64);
    table.push(vec!["cache".to_owned(), size]);
    table.render(room)
}
