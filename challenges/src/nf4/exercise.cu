// Dequantising NF4 on CUDA, from one code to a kernel as fast as the memory.
//
//   scale = code2[codes[b]] * scales[b >> nested_shift] + offset       b = e >> block_shift, each rounded to f32
//   out[e] = round(table[code(e)] * scale)                             the product to f32, then to the output
//
// Rounding. f32 product, f32 sum, f32 product, then to nearest even; never fused (see A.8).
// Reads. Dettmers et al., QLoRA (2305.14314), section 3: NF4 and double quantisation. PTX ISA 9.0: "ld", "st",
//   "Cache Operators", "prefetch", "griddepcontrol". CUDA C++ Programming Guide, Programmatic Dependent
//   Launch.


#include "warpbook.cuh"

#if INLINE_PTX && __CUDA_ARCH__ >= 900
#define OVERLAP 1                              // griddepcontrol exists: a launch may begin inside the one before
#else
#define OVERLAP 0
#endif

constexpr u32 THREADS = 256;                   // a block of every kernel here
constexpr u32 WORD = 8;                        // codes of a 4-byte word
constexpr u32 CHUNK = 16 / sizeof(Out);        // outputs of one 16-byte store: 8 of a 16-bit type, 4 of f32
constexpr u32 TILE = THREADS * 2 * CHUNK;      // elements of a block of the last kernel, two chunks a thread
constexpr u32 AHEAD = 2 * 8 * 132;             // tiles: twice what an H100 holds at once, 132 SMs of 2048 threads

__device__ __forceinline__ bool aligned(const void* at, u32 bytes) { return (u64)at % bytes == 0; }

// ANCHOR: nf4-step-7
// step A.7: find the code of element e: the high half of its byte for even e, the low half for odd
__device__ __forceinline__ u32 code_of(const Weight& w, u64 e) {
    TODO("A.7: find the code of element e: the high half of its byte for even e, the low half for odd");
}

// Every code, one thread an element.
extern "C" __global__ void codes(const __grid_constant__ Weight w, u8* out) {
    const u64 e = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (e < w.len) out[e] = (u8)code_of(w, e);
}
LAUNCH(codes, 256, 1, 0, 0, 0);
// ANCHOR_END: nf4-step-7

// ANCHOR: nf4-step-8
// step A.8: find the scale of a block: code2[code] times the second-level scale plus the offset, each rounded
__device__ __forceinline__ float scale_of(const Weight& w, u64 block) {
    TODO("A.8: find the scale of a block: code2[code] times the second-level scale plus the offset, each rounded");
}

// Every scale, one thread a block of the weight. The grid is that of the elements: most threads have nothing.
extern "C" __global__ void scales(const __grid_constant__ Weight w, float* out) {
    const u64 block = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (block << w.block_shift < w.len) out[block] = scale_of(w, block);
}
LAUNCH(scales, 256, 1, 0, 0, 0);
// ANCHOR_END: nf4-step-8

// ANCHOR: nf4-step-9
// step A.9: dequantise the whole weight, one element a thread, right to the bit
extern "C" __global__ void dequantize_naive(const __grid_constant__ Weight w, Out* out) {
    TODO("A.9: dequantise the whole weight, one element a thread, right to the bit");
}
LAUNCH(dequantize_naive, 256, 1, 0, 0, 0);
// ANCHOR_END: nf4-step-9

// ANCHOR: nf4-step-10
// step A.10: the same bits with wide loads and stores; first the 4-byte word that chunk number `chunk` is in
__device__ __forceinline__ u32 word_of(const u8* packed, u64 chunk) {
    TODO("A.10: the same bits with wide loads and stores; first the 4-byte word that chunk number `chunk` is in");
}

// step A.10: a chunk's codes in the low bits: an odd chunk of f32 has the upper half of its word
__device__ __forceinline__ u32 codes_of(u32 word, u64 chunk) {
    TODO("A.10: a chunk's codes in the low bits: an odd chunk of f32 has the upper half of its word");
}

// step A.10: a chunk's values rounded, in the order in which they lie in memory
__device__ __forceinline__ uint4 outputs_of(const float value[CHUNK]) {
    TODO("A.10: a chunk's values rounded, in the order in which they lie in memory");
}

// step A.10: elements from max(first, whole) up to last, one a thread in turn: no wide store reaches past `whole`
__device__ __forceinline__ void rest_of(const Weight& w, Out* out, u64 first, u64 last, u64 whole) {
    TODO("A.10: elements from max(first, whole) up to last, one a thread in turn: no wide store reaches past `whole`");
}

// step A.10: the table in shared memory, then a chunk a thread; the ragged tail and odd views element by element
extern "C" __global__ void dequantize_wide(const __grid_constant__ Weight w, Out* out) {
    TODO("A.10: the table in shared memory, then a chunk a thread; the ragged tail and odd views element by element");
}
LAUNCH(dequantize_wide, 256, CHUNK, 0, 0, 0);
// ANCHOR_END: nf4-step-10

// ANCHOR: nf4-step-11
// step A.11: tell the caches what is touched once, in inline PTX: a load of 4 bytes, a store of 16
__device__ __forceinline__ u32 load_once(const u32* from) {
    TODO("A.11: tell the caches what is touched once, in inline PTX: a load of 4 bytes, a store of 16");
}

// step A.11: write 16 bytes that are not read here again
__device__ __forceinline__ void store_once(uint4* to, uint4 value) {
    TODO("A.11: write 16 bytes that are not read here again");
}

// A copy through both, four words a thread: its machine code shows whether the hints arrived.
extern "C" __global__ void copy_once(const u32* from, uint4* to, u64 words4) {
    const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= words4) return;
    const u32* at = from + 4 * i;
    store_once(to + i, make_uint4(load_once(at), load_once(at + 1), load_once(at + 2), load_once(at + 3)));
}
LAUNCH(copy_once, 256, 4, 0, 0, 0);            // per_thread counts words here
// ANCHOR_END: nf4-step-11

// ANCHOR: nf4-step-12
// Three instructions that C has no word for. Where the host launches with overlap, a kernel begins while the one
// before it still runs. Until wait_for_previous returns, nothing that the one before may write can be read yet,
// and nothing that it may read can be written. Without OVERLAP all three do nothing here; the prefetch alone is in
// PTX since Fermi.
__device__ __forceinline__ void let_next_begin() {
#if OVERLAP
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");     // PTX ISA, "griddepcontrol"
#endif
}
__device__ __forceinline__ void wait_for_previous() {
#if OVERLAP
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Brings a line into the L2. That is no read: if the kernel before writes the line later, it writes it there.
__device__ __forceinline__ void fetch_ahead(const void* at) {
#if OVERLAP
    asm volatile("prefetch.global.L2 [%0];" :: "l"(at));                // PTX ISA, "prefetch"
#endif
}

// step A.12: as fast as the memory: what helps, together; first what a block fetches ahead into the L2
__device__ __forceinline__ void fetch_tile(const Weight& w, u64 tile, u32 lane) {
    TODO("A.12: as fast as the memory: what helps, together; first what a block fetches ahead into the L2");
}

// step A.12: fetch ahead, wait, then two chunks a thread: loads, scales, outputs
extern "C" __global__ void __launch_bounds__(THREADS) dequantize(const __grid_constant__ Weight w, Out* out) {
    TODO("A.12: fetch ahead, wait, then two chunks a thread: loads, scales, outputs");
}
// The last number is 1 only for a kernel that calls wait_for_previous() before it reads: else write 0.
LAUNCH(dequantize, 256, 2 * CHUNK, 0, 0, OVERLAP);
// ANCHOR_END: nf4-step-12
