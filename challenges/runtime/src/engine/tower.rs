//! The tower of a model that reads images, on a device: frozen, and compiled like the model.

use std::collections::BTreeMap;

use compiler::session::{DeviceTensor, Program, Session, Settings};
use reference::graph::interpret::Values;
use reference::vision::{Grid, Vision};

use crate::step::{Error, Machine, upload};
use crate::weights;

/// A tower on a device.
pub struct Tower<'a> {
    vision: &'a Vision,
    session: Session<'a>,
    program: Program,
}

impl<'a> Tower<'a> {
    /// Copies the tower's weights to a device.
    ///
    /// # Errors
    /// If a weight cannot be read, or the device lacks the memory.
    pub fn new(on: Machine<'a>, vision: &'a Vision) -> Result<Self, Error> {
        let Machine { passes, device, dequantizer } = on;
        let mut session = Session::new(passes, device, dequantizer, Settings::default());
        let stored = vision.stored().map_err(weights::Error::Model).map_err(Error::Weights)?;
        for (name, tensor) in weights::load_stored(device, stored).map_err(Error::Weights)? {
            session.keep(&name, tensor);
        }
        let graph = vision.graph().map_err(Error::Graph)?;
        let program = session.load(&graph).map_err(Error::Session)?;
        Ok(Self { vision, session, program })
    }

    /// The features of images for the language model, (N, H), row-major: a row for each of their tokens.
    ///
    /// # Errors
    /// What the session says.
    ///
    /// # Panics
    /// If there are not as many pixels as the images have, or no image.
    pub fn features(&mut self, pixels: &[f32], grids: &[Grid]) -> Result<Vec<f32>, Error> {
        let values: Values<f32> = self.vision.inputs(pixels, grids);
        let device = self.session.device();
        let given = values.iter().map(|(name, value)| Ok((name.clone(), upload(device, value)?)));
        let given: BTreeMap<String, DeviceTensor> = given.collect::<Result<_, Error>>()?;
        let outputs = self.session.run(self.program, &given).map_err(Error::Session)?;
        Ok(outputs.array("image_features").map_err(Error::Session)?.as_floats().to_vec())
    }
}
