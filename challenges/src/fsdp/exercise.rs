//! (B) `fsdp`: QLoRA over many ranks, with the loss of one.

use challenges::fsdp::{Activations, Fsdp, Gradient, Host, LayerBytes};
use reference::fsdp::{Cut, Parameter, Placement, Shards};
use reference::graph::{Dtype, Group, Tape, Tensor, Type};
use reference::schedule::{self, Kind, Rule, Schedule, Shape, Workload};

/// The attempt.
pub struct Exercise;

impl Fsdp for Exercise {
    // ANCHOR: fsdp-step-1
    // step B.1: cut a parameter's rows at whole blocks, and each of its parts where those rows need it
    fn place(&self, parameter: &Parameter, ranks: usize) -> Placement {
        todo!("B.1: cut a parameter's rows at whole blocks, and each of its parts where those rows need it")
    }
    // ANCHOR_END: fsdp-step-1

    // ANCHOR: fsdp-step-2
    // step B.2: gather the shards, and take the whole out of them
    fn gather(&self, shard: &Tensor, shards: &Shards, group: &Group) -> Tensor {
        todo!("B.2: gather the shards, and take the whole out of them")
    }
    // ANCHOR_END: fsdp-step-2

    // ANCHOR: fsdp-step-3
    // step B.3: from the last part to the first, keep each that still fits
    fn keep(&self, bytes: &[usize], room: usize) -> Vec<bool> {
        todo!("B.3: from the last part to the first, keep each that still fits")
    }
    // ANCHOR_END: fsdp-step-3

    // ANCHOR: fsdp-step-4
    // step B.4: hand out the sum of everyone's gradients in shards
    fn reduce(&self, gradient: &Tensor, shards: &Shards, group: &Group) -> Tensor {
        todo!("B.4: hand out the sum of everyone's gradients in shards")
    }

    // step B.4: the norm of a gradient in shards
    fn norm(&self, tape: &Tape, gradients: &[Gradient], groups: &[Group]) -> Tensor {
        todo!("B.4: the norm of a gradient in shards")
    }
    // ANCHOR_END: fsdp-step-4

    // ANCHOR: fsdp-step-5
    // step B.5: start a gather early where it and the one before it fit together
    fn prefetch(&self, bytes: &[usize], room: usize) -> Vec<bool> {
        todo!("B.5: start a gather early where it and the one before it fit together")
    }
    // ANCHOR_END: fsdp-step-5

    // ANCHOR: fsdp-step-6
    // step B.6: keep every x, moving the first where there is no room; then whole layers, from the last
    fn activations(&self, layers: &[LayerBytes], room: usize, host: Host) -> Vec<Activations> {
        todo!("B.6: keep every x, moving the first where there is no room; then whole layers, from the last")
    }
    // ANCHOR_END: fsdp-step-6

    // ANCHOR: fsdp-step-7
    // step B.7: by which dimension each parameter of a layer is cut
    fn cut(&self, parameter: &str) -> Cut {
        todo!("B.7: by which dimension each parameter of a layer is cut")
    }

    // step B.7: add up what the ranks' inputs make
    fn join(&self, module: &str, y: &Tensor, group: &Group) -> Tensor {
        todo!("B.7: add up what the ranks' inputs make")
    }

    // step B.7: the gradient of what everyone has
    fn total(&self, gradient: &Tensor, cut: Cut, group: &Group) -> Tensor {
        todo!("B.7: the gradient of what everyone has")
    }
    // ANCHOR_END: fsdp-step-7

    // ANCHOR: fsdp-step-8
    // step B.8: of what can begin first, do B before R before F before W
    fn schedule(&self, shape: Shape, workload: &Workload) -> Result<Schedule, schedule::Error> {
        todo!("B.8: of what can begin first, do B before R before F before W")
    }
    // ANCHOR_END: fsdp-step-8
}
