//! One graph in a session of its own: what most tests of compiled graphs run.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use challenges::nf4;
use compiler::Compile;
use compiler::compile::Compiled;
use compiler::session::{Counters, DeviceTensor, Error, Io, Program, Session, Settings};
use compiler::tune::Tuned;
use kernels::{Buffer, Cpu, Device, Which};
use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype, Graph};

use crate::gpu;

/// A device of two threads that lives as long as the tests.
pub static CPU: LazyLock<Cpu> = LazyLock::new(|| Cpu::with_threads(2));

/// The devices that plans run on: the CPU, and a card where one answers with what plans need.
///
/// Each thread has a card to itself: what a lane of one test does wrong would come up in another.
pub fn devices() -> Vec<&'static dyn Device> {
    [&*CPU as &dyn Device].into_iter().chain(card()).collect()
}

/// This thread's card, if one answers; if none does, its test says why it measures nothing there.
pub fn card() -> Option<&'static dyn Device> {
    thread_local! {
        static LENT: Lent = Lent::new();
    }
    LENT.with(|lent| lent.0).inspect(|_| gpu::note())
}

/// A card as long as a thread lives, which hands it on when it ends.
struct Lent(Option<&'static dyn Device>);

/// Cards that were opened and that no thread has.
static FREE: Mutex<Vec<&'static dyn Device>> = Mutex::new(Vec::new());

fn free() -> MutexGuard<'static, Vec<&'static dyn Device>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lent {
    fn new() -> Self {
        let found = free().pop();
        let open =
            || Which::Cuda(0).open(|_| {}).inspect_err(|reason| println!("not measured: {reason}")).ok();
        Self(found.or_else(|| open().map(|card| &*Box::leak(card))))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(card) = self.0 {
            _ = card.sync(); // what went wrong in a test that failed is no other test's
            free().push(card);
        }
    }
}

/// A graph in a session.
pub struct OneGraph<'a> {
    session: Session<'a>,
    program: Program,
}

impl<'a> OneGraph<'a> {
    /// Loads a graph; nothing is compiled yet.
    ///
    /// # Errors
    /// As [`Session::load`].
    pub fn new(
        passes: &'a dyn Compile,
        device: &'a dyn Device,
        graph: &Graph,
        settings: Settings,
    ) -> Result<Self, Error> {
        let mut session = Session::new(passes, device, &nf4::DEQUANTIZER, settings);
        let program = session.load(graph)?;
        Ok(Self { session, program })
    }

    /// What is compiled already, over an arena full of NaN.
    ///
    /// # Errors
    /// As [`Session::load_compiled`].
    pub fn of(passes: &'a dyn Compile, device: &'a dyn Device, compiled: Compiled) -> Result<Self, Error> {
        let settings = Settings { poison: true, ..Settings::default() };
        let mut session = Session::new(passes, device, &nf4::DEQUANTIZER, settings);
        let program = session.load_compiled(compiled)?;
        Ok(Self { session, program })
    }

    /// All outputs, each in memory of its own.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run(
        &mut self,
        inputs: &BTreeMap<String, DeviceTensor>,
    ) -> Result<BTreeMap<String, DeviceTensor>, Error> {
        self.session.run(self.program, inputs)?.tensors()
    }

    /// Values in, all outputs in their order out.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn arrays(&mut self, values: &Values<f32>) -> Result<Vec<Array<f32>>, Error> {
        let inputs = upload(self.session.device(), values);
        let outputs = self.session.run(self.program, &inputs)?;
        let ports = outputs.compiled().outputs();
        ports.iter().map(|port| outputs.array(&port.name)).collect()
    }

    /// What is compiled for the sizes of some inputs.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn compiled(&mut self, inputs: &BTreeMap<String, DeviceTensor>) -> Result<Arc<Compiled>, Error> {
        self.session.compiled(self.program, &Io::from(inputs))
    }

    /// What its session has done.
    pub fn counters(&self) -> &Counters {
        self.session.counters()
    }

    /// The sizes that a symbol is rounded up to.
    pub fn buckets(&self, symbol: &str) -> &[i64] {
        self.session.buckets(self.program, symbol)
    }

    /// What was found out about products.
    pub fn tuned(&self) -> &Tuned {
        self.session.tuned()
    }

    /// From now on a compilation is an error.
    pub fn seal(&mut self) {
        self.session.seal();
    }

    /// What is compiled already, if anything is.
    pub fn first(&self) -> Option<Arc<Compiled>> {
        self.session.all_compiled(self.program).next().cloned()
    }

    /// The session itself, and the graph in it.
    pub fn parts(&mut self) -> (&mut Session<'a>, Program) {
        (&mut self.session, self.program)
    }
}

/// Values in a device's memory.
///
/// # Panics
/// If there is not enough of it.
pub fn upload(device: &dyn Device, values: &Values<f32>) -> BTreeMap<String, DeviceTensor> {
    let one = |(name, value): (&String, &Array<f32>)| {
        (name.clone(), DeviceTensor::new(device, &value.shape, &value.to_memory()).expect("room"))
    };
    values.iter().map(one).collect()
}

/// The bytes of a buffer, wherever it is.
///
/// # Panics
/// If something went wrong on its device.
pub fn bytes(device: &dyn Device, buffer: &Buffer) -> Vec<u8> {
    let mut bytes = vec![0; buffer.bytes()];
    device.download(buffer, &mut bytes).unwrap_or_else(|error| panic!("{error}"));
    bytes
}

/// Its numbers, if it has f32.
///
/// # Panics
/// As [`bytes`].
pub fn floats(device: &dyn Device, buffer: &Buffer) -> Vec<f32> {
    bytes(device, buffer).as_chunks().0.iter().map(|x| f32::from_ne_bytes(*x)).collect()
}

/// A tensor of some type, on the host.
///
/// # Panics
/// As [`bytes`].
pub fn array(device: &dyn Device, dtype: Dtype, tensor: &DeviceTensor) -> Array<f32> {
    Array::from_memory(dtype, &tensor.shape, &bytes(device, &tensor.buffer))
}
