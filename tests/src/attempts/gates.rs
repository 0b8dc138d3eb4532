//! An honest attempt that waits in one check of A and in one of E until a test lets it go on, so that the test sees
//! what was printed before.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Entry;
use super::faults::Fault;
use super::loss::with_rows;

/// The attempt.
pub const GATED: [Entry; 1] = [Entry {
    name: "waits at two gates",
    hand_in: |all| {
        let chunks = with_rows(|problem| {
            wait_at("E");
            Ok(problem.loss.clone())
        });
        all.nf4(Fault(|| wait_at("A"))).loss(chunks)
    },
}];

/// The checks that it waits in.
const CASE: &str = "scale";

/// The gates: `A` at a block whose scale is zero, `E` at the rows of a loss.
pub struct Gates(PathBuf);

impl Gates {
    /// The environment variable that names their folder.
    pub const FOLDER: &'static str = "WARPBOOK_GATES";

    /// All are shut.
    pub fn new(folder: &Path) -> Self {
        Self(folder.to_path_buf())
    }

    /// Arguments with which few checks but those that wait are run.
    pub fn arguments() -> [&'static str; 7] {
        ["test", "nf4", "loss", "--case", CASE, "--seed", "0x1"]
    }

    /// Lets the attempt through, now or when it comes.
    ///
    /// # Panics
    /// If the folder cannot be written.
    pub fn open(&self, gate: &str) {
        std::fs::write(self.0.join(gate), "").expect("a gate is a file");
    }

    /// Whether the attempt has come to a gate.
    pub fn is_reached(&self, gate: &str) -> bool {
        self.reached(gate).exists()
    }

    fn reached(&self, gate: &str) -> PathBuf {
        self.0.join(gate).with_extension("reached")
    }
}

/// Waits until a gate is open; the grader's time limit ends what waits for ever.
fn wait_at(gate: &str) {
    let gates = Gates(std::env::var_os(Gates::FOLDER).expect("the test says where its gates are").into());
    std::fs::write(gates.reached(gate), "").expect("the folder of the gates can be written");
    while !gates.0.join(gate).exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
}
