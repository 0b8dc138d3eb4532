//! Writing a graph as an ordinary function.
//!
//! A [`Tensor`] is a handle: `&x.matmul(&w) + 1.0` asks whoever stands behind it, a [`Record`], to do two operations. A
//! recorder may note them down ([`Builder`] does), run them at once ([`Eager`](super::Eager) does), or watch for what
//! cannot be noted down; the function is the same. Shapes are broadcast here as `NumPy` does, by nodes that say so;
//! types are never converted.
//!
//! A mistake does not stop the function: the recorder keeps the first one with the line that made it, what is computed
//! from it is nothing, and [`Builder::finish`] reports it.

use std::cell::{RefCell, RefMut};
use std::ops::{Add, Div, Mul, Neg, Sub};
use std::panic::Location;
use std::rc::Rc;

use super::{
    Array, Attention, Binary, Collective, Compare, Dim, Dtype, Error, Facts, Fault, Foreign, Graph, Group,
    Host, Id, Op, Record, Reduce, Type, Unary,
};

/// A recorder that several handles share.
#[derive(Clone)]
pub struct Tape(Rc<RefCell<dyn Record>>);

/// A handle of what an operation gives.
#[derive(Clone)]
#[must_use]
pub struct Tensor {
    tape: Tape,
    place: Option<usize>, // nothing after a mistake
    ty: Type,
}

impl Tape {
    /// A tape that a recorder writes.
    pub fn new(recorder: Rc<RefCell<dyn Record>>) -> Self {
        Self(recorder)
    }

    /// A size that is bound when the graph runs.
    #[track_caller]
    pub fn symbol(&self, name: &str, facts: Facts) -> Dim {
        self.recorder().know(name, facts);
        Dim::symbol(name)
    }

    /// What the caller gives under a name.
    #[track_caller]
    pub fn input(&self, name: &str, dtype: Dtype, shape: impl IntoIterator<Item = impl Into<Dim>>) -> Tensor {
        self.apply(Op::Input { name: name.into() }, &[], Some(Type::new(dtype, shape)))
    }

    /// One value everywhere.
    #[track_caller]
    pub fn constant(&self, value: f64, ty: &Type) -> Tensor {
        self.apply(Op::Constant { value }, &[], Some(ty.clone()))
    }

    /// The index along a dimension, as i32.
    #[track_caller]
    pub fn iota(&self, shape: &[Dim], dim: usize) -> Tensor {
        self.apply(Op::Iota { dim }, &[], Some(Type::new(Dtype::I32, shape)))
    }

    /// The row-major number of each element, as i32: modulo 2^32, where there are more.
    #[track_caller]
    pub fn element_index(&self, shape: &[Dim]) -> Tensor {
        let mut index = self.constant(0.0, &Type::new(Dtype::I32, shape));
        for dim in 0..shape.len() {
            let inner = &shape[dim + 1..];
            let stride = match super::product(inner).as_fixed() {
                Some(stride) => self.constant(stride as f64, &Type::scalar(Dtype::I32)),
                None => self.constant(1.0, &Type::new(Dtype::I32, inner)).total(), // as many ones, added up
            };
            index = &index + &(&self.iota(shape, dim) * &stride);
        }
        index
    }

    /// A mask u8 of that shape, 1 with that probability: see [`Op::RandomMask`]. `key` is i32 (2), and the index is
    /// [`element_index`](Self::element_index).
    #[track_caller]
    pub fn random_mask(&self, key: &Tensor, shape: &[Dim], probability: f64, stream: u32) -> Tensor {
        let [first, second] =
            [0, 1].map(|word| key.slice(0, word, word + 1).reshape::<Dim>([]).spread(shape));
        let index = self.element_index(shape);
        self.apply(Op::RandomMask { probability, stream }, &[&first, &second, &index], None)
    }

    /// Tensors one after the other along a dimension.
    #[track_caller]
    pub fn concat(&self, parts: &[&Tensor], dim: usize) -> Tensor {
        self.apply(Op::Concat { dim }, parts, None)
    }

    /// Names a result.
    #[track_caller]
    pub fn output(&self, name: &str, tensor: &Tensor) {
        if let Some(place) = tensor.place {
            self.recorder().output(name, place);
        }
    }

    /// What `part` does belongs to a part of the model.
    #[track_caller]
    pub fn within<T>(&self, name: &str, part: impl FnOnce() -> T) -> T {
        self.recorder().enter(name);
        let result = part();
        self.recorder().leave();
        result
    }

    /// Every operation of a graph on the given tensors, which stand for its inputs in their order; its outputs.
    ///
    /// # Panics
    /// If there are fewer tensors than inputs.
    #[track_caller]
    pub fn inline(&self, graph: &Graph, inputs: &[Tensor]) -> Vec<Tensor> {
        let mut given = inputs.iter();
        let mut values: Vec<Tensor> = Vec::new();
        for node in graph.nodes() {
            let inputs: Vec<&Tensor> = node.inputs.iter().map(|id| &values[id.0 as usize]).collect();
            values.push(if let Op::Input { .. } = node.op {
                given.next().expect("a tensor for every input").clone()
            } else {
                self.apply(node.op.clone(), &inputs, node.chosen_type())
            });
        }
        graph.outputs().iter().map(|(_, id)| values[id.0 as usize].clone()).collect()
    }

    /// Calls a function that a graph has no operation for: `run` does it on values, where there are some. It gets one
    /// for each input, and gives one of type `ty`.
    #[track_caller]
    pub fn foreign(
        &self,
        name: &str,
        inputs: &[&Tensor],
        ty: &Type,
        run: impl Fn(&[Array<f32>]) -> Array<f32>,
    ) -> Tensor {
        let places: Option<Vec<usize>> = inputs.iter().map(|input| input.place).collect();
        let at = Location::caller();
        let call = Foreign { name, ty, run: &run };
        let done = match places {
            Some(places) => self.recorder().foreign(&call, &places, at),
            None => None,
        };
        self.handle(done, || ty.clone())
    }

    /// Does something on the host, and gives the number that comes of it; nothing, where it is not done. `name` says
    /// what, as the program would write it. `run` may use handles: what it asks for comes before the host's work
    /// itself.
    #[track_caller]
    pub fn host(&self, host: Host, name: &str, run: impl Fn() -> f64) -> Option<f64> {
        let answer = if self.recorder().does() { run() } else { f64::NAN }; // while nobody holds the recorder
        self.recorder().host(host, name, &|| answer, Location::caller())
    }

    /// The recorder, for one thing at a time.
    ///
    /// # Panics
    /// If it is at work: inside a function that it runs there are values, and no handles.
    #[track_caller]
    fn recorder(&self) -> RefMut<'_, dyn Record + 'static> {
        let recorder = self.0.try_borrow_mut();
        recorder.unwrap_or_else(|_| panic!("a handle is used inside a function that its recorder runs: expected the values that the function is given"))
    }

    /// Any operation.
    #[track_caller]
    pub fn apply(&self, op: Op, inputs: &[&Tensor], ty: Option<Type>) -> Tensor {
        let places: Option<Vec<usize>> = inputs.iter().map(|input| input.place).collect();
        let expected = ty.clone().or_else(|| inputs.first().map(|input| input.ty.clone()));
        let at = Location::caller();
        let done = match places {
            Some(places) => self.recorder().apply(op, &places, ty, at), // no closure, which would hide the caller
            None => None,
        };
        self.handle(done, || expected.unwrap_or_else(|| Type::scalar(Dtype::F32)))
    }

    /// The handle of what a recorder did; of nothing with the type that was to be expected, if it did nothing.
    fn handle(&self, done: Option<(usize, Type)>, expected: impl FnOnce() -> Type) -> Tensor {
        let (place, ty) = match done {
            Some((place, ty)) => (Some(place), ty),
            None => (None, expected()),
        };
        Tensor { tape: self.clone(), place, ty }
    }
}

impl Tensor {
    /// The tape that it is on.
    pub fn tape(&self) -> &Tape {
        &self.tape
    }

    /// Where its recorder keeps it; nothing after a mistake.
    pub fn place(&self) -> Option<usize> {
        self.place
    }

    /// Its type.
    pub fn ty(&self) -> &Type {
        &self.ty
    }

    /// Its dimensions.
    pub fn shape(&self) -> &[Dim] {
        &self.ty.shape
    }

    /// A dimension; 1 if it has none of that number.
    pub fn dim(&self, dim: usize) -> Dim {
        self.ty.shape.get(dim).cloned().unwrap_or(Dim::fixed(1))
    }

    /// Its values, for the program to look at: nothing, where they are not computed yet.
    #[track_caller]
    pub fn read(&self) -> Option<Vec<f64>> {
        let at = Location::caller();
        self.tape.recorder().read(self.place?, at)
    }

    /// The address of its first element: nothing, where it has none yet.
    #[track_caller]
    pub fn pointer(&self) -> Option<usize> {
        let at = Location::caller();
        self.tape.recorder().pointer(self.place?, at)
    }

    /// Overwrites its elements with those of a tensor of the same type: every handle of it now means those.
    #[track_caller]
    pub fn write(&self, value: &Tensor) {
        if let (Some(place), Some(value)) = (self.place, value.place) {
            self.tape.recorder().write(place, value, Location::caller());
        }
    }

    #[track_caller]
    fn then(&self, op: Op) -> Tensor {
        self.tape.apply(op, &[self], None)
    }

    #[track_caller]
    fn to_type(&self, op: Op, ty: Type) -> Tensor {
        self.tape.apply(op, &[self], Some(ty))
    }

    /// A constant of its type and shape.
    #[track_caller]
    pub fn like(&self, value: f64) -> Tensor {
        self.tape.constant(value, &self.ty)
    }

    /// The same elements in another type.
    #[track_caller]
    pub fn cast(&self, dtype: Dtype) -> Tensor {
        if dtype == self.ty.dtype { self.clone() } else { self.to_type(Op::Cast, self.ty.with(dtype)) }
    }

    /// The same; no gradient passes.
    #[track_caller]
    pub fn detach(&self) -> Tensor {
        self.then(Op::Detach)
    }

    /// e^x
    #[track_caller]
    pub fn exp(&self) -> Tensor {
        self.then(Op::Unary(Unary::Exp))
    }

    /// ln x
    #[track_caller]
    pub fn log(&self) -> Tensor {
        self.then(Op::Unary(Unary::Log))
    }

    /// The square root.
    #[track_caller]
    pub fn sqrt(&self) -> Tensor {
        self.then(Op::Unary(Unary::Sqrt))
    }

    /// The hyperbolic tangent.
    #[track_caller]
    pub fn tanh(&self) -> Tensor {
        self.then(Op::Unary(Unary::Tanh))
    }

    /// 1 / (1 + e^-x)
    #[track_caller]
    pub fn sigmoid(&self) -> Tensor {
        self.then(Op::Unary(Unary::Sigmoid))
    }

    /// sin x
    #[track_caller]
    pub fn sin(&self) -> Tensor {
        self.then(Op::Unary(Unary::Sin))
    }

    /// cos x
    #[track_caller]
    pub fn cos(&self) -> Tensor {
        self.then(Op::Unary(Unary::Cos))
    }

    /// The smaller of each two.
    #[track_caller]
    pub fn min(&self, other: &Tensor) -> Tensor {
        self.pairwise(Op::Binary(Binary::Min), other)
    }

    /// The larger of each two.
    #[track_caller]
    pub fn max(&self, other: &Tensor) -> Tensor {
        self.pairwise(Op::Binary(Binary::Max), other)
    }

    /// Where it is less, as u8.
    #[track_caller]
    pub fn less(&self, other: &Tensor) -> Tensor {
        self.pairwise(Op::Compare(Compare::Less), other)
    }

    /// Where it is equal, as u8.
    #[track_caller]
    pub fn equal(&self, other: &Tensor) -> Tensor {
        self.pairwise(Op::Compare(Compare::Equal), other)
    }

    /// `a` where this condition (u8) is not 0, else `b`.
    #[track_caller]
    pub fn select(&self, a: &Tensor, b: &Tensor) -> Tensor {
        let shape = common(&common(self.shape(), a.shape()), b.shape());
        self.tape.apply(Op::Select, &[&self.spread(&shape), &a.spread(&shape), &b.spread(&shape)], None)
    }

    /// The sum along a dimension, which becomes 1.
    #[track_caller]
    pub fn sum(&self, dim: usize) -> Tensor {
        self.then(Op::Reduce(Reduce::Sum, dim))
    }

    /// The largest along a dimension, which becomes 1.
    #[track_caller]
    pub fn reduce_max(&self, dim: usize) -> Tensor {
        self.then(Op::Reduce(Reduce::Max, dim))
    }

    /// The sum of everything, without dimensions.
    #[track_caller]
    pub fn total(&self) -> Tensor {
        let mut sum = self.clone();
        for dim in 0..self.ty.rank() {
            sum = sum.sum(dim);
        }
        sum.reshape::<Dim>([])
    }

    /// The mean along a dimension, which becomes 1.
    #[track_caller]
    pub fn mean(&self, dim: usize) -> Tensor {
        match self.dim(dim).as_fixed() {
            Some(size) => &self.sum(dim) * (1.0 / size as f64),
            None => &self.sum(dim) / &self.like(1.0).sum(dim),
        }
    }

    /// ln of the sum of e^x along a dimension, which becomes 1. The largest is taken out first, so that nothing
    /// overflows; where all are minus infinity, so is the result.
    #[track_caller]
    pub fn logsumexp(&self, dim: usize) -> Tensor {
        let largest = self.reduce_max(dim).detach();
        let none = largest.equal(&largest.like(f64::NEG_INFINITY));
        let shift = none.select(&largest.like(0.0), &largest);
        &(self - &shift).exp().sum(dim).log() + &shift
    }

    /// e^x over its sum along a dimension.
    #[track_caller]
    pub fn softmax(&self, dim: usize) -> Tensor {
        let e = (self - &self.reduce_max(dim).detach()).exp();
        &e / &e.sum(dim)
    }

    /// Sum over the last dimension of this and the last but one of the other. A matrix on the right serves every
    /// leading index of the left.
    #[track_caller]
    pub fn matmul(&self, other: &Tensor) -> Tensor {
        let (rank, k) = (self.ty.rank(), other.dim(0));
        if other.ty.rank() != 2 || rank <= 2 {
            return self.tape.apply(Op::Matmul, &[self, other], None);
        }
        let (lead, n) = (&self.shape()[..rank - 1], other.dim(1));
        let flat = self.reshape([super::product(lead), k]);
        let result = self.tape.apply(Op::Matmul, &[&flat, other], None);
        result.reshape(lead.iter().chain([&n]))
    }

    /// Its last two dimensions exchanged.
    #[track_caller]
    pub fn t(&self) -> Tensor {
        let rank = self.ty.rank();
        let mut order: Vec<usize> = (0..rank).collect();
        if rank >= 2 {
            order.swap(rank - 1, rank - 2);
        }
        self.transpose(&order)
    }

    /// Dimension i is this one's `order[i]`.
    #[track_caller]
    pub fn transpose(&self, order: &[usize]) -> Tensor {
        self.then(Op::Transpose { order: order.to_vec() })
    }

    /// The same elements, row-major, in other dimensions.
    #[track_caller]
    pub fn reshape<D: Into<Dim>>(&self, shape: impl IntoIterator<Item = D>) -> Tensor {
        let ty = Type::new(self.ty.dtype, shape);
        if ty == self.ty { self.clone() } else { self.to_type(Op::Reshape, ty) }
    }

    /// Its elements repeated to another shape, as `NumPy` does.
    #[track_caller]
    pub fn spread(&self, shape: &[Dim]) -> Tensor {
        let missing = shape.len().saturating_sub(self.ty.rank());
        let ones = std::iter::repeat_n(&Dim::fixed(1), missing).cloned().collect::<Vec<_>>();
        let aligned = self.reshape(ones.iter().chain(self.shape()));
        if aligned.shape() == shape {
            return aligned;
        }
        aligned.to_type(Op::Broadcast, Type::new(self.ty.dtype, shape))
    }

    /// Indices `start..end` of a dimension.
    #[track_caller]
    pub fn slice(&self, dim: usize, start: impl Into<Dim>, end: impl Into<Dim>) -> Tensor {
        self.then(Op::Slice { dim, start: start.into(), end: end.into() })
    }

    /// The rows that an index (i32) names.
    #[track_caller]
    pub fn gather(&self, index: &Tensor) -> Tensor {
        self.tape.apply(Op::Gather, &[self, index], None)
    }

    /// Rows added up where an index (i32) points, in a table of `rows`.
    #[track_caller]
    pub fn scatter_add(&self, index: &Tensor, rows: impl Into<Dim>) -> Tensor {
        let row = self.shape().get(index.ty.rank()..).unwrap_or_default();
        let ty = Type::new(self.ty.dtype, [rows.into()].iter().chain(row));
        self.tape.apply(Op::ScatterAdd, &[self, index], Some(ty))
    }

    /// This (batch, heads, queries, D) attends to keys and values (batch, key heads, keys, D); see [`Attention`].
    #[track_caller]
    pub fn attend(&self, attention: Attention, k: &Tensor, v: &Tensor, extras: &[&Tensor]) -> Tensor {
        let inputs: Vec<&Tensor> = [self, k, v].into_iter().chain(extras.iter().copied()).collect();
        self.tape.apply(Op::Attention(Box::new(attention)), &inputs, None)
    }

    /// The logarithm of the sum of e^score that [`attend`](Self::attend) divides by, f32 (batch, heads, queries).
    #[track_caller]
    pub fn attend_lse(&self, attention: Attention, k: &Tensor, v: &Tensor, extras: &[&Tensor]) -> Tensor {
        let inputs: Vec<&Tensor> = [self, k, v].into_iter().chain(extras.iter().copied()).collect();
        self.tape.apply(Op::AttentionLse(Box::new(attention)), &inputs, None)
    }

    /// x / keep where a mask of that probability is 1, else 0: dropout with the probability `1 - keep`. `key` is i32
    /// (2), a new one each step; `stream` tells masks of one step apart.
    #[track_caller]
    pub fn dropout(&self, key: &Tensor, keep: f64, stream: u32) -> Tensor {
        let mask = self.tape.random_mask(key, self.shape(), keep, stream);
        mask.select(&(self / keep), &self.like(0.0))
    }

    /// What the ranks of a group do together.
    #[track_caller]
    pub fn collective(&self, kind: Collective, group: &Group) -> Tensor {
        self.then(Op::Collective { kind, group: group.clone() })
    }

    /// Every rank's shard, one after the other along a dimension.
    #[track_caller]
    pub fn all_gather(&self, dim: usize, group: &Group) -> Tensor {
        self.collective(Collective::AllGather { dim }, group)
    }

    /// The own shard, along a dimension, of the sum of every rank's.
    #[track_caller]
    pub fn reduce_scatter(&self, dim: usize, group: &Group) -> Tensor {
        self.collective(Collective::ReduceScatter { dim }, group)
    }

    /// The sum of every rank's.
    #[track_caller]
    pub fn all_reduce(&self, group: &Group) -> Tensor {
        self.collective(Collective::AllReduce, group)
    }

    /// Sends it to the rank `by` further along the axis; a token, for a receive or an output.
    #[track_caller]
    pub fn send(&self, by: i64, group: &Group) -> Tensor {
        self.collective(Collective::Send { by }, group)
    }

    /// What comes from the rank `by` further along the axis, of this one's type; after this one, where it is a token.
    #[track_caller]
    pub fn receive(&self, by: i64, group: &Group) -> Tensor {
        self.collective(Collective::Receive { by }, group)
    }

    /// An operation of two, broadcast.
    #[track_caller]
    fn pairwise(&self, op: Op, other: &Tensor) -> Tensor {
        let shape = common(self.shape(), other.shape());
        self.tape.apply(op, &[&self.spread(&shape), &other.spread(&shape)], None)
    }
}

/// The shape that two broadcast to. Where they do not fit, the first one's size stays, and the node that spreads the
/// other says so.
fn common(a: &[Dim], b: &[Dim]) -> Vec<Dim> {
    let rank = a.len().max(b.len());
    let one = Dim::fixed(1);
    let at = |shape: &[Dim], i: usize| {
        (i + shape.len()).checked_sub(rank).map_or(one.clone(), |i| shape[i].clone())
    };
    (0..rank).map(|i| if at(a, i).is_one() { at(b, i) } else { at(a, i) }).collect()
}

/// Operators between tensors, and between a tensor and a number.
macro_rules! operator {
    ($trait:ident, $method:ident, $binary:ident) => {
        impl $trait for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: &Tensor) -> Tensor {
                self.pairwise(Op::Binary(Binary::$binary), other)
            }
        }

        impl $trait<f64> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, number: f64) -> Tensor {
                self.pairwise(Op::Binary(Binary::$binary), &self.like(number))
            }
        }
    };
}

operator!(Add, add, Add);
operator!(Sub, sub, Sub);
operator!(Mul, mul, Mul);
operator!(Div, div, Div);

impl Neg for &Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        self.then(Op::Unary(Unary::Neg))
    }
}

/// Notes a program down as a [`Graph`].
pub struct Builder {
    notes: Rc<RefCell<Notes>>,
    tape: Tape,
}

/// A graph being written.
struct Notes {
    graph: Graph,
    scope: Vec<String>,
    error: Option<Error>,
}

impl Builder {
    /// An empty graph.
    pub fn new(name: &str) -> Self {
        Self::onto(Graph::new(name))
    }

    /// Goes on with a graph.
    pub fn onto(graph: Graph) -> Self {
        let notes = Rc::new(RefCell::new(Notes { graph, scope: Vec::new(), error: None }));
        Self { tape: Tape::new(notes.clone()), notes }
    }

    /// The tape that it writes.
    pub fn tape(&self) -> &Tape {
        &self.tape
    }

    /// The handle of a node that is there already.
    ///
    /// # Panics
    /// If it is another graph's.
    pub fn tensor(&self, id: Id) -> Tensor {
        let ty = self.notes.borrow().graph.ty(id).clone();
        Tensor { tape: self.tape.clone(), place: Some(id.0 as usize), ty }
    }

    /// A node that is there already.
    ///
    /// # Panics
    /// If it is another graph's.
    pub fn node(&self, id: Id) -> super::Node {
        self.notes.borrow().graph.node(id).clone()
    }

    /// The node of a handle.
    ///
    /// Fails where there is none after a mistake: with the first mistake and the line that made it.
    pub fn id(&self, tensor: &Tensor) -> Result<Id, Error> {
        let mistake = || self.notes.borrow().error.clone().unwrap_or_else(|| Fault::Nowhere.of("a handle"));
        tensor.place.map(|place| Id(place as u32)).ok_or_else(mistake)
    }

    /// The graph, or the first mistake and the line that made it.
    pub fn finish(self) -> Result<Graph, Error> {
        let mut notes = self.notes.borrow_mut();
        match notes.error.take() {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut notes.graph)),
        }
    }
}

impl Notes {
    /// Keeps the first mistake, with the line that made it.
    fn fail<T>(&mut self, error: Error, at: &'static Location<'static>) -> Option<T> {
        self.error.get_or_insert(Error { source: Some(at), ..error });
        None
    }
}

impl Record for Notes {
    fn apply(
        &mut self,
        op: Op,
        inputs: &[usize],
        ty: Option<Type>,
        at: &'static Location<'static>,
    ) -> Option<(usize, Type)> {
        let inputs: Vec<Id> = inputs.iter().map(|place| Id(*place as u32)).collect();
        match self.graph.add(op, &inputs, ty, &self.scope.join(".")) {
            Ok(id) => Some((id.0 as usize, self.graph.ty(id).clone())),
            Err(error) => self.fail(error, at),
        }
    }

    fn read(&mut self, place: usize, at: &'static Location<'static>) -> Option<Vec<f64>> {
        let error = Fault::Read.at(place, &self.graph.node(Id(place as u32)).op);
        self.fail(error, at)
    }

    fn pointer(&mut self, place: usize, at: &'static Location<'static>) -> Option<usize> {
        let what = "its address is asked for".to_owned();
        let error = Fault::Outside { what }.at(place, &self.graph.node(Id(place as u32)).op);
        self.fail(error, at)
    }

    fn foreign(
        &mut self,
        call: &Foreign,
        _: &[usize],
        at: &'static Location<'static>,
    ) -> Option<(usize, Type)> {
        self.fail(Fault::Outside { what: "a function is called".to_owned() }.of(call.name), at)
    }

    fn does(&self) -> bool {
        false
    }

    fn host(
        &mut self,
        host: Host,
        name: &str,
        _: &dyn Fn() -> f64,
        at: &'static Location<'static>,
    ) -> Option<f64> {
        self.fail(Fault::Outside { what: format!("the host {}", host.does()) }.of(name), at)
    }

    fn write(&mut self, place: usize, _: usize, at: &'static Location<'static>) {
        let what = "its elements are overwritten".to_owned();
        let error = Fault::Outside { what }.at(place, &self.graph.node(Id(place as u32)).op);
        self.fail::<()>(error, at);
    }

    fn know(&mut self, symbol: &str, facts: Facts) {
        self.graph.know(symbol, facts);
    }

    fn output(&mut self, name: &str, place: usize) {
        self.graph.output(name, Id(place as u32));
    }

    fn enter(&mut self, part: &str) {
        self.scope.push(part.to_owned());
    }

    fn leave(&mut self) {
        self.scope.pop();
    }
}
