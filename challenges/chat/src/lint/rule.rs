//! What can be wrong with a template.

/// A way in which a template loses, changes or mislabels what it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Rule {
    /// A user's or an assistant's text is not written at all.
    Unusable,
    /// A system message is refused or lost.
    NoSystem,
    /// White space inside a text is changed.
    LosesSpace,
    /// The beginning of a turn that a model is given is not how turns begin.
    PromptDiffers,
    /// The text depends on the day.
    TellsTime,
    /// Tools are given, and the model is not told of them.
    DropsTools,
    /// The model is told a tool's name, and not all that it is declared by.
    CutsTools,
    /// A call of the assistant is refused or lost.
    DropsCall,
    /// What the assistant says beside a call is lost.
    DropsContent,
    /// Arguments are read as an object only.
    NeedsObject,
    /// Arguments are read as JSON text only.
    NeedsText,
    /// Arguments that are JSON text are written as a JSON string.
    EncodesTwice,
    /// Arguments are written as Python prints a dict.
    PythonArguments,
    /// A tool's message is refused.
    NoToolRole,
    /// What a tool answered is lost.
    DropsResult,
    /// A tool's text is written as a JSON string.
    QuotesResult,
    /// No text is marked as the assistant's.
    NoGeneration,
    /// Some of the assistant's text is outside the marks.
    LeavesText,
    /// The end of the assistant's turn is outside the marks.
    LeavesEnd,
    /// Text that is not the assistant's is inside the marks.
    TrainsInput,
}

impl Rule {
    /// All of them, in the order in which they are reported.
    pub const ALL: [Rule; 20] = [
        Rule::Unusable,
        Rule::NoSystem,
        Rule::LosesSpace,
        Rule::PromptDiffers,
        Rule::TellsTime,
        Rule::DropsTools,
        Rule::CutsTools,
        Rule::DropsCall,
        Rule::DropsContent,
        Rule::NeedsObject,
        Rule::NeedsText,
        Rule::EncodesTwice,
        Rule::PythonArguments,
        Rule::NoToolRole,
        Rule::DropsResult,
        Rule::QuotesResult,
        Rule::NoGeneration,
        Rule::LeavesText,
        Rule::LeavesEnd,
        Rule::TrainsInput,
    ];

    /// The name by which a report calls it.
    pub fn name(self) -> &'static str {
        self.describe().0
    }

    /// What it costs, in one sentence.
    pub fn sentence(self) -> &'static str {
        self.describe().1
    }

    fn describe(self) -> (&'static str, &'static str) {
        match self {
            Rule::Unusable => ("unusable", "the template does not write what a user and an assistant say"),
            Rule::NoSystem => ("no-system", "the template refuses or loses a system message"),
            Rule::LosesSpace => {
                ("loses-space", "white space inside a text is changed, which code cannot bear")
            }
            Rule::PromptDiffers => (
                "prompt-differs",
                "the turn that a model is asked to go on with begins otherwise than it was trained on",
            ),
            Rule::TellsTime => ("tells-time", "the same conversation is another text on another day"),
            Rule::DropsTools => ("drops-tools", "the model is not told of the tools that it may call"),
            Rule::CutsTools => {
                ("cuts-tools", "the model is told a tool's name, and not all that declares it")
            }
            Rule::DropsCall => ("drops-call", "a model that is trained on the text never learns to call"),
            Rule::DropsContent => ("drops-content", "what the assistant says beside a call is lost"),
            Rule::NeedsObject => {
                ("needs-object", "arguments that are JSON text, as the APIs send them, are not taken")
            }
            Rule::NeedsText => {
                ("needs-text", "arguments that are an object, as data sets keep them, are not taken")
            }
            Rule::EncodesTwice => {
                ("encodes-arguments-twice", "arguments that are JSON text become a JSON string of JSON")
            }
            Rule::PythonArguments => (
                "python-arguments",
                "arguments are written as Python prints them, which no JSON parser reads",
            ),
            Rule::NoToolRole => ("no-tool-role", "the template refuses what a tool answers"),
            Rule::DropsResult => ("drops-result", "the model does not see what a tool answered"),
            Rule::QuotesResult => {
                ("quotes-result", "a tool's text is written as a JSON string, its quotes escaped")
            }
            Rule::NoGeneration => {
                ("no-generation", "nothing says which text is the assistant's: a mask would be empty")
            }
            Rule::LeavesText => ("leaves-text", "the model is not trained on all that the assistant says"),
            Rule::LeavesEnd => ("leaves-end", "the model is not trained to end its turn"),
            Rule::TrainsInput => ("trains-input", "the model is trained to write what others say"),
        }
    }

    /// Whether it is about the marks around the assistant's text, and not about the text.
    pub fn is_about_marks(self) -> bool {
        matches!(self, Rule::NoGeneration | Rule::LeavesText | Rule::LeavesEnd | Rule::TrainsInput)
    }
}
