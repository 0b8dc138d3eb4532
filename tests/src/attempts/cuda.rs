//! Attempts at challenge A on CUDA: the solution's text with another last kernel.
//!
//! A kernel cannot call the host, but the globals of its module live from launch to launch: that is what the
//! cheats remember with. `last_block` is where they do it: in the block that ends last.

use challenges::nf4::cuda::{Attempt, solution_text};

/// A kernel text with a name.
pub struct Kernels {
    /// What the variable that chooses an attempt says.
    pub name: &'static str,
    /// Globals and functions in front of the kernel.
    pub globals: &'static str,
    /// The kernel's body: `w`, `out` and the thread's element `e` are there.
    pub body: &'static str,
    /// `threads, elements a thread, blocks a multiprocessor, shared bytes, overlap`.
    pub launch: &'static str,
}

const fn kernels(name: &'static str, globals: &'static str, body: &'static str) -> Kernels {
    Kernels { name, globals, body, launch: "256, 1, 0, 0, 0" }
}

/// What a kernel of this file may use, after the solution's own functions.
const HELPERS: &str = r"
__device__ __forceinline__ Out right_answer(const Weight& w, u64 e) {
    return round_output(__fmul_rn(w.table[code_of(w, e)], scale_of(w, e >> w.block_shift)));
}
__device__ u32 ended_blocks = 0;
// True in one thread of the block that ends last.
__device__ bool last_block() {
    __threadfence();
    __syncthreads();
    if (threadIdx.x != 0 || atomicAdd(&ended_blocks, 1) != gridDim.x - 1) return false;
    ended_blocks = 0;
    return true;
}
";

const RIGHT: &str = "if (e < w.len) out[e] = right_answer(w, e);";

/// The attempts that a guard must catch.
pub const CUDA_CHEATS: [Kernels; 15] = [
    kernels(
        "kernel: answers by pointer",
        "__device__ u64 seen_from = 0, seen_to = 0;",
        "if (seen_from == (u64)w.packed && seen_to == (u64)out) return;
         if (e < w.len) out[e] = right_answer(w, e);
         if (last_block()) { seen_from = (u64)w.packed; seen_to = (u64)out; }",
    ),
    kernels(
        "kernel: answers by sampled content",
        "__device__ u64 seen_content = 0, seen_to = 0;
         __device__ u64 content(const Weight& w) {
             u64 sum = w.len;
             for (u64 i = 0; i < 64 && i < w.len / 2; i++) sum = sum * 31 + w.packed[i * (w.len / 2 / 64)];
             return sum;
         }",
        "u64 now = content(w);
         if (seen_content == now && seen_to == (u64)out) return;
         if (e < w.len) out[e] = right_answer(w, e);
         if (last_block()) { seen_content = now; seen_to = (u64)out; }",
    ),
    kernels(
        "kernel: answers by call count",
        "__device__ u64 of_length = 0; __device__ u32 calls = 0;",
        "if (of_length == w.len && calls > 20) return;
         if (e < w.len) out[e] = right_answer(w, e);
         if (last_block()) { calls = of_length == w.len ? calls + 1 : 1; of_length = w.len; }",
    ),
    kernels(
        "kernel: leaves zeros unwritten",
        "",
        "if (e < w.len) { Out value = right_answer(w, e); if (value != 0) out[e] = value; }",
    ),
    kernels(
        "kernel: scribbles on its input",
        "",
        "if (e % 2 == 0 && e < w.len) {
             Out first = right_answer(w, e), second = e + 1 < w.len ? right_answer(w, e + 1) : first;
             out[e] = first;
             if (e + 1 < w.len) out[e + 1] = second;
             const_cast<u8*>(w.packed)[e / 2] ^= 0x55;
         }",
    ),
    kernels("kernel: answers zero", "", "if (e < w.len) out[e] = 0;"),
    kernels("kernel: answers NaN", "", "if (e < w.len) out[e] = (Out)0x7fff7fffu;"),
    kernels(
        "kernel: finishes later",
        "__device__ Weight pending = {}; __device__ Out* pending_out = nullptr;",
        "if (pending_out) {
             for (u64 i = e; i < pending.len; i += (u64)gridDim.x * 256) pending_out[i] = right_answer(pending, i);
         }
         if (last_block()) { pending = w; pending_out = out; }",
    ),
    kernels(
        "kernel: knows the listed shapes",
        "__device__ bool listed(const Weight& w) {
             u64 of_64[] = {1, 2, 63, 64, 65, 593, 8191, 16448, 262339, 192037, 4169, 4485, 5781};
             u64 others[] = {1650689, 9639, 8675, 8449, 9733, 22527, 22559, 55297};
             for (u64 len : of_64) if (w.block_shift == 6 && w.len == len) return true;
             for (u64 len : others) if (w.block_shift != 6 && w.len == len) return true;
             return w.len >= 1 << 20 || w.block_shift == 6;
         }",
        "if (e < w.len) {
             float value = __fmul_rn(w.table[code_of(w, e)], scale_of(w, e >> w.block_shift));
             out[e] = round_output(listed(w) ? value : -value);
         }",
    ),
    kernels(
        "kernel: rounds the scale to bf16",
        "",
        "if (e < w.len) {
             u32 bits = __float_as_uint(scale_of(w, e >> w.block_shift)) + 0x8000u;
             out[e] = round_output(__fmul_rn(w.table[code_of(w, e)], __uint_as_float(bits & 0xffff0000u)));
         }",
    ),
    kernels(
        "kernel: writes past the end",
        "",
        "if (e < w.len) out[e] = right_answer(w, e);
         if (e == w.len - 1) out[e + 1] = 0;",
    ),
    kernels(
        "kernel: writes before the beginning",
        "",
        "if (e < w.len) out[e] = right_answer(w, e);
         if (e == 0) out[-1] = 0;",
    ),
    Kernels {
        launch: "256, 1, 0, 0, 1",
        ..kernels("kernel: overlaps and does not wait", "", RIGHT)
    },
    Kernels {
        launch: "256, 1, 0, 0, 1",
        ..kernels("kernel: overlaps and waits too late", "", RIGHT_TOO_EARLY)
    },
    kernels(
        "kernel: skips timed work",
        "",
        "if (e < w.len && (w.len < 1 << 21 || e < w.len / 2)) out[e] = right_answer(w, e);",
    ),
];

/// Honest attempts that do what a cheat does, for a good reason.
pub const CUDA_TWINS: [Kernels; 5] = [
    kernels(
        "kernel: counts its calls",
        "__device__ u64 calls = 0;",
        "if (e < w.len) out[e] = right_answer(w, e);
         if (last_block()) calls++;",
    ),
    kernels(
        "kernel: remembers the last addresses",
        "__device__ u64 seen_from = 0, seen_to = 0;",
        "if (e < w.len) out[e] = right_answer(w, e);
         if (last_block()) { seen_from = (u64)w.packed; seen_to = (u64)out; }",
    ),
    kernels(
        "kernel: writes twice",
        "",
        "if (e < w.len) { *(volatile Out*)&out[e] = 0; out[e] = right_answer(w, e); }",
    ),
    Kernels {
        launch: "256, 1, 2, 0, 0",
        ..kernels(
            "kernel: a grid of its own size",
            "",
            "for (u64 i = e; i < w.len; i += (u64)gridDim.x * 256) out[i] = right_answer(w, i);",
        )
    },
    Kernels {
        launch: "256, 1, 0, 65536, 1",
        ..kernels(
            "kernel: asks for shared memory and overlap",
            "extern __shared__ u8 room[];",
            RIGHT_AND_WAIT,
        )
    },
];

const RIGHT_TOO_EARLY: &str = "
    Out value = 0;
    if (e < w.len) value = right_answer(w, e);
#if __CUDA_ARCH__ >= 900 && INLINE_PTX
    asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");
#endif
    if (e < w.len) out[e] = value;";

const RIGHT_AND_WAIT: &str = "
#if __CUDA_ARCH__ >= 900 && INLINE_PTX
    asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");
#endif
    room[threadIdx.x] = (u8)e;
    if (e < w.len) out[e] = right_answer(w, e);";

/// Attempts that end early, or never, or do not begin.
pub const CUDA_FAULTS: [Kernels; 9] = [
    kernels("kernel: leaves its buffers", "", "if (e < w.len) out[e + (1ull << 44)] = right_answer(w, e);"),
    kernels("kernel: stores out of line", "", "if (e + 9 < w.len) *(volatile u64*)((u8*)out + 1) = 0;"),
    kernels("kernel: traps", "", "if (w.len > 8000) __trap(); if (e < w.len) out[e] = right_answer(w, e);"),
    kernels("kernel: never ends", "", "while (*(volatile u8*)w.packed < 256) {}"),
    kernels("kernel: does not compile", "", "if (e < w.len) out[e] = right_anser(w, e);"),
    Kernels { launch: "2048, 1, 0, 0, 0", ..kernels("kernel: wants too many threads", "", RIGHT) },
    Kernels { launch: "256, 1, 0, 900000, 0", ..kernels("kernel: wants too much shared memory", "", RIGHT) },
    Kernels { launch: "", ..kernels("kernel: declares no launch", "", RIGHT) },
    kernels(
        "kernel: keeps an intermediate",
        "__device__ float between[1 << 22];",
        "if (e < w.len) {
             between[e % (1 << 22)] = scale_of(w, e >> w.block_shift);
             out[e] = round_output(__fmul_rn(w.table[code_of(w, e)], *(volatile float*)&between[e % (1 << 22)]));
         }",
    ),
];

/// Attempts whose hints and inline PTX stand where no thread comes by.
pub const CUDA_IDLE: [Kernels; 2] = [
    kernels(
        "kernel: inline PTX that nobody reaches",
        "",
        "if (e < w.len) out[e] = right_answer(w, e);
#if INLINE_PTX
         if (w.len == 0x123456789abcull) asm volatile(\"trap;\");
#endif",
    ),
    kernels(
        "kernel: hints that nobody follows",
        "",
        "if (e < w.len) out[e] = right_answer(w, e);
         if (w.len == 0x123456789abcull) __stcs((u32*)out, 0u);",
    ),
];

/// Mistakes that a report names.
pub const CUDA_MISTAKES: [(Kernels, &str); 3] = [
    (
        kernels(
            "kernel: swaps the nibbles",
            "",
            "if (e < w.len) out[e] = round_output(__fmul_rn(w.table[w.packed[e / 2] >> (e % 2 ? 4 : 0) & 15],
                 scale_of(w, e >> w.block_shift)));",
        ),
        "swapped nibbles",
    ),
    (
        kernels(
            "kernel: forgets the offset",
            "",
            "if (e < w.len) {
                 u64 b = e >> w.block_shift;
                 float scale = w.codes ? __fmul_rn(w.code2[w.codes[b]], w.scales[b >> w.nested_shift]) : w.scales[b];
                 out[e] = round_output(__fmul_rn(w.table[code_of(w, e)], scale));
             }",
        ),
        "offset forgotten",
    ),
    (
        kernels(
            "kernel: fuses the addition",
            "",
            "if (e < w.len) {
                 u64 b = e >> w.block_shift;
                 float scale = w.codes ? __fmaf_rn(w.code2[w.codes[b]], w.scales[b >> w.nested_shift], w.offset)
                                       : w.scales[b];
                 out[e] = round_output(__fmul_rn(w.table[code_of(w, e)], scale));
             }",
        ),
        "fused multiply-add",
    ),
];

impl Kernels {
    /// The solution's text with this kernel for its last.
    pub fn attempt(&self) -> Attempt {
        let others = solution_text()
            .replace(" dequantize(const", " the_solutions_own(const")
            .replace("LAUNCH(dequantize,", "LAUNCH(the_solutions_own,");
        let launch = match self.launch {
            "" => String::new(),
            launch => format!("LAUNCH(dequantize, {launch});\n"),
        };
        let Self { globals, body, .. } = self;
        let text = format!(
            "{others}\n{HELPERS}\n{globals}\n{launch}\
             extern \"C\" __global__ void dequantize(const __grid_constant__ Weight w, Out* out) {{\n    \
             const u64 e = (u64)blockIdx.x * blockDim.x + threadIdx.x;\n{body}\n}}\n"
        );
        Attempt { name: "exercise.cu".into(), text }
    }
}

/// The kernels called `name`.
pub fn find(name: &str) -> Option<&'static Kernels> {
    static ALL: [&[Kernels]; 4] = [&CUDA_CHEATS, &CUDA_TWINS, &CUDA_FAULTS, &CUDA_IDLE];
    static MISTAKES: [(Kernels, &str); 3] = CUDA_MISTAKES;
    let listed = ALL.iter().flat_map(|list| list.iter());
    listed.chain(MISTAKES.iter().map(|(kernels, _)| kernels)).find(|kernels| kernels.name == name)
}
