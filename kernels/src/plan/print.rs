//! Plans as text: one step a line.

use std::fmt;

use super::{AttentionGrad, Plan, Product, Step, View};

impl Step {
    /// What it is, for reports.
    pub fn name(&self) -> String {
        match self {
            Step::Pass { program, .. } => program.name.clone(),
            Step::Product(product) => format!("product {}x{}x{}", product.m, product.n, product.k),
            Step::Attention { .. } => "attention".into(),
            Step::AttentionGrad(_) => "attention_grad".into(),
            Step::Scatter { .. } => "scatter".into(),
            Step::Call { name, .. } => name.clone(),
            Step::Start(start) => start.what.to_string(),
            Step::Wait { ticket } => format!("wait {ticket}"),
        }
    }
}

impl fmt::Display for Plan {
    /// One step a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "plan {} ({} steps, arena of {} bytes)", self.name, self.steps.len(), self.arena_bytes)?;
        self.steps.iter().enumerate().try_for_each(|(number, step)| writeln!(f, "  {number}: {step}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |views: &[View]| views.iter().map(View::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Step::Pass { program, space, inputs, outputs } => {
                write!(f, "{} over {space:?}: {} -> {}", program.name, list(inputs), list(outputs))
            }
            Step::Product(product) => {
                let Product { batch, a, b, to, add, scale, choice, .. } = product;
                let into = if *add { "+=" } else { "=" };
                write!(f, "{} of {batch:?}, by {choice:?}: {to} {into} {scale} * {a} * {b}", self.name())
            }
            Step::Attention { attention, output, lse } => {
                write!(f, "attention {attention} -> {output}")?;
                lse.iter().try_for_each(|lse| write!(f, ", {lse}"))
            }
            Step::AttentionGrad(grad) => {
                let AttentionGrad { attention, output, lse, grad, wrt_q, wrt_k, wrt_v, .. } = &**grad;
                let wrt: Vec<View> = [wrt_q, wrt_k, wrt_v].into_iter().flatten().cloned().collect();
                write!(f, "attention_grad {attention}, {output}, {lse}, {grad} -> {}", list(&wrt))
            }
            Step::Scatter { rows, index, to, count, width, table } => {
                write!(f, "scatter {count} rows of {width} to {table}: {rows}, {index} -> {to}")
            }
            Step::Call { name, inputs, output, .. } => write!(f, "{name}: {} -> {output}", list(inputs)),
            Step::Start(start) => start.fmt(f),
            Step::Wait { .. } => f.write_str(&self.name()),
        }
    }
}
