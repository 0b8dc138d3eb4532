//! (D) What a vision-language model reads: images as patches, texts with images in them as rows, towers as graphs.
//!
//! ```text
//! image --size--> its size --resample--> pixels --patches--> floats and a grid --tower--> features (N, H) -+
//! text  --expanded: as many tokens for an image as it has features--> row --positions, labels--> batch ----+--> model
//! ```
//!
//! Nothing here decodes a file: an [`Image`] is bytes of red, green and blue. The language model is
//! [`llama`](crate::llama)'s, with [`Images`](crate::llama::Images) in it; a [`Vision`] is what its checkpoint has
//! beside that.

mod collate;
mod error;
mod model;
mod patches;
mod processor;
mod resample;
mod size;
mod tower;

pub use collate::{Batch, Placeholders, Positions, Row, Sample, Side};
pub use error::Error;
pub use model::{FeatureError, Vision};
pub use patches::{Cut, Grid, Normalization};
pub use resample::{COLOURS, Image};
pub use size::{LARGEST_AREA, LARGEST_RATIO, LONGEST_EDGE, Rule, Size};
pub use tower::{Clip, Qwen, Tower, erf, gelu};
