//! Attempts at every challenge that write their own results, or leave while a guard looks.
//!
//! Each is the solution but for one step. Their honest twins are the honest attempts beside the cheats.

use challenges::nf4::{Nf4, Output, Weight};
use kernels::Cpu;

use super::forge::forge;
use super::honest::nf4::Solution;
use super::{Entry, chat, graph, last, loss};

/// Attempts that look for the connection to the grader, write results into it and leave.
pub const FORGERS: [Entry; 4] = [
    Entry {
        name: "forges A",
        hand_in: |all| all.nf4(last(|_: &Cpu, _: &Weight<'_>, _: Output<'_>| forge())),
    },
    Entry { name: "forges C", hand_in: |all| all.graph(graph::forging()) },
    Entry { name: "forges D", hand_in: |all| all.chat(chat::forging()) },
    Entry { name: "forges E", hand_in: |all| all.loss(loss::forging()) },
];

/// Attempts that are right, and gone where a guard looks or a clock runs.
pub const LEAVERS: [Entry; 4] = [
    Entry { name: "leaves when A is timed", hand_in: |all| all.nf4(leaves_when_timed()) },
    Entry { name: "leaves a guard of C", hand_in: |all| all.graph(graph::leaving()) },
    Entry { name: "leaves a guard of D", hand_in: |all| all.chat(chat::leaving()) },
    Entry { name: "leaves a guard of E", hand_in: |all| all.loss(loss::leaving()) },
];

/// A weight this large is only ever timed.
fn leaves_when_timed() -> impl Nf4 {
    last(|cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        if weight.len >= 2048 * 8192 {
            std::process::exit(0);
        }
        Solution.dequantize_fast(cpu, weight, out);
    })
}
