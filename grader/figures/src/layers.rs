//! Boxes in rows: each below everything that it comes after, none over another, lines between them that cross no box.
//!
//! The plan of Sugiyama: rows by the longest way from above; an order within each row in which neighbours in other rows
//! lie near; positions as near to the neighbours as the order and the width allow. A line that passes a row has a place
//! of its own in it. A row that is too wide is broken into several.
//!
//! Source: Sugiyama, Tagawa, Toda, "Methods for Visual Understanding of Hierarchical System Structures" (1981).

/// What is to be placed.
#[derive(Clone, Debug, Default)]
pub struct Item {
    /// Width and height.
    pub size: (f64, f64),
    /// What it comes after, by number: lower ones than its own.
    pub after: Vec<usize>,
}

/// Where something lies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rect {
    /// Left edge.
    pub x: f64,
    /// Upper edge.
    pub y: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

impl Rect {
    /// Lower edge.
    pub fn bottom(&self) -> f64 {
        self.y + self.height
    }

    /// The same, moved.
    #[must_use]
    pub fn moved(self, dx: f64, dy: f64) -> Self {
        Self { x: self.x + dx, y: self.y + dy, ..self }
    }

    /// Whether two have a point in common that is on no edge.
    pub fn meets(&self, other: &Rect) -> bool {
        let apart = |a: f64, length: f64, b: f64| a + length <= b + 1e-6;
        !(apart(self.x, self.width, other.x)
            || apart(other.x, other.width, self.x)
            || apart(self.y, self.height, other.y)
            || apart(other.y, other.height, self.y))
    }
}

/// Items in their places.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// Each item's place.
    pub boxes: Vec<Rect>,
    /// A line for each pair of an item and what it comes after: from the lower edge of that one to its own upper edge.
    pub lines: Vec<Vec<(f64, f64)>>,
    /// Width and height of it all.
    pub size: (f64, f64),
}

/// Between neighbours in a row.
const GAP: f64 = 10.0;
/// How often rows are ordered, and moved, by their neighbours.
const SWEEPS: usize = 12;

/// Places items in at most `room` units of width, unless one alone is wider; `gap` units between rows.
pub fn lay(items: &[Item], room: f64, gap: f64) -> Layers {
    let room = items.iter().map(|item| item.size.0).fold(room, f64::max);
    let row_of = rows(items, room);
    let mut grid = Grid::new(items, &row_of, room);
    for sweep in 0..SWEEPS {
        grid.sort(sweep % 2 == 0);
    }
    grid.spread();
    for sweep in 0..SWEEPS {
        grid.settle(sweep % 2 == 0);
    }
    grid.finish(items, &row_of, gap)
}

/// The row of each item: one below the lowest of those that it comes after; what comes after nothing stands just above
/// the first that needs it.
fn rows(items: &[Item], room: f64) -> Vec<usize> {
    let mut depth = vec![0; items.len()];
    let mut first = vec![usize::MAX; items.len()];
    for (i, item) in items.iter().enumerate() {
        depth[i] = item.after.iter().map(|above| depth[*above] + 1).max().unwrap_or(0);
        item.after.iter().for_each(|above| first[*above] = first[*above].min(depth[i]));
    }
    for (i, item) in items.iter().enumerate() {
        if item.after.is_empty() && first[i] != usize::MAX {
            depth[i] = first[i] - 1;
        }
    }
    broken(items, &depth, room)
}

/// Rows no wider than there is room.
fn broken(items: &[Item], depth: &[usize], room: f64) -> Vec<usize> {
    let mut row_of = vec![0; items.len()];
    let mut row = 0;
    for level in 0..=depth.iter().copied().max().unwrap_or(0) {
        let mut used = 0.0;
        for i in (0..items.len()).filter(|i| depth[*i] == level) {
            let width = items[i].size.0;
            if used > 0.0 && used + GAP + width > room {
                row += 1;
                used = 0.0;
            }
            used += width + if used > 0.0 { GAP } else { 0.0 };
            row_of[i] = row;
        }
        row += 1;
    }
    row_of
}

/// An item, or the place where a line passes a row.
#[derive(Clone, Debug, Default)]
struct Cell {
    width: f64,
    center: f64,
    above: Vec<usize>,
    below: Vec<usize>,
}

/// Cells in rows; the first ones are the items.
struct Grid {
    cells: Vec<Cell>,
    rows: Vec<Vec<usize>>,
    /// The cells of each line, from above.
    lines: Vec<Vec<usize>>,
    room: f64,
}

impl Grid {
    fn new(items: &[Item], row_of: &[usize], room: f64) -> Self {
        let cells = items.iter().map(|item| Cell { width: item.size.0, ..Cell::default() }).collect();
        let rows = vec![Vec::new(); row_of.iter().max().map_or(0, |last| last + 1)];
        let mut grid = Self { cells, rows, lines: Vec::new(), room };
        for (i, row) in row_of.iter().enumerate() {
            grid.rows[*row].push(i);
        }
        for (i, item) in items.iter().enumerate() {
            item.after.iter().for_each(|above| grid.connect(*above, i, row_of));
        }
        grid
    }

    /// A line between two items, with a cell in each row that it passes.
    fn connect(&mut self, above: usize, below: usize, row_of: &[usize]) {
        let mut line = vec![above];
        for row in row_of[above] + 1..row_of[below] {
            line.push(self.cells.len());
            self.rows[row].push(self.cells.len());
            self.cells.push(Cell::default());
        }
        line.push(below);
        for pair in line.windows(2) {
            self.cells[pair[0]].below.push(pair[1]);
            self.cells[pair[1]].above.push(pair[0]);
        }
        self.lines.push(line);
    }

    /// Orders each row by the mean place of its cells' neighbours in the rows above, or below.
    fn sort(&mut self, down: bool) {
        let mut place = vec![0.0; self.cells.len()];
        let number = |row: &[usize], place: &mut [f64]| {
            row.iter().enumerate().for_each(|(i, cell)| place[*cell] = (i as f64 + 0.5) / row.len() as f64);
        };
        self.rows.iter().for_each(|row| number(row, &mut place));
        for row in passing(self.rows.len(), down) {
            let mut keyed: Vec<(f64, usize)> =
                self.rows[row].iter().map(|cell| (self.mean(*cell, down, &place), *cell)).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            self.rows[row] = keyed.into_iter().map(|(_, cell)| cell).collect();
            number(&self.rows[row], &mut place);
        }
    }

    /// The mean of a cell's neighbours on one side; its own place if it has none there.
    fn mean(&self, cell: usize, above: bool, place: &[f64]) -> f64 {
        let near = if above { &self.cells[cell].above } else { &self.cells[cell].below };
        match near.len() {
            0 => place[cell],
            count => near.iter().map(|cell| place[*cell]).sum::<f64>() / count as f64,
        }
    }

    /// Each row in the middle.
    fn spread(&mut self) {
        for row in 0..self.rows.len() {
            let wish = vec![self.room / 2.0; self.rows[row].len()];
            self.place(row, &wish);
        }
    }

    /// Moves each row's cells towards their neighbours.
    fn settle(&mut self, down: bool) {
        for row in passing(self.rows.len(), down) {
            let center: Vec<f64> = self.cells.iter().map(|cell| cell.center).collect();
            let wish: Vec<f64> = self.rows[row].iter().map(|cell| self.mean(*cell, down, &center)).collect();
            self.place(row, &wish);
        }
    }

    /// Gives a row's cells centres as near to their wishes as order, distance and room allow: the mean of what pushing
    /// to the right and pushing to the left give, both of which keep the distance.
    fn place(&mut self, row: usize, wish: &[f64]) {
        let widths: Vec<f64> = self.rows[row].iter().map(|cell| self.cells[*cell].width).collect();
        let free = self.room - widths.iter().sum::<f64>();
        let gap = GAP.min(free.max(0.0) / (widths.len().max(2) - 1) as f64);
        let right = pushed(wish, &widths, gap);
        let mirrored: Vec<f64> = wish.iter().rev().map(|x| -x).collect();
        let turned: Vec<f64> = widths.iter().rev().copied().collect();
        let mut left = pushed(&mirrored, &turned, gap);
        left.reverse();
        let middle: Vec<f64> =
            right.iter().zip(&left).map(|(right, left)| f64::midpoint(*right, -left)).collect();
        for (cell, x) in self.rows[row].iter().zip(within(&middle, &widths, gap, self.room)) {
            self.cells[*cell].center = x;
        }
    }

    fn finish(&self, items: &[Item], row_of: &[usize], gap: f64) -> Layers {
        let mut tops = Vec::new();
        let mut y = 0.0;
        for row in &self.rows {
            let height = row.iter().filter_map(|cell| Some(items.get(*cell)?.size.1)).fold(0.0, f64::max);
            tops.push((y, height));
            y += height + gap;
        }
        let boxes = items.iter().zip(row_of).zip(&self.cells).map(|((item, row), cell)| {
            let ((top, row_height), (width, height)) = (tops[*row], item.size);
            Rect { x: cell.center - width / 2.0, y: top + (row_height - height) / 2.0, width, height }
        });
        let boxes: Vec<Rect> = boxes.collect();
        let lines = self.lines.iter().map(|line| self.line(line, &boxes, row_of, &tops)).collect();
        Layers { boxes, lines, size: (self.room, (y - gap).max(0.0)) }
    }

    /// The corners of a line: straight through the rows, slanting between them only.
    fn line(&self, line: &[usize], boxes: &[Rect], row_of: &[usize], tops: &[(f64, f64)]) -> Vec<(f64, f64)> {
        let (from, to) = (line[0], line[line.len() - 1]);
        let (mut row, x) = (row_of[from], self.cells[from].center);
        let mut points = vec![(x, boxes[from].bottom()), (x, tops[row].0 + tops[row].1)];
        for cell in &line[1..line.len() - 1] {
            row += 1;
            let (x, (top, height)) = (self.cells[*cell].center, tops[row]);
            points.extend([(x, top), (x, top + height)]);
        }
        let x = self.port(from, line, to, boxes);
        points.extend([(x, tops[row_of[to]].0), (x, boxes[to].y)]);
        points.dedup();
        points
    }

    /// Where on its upper edge a line arrives: lines from the left arrive on the left.
    fn port(&self, from: usize, line: &[usize], to: usize, boxes: &[Rect]) -> f64 {
        let last = line[line.len() - 2];
        let mut near: Vec<usize> = self.cells[to].above.clone();
        near.sort_by(|a, b| self.cells[*a].center.total_cmp(&self.cells[*b].center).then(a.cmp(b)));
        let place = near.iter().position(|cell| *cell == last || *cell == from).unwrap_or(0);
        boxes[to].x + boxes[to].width * (place + 1) as f64 / (near.len() + 1) as f64
    }
}

/// The rows that have a neighbour above, downwards, or below, upwards.
fn passing(rows: usize, down: bool) -> Vec<usize> {
    if down { (1..rows).collect() } else { (0..rows.saturating_sub(1)).rev().collect() }
}

/// Centres at least as far to the right as wished, in order.
fn pushed(wish: &[f64], widths: &[f64], gap: f64) -> Vec<f64> {
    let mut edge = f64::NEG_INFINITY;
    let one = |(wish, width): (&f64, &f64)| {
        let center = wish.max(edge + width / 2.0);
        edge = center + width / 2.0 + gap;
        center
    };
    wish.iter().zip(widths).map(one).collect()
}

/// The same centres moved into the room from both sides.
fn within(centers: &[f64], widths: &[f64], gap: f64, room: f64) -> Vec<f64> {
    let mut edge = room;
    let mut placed = centers.to_vec();
    for (center, width) in placed.iter_mut().zip(widths).rev() {
        *center = center.min(edge - width / 2.0);
        edge = *center - width / 2.0 - gap;
    }
    edge = 0.0;
    for (center, width) in placed.iter_mut().zip(widths) {
        *center = center.max(edge + width / 2.0);
        edge = *center + width / 2.0 + gap;
    }
    placed
}
