//! How a challenge gets its solution.
//!
//! Solutions are compiled in a package of their own, `challenges/solutions`, on which nothing but a program's last
//! crate depends: a changed line of a solution is built in seconds. So each challenge declares its solution with
//! [`linked!`], that package defines it, and the linker joins the two. The challenge's `Solution` calls it.
//!
//! The package `solutions` wraps its steps in the challenge's `Counted`, which counts every call. So a call counts
//! whether it comes through the challenge's `Solution` or through the linked name itself.
//!
//! This is a package because both rooms that declare solutions use it: `chat`, whose renderers take the solution's
//! steps by default, and `challenges`.

mod calls;

pub use calls::Calls;

use std::cell::Cell;

/// A solution: its steps, and the text that they were compiled from.
pub struct Linked<T: ?Sized + 'static> {
    /// What they do.
    pub steps: &'static T,
    /// What the exercise is derived from.
    pub text: &'static str,
}

/// Declares a function that the package `solutions` defines.
#[macro_export]
macro_rules! linked {
    ($name:ident -> $what:ty) => {
        #[allow(unsafe_code)]
        // SAFETY: only the package `solutions` defines such a name, with this type, in the same build.
        unsafe extern "Rust" {
            safe fn $name() -> $what;
        }
    };
}

thread_local! {
    /// The calls that this thread made to solutions.
    static OF_THIS_THREAD: Cell<u64> = const { Cell::new(0) };
}

/// Calls of the present thread so far to any step of any solution.
pub fn solution_calls_of_this_thread() -> u64 {
    OF_THIS_THREAD.get()
}

/// Counts a call of the present thread to a solution.
pub fn count_for_this_thread() {
    OF_THIS_THREAD.set(OF_THIS_THREAD.get() + 1);
}

/// Defines a challenge's `Solution`, which forwards to what is linked, and its `Counted`, which counts the calls of the
/// steps that it wraps. The methods are those of the trait.
#[macro_export]
macro_rules! counted {
    (
        $challenge:ident, $linked:ident;
        $(fn $step:ident(&self $(, $name:ident: $type:ty)* $(,)?) $(-> $answer:ty)?;)*
    ) => {
        static CALLS: $crate::Calls = $crate::Calls::new();

        /// Calls of this process so far to any step of [`Solution`], by whatever way.
        pub fn solution_calls() -> u64 {
            CALLS.so_far()
        }

        /// The solution. It counts its calls: an attempt has to do its own work.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Solution;

        /// Steps of a solution that count the calls made to them. Calls between the steps inside do not count.
        pub struct Counted<T>(pub T);

        impl $challenge for Solution {
            $(fn $step(&self $(, $name: $type)*) $(-> $answer)? {
                $linked().steps.$step($($name),*)
            })*
        }

        impl<T: $challenge> $challenge for Counted<T> {
            $(fn $step(&self $(, $name: $type)*) $(-> $answer)? {
                CALLS.count();
                $crate::count_for_this_thread();
                self.0.$step($($name),*)
            })*
        }
    };
}
