//! The features that a request may want and a back end may have.

use std::fmt;

/// What an attention may want.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// [`Rules::causal`].
    Causal,
    /// [`Rules::window`].
    Window,
    /// [`Rules::prefix`].
    Prefix,
    /// Several documents in a row.
    Documents,
    /// Padding before the tokens of a row.
    LeftPadding,
    /// Padding after them.
    RightPadding,
    /// [`Request::softcap`].
    SoftCap,
    /// [`Request::alibi`].
    Alibi,
    /// [`Request::score`].
    ScoreProgram,
    /// [`Request::mask`].
    MaskProgram,
    /// Fewer heads of keys than of queries.
    GroupedHeads,
    /// Fewer queries than keys.
    ShortQueries,
    /// A few queries against a cache of keys.
    Decoding,
    /// Logarithms of the sums as a result.
    Lse,
    /// [`Request::keep`].
    Dropout,
    /// [`Request::sinks`].
    Sinks,
    /// Gradients of q, k and v.
    Gradients,
    /// Lengths that are not known when it is compiled.
    DynamicLengths,
}

impl Feature {
    /// All of them, in the order in which a request lists them.
    pub const ALL: [Self; 18] = [
        Self::Causal,
        Self::Window,
        Self::Prefix,
        Self::Documents,
        Self::LeftPadding,
        Self::RightPadding,
        Self::SoftCap,
        Self::Alibi,
        Self::ScoreProgram,
        Self::MaskProgram,
        Self::GroupedHeads,
        Self::ShortQueries,
        Self::Decoding,
        Self::Lse,
        Self::Dropout,
        Self::Sinks,
        Self::Gradients,
        Self::DynamicLengths,
    ];
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Causal => "causal",
            Self::Window => "window",
            Self::Prefix => "prefix",
            Self::Documents => "documents",
            Self::LeftPadding => "left padding",
            Self::RightPadding => "right padding",
            Self::SoftCap => "soft cap",
            Self::Alibi => "ALiBi",
            Self::ScoreProgram => "score program",
            Self::MaskProgram => "mask program",
            Self::GroupedHeads => "grouped heads",
            Self::ShortQueries => "short queries",
            Self::Decoding => "decoding",
            Self::Lse => "log-sum-exp",
            Self::Dropout => "dropout",
            Self::Sinks => "sinks",
            Self::Gradients => "gradients",
            Self::DynamicLengths => "dynamic lengths",
        })
    }
}
