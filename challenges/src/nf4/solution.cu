// Dequantising NF4 on CUDA, from one code to a kernel as fast as the memory.
//
//   scale = code2[codes[b]] * scales[b >> nested_shift] + offset       b = e >> block_shift, each rounded to f32
//   out[e] = round(table[code(e)] * scale)                             the product to f32, then to the output
//
// Rounding. f32 product, f32 sum, f32 product, then to nearest even; never fused (see A.8).
// Reads. Dettmers et al., QLoRA (2305.14314), section 3: NF4 and double quantisation. PTX ISA 9.0: "ld", "st",
//   "Cache Operators", "prefetch", "griddepcontrol". CUDA C++ Programming Guide, Programmatic Dependent
//   Launch.

// why: The last kernel, and what led to it.
//
// Threads. A block of 256 owns a tile of 512 chunks, a warp 64 of them side by side, a thread two that lie 32
//   chunks apart; a chunk is what one 16-byte store holds, 8 elements of a 16-bit type or 4 of f32. The grid is
//   one block a tile, with no loop.
// Bytes. 0.5 + 1/64 + 4/16384 read and 2 written an element: 2.516, of which four fifths are stores. An H100 80GB
//   HBM3 copies at 3.03 TB/s, which would take 13.9 us for 2048 x 8192, 48.8 us for 4096 x 14336 and 195.5 us for
//   8192 x 28672. A kernel that only streams this mix takes 14.3, 49.9 and 199.8 us (tests/peers/nf4_stream.cu,
//   book/src/results/h100-stream.txt), this one beside it 14.5, 50.1 and 200.0 us.
// Cache. Codes and outputs are touched once and say so. A line of scale codes is for 8192 elements, code2 is 1 KiB
//   for all: the L1 serves both. The L2 gets the codes before they are asked for. Where the next kernel reads these
//   outputs and they fit in the L2, a store without .cs may serve the two together better.
// Versions, as the grader times them, H100 80GB HBM3, November 2026 (book/src/results/h100.json):
//                                   2048 x 8192 f16    4096 x 14336 bf16   8192 x 28672 bf16
//   the library's three launches  25.7 us 1643 GB/s   75.6 us 1953 GB/s  286.9 us 2060 GB/s   (baseline.cu)
//   1 dequantize_naive            87.1 us  485 GB/s  299.6 us  493 GB/s
//   2 dequantize_wide             18.8 us 2249 GB/s   59.0 us 2505 GB/s
//   3 dequantize                  14.6 us 2892 GB/s   50.4 us 2934 GB/s  200.4 us 2949 GB/s   <- what is graded
//   What lies between 2 and 3, and what did not help, is staircase.cu.

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
// why: Two codes share a byte, and the format puts the first of the two in the HIGH half. Swapped neighbours
// have the same mean and the same histogram, so only a comparison element by element finds the mistake.
// step A.7: find the code of element e: the high half of its byte for even e, the low half for odd
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
// ANCHOR_END: nf4-step-7

// ANCHOR: nf4-step-8
// why: A product and a sum beside each other are what a compiler likes to fuse into one instruction that rounds
// once. The format rounds twice, and the fused scale changes 4 to 10 f16 outputs in a million and about one of bf16
// (book/src/results/nf4-fused.txt): too few for a tolerance to see. The intrinsics that end in _rn are never fused,
// whatever the flags.
// step A.8: find the scale of a block: code2[code] times the second-level scale plus the offset, each rounded
__device__ __forceinline__ float scale_of(const Weight& w, u64 block) {
    if (w.codes == nullptr) return w.scales[block];
    const float first = w.code2[w.codes[block]];                // (1,) f32 through (1,) u8
    const float second = w.scales[block >> w.nested_shift];     // (1,) f32
    return __fadd_rn(__fmul_rn(first, second), w.offset);
}

// Every scale, one thread a block of the weight. The grid is that of the elements: most threads have nothing.
extern "C" __global__ void scales(const __grid_constant__ Weight w, float* out) {
    const u64 block = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (block << w.block_shift < w.len) out[block] = scale_of(w, block);
}
LAUNCH(scales, 256, 1, 0, 0, 0);
// ANCHOR_END: nf4-step-8

// ANCHOR: nf4-step-9
// why: First right, then fast. One element a thread, nothing shared, no case to forget: whatever comes later
// must equal this to the bit. It is slow for two reasons that the next steps take away one by one. A warp's
// memory instructions move 16 bytes and 64; and the parameters' constant bank serves one address at a time, so
// that 32 lanes with 14 different codes, which is the mean, wait 14 times.
// step A.9: dequantise the whole weight, one element a thread, right to the bit
extern "C" __global__ void dequantize_naive(const __grid_constant__ Weight w, Out* out) {
    const u64 e = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (e >= w.len) return;
    const float scale = scale_of(w, e >> w.block_shift);
    out[e] = round_output(__fmul_rn(w.table[code_of(w, e)], scale));    // (1,) Out
}
LAUNCH(dequantize_naive, 256, 1, 0, 0, 0);
// ANCHOR_END: nf4-step-9

// ANCHOR: nf4-step-10
// why: A chunk a thread is one 4-byte load and one 16-byte store: a warp reads 128 bytes and writes 512, whole
// cache lines both, where the naive kernel spends eight loads, eight scales and eight stores. For f32 a chunk is
// half a word, so that a warp's store is still 512 bytes without gaps: two stores of 16 bytes a thread, side by
// side, would each fill half of a 32-byte sector, and the SM would send twice the sectors.
// step A.10: the same bits with wide loads and stores; first the 4-byte word that chunk number `chunk` is in
__device__ __forceinline__ u32 word_of(const u8* packed, u64 chunk) {
    const u64 word = chunk * CHUNK / WORD;
    if (aligned(packed, 4)) return ((const u32*)packed)[word];  // (8,) codes
    const u8* at = packed + 4 * word;                           // a view that begins anywhere
    return at[0] | at[1] << 8 | at[2] << 16 | (u32)at[3] << 24;
}

// step A.10: a chunk's codes in the low bits: an odd chunk of f32 has the upper half of its word
__device__ __forceinline__ u32 codes_of(u32 word, u64 chunk) { return word >> chunk * CHUNK % WORD * 4; }

// step A.10: a chunk's values rounded, in the order in which they lie in memory
__device__ __forceinline__ uint4 outputs_of(const float value[CHUNK]) {
#if OUTPUT_F32
    return make_uint4(round_output(value[0]), round_output(value[1]), round_output(value[2]), round_output(value[3]));
#else
    return make_uint4(round_pair(value[0], value[1]), round_pair(value[2], value[3]),
                      round_pair(value[4], value[5]), round_pair(value[6], value[7]));
#endif
}

// step A.10: elements from max(first, whole) up to last, one a thread in turn: no wide store reaches past `whole`
__device__ __forceinline__ void rest_of(const Weight& w, Out* out, u64 first, u64 last, u64 whole) {
    last = min(last, w.len);
    for (u64 e = max(first, whole) + threadIdx.x; e < last; e += THREADS)
        out[e] = round_output(__fmul_rn(w.table[code_of(w, e)], scale_of(w, e >> w.block_shift)));
}

// step A.10: the table in shared memory, then a chunk a thread; the ragged tail and odd views element by element
extern "C" __global__ void dequantize_wide(const __grid_constant__ Weight w, Out* out) {
    __shared__ float table[16];                // 16 banks: lanes with different codes never wait for each other
    if (threadIdx.x < 16) table[threadIdx.x] = w.table[threadIdx.x];
    __syncthreads();                           // without it a warp looks up what the first has not put there yet
    const u64 whole = aligned(out, 16) ? w.len / WORD * WORD : 0;
    const u64 first = (u64)blockIdx.x * THREADS * CHUNK;
    if (first + THREADS * CHUNK > whole) rest_of(w, out, first, first + THREADS * CHUNK, whole);
    const u64 e = first + threadIdx.x * CHUNK;
    if (e >= whole) return;
    const float scale = scale_of(w, e >> w.block_shift);        // a block has 32 elements or more: one a chunk
    const u32 codes = codes_of(word_of(w.packed, e / CHUNK), e / CHUNK);
    float value[CHUNK];                        // element k has nibble k ^ 1, counted from the low end
    for (u32 k = 0; k < CHUNK; k++) value[k] = __fmul_rn(table[codes >> 4 * (k ^ 1) & 15], scale);
    ((uint4*)out)[e / CHUNK] = outputs_of(value);               // (CHUNK,) Out
}
LAUNCH(dequantize_wide, 256, CHUNK, 0, 0, 0);
// ANCHOR_END: nf4-step-10

// ANCHOR: nf4-step-11
// why: Every code is read once and every output written once by this kernel, so neither needs a place in a cache; a
// line so marked is the first to be given up. In a kernel like dequantize_wide the hints are worth nothing as the
// grader times; beside the prefetch of A.12 they are worth 5 %, since outputs no longer drive out codes that were
// fetched ahead (staircase.cu, v11 to v16 and v36).
// step A.11: tell the caches what is touched once, in inline PTX: a load of 4 bytes, a store of 16
__device__ __forceinline__ u32 load_once(const u32* from) {
#if INLINE_PTX
    u32 word;                                  // PTX ISA, "ld": the L1 does not keep the line
    asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(word) : "l"(from));
    return word;
#else
    return *from;
#endif
}

// step A.11: write 16 bytes that are not read here again
__device__ __forceinline__ void store_once(uint4* to, uint4 value) {
#if INLINE_PTX
    // PTX ISA, "st" and "Cache Operators": .cs, likely accessed once, the first that a cache gives up
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};"
                 :: "l"(to), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w) : "memory");
#else
    *to = value;
#endif
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

// why: dequantize_wide is a fifth above the bound for large weights, a third for small ones. What is left is time in
// which the DRAM has too little to do. Most of it is waiting inside a thread: a load does not stop its warp, the
// first use of what it loads does, so two chunks a thread have both words under way before either is waited for.
// Then, inside a launch, a wave of blocks waits for its codes: so every block fetches for the one that comes AHEAD
// blocks later. And between two launches nothing moves: so a launch begins inside the one before it and spends the
// wait on fetching codes into the L2, for which it needs nobody's permission. Only what differs from block to block
// is fetched so: when each block fetched code2 too, which is the same eight lines for all, they queued for those and
// a small weight took a tenth longer (v30). Each scale is computed once a warp. The table goes into a register of
// each lane: a shuffle of width 16 reads four bits of its index as they stand, so that a lookup needs no mask and no
// address, and the kernel no barrier.
// step A.12: as fast as the memory: what helps, together; first what a block fetches ahead into the L2
__device__ __forceinline__ void fetch_tile(const Weight& w, u64 tile, u32 lane) {
    constexpr u32 LINE = 256;                  // codes of 128 bytes
    const u64 first = tile * TILE, e = first + lane * LINE;
    if (lane < TILE / LINE && e < w.len) fetch_ahead(w.packed + e / 2);
    if (w.codes == nullptr) return;
    if (lane == TILE / LINE && first < w.len) fetch_ahead(w.codes + (first >> w.block_shift));
    if (lane == TILE / LINE + 1 && tile < 8) fetch_ahead(w.code2 + 32 * tile);      // once a launch, not once a block
    if (lane == TILE / LINE + 2 && 32 * tile << w.nested_shift << w.block_shift < w.len)
        fetch_ahead(w.scales + 32 * tile);
}

// step A.12: fetch ahead, wait, then two chunks a thread: loads, scales, outputs
extern "C" __global__ void __launch_bounds__(THREADS) dequantize(const __grid_constant__ Weight w, Out* out) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u64 tile = blockIdx.x, first = tile * TILE;
    if (warp == 0) fetch_tile(w, tile + AHEAD, lane);
    if (warp == 1 && tile < AHEAD) fetch_tile(w, tile, lane);   // nobody before fetched for these
    const float entry = w.table[lane % 16];    // lane q has what code q stands for
    let_next_begin();
    wait_for_previous();                       // without it codes are read that the kernel before still writes

    const u64 whole = aligned(out, 16) ? w.len / WORD * WORD : 0;
    if (first + TILE > whole) rest_of(w, out, first, first + TILE, whole);

    const u64 start = first + warp * 64 * CHUNK;                // the warp's 64 chunks
    const bool easy = aligned(w.packed, 4);
    u32 words[2];                              // both on their way before either is looked at
    for (u32 i = 0; i < 2; i++) {
        const u64 chunk = start / CHUNK + 32 * i + lane;
        words[i] = 0;
        if (chunk * CHUNK < whole)             // (8,) codes
            words[i] = easy ? load_once((const u32*)w.packed + chunk * CHUNK / WORD) : word_of(w.packed, chunk);
    }
    const u64 block = start >> w.block_shift;  // the warp's first; it has 16 at most
    float scale = 0.0f;
    if (lane <= (64 * CHUNK - 1) >> w.block_shift && block + lane << w.block_shift < w.len)
        scale = scale_of(w, block + lane);     // (1,) f32
    for (u32 i = 0; i < 2; i++) {
        const u64 e = start + (32 * i + lane) * CHUNK;
        const float mine = __shfl_sync(0xffffffffu, scale, (u32)((e >> w.block_shift) - block));
        const u32 codes = codes_of(words[i], e / CHUNK);
        float value[CHUNK];
        for (u32 k = 0; k < CHUNK; k++)
            value[k] = __fmul_rn(__shfl_sync(0xffffffffu, entry, codes >> 4 * (k ^ 1), 16), mine);
        const uint4 outputs = outputs_of(value);
        if (e < whole) store_once((uint4*)out + e / CHUNK, outputs);    // (CHUNK,) Out
    }
}
// The last number is 1 only for a kernel that calls wait_for_previous() before it reads: else write 0.
LAUNCH(dequantize, 256, 2 * CHUNK, 0, 0, OVERLAP);
// ANCHOR_END: nf4-step-12
