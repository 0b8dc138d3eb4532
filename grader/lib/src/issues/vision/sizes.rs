//! D.23: the size that an image is resized to.

use challenges::issues::vision::{Error, LONGEST_EDGE, Rule, Size, Vision};

use super::super::part::{likely, same};
use super::{Check, Rows, drawn};
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    // of Qwen2-VL's processor
    ("areas", |steps, _| {
        area(steps, 28, [3136, 1_003_520], [1804, 2136], [896, 1064])?;
        area(steps, 32, [3136, 200_704], [1205, 2784], [288, 672])?;
        area(steps, 28, [3136, 18_816], [97, 33], [112, 56])?;
        area(steps, 28, [3136, 18_816], [14, 14], [56, 56])
    }),
    ("halves-go-to-the-even", |steps, _| {
        area(steps, 28, [1, 1_000_000], [42, 70], [56, 56])?;
        area(steps, 28, [1, 1_000_000], [98, 126], [112, 112])?;
        area(steps, 2, [1, 1_000_000], [5, 7], [4, 8])
    }),
    ("at-least-one-patch", |steps, _| {
        area(steps, 28, [1, 784], [20, 1900], [28, 252])?;
        area(steps, 28, [1, 1], [500, 500], [28, 28])
    }),
    ("no-rounded-edge-at-all", |steps, _| {
        area(steps, 28, [1, 10_000], [5, 5], [28, 28])?;
        area(steps, 28, [1, 784], [10, 1900], [28, 28])
    }),
    ("crops", |steps, _| {
        let crop = Rule::Crop { edge: 56 };
        sized(steps, crop, [97, 33], [164, 56])?;
        sized(steps, crop, [28, 300], [56, 600])?;
        sized(steps, crop, [14, 14], [56, 56])?;
        sized(steps, Rule::Crop { edge: 336 }, [481, 640], [336, 447])
    }),
    ("longest-edges", |steps, _| {
        let longest = Rule::Longest { edge: 128, patch: 16 };
        sized(steps, longest, [97, 33], [112, 48])?;
        sized(steps, longest, [28, 300], [16, 128])?;
        sized(steps, longest, [201, 143], [128, 96])?;
        sized(steps, longest, [14, 14], [16, 16])?;
        sized(steps, longest, [128, 1], [128, 16])
    }),
    ("a-largest-size-is-given", |steps, _| {
        let area = AREA;
        let longest = Rule::Longest { edge: 1024, patch: 16 };
        limited(steps, area, Some(5000), &Ok(Rule::Area { factor: 28, least: 3136, most: 5000 }))?;
        limited(steps, longest, Some(64), &Ok(Rule::Longest { edge: 64, patch: 16 }))?;
        limited(steps, Rule::Crop { edge: 336 }, Some(336), &Ok(Rule::Crop { edge: 336 }))
    }),
    ("the-models-own-size", |steps, _| {
        [
            Rule::Area { factor: 28, least: 1, most: 7 },
            Rule::Longest { edge: 9, patch: 2 },
            Rule::Crop { edge: 5 },
        ]
        .into_iter()
        .try_for_each(|rule| limited(steps, rule, None, &Ok(rule)))
    }),
    ("sizes-that-cannot-be-given", |steps, _| {
        let of_zero = Err(Error::Limit { only: None, got: 0 });
        limited(steps, Rule::Area { factor: 28, least: 1, most: 7 }, Some(0), &of_zero)?;
        limited(steps, Rule::Longest { edge: 9, patch: 2 }, Some(0), &of_zero)?;
        [0, 335, 1024].into_iter().try_for_each(|got| {
            limited(steps, Rule::Crop { edge: 336 }, Some(got), &Err(Error::Limit { only: Some(336), got }))
        })
    }),
    ("long-and-thin", |steps, _| {
        let area = AREA;
        sized(steps, area, [1, 200], [28, 812])?;
        refused(steps, area, [1, 201], Error::Ratio { ratio: 201.0 })?;
        refused(steps, area, [100_000, 1], Error::Ratio { ratio: 100_000.0 })?;
        refused(steps, area, [6, 1252], Error::Ratio { ratio: 1252.0 / 6.0 })
    }),
    ("no-pixels", |steps, _| {
        for rule in [Rule::Crop { edge: 5 }, Rule::Longest { edge: 5, patch: 2 }, AREA] {
            for edges in [[0, 5], [5, 0], [0, 0], [LONGEST_EDGE + 1, 5], [5, usize::MAX]] {
                refused(steps, rule, edges, Error::Size { size: Size::new(edges[0], edges[1]) })?;
            }
        }
        Ok(())
    }),
    ("nothing-is-left", |steps, _| {
        let to = Size::new(0, 64);
        let size = Size::new(1, 100_000);
        refused(steps, Rule::Longest { edge: 64, patch: 16 }, [1, 100_000], Error::Resized { size, to })
    }),
    ("too-much-is-left", |steps, _| {
        let (size, to) = (Size::new(1, 10_000_000), Size::new(56, 560_000_000));
        refused(steps, Rule::Crop { edge: 56 }, [1, 10_000_000], Error::Resized { size, to })?;
        let (size, to) = (Size::new(1, 2_000_000), Size::new(56, 112_000_000));
        refused(steps, Rule::Crop { edge: 56 }, [1, 2_000_000], Error::Resized { size, to })?;
        sized(steps, Rule::Crop { edge: 56 }, [1, 21_000], [56, 1_176_000])
    }),
    ("drawn", |steps, random| (0..400).try_for_each(|_| drawn(steps, random))),
];

/// The rule of a model that was published.
const AREA: Rule = Rule::Area { factor: 28, least: 3136, most: 1_003_520 };

fn area(
    steps: &dyn Vision,
    factor: usize,
    [least, most]: [usize; 2],
    image: [usize; 2],
    want: [usize; 2],
) -> Result<(), String> {
    sized(steps, Rule::Area { factor, least, most }, image, want)
}

fn sized(steps: &dyn Vision, rule: Rule, image: [usize; 2], want: [usize; 2]) -> Result<(), String> {
    one(steps, rule, Size::new(image[0], image[1]), &Ok(Size::new(want[0], want[1])))
}

fn refused(steps: &dyn Vision, rule: Rule, image: [usize; 2], want: Error) -> Result<(), String> {
    one(steps, rule, Size::new(image[0], image[1]), &Err(want))
}

fn one(steps: &dyn Vision, rule: Rule, image: Size, want: &Result<Size, Error>) -> Result<(), String> {
    let got = steps.size(rule, image);
    likely(same(&format!("an image of {image} by {rule:?}"), &got, want), || {
        let Rule::Area { factor, .. } = rule else { return None };
        let to = |round: fn(f64) -> f64| {
            let edge = |edge: usize| (round(edge as f64 / factor as f64) as usize).saturating_mul(factor);
            Size::new(edge(image.height), edge(image.width))
        };
        let up = to(f64::round);
        (got == Ok(up) && up != to(f64::round_ties_even))
            .then_some("a half is rounded up, and not to the even neighbour")
    })
}

fn limited(
    steps: &dyn Vision,
    rule: Rule,
    given: Option<usize>,
    want: &Result<Rule, Error>,
) -> Result<(), String> {
    same(&format!("{rule:?} with {given:?} given"), &steps.limited(rule, given), want)
}

fn drawn(steps: &dyn Vision, random: &mut Random) -> Result<(), String> {
    let (rule, image) = (drawn::rule(random), drawn::size(3000, random));
    let given = (random.below(2) == 1).then(|| random.below(200_000));
    limited(steps, rule, given, &rule.at_most(given))?;
    one(steps, rule, image, &rule.size(image))
}
