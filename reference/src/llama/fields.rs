//! The fields of a JSON object, asked for one by one: each answer is checked, each error names the field.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

use super::Error;
use crate::json;

/// A JSON object, and where it stands in its file.
#[derive(Clone)]
pub(crate) struct Fields {
    within: String, // such as `rope_scaling.`
    map: Map<String, Value>,
}

impl Fields {
    /// The object that a file holds.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let bytes = fs::read(path).map_err(|source| Error::Open { source })?;
        let map = json::parse(&bytes).map_err(|source| Error::Json { source })?;
        Ok(Self { within: String::new(), map })
    }

    /// A field that is there and not null.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.map.get(field).filter(|value| !value.is_null())
    }

    /// Every field that is there.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.map.keys().map(String::as_str)
    }

    /// Returns true if no field is there.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// An object inside.
    pub fn object(&self, field: &str) -> Result<Option<Fields>, Error> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Object(map)) => {
                Ok(Some(Fields { within: format!("{}{field}.", self.within), map: map.clone() }))
            }
            Some(_) => Err(self.wrong(field, "an object or null")),
        }
    }

    /// A size from 1 to `max`.
    pub fn size(&self, field: &str, max: usize) -> Result<Option<usize>, Error> {
        let sound = |value: &Value| value.as_u64().filter(|size| (1..=max as u64).contains(size));
        let need = format!("an integer from 1 to {max}");
        self.ask(field, &need, |value| sound(value).map(|size| size as usize))
    }

    /// A finite number above 0.
    pub fn positive(&self, field: &str) -> Result<Option<f64>, Error> {
        let sound = |value: &Value| value.as_f64().filter(|number| number.is_finite() && *number > 0.0);
        self.ask(field, "a number above 0", sound)
    }

    /// Yes or no; no, if it is missing.
    pub fn flag(&self, field: &str) -> Result<bool, Error> {
        Ok(self.ask(field, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    /// A text.
    pub fn text(&self, field: &str) -> Result<Option<String>, Error> {
        self.ask(field, "a text", |value| value.as_str().map(str::to_owned))
    }

    /// A field as `read` understands it.
    fn ask<T>(
        &self,
        field: &str,
        need: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        self.get(field).map(|value| read(value).ok_or_else(|| self.wrong(field, need))).transpose()
    }

    /// That a field, where it is there, has the one value that is known here.
    pub fn only(&self, field: &str, value: impl Into<Value>) -> Result<(), Error> {
        let known = value.into();
        match self.get(field) {
            Some(got) if *got != known => Err(self.wrong(field, &known.to_string())),
            _ => Ok(()),
        }
    }

    /// The same of a number.
    pub fn only_number(&self, field: &str, number: f64) -> Result<(), Error> {
        match self.get(field) {
            Some(got) if got.as_f64() != Some(number) => Err(self.wrong(field, &number.to_string())),
            _ => Ok(()),
        }
    }

    /// The error that a field has a value which cannot be used, or is missing.
    pub fn wrong(&self, field: &str, need: &str) -> Error {
        let (name, need) = (format!("{}{field}", self.within), need.to_owned());
        match self.get(field) {
            Some(got) => Error::Field { field: name, got: got.to_string(), need },
            None => Error::MissingField { field: name, need },
        }
    }
}
