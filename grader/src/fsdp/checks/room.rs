//! B.3, B.5 and B.6: what stays, what starts early and what goes to the host, in the room that there is.

use challenges::fsdp::{Activations, Fsdp, Host, LayerBytes};

use super::{Check, Rows};
use crate::random::Random;

/// B.3: nothing beyond the room, and nothing left out that would still fit. Where all pieces are equally large, as
/// layers are, no choice keeps more.
pub(super) const KEEP: &Rows<Check> = &[
    ("no-room", |steps, _| [0, 9].into_iter().try_for_each(|room| keeps(steps, &[10, 20, 10], room))),
    ("everything", |steps, _| keeps(steps, &[10, 20, 30], usize::MAX)),
    ("equal-layers", |steps, _| (0..=12).try_for_each(|room| keeps(steps, &[100; 10], room * 90 + 17))),
    ("nothing-that-fits-is-left-out", |steps, _| {
        (0..400).step_by(7).try_for_each(|room| keeps(steps, &[170, 40, 41, 39, 90, 8], room))
    }),
    ("any-sizes", |steps, random| {
        (0..300).try_for_each(|_| {
            let bytes = sizes(random, 12);
            keeps(steps, &bytes, random.below(bytes.iter().sum::<usize>() + 10))
        })
    }),
];

/// B.5: a gather starts early if, and only if, it and the one before it fit together. So no choice starts more of them.
pub(super) const PREFETCH: &Rows<Check> = &[
    ("the-first-has-nothing-before-it", |steps, _| prefetches(steps, &[10], usize::MAX)),
    ("no-room", |steps, _| prefetches(steps, &[10, 10, 10], 19)),
    ("two-at-a-time", |steps, _| prefetches(steps, &[10, 10, 30, 10, 9, 1], 20)),
    ("nothing-to-gather", |steps, _| prefetches(steps, &[], 20)),
    ("very-large", |steps, _| prefetches(steps, &[usize::MAX, usize::MAX, 1, 1], usize::MAX - 1)),
    ("any-sizes", |steps, random| {
        (0..300).try_for_each(|_| {
            let bytes = sizes(random, 12);
            prefetches(steps, &bytes, random.below(1_100))
        })
    }),
];

/// B.6: every x is somewhere. On the device nothing lies beyond the room unless it has to (all x without a host); as
/// few layers go to the host as make room; and none is left to be computed again for which there would still be room.
pub(super) const ACTIVATIONS: &Rows<Check> = &[
    ("everything", |steps, _| activations(steps, 10, &[70, 70, 70], usize::MAX)),
    ("inputs-alone", |steps, _| activations(steps, 10, &[70, 70, 70], 30)),
    ("some-layers", |steps, _| (3..30).try_for_each(|n| activations(steps, 10, &[70; 4], 10 * n))),
    ("no-room-for-every-input", |steps, _| {
        [0, 1, 9, 10, 25, 39].into_iter().try_for_each(|room| activations(steps, 10, &[70; 4], room))
    }),
    ("layers-that-differ", |steps, random| {
        (0..200).try_for_each(|_| {
            let kept = sizes(random, 8);
            let (x, all) = (1 + random.below(60), kept.iter().sum::<usize>());
            activations(steps, x, &kept, random.below(all + x * kept.len() + 10))
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
    let used: usize = bytes.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(bytes, _)| bytes).sum();
    let Some(left) = room.checked_sub(used) else {
        return Err(format!("{about}: {used} bytes are beyond the room"));
    };
    match bytes.iter().zip(&kept).position(|(bytes, kept)| !kept && *bytes <= left) {
        Some(piece) => Err(format!("{about}: {left} bytes are left, and piece {piece} would fit")),
        None => Ok(()),
    }
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

/// Holds a choice of B.6, with and without the host, to its room. The x of all layers are equally large: they are the
/// residual stream.
fn activations(attempt: &dyn Fsdp, x: usize, kept: &[usize], room: usize) -> Result<(), String> {
    let layers: Vec<LayerBytes> = kept.iter().map(|kept| LayerBytes { x, kept: *kept }).collect();
    [Host::Unused, Host::Used].into_iter().try_for_each(|host| {
        let chosen = attempt.activations(&layers, room, host);
        judged(&layers, room, host, &chosen)
            .map_err(|message| format!("x {x}, kept {kept:?}, room {room}, host {host:?}: {message}"))
    })
}

fn judged(layers: &[LayerBytes], room: usize, host: Host, chosen: &[Activations]) -> Result<(), String> {
    if chosen.len() != layers.len() {
        return Err(format!("expected {} answers, found {}", layers.len(), chosen.len()));
    }
    let moved = chosen.iter().filter(|own| own.is_on_host).count();
    if host == Host::Unused && moved > 0 {
        return Err(format!("{moved} layers are on the host, which may not be used"));
    }
    let inputs: usize = layers.iter().map(|layer| layer.x).sum();
    let here = layers.iter().zip(chosen).filter(|(_, own)| !own.is_on_host);
    let bytes =
        |(layer, own): (&LayerBytes, &Activations)| layer.x + if own.is_kept { layer.kept } else { 0 };
    let used: usize = here.clone().map(bytes).sum();
    let has_to = host == Host::Unused && inputs > room;
    if has_to && used > inputs {
        return Err("there is no room for every x, and yet layers are kept".into());
    }
    if !has_to && used > room {
        return Err(format!("{used} bytes are beyond the room"));
    }
    let x = layers.first().map_or(0, |layer| layer.x);
    let fit = room.checked_div(x).unwrap_or(layers.len()).min(layers.len());
    if host == Host::Used && moved > layers.len() - fit {
        return Err(format!("{moved} layers go to the host, and the x of {fit} fit on the device"));
    }
    let left = room.saturating_sub(used);
    let would_fit = |(layer, own): (&LayerBytes, &Activations)| {
        !own.is_on_host && !own.is_kept && layer.kept <= left && !has_to
    };
    match layers.iter().zip(chosen).position(would_fit) {
        Some(layer) => Err(format!("{left} bytes are left, and what layer {layer} would keep fits")),
        None => Ok(()),
    }
}
