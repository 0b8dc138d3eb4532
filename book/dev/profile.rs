//! What a profiler counted, out of a CSV file of `book/src/results`.
//!
//! The first line that is no comment names the columns; a line that begins with `#` says what was profiled, and
//! how. Cells are shown as they stand.

use std::path::Path;

use crate::html::escape;
use crate::results::{NOTHING, table};

/// The file as a table: all rows, or those whose first cell begins with one of `wanted`. A file that has not
/// been recorded yet says so.
///
/// # Errors
/// Where the file has no columns, a row has another number of cells than there are columns, or no row is one
/// that is wanted.
pub fn shown(folder: &Path, name: &str, wanted: &[&str]) -> Result<String, String> {
    let Ok(text) = crate::read(&folder.join(format!("{name}.csv"))) else { return Ok(NOTHING.into()) };
    let notes: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix('#')).map(str::trim).collect();
    let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let head = cells(lines.next().ok_or_else(|| format!("results/{name}.csv names no columns"))?);
    let rows: Vec<Vec<String>> = lines.map(cells).collect();
    if let Some(row) = rows.iter().find(|row| row.len() != head.len()) {
        return Err(format!(
            "results/{name}.csv: the row of `{}` has {} cells, there are {} columns",
            row[0],
            row.len(),
            head.len()
        ));
    }
    let is_wanted =
        |row: &&Vec<String>| wanted.is_empty() || wanted.iter().any(|begin| row[0].starts_with(begin));
    let rows: String = rows.iter().filter(is_wanted).map(|row| line(row)).collect();
    if rows.is_empty() {
        return Err(format!("results/{name}.csv has no row of {}", wanted.join(", ")));
    }
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let notes =
        if notes.is_empty() { String::new() } else { format!("\n\n<p>{}</p>", escape(&notes.join(" "))) };
    Ok(format!("{}{notes}", table(&head, &rows)))
}

fn line(row: &[String]) -> String {
    let rest: String = row[1..].iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
    format!("<tr><th><code>{}</code></th>{rest}</tr>", escape(&row[0]))
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
    fn a_row_that_does_not_fit_is_named() {
        let error = of("a,b\nv01,1,2\n", &[]).unwrap_err();
        assert_eq!(error, "results/p.csv: the row of `v01` has 3 cells, there are 2 columns");
    }

    #[test]
    fn a_profile_that_was_not_recorded_is_told() {
        assert_eq!(shown(Path::new("nowhere"), "p", &[]).unwrap(), NOTHING);
    }
}
