//! From parts to the steps of a plan.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kernels::callee::Dequantize;
use kernels::comm::Collective;
use kernels::plan::{self, Memory, Plan, Product, Step, View};
use kernels::tile::Program;
use reference::graph::{self, Fault, Id, Op};

use super::error::{Error, internal};
use super::{Axis, Port, WORLD};
use crate::fuse::collective::Transfer;
use crate::fuse::emit::Layout;
use crate::fuse::{Attend, Fused, Part, attend};
use crate::ir::arena::Arena;
use crate::ir::code::element;
use crate::ir::sized::Sized;
use crate::rewrite::collective;

/// Lets equal programs be one: equal layers are prepared once.
fn share(steps: &mut [Step]) {
    let mut known: HashMap<String, Vec<Arc<Program>>> = HashMap::new(); // by name
    for step in steps {
        let Step::Pass { program, .. } = step else { continue };
        let alike = known.entry(program.name.clone()).or_default();
        match alike.iter().find(|other| other.is(program)) {
            Some(same) => *program = same.clone(),
            None => alike.push(program.clone()),
        }
    }
}

/// The groups that the collectives of a graph name, by the axis.
pub(super) fn axes(sized: &Sized) -> Result<Vec<Axis>, Error> {
    let mut axes: BTreeMap<&str, (Id, usize)> = BTreeMap::new();
    for (id, _, group) in collective::all(sized.graph) {
        let size = collective::size(sized.graph, id, group, sized.sizes()).map_err(Error::Graph)?;
        let (other, known) = *axes.entry(&group.axis).or_insert((id, size));
        if known != size {
            let need = format!("{known} ranks along {:?}, as {}", group.axis, sized.graph.site(other));
            let fault = Fault::Ranks { got: size.to_string(), need };
            return Err(Error::Graph(graph::Error { at: sized.graph.site(id), fault, source: None }));
        }
    }
    Ok(axes.into_iter().map(|(name, (_, size))| Axis { name: name.to_owned(), size }).collect())
}

/// What becomes a plan.
pub(super) struct Planned<'a> {
    pub(super) sized: &'a Sized<'a>,
    pub(super) axes: &'a [Axis],
    pub(super) labels: &'a [String],
    pub(super) fused: &'a Fused,
    pub(super) arena: &'a Arena,
}

impl Planned<'_> {
    pub(super) fn memory(&self, buffer: usize) -> Result<Memory, Error> {
        if let Some(at) = self.arena.places[buffer] {
            return Ok(Memory::Arena(at));
        }
        let donated = || self.fused.donated.keys().position(|donated| *donated == buffer);
        let given = || self.given().position(|given| given == buffer);
        let memory = donated().map(Memory::InOut).or_else(|| given().map(Memory::Input));
        memory.ok_or_else(|| internal(format!("buffer {buffer} has no place and is not given")))
    }

    /// The buffers that are given.
    pub(super) fn given(&self) -> impl Iterator<Item = usize> {
        self.fused.given.keys().copied().filter(|buffer| !self.fused.donated.contains_key(buffer))
    }

    fn view(&self, layout: &Layout) -> Result<View, Error> {
        let Layout { buffer, offset, strides } = layout.clone();
        Ok(View { memory: self.memory(buffer)?, bytes: self.fused.bytes[buffer], offset, strides })
    }

    fn views(&self, layouts: &[Layout]) -> Result<Vec<View>, Error> {
        layouts.iter().map(|layout| self.view(layout)).collect()
    }

    /// The buffer in which an output ends, if it is donated.
    pub(super) fn donated(&self, output: Id) -> Option<usize> {
        self.fused.donated.iter().find(|(_, out)| **out == output).map(|(buffer, _)| *buffer)
    }

    /// Where a node lies: in its own buffer, or in another one where it ends.
    pub(super) fn port(&self, name: &str, id: Id, ends: Option<usize>) -> Result<Port, Error> {
        let ty = self.sized.graph.ty(id);
        let buffer = ends.or_else(|| Some(self.fused.layouts.get(&id)?.buffer));
        let buffer = buffer.ok_or_else(|| internal(format!("%{} of `{name}` has no buffer", id.0)))?;
        let (name, shape, memory) = (name.to_owned(), self.sized.shape(id).to_vec(), self.memory(buffer)?);
        Ok(Port { name, dtype: ty.dtype, shape, memory })
    }

    pub(super) fn plan(&self) -> Result<Plan, Error> {
        let steps = self.fused.parts.iter().map(|part| self.step(part));
        let mut steps: Vec<Step> = steps.collect::<Result<_, _>>()?;
        share(&mut steps);
        let given = self.given().map(|buffer| self.fused.bytes[buffer]).collect();
        let donated = self.fused.donated.keys().map(|buffer| self.fused.bytes[*buffer]).collect();
        let name = self.sized.graph.name.clone();
        Ok(Plan { name, arena_bytes: self.arena.bytes, inputs: given, donated, steps })
    }

    pub(super) fn attention(&self, attend: &Attend) -> Result<plan::Attention, Error> {
        let [q, k, v] = [0, 1, 2].map(|i| self.sized.shape(attend::inputs(self.sized, attend.node)[i]));
        let of = attend::of(&self.sized.graph.node(attend.node).op);
        let of = of.ok_or_else(|| internal(format!("%{} is no attention", attend.node.0)))?;
        let program = |program: &Option<Program>| program.clone().map(Arc::new);
        let (score, mask) = (program(&attend.flex.score), program(&attend.flex.mask));
        let extras = self.views(&attend.flex.extras)?;
        let [batch, heads, queries, depth] = [q[0], q[1], q[2], q[3]];
        let (groups, keys, width) = (k[1], k[2], v[3]);
        let first = attend::inputs(self.sized, attend.node)[0];
        let element = element(self.sized.graph.ty(first).dtype);
        let [q, k, v] = attend.qkv.each_ref().map(|layout| self.view(layout));
        let (q, k, v, scale) = (q?, k?, v?, of.scale as f32);
        Ok(plan::Attention {
            batch,
            heads,
            groups,
            queries,
            keys,
            depth,
            width,
            element,
            scale,
            score,
            mask,
            q,
            k,
            v,
            extras,
        })
    }

    /// The number of a collective among all, which is its ticket too.
    fn ticket(&self, id: Id) -> Result<usize, Error> {
        let ticket = collective::all(self.sized.graph).position(|(other, ..)| other == id);
        ticket.ok_or_else(|| internal(format!("%{} is no collective", id.0)))
    }

    /// The start of a collective, on rank 0 of its group.
    pub(super) fn start(&self, transfer: &Transfer) -> Result<plan::Start, Error> {
        let (id, ticket) = (transfer.node, self.ticket(transfer.node)?);
        let Op::Collective { kind, group } = &self.sized.graph.node(id).op else {
            return Err(internal(format!("%{} is no collective", id.0)));
        };
        let axis = self.axes.iter().position(|axis| axis.name == group.axis);
        let axis = axis.ok_or_else(|| internal(format!("the axis of %{} has no number", id.0)))?;
        let world = self.axes[axis].size;
        let element = element(self.sized.graph.ty(id).dtype);
        let (count, shard) =
            (self.sized.elements(id), self.sized.elements(self.sized.graph.node(id).inputs[0]));
        let peer = |by: i64| by.rem_euclid(world as i64) as usize;
        let what = match *kind {
            graph::Collective::AllGather { .. } => Collective::all_gather(element, shard),
            graph::Collective::ReduceScatter { .. } => Collective::reduce_scatter(element, count),
            graph::Collective::AllReduce => Collective::all_reduce(element, count),
            graph::Collective::Send { by } => Collective::send(peer(by), element, count),
            graph::Collective::Receive { by } => Collective::receive(peer(by), element, count),
        };
        let label = self.labels.get(ticket).cloned();
        let label = label.ok_or_else(|| internal(format!("%{} has no label", id.0)))?;
        let [input, output] = [&transfer.input, &transfer.output]
            .map(|side| side.as_ref().map(|layout| self.view(layout)).transpose());
        Ok(plan::Start {
            ticket,
            group: WORLD + 1 + axis,
            world,
            what,
            input: input?,
            output: output?,
            label,
        })
    }

    pub(super) fn step(&self, part: &Part) -> Result<Step, Error> {
        Ok(match part {
            Part::Start(transfer) => Step::Start(Box::new(self.start(transfer)?)),
            Part::Wait(transfer) => Step::Wait { ticket: self.ticket(transfer.node)? },
            Part::Kernel(kernel) => Step::Pass {
                program: Arc::new(kernel.program.clone()),
                space: kernel.space.clone(),
                inputs: self.views(&kernel.inputs)?,
                outputs: self.views(&kernel.outputs)?,
            },
            Part::Product { node, a, b, elements, to, scale, add } => {
                let shape = self.sized.shape(*node);
                let factor = self.sized.shape(self.sized.graph.node(*node).inputs[0]);
                let (batch, last) = shape.split_at(shape.len() - 2);
                let (a, b, to) = (self.view(a)?, self.view(b)?, self.view(to)?);
                let (m, n, k) = (last[0], last[1], factor[shape.len() - 1]);
                Step::Product(Product {
                    batch: batch.to_vec(),
                    m,
                    n,
                    k,
                    a,
                    b,
                    elements: *elements,
                    to,
                    add: *add,
                    scale: *scale,
                    choice: plan::Choice::by_shape(m, n, k),
                })
            }
            Part::Attention(attend) => Step::Attention {
                attention: Box::new(self.attention(attend)?),
                output: self.view(&attend.output)?,
                lse: attend.lse.as_ref().map(|lse| self.view(lse)).transpose()?,
            },
            Part::AttentionGrad { of, grad, wrt } => {
                let [wrt_q, wrt_k, wrt_v] =
                    wrt.each_ref().map(|to| to.as_ref().map(|to| self.view(to)).transpose());
                let no_sums = || internal(format!("the attention of %{} keeps no sums", of.node.0));
                Step::AttentionGrad(Box::new(plan::AttentionGrad {
                    attention: self.attention(of)?,
                    slope: of.flex.slope.clone().map(Arc::new),
                    output: self.view(&of.output)?,
                    lse: self.view(of.lse.as_ref().ok_or_else(no_sums)?)?,
                    grad: self.view(grad)?,
                    wrt_q: wrt_q?,
                    wrt_k: wrt_k?,
                    wrt_v: wrt_v?,
                }))
            }
            Part::Scatter { node, rows, index, to } => {
                let (shape, inputs) = (self.sized.shape(*node), &self.sized.graph.node(*node).inputs);
                let (table, width) = (shape[0], shape[1..].iter().product());
                let count = self.sized.elements(inputs[1]);
                let (rows, index, to) = (self.view(rows)?, self.view(index)?, self.view(to)?);
                Step::Scatter { rows, index, to, count, width, table }
            }
            Part::Dequantize { node, inputs, to } => {
                let ty = &self.sized.graph.node(*node).ty;
                let Op::Dequantize { block_size, nested } = self.sized.graph.node(*node).op else {
                    return Err(internal(format!("%{} is no dequantisation", node.0)));
                };
                let (len, element) = (self.sized.elements(*node), element(ty.dtype));
                Step::Call {
                    callee: 0,
                    what: Dequantize::whole(len, block_size, nested, element),
                    name: format!("{}: dequantize", self.sized.graph.node(*node).scope),
                    inputs: self.views(inputs)?,
                    output: self.view(to)?,
                }
            }
        })
    }
}
