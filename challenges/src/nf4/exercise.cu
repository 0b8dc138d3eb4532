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

// step A.7: the byte of element e, and of it the high half for even e, the low half for odd
__device__ __forceinline__ u32 code_of(const Weight& w, u64 e) {
    TODO("A.7: the byte of element e, and of it the high half for even e, the low half for odd");
}

// Every code, one thread an element.
extern "C" __global__ void codes(const __grid_constant__ Weight w, u8* out) {
    const u64 e = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (e < w.len) out[e] = (u8)code_of(w, e);
}
LAUNCH(codes, 256, 1, 0, 0, 0);

// step A.8: code2[code] times the second-level scale, rounded, plus the offset, rounded; single scales as they are
__device__ __forceinline__ float scale_of(const Weight& w, u64 block) {
    TODO("A.8: code2[code] times the second-level scale, rounded, plus the offset, rounded; single scales as they are");
}

// Every scale, one thread a block of the weight; the grid is that of the elements, so most threads have none.
extern "C" __global__ void scales(const __grid_constant__ Weight w, float* out) {
    const u64 block = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (block << w.block_shift < w.len) out[block] = scale_of(w, block);
}
LAUNCH(scales, 256, 1, 0, 0, 0);

// step A.9: one element a thread: table[code] times the scale of its block, rounded to the output
extern "C" __global__ void dequantize_naive(const __grid_constant__ Weight w, Out* out) {
    TODO("A.9: one element a thread: table[code] times the scale of its block, rounded to the output");
}
LAUNCH(dequantize_naive, 256, 1, 0, 0, 0);

// step A.10: the four bytes of a chunk as one word, byte by byte where the address does not allow the word
__device__ __forceinline__ u32 word_of(const u8* packed, u64 chunk) {
    TODO("A.10: the four bytes of a chunk as one word, byte by byte where the address does not allow the word");
}

// step A.10: eight codes of a word to eight outputs; element k has nibble k ^ 1, counted from the low end
__device__ __forceinline__ Outputs outputs_of(u32 word, const float* table, float scale) {
    TODO("A.10: eight codes of a word to eight outputs; element k has nibble k ^ 1, counted from the low end");
}

// step A.10: elements first to last, which no wide store fits, one after another side by side
__device__ __forceinline__ void one_by_one(const Weight& w, Out* out, u64 first, u64 last) {
    TODO("A.10: elements first to last, which no wide store fits, one after another side by side");
}

// step A.10: a chunk a thread, wide where the addresses allow it; the ragged tail and odd views element by element
extern "C" __global__ void dequantize_wide(const __grid_constant__ Weight w, Out* out) {
    TODO("A.10: a chunk a thread, wide where the addresses allow it; the ragged tail and odd views element by element");
}
LAUNCH(dequantize_wide, 256, 8, 0, 0, 0);

// step A.11: read a word that is read once
__device__ __forceinline__ u32 load_once(const u32* from) {
    TODO("A.11: read a word that is read once");
}

// step A.11: write 16 bytes that are not read here again
__device__ __forceinline__ void store_once(uint4* to, uint4 value) {
    TODO("A.11: write 16 bytes that are not read here again");
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
    TODO("A.12: all of it in one kernel");
}
LAUNCH(dequantize, 256, 8, 0, 0, OVERLAP);
