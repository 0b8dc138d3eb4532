//! Tables of checks, guards and measurements: a name stands once, beside the function that runs under it.
//!
//! Whatever else needs the names (the items, the evidence, `verify-report`) takes them from the table. No name is
//! compared with a string anywhere else, so none can run what another one names; a name that no row has is an error.

use crate::gather::Item;

/// Names and functions.
pub(crate) type Rows<F> = [(&'static str, F)];

/// Steps with their checks, both in order.
pub(crate) type Steps<F> = [(&'static str, &'static Rows<F>)];

/// The names of a table.
pub(crate) const fn names<F, const N: usize>(rows: &[(&'static str, F); N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut row = 0;
    while row < N {
        names[row] = rows[row].0;
        row += 1;
    }
    names
}

/// The function of a name.
///
/// # Errors
/// If no row has that name.
pub(crate) fn find<'a, N: AsRef<str>, F>(rows: &'a [(N, F)], name: &str) -> Result<&'a F, String> {
    let row = rows.iter().find(|(known, _)| known.as_ref() == name);
    row.map(|(_, run)| run).ok_or_else(|| unknown(name))
}

/// The checks that ask the same in every run, all but those that are named after what is drawn for them.
pub(crate) fn fixed<F>(rows: &Rows<F>) -> impl Iterator<Item = &F> {
    rows.iter().filter(|(name, _)| !name.contains("drawn")).map(|(_, run)| run)
}

/// Every check's name, in the order of the steps: `C.1/operations-alone`.
pub(crate) fn checks<F>(steps: &Steps<F>) -> Vec<String> {
    let of_step = |(step, rows): &(&str, &'static Rows<F>)| {
        rows.iter().map(|(case, _)| format!("{step}/{case}")).collect()
    };
    steps.iter().flat_map(|step| -> Vec<String> { of_step(step) }).collect()
}

/// A check's step, case and function.
///
/// # Errors
/// If no step has a check of that name.
pub(crate) fn check<F: Copy>(
    steps: &Steps<F>,
    name: &str,
) -> Result<(&'static str, &'static str, F), String> {
    let (step, case) = name.split_once('/').ok_or_else(|| unknown(name))?;
    let of_step = steps.iter().find(|(known, _)| *known == step);
    let row = of_step.and_then(|(step, rows)| {
        let (case, run) = rows.iter().find(|(known, _)| *known == case)?;
        Some((*step, *case, *run))
    });
    row.ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> String {
    format!("expected the name of a check, guard or measurement, found {name:?}")
}

/// What is measured: `watch/...` or `bench/...`.
#[derive(Clone, Copy)]
pub(crate) struct Measured<F> {
    /// The item's name.
    pub name: &'static str,
    /// Its time limit in seconds.
    pub seconds: u64,
    /// The numbers that it gives; `*` stands for any text.
    pub numbers: &'static [&'static str],
    /// Whether it needs a process that has run nothing before.
    pub fresh: bool,
    /// Whether `--quick` measures it, too.
    pub quick: bool,
    /// What measures them.
    pub run: F,
}

impl<F> Measured<F> {
    /// What there is to do.
    pub fn item(&self) -> Item {
        let item = Item::new(self.name, self.seconds).measuring(self.numbers);
        if self.fresh { item.fresh() } else { item }
    }
}

/// What measures under a name.
///
/// # Errors
/// If nothing of that name is measured.
pub(crate) fn measured<F: Copy>(rows: &[Measured<F>], name: &str) -> Result<F, String> {
    rows.iter().find(|row| row.name == name).map(|row| row.run).ok_or_else(|| unknown(name))
}

/// What measures under a name, where the items are made of lists.
///
/// # Errors
/// If nothing of that name is measured.
pub(crate) fn made<'a, F>(rows: &'a [(Item, F)], name: &str) -> Result<&'a F, String> {
    rows.iter().find(|(item, _)| item.name == name).map(|(_, run)| run).ok_or_else(|| unknown(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: &Steps<fn() -> u8> = &[("T.1", &[("a", || 1), ("b", || 2)]), ("T.2", &[("a", || 3)])];

    #[test]
    fn a_name_runs_what_stands_beside_it_and_an_unknown_one_nothing() {
        assert_eq!(checks(STEPS), ["T.1/a", "T.1/b", "T.2/a"]);
        let ran = checks(STEPS).iter().map(|name| (check(STEPS, name).unwrap().2)()).collect::<Vec<_>>();
        assert_eq!(ran, [1, 2, 3]);
        for unknown in ["T.1", "T.2/b", "T.3/a", "", "/", "T.1/"] {
            assert!(check(STEPS, unknown).unwrap_err().contains(&format!("{unknown:?}")), "{unknown}");
        }
        let rows: &[(&str, u8); 2] = &[("x", 1), ("y", 2)];
        assert_eq!((names(rows), find(rows, "y")), (["x", "y"], Ok(&2)));
        assert!(find(rows, "z").is_err());
    }
}
