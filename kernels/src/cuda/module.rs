//! Loaded code: its kernels, its globals, and their launches.

use std::ffi::{CString, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cudarc::driver::sys::{
    self, CUfunction, CUfunction_attribute as Attribute, CUjit_option, CUlaunchAttribute,
    CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig, CUmodule,
};

use super::driver::check;
use super::error::CudaError;
use super::order::Stream;
use super::probe::{Context, Gpu};

/// Code on a card.
#[derive(Clone, Debug)]
pub struct Module {
    inner: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    code: CUmodule,
    name: String,
    context: Arc<Context>,
    stream: Arc<Stream>, // the GPU's own, which its globals are copied on
}

// SAFETY: a module's handle is a name that the driver accepts from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// A kernel of a module.
#[derive(Clone, Debug)]
pub struct Function {
    handle: CUfunction,
    name: String,
    module: Arc<Handle>, // stays loaded as long as one of its kernels is held
}

/// What the compiler made of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Registers a thread.
    pub registers: u32,
    /// Bytes of static shared memory a block.
    pub shared_bytes: u32,
    /// Bytes of local memory a thread: spills, and arrays indexed at run time.
    pub local_bytes: u32,
    /// Threads a block may have.
    pub max_threads: u32,
}

/// How a kernel is launched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grid {
    /// Blocks.
    pub blocks: u32,
    /// Threads a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory a block.
    pub shared_bytes: u32,
    /// Programmatic dependent launch: blocks may start while the kernel before them on the stream ends; the
    /// kernel itself waits (`griddepcontrol.wait`) before it touches what that one wrote.
    /// Source: CUDA C++ Programming Guide, Programmatic Dependent Launch.
    pub overlap: bool,
}

/// A kernel's arguments, each as its bytes in C. No allocation: a launch is queued in a few microseconds, and
/// this is part of them. So there are at most 24, of 768 bytes in all; a launch with more is refused.
#[derive(Clone, Debug)]
pub struct Arguments {
    words: [u64; WORDS], // aligned for every scalar and for the structs that kernels take
    used: usize,
    offsets: [usize; COUNT],
    count: usize,
}

/// Words of 8 bytes that a kernel's arguments may take.
const WORDS: usize = 96;

/// Arguments that a kernel may take.
const COUNT: usize = 24;

impl Default for Arguments {
    fn default() -> Self {
        Self { words: [0; WORDS], used: 0, offsets: [0; COUNT], count: 0 }
    }
}

impl Arguments {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A number or address of 64 bits.
    #[must_use]
    pub fn u64(self, value: u64) -> Self {
        self.raw(&value.to_ne_bytes())
    }

    /// A number of 32 bits.
    #[must_use]
    pub fn u32(self, value: u32) -> Self {
        self.raw(&value.to_ne_bytes())
    }

    /// A single-precision number.
    #[must_use]
    pub fn f32(self, value: f32) -> Self {
        self.raw(&value.to_ne_bytes())
    }

    /// A struct, as its bytes in C.
    #[must_use]
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        let (first, number) = (self.used, self.count);
        self.used += bytes.len().div_ceil(8);
        self.count += 1;
        if self.fit() {
            self.offsets[number] = first;
            for (to, word) in self.words[first..].iter_mut().zip(bytes.chunks(8)) {
                let mut padded = [0; 8];
                padded[..word.len()].copy_from_slice(word);
                *to = u64::from_ne_bytes(padded);
            }
        }
        self
    }

    /// Whether there is room for all of them.
    fn fit(&self) -> bool {
        self.count <= COUNT && self.used <= WORDS
    }

    /// The same for a launch of a kernel.
    fn check(&self, function: &Function) -> Result<(), CudaError> {
        if self.fit() {
            return Ok(());
        }
        let (count, bytes) = (self.count, self.used * 8);
        let text =
            format!("expected at most {COUNT} arguments of {} bytes, found {count} of {bytes}", WORDS * 8);
        Err(CudaError::Launch { kernel: function.name.clone(), text })
    }

    fn pointers(&mut self) -> [*mut c_void; COUNT] {
        let base = self.words.as_mut_ptr();
        let mut pointers = [std::ptr::null_mut(); COUNT];
        for (pointer, offset) in pointers.iter_mut().zip(&self.offsets[..self.count]) {
            // SAFETY: every offset lies inside the words.
            *pointer = unsafe { base.add(*offset) }.cast();
        }
        pointers
    }
}

impl Gpu {
    /// Loads machine code (a cubin) or PTX, which the driver then compiles. `name` is for messages.
    ///
    /// # Errors
    /// What the driver says of code that it does not take.
    pub fn load(&self, name: &str, image: &[u8]) -> Result<Module, CudaError> {
        let context = Arc::clone(&self.inner.pool.context);
        context.enter()?;
        let mut image = image.to_vec();
        image.push(0); // PTX is a C string
        let mut log = vec![0u8; 8192];
        let mut options =
            [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(log.len())];
        let mut module = std::ptr::null_mut();
        // SAFETY: the image ends in a zero byte; the log's length goes with it; the driver writes one handle.
        let loaded = check("cuModuleLoadDataEx", unsafe {
            sys::cuModuleLoadDataEx(
                &raw mut module,
                image.as_ptr().cast(),
                options.len() as c_uint,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        });
        if let Err(error) = loaded {
            let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
            let said = String::from_utf8_lossy(&log[..end]).trim().to_owned();
            let text = if said.is_empty() { error.to_string() } else { format!("{error}\n{said}") };
            return Err(CudaError::Image { module: name.into(), text });
        }
        Ok(Module {
            inner: Arc::new(Handle {
                code: module,
                name: name.into(),
                context,
                stream: Arc::clone(&self.inner.stream),
            }),
        })
    }

    /// Queues a kernel on the GPU's own stream.
    ///
    /// # Errors
    /// See [`Gpu::launch_on`].
    pub fn launch(&self, function: &Function, grid: Grid, arguments: Arguments) -> Result<(), CudaError> {
        self.launch_on(self.stream(), function, grid, arguments)
    }

    /// Queues a kernel and counts it. What the kernel does wrong shows at the next wait.
    ///
    /// # Errors
    /// A grid that the card does not take, more arguments than there is room for, or an error of the work before.
    pub fn launch_on(
        &self,
        stream: &Stream,
        function: &Function,
        grid: Grid,
        mut arguments: Arguments,
    ) -> Result<(), CudaError> {
        arguments.check(function)?;
        self.launch_pointers(stream, function, grid, &mut arguments.pointers())
    }

    /// Queues a kernel whose one argument is a struct of so many words, and counts it.
    pub(super) fn launch_with(
        &self,
        stream: &Stream,
        function: &Function,
        grid: Grid,
        words: &mut [u64],
    ) -> Result<(), CudaError> {
        self.launch_pointers(stream, function, grid, &mut [words.as_mut_ptr().cast()])
    }

    /// Counts a launch.
    pub(super) fn count_launch(&self) {
        self.inner.launches.fetch_add(1, Relaxed);
    }

    fn launch_pointers(
        &self,
        stream: &Stream,
        function: &Function,
        grid: Grid,
        arguments: &mut [*mut c_void],
    ) -> Result<(), CudaError> {
        if grid.blocks == 0 {
            return Ok(()); // nothing to do is no launch
        }
        stream.enter()?;
        let mut overlap = CUlaunchAttribute {
            id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = CUlaunchConfig {
            gridDimX: grid.blocks,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: grid.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: grid.shared_bytes,
            hStream: stream.handle(),
            attrs: &raw mut overlap,
            numAttrs: u32::from(grid.overlap),
        };
        // SAFETY: the handles are alive; each pointer is to the bytes of one argument, which the driver copies.
        check("cuLaunchKernelEx", unsafe {
            sys::cuLaunchKernelEx(
                &raw const config,
                function.handle,
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        })
        .map_err(|error| function.explained(error, grid))?;
        self.count_launch();
        self.note(stream, function);
        Ok(())
    }
}

impl Module {
    /// A kernel by its name.
    ///
    /// # Errors
    /// There is none.
    pub fn function(&self, name: &str) -> Result<Function, CudaError> {
        let handle = &self.inner;
        handle.context.enter()?;
        let text = CString::new(name).unwrap_or_default();
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is loaded; the driver writes one handle.
        check("cuModuleGetFunction", unsafe {
            sys::cuModuleGetFunction(&raw mut function, handle.code, text.as_ptr())
        })
        .map_err(|error| handle.missing(name, error))?;
        Ok(Function { handle: function, name: name.into(), module: Arc::clone(handle) })
    }

    /// The bytes of a global variable, after everything queued on the GPU's stream.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn global(&self, name: &str) -> Result<Vec<u8>, CudaError> {
        let (address, length) = self.place(name)?;
        let (mut bytes, stream) = (vec![0; length], &self.inner.stream);
        // SAFETY: the variable has this many bytes, and so has the vector, which is there until the stream is done.
        check("cuMemcpyDtoHAsync_v2", unsafe {
            sys::cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), address, bytes.len(), stream.handle())
        })?;
        stream.sync()?;
        Ok(bytes)
    }

    /// Writes a global variable, after everything queued on the GPU's stream; as many bytes as it has, or fewer.
    ///
    /// # Errors
    /// There is none of this name, or it is smaller.
    pub fn set_global(&self, name: &str, bytes: &[u8]) -> Result<(), CudaError> {
        let (address, length) = self.place(name)?;
        if bytes.len() > length {
            return Err(CudaError::Small { name: name.into(), needed: bytes.len(), bytes: length });
        }
        let stream = &self.inner.stream;
        // SAFETY: the variable has at least this many bytes; they are there until the stream is done.
        check("cuMemcpyHtoDAsync_v2", unsafe {
            sys::cuMemcpyHtoDAsync_v2(address, bytes.as_ptr().cast(), bytes.len(), stream.handle())
        })?;
        stream.sync()
    }

    fn place(&self, name: &str) -> Result<(u64, usize), CudaError> {
        let handle = &self.inner;
        handle.context.enter()?;
        let text = CString::new(name).unwrap_or_default();
        let (mut address, mut length) = (0, 0);
        // SAFETY: the module is loaded; the driver writes an address and a length.
        check("cuModuleGetGlobal_v2", unsafe {
            sys::cuModuleGetGlobal_v2(&raw mut address, &raw mut length, handle.code, text.as_ptr())
        })
        .map_err(|error| handle.missing(name, error))?;
        Ok((address, length))
    }
}

impl Handle {
    fn missing(&self, name: &str, error: CudaError) -> CudaError {
        match error {
            CudaError::Driver { code: code @ 500, .. } => {
                CudaError::Missing { name: name.into(), module: self.name.clone(), code }
            }
            other => other,
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: loaded once, unloaded once, after the last kernel that holds it.
        let _ = self.context.enter().map(|()| unsafe { sys::cuModuleUnload(self.code) });
    }
}

// SAFETY: a kernel's handle is a name that the driver accepts from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    /// What the compiler made of it.
    pub fn attributes(&self) -> Result<Attributes, CudaError> {
        let ask = |which: Attribute| {
            let mut value = 0;
            // SAFETY: the kernel is loaded; the driver writes one number.
            check("cuFuncGetAttribute", unsafe {
                sys::cuFuncGetAttribute(&raw mut value, which, self.handle)
            })?;
            Ok::<u32, CudaError>(u32::try_from(value).unwrap_or(0))
        };
        self.module.context.enter()?;
        Ok(Attributes {
            registers: ask(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            shared_bytes: ask(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            local_bytes: ask(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            max_threads: ask(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        })
    }

    /// Blocks of this size that fit on a multiprocessor at once.
    pub fn blocks_per_sm(&self, threads: u32, shared_bytes: u32) -> Result<u32, CudaError> {
        self.module.context.enter()?;
        let mut blocks = 0;
        // SAFETY: the kernel is loaded; the driver writes one number.
        check("cuOccupancyMaxActiveBlocksPerMultiprocessor", unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &raw mut blocks,
                self.handle,
                threads as i32,
                shared_bytes as usize,
            )
        })?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    /// Allows launches with this many bytes of dynamic shared memory; needed above 48 KiB.
    pub fn allow_shared(&self, bytes: u32) -> Result<(), CudaError> {
        self.module.context.enter()?;
        let which = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the kernel is loaded; takes a number.
        check("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(self.handle, which, bytes as i32) })
    }

    /// A refused launch, with what was asked for.
    fn explained(&self, error: CudaError, grid: Grid) -> CudaError {
        let refused = matches!(error, CudaError::Driver { code: 1 | 701, .. });
        if !refused {
            return error;
        }
        let limit = self.attributes().map_or(0, |attributes| attributes.max_threads);
        let text = format!(
            "{} blocks of {} threads with {} bytes of dynamic shared memory were asked for; this kernel takes at most {limit} threads a block ({error})",
            grid.blocks, grid.threads, grid.shared_bytes
        );
        CudaError::Launch { kernel: self.name.clone(), text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_lie_where_their_pointers_say() {
        let mut arguments = Arguments::new().u32(7).raw(&[1; 12]).u64(9);
        let pointers = arguments.pointers();
        let words = pointers.map(|at| at.addr().saturating_sub(arguments.words.as_ptr().addr()) / 8);
        assert_eq!((&words[..3], arguments.words[3]), (&[0, 1, 3][..], 9));
    }

    #[test]
    fn too_many_arguments_are_counted_and_do_not_fit() {
        let many = |count: usize, bytes: usize| {
            (0..count).fold(Arguments::new(), |arguments, _| arguments.raw(&vec![1; bytes]))
        };
        assert!(many(24, 32).fit() && many(1, 768).fit());
        for (count, bytes) in [(25, 8), (1, 769), (24, 33), (100, 100)] {
            assert!(!many(count, bytes).fit(), "{count} of {bytes} bytes");
        }
        assert!(!many(1, 769).u32(1).fit(), "what did not fit does not come to fit");
    }
}
