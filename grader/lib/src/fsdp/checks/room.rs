//! B.3, B.5 and B.6: what stays, what starts early and what goes to the host, in the room that there is.

use challenges::fsdp::{Activations, Fsdp, Host, LayerBytes};

use super::{Check, Rows};
use crate::random::Random;

/// The longest lists that are drawn.
const LONGEST: usize = 80;

/// B.3: from the last piece to the first, each one stays that still fits.
pub(super) const KEEP: &Rows<Check> = &[
    ("no-room", |steps, _| [0, 9].into_iter().try_for_each(|room| keeps(steps, &[10, 20, 10], room))),
    ("everything", |steps, _| keeps(steps, &[10, 20, 30], usize::MAX)),
    ("equal-layers", |steps, _| (0..=12).try_for_each(|room| keeps(steps, &[100; 10], room * 90 + 17))),
    ("the-last-first", |steps, _| {
        (0..400).step_by(7).try_for_each(|room| keeps(steps, &[170, 40, 41, 39, 90, 8], room))
    }),
    ("just-fits", |steps, _| {
        let bytes = [170, 40, 41, 39, 90, 8];
        let sums = (0..bytes.len()).map(|first| bytes[first..].iter().sum());
        sums.flat_map(beside).try_for_each(|room| keeps(steps, &bytes, room))
    }),
    ("any-sizes", |steps, random| {
        (0..300).try_for_each(|_| {
            let bytes = sizes(random, LONGEST);
            keeps(steps, &bytes, random.below(bytes.iter().sum::<usize>() + 10))
        })
    }),
];

/// Rooms that are a byte too small, just right, and a byte larger.
fn beside(room: usize) -> [usize; 3] {
    [room - 1, room, room + 1]
}

/// B.5: a gather starts early if, and only if, it and the one before it fit together. So no choice starts more of them.
pub(super) const PREFETCH: &Rows<Check> = &[
    ("the-first-has-nothing-before-it", |steps, _| prefetches(steps, &[10], usize::MAX)),
    ("no-room", |steps, _| prefetches(steps, &[10, 10, 10], 19)),
    ("two-at-a-time", |steps, _| {
        [19, 20, 21, 40].into_iter().try_for_each(|room| prefetches(steps, &[10, 10, 30, 10, 9, 1], room))
    }),
    ("nothing-to-gather", |steps, _| prefetches(steps, &[], 20)),
    ("very-large", |steps, _| prefetches(steps, &[usize::MAX, usize::MAX, 1, 1], usize::MAX - 1)),
    ("any-sizes", |steps, random| {
        (0..300).try_for_each(|_| {
            let bytes = sizes(random, LONGEST);
            prefetches(steps, &bytes, random.below(1_100))
        })
    }),
];

/// B.6: every x comes first. Where the x of all layers do not fit and the host may be used, as few layers as possible
/// go there, the first ones; in the room that is left whole layers are kept, from the last to the first. Whether a
/// layer on the host is whole there or its x alone is anyone's choice.
pub(super) const ACTIVATIONS: &Rows<Check> = &[
    ("everything", |steps, _| alike(steps, 10, &[70, 70, 70], usize::MAX)),
    ("inputs-alone", |steps, _| alike(steps, 10, &[70, 70, 70], 30)),
    ("some-layers", |steps, _| (3..30).try_for_each(|n| alike(steps, 10, &[70; 4], 10 * n))),
    ("no-room-for-every-input", |steps, _| {
        [0, 1, 9, 10, 25, 39].into_iter().try_for_each(|room| alike(steps, 10, &[70; 4], room))
    }),
    ("just-fits", |steps, _| {
        just_fits(steps, 10, &[70; 4])?;
        just_fits(steps, 11, &[64, 9, 30, 120, 64, 7, 64, 50, 31, 90])
    }),
    ("inputs-that-differ", |steps, random| {
        (0..200).try_for_each(|_| {
            let layers: Vec<LayerBytes> = sizes(random, 40)
                .iter()
                .map(|kept| LayerBytes { x: 1 + random.below(60), kept: *kept })
                .collect();
            let all = layers.iter().map(|layer| layer.x + layer.kept).sum::<usize>();
            activations(steps, &layers, random.below(all + 10))
        })
    }),
    ("very-large", |steps, _| {
        [100, usize::MAX - 1]
            .into_iter()
            .try_for_each(|room| alike(steps, 10, &[usize::MAX, 7, usize::MAX - 9], room))
    }),
    ("layers-that-differ", |steps, random| {
        (0..200).try_for_each(|_| {
            let kept = sizes(random, LONGEST);
            let (x, all) = (1 + random.below(60), kept.iter().sum::<usize>());
            alike(steps, x, &kept, random.below(all + x * kept.len() + 10))
        })
    }),
];

fn sizes(random: &mut Random, most: usize) -> Vec<usize> {
    (0..=random.below(most)).map(|_| 1 + random.below(500)).collect()
}

/// Holds one choice of B.3 to its room.
fn keeps(attempt: &dyn Fsdp, bytes: &[usize], room: usize) -> Result<(), String> {
    let kept = attempt.keep(bytes, room);
    let about = format!("pieces of {bytes:?} bytes, room {room}, kept {kept:?}");
    if kept.len() != bytes.len() {
        return Err(format!("{about}: expected {} answers, found {}", bytes.len(), kept.len()));
    }
    let mut left = room;
    for (piece, (bytes, kept)) in bytes.iter().zip(&kept).enumerate().rev() {
        match (*kept, left.checked_sub(*bytes)) {
            (true, Some(rest)) => left = rest,
            (false, None) => {}
            (true, None) => {
                return Err(format!(
                    "{about}: piece {piece} is kept beyond the room: {left} bytes are left for it"
                ));
            }
            (false, Some(_)) => {
                return Err(format!(
                    "{about}: {left} bytes are left, and piece {piece} would fit\nthe rule: from the last piece to the \
                     first, each one that still fits is kept"
                ));
            }
        }
    }
    Ok(())
}

/// Holds one choice of B.5 to its room.
fn prefetches(attempt: &dyn Fsdp, bytes: &[usize], room: usize) -> Result<(), String> {
    let early = attempt.prefetch(bytes, room);
    let about = format!("gathers of {bytes:?} bytes, room {room}, early {early:?}");
    if early.len() != bytes.len() {
        return Err(format!("{about}: expected {} answers, found {}", bytes.len(), early.len()));
    }
    if early.first() == Some(&true) {
        return Err(format!("{about}: the first gather has no work before it"));
    }
    for (number, pair) in bytes.windows(2).enumerate() {
        let fits = pair[0].checked_add(pair[1]).is_some_and(|both| both <= room);
        match (fits, early[number + 1]) {
            (false, true) => {
                return Err(format!("{about}: gathers {number} and {} do not fit together", number + 1));
            }
            (true, false) => {
                return Err(format!("{about}: gather {} would fit beside the one before it", number + 1));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Holds a choice of B.6 to its room where all x are equally large, as those of the residual stream are.
fn alike(attempt: &dyn Fsdp, x: usize, kept: &[usize], room: usize) -> Result<(), String> {
    let layers: Vec<LayerBytes> = kept.iter().map(|kept| LayerBytes { x, kept: *kept }).collect();
    activations(attempt, &layers, room)
}

/// The rooms at which one more x, or one more layer, just fits.
fn just_fits(attempt: &dyn Fsdp, x: usize, kept: &[usize]) -> Result<(), String> {
    let inputs = (1..=kept.len()).map(|count| count * x);
    let layers = (0..kept.len()).map(|first| kept.len() * x + kept[first..].iter().sum::<usize>());
    inputs.chain(layers).flat_map(beside).try_for_each(|room| alike(attempt, x, kept, room))
}

/// Holds a choice of B.6, with and without the host, to its room.
fn activations(attempt: &dyn Fsdp, layers: &[LayerBytes], room: usize) -> Result<(), String> {
    [Host::Unused, Host::Used].into_iter().try_for_each(|host| {
        let chosen = attempt.activations(layers, room, host);
        judged(layers, room, host, &chosen).map_err(|message| {
            let of = |of: fn(&LayerBytes) -> usize| layers.iter().map(of).collect::<Vec<_>>();
            let (x, kept) = (of(|layer| layer.x), of(|layer| layer.kept));
            format!("x {x:?}, kept {kept:?}, room {room}, host {host:?}: {message}")
        })
    })
}

fn judged(layers: &[LayerBytes], room: usize, host: Host, chosen: &[Activations]) -> Result<(), String> {
    if chosen.len() != layers.len() {
        return Err(format!("expected {} answers, found {}", layers.len(), chosen.len()));
    }
    let first = moved(layers, room, host, chosen)?;
    let inputs: usize = layers[first..].iter().map(|layer| layer.x).sum();
    let mut left = room.checked_sub(inputs); // `None` where not even every x fits
    for (number, (layer, own)) in layers.iter().zip(chosen).enumerate().skip(first).rev() {
        let rest = left.and_then(|left| left.checked_sub(layer.kept));
        match (own.is_kept, rest) {
            (true, Some(_)) => left = rest,
            (false, None) => {}
            (true, None) => {
                return Err(format!(
                    "layer {number} is kept beyond the room: {} bytes are left for it beside every x",
                    left.unwrap_or(0)
                ));
            }
            (false, Some(_)) => {
                return Err(format!(
                    "{} bytes are left, and what layer {number} would keep fits\nthe rule: in the room that is left \
                     whole layers are kept, from the last to the first",
                    left.unwrap_or(0)
                ));
            }
        }
    }
    Ok(())
}

/// How many layers go to the host, if it is as few as possible, and the first ones.
fn moved(layers: &[LayerBytes], room: usize, host: Host, chosen: &[Activations]) -> Result<usize, String> {
    let found = chosen.iter().filter(|own| own.is_on_host).count();
    let inputs = |first: &usize| layers[*first..].iter().map(|layer| layer.x).sum::<usize>();
    let needed = match host {
        Host::Unused => 0,
        Host::Used => (0..=layers.len()).find(|first| inputs(first) <= room).unwrap_or(layers.len()),
    };
    if found != needed {
        return Err(format!(
            "{found} layers go to the host, {needed} have to\nthe rule: where the x of all layers do not fit and the \
             host may be used, as few layers as possible go there, the first ones"
        ));
    }
    match chosen.iter().position(|own| !own.is_on_host) {
        Some(first) if first < needed => Err(format!(
            "{needed} layers go to the host, and layer {first} is not among them\nthe rule: the first ones do"
        )),
        _ => Ok(needed),
    }
}
