//! The given compiler: a graph in, a plan out.
//!
//! **What is compiled.** A [`reference::graph::Graph`], forward, backward and optimiser together, for given sizes of
//! its symbols. **What comes out.** A [`kernels::plan::Plan`] over an arena: tile programs, products of matrices,
//! attention, scatters, dequantisations, operations between ranks. **What it means.** What the interpreter says: equal
//! where every rounding is defined, elsewhere within the fair tolerance (`tests/tests/workbook/compiled.rs`).
//!
//! Eight decisions are left open: they are the methods of [`Compile`], the contract of challenge C, and nothing here
//! knows who answers them.
//!
//! Each folder and file uses only those above it. A compilation passes through them in another order: [`front`] has
//! recorded a graph, [`rewrite`] and then [`fuse`] and [`memory`] make the plan ([`compile`] has the passes), [`tune`]
//! sets the choices of its products, and [`session`] runs it.
//!
//! | folder | holds |
//! |---|---|
//! | [`ir`] | what all passes speak of: a graph with sizes in numbers ([`ir::sized`]), affine maps between elements ([`ir::map`]), a tile program while it is written ([`ir::code`]), lives and places of buffers ([`ir::arena`]), layers ([`ir::scope`]) |
//! | [`front`] | records an ordinary function over handles ([`front::capture`]), names what cannot be recorded ([`front::explain`]) and why a program gave another graph ([`front::change`]) |
//! | [`contract`] | the eight decisions |
//! | [`fuse`] | writes one tile program for everything between buffers ([`fuse::emit`]), lets products add up in one buffer ([`fuse::sums`]), takes score and mask programs into an attention's launch ([`fuse::attend`]), starts and waits for what ranks do together ([`fuse::collective`]), apart from each other where one may compute in between ([`fuse::overlap`]) |
//! | [`rewrite`] | graph to graph: lengths padded to a bucket ([`rewrite::pad`]), attention, narrow products and collectives in terms that have a step ([`rewrite::attend`], [`rewrite::decompose`], [`rewrite::collective`]), values computed again instead of kept ([`rewrite::remat`]) |
//! | [`memory`] | inputs that are updated in place ([`memory::donate`]), passes that write where they read ([`memory::reuse`]), the bytes alive during each part, as polynomials in the symbols ([`memory::profile`]) |
//! | [`tune`] | times the candidates of each product |
//! | [`calls`] | counts what is compiled, also behind a session's back |
//! | [`compile`] | the passes in their order |
//! | [`groups`] | the ranks that a session works with |
//! | [`store`] | what sessions of several ranks compile once |
//! | [`session`] | keeps what is compiled, by bucket, counts, and runs |
//!
//! Sources: Ansel et al., "`PyTorch` 2" (2024), for what compiles today and where it breaks; Chen et al., "Training
//! Deep Nets with Sublinear Memory Cost" (2016), for computing again instead of keeping.

pub mod calls;
pub mod compile;
pub mod contract;
pub mod front;
pub mod fuse;
pub mod groups;
pub mod ir;
pub mod memory;
pub mod rewrite;
pub mod session;
pub mod store;
pub mod tune;

pub use contract::Compile;
