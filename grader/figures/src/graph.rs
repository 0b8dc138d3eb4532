//! A graph as boxes, drawn from its text: each operation a box, each launch a frame around what it computes.
//!
//! Between frames a line is memory: what one launch writes and another reads. Within a frame it is a register. A node
//! that two launches compute, each for itself, is drawn in both. Views and constants are no work and are left out; a
//! line leads through the view, and a constant stands in the box that uses it. Boxes are placed by
//! [`layers`](super::layers).

use std::collections::{BTreeMap, BTreeSet};

use reference::graph::{Error, Graph, Id, Op, Type};

use super::layers::{Item, Layers, Rect, lay};
use super::number::{bytes, digits};
use super::plot::{Anchor, Ink, Plot, StepKind, WIDTH};

/// A graph's boxes and frames in their places.
#[derive(Clone, Debug, Default)]
pub struct Drawing {
    /// The boxes: a node and the number of the frame that it stands in, if it stands in one.
    pub boxes: Vec<(Id, Option<usize>, Rect)>,
    /// Frames, and what stands in their heads.
    pub frames: Vec<(String, Rect)>,
    /// Lines between boxes and frames.
    pub lines: Vec<Vec<(f64, f64)>>,
    /// Width and height.
    pub size: (f64, f64),
}

const HEIGHT: f64 = 18.0;
const PADDING: f64 = 4.0;
const HEAD: f64 = 14.0;
const GAP: f64 = 15.0;
const TOP: f64 = 48.0;
const LEFT: f64 = 8.0;

/// One of the graphs of a figure.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// What stands above it.
    pub heading: &'a str,
    /// The graph's text.
    pub text: &'a str,
    /// The nodes that each launch computes; without any, each operation is one.
    pub launches: &'a [BTreeSet<Id>],
}

/// The figure of some graphs, side by side.
///
/// Fails where a text is no graph.
pub fn draw(title: &str, sides: &[Side<'_>]) -> Result<String, Error> {
    let room = (WIDTH - 2.0 * LEFT) / sides.len().max(1) as f64;
    let read = |side: &Side<'_>| {
        let graph = Graph::parse(side.text)?;
        let launches = if side.launches.is_empty() { one_each(&graph) } else { side.launches.to_vec() };
        Ok((graph, launches))
    };
    let graphs: Vec<(Graph, Vec<BTreeSet<Id>>)> = sides.iter().map(read).collect::<Result<_, Error>>()?;
    let words: Vec<String> =
        graphs.iter().zip(sides).map(|((graph, launches), side)| describe(side, graph, launches)).collect();
    let mut plot = Plot::new(title, &words.join(" "));
    let mut height: f64 = 0.0;
    for (i, ((graph, launches), side)) in graphs.iter().zip(sides).enumerate() {
        let left = LEFT + room * i as f64;
        plot.text((left + room / 2.0, 38.0), Anchor::Middle, Ink::Quiet, side.heading);
        let drawing = placed(graph, launches, room - 8.0);
        drawing.ink(&mut plot, graph, left + (room - drawing.size.0) / 2.0);
        height = height.max(drawing.size.1);
    }
    Ok(plot.finish((height + TOP + 8.0).ceil()))
}

/// Every operation that is work, a launch each.
pub fn one_each(graph: &Graph) -> Vec<BTreeSet<Id>> {
    let is_work = |id: &Id| shown(graph, *id) && !matches!(graph.node(*id).op, Op::Input { .. });
    graph.ids().filter(is_work).map(|id| BTreeSet::from([id])).collect()
}

/// The places of everything, in at most `room` units of width.
pub fn placed(graph: &Graph, launches: &[BTreeSet<Id>], room: f64) -> Drawing {
    let cast = Cast::new(graph, launches);
    let inner: Vec<Option<Layers>> = cast.actors.iter().map(|actor| actor.inside(graph, room)).collect();
    let size = |(actor, inner): (&Actor, &Option<Layers>)| match inner {
        Some(inner) => {
            let head = if actor.head.is_empty() { (0.0, 0.0) } else { (words(&actor.head), HEAD) };
            ((inner.size.0 + 2.0 * PADDING).max(head.0), inner.size.1 + 2.0 * PADDING + head.1)
        }
        None => (width(&label(graph, actor.nodes[0])), HEIGHT),
    };
    let after = cast.actors.iter().map(|actor| cast.before(graph, actor));
    let sizes = cast.actors.iter().zip(&inner).map(size);
    let items: Vec<Item> = sizes.zip(after).map(|(size, after)| Item { size, after }).collect();
    let outer = tight(&lay(&items, room, GAP));
    let mut drawing = Drawing { lines: outer.lines, size: outer.size, ..Drawing::default() };
    for ((actor, inner), at) in cast.actors.iter().zip(inner).zip(&outer.boxes) {
        drawing.add(actor, inner, *at);
    }
    drawing
}

impl Drawing {
    fn add(&mut self, actor: &Actor, inner: Option<Layers>, at: Rect) {
        let Some(inner) = inner else { return self.boxes.push((actor.nodes[0], None, at)) };
        let (right, down) = (at.x + (at.width - inner.size.0) / 2.0, at.bottom() - PADDING - inner.size.1);
        let frame = Some(self.frames.len());
        self.frames.push((actor.head.clone(), at));
        let boxes = actor.nodes.iter().zip(&inner.boxes);
        self.boxes.extend(boxes.map(|(id, at)| (*id, frame, at.moved(right, down))));
        let moved = |line: Vec<(f64, f64)>| line.into_iter().map(|(x, y)| (x + right, y + down)).collect();
        self.lines.extend(inner.lines.into_iter().map(moved));
    }

    /// Puts it on paper.
    fn ink(&self, plot: &mut Plot, graph: &Graph, left: f64) {
        for line in &self.lines {
            let line: Vec<(f64, f64)> = line.iter().map(|(x, y)| (x + left, y + TOP)).collect();
            plot.track(&line, 1.0, Ink::Quiet);
            let (x, y) = line[line.len() - 1];
            plot.arrow(x, y, Ink::Quiet);
        }
        for (number, (head, at)) in self.frames.iter().enumerate() {
            let at = at.moved(left, TOP);
            let last = self.boxes.iter().rev().find(|(_, frame, _)| *frame == Some(number));
            plot.frame(at, last.map_or(Ink::Quiet, |(id, ..)| ink(graph, *id)), 0.0);
            plot.text((at.x + 6.0, at.y + 13.0), Anchor::Start, Ink::Quiet, head);
        }
        for (id, inside, at) in &self.boxes {
            let at = at.moved(left, TOP);
            plot.frame(at, ink(graph, *id), if inside.is_some() { 0.16 } else { 0.04 });
            let (x, y) = (at.x + at.width / 2.0, at.y + at.height / 2.0 + 4.0);
            plot.text((x, y), Anchor::Middle, Ink::Text, &label(graph, *id));
        }
    }
}

/// What is placed as one: a launch with its nodes, or a node that no launch computes.
struct Actor {
    is_launch: bool,
    head: String,
    nodes: Vec<Id>,
}

/// Everything that is placed, each after what it needs.
struct Cast {
    actors: Vec<Actor>,
}

impl Cast {
    /// Inputs first, then launches in their order. What no launch computes, a sum that products add up or an empty
    /// tensor, stands before the first launch that needs it, or in it, where it stands between two of its nodes. What a
    /// launch needs and only later ones compute is done on its way, such as the sign of a product's factor: it stands in
    /// all of them.
    fn new(graph: &Graph, launches: &[BTreeSet<Id>]) -> Self {
        let within = |id: &Id| launches.iter().any(|launch| launch.contains(id));
        let mut loose: Vec<Id> = graph.ids().filter(|id| shown(graph, *id) && !within(id)).collect();
        let is_input = |id: &Id| matches!(graph.node(*id).op, Op::Input { .. });
        let alone = |id: Id| Actor { is_launch: false, head: String::new(), nodes: vec![id] };
        let mut actors: Vec<Actor> = loose.iter().copied().filter(is_input).map(alone).collect();
        loose.retain(|id| !is_input(id));
        for (number, launch) in launches.iter().enumerate() {
            let needed = graph.ancestors(launch.iter().copied());
            let now: Vec<Id> = loose.iter().copied().filter(|id| needed.contains(id)).collect();
            loose.retain(|id| !needed.contains(id));
            let (between, before): (Vec<Id>, Vec<Id>) =
                now.into_iter().partition(|id| follows(graph, *id, launch));
            actors.extend(before.into_iter().map(alone));
            let folded = folded(graph, launches, number);
            let own = launch.iter().copied().filter(|id| shown(graph, *id)).chain(between).chain(folded);
            let nodes: Vec<Id> = own.collect::<BTreeSet<_>>().into_iter().collect();
            if !nodes.is_empty() {
                actors.push(Actor { is_launch: true, head: head(graph, launches, number, &nodes), nodes });
            }
        }
        actors.extend(loose.into_iter().map(alone));
        Self { actors }
    }

    /// What comes before an actor: who computed what it reads from elsewhere.
    fn before(&self, graph: &Graph, actor: &Actor) -> Vec<usize> {
        let own = self.actors.iter().position(|other| std::ptr::eq(other, actor)).unwrap_or(0);
        let read = actor.nodes.iter().flat_map(|id| sources(graph, *id));
        let outside = read.filter(|id| !actor.nodes.contains(id)).collect::<BTreeSet<_>>();
        let makers = outside.into_iter().filter_map(|id| self.maker(graph, id, own));
        makers.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Who computes a node before somebody needs it: who has it as a result rather than on the way.
    fn maker(&self, graph: &Graph, id: Id, before: usize) -> Option<usize> {
        let has = |i: &usize| self.actors[*i].nodes.contains(&id);
        let passes = |i: &usize| self.actors[*i].nodes.iter().any(|user| sources(graph, *user).contains(&id));
        let mut all = (0..before).filter(has);
        let first = all.clone().next();
        all.find(|i| !passes(i)).or(first)
    }
}

/// What a launch needs that only later ones compute.
fn folded(graph: &Graph, launches: &[BTreeSet<Id>], number: usize) -> BTreeSet<Id> {
    let (so_far, later) = launches.split_at(number + 1);
    let is_later = |id: &Id| {
        !so_far.iter().any(|launch| launch.contains(id)) && later.iter().any(|launch| launch.contains(id))
    };
    let mut open: Vec<Id> = launches[number].iter().copied().collect();
    let mut found = BTreeSet::new();
    while let Some(id) = open.pop() {
        let new = sources(graph, id).into_iter().filter(is_later).filter(|id| found.insert(*id));
        open.extend(new.collect::<Vec<_>>());
    }
    found
}

/// Whether a node is computed from one that a launch computes.
fn follows(graph: &Graph, id: Id, launch: &BTreeSet<Id>) -> bool {
    let is_work = |id: &Id| shown(graph, *id) && !matches!(graph.node(*id).op, Op::Input { .. });
    graph.ancestors([id]).iter().any(|above| launch.contains(above) && is_work(above))
}

impl Actor {
    /// The boxes within a launch's frame.
    fn inside(&self, graph: &Graph, room: f64) -> Option<Layers> {
        if !self.is_launch {
            return None;
        }
        let place = |id: Id| self.nodes.iter().position(|node| *node == id);
        let item = |id: &Id| Item {
            size: (width(&label(graph, *id)), HEIGHT),
            after: sources(graph, *id).into_iter().filter_map(place).collect(),
        };
        let items: Vec<Item> = self.nodes.iter().map(item).collect();
        let widest = items.iter().map(|item| item.size.0).fold(0.0, f64::max);
        let square = widest * (items.len() as f64).sqrt() * 1.4;
        Some(tight(&lay(&items, square.min(room - 2.0 * PADDING), 11.0)))
    }
}

/// The same without what is empty on both sides.
fn tight(layers: &Layers) -> Layers {
    let points = || layers.lines.iter().flatten().map(|(x, _)| *x);
    let left = layers.boxes.iter().map(|at| at.x).chain(points()).fold(f64::MAX, f64::min);
    let right = layers.boxes.iter().map(|at| at.x + at.width).chain(points()).fold(0.0, f64::max);
    let left = left.min(right);
    Layers {
        boxes: layers.boxes.iter().map(|at| at.moved(-left, 0.0)).collect(),
        lines: layers.lines.iter().map(|line| line.iter().map(|(x, y)| (x - left, *y)).collect()).collect(),
        size: (right - left, layers.size.1),
    }
}

// ---- what a node is

/// Whether a node gets a box: neither a constant nor a view, unless it is an output.
pub fn shown(graph: &Graph, id: Id) -> bool {
    let is_output = graph.outputs().iter().any(|(_, output)| *output == id);
    is_output || !hidden(&graph.node(id).op)
}

fn hidden(op: &Op) -> bool {
    op.is_view() || matches!(op, Op::Constant { .. } | Op::Iota { .. })
}

/// The nodes with boxes that a node is computed from.
pub fn sources(graph: &Graph, id: Id) -> BTreeSet<Id> {
    let mut open = graph.node(id).inputs.clone();
    let mut found = BTreeSet::new();
    while let Some(id) = open.pop() {
        if shown(graph, id) {
            found.insert(id);
        } else {
            open.extend(&graph.node(id).inputs);
        }
    }
    found
}

/// What a box says.
fn label(graph: &Graph, id: Id) -> String {
    let node = graph.node(id);
    if let Op::Input { name } = &node.op {
        return cut(name, 24);
    }
    if let Op::Constant { value } = &node.op {
        return format!("{value}");
    }
    let numbers: Vec<String> = node.inputs.iter().filter_map(|id| constant(graph, *id)).collect();
    format!("{} {}", node.op.name(), numbers.join(" ")).trim_end().to_owned()
}

/// The number that a node is everywhere.
fn constant(graph: &Graph, id: Id) -> Option<String> {
    let node = graph.node(id);
    let Op::Constant { value } = &node.op else {
        return constant(graph, *node.inputs.first().filter(|_| hidden(&node.op))?);
    };
    let is_fraction = value.log2().fract() == 0.0 && *value < 1.0 && *value > 0.0;
    let text = if is_fraction { format!("1/{}", 1.0 / value) } else { format!("{value}") };
    Some(if text.len() > LONGEST_NUMBER { digits(*value) } else { text })
}

/// Characters of a number in a box that is written out.
const LONGEST_NUMBER: usize = 9;

/// The end of a long name says more than its beginning.
fn cut(name: &str, most: usize) -> String {
    let count = name.chars().count();
    if count <= most {
        return name.to_owned();
    }
    let end: String = name.chars().skip(count - most + 1).collect();
    format!("\u{2026}{end}")
}

/// Room for a line of text in a box.
fn width(text: &str) -> f64 {
    6.6 * text.chars().count() as f64 + 12.0
}

fn ink(graph: &Graph, id: Id) -> Ink {
    match &graph.node(id).op {
        Op::Input { .. } => Ink::Quiet,
        Op::Matmul => Ink::Step(StepKind::Product),
        Op::Attention(_) | Op::AttentionGrad { .. } => Ink::Step(StepKind::Attention),
        Op::AttentionLse(_) | Op::AttentionLseGrad { .. } => Ink::Step(StepKind::Attention),
        Op::Dequantize { .. } => Ink::Step(StepKind::Dequantise),
        Op::Gather | Op::ScatterAdd => Ink::Step(StepKind::Scatter),
        Op::Constant { .. } | Op::Iota { .. } | Op::Cast | Op::Detach => Ink::Step(StepKind::Program),
        Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select => Ink::Step(StepKind::Program),
        Op::Reduce(..) | Op::Reshape | Op::Transpose { .. } => Ink::Step(StepKind::Program),
        Op::Broadcast | Op::Slice { .. } | Op::Concat { .. } => Ink::Step(StepKind::Program),
        Op::RandomMask { .. } | Op::Collective { .. } => Ink::Step(StepKind::Program),
    }
}

/// What stands in a frame's head: the launch's number and the bytes that it writes. One box needs none.
fn head(graph: &Graph, launches: &[BTreeSet<Id>], launch: usize, nodes: &[Id]) -> String {
    match written(graph, launches, launch) {
        _ if nodes.len() < 2 => String::new(),
        Some(count @ 1..) => format!("launch {launch}, {}", bytes(count as f64)),
        _ => format!("launch {launch}"), // of an unknown size, or read by what no launch computes
    }
}

/// Room for a frame's head.
fn words(head: &str) -> f64 {
    6.3 * head.chars().count() as f64 + 12.0
}

/// Bytes of what a launch computes and others, or the caller, read.
fn written(graph: &Graph, launches: &[BTreeSet<Id>], launch: usize) -> Option<i64> {
    let own = &launches[launch];
    let leaves = |id: &Id| {
        let reads = |other: &BTreeSet<Id>| other.iter().any(|user| sources(graph, *user).contains(id));
        let later = launches.iter().skip(launch + 1);
        graph.outputs().iter().any(|(_, output)| output == id)
            || later.filter(|other| !other.contains(id)).any(reads)
    };
    own.iter().filter(|id| shown(graph, **id) && leaves(id)).map(|id| size(graph.ty(*id))).sum()
}

fn size(ty: &Type) -> Option<i64> {
    ty.shape.iter().try_fold(ty.dtype.bytes() as i64, |all, dim| Some(all * dim.as_fixed()?))
}

/// A graph in words.
fn describe(side: &Side<'_>, graph: &Graph, launches: &[BTreeSet<Id>]) -> String {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for id in graph.ids().filter(|id| shown(graph, *id)) {
        *kinds.entry(graph.node(id).op.name()).or_default() += 1;
    }
    let kinds: Vec<String> = kinds.into_iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    format!("{}: {} in {} launches.", side.heading, kinds.join(", "), launches.len())
}
