//! The steps of writing a GGUF file: challenge D's contract of `gguf`.

use reference::checkpoint::gguf::{TensorType, Value};
use reference::issues::gguf::{Piece, Projector, TextModel};
use reference::llama::Rope;

// ANCHOR: gguf-trait
/// The steps of writing a GGUF file, from small to large.
pub trait Gguf: Sync {
    /// D.19 - the sizes of a tensor as a file has them: the one that runs fastest first. A weight (out, in) of a
    /// checkpoint, row-major, has [in, out]; its bytes stay where they are.
    fn sizes(&self, shape: &[usize]) -> Vec<usize>;

    /// D.19 - for each row of a weight of queries or keys as the architecture `llama` has it, which of the checkpoint's
    /// `rows` it is. A head has D = rows / heads of them, an even number. A checkpoint's rotary embedding turns row p
    /// of a head with row p + D / 2; the file's turns row 2p with row 2p + 1.
    fn rotary_rows(&self, rows: usize, heads: usize) -> Vec<usize>;

    /// D.19 - what divides each of the D / 2 frequencies theta^(-2i / D), in f32 within 1e-5; nothing unless the
    /// scaling is [`Llama3`](reference::llama::Scaling::Llama3), whose factors differ. With `original` f / 2 pi turns
    /// in the length of the first training: the `factor` below `low` of them, 1 above `high`, and between them
    /// 1 / ((1 - s) / factor + s) with s = (turns - low) / (high - low).
    fn rope_factors(&self, rope: &Rope, head_dim: usize) -> Option<Vec<f32>>;

    /// D.20 - finite numbers as blocks of `F32`, `F16`, `BF16`, `Q8_0`, `Q4_0`, `Q4_1`, `Q5_0` or `Q5_1`, little
    /// endian, one after the other; there are whole blocks of them. To the bit as the chapter's table says.
    fn quantize(&self, ty: TensorType, numbers: &[f32]) -> Vec<u8>;

    /// D.21 - what a tensor of a checkpoint becomes in the file of the language model; nothing if it is no weight or
    /// bias of it, or of a layer that the model does not have. A model that sees images has the names of one that does
    /// not behind `language_model.`, or `model.language_model.` in the place of `model.`, or nothing.
    fn text_tensor(&self, model: &TextModel, name: &str) -> Option<Piece>;

    /// D.21 - the keys that describe the language model, in any order.
    fn text_keys(&self, model: &TextModel) -> Vec<(String, Value)>;

    /// D.22 - what a tensor of a checkpoint becomes in the file of the projector: nothing, if it is no tensor of tower
    /// or projector, of a block that the tower does not have, or the final norm of CLIP's tower; else one piece, or
    /// several in their order. Names may have `model.` in front, and CLIP's `vision_model.` behind `vision_tower.`.
    fn projector_tensors(&self, projector: &Projector, name: &str, shape: &[usize]) -> Vec<Piece>;

    /// D.22 - the keys that describe tower and projector, in any order.
    fn projector_keys(&self, projector: &Projector) -> Vec<(String, Value)>;
}
// ANCHOR_END: gguf-trait
