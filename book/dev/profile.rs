//! What a profiler counted, out of a CSV file of `book/src/results`.
//!
//! The first line that is no comment names the columns; a line that begins with `#` says what was profiled, and
//! how. Cells are shown as they stand. A profile is wide, so a chapter shows a few rows and columns at a time and
//! says once in its own words what they are; the comments go with the whole table.

use std::path::Path;

use crate::html::escape;
use crate::results::{NOTHING, table};

/// The file as a table. Of `asked`, the words before a colon choose rows by how their first cell begins, those
/// after it columns by their names; all of them where there is no such word. A file that has not been recorded
/// yet says so.
///
/// # Errors
/// Where the file has no columns or none of a name that is asked for, a row has another number of cells than
/// there are columns, or no row is one that is asked for.
pub fn shown(folder: &Path, name: &str, asked: &[&str]) -> Result<String, String> {
    let Ok(text) = crate::read(&folder.join(format!("{name}.csv"))) else { return Ok(NOTHING.into()) };
    let at = asked.iter().position(|word| *word == ":").unwrap_or(asked.len());
    let (wanted, columns) = (&asked[..at], asked.get(at + 1..).unwrap_or_default());
    let wrong = |what: String| format!("results/{name}.csv {what}");
    let notes: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix('#')).map(str::trim).collect();
    let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let head = cells(lines.next().ok_or_else(|| wrong("names no columns".into()))?);
    let rows: Vec<Vec<String>> = lines.map(cells).collect();
    if let Some(row) = rows.iter().find(|row| row.len() != head.len()) {
        let (has, needs) = (row.len(), head.len());
        return Err(wrong(format!("has {has} cells in the row of `{}`, and {needs} columns", row[0])));
    }
    let place = |column: &&str| {
        let found = head.iter().position(|known| known == column);
        found.ok_or_else(|| wrong(format!("has no column `{column}`")))
    };
    let mut places: Vec<usize> = columns.iter().map(place).collect::<Result<_, _>>()?;
    if places.is_empty() {
        places = (1..head.len()).collect();
    }
    let is_wanted =
        |row: &&Vec<String>| wanted.is_empty() || wanted.iter().any(|begin| row[0].starts_with(begin));
    let rows: String = rows.iter().filter(is_wanted).map(|row| line(row, &places)).collect();
    if rows.is_empty() {
        return Err(wrong(format!("has no row of {}", wanted.join(", "))));
    }
    let head: Vec<String> = std::iter::once(0).chain(places).map(|i| title(&head[i])).collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let notes =
        if asked.is_empty() { format!("\n\n<p>{}</p>", escape(&notes.join(" "))) } else { String::new() };
    Ok(table(&head, &rows) + &notes)
}

/// A column's name as a page has it: the unit at its end as people write it.
fn title(column: &str) -> String {
    let units = [("_pct", " %"), ("_mb", " MB"), ("_msectors", " sectors, M"), ("_m", ", M")];
    let unit = units.into_iter().find_map(|(end, unit)| Some((column.strip_suffix(end)?, unit)));
    let (name, unit) = unit.unwrap_or((column, ""));
    if name == "us" { "\u{b5}s".into() } else { name.replace('_', " ") + unit }
}

fn line(row: &[String], places: &[usize]) -> String {
    let rest: Vec<String> = places.iter().map(|i| format!("<td>{}</td>", escape(&row[*i]))).collect();
    format!("<tr><th><code>{}</code></th>{}</tr>", escape(&row[0]), rest.concat())
}

/// The cells of a line; a comma between quotes is no border.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    for c in line.trim_end().chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            c => cells.last_mut().expect("there is always a cell").push(c),
        }
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, wanted: &[&str]) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("p.csv"), text).unwrap();
        shown(folder.path(), "p", wanted)
    }

    #[test]
    fn a_profile_is_a_table_with_its_note() {
        let text = "# one card\nversion,DRAM,\"top, stalls\"\nv01,12 %,mio\nv02,14 %,\"a, b\"\n";
        let all = of(text, &[]).unwrap();
        assert!(all.contains("<th>top, stalls</th>") && all.contains("<td>a, b</td>"), "{all}");
        assert!(all.ends_with("<p>one card</p>"), "{all}");
        assert!(!of(text, &["v01"]).unwrap().contains("v02"));
        assert_eq!(of(text, &["v9"]).unwrap_err(), "results/p.csv has no row of v9");
    }

    #[test]
    fn a_chapter_chooses_rows_and_columns() {
        let text = "version,dram_pct,stall\nv01,12,mio\nv02,14,lg\n";
        let some = of(text, &["v02", ":", "stall"]).unwrap();
        assert!(some.contains("<th><code>v02</code></th><td>lg</td></tr>") && !some.contains("14"), "{some}");
        assert!(of(text, &[":", "dram_pct"]).unwrap().contains("<th>dram %</th>"));
        assert_eq!(of(text, &["v01", ":", "sm"]).unwrap_err(), "results/p.csv has no column `sm`");
    }

    #[test]
    fn a_row_that_does_not_fit_is_named() {
        let error = of("a,b\nv01,1,2\n", &[]).unwrap_err();
        assert_eq!(error, "results/p.csv has 3 cells in the row of `v01`, and 2 columns");
    }

    #[test]
    fn a_profile_that_was_not_recorded_is_told() {
        assert_eq!(shown(Path::new("nowhere"), "p", &[]).unwrap(), NOTHING);
    }
}
