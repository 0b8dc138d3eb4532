//! The decisions of B.3, B.5 and B.6: which whole parts and activations stay, and which gathers start early.

use std::collections::BTreeMap;

use reference::graph::Symbol;

use super::Rank;
use crate::shard::programs::PieceGraphs;
use crate::shard::{Error, Host, LayerBytes};

impl Rank<'_> {
    /// B.3 and B.5: which whole parts stay, and which gathers start early.
    pub(super) fn choose_whole_parts(&mut self) -> Result<(), Error> {
        let last = self.work.pieces.len() - 1;
        let bytes: Vec<usize> = self.work.pieces.iter().map(PieceGraphs::gathered_bytes).collect();
        let mut kept = self.attempt.keep(&bytes[..last], self.room.kept_bytes);
        let needed = kept.iter().zip(&bytes).filter(|(kept, _)| **kept).map(|(_, bytes)| bytes).sum();
        answers("B.3", kept.len(), last)?;
        fits("B.3", needed, self.room.kept_bytes)?;
        kept.push(false); // the head's backward follows its forward
        let order = self.work.order(&kept);
        let gathered: Vec<usize> = order.iter().map(|gather| bytes[gather.piece]).collect();
        let early = self.attempt.prefetch(&gathered, self.room.prefetch_bytes);
        answers("B.5", early.len(), gathered.len())?;
        for (number, _) in early.iter().enumerate().filter(|(_, is_early)| **is_early) {
            let before = number.checked_sub(1).map_or(usize::MAX, |before| gathered[before]);
            fits("B.5", gathered[number].saturating_add(before), self.room.prefetch_bytes)?;
        }
        self.work.follow(kept, order.into_iter().zip(early));
        Ok(())
    }

    /// B.6: what stays of each layer of the step's largest micro-batch, and where. The same on every rank, since ranks
    /// run the same programs.
    pub(super) fn choose_activations(&mut self) -> Result<(), Error> {
        let tokens = |sizes: &&BTreeMap<Symbol, i64>| sizes["B"] * sizes["T"];
        let Some(largest) = self.work.sizes.iter().max_by_key(tokens).cloned() else { return Ok(()) };
        let layers = 1..self.work.pieces.len() - 1;
        let bytes: Vec<LayerBytes> = layers
            .clone()
            .map(|piece| self.work.activation_bytes(piece, &largest))
            .collect::<Result<_, _>>()?;
        let chosen = self.attempt.activations(&bytes, self.room.activation_bytes, self.room.host);
        answers("B.6", chosen.len(), bytes.len())?;
        let kept = chosen.iter().zip(&bytes).filter(|(own, _)| own.is_kept && !own.is_on_host);
        let needed: usize = kept.map(|(_, bytes)| bytes.x + bytes.kept).sum();
        fits("B.6", needed, self.room.activation_bytes)?;
        if let Some(layer) = chosen.iter().position(|own| own.is_on_host && self.room.host == Host::Unused) {
            let (found, expected) = ("the host".to_owned(), "the device".to_owned());
            return Err(Error::Step { step: "B.6", name: format!("layer {layer}"), found, expected });
        }
        self.work.activations = layers.zip(chosen).collect();
        Ok(())
    }
}

/// Checks that a step gives an answer for everything that it was asked about.
fn answers(step: &'static str, found: usize, expected: usize) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    let [found, expected] = [found, expected].map(|count| format!("{count} answers"));
    Err(Error::Step { step, name: "room".into(), found, expected })
}

/// Checks that a step's choice fits in its room.
pub(super) fn fits(step: &'static str, needed: usize, room: usize) -> Result<(), Error> {
    if needed <= room {
        return Ok(());
    }
    let (found, expected) = (format!("{needed} bytes"), format!("at most {room} bytes"));
    Err(Error::Step { step, name: "room".into(), found, expected })
}
