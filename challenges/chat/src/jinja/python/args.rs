//! The arguments of a call.

use super::super::error::{Error, Kind};
use super::value::Value;

/// The arguments of a call: those by place, and those by name.
pub(crate) struct Args<'a> {
    pub(crate) positional: &'a [Value],
    pub(crate) named: Vec<(String, Value)>,
}

impl<'a> Args<'a> {
    /// Arguments by place alone.
    pub(crate) fn places(positional: &'a [Value]) -> Args<'a> {
        Args { positional, named: Vec::new() }
    }

    /// The argument at `place`, or of `name`.
    pub(crate) fn get(&self, place: usize, name: &str) -> Option<&Value> {
        self.positional.get(place).or_else(|| self.named(name))
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Value> {
        self.named.iter().find(|(found, _)| found == name).map(|(_, value)| value)
    }

    /// As [`Args::get`]; its absence is a `TypeError`.
    pub(crate) fn need(&self, place: usize, name: &str) -> Result<&Value, Error> {
        self.get(place, name).ok_or_else(|| {
            Error::new(Kind::Type, format!("missing 1 required positional argument: '{name}'"))
        })
    }

    /// Refuses more than `most` arguments by place, and names other than `names`.
    pub(crate) fn only(&self, most: usize, names: &[&str]) -> Result<(), Error> {
        if self.positional.len() > most {
            let message =
                format!("takes {most} positional arguments but {} were given", self.positional.len());
            return Err(Error::new(Kind::Type, message));
        }
        match self.named.iter().find(|(name, _)| !names.contains(&name.as_str())) {
            Some((name, _)) => {
                Err(Error::new(Kind::Type, format!("got an unexpected keyword argument '{name}'")))
            }
            None => Ok(()),
        }
    }
}
