//! What a plan calls: the dequantiser of challenge A, as it was handed in.
//!
//! A step of a plan says as data what is wanted, [`Dequantize`]: how long the weight is, how its scales lie, which part
//! of it is needed, and in which type. Who does it is a [`Callee`], which is linked when the plan is prepared. A callee
//! has a form for each kind of device that it can serve: Rust on a CPU, a kernel's text on a card. Each form belongs to
//! its device. A device takes the form that it can run, and refuses a callee that has none while nothing has run yet.

pub use crate::cpu::{HostCallee, Quantized, Scales};
pub use crate::cuda::{CardCallee, CardDequantizer, CardWeight};
pub use crate::plan::{Dequantize, WeightPart};

/// A dequantiser in the forms that it has.
pub trait Callee: Sync {
    /// For errors.
    fn name(&self) -> &str;

    /// Its form in Rust, if there is one.
    fn host(&self) -> Option<&dyn HostCallee>;

    /// Its form in CUDA C++, if there is one.
    fn card(&self) -> Option<&dyn CardCallee> {
        None
    }
}
