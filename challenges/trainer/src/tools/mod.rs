//! `tools DIR`: a small model learns to call functions, and one sees it.
//!
//! ```text
//! folder.rs --> pretraining.rs     what the kept base was trained on: to repeat and to pick out, and no call
//!           --> requests.rs        what users ask, in several phrasings, and the call that does it
//!               --> functions.rs   the functions; they run
//!               --> draw.rs        names and numbers; every fifth is in no row of training
//! score.rs                         asks, parses, checks, runs
//! ```
//!
//! The held-out requests are asked before training, at each checkpoint and at the end. The training between is
//! `trainer train DIR/config.toml`, in 4 bits.

pub mod draw;
pub mod folder;
pub mod functions;
pub mod pretraining;
pub mod requests;
pub mod score;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use kernels::bytes::Peak;

use crate::output::{Failure, print};
use crate::train::{self, Config};
use score::{Score, Scorer};

/// The flags of `tools`.
#[derive(Debug, Args)]
pub(crate) struct Tools {
    /// A new folder for the model, the data, the config and the run
    folder: PathBuf,
    /// Steps of the training
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Requests that are asked before, while and after it trains
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    requests: u32,
    /// Writes the model, the data and the config, and trains nothing
    #[arg(long)]
    only_files: bool,
    /// Writes what the example's base was made from, and trains nothing
    #[arg(long, conflicts_with = "only_files")]
    pretraining: bool,
}

/// Runs `tools`.
pub(crate) fn run(tools: &Tools) -> Result<u8, Failure> {
    let (folder, begin) = (&tools.folder, Instant::now());
    if folder.exists() {
        return Err(Failure::Usage(format!("{}: expected no such folder, found one", folder.display())));
    }
    let path = folder.join("config.toml");
    if tools.pretraining || tools.only_files {
        if tools.pretraining {
            folder::write_pretraining(folder)?;
        } else {
            folder::write_example(folder, tools.steps)?;
        }
        print(&format!("cargo trainer train {} trains it\n", path.display()));
        return Ok(0);
    }
    folder::write_example(folder, tools.steps)?;
    let config = Config::read(&path, &[])?;
    let scorer = Scorer::open(Path::new(&config.model_name_or_path), folder::held_out(tools.requests))?;
    print(&format!("{} requests with names and numbers that are in no row of training\n", tools.requests));
    print(&told("before training", &scorer.score(None)?));
    let code = train::fit(&config, Peak::begin(), &mut move |step, checkpoint| {
        Ok(told(&format!("after step {step}"), &scorer.score(Some(checkpoint))?))
    })?;
    print(&format!("{:.0} s in all\n", begin.elapsed().as_secs_f64()));
    Ok(code)
}

/// A score, and the first request with its answer.
fn told(when: &str, score: &Score) -> String {
    let Score { asked, valid, right, sample: [request, answer] } = score;
    format!(
        "{when}: {right} of {asked} calls are right, {valid} valid\n    user:      {request}\n    assistant: {}\n",
        reference::clean::clean(answer)
    )
}
