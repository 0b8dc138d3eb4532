//! How a challenge gets its solution.
//!
//! Solutions are compiled in a package of their own, `challenges/solutions`, on which nothing but a program's last
//! crate depends: a changed line of a solution is built in seconds. So each challenge declares its solution with
//! [`linked!`], that package defines it, and the linker joins the two. The challenge's `Solution` calls it and counts
//! the calls.

/// A solution: its steps, and the text that they were compiled from.
pub struct Linked<T: ?Sized + 'static> {
    /// What they do.
    pub steps: &'static T,
    /// What the exercise is derived from.
    pub text: &'static str,
}

/// Declares a function that the package `solutions` defines.
macro_rules! linked {
    ($name:ident -> $what:ty) => {
        #[allow(unsafe_code)]
        // SAFETY: only the package `solutions` defines such a name, with this type, in the same build.
        unsafe extern "Rust" {
            safe fn $name() -> $what;
        }
    };
}

pub(crate) use linked;
