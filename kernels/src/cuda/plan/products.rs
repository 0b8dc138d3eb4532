//! Products: by cuBLASLt where it has a form for them, else by the room's own kernel, which takes any strides and
//! types.

use std::fmt::Write;

use super::Grid;
use super::params::{KernelParams, Param};
use super::text;
use crate::plan::Product;

/// The template of the room's own kernel.
const TEMPLATE: &str = include_str!("../../../cu/product.cuh");

/// Rows and columns of a block's tile, as the template has them.
const TILE: usize = 64;

/// A product as a kernel.
pub(super) struct Kernel {
    /// The text; `KERNEL` stands for its name.
    pub text: String,
    /// Its argument.
    pub params: Vec<Param>,
    /// Blocks and threads.
    pub grid: Grid,
}

/// The room's own kernel for a product that passed its plan's check.
pub(super) fn kernel(product: &Product) -> Kernel {
    let Product { batch, m, n, k, a, b, elements, to, add, scale, .. } = product;
    let mut params = KernelParams::default();
    let dims = batch.len();
    let sides = [("a", a, ["row", "k"]), ("b", b, ["k", "column"]), ("to", to, ["row", "column"])];
    for ((name, view, last), element) in sides.into_iter().zip(elements) {
        params.push(name, Param::Address(view.memory, (view.offset * element.bytes()) as u64));
        view.strides[..dims]
            .iter()
            .enumerate()
            .for_each(|(dim, s)| params.number(format!("{name}_s{dim}"), *s));
        last.into_iter()
            .zip(&view.strides[dims..])
            .for_each(|(of, s)| params.number(format!("{name}_{of}"), *s));
    }
    batch.iter().enumerate().for_each(|(dim, size)| params.number(format!("size{dim}"), *size));
    let (rows, columns) = (m.div_ceil(TILE), n.div_ceil(TILE));
    let numbers = [("m", *m), ("n", *n), ("k", *k), ("rows", rows), ("columns", columns)];
    for (name, size) in numbers {
        params.number(name, size);
    }
    params.number("scale", scale.to_bits() as usize);
    params.number("add", usize::from(*add));
    let mut at = String::new();
    for dim in (0..dims).rev() {
        let _ = write!(
            at,
            "{{ const u64 one = rest % p.size{dim}; rest /= p.size{dim}; at_a += one * p.a_s{dim}; \
             at_b += one * p.b_s{dim}; at_to += one * p.to_s{dim}; }} "
        );
    }
    let types = elements.map(text::element);
    let text = format!(
        "namespace KERNEL_types {{\n{}#define A {}\n#define B {}\n#define TO {}\n#define BATCH {at}\n{TEMPLATE}\
         #undef A\n#undef B\n#undef TO\n#undef BATCH\n}}\n",
        params.declaration("KERNEL_params"),
        types[0],
        types[1],
        types[2]
    );
    let blocks = batch.iter().product::<usize>() * rows * columns;
    Kernel { text, params: params.finish(), grid: Grid { blocks, threads: 256, shared_bytes: 0 } }
}
