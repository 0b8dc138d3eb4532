// The staircase: every idea between the naive kernel and the last page of solution.cu, one kernel each, and the
// ideas that did not help.
//
//   out[e] = round(table[code(e)] * scale(e >> block_shift))           as in solution.cu, equal to the bit
//
// Threads. A chunk is what one 16-byte store holds: 8 outputs of a 16-bit type, 4 of f32. Unless a version says
//   otherwise a block has 256 threads, a thread one chunk, a warp's chunks lie side by side.
// Bytes. 2.516 an element: at the 3.03 TB/s of a copy of 1 GiB 48.8 us for 4096 x 14336, 13.9 us for 2048 x 8192.
// How to read it. Above each version: the idea; what was predicted before it ran; what was measured, as GB/s and
//   us at 4096 x 14336 bf16 / at 2048 x 8192 f16, as the grader times (book/src/results/h100.json, H100 80GB HBM3,
//   November 2026); and why. A version is a short list of choices: the difference from its parent is the idea.
//   Profiles of the versions: book/src/results/nf4-h100-ncu.csv.

#include "warpbook.cuh"

#if INLINE_PTX && __CUDA_ARCH__ >= 900
#define HOPPER 1                               // griddepcontrol, bulk copies, mbarrier
#else
#define HOPPER 0
#endif
#if INLINE_PTX && __CUDA_ARCH__ >= 800
#define AMPERE 1                               // cp.async, createpolicy
#else
#define AMPERE 0
#endif

constexpr u32 WORD = 8;                        // codes of a 4-byte word
constexpr u32 CHUNK = 16 / sizeof(Out);
constexpr u32 ALL = 0xffffffffu;
constexpr u32 RESIDENT = 132 * 2048;           // threads that an H100 holds at once

__device__ __forceinline__ u32 code_of(const Weight& w, u64 e) {
    const u32 byte = w.packed[e / 2];
    return e % 2 == 0 ? byte >> 4 : byte & 15;
}

__device__ __forceinline__ float scale_of(const Weight& w, u64 block) {
    if (w.codes == nullptr) return w.scales[block];
    return __fadd_rn(__fmul_rn(w.code2[w.codes[block]], w.scales[block >> w.nested_shift]), w.offset);
}

__device__ __forceinline__ void one(const Weight& w, Out* out, u64 e) {
    out[e] = round_output(__fmul_rn(w.table[code_of(w, e)], scale_of(w, e >> w.block_shift)));
}

// How many elements the wide path takes; the rest, and all of a view that begins at an odd address, go one by one.
__device__ __forceinline__ u64 whole_of(const Weight& w, const Out* out) {
    return (u64)out % 16 == 0 && (u64)w.packed % 4 == 0 ? w.len / WORD * WORD : 0;
}
__device__ __forceinline__ void rest(const Weight& w, Out* out, u64 first, u64 last, u64 whole, u64 step) {
    for (u64 e = max(first, whole) + threadIdx.x; e < min(last, w.len); e += step) one(w, out, e);
}

// The word of a chunk, with the chunk's codes in its low bits.
__device__ __forceinline__ u32 low(u32 word, u64 chunk) { return word >> chunk * CHUNK % WORD * 4; }

__device__ __forceinline__ uint4 rounded(const float value[CHUNK]) {
#if OUTPUT_F32
    return make_uint4(round_output(value[0]), round_output(value[1]), round_output(value[2]), round_output(value[3]));
#else
    return make_uint4(round_pair(value[0], value[1]), round_pair(value[2], value[3]),
                      round_pair(value[4], value[5]), round_pair(value[6], value[7]));
#endif
}

// v01. The formula, one element a thread.
// Predicted 130 us: half a byte read and two written by a thread, so the number of instructions decides.
// Measured 490 GB/s, 301.8 us / 478 GB/s, 88.3 us.
// Why: the table is in the constant bank, which serves one address at a time. 32 lanes have 14 different codes or
// so and wait as many times, and nothing else matters.
extern "C" __global__ void v01_naive(const __grid_constant__ Weight w, Out* out) {
    const u64 e = (u64)blockIdx.x * 256 + threadIdx.x;
    if (e < w.len) one(w, out, e);
}
LAUNCH(v01_naive, 256, 1, 0, 0, 0);

// v02. A byte a thread: one load, one scale and one store for two elements.
// Predicted 160 us: half of everything but the lookups.
// Measured 571 GB/s, 258.9 us / 547 GB/s, 77.1 us.
// Why: a seventh less, since the lookups are all still there.
extern "C" __global__ void v02_byte(const __grid_constant__ Weight w, Out* out) {
    const u64 e = 2 * ((u64)blockIdx.x * 256 + threadIdx.x);
    if (e >= w.len) return;
    if ((u64)out % 8 != 0 || e + 1 == w.len) {
        for (u64 i = e; i < e + 2 && i < w.len; i++) one(w, out, i);
        return;
    }
    const u32 byte = w.packed[e / 2];
    const float scale = scale_of(w, e >> w.block_shift);
    const float first = __fmul_rn(w.table[byte >> 4], scale), second = __fmul_rn(w.table[byte & 15], scale);
#if OUTPUT_F32
    *(uint2*)(out + e) = make_uint2(round_output(first), round_output(second));
#else
    *(u32*)(out + e) = round_pair(first, second);
#endif
}
LAUNCH(v02_byte, 256, 2, 0, 0, 0);

// v03. Wide loads: a word a thread, its eight elements stored one by one.
// Predicted 110 us: a quarter of the loads of v02.
// Measured 684 GB/s, 215.9 us / 659 GB/s, 64.0 us.
// Why: the lookups again; and a warp's store now touches 32 places 16 bytes apart, 16 sectors for 64 bytes of data,
// eight times over. Some of the eight merge in the SM; the L2 still counts 11.0 million sectors written where 5.5
// million do.
extern "C" __global__ void v03_wide_loads(const __grid_constant__ Weight w, Out* out) {
    const u64 e = WORD * ((u64)blockIdx.x * 256 + threadIdx.x), whole = whole_of(w, out);
    if (e >= whole) {
        for (u64 i = e; i < e + WORD && i < w.len; i++) one(w, out, i);
        return;
    }
    const u32 word = ((const u32*)w.packed)[e / WORD];
    const float scale = scale_of(w, e >> w.block_shift);
    for (u32 k = 0; k < WORD; k++) out[e + k] = round_output(__fmul_rn(w.table[word >> 4 * (k ^ 1) & 15], scale));
}
LAUNCH(v03_wide_loads, 256, 8, 0, 0, 0);

// The choices of the versions from here on.
enum Table { CONSTANT, SHARED, SHUFFLE, SELECT, PERMUTE, PAIRS, OFFSETS };
enum Hint { NONE, ONCE, SKIP, FIRST, POLICY };
enum Scales { EACH, STAGED, WARP };
enum Fetch { NOTHING, GREEDY, WAVE, AHEAD };

struct Base {
    static constexpr u32 threads = 256, chunks = 1;
    static constexpr Table table = CONSTANT;
    static constexpr Hint load = NONE, store = NONE;
    static constexpr Scales scales = EACH;
    static constexpr bool overlap = false;
    static constexpr Fetch fetch = NOTHING;
};

template <Hint HINT>
__device__ __forceinline__ u32 load(const u32* from, u64 policy) {
    u32 word;
#if INLINE_PTX
    if (HINT == ONCE) asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(word) : "l"(from));
    if (HINT == FIRST) asm volatile("ld.global.L1::evict_first.u32 %0, [%1];" : "=r"(word) : "l"(from));
#endif
#if AMPERE
    if (HINT == POLICY)
        asm volatile("ld.global.L1::no_allocate.L2::cache_hint.u32 %0, [%1], %2;"
                     : "=r"(word) : "l"(from), "l"(policy));
#endif
    if (HINT == NONE || !INLINE_PTX || (HINT == POLICY && !AMPERE)) word = *from;
    return word;
}

// `to` is an element of an array of 16-byte values. Written to as *(uint4*)(out + e), the same address made the
// compiler split a plain store into four of 4 bytes.
template <Hint HINT>
__device__ __forceinline__ void store(uint4* to, uint4 v, u64 policy) {
#if INLINE_PTX
    if (HINT == ONCE)
        asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};"
                     :: "l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
    if (HINT == SKIP)
        asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};"
                     :: "l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
    if (HINT == FIRST)
        asm volatile("st.global.L1::evict_first.v4.u32 [%0], {%1, %2, %3, %4};"
                     :: "l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
#endif
#if AMPERE
    if (HINT == POLICY)
        asm volatile("st.global.L1::no_allocate.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;"
                     :: "l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "l"(policy) : "memory");
#endif
    if (HINT == NONE || !INLINE_PTX || (HINT == POLICY && !AMPERE)) *to = v;
}

__device__ __forceinline__ void let_next_begin() {
#if HOPPER
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_previous() {
#if HOPPER
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void fetch_line(const void* at) {
#if HOPPER
    asm volatile("prefetch.global.L2 [%0];" :: "l"(at));
#endif
}

// A tile's codes and scale codes into the L2, a line a lane.
__device__ __forceinline__ void fetch_tile(const Weight& w, u64 tile, u32 elements, u32 lane, bool tables) {
    const u64 first = tile * elements, e = first + lane * 256;
    const u32 lines = (elements + 255) / 256;
    if (lane < lines && e < w.len) fetch_line(w.packed + e / 2);
    if (w.codes == nullptr) return;
    if (lane == lines && first < w.len) fetch_line(w.codes + (first >> w.block_shift));
    if (tables && lane > lines && lane < lines + 9) fetch_line(w.code2 + 32 * (lane - lines - 1));
}

// Sixteen table entries, halved four times by a bit of the code: 15 selects an element.
__device__ __forceinline__ float selected(const Weight& w, u32 code) {
    float level[16];
    for (u32 i = 0; i < 16; i++) level[i] = w.table[i];
    for (u32 bit = 0, n = 8; n > 0; bit++, n /= 2)
        for (u32 i = 0; i < n; i++) level[i] = code >> bit & 1 ? level[2 * i + 1] : level[2 * i];
    return level[0];
}

template <class V>
struct Tables {
    static constexpr u32 FLOATS = V::table == PAIRS ? 512 : 16;
    float* shared;                             // FLOATS of them
    float mine;                                // SHUFFLE: lane l's entry is that of code l % 16

    __device__ __forceinline__ void fill(const Weight& w, float* memory) {
        shared = memory;
        mine = V::table == SHUFFLE ? w.table[threadIdx.x % 16] : 0.0f;
        if (V::table == SHARED || V::table == OFFSETS) {
            if (threadIdx.x == V::threads - 1)
                for (u32 q = 0; q < 16; q++) shared[q] = w.table[q];
        }
        if (V::table == PAIRS)
            for (u32 b = threadIdx.x; b < 256; b += V::threads)
                *(float2*)(shared + 2 * b) = make_float2(w.table[b >> 4], w.table[b & 15]);
    }

    __device__ __forceinline__ uint4 outputs(const Weight& w, u32 codes, float scale) const {
        float value[CHUNK];
        if (V::table == PERMUTE) return permuted(w, codes, scale);
        if (V::table == PAIRS) {
            for (u32 k = 0; k < CHUNK; k += 2) {
                const float2 pair = *(const float2*)(shared + 2 * (codes >> 4 * k & 255));
                value[k] = __fmul_rn(pair.x, scale);
                value[k + 1] = __fmul_rn(pair.y, scale);
            }
            return rounded(value);
        }
        const u32 odd = codes << 2 & 0x3c3c3c3c, even = codes >> 2 & 0x3c3c3c3c;    // OFFSETS: four bytes each
        for (u32 k = 0; k < CHUNK; k++) {
            const u32 code = codes >> 4 * (k ^ 1) & 15;
            float entry = 0.0f;
            if (V::table == CONSTANT) entry = w.table[code];
            if (V::table == SHARED) entry = shared[code];
            if (V::table == SHUFFLE) entry = __shfl_sync(ALL, mine, codes >> 4 * (k ^ 1), 16);
            if (V::table == SELECT) entry = selected(w, code);
            if (V::table == OFFSETS)
                entry = *(const float*)((const char*)shared + __byte_perm(k % 2 ? odd : even, 0, 0x4440 + k / 2));
            value[k] = __fmul_rn(entry, scale);
        }
        return rounded(value);
    }

    // All 16 outputs of the scale's block, then no arithmetic at all: a byte permute picks by the codes' low three
    // bits among eight entries, a second one among the other eight, the fourth bit chooses. 16-bit outputs only.
    static __device__ __forceinline__ uint4 permuted(const Weight& w, u32 codes, float scale) {
#if OUTPUT_F32
        float value[CHUNK];
        for (u32 k = 0; k < CHUNK; k++) value[k] = __fmul_rn(w.table[codes >> 4 * (k ^ 1) & 15], scale);
        return rounded(value);
#else
        u32 pair[8], lows[4], highs[4];        // entries 2 i and 2 i + 1; low bytes of entries 4 i .. 4 i + 3; high
        for (u32 i = 0; i < 8; i++)
            pair[i] = round_pair(__fmul_rn(w.table[2 * i], scale), __fmul_rn(w.table[2 * i + 1], scale));
        for (u32 i = 0; i < 4; i++) {
            lows[i] = __byte_perm(pair[2 * i], pair[2 * i + 1], 0x6420);
            highs[i] = __byte_perm(pair[2 * i], pair[2 * i + 1], 0x7531);
        }
        u32 words[4];
        for (u32 half = 0; half < 2; half++) {
            const u32 four = codes >> 16 * half & 0xffff;               // codes 1 0 3 2 of the half, by nibble
            const u32 pick = four & 0x7777;
            u32 upper = 0;                                              // 0xff in the bytes whose code is 8 or more
            for (u32 n = 0; n < 4; n++) upper |= (four >> (4 * n + 3) & 1) * 0xffu << 8 * n;
            const u32 l = (__byte_perm(lows[0], lows[1], pick) & ~upper)
                        | (__byte_perm(lows[2], lows[3], pick) & upper);
            const u32 h = (__byte_perm(highs[0], highs[1], pick) & ~upper)
                        | (__byte_perm(highs[2], highs[3], pick) & upper);
            words[2 * half] = __byte_perm(l, h, 0x4051);                // the high nibble's element comes first
            words[2 * half + 1] = __byte_perm(l, h, 0x6273);
        }
        return make_uint4(words[0], words[1], words[2], words[3]);
#endif
    }
};

template <class V>
__device__ __forceinline__ void version(const Weight& w, Out* out) {
    constexpr u32 PART = 32 * V::chunks * CHUNK;                // elements of a warp, side by side
    constexpr u32 TILE = V::threads * V::chunks * CHUNK;        // of a block
    constexpr u32 TILES = RESIDENT / V::threads;                // what an H100 holds at once
    __shared__ float memory[Tables<V>::FLOATS];
    __shared__ float staged[V::scales == STAGED ? TILE / 32 : 1];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u64 tile = blockIdx.x, first = tile * TILE, start = first + warp * PART, whole = whole_of(w, out);

    if (V::fetch == GREEDY && warp == 0) fetch_tile(w, tile, TILE, lane, true);
    if (V::fetch == WAVE && warp == 0 && tile < TILES) fetch_tile(w, tile, TILE, lane, tile == 0);
    if (V::fetch == AHEAD && warp == 0) fetch_tile(w, tile + 2 * TILES, TILE, lane, false);
    if (V::fetch == AHEAD && warp == 1 && tile < 2 * TILES) fetch_tile(w, tile, TILE, lane, tile == 0);
    Tables<V> tables;
    tables.fill(w, memory);
    if (V::overlap) let_next_begin();
    if (V::overlap) wait_for_previous();       // before the first read of what a kernel before may have written

    u64 policy = 0;
#if AMPERE
    if (V::load == POLICY) asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
#endif
    u32 codes[V::chunks];
    for (u32 i = 0; i < V::chunks; i++) {
        const u64 chunk = start / CHUNK + 32 * i + lane;
        codes[i] = chunk * CHUNK < whole ? load<V::load>((const u32*)w.packed + chunk * CHUNK / WORD, policy) : 0;
        codes[i] = low(codes[i], chunk);       // (CHUNK,) codes
    }

    const u64 base = (V::scales == STAGED ? first : start) >> w.block_shift;
    float own = 0.0f;                          // WARP: lane l has the scale of block base + l
    if (V::scales == STAGED) {
        for (u32 i = threadIdx.x; i <= (TILE - 1) >> w.block_shift; i += V::threads)
            if (base + i << w.block_shift < w.len) staged[i] = scale_of(w, base + i);
    }
    if (V::scales == WARP && lane <= (PART - 1) >> w.block_shift && base + lane << w.block_shift < w.len)
        own = scale_of(w, base + lane);
    if (Tables<V>::FLOATS > 0) __syncthreads();                 // the table and the staged scales are there

    for (u32 i = 0; i < V::chunks; i++) {
        const u64 e = start + (32 * i + lane) * CHUNK;
        const u32 block = (u32)((e >> w.block_shift) - base);
        float scale = 0.0f;
        if (V::scales == EACH && e < whole) scale = scale_of(w, e >> w.block_shift);
        if (V::scales == STAGED && e < whole) scale = staged[block];
        if (V::scales == WARP) scale = __shfl_sync(ALL, own, block);
        const uint4 outputs = tables.outputs(w, codes[i], scale);
        if (e < whole) store<V::store>((uint4*)out + e / CHUNK, outputs, policy);       // (CHUNK,) Out
    }
    rest(w, out, first, first + TILE, whole, V::threads);
}
#define VERSION(name, ...) \
    struct name##_choices : __VA_ARGS__; \
    extern "C" __global__ void __launch_bounds__(name##_choices::threads) \
        name(const __grid_constant__ Weight w, Out* out) { version<name##_choices>(w, out); } \
    LAUNCH(name, name##_choices::threads, name##_choices::chunks * CHUNK, 0, 0, name##_choices::overlap && HOPPER)
#define SET static constexpr

// v04. Wide stores: one of 16 bytes a thread, the warp's 512 bytes without gaps.
// Predicted 70 us: loads and stores are whole lines now.
// Measured 668 GB/s, 221.1 us / 646 GB/s, 65.4 us.
// Why: no better. The sectors are halved, and the warps queue for the lookups all the same: 98 warp-cycles of
// waiting for each instruction issued.
VERSION(v04_wide_stores, Base { });

// v05. The table in shared memory: 16 entries in 16 banks, so that lanes with different codes never collide and
// lanes with equal codes are served together.
// Predicted 58 us: a lookup now costs a cycle of the load unit in place of 14 or so.
// Measured 2616 GB/s, 56.5 us / 2349 GB/s, 18.0 us.
// Why: the only change that is worth a factor, and none of the changes before it could show its worth until now.
VERSION(v05_table_shared, Base { SET Table table = SHARED; });

// v06. The table in a register of each lane, looked up by a shuffle, which reads the low four bits of its index
// as they stand: no mask, no barrier.
// Predicted as v05: a shuffle takes the same unit for the same time.
// Measured 2628 GB/s, 56.2 us / 2361 GB/s, 17.9 us.
// Why: as predicted. See v34.
VERSION(v06_table_shuffle, Base { SET Table table = SHUFFLE; });

// v07. The table in the operands of a tree of selects: no memory at all.
// Predicted 75 us: 15 more instructions an element are 60 % of all that the SMs can issue in 50 us.
// Measured 1798 GB/s, 82.2 us / 1665 GB/s, 25.3 us.
VERSION(v07_table_select, Base { SET Table table = SELECT; });

// v08. Bytes permuted: the 16 outputs that a scale allows, computed once, then picked by prmt.
// Predicted 62 us: about eight instructions an element, half of them for outputs that are not asked for.
// Measured 2374 GB/s, 62.2 us / 2186 GB/s, 19.3 us.
VERSION(v08_table_permute, Base { SET Table table = PERMUTE; });

// v09. A table of pairs: 256 entries of two floats, one lookup a byte.
// Predicted 65 us: half the lookups, but random ones in 16 banks of pairs: about three lanes meet in one.
// Measured 2365 GB/s, 62.5 us / 2150 GB/s, 19.6 us.
// Why: 3.7 million bank conflicts in place of 0.2 million.
VERSION(v09_table_pairs, Base { SET Table table = PAIRS; });

// v10. Table offsets without arithmetic: two masks make all eight offsets, a byte permute takes each out.
// Predicted 1 % better than v05: a third fewer integer instructions, of which there are enough to spare.
// Measured 2642 GB/s, 55.9 us / 2376 GB/s, 17.8 us.
// Why: the time is as predicted, the instructions are not: 3 % of all are gone.
VERSION(v10_offsets, Base { SET Table table = OFFSETS; });

// v11. Streaming stores (.cs): outputs are not read again, the caches may drop them first.
// Predicted 2 % better than v05.
// Measured 2603 GB/s, 56.7 us / 2354 GB/s, 17.9 us.
// Why: nothing, see v13.
VERSION(v11_store_hint, v05_table_shared_choices { SET Hint store = ONCE; });

// v12. Loads that the L1 does not keep (L1::no_allocate), with plain stores.
// Predicted 2 % better than v05.
// Measured 2609 GB/s, 56.6 us / 2355 GB/s, 17.9 us.
// Why: nothing, see v13.
VERSION(v12_load_hint, v05_table_shared_choices { SET Hint load = ONCE; });

// v13. Both.
// Predicted 4 % better than v05, the sum.
// Measured 2611 GB/s, 56.6 us / 2353 GB/s, 17.9 us.
// Why: nothing, where content is renewed before each sample. In graphs over content that stays, either hint alone is
// worth nothing and both 3 % (book/src/results/h100-hints.txt). It is not the L1, whose hit rate is the same in all
// four, and a profile of one launch shows no difference. The cause was not found. See v36.
VERSION(v13_hints, v05_table_shared_choices { SET Hint load = ONCE; SET Hint store = ONCE; });

// v14. Stores that the L1 does not keep, but no hint for the L2, with plain loads.
// Predicted as v13: what v11 lacks is not a hint on its loads, it is that its stores have a lower rank in the L2.
// Measured 2605 GB/s, 56.7 us / 2356 GB/s, 17.9 us.
// Why: as v11 and v13, and as v11 where v13 gains; so the store's rank in the L2 is not what makes the difference.
VERSION(v14_store_skip, v05_table_shared_choices { SET Hint store = SKIP; });

// v15. L1::evict_first for both in place of no_allocate and .cs. In PTX it says nothing of the L2; for a store it
// compiles to the machine instruction of .cs, STG.E.EF.
// Predicted as v13.
// Measured 2614 GB/s, 56.5 us / 2349 GB/s, 18.0 us.
VERSION(v15_evict_first, v05_table_shared_choices { SET Hint load = FIRST; SET Hint store = FIRST; });

// v16. An L2 policy of evict_first on both, through createpolicy and L2::cache_hint.
// Predicted 1 % better than v13: codes that were just fetched outlive outputs in the L2.
// Measured 2637 GB/s, 56.0 us / 2383 GB/s, 17.7 us.
// Why: 1 % better, as predicted. The policy costs a 64-bit register and is the only hint here that tells the L2
// anything of the loads.
VERSION(v16_policy, v05_table_shared_choices { SET Hint load = POLICY; SET Hint store = POLICY; });

// v17, v18, v19. Two, four, eight chunks a thread: all loads in flight before the first use.
// Predicted 1 %, 2 %, 2 % better than v13: fewer blocks to start, more bytes in flight.
// Measured v17: 2799 GB/s, 52.8 us / 2505 GB/s, 16.9 us;
//          v18: 2824 GB/s, 52.3 us / 2643 GB/s, 16.0 us;
//          v19: 2817 GB/s, 52.4 us / 2804 GB/s, 15.1 us.
// Why: 7 %, the largest step after the table. A load does not stop its warp; the first use of what it loads does. So
// a thread's loads overlap, and a start, its addresses and two waits in a row serve twice the bytes. Four and eight
// add nothing at the large size. At 2048 x 8192 each doubling is worth 1 us, down to a grid of 1024 blocks, all
// resident at once.
VERSION(v17_chunks_2, v13_hints_choices { SET u32 chunks = 2; });
VERSION(v18_chunks_4, v13_hints_choices { SET u32 chunks = 4; });
VERSION(v19_chunks_8, v13_hints_choices { SET u32 chunks = 8; });

// v20. The tile's scales in shared memory, each computed once a block.
// Predicted 1 % better than v17: an eighth of the scale loads, but every warp waits for them at the barrier.
// Measured 2789 GB/s, 53.0 us / 2480 GB/s, 17.0 us.
// Why: what was saved on loads is waited for at the barrier, now the first reason for a stall.
VERSION(v20_scales_staged, v17_chunks_2_choices { SET Scales scales = STAGED; });

// v21. Each scale computed once a warp and handed on by a shuffle: no wait for other warps.
// Predicted 1 % better than v17.
// Measured 2786 GB/s, 53.0 us / 2492 GB/s, 16.9 us.
// Why: nothing by itself, 5 % fewer instructions: the scales come out of the L1 while the codes are on their way.
VERSION(v21_scales_warp, v17_chunks_2_choices { SET Scales scales = WARP; });

// v22 to v25. The block: 64, 128, 512, 1024 threads.
// Predicted within 1 % of v21, 1024 worse: half an SM is empty while the other half's last warp finishes.
// Measured v22: 2788 GB/s, 53.0 us / 2516 GB/s, 16.8 us;
//          v23: 2800 GB/s, 52.8 us / 2532 GB/s, 16.7 us;
//          v24: 2786 GB/s, 53.0 us / 2480 GB/s, 17.0 us;
//          v25: 2588 GB/s, 57.1 us / 2310 GB/s, 18.3 us.
VERSION(v22_block_64, v21_scales_warp_choices { SET u32 threads = 64; });
VERSION(v23_block_128, v21_scales_warp_choices { SET u32 threads = 128; });
VERSION(v24_block_512, v21_scales_warp_choices { SET u32 threads = 512; });
VERSION(v25_block_1024, v21_scales_warp_choices { SET u32 threads = 1024; });

// The persistent versions: eight blocks an SM go through the weight in steps of the grid.
template <class V>
__device__ __forceinline__ float scale_or(const Weight& w, u64 chunk, u64 whole) {
    return chunk * CHUNK < whole ? scale_of(w, chunk * CHUNK >> w.block_shift) : 0.0f;
}

// v26. A persistent grid, the next chunk's codes loaded before the current chunk is stored.
// Predicted 2 % better than v13: no block is ever started after the first ones, and loads are always in flight.
// Measured 2643 GB/s, 55.9 us / 2374 GB/s, 17.8 us.
// Why: 1 % better than v13, and 6 % worse than v17, which has two loads under way as well. The next codes are early,
// but each turn's scale is loaded and waited for; where blocks end, the hardware starts others that need not wait.
struct Persistent : v13_hints_choices { };
extern "C" __global__ void __launch_bounds__(256) v26_persistent(const __grid_constant__ Weight w, Out* out) {
    __shared__ float memory[16];
    Tables<Persistent> tables;
    tables.fill(w, memory);
    __syncthreads();
    const u64 whole = whole_of(w, out), step = (u64)gridDim.x * 256;
    const u32* words = (const u32*)w.packed;
    u64 chunk = (u64)blockIdx.x * 256 + threadIdx.x;
    u32 next = chunk * CHUNK < whole ? load<ONCE>(words + chunk * CHUNK / WORD, 0) : 0;
    for (; chunk * CHUNK < whole; chunk += step) {
        const u32 codes = low(next, chunk);
        const u64 after = chunk + step;
        if (after * CHUNK < whole) next = load<ONCE>(words + after * CHUNK / WORD, 0);
        const float scale = scale_or<Persistent>(w, chunk, whole);
        store<ONCE>((uint4*)out + chunk, tables.outputs(w, codes, scale), 0);
    }
    rest(w, out, whole + (u64)blockIdx.x * 256, w.len, whole, step);
}
LAUNCH(v26_persistent, 256, CHUNK, 8, 0, 0);

// v27. The same with a ring of eight words a thread, filled by cp.async: codes arrive in shared memory without
// passing through registers, eight steps ahead.
// Predicted as v26: eight times the loads in flight, but v26 had enough of them.
// Measured 2642 GB/s, 55.9 us / 2478 GB/s, 17.0 us.
// Why: as predicted; the codes are early, and each scale is still waited for in turn.
struct Ring : v13_hints_choices { };
extern "C" __global__ void __launch_bounds__(256) v27_cp_async(const __grid_constant__ Weight w, Out* out) {
    constexpr u32 DEPTH = 8;
    __shared__ float memory[16];
    __shared__ u32 ring[DEPTH][256];           // a thread reads back only what it asked for: no barrier
    Tables<Ring> tables;
    tables.fill(w, memory);
    __syncthreads();
    const u64 whole = whole_of(w, out), step = (u64)gridDim.x * 256;
    const u64 origin = (u64)blockIdx.x * 256 + threadIdx.x;
    auto ask = [&](u64 turn) {
        const u64 chunk = origin + turn * step;
        if (chunk * CHUNK < whole) {
            const u32* from = (const u32*)w.packed + chunk * CHUNK / WORD;
            u32* to = &ring[turn % DEPTH][threadIdx.x];
#if AMPERE
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                         :: "r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
#else
            *to = *from;
#endif
        }
#if AMPERE
        asm volatile("cp.async.commit_group;" ::: "memory");
#endif
    };
    for (u64 turn = 0; turn + 1 < DEPTH; turn++) ask(turn);
    for (u64 turn = 0, chunk = origin; chunk * CHUNK < whole; turn++, chunk += step) {
        ask(turn + DEPTH - 1);
#if AMPERE
        asm volatile("cp.async.wait_group 7;" ::: "memory");    // all but the last seven have arrived
#endif
        const u32 codes = low(ring[turn % DEPTH][threadIdx.x], chunk);
        const float scale = scale_or<Ring>(w, chunk, whole);
        store<ONCE>((uint4*)out + chunk, tables.outputs(w, codes, scale), 0);
    }
    rest(w, out, whole + (u64)blockIdx.x * 256, w.len, whole, step);
}
LAUNCH(v27_cp_async, 256, CHUNK, 8, 0, 0);

// v28. Bulk copies both ways: the SM's tensor memory accelerator (TMA) brings a tile's codes to shared memory and
// takes its outputs away, a double buffer of each, while the threads do nothing but compute.
// Predicted 1 % better than v21: whole tiles are 16 KiB to the memory system, no load or store per thread.
// Measured 2626 GB/s, 56.3 us / 2381 GB/s, 17.7 us.
// Why: 6 % worse. 40 KiB of shared memory a block leave room for five blocks, 62.5 % of the warps; two barriers a
// tile keep them in step, and the scales come as late as before.
struct Bulk : v13_hints_choices { };
extern "C" __global__ void __launch_bounds__(256) v28_bulk(const __grid_constant__ Weight w, Out* out) {
    constexpr u32 CHUNKS = 1024;               // a tile
    __shared__ float memory[16];
    Tables<Bulk> tables;
    tables.fill(w, memory);
    u64 whole = whole_of(w, out);
    if ((u64)w.packed % 16 != 0) whole = 0;    // a bulk copy wants 16-byte addresses on both sides
    const u64 tiles = whole / (CHUNKS * CHUNK);
    whole = tiles * (CHUNKS * CHUNK);
#if HOPPER
    constexpr u32 BYTES_IN = CHUNKS * CHUNK / 2, BYTES_OUT = CHUNKS * 16;
    __shared__ __align__(128) u8 in[2][BYTES_IN];
    __shared__ __align__(128) uint4 result[2][CHUNKS];
    __shared__ u64 full[2];
    const auto shared = [](const void* at) { return (u32)__cvta_generic_to_shared(at); };
    const auto ask = [&](u64 tile, u32 side) {
        if (tile >= tiles) return;
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;"
                     :: "r"(shared(&full[side])), "r"(BYTES_IN) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     :: "r"(shared(in[side])), "l"(w.packed + tile * BYTES_IN), "r"(BYTES_IN),
                        "r"(shared(&full[side])) : "memory");
    };
    if (threadIdx.x == 0) {
        for (u32 side = 0; side < 2; side++)
            asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(shared(&full[side])) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");    // the TMA sees the barriers
        ask(blockIdx.x, 0);
        ask((u64)blockIdx.x + gridDim.x, 1);
    }
    __syncthreads();                           // nobody waits on a barrier that is not there
    for (u64 turn = 0, tile = blockIdx.x; tile < tiles; turn++, tile += gridDim.x) {
        const u32 side = turn % 2, phase = turn / 2 % 2;
        u32 arrived = 0;
        while (!arrived)
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                         : "=r"(arrived) : "r"(shared(&full[side])), "r"(phase) : "memory");
        if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
        __syncthreads();                       // the outputs of two turns ago have left this side
        for (u32 i = 0; i < CHUNKS / 256; i++) {
            const u32 chunk = 256 * i + threadIdx.x;
            const u32 codes = low(((const u32*)in[side])[chunk * CHUNK / WORD], chunk);
            const float scale = scale_of(w, (tile * CHUNKS + chunk) * CHUNK >> w.block_shift);
            result[side][chunk] = tables.outputs(w, codes, scale);
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");    // the TMA sees the outputs
        __syncthreads();                       // all of them
        if (threadIdx.x == 0) {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                         :: "l"(out + tile * CHUNKS * CHUNK), "r"(shared(result[side])), "r"(BYTES_OUT) : "memory");
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            ask(tile + 2 * (u64)gridDim.x, side);
        }
    }
    if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#else
    __syncthreads();
    for (u64 chunk = (u64)blockIdx.x * 256 + threadIdx.x; chunk * CHUNK < whole; chunk += (u64)gridDim.x * 256) {
        const u32 codes = low(((const u32*)w.packed)[chunk * CHUNK / WORD], chunk);
        store<NONE>((uint4*)out + chunk, tables.outputs(w, codes, scale_or<Bulk>(w, chunk, whole)), 0);
    }
#endif
    rest(w, out, whole + (u64)blockIdx.x * 256, w.len, whole, (u64)gridDim.x * 256);
}
LAUNCH(v28_bulk, 256, 4 * CHUNK, 5, 0, 0);

// v29. Programmatic dependent launch: the next kernel's blocks begin as soon as this one's have all begun, and
// wait before their first read. What is saved is the time from the last block's end to the next one's start.
// Predicted 1.0 us less than v21 at every size.
// Measured 2809 GB/s, 52.6 us / 2569 GB/s, 16.4 us.
// Why: 0.4 and 0.5 us; the wait for the last stores of the kernel before is left.
VERSION(v29_overlap, v21_scales_warp_choices { SET bool overlap = true; });

// v30. While it waits, every block fetches its codes, its scale codes and the 1 KiB of code2 into the L2: a
// prefetch is no read.
// Predicted 0.4 us less than v29: the first wave finds its codes in the L2.
// Measured 2718 GB/s, 54.4 us / 2336 GB/s, 18.1 us.
// Why: 1.8 us more. The eight lines of code2 are the same for all. A line has its home in one slice of the L2: every
// block of the grid queues there, where a load would have been answered by the L1.
VERSION(v30_fetch_greedy, v29_overlap_choices { SET Fetch fetch = GREEDY; });

// v31. Only the blocks of the first wave fetch, and one block alone fetches code2.
// Predicted 0.4 us less than v29.
// Measured 2843 GB/s, 52.0 us / 2677 GB/s, 15.8 us.
// Why: 0.6 us. One wave of codes is 2 MB, 0.7 us of the DRAM's time, now read while it had nothing to do.
VERSION(v31_fetch_wave, v29_overlap_choices { SET Fetch fetch = WAVE; });

// v32. Every block fetches for the block that comes two waves later; the first two waves also for themselves.
// Predicted 0.5 us less than v31: later waves find their codes in the L2 too, and while the DRAM would be idle
// between two launches it reads up to two waves of codes.
// Measured 2930 GB/s, 50.4 us / 2864 GB/s, 14.7 us.
// Why: 1.5 us and 1.0 us. The reads are a fifth of all bytes, and a part of them is now done while the DRAM had
// nothing to do; a block that starts finds its codes in the L2.
VERSION(v32_fetch_ahead, v29_overlap_choices { SET Fetch fetch = AHEAD; });

// v33. The same without the overlap: the fetches of the first waves come too late to be of use.
// Predicted as v21.
// Measured 2905 GB/s, 50.8 us / 2790 GB/s, 15.1 us.
// Why: better than the overlap alone. Most waves are not the first: their codes wait in the L2.
VERSION(v33_ahead_alone, v32_fetch_ahead_choices { SET bool overlap = false; });

// v34, v35, v36. The same with the table shuffled, with 512 threads a block, with plain loads and stores.
// Predicted as v32, as v32, and 4 % worse.
// Measured v34: 2930 GB/s, 50.4 us / 2923 GB/s, 14.4 us;
//          v35: 2894 GB/s, 51.1 us / 2673 GB/s, 15.8 us;
//          v36: 2795 GB/s, 52.9 us / 2663 GB/s, 15.8 us.
// Why: v34 is as fast as v32, and 2 % faster at the small size; without the barrier that it does not need it is
// solution.cu. Here the hints count: without them 4.6 MB of codes are read twice, and it takes 5 % longer.
VERSION(v34_ahead_shuffle, v32_fetch_ahead_choices { SET Table table = SHUFFLE; });
VERSION(v35_ahead_512, v32_fetch_ahead_choices { SET u32 threads = 512; });
VERSION(v36_ahead_no_hints, v32_fetch_ahead_choices { SET Hint load = NONE; SET Hint store = NONE; });
