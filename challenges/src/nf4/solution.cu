// Dequantising NF4 in one kernel: the last page of the lesson.
//
// HEADER

#include "warpbook.cuh"

#if INLINE_PTX && __CUDA_ARCH__ >= 900
#define OVERLAP 1                              // griddepcontrol exists: a launch may begin inside the one before
#else
#define OVERLAP 0
#endif

constexpr u32 THREADS = 256;                   // a block of every kernel here
constexpr u32 CHUNK = 8;                       // elements a thread takes at a time: one 4-byte load of codes

// The outputs of a chunk as 16-byte stores: one of a 16-bit type, two of f32.
struct Outputs {
    uint4 part[sizeof(Out) / 2];
};

__device__ __forceinline__ bool aligned(const void* at, u32 bytes) { return (u64)at % bytes == 0; }

// why: Two codes share a byte, and the format puts the first of the two in the HIGH half. A reader who expects
// little-endian nibbles gets a matrix whose neighbours are swapped, which passes every test of the mean.
// step A.7: the byte of element e, and of it the high half for even e, the low half for odd
__device__ __forceinline__ u32 code_of(const Weight& w, u64 e) {
    const u32 byte = w.packed[e / 2];          // (1,) u8: two codes
    return e % 2 == 0 ? byte >> 4 : byte & 15;
}

// Every code, one thread an element.
extern "C" __global__ void codes(const __grid_constant__ Weight w, u8* out) {
    const u64 e = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (e < w.len) out[e] = (u8)code_of(w, e);
}
LAUNCH(codes, 256, 1, 0, 0, 0);

// why: A product and a sum beside each other are what a compiler fuses into one instruction that rounds once.
// The format rounds twice, and the fused scale differs in its last bit often enough to flip four outputs in a
// million. The intrinsics with _rn in their names are never fused, whatever the flags.
// step A.8: code2[code] times the second-level scale, rounded, plus the offset, rounded; single scales as they are
__device__ __forceinline__ float scale_of(const Weight& w, u64 block) {
    if (w.codes == nullptr) return w.scales[block];
    const float first = w.code2[w.codes[block]];                // (1,) f32 through (1,) u8
    const float second = w.scales[block >> w.nested_shift];     // (1,) f32
    return __fadd_rn(__fmul_rn(first, second), w.offset);
}

// Every scale, one thread a block of the weight; the grid is that of the elements, so most threads have none.
extern "C" __global__ void scales(const __grid_constant__ Weight w, float* out) {
    const u64 block = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (block << w.block_shift < w.len) out[block] = scale_of(w, block);
}
LAUNCH(scales, 256, 1, 0, 0, 0);

// why: First right, then fast. One element a thread, no case to forget, nothing shared: whatever comes later
// must equal this to the bit.
// step A.9: one element a thread: table[code] times the scale of its block, rounded to the output
extern "C" __global__ void dequantize_naive(const __grid_constant__ Weight w, Out* out) {
    const u64 e = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (e >= w.len) return;
    const float scale = scale_of(w, e >> w.block_shift);
    out[e] = round_output(__fmul_rn(w.table[code_of(w, e)], scale));    // (1,) Out
}
LAUNCH(dequantize_naive, 256, 1, 0, 0, 0);

// why: A warp of the naive kernel asks for 16 bytes of codes and hands over 64 bytes of outputs, and pays for
// two memory instructions, two address computations and a scale per element. Eight elements a thread make that
// a 4-byte load and a 16-byte store: a warp reads 128 bytes and writes 512, whole lines both.
// step A.10: the four bytes of a chunk as one word, byte by byte where the address does not allow the word
__device__ __forceinline__ u32 word_of(const u8* packed, u64 chunk) {
    const u8* at = packed + chunk * (CHUNK / 2);
    if (aligned(packed, 4)) return *(const u32*)at;             // (8,) codes
    return at[0] | at[1] << 8 | at[2] << 16 | (u32)at[3] << 24; // a view that begins anywhere
}

// step A.10: eight codes of a word to eight outputs; element k has nibble k ^ 1, counted from the low end
__device__ __forceinline__ Outputs outputs_of(u32 word, const float* table, float scale) {
    float value[CHUNK];
    for (u32 k = 0; k < CHUNK; k++) value[k] = __fmul_rn(table[word >> 4 * (k ^ 1) & 15], scale);
    Outputs outputs;
    u32* words = (u32*)&outputs;
#if OUTPUT_F32
    for (u32 k = 0; k < CHUNK; k++) words[k] = round_output(value[k]);
#else
    for (u32 k = 0; k < CHUNK; k += 2) words[k / 2] = round_pair(value[k], value[k + 1]);
#endif
    return outputs;
}

// step A.10: elements first to last, which no wide store fits, one after another side by side
__device__ __forceinline__ void one_by_one(const Weight& w, Out* out, u64 first, u64 last) {
    for (u64 e = first + threadIdx.x; e < last; e += THREADS)
        out[e] = round_output(__fmul_rn(w.table[code_of(w, e)], scale_of(w, e >> w.block_shift)));
}

// step A.10: a chunk a thread, wide where the addresses allow it; the ragged tail and odd views element by element
extern "C" __global__ void dequantize_wide(const __grid_constant__ Weight w, Out* out) {
    const u64 first = (u64)blockIdx.x * THREADS * CHUNK;        // of the block's elements
    const u64 whole = aligned(out, 16) ? w.len / CHUNK * CHUNK : 0;
    if (first + THREADS * CHUNK > whole) {                      // the last block, or all of an odd view
        const u64 last = min(first + THREADS * CHUNK, w.len);
        one_by_one(w, out, max(first, min(whole, last)), last);
    }
    const u64 e = first + threadIdx.x * CHUNK;
    if (e >= whole) return;
    const u32 word = word_of(w.packed, e / CHUNK);
    const Outputs outputs = outputs_of(word, w.table, scale_of(w, e >> w.block_shift));
    uint4* to = (uint4*)(out + e);
    for (u32 i = 0; i < sizeof(Out) / 2; i++) to[i] = outputs.part[i];  // (8,) Out
}
LAUNCH(dequantize_wide, 256, 8, 0, 0, 0);

// why: Every code is read once and every output written once, so neither has any business in a cache. A load
// that does not enter the L1 leaves it to the scales, which eight threads share; a store marked for streaming
// is the first that the L2 gives up, so that outputs nobody will read do not drive out codes about to be read.
// step A.11: read a word that is read once
__device__ __forceinline__ u32 load_once(const u32* from) {
#if INLINE_PTX
    u32 word;                                  // PTX ISA 9.7.9.8, ld: L1 is not to keep the line
    asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(word) : "l"(from));
    return word;
#else
    return *from;
#endif
}

// step A.11: write 16 bytes that are not read here again
__device__ __forceinline__ void store_once(uint4* to, uint4 value) {
#if INLINE_PTX
    // PTX ISA 9.7.9.11, st, and 9.7.9.1, cache operators: .cs, likely accessed once
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};"
                 :: "l"(to), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w) : "memory");
#else
    *to = value;
#endif
}

// A copy through both, four words a thread: its PTX shows whether the hints arrived.
extern "C" __global__ void copy_once(const u32* from, uint4* to, u64 words4) {
    const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= words4) return;
    const u32* at = from + 4 * i;
    store_once(to + i, make_uint4(load_once(at), load_once(at + 1), load_once(at + 2), load_once(at + 3)));
}
LAUNCH(copy_once, 256, 4, 0, 0, 0);            // per_thread counts words here

// Three instructions without a C spelling. With OVERLAP the host launches a kernel while the one before it
// still runs; until wait_for_previous returns, nothing that the one before may write is there to be read, and
// nothing that it may read is there to be written.
__device__ __forceinline__ void let_next_begin() {
#if OVERLAP
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_previous() {
#if OVERLAP
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Brings a line into the L2, where a later write of the kernel before still finds it: no value is read yet.
__device__ __forceinline__ void fetch_ahead(const void* at) {
#if OVERLAP
    asm volatile("prefetch.global.L2 [%0];" :: "l"(at));
#endif
}

// step A.12: all of it in one kernel
extern "C" __global__ void __launch_bounds__(THREADS) dequantize(const __grid_constant__ Weight w, Out* out) {
    __shared__ float table[16];
    let_next_begin();
    const u64 first = (u64)blockIdx.x * THREADS * CHUNK;
    const u64 e = first + threadIdx.x * CHUNK;
    const u64 whole = aligned(out, 16) && aligned(w.packed, 4) ? w.len / CHUNK * CHUNK : 0;
    if (threadIdx.x % 32 == 0 && e < whole) fetch_ahead(w.packed + e / 2);
    if (threadIdx.x == 0)
        for (u32 q = 0; q < 16; q++) table[q] = w.table[q];
    __syncthreads();                           // without it a warp looks up a table that is not there yet
    wait_for_previous();
    if (first + THREADS * CHUNK > whole) {
        const u64 last = min(first + THREADS * CHUNK, w.len);
        one_by_one(w, out, max(first, min(whole, last)), last);
    }
    if (e >= whole) return;
    const u32 word = load_once((const u32*)(w.packed + e / 2));
    const Outputs outputs = outputs_of(word, table, scale_of(w, e >> w.block_shift));
    uint4* to = (uint4*)(out + e);
    for (u32 i = 0; i < sizeof(Out) / 2; i++) store_once(to + i, outputs.part[i]);
}
LAUNCH(dequantize, 256, 8, 0, 0, OVERLAP);
