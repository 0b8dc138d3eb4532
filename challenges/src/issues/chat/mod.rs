//! (D) `chat`: chat templates, as transformers renders them.

pub mod clock;
pub mod continued;
pub mod error;
pub mod limits;
pub mod render;
pub mod spans;

mod python;
mod syntax;

pub use clock::{Clock, Moment};
pub use error::{Error, Kind};
pub use limits::Limits;
pub use python::json::Layout;
pub use render::{Options, Rendered, Template, Variables};
