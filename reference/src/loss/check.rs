//! What is asked of slices and settings before a loss is computed.

use super::Error;

/// A tensor of rows: their number.
pub(super) fn rows(what: &'static str, elements: &[f64], width: usize) -> Result<usize, Error> {
    if width == 0 || elements.is_empty() {
        return Err(Error::Empty { what });
    }
    let got = elements.len();
    if got % width == 0 { Ok(got / width) } else { Err(Error::Width { what, got, width }) }
}

/// As many elements as needed.
pub(super) fn length<T>(what: &'static str, elements: &[T], need: usize) -> Result<(), Error> {
    let got = elements.len();
    if got == need { Ok(()) } else { Err(Error::Length { what, got, need }) }
}

/// As many numbers as needed, none of them NaN or infinite.
pub(super) fn finite(what: &'static str, numbers: &[f64], need: usize) -> Result<(), Error> {
    length(what, numbers, need)?;
    match numbers.iter().position(|number| !number.is_finite()) {
        Some(index) => Err(Error::NotFinite { what, index, got: numbers[index] }),
        None => Ok(()),
    }
}

/// The entry that each row's label names; nothing for an ignored one.
pub(super) fn labels(labels: &[i32], vocab: usize, ignored: i32) -> Result<Vec<Option<usize>>, Error> {
    let entry = |(row, got): (usize, &i32)| match usize::try_from(*got) {
        _ if *got == ignored => Ok(None),
        Ok(entry) if entry < vocab => Ok(Some(entry)),
        _ => Err(Error::Label { row, got: *got, vocab, ignored }),
    };
    labels.iter().enumerate().map(entry).collect()
}

/// A setting, which `fits`.
pub(super) fn setting(what: &'static str, got: f64, fits: bool, need: &'static str) -> Result<(), Error> {
    if fits { Ok(()) } else { Err(Error::Setting { what, got, need }) }
}

/// A setting from 0 to 1.
pub(super) fn share(what: &'static str, got: f64) -> Result<(), Error> {
    setting(what, got, (0.0..=1.0).contains(&got), "0 to 1")
}

/// A setting that is a finite number from 0 on.
pub(super) fn not_negative(what: &'static str, got: f64) -> Result<(), Error> {
    setting(what, got, got >= 0.0 && got.is_finite(), "a finite number from 0 on")
}

/// A setting that is a finite number above 0.
pub(super) fn positive(what: &'static str, got: f64) -> Result<(), Error> {
    setting(what, got, got > 0.0 && got.is_finite(), "a finite number above 0")
}
