//! Parameters in shards: what a placement means.
//!
//! A parameter is stored as one tensor, or, quantised, as several: its [`Part`]s. On n ranks each part is cut into n
//! shards, so that a rank holds some rows of the parameter and can decode them by itself:
//!
//! ```text
//! NF4, 6 rows of 128, second level of 4 codes, 2 ranks
//!                      rank 0          rank 1
//! packed       384 B   0..192          192..384
//! absmax       12      0..6            6..12
//! nested       3       0..2            1..3             the second scale stands for blocks of both: both hold it
//! quant_map    16      0..16           0..16            tables and the offset: everyone's
//! ```
//!
//! All shards of a part are equally long, as an all-gather asks for it: what a rank has less is padding
//! ([`Shards::len`]). What everyone's shards are together is [`Shards::whole`], which needs no device: the bytes of the
//! file, whatever they mean.
//!
//! ```text
//! placement    what each rank holds of a parameter; what shards are, cut and put together
//! tensor       layers that several ranks share: tensor parallelism
//! check        whether a placement is one: complete, decodable rank by rank, no larger than a rank's share
//! ```
//!
//! Sources: Rajbhandari et al., "`ZeRO`" (2020), stage 3, for parameters in shards; torch's FSDP2 (`fully_shard`), which
//! cuts each parameter by its first dimension; Dettmers et al., "`QLoRA`" (2023), for blocks and double quantisation.

mod check;
mod placement;
mod tensor;

pub use check::{Fault, check};
pub use placement::{Parameter, Part, Placement, Shards};
pub use tensor::{Cut, Shared, Uneven, local};
